"""Throwaway copies of a torch module, and a test that nothing of a call outlives them.

Design note. Many modules store data of a call: attention weights, running statistics, activations
for a later plot. A model is saved, and must not hold entries of private rows. So no module that is
kept is ever called: each use gets a copy that shares nothing but the memory of the parameters. A
copy does not help where a module writes into that memory, or stores data outside of itself (a
global list, a class attribute, a cache, the variables of a hook). Such data are searched for on
random rows, in two ways. Every tensor that is computed from the rows is followed, and none may be
alive when the copies are gone, wherever it is stored. And everything that can be reached from the
module in Python, including numbers and arrays, must be unchanged. Torch is imported inside
functions.
"""

from __future__ import annotations

import copy
import functools
import gc
import io
import re
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


# Most objects that are examined: a module that reaches more is examined in part.
_MOST = 200_000

# Arrays beyond this size are compared by some of their rows: they may be on disk.
_BYTES = 1 << 28

# Objects of these modules are not followed: they hold no rows, or very many objects.
_LIBRARIES = {*sys.stdlib_module_names, "torch", "numpy", "scipy", "sklearn", "dpsubspace"}

# Operations that use only the shape and the type of a tensor.
_SHAPE_ONLY = ("new_", "zeros_like", "ones_like", "empty_like", "full_like", "rand")


# Copies ---------------------------------------------------------------------------------------


