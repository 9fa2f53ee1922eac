"""
Fine-tuning a public network with LoRA
======================================

A network that was trained on public rows can be used frozen, or some of it can be trained on
private rows. LoRA adds a product of two thin matrices to each frozen layer and trains these
alone, so that noise goes to few weights.

The digits 0 to 4 are taken to be public, and the digits 5 to 9 to be private. Each fit is an honest
private pipeline, and would have to be charged if it were one of several on the same rows, as here.
Test rows are taken to be public. This example needs torch.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from torch import nn

from dpsubspace import DPSGDFClassifier
from dpsubspace.neural_network import DPModuleClassifier, TorchFeatures

torch.set_num_threads(1)
X, y = load_digits(return_X_y=True)
X, public = (X / 16).astype(np.float32), y < 5
X_train, X_test = X[~public][:650], X[~public][650:]
y_train, y_test = y[~public][:650], y[~public][650:]

# %%
# A network of public rows
# ------------------------
# Ordinary training, without privacy. The last layer, which knows the digits 0 to 4, is left out.

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
network = nn.Sequential(body, nn.Linear(32, 5))
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, weight_decay=1e-4)
rows, labels = torch.tensor(X[public]), torch.tensor(y[public])
for _ in range(40):
    for batch in torch.randperm(len(rows)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(rows[batch]), labels[batch]).backward()
        optimizer.step()

# %%
# What is trained?
# ----------------
# The parameters that have ``requires_grad``, and no others. The product of the matrices is zero
# at first, so that training starts from the public network.


class LoRA(nn.Module):
    """A frozen layer, and in parallel a product of thin matrices that is trained."""

    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, rows):
        """Sum of both."""
        return self.layer(rows) + self.up(self.down(rows))


first, relu, second, last_relu = copy.deepcopy(body)
lora = nn.Sequential(LoRA(first), relu, LoRA(second), last_relu, nn.Linear(32, 5))
whole = nn.Sequential(copy.deepcopy(body), nn.Linear(32, 5))
for name, module in (("LoRA", lora), ("all weights", whole)):
    print(name, sum(w.numel() for w in module.parameters() if w.requires_grad), "trained numbers")

# %%
# Accuracy at epsilon 8
# ---------------------
# The network has learned to distinguish 0 to 4, and has lost much of what distinguishes 5 to 9
# apart. Here private training gets some of that back, but the pixels never lost it.

models = {
    "pixels, linear": DPSGDFClassifier(epsilon=8.0),
    "frozen network, linear": make_pipeline(TorchFeatures(body), DPSGDFClassifier(epsilon=8.0)),
    "LoRA": DPModuleClassifier(lora, epsilon=8.0),
    "all weights": DPModuleClassifier(whole, epsilon=8.0),
}
scores = [model.fit(X_train, y_train).score(X_test, y_test) for model in models.values()]
figure, axes = plt.subplots(figsize=(7, 2.5), layout="constrained")
bars = axes.barh(list(models), scores)
axes.bar_label(bars, fmt="%.2f")
axes.set(xlabel="accuracy on the digits 5 to 9", xlim=(0, 1.05))
axes.invert_yaxis()
plt.show()
