"""Which examples the gallery runs, in which order, and with which warnings."""

import importlib.util
import os
import re
import warnings
from pathlib import Path

from dpsubspace import PrivacyWarning

EXAMPLES = Path(__file__).parents[2] / "examples"
outside = []  # the warnings of the build, while an example runs
FIRST = ["plot_quickstart.py", "plot_tabular_pipeline.py"]


class Order:
    """What to read first, then all others by name."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name):
        """Give what a name is sorted by."""
        return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def pattern_of_those_that_run():
    """Say which examples are run, as a pattern of paths.

    Those that need torch run where there is torch, as tests do, and else stand without output.
    """
    run = sorted(EXAMPLES.glob("plot_*.py"))
    if importlib.util.find_spec("torch") is None:
        run = [
            path for path in run if not re.search(r"^(import|from) torch", path.read_text(), re.M)
        ]
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
    warnings.simplefilter("always", PrivacyWarning)
    warnings.showwarning = print_warning
