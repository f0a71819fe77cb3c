"""Angles for `apply_rotary` where a token stands on several axes: images and videos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import (
    Array,
    as_flag,
    as_floating,
    as_ints,
    at_least_ndim,
    check_memory,
    quiet,
)
from relpos._encodings.positions import as_positions
from relpos._encodings.sinusoidal import MAX_DIM

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_DOUBLE = np.dtype(np.float64)
_AXES = ("time", "height", "width")


def _as_frequencies(inv_freq: ArrayLike) -> Array:
    given = as_floating("inv_freq", inv_freq)
    if given.ndim != 1:
        raise ValueError(
            f"inv_freq: got shape {given.shape}; expected one axis, a frequency per "
            "pair"
        )
    return given.astype(_DOUBLE)


def _axes_in_runs(sections: list[int], pairs: int) -> Array:
    """The axis of each pair: a run of pairs for each section, axes taking turns."""
    if sum(sections) != pairs:
        raise ValueError(
            f"sections: got {sections}, {sum(sections)} pairs in all; expected as many "
            f"as inv_freq has, {pairs}"
        )
    return np.repeat(np.arange(len(sections)) % len(_AXES), sections)


def _axes_in_turn(sections: list[int], pairs: int) -> Array:
    """The same, neighbours having different axes while there are pairs for them."""
    if len(sections) != len(_AXES):
        raise ValueError(
            f"sections: got {sections}; expected three numbers of pairs, for "
            f"{', '.join(_AXES)}"
        )
    c = np.arange(pairs)
    axes = c % len(_AXES)
    axes[c >= len(_AXES) * np.array(sections)[axes]] = 0
    return axes


@quiet
def mrope_angles(
    positions: ArrayLike,
    inv_freq: ArrayLike,
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Array:
    r"""Angles of a multimodal rotary encoding: each pair turns by time, row or column.

    .. math:: \theta_{n,c} = p_{a(c), n} \, \omega_c

    where p are the three positions of token n and a(c) the axis of pair c: 0 time, 1
    height, 2 width. Text has three equal positions, and the angles are then those of
    the plain encoding.

    Parameters
    ----------
    positions : array_like of int or float, (3, ..., L)
        Time, height and width of each token.
    inv_freq : array_like of float, (D/2,)
        The frequencies in radians per position: `rotary_frequencies`.
    sections : sequence of int
        Hugging Face's ``mrope_section``. Runs of so many pairs take time, height,
        width, time and so on; together they are D/2.
    interleaved : bool, default False
        False: runs, as Qwen2-VL and Qwen2.5-VL have them. True: axes take turns pair by
        pair, as in Qwen3-VL: of `sections`, three numbers, pair c has height where
        c % 3 = 1 and c < 3 sections[1], width where c % 3 = 2 and c < 3 sections[2],
        else time; the first number is not read.

    Returns
    -------
    ndarray of float64, (..., L, D/2)
        For `angles` of `apply_rotary`: with batch axes (B, 3, L) becomes (B, L, D/2),
        and ``angles[:, None]`` serves all heads of (B, H, L, D).

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `positions` has not three positions of each token, `inv_freq` another shape,
        or `sections` does not fit it.

    See Also
    --------
    apply_rotary : Takes the angles.
    axial_angles : Frequencies of their own for each axis.
    rotary_from_config : The frequencies of a model.

    References
    ----------
    .. [1] Wang et al., "Qwen2-VL: Enhancing Vision-Language Model's Perception of the
       World at Any Resolution", 2024, arXiv:2409.12191, section 2.1.
    .. [2] Bai et al., "Qwen3-VL Technical Report", 2025, arXiv:2511.21631.

    Examples
    --------
    Two tokens of text, then an image of one row and two columns:

    >>> import relpos
    >>> time, height, width = [0, 1, 2, 2], [0, 1, 2, 2], [0, 1, 2, 3]
    >>> positions = [time, height, width]
    >>> relpos.mrope_angles(positions, [1.0, 0.1, 0.01], (1, 1, 1))
    array([[0.  , 0.  , 0.  ],
           [1.  , 0.1 , 0.01],
           [2.  , 0.2 , 0.02],
           [2.  , 0.2 , 0.03]])
    """
    where = as_positions(positions)
    if where.ndim < 2 or len(where) != len(_AXES):
        raise ValueError(
            f"positions: got shape {where.shape}; expected (3, ..., L), for "
            f"{', '.join(_AXES)}"
        )
    frequencies = _as_frequencies(inv_freq)
    pairs = len(frequencies)
    given = as_ints("sections", sections, 0, MAX_DIM)
    in_turn = as_flag("interleaved", interleaved)
    axes = (_axes_in_turn if in_turn else _axes_in_runs)(given, pairs)
    check_memory("positions", (*where.shape[1:], pairs), _DOUBLE)
    angles: Array = np.moveaxis(where, 0, -1)[..., axes] * frequencies
    return angles


@quiet
def axial_angles(coordinates: ArrayLike, inv_freq: ArrayLike) -> Array:
    r"""Angles of an axial rotary encoding: each axis has pairs and frequencies.

    .. math:: \theta_{n, a n_f + c} = x_{n,a} \, \omega_c, \quad c < n_f

    Parameters
    ----------
    coordinates : array_like of int or float, (..., L, A)
        Where each token stands on each of A axes.
    inv_freq : array_like of float, (n_f,)
        The frequencies in radians per unit of a coordinate, the same for all axes.

    Returns
    -------
    ndarray of float64, (..., L, A n_f)
        For `angles` of `apply_rotary` with rotary_dim = 2 A n_f: those of the first
        axis, then those of the second, and so on.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `coordinates` has fewer than two axes, `inv_freq` not one.

    See Also
    --------
    apply_rotary : Takes the angles.
    mrope_angles : Axes that share one list of frequencies.
    rotary_frequencies : The frequencies.
    relpos.recipes.rope_vit : Learned frequencies for each head and axis.

    Notes
    -----
    DINOv3 has ``axial_angles(2 * np.pi * centres, rotary_frequencies(D // 2,
    base=100.0))``, where centres of patches run over [-1, 1] and tokens before the
    patches are not turned. Gemma 4's vision tower turns each half of the columns by one
    axis, as pairs within that half: reshape x to (..., 2, D/2), and the angles to
    (..., 2, D/4). V-JEPA 2 turns column e of an axis by ω of e modulo n_f, in pairs
    (2c, 2c + 1) of unlike angles, which is no rotation: its even columns are those of
    one rotation, its odd ones those of another.

    References
    ----------
    .. [1] Heo et al., "Rotary Position Embedding for Vision Transformer", 2024,
       arXiv:2403.13298, section 3.1.
    .. [2] Siméoni et al., "DINOv3", 2025, arXiv:2508.10104.

    Examples
    --------
    Cells of a 2 x 3 grid, and two frequencies for each of its axes:

    >>> import numpy as np
    >>> import relpos
    >>> cells = np.argwhere(np.ones((2, 3)))
    >>> angles = relpos.axial_angles(cells, relpos.rotary_frequencies(4))
    >>> angles.shape, angles[5]
    ((6, 4), array([1.  , 0.01, 2.  , 0.02]))
    >>> relpos.apply_rotary(np.ones((6, 8)), angles=angles).shape
    (6, 8)
    """
    where = as_positions(coordinates, name="coordinates")
    at_least_ndim("coordinates", where, 2, "(..., L, A)")
    frequencies = _as_frequencies(inv_freq)
    shape = *where.shape[:-1], where.shape[-1] * len(frequencies)
    check_memory("coordinates", shape, _DOUBLE)
    angles: Array = where[..., np.newaxis] * frequencies
    return angles.reshape(shape)
