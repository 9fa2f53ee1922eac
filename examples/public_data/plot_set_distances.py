"""
How far are sets of images apart? Three distances
=================================================

Research on public data asks how alike two sets of rows are. Three distances are offered:
that of gradient subspaces, Task2Vec, and optimal transport. ``GSDRankingDisplay`` draws them.

**None of this is private**: each distance is an exact number of the rows. Take them for public
sets, as here, or in research; for private rows there are ``GSDScorer`` and ``select_public``.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dpsubspace import PrivacyWarning
from dpsubspace.public_data import GSDRankingDisplay

warnings.simplefilter("ignore", PrivacyWarning)  # they say that they are not private
X, y = load_digits(return_X_y=True)
images = X.reshape(-1, 8, 8) / 16
rng = np.random.default_rng(0)
first, second = rng.permutation(len(X)).reshape(-1)[:600].reshape(2, 300)
sets = {
    "digits": X[first] / 16,
    "other digits": X[second] / 16,
    "mirrored": images[first][:, :, ::-1].reshape(-1, 64),
    "inverted": 1 - X[first] / 16,
    "shuffled pixels": X[first][:, rng.permutation(64)] / 16,
    "noise": rng.uniform(size=(300, 64)),
}
labels = {name: y[second if name == "other digits" else first] for name in sets}

# %%
# Distances of all pairs of sets
# ------------------------------
# Bright is far. All three find the other digits nearest to the digits, but they do not agree on
# the rest: for two of them shuffled pixels are the farthest, and for optimal transport
# inverted images.

figure, panels = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
distances = (
    ("gradient_subspace", None, ".2f"),  # it draws labels of its own
    ("task2vec", labels, ".2f"),
    ("optimal_transport", labels, ".0f"),
)
for (distance, given, form), panel in zip(distances, panels, strict=True):
    GSDRankingDisplay.from_sets(
        sets, distance, labels=given, random_state=0, ax=panel, values_format=form
    )
    panel.set_title(distance.replace("_", " "))
plt.show()
