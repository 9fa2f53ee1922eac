"""Energy that DPPCA captures: by mechanism, with public rows, by size, beside other libraries.

Captured is tr(V'SV) over the sum of the 8 largest eigenvalues of S, where V has 8 components
and S is the second moment of the private rows (centred: of the rows less their mean). delta is
1e-5 unless it is given. Norms are bounded by public knowledge (data_norm=1): digits and MNIST are
divided row by row by their own norm, columns of breast cancer come from their ranges, taken to be
public, to [-1, 1] and are divided by the root of their number.

mechanisms  digits and breast cancer, all mechanisms, centred or not, both relations
mnist       60,000 rows of MNIST in float32
public      some digits held out as public rows: private rows alone, public rows alone, both. The
            bad ones have their pixels permuted. Seeds choose the rows, and are shared by all three
sizes       MNIST at epsilon 1 by number of rows, and pooled to fewer pixels
acceptance  proposals that a draw by "matrix_bingham" keeps, by components, at zero_out
ranking     of 16 public sets by their distance from 8 directions of 2,000 rows of MNIST with 196
            pixels: Kendall's tau with distances from exact directions, in 3 seeds
peers       replaced rows, beside the records in results/dppca_peers.json (peer_dppca.py)

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_dppca.py
           [mechanisms mnist public sizes acceptance ranking peers] [--seeds 10]
           [--out benchmarks/results/dppca.json]

On MNIST there are 3 seeds.
"""

import time
from functools import cache
from itertools import product
from pathlib import Path

import _data
import _public_sets
import numpy as np
from _run import earlier, judged, run, spread
from peer_dppca import DATA_SETS, K
from scipy.stats import kendalltau

from dpsubspace import DPPCA, PrivacyWarning
from dpsubspace._core.release import bingham
from dpsubspace._core.release.noise import SeededNoise

DELTA = 1e-5
BEST = [("adaptive", DELTA), ("gaussian", DELTA)]
POWER = [("power", DELTA)]
BINGHAM = [(name, delta) for name in ("bingham", "matrix_bingham") for delta in (DELTA, 0)]
EPSILONS = (0.1, 0.3, 1.0, 3.0)
RELATIONS = ("zero_out", "replace_one")
PEERS = Path(__file__).with_name("results") / "dppca_peers.json"

# What zero_out must reach without centring, by data and epsilon.
FLOORS = {
    ("digits", 0.1): 0.81,
    ("digits", 0.3): 0.87,
    ("digits", 1.0): 0.955,
    ("digits", 3.0): 0.99,
    ("cancer", 1.0): 0.925,
    ("cancer", 3.0): 0.955,
    ("mnist", 1.0): 0.999,
}

# Rows and what their best components hold ------------------------------------------------------


