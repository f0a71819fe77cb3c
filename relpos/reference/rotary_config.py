"""The rotary encoding of a model, from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from relpos.reference._typing import Floats
from relpos.reference.rotary import rotary_frequencies, rotary_magnitude

__all__ = ["RotaryParameters", "rotary_from_config"]

LENGTH = "original_max_position_embeddings"


class RotaryParameters(NamedTuple):
    """Frequencies, magnitude, columns that are turned, and which of them are pairs."""

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
    proportional: dim = head_dim, and the part is of the pairs that turn.

    Examples
    --------
    >>> rope = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}
    >>> rotary_from_config({"head_dim": 4, "rope_parameters": rope}).inv_freq
    array([0.5 , 0.05])
    """
    rope = dict(config["rope_parameters"])
    rope = rope if layer_type is None else dict(rope[layer_type])
    name, base = rope.pop("rope_type"), rope.pop("rope_theta")
    wide = config.get("global_head_dim") if layer_type == "full_attention" else None
    dim = wide or config.get("head_dim")
    dim = dim or config["hidden_size"] // config["num_attention_heads"]
    longest, scaling = config.get("max_position_embeddings"), None
    if name != "proportional":
        dim = int(dim * rope.pop("partial_rotary_factor", 1.0))
    if name == "linear":
        scaling = name, rope["factor"]
    elif name != "default":
        rope = {"max_position_embeddings": longest, LENGTH: longest} | rope
        rope |= {LENGTH: longest} if name == "dynamic" else {}
        scaling = name, rope | ({"seq_len": seq_len} if seq_len else {})
    inv_freq = rotary_frequencies(dim, base=base, scaling=scaling)
    interleaved = bool(config.get("rope_interleave", False))
    return RotaryParameters(inv_freq, rotary_magnitude(scaling), dim, interleaved)
