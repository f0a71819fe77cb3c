"""FIRE's bias as a layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._attention.fire import fire_attention, fire_bias, fire_bias_backward
from relpos._checks import Array, quiet
from relpos.nn._inputs import as_size
from relpos.nn.parameter import Parameter
from relpos.nn.position import Position

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from relpos.nn.module import Seed

__all__ = ["FIRE"]


class FIRE(Position):
    r"""A bias by a small network of the distance over the query's own position.

    .. math::

        x_{ij} = \frac{\psi(|r|)}{\psi(\max(p, |threshold|))}, \quad
        \psi(d) = \log(|c \, d| + 1), \quad
        b_{hij} = \sum_k w2_{hk} \max(w1_k x_{ij} + b1_k, 0) + b2_h

    with p the position of query i and r that of key j relative to it.

    `backward` adds the parameters' gradients.

    .. math:: \bar b2_h = \sum_{ij} \bar b_{hij}

    is the simplest of them; `relpos.fire_bias_backward` has the others.

    Parameters
    ----------
    num_heads : int
        H.
    width : int, default 32
        Units of the network.
    max_distance : int, default 512
        Where the threshold starts; queries before it are normalised as if they stood
        there.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values, those of two layers `Linear`; c starts at 0.1.
    dtype : {float32, float64}

    Attributes
    ----------
    w1, b1 : Parameter, (width,)
    w2 : Parameter, (num_heads, width)
    b2 : Parameter, (num_heads,)
    c, threshold : Parameter, ()

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A size is below 1.

    See Also
    --------
    MultiheadAttention : Takes it as `position`, and stores no bias.
    relpos.fire_bias : The same as a function.
    DynamicPositionBias : A network of the distance alone.

    References
    ----------
    .. [1] Li et al., "Functional Interpolation for Relative Positions Improves Long
       Context Transformers", 2023, arXiv:2310.04418.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.FIRE(2, width=4, rng=0)
    >>> bias = layer(3)
    >>> bias.shape
    (2, 3, 3)
    >>> layer.backward(np.ones_like(bias))
    >>> layer.b2.grad
    array([9., 9.], dtype=float32)
    """

    _function = staticmethod(fire_attention)

    def __init__(
        self,
        num_heads: int,
        width: int = 32,
        max_distance: int = 512,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        heads, units = as_size("num_heads", num_heads), as_size("width", width)
        start = as_size("max_distance", max_distance)
        self._set_up(rng, dtype, num_heads=heads, width=units, max_distance=start)
        bound = 1 / math.sqrt(units)
        for name, shape, limit in (
            ("w1", (units,), 1.0),
            ("b1", (units,), 1.0),
            ("w2", (heads, units), bound),
            ("b2", (heads,), bound),
        ):
            drawn = self._rng.uniform(-limit, limit, shape)
            setattr(self, name, Parameter(drawn.astype(self.dtype)))
        self.c = Parameter(np.array(0.1, self.dtype))
        self.threshold = Parameter(np.array(start, self.dtype))

    @quiet
    def __call__(
        self, query_length: int, key_length: int | None = None, query_offset: int = 0
    ) -> Array:
        """Compute the bias of every pair, a floating mask of `relpos.attention`.

        Parameters
        ----------
        query_length, key_length : int
            Lq and Lk; Lk is Lq by default.
        query_offset : int, default 0
            Position of query 0.

        Returns
        -------
        ndarray, (num_heads, Lq, Lk)
            For its `attn_mask`.

        Raises
        ------
        TypeError
            A length is no integer.
        ValueError
            A length is out of its range, or the bias has more bytes than memory can
            address.
        MemoryError
            Out of memory.

        See Also
        --------
        relpos.fire_bias : The same as a function.
        """
        rows = as_size("query_length", query_length, 0)
        columns = rows if key_length is None else as_size("key_length", key_length, 0)
        bias = fire_bias(
            **self.arguments(0, 0),
            query_length=rows,
            key_length=columns,
            query_offset=query_offset,
        )
        return self._remember(bias, query_offset)

    def _backward(self, grad: Array, offset: Any) -> None:
        network = self.arguments(0, 0)
        found = fire_bias_backward(grad, **network, query_offset=offset)
        self.add_gradients(found, 0, 0)
