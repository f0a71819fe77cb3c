"""Layers that tell attention the positions of tokens: biases, rotations, tables."""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np

from relpos._attention.fire import fire_attention, fire_bias, fire_bias_backward
from relpos._attention.problem import fold_rows
from relpos._attention.schemes import (
    relative_global_attention,
    transformer_xl_attention,
)
from relpos._biases import (
    alibi_bias,
    alibi_bias_backward,
    alibi_slopes,
    kerple_bias,
    kerple_bias_backward,
    offsets,
    t5_bias,
    t5_bias_backward,
    t5_bucket,
)
from relpos._checks import Array, ArrayLike, DTypeLike, as_int, quiet
from relpos._encodings.absolute import EXACT, sinusoidal
from relpos._encodings.rotary import apply_rotary
from relpos._text import amount
from relpos._twins import twin
from relpos.nn._inputs import (
    about_max_len,
    as_input,
    as_size,
    join_heads,
    product,
    split_heads,
    xavier_uniform,
)
from relpos.nn.basic import Linear, affine, sum_rows
from relpos.nn.module import Parameter, Seed
from relpos.nn.position_base import DistanceBias, Position, placed

__all__ = [
    "FIRE",
    "KERPLE",
    "ALiBi",
    "DynamicPositionBias",
    "LearnedBias",
    "Rotary",
    "T5Bias",
]


# ---- biases of the distance ---------------------------------------------------------


@twin(alibi_bias, titles=("References",))
class ALiBi(DistanceBias):
    r"""Penalty of each head for each step of distance; its slopes may be learned.

    .. math:: b_{h, r} = -m_h |r|

    Parameters
    ----------
    num_heads : int
        H; the slopes m are those of `relpos.alibi_slopes`.
    learned : bool, default False
        Whether they are a parameter, which training changes.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    slopes : Parameter, (num_heads,), or None
        None unless learned.

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
        settings = self._set_up(rng, dtype, num_heads=num_heads, learned=learned)
        # Slopes that are not learned are no parameter, and so are not in the state.
        self._fixed = alibi_slopes(settings.num_heads, dtype=self.dtype)
        self.slopes = Parameter(self._fixed.copy()) if learned else None

    def _bias(self, length: int) -> tuple[Any, ...]:
        slopes = self._fixed if self.slopes is None else self.slopes.data
        return (alibi_bias(slopes, length),)

    def _backward(self, grad: Array) -> None:
        if self.slopes is not None:
            self.slopes.add_grad(alibi_bias_backward(grad))


#: Least r1 and r2 of KERPLE, which have to be positive: that of the authors' code.
KERPLE_LEAST = 0.01


@twin(kerple_bias, titles=("References",))
class KERPLE(DistanceBias):
    r"""Penalty of each head that grows as the logarithm of the distance.

    .. math::

        b_{h, r} = -p_h \log(1 + a_h |r|), \quad
        p_h = \max(r_{1, h}, 0.01), \quad a_h = \max(r_{2, h}, 0.01)

    Parameters
    ----------
    num_heads : int
        H.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
        Initial values are uniform, of r1 from 0 to 2 and of r2 from 0 to 1.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    r1, r2 : Parameter, (num_heads,)
        As ``bias_p`` and ``bias_a`` in the authors' code, without its axes of length 1.

    Notes
    -----
    The form is "log" of `relpos.kerple_bias`. A parameter that training moves below
    0.01 counts as 0.01, so that the bias stays a penalty. Its gradient is that of the
    number which is used, so that training can raise the parameter again.

    Examples
    --------
    >>> from relpos import nn
    >>> layer = nn.KERPLE(1)
    >>> _ = layer.load_state_dict({"r1": [2.0], "r2": [1.0]})
    >>> layer(3).round(2)  # relative positions -2 to 2
    array([[-2.2 , -1.39,  0.  , -1.39, -2.2 ]], dtype=float32)
    """

    def __init__(
        self, num_heads: int, *, rng: Seed = None, dtype: DTypeLike = np.float32
    ) -> None:
        heads = self._set_up(rng, dtype, num_heads=num_heads).num_heads
        self.r1 = self._start(self._rng.uniform(0.0, 2.0, heads))
        self.r2 = self._start(self._rng.uniform(0.0, 1.0, heads))

    def _bias(self, length: int) -> tuple[Any, ...]:
        r1, r2 = (np.maximum(x.data, KERPLE_LEAST) for x in (self.r1, self.r2))
        return kerple_bias(r1, r2, length), r1, r2

    def _backward(self, grad: Array, r1: Any, r2: Any) -> None:
        gradients = kerple_bias_backward(grad, r1, r2)
        self.r1.add_grad(gradients.r1)
        self.r2.add_grad(gradients.r2)


class Buckets(TypedDict):
    """Keywords of `relpos.t5_bucket`."""

    num_buckets: int
    max_distance: int
    bidirectional: bool


@twin(t5_bias, titles=("References",))
class T5Bias(DistanceBias):
    r"""Learned number of each head for each bucket of distances.

    .. math:: b_{h, r} = rel\_bias_{bucket(r), h}

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
        Source of random numbers, such as initial values and dropout.
        Initial values are normal of deviation 0.02.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    rel_bias : Parameter, (num_buckets, num_heads)
        As T5 stores ``relative_attention_bias.weight``.

    Raises
    ------
    ValueError
        The buckets leave no logarithmic range.

    Notes
    -----
    T5 does not scale its scores; `MultiheadAttention` does, as
    `relpos.torch.nn.RelativeMultiheadAttention` with this position. T5 has one such
    layer for all of its attentions.

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
        self._buckets: Buckets = {
            "num_buckets": num_buckets,
            "max_distance": max_distance,
            "bidirectional": bidirectional,
        }
        t5_bucket(0, **self._buckets)  # raises the error for what is wrong with them
        self._set_up(rng, dtype, num_heads=num_heads, others=self._buckets)
        shape = num_buckets, num_heads
        self.rel_bias = self._start(self._rng.normal(0.0, 0.02, shape))

    def _bias(self, length: int) -> tuple[Any, ...]:
        return (t5_bias(self.rel_bias.data, length, **self._buckets),)

    def _backward(self, grad: Array) -> None:
        self.rel_bias.add_grad(t5_bias_backward(grad, **self._buckets))


