import os

# Read when scipy is first imported: scikit-learn's array API checks then run, not skip.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)
