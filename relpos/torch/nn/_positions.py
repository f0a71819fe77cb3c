"""Positions of `RelativeMultiheadAttention` by name: their parameters and keywords."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import relpos.torch as functions
from relpos import recipes
from relpos._checks import as_choice, as_flag, as_real
from relpos.nn import _schemes
from relpos.nn._inputs import as_size
from relpos.torch._tensors import without_modes
from relpos.torch._tracing import constant_result
from relpos.torch.nn._layer import drawn, split_heads

Options = Mapping[str, Any]  # device and dtype
Terms = dict[str, Any]  # keywords of an attention function


class Position:
    """Base of the positions, as `relpos.nn.Position` is of its layers: here none.

    The parameters are the module's own, and have the names of the keywords. One that
    computes its tables writes `arguments`, one that rotates queries and keys `rotate`.
    """

    #: The function of relpos.torch that takes the keywords.
    function: ClassVar[Callable[..., Any]] = staticmethod(functions.attention)
    #: Parameters that are keywords of the function.
    names: ClassVar[tuple[str, ...]] = ()

    def start(self, module: Any, options: Options) -> None:
        """Register the parameters in a module."""

    def default_offset(self, query_length: int, key_length: int) -> int | None:
        """Return the position of query 0 where the call does not tell, None: ask."""
        return 0 if query_length == key_length else None

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        """Return keywords of the function: here every parameter under its name."""
        return {name: getattr(module, name) for name in self.names}

    def rotate(self, module: Any, x: Tensor, offset: int = 0) -> Tensor:
        """Return queries or keys as attention is to see them: here as they are."""
        return x


def _parameter(shape: tuple[int, ...], options: Options, std: float) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, **options).normal_(std=std))


# ---- none, and tables of vectors ----------------------------------------------------


class Nothing(Position):
    """No position: a causal mask counts from the first query and key on."""

    def default_offset(self, query_length: int, key_length: int) -> int:
        return 0


class Shaw(Position):
    function = staticmethod(functions.shaw_attention)
    names = "rel_key", "rel_value"

    def start(self, module: Any, options: Options) -> None:
        shape = 2 * module.sizes["max_relative_position"] + 1, module.head_dim
        module.rel_key = drawn(shape, **options)
        module.rel_value = drawn(shape, **options)


class Music(Position):
    function = staticmethod(functions.relative_global_attention)

    def start(self, module: Any, options: Options) -> None:
        rows = _schemes.music_rows(module.sizes["max_len"], module.is_causal)
        module.rel_key = _parameter((rows, module.head_dim), options, 1.0)

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        first = 1 - module.sizes["max_len"]
        return {"rel_key": module.rel_key, "min_relative_position": first}


class TransformerXL(Position):
    function = staticmethod(functions.transformer_xl_attention)

    def start(self, module: Any, options: Options) -> None:
        shape = module.num_heads, module.head_dim
        module.pos_bias_u = _parameter(shape, options, 0.02)
        module.pos_bias_v = _parameter(shape, options, 0.02)
        width = module.embed_dim
        module.pos_proj = nn.Linear(width, width, bias=False, **options)

    def default_offset(self, query_length: int, key_length: int) -> int:
        return key_length - query_length

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        lq, lk = query.shape[-2], key.shape[-2]
        farthest = lq - 1 + offset
        rows = max(lq + lk - 1, 1)  # also of no tokens
        distances = farthest - torch.arange(rows, device=query.device)
        encodings = functions.sinusoidal(
            distances, module.embed_dim, layout="concat", dtype=module.pos_bias_u.dtype
        )
        return {
            "rel_key": split_heads(module.pos_proj(encodings), module.num_heads),
            "pos_bias_u": module.pos_bias_u,
            "pos_bias_v": module.pos_bias_v,
            "min_relative_position": -farthest,
        }


@constant_result
def deberta_buckets(max_relative_position: int | None, num_buckets: int) -> Tensor:
    """Return the rows of DeBERTa's tables, the past first."""
    return _from_deberta(max_relative_position, num_buckets)


@lru_cache(maxsize=64)
def _from_deberta(reach: int | None, span: int) -> Tensor:
    recipe = recipes.deberta(np.zeros((2 * span, 1)), max_position=reach)
    return without_modes(recipe["buckets"])