def public_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Copy of a module that shares nothing with it; ValueError where it cannot be copied."""
    import torch

    # Tensors with autograd history, left by earlier training in attributes, cannot be copied.
    left = {id(t): t.detach().clone() for layer in module.modules() for t in _with_history(layer)}
    try:
        with torch.no_grad():  # otherwise scripted modules would copy the history of their weights
            copied = copy.deepcopy(module, left)
    except Exception as error:
        raise ValueError(
            f"`module` cannot be copied: {error} Take out what has no copies: locks, generators,"
            " open files, lists of tensors that an earlier training left."
        ) from error
    if copied is module:
        raise ValueError("`module` cannot be copied: its __deepcopy__ returns the module itself.")
    return copied


def _with_history(layer: torch.nn.Module) -> list[torch.Tensor]:
    import torch

    values = [value for value in vars(layer).values() if isinstance(value, torch.Tensor)]
    return [value for value in values if value.grad_fn is not None]


def throwaway(module: torch.nn.Module) -> torch.nn.Module:
    """Copy of a module that shares the memory of its parameters, and nothing else."""
    import torch

    shared = {}
    for parameter in module.parameters():
        if type(parameter) is torch.nn.Parameter:  # other types may carry more than their entries
            twin = torch.nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
            shared[id(parameter)] = twin
    with torch.no_grad():
        return copy.deepcopy(module, shared)


def emptied(module: torch.nn.Module, before: dict[str, int]) -> str:
    """Overwrite parameters that were written to since `before`; returns a message, "" for none."""
    written = [name for name, version in versions(module).items() if version != before[name]]
    for name in written:
        parameter = dict(module.named_parameters())[name].detach()
        parameter.fill_(float("nan") if parameter.is_floating_point() else 0)
    if not written:
        return ""
    return (
        f"`module` changed its parameters {written} while it mapped rows, so that they may hold"
        " entries of them. They are overwritten with NaN: fit again, with a module that does not"
        " change them."
    )


def versions(module: torch.nn.Module) -> dict[str, int]:
    return {name: p._version for name, p in module.named_parameters() if not p.is_inference()}


# Trials on random rows ------------------------------------------------------------------------


class LeakCheck:
    """Search for data that calls of copies of a module leave behind.

    Each round must make the same calls, on other rows of the same shapes. A change in the first
    round only may be a table by the shape of the rows, which is no secret; so changes of integers,
    texts and tensors that are not computed from the rows are allowed in that round. Later rounds
    must change nothing.

    Not found: data that calls leave behind on some rows only, and on no random ones, or integers at
    the first batch of another size only; numbers in places that no name in the code of the module
    leads to, or inside of torch and other libraries (a tensor is found anywhere, unless it was made
    of such numbers); what the module writes to a file; what compiled extensions keep.
    """

    def __init__(self, module: torch.nn.Module):
        self.module = module
        self._state, self._first = _state(module), True
        self._place = ""

    @contextmanager
    def round(self) -> Iterator[Callable[[torch.Tensor], None]]:
        """Call copies in this context; it yields a function to mark rows, and raises for a leak."""
        trace = _trace()
        with trace:
            yield trace.watch
        before, self._state = self._state, _state(self.module)
        changed = (p for p in {**self._state, **before} if before.get(p) != self._state.get(p))
        found = {path: self._state.get(path) or before[path] for path in changed}
        self._place = next(iter(found), self._place)
        suspect = [p for p, leaf in found.items() if not self._first or leaf[0] == "value"]
        self._first = False
        if suspect or trace.alive():
            place = _readable(suspect[0] if suspect else self._place)
            raise ValueError(
                f"`module` keeps something of the rows that it maps{f', at {place},' * bool(place)}"
                " where it would outlive the call and reveal private rows. Take that out, or"
                " store it as an attribute of the module (`self.kept = ...`): a call is made on a"
                " copy, which is thrown away, but globals, attributes of classes, caches of"
                " functions, variables of hooks and entries of parameters are not copied."
            )


def _trace() -> Any:
    """A torch mode that follows everything computed from the rows that it watches."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def memory(values: Any) -> dict[int, Any]:
        """Memory of tensors by its address; the tensor itself where that is hidden (MKL-DNN)."""
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        parts = [(tensor, _memory(tensor)) for tensor in tensors]
        parts = [tensor if part is None else part for tensor, part in parts]
        return {part._cdata: part for part in parts if isinstance(part, torch.Tensor) or part}

    def weak(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return torch._C._WeakTensorRef(part)  # pyright: ignore[reportAttributeAccessIssue]
        return StorageWeakRef(part)

    class Trace(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            # By address, which is not reused while there is a weak reference to the memory.
            self.followed: dict[int, Any] = {}

        def watch(self, *tensors: torch.Tensor) -> None:
            for address, part in memory(tensors).items():
                self.followed.setdefault(address, weak(part))

        def alive(self) -> bool:
            if any(not ref.expired() for ref in self.followed.values()):
                gc.collect()
            return any(not ref.expired() for ref in self.followed.values())

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            kwargs = kwargs or {}
            given = memory((args, kwargs))
            out = func(*args, **kwargs)
            name = str(func).removeprefix("aten.")
            if self.followed.keys() & given.keys() and not name.startswith(_SHAPE_ONLY):
                # An output that is a view of another tensor (view_as) holds no data of the rows.
                self.watch(*(t for t in tree_leaves(out) if memory(t).keys() - given.keys()))
                self.watch(*_written(func, args, kwargs))
            return out

    return Trace()


def _memory(value: Any) -> Any:
    """Memory of a tensor; None for anything else."""
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    try:
        if value.layout is torch.sparse_coo:
            value = value._values()
        elif value.layout is not torch.strided:
            value = value.values()
        return value.untyped_storage()
    except (NotImplementedError, RuntimeError):  # for tensors of other kinds
        return None


def _written(func: Any, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    schema = getattr(func, "_schema", None)
    written = []
    for i, argument in enumerate(schema.arguments if schema else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += tree_leaves(args[i] if i < len(args) else kwargs.get(argument.name))
    return written


# Objects that can be reached from a module ----------------------------------------------------


def _state(module: Any) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    seen: dict[int, Any] = {}  # holds the objects too, so that their ids are not reused
    queue = deque([("module", module)])
    while queue and len(seen) + len(found) < _MOST:
        path, value = queue.popleft()
        with suppress(Exception):  # unusual objects may raise errors when they are examined
            leaf = _leaf(value)
            if leaf is not None:
                found[path] = leaf
            if (leaf is None or leaf[0] == "tensor") and id(value) not in seen:
                seen[id(value)] = value
                queue.extend(islice(_parts(path, value), _MOST))
    return found


def _readable(path: str) -> str:
    return re.sub(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", r".\1", path)


def _leaf(value: Any) -> tuple[str, Any] | None:
    import torch

    if value is None or isinstance(value, int | str):
        return "count", value
    if isinstance(value, float | complex | bytes | np.generic):
        return "value", repr(value)  # as text, so that NaN equals NaN
    if isinstance(value, torch.Tensor):
        return "tensor", _digest(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        kind = "count" if value.dtype.kind in "biu" else "value"
        if value.ndim:  # all rows, except for huge arrays
            value = value[:: 1 + value.nbytes // _BYTES]
        described = value.shape, value.dtype.str
        return kind, (*described, zlib.crc32(np.ascontiguousarray(value).tobytes()))
    if isinstance(value, bytearray | memoryview):
        return "value", bytes(value)
    if isinstance(value, io.BytesIO | io.StringIO):
        return "value", value.getvalue()
    return None


def _digest(tensor: torch.Tensor) -> tuple[Any, ...]:
    import torch

    described = (tensor.shape, tensor.dtype, tensor.device)
    memory = _memory(tensor)
    if memory is None or tensor.is_meta:
        return described
    with torch.no_grad():
        entries = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(memory)
        whole = len(entries) // 8 * 8
        return *described, int(entries[:whole].view(torch.int64).sum()), int(entries[whole:].sum())


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, ModuleType) or _library(type(value), "logging"):
        return
    if isinstance(value, type):
        if not _library(value):
            name = value.__qualname__
            yield from ((f"{name}.{attribute}", part) for attribute, part in vars(value).items())
            yield from ((base.__qualname__, base) for base in value.__bases__)
    elif isinstance(value, FunctionType):
        yield from _variables(path, value)
    elif isinstance(value, dict):
        for i, (key, part) in enumerate(value.items()):
            named = isinstance(key, str | int | float | bytes | tuple)
            yield f"{path}[{key!r}]" if named else f"{path}[{i}]", part
            yield f"{path} (key {i})", key
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from ((f"{path}[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, ContextVar):
        yield f"{path} (value)", value.get(None)
    yield from _attributes(path, value)
    yield type(value).__qualname__, type(value)


def _attributes(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, type | FunctionType):
        return
    named = dict(getattr(value, "__dict__", {}))
    if isinstance(value, torch.Tensor):
        named["grad"] = value.grad if value.is_leaf else None
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                named[name] = getattr(value, name)
    yield from ((f"{path}.{name}", part) for name, part in named.items())
    plain = isinstance(value, dict | list | tuple | set | frozenset | deque | ContextVar)
    compiled = isinstance(value, functools.partial | MethodType)
    compiled = compiled or hasattr(type(value), "cache_info")
    if compiled or not (named or plain):
        for i, part in enumerate(gc.get_referents(value)):
            yield f"{path} (part {i})", part


def _variables(path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Variables of a function's closure, its defaults, and globals that its code names."""
    if _library(function) and not function.__closure__:
        return
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a variable without a value
            yield f"the variable {name!r} of {function.__qualname__}", cell.cell_contents
    yield f"the defaults of {function.__qualname__}", function.__defaults__
    yield f"the defaults of {function.__qualname__}", function.__kwdefaults__
    yield path, vars(function)
    if _library(function):
        return
    used = _names(function.__code__)
    spaces = [function.__globals__]
    for name in used:  # modules that the function imports
        if isinstance(module := sys.modules.get(name), ModuleType):
            spaces.append(vars(module))
    for space in spaces:
        if not _library_name(space.get("__name__")):
            for name in sorted(used & space.keys()):
                part = space[name]
                if isinstance(part, ModuleType):
                    if not any(part.__dict__ is known for known in spaces):
                        spaces.append(vars(part))
                else:
                    yield f"the global {space.get('__name__')}.{name}", part


def _names(code: CodeType) -> set[str]:
    inside = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inside)


def _library(value: Any, *names: str) -> bool:
    return _library_name(getattr(value, "__module__", None), *names)


def _library_name(name: Any, *names: str) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in (names or _LIBRARIES)
