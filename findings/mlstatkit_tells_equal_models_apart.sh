#!/usr/bin/env bash
# MLstatkit 0.1.91 gives p = 0 for two models with the same area under the ROC curve.
#
# Expected: DeLong's test of a model and the same model with calibrated probabilities, which order
# all rows alike, has p = 1, or says that there is no difference to test.
# Seen: z = 0 and p = 0.0, with and without ties, under every seed; the method is said to be a
# bootstrap (MLstatkit 0.1.91, numpy 2.4.6, scikit-learn 1.9.1, scipy 1.17.1, Python 3.11).
# Two models whose areas differ by chance get p values as they should be.
# Why: the variance of the difference is 0, so that a bootstrap takes the place of the test. All of
# its differences are 0 as well, and p comes out as 0.
# Way out: compare the areas first, and test only if they differ; or look at the interval of the
# difference in place of p. Here, private_score_difference has an interval, and no p value.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q MLstatkit==0.1.91 numpy==2.4.6 scikit-learn==1.9.1 scipy==1.17.1
"$folder/venv/bin/python" - <<'END'
import numpy as np
from MLstatkit import Delong_test

rng = np.random.default_rng(0)
ill = rng.integers(0, 2, size=200)
scores = 0.3 * ill + rng.normal(size=200)
calibrated = 1 / (1 + np.exp(-0.2 - 0.7 * scores))  # the same order
rounded = np.round(scores)  # with ties
for seed in range(3):
    z, p, *_ = Delong_test(ill, scores, calibrated, random_state=seed)
    print("calibrated:", z, p)
    assert (z, p) == (0.0, 0.0)
    z, p, *_ = Delong_test(ill, rounded, rounded, random_state=seed)
    print("rounded, twice:", z, p)
    assert (z, p) == (0.0, 0.0)
z, p, *_ = Delong_test(ill, scores, rounded)
print("rounded against not rounded:", z, p)
assert 0 < p < 1
END