class DeBERTa(Position):
    def start(self, module: Any, options: Options) -> None:
        if module.kdim != module.embed_dim:
            raise ValueError(
                f"kdim: got {module.kdim} with position='deberta', which projects "
                f"positions as keys; expected embed_dim = {module.embed_dim}"
            )
        shape = 2 * module.sizes["num_buckets"], module.embed_dim
        module.rel_embeddings = _parameter(shape, options, 0.02)
        deberta_buckets(**module.sizes)  # says what is wrong with the sizes

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        (w_q, w_k, _), (b_q, b_k, _) = projections(module)
        rows = module.rel_embeddings
        pos_query, pos_key = (
            split_heads(nn.functional.linear(rows, weight, bias), module.num_heads)
            for weight, bias in ((w_q, b_q), (w_k, b_k))
        )
        return {
            "rel_key": pos_key,
            "rel_query": pos_query,
            "buckets": deberta_buckets(**module.sizes).to(query.device),
            "scale": (3 * module.head_dim) ** -0.5,
        }


def projections(module: Any) -> tuple[Any, Any]:
    """Return weights and biases of the projections of query, key and value."""
    weights: Any = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    biases: Any = (None,) * 3
    if module.in_proj_bias is not None:
        biases = module.in_proj_bias.chunk(3)
    return weights, biases


# ---- biases, and rotations ----------------------------------------------------------


@constant_result
def t5_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """Return the rows of T5's weight, the past first."""
    return _from_t5(num_buckets, max_distance, bidirectional)


@lru_cache(maxsize=64)
def _from_t5(num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    recipe = recipes.t5(
        np.zeros((num_buckets, 1)),
        num_buckets=num_buckets,
        bidirectional=bidirectional,
        max_distance=max_distance,
    )
    return without_modes(recipe["buckets"])


class T5(Position):
    def start(self, module: Any, options: Options) -> None:
        shape = module.sizes["num_buckets"], module.num_heads
        module.rel_bias = _parameter(shape, options, module.embed_dim**-0.5)
        t5_buckets(**module.sizes)  # says what is wrong with the sizes

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        buckets = t5_buckets(**module.sizes).to(query.device)
        return {"rel_bias": module.rel_bias.T, "buckets": buckets}


class ALiBi(Position):
    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        length = max(query.shape[-2] + offset, key.shape[-2] - offset, 1)
        slopes = functions.alibi_slopes(module.num_heads, dtype=query.dtype)
        return {"rel_bias": functions.alibi_bias(slopes.to(query.device), length)}


class Rotary(Position):
    def start(self, module: Any, options: Options) -> None:
        if module.head_dim % 2:
            raise ValueError(
                f"num_heads: got {module.num_heads}, heads of {module.head_dim} "
                "columns, with position='rope'; expected an even number of columns"
            )
        module.base = float(module.sizes["base"])

    def rotate(self, module: Any, x: Tensor, offset: int = 0) -> Tensor:
        return functions.apply_rotary(x, base=module.base, offset=offset)


class FIRE(Position):
    function = staticmethod(functions.fire_attention)
    names = "w1", "b1", "w2", "b2", "c", "threshold"

    def start(self, module: Any, options: Options) -> None:
        width = module.sizes["width"]
        hidden = nn.Linear(1, width, **options)
        output = nn.Linear(width, module.num_heads, **options)
        module.w1 = nn.Parameter(hidden.weight.detach()[:, 0].clone())
        module.b1, module.w2, module.b2 = hidden.bias, output.weight, output.bias
        module.c = nn.Parameter(torch.tensor(0.1, **options))
        start = float(module.sizes["max_distance"])
        module.threshold = nn.Parameter(torch.tensor(start, **options))


SCHEMES: dict[str | None, Position] = {
    None: Nothing(),
    "shaw": Shaw(),
    "music": Music(),
    "transformer_xl": TransformerXL(),
    "t5": T5(),
    "alibi": ALiBi(),
    "rope": Rotary(),
    "fire": FIRE(),
    "deberta": DeBERTa(),
}


def sizes_of(position: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a position: those that are given, and else its defaults.

    `given` has further names, too.
    """
    names = [name for name in SCHEMES if name is not None]
    known = {name: _schemes.sizes_of(name) for name in names}
    own = known[as_choice("position", position, names)] if position is not None else {}
    for name in dict.fromkeys(name for sizes in known.values() for name in sizes):
        if given.get(name) is not None and name not in own:
            theirs = [other for other, sizes in known.items() if name in sizes]
            raise ValueError(
                f"{name}: got {given[name]!r} with position={position!r}; expected "
                f"None, as it belongs to {', '.join(map(repr, theirs))}"
            )
    sizes = {n: own[n] if given[n] is None else given[n] for n in own if n in given}
    for name, value in sizes.items():
        if name == "base":
            as_real(name, value)
        elif name == "bidirectional":
            as_flag(name, value)
        else:
            as_size(name, value, 0 if name == "max_relative_position" else 1)
    return sizes