@twin(T5Bias, titles=("References",))
class LearnedBias(DistanceBias):
    r"""Learned number of each head for each relative position, clipped.

    .. math:: b_{h, r} = rel\_bias_{h, clip(r, -k, k) + k}

    Parameters
    ----------
    num_heads : int
        H.
    max_relative_position : int
        The k from which on distances share a number; 0 is legal.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
        Initial values are normal of deviation 0.02.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    rel_bias : Parameter, (num_heads, 2k+1)
        Column t is relative position t - k.

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
        settings = self._set_up(
            rng,
            dtype,
            num_heads=num_heads,
            max_relative_position=max_relative_position,
        )
        self._reach: int = settings.max_relative_position
        shape = settings.num_heads, 2 * self._reach + 1
        self.rel_bias = self._start(self._rng.normal(0.0, 0.02, shape))

    def _bias(self, length: int) -> tuple[Any, ...]:
        table = self.rel_bias.data
        relative = offsets(length, len(table), dtype=self.dtype)
        columns = np.clip(relative, -self._reach, self._reach) + self._reach
        # Columns that several offsets share: `fold_rows` sums their gradients.
        return table[:, columns], columns

    def _backward(self, grad: Array, columns: Any) -> None:
        self.rel_bias.add_grad(fold_rows(grad.T, columns, 2 * self._reach + 1).T)


class DynamicPositionBias(DistanceBias):
    r"""Attention bias per head and relative position, from a small network.

    .. math::

        b_{h, r} = MLP(d)_h, \quad d = -r \;\text{ or }\; sign(-r) \log(|r| + 1)

    r is key minus query as everywhere; inside, the network is given query minus key.
    It has `depth` hidden layers of `dim` with x sigmoid(x) after each, then `heads`
    outputs.

    Parameters
    ----------
    dim, heads, depth : int
        Width of the hidden layers, outputs, and number of hidden layers.
    log_distance : bool, default False
        Whether the logarithm of the distance goes in.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    mlp : list
        In `state_dict`: ``mlp.{i}.0`` for i < depth, then ``mlp.{depth}``.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer V2: Scaling Up Capacity and Resolution", 2021,
       arXiv:2111.09883, section 3.3 (log-spaced distances).

    Examples
    --------
    The result is a `rel_bias` for every pair of lengths up to `length`:

    >>> from relpos import nn
    >>> nn.DynamicPositionBias(dim=8, heads=2, depth=2, rng=0)(5).shape
    (2, 9)
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        depth: int,
        log_distance: bool = False,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        settings = self._set_up(
            rng, dtype, dim=dim, heads=heads, depth=depth, log_distance=log_distance
        )
        self.depth: int = settings.depth
        self.log_distance: bool = settings.log_distance
        # Each hidden layer is a list of one, so that its names in the state are those
        # of PyTorch's Sequential of a Linear and an activation: mlp.0.0.weight.
        self.mlp: list[Any] = []
        inputs = 1
        for _ in range(self.depth):
            self.mlp.append([Linear(inputs, dim, **self._options)])
            inputs = dim
        self.mlp.append(Linear(dim, heads, **self._options))

    def _bias(self, length: int) -> tuple[Any, ...]:
        # Relative positions -(length-1) to length-1, as query minus key: the sign that
        # the network is given.
        distance = np.arange(length - 1, -length, -1).astype(self.dtype)
        if self.log_distance:
            distance = np.sign(distance) * np.log(np.abs(distance) + 1)
        x, slopes = distance[:, None], []
        for (layer,) in self.mlp[:-1]:
            z = layer(x)
            small = np.exp(-np.abs(z))
            # sigmoid(z), by exp of -|z| so that it overflows at neither end
            gate = np.where(z >= 0, 1, small) / (1 + small)
            x = z * gate
            slopes.append(gate + x * (1 - gate))  # of z sigmoid(z)
        return np.ascontiguousarray(self.mlp[-1](x).T), slopes

    def _backward(self, grad: Array, slopes: Any) -> None:
        grad = self.mlp[-1].backward(grad.T)
        for (layer,), slope in zip(self.mlp[-2::-1], slopes[::-1], strict=True):
            grad = layer.backward(grad * slope)


