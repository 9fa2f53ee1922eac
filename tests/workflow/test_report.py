"""Reports and statements: what they say, that it is true, and that nothing is invented."""

import hashlib
import importlib.util
import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import blobs, epsilon_of, thinned
from scipy import stats
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

import dpsubspace
from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivateSearch,
    privacy_report,
    private_mean,
    select_public,
)
from dpsubspace._core.accounting import guarantee
from dpsubspace._core.accounting.attacker import Attacker
from dpsubspace._core.accounting.cost import gaussian_epsilon, gaussian_sq_mu
from dpsubspace._core.accounting.events import (
    bounded_range,
    composed,
    gaussian,
    laplace,
    non_private,
    sampled_gaussian,
)
from dpsubspace.budget import PrivacyGuarantee
from dpsubspace.calibration import DPCalibratedClassifier
from dpsubspace.linear_model import PersonalizedLinearRegression
from dpsubspace.reports import PrivacyReport
from dpsubspace.reports._report_page import FILL_IN, one_in, percent
from dpsubspace.statistics import private_quantile

# Fits that a test makes outside of ledgers on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")

# The 3 steps of these private fits are few iterations for the one without privacy.
hasty = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ROOT = Path(__file__).parents[2]
X, Y = blobs(n=300)
QUICK = {"n_iter": 3, "delta": 1e-5}


def fitted(**options):
    return DPSGDClassifier(**QUICK | options).fit(X, Y)


def personal():
    groups = np.arange(300) // 6
    model = PersonalizedLinearRegression(epsilon=5.0, target_bounds=(-9, 9), bounds=(-9, 9))
    return model.fit(X, X[:, 0], groups=groups)


def guarantee_with(event, epsilon=None, delta=1e-5, relation="zero_out", **fields):
    epsilon = epsilon_of(event, delta, relation) if epsilon is None else epsilon
    given = {"neighboring_relation": relation, "unit": "row", "secure": True} | fields
    return PrivacyGuarantee(event=event, epsilon=epsilon, delta=delta, **given)


def searched():
    from dp_accounting import GaussianDpEvent
    from dp_accounting.dp_event import RepeatAndSelectDpEvent

    return RepeatAndSelectDpEvent(GaussianDpEvent(9.0), 5.0, 0.0)


def poisson_many():
    from dp_accounting import GaussianDpEvent
    from dp_accounting.dp_event import RepeatAndSelectDpEvent

    return RepeatAndSelectDpEvent(GaussianDpEvent(9.0), 5.0, math.inf)


EVENTS = {
    "nothing": composed([]),
    "not private": non_private(),
    "one": gaussian(3.0),
    "many": composed([gaussian(3.0), gaussian(30.0, 100)]),
    "batches": composed([gaussian(9.0), sampled_gaussian(2.0, 0.01, 50)]),
    "laplace": laplace(0.5, "zero_out", 3),
    "range": bounded_range(0.1, 2),
    "both": composed([bounded_range(0.1, 2), gaussian(5.0)]),
    "search": searched(),
    "poisson search": poisson_many(),
}


# Statements as JSON -------------------------------------------------------------------------------


def schema():
    return json.loads((ROOT / "docs/privacy_schema.json").read_text())


def check_schema(text):
    """`text` keeps to the published schema, where the means to see that are installed."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(schema()).validate(json.loads(text))


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_statements_come_back_as_they_were(name, relation):
    if "search" in name and relation == "replace_one":
        pytest.skip("no accountant counts it")
    pure = name in ("nothing", "laplace", "range")
    made = guarantee_with(
        EVENTS[name],
        delta=0.0 if pure else 1e-5,
        relation=relation,
        public=("sizes", 'a "quoted" name <é>'),
        joint=name == "many",
        unit="person",
        of="Something",
        n_samples=7,
    )
    text = made.to_json()
    assert PrivacyGuarantee.from_json(text) == made
    check_schema(text)


FITS = {
    "classifier": fitted,
    "seeded": lambda: fitted(random_state=0),
    "without noise": lambda: fitted(epsilon=math.inf),
    "batches": lambda: fitted(batch_size=30),
    "persons": personal,
    "nothing": lambda: BoundedScaler(bounds=(-9, 9)).fit(X),
    "components": lambda: DPPCA(
        2, mechanism="bingham", data_norm=9.0, centered=False, delta=0.0
    ).fit(X),
}


@hasty
@pytest.mark.parametrize("name", FITS)
def test_statements_of_fits_come_back_from_files(name, tmp_path):
    made = FITS[name]().privacy_
    path = tmp_path / "model.privacy.json"
    text = made.to_json(path)
    assert path.read_text(encoding="utf-8") == text
    assert PrivacyGuarantee.from_json(path) == PrivacyGuarantee.from_json(str(path)) == made
    check_schema(text)


def test_statement_reads_without_this_package():
    """By plain JSON, and epsilon can be computed again from it by anybody's accountant."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    read = json.loads(DPSGDFClassifier(epsilon=1.5, delta=1e-6).fit(X, Y).privacy_.to_json())
    assert (read["epsilon"], read["delta"], read["unit"]) == (1.5, 1e-6, "row")
    assert read["statement"].startswith("(epsilon = 1.5, delta = 1e-06)-differentially private")

    def event(part):
        kind = getattr(dp_accounting, part["type"])
        if part["type"] == "ComposedDpEvent":
            return kind([event(each) for each in part["events"]])
        if part["type"] == "SelfComposedDpEvent":
            return kind(event(part["event"]), part["count"])
        return kind(part["noise_multiplier"])

    cost = PLDAccountant().compose(event(read["event"])).get_epsilon(1e-6)
    assert 1.49 < cost < 1.51


