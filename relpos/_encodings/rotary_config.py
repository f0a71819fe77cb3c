"""The rotary encoding of a model, from its Hugging Face configuration.

Configurations have several spellings: `_of_layer` brings the values of one type of
layer to the newest, a dict with ``rope_type`` and ``rope_theta``.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from relpos._checks import as_flag, as_int, kind_of, reject_foreign
from relpos._encodings.absolute import MAX_DIM
from relpos._encodings.rotary_models import (
    APART,
    PART,
    ROTARY_WORDS,
    UNRELATED,
    UNRELATED_OF_ROPE,
    Model,
    model_of,
)
from relpos._encodings.rotary_scaling import (
    LENGTH,
    SCALINGS,
    RotaryParameters,
    rotary_frequencies,
    rotary_magnitude,
    share,
)

__all__ = ["rotary_from_config"]

Values = Mapping[str, Any]

#: Keys of which a configuration with a rotary encoding has at least one.
_ROTARY = {
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "global_rope_theta",
    "rotary_dim",
    "rotary_pct",
    "rotary_emb_base",
    PART,
}
#: Spellings of the base of all layers, of the base of layers with a window, and of that
#: of compressed layers.
_BASE = "rope_theta", "global_rope_theta", "rotary_emb_base", "theta"
_SWA = "swa_rope_theta"  # of layers without a scaling
_LOCAL = "rope_local_base_freq", "local_rope_theta", _SWA
_COMPRESSED = "compress_rope_theta"
#: Spellings of the rotated part of a head, and of its columns.
_PART = PART, "rotary_pct", "rope_pct", "rope_percent", "rope_percentage"
_COLUMNS = {*_PART, "rotary_dim"}
#: Bases of all layers in a row, and numbers of those whose encoding is scaled.
_EACH, _SCALED = "layer_rope_theta", "rope_scaling_layers"
#: Top-level keys with one of ROTARY_WORDS that are read.
_READ = {*_BASE, *_LOCAL, *_PART, _COMPRESSED, _EACH, _SCALED, APART}
_HEADS = "num_attention_heads", "n_head", "n_heads", "encoder_num_attention_heads"
#: Values of ``rope_type``.
_TYPES = ("default", *(name for name in SCALINGS if name != "ntk"))
#: Names of scalings in some models, and their meaning.
_OTHER_NAMES = {"su": "longrope", "mrope": "default", "deepseek_yarn": "yarn"}
_FULL, _SLIDING = "full_attention", "sliding_attention"
#: Keys of every ``rope_parameters``.
_OF_ROPE = {"rope_type", "type", "rope_theta", PART, *UNRELATED_OF_ROPE}
#: Types of layers that share a rotary encoding, and its name in ``rope_parameters``.
_GROUPS = {
    _SLIDING: "main",
    "compressed_sparse_attention": "compress",
    "heavily_compressed_attention": "compress",
}


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
    model = _model_of(values)
    if model.checked:
        _check_keys(values)
    defaults = dict(model.defaults)
    if any(values.get(key) is not None for key in _COLUMNS):
        # The rotated columns are given in one spelling: a default in another one, such
        # as rotary_pct next to partial_rotary_factor, would contradict it.
        defaults = {key: x for key, x in defaults.items() if key not in _COLUMNS}
    completed = {**defaults, **values}
    if _type_of(values) == "deepseek_v4" and values.get(PART) is not None:
        del completed[APART]  # which the part of the head replaces
    return completed


def _is_numeric(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_numeric, value))
    return isinstance(value, Real) and not isinstance(value, bool)


def _plain(value: object) -> Real | str:
    """Return a number, or else a text, which can be compared."""
    return value if isinstance(value, Real) else repr(value)


def _check_keys(config: Values) -> None:
    """Raise for keys of a known model that would be left out of its rotation."""
    ropes: list[Values] = []  # settings that are present in one or in both spellings
    for name in ("rope_scaling", "rope_parameters"):
        rope = config.get(name)
        if isinstance(rope, Mapping) and rope:
            ropes.append(rope)
    known = _READ | UNRELATED
    if ropes:  # which replace the base of layers without a scaling
        known -= {_SWA}
    for key, value in config.items():
        may_rotate = any(word in str(key).lower() for word in ROTARY_WORDS)
        if may_rotate and _is_numeric(value) and key not in known:
            raise ValueError(
                f"config: got {key} = {value!r}; expected no such key, as its meaning "
                f"in {_type_of(config)} is not known"
            )
    for spellings in (_BASE, _LOCAL, _PART):
        values = {x: config[x] for x in spellings if config.get(x) is not None}
        if len({*map(_plain, values.values())}) > 1:
            both = ", ".join(f"{name} = {value!r}" for name, value in values.items())
            raise ValueError(f"config: got {both}; expected one of them")
    base = _first(config, *_BASE)
    comparable = []
    for rope in ropes:
        with_base = {"rope_theta": base, **rope}  # which one of them may repeat
        comparable.append({key: _plain(x) for key, x in with_base.items()})
    if any(each != comparable[0] for each in comparable):
        raise ValueError(
            "config: its rope_scaling and its rope_parameters differ; expected one of "
            "them"
        )


def _check_rope(kind: str, rope: Values) -> None:
    """Raise for keys of a known model's ``rope_parameters`` that no formula reads."""
    name = _kind_of_scaling(rope)
    known = {*_OF_ROPE, *_read_by(name, rope)}
    for key, value in rope.items():
        if value is not None and key not in known:
            raise ValueError(
                f"config: its rope_parameters have {key} = {value!r}, which {name!r} "
                f"of {kind} does not read; expected some of "
                f"{', '.join(map(repr, sorted(known)))}"
            )
    new, old = rope.get("rope_type"), rope.get("type")
    if new is None or old is None:
        return
    # The same scaling may have another name in each.
    if _OTHER_NAMES.get(str(new), str(new)) != _OTHER_NAMES.get(str(old), str(old)):
        raise ValueError(
            f"config: its rope_type is {new!r}, and its type {old!r}; expected one of "
            "them"
        )


