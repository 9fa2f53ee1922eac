"""What the cap of a ledger costs beside a plan that was fixed in advance, and beside Renyi filters.

*Prices*: fits on Poisson batches, calibrated to epsilon 1 at delta 1e-5 each. `planned` is the
epsilon of so many of them by privacy loss distributions, `ledger` what a ledger adds up with
slacks of a given part of delta, `renyi` a filter of Renyi divergences (Feldman, Zrnic, 2021; at
the best order for that many fits, fixed in advance). Percentages are over `planned`.
*Slack*: epsilon that full-batch fits may have in all beside a slack for others.
*No delta*: the mu that dominates mechanisms of a pure epsilon.
*Rounding*: how far the accountant of privacy loss distributions comes out below the known
divergence of Gaussians, by steps, over sizes and grids: `error` is what is added for it.
*Seconds* of one charge on batches (the first; the next one of the same event takes none).

usage: python benchmarks/bench_ledger.py [--out benchmarks/results/ledger.json]
"""

import math
import time

import numpy as np
from _run import run
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from scipy.special import log_ndtr

from dpsubspace import PrivacyLedger
from dpsubspace._accounting.calibration import calibrate
from dpsubspace._accounting.cost import epsilon_of, gaussian_epsilon, gaussian_sq_mu, rounding_error
from dpsubspace._accounting.curves import price_of
from dpsubspace._accounting.events import bounded_range, counted, laplace, sampled_gaussian

ZERO_OUT = {"neighboring_relation": "zero_out"}
DELTA = 1e-5
AT = {"delta": DELTA, **ZERO_OUT}
# Rate and steps: 585 of Yu et al. (2021), 20 passes as by default, and fewer passes.
BATCHES = [(0.0683, 585), (0.1, 200), (0.01, 2000), (0.002, 10_000)]
BATCHES += [(0.1, 100), (0.01, 1000), (0.01, 100), (0.01, 10)]


def prices(args):
    for rate, steps in BATCHES:
        multiplier = calibrate(
            lambda m, of=(rate, steps): sampled_gaussian(m, *of), epsilon=1.0, **AT
        )
        event = sampled_gaussian(multiplier, rate, steps)
        for fits in (1, 10, 100):
            planned = epsilon_of(sampled_gaussian(multiplier, rate, fits * steps), **AT)
            many = RdpAccountant().compose(sampled_gaussian(multiplier, rate, fits * steps))
            row = {"rate": rate, "steps": steps, "multiplier": round(multiplier, 4), "fits": fits}
            row |= {"planned": round(planned, 4), "renyi": over(many.get_epsilon(DELTA), planned)}
            for part in (1e-3, 1e-4, 1e-5, 1e-6):
                price = price_of(event, part * DELTA, "zero_out")
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
        price = price_of(event, 0.0, "zero_out")
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
        error = rounding_error(counted(sampled_gaussian(9.0, 0.5, count)))
        yield {"steps": count, "error": error, **{k: f"{v:.2g}" for k, v in gaps.items()}}


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


SECTIONS = {part.__name__: part for part in (prices, slacks, without_delta, rounding, seconds)}

if __name__ == "__main__":
    run(__doc__, SECTIONS)