def test_sidecar_names_the_model_file(tmp_path):
    model_file = tmp_path / "model.joblib"
    model_file.write_bytes(b"any format: it is not opened, but for its digest")
    made = fitted().privacy_
    text = made.to_json(tmp_path / "model.privacy.json", model_file=model_file)
    digest = hashlib.sha256(model_file.read_bytes()).hexdigest()
    assert json.loads(text)["file"] == {"name": "model.joblib", "sha256": digest}
    assert PrivacyGuarantee.from_json(text) == made
    check_schema(text)
    report = privacy_report(made, model_file=model_file)
    assert json.loads(report.to_json())["file"]["sha256"] == digest
    assert digest in report.to_html() and "model.joblib" in str(report)


def test_schema_and_reader_know_the_same_fields():
    described = schema()
    assert described["$id"] == guarantee.SCHEMA
    assert described["properties"].keys() - {"file"} == guarantee._TYPES.keys()
    assert set(described["required"]) == guarantee._TYPES.keys()
    from dpsubspace._core.accounting.accountants import _WRITTEN

    kinds = {k["properties"]["type"]["const"]: k for k in described["$defs"]["event"]["oneOf"]}
    assert kinds.keys() == _WRITTEN.keys()
    for name, (_, fields) in _WRITTEN.items():
        assert set(kinds[name]["required"]) == {"type", *fields}


def test_schema_refuses_what_the_reader_refuses():
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema())
    for change in ({"epsilon": -1}, {"secure": 1}, {"delta": 1}, {"extra": 0}, {"event": {}}):
        changed = json.loads(fitted().privacy_.to_json()) | change
        assert not validator.is_valid(changed)
        with pytest.raises(PrivacyError, match="cannot be read"):
            PrivacyGuarantee.from_json(json.dumps(changed))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"schema": "urn:other"}, "its `schema` is 'urn:other'"),
        ({"epsilon": 0.5}, "claims epsilon=0.5, and its event costs 1"),
        ({"epsilon": "much"}, "`epsilon` must be a number of at least 0, or 'inf'"),
        ({"epsilon": True}, "`epsilon` must be"),
        ({"delta": 1}, r"`delta` must be a number in \[0, 1\)"),
        ({"neighboring_relation": "near"}, "`neighboring_relation` must be one of"),
        ({"secure": "yes"}, "`secure` must be true or false"),
        ({"public": [1]}, "`public` must be a list of texts"),
        ({"n_samples": 3.5}, "`n_samples` must be a whole number or null"),
        ({"event": {"type": "GaussianDpEvent", "noise_multiplier": -1}}, "noise_multiplier"),
        ({"event": {"type": "os.system"}}, "is not an event"),
        ({"more": 1}, r"\['more'\] unknown"),
    ],
)
def test_other_statements_are_refused(change, match):
    whole = json.loads(fitted(epsilon=1.0).privacy_.to_json()) | change
    with pytest.raises(PrivacyError, match=match):
        PrivacyGuarantee.from_json(json.dumps(whole))


@pytest.mark.parametrize(
    "text", ["{", '{"schema": NaN}', '{"a": 1, "a": 2}', "{}", '{"schema": []}', "{" * 100_000]
)
def test_what_is_no_statement_is_refused(text):
    with pytest.raises(PrivacyError, match="the JSON cannot be read as the guarantee of a fit"):
        PrivacyGuarantee.from_json(text)


def test_a_missing_field_is_named():
    whole = json.loads(fitted().privacy_.to_json())
    del whole["secure"]
    with pytest.raises(PrivacyError, match=r"the fields \['secure'\] are missing"):
        PrivacyGuarantee.from_json(json.dumps(whole))


# What an attacker can learn -----------------------------------------------------------------------


def roc(p, q, rate):
    """True positive rate of the best test of densities p against q on a grid, at a rate."""
    order = np.argsort(-p / q)
    return np.interp(rate, np.cumsum(q[order]), np.cumsum(p[order]))


GRID = np.linspace(-20, 20, 400_001)


def densities(multiplier, rate=1.0):
    """A record that moves the mean by 1 with this probability, and none: on a grid, as shares."""
    q = stats.norm.pdf(GRID, 0, multiplier)
    p = (1 - rate) * q + rate * stats.norm.pdf(GRID, 1, multiplier)
    return p / p.sum(), q / q.sum()


def test_bounds_on_gaussian_mechanisms_are_attained():
    event = gaussian(2.0)
    attacker = Attacker.of(event, epsilon_of(event, 1e-5, "zero_out"), 1e-5, "zero_out")
    p, q = densities(2.0)
    assert attacker.exact
    for rate in (0.001, 0.01, 0.1, 0.5):
        assert attacker.true_positive_rate(rate) == pytest.approx(roc(p, q, rate), rel=1e-3)
    assert attacker.advantage == pytest.approx(np.abs(p - q).sum() / 2, rel=1e-4)
    beyond = p[np.log(p / q) > attacker.epsilon].sum()
    assert attacker.surprise == pytest.approx(beyond, rel=1e-2)
    assert attacker.surprise > attacker.delta  # delta is no probability of failure
    # Bayes' rule on the outcomes that are left.
    likely = np.log(p / q) <= attacker.epsilon
    posterior = (0.01 * p / (0.01 * p + 0.99 * q))[likely].max()
    assert posterior == pytest.approx(attacker.posterior(0.01), rel=1e-3)


@pytest.mark.parametrize(("multiplier", "rate"), thinned([(1.0, 0.1), (0.7, 0.02), (3.0, 0.5)]))
def test_bounds_on_batches_hold_both_ways(multiplier, rate):
    event = sampled_gaussian(multiplier, rate, 1)
    attacker = Attacker.of(event, epsilon_of(event, 1e-5, "zero_out"), 1e-5, "zero_out")
    assert not attacker.exact
    p, q = densities(multiplier, rate)
    for a, b in ((p, q), (q, p)):
        for level in (0.001, 0.01, 0.1, 0.5):
            assert roc(a, b, level) <= attacker.true_positive_rate(level) * (1 + 1e-3)
        assert np.abs(a - b).sum() / 2 <= attacker.advantage
        assert a[np.log(a / b) > attacker.epsilon].sum() <= attacker.surprise


