"""The public interface as text: names, kinds, parameters by position, and defaults.

``python tests/house/api.py --write`` writes ``tests/house/api.txt``, which a test compares with the
package, so that a change of the interface is seen in a review.
"""

import inspect
import re
import sys
from pathlib import Path

SNAPSHOT = Path(__file__).with_name("api.txt")


def is_ours(item):
    """Whether something is defined in the package, and not inherited from elsewhere."""
    return str(getattr(item, "__module__", "")).startswith("dpsubspace")


def signature_of(item):
    """Parameters without annotations, as they stand in a call; defaults as they are written."""
    shown = []
    for parameter in inspect.signature(item).parameters.values():
        shown.append(parameter.replace(annotation=inspect.Parameter.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(shown)))


def members_of(name, cls):
    """Lines of the public attributes that a class of the package brings itself."""
    for key in sorted(dir(cls)):
        item = inspect.getattr_static(cls, key)
        # Methods of classes, properties, and methods that only some objects have (`available_if`).
        code = next(
            (getattr(item, a) for a in ("__func__", "fget", "fn") if hasattr(item, a)), item
        )
        if key.startswith("_") or key.endswith("_request") or not is_ours(code):
            continue
        if isinstance(item, property) or not callable(getattr(cls, key)):
            yield f"{name}.{key}: property"
        elif not inspect.isclass(item):
            kind = (
                type(item).__name__ if isinstance(item, (classmethod, staticmethod)) else "method"
            )
            yield f"{name}.{key}{signature_of(getattr(cls, key))}: {kind}"


def lines():
    """A line for each name, in the order of the alphabet."""
    from dpsubspace._names import PLACES, TOP, imported

    yield f"dpsubspace: {', '.join(sorted(TOP))}"
    for place in sorted({*PLACES.values()} - {"dpsubspace"}):
        yield f"{place}: {', '.join(sorted(name for name in PLACES if PLACES[name] == place))}"
    for name in sorted(PLACES):
        item = imported(name)
        if not inspect.isclass(item):
            yield f"{name}{signature_of(item)}: function"
        elif issubclass(item, BaseException):
            bases = ", ".join(base.__name__ for base in item.__mro__[1:-1])
            yield f"{name}: exception, a {bases}"
        else:
            yield f"{name}{signature_of(item)}: class"
            yield from members_of(name, item)


if __name__ == "__main__":
    if "--write" in sys.argv:
        SNAPSHOT.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    else:
        print("\n".join(lines()))
