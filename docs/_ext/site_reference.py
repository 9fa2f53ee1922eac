"""The reference: its subjects, the names of each, and how their docstrings become pages.

The pages of ``docs/api/`` are written from this table. A test holds that every public name is in
it once.
"""

import re
from pathlib import Path

SUBJECTS = {
    "classification": (
        "Classification",
        "Private classifiers. Start with `DPSGDFClassifier`.",
        ["DPSGDFClassifier", "DPSGDClassifier", "GEPClassifier", "DPModuleClassifier"],
    ),
    "regression": (
        "Regression",
        "Private regressors. Start with `DPLinearRegression`.",
        [
            "DPLinearRegression",
            "PublicSubspaceLinearRegression",
            "PersonalizedLinearRegression",
            "PersonalizedLogisticRegression",
            "SharedLinearModel",
            "SharedLogisticModel",
            "DPSGDRegressor",
            "GEPRegressor",
            "DPModuleRegressor",
        ],
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
            "GradientDirections",
            "gradient_subspace_distance",
            "task2vec_distance",
            "optimal_transport_distance",
            "subspace_distance",
        ],
    ),
    "preprocessing": (
        "Preprocessing and statistics",
        "Private steps before a model, and single numbers.",
        [
            "BoundedScaler",
            "DPPCA",
            "TorchFeatures",
            "private_mean",
            "private_quantile",
            "private_covariance",
            "private_spread",
            "Spread",
            "private_coefficients",
            "PrivateCoefficients",
            "CoefficientDisplay",
        ],
    ),
    "counts": (
        "Counts and summaries",
        "Tables that are published of private rows, with intervals.",
        ["private_summary", "PrivateSummary", "private_counts", "PrivateCounts"],
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
        ],
    ),
    "evaluation": (
        "Evaluation",
        "Scores, probabilities and sets of labels from private rows that were held out.",
        [
            "private_score",
            "PrivateScore",
            "ScoreCells",
            "DPCalibratedClassifier",
            "DPConformalClassifier",
            "DPConformalRegressor",
        ],
    ),
    "search": (
        "Search",
        "Choosing among estimators and parameters at one cost.",
        ["PrivateSearch"],
    ),
    "reports": (
        "Reports and audits",
        "What is promised, for those who answer for the data, and attacks that try to refute it.",
        ["privacy_report", "PrivacyReport", "audit_estimator", "audit_epsilon", "AuditResult"],
    ),
    "displays": (
        "Displays",
        "Plots. They need matplotlib: the extra `plot`.",
        [
            "ShapeDisplay",
            "ImportanceDisplay",
            "BudgetDisplay",
            "PrivacyUtilityDisplay",
            "PrivateRocCurveDisplay",
            "PrivateCalibrationDisplay",
            "PrivateCountsDisplay",
            "AuditDisplay",
            "GSDRankingDisplay",
            "ProjectionErrorDisplay",
        ],
    ),
    "statements": (
        "Guarantees, files and errors",
        "The guarantee of each model, models in files, and what is raised and warned of.",
        [
            "PrivacyGuarantee",
            "load",
            "Released",
            "PrivacyError",
            "PrivacyBudgetError",
            "ClusterError",
            "PrivacyWarning",
            "PublicDataWarning",
        ],
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


def write_reference(folder):
    """Write a page for each subject, and one that shows all."""
    folder.mkdir(exist_ok=True)
    pages = "\n".join(f"   {name}" for name in SUBJECTS)
    parts = [
        heading("API reference"),
        "Every public name, by subject. Parameters that matter most stand first in each signature; "
        "the later ones have defaults that can be left alone.\n\n",
        f".. toctree::\n   :hidden:\n\n{pages}\n\n.. currentmodule:: dpsubspace\n\n",
    ]
    for page, (title, words, names) in SUBJECTS.items():
        module = ".. currentmodule:: dpsubspace\n\n"
        body = summary(names, ":nosignatures:", ":toctree: generated")
        write(folder / f"{page}.rst", heading(title) + module + f"{words}\n\n{body}")
        parts.append(f"{heading(title, '-')}{words}\n\n{summary(names, ':nosignatures:')}\n")
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
    return {"parallel_read_safe": True, "parallel_write_safe": True}
