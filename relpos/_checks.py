"""Checks of single arguments, one function a kind.

Every message names the argument, what was given and what was expected. TypeError is for
kinds, ValueError for values and shapes, IndexError for positions outside a table.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from relpos._core import bfloat16, broadcast_to
from relpos._foreign import module_of, refusal, view_on_cpu
from relpos._hints import meant, misfit
from relpos._text import amount
from relpos._words import UnreadTensor, WrongKind, kind_error

if TYPE_CHECKING:  # numpy.typing would double the time of `import relpos`
    from numpy.typing import ArrayLike as ArrayLike, DTypeLike as DTypeLike, NDArray

    Array = NDArray[Any]
else:
    Array, ArrayLike, DTypeLike = np.ndarray, Any, Any

P = ParamSpec("P")
R = TypeVar("R")

#: Positions stay below this, so that sums of three of them never overflow in C.
POSITION_LIMIT = 2**60

# Enough for any view of a few axes; the exact answer can take exponential time.
_OVERLAP_WORK: Any = 10_000
_INT64 = np.iinfo(np.int64)
_MOST_BYTES = int(_INT64.max)
_COMPUTED = {np.dtype(np.float32), np.dtype(np.float64)}
_SINGLE = np.dtype(np.float32)

#: Types of most arguments; NumPy drops nothing of their meaning.
_PLAIN = {np.ndarray, int, float, bool, str, list, tuple, np.int64, np.float64}


def quiet(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function silent: its results are those of IEEE 754, without warnings.

    np.errstate as a decorator would be one object for all threads before NumPy 2.
    """

    @functools.wraps(function)
    def silent(*args: P.args, **keywords: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return function(*args, **keywords)

    return silent


def hinted(function: Callable[P, R], owner: type[Any] | None = None) -> Callable[P, R]:
    """Let the TypeError of a call that does not fit say which argument was meant.

    `owner` is the class of a method, whose constructor may have the argument.
    """

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            # A TypeError may also come from within a call that fits: it stays as it is.
            reason = misfit(function, owner, args, keywords)
            if reason is not None:
                error.args = (reason,)
            raise

    return call


def check_keywords(
    called: str, keywords: Iterable[str], known: Collection[str]
) -> None:
    """Raise unless `called` has all these keywords, as `hinted` does."""
    for name in keywords:
        if name not in known:
            hint = meant(name, [*known], called)
            raise TypeError(
                f"{name}: got an unexpected keyword argument {name!r}; {hint}"
            )


def kind_of(value: object) -> str:
    """Describe an argument: by its dtype if it is an array, by its class otherwise."""
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype}"
    return type(value).__name__


def reject_foreign(name: str, value: object) -> None:
    """Refuse arrays whose meaning `np.asarray` would silently drop."""
    if type(value) in _PLAIN:  # in a tenth of the time
        return
    # By name, because no call loads a module: that of torch would take seconds.
    package = module_of(value, "numpy.ma", "torch")
    if package == "numpy.ma":
        raise TypeError(
            f"{name}: got a MaskedArray; expected a plain array (its mask would be "
            "dropped: fill it, and hide keys with attn_mask or key_lengths)"
        )
    if package == "torch":
        raise kind_error(UnreadTensor(name, type(value).__name__))
    reason = refusal(value)
    if reason is not None:
        raise TypeError(f"{name}: {reason}")


def as_array(name: str, value: object) -> Array:
    """Return `value` as a plain array, without a copy where it already is one."""
    if type(value) is np.ndarray:
        return value
    reject_foreign(name, value)
    try:
        return np.asarray(view_on_cpu(name, value))
    except RuntimeError as error:  # JAX's, of an array that was given away
        raise ValueError(
            f"{name}: got {kind_of(value)} that cannot be read ({error}); expected a "
            "NumPy array"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{name}: got {kind_of(value)} that is not a rectangular array ({error}); "
            "expected equal lengths along every axis"
        ) from None


