"""Zipformer: a narrow query of positions, and a compact encoding of these."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_array,
    as_float_dtype,
    as_int,
    as_real,
    check_memory,
    kind_of,
    quiet,
)
from relpos.recipes._tables import (
    Keywords,
    as_grad,
    as_shaped,
    check_rows,
    projected,
    projected_backward,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["zipformer", "zipformer_backward", "zipformer_positions"]


@quiet
def zipformer_positions(
    positions: ArrayLike,
    dim: int,
    *,
    length_factor: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> Array:
    r"""Zipformer's compact encoding of relative positions n.

    .. math::

        a = \arctan\frac{2 \pi \, x}{f \, d}, \quad
        x = \sqrt d \; sign(n) \left(\log(|n| + \sqrt d) - \log \sqrt d\right)

    in columns cos(a), sin(a), cos(2a), sin(2a), .. of which the last is the constant 1.

    Parameters
    ----------
    positions : int or array_like
        Relative positions n; an int L stands for -(L - 1) .. L - 1.
    dim : int
        Columns, d, an even number.
    length_factor : float, default 1
        The factor f: a larger one stretches the positions.
    dtype : {float32, float64}
        Of the result; the encoding is computed in float64.

    Returns
    -------
    ndarray, (..., dim)
        A row for each position.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, `dim` odd or `length_factor` not positive.

    See Also
    --------
    zipformer : Projects them to a table of attention.
    relpos.sinusoidal : Waves of the positions themselves.

    References
    ----------
    .. [1] Yao et al., "Zipformer: A faster and better encoder for automatic speech
       recognition", 2023, arXiv:2310.11230.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.zipformer_positions([-1, 0, 1], 4, dtype="float64").round(3)
    array([[ 0.617, -0.787, -0.237,  1.   ],
           [ 1.   ,  0.   ,  1.   ,  1.   ],
           [ 0.617,  0.787, -0.237,  1.   ]])
    """
    columns = as_int("dim", dim, 2, POSITION_LIMIT)
    if columns % 2:
        raise ValueError(f"dim: got {columns}; expected an even number")
    factor = as_real("length_factor", length_factor)
    if factor <= 0:
        raise ValueError(f"length_factor: got {factor}; expected a positive number")
    kind = as_float_dtype(dtype)
    places = as_array("positions", positions)
    if places.dtype.kind not in "iuf":
        raise TypeError(f"positions: got {kind_of(positions)}; expected real numbers")
    if places.dtype.kind in "iu" and not places.ndim:
        reach = as_int("positions", positions, 1, POSITION_LIMIT)
        check_memory("positions", (2 * reach - 1, columns), np.dtype(np.float64))
        places = np.arange(1 - reach, reach)
    check_memory("positions", (*places.shape, columns), np.dtype(np.float64))
    return _encoded(places.astype(np.float64), columns, factor).astype(kind)


def _encoded(n: Array, dim: int, factor: float) -> Array:
    root = math.sqrt(dim)
    x = root * np.sign(n) * (np.log(np.abs(n) + root) - math.log(root))
    angle = np.arctan(x * (2 * math.pi / (factor * dim)))
    waves = angle[..., None] * np.arange(1, dim // 2 + 1)
    table = np.stack([np.cos(waves), np.sin(waves)], axis=-1).reshape(*n.shape, dim)
    table[..., -1] = 1
    return table


@quiet
def zipformer(
    linear_pos: ArrayLike,
    num_heads: int,
    query_length: int,
    key_length: int,
    *,
    length_factor: float = 1.0,
) -> Keywords:
    r"""Zipformer's scores by position, for a query p of their own, without a scale.

    .. math:: s_{ij} = q_i k_j + p_i r_{j - (i + L_k - L_q)}, \quad r_n = W e_n

    with e of `zipformer_positions`.

    Parameters
    ----------
    linear_pos : array_like, (H * P, E)
        W, the projection of the encoding, P columns for each head.
    num_heads : int
        H.
    query_length, key_length : int
        Lq and Lk; with cached frames before the queries Lk is larger.
    length_factor : float, default 1
        As in `zipformer_positions`; ``pos_emb``'s of the layer.

    Returns
    -------
    dict
        `rel_key`, `min_relative_position`, `query_offset` and `scale`. Beside them go
        ``position_query=p``, the third part of ``in_proj`` in heads (B, H, Lq, P).

    Raises
    ------
    TypeError, ValueError
        If the projection does not have H times as many rows, E is odd, a length is less
        than 1, or there are fewer keys than queries.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    zipformer_backward : The gradient of the projection.
    zipformer_positions : The encoding.

    Notes
    -----
    ========================================  ===========  ============
    ``RelPositionMultiheadAttentionWeights``  shape        here
    ========================================  ===========  ============
    linear_pos.weight                         (H * P, E)   `linear_pos`
    ========================================  ===========  ============

    Values come from a second module, and may have another width.

    References
    ----------
    .. [1] Yao et al., "Zipformer: A faster and better encoder for automatic speech
       recognition", 2023, arXiv:2310.11230.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.zipformer(np.zeros((16, 48)), 4, 5, 8)
    >>> keywords["rel_key"].shape, keywords["min_relative_position"]
    ((4, 12, 4), -7)
    """
    weight, rows, heads = _zipformer(
        linear_pos, num_heads, query_length, key_length, length_factor
    )
    return {
        "rel_key": projected(weight, rows, heads),
        "min_relative_position": 1 - key_length,
        "query_offset": key_length - query_length,
        "scale": 1.0,
    }


@quiet
def zipformer_backward(
    grad_rel_key: ArrayLike,
    linear_pos: ArrayLike,
    num_heads: int,
    query_length: int,
    key_length: int,
    *,
    length_factor: float = 1.0,
) -> Array:
    r"""Gradient of the projection of `zipformer`.

    .. math:: \overline{W} = \sum_n \bar r_n e_n^T

    Parameters
    ----------
    grad_rel_key : array_like, (H, Lk + Lq - 1, P)
        Gradient of rel_key.
    linear_pos, num_heads, query_length, key_length, length_factor : as in `zipformer`
        The same.

    Returns
    -------
    ndarray, (H * P, E)
        Of the shape of `linear_pos`.

    Raises
    ------
    TypeError, ValueError
        As `zipformer`, or if the gradient is of another shape.

    See Also
    --------
    zipformer : The forward.
    relpos.AttentionContext.backward : Where `grad_rel_key` comes from, as `rel_key`.

    References
    ----------
    .. [1] Yao et al., "Zipformer: A faster and better encoder for automatic speech
       recognition", 2023, arXiv:2310.11230.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> given = np.zeros((16, 48)), 4, 5, 8
    >>> recipes.zipformer_backward(np.ones((4, 12, 4)), *given).shape
    (16, 48)
    """
    weight, rows, heads = _zipformer(
        linear_pos, num_heads, query_length, key_length, length_factor
    )
    shape = (heads, len(rows), len(weight) // heads)
    return projected_backward(
        as_grad("grad_rel_key", grad_rel_key, shape), rows, weight
    )


def _zipformer(
    linear_pos: object, num_heads: object, lq: object, lk: object, factor: float
) -> tuple[Array, Array, int]:
    """Return the projection, checked, the encoding of every offset, and the heads."""
    weight = as_shaped("linear_pos", linear_pos, "H * P", "E")
    heads = as_int("num_heads", num_heads, 1, POSITION_LIMIT)
    if len(weight) % heads:
        raise ValueError(
            f"linear_pos: got shape {weight.shape} for {heads} heads; expected "
            "(H * P, E)"
        )
    queries = as_int("query_length", lq, 1, POSITION_LIMIT)
    keys = as_int("key_length", lk, 1, POSITION_LIMIT)
    if keys < queries:
        raise ValueError(
            f"key_length: got {keys} for {queries} queries; expected at least as many "
            "keys, those of the queries and what was cached before"
        )
    if weight.shape[1] % 2 or not weight.shape[1]:
        raise ValueError(
            f"linear_pos: got shape {weight.shape}; expected an even E, cosines and "
            "sines"
        )
    check_rows("key_length", keys + queries - 1, weight)
    offsets = np.arange(1 - keys, queries)
    rows = zipformer_positions(
        offsets, weight.shape[1], length_factor=factor, dtype=np.float64
    )
    return weight, rows, heads
