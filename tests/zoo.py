"""Torch modules that store something of their calls, in every place that we could think of.

A case says what is to be expected of a module: that nothing of the rows can be found where
it is used ("", harmless), or the place that a refusal names. For `module=`, where rows enter
by `torch.func.vmap`, more is refused, and with other words.
"""

import copy
import functools
import io
import queue
import sys
import threading
import types
import weakref
from collections import defaultdict, deque
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Net(nn.Module):
    """A linear layer, beside which `keep` stores something of the rows."""

    def __init__(self, width, outputs):
        super().__init__()
        self.layer = nn.Linear(width, outputs)

    def forward(self, rows):
        self.keep(rows)
        return self.layer(rows)

    def keep(self, rows):
        pass


# Inside of the module ---------------------------------------------------------------------------


class Attribute(Net):
    def keep(self, rows):
        self.kept = rows


class Submodule(Net):
    def keep(self, rows):
        self.layer.kept = rows * 1.0


class Containers(Net):
    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.list, self.dict, self.deque = [], {}, deque(maxlen=3)

    def keep(self, rows):
        self.list.append(rows)
        self.dict["kept"] = rows
        self.deque.append(rows.clone())


class Numbers(Net):
    def keep(self, rows):
        self.array = rows.detach().cpu().numpy().copy()
        self.numbers = rows.tolist()
        self.text = str(self.numbers)


class Count(Net):
    """Counts entries above zero: that depends on the rows."""

    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.count = 0

    def keep(self, rows):
        self.count += int((rows > 0).sum())


class Buffer(Net):
    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.register_buffer("mean", torch.zeros(width))

    def keep(self, rows):
        self.mean.copy_(rows[0])


class HiddenBuffer(Buffer):
    def keep(self, rows):
        self.mean.data.copy_(rows[0])


class ArrayBuffer(Buffer):
    def keep(self, rows):
        self.mean.numpy()[:] = rows[0].detach().numpy()


class NewBuffer(Net):
    def keep(self, rows):
        self.register_buffer("last", rows[0])


class OnParameter(Net):
    def keep(self, rows):
        self.layer.weight.kept = rows


class Gradient(Net):
    def keep(self, rows):
        self.layer.weight.grad = rows[:1].expand_as(self.layer.weight).clone()


class Helper:
    """Not a module."""

    def __init__(self):
        self.kept = None

    def hook(self, module, inputs, output):
        self.kept = inputs


class WithHelper(Net):
    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.helper = Helper()
        self.layer.register_forward_hook(self.helper.hook)

    def keep(self, rows):
        self.helper.other = rows


class Graph(Net):
    """Holds what autograd remembers of a call."""

    def keep(self, rows):
        with torch.enable_grad():
            self.loss = (self.layer(rows) ** 2).sum()


class Weak(Net):
    def keep(self, rows):
        self.kept = weakref.WeakValueDictionary({0: rows})
        self.strong = self.kept.copy()

    def __deepcopy__(self, memo):
        other = Weak(self.layer.in_features, self.layer.out_features)
        other.layer = copy.deepcopy(self.layer, memo)
        return other.eval()


class Cycle(Net):
    def keep(self, rows):
        self.kept = [rows, (self.forward,)]
        self.kept.append(self.kept)


# Outside of what a copy holds -------------------------------------------------------------------

LIST, DICT, QUEUE, BYTES = [], {}, queue.Queue(), io.BytesIO()
TENSOR, ARRAY = torch.zeros(3), np.zeros(3)
LOCAL, CONTEXT = threading.local(), ContextVar("kept", default=None)
OTHER = types.ModuleType("zoo_store")
sys.modules["zoo_store"] = OTHER


class ClassAttribute(Net):
    def keep(self, rows):
        type(self).kept = rows


class ClassSparse(Net):
    def keep(self, rows):
        ClassSparse.kept = rows.to_sparse()


class ClassOpaque(Net):
    """Of a layout whose memory torch does not show."""

    def keep(self, rows):
        ClassOpaque.kept = rows.detach().float().to_mkldnn()


class ClassNumber(Net):
    def keep(self, rows):
        ClassNumber.kept = float(rows.sum())


class ClassOnce(Net):
    """Keeps what it saw first."""

    def keep(self, rows):
        if not hasattr(ClassOnce, "kept"):
            ClassOnce.kept = rows.abs().max()


class NumberOnce(Net):
    def keep(self, rows):
        if not hasattr(NumberOnce, "kept"):
            NumberOnce.kept = rows.abs().max().item()


class GlobalList(Net):
    def keep(self, rows):
        LIST.append(rows)


def log(numbers):
    LIST.append(numbers)


class GlobalNumbers(Net):
    def keep(self, rows):
        log(rows.tolist())


class GlobalCount(Net):
    def keep(self, rows):
        DICT["count"] = DICT.get("count", 0) + int((rows > 0).sum())


class GlobalKey(Net):
    def keep(self, rows):
        DICT[round(float(rows.detach().sum()), 3)] = True


class GlobalQueue(Net):
    def keep(self, rows):
        QUEUE.put(rows)