def test_bounds_without_a_delta_are_those_of_randomised_response():
    attacker = Attacker.of(laplace(1.0, "zero_out"), 1.0, 0.0, "zero_out")
    e = math.e
    assert attacker.posterior(0.5) == pytest.approx(e / (1 + e))
    assert attacker.posterior(0.01) == pytest.approx(0.01 * e / (0.99 + 0.01 * e))
    assert attacker.surprise == 0
    assert attacker.true_positive_rate(0.01) <= 0.01 * e * (1 + 1e-12)
    # The advantage of a Laplace mechanism itself is 1 - e^(-1/2).
    assert 1 - e**-0.5 <= attacker.advantage <= (e - 1) / (e + 1) + 1e-12
    assert attacker.of_several(3) == pytest.approx(3.0)


def test_several_records_of_one_person_are_counted():
    attacker = Attacker.of(gaussian(3.7302), 1.0, 1e-5, "zero_out")
    assert attacker.of_several(40) == pytest.approx(102.4, abs=0.2)  # as docs/privacy.md says
    assert attacker.of_several(2) == pytest.approx(
        epsilon_of(gaussian(3.7302), 1e-5, "replace_one")
    )
    assert attacker.replaced == attacker.of_several(2)
    batches = Attacker.of(EVENTS["batches"], 1.0, 1e-5, "zero_out")
    assert batches.of_several(2) is None
    assert batches.replaced == epsilon_of(EVENTS["batches"], 1e-5, "replace_one")
    assert Attacker.of(EVENTS["both"], 1.0, 1e-5, "zero_out").replaced is None


@pytest.mark.parametrize("name", EVENTS)
def test_bounds_are_in_order(name):
    epsilon = epsilon_of(EVENTS[name], 1e-5, "zero_out")
    attacker = Attacker.of(EVENTS[name], epsilon, 1e-5, "zero_out")
    assert 0 <= attacker.advantage <= 1 and 0 <= attacker.surprise <= 1
    rates = [attacker.true_positive_rate(a) for a in (0.001, 0.01, 0.1, 1.0)]
    assert rates == sorted(rates) and rates[-1] == 1
    assert all(
        rate >= a * (1 - 1e-9) for rate, a in zip(rates, (0.001, 0.01, 0.1, 1.0), strict=True)
    )
    assert attacker.advantage >= rates[2] - 0.1 - 1e-12
    assert attacker.surprise <= 0.01 and attacker.posterior(0.5) >= 0.5
    of_ledger = Attacker.of(EVENTS[name], epsilon, 1e-5, "zero_out", adaptive=True)
    assert of_ledger.advantage >= attacker.advantage and of_ledger.surprise <= 0.01


# Reports of fits ----------------------------------------------------------------------------------


def test_report_of_a_fit_says_what_is_known_and_leaves_the_rest_open():
    report = privacy_report(fitted(epsilon=1.0), curator="The clinic", date="2026-01-01")
    assert isinstance(report, PrivacyReport) and report.holds
    assert report.verdict == "Differentially private: epsilon = 1, delta = 1e-05, per row."
    text = str(report)
    for words in (
        "The clinic",
        "2026-01-01",
        "one row of the table",
        "whether a row was used",
        "3 x (Gaussian noise, multiplier",
        "2.68 %",  # 0.01 e / (0.99 + 0.01 e), rounded up
        "10.7 %",  # the advantage
        "1 in 6,",
        "operating system's cryptographic generator",
        "Note the set of labels (3, read from y). The list",
        dpsubspace.__version__,
    ):
        assert words in " ".join(text.split()), words
    assert "curator" not in report.open_fields and "use" in report.open_fields
    assert text.count(FILL_IN) >= len(report.open_fields)


def test_nothing_is_invented():
    read = json.loads(privacy_report(fitted()).to_json())
    assert set(read["curator"].values()) == {None}
    for field in ("Curator", "Intended use", "Date of publication"):
        assert read["registry"]["Tier 1"][field] is None
    assert read["registry"]["Tier 3"]["Justification"] is None
    assert read["registry"]["Tier 2"]["Flavour of privacy"].startswith("Approximate DP (")
    assert read["versions"]["dpsubspace"] == dpsubspace.__version__
    assert read["parts"][0]["guarantee"]["version"] == dpsubspace.__version__
    check_schema(json.dumps(read["parts"][0]["guarantee"]))


def test_pages_are_complete_and_load_nothing(tmp_path):
    report = privacy_report(
        make_pipeline(StandardScaler(), DPSGDClassifier(**QUICK)).fit(X, Y),
        curator='<script>alert("&")</script>',
    )
    path = tmp_path / "report.html"
    page = report.to_html(path)
    assert path.read_text(encoding="utf-8") == page
    assert "<script" not in page and "&lt;script&gt;alert(" in page
    root = ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    assert root.get("lang") == "en" and root.findtext("head/title") == report.title
    tags = [element.tag for element in root.iter()]
    assert tags.count("main") == tags.count("h1") == 1
    assert {"script", "link", "img", "iframe"}.isdisjoint(tags)
    for element in root.iter():
        assert {"src", "href", "onload"}.isdisjoint(element.attrib)
    ids = [heading.get("id") for heading in root.iter("h2")]
    assert [section.get("aria-labelledby") for section in root.iter("section")] == ids
    for table in root.iter("table"):
        assert table.find("caption").text
        assert all(cell.get("scope") in ("row", "col") for cell in table.iter("th"))
        widths = {len(list(row)) for row in table.iter("tr")}
        assert len(widths) == 1
    assert "url(" not in page and "@import" not in page and "@media print" in page
    assert any(span.text == FILL_IN for span in root.iter("span"))
    assert report._repr_html_() in page
    assert len(repr(report)) < 300


