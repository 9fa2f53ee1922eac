"""Which examples the gallery runs, in which sections and order, and with which warnings."""

import importlib.util
import os
import re
import warnings
from pathlib import Path

from dpsubspace import PrivacyWarning

EXAMPLES = Path(__file__).parents[2] / "examples"
SECTIONS = ["tables", "scores", "models", "public_data", "budgets"]  # after the first steps
outside = []  # the warnings of the build, while an example runs
# In the order in which to read them; what is not named here follows, by name.
READING = [
    *("tabular_pipeline", "tabular_regression", "descriptive_table", "coefficients"),
    *("two_page_result", "persons", "table_encoder"),
    *("private_evaluation", "calibrated_probabilities", "private_search", "audit"),
    *("linear_regression", "sparse_regression", "bounded_scaler", "centred_rows", "private_pca"),
    *("deep_features", "torch_module", "fine_tuning", "personal_models", "dask"),
    *("choose_public_data", "pick_public_rows", "gep_classifier", "gep_regressor", "gep_residual"),
    *("public_subspace_regression", "set_distances", "projection_error"),
    *("one_budget", "cost_of_fits", "privacy_utility"),
]


class Order:
    """Examples in the order in which to read them."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name):
        """Give what a name is sorted by."""
        subject = name.removeprefix("plot_").removesuffix(".py")
        return (READING.index(subject) if subject in READING else len(READING), name)


def pattern_of_those_that_run():
    """Say which examples are run, as a pattern of paths.

    Those that need torch run where there is torch, as tests do, and else stand without output.
    So do those that need Dask.
    """
    run = sorted(EXAMPLES.rglob("plot_*.py"))
    absent = [name for name in ("torch", "dask") if importlib.util.find_spec(name) is None]
    if absent:
        needs = re.compile(rf"^(import|from) ({'|'.join(absent)})\b", re.M)
        run = [path for path in run if not needs.search(path.read_text())]
    return rf"{re.escape(os.sep)}({'|'.join(path.stem for path in run)})\.py"


def print_warning(message, category, *_, **__):
    """Print a warning among the output of an example, where readers see it."""
    print(f"{category.__name__}: {message}")


def own_warnings(gallery, name, when):
    """Let no example silence the warnings of the next, nor of what builds the site.

    Warnings of this package may hang on the noise and are printed; all others are errors.
    """
    if when == "after":
        warnings.filters[:], warnings.showwarning = outside.pop()
        return
    outside.append((warnings.filters[:], warnings.showwarning))
    warnings.resetwarnings()
    warnings.simplefilter("error")
    # A build on a machine with a screen draws into files all the same.
    warnings.filterwarnings("ignore", message=".*is non-interactive")
    # The gallery asks for what an example uses by the shortest path, which may be one of before.
    warnings.filterwarnings("ignore", category=FutureWarning, module="sphinx_gallery")
    # Dask writes Parquet files by what the next pandas will not have any more.
    warnings.filterwarnings("ignore", message="The inplace keyword")
    warnings.simplefilter("always", PrivacyWarning)
    warnings.showwarning = print_warning
