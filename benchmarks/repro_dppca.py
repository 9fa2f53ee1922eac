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
peers       replaced rows, beside the records in results/dppca_peers.json (peer_dppca.py)

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_dppca.py
           [mechanisms mnist public sizes peers] [--seeds 10] [--plot DIR]
           [--out benchmarks/results/dppca.json]

--plot saves pictures against epsilon, n and d of the sections that ran.
"""

import time
from functools import cache
from pathlib import Path

import _data
import numpy as np
from _run import earlier, judged, run, spread
from peer_dppca import DATA_SETS, K

from dpsubspace import DPPCA, PrivacyWarning

DELTA = 1e-5
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

    def __init__(self, X):
        self.X = X
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
    if name == "mnist":
        return Task(unit_rows(mnist_pixels()))
    return Task(DATA_SETS[name]()[0])


def mnist_pixels():
    return _data.load("mnist")[0]


def unit_rows(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


# Fits ------------------------------------------------------------------------------------------


def fit(X, seed, X_public=None, **parameters):
    model = DPPCA(K, data_norm=1.0, random_state=seed, **parameters)
    return model.fit(X, X_public=X_public).components_


@cache
def cell(name, seeds, *, mechanism, centered, relation, epsilon, delta=DELTA):
    """One line: fits of all seeds with one setting."""
    rows = task(name)
    shares, spent = [], []
    for seed in seeds:
        before = time.process_time()
        components = fit(
            rows.X,
            seed,
            mechanism=mechanism,
            centered=centered,
            neighboring_relation=relation,
            epsilon=epsilon,
            delta=delta,
        )
        spent.append(time.process_time() - before)
        shares.append(rows.captured(components, centered))
    found = {
        "data": name,
        "n": rows.X.shape[0],
        "d": rows.X.shape[1],
        "mechanism": mechanism,
        "delta": delta,
        "centered": centered,
        "relation": relation,
        "epsilon": epsilon,
        **spread("captured", shares),
        "cpu_s": round(float(np.median(spent)), 4),
    }
    floor = FLOORS.get((name, epsilon))
    if (centered, relation) == (False, "zero_out") and mechanism in ("adaptive", "gaussian"):
        found |= {"floor": floor, **judged(found["captured"] >= floor)} if floor else {}
    return found


def mechanism_rows(args):
    for name in ("digits", "cancer"):
        for relation in RELATIONS:
            for centered in (False, True):
                settings = [(m, DELTA) for m in ("adaptive", "gaussian", "power")]
                if not centered:
                    settings += [("bingham", DELTA), ("bingham", 0)]
                for mechanism, delta in settings:
                    for epsilon in EPSILONS:
                        yield cell(
                            name,
                            tuple(args.seeds),
                            mechanism=mechanism,
                            centered=centered,
                            relation=relation,
                            epsilon=epsilon,
                            delta=delta,
                        )


def mnist_rows(args):
    for centered in (False, True):
        for mechanism in ("adaptive", "gaussian"):
            for epsilon in EPSILONS:
                yield cell(
                    "mnist",
                    tuple(args.seeds[:3]),
                    mechanism=mechanism,
                    centered=centered,
                    relation="zero_out",
                    epsilon=epsilon,
                )


# Public rows -----------------------------------------------------------------------------------

PUBLIC = (  # number of public rows, good or bad, mechanism, centred
    (50, "good", "adaptive", False),
    (50, "good", "gaussian", False),
    (50, "good", "adaptive", True),
    (20, "good", "adaptive", False),
    (200, "good", "adaptive", False),
    (50, "bad", "adaptive", False),
    (50, "bad", "gaussian", False),
    (50, "bad", "adaptive", True),
    (20, "bad", "adaptive", False),
    (200, "bad", "adaptive", False),
)


def public_rows(args):
    X = task("digits").X
    for m, kind, mechanism, centered in PUBLIC:
        for epsilon in EPSILONS[:3]:
            runs = [
                public_run(X, seed, m, kind, mechanism, centered, epsilon) for seed in args.seeds
            ]
            yield public_row(np.array(runs), len(X) - m, m, kind, mechanism, centered, epsilon)


def public_run(X, seed, m, kind, mechanism, centered, epsilon):
    """Captured by private rows alone, by public rows alone, by both."""
    rng = np.random.default_rng(1000 + seed)
    order = rng.permutation(len(X))
    shown, rows = X[order[:m]], Task(X[order[m:]])
    if kind == "bad":
        shown = shown[:, rng.permutation(X.shape[1])]
    about = shown - shown.mean(axis=0) if centered else shown
    alone = np.linalg.svd(about, full_matrices=False)[2][:K]
    options = {"mechanism": mechanism, "centered": centered, "epsilon": epsilon, "delta": DELTA}
    private, both = fit(rows.X, seed, **options), fit(rows.X, seed, shown, **options)
    return [rows.captured(components, centered) for components in (private, alone, both)]


def public_row(runs, n, m, kind, mechanism, centered, epsilon):
    found = {
        "data": "digits",
        "n": n,
        "public": m,
        "kind": kind,
        "mechanism": mechanism,
        "centered": centered,
        "epsilon": epsilon,
    }
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
    seeds = args.seeds[:3]
    order = np.random.default_rng(0).permutation(len(pixels))
    for n in (1_000, 3_000, 10_000, 30_000, 60_000):
        yield from size_cells("n", unit_rows(pixels[np.sort(order[:n])]), seeds)
    half = _data.halved(pixels)
    for pooled in (_data.halved(half), half, pixels):
        yield from size_cells("d", unit_rows(pooled), seeds)


def size_cells(by, X, seeds):
    rows = Task(X)
    for mechanism in ("adaptive", "gaussian"):
        for epsilon in (0.1, 1.0):
            options = {"mechanism": mechanism, "epsilon": epsilon, "delta": DELTA}
            shares = [
                rows.captured(fit(X, seed, centered=False, **options), False) for seed in seeds
            ]
            yield {
                "by": by,
                "data": "mnist",
                "n": X.shape[0],
                "d": X.shape[1],
                "centered": False,
                "relation": "zero_out",
                **options,
                **spread("captured", shares),
            }


# Other libraries -------------------------------------------------------------------------------


def peer_rows(args):
    """Medians: the time of peers varies by more than their energy."""
    records = earlier(PEERS)
    settings = sorted({(r["data"], r["centered"], r["epsilon"]) for r in records})
    for name, centered, epsilon in settings:
        found = {"data": name, "centered": centered, "epsilon": epsilon}
        ours = [("adaptive", DELTA), ("gaussian", DELTA)]
        if not centered:
            ours.append(("bingham", 0))
        for mechanism, delta in ours:
            row = cell(
                name,
                tuple(args.seeds),
                mechanism=mechanism,
                centered=centered,
                relation="replace_one",
                epsilon=epsilon,
                delta=delta,
            )
            kept = ("captured", "captured_std", "seeds", "cpu_s")
            found[mechanism] = {key: row[key] for key in kept}
        setting = (name, centered, epsilon)
        for peer in sorted({r["peer"] for r in records}):
            fits = [
                r
                for r in records
                if (r["data"], r["centered"], r["epsilon"]) == setting and r["peer"] == peer
            ]
            found[peer] = peer_entry(fits)
        yield found


def peer_entry(fits):
    done = [r for r in fits if r["finished"]]
    stopped = sorted(r["limit_s"] for r in fits if not r["finished"])
    entry = {"fits": len(fits), "stopped_at_cpu_s": stopped}
    if done:
        entry |= spread("captured", [r["captured"] for r in done])
        entry["cpu_s"] = round(float(np.median([r["cpu_s"] for r in done])), 4)
    return entry


# Pictures --------------------------------------------------------------------------------------


def pictures(folder, results):
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("digits", "cancer", "mnist"):
        section = "mnist" if name == "mnist" else "mechanisms"
        rows = [
            row
            for row in results.get(section, [])
            if row["data"] == name and row["relation"] == "zero_out" and not row["centered"]
        ]
        labels = [f"{row['mechanism']}, delta {row['delta']:g}" for row in rows]
        picture(folder / f"epsilon_{name}.png", rows, labels, "epsilon", f"{name}, not centred")
    for by, title in (("n", "MNIST, 784 pixels"), ("d", "MNIST, 60,000 rows, pooled")):
        rows = [row for row in results.get("sizes", []) if row["by"] == by]
        labels = [f"{row['mechanism']}, epsilon {row['epsilon']:g}" for row in rows]
        picture(folder / f"size_{by}.png", rows, labels, by, title)


def picture(path, rows, labels, x, title):
    """Captured energy against column `x`, bands of a standard deviation."""
    if not rows:
        return
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for label in dict.fromkeys(labels):
        some = [row for row, its in zip(rows, labels, strict=True) if its == label]
        at = [row[x] for row in some]
        mean = np.array([row["captured"] for row in some])
        std = np.array([row["captured_std"] or 0.0 for row in some])
        axes.plot(at, mean, marker="o", label=label)
        axes.fill_between(at, mean - std, np.minimum(mean + std, 1), alpha=0.2)
    axes.set(xscale="log", xlabel=x, ylabel="captured energy", title=title, ylim=(None, 1.01))
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(path)


SECTIONS = {
    "mechanisms": mechanism_rows,
    "mnist": mnist_rows,
    "public": public_rows,
    "sizes": size_rows,
    "peers": peer_rows,
}


if __name__ == "__main__":
    args = run(
        __doc__,
        SECTIONS,
        {"seeds": (10, "number of seeds; at most 3 on MNIST"), "plot": (Path, "folder")},
        packages=("scipy", "dp-accounting"),
        ignored=(PrivacyWarning,),  # epsilon 0.1 is mostly noise
    )
    if args.plot is not None:
        pictures(args.plot, args.results)
