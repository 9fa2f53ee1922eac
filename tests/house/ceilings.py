"""How large the package is, and how far a call walks through it: numbers that only fall.

``python tests/house/ceilings.py`` prints what has changed, and ``--write`` writes to
``ceilings.json`` what has fallen. What has risen is written with ``--raise`` alone, and
CHANGELOG.md then says what that buys.
"""

import ast
import inspect
import json
import subprocess
import sys
import tokenize
from pathlib import Path

from traced import ROOT, traced

import dpsubspace
from dpsubspace._names import PLACES, SUBJECTS, TOP, imported

SNAPSHOT = Path(__file__).with_name("ceilings.json")


def code_lines(path):
    """Number of lines with code: no docstrings, comments or blank lines."""
    lines, before = set(), tokenize.NEWLINE
    nothing = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in nothing or token.type == tokenize.ENCODING:
                continue
            alone = token.type == tokenize.STRING and before == tokenize.NEWLINE
            if not alone and token.type != tokenize.NEWLINE:
                lines.update(range(token.start[0], token.end[0] + 1))
            before = token.type
    return len(lines)


def sizes():
    """Files with code and lines of code: of each folder, of what stands in none, and of all."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        if lines := code_lines(path):
            for place in ("all", "/".join(parts[:-1]) or "no folder"):
                files, before = found.get(place, (0, 0))
                found[place] = files + 1, before + lines
    return {
        f"{what} of {place}": numbers[i]
        for place, numbers in found.items()
        for i, what in enumerate(("files", "code lines"))
    }


# First words of a docstring that say neither what a thing is nor what it does.
INDIRECT = ("What ", "Where ", "Whose ", "Which ", "Of ", "That ", "Those ", "The same ")


def indirect_docstrings():
    """Number of docstrings that begin with one of these."""
    found = (
        ast.get_docstring(node) or ""
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    )
    return {"docstrings that begin indirectly": sum(text.startswith(INDIRECT) for text in found)}


def names():
    """Public names at the top and in each subject, and parameters of all that can be called."""
    found = {"names at the top": len(TOP), "subjects": len(SUBJECTS)}
    for subject in SUBJECTS:
        count = sum(place == f"dpsubspace.{subject}" for place in PLACES.values())
        found[f"names of {subject}"] = count
    for name in PLACES:
        thing = imported(name)
        if not (inspect.isclass(thing) and issubclass(thing, BaseException)):
            found[f"parameters of {name}"] = len(inspect.signature(thing).parameters)
    return found


def calls():
    """The twelve calls whose walks are counted, by name."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)) + 1.0, np.arange(400) % 2
    X[:, 0] += y
    people, public = np.repeat(np.arange(100), 4), (X[:60] + 0.1,)
    table = pd.DataFrame(X[:, :3], columns=list("abc")).assign(g=np.where(X[:, 3] > 0, "u", "v"))
    schema = {"a": (-4, 4), "b": (-4, 4), "c": (-4, 4), "g": ["u", "v"]}
    options = {"epsilon": 5.0, "random_state": 0}
    linear, data = dpsubspace.linear_model, dpsubspace.public_data
    model = dpsubspace.DPSGDClassifier(**options).fit(X, y)
    pipes = {
        "classification": dpsubspace.tabular_pipeline("classification", schema, epsilon=5.0),
        "regression": dpsubspace.tabular_pipeline(
            "regression", schema, epsilon=5.0, target=(-4, 8)
        ),
    }
    for pipe in pipes.values():
        pipe.set_params(random_state=0)  # walks depend on what is released
    tasks = {
        "X_public": tuple(np.split(X[:60] + 0.1, 6)),
        "y_public": tuple(np.split(X[:60, 0] + 0.1, 6)),
    }
    return {
        "DPSGDClassifier": lambda: linear.DPSGDClassifier(**options).fit(X, y),
        "DPSGDFClassifier": lambda: linear.DPSGDFClassifier(**options).fit(X, y),
        "GEPClassifier": lambda: linear.GEPClassifier(**options).fit(X, y, X_public=public),
        "DPLinearRegression": lambda: linear.DPLinearRegression(**options).fit(X, X[:, 0]),
        "PublicSubspaceLinearRegression": lambda: linear.PublicSubspaceLinearRegression(
            **options
        ).fit(X, X[:, 0], **tasks),
        "PersonalizedLinearRegression": lambda: linear.PersonalizedLinearRegression(**options).fit(
            X, X[:, 0], groups=people
        ),
        "DPPCA": lambda: dpsubspace.DPPCA(2, **options).fit(X),
        "GSDScorer": lambda: data.GSDScorer(**options).fit(X),
        "tabular_pipeline, classification": lambda: pipes["classification"].fit(table, y),
        "tabular_pipeline, regression": lambda: pipes["regression"].fit(table, X[:, 0]),
        "private_score": lambda: dpsubspace.private_score(
            model, X + 1e-9, y, metric="accuracy", **options
        ),
        "private_summary": lambda: dpsubspace.private_summary(table, schema, **options),
    }


def walks():
    """Files, functions and moves of each call: of its second run, when all is imported."""
    import warnings

    warnings.simplefilter("ignore")
    found = {}
    for name, call in calls().items():
        call()
        trace = traced(call)
        found[f"files of {name}"] = len(trace.files_above_ground)
        found[f"functions of {name}"] = len(trace.functions)
        found[f"moves of {name}"] = len(trace.moves)
    return found


def walks_in_a_fresh_process():
    """The same where nothing else has been imported."""
    code = "import json, ceilings; print(json.dumps(ceilings.walks()))"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def measured():
    """All numbers, by what they are of."""
    return {**sizes(), **names(), **indirect_docstrings(), **walks_in_a_fresh_process()}


def main():
    """Print what has changed, and write what may be written."""
    before = json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else {}
    found = measured()
    for name in sorted(before.keys() | found.keys()):
        if before.get(name) != found.get(name):
            print(f"{name}: {before.get(name)} -> {found.get(name)}")
    if "--raise" not in sys.argv:
        found = {name: min(number, before.get(name, number)) for name, number in found.items()}
    if {"--write", "--raise"} & {*sys.argv}:
        SNAPSHOT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
