"""One table of everything that is fitted on private rows: a new estimator is one row.

Claims and contracts run over it. What matters of an estimator here is what it releases: each of
its `settings` is a fit that releases something that the others do not.
"""

import datetime
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers import groups_of, public_rows, with_plan
from scipy import sparse
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression, LogisticRegression

import dpsubspace
from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.tables import encoding, forming
from dpsubspace.linear_model import GradientDirections

# Options that are no parameters, but of the plan of a fit.
_OF_PLANS = ("descent", "chunk", "centre", "bounds")

LARGEST = np.finfo(np.float64).max
OUTSIDE = np.array([0.0, 0.0, 0.0, 0.0, 3.0])  # orthogonal to all public rows of `public_rows`


@dataclass(frozen=True)
class Case:
    """An estimator or a function, and how it is fitted."""

    name: str
    build: Callable
    settings: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)  # of all settings
    n: int = 40  # rows
    task: str = "rows"  # "classes" or "numbers" where there are targets
    public: bool = False  # whether public rows are given, but for settings that say otherwise
    module: bool = False  # whether a torch module is trained
    sparse: bool = True
    gaussian: bool = True  # whether all that is released is Gaussian
    binary: bool = False  # whether there are two classes only: labels are taken modulo 2
    choice: bool = False  # whether it is one of some candidates, which a record rarely changes
    rarely: bool = False  # whether another number is, since noisy counts are compared
    shown: Callable = lambda fitted: fitted  # what of it others may see

    def __str__(self):
        return self.name

    @property
    def is_function(self):
        """Whether this is a function, and not an estimator."""
        return not isinstance(self.build, type)

    def fit(self, X, y, setting="plain", relation="zero_out", present=None, groups=None, **options):
        """Fit of a setting, or what a function returns; `present` says which records are null.

        `groups` say whose the rows are.

        Beside parameters, settings and `options` have what :func:`helpers.with_plan` takes
        ("descent", and for linear models "chunk", "centre" and "bounds"), and whether public rows
        are given ("public") with labels ("labelled").
        """
        options = {"random_state": 0, **self.options, **self.settings[setting], **options}
        groups = groups_of(present, groups)
        if self.is_function:
            target = Target(options.pop("epsilon"), options.pop("delta", "auto"), relation)
            return self.build(X, target, options.pop("random_state"), groups=groups, **options)
        changes = {name: options.pop(name) for name in _OF_PLANS if name in options}
        public = {"public": self.public, "labelled": False}
        public = {name: options.pop(name, value) for name, value in public.items()}
        if self.task == "classes":
            options.setdefault("classes", [0, 1] if self.binary else [0, 1, 2, 3])
            y = np.asarray(y) % 2 if self.binary else y
        if self.module:
            n_outputs = 1 if self.task == "numbers" else 4
            build = adapted_module if options.pop("adapted", False) else small_module
            options["module"] = build(X.shape[1], n_outputs)
        model = self.build(neighboring_relation=relation, **options)
        if self.task == "rows":
            given = {"X_public": (public_rows(X.shape[1])[0],)} if public["public"] else {}
            return model.fit(X, groups=groups, **given)
        if public["public"]:
            rows, labels = public_rows(X.shape[1])
            asks = getattr(model, "mirror", False) or getattr(model, "init", "") == "public"
            labelled = public["labelled"] or asks
            public = {"X_public": rows, "y_public": labels if labelled else None}
            if labelled and self.build in TASKS:
                public = tasks(rows)
                if self.binary:
                    public["y_public"] = tuple((y > 0).astype(int) for y in public["y_public"])
        else:
            public = {}
        return with_plan(model, **changes)(X, y, groups=groups, **public)


# Estimators for which labelled public rows are tasks.
TASKS = [
    dpsubspace.linear_model.PublicSubspaceLinearRegression,
    dpsubspace.linear_model.PersonalizedLinearRegression,
    dpsubspace.linear_model.PersonalizedLogisticRegression,
]


def small_module(width, n_outputs):
    """Torch module of two layers, the same at each call; the test is skipped without torch."""
    torch = pytest.importorskip("torch")
    nn, rng = torch.nn, np.random.default_rng(0)
    module = nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, n_outputs))
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.as_tensor(rng.normal(size=part.shape) / 2))
    return module


