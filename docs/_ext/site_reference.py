"""The reference: its subjects, the names of each, and how their docstrings become pages.

The pages of ``docs/api/`` are written from this table. A test holds that every public name is in
it once.
"""

import re
from pathlib import Path

from dpsubspace._names import PLACES, TOP

SUBJECTS = {
    "linear_model": (
        "Linear models",
        "Private models. Start with `DPSGDFClassifier` and `DPLinearRegression`.",
        [
            "DPSGDFClassifier",
            "DPSGDClassifier",
            "GEPClassifier",
            "DPLinearRegression",
            "PublicSubspaceLinearRegression",
            "PersonalizedLinearRegression",
            "PersonalizedLogisticRegression",
            "SharedLinearModel",
            "SharedLogisticModel",
            "DPSGDRegressor",
            "GEPRegressor",
            "GradientDirections",
        ],
    ),
    "neural_network": (
        "Neural networks",
        "Torch modules: private training, and features. They need the extra `torch`.",
        ["DPModuleClassifier", "DPModuleRegressor", "TorchFeatures"],
    ),
    "decomposition": (
        "Principal components",
        "Private directions of rows.",
        ["DPPCA"],
    ),
    "preprocessing": (
        "Preprocessing",
        "Private scaling of columns.",
        ["BoundedScaler"],
    ),
    "tables": (
        "Tables",
        "From a raw table, and what is public about its columns, to a private model.",
        [
            "tabular_pipeline",
            "TabularPipeline",
            "TableEncoder",
            "Schema",
            "Range",
            "PrivateRange",
            "Categories",
            "Date",
            "Text",
        ],
    ),
    "calibration": (
        "Calibration",
        "Probabilities, sets of labels and intervals, from private rows that were held out.",
        ["DPCalibratedClassifier", "DPConformalClassifier", "DPConformalRegressor"],
    ),
    "statistics": (
        "Statistics",
        "Private numbers and tables of numbers: means, counts, summaries and odds ratios.",
        [
            "private_mean",
            "private_quantile",
            "private_covariance",
            "private_spread",
            "Spread",
            "private_coefficients",
            "PrivateCoefficients",
            "CoefficientDisplay",
            "private_summary",
            "PrivateSummary",
            "private_counts",
            "PrivateCounts",
            "PrivateCountsDisplay",
            "Released",
        ],
    ),
    "metrics": (
        "Metrics",
        "Private scores and curves of models.",
        [
            "private_score",
            "private_score_difference",
            "PrivateScore",
            "PrivateScoreDifference",
            "ScoreCells",
            "PrivacyUtilityDisplay",
            "PrivateRocCurveDisplay",
            "PrivateCalibrationDisplay",
        ],
    ),
    "public_data": (
        "Public data",
        "Public rows can help a private fit: how to choose them, and how near they are.",
        [
            "select_public",
            "PublicChoice",
            "GSDScorer",
            "SubspaceDistance",
            "private_projection_error",
            "ProjectionError",
            "gradient_subspace_distance",
            "task2vec_distance",
            "optimal_transport_distance",
            "subspace_distance",
            "GSDRankingDisplay",
            "ProjectionErrorDisplay",
        ],
    ),
    "inspection": (
        "Inspection",
        "What a model of a table has learned of each column.",
        ["ShapeDisplay", "ImportanceDisplay"],
    ),
    "model_selection": (
        "Model selection",
        "Choosing among estimators and parameters at one cost.",
        ["PrivateSearch"],
    ),
    "budget": (
        "Budget",
        "Planning what fits will cost, and keeping to one budget.",
        [
            "PrivacyLedger",
            "LedgerEntry",
            "privacy_cost",
            "privacy_event",
            "share_budget",
            "plan_accuracy",
            "AccuracyPlan",
            "BudgetDisplay",
            "PrivacyGuarantee",
        ],
    ),
    "audit": (
        "Audits",
        "Attacks that try to refute what is promised.",
        ["audit_estimator", "audit_epsilon", "AuditResult", "AuditDisplay"],
    ),
    "reports": (
        "Reports",
        "What is promised, for those who answer for the data.",
        ["privacy_report", "PrivacyReport"],
    ),
    "exceptions": (
        "Errors and warnings",
        "What is raised and warned of.",
        [
            "PrivacyError",
            "PrivacyBudgetError",
            "ClusterError",
            "PrivacyWarning",
            "PublicDataWarning",
        ],
    ),
    "saved_models": (
        "Saved models",
        "Models that were written as JSON.",
        ["load"],
    ),
}


