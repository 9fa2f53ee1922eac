"""
What does a model see of a column?
==================================

``TableEncoder`` turns the columns of a table into numbers between fixed limits, by what the schema
says and not by the rows, so that it costs nothing. Each number becomes a few waves over its
range: slow ones with a large weight, and faster ones with a smaller one. A linear model of waves
can bend, and what is too fine for the budget drowns in noise without harm.

This is an honest private pipeline: nothing but sizes, the budget and the schema is used.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dpsubspace import Categories, Range
from dpsubspace.tables import TableEncoder

schema = {
    "age": Range(18, 90),
    "gain": Range(100, 100_000, log=True),
    "ward": Categories(["A", "B", "C"]),
}
rng = np.random.default_rng(0)


def patients(n):
    """A table; its entries have no effect on the encoding."""
    columns = {"age": rng.uniform(18, 90, n), "gain": rng.uniform(100, 1e5, n)}
    return pd.DataFrame({**columns, "ward": rng.choice(list("ABC"), n)})


# %%
# More rows and a larger budget make it finer
# -------------------------------------------

for n, epsilon in ((500, 0.5), (5_000, 1.0), (50_000, 1.0)):
    encoder = TableEncoder(schema, epsilon=epsilon).fit(patients(n))
    names = encoder.get_feature_names_out()
    print(f"{n:>6} rows, epsilon {epsilon}: {len(names)} features")
print("cost:", encoder.privacy_.epsilon)
print("\n".join(["", *names[:3], "...", *names[-3:]]))

# %%
# Waves of two numbers
# --------------------
# With ``log=True`` the waves follow the order of magnitude: a gain of 100 and one of 1,000 differ
# as much as one of 1,000 and one of 10,000.

encoder = TableEncoder(schema, interactions=False).fit(patients(5_000))
names = encoder.get_feature_names_out()
figure, panels = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
for panel, column in zip(panels, ("age", "gain"), strict=True):
    low, high = schema[column].low, schema[column].high
    places = np.geomspace(low, high, 400) if schema[column].log else np.linspace(low, high, 400)
    asked = pd.DataFrame({"age": 50.0, "gain": 100.0, "ward": ["A"] * 400}).assign(
        **{column: places}
    )
    waves = encoder.transform(asked)[:, [name.startswith(column) for name in names]]
    for i, wave in enumerate(waves.T[:6]):
        panel.plot(places, wave, color="C0", alpha=1 - 0.14 * i, linewidth=2.5 - 0.35 * i)
    panel.set(xlabel=column, title=str(schema[column]))
    panel.set_xscale("log" if schema[column].log else "linear")
panels[0].set_ylabel("what the model sees")
plt.show()