class GlobalFile(Net):
    def keep(self, rows):
        torch.save(rows, BYTES)


class GlobalTensor(Net):
    def keep(self, rows):
        TENSOR.copy_(rows[0, :3])


class GlobalArray(Net):
    def keep(self, rows):
        ARRAY[:] = rows[0, :3].numpy()


class OtherModule(Net):
    def keep(self, rows):
        import zoo_store

        zoo_store.kept = rows.tolist()


class Torch(Net):
    def keep(self, rows):
        nn.Linear.kept = rows


class ThreadLocal(Net):
    def keep(self, rows):
        LOCAL.kept = rows.tolist()


class Context(Net):
    def keep(self, rows):
        CONTEXT.set(rows)


class Default(Net):
    def keep(self, rows, kept=LIST):
        kept.append(rows.tolist())


class FunctionAttribute(Net):
    def keep(self, rows):
        FunctionAttribute.forward_.kept = rows.tolist()

    def forward_(self):
        pass


class CachedMethod(Net):
    @functools.lru_cache(maxsize=8)  # noqa: B019
    def keep(self, rows):
        return rows


@functools.lru_cache(maxsize=8)
def cached(number):
    return number


class CachedNumber(Net):
    def keep(self, rows):
        cached(rows.sum().item())


class Single:
    """Of which there is never more than one."""

    def __deepcopy__(self, memo):
        return self


class WithSingle(Net):
    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.single = Single()

    def keep(self, rows):
        self.single.kept = rows.tolist()


class Itself(Net):
    def keep(self, rows):
        self.kept = rows.tolist()

    def __deepcopy__(self, memo):
        return self


class Spare(Net):
    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.spare = nn.Parameter(torch.zeros(width), requires_grad=False)

    def keep(self, rows):
        self.spare.copy_(rows[0])


class HiddenSpare(Spare):
    def keep(self, rows):
        self.spare.data[:] = rows[0]


class ArraySpare(Spare):
    def keep(self, rows):
        self.spare.numpy()[:] = rows[0].numpy()


class SetUp(Net):
    """Takes its scale from the first rows that it sees (ActNorm)."""

    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.register_buffer("scale", torch.zeros(1))

    def forward(self, rows):
        if not self.scale.any():
            self.scale = rows.std().reshape(1)
        return self.layer(rows / self.scale)


class Running(Net):
    """Running statistics in evaluation mode too."""

    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, rows):
        self.mean = 0.9 * self.mean + 0.1 * rows.mean(0)
        return self.layer(rows - self.mean)


class Apart(Net):
    """Calls a function that it was given."""

    def __init__(self, width, outputs, function):
        super().__init__(width, outputs)
        self.function = function

    def keep(self, rows):
        self.function(rows)


class Generator(Net):
    """Holds a running generator."""

    def __init__(self, width, outputs):
        super().__init__(width, outputs)
        self.sink = sink()
        next(self.sink)

    def keep(self, rows):
        self.sink.send(rows)


def sink():
    kept = None
    while True:
        kept = yield kept


def closure(width, outputs):
    return Apart(width, outputs, lambda rows: LIST.append(rows.tolist()))


def variable(width, outputs):
    seen = LIST
    return Apart(width, outputs, lambda rows: seen.append(rows))


def partial(width, outputs):
    def store(kept, rows):
        seen["kept"] = rows.tolist()

    seen = DICT
    return Apart(width, outputs, functools.partial(store, 3))


def builtin(width, outputs):
    seen = LIST
    return Apart(width, outputs, seen.append)


def hook(width, outputs):
    seen, net = LIST, Net(width, outputs)
    net.layer.register_forward_hook(lambda *args: seen.append(args[1:]))
    return net


def pre_hook(width, outputs):
    seen, net = DICT, Net(width, outputs)
    net.layer.register_forward_pre_hook(lambda _, args: seen.update(kept=args))
    return net


def extractor(width, outputs):
    """The usual way to read the features of a layer: its hook closes over the module."""
    net = Net(width, outputs)
    net.features = {}

    def read(module, inputs, output):
        net.features["layer"] = output

    net.layer.register_forward_hook(read)
    LIST.append(net)
    return net


def compiled(width, outputs):
    return torch.compile(Attribute(width, outputs), backend="eager")


def scripted(width, outputs):
    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(width, outputs)
            self.kept = torch.zeros(1)

        def forward(self, rows):
            self.kept = rows
            return self.layer(rows)

    return torch.jit.script(Kept())


def spectral(width, outputs):
    return nn.utils.parametrizations.spectral_norm(nn.Linear(width, outputs))


# What is no secret ------------------------------------------------------------------------------

MASKS = defaultdict(dict)


@functools.lru_cache(maxsize=8)
def ones(n):
    return torch.ones(n)


class Masks(Net):
    """Keeps tables by the shape of the rows, for all modules, and counts its own calls."""

    calls = 0

    def keep(self, rows):
        self.calls += 1
        key = (rows.shape, str(rows.device))
        MASKS["all"].setdefault(key, rows.new_ones(len(rows)) + torch.zeros_like(rows[:, 0]))
        return ones(rows.shape[1]).view_as(rows[0])


