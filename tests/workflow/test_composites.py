"""What everything that looks into a model finds there: many composites by seven that ask.

Each row says what is true of a composite. What the ledger, the planner, the search, the warnings
around a fit, the report, the scores and the audit say is compared with that.
"""

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import Memory
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPSGDClassifier,
    DPSGDRegressor,
    PrivacyLedger,
    PrivateSearch,
    privacy_report,
    tabular_pipeline,
)
from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.fits.composites import opened, predictor, private_parts
from dpsubspace._core.fits.outputs import threshold_of
from dpsubspace._core.ground.checks import changed_in, learns_as_ours
from dpsubspace._core.plans.search_budget import Candidate
from dpsubspace._names import PLACES, imported
from dpsubspace.audit import audit_estimator
from dpsubspace.budget._planner import PublicSizes, _fitted
from dpsubspace.calibration import DPCalibratedClassifier
from dpsubspace.exceptions import PrivacyError
from dpsubspace.reports._report_subject import account_of

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(60, 4))
Y = (X[:, 0] > 0).astype(int)
T = X[:, 0]
FRAME = pd.DataFrame(X, columns=list("abcd"))
CODES = np.arange(240).reshape(60, 4) % 3
QUICK = {"epsilon": 1.0, "delta": 1e-5, "n_iter": 1, "clip_norm": 1.0, "learning_rate": 1.0}


def model():
    return DPSGDClassifier(**QUICK)


def regressor():
    return DPSGDRegressor(**QUICK, target_bounds=(-1, 1))


def scaler():
    return BoundedScaler(epsilon=0.5, delta=1e-5)


def fitted_scaler():
    return FrozenEstimator(StandardScaler().fit(X[:9]))


def over(*steps, remainder="passthrough", sparse_threshold=0):
    """A ColumnTransformer; without names all steps take two columns each."""
    named = [
        s if isinstance(s, tuple) else (f"c{i}", s, [2 * i, 2 * i + 1]) for i, s in enumerate(steps)
    ]
    return ColumnTransformer(named, remainder=remainder, sparse_threshold=sparse_threshold)


def first_two(rows):
    return [0, 1]


def by_function(step="passthrough"):
    return ColumnTransformer([("c", step, first_two)], sparse_threshold=0)


class Storing(Pipeline):
    """May do anything with the rows."""


class Scaler(BoundedScaler):
    """Keeps to what its base does."""


class LookingScaler(BoundedScaler):
    def fit(self, X, y=None, **more):
        self.means_ = X.mean(axis=0)
        return super().fit(X, y, **more)


class Wrapper(ClassifierMixin, BaseEstimator):
    """What no list knows."""

    def __init__(self, estimator=None):
        self.estimator = estimator

    def fit(self, X, y):
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X):
        return self.estimator_.predict(X)


