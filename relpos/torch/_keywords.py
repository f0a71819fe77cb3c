"""The keywords that the functions of relpos.torch hand on to `attention`.

These are the tables of `relpos._attention.keywords` for tensors. They are generic in
the type of the flags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypedDict

from relpos._attention.keywords import Flag

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn.attention.flex_attention import BlockMask

    from relpos._checks import Array
    from relpos.torch._pair_functions import ScoreFunction


class Computed(TypedDict, total=False):
    """Keywords of all but `graph_attention`, without those of results."""

    num_threads: int | None
    rng: int | Tensor | torch.Generator | None
    scale: float | None
    enable_gqa: bool
    query_offset: int | Tensor | None
    rel_query: Tensor | None
    rel_bias: Tensor | None
    min_relative_position: int | None
    buckets: Tensor | Array | None
    beyond: str
    labels: Tensor | Array | tuple[Tensor | Array, ...] | None
    position_query: Tensor | None
    softcap: float | None
    sinks: Tensor | None
    log_decay: Tensor | None
    key_ranges: Tensor | Array | None
    key_lengths: int | Tensor | None
    key_blocks: Tensor | None
    block_size: int | tuple[int, int] | None
    window: tuple[int | None, int | None] | None
    cu_seqlens: Tensor | Array | None


class Keywords(Computed, Generic[Flag], total=False):
    """Keywords of all functions but `graph_attention`."""

    return_lse: Flag
    return_weights: Flag


class Masks(TypedDict, total=False):
    """Arguments that `attention` takes by position, too."""

    attn_mask: Tensor | None
    dropout_p: float
    is_causal: bool


class Biases(TypedDict, total=False):
    """Keywords that some schemes name in their own signature."""

    pos_bias_u: Tensor | None
    pos_bias_v: Tensor | None


class ScoresKeywords(Computed, Masks, Biases, total=False):
    rel_key: Tensor | None
    rel_value: Tensor | None


class AttentionKeywords(Keywords[Flag], Biases, total=False):
    rel_key: Tensor | None
    rel_value: Tensor | None
    score_mod: ScoreFunction | None
    block_mask: BlockMask | None


class ShawKeywords(Keywords[Flag], Masks, Biases, total=False):
    """Keywords that `shaw_attention` passes on."""


class RelativeGlobalKeywords(ShawKeywords[Flag], total=False):
    rel_value: Tensor | None


class TransformerXLKeywords(Keywords[Flag], Masks, total=False):
    rel_value: Tensor | None


class FireKeywords(RelativeGlobalKeywords[Flag], total=False):
    rel_key: Tensor | None
    signed: bool
    eps: float


class Values(TypedDict, total=False):
    """Arguments of `attention` that are no tensors and differ from their defaults.

    In this order they are arguments of the operators of compiled programs.
    """

    dropout_p: float
    is_causal: bool
    scale: float
    softcap: float
    enable_gqa: bool
    query_offset: int
    key_lengths: int
    min_relative_position: int
    beyond: str
    block_size: int | tuple[int, int]
    window: tuple[int | None, int | None]
    return_lse: bool
    return_weights: bool
    num_threads: int


class SchemeValues(TypedDict, total=False):
    """Arguments of FIRE or of a graph that are no tensors.

    A name of a tensor is there too, as None: the names say which scheme it is.
    """

    w1: None
    b1: None
    w2: None
    b2: None
    c: float | None
    threshold: float | None
    signed: bool
    eps: float
    indptr: None
    indices: None
    edge_labels: None
    edges: Any
    key_indices: None
    key_labels: None


class GraphKeywords(TypedDict, Generic[Flag], total=False):
    edges: Any
    key_indices: Tensor | None
    enable_gqa: bool
    position_query: Tensor | None
    softcap: float | None
    sinks: Tensor | None
    scale: float | None
    return_lse: Flag
    num_threads: int | None
