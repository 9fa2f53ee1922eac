"""
Deep features: a public network in front of a private classifier
================================================================

A network is trained on public images (the digits 0 to 4), frozen, and put before a private
classifier of private images (the digits 5 to 9, of which it has seen none). The private rows
pass through it one by one, so that it costs no privacy.

The plot takes two shortcuts: many models are fitted to the same private rows, where an honest
project fits one and charges it; and the shape of the network was chosen by looking at such
scores. The test rows are taken to be public. This example needs torch.
"""

import math
import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from torch import nn

from dpsubspace import DPSGDFClassifier, PrivacyWarning
from dpsubspace.metrics import PrivacyUtilityDisplay
from dpsubspace.neural_network import TorchFeatures

X, y = load_digits(return_X_y=True)
X, public = X / 16, y < 5  # pixels run from 0 to 16 by definition, not by measurement
rng = np.random.default_rng(0)


def scanned(X, careless=True):
    """Images on a 12 x 12 page: centred, or (careless) anywhere, half of them inverted."""
    pages = np.zeros((len(X), 12, 12))
    for page, image in zip(pages, X.reshape(-1, 8, 8), strict=True):
        row, column = rng.integers(0, 5, size=2) if careless else (2, 2)
        page[row : row + 8, column : column + 8] = image
    inverted = careless & (rng.random(len(X)) < 0.5)
    pages[inverted] = 1 - pages[inverted]
    return pages.reshape(len(X), -1)


# %%
# The public network
# ------------------
# It is trained on careless scans of the digits 0 to 4. What it learns to overlook, which is where
# the digit stands and whether it is inverted, is what the private images vary in as well.

torch.manual_seed(0)
backbone = nn.Sequential(
    *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
)
network = nn.Sequential(backbone, nn.Linear(256, 5))
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, weight_decay=1e-4)
labels = torch.tensor(y[public])
for _ in range(25):
    images = torch.tensor(scanned(X[public]), dtype=torch.float32).reshape(-1, 1, 12, 12)
    for batch in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
        optimizer.step()

# %%
# The private task, with and without it
# -------------------------------------
# For images as they are, pixels are good features, and there are fewer of them: the network does
# not pay. For careless scans, a linear model of pixels does not work, private or not.

features = TorchFeatures(backbone, input_shape=(1, 12, 12))
deep = make_pipeline(features, DPSGDFClassifier())
epsilons = [1, 3, 10, math.inf]
warnings.simplefilter("ignore", PrivacyWarning)  # some fits are mostly noise, and say so
figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for axes, careless in zip(panels, (False, True), strict=True):
    title = "careless scans" if careless else "images as they are"
    pages = scanned(X[~public], careless)
    train, test, y_train, y_test = train_test_split(
        pages, y[~public], test_size=250, stratify=y[~public], random_state=0
    )
    for name, model in (("pixels", DPSGDFClassifier()), ("deep features", deep)):
        display = PrivacyUtilityDisplay.from_estimator(
            *(model, train, y_train),
            **{
                "X_test": test,
                "y_test": y_test,
                "epsilons": epsilons,
                "scoring": "accuracy",
                "n_repeats": 3,
            },
            **{"name": name, "ax": axes, "chance_level": 0.2 if name == "pixels" else None},
        )
        for epsilon, scores in zip(epsilons, display.scores, strict=True):
            figures = f"{scores.mean():.3f} ± {scores.std(ddof=1):.3f}"
            print(f"{title}, {name:>13}, epsilon {epsilon:>4}: {figures}")
    axes.set_title(f"Digits 5 to 9, {len(train)} rows, {title}")
panels[1].get_legend().remove()
plt.show()
