"""What a position layer is to attention: keywords that it gives, gradients it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relpos._attention.attention import attention
from relpos._checks import Array, quiet
from relpos.nn._inputs import as_size
from relpos.nn.module import Module
from relpos.nn.parameter import Parameter

__all__ = ["Position"]


class Position(Module):
    """Base of the layers that tell `MultiheadAttention` where tokens stand.

    Such a layer gives an attention function its keywords and takes back their
    gradients. Its parameters have the names of the keywords, so that a scheme whose
    tables are the parameters themselves is a constructor and no more. One that computes
    its tables writes `arguments` and `add_gradients`, and one that turns queries and
    keys writes `rotate`. Nothing is kept between them, so one layer may serve several
    attentions, as T5's bias does, and is trained by all.

    See Also
    --------
    MultiheadAttention : Takes one as `position`.
    ALiBi, T5Bias, LearnedBias, FIRE, Rotary, DynamicPositionBias : Those there are.
    relpos.attention : Has the keywords.

    Examples
    --------
    A scheme of your own: a vector for each distance, added to the values alone.

    >>> import numpy as np
    >>> from relpos import nn
    >>> class ValueTable(nn.Position):
    ...     def __init__(self, reach, head_dim):
    ...         rows = np.zeros((2 * reach + 1, head_dim), np.float32)
    ...         self.rel_value = nn.Parameter(rows)
    >>> layer = nn.MultiheadAttention(16, 2, position=ValueTable(4, 8), rng=0)
    >>> x = np.ones((1, 6, 16), np.float32)
    >>> layer.backward(np.ones_like(layer(x))).shape
    (1, 6, 16)
    >>> layer.position.rel_value.grad.shape
    (9, 8)
    """

    #: The function of relpos that takes the keywords.
    _function: Callable[..., Any] = staticmethod(attention)

    def arguments(
        self, query_length: int, key_length: int, query_offset: Any = 0
    ) -> dict[str, Any]:
        """Return keywords of attention: here every parameter under its name.

        Parameters
        ----------
        query_length, key_length : int
            Lq and Lk of the call.
        query_offset : int or ndarray of int, default 0
            Position of query 0 minus that of key 0, of all items or of each.

        Returns
        -------
        dict
            Keywords of `relpos.attention`; they win over those of the caller.

        Raises
        ------
        TypeError, ValueError
            A length is no integer or below 1, where the layer computes by it.

        See Also
        --------
        Position.add_gradients : The way back.
        """
        return {name: parameter.data for name, parameter in self._own()}

    def add_gradients(
        self,
        gradients: Any,
        query_length: int,
        key_length: int,
        query_offset: Any = 0,
    ) -> None:
        """Add the gradients of the keywords to the parameters they came from.

        Parameters
        ----------
        gradients : AttentionGradients
            What `relpos.AttentionContext.backward` returned.
        query_length, key_length, query_offset : as in `arguments`
            What the call had.

        Raises
        ------
        TypeError, ValueError
            `gradients` lack what the parameters need, or a length is wrong.

        See Also
        --------
        relpos.AttentionContext.backward : Where they come from.
        """
        for name, parameter in self._own():
            parameter.add_grad(getattr(gradients, name))

    def rotate(self, x: Array, offset: Any = 0, inverse: bool = False) -> Array:
        """Return queries or keys as attention is to see them: here as they are.

        Parameters
        ----------
        x : ndarray, (..., H, L, D)
            Rows at positions offset, offset + 1, ...
        offset : int or ndarray of int, default 0
            Position of row 0, of all items or of each.
        inverse : bool, default False
            Turn back: what the gradient needs.

        Returns
        -------
        ndarray, shape of `x`
            The rows turned.

        Raises
        ------
        TypeError, ValueError
            An argument does not fit, where the layer turns.

        See Also
        --------
        relpos.apply_rotary : What turns them in `Rotary`.
        """
        return x

    def _own(self) -> list[tuple[str, Parameter]]:
        return [(n, p) for n, p in vars(self).items() if isinstance(p, Parameter)]


def placed(query_length: int, key_length: int, query_offset: Any) -> tuple[int, int]:
    """Return how far the farthest key of the past is, and that of the future."""
    least, most = int(np.min(query_offset)), int(np.max(query_offset))
    return query_length - 1 + most, key_length - 1 - least


class DistanceBias(Position):
    """Base of the layers that make a `rel_bias` (H, 2 length - 1) of a length.

    They are called again before the gradient, as another attention may have called
    them since: that costs what a bias costs, O(H length).
    """

    @quiet
    def __call__(self, length: int) -> Array:
        """Compute the biases of the relative positions -(length-1) to length-1.

        Parameters
        ----------
        length : int
            Serves every call of `relpos.attention` whose lengths are not larger.

        Returns
        -------
        ndarray, (num_heads, 2 length - 1)
            For its `rel_bias`. `backward` takes the gradient of this array, for
            instance ``context.backward(grad).rel_bias``.

        Raises
        ------
        TypeError
            `length` is no integer.
        ValueError
            `length` is below 1.
        MemoryError
            Out of memory.

        See Also
        --------
        relpos.attention : Takes the result as `rel_bias`.
        """
        return self._remember(*self._bias(as_size("length", length)))

    def _bias(self, length: int) -> tuple[Any, ...]:
        """Return the bias, and what `_backward` needs beside its gradient."""
        raise NotImplementedError

    def arguments(
        self, query_length: int, key_length: int, query_offset: Any = 0
    ) -> dict[str, Any]:
        """Return the bias of every distance of the call."""
        reach = max(placed(query_length, key_length, query_offset))
        return {"rel_bias": self(max(reach, 0) + 1)}

    def add_gradients(
        self,
        gradients: Any,
        query_length: int,
        key_length: int,
        query_offset: Any = 0,
    ) -> None:
        """Add the gradients of what the bias is made of."""
        self.arguments(query_length, key_length, query_offset)
        self.backward(gradients.rel_bias)
