"""
One model for all, one for each, or something between?
======================================================

A thousand patients have a few visits each, with ten measurements a visit. What the measurements
mean differs between patients, but only along two directions, which nobody knows. A private model
for all patients misses these differences. A patient who does alone needs many visits. A personal
model is between the two: what patients have in common is learned from all of them, with privacy
for whole patients, and what is each patient's own is learned from that and the patient's visits.

The first part is an honest private fit, charged to a ledger of persons, with what may be published
of it. The plot is not: its fits have seeds, and every one would have to be charged if its
rows were private. All rows are simulated, and the test rows are taken to be public.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from dpsubspace import PrivacyLedger, PrivacyWarning
from dpsubspace.linear_model import PersonalizedLinearRegression, PersonalizedLogisticRegression

rng = np.random.default_rng(0)
n_patients, n_columns = 1000, 10
shared = rng.normal(size=n_columns)
directions = np.linalg.qr(rng.normal(size=(n_columns, 2)))[0]
weights = shared + 1.5 * rng.normal(size=(n_patients, 2)) @ directions.T
levels = 1.5 * rng.normal(size=n_patients)


def visits(each):
    """As many visits of every patient: measurements, outcomes, and whose they are."""
    patients = np.repeat(np.arange(n_patients), each)
    X = rng.normal(size=(len(patients), n_columns))
    y = levels[patients] + np.einsum("ij,ij->i", X, weights[patients])
    return X, y + rng.normal(size=len(y)), patients


X_test, y_test, patients_test = visits(10)

# %%
# One private fit
# ---------------
# ``groups`` says whose each visit is. The promise is then about all visits of a patient together.

X, y, patients = visits(8)
ledger = PrivacyLedger(epsilon=1.0, delta=1e-5, unit="person")
model = PersonalizedLinearRegression(epsilon=1.0)
ledger.fit(model, X, y, groups=patients)
print(ledger)
print(f"R2 of the personal models {model.score(X_test, y_test, groups=patients_test):.3f}")

# This may be published. With it, somebody new makes a model without sending anything to anybody.
published = model.public_part()
own = rng.normal(size=(8, n_columns))
_, level = published.personal(own, own @ shared + 2.0)
print(f"the level of somebody new: {level:.2f}, in truth 2\n")

# %%
# More and fewer visits
# ---------------------
# The personal models are compared with a model for all, each patient alone, and no privacy.

warnings.simplefilter("ignore", PrivacyWarning)
sizes = (1, 2, 4, 8, 16, 32)
names = ("shared model, epsilon 1", "each patient alone", "personal, epsilon 1", "not private")
errors = {name: [] for name in names}
for each in sizes:
    X, y, patients = visits(each)
    private = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=patients)
    exact = PersonalizedLinearRegression(epsilon=np.inf).fit(X, y, groups=patients)
    alone = np.empty(len(y_test))
    for patient in range(n_patients):
        own, theirs = patients == patient, patients_test == patient
        alone[theirs] = y[own].mean()
        if each > 1:
            ridge = RidgeCV(np.logspace(-1, 2, 7)).fit(X[own], y[own])
            alone[theirs] = ridge.predict(X_test[theirs])
    predicted = (
        private.public_part().predict(X_test),
        alone,
        private.predict(X_test, groups=patients_test),
        exact.predict(X_test, groups=patients_test),
    )
    for found, some in zip(errors.values(), predicted, strict=True):
        found.append(np.sqrt(np.mean((some - y_test) ** 2)))
# The same for labels: whether an outcome is above 0.
labels = PersonalizedLogisticRegression(random_state=0).fit(X, y > 0, groups=patients)
print(f"accuracy: {labels.score(X_test, y_test > 0, groups=patients_test):.3f}")
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, found), line in zip(errors.items(), ("--", "-.", "-", ":"), strict=True):
    axes.plot(sizes, found, line, marker="o", label=name)
    print(f"{name:>25}:", *(f"{error:.2f}" for error in found))
axes.set(xscale="log", xlabel="visits of each patient", ylabel="error on test rows (RMSE)")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.legend()
plt.show()
