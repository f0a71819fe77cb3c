"""Zeros at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import Array, quiet
from relpos._undo import keep
from relpos.nn._inputs import as_input, as_probability
from relpos.nn.module import Module

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["Dropout"]


class Dropout(Module):
    r"""Zeros at random while training, as `torch.nn.Dropout`.

    .. math::

        y = \frac{x \, z}{1 - p} \;\text{ while training, each z 0 with probability p,
        else 1,} \quad y = x \;\text{ after } eval()

    `backward` returns the gradient of x: zero where x was dropped.

    .. math:: \bar x = \bar y \, z / (1 - p)

    Parameters
    ----------
    p : float, default 0.5
        Probability in [0, 1) that an entry becomes 0; the others grow by 1 / (1 - p).
    rng : int, numpy.random.Generator or None, optional
        Source of the zeros.
    dtype : {float32, float64}

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        `p` is outside [0, 1).

    See Also
    --------
    Module.train, Module.eval : Turn it on and off.
    relpos.attention : Drops weights by its `dropout_p`.

    References
    ----------
    .. [1] Hinton et al., "Improving Neural Networks by Preventing Co-adaptation of
       Feature Detectors", 2012, arXiv:1207.0580.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.Dropout(0.5, rng=0)
    >>> layer(np.ones(6, np.float32))
    array([2., 0., 0., 0., 2., 2.], dtype=float32)
    >>> layer.eval()(np.ones(6, np.float32))
    array([1., 1., 1., 1., 1., 1.], dtype=float32)
    """

    def __init__(
        self, p: float = 0.5, *, rng: Seed = None, dtype: DTypeLike = np.float32
    ) -> None:
        self.p = as_probability("p", p)
        self._set_up(rng, dtype, p=self.p)

    @quiet
    def __call__(self, x: ArrayLike) -> Array:
        """Put in zeros, while training.

        Parameters
        ----------
        x : array_like, any shape
            What loses entries.

        Returns
        -------
        ndarray, shape of `x`
            With zeros while training; after `Module.eval` equal to x.

        Raises
        ------
        TypeError
            `x` is not floating, or of a wider dtype than the layer.
        ValueError
            `x` is no rectangular array.

        See Also
        --------
        Module.train, Module.eval : Turn dropout on and off.
        """
        array = as_input("x", x, self.dtype, ("...",))
        factor = None
        if self.training and self.p:
            keep(self._rng)
            kept = self._rng.random(array.shape) >= self.p
            factor = kept * self.dtype.type(1 / (1 - self.p))
        return self._remember(array if factor is None else array * factor, factor)

    def _backward(self, grad: Array, factor: Any) -> Array:
        result: Array = grad if factor is None else grad * factor
        return result
