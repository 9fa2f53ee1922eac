"""Was a row among the private ones? Guesses by a distance, by a scorer and by a choice.

Rows are Fashion-MNIST, averaged over squares of 2 x 2 pixels, with two more columns that are zero
in all images. A classifier that learns from known members (as in Gu, Kamath, Wu, 2023, appendix
D.1) is beside attacks by the ratio of likelihoods (Carlini et al., 2022). The latter are for a row
z that is known: an image of median norm, the same image 1,000 times as long, and rows along a
column of their own. Other rows of a batch are drawn anew for each trial, and a coin decides
whether z takes part. A quarter of the trials tells how what is published is distributed without z
and with it, by two normal densities; the others are guessed about at equal odds. Of private
releases it is known in which direction z moves them, and the quarter tells the middle. The lower
bound on epsilon is that of `audit_epsilon` with each trial as a canary and guesses about the
clearer half. A verdict is for what is private: no attack may be better than its guarantee permits
by three standard errors, no bound above the claim, and with a tenth of the noise (a planted bug)
the bound must be above it.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_membership.py [papers number scorer choice]
           [--seeds 10] [--trials 2000] [--out benchmarks/results/membership.json]

Seeds are batches for the classifier. For attacks by likelihoods all of them together are one seed.
"""

import math
from contextlib import contextmanager
from functools import cache
from itertools import product
from unittest.mock import patch
from zlib import crc32

import _data
import numpy as np
from _run import judged, run
from scipy import special, stats
from scipy.optimize import brentq
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsubspace import PrivacyWarning, select_public
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import NullRecords
from dpsubspace._core.statistics import moments
from dpsubspace.audit import audit_epsilon
from dpsubspace.public_data import GSDScorer, gradient_subspace_distance

DELTA, CLASSES = 1e-5, 10
BATCH, KNOWN = 2000, (1000, 1800)  # of the papers
ROWS = 500  # of a batch that is attacked by likelihoods
LONG = 1000.0


# Rows ------------------------------------------------------------------------------------------


@cache
def images(name, part=0):
    """Images of one part with two columns of zeros, and labels."""
    X, y = _data.load(name)[2 * part : 2 * part + 2]
    return np.hstack([_data.halved(X), np.zeros((len(X), 2))]).astype(np.float64), y


@cache
def row(kind):
    """The row that an attack is about."""
    X, _ = images("fashion", 1)
    norms = np.linalg.norm(X, axis=1)
    middle = np.argsort(norms)[len(X) // 2]
    along = X[middle] if kind.startswith("image") else norms[middle] * np.eye(X.shape[1])[-1]
    return along * (LONG if kind.endswith("long") else 1.0)


def other():
    """A row in the column that is left."""
    return np.eye(len(row("own")))[-2]


def rest(rng, n=ROWS - 1):
    X, _ = images("fashion")
    return X[rng.choice(len(X), n, replace=False)]


# As the papers ran it --------------------------------------------------------------------------


def paper_rows(args):
    right = {}
    for seed in args.seeds:
        for setting, correct in paper_batch(seed):
            right.setdefault(setting, []).extend(correct)
    for (attack, known, features), correct in right.items():
        found = {"attack": attack, "known": known, "features": features}
        yield found | {"trials": len(correct)} | share("accuracy", np.array(correct))


def paper_batch(seed):
    """Guesses about members and as many others of one batch, right or wrong, by setting."""
    rng = np.random.default_rng(seed)
    X, y = images("fashion")
    order = rng.permutation(len(X))[: 2 * BATCH]
    X, y, member = X[order], y[order], np.arange(2 * BATCH) < BATCH
    public = images("mnist", 1)[0][:BATCH]
    options = {"n_repeats": 3, "random_state": seed, "return_details": True}
    distances = gradient_subspace_distance(X[member], public, **options)[1].distances
    weights = rng.normal(size=(X.shape[1], CLASSES)) / math.sqrt(X.shape[1])
    scores = X @ weights
    residuals = special.softmax(scores, axis=1) - np.eye(CLASSES)[y]
    loss = special.logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]
    attacks = {
        "white box": (X[:, :, None] * residuals[:, None, :]).reshape(len(X), -1),
        "black box": np.column_stack([scores, loss, np.eye(CLASSES)[y]]),
    }
    for (attack, own), known in product(attacks.items(), KNOWN):
        seen = (np.arange(2 * BATCH) % BATCH) < known
        for features in ("alone", "and distances"):
            F = own
            if features != "alone":
                F = np.hstack([own, np.tile(distances, (len(own), 1))])
            model = classifier(attack, seed).fit(F[seen], member[seen])
            yield (attack, known, features), model.predict(F[~seen]) == member[~seen]


