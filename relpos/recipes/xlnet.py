"""XLNet: its table of positions, and its segments as a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_array,
    as_floating,
    as_int,
    quiet,
    widened,
)
from relpos._text import in_short
from relpos.recipes._tables import Keywords, as_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["SegmentGradients", "xlnet", "xlnet_segments", "xlnet_segments_backward"]


@in_short
class SegmentGradients(NamedTuple):
    """Gradients of the floating arguments of `xlnet_segments`.

    Attributes
    ----------
    query : ndarray, (..., H, Lq, D)
    segment_embed : ndarray, (2, H, D)
    pos_bias_s : ndarray, (H, D)

    See Also
    --------
    xlnet_segments_backward : Returns it.
    """

    query: Array
    segment_embed: Array
    pos_bias_s: Array


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
        Lq and Lk; keys begin with the memory.
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
        and ``beyond="raise"``.

    Raises
    ------
    TypeError, ValueError
        If a length is not an integer of at least 0, or a table not floating.

    See Also
    --------
    xlnet_segments : The term of segments, an attn_mask.
    relpos.transformer_xl_attention : The attention that it grew from.

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
    queries = as_int("query_length", query_length, 0, POSITION_LIMIT)
    keys = as_int("key_length", key_length, 0, POSITION_LIMIT)
    return {
        "rel_key": as_table("rel_key", rel_key, "(H, R, D) or (B, H, R, D)"),
        "pos_bias_u": as_table("pos_bias_u", pos_bias_u, "(H, D)"),
        "pos_bias_v": as_table("pos_bias_v", pos_bias_v, "(H, D)"),
        "query_offset": keys - queries,
        "min_relative_position": -keys,
        "beyond": "raise",
    }


@quiet
def xlnet_segments(
    query: ArrayLike,
    segment_embed: ArrayLike,
    pos_bias_s: ArrayLike,
    different: ArrayLike,
) -> Array:
    r"""XLNet's term of segments as a float mask, dense by nature.

    .. math:: mask_{ij} = (q_i + s) \, g_{different_{ij}} / \sqrt D

    Add it to the model's own mask and ask for the gradient of `attn_mask` by name.

    Parameters
    ----------
    query : array_like, (..., H, Lq, D)
        The query that attention is given.
    segment_embed : array_like, (2, H, D)
        The g of pairs in the same segment, then that of pairs in different ones.
    pos_bias_s : array_like, (H, D)
        ``r_s_bias``.
    different : array_like of bool, broadcasts to (..., H, Lq, Lk)
        Whether query i and key j are in different segments.

    Returns
    -------
    ndarray, (..., H, Lq, Lk)
        A floating `attn_mask`.

    Raises
    ------
    TypeError, ValueError
        If an array is of another kind or shape.

    See Also
    --------
    xlnet_segments_backward : Its gradients.
    xlnet : The terms of content and position.

    References
    ----------
    .. [1] Yang et al., "XLNet: Generalized Autoregressive Pretraining for Language
       Understanding", 2019, arXiv:1906.08237, section 2.5.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> other = np.array([[False, True]])
    >>> recipes.xlnet_segments(np.ones((1, 1, 1)), [[[0.0]], [[-2.0]]], [[1.0]], other)
    array([[[ 0., -4.]]])
    """
    q, g, s, other = _checked(query, segment_embed, pos_bias_s, different)
    per_query = np.einsum("...hid,nhd->n...hi", q + s[:, None, :], g)
    mask = np.where(other, per_query[1, ..., None], per_query[0, ..., None])
    return np.asarray(mask * mask.dtype.type(q.shape[-1] ** -0.5))


def _checked(
    query: Any, segment_embed: Any, pos_bias_s: Any, different: Any
) -> tuple[Array, ...]:
    """Return the arguments as arrays; `different` with the axes of the mask."""
    q = as_floating("query", query)
    if q.ndim < 3 or not q.shape[-1]:
        raise ValueError(
            f"query: got shape {q.shape}; expected (..., H, Lq, D), D at least 1"
        )
    g = as_floating("segment_embed", segment_embed)
    s = as_floating("pos_bias_s", pos_bias_s)
    heads = q.shape[-3], q.shape[-1]
    for name, array, shape in (
        ("segment_embed", g, (2, *heads)),
        ("pos_bias_s", s, heads),
    ):
        if array.shape != shape:
            raise ValueError(f"{name}: got shape {array.shape}; expected {shape}")
    other = as_array("different", different)
    if other.dtype != np.bool_:
        raise TypeError(f"different: got dtype {other.dtype}; expected bool")
    wanted = (*q.shape[:-1], other.shape[-1] if other.ndim else 1)
    try:
        return widened(q), widened(g), widened(s), np.broadcast_to(other, wanted)
    except ValueError:
        raise ValueError(
            f"different: got shape {other.shape}; expected one that broadcasts to "
            f"{wanted}, the query's axes and Lk"
        ) from None


@quiet
def xlnet_segments_backward(
    grad_mask: ArrayLike,
    query: ArrayLike,
    segment_embed: ArrayLike,
    pos_bias_s: ArrayLike,
    different: ArrayLike,
) -> SegmentGradients:
    r"""Gradients of query, segment_embed and pos_bias_s through `xlnet_segments`.

    With d for `different` and G for `grad_mask`,

    .. math::

        dq_i &= \sum_j G_{ij} \, g_{d_{ij}} / \sqrt D, \quad ds = \sum_i dq_i \\
        dg_t &= \sum_{ij:\; d_{ij} = t} G_{ij} \, (q_i + s) / \sqrt D

    Parameters
    ----------
    grad_mask : array_like, (..., H, Lq, Lk)
        ``context.backward(grad_out, wrt=["attn_mask"]).attn_mask``.
    query, segment_embed, pos_bias_s, different : as in `xlnet_segments`
        What the forward was given.

    Returns
    -------
    SegmentGradients
        The named tuple (query, segment_embed, pos_bias_s), of their shapes.

    Raises
    ------
    TypeError, ValueError
        If an array is of another kind or shape.

    See Also
    --------
    xlnet_segments : The forward.
    relpos.AttentionContext.backward : Where `grad_mask` comes from, as `attn_mask`.

    References
    ----------
    .. [1] Yang et al., "XLNet: Generalized Autoregressive Pretraining for Language
       Understanding", 2019, arXiv:1906.08237, section 2.5.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> grad, other = np.ones((1, 1, 2)), np.array([[False, True]])
    >>> inputs = np.ones((1, 1, 1)), [[[0.0]], [[-2.0]]], [[1.0]], other
    >>> recipes.xlnet_segments_backward(grad, *inputs).query
    array([[[-2.]]])
    """
    q, g, s, other = _checked(query, segment_embed, pos_bias_s, different)
    grad = widened(as_floating("grad_mask", grad_mask))
    if grad.shape != other.shape:
        raise ValueError(f"grad_mask: got shape {grad.shape}; expected {other.shape}")
    grad = grad * grad.dtype.type(q.shape[-1] ** -0.5)
    # forward: mask = (q + s) . g[different] / sqrt(D)
    chosen = np.where(other, 0, grad), np.where(other, grad, 0)
    sums = np.stack([part.sum(axis=-1) for part in chosen])
    grad_query = np.einsum("n...hi,nhd->...hid", sums, g)
    moved = (sums[..., None] * (q + s[:, None, :])).sum(axis=-2)  # (2, ..., H, D)
    batch = tuple(range(q.ndim - 3))
    grad_segment = moved.sum(axis=tuple(axis + 1 for axis in batch))
    return SegmentGradients(grad_query, grad_segment, grad_query.sum(axis=(*batch, -2)))
