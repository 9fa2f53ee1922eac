"""What a distance between gradient subspaces costs, and whether its two forms agree.

linear     time of distances between 2,000 and 2,000 rows of 3,072 columns, 10 classes and 16
           directions: as it is called, of one repeat, and by singular vectors of stacked
           gradients, which need 61 MB for 250 + 250 rows and 984 MB for all; the private fit beside
modules    time and memory of inner products of gradients by modules of more than 10 million
           parameters, 256 rows and 256 others, each in a process of its own; beside the memory of
           gradients that are stacked, by arithmetic
agreement  cosines of the angles between the subspaces of two sets of rows, by inner products and by
           singular vectors of stacked gradients, in float64

`checks_s` is what it takes to find out, on random rows, that a module keeps rows apart; a product
with other rows does not repeat it. `peak_mb` is all memory of the process, libraries included.

usage: python benchmarks/bench_gsd.py [linear modules agreement] [--threads 1] [--rows 256]
           [--repeats 3] [--out benchmarks/results/gsd_time.json]

Times on a machine that does other work vary: look at the load.
"""

import os
import resource
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch
from _data import arrays
from _run import in_turns, judged, resources, run, seconds, with_threads

from dpsubspace import PrivacyWarning, select_public
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.gradients.modules import ModuleGradients, ModuleSource
from dpsubspace.public_data import GSDScorer, gradient_subspace_distance
from dpsubspace.public_data._distances import probe_network

MOST_MB = 2_000
TOLERANCE = 1e-8
CLASSES = 10
IMAGE = (3, 32, 32)

MOST_SECONDS = 5.0

# Linear models ---------------------------------------------------------------------------------


def images():
    """Private and public rows: CIFAR-10 in colour, and random ones with no direction ahead."""
    names = ("train_x",)
    found = arrays("cifar10", names)
    if found is not None:
        pixels = found[0][:4000].reshape(4000, -1) / np.float32(255)
        yield "CIFAR-10", pixels[:2000], pixels[2000:]
    uniform = np.random.default_rng(0).random((4000, 3072), dtype=np.float32)
    yield "uniform", uniform[:2000], uniform[2000:]


def stacked(private, public, k):
    """Seconds of one repeat by singular vectors of gradients that are written out."""
    rng, bases = np.random.default_rng(0), []

    def whole():
        for X in (private, public):
            residuals = 1 / CLASSES - np.eye(CLASSES)[rng.integers(CLASSES, size=len(X))]
            G = (X.astype(np.float64)[:, :, None] * residuals[:, None, :]).reshape(len(X), -1)
            bases.append(np.linalg.svd(G, full_matrices=False)[2][:k])
        return np.linalg.svd(bases[0] @ bases[1].T, compute_uv=False)

    return seconds(whole)[0]


def calls_on(private, public, k):
    """What is timed, by name."""
    options = {"n_components": k, "n_classes": CLASSES, "random_state": 0}
    return {
        "distance": lambda: gradient_subspace_distance(private, public, **options),
        "one repeat": lambda: gradient_subspace_distance(private, public, n_repeats=1, **options),
        "GSDScorer": lambda: GSDScorer(n_components=k).fit(private, X_public=(public,)),
        "select_public": lambda: select_public({"a": public, "b": 1 - public}, private),
    }


