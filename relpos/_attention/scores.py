"""Scores of every pair, which the fused kernels never store: to look and to check."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from relpos._attention.attention import DEFAULTS
from relpos._attention.operands import LABELLED, ROWS, Call, read
from relpos._attention.problem import (
    UNBOUNDED,
    Problem,
    as_scale,
    check_items,
    look_at_mask,
    offsets_of,
    place_tables,
    prepare,
)
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
    problem = problem._replace(operands=_whole(problem))
    if call["rng"] is not None:
        as_generator(call["rng"])
    choose_num_threads(call["num_threads"])
    with_terms = as_flag("terms", terms)
    sizes = problem.sizes
    shape = (*problem.batch, sizes.H, sizes.Lq, sizes.Lk)
    check_bytes("scores", shape, problem.dtype)
    offset = _for_items(problem, offsets_of(problem.inputs))
    relative = np.arange(sizes.Lk) - (np.arange(sizes.Lq)[:, None] + offset)
    found, logits = _products(problem, relative)
    added, hidden = _added(problem, relative), _hidden(problem, relative)
    none, absent = problem.dtype.type(0), -problem.dtype.type(np.inf)
    if not with_terms:
        total = reduce(np.add, added.values(), logits)
        total = total if hidden is None else np.where(hidden, absent, total)
        return np.array(np.broadcast_to(total, shape))
    if "softcap" in found:
        _check_sum(problem, found, logits, hidden)
    found |= added
    if hidden is not None:  # the mask hides alone: others are finite there
        for name, term in found.items():
            if not np.isfinite(term).all():
                found[name] = np.where(hidden & ~np.isfinite(term), none, term)
        found["mask"] = np.where(hidden, absent, found.get("mask", none))
    return {name: np.array(np.broadcast_to(x, shape)) for name, x in found.items()}


def _without_numbers(key: Array, rel_value: ArrayLike | None) -> Array:
    """Return values of zeros, in the memory of one, in columns as `rel_value` has."""
    columns: tuple[int, ...] = (0,)
    if rel_value is not None:
        columns = as_floating("rel_value", rel_value).shape[-1:]
    shape = (*key.shape[:-1], *columns)
    check_bytes("rel_value", shape, key.dtype)
    return np.broadcast_to(key.dtype.type(0), shape)


def _whole(problem: Problem) -> dict[str, Any]:
    """Return the operands, those of letters as (*batch, heads, rows, columns)."""
    found = {**problem.operands}
    for name in found.keys() & ROWS.keys():
        if letters := ROWS[name].letters:
            lacking = [at for at in (-3, -2, -1) if letters[at] == "1"]
            array = np.expand_dims(singles(found[name]), lacking)
            own = zip(letters, (1, 1, 1, *array.shape)[-3:], strict=True)
            core = (problem.sizes.length(letter, n) for letter, n in own)
            found[name] = np.broadcast_to(array, (*problem.batch, *core))
    return found


def _for_items(problem: Problem, integers: Array) -> Array:
    """Return integers of batch items, to be broadcast with (..., H, Lq, Lk)."""
    return np.broadcast_to(integers, problem.batch)[..., None, None, None]


def _rows(problem: Problem, name: str, relative: Array) -> list[Array]:
    """Rows of a table for each pair, negative where it has none."""
    operands = problem.operands
    if labels := [operands[n] for n in LABELLED if n in operands]:
        return [of_pairs.astype(np.int64) for of_pairs in labels]
    of = "min_bias_position" if name == "rel_bias" else "min_relative_position"
    rows = relative - operands[of]
    inside = np.clip(rows, 0, operands[name].shape[-2] - 1)
    return [np.where(rows == inside, rows, -1) if operands["beyond"] else inside]


def _gather(by_row: Array, rows: list[Array]) -> Array:
    """Sum the entries of (..., H, Lq or 1, R) at the rows of each pair."""
    none = by_row.dtype.type(0)
    parts = (
        np.where(r < 0, none, np.take_along_axis(by_row, np.maximum(r, 0), axis=-1))
        for r in rows
    )
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
    found = {"content": query @ _transposed(key)}
    if "pos_bias_u" in x:
        found["pos_bias_u"] = scale * x["pos_bias_u"] @ _transposed(key)
    if "rel_key" in x:
        table, rows = _transposed(x["rel_key"]), _rows(problem, "rel_key", relative)
        own = "position_query" in x
        if not own:
            found["rel_key"] = _gather(query @ table, rows)
        if "pos_bias_v" in x:
            v = x["pos_bias_v"] if own else scale * x["pos_bias_v"]
            found["pos_bias_v"] = _gather(v @ table, rows)
        if own:
            found["position_query"] = _gather(x["position_query"] @ table, rows)
    if "rel_query" in x:
        rows = _rows(problem, "rel_query", relative)
        by_key = key @ _transposed(scale * x["rel_query"])
        by_key = _gather(by_key, [_transposed(r) for r in rows])
        found["rel_query"] = _transposed(by_key)
    total = reduce(np.add, found.values())
    if (cap := x.get("softcap")) is None:
        return found, total
    capped = cap * np.tanh(total / cap)
    return found | {"softcap": capped - total}, capped


def _check_sum(
    problem: Problem, found: dict[str, Array], logits: Array, hidden: Array | None
) -> None:
    """Refuse terms that do not sum to visible logits: the cap is lost in rounding."""
    total, cap = reduce(np.add, found.values()), problem.operands["softcap"]
    limit = max(1.0, cap) * np.sqrt(np.finfo(problem.dtype).eps)
    lost = np.isfinite(logits) & ~(np.abs(total - logits) <= limit)
    if (lost if hidden is None else lost & ~hidden).any():
        raise ValueError(
            f"terms: got True where, under softcap={cap}, products are too large for "
            f"their sum in {problem.dtype} to be the logits; expected terms=False"
        )


def _added(problem: Problem, relative: Array) -> dict[str, Array]:
    """The terms that are added to these."""
    x, found = problem.operands, {}
    if "rel_bias" in x:
        bias = _cut(_transposed(x["rel_bias"]), problem)
        found["rel_bias"] = _gather(bias, _rows(problem, "rel_bias", relative))
    if "log_decay" in x:
        found["log_decay"] = _decay(_transposed(x["log_decay"]), problem, relative)
    if "attn_mask" in x and x["attn_mask"].dtype.kind != "b":
        found["mask"] = _cut(x["attn_mask"], problem)
    return found


def _decay(steps: Array, problem: Problem, relative: Array) -> Array:
    """Sums of (..., H, 1, Lk) in float64, from each query's position backwards."""
    passed = np.where(relative <= 0, steps.astype(np.float64), 0.0)
    total = np.cumsum(passed[..., ::-1], axis=-1)[..., ::-1]
    sums = np.zeros_like(total)  # of the steps after each key
    sums[..., :-1] = total[..., 1:]
    return _cut(sums, problem)


