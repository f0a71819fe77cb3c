"""Models of text and documents: biases by bucket, tables of vectors, segments."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, overload

import numpy as np

from relpos._biases import deberta_bucket, t5_bucket, t5_rows
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    ArrayLike,
    as_array,
    as_choice,
    as_flag,
    as_integers,
    check_memory,
    check_shape as check_fits,
    quiet,
    widened,
    wrong_dtype,
)
from relpos._tensors import is_tensor
from relpos._twins import twin
from relpos.nn._inputs import check_shape
from relpos.recipes._recipe import (
    Arrays,
    Keywords,
    Recipe,
    as_length,
    as_query,
    as_shaped,
    as_table,
    check_buckets,
)
from relpos.recipes._tensors import (
    AnyTensor,
    Tensor,
    as_plain,
    doubles,
    in_common_dtype,
    like,
    on_tensors,
    singles_or_doubles,
    transposed,
)
from relpos.reference._xp import namespace

__all__ = ["bert", "deberta", "layoutlmv3", "longt5_local"]
__all__ += ["mpnet", "t5", "umt5", "xlnet", "xlnet_segments"]

# ---- biases by T5's buckets ----------------------------------------------------------


@on_tensors
def t5(
    weight: ArrayLike,
    *,
    num_buckets: int | None = None,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Keywords:
    r"""T5's bias by bucket, without scaling of the scores.

    .. math:: s_{ij} = q_i k_j + weight_{bucket(j - i), h}

    Parameters
    ----------
    weight : array_like, (num_buckets, H)
        ``relative_attention_bias.weight``; its gradient is that of rel_bias,
        transposed. 32 columns with another number of rows look like T5's 32 buckets
        transposed and need `num_buckets`.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    bidirectional : bool, default True
        True in the encoder, False in the decoder, which is causal as well.
    max_distance : int, default 128
        As in `relpos.t5_bucket`.

    Returns
    -------
    dict
        `rel_bias`, `buckets` and `scale`, right for any lengths and query_offset:
        everything beyond max_distance has the bucket of max_distance.

    See Also
    --------
    relpos.t5_bias : The bias written out for a length.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 2.1.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.t5(np.zeros((32, 8)), bidirectional=False)
    >>> keywords["rel_bias"].shape, keywords["scale"]
    ((8, 32), 1.0)
    """
    table = as_table("weight", weight, "(num_buckets, H)")
    rows = t5_rows((*table.shape,), num_buckets, bidirectional)
    reach = as_length("max_distance", max_distance)
    check_memory("max_distance", (2 * reach + 1,), np.dtype(np.int64))
    # The bucket of max_distance is that of everything beyond, and `attention` clips to
    # the end rows, so that these relative positions are enough for any length.
    offsets = np.arange(-reach, reach + 1)
    sizes = {"num_buckets": rows, "max_distance": reach}
    buckets = t5_bucket(offsets, bidirectional=bidirectional, **sizes)
    return {"rel_bias": transposed(table), "buckets": buckets, "scale": 1.0}


@on_tensors
def mpnet(
    weight: ArrayLike, *, num_buckets: int | None = None, max_distance: int = 128
) -> Keywords:
    r"""MPNet's bias by bucket: T5's, with scores that are scaled.

    .. math:: s_{ij} = q_i k_j / \sqrt D + weight_{bucket(j - i), h}

    Parameters
    ----------
    weight : array_like, (num_buckets, H)
        ``relative_attention_bias.weight`` of the encoder, shared by all layers; its
        gradient is that of rel_bias, transposed.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    max_distance : int, default 128
        As in `relpos.t5_bucket`.

    Returns
    -------
    dict
        `rel_bias` and `buckets`, right for any lengths.

    References
    ----------
    .. [1] Song et al., "MPNet: Masked and Permuted Pre-training for Language
       Understanding", 2020, arXiv:2004.09297.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> sorted(recipes.mpnet(np.zeros((32, 12))))
    ['buckets', 'rel_bias']
    """
    keywords = t5(weight, num_buckets=num_buckets, max_distance=max_distance)
    del keywords["scale"]  # 1 / sqrt(D), the default
    return keywords


@twin(t5)
@on_tensors
def umt5(
    weight: ArrayLike,
    *,
    num_buckets: int | None = None,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Keywords:
    """UMT5's bias by bucket: T5's, with a weight in every layer.

    References
    ----------
    .. [1] Chung et al., "UniMax: Fairer and more Effective Language Sampling for
       Large-Scale Multilingual Pretraining", 2023, arXiv:2304.09151.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.umt5(np.zeros((32, 6)), bidirectional=False)["scale"]
    1.0
    """
    return t5(
        weight,
        num_buckets=num_buckets,
        bidirectional=bidirectional,
        max_distance=max_distance,
    )


@on_tensors
def longt5_local(
    weight: ArrayLike,
    local_radius: int,
    *,
    length: int | None = None,
    num_buckets: int | None = None,
    max_distance: int = 128,
) -> Keywords:
    r"""LongT5's local attention: T5's bias within a radius.

    .. math:: s_{ij} = q_i k_j + weight_{bucket(j - i), h}, \quad |j - i| \le radius

    Parameters
    ----------
    weight : array_like, (num_buckets, H)
        ``relative_attention_bias.weight`` of the first layer, for all; its gradient is
        that of rel_bias, transposed.
    local_radius : int
        The farthest key that is visible on each side of a query, at least 1.
    length : int, optional
        Lq, at least 1, of a call without a mask, in which the model hides nothing: see
        Notes.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    max_distance : int, default 128
        As in `relpos.t5_bucket`.

    Returns
    -------
    dict
        `rel_bias`, `buckets`, `scale` and `window`; padding is left to key_lengths.
        With `length`, `key_ranges` and `query_offset` instead of the window.

    Notes
    -----
    Without a mask the keys that are visible to a query are its block of radius + 1
    tokens and the two next to it, zeros beyond the ends of the sequence included. With
    n the blocks that hold `length` tokens, pad keys and values with radius + 1 rows of
    zeros before, and behind up to (n + 2) (radius + 1) rows in all.

    References
    ----------
    .. [1] Guo et al., "LongT5: Efficient Text-To-Text Transformer for Long Sequences",
       2021, arXiv:2112.07916, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.longt5_local(np.zeros((32, 6)), 127)["window"]
    (127, 127)
    """
    radius = as_length("local_radius", local_radius)
    keywords = t5(weight, num_buckets=num_buckets, max_distance=max_distance)
    if length is None:
        return keywords | {"window": (radius, radius)}
    queries = as_length("length", length)
    check_memory("length", (queries, 2), np.dtype(np.int64))
    block = radius + 1
    # Blocks count from the first query. Keys are padded by a block before, so that the
    # range of padded keys begins with the block before the query's own.
    begin = np.arange(queries) // block * block
    ranges = np.stack([begin, begin + 3 * block], axis=-1)
    # The padding before the keys moves every query by one block against them.
    return keywords | {"key_ranges": ranges, "query_offset": block}


_BIASES = ("rel_pos_bias", "rel_pos_x_bias", "rel_pos_y_bias")


@on_tensors
@quiet
def layoutlmv3(
    rel_pos_bias: ArrayLike,
    rel_pos_x_bias: ArrayLike | None,
    rel_pos_y_bias: ArrayLike | None,
    position_ids: ArrayLike,
    bbox: ArrayLike,
    head_dim: int,
    *,
    max_rel_pos: int = 128,
    max_rel_2d_pos: int = 256,
) -> Recipe:
    r"""LayoutLMv3's three biases by T5's buckets, inside the scale.

    .. math::

        s_{ij} = \frac{q_i k_j + b_{h, bucket(p_j - p_i)} + b^x_{h, bucket'(x_j - x_i)}
        + b^y_{h, bucket'(y_j - y_i)}}{\sqrt D}

    with p the given positions, x the left edge of a token's box and y its bottom.

    Parameters
    ----------
    rel_pos_bias : array_like, (H, bins)
        ``rel_pos_bias.weight``: the biases by order, b.
    rel_pos_x_bias, rel_pos_y_bias : array_like, (H, bins'), or None
        ``rel_pos_x_bias.weight`` and ``rel_pos_y_bias.weight``; None in a model without
        spatial biases.
    position_ids : array_like of int, (..., L)
        The positions, p; they may repeat.
    bbox : array_like of int, (..., L, 4)
        Left, top, right, bottom.
    head_dim : int
        D, at least 1.
    max_rel_pos, max_rel_2d_pos : int
        ``max_distance`` of the buckets of positions and of coordinates.

    Returns
    -------
    Recipe
        `rel_bias`, the bins of all biases one after the other, and `labels`, a tuple of
        (..., L, L) for each.

    Raises
    ------
    ValueError
        If the bins leave no logarithmic range.

    Notes
    -----
    `transformers` computes the biases without gradient: there they do not learn.

    References
    ----------
    .. [1] Huang et al., "LayoutLMv3: Pre-training for Document AI with Unified Text and
       Image Masking", 2022, arXiv:2204.08387.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> biases = np.zeros((12, 32)), np.zeros((12, 64)), np.zeros((12, 64))
    >>> place = np.arange(5), np.zeros((5, 4), int)
    >>> keywords = recipes.layoutlmv3(*biases, *place, 64)
    >>> keywords["rel_bias"].shape, len(keywords["labels"])
    ((12, 160), 3)
    """
    tables = {"rel_pos_bias": as_shaped("rel_pos_bias", rel_pos_bias, "H", "bins")}
    heads = len(tables["rel_pos_bias"])
    for name, value in zip(_BIASES[1:], (rel_pos_x_bias, rel_pos_y_bias), strict=True):
        if value is not None:
            tables[name] = as_shaped(name, value, heads, "bins")
    scale = as_length("head_dim", head_dim) ** -0.5
    places = _places(position_ids, bbox)
    reaches = {"max_rel_pos": max_rel_pos, "max_rel_2d_pos": max_rel_2d_pos}
    # Rows of the joined table: those of the first bias, then of x and of y.
    labels, first = [], 0
    for name, table in tables.items():
        # Key minus query for each pair, as T5's buckets have it.
        relative = places[name][..., None, :] - places[name][..., :, None]
        count = table.shape[1]
        check_buckets(name, table, count)
        reach = "max_rel_pos" if name == "rel_pos_bias" else "max_rel_2d_pos"
        # Half of the buckets are for one direction, and half of those hold one distance
        # each. The logarithmic range begins beyond these, so that max_distance is
        # larger.
        farthest = as_length(reach, reaches[reach], count // 4 + 1)
        bucket = t5_bucket(relative, num_buckets=count, max_distance=farthest)
        # Labels are arrays of L x L, for which int32 takes half of the memory.
        labels.append((bucket + first).astype(np.int32))
        first += count
    parts = [*map(doubles, tables.values())]
    # Attention does not scale a bias, and this model does, so that the table is scaled.
    joined = namespace(*parts).concatenate(parts, axis=1)
    biases = like(scale * joined, tables["rel_pos_bias"])
    keywords = {"rel_bias": biases, "labels": tuple(labels)}
    return Recipe(keywords, partial(_layoutlmv3_backward, tables, scale))


def _places(position_ids: object, bbox: object) -> Arrays:
    """Return the coordinate of every token for each bias, (..., L)."""
    given = {"position_ids": position_ids, "bbox": bbox}
    order, box = (as_integers(name, as_plain(name, x)) for name, x in given.items())
    check_shape("position_ids", order, ("...", "L"))
    check_shape("bbox", box, (*order.shape, 4))
    # A difference of two such numbers fits in int64.
    for name, array in (("position_ids", order), ("bbox", box)):
        if array.size and max(-int(array.min()), int(array.max())) > POSITION_LIMIT:
            raise ValueError(f"{name}: expected numbers of at most 2**60 in size")
    check_memory("position_ids", (*order.shape, order.shape[-1]), np.dtype(np.int64))
    return dict(zip(_BIASES, (order, box[..., 0], box[..., 3]), strict=True))


def _layoutlmv3_backward(tables: Arrays, scale: float, grads: Arrays) -> Arrays:
    widths = [table.shape[1] for table in tables.values()]
    parts = np.split(scale * grads["rel_bias"], np.cumsum(widths)[:-1], axis=1)
    pairs = zip(tables.items(), parts, strict=True)
    return {name: like(part, table) for (name, table), part in pairs}


# ---- tables of vectors ---------------------------------------------------------------


@on_tensors
def bert(distance_embedding: ArrayLike, *, key_query: bool = False) -> Keywords:
    r"""BERT's ``relative_key``, and with `key_query` its ``relative_key_query``.

    .. math::

        s_{ij} = \frac{q_i k_j + q_i e_{i - j} \; [+ \; k_j e_{i - j}]}{\sqrt D}

    The table counts query minus key, so `buckets` read it backwards.

    Parameters
    ----------
    distance_embedding : array_like, (2P-1, D)
        Row P - 1 + (i - j); P is max_position_embeddings. Farther positions take the
        end rows, where the model raises: pass ``beyond="raise"`` for that.
    key_query : bool, default False
        True adds the product of key and table. The gradient of the table is then that
        of rel_key plus that of rel_query.

    Returns
    -------
    dict
        `rel_key`, `rel_query` if `key_query`, and `buckets`.

    Notes
    -----
    With a cache the model gives every query the last position; `query_offset` gives
    each its own.

    References
    ----------
    .. [1] Huang et al., "Improve Transformer Models with Better Relative Position
       Embeddings", 2020, arXiv:2009.13658, methods 2 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> sorted(recipes.bert(np.zeros((7, 4)), key_query=True))
    ['buckets', 'rel_key', 'rel_query']
    """
    table = as_table("distance_embedding", distance_embedding, "(2P-1, D)")
    rows = table.shape[-2]
    # Row 0 is of i - j = -(P - 1), which is relative position P - 1, the largest one.
    keywords = {"rel_key": table, "buckets": np.arange(rows)[::-1]}
    if as_flag("key_query", key_query):
        keywords["rel_query"] = table
    return keywords


@on_tensors
def deberta(
    pos_key: ArrayLike | None = None,
    pos_query: ArrayLike | None = None,
    *,
    max_position: int | None = None,
) -> Keywords:
    r"""Disentangled attention of DeBERTa, versions 1 to 3.

    .. math::

        s_{ij} = \frac{q_i k_j + q_i K^r_t + k_j Q^r_t}{\sqrt{(1 + types) D}}, \quad
        t = clip(bucket(i - j) + span, \; 0, \; 2 \, span - 1)

    Each of the two terms needs its table, and counts as a type if it is given. The
    paper uses the bucket of j - i for the last one; its code and all models use i - j.

    Parameters
    ----------
    pos_key : array_like, (2 span, D) or (H, 2 span, D), optional
        K^r, projected: the content-to-position term.
    pos_query : array_like, shape of `pos_key`, optional
        Q^r, projected: the position-to-content term.
    max_position : int, optional
        ``max_relative_positions`` of a model with ``position_buckets = span``, large
        enough to leave a logarithmic range. None: one row for each distance, without
        buckets.

    Returns
    -------
    dict
        `rel_key`, `rel_query`, `buckets` and `scale`; empty without a table.

    References
    ----------
    .. [1] He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
       2020, arXiv:2006.03654, section 3.1.

    Examples
    --------
    Distances 2 and 3 behind share the last row, all others have their own:

    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.deberta(np.zeros((6, 4)))
    >>> keywords["buckets"]  # of relative positions -3..3
    array([5, 5, 4, 3, 2, 1, 0])
    """
    tables = {"rel_key": ("pos_key", pos_key), "rel_query": ("pos_query", pos_query)}
    expected = "(2 span, D) or (H, 2 span, D)"
    keywords: Keywords = {
        keyword: as_table(name, table, expected)
        for keyword, (name, table) in tables.items()
        if table is not None
    }
    if not keywords:
        return {}
    first = next(iter(keywords))
    # The first table gives the span; a second one has its shape.
    rows, dim = keywords[first].shape[-2:]
    expected += ", an even number of rows and D at least 1"
    fits = rows and rows % 2 == 0 and dim
    check_fits(tables[first][0], keywords[first], fits, expected)
    span = reach = rows // 2
    if max_position is not None:
        longest = as_length("max_position", max_position)
        reach = _farthest(span, longest)
        check_memory("max_position", (2 * reach + 1,), np.dtype(np.int64))
    bucket = distance = np.arange(reach, -reach - 1, -1)  # query minus key
    if max_position is not None:
        bucket = deberta_bucket(distance, bucket_size=span, max_position=longest)
    # Relative positions ascend in the buckets, so that query minus key descends.
    keywords["buckets"] = np.clip(bucket + span, 0, rows - 1)
    # Only terms whose table is given count as types, next to the content term.
    keywords["scale"] = ((1 + len(tables.keys() & keywords)) * dim) ** -0.5
    return keywords


def _farthest(span: int, longest: int) -> int:
    """Return a distance whose bucket is `span` or more, so that all beyond share a row.

    With m = span // 2, buckets reach 2 m at `longest`. An odd span is one more.
    """
    m, last = span // 2, longest - 1
    if span % 2 == 0 or not 1 < m < last:  # which deberta_bucket refuses
        return longest
    return math.ceil(m * math.pow(last / m, m / (m - 1))) + 1


# ---- XLNet ---------------------------------------------------------------------------


@on_tensors
def xlnet(
    query_length: int,
    key_length: int,
    rel_key: ArrayLike,
    pos_bias_u: ArrayLike,
    pos_bias_v: ArrayLike,
) -> Keywords:
    r"""XLNet's content stream: Transformer-XL with a table of one row more.

    .. math::

        s_{ij} = \frac{(q_i + u) k_j + (q_i + v) R_{L_k - d}}{\sqrt D}, \quad
        d = i + L_k - L_q - j

    Parameters
    ----------
    query_length, key_length : int
        Lq and Lk, 0 or more; keys begin with the memory.
    rel_key : array_like, (H, R, D) or (B, H, R, D)
        Projected positions, row p for distance Lk - p: R = Lk + Lq for attn_type "bi",
        Lk + 1 for "uni", which needs a causal mask. With ``bi_data`` the second half of
        the batch has tables of its own.
    pos_bias_u, pos_bias_v : array_like, (H, D)
        ``r_w_bias`` and ``r_r_bias``.

    Returns
    -------
    dict
        `rel_key`, `pos_bias_u`, `pos_bias_v`, `query_offset`, `min_relative_position`
        and ``beyond="raise"``. The term of segments is `xlnet_segments`.

    References
    ----------
    .. [1] Yang et al., "XLNet: Generalized Autoregressive Pretraining for Language
       Understanding", 2019, arXiv:1906.08237, section 2.4 and appendix A.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> zero = np.zeros((2, 4))
    >>> recipes.xlnet(3, 5, np.zeros((2, 8, 4)), zero, zero)["min_relative_position"]
    -5
    """
    queries = as_length("query_length", query_length, 0)
    keys = as_length("key_length", key_length, 0)
    table = as_table("rel_key", rel_key, "(H, R, D) or (B, H, R, D)")
    expected = f"(..., R, D) with R = {keys + queries} (bi) or {keys + 1} (uni)"
    fits = table.shape[-2] in (keys + queries, keys + 1)
    check_fits("rel_key", table, fits, expected)
    # Row p is of distance Lk - p, which is the relative position p - Lk.
    return {
        "rel_key": table,
        "pos_bias_u": as_table("pos_bias_u", pos_bias_u, "(H, D)"),
        "pos_bias_v": as_table("pos_bias_v", pos_bias_v, "(H, D)"),
        "query_offset": keys - queries,
        "min_relative_position": -keys,
        "beyond": "raise",
    }


@overload
def xlnet_segments(
    query: AnyTensor,
    segment_embed: AnyTensor,
    pos_bias_s: AnyTensor,
    different: AnyTensor,
    *,
    argument: None = None,
) -> AnyTensor: ...
@overload
def xlnet_segments(
    query: ArrayLike,
    segment_embed: ArrayLike,
    pos_bias_s: ArrayLike,
    different: ArrayLike,
    *,
    argument: None = None,
) -> Array: ...
@overload
def xlnet_segments(
    query: ArrayLike | Tensor,
    segment_embed: ArrayLike | Tensor,
    pos_bias_s: ArrayLike | Tensor,
    different: ArrayLike | Tensor,
    *,
    argument: str,
) -> Recipe: ...
@on_tensors
@quiet
def xlnet_segments(
    query: ArrayLike | Tensor,
    segment_embed: ArrayLike | Tensor,
    pos_bias_s: ArrayLike | Tensor,
    different: ArrayLike | Tensor,
    *,
    argument: str | None = None,
) -> Array | Tensor | Recipe:
    r"""XLNet's term of segments as a float mask, dense by nature.

    .. math:: mask_{ij} = (q_i + s) \, g_{different_{ij}} / \sqrt D

    Add it to the model's own mask and ask for the gradient of `attn_mask` by name. With
    d for `different` and G for that gradient,

    .. math::

        \bar q_i &= \sum_j G_{ij} \, g_{d_{ij}} / \sqrt D, \quad
        \bar s = \sum_i \bar q_i \\
        \bar g_t &= \sum_{ij:\; d_{ij} = t} G_{ij} \, (q_i + s) / \sqrt D

    Parameters
    ----------
    query : array_like, (..., H, Lq, D)
        The query that attention is given.
    segment_embed : array_like, (2, H, D)
        The g of pairs in the same segment, then that of pairs in different ones.
    pos_bias_s : array_like, (H, D)
        ``r_s_bias``.
    different : array_like of bool, broadcasts to (..., H, Lq, Lk)
        True where query i and key j are in different segments.
    argument : {"attn_mask"}, optional
        Argument of `attention` that a recipe is wanted for, with its gradients.

    Returns
    -------
    ndarray, (..., H, Lq, Lk), or Recipe
        A floating `attn_mask`; with `argument`, a recipe of it.

    References
    ----------
    .. [1] Yang et al., "XLNet: Generalized Autoregressive Pretraining for Language
       Understanding", 2019, arXiv:1906.08237, section 2.5.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> given = np.ones((1, 1, 1)), [[[0.0]], [[-2.0]]], [[1.0]], [[False, True]]
    >>> recipes.xlnet_segments(*given)
    array([[[ 0., -4.]]])
    >>> recipe = recipes.xlnet_segments(*given, argument="attn_mask")
    >>> recipe.backward({"attn_mask": np.ones((1, 1, 2))})["query"]
    array([[[-2.]]])
    """
    q = as_query(query, "Lq")
    heads = q.shape[-3], q.shape[-1]
    g = as_shaped("segment_embed", segment_embed, 2, *heads)
    s = as_shaped("pos_bias_s", pos_bias_s, *heads)
    other = as_array("different", as_plain("different", different))
    if other.dtype != np.bool_:
        raise wrong_dtype("different", other, "bool")
    # Only the last axis of `different` decides on Lk; all others are those of the
    # query.
    expected = (*q.shape[:-1], other.shape[-1] if other.ndim else 1)
    try:
        other = np.broadcast_to(other, expected)
    except ValueError:
        raise ValueError(
            f"different: got shape {other.shape}; expected one that broadcasts to "
            f"{expected}, the query's axes and Lk"
        ) from None
    # A query has one number for each kind of pair, and a pair chooses between two
    # numbers.
    per_query = _of_segments(q, g, s)
    xp = namespace(per_query)
    mask = xp.where(other, per_query[1, ..., None], per_query[0, ..., None])
    result: Array | Tensor = like(mask, per_query)
    if argument is None:
        return result
    keywords = {as_choice("argument", argument, ("attn_mask",)): result}
    return Recipe(keywords, partial(_segments_backward, (q, g, s), other))


def _of_segments(query: Any, segment_embed: Any, bias: Any) -> Any:
    """Return the term of each query for both kinds of pairs, (2, ..., H, Lq)."""
    given = query, segment_embed, bias
    if not is_tensor(query):
        given = widened(query), widened(segment_embed), widened(bias)
    # sums in float16 would lose digits
    q, g, s = (singles_or_doubles(x, *given) for x in given)
    sums = namespace(q).einsum("...hid,nhd->n...hi", q + s[:, None, :], g)
    return in_common_dtype(sums * q.shape[-1] ** -0.5, *given)


def _segments_backward(
    parameters: tuple[Array, Array, Array], other: Array, grads: Arrays
) -> Arrays:
    query, segment_embed, bias = parameters
    given = [*map(widened, parameters)]
    kind = np.result_type(np.float32, *given)  # sums in float16 would lose digits
    q, g, s = (x.astype(kind, copy=False) for x in given)
    grad = grads["attn_mask"].astype(kind) * kind.type(q.shape[-1] ** -0.5)
    # forward: mask = (q + s) . g[different] / sqrt(D)
    # Gradients of pairs in the same segment, then those of pairs in different ones.
    chosen = np.where(other, 0, grad), np.where(other, grad, 0)
    sums = np.stack([part.sum(axis=-1) for part in chosen])
    grad_query = np.einsum("n...hi,nhd->...hid", sums, g)
    moved = (sums[..., None] * (q + s[:, None, :])).sum(axis=-2)  # (2, ..., H, D)
    batch = tuple(range(q.ndim - 3))
    grad_segment = moved.sum(axis=tuple(axis + 1 for axis in batch))
    return {
        "query": like(grad_query, query),
        "segment_embed": like(grad_segment, segment_embed),
        # The bias is added to every query, so that its gradient is the sum of theirs.
        "pos_bias_s": like(grad_query.sum(axis=(*batch, -2)), bias),
    }
