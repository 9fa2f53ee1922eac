"""
Which candidate is best? A private search
=========================================

A grid search fits every candidate to the private rows, and each fit costs privacy. So do the
scores by which it chooses. ``PrivateSearch`` releases the best model only, and hides how many
were tried; its cost hardly depends on the number of candidates.

The search is an honest private pipeline, charged to a ledger. The plot next to it takes a
shortcut: it fits all candidates again, to show what there was to choose from. The rows are
simulated, and the test rows are taken to be public.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import Pipeline

from dpsubspace import BoundedScaler, DPSGDFClassifier, PrivacyLedger, PrivateSearch, privacy_cost

X, y = make_moons(4000, noise=0.2, random_state=0)
X_test, y_test = make_moons(4000, noise=0.2, random_state=1)


def waves(gamma):
    """Random waves of the columns: they learn nothing from rows, and so may be frozen."""
    sampler = RBFSampler(gamma=gamma, n_components=100, random_state=0)
    return FrozenEstimator(sampler.fit(np.zeros((1, 2))))


gammas = (0.1, 0.3, 1, 3, 10, 30, 100)
features = {"columns": "passthrough", **{f"waves {gamma:g}": waves(gamma) for gamma in gammas}}
scaler, classifier = BoundedScaler(bounds=(-2.5, 3.5)), DPSGDFClassifier(epsilon=1.0)
model = Pipeline([("scale", scaler), ("features", "passthrough"), ("classify", classifier)])

# %%
# One private search
# ------------------
# What is chosen here are the features. The parameters of the classifier need no search: they
# follow from public sizes and the budget.

ledger = PrivacyLedger(epsilon=1.5, delta=1e-5)
search = PrivateSearch(model, {"features": list(features.values())}, epsilon=1.0)
with ledger:
    search.fit(X, y)
chosen = next(name for name, step in features.items() if step is search.best_params_["features"])
print(f"chosen: {chosen}, accuracy on test rows {search.score(X_test, y_test):.3f}\n\n{ledger}")

# %%
# What does it save?
# ------------------
# On the left are all candidates, each in a fit of epsilon 1. On the right is what it costs to fit
# so many of them one by one, at epsilon 1 each and without their scores; that can be known without
# any rows. Beside it is a search at epsilon 1, whose fits have 1.9 times as much noise.

found = {}
for name, step in features.items():
    found[name] = model.set_params(features=step).fit(X, y).score(X_test, y_test)
counts = np.arange(1, 51)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.barh(list(found), found.values(), color=["C1" if n == chosen else "C0" for n in found])
left.set(xlim=(0.7, 1), xlabel="accuracy on test rows", title="candidates, and the chosen one")
left.invert_yaxis()
one_by_one = [privacy_cost([classifier] * int(k), n_samples=4000) for k in counts]
right.plot(counts, one_by_one, label="fitting all of them")
right.axhline(1.0, color="C1", label="PrivateSearch")
right.set(xlabel="number of candidates", ylabel="epsilon", ylim=(0, None), title="cost")
right.legend()
print(f"50 candidates one by one: epsilon {one_by_one[-1]:.1f}")
plt.show()