@dataclass(frozen=True)
class Row:
    """What is true of a composite.

    Parameters
    ----------
    make : callable
        Makes it.
    parts : str
        Names of what is private and is charged by a ledger, with a star where it gets as many
        columns as there are; "refused" where a ledger cannot answer for the composite.
    told : set of (str, str)
        What is seen around its fits.
    reported : float or None
        Number of private releases of a report that holds, negative where there is a reason why
        there is no guarantee; None where there is nothing to report.
    y, rows : array
        What it is fitted to.
    """

    make: Callable[[], Any]
    parts: str
    told: frozenset[str] = frozenset()
    reported: int | None = 1
    y: Any = None
    rows: Any = None

    def made(self):
        """The composite; nothing is said of fits of what is inside of it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.make()

    def data(self):
        return X if self.rows is None else self.rows, Y if self.y is None else self.y


def row(make, parts, *told, **options):
    return Row(make, parts, frozenset(told), **options)


REFUSED = "refused"


def before(*steps):
    return make_pipeline(*steps, model())


ONE, TWO = "dpsgdclassifier*", "boundedscaler*, dpsgdclassifier*"
SCALES = "step StandardScaler"
ROWS = {
    # Alone and in Pipelines.
    "alone": row(model, "DPSGDClassifier*"),
    "last": row(lambda: before(), ONE),
    "two": row(lambda: before(scaler()), TWO, reported=2),
    "fewer columns": row(
        lambda: before(DPPCA(2, epsilon=0.5, delta=1e-5)), "dppca*, dpsgdclassifier", reported=2
    ),
    "row by row": row(lambda: before(Normalizer()), ONE),
    "more columns": row(lambda: before(PolynomialFeatures()), "dpsgdclassifier"),
    "a word": row(lambda: Pipeline([("a", "passthrough"), ("m", model())]), "m*"),
    "nothing": row(lambda: Pipeline([("a", None), ("m", model())]), "m*"),
    "frozen": row(lambda: before(fitted_scaler()), "dpsgdclassifier"),
    "frozen private": row(
        lambda: before(FrozenEstimator(scaler().fit(X))), "dpsgdclassifier", reported=2
    ),
    "memory": row(lambda: Pipeline([("m", model())], memory=Memory(None)), "m*"),
    "learning": row(lambda: before(StandardScaler()), REFUSED, SCALES, reported=-1),
    "a function": row(lambda: before(FunctionTransformer(np.abs)), REFUSED, reported=-1),
    "not private": row(
        lambda: make_pipeline(scaler(), LogisticRegression()),
        REFUSED,
        "step LogisticRegression",
        reported=-1,
    ),
    "ours kept": row(lambda: before(Scaler((-1, 1))), "scaler*, dpsgdclassifier*", reported=2),
    "ours changed": row(
        lambda: before(LookingScaler((-1, 1))), REFUSED, "step LookingScaler", reported=-1
    ),
    "a subclass": row(lambda: Storing([("m", model())]), REFUSED, "unknown Storing", reported=None),
    "told categories": row(
        lambda: before(OneHotEncoder(categories=[[0, 1, 2]] * 4, sparse_output=False)),
        REFUSED,
        reported=-1,
        rows=CODES,
    ),
    "rare categories": row(
        lambda: before(OrdinalEncoder(categories=[[0, 1, 2]] * 4, max_categories=2)),
        REFUSED,
        "step OrdinalEncoder",
        reported=-1,
        rows=CODES,
    ),
    "means of targets": row(
        lambda: before(TargetEncoder(categories=[[0, 1, 2]] * 4, cv=2)),
        REFUSED,
        "step TargetEncoder",
        reported=-1,
        rows=CODES,
    ),
    # Pipelines in Pipelines, which a ledger does not look into.
    "nested": row(lambda: before(make_pipeline(scaler())), REFUSED, reported=2),
    "nested learning": row(
        lambda: before(make_pipeline(StandardScaler())), REFUSED, SCALES, reported=-1
    ),
    "nested memory": row(
        lambda: before(Pipeline([("a", scaler())], memory=Memory(None))), REFUSED, reported=2
    ),
    # ColumnTransformers.
    "columns": row(lambda: before(over(scaler())), "c0, dpsgdclassifier", reported=2),
    "columns dropped": row(lambda: before(over(Normalizer(), remainder="drop")), "dpsgdclassifier"),
    "columns learning": row(
        lambda: before(over(scaler(), StandardScaler())), REFUSED, SCALES, reported=-2
    ),
    "remainder private": row(
        lambda: before(over("passthrough", remainder=scaler())),
        "remainder, dpsgdclassifier",
        reported=2,
    ),
    "remainder learning": row(
        lambda: before(over("passthrough", remainder=StandardScaler())),
        REFUSED,
        SCALES,
        reported=-1,
    ),
    "columns in columns": row(
        lambda: before(over(over(scaler()), "passthrough")), "c0, dpsgdclassifier", reported=2
    ),
    "columns in columns learning": row(
        lambda: before(over(over(StandardScaler()))), REFUSED, SCALES, reported=-1
    ),
    "columns by a function": row(
        lambda: before(by_function()), REFUSED, "step ColumnTransformer", reported=-1
    ),
    "columns in columns by a function": row(
        lambda: before(ColumnTransformer([("o", by_function(), [0, 1, 2])], sparse_threshold=0)),
        REFUSED,
        "step ColumnTransformer",
        reported=-1,
    ),
    "columns by type": row(
        lambda: before(
            over(("s", scaler(), make_column_selector(dtype_include=float)), sparse_threshold=0)
        ),
        "s, dpsgdclassifier",
        reported=2,
        rows=FRAME,
    ),
    "zeros counted": row(
        lambda: before(over(Normalizer(), sparse_threshold=0.3)), REFUSED, reported=-1
    ),
    "zeros counted in one part": row(
        lambda: before(
            over(
                ("h", FeatureHasher(4, input_type="string"), [0]),
                remainder="drop",
                sparse_threshold=0.3,
            )
        ),
        REFUSED,
        reported=-1,
        rows=np.array([["ab"], ["cd"]] * 30, dtype=object),
    ),
    # What fits others and learns nothing itself.
    "union": row(lambda: before(FeatureUnion([("a", scaler())])), REFUSED, reported=-2),
    "union learning": row(
        lambda: before(FeatureUnion([("a", scaler()), ("b", StandardScaler())])),
        REFUSED,
        SCALES,
        reported=-2,
    ),
    "vote": row(lambda: VotingClassifier([("a", model())]), REFUSED, reported=None),
    "vote beside": row(
        lambda: VotingClassifier([("a", model()), ("b", LogisticRegression())]),
        REFUSED,
        "step LogisticRegression",
        reported=None,
    ),
    "vote inside": row(
        lambda: VotingClassifier([("a", before(StandardScaler()))]),
        REFUSED,
        SCALES,
        reported=None,
    ),
    "vote dropped": row(
        lambda: VotingClassifier([("a", model()), ("b", "drop")]), REFUSED, reported=None
    ),
    "vote of a default": row(
        lambda: VotingRegressor([("a", regressor()), ("b", TransformedTargetRegressor())]),
        REFUSED,
        "step TransformedTargetRegressor",
        reported=None,
        y=T,
    ),
    "vote of a default ensemble": row(
        lambda: VotingRegressor([("a", regressor()), ("b", BaggingRegressor(bootstrap=False))]),
        REFUSED,
        "step BaggingRegressor",
        reported=None,
        y=T,
    ),
    "targets": row(lambda: TransformedTargetRegressor(regressor()), REFUSED, reported=None, y=T),
    "targets learning": row(
        lambda: TransformedTargetRegressor(regressor(), transformer=StandardScaler()),
        REFUSED,
        SCALES,
        reported=None,
        y=T,
    ),
    "bagging": row(lambda: BaggingClassifier(model(), 2, bootstrap=False), REFUSED, reported=None),
    "bootstrap": row(
        lambda: BaggingClassifier(model(), 2), REFUSED, "unknown BaggingClassifier", reported=None
    ),
    "a class at a time": row(lambda: OneVsRestClassifier(model()), REFUSED, reported=None),
    "two classes at a time": row(
        lambda: OneVsOneClassifier(before(StandardScaler())), REFUSED, SCALES, reported=None
    ),
    "a target at a time": row(
        lambda: MultiOutputRegressor(regressor()), REFUSED, reported=None, y=X[:, :2]
    ),
    "elimination": row(lambda: RFE(model(), n_features_to_select=2), REFUSED, reported=None),
    # What learns or chooses itself.
    "stacking": row(
        lambda: StackingClassifier([("a", model())], LogisticRegression(), cv=2),
        REFUSED,
        "unknown StackingClassifier",
        reported=None,
    ),
    "calibration": row(
        lambda: CalibratedClassifierCV(model(), cv=2),
        REFUSED,
        "unknown CalibratedClassifierCV",
        reported=None,
    ),
    "selection": row(
        lambda: before(SelectFromModel(model(), threshold=-np.inf)),
        REFUSED,
        "step SelectFromModel",
        "unknown SelectFromModel",
        reported=-2,
    ),
    "tuned threshold": row(
        lambda: TunedThresholdClassifierCV(model(), cv=2),
        REFUSED,
        "unknown TunedThresholdClassifierCV",
        "validation DPSGDClassifier",
        reported=None,
    ),
    "grid": row(
        lambda: GridSearchCV(before(StandardScaler()), {"dpsgdclassifier__alpha": [0.1]}, cv=2),
        REFUSED,
        SCALES,
        "choice GridSearchCV",
        "validation DPSGDClassifier",
        reported=-2,
    ),
    "a stranger": row(lambda: Wrapper(model()), REFUSED, "unknown Wrapper", reported=None),
    # Of this package.
    "a table": row(
        lambda: tabular_pipeline(model(), dict.fromkeys("abcd", (-1, 1))),
        "TabularPipeline*",
        rows=FRAME,
    ),
    "a private search": row(
        lambda: PrivateSearch(before(scaler()), {"dpsgdclassifier__alpha": [0, 0.1]}, delta=1e-5),
        "PrivateSearch*",
    ),
    "recalibrated": row(
        lambda: DPCalibratedClassifier(FrozenEstimator(before(scaler()).fit(X, Y))),
        "DPCalibratedClassifier*",
        reported=3,
    ),
    "recalibrated learning": row(
        lambda: DPCalibratedClassifier(FrozenEstimator(before(StandardScaler()).fit(X, Y))),
        "DPCalibratedClassifier*",
        reported=-2,
    ),
    "recalibrated columns by a function": row(
        lambda: DPCalibratedClassifier(FrozenEstimator(before(by_function()).fit(X, Y))),
        "DPCalibratedClassifier*",
        reported=-2,
    ),
    "recalibrated vote": row(
        lambda: DPCalibratedClassifier(
            FrozenEstimator(VotingClassifier([("a", model())], voting="soft").fit(X, Y))
        ),
        "DPCalibratedClassifier*",
        reported=-2,
    ),
}

MADE = {}


def fitted(name):
    """A composite after a fit in a ledger, and what the ledger and warnings said of it.

    What a ledger refuses is fitted after it was closed.
    """
    if name not in MADE:
        made, (rows, targets) = ROWS[name].made(), ROWS[name].data()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with PrivacyLedger(epsilon=1e3, delta=1e-5, allow_seeded=True) as book:
                try:
                    made.fit(rows, targets)
                except (PrivacyError, ValueError):  # of a search of which all fits were refused
                    made = None
            if made is None:
                made = ROWS[name].made().fit(rows, targets)
        MADE[name] = made, book, [str(one.message) for one in caught]
    return MADE[name]


def named(ask):
    """Names that something says, or that it refuses to answer."""
    try:
        return ", ".join(ask())
    except PrivacyError:
        return REFUSED


@pytest.mark.parametrize("name", ROWS)
def test_a_ledger_and_a_planner_find_what_is_private(name):
    truth, made = ROWS[name].parts, ROWS[name].made()
    assert named(lambda: (part for part, _ in private_parts(made))) == truth.replace("*", "")
    stars = named(lambda: (part + "*" * whole for part, _, whole in _fitted(made)))
    assert stars == truth


@pytest.mark.parametrize("name", ROWS)
def test_a_search_takes_what_a_ledger_takes(name):
    made, sizes = ROWS[name].made(), {"n_samples": 60, "n_features": 4}
    if getattr(made, "memory", None) is not None:
        with pytest.raises(ValueError, match="memory"):
            Candidate.of(made, {}, Target(1.0, 1e-5), sizes)
        return
    candidate = named(lambda: map(str, [Candidate.of(made, {}, Target(1.0, 1e-5), sizes)]))
    assert (candidate == REFUSED) == (ROWS[name].parts == REFUSED)


@pytest.mark.parametrize("name", ROWS)
def test_warnings_and_ledgers_name_what_learns(name):
    _, book, caught = fitted(name)
    seen = {f"{kind} {of}" for kind, of, _ in book.seen if kind not in ("seed", "score")}
    steps = {each for each in ROWS[name].told if each.startswith("step")}
    assert seen == {f"refused {each[5:]}" for each in steps} or (
        not steps and seen == ROWS[name].told
    )
    told = [text for text in caught if re.search("learns? from the rows", text)]
    assert bool(told) == bool(steps)
    assert len(book) == 0 or not steps


@pytest.mark.parametrize("name", ROWS)
def test_a_report_counts_what_is_private_and_names_what_learns(name):
    made, _, _ = fitted(name)
    if ROWS[name].reported is None:
        with pytest.raises(PrivacyError, match="has no privacy guarantee"):
            privacy_report(made)
        return
    report = privacy_report(made)
    found = len(json.loads(report.to_json())["parts"])
    assert (found if report.holds else -found) == ROWS[name].reported


def held(thing, seen):
    """Everything private and fitted that can be reached from an object."""
    if id(thing) in seen or isinstance(thing, (str, type, np.ndarray, pd.DataFrame)):
        return
    seen[id(thing)] = thing
    if type(thing).__module__.startswith("dpsubspace") and hasattr(thing, "privacy_"):
        yield thing
    inner = vars(thing).values() if hasattr(thing, "__dict__") else thing
    inner = thing.values() if isinstance(thing, dict) else inner
    if isinstance(inner, (list, tuple)) or hasattr(inner, "mapping"):
        for each in inner:
            yield from held(each, seen)


@pytest.mark.parametrize("name", ROWS)
def test_the_walk_reaches_all_that_is_kept(name):
    """So that a score can tell that rows were trained on, and find a schema."""
    made, _, _ = fitted(name)
    reached = {id(node.model) for node in opened(made, fitted=True).walk()}
    kept = [*held(made, {})]
    assert kept and {id(each) for each in kept} <= reached


@pytest.mark.parametrize("name", ROWS)
def test_an_audit_names_what_could_be_audited(name):
    made, (rows, targets) = ROWS[name].made(), ROWS[name].data()
    if getattr(made, "_canary", None) is not None:
        return
    with pytest.raises(PrivacyError, match=r"(?s)one private step|inside of it, \w+") as error:
        audit_estimator(made, rows, targets)
    assert "nothing is known" not in str(error.value)


def test_an_audit_of_a_stranger_says_what_can_be_audited():
    with pytest.raises(PrivacyError, match=r"DPSGDClassifier, .*TabularPipeline, .*private_mean"):
        audit_estimator(StandardScaler(), X)


# What the table has no column for -----------------------------------------------------------------


def test_a_report_says_what_is_vouched_for_wherever_it_is():
    by_type, _, _ = fitted("columns by type")
    assert "hat the column types by which" in " ".join(str(privacy_report(by_type)).split())
    for name in ("memory", "nested memory"):
        assert "the folder in which" in " ".join(str(privacy_report(fitted(name)[0])).split())


def test_a_report_plans_a_step_with_the_columns_that_it_gets():
    """As a planner does: behind two components there are no four columns."""
    plan = account_of(ROWS["fewer columns"].made(), PublicSizes(n_samples=60, n_features=4))
    assert plan.planned and [item.guarantee.n_features for item in plan.items] == [4, None]


def test_the_threshold_of_a_model_is_found_wherever_it_is():
    cut = FixedThresholdClassifier(LogisticRegression(), threshold=0.7).fit(X, Y)
    expected = threshold_of(cut, probabilities=True)
    grid = GridSearchCV(
        FixedThresholdClassifier(LogisticRegression()), {"threshold": [0.7]}, cv=2
    ).fit(X, Y)
    for wrapped in (
        make_pipeline(Normalizer(), cut),
        FrozenEstimator(cut),
        make_pipeline(FrozenEstimator(cut)),
        grid,
    ):
        assert threshold_of(wrapped, probabilities=True) == expected != 0


def test_labels_of_all_rows_reach_the_model_of_each_trial():
    """Those of training rows alone would tell whether a rare label is among them."""
    y = np.where(np.arange(60) < 1, 2, Y)
    table = tabular_pipeline(model(), dict.fromkeys("abcd", (-1, 1)))
    inner = PrivateSearch(model(), {"alpha": [0.0, 0.1]}, delta=1e-5)
    for last in (table, inner):
        search = PrivateSearch(
            Pipeline([("m", last)]), {"m__epsilon": [1.0]}, epsilon=5.0, delta=1e-5
        )
        search.set_params(candidates=[{"m": [last]}])
        found = predictor(search.estimator, fitted=False)
        assert isinstance(found, DPSGDClassifier)
        search.fit(FRAME, y)
        best = search.best_estimator_[-1]
        assert predictor(best, fitted=False).classes == [0, 1, 2]


OURS = [
    kind
    for kind in (imported(name) for name in PLACES)
    if isinstance(kind, type) and hasattr(kind, "fit") and hasattr(kind, "get_params")
]
# What a subclass may have of its own: nothing in a fit gives it a row.
FREE = {
    "nothing": {},
    "words": {"__doc__": "Said.", "__repr__": lambda self: "mine"},
    "parameters": {"__init__": lambda self, other=1: None},
    "answers": {"predict": lambda self, X: X, "score": lambda self, X, y: 1.0},
    "a new method": {"explain": lambda self, X: X},
}
NAMES = [
    "fit",
    "fit_transform",
    "fit_predict",
    "partial_fit",
    "transform",
    "_fit_by",
    "_check",
    "_store",
    "privacy_event",
    "set_params",
    "__sklearn_clone__",
    "__getattribute__",
    "__setattr__",
    "__getstate__",
]


class LooksAround:
    """A mixin with a method that scikit-learn looks for."""

    def fit_transform(self, X, y=None, **more):
        return self.fit(X, y, **more).transform(X)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_a_subclass_counts_as_ours_unless_rows_get_to_what_it_changes(kind):
    """Whatever it is that a fit calls with rows, or by which it could hear of them."""
    for own in FREE.values():
        made = type("Made", (kind,), own)
        assert learns_as_ours(made.__new__(made))
    answering = type("Made", (kind,), FREE["answers"])
    assert {*changed_in(answering.__new__(answering), answers=True)} == {"predict", "score"}
    hooks = ("fit", "partial_fit", "transform")  # looked for by scikit-learn
    names = [name for name in NAMES if hasattr(kind, name) or name.startswith(hooks)]
    for name in names:
        made = type("Made", (kind,), {name: getattr(kind, name, None)})
        grand = type("Below", (made,), {})
        for each in (made, grand):
            assert not learns_as_ours(each.__new__(each)), name
    for bases in ((LooksAround, kind), (kind, LooksAround), (StandardScaler, kind)):
        try:
            made = type("Made", bases, {})
        except TypeError:  # the order of bases of a Pipeline
            continue
        assert not learns_as_ours(made.__new__(made))


def test_a_function_before_persons_is_taken_where_somebody_answers_for_it():
    """As the page on several rows says: as it is in a block, and frozen by the ledger itself."""
    plain, groups = FunctionTransformer(np.log1p), {"dpsgdclassifier__groups": np.arange(60) // 2}
    frozen = before(FrozenEstimator(FunctionTransformer(np.log1p).fit(X)))
    book = PrivacyLedger(epsilon=1e3, delta=1e-5, unit="person")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        book.fit(frozen, np.abs(X), Y, **groups)
        with book:
            bare = before(plain).fit(np.abs(X), Y, **groups)
        with pytest.raises(PrivacyError, match="Wrap a FunctionTransformer"):
            book.fit(before(plain), np.abs(X), Y, **groups)
    assert len(book) == 2 and book.seen == ()
    assert privacy_report(frozen).holds and not privacy_report(bare).holds


def test_a_search_takes_no_answers_of_a_subclass():
    """What it says of a held-out row might depend on the other ones."""
    answering = type("Answering", (DPSGDClassifier,), {"predict": lambda self, X: X})
    plain, sizes = type("Plain", (DPSGDClassifier,), {}), {"n_samples": 60, "n_features": 4}
    Candidate.of(plain(n_iter=2), {}, Target(1.0, 1e-5), sizes)
    with pytest.raises(ValueError, match="Answering has a 'predict' of its own"):
        Candidate.of(answering(n_iter=2), {}, Target(1.0, 1e-5), sizes)


def test_what_a_subclass_changes_is_named_with_the_way_out():
    with pytest.raises(PrivacyError, match="is made from BoundedScaler, and its own 'fit' may do"):
        private_parts(before(LookingScaler((-1, 1))))
    with pytest.raises(PrivacyError, match="is made from BoundedScaler, and its own 'fit' may do"):
        private_parts(LookingScaler((-1, 1)))


def test_a_step_whose_method_was_replaced_is_refused():
    step = Normalizer()
    step.transform = lambda rows: rows - rows.mean(axis=0)
    with pytest.raises(PrivacyError, match="another 'transform' than its class"):
        private_parts(before(step))
