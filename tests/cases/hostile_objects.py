"""Objects for readers of arguments: disguises of arrays, changing ones, and odd ones.

`disguised` gives an object that has to be read as the array that it is made of. A
changing object runs code that changes another argument while it is read. `odd` gives
anything. Errors that such objects raise have the word hostile in their text.
"""

from __future__ import annotations

import decimal
import fractions
from contextlib import suppress
from typing import Any

import numpy as np
from layouts import LAYOUTS

FAR = [2**31, 2**60 - 1, 2**60, 2**62, 2**63 - 32, 2**63 - 1, 2**63, 2**64, 10**30]
SHAPES = [(), (0,), (1,), (2,), (2, 5), (5, 6), (2, 5, 6), (2, 2, 5, 4), (0, 2, 5, 4)]
SHAPES += [(1, 9, 4), (9, 4), (2, 9), (2, 2, 6, 4), (3, 2, 2, 5, 4), (1,) * 40]
DTYPES = ["i1", "i2", "i4", "i8", "u8", "?", "c8", "g", "O", "S3", "U2", "M8[s]", "V2"]


# ---- read as an array ----------------------------------------------------------------


def nothing():
    """Run no code."""


class Array:
    """An object that NumPy converts, which first runs a function."""

    def __init__(self, array, run=nothing):
        self.array, self.run = array, run

    def __array__(self, dtype=None, copy=None):
        self.run()
        return self.array


class Interface:
    """The same by NumPy's older protocol."""

    def __init__(self, array, run=nothing):
        self.array, self.run = array, run

    @property
    def __array_interface__(self):
        self.run()
        return self.array.__array_interface__


class DLPack:
    """The same by DLPack."""

    def __init__(self, array, run=nothing):
        self.array, self.run = array, run

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        self.run()
        return self.array.__dlpack__()


class Subclass(np.ndarray):
    """An array that means what any array means."""


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


DISGUISES = [
    *LAYOUTS.values(),
    read_only,
    Array,
    Interface,
    np.ndarray.tolist,
    lambda array: array.view(Subclass),
    lambda array: [*array] if array.ndim > 1 else array,
]


def disguised(rnd, array):
    """Return an object of the same numbers."""
    if rnd.random() < 0.5:
        return array
    return rnd.choice(DISGUISES)(array)


# ---- changes another argument --------------------------------------------------------


class Number(float):
    """A number that runs a function when it is read."""

    def __new__(cls, number, run):
        made = super().__new__(cls, number)
        made.run = run
        return made

    def __float__(self):
        self.run()
        return float.__add__(self, 0.0)


class Index:
    """An integer that does."""

    def __init__(self, number, run):
        self.number, self.run = number, run

    def __index__(self):
        self.run()
        return self.number

    __int__ = __index__


class Moody:
    """An object that is another array each time that it is read."""

    def __init__(self, *arrays):
        self.arrays = [*arrays]

    def __array__(self, dtype=None, copy=None):
        self.arrays.append(self.arrays.pop(0))
        return self.arrays[0]


def shrink(array):
    """Return a function that resizes an array, and writes over the memory it had."""
    kept = []

    def run():
        array.resize((1,), refcheck=False)
        kept.extend(np.zeros((1, 1, 1, size), np.int8) for size in range(40, 90))

    return run


def change_of(rnd, value):
    """Return a function that changes a value."""
    if isinstance(value, list):
        return value.clear
    if isinstance(value, memoryview):
        return value.release
    if not isinstance(value, np.ndarray):
        return nothing
    changes = [lambda: value.setflags(write=False), lambda: value.fill(0)]
    if value.flags.c_contiguous and value.flags.owndata:
        changes += 4 * [shrink(value)]
        changes += [lambda: setattr(value, "dtype", rnd.choice(["i4", "u1", "S4"]))]
        changes += [lambda: setattr(value, "shape", (value.size,))]

    def run():
        with suppress(ValueError, TypeError, AttributeError):  # it may be impossible
            rnd.choice(changes)()

    return run


