"""
How good is a private model? Scores from private rows
=====================================================

An honest private pipeline: the model is trained on some private rows, and all that is
said of it comes from others, which pay for it. Only the last rows, which show what came
of it, are taken to be public.
"""

import sys

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.utils import shuffle

from dpsubspace import DPSGDFClassifier, PrivacyLedger, private_score
from dpsubspace.calibration import DPCalibratedClassifier, DPConformalClassifier
from dpsubspace.metrics import PrivateCalibrationDisplay, PrivateRocCurveDisplay

# Is the digit below 3? Rows in random order: what comes later must be like what came before.
X, y = load_digits(return_X_y=True)
X, y = shuffle(X, (y < 3).astype(int), random_state=0)
X_train, X_held_out, X_new = X[:700], X[700:1400], X[1400:]
y_train, y_held_out, y_new = y[:700], y[700:1400], y[1400:]

# %%
# Two tables, two ledgers
# -----------------------
# No row is in both, so that each pays for its own table only. (Who decides by something
# else than a coin which row is where, and who has rows in both, needs one ledger.) Rows of
# the class count four times, so that few are missed: its probabilities are then too high.

with PrivacyLedger(epsilon=1.0, delta=1e-5):
    model = DPSGDFClassifier(epsilon=1.0, class_weight={1: 4.0}).fit(X_train, y_train)

# %%
# One cost for all scores
# -----------------------
# Every metric is read from the same noisy counts of scores and labels.

held_out = PrivacyLedger(epsilon=1.0, delta=1e-5)
metrics = ["accuracy", "roc_auc", "roc_curve", "calibration_curve"]
with held_out:
    scores = private_score(model, X_held_out, y_held_out, metric=metrics, epsilon=0.4)
print(scores["accuracy"], scores["roc_auc"], sep="\n")
print(f"on the new rows: accuracy {model.score(X_new, y_new):.3f}\n")

# %%
# Right probabilities
# -------------------
# Weights bias probabilities, and so does private training. Two numbers, found on the held-out
# rows, repair most of that. Where noise would hide them, probabilities stay as they are.

with held_out:
    right = DPCalibratedClassifier(model, method="sigmoid", epsilon=0.2)
    right.fit(X_held_out, y_held_out)
before, after = (log_loss(y_new, m.predict_proba(X_new)) for m in (model, right))
print(
    f"log-odds times {right.slope_:.2f}, plus {right.intercept_:.2f}: the log loss of the new rows"
)
print(f"goes from {before:.3f} to {after:.3f}")

# %%
# Sets that hold the right label
# ------------------------------
# In at least nine of ten cases, noise included. Where both labels are in the set, the model
# does not know. The rows must be others than those that the model has learned from, so that the
# model is wrapped as it was fitted, and not with what the held-out rows have repaired.

with held_out:
    sets = DPConformalClassifier(model, confidence_level=0.9, epsilon=0.4)
    sets.fit(X_held_out, y_held_out)
found = sets.predict_set(X_new)
held = found[range(len(y_new)), y_new].mean()
sure = (found.sum(axis=1) == 1).mean()
print(f"sets hold the label of {held:.3f} of the new rows; {sure:.3f} have one label alone")
print(f"promised: {sets.expected_coverage_:.3f} on average\n\n{held_out}")

figure, (left, middle) = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
PrivateRocCurveDisplay.from_released(scores, name="held-out rows", ax=left)
PrivateCalibrationDisplay.from_released(scores, name="held-out rows", ax=middle)
left.set_title("ROC curve: 95% band for noise and sampling")
middle.set_title("Probabilities before recalibration")
if len(sys.argv) > 1:  # a file was named
    figure.savefig(sys.argv[1])

plt.show()
