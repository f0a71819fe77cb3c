"""The functions whose results depend on flags, under the types that typed.pyi tells."""

from relpos._attention.attention import attention
from relpos._attention.fire import fire_attention
from relpos._attention.graph import graph_attention
from relpos._attention.schemes import (
    relative_global_attention,
    shaw_attention,
    transformer_xl_attention,
)

__all__ = [
    "attention",
    "fire_attention",
    "graph_attention",
    "relative_global_attention",
    "shaw_attention",
    "transformer_xl_attention",
]
