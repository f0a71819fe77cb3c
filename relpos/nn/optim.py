"""Training: the loss of language models, optimisers, and their learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from relpos._checks import (
    Array,
    ArrayLike,
    as_floating,
    as_int,
    as_integers,
    as_real,
    at_least_ndim,
    check_bytes,
    kind_of,
    quiet,
)
from relpos._text import in_short
from relpos._twins import twin
from relpos._undo import put, whole
from relpos.nn._inputs import as_not_negative
from relpos.nn.module import Parameter

__all__ = ["SGD", "Adam", "Loss", "cross_entropy", "warmup_rate"]

_LARGEST = 2**63 - 1


@in_short
class Loss(NamedTuple):
    """Loss, and its gradient with respect to the logits.

    Attributes
    ----------
    loss : float
        In nats, the mean over the items.
    grad : ndarray, (..., C)
        The gradient, of the shape and dtype of the logits.
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

    Notes
    -----
    A logit of -inf says that its class is impossible: its gradient is that of a
    probability of 0, and the loss is infinite where the class has a share of the target
    (t > 0). A row without a softmax (every logit -inf, or one of them inf or nan) makes
    the loss and the row's gradient nan.

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
    _check_targets(index, x)
    classes = x.shape[-1]
    dtype = np.result_type(x.dtype, np.float32)
    check_bytes("logits", x.shape, dtype)
    grad = np.empty((index.size, classes), dtype)  # what is too large fails before work
    rows, target = x.reshape(grad.shape), (np.arange(index.size), index.ravel())
    # `grad` holds the logits below their maximum, then their exponentials, then the
    # gradient: the logits may be the largest array of a model.
    np.subtract(rows, rows.max(-1, keepdims=True), out=grad, dtype=dtype)
    # The logits that the loss counts, each with its share of the target. Without a
    # share they are left out, since 0 * -inf is nan.
    shares = []
    if smoothing < 1:
        shares.append((grad[target], 1 - smoothing))
    if smoothing:
        shares.append((grad.mean(-1, dtype=np.float64), smoothing))
    total = np.exp(grad, out=grad).sum(-1)
    loss = float(np.log(total).sum(dtype=np.float64))
    for counted, share in shares:
        loss -= share * float(counted.sum(dtype=np.float64))
    grad /= total[:, None]
    if smoothing:
        grad -= smoothing / classes
    grad[target] -= 1 - smoothing
    grad /= len(grad)
    return Loss(loss / len(grad), grad.reshape(x.shape).astype(x.dtype, copy=False))


def _check_targets(index: Array, logits: Array) -> None:
    """Raise unless there is a class for each row of logits."""
    classes = logits.shape[-1]
    if index.shape != logits.shape[:-1] or not logits.size:
        raise ValueError(
            f"targets: got shape {index.shape} for logits of shape {logits.shape}; "
            f"expected {logits.shape[:-1]}, of at least one item and class"
        )
    outside = (index < 0) | (index >= classes)
    if outside.any():
        raise IndexError(
            f"targets: class {index[outside][0]} is outside the logits' {classes}; "
            f"expected 0 to {classes - 1}"
        )


