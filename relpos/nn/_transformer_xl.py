"""What a call of Transformer-XL's layer may look like, and what comes back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array
from relpos._text import in_short
from relpos.nn._inputs import as_mask, as_zero_one


@in_short
class TransformerXLGradients(NamedTuple):
    """Gradients of the inputs of a layer with biases of its own.

    Attributes
    ----------
    w : ndarray, (Lq, B, d_model)
    r : ndarray, shape of `r`
    mems : ndarray, (M, B, d_model), or None
        None where no memory was given. Transformer-XL stops the gradient at the
        memory: leave it unused for that.

    See Also
    --------
    RelPartialLearnableMultiHeadAttn.backward : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.RelPartialLearnableMultiHeadAttn(1, 4, 4, dropout=0.0, rng=0)
    >>> w, r = np.ones((3, 1, 4), np.float32), np.ones((5, 4), np.float32)
    >>> grads = layer.backward(np.ones_like(layer(w, r)))
    >>> grads.r.shape, grads.mems
    ((5, 4), None)
    """

    w: Array
    r: Array
    mems: Array | None


@in_short
class SharedBiasGradients(NamedTuple):
    """Gradients of the inputs of a layer whose biases are given at each call.

    Attributes
    ----------
    w : ndarray, (Lq, B, d_model)
    r : ndarray, shape of `r`
    r_w_bias, r_r_bias : ndarray, (n_head, d_head)
    mems : ndarray, (M, B, d_model), or None
        None where no memory was given. Transformer-XL stops the gradient at the
        memory: leave it unused for that.

    See Also
    --------
    RelPartialLearnableMultiHeadAttn.backward : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.RelPartialLearnableMultiHeadAttn(
    ...     1, 4, 4, dropout=0.0, r_r_bias=True, r_w_bias=True, rng=0
    ... )
    >>> w, r = np.ones((3, 1, 4), np.float32), np.ones((5, 4), np.float32)
    >>> u = v = np.zeros((1, 4), np.float32)
    >>> layer.backward(np.ones_like(layer(w, r, u, v))).r_w_bias.shape
    (1, 4)
    """

    w: Array
    r: Array
    r_w_bias: Array
    r_r_bias: Array
    mems: Array | None


def own_form(attn_mask: Any = None, mems: Any = None) -> tuple[Any, Any]:
    """Take what follows w and r where the layer owns the biases."""
    return attn_mask, mems


def shared_form(
    r_w_bias: Any, r_r_bias: Any, attn_mask: Any = None, mems: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Take what follows w and r where the model owns the biases."""
    return r_w_bias, r_r_bias, attn_mask, mems


def read_mask(
    mask: Any, length: int, total: int, batch: int
) -> tuple[Array | None, bool]:
    """Return what may attend, (B or 1, 1, Lq or 1, Lk), and whether that is causal."""
    if mask is None:
        return None, length <= 1  # then no key is in the future
    given = as_mask("attn_mask", mask)
    shapes = {(total, batch), (length, total, batch), (length, total, 1)}
    if given.shape not in shapes:
        hint = ""
        if given.shape == (length, total):
            hint = " (a mask of pairs needs a last axis: attn_mask[:, :, None])"
        raise ValueError(
            f"attn_mask: got shape {given.shape}; expected (Lk, B) = {(total, batch)} "
            f"or (Lq, Lk, B or 1) = {(length, total, batch)}{hint}"
        )
    hidden = as_zero_one("attn_mask", given)
    if hidden.ndim == 2:
        hidden = hidden[None]
    past = np.tri(length, total, total - length, dtype=bool)
    allowed = ~hidden.transpose(2, 0, 1)[:, None]
    causal = not (allowed & ~past).any()
    if causal and (allowed | ~past).all():
        return None, True  # nothing is hidden beyond what causal says
    return allowed, causal
