"""
Private principal components, with and without public rows
==========================================================

``DPPCA`` finds the directions in which private rows vary most. Here these are images of digits. How
much of their variance do private directions capture: from private rows alone, from 50 public rows
alone, and from both?

The components are honest private releases. What they are looked at with takes shortcuts: a scatter
plot of private rows, and shares of their variance, are not covered by any guarantee. Public are
50 rows of people who agreed to show theirs. Such rows may differ from the rest in practice;
these are drawn at random, which is the best case.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.preprocessing import Normalizer

from dpsubspace import DPPCA, PrivacyWarning

warnings.simplefilter("ignore", PrivacyWarning)  # at 0.1 noise outweighs signal, and it says so
X, y = load_digits(return_X_y=True)
X = Normalizer().transform(X)  # row by row: nothing is fitted, so a norm of 1 is public
order = np.random.default_rng(0).permutation(len(X))
public, private, y = X[order[:50]], X[order[50:]], y[order[50:]]

# %%
# Two components
# --------------
# This is one fit, and what it cost. The components may be shown to anyone; the points may not.

pca = DPPCA(n_components=2, epsilon=1.0, data_norm=1.0).fit(private)
print(pca.privacy_)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
components = np.hstack([component.reshape(8, 8) for component in pca.components_])
left.imshow(components, cmap="RdBu")
left.axvline(7.5, color="black")
left.set(title="two components, epsilon 1", xticks=[], yticks=[])
points = right.scatter(*pca.transform(private).T, c=y, cmap="tab10", s=6)
right.legend(*points.legend_elements(), ncols=2, fontsize=8, loc="upper right")
right.set(title="private rows along them: not to be shown", xticks=[], yticks=[])
plt.show()

# %%
# Captured variance
# -----------------
# This is the variance of the rows along eight released components, as a share of what they have
# along the best eight. ``X_public`` costs nothing: a fit adds the public rows
# to what it releases, with a weight that follows from both.


def captured(components):
    """Share of the variance that the best components have."""
    rows = private - private.mean(axis=0)
    best = PCA(8).fit(private).components_
    return np.sum((rows @ components.T) ** 2) / np.sum((rows @ best.T) ** 2)


epsilons, seeds = (0.03, 0.1, 0.3, 1, 3), range(5)
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
for name, shown in (("private rows alone", None), ("private and public rows", public)):
    shares = np.array(
        [
            [
                captured(
                    DPPCA(8, epsilon=epsilon, data_norm=1.0, random_state=seed)
                    .fit(private, X_public=shown)
                    .components_
                )
                for seed in seeds
            ]
            for epsilon in epsilons
        ]
    )
    mean, spread = shares.mean(axis=1), shares.std(axis=1)
    axes.plot(epsilons, mean, marker="o", label=name)
    axes.fill_between(epsilons, mean - spread, mean + spread, alpha=0.2)
    for epsilon, m, s in zip(epsilons, mean, spread, strict=True):
        print(f"{name:>23}, epsilon {epsilon:>4}: captured {m:.3f} ± {s:.3f}")

alone = captured(PCA(8).fit(public).components_)
print(f"{'public rows alone':>23}: captured {alone:.3f}")
axes.axhline(alone, color="grey", linestyle="--", label="public rows alone")
axes.set(xscale="log", xlabel="epsilon (delta = 1e-5)", ylabel="captured variance")
axes.set_title(f"Digits, {len(private)} private rows, 50 public rows")
axes.set_xticks(epsilons, epsilons)
axes.minorticks_off()
axes.legend()
plt.show()
