"""
Which public set helps? A ranking and a choice
==============================================

1,200 images of digits are private, and seven sets of public images are offered. A private ranking
says which are like the private rows, and a private choice names one. Neither says how much a set
helps: at epsilon 0.2 near sets help a lot and far ones harm; at 0.5 none is of any help.

The choice and the model of the first part are private, and charged to one ledger. The rest checks
them, with shortcuts: its seeds make the plot the same each time, and would not be given where
a ranking is published; accuracies are compared on test rows, which are taken to be public; and
the public digits are drawn from the same file as the private ones.

Who names a file gets the plot of the docs in it, which is made of four times as many fits.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_sample_images
from sklearn.decomposition import PCA
from sklearn.feature_extraction.image import extract_patches_2d

from dpsubspace import (
    DPSGDClassifier,
    DPSGDFClassifier,
    GEPClassifier,
    PrivacyLedger,
    PrivacyWarning,
    select_public,
)
from dpsubspace.public_data import GSDRankingDisplay, GSDScorer

warnings.simplefilter("ignore", PrivacyWarning)  # at 0.2 noise outweighs signal, and it says so
X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
order = rng.permutation(len(X))
private, test, public = np.split(X[order], [1200, 1500])
labels, test_labels, _ = np.split(y[order], [1200, 1500])
noise = rng.uniform(0, 16, public.shape)
photos = [extract_patches_2d(p.mean(axis=2), (8, 8)) for p in load_sample_images().images]
candidates = {
    "other digits": public,
    "half of them noise": np.concatenate([public[::2], noise[1::2]]),
    "inverted": 16 - public,
    "mirrored": public.reshape(-1, 8, 8)[:, :, ::-1].reshape(-1, 64),
    "photographs": rng.permutation(np.concatenate(photos))[: len(public)].reshape(-1, 64) / 16,
    "shuffled pixels": public[:, rng.permutation(64)],
    "noise": noise,
}

# %%
# A private choice and a private model
# ------------------------------------
# This is all that need be released. The choice is one name, and costs a tenth.

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
chosen = ledger.run(select_public, candidates, private, n_components=8, epsilon=0.1).name
model = GEPClassifier(epsilon=0.2)
ledger.fit(model, private, labels, X_public=(candidates[chosen],))
print(f"chosen: {chosen}, accuracy {model.score(test, test_labels):.3f}", ledger, sep="\n")

# %%
# What the ranking shows, and what it does not
# --------------------------------------------
# The ranking is on the left. Beside it is how accurate two ways of training are with each set.

distances = GSDScorer(n_components=8, epsilon=1.0, random_state=0).fit(private).rank(candidates)
n_fits = 8 if len(sys.argv) > 1 else 2
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
GSDRankingDisplay.from_distances(distances, values_format=".2f", ax=axes[0])
axes[0].set_xlabel("distance (released at epsilon 1)")


def accuracy(Model, epsilon, to_rows=np.asarray, **public_rows):
    """Mean accuracy of several fits."""
    models = (Model(epsilon=epsilon, random_state=seed) for seed in range(n_fits))
    fits = (model.fit(to_rows(private), labels, **public_rows) for model in models)
    return np.mean([fit.score(to_rows(test), test_labels) for fit in fits])


for epsilon, ax in zip((0.2, 0.5), axes[1:], strict=True):
    none, found = accuracy(DPSGDFClassifier, epsilon), []
    for name in distances:
        gep = accuracy(GEPClassifier, epsilon, X_public=(candidates[name],))
        projected = accuracy(DPSGDClassifier, epsilon, PCA(8).fit(candidates[name]).transform)
        print(f"{name:>20}: GEP {gep:.3f}, principal components {projected:.3f}")
        found.append((gep, projected))
    ax.plot(found, range(len(found)), "o", label=("GEP", "DP-SGD on 8 principal components"))
    ax.axvline(none, color="grey", linestyle="--", label="no public data")
    ax.set_xlabel(f"accuracy at epsilon {epsilon}")
figure.legend(*axes[2].get_legend_handles_labels(), loc="outside lower center", ncols=3)
if len(sys.argv) > 1:  # a file was named; an SVG is the same bytes every time
    plt.rcParams["svg.hashsalt"] = "choose"
    figure.savefig(sys.argv[1], metadata={"Date": None})
plt.show()
