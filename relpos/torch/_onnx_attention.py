"""The formula of attention in operators of PyTorch, for programs of ONNX.

It is the formula of `relpos.attention`, computed in the dtype of the operator's
results: float64 where a tensor has it, else float32. Where the operator raises an error
for numbers that a program of ONNX does not look at, a row of the result is nan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relpos._attention.fire_network import NAMES
from relpos._attention.operands import LABELLED, TABLES
from relpos.torch._attend import computed_dtype, rows_of, setting_of
from relpos.torch._engine import Setting
from relpos.torch._keywords import Values
from relpos.torch._onnx import decomposed, has_no_form, is_known
from relpos.torch._onnx_functions import fire_network, scalar
from relpos.torch._tensors import result_dtype

Tensors = dict[str, Tensor]


class Rows(NamedTuple):
    """The table row of each pair, and which pairs have one; None: all of them."""

    at: Tensor  # (..., 1, Lq, Lk), or (Lq, Lk) if it is the same for all items
    inside: Tensor | None


class Pairs(NamedTuple):
    """Pairs of a query and a key, before their scores.

    `refused` are pairs for which the operator would raise an error.
    """

    relative: Tensor  # key minus query
    seen: Tensor | None
    refused: Tensor | None
    rows: dict[str, list[Rows]]  # of each table


@decomposed("attention")
def attention(
    operands: Sequence[Tensor], names: Sequence[str], form: int, *settings: Any
) -> tuple[Tensor, ...]:
    """Return out, lse, row_max, row_sum and weights, as the operator does."""
    setting = setting_of(names, settings)
    given = dict(zip(names, operands, strict=True))
    _check_form(setting, given)
    dtype, shape = computed_dtype(given), rows_of(given)
    x = {name: _in_dtype(tensor, dtype) for name, tensor in given.items()}
    values = setting.values
    _repeat_heads(x)
    pairs = _pairs(x, setting)
    scores = _scores(x, values, pairs)
    if setting.scheme_values is not None:
        scores = scores + _fire(x, setting.scheme_values, pairs.relative)
    scores = _hidden(scores, x, pairs)
    scores = scores.expand(*shape, scores.shape[-1])
    weights, top, total = _softmax(scores, x.get("sinks"))
    out = _weighted(weights, scores, x, pairs)
    is_empty = total == 0
    lse = (top + total.log()).masked_fill(is_empty, -torch.inf)
    if not values["return_weights"]:
        weights = weights.new_zeros(0)
    # the operator has the maxima in logarithms of base 2
    row_max = top * scalar(math.log2(math.e), top)
    return out, lse, row_max, total, weights


def _in_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an operand in a dtype if it is floating; what is finite stays finite."""
    if not x.is_floating_point():
        return x
    if x.dtype is torch.float64 and dtype is torch.float32:  # a mask
        x = _finite(x, dtype)
    return x.to(dtype)


def _check_form(setting: Setting, x: Tensors) -> None:
    """Raise for a call that has no form in ONNX."""
    scheme = setting.scheme_values
    if scheme is not None and "indptr" in scheme:
        raise has_no_form(
            "graph_attention",
            "it, as its kernel goes from query to query",
            "attention with labels and attn_mask",
        )
    if setting.values.get("dropout_p") or "rng" in x:
        name = "attention" if scheme is None else "fire_attention"
        raise has_no_form(name, "dropout", "dropout_p=0.0, as after model.eval()")