def adapted_module(width, n_outputs):
    """The same with a frozen first layer, a product of thin matrices beside it, and buffers."""
    torch = pytest.importorskip("torch")
    nn, module = torch.nn, small_module(width, n_outputs)

    class Adapted(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer.requires_grad_(False)
            self.norm = nn.BatchNorm1d(layer.out_features).requires_grad_(False)
            self.down = nn.Parameter(layer.weight[:2].clone())
            self.up = nn.Parameter(torch.zeros(layer.out_features, 2))

        def forward(self, rows):
            return self.norm(self.layer(rows)) + rows @ self.down.T @ self.up.T

    return nn.Sequential(Adapted(module[0]), *module[1:])


def tasks(rows):
    """Public rows as tasks, each with other weights."""
    rng, sets = np.random.default_rng(0), tuple(np.array_split(rows, 6))
    return {"X_public": sets, "y_public": tuple(x @ rng.normal(size=x.shape[1]) for x in sets)}


def function(called):
    """A function of the package that takes its budget as a target."""

    def fit(X, target, random_state, **options):
        budget = {"epsilon": target.epsilon, "delta": target.delta}
        budget["neighboring_relation"] = target.neighboring_relation
        return called(X, random_state=random_state, **budget, **options)

    return fit


def choose(X, target, random_state, **options):
    """Choice among public rows of which one set is like those of `helpers.blobs`."""
    rows, labels = public_rows(X.shape[1])
    candidates = {"like": rows, "mirrored": -rows[:, ::-1], "few": rows[:20]}
    if options.get("method") == "validation":
        options["y_public"] = {"like": labels, "mirrored": labels, "few": labels[:20]}
        options["y"] = np.arange(X.shape[0]) % 3
    budget = {"epsilon": target.epsilon, "neighboring_relation": target.neighboring_relation}
    options = {"n_components": 2, "random_state": random_state, **budget, **options}
    return dpsubspace.select_public(candidates, X, **options)


def project(X, target, random_state, *, module=False, **options):
    """Errors of directions of public rows, of a linear model or of a small module."""
    # As many numbers as there are directions: noise in few is hard to test.
    most = min(6 * X.shape[1] if module else X.shape[1] - 1, 40)
    options.setdefault("n_components", range(1, max(1, most) + 1))
    if module:
        options |= {"module": small_module(X.shape[1], 4), "n_classes": 4}
    options |= {"epsilon": target.epsilon, "delta": target.delta, "random_state": random_state}
    options["neighboring_relation"] = target.neighboring_relation
    return dpsubspace.public_data.private_projection_error(X, public_rows(X.shape[1])[0], **options)


def on_held_out(Estimator):
    """Fit of an estimator that takes a fitted one, which was made of public rows."""

    def fit(X, target, random_state, *, groups=None, n_classes=4, **options):
        rows, signs = public_rows(X.shape[1])[0], X[:, [0]]
        codes = np.ravel(signs.toarray() if sparse.issparse(X) else signs) > 0
        if issubclass(Estimator, RegressorMixin):
            model, y = LinearRegression().fit(rows, np.sin(rows[:, 0])), np.where(codes, 2.0, 0.1)
        else:
            model = LogisticRegression(C=1e-3, solver="newton-cg").fit(
                rows, np.arange(len(rows)) % n_classes
            )
            y = codes.astype(int)
        budget = {"epsilon": target.epsilon, "delta": target.delta}
        budget["neighboring_relation"] = target.neighboring_relation
        fitted = Estimator(model, **options, **budget, random_state=random_state)
        return fitted.fit(X, y, groups=groups)

    return fit


class PublicModel:
    """A model of which the scores are taken, row by row and without rounding between rows."""

    classes_ = np.array([0, 1])

    def __init__(self, n_classes=2):
        self.classes_ = np.arange(n_classes)

    def _scores(self, X):
        return np.clip(X[:, 0] / 4 - X[:, 1] / 4, -8, 8)

    def predict_proba(self, X):
        odds = np.stack([c * self._scores(X) for c in self.classes_], axis=1)
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


class PublicRegressor:
    """A model of which the errors are taken."""

    def __init__(self, column=0):
        self.column = column

    def predict(self, X):
        return np.clip(X[:, self.column], -50, 50)


class OtherModel(PublicModel):
    """A model to compare it with."""

    def _scores(self, X):
        return np.clip(X[:, 2] / 4 - X[:, 1] / 8, -8, 8)


def scored(X, target, random_state, *, n_classes=2, apart=False, against=False, **options):
    """Score of a public model on rows that have their label, or target, in two columns.

    Or its difference to the score of another, `against` which it is held.

    Labels go round with the rows, so that wherever these lie, no class has but a few of them.
    Rows have their group in another where scores are taken apart.
    """
    X = np.asarray(X, dtype=np.float64)
    if apart:
        options["by"] = np.where(X[:, 3] > 0, "a", np.where(X[:, 4] > 0, "b", "c")), ["a", "b"]
    if "target_bounds" in options:
        models, y = [PublicRegressor(), PublicRegressor(1)], np.clip(X[:, 0] + X[:, 1], -1e9, 1e9)
    else:
        models = [PublicModel(n_classes), OtherModel(n_classes)]
        turns = (X[:, 0] / 2 - X[:, 2] / 2) % n_classes
        y = np.clip(turns, 0, n_classes - 1e-9).astype(int)
    budget = {"epsilon": target.epsilon, "delta": target.delta}
    budget["neighboring_relation"] = target.neighboring_relation
    options = {"random_state": random_state, **budget, **options}
    if against:
        return dpsubspace.metrics.private_score_difference(*models, X, y, **options)
    return dpsubspace.private_score(models[0], X, y, **options)


def _day(number):
    """A date, as text for every third day; far ones are clipped to those that Python has."""
    found = datetime.date(1970, 1, 1) + datetime.timedelta(max(int(number), -700_000))
    return found.isoformat() if number % 3 == 0 else found


DAY = dpsubspace.tables.Date("1969-11-01", "1970-12-31", missing=True)


def _days(column, gone):
    """Dates of numbers, a hundredth each, which are missing in some rows."""
    days = (np.clip(np.nan_to_num(column), -9e3, 9e3) * 100).astype(int)
    return np.where(gone, None, [_day(each) for each in days])


def _texts(X, gone):
    """Texts of a word for each number and one for all rows, which are missing in some rows."""
    words = np.clip(np.nan_to_num(X), -50, 50).astype(int)
    return np.where(gone, None, [" ".join([*(f"w{each}" for each in row), "so"]) for row in words])


def tabular(X, target, random_state, *, groups=None, **options):
    """Fit of a table whose first column is estimated privately and whose second has gaps.

    About half of the values are missing in either, wherever the last column of the rows lies: of
    60 rows all but 5 would be once in 1e12. An encoder that refuses, since noise has hidden a range
    in what was released, is an outcome like any other.

    Labels and targets are made of the rows, so that a record that is replaced has others.
    """
    X = np.asarray(X, dtype=np.float64)
    frame = [*X.T[:3], np.where(X[:, 3] > 0, "a", np.where(X[:, 3] > -2, "b", "c"))]
    odd = X[:, -1] % 2 > 1
    frame[1] = np.where(odd, np.nan, frame[1])
    schema = {
        "estimated": dpsubspace.Range(-9, 9)
        if options.get("free")
        else dpsubspace.PrivateRange(missing=True),
        "gaps": dpsubspace.Range(-3, 3, missing=True),
        "low": (-1, 2),
        "category": ["a", "b"],
    }
    if not options.get("free"):
        frame[0] = np.where(odd, frame[0], np.nan)
    if options.get("dates"):
        frame.append(_days(X[:, 2], odd))
        schema["day"] = DAY
    if options.get("text"):
        frame.append(_texts(X, odd))
        schema["text"] = dpsubspace.tables.Text(n_features=32)
    if options.get("alone"):
        schema |= {"gaps": dpsubspace.PrivateRange(missing=True), "low": dpsubspace.PrivateRange()}
    frame = np.array(frame, dtype=object).T
    budget = {"delta": target.delta, "neighboring_relation": target.neighboring_relation}
    if options.get("alone"):
        encoder = dpsubspace.tables.TableEncoder(schema, epsilon=target.epsilon, **budget)
        encoder.set_params(random_state=random_state)
        try:
            return encoder.fit(frame, groups=groups)
        except dpsubspace.PrivacyError as error:
            encoder.refused_ = str(error)
            return encoder
    model = options.get("model", dpsubspace.DPSGDClassifier)(random_state=random_state, **budget)
    small = {"n_iter": 4, "classes": [False, True]}
    model.set_params(**{k: v for k, v in small.items() if k in model.get_params()})
    y, aims = X[:, 0] > X[:, 2], options.get("aims")
    if aims is not None:
        y = np.clip(X[:, 0], -50, 50) + np.clip(X[:, 2], -50, 50)
    made = dpsubspace.tabular_pipeline(model, schema, epsilon=target.epsilon, target=aims)
    if not options.get("learned"):
        most = 0 if options.get("formed") else forming._MOST_KEPT
        with mock.patch.object(forming, "_MOST_KEPT", most):
            return made.fit(frame, y, groups=groups)
    made.set_params(tableencoder__interactions="learned")
    with mock.patch.object(encoding, "_TOGETHER_FROM", 0.0):  # in tables of few rows as well
        fitted = made.fit(frame, y, groups=groups)
    assert target.epsilon == np.inf or fitted[-1]._interactions is not None
    return fitted


def counted(X, target, random_state, *, dates=False, **options):
    """Counts or a summary of a table with gaps, whose columns are all made of the rows."""
    X = np.asarray(X, dtype=np.float64)
    letters = np.where(X[:, 3] > 0, "a", np.where(X[:, 3] > -2, "b", "d"))
    gaps = np.where(X[:, -1] % 2 > 1, np.nan, X[:, 1])
    words = np.where(X[:, 2] > 1, "x", np.where(X[:, 0] % 2 > 1, None, "y"))
    frame = [X[:, 0], gaps, letters, words]
    schema = {
        "plain": (-9, 9),
        "gaps": dpsubspace.Range(-3, 3, log=True, missing=True),
        "letter": ["a", "b"],
        "word": dpsubspace.Categories(["x", "y"], missing=True),
    }
    if dates:
        frame.append(_days(X[:, 2], np.isnan(gaps)))
        schema["day"] = DAY
    frame = np.array(frame, dtype=object).T
    budget = {"epsilon": target.epsilon, "delta": target.delta}
    budget["neighboring_relation"] = target.neighboring_relation
    called = dpsubspace.private_counts if "columns" in options else dpsubspace.private_summary
    return called(frame, schema, random_state=random_state, **budget, **options)


COUNTED = {
    "plain": {"columns": ["plain", "word"]},
    # As many cells as tell a wrong factor of the noise.
    "gaps": {"columns": "gaps", "bins": [-2 + i / 16 for i in range(64)]},
    "letters": {"columns": ["letter", "gaps", "word"], "bins": 3},
    "dates": {"columns": "day", "bins": 70, "dates": True},
}
# At such a level Gaussian noise has shorter intervals, and is taken.
OFTEN = {"delta": 0.003, "level": 1 - 1e-7, "epsilon": 0.5}


def coefficients(X, target, random_state, *, groups=None, aims="numbers", **options):
    """Coefficients of a table with numbers, gaps and a category, made of the rows."""
    X = np.asarray(X, dtype=np.float64)
    frame = np.empty((len(X), 4), dtype=object)
    frame[:, 0] = X[:, 0]
    frame[:, 1] = np.where(X[:, -1] % 2 > 1, np.nan, X[:, 1])
    frame[:, 2] = np.where(X[:, 3] > 0, "a", np.where(X[:, 3] > -2, "b", "c"))
    schema = {
        "number": dpsubspace.Range(-3, 3),
        "gaps": dpsubspace.Range(-2, 4, missing=True),
        "category": ["a", "b"],
        "y": (-3, 9),
    }
    frame[:, 3] = np.clip(X[:, 0], -50, 50) + np.clip(X[:, 2], -50, 50)
    if aims == "classes":
        schema["y"] = ["no", "yes"]
        frame[:, 3] = np.where(X[:, 0] > X[:, 2], "yes", "no")
    if aims == "counts":
        days = 10 + 5 * np.clip(X[:, 2:3], -50, 50)
        frame = np.concatenate([frame, days.astype(object)], axis=1)
        schema |= {"y": (0, 9), "days": (1, 20)}
        options = {"family": "poisson", "exposure": "days", **options}
    budget = {"epsilon": target.epsilon, "delta": target.delta}
    budget["neighboring_relation"] = target.neighboring_relation
    options = {"random_state": random_state, "groups": groups, **budget, **options}
    with warnings.catch_warnings():
        # With so few rows ratios have no ends; what is released is looked at here, and no interval.
        warnings.filterwarnings("ignore", "these coefficients have no", dpsubspace.PrivacyWarning)
        return dpsubspace.private_coefficients(frame, schema, "y", **options)


TABLES = {
    "plain": {"free": True},
    "dates": {"free": True, "dates": True},
    "text": {"free": True, "text": True},
    "estimated": {},
    "estimated text": {"text": True},
    "adaptive mean": {"free": True, "model": dpsubspace.DPSGDFClassifier},
    "interactions": {"free": True, "model": dpsubspace.DPSGDFClassifier, "learned": True},
    "target": {"free": True, "model": dpsubspace.DPSGDRegressor, "aims": (-3, 9)},
    "target, text": {
        "free": True,
        "text": True,
        "model": dpsubspace.DPSGDRegressor,
        "aims": (-3, 9),
    },
    "adaptive mean, text": {"free": True, "text": True, "model": dpsubspace.DPSGDFClassifier},
    "values": {"free": True, "model": dpsubspace.DPSGDRegressor, "aims": (-3, 9), "learned": True},
    "estimated target": {"model": dpsubspace.DPSGDRegressor, "aims": dpsubspace.PrivateRange()},
    "moments": {"model": dpsubspace.DPLinearRegression, "aims": (-3, 9)},
    "moments of dates": {
        "model": dpsubspace.DPLinearRegression,
        "aims": (-3, 9),
        "free": True,
        "dates": True,
    },
}
# The same of rows that are formed in every step: columns are not added to such, nor texts.
FORMED = {
    name: setting | {"formed": True}
    for name, setting in TABLES.items()
    if not setting.get("learned") and not setting.get("text")
}

SCORED = {
    "plain": {"metric": "roc_auc"},
    "accuracy": {"metric": "accuracy"},
    "labels": {"metric": "confusion_matrix"},
    "many labels": {"metric": ["accuracy", "confusion_matrix", "log_loss"], "n_classes": 3},
    "losses": {"metric": ["log_loss", "brier_score_loss"], "loss_bound": 2.0},
    "all": {"metric": ["accuracy", "calibration_curve", "roc_curve", "f1", "neg_log_loss"]},
    "numbers": {"metric": ["r2", "mean_absolute_error"], "target_bounds": (-3, 9)},
    "areas": {"metric": ["roc_auc_ovr", "recall_macro"], "n_classes": 3},
    "groups": {"metric": ["roc_auc", "f1", "log_loss"], "apart": True},
    "numbers of groups": {"metric": "mean_squared_error", "target_bounds": (-3, 9), "apart": True},
}
COMPARED = {
    "plain": {"metric": "log_loss", "loss_bound": 2.0, "n_classes": 3},
    "accuracy": {"metric": "accuracy"},
    "labels": {"metric": "f1"},
    "many labels": {"metric": "balanced_accuracy", "n_classes": 3},
    "areas": {"metric": "roc_auc"},
    "errors": {"metric": "mean_absolute_error", "target_bounds": (-3, 9)},
    "roots": {"metric": "neg_root_mean_squared_error", "target_bounds": (-3, 9)},
    "shares": {"metric": "r2", "target_bounds": (-3, 9)},
}
COMPARED = {name: setting | {"against": True} for name, setting in COMPARED.items()}


def privacy_of(fitted):
    """Guarantee of what `Case.fit` gives."""
    return fitted.privacy_ if hasattr(fitted, "privacy_") else fitted.privacy


STEPS = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "small clip norm": {"clip_norm": 0.05},
    "plain descent": {"alpha": 0.1, "descent": {"momentum": 0.0, "average": False}},
    # Calibration on batches takes a second, and a given multiplier none.
    "batches": {"batch_size": 10, "epsilon": None, "noise_multiplier": 5.0},
}
CLASSES = {
    "public bound": {"row_norm": 2.0},
    "weights": {"class_weight": {0: 100.0}},
    "hinge": {"loss": "hinge"},
}
NUMBERS = {
    "huber": {"loss": "huber"},
    "public bound": {"data_norm": 2.0},
    "public bounds": {"data_norm": 2.0, "target_bounds": (-1, 3)},
}
REGRESSION = {
    "plain": {"solver": "descent"},
    "moments": {"solver": "moments"},
    "not white": {"solver": "plain"},
    "AdaSSP": {"solver": "adassp"},
}  # and claims/test_least_squares.py, which knows of releases on disjoint blocks


