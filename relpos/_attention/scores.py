"""Scores of every pair, which the fused kernels never store: to look and to check."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from relpos._attention.attention import DEFAULTS
from relpos._attention.operands import LABELLED, ROWS, Call, read
from relpos._attention.problem import (
    Problem,
    as_first,
    look_at_mask,
    offsets_of,
    prepare,
)
from relpos._attention.rules import BEYOND, UNBOUNDED, Numbers, facts_of
from relpos._attention.schemes import (
    relative_global_settings,
    shaw_attention,
    shows_keywords,
    transformer_xl_settings,
)
from relpos._checks import (
    Array,
    as_flag,
    as_floating,
    as_generator,
    as_real,
    check_bytes,
    check_keywords,
    quiet,
    singles,
)
from relpos._settings import choose_num_threads, kernels
from relpos._twins import twin

if TYPE_CHECKING:
    from typing import Literal, Unpack

    from numpy.typing import ArrayLike

    from relpos._attention.keywords import Off, ScoresKeywords

__all__ = ["scores", "shaw_scores", "skewed_scores", "transformer_xl_scores"]

#: Parameters of `attention` that say nothing of its logits, or are other results.
OTHERS = ("value", "return_lse", "return_weights", "return_context", "out")


@overload
def scores(
    query: ArrayLike,
    key: ArrayLike,
    *,
    terms: Off = False,
    **keywords: Unpack[ScoresKeywords],
) -> Array: ...
@overload
def scores(
    query: ArrayLike,
    key: ArrayLike,
    *,
    terms: Literal[True],
    **keywords: Unpack[ScoresKeywords],
) -> dict[str, Array]: ...
@overload
def scores(
    query: ArrayLike,
    key: ArrayLike,
    *,
    terms: bool,
    **keywords: Unpack[ScoresKeywords],
) -> Array | dict[str, Array]: ...
@shows_keywords(OTHERS)
@quiet
def scores(
    query: ArrayLike,
    key: ArrayLike,
    *,
    terms: bool = False,
    **keywords: Unpack[ScoresKeywords],
) -> Array | dict[str, Array]:
    r"""Logits of `attention`, of every pair, whole or term by term.

    .. math::

        s_{ij} = scale \left[(q_i + u) k_j + (q_i + v) A_l + k_j C_l\right]
                 + b_l + \textstyle\sum_{t=j+1}^{i + query\_offset} g_t + mask_{ij},
                 \quad p_{ij} = e^{s_{ij}} / \sum_j e^{s_{ij}}

    with the letters of `attention`, whose weights are these p: -inf where the pair is
    hidden. They take O(Lq Lk) memory, in the dtype in which `attention` computes.

    Parameters
    ----------
    query, key : array_like
        (..., H, Lq, D) and (..., Hk, Lk, D), as in `attention`.
    terms : bool, default False
        Return what the logits are the sum of, each by its name.
    **keywords
        Keywords of `attention`, by keyword only, but for `out` and the `return_*`. What
        acts on weights and values alone (`dropout_p`, `rel_value`, ..) is checked too.
        FIRE: `fire_bias` as `attn_mask`.

    Returns
    -------
    ndarray, (..., H, Lq, Lk), or dict of such by str
        The logits. With `terms`, those of the terms "content", "pos_bias_u", "rel_key",
        "pos_bias_v", "position_query" (in place of "rel_key"), "rel_query", "softcap"
        (what the cap adds to these), "rel_bias", "log_decay" and "mask" that the call
        has, in this order, each times what it is multiplied by. They sum to the logits;
        if rounding under a `softcap` prevents that, it raises ValueError. "mask" has
        all that hides, as -inf, and the numbers of a floating `attn_mask`; where it
        hides, what is not finite in other terms is 0.

    See Also
    --------
    relpos.plot.attention_map : Draws them.

    Notes
    -----
    As in `attention`, finite numbers of `rel_bias` and `attn_mask` hide nothing: they
    are cut to a quarter of the largest number of the dtype.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155.

    Examples
    --------
    A bias by offset, and what causality hides:

    >>> import numpy as np
    >>> import relpos
    >>> x = np.eye(2)[None]
    >>> parts = relpos.scores(
    ...     x, x, terms=True, scale=1.0, rel_bias=[-0.5, 0.0, 9.0], is_causal=True
    ... )
    >>> parts["content"] + parts["rel_bias"]
    array([[[ 1. ,  9. ],
            [-0.5,  1. ]]])
    >>> sum(parts.values())
    array([[[ 1. , -inf],
            [-0.5,  1. ]]])
    """
    takes = [name for name in DEFAULTS if name not in OTHERS]
    check_keywords("scores", keywords, takes)
    tokens = {"query": as_floating("query", query), "key": as_floating("key", key)}
    call: Call = DEFAULTS | {**keywords} | tokens
    call["value"] = _without_numbers(call["key"], call["rel_value"])
    problem = prepare(call)
    look_at_mask(problem)
    problem = problem._replace(operands=_aligned(problem))
    # Arguments that act on weights alone are checked as `attention` checks them.
    if call["rng"] is not None:
        as_generator(call["rng"])
    choose_num_threads(call["num_threads"])
    with_terms = as_flag("terms", terms)
    sizes = problem.sizes
    shape = (*problem.batch, sizes.H, sizes.Lq, sizes.Lk)
    check_bytes("scores", shape, problem.dtype)
    offset = _for_items(problem, offsets_of(problem.inputs))
    relative = np.arange(sizes.Lk) - (np.arange(sizes.Lq)[:, None] + offset)
    products, logits = _products(problem, relative)
    added, hidden = _added(problem, relative), _hidden(problem, relative)
    zero, minus_infinity = problem.dtype.type(0), -problem.dtype.type(np.inf)
    if not with_terms:
        total = reduce(np.add, added.values(), logits)
        if hidden is not None:
            total = np.where(hidden, minus_infinity, total)
        return np.array(np.broadcast_to(total, shape))
    if "softcap" in products:
        _check_sum(problem, products, logits, hidden)
    summands = products | added
    if hidden is not None:
        # The sum of all terms is -inf where a pair is hidden: the mask has the -inf,
        # and no other term an infinity or a nan that would make the sum nan.
        for name, term in summands.items():
            if not np.isfinite(term).all():
                summands[name] = np.where(hidden & ~np.isfinite(term), zero, term)
        mask = summands.get("mask", zero)
        summands["mask"] = np.where(hidden, minus_infinity, mask)
    return {name: np.array(np.broadcast_to(x, shape)) for name, x in summands.items()}


def _without_numbers(key: Array, rel_value: ArrayLike | None) -> Array:
    """Return values of zeros, in the memory of one, in columns as `rel_value` has."""
    columns: tuple[int, ...] = (0,)
    if rel_value is not None:
        # one without axes has no columns, and is refused by its name
        columns = as_floating("rel_value", rel_value).shape[-1:] or columns
    shape = (*key.shape[:-1], *columns)
    check_bytes("rel_value", shape, key.dtype)
    return np.broadcast_to(key.dtype.type(0), shape)


def _aligned(problem: Problem) -> dict[str, Any]:
    """Return the operands, those of letters as (*batch, heads, rows, columns)."""
    operands = dict(problem.operands)
    for name in operands.keys() & ROWS.keys():
        letters = ROWS[name].letters
        if not letters:  # an integer of each batch item
            continue
        absent = [axis for axis in (-3, -2, -1) if letters[axis] == "1"]
        array = singles(operands[name])
        array = np.expand_dims(array.reshape(ROWS[name].whole(array.shape)), absent)
        # A table of all heads has no axis for them; rows and labels have any length.
        lengths = (1, 1, 1, *array.shape)[-3:]
        core = [
            problem.sizes.length(letter, length)
            for letter, length in zip(letters, lengths, strict=True)
        ]
        operands[name] = np.broadcast_to(array, (*problem.batch, *core))
    return operands


def _for_items(problem: Problem, integers: Array) -> Array:
    """Return integers of batch items, to be broadcast with (..., H, Lq, Lk)."""
    return np.broadcast_to(integers, problem.batch)[..., None, None, None]


def _rows(problem: Problem, name: str, relative: Array) -> list[Array]:
    """Rows of a table for each pair, negative where it has none."""
    operands = problem.operands
    labels = [operands[n] for n in LABELLED if n in operands]
    if labels:
        return [of_pairs.astype(np.int64) for of_pairs in labels]
    first = operands["min_relative_position"]
    if name == "rel_bias":  # which may be centred, while the others are not
        first = operands["min_bias_position"]
    rows = relative - first
    buckets = operands.get("buckets")
    count = operands[name].shape[-2] if buckets is None else len(buckets)
    inside = np.clip(rows, 0, count - 1)
    listed = inside if buckets is None else buckets[inside]
    if operands["beyond"]:  # 1: zeros beyond the table; 0: its outermost row
        return [np.where(rows == inside, listed, -1)]
    return [listed]


def _gather(by_row: Array, rows: list[Array]) -> Array:
    """Sum the entries of (..., H, Lq or 1, R) at the rows of each pair."""
    zero = by_row.dtype.type(0)
    parts = []
    for row in rows:
        entries = np.take_along_axis(by_row, np.maximum(row, 0), axis=-1)
        parts.append(np.where(row < 0, zero, entries))
    return reduce(np.add, parts)


def _transposed(array: Array) -> Array:
    return np.swapaxes(array, -1, -2)


def _products(problem: Problem, relative: Array) -> tuple[dict[str, Array], Array]:
    """Products with queries and keys, and their sum under the cap.

    One factor of each is scaled, as in the kernels, but for those of a position query.
    """
    x, scale = problem.operands, problem.operands["scale"]
    query, key = scale * x["query"], x["key"]
    if problem.sizes.Hk != problem.sizes.H:
        key = np.repeat(key, problem.sizes.H // problem.sizes.Hk, axis=-3)
    products = {"content": query @ _transposed(key)}
    if "pos_bias_u" in x:
        products["pos_bias_u"] = scale * x["pos_bias_u"] @ _transposed(key)
    if "rel_key" in x:
        table, rows = _transposed(x["rel_key"]), _rows(problem, "rel_key", relative)
        # A position query replaces the query here, and is not scaled.
        has_position_query = "position_query" in x
        if not has_position_query:
            products["rel_key"] = _gather(query @ table, rows)
        if "pos_bias_v" in x:
            v = x["pos_bias_v"] if has_position_query else scale * x["pos_bias_v"]
            products["pos_bias_v"] = _gather(v @ table, rows)
        if has_position_query:
            products["position_query"] = _gather(x["position_query"] @ table, rows)
    if "rel_query" in x:
        # Rows meet keys: the pairs are gathered as (key, query).
        rows = _rows(problem, "rel_query", relative)
        by_key = key @ _transposed(scale * x["rel_query"])
        by_key = _gather(by_key, [_transposed(row) for row in rows])
        products["rel_query"] = _transposed(by_key)
    total = reduce(np.add, products.values())
    cap = x.get("softcap")
    if cap is None:
        return products, total
    capped = cap * np.tanh(total / cap)
    return products | {"softcap": capped - total}, capped


def _check_sum(
    problem: Problem, products: dict[str, Array], logits: Array, hidden: Array | None
) -> None:
    """Refuse terms that do not sum to visible logits: the cap is lost in rounding."""
    total, cap = reduce(np.add, products.values()), problem.operands["softcap"]
    limit = max(1.0, cap) * np.sqrt(np.finfo(problem.dtype).eps)
    is_lost = np.isfinite(logits) & ~(np.abs(total - logits) <= limit)
    if hidden is not None:
        is_lost = is_lost & ~hidden
    if is_lost.any():
        raise ValueError(
            f"terms: got True where, under softcap={cap}, products are too large for "
            f"their sum in {problem.dtype} to be the logits; expected terms=False"
        )


def _added(problem: Problem, relative: Array) -> dict[str, Array]:
    """Return the terms that are added to the products, by name."""
    x = problem.operands
    added = {}
    if "rel_bias" in x:
        bias = _cut(_transposed(x["rel_bias"]), problem)
        added["rel_bias"] = _gather(bias, _rows(problem, "rel_bias", relative))
    if "log_decay" in x:
        added["log_decay"] = _decay(_transposed(x["log_decay"]), problem, relative)
    if "attn_mask" in x and x["attn_mask"].dtype.kind != "b":
        added["mask"] = _cut(x["attn_mask"], problem)
    return added


def _decay(steps: Array, problem: Problem, relative: Array) -> Array:
    """Sums of (..., H, 1, Lk) in float64, from each query's position backwards."""
    before_query = np.where(relative <= 0, steps.astype(np.float64), 0.0)
    from_key = np.cumsum(before_query[..., ::-1], axis=-1)[..., ::-1]
    # The step of the key itself is not part of its sum.
    sums = np.zeros_like(from_key)
    sums[..., :-1] = from_key[..., 1:]
    return _cut(sums, problem)


