"""Angles of rotary encodings where tokens stand on several axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relpos.reference._typing import ArrayLike, Floats

__all__ = ["axial_angles", "mrope_angles"]


def mrope_angles(
    positions: ArrayLike,
    inv_freq: ArrayLike,
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Floats:
    """θ[.., n, c] = p[a(c), .., n]·ω_c: pair c turns by its axis a(c) of three.

    Runs of `sections` pairs have the axes 0, 1, 2, 0, ..; interleaved, pair c has axis
    a = c mod 3 while c < 3·sections[a], and axis 0 from there on.

    See Also
    --------
    relpos.mrope_angles : Describes the arguments.
    axial_angles : Every axis with all frequencies.

    References
    ----------
    Wang et al. (2024), arXiv:2409.12191.

    Examples
    --------
    >>> mrope_angles([[5], [6], [7]], [1.0, 1.0, 1.0], (2, 0, 1))
    array([[5., 5., 7.]])
    """
    p, omega = (np.asarray(x, dtype=np.float64) for x in (positions, inv_freq))
    if interleaved:
        axes = [a if c < 3 * sections[a] else 0 for c, a in enumerate(turns(omega))]
    else:
        axes = [a for run, n in enumerate(sections) for a in [run % 3] * n]
    return np.stack([p[a] * w for a, w in zip(axes, omega, strict=True)], axis=-1)


def turns(omega: Floats) -> list[int]:
    """0, 1, 2, 0, .. for every frequency."""
    return [c % 3 for c in range(len(omega))]


def axial_angles(coordinates: ArrayLike, inv_freq: ArrayLike) -> Floats:
    """θ[.., n, a·f + c] = x[.., n, a]·ω_c, f frequencies for each axis a.

    See Also
    --------
    relpos.axial_angles : Describes the arguments.
    mrope_angles : Every frequency with an axis of its own.

    References
    ----------
    Heo et al. (2024), arXiv:2403.13298.

    Examples
    --------
    >>> axial_angles([[2, 3]], [1.0, 0.5])
    array([[2. , 1. , 3. , 1.5]])
    """
    x = np.asarray(coordinates, dtype=np.float64)
    omega = np.asarray(inv_freq, dtype=np.float64)
    return np.concatenate(
        [x[..., a, None] * omega for a in range(x.shape[-1])], axis=-1
    )
