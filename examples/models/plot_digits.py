"""
Digits: a private classifier, its guarantee and its cost
========================================================

The first part is an honest private pipeline: every row is mapped by itself, nothing is fitted on
the private rows but one classifier, and it prints what it cost. The plot takes a shortcut: it
makes many fits with seeds. The scores are computed on test rows that are taken to be public.

To have the plot in a file, as the site has it::

    python examples/models/plot_digits.py docs/quickstart.svg
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, PrivacyLedger, PrivacyWarning

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)

# %%
# One private model
# -----------------
# Nothing is scaled and nothing tuned: rows are normalised one by one, and defaults follow from
# sizes and the budget. The ledger belongs to whoever answers for the rows.

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
model = ledger.fit(DPSGDFClassifier(epsilon=1.0), X, y, label="digits")
print(model.privacy_)
print(f"\ntest accuracy {model.score(X_test, y_test):.3f}\n")
print(ledger)

# %%
# The cost of privacy
# -------------------
# This makes fits at many budgets, for the plot only: were these rows really private, every one
# of them would have to be charged. At 0.1 the noise is larger than the signal, and a warning would
# say so.

epsilons = [0.1, 0.3, 1, 3, 10]
seeds = range(10)
warnings.simplefilter("ignore", PrivacyWarning)
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for Classifier in (DPSGDClassifier, DPSGDFClassifier):
    scores = np.array(
        [
            [
                Classifier(epsilon=epsilon, random_state=seed).fit(X, y).score(X_test, y_test)
                for seed in seeds
            ]
            for epsilon in epsilons
        ]
    )
    mean, spread = scores.mean(axis=1), scores.std(axis=1)
    axes.plot(epsilons, mean, marker="o", label=Classifier.__name__)
    axes.fill_between(epsilons, mean - spread, mean + spread, alpha=0.2)
    for epsilon, m, s in zip(epsilons, mean, spread, strict=True):
        print(f"{Classifier.__name__} epsilon {epsilon:>4}: accuracy {m:.3f} ± {s:.3f}")

not_private = DPSGDClassifier(epsilon=float("inf")).fit(X, y).score(X_test, y_test)
print(f"without privacy: accuracy {not_private:.3f}")
axes.axhline(not_private, color="grey", linestyle="--", label="not private")
axes.set(xscale="log", xlabel="epsilon (delta = 1e-5)", ylabel="test accuracy")
axes.set_title("Digits, 1437 rows: accuracy against privacy")
axes.set_xticks(epsilons, epsilons)
axes.minorticks_off()
axes.legend()

if len(sys.argv) > 1:  # a file was named; an SVG is the same bytes every time
    plt.rcParams["svg.hashsalt"] = "quickstart"
    figure.savefig(sys.argv[1], metadata={"Date": None})
plt.show()