class _Optimizer:
    """Base of the optimisers: the parameters, once each, and the learning rate."""

    def __init__(self, parameters: Iterable[Parameter], lr: float) -> None:
        expected = "expected Parameters, as from model.parameters()"
        if isinstance(parameters, np.ndarray) or not isinstance(parameters, Iterable):
            raise TypeError(f"parameters: got {kind_of(parameters)}; {expected}")
        self.parameters = list(parameters)
        for item in self.parameters:
            if not isinstance(item, Parameter):
                raise TypeError(f"parameters: got an item {kind_of(item)}; {expected}")
        if len({*self.parameters}) < len(self.parameters):  # they compare by identity
            raise ValueError(
                "parameters: got a Parameter more than once, which would take each "
                "step as often; expected each once (parameters() of a model names a "
                "tied one once)"
            )
        self.lr = as_not_negative("lr", lr)

    @whole
    def zero_grad(self) -> None:
        """Forget the gradients of the parameters."""
        for parameter in self.parameters:
            put(parameter, "grad", None)

    @quiet
    def step(self) -> None:
        """Move every parameter that has a gradient.

        After an interrupt or a MemoryError some may have moved, and others not.

        Raises
        ------
        TypeError
            A gradient or `lr` is of the wrong kind; nothing has moved.
        ValueError
            A gradient has another shape than its parameter, a parameter is read-only,
            or `lr` is negative; nothing has moved.
        """
        # All are checked before the first moves. They are attributes, to which a user
        # may have assigned anything.
        self.lr = as_not_negative("lr", self.lr)
        moves = []
        for index, parameter in enumerate(self.parameters):
            data, grad = parameter.data, parameter.grad
            if grad is None:
                continue
            grad, moment = as_floating("grad", grad), self._moment(index)
            if moment is not None and data.shape != moment.shape:
                raise ValueError(
                    f"data: got shape {data.shape} for parameter {index}; expected "
                    f"{moment.shape}, as at the steps before"
                )
            if grad.shape != data.shape:
                raise ValueError(
                    f"grad: got shape {grad.shape} for parameter {index}; expected "
                    f"its own, {data.shape}"
                )
            if not data.flags.writeable:
                raise ValueError(
                    f"data: parameter {index} is read-only; expected an array that may "
                    "be changed (pass a copy to Parameter)"
                )
            moves.append((index, parameter, grad))
        for index, parameter, grad in moves:
            self._move(index, parameter, grad)

    def _moment(self, index: int) -> Array | None:
        """Return what is kept of a parameter's gradients."""
        raise NotImplementedError

    def _move(self, index: int, parameter: Parameter, grad: Array) -> None:
        raise NotImplementedError


class SGD(_Optimizer):
    r"""Stochastic gradient descent, with momentum, as `torch.optim.SGD`.

    .. math:: m \leftarrow momentum \; m + g, \quad p \leftarrow p - lr \; m

    Parameters
    ----------
    parameters : iterable of Parameter
        As ``model.parameters()`` gives them.
    lr : float
        Learning rate; an attribute that may be changed between steps.
    momentum : float, default 0
        How much of the last step is made again, at least 0.

    Raises
    ------
    ValueError
        A Parameter is given more than once.

    References
    ----------
    .. [1] Sutskever, Martens, Dahl, Hinton, "On the Importance of Initialization and
       Momentum in Deep Learning", 2013, ICML, section 2 (momentum).

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> weight = nn.Parameter(np.array([4.0]))
    >>> optimizer = nn.SGD([weight], lr=0.25)
    >>> for _ in range(3):  # down the slope of weight ** 2
    ...     optimizer.zero_grad()
    ...     weight.add_grad(2 * weight.data)
    ...     optimizer.step()
    >>> weight.data
    array([0.5])
    """

    def __init__(
        self, parameters: Iterable[Parameter], lr: float, momentum: float = 0.0
    ) -> None:
        super().__init__(parameters, lr)
        self.momentum = as_not_negative("momentum", momentum)
        self._moments: list[Array | None] = [None] * len(self.parameters)

    def __repr__(self) -> str:
        return f"SGD(lr={self.lr}, momentum={self.momentum})"

    def _moment(self, index: int) -> Array | None:
        return self._moments[index]

    def _move(self, index: int, parameter: Parameter, grad: Array) -> None:
        if self.momentum:
            before = self._moments[index]  # None at the first step, which copies
            grad = grad.copy() if before is None else self.momentum * before + grad
            self._moments[index] = grad
        parameter.data -= self.lr * grad


def _as_betas(betas: object) -> tuple[float, float]:
    if isinstance(betas, tuple | list) and len(betas) == 2:
        first, second = as_real("betas", betas[0]), as_real("betas", betas[1])
        if 0.0 <= first < 1.0 and 0.0 <= second < 1.0:
            return first, second
    raise ValueError(f"betas: got {betas!r}; expected two numbers in [0, 1)")


