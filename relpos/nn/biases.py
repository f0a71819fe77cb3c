"""Biases of the distance as layers: ALiBi's slopes, T5's buckets, a learned table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._attention.placement import fold_rows
from relpos._biases.alibi import alibi_bias, alibi_bias_backward, alibi_slopes
from relpos._biases.by_offset import offsets
from relpos._biases.t5 import t5_bias, t5_bias_backward, t5_bucket
from relpos._checks import Array, as_flag
from relpos.nn._inputs import as_size
from relpos.nn.parameter import Parameter
from relpos.nn.position import DistanceBias

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from relpos.nn.module import Seed

__all__ = ["ALiBi", "LearnedBias", "T5Bias"]


class ALiBi(DistanceBias):
    r"""A penalty of each head for each step of distance; its slopes may be learned.

    .. math:: b_{h, r} = -m_h |r|

    `backward` adds the gradient of the slopes, where they are learned.

    .. math:: \bar m_h = -\sum_r \bar b_{h, r} |r|

    Parameters
    ----------
    num_heads : int
        H; the slopes m are those of `relpos.alibi_slopes`.
    learned : bool, default False
        Whether they are a parameter, which training changes.
    rng : optional
        Not used; every layer takes it.
    dtype : {float32, float64}

    Attributes
    ----------
    slopes : Parameter, (num_heads,), or None
        None unless learned.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        `num_heads` is below 1.

    See Also
    --------
    MultiheadAttention : Takes it as `position`.
    relpos.alibi_bias : The same as a function.
    T5Bias, LearnedBias, FIRE : Other biases.

    References
    ----------
    .. [1] Press, Smith, Lewis, "Train Short, Test Long: Attention with Linear Biases
       Enables Input Length Extrapolation", 2021, arXiv:2108.12409.

    Examples
    --------
    >>> from relpos import nn
    >>> nn.ALiBi(2)(2)  # relative positions -1, 0, 1
    array([[-0.0625    ,  0.        , -0.0625    ],
           [-0.00390625,  0.        , -0.00390625]], dtype=float32)
    """

    def __init__(
        self,
        num_heads: int,
        learned: bool = False,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        heads = as_size("num_heads", num_heads)
        self._set_up(rng, dtype, num_heads=heads, learned=as_flag("learned", learned))
        self._fixed = alibi_slopes(heads, dtype=self.dtype)
        self.slopes = Parameter(self._fixed.copy()) if learned else None

    def _bias(self, length: int) -> tuple[Any, ...]:
        slopes = self._fixed if self.slopes is None else self.slopes.data
        return (alibi_bias(slopes, length),)

    def _backward(self, grad: Array) -> None:
        if self.slopes is not None:
            self.slopes.add_grad(alibi_bias_backward(grad))


class T5Bias(DistanceBias):
    r"""A learned number of each head for each bucket of distances.

    .. math:: b_{h, r} = rel\_bias_{bucket(r), h}

    `backward` adds the gradient of the weight.

    .. math:: \bar w_{t, h} = \sum_{r:\; bucket(r) = t} \bar b_{h, r}

    Parameters
    ----------
    num_heads : int
        H.
    num_buckets : int, default 32
        Rows of the weight, as in `relpos.t5_bucket`.
    max_distance : int, default 128
        Farther positions share the last bucket.
    bidirectional : bool, default True
        Whether the future has buckets of its own; False for a causal model.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values, normal of deviation 0.02.
    dtype : {float32, float64}

    Attributes
    ----------
    rel_bias : Parameter, (num_buckets, num_heads)
        As T5 stores ``relative_attention_bias.weight``.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        `num_heads` is below 1, or the buckets leave no logarithmic range.

    See Also
    --------
    MultiheadAttention : Takes it as `position`; T5 has one layer for all of them.
    relpos.t5_bias : The same as a function.
    ALiBi, LearnedBias, FIRE : Other biases.

    Notes
    -----
    T5 does not scale its scores; `MultiheadAttention` does, as
    `relpos.torch.nn.RelativeMultiheadAttention` with this position.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 2.1.

    Examples
    --------
    >>> from relpos import nn
    >>> layer = nn.T5Bias(1, num_buckets=4, max_distance=8)
    >>> _ = layer.load_state_dict({"rel_bias": [[0.0], [1.0], [2.0], [3.0]]})
    >>> layer(4)  # relative positions -3 to 3
    array([[1., 1., 1., 0., 3., 3., 3.]], dtype=float32)
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        heads = as_size("num_heads", num_heads)
        self._buckets: dict[str, Any] = {
            "num_buckets": num_buckets,
            "max_distance": max_distance,
            "bidirectional": bidirectional,
        }
        t5_bucket(0, **self._buckets)  # says what is wrong with them
        self._set_up(rng, dtype, num_heads=heads, **self._buckets)
        start = self._rng.normal(0.0, 0.02, (num_buckets, heads))
        self.rel_bias = Parameter(start.astype(self.dtype))

    def _bias(self, length: int) -> tuple[Any, ...]:
        return (t5_bias(self.rel_bias.data, length, **self._buckets),)

    def _backward(self, grad: Array) -> None:
        self.rel_bias.add_grad(t5_bias_backward(grad, **self._buckets))


class LearnedBias(DistanceBias):
    r"""A learned number of each head for each relative position, clipped.

    .. math:: b_{h, r} = rel\_bias_{h, clip(r, -k, k) + k}

    `backward` adds the gradient of the table.

    .. math:: \bar t_{h, c} = \sum_{r:\; clip(r, -k, k) + k = c} \bar b_{h, r}

    Parameters
    ----------
    num_heads : int
        H.
    max_relative_position : int
        The k from which on distances share a number; 0 is legal.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values, normal of deviation 0.02.
    dtype : {float32, float64}

    Attributes
    ----------
    rel_bias : Parameter, (num_heads, 2k+1)
        Column t is relative position t - k.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A size is too small.

    See Also
    --------
    MultiheadAttention : Takes it as `position`.
    T5Bias : Numbers for buckets that grow with the distance.
    DynamicPositionBias : The numbers by a network.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 2.1.

    Examples
    --------
    >>> from relpos import nn
    >>> layer = nn.LearnedBias(1, 1)
    >>> _ = layer.load_state_dict({"rel_bias": [[5.0, 6.0, 7.0]]})
    >>> layer(3)  # relative positions -2 to 2
    array([[5., 5., 6., 7., 7.]], dtype=float32)
    """

    def __init__(
        self,
        num_heads: int,
        max_relative_position: int,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        heads = as_size("num_heads", num_heads)
        self._reach = as_size("max_relative_position", max_relative_position, 0)
        self._set_up(rng, dtype, num_heads=heads, max_relative_position=self._reach)
        start = self._rng.normal(0.0, 0.02, (heads, 2 * self._reach + 1))
        self.rel_bias = Parameter(start.astype(self.dtype))

    def _bias(self, length: int) -> tuple[Any, ...]:
        table = self.rel_bias.data
        relative = offsets(length, len(table), dtype=self.dtype)
        columns = np.clip(relative, -self._reach, self._reach) + self._reach
        return table[:, columns], columns

    def _backward(self, grad: Array, columns: Any) -> None:
        self.rel_bias.add_grad(fold_rows(grad.T, columns, 2 * self._reach + 1).T)
