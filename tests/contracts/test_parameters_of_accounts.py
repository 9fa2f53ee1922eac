"""The walk over parameters of ledgers, reports, plans, audits and schemas.

And the claim that no public object is left out: each parameter is set by some walk, or has a
reason in `REASONS`.
"""

import contextlib
import inspect
import io
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent
from helpers import blobs
from salted import literally
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from test_parameters import WALKS as FITS
from test_parameters_of_displays import WALKS as PICTURES
from test_parameters_of_tools import WALKS as TOOLS
from walks import Walk, check, rows, settable

from dpsubspace import (
    BoundedScaler,
    Categories,
    DPLinearRegression,
    DPSGDClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivateRange,
    Range,
    Schema,
    privacy_cost,
    privacy_report,
    private_mean,
    tabular_pipeline,
)
from dpsubspace._names import PLACES, imported
from dpsubspace.audit import audit_epsilon, audit_estimator
from dpsubspace.budget import PrivacyGuarantee, plan_accuracy, privacy_event, share_budget
from dpsubspace.reports import PrivacyReport
from dpsubspace.tables import Date, TableEncoder, Text

with literally():
    X, Y = blobs(n=60, n_classes=2)
BUDGET = {"epsilon": 2.0, "delta": 1e-5}

# Accounts ---------------------------------------------------------------------------------------


def of_ledger(ledger):
    entries = [(each.label, repr(each.event), each.unit) for each in ledger.entries]
    return ledger.epsilon(), ledger.remaining(), entries, ledger.failures, ledger.seen


def tried(function, *given, **options):
    """Kind of the error that a call ends in, if any."""
    try:
        function(*given, **options)
    except (PrivacyError, ValueError) as error:
        return type(error).__name__
    return ""


