"""Bytes of many seeded fits, to hold before and after a move that may change no number.

``python tests/golden.py write FILE`` stores a digest of every fitted attribute and event,
``python tests/golden.py check FILE`` says which differ. Digests hold on one machine only.
"""

import hashlib
import json
import sys
import warnings

import numpy as np
from scipy import sparse

import dpsubspace as dps

RNG = np.random.default_rng(0)
N, D = 600, 12
CENTRES = RNG.normal(size=(3, D))
CODES = RNG.integers(0, 3, size=N)
X = CENTRES[CODES] + 0.7 * RNG.normal(size=(N, D)) + 0.5
TARGET = X @ RNG.normal(size=D) + 3 + 0.3 * RNG.normal(size=N)
TARGETS = np.stack([TARGET, X[:, 0] - 2 * X[:, 1]], axis=1)
BINARY = np.where(CODES == 0, "a", "b")
PUBLIC_CODES = RNG.integers(0, 3, size=60)
PUBLIC = CENTRES[PUBLIC_CODES] + 0.8 * RNG.normal(size=(60, D)) + 0.5
PUBLIC_TARGET = PUBLIC @ RNG.normal(size=D)
PRESENT = np.arange(N) != 7


def digest(value):
    if isinstance(value, dict):
        return {str(k): digest(v) for k, v in sorted(value.items(), key=str)}
    if isinstance(value, (list, tuple)):
        return [digest(v) for v in value]
    if hasattr(value, "state_dict"):
        return {k: digest(v.numpy()) for k, v in value.state_dict().items()}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fiub":
        value = np.ascontiguousarray(value)
        code = hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()
        return f"{value.dtype}{value.shape}{code}"
    return repr(value)


def fitted(model):
    names = [
        n for n in vars(model) if n.endswith("_") and not n.startswith("_") and n != "privacy_"
    ]
    out = {name: digest(getattr(model, name)) for name in sorted(names)}
    if hasattr(model, "privacy_"):
        privacy = model.privacy_
        out["event"] = repr(privacy.event)
        out["guarantee"] = repr(
            (privacy.epsilon, privacy.delta, privacy.neighboring_relation, privacy.unit)
        )
        out["public"] = repr(privacy.public)
    return out