def gradients(n_components=4, **settings):
    """Parameter that asks for directions of gradients."""
    return {"directions": GradientDirections(n_components=n_components, **settings)}


GRADIENTS = gradients()
DIRECTIONS = {
    "plain": {},  # asks what directions miss
    "labels": {"init": "auto", "labelled": True},  # and whether a public fit is right
    "features": {"n_components": 2},
    "gradients": GRADIENTS,
    "no intercept": gradients(embedding_share=0.3) | {"fit_intercept": False},
    "no residual": gradients(residual=False),
    "mirror": gradients(labels="public") | {"mirror": True, "init": "public"},
    "mirror from zero": {"n_components": 2, "mirror": True, "init": "zero"},
    "exact": gradients(power_iterations=None),
    "many": gradients(60, residual_norm=3.0) | {"clip_norm": 0.01},
}
MODULES = {
    "plain": {"public": False},
    "batches": {"public": False, "batch_size": 10, "epsilon": None, "noise_multiplier": 5.0},
    "public rows": {},
    "labels": {"labelled": True},
    "no residual": gradients(50, residual=False) | {"n_iter": 5},
    "layers": gradients(groups="layers"),
    "public labels": gradients(labels="public", power_iterations=None) | {"labelled": True},
    "mirror": {"mirror": True},  # and whether a public fit is right
    "mirror, batches": {
        "mirror": True,
        "batch_size": 10,
        "epsilon": None,
        "noise_multiplier": 5.0,
    },
    "adapters": {"public": False, "adapted": True},
    "adapters, public rows": {"adapted": True},
}
BOUGHT = {"data_norm": None, "bounds": None}
GIVEN = {"data_norm": 3.0, "bounds": None}
ITERATIONS = {"epsilon": 2.0, "n_iter": 3}


