"""
Words and prices: how do I fit sparse rows?
===========================================

The rows are adverts of homes, with the rent that was agreed on in private. The words of an advert
become a sparse row of 1,024 columns by hashing, which learns nothing from the rows and so costs
no privacy.
``DPSGDRegressor`` takes sparse rows, and needs two public numbers: a bound on the length of a row,
which is 1 by construction here, and the range of the target.

This is an honest private pipeline, charged to a ledger. The adverts are simulated, so that the
model can be compared with the truth, and the test rows are taken to be public.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from dpsubspace import DPSGDRegressor, PrivacyLedger

truth = {
    **{"balcony": 90, "garden": 150, "garage": 70, "view": 120, "new": 80},
    **{"noisy": -110, "basement": -160, "shared": -140, "old": -60, "damp": -130},
}
filler = [f"word{i}" for i in range(300)]


def adverts(n, seed):
    """Short texts of twelve words, and rents."""
    rng = np.random.default_rng(seed)
    texts, rents = [], np.empty(n)
    for i in range(n):
        telling = rng.choice(list(truth), rng.integers(1, 5), replace=False)
        rest = rng.choice(filler, 12 - len(telling), replace=False)
        texts.append(" ".join([*telling, *rest]))
        rents[i] = 900 + sum(truth[word] for word in telling) + rng.normal(0, 60)
    return texts, rents


texts, rents = adverts(20_000, seed=0)
texts_test, rents_test = adverts(2_000, seed=1)
to_rows = HashingVectorizer(n_features=1024, alternate_sign=False, norm="l2")
X, X_test = to_rows.transform(texts), to_rows.transform(texts_test)
print(f"{X.shape[0]:,} rows of {X.shape[1]:,} columns, {X.nnz / X.shape[0]:.0f} of them not zero")

# %%
# One private model
# -----------------
# The rows stay sparse during the fit.

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
model = DPSGDRegressor(epsilon=1.0, data_norm=1.0, target_bounds=(200, 1_600))
ledger.fit(model, X, rents)
print(f"R2 on test rows: {model.score(X_test, rents_test):.3f}\n\n{ledger}")

# %%
# What does each word add?
# ------------------------
# A released model may be asked anything, and that costs nothing more. Here it is asked what it
# predicts for a short advert, and for the same with one word more.

plain = " ".join(filler[:11])
asked = to_rows.transform([plain, *(f"{plain} {word}" for word in truth)])
predicted = model.predict(asked)
learned = predicted[1:] - predicted[0]
for word, said in zip(truth, learned, strict=True):
    print(f"{word:>8}: {said:+6.0f} (in truth {truth[word]:+d})")

order = np.argsort(list(truth.values()))
words, true = np.array(list(truth))[order], np.array(list(truth.values()))[order]
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.barh(words, learned[order], color="C0", label="the private model")
axes.plot(true, words, "D", color="C1", label="the truth")
axes.axvline(0, color="black", linewidth=0.8)
axes.set(xlabel="what a word adds to the rent")
axes.legend()
plt.show()
