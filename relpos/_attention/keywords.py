"""The keywords that the schemes hand on to `attention`, which describes them.

Each table of them is generic in the type of its flags: bool, or that of the overload
for calls without a flag that is True.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypedDict, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from relpos._attention.edges import SparseRows
    from relpos._checks import Array

    Seed = int | np.random.Generator | None

Flag = TypeVar("Flag", bound=bool)
Off: TypeAlias = Literal[False]


class Common(TypedDict, total=False):
    """Keywords that all functions share."""

    num_threads: int | None
    scale: float | None
    position_query: ArrayLike | None
    softcap: float | None
    sinks: ArrayLike | None


class Computed(Common, total=False):
    """Keywords of all but `graph_attention`, without those of results."""

    rng: Seed
    enable_gqa: bool
    query_offset: ArrayLike | None
    rel_query: ArrayLike | None
    rel_bias: ArrayLike | None
    min_relative_position: int | None
    buckets: ArrayLike | None
    beyond: str
    labels: ArrayLike | None
    log_decay: ArrayLike | None
    key_ranges: ArrayLike | None
    key_lengths: ArrayLike | None
    key_blocks: ArrayLike | None
    block_size: int | tuple[int, int] | None
    window: tuple[int | None, int | None] | None
    cu_seqlens: ArrayLike | None


class Keywords(Computed, Generic[Flag], total=False):
    """Keywords of all but `graph_attention`."""

    return_lse: Flag
    return_weights: Flag
    return_context: Flag
    out: Array | None


class Masks(TypedDict, total=False):
    """Arguments that `attention` takes by position, too."""

    attn_mask: ArrayLike | None
    dropout_p: float
    is_causal: bool


class Biases(TypedDict, total=False):
    """Keywords that some schemes name in their own signature."""

    pos_bias_u: ArrayLike | None
    pos_bias_v: ArrayLike | None


class ScoresKeywords(Computed, Masks, Biases, total=False):
    rel_key: ArrayLike | None
    rel_value: ArrayLike | None


class AttentionKeywords(Keywords[Flag], Biases, total=False):
    rel_key: ArrayLike | None
    rel_value: ArrayLike | None


class ShawKeywords(Keywords[Flag], Masks, Biases, total=False):
    """Keywords that `shaw_attention` passes on."""


class RelativeGlobalKeywords(ShawKeywords[Flag], total=False):
    rel_value: ArrayLike | None


class TransformerXLKeywords(Keywords[Flag], Masks, total=False):
    rel_value: ArrayLike | None


class FireKeywords(RelativeGlobalKeywords[Flag], total=False):
    rel_key: ArrayLike | None


class GraphKeywords(Common, Generic[Flag], total=False):
    edges: ArrayLike | SparseRows | None
    key_indices: ArrayLike | None
    enable_gqa: bool
    return_lse: Flag
    return_context: Flag
