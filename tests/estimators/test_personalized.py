"""Personal linear models as users meet them."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, cross_val_score

from dpsubspace import DPLinearRegression, PrivacyError, PrivacyLedger, PrivacyWarning
from dpsubspace._core.rows.records import check_groups
from dpsubspace.linear_model import PersonalizedLinearRegression

pytestmark = pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")


def people(n=600, rows=12, seed=0, d=6, level=1.0, slopes=1.0, noise=0.3):
    """Rows of persons whose levels and whose weights along one direction differ."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n), rows)
    X = rng.normal(size=(n * rows, d)) * np.geomspace(1, 100, d) + 5
    scaled = (X - 5) / np.geomspace(1, 100, d)
    levels, own = level * rng.normal(size=n), slopes * rng.normal(size=n)
    y = scaled @ np.r_[1.0, np.zeros(d - 1)] + levels[groups] + own[groups] * scaled[:, 1]
    y = y + noise * rng.normal(size=len(y))
    return X, 50 + 10 * y, groups, np.arange(n * rows) % rows < rows * 2 // 3


# For tests that say how good a fit is. With 20 draws of persons and noise each, the scores below
# were at least 0.935 and 0.71 at epsilon 3, and 0.942 and 0.81 at epsilon 10, where all noise is
# about 3 times smaller. So many deviations of the noise separate them from what is asserted.
PLENTY = 10.0


def test_personal_models_beat_one_model_and_the_persons_alone():
    X, y, groups, train = people()
    model = PersonalizedLinearRegression(epsilon=PLENTY, random_state=0)
    model.fit(X[train], y[train], groups=groups[train])
    ours = model.score(X[~train], y[~train], groups=groups[~train])
    one = DPLinearRegression(epsilon=PLENTY, random_state=0)
    one.fit(X[train], y[train], groups=groups[train])
    scale, errors = X.std(axis=0), []
    for j in range(100):
        own, new = train & (groups == j), ~train & (groups == j)
        alone = Ridge(alpha=1.0).fit(X[own] / scale, y[own])
        errors.append((y[new] - alone.predict(X[new] / scale)) ** 2)
    alone = 1 - np.mean(errors) / y.var()
    assert ours > max(alone, one.score(X[~train], y[~train])) + 0.05
    assert 1 <= model.n_components_ <= 2
    directions = model.components_ * scale
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert np.abs(directions[:, 1]).max() > 0.9


def test_the_guarantee_is_joint_and_of_persons():
    X, y, groups, _ = people(100)
    model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=groups)
    text = model.privacy_.details()
    assert "jointly differentially private per person" in text and "public_part()" in text
    assert "number of persons (100)" in text and str(len(X)) not in text
    assert model.privacy_event(100, 6) == model.privacy_.event
    assert model.public_part().privacy_ == model.privacy_


def test_heads_of_others_depend_on_a_person_by_what_is_released_only():
    """With the same releases, another person's rows change that person's model and no other."""
    X, y, groups, _ = people(80)
    model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=groups)
    shared = model._shared_._scaled
    other_y = np.where(groups == 3, -y, y)
    scaled = (other_y - shared.targets.location[0]) / shared.targets.scale[0]
    persons = shared.persons(X, scaled, check_groups(groups, X))
    found, _ = shared.in_units(model._shared_._personal.heads(persons))
    changed = (found != model.personal_coef_).any(axis=1)
    assert list(np.flatnonzero(changed)) == [3]


def test_predictions_are_those_of_the_stored_models():
    X, y, groups, _ = people(200)
    model = PersonalizedLinearRegression(epsilon=5.0, random_state=0).fit(X, y, groups=groups)
    low, high = model.bounds_
    inside = ((low <= X) & (high >= X)).all(axis=1)
    expected = np.einsum("ij,ij->i", X, model.personal_coef_[groups])
    expected += model.personal_intercept_[groups]
    predicted = model.predict(X, groups=groups)
    np.testing.assert_allclose(predicted[inside], expected[inside], rtol=1e-9)
    shared = model.public_part()
    np.testing.assert_allclose(
        shared.predict(X)[inside], (X @ shared.coef_ + shared.intercept_)[inside], rtol=1e-9
    )
    np.testing.assert_array_equal(shared.predict(X), model.predict(X, groups=groups + 1000))


@pytest.mark.parametrize(
    ("fitted", "asked"),
    [
        (object, int),
        (int, object),
        (float, int),
        (lambda g: [f"p{i}" for i in g], lambda g: np.array([f"p{i}" for i in g], dtype=object)),
        (lambda g: [b"p%d" % i for i in g], lambda g: [f"p{i}" for i in g]),
    ],
    ids=["object", "to object", "float", "text", "bytes"],
)
def test_names_are_compared_by_what_they_are(fitted, asked):
    X, y, groups, _ = people(50)

    def names(kind):
        return groups.astype(kind) if isinstance(kind, type) else kind(groups)

    model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=names(fitted))
    found = model.predict(X, groups=names(asked))
    np.testing.assert_array_equal(found, model.predict(X, groups=names(fitted)))
    assert not np.array_equal(found, model.public_part().predict(X))


