"""The call backwards: gradients of a problem, from what its forward kept."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from relpos._attention import fire_network
from relpos._attention.operands import OPERANDS, TABLES
from relpos._attention.placement import fold_rows
from relpos._attention.problem import Problem, offsets_of
from relpos._attention.results import AttentionGradients, FireAttentionGradients
from relpos._checks import (
    Array,
    as_floating,
    check_bytes,
    is_floating,
    kind_of,
    native,
    quiet,
    rounded,
)
from relpos._core import broadcast_to
from relpos._memory import empty, zeros
from relpos._settings import choose_num_threads, kernels


class Saved(NamedTuple):
    """What the backward has of the forward, in the dtype of the computation.

    The maximum and the sum of each row's softmax are its lse in two parts, so that
    nothing of it is rounded away.
    """

    out: Array  # (..., H, Lq, Dv)
    row_max: Array  # (..., H, Lq, 1)
    row_sum: Array  # (..., H, Lq, 1)
    seed: int  # of dropout


def differentiate(
    problem: Problem,
    saved: Saved,
    grad_out: object,
    grad_lse: object,
    wrt: object,
    num_threads: object,
) -> Any:
    """Gradients of the inputs `wrt`, as the result's tuple of `AttentionContext`."""
    fire = problem.fire is not None  # as typed.pyi tells checkers
    kind: type[Any] = FireAttentionGradients if fire else AttentionGradients
    names = names_of(wrt, problem.inputs, kind._fields)
    given = check_gradients(problem, saved, grad_out, grad_lse)
    threads = choose_num_threads(num_threads)
    tables = [name for name in names if name not in fire_network.NAMES]
    sums = {name: _room(name, problem) for name in tables}
    fire_sums: Array | None = None
    bias: dict[str, Array] = {}
    if len(tables) < len(names):
        fire_sums, bias = _fire_operands(problem)
    if names:
        operands = {**problem.operands, **given, **bias, **saved._asdict()}
        operands["row_sum"] = _live_sums(saved.row_sum, given)
        operands |= {f"grad_{name}": view for name, (_, view) in sums.items()}
        kernels().attention_backward({**operands, "num_threads": threads})
    found = {name: _deliver(name, sums[name][0], problem) for name in tables}
    if fire_sums is not None:
        found |= _fire_gradients(problem, fire_sums, names)
    return kind(**found)


def check_gradients(
    problem: Problem, saved: Saved, grad_out: object, grad_lse: object
) -> dict[str, Array]:
    """Check the gradients that come in; absent ones drop out."""
    if grad_out is None and grad_lse is None:
        raise ValueError(
            "grad_out: None, and so is grad_lse; expected at least one of the two"
        )
    given, dtype = {}, problem.dtype
    if grad_out is not None:
        given["grad_out"] = _as_gradient_of(saved.out, "out", grad_out, dtype)
    if grad_lse is not None:
        rows = saved.row_max[..., 0]  # of the shape and dtype of lse
        lse = _as_gradient_of(rows, "lse", grad_lse, dtype)
        given["grad_lse"] = lse[..., None]
    return given


def _live_sums(row_sum: Array, given: dict[str, Array]) -> Array:
    """Return the sums of the rows' softmax, 0 where a row of nan gets no gradient.

    The kernels skip a row of sum 0; times a gradient of 0, nan would still be nan.
    """
    silent = np.isnan(row_sum)
    if not silent.any():
        return row_sum
    for gradient in given.values():
        silent &= ~gradient.any(-1, keepdims=True)
    return np.where(silent, 0, row_sum)


def names_of(
    wrt: object, inputs: dict[str, Array], fields: tuple[str, ...]
) -> list[str]:
    """Check `wrt`: the names of the gradients to compute, some of `fields`."""
    if wrt is None:
        floating = (n for n in fields if n in inputs)
        return [name for name in floating if name != "attn_mask"]
    nameless = isinstance(wrt, str) or (isinstance(wrt, np.ndarray) and not wrt.ndim)
    if nameless or not isinstance(wrt, Iterable):
        raise TypeError(
            f"wrt: got {kind_of(wrt)}; expected a list of names, such as ['query']"
        )
    names = list(wrt)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"wrt: got {kind_of(name)} among the names; expected strings"
            )
        if name not in fields:
            raise ValueError(
                f"wrt: {name!r} is no input with a gradient; expected some of "
                f"{', '.join(fields)}"
            )
        if name not in inputs:
            raise ValueError(
                f"wrt: {name!r} was not given to attention; expected some of "
                f"{', '.join(n for n in fields if n in inputs)}"
            )
        if not is_floating(inputs[name].dtype):
            raise ValueError(
                f"wrt: {name!r} is of dtype {inputs[name].dtype} and has no gradient; "
                "expected names of floating inputs"
            )
    return list(dict.fromkeys(names))