def classifier(attack, seed):
    if attack == "black box":
        return RandomForestClassifier(random_state=seed)
    network = MLPClassifier((64,), max_iter=15, random_state=seed)
    return make_pipeline(StandardScaler(), network)


# Trials ----------------------------------------------------------------------------------------


def trials(args, count, see, *setting):
    """Coins, and what ``see(coin, rng, *setting)`` tells in each trial, by name."""
    rng = np.random.default_rng([crc32(repr(setting).encode()), *args.seeds])
    coins = rng.random(count) < 0.5
    seen = [see(bool(coin), rng, *setting) for coin in coins]
    return coins, {name: np.array([each[name] for each in seen]) for name in seen[0]}


def attacked(coins, seen, direction=0):
    """How well the ratio of likelihoods guesses the coins, and the bound on epsilon.

    With a `direction`, 1 or -1, larger or smaller values are known to be likelier with z.
    """
    start = len(coins) // 4
    if direction:
        score = direction * (seen[start:] - seen[:start].mean())
    else:
        score = learned(coins[:start], seen[:start], seen[start:])
    coins = coins[start:]
    found = {"trials": len(coins)} | share("accuracy", (score > 0) == coins)
    found |= true_positives(score[~coins], score[coins])
    found["auc"] = round(float(roc_auc_score(coins, score)), 4)
    return found | {"epsilon_bound": bound(score, coins)}


def learned(coins, shown, seen):
    """Logarithm of the ratio of two normal densities that are fitted to what was shown."""
    means, widths = [], []
    for coin in (False, True):
        some = shown[coins == coin]
        means.append(some.mean())
        widths.append(max(some.std(), 1e-9))
    without, there = (stats.norm.logpdf(seen, m, w) for m, w in zip(means, widths, strict=True))
    return there - without


def true_positives(out, there):
    """Rate at 1 % of false positives, with an interval that knows how little finds that place."""
    tail = stats.binomtest(round(len(out) / 100), len(out)).proportion_ci(0.975, method="exact")
    near, place, far = np.quantile(out, 1 - np.array([tail.high, 0.01, tail.low]))
    most, least = (share("tpr", there > end, 0.975)["tpr_95"] for end in (near, far))
    return {"tpr": round(float(np.mean(there > place)), 4), "tpr_95": [least[0], most[1]]}


def bound(score, coins):
    """Lower bound on epsilon from guesses about the clearer half, half of them each way."""
    quarter = len(coins) // 4
    order = np.argsort(score, kind="stable")  # coins are in no order, and so are ties
    right = int(coins[order[-quarter:]].sum() + (~coins[order[:quarter]]).sum())
    return round(audit_epsilon(len(coins), 2 * quarter, right, delta=DELTA), 3)


def share(name, right, level=0.95):
    """Share of what is right, with the exact interval (Clopper, Pearson, 1934)."""
    k, n = int(np.sum(right)), len(right)
    ends = stats.binomtest(k, n).proportion_ci(level, method="exact")
    return {name: round(k / n, 4), f"{name}_95": [round(ends.low, 4), round(ends.high, 4)]}


def permitted(epsilon, kind):
    """Best accuracy, rate of true positives at 1 % of false ones, and area.

    By the event, a Gaussian one or a bounded range, and for accuracy by epsilon and delta alone.
    """
    if kind == "range":  # a choice, by its bounded range
        best = {"accuracy_permitted": round(1 / (1 + math.exp(-epsilon / 2)), 4)}
        return best | {"accuracy_by_epsilon": round(1 / (1 + math.exp(-epsilon)), 4)}

    def excess(mu):
        far = stats.norm.cdf(-mu / 2 - epsilon / mu)
        return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * far - DELTA

    mu = brentq(excess, 1e-3, 100)
    by_epsilon = (math.exp(epsilon) + DELTA) / (1 + math.exp(epsilon))
    return {
        "accuracy_by_epsilon": round(by_epsilon, 4),
        "accuracy_permitted": round(stats.norm.cdf(mu / 2), 4),
        "tpr_permitted": round(stats.norm.cdf(stats.norm.ppf(0.01) + mu), 4),
        "auc_permitted": round(stats.norm.cdf(mu / math.sqrt(2)), 4),
    }


