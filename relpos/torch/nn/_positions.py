"""The schemes of `RelativeMultiheadAttention`: what each learns, how it attends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import relpos.torch
from relpos import recipes
from relpos._checks import as_choice, as_flag, as_real
from relpos.nn._inputs import as_size
from relpos.nn._schemes import music_rows
from relpos.torch._tensors import without_modes
from relpos.torch._tracing import constant_result
from relpos.torch.nn._layer import drawn, split_heads

Sizes = Mapping[str, Any]
Options = Mapping[str, Any]
Terms = tuple[Tensor, Tensor, Tensor]


class Scheme(NamedTuple):
    """What a `position` stands for.

    sizes: its own arguments and their defaults. make: called with the module, sizes and
    {device, dtype}; registers parameters. attend: called with the module,
    (query, key, value) in heads, and keywords of attention.
    """

    sizes: Sizes
    make: Callable[[Any, Sizes, Options], None]
    attend: Callable[..., Any]
    lengths_may_differ: bool = False  # without a query_offset


def sizes_of(position: str | None, given: Sizes) -> Sizes:
    """Return the sizes of a scheme: those that are given, and else its defaults."""
    if position is not None:
        as_choice("position", position, [name for name in SCHEMES if name is not None])
    own = SCHEMES[position].sizes
    for name, value in given.items():
        if value is not None and name not in own:
            theirs = [key for key, scheme in SCHEMES.items() if name in scheme.sizes]
            raise ValueError(
                f"{name}: got {value!r} with position={position!r}; expected None, as "
                f"it belongs to {', '.join(map(repr, theirs))}"
            )
    sizes = {n: own[n] if given[n] is None else given[n] for n in own}
    for name, value in sizes.items():
        if name == "base":
            as_real(name, value)
        elif name == "bidirectional":
            as_flag(name, value)
        else:
            as_size(name, value, 0 if name == "max_relative_position" else 1)
    return sizes


def projections(module: Any) -> tuple[Any, Any]:
    """Return weights and biases of the projections of query, key and value."""
    weights: Any = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    biases: Any = (None,) * 3
    if module.in_proj_bias is not None:
        biases = module.in_proj_bias.chunk(3)
    return weights, biases


def _parameter(shape: tuple[int, ...], options: Options, std: float) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, **options).normal_(std=std))


def _offset(keywords: Mapping[str, Any]) -> int:
    return keywords.get("query_offset") or 0


# ---- none, and tables of vectors ----------------------------------------------------


def _make_none(module: Any, sizes: Sizes, options: Options) -> None:
    pass


def _attend_none(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    keywords.setdefault("query_offset", 0)  # causal from the first query and key on
    return relpos.torch.attention(*terms, **keywords)


def _make_shaw(module: Any, sizes: Sizes, options: Options) -> None:
    shape = 2 * sizes["max_relative_position"] + 1, module.head_dim
    module.rel_key = drawn(shape, **options)
    module.rel_value = drawn(shape, **options)


def _attend_shaw(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    tables = module.rel_key, module.rel_value
    return relpos.torch.shaw_attention(*terms, *tables, **keywords)


def _make_music(module: Any, sizes: Sizes, options: Options) -> None:
    rows = music_rows(sizes["max_len"], module.is_causal)
    module.rel_key = _parameter((rows, module.head_dim), options, 1.0)


def _attend_music(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    keywords["min_relative_position"] = 1 - module.sizes["max_len"]
    return relpos.torch.relative_global_attention(*terms, module.rel_key, **keywords)


def _make_transformer_xl(module: Any, sizes: Sizes, options: Options) -> None:
    shape = module.num_heads, module.head_dim
    module.pos_bias_u = _parameter(shape, options, 0.02)
    module.pos_bias_v = _parameter(shape, options, 0.02)
    width = module.embed_dim
    module.pos_proj = nn.Linear(width, width, bias=False, **options)


def _attend_transformer_xl(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    lq, lk = terms[0].shape[-2], terms[1].shape[-2]
    keywords.setdefault("query_offset", lk - lq)
    farthest = lq - 1 + keywords["query_offset"]
    rows = max(lq + lk - 1, 1)  # also of no tokens
    distances = farthest - torch.arange(rows, device=terms[0].device)
    encodings = relpos.torch.sinusoidal(
        distances, module.embed_dim, layout="concat", dtype=module.pos_bias_u.dtype
    )
    table = split_heads(module.pos_proj(encodings), module.num_heads)
    return relpos.torch.transformer_xl_attention(
        *terms,
        table,
        module.pos_bias_u,
        module.pos_bias_v,
        min_relative_position=-farthest,
        **keywords,
    )


@constant_result
def deberta_buckets(max_relative_position: int | None, num_buckets: int) -> Tensor:
    """Return the rows of DeBERTa's tables, the past first."""
    return _from_deberta(max_relative_position, num_buckets)


