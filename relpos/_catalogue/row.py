"""Rows of the tables of schemes: inputs, gradients, limits and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from relpos import reference
from relpos._schemes import scheme_called

Array = npt.NDArray[Any]
Inputs = dict[str, Any]
Named = Mapping[str, Array]  # gradients by the names of the inputs
Limits = dict[Any, float]

CLIP = 16  # Shaw's k of the base model
#: Operands with something for each head, or each head and token.
NO_TABLES = {"sinks", "log_decay", "position_query"}

SMALL = {"heads": 2, "length": 256, "dim": 64}  # errors: the reference is L x L x d
GRADIENT_SIZE = {"heads": 2, "length": 128, "dim": 64}  # its gradients take longer
TINY = {"heads": 2, "length": 6, "dim": 4}  # differences: four calls for each number
LARGE = {"heads": 2, "length": 2048, "dim": 64}  # time and memory
PAIRS = {"heads": 1, "length": 512, "dim": 64}  # the L x L x d form

# Errors relative to the norm of the result. Attention: a few roundings of sums over 256
# keys, in either precision. Encodings: one rounding to the dtype; in float64 the phase
# (up to 255) has one of its own in the reference. Looking up rows rounds nothing.
ATTENTION: Limits = {np.float32: 1e-6, np.float64: 1e-14}
ROUNDING: Limits = {np.float32: 2.0**-24, np.float64: 1e-14}
EXACT: Limits = {np.float32: 0.0, np.float64: 0.0}
# Gradients sum more often than outputs. Differences of five points are good to 1e-11.
GRADIENT: Limits = {np.float32: 2e-6, np.float64: 1e-14}
DIFFERENCES: Limits = {np.float32: 2e-6, np.float64: 1e-10}
STEP = 2e-3  # between these points


@dataclass(frozen=True)
class Gradients:
    """Gradients of sum(grad_out * out): (grad_out, **inputs) to {name: gradient}.

    `relpos` goes forward and back; `reference` gives the same keys in float64.
    """

    relpos: Callable[..., Named]
    reference: Callable[..., Named]
    limits: Limits = field(default_factory=lambda: GRADIENT)
    size: dict[str, int] = field(default_factory=lambda: GRADIENT_SIZE)


@dataclass(frozen=True)
class Row:
    """A scheme: its inputs, relpos's function, the NumPy form, the definition.

    `scheme` is its name in `_schemes.SCHEMES`, `name` what tables call this form of it.
    `inputs(dtype, heads, length, dim)` makes the keyword arguments of the three
    functions, each of which returns an array. `gradients` is None where nothing is
    differentiable, `numpy` where nobody writes the scheme in NumPy.
    """

    scheme: str
    name: str
    inputs: Callable[..., Inputs]
    relpos: Callable[..., Any]
    numpy: Callable[..., Any] | None
    reference: Callable[..., Any]
    limits: Limits = field(default_factory=lambda: ATTENTION)
    gradients: Gradients | None = None


# ---- inputs --------------------------------------------------------------------------


def draw(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Return standard normal numbers."""
    return rng.standard_normal(shape).astype(dtype)


def heads_of(
    *tables: str, rows: Callable[[int], int] = lambda length: 0
) -> Callable[..., Inputs]:
    """Return a maker of tokens (H, L, D) and tables of rows(L) rows for all heads."""

    def inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
        rng = np.random.default_rng(length)
        names = ("query", "key", "value")
        made = {name: draw(rng, dtype, heads, length, dim) for name in names}
        for name in tables:
            shape: tuple[int, ...] = (rows(length), dim)
            if name.startswith("pos_bias"):
                shape = (dim,)
            elif name == "rel_bias":
                shape = (heads, rows(length))
            made[name] = draw(rng, dtype, *shape)
        return made

    return inputs


def arguments_of(scheme: str, is_causal: bool = False) -> Callable[..., Inputs]:
    """Return a maker of tokens and the operands of a scheme that is one call."""
    known = scheme_called(scheme)
    own = {*NO_TABLES, *(["rel_key"] if known.own_width else [])}
    tables = [name for name in known.operands if name not in own]
    of_tables = heads_of(*tables, rows=lambda n: known.rows(n, n, CLIP, is_causal))

    def inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
        made = of_tables(dtype, heads, length, dim)
        rng = np.random.default_rng(dim)
        shapes = known.shapes(heads, length, length, dim, CLIP, is_causal)
        for name in sorted(own & shapes.keys()):
            made[name] = draw(rng, dtype, *shapes[name])
        return made

    return inputs