def _cut(array: Array, problem: Problem) -> Array:
    """Cut finite numbers so that their sums are finite, in the dtype of computation."""
    # A quarter: a bias, a sum of decay and a mask may all be as large.
    largest = float(np.finfo(problem.dtype).max) / 4
    cut = np.where(np.isinf(array), array, np.clip(array, -largest, largest))
    return cut.astype(problem.dtype)


def _hidden(problem: Problem, relative: Array) -> Array | None:
    """True where a pair is hidden, None where the call has nothing that hides."""
    x = problem.operands
    left, right = x["window_left"], x["window_right"]
    rules = []
    if (left, right) != (UNBOUNDED, UNBOUNDED):
        rules.append((relative < -left) | (relative > right))
    if "key_ranges" in x:
        begin, end = x["key_ranges"][..., :1], x["key_ranges"][..., 1:]
        at = np.arange(problem.sizes.Lk)
        rules.append((at < begin) | (at >= end))
    if "key_lengths" in x:
        lengths = _for_items(problem, problem.inputs["key_lengths"])
        rules.append(np.arange(problem.sizes.Lk) >= lengths)
    if "key_blocks" in x:
        rules.append(~spread_blocks(problem))
    if "rel_bias" in x:
        hides = np.isneginf(x["rel_bias"])
        if hides.any():
            rows = _rows(problem, "rel_bias", relative)
            rules.append(_gather(_transposed(hides), rows))
    if "attn_mask" in x:
        mask = x["attn_mask"]
        rules.append(~mask if mask.dtype.kind == "b" else np.isneginf(mask))
    return reduce(np.logical_or, rules) if rules else None