def _repeat_heads(x: Tensors) -> None:
    """Give each query head a key head and a value head of its own."""
    heads, groups = x["query"].shape[-3], x["key"].shape[-3]
    if heads != groups:
        for name in ("key", "value"):
            x[name] = _repeated(x[name], heads // groups)


def _repeated(x: Tensor, count: int) -> Tensor:
    """Repeat each head so many times: (..., G, m, n) -> (..., G count, m, n)."""
    shape = *x.shape[:-2], count, *x.shape[-2:]
    return x.unsqueeze(-3).expand(shape).flatten(-4, -3)


# ---- pairs -------------------------------------------------------------------------


def _pairs(x: Tensors, setting: Setting) -> Pairs:
    values = setting.values
    tables = [name for name in TABLES if name in x]
    is_labelled = any(name in x for name in LABELLED)
    is_positional = (tables and not is_labelled) or "log_decay" in x
    is_positional = is_positional or setting.scheme_values is not None
    left, right = values["window"]
    if is_positional or values["is_causal"] or (left, right) != (None, None):
        _check_offset(x, values)
    relative = _relative(x, values)
    seen = _seen(x, values, relative)
    rows: dict[str, list[Rows]] = {}
    refused = None
    if is_labelled:
        labelled = [_rows_of_labels(x, name) for name in LABELLED if name in x]
        rows = dict.fromkeys(tables, labelled)
    else:
        for name in tables:
            rows[name] = [_rows_of_positions(name, x, values, relative)]
            inside = rows[name][0].inside
            if values["beyond"] == "raise" and inside is not None:
                refused = _either(refused, ~inside)
    if "log_decay" in x and not values["is_causal"]:
        refused = _either(refused, relative > 0)
    if refused is not None and seen is not None:
        refused = refused & seen
    return Pairs(relative, seen, refused, rows)


def _either(first: Tensor | None, second: Tensor) -> Tensor:
    return second if first is None else first | second


def _both(first: Tensor | None, second: Tensor) -> Tensor:
    return second if first is None else first & second


def _check_offset(x: Tensors, values: Values) -> None:
    """Raise where the position of query 0 is not known, as the operator does."""
    # documents are those of queries and keys, so that there are equally many
    if "query_offset" in x or "query_offset" in values or "cu_seqlens" in x:
        return
    queries, keys = x["query"].shape[-2], x["key"].shape[-2]
    if not is_known(queries == keys):
        raise ValueError(
            f"query_offset: got None for {queries} queries and {keys} keys, which may "
            "differ; expected an integer or a tensor, or one length of both"
        )


def _relative(x: Tensors, values: Values) -> Tensor:
    """Return key minus query, (Lq, Lk), or (..., 1, Lq, Lk) if items differ."""
    query, key = x["query"], x["key"]
    i = torch.arange(query.shape[-2], device=query.device)
    j = torch.arange(key.shape[-2], device=query.device)
    relative = j - i[:, None]
    if "query_offset" in x:
        return relative - x["query_offset"].long()[..., None, None, None]
    if "query_offset" in values:
        return relative - values["query_offset"]
    return relative


def _seen(x: Tensors, values: Values, relative: Tensor) -> Tensor | None:
    """Return which pairs are visible, whatever the mask; None: all of them."""
    seen = None
    left, right = values["window"]
    if values["is_causal"]:
        seen = relative <= 0
    if left is not None:
        seen = _both(seen, relative >= -left)
    if right is not None:
        seen = _both(seen, relative <= right)
    j = torch.arange(x["key"].shape[-2], device=relative.device)
    if "key_ranges" in x:
        # a new axis of heads, and one of keys
        begin, end = x["key_ranges"].long()[..., None, :, :, None].unbind(-2)
        seen = _both(seen, (j >= begin) & (j < end))
    if "key_lengths" in x:
        seen = _both(seen, j < x["key_lengths"].long()[..., None, None, None])
    elif "key_lengths" in values:
        seen = _both(seen, (j < values["key_lengths"])[None])
    if "cu_seqlens" in x:
        number = _documents(x["cu_seqlens"], j)
        seen = _both(seen, number[:, None] == number)
    if "key_blocks" in x:
        seen = _both(seen, _of_blocks(x, values, j))
    return seen


def _documents(cu_seqlens: Tensor, j: Tensor) -> Tensor:
    """Return the number of the document of each token: how many have ended before."""
    return (j[:, None] >= cu_seqlens[1:]).sum(-1)


def _of_blocks(x: Tensors, values: Values, j: Tensor) -> Tensor:
    """Return which pairs are visible by their blocks, (..., H or 1, Lq, Lk)."""
    blocks, size = x["key_blocks"], values["block_size"]
    assert isinstance(size, tuple)
    i = torch.arange(x["query"].shape[-2], device=j.device)
    seen = blocks.index_select(-2, i // size[0]).index_select(-1, j // size[1])
    heads, groups = x["query"].shape[-3], blocks.shape[-3]
    return seen if groups in (1, heads) else _repeated(seen, heads // groups)


def _rows_of_labels(x: Tensors, name: str) -> Rows:
    labels = x[name].long()
    shape = *labels.shape[:-2], x["query"].shape[-2], x["key"].shape[-2]
    labels = labels.expand(shape)
    if labels.dim() > 2:  # heads share labels
        labels = labels.unsqueeze(-3)
    return Rows(labels.clamp(min=0), labels >= 0)


def _rows_of_positions(name: str, x: Tensors, values: Values, relative: Tensor) -> Rows:
    table, buckets = x[name], x.get("buckets")
    count: Any = table.shape[-1 if name == "rel_bias" else -2]
    rows = count if buckets is None else buckets.shape[0]
    first = values.get("min_relative_position")
    if buckets is None and name == "rel_bias" and _has_other_rows(count, x):
        first = None  # a bias of another length than the tables is centred
    if first is None:
        if not is_known(rows % 2 == 1):
            raise ValueError(
                f"{name if buckets is None else 'buckets'}: got {rows} rows, a number "
                "that may be even; expected min_relative_position, or an odd number"
            )
        first = -((rows - 1) // 2)
    at = (relative - first).clamp(0, rows - 1)
    inside = None
    if values["beyond"] != "clip":
        inside = (relative >= first) & (relative < first + rows)
    if buckets is not None:
        at = buckets.long()[at]
    return Rows(at, inside)


def _has_other_rows(count: Any, x: Tensors) -> bool:
    """Tell whether a table of vectors has another number of rows than the bias."""
    others = [x[name].shape[-2] for name in TABLES if name in x and name != "rel_bias"]
    return not all(is_known(count == other) for other in others)


# ---- scores ------------------------------------------------------------------------


def _scores(x: Tensors, values: Values, pairs: Pairs) -> Tensor:
    """Return the scores of all pairs, without what hides them."""
    query, key = x["query"], x["key"]
    scale = values["scale"] if "scale" in values else query.shape[-1] ** -0.5
    scale = scalar(scale, query)
    left = query + x["pos_bias_u"].unsqueeze(-2) if "pos_bias_u" in x else query
    scores = scale * (left @ key.mT)
    if "rel_key" in x:
        of_position, factor = query, scale
        if "position_query" in x:
            of_position, factor = x["position_query"], 1.0
        if "pos_bias_v" in x:
            of_position = of_position + x["pos_bias_v"].unsqueeze(-2)
        products = of_position @ x["rel_key"].mT
        scores = scores + factor * _by_pair(products, pairs.rows["rel_key"])
    if "rel_query" in x:
        products = key @ x["rel_query"].mT
        mirrored = [_mirrored(rows) for rows in pairs.rows["rel_query"]]
        scores = scores + scale * _by_pair(products, mirrored).mT
    if "softcap" in values:
        softcap = scalar(values["softcap"], query)
        scores = softcap * (scores / softcap).tanh()
    if "rel_bias" in x:
        bias = _finite(x["rel_bias"], query.dtype).unsqueeze(-2)
        bias = _by_pair(bias, pairs.rows["rel_bias"])
        # -inf hides a pair also where its score is nan
        scores = (scores + bias).masked_fill(bias == -torch.inf, -torch.inf)
    if "log_decay" in x:
        scores = scores + _decay(x["log_decay"], pairs.relative)
    return scores


def _mirrored(rows: Rows) -> Rows:
    """Return the rows of pairs with keys first, (..., Lk, Lq)."""
    return Rows(rows.at.mT, None if rows.inside is None else rows.inside.mT)


def _by_pair(products: Tensor, rows: Sequence[Rows]) -> Tensor:
    """Sum what the rows of each pair give: (..., Lq or 1, R) -> (..., Lq, Lk)."""
    total = None
    for at, inside in rows:
        if products.shape[-2] == 1 and at.dim() == 2:
            found = products.squeeze(-2)[..., at]
        else:
            shape = torch.broadcast_shapes(products.shape[:-1], at.shape[:-1])
            wide = products.expand(*shape, products.shape[-1])
            found = wide.gather(-1, at.expand(*shape, at.shape[-1]))
        if inside is not None:
            found = found.masked_fill(~inside, 0.0)
        total = found if total is None else total + found
    assert total is not None
    return total


def _finite(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return biases whose sums stay finite in a dtype; infinite ones are kept."""
    # the operator clamps them as logarithms of base 2
    largest = scalar(torch.finfo(dtype).max / (4 * math.log2(math.e)), x)
    # not isinf, which ONNX has in float32
    return torch.where(x.abs() == torch.inf, x, x.clamp(-largest, largest))


def _decay(log_decay: Tensor, relative: Tensor) -> Tensor:
    """Sum over the keys after key j up to the query, (..., H, Lq, Lk)."""
    # from the query's position backwards, so that far keys do not round near ones
    passed = log_decay.unsqueeze(-2).masked_fill(relative > 0, 0.0)
    total = passed.flip(-1).cumsum(-1).flip(-1)
    # the sum of key j begins one key later
    return torch.nn.functional.pad(total[..., 1:], (0, 1))


def _fire(x: Tensors, scheme: Any, relative: Tensor) -> Tensor:
    """Return the bias of FIRE's network, (..., H, Lq, Lk)."""
    numbers = {name: x.get(name, scheme.get(name)) for name in NAMES}
    # the position of a query is that of the key at relative position 0
    position = -relative[..., :, :1]
    if "cu_seqlens" in x:  # positions begin in each document
        j = torch.arange(x["key"].shape[-2], device=relative.device)
        number = _documents(x["cu_seqlens"], j)
        position = position - x["cu_seqlens"].long()[number][:, None]
    if relative.dim() > 2:  # the axis of heads is that of the network
        relative, position = relative.squeeze(-3), position.squeeze(-3)
    return fire_network(
        relative, position, signed=scheme["signed"], eps=scheme["eps"], **numbers
    )


def _hidden(scores: Tensor, x: Tensors, pairs: Pairs) -> Tensor:
    """Return scores with the mask, -inf where a pair is hidden, nan where refused."""
    seen, mask = pairs.seen, x.get("attn_mask")
    if pairs.refused is not None:
        scores = scores.masked_fill(pairs.refused, torch.nan)
    if mask is not None and mask.dtype is torch.bool:
        seen = _both(seen, mask)
    elif mask is not None:
        seen = _both(seen, mask != -torch.inf)
        scores = scores + _finite(mask, mask.dtype)
    return scores if seen is None else scores.masked_fill(~seen, -torch.inf)


# ---- weights, and what they weigh --------------------------------------------------


def _softmax(scores: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights, and the maximum and the sum of each row; 0 if it sees no key."""
    if is_known(scores.shape[-1] == 0):
        top = scores.new_full((*scores.shape[:-1], 1), -torch.inf)
    else:
        top = scores.amax(-1, keepdim=True)
    if sinks is not None:
        sink = sinks[:, None, None] if sinks.dim() == 1 else sinks.unsqueeze(-1)
        top = torch.maximum(top, sink)
    # -inf - -inf would be nan
    top = top.masked_fill(top == -torch.inf, 0.0)
    weights = (scores - top).exp()
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + (sink - top).exp()
    weights = weights / total.masked_fill(total == 0, 1.0)
    return weights, top.squeeze(-1), total.squeeze(-1)


def _weighted(weights: Tensor, scores: Tensor, x: Tensors, pairs: Pairs) -> Tensor:
    """Return the values by their weights, and the rows of `rel_value` by theirs."""
    value = x["value"]
    if pairs.seen is not None or "attn_mask" in x or "rel_bias" in x:
        # what no query sees may be nan, as padding of a cache
        is_seen = (scores != -torch.inf).any(-2)
        value = value.masked_fill(~is_seen.unsqueeze(-1), 0.0)
    out = weights @ value
    table = x.get("rel_value")
    if table is None:
        return out
    for at, inside in pairs.rows["rel_value"]:
        of_rows = weights if inside is None else weights.masked_fill(~inside, 0.0)
        # of each query the sum of the weights of the pairs that use a row
        by_row = weights.new_zeros(*weights.shape[:-1], table.shape[-2])
        by_row = by_row.scatter_add(-1, at.expand(weights.shape), of_rows)
        out = out + by_row @ table
    return out


# ---- the keys that an indexer picks ------------------------------------------------


@decomposed("indexer_top_k")
def indexer_top_k(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_offset: Tensor | None,
    key_ranges: Tensor | None,
    key_lengths: Tensor | None,
    attn_mask: Tensor | None,
    k: int,
    is_causal: bool,
    num_threads: int | None,
) -> Tensor:
    dtype = torch.promote_types(result_dtype([query, key, weights]), torch.float32)
    products = (query.to(dtype) @ key.to(dtype).unsqueeze(-3).mT).relu()
    scores = (weights.to(dtype).unsqueeze(-1) * products).sum(-3)
    given = {
        "query": query,
        "key": key,
        "query_offset": query_offset,
        "key_ranges": key_ranges,
        "key_lengths": key_lengths,
    }
    x = {name: tensor for name, tensor in given.items() if tensor is not None}
    values: Values = {"is_causal": is_causal, "window": (None, None)}
    if is_causal:
        _check_offset(x, values)
    seen = _seen(x, values, _relative(x, values))
    if seen is not None and seen.dim() > 2:
        seen = seen.squeeze(-3)  # an axis of heads, which a result lacks
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        seen = _both(seen, attn_mask)
    elif attn_mask is not None:
        seen = _both(seen, attn_mask != -torch.inf)
        scores = scores + _finite(_in_dtype(attn_mask, dtype), dtype)
    # what is nan comes after all numbers, and what is hidden after that
    least = scalar(torch.finfo(dtype).min, scores)
    scores = torch.where(scores.isnan(), least, scores)
    if seen is not None:
        shape = torch.broadcast_shapes(scores.shape, seen.shape)
        seen = seen.expand(shape)
        scores = scores.expand(shape).masked_fill(~seen, -torch.inf)
    # of equal scores ONNX takes the smaller key first
    picks = scores.topk(torch.sym_min(k, key.shape[-2]), dim=-1).indices
    if seen is not None:
        picks = picks.masked_fill(~seen.gather(-1, picks), -1)
    return picks.to(torch.int32)
