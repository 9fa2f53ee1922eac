"""What the tests notice: bounds, noises and charges broken by a factor, one at a time.

``python benchmarks/mutants.py`` copies the checkout to a temporary folder and breaks one thing
after another there. Each time it runs the tests that should notice, but for those marked
``exhaustive`` or ``cluster``, and it prints a table of what noticed. What survives is a claim
without a test. A file of tests that does not pass without a mutant would notice everything, so each
has to pass before it judges. ``--tests FOLDER`` takes the tests of another checkout, ``--only
TEXT`` what has that in its name. Mutants of Dask need Dask, and are left out without it. It needs a
system that can fork: libraries are imported once, and each mutant has a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# Imported before the forks.
LIBRARIES = ["numpy", "scipy.stats", "scipy.optimize", "scipy.sparse", "sklearn.linear_model"]
LIBRARIES += ["sklearn.model_selection", "pandas", "joblib", "dp_accounting.pld"]
LIBRARIES += ["dp_accounting.rdp", "sklearn.calibration", "sklearn.utils.estimator_checks"]
LIBRARIES += ["hypothesis.strategies", "hypothesis.extra.numpy", "_hypothesis_pytestplugin"]


class Mutant(NamedTuple):
    """A text of a file that stands there once, what it becomes, and which tests should notice."""

    file: str
    old: str
    new: str
    tests: str

    @property
    def name(self) -> str:
        """The file and what stands there."""
        return f"{self.file}: {' '.join(self.old.split())[:60]}"

    @property
    def paths(self) -> list[str]:
        """Files of the tests that should notice."""
        return [f"tests/{name}" for name in self.tests.split()]


BOUNDS, NOISE, SUMS = "claims/test_bounds.py", "claims/test_noise.py", "claims/test_sums.py"
PERSONS, FROZEN, LATTICE = (f"claims/test_{x}.py" for x in ("persons", "frozen", "lattice"))
HOSTILE, LEAST = "claims/test_regression_hostile.py", "claims/test_least_squares.py"
MANY = "claims/test_many_rows.py"
CELLS, CHOICE, HELD = (f"claims/test_{x}.py" for x in ("score_cells", "choice", "held_out"))
REGRESSION = "estimators/test_linear_regression.py"
RELEASES, PARTS = "claims/test_releases.py", "claims/test_dask_privacy.py"
ACCOUNTING, LEDGER = "units/test_accounting.py", "workflow/test_ledger.py"
WORKERS, SEEN = "workflow/test_ledger_workers.py", "workflow/test_ledger_seen.py"
BATCHES, PLACES = "claims/test_batches.py", "claims/test_places.py"
TYPES = "claims/test_types_of_rows.py"

MUTANTS = [
    # Numbers that add up or have an order, and what is told before a charge.
    *(
        Mutant(file, old, new, tests)
        for file, old, new, tests in [
            (
                "_core/statistics/table_cells.py",
                "    begin = np.minimum.accumulate(low[..., ::-1], axis=-1)[..., ::-1]",
                "    begin = np.sort(low, axis=-1)",
                "estimators/test_table_counts.py",
            ),
            (
                "statistics/_table_summary.py",
                "        outside = any(e.group == NO_GROUP and e.value > 0 for e in counted)",
                "        outside = False",
                "estimators/test_table_counts.py",
            ),
            (
                "_core/statistics/table_cells.py",
                "    return np.minimum(low, value), np.maximum(high, value)",
                "    return np.minimum(low, value), high",
                "estimators/test_table_counts.py",
            ),
            (
                "_core/plans/score_noise.py",
                "return needed * (1 + _SURE / CLEAR) <= size",
                "return needed <= size",
                "estimators/test_private_score.py",
            ),
            (
                "_core/plans/score_noise.py",
                "    _warn_of_noise(asked, budget, sizes)\n",
                "",
                "estimators/test_private_score.py",
            ),
            (
                "_core/plans/score_noise.py",
                "clear &= bar * (1 + _SURE / CLEAR_VARIANCE) <=",
                "clear &= bar / 3 <=",
                "estimators/test_private_score.py",
            ),
            (
                "_core/gradients/reach.py",
                "    for _ in range(_DRAWS):",
                "    for _ in range(0):",
                "estimators/test_torch_models.py",
            ),
            (
                "_core/gradients/reach.py",
                "        ties = label == 0 and not self.limits.above",
                "        ties = label == 0",
                "estimators/test_torch_models.py",
            ),
        ]
    ),
    *(
        Mutant("_core/solvers/design.py", old, new, "estimators/test_coefficients.py")
        for old, new in [
            ("limits = self.room * most", "limits = 1.1 * self.room * most"),
            ("limits = self.room * math.sqrt(most)", "limits = 1.1 * self.room * math.sqrt(most)"),
            ("square = 2 * n_numbers + (1", "square = n_numbers + (1"),
            ("* design.lengths - most, 0.0, bound)", "* design.lengths - most, 0.0, 3 * bound)"),
            (
                "counts_sum(np.concatenate(counts), n_tables=2)",
                "counts_sum(np.concatenate(counts))",
            ),
        ]
    ),
    # Rows that lie anywhere, that are read by their own value alone, and public ones.
    *(
        Mutant(file, old, new, tests)
        for file, old, new, tests in [
            (
                "_core/rows/remote.py",
                "len(ndims) == 1 and max([-1, *here]) < min(ndims)",
                "len(ndims) == 1 and max([-1, *here]) <= min(ndims)",
                "units/test_remote_rows.py",
            ),
            (
                "_core/rows/remote.py",
                'method == "__call__" and not options',
                "not options",
                "units/test_remote_rows.py",
            ),
            (
                "_core/gradients/torch_rows.py",
                "largest = [most - most % _AT_ONCE] if most > _AT_ONCE else []",
                "largest = [most]",
                PLACES,
            ),
            (
                "_core/gradients/torch_rows.py",
                "return _MORE_OFTEN * tried if _MORE_OFTEN * tried <= affordable else 0",
                "return 1",
                PLACES,
            ),
            (
                "_core/gradients/torch_rows.py",
                "and all(map(eq, found, next(iter(known.values()), found))):",
                "and True:",
                PLACES,
            ),
            (
                "_core/gradients/modules.py",
                "found = self.loss.residual(self.y[own], scores)",
                "found = self.loss.residual(self.y[index], scores[:k])",
                PLACES,
            ),
            (
                "_core/statistics/means.py",
                "first = vector_sum(total, math.sqrt(c), slack)",
                "first = vector_sum(total, 1.0, slack)",
                "units/test_focus.py",
            ),
            (
                "_core/statistics/means.py",
                "    most = 1 + np.abs(mean)\n",
                "    most = np.ones_like(mean)\n",
                "units/test_focus.py",
            ),
            (
                "_core/rows/same_rows.py",
                "special.bdtrc(t - 1, u, 1 / math.e) > _CHANCE",
                "special.bdtrc(t - 1, u, 1 / math.e) < 0",
                "contracts/test_same_rows.py",
            ),
            (
                "_core/rows/same_rows.py",
                "np.count_nonzero(counts == self.times)",
                "np.count_nonzero(counts)",
                "contracts/test_same_rows.py",
            ),
            (
                "_core/rows/columns.py",
                "return all(abs(value) < _EXACT",
                "return all(True",
                "contracts/test_labels.py",
            ),
            (
                "_core/tables/frames.py",
                "series.factorize() if not isinstance(dtype, np.dtype) else None",
                "series.factorize()",
                TYPES,
            ),
            (
                "_core/tables/kinds.py",
                "return found + 0.0",
                "return found",
                TYPES,
            ),
            (
                "_core/tables/schema.py",
                "elif kind.missing and isinstance(dtype, np.dtype)",
                "elif not kind.missing and isinstance(dtype, np.dtype)",
                TYPES,
            ),
            (
                "_core/accounting/cost.py",
                "whole = min(whole, rest.epsilon(delta - chance))",
                "whole = min(whole, rest.epsilon(delta))",
                BATCHES,
            ),
            (
                "_core/accounting/batches.py",
                "scale * rounding + infinite + float(scale[-1])",
                "scale * rounding + float(scale[-1])",
                BATCHES,
            ),
            (
                "_core/accounting/batches.py",
                "        masses[0] += below\n",
                "",
                BATCHES,
            ),
            (
                "_core/accounting/payer.py",
                "if len(_OPEN) + len(addresses) > 1:",
                "if len(_OPEN) > 1:",
                WORKERS,
            ),
            (
                "_core/solvers/relevance.py",
                "np.clip(own, least, most)",
                "np.minimum(own, most)",
                "units/test_relevance.py",
            ),
            (
                "model_selection/_search.py",
                'refuse_private_rows(found.pop("X", None), found)',
                "pass",
                "contracts/test_same_rows.py",
            ),
        ]
    ),
    # Batches: their losses, and how noise follows from them.
    *(
        Mutant(f"_core/accounting/{file}.py", old, new, BATCHES)
        for file, old, new in [
            ("batches", "up = (one - other * ratio", "up = 0.9 * (one - other * ratio"),
            ("batches", '"zero_out": ("there", "missing")', '"zero_out": ("missing",)'),
            ("batches", '"replaced": (1, -1)', '"replaced": (1,)'),
            ("batches", "log_mass += loss.count * total", "log_mass += total"),
            ("batches", "worst = np.maximum(worst, best)", "worst = best"),
            ("budget", "sq_mu = min(sq_mu, searched", "sq_mu = max(sq_mu, searched"),
            ("cost", "LARGEST_PURE = 100.0", "LARGEST_PURE = 1.0"),
            ("cost", "points <= MOST_POINTS and", "points <= 1e9 * MOST_POINTS or"),
        ]
    ),
    # Accounting: what is charged.
    *(
        Mutant(f"_core/accounting/{file}.py", old, new, tests)
        for file, old, new, tests in [
            (
                "events",
                'return 2 if neighboring_relation == "replace_one" else 1',
                "return 1",
                f"{ACCOUNTING} {LEDGER}",
            ),
            (
                "budget",
                "value = doubling(neighboring_relation) / value",
                "value = 2 * doubling(neighboring_relation) / value",
                f"{ACCOUNTING} {CELLS}",
            ),
            (
                "accountants",
                "event = dpa.GaussianDpEvent(part.value) if part.value",
                "event = dpa.GaussianDpEvent(2 * part.value) if part.value",
                f"{BOUNDS} {ACCOUNTING}",
            ),
            (
                "accountants",
                "event = dpa.PoissonSampledDpEvent(part.rate, event) if part.sampled",
                "event = dpa.PoissonSampledDpEvent(part.rate / 2, event) if part.sampled",
                f"{ACCOUNTING} {RELEASES} estimators/test_linear.py {NOISE}",
            ),
            (
                "accountants",
                "event = BoundedRangeDpEvent(part.value)",
                "event = BoundedRangeDpEvent(part.value / 2)",
                f"{CHOICE} {ACCOUNTING}",
            ),
            (
                "cost",
                "return math.fsum(total) * doubling(self.neighboring_relation) ** 2",
                "return math.fsum(total) * doubling(self.neighboring_relation)",
                f"{ACCOUNTING} {LEDGER}",
            ),
            (
                "cost",
                "middle = epsilon * sigma + 1 / (2 * sigma)",
                "middle = epsilon * sigma + 1 / sigma",
                f"{ACCOUNTING} {LEDGER}",
            ),
            (
                "accountants",
                "value = math.fsum(part.count / part.value**2 for part in inside) ** -0.5",
                "value = math.fsum(1 / part.value**2 for part in inside) ** -0.5",
                f"{ACCOUNTING} {LEDGER} {RELEASES}",
            ),
            (
                "accountants",
                "event.noise_multiplier / 2,",
                "event.noise_multiplier,",
                f"units/test_bingham.py {LEDGER}",
            ),
            (
                "accountants",
                "else replace(part, value=part.value / 2)",
                "else replace(part, value=part.value)",
                f"{ACCOUNTING} {LEDGER} workflow/test_private_search.py",
            ),
            (
                "budget",
                "Mechanism(self.kind, value, int(self.n_charged), float(self.rate))",
                "Mechanism(self.kind, value, 1, float(self.rate))",
                f"{ACCOUNTING} {BOUNDS}",
            ),
            (
                "budget",
                "return {name: whole * part.share / part.count for name, part in parts.items()}",
                "return {name: whole * part.share for name, part in parts.items()}",
                f"{RELEASES} estimators/test_pca.py {CELLS}",
            ),
        ]
    ),
    # Rows: what a record is, and how long its row.
    *(
        Mutant(f"_core/rows/{file}.py", old, new, tests)
        for file, old, new, tests in [
            (
                "records",
                "parts = np.floor(steps / np.maximum(counts, 1)) / steps",
                "parts = np.floor(2 * steps / np.maximum(counts, 1)) / steps",
                PERSONS,
            ),
            (
                "records",
                "min(24, 53 - (n_records - 1).bit_length())",
                "24",
                MANY,
            ),
            (
                "records",
                "weights if present is None else np.where(present, weights, 0.0), index",
                "weights, index",
                PERSONS,
            ),
            (
                "records",
                'if self.norm == "l2":\n            return 1.0',
                'if self.norm == "l2":\n            return 0.5',
                f"{SUMS} {BOUNDS}",
            ),
            (
                "records",
                "return float(np.hypot(self.data_norm or 0.0, self.bias or 0.0))",
                "return float(self.data_norm or 0.0)",
                f"{SUMS} {BOUNDS}",
            ),
            (
                "features",
                "X = xp.concat([self.X, more(self.X)], axis=1)",
                "X = xp.concat([self.X, more(self.X - self.X.mean(axis=0))], axis=1)",
                "units/test_interactions.py",
            ),
            (
                "records",
                "shrink = 1 - 4 * eps_of(X)",
                "shrink = 1 + 1e-3",
                f"{SUMS} {BOUNDS}",
            ),
            (
                "affine",
                "shrink = self.radius * (1 - 16 * EPS) / at_least(norms, self.radius)",
                "shrink = 2 * self.radius * (1 - 16 * EPS) / at_least(norms, self.radius)",
                f"{HOSTILE} {LEAST}",
            ),
            (
                "affine",
                "norms = norms + (U.shape[1] + 8) * EPS * (xp.abs(U) @ lengths)",
                "norms = norms / 2",
                HOSTILE,
            ),
            (
                "remote",
                "total.merge(other)",
                "pass",
                f"estimators/test_dask.py {PARTS}",
            ),
            (
                "dask_parts",
                "found = self._results(self._submit(_run,",
                "found = 2 * self._results(self._submit(_run,",
                PARTS,
            ),
            (
                "dask_parts",
                "return [_short(batch[first:last] - start) for (first, last), start in pairs]",
                "return [_short(batch[first:last][:1] - start) for (first, last), start in pairs]",
                f"estimators/test_dask.py {PARTS}",
            ),
            (
                "dataset_parts",
                "(info.path, info.size, info.mtime_ns)",
                "(info.path, info.size, 0)",
                "claims/test_datasets.py",
            ),
            (
                "chunks",
                "total.merge(other)",
                "total.add(other.bounded_sum())",
                PARTS,
            ),
            (
                "features",
                "            rows *= columns[None, :]\n",
                "            pass\n",
                "units/test_gradients.py",
            ),
        ]
    ),
    # Releases: the noise.
    *(
        Mutant(f"_core/release/{file}.py", old, new, tests)
        for file, old, new, tests in [
            (
                "mechanisms",
                "half = self.replace_bound / 2",
                "half = self.replace_bound / 4",
                f"{RELEASES} {NOISE}",
            ),
            (
                "mechanisms",
                "return max(self.norm_bound, half) if sampled else half",
                "return half",
                f"units/test_release.py {RELEASES} {NOISE}",
            ),
            (
                "mechanisms",
                "return BoundedSum(value, norm_bound * (1 + slack), norm_bound * (2 + slack))",
                "return BoundedSum(value, norm_bound * (1 + slack), norm_bound * (1 + slack))",
                f"{BOUNDS} {SUMS}",
            ),
            (
                "mechanisms",
                "return BoundedSum(value, square * widened, square * math.sqrt(2) * widened)",
                "return BoundedSum(value, square * widened, square * widened)",
                f"{SUMS} {BOUNDS}",
            ),
            (
                "mechanisms",
                "return BoundedL1Sum(value, square * (1 + slack), square * (2 + slack))",
                "return BoundedL1Sum(value, square * (1 + slack), square * (1 + slack))",
                f"estimators/test_pca.py {RELEASES} {SUMS}",
            ),
            (
                "mechanisms",
                "return BoundedScores(np.asarray(value, dtype=np.float64), 1.0, 2.0)",
                "return BoundedScores(np.asarray(value, dtype=np.float64), 1.0, 1.0)",
                CHOICE,
            ),
            (
                "mechanisms",
                "scale = noise_multiplier * raw.unit(neighboring_relation, sampled=sampled)",
                "scale = noise_multiplier * raw.unit(neighboring_relation, sampled=sampled) / 2",
                f"{RELEASES} {NOISE}",
            ),
            (
                "mechanisms",
                "self.norm_bound / step + moved, self.replace_bound / step + moved",
                "self.norm_bound / step, self.replace_bound / step",
                LATTICE,
            ),
            (
                "mechanisms",
                "_LEAST, _LARGEST = 2.0**-40, 2.0**66",
                "_LEAST, _LARGEST = 2.0**-40, 2.0**52",
                MANY,
            ),
            (
                "mechanisms",
                "bounds[neighboring_relation] / (epsilon - 1e-11 *",
                "bounds[neighboring_relation] / (2 * epsilon - 1e-11 *",
                f"{CELLS} {LATTICE}",
            ),
            (
                "mechanisms",
                '"replace_one": math.sqrt(2) * total.replace_bound,',
                '"replace_one": total.replace_bound,',
                f"units/test_release.py estimators/test_pca.py {RELEASES} units/test_bingham.py",
            ),
            (
                "mechanisms",
                "square + math.sqrt(n_components) * (total",
                "square + (total",
                "units/test_matrix_bingham.py",
            ),
            (
                "mechanisms",
                "matrix * (epsilon * (1 - 1e-6) / spread)",
                "matrix * (2 * epsilon / spread)",
                "units/test_matrix_bingham.py",
            ),
            (
                "mechanisms",
                "lost = behind * ((epsilon - min(1e-10, epsilon / 2)) / bounds",
                "lost = 1.3 * behind * ((epsilon - min(1e-10, epsilon / 2)) / bounds",
                CHOICE,
            ),
            (
                "releases",
                "                scale / math.sqrt(share),\n",
                "                scale,\n",
                f"{RELEASES} {BOUNDS} {NOISE}",
            ),
            (
                "releases",
                "if self._made[name] >= part.count:",
                "if self._made[name] > part.count:",
                f"{RELEASES} units/test_release.py",
            ),
            (
                "noise",
                "cells = np.floor(-ndtri(below / 2) * (scale / width))",
                "cells = np.floor(-ndtri(below / 2) * (0.8 * scale / width))",
                f"units/test_release.py {LATTICE} {NOISE}",
            ),
            (
                "noise",
                "(bits, (2, *shape))[0]) * (scale / width))",
                "(bits, (2, *shape))[0]) * (0.7 * scale / width))",
                f"{LATTICE} {CELLS}",
            ),
            (
                "noise",
                "return poisson_indices(self._bits, n, rate)",
                "return poisson_indices(self._bits, n, rate)[: round(n * rate)]",
                "units/test_sampling.py",
            ),
            (
                "noise",
                "return poisson_indices(self._bits, n, rate)",
                "return poisson_indices(self._bits, n, rate / 2)",
                f"units/test_sampling.py units/test_release.py {RELEASES}",
            ),
            (
                "noise",
                "self._powers.append(self._powers[-1] * (2**53 - chance))",
                "self._powers.append(self._powers[-1] * (2**53 - chance // 2))",
                "units/test_sampling.py",
            ),
            (
                "noise",
                "entered = passed < _PASSED",
                "entered = passed <= _PASSED",
                "units/test_sampling.py",
            ),
        ]
    ),
    # Gradients, and directions that public rows give.
    *(
        Mutant(file, old, new, tests)
        for file, old, new, tests in [
            (
                "_core/gradients/clipping.py",
                "return bound / at_least(norms, bound)",
                "return 2 * bound / at_least(norms, bound)",
                f"{BOUNDS} {SUMS}",
            ),
            (
                "_core/gradients/clipping.py",
                "weights.dtype, copy=False) * weights",
                "weights.dtype, copy=False) * 0 + weights",
                PERSONS,
            ),
            (
                "_core/gradients/clipping.py",
                "np.sqrt(np.maximum(squares, 0.0) + self.products)",
                "0.5 * np.sqrt(np.maximum(squares, 0.0) + self.products)",
                f"{PERSONS} units/test_person_gradients.py",
            ),
            (
                "_core/gradients/clipping.py",
                "self.weights * weights[self.runs.person]",
                "self.weights",
                f"{PERSONS} units/test_person_gradients.py",
            ),
            (
                "_core/gradients/factors.py",
                'mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode',
                'mode = "constant"',
                "units/test_layers_of_modules.py",
            ),
            (
                "_core/gradients/factors.py",
                "most = min(_LARGEST, torch.finfo(part.dtype).max)",
                "most = _LARGEST",
                "units/test_layers_of_modules.py",
            ),
            (
                "_core/gradients/modules.py",
                "return torch.maximum(rounded,",
                "return 0.5 * torch.maximum(rounded,",
                BOUNDS,
            ),
            (
                "_core/gradients/modules.py",
                "_CANCELLED * torch.sqrt(longer)",
                "0 * torch.sqrt(longer)",
                "units/test_layers_of_modules.py",
            ),
            (
                "_core/gradients/modules.py",
                "1.0 if t == 1 else t / _CANCELLED",
                "1.0",
                "units/test_layers_of_modules.py",
            ),
            (
                "_core/gradients/linear.py",
                "            self._norms[rows],\n            residuals,",
                "            self._norms[rows] / 2,\n            residuals,",
                f"{BOUNDS} {SUMS}",
            ),
            (
                "_core/gradients/clipping.py",
                "return xp.where(counts, norms, xp.full_like(norms, xp.inf))",
                "return xp.where(counts, norms / 2, xp.full_like(norms, xp.inf))",
                f"{SUMS} {PERSONS}",
            ),
            (
                "_core/public/anchors.py",
                "margin = 1.01 * (hidden * (1 + rounding) ** 2 + 3 * rounding + 8 * EPS)",
                "margin = 0.0",
                SUMS,
            ),
            (
                "_core/public/gradient_spaces.py",
                'features = Features(X, RowMap(norm="l2"))',
                "features = Features(X, RowMap(norm=None))",
                f"{BOUNDS} estimators/test_gsd.py",
            ),
            (
                "_core/gradients/linear.py",
                "        other._set_norms()\n        other._set_public(None)",
                "        other._set_public(None)",
                "units/test_gradients.py",
            ),
        ]
    ),
    # Statistics.
    *(
        Mutant(f"_core/statistics/{file}.py", old, new, tests)
        for file, old, new, tests in [
            (
                "counts",
                "BoundedSum(total, most + slack, math.sqrt(2) * most + slack)",
                "BoundedSum(total, most + slack, most + slack)",
                "estimators/test_diagnostics.py",
            ),
            (
                "counts",
                "BoundedSum(total, most + slack, math.sqrt(2) * most + slack)",
                "BoundedSum(total, most / 2 + slack, math.sqrt(2) * most + slack)",
                "estimators/test_diagnostics.py",
            ),
            (
                "counts",
                "values = values / np.maximum(values.sum(axis=1), 1.0)[:, None]",
                "pass",
                SUMS,
            ),
            (
                "shapes",
                "norm, replaced = np.sqrt(2 * size), 2 * np.sqrt(size)",
                "norm, replaced = np.sqrt(size), 2 * np.sqrt(size)",
                f"{HOSTILE} {BOUNDS}",
            ),
            (
                "shapes",
                "else float(importance @ importance) * (1",
                "else 0.9 * float(importance @ importance) * (1",
                HOSTILE,
            ),
            (
                "quantiles",
                "norm_bound=math.sqrt(n_columns),",
                "norm_bound=math.sqrt(n_columns) / 2,",
                f"{BOUNDS} estimators/test_scaler.py",
            ),
            (
                "quantiles",
                "replace_bound=math.sqrt(2 * n_columns),",
                "replace_bound=math.sqrt(n_columns),",
                f"{BOUNDS} estimators/test_scaler.py",
            ),
            (
                "counts",
                "bound = math.sqrt(values.shape[1]) * (1 + slack)",
                "bound = math.sqrt(values.shape[1]) * (1 + slack) / 2",
                f"{BOUNDS} {SUMS}",
            ),
            (
                "counts",  # shares of rows that public directions hold, and others
                "return xp.where(values > 0, at_most(values, 1.0), xp.zeros_like(values))",
                "return xp.where(values > 0, values, xp.zeros_like(values))",
                "estimators/test_gep.py",
            ),
            (
                "counts",  # they are released, and others are used
                "return to_numpy(releases.gaussian(name, released)) / records.n",
                "return (to_numpy(releases.gaussian(name, released)) * 0 + total) / records.n",
                "estimators/test_gep.py",
            ),
            (
                "counts",
                "norm_bound=math.sqrt(n_columns), replace_bound=math.sqrt(2 * n_columns)",
                "norm_bound=math.sqrt(n_columns), replace_bound=math.sqrt(n_columns)",
                f"{BOUNDS} {SUMS} estimators/test_scaler.py",
            ),
            (
                "means",
                "bound = largest**2 * (1 + records.slack(EPS, _SPREAD))",
                "bound = largest**2 / 2",
                f"{BOUNDS} {SUMS}",
            ),
            (
                "means",  # the mean is released, and another one is used
                "noisy = to_numpy(releases.gaussian(name, total))",
                "noisy = to_numpy(releases.gaussian(name, total)) * 0 + to_numpy(total.value)",
                FROZEN,
            ),
            (
                "moments",
                "rows.norm_bound**2 * (math.sqrt(2) + rounding + features.slack)",
                "rows.norm_bound**2 * (1 + rounding + features.slack)",
                f"{SUMS} {BOUNDS} estimators/test_pca.py",
            ),
            (
                "moments",
                "left = at_least(squares - inside, 0.0)",
                "left = 2 * squares",
                f"{SUMS} {BOUNDS}",
            ),
            (
                "cell_maps",
                "norm = math.sqrt(squares.max()) * rounding",
                "norm = math.sqrt(squares.max()) / 2",
                "units/test_scales.py",
            ),
            (
                "score_cells",
                "1.0 * k, 2.0 * k)",
                "1.0 * k, 1.0 * k)",
                CELLS,
            ),
            (
                "score_cells",
                "return float(shares.sum()) *",
                "return 0.5 * float(shares.sum()) *",
                CELLS,
            ),
            (
                "score_cells",
                "return BoundedL1Sum(total, largest, 2 * largest)",
                "return BoundedL1Sum(total, largest, largest)",
                CELLS,
            ),
            (
                "score_cells",
                "return BoundedScores(scores, 2 * (1 + slack), 2 * (2 + slack))",
                "return BoundedScores(scores, 1 + slack, 2 * (1 + slack))",
                HELD,
            ),
            (
                "score_cells",
                "return BoundedScores(-missed, 2.0, 2.0)",
                "return BoundedScores(-missed, 1.0, 1.0)",
                HELD,
            ),
            (
                "score_cells",
                "return BoundedSum(np.array([total]), 1.0, 1.0)",
                "return BoundedSum(np.array([total]), 0.5, 0.5)",
                "workflow/test_private_search.py",
            ),
            (
                "table_cells",
                "math.sqrt(n_tables), math.sqrt(2 * n_tables)",
                "math.sqrt(n_tables), math.sqrt(n_tables)",
                "estimators/test_table_counts.py",
            ),
            (
                "table_cells",
                "total = counts_sum(cells, c)",
                "total = counts_sum(cells)",
                "estimators/test_table_counts.py",
            ),
            (
                "table_cells",
                "bound = math.sqrt(2 * n_columns)",
                "bound = math.sqrt(n_columns)",
                "estimators/test_table_counts.py",
            ),
            (
                "table_cells",
                "return BoundedL1Sum(counts.ravel(), 1.0, 2.0)",
                "return BoundedL1Sum(counts.ravel(), 1.0, 1.0)",
                f"estimators/test_table_counts.py {BOUNDS}",
            ),
            (
                "persons",
                "return np.where(norms > _FAINT, shrink / np.maximum(norms, _FAINT), 0.0)",
                "return np.where(norms > _FAINT, 2 * shrink / np.maximum(norms, _FAINT), 0.0)",
                "units/test_personal.py",
            ),
        ]
    ),
    # Solvers.
    *(
        Mutant(f"_core/solvers/{file}.py", old, new, tests)
        for file, old, new, tests in [
            (
                "least_squares",
                "square / 2 + rounded, square + 2 * rounded",
                "square / 4 + rounded, square / 2",
                f"{LEAST} {HOSTILE}",
            ),
            (
                "least_squares",
                "return BoundedSum(value, bound, bound), own, shared",
                "return BoundedSum(value, bound / 3, bound / 3), own, shared",
                f"{LEAST} {HOSTILE}",
            ),
            (
                "least_squares",
                "BoundedSum(counts, 1.0, math.sqrt(2))",
                "BoundedSum(counts, 0.5, math.sqrt(2))",
                f"{LEAST} {BOUNDS}",
            ),
            (
                "least_squares",  # products are released, and others are used
                "products = to_numpy(releases.gaussian(PRODUCTS, shared)) / (n * tau)",
                "products = to_numpy(releases.gaussian(PRODUCTS, shared) * 0 + shared.value)",
                FROZEN,
            ),
            (
                "descent",
                "weights = shrink_factors(parts.rests, self.residual_norm) * parts.counts",
                "weights = shrink_factors(parts.rests, 2 * self.residual_norm) * parts.counts",
                f"{SUMS} {BOUNDS}",
            ),
            (
                "descent",
                "return (self.embedding_share, 1 - self.embedding_share)",
                "return (self.embedding_share, self.embedding_share)",
                f"estimators/test_gep.py {BOUNDS} {NOISE}",
            ),
            (
                "personal",
                "bound = math.hypot(_HEAD_BOUND,",
                "bound = 0.5 * math.hypot(_HEAD_BOUND,",
                f"units/test_personal.py {PERSONS}",
            ),
            (
                "personal",
                "losses = losses * factors[:, None]",
                "losses = 2 * losses * factors[:, None]",
                f"units/test_personal.py {PERSONS}",
            ),
            (
                "personal",
                "np.clip(losses[:, 1:] - losses[:, :1], -1.0, 1.0)",
                "np.clip(losses[:, 1:] - losses[:, :1], -2.0, 2.0)",
                "units/test_personal.py",
            ),
            (
                "personal",  # whether directions are given up is released, and not used
                "return bool(to_numpy(releases.gaussian(CHECK, total))[0] > 0)",
                "return bool(to_numpy(releases.gaussian(CHECK, total))[0] * 0 + value[0] > 0)",
                "units/test_personal.py",
            ),
            (
                "heads",  # whose rows are long and alike makes the fit fail
                "return _LARGEST_SCORES / np.maximum(norms, _LARGEST_SCORES)",
                "return np.ones_like(norms)",
                "units/test_personal.py",
            ),
            (
                "least_squares",  # a target decides what released gradients should
                "if found - chance < _MORE * other.explained * least:",
                "if float(data.targets[0, 0]) < 0:",
                REGRESSION,
            ),
            (
                "least_squares",
                "left = replace(plan, n_iter=plan.n_iter - asked)",
                "left = replace(plan, n_iter=plan.n_iter)",
                REGRESSION,
            ),
            (
                "descent",
                "return (clipped_sum(grads, self.clip_norm),)",
                "total = clipped_sum(grads, 2 * self.clip_norm)\n"
                "        return (vector_sum(total.value, self.clip_norm, 0.0),)",
                REGRESSION,
            ),
            (
                "personal",
                "found[ROUNDS] = Part(found[ROUNDS].share, rounds, self.rate)",
                "found[ROUNDS] = Part(found[ROUNDS].share, 1, self.rate)",
                f"units/test_personal.py {PERSONS}",
            ),
            (
                "intercepts",
                "math.sqrt(1.5 if one else 2)",
                "math.sqrt(1.2 if one else 1.5)",
                "units/test_intercepts.py",
            ),
        ]
    ),
    # Estimators, tables and what spends.
    *(
        Mutant(file, old, new, tests)
        for file, old, new, tests in [
            (
                "_core/gradients/losses.py",
                "return 2 * (np.clip(values, low, high) - low) / (high - low) - 1",
                "return 2 * (values - low) / (high - low) - 1",
                f"{SUMS} {BOUNDS} estimators/test_regression.py",
            ),
            (
                "_core/plans/regression.py",
                "values = rowwise(namespace(values).clip, values, low, high)",
                "pass",
                f"{BOUNDS} {HOSTILE} estimators/test_linear_regression.py",
            ),
            (
                "_core/plans/personal.py",  # the share of ones is that of the rows
                "share = float(np.clip(prepared.targets.location[0], *_SHARES)) if intercept",
                "share = float(np.clip(targets.mean(), *_SHARES)) if intercept",
                "claims/test_persons_hostile.py",
            ),
            (
                "_core/plans/linear.py",
                "rest = 1 - sum(part.share for part in others.values())",
                "rest = 1.0",
                f"{BOUNDS} estimators/test_linear.py",
            ),
            (
                "_core/fits/held_out.py",
                "said = shown_to(self.says, rows)",
                "said = self.says(rows.X)",
                HELD,
            ),
            (
                "_core/tables/encoding.py",
                "scaled = (np.clip(numbers, low, high) - low) / (high - low)",
                "scaled = (numbers - low) / (high - low)",
                f"units/test_encoding.py {BOUNDS}",
            ),
            (
                "_core/tables/encoding.py",
                "return float(np.linalg.norm(np.maximum(*np.abs(self.extent))))",
                "return float(np.linalg.norm(np.maximum(*np.abs(self.extent)))) / 2",
                f"units/test_encoding.py {BOUNDS}",
            ),
            (
                "budget/_filter.py",
                "return epsilon <= self.budget * (1 + _ROUNDING)",
                "return epsilon <= self.budget * 1.5",
                LEDGER,
            ),
            (
                "budget/_filter.py",
                "total = Charge.total([spent, charge])\n        if",
                "total = Charge.total([charge])\n        if",
                LEDGER,
            ),
            (
                "budget/_filter.py",
                "total = Charge.total([spent, charge]).summed",
                "total = charge.summed",
                LEDGER,
            ),
            (
                "budget/_filter.py",
                "gaussian_sq_mu(self.budget - self.epsilon, self.delta - self.slack)",
                "gaussian_sq_mu(self.budget, self.delta)",
                LEDGER,
            ),
            (
                "budget/_accounts.py",
                "return spent.epsilon + charge.epsilon <= self.terms.epsilon * (1 + 1e-12)",
                "return charge.epsilon <= self.terms.epsilon * (1 + 1e-12)",
                LEDGER,
            ),
            (
                "budget/_filter.py",  # what came before the split is counted twice
                "replace(sums, epsilon=split.before + sums.epsilon)",
                "replace(sums, epsilon=2 * split.before + sums.epsilon)",
                LEDGER,
            ),
            (
                "budget/_ledger_state.py",
                "if charge.slack or charge.sum_epsilon or event == entry.event:",
                "if event == entry.event:",
                LEDGER,
            ),
            (
                "budget/_ledger_state.py",
                "if old is None or new is None or new > old * (1 + EQUAL):",
                "if old is None or new is None:",
                LEDGER,
            ),
            (
                "budget/_ledger_state.py",
                "if entry.charge.epsilon and left.needs_delta:",
                "if False:",
                LEDGER,
            ),
            (
                "budget/_accounts.py",
                "max(spent.epsilon + charge.epsilon, self.terms.pure_epsilon)",
                "spent.epsilon + charge.epsilon + self.terms.pure_epsilon",
                LEDGER,
            ),
            (
                "budget/_accounts.py",
                "terms.epsilon - max(spent.epsilon, terms.pure_epsilon)",
                "terms.epsilon - spent.epsilon",
                LEDGER,
            ),
            (
                "_core/accounting/budget.py",
                "if gaussian_epsilon(min(weights) * sq_mu, delta) < LEAST_EPSILON:",
                "if False:",
                "workflow/test_planner.py",
            ),
            (
                "_core/accounting/payer.py",  # a worker forgets what estimators bring
                "known = _ARRIVED if in_worker() else _HEARD_OF",
                "known = _HEARD_OF",
                WORKERS,
            ),
            (
                "_core/accounting/payer.py",  # a function does not ask the model that it gets
                "one = next(iter(found), None) if len(found) < 2 else _AmbiguousLedger()",
                "one = None",
                WORKERS,
            ),
            (
                "budget/_fit_charge.py",  # a ledger that was closed is charged
                "return self.session in state.sessions",
                "return True",
                f"workflow/test_ledger_block.py {WORKERS}",
            ),
            (
                "_core/fits/call.py",  # a default is spent
                'elif payer is not None and "epsilon" not in kwargs:',
                "elif False:",
                WORKERS,
            ),
            (
                "_core/fits/call.py",
                "if payer is None and in_worker():",
                "if False:",
                WORKERS,
            ),
            (
                "_core/fits/call.py",  # a block takes what a ledger's fit refuses
                "if steps:",
                "if False:",
                SEEN,
            ),
            ("reports/_report_words.py", "if account.seen:", "if False:", SEEN),
            (
                "budget/_filter.py",
                "found = [_BROKEN] if any(KINDS[kind].breaks for kind, *_ in seen) else []",
                "found = []",
                SEEN,
            ),
            (
                "budget/_journal.py",  # what is not private is not written
                "{name: finite(getattr(split, name)) for name in _SPLIT}",
                "{name: getattr(split, name) for name in _SPLIT}",
                SEEN,
            ),
            (
                "budget/_ledger_state.py",
                "if self.failures >= most:",
                "if False:",
                f"{LEDGER} workflow/test_ledger_block.py",
            ),
            (
                "_core/accounting/cost.py",
                "return most is not None and cost is not None and cost <= most * (1 + EQUAL)",
                "return most is not None and cost is not None and cost <= 4 * most",
                f"{LEDGER} workflow/test_ledger_block.py",
            ),
            (
                "_core/plans/search.py",  # rows that are scored are trained on
                "np.flatnonzero(scored), np.flatnonzero(~scored)",
                "np.flatnonzero(scored), np.arange(len(scored))",
                "workflow/test_private_search.py",
            ),
            (
                "audit/_audit.py",
                "success = 1 / (1 + math.exp(-epsilon))",
                "success = 1 / (1 + math.exp(-2 * epsilon))",
                "workflow/test_audit.py",
            ),
        ]
    ),
]


def checked(mutant: Mutant, package: Path) -> str:
    """Text of the file of a mutant; an error where what it breaks is not there once."""
    text = (package / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name!r} stands {text.count(mutant.old)} times in its file.")
    return text


def in_a_fork(folder: Path, tests: list[str], log: Path) -> int:
    """Exit status of pytest in a process of its own."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 70
    try:
        os.chdir(folder)
        sys.path[0] = str(folder)
        with open(log, "w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        import pytest

        # Libraries were imported before pytest could rewrite what they assert.
        known = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *known]
        options += ["-m", "not exhaustive and not cluster"]
        status = int(pytest.main([*options, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def sound(tests: list[str], folder: Path) -> None:
    """An error unless `tests` pass where nothing is broken: otherwise they notice nothing."""
    log = folder / "log"
    if tests and (status := in_a_fork(folder, tests, log)):
        said = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{' '.join(tests)} end with {status} without a mutant.\n{said}")


def caught(mutant: Mutant, folder: Path) -> str:
    """The test that notices a mutant, or an empty text."""
    file, log = folder / "dpsubspace" / mutant.file, folder / "log"
    text = checked(mutant, folder / "dpsubspace")
    before = file.stat().st_mtime
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    os.utime(file, (before + 9, before + 9))  # what is compiled of it is told apart by its time
    try:
        status = in_a_fork(folder, mutant.paths, log)
    finally:
        file.write_text(text, encoding="utf-8")
        os.utime(file, (before + 18, before + 18))
    said = log.read_text(errors="replace")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
    if status == 0:
        return ""
    if status != 1 and not found:
        raise SystemExit(f"{mutant.name}: pytest ended with {status}.\n{said[-2000:]}")
    return found[1].removeprefix("tests/") if found else "?"


def main() -> None:
    """Break one thing after another, and print what notices."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--only", default="", help="text in the names of mutants to run")
    asked.add_argument("--tests", type=Path, default=ROOT, help="checkout that has the tests")
    asked.add_argument("--every", default="0/1", help="which part of them: 0/2 and 1/2 are all")
    options = asked.parse_args()
    first, step = map(int, options.every.split("/"))
    mutants = [m for m in MUTANTS if options.only in m.name][first::step]
    if not importlib.util.find_spec("distributed"):
        mutants = [m for m in mutants if "dask" not in m.tests]
    for mutant in MUTANTS:
        checked(mutant, ROOT / "dpsubspace")
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "SCIPY_ARRAY_API": "1"}
    os.environ["MPLBACKEND"] = "Agg"
    sys.dont_write_bytecode = False  # most is compiled once
    for name in LIBRARIES:
        importlib.import_module(name)
    survivors, passing = [], set()
    with tempfile.TemporaryDirectory() as made, contextlib.suppress(KeyboardInterrupt):
        folder = Path(made) / "dpsubspace"
        leave = shutil.ignore_patterns("__pycache__", ".git", ".hypothesis", "_build")
        shutil.copytree(ROOT, folder, ignore=leave)
        if options.tests != ROOT:
            shutil.rmtree(folder / "tests")
            shutil.copytree(options.tests / "tests", folder / "tests", ignore=leave)
            shutil.copy(options.tests / "pyproject.toml", folder / "pyproject.toml")
        print("mutant | noticed by | seconds")
        for mutant in mutants:
            sound([path for path in mutant.paths if path not in passing], folder)
            passing.update(mutant.paths)
            started = time.monotonic()
            found = caught(mutant, folder)
            survivors += [] if found else [mutant.name]
            took = time.monotonic() - started
            print(f"{mutant.name} | {found or 'SURVIVED'} | {took:.0f}", flush=True)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} are noticed")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