def heading(title, line="="):
    """Give a title of reStructuredText."""
    return f"{title}\n{line * len(title)}\n\n"


def summary(names, *options):
    """Give a table of names with the first line of what each does."""
    lines = [".. autosummary::", *(f"   {option}" for option in options), ""]
    return "\n".join([*lines, *(f"   {name}" for name in names)]) + "\n"


def write(path, text):
    """Write a page, and leave it alone where nothing changed: it is then not built again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def first_steps():
    """Say which names are at the top of the package as well."""
    names = ", ".join(f"``{name}``" for name in TOP)
    return f"What a first hour needs can be imported from ``dpsubspace`` as well: {names}."


def write_reference(folder):
    """Write a page for each subject, and one that shows all."""
    folder.mkdir(exist_ok=True)
    pages = "\n".join(f"   {name}" for name in SUBJECTS)
    parts = [
        heading("API reference"),
        "Every public name, by subject. Parameters that matter most stand first in each signature; "
        f"the later ones have defaults that can be left alone.\n\n{first_steps()}\n\n",
        f".. toctree::\n   :hidden:\n\n{pages}\n\n",
    ]
    for page, (title, words, names) in SUBJECTS.items():
        place = PLACES[names[0]]
        module, told = f".. currentmodule:: {place}\n\n", f"{words} In ``{place}``."
        body = summary(names, ":nosignatures:", ":toctree: generated")
        write(folder / f"{page}.rst", heading(title) + module + f"{told}\n\n{body}")
        table = summary(names, ":nosignatures:")
        parts.append(f"{module}{heading(title, '-')}{told}\n\n{table}\n")
    write(folder / "index.rst", "".join(parts))


def link_pages(app, what, name, obj, options, lines):
    """Link pages that a docstring names by their file."""
    lines[:] = [re.sub(r"``docs/(\w+)\.md``", r":doc:`/\1`", line) for line in lines]


def escape_names(app, what, name, obj, options, lines):
    """Escape names such as n_features_in_ outside of backticks: they are no links.

    What stands before a colon is the name of a parameter, which numpydoc escapes.
    """
    for i, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        label, colon, rest = line.partition(" : ") if " : " in line else ("", "", line)
        parts = re.split(r"(`+[^`]*`+)", rest)
        parts[::2] = [re.sub(r"(?<=\w)_(?!\w)", r"\_", part) for part in parts[::2]]
        lines[i] = label + colon + "".join(parts)


def name_in_full(app, env, node, contnode):
    """Find public names that a docstring links without saying where they are."""
    first, _, rest = node["reftarget"].removeprefix("dpsubspace.").partition(".")
    if node.get("refdomain") != "py" or first not in PLACES:
        return None
    whole = ".".join(filter(None, [PLACES[first], first, rest]))
    domain = env.domains["py"]
    given = (env, node["refdoc"], app.builder, node["reftype"], whole, node, contnode)
    return domain.resolve_xref(*given)


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out what every estimator of scikit-learn has."""
    code = getattr(obj, "fget", obj)  # a property does not say where it is from
    foreign = not str(getattr(code, "__module__", "dpsubspace")).startswith("dpsubspace")
    return True if foreign or re.fullmatch(r"set_\w+_request", name) else None


def setup(app):
    """Write the pages, and connect the rest; docstrings are changed before numpydoc reads them."""
    write_reference(Path(app.srcdir) / "api")
    app.connect("autodoc-process-docstring", link_pages, priority=100)
    app.connect("autodoc-process-docstring", escape_names, priority=101)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("missing-reference", name_in_full)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