def opened(options):
    """What a ledger says after a few events of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        options = {**BUDGET, **options}
        if "path" in options:
            options["path"] = Path(folder) / options["path"]
        ledger = PrivacyLedger(**options)
        said = [
            tried(ledger.fit, DPSGDClassifier(n_iter=2), X, np.zeros(60)),  # fails: one class
            tried(ledger.charge, LaplaceDpEvent(9.0), neighboring_relation="zero_out"),
            tried(ledger.charge, GaussianDpEvent(9.0), neighboring_relation="zero_out"),
            tried(ledger.fit, DPSGDClassifier(n_iter=2, epsilon=0.1, random_state=0), X, Y),
        ]
        return said, of_ledger(ledger), [path.name for path in Path(folder).iterdir()]


def charged(event):
    """What a ledger says after a charge."""

    def release(options):
        ledger = PrivacyLedger(**BUDGET)
        return tried(ledger.charge, event, **options), of_ledger(ledger)

    return release


def asked(method):
    """What a ledger with some charges says."""

    def release(options):
        ledger = PrivacyLedger(**BUDGET)
        ledger.charge(GaussianDpEvent(9.0), neighboring_relation="zero_out")
        return getattr(ledger, method)(**options)

    return release


def fitted(options):
    ledger = PrivacyLedger(**BUDGET)
    said = tried(ledger.fit, DPSGDClassifier(n_iter=2), X, **{"y": Y, **options})
    return said, of_ledger(ledger)


def ran(options):
    ledger = PrivacyLedger(**BUDGET)
    ledger.run(private_mean, X, data_norm=9.0, **({"epsilon": 1.0} | options))
    return of_ledger(ledger)


def written(call):
    """What a method returns, and which files it has written."""

    def release(options):
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            model.write_text("model")
            given = {"path": Path(folder) / "file", "model_file": model}
            found = call(**{name: given.get(name, value) for name, value in options.items()})
            return found, sorted(path.name for path in Path(folder).iterdir())

    return release


MODEL = DPSGDClassifier(n_iter=2, random_state=0).fit(X, Y)
REPORT = privacy_report(MODEL, date="today")
TEXTS = {
    name: "words"
    for name in (
        *("curator", "use", "product", "publication_date", "data_source", "data_domain", "access"),
        *("preprocessing", "justification", "review", "date"),
    )
}
SIZES = {"n_samples": 900, "n_features": 50, "n_outputs": 9}
OF_PLANS = {
    "n_samples": "for a plan and for a search without a refit",
    "n_features": "for the same",
    "n_outputs": "likewise.",
    "n_train": "where its splitter does not tell.",
}
PLANNED = make_pipeline(BoundedScaler(epsilon=0.2), DPSGDClassifier(batch_size=20))


def shared(options):
    steps = share_budget(clone(PLANNED), **{**BUDGET, **options}).steps
    return [(step.epsilon, step.delta) for _, step in steps]


# Tables -----------------------------------------------------------------------------------------

FRAME = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 1, "x", "y")})


def encoded(kind, values):
    """Rows as a schema with one column reads them, or that it refuses them."""

    def release(options):
        said = []
        for column in (values, [*values[:-1], None]):
            frame = pd.DataFrame({"a": pd.Series(column, dtype=object)})
            try:
                encoder = TableEncoder({"a": kind(**options)}, random_state=0, epsilon=9.0)
                found = encoder.fit(frame).transform(frame)
                found = found.toarray() if sparse.issparse(found) else found
                said.append(found.tolist())
            except ValueError as error:
                said.append(str(error))
        return said

    return release


def checked(options):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        Schema({"a": (-9, 9), "b": ["x", "y"]}).check(FRAME, **options)
    return out.getvalue()


def in_a_pipeline(options):
    made = tabular_pipeline(DPSGDClassifier(n_iter=2), {"a": (-9, 9), "b": ["x", "y"]}, **options)
    return repr(made), tried(made.fit, FRAME, Y)


def walk_of(what, release, others, modes=None, unused=None, **options):
    modes = modes or {"plain": {}}
    return Walk(what, release, others, modes, unused or {}, **{"cheap": (*modes,), **options})


NUMBERS = [*np.linspace(0.5, 5, 30)]
# Sizes of plans, which each estimator says when it looks at: test_planner.py has them.
OF_COLUMNS, OF_PUBLIC = ("n_features", "n_outputs"), ("n_public", "labelled")
UNSEEN = {"y": "What is fitted to rows alone does not look at them."}

WALKS = [
    walk_of(
        PrivacyLedger,
        opened,
        {"neighboring_relation": "replace_one", "unit": "person", "allow_seeded": True}
        | {"slack": 0.0, "pure_epsilon": 1.0, "path": "ledger", "max_failures": 0}
        | {"epsilon": 3.0, "delta": 1e-7},
    ),
    walk_of(
        PrivacyLedger,
        charged(GaussianDpEvent(9.0)),
        {"label": "ours", "neighboring_relation": "replace_one", "unit": "person"}
        | {"already_released": True},
        {"event": {"neighboring_relation": "zero_out"}},
        {"event": {"already_released": "what is over the budget or seeded is not raised."}},
        method="charge",
    ),
    walk_of(
        PrivacyLedger,
        charged(GaussianDpEvent(0.1)),
        {"label": "ours", "already_released": True},
        {"too much": {"neighboring_relation": "zero_out"}},
        {"too much": {"label": "it is refused and nothing is recorded."}},
        method="charge",
    ),
    walk_of(
        PrivacyLedger,
        charged(MODEL.privacy_),
        {"label": "ours", "neighboring_relation": "replace_one", "unit": "person"}
        | {"already_released": True},
        {"guarantee": {}},
        method="charge",
    ),
    *(
        walk_of(PrivacyLedger, asked(method), {"delta": 1e-7}, method=method)
        for method in ("epsilon", "epsilon_if_planned")
    ),
    walk_of(PrivacyLedger, fitted, {"y": np.zeros(60), "label": "ours"}, method="fit"),
    walk_of(PrivacyLedger, ran, {"label": "ours"}, method="run"),
    *(
        walk_of(what, written(call), others, method=method)
        for what, call, others, method in (
            (PrivacyGuarantee, MODEL.privacy_.to_json, {"path": 1, "model_file": 1}, "to_json"),
            (PrivacyReport, REPORT.to_json, {"path": 1}, "to_json"),
            (PrivacyReport, REPORT.to_html, {"path": 1}, "to_html"),
            (Schema, Schema({"a": (0, 1)}).to_json, {"path": 1}, "to_json"),
        )
    ),
    walk_of(
        privacy_report,
        written(lambda **options: str(privacy_report(MODEL, **{"date": "today", **options}))),
        TEXTS | {"model_file": 1, **SIZES, "n_train": 9},
        {"fitted": {}},
        {"fitted": OF_PLANS},
    ),
    walk_of(
        privacy_report,
        written(lambda **options: str(privacy_report(PLANNED, **{"date": "today", **options}))),
        TEXTS | {"model_file": 1, **SIZES, "n_train": 9},
        {"planned": {"n_samples": 60}},
        {"planned": {} | {name: OF_PLANS[name] for name in ("n_outputs", "n_train")}},
        cheap=(),
    ),
    walk_of(
        privacy_event,
        lambda options: repr(privacy_event(DPLinearRegression(), **{"n_samples": 60, **options})),
        {"n_samples": 900, "n_public": 9, "labelled": True},
        {"plain": {}, "public rows": {"n_public": 9}},
        {"plain": {"labelled": "Whether the public rows have labels."}},
        elsewhere=OF_COLUMNS,
    ),
    walk_of(
        privacy_cost,
        lambda options: privacy_cost([GaussianDpEvent(9.0), DPSGDClassifier()], **options),
        {"n_samples": 90_000, "delta": 1e-7, "neighboring_relation": "replace_one"},
        {"plain": {"n_samples": 60}},
        elsewhere=(*OF_COLUMNS, *OF_PUBLIC),
    ),
    walk_of(
        plan_accuracy,
        lambda options: repr(plan_accuracy(private_mean, X, **options).widths),
        {"epsilon": 0.5, "n_samples": 40, "n_repeats": 3, "random_state": 1},
        {"plain": {"n_samples": 50, "n_repeats": 2}},
    ),
    walk_of(
        share_budget,
        shared,
        {"n_samples": 900, "delta": 1e-7, "epsilon": 3.0}
        | {"shares": {"boundedscaler": 1, "dpsgdclassifier": 1}},
        {"plain": {"n_samples": 60}},
        cheap=(),
        elsewhere=(*OF_COLUMNS, *OF_PUBLIC),
    ),
    walk_of(
        audit_epsilon,
        lambda options: audit_epsilon(1000, 100, 75, **{"delta": 1e-4, **options}),
        {"confidence": 0.8, "delta": 1e-2},
    ),
    walk_of(
        audit_estimator,
        lambda options: repr(
            audit_estimator(private_mean, X, **{"random_state": 0, "n_canaries": 20, **options})
        ),
        {"method": "many_runs", "statistic": "gaussian", "n_canaries": 30, "n_guesses": 4}
        | {"n_training": 20, "confidence": 0.8, "fit_params": {"epsilon": 9.0}, "y": Y}
        | {"groups": np.arange(60) // 2, "random_state": 1},
        {"one run": {}, "many runs": {"method": "many_runs", "n_training": 10}},
        {"one run": UNSEEN | {"n_training": 'Of "many_runs" only.'}, "many runs": UNSEEN},
        cheap=(),
    ),
    *(
        walk_of(kind, encoded(make, values), {"log": True, "missing": True})
        for kind, make, values in (
            (Range, lambda **options: Range(0, 9, **options), NUMBERS),
            (PrivateRange, PrivateRange, NUMBERS),
        )
    ),
    walk_of(
        Categories, encoded(lambda **o: Categories(("x", "y"), **o), ["x", "y"]), {"missing": True}
    ),
    walk_of(
        Date,
        encoded(lambda **o: Date("2020-01-01", "2020-12-31", **o), ["2020-01-05", "2020-07-01"]),
        {"missing": True},
    ),
    walk_of(
        Text,
        encoded(lambda **o: Text(**o), ["a word", "some words"]),
        {"n_features": 8, "ngram_range": (1, 2), "analyzer": "char"},
    ),
    walk_of(Schema, checked, {"y": FRAME["b"]}, method="check"),
    walk_of(
        Schema,
        lambda options: (
            tried(lambda: Schema.from_public(FRAME, **options))
            or repr(Schema.from_public(FRAME, **options))
        ),
        {"columns": ["a"], "max_categories": 1},
        method="from_public",
    ),
    walk_of(
        Schema,
        lambda options: (
            Schema({"a": (0.0, 1.0)})
            .example(4, **{"random_state": 0, **options})
            .to_numpy()
            .tolist()
        ),
        {"random_state": 1},
        method="example",
    ),
    walk_of(
        tabular_pipeline, in_a_pipeline, {"epsilon": 3.0, "target": (0, 1), "interactions": True}
    ),
]


@pytest.mark.parametrize(("walk", "mode"), rows(WALKS))
def test_what_can_be_set_is_used_or_said_to_be_unused(walk, mode):
    check(walk, mode)


# No public object is left out -------------------------------------------------------------------

HELD = "it holds what it is given"
SCIKIT_LEARN = "scikit-learn's own, which its tests and those of estimators hold"
HOLDERS = ("AuditResult", "PrivacyGuarantee", "PrivacyReport", "PrivateScore")
HOLDERS += ("PrivateScoreDifference",)
HOLDERS += ("PrivateCoefficients", "PrivateCounts", "PrivateSummary")
SUMMARISED = "which number is asked for: test_table_counts.py asks for all"
REASONS = {
    **dict.fromkeys(HOLDERS, HELD),
    **dict.fromkeys(["to_json"], "files: test_saved_models.py has all models"),
    "score": SCIKIT_LEARN,  # (X, y, sample_weight) of classifiers and regressors
    "PrivateCoefficients.at_level": "which intervals: test_coefficients.py asks for others",
    "PrivateSummary.compare": SUMMARISED,
    "PrivateSummary.entry": SUMMARISED,
    **dict.fromkeys(
        ["AccuracyPlan.width", "AccuracyPlan.epsilon_for", "AccuracyPlan.rows_for"],
        "which number is asked for: test_planned_accuracy.py asks for several",
    ),
    "AccuracyPlan.plot": "ax and a number: test_planned_accuracy.py draws both",
    "PrivateCountsDisplay.from_counts": "ax, where others say the same",
    "PrivateCountsDisplay.plot": "options of artists, and ax, as above",
    **dict.fromkeys(
        [
            "PrivateCoefficients.plot",
            "PrivateCounts.plot",
            "PrivateScore.plot",
            "PrivacyLedger.plot",
        ],
        "ax, which displays draw in: test_results_that_plot.py",
    ),
    "privacy_event": "sizes of a plan, which is what fits store: tests of each estimator compare",
    "PrivacyLedger.to_diffprivlib": "an accountant of another package, which test_ledger.py has",
    "TableEncoder.fit": "groups, as of each part of a TabularPipeline",
}
# What a fit of transformers takes and does not look at, as scikit-learn's do.
IGNORED = {"y"}


def doors():
    """Each public class, method and function that has parameters to set, by its name."""
    for name in PLACES:
        what = imported(name)
        if isinstance(what, type) and issubclass(what, BaseException):
            continue
        yield name, what
        for method in dir(what) if isinstance(what, type) else ():
            door = getattr(what, method)
            own = getattr(inspect.unwrap(door), "__module__", "") if callable(door) else ""
            if not method.startswith("_") and (own or "").startswith("dpsubspace"):
                yield f"{name}.{method}", door


def walked():
    """Names of doors, and what walks set there or leave to other tests."""
    parts = {"pipeline": "TabularPipeline", "encoder": "TableEncoder"}
    for walk in (*FITS, *TOOLS, *PICTURES, *WALKS):
        for option in walk.others:
            part, _, name = option.rpartition("__")
            yield {"": walk.name, "fit": f"{walk.name}.fit"}.get(part) or parts.get(part, ""), name
        yield from ((walk.name, name) for name in walk.elsewhere)


def test_every_parameter_of_a_public_object_is_walked_over_or_has_a_reason():
    known, missing, needed = {*walked()}, [], set()
    for name, door in doors():
        left = {word for word in settable(door) if (name, word) not in known}
        if name.endswith(".fit"):
            left -= IGNORED
        reason = name if name in REASONS else name.rpartition(".")[2]
        if left and reason in REASONS:
            needed.add(reason)
        elif left:
            missing.append(f"{name}: {sorted(left)}")
    assert missing == []
    assert needed == {*REASONS}
