"""Frequencies and magnitudes for `apply_rotary`: by scaling, and by configuration.

A scaling is a name and its values, with the keys of Hugging Face's ``rope_scaling``.
Configurations of models have several spellings: `_of_layer` brings the values of one
type of layer to the newest, a dict with ``rope_type`` and ``rope_theta``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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
    reject_foreign,
)
from relpos._encodings.absolute import MAX_DIM, frequency_parts
from relpos._text import in_short

__all__ = ["RotaryParameters", "rotary_frequencies", "rotary_from_config"]
__all__ += ["rotary_magnitude"]

Settings = dict[str, Any]

LENGTH = "original_max_position_embeddings"


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
    return name, {key: _value(key, value) for key, value in values.items()}


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


def _ntk(dim: int, base: float, settings: Settings) -> Array:
    even_dim(dim, 4)  # with one pair the slowest frequency is the fastest
    grown = base * np.float64(settings["factor"]) ** (dim / (dim - 2))
    if not 0 < grown < np.inf:
        raise ValueError("scaling: the factor takes the base beyond float64")
    return _frequencies(dim, float(grown))


def _dynamic(dim: int, base: float, settings: Settings) -> Array:
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
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # a step
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
    rotations = settings[LENGTH] * frequencies / (2 * math.pi)
    kept = np.clip((rotations - low) / (high - low), 0, 1)
    slow = frequencies / settings["factor"]
    result: Array = frequencies * kept + slow * (1 - kept)
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


class Scaling(NamedTuple):
    """Frequencies of (dim, base, settings), and keys of a dict; a factor has none."""

    frequencies: Callable[[int, float, Settings], Array]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


#: Scalings, with the keys that a dict must and may have, without those of its name.
SCALINGS = {
    "linear": Scaling(lambda dim, base, by: _frequencies(dim, base) / by["factor"]),
    "ntk": Scaling(_ntk),
    "dynamic": Scaling(_dynamic, ("factor", LENGTH), ("seq_len",)),
    "yarn": Scaling(
        _yarn,
        (LENGTH,),
        (
            *("factor", "max_position_embeddings", "attention_factor", "beta_fast"),
            *("beta_slow", "mscale", "mscale_all_dim", "truncate"),
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
        above, below = (settings.get(key, 0.0) for key in ("mscale", "mscale_all_dim"))
        if above and below:
            return _yarn_growth(factor, above) / _yarn_growth(factor, below)
        return _yarn_growth(factor)
    if name == "longrope" and (factor := _factor(name, settings)) > 1:
        if settings[LENGTH] <= 1:
            raise ValueError(
                f"scaling: {LENGTH} is {settings[LENGTH]}; expected more than 1"
            )
        return math.sqrt(1 + math.log(factor) / math.log(settings[LENGTH]))
    return 1.0


# ---- the rotary encoding of a configuration ------------------------------------------

Values = Mapping[str, Any]

#: Keys of which a configuration with a rotary encoding has at least one.
_ROTARY = {
    *("rope_parameters", "rope_scaling", "rope_theta", "global_rope_theta"),
    *("rotary_dim", "rotary_pct", "rotary_emb_base", "partial_rotary_factor"),
}
_HEADS = "num_attention_heads", "n_head", "n_heads", "encoder_num_attention_heads"
#: Values of ``rope_type``.
_TYPES = ("default", *(name for name in SCALINGS if name != "ntk"))
#: Names of scalings in some models, and their meaning.
_OTHER_NAMES = {"su": "longrope", "mrope": "default"}
_FULL, _SLIDING = "full_attention", "sliding_attention"
#: Models whose scaling is of the layers of full attention alone.
_SCALED_WHERE_FULL = {"olmo3"}
_GEMMA = "gemma3_text gemma3n_text t5gemma2_decoder t5gemma2_text"
#: Models with a base for sliding layers, whose scaling is of all layers.
_MODERNBERT = "modernbert modernbert-decoder"
_PART, _APART = "partial_rotary_factor", "qk_rope_head_dim"
#: Values of transformers for keys that a configuration of these types may lack.
_DEFAULTS = {
    ("rope_theta", 1e4): "codegen falcon gptj",
    ("rope_theta", 1e6): _GEMMA,
    ("rope_local_base_freq", 1e4): _GEMMA,
    ("global_rope_theta", 1.6e5): _MODERNBERT,
    ("local_rope_theta", 1e4): _MODERNBERT,
    ("rotary_dim", 64): "codegen gptj",
    ("rotary_pct", 0.25): "gpt_neox",
    (_PART, 0.25): "qwen3_5_moe_text qwen3_5_text qwen3_next stablelm",
    (_PART, 0.5): "bamba glm glm4 glm4_moe glm4v_moe_text nemotron persimmon phi "
    "recurrent_gemma",
    (_PART, 0.9): "moonshine",
    (_APART, 32): "axk2 minicpm3",
    (_APART, 64): "axk1 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 "
    "deepseek_v4 dots3_note_text glm4_moe_lite glm_moe_dsa hy_v4 longcat_flash "
    "mistral4 mistral_large4_text youtu",
    ("head_dim", 64): "gpt_oss muse_spark_text neomme neucodec openai_privacy_filter "
    "qwen2_5_omni_dit voxtral_realtime_encoder xcodec2",
    ("head_dim", 80): "timesfm2_5",
    ("head_dim", 128): "afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder "
    "dia_encoder ernie4_5 flint glm glm4 helium higgs_audio_v2 hrm_text hy_v3 "
    "internlm3 iquestcoder kolibri1 laguna lfm3 llama4_text mellum minimax_m2 "
    "minimax_m3_vl_text ministral3 molmo2_text muse_glimmer_assistant "
    "muse_glimmer_text paddleocr_vl_text pe_audio_encoder pe_audio_video_encoder "
    "pe_video_encoder qwen2_5_omni_talker qwen3 qwen3_omni_moe_talker_code_predictor "
    "qwen3_vl_text seed_oss solar_open step3p5 zaya",
    ("head_dim", 192): "mimo_v2_flash",
    ("head_dim", 256): "diffusion_gemma_text embedding_gemma2_text gemma gemma2 "
    "gemma4_text gemma4_unified_text qwen3_5_moe_text qwen3_5_text qwen3_next "
    f"qwen4_exp_text t5_gemma_module vaultgemma {_GEMMA}",
}
#: Models whose base has another default than 10000, which not all versions share.
_OTHER_BASE = set(
    "apertus bailing_hybrid bitnet blt blt_global_transformer blt_local_decoder "
    "blt_local_encoder cohere cosmos3_edge_text csm csm_depth_decoder_model cwm "
    "dots3_note_text emu3_text_model ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text evolla "
    "flex_olmo fuyu gpt_oss gte helium hy_v3 jina_embeddings_v3 lfm2 lfm2_moe lfm3 "
    "llama4_text longcat_flash minimax minimax_m2 minimax_m3_vl_text mixtral "
    "mllama_text_model muse_glimmer_assistant musicflamingo neomme nomic_bert olmo3 "
    "openai_privacy_filter paddleocr_vl_text pe_audio_encoder pe_audio_video_encoder "
    "pe_video_encoder phimoe qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text "
    "qwen2_vl_text qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text smollm3 "
    f"solar_open {_GEMMA} {_MODERNBERT}".split()
)
#: Encoders of images whose rotation is of a grid, with keys as of a sequence.
_OF_GRIDS = {
    *("dinov3_vit", "eomt_dinov3", "gemma4_vision", "llama4_vision_model", "pixtral"),
    "sapiens2",
}
#: Models whose layers of full attention have no rotary encoding.
_ROTATED_WHERE_SLIDING = {"afmoe", "cohere2", "flint"}
#: Models with interleaved pairs, by ``model_type``: configurations rarely have a key.
_INTERLEAVED = {
    *("axk1", "axk2", "bailing_hybrid", "blt_global_transformer", "blt_local_decoder"),
    *("blt_local_encoder", "blt_patcher", "codegen", "cohere", "cohere2"),
    *("cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4"),
    *("dots3_note_text", "ernie4_5", "ernie4_5_moe", "ernie4_5_vl_moe_text", "glm"),
    *("glm4", "glm4_moe_lite", "glm4v_text", "glm_moe_dsa", "glm_ocr_text", "gptj"),
    *("helium", "llama4_text", "longcat_flash", "mistral4", "mistral_large4_text"),
    *("moonshine", "moonshine_streaming", "openai_privacy_filter", "pe_audio_encoder"),
    *("pe_audio_video_encoder", "pe_video_encoder", "youtu"),
}


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


def as_config(config: object) -> Values:
    reject_foreign("config", config)
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    elif not isinstance(config, Mapping) and hasattr(config, "__dict__"):
        config = vars(config)
    if not isinstance(config, Mapping):
        raise TypeError(
            f"config: got {kind_of(config)}; expected a dict, such as that of "
            "config.json, or a configuration of transformers"
        )
    return config


def _as_values(config: object) -> Values:
    """Return the configuration of the text, with what its type has by default."""
    values = as_config(config)
    text = values.get("text_config")
    if text is not None:
        return _as_values(text)
    kind = _type_of(values)
    own = {key: x for (key, x), types in _DEFAULTS.items() if kind in types.split()}
    return {**own, **values}


def _type_of(config: Values) -> str:
    return str(config.get("model_type"))


def _first(values: Values, *names: str) -> Any:
    """Return the value of the first of several spellings that is present."""
    return next((values[name] for name in names if values.get(name) is not None), None)


def _choose(layer_type: str | None, types: list[str]) -> str:
    if layer_type not in types:
        raise ValueError(
            f"layer_type: got {layer_type!r}; expected one of "
            f"{', '.join(map(repr, types))}, as the layers of this config differ"
        )
    return layer_type


def _of_layer(config: Values, layer_type: str | None) -> dict[str, Any]:
    """Return ``rope_parameters`` of one type of layer, with its base."""
    ropes = (config.get(name) for name in ("rope_scaling", "rope_parameters"))
    said = (x for x in ropes if x is not None)
    rope = next((x for x in said if not isinstance(x, Mapping) or x), {})
    if not isinstance(rope, Mapping):
        raise TypeError(
            f"config: its rope_parameters are {kind_of(rope)}; expected a dict"
        )
    base = _first(config, "rope_theta", "global_rope_theta", "rotary_emb_base")
    nested = [name for name, values in rope.items() if isinstance(values, Mapping)]
    local = _first(config, "rope_local_base_freq", "local_rope_theta")
    if local is None and _type_of(config) in _SCALED_WHERE_FULL:
        local = base
    if nested:
        values = dict(rope[_choose(layer_type, nested)])
        base = local if layer_type == _SLIDING and local is not None else base
    elif local is not None:
        full = _choose(layer_type, [_FULL, _SLIDING]) == _FULL
        scaled = full or _type_of(config) in _MODERNBERT.split()
        values = dict(rope) if scaled else {}
        base = base if full else local
    else:
        values = dict(rope)
        if layer_type is not None:
            _choose(layer_type, _layer_types(config) or [layer_type])
        if config.get(LENGTH) is not None:
            values[LENGTH] = config[LENGTH]
    if values.get("rope_theta") is None:
        if base is None and _type_of(config) in _OTHER_BASE:
            raise ValueError(
                "config: got no rope_theta; expected one, because "
                f"{_type_of(config)}'s own default is not 10000"
            )
        values["rope_theta"] = 10000.0 if base is None else base
    return values


def _layer_types(config: Values) -> list[str]:
    types = config.get("layer_types")
    return [*types] if isinstance(types, (list, tuple)) else []


def _wide_head_dim(config: Values, layer_type: str | None) -> Any:
    """Return the columns of a head where those of that type differ."""
    types, layers = _layer_types(config), config.get("per_layer_config")
    if layer_type in types and isinstance(layers, Mapping):
        for number, values in layers.items():  # numbers as text, such as "05"
            if str(number).lstrip("0") == str(types.index(layer_type)).lstrip("0"):
                return values.get("head_dim") if isinstance(values, Mapping) else None
    return config.get("global_head_dim") if layer_type == _FULL else None


def _head_dim(config: Values, layer_type: str | None) -> int:
    own = _wide_head_dim(config, layer_type)
    if own is None:
        own = _first(config, "head_dim", "attention_head_dim", "kv_channels")
    if own is not None:
        return as_int("config: its head_dim", own, 1, MAX_DIM)
    width = _first(config, "hidden_size", "n_embd", "d_model")
    heads = _first(config, *_HEADS)
    if width is None or heads is None:
        raise ValueError(
            "config: says neither head_dim nor both hidden_size and "
            "num_attention_heads; expected one of them"
        )
    count = as_int("config: its num_attention_heads", heads, 1)
    return as_int("config: its hidden_size", width, 1) // count


def _rotary_dim(config: Values, values: Values, head_dim: int) -> int:
    columns = config.get("qk_rope_head_dim")  # apart from the others of a head
    part = _first(values, "partial_rotary_factor")
    if part is None:
        columns = _first(config, "qk_rope_head_dim", "rotary_dim")
        part = _first(config, "partial_rotary_factor", "rotary_pct")
    if columns is not None:
        return as_int("config: its rotary_dim", columns, 2, MAX_DIM)
    if part is None:
        return head_dim
    return int(head_dim * share("config: its partial_rotary_factor", part))


def _kind_of_scaling(values: Values) -> str:
    name = _first(values, "rope_type", "type") or "default"
    name = _OTHER_NAMES.get(name, name) if isinstance(name, str) else name
    if name == "yarn" and "short_factor" in values:  # Phi-3's first configurations
        return "longrope"
    if name == "axial":
        raise ValueError(
            "config: its rope_type is 'axial', of a grid; expected one of a sequence "
            "(axial_angles has the angles, of rotary_frequencies(head_dim // 2, "
            "base=rope_theta))"
        )
    if name not in _TYPES:
        raise ValueError(
            f"config: its rope_type is {name!r}; expected one of "
            f"{', '.join(map(repr, _TYPES))}"
        )
    return str(name)


def _scaling(config: Values, values: Values, seq_len: int | None) -> Any:
    """Return `scaling` of `rotary_frequencies`, with the keys that it reads alone."""
    name = _kind_of_scaling(values)
    if name == "default":
        return None
    if name == "linear":
        return name, values.get("factor")
    if name == "dynamic" and values.get("alpha") is not None:  # HunYuan's
        return "ntk", values["alpha"]
    longest = _first(config, "max_position_embeddings", "n_positions")
    known = {"max_position_embeddings": longest, LENGTH: longest, "seq_len": seq_len}
    if name == "dynamic":  # its length is that of the configuration
        values = {"factor": values.get("factor")}
    given = {**known, **{key: x for key, x in values.items() if x is not None}}
    if name == "longrope":  # Phi-3.5-MoE's magnitudes, of either length
        own = given[LENGTH] and as_int(f"config: {LENGTH}", given[LENGTH], 1)
        far = seq_len is not None and own and seq_len > own
        factor = values.get("long_mscale" if far else "short_mscale")
        given["attention_factor"] = factor or given.get("attention_factor")
    _, required, optional = SCALINGS[name]
    return name, {key: given[key] for key in required + optional if key in given}


def _check_rotates(config: Values, layer_type: str | None) -> None:
    """Raise for a model, or for layers of it, whose rotation is not of a sequence."""
    kind = _type_of(config)
    if kind in _OF_GRIDS:
        raise ValueError(
            f"config: its model_type is {kind!r}, of a grid; expected one of a "
            "sequence (axial_angles has the angles of grids)"
        )
    if kind in _ROTATED_WHERE_SLIDING and layer_type == _FULL:
        raise ValueError(
            f"layer_type: got {layer_type!r}, without a rotary encoding in {kind}; "
            f"expected {_SLIDING!r}"
        )
    if kind == "falcon" and config.get("alibi"):
        raise ValueError(
            "config: its alibi is set; expected a model that rotates instead"
        )


def rotary_from_config(
    config: Mapping[str, Any] | object,
    *,
    layer_type: str | None = None,
    seq_len: int | None = None,
) -> RotaryParameters:
    r"""Rotary encoding of a model, from its Hugging Face configuration.

    .. math:: \omega_c = base^{-2c/rotary\_dim}, \quad c < rotary\_dim / 2

    or these scaled as `rotary_frequencies` does for the scaling that it names:

    ``apply_rotary(query, **rotary_from_config(config)._asdict())``

    Parameters
    ----------
    config : dict or configuration of transformers
        The content of config.json, in the newest spelling (``rope_parameters`` with
        ``rope_type`` and ``rope_theta``, one dict or one for each type of layer) or any
        older one (``rope_scaling`` with ``type``, ``rope_theta``, ``rotary_pct``,
        ``rotary_dim``, ``rope_local_base_freq``, ..). Of several parts the
        ``text_config`` counts.
    layer_type : str, optional
        The type of layer, where they differ: ``"full_attention"`` or
        ``"sliding_attention"`` in Gemma 3 and 4, ModernBERT and others.
    seq_len : int, optional
        The length of the sequence, for "dynamic" and "longrope", whose frequencies
        change with it. Default: one that the model was trained for.

    Returns
    -------
    RotaryParameters
        The named tuple (inv_freq, magnitude, rotary_dim, interleaved). `interleaved` is
        that of ``rope_interleave`` or, as configurations rarely have it, of
        ``model_type``. Where rotated columns are apart from the others
        (``qk_rope_head_dim``), `rotary_dim` is their number.

    Raises
    ------
    ValueError
        If `config` has no rotary encoding, names an unknown ``rope_type`` or lacks
        values that it needs, or `layer_type` names none of layers that differ.

    See Also
    --------
    mrope_angles : For models whose ``rope_parameters`` have an ``mrope_section``.

    Notes
    -----
    As in transformers, "dynamic" compares `seq_len` with ``max_position_embeddings``;
    "yarn", "llama3" and "longrope" with ``original_max_position_embeddings``, which may
    be outside the dict. Keys that no formula reads are ignored. A key that `config`
    lacks has the value that transformers has for its ``model_type``; the base, where
    that is not 10000, has to be given. Interleaved models of transformers that sort
    columns first have theirs in another order, which queries and keys share.

    References
    ----------
    .. [1] Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
       2021, arXiv:2104.09864.

    Examples
    --------
    >>> import relpos
    >>> llama = {"hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 5e5}
    >>> relpos.rotary_from_config(llama).rotary_dim
    128
    >>> full = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
    >>> layers = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": full}
    >>> gemma = {"head_dim": 256, "global_head_dim": 512, "rope_parameters": layers}
    >>> found = relpos.rotary_from_config(gemma, layer_type="full_attention")
    >>> found.rotary_dim, int((found.inv_freq > 0).sum())
    (512, 64)
    """
    given = _as_values(config)
    if layer_type is not None and not isinstance(layer_type, str):
        raise TypeError(f"layer_type: got {kind_of(layer_type)}; expected a str")
    length = None if seq_len is None else as_int("seq_len", seq_len, 1)
    if not _ROTARY & given.keys():
        raise ValueError(
            "config: says nothing of a rotary encoding; expected some of "
            f"{', '.join(sorted(_ROTARY))}"
        )
    _check_rotates(given, layer_type)
    values = _of_layer(given, layer_type)
    scaling = _scaling(given, values, length)
    columns = _head_dim(given, layer_type)
    if scaling is None or scaling[0] != "proportional":  # which rotates whole heads
        columns = _rotary_dim(given, values, columns)
    try:
        inv_freq = rotary_frequencies(
            columns, base=values["rope_theta"], scaling=scaling
        )
        magnitude = rotary_magnitude(scaling)
    except (TypeError, ValueError) as error:
        raise type(error)(f"config: {error}") from None
    if _type_of(given) == "nanochat":  # which rotates backwards
        inv_freq = -inv_freq
    neighbours = given.get("rope_interleave")
    if neighbours is None:
        neighbours = _type_of(given) in _INTERLEAVED
    interleaved = as_flag("config: its rope_interleave", neighbours)
    return RotaryParameters(inv_freq, magnitude, columns, interleaved)
