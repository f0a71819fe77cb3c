"""Speed of rotary encodings against copying the same array.

Each row is the time of `numpy.copyto` over the time of relpos.apply_rotary, one thread
each, both within one repeat: both read and write every element once, so this is the
share of the copy's bandwidth. A last row has the usual NumPy expression, with sines and
cosines made before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import relpos
from relpos import _core, reference
from relpos._bench import harness
from relpos._bench.harness import Array
from relpos._bench.table import Plan, Row
from relpos._settings import use_isa

TARGET = 0.8


def numpy_rotary(x: Array, cosine: Array, sine: Array) -> Array:
    """The expression that most programs have, in the dtype of x."""
    a, b = np.split(x, 2, axis=-1)
    turned: Array = x * cosine + np.concatenate([-b, a], axis=-1) * sine
    return turned


def check(x: Array, turned: Array, interleaved: bool, label: str) -> float:
    """Compare one item in eight, which shares its angles with all others."""
    few = (slice(None, None, 8),) * (x.ndim - 2)
    expected = reference.apply_rotary(x[few], interleaved=interleaved)
    return harness.check_error(turned[few], expected, label)


def copy_row(
    label: str,
    x: Array,
    isa: str,
    *,
    interleaved: bool,
    in_place: bool,
    repeats: int,
    target: float | None,
) -> Row:
    out = np.empty_like(x)

    def turn(source: Array, target: Array) -> None:
        with use_isa(isa):
            relpos.apply_rotary(source, interleaved=interleaved, out=target)

    source = x.copy() if in_place else x
    ours = partial(turn, source, source if in_place else out)
    ours()
    error = check(x, source if in_place else out, interleaved, label)
    copied = np.empty_like(x)
    copy = partial(np.copyto, copied, x)
    yardstick = harness.read_yardstick([x])
    timing = harness.interleave([copy, ours], yardstick, repeats)
    return Row(
        label,
        "of copying",
        timing.ratios(),
        timing.tried,
        target,
        seconds=timing.seconds(),
        error=error,
    )


def numpy_row(label: str, x: Array, repeats: int) -> Row:
    table = relpos.sinusoidal(x.shape[-2], x.shape[-1], layout="concat")
    sine, cosine = (np.tile(part, 2) for part in np.split(table, 2, axis=-1))
    out = np.empty_like(x)
    ours = partial(relpos.apply_rotary, x, out=out)
    error = check(x, ours(), False, label)
    usual = partial(numpy_rotary, x, cosine, sine)
    timing = harness.interleave([usual, ours], harness.read_yardstick([x]), repeats)
    return Row(
        label,
        "x faster",
        timing.ratios(),
        timing.tried,
        seconds=timing.seconds(),
        error=error,
    )


def make_plan(isas: list[str], full: bool) -> Plan:
    rng = np.random.default_rng(0)
    repeats = 15 if full else 5
    shape = (8, 16, 2048, 64) if full else (2, 8, 1024, 64)
    x = rng.standard_normal(shape, dtype=np.float32)
    size = " x ".join(map(str, shape))
    plan: Plan = []

    def add(label: str, measure: Callable[..., Row], **options: object) -> None:
        plan.append((label, partial(measure, label, **options)))

    for isa in reversed(_core.by_isa):
        for interleaved in (False, True):
            pairs = "interleaved" if interleaved else "halves"
            for in_place in (False, True):
                add(
                    f"{isa} {pairs}{', in place' if in_place else ''}",
                    copy_row,
                    x=x,
                    isa=isa,
                    interleaved=interleaved,
                    in_place=in_place,
                    repeats=repeats,
                    target=TARGET if full and isa == _core.isa else None,
                )
    add(f"NumPy, {size}", numpy_row, x=x, repeats=repeats)
    return plan
