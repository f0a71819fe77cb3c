"""The rotary encoding of a model, from its Hugging Face configuration.

Configurations have several spellings: `_of_layer` brings the values of one type of
layer to the newest, a dict with ``rope_type`` and ``rope_theta``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from relpos._checks import Array, as_flag, as_int, kind_of, reject_foreign
from relpos._encodings.absolute import MAX_DIM
from relpos._encodings.rotary_scaling import (
    LENGTH,
    SCALINGS,
    rotary_frequencies,
    rotary_magnitude,
    share,
)
from relpos._text import in_short

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
#: Models with interleaved pairs, by ``model_type``: configurations rarely have a key.
_INTERLEAVED = {
    *("axk1", "axk2", "bailing_hybrid", "blt_global_transformer", "blt_local_decoder"),
    *("blt_local_encoder", "blt_patcher", "codegen", "cohere", "cohere2"),
    *("cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4"),
    *("dots3_note_text", "ernie4_5", "ernie4_5_moe", "ernie4_5_vl_moe_text", "glm"),
    *("glm4", "glm4_moe_lite", "glm4v_text", "glm_moe_dsa", "glm_ocr_text", "gptj"),
    *("helium", "llama4_text", "longcat_flash", "mistral4", "mistral_large4_text"),
    *("moonshine", "moonshine_streaming", "youtu"),
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

    Examples
    --------
    >>> import relpos
    >>> found = relpos.rotary_from_config({"head_dim": 4, "rope_theta": 100.0})
    >>> relpos.apply_rotary([[0.0] * 4, [1.0] * 4], **found._asdict()).round(2)[1]
    array([-0.3 ,  0.9 ,  1.38,  1.09])
    """

    inv_freq: Array
    magnitude: float
    rotary_dim: int
    interleaved: bool


def as_config(config: object) -> Values:
    """Return the configuration as a mapping."""
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
    """Return the configuration of the text as a mapping."""
    values = as_config(config)
    text = values.get("text_config")
    return values if text is None else _as_values(text)


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
    rope = _first(config, "rope_scaling", "rope_parameters")
    rope = {} if rope is None else rope
    if not isinstance(rope, Mapping):
        raise TypeError(
            f"config: its rope_parameters are {kind_of(rope)}; expected a dict"
        )
    base = _first(config, "rope_theta", "global_rope_theta", "rotary_emb_base")
    nested = [name for name, values in rope.items() if isinstance(values, Mapping)]
    local = _first(config, "rope_local_base_freq", "local_rope_theta")
    if local is None and config.get("model_type") in _SCALED_WHERE_FULL:
        local = base
    if nested:
        values = dict(rope[_choose(layer_type, nested)])
    elif local is not None:
        full = _choose(layer_type, [_FULL, _SLIDING]) == _FULL
        values = dict(rope) if full else {"rope_theta": local}
    else:
        values = dict(rope)
        if layer_type is not None:
            _choose(layer_type, _layer_types(config) or [layer_type])
        if config.get(LENGTH) is not None:
            values[LENGTH] = config[LENGTH]
    if values.get("rope_theta") is None:
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
    """Return the columns of a head of that type of layer."""
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
    """Return the number of columns that are rotated."""
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
        far = seq_len is not None and given[LENGTH] and seq_len > given[LENGTH]
        factor = values.get("long_mscale" if far else "short_mscale")
        given["attention_factor"] = factor or given.get("attention_factor")
    _, required, optional = SCALINGS[name]
    return name, {key: given[key] for key in required + optional if key in given}


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
    be outside the dict. Keys that no formula reads are ignored. Interleaved models of
    transformers that sort columns first have theirs in another order, which queries and
    keys share.

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
    >>> gemma = {
    ...     "head_dim": 256,
    ...     "global_head_dim": 512,
    ...     "rope_parameters": {
    ...         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    ...         "full_attention": {
    ...             "rope_type": "proportional",
    ...             "partial_rotary_factor": 0.25,
    ...             "rope_theta": 1e6,
    ...         },
    ...     },
    ... }
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
    neighbours = given.get("rope_interleave")
    if neighbours is None:
        neighbours = given.get("model_type") in _INTERLEAVED
    interleaved = as_flag("config: its rope_interleave", neighbours)
    return RotaryParameters(inv_freq, magnitude, columns, interleaved)