def spread_blocks(problem: Problem) -> Array:
    """Return `key_blocks` for each pair, (..., H, Lq, Lk), of which some are 1."""
    x, sizes = problem.operands, problem.sizes
    blocks: Array = x["key_blocks"]
    lengths = sizes.H, sizes.Lq, sizes.Lk
    names = "block_heads", "block_queries", "block_keys"
    for axis, (length, name) in enumerate(zip(lengths, names, strict=True), -3):
        blocks = np.take(blocks, np.arange(length) // x[name], axis=axis)
    return blocks


# ---- of schemes, by the kernels ----------------------------------------------------


def _floating(**arrays: object) -> dict[str, Array]:
    """Return the arrays of a function by their names, checked to be floating."""
    return {name: as_floating(name, array) for name, array in arrays.items()}


@quiet
def _by_kernel(
    kernel: str,
    inputs: dict[str, Array],
    *extra: int,
    scale: float | None,
    query_offset: ArrayLike | None,
    min_relative_position: int | None = None,
    row_0: int | None = None,
) -> Array:
    """Check the arguments as `attention` does, and run a kernel on (*batch, H) items.

    `inputs` are the arrays in the order of the kernel's arguments, which end with
    `extra`. A table that begins elsewhere than at `row_0`, where the kernel takes it to
    begin, moves the offsets: only the difference between a pair and row 0 counts.
    """
    # `attention` also checks a value, of which scores know nothing: the key serves.
    call = {**inputs, "value": inputs["key"], "query_offset": query_offset}
    arrays, sizes, _ = read(call)
    first = as_first(min_relative_position)
    scale = None if scale is None else as_real("scale", scale)
    numbers = Numbers(BEYOND["zero"], first=first, scale=scale)
    facts = facts_of(arrays, sizes, numbers)
    offsets = offsets_of(arrays)[..., None]
    if row_0 is not None:
        offsets = offsets + (facts.numbers["min_relative_position"] - row_0)
    scores: Array = getattr(kernels(), kernel)(
        *inputs.values(),
        facts.numbers["scale"],
        offsets,
        *extra,
        dtype=facts.dtype,
    )
    return scores.astype(facts.out_dtype, copy=False)


@twin(shaw_attention)
def shaw_scores(
    query: ArrayLike,
    key: ArrayLike,
    rel_key: ArrayLike,
    *,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
) -> Array:
    r"""Scores of `shaw_attention`, scaled and not masked.

    .. math::

        s_{ij} = scale \; q_i (k_j + a^K_r), \quad
        r = clip(j - i - query\_offset, -k, k)

    Parameters
    ----------
    query, key : array_like of float
        (..., H, Lq, D) and (..., H, Lk, D), a row for each query and key.
    rel_key : array_like of float, (2k+1, D), (H, 2k+1, D) or (..., H, 2k+1, D)
        Row t of a^K belongs to relative position t - k.
    scale : float, optional
        1/sqrt(D) where it is None.
    query_offset : int or array_like of int, (...), optional
        Position of query 0 minus that of key 0; None is 0 where Lq == Lk.

    Returns
    -------
    ndarray, (..., H, Lq, Lk)
        Scores of every pair, before any mask.

    Examples
    --------
    Keys of zero leave the position term, here r clipped to 1:

    >>> import numpy as np
    >>> import relpos
    >>> query, key = np.ones((1, 3, 1)), np.zeros((1, 3, 1))
    >>> relpos.shaw_scores(query, key, [[-1.0], [0.0], [1.0]])
    array([[[ 0.,  1.,  1.],
            [-1.,  0.,  1.],
            [-1., -1.,  0.]]])
    """
    inputs = _floating(query=query, key=key, rel_key=rel_key)
    return _by_kernel("shaw_scores", inputs, scale=scale, query_offset=query_offset)


def skewed_scores(
    query: ArrayLike,
    key: ArrayLike,
    rel_key: ArrayLike,
    *,
    is_causal: bool,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
    min_relative_position: int | None = None,
) -> Array:
    r"""Scores of `relative_global_attention`, scaled and not masked.

    .. math:: s_{ij} = scale \; q_i (k_j + e_r), \quad r = j - i - query\_offset

    with :math:`e_r = 0` where r lies outside the table. For ``is_causal=True`` and
    j <= i this is the skewed :math:`Q E_r^T` plus :math:`Q K^T`; the wrapped entries
    of the skew are 0 here.

    Parameters
    ----------
    query, key : as in `shaw_scores`
        One row for each query, and for each key.
    rel_key : array_like of float, (R, D), (H, R, D) or (..., H, R, D)
        Row t of e belongs to relative position t - (R - 1) if `is_causal`, else to
        t - (R - 1) / 2.
    is_causal : bool
        If True, the last row of the table belongs to relative position 0. If False, the
        middle row does. No score is masked in either case.
    scale, query_offset : as in `shaw_scores`
        Factor of the scores, and position of query 0 minus that of key 0.
    min_relative_position : int, optional
        Relative position of row 0. If it is given, the position of the table does not
        follow from `is_causal`.

    Returns
    -------
    ndarray, (..., H, Lq, Lk)
        Scores of every pair, before any mask.

    Raises
    ------
    ValueError
        R is even with neither `is_causal` nor `min_relative_position`, or Lq != Lk and
        no `query_offset` is given.

    References
    ----------
    .. [1] Huang et al., "Music Transformer", 2018, arXiv:1809.04281, equation 3.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> query, key = np.ones((1, 3, 1)), np.zeros((1, 3, 1))
    >>> relpos.skewed_scores(query, key, [[7.0], [8.0], [9.0]], is_causal=True)
    array([[[9., 0., 0.],
            [8., 9., 0.],
            [7., 8., 9.]]])
    """
    inputs = _floating(query=query, key=key, rel_key=rel_key)
    place = {
        "is_causal": is_causal,
        "min_relative_position": min_relative_position,
    }
    settings = relative_global_settings(inputs["rel_key"], place)
    return _by_kernel(
        "skewed_scores",
        inputs,
        0,  # the relative position of row 0, which this kernel takes as an argument
        scale=scale,
        query_offset=query_offset,
        min_relative_position=settings["min_relative_position"],
        row_0=0,
    )


def transformer_xl_scores(
    query: ArrayLike,
    key: ArrayLike,
    rel_key: ArrayLike,
    pos_bias_u: ArrayLike,
    pos_bias_v: ArrayLike,
    *,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
    min_relative_position: int | None = None,
) -> Array:
    r"""Scores of `transformer_xl_attention`, scaled and not masked.

    .. math::

        s_{ij} = scale \, [(q_i + u) k_j + (q_i + v) R_r], \quad
        r = j - i - query\_offset

    with :math:`R_r = 0` where r lies outside the table.

    Parameters
    ----------
    query, key : as in `shaw_scores`
        One row for each query, and for each key; keys begin with the memory.
    rel_key : array_like of float, (R, D), (H, R, D) or (..., H, R, D)
        The projected R: row t belongs to relative position t - (Lk - 1), where R is
        Lk, Lk + Lq - 1 or 2 Lk - 1. A table of any other length needs
        `min_relative_position`.
    pos_bias_u, pos_bias_v : array_like of float, (D,) or (H, D)
        Biases u of the content term and v of the position term.
    scale : as in `shaw_scores`
        Factor of the scores.
    query_offset : int or array_like of int, (...), optional
        Position of query 0 minus that of key 0; Lk - Lq, the length of the memory,
        where it is None.
    min_relative_position : int, optional
        Relative position of row 0, instead of -(Lk - 1).

    Returns
    -------
    ndarray, (..., H, Lq, Lk)
        Scores of every pair, before any mask.

    Raises
    ------
    ValueError
        Neither R nor `min_relative_position` tells the relative position of row 0.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL", 2019, arXiv:1901.02860, section 3.3.

    Examples
    --------
    One query after a memory of two keys; v alone meets the rows of R:

    >>> import numpy as np
    >>> import relpos
    >>> query, key = np.zeros((1, 1, 1)), np.zeros((1, 3, 1))
    >>> rel_key = [[-2.0], [-1.0], [0.0]]
    >>> relpos.transformer_xl_scores(query, key, rel_key, [0.0], [1.0])
    array([[[-2., -1.,  0.]]])
    """
    inputs = _floating(
        query=query,
        key=key,
        rel_key=rel_key,
        pos_bias_u=pos_bias_u,
        pos_bias_v=pos_bias_v,
    )
    place = {
        "query_offset": query_offset,
        "min_relative_position": min_relative_position,
    }
    settings = transformer_xl_settings(
        inputs["query"], inputs["key"], inputs["rel_key"], place
    )
    return _by_kernel(
        "transformer_xl_scores",
        inputs,
        scale=scale,
        query_offset=settings["query_offset"],
        min_relative_position=settings["min_relative_position"],
        row_0=1 - inputs["key"].shape[-2],
    )
