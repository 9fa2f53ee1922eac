"""
What do several fits cost together?
===================================

Every fit to the same rows costs privacy. Guarantees add up, though epsilons do not simply add:
what adds up are nearly their squares. What fits will cost can be known before there are any data.

Nothing here is fitted: ``privacy_cost`` and ``BudgetDisplay`` take estimators that have seen
no row, so there is nothing to be honest about. A ledger counts the same fits as they come.
"""

import matplotlib.pyplot as plt
from sklearn.pipeline import make_pipeline

from dpsubspace import DPPCA, BoundedScaler, DPSGDFClassifier, privacy_cost
from dpsubspace.budget import BudgetDisplay, share_budget

# %%
# Fits of epsilon 1, one after the other
# --------------------------------------
# Four of them cost about twice as much as one, and not four times.

counts = range(1, 11)
fit = DPSGDFClassifier(epsilon=1.0, delta=1e-5)
together = [privacy_cost([fit] * k, delta=1e-5, n_samples=2000) for k in counts]
print("together:", *(f"{epsilon:.2f}" for epsilon in together))

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.plot(counts, counts, color="grey", linestyle="--", label="sum of the epsilons")
axes.plot(counts, together, marker="o", label="what they cost together")
axes.set(xlabel="fits of epsilon 1", ylabel="epsilon (delta = 1e-5)")
axes.legend()
plt.show()

# %%
# One budget for all steps of a Pipeline
# --------------------------------------
# ``share_budget`` sets the epsilon of each step, such that the Pipeline as a whole costs 1. The
# shares are of squares of mu, a number that stands for how little noise there is: these add up
# exactly, as the bars show.

model = make_pipeline(BoundedScaler(), DPPCA(8, data_norm=1.0), DPSGDFClassifier())
shares = {"boundedscaler": 1, "dppca": 1, "dpsgdfclassifier": 3}
share_budget(model, 1.0, delta=1e-5, shares=shares, n_samples=2000, n_features=30)
for name, step in model.named_steps.items():
    print(f"{name:>16}: epsilon {step.epsilon:.2f}")
print(f"{'sum':>16}: {sum(step.epsilon for step in model):.2f}")
whole = privacy_cost(model, delta=1e-5, n_samples=2000, n_features=30)
print(f"{'the Pipeline':>16}: {whole:.2f}")

BudgetDisplay.from_estimator(model, n_samples=2000, n_features=30)
plt.show()
