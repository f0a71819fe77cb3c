"""Frequencies and magnitudes for `apply_rotary` by scaling.

A scaling is a name and its values, with the keys of Hugging Face's ``rope_scaling``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypedDict

import numpy as np

from relpos._checks import (
    Array,
    as_array,
    as_choice,
    as_flag,
    as_int,
    as_positive,
    as_real,
    kind_of,
    quiet,
)
from relpos._encodings.absolute import MAX_DIM, frequency_parts
from relpos._text import in_short

__all__ = ["RotaryParameters", "rotary_frequencies", "rotary_magnitude"]

LENGTH: Final = "original_max_position_embeddings"


class Settings(TypedDict, total=False):
    """Values of a scaling, by the keys of ``rope_scaling``; each scaling has some."""

    factor: float
    original_max_position_embeddings: float
    max_position_embeddings: float
    seq_len: float
    attention_factor: float
    beta_fast: float
    beta_slow: float
    mscale: float
    mscale_all_dim: float
    truncate: bool
    low_freq_factor: float
    high_freq_factor: float
    short_factor: Array
    long_factor: Array
    partial_rotary_factor: float


def even_dim(dim: object, low: int = 2) -> int:
    """Return `dim`, an even number of at least `low`."""
    columns = as_int("dim", dim, low, MAX_DIM)
    if columns % 2:
        raise ValueError(f"dim: got {columns}; expected an even number, of pairs")
    return columns


def share(name: str, value: object) -> float:
    number = as_real(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name}: got {number}; expected a number from 0 to 1")
    return number


def as_settings(scaling: object) -> tuple[str, Settings]:
    """Return name and values of `scaling`, all keys known and none missing."""
    if not isinstance(scaling, (tuple, list)) or len(scaling) != 2:
        raise TypeError(
            f"scaling: got {kind_of(scaling)}; expected None or a pair of a name and "
            'its values, as in ("linear", 2.0)'
        )
    name = as_choice("scaling", scaling[0], SCALINGS)
    _, required, optional = SCALINGS[name]
    known = required + optional
    if not known:
        return name, {"factor": as_positive(f"scaling: factor of {name}", scaling[1])}
    if not isinstance(scaling[1], Mapping):
        raise TypeError(
            f"scaling: got {kind_of(scaling[1])} with {name!r}; expected a dict with "
            f"{', '.join(map(repr, required or optional))}"
        )
    # Files have keys of null, and may repeat the name in the newer or older spelling.
    values = {key: value for key, value in scaling[1].items() if value is not None}
    for label in ("rope_type", "type"):
        if values.pop(label, name) != name:
            raise ValueError(
                f"scaling: its {label} is {scaling[1][label]!r}; expected {name!r}"
            )
    for key in values:
        if key not in known:
            raise ValueError(
                f"scaling: {name!r} has no key {key!r}; expected some of "
                f"{', '.join(map(repr, known))}"
            )
    for key in required:
        if key not in values:
            raise ValueError(f"scaling: got no {key!r}; {name!r} needs it")
    settings: Any = {key: _value(key, value) for key, value in values.items()}
    return name, settings


def _value(key: str, value: object) -> Any:
    name = f"scaling: {key}"
    if key == "truncate":
        return as_flag(name, value)
    if key in ("mscale", "mscale_all_dim"):
        return as_real(name, value)
    if key == "partial_rotary_factor":
        return share(name, value)
    if key not in ("short_factor", "long_factor"):
        return as_positive(name, value)
    factors = as_array(name, value)
    known = factors.dtype.kind in "iuf" and np.isfinite(factors).all()
    if not known or not (factors > 0).all():
        raise ValueError(f"{name}: expected positive numbers")
    return factors.astype(np.float64)


def _factor(name: str, settings: Settings) -> float:
    if "factor" in settings:
        return float(settings["factor"])
    if "max_position_embeddings" not in settings:
        raise ValueError(
            f"scaling: got neither 'factor' nor 'max_position_embeddings'; {name!r} "
            "needs one of them here"
        )
    return float(settings["max_position_embeddings"] / settings[LENGTH])


def _frequencies(dim: int, base: float) -> Array:
    return frequency_parts(dim, base, None, dim // 2)[0].copy()


def _linear(dim: int, base: float, settings: Settings) -> Array:
    result: Array = _frequencies(dim, base) / settings["factor"]
    return result


def _ntk(dim: int, base: float, settings: Settings) -> Array:
    even_dim(dim, 4)  # with one pair the slowest frequency is the fastest
    grown = base * np.float64(settings["factor"]) ** (dim / (dim - 2))
    if not 0 < grown < np.inf:
        raise ValueError("scaling: the factor takes the base beyond float64")
    return _frequencies(dim, float(grown))


def _dynamic(dim: int, base: float, settings: Settings) -> Array:
    # The factor grows with the length beyond the original one, within which it is 1.
    factor, original = settings["factor"], settings[LENGTH]
    length = max(settings.get("seq_len", original), original)
    return _ntk(dim, base, {"factor": factor * length / original - (factor - 1)})


def _yarn(dim: int, base: float, settings: Settings) -> Array:
    if base <= 1:
        raise ValueError(f"base: got {base}; expected more than 1 with 'yarn'")

    def pair_of(rotations: float) -> float:
        """Return c with rotations · 2π / ω_c = the original length."""
        radians = settings[LENGTH] / (rotations * 2 * math.pi)
        return dim * math.log(radians) / (2 * math.log(base))

    low = pair_of(settings.get("beta_fast", 32))
    high = pair_of(settings.get("beta_slow", 1))
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    # As in transformers, the ramp is cut at dim - 1 and not at the last pair, and ends
    # that are equal are moved apart by this much, so that it is a step.
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    frequencies = _frequencies(dim, base)
    slow = frequencies / _factor("yarn", settings)
    result: Array = frequencies * (1 - ramp) + slow * ramp
    return result


def _llama3(dim: int, base: float, settings: Settings) -> Array:
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    if low >= high:
        raise ValueError(
            f"scaling: low_freq_factor is {low}, high_freq_factor {high}; expected the "
            "second to be larger"
        )
    frequencies = _frequencies(dim, base)
    # Pairs with many rotations in the original length stay as they are, those with few
    # are divided by the factor, and between them is a ramp.
    rotations = settings[LENGTH] * frequencies / (2 * math.pi)
    share_kept = np.clip((rotations - low) / (high - low), 0, 1)
    slow = frequencies / settings["factor"]
    result: Array = frequencies * share_kept + slow * (1 - share_kept)
    return result


def _longrope(dim: int, base: float, settings: Settings) -> Array:
    key, factors = "short_factor", settings["short_factor"]
    if settings.get("seq_len", 0) > settings[LENGTH]:
        key, factors = "long_factor", settings["long_factor"]
    if factors.shape != (dim // 2,):
        raise ValueError(
            f"scaling: {key} has shape {factors.shape}; expected ({dim // 2},), one "
            f"per pair of dim {dim}"
        )
    result: Array = _frequencies(dim, base) / factors
    return result


def _proportional(dim: int, base: float, settings: Settings) -> Array:
    frequencies: Array = _frequencies(dim, base) / settings.get("factor", 1.0)
    # Pairs that do not rotate have the frequency 0: those that do keep their exponents.
    frequencies[int(settings.get("partial_rotary_factor", 1.0) * dim // 2) :] = 0.0
    return frequencies


class Scaling(NamedTuple):
    """Frequencies of (dim, base, settings), and keys of a dict; a factor has none."""

    frequencies: Callable[[int, float, Settings], Array]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


#: Scalings, with the keys that a dict must and may have, without those of its name.
SCALINGS = {
    "linear": Scaling(_linear),
    "ntk": Scaling(_ntk),
    "dynamic": Scaling(_dynamic, ("factor", LENGTH), ("seq_len",)),
    "yarn": Scaling(
        _yarn,
        (LENGTH,),
        (
            "factor",
            "max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ),
    ),
    "llama3": Scaling(
        _llama3, ("factor", "low_freq_factor", "high_freq_factor", LENGTH)
    ),
    "longrope": Scaling(
        _longrope,
        ("short_factor", "long_factor", LENGTH),
        ("factor", "max_position_embeddings", "attention_factor", "seq_len"),
    ),
    "proportional": Scaling(_proportional, (), ("factor", "partial_rotary_factor")),
}


def _yarn_growth(factor: float, weight: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1


@quiet
def rotary_frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    scaling: tuple[str, float | Mapping[str, Any]] | None = None,
) -> Array:
    r"""Frequencies of a rotary encoding, also scaled for longer sequences.

    .. math:: \omega_c = base^{-2c/dim}, \quad c < dim / 2

    or what `scaling` makes of them.

    Parameters
    ----------
    dim : int
        The `rotary_dim` of `apply_rotary`; even.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    scaling : (str, float) or (str, dict), optional
        A name and its values; dicts have the keys of Hugging Face's ``rope_scaling``
        and may have their own name as ``rope_type``. n₀ is
        ``original_max_position_embeddings``.

        - ``("linear", s)``: positions are interpolated, ω / s [1]_.
        - ``("ntk", s)``: the base grows to base · s^(dim/(dim-2)), so that the lowest
          frequency is divided by s and the highest stays.
        - ``("dynamic", {"factor", n₀, "seq_len"})``: "ntk" by s·n/n₀ - (s - 1), where n
          is the larger of ``seq_len`` and n₀.
        - ``("yarn", {"factor", n₀, ..})``: pairs with more than ``beta_fast`` (32)
          rotations within n₀ keep their frequency, those with less than ``beta_slow``
          (1) are divided by the factor, with a ramp over the pairs between [2]_, which
          begins and ends at whole pairs unless ``truncate`` is False. As in
          ``transformers`` it is cut at pairs 0 and dim - 1: where it lies outside, or
          ``beta_fast`` is less than ``beta_slow``, fast pairs may be the divided ones.
        - ``("llama3", {"factor", "low_freq_factor", "high_freq_factor", n₀})``: the
          same between ``low_freq_factor`` and ``high_freq_factor`` rotations, with a
          ramp over their number [3]_.
        - ``("longrope", {"short_factor", "long_factor", n₀, "seq_len"})``: each pair
          divided by a factor of its own, from the second list past n₀ [4]_.
        - ``("proportional", {"partial_rotary_factor", "factor"})``: f and s, both 1 by
          default. The first int(f·dim/2) pairs rotate by ω / s, the others by 0, and
          all of `dim` is rotated: unlike with `rotary_dim` of `apply_rotary`, exponents
          and pairs (c, dim/2 + c) remain those of the whole width [5]_.

    Returns
    -------
    ndarray of float64, (dim / 2,)
        For `inv_freq` of `apply_rotary`.

    Raises
    ------
    ValueError
        If `dim` is odd or less than 2 ("ntk" and "dynamic": 4), `base` is not positive,
        or `scaling` has an unknown name, an unknown or missing key, or a wrong value.

    See Also
    --------
    rotary_magnitude : The factor of "yarn" and "longrope" for rotated columns.
    rotary_from_config : Both from the configuration of a model.

    References
    ----------
    .. [1] Chen et al., "Extending Context Window of Large Language Models via
       Positional Interpolation", 2023, arXiv:2306.15595.
    .. [2] Peng et al., "YaRN: Efficient Context Window Extension of Large Language
       Models", 2023, arXiv:2309.00071.
    .. [3] Grattafiori et al., "The Llama 3 Herd of Models", 2024, arXiv:2407.21783.
    .. [4] Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million
       Tokens", 2024, arXiv:2402.13753.
    .. [5] Barbero et al., "Round and Round We Go! What makes Rotary Positional
       Encodings useful?", 2024, arXiv:2410.06205: p-RoPE, as Gemma 4 has it.

    Examples
    --------
    >>> import relpos
    >>> relpos.rotary_frequencies(4)
    array([1.  , 0.01])
    >>> relpos.rotary_frequencies(4, scaling=("linear", 2))
    array([0.5  , 0.005])
    >>> relpos.rotary_frequencies(4, scaling=("ntk", 2))
    array([1.   , 0.005])
    >>> relpos.rotary_frequencies(8, scaling=("proportional", {"factor": 2.0}))
    array([0.5   , 0.05  , 0.005 , 0.0005])
    """
    columns = even_dim(dim)
    number = as_positive("base", base)
    if scaling is None:
        return _frequencies(columns, number)
    name, settings = as_settings(scaling)
    return SCALINGS[name].frequencies(columns, number, settings)


def rotary_magnitude(
    scaling: tuple[str, float | Mapping[str, Any]] | None,
) -> float:
    r"""Magnitude of rotated queries and keys that goes with the scaled frequencies.

    .. math::

        \text{yarn: } 0.1 \ln s + 1, \qquad
        \text{longrope: } \sqrt{1 + \ln s / \ln n_0}

    for s > 1, else 1; other scalings have 1. Scores have the square of it.

    Parameters
    ----------
    scaling : (str, float), (str, dict) or None
        As in `rotary_frequencies`. ``attention_factor`` gives the value itself. With
        both ``mscale`` and ``mscale_all_dim`` it is, for "yarn", the quotient of
        0.1 mscale ln s + 1 and the same of ``mscale_all_dim``. Without ``factor``, s is
        ``max_position_embeddings`` / ``original_max_position_embeddings``.

    Returns
    -------
    float
        For `magnitude` of `apply_rotary`.

    References
    ----------
    .. [1] Peng et al., "YaRN: Efficient Context Window Extension of Large Language
       Models", 2023, arXiv:2309.00071, section 3.4.
    .. [2] Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million
       Tokens", 2024, arXiv:2402.13753.

    Examples
    --------
    >>> import relpos
    >>> yarn = "yarn", {"factor": 4, "original_max_position_embeddings": 4096}
    >>> round(relpos.rotary_magnitude(yarn), 4)
    1.1386
    >>> relpos.rotary_magnitude(("linear", 4))
    1.0
    """
    if scaling is None:
        return 1.0
    name, settings = as_settings(scaling)
    if "attention_factor" in settings:
        return float(settings["attention_factor"])
    if name == "yarn":
        factor = _factor(name, settings)
        above = settings.get("mscale", 0.0)
        below = settings.get("mscale_all_dim", 0.0)
        if above and below:  # 0 is as absent, as in transformers
            return _yarn_growth(factor, above) / _yarn_growth(factor, below)
        return _yarn_growth(factor)
    if name == "longrope":
        return _longrope_growth(_factor(name, settings), settings[LENGTH])
    return 1.0


def _longrope_growth(factor: float, length: float) -> float:
    if factor <= 1:
        return 1.0
    if length <= 1:  # whose logarithm divides
        raise ValueError(f"scaling: {LENGTH} is {length}; expected more than 1")
    return math.sqrt(1 + math.log(factor) / math.log(length))


@in_short
class RotaryParameters(NamedTuple):
    """Arguments of `apply_rotary` that a model has, under their names there.

    Attributes
    ----------
    inv_freq : ndarray of float64, (rotary_dim / 2,)
    magnitude : float
    rotary_dim : int
    interleaved : bool
    """

    inv_freq: Array
    magnitude: float
    rotary_dim: int
    interleaved: bool
