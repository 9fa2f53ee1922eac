"""Distances between gradients of public and private rows, and choices by them."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from cases import small_module
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from dpsubspace import (
    DPPCA,
    DPSGDClassifier,
    GEPClassifier,
    PrivacyLedger,
    PrivacyWarning,
    select_public,
)
from dpsubspace._core.public.gradient_spaces import WIDEST
from dpsubspace.exceptions import PublicDataWarning
from dpsubspace.public_data import GSDScorer, gradient_subspace_distance

not_private = pytest.mark.filterwarnings("ignore:a gradient subspace distance is not private")
DIGITS, LABELS = load_digits(return_X_y=True)
PRIVATE, HELD_OUT = DIGITS[:1200], DIGITS[1200:]
MIRRORED = HELD_OUT.reshape(-1, 8, 8)[:, :, ::-1].reshape(-1, 64)
NOISE = np.random.default_rng(0).uniform(0, 16, size=HELD_OUT.shape)
CANDIDATES = {"noise": NOISE, "held out": HELD_OUT, "mirrored": MIRRORED}


# The number that is not private -----------------------------------------------------------------


def by_svd(private, public, k, c, seed):
    """The distance from gradients that are formed."""
    labels = np.random.default_rng(seed).integers(c, size=len(private) + len(public))
    residuals = 1 / c - np.eye(c)[labels]
    gradients = np.concatenate([private, public])[:, :, None] * residuals[:, None, :]
    gradients = gradients.reshape(len(labels), -1)
    split = len(private)
    bases = [np.linalg.svd(g)[2][:k] for g in (gradients[:split], gradients[split:])]
    cosines = np.linalg.svd(bases[0] @ bases[1].T, compute_uv=False)
    return np.sqrt(1 - np.mean(cosines**2)), np.arccos(np.clip(cosines, 0, 1))


@not_private
@pytest.mark.parametrize("n", [90, 450])
def test_distance_is_that_of_singular_vectors(rng, n):
    private, public = rng.normal(size=(2, n, 12)) * np.geomspace(1, 0.1, 12)
    distance, details = gradient_subspace_distance(
        private, public, n_components=5, n_classes=4, random_state=1, return_details=True
    )
    expected = [by_svd(private, public, 5, 4, seed) for seed in details.seeds]
    np.testing.assert_allclose(details.distances, [d for d, _ in expected], atol=1e-8)
    np.testing.assert_allclose(details.angles, [a for _, a in expected], atol=1e-6)
    assert distance == details.distance == pytest.approx(details.distances.mean())
    assert details.unnormalised == pytest.approx(distance * np.sqrt(5))
    assert details.spread == pytest.approx(details.distances.std())


@not_private
def test_distance_orders_sets_as_it_should():
    options = {"random_state": 0, "n_components": 9}
    found = {n: gradient_subspace_distance(PRIVATE, X, **options) for n, X in CANDIDATES.items()}
    assert found["held out"] < found["mirrored"] < found["noise"] < 1


@not_private
def test_distance_depends_on_the_seed_of_labels_only():
    sets = PRIVATE[:200], HELD_OUT[:200]
    first = gradient_subspace_distance(*sets, random_state=0)
    assert first == gradient_subspace_distance(*sets, random_state=0)
    assert first != gradient_subspace_distance(*sets, random_state=1)
    # The scale of rows has no part in directions.
    scaled = gradient_subspace_distance(sets[0] * 1e300, sets[1] / 3e99, random_state=0)
    assert first == pytest.approx(scaled, abs=1e-8)


@not_private
def test_distance_of_many_rows_is_that_of_a_sample():
    distance, details = gradient_subspace_distance(
        PRIVATE, HELD_OUT, n_components=4, max_samples=90, random_state=0, return_details=True
    )
    assert details.spread > 0 and 0 < distance < 1
    whole = gradient_subspace_distance(PRIVATE, HELD_OUT, n_components=4, random_state=0)
    assert whole != distance


def test_distance_says_that_it_is_not_private():
    with pytest.warns(PrivacyWarning, match="is not private"):
        gradient_subspace_distance(PRIVATE[:50], HELD_OUT[:50])


def forms():
    rows = PRIVATE[:100]
    yield "data frame", pd.DataFrame(rows)
    yield "list", rows.tolist()
    yield "sparse", sparse.csr_array(rows)
    yield "float32", rows.astype(np.float32)
    yield "integers", rows.astype(int)


@not_private
@pytest.mark.parametrize(("name", "rows"), forms(), ids=lambda value: str(value)[:10])
def test_rows_of_any_form(name, rows):
    expected = gradient_subspace_distance(PRIVATE[:100], HELD_OUT, random_state=0)
    assert gradient_subspace_distance(rows, HELD_OUT, random_state=0) == pytest.approx(expected)


@not_private
def test_torch_tensors_and_memory_maps(tmp_path):
    torch = pytest.importorskip("torch")
    np.save(tmp_path / "rows.npy", PRIVATE[:100])
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = gradient_subspace_distance(PRIVATE[:100], HELD_OUT, random_state=0)
    for rows in (mapped, torch.tensor(PRIVATE[:100])):
        found = gradient_subspace_distance(rows, HELD_OUT, random_state=0)
        assert found == pytest.approx(expected)
    candidates = {"a": torch.tensor(HELD_OUT), "b": mapped.copy()[:, ::-1]}
    assert select_public(candidates, mapped, epsilon=5.0, random_state=0).name == "a"


BAD_DISTANCES = {
    "few rows": ({"X_private": PRIVATE[:9]}, "span 9 directions, and `n_components`=16"),
    "few public rows": ({"X_public": PRIVATE[:3]}, "gradients of `X_public` span 3 directions"),
    "one row": ({"X_private": PRIVATE[:0]}, "minimum of 1 is required"),
    "widths": ({"X_public": PRIVATE[:50, :7]}, r"shape \(64,\) and one of `X_public` \(7,\)"),
    "missing": ({"X_private": np.full((20, 64), np.nan)}, "`X_private`: Input X_private contains"),
    "text": ({"X_public": [["a"] * 64] * 20}, "`X_public`: .*could not convert|not numbers"),
    "images": ({"X_private": PRIVATE.reshape(-1, 8, 8)}, "dim 3"),
    "one dimension": ({"X_public": PRIVATE[0]}, "Expected 2D array"),
    "components": ({"n_components": 0}, "`n_components` must be an integer"),
    "classes": ({"n_classes": 1}, "`n_classes` must be an integer of at least 2"),
    "repeats": ({"n_repeats": 0}, "`n_repeats` must be an integer"),
    "state": ({"random_state": "x"}, "`random_state` must be"),
    "samples": ({"max_samples": 0}, "`max_samples` must be an integer"),
}


@not_private
@pytest.mark.parametrize(("changes", "match"), BAD_DISTANCES.values(), ids=BAD_DISTANCES)
def test_bad_input_of_a_distance(changes, match):
    options = {"X_private": PRIVATE[:100], "X_public": HELD_OUT[:100], **changes}
    with pytest.raises(ValueError, match=match):
        gradient_subspace_distance(options.pop("X_private"), options.pop("X_public"), **options)


# Modules ----------------------------------------------------------------------------------------


@not_private
def test_distance_by_a_module_and_by_the_network_for_images():
    pytest.importorskip("torch")
    images = [rows.reshape(-1, 8, 8)[:80] for rows in (PRIVATE, HELD_OUT, NOISE)]
    options = {"module": "cnn", "n_components": 4, "random_state": 0, "n_repeats": 2}
    near, far = (gradient_subspace_distance(images[0], other, **options) for other in images[1:])
    assert near < far
    module = small_module(64, 10)
    found, details = gradient_subspace_distance(
        PRIVATE[:60],
        HELD_OUT[:60],
        module=module,
        n_components=4,
        random_state=0,
        return_details=True,
    )
    assert details.spread > 0
    other = {name: value + 0.3 for name, value in module.state_dict().items()}
    moved = gradient_subspace_distance(
        PRIVATE[:60], HELD_OUT[:60], module=module, params=other, n_components=4, random_state=0
    )
    assert moved != found
    assert found == gradient_subspace_distance(
        PRIVATE[:60], HELD_OUT[:60], module=module, n_components=4, random_state=0
    )  # its own weights are left alone


@not_private
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"module": "resnet"}, "`module` must be a torch.nn.Module, got str"),
        ({"module": "cnn"}, "is for images of shape"),
        ({"params": {"a": 1}}, "`params` are not weights of `module`"),
        ({"params": [1]}, "`params` must be the weights of the module by name"),
        ({"n_classes": 3}, "gives outputs of shape"),
    ],
    ids=str,
)
def test_bad_modules(options, match):
    pytest.importorskip("torch")
    options = {"module": small_module(64, 10), **options}
    with pytest.raises(ValueError, match=match):
        gradient_subspace_distance(PRIVATE[:60], HELD_OUT[:60], n_components=4, **options)


@not_private
def test_batch_norm_is_refused_and_dropout_is_off():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    normed = nn.Sequential(nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 10))
    with pytest.raises(ValueError, match="running statistics"):
        gradient_subspace_distance(PRIVATE[:60], HELD_OUT[:60], module=normed, n_components=4)
    module = nn.Sequential(nn.Linear(64, 8), nn.Dropout(), nn.Linear(8, 10)).train()
    options = {"module": module, "n_components": 4, "random_state": 0}
    found = [gradient_subspace_distance(PRIVATE[:60], HELD_OUT[:60], **options) for _ in range(2)]
    assert found[0] == found[1] and module.training


# The private scorer -----------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, CANDIDATES, (HELD_OUT, NOISE, MIRRORED)], ids=str)
def test_a_scorer_ranks_sets(given):
    scorer = GSDScorer(n_components=6, epsilon=2.0, random_state=0).fit(PRIVATE, X_public=given)
    assert [*scorer.rank(CANDIDATES)] == ["held out", "mirrored", "noise"]
    assert scorer.within_public_span_ == (given is not None)
    assert scorer.score(NOISE) == -scorer.distance(NOISE)
    near, far = (scorer.transform(X).sum(axis=1) for X in (HELD_OUT, NOISE))
    assert near.mean() > far.mean() and near.max() <= 1 + 1e-9
    assert scorer.transform(HELD_OUT).shape == (len(HELD_OUT), scorer.n_components_)
    assert scorer.get_feature_names_out()[0] == "gsdscorer0"
    np.testing.assert_allclose(scorer.components_ @ scorer.components_.T, np.eye(6), atol=1e-8)


def test_a_public_span_has_less_noise():
    """What is measured is how far a released distance is from that without noise."""
    rng = np.random.default_rng(1)
    scales = np.geomspace(1, 0.02, 400)
    private, public = scales * rng.normal(size=(2, 1500, 400))

    def error(**given):
        options = {"n_components": 5, "random_state": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            exact = GSDScorer(epsilon=np.inf, **options).fit(private, **given).distance(public)
            noisy = GSDScorer(epsilon=1.0, **options).fit(private, **given).distance(public)
        return noisy - exact

    assert error(X_public=(public,)) < 0.7 * error()


def test_components_that_noise_hides_are_left_out():
    scorer = GSDScorer(epsilon=0.5, random_state=0).fit(PRIVATE)
    assert 1 <= scorer.n_components_ < 16 and (scorer.energies_ > 0).all()
    asked = GSDScorer(epsilon=0.5, n_components=16, random_state=0).fit(PRIVATE)
    assert asked.n_components_ == 16


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
def test_cost_of_a_scorer_is_known_before_the_fit():
    for options in ({}, {"mechanism": "gaussian"}, {"mechanism": "power"}):
        scorer = GSDScorer(**options)
        for public, sizes in (({}, {}), ({"X_public": (HELD_OUT,)}, {"n_public": 597})):
            fitted = scorer.fit(PRIVATE, **public)
            event = scorer.privacy_event(len(PRIVATE), 64, **sizes)
            assert fitted.privacy_.event == event
    pure = GSDScorer(mechanism="bingham", n_components=2, delta=0.0, epsilon=5.0).fit(PRIVATE)
    assert pure.privacy_.delta == 0 and pure.privacy_.epsilon == 5.0
    pure = GSDScorer(mechanism="matrix_bingham", n_components=4, delta=0.0).fit(PRIVATE)
    assert pure.privacy_.delta == 0 and pure.components_.shape == (4, 64)


def test_without_privacy_a_scorer_says_so():
    with pytest.warns(PrivacyWarning, match="not private"):
        scorer = GSDScorer(epsilon=np.inf, n_components=4).fit(PRIVATE)
    assert scorer.privacy_.epsilon == np.inf
    exact = np.linalg.svd(PRIVATE / np.linalg.norm(PRIVATE, axis=1)[:, None])[2][:4]
    cosines = np.linalg.svd(exact @ scorer.components_.T, compute_uv=False)
    assert cosines.min() > 1 - 1e-6
    with pytest.raises(Exception, match=r"non-private|not private"):
        PrivacyLedger(epsilon=1.0, delta=1e-5).fit(GSDScorer(epsilon=np.inf), PRIVATE)


BAD_FITS = {
    "components": ({"n_components": 65}, {}, "more than the 64 directions"),
    "in a span": ({"n_components": 9}, {"X_public": (HELD_OUT[:4],)}, "in a space of 4 dimensions"),
    "mechanism": ({"mechanism": "magic"}, {}, "`mechanism` must be one of"),
    "bingham": ({"mechanism": "bingham"}, {}, "draws a given number"),
    "delta": ({"delta": 0.0}, {}, "`delta`"),
    "widths": ({}, {"X_public": {"a": HELD_OUT[:, :5]}}, r"`X_public\['a'\]`"),
    "no sets": ({}, {"X_public": {}}, "with at least one of them"),
    "itself": ({}, {"X_public": {"a": PRIVATE[:200]}}, "is a part of `X` itself"),
    "a module alone": ({"module": "cnn"}, {}, "pass the candidates as `X_public`"),
    "classes": ({"n_classes": 1}, {}, "`n_classes`"),
}


@pytest.mark.parametrize(("options", "given", "match"), BAD_FITS.values(), ids=BAD_FITS)
def test_bad_input_of_a_scorer(options, given, match):
    scorer = GSDScorer(**options)
    with pytest.raises(ValueError, match=match):
        scorer.fit(PRIVATE, **given)
    assert not hasattr(scorer, "privacy_")


def test_bad_candidates_of_a_fitted_scorer():
    scorer = GSDScorer(n_components=4, epsilon=3.0).fit(PRIVATE)
    with pytest.raises(ValueError, match="spans 3 directions, and 4 are compared"):
        scorer.distance(HELD_OUT[:3])
    with pytest.raises(ValueError, match="must be a dict of public rows by name"):
        scorer.rank([HELD_OUT])
    with pytest.raises(ValueError, match="is an empty tuple"):
        scorer.rank({"a": ()})
    with pytest.raises(ValueError, match="64 features"):
        scorer.distance(HELD_OUT[:, :5])


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
def test_a_scorer_in_pipelines_searches_and_ledgers():
    pipeline = make_pipeline(Normalizer(), GSDScorer(n_components=4, epsilon=3.0, random_state=0))
    assert pipeline.fit(PRIVATE).transform(HELD_OUT).shape == (597, 4)
    search = GridSearchCV(GSDScorer(epsilon=3.0), {"n_components": [2, 4]}, cv=2)
    assert search.fit(PRIVATE).best_params_["n_components"] in (2, 4)
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    ledger.fit(GSDScorer(epsilon=0.5), PRIVATE, X_public=(HELD_OUT,))
    assert ledger.epsilon() == pytest.approx(0.5, rel=1e-3)


def test_a_scorer_of_a_module_is_cloned_and_pickled():
    pytest.importorskip("torch")
    scorer = GSDScorer(
        n_components=3, epsilon=20.0, module="cnn", input_shape=(1, 8, 8), random_state=0
    )
    candidates = {"noise": NOISE[:70], "held out": HELD_OUT[:70]}
    fitted = clone(scorer).fit(PRIVATE[:200], X_public=candidates)
    assert fitted.within_public_span_ and fitted.components_.shape[1] <= WIDEST
    ranked = fitted.rank(candidates)
    assert {*ranked} == {"held out", "noise"}
    again = pickle.loads(pickle.dumps(fitted)).rank(candidates)
    assert again == pytest.approx(ranked)


# The private choice -----------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("method", ["energy", "centered_energy"])
def test_the_best_set_is_chosen(method, relation):
    options = {"method": method, "neighboring_relation": relation, "epsilon": 0.5}
    chosen = {select_public(CANDIDATES, PRIVATE, **options).name for _ in range(10)}
    assert chosen == {"held out"}


def test_small_budgets_choose_at_random():
    options = {"epsilon": 1e-4}
    chosen = {
        select_public(CANDIDATES, PRIVATE[:50], random_state=seed, **options).name
        for seed in range(40)
    }
    assert chosen == set(CANDIDATES)


def test_a_union_is_a_candidate():
    half = len(HELD_OUT) // 2
    candidates = {"noise": NOISE, "both": (HELD_OUT[:half], HELD_OUT[half:])}
    choice = select_public(candidates, PRIVATE, epsilon=1.0)
    assert choice.name == choice.value == "both" and choice == ("both", choice.privacy)
    assert "1194 rows of 2 public sets" in choice.privacy.details()
    scorer = GSDScorer(n_components=4, epsilon=5.0).fit(PRIVATE)
    stacked = scorer.distance(np.concatenate(candidates["both"]))
    assert scorer.distance(candidates["both"]) == stacked == scorer.rank(candidates)["both"]


def test_none_is_chosen_where_no_set_is_worth_it():
    useless = {"noise": NOISE, "more noise": NOISE[:, ::-1] + 0.0}
    consumer = GEPClassifier(epsilon=1.0)
    options = {"method": "centered_energy", "none": consumer, "epsilon": 1.0}
    assert select_public(useless, PRIVATE, **options).name == "none"
    assert select_public(CANDIDATES, PRIVATE, **options).name == "held out"
    assert select_public({"held out": HELD_OUT}, PRIVATE, none=0.99, epsilon=1.0).name == "none"
    # The smaller the budget of the fit, the sooner public directions are worth it.
    tiny = {**options, "none": DPSGDClassifier(epsilon=1e-3)}
    assert select_public({"mirrored": MIRRORED}, PRIVATE, **tiny).name == "mirrored"


def test_choice_by_validation_scores():
    y_public = {"held out": LABELS[1200:], "mirrored": LABELS[1200:], "noise": LABELS[1200:]}
    options = {"method": "validation", "y_public": y_public, "epsilon": 0.2}
    assert select_public(CANDIDATES, PRIVATE, LABELS[:1200], **options).name == "held out"
    names = np.array([f"digit {label}" for label in LABELS])
    options["y_public"] = {name: names[1200:] for name in CANDIDATES}
    assert select_public(CANDIDATES, PRIVATE, names[:1200], **options).name == "held out"


def test_choice_by_gradients_of_a_network():
    pytest.importorskip("torch")
    options = {"module": "cnn", "input_shape": (1, 8, 8), "n_components": 4, "epsilon": 2.0}
    candidates = {"noise": NOISE[:80], "held out": HELD_OUT[:80]}
    assert select_public(candidates, PRIVATE[:200], **options).name == "held out"


def test_narrow_tables_are_compared_by_half_of_their_columns(rng):
    scales = np.array([3.0, 3.0, 0.1, 0.1])  # half of the directions stand out by far
    X, near, far = scales * rng.normal(size=(3, 400, 4))
    candidates = {"far": far[:, ::-1], "near": near}
    assert select_public(candidates, X, epsilon=1.0).name == "near"
    ranked = GSDScorer(epsilon=20.0, random_state=0).fit(X).rank(candidates)
    assert ranked["near"] < 0.5 < ranked["far"]  # on all columns both would be at 0


def test_names_of_columns_must_agree():
    frame = pd.DataFrame(PRIVATE).add_prefix("pixel ")
    other = pd.DataFrame(HELD_OUT, columns=frame.columns[::-1])
    with pytest.raises(ValueError, match="feature names"):
        select_public({"a": other, "b": NOISE}, frame)
    with (
        pytest.raises(ValueError, match="feature names"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", PrivacyWarning)
        gradient_subspace_distance(frame, other)
    with pytest.warns(UserWarning, match="select_public was fitted with feature names"):
        select_public({"a": HELD_OUT, "b": NOISE}, frame)


@pytest.mark.filterwarnings("ignore:the noise of the second moment:dpsubspace.PrivacyWarning")
def test_hidden_directions_are_told_of():
    with pytest.warns(PrivacyWarning, match="has hidden all but"):
        scorer = GSDScorer(epsilon=0.05, random_state=0).fit(PRIVATE[:400])
    assert scorer.n_components_ <= 2


def test_duplicates_are_told_of():
    with pytest.warns(PublicDataWarning, match="has the same rows as 'a' and as 'b'"):
        select_public({"a": HELD_OUT, "b": HELD_OUT.copy()}, PRIVATE)


ONE = {"held out": HELD_OUT}
BAD_CHOICES = {
    "a list": ([HELD_OUT, NOISE], {}, "must be a dict of public rows by name.*got list"),
    "empty": ({}, {}, "with at least one of them"),
    "one": (ONE, {}, "has one set, and there is nothing to choose from"),
    "an empty set": ({**ONE, "b": HELD_OUT[:0]}, {}, r"`candidates\['b'\]`: Found array with 0"),
    "an empty union": ({**ONE, "b": ()}, {}, r"`candidates\['b'\]` is an empty tuple"),
    "widths": ({**ONE, "b": HELD_OUT[:, 1:]}, {}, r"`candidates\['b'\]`.*63 features"),
    "few rows": ({**ONE, "b": NOISE[:7]}, {}, r"`candidates\['b'\]` span 7 directions"),
    "missing": ({**ONE, "b": np.full((20, 64), np.nan)}, {}, r"`candidates\['b'\]`: Input"),
    "private rows": ({**ONE, "b": PRIVATE[5:99]}, {}, "is a part of `X` itself"),
    "none twice": ({**ONE, "none": NOISE}, {"none": 0.5}, "has a set called 'none'"),
    "none": (ONE, {"none": 1.5}, "`none` must be a number"),
    "a consumer": (ONE, {"none": GEPClassifier()}, "use method='centered_energy'"),
    "a strange consumer": (
        ONE,
        {"none": Normalizer(), "method": "centered_energy"},
        "an estimator of this package that trains",
    ),
    "method": (CANDIDATES, {"method": "luck"}, "`method` must be one of"),
    "labels": (CANDIDATES, {"method": "validation"}, "pass `y`"),
    "a module": (CANDIDATES, {"method": "validation", "module": "cnn"}, "leave `module` out"),
    "public labels": (
        CANDIDATES,
        {"method": "validation", "y": LABELS[:1200]},
        "pass `y_public` as a dict",
    ),
    "labels of one": (
        CANDIDATES,
        {"method": "validation", "y": LABELS[:1200], "y_public": {"noise": LABELS[1200:]}},
        "pass `y_public` as a dict",
    ),
    "few labels": (
        CANDIDATES,
        {
            "method": "validation",
            "y": LABELS[:1200],
            "y_public": dict.fromkeys(CANDIDATES, LABELS[-9:]),
        },
        "has 9 labels for 597 rows",
    ),
    "labels of another kind": (
        CANDIDATES,
        {
            "method": "validation",
            "y": LABELS[:1200].astype(str),
            "y_public": dict.fromkeys(CANDIDATES, LABELS[1200:]),
        },
        "labels of another kind than `y`",
    ),
    "one label": (
        CANDIDATES,
        {
            "method": "validation",
            "y": LABELS[:1200],
            "y_public": dict.fromkeys(CANDIDATES, np.zeros(597)),
        },
        "needs samples of at least 2 classes",
    ),
    "epsilon": (CANDIDATES, {"epsilon": 0.0}, "`epsilon` must be a number"),
    "relation": (CANDIDATES, {"neighboring_relation": "x"}, "`neighboring_relation`"),
    "components": (CANDIDATES, {"n_components": 0}, "`n_components`.*Or use 'auto'"),
    "module": (
        CANDIDATES,
        {"method": "centered_energy", "module": "cnn"},
        "is for linear models",
    ),
}


def test_swapped_arguments_are_told_of():
    with pytest.raises(ValueError, match="the candidates come first"):
        select_public(PRIVATE, CANDIDATES)


@pytest.mark.parametrize(("candidates", "options", "match"), BAD_CHOICES.values(), ids=BAD_CHOICES)
def test_bad_input_of_a_choice(candidates, options, match):
    with pytest.raises(ValueError, match=match):
        select_public(candidates, PRIVATE, **options)


# What a private row may not show ----------------------------------------------------------------


def test_a_row_that_is_out_of_range_makes_no_warnings(rng):
    X, public = rng.normal(size=(400, 9)), rng.normal(size=(60, 9))
    X[0] = np.finfo(np.float64).max
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for options in ({}, {"X_public": public}):
            GSDScorer(n_components=2, epsilon=10.0).fit(X, **options).transform(X)
        DPPCA(n_components=2, epsilon=10.0, data_norm=5.0).fit(X).transform(X)


def test_a_module_that_fails_on_a_row_costs_what_a_fit_costs(rng):
    torch = pytest.importorskip("torch")

    class Narrow(torch.nn.Module):
        """A module that fails where an entry is above 1e4."""

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(9, 4)

        def forward(self, rows):
            left = torch.eye(2) * (1e4 - rows.abs().amax(1))[:, None, None]
            return self.layer(rows) * torch.linalg.cholesky(left)[:, 0, :1] / 100

    X, public = rng.normal(size=(70, 9)), rng.normal(size=(60, 9))
    X[0] = 98765.0
    for function, options in ((GSDScorer, {}), (select_public, {"epsilon": 1.0})):
        ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
        options |= {"module": Narrow(), "n_classes": 4, "n_components": 2}
        with pytest.raises(RuntimeError, match="withheld") as caught:
            if function is GSDScorer:
                ledger.fit(GSDScorer(**options), X, X_public=public)
            else:
                ledger.run(select_public, {"a": public, "b": public[:30]}, X, **options)
        assert "98765" not in str(caught.getrepr(chain=True).reprcrash)
        assert ledger.epsilon() == pytest.approx(1.0, rel=1e-6) and ledger.failures == 0


def test_what_a_module_stores_of_rows_is_not_kept(rng):
    torch = pytest.importorskip("torch")

    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.kept = torch.nn.Linear(9, 4), []

        def forward(self, rows):
            self.kept.append(rows)
            return self.layer(rows)

    X, public = rng.normal(size=(70, 9)), rng.normal(size=(60, 9))
    scorer = GSDScorer(n_components=2, module=Keeps(), n_classes=4).fit(X, X_public=public)
    rows = scorer._space.gradients._rows
    assert not rows.module.kept
    assert sum(part.shape[0] for part in rows._used.kept) <= 2  # random ones
    before = len(rows._used.kept)
    scorer.transform(public)
    assert len(rows._used.kept) == before and scorer._space.gradients._rows is rows


def test_gradients_of_public_rows_must_span_something(rng):
    with pytest.raises(ValueError, match="all zero"):
        GSDScorer().fit(rng.normal(size=(60, 9)), X_public=np.zeros((20, 9)))


def test_sparse_private_rows_are_not_taken_for_public_ones(rng):
    X = sparse.csr_array(rng.normal(size=(60, 9)))
    with pytest.raises(ValueError, match="is a part of `X` itself"):
        select_public({"a": X, "b": rng.normal(size=(30, 9))}, X, n_components=2)
    with pytest.raises(ValueError, match="holds private rows"):
        GSDScorer(n_components=2).fit(X, X_public=(X.copy(),))


@pytest.mark.parametrize("module", [None, "cnn"])
def test_weights_need_a_module_that_has_them(module):
    with pytest.raises(ValueError, match="`params` are weights of a module of your own"):
        gradient_subspace_distance(PRIVATE, PRIVATE, params={"weight": 1}, module=module)
