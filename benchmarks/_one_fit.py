"""One training run in a process of its own: its CPU seconds and its memory, as a line of JSON.

``one_fit`` starts it, if need be with the interpreter of another environment: nothing of
dpsubspace is imported but by its own methods.

usage: python benchmarks/_one_fit.py '{"method": "DPSGDClassifier", "rows": 60000, "n_iter": 10}'
"""

import json
import subprocess
import sys
import warnings

import numpy as np
from _inside import fitted_with
from _run import resources, with_threads

JOB = {  # and what may be left out of it
    "method": None,
    "rows": 60_000,
    "features": 784,
    "classes": 10,
    "file": None,  # an .npy file to map instead of rows in memory
    "batch_size": None,
    "n_iter": 10,
    "noise_multiplier": 5.0,
    "clip_norm": 0.5,
    "accounting": True,
    "public": 500,  # rows, this and what follows are of GEPClassifier
    "directions": "gradients",
    "mechanism": "auto",  # this and what follows are of DPPCA
    "n_components": 8,  # of GEPClassifier and PublicSubspaceLinearRegression as well
    "epsilon": 1.0,
    "save": None,  # an .npy file for the components
}


def one_fit(python=sys.executable, threads=1, **job):
    """What a job takes in its own process, with the version of what did it."""
    return answer(__file__, job, python, threads)


