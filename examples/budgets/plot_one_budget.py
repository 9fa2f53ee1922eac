"""
One budget for everything that is done with a table
===================================================

An honest private pipeline: plan, choose, fit, score and report, all of it charged to one
ledger. Nothing is computed from the private rows outside of the block. The last rows, which
show what came of it, are taken to be public.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import Pipeline
from sklearn.utils import shuffle

from dpsubspace import (
    BoundedScaler,
    DPSGDFClassifier,
    PrivacyLedger,
    PrivateSearch,
    privacy_cost,
    privacy_report,
    private_score,
)
from dpsubspace.budget import BudgetDisplay, share_budget

# Rows in random order, so that those that are held out are like the others.
X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
X_train, X_held_out, X_new = X[:1000], X[1000:1400], X[1400:]
y_train, y_held_out, y_new = y[:1000], y[1000:1400], y[1400:]

# %%
# Plan
# ----
# Is the model to see the pixels, or random waves of them? The waves learn nothing from rows, so
# they may be frozen, and the range of a pixel is public. What fits cost is known before any row
# is looked at: the search and the last fit share an epsilon of 1.5 in the ratio of their own.

waves = FrozenEstimator(RBFSampler(gamma=0.3, random_state=0).fit(np.zeros((1, 64))))
scaler, classifier = BoundedScaler(bounds=(0, 16)), DPSGDFClassifier(epsilon=1.0)
model = Pipeline([("scaler", scaler), ("features", "passthrough"), ("classifier", classifier)])
search = PrivateSearch(model, {"features": ["passthrough", waves]}, epsilon=0.6)

share_budget([search, model], 1.5, delta=1e-5, n_samples=1000)
print(f"search: {search.epsilon:.2f}, fit: {classifier.epsilon:.2f}", end=", ")
print(f"together: {privacy_cost([search, model], n_samples=1000):.2f}\n")

# %%
# Spend
# -----
# Whatever is fitted or scored inside of the block is charged. Scores need no delta. It is known
# what they will cost, and so that part of epsilon is set apart for them from the start.

with PrivacyLedger(epsilon=2.0, delta=1e-5, pure_epsilon=0.4) as ledger:
    search.fit(X_train, y_train)
    model.set_params(features=search.best_params_["features"]).fit(X_train, y_train)
    score = private_score(model, X_held_out, y_held_out, epsilon=0.4)

print(f"chosen: {'pixels' if model['features'] == 'passthrough' else 'waves'}")
print(score)  # this may be published: the interval counts the noise and the sample
print(f"on the new rows: accuracy {model.score(X_new, y_new):.3f}\n")
print(ledger)

# %%
# Report
# ------
# A data protection officer files the report, which ``report.to_html(path)`` writes as a page. The
# plot shows what the budget was spent on.

report = privacy_report(ledger, curator="Example Post", use="reading postcodes")
print(f"\n{report.verdict}")

display = BudgetDisplay.from_ledger(ledger)

plt.show()
