"""What seeded fits give, to the byte: recorded before a change of the code, and compared after it.

``golden.py record FILE`` fits every setting of ``tests/cases.py`` in several forms (float64,
float32 and the other neighbouring relation, sparse rows, persons, Dask collections in parts), and
keeps what others can see: digests of the public fitted attributes and of predictions, events,
warnings, what was released in which order, or the error. It also writes files of ledgers and
reports at a frozen time. ``golden.py compare OLD NEW`` says what moved. Records belong to a
machine and to versions of libraries, so they are not kept in the repository.

``golden.py times FOLDER`` runs thirteen fits in this checkout and in another, in turns, and prints
ratios of medians of their times and of their peak memory.
"""

import argparse
import contextlib
import datetime
import hashlib
import itertools
import json
import os
import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
import uuid
import warnings
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# What of a fitted object gives numbers for rows.
OUTPUTS = ["predict", "predict_proba", "decision_function", "transform", "predict_interval"]

# Recording ------------------------------------------------------------------------------------


def digest(value):
    """A short digest of all numbers and texts in a value."""
    return hashlib.blake2b(repr(plain(value)).encode(), digest_size=8).hexdigest()


def plain(value, seen=()):
    """Lists and texts that are equal where a value is: no addresses and no order of sets."""
    import numpy as np
    from scipy import sparse

    if id(value) in seen:
        return "itself"
    inner = (*seen, id(value))
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype == object:
            return [str(array.shape), *(plain(one, inner) for one in array.ravel())]
        return f"{array.dtype} {array.shape} {hashlib.blake2b(array.tobytes()).hexdigest()}"
    if sparse.issparse(value):
        return plain(value.toarray(), inner)
    if hasattr(value, "detach"):  # a tensor
        return plain(value.detach().cpu().numpy(), inner)
    if isinstance(value, dict):
        return sorted([repr(plain(k, inner)), plain(v, inner)] for k, v in value.items())
    if isinstance(value, (set, frozenset)):
        return sorted(repr(plain(one, inner)) for one in value)
    if isinstance(value, (list, tuple)):
        return [plain(one, inner) for one in value]
    if hasattr(value, "state_dict"):
        return plain(value.state_dict(), inner)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return value.__qualname__
    if hasattr(value, "__dataclass_fields__") or hasattr(value, "__dict__"):
        held = {k: v for k, v in public_attributes(value).items() if not k.startswith("_")}
        return [type(value).__qualname__, plain(held, inner)]
    return re.sub(r"0x[0-9a-f]+", "", repr(value))


def public_attributes(value):
    """What an object holds under public names."""
    fields = getattr(value, "__dataclass_fields__", {})
    held = {name: getattr(value, name) for name in fields} | dict(getattr(value, "__dict__", {}))
    return {name: one for name, one in held.items() if not name.startswith("_")}


def seen_in(fitted, rows):
    """Digests of what a fit or a function gives to others."""
    if isinstance(fitted, tuple):
        parts = getattr(fitted, "_fields", range(len(fitted)))
        return {str(k): digest(v) for k, v in zip(parts, fitted, strict=True) if k != "privacy"}
    found = {
        name: digest(value)
        for name, value in public_attributes(fitted).items()
        if name.endswith("_") and name != "privacy_"
    }
    if not hasattr(fitted, "get_params"):
        found["value"] = digest(fitted)
    for name in OUTPUTS:
        with contextlib.suppress(Exception):
            found[f"{name}()"] = digest(getattr(fitted, name)(rows))
    return found


