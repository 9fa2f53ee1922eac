"""
What do public directions miss?
===============================

Training that keeps to a few directions of public rows loses what private rows have outside of
these. How much that is for each number of directions costs nothing to see between public rows, and
a small part of the budget between public and private ones.

1,200 images of digits are private. Other digits and their mirror images are public. The releases
are private and charged to one ledger. A shortcut: the public digits are from the same file as the
private ones.

Who names a file gets the plot of the docs in it, with seeds that make it the same each time.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dpsubspace import PrivacyLedger
from dpsubspace.public_data import ProjectionErrorDisplay, private_projection_error

X, _ = load_digits(return_X_y=True)
X = X[np.random.default_rng(0).permutation(len(X))]
public = X[1200:]
mean = public.mean(axis=0)  # what all rows have in common says little: models subtract a mean
private, public = X[:1200] - mean, public - mean
mirrored = public.reshape(-1, 8, 8)[:, :, ::-1].reshape(-1, 64)

# %%
# Public rows, and private ones
# -----------------------------
# The first curve is of public rows alone, one half on the directions of the other. Private rows of
# the same source have nearly the same curve. On the directions of mirror images more of them is
# missed: that is what such public rows would cost.

for_docs = len(sys.argv) > 1
ledger = PrivacyLedger(epsilon=1.0, delta=1e-5, allow_seeded=for_docs)
display = ProjectionErrorDisplay.from_public(public, random_state=0)
for name, rows in {"digits": public, "mirror images": mirrored}.items():
    seed = {"random_state": 0} if for_docs else {}
    released = ledger.run(private_projection_error, private, rows, epsilon=0.5, **seed)
    title = f"private rows on {name}"
    ProjectionErrorDisplay.from_released(released, name=title, ax=display.ax_, plot_random=False)
display.ax_.legend(loc="upper left", bbox_to_anchor=(0, -0.13), fontsize="small")
print(ledger)
if for_docs:  # an SVG is the same bytes every time
    plt.rcParams["svg.hashsalt"] = "projection"
    display.figure_.savefig(sys.argv[1], metadata={"Date": None}, bbox_inches="tight")
plt.show()
