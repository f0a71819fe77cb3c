"""Speed of the encodings and of the skewing functions against their usual NumPy forms.

Each row is the time of the NumPy expression over the time of relpos, one thread each,
both within one repeat. The sinusoids have a target beside the form with float64 phases
(float32 phases are off by 4e-4 at position 4096).
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


def numpy_sinusoidal(length: int, dim: int, phase_dtype: str) -> Array:
    """Interleaved sines and cosines; most programs compute the phases in float64."""
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
    """Both directions: the same with 2 L - 1 columns, of which L are kept."""
    *batch, queries, rows = x.shape
    padded = np.pad(x, [(0, 0)] * len(batch) + [(0, 0), (0, 1)])
    flat = padded.reshape(*batch, -1)[..., : queries * rows]
    shifted = flat.reshape(*batch, queries, rows)[..., queries - 1 :]
    return np.ascontiguousarray(shifted)


def ratio_row(
    label: str,
    ours: Callable[[], Array],
    usual: Callable[[], Array],
    repeats: int,
    *,
    expected: Callable[[], Array],
    target: float | None = None,
) -> Row:
    error = harness.check_error(ours(), expected(), label)
    yardstick = harness.fma_yardstick(_core.isa, "float32")
    timing = harness.interleave([usual, ours], yardstick, repeats)
    return Row(
        label,
        "x faster",
        timing.ratios(),
        timing.tried,
        target,
        seconds=timing.seconds(),
        error=error,
    )


def make_plan(isas: list[str], full: bool) -> Plan:
    rng = np.random.default_rng(0)
    repeats = 15 if full else 5
    length, dim = (4096, 512) if full else (1024, 256)
    scores = rng.standard_normal((4, length // 4, length // 4)).astype(np.float32)
    both = rng.standard_normal((4, length // 4, length // 2 - 1)).astype(np.float32)
    table = rng.standard_normal((length, dim)).astype(np.float32)
    positions = rng.integers(length, size=4 * length)
    plan: Plan = []

    def add(
        label: str,
        ours: Callable[[], Array],
        usual: Callable[[], Array],
        expected: Callable[[], Array] | None = None,
        target: float | None = None,
    ) -> None:
        measure = partial(
            ratio_row,
            label,
            ours,
            usual,
            repeats,
            expected=expected or usual,
            target=target,
        )
        plan.append((label, measure))

    sinusoidal = partial(relpos.sinusoidal, length, dim)
    true_table = partial(reference.sinusoidal, length, dim)
    for phase_dtype, target in {"float64": 3.0, "float32": None}.items():
        usual = partial(numpy_sinusoidal, length, dim, phase_dtype)
        label = f"sinusoidal {length} x {dim}, phases in {phase_dtype}"
        add(label, sinusoidal, usual, true_table, target)
    skewed = f"4 x {length // 4} x"
    add(
        f"skew causal {skewed} {scores.shape[-1]}",
        partial(relpos.skew, scores, is_causal=True),
        partial(numpy_skew, scores),
    )
    add(
        f"skew both {skewed} {both.shape[-1]}",
        partial(relpos.skew, both, is_causal=False),
        partial(numpy_skew_both, both),
    )
    add(
        f"rel_shift {skewed} {scores.shape[-1]}",
        partial(relpos.rel_shift, scores),
        partial(numpy_skew, scores),
    )
    add(
        f"learned {positions.size} of {length} x {dim}",
        partial(relpos.learned, table, positions),
        partial(np.take, table, positions, axis=0),
        target=1.0,
    )
    return plan