@contextlib.contextmanager
def releases():
    """List of all that is released while this lasts: how, of which shape, and with what noise."""
    import numpy as np
    import pytest
    from helpers import replaced

    from dpsubspace._core.release import mechanisms

    order = []

    def listed(function):
        def recording(total, *given, **options):
            value = getattr(total, "value", total)
            scale = next((g for g in given if isinstance(g, (float, np.floating))), None)
            shape = np.shape(value.detach() if hasattr(value, "detach") else value)
            order.append([function.__name__, list(shape), repr(scale)])
            return function(total, *given, **options)

        return recording

    with pytest.MonkeyPatch.context() as patch:
        for name in ("release", "release_laplace", "release_direction", "release_choice"):
            function = getattr(mechanisms, name)
            with contextlib.suppress(AssertionError):
                replaced(patch, function, listed(function))
        yield order


def recorded(fit, rows):
    """All that is kept of one fit."""
    with warnings.catch_warnings(record=True) as caught, releases() as order:
        warnings.simplefilter("always")
        try:
            fitted = fit()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}", "releases": order}
    privacy = getattr(fitted, "privacy_", None) or getattr(fitted, "privacy", None)
    return {
        "seen": seen_in(fitted, rows),
        "privacy": privacy.details() if hasattr(privacy, "details") else str(privacy),
        "event": repr(getattr(privacy, "event", None)),
        "warnings": [f"{w.category.__name__}: {w.message}" for w in caught],
        "releases": order,
    }


def fits():
    """Name, fit and rows of each fit."""
    import numpy as np
    from cases import FITS, FORMS
    from helpers import blobs

    for case, setting in FITS:
        # By name, so that a case or a setting that is added leaves the others as they are.
        turn = zlib.crc32(f"{case} / {setting}".encode())
        X, y = blobs(n=case.n)
        forms = [("float64", "zero_out", None), ("float32", "replace_one", None)]
        if case.sparse:
            forms += [(("sparse", "sparse float32")[turn % 2], "zero_out", None)]
        counts = np.random.default_rng(0).integers(1, 4, size=case.n)
        relation = ("zero_out", "replace_one")[turn // 2 % 2]
        forms += [("float64", relation, np.repeat(np.arange(case.n), counts)[: case.n])]
        for form, relation, groups in forms:
            rows = FORMS[form](X)
            persons = ", persons" if groups is not None else ""
            yield (
                f"{case} / {setting} / {form}, {relation}{persons}",
                lambda c=case, r=rows, s=setting, n=relation, g=groups, y=y: c.fit(
                    r, y, s, n, groups=g
                ),
                rows,
            )


def fits_in_parts():
    """The same of Dask collections, where Dask is installed."""
    try:
        from in_parts import TAKEN_FITS, blocks
    except ImportError:
        return
    from helpers import blobs

    for case, setting in TAKEN_FITS:
        X, y = blobs(n=case.n)
        yield (
            f"{case} / {setting} / Dask",
            lambda c=case, s=setting, X=X, y=y: c.fit(blocks(X), blocks(y), s),
            X,
        )


class _Frozen(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)


@contextlib.contextmanager
def frozen():
    """No time passes, and names that are drawn are numbered."""
    import pytest

    numbers = itertools.count(1)

    def uuid4():
        return uuid.UUID(int=next(numbers))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uuid, "uuid4", uuid4)
        for name, module in sorted(sys.modules.items()):
            if name.startswith("dpsubspace."):
                if getattr(module, "datetime", None) is datetime.datetime:
                    patch.setattr(module, "datetime", _Frozen)
                if hasattr(module, "uuid4"):
                    patch.setattr(module, "uuid4", uuid4)
        yield


