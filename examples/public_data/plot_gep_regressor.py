"""
Regression of spectra, with public ones
=======================================

A spectrum is a row of 200 numbers in one unit, and a private laboratory value belongs to each.
Spectra without such a value are public: the instrument maker has published some. ``GEPRegressor``
learns from them for free in which few directions spectra vary, and trains along these.

The first fit is an honest private pipeline, charged to a ledger. The plot takes a shortcut: it
makes many fits with seeds. The spectra are simulated, and the test rows are taken to be public.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from dpsubspace import DPSGDRegressor, PrivacyLedger, PrivacyWarning
from dpsubspace.linear_model import GEPRegressor

rng = np.random.default_rng(0)
wave = np.linspace(0, 1, 200)
peaks = np.exp(-(((wave - np.linspace(0.1, 0.9, 6)[:, None]) / 0.06) ** 2))
weights = np.array([4.0, -3.0, 2.0, 0.0, -2.0, 3.0])


def spectra(n):
    """Spectra of mixtures of six substances, and a value that depends on these."""
    amounts = rng.uniform(0, 1, size=(n, 6))
    X = amounts @ peaks + 0.05 * rng.normal(size=(n, 200))
    return X, 5 + amounts @ weights + 0.3 * rng.normal(size=n)


X, y = spectra(4000)
X_test, y_test = spectra(2000)
X_public, _ = spectra(200)
bounds = {"data_norm": 12.0, "target_bounds": (-5, 15)}  # from the handbook

# %%
# One private model
# -----------------

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
model = GEPRegressor(epsilon=1.0, **bounds)
ledger.fit(model, X[:1000], y[:1000], X_public=(X_public,))
print(ledger)
print(f"\nR2 on test rows: {model.score(X_test, y_test):.3f}")

# %%
# What are the public spectra worth?
# ----------------------------------
# They are worth most where private rows are few.

warnings.simplefilter("ignore", PrivacyWarning)  # few rows are mostly noise, and it says so
sizes, seeds = (250, 500, 1000, 2000, 4000), range(5)
methods = {
    "200 public spectra": (GEPRegressor, {"X_public": (X_public,)}),
    "no public rows": (DPSGDRegressor, {}),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(wave, X_public[:5].T, linewidth=1)
left.set(title="five public spectra", xlabel="wavelength", yticks=[])
for name, (Model, given) in methods.items():
    scores = [
        [
            Model(random_state=seed, **bounds).fit(X[:n], y[:n], **given).score(X_test, y_test)
            for seed in seeds
        ]
        for n in sizes
    ]
    mean, spread = np.mean(scores, axis=1), np.std(scores, axis=1)
    right.plot(sizes, mean, marker="o", label=name)
    right.fill_between(sizes, mean - spread, mean + spread, alpha=0.2)
    print(f"{name:>18}:", *(f"{m:.3f}" for m in mean))
right.set(title="epsilon 1", xscale="log", xlabel="private rows", ylabel="R2 on test rows")
right.set_xticks(sizes, sizes)
right.minorticks_off()
right.legend()
plt.show()
