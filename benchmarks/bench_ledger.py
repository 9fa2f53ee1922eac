"""What the cap of a ledger costs beside a plan that was fixed in advance, and beside Renyi filters.

*Prices*: fits on Poisson batches, calibrated to epsilon 1 at delta 1e-5 each. `planned` is the
epsilon of so many of them by privacy loss distributions, `ledger` what a ledger adds up with
slacks of a given part of delta, `renyi` a filter of Renyi divergences (Feldman, Zrnic, 2021; at
the best order for that many fits, fixed in advance). Percentages are over `planned`.
*Slack*: epsilon that full-batch fits may have in all beside a slack for others.
*No delta*: the mu that dominates mechanisms of a pure epsilon.
*Rounding*: how far the accountant of privacy loss distributions comes out below the known
divergence of Gaussians, by steps, over sizes and grids: `error` is what is added for it.
*Sequences* of fits (calibrated at delta 1e-5) and releases without a delta ("pure", of Laplace
noise): the smallest epsilon of a ledger that takes all of it, none of which is set beforehand.
`plan` is the account of fits alone with all of delta (``pure_epsilon=0``), `sum` basic composition
alone (each fit at an equal part of delta), `beside` the best of the accounts that count what is
pure by its epsilon, alone with all of delta, and `told` a ledger that was told the sum of what is
pure after the first fit as its `pure_epsilon`. `planned` is the epsilon by privacy loss
distributions.
*Choices*: what the best adversary reaches who spends fits in so many steps, and all epsilon that is
left as soon as it pays, in parts of delta: if one delta serves every sum of epsilons (`one_delta`),
and in a ledger.
*Seconds* of one charge on batches (the first; the next one of the same event takes none).

usage: python benchmarks/bench_ledger.py [--out benchmarks/results/ledger.json]
"""

import math
import time
from dataclasses import replace

import numpy as np
from _run import run
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from scipy.special import log_ndtr

from dpsubspace import PrivacyLedger
from dpsubspace._core.accounting.budget import calibrate
from dpsubspace._core.accounting.cost import Cost, gaussian_epsilon, gaussian_sq_mu
from dpsubspace._core.accounting.events import (
    bounded_range,
    composed,
    gaussian,
    laplace,
    sampled_gaussian,
)
from dpsubspace.budget._filter import _APART, Charge, _room
from dpsubspace.exceptions import PrivacyBudgetError

ZERO_OUT = {"neighboring_relation": "zero_out"}
DELTA = 1e-5
# Rate and steps: 585 of Yu et al. (2021), 20 passes as by default, and fewer passes.
BATCHES = [(0.0683, 585), (0.1, 200), (0.01, 2000), (0.002, 10_000)]
BATCHES += [(0.1, 100), (0.01, 1000), (0.01, 100), (0.01, 10)]


def cost_of(event):
    return Cost.of(event, "zero_out")


def calibrated(make_event, epsilon):
    return calibrate(lambda m: cost_of(make_event(m)), epsilon, DELTA)


def prices(args):
    for rate, steps in BATCHES:
        multiplier = calibrated(lambda m, of=(rate, steps): sampled_gaussian(m, *of), 1.0)
        event = sampled_gaussian(multiplier, rate, steps)
        for fits in (1, 10, 100):
            planned = cost_of(sampled_gaussian(multiplier, rate, fits * steps)).epsilon(DELTA)
            many = RdpAccountant().compose(sampled_gaussian(multiplier, rate, fits * steps))
            row = {"rate": rate, "steps": steps, "multiplier": round(multiplier, 4), "fits": fits}
            row |= {"planned": round(planned, 4), "renyi": over(many.get_epsilon(DELTA), planned)}
            for part in (1e-3, 1e-4, 1e-5, 1e-6):
                price = cost_of(event).price(part * DELTA)
                left = DELTA - fits * price.slack
                cost = gaussian_epsilon(fits * price.sq_mu, left) if left > 0 else math.inf
                row[f"ledger_{part:.0e}"] = over(cost, planned)
            yield row


def over(cost, planned):
    return f"{100 * (cost / planned - 1):+.2f} %"


