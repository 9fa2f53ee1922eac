"""Private PCA of another library: captured energy and CPU seconds, each fit in its own process.

This runs in an environment of the peer and imports nothing of dpsubspace; `repro_dppca.py`
shows its records beside ours. A record is one fit: `captured` is tr(V'SV) over the sum of the
k largest eigenvalues of S, the second moment of the rows (with --centered, of the rows less
their mean). `cpu_s` is the fit alone, on one thread, without imports and data. A fit that needs
more than --limit CPU seconds is ended and kept as `"finished": false`. Records are added to
--out after every fit; those with the same peer, data, epsilon, centering and seed are replaced.

Both peers sample one eigenvector after the other from a Bingham distribution by rejection (Amin,
Dick, Kulesza, Munoz Medina, Vassilvitskii, NeurIPS 2019), claim pure epsilon (delta 0) and take
the number of rows as public; epsilon here is what they claim for one replaced row.

diffprivlib  PCA(centered=True) has no mean to find; centered=False spends half of epsilon on the
             mean, within public bounds of the columns. It does not name its neighbours; the
             sensitivity of its mean is that of a replaced row. Seeded.
OpenDP       make_private_pca with a known origin has no mean to find; without one it spends a
             third of epsilon on the mean. (Its class PCA always does, and its measurement maps
             a replaced row to twice the epsilon that was asked for.) Not seeded: seeds count.

usage: pip install diffprivlib==0.6.6 scikit-learn==1.7.2           # environments apart
       pip install "opendp[scikit-learn]==0.16.0" randomgen scikit-learn
       ENV/bin/python benchmarks/peer_dppca.py --peer diffprivlib --data cancer digits
           --epsilon 0.1 1 [--centered] [--seeds 3] [--limit 300] [--out peers.json]
"""

import multiprocessing
import resource
import signal
import time
import warnings
from importlib.metadata import version

import numpy as np
from _run import earlier, run, seconds
from sklearn import datasets

K = 8

# Data: rows of norm at most 1, and public bounds of their columns ------------------------------


def digits(columns=64):
    """Rows over their own norm; of fewer columns, the first ones are taken before that."""
    X = datasets.load_digits().data[:, :columns]
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1), (0.0, 1.0)


def cancer():
    """Columns from their ranges, taken to be public, to [-1, 1], over the root of their number."""
    X = datasets.load_breast_cancer().data
    bound = 1 / np.sqrt(X.shape[1])
    return (2 * (X - X.min(axis=0)) / np.ptp(X, axis=0) - 1) * bound, (-bound, bound)


DATA_SETS = {
    "digits": digits,
    "cancer": cancer,
    "digits30": lambda: digits(30),
    "digits16": lambda: digits(16),
}


def captured(X, components, centered):
    V, _ = np.linalg.qr(np.asarray(components).T)
    rows = X - X.mean(axis=0) if centered else X
    top = np.linalg.eigvalsh(rows.T @ rows)[-V.shape[1] :].sum()
    return float(np.square(rows @ V).sum() / top)


# Peers: each imports what it needs and returns a fit, which returns k rows ---------------------


def diffprivlib(X, bounds, epsilon, centered, seed):
    from diffprivlib.models import PCA

    model = PCA(
        K,
        epsilon=epsilon,
        data_norm=1.0,
        centered=not centered,  # theirs says that the rows are centred already
        bounds=bounds,
        random_state=seed,
    )
    return lambda: model.fit(X.copy()).components_


def opendp(X, bounds, epsilon, centered, seed):
    import opendp.prelude as dp

    dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
    n, d = X.shape
    known = {} if centered else {"norm": 1.0, "p": 2, "origin": np.zeros(d)}
    fit = dp.sklearn.decomposition.make_private_pca(
        dp.numpy.array2_domain(num_columns=d, size=n, T=float, **known),
        dp.symmetric_distance(),
        float(epsilon),
        norm=1.0,
        num_components=K,
    )
    claimed = fit.map(2)  # a replaced row is one removed and one added
    if not np.isclose(claimed, epsilon):
        raise RuntimeError(f"OpenDP claims epsilon {claimed}, not {epsilon}")
    return lambda: fit(X).Vt[:K]


PEERS = {"diffprivlib": diffprivlib, "opendp": opendp}


# One fit ---------------------------------------------------------------------------------------


def one_fit(args, name, epsilon, seed):
    X, bounds = DATA_SETS[name]()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    arguments = (sender, args, X, bounds, epsilon, seed)
    process = multiprocessing.get_context("fork").Process(target=child, args=arguments)
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = None
    process.join()
    if found is None and process.exitcode != -signal.SIGXCPU:
        raise RuntimeError(f"{args.peer} on {name} ended with {process.exitcode}")
    return {
        "peer": args.peer,
        "version": version(args.peer),
        "data": name,
        "rows": X.shape[0],
        "columns": X.shape[1],
        "k": K,
        "epsilon": epsilon,
        "centered": args.centered,
        "seed": seed,
        "captured": None,
        "cpu_s": None,
        "finished": found is not None,
        "limit_s": args.limit,
        **(found or {}),
    }


def child(sender, args, X, bounds, epsilon, seed):
    warnings.simplefilter("ignore")
    fit = PEERS[args.peer](X, bounds, epsilon, args.centered, seed)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = int(np.ceil(time.process_time() + args.limit))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    kept = []
    _, cpu = seconds(lambda: kept.append(fit()))
    share = captured(X, kept[0], args.centered)
    sender.send({"captured": round(share, 5), "cpu_s": round(cpu, 3)})


# The records -----------------------------------------------------------------------------------

SAME = ("peer", "data", "epsilon", "centered", "seed")


def rows(args):
    """Records of other settings, then all seeds of each; one where that took over --slow."""
    settings = [(name, epsilon) for name in args.data for epsilon in args.epsilon]
    again = {
        (args.peer, name, epsilon, args.centered, seed)
        for name, epsilon in settings
        for seed in args.seeds
    }
    known = earlier(args.out)
    yield from (row for row in known if tuple(row[key] for key in SAME) not in again)
    for name, epsilon in settings:
        for seed in args.seeds:
            record = one_fit(args, name, epsilon, seed)
            yield record
            if not record["finished"] or record["cpu_s"] > args.slow:
                break


OPTIONS = {"peer": "diffprivlib", "data": ["digits", "cancer"], "epsilon": [0.1, 0.3, 1.0, 3.0]}
OPTIONS |= {"centered": False, "seeds": 3, "limit": 300.0, "slow": 60.0}

if __name__ == "__main__":
    run(__doc__, rows, OPTIONS)