class Task:
    """Private rows, and how much of their energy components capture."""

    def __init__(self, name, X):
        self.name, self.X = name, X
        n = len(X)
        mean = X.mean(axis=0, dtype=np.float64)
        uncentred = sum(np.float64(part.T @ part) for part in np.array_split(X, -(-n // 1000)))
        self.moments = {False: uncentred, True: uncentred - n * np.outer(mean, mean)}
        self.best = {c: np.linalg.eigvalsh(S)[-K:].sum() for c, S in self.moments.items()}

    def captured(self, components, centered):
        """Share of the best energy."""
        V, _ = np.linalg.qr(components.T)
        return float(np.trace(V.T @ self.moments[centered] @ V) / self.best[centered])


@cache
def task(name):
    return Task(name, unit_rows(mnist_pixels()) if name == "mnist" else DATA_SETS[name]()[0])


def mnist_pixels():
    return _data.load("mnist")[0]


def unit_rows(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


# Fits ------------------------------------------------------------------------------------------


def fit(X, seed, X_public=None, **parameters):
    model = DPPCA(K, data_norm=1.0, random_state=seed, **parameters)
    return model.fit(X, X_public=X_public).components_


@cache
def cell(task, seeds, centered, mechanism, delta, epsilon, relation):
    """One line: fits of all seeds with one setting."""
    options = {"mechanism": mechanism, "delta": delta, "centered": centered, "epsilon": epsilon}
    shares, spent = [], []
    for seed in seeds:
        before = time.process_time()
        components = fit(task.X, seed, neighboring_relation=relation, **options)
        spent.append(time.process_time() - before)
        shares.append(task.captured(components, centered))
    n, d = task.X.shape
    found = {"data": task.name, "n": n, "d": d, "relation": relation, **options}
    found |= spread("captured", shares) | {"cpu_s": round(float(np.median(spent)), 4)}
    floor = FLOORS.get((task.name, epsilon))
    if (centered, relation) == (False, "zero_out") and mechanism in ("adaptive", "gaussian"):
        found |= {"floor": floor, **judged(found["captured"] >= floor)} if floor else {}
    return found


def cells(task, seeds, centered, mechanisms=BEST, epsilons=EPSILONS, relation="zero_out"):
    for mechanism, delta in mechanisms:
        for epsilon in epsilons:
            yield cell(task, tuple(seeds), centered, mechanism, delta, epsilon, relation)


def mechanism_rows(args):
    for name, relation in product(("digits", "cancer"), RELATIONS):
        yield from cells(task(name), args.seeds, False, BEST + POWER + BINGHAM, relation=relation)
        yield from cells(task(name), args.seeds, True, BEST + POWER, relation=relation)


def mnist_rows(args):
    for centered in (False, True):
        yield from cells(task("mnist"), args.seeds[:3], centered)


# Public rows -----------------------------------------------------------------------------------

PUBLIC = (  # number of public rows, mechanism, centred
    (50, "adaptive", False),
    (50, "gaussian", False),
    (50, "adaptive", True),
    (20, "adaptive", False),
    (200, "adaptive", False),
)


def public_rows(args):
    X = task("digits").X
    for kind, case, epsilon in product(("good", "bad"), PUBLIC, EPSILONS[:3]):
        runs = [public_run(X, seed, kind, *case, epsilon) for seed in args.seeds]
        yield public_row(np.array(runs), len(X), kind, *case, epsilon)


def public_run(X, seed, kind, m, mechanism, centered, epsilon):
    """Captured by private rows alone, by public rows alone, by both."""
    rng = np.random.default_rng(1000 + seed)
    order = rng.permutation(len(X))
    shown, rows = X[order[:m]], Task("digits", X[order[m:]])
    if kind == "bad":
        shown = shown[:, rng.permutation(X.shape[1])]
    about = shown - shown.mean(axis=0) if centered else shown
    alone = np.linalg.svd(about, full_matrices=False)[2][:K]
    options = {"mechanism": mechanism, "centered": centered, "epsilon": epsilon, "delta": DELTA}
    private, both = fit(rows.X, seed, **options), fit(rows.X, seed, shown, **options)
    return [rows.captured(components, centered) for components in (private, alone, both)]


def public_row(runs, n, kind, m, mechanism, centered, epsilon):
    found = {"data": "digits", "n": n - m, "public": m, "kind": kind}
    found |= {"mechanism": mechanism, "centered": centered, "epsilon": epsilon}
    private, alone, both = runs.T
    for name, shares in (
        ("private", private),
        ("public_alone", alone),
        ("both", both),
        ("both_less_private", both - private),
        ("both_less_public", both - alone),
    ):
        found |= spread(name, shares)
    if kind == "good" and m == 50:
        found |= judged(min(found["both_less_private"], found["both_less_public"]) >= 0)
    return found


# Sizes -----------------------------------------------------------------------------------------


def size_rows(args):
    pixels = mnist_pixels()
    order = np.random.default_rng(0).permutation(len(pixels))
    half = _data.halved(pixels)
    sizes = [("n", pixels[np.sort(order[:n])]) for n in (1_000, 3_000, 10_000, 30_000, 60_000)]
    for by, X in (*sizes, ("d", _data.halved(half)), ("d", half), ("d", pixels)):
        for row in cells(Task("mnist", unit_rows(X)), args.seeds[:3], False, epsilons=(0.1, 1.0)):
            yield {"by": by, **row}


# Proposals that a draw of a subspace keeps ------------------------------------------------------


def acceptance_rows(args):
    """Measured, and a bound on that of the angular central Gaussian (Kent, Ganeiber, Mardia, 2018).

    Draws x of the exact density, of which w are the probabilities to be kept by the other
    sampler, bound it: it is 1 / E (1 / w), which is at most exp E log w.
    """
    for name, k, epsilon in product(("digits", "cancer"), (2, 4, 8), (0.1, 0.3, 1.0, 3.0, 30.0)):
        values = epsilon * np.linalg.eigvalsh(task(name).moments[False])[::-1]
        columns = bingham._fitted(values[:k, None] - values[None, k:])
        noise, kept = SeededNoise(0), []
        start = time.process_time()
        tries = 100 if k < 8 or epsilon < 3 else 2_000
        for _ in range(tries):
            rows = bingham._proposal(columns, noise.normals, noise.uniform)
            if rows is not None:
                kept.append(bingham._basis(rows))
        spent = (time.process_time() - start) / max(len(kept), 1)
        found = {"data": name, "k": k, "epsilon": epsilon, "kept": len(kept) / tries}
        other = float(_log_kept(values[0] - values, np.array(kept))) / np.log(10)
        yield found | {"cpu_s": round(spent, 4), "log10_acg": round(other, 1)}


def _log_kept(gaps, bases):
    """Mean log of the probability to be kept, for the best envelope ``I + 2 A / b``.

    The ratio to it is a sum over the eigenvalues t_i of ``X' A X``, which are at least a_i.
    """
    k, d = bases.shape[2], len(gaps)
    t = np.linalg.eigvalsh(np.einsum("nij,i,nik->njk", bases, gaps, bases))

    def ratio(t, b):
        return d / 2 * np.log1p(2 * t / b) - t

    return max(
        (ratio(t, b) - ratio(np.maximum((d - b) / 2, gaps[:k]), b)).sum(axis=1).mean()
        for b in np.geomspace(0.2, d, 60)
    )


# Distances of public sets -----------------------------------------------------------------------


def ranking_rows(args):
    """Kendall's tau of distances from private directions with those from exact ones."""
    sets = [ranked_sets("mnist", seed) for seed in args.seeds[:3]]
    for (mechanism, delta), epsilon in product(BEST + BINGHAM, (0.1, 0.3, 1.0)):
        options = {"mechanism": mechanism, "delta": delta, "centered": False, "epsilon": epsilon}
        taus = []
        for seed, (X, spans) in enumerate(sets):
            exact = np.linalg.svd(X, full_matrices=False)[2][:K]
            found = [distances(V, spans) for V in (exact, fit(X, seed, **options))]
            taus.append(kendalltau(*found)[0])
        yield {"mechanism": mechanism, "delta": delta, "epsilon": epsilon} | spread("tau", taus)


def ranked_sets(name, seed):
    """Private unit rows, pooled to 14 x 14 pixels, and the best directions of the candidates."""
    X, _, _, _, candidates = _public_sets.task(name, seed=seed)
    X, *others = (pooled(rows) for rows in (X, *candidates.values()))
    return X, [np.linalg.svd(rows, full_matrices=False)[2][:K] for rows in others]


def pooled(rows):
    return unit_rows(rows.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) + 1e-12)


def distances(directions, spans):
    return [1 - np.sum((directions @ span.T) ** 2) / K for span in spans]


# Other libraries -------------------------------------------------------------------------------


def peer_rows(args):
    """Medians: the time of peers varies by more than their energy."""
    settings = {}
    for record in earlier(PEERS):
        setting = record["data"], record["centered"], record["epsilon"]
        settings.setdefault(setting, {}).setdefault(record["peer"], []).append(record)
    for (name, centered, epsilon), peers in sorted(settings.items()):
        found = {"data": name, "centered": centered, "epsilon": epsilon}
        mechanisms = (
            BEST if centered else BEST + [(name, delta) for name, delta in BINGHAM if not delta]
        )
        for row in cells(
            task(name), args.seeds, centered, mechanisms, [epsilon], relation="replace_one"
        ):
            kept = ("captured", "captured_std", "seeds", "cpu_s")
            found[row["mechanism"]] = {key: row[key] for key in kept}
        yield found | {peer: peer_entry(fits) for peer, fits in sorted(peers.items())}


def peer_entry(fits):
    done = [r for r in fits if r["finished"]]
    stopped = sorted(r["limit_s"] for r in fits if not r["finished"])
    entry = {"fits": len(fits), "stopped_at_cpu_s": stopped}
    if done:
        entry |= spread("captured", [r["captured"] for r in done])
        entry["cpu_s"] = round(float(np.median([r["cpu_s"] for r in done])), 4)
    return entry


SECTIONS = {
    "mechanisms": mechanism_rows,
    "mnist": mnist_rows,
    "public": public_rows,
    "sizes": size_rows,
    "acceptance": acceptance_rows,
    "ranking": ranking_rows,
    "peers": peer_rows,
}


if __name__ == "__main__":
    # Epsilon 0.1 is mostly noise.
    run(__doc__, SECTIONS, {"seeds": 10}, ignored=(PrivacyWarning,))
