"""Functions of pairs on one core: flex_attention over SDPA, and over the operands.

The first rows are forward and backward at L = 2048, 8 heads of 64, over PyTorch's
attention with the dense bias that the same function makes. The others are the functions
of docs/translate-score-mod.md over the operand of relpos that says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import timing
from benchmarks.timing import Plan, Row, Rows

HEADS, DIM = 8, 64
LENGTHS = {"over a dense bias": 2048, "over its operand": 1024}
#: Time over SDPA with a dense bias.
TARGETS = {"bias by distance": 1.0, "ALiBi": 1.8}
#: Largest difference of results and gradients over their largest entry.
FAR = 1e-4

#: score_mod: a score and its batch item, head, query and key.
Function = Callable[..., Any]


@dataclass
class Case:
    """A function of pairs, and what it captures."""

    score_mod: Function
    operands: dict[str, Any]  # of relpos.torch.attention, which say the same
    table: Any = None  # the captured tensor that has a gradient


def no_change(length: int) -> Case:
    return Case(lambda score, b, h, i, j: score, {})


def hiding(shows: Function, **operands: Any) -> Case:
    """Return a case that hides the pairs that `shows` does not."""
    import torch

    def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return torch.where(shows(i, j), score, -torch.inf)

    return Case(score_mod, operands)


def causal(length: int) -> Case:
    return hiding(lambda i, j: i >= j, is_causal=True)


def window(length: int) -> Case:
    return hiding(lambda i, j: (i >= j) & (i - j <= 128), window=(128, 0))


def prefix_lm(length: int) -> Case:
    import torch

    ends = torch.arange(1, length + 1).clamp(min=100)
    ranges = torch.stack([torch.zeros_like(ends), ends], -1)
    return hiding(lambda i, j: (j < 100) | (i >= j), key_ranges=ranges)


def documents(length: int) -> Case:
    import torch

    begins = torch.tensor([0, length // 5, length // 2, length])
    document = torch.bucketize(torch.arange(length), begins[1:], right=True)
    return hiding(lambda i, j: document[i] == document[j], cu_seqlens=begins)


def alibi(length: int) -> Case:
    import relpos.torch

    slopes = relpos.torch.alibi_slopes(HEADS)
    bias = relpos.torch.alibi_bias(slopes, length)
    return Case(
        lambda score, b, h, i, j: score - slopes[h] * (i - j).abs(), {"rel_bias": bias}
    )


def t5(length: int) -> Case:
    import torch

    import relpos.torch

    weight = torch.randn(32, HEADS, requires_grad=True)
    buckets = relpos.torch.t5_bucket(torch.arange(1 - length, length))
    return Case(
        lambda score, b, h, i, j: score + weight[buckets[j - i + length - 1], h],
        {"rel_bias": weight.T, "buckets": buckets, "min_relative_position": 1 - length},
        weight,
    )


def by_distance(length: int) -> Case:
    import torch

    bias = torch.randn(HEADS, 2 * length - 1, requires_grad=True)
    return Case(
        lambda score, b, h, i, j: score + bias[h, j - i + length - 1],
        {"rel_bias": bias},
        bias,
    )


def softcap(length: int) -> Case:
    import torch

    return Case(
        lambda score, b, h, i, j: 20.0 * torch.tanh(score / 20.0), {"softcap": 20.0}
    )


def natten(length: int) -> Case:
    import torch

    def first_of(i: Any) -> Any:
        return (i - 64).clamp(0, length - 129)

    first = first_of(torch.arange(length))
    ranges = torch.stack([first, first + 129], -1)
    return hiding(
        lambda i, j: (j >= first_of(i)) & (j < first_of(i) + 129), key_ranges=ranges
    )


CASES: dict[str, Callable[[int], Case]] = {
    "no change": no_change,
    "causal": causal,
    "sliding window": window,
    "prefix LM": prefix_lm,
    "documents": documents,
    "ALiBi": alibi,
    "T5": t5,
    "bias by distance": by_distance,
    "softcap": softcap,
    "NATTEN": natten,
}


def dense_bias(case: Case, length: int) -> Any:
    """Return what the function adds, for each head and pair."""
    import torch

    at = torch.arange(length)
    heads = torch.arange(HEADS)[:, None, None]
    return case.score_mod(torch.zeros(()), 0, heads, at[:, None], at)[None]


def calls_of(case: Case, length: int, is_dense: bool) -> list[Callable[[], list[Any]]]:
    """Return calls of flex_attention and of what it is compared with.

    Each one computes the result and all gradients.
    """
    import torch

    import relpos.torch

    torch.set_num_threads(1)
    inputs = [torch.randn(1, HEADS, length, DIM) for _ in range(3)]
    leaves = [x.requires_grad_() for x in inputs]
    if case.table is not None:
        leaves.append(case.table)

    def flex() -> Any:
        return relpos.torch.flex_attention(*inputs, case.score_mod)

    def dense() -> Any:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(*inputs, attn_mask=dense_bias(case, length))

    def operand() -> Any:
        return relpos.torch.attention(*inputs, **case.operands)

    def both_ways(call: Callable[[], Any]) -> list[Any]:
        out = call()
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    return [
        partial(both_ways, flex),
        partial(both_ways, dense if is_dense else operand),
    ]


def row(
    label: str, name: str, against: str, target: float | None, isa: str, repeats: int
) -> Row:
    """Measure a function's time, forward and backward, over that of another call."""
    length = LENGTHS[against]
    case = CASES[name](length)
    with timing.use_isa(isa):
        calls = calls_of(case, length, against == "over a dense bias")
        error = 0.0
        for found, wanted in zip(*[call() for call in calls], strict=True):
            far = (found - wanted).abs().max() / wanted.abs().max()
            error = max(error, far.item())
        if error > FAR:
            raise SystemExit(f"{label}: the results differ by {error}")
        yardstick = timing.fma_yardstick(isa, "float32")
        timed = timing.interleave(calls, yardstick, repeats)
    unit = "x SDPA" if target else "x operand"
    return Row.of_ratios(label, unit, timed, error, target=target, at_most=True)


def make_plan(isas: list[str], full: bool) -> Plan:
    """Return every row as (label, function that measures it)."""
    isa, rows = isas[0], Rows(full)
    dense, operand = LENGTHS
    for name, target in TARGETS.items():
        rows.add(f"{name} {dense}", row, name, dense, target, isa)
    for name in CASES:
        rows.add(f"{name} {operand}", row, name, operand, None, isa)
    return rows