def test_large_numbers_are_names_of_one_person_each():
    X, y, groups, _ = people(50)
    names = groups + 2**60
    model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=names)
    found = model.predict(X, groups=names.astype(float))  # of which no one is certain
    assert len(model.groups_) == 50
    with pytest.raises(ValueError, match="whole number"):
        model.add_person(1.5, X[:5], y[:5])
    np.testing.assert_array_equal(found, model.public_part().predict(X))


def test_rows_of_one_person_out_of_range_harm_no_other():
    X, y, groups, _ = people(60)
    X[groups == 5], y[groups == 7] = 1e308, 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=groups)
    others = (groups != 5) & (groups != 7)
    assert np.isfinite(model.predict(X[others], groups=groups[others])).all()


def test_a_new_person_gets_a_model_of_the_own_rows():
    X, y, groups, _ = people(300)
    names = np.array([f"p{g:03}" for g in groups])
    late = groups == 7
    y[late] += 100.0  # ten deviations from the others
    model = PersonalizedLinearRegression(random_state=0).fit(
        X[~late], y[~late], groups=names[~late]
    )
    before = model.predict(X[:5], groups=names[:5])
    unknown = ((model.predict(X[late], groups=names[late]) - y[late]) ** 2).mean()
    coef, intercept = model.public_part().personal(X[late], y[late])
    model.add_person("p007", X[late], y[late])
    known = ((model.predict(X[late], groups=names[late]) - y[late]) ** 2).mean()
    assert known < unknown / 2
    place = list(model.groups_).index("p007")
    np.testing.assert_allclose(model.personal_coef_[place], coef)
    assert model.personal_intercept_[place] == pytest.approx(intercept)
    np.testing.assert_array_equal(model.predict(X[:5], groups=names[:5]), before)
    assert list(model.groups_) == sorted(model.groups_)
    again = model.personal_intercept_[place]
    with pytest.warns(FutureWarning, match="add_person"):
        model.add_user("p007", X[late], y[late] + 1000)
    assert model.personal_intercept_[place] > again + 1
    assert len(model.groups_) == 300


def test_public_tasks_tell_directions_and_cost_nothing():
    X, y, groups, train = people(150, rows=10, seed=1, slopes=2.0)
    public_X, public_y, tasks, _ = people(30, rows=60, seed=2, slopes=2.0)
    public = {
        "X_public": tuple(public_X[tasks == t] for t in range(30)),
        "y_public": tuple(public_y[tasks == t] for t in range(30)),
    }
    options = {"epsilon": 1.0, "random_state": 0}
    own, new = (X[train], y[train]), (X[~train], y[~train])
    with_public = PersonalizedLinearRegression(**options)
    with_public.fit(*own, groups=groups[train], **public)
    without = PersonalizedLinearRegression(**options).fit(*own, groups=groups[train])
    scores = [m.score(*new, groups=groups[~train]) for m in (with_public, without)]
    assert scores[0] > scores[1] + 0.05
    assert "public" in with_public.privacy_.details().lower()


def test_without_privacy_the_shared_model_is_weighted_least_squares():
    X, y, groups, _ = people(100)
    model = PersonalizedLinearRegression(epsilon=float("inf")).fit(X, y, groups=groups)
    # Over 25 salts 0.974, with a deviation of 0.0019.
    assert model.score(X, y, groups=groups) > 0.96
    assert model.privacy_.epsilon == float("inf")
    pickle.dumps(model)  # no warning where there is nothing to protect