def test_a_seeded_fit_is_loudly_not_private():
    report = privacy_report(fitted(random_state=3))
    first = " ".join(str(report).partition("Summary")[2].replace("! ", "").split())[8:]
    assert first.startswith("NO PRIVACY GUARANTEE against anybody who knows, guesses or finds the")
    assert report.verdict.endswith(
        "all others: differentially private, epsilon = 1, delta = 1e-05, per row."
    )
    assert 'class="loud"' in report.to_html()
    assert "they can remove the noise" in " ".join(str(report).split()).replace("! ", "")
    assert not json.loads(report.to_json())["secure"]


@hasty
def test_a_fit_without_noise_has_no_guarantee():
    report = privacy_report(fitted(epsilon=math.inf))
    assert not report.holds and report.epsilon == math.inf
    assert report.verdict.startswith("NO PRIVACY GUARANTEE")
    read = json.loads(report.to_json())
    assert read["epsilon"] == "inf" and read["attacker"] is None
    assert read["registry"]["Tier 3"]["Accounting, post-processing"].startswith("not covered")


# What a report says of noise and of what it hides, where there is a guarantee.
PROMISED = ("only these noisy sums", "What is hidden, within", "protected less than stated")


@hasty
def test_a_report_without_a_guarantee_promises_nothing():
    scaled = make_pipeline(StandardScaler(), DPSGDClassifier(**QUICK)).fit(X, Y)
    scaler = BoundedScaler(epsilon=0.3, neighboring_relation="replace_one")
    apart = make_pipeline(scaler, DPSGDClassifier(**QUICK)).fit(X, Y)
    ledger = PrivacyLedger(2.0, 1e-5)
    ledger.charge(non_private(), "raw", neighboring_relation="zero_out", already_released=True)
    for subject in (fitted(epsilon=math.inf), scaled, apart, ledger):
        report = privacy_report(subject)
        text = " ".join(str(report).replace("! ", "").split())
        assert not report.holds
        for words in (*PROMISED, "equally likely", "fully adaptive", "Left for", "Remaining for"):
            assert words not in text, words
        assert "nothing is guaranteed to be hidden" in text
        assert "does not limit what can be learnt about anybody" in text
    text = " ".join(str(privacy_report(fitted())).split())
    assert all(words in text for words in PROMISED)


def test_certainty_is_no_number_in_the_middle_of_a_sentence():
    for epsilon in (15.0, 25.0):
        text = " ".join(str(privacy_report(fitted(epsilon=epsilon))).split())
        assert "more than 99.9 %" not in text
        assert "with a probability of at most nearly" not in text
        assert "nearly 100 %" in text
    assert "After they have seen the result, they may be nearly certain of it." in text


def test_persons_and_joint_guarantees():
    text = " ".join(str(privacy_report(personal())).split())
    assert "Jointly differentially private: epsilon = 5" in text and "per person" in text
    assert "Publish only what public_part() returns" in text.replace("! ", "")
    assert "a person with 3 rows" not in text and "all rows of one person together" in text


def test_replace_one_is_about_what_a_record_says():
    text = str(privacy_report(fitted(neighboring_relation="replace_one")))
    assert "what a row contains" in text and "That the record is in the data is not hidden" in (
        " ".join(text.split())
    )
    assert "if it is known that it was used" not in text


def test_a_large_delta_is_said_to_be():
    with pytest.warns(dpsubspace.PrivacyWarning, match="Such a promise"):
        model = DPSGDClassifier(delta=0.1, n_iter=3).fit(X, Y)
    assert "even publishing one whole record, picked at random" in privacy_report(model).to_html()


def test_an_epsilon_that_protects_nobody_is_said_to():
    for epsilon, words, guess in (
        (10.5, "weak protection at best", "about one in 36,300 can become"),
        (30.0, "no meaningful protection", "one in 485 million, or even less likely, can"),
        (1000.0, "no meaningful protection", "one in 485 million, or even less likely, can"),
    ):
        model = fitted(epsilon=epsilon)
        assert str(model.privacy_).partition("\n")[0].endswith(f" per row: {words}")
        assert json.loads(model.privacy_.to_json())["statement"].endswith(words)
        report = privacy_report(model)
        assert report.verdict.startswith(f"{words.upper()}: an epsilon of {epsilon:g}. ")
        page = report.to_html()
        assert f'<p class="loud" role="note">{words.upper()}' in page
        assert (
            f"An epsilon of {epsilon:g} is {words}: a suspicion with a probability of {guess}"
            in page
        )
        assert words.upper() in str(report) and words.upper() in report.to_json()
    assert "by a factor of up to e^1000." in " ".join(str(report).split())
    assert privacy_report(PrivacyLedger(1000.0, 1e-5)).verdict.startswith("NO MEANINGFUL")
    for epsilon in (1.0, 10.0):
        report = privacy_report(fitted(epsilon=epsilon))
        assert report.verdict.startswith("Differentially private: ")
        assert "protection" not in fitted(epsilon=epsilon).privacy_.details()
        assert "is weak protection" not in " ".join(str(report).split())


def test_given_classes_are_not_warned_of():
    assert "Note the" not in str(privacy_report(fitted(classes=[0, 1, 2])))


def test_what_releases_nothing_is_said_to():
    report = privacy_report(BoundedScaler(bounds=(-9, 9)).fit(X))
    assert report.verdict == "Nothing was released that depends on private records."
    assert report.holds and report.epsilon == 0


