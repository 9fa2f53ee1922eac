"""What gradient embedding perturbation costs: against gradients that are formed, and DP-SGD.

numbers   what a step releases, without noise, against an explicit float32 step in torch: the lifted
          sum of embeddings, the sum of residuals, and the update, relative to the largest entry
explicit  time of an implicit step against the explicit one, in turn in one process
dpsgd     time of a step of GEP against one of DP-SGD on the same rows, in turn
parts     where the time of a step goes, from a profile
memory    anonymous memory of whole fits of 50,000 rows mapped from a file, each in a process of
          its own; the explicit form has one gradient a row, in float32 or float64

Sizes are those of the linear experiment of Yu et al. (2021): 1,000 or 50,000 rows of 4,096
features, 500 public rows, 10 classes, so 40,960 parameters, and 200 directions after one power
iteration, with new labels of public rows in every step. All implicit steps and those of DP-SGD
are what `train` runs: the gather of a batch, the noise of the operating system and the update
included; inner products with public rows are taken once a fit and are not.

The explicit step is made to be fast: buffers of gradients are kept and written in place, its rows
are gathered already, its random start is given to it and its noise is torch.randn. "Short"
is one that forms no residuals: their norms by Pythagoras, their sum as a difference.

A float32 step finds directions with an error that grows with the condition of the public
gradients, so `numbers` also compares sums along directions that were found in float64.

A floor for any implementation, in flops for b rows, m public rows, d features, c classes, p = dc
parameters and k directions (additions and multiplications count one each):

  gradients are formed    4mkp + 2pk^2 for directions, 4bkp for the two parts (2bkp short)
  they are not            2m^2(c + k) + 2mk^2 for directions, 2bm(c + k) for embeddings
  DP-SGD, and both        4bdc for scores and the sum of gradients

At 1,000 rows that is 5.3e10 against 5.2e8, of which DP-SGD has 1.6e8. `floor` in the report
is the quotient of the two; what it leaves is QR, Cholesky factors, the check that directions are
orthonormal, four products with the public rows, and float64 instead of float32.

usage: python benchmarks/bench_gep.py [numbers explicit dpsgd parts memory] [--threads 1]
           [--scratch DIR] [--out benchmarks/results/gep_time.json]

Medians on a machine that does other work vary: compare ratios, and look at the load.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from _one_fit import one_fit
from _run import in_turns, judged, ms, parts_of, ratios, run
from bench_linear import descent

from dpsubspace._core.gradients.linear import LinearSource, OuterGradients
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.public.anchors import AnchorSubspace, _Part, anchor_subspace
from dpsubspace._core.public.subspace import FeatureSubspace
from dpsubspace._core.release.noise import SecureNoise
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap
from dpsubspace._core.solvers.descent import FlatStep, GEPStep

CLIP, RESIDUAL_CLIP, MULTIPLIER = 0.3, 0.2, 5.0
DECAYS = (0.25, 0.5)  # of the standard deviations of features
LEAST_SPEEDUP, MOST_STEPS, MOST_MB, TOLERANCE = 20, 5, 2000, 1e-5

# Rows ------------------------------------------------------------------------------------------


def rows(seed, n, d, classes, out=None, decay=0.25):
    """Rows of norm 1 about class means, with strong directions and weak ones."""
    rng, means = np.random.default_rng(seed), np.random.default_rng(0).standard_normal((classes, d))
    y = rng.integers(classes, size=n)
    out = np.empty((n, d), dtype=np.float32) if out is None else out
    scales = (np.arange(1, d + 1) ** -decay).astype(np.float32)
    means = (0.3 * np.sqrt(np.mean(scales**2)) * means).astype(np.float32)
    for start in range(0, n, 5_000):
        part = out[start : start + 5_000]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32) * scales
        part += means[y[start : start + 5_000]]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return out, y


class Setting:
    """One set of private rows, the public rows and the weights that steps start from."""

    def __init__(self, args, X, y, **like):
        self.args, self.X, self.y = args, X, y
        rng = np.random.default_rng(1)
        self.params = rng.standard_normal((args.features, args.classes))
        public, _ = rows(2, args.public, args.features, args.classes, **like)
        features = Features(public.astype(np.float64), RowMap(norm=None))
        formed = features.at(slice(0, args.public)).dense()
        self.public = LinearSource(LogLoss(), features, None, public=formed)
        private = Features(X, RowMap(norm="clip", data_norm=1.5))
        self.plain = LinearSource(LogLoss(), private, y)
        self.gradients = LinearSource(LogLoss(), private, y, public=formed)
        q = max(1, args.components // args.classes)
        basis = np.linalg.svd(formed, full_matrices=False)[2][:q]
        self.features = LinearSource(LogLoss(), private, y, public=basis)
        self.feature_space = FeatureSubspace(basis, args.classes)
        self.rng = np.random.default_rng(3)

    def labels(self):
        """New labels of the public rows."""
        return self.rng.integers(self.args.classes, size=self.args.public)

    def subspace(self, params, t):
        """Directions of gradients, as an estimator makes them in every step."""
        anchors = self.public.relabelled(self.labels())
        return anchor_subspace(
            anchors.at(params, slice(0, self.args.public)),
            [self.args.components],
            power_iterations=1,
            rng=self.rng,
        )

    def step(self, kind):
        """One of KINDS, and the source of its gradients."""
        if kind == "dpsgd":
            return FlatStep(clip_norm=CLIP), self.plain
        gradients = kind == "gradients"
        step = GEPStep(
            subspace=self.subspace if gradients else lambda params, t: self.feature_space,
            clip_norm=CLIP,
            residual_norm=RESIDUAL_CLIP,
            n_samples=len(self.X),
            n_components=self.args.components,
        )
        return step, self.gradients if gradients else self.features

    def run(self, kind, batch_size=None, n_iter=5):
        """Call that trains for `n_iter` steps."""
        step, source = self.step(kind)
        rate = 1.0 if batch_size is None else batch_size / len(self.X)
        penalised = np.ones((self.args.features, 1))
        return descent(n_iter, rate, MULTIPLIER, 1e-3, step, source, self.params, penalised)


def few(args):
    """As many rows as a batch has."""
    return _setting(args, False)


def many(args):
    """All rows, mapped from a file."""
    return _setting(args, True)


_MADE = {}


def _setting(args, mapped):
    if mapped not in _MADE:
        made = rows(4, args.batch, args.features, args.classes)
        _MADE[mapped] = Setting(args, *(written_rows(args) if mapped else made))
    return _MADE[mapped]


def written_rows(args):
    """Rows mapped from a file, which is written where it is not there."""
    file, labels = args.scratch / "rows.npy", args.scratch / "labels.npy"
    if not file.exists():
        shape = (args.rows, args.features)
        out = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
        np.save(labels, rows(5, args.rows, args.features, args.classes, out)[1])
        out.flush()
    return np.load(file, mmap_mode="r"), np.load(labels)


# The explicit form -----------------------------------------------------------------------------


class Explicit:
    """GEP of Yu et al. (2021), Algorithms 1 and 2, on gradients that are formed.

    Gradients are (class, feature) vectors here, which is the faster order to write them in.
    """

    def __init__(self, setting, dtype=torch.float32, short=False):
        args, self.short = setting.args, short
        as_torch = partial(torch.tensor, dtype=dtype)
        self.X, self.y = as_torch(np.asarray(setting.X)), torch.tensor(setting.y)
        self.public = as_torch(setting.public.features.X)
        self.params = as_torch(setting.params)
        p = args.features * args.classes
        self.G = torch.empty((len(self.X), p), dtype=dtype)
        self.R = None if short else torch.empty_like(self.G)
        self.anchors = torch.empty((args.public, p), dtype=dtype)

    def gradients(self, X, y, out):
        """One row a record, (k, p)."""
        R = torch.softmax(X @ self.params, dim=1)
        R[torch.arange(len(y)), y] -= 1
        k, d, c = len(X), X.shape[1], R.shape[1]
        torch.mul(R[:, :, None], X[:, None, :], out=out.view(k, c, d))
        return out

    def start(self, labels, weights):
        """Random start of the span that an implicit step starts from, (p, k)."""
        anchors = self.gradients(self.public, torch.tensor(labels), self.anchors)
        return anchors.T @ torch.tensor(weights, dtype=anchors.dtype)

    def directions(self, labels, start):
        """One power iteration: orthonormal rows (k, p)."""
        anchors = self.gradients(self.public, labels, self.anchors)
        return torch.linalg.qr(((anchors @ start).T @ anchors).T)[0].T

    def sums(self, B):
        """Clipped embeddings and residuals, added up."""
        G = self.gradients(self.X, self.y, self.G)
        E = G @ B.T
        lengths = torch.linalg.vector_norm(E, dim=1)
        if self.short:
            squares = torch.linalg.vector_norm(G, dim=1) ** 2 - lengths**2
            rests = squares.clamp(min=0).sqrt()
            shrunk = RESIDUAL_CLIP / rests.clamp(min=RESIDUAL_CLIP)
            residual = shrunk @ G - (shrunk @ E) @ B
        else:
            R = torch.addmm(G, E, B, alpha=-1, out=self.R)
            rests = torch.linalg.vector_norm(R, dim=1)
            residual = (RESIDUAL_CLIP / rests.clamp(min=RESIDUAL_CLIP)) @ R
        return (CLIP / lengths.clamp(min=CLIP)) @ E, residual

    def step(self, labels, start):
        """Noisy gradient of the summed loss."""
        B = self.directions(labels, start)
        embedding, residual = self.sums(B)
        embedding += MULTIPLIER * CLIP * torch.randn_like(embedding)
        residual += MULTIPLIER * RESIDUAL_CLIP * torch.randn_like(residual)
        return embedding @ B + residual


PARTS_OF_A_STEP = ("embedding", "residual", "update")

# Numbers ---------------------------------------------------------------------------------------


def number_rows(args):
    """Sums over the same rows at the same weights with the same labels and start."""
    for decay in DECAYS:
        like = {"decay": decay}
        made = rows(4, args.batch, args.features, args.classes, **like)
        yield from numbers(args, Setting(args, *made, **like), decay)


def numbers(args, setting, decay):
    labels, seed = setting.labels(), 6
    anchors = setting.public.relabelled(labels).at(setting.params, slice(0, args.public))
    step, source = setting.step("gradients")
    state = anchor_subspace(
        anchors, [args.components], power_iterations=1, rng=np.random.default_rng(seed)
    )
    chunks = [step.sums(state, source.at(setting.params, c)) for c in source.chunks(None)]
    sums = [sum(part.value for part in parts) for parts in zip(*chunks, strict=True)]
    ours = [state.lift(sums[0]), sums[1], step.combine(state, tuple(sums))]
    about = lengths(state, source.at(setting.params, np.arange(args.batch)))
    weights = np.random.default_rng(seed).standard_normal((args.public, args.components))
    exact, single = Explicit(setting, torch.float64), Explicit(setting, torch.float32)
    B, rough = (
        explicit.directions(torch.tensor(labels), explicit.start(labels, weights))
        for explicit in (exact, single)
    )
    for name, explicit, directions in (
        ("float32", single, rough),
        ("float32, directions by float64", single, B.to(torch.float32)),
        ("float64", exact, B),
    ):
        embedding, residual = explicit.sums(directions)
        lifted = embedding @ directions
        theirs = (lifted, residual, lifted + residual)
        found = {
            part: relative(one, other.numpy().reshape(args.classes, args.features).T)
            for part, one, other in zip(PARTS_OF_A_STEP, ours, theirs, strict=True)
        }
        yield {
            "explicit": name,
            "decay": decay,
            **{part: float(f"{value:.2g}") for part, value in found.items()},
            "limit": TOLERANCE,
            **judged(max(found.values()) <= TOLERANCE),
            **about,
        }


def lengths(state, grads):
    """How many embeddings and residuals are clipped, and the shortest as shares of gradients."""
    norms, inside = grads.norms(), np.sqrt(state.embed(grads).squares())
    outside = np.sqrt(norms**2 - inside**2)
    return {
        "embeddings_clipped": round(float(np.mean(inside > CLIP)), 3),
        "residuals_clipped": round(float(np.mean(outside > RESIDUAL_CLIP)), 3),
        "least_embedding": round(float((inside / norms).min()), 3),
        "least_residual": round(float((outside / norms).min()), 3),
    }


def relative(one, other):
    return float(np.abs(one - other).max() / np.abs(other).max())


# Time ------------------------------------------------------------------------------------------


def flops(args, *, implicit=False, short=False):
    """The floor of a step."""
    b, m, d, c, k = args.batch, args.public, args.features, args.classes, args.components
    if implicit:
        return 2 * m * m * (c + k) + 2 * m * k * k + 2 * b * m * (c + k) + 4 * b * d * c
    p = d * c
    return 4 * m * k * p + 2 * p * k * k + (2 if short else 4) * b * k * p + 4 * b * d * c


def explicit_rows(args):
    one = few(args)
    implicit = {"full batch": one.run("gradients")}
    if args.rows:
        implicit[f"batch of {args.rows} rows"] = many(args).run("gradients", args.batch)
    calls = [*implicit.values()]
    for short in (False, True):
        explicit = Explicit(one, short=short)
        labels = one.labels()
        start = explicit.start(labels, one.rng.standard_normal((args.public, args.components)))
        calls.append(partial(explicit.step, torch.tensor(labels), start))
    times = in_turns(calls, args.repeats) / ([5] * len(implicit) + [1, 1])
    for column, name in enumerate(implicit):
        for extra, explicit in ((0, "as published"), (1, "short")):
            ours, theirs = times[:, :, column], times[:, :, len(implicit) + extra]
            row = {
                "rows": args.batch,
                "implicit": name,
                "explicit": explicit,
                "threads": args.threads,
                "explicit_ms": ms(theirs),
                "implicit_ms": ms(ours),
                "floor": round(flops(args, short=bool(extra)) / flops(args, implicit=True)),
                **ratios(theirs, ours),
            }
            if not extra:
                row |= {"least": LEAST_SPEEDUP, **judged(row["ratio_median"] >= LEAST_SPEEDUP)}
            yield row


KINDS = ("dpsgd", "gradients", "features")


def dpsgd_rows(args):
    cases = [(few, None, 5)]
    if args.rows:
        cases += [(many, args.batch, 5), (many, None, 1)]
    for make, batch_size, n_iter in cases:
        setting = make(args)
        calls = [setting.run(kind, batch_size, n_iter) for kind in KINDS]
        times = in_turns(calls, args.repeats)
        for column, kind in enumerate(KINDS[1:], 1):
            row = {
                "directions": kind,
                "rows": len(setting.X),
                "batch": batch_size or "full",
                "threads": args.threads,
                "dpsgd_ms": ms(times[:, :, 0], n_iter),
                "gep_ms": ms(times[:, :, column], n_iter),
                **ratios(times[:, :, column], times[:, :, 0]),
            }
            yield {**row, "most": MOST_STEPS, **judged(row["ratio_median"] <= MOST_STEPS)}


# Parts -----------------------------------------------------------------------------------------

PARTS = {  # but for calls from each other
    SecureNoise.poisson_sample: "draw of the batch",
    SecureNoise.gaussian: "noise",
    Setting.subspace: "directions",
    LinearSource.at: "rows and losses",
    OuterGradients.weighted_sum: "sum of gradients",
    AnchorSubspace.embed: "embeddings",
    FeatureSubspace.embed: "embeddings",
    AnchorSubspace.lift: "lifts",
    FeatureSubspace.lift: "lifts",
    AnchorSubspace.coordinates: "coordinates of the residual",
    FeatureSubspace.coordinates: "coordinates of the residual",
}


def part_rows(args):
    cases = [(few, None)]
    if args.rows:
        cases += [(many, args.batch), (many, None)]
    for make, batch_size in cases:
        setting = make(args)
        for kind in KINDS:
            call = setting.run(kind, batch_size, n_iter := 5)
            call()
            found = parts_of(call, PARTS, inside=(Setting.subspace, _Part.lift), steps=n_iter)
            yield {"step": kind, "rows": len(setting.X), "batch": batch_size or "full"} | found


# Memory ----------------------------------------------------------------------------------------


def memory_rows(args):
    written_rows(args)
    job = {"file": args.scratch / "rows.npy", "classes": args.classes}
    job |= {"public": args.public, "n_iter": 3, "noise_multiplier": MULTIPLIER, "clip_norm": CLIP}
    for method, directions, components in (
        ("DPSGDClassifier", None, None),
        ("GEPClassifier", "gradients", args.components),
        ("GEPClassifier", "features", args.components // args.classes),
    ):
        for batch_size in (None, args.batch):
            setting = {"directions": directions, "n_components": components}
            setting |= {"method": method, "batch_size": batch_size}
            found = one_fit(threads=args.threads, **setting, **job)
            row = {
                "method": method,
                "directions": directions,
                "rows": args.rows,
                "batch": batch_size or "full",
                "file_mb": round(args.rows * args.features * 4 / 1e6),
                "start_mb": round(found["start_mb"]),
                "peak_mb": round(found["peak_mb"]),
                "cpu_s": round(found["cpu_s"], 1),
            }
            if directions is not None:
                params = args.features * args.classes
                used = batch_size or args.rows
                row |= {
                    f"explicit_{name}_mb": round(used * params * size / 1e6)
                    for name, size in (("float32", 4), ("float64", 8))
                }
                row |= {"limit_mb": MOST_MB, **judged(found["peak_mb"] < MOST_MB)}
            yield row


SECTIONS = {
    "numbers": number_rows,
    "explicit": explicit_rows,
    "dpsgd": dpsgd_rows,
    "parts": part_rows,
    "memory": memory_rows,
}


OPTIONS = {"rows": 50_000, "batch": 1_000, "features": 4_096, "classes": 10, "public": 500}
OPTIONS |= {"components": 200, "repeats": 15, "scratch": Path}

if __name__ == "__main__":
    run(__doc__, SECTIONS, OPTIONS)