def _as_gradient_of(
    result: Array, name: str, value: object, dtype: np.dtype[Any]
) -> Array:
    """Check a gradient with respect to `result` and take it to the kernel's dtype."""
    gradient = as_floating(f"grad_{name}", value)
    if gradient.shape != result.shape:
        raise ValueError(
            f"grad_{name}: shape {gradient.shape} does not match {name}'s; expected "
            f"{result.shape}"
        )
    return native(gradient, dtype)


def _room(name: str, problem: Problem) -> tuple[Array, Array]:
    """Room for a gradient, and its view of the operand's shape; zeros to sum it in.

    Along an axis on which the view has stride 0 the kernel sums: over heads, and over
    all batch axes at once. What is shared by some batch axes only is summed later.
    """
    shape = problem.operands[name].shape
    stored = shape
    if OPERANDS[name].is_shared:
        own = _unbroadcast(name, problem)
        batch = own[:-3] if math.prod(own[:-3]) == 1 else shape[:-3]
        stored = (*batch, *own[-3:])
    check_bytes(f"gradient of {name}", stored, problem.dtype)
    written = OPERANDS[name].is_written and "indptr" not in problem.operands
    make = empty if written and problem.sizes.Lq and problem.sizes.Lk else zeros
    sums = make(stored, problem.dtype)
    return sums, sums if stored == shape else broadcast_to(sums, shape)


@quiet
def _fire_operands(problem: Problem) -> tuple[Array, dict[str, Array]]:
    """Zeros (H, S + 1, 2) for the kernel to sum FIRE's gradients in; its operands."""
    assert problem.fire is not None
    lines = problem.operands["fire_lines"]
    zeros = np.zeros((lines.shape[-3], lines.shape[-2] + 1, 2))
    shared = broadcast_to(zeros, (*problem.batch, *zeros.shape))
    slopes = fire_network.slope_operands(
        problem.fire, offsets_of(problem.inputs), problem.batch, problem.sizes
    )
    return zeros, slopes | {"grad_fire": shared}


@quiet
def _fire_gradients(
    problem: Problem, sums: Array, names: list[str]
) -> dict[str, Array]:
    """Those gradients of FIRE's parameters that were asked for."""
    assert problem.fire is not None
    found = fire_network.gradients(problem.fire, sums)
    return {name: found[name] for name in names if name in found}


def _unbroadcast(name: str, problem: Problem) -> tuple[int, ...]:
    """Shape of an operand before it was broadcast: 1 on the axes that are repeated."""
    full = problem.operands[name].shape
    own = OPERANDS[name].aligned(problem.inputs[name]).shape
    own = (*(1,) * (len(full) - len(own)), *own)
    if name in problem.placement.rows:  # the operand has other rows than the table
        own = (*own[:-2], *full[-2:])
    return own


def _deliver(name: str, total: Array, problem: Problem) -> Array:
    """Give a gradient the shape and dtype of its input."""
    given, gathered = problem.inputs[name], problem.placement.rows.get(name)
    if gathered is None and (total.size, total.dtype) == (given.size, given.dtype):
        return total.reshape(given.shape)  # the usual case
    return _summed(name, total, problem)


@quiet
def _summed(name: str, total: Array, problem: Problem) -> Array:
    """Sum a gradient over broadcast axes, and over what was gathered from one row."""
    given, gathered = problem.inputs[name], problem.placement.rows.get(name)
    own = _unbroadcast(name, problem)
    pairs = zip(own, total.shape, strict=True)
    repeated = tuple(axis for axis, (size, full) in enumerate(pairs) if size != full)
    if repeated:
        total = total.sum(axis=repeated, dtype=np.float64, keepdims=True)
    if gathered is not None:
        total = fold_rows(total, gathered, TABLES[name].rows(given))
    return rounded(total, given.dtype.newbyteorder("=")).reshape(given.shape)
