"""One whole fit, with its predictions, as a user runs it: seconds, memory and predictions.

bench_peers.py starts this script in the environment of a peer, for one fit in a process of its own.
Imports, and the data frame or the arrays that a peer wants, are there before the clock starts; what
a user would have to write between a table and a peer, such as a column for each category, counts.

tabular_pipeline       of this package, with its default model
linear, not private    scikit-learn's behind a column for each category and numbers in [0, 1]
DP-EBM                 of interpret, with the names of 0.7.8 (see peer_tables.py)
diffprivlib, forest    RandomForestClassifier, with ten trees
diffprivlib, linear    LogisticRegression of rows of norm at most 1, or LinearRegression, by
                       whose open reports 104 and 105 the noise may be too small for epsilon
Opacus                 a linear layer with ghost clipping, 20 epochs of Poisson batches of 512 rows

usage: python benchmarks/peer_fits.py '{"method": "Opacus", "task": "classes", "given": FILE, ...}'
"""

import json
import sys
import warnings
from importlib import metadata

import numpy as np
import peer_tables
from _run import resources


def columns(given, part):
    """Numbers in [0, 1] by their public range, and a column for each category."""
    low, high = given["low"], given["high"]
    numbers = (np.clip(peer_tables.numbers(given, part), low, high) - low) / (high - low)
    codes = given[f"{part}_codes"].T
    dummies = [
        code[:, None] == np.arange(k) for code, k in zip(codes, given["values"], strict=True)
    ]
    return np.hstack([numbers, *dummies]).astype(np.float64)


def ours(job, given):
    import _raw_tables

    from dpsubspace import DPLinearRegression, DPSGDFClassifier, tabular_pipeline

    table = _raw_tables.load(job["table"], job["task"])
    classes = job["task"] == "classes"
    model = DPSGDFClassifier() if classes else DPLinearRegression()
    model.set_params(delta=job["delta"], random_state=job["seed"])
    whole = tabular_pipeline(model, table.schema, epsilon=job["epsilon"], target=table.target)

    def run():
        whole.fit(table.X, table.y)
        return whole.predict_proba(table.X_test)[:, 1] if classes else whole.predict(table.X_test)

    return run


def plain(job, given):
    from sklearn.linear_model import LinearRegression, LogisticRegression

    def run():
        X, X_test = columns(given, "train"), columns(given, "test")
        if job["task"] == "values":
            return LinearRegression().fit(X, given["y"]).predict(X_test)
        return LogisticRegression(max_iter=1000).fit(X, given["y"]).predict_proba(X_test)[:, 1]

    return run


def ebm(job, given):
    import interpret.privacy  # noqa: F401

    return lambda: peer_tables.ebm(job, given)


def forest(job, given):
    import diffprivlib.models  # noqa: F401

    return lambda: peer_tables.forest(job | {"trees": None}, given)


def diffprivlib_linear(job, given):
    from diffprivlib.models import LinearRegression, LogisticRegression

    options = {"epsilon": job["epsilon"], "random_state": job["seed"]}

    def run():
        X, X_test = columns(given, "train"), columns(given, "test")
        if job["task"] == "values":
            options["bounds_X"] = (np.zeros(X.shape[1]), np.ones(X.shape[1]))
            options["bounds_y"] = tuple(map(float, given["target"]))
            return LinearRegression(**options).fit(X, given["y"]).predict(X_test)
        X, X_test = (rows / max(1, X.shape[1]) ** 0.5 for rows in (X, X_test))
        model = LogisticRegression(**options, data_norm=1.0, max_iter=1000)
        return model.fit(X, given["y"]).predict_proba(X_test)[:, 1]

    return run


def opacus(job, given):
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(job["seed"])

    def run():
        X, X_test = (torch.tensor(columns(given, part)).float() for part in ("train", "test"))
        loss, layer = torch.nn.CrossEntropyLoss(), torch.nn.Linear(X.shape[1], 2)
        sgd = torch.optim.SGD(layer.parameters(), lr=4.0)
        rows = TensorDataset(X, torch.tensor(given["y"]))
        module, optimizer, criterion, loader = PrivacyEngine().make_private_with_epsilon(
            module=layer,
            optimizer=sgd,
            data_loader=DataLoader(rows, batch_size=min(512, len(X) // 4)),
            target_epsilon=job["epsilon"],
            target_delta=job["delta"],
            epochs=20,
            max_grad_norm=1.0,
            grad_sample_mode="ghost",
            criterion=loss,
        )
        for _ in range(20):
            for batch, labels in loader:
                optimizer.zero_grad()
                criterion(module(batch), labels).backward()
                optimizer.step()
        with torch.no_grad():
            return torch.softmax(module(X_test), dim=1)[:, 1].numpy()

    return run


METHODS = {
    "tabular_pipeline": ("dpsubspace", ours),
    "linear, not private": ("scikit-learn", plain),
    "DP-EBM": ("interpret-core", ebm),
    "diffprivlib, forest": ("diffprivlib", forest),
    "diffprivlib, linear": ("diffprivlib", diffprivlib_linear),
    "Opacus": ("opacus", opacus),
}


def main():
    warnings.simplefilter("ignore")
    job, found = json.loads(sys.argv[1]), []
    package, prepare = METHODS[job["method"]]
    run = prepare(job, dict(np.load(job["given"])))
    used = resources(lambda: found.append(run()))
    np.save(job["found"], found[0])
    print(json.dumps(used | {"version": f"{package} {metadata.version(package)}"}))


if __name__ == "__main__":
    main()
