"""The schemes that `MultiheadAttention` knows by name, as layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import numpy as np

from relpos._attention.typed import relative_global_attention, transformer_xl_attention
from relpos._checks import Array, as_choice, as_flag, kind_of
from relpos._encodings.sinusoidal import sinusoidal
from relpos.nn._inputs import (
    as_size,
    join_heads,
    product,
    split_heads,
    xavier_uniform,
)
from relpos.nn.biases import ALiBi, T5Bias
from relpos.nn.fire import FIRE
from relpos.nn.linear import Linear
from relpos.nn.parameter import Parameter
from relpos.nn.position import Position, placed
from relpos.nn.rotary import Rotary


class Shaw(Position):
    """Tables of Shaw et al.: rel_key and rel_value (2k+1, D), or one for each head."""

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        max_relative_position: int = 16,
        per_head: bool = False,
        use_keys: bool = True,
        use_values: bool = True,
        *,
        rng: Any,
        dtype: Any,
    ) -> None:
        reach = as_size("max_relative_position", max_relative_position, 0)
        self._set_up(rng, dtype)
        heads = (num_heads,) if as_flag("per_head", per_head) else ()
        shape = (*heads, 2 * reach + 1, head_dim)
        for name, use in (
            ("rel_key", as_flag("use_keys", use_keys)),
            ("rel_value", as_flag("use_values", use_values)),
        ):
            if use:
                table = xavier_uniform(self._rng, shape, self.dtype)
                setattr(self, name, Parameter(table))


class Music(Position):
    """The Music Transformer's table: rel_key (max_len, D), always causal."""

    _function = staticmethod(relative_global_attention)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        max_len: int = 1024,
        per_head: bool = False,
        *,
        rng: Any,
        dtype: Any,
    ) -> None:
        rows = as_size("max_len", max_len)
        self._set_up(rng, dtype)
        heads = (num_heads,) if as_flag("per_head", per_head) else ()
        start = self._rng.standard_normal((*heads, rows, head_dim))
        self.rel_key = Parameter(start.astype(self.dtype))

    def arguments(
        self, query_length: int, key_length: int, query_offset: Any = 0
    ) -> dict[str, Any]:
        return {"rel_key": self.rel_key.data, "is_causal": True}


class TransformerXL(Position):
    """Transformer-XL's sinusoids, projected, and its two biases u and v."""

    _function = staticmethod(transformer_xl_attention)

    def __init__(self, num_heads: int, head_dim: int, *, rng: Any, dtype: Any) -> None:
        self._set_up(rng, dtype)
        u, v = self._rng.normal(0.0, 0.02, (2, num_heads, head_dim))
        self.pos_bias_u = Parameter(u.astype(self.dtype))
        self.pos_bias_v = Parameter(v.astype(self.dtype))
        width = num_heads * head_dim
        options: dict[str, Any] = {"rng": self._rng, "dtype": self.dtype}
        self.pos_proj = Linear(width, width, bias=False, **options)

    def _encodings(self, farthest: int, last: int) -> Array:
        """Encode the distances farthest, .., -last, as those of the paper."""
        width = self.pos_proj.weight.data.shape[1]
        distances = farthest - np.arange(max(farthest + last + 1, 1))
        return sinusoidal(distances, width, layout="concat", dtype=self.dtype)

    def arguments(
        self, query_length: int, key_length: int, query_offset: Any = 0
    ) -> dict[str, Any]:
        farthest, last = placed(query_length, key_length, query_offset)
        rows = self.pos_proj(self._encodings(farthest, last))
        return {
            "rel_key": split_heads(rows, len(self.pos_bias_u.data)),
            "pos_bias_u": self.pos_bias_u.data,
            "pos_bias_v": self.pos_bias_v.data,
            "min_relative_position": -farthest,
        }

    def add_gradients(
        self,
        gradients: Any,
        query_length: int,
        key_length: int,
        query_offset: Any = 0,
    ) -> None:
        super().add_gradients(gradients, query_length, key_length, query_offset)
        encodings = self._encodings(*placed(query_length, key_length, query_offset))
        rows = join_heads(gradients.rel_key)
        self.pos_proj.weight.add_grad(product(rows.T, encodings))


#: name -> (layer, which sizes of a head it takes first)
SCHEMES: dict[str, tuple[Callable[..., Position], tuple[str, ...]]] = {
    "shaw": (Shaw, ("num_heads", "head_dim")),
    "music": (Music, ("num_heads", "head_dim")),
    "transformer_xl": (TransformerXL, ("num_heads", "head_dim")),
    "t5": (T5Bias, ("num_heads",)),
    "alibi": (ALiBi, ("num_heads",)),
    "rope": (Rotary, ("head_dim",)),
    "fire": (FIRE, ("num_heads",)),
}


def as_position(
    position: str | Position | None,
    sizes: Mapping[str, Any],
    heads: Mapping[str, int],
    options: Mapping[str, Any],
) -> Position:
    """Return the layer that a name, or nothing, stands for; one that is given stays.

    sizes: further arguments of the name's layer. heads: num_heads and head_dim.
    """
    if isinstance(position, str):
        make, first = SCHEMES[as_choice("position", position, SCHEMES)]
        known = [*signature(make).parameters][len(first) : -2]
        _check_sizes(sizes, position, known)
        return make(*(heads[name] for name in first), **sizes, **options)
    if position is not None and not isinstance(position, Position):
        raise TypeError(
            f"position: got {kind_of(position)}; expected None, a layer that is a "
            f"Position, or one of {', '.join(map(repr, SCHEMES))}"
        )
    _check_sizes(sizes, position, [])
    if position is None:
        return Position()
    kinds = {parameter.data.dtype for parameter in position.parameters()}
    if position._settings is not None:
        kinds.add(position.dtype)
    for kind in kinds - {options["dtype"]}:
        raise TypeError(
            f"position: got a {type(position).__name__} of {kind} for a layer of "
            f"{options['dtype']}; expected the same dtype"
        )
    return position


def _check_sizes(sizes: Mapping[str, Any], position: Any, known: list[str]) -> None:
    for name, value in sizes.items():
        if name not in known:
            wanted = f"one of {', '.join(known)}" if known else "no further argument"
            raise TypeError(
                f"{name}: got {value!r} with position={position!r}; expected {wanted}"
            )
