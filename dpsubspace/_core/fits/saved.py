"""Fitted models as plain data: JSON that a person can read, and what is in their pickles.

A class of models names in ``_saved`` all that its fit stores, with the form of each part. A file
has the kind of the model, its parameters, the fitted parts, and the guarantee: all of that is
public or released. Data of single persons, and modules of torch, are in pickles only.
``docs/saving_models.md`` describes the files.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from dpsubspace._core.accounting.guarantee import (
    PrivacyGuarantee,
    as_fields,
    checked_fields,
    package_version,
)
from dpsubspace._core.ground.checks import read_file, read_json, shown, write_file
from dpsubspace._core.ground.forms import (
    AnyArray,
    Form,
    Names,
    Number,
    Reading,
    Record,
    Sometimes,
    Text,
    Whole,
    as_json,
    written,
)
from dpsubspace._core.tables.kinds import KINDS
from dpsubspace._core.tables.schema import Schema, schema_fields, schema_of
from dpsubspace._names import PLACES, imported
from dpsubspace.exceptions import PrivacyError, warn

FORMAT = "urn:dpsubspace:model:1"

# Keys of the state in pickles: the version of this package, as scikit-learn writes its own for its
# own estimators; and the fitted parts, as plain data.
_VERSION, _FITTED = "_dpsubspace_version", "_dpsubspace_fitted"

# Attributes that scikit-learn and ledgers store beside a fitted model, which are in pickles only:
# the format of output, metadata requests, callbacks, and the address of a ledger.
_ASIDE = {"_sklearn_output_config", "_metadata_request", "_skl_callbacks", "_address", "_around"}

# Attributes of every estimator that knows its features.
FEATURES: dict[str, Form] = {
    "n_features_in_": Whole(axis="features"),
    "feature_names_in_": Sometimes(Names()),
}


class SavedModel:
    """Fitted models that can be written as JSON, and read again without pickles."""

    # All that a fit stores except `privacy_`, by the names of attributes. Files leave out the
    # underscores around them.
    _saved: ClassVar[Mapping[str, Form]] = {}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write the fitted model as JSON, which is read without running any code.

        Parameters
        ----------
        path : path-like, optional
            File to write; an existing one is replaced. Without it nothing is written.

        Returns
        -------
        str
            What was written: the class of the model, its parameters, what was fitted, and the
            guarantee. All of that is public or released, and a seed is among the parameters.

        Raises
        ------
        NotFittedError
            If the model is not fitted.
        ValueError
            If the model has a part that only pickles can have, such as a module of torch, an
            estimator of another package or a function.
        """
        text = written(as_json({"format": FORMAT, **model_as_plain(self)})) + "\n"
        if path is not None:
            write_file(path, text)
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Self:
        """Read a fitted model that :meth:`to_json` wrote.

        Every part is checked, and what the guarantee says to have cost is computed again.

        Parameters
        ----------
        source : str or path-like
            What ``to_json`` returned, or the path of the file.

        Returns
        -------
        object
            The model, which predicts the same to the last bit.

        Raises
        ------
        ValueError
            If it is anything else, if a part is wrong, or if the model is of another class. The
            message says what is wrong.
        """
        model = load(source)
        if not isinstance(model, cls):
            raise ValueError(
                f"the file holds a {type(model).__name__} and not a {cls.__name__}: read it with"
                f" {type(model).__name__}.from_json, or with dpsubspace.load, which reads any."
            )
        return model

    def _check_read(self) -> None:
        """Raise ValueError where parts that were read do not fit each other."""

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        fitted = {}
        for name, form in self._saved.items():
            if name in state and form.in_pickles:
                try:
                    fitted[name] = form.pickled(state[name])
                except ValueError:  # labels that JSON does not support
                    continue
                del state[name]
        return state | {_FITTED: fitted, _VERSION: package_version()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        found, here = state.get(_VERSION, "that is not known"), package_version()
        if found != here:
            warn(
                f"this {type(self).__name__} was saved by dpsubspace of version {found} and is"
                f" loaded by version {here}: predictions may differ or fail. Load it with the"
                " version that saved it, or fit it again.",
                UserWarning,
                about=("version", type(self).__name__, found),
            )
        rest = {name: value for name, value in state.items() if name not in (_VERSION, _FITTED)}
        place = Reading(type(self).__name__, params=rest, bounded=False)
        fitted = {
            name: self._saved[name].read(plain, place.at(name))
            for name, plain in state.get(_FITTED, {}).items()
        }
        self.__dict__.update(rest | fitted)


def load(source: str | os.PathLike[str]) -> Any:
    """Read a fitted model of any class from the JSON that its ``to_json`` wrote.

    Reading runs no code of the file, unlike with pickles. Every part is checked, and what the
    guarantee says to have cost is computed again.

    Parameters
    ----------
    source : str or path-like
        The JSON, or the path of a file with it.

    Returns
    -------
    estimator
        The fitted model, which predicts the same to the last bit.

    Raises
    ------
    ValueError
        If it is no such JSON, was written by a newer version, or has a part that is wrong or does
        not fit the others. The message says which part, and what it must be.

    See Also
    --------
    DPSGDClassifier.to_json : Writes one, as every estimator does.
    PrivacyGuarantee.from_json : Reads the guarantee alone.

    Examples
    --------
    >>> import dpsubspace
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = dpsubspace.DPSGDFClassifier(epsilon=1.0).fit(X, y)
    >>> same = dpsubspace.load(model.to_json())
    >>> bool((same.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    name = "the JSON" if is_text else repr(os.fspath(source))
    try:
        text = source if is_text else read_file(source)
        whole = read_json(str(text))
        _check_format(whole)
        rest = {name: value for name, value in whole.items() if name != "format"}
        return model_from_plain(rest, Reading())
    except (ValueError, TypeError, PrivacyError, RecursionError, OverflowError) as error:
        raise ValueError(f"{name} cannot be read as a fitted model: {error}") from error


def _check_format(whole: Any) -> None:
    found = whole.get("format") if isinstance(whole, dict) else None
    start, _, number = str(found).rpartition(":")
    if found != FORMAT and start == FORMAT.rpartition(":")[0] and number.isdecimal():
        raise ValueError(
            f"it has format {number}, and dpsubspace {package_version()} reads format"
            f" {FORMAT.rpartition(':')[2]}: install a newer version."
        )
    if found != FORMAT:
        raise ValueError(f"its `format` is {shown(found)}, not {FORMAT!r}.")


# Models -------------------------------------------------------------------------------------------


def save_models(found: Mapping[str, Any], path: Path) -> dict[str, Path]:
    """Write fitted models to new files beside `path`, and return these by the names of the models.

    What cannot be written is left out, since an error of the user is on its way.
    """
    files = {}
    for name, model in found.items():
        with suppress(ValueError, OSError, NotFittedError):
            beside = (path.with_name(f"{path.stem}.{name}{n or ''}.json") for n in count())
            file = next(each for each in beside if not each.exists())
            model.to_json(file)
            files[name] = file
    return files


def model_as_plain(
    model: Any, whole: PrivacyGuarantee | None = None, *, inside: bool = False
) -> dict[str, Any]:
    """Class, parameters, fitted parts and guarantee of a model; ValueError for unsupported parts.

    A model inside of another one with the guarantee `whole` is written without it.
    """
    name, guarantee = type(model).__name__, vars(model).get("privacy_")
    if _class_of(name) is not type(model):
        raise ValueError(
            f"a {name} of {type(model).__module__} has no form in files, which have estimators of"
            " dpsubspace alone. Save the model with joblib or skops instead."
        )
    params = model.get_params(deep=False) if isinstance(model, BaseEstimator) else {}
    found: dict[str, Any] = {"model": name, "version": package_version()}
    found["parameters"] = {
        key: _plain(Parameter(guarantee), value, f"the parameter `{key}` of a {name}")
        for key, value in params.items()
    }
    if guarantee is None and not inside:
        raise NotFittedError(f"this {name} is not fitted: there is nothing to write yet.")
    if guarantee is not None:
        found["fitted"] = _fitted_as_plain(model, {*params, "privacy_"})
        if guarantee is not whole:
            found["privacy"] = as_fields(guarantee)
    return found


def _plain(form: Form, value: Any, what: str) -> Any:
    try:
        return form.plain(value)
    except ValueError as error:
        raise ValueError(f"{what} cannot be written as JSON: {error}") from None


def _fitted_as_plain(model: Any, known: set[str]) -> dict[str, Any]:
    """All parts that a fit has stored; ValueError where one has no form."""
    name, state, forms = type(model).__name__, vars(model), model._saved
    for attribute, form in forms.items():
        if attribute not in state and not isinstance(form, Sometimes):
            raise NotFittedError(f"this {name} was not fitted to the end: it has no {attribute}.")
    found = {
        attribute.strip("_"): _plain(form, state[attribute], f"`{attribute}` of a {name}")
        for attribute, form in forms.items()
        if attribute in state
    }
    if unknown := state.keys() - known - forms.keys() - _ASIDE:
        raise ValueError(
            f"this {name} has {sorted(unknown)}, which no file has a place for: delete what your"
            " own code has set, or save the model with joblib or skops instead."
        )
    return found


def _class_of(name: Any) -> Any:
    """The class of estimators with a public name; None where there is none."""
    found = imported(name) if isinstance(name, str) and name in PLACES else None
    kinds = (SavedModel, BaseEstimator)
    return found if isinstance(found, type) and issubclass(found, kinds) else None


def model_from_plain(plain: Any, here: Reading, whole: PrivacyGuarantee | None = None) -> Any:
    """Build a model of class, parameters, fitted parts and guarantee; ValueError if one is wrong.

    A model inside of another one may have the guarantee of that one, `whole`.
    """
    if not isinstance(plain, dict):
        here.wrong("a model: an object with `model`, `version`, `parameters` and more", plain)
    if unknown := sorted(plain.keys() - {"model", "version", "parameters", "fitted", "privacy"}):
        raise ValueError(f"`{here.where}` has {shown(unknown[0])}, which is not known.")
    kind = _class_of(plain.get("model"))
    if kind is None:
        here.at("model").wrong("the name of a class of models", plain.get("model"))
    Text().read(plain.get("version"), here.at("version"))
    guarantee = whole
    if "privacy" in plain:
        guarantee = PrivacyGuarantee(**checked_fields(plain["privacy"]))
    model = _unfitted(kind, plain.get("parameters"), here.at("parameters"), guarantee)
    if "fitted" not in plain and here.where != Reading.where:
        return model
    if not issubclass(kind, SavedModel):
        here.at("model").wrong("the name of a class that is fitted", plain["model"])
    if guarantee is None:
        raise ValueError(f"`{here.where}` has no 'privacy', the guarantee of the model.")
    params = plain["parameters"] and model.get_params(deep=False)
    inside = Reading(here.at("fitted").where, params=params)
    names = {attribute.strip("_"): attribute for attribute in kind._saved}
    forms = {name: kind._saved[attribute] for name, attribute in names.items()}
    fitted = Record(dict, **forms).values(plain.get("fitted"), inside)
    model.__dict__.update({names[name]: value for name, value in fitted.items()})
    model.__dict__["privacy_"] = guarantee
    model._check_read()
    return model


def _unfitted(kind: Any, plain: Any, here: Reading, whole: PrivacyGuarantee | None) -> Any:
    """An unfitted model with parameters that were read."""
    if not isinstance(plain, dict):
        here.wrong("an object", plain)
    if not issubclass(kind, BaseEstimator):
        return kind.__new__(kind) if not plain else here.wrong("empty", plain)
    names = {*inspect.signature(kind).parameters}
    if plain.keys() != names:
        odd = sorted(plain.keys() ^ names)
        raise ValueError(f"`{here.where}` must have the parameters of a {kind.__name__}: {odd}.")
    read = Parameter(whole)
    return kind(**{name: read.read(value, here.at(name)) for name, value in plain.items()})


# Parameters ---------------------------------------------------------------------------------------


class Parameter(Form):
    """A parameter: values that JSON supports stay as they are, others become objects of one field.

    Models inside are written with their guarantee, unless it is the guarantee of the `whole`.
    """

    in_pickles = False

    def __init__(self, whole: PrivacyGuarantee | None = None):
        self.whole = whole

    def plain(self, value: Any) -> Any:
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"number": value}
        if isinstance(value, np.random.RandomState):
            return None  # its state would reveal the noise, and predictions do not depend on it
        if hasattr(value, "state_dict"):
            raise ValueError(
                "a module of torch is code. Save it with torch, or the model with joblib."
            )
        if type(value).__module__ == "torch":  # a device
            return str(value)
        if isinstance(value, list):
            return [self.plain(each) for each in value]
        for name, kind in _KINDS.items():
            if isinstance(value, kind.type):
                return {name: kind.plain(self, value)}
        raise ValueError(
            f"a {type(value).__name__} has no form there. Save the model with joblib or skops."
        )

    def read(self, plain: Any, here: Reading) -> Any:
        if plain is None or isinstance(plain, (bool, int, float, str)):
            return plain
        if isinstance(plain, list):
            return [self.read(each, here.at(i)) for i, each in enumerate(plain)]
        if not isinstance(plain, dict) or len(plain) != 1 or not plain.keys() <= {*_KINDS}:
            here.wrong(f"a value, a list, or an object of one field out of {[*_KINDS]}", plain)
        ((name, inside),) = plain.items()
        return _KINDS[name].read(self, inside, here.at(name))


class _Kind(NamedTuple):
    """A type of parameters that JSON lacks: how to write it, and how to read it."""

    type: Any
    plain: Callable[[Parameter, Any], Any]
    read: Callable[[Parameter, Any, Reading], Any]


def _read_tuple(own: Parameter, plain: Any, here: Reading) -> tuple[Any, ...]:
    return tuple(own.read(plain, here)) if isinstance(plain, list) else here.wrong("a list", plain)


def _read_pairs(own: Parameter, plain: Any, here: Reading) -> dict[Any, Any]:
    pairs = _read_tuple(own, plain, here)
    try:
        return {key: value for key, value in pairs}
    except (TypeError, ValueError):
        return here.wrong("a list of pairs, each of a key and its value", plain)


def _read_column(own: Parameter, plain: Any, here: Reading) -> Any:
    columns = schema_of(plain)
    return columns[_COLUMN] if [*columns] == [_COLUMN] else here.wrong("one column", plain)


# Name of the column in the schema as which a single column is written.
_COLUMN = "column"

# The first type that matches a parameter counts. Numbers here are those that are not finite.
_KINDS = {
    "number": _Kind(
        (), lambda own, value: value, lambda own, plain, here: _ANY_NUMBER.read(plain, here)
    ),
    "tuple": _Kind(tuple, lambda own, value: own.plain([*value]), _read_tuple),
    "pairs": _Kind(
        dict, lambda own, value: [own.plain([*pair]) for pair in value.items()], _read_pairs
    ),
    "array": _Kind(
        np.ndarray,
        lambda own, value: AnyArray().plain(value),
        lambda own, plain, here: AnyArray().read(plain, here),
    ),
    "schema": _Kind(
        Schema,
        lambda own, value: schema_fields(value),
        lambda own, plain, here: schema_of(plain),
    ),
    "column": _Kind(
        KINDS, lambda own, value: schema_fields(Schema({_COLUMN: value})), _read_column
    ),
    "frozen": _Kind(
        FrozenEstimator,
        lambda own, value: own.plain(value.estimator),
        lambda own, plain, here: FrozenEstimator(own.read(plain, here)),
    ),
    "model": _Kind(
        BaseEstimator,
        lambda own, value: model_as_plain(value, own.whole, inside=True),
        lambda own, plain, here: model_from_plain(plain, here, own.whole),
    ),
}
_ANY_NUMBER = Number(-math.inf, math.inf)
