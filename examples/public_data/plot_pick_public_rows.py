"""
Which rows of a large public set are like mine?
===============================================

A large public collection holds a few rows that are like the private ones, among many that are not.
``GSDScorer`` releases once in which directions gradients of the private rows lie. What is asked of
it afterwards costs nothing: it says of every public row how much of it lies along these.

The scorer is an honest private pipeline, charged to a ledger. The collection takes a shortcut: its
digits are drawn from the same file as the private ones. It is mixed with pieces of photographs and
with noise, and with digits that are turned upside down.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_sample_images
from sklearn.feature_extraction.image import extract_patches_2d

from dpsubspace import PrivacyLedger
from dpsubspace.public_data import GSDScorer

rng = np.random.default_rng(0)
digits = rng.permutation(load_digits().data)
private, public = digits[:1400], digits[1400:]
photos = [
    extract_patches_2d(photo.mean(axis=2), (8, 8), max_patches=150, random_state=0) / 16
    for photo in load_sample_images().images
]
kinds = {
    "digits": public,
    "upside down": public.reshape(-1, 8, 8)[:, ::-1].reshape(-1, 64),
    "photographs": np.concatenate(photos).reshape(-1, 64),
    "noise": rng.uniform(0, 16, size=(300, 64)),
}
collection = np.concatenate(list(kinds.values()))
kind = np.repeat(list(kinds), [len(rows) for rows in kinds.values()])

# %%
# One private fit, and a number for every public row
# --------------------------------------------------

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
scorer = ledger.fit(GSDScorer(epsilon=1.0), private)
alike = scorer.transform(collection).sum(axis=1)
print(ledger)
best = np.argsort(-alike)[:300]
print(f"\namong the 300 best of {len(collection)} public rows:")
for name in kinds:
    print(f"{name:>12}: {np.sum(kind[best] == name)}")

# %%
# What was picked?
# ----------------

figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4), layout="constrained", width_ratios=(1.4, 1)
)
bins = np.linspace(alike.min(), alike.max(), 40)
for name in kinds:
    left.hist(alike[kind == name], bins, alpha=0.6, label=name)
left.set(xlabel="share of the row along private directions", ylabel="public rows")
left.legend()
shown = np.concatenate([best[:24], np.argsort(alike)[:24]])
tiles = np.pad(collection[shown].reshape(6, 8, 8, 8), ((0, 0), (0, 0), (1, 1), (1, 1)))
right.imshow(tiles.transpose(0, 2, 1, 3).reshape(60, 80), cmap="gray_r")
right.axhline(29.5, color="C3", linewidth=2)
right.set(title="most alike (above), least alike (below)", xticks=[], yticks=[])
plt.show()
