"""
Curves: training a torch module with privacy
============================================

``DPModuleClassifier`` and ``DPModuleRegressor`` train a torch module by DP-SGD. A module learns
what no linear model of the columns can: borders and functions that are curved. It pays where there
are many rows, and no public features that do the same work. Small modules are best, because noise
grows with the number of parameters.

Each fit is an honest private pipeline, and would have to be charged if it were one of several on
the same rows, as here. The rows are simulated. This example needs torch.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from dpsubspace import DPSGDFClassifier
from dpsubspace.neural_network import DPModuleClassifier, DPModuleRegressor


def network(columns):
    """One hidden layer; the seed is for the parameters that training starts from."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(columns, 16), nn.Tanh(), nn.Linear(16, 1))


# %%
# Classes with a border that is a wave
# ------------------------------------
# A module is copied and not changed. For two classes it has one column of scores.

rng = np.random.default_rng(0)
X, X_test = rng.uniform(-2, 2, size=(2, 2000, 2))
y, y_test = ((rows[:, 1] > 1.2 * np.sin(2 * rows[:, 0])).astype(int) for rows in (X, X_test))
x, z = np.meshgrid(np.linspace(-2, 2, 80), np.linspace(-2, 2, 80))
grid = np.column_stack([x.ravel(), z.ravel()])
models = {
    "linear model, epsilon 1": DPSGDFClassifier(epsilon=1.0),
    "module, epsilon 1": DPModuleClassifier(network(2), epsilon=1.0),
}
figure, panels = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
for (name, model), panel in zip(models.items(), panels, strict=True):
    score = model.fit(X, y).score(X_test, y_test)
    print(f"{name}: accuracy {score:.3f}")
    likely = model.predict_proba(grid)[:, 1].reshape(x.shape)
    panel.contourf(x, z, likely, levels=np.linspace(0, 1, 11), cmap="RdBu", alpha=0.8)
    panel.scatter(*X_test[:200].T, c=y_test[:200], cmap="RdBu", s=10, edgecolors="black", lw=0.3)
    panel.set(title=f"{name}: {score:.2f}", xticks=[], yticks=[])
plt.show()

# %%
# Numbers: a curve
# ----------------
# The range of the targets is public here. Without it, a part of the budget pays for an estimate.

X = rng.uniform(-3, 3, size=(2000, 1))
y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=2000)
places = np.linspace(-3, 3, 200)[:, None]
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(X[:500, 0], y[:500], ".", color="lightgrey", label="500 of the rows")
axes.plot(places, np.sin(2 * places), color="black", linestyle="--", label="the truth")
model = DPModuleRegressor(network(1), epsilon=1.0, target_bounds=(-2, 2)).fit(X, y)
curve = model.predict(places)
print(f"error of the curve: {np.sqrt(np.mean((curve - np.sin(2 * places[:, 0])) ** 2)):.2f}")
axes.plot(places, curve, color="C1", label="module, epsilon 1")
axes.set(xlabel="column", ylabel="target")
axes.legend(ncols=2)
plt.show()
