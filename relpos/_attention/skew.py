"""Scores per relative position to scores per key, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import Array, as_flag, as_floating, at_least_ndim
from relpos._settings import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def _rearrange(kernel: str, x: Array, columns: int) -> Array:
    """Run one of the row maps; float16 goes through float32, which holds it exactly."""
    dtype = np.result_type(x.dtype, np.float32)
    out = np.empty((*x.shape[:-1], columns), dtype)
    getattr(kernels(), kernel)(x, out=out, dtype=dtype)
    return out.astype(x.dtype.newbyteorder("="), copy=False)


def _matrices(x: ArrayLike, wanted: str) -> Array:
    array = as_floating("x", x)
    at_least_ndim("x", array, 2, wanted)
    return array


def skew(x: ArrayLike, *, is_causal: bool) -> Array:
    r"""Turn scores per relative position into scores per key.

    For ``is_causal=False``, with one column per relative position from -(Lq - 1) on:

    .. math:: y_{ij} = x_{i,\; L_q - 1 - i + j}

    For ``is_causal=True`` the shape stays: this is the pad, reshape and slice of the
    Music Transformer bit for bit, and the same map as `rel_shift`. What lies more than
    one place right of the diagonal is then the wrapped remainder of the next row and
    means nothing; a causal mask has to hide it.

    Parameters
    ----------
    x : array_like of float, (..., Lq, Lk) if `is_causal`, else (..., Lq, R)
        For instance query @ rel_key.T.
    is_causal : bool
        Which of the two.

    Returns
    -------
    ndarray, (..., Lq, Lk) if `is_causal`, else (..., Lq, R - Lq + 1)
        Column j belongs to key j.

    Raises
    ------
    TypeError
        If `x` is not floating, or `is_causal` not a bool.
    ValueError
        If `x` has fewer than two axes, or fewer than Lq - 1 columns.

    See Also
    --------
    unskew : Its adjoint.
    rel_shift : Transformer-XL's way to the same.
    skewed_scores : Scores that need no skew.

    References
    ----------
    .. [1] Huang et al., "Music Transformer", 2018, arXiv:1809.04281, section 3.4.1.

    Examples
    --------
    Each row of `x` names its relative positions:

    >>> import numpy as np
    >>> import relpos
    >>> x = np.array([[-2.0, -1.0, 0.0, 1.0, 2.0]] * 3)
    >>> relpos.skew(x, is_causal=False)
    array([[ 0.,  1.,  2.],
           [-1.,  0.,  1.],
           [-2., -1.,  0.]])
    >>> relpos.skew(x[:, :3], is_causal=True)
    array([[ 0.,  0., -2.],
           [-1.,  0.,  0.],
           [-2., -1.,  0.]])
    """
    if as_flag("is_causal", is_causal):
        return rel_shift(x)
    array = _matrices(x, "(..., Lq, R)")
    queries, rows = array.shape[-2:]
    if rows < queries - 1:
        raise ValueError(
            f"x: shape {array.shape} has {rows} columns for {queries} queries; "
            f"expected (..., Lq, R), R = Lq + Lk - 1: one per relative position from "
            f"-(Lq - 1) = {1 - queries} on"
        )
    return _rearrange("skew", array, rows - queries + 1)


def unskew(x: ArrayLike, *, is_causal: bool) -> Array:
    r"""Adjoint of `skew`: sums over keys become sums over relative positions.

    For all a and b of fitting shapes, sum(skew(a) * b) = sum(a * unskew(b)). With
    ``is_causal=False``, and 0 where there is no such key,

    .. math:: y_{it} = x_{i,\; t - (L_q - 1) + i}

    With ``is_causal=True``, `x` behind Lq zeros is read as Lq rows of Lk + 1, and the
    first of these columns dropped.

    Parameters
    ----------
    x : array_like of float, (..., Lq, Lk)
        For instance the gradient of what `skew` returned.
    is_causal : bool
        As in `skew`. With True it is the adjoint of `rel_shift` too.

    Returns
    -------
    ndarray, (..., Lq, Lk) if `is_causal`, else (..., Lq, Lq + Lk - 1)
        Entries that `skew` did not read are 0.

    Raises
    ------
    TypeError
        If `x` is not floating, or `is_causal` not a bool.
    ValueError
        If `x` has fewer than two axes.

    See Also
    --------
    skew, rel_shift : What it is the adjoint of.

    References
    ----------
    .. [1] Huang et al., "Music Transformer", 2018, arXiv:1809.04281, section 3.4.1.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> relpos.unskew(np.array([[1.0, 2.0], [3.0, 4.0]]), is_causal=False)
    array([[0., 1., 2.],
           [3., 4., 0.]])
    """
    causal = as_flag("is_causal", is_causal)
    array = _matrices(x, "(..., Lq, Lk)")
    queries, keys = array.shape[-2:]
    if causal:
        return _rearrange("rel_unshift", array, keys)
    return _rearrange("unskew", array, max(queries + keys - 1, 0))


def rel_shift(x: ArrayLike) -> Array:
    r"""Relative shift of Transformer-XL, for any Lq and Lk, bit for bit.

    Pad a column of zeros on the left, read the padded matrix as one of Lk + 1 rows,
    drop the first, read the rest as Lq rows again. For Lq <= Lk that is

    .. math:: y_{ij} = x_{i,\; L_q - 1 - i + j} \quad (j \le i + L_k - L_q),

    then one 0, and after it entries of row i + 1 that wrapped around. Those mean
    nothing; a causal mask has to hide them.

    Parameters
    ----------
    x : array_like of float, (..., Lq, Lk)
        Column t belongs to relative position t - (Lk - 1) of the last query.

    Returns
    -------
    ndarray, (..., Lq, Lk)
        Column j belongs to key j.

    Raises
    ------
    TypeError
        If `x` is not floating.
    ValueError
        If `x` has fewer than two axes.

    See Also
    --------
    unskew : With ``is_causal=True`` the adjoint of this map.
    skew : The Music Transformer's way to the same.
    transformer_xl_scores : Scores that need no shift.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL", 2019, arXiv:1901.02860, appendix B.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> relpos.rel_shift(np.arange(1.0, 9.0).reshape(2, 4))
    array([[2., 3., 4., 0.],
           [5., 6., 7., 8.]])
    """
    array = _matrices(x, "(..., Lq, Lk)")
    return _rearrange("rel_shift", array, array.shape[-1])