def texts():
    """Files of ledgers, and reports in all formats, by name."""
    from helpers import blobs
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import dpsubspace as dp
    from dpsubspace._names import PLACES, imported

    # Modules draw random names where they are imported, which would shift those of ledgers.
    assert all(map(imported, PLACES))
    X, y = blobs(n=200)
    small = dp.DPSGDClassifier(epsilon=0.5, n_iter=3, random_state=0)
    found = {}
    with tempfile.TemporaryDirectory() as folder, frozen(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for unit in ("row", "person"):
            whose = {"groups": [f"p{i // 2}" for i in range(200)]} if unit == "person" else {}
            path = Path(folder) / f"{unit}.ledger"
            ledger = dp.PrivacyLedger(5.0, 1e-5, unit=unit, allow_seeded=True, path=path)
            model = ledger.fit(small, X, y, **whose)
            ledger.run(dp.private_mean, X, epsilon=0.2, random_state=0, **whose)
            with ledger:
                pipe = make_pipeline(StandardScaler(), clone(small))
                names = {f"dpsgdclassifier__{name}": who for name, who in whose.items()}
                with contextlib.suppress(dp.PrivacyError):  # a step learns without noise
                    pipe.fit(X, y, **names)
            for subject, of in {"model": model, "ledger": ledger}.items():
                report = dp.privacy_report(of, date="2026-01-02")
                styles = {"text": str, "JSON": type(report).to_json, "HTML": type(report).to_html}
                for style, written in styles.items():
                    found[f"{unit} / {subject} / {style}"] = written(report)
            found[f"{unit} / file"] = path.read_text()
    return found


def record(path):
    """Write what all fits give to a file."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import pytest

    began, kept = time.monotonic(), {}
    for name, fit, rows in fits():
        kept[name] = recorded(fit, rows)
    try:
        from in_parts import cluster_here
    except ImportError:
        print("Dask is not installed: its fits are left out")
    else:
        with pytest.MonkeyPatch.context() as patch, cluster_here(patch):
            for name, fit, rows in fits_in_parts():
                kept[name] = recorded(fit, rows)
    for name, text in texts().items():
        kept[name] = {"text": text}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True))
    errors = sum("error" in one for one in kept.values())
    took = time.monotonic() - began
    print(f"{len(kept)} kept, {errors} of them errors, in {took:.0f} s")


def compare(old, new):
    """Print what two files say differently, and return whether they do."""
    old, new = (json.loads(path.read_text()) for path in (old, new))
    moved = 0
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            print(f"{name}: only in the {'old' if name in old else 'new'} file")
            moved += 1
            continue
        for part in sorted(old[name].keys() | new[name].keys()):
            one, other = old[name].get(part), new[name].get(part)
            if one == other:
                continue
            moved += 1
            if part == "seen" and one and other:
                one, other = (
                    {k: v for k, v in a.items() if b.get(k) != v}
                    for a, b in [(one, other), (other, one)]
                )
            print(f"{name}: {part}\n    - {str(one)[:400]}\n    + {str(other)[:400]}")
    print(f"{len(old.keys() & new.keys())} in both files, {moved} differences")
    return bool(moved)


# Times ----------------------------------------------------------------------------------------


def timed_fits():
    """Twelve fits of ordinary sizes, and before them one of the overhead alone, by name."""
    import numpy as np
    import pandas as pd

    import dpsubspace as dp

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 30))
    y = (X[:, :5].sum(axis=1) + rng.normal(size=len(X)) > 0).astype(int)
    t, classes = X[:, :5].sum(axis=1) + rng.normal(size=len(X)), np.arange(len(X)) % 5
    people = np.repeat(np.arange(len(X) // 4), 4)
    table = pd.DataFrame(X[:, :6], columns=list("abcdef")).assign(g=np.where(y, "u", "v"))
    schema = {c: (-4.0, 4.0) for c in "abcdef"} | {"g": ["u", "v"]}
    seed, public = {"random_state": 0}, {"X_public": X[:500] + 0.1}
    pipe = dp.tabular_pipeline(dp.DPSGDFClassifier(**seed), schema)
    scored = dp.DPSGDClassifier(**seed).fit(X, y)
    some = slice(3000)
    linear = getattr(dp, "linear_model", dp)  # a checkout from before there were subjects
    return {
        "100 x 5 rows": lambda: dp.DPSGDClassifier(**seed).fit(X[:100, :5], y[:100]),
        "DPSGDClassifier": lambda: dp.DPSGDClassifier(**seed).fit(X, y),
        "DPSGDClassifier, float32, 5 classes": lambda: dp.DPSGDClassifier(**seed).fit(
            X.astype(np.float32), classes
        ),
        "DPSGDClassifier, persons": lambda: dp.DPSGDClassifier(**seed).fit(X, y, groups=people),
        "DPSGDFClassifier": lambda: dp.DPSGDFClassifier(**seed).fit(X, y),
        "DPSGDRegressor": lambda: dp.DPSGDRegressor(**seed).fit(X, t),
        "GEPClassifier": lambda: dp.GEPClassifier(**seed).fit(X, y, **public),
        "DPLinearRegression": lambda: dp.DPLinearRegression(**seed).fit(X, t),
        "PersonalizedLinearRegression": lambda: linear.PersonalizedLinearRegression(**seed).fit(
            X[some], t[some], groups=people[some]
        ),
        "DPPCA": lambda: dp.DPPCA(5, **seed).fit(X),
        "private_mean": lambda: dp.private_mean(X, epsilon=1.0, **seed),
        "private_score": lambda: dp.private_score(
            scored, X + 1e-9, y, metric="accuracy", epsilon=0.5, **seed
        ),
        "tabular_pipeline": lambda: pipe.fit(table, y),
    }


def serve():
    """Run fits that are asked for by lines of standard input, and answer with what they took."""
    warnings.simplefilter("ignore")
    fits = timed_fits()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def answer(value):
        answers.write(pickle.dumps(value, protocol=0).replace(b"\n", b"\\n") + b"\n")

    answer(list(fits))
    for line in sys.stdin:
        what, name = line.rstrip("\n").split(" ", 1)
        if what == "memory":
            tracemalloc.start()
            fits[name]()
            answer(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        else:
            began = time.perf_counter()
            fits[name]()
            answer(time.perf_counter() - began)


class Side:
    """Another process, with the package of one checkout."""

    def __init__(self, folder):
        command = [sys.executable, str(Path(__file__).resolve()), "serve"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        environment = os.environ | {"PYTHONPATH": str(Path(folder).resolve())}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        self.names = self._answer()

    def ask(self, what, name):
        """What the process answers: seconds, or bytes at the peak."""
        self.process.stdin.write(f"{what} {name}\n".encode())
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        return pickle.loads(self.process.stdout.readline().rstrip(b"\n").replace(b"\\n", b"\n"))


def times(folder, repeats):
    """Print ratios of times and peak memory, of this checkout over another."""
    here, there = Side(ROOT), Side(folder)
    print("fit | here, s | there, s | ratio | least | most | ratio of memory")
    for name in here.names:
        for side in (here, there):
            side.ask("time", name)  # what is kept from fit to fit is warm
        pairs = [(here.ask("time", name), there.ask("time", name)) for _ in range(repeats)]
        ratios = [one / other for one, other in pairs]
        memory = here.ask("memory", name) / there.ask("memory", name)
        one, other = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(ratios)
        print(
            f"{name} | {one:.4f} | {other:.4f} | {ratio:.2f} | {min(ratios):.2f}"
            f" | {max(ratios):.2f} | {memory:.2f}",
            flush=True,
        )


def main():
    """Record, compare or time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("file", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("old", type=Path)
    both.add_argument("new", type=Path)
    timing = commands.add_parser("times")
    timing.add_argument("folder", type=Path, help="another checkout")
    timing.add_argument("--repeats", type=int, default=9)
    commands.add_parser("serve", help="what `times` runs in each checkout")
    args = parser.parse_args()
    if args.command == "record":
        record(args.file)
    elif args.command == "compare":
        sys.exit(compare(args.old, args.new))
    elif args.command == "times":
        times(args.folder, args.repeats)
    else:
        serve()


if __name__ == "__main__":
    main()