def cases():
    """Name, class, options, arguments of fit."""
    common = {
        "plain": {},
        "replace": {"neighboring_relation": "replace_one"},
        "poisson": {"batch_size": 100, "n_iter": 30},
        "poisson replace": {"batch_size": 60, "n_iter": 20, "neighboring_relation": "replace_one"},
        "eps .2": {"epsilon": 0.2},
        "expert": {"epsilon": None, "noise_multiplier": 20.0, "n_iter": 50},
        "expert poisson": {"epsilon": None, "noise_multiplier": 3.0, "batch_size": 100},
        "inf": {"epsilon": float("inf")},
        "no intercept": {"fit_intercept": False},
        "alpha": {"alpha": 0.01, "learning_rate": 0.5, "clip_norm": 0.2},
    }
    rows = {"dense": X, "float32": X.astype(np.float32), "csr": sparse.csr_matrix(X * (X > 1))}
    public = {"X_public": (PUBLIC,)}
    labelled = {"X_public": (PUBLIC,), "y_public": (PUBLIC_CODES,)}
    valued = {"X_public": (PUBLIC,), "y_public": (PUBLIC_TARGET,)}
    for name, options in common.items():
        yield f"dpsgd {name}", "DPSGDClassifier", options, (X, CODES), {}
        yield f"dpsgdf {name}", "DPSGDFClassifier", options, (X, CODES), {}
        yield f"reg {name}", "DPSGDRegressor", options, (X, TARGET), {}
        yield f"gep {name}", "GEPClassifier", options, (X, CODES), public
        yield f"gepreg {name}", "GEPRegressor", options, (X, TARGET), public
    for name, given in rows.items():
        for cls in ("DPSGDClassifier", "DPSGDFClassifier"):
            yield f"{cls} {name} binary", cls, {}, (given, BINARY), {}
        yield f"reg {name} two", "DPSGDRegressor", {"epsilon": 8.0}, (given, TARGETS), {}
        yield f"gep {name}", "GEPClassifier", {}, (given, CODES), labelled
        yield f"gepreg {name}", "GEPRegressor", {"data_norm": 9.0}, (given, TARGET), valued
        yield f"pca {name}", "DPPCA", {"n_components": 3}, (given,), {}
    yield "hinge", "DPSGDClassifier", {"loss": "hinge"}, (X, CODES), {}
    yield "weights", "DPSGDClassifier", {"class_weight": {0: 2.0}}, (X, CODES), {}
    yield "norm none", "DPSGDClassifier", {"row_norm": None}, (X, CODES), {}
    yield "norm 3", "DPSGDClassifier", {"row_norm": 3.0}, (X, CODES), {}
    yield "f norm 3", "DPSGDFClassifier", {"row_norm": 3.0}, (X, CODES), {}
    for p in ("adaptive", "auto"):
        yield f"f {p}", "DPSGDFClassifier", {"preprocessing": p, "epsilon": 5.0}, (X, CODES), {}
    yield (
        "f adaptive csr",
        "DPSGDFClassifier",
        {"preprocessing": "adaptive"},
        (rows["csr"], CODES),
        {},
    )
    yield "bounds", "DPSGDRegressor", {"data_norm": 5.0, "target_bounds": (-9, 9)}, (X, TARGET), {}
    yield "huber", "DPSGDRegressor", {"loss": "huber"}, (X, TARGET), {}
    for name, how in {"unlabelled": public, "labelled": labelled, "none": {}}.items():
        yield f"gep {name} present", "GEPClassifier", {"epsilon": 3.0}, (X, CODES), how
        for n in (0, 4):
            yield f"gep k={n} {name}", "GEPClassifier", {"n_components": n}, (X, CODES), how
        yield f"gep gradients {name}", "GEPClassifier", {"directions": "gradients"}, (X, CODES), how
        yield f"gep zero {name}", "GEPClassifier", {"init": "zero"}, (X, CODES), how
    gradients = {
        "b-gep": {"residual": False},
        "public labels": {"anchor_labels": "public"},
        "exact": {"power_iterations": None},
        "share": {"embedding_share": 0.5, "residual_norm": 0.1},
        "small": {"n_components": 7},
    }
    for name, options in gradients.items():
        given = {"directions": "gradients", "gradients": options}
        yield f"gep gradients {name}", "GEPClassifier", given, (X, CODES), labelled
    yield (
        "gep inf b",
        "GEPClassifier",
        {"epsilon": float("inf"), "n_components": 4},
        (X, CODES),
        labelled,
    )
    yield "gep mirror", "GEPClassifier", {"mirror": True}, (X, CODES), labelled
    yield "gep init public", "GEPClassifier", {"init": "public"}, (X, CODES), labelled
    yield "gep hinge", "GEPClassifier", {"loss": "hinge"}, (X, BINARY), public
    yield "gepreg none", "GEPRegressor", {}, (X, TARGET), {}
    yield "gepreg none given", "GEPRegressor", {"target_bounds": (-9.0, 9.0)}, (X, TARGETS), {}
    yield "gepreg gradients", "GEPRegressor", {"directions": "gradients"}, (X, TARGET), valued
    yield "gepreg mirror", "GEPRegressor", {"mirror": True, "init": "public"}, (X, TARGET), valued
    for name, options in {
        "default": {},
        "replace": {"neighboring_relation": "replace_one"},
        "power": {"mechanism": "power"},
        "gauss": {"mechanism": "gaussian"},
        "bingham": {"mechanism": "bingham", "centered": False, "data_norm": 5.0},
        "norm": {"data_norm": 5.0, "centered": False},
        "inf": {"epsilon": float("inf")},
        "share": {"n_components": 0.5, "epsilon": 20.0},
        "whiten": {"whiten": True, "epsilon": 5.0},
    }.items():
        options = {"n_components": 2, **options}
        yield f"pca {name}", "DPPCA", options, (X,), {}
        if name in ("default", "power", "gauss"):
            yield f"pca {name} public", "DPPCA", options, (X,), public
    for name, options in {"plain": {}, "many": {"epsilon": 20.0}, "l2": {"row_norm": "l2"}}.items():
        yield f"scaler {name}", "BoundedScaler", options, (X,), {}
    yield "scaler public", "BoundedScaler", {}, (X,), public
    for name, options in {
        "plain": {},
        "poisson": {"batch_size": 100, "n_iter": 10},
        "k": {"n_components": 5},
    }.items():
        options = {"module": True, "n_iter": 15, **options}
        yield f"module {name}", "GEPClassifier", options, (X, CODES), {}
        yield f"module {name} public", "GEPClassifier", options, (X, CODES), public
        yield f"modulereg {name}", "GEPRegressor", options, (X, TARGET), valued
    layered = {"module": True, "n_iter": 9, "gradients": {"groups": "layers"}}
    yield "module layers", "GEPClassifier", layered, (X, CODES), public


