"""Dense score matrices, which the fused kernels never build: to look and to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._attention.placement import place_tables, transformer_xl_origin
from relpos._attention.problem import as_scale, check_items, common_dtypes
from relpos._attention.shapes import check_shapes, join_batches, read_sizes
from relpos._checks import Array, as_flag, as_floating, as_integers, quiet
from relpos._settings import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def _checked(**arrays: Any) -> dict[str, Array]:
    return {name: as_floating(name, array) for name, array in arrays.items()}


def _first_position(table: Array, minimum: int | None) -> int:
    """Relative position of row 0, where the table is one; `_dense` says if not."""
    if table.ndim < 2:
        return 0
    return place_tables({"rel_key": table}, minimum, None, "zero").vectors.start


@quiet
def _dense(
    kernel: str,
    inputs: dict[str, Array],
    scale: float | None,
    query_offset: ArrayLike | None,
    *extra: int,
    moved: int = 0,
) -> Array:
    """Check the shapes, as `attention` does, and run a kernel on (*batch, H) items.

    `moved` is added to the offsets, for a table that begins elsewhere than the kernel's
    own: only the difference between a pair and row 0 counts.
    """
    given = {**inputs, "value": inputs["key"]}
    sizes = read_sizes(given, enable_gqa=False)
    check_shapes(inputs, sizes)
    offsets = {}
    if query_offset is not None:
        offsets["query_offset"] = as_integers("query_offset", query_offset)
    check_items(offsets, ["rel_key"], sizes)
    join_batches({**given, **offsets})  # names the argument that does not fit
    dtype, out_dtype = common_dtypes(inputs)
    scores: Array = getattr(kernels(), kernel)(
        *inputs.values(),
        as_scale(scale, sizes.D, dtype),
        offsets.get("query_offset", np.zeros((), np.int64))[..., None] + moved,
        *extra,
        dtype=dtype,
    )
    return scores.astype(out_dtype, copy=False)


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
    query : array_like of float, (..., H, Lq, D)
        One row for each query.
    key : array_like of float, (..., H, Lk, D)
        One row for each key.
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

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If shapes do not match, `rel_key` has an even number of rows, or Lq != Lk and
        no `query_offset` is given.

    See Also
    --------
    shaw_attention : The attention of these scores.
    scores : The logits of any scheme, whole or term by term.
    skewed_scores, transformer_xl_scores : Those of the other schemes.
    relpos.plot.attention_map : Draws them.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, equation 4.

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
    inputs = _checked(query=query, key=key, rel_key=rel_key)
    _first_position(inputs["rel_key"], None)  # rejects even numbers of rows
    return _dense("shaw_scores", inputs, scale, query_offset)


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
    j <= i this is the skewed :math:`Q E_r^T` beside :math:`Q K^T`; the wrapped entries
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
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If shapes do not match, R is even with neither `is_causal` nor
        `min_relative_position`, or Lq != Lk and no `query_offset` is given.

    See Also
    --------
    relative_global_attention : The attention of these scores.
    shaw_scores, transformer_xl_scores : Those of the other schemes.

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
    causal = as_flag("is_causal", is_causal)
    inputs = _checked(query=query, key=key, rel_key=rel_key)
    table = inputs["rel_key"]
    minimum = min_relative_position
    if minimum is None and causal and table.ndim >= 2:
        minimum = 1 - table.shape[-2]
    first = _first_position(table, minimum)
    return _dense("skewed_scores", inputs, scale, query_offset, first)


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
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If shapes do not match, or neither R nor `min_relative_position` tells the
        relative position of row 0.

    See Also
    --------
    transformer_xl_attention : The attention of these scores.
    shaw_scores, skewed_scores : Those of the other schemes.

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
    inputs = _checked(
        query=query,
        key=key,
        rel_key=rel_key,
        pos_bias_u=pos_bias_u,
        pos_bias_v=pos_bias_v,
    )
    moved = 0
    if min(inputs[name].ndim for name in ("query", "key", "rel_key")) > 1:
        lq, lk, rows = (inputs[name].shape[-2] for name in ("query", "key", "rel_key"))
        if query_offset is None:
            query_offset = lk - lq
        if min_relative_position is None:
            transformer_xl_origin("rel_key", rows, lq, lk)
        else:
            first = _first_position(inputs["rel_key"], min_relative_position)
            moved = first - (1 - lk)
    return _dense("transformer_xl_scores", inputs, scale, query_offset, moved=moved)
