"""WavLM: T5's bias by bucket, times a gate that the input opens for each query."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relpos._biases.buckets import t5_bucket
from relpos._checks import POSITION_LIMIT, Array, as_floating, as_int, quiet
from relpos.nn._inputs import join_heads, split_heads
from relpos.recipes._tables import Keywords, as_grad, as_shaped, like
from relpos.recipes.results import WavlmGradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["wavlm", "wavlm_backward"]

#: Columns of the gate's layer: four are summed for each of its two numbers.
_SUMMED = 4


class _Gate(NamedTuple):
    """The parameters as given, and what one pass makes of them, in float64."""

    const: Array
    weight: Array
    bias: Array
    embed: Array
    hidden: Array
    heads: Array  # (..., H, L, D), the input in heads
    summed: Array  # (2, D), the layer with its columns summed
    gates: Array  # (..., H, L, 2), the sigmoids a and b


@quiet
def wavlm(
    gru_rel_pos_const: ArrayLike,
    gru_rel_pos_linear_weight: ArrayLike,
    gru_rel_pos_linear_bias: ArrayLike,
    rel_attn_embed: ArrayLike,
    hidden_states: ArrayLike,
    *,
    max_distance: int = 800,
) -> Keywords:
    r"""WavLM's gated bias by bucket: a position query of one column.

    .. math::

        s_{ij} = \frac{q_i k_j}{\sqrt D} + g_{h,i} \, e_{bucket(j - i), h}, \quad
        g = a (b \, c_h - 1) + 2, \quad
        (a, b)_{h,i} = \sigma\Big(\sum_{m=1}^4 (W x_{h,i} + w)_m, \;
        \sum_{m=5}^8 (W x_{h,i} + w)_m\Big)

    with x the input of the layer, before any projection, cut into heads.

    Parameters
    ----------
    gru_rel_pos_const : array_like, (1, H, 1, 1)
        Factor c of each head.
    gru_rel_pos_linear_weight : array_like, (8, D)
        Weights W of the gate.
    gru_rel_pos_linear_bias : array_like, (8,)
        Its biases w.
    rel_attn_embed : array_like, (num_buckets, H)
        Table e, that of the first layer in all layers.
    hidden_states : array_like, (..., L, H * D)
        The input of the layer.
    max_distance : int, default 800
        As in `relpos.t5_bucket`.

    Returns
    -------
    dict
        `rel_key`, of one column, `position_query` and `buckets`.

    Raises
    ------
    TypeError, ValueError
        If a parameter or the input has another shape, or the buckets leave no
        logarithmic range.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    wavlm_backward : The gradients.
    t5 : A bias without a gate.

    Notes
    -----
    ===========================  =================  ===========================
    ``WavLMAttention``           shape              here
    ===========================  =================  ===========================
    gru_rel_pos_const            (1, H, 1, 1)       `gru_rel_pos_const`
    gru_rel_pos_linear.weight    (8, D)             `gru_rel_pos_linear_weight`
    gru_rel_pos_linear.bias      (8,)               `gru_rel_pos_linear_bias`
    rel_attn_embed.weight        (num_buckets, H)   `rel_attn_embed`
    ===========================  =================  ===========================

    References
    ----------
    .. [1] Chen et al., "WavLM: Large-Scale Self-Supervised Pre-Training for Full Stack
       Speech Processing", 2021, arXiv:2110.13900, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> gate = np.ones((1, 2, 1, 1)), np.zeros((8, 4)), np.zeros(8)
    >>> keywords = recipes.wavlm(*gate, np.zeros((320, 2)), np.zeros((5, 8)))
    >>> keywords["rel_key"].shape, keywords["position_query"].shape
    ((2, 320, 1), (2, 5, 1))
    """
    gate = _run(
        gru_rel_pos_const,
        gru_rel_pos_linear_weight,
        gru_rel_pos_linear_bias,
        rel_attn_embed,
        hidden_states,
    )
    reach = as_int("max_distance", max_distance, 1, POSITION_LIMIT)
    buckets = t5_bucket(
        np.arange(-reach, reach + 1), num_buckets=len(gate.embed), max_distance=reach
    )
    a, b = np.split(gate.gates, 2, axis=-1)
    position_query = a * (b * gate.const[0].astype(np.float64) - 1) + 2
    return {
        "rel_key": np.ascontiguousarray(gate.embed.T[..., None]),
        "position_query": like(position_query, gate.hidden),
        "buckets": buckets,
    }


@quiet
def wavlm_backward(
    grad_rel_key: ArrayLike,
    grad_position_query: ArrayLike,
    gru_rel_pos_const: ArrayLike,
    gru_rel_pos_linear_weight: ArrayLike,
    gru_rel_pos_linear_bias: ArrayLike,
    rel_attn_embed: ArrayLike,
    hidden_states: ArrayLike,
    *,
    max_distance: int = 800,
) -> WavlmGradients:
    r"""Gradients of the parameters and the input of `wavlm`.

    .. math::

        \bar c_h = \sum_i \bar g_{h,i} \, a b, \quad
        \bar a = \bar g (b \, c_h - 1), \quad \bar b = \bar g \, a \, c_h, \quad
        \bar e_{t,h} = \bar A_{h,t}

    Parameters
    ----------
    grad_rel_key : array_like, (H, num_buckets, 1)
        Gradient of rel_key, A in the formula.
    grad_position_query : array_like, (..., H, L, 1)
        Gradient of position_query, g in the formula.
    gru_rel_pos_const : array_like, (1, H, 1, 1)
        As given to `wavlm`, like those that follow.
    gru_rel_pos_linear_weight, gru_rel_pos_linear_bias : array_like, (8, D), (8,)
        The same.
    rel_attn_embed, hidden_states, max_distance : as in `wavlm`
        The same.

    Returns
    -------
    WavlmGradients
        The named tuple (gru_rel_pos_const, gru_rel_pos_linear_weight,
        gru_rel_pos_linear_bias, rel_attn_embed, hidden_states), of their shapes; the
        last is what comes through the gate, to be added to what comes through queries,
        keys and values.

    Raises
    ------
    TypeError, ValueError
        As `wavlm`, or if a gradient is of another shape.

    See Also
    --------
    wavlm : The forward.
    relpos.AttentionContext.backward : Where the gradients come from.

    References
    ----------
    .. [1] Chen et al., "WavLM: Large-Scale Self-Supervised Pre-Training for Full Stack
       Speech Processing", 2021, arXiv:2110.13900, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> gate = np.ones((1, 2, 1, 1)), np.zeros((8, 4)), np.zeros(8)
    >>> given = *gate, np.zeros((320, 2)), np.zeros((5, 8))
    >>> grads = np.ones((2, 320, 1)), np.ones((2, 5, 1))
    >>> recipes.wavlm_backward(*grads, *given).hidden_states.shape
    (5, 8)
    """
    gate = _run(
        gru_rel_pos_const,
        gru_rel_pos_linear_weight,
        gru_rel_pos_linear_bias,
        rel_attn_embed,
        hidden_states,
    )
    buckets, heads = gate.embed.shape
    table = as_grad("grad_rel_key", grad_rel_key, (heads, buckets, 1))
    shape = (*gate.gates.shape[:-1], 1)
    grad = as_grad("grad_position_query", grad_position_query, shape)
    const = gate.const[0].astype(np.float64)
    a, b = np.split(gate.gates, 2, axis=-1)
    # forward: g = a (b c - 1) + 2, and (a, b) the sigmoids of summed x + bias
    opened = np.concatenate([grad * (b * const - 1), grad * a * const], axis=-1)
    opened *= gate.gates * (1 - gate.gates)
    at_const = (grad * a * b).sum(axis=(*range(grad.ndim - 3), -2, -1))
    rows = opened.reshape(-1, 2)
    at_layer = rows.T @ gate.heads.reshape(-1, gate.heads.shape[-1])
    at_hidden = join_heads(opened @ gate.summed)
    return WavlmGradients(
        like(at_const.reshape(gate.const.shape), gate.const),
        like(np.repeat(at_layer, _SUMMED, axis=0), gate.weight),
        like(np.repeat(rows.sum(axis=0), _SUMMED), gate.bias),
        like(table[..., 0].T, gate.embed),
        like(at_hidden, gate.hidden),
    )


def _run(
    const: object, weight: object, bias: object, embed: object, x: object
) -> _Gate:
    c = as_shaped("gru_rel_pos_const", const, 1, "H", 1, 1)
    layer = as_shaped("gru_rel_pos_linear_weight", weight, 2 * _SUMMED, "D")
    shift = as_shaped("gru_rel_pos_linear_bias", bias, 2 * _SUMMED)
    table = as_shaped("rel_attn_embed", embed, "num_buckets", c.shape[1])
    hidden = as_floating("hidden_states", x)
    width = c.shape[1] * layer.shape[1]
    if hidden.ndim < 2 or hidden.shape[-1] != width or not width:
        raise ValueError(
            f"hidden_states: got shape {hidden.shape}; expected (..., L, {width}), "
            f"{c.shape[1]} heads of {layer.shape[1]}"
        )
    heads = split_heads(hidden.astype(np.float64), c.shape[1])
    summed = layer.astype(np.float64).reshape(2, _SUMMED, -1).sum(axis=1)
    offset = shift.astype(np.float64).reshape(2, _SUMMED).sum(axis=1)
    gates = 1 / (1 + np.exp(-(heads @ summed.T + offset)))
    return _Gate(c, layer, shift, table, hidden, heads, summed, gates)