def as_floating(name: str, value: object) -> Array:
    """Return `value` as an array of float16, bfloat16, float32 or float64."""
    array = value if type(value) is np.ndarray else as_array(name, value)
    dtype = array.dtype
    if dtype.char not in "efd" and not is_floating(dtype):  # most take the first test
        hint = " (convert it with {})" if array.dtype.kind in "iub" else ""
        expected = "float16", "float32", "float64"
        raise wrong_items(name, value, array, expected, hint, "float32")
    return array


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return True for floating dtypes; bfloat16, of ml_dtypes, is known by name.

    The core's own is that of tensors, which NumPy has no name for.
    """
    return dtype.char in "efd" or dtype.name == "bfloat16" or dtype == bfloat16


def coarse_positions(name: str) -> TypeError:
    """Return the error of positions of bfloat16."""
    return kind_error(
        WrongKind(
            name,
            "dtype bfloat16",
            bfloat16,
            "integers, float32 or float64",
            reason=", which rounds integers beyond 256",
        )
    )


def widened(array: Array) -> Array:
    """Return floating numbers as the C core knows them: bfloat16 as float32."""
    if array.dtype == bfloat16:
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array if array.dtype.char in "efd" else array.astype(np.float32)


def singles(array: Array) -> Array:
    """Return numbers of 16 bits as float32, and others as they are."""
    is_short = array.itemsize == 2 and is_floating(array.dtype)
    return native(array, _SINGLE) if is_short else array


def common_dtype(*operands: Array | np.dtype[Any]) -> np.dtype[Any]:
    """Return NumPy's `result_type`; that of bfloat16 and float16 is float32."""
    try:
        return np.result_type(*operands)
    except TypeError:
        # NumPy promotes nothing with bfloat16. All its numbers are float32.
        dtypes = [x.dtype if isinstance(x, np.ndarray) else x for x in operands]
        known = [x for x in dtypes if x.char in "efd"]
        return np.result_type(np.float32, *known)


def as_float_dtype(dtype: DTypeLike, *, is_stored: bool = False) -> np.dtype[Any]:
    """Return the dtype of a result, float32 or float64, or of 16 bits if stored."""
    expected = "expected float32 or float64"
    if is_stored:
        expected = "expected bfloat16, float16, float32 or float64"
    if is_stored and isinstance(dtype, str) and dtype == "bfloat16":
        return bfloat16  # whose name NumPy has from ml_dtypes alone
    if dtype is None:  # of which NumPy makes float64
        raise TypeError(f"dtype: got None; {expected}")
    try:
        result = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        got = repr(dtype) if isinstance(dtype, str) else kind_of(dtype)
        raise TypeError(f"dtype: got {got}; {expected}") from None
    is_short = is_stored and result.itemsize == 2 and result.isnative
    if result not in _COMPUTED and not (is_short and is_floating(result)):
        raise TypeError(f"dtype: got {result}; {expected}")
    return result


def as_integers(name: str, value: object) -> Array:
    """Return a private int64 copy of `value`, whatever its integer dtype."""
    array = integers_of(name, value)
    check_bytes(name, array.shape, np.dtype(np.int64))
    return np.array(array, dtype=np.int64, order="C")


def integers_of(name: str, value: object) -> Array:
    """Return a view of `value`, whose shape stays, as integers that fit int64."""
    array = as_array(name, value)
    if array.dtype.kind == "i":  # most are
        return array[...]
    memory = stored(array)
    # NumPy makes objects of ints that do not fit its integers: name the largest.
    items = memory.ravel() if array.dtype.kind == "O" else None
    if items is not None and all(type(item) is int for item in items):
        large = max(map(int, items), key=abs, default=0)
        if not _INT64.min <= large <= _INT64.max:
            raise ValueError(
                f"{name}: got {short(large)}, which does not fit int64; expected "
                "smaller integers"
            )
    if array.dtype.kind != "u":
        raise wrong_items(name, value, array, "integers")
    if array.size and int(memory.max()) > _INT64.max:
        raise ValueError(
            f"{name}: got {memory.max()}, which does not fit int64; expected smaller "
            "integers"
        )
    return array[...]


def wrong_items(
    name: str,
    value: object,
    array: Array,
    expected: str | tuple[str, ...],
    hint: str = "",
    cast: str = "",
) -> TypeError:
    """Return the error of the dtype of what was read from a value.

    A single number is called by its kind.
    """
    if array.ndim:
        return wrong_dtype(name, array, expected, hint, cast)
    return wrong_kind(name, value, expected, hint, cast)


def wrong_dtype(
    name: str,
    array: Array,
    expected: str | tuple[str, ...],
    hint: str = "",
    cast: str = "",
) -> TypeError:
    """Return the error of an array of another dtype."""
    got = f"dtype {array.dtype}"
    return kind_error(WrongKind(name, got, array.dtype, expected, hint=hint, cast=cast))