# ---- a bias of the distance and the query's position, and a rotation ----------------


@twin(fire_bias, titles=("References",))
class FIRE(Position):
    r"""Bias by a small network of the distance over the query's own position.

    .. math::

        x_{ij} = \frac{\psi(|r|)}{\psi(\max(p, |threshold|))}, \quad
        \psi(d) = \log(|c \, d| + 1), \quad
        b_{hij} = \sum_k w2_{hk} \max(w1_k x_{ij} + b1_k, 0) + b2_h

    with p the position of query i and r that of key j relative to it. As `position` of
    `MultiheadAttention` it stores no bias.

    Parameters
    ----------
    num_heads : int
        H.
    width : int, default 32
        Units of the network.
    max_distance : int, default 512
        The threshold's first value; queries before it are normalised as one at it.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
        Initial values are those of two layers `Linear`; c starts at 0.1.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    w1, b1 : Parameter, (width,)
    w2 : Parameter, (num_heads, width)
    b2 : Parameter, (num_heads,)
    c, threshold : Parameter, ()

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
        settings = self._set_up(
            rng, dtype, num_heads=num_heads, width=width, max_distance=max_distance
        )
        heads, units = settings.num_heads, settings.width
        # 1 / sqrt(inputs) of each layer, as `Linear` starts: 1 for the first one, which
        # has one input. The order of these four lines is that of the random numbers.
        bound = 1 / math.sqrt(units)
        self.w1 = self._start(self._rng.uniform(-1.0, 1.0, units))
        self.b1 = self._start(self._rng.uniform(-1.0, 1.0, units))
        self.w2 = self._start(self._rng.uniform(-bound, bound, (heads, units)))
        self.b2 = self._start(self._rng.uniform(-bound, bound, heads))
        self.c = Parameter(np.array(0.1, self.dtype))
        self.threshold = Parameter(np.array(settings.max_distance, self.dtype))

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
        network = self.arguments(0, 0)  # the parameters, whatever the lengths
        gradients = fire_bias_backward(grad, **network, query_offset=offset)
        self.add_gradients(gradients, 0, 0)


class Pairs(TypedDict):
    """Keywords of `relpos.apply_rotary`."""

    base: float
    interleaved: bool


@twin(apply_rotary, titles=("References",))
class Rotary(Position):
    r"""Rotation of pairs of columns of queries and keys, by angles of the position.

    .. math::

        y_a = a \cos\theta - b \sin\theta, \quad y_b = b \cos\theta + a \sin\theta,
        \quad \theta_{n,c} = n \, base^{-2c/D}

    `backward` returns the gradient of x: that of the result, rotated back.

    Parameters
    ----------
    head_dim : int
        D, the columns of a head; even.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    interleaved : bool, default False
        True makes neighbouring columns a pair, as in `relpos.apply_rotary`.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Raises
    ------
    ValueError
        `head_dim` is odd, or `base` is no positive number.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.Rotary(2)
    >>> layer(np.array([[1.0, 0.0], [1.0, 0.0]], np.float32)).round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]], dtype=float32)
    """

    _limit = EXACT

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        settings = self._set_up(
            rng, dtype, head_dim=head_dim, base=base, interleaved=interleaved
        )
        self.head_dim: int = settings.head_dim
        if self.head_dim % 2:
            raise ValueError(
                f"head_dim: got {head_dim}; expected an even number, as columns are "
                "rotated in pairs"
            )
        if settings.base <= 0.0:
            raise ValueError(f"base: got {settings.base}; expected a positive number")
        self._pairs: Pairs = {
            "base": settings.base,
            "interleaved": settings.interleaved,
        }

    @quiet
    def __call__(self, x: ArrayLike, offset: int = 0) -> Array:
        """Rotate queries or keys.

        Parameters
        ----------
        x : array_like, (..., L, head_dim)
            Rows at positions offset, offset + 1, ...
        offset : int, default 0
            Position of row 0.

        Returns
        -------
        ndarray, shape of `x`
            The rows rotated.
        """
        array = as_input("x", x, self.dtype, "...", "L", self.head_dim)
        first = as_int("offset", offset, 1 - EXACT, EXACT - max(array.shape[-2], 1))
        return self._remember(self.rotate(array, first), first)

    def _backward(self, grad: Array, first: Any) -> Array:
        return self.rotate(grad, first, inverse=True)

    def rotate(self, x: Array, offset: Any = 0, inverse: bool = False) -> Array:
        if x.shape[-1] != self.head_dim:
            raise ValueError(
                f"head_dim: got {self.head_dim} for heads of "
                f"{amount(x.shape[-1], 'column')}; expected as many"
            )
        positions = np.asarray(offset)[..., None, None] + np.arange(x.shape[-2])
        if positions.size == x.shape[-2]:  # the same of all items
            positions = positions.ravel()
        return apply_rotary(x, positions, inverse=inverse, **self._pairs)


# ---- schemes that `MultiheadAttention` knows by name ---------------------------------


def table_shape(
    rows: int, head_dim: int, num_heads: int | None = None
) -> tuple[int, ...]:
    """Return the shape of a table of all heads, or of one for each of `num_heads`."""
    return (rows, head_dim) if num_heads is None else (num_heads, rows, head_dim)


class Shaw(Position):
    """Tables of Shaw et al.: rel_key and rel_value (2k+1, D), or one for each head."""

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        max_relative_position: int = 16,
        per_head: bool = False,
        use_keys: bool = True,
        use_values: bool = True,
        *,
        rng: Any,
        dtype: Any,
    ) -> None:
        settings = self._set_up(
            rng,
            dtype,
            num_heads=num_heads,
            head_dim=head_dim,
            max_relative_position=max_relative_position,
            per_head=per_head,
            use_keys=use_keys,
            use_values=use_values,
        )
        rows = 2 * settings.max_relative_position + 1
        shape = table_shape(rows, head_dim, num_heads if per_head else None)
        # A table that is not used is no attribute: every parameter is a keyword.
        if use_keys:
            self.rel_key = self._start(xavier_uniform(self._rng, shape))
        if use_values:
            self.rel_value = self._start(xavier_uniform(self._rng, shape))


#: End of the error for a table of the Music Transformer whose shape does not fit.
MUSIC_ROWS = (
    "A layer with is_causal=True has max_len rows, one with is_causal=False "
    "2 * max_len - 1."
)


def music_rows(max_len: int, is_causal: bool) -> int:
    """Return the rows of the table: a distance each, of the past or of both sides."""
    return max_len if is_causal else 2 * max_len - 1


class MusicTable(Parameter):
    """Table of the Music Transformer; `is_causal` decides its number of rows."""

    __slots__ = ()
    _hint = MUSIC_ROWS


class Music(Position):
    """Table of the Music Transformer: rel_key (max_len, D), or (2 max_len - 1, D)."""

    _function = staticmethod(relative_global_attention)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        is_causal: bool,
        max_len: int = 1024,
        per_head: bool = False,
        *,
        rng: Any,
        dtype: Any,
    ) -> None:
        self.is_causal = is_causal
        settings = self._set_up(
            rng,
            dtype,
            num_heads=num_heads,
            head_dim=head_dim,
            is_causal=is_causal,
            max_len=max_len,
            per_head=per_head,
        )
        rows = music_rows(settings.max_len, is_causal)
        shape = table_shape(rows, head_dim, num_heads if per_head else None)
        start = self._rng.standard_normal(shape)
        self.rel_key = MusicTable(start.astype(self.dtype))

    def arguments(
        self, query_length: int, key_length: int, query_offset: Any = 0
    ) -> dict[str, Any]:
        table = self.rel_key.data
        # Distance 0 is the last row of a table of the past, and the middle row of a
        # table of both sides.
        rows = table.shape[-2]
        reach = rows - 1 if self.is_causal else rows // 2
        return {"rel_key": table, "min_relative_position": -reach}

    def _in_own_words(self, error: IndexError) -> IndexError:
        rows = self.rel_key.data.shape[-2]
        max_len = rows if self.is_causal else rows // 2 + 1
        return about_max_len(error, max_len, ", or with a window")


class TransformerXL(Position):
    """Projected sinusoids of Transformer-XL, and its two biases u and v."""

    _function = staticmethod(transformer_xl_attention)
    _limit = EXACT

    def __init__(self, num_heads: int, head_dim: int, *, rng: Any, dtype: Any) -> None:
        self._set_up(rng, dtype, num_heads=num_heads, head_dim=head_dim)
        u, v = self._rng.normal(0.0, 0.02, (2, num_heads, head_dim))
        self.pos_bias_u, self.pos_bias_v = self._start(u), self._start(v)
        width = num_heads * head_dim
        self.pos_proj = Linear(width, width, bias=False, **self._options)

    def _encodings(self, farthest: int, last: int) -> Array:
        """Encode the distances farthest, .., -last, as those of the paper."""
        width = self.pos_proj.weight.data.shape[1]
        # One at least, as attention wants a row also where there is no pair.
        distances = farthest - np.arange(max(farthest + last + 1, 1))
        return sinusoidal(distances, width, layout="concat", dtype=self.dtype)

    def arguments(
        self, query_length: int, key_length: int, query_offset: Any = 0
    ) -> dict[str, Any]:
        farthest, last = placed(query_length, key_length, query_offset)
        encodings = self._encodings(farthest, last)
        # `affine` and not a call of the layer, which would remember this call only: the
        # position may serve several attentions before their backward.
        weight, bias = self.pos_proj.weight.data, self.pos_proj.bias
        rows = affine(encodings, weight, None if bias is None else bias.data)
        return {
            "rel_key": split_heads(rows, len(self.pos_bias_u.data)),
            "pos_bias_u": self.pos_bias_u.data,
            "pos_bias_v": self.pos_bias_v.data,
            "min_relative_position": -farthest,
        }

    def add_gradients(
        self, gradients: Any, query_length: int, key_length: int, query_offset: Any = 0
    ) -> None:
        super().add_gradients(gradients, query_length, key_length, query_offset)
        farthest, last = placed(query_length, key_length, query_offset)
        encodings = self._encodings(farthest, last)
        rows = join_heads(gradients.rel_key)
        self.pos_proj.weight.add_grad(product(rows.T, encodings))
        if self.pos_proj.bias is not None:
            self.pos_proj.bias.add_grad(sum_rows(rows))
