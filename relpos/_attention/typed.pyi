"""Overloads of the attention functions: what is returned for which of their flags.

Of each function the first overload is without any flag, the next ones have an entry for
every choice of flags that is written out, and the last is for flags that are variables.
"""

# The keywords of an overload may all be left out, so each fits a call without flags,
# which takes the first.
# pyright: reportOverlappingOverload=false

from typing import Literal, TypeAlias, Unpack, overload

from numpy.typing import ArrayLike

from relpos._attention.context import AttentionContext
from relpos._attention.keywords import (
    AttentionKeywords,
    FireKeywords,
    GraphKeywords,
    RelativeGlobalKeywords,
    ShawKeywords,
    TransformerXLKeywords,
)
from relpos._attention.results import (
    AttentionGradients,
    AttentionOutput,
    FireAttentionGradients,
)
from relpos._checks import Array

On: TypeAlias = Literal[True]
Off: TypeAlias = Literal[False]
Context: TypeAlias = AttentionContext[AttentionGradients]
FireContext: TypeAlias = AttentionContext[FireAttentionGradients]

# fmt: off

@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[Off, Off, Off]],
) -> Array: ...
@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[On, Off, Off]],
) -> AttentionOutput[Array, None, None]: ...
@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[Off, On, Off]],
) -> AttentionOutput[None, Array, None]: ...
@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[Off, Off, On]],
) -> AttentionOutput[None, None, Context]: ...
@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[On, On, Off]],
) -> AttentionOutput[Array, Array, None]: ...
@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[On, Off, On]],
) -> AttentionOutput[Array, None, Context]: ...
@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[Off, On, On]],
) -> AttentionOutput[None, Array, Context]: ...
@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[On, On, On]],
) -> AttentionOutput[Array, Array, Context]: ...
@overload
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    attn_mask: ArrayLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[bool, bool, bool]],
) -> Array | AttentionOutput: ...

@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[Off, Off, Off]],
) -> Array: ...
@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[On, Off, Off]],
) -> AttentionOutput[Array, None, None]: ...
@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[Off, On, Off]],
) -> AttentionOutput[None, Array, None]: ...
@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[Off, Off, On]],
) -> AttentionOutput[None, None, Context]: ...
@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[On, On, Off]],
) -> AttentionOutput[Array, Array, None]: ...
@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[On, Off, On]],
) -> AttentionOutput[Array, None, Context]: ...
@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[Off, On, On]],
) -> AttentionOutput[None, Array, Context]: ...
@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[On, On, On]],
) -> AttentionOutput[Array, Array, Context]: ...
@overload
def shaw_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[bool, bool, bool]],
) -> Array | AttentionOutput: ...

@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[Off, Off, Off]],
) -> Array: ...
@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[On, Off, Off]],
) -> AttentionOutput[Array, None, None]: ...
@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[Off, On, Off]],
) -> AttentionOutput[None, Array, None]: ...
@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[Off, Off, On]],
) -> AttentionOutput[None, None, Context]: ...
@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[On, On, Off]],
) -> AttentionOutput[Array, Array, None]: ...
@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[On, Off, On]],
) -> AttentionOutput[Array, None, Context]: ...
@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[Off, On, On]],
) -> AttentionOutput[None, Array, Context]: ...
@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[On, On, On]],
) -> AttentionOutput[Array, Array, Context]: ...
@overload
def relative_global_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[bool, bool, bool]],
) -> Array | AttentionOutput: ...

@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[Off, Off, Off]],
) -> Array: ...
@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[On, Off, Off]],
) -> AttentionOutput[Array, None, None]: ...
@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[Off, On, Off]],
) -> AttentionOutput[None, Array, None]: ...
@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[Off, Off, On]],
) -> AttentionOutput[None, None, Context]: ...
@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[On, On, Off]],
) -> AttentionOutput[Array, Array, None]: ...
@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[On, Off, On]],
) -> AttentionOutput[Array, None, Context]: ...
@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[Off, On, On]],
) -> AttentionOutput[None, Array, Context]: ...
@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[On, On, On]],
) -> AttentionOutput[Array, Array, Context]: ...
@overload
def transformer_xl_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    rel_key: ArrayLike, pos_bias_u: ArrayLike | None, pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[bool, bool, bool]],
) -> Array | AttentionOutput: ...

@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[Off, Off, Off]],
) -> Array: ...
@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[On, Off, Off]],
) -> AttentionOutput[Array, None, None]: ...
@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[Off, On, Off]],
) -> AttentionOutput[None, Array, None]: ...
@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[Off, Off, On]],
) -> AttentionOutput[None, None, FireContext]: ...
@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[On, On, Off]],
) -> AttentionOutput[Array, Array, None]: ...
@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[On, Off, On]],
) -> AttentionOutput[Array, None, FireContext]: ...
@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[Off, On, On]],
) -> AttentionOutput[None, Array, FireContext]: ...
@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[On, On, On]],
) -> AttentionOutput[Array, Array, FireContext]: ...
@overload
def fire_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: ArrayLike,
    c: ArrayLike, threshold: ArrayLike, *, signed: bool = False, eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[bool, bool, bool]],
) -> Array | AttentionOutput: ...

@overload
def graph_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    indptr: ArrayLike | None = None, indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[GraphKeywords[Off, Off]],
) -> Array: ...
@overload
def graph_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    indptr: ArrayLike | None = None, indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[GraphKeywords[On, Off]],
) -> AttentionOutput[Array, None, None]: ...
@overload
def graph_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    indptr: ArrayLike | None = None, indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[GraphKeywords[Off, On]],
) -> AttentionOutput[None, None, Context]: ...
@overload
def graph_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    indptr: ArrayLike | None = None, indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[GraphKeywords[On, On]],
) -> AttentionOutput[Array, None, Context]: ...
@overload
def graph_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike,
    indptr: ArrayLike | None = None, indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None, rel_value: ArrayLike | None = None,
    **keywords: Unpack[GraphKeywords[bool, bool]],
) -> Array | AttentionOutput[Array | None, None, Context | None]: ...