def verdict(found, epsilon, noise):
    if noise < 1:
        return judged(found["epsilon_bound"] > epsilon)
    margin = 3 / math.sqrt(4 * found["trials"])  # three standard errors, for many lines
    within = found["accuracy"] <= found["accuracy_permitted"] + margin
    return judged(within and found["epsilon_bound"] <= epsilon)


@contextmanager
def planted(noise):
    """Releases with `noise` times the noise that is charged."""
    charged = Releases._next

    def with_less(self, name, kind):
        part, scale = charged(self, name, kind)
        return part, scale * noise if kind == "gaussian" else scale / noise

    with patch.object(Releases, "_next", with_less):
        yield


# The number that is not private ----------------------------------------------------------------

NUMBERS = [*product(("image", "image, long", "own", "own, long"), ("images", "along z"))]


def number_rows(args):
    for kind, public in NUMBERS:
        coins, seen = trials(args, args.trials // 5, number, kind, public)
        yield {"z": kind, "public": public, "rest": "random"} | attacked(coins, seen["distance"])
    for kind in ("image", "own, long"):
        coins, seen = trials(args, args.trials // 10, informed, kind)
        for digits, guess in seen.items():
            found = {"z": kind, "public": "images", "rest": "known", "digits": digits}
            yield found | {"trials": len(coins)} | share("accuracy", (guess > 0) == coins)


def distance(X, public, seed):
    return gradient_subspace_distance(X, public, n_repeats=1, random_state=seed)


def number(coin, rng, kind, public):
    z, X = row(kind), rest(rng, ROWS)
    if coin:
        X[0] = z
    shown = images("fashion", 1)[0][-ROWS:]
    if public == "along z":  # enough rows that their gradients have 16 directions
        shown = np.repeat([z / np.linalg.norm(z), other()], 40, axis=0)
    return {"distance": distance(X, shown, int(rng.integers(2**31)))}


def informed(coin, rng, kind):
    """Guesses of one who knows all rows but z, and the seed: 1 for in and -1 for out."""
    X, shown = rest(rng, ROWS), images("fashion", 1)[0][-ROWS:]
    seed, tie = int(rng.integers(2**31)), rng.choice([-1, 1])
    without = distance(X, shown, seed)
    X[0] = row(kind)
    either, guesses = (without, distance(X, shown, seed)), {}
    for digits in (16, 3, 2):
        out, there = (round(each, digits) for each in either)
        told = there if coin else out
        guesses[digits] = tie if out == there else (1 if told == there else -1)
    return guesses


# The private scorer ----------------------------------------------------------------------------

LINE, PLANE, SPACE = "line", "plane", "space"  # where directions are searched for
SCORERS = [
    # z, where, relation, mechanism, epsilon, noise
    *product(["own, long"], [LINE], ["zero_out"], ["gaussian"], [1.0, 0.1], [1.0, 0.1]),
    *product(["own, long"], [PLANE], ["zero_out", "replace_one"], ["gaussian"], [1.0, 0.1], [1.0]),
    *product(["own, long"], [PLANE], ["replace_one"], ["gaussian"], [1.0], [0.1]),
    *product(["own, long"], [LINE, PLANE], ["zero_out"], ["auto"], [1.0], [1.0]),
    *product(["image"], [LINE], ["zero_out"], ["gaussian"], [1.0], [1.0]),
    *product(["image", "own, long"], [SPACE], ["zero_out"], ["auto"], [1.0], [1.0]),
]


def scorer_rows(args):
    for setting in SCORERS:
        kind, where, relation, mechanism, epsilon, noise = setting
        count = args.trials // 4 if where == SPACE else args.trials
        with planted(noise):
            coins, seen = trials(args, count, scored, *setting[:-1])
        for name, values in seen.items():
            if noise < 1 and name != "moment":
                continue  # what is shown of it need not tell as much
            found = {"z": kind, "searched": where, "by": name, "relation": relation}
            found |= {"mechanism": mechanism, "epsilon": epsilon, "noise": noise}
            found |= attacked(coins, values, -1 if name == "distance" else 1)
            found |= permitted(epsilon, "gaussian")
            yield found | verdict(found, epsilon, noise)


def scored(coin, rng, kind, where, relation, mechanism, epsilon):
    """What a fit shows of z, and the moment behind it along z."""
    z, w = row(kind), other()
    X = np.vstack([z, rest(rng)])
    public = {LINE: z[None], PLANE: (z[None], w[None]), SPACE: None}[where]
    model = GSDScorer(
        n_components="auto" if where == SPACE else 1,
        epsilon=epsilon,
        delta=DELTA,
        neighboring_relation=relation,
        mechanism=mechanism,
        random_state=int(rng.integers(2**31)),
    )
    with watched() as moments:
        if relation == "zero_out":
            model.fit(X, X_public=public, groups=null_first(coin))
        else:
            X[0] = z if coin else w
            model.fit(X, X_public=public)
    along, off = model._space.embedded(np.array([z, w]))
    along = along / np.linalg.norm(along)  # all of the space takes rows as they come
    (moment,) = moments
    shown = {"moment": along @ moment @ along}
    if relation == "replace_one":
        shown["moment"] -= off @ moment @ off
    if where == LINE:
        shown["span_energy_"] = model.span_energy_
    else:
        shown["energies_"] = float(model.energies_ @ (model._directions @ along) ** 2)
    if where == PLANE:
        shown["distance"] = model.distance(z[None])
    return shown


@contextmanager
def watched():
    """The moments that are released before a spectrum is made of them, in units of their noise."""
    seen, made = [], moments.released_moment

    def recording(*given):
        moment, scale = made(*given)
        seen.append(moment / scale)
        return moment, scale

    with patch.object(moments, "released_moment", recording):
        yield seen


# The private choice ----------------------------------------------------------------------------

CHOICES = [
    # z, method, relation, epsilon, noise
    *product(["own, long"], ["energy"], ["zero_out", "replace_one"], [0.1, 1.0], [1.0]),
    *product(["own, long"], ["energy"], ["zero_out", "replace_one"], [0.1], [0.1]),
    *product(["own, long"], ["centered_energy"], ["zero_out"], [0.1], [1.0]),
    *product(["image"], ["energy"], ["zero_out"], [0.1], [1.0]),
]


def choice_rows(args):
    for *setting, epsilon, noise in CHOICES:
        with planted(noise):
            coins, seen = trials(args, 4 * args.trials, chosen, *setting, epsilon)
        found = dict(zip(("z", "method", "relation"), setting, strict=True))
        found |= {"epsilon": epsilon, "noise": noise}
        found |= attacked(coins, seen["along z"], 1) | permitted(epsilon, "range")
        del found["tpr"], found["tpr_95"], found["auc"]  # one of two names has no threshold
        yield found | verdict(found, epsilon, noise)


def null_first(coin):
    """Whether the first record is a null one, as `fit` takes it."""
    return NullRecords(None, np.arange(ROWS) > (-1 if coin else 0))


def chosen(coin, rng, kind, method, relation, epsilon):
    """Whether the candidate along z wins against one in a direction that no row has."""
    z, w = row(kind), other()
    X = np.vstack([z, rest(rng)])
    candidates = {"along": np.array([z, -z]), "off": np.array([w, -w])}
    options = {"method": method, "n_components": 1}
    options |= {"random_state": int(rng.integers(2**31)), "neighboring_relation": relation}
    if relation == "zero_out":
        options["groups"] = null_first(coin)
    else:
        X[0] = z if coin else w
    name = select_public(candidates, X, epsilon=epsilon, **options).name
    return {"along z": float(name == "along")}


SECTIONS = {
    "papers": paper_rows,
    "number": number_rows,
    "scorer": scorer_rows,
    "choice": choice_rows,
}


if __name__ == "__main__":
    run(__doc__, SECTIONS, {"seeds": 10, "trials": 2000}, ignored=(PrivacyWarning, UserWarning))