def test_released_values_and_choices():
    report = privacy_report(private_mean(X, data_norm=9.0, epsilon=0.5, delta=1e-5))
    assert report.holds and report.epsilon == 0.5 and "Statistic" in str(report)
    candidates = {"a": X[:50] + 0.0, "b": X[50:100] + 0.0}
    choice = select_public(candidates, X[100:], n_components=2, epsilon=0.2)
    text = str(privacy_report(choice))
    assert "epsilon = 0.2, per row" in text and "Pure DP" in text
    assert "This holds without exception" in text
    assert privacy_report(choice.privacy).epsilon == 0.2


# Plans ------------------------------------------------------------------------------------------


def test_a_plan_costs_what_the_fit_does():
    model = make_pipeline(BoundedScaler(epsilon=0.5, delta=1e-5), DPSGDClassifier(**QUICK))
    with pytest.raises(PrivacyError, match=r"privacy_report\(BoundedScaler\(...\), n_samples=1000"):
        privacy_report(model)
    plan = privacy_report(model, n_samples=300, n_features=5, n_outputs=3)
    assert plan.verdict.startswith("A plan: nothing has been fitted.") and plan.holds
    after = privacy_report(model.fit(X, Y))
    assert plan.epsilon == after.epsilon
    assert plan.epsilon == pytest.approx(
        gaussian_epsilon(gaussian_sq_mu(0.5, 1e-5) + gaussian_sq_mu(1.0, 1e-5), 1e-5), rel=1e-6
    )


# Pipelines --------------------------------------------------------------------------------------


def test_a_scaler_fitted_on_private_rows_is_named():
    model = Pipeline([("scale", StandardScaler()), ("model", DPSGDClassifier(**QUICK))]).fit(X, Y)
    report = privacy_report(model)
    assert not report.holds and report.epsilon == math.inf
    text = " ".join(str(report).replace("! ", "").split())
    assert "step 'scale' (StandardScaler) may have learned from the private rows" in text
    assert "mean_" in text and "NO PRIVACY GUARANTEE for this pipeline" in text
    read = json.loads(report.to_json())
    assert read["epsilon_of_noisy_releases"] == 1.0 and len(read["reasons"]) == 1


LEARNING = {
    "pca": (lambda: make_pipeline(PCA(2), DPSGDClassifier(**QUICK)), "PCA"),
    "function": (
        lambda: make_pipeline(FunctionTransformer(np.abs), DPSGDClassifier(**QUICK)),
        "depends on the function",
    ),
    "last": (lambda: make_pipeline(BoundedScaler(), GaussianNB()), "GaussianNB"),
    "in columns": (
        lambda: make_pipeline(
            make_column_transformer((StandardScaler(), [0, 1]), (BoundedScaler(), [2, 3, 4])),
            DPSGDClassifier(**QUICK),
        ),
        "StandardScaler",
    ),
    "inside": (
        lambda: make_pipeline(make_pipeline(StandardScaler()), DPSGDClassifier(**QUICK)),
        "StandardScaler",
    ),
}


@pytest.mark.parametrize("name", LEARNING)
def test_whatever_learns_from_private_rows_is_named(name):
    build, named = LEARNING[name]
    report = privacy_report(build().fit(X, Y))
    assert not report.holds and named in str(report)


def test_pipelines_of_private_and_public_steps_hold():
    columns = make_column_transformer(
        (BoundedScaler(epsilon=0.3, delta=1e-5), [0, 1]),
        (FrozenEstimator(StandardScaler().fit(X[:50, 2:4])), [2, 3]),
        remainder="passthrough",
        sparse_threshold=0,
    )
    model = make_pipeline(columns, Normalizer(), DPSGDClassifier(**QUICK)).fit(X, Y)
    report = privacy_report(model)
    assert report.holds and len(json.loads(report.to_json())["parts"]) == 2
    assert report.epsilon == pytest.approx(
        gaussian_epsilon(gaussian_sq_mu(0.3, 1e-5) + gaussian_sq_mu(1.0, 1e-5), 1e-5), rel=1e-6
    )
    assert "the frozen step 'frozenestimator' (StandardScaler) was fitted on public rows" in (
        " ".join(str(report).split())
    )


def test_parts_that_do_not_add_up_have_no_sum():
    scaler = BoundedScaler(epsilon=0.3, neighboring_relation="replace_one")
    model = make_pipeline(scaler, DPSGDClassifier(**QUICK)).fit(X, Y)
    report = privacy_report(model)
    assert not report.holds and "different neighbouring relations" in str(report)
    groups = np.arange(300) // 3
    model = make_pipeline(BoundedScaler(epsilon=0.3), DPSGDClassifier(**QUICK))
    report = privacy_report(model.fit(X, Y, dpsgdclassifier__groups=groups))
    assert not report.holds and "different units (person, row)" in str(report)


def test_a_frozen_private_step_counts():
    frozen = FrozenEstimator(BoundedScaler(epsilon=0.5, delta=1e-5).fit(X))
    report = privacy_report(make_pipeline(frozen, DPSGDClassifier(**QUICK)).fit(X, Y))
    assert report.holds and report.epsilon > 1.05


def test_a_folder_of_transformed_rows_is_vouched_for(tmp_path):
    model = Pipeline(
        [("scale", BoundedScaler(bounds=(-9, 9))), ("model", DPSGDClassifier(**QUICK))],
        memory=str(tmp_path),
    )
    assert "the folder in which" in " ".join(str(privacy_report(model.fit(X, Y))).split())


# Searches and cross-validation --------------------------------------------------------------------


