"""
Regression on a raw table: how many bikes are out?
==================================================

A city counts the bikes that are rented in each hour. ``tabular_pipeline`` needs one thing more than
for classes: ``target``, the public range of what is predicted. Predictions are cut to it, and a
part of the budget finds out where in it the targets mostly lie.

The first part is an honest private pipeline, charged to a ledger. The comparison takes a shortcut:
every one of its fits would have to be charged. The hours are simulated, 8,000 of them: a few
hundred rows are too few for such curves. The test rows are taken to be public.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpsubspace import Categories, DPLinearRegression, PrivacyLedger, Range, tabular_pipeline
from dpsubspace.inspection import ShapeDisplay

rng = np.random.default_rng(0)


def rush(hour):
    """Bikes by the hour of a working day."""
    morning, evening = (hour - 8) / 1.8, (hour - 17.5) / 2.2
    return 60 + 260 * np.exp(-(morning**2)) + 330 * np.exp(-(evening**2))


def hours(n):
    """Hours with their weather, and bikes."""
    table = pd.DataFrame(
        {
            "hour": rng.integers(0, 24, n),
            "temperature": rng.normal(13, 9, n),
            "humidity": rng.uniform(20, 100, n),
            "day": rng.choice(["working", "weekend"], n, p=[5 / 7, 2 / 7]),
        }
    )
    bikes = rush(table["hour"]) - 0.5 * (table["humidity"] - 60)
    bikes = bikes * np.exp(-(((table["temperature"] - 22) / 18) ** 2))
    bikes = bikes * np.where(table["day"] == "weekend", 0.7, 1.0)
    return table, np.clip(bikes + rng.normal(0, 30, n), 0, None).round()


table, bikes = hours(8000)
new_table, new_bikes = hours(4000)

# %%
# One private model
# -----------------
# The city has 1,000 bikes: that is public.

schema = {
    "hour": Range(0, 23),
    "temperature": Range(-20, 40),
    "humidity": Range(0, 100),
    "day": Categories(["working", "weekend"]),
}
ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
model = tabular_pipeline(DPLinearRegression(), schema, epsilon=1.0, target=Range(0, 1_000))
ledger.fit(model, table, bikes)
print(model.privacy_)
print(f"\n{table.shape[1]} columns became {len(model[:-1].get_feature_names_out())} features")
print(f"R2 on new hours: {model.score(new_table, new_bikes):.3f}")

# %%
# What has it learned?
# --------------------
# Each panel shows how many bikes a column adds, with a band for the noise of the fit.

ShapeDisplay.from_estimator(model)
plt.show()

# %%
# What did the encoding bring?
# ----------------------------
# The same estimator on the columns as they are, with the same epsilon, can only draw straight
# lines. What the models say of a mild working day may be shown: it comes from what was released.

numbers, new_numbers = (rows.assign(day=rows["day"] == "weekend") for rows in (table, new_table))
plain = DPLinearRegression(epsilon=1.0, target_bounds=(0, 1_000)).fit(numbers, bikes)
print(f"R2 without the encoding: {plain.score(new_numbers, new_bikes):.3f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
asked = pd.DataFrame({"hour": np.arange(24), "temperature": 22.0, "humidity": 60.0})
left.plot(asked["hour"], rush(asked["hour"]), "k--", label="the truth")
left.plot(asked["hour"], model.predict(asked.assign(day="working")), label="tabular_pipeline")
left.plot(asked["hour"], plain.predict(asked.assign(day=False)), label="columns as they are")
left.set(xlabel="hour", ylabel="bikes", title="a mild working day")
left.legend()
right.plot(new_bikes[:1000], model.predict(new_table[:1000]), ".", markersize=3)
right.set(xlabel="bikes in 1,000 new hours", ylabel="predicted")
plt.show()