def changing(rnd, good, other):
    """Return an object in the place of a good value, which changes another value."""
    run = change_of(rnd, other)
    if isinstance(good, float):
        return Number(good, run)
    if isinstance(good, int):
        return Index(good, run)
    if not isinstance(good, np.ndarray):
        return good
    if rnd.random() < 0.2:
        return Moody(good, rnd.choice([good * 2, good[..., :1], good.astype("O")]))
    return rnd.choice([Array, Interface, DLPack])(good, run)


# ---- anything ------------------------------------------------------------------------


class Refuses:
    """An object all of whose methods raise errors."""

    def __array__(self, dtype=None, copy=None):
        raise ValueError("hostile array")

    def __index__(self):
        raise KeyError("hostile index")

    def __float__(self):
        raise OSError("hostile float")

    def __bool__(self):
        raise RuntimeError("hostile bool")

    def __len__(self):
        return 2**62

    def __getitem__(self, at):
        raise LookupError("hostile item")

    def __eq__(self, other):
        raise ArithmeticError("hostile eq")

    def __repr__(self):
        raise RuntimeError("hostile repr")

    __hash__ = object.__hash__


class Elsewhere:
    """An array interface whose strides lead out of its memory."""

    @property
    def __array_interface__(self):
        data = np.zeros(4)
        return {"shape": (2, 2), "typestr": "<f8", "version": 3, "data": data,
                "strides": (64, 32)}  # fmt: skip


class Equal(str):
    """A name that equals every other one."""

    __slots__ = ()

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def odd_objects() -> list[Any]:
    """Return objects that are no arrays."""
    return [
        None, True, False, -1, 0, 1, 2, 0.5, -0.5, 1.0, 1e308, 1e-320, float("nan"),
        float("inf"), "", "clip", "zero", "raise", Equal("query"), b"x", (), [], [1],
        (1, 2), (None, None), (0, None), (2**70, 1), ((0, 1), 2), {}, set(), range(3),
        object, object(), Refuses(), Elsewhere(), np.float32(1), np.int64(3),
        np.bool_(True), np.datetime64("now"), decimal.Decimal(1),
        fractions.Fraction(1, 2), 1j, nothing, iter([1]), memoryview(bytes(8)),
        bytearray(8), ..., NotImplemented, np, *FAR, *(-far for far in FAR),
    ]  # fmt: skip


def odd_array(rnd, rng):
    """Return an array of any shape, dtype, layout and numbers."""
    x = rng.standard_normal(rnd.choice(SHAPES))
    x = np.asarray(x, rnd.choice([np.float16, np.float32, np.float64]))
    ways = [
        lambda: np.nan_to_num(x).astype(rnd.choice(DTYPES)),
        lambda: rnd.choice([*LAYOUTS.values()])(x),
        lambda: read_only(x),
        lambda: np.broadcast_to(x, (3, *x.shape)) if x.ndim < 30 else x,
        lambda: np.broadcast_to(np.float32(1), (2 ** rnd.randrange(30, 45), 1, 4)),
        lambda: x.view(Subclass),
        lambda: np.ma.array(x),
        lambda: np.zeros(x.shape, [("a", "f4"), ("b", "f4")])["b"],
        lambda: np.full(x.shape, rnd.choice([2**63 - 1, -(2**63), -1, 0, 3])),
        lambda: np.full(x.shape, rnd.choice([np.nan, np.inf, -np.inf, 1e38, 1e-45])),
        lambda: np.lib.stride_tricks.as_strided(x, (0, 2, 5, 4), (2**60, 2**59, 1, 3)),
        lambda: x,
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        try:
            return rnd.choice(ways)()
        except (TypeError, ValueError, IndexError):  # not of such an array
            return x


def odd(rnd, rng):
    """Return an object of any kind."""
    if rnd.random() < 0.5:
        return rnd.choice(odd_objects())
    return odd_array(rnd, rng)
