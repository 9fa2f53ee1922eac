"""
When do a few directions beat all columns?
==========================================

Twenty clinics run one regression with the same 40 columns, and each has weights of its own. All
but one have published their rows. The weights of all clinics lie in three common directions, which
the public rows give for free. The private clinic then has to say three numbers and not 40, and
there is less noise in them. With few private rows that is a large gain. With many rows it is a
small loss, because the directions are not quite right and what they miss is lost.

The first part is an honest private pipeline: one fit, charged to a ledger. The plot is not: its
fits have seeds, and every one would have to be charged if its rows were private. The rows are
simulated, and the test rows are taken to be public.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from dpsubspace import DPLinearRegression, PrivacyLedger, PrivacyWarning
from dpsubspace.linear_model import PublicSubspaceLinearRegression
from dpsubspace.public_data import subspace_distance

rng = np.random.default_rng(0)
directions = np.linalg.qr(rng.normal(size=(40, 3)))[0]
scales = 10.0 ** rng.uniform(-2, 3, 40)  # the columns are in different units


def clinic(weights, n):
    """Rows of one clinic, in the units of its columns, and targets."""
    patients = rng.normal(size=(n, 40))
    return patients * scales, 50 + patients @ directions @ weights + rng.normal(size=n)


public = [clinic(2 * rng.normal(size=3), 100) for _ in range(19)]
X_public, y_public = zip(*public, strict=True)
private = 2 * rng.normal(size=3)
X, y = clinic(private, 16_000)
X_test, y_test = clinic(private, 2_000)

# %%
# One private model
# -----------------
# It is fitted in the directions of the public clinics.

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
model = PublicSubspaceLinearRegression(epsilon=1.0)
ledger.fit(model, X[:500], y[:500], X_public=X_public, y_public=y_public)
print(ledger)
print(f"{model.n_components_} directions, R2 on test rows {model.score(X_test, y_test):.3f}")
truth = directions.T / scales  # of columns as they come
print(f"distance to the true directions: {subspace_distance(model, truth):.2f}\n")

# %%
# More and fewer rows
# -------------------
# Beside it is a regression on all columns, with and without privacy.

warnings.simplefilter("ignore", PrivacyWarning)  # few rows are mostly noise, and it says so
sizes, seeds = (250, 500, 1000, 2000, 4000, 8000, 16_000), range(5)
tasks = {"X_public": X_public, "y_public": y_public}
methods = {
    "public directions": (PublicSubspaceLinearRegression, tasks),
    "all columns": (DPLinearRegression, {"X_public": X_public}),  # for ranges
}
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, (Model, given) in methods.items():
    scores = [
        [
            Model(random_state=seed).fit(X[:n], y[:n], **given).score(X_test, y_test)
            for seed in seeds
        ]
        for n in sizes
    ]
    medians = np.median(scores, axis=1)
    axes.plot(sizes, 1 - medians, marker="o", label=f"{name}, epsilon 1")
    print(f"{name:>25}:", *(f"{score:.3f}" for score in medians))
exact = np.array([LinearRegression().fit(X[:n], y[:n]).score(X_test, y_test) for n in sizes])
axes.plot(sizes, 1 - exact, color="grey", linestyle="--", label="all columns, not private")
print(f"{'not private':>25}:", *(f"{score:.3f}" for score in exact))
axes.set(xscale="log", yscale="log", xlabel="private rows", ylabel="1 - R2 on test rows")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.set_yticks([0.05, 0.1, 0.2, 0.5], [0.05, 0.1, 0.2, 0.5])
axes.legend()

plt.show()
