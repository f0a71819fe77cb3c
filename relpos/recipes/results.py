"""What the backward functions of recipes return: gradients by a parameter's name."""

from typing import NamedTuple

from relpos._checks import Array
from relpos._text import in_short

__all__ = [
    "EnformerGradients",
    "ForgettingTransformerGradients",
    "Layoutlmv3Gradients",
    "ParakeetGradients",
    "SamGradients",
    "SwinV2Gradients",
    "WavlmGradients",
]


@in_short
class EnformerGradients(NamedTuple):
    """Gradients of the parameters of `enformer`.

    Attributes
    ----------
    rel_content_bias, rel_pos_bias : ndarray, (1, H, 1, D)
    to_rel_k : ndarray, (H * D, F)

    See Also
    --------
    enformer_backward : Returns it.
    """

    rel_content_bias: Array
    rel_pos_bias: Array
    to_rel_k: Array


@in_short
class ForgettingTransformerGradients(NamedTuple):
    """Gradients of the gate of `forgetting_transformer`, and of its input.

    Attributes
    ----------
    f_proj_weight : ndarray, (H, E)
    f_proj_bias : ndarray, (H,)
    hidden_states : ndarray, (..., L, E)

    See Also
    --------
    forgetting_transformer_backward : Returns it.
    """

    f_proj_weight: Array
    f_proj_bias: Array
    hidden_states: Array


@in_short
class Layoutlmv3Gradients(NamedTuple):
    """Gradients of the biases of `layoutlmv3`.

    Attributes
    ----------
    rel_pos_bias : ndarray, (H, bins)
    rel_pos_x_bias, rel_pos_y_bias : ndarray, (H, bins'), or None

    See Also
    --------
    layoutlmv3_backward : Returns it.
    """

    rel_pos_bias: Array
    rel_pos_x_bias: Array | None
    rel_pos_y_bias: Array | None


@in_short
class ParakeetGradients(NamedTuple):
    """Gradients of the parameters of `parakeet`.

    Attributes
    ----------
    bias_u, bias_v : ndarray, (H, D)
    relative_k_proj : ndarray, (H * D, E)

    See Also
    --------
    parakeet_backward : Returns it.
    """

    bias_u: Array
    bias_v: Array
    relative_k_proj: Array


@in_short
class SamGradients(NamedTuple):
    """Gradients of the tables of `sam`.

    Attributes
    ----------
    rel_pos_h : ndarray, (R, D)
    rel_pos_w : ndarray, (S, D)

    See Also
    --------
    sam_backward : Returns it.
    """

    rel_pos_h: Array
    rel_pos_w: Array


@in_short
class SwinV2Gradients(NamedTuple):
    """Gradients of the network of `swin_v2`.

    Attributes
    ----------
    w1 : ndarray, (F, 2)
    b1 : ndarray, (F,)
    w2 : ndarray, (H, F)

    See Also
    --------
    swin_v2_backward : Returns it.
    """

    w1: Array
    b1: Array
    w2: Array


@in_short
class WavlmGradients(NamedTuple):
    """Gradients of the parameters of `wavlm`, and of its input.

    Attributes
    ----------
    gru_rel_pos_const : ndarray, (1, H, 1, 1)
    gru_rel_pos_linear_weight : ndarray, (8, D)
    gru_rel_pos_linear_bias : ndarray, (8,)
    rel_attn_embed : ndarray, (num_buckets, H)
    hidden_states : ndarray, (..., L, H * D)

    See Also
    --------
    wavlm_backward : Returns it.
    """

    gru_rel_pos_const: Array
    gru_rel_pos_linear_weight: Array
    gru_rel_pos_linear_bias: Array
    rel_attn_embed: Array
    hidden_states: Array
