"""Rotary encodings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relpos.reference._typing import ArrayLike, Floats, Ints
from relpos.reference.encodings import counted, frequencies

__all__ = [
    "RotaryGradients",
    "apply_rotary",
    "apply_rotary_backward",
    "rotary_frequencies",
    "rotary_magnitude",
    "xpos_magnitude",
]


class RotaryGradients(NamedTuple):
    """Gradients of x and, where they were given, of inv_freq and angles.

    See Also
    --------
    apply_rotary_backward : Returns it.
    relpos.RotaryGradients : The same, by the kernels.
    """

    x: Floats
    inv_freq: Floats | None
    angles: Floats | None


class Turn(NamedTuple):
    """Which columns are pairs (a, b), their angles θ and magnitudes m, (..., L, h)."""

    a: Ints
    b: Ints
    theta: Floats
    m: Floats

    def of(self, x: Floats) -> Floats:
        """y_a = m·(x_a·cos θ - x_b·sin θ), y_b = m·(x_b·cos θ + x_a·sin θ)."""
        y, (x_a, x_b) = x.copy(), (x[..., self.a], x[..., self.b])
        y[..., self.a] = self.m * (x_a * np.cos(self.theta) - x_b * np.sin(self.theta))
        y[..., self.b] = self.m * (x_b * np.cos(self.theta) + x_a * np.sin(self.theta))
        return y


def as_turn(
    x: Floats,
    positions: ArrayLike | None,
    *,
    base: float = 10000.0,
    inv_freq: ArrayLike | None = None,
    angles: ArrayLike | None = None,
    magnitude: ArrayLike | None = None,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    offset: float = 0,
    inverse: bool = False,
) -> Turn:
    """The keywords of `relpos.apply_rotary` as what happens to each row of x.

    Pair c is the columns (c, h + c), or (2c, 2c + 1) if interleaved, of the first 2h =
    rotary_dim; θ = (position + offset)·ω_c unless angles give it, -θ if inverse.
    """
    columns = x.shape[-1] if rotary_dim is None else rotary_dim
    c = np.arange(columns // 2)
    if angles is None:
        where = np.arange(x.shape[-2]) if positions is None else np.asarray(positions)
        omega = frequencies(columns, base, "concat") if inv_freq is None else inv_freq
        angles = (where + offset)[..., None] * np.asarray(omega, dtype=np.float64)
    theta = (-1.0 if inverse else 1.0) * np.asarray(angles, dtype=np.float64)
    m = np.asarray(1.0 if magnitude is None else magnitude, dtype=np.float64)
    return Turn(
        2 * c if interleaved else c,
        2 * c + 1 if interleaved else columns // 2 + c,
        np.broadcast_to(theta, (*x.shape[:-1], columns // 2)),
        np.broadcast_to(m, (*x.shape[:-1], columns // 2)),
    )


def apply_rotary(
    x: ArrayLike, positions: ArrayLike | None = None, **keywords: Any
) -> Floats:
    """y = R(θ) x, row by row. Keywords as in `relpos.apply_rotary`, without out.

    See Also
    --------
    relpos.apply_rotary : By the kernels; describes the arguments.
    rotary_frequencies : The frequencies that make θ of a position.

    References
    ----------
    Su et al. (2021), arXiv:2104.09864.

    Examples
    --------
    >>> np.round(apply_rotary([[1.0, 0.0], [1.0, 0.0]]), 4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    x = np.asarray(x, dtype=np.float64)
    return as_turn(x, positions, **keywords).of(x)


def apply_rotary_backward(
    grad_out: ArrayLike,
    x: ArrayLike,
    positions: ArrayLike | None = None,
    **keywords: Any,
) -> RotaryGradients:
    """g_x = R(-θ) g, as m·R(θ) has the transpose m·R(-θ).

    g_θ = g·R(θ + π/2) x, as that is the derivative of R(θ) x, with the sign of inverse;
    summed over the rows that share an angle, times the position for a frequency.

    See Also
    --------
    relpos.apply_rotary_backward : By the kernels; describes the arguments.
    apply_rotary : The forward.

    Examples
    --------
    >>> grads = apply_rotary_backward([[1.0, 0.0]], [[1.0, 2.0]], [3], inv_freq=[0.5])
    >>> np.round(grads.x, 4), np.round(grads.inv_freq, 4)
    (array([[ 0.0707, -0.9975]]), array([-3.4169]))
    """
    x, g = np.asarray(x, dtype=np.float64), np.asarray(grad_out, dtype=np.float64)
    turn = as_turn(x, positions, **keywords)
    grad_x = turn._replace(theta=-turn.theta).of(g)
    slope = g * turn._replace(theta=turn.theta + np.pi / 2).of(x)
    grad_theta = slope[..., turn.a] + slope[..., turn.b]
    if keywords.get("inverse", False):
        grad_theta = -grad_theta
    of_frequencies = of_angles = None
    if keywords.get("inv_freq") is not None:
        where = np.arange(x.shape[-2]) if positions is None else np.asarray(positions)
        where = (where + keywords.get("offset", 0))[..., None]
        of_frequencies = sum_to(grad_theta * where, grad_theta.shape[-1:])
    if keywords.get("angles") is not None:
        of_angles = sum_to(grad_theta, np.shape(keywords["angles"]))
    return RotaryGradients(grad_x, of_frequencies, of_angles)


def sum_to(array: Floats, shape: tuple[int, ...]) -> Floats:
    """The adjoint of broadcasting from `shape`."""
    own = (1,) * (array.ndim - len(shape)) + shape
    shared = tuple(n for n, size in enumerate(own) if size != array.shape[n])
    total: Floats = array.sum(axis=shared, keepdims=True).reshape(shape)
    return total


def rotary_frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    scaling: tuple[str, float | Mapping[str, Any]] | None = None,
) -> Floats:
    """ω_c = base^(-2c/dim), or what the scaling makes of it; n is the original length.

    linear: ω/s. ntk: base·s^(dim/(dim-2)). dynamic: ntk by s·N/n - (s - 1) at length
    N ≥ n. yarn: ω·(1 - r_c) + (ω/s)·r_c, r a ramp over c between the pairs that turn
    beta_fast and beta_slow times in n. llama3: the same with r a ramp over the turns
    from high_freq_factor down to low_freq_factor. longrope: ω_c / f_c. proportional:
    ω_c / s of the first f·dim/2 pairs, 0 of the others.

    See Also
    --------
    relpos.rotary_frequencies : Describes the arguments.
    rotary_magnitude : What goes with the scaling.

    References
    ----------
    Chen et al. (2023), arXiv:2306.15595; Peng et al. (2023), arXiv:2309.00071;
    Grattafiori et al. (2024), arXiv:2407.21783; Ding et al. (2024), arXiv:2402.13753.

    Examples
    --------
    >>> np.round(rotary_frequencies(4, scaling=("ntk", 2)), 4)
    array([1.   , 0.005])
    """
    omega = frequencies(dim, base, "concat")
    if scaling is None:
        return omega
    name, values = scaling
    if not isinstance(values, Mapping):
        if name == "linear":
            return stretched(omega, values, np.ones(dim // 2))
        return frequencies(dim, base * values ** (dim / (dim - 2)), "concat")
    if name == "proportional":
        turned = np.arange(dim // 2) < values.get("partial_rotary_factor", 1) * dim // 2
        return np.where(turned, omega / values.get("factor", 1), 0.0)
    n = values["original_max_position_embeddings"]
    s = values.get("factor") or values.get("max_position_embeddings", n) / n
    if name == "dynamic":
        s = s * max(values.get("seq_len", n), n) / n - (s - 1)
        return frequencies(dim, base * s ** (dim / (dim - 2)), "concat")
    if name == "longrope":
        key = "long_factor" if values.get("seq_len", 0) > n else "short_factor"
        return stretched(omega, np.asarray(values[key]), np.ones(dim // 2))
    if name == "llama3":
        low, high = values["low_freq_factor"], values["high_freq_factor"]
        turns = n * omega / (2 * np.pi)
        return stretched(omega, s, np.clip((high - turns) / (high - low), 0, 1))
    turning = values.get("beta_fast", 32), values.get("beta_slow", 1)
    begin, end = (dim / 2 * np.log(n / (2 * np.pi * t)) / np.log(base) for t in turning)
    if values.get("truncate", True):
        begin, end = np.floor(begin), np.ceil(end)
    begin, end = max(begin, 0), min(end, dim - 1)
    end = end + 0.001 if begin == end else end
    c = np.arange(dim // 2)
    return stretched(omega, s, np.clip((c - begin) / (end - begin), 0, 1))


def stretched(omega: Floats, factor: float | Floats, ramp: Floats) -> Floats:
    """From ω where the ramp is 0 to ω / factor where it is 1."""
    return omega * (1 - ramp) + omega / factor * ramp


def rotary_magnitude(
    scaling: tuple[str, float | Mapping[str, Any]] | None,
) -> float:
    """yarn: 0.1·ln s + 1; longrope: √(1 + ln s / ln n); else, and for s ≤ 1, it is 1.

    See Also
    --------
    relpos.rotary_magnitude : Describes the arguments.
    rotary_frequencies : The frequencies of the scaling.

    Examples
    --------
    >>> long = {"factor": 4, "original_max_position_embeddings": 4096}
    >>> round(rotary_magnitude(("yarn", long)), 4)
    1.1386
    """
    if scaling is None or scaling[0] not in ("yarn", "longrope"):
        return 1.0
    name, values = scaling
    assert isinstance(values, Mapping)
    if values.get("attention_factor") is not None:
        return float(values["attention_factor"])
    n = values["original_max_position_embeddings"]
    s = values.get("factor") or values["max_position_embeddings"] / n
    if s <= 1:
        return 1.0
    if name == "longrope":
        return float(np.sqrt(1 + np.log(s) / np.log(n)))
    above, below = values.get("mscale"), values.get("mscale_all_dim")
    if above and below:
        return float((0.1 * above * np.log(s) + 1) / (0.1 * below * np.log(s) + 1))
    return float(0.1 * np.log(s) + 1)


def xpos_magnitude(
    positions: ArrayLike, dim: int, *, scale_base: float = 512.0, inverse: bool = False
) -> Floats:
    """ζ_c^(n / scale_base), ζ_c = (2c + 0.4·dim) / (1.4·dim); for keys the reciprocal.

    See Also
    --------
    relpos.xpos_magnitude : Describes the arguments.
    apply_rotary : Takes the magnitudes.

    References
    ----------
    Sun et al. (2022), arXiv:2212.10554.

    Examples
    --------
    >>> np.round(xpos_magnitude([0, 512], 4), 4)
    array([[1.    , 1.    ],
           [0.2857, 0.6429]])
    """
    zeta = (2 * np.arange(dim // 2) + 0.4 * dim) / (1.4 * dim)
    exponent = counted(positions)[..., None] / scale_base
    magnitude: Floats = zeta ** (-exponent if inverse else exponent)
    return magnitude