def encoding_of(count: str = "length", **options: Any) -> Callable[..., Inputs]:
    """Return a maker of the sizes of an encoding: positions, and a model's width."""

    def inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
        return {count: length, "dim": heads * dim, "dtype": dtype, **options}

    return inputs


def rows_of(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Make a learned table and shuffled positions."""
    rng = np.random.default_rng(length)
    table = draw(rng, dtype, length, heads * dim)
    return {"table": table, "positions": rng.permutation(length)}


# ---- gradients -----------------------------------------------------------------------


def of_attention(
    function: Callable[..., Any],
    settings: Callable[[Inputs], dict[str, Any]] = lambda inputs: {},
) -> Gradients:
    """Return the gradients of one call, from its context and from the definitions.

    `settings` makes of the inputs the settings of `function` that attention has not.
    """

    def backward(grad_out: Array, **inputs: Any) -> Named:
        context = function(**inputs, return_context=True).context
        return present(context.backward(grad_out))

    def wanted(grad_out: Array, **inputs: Any) -> Named:
        return present(
            reference.attention_backward(grad_out, **inputs, **settings(inputs))
        )

    return Gradients(backward, wanted)


def present(gradients: Any) -> Named:
    """Return the gradients of a named tuple by name, without None."""
    return {name: x for name, x in gradients._asdict().items() if x is not None}


def by_differences(
    backward: Callable[..., Named], function: Callable[..., Any]
) -> Gradients:
    """Return gradients to compare with differences of the reference `function`.

    It is for schemes whose definition has no backward of its own.
    """

    def wanted(grad_out: Array, **inputs: Any) -> Named:
        names = backward(grad_out, **inputs)
        return {name: slopes(function, grad_out, inputs, name) for name in names}

    return Gradients(backward, wanted, DIFFERENCES, TINY)


def slopes(
    function: Callable[..., Any], grad_out: Array, inputs: Inputs, name: str
) -> Array:
    """Differentiate sum(grad_out * function(**inputs)) by five-point differences."""
    base = np.asarray(inputs[name], dtype=np.float64)
    gradient = np.zeros(base.shape)
    for index in np.ndindex(base.shape):
        total = 0.0
        for steps, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
            moved = base.copy()
            moved[index] += steps * STEP
            total += weight * float(
                np.sum(grad_out * function(**inputs | {name: moved}))
            )
        gradient[index] = total / (12 * STEP)
    return gradient


# ---- errors --------------------------------------------------------------------------


def relative_error(got: Array, wanted: Array) -> float:
    """Return the norm of the difference over the norm of what is wanted."""
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def errors(row: Row) -> dict[Any, float]:
    """Return the error over the norm of the definition's result, by dtype."""
    found = {}
    for dtype in row.limits:
        inputs = row.inputs(dtype, **SMALL)
        exact = {name: x for name, x in inputs.items() if name != "dtype"}
        found[dtype] = relative_error(row.relpos(**inputs), row.reference(**exact))
    return found


def gradient_errors(row: Row) -> dict[Any, float]:
    """Return the largest error of a gradient, by dtype; empty where there are none.

    The inputs are numbers of float32, so that one reference serves both dtypes.
    """
    if row.gradients is None:
        return {}
    inputs = row.inputs(np.float32, **row.gradients.size)
    out = row.relpos(**inputs)
    grad_out = draw(np.random.default_rng(1), np.float32, *out.shape)
    exact = cast(inputs, np.float64)
    wanted = row.gradients.reference(grad_out.astype(np.float64), **exact)
    found = {}
    for dtype in row.gradients.limits:
        got = row.gradients.relpos(grad_out.astype(dtype), **cast(inputs, dtype))
        if got.keys() != wanted.keys():
            found[dtype] = np.inf  # a gradient is missing
        else:
            gaps = [relative_error(got[name], wanted[name]) for name in wanted]
            found[dtype] = float(np.max(gaps))
    return found


def cast(inputs: Inputs, dtype: Any) -> Inputs:
    """Convert floating arrays to another dtype; return all else as it is."""
    return {
        name: x.astype(dtype) if getattr(x, "dtype", np.dtype(int)).kind == "f" else x
        for name, x in inputs.items()
    }
