"""Encodings and skewing against their usual NumPy forms; rotary against a copy.

Each row is the time of the NumPy expression over the time of relpos, one thread each,
both within one repeat. The sinusoids have a goal for the form with float64 phases
(float32 phases are off by 4e-4 at position 4096).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import relpos
from benchmarks import timing
from benchmarks.timing import BEST_ISA, ISAS, Array, Plan, Row, Rows
from relpos import reference


def numpy_sinusoidal(length: int, dim: int, phase_dtype: str) -> Array:
    """Interleave sines and cosines; most programs compute the phases in float64."""
    position = np.arange(length, dtype=phase_dtype)[:, np.newaxis]
    frequency = np.exp(np.arange(0, dim, 2, dtype=phase_dtype) * (-np.log(1e4) / dim))
    phase = position * frequency.astype(phase_dtype)
    table = np.empty((length, dim), np.float32)
    table[:, 0::2] = np.sin(phase)
    table[:, 1::2] = np.cos(phase)
    return table


def numpy_skew(x: Array) -> Array:
    """Pad a column on the left, reshape, drop the first row."""
    *batch, queries, keys = x.shape
    padded = np.pad(x, [(0, 0)] * len(batch) + [(0, 0), (1, 0)])
    shifted = padded.reshape(*batch, keys + 1, queries)[..., 1:, :]
    return shifted.reshape(x.shape)


def numpy_skew_both(x: Array) -> Array:
    """Skew both directions: 2 L - 1 columns, of which L are kept."""
    *batch, queries, rows = x.shape
    padded = np.pad(x, [(0, 0)] * len(batch) + [(0, 0), (0, 1)])
    flat = padded.reshape(*batch, -1)[..., : queries * rows]
    shifted = flat.reshape(*batch, queries, rows)[..., queries - 1 :]
    return np.ascontiguousarray(shifted)


def ratio_row(
    label: str,
    ours: Callable[[], Array],
    usual: Callable[[], Array],
    *,
    expected: Callable[[], Array] | None = None,
    target: float | None = None,
    repeats: int,
) -> Row:
    """Measure the time of the usual expression over that of relpos."""
    error = timing.check_error(ours(), (expected or usual)(), label)
    yardstick = timing.fma_yardstick(BEST_ISA, "float32")
    timed = timing.interleave([usual, ours], yardstick, repeats)
    return Row.of_ratios(label, "x faster", timed, error, target=target)


def make_plan(isas: list[str], full: bool) -> Plan:
    rng = np.random.default_rng(0)
    length, dim = (4096, 512) if full else (1024, 256)
    scores = rng.standard_normal((4, length // 4, length // 4)).astype(np.float32)
    both = rng.standard_normal((4, length // 4, length // 2 - 1)).astype(np.float32)
    table = rng.standard_normal((length, dim)).astype(np.float32)
    positions = rng.integers(length, size=4 * length)
    rows = Rows(full)

    def add(label: str, *works: Callable[[], Array], **options: Any) -> None:
        rows.add(label, ratio_row, *works, **options)

    sinusoidal = partial(relpos.sinusoidal, length, dim)
    true_table = partial(reference.sinusoidal, length, dim)
    for phase_dtype, target in {"float64": 3.0, "float32": None}.items():
        usual = partial(numpy_sinusoidal, length, dim, phase_dtype)
        label = f"sinusoidal {length} x {dim}, phases in {phase_dtype}"
        add(label, sinusoidal, usual, expected=true_table, target=target)
    skewing: dict[str, tuple[Callable[..., Array], Callable[..., Array], Array]] = {
        "skew causal": (partial(relpos.skew, is_causal=True), numpy_skew, scores),
        "skew both": (partial(relpos.skew, is_causal=False), numpy_skew_both, both),
        "rel_shift": (relpos.rel_shift, numpy_skew, scores),
    }
    for name, (ours, usual, x) in skewing.items():
        label = f"{name} {' x '.join(map(str, x.shape))}"
        add(label, partial(ours, x), partial(usual, x))
    add(
        f"learned {positions.size} of {length} x {dim}",
        partial(relpos.learned, table, positions),
        partial(np.take, table, positions, axis=0),
        target=1.0,
    )
    return rows


# ---- rotary -------------------------------------------------------------------------

OF_COPYING = 0.8


def numpy_rotary(x: Array, cosine: Array, sine: Array) -> Array:
    """Rotate by the expression that most programs have, in the dtype of x."""
    a, b = np.split(x, 2, axis=-1)
    rotated: Array = x * cosine + np.concatenate([-b, a], axis=-1) * sine
    return rotated


def check(x: Array, rotated: Array, interleaved: bool, label: str) -> float:
    """Return the error of one item in eight, which has the angles of all others."""
    few = (slice(None, None, 8),) * (x.ndim - 2)
    expected = reference.apply_rotary(x[few], interleaved=interleaved)
    return timing.check_error(rotated[few], expected, label)


def copy_row(
    label: str,
    x: Array,
    isa: str,
    interleaved: bool,
    in_place: bool,
    target: float | None,
    repeats: int,
) -> Row:
    """Measure the time of a copy over that of the rotation.

    Both read and write every element once: this is the share of the bandwidth.
    """
    out = np.empty_like(x)

    def rotate(source: Array, target: Array) -> None:
        with timing.use_isa(isa):
            relpos.apply_rotary(source, interleaved=interleaved, out=target)

    source = x.copy() if in_place else x
    ours = partial(rotate, source, source if in_place else out)
    ours()
    error = check(x, source if in_place else out, interleaved, label)
    copied = np.empty_like(x)
    copy = partial(np.copyto, copied, x)
    timed = timing.interleave([copy, ours], timing.read_yardstick([x]), repeats)
    return Row.of_ratios(label, "of copying", timed, error, target=target)


def numpy_row(label: str, x: Array, repeats: int) -> Row:
    """Measure the time of the usual expression, sines made before, over relpos's."""
    table = relpos.sinusoidal(x.shape[-2], x.shape[-1], layout="concat")
    sine, cosine = (np.tile(part, 2) for part in np.split(table, 2, axis=-1))
    out = np.empty_like(x)
    ours = partial(relpos.apply_rotary, x, out=out)
    error = check(x, ours(), False, label)
    usual = partial(numpy_rotary, x, cosine, sine)
    timed = timing.interleave([usual, ours], timing.read_yardstick([x]), repeats)
    return Row.of_ratios(label, "x faster", timed, error)


def make_rotary_plan(isas: list[str], full: bool) -> Plan:
    rows, rng = Rows(full), np.random.default_rng(0)
    shape = (8, 16, 2048, 64) if full else (2, 8, 1024, 64)
    x = rng.standard_normal(shape, dtype=np.float32)
    for isa in reversed(ISAS):
        target = OF_COPYING if full and isa == BEST_ISA else None
        for interleaved in (False, True):
            pairs = "interleaved" if interleaved else "halves"
            for in_place in (False, True):
                label = f"{isa} {pairs}{', in place' if in_place else ''}"
                rows.add(label, copy_row, x, isa, interleaved, in_place, target)
    rows.add(f"NumPy, {' x '.join(map(str, shape))}", numpy_row, x)
    return rows
