"""What bends the network between attentions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import Array, quiet
from relpos.nn._inputs import as_input
from relpos.nn.module import Module

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["GELU", "ReLU"]


class ReLU(Module):
    r"""What is positive, as `torch.nn.ReLU`.

    .. math:: y = \max(x, 0)

    `backward` returns the gradient of x, which is 0 where x is at most 0.

    .. math:: \bar x = \bar y \, [x > 0]

    Parameters
    ----------
    rng : optional
        Not used; every layer takes it.
    dtype : {float32, float64}

    Raises
    ------
    TypeError
        `dtype` is another one, or `rng` of the wrong kind.
    ValueError
        `rng` is a negative seed.

    See Also
    --------
    GELU : The same without an edge.
    FeedForward : Has one inside.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, section
       3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> nn.ReLU()(np.array([-1.0, 2.0], np.float32))
    array([0., 2.], dtype=float32)
    """

    def __init__(self, *, rng: Seed = None, dtype: DTypeLike = np.float32) -> None:
        self._set_up(rng, dtype)

    @quiet
    def __call__(self, x: ArrayLike) -> Array:
        """Put 0 where x is negative.

        Parameters
        ----------
        x : array_like, any shape
            What is bent.

        Returns
        -------
        ndarray, shape of `x`
            What is positive.

        Raises
        ------
        TypeError
            `x` is not floating, or of a wider dtype than the layer.
        ValueError
            `x` is no rectangular array.

        See Also
        --------
        ReLU.backward : The gradient.
        """
        array = as_input("x", x, self.dtype, ("...",))
        out = np.maximum(array, 0, out=np.empty_like(array))
        return self._remember(out, out)

    def _backward(self, grad: Array, out: Any) -> Array:
        result: Array = np.multiply(grad, out > 0, out=np.empty_like(grad))
        return result


class GELU(Module):
    r"""A smooth step times x, as ``torch.nn.GELU(approximate="tanh")``.

    .. math::

        y = \frac{x}{2} (1 + t), \quad
        t = \tanh\!\left(\sqrt{2 / \pi} \, (x + 0.044715 \, x^3)\right)

    `backward` returns the gradient of x.

    .. math::

        \bar x = \frac{\bar y}{2} \left(1 + t + x (1 - t^2) \sqrt{2 / \pi}
        \, (1 + 0.134145 \, x^2)\right)

    Parameters
    ----------
    rng : optional
        Not used; every layer takes it.
    dtype : {float32, float64}

    Raises
    ------
    TypeError
        `dtype` is another one, or `rng` of the wrong kind.
    ValueError
        `rng` is a negative seed.

    See Also
    --------
    ReLU : With an edge at 0.
    FeedForward : Has one inside.

    Notes
    -----
    The form of GPT-2 and T5 1.1. The paper's other one has the error function, from
    which this differs by at most 5e-4.

    References
    ----------
    .. [1] Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016,
       arXiv:1606.08415.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> nn.GELU(dtype=np.float64)(np.array([-1.0, 0.0, 1.0])).round(3)
    array([-0.159,  0.   ,  0.841])
    """

    def __init__(self, *, rng: Seed = None, dtype: DTypeLike = np.float32) -> None:
        self._set_up(rng, dtype)

    @quiet
    def __call__(self, x: ArrayLike) -> Array:
        """Bend x.

        Parameters
        ----------
        x : array_like, any shape
            What is bent.

        Returns
        -------
        ndarray, shape of `x`
            Its value by the formula.

        Raises
        ------
        TypeError
            `x` is not floating, or of a wider dtype than the layer.
        ValueError
            `x` is no rectangular array.

        See Also
        --------
        GELU.backward : The gradient.
        """
        array = as_input("x", x, self.dtype, ("...",))
        inner = np.multiply(array, array, out=np.empty_like(array))
        inner *= 0.044715
        inner += 1
        inner *= array
        inner *= math.sqrt(2 / math.pi)
        step = np.tanh(inner, out=inner)
        out = np.add(step, 1, out=np.empty_like(step))
        out *= array
        out *= 0.5
        return self._remember(out, array, step)

    def _backward(self, grad: Array, x: Any, step: Any) -> Array:
        slope = np.multiply(x, x, out=np.empty_like(x))
        slope *= 3 * 0.044715
        slope += 1
        slope *= x
        slope *= math.sqrt(2 / math.pi)
        slope *= 1 - step * step
        slope += step
        slope += 1
        slope *= 0.5
        if not np.isfinite(slope).all():
            slope[grad == 0] = 0  # of a hidden token: 0 * nan would be nan
        slope *= grad
        result: Array = slope
        return result