def test_a_grid_search_costs_all_of_its_fits():
    grid = {"epsilon": [0.5, 1.0, 2.0], "clip_norm": [0.5, 1.0]}
    search = GridSearchCV(DPSGDClassifier(**QUICK), grid, cv=4).fit(X, Y)
    report = privacy_report(search)
    sq_mu = sum(8 * gaussian_sq_mu(epsilon, 1e-5) for epsilon in grid["epsilon"])
    sq_mu += gaussian_sq_mu(search.best_params_["epsilon"], 1e-5)
    read = json.loads(report.to_json())
    assert read["epsilon_of_noisy_releases"] == pytest.approx(
        gaussian_epsilon(sq_mu, 1e-5), rel=1e-6
    )
    assert sum(part["count"] for part in read["parts"]) == 25
    assert not report.holds and read["epsilon"] == "inf"  # by the choice
    text = " ".join(str(report).replace("! ", "").split())
    assert "the best candidate was chosen by exact scores on private held-out rows" in text
    assert "6 x 4 fits and the refit" in text and "24 scores on private held-out rows" in text
    assert "epsilon=0.5" in text


def test_a_search_is_never_cheaper_than_its_fits():
    """Batches cost more on fewer rows, and each split has its own number of them."""
    model = DPSGDClassifier(epsilon=None, noise_multiplier=2.0, batch_size=20, **QUICK)
    search = RandomizedSearchCV(model, {"alpha": [0.0, 0.1]}, n_iter=2, cv=7, random_state=0)
    search.fit(X, Y)
    folds = [
        cross_validate(model, X, Y, cv=7, return_estimator=True)["estimator"] for _ in range(2)
    ]
    events = [fold.privacy_.event for each in folds for fold in each]
    ran = composed([*events, search.best_estimator_.privacy_.event])
    said = json.loads(privacy_report(search).to_json())["epsilon_of_noisy_releases"]
    least = epsilon_of(ran, 1e-5, "zero_out")
    assert least <= said * (1 + 1e-6) and said < 1.1 * least


def test_a_search_inside_a_pipeline_names_the_scaler_too():
    model = make_pipeline(StandardScaler(), DPSGDClassifier(**QUICK))
    search = GridSearchCV(model, {"dpsgdclassifier__epsilon": [1.0, 2.0]}, cv=KFold(3)).fit(X, Y)
    reasons = json.loads(privacy_report(search).to_json())["reasons"]
    assert len(reasons) == 2 and "StandardScaler" in reasons[1]


def test_a_search_with_another_delta_is_counted_at_it():
    ledger_like = GridSearchCV(DPSGDClassifier(n_iter=3, delta=1e-7), {"epsilon": [1.0]}, cv=3)
    report = privacy_report(ledger_like.fit(X, Y))
    assert report.delta == 1e-7


def test_failed_fits_count_and_impossible_ones_do_not():
    grid = {"epsilon": [1.0, -1.0], "n_iter": [3]}
    search = GridSearchCV(DPSGDClassifier(delta=1e-5), grid, cv=3)
    with pytest.warns(FitFailedWarning), pytest.warns(UserWarning, match="non-finite"):
        search.fit(X, Y)
    read = json.loads(privacy_report(search).to_json())
    assert sum(part["count"] for part in read["parts"]) == 4
    assert any("1 candidates had invalid settings" in c for c in read["cautions"])
    search.cv_results_["split0_test_score"][0] = math.nan
    read = json.loads(privacy_report(search).to_json())
    assert sum(part["count"] for part in read["parts"]) == 4
    assert any("1 scores are missing" in caution for caution in read["cautions"])


