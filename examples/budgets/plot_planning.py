"""
What will it cost, before it is spent?
======================================

``plan_accuracy`` says how wide the intervals of a call will be, by epsilon and by rows, and what a
wanted width costs. It makes the call on rows that are public, so that nothing is released.

Nothing here is private: all rows are made up, most of them by the schema itself.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpsubspace import Range, Schema, private_coefficients, private_summary
from dpsubspace.budget import plan_accuracy

schema = Schema({"age": Range(18, 100), "stay": Range(0, 60), "smoker": ["no", "yes"]})

# %%
# A table of a paper
# ------------------
# Means and shares need no rows: the schema is enough. Their widths are computed, and not simulated.

sizes = [300, 1000, 3000, 10_000]
plan = plan_accuracy(private_summary, None, schema, n_samples=sizes, n_repeats=5)
print("epsilon for a mean age of plus or minus 2 years, with 1,000 rows:")
print(plan.epsilon_for(width=4, of="age, mean", n_samples=1000))
print("rows for the same at epsilon 0.3:", plan.rows_for(width=4, of="age, mean", epsilon=0.3))
plan.plot(of="age, mean")
plt.show()

# %%
# A regression
# ------------
# Coefficients depend on how the rows are, so that public ones are needed. Here they are made up as
# hard as those of the study may be. Bands hold 8 of 10 simulations.

rng = np.random.default_rng(0)
age, smoker = rng.normal(60, 12, 3000).clip(18, 100), rng.choice(["no", "yes"], 3000)
stay = rng.exponential(5 + age / 20 + 3 * (smoker == "yes")).clip(0, 60)
public = pd.DataFrame({"age": age, "stay": stay, "smoker": smoker})
slopes = plan_accuracy(
    *(private_coefficients, public, schema, "stay"), n_samples=sizes[1:], n_repeats=10
)
print(slopes)
slopes.plot(of="smoker[yes]")
plt.show()
