"""Private linear regression against rows that are made to break its bounds."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from helpers import (
    RELATIONS,
    assert_within_bounds,
    examples,
    groups_of,
    move,
    multipliers,
    pairs_first,
    releases,
    some_releases,
    who,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpsubspace import DPLinearRegression
from dpsubspace._core.gradients.clipping import clipped_sum
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import Squared
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap, Shift, check_groups
from dpsubspace._core.solvers.least_squares import SOLVERS
from dpsubspace._core.solvers.regression import whitening
from dpsubspace._core.statistics.moments import Rows, second_moment
from dpsubspace._core.statistics.shapes import noisy_standard

# Tiny data sets are mostly noise, as the warning rightly says.
pytestmark = pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")

LARGEST = np.finfo(np.float64).max
SIZES = [0.0, 1.0, 5e-324, 1e-310, 1e-200, 1e-165, 1e-155, 1e-20, 1e8, 1e38, 1e154, 1e200, 1e280]
entries = st.one_of(
    st.floats(-3, 3), st.sampled_from([sign * x for x in [*SIZES, LARGEST] for sign in (1, -1)])
)
AFFINES = {
    "identity": Affine.identity(3),
    "columns": Affine(np.array([1e6, -0.5, 0.0]), np.array([1e-3, 2.0, 1e300])),
    "matrix": Affine(
        np.array([0.5, -1.0, 0.0]), np.array([[1.0, 0.5], [-1.0, 0.5], [0.2, 3.0]]), np.ones(2)
    ),
    "usual": Affine(np.array([30.0, -0.5, 0.0]), np.array([0.1, 2.0, 1.0])),
    "lost": Affine(np.array([30.0, -0.5, 0.0]), np.array([0.1, 0.0, 1.0])),
    "far": Affine(np.full(3, 1e5), np.array([[1.0, 0.5], [-1.0, 0.5], [0.2, 3.0]])),
}
TURN = np.array([[1.0, -1.0, 0.5, 0.1], [1.0, 1.0, 0.0, 0.3], [0.0, 30.0, 1.0, -1.0], [1, 2, 3, 4]])


@pytest.mark.parametrize(
    ("name", "dtype", "constant"), pairs_first(AFFINES, [np.float64, np.float32], [True, False])
)
@given(
    X=hnp.arrays(np.float64, (5, 3), elements=entries),
    lengths=st.one_of(st.just(1.0), hnp.arrays(np.float64, 5, elements=st.sampled_from(SIZES))),
    y=hnp.arrays(np.float64, (5, 2), elements=entries),
    c=st.sampled_from([1, 2]),
    mixed=st.booleans(),
    limit=st.sampled_from([np.inf, 4.0]),
    size=st.sampled_from([1e-6, 0.3, 1.0, 40.0]),
)
@examples(120)
def test_sums_of_mapped_rows_move_within_their_bounds(
    name, dtype, constant, X, lengths, y, c, mixed, limit, size
):
    affine = AFFINES[name]
    with np.errstate(all="ignore"):
        X = np.nan_to_num(X.T * lengths).T  # rows of which all entries are small, or large
    X = np.clip(X, np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype)

    def sums(records, present=None):
        rows = AffineRows(
            X[records],
            affine,
            constant=constant,
            limit=limit,
            records=who(present, len(records)),
        )
        values, p = y[records, :c], affine.width + constant
        moment = second_moment(Rows(rows.with_columns(values).clipped(size), size))
        rows = rows.materialised()
        rows = rows.mixed(rows.mixing_by(TURN[:p, :p])) if mixed else rows
        source = LinearSource(Squared(), rows, values, n_outputs=c)
        at = 0.2 * np.ones((rows.width, c))
        return moment, clipped_sum(source.at(at, slice(0, 4)), size)

    with np.errstate(all="ignore"):
        whole, without = sums([0, 1, 2, 3]), sums([0, 1, 2, 3], np.arange(4) > 0)
        replaced = sums([4, 1, 2, 3])
    for one, other, third in zip(whole, without, replaced, strict=True):
        assert np.isfinite(one.value).all()
        assert move(one, other) <= one.norm_bound * (1 + 1e-12)
        assert move(one, third) <= one.replace_bound * (1 + 1e-12)


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("limit", [np.inf, 4.0])
@pytest.mark.parametrize("mixing", [None, TURN[:3, :3]], ids=["plain", "mixed"])
def test_a_clipped_gradient_of_mapped_rows_is_never_longer_than_the_clip_norm(
    mixing, limit, n_targets
):
    """Of rows of which the squares are nothing, times targets that make the product large."""
    for x, y in itertools.product(SIZES, SIZES):
        X = np.array([[x, -x, x / 3]])
        rows = AffineRows(X, Affine.identity(3), constant=False, limit=limit)
        rows = rows if mixing is None else rows.mixed(rows.mixing_by(mixing))
        targets = np.full((1, n_targets), y)
        with np.errstate(all="ignore"):
            source = LinearSource(Squared(), rows, targets, n_outputs=n_targets)
            total = clipped_sum(source.at(np.zeros((3, n_targets)), slice(0, 1)), 0.3)
        assert np.linalg.norm(total.value) <= 0.3 * (1 + 1e-12), (x, y)


# Rows that are cut and not standardised ------------------------------------------------------


CUT = {"constant": True, "limit": 4.0}
ABOUT_ZERO = Affine(np.zeros(3), np.array([1e9, 1e-9, 1.0]))
PAIRS = check_groups(np.arange(900) // 2, np.ones((900, 1)))
FOLDED = {
    "usual": (AFFINES["usual"], CUT),
    "units": (Affine(np.array([3e-9, 2e9, 0.0]), ABOUT_ZERO.weights), CUT),
    "about zero": (ABOUT_ZERO, {**CUT, "constant": False}),
    "lost": (AFFINES["lost"], CUT),
    "far": (Affine(np.full(3, 100.0), np.ones(3)), CUT),
}
NOT_FOLDED = {
    "no limit": (AFFINES["usual"], {"constant": True}),
    "a matrix": (AFFINES["matrix"], CUT),
    "no constant": (AFFINES["usual"], {**CUT, "constant": False}),
    "numbers beside": (ABOUT_ZERO, {**CUT, "constant": False, "beside": np.ones((900, 1))}),
    "pairs of rows": (AFFINES["usual"], {**CUT, "records": PAIRS}),
    "too far": (Affine(np.full(3, 1e12), np.ones(3)), CUT),
    "tiny units": (AFFINES["columns"], CUT),
    "huge units": (Affine(np.zeros(3), np.full(3, 1e-40)), CUT),
    "lost and moved": (Affine(np.zeros(3), np.array([1.0, 0.0, 1.0]), np.ones(3)), CUT),
}


def standardised(affine, options, dtype=np.float64, turned=1.0):
    """900 rows, of which a few are far out, that `affine` standardises: mixed, and their source."""
    rng = np.random.default_rng(0)
    weights = np.ones(3) if affine.weights.ndim > 1 else affine.weights
    z = rng.standard_t(3, size=(900, 3)) / np.where(weights == 0, 1.0, weights)
    X, p = (z + affine.mean).astype(dtype), affine.width + options["constant"]
    p += "beside" in options
    rows = AffineRows(X, affine, **options)
    mixed = rows.mixed(rows.mixing_by(TURN[:p, :p] * turned))
    return mixed, LinearSource(Squared(), mixed, rng.normal(size=(900, 1)), n_outputs=1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", FOLDED)
def test_cut_rows_have_the_sums_and_norms_of_standardised_ones(monkeypatch, case, dtype):
    affine, options = FOLDED[case]

    def found():
        rows, source = standardised(affine, options, dtype)
        at = np.linspace(-0.3, 0.4, rows.width)[:, None]
        sums = [clipped_sum(source.at(at, part), 2.0).value for part in rows.chunks()]
        return rows, rows.norms(), sum(sums)

    rows, norms, total = found()
    assert rows.mixing.folded is not None
    monkeypatch.setattr("dpsubspace._core.rows.affine._MOST_SLACK", 0.0)
    others, other_norms, other_total = found()
    assert others.mixing.folded is None
    near = 1e-9 if dtype == np.float64 else 1e-4  # what rows are cut to has the digits of rows
    np.testing.assert_allclose(norms, other_norms, rtol=near)
    np.testing.assert_allclose(total, other_total, atol=near * np.abs(total).max())


@pytest.mark.parametrize("case", NOT_FOLDED)
def test_rows_are_standardised_one_by_one_where_digits_would_be_lost(case):
    rows, _ = standardised(*NOT_FOLDED[case])
    assert rows.mixing.folded is None


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_whole_numbers_are_standardised_one_by_one(dtype):
    """What they are cut to may not be a whole number."""
    rows, _ = standardised(*FOLDED["usual"], dtype)
    assert rows.mixing.folded is None


@pytest.mark.parametrize("turned", [0.0, 1e-170, 1e-320, 1e60])
def test_rows_are_standardised_one_by_one_where_the_matrix_is_out_of_range(turned):
    rows, _ = standardised(*FOLDED["usual"], turned=turned)
    assert rows.mixing.folded is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", FOLDED)
def test_no_norm_of_a_cut_row_is_below_that_of_its_record(case, dtype):
    """And terms are no longer before they are mixed than the slack takes them to be."""
    rows, _ = standardised(*FOLDED[case], dtype)
    block, folded = rows.at(slice(0, 900)), rows.mixing.folded
    mixing = [[Fraction(x) for x in row] for row in folded.matrix.tolist()]
    lengths = np.linalg.norm(folded.matrix, axis=1)
    for entries, norm in zip(block.U[:60].tolist(), rows.norms()[:60], strict=True):
        exact = [Fraction(x) for x in entries]
        square = sum(
            sum(c * w for c, w in zip(exact, column, strict=True)) ** 2
            for column in zip(*mixing, strict=True)
        )
        assert square <= Fraction(float(norm)) ** 2
        assert float(norm) ** 2 <= float(square) * (1 + 1e-9)
        assert np.abs(entries) @ lengths <= folded.condition * math.sqrt(square)


def test_blocks_of_cut_rows_do_not_share_memory():
    rows, _ = standardised(*FOLDED["usual"])
    one = rows.at(slice(0, 300))
    kept = one.U.copy()
    other = rows.at(slice(300, 600))
    np.testing.assert_array_equal(one.U, kept)
    assert not np.shares_memory(one.U, other.U)


@pytest.mark.parametrize("mean", [0.0, 1e-200])
def test_a_clipped_gradient_of_shifted_rows_is_never_longer_than_the_clip_norm(mean):
    """A mean that noise hides is released as 0."""
    for x, y in itertools.product([x for x in SIZES if x <= 1], SIZES):
        features = Features(np.array([[x, -x, x / 3]]), RowMap(norm="clip", data_norm=3.0))
        features = features.shifted(Shift(np.full(3, mean), None))
        with np.errstate(all="ignore"):
            source = LinearSource(Squared(), features, np.array([[y]]), n_outputs=1)
            total = clipped_sum(source.at(np.zeros((3, 1)), slice(0, 1)), 0.3)
        assert np.linalg.norm(total.value) <= 0.3 * (1 + 1e-12), (x, y)


@pytest.mark.parametrize("importance", [None, (1.0, 0.25, 2.0**-20)])
@pytest.mark.parametrize(("name", "dtype"), pairs_first(AFFINES, [np.float64, np.float32]))
@given(X=hnp.arrays(np.float64, (5, 3), elements=entries))
@examples(60)
def test_locations_and_scales_move_within_their_bounds(name, dtype, importance, X):
    affine = AFFINES[name]
    X = np.clip(X, np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype)
    low, high = np.array([-1.0, 0.0, -LARGEST]), np.array([3.0, 1e-300, LARGEST])

    def total(records, present=None):
        rows = AffineRows(X[records], affine, constant=False, records=who(present, len(records)))
        with pytest.MonkeyPatch.context() as patch, releases(patch) as seen:
            k = affine.width
            counts = None if importance is None else 0.9 * np.array(importance[:k])
            counts = None if counts is None else counts.astype(np.float32).astype(float)
            here = some_releases(1.0, present=present)
            noisy_standard(rows, low[:k], high[:k], here, "it", counts)
        return seen[0][0]

    with np.errstate(all="ignore"):
        whole, without = total([0, 1, 2, 3]), total([0, 1, 2, 3], np.arange(4) > 0)
        replaced = total([4, 1, 2, 3])
    assert np.isfinite(whole.value).all()
    assert move(whole, without) <= whole.norm_bound * (1 + 1e-12)
    assert move(whole, replaced) <= whole.replace_bound * (1 + 1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_columns_that_count_less_have_bounds_that_no_number_is_below(relation):
    """Rows at the ends of their ranges reach them, and noise of a column is over its importance."""
    importance = np.float32([1.0, 0.5, 0.01]).astype(float)
    ends = np.array([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], [0.2, 0.3, -0.4]])

    def total(records, present=None):
        taken = who(present, len(records))
        rows = AffineRows(ends[records], Affine.identity(3), constant=False, records=taken)
        with pytest.MonkeyPatch.context() as patch, releases(patch) as seen:
            here = some_releases(1.0, present=present)
            noisy_standard(rows, -np.ones(3), np.ones(3), here, "it", importance)
        return seen[0][0]

    whole = total([0, 2])
    if relation == "zero_out":
        moved, bound = move(whole, total([0, 2], np.array([False, True]))), whole.norm_bound
    else:
        moved, bound = move(whole, total([1, 2])), whole.replace_bound
    assert 0.999 * bound < moved <= bound


# First row and its targets: what is left of it after the map is hard to bound, or to add up.
HOSTILE = {
    "nearly zero": (1e-170, 1e280),
    "denormal": (5e-324, 1e200),
    "small": (1e-158, 1e250),
    "huge target": (1.0, 1e300),
    "largest": (LARGEST, -LARGEST),
    "huge row": (-1e200, 0.0),
    "root of the largest": (1.2e154, 1e154),
}
WAYS = [(solver, fit_intercept) for solver in SOLVERS for fit_intercept in (True, False)]
RANGES = {"given": {"bounds": (-4, 4), "target_bounds": (-10, 10)}, "estimated": {}}


def fits():
    """Every way in both relations, with records and all other settings in turns."""
    yield from pairs_first(HOSTILE, WAYS, RANGES, [True, False], [1, 3], RELATIONS, together=(1, 5))


@pytest.mark.parametrize(
    ("record", "way", "ranges", "public", "n_targets", "relation"), fits(), ids=str
)
def test_a_hostile_record_moves_every_release_within_its_bound(
    monkeypatch, record, way, ranges, public, n_targets, relation
):
    solver, fit_intercept = way
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 3)), rng.normal(size=(60, n_targets))
    other_X, other_Y = X.copy(), Y.copy()
    X[0], Y[0] = HOSTILE[record]
    other_X[0], other_Y[0] = -X[0], -Y[0]
    given = {"X_public": (rng.normal(size=(30, 3)),)} if public else {}
    model = DPLinearRegression(
        fit_intercept=fit_intercept, neighboring_relation=relation, random_state=0,
        epsilon=2.0, solver=solver, **RANGES[ranges],
    )  # fmt: skip
    with releases(monkeypatch) as here:
        model.fit(X, Y, **given)
    with releases(monkeypatch, outputs=here) as there:
        if relation == "zero_out":
            model.fit(X, Y, groups=groups_of(np.arange(60) > 0), **given)
        else:
            model.fit(other_X, other_Y, **given)
    assert len(here) == len(there) > 0
    assert all(np.isfinite(total.value).all() for total, *_ in [*here, *there])
    assert_within_bounds(here, there, relation)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_noise_that_makes_a_moment_negative_leaves_a_fit(p, rng):
    """What has been spent by then is not given back."""
    for _ in range(200):
        noise = rng.normal(size=(p, p)) * 3.0
        W = whitening((noise + noise.T) / 2, 3.0).weights
        assert np.isfinite(W).all() and np.linalg.matrix_rank(W) == p
    X = rng.normal(size=(20, p))
    for seed in range(20):
        model = DPLinearRegression(
            solver="descent", epsilon=0.3, fit_intercept=False, random_state=seed, **RANGES["given"]
        )
        assert np.isfinite(model.fit(X, X[:, 0]).coef_).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_public_rows_do_not_bring_a_constant_into_a_model_without_one(solver, rng):
    """A public mean that is subtracted from rows is a constant, which the model has not."""
    X, X_public = rng.normal(size=(2000, 3)) + 5.0, rng.normal(size=(200, 3)) + 5.0
    y = X @ [1.0, 2.0, 3.0]
    for epsilon in (np.inf, 100.0):
        model = DPLinearRegression(
            epsilon=epsilon, fit_intercept=False, solver=solver, random_state=0
        )
        model.fit(X, y, X_public=(X_public,))
        assert model.intercept_ == 0.0 and model.score(X, y) > 0.95


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_device_changes_nothing_but_where_sums_are_taken(way, rng):
    torch = pytest.importorskip("torch")
    solver, fit_intercept = way
    X, Y = rng.normal(size=(200, 3)).astype(np.float32), rng.normal(size=(200, 2))
    options = {"solver": solver, "fit_intercept": fit_intercept, "random_state": 0}
    fits = [
        DPLinearRegression(device=device, **options).fit(X, Y)
        for device in ("cpu", torch.device("cpu"))
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-6)
    np.testing.assert_allclose(fits[0].coef_std_, fits[1].coef_std_, rtol=1e-6)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_all_releases_together_tell_no_more_of_a_record_than_is_charged(
    monkeypatch, solver, relation, rng
):
    """Also where steps are over disjoint blocks: a record may then move one of them only."""
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    X[7], y[7] = 1e6, 1e6
    other_X, other_y = X.copy(), y.copy()
    other_X[7], other_y[7] = -1e6, 1e6
    model = DPLinearRegression(
        solver=solver, neighboring_relation=relation, random_state=0, **RANGES["given"]
    )
    with releases(monkeypatch) as here:
        model.fit(X, y)
    with releases(monkeypatch, outputs=here) as there:
        if relation == "zero_out":
            model.fit(X, y, groups=groups_of(np.arange(200) != 7))
        else:
            model.fit(other_X, other_y)
    bound = "norm_bound" if relation == "zero_out" else "replace_bound"
    squares = [
        (move(one, other) / (multiplier * getattr(one, bound))) ** 2
        for (one, _, multiplier), (other, _, _) in zip(here, there, strict=True)
    ]
    charged = sum(multiplier**-2.0 for multiplier in multipliers(model.privacy_.event))
    assert 0.1 * charged < sum(squares) <= charged * (1 + 1e-9)
