"""Rotary encodings: pairs of columns are rotated by an angle that grows with position.

The first rotary_dim columns are rotary_dim / 2 pairs, each with its frequency and,
where there is one, its magnitude. The rest is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import (
    Array,
    ArrayLike,
    as_flag,
    as_floating,
    as_int,
    as_ints,
    as_positive,
    as_real,
    at_least_ndim,
    check_match,
    check_memory,
    check_out,
    check_shape,
    common_dtype,
    lies_among,
    like,
    native,
    quiet,
    stored,
)
from relpos._core import broadcast_to
from relpos._encodings.absolute import (
    MAX_DIM,
    as_offset,
    as_positions,
    check_exact,
    frequency_parts,
    real_positions,
)
from relpos._encodings.rotary_scaling import even_dim
from relpos._settings import get_num_threads, kernels
from relpos._text import amount, in_short
from relpos._twins import twin

__all__ = ["RotaryGradients", "apply_rotary", "apply_rotary_backward"]
__all__ += ["axial_angles", "mrope_angles", "xpos_magnitude"]

_DOUBLE = np.dtype(np.float64)
#: Arguments besides x that have a gradient.
_LEARNED = ("inv_freq", "angles")
_ROWS = "x's axes but for the last (those of each batch item: positions[:, None])"
_AXES = ("time", "height", "width")


class Rotation(NamedTuple):
    """Checked arguments: angles are positions * (high + low), before `inverse`."""

    x: Array  # as given
    positions: Array  # (..., L) of float64
    high: Array  # (..., L, rotary_dim / 2) of float64, as are the next two
    low: Array
    magnitude: Array
    interleaved: bool
    inverse: bool
    inputs: dict[str, Array]  # the other arrays as given, by name

    @property
    def dtype(self) -> np.dtype[Any]:
        """Number type of the computation: float16 is computed in float32."""
        return common_dtype(self.x.dtype, np.dtype(np.float32))

    def run(self, source: Array, target: Array, *, inverse: bool) -> None:
        """Rotate `source` into `target`, which may be the same array."""
        where = self.positions
        if inverse:  # a broadcast view stays one: its angles are computed once
            where = broadcast_to(-stored(where), where.shape)
        kernels().apply_rotary(
            source,
            target,
            where[..., np.newaxis],
            self.high,
            self.low,
            self.magnitude,
            self.interleaved,
            get_num_threads(),
        )


def _spread(name: str, array: Array, shape: tuple[int, ...], expected: str) -> Array:
    try:
        return broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{name}: shape {array.shape} does not broadcast to {shape}; expected "
            f"{expected}"
        ) from None


def _as_rotary_dim(rotary_dim: object, columns: int) -> int:
    if rotary_dim is None:
        if columns % 2 or columns > MAX_DIM:
            raise ValueError(
                f"x: got D = {columns}; expected an even number of columns, at most "
                f"{MAX_DIM}, or rotary_dim= to rotate the first ones only"
            )
        return columns
    number = as_int("rotary_dim", rotary_dim, 0, MAX_DIM)
    if number > columns or number % 2:
        raise ValueError(
            f"rotary_dim: got {number}; expected an even number, at most x's "
            f"D = {columns}"
        )
    return number


def _angle_parts(
    length: int,
    columns: int,
    *,
    positions: ArrayLike | None,
    base: float,
    inv_freq: ArrayLike | None,
    angles: ArrayLike | None,
    offset: float,
) -> tuple[Array, tuple[Array, Array]]:
    """Positions and frequencies, high + low, whose products are the angles."""
    start = as_offset(offset)
    if angles is None:
        if positions is None:
            check_exact("offset", start, start + max(length - 1, 0))
            where = np.arange(length, dtype=np.float64) + start
        else:
            where = as_positions(positions, start)
            if start:
                where = where + start
        dim = max(columns, 1)  # of no columns there are no frequencies to scale
        return where, frequency_parts(dim, base, inv_freq, columns // 2)
    for name, other in (("positions", positions), ("inv_freq", inv_freq)):
        if other is not None:
            raise ValueError(
                f"{name}: given together with angles, which stand for positions times "
                "frequencies; expected one of the two"
            )
    if start != 0:
        raise ValueError(f"offset: got {offset} together with angles; expected 0")
    # Angles are frequencies at the position 1.
    exact = native(as_floating("angles", angles), _DOUBLE)
    return np.array(1.0), (exact, np.array(0.0))


def as_rotation(
    x: ArrayLike,
    positions: ArrayLike | None,
    *,
    base: float,
    inv_freq: ArrayLike | None,
    angles: ArrayLike | None,
    magnitude: ArrayLike | None,
    interleaved: bool,
    rotary_dim: int | None,
    offset: float,
    inverse: bool,
) -> Rotation:
    """Check the arguments of `apply_rotary` and spread them over the rows of x."""
    rows = as_floating("x", x)
    at_least_ndim("x", rows, 2, "(..., L, D)")
    columns = _as_rotary_dim(rotary_dim, rows.shape[-1])
    shape = (*rows.shape[:-1], columns // 2)
    where, parts = _angle_parts(
        rows.shape[-2],
        columns,
        positions=positions,
        base=base,
        inv_freq=inv_freq,
        angles=angles,
        offset=offset,
    )
    if magnitude is None:
        scale = np.array(1.0)
    elif isinstance(magnitude, Real):
        scale = np.array(as_real("magnitude", magnitude))
    else:
        scale = native(as_floating("magnitude", magnitude), _DOUBLE)
    of_pairs = f"(..., L, {columns // 2}), one per pair of the rotated columns"
    arrays = {
        "positions": positions,
        "inv_freq": inv_freq,
        "angles": angles,
        "magnitude": magnitude,
    }
    return Rotation(
        rows,
        _spread("positions", where, shape[:-1], _ROWS),
        _spread("angles", parts[0], shape, of_pairs),
        broadcast_to(parts[1], shape),
        _spread("magnitude", scale, shape, of_pairs),
        as_flag("interleaved", interleaved),
        as_flag("inverse", inverse),
        {name: np.asarray(a) for name, a in arrays.items() if a is not None},
    )


@in_short
class RotaryGradients(NamedTuple):
    """Gradients of `apply_rotary`'s inputs, each of its input's shape and dtype.

    Attributes
    ----------
    x : ndarray, (..., L, D)
    inv_freq : ndarray, (rotary_dim / 2,), or None
    angles : ndarray, or None
        These two are None where they were not given.
    """

    x: Array
    inv_freq: Array | None
    angles: Array | None


def apply_rotary(
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    base: float = 10000.0,
    inv_freq: ArrayLike | None = None,
    angles: ArrayLike | None = None,
    magnitude: ArrayLike | None = None,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    offset: float = 0,
    inverse: bool = False,
    out: Array | None = None,
) -> Array:
    r"""Rotary encoding: rotate pairs of columns by angles that grow with the position.

    .. math::

        y_a = m (a \cos\theta - b \sin\theta), \quad
        y_b = m (b \cos\theta + a \sin\theta), \quad
        \theta_{n,c} = n \, \omega_c, \quad \omega_c = base^{-2c/rotary\_dim}

    Inner products of queries and keys that are both rotated depend on the difference of
    their positions alone.

    Parameters
    ----------
    x : array_like of float, (..., L, D)
        Queries or keys.
    positions : array_like of int or float, optional
        Broadcasts to (..., L); negative and fractional ones are legal. Default
        0, 1, ..., L - 1.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    inv_freq : array_like of float, (rotary_dim / 2,), optional
        The frequencies in radians per position, instead of those of `base`:
        `rotary_frequencies`, or learned ones.
    angles : array_like of float, optional
        The angles in radians, instead of positions times frequencies; broadcasts to
        (..., L, rotary_dim / 2). For several axes: `axial_angles`, `mrope_angles`.
    magnitude : float or array_like of float, optional
        The m that multiplies rotated pairs; broadcasts to (..., L, rotary_dim / 2):
        `rotary_magnitude`, or `xpos_magnitude`.
    interleaved : bool, default False
        Pairs of columns. False: c and rotary_dim / 2 + c (GPT-NeoX, and Llama as
        Hugging Face stores it). True: 2c and 2c + 1 (the paper, GPT-J, Meta's Llama).
    rotary_dim : int, optional
        Columns that are rotated, the first ones; even. The rest is copied. Default D.
    offset : float, default 0
        Added to the positions: the length of the cache in front of x. Integers stay
        below 2**53 in size, offset included, as float64 holds no others exactly.
    inverse : bool, default False
        Rotate by the opposite angles. The magnitude stays, so this is the adjoint: the
        gradient of x is ``apply_rotary(grad_out, ..., inverse=True)``.
    out : ndarray, x's shape, optional
        Where to put the result, of x's dtype; may be x itself, which then needs no
        further memory.

    Returns
    -------
    ndarray, x's shape and dtype
        The rotated columns, and the rest as it was.

    Raises
    ------
    ValueError
        If `base` or `rotary_dim` is wrong, `angles` come with positions, frequencies or
        an offset, or `out` overlaps an input without being x.

    See Also
    --------
    rotary_from_config : What a model passes here.

    Notes
    -----
    Angles have 106 bits and all arithmetic 53, whatever the dtype: to position 2**24
    float32 results are within 1 ulp of the exact rotation, unless its two terms cancel.

    References
    ----------
    .. [1] Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
       2021, arXiv:2104.09864.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> relpos.apply_rotary(x).round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    >>> relpos.apply_rotary(x, offset=1, inverse=True).round(4)
    array([[ 0.5403, -0.8415],
           [-0.4161, -0.9093]])
    """
    rotation = as_rotation(
        x,
        positions,
        base=base,
        inv_freq=inv_freq,
        angles=angles,
        magnitude=magnitude,
        interleaved=interleaved,
        rotary_dim=rotary_dim,
        offset=offset,
        inverse=inverse,
    )
    rows = rotation.x
    dtype = rows.dtype.newbyteorder("=")
    inputs = rotation.inputs
    if out is None:
        result = np.empty(rows.shape, dtype)
    else:
        # The kernel rotates x in place, but no other input may lie under the result.
        # What is no array is refused below.
        is_array = isinstance(out, np.ndarray)
        if not (is_array and _is_same(rows, out)):
            inputs = {"x": rows, **inputs}
        result = check_out(out, rows.shape, dtype, inputs)
    # The kernel reads numbers of 16 bits where they are.
    is_read_short = rows.itemsize == 2 and rows.dtype.isnative and rows.flags.aligned
    source = rows if is_read_short else native(rows, rotation.dtype)
    is_written = (
        result.dtype == source.dtype
        and result.flags.aligned
        and (out is None or not lies_among(result, inputs.values()))
    )
    if is_written:
        rotation.run(source, result, inverse=rotation.inverse)
    else:
        source = native(rows, rotation.dtype)
        target = np.empty(rows.shape, rotation.dtype)
        rotation.run(source, target, inverse=rotation.inverse)
        with np.errstate(all="ignore"):  # as in `rounded`
            result[...] = target
    return result


def _is_same(a: Array, b: Array) -> bool:
    """Return True for two views of the same items in the same order."""
    return a is b or (
        a.__array_interface__["data"] == b.__array_interface__["data"]
        and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
    )


def _pairs(rotation: Rotation, array: Array) -> tuple[Array, Array]:
    count = rotation.high.shape[-1]
    if rotation.interleaved:
        return array[..., 0 : 2 * count : 2], array[..., 1 : 2 * count : 2]
    return array[..., :count], array[..., count : 2 * count]


def _sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which `shape` was broadcast to that of `array`."""
    aligned = (1,) * (array.ndim - len(shape)) + shape
    repeated = tuple(n for n, size in enumerate(aligned) if size != array.shape[n])
    total: Array = array.sum(axis=repeated, keepdims=True)
    return total.reshape(shape)


@twin(apply_rotary, titles=("References",))
@quiet
def apply_rotary_backward(
    grad_out: ArrayLike,
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    base: float = 10000.0,
    inv_freq: ArrayLike | None = None,
    angles: ArrayLike | None = None,
    magnitude: ArrayLike | None = None,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    offset: float = 0,
    inverse: bool = False,
) -> RotaryGradients:
    r"""Gradients of `apply_rotary`: of x, and of learned frequencies or angles.

    .. math::

        g_x = R^\top g, \quad g_\theta = g_b \, y_a - g_a \, y_b, \quad
        g_{\omega_c} = \sum_{..., n} n \, g_{\theta_{n,c}}

    where R is the rotation, times the magnitude, and y what `apply_rotary` returned.

    Parameters
    ----------
    grad_out : array_like of float, (..., L, D)
        Gradient of what `apply_rotary` returned.
    x, positions, base, inv_freq, angles, magnitude : as in `apply_rotary`
        What the forward was given.
    interleaved, rotary_dim, offset, inverse : as in `apply_rotary`
        What the forward was given.

    Returns
    -------
    RotaryGradients
        `x`; `inv_freq` and `angles` where they were given, None otherwise, summed over
        everything that shares them. Each has the shape and dtype of its argument.

    Raises
    ------
    ValueError
        If `base` or `rotary_dim` is wrong, `angles` come with positions, frequencies or
        an offset, or `grad_out` has not x's shape.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x, grad_out = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0]])
    >>> grads = relpos.apply_rotary_backward(grad_out, x, [3.0], inv_freq=[0.5])
    >>> grads.x.round(4), grads.inv_freq.round(4), grads.angles
    (array([[ 0.0707, -0.9975]]), array([-3.4169]), None)
    """
    rotation = as_rotation(
        x,
        positions,
        base=base,
        inv_freq=inv_freq,
        angles=angles,
        magnitude=magnitude,
        interleaved=interleaved,
        rotary_dim=rotary_dim,
        offset=offset,
        inverse=inverse,
    )
    grad = as_floating("grad_out", grad_out)
    check_match("grad_out", grad, "x", rotation.x.shape)
    grad = native(grad, common_dtype(grad.dtype, rotation.dtype))
    grad_x = np.empty(grad.shape, grad.dtype)
    rotation.run(grad, grad_x, inverse=not rotation.inverse)
    wrt = _angle_gradients(rotation, grad)
    return RotaryGradients(
        like(grad_x, rotation.x),
        wrt.get("inv_freq"),
        wrt.get("angles"),
    )


def _angle_gradients(rotation: Rotation, grad: Array) -> dict[str, Array]:
    """Gradients of frequencies or angles, whichever was given, by name."""
    learned = {n: x for n, x in rotation.inputs.items() if n in _LEARNED}
    if not learned:
        return {}
    rotated = np.empty(rotation.x.shape, rotation.dtype)
    source = native(rotation.x, rotation.dtype)
    rotation.run(source, rotated, inverse=rotation.inverse)
    # With y the rotated pair and g its gradient, the angle has g_b y_a - g_a y_b.
    y_a, y_b = _pairs(rotation, rotated)
    g_a, g_b = _pairs(rotation, grad)
    grad_angles = np.multiply(g_b, y_a, dtype=np.float64)
    grad_angles -= np.multiply(g_a, y_b, dtype=np.float64)
    if rotation.inverse:
        np.negative(grad_angles, out=grad_angles)
    if "inv_freq" in learned:
        # An angle is a position times a frequency.
        grad_angles *= rotation.positions[..., np.newaxis]
    return {
        name: like(_sum_to(grad_angles, array.shape), array)
        for name, array in learned.items()
    }


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
        An int n means 0, 1, ..., n - 1. Public implementations subtract half of
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
    ValueError
        If `dim` is odd or less than 2, or `scale_base` is not positive.

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
    step = as_positive("scale_base", scale_base)
    if as_flag("inverse", inverse):
        step = -step
    zeta = (2 * np.arange(columns // 2) + 0.4 * columns) / (1.4 * columns)
    result: Array = zeta ** (where[..., np.newaxis] / step)
    return result  # far away inf and 0


def _as_frequencies(inv_freq: ArrayLike) -> Array:
    frequencies = as_floating("inv_freq", inv_freq)
    has_one_axis = frequencies.ndim == 1
    check_shape("inv_freq", frequencies, has_one_axis, "one axis, a frequency per pair")
    return frequencies.astype(_DOUBLE)


def _axes_of_pairs(sections: list[int], pairs: int, interleaved: bool) -> Array:
    """Return the axis of each pair: by runs of pairs, or by turns pair by pair."""
    if interleaved:
        if len(sections) != len(_AXES):
            raise ValueError(
                f"sections: got {sections}; expected three numbers of pairs, for "
                f"{', '.join(_AXES)}"
            )
        # Axes take turns until one has all its pairs. What is left rotates by time.
        c = np.arange(pairs)
        axes = c % len(_AXES)
        axes[c >= len(_AXES) * np.array(sections)[axes]] = 0
        return axes
    if sum(sections) != pairs:
        raise ValueError(
            f"sections: got {sections}, {amount(sum(sections), 'pair')} in all; "
            f"expected as many as inv_freq has, {pairs}"
        )
    return np.repeat(np.arange(len(sections)) % len(_AXES), sections)


@quiet
def mrope_angles(
    positions: ArrayLike,
    inv_freq: ArrayLike,
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Array:
    r"""Angles of a multimodal rotary encoding: a pair rotates by time, row or column.

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
    ValueError
        If `positions` has not three positions of each token, or `sections` do not fit
        `inv_freq`.

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
    fits = where.ndim > 1 and len(where) == len(_AXES)
    check_shape("positions", where, fits, f"(3, ..., L), for {', '.join(_AXES)}")
    frequencies = _as_frequencies(inv_freq)
    pairs = len(frequencies)
    counts = as_ints("sections", sections, 0, MAX_DIM)
    axes = _axes_of_pairs(counts, pairs, as_flag("interleaved", interleaved))
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
        The coordinates of each token on each of A axes.
    inv_freq : array_like of float, (n_f,)
        The frequencies in radians per unit of a coordinate, the same for all axes.

    Returns
    -------
    ndarray of float64, (..., L, A n_f)
        For `angles` of `apply_rotary` with rotary_dim = 2 A n_f: those of the first
        axis, then those of the second, and so on.

    See Also
    --------
    relpos.recipes.rope_vit : Learned frequencies for each head and axis.

    Notes
    -----
    DINOv3 has ``axial_angles(2 * np.pi * centres, rotary_frequencies(D // 2,
    base=100.0))``, where centres of patches run over [-1, 1] and tokens before the
    patches are not rotated. Gemma 4's vision tower rotates each half of the columns by
    one axis: reshape x to (..., 2, D/2), and the angles to (..., 2, D/4). The even
    columns of V-JEPA 2 are those of one rotation, its odd ones those of another.

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
