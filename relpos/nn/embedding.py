"""Vectors for numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import check_bytes, quiet
from relpos._encodings.learned import gather, int64_positions, learned_backward
from relpos.nn._inputs import DRAWN, as_size
from relpos.nn.module import Module
from relpos.nn.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos._checks import Array
    from relpos.nn.module import Seed

__all__ = ["Embedding"]


class Embedding(Module):
    r"""A vector for each number, as `torch.nn.Embedding`.

    .. math:: y_{..., :} = W_{indices_{...}, :}

    `backward` adds the gradient of the weight; numbers have none.

    .. math:: \bar W_{t, :} = \sum_{n:\; indices_n = t} \bar y_{n, :}

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Rows of the weight, and the length of each.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values, standard normal.
    dtype : {float32, float64}

    Attributes
    ----------
    weight : Parameter, (num_embeddings, embedding_dim)

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A size is below 1, or no memory can address the weight.

    See Also
    --------
    relpos.learned : The same as a function.
    LearnedAPE : A vector for each position.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.Embedding(3, 1)
    >>> _ = layer.load_state_dict({"weight": [[0.0], [1.0], [2.0]]})
    >>> layer([[2, 1], [1, 1]])[..., 0]
    array([[2., 1.],
           [1., 1.]], dtype=float32)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        rows = as_size("num_embeddings", num_embeddings)
        width = as_size("embedding_dim", embedding_dim)
        check_bytes("embedding_dim", (rows, width), DRAWN)
        self._set_up(rng, dtype, num_embeddings=rows, embedding_dim=width)
        start = self._rng.standard_normal((rows, width))
        self.weight = Parameter(start.astype(self.dtype))

    @quiet
    def __call__(self, indices: ArrayLike) -> Array:
        """Look up rows of the weight.

        Parameters
        ----------
        indices : int or array_like of int, any shape S
            The int n stands for 0, 1, ..., n - 1.

        Returns
        -------
        ndarray, (*S, embedding_dim)
            A copy of the row of each number.

        Raises
        ------
        TypeError
            `indices` are not integers.
        ValueError
            `indices` is a negative int, or no rectangular array.
        IndexError
            An index is outside 0 to num_embeddings - 1.

        See Also
        --------
        relpos.learned : The same as a function.
        """
        table = self.weight.data
        index = int64_positions(indices, len(table), "indices")
        return self._remember(gather(table, index, "indices"), index.copy())

    def _backward(self, grad: Array, index: Any) -> None:
        self.weight.add_grad(learned_backward(grad, index, len(self.weight.data)))