def _cut(array: Array, problem: Problem) -> Array:
    """Cut finite numbers so that their sums are finite, in the dtype of computation."""
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
    if "rel_bias" in x and (bias := np.isneginf(x["rel_bias"])).any():
        rules.append(_gather(_transposed(bias), _rows(problem, "rel_bias", relative)))
    if "attn_mask" in x:
        mask = x["attn_mask"]
        rules.append(~mask if mask.dtype.kind == "b" else np.isneginf(mask))
    return reduce(np.logical_or, rules) if rules else None


# ---- of schemes, by the kernels ----------------------------------------------------


#: Arrays of these functions, in the order of the kernels' arguments.
_INPUTS = ("query", "key", "rel_key", "pos_bias_u", "pos_bias_v")


def _read(given: Call) -> Call:
    """Return the arguments of a function, its arrays checked."""
    return given | {n: as_floating(n, given[n]) for n in _INPUTS if n in given}


@quiet
def _by_kernel(kernel: str, given: Call, row_0: int | None, *extra: int) -> Array:
    """Check the arguments as `attention` does, and run a kernel on (*batch, H) items.

    A table that begins elsewhere than at `row_0`, where the kernel takes it to begin,
    moves the offsets: only the difference between a pair and row 0 counts.
    """
    inputs = {name: given[name] for name in _INPUTS if name in given}
    call = {**inputs, "value": inputs["key"], "query_offset": given["query_offset"]}
    arrays, sizes, _, dtype, out_dtype, _ = read(call)
    table, minimum = {"rel_key": inputs["rel_key"]}, given.get("min_relative_position")
    first = place_tables(table, minimum, None, "zero").vectors.start
    check_items(arrays, ["rel_key"], sizes)
    scores: Array = getattr(kernels(), kernel)(
        *inputs.values(),
        as_scale(given["scale"], sizes.D, dtype),
        offsets_of(arrays)[..., None] + (0 if row_0 is None else first - row_0),
        *extra,
        dtype=dtype,
    )
    return scores.astype(out_dtype, copy=False)


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
    return _by_kernel("shaw_scores", _read(locals()), None)


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
        Where the table lies; nothing is masked either way.
    scale, query_offset : as in `shaw_scores`
        Factor of the scores, and position of query 0 minus that of key 0.
    min_relative_position : int, optional
        Relative position of row 0, instead of those.

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
    given = _read(locals())
    given = relative_global_settings(given["rel_key"], given)
    return _by_kernel("skewed_scores", given, 0, 0)


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
    given = _read(locals())
    tokens = given["query"], given["key"]
    given = transformer_xl_settings(*tokens, given["rel_key"], given)
    return _by_kernel("transformer_xl_scores", given, 1 - given["key"].shape[-2])
