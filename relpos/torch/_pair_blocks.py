r"""Attention with functions of pairs, in blocks of queries.

With f the score_mod, cap the softcap and V the pairs that are seen,

.. math::

    s_{ij} = scale \; q_i k_j, \quad x_{ij} = cap(f(s_{ij}, b, h, i, j)), \quad
    e_{ij} = e^{x_{ij} - m_i} [ij \in V], \quad z_i = \sum_j e_{ij}, \quad
    out_i = \sum_j e_{ij} v_j / z_i

The forward keeps m and 1 / z of each row. The backward makes the logits of a block
anew, so that no array has all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relpos.torch._functions import Gradients, Reverse
from relpos.torch._pair_functions import PairFunction, Places
from relpos.torch._pair_masks import Hidden, Part, Visible
from relpos.torch._tracing import apply

_INF = float("inf")
#: Pairs of a block: its arrays of 1 MiB in float32 stay in the cache, and a call needs
#: 15 to 25 MB above its operands and results (8 heads, 2,048 tokens).
_PAIRS = 2**18
#: Queries of a block, at most and, where the keys are many, at least.
_MOST_QUERIES, _LEAST_QUERIES = 128, 16
#: Keys of one call of score_mod, where blocks differ in the number of their keys: few
#: shapes are recorded.
_PIECE = 512
#: Exponents that are no numbers of full precision weigh nothing: products of subnormal
#: numbers take many times as long.
_LOWEST = {torch.float32: -80.0, torch.float64: -700.0}


class Sizes(NamedTuple):
    """Sizes of a call: batch items, heads, heads of keys, queries, keys."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int

    @property
    def group(self) -> int:
        """Number of heads that read one head of keys."""
        return self.heads // self.key_heads


class _Captured(NamedTuple):
    """Tensors that score_mod and mask_mod capture, as a call reads them."""

    score: Sequence[Tensor]
    mask: Sequence[Tensor]


@dataclass
class Problem:
    """A call except its tensors: what its forward and its backward share."""

    sizes: Sizes
    visible: Visible
    scale: float
    softcap: float | None
    score_mod: PairFunction | None
    mask_mod: PairFunction | None
    dtype: torch.dtype  # of the computation
    out_dtype: torch.dtype
    threads: int | None
    keeps: bool = True  # results for a backward
    name: str = "flex_attention"
    parts: list[Part] = field(default_factory=list)

    def functions(self) -> list[PairFunction]:
        return [f for f in (self.score_mod, self.mask_mod) if f is not None]

    def captured(self) -> list[Tensor]:
        """Return the tensors that score_mod captures, and those of mask_mod."""
        return [tensor for f in self.functions() for tensor in f.captured]

    def parted(self, captured: Sequence[Tensor]) -> _Captured:
        """Return tensors in the order of `captured` by their functions."""
        count = 0 if self.score_mod is None else len(self.score_mod.captured)
        return _Captured(captured[:count], captured[count:])

    def differentiable(self) -> list[Tensor]:
        """Return captured tensors with a gradient: a mask has none."""
        if self.score_mod is None:
            return []
        captured = self.score_mod.captured
        return [captured[place] for place in self.score_mod.differentiable()]

    # ---- the methods that `Gradients` calls ------------------------------------------

    def run_backward(self, needs_grad: Sequence[bool], *args: Any) -> Sequence[Tensor]:
        with _as_called(self):
            return _backward(self, needs_grad, *args)

    def vmap_backward(self, *args: Any) -> Any:
        raise not_mapped()


def not_mapped() -> NotImplementedError:
    return NotImplementedError(
        "relpos.torch.flex_attention: torch.func and torch.vmap do not go through a "
        "score_mod or block_mask; expected a call outside of them"
    )