@lru_cache(maxsize=64)
def _from_deberta(reach: int | None, span: int) -> Tensor:
    recipe = recipes.deberta(np.zeros((2 * span, 1)), max_position=reach)
    return without_modes(recipe["buckets"])


def _make_deberta(module: Any, sizes: Sizes, options: Options) -> None:
    if module.kdim != module.embed_dim:
        raise ValueError(
            f"kdim: got {module.kdim} with position='deberta', which projects "
            f"positions as keys; expected embed_dim = {module.embed_dim}"
        )
    shape = 2 * sizes["num_buckets"], module.embed_dim
    module.rel_embeddings = _parameter(shape, options, 0.02)
    deberta_buckets(**sizes)  # says what is wrong with the sizes


def _attend_deberta(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    (w_q, w_k, _), (b_q, b_k, _) = projections(module)
    rows = module.rel_embeddings
    pos_query, pos_key = (
        split_heads(nn.functional.linear(rows, weight, bias), module.num_heads)
        for weight, bias in ((w_q, b_q), (w_k, b_k))
    )
    return relpos.torch.attention(
        *terms,
        rel_key=pos_key,
        rel_query=pos_query,
        buckets=deberta_buckets(**module.sizes).to(terms[0].device),
        scale=(3 * module.head_dim) ** -0.5,
        **keywords,
    )


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


def _make_t5(module: Any, sizes: Sizes, options: Options) -> None:
    shape = sizes["num_buckets"], module.num_heads
    module.rel_bias = _parameter(shape, options, module.embed_dim**-0.5)
    t5_buckets(**sizes)  # says what is wrong with the sizes


def _attend_t5(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    buckets = t5_buckets(**module.sizes).to(terms[0].device)
    bias = module.rel_bias.T
    return relpos.torch.attention(*terms, rel_bias=bias, buckets=buckets, **keywords)


def _attend_alibi(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    lq, lk, offset = terms[0].shape[-2], terms[1].shape[-2], _offset(keywords)
    length = max(lq + offset, lk - offset, 1)
    slopes = relpos.torch.alibi_slopes(module.num_heads, dtype=terms[0].dtype)
    bias = relpos.torch.alibi_bias(slopes.to(terms[0].device), length)
    return relpos.torch.attention(*terms, rel_bias=bias, **keywords)


def _make_rope(module: Any, sizes: Sizes, options: Options) -> None:
    if module.head_dim % 2:
        raise ValueError(
            f"num_heads: got {module.num_heads}, heads of {module.head_dim} columns, "
            "with position='rope'; expected an even number of columns"
        )
    module.base = float(sizes["base"])


def _attend_rope(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    query, key, value = terms
    offset = _offset(keywords)
    query = relpos.torch.apply_rotary(query, base=module.base, offset=offset)
    key = relpos.torch.apply_rotary(key, base=module.base)
    return relpos.torch.attention(query, key, value, **keywords)


def _make_fire(module: Any, sizes: Sizes, options: Options) -> None:
    hidden = nn.Linear(1, sizes["width"], **options)
    output = nn.Linear(sizes["width"], module.num_heads, **options)
    module.w1 = nn.Parameter(hidden.weight.detach()[:, 0].clone())
    module.b1, module.w2, module.b2 = hidden.bias, output.weight, output.bias
    module.c = nn.Parameter(torch.tensor(0.1, **options))
    start = float(sizes["max_distance"])
    module.threshold = nn.Parameter(torch.tensor(start, **options))


def _attend_fire(module: Any, terms: Terms, keywords: dict[str, Any]) -> Any:
    network = module.w1, module.b1, module.w2, module.b2, module.c, module.threshold
    return relpos.torch.fire_attention(*terms, *network, **keywords)


_T5 = {"num_buckets": 32, "max_distance": 128, "bidirectional": True}
_DEBERTA = {"max_relative_position": 512, "num_buckets": 256}
SCHEMES: dict[str | None, Scheme] = {
    None: Scheme({}, _make_none, _attend_none, True),
    "shaw": Scheme({"max_relative_position": 16}, _make_shaw, _attend_shaw),
    "music": Scheme({"max_len": 1024}, _make_music, _attend_music),
    "transformer_xl": Scheme({}, _make_transformer_xl, _attend_transformer_xl, True),
    "t5": Scheme(_T5, _make_t5, _attend_t5),
    "alibi": Scheme({}, _make_none, _attend_alibi),
    "rope": Scheme({"base": 10000.0}, _make_rope, _attend_rope),
    "fire": Scheme({"width": 32, "max_distance": 512}, _make_fire, _attend_fire),
    "deberta": Scheme(_DEBERTA, _make_deberta, _attend_deberta),
}