def module(n_out):
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(D, 8), torch.nn.Tanh(), torch.nn.Linear(8, n_out))


def build(name, options):
    """An estimator: the one place that knows how parameters are spelled today."""
    options = dict(options)
    settings = options.pop("gradients", {})
    if options.pop("module", False):
        kind = "Classifier" if "Classifier" in name else "Regressor"
        k = options.pop("n_components", "auto")
        options |= {
            "module": module(3 if kind == "Classifier" else 1),
            "directions": dps.GradientDirections(n_components=k, **settings),
        }
        return getattr(dps, f"DPModule{kind}")(random_state=5, **options)
    if options.get("directions") == "gradients":
        settings = {n.removeprefix("anchor_"): v for n, v in settings.items()}
        options["directions"] = dps.GradientDirections(**settings)
    if name.startswith("GEP") and options.pop("noise_multiplier", None):
        return None  # the expert's parameter has gone
    return getattr(dps, name)(random_state=5, **options)


def functions():
    for name in ("private_mean", "private_covariance", "private_quantile"):
        function = getattr(dps, name)
        for relation in ("zero_out", "replace_one"):
            for bounds in (None, (-5.0, 5.0)):
                options = {"neighboring_relation": relation, "bounds": bounds, "random_state": 3}
                value, privacy = function(X, epsilon=2.0, **options)
                yield f"{name} {relation} {bounds}", [digest(value), repr(privacy.event)]
    for method in ("recentre", "gaussian"):
        value, privacy = dps.private_mean(X, data_norm=9.0, method=method, random_state=3)
        yield f"mean {method}", [digest(value), repr(privacy.event)]


def found():
    out = {}
    for name, cls, options, given, public in cases():
        for present in (None, PRESENT):
            if present is not None and "plain" not in name and "present" not in name:
                continue
            model = build(cls, options)
            if model is None:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if present is None:
                    model.fit(*given, **public)
                elif cls == "BoundedScaler":
                    model._fit(given[0], present=present, **public)
                else:
                    model._fit(*given, present=present, **public)
            out[f"{name}{'' if present is None else ' null'}"] = fitted(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out.update(functions())
    return out


if __name__ == "__main__":
    command, path = sys.argv[1:]
    now = json.loads(json.dumps(found()))
    if command == "write":
        with open(path, "w") as file:
            json.dump(now, file, indent=0, sort_keys=True)
        print(len(now), "fits")
    else:
        with open(path) as file:
            before = json.load(file)
        bad = [
            name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)
        ]
        for name in bad:
            a, b = before.get(name), now.get(name)
            keys = (
                [k for k in {*a, *b} if a.get(k) != b.get(k)]
                if isinstance(a, dict) and isinstance(b, dict)
                else (a, b)
            )
            print("DIFFERS", name, keys)
        print(f"{len(now) - len(bad)} of {len(before)} equal")
        sys.exit(bool(bad))