def slacks(args):
    for epsilon in (0.1, 1.0, 8.0):
        for delta in (1e-5, 1e-7):
            row = {"epsilon": epsilon, "delta": delta}
            for part in (0.1, 0.01, 0.001):
                sq_mu = gaussian_sq_mu(epsilon, delta * (1 - part))
                row[f"slack_{part}"] = over(gaussian_epsilon(sq_mu, delta), epsilon)
            yield row


def without_delta(args):
    for name, event in (
        ("laplace", laplace(1.0, **ZERO_OUT)),
        ("bounded range", bounded_range(1.0)),
        ("8 bounded ranges", bounded_range(0.125, 8)),
        ("100 bounded ranges", bounded_range(0.125, 100)),
    ):
        price = cost_of(event).price(0.0)
        yield {
            "kind": name,
            "epsilon": price.epsilon,
            "mu": round(math.sqrt(price.pure_sq_mu), 4),
            "epsilon_of_mu": round(gaussian_epsilon(price.pure_sq_mu, DELTA), 4),
        }


def rounding(args):
    for count in (1, 10, 100, 1000, 10**4, 10**5, 10**6):
        gaps = {"tail": 0.0, "head": 0.0}
        for total in (0.01, 0.1, 1.0, 3.0, 6.0):
            for cells in (30, 300, 3000, 20000):
                grid = total / cells
                if total / math.sqrt(count) < 0.02 * grid:
                    continue
                one = pld.from_gaussian_mechanism(
                    math.sqrt(count) / total, value_discretization_interval=grid
                )
                whole = one.self_compose(count) if count > 1 else one
                orders = np.linspace(0, total * 9 + total**2 / 2, 1500)
                true = np.exp(log_ndtr(total / 2 - orders / total))
                true -= np.exp(orders + log_ndtr(-total / 2 - orders / total))
                gap = true - np.asarray(whole.get_delta_for_epsilon(orders.tolist()))
                for name, chosen in (("tail", true < 1e-8), ("head", true >= 1e-8)):
                    gaps[name] = max(gaps[name], gap[chosen].max(initial=0.0))
        error = cost_of(sampled_gaussian(9.0, 0.5, count)).rounding_error
        yield {"steps": count, "error": error, **{k: f"{v:.2g}" for k, v in gaps.items()}}


SEQUENCES = {
    "fit 1, score 0.45": [1.0, -0.45],
    "fit 1, score 0.45, fit 0.5": [1.0, -0.45, 0.5],
    "fit 1, score 0.45, fit 1": [1.0, -0.45, 1.0],
    "fit 0.5, score 0.2, fit 0.5, score 0.2": [0.5, -0.2, 0.5, -0.2],
    "mean 0.3, fit 0.9, score 0.45": [0.3, 0.9, -0.45],
    "fit 0.5, score 0.9": [0.5, -0.9],
    "fit 1, ten scores 0.1": [1.0] + [-0.1] * 10,
    "score 0.45, fit 1, score 0.45": [-0.45, 1.0, -0.45],
    "fit 1": [1.0],
    "fit 1, fit 1": [1.0, 1.0],
    "ten fits 0.3": [0.3] * 10,
    "fit 1 on batches, score 0.45": [1.0j, -0.45],
    "fit 1 on batches, score 0.45, fit 1 on batches": [1.0j, -0.45, 1.0j],
}


def sequences(args):
    for name, kinds in SEQUENCES.items():
        events = [event_at(kind) for kind in kinds]
        first = next(i for i, kind in enumerate(kinds) if kind.real >= 0)
        pure = math.fsum(-kind for kind in kinds[first:] if kind.real < 0)
        fits = sum(kind.real >= 0 for kind in kinds)
        sums = [cost_of(e).epsilon(DELTA / fits) for e in events]
        yield {
            "sequence": name,
            "planned": round(cost_of(composed(events)).epsilon(DELTA), 3),
            "plan": smallest(lambda b, of=events: takes(of, b, pure_epsilon=0.0)),
            "sum": round(math.fsum(sums), 3),
            "beside": smallest(lambda b, of=events: beside_takes(of, b)),
            "told": smallest(lambda b, of=events, e=pure: e < b and takes(of, b, pure_epsilon=e)),
            "ledger": smallest(lambda b, of=events: takes(of, b)),
        }