def linear_rows(args):
    k = 16
    for name, private, public in images():
        calls = calls_on(private, public, k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            times = in_turns([*calls.values()], args.repeats)
        few = stacked(private[:250], public[:250], k)
        for call, clock, cpu in zip(calls, *np.moveaxis(times, 2, 1), strict=True):
            yield {
                "rows": name,
                "call": call,
                "median_s": round(float(np.median(clock)), 2),
                "cpu_s": round(float(np.median(cpu)), 2),
                "stacked_250_s": round(few, 2),
                "load": round(os.getloadavg()[0], 1),
                **judged(float(np.median(clock)) < MOST_SECONDS),
            }


# Modules ---------------------------------------------------------------------------------------


def perceptron():
    """Three linear layers: 10.5 million parameters."""
    nn = torch.nn
    layers = [nn.Flatten(), nn.Linear(3 * 32 * 32, 2048), nn.ReLU(), nn.Linear(2048, 2048)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(2048, CLASSES))


def convolutions():
    """Nine convolutions with group normalisation: 11.0 million parameters."""
    nn, layers, before = torch.nn, [], IMAGE[0]
    widths = (64, 64, 128, 256, 512, 512, 512, 512, 512)
    for width, stride in zip(widths, (1, 1, 2, 2, 2, 1, 1, 1, 1), strict=True):
        convolution = nn.Conv2d(before, width, 3, stride=stride, padding=1)
        layers += [convolution, nn.GroupNorm(8, width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


MODULES = {"perceptron": perceptron, "convolutions": convolutions}


def rows(n, seed):
    """Flat rows that stand for images, and random labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, np.prod(IMAGE)), dtype=np.float32)
    return X, rng.integers(CLASSES, size=n)


def gradients(module, n):
    """Gradients of two sets of rows."""
    options = {"n_targets": CLASSES, "input_shape": IMAGE}
    one = ModuleGradients(module, LogLoss(), *rows(n, 0), **options)
    return one, one.of_rows(*rows(n, 1))


# Time and memory -------------------------------------------------------------------------------


def one_product(name, dtype, n, threads):
    """What the three matrices of inner products take, in this process."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    module = MODULES[name]().to(getattr(torch, dtype))
    sides, times = [], {}

    def whole():
        times["checks_s"] = seconds(lambda: sides.extend(gradients(module, n)))[0]
        one, other = sides
        times["inner_s"] = seconds(lambda: one.inner(other))[0]
        times["grams_s"] = seconds(lambda: (one.gram(), other.gram()))[0]

    found = resources(whole)
    n_params = sum(p.numel() for p in module.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    stacked = 2 * n * n_params * next(module.parameters()).element_size() / 1e6
    return {
        "module": name,
        "dtype": dtype,
        "parameters": n_params,
        "rows": f"{n} + {n}",
        **{part: round(time, 2) for part, time in times.items()},
        "cpu_s": round(found["cpu_s"], 1),
        "anonymous_mb": round(found["peak_mb"]),
        "peak_mb": round(peak),
        "stacked_mb": round(stacked),
    }


def module_rows(args):
    os.environ.update(with_threads(args.threads))
    for name in MODULES:
        for dtype in ("float32", "float64"):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
                row = apart.submit(one_product, name, dtype, args.rows, args.threads).result()
            load = round(os.getloadavg()[0], 1)
            yield {**row, "load": load, "limit_mb": MOST_MB, **judged(row["peak_mb"] < MOST_MB)}


# Agreement -------------------------------------------------------------------------------------


def by_products(one, other, k):
    """Cosines of the angles between the leading subspaces, from inner products."""
    bases = []
    for side in (one, other):
        squares, vectors = np.linalg.eigh(side.gram())
        bases.append(vectors[:, -k:] / np.sqrt(squares[-k:]))
    return np.linalg.svd(bases[0].T @ one.inner(other) @ bases[1], compute_uv=False)


def by_vectors(module, n, k):
    """The same from singular vectors of gradients that are written out."""
    bases = []
    for seed in (0, 1):
        X, y = rows(n, seed)
        options = {"n_targets": CLASSES, "input_shape": IMAGE}
        source = ModuleSource(module, LogLoss(), X, y, **options)
        G = source.at(source.start(), slice(0, n)).dense().numpy()
        bases.append(np.linalg.svd(G, full_matrices=False)[2][:k])
    return np.linalg.svd(bases[0] @ bases[1].T, compute_uv=False)


def agreement_rows(args):
    n, k = 60, 16
    torch.manual_seed(0)
    small = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2),
        torch.nn.GroupNorm(2, 8),
        torch.nn.Tanh(),
        torch.nn.Conv2d(8, 8, 3, stride=2),
        torch.nn.Flatten(),
        torch.nn.Linear(392, CLASSES),
    )
    for name, module in (("probe", probe_network(IMAGE, CLASSES, 0)), ("small", small)):
        module = module.double()
        found = by_products(*gradients(module, n), k)
        gap = float(np.abs(found - by_vectors(module, n, k)).max())
        yield {
            "module": name,
            "rows": f"{n} + {n}",
            "components": k,
            "distance": float(np.sqrt(max(0.0, 1 - np.mean(found**2)))),
            "gap": float(f"{gap:.2g}"),
            "limit": TOLERANCE,
            **judged(gap <= TOLERANCE),
        }


SECTIONS = {"linear": linear_rows, "modules": module_rows, "agreement": agreement_rows}

if __name__ == "__main__":
    run(__doc__, SECTIONS, {"rows": 256, "repeats": 3})
