"""
Are the probabilities right?
============================

The mean probability that a private classifier gives a class is about right, since ``fit`` releases
a number for that. Single probabilities may still be biased by clipping and noise: here they are too
close to 0 or to 1 for most rows. ``DPCalibratedClassifier`` repairs them with two numbers that it
finds on private rows that were held out.

This is an honest private pipeline: the classifier is charged to its own rows, and the repair and
both curves by the held-out rows. The rows are simulated.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from dpsubspace import DPSGDFClassifier, PrivacyLedger, private_score
from dpsubspace.calibration import DPCalibratedClassifier
from dpsubspace.metrics import PrivateCalibrationDisplay

X, y = make_classification(
    *(15_000, 20),
    **{"n_informative": 5, "weights": [0.8], "flip_y": 0.2, "random_state": 0},
)
X, X_held_out, y, y_held_out = train_test_split(X, y, test_size=10_000, random_state=0)

# %%
# A private classifier
# --------------------

model = PrivacyLedger(epsilon=0.3, delta=1e-5).fit(DPSGDFClassifier(epsilon=0.3), X, y)

# %%
# Look, repair, look again
# ------------------------
# The repair uses half of the held-out rows and the second look the other half: the rows that a
# repair was found on flatter it.

half = len(X_held_out) // 2
repair, judge = slice(None, half), slice(half, None)
ledger = PrivacyLedger(epsilon=1.5, delta=1e-5)
with ledger:
    before = private_score(
        model, X_held_out[judge], y_held_out[judge], metric="calibration_curve", epsilon=0.5
    )
    repaired = DPCalibratedClassifier(model, method="sigmoid", epsilon=0.5)
    repaired.fit(X_held_out[repair], y_held_out[repair])
    after = private_score(
        repaired, X_held_out[judge], y_held_out[judge], metric="calibration_curve", epsilon=0.5
    )
print(f"log-odds times {repaired.slope_:.2f}, plus {repaired.intercept_:.2f}\n\n{ledger}")
for name, fitted in (("before", model), ("after", repaired)):
    mean = fitted.predict_proba(X_held_out)[:, 1].mean()
    print(f"mean probability {name}: {mean:.3f}")

# %%
# The curves, with bands for noise and sampling
# ---------------------------------------------

figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
PrivateCalibrationDisplay.from_released(before, name="before", ax=axes)
PrivateCalibrationDisplay.from_released(after, name="after", ax=axes, ref_line=False)
plt.show()