def test_sizes_that_a_search_does_not_tell_are_asked_for():
    model, grid = DPSGDClassifier(**QUICK), {"epsilon": [1.0]}
    with pytest.raises(PrivacyError, match=r"GridSearchCV is not fitted.*search\.estimator"):
        privacy_report(GridSearchCV(model, grid))
    search = GridSearchCV(model, grid, cv=ShuffleSplit(2, test_size=0.5)).fit(X, Y)
    with pytest.raises(PrivacyError, match=r"n_train=800\)"):
        privacy_report(search)
    assert "2 fits" in str(privacy_report(search, n_train=150))
    by_person = GridSearchCV(model, grid, cv=GroupKFold(3)).fit(X, Y, groups=np.arange(300) // 3)
    with pytest.raises(PrivacyError, match="n_train"):
        privacy_report(by_person)
    # Of 6 splits of 3 folds each has two thirds of the rows, and on batches less rows cost more.
    model = DPSGDClassifier(**QUICK, batch_size=50)
    repeated = GridSearchCV(model, grid, cv=RepeatedKFold(n_splits=3, n_repeats=2)).fit(X, Y)
    with pytest.raises(PrivacyError, match="n_train"):
        privacy_report(repeated)
    model = DPSGDClassifier(**QUICK)
    alone = GridSearchCV(model, grid, cv=3, refit=False).fit(X, Y)
    with pytest.raises(PrivacyError, match="n_samples"):
        privacy_report(alone)
    report = privacy_report(alone, n_samples=300)
    assert report.holds and report.epsilon == pytest.approx(
        gaussian_epsilon(3 * gaussian_sq_mu(1.0, 1e-5), 1e-5), rel=1e-6
    )


def test_a_private_search_is_one_fit_that_holds():
    candidates = {"alpha": [0.0, 1e-3, 1e-2, 0.1]}
    search = PrivateSearch(DPSGDClassifier(n_iter=3), candidates, epsilon=3.0).fit(X, Y)
    report = privacy_report(search)
    assert report.holds and report.epsilon == 3.0
    text = " ".join(str(report).split())
    assert "the time that they took" in text and "best of about 10 runs" in text
    made = search.privacy_
    assert PrivacyGuarantee.from_json(made.to_json()) == made
    check_schema(made.to_json())
    plan = privacy_report(clone(search), n_samples=300, n_features=5, n_outputs=3)
    assert plan.epsilon == 3.0 and plan.verdict.startswith("A plan")


def test_a_model_inside_of_another_counts():
    model = DPSGDClassifier(epsilon=1.0, **QUICK).fit(X[:150], Y[:150])
    for inner in (model, FrozenEstimator(model)):
        outer = DPCalibratedClassifier(inner, epsilon=0.5).fit(X[150:], Y[150:])
        report = privacy_report(outer)
        assert report.holds and 1.0 < report.epsilon < 1.5
        assert "model inside was fitted before" in " ".join(str(report).split())
    plain = GaussianNB().fit(X[:150], Y[:150])
    outer = DPCalibratedClassifier(plain, epsilon=0.5).fit(X[150:], Y[150:])
    assert not privacy_report(outer).holds
    outer = DPCalibratedClassifier(FrozenEstimator(plain), epsilon=0.5).fit(X[150:], Y[150:])
    report = privacy_report(outer)
    assert report.holds and "(GaussianNB) was fitted on public rows" in (
        " ".join(str(report).split())
    )


def test_cross_validation_costs_its_fits():
    model = make_pipeline(BoundedScaler(epsilon=0.5, delta=1e-5), DPSGDClassifier(**QUICK))
    result = cross_validate(model, X, Y, cv=3, return_estimator=True)
    report = privacy_report(result)
    sq_mu = 3 * (gaussian_sq_mu(0.5, 1e-5) + gaussian_sq_mu(1.0, 1e-5))
    assert report.epsilon == pytest.approx(gaussian_epsilon(sq_mu, 1e-5), rel=1e-6)
    assert report.holds and "3 scores on private held-out rows" in str(report)
    with pytest.raises(PrivacyError, match="return_estimator=True"):
        privacy_report(cross_validate(model, X, Y, cv=3))


# Ledgers ------------------------------------------------------------------------------------------


def test_report_of_a_ledger_states_the_budget_and_each_charge():
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    ledger.fit(DPSGDClassifier(n_iter=3), X, Y, label="readmission")
    ledger.run(private_quantile, X[:, 0], 0.5, epsilon=0.3, bounds=(-9, 9), label="median")
    report = privacy_report(ledger)
    spent = ledger.epsilon()
    assert report.holds and report.epsilon == spent
    assert report.verdict.startswith("Budget: epsilon = 2, delta = 1e-05, per row.")
    assert "by 2 charges" in report.verdict
    text = str(report)
    for words in ("readmission", "median", "fully adaptive", "outside this ledger"):
        assert words in " ".join(text.split())
    read = json.loads(report.to_json())
    assert read["budget"] == 2.0 and [p["name"] for p in read["parts"]] == ["readmission", "median"]
    for part in read["parts"]:
        check_schema(json.dumps(part["guarantee"]))
    assert all(re.match(r"\d{4}-\d\d-\d\dT", part["date"]) for part in read["parts"])
    for shown in (report.to_html(), str(report), ledger._repr_html_()):  # for people
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", shown) and "+00:00" not in shown
    assert read["parts"][0]["guarantee"]["n_samples"] == 300


def test_a_ledger_around_a_search_has_all_of_its_fits():
    search = GridSearchCV(DPSGDClassifier(n_iter=3), {"epsilon": [0.1, 0.2]}, cv=3)
    with PrivacyLedger(epsilon=2.0, delta=1e-6) as ledger:
        search.fit(X, Y)
    read = json.loads(privacy_report(ledger).to_json())
    assert len(read["parts"]) == 7
    said = json.loads(privacy_report(search).to_json())["epsilon_of_noisy_releases"]
    assert said == pytest.approx(ledger.epsilon(), rel=1e-6)


def test_ledgers_that_are_empty_seeded_or_broken():
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5, allow_seeded=True)
    assert "0 charges" in privacy_report(ledger).verdict
    assert "demonstrations" in str(privacy_report(ledger))
    ledger.charge(non_private(), "raw", neighboring_relation="zero_out", already_released=True)
    report = privacy_report(ledger)
    assert not report.holds and "whose cost cannot be determined" in " ".join(str(report).split())


def test_a_budget_that_was_exceeded_is_no_promise():
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    ledger.charge(fitted(epsilon=25.0).privacy_, already_released=True)
    report = privacy_report(ledger)
    assert not report.holds and report.epsilon == ledger.epsilon() > 24.9
    assert report.verdict.startswith(
        "NO MEANINGFUL PROTECTION: an epsilon of 25. THE BUDGET HAS BEEN EXCEEDED and does not"
        " hold: epsilon = 25, delta = 1e-05, per row, has been spent of a budget of epsilon = 1."
    )
    page, text = report.to_html(), " ".join(str(report).replace("! ", "").split())
    assert f'<p class="loud" role="note">{report.verdict}' in page
    assert "a suspicion with a probability of one in 485 million" in text
    for words in ("it holds whatever", "Publish the budget", "to publish is the budget"):
        assert words not in text
    assert "Remaining for" not in text and "fully adaptive" not in text
    read = json.loads(report.to_json())
    assert read["overspent"] and read["attacker"]["advantage"] > 0.9
    assert read["attacker_at_budget"] is None
    assert "exceeded" in read["registry"]["Tier 2"]["Privacy loss"]