def attend_pairs(
    problem: Problem, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return out (B, H, Lq, Dv) and lse (B, H, Lq) of tensors of four axes."""
    problem.parts = [*_parts(problem)]
    _find_captured(problem)
    wanted = problem.differentiable()
    results = apply(AttendPairs, problem, query, key, value, sinks, *wanted)
    return results[0], results[1]


def _find_captured(problem: Problem) -> None:
    for part in problem.parts:
        keys = _Keys.of(problem, part)
        if not keys.number:
            continue
        places = _places(part, keys.numbers[: _pieces(problem, keys.number)[0]])
        with torch.autocast("cpu", enabled=False):
            if problem.score_mod is not None and not problem.score_mod.is_known:
                example = torch.zeros(places.shape(), dtype=problem.dtype)
                problem.score_mod.find_captured(places, (example,))
            if problem.mask_mod is not None and not problem.mask_mod.is_known:
                partly = problem.visible.partly(part, keys.numbers)
                if partly is not None:
                    places = _places(part, keys.numbers[partly[0]])
                    problem.mask_mod.find_captured(places, ())
        if all(function.is_known for function in problem.functions()):
            return


class AttendPairs(Reverse):
    """The forward, and its backward by `Problem.run_backward`."""

    @staticmethod
    def forward(problem: Problem, *tensors: Any) -> Any:
        query, key, value, sinks = tensors[:4]
        with torch.no_grad(), _as_called(problem):
            return _forward(problem, query, key, value, sinks)

    @staticmethod
    def alone(problem: Problem, *tensors: Any) -> Any:
        problem.keeps = False  # no backward follows
        return AttendPairs.forward(problem, *tensors)

    @staticmethod
    def returned(output: Any) -> Any:
        # the places stay, so that the backward's gradients have the same places
        out, lse, *others = output
        return (out, lse, *[None] * len(others))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        problem, *tensors = inputs
        ctx.called, ctx.problem = problem.name, problem
        out, _, row_max, inverse, unrounded = output
        if unrounded is None:
            ctx.mark_non_differentiable(row_max, inverse)
        else:
            ctx.mark_non_differentiable(row_max, inverse, unrounded)
            out = unrounded
        ctx.set_materialize_grads(False)
        ctx.count = len(tensors)
        # captured tensors without a gradient are kept too: torch refuses a backward
        # after a change of what was saved
        saved = [out, row_max, inverse, *tensors[:4], *problem.captured()]
        ctx.save_for_backward(*saved)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        needed = ctx.needs_input_grad[1:]
        gradients: list[Tensor | None] = [None] * ctx.count
        if grads[0] is not None or grads[1] is not None:
            saved = ctx.saved_tensors
            made = iter(apply(Gradients, ctx.problem, needed, *grads[:2], *saved))
            gradients = [next(made) if need else None for need in needed]
        return None, *gradients

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise not_mapped()


# ---- blocks --------------------------------------------------------------------------


def _parts(problem: Problem) -> Iterator[Part]:
    """Yield the blocks of a call: some batch items, heads and queries."""
    sizes, visible = problem.sizes, problem.visible
    if not (sizes.batch and sizes.heads and sizes.queries):
        return
    queries = min(_MOST_QUERIES, max(_LEAST_QUERIES, _PAIRS // max(1, sizes.keys)))
    rows = visible.rows()
    if rows is not None and rows >= queries:
        queries = rows // -(-rows // queries)
    queries = min(queries, sizes.queries)
    pairs = queries * max(1, sizes.keys)
    heads, batch = 1, 1
    if not visible.varies(1):
        heads = _heads(sizes, _PAIRS // pairs)
    if heads == sizes.heads and not visible.varies(0):
        batch = _divisor(sizes.batch, _PAIRS // (pairs * heads))
    cuts = _cuts(sizes.queries, queries, rows)
    for item in range(0, sizes.batch, batch):
        for head in range(0, sizes.heads, heads):
            for first, last in cuts:
                items, own = slice(item, item + batch), slice(head, head + heads)
                yield Part(items, own, slice(first, last))


def _cuts(count: int, step: int, rows: int | None) -> list[tuple[int, int]]:
    """Return where blocks of queries begin and end: none crosses a row of blocks."""
    whole = count if rows is None or rows < step else rows
    cuts = []
    for first in range(0, count, whole):
        end = min(first + whole, count)
        for at in range(first, end, step):
            cuts.append((at, min(at + step, end)))
    return cuts


def _heads(sizes: Sizes, most: int) -> int:
    """Return how many heads a block has: of one head of keys, or all of several."""
    if most < sizes.group:
        return _divisor(sizes.group, most)
    return sizes.group * _divisor(sizes.key_heads, most // sizes.group)


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor of a number that is at most `most`, or 1."""
    return max(
        (n for n in range(1, number + 1) if not number % n and n <= most), default=1
    )


class _Keys(NamedTuple):
    """Keys that a block may see, as an index of the key axis and as numbers."""

    of_axis: slice | Tensor
    numbers: Tensor
    number: int

    @staticmethod
    def of(problem: Problem, part: Part) -> _Keys:
        own = problem.visible.keys_of(part)
        if not isinstance(own, slice):
            return _Keys(own, own, len(own))
        numbers = torch.arange(own.start, own.stop)
        return _Keys(own, numbers, len(numbers))

    def rows_of(self, tensor: Tensor) -> Tensor:
        """Return the rows (..., keys, D) of a tensor."""
        if isinstance(self.of_axis, slice):
            return tensor[..., self.of_axis, :]
        return tensor.index_select(-2, self.of_axis)

    def add_rows(self, total: Tensor, rows: Tensor) -> None:
        if isinstance(self.of_axis, slice):
            total[..., self.of_axis, :] += rows
        else:
            total.index_add_(-2, self.of_axis, rows)


def _places(part: Part, keys: Tensor) -> Places:
    def numbers(own: slice) -> Tensor:
        return torch.arange(own.start, own.stop, dtype=torch.int32)

    batch, head, query = map(numbers, part)
    return Places(batch, head, query, keys.to(torch.int32))


def _pieces(problem: Problem, keys: int) -> list[int]:
    """Return the numbers of keys of the calls of score_mod in one block."""
    if not problem.visible.selects() or keys <= _PIECE:
        return [keys]
    whole, rest = divmod(keys, _PIECE)
    return [_PIECE] * whole + [rest] * (rest > 0)


class _Rows(NamedTuple):
    """Rows of a block: queries times scale, and keys and values that it sees.

    Queries (batch, key heads, heads of each * queries, D) are those of one head of keys
    one after the other.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    key_heads: slice


def _key_heads(problem: Problem, part: Part) -> slice:
    group = problem.sizes.group
    return slice(part.head.start // group, (part.head.stop - 1) // group + 1)


def _by_key_head(tensor: Tensor, heads: int) -> Tensor:
    """Return (batch, heads, queries, n) as (batch, key heads, others, n)."""
    count, own, queries, size = tensor.shape
    return tensor.reshape(count, heads, own // heads * queries, size)


def _rows(
    problem: Problem, part: Part, keys: _Keys, tensors: Sequence[Tensor]
) -> _Rows:
    query, key, value = tensors
    heads = _key_heads(problem, part)
    own = query[part].to(problem.dtype) * problem.scale
    return _Rows(
        _by_key_head(own, heads.stop - heads.start),
        keys.rows_of(key[part.batch, heads]),
        keys.rows_of(value[part.batch, heads]),
        heads,
    )


class _Logits(NamedTuple):
    """Logits of a block and what its backward needs of them."""

    scores: Tensor  # before score_mod
    logits: Tensor
    slope: Tensor | None  # of the cap
    hidden: list[Hidden]


def _logits(
    problem: Problem, part: Part, keys: _Keys, rows: _Rows, captured: _Captured
) -> _Logits:
    scores = rows.query @ rows.key.transpose(-1, -2)
    shape = [own.stop - own.start for own in part]
    scores = scores.view(*shape, keys.number)
    logits = scores
    if problem.score_mod is not None:
        logits = _modified(problem, part, keys, scores, captured.score)
    slope = None
    if problem.softcap is not None:
        capped = torch.tanh(logits / problem.softcap)
        slope, logits = 1 - capped * capped, capped * problem.softcap
    hidden = problem.visible.hidden_in(part, keys.numbers)
    if problem.mask_mod is not None:
        hidden += _hidden_by_mask(problem, part, keys, captured.mask)
    if hidden and not _is_own(logits, [scores, *captured.score]):
        logits = logits.clone(memory_format=torch.contiguous_format)
    for columns, flags in hidden:
        _hide(logits, columns, flags, -_INF)
    return _Logits(scores, logits, slope, hidden)


def _is_own(logits: Tensor, others: Sequence[Tensor]) -> bool:
    """Return True for logits that may be written to: a function may return a view."""
    memory = logits.untyped_storage().data_ptr()
    is_shared = any(other.untyped_storage().data_ptr() == memory for other in others)
    return logits.is_contiguous() and not is_shared


def _hide(pairs: Tensor, columns: slice | Tensor, flags: Tensor, number: float) -> None:
    """Give hidden pairs a number, in place."""
    if isinstance(columns, slice):
        pairs[..., columns].masked_fill_(flags, number)
    else:
        pairs[..., columns] = pairs[..., columns].masked_fill(flags, number)


def _cut_keys(pairs: Tensor, pieces: list[int]) -> list[Tensor]:
    """Return pairs (..., keys) in pieces, as a record reads them: contiguous."""
    return [piece.contiguous() for piece in pairs.split(pieces, -1)]


def _modified(
    problem: Problem,
    part: Part,
    keys: _Keys,
    scores: Tensor,
    captured: Sequence[Tensor],
) -> Tensor:
    """Return the results of score_mod for all pairs of a block."""
    function = problem.score_mod
    assert function is not None
    results = []
    pieces = _pieces(problem, keys.number)
    of_keys = keys.numbers.split(pieces)
    for own, numbers in zip(_cut_keys(scores, pieces), of_keys, strict=True):
        results.append(function(_places(part, numbers), (own,), captured))
    whole = results[0] if len(results) == 1 else torch.cat(results, -1)
    return whole.to(problem.dtype)


def _hidden_by_mask(
    problem: Problem, part: Part, keys: _Keys, captured: Sequence[Tensor]
) -> list[Hidden]:
    partly = problem.visible.partly(part, keys.numbers)
    if partly is None:
        return []
    columns, flags = partly
    assert problem.mask_mod is not None
    shown = problem.mask_mod(_places(part, keys.numbers[columns]), (), captured)
    hidden = ~shown
    if not flags.all():
        hidden = hidden & flags
    first, last = int(columns[0]), int(columns[-1]) + 1
    own = slice(first, last) if last - first == len(columns) else columns
    return [Hidden(own, hidden)]


# ---- forward -------------------------------------------------------------------------


def _weights(logits: Tensor, row_max: Tensor) -> Tensor:
    """Return exponentials of logits (..., keys) less the largest one of their row."""
    exponents = logits - row_max[..., None]
    lowest = _LOWEST[exponents.dtype]
    return torch.nn.functional.threshold_(exponents, lowest, -_INF).exp_()


def _forward(
    problem: Problem, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Return out, lse, the largest logit and the inverse sum of each row.

    The last one is out before it is rounded, None where it is not.
    """
    sizes, dtype = problem.sizes, problem.dtype
    shape = sizes.batch, sizes.heads, sizes.queries
    out = torch.zeros(*shape, value.shape[-1], dtype=dtype)
    row_max = torch.full(shape, -_INF, dtype=dtype)
    if sinks is not None:
        row_max.copy_(sinks)
    row_sum = (row_max > -_INF).to(dtype)
    tensors = query, key.to(dtype), value.to(dtype)
    captured = problem.parted(problem.captured())
    for part in problem.parts:
        keys = _Keys.of(problem, part)
        if keys.number:
            rows = _rows(problem, part, keys, tensors)
            made = _logits(problem, part, keys, rows, captured)
            results = out[part], row_max[part], row_sum[part]
            _add_part(made.logits, rows, results)
            if problem.keeps:
                _prepare_backward(problem, part, keys, made.scores)
    inverse = torch.where(row_sum > 0, 1 / row_sum, 0.0)
    out *= inverse[..., None]
    # a nan in the sum is one in the result
    lse = row_max + row_sum.log()
    if problem.out_dtype is dtype:
        return out, lse, row_max, inverse, None
    return out.to(problem.out_dtype), lse, row_max, inverse, out


def _add_part(
    logits: Tensor, rows: _Rows, results: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Write sums over the keys of a block, and its largest logits."""
    out, row_max, row_sum = results
    largest = torch.maximum(logits.amax(-1), row_max)
    # of a row that sees no key every number is the largest
    largest.masked_fill_(largest == -_INF, 0.0)
    row_sum *= (row_max - largest).exp()
    weights = _weights(logits, largest)
    row_sum += weights.sum(-1)
    row_max.copy_(largest)
    heads = rows.key_heads.stop - rows.key_heads.start
    out.copy_((_by_key_head(weights, heads) @ rows.value).view(out.shape))


def _prepare_backward(
    problem: Problem, part: Part, keys: _Keys, scores: Tensor
) -> None:
    """Record what the backward calls, while the function is what it was."""
    if problem.score_mod is None:
        return
    pieces = _pieces(problem, keys.number)
    of_keys = keys.numbers.split(pieces)
    for own, numbers in zip(_cut_keys(scores, pieces), of_keys, strict=True):
        problem.score_mod.prepare_backward(_places(part, numbers), own)


# ---- backward ------------------------------------------------------------------------


@dataclass
class _Totals:
    """Gradients of a call as its blocks add to them."""

    query: Tensor
    key: Tensor
    value: Tensor
    captured: list[Tensor]


def _backward(
    problem: Problem,
    needs_grad: Sequence[bool],
    grad_out: Tensor | None,
    grad_lse: Tensor | None,
    out: Tensor,
    row_max: Tensor,
    inverse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor | None,
    *captured: Tensor,
) -> list[Tensor]:
    """Return the gradients of query, key, value, sinks and captured tensors."""
    dtype = problem.dtype
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    # of a row the sum of gradients times weights, which those of logits lack
    delta = (grad_out * out).sum(-1)
    if grad_lse is not None:
        delta -= grad_lse
    wanted = problem.differentiable()
    totals = _Totals(
        torch.zeros(query.shape, dtype=dtype),
        torch.zeros(key.shape, dtype=dtype),
        torch.zeros(value.shape, dtype=dtype),
        [_zeros_of(tensor) for tensor in wanted],
    )
    tensors = query, key.to(dtype), value.to(dtype)
    by_function = problem.parted(captured)
    for part in problem.parts:
        keys = _Keys.of(problem, part)
        if keys.number:
            rows = _rows(problem, part, keys, tensors)
            made = _logits(problem, part, keys, rows, by_function)
            own = grad_out[part].to(dtype) * inverse[part][..., None]
            subtracted = delta[part] * inverse[part]
            weights = _weights(made.logits, row_max[part])
            factors = own, subtracted, weights
            _add_gradients(
                problem, part, keys, rows, made, factors, by_function, totals
            )
    gradients = [totals.query, totals.key, totals.value, None, *totals.captured]
    originals = [query, key, value, sinks, *wanted]
    if sinks is not None and needs_grad[3]:
        # a row without keys and without a sink has no share
        share = torch.where(inverse > 0, (sinks - row_max).exp() * inverse, 0.0)
        gradients[3] = -share * delta
    return [
        gradient.to(original.dtype)
        for gradient, original, need in zip(
            gradients, originals, needs_grad, strict=True
        )
        if need
    ]


def _zeros_of(tensor: Tensor) -> Tensor:
    dtype = torch.float32 if tensor.dtype.itemsize == 2 else tensor.dtype
    return torch.zeros(tensor.shape, dtype=dtype)


def _add_gradients(
    problem: Problem,
    part: Part,
    keys: _Keys,
    rows: _Rows,
    made: _Logits,
    factors: tuple[Tensor, Tensor, Tensor],
    captured: _Captured,
    totals: _Totals,
) -> None:
    """Add the gradients of one block to those of a call."""
    grad, subtracted, weights = factors
    heads = rows.key_heads.stop - rows.key_heads.start
    grad, by_head = _by_key_head(grad, heads), _by_key_head(weights, heads)
    keys.add_rows(totals.value[part.batch, rows.key_heads], by_head.mT @ grad)
    of_logits = (grad @ rows.value.mT).view(weights.shape)
    of_logits = of_logits.sub_(subtracted[..., None]).mul_(weights)
    if made.slope is not None:
        of_logits *= made.slope
    if problem.score_mod is not None:
        of_logits = _through_function(
            problem, part, keys, made.scores, of_logits, captured, totals
        )
        for columns, flags in made.hidden:
            _hide(of_logits, columns, flags, 0.0)
    of_scores = _by_key_head(of_logits, heads)
    of_query = (of_scores @ rows.key).view(*weights.shape[:3], -1)
    totals.query[part] = of_query * problem.scale
    keys.add_rows(totals.key[part.batch, rows.key_heads], of_scores.mT @ rows.query)


def _through_function(
    problem: Problem,
    part: Part,
    keys: _Keys,
    scores: Tensor,
    grad: Tensor,
    captured: _Captured,
    totals: _Totals,
) -> Tensor:
    """Return gradients of scores, and add those of what score_mod captures."""
    function = problem.score_mod
    assert function is not None
    of_scores = []
    pieces = _pieces(problem, keys.number)
    of_keys = keys.numbers.split(pieces)
    parts = _cut_keys(scores, pieces), _cut_keys(grad, pieces), of_keys
    for own, own_grad, numbers in zip(*parts, strict=True):
        places = _places(part, numbers)
        arguments = places, own, own_grad, captured.score, totals.captured
        of_scores.append(function.gradients(*arguments))
    if len(of_scores) == 1:
        (whole,) = of_scores
        return whole if whole.is_contiguous() else whole.contiguous()
    return torch.cat(of_scores, -1)


@contextmanager
def _as_called(problem: Problem) -> Iterator[None]:
    """Let torch use the threads of a call, and round nothing by autocast."""
    before = torch.get_num_threads()
    if problem.threads is not None:
        torch.set_num_threads(problem.threads)
    try:
        with torch.autocast("cpu", enabled=False):
            yield
    finally:
        if problem.threads is not None:
            torch.set_num_threads(before)
