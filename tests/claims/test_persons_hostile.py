"""Attacks on the person as the unit: what one person's rows may do to all others, in bad cases."""

import inspect
import pickle
import re
import warnings
from typing import Any

import numpy as np
import pytest
from helpers import groups_of, pairs_first, releases, thinned
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_frozen import frozen

import dpsubspace
from dpsubspace import DPPCA, BoundedScaler, DPLinearRegression, DPSGDFClassifier, PrivateSearch
from dpsubspace._core.plans.choice import validation_scorer
from dpsubspace._core.rows.records import NullRecords, Records, check_groups, group_index
from dpsubspace.calibration import DPCalibratedClassifier
from dpsubspace.linear_model import PersonalizedLinearRegression, PersonalizedLogisticRegression

pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")

LARGEST = np.finfo(np.float64).max


def people(sizes, d, seed=0):
    """Rows of persons who have weights of their own, and whose they are."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    X, weights = rng.normal(size=(len(groups), d)), rng.normal(size=(len(sizes), d))
    return X, (X * weights[groups]).sum(axis=1) + rng.normal(size=len(X)), groups


WILD = [[1e308], [LARGEST, 1e-300, 0.0, -1e150], [LARGEST, -LARGEST], [5e-324]]


def test_no_rows_of_a_person_with_one_label_make_a_logistic_fit_fail():
    X, y, groups = people(np.full(60, 10), 3)
    for values in WILD:
        X[:10], y[:10] = np.resize(values, (10, 3)), 1.0
        for options in ({}, {"bounds": (-4, 4), "n_components": 2, "n_iter": 2}):
            model = PersonalizedLogisticRegression(random_state=0, **options)
            model.fit(X, y > 0, groups=groups)
            assert np.isfinite(model.personal_coef_[1:]).all() and np.isfinite(model.coef_).all()


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_a_logistic_model_tells_others_of_a_person_by_releases_alone(monkeypatch, relation):
    """A person of whatever rows: with the same releases all others are told the same bits."""
    rng, others = np.random.default_rng(0), np.r_[1, 2, 3, 5, 5, 30, np.full(24, 4)]
    rows = [(rng.normal(size=(m, 3)), rng.random(m) < 0.5) for m in others]
    mine = [(np.full((m, 3), value), np.ones(m, bool)) for m, value in ((1, 1e30), (500, -LARGEST))]
    mine += [(rng.normal(size=(5, 3)), np.arange(5) > 5), (np.zeros((2, 3)), np.arange(2) > 0)]
    for turn, (own, options) in enumerate(
        zip(mine, [{}, {"n_iter": 1, "n_components": 2}] * 2, strict=True)
    ):
        fits, outputs = [], None
        sides = (own, rows[0]) if relation == "replace_one" else (own, own)
        for present, side in zip((True, relation != "zero_out"), sides, strict=True):
            X, y = (np.concatenate(parts) for parts in zip(*rows[:3], side, *rows[3:], strict=True))
            sizes = [*others[:3], len(side[1]), *others[3:]]
            groups = np.repeat(np.arange(len(sizes)), sizes)
            if relation == "zero_out":
                groups = NullRecords(groups, (groups != 3) | present)
            model = PersonalizedLogisticRegression(
                epsilon=10.0 ** (2 * turn),
                neighboring_relation=relation,
                random_state=0,
                classes=[0, 1],
                **options,
            )
            with frozen(monkeypatch, outputs) as seen:
                fits.append(model.fit(X, y, groups=groups))
            outputs = seen if outputs is None else outputs
        here, there = fits
        assert pickle.dumps(here.public_part()) == pickle.dumps(there.public_part())
        told = np.arange(len(here.groups_)) != 3
        for name in ("personal_coef_", "personal_intercept_", "choices_"):
            np.testing.assert_array_equal(getattr(here, name)[told], getattr(there, name)[told])


@pytest.mark.parametrize(("values", "targets"), pairs_first(WILD, [False, True]), ids=str)
def test_no_rows_of_a_person_make_the_fit_fail(values, targets):
    X, y, groups = people(np.full(60, 10), 3)
    X[:10] = np.resize(values, (10, 3))
    if targets:
        y[:10] = np.resize(values, 10)
    model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=groups)
    assert np.isfinite(model.personal_coef_[1:]).all() and np.isfinite(model.coef_).all()


@pytest.mark.parametrize(("d", "seed"), thinned([(4, 11), (4, 14), (4, 31), (9, 3)]))
def test_heads_of_others_are_the_same_bits_where_releases_are(monkeypatch, seed, d):
    """Persons 0 and 1 are alone in having five rows; then person 0 has one."""
    X, y, groups = people(np.r_[5, 5, np.full(20, 20)], d, seed)
    kept = np.ones(len(X), dtype=bool)
    kept[1:5] = False
    fits, outputs = [], None
    for some in (slice(None), kept):
        model = PersonalizedLinearRegression(
            epsilon=1e5, random_state=0, neighboring_relation="replace_one"
        )
        with frozen(monkeypatch, outputs) as seen:
            fits.append(model.fit(X[some], y[some], groups=groups[some]))
        outputs = seen if outputs is None else outputs
    here, there = fits
    for name in ("personal_coef_", "personal_intercept_", "choices_"):
        np.testing.assert_array_equal(getattr(here, name)[1:], getattr(there, name)[1:])


@pytest.mark.parametrize("d", thinned([8, 20, 64]))
def test_a_vote_is_that_of_the_row_and_not_of_its_place(d):
    """Rows on the boundary of a public model, of which rounding decides, at the ends of batches."""
    rng = np.random.default_rng(0)
    public, labels = rng.normal(size=(60, d)) * 3 + 100, np.arange(60) % 2
    model = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cg", max_iter=1000))
    model.fit(public, labels)
    linear: Any = model[1]
    weights, constant = linear.coef_[0], linear.intercept_[0]
    for _ in range(30):
        row = rng.normal(size=d)
        for _ in range(2):
            row -= (row @ weights + constant) / (weights @ weights) * weights
        votes = []
        for many in (304, 305, 306, 307):
            X = np.tile(model[0].inverse_transform(row[None]), (many, 1))
            y, records = np.ones(many, dtype=int), Records.of_rows(many)
            scorer = validation_scorer({"one": public}, X, y, records, {"one": labels})
            votes.append(scorer.score(np.arange(many)))
        assert len(np.unique(np.concatenate(votes))) == 1


HIDDEN = 211  # rows of twenty persons
NUMBERS = {
    "short y": {"y": np.arange(HIDDEN - 1) % 2},
    "long y": {"y": np.arange(HIDDEN + 1) % 2},
    "two columns": {"y": np.ones((HIDDEN, 2), dtype=object)},
    "three axes": {"y": np.ones((HIDDEN, 1, 2))},
    "ragged y": {"y": [[0.0] * (1 + i % 2) for i in range(HIDDEN)]},
    "short groups": {"groups": np.arange(HIDDEN - 1) % 20},
    "ragged groups": {"groups": [[0] * (1 + i % 2) for i in range(HIDDEN)]},
    "groups of three axes": {"groups": np.zeros((HIDDEN, 1, 2))},
    "one column": {"X": np.zeros(HIDDEN)},
    "ragged X": {"X": [[0.0] * (1 + i % 2) for i in range(HIDDEN)]},
    "text": {"X": np.full((HIDDEN, 2), "a")},
    "as many public rows": {"X_public": np.zeros((HIDDEN, 2))},
    "as many public sets": {"X_public": (np.eye(2),) * HIDDEN},
}
TAKING = {
    "classifier": DPSGDFClassifier(n_iter=1),
    "regressor": DPLinearRegression(target_bounds=(0, 1)),
    "personal": PersonalizedLinearRegression(target_bounds=(0, 1), n_components=1, n_iter=1),
    "calibrated": DPCalibratedClassifier(LogisticRegression().fit(np.eye(2), [0, 1])),
    "components": DPPCA(1),
    "scaler": BoundedScaler(),
    "search": PrivateSearch(DPSGDFClassifier(n_iter=1), {"row_norm": ["l2", None]}),
}


@pytest.mark.parametrize("mistake", NUMBERS)
@pytest.mark.parametrize("name", TAKING)
def test_no_message_tells_planning_persons_have(name, mistake):
    rng = np.random.default_rng(0)
    given = {"X": rng.normal(size=(HIDDEN, 2)), "y": np.arange(HIDDEN) % 2}
    given |= {"groups": np.arange(HIDDEN) % 20, **NUMBERS[mistake]}
    model, told = clone(TAKING[name]), []
    if not {*given} <= {*inspect.signature(model.fit).parameters}:
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(**given)
        except (TypeError, ValueError) as error:
            told += [str(error), str(error.__cause__), str(error.__context__)]
    told += [str(warning.message) for warning in caught]
    if "as many" not in mistake:
        told += [repr(model)]
        told += [model.privacy_.details()] if hasattr(model, "privacy_") else []
    numbers = {int(number) for text in told for number in re.findall(r"\d+", text)}
    assert not numbers & {HIDDEN - 1, HIDDEN, HIDDEN + 1}, told
    assert not any("as long as" in text for text in told)


def test_labels_that_occur_once_do_not_tell_planning_there_are():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 40
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DPSGDFClassifier(n_iter=1).fit(X, y, groups=np.arange(60) % 20)
    assert not [str(each.message) for each in caught if "unique classes" in str(each.message)]


def test_names_that_do_not_sort_are_refused():
    """Names in a partial order would make several records of one person."""
    names = np.empty(6, dtype=object)
    names[:] = [frozenset(x) for x in ([1], [2], [1], [1, 2], [2], [1])]
    try:
        index, _, n = group_index(names, 6)
    except ValueError:
        return
    assert n == 3 and len(set(index[[0, 2, 5]])) == 1


@pytest.mark.parametrize(
    ("groups", "present", "match"),
    [
        (None, np.ones(6), "True or False"),  # what a user may mean by a weight
        (None, np.ones(5, dtype=bool), "one entry"),
        ([0, 1, 2, 2, 1, 0], np.arange(6) > 0, "all rows of a record"),
    ],
)
def test_a_null_record_is_null_in_all_of_its_rows(groups, present, match):
    with pytest.raises((TypeError, ValueError), match=match):
        check_groups(NullRecords(groups, present), np.zeros((6, 2)))


def test_no_column_of_a_user_leaves_out_a_row():
    """Nothing but a type that nobody is given says that a record is null."""
    assert not hasattr(dpsubspace, "NullRecords")
    for column in (np.arange(6) > 0, np.zeros(6), np.full(6, "")):
        weights = check_groups(column, np.zeros((6, 2))).weights_numpy
        assert (weights > 0).all()
    for pair in ((None, np.arange(6) > 0), {"groups": None, "present": np.arange(6) > 0}):
        with pytest.raises(ValueError, match="`groups` must"):
            check_groups(pair, np.zeros((6, 2)))


@pytest.mark.parametrize("how", ["add_person", "predict"])
def test_nobody_is_told_the_model_of_a_person_with_a_name_nearby(how):
    """Long numbers that become floats are those of others."""
    ids = np.array([2**53, 2**53 + 1, 2**53 + 2, 5])
    groups, levels = np.repeat(ids, 30), np.repeat([0.0, 100.0, -100.0, 7.0], 30)
    X = np.random.default_rng(0).normal(size=(120, 2))
    model = PersonalizedLinearRegression(epsilon=1e5, random_state=0).fit(X, levels, groups=groups)
    row = np.zeros((1, 2))
    own, other, nobody = (model.predict(row, groups=[name]) for name in (2**53, 2**53 + 1, 9))
    try:
        if how == "add_person":
            model.add_person(1.5, X[:30], levels[:30])
            assert model.predict(row, groups=[2**53 + 1]) == other
        else:  # a name that no whole number has, or that of a person who is not there
            assert model.predict(row, groups=[float(2**53 + 1)]) == nobody
    except ValueError:
        return
    assert own != other != nobody != own


def test_a_display_in_a_notebook_names_nobody():
    X, y, groups = people(np.full(30, 4), 2)
    names = np.char.add("somebody", groups.astype(str))
    model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=names)
    shown = model._repr_html_() + repr(model) + model.privacy_.details()
    assert "somebody" not in shown and "personal_coef_" not in shown
    assert "somebody" not in model.public_part().__repr__()


@pytest.mark.parametrize(("heavy", "far"), pairs_first([1, 7, 3000], [0.0, 1e4]))
def test_others_move_a_sum_by_rounding_alone(monkeypatch, heavy, far):
    """A null person with other numbers of rows moves nothing but places."""
    X, y, groups = people(np.full(90, 3), 4)
    fits, outputs = [], None
    for count in (2, heavy):
        rows = np.concatenate([np.full((count, 4), 1e6), X + far]).astype(np.float32)
        whose = np.r_[np.zeros(count, dtype=int), groups + 1]
        targets = np.r_[np.full(count, -1e6), y]
        model = PersonalizedLinearRegression(random_state=0, n_iter=1, n_components=1)
        with releases(monkeypatch, outputs=outputs) as seen:
            model.fit(rows, targets, groups=groups_of(whose > 0, whose))
        fits.append(seen)
        outputs = seen if outputs is None else outputs
    for (here, *_), (there, *_) in zip(*fits, strict=True):
        move = np.linalg.norm(np.asarray(here.value) - np.asarray(there.value))
        assert move <= 1e-9 * here.norm_bound
