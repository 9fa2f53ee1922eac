"""Fine-tuning of a small public network: how much of it is best trained privately.

The network (64-64-32, ReLU) is trained without privacy on the digits 0 to 4 of scikit-learn, which
are taken to be public. Of the digits 5 to 9, 650 are private and 246 are for testing. Private
images look like public ones ("same"), or are rotated by 90 degrees ("rotated"). Accuracy is the
mean over seeds of split and noise. Delta is the default. Compared are

- ``pixels``: ``DPSGDFClassifier`` without the network;
- ``frozen``: ``DPSGDFClassifier`` on the frozen network, which ``TorchFeatures`` applies;
- ``last layer``: a new last layer by ``DPModuleClassifier``, below which all is frozen;
- ``LoRA``: the same, with a product of thin matrices of rank 4 beside both frozen layers;
- ``all weights``: the whole network from its public weights.

``steps`` takes the default step size of LoRA times a factor.

usage: python benchmarks/repro_finetuning.py [ways steps] [--seeds 3] [--epsilons 1 3 8]
       [--out benchmarks/results/finetuning.json]
"""

import copy

import numpy as np
from _run import run
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline

from dpsubspace import DPSGDFClassifier, PrivacyWarning
from dpsubspace.neural_network import DPModuleClassifier, TorchFeatures

SHIFTS = ("same", "rotated")
FACTORS = (0.1, 0.3, 1.0, 3.0)


def digits(shift):
    """Public images and labels, and private ones."""
    X, y = load_digits(return_X_y=True)
    X, public = (X / 16).astype(np.float32), y < 5
    private = X[~public].reshape(-1, 8, 8)
    if shift == "rotated":
        private = np.rot90(private, axes=(1, 2))
    return X[public], y[public], private.reshape(-1, 64).copy(), y[~public]


def public_network(X, y):
    """Layers that were trained on public rows, without the last one."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
    network = nn.Sequential(body, nn.Linear(32, 5))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, weight_decay=1e-4)
    rows, labels = torch.tensor(X), torch.tensor(y)
    for _ in range(40):
        for batch in torch.randperm(len(rows)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(rows[batch]), labels[batch]).backward()
            optimizer.step()
    return body


def with_lora(body, rank=4, seed=0):
    """The network with a trainable product of thin matrices beside each frozen layer."""
    import torch
    from torch import nn

    class LoRA(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer.requires_grad_(False)
            self.down = nn.Linear(layer.in_features, rank, bias=False)
            self.up = nn.Linear(rank, layer.out_features, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, rows):
            return self.layer(rows) + self.up(self.down(rows))

    torch.manual_seed(seed)
    first, relu, second, last = copy.deepcopy(body)
    return nn.Sequential(LoRA(first), relu, LoRA(second), last, nn.Linear(32, 5))


def fits(body, X, y, epsilon, seed):
    """Fitted models by name."""
    import torch
    from torch import nn

    given = {"epsilon": epsilon, "random_state": seed}
    yield "pixels", DPSGDFClassifier(**given).fit(X, y)
    yield "frozen", make_pipeline(TorchFeatures(body), DPSGDFClassifier(**given)).fit(X, y)
    torch.manual_seed(seed)
    head = nn.Sequential(copy.deepcopy(body).requires_grad_(False), nn.Linear(32, 5))
    yield "last layer", DPModuleClassifier(head, **given).fit(X, y)
    yield "LoRA", DPModuleClassifier(with_lora(body, seed=seed), **given).fit(X, y)
    torch.manual_seed(seed)
    whole = nn.Sequential(copy.deepcopy(body), nn.Linear(32, 5))
    yield "all weights", DPModuleClassifier(whole, **given).fit(X, y)


def splits(X, y, seeds):
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = order[:650], order[650:]
        yield seed, X[train], y[train], X[test], y[test]


def ways(args):
    for shift in SHIFTS:
        X_public, y_public, X, y = digits(shift)
        body = public_network(X_public, y_public)
        for epsilon in args.epsilons:
            found = {}
            for seed, rows, labels, X_test, y_test in splits(X, y, args.seeds):
                for name, model in fits(body, rows, labels, epsilon, seed):
                    found.setdefault(name, []).append(model.score(X_test, y_test))
            for name, scores in found.items():
                spread = {"accuracy": float(np.mean(scores)), "sd": float(np.std(scores))}
                yield {"private images": shift, "epsilon": epsilon, "way": name} | spread


def steps(args):
    X_public, y_public, X, y = digits("same")
    body = public_network(X_public, y_public)
    for epsilon in args.epsilons:
        found = {}
        for seed, rows, labels, X_test, y_test in splits(X, y, args.seeds):
            auto = 1.0
            for factor in (1.0, *(f for f in FACTORS if f != 1.0)):
                rate = "auto" if factor == 1.0 else factor * auto
                options = {"epsilon": epsilon, "random_state": seed, "learning_rate": rate}
                model = DPModuleClassifier(with_lora(body, seed=seed), **options).fit(rows, labels)
                auto = auto if factor != 1.0 else model.learning_rate_
                found.setdefault(factor, []).append(model.score(X_test, y_test))
        means = {f"x {factor:g}": float(np.mean(found[factor])) for factor in FACTORS}
        yield {"epsilon": epsilon, "step size": auto} | means


if __name__ == "__main__":
    options = {"seeds": 3, "epsilons": [1.0, 3.0, 8.0]}
    run(__doc__, {"ways": ways, "steps": steps}, options, ignored=[PrivacyWarning])