def components(mechanism):
    """Settings of DPPCA with a mechanism."""
    settings = {"": {}, ", public bound": {"data_norm": 3.0}, ", origin": {"centered": False}}
    settings[", origin, public bound"] = {"centered": False, "data_norm": 3.0}
    return {mechanism + name: {"mechanism": mechanism, **each} for name, each in settings.items()}


CASES = [
    Case(
        "DPSGDClassifier",
        dpsubspace.DPSGDClassifier,
        STEPS | CLASSES,
        ITERATIONS,
        task="classes",
    ),
    Case(
        "DPSGDFClassifier",
        dpsubspace.DPSGDFClassifier,
        STEPS | CLASSES,
        ITERATIONS,
        task="classes",
    ),
    Case(
        "DPSGDFClassifier, adaptive",
        dpsubspace.DPSGDFClassifier,
        STEPS | CLASSES,
        # Forty rows are enough for a radius at this epsilon only.
        ITERATIONS | {"preprocessing": "adaptive", "epsilon": 200.0},
        task="classes",
    ),
    Case(
        "DPSGDRegressor",
        dpsubspace.DPSGDRegressor,
        STEPS | NUMBERS,
        ITERATIONS,
        task="numbers",
    ),
    Case(
        "DPLinearRegression",
        dpsubspace.DPLinearRegression,
        REGRESSION
        | {
            "public ranges": {"bounds": (-2, 8), "target_bounds": (-1, 3)},
            "no intercept": {"fit_intercept": False, "target_bounds": (-1, 3)},
            "public rows": {"public": True, "target_bounds": (-1, 3)},
            "public rows, moments": {"public": True, "solver": "moments"},
        },
        {"epsilon": 2.0},
        n=50,
        task="numbers",
        sparse=False,
    ),
    Case(
        "PublicSubspaceLinearRegression",
        dpsubspace.linear_model.PublicSubspaceLinearRegression,
        # As many directions as there are: noise in few numbers is hard to test.
        {
            "plain": {"solver": "descent"},
            "features": {"subspace": "features", "labelled": False},
            "others as well": {"n_components": "auto"},
        },
        {"epsilon": 2.0, "labelled": True, "n_components": 3},
        n=50,
        task="numbers",
        public=True,
        sparse=False,
    ),
    Case(
        "PersonalizedLinearRegression",
        dpsubspace.linear_model.PersonalizedLinearRegression,
        {
            "plain": {},
            "rounds": {"n_components": 2, "n_iter": 2},
            "moments": {"n_components": 2, "n_iter": 1, "method": "moments"},
            "no intercept": {"fit_intercept": False},
            "public tasks": {"public": True, "labelled": True, "n_iter": 1},
            "public range": {"target_bounds": (-1, 3)},
        },
        {"epsilon": 2.0, "missing_groups": "each_row"},
        shown=lambda model: model.public_part(),
        n=50,
        task="numbers",
        sparse=False,
    ),
    Case(
        "PersonalizedLogisticRegression",
        dpsubspace.linear_model.PersonalizedLogisticRegression,
        {
            "plain": {},
            "rounds": {"n_components": 2, "n_iter": 2},
            "no intercept": {"fit_intercept": False},
            "public tasks": {"public": True, "labelled": True, "n_iter": 1},
        },
        {"epsilon": 2.0, "missing_groups": "each_row"},
        shown=lambda model: model.public_part(),
        n=50,
        task="classes",
        binary=True,
        sparse=False,
    ),
    Case(
        "GEPClassifier",
        dpsubspace.GEPClassifier,
        DIRECTIONS | {name: GRADIENTS | each for name, each in CLASSES.items()},
        ITERATIONS | {"n_iter": 2},
        task="classes",
        public=True,
    ),
    Case(
        "GEPRegressor",
        dpsubspace.linear_model.GEPRegressor,
        DIRECTIONS | {name: GRADIENTS | each for name, each in NUMBERS.items()},
        ITERATIONS | {"n_iter": 2},
        task="numbers",
        public=True,
    ),
    Case(
        "DPModuleClassifier",
        dpsubspace.neural_network.DPModuleClassifier,
        MODULES | {"hinge": {"loss": "hinge"}},
        ITERATIONS | {"n_iter": 2},
        task="classes",
        public=True,
        module=True,
        sparse=False,
    ),
    Case(
        "DPModuleRegressor",
        dpsubspace.neural_network.DPModuleRegressor,
        MODULES | {"public range": {"target_bounds": (-1, 3)}},
        ITERATIONS | {"n_iter": 2},
        task="numbers",
        public=True,
        module=True,
        sparse=False,
    ),
    Case(
        "BoundedScaler",
        dpsubspace.BoundedScaler,
        {"plain": {"epsilon": 50.0}, "counts": {"epsilon": 0.1}},
        n=60,
        sparse=False,
    ),
    Case(
        "DPPCA",
        dpsubspace.DPPCA,
        {"plain": {}, "share": {"n_components": 0.9, "data_norm": 9.0, "epsilon": 200.0}}
        | components("adaptive")
        | components("gaussian")
        | components("power"),
        {"n_components": 2, "epsilon": 2.0},
        n=60,
        rarely=True,  # a radius by noisy counts, and directions that are drawn
    ),
    Case(
        "DPPCA, drawn directions",
        dpsubspace.DPPCA,
        {"plain": {}},
        {"mechanism": "bingham", "n_components": 2, "centered": False, "data_norm": 9.0},
        gaussian=False,
    ),
    Case(
        "DPPCA, a drawn subspace",
        dpsubspace.DPPCA,
        {"plain": {}},
        {"mechanism": "matrix_bingham", "n_components": 2, "centered": False, "data_norm": 9.0},
        gaussian=False,
    ),
    Case(
        "private_mean",
        function(dpsubspace.private_mean),
        {
            "plain": BOUGHT | {"method": "recentre"},
            "public bound": GIVEN | {"method": "recentre"},
            "gaussian": GIVEN | {"method": "gaussian"},
        },
        {"epsilon": 2.0},
        n=100,
    ),
    Case(
        "private_mean, columns",
        function(dpsubspace.private_mean),
        {"plain": {"data_norm": None, "bounds": (-1, 4), "method": "recentre"}},
        {"epsilon": 2.0},
        n=100,
        sparse=False,
    ),
    Case(
        "private_quantile",
        function(dpsubspace.statistics.private_quantile),
        {
            "plain": {"level": [0.3, 0.9], "bounds": None},
            "public range": {"level": 0.5, "bounds": (-3, 9)},
        },
        {"epsilon": 2.0},
        n=100,
        sparse=False,
        rarely=True,
    ),
    Case(
        "private_covariance",
        function(dpsubspace.statistics.private_covariance),
        {
            "plain": BOUGHT | {"centered": True},
            "public bound": GIVEN | {"centered": True},
            "origin": BOUGHT | {"centered": False},
        },
        {"epsilon": 2.0},
        n=100,
    ),
]
CASES += [
    Case(
        "private_projection_error",
        project,
        {"plain": {}},
        {"epsilon": 2.0},
    ),
    Case(
        "private_projection_error, a module",
        project,
        {"plain": {}},
        {"epsilon": 2.0, "module": True},
        module=True,
        sparse=False,
    ),
    Case(
        "private_spread",
        function(dpsubspace.statistics.private_spread),
        {"plain": {}, "public bound": {"row_norm": 3.0}},
        {"epsilon": 40.0},
        n=100,
        rarely=True,
    ),
]
CASES += [
    Case(
        "GSDScorer",
        dpsubspace.public_data.GSDScorer,
        {
            "plain": {},
            "gaussian": {"mechanism": "gaussian"},
            "power": {"mechanism": "power"},
            # As many directions as there are: noise in few numbers is hard to test.
            "public rows": {"public": True, "n_components": "auto"},
            "public rows, gaussian": {
                "public": True,
                "n_components": "auto",
                "mechanism": "gaussian",
            },
        },
        {"n_components": 2, "epsilon": 2.0},
        n=60,
    ),
    Case(
        "GSDScorer, a module",
        dpsubspace.public_data.GSDScorer,
        {"plain": {}, "gaussian": {"mechanism": "gaussian"}},
        {"epsilon": 2.0, "n_classes": 4},
        n=60,
        public=True,
        module=True,
        sparse=False,
    ),
    Case(
        "select_public",
        choose,
        {
            "plain": {},
            "none": {"none": 0.5},
            "pairs": {"method": "centered_energy", "none": dpsubspace.GEPClassifier()},
            "validation": {"method": "validation"},
        },
        {"epsilon": 0.1, "delta": 0.0},
        gaussian=False,
        choice=True,
    ),
]
CASES += [
    Case(
        "DPCalibratedClassifier",
        on_held_out(dpsubspace.calibration.DPCalibratedClassifier),
        {"plain": {}, "sigmoid": {"method": "sigmoid", "n_classes": 2}},
        {"epsilon": 20.0},
        gaussian=False,
        choice=True,
    ),
    Case(
        "DPConformalClassifier",
        on_held_out(dpsubspace.calibration.DPConformalClassifier),
        {"plain": {}},
        {"epsilon": 5.0, "confidence_level": 0.5},
        gaussian=False,
        choice=True,
    ),
    Case(
        "DPConformalRegressor",
        on_held_out(dpsubspace.calibration.DPConformalRegressor),
        {"plain": {}, "public range": {"target_bounds": (-1, 3)}},
        {"epsilon": 5.0, "confidence_level": 0.5},
        gaussian=False,
        choice=True,
    ),
]
CASES += [
    Case(name, scored, settings, {"epsilon": 20.0}, n=60, sparse=False, gaussian=False)
    for name, settings in (("private_score", SCORED), ("private_score_difference", COMPARED))
]
CASES += [
    Case(
        "private_coefficients",
        coefficients,
        {"plain": {}, "odds": {"aims": "classes"}, "rates": {"aims": "counts"}},
        {"epsilon": 20.0},
        n=60,
        sparse=False,
        rarely=True,  # the size at which residuals are cut
    ),
    Case("TabularPipeline", tabular, TABLES, {"epsilon": 30.0}, n=60, sparse=False),
    Case("TabularPipeline, formed", tabular, FORMED, {"epsilon": 30.0}, n=60, sparse=False),
    Case("TableEncoder", tabular, {"plain": {"alone": True}}, {"epsilon": 20.0}, sparse=False),
]
CASES += [
    Case("private_counts", counted, COUNTED, {"epsilon": 1.0}, n=60, sparse=False, gaussian=False),
    Case("private_counts, Gaussian", counted, COUNTED, OFTEN, n=60, sparse=False),
    Case(
        "private_summary",
        counted,
        {
            "plain": {"by": "letter"},
            "whole": {"by": None},
            "dates": {"by": "letter", "dates": True},
        },
        {"epsilon": 3.0},
        n=60,
        sparse=False,
    ),
]
GAUSSIAN = [case for case in CASES if case.gaussian]
FITS = [(case, setting) for case in CASES for setting in case.settings]

