"""Rotary encodings: angles of frequencies and positions, and the rotation by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from relpos.reference._xp import ArrayLike, Floats, Ints, as_float64, as_plain
from relpos.reference.encodings import counted, frequencies
from relpos.reference.gradients import sum_to

__all__ = [
    "RotaryGradients",
    "RotaryParameters",
    "apply_rotary",
    "apply_rotary_backward",
    "axial_angles",
    "mrope_angles",
    "rotary_frequencies",
    "rotary_from_config",
    "rotary_magnitude",
    "xpos_magnitude",
]


class RotaryGradients(NamedTuple):
    """Gradients of x and, where they were given, of inv_freq and angles."""

    x: Floats
    inv_freq: Floats | None
    angles: Floats | None


class Rotation(NamedTuple):
    """Columns that are pairs (a, b), their angles θ and magnitudes m, (..., L, h)."""

    a: Ints
    b: Ints
    theta: Floats
    m: Floats

    def of(self, x: Floats) -> Floats:
        """y_a = m·(x_a·cos θ - x_b·sin θ), y_b = m·(x_b·cos θ + x_a·sin θ)."""
        # x, the angles and the magnitudes may be tensors; all become float64.
        xp, x, theta, m = as_float64(x, self.theta, self.m)
        x_a, x_b = x[..., self.a], x[..., self.b]
        cos, sin = xp.cos(theta), xp.sin(theta)
        y = [m * (x_a * cos - x_b * sin), m * (x_b * cos + x_a * sin)]
        # The rotated pairs in the order of their columns, and then the others.
        columns = np.argsort([*self.a, *self.b])
        both = xp.concatenate(y, axis=-1)[..., columns]
        return xp.concatenate([both, x[..., len(columns) :]], axis=-1)


def as_rotation(
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
) -> Rotation:
    """The keywords of `relpos.apply_rotary` as the rotation of each row of x.

    Pair c is the columns (c, h + c), or (2c, 2c + 1) if interleaved, of the first 2h =
    rotary_dim; θ = (position + offset)·ω_c unless angles give it, -θ if inverse.
    """
    columns = x.shape[-1] if rotary_dim is None else rotary_dim
    c = np.arange(columns // 2)
    if angles is None:
        where = np.arange(x.shape[-2]) if positions is None else positions
        omega = frequencies(columns, base, "concat") if inv_freq is None else inv_freq
        _, where, omega = as_float64(where, omega)
        # The new axis is that of the pairs. The offset is added before the product with
        # a frequency, to positions and not to angles.
        angles = (where + offset)[..., None] * omega
    m = 1.0 if magnitude is None else magnitude
    xp, _, theta, m = as_float64(x, angles, m)
    shape = *x.shape[:-1], columns // 2
    a, b = (2 * c, 2 * c + 1) if interleaved else (c, columns // 2 + c)
    # The inverse changes the sign of the angle and not the magnitude.
    theta = xp.broadcast_to((-1.0 if inverse else 1.0) * theta, shape)
    return Rotation(a, b, theta, xp.broadcast_to(m, shape))


def apply_rotary(
    x: ArrayLike, positions: ArrayLike | None = None, **keywords: Any
) -> Floats:
    """y = R(θ) x, row by row. Keywords as in `relpos.apply_rotary`, without out."""
    _, x = as_float64(x)
    return as_rotation(x, positions, **keywords).of(x)


def apply_rotary_backward(
    grad_out: ArrayLike,
    x: ArrayLike,
    positions: ArrayLike | None = None,
    **keywords: Any,
) -> RotaryGradients:
    """g_x = R(-θ) g, as m·R(θ) has the transpose m·R(-θ).

    g_θ = g·R(θ + π/2) x, as that is the derivative of R(θ) x, with the sign of inverse;
    summed over the rows that share an angle, times the position for a frequency.
    """
    _, x, g = as_float64(x, grad_out)
    rotation = as_rotation(x, positions, **keywords)
    # The magnitude stays: a transpose changes the sign of the angle alone.
    grad_x = rotation._replace(theta=-rotation.theta).of(g)
    # The derivative of a rotation by its angle is the rotation by a right angle more.
    slope = g * rotation._replace(theta=rotation.theta + np.pi / 2).of(x)
    # Both columns of a pair have the same angle.
    grad_theta = slope[..., rotation.a] + slope[..., rotation.b]
    if keywords.get("inverse", False):
        grad_theta = -grad_theta
    of_frequencies = of_angles = None
    if keywords.get("inv_freq") is not None:
        where = np.arange(x.shape[-2]) if positions is None else as_plain(positions)
        # The derivative of position * frequency by the frequency is the position.
        where = (where + keywords.get("offset", 0))[..., None]
        # All rows share the frequencies, and the sum is over all axes but that of the
        # pairs.
        of_frequencies = sum_to(grad_theta * where, grad_theta.shape[-1:])
    if keywords.get("angles") is not None:
        of_angles = sum_to(grad_theta, np.shape(keywords["angles"]))
    return RotaryGradients(grad_x, of_frequencies, of_angles)


def rotary_frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    scaling: tuple[str, float | Mapping[str, Any]] | None = None,
) -> Floats:
    """ω_c = base^(-2c/dim), or what the scaling makes of it; n is the original length.

    linear: ω/s. ntk: base·s^(dim/(dim-2)). dynamic: ntk by s·N/n - (s - 1) at length
    N ≥ n. yarn: ω·(1 - r_c) + (ω/s)·r_c, r a ramp over c between the pairs that make
    beta_fast and beta_slow turns in n. llama3: the same with r a ramp over the turns
    from high_freq_factor down to low_freq_factor. longrope: ω_c / f_c. proportional:
    ω_c / s of the first f·dim/2 pairs, 0 of the others.
    """
    omega = frequencies(dim, base, "concat")
    if scaling is None:
        return omega
    name, values = scaling
    # linear and ntk have one number, the factor; all others have a mapping.
    if not isinstance(values, Mapping):
        if name == "linear":
            return stretched(omega, values, np.ones(dim // 2))
        # The exponent makes the lowest frequency that of linear scaling by the factor.
        return frequencies(dim, base * values ** (dim / (dim - 2)), "concat")
    if name == "proportional":
        # The share of head_dim is of its rotated columns, and dim // 2 counts their
        # pairs.
        count = values.get("partial_rotary_factor", 1) * dim // 2
        of_rotated = omega / values.get("factor", 1)
        return np.where(np.arange(dim // 2) < count, of_rotated, 0.0)
    n = values["original_max_position_embeddings"]
    # The factor is that of the configuration, or the quotient of both lengths.
    s = values.get("factor") or values.get("max_position_embeddings", n) / n
    if name == "dynamic":
        # The base grows with the length of the sequence, and does not at lengths up to
        # n.
        s = s * max(values.get("seq_len", n), n) / n - (s - 1)
        return frequencies(dim, base * s ** (dim / (dim - 2)), "concat")
    if name == "longrope":
        # The factors for short texts serve up to the original length, that length
        # included.
        key = "long_factor" if values.get("seq_len", 0) > n else "short_factor"
        return stretched(omega, np.asarray(values[key]), np.ones(dim // 2))
    if name == "llama3":
        low, high = values["low_freq_factor"], values["high_freq_factor"]
        turns = n * omega / (2 * np.pi)
        return stretched(omega, s, np.clip((high - turns) / (high - low), 0, 1))
    # yarn: a ramp over the pairs that rotate `fast` to `slow` times in n positions.
    fast, slow = values.get("beta_fast", 32), values.get("beta_slow", 1)
    # The index c of the pair that makes `fast` or `slow` rotations in n positions, from
    # n * base^(-2c/dim) = 2 * pi * rotations.
    begin = dim / 2 * np.log(n / (2 * np.pi * fast)) / np.log(base)
    end = dim / 2 * np.log(n / (2 * np.pi * slow)) / np.log(base)
    # truncate rounds both ends outwards, to whole pairs.
    if values.get("truncate", True):
        begin, end = np.floor(begin), np.ceil(end)
    # The upper limit is dim - 1 and not the last pair, dim / 2 - 1.
    begin, end = max(begin, 0), min(end, dim - 1)
    # The ends of a ramp of length 0 would divide by 0.
    end = end + 0.001 if begin == end else end
    c = np.arange(dim // 2)
    return stretched(omega, s, np.clip((c - begin) / (end - begin), 0, 1))


def stretched(omega: Floats, factor: float | Floats, ramp: Floats) -> Floats:
    """From ω where the ramp is 0 to ω / factor where it is 1."""
    return omega * (1 - ramp) + omega / factor * ramp


def rotary_magnitude(
    scaling: tuple[str, float | Mapping[str, Any]] | None,
) -> float:
    """yarn: 0.1·ln s + 1; longrope: √(1 + ln s / ln n); else, and for s ≤ 1: 1."""
    if scaling is None or scaling[0] not in ("yarn", "longrope"):
        return 1.0
    name, values = scaling
    assert isinstance(values, Mapping)
    if values.get("attention_factor") is not None:
        return float(values["attention_factor"])
    n = values["original_max_position_embeddings"]
    s = values.get("factor") or values["max_position_embeddings"] / n
    # A context that is not extended keeps the magnitude of its scores.
    if s <= 1:
        return 1.0
    if name == "longrope":
        return float(np.sqrt(1 + np.log(s) / np.log(n)))
    # With both mscale factors the magnitude is a quotient of two such terms.
    above, below = values.get("mscale"), values.get("mscale_all_dim")
    if above and below:
        return float((0.1 * above * np.log(s) + 1) / (0.1 * below * np.log(s) + 1))
    return float(0.1 * np.log(s) + 1)


def xpos_magnitude(
    positions: ArrayLike, dim: int, *, scale_base: float = 512.0, inverse: bool = False
) -> Floats:
    """ζ_c^(n / scale_base), ζ_c = (2c + 0.4·dim) / (1.4·dim); for keys 1 over it."""
    # zeta grows with the frequency's index from 0.4 / 1.4 towards 1.
    zeta = (2 * np.arange(dim // 2) + 0.4 * dim) / (1.4 * dim)
    _, zeta, n = as_float64(zeta, counted(positions))
    exponent = n[..., None] / scale_base
    # A key has the reciprocal, so that a score depends on the difference of positions.
    return zeta ** (-exponent if inverse else exponent)


def mrope_angles(
    positions: ArrayLike,
    inv_freq: ArrayLike,
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Floats:
    """θ[.., n, c] = p[a(c), .., n]·ω_c: pair c rotates by its axis a(c) of three.

    Runs of `sections` pairs have the axes 0, 1, 2, 0, ..; interleaved, pair c has axis
    a = c mod 3 while c < 3·sections[a], and axis 0 from there on.
    """
    # The first axis of the positions holds the three coordinates of each token.
    xp, p, omega = as_float64(positions, inv_freq)
    if interleaved:
        axes = [c % 3 if c < 3 * sections[c % 3] else 0 for c in range(len(omega))]
    else:
        axes = []
        for run, count in enumerate(sections):
            axes += [run % 3] * count
    return xp.stack([p[a] * w for a, w in zip(axes, omega, strict=True)], axis=-1)


def axial_angles(coordinates: ArrayLike, inv_freq: ArrayLike) -> Floats:
    """θ[.., n, a·f + c] = x[.., n, a]·ω_c, f frequencies for each axis a."""
    xp, x, omega = as_float64(coordinates, inv_freq)
    of_axes = [x[..., a, None] * omega for a in range(x.shape[-1])]
    # The frequencies repeat for each axis: pairs of an axis lie together.
    return xp.concatenate(of_axes, axis=-1)


# ---- of a model's configuration ----------------------------------------------------

LENGTH = "original_max_position_embeddings"


class RotaryParameters(NamedTuple):
    """Frequencies, magnitude, number of rotated columns, and how they make pairs."""

    inv_freq: Floats
    magnitude: float
    rotary_dim: int
    interleaved: bool


def rotary_from_config(
    config: Mapping[str, Any],
    *,
    layer_type: str | None = None,
    seq_len: int | None = None,
) -> RotaryParameters:
    """ω and m of ``config["rope_parameters"]``, today's spelling; dim = head_dim·part.

    Scalings as in `rotary_frequencies`. dynamic: n = max_position_embeddings.
    proportional: dim = head_dim, and the part is of the rotated pairs.
    """
    rope = dict(config["rope_parameters"])
    rope = rope if layer_type is None else dict(rope[layer_type])
    name, base = rope.pop("rope_type"), rope.pop("rope_theta")
    dim = config.get("head_dim")
    # Full layers may have heads of another width.
    if layer_type == "full_attention":
        dim = config.get("global_head_dim") or dim
    dim = dim or config["hidden_size"] // config["num_attention_heads"]
    longest, scaling = config.get("max_position_embeddings"), None
    # The share of `proportional` is applied to frequencies, and dim is the head's in
    # full.
    if name != "proportional":
        dim = int(dim * rope.pop("partial_rotary_factor", 1.0))
    if name == "linear":
        scaling = name, rope["factor"]
    elif name != "default":
        rope = {"max_position_embeddings": longest, LENGTH: longest} | rope
        if name == "dynamic":
            # For `dynamic` the original length is that of the model, whatever the entry
            # says.
            rope[LENGTH] = longest
        if seq_len:
            rope["seq_len"] = seq_len
        scaling = name, rope
    inv_freq = rotary_frequencies(dim, base=base, scaling=scaling)
    interleaved = bool(config.get("rope_interleave", False))
    return RotaryParameters(inv_freq, rotary_magnitude(scaling), dim, interleaved)
