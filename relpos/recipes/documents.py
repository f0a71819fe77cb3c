"""LayoutLMv3: biases by the order of tokens and by their places on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._biases.buckets import t5_bucket
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_int,
    as_integers,
    check_memory,
    quiet,
)
from relpos.recipes._tables import Keywords, as_grad, as_shaped, like
from relpos.recipes.results import Layoutlmv3Gradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["layoutlmv3", "layoutlmv3_backward"]

_NAMES = ("rel_pos_bias", "rel_pos_x_bias", "rel_pos_y_bias")


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
) -> Keywords:
    r"""LayoutLMv3's three biases by T5's buckets, inside the scale.

    .. math::

        s_{ij} = \frac{q_i k_j + b_{h, bucket(p_j - p_i)} + b^x_{h, bucket'(x_j - x_i)}
        + b^y_{h, bucket'(y_j - y_i)}}{\sqrt D}

    with p the given positions, x the left edge of a token's box and y its bottom.

    Parameters
    ----------
    rel_pos_bias : array_like, (H, bins)
        The biases by order, b.
    rel_pos_x_bias, rel_pos_y_bias : array_like, (H, bins'), or None
        The other two; None in a model without spatial biases.
    position_ids : array_like of int, (..., L)
        The positions, p; they may repeat.
    bbox : array_like of int, (..., L, 4)
        Left, top, right, bottom.
    head_dim : int
        D.
    max_rel_pos, max_rel_2d_pos : int
        ``max_distance`` of the buckets of positions and of places.

    Returns
    -------
    dict
        `rel_bias`, the bins of all biases one after the other, and `labels`, a tuple of
        (..., L, L) for each.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, or the bins leave no logarithmic
        range.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    layoutlmv3_backward : The gradients of the biases.
    relpos.t5_bucket : The buckets.

    Notes
    -----
    ======================  ==========  ================
    ``LayoutLMv3Encoder``   shape       here
    ======================  ==========  ================
    rel_pos_bias.weight     (H, bins)   `rel_pos_bias`
    rel_pos_x_bias.weight   (H, bins')  `rel_pos_x_bias`
    rel_pos_y_bias.weight   (H, bins')  `rel_pos_y_bias`
    ======================  ==========  ================

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
    tables = _tables(rel_pos_bias, rel_pos_x_bias, rel_pos_y_bias)
    scale = as_int("head_dim", head_dim, 1, POSITION_LIMIT) ** -0.5
    places = _places(position_ids, bbox)
    reaches = _reaches(max_rel_pos, max_rel_2d_pos)
    labels, first = [], 0
    for name, table in tables.items():
        relative = places[name][..., None, :] - places[name][..., :, None]
        count = table.shape[1]
        bucket = t5_bucket(relative, num_buckets=count, max_distance=reaches[name])
        labels.append((bucket + first).astype(np.int32))
        first += count
    joined = np.concatenate([x.astype(np.float64) for x in tables.values()], axis=1)
    biases = like(scale * joined, tables["rel_pos_bias"])
    return {"rel_bias": biases, "labels": tuple(labels)}


@quiet
def layoutlmv3_backward(
    grad_rel_bias: ArrayLike,
    rel_pos_bias: ArrayLike,
    rel_pos_x_bias: ArrayLike | None,
    rel_pos_y_bias: ArrayLike | None,
    position_ids: ArrayLike,
    bbox: ArrayLike,
    head_dim: int,
    *,
    max_rel_pos: int = 128,
    max_rel_2d_pos: int = 256,
) -> Layoutlmv3Gradients:
    r"""Gradients of the biases of `layoutlmv3`.

    .. math:: (\bar b, \bar b^x, \bar b^y) = \bar B / \sqrt D

    Parameters
    ----------
    grad_rel_bias : array_like, (H, bins + 2 bins')
        Gradient of rel_bias, B in the formula.
    rel_pos_bias, rel_pos_x_bias, rel_pos_y_bias : array_like, (H, bins), (H, bins')
        As given to `layoutlmv3`.
    position_ids, bbox, head_dim, max_rel_pos, max_rel_2d_pos : as in `layoutlmv3`
        The same.

    Returns
    -------
    Layoutlmv3Gradients
        The named tuple (rel_pos_bias, rel_pos_x_bias, rel_pos_y_bias), of their shapes;
        None where there is no bias.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape.

    See Also
    --------
    layoutlmv3 : The forward.
    relpos.AttentionContext.backward : Where `grad_rel_bias` comes from, as `rel_bias`.

    References
    ----------
    .. [1] Huang et al., "LayoutLMv3: Pre-training for Document AI with Unified Text and
       Image Masking", 2022, arXiv:2204.08387.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> biases = np.zeros((12, 32)), np.zeros((12, 64)), np.zeros((12, 64))
    >>> given = *biases, np.arange(5), np.zeros((5, 4), int), 64
    >>> recipes.layoutlmv3_backward(np.ones((12, 160)), *given).rel_pos_bias[0, :2]
    array([0.125, 0.125])
    """
    tables = _tables(rel_pos_bias, rel_pos_x_bias, rel_pos_y_bias)
    scale = as_int("head_dim", head_dim, 1, POSITION_LIMIT) ** -0.5
    _places(position_ids, bbox)
    _reaches(max_rel_pos, max_rel_2d_pos)
    heads, widths = len(tables["rel_pos_bias"]), [x.shape[1] for x in tables.values()]
    grad = scale * as_grad("grad_rel_bias", grad_rel_bias, (heads, sum(widths)))
    parts = np.split(grad, np.cumsum(widths)[:-1], axis=1)
    found = {
        name: like(part, table)
        for (name, table), part in zip(tables.items(), parts, strict=True)
    }
    x_bias, y_bias = found.get("rel_pos_x_bias"), found.get("rel_pos_y_bias")
    return Layoutlmv3Gradients(found["rel_pos_bias"], x_bias, y_bias)


def _tables(bias: object, x_bias: object, y_bias: object) -> dict[str, Array]:
    """Return the biases that there are, by name."""
    tables = {"rel_pos_bias": as_shaped("rel_pos_bias", bias, "H", "bins")}
    heads = len(tables["rel_pos_bias"])
    for name, value in (("rel_pos_x_bias", x_bias), ("rel_pos_y_bias", y_bias)):
        if value is not None:
            tables[name] = as_shaped(name, value, heads, "bins")
    return tables


def _reaches(near: object, far: object) -> dict[str, int]:
    """Return max_distance of the buckets of each bias."""
    order = as_int("max_rel_pos", near, 1, POSITION_LIMIT)
    place = as_int("max_rel_2d_pos", far, 1, POSITION_LIMIT)
    return dict(zip(_NAMES, (order, place, place), strict=True))


def _places(position_ids: object, bbox: object) -> dict[str, Array]:
    """Return what each bias measures of every token, (..., L)."""
    order, box = as_integers("position_ids", position_ids), as_integers("bbox", bbox)
    if not order.ndim:
        raise ValueError(f"position_ids: got shape {order.shape}; expected (..., L)")
    if box.shape != (*order.shape, 4):
        raise ValueError(f"bbox: got shape {box.shape}; expected {(*order.shape, 4)}")
    for name, array in (("position_ids", order), ("bbox", box)):
        if array.size and max(-int(array.min()), int(array.max())) > POSITION_LIMIT:
            raise ValueError(f"{name}: expected numbers of at most 2**60 in size")
    check_memory("position_ids", (*order.shape, order.shape[-1]), np.dtype(np.int64))
    return dict(zip(_NAMES, (order, box[..., 0], box[..., 3]), strict=True))
