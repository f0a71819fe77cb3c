"""Rows of attention.py that time the backward: `make_plan`.

Every row checks all gradients first (`Problem.check_backward`). Targets are those of
this project: the share of the multiply-add peak per scheme, Shaw's time over that of
plain attention of the same size, and two threads beside one, with as many heads as
threads and more, and with a single head, whose rows they have to share.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import harness
import numpy as np
from problems import (
    DIRECTIONS,
    HEAD_DIM,
    HEADS,
    LENGTHS,
    OVER_PLAIN,
    SCHEMES,
    Problem,
    plain,
)

import relpos
from relpos._config import use_isa


def target(scheme: str, is_causal: bool, length: int, isa: str) -> float | None:
    """Short causal calls and the base table have none."""
    if isa == "base" or (is_causal and length < 1024):
        return None
    if isa == "avx2":
        return 0.75 if is_causal else 0.80
    if scheme == "plain":
        return 0.77 if is_causal else 0.82
    return 0.75 if is_causal else 0.79


def gradient_of_out(problem: Problem) -> np.ndarray:
    """Random, of the shape of the result."""
    out = problem.out(0.0)
    return np.random.default_rng(2).standard_normal(out.shape).astype(out.dtype)


def checked(
    problem: Problem, threads: int, label: str
) -> tuple[Callable[[], object], float]:
    """The backward, and its error."""
    grad_out = gradient_of_out(problem)
    error = problem.check_backward(threads, grad_out, label)
    return problem.bind_backward(threads, grad_out), error


def shares(
    problem: Problem,
    isa: str,
    threads: int,
    clock: harness.Clock,
    repeats: int,
    flops: float,
    label: str,
) -> tuple[list[float], harness.Timing, float]:
    """Fractions of the peak of `threads` cores, with the timing and the error."""
    with use_isa(isa):
        call, error = checked(problem, threads, label)
        yardstick = harness.fma_yardstick(isa, "float32", threads, clock)
        timing = harness.interleave([call], yardstick, repeats, clock)
    return timing.shares(flops), timing, error


def fraction_row(
    label: str, scheme: str, is_causal: bool, length: int, isa: str, repeats: int
) -> harness.Row:
    build, _, products = SCHEMES[scheme]
    problem = build(length, "float32", is_causal)
    flops = products * problem.pairs * HEAD_DIM
    found, timing, error = shares(problem, isa, 1, thread_time, repeats, flops, label)
    return harness.Row(
        label,
        "of FMA peak",
        found,
        timing.tried,
        target(scheme, is_causal, length, isa),
        seconds=timing.seconds(),
        flops=flops,
        error=error,
    )


def over_plain_row(
    label: str, scheme: str, is_causal: bool, length: int, isa: str, repeats: int
) -> harness.Row:
    build, rows = OVER_PLAIN[scheme]
    problem = build(length, "float32", is_causal)
    table_products = 10 * HEADS * length * rows * HEAD_DIM
    with use_isa(isa):
        call, error = checked(problem, 1, label)
        beside = plain(length, "float32", is_causal)
        plain_call = beside.bind_backward(1, gradient_of_out(beside))
        yardstick = harness.fma_yardstick(isa, "float32")
        timing = harness.interleave([call, plain_call], yardstick, repeats)
    return harness.over_plain_row(
        label,
        timing,
        1.25 if rows else None,  # the bias has none
        flops=10 * problem.pairs * HEAD_DIM + table_products,
        error=error,
    )


def two_threads_row(
    label: str, scheme: str, is_causal: bool, heads: int, isa: str, repeats: int
) -> harness.Row:
    build, _, products = SCHEMES[scheme]
    problem = build(1024, "float32", is_causal, heads)
    flops = products * problem.pairs * HEAD_DIM

    def measure(threads: int) -> tuple[list[float], harness.Timing, float]:
        return shares(problem, isa, threads, perf_counter, repeats, flops, label)

    return harness.two_threads_row(label, measure, 0.95 if heads > 1 else 0.85, flops)


def make_plan(isas: list[str], quick: bool) -> harness.Plan:
    """Every row as (label, function that measures it), best instruction set first."""
    best, repeats = isas[0], 5 if quick else 15
    lengths = LENGTHS[:2] if quick else LENGTHS
    plan: harness.Plan = []

    def add(label: str, measure: Callable[..., harness.Row], *arguments: Any) -> None:
        label = f"backward {label}"
        plan.append((label, partial(measure, label, *arguments, repeats=repeats)))

    for isa in isas:
        for scheme in SCHEMES:
            for name, is_causal in DIRECTIONS.items():
                for length in lengths:
                    label = f"{scheme} {name} L={length} {isa}"
                    add(label, fraction_row, scheme, is_causal, length, isa)
    for scheme in OVER_PLAIN:
        for name, is_causal in DIRECTIONS.items():
            for length in lengths[1:]:
                label = f"{scheme} {name} L={length} {best}"
                add(label, over_plain_row, scheme, is_causal, length, best)
    if relpos.get_num_threads() > 1:
        for heads in (HEADS, 1):
            for scheme in SCHEMES:
                for name, is_causal in DIRECTIONS.items():
                    label = f"2 threads {scheme} {name} H={heads} {best}"
                    add(label, two_threads_row, scheme, is_causal, heads, best)
    return plan
