"""
Quickstart: a private model, a score and a budget
=================================================

This is an honest private pipeline: the model and the score are charged to one ledger, which refuses
whatever would cost more than its epsilon. The plot shows what the model has learned of each column,
and costs nothing.

To have the plot in a file::

    python examples/plot_quickstart.py plot.png
"""

import sys

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dpsubspace import PrivacyLedger, Range, private_score, tabular_pipeline
from dpsubspace.inspection import ShapeDisplay

data = load_breast_cancer()
X, y = data.data[:, [0, 1, 4]], data.target_names[data.target]  # benign or malignant
X, X_test, y, y_test = train_test_split(X, y, test_size=200, random_state=0)
schema = {  # what is public about the columns, not read from the rows
    "radius": Range(5, 30),
    "texture": Range(5, 40),
    "smoothness": Range(0.05, 0.2),
}
with PrivacyLedger(epsilon=1.5, delta=1e-5) as ledger:
    model = tabular_pipeline("classification", schema, epsilon=1.0).fit(X, y)
    score = private_score(model, X_test, y_test, metric="accuracy", epsilon=0.45)

print(score)  # for example accuracy = 0.92 (95% interval 0.87 to 0.97)
print(model.privacy_)  # (epsilon = 1, delta = 1e-05)-differentially private per row ...
print(ledger)  # epsilon 1.45 of 1.5 spent ...

# %%
# What the model has learned
# --------------------------
# Without noise, the curves would lie inside the bands at about nine of ten points.

figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
ShapeDisplay.from_estimator(model, ax=axes)

if len(sys.argv) > 1:  # a file was named
    figure.savefig(sys.argv[1])
plt.show()