# What needs no row above, and why.
WITHOUT_RELEASES = {
    "TorchFeatures": "a public map of rows",
    "PrivateSearch": "fits in it have rows, and test_private_search.py replays trials: its event is"
    " the larger of two costs, and no sum",
}

# The record by which two data sets differ, and what it is replaced by, from rows of any data.
RECORDS = {
    "opposite": lambda X: (30 * X[0], -30 * X[0]),
    "largest": lambda X: (30 * X[0], np.resize([LARGEST, -LARGEST], X.shape[1])),
    "zero": lambda X: (30 * X[0], 0 * X[0]),
    "duplicate": lambda X: (30 * X[0], X[5]),
    "huge": lambda X: (0 * X[0] + 1e300, 0 * X[0] - 1e300),
    "tiny": lambda X: (0 * X[0] + 1e-300, X[0]),
    "public": lambda X: (public_rows(X.shape[1])[0][7], -public_rows(X.shape[1])[0][7]),
    "off public": lambda X: (OUTSIDE, -OUTSIDE),
    "nearly public": lambda X: (public_rows(X.shape[1])[0][7] + 1e-9 * OUTSIDE, OUTSIDE),
    "mean": lambda X: (30 * X[0], X.mean(axis=0)),
}
FORMS = {
    "float64": lambda X: X,
    "float32": lambda X: as_float32(X),
    "sparse": sparse.csr_array,
    "sparse float32": lambda X: sparse.csr_array(as_float32(X)),
}


def as_float32(X):
    """Rows in single precision, of which none is infinite."""
    most = np.finfo(np.float32).max
    return np.clip(X, -most, most).astype(np.float32)