def test_a_pickle_says_whose_it_is_and_the_public_part_holds_nobody():
    X, y, groups, _ = people(150)
    names = np.array([f"patient-{g}" for g in groups])
    model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=names)
    with pytest.warns(PrivacyWarning, match="public_part"):
        pickle.dumps(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shared = pickle.loads(pickle.dumps(model.public_part()))
    assert b"patient-" not in pickle.dumps(shared)
    np.testing.assert_array_equal(shared.predict(X[:9]), model.public_part().predict(X[:9]))
    assert "patient" not in repr(model.public_part()) and "patient" not in repr(model)
    html = model._repr_html_()  # what a notebook shows, and notebooks are published
    assert "patient-" not in html and "personal_" not in html and "choices_" not in html
    assert model.groups_[0].startswith("patient-")


def test_the_public_part_knows_the_names_of_columns():
    X, y, groups, _ = people(80)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = PersonalizedLinearRegression(random_state=0).fit(frame, y, groups=groups)
    shared = model.public_part()
    # Where rows lie in memory decides how their products are rounded.
    np.testing.assert_allclose(shared.predict(frame), shared.predict(frame.copy()), rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        shared.predict(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="one column"):
        shared.personal(frame[:5], np.column_stack([y[:5], y[:5]]))


BAD = [
    ({}, {}, "`groups` is missing: fit"),
    ({}, {"groups": np.zeros(7)}, "one entry for each row"),
    ({}, {"groups": np.r_[np.nan, np.zeros(59)]}, "missing entries"),
    ({"n_components": 0}, {}, "n_components"),
    ({"n_components": 7}, {"groups": np.arange(60)}, "more than the 6 columns"),
    ({"method": "exact"}, {}, "method"),
    ({"n_iter": -1}, {}, "n_iter"),
    ({"batch_size": 0}, {}, "batch_size"),
    ({"batch_size": 61}, {"groups": np.arange(60)}, "number of persons \\(60\\)"),
    ({"missing_groups": "ignore"}, {}, "missing_groups"),
    ({"target_bounds": (1, 0)}, {}, "target_bounds"),
    ({}, {"groups": np.arange(60), "X_public": (np.eye(6),)}, "y_public"),
]


@pytest.mark.parametrize(("options", "given", "message"), BAD, ids=[m for *_, m in BAD])
def test_bad_input_is_refused_before_anything_is_spent(options, given, message):
    X, y, _, _ = people(20, rows=3)
    model = PersonalizedLinearRegression(random_state=0, **options)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **given)
    assert not hasattr(model, "privacy_")


def test_predictions_without_groups_or_of_other_names_are_refused():
    X, y, groups, _ = people(60)
    model = PersonalizedLinearRegression(random_state=0).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="`groups` is missing: predict"):
        model.predict(X)
    with pytest.raises(ValueError, match="has text, and in `fit` it had numbers"):
        model.predict(X, groups=groups.astype(str))
    with pytest.raises(ValueError, match="one column"):
        clone(model).fit(X, np.column_stack([y, y]), groups=groups)
    easy = PersonalizedLinearRegression(random_state=0, missing_groups="each_row")
    easy.fit(X, y)
    assert easy.predict(X).shape == y.shape
    assert "jointly differentially private per row" in str(easy.privacy_)
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    ledger.fit(PersonalizedLinearRegression(missing_groups="each_row"), X, y)
    assert 0.9 < ledger.epsilon() <= 1 + 1e-9


@pytest.mark.parametrize("counts", [[1] * 400, [300], [1] * 300 + [5000], [2, 2, 1] * 100])
def test_persons_with_any_number_of_rows(counts):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(len(counts)), counts)
    X = rng.normal(size=(len(groups), 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=len(groups))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        model = PersonalizedLinearRegression(epsilon=3.0, random_state=0).fit(X, y, groups=groups)
    assert np.isfinite(model.predict(X, groups=groups)).all()
    np.testing.assert_allclose(model.choices_.sum(axis=1), 1)


def test_frames_and_names_of_any_type():
    X, y, groups, _ = people(120)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    names = pd.Series(groups).map(lambda g: f"id {g}")
    model = PersonalizedLinearRegression(random_state=0).fit(frame, pd.Series(y), groups=names)
    assert list(model.feature_names_in_) == list("abcdef")
    found = model.predict(frame, groups=names)
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(groups, unit="D")
    other = PersonalizedLinearRegression(random_state=0).fit(frame, y, groups=days)
    # Noise is the same, and so is all but the order of names.
    assert other.score(frame, y, groups=days) == pytest.approx(
        1 - ((found - y) ** 2).mean() / y.var(), abs=0.02
    )


def test_a_ledger_of_persons_counts_it():
    X, y, groups, _ = people(200)
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5, unit="person")
    ledger.fit(PersonalizedLinearRegression(epsilon=1.0), X, y, groups=groups)
    assert 0.9 < ledger.epsilon() <= 1.0 + 1e-9
    with pytest.raises(PrivacyError, match="unit"):
        PrivacyLedger(epsilon=2.0, delta=1e-5).fit(
            PersonalizedLinearRegression(epsilon=1.0), X, y, groups=groups
        )


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
def test_people_never_seen_are_scored_by_the_shared_model():
    X, y, groups, _ = people(400, level=0.3, slopes=0.1)
    model = PersonalizedLinearRegression(epsilon=PLENTY, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        scores = cross_val_score(model, X, y, cv=GroupKFold(3), params={"groups": groups})
    assert scores.min() > 0.5


def test_moments_of_too_many_unknowns_are_refused_before_they_are_paid_for():
    X, groups = np.zeros((12, 2501)), np.arange(12)
    model = PersonalizedLinearRegression(method="moments", n_components=2, n_iter=1)
    with (
        PrivacyLedger(1.0, 1e-5, unit="person") as ledger,
        pytest.raises(ValueError, match="method='gradient'"),
    ):
        model.fit(X, np.zeros(12), groups=groups)
    assert len(ledger.entries) == 0