@twin(SGD, titles=("Raises",))
class Adam(_Optimizer):
    r"""Adam, as `torch.optim.Adam`.

    .. math::

        m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad
        v \leftarrow \beta_2 v + (1 - \beta_2) g^2

        p \leftarrow p - lr \; m' / (\sqrt{v'} + eps), \quad
        m' = m / (1 - \beta_1^t), \quad v' = v / (1 - \beta_2^t)

    Parameters
    ----------
    parameters : iterable of Parameter
        As ``model.parameters()`` gives them.
    lr : float, default 1e-3
        Learning rate; an attribute that may be changed between steps.
    betas : (float, float), default (0.9, 0.999)
        Each in [0, 1). Shaw et al. use (0.9, 0.98).
    eps : float, default 1e-8
        Shaw et al. use 1e-9.

    References
    ----------
    .. [1] Kingma, Ba, "Adam: A Method for Stochastic Optimization", 2014,
       arXiv:1412.6980.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> weight = nn.Parameter(np.array([4.0, -0.001]))
    >>> optimizer = nn.Adam([weight], lr=0.5, betas=(0.9, 0.98), eps=1e-9)
    >>> weight.add_grad(np.array([100.0, 1e-3]))
    >>> optimizer.step()
    >>> weight.data.round(3)  # the first step is lr, whatever the size of the gradient
    array([ 3.5  , -0.501])
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(parameters, lr)
        self.betas = _as_betas(betas)
        self.eps = as_not_negative("eps", eps)
        self._state = [
            (np.zeros_like(parameter.data), np.zeros_like(parameter.data))
            for parameter in self.parameters
        ]
        self._steps = [0] * len(self.parameters)

    def __repr__(self) -> str:
        return f"Adam(lr={self.lr}, betas={self.betas}, eps={self.eps})"

    def _moment(self, index: int) -> Array | None:
        return self._state[index][0]

    def _move(self, index: int, parameter: Parameter, grad: Array) -> None:
        first, second = self.betas
        self._steps[index] += 1
        # All in place, in the one array `change`: a model's state may fill the memory.
        mean, square = self._state[index]
        change = np.subtract(grad, mean, out=np.empty_like(mean))
        change *= 1 - first
        mean += change
        square *= second
        np.multiply(grad, 1 - second, out=change)  # grad * grad might overflow
        change *= grad
        square += change
        # Both means started at 0, and are divided by the weight of what came since.
        mean_weight = 1 - first ** self._steps[index]
        square_weight = 1 - second ** self._steps[index]
        np.sqrt(square, out=change)
        change /= math.sqrt(square_weight)
        change += self.eps
        np.divide(mean, change, out=change)
        change *= self.lr / mean_weight
        parameter.data -= change


def warmup_rate(step: int, d_model: int, warmup_steps: int = 4000) -> float:
    r"""Learning rate that rises for `warmup_steps`, then falls as 1 / sqrt(step).

    .. math:: d_{model}^{-1/2} \min(step^{-1/2}, step \cdot warmup\_steps^{-3/2})

    Parameters
    ----------
    step : int
        1 for the first step.
    d_model : int
        Width of the model.
    warmup_steps : int, default 4000
        Steps until the largest rate; Shaw et al. and Vaswani et al. use 4000.

    Returns
    -------
    float
        The learning rate of this step.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, section 4.1.
    .. [2] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762,
       equation 3.

    Examples
    --------
    >>> from relpos import nn
    >>> [round(nn.warmup_rate(step, 512), 6) for step in (1, 2000, 4000, 16000)]
    [0.0, 0.000349, 0.000699, 0.000349]

    In a training loop: ``optimizer.lr = nn.warmup_rate(step, d_model)``.
    """
    step = as_int("step", step, 1, _LARGEST)
    d_model = as_int("d_model", d_model, 1, _LARGEST)
    warmup_steps = as_int("warmup_steps", warmup_steps, 1, _LARGEST)
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