def test_attacks_are_bounded_for_the_budget_and_for_what_was_spent():
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
    for spent in (0.0, 1.0):
        report = privacy_report(ledger)
        at_budget = json.loads(report.to_json())["attacker_at_budget"]
        # Odds of one record change by at most twice e^epsilon, but with a probability of 2 delta.
        odds = 2 * math.exp(3.0) * 0.01 / 0.99
        assert at_budget["posteriors"][0]["at_most"] == pytest.approx(odds / (1 + odds))
        assert at_budget["posteriors_fail_with_probability"] == pytest.approx(2e-5)
        assert at_budget["advantage"] == pytest.approx((math.exp(3) - 1 + 2e-5) / (1 + math.exp(3)))
        text = " ".join(str(report).split())
        assert "28.9 %" in text  # odds / (1 + odds), rounded up
        assert ("(spent so far)" in text) == bool(spent) == ("2.68 %" in text)
        assert report.verdict.startswith("Budget: epsilon = 3, delta = 1e-05, per row.")
        # That of one fit at the same epsilon and delta is said beside it.
        odds, exact = odds / 2, Attacker(3.0, 1e-5, gaussian_sq_mu(3.0, 1e-5) ** 0.5, 0.0, True)
        assert f"there it would be {percent(odds / (1 + odds))}" in text
        assert f"with a probability of at most {one_in(exact.surprise)}. So do not" in text
        ledger.fit(DPSGDClassifier(n_iter=3), X, Y)


def test_an_exceeded_budget_never_looks_safer_than_one_that_was_kept():
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    ledger.fit(DPSGDClassifier(epsilon=0.9, n_iter=3), X, Y)
    kept = json.loads(privacy_report(ledger).to_json())["attacker_at_budget"]
    other = DPSGDClassifier(epsilon=0.8, n_iter=3).fit(X, Y)
    ledger.charge(other.privacy_, already_released=True)
    report = privacy_report(ledger)
    broken = json.loads(report.to_json())["attacker"]
    assert not report.holds and 1 < report.epsilon < 1 + math.log(2)
    assert broken["advantage"] > kept["advantage"]
    for name in ("posteriors", "true_positive_rates"):
        pairs = zip(broken[name], kept[name], strict=True)
        assert all(more["at_most"] > less["at_most"] for more, less in pairs)
    assert "like that of a budget that is kept" in " ".join(str(report).split())


def test_the_report_of_a_ledger_says_where_the_list_of_what_is_public_stands():
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    assert json.loads(privacy_report(ledger).to_json())["public"] == []
    ledger.fit(DPSGDClassifier(epsilon=0.5, n_iter=3), X, Y)
    read = json.loads(privacy_report(ledger).to_json())
    assert len(read["public"]) == 1 and "may have been read from the private" in read["public"][0]
    assert read["public"][0] in read["registry"]["Tier 3"]["Unprotected quantities"]


# What is refused ----------------------------------------------------------------------------------


class Subclass(DPSGDClassifier):
    """May do anything with the rows, where it has a fit of its own."""

    def fit(self, X, y, **more):
        return super().fit(X, y, **more)


@pytest.mark.parametrize(
    ("subject", "match"),
    [
        (LogisticRegression(), "LogisticRegression has no privacy guarantee"),
        (Subclass(), "Subclass has no privacy guarantee"),
        (DPSGDClassifier, r"is a class: pass an instance, DPSGDClassifier\(\)"),
        (DPLinearRegression(), r"DPLinearRegression is not fitted.*n_samples=1000"),
        ({"test_score": [1.0]}, "return_estimator=True"),
        (None, "NoneType has no privacy guarantee"),
        (3, "int has no privacy guarantee"),
    ],
)
def test_other_subjects_are_refused(subject, match):
    with pytest.raises(PrivacyError, match=match):
        privacy_report(subject)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="`curator` must be a str or None, got 3"):
        privacy_report(fitted(), curator=3)


def test_the_version_that_made_a_release_stays_with_its_guarantee(monkeypatch):
    model = fitted()
    made = dpsubspace.__version__
    monkeypatch.setattr(dpsubspace, "__version__", "77.1")
    again = PrivacyGuarantee.from_json(model.privacy_.to_json())
    assert again == model.privacy_ and again.version == model.privacy_.version == made
    page = str(privacy_report(model))
    assert f"made with dpsubspace {made}; other versions" in " ".join(page.split())
    unknown = replace(model.privacy_, version="")
    assert unknown == model.privacy_
    assert "not all recorded" in " ".join(str(privacy_report(unknown)).split())


# What a board reads -----------------------------------------------------------------------------


def test_a_board_reads_one_page_and_the_rest_is_annexed():
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
    for name in ("first", "second", "third"):
        ledger.fit(DPSGDClassifier(epsilon=0.5), X, Y, label=name)
    for subject in (fitted(), ledger):
        first, _, rest = str(privacy_report(subject)).partition("\nAnnex 1: ")
        assert len(first.split()) < 600
        for asked in ("Unit of protection", "Epsilon", "What was released", "must not be shown"):
            assert asked in first
        assert [line for line in rest.splitlines() if line.startswith("Annex")] == [
            "Annex 2: Whom does it protect, and against what?",
            "Annex 3: What can an attacker learn?",
            "Annex 4: What the guarantee assumes",
            "Annex 5: Entry for a registry of deployments",
            "Annex 6: Software, and how to check this report",
        ]


# The page of the docs ---------------------------------------------------------------------------


def test_the_page_of_the_docs_is_what_the_example_writes(tmp_path, monkeypatch, capsys):
    path = tmp_path / "page.html"
    monkeypatch.setattr("sys.argv", ["write_privacy_report.py", str(path)])
    spec = importlib.util.spec_from_file_location("w", ROOT / "examples/write_privacy_report.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert "Differentially private" in capsys.readouterr().out

    def without_versions(page):
        return re.sub(r'<tr><th scope="row">[a-z-]+</th><td>[\d.a-z]+</td></tr>', "", page)

    kept = (ROOT / "docs/example_report.html").read_text(encoding="utf-8")
    assert without_versions(path.read_text(encoding="utf-8")) == without_versions(kept)