def _read_by(name: str, rope: Values) -> set[str]:
    """Return the keys that a scaling of this name reads, or compares with nothing."""
    if name == "default":
        return {LENGTH}
    scaling = SCALINGS[name]
    keys = {*scaling.required, *scaling.optional} or {"factor", LENGTH}
    keys -= {"seq_len"}  # an argument
    if name == "dynamic":
        keys -= {LENGTH}  # that of the configuration counts
        if rope.get("alpha") is not None:  # HunYuan's, which replaces the others
            keys |= {"alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}
    if name == "longrope":
        keys |= {"short_mscale", "long_mscale"}
    if name == "proportional":
        keys |= {LENGTH}  # which published files repeat
    return keys


def _type_of(config: Values) -> str:
    return str(config.get("model_type"))


def _model_of(config: Values) -> Model:
    return model_of(_type_of(config))


def _first(values: Values, *names: str) -> Any:
    """Return the value of the first of several spellings that is present."""
    for name in names:
        if values.get(name) is not None:
            return values[name]
    return None


def _choose(layer_type: str | None, types: list[str]) -> str:
    """Return the one of `types` that layers of this type have, or belong to."""
    group = _GROUPS.get(str(layer_type), layer_type)
    for name in (layer_type, group):
        if name in types:
            return str(name)
    raise ValueError(
        f"layer_type: got {layer_type!r}; expected one of "
        f"{', '.join(map(repr, dict.fromkeys(types)))}, as the layers of this config "
        "differ"
    )


def _of_layer(config: Values, layer_type: str | None) -> dict[str, Any]:
    """Return ``rope_parameters`` of one type of layer, with its base."""
    rope = _rope_of(config)
    base = _first(config, *_BASE)
    # The base of layers with a window. One spelling of it is of layers without any
    # scaling, and is not read where there is one.
    spellings = [name for name in _LOCAL if not (rope and name == _SWA)]
    local = _first(config, *spellings)
    if local is None and _model_of(config).scaled == "full":
        local = base
    nested = [name for name, values in rope.items() if isinstance(values, Mapping)]
    if nested:
        name = _choose(layer_type, nested)
        values = _of_nested(config, rope, name)
        if name == "compress":
            base = _first(config, _COMPRESSED) or base
        if layer_type == _SLIDING and local is not None:
            base = local
    elif config.get(_COMPRESSED) is not None:
        values, base = _of_compressed(config, rope, layer_type, base)
    elif local is not None:
        types = [_FULL, _SLIDING, *_layer_types(config)]
        is_full = _choose(layer_type, types) != _SLIDING
        is_scaled = is_full or _model_of(config).scaled == "all"
        values = dict(rope) if is_scaled else {}
        base = base if is_full else local
    else:
        values = dict(rope)
        if layer_type is not None:
            _choose(layer_type, _layer_types(config) or [layer_type])
    if _model_of(config).checked:
        _check_rope(_type_of(config), values)
    if not nested and config.get(LENGTH) is not None:
        values[LENGTH] = config[LENGTH]
    if config.get(_EACH) is not None:
        values["rope_theta"] = _base_of_each(config, layer_type)
    if values.get("rope_theta") is None:
        values["rope_theta"] = _default_base(config) if base is None else base
    return values


def _rope_of(config: Values) -> Values:
    """Return the first dict of rotary settings that is not empty, as it is written."""
    for name in ("rope_scaling", "rope_parameters"):
        rope = config.get(name)
        if rope is None:
            continue
        if not isinstance(rope, Mapping):
            raise TypeError(
                f"config: its rope_parameters are {kind_of(rope)}; expected a dict"
            )
        if rope:
            return rope
    return {}


def _base_of_each(config: Values, layer_type: str | None) -> Any:
    """Return the base of all layers of a type; 0 is that of layers without rotation."""
    each, types = config[_EACH], _layer_types(config)
    if not isinstance(each, (list, tuple)):
        raise TypeError(f"config: its {_EACH}: got {kind_of(each)}; expected a list")
    if layer_type in types and len(types) == len(each):
        each = [x for x, kind in zip(each, types, strict=True) if kind == layer_type]
    bases = {repr(x): x for x in each if x}
    if len(bases) != 1:
        raise ValueError(
            f"config: got {_EACH} = {each!r}; expected one base for all layers of a "
            "type that rotate"
        )
    return next(iter(bases.values()))


def _of_nested(config: Values, rope: Values, name: str) -> dict[str, Any]:
    """Return the values of that name, with the base and the part of all names."""
    is_checked = _model_of(config).checked
    common = {key: x for key, x in rope.items() if not isinstance(x, Mapping)}
    for key, value in common.items():
        if is_checked and value is not None and key not in _OF_ROPE:
            raise ValueError(
                f"config: its rope_parameters have {key} = {value!r} next to those of "
                "each type of layer; expected it among these"
            )
    shared = {key: common[key] for key in ("rope_theta", PART) if key in common}
    return {**shared, **rope[name]}


def _of_compressed(
    config: Values, rope: Values, layer_type: str | None, base: Any
) -> tuple[dict[str, Any], Any]:
    """Return values and base of DeepSeek-V4's layers: compressed ones are scaled."""
    inner = rope.get("rope_theta")
    if None not in (inner, base) and inner != base:
        raise ValueError(
            f"config: got rope_theta = {base!r}, and {inner!r} in its rope_parameters; "
            "expected one of them"
        )
    if _choose(layer_type, ["main", "compress"]) == "main":
        part = {key: rope[key] for key in (PART,) if key in rope}
        return part, inner if base is None else base
    values = {key: x for key, x in rope.items() if key != "rope_theta"}
    if _kind_of_scaling(values) == "yarn" and values.get("attention_factor") is None:
        values["attention_factor"] = 1.0
    return values, config[_COMPRESSED]


def _default_base(config: Values) -> float:
    base = _model_of(config).base
    if base is not None:
        return base
    reason = "a config without model_type has no default"
    if config.get("model_type") is not None:
        reason = f"{config['model_type']}'s default is not known to be 10000"
    raise ValueError(f"config: got no rope_theta; expected one, because {reason}")


def _layer_types(config: Values) -> list[str]:
    types = config.get("layer_types")
    return [*map(str, types)] if isinstance(types, (list, tuple)) else []


def _wide_head_dim(config: Values, layer_type: str | None) -> Any:
    """Return the columns of a head where those of that type differ."""
    types, layers = _layer_types(config), config.get("per_layer_config")
    if layer_type in types and isinstance(layers, Mapping):
        for number, values in layers.items():  # numbers as text, such as "05"
            if str(number).lstrip("0") == str(types.index(layer_type)).lstrip("0"):
                return values.get("head_dim") if isinstance(values, Mapping) else None
    return config.get("global_head_dim") if layer_type == _FULL else None


def _head_dim(config: Values, layer_type: str | None) -> int:
    columns = _wide_head_dim(config, layer_type)
    if columns is None:
        columns = _first(config, "head_dim", "attention_head_dim", "kv_channels")
    if columns is not None:
        return as_int("config: its head_dim", columns, 1, MAX_DIM)
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
    columns = config.get(APART)  # apart from the others of a head
    part = _first(values, PART)
    if part is None:
        columns = _first(config, APART, "rotary_dim")
        part = _first(config, *_PART)
    rotated = head_dim
    if part is not None:
        rotated = int(head_dim * share("config: its partial_rotary_factor", part))
    if columns is None:
        return rotated
    rotary_dim = as_int("config: its rotary_dim", columns, 2, MAX_DIM)
    says_both = part is not None and config.get(APART) is None
    if says_both and rotary_dim != rotated and _model_of(config).checked:
        raise ValueError(
            f"config: its rotary_dim is {rotary_dim}, and {part!r} of {head_dim} "
            "columns rotate; expected one of them"
        )
    return rotary_dim


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
    settings = known | {key: x for key, x in values.items() if x is not None}
    if name == "longrope":  # Phi-3.5-MoE's magnitudes, of either length
        length = settings[LENGTH] and as_int(f"config: {LENGTH}", settings[LENGTH], 1)
        is_far = seq_len is not None and length and seq_len > length
        factor = values.get("long_mscale" if is_far else "short_mscale")
        settings["attention_factor"] = factor or settings.get("attention_factor")
    _, required, optional = SCALINGS[name]
    return name, {key: settings[key] for key in required + optional if key in settings}


def _check_scaled_layers(config: Values) -> None:
    layers, count = config.get(_SCALED), config.get("num_hidden_layers")
    if layers is None:
        return
    if not isinstance(layers, (list, tuple)):
        raise TypeError(
            f"config: its {_SCALED}: got {kind_of(layers)}; expected a list"
        )
    if isinstance(count, int) and all(number in layers for number in range(count)):
        return
    raise ValueError(
        f"config: got {_SCALED} = {layers!r}; expected all layers, as the others have "
        "no scaling"
    )


def _check_rotates(config: Values, layer_type: str | None) -> None:
    """Raise for a model, or for layers of it, whose rotation is not of a sequence."""
    kind, model = _type_of(config), _model_of(config)
    if model.grid:
        raise ValueError(
            f"config: its model_type is {kind!r}, of a grid; expected one of a "
            "sequence (axial_angles has the angles of grids)"
        )
    rotates_sliding_alone = model.rotated == "sliding"
    if model.rotated == "sliding-if-windowed":
        rotates_sliding_alone = config.get("sliding_window") is not None
    if rotates_sliding_alone and layer_type == _FULL:
        raise ValueError(
            f"layer_type: got {layer_type!r}, without a rotary encoding in {kind}; "
            f"expected {_SLIDING!r}"
        )
    setting = _instead(config)
    if setting is not None:
        raise ValueError(
            f"config: its {setting}; expected a model that rotates instead"
        )


def _instead(config: Values) -> str | None:
    """Return the setting with which no layer of a model of its type rotates."""
    kind, rope = _type_of(config), config.get("rope_parameters")
    if kind == "falcon" and config.get("alibi"):
        return "alibi is set"
    if kind == "granitemoehybrid" and config.get("position_embedding_type") == "nope":
        return "position_embedding_type is 'nope'"
    # A base that is null; one that is absent is the default.
    is_null = isinstance(rope, Mapping) and rope.get("rope_theta", 0) is None
    if kind == "olmo_hybrid" and is_null and _first(config, *_BASE) is None:
        return "rope_theta is None"
    return None


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
        ``"sliding_attention"`` in Gemma 3 and 4, ModernBERT and others, ``"main"`` or
        ``"compress"`` in DeepSeek-V4.
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
        If `config` has no rotary encoding, names an unknown ``rope_type``, lacks
        values that it needs or has a key of an unknown meaning, or `layer_type` names
        none of layers that differ.

    See Also
    --------
    mrope_angles : For models whose ``rope_parameters`` have an ``mrope_section``.

    Notes
    -----
    As in transformers, "dynamic" compares `seq_len` with ``max_position_embeddings``;
    "yarn", "llama3" and "longrope" with ``original_max_position_embeddings``, which may
    be outside the dict. A key that `config` lacks has the value that transformers has
    for its ``model_type``. The base has to be given unless transformers has 10000 for
    that type. Of a type that is known, all keys about the rotation are read, or are
    known not to concern it, or raise an error: numeric keys with "theta", "base",
    "rope" or "scaling" in their name, and all keys of ``rope_parameters`` and
    ``rope_scaling``. Of other types, keys that no formula reads are ignored.

    Compressed layers of DeepSeek-V4 have the base ``compress_rope_theta`` and the
    scaling, with the magnitude 1; its other layers have neither. `layer_type` is
    "main", "compress" or one of its ``layer_types``.

    Interleaved models of transformers that sort columns first have theirs in another
    order, which queries and keys share.

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
    >>> full["rope_theta"] = 1e6
    >>> layers = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": full}
    >>> gemma = {"head_dim": 256, "global_head_dim": 512, "rope_parameters": layers}
    >>> found = relpos.rotary_from_config(gemma, layer_type="full_attention")
    >>> found.rotary_dim, int((found.inv_freq > 0).sum())
    (512, 64)
    """
    completed = _as_values(config)
    if layer_type is not None and not isinstance(layer_type, str):
        raise TypeError(f"layer_type: got {kind_of(layer_type)}; expected a str")
    length = None if seq_len is None else as_int("seq_len", seq_len, 1)
    if not _ROTARY & completed.keys():
        raise ValueError(
            "config: says nothing of a rotary encoding; expected some of "
            f"{', '.join(sorted(_ROTARY))}"
        )
    _check_rotates(completed, layer_type)
    values = _of_layer(completed, layer_type)
    scaling = _scaling(completed, values, length)
    if scaling is not None:
        _check_scaled_layers(completed)
    columns = _head_dim(completed, layer_type)
    if scaling is None or scaling[0] != "proportional":  # which rotates whole heads
        columns = _rotary_dim(completed, values, columns)
    try:
        inv_freq = rotary_frequencies(
            columns, base=values["rope_theta"], scaling=scaling
        )
        magnitude = rotary_magnitude(scaling)
    except (TypeError, ValueError) as error:
        raise type(error)(f"config: {error}") from None
    model = _model_of(completed)
    if model.backwards:
        inv_freq = -inv_freq
    neighbours = completed.get("rope_interleave")
    if neighbours is None:
        neighbours = model.interleaved
    interleaved = as_flag("config: its rope_interleave", neighbours)
    return RotaryParameters(inv_freq, magnitude, columns, interleaved)
