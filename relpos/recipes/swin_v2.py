"""Swin Transformer V2: a bias within windows that a network makes of log offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relpos._attention.labels import grid_labels
from relpos._checks import POSITION_LIMIT, Array, as_ints, check_memory, quiet
from relpos.recipes._tables import Keywords, as_grad, as_shaped, like
from relpos.recipes.results import SwinV2Gradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["swin_v2", "swin_v2_backward"]


class _Network(NamedTuple):
    """The parameters as given, and what one pass makes of them, in float64."""

    w1: Array
    b1: Array
    w2: Array
    sides: list[int]
    offsets: Array  # (R, 2), of query minus key, on a logarithmic scale
    hidden: Array  # (R, F)
    gates: Array  # (R, H), the sigmoids


@quiet
def swin_v2(
    w1: ArrayLike,
    b1: ArrayLike,
    w2: ArrayLike,
    window: int | Sequence[int],
    *,
    pretrained_window: int | Sequence[int] | None = None,
) -> Keywords:
    r"""Swin Transformer V2's continuous bias within a window, made by a network.

    .. math::

        s_{ij} = \lambda_h \cos(q_i, k_j) + 16 \, \sigma(w_2 \, relu(w_1 x_{ij} + b_1)),
        \quad x = sign(o) \log_8(1 + 8 |o|)

    with o the offset of query minus key in rows and columns, each divided by the side
    of the pretrained window less 1.

    Parameters
    ----------
    w1 : array_like, (F, 2)
        First layer, of rows and columns.
    b1 : array_like, (F,)
        Its bias.
    w2 : array_like, (H, F)
        Second layer.
    window : int or (int, int)
        Rows and columns of the window; an int for a square.
    pretrained_window : int or (int, int), optional
        Those of the window that the network was trained with; None, or 0 in a model's
        configuration, takes `window`.

    Returns
    -------
    dict
        `rel_bias` and `labels`, for windows as batch items (B, H, N, D), N the cells.

    Raises
    ------
    TypeError, ValueError
        If a parameter has another shape, or a side is 1 that the model would divide by
        0 (it does not divide at all where the window has one row).

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    swin_v2_backward : The gradients.
    swin : A table of biases instead of a network.

    Notes
    -----
    =====================================  =======  ====
    ``Swinv2SelfAttention``                shape    here
    =====================================  =======  ====
    continuous_position_bias_mlp.0.weight  (F, 2)   `w1`
    continuous_position_bias_mlp.0.bias    (F,)     `b1`
    continuous_position_bias_mlp.2.weight  (H, F)   `w2`
    =====================================  =======  ====

    The scores are cosines: give `attention` queries and keys of length 1, the queries
    times :math:`\lambda_h = \exp(\min(logit\_scale_h, \log 100))`, and ``scale=1.0``.
    In `transformers` the mask of shifted windows is added twice.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer V2: Scaling Up Capacity and Resolution", 2021,
       arXiv:2111.09883, section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> network = np.ones((8, 2)), np.ones(8), np.zeros((3, 8))
    >>> keywords = recipes.swin_v2(*network, (2, 3))
    >>> keywords["rel_bias"].shape, float(keywords["rel_bias"][0, 0])
    ((3, 15), 8.0)
    """
    network = _run(w1, b1, w2, window, pretrained_window)
    rows = len(network.offsets)
    labels = rows - 1 - grid_labels(network.sides)
    return {"rel_bias": like(16 * network.gates.T, network.w2), "labels": labels}


@quiet
def swin_v2_backward(
    grad_rel_bias: ArrayLike,
    w1: ArrayLike,
    b1: ArrayLike,
    w2: ArrayLike,
    window: int | Sequence[int],
    *,
    pretrained_window: int | Sequence[int] | None = None,
) -> SwinV2Gradients:
    r"""Gradients of the network of `swin_v2`.

    .. math::

        \bar w_2 = \bar z^T a, \quad \bar z = 16 \, \sigma(z) (1 - \sigma(z)) \, \bar b,
        \quad a = relu(w_1 x + b_1)

    Parameters
    ----------
    grad_rel_bias : array_like, (H, R)
        Gradient of rel_bias, R = (2 h - 1) (2 w - 1).
    w1, b1, w2 : array_like, (F, 2), (F,), (H, F)
        As given to `swin_v2`.
    window, pretrained_window : as in `swin_v2`
        The same.

    Returns
    -------
    SwinV2Gradients
        The named tuple (w1, b1, w2), of their shapes.

    Raises
    ------
    TypeError, ValueError
        As `swin_v2`, or if the gradient is of another shape.

    See Also
    --------
    swin_v2 : The forward.
    relpos.AttentionContext.backward : Where `grad_rel_bias` comes from, as `rel_bias`.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer V2: Scaling Up Capacity and Resolution", 2021,
       arXiv:2111.09883, section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> network = np.ones((8, 2)), np.ones(8), np.zeros((3, 8))
    >>> recipes.swin_v2_backward(np.ones((3, 15)), *network, (2, 3)).w2.shape
    (3, 8)
    """
    network = _run(w1, b1, w2, window, pretrained_window)
    grad = as_grad("grad_rel_bias", grad_rel_bias, network.gates.T.shape).T
    grad = 16 * network.gates * (1 - network.gates) * grad  # (R, H)
    at_hidden = grad @ network.w2.astype(np.float64) * (network.hidden > 0)
    return SwinV2Gradients(
        like(at_hidden.T @ network.offsets, network.w1),
        like(at_hidden.sum(axis=0), network.b1),
        like(grad.T @ network.hidden, network.w2),
    )


def _run(
    w1: object, b1: object, w2: object, window: object, trained: object
) -> _Network:
    first = as_shaped("w1", w1, "F", 2)
    bias = as_shaped("b1", b1, len(first))
    second = as_shaped("w2", w2, "H", len(first))
    sides = _sides("window", window, 1)
    pretrained = [0, 0] if trained is None else _sides("pretrained_window", trained, 0)
    offsets = _log_offsets(sides, pretrained, len(first))
    parts = (x.astype(np.float64) for x in (first, bias, second))
    inner, shift, outer = parts
    hidden = np.maximum(offsets @ inner.T + shift, 0)
    gates = 1 / (1 + np.exp(-(hidden @ outer.T)))
    return _Network(first, bias, second, sides, offsets, hidden, gates)


def _sides(name: str, value: object, low: int) -> list[int]:
    sides = as_ints(name, value, low, POSITION_LIMIT)
    if len(sides) == 1:
        sides = sides * 2
    if len(sides) != 2:
        raise ValueError(f"{name}: got {value}; expected an integer or (rows, columns)")
    return sides


def _log_offsets(sides: list[int], pretrained: list[int], units: int) -> Array:
    """Query minus key in rows and columns, as the network sees them: (R, 2)."""
    rows = (2 * sides[0] - 1) * (2 * sides[1] - 1)
    check_memory("window", (rows, max(units, 2)), np.dtype(np.float64))
    axes = [np.arange(1 - n, n, dtype=np.float64) for n in sides]
    offsets = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(rows, 2)
    name, widths = (
        ("pretrained_window", pretrained) if pretrained[0] else ("window", sides)
    )
    if widths is pretrained or sides[0] > 1:
        if min(widths) < 2:
            raise ValueError(
                f"{name}: got {tuple(widths)}; expected sides of at least 2, as the "
                "model divides by them less 1"
            )
        offsets /= np.subtract(widths, 1)
    return np.asarray(np.sign(offsets) * np.log2(1 + 8 * np.abs(offsets)) / 3)
