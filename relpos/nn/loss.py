"""The loss of language models and classifiers, with its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relpos._checks import (
    Array,
    as_floating,
    as_integers,
    as_real,
    at_least_ndim,
    check_bytes,
    quiet,
)
from relpos._text import in_short

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Loss", "cross_entropy"]


@in_short
class Loss(NamedTuple):
    """A loss and its gradient with respect to the logits.

    Attributes
    ----------
    loss : float
        In nats, the mean over the items.
    grad : ndarray, (..., C)
        Of the shape and dtype of the logits.

    See Also
    --------
    cross_entropy : Returns it, and has the formula.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> nn.cross_entropy(np.zeros((1, 2)), [0]).grad
    array([[-0.5,  0.5]])
    """

    loss: float
    grad: Array


@quiet
def cross_entropy(
    logits: ArrayLike, targets: ArrayLike, *, label_smoothing: float = 0.0
) -> Loss:
    r"""Mean cross entropy of logits and target classes, and its gradient.

    .. math::

        loss = -\frac{1}{n} \sum_i \sum_c t_{ic} \log softmax(x_i)_c, \quad
        t_{ic} = (1 - s) [c = target_i] + s / C, \quad
        \frac{\partial loss}{\partial x_{ic}} = \frac{softmax(x_i)_c - t_{ic}}{n}

    Parameters
    ----------
    logits : array_like of float, (..., C)
        One row x of C classes per item.
    targets : array_like of int, (...)
        The class of each item, 0 to C - 1.
    label_smoothing : float, default 0
        The s above, in [0, 1]; Shaw et al. train with 0.1.

    Returns
    -------
    Loss
        ``(loss, grad)``; grad has the shape of `logits` and is what the model's
        ``backward`` takes. The loss is in nats (natural logarithms).

    Raises
    ------
    TypeError
        `logits` are not floating, `targets` are not integers, or `label_smoothing` is
        no number.
    ValueError
        Shapes do not match, there is no item, `label_smoothing` is outside [0, 1], or
        the logits have more bytes than memory can address.
    IndexError
        A target is outside the classes.
    MemoryError
        Out of memory, before any of the work.

    See Also
    --------
    Linear : Makes logits.
    Module : A model, whose ``backward`` takes the gradient.

    Notes
    -----
    A logit of -inf says that its class is impossible: its gradient is that of a
    probability of 0, and the loss is infinite where the class has a share of the target
    (t > 0), untouched by it where it has none. A row without a softmax (every logit
    -inf, or one of them inf or nan) makes the loss and the row's gradient nan.

    References
    ----------
    .. [1] Szegedy et al., "Rethinking the Inception Architecture for Computer Vision",
       2016, arXiv:1512.00567, section 7 (label smoothing).

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> loss, grad = nn.cross_entropy(np.zeros((1, 4)), [2])
    >>> round(loss, 4)  # log 4
    1.3863
    >>> grad
    array([[ 0.25,  0.25, -0.75,  0.25]])
    """
    x = as_floating("logits", logits)
    at_least_ndim("logits", x, 1, "(..., C)")
    index = as_integers("targets", targets)
    smoothing = as_real("label_smoothing", label_smoothing)
    if not 0.0 <= smoothing <= 1.0:
        raise ValueError(f"label_smoothing: got {smoothing}; expected 0 to 1")
    classes = x.shape[-1]
    if index.shape != x.shape[:-1] or not x.size:
        raise ValueError(
            f"targets: got shape {index.shape} for logits of shape {x.shape}; expected "
            f"{x.shape[:-1]}, of at least one item and class"
        )
    outside = (index < 0) | (index >= classes)
    if outside.any():
        raise IndexError(
            f"targets: class {index[outside][0]} is outside the logits' {classes}; "
            f"expected 0 to {classes - 1}"
        )
    dtype = np.result_type(x.dtype, np.float32)
    check_bytes("logits", x.shape, dtype)
    grad = np.empty((index.size, classes), dtype)  # what is too large fails before work
    rows, target = x.reshape(grad.shape), (np.arange(index.size), index.ravel())
    np.subtract(rows, rows.max(-1, keepdims=True), out=grad, dtype=dtype)
    # a class without a share counts nothing, not even where its log is -inf
    shares = [(grad[target], 1 - smoothing)] if smoothing < 1 else []
    if smoothing:
        shares.append((grad.mean(-1, dtype=np.float64), smoothing))
    total = np.exp(grad, out=grad).sum(-1)
    loss = float(np.log(total).sum(dtype=np.float64))
    for logits_of, share in shares:
        loss -= share * float(logits_of.sum(dtype=np.float64))
    grad /= total[:, None]
    if smoothing:
        grad -= smoothing / classes
    grad[target] -= 1 - smoothing
    grad /= len(grad)
    return Loss(loss / len(grad), grad.reshape(x.shape).astype(x.dtype, copy=False))
