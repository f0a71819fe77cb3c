"""Schemes that `MultiheadAttention` knows by name, as layers, and one table of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import numpy as np

from relpos._attention.schemes import (
    relative_global_attention,
    transformer_xl_attention,
)
from relpos._checks import Array, as_choice, as_flag, kind_of
from relpos._encodings.absolute import sinusoidal
from relpos.nn._inputs import (
    as_size,
    join_heads,
    product,
    split_heads,
    xavier_uniform,
)
from relpos.nn.basic import Linear
from relpos.nn.module import Parameter
from relpos.nn.position import FIRE, ALiBi, Position, Rotary, T5Bias, placed


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
                setattr(self, name, self._start(xavier_uniform(self._rng, shape)))


#: End of the error for a table of the Music Transformer whose shape does not fit.
MUSIC_ROWS = (
    "A layer with is_causal=True has max_len rows, one with is_causal=False "
    "2 * max_len - 1."
)


def music_rows(max_len: int, is_causal: bool) -> int:
    """Return the rows of the table: a distance each, of the past or of both sides."""
    return max_len if is_causal else 2 * max_len - 1


class MusicTable(Parameter):
    """Table of the Music Transformer; `is_causal` decides its number of rows."""

    __slots__ = ()
    _hint = MUSIC_ROWS


class Music(Position):
    """Table of the Music Transformer: rel_key (max_len, D), or (2 max_len - 1, D)."""

    _function = staticmethod(relative_global_attention)
    is_causal: bool = True  # of layers pickled before they said so

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        is_causal: bool,
        max_len: int = 1024,
        per_head: bool = False,
        *,
        rng: Any,
        dtype: Any,
    ) -> None:
        self.is_causal = is_causal
        rows = music_rows(as_size("max_len", max_len), is_causal)
        self._set_up(rng, dtype)
        heads = (num_heads,) if as_flag("per_head", per_head) else ()
        start = self._rng.standard_normal((*heads, rows, head_dim))
        self.rel_key = MusicTable(start.astype(self.dtype))

    def arguments(
        self, query_length: int, key_length: int, query_offset: Any = 0
    ) -> dict[str, Any]:
        table = self.rel_key.data
        rows = table.shape[-2]
        reach = rows - 1 if self.is_causal else rows // 2
        return {"rel_key": table, "min_relative_position": -reach}


class TransformerXL(Position):
    """Projected sinusoids of Transformer-XL, and its two biases u and v."""

    _function = staticmethod(transformer_xl_attention)

    def __init__(self, num_heads: int, head_dim: int, *, rng: Any, dtype: Any) -> None:
        self._set_up(rng, dtype)
        u, v = self._rng.normal(0.0, 0.02, (2, num_heads, head_dim))
        self.pos_bias_u, self.pos_bias_v = self._start(u), self._start(v)
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


#: name -> (layer, which sizes of an attention it takes first). Its other arguments are
#: those of `position` by this name, here and in relpos.torch.nn.
SCHEMES: dict[str, tuple[Callable[..., Position], tuple[str, ...]]] = {
    "shaw": (Shaw, ("num_heads", "head_dim")),
    "music": (Music, ("num_heads", "head_dim", "is_causal")),
    "transformer_xl": (TransformerXL, ("num_heads", "head_dim")),
    "t5": (T5Bias, ("num_heads",)),
    "alibi": (ALiBi, ("num_heads",)),
    "rope": (Rotary, ("head_dim",)),
    "fire": (FIRE, ("num_heads",)),
}

#: Arguments and defaults of what relpos.torch.nn alone has.
TORCH_ONLY = {"deberta": {"max_relative_position": 512, "num_buckets": 256}}


def sizes_of(position: str) -> dict[str, Any]:
    """Return the arguments that belong to a scheme by name, with their defaults."""
    if position not in SCHEMES:
        return dict(TORCH_ONLY[position])
    make, first = SCHEMES[position]
    parameters = [*signature(make).parameters.values()][len(first) : -2]
    return {parameter.name: parameter.default for parameter in parameters}


def as_position(
    position: str | Position | None,
    sizes: Mapping[str, Any],
    attention: Mapping[str, int],
    options: Mapping[str, Any],
) -> Position:
    """Return the layer of a name, or of None; a layer is returned as it is.

    sizes: further arguments of the name's layer. attention: num_heads, head_dim and
    is_causal.
    """
    if isinstance(position, str):
        as_choice("position", position, SCHEMES)
    elif position is not None and not isinstance(position, Position):
        raise TypeError(
            f"position: got {kind_of(position)}; expected None, a layer that is a "
            f"Position, or one of {', '.join(map(repr, SCHEMES))}"
        )
    known = [*sizes_of(position)] if isinstance(position, str) else []
    for name, value in sizes.items():
        if name not in known:
            wanted = f"one of {', '.join(known)}" if known else "no further argument"
            raise TypeError(
                f"{name}: got {value!r} with position={position!r}; expected {wanted}"
            )
    if position is None:
        return Position()
    if isinstance(position, str):
        make, first = SCHEMES[position]
        return make(*(attention[name] for name in first), **sizes, **options)
    kinds = {parameter.data.dtype for parameter in position.parameters()}
    if position._settings is not None:
        kinds.add(position.dtype)
    for kind in kinds - {options["dtype"]}:
        raise TypeError(
            f"position: got a {type(position).__name__} of {kind} for a layer of "
            f"{options['dtype']}; expected the same dtype"
        )
    if _knows_the_past_alone(position) and not attention["is_causal"]:
        raise ValueError(
            "is_causal: got False with a position whose table has rows for the past "
            "alone; expected True, or the position of a layer with is_causal=False"
        )
    return position


def _knows_the_past_alone(position: object) -> bool:
    return isinstance(position, Music) and position.is_causal


def as_causal(is_causal: bool | None, position: object, frames: int = 2) -> bool:
    """Return whether a layer hides the future, where None leaves that open.

    A warning is of the line that called the constructor, `frames` above this function.
    """
    if is_causal is not None:
        return as_flag("is_causal", is_causal)
    is_music = isinstance(position, str) and position == "music"
    if not is_music and not _knows_the_past_alone(position):
        return False
    warnings.warn(
        'is_causal: got None with position="music", which hides the future in this '
        'release and will not in the next; expected position="music", is_causal=True '
        'to hide it, or position="music", is_causal=False to attend in both directions '
        "(a table of 2 * max_len - 1 rows)",
        FutureWarning,
        stacklevel=1 + frames,
    )
    return True
