"""XLNet: its table of positions, and its segments as a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpos._checks import POSITION_LIMIT, Array, as_floating, as_int
from relpos.recipes._tables import Keywords

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["SegmentGradients", "xlnet", "xlnet_segments", "xlnet_segments_backward"]


class SegmentGradients(NamedTuple):
    """Gradients of the floating arguments of `xlnet_segments`."""

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
        If a length is not an integer of at least 0.

    See Also
    --------
    xlnet_segments : the term of segments, an attn_mask.

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
        "rel_key": rel_key,
        "pos_bias_u": pos_bias_u,
        "pos_bias_v": pos_bias_v,
        "query_offset": keys - queries,
        "min_relative_position": -keys,
        "beyond": "raise",
    }


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
    segment_embed : array_like, (2, H, D)
        g for pairs of the same segment, then for pairs of different ones.
    pos_bias_s : array_like, (H, D)
        ``r_s_bias``.
    different : array_like of bool, (..., 1, Lq, Lk)
        Whether query i and key j are in different segments.

    Returns
    -------
    ndarray, (..., H, Lq, Lk)

    Raises
    ------
    TypeError, ValueError
        If an array is not floating or of another shape.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> other = np.array([[False, True]])
    >>> recipes.xlnet_segments(np.ones((1, 1, 1)), [[[0.0]], [[-2.0]]], [[1.0]], other)
    array([[[ 0., -4.]]])
    """
    q, g, s = _floats(query, segment_embed, pos_bias_s)
    same, other = np.einsum("...hid,nhd->n...hi", q + s[:, None, :], g)
    mask = np.where(different, other[..., None], same[..., None])
    return np.asarray(mask * mask.dtype.type(q.shape[-1] ** -0.5))


def _floats(query: Any, segment_embed: Any, pos_bias_s: Any) -> tuple[Array, ...]:
    q = as_floating("query", query)
    g = as_floating("segment_embed", segment_embed)
    s = as_floating("pos_bias_s", pos_bias_s)
    if q.ndim < 3:
        raise ValueError(f"query: got shape {q.shape}; expected (..., H, Lq, D)")
    heads = (q.shape[-3], q.shape[-1])
    for name, array, wanted in (
        ("segment_embed", g, (2, *heads)),
        ("pos_bias_s", s, heads),
    ):
        if array.shape != wanted:
            raise ValueError(f"{name}: got shape {array.shape}; expected {wanted}")
    return q, g, s


def xlnet_segments_backward(
    grad_mask: ArrayLike,
    query: ArrayLike,
    segment_embed: ArrayLike,
    pos_bias_s: ArrayLike,
    different: ArrayLike,
) -> SegmentGradients:
    r"""Gradients of query, segment_embed and pos_bias_s through `xlnet_segments`.

    Parameters
    ----------
    grad_mask : array_like, (..., H, Lq, Lk)
        ``context.backward(grad_out, wrt=["attn_mask"]).attn_mask``.
    query, segment_embed, pos_bias_s, different
        As in `xlnet_segments`.

    Returns
    -------
    SegmentGradients
        The named tuple (query, segment_embed, pos_bias_s), of their shapes.

    Raises
    ------
    TypeError, ValueError
        If an array is not floating or of another shape.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> grad, other = np.ones((1, 1, 2)), np.array([[False, True]])
    >>> inputs = np.ones((1, 1, 1)), [[[0.0]], [[-2.0]]], [[1.0]], other
    >>> recipes.xlnet_segments_backward(grad, *inputs).query
    array([[[-2.]]])
    """
    q, g, s = _floats(query, segment_embed, pos_bias_s)
    grad = as_floating("grad_mask", grad_mask)
    grad = grad * grad.dtype.type(q.shape[-1] ** -0.5)
    # forward: mask = (q + s) . g[different] / sqrt(D)
    sums = np.stack([np.where(different, 0, grad), np.where(different, grad, 0)]).sum(
        -1
    )
    grad_query = np.einsum("n...hi,nhd->...hid", sums, g)
    grad_segment = np.einsum("n...hi,...hid->nhd", sums, q + s[:, None, :])
    return SegmentGradients(
        grad_query, grad_segment, np.einsum("...hid->hd", grad_query)
    )
