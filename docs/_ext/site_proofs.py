"""The proofs: a page for each family of released quantities, written from docstrings.

``python docs/_ext/site_proofs.py`` prints the list. The table says which functions release a
quantity and which docstrings prove how far one record moves it; everything else on the pages is
read from the code. Nothing is imported. ``tests/house/test_proofs.py`` holds that no release and no
bound is missing, and that the fit which is named as the replay really takes the release.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dpsubspace"

# Methods of `Releases` by which a number leaves the records, and the function that adds the noise.
DOORS = {
    "gaussian": "_core.release.mechanisms.release",
    "jointly": "_core.release.mechanisms.release",
    "laplace": "_core.release.mechanisms.release_laplace",
    "direction": "_core.release.mechanisms.release_direction",
    "subspace": "_core.release.mechanisms.release_subspace",
    "choice": "_core.release.mechanisms.release_choice",
}
# What makes a sum with a bound; all of it is in `_core/release/mechanisms.py`.
MAKERS = {
    *("BoundedSum", "BoundedL1Sum", "BoundedScores", "vector_sum", "gram_sum", "energy_sum"),
    *("trace_sum", "score_sum"),
}
# Bounded sums that are never released: their units tell a scale of noise from public numbers.
NEVER_RELEASED = {"_core.statistics.counts.noise_of_parts", "_core.solvers.equations._noise_of_one"}

BOUNDS = "claims/test_bounds.py::test_every_release_of_a_fit_moves_within_its_bound"
SCORES = "claims/test_score_cells.py::test_one_record_moves_every_release_within_its_bound"
CHOICES = "claims/test_held_out.py::test_one_record_moves_scores_within_their_bounds"
RANKING = "claims/test_choice.py::test_one_record_moves_scores_within_their_bounds"
BLOCKS = (
    "claims/test_least_squares.py::test_a_null_record_moves_releases_by_no_more_than_is_charged"
)
COUNTS = (
    "estimators/test_table_counts.py::"
    "test_neighbours_move_every_release_of_a_table_by_its_bound_at_most"
)
DRAWN = "estimators/test_pca.py::test_every_draw_has_the_range_that_is_charged"
DRAWN_AT_ONCE = "estimators/test_pca.py::test_a_drawn_subspace_has_the_range_that_is_charged"
ENERGIES = "units/test_bingham.py::test_bounds_of_energies_cover_every_move_and_are_reached"
SEARCH = (
    "workflow/test_private_search.py::"
    "test_a_record_is_in_the_fits_or_in_the_scores_and_moves_them_within_their_bounds"
)


@dataclass(frozen=True)
class Quantity:
    """Something that is released, and where its proof stands."""

    title: str
    released_by: str  # The function that asks for the release, by its name within the package
    proof: tuple[str, ...]  # Functions and classes whose docstrings are the proof
    case: tuple[str, str] | None  # Row and setting of `tests/cases.py` which is replayed
    replay: str = BOUNDS  # The test that replays it, by its path below `tests/`

    @property
    def doors(self) -> list[str]:
        """The methods of `Releases` that it leaves by."""
        return [door for function, door in releases() if function == self.released_by]


FAMILIES = {
    "gradients": (
        "Gradients and intercepts",
        [
            Quantity(
                "The sum of clipped gradients of a step",
                "_core.solvers.descent.train",
                ("_core.gradients.clipping.clipped_sum", "_core.solvers.descent.train"),
                ("DPSGDClassifier", "plain"),
            ),
            Quantity(
                "The parts of the gradients of a step along public directions and off them",
                "_core.solvers.descent.train",
                ("_core.solvers.descent.GEPStep", "_core.solvers.descent.train"),
                ("GEPClassifier", "gradients"),
            ),
            Quantity(
                "The length of scores and the shift of the intercepts",
                "_core.solvers.intercepts.noisy_map",
                ("_core.solvers.intercepts.residual_sum", "_core.solvers.intercepts.noisy_map"),
                ("DPSGDClassifier", "plain"),
            ),
        ],
    ),
    "means": (
        "Means, and how far rows are from them",
        [
            Quantity(
                "The mean of rows",
                "_core.statistics.means.noisy_mean",
                ("_core.statistics.means.bounded_row_sum", "_core.statistics.means.noisy_mean"),
                ("DPSGDFClassifier", "plain"),
            ),
            Quantity(
                "The mean of rows about a centre that was searched for",
                "_core.statistics.means.searched_mean",
                (
                    "_core.statistics.means.bounded_row_sum",
                    "_core.statistics.means.recentred_mean",
                    "_core.statistics.means.searched_mean",
                ),
                ("private_mean", "gaussian"),
            ),
            Quantity(
                "The mean square of the lengths of rows",
                "_core.statistics.means.noisy_spread",
                ("_core.statistics.means.noisy_spread",),
                ("DPPCA", "adaptive, public bound"),
            ),
            Quantity(
                "Centre and width of targets",
                "_core.statistics.means.noisy_focus",
                ("_core.statistics.means.noisy_focus",),
                ("TabularPipeline", "target"),
            ),
            Quantity(
                "What columns hold of the length of rows",
                "_core.statistics.means.noisy_column_shares",
                ("_core.statistics.means.noisy_column_shares",),
                ("DPSGDRegressor", "public bounds"),
            ),
            Quantity(
                "Means and squares of columns between known ends",
                "_core.statistics.shapes.noisy_standard",
                ("_core.statistics.shapes.noisy_standard",),
                ("DPLinearRegression", "public ranges"),
            ),
        ],
    ),
    "counts": (
        "Counts, quantiles and ranges",
        [
            Quantity(
                "A radius that holds a share of the rows",
                "_core.statistics.counts.noisy_radius",
                ("_core.statistics.counts.noisy_radius", "_core.statistics.counts._count"),
                ("DPSGDFClassifier, adaptive", "plain"),
            ),
            Quantity(
                "Means of numbers between 0 and 1",
                "_core.statistics.counts.noisy_shares",
                ("_core.statistics.counts.noisy_shares",),
                ("GEPClassifier", "plain"),
            ),
            Quantity(
                "Means of how a whole is divided into parts",
                "_core.statistics.counts.noisy_parts",
                ("_core.statistics.counts.noisy_parts",),
                ("private_projection_error", "plain"),
            ),
            Quantity(
                "Ranges of columns, by counts of powers of 2",
                "_core.statistics.counts.noisy_ranges",
                ("_core.statistics.counts.noisy_ranges",),
                ("private_covariance", "origin"),
            ),
            Quantity(
                "Quantiles, by a noisy binary search",
                "_core.statistics.quantiles.noisy_quantiles",
                ("_core.statistics.quantiles.noisy_quantiles",),
                ("private_quantile", "public range"),
            ),
            Quantity(
                "Location and scale of columns, by a map of counts",
                "_core.statistics.cell_maps.released_maps",
                (
                    "_core.statistics.cell_maps.CellMap",
                    "_core.statistics.cell_maps.CellMap.of_counts",
                ),
                ("PublicSubspaceLinearRegression", "features"),
            ),
        ],
    ),
    "tables": (
        "Tables that are published",
        [
            Quantity(
                "Counts of the cells of a table",
                "_core.plans.counts._released",
                (
                    "_core.statistics.table_cells.counts_sum",
                    "_core.statistics.table_cells.counts_l1_sum",
                ),
                ("private_counts", "plain"),
                COUNTS,
            ),
            Quantity(
                "Counts in a summary",
                "_core.plans.summary.SummaryPlan._counts",
                ("_core.statistics.table_cells.counts_sum",),
                ("private_summary", "plain"),
            ),
            Quantity(
                "Sums and squares of numbers, by group",
                "_core.plans.summary.SummaryPlan._sums",
                ("_core.statistics.table_cells.unit_total",),
                ("private_summary", "plain"),
            ),
            Quantity(
                "Quantiles of columns, by group",
                "_core.statistics.table_cells.searched_quantiles",
                (
                    "_core.statistics.table_cells.searched_quantiles",
                    "_core.statistics.table_cells.counts_sum",
                ),
                ("private_summary", "plain"),
            ),
        ],
    ),
    "moments": (
        "Second moments and directions",
        [
            Quantity(
                "A second moment",
                "_core.statistics.moments.noisy_moment",
                ("_core.release.mechanisms.gram_sum", "_core.statistics.moments.second_moment"),
                ("DPPCA", "gaussian"),
            ),
            Quantity(
                "Products of the power iteration, and the moment within its directions",
                "_core.statistics.moments.NoisyPower.__call__",
                (
                    "_core.statistics.moments.product_with",
                    "_core.statistics.moments.projected_moment",
                ),
                ("DPPCA", "power"),
            ),
            Quantity(
                "A direction that is drawn",
                "_core.statistics.moments.Bingham.__call__",
                (
                    "_core.statistics.moments.Bingham.__call__",
                    "_core.release.mechanisms.gram_sum",
                    "_core.release.mechanisms.release_direction",
                ),
                ("DPPCA, drawn directions", "plain"),
                DRAWN,
            ),
            Quantity(
                "A subspace that is drawn",
                "_core.statistics.moments.MatrixBingham.__call__",
                (
                    "_core.statistics.moments.MatrixBingham.__call__",
                    "_core.release.mechanisms.trace_sum",
                    "_core.release.mechanisms.release_subspace",
                ),
                ("DPPCA, a drawn subspace", "plain"),
                DRAWN_AT_ONCE,
            ),
            Quantity(
                "Energies along released directions",
                "_core.statistics.moments._with_energies",
                ("_core.release.mechanisms.energy_sum", "_core.statistics.moments._with_energies"),
                ("DPPCA, drawn directions", "plain"),
                ENERGIES,
            ),
        ],
    ),
    "regression": (
        "Linear and logistic regression",
        [
            Quantity(
                "Moments and products of adaptive sufficient statistics",
                "_core.solvers.least_squares.AdaSSP.__call__",
                (
                    "_core.solvers.least_squares._statistics",
                    "_core.solvers.least_squares.AdaSSP.__call__",
                ),
                ("DPLinearRegression", "AdaSSP"),
            ),
            Quantity(
                "How long residuals are, in a block of records",
                "_core.solvers.least_squares._Block.residual_size",
                (
                    "_core.solvers.least_squares._Block.residual_size",
                    "_core.accounting.budget.Part",
                ),
                None,
                BLOCKS,
            ),
            Quantity(
                "Clipped gradients of a block of records",
                "_core.solvers.least_squares._Block.gradient",
                ("_core.gradients.clipping.clipped_sum", "_core.accounting.budget.Part"),
                None,
                BLOCKS,
            ),
            Quantity(
                "Columns of a regression",
                "_core.solvers.equations._released_columns",
                ("_core.solvers.design.column_sum_of",),
                ("private_coefficients", "plain"),
            ),
            Quantity(
                "Moments of standardised rows, and curvatures, of a regression",
                "_core.statistics.moments.noisy_moment",
                (
                    "_core.solvers.design.curvature_sum",
                    "_core.solvers.design.moment_sum",
                ),
                ("private_coefficients", "odds"),
            ),
            Quantity(
                "Scores of a regression",
                "_core.solvers.equations._released_score",
                (
                    "_core.solvers.design.score_sum_of",
                    "_core.solvers.equations.released_equations",
                ),
                ("private_coefficients", "odds"),
            ),
            Quantity(
                "How long scores and curvatures of rows are",
                "_core.solvers.equations._released_cuts",
                ("_core.solvers.design.size_counts",),
                ("private_coefficients", "plain"),
            ),
            Quantity(
                "The last score with the mass of what is cut, and what intervals need",
                "_core.solvers.equations._released_last",
                (
                    "_core.solvers.design.score_sum_of",
                    "_core.solvers.design.mass_sum",
                    "_core.solvers.design.curvature_sum",
                    "_core.solvers.design.moment_of_scores",
                ),
                ("private_coefficients", "odds"),
            ),
        ],
    ),
    "persons": (
        "Personal models",
        [
            Quantity(
                "Sums over pairs of rows of a person",
                "_core.solvers.personal.released_pairs",
                ("_core.solvers.personal.released_pairs",),
                ("PersonalizedLinearRegression", "plain"),
            ),
            Quantity(
                "Whether directions of public tasks help",
                "_core.solvers.personal.released_doubt",
                ("_core.solvers.personal.released_doubt",),
                ("PersonalizedLinearRegression", "public tasks"),
            ),
            Quantity(
                "A round of gradients of the directions",
                "_core.solvers.personal.gradient_round",
                ("_core.solvers.personal.gradient_round",),
                ("PersonalizedLinearRegression", "public tasks"),
            ),
            Quantity(
                "A round of moments of the directions",
                "_core.solvers.personal.moments_round",
                ("_core.solvers.personal.moments_round", "_core.solvers.personal.gradient_round"),
                ("PersonalizedLinearRegression", "moments"),
            ),
            Quantity(
                "What the persons' own weights are like",
                "_core.solvers.personal.released_heads",
                ("_core.solvers.personal.released_heads",),
                ("PersonalizedLinearRegression", "plain"),
            ),
            Quantity(
                "Which kind of own weights does well",
                "_core.solvers.personal.released_comparison",
                ("_core.solvers.personal.released_comparison",),
                ("PersonalizedLinearRegression", "plain"),
            ),
        ],
    ),
    "evaluation": (
        "Scores, calibration and intervals",
        [
            Quantity(
                "Counts of labels and scores",
                "_core.plans.score_release.RowScores._counts",
                ("_core.statistics.score_cells.counted",),
                ("private_score", "plain"),
                SCORES,
            ),
            Quantity(
                "Means of losses and errors",
                "_core.plans.score_release.RowScores._means",
                (
                    "_core.statistics.score_cells.bounded_sums",
                    "_core.statistics.score_cells.grouped_sums",
                ),
                ("private_score", "numbers of groups"),
                SCORES,
            ),
            Quantity(
                "Differences of losses and errors of two models",
                "_core.plans.score_difference.DifferencePlan._means",
                (
                    "_core.statistics.score_cells.difference_sums",
                    "_core.statistics.score_cells.counted",
                ),
                ("private_score_difference", "errors"),
                SCORES,
            ),
            Quantity(
                "Rows that one of two models is right about",
                "_core.plans.score_difference.DifferencePlan._outcomes",
                ("_core.statistics.score_cells.counted",),
                ("private_score_difference", "labels"),
                SCORES,
            ),
            Quantity(
                "Counts of labels and the scores of two models",
                "_core.plans.score_difference.DifferencePlan._cells",
                ("_core.statistics.score_cells.counted",),
                ("private_score_difference", "areas"),
                SCORES,
            ),
            Quantity(
                "The map of a calibrated classifier",
                "_core.plans.calibration.CalibrationPlan.run",
                (
                    "_core.statistics.score_cells.root_scores",
                    "_core.release.mechanisms.release_choice",
                ),
                ("DPCalibratedClassifier", "plain"),
                CHOICES,
            ),
            Quantity(
                "The threshold of conformal sets and intervals",
                "_core.plans.conformal.ConformalPlan.run",
                (
                    "_core.statistics.score_cells.rank_scores",
                    "_core.release.mechanisms.release_choice",
                ),
                ("DPConformalClassifier", "plain"),
                CHOICES,
            ),
        ],
    ),
    "choices": (
        "Choices among candidates",
        [
            Quantity(
                "Which public set is chosen",
                "_core.plans.choice.ChoicePlan.run",
                (
                    "_core.release.mechanisms.score_sum",
                    "_core.statistics.score_cells.ScoreTotal",
                    "_core.statistics.score_cells.ScoreTotal.bounded_sum",
                    "_core.release.mechanisms.release_choice",
                ),
                ("select_public", "plain"),
                RANKING,
            ),
            Quantity(
                "The score of a trial of a search",
                "_core.plans.search.TrialScorePlan.run",
                (
                    "_core.statistics.score_cells.score_total",
                    "_core.statistics.score_cells.count_sum",
                    "_core.statistics.score_cells.share_sums",
                    "_core.plans.search.TrialScorePlan",
                    "_core.release.releases.draw_trials",
                ),
                None,
                SEARCH,
            ),
        ],
    ),
}

# What all proofs rest on, in the order in which to read it.
FOUNDATIONS = (
    "_core.rows.records",
    "_core.release.mechanisms.BoundedSum.on_lattice",
    "_core.release.mechanisms.vector_sum",
    "_core.ground.arrays.sum_slack",
    "_core.release.mechanisms.release",
    "_core.release.noise.lattice_normals",
    "_core.release.mechanisms.release_laplace",
    "_core.release.noise.lattice_laplace",
    "_core.release.mechanisms.release_direction",
    "_core.release.mechanisms.release_subspace",
    "_core.release.mechanisms.release_choice",
    "_core.release.releases.Releases",
    "_core.release.releases.Releases.jointly",
    "_core.accounting.budget.Part",
    "_core.accounting.accountants.bounded_range_curve",
)

QUANTITIES = [each for _, quantities in FAMILIES.values() for each in quantities]


# Reading the code -------------------------------------------------------------------------------


@functools.cache
def tree(module: str) -> ast.Module:
    """Give the code of a module."""
    return ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))


def modules() -> Iterator[str]:
    """Give the names of all modules within the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def found(name: str) -> tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef]:
    """Module and node of a name such as ``_core.release.releases.Releases.jointly``."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        if (PACKAGE / f"{module.replace('.', '/')}.py").exists():
            break
    else:
        raise LookupError(name)
    node: ast.Module | ast.ClassDef | ast.FunctionDef = tree(module)
    for part in parts[end:]:
        inside = [each for each in node.body if getattr(each, "name", None) == part]
        if not inside:
            raise LookupError(name)
        node = inside[0]  # type: ignore[assignment]
    return module, node


@functools.cache
def calls_in_functions() -> tuple[tuple[str, ast.Call], ...]:
    """Every call of the package, with the outermost function that it stands in."""
    found = []

    def within(node: ast.Module | ast.ClassDef, name: str) -> None:
        for child in node.body:
            inside = f"{name}.{getattr(child, 'name', '')}".rstrip(".")
            if isinstance(child, ast.ClassDef):
                within(child, inside)
            else:
                found.extend((inside, call) for call in ast.walk(child) if type(call) is ast.Call)

    for module in modules():
        within(tree(module), module)
    return tuple(found)


@functools.cache
def releases() -> tuple[tuple[str, str], ...]:
    """Function and door of every call that takes a release."""
    found = {}
    for function, call in calls_in_functions():
        if isinstance(call.func, ast.Attribute) and call.func.attr in DOORS:
            receiver = ast.unparse(call.func.value)
            if not re.search(r"\b(rng|noise|source|self)$", receiver):
                found[function, call.func.attr] = None
    return tuple(found)


@functools.cache
def bounds() -> dict[str, list[str]]:
    """Every function that makes a bounded sum, with the calls that state the bounds."""
    found: dict[str, list[str]] = {}
    for function, call in calls_in_functions():
        name = call.func.id if isinstance(call.func, ast.Name) else None
        if name in MAKERS and not function.startswith("_core.release.mechanisms."):
            found.setdefault(function, []).append(ast.unparse(call))
    return found


# Writing pages ----------------------------------------------------------------------------------


def docstring(name: str) -> str:
    """The docstring of a name, without sections of parameters."""
    text = ast.get_docstring(found(name)[1]) or ""
    return re.split(r"\n\n[A-Z][a-z ]+\n-{3,}\n", text)[0]


def as_rst(text: str) -> str:
    """A docstring of the package as reStructuredText, which most of it is by accident only."""
    paragraphs = []
    for block in re.split(r"\n{2,}", text):
        lines = block.split("\n")
        listed = re.match(r" *([*-]|\d+\.) ", lines[0])
        if lines[0].startswith("    ") and not listed:
            before = paragraphs[-1] if paragraphs else ""
            start = "" if before.endswith("::") else "::\n\n"
            paragraphs.append(start + block)
        elif set(lines[0].strip()) <= {"=", " "}:
            paragraphs.append(block)
        else:
            paragraphs.append(_inline(block))
    return "\n\n".join(paragraphs)


def _inline(block: str) -> str:
    """Code stays code; all else has no markup, but for the signs of lists."""
    block = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"``\1``", block)
    parts = re.split(r"(``.+?``|`[^`]+`)", block, flags=re.S)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = "``" + part.strip("`").replace("\n", " ") + "``"
        else:
            part = re.sub(r"(?<!^)(?<!\n)\*|\|", lambda sign: "\\" + sign[0], part)
            parts[i] = re.sub(r"(?<=\w)_(?!\w)", r"\_", part)
    return "".join(parts)


def where(name: str) -> str:
    """File and name of a function, as a reader finds it."""
    module, _ = found(name)
    rest = name.removeprefix(module).lstrip(".")
    file = f"``dpsubspace/{module.replace('.', '/')}.py``"
    return f"``{rest}`` in {file}" if rest else file


def statement(quantity: Quantity) -> str:
    """First sentence of the first docstring."""
    return docstring(quantity.proof[0]).split("\n\n")[0].replace("\n", " ")


def assumed(quantity: Quantity) -> list[str]:
    """What the functions that add the noise say of arithmetic."""
    texts = "\n\n".join(docstring(DOORS[door]) for door in quantity.doors)
    return [each for each in texts.split("\n\n") if each.startswith("Floating point:")]


def heading(title: str, line: str) -> str:
    """Give a title of reStructuredText."""
    return f"{title}\n{line * len(title)}"


def proof_of(name: str) -> str:
    """A docstring under the name of its function."""
    return f"*In* {where(name)}:\n\n{as_rst(docstring(name))}"


def section(quantity: Quantity) -> str:
    """All about a quantity."""
    stated = bounds()
    code = [each for name in quantity.proof for each in stated.get(name, ())]
    # What stands in the methods of a class whose docstring is the proof.
    for name, each in stated.items():
        code += each if name.rpartition(".")[0] in quantity.proof else []
    facts = [
        f":Statement: {_inline(statement(quantity))}",
        f":Released by: {where(quantity.released_by)}",
        *(
            f":Noise by: {where(DOORS[door])}, through ``Releases.{door}``"
            for door in quantity.doors
        ),
        *(f":Bound in the code: ``{each}``" for each in code),
        f":Replayed by: ``tests/{quantity.replay}``",
        *(f":Row and setting: {', '.join(quantity.case)}" for _ in [0] if quantity.case),
    ]
    parts = [
        heading(quantity.title, "-"),
        "\n".join(facts),
        heading("Proof", "~"),
        *map(proof_of, quantity.proof),
        heading("What remains assumed", "~"),
        *map(as_rst, assumed(quantity)),
        "Besides, what :doc:`foundations` assume: bits that nobody can predict, and public numbers "
        "that are public.",
    ]
    return "\n\n".join(parts)


def pages() -> dict[str, str]:
    """Name and text of every page."""
    made = {
        name: "\n\n".join([heading(title, "="), *map(section, quantities)]) + "\n"
        for name, (title, quantities) in FAMILIES.items()
    }
    made["foundations"] = "\n\n".join(
        [
            heading("What all proofs rest on", "="),
            "A record of several rows, rounding, noise, joint releases, blocks and choices.",
            *(f"{heading(name.split('.')[-1], '-')}\n\n{proof_of(name)}" for name in FOUNDATIONS),
        ]
    )
    made["index"] = index()
    return made


def index() -> str:
    """The list of all, with links."""
    names = "\n".join(f"   {name}" for name in ("foundations", *FAMILIES))
    lines = [
        heading("Proofs", "="),
        f"The package releases {len(QUANTITIES)} kinds of quantities, and nothing else leaves the "
        "private rows. Each has a section with its statement, how far one record moves it, the "
        "proof, the function, the test that replays it on neighbouring data, and what remains "
        "assumed. All of it is written from the docstrings of the code, and a test holds that no "
        "release is missing. :doc:`/privacy_promise` grades the limits of the whole.",
        f".. toctree::\n   :hidden:\n\n{names}",
    ]
    for name, (_, quantities) in FAMILIES.items():
        rows = [
            f"   * - {each.title}\n     - {where(each.released_by)}\n"
            f"     - ``{each.replay.split('::')[0]}``"
            for each in quantities
        ]
        head = "   * - Quantity\n     - Released by\n     - Replayed by"
        table = ".. list-table::\n   :header-rows: 1\n   :widths: 40 40 20\n"
        lines += [f":doc:`{name}`", "\n".join([table, head, *rows])]
    return "\n\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Write a page, and leave it alone where nothing changed: it is then not built again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app):
    """Write the pages before they are read."""
    folder = Path(app.srcdir) / "proofs"
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        write(folder / f"{name}.rst", text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    for each in QUANTITIES:
        print(f"{each.title}\n    {each.released_by}\n    tests/{each.replay}")
