"""Types of models, by ``model_type``, whose configurations need more than their keys.

What is known of each is a row of models.toml, whose first lines describe the fields.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

# Python 3.15 imports parts of tomllib at a first number: here, and not within a call.
tomllib.loads("all = 1")

#: Keys of configurations that more than one place reads.
PART, APART = "partial_rotary_factor", "qk_rope_head_dim"


class Model(NamedTuple):
    """A row of models.toml. The defaults are those of a type without a row."""

    base: float | None = None
    defaults: Mapping[str, float] = MappingProxyType({})
    interleaved: bool = False
    backwards: bool = False
    rotated: Literal["all", "sliding", "sliding-if-windowed"] = "all"
    scaled: Literal["by base", "all", "full"] = "by base"
    grid: bool = False
    checked: bool = False


#: Values that a row may give to a field. The default is not among them.
_CHOICES: dict[str, tuple[str | bool, ...]] = {
    "interleaved": (True,),
    "backwards": (True,),
    "rotated": ("sliding", "sliding-if-windowed"),
    "scaled": ("all", "full"),
    "grid": (True,),
    "checked": (False,),
}
#: Keys that `defaults` may have, and the type of their values.
_DEFAULTS: dict[str, type[float]] = {
    "rope_theta": float,
    "global_rope_theta": float,
    "local_rope_theta": float,
    "rope_local_base_freq": float,
    "swa_rope_theta": float,
    "compress_rope_theta": float,
    PART: float,
    "rotary_pct": float,
    "rotary_dim": int,
    APART: int,
    "head_dim": int,
}


@cache
def models() -> Mapping[str, Model]:
    """Return the rows of models.toml by ``model_type``; the first call reads it."""
    path = Path(__file__).with_name("models.toml")
    return MappingProxyType(read_models(path.read_text("utf-8")))


def model_of(kind: str) -> Model:
    """Return what is known of a type of model, which is nothing without a row."""
    return models().get(kind, Model())


def read_models(text: str) -> dict[str, Model]:
    """Return rows by ``model_type``; raise for one that does not fit."""
    return {kind: _as_model(kind, row) for kind, row in tomllib.loads(text).items()}


def _as_model(kind: str, row: Any) -> Model:
    if not isinstance(row, dict):
        raise TypeError(f"models.toml: {kind}: got {row!r}; expected a table")
    for field, value in row.items():
        _check_field(f"models.toml: {kind}", field, value)
    if row.get("grid") and len(row) > 1:
        raise ValueError(f"models.toml: {kind}: got a grid with other fields")
    # The keys of a grid are not checked, so that the error names the grid.
    is_checked = not row.get("grid", False)
    fields: dict[str, Any] = {"checked": is_checked} | row
    return Model(**fields)


def _check_field(place: str, field: str, value: Any) -> None:
    """Raise for a field that a row cannot have, or for a value that it cannot have."""
    if field in _CHOICES:
        choices = _CHOICES[field]
        # The type too, as 1 equals True.
        if type(value) is not type(choices[0]) or value not in choices:
            known = " or ".join(map(repr, choices))
            raise ValueError(f"{place}: {field}: got {value!r}; expected {known}")
    elif field == "base":
        _check_number(f"{place}: base", value, float)
    elif field == "defaults":
        if not isinstance(value, dict) or not value:
            raise ValueError(f"{place}: defaults: got {value!r}; expected some keys")
        for key, number in value.items():
            if key not in _DEFAULTS:
                known = ", ".join(_DEFAULTS)
                raise ValueError(
                    f"{place}: defaults: got {key!r}; expected some of {known}"
                )
            _check_number(f"{place}: {key}", number, _DEFAULTS[key])
    else:
        known = ", ".join(Model._fields)
        raise ValueError(f"{place}: got the field {field!r}; expected some of {known}")


def _check_number(place: str, value: Any, kind: type[float]) -> None:
    if type(value) is not kind or not 0 < value < float("inf"):
        raise ValueError(f"{place}: got {value!r}; expected a positive {kind.__name__}")


# ---- keys of configurations ----------------------------------------------------------

#: Parts of the names of keys that may decide a rotation.
ROTARY_WORDS = "theta", "base", "rope", "scaling"
#: Numeric keys with such a name that concern something else: routers, logits, losses,
#: vocabularies, channels, attention over memories, and which layers rotate at all.
UNRELATED = frozenset(
    {
        "base_attn_unit_dims",
        "base_channels",
        "dim_model_base",
        "log_scaling_alpha",
        "log_scaling_n_floor",
        "logits_scaling",
        "memory_attention_rope_dropout",
        "memory_attention_rope_feat_sizes",
        "memory_attention_rope_k_sizes",
        "moe_routed_scaling_factor",
        "moe_router_scaling_factor",
        "mtp_loss_scaling_factor",
        "ngram_vocab_size_base",
        "no_rope_layer_interval",
        "no_rope_layers",
        "relation_bias_theta",
        "routed_scaling_factor",
        "router_scaling_factor",
        "suppress_overlapping_based_on_recent_occlusion_threshold",
    }
)
#: Keys of ``rope_parameters`` that concern which positions there are, or the scale of
#: scores, or say how the model was trained.
UNRELATED_OF_ROPE = frozenset(
    {
        "finetuned",
        "interleaved",
        "llama_4_scaling_beta",
        "mrope_interleaved",
        "mrope_section",
    }
)
