"""Kinds of misuse of public functions, and the texts of the errors that they raise.

``python tests/cases/misuse.py`` writes the texts again, to tests/stored/misuse.txt.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

if __name__ == "__main__":  # as a script, from any folder
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from operator import attrgetter

import numpy as np
from bad_kinds import HUGE, Tensor
from good_calls import GOOD

import relpos

STORED = Path(__file__).parents[1] / "stored" / "misuse.txt"


class Sparse:
    """Looks like a matrix of scipy.sparse."""


Sparse.__module__ = "scipy.sparse._csr"


def longer(axis):
    """Return a change that repeats the last entry of an axis; None without the axis."""

    def change(a):
        if a.ndim < -axis or not a.shape[axis]:
            return None
        return np.concatenate([a, a.take([-1], axis)], axis)

    return change


def shorter(a):
    """Return an array without its first axis, if it has one to lose."""
    return a[0] if a.ndim > 1 and len(a) else None


def read_only(a):
    """Return a read-only array like `a`."""
    a = np.array(a)
    a.flags.writeable = False
    return a


#: What is given in the place of an array; None says that the kind does not apply.
ARRAYS = {
    "object array": lambda a: a.astype(object),
    "text": lambda a: "abc",
    "bytes": lambda a: b"abc",
    "list of texts": lambda a: ["a", "b"],
    "ragged list": lambda a: [[1.0, 2.0], [3.0]],
    "complex numbers": lambda a: a.astype(complex),
    "integers for floats": lambda a: a.astype(int) if a.dtype.kind == "f" else None,
    "floats for integers": lambda a: a + 0.5 if a.dtype.kind == "i" else None,
    "booleans": lambda a: a.astype(bool),
    "dates": lambda a: np.zeros(a.shape, "M8[s]"),
    "structured array": lambda a: np.zeros(a.shape, [("x", float)]),
    "long doubles": lambda a: a.astype(np.longdouble) if a.dtype.kind == "f" else None,
    "scalar for an array": lambda a: 1.0,
    "nan for an array": lambda a: np.nan,
    "too few axes": shorter,
    "no columns": lambda a: a[..., :0],
    "no items": lambda a: a[:0],
    "one column more": longer(-1),
    "one row more": longer(-2),
    "one head more": longer(-3),
    "masked array": np.ma.masked_array,
    "tensor of torch": lambda a: Tensor(),
    "sparse matrix": lambda a: Sparse(),
    "generator": lambda a: (x for x in [1.0]),
    "set": lambda a: {1.0},
    "dictionary": lambda a: {"a": 1.0},
    "function": lambda a: abs,
    "None for an array": lambda a: ...,
}
#: The same of an integer, a real number, a flag and a choice.
INTEGERS = {
    "negative integer": lambda n: -5,
    "zero": lambda n: 0,
    "huge integer": lambda n: HUGE,
    "flag for an integer": lambda n: True,
    "float for an integer": lambda n: 1.5,
    "text for a number": lambda n: "3",
    "array for a number": lambda n: np.ones(2),
    "None for a number": lambda n: ...,
}
REALS = {
    "nan": lambda x: np.nan,
    "infinity": lambda x: np.inf,
    "negative number": lambda x: -1.0,
    "complex number": lambda x: 1j,
    "text for a number": lambda x: "3",
    "array for a number": lambda x: np.ones(2),
    "flag for a number": lambda x: True,
}
FLAGS = {"integer for a flag": lambda x: 1, "text for a flag": lambda x: "yes"}
CHOICES = {
    "unknown choice": lambda x: "nonsense",
    "number for a choice": lambda x: 3,
    "None for a choice": lambda x: ...,
}


def kinds_for(name, value):
    """Return the changes that apply to a value that is given or is a default."""
    if isinstance(value, bool):
        return FLAGS
    if isinstance(value, int):
        return INTEGERS
    if isinstance(value, float):
        return REALS
    if isinstance(value, str):
        return CHOICES
    if isinstance(value, np.ndarray) and value.dtype.kind in "fi" and value.ndim:
        return ARRAYS
    return {}


def outputs(shown, good, function):
    """Yield (kind, arguments) of an `out` that cannot be written to."""
    if "out" not in shown:
        return
    out = function(**good)
    if not isinstance(out, np.ndarray):
        return
    yield "read-only out", {"out": read_only(out)}
    yield "out of another dtype", {"out": out.astype(np.int32)}
    yield "out of another shape", {"out": np.ones((*out.shape, 1), out.dtype)}
    yield "out that is a list", {"out": out.tolist()}
    yield "out that overlaps itself", {"out": np.broadcast_to(out[:1], out.shape)}
    for value in good.values():
        if isinstance(value, np.ndarray) and value.shape == out.shape:
            yield "out that overlaps an argument", {"out": value}
            break


def by_signature(shown, good):
    """Yield (kind, positional arguments, keywords) of calls that do not fit."""
    first = next(iter(shown), None)
    yield "unknown keyword", (), good | {"frobnicate": 1}
    yield "keyword of another library", (), good | {"causal": True}
    if first:
        kept = {name: value for name, value in good.items() if name != first}
        if len(first) > 2:
            yield "misspelt keyword", (), kept | {f"{first[:-2]}{first[:-3:-1]}": 1}
        if shown[first].default is inspect.Parameter.empty:
            yield "missing argument", (), kept
        if first in good and shown[first].kind is not inspect.Parameter.KEYWORD_ONLY:
            yield "argument given twice", (good[first],), good
    yield "too many by position", (1,) * (len(shown) + 1), {}


def calls(function, good):
    """Yield (kind, [(positional arguments, keywords)]): the first that fails counts."""
    shown = inspect.signature(function).parameters
    for kind, args, keywords in by_signature(shown, good):
        yield kind, [(args, keywords)]
    for kind, more in outputs(shown, good, function):
        yield kind, [((), good | more)]
    names = [name for name, value in good.items() if isinstance(value, np.ndarray)]
    if len(names) > 1:
        a, b = names[0], names[-1]
        yield "two arguments exchanged", [((), good | {a: good[b], b: good[a]})]
    values = {n: p.default for n, p in shown.items() if p.default is not p.empty}
    values = {n: v for n, v in values.items() if v is not None} | good
    found = {}
    for name, value in values.items():
        for kind, change in kinds_for(name, value).items():
            bad = change(value)
            if bad is not None:
                given = good | {name: None if bad is ... else bad}
                found.setdefault(kind, []).append(((), given))
    for turn, (kind, tried) in enumerate(found.items()):
        start = turn % len(tried)  # so that it is not always the first argument
        yield kind, tried[start:] + tried[:start]


def said(function, tried):
    """Return the error of the first call that fails, or None."""
    for args, keywords in tried:
        try:
            function(*args, **keywords)
        except Exception as error:
            return error
    return None


def as_arrays(good):
    """Return the arguments of a call with lists of numbers as arrays."""
    return {
        name: np.array(value)
        if isinstance(value, list) and np.asarray(value).dtype.kind in "fi"
        else value
        for name, value in good.items()
    }


def on_tensors(function):
    """Return a function whose arrays become tensors, where torch has their dtype."""
    import torch

    def as_tensor(value):
        if value is np.float64:
            return torch.float64
        if type(value) is not np.ndarray:
            return value
        try:
            return torch.from_numpy(np.array(value))
        except TypeError:
            return value

    @functools.wraps(function)
    def call(*args, **keywords):
        given = {name: as_tensor(value) for name, value in keywords.items()}
        return function(*args, **given)

    return call


def is_made(value):
    """Return True for a function, and for a class that checks what it is made of."""
    made = isinstance(value, type) and value.__init__ is not object.__init__
    return inspect.isfunction(value) or (made and not issubclass(value, tuple))


def every():
    """Return the public functions and layers: name to (function, a good call or None).

    Names of packages that are not installed are left out.
    """
    functions = {
        name: (attrgetter(name)(relpos), as_arrays(good))
        for name, good in GOOD.items()
        if name != "AttentionContext.backward" and there(name)
    }
    rooms = ["nn", "reference", "torch", "torch.nn", "sharded", "recipes", "data"]
    for room in filter(there, rooms):
        package = attrgetter(room)(relpos)
        for name in package.__all__:
            function, good = getattr(package, name), None
            if room in ("torch", "sharded") and name in GOOD:
                good = as_arrays(GOOD[name])
                function = on_tensors(function) if room == "torch" else function
            if is_made(function):
                functions.setdefault(f"{room}.{name}", (function, good))
    for name in ("KVCache", "compare", "demo"):
        functions[name] = getattr(relpos, name), None
    return functions


def there(name):
    """Tell whether the package that a public name needs is installed."""
    needed = {"torch": "torch", "sharded": "dask", "plot": "matplotlib"}
    needed = needed.get(name.partition(".")[0])
    return needed is None or find_spec(needed) is not None


def errors_of(function, good):
    """Return [(kind, error)] of all that a function refuses."""
    if good is None:
        shown = inspect.signature(function).parameters
        tried = [(kind, [(args, k)]) for kind, args, k in by_signature(shown, {})]
    else:
        tried = calls(function, good)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(kind, said(function, these)) for kind, these in tried]
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    return [(kind, error) for kind, error in found if error is not None]


def text_of(error):
    """Return an error as one line, without what NumPy says of ragged lists."""
    text = " ".join(str(error).split())
    text = re.sub(r"\(setting an array element.*?\)(?=;)", "(…)", text)
    return f"{type(error).__name__}: {text}"


def block_of(name, errors):
    """Return the lines of a function: its name, and a line for each kind."""
    rows = (f"    {kind}: {text_of(error)}\n" for kind, error in errors)
    return f"{name}\n{''.join(rows)}"


def stored():
    """Return the blocks of the stored texts by the name of the function."""
    blocks = re.split(r"^(?=\S)", STORED.read_text("utf-8"), flags=re.MULTILINE)
    return {block.partition("\n")[0]: block for block in blocks if block}


if __name__ == "__main__":
    blocks = [block_of(name, errors_of(*made)) for name, made in every().items()]
    STORED.write_text("".join(blocks), encoding="utf-8")