def answer(script, job, python=sys.executable, threads=1):
    """The last line that a script prints of a job, in a process of its own."""
    command = [str(python), str(script), json.dumps(job, default=str)]
    done = subprocess.run(
        command, env=with_threads(threads), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


# Methods: each prepares, imports included, and returns what is measured ------------------------


def estimator(job, X, y):
    import dpsubspace
    from dpsubspace._core.accounting.cost import Cost
    from dpsubspace._names import imported

    warnings.simplefilter("ignore", dpsubspace.PrivacyWarning)
    if not job["accounting"]:  # what a fit costs is counted by no peer while it trains
        Cost.epsilon = lambda self, delta: 1.0
    model = imported(job["method"])(
        epsilon=None,
        **{name: job[name] for name in ("noise_multiplier", "n_iter", "clip_norm", "batch_size")},
    )
    small = imported(job["method"])(n_iter=1)
    small.fit(np.eye(4, dtype=np.float32), [0, 1, 0, 1])  # what is imported on first use
    return lambda: model.fit(X, y)


def gep(job, X, y):
    """By an explicit number of directions of random public rows."""
    import dpsubspace

    warnings.simplefilter("ignore", dpsubspace.PrivacyWarning)
    public = np.random.default_rng(1).random((job["public"], X.shape[1]), dtype=np.float32)

    def fit(X, y, public, n_iter, n_components, batch_size=None):
        how = {"n_components": n_components, "directions": job["directions"]}
        if job["directions"] == "gradients":
            how = {
                "directions": dpsubspace.linear_model.GradientDirections(n_components=n_components)
            }
        model = dpsubspace.GEPClassifier(n_iter=n_iter, batch_size=batch_size, **how)
        noise = {"noise_multiplier": job["noise_multiplier"]}
        fitted_with(model, X, y, public={"X_public": (public,)}, **noise)

    rows = np.eye(4, dtype=np.float32)
    fit(rows, [0, 1, 0, 1], rows + 1, 1, 1)  # what is imported on first use
    of_job = (job[name] for name in ("n_iter", "n_components", "batch_size"))
    return lambda: fit(X, y, public, *of_job)


def pca(job, X, y):
    """Of rows of norm at most 1, not centred."""
    import dpsubspace

    warnings.simplefilter("ignore", dpsubspace.PrivacyWarning)
    options = {"centered": False, "data_norm": 1.0, "mechanism": job["mechanism"]}
    model = dpsubspace.DPPCA(job["n_components"], epsilon=job["epsilon"], **options)
    dpsubspace.DPPCA(1).fit(np.eye(4, dtype=np.float32))  # what is imported on first use
    return lambda: np.save(job["save"], model.fit(X).components_)


def public_tasks(features, n_tasks=20, n_rows=200, n_components=10):
    """Rows and targets of public tasks, whose coefficients are in the first directions."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n_tasks, n_rows, features))
    coef = rng.normal(size=(n_tasks, n_components, 1))
    y = (X[..., :n_components] @ coef)[..., 0] + rng.normal(size=(n_tasks, n_rows))
    return tuple(X), tuple(y)


def regression(job, X, y):
    """Private linear regression with public ranges, in the space of public tasks or in all."""
    import dpsubspace
    from dpsubspace._names import imported

    warnings.simplefilter("ignore", dpsubspace.PrivacyWarning)

    def fit(X, y, n_components):
        options, public = {"bounds": (-5.0, 5.0), "target_bounds": (0.0, 10.0)}, {}
        if job["method"].startswith("PublicSubspace"):
            options["n_components"] = n_components
            public = dict(zip(("X_public", "y_public"), public_tasks(X.shape[1]), strict=True))
        imported(job["method"])(**options).fit(X, y, **public)

    fit(np.eye(16, dtype=np.float32), np.arange(16.0), 1)  # what is imported on first use
    return lambda: fit(X, y, job["n_components"])


def torch_func(job, X, y):
    """Per-example gradients by vmap, 4,096 records at once."""
    import torch
    from torch.func import grad, vmap

    rows, labels = torch.from_numpy(X), torch.from_numpy(y)

    def loss(params, row, label):
        scores = row @ params[0] + params[1]
        return torch.nn.functional.cross_entropy(scores[None], label[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    clip_norm, expected = job["clip_norm"], job["batch_size"] or len(X)

    def clipped_sum(params, batch):
        sums = [torch.zeros_like(p) for p in params]
        for part in batch.split(4096):
            parts = gradients(params, rows[part], labels[part])
            norms = torch.sqrt(sum(g.flatten(1).square().sum(1) for g in parts))
            factors = (clip_norm / norms).clamp(max=1)
            for total, g in zip(sums, parts, strict=True):
                total += torch.tensordot(factors, g, dims=1)
        return sums

    def run():
        params = [torch.zeros(job["features"], job["classes"]), torch.zeros(job["classes"])]
        noise = job["noise_multiplier"] * clip_norm
        for _ in range(job["n_iter"]):
            sums = clipped_sum(params, torch_batch(job))
            params = [
                p - (s + noise * torch.randn_like(s)) / expected
                for p, s in zip(params, sums, strict=True)
            ]

    return run


def torch_batch(job):
    import torch

    if job["batch_size"] is None:
        return torch.arange(job["rows"])
    return torch.nonzero(torch.rand(job["rows"]) < job["batch_size"] / job["rows"]).ravel()


def opacus_ghost(job, X, y, loaded=True):
    """Opacus with ghost clipping, on batches of its own loader."""
    import opacus
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    warnings.simplefilter("ignore")
    rows, labels = torch.from_numpy(X), torch.from_numpy(y)
    model = torch.nn.Linear(job["features"], job["classes"])
    model, optimizer, criterion, loader = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=DataLoader(TensorDataset(rows, labels), batch_size=job["batch_size"] or len(X)),
        criterion=torch.nn.CrossEntropyLoss(),
        noise_multiplier=job["noise_multiplier"],
        max_grad_norm=job["clip_norm"],
        grad_sample_mode="ghost",
    )

    def batches():
        while True:
            if loaded:
                yield from loader
            else:
                batch = torch_batch(job)
                yield rows[batch], labels[batch]

    def run():
        for _, (x, label) in zip(range(job["n_iter"]), batches(), strict=False):
            optimizer.zero_grad()
            criterion(model(x), label).backward()
            optimizer.step()

    return run


def opacus_ghost_gathered(job, X, y):
    """The same on batches gathered by index, which its loader does row by row."""
    return opacus_ghost(job, X, y, loaded=False)


METHODS = {  # and the package that does the work
    "DPSGDClassifier": (estimator, "dpsubspace"),
    "DPSGDFClassifier": (estimator, "dpsubspace"),
    "GEPClassifier": (gep, "dpsubspace"),
    "DPPCA": (pca, "dpsubspace"),
    "DPLinearRegression": (regression, "dpsubspace"),
    "PublicSubspaceLinearRegression": (regression, "dpsubspace"),
    "torch.func": (torch_func, "torch"),
    "opacus ghost": (opacus_ghost, "opacus"),
    "opacus ghost, gathered": (opacus_ghost_gathered, "opacus"),
}


def main():
    job = JOB | json.loads(sys.argv[1])
    rng = np.random.default_rng(0)
    if job["file"] is None:
        X = rng.random((job["rows"], job["features"]), dtype=np.float32)
    else:
        X = np.load(job["file"], mmap_mode="r")
    y = rng.integers(job["classes"], size=len(X))
    method, package = METHODS[job["method"]]
    found = resources(method(job, X, y))
    print(json.dumps({**found, "version": sys.modules[package].__version__}))


if __name__ == "__main__":
    main()