def event_at(kind):
    """A fit at epsilon, on batches where that is imaginary; what has no delta where it is < 0."""
    if kind.real < 0:
        return laplace(-kind, **ZERO_OUT)

    def event(multiplier):
        return sampled_gaussian(multiplier, 0.1, 200) if kind.imag else gaussian(multiplier)

    return event(calibrated(event, abs(kind)))


def takes(events, budget, **options):
    ledger = PrivacyLedger(epsilon=budget, delta=DELTA, **options)
    try:
        for event in events:
            ledger.charge(event, **ZERO_OUT)
    except PrivacyBudgetError:
        return False
    return True


def beside_takes(events, budget):
    """Whether one of the accounts beside a plan takes all, each with the whole delta."""
    book = PrivacyLedger(epsilon=budget, delta=DELTA)._state
    charges = []
    for event in events:
        spent = Charge.total(charges)
        _, charge, _ = book.best(event, spent)
        if book.split is None and charge.needs_delta:
            book.split = book._open_split(spent, charge)
        charges.append(charge)
    if book.split is None:
        return Charge.total(charges).epsilon <= budget
    left, whole = budget - book.split.before, Charge.total(charges)
    each = [_room(left, DELTA, book.split.slack, book.split.first, part) for part in (_APART, 0.0)]
    return any(
        replace(account, epsilon=book.split.before + account.epsilon).takes(Charge(), whole)
        for account in each
        if account.epsilon
    )


def smallest(fits):
    """Smallest budget that fits, to 0.001."""
    low, high = 0.001, 8.0
    while high - low > 5e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return round(high, 3)


def choices(args):
    for budget in (0.5, 1.5, 4.0):
        for steps in (2, 4, 8, 16, 32):
            book = PrivacyLedger(epsilon=budget, delta=DELTA)._state
            sq_mu = gaussian_sq_mu(budget, 0.64 * DELTA) / steps
            plan = book._open_split(Charge(), Charge(sq_mu, 0, 0, sq_mu))
            accounts = [plan, *book._sums(plan)]
            within = [
                max(a.epsilon for a in accounts if a.sq_mu >= i * sq_mu) for i in range(steps + 1)
            ]
            free = [budget - gaussian_epsilon(i * sq_mu, DELTA) for i in range(steps + 1)]
            row = {"epsilon": budget, "steps": steps}
            for name, left in (("one_delta", free), ("ledger", within)):
                row[name] = round(first_passage(left, sq_mu, budget) / DELTA, 3)
            yield row


def first_passage(left, sq_mu, budget):
    """Divergence at ``e^budget`` of Gaussian steps, and randomised response at what is left."""
    orders = np.linspace(-2 * budget - 1, 3 * budget + 1, 6001)
    z = np.linspace(-8, 8, 161)
    weights = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    losses = sq_mu / 2 + math.sqrt(sq_mu) * z

    def response(e):
        truth = np.maximum(0, -np.expm1(orders - e)) / (1 + math.exp(-e))
        return truth + np.maximum(0, -np.expm1(orders + e)) / (1 + math.exp(e))

    best = response(left[-1])
    for e in [*left[-2:0:-1], 0.0]:
        after = np.zeros_like(best)
        for loss, weight in zip(losses, weights, strict=True):
            a = orders - loss
            inside = np.interp(a, orders, best, right=0.0)
            after += weight * np.where(a < orders[0], -np.expm1(np.minimum(a, 0)), inside)
        best = np.maximum(after, response(e))
    return float(np.interp(budget, orders, best))


def seconds(args):
    for rate, steps in BATCHES:
        event = sampled_gaussian(1.01 if steps < 500 else 7.1, rate, steps)
        ledger = PrivacyLedger(epsilon=20.0, delta=DELTA)
        started = time.perf_counter()
        ledger.charge(event, **ZERO_OUT)
        first = time.perf_counter() - started
        ledger.charge(event, **ZERO_OUT)
        again = time.perf_counter() - started - first
        yield {"rate": rate, "steps": steps, "first": round(first, 2), "again": round(again, 3)}


SECTIONS = {
    part.__name__: part
    for part in (prices, slacks, without_delta, sequences, choices, rounding, seconds)
}

if __name__ == "__main__":
    run(__doc__, SECTIONS)
