"""What ``import dpsubspace`` loads, and what works without the extras."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from dpsubspace import DPSGDFClassifier
from dpsubspace.neural_network import TorchFeatures

HEAVY = {"torch", "matplotlib", "dp_accounting", "diffprivlib"}


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


EXTRAS = ["matplotlib", "torch", "rich", "pandas", "diffprivlib"]


@pytest.mark.parametrize(
    "missing",
    [EXTRAS, *(pytest.param([name], marks=pytest.mark.exhaustive) for name in EXTRAS)],
    ids=str,
)
def test_import_loads_nothing_heavy_and_a_fit_needs_no_extra(missing):
    code = f"""
import sys

asked = set()

class Missing:
    def find_spec(self, name, path=None, target=None):
        asked.add(name.split(".")[0])
        if name.split(".")[0] in {missing!r}:
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
import numpy as np
from dpsubspace import DPSGDFClassifier
assert "dpsubspace" in asked and not asked & {HEAVY!r}, asked & {HEAVY!r}
X = np.random.default_rng(0).normal(size=(500, 3))
print(DPSGDFClassifier(epsilon=5.0).fit(X, X[:, 0] > 0).privacy_)
"""
    assert "epsilon = 5" in run(code)


def test_modules_are_imported_when_a_name_of_theirs_is_asked_for():
    loaded = "sorted(name for name in sys.modules if name.startswith('dpsubspace'))"
    assert run(f"import sys, dpsubspace; print(*{loaded})").split() == [
        "dpsubspace",
        "dpsubspace._names",
    ]
    after = run(f"import sys; from dpsubspace import DPSGDClassifier; print(*{loaded})").split()
    assert "dpsubspace.linear_model._dpsgd" in after
    around = ("audit", "budget", "model_selection", "reports")
    assert not [
        name for name in after if name.startswith(tuple(f"dpsubspace.{x}._" for x in around))
    ]


def test_an_audit_names_estimators_that_nobody_has_imported():
    code = """
import numpy as np
from sklearn.linear_model import LinearRegression
from dpsubspace import PrivacyError
from dpsubspace.audit import audit_estimator

try:
    audit_estimator(LinearRegression(), np.zeros((4, 2)), np.zeros(4))
except PrivacyError as error:
    print(error)
"""
    assert "DPSGDClassifier" in run(code)


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "dpsubspace\[torch\]"'):
        TorchFeatures(object()).fit(np.ones((3, 2)))


def test_what_needs_dp_accounting_names_it_and_the_way_out():
    """Nothing private is possible without it; what is not private works."""
    code = """
import sys
import numpy as np
sys.modules["dp_accounting"] = None
from dpsubspace import DPSGDClassifier, PrivacyLedger, Range, Schema, private_mean
X, y = np.eye(20), np.arange(20) % 2
Schema({"a": Range(0, 1)}), PrivacyLedger(1.0, delta=1e-6)
calls = [
    lambda: DPSGDClassifier().fit(X, y),
    lambda: DPSGDClassifier(epsilon=np.inf).fit(X, y),
    lambda: DPSGDClassifier().privacy_event(n_samples=20, n_features=20),
    lambda: private_mean(X, bounds=(0, 1), epsilon=1.0),
]
for call in calls:
    try:
        call()
    except ImportError as error:
        assert "pip install 'dp-accounting" in str(error), error
    else:
        raise AssertionError
"""
    run(code)


def test_a_saved_model_predicts_and_prints_its_guarantee_without_dp_accounting(tmp_path):
    """Reports, and what adds up events, say what is missing."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = DPSGDFClassifier(epsilon=5.0, random_state=0).fit(X, X[:, 0] > 0)
    (tmp_path / "model").write_bytes(pickle.dumps([model, X, model.privacy_.details()]))
    code = f"""
import pickle
import sys
from pathlib import Path
for name in ("dp_accounting", "attr", "attrs", "tree", "absl", "mpmath"):
    sys.modules[name] = None
model, X, said = pickle.loads(Path({str(tmp_path / "model")!r}).read_bytes())
assert model.predict(X).any() and model.predict_proba(X).shape == (200, 2)
assert model.privacy_.details() == said and "Gaussian noise" in repr(model.privacy_)
model.privacy_.to_json({str(tmp_path / "json")!r})
assert "Gaussian noise" in model._repr_html_() and repr(model)
model = pickle.loads(pickle.dumps(model))

from dpsubspace import privacy_report
calls = [
    lambda: privacy_report(model),
    lambda: model.privacy_.event,
    lambda: model.fit(X, X[:, 0] > 0),
]
for call in calls:
    try:
        call()
    except ImportError as error:
        assert "pip install 'dp-accounting" in str(error), error
    else:
        raise AssertionError
"""
    run(code)
    assert (tmp_path / "json").read_text() == model.privacy_.to_json()