@dataclass
class Case:
    """A module, where it leaves something, and what refuses it; "" where it is harmless."""

    build: Any
    features: str = ""
    module: str = ""

    def __str__(self):
        return self.build.__name__


KEEPS = "keeps something of the rows that it maps, at .*"
VMAP, COPIED, MIXES = (
    "vmap cannot run it",
    "cannot be copied",
    "when other rows of the batch change",
)

HARMLESS = [
    *map(Case, [Attribute, Submodule, Containers, NewBuffer, OnParameter, WithHelper]),
    *map(Case, [Graph, Weak, Cycle, Masks, compiled, spectral]),
    *(Case(build, "", VMAP) for build in (Numbers, Count, Buffer, HiddenBuffer, ArrayBuffer)),
    Case(Gradient),
    Case(scripted, "", "no parameter to train"),
]
REFUSED = [
    *(
        Case(build, KEEPS + place, KEEPS + place)
        for build, place in [
            (ClassAttribute, r"ClassAttribute\.kept"),
            (ClassSparse, r"ClassSparse\.kept"),
            (ClassOpaque, r"ClassOpaque\.kept"),
            (ClassNumber, r"ClassNumber\.kept"),
            (ClassOnce, r"ClassOnce\.kept"),
            (NumberOnce, r"NumberOnce\.kept"),
            (GlobalList, r"zoo\.LIST"),
            (GlobalNumbers, r"zoo\.LIST"),
            (GlobalCount, r"zoo\.DICT\['count'\]"),
            (GlobalKey, r"zoo\.DICT"),
            (GlobalQueue, r"zoo\.QUEUE"),
            (GlobalFile, r"zoo\.BYTES"),
            (GlobalTensor, r"zoo\.TENSOR"),
            (GlobalArray, r"zoo\.ARRAY"),
            (OtherModule, r"zoo_store\.kept"),
            (ThreadLocal, r"zoo\.LOCAL\.kept"),
            (Context, r"zoo\.CONTEXT"),
            (Default, "the defaults of Default.keep"),
            (FunctionAttribute, r"FunctionAttribute\.forward_"),
            (CachedMethod, r"CachedMethod\.keep"),
            (CachedNumber, r"zoo\.cached"),
            (WithSingle, r"module\.single\.kept"),
            (Spare, r"module\.spare"),
            (HiddenSpare, r"module\.spare"),
            (ArraySpare, r"module\.spare"),
            (closure, r"zoo\.LIST"),
            (variable, "the variable 'seen' of variable"),
            (partial, "the variable 'seen' of partial"),
            (builtin, r"module\.function"),
            (hook, "the variable 'seen' of hook"),
            (pre_hook, "the variable 'seen' of pre_hook"),
            (extractor, r"the variable 'net' of extractor.*features\['layer'\]"),
        ]
    ),
    Case(Torch, "keeps something of the rows that it maps where", "keeps something"),
    Case(Generator, COPIED, COPIED),
    Case(Itself, COPIED, COPIED),
    Case(SetUp, MIXES, MIXES),
    Case(Running, "in two calls", "in two calls"),
]
CASES = [*HARMLESS, *REFUSED]


CLASSES = [ClassAttribute, ClassSparse, ClassOpaque, ClassNumber]
CLASSES += [ClassOnce, NumberOnce, nn.Linear]
OTHERS = [OTHER, LOCAL, FunctionAttribute.forward_]


def cleared():
    """Empty what lies outside of the modules."""
    for kept in (LIST, DICT, MASKS, QUEUE.queue):
        kept.clear()
    for cls in CLASSES:
        if "kept" in vars(cls):
            del cls.kept
    for owner in OTHERS:
        vars(owner).pop("kept", None)
    for cache in (CachedMethod.keep, cached, ones):
        cache.cache_clear()
    BYTES.seek(0)
    BYTES.truncate()
    TENSOR.zero_()
    ARRAY[:] = 0
    CONTEXT.set(None)


def outside():
    """All that lies outside of the modules, as one object."""
    kept = [vars(owner).get("kept") for owner in [*CLASSES, *OTHERS]]
    features = [item.features for item in LIST if isinstance(item, nn.Module)]
    containers = [LIST, DICT, dict(MASKS), list(QUEUE.queue), BYTES.getvalue()]
    return [*containers, TENSOR, ARRAY, CONTEXT.get(), kept, features]


def holds(value, rows):
    """Whether any entry of the rows is found in nested containers, or in bytes."""
    if isinstance(value, bytes):
        entries = rows.ravel()
        return any(e.tobytes() in value or e.astype(np.float32).tobytes() in value for e in entries)
    if isinstance(value, dict):
        return holds(list(value.items()), rows)
    if isinstance(value, list | tuple):
        return any(holds(part, rows) for part in value)
    if isinstance(value, torch.Tensor | np.ndarray | float | np.floating):
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().to_dense()
        found = np.asarray(value, dtype=np.float32).ravel()
        return bool(np.isin(found, rows.astype(np.float32)).any())
    return False
