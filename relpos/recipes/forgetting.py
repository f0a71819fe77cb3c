"""The Forgetting Transformer: a gate of each key, whose logarithms add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import Array, as_floating, quiet
from relpos.recipes._settings import causal
from relpos.recipes._tables import Keywords, as_grad, as_shaped, like
from relpos.recipes.results import ForgettingTransformerGradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["forgetting_transformer", "forgetting_transformer_backward"]


@quiet
def forgetting_transformer(
    f_proj_weight: ArrayLike,
    f_proj_bias: ArrayLike,
    hidden_states: ArrayLike,
    *,
    window_size: int | None = None,
) -> Keywords:
    r"""Forgetting attention (FoX): each step takes away what a gate of the input says.

    .. math::

        s_{ij} = \frac{q_i k_j}{\sqrt D} + \sum_{t=j+1}^i \log f_{h,t}, \quad
        f_{h,t} = \sigma(W x_t + w)_h, \quad j \le i

    Parameters
    ----------
    f_proj_weight : array_like, (H, E)
        The layer of the gate, W.
    f_proj_bias : array_like, (H,)
        Its bias, w.
    hidden_states : array_like, (..., L, E)
        The input of the layer, x.
    window_size : int, optional
        Keys that a query sees, itself among them; None sees all of the past.

    Returns
    -------
    dict
        `log_decay`, `is_causal`, `enable_gqa` and, if there is one, `window`.

    Raises
    ------
    TypeError, ValueError
        If a parameter or the input has another shape, or the window is less than 1.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    forgetting_transformer_backward : The gradients.
    relpos.alibi_bias : Steps of one size.

    Notes
    -----
    =======================  =======  ===============
    ``ForgettingAttention``  shape    here
    =======================  =======  ===============
    f_proj.weight            (H, E)   `f_proj_weight`
    f_proj.bias              (H,)     `f_proj_bias`
    =======================  =======  ===============

    References
    ----------
    .. [1] Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate",
       2025, arXiv:2503.02130.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> gate = np.zeros((2, 8)), np.zeros(2)
    >>> recipes.forgetting_transformer(*gate, np.ones((5, 8)))["log_decay"][0]
    array([-0.69314718, -0.69314718, -0.69314718, -0.69314718, -0.69314718])
    """
    _, _, hidden, logits = _run(f_proj_weight, f_proj_bias, hidden_states)
    decay = like(-np.logaddexp(0, -logits), hidden)
    return {"log_decay": decay, **causal("window_size", window_size)}


@quiet
def forgetting_transformer_backward(
    grad_log_decay: ArrayLike,
    f_proj_weight: ArrayLike,
    f_proj_bias: ArrayLike,
    hidden_states: ArrayLike,
    *,
    window_size: int | None = None,
) -> ForgettingTransformerGradients:
    r"""Gradients of the gate of `forgetting_transformer`, and of its input.

    .. math::

        \bar W = \sum_t \bar z_t x_t^T, \quad \bar x_t = W^T \bar z_t, \quad
        \bar z_{h,t} = (1 - f_{h,t}) \, \overline{\log f}_{h,t}

    Parameters
    ----------
    grad_log_decay : array_like, (..., H, L)
        Gradient of log_decay.
    f_proj_weight, f_proj_bias : array_like, (H, E), (H,)
        As given to `forgetting_transformer`.
    hidden_states, window_size : as in `forgetting_transformer`
        The same.

    Returns
    -------
    ForgettingTransformerGradients
        The named tuple (f_proj_weight, f_proj_bias, hidden_states), of their shapes;
        the last is what comes through the gate.

    Raises
    ------
    TypeError, ValueError
        As `forgetting_transformer`, or if the gradient is of another shape.

    See Also
    --------
    forgetting_transformer : The forward.
    relpos.AttentionContext.backward : Where `grad_log_decay` comes from.

    References
    ----------
    .. [1] Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate",
       2025, arXiv:2503.02130.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> given = np.zeros((2, 8)), np.zeros(2), np.ones((5, 8))
    >>> recipes.forgetting_transformer_backward(np.ones((2, 5)), *given).f_proj_bias
    array([2.5, 2.5])
    """
    weight, bias, hidden, logits = _run(f_proj_weight, f_proj_bias, hidden_states)
    causal("window_size", window_size)
    grad = as_grad("grad_log_decay", grad_log_decay, logits.shape)
    grad = np.swapaxes(grad / (1 + np.exp(logits)), -1, -2)  # (..., L, H)
    rows = grad.reshape(-1, len(bias))
    inputs = hidden.astype(np.float64)
    return ForgettingTransformerGradients(
        like(rows.T @ inputs.reshape(-1, weight.shape[1]), weight),
        like(rows.sum(axis=0), bias),
        like(grad @ weight.astype(np.float64), hidden),
    )


def _run(weight: object, bias: object, x: object) -> tuple[Array, Array, Array, Array]:
    """Return the arguments, checked, and the gates before their sigmoid (..., H, L)."""
    matrix = as_shaped("f_proj_weight", weight, "H", "E")
    if not matrix.size:
        raise ValueError(f"f_proj_weight: got shape {matrix.shape}; expected numbers")
    shift = as_shaped("f_proj_bias", bias, len(matrix))
    hidden = as_floating("hidden_states", x)
    width = matrix.shape[1]
    if hidden.ndim < 2 or hidden.shape[-1] != width:
        raise ValueError(
            f"hidden_states: got shape {hidden.shape}; expected (..., L, {width})"
        )
    parts = (y.astype(np.float64) for y in (hidden, matrix, shift))
    inputs, factors, offset = parts
    logits = np.swapaxes(inputs @ factors.T + offset, -1, -2)
    return matrix, shift, hidden, logits
