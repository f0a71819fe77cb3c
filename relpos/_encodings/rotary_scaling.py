"""Frequencies and magnitudes for `apply_rotary`: what models change to reach further.

With ω_c = base^(-2c/dim) and h = dim/2, c < h:

    linear    ω_c / s                                         (position interpolation)
    ntk       ω_c with base · s^(dim/(dim-2))
    dynamic   ntk with s·n/n₀ - (s - 1), n the length, n₀ the original one, n ≥ n₀
    yarn      ω_c (1 - r_c) + (ω_c / s) r_c,  r_c a ramp from 0 to 1 between the pairs
              that turn beta_fast and beta_slow times within n₀
    llama3    the same, the ramp being linear in the number of turns, from high to low
    longrope  ω_c / f_c,  f one list of factors up to n₀ and another past it
    proportional  ω_c / s for c < f·h, 0 for the others      (Gemma 4's full attention)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from relpos._checks import Array, quiet
from relpos._encodings.rotary_settings import (
    LENGTH,
    Settings,
    as_settings,
    even_dim,
    positive,
    stretch,
)
from relpos._encodings.sinusoidal import frequency_parts


def _frequencies(dim: int, base: float) -> Array:
    return frequency_parts(dim, base, None, dim // 2)[0].copy()


def _linear(dim: int, base: float, settings: Settings) -> Array:
    result: Array = _frequencies(dim, base) / settings["factor"]
    return result


def _ntk(dim: int, base: float, settings: Settings) -> Array:
    even_dim(dim, 4)  # with one pair the slowest frequency is the fastest
    growth = dim / (dim - 2) * math.log(settings["factor"])
    if math.log(base) + growth > math.log(np.finfo(np.float64).max):
        raise ValueError("scaling: the factor takes the base beyond float64")
    return _frequencies(dim, base * settings["factor"] ** (dim / (dim - 2)))


def _dynamic(dim: int, base: float, settings: Settings) -> Array:
    factor, original = settings["factor"], settings[LENGTH]
    length = max(settings.get("seq_len", original), original)
    return _ntk(dim, base, {"factor": factor * length / original - (factor - 1)})


def _yarn(dim: int, base: float, settings: Settings) -> Array:
    if base <= 1:
        raise ValueError(f"base: got {base}; expected more than 1 with 'yarn'")

    def pair_that_turns(times: float) -> float:
        """c with times · 2π / ω_c = the original length."""
        turns = settings[LENGTH] / (times * 2 * math.pi)
        return dim * math.log(turns) / (2 * math.log(base))

    low = pair_that_turns(settings.get("beta_fast", 32))
    high = pair_that_turns(settings.get("beta_slow", 1))
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # a step
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    frequencies = _frequencies(dim, base)
    slow = frequencies / stretch("yarn", settings)
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
    turns = settings[LENGTH] * frequencies / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    slow = frequencies / settings["factor"]
    result: Array = frequencies * share + slow * (1 - share)
    return result


def _longrope(dim: int, base: float, settings: Settings) -> Array:
    past = settings.get("seq_len", 0) > settings[LENGTH]
    key = "long_factor" if past else "short_factor"
    if settings[key].shape != (dim // 2,):
        raise ValueError(
            f"scaling: {key} has shape {settings[key].shape}; expected "
            f"({dim // 2},), one per pair of dim {dim}"
        )
    result: Array = _frequencies(dim, base) / settings[key]
    return result


def _proportional(dim: int, base: float, settings: Settings) -> Array:
    frequencies: Array = _frequencies(dim, base) / settings.get("factor", 1.0)
    frequencies[int(settings.get("partial_rotary_factor", 1.0) * dim // 2) :] = 0.0
    return frequencies


_SCALINGS = {
    "linear": _linear,
    "ntk": _ntk,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
    "proportional": _proportional,
}


@quiet
def rotary_frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    scaling: tuple[str, float | Mapping[str, Any]] | None = None,
) -> Array:
    r"""Frequencies of a rotary encoding, also stretched for longer sequences.

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
        and may say their own name as ``rope_type``. n₀ is
        ``original_max_position_embeddings``.

        - ``("linear", s)``: positions are interpolated, ω / s [1]_.
        - ``("ntk", s)``: the base grows to base · s^(dim/(dim-2)), so that the lowest
          frequency is divided by s and the highest stays.
        - ``("dynamic", {"factor", n₀, "seq_len"})``: "ntk" by s·n/n₀ - (s - 1), where n
          is the larger of ``seq_len`` and n₀.
        - ``("yarn", {"factor", n₀, ..})``: pairs that turn more than ``beta_fast`` (32)
          times within n₀ keep their frequency, those that turn less than ``beta_slow``
          (1) times are divided by the factor, with a ramp over the pairs between [2]_,
          which begins and ends at whole pairs unless ``truncate`` is False.
        - ``("llama3", {"factor", "low_freq_factor", "high_freq_factor", n₀})``: the
          same between ``low_freq_factor`` and ``high_freq_factor`` turns, with a ramp
          over the turns [3]_.
        - ``("longrope", {"short_factor", "long_factor", n₀, "seq_len"})``: each pair
          divided by a factor of its own, from the second list past n₀ [4]_.
        - ``("proportional", {"partial_rotary_factor", "factor"})``: f and s, both 1 by
          default. The first int(f·dim/2) pairs turn by ω / s, the others by 0, and all
          of `dim` is turned: unlike `rotary_dim` of `apply_rotary` this leaves both the
          exponents and the pairs (c, dim/2 + c) those of the whole width [5]_.

    Returns
    -------
    ndarray of float64, (dim / 2,)
        For `inv_freq` of `apply_rotary`.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `dim` is odd or less than 2 ("ntk" and "dynamic": 4), `base` is not positive,
        or `scaling` has an unknown name, an unknown or missing key, or a wrong value.

    See Also
    --------
    rotary_magnitude : What "yarn" and "longrope" multiply by besides.
    rotary_from_config : Both from the configuration of a model.
    apply_rotary : Takes the frequencies as `inv_freq`.

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
    number = positive("base", base)
    if scaling is None:
        return _frequencies(columns, number)
    name, settings = as_settings(scaling)
    return _SCALINGS[name](columns, number, settings)


def _yarn_growth(factor: float, weight: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1


def rotary_magnitude(
    scaling: tuple[str, float | Mapping[str, Any]] | None,
) -> float:
    r"""Magnitude of turned queries and keys that goes with the scaled frequencies.

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

    Raises
    ------
    TypeError
        If `scaling` is of the wrong kind.
    ValueError
        If it has an unknown name, an unknown or missing key, or a wrong value.

    See Also
    --------
    rotary_frequencies : The frequencies of the same scaling.
    apply_rotary : Takes the result as `magnitude`.

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
        factor = stretch(name, settings)
        above, below = (settings.get(key, 0.0) for key in ("mscale", "mscale_all_dim"))
        if above and below:
            return _yarn_growth(factor, above) / _yarn_growth(factor, below)
        return _yarn_growth(factor)
    if name == "longrope":
        factor = stretch(name, settings)
        if factor > 1:
            if settings[LENGTH] <= 1:
                raise ValueError(
                    f"scaling: {LENGTH} is {settings[LENGTH]}; expected more than 1"
                )
            return math.sqrt(1 + math.log(factor) / math.log(settings[LENGTH]))
    return 1.0
