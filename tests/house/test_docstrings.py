"""Public docstrings: complete by numpydoc's rules, and their examples run."""

import doctest
import importlib
import inspect
from collections import defaultdict

import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate
from test_layers import PATHS

from dpsubspace._names import PLACES, imported

# scikit-learn's own exemptions; methods need neither examples nor cross-references.
SKIP = {"RT02", "GL01", "GL02"}
# Modules whose examples need an extra.
EXTRAS = {
    "neural_network._torch_features": "torch",
    "neural_network._torch_models": "torch",
    "reports._budget_display": "matplotlib",
    "statistics._counts_display": "matplotlib",
    "inspection._importance_display": "matplotlib",
    "audit._audit": "matplotlib",
    "metrics._evaluation": "matplotlib",
    "public_data._projection_display": "matplotlib",
    "public_data._ranking": "matplotlib",
    "inspection._shape_display": "matplotlib",
}
METHOD_SKIP = SKIP | {"EX01", "SA01", "ES01"}


def names():
    """Every public name with the rules it is excused from."""
    found = []
    for name in PLACES:
        member = imported(name)
        if inspect.isclass(member) and issubclass(member, (Exception, Warning)):
            found.append((f"{PLACES[name]}.{name}", METHOD_SKIP))
            continue
        found.append((f"{PLACES[name]}.{name}", SKIP))
        for method, value in inspect.getmembers(member, inspect.isfunction):
            if value.__module__.startswith("dpsubspace") and not method.startswith("_"):
                found.append((f"{PLACES[name]}.{name}.{method}", METHOD_SKIP))
    return found


def test_public_docstrings():
    found = [(name, error) for name, skip in names() for error in errors_of(name, skip)]
    assert len(names()) > 150 and found == []


def errors_of(name, skip):
    """What numpydoc has to say of a name."""
    return [error for error in validate(name)["errors"] if error[0] not in skip]


# Parameters of one name that are not one thing, and why.
DIFFERENT = {
    "epsilon": "its own, or that of a model inside",
    "estimator": "a fitted one, or what a search fits clones of",
    "data_norm": "public rows tell it of some estimators",
    "loss": "classifiers and regressors have other losses",
    "n_components": "directions of features, of gradients, or components",
    "bounds": "of columns that are scaled, of which a mean is taken, or of a search",
    "mechanism": "all of it, or a reference to it",
    "row_norm": "a map of rows before training, or after scaling",
    "delta": "rows, or persons",
    "neighboring_relation": "rows, or persons",
    "n_iter": "steps of training, or rounds of improving directions",
    "target_bounds": "any number of targets, or one",
    "method": "how a mean is found, or what a round releases",
    "groups": "persons, or parts of the parameters of a module",
    "level": "shares of values to leave out, or the quantiles to find",
    "module": "one that is trained, or a public map of rows",
    "metric": "one, or a list, of which some are curves",
    "pos_label": "curves are about a class as well",
    "by": "groups of scores, or a column of a table",
    "schema": "of a table to encode, of one with the target, or of one that is described",
    "target": "its range in a table to encode, or which column it is",
    "batch_size": "of a step, or of what goes through a public map",
}


def wordings():
    """What is said of each parameter of what fits or releases, by name and by text."""
    found = defaultdict(lambda: defaultdict(list))
    for name in PLACES:
        member = imported(name)
        if hasattr(member, "get_params") or name.startswith("private_"):
            for parameter in get_doc_object(member)["Parameters"]:
                found[parameter.name]["\n".join(parameter.desc)].append(name)
    return found


def test_a_parameter_of_one_name_has_one_wording():
    """Rows and targets, which are no parameters of an estimator, belong to what takes them."""
    found = {name: texts for name, texts in wordings().items() if name not in ("X", "y")}
    assert len(found) > 30
    several = {name: texts for name, texts in found.items() if len(texts) > 1}
    assert several.keys() == DIFFERENT.keys()


@pytest.mark.literal_seeds
@pytest.mark.parametrize("module", [name for name in PATHS if ">>> " in PATHS[name].read_text()])
def test_examples_in_docstrings_run(module):
    if module in EXTRAS:
        pytest.importorskip(EXTRAS[module])
    name = "dpsubspace" if module == "__init__" else f"dpsubspace.{module}"
    module, runner = importlib.import_module(name), doctest.DocTestRunner()
    finder = doctest.DocTestFinder()
    # Public classes say that they are of their subject, and not of this module.
    own = [thing for thing in vars(module).values() if written_in(thing, module)]
    tests = [*finder.find(module), *(t for thing in own for t in finder.find(thing, module=False))]
    for test in tests:
        test.globs = dict(vars(module))
        runner.run(test)
    assert tests and runner.failures == 0


def written_in(thing, module):
    """Whether a class is written in a module, but says that it is of another one."""
    if not isinstance(thing, type) or thing.__module__ == module.__name__:
        return False
    return f"\nclass {thing.__name__}" in inspect.getsource(module)
