"""Base of the layers that tell attention the positions of tokens, and of biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relpos._attention.attention import attention
from relpos._checks import POSITION_LIMIT, Array, quiet
from relpos.nn._inputs import as_size, check_offset
from relpos.nn.module import Module, Parameter

__all__ = ["Position"]


class Position(Module):
    """Base of the layers that tell `MultiheadAttention` the positions of tokens.

    Such a layer gives an attention function its keywords and takes back their
    gradients. Its parameters have the names of the keywords, so that a scheme whose
    tables are the parameters themselves is a constructor and no more. One that computes
    its tables writes `arguments` and `add_gradients`, and one that rotates queries and
    keys writes `rotate`. Nothing is kept between them, so one layer may serve several
    attentions, as T5's bias does, and is trained by all. If `arguments` calls layers,
    `add_gradients` calls them again before their `backward`.

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
    #: No token may be as far as this from another one, or from position 0.
    _limit: int = POSITION_LIMIT

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
        """
        return {name: parameter.data for name, parameter in self._tables()}

    def add_gradients(
        self, gradients: Any, query_length: int, key_length: int, query_offset: Any = 0
    ) -> None:
        """Add the gradients of the keywords to the parameters they came from.

        Parameters
        ----------
        gradients : AttentionGradients
            Result of `relpos.AttentionContext.backward`.
        query_length, key_length, query_offset : as in `arguments`
            The numbers of the call.
        """
        for name, parameter in self._tables():
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
            Rotate back: what the gradient needs.

        Returns
        -------
        ndarray, shape of `x`
            The rows rotated.
        """
        return x

    def _in_own_words(self, error: IndexError) -> IndexError:
        """Return an error of attention in words of the layer's arguments."""
        return error

    def _tables(self) -> list[tuple[str, Parameter]]:
        """Return the parameters of the layer itself, not of layers in it."""
        attributes = vars(self).items()
        return [(name, x) for name, x in attributes if isinstance(x, Parameter)]


def placed(query_length: int, key_length: int, query_offset: Any) -> tuple[int, int]:
    """Return how far the farthest key of the past is, and that of the future."""
    if not np.size(query_offset):  # an offset for each item of an empty batch
        query_offset = 0
    least, most = int(np.min(query_offset)), int(np.max(query_offset))
    return query_length - 1 + most, key_length - 1 - least


class DistanceBias(Position):
    """Base of the layers that make a `rel_bias` (H, 2 length - 1) of a length.

    They are called again before the gradient, as another attention may have called
    them since: that costs what a bias costs, O(H length).
    """

    _limit = 2**31

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
        """
        return self._remember(*self._bias(as_size("length", length)))

    def _bias(self, length: int) -> tuple[Any, ...]:
        """Return the bias, and what `_backward` needs with its gradient."""
        raise NotImplementedError

    def arguments(
        self, query_length: int, key_length: int, query_offset: Any = 0
    ) -> dict[str, Any]:
        check_offset(query_offset, query_length, key_length, self._limit)
        farthest, last = placed(query_length, key_length, query_offset)
        return {"rel_bias": self(max(farthest, last, 0) + 1)}

    def add_gradients(
        self, gradients: Any, query_length: int, key_length: int, query_offset: Any = 0
    ) -> None:
        # `backward` is of the last call, so call it with this length again.
        self.arguments(query_length, key_length, query_offset)
        self.backward(gradients.rel_bias)