def wrong_kind(
    name: str,
    value: object,
    expected: str | tuple[str, ...],
    hint: str = "",
    cast: str = "",
) -> TypeError:
    """Return the error of a value of another kind."""
    dtype = value.dtype if isinstance(value, np.ndarray) else None
    return kind_error(
        WrongKind(name, kind_of(value), dtype, expected, hint=hint, cast=cast)
    )


def as_int(
    name: str, value: object, low: int | None = None, high: int | None = None
) -> int:
    """Return `value` as an int in [low, high]; booleans and floats are not ints."""
    number = value if type(value) is int else _index_of(name, value)
    if (low is not None and number < low) or (high is not None and number > high):
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name}: got {short(number)}; expected an integer {bounds}")
    return number


def _index_of(name: str, value: object) -> int:
    reject_foreign(name, value)
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: got {value!r}; expected an integer")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise wrong_kind(name, value, "an integer") from None


def as_ints(name: str, value: object, low: int, high: int) -> list[int]:
    """Return a sequence of integers, or a single one, as a list; text is none."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        raise wrong_kind(name, value, "an integer or a sequence of them")
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    items = value if isinstance(value, Sequence) else [value]
    return [as_int(name, item, low, high) for item in items]


def short(number: int) -> str:
    """Return an int as text; one of more than 40 digits by its size only."""
    if abs(number) < 10**40:
        return str(number)
    return f"an integer of {number.bit_length()} bits"


def as_real(name: str, value: object) -> float:
    """Return `value` as a finite float."""
    reject_foreign(name, value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    # A timedelta64 counts as an integer in NumPy's class tree.
    not_real = (bool, np.bool_, np.timedelta64)
    if isinstance(value, not_real) or not isinstance(value, Real):
        raise wrong_kind(name, value, "a real number")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name}: got a number too large for float64") from None
    if not math.isfinite(number):
        raise ValueError(f"{name}: got {number}; expected a finite number")
    return number


def as_positive(name: str, value: object) -> float:
    number = as_real(name, value)
    if number <= 0:
        raise ValueError(f"{name}: got {number}; expected a positive number")
    return number


def as_flag(name: str, value: object) -> bool:
    """Return a bool; numbers and arrays are not flags."""
    if value is True or value is False:
        return value
    if not isinstance(value, np.bool_):
        raise wrong_kind(name, value, "True or False")
    return bool(value)


def as_generator(rng: object) -> np.random.Generator:
    """Return a Generator: `rng` itself, or a new one of an int seed or of None.

    Nothing else is passed to `default_rng`: some arguments end the process, such as a
    `numpy.matrix`.
    """
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool):
        rng = as_int("rng", rng, 0)
    elif rng is not None and not isinstance(rng, np.random.Generator):
        hint = " (numpy.random.default_rng makes a Generator of other seeds)"
        raise wrong_kind("rng", rng, "an int, a Generator or None", hint)
    return np.random.default_rng(rng)


def as_choice(name: str, value: object, choices: Collection[str]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    known = ", ".join(repr(choice) for choice in choices)
    if not isinstance(value, str):
        raise wrong_kind(name, value, f"one of {known}")
    raise ValueError(f"{name}: got {value!r}; expected one of {known}")


def at_least_ndim(name: str, array: Any, ndim: int, expected: str) -> None:
    if array.ndim < ndim:
        # As a tuple, since a tensor's shape would be printed as torch.Size.
        raise ValueError(
            f"{name}: shape {(*array.shape,)} has {amount(array.ndim, 'axis')}; "
            f"expected {expected}"
        )


def check_shape(name: str, array: Any, fits: object, expected: object) -> None:
    if not fits:
        raise ValueError(f"{name}: got shape {(*array.shape,)}; expected {expected}")


def check_match(name: str, array: Array, owner: str, shape: tuple[int, ...]) -> None:
    """Raise unless an array has the shape of what `owner` names."""
    if array.shape != shape:
        raise ValueError(
            f"{name}: shape {array.shape} does not match {owner}'s; expected {shape}"
        )


def native(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return `array` aligned, in native byte order and of `dtype`.

    It is copied only where it must be, and a broadcast view stays one.
    """
    if array.dtype == dtype and array.dtype.isnative and array.flags.aligned:
        return array
    with np.errstate(all="ignore"):  # as `quiet`, where anything is computed
        # Repeated axes are cut first, so that a mask of one row, broadcast to many, is
        # converted once and not written out.
        memory = stored(array)
        if array.dtype == bfloat16 and dtype != bfloat16:  # NumPy does not convert it
            memory = widened(memory)
        return broadcast_to(memory.astype(dtype), array.shape)


def rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return `array` in a native `dtype`, C-ordered; too large numbers become inf.

    NumPy rounds none to the bfloat16 of tensors, of which torch knows.
    """
    if dtype == bfloat16 or (array.dtype == dtype and array.flags.c_contiguous):
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype, order="C")


def like(array: Array, original: Array) -> Array:
    """Return `array` in the native dtype of another one."""
    return rounded(array, original.dtype.newbyteorder("="))


def rounded_twice(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return what `rounded` does; on the way to 16 bits numbers are float32.

    So a gradient is the rounded one of inputs in float32.
    """
    if dtype.itemsize == 2:
        array = rounded(array, _SINGLE)
    return rounded(array, dtype)


def stored(array: Array) -> Array:
    """Return the memory of a broadcast view: its repeated axes cut to length 1."""
    cuts = (
        slice(0, 1) if stride == 0 and size else slice(None)
        for stride, size in zip(array.strides, array.shape, strict=True)
    )
    return array[(*cuts, ...)]


def check_bytes(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse a shape of more bytes than NumPy can address, even of an empty array."""
    count = math.prod(shape)
    if not count:  # NumPy multiplies the other lengths of an empty array as well
        count = math.prod(size for size in shape if size)
    if count * dtype.itemsize > _MOST_BYTES:
        raise ValueError(
            f"{name}: shape {shape} has more bytes than memory can address"
        )


def new_array(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    make: Callable[[tuple[int, ...], np.dtype[Any]], Array] = np.empty,
) -> Array:
    """Make an array, and refuse a shape as `check_bytes` does."""
    try:
        return make(shape, dtype)
    except ValueError:  # NumPy counts bytes as well
        check_bytes(name, shape, dtype)
        raise


def check_memory(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse as `check_bytes` does, and raise MemoryError before the work begins."""
    check_bytes(name, shape, dtype)
    np.empty(shape, dtype)


def check_out(
    out: object, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: dict[str, Array]
) -> Array:
    """Check that a caller's `out` can be written to and shares memory with no input."""
    reject_foreign("out", out)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: got {kind_of(out)}; expected a NumPy array")
    if out.dtype != dtype or not out.dtype.isnative:
        raise TypeError(f"out: got dtype {out.dtype}; expected {dtype}")
    if out.shape != shape:
        raise ValueError(f"out: got shape {out.shape}; expected {shape}")
    if not out.flags.writeable:
        raise ValueError("out: the array is read-only; expected a writable one")
    if _overlaps_itself(out):
        raise ValueError(
            "out: several of its items share memory (a broadcast or overlapping view); "
            "expected items of their own"
        )
    for name, array in inputs.items():
        if shares_memory(out, array):
            raise ValueError(
                f"out: overlaps {name} in memory; expected memory of its own "
                "(pass a new array, or a copy of the input)"
            )
    return out


def shares_memory(a: Array, b: Array) -> bool:
    """Return True for arrays that share a byte, or if finding out takes too long."""
    try:
        return bool(np.shares_memory(a, b, max_work=_OVERLAP_WORK))
    except RuntimeError:  # TooHardError, whose home moved between NumPy versions
        return True


def lies_among(array: Array, others: Iterable[Array]) -> bool:
    """Return True if the memory of an array begins before that of another one ends.

    The kernels do not write to such an array, though none of its items may be shared.
    """
    return any(np.may_share_memory(array, other) for other in others)


def _overlaps_itself(array: Array) -> bool:
    """Return True where an axis has a smaller stride than the extent of finer ones."""
    if not array.size:
        return False
    axes = [
        (abs(stride), size)
        for stride, size in zip(array.strides, array.shape, strict=True)
        if size > 1
    ]
    # From the finest axis to the coarsest: what the finer ones cover has to end before
    # the next step.
    extent = array.itemsize
    for stride, size in sorted(axes):
        if stride < extent:
            return True
        extent += stride * (size - 1)
    return False
