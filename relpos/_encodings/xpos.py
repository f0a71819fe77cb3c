"""Magnitudes that make rotary scores fall with the distance: xPos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import Array, as_flag, quiet
from relpos._encodings.positions import real_positions
from relpos._encodings.rotary_settings import even_dim, positive

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@quiet
def xpos_magnitude(
    positions: ArrayLike,
    dim: int,
    *,
    scale_base: float = 512.0,
    inverse: bool = False,
) -> Array:
    r"""Magnitudes of xPos: inner products that fall with the distance.

    .. math::

        m_{n,c} = \zeta_c^{\,n / scale\_base}, \quad
        \zeta_c = \frac{2c + 0.4 \, dim}{1.4 \, dim}

    Queries take these and keys those with ``inverse=True``, so that a product has the
    factor :math:`\zeta_c^{(i - j) / scale\_base}`.

    Parameters
    ----------
    positions : int or array_like of any shape S
        The int n stands for 0, 1, ..., n - 1. Public implementations subtract half of
        the length, the same for queries and keys: it cancels in the products and keeps
        the magnitudes near 1.
    dim : int
        The `rotary_dim` of `apply_rotary`; even.
    scale_base : float, default 512
        Positions after which the factor is :math:`\zeta`.
    inverse : bool, default False
        The reciprocals, for keys.

    Returns
    -------
    ndarray of float64, S + (dim / 2,)
        For `magnitude` of `apply_rotary`.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `dim` is odd or less than 2, or `scale_base` is not positive.

    See Also
    --------
    apply_rotary : Takes the magnitudes.
    rotary_frequencies : The frequencies that go with them.

    References
    ----------
    .. [1] Sun et al., "A Length-Extrapolatable Transformer", 2022, arXiv:2212.10554.

    Examples
    --------
    >>> import relpos
    >>> relpos.xpos_magnitude([0, 512], 4).round(4)
    array([[1.    , 1.    ],
           [0.2857, 0.6429]])
    """
    columns = even_dim(dim)
    where = real_positions(positions, columns // 2, np.dtype(np.float64))
    step = positive("scale_base", scale_base)
    if as_flag("inverse", inverse):
        step = -step
    zeta = (2 * np.arange(columns // 2) + 0.4 * columns) / (1.4 * columns)
    result: Array = zeta ** (where[..., np.newaxis] / step)
    return result  # far away inf and 0
