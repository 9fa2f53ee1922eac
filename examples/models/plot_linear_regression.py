"""
What do private weights look like, and how far off are they?
============================================================

``DPLinearRegression`` takes columns in their own units: rooms, dollars, years and miles. Where
nothing is known of a column, a part of the budget finds out where it lies and how far it spreads.
The weights come back in the units of the data, each with ``coef_std_``: what the noise of the fit
adds to it, roughly.

The first part is an honest private pipeline: one fit, charged to a ledger. The plot takes a
shortcut: it makes many fits with seeds. The homes are simulated, and the test rows are taken to
be public.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpsubspace import DPLinearRegression, PrivacyLedger

rng = np.random.default_rng(0)
truth = {"rooms": 25_000, "income": 3, "year": 1_000, "distance": -4_000}


def homes(n):
    """A table with columns in four units, and prices."""
    columns = {
        "rooms": rng.integers(1, 9, n),
        "income": rng.lognormal(10.5, 0.4, n),
        "year": rng.integers(-40, 31, n),  # since 1990
        "distance": rng.exponential(8.0, n),
    }
    X = pd.DataFrame(columns)
    return X, X @ pd.Series(truth) + rng.normal(0, 30_000, n)


X, y = homes(3000)
bounds = (0, 600_000)  # of prices: nobody sells for more where these homes are
X_test, y_test = homes(2000)

# %%
# One private model
# -----------------
# Nothing is scaled and nothing tuned. The range of the target is public; without it, the fit
# would have to estimate that as well, which fails now and then where epsilon is small.
# ``coef_std_`` is not a standard error of statistics: it is about the noise of the fit alone, and
# not about having 3,000 homes and no more.

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
model = ledger.fit(DPLinearRegression(epsilon=1.0, target_bounds=bounds), X, y)
for name, weight, std in zip(X, model.coef_, model.coef_std_, strict=True):
    print(f"{name:>8}: {weight:9,.1f} ± {std:.1f} (in truth {truth[name]:,})")
print(f"R2 on test rows: {model.score(X_test, y_test):.3f}\n\n{ledger}")

# %%
# Does a fit know how far off it is?
# ----------------------------------
# Each dot is one of ten fits, and the bars are what the first of them says of itself: its weight,
# and twice ``coef_std_`` on either side. All weights are divided by the true ones. The distances
# have a long tail, which the fit cuts off: that moves their weight, and ``coef_std_`` is silent.

epsilons, seeds = (0.3, 1.0, 3.0), range(10)
figure, panels = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained", sharey=True)
for epsilon, panel in zip(epsilons, panels, strict=True):
    models = (
        DPLinearRegression(epsilon=epsilon, target_bounds=bounds, random_state=seed)
        for seed in seeds
    )
    fits = [one.fit(X, y) for one in models]
    true = np.array(list(truth.values()))
    spots = np.arange(4)
    for place, fit in enumerate(fits):
        shifted = spots + 0.03 + 0.025 * place
        label = "ten fits" if place == 0 else None
        panel.plot(shifted, fit.coef_ / true, ".", color="C0", alpha=0.6, label=label)
    said = np.abs(2 * fits[0].coef_std_ / true)
    bars = {"fmt": "o", "color": "C1", "capsize": 4, "label": "what one fit says"}
    panel.errorbar(spots - 0.2, fits[0].coef_ / true, said, **bars)
    panel.axhline(1.0, color="grey", linestyle="--", linewidth=1)
    panel.set_xticks(range(4), truth)
    panel.set_title(f"epsilon {epsilon:g}")
    print(f"epsilon {epsilon:g}: R2", *(f"{fit.score(X_test, y_test):.2f}" for fit in fits))
panels[0].set_ylabel("weight divided by the true weight")
panels[0].legend()
plt.show()
