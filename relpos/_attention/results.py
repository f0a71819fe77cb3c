"""What attention returns, and what its context does, as named tuples."""

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias

from relpos._checks import Array
from relpos._text import in_short

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from relpos._attention.context import AttentionContext

    Lse = TypeVar("Lse", default=Array | None, covariant=True)
    Weights = TypeVar("Weights", default=Array | None, covariant=True)
    Context = TypeVar("Context", default=AttentionContext | None, covariant=True)
    Either: TypeAlias = "AttentionGradients | FireAttentionGradients"
    Gradients = TypeVar("Gradients", default=Either, covariant=True)
else:  # typing's own have a default from Python 3.13 on
    from typing import TypeVar

    Lse, Weights, Context = TypeVar("Lse"), TypeVar("Weights"), TypeVar("Context")
    Gradients = TypeVar("Gradients")


@in_short
class AttentionOutput(NamedTuple, Generic[Lse, Weights, Context]):
    """Results of `attention`; None where one was not asked for.

    Attributes
    ----------
    out : ndarray, (..., H, Lq, Dv)
    lse : ndarray, (..., H, Lq), or None
        Logarithm of the sum of the exponentials of each query's scores.
    weights : ndarray, (..., H, Lq, Lk), or None
        Probabilities, before dropout.
    context : AttentionContext or None
        Gives the gradients.

    See Also
    --------
    attention : Returns it, and has the formulas.
    merge_attention : Joins two of them by `out` and `lse`.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> query = np.zeros((1, 2, 4))
    >>> result = relpos.attention(query, query, query, return_weights=True)
    >>> result
    AttentionOutput(
        out=float64 (1, 2, 4),
        lse=None,
        weights=float64 (1, 2, 2),
        context=None,
    )
    >>> result.weights, result.lse
    (array([[[0.5, 0.5],
            [0.5, 0.5]]]), None)
    """

    out: Array
    lse: Lse
    weights: Weights
    context: Context


@in_short
class AttentionGradients(NamedTuple):
    """Gradients of `attention`'s inputs; None where absent or not asked for.

    Each is of its input's shape and dtype, summed over the axes on which the input was
    broadcast.

    Attributes
    ----------
    query : ndarray, (..., H, Lq, D)
    key : ndarray, (..., Hk, Lk, D)
    value : ndarray, (..., Hk, Lk, Dv)
    attn_mask : ndarray
    rel_key, rel_query : ndarray, (R, D), (H, R, D) or (..., H, R, D)
    rel_value : ndarray, (R, Dv), (H, R, Dv) or (..., H, R, Dv)
    rel_bias : ndarray, (R,), (H, R) or (..., H, R)
    pos_bias_u, pos_bias_v : ndarray, (D,), (H, D) or (..., H, D)
    position_query : ndarray, (..., H, Lq, Dp)
    sinks : ndarray, (H,)
    log_decay : ndarray, (..., H, Lk)

    See Also
    --------
    AttentionContext.backward : Returns it, and has the formulas.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.zeros((1, 2, 4))
    >>> context = relpos.attention(x, x, x, return_context=True).context
    >>> gradients = context.backward(np.zeros((1, 2, 4)))
    >>> gradients.query.shape, gradients.rel_key
    ((1, 2, 4), None)
    """

    query: Array | None = None
    key: Array | None = None
    value: Array | None = None
    attn_mask: Array | None = None
    rel_key: Array | None = None
    rel_query: Array | None = None
    rel_value: Array | None = None
    rel_bias: Array | None = None
    pos_bias_u: Array | None = None
    pos_bias_v: Array | None = None
    position_query: Array | None = None
    sinks: Array | None = None
    log_decay: Array | None = None


@in_short
class FireAttentionGradients(NamedTuple):
    """Gradients of `fire_attention`'s inputs: those of `attention`, then FIRE's own.

    None where absent or not asked for.

    Attributes
    ----------
    query, key, value, attn_mask, rel_key, rel_query, rel_value, rel_bias, pos_bias_u, \
pos_bias_v, position_query, sinks, log_decay : ndarray
        As in `AttentionGradients`.
    w1, b1, w2, b2, c, threshold : ndarray
        As in `FireGradients`.

    See Also
    --------
    AttentionContext.backward : Returns it, and has the formulas.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x, network = np.zeros((1, 2, 4)), ([1.0], [0.0], [[1.0]], [0.0], 1.0, 1.0)
    >>> context = relpos.fire_attention(x, x, x, *network, return_context=True).context
    >>> gradients = context.backward(np.zeros((1, 2, 4)))
    >>> gradients.query.shape, gradients.w2.shape, gradients.rel_key
    ((1, 2, 4), (1, 1), None)
    """

    query: Array | None = None
    key: Array | None = None
    value: Array | None = None
    attn_mask: Array | None = None
    rel_key: Array | None = None
    rel_query: Array | None = None
    rel_value: Array | None = None
    rel_bias: Array | None = None
    pos_bias_u: Array | None = None
    pos_bias_v: Array | None = None
    position_query: Array | None = None
    sinks: Array | None = None
    log_decay: Array | None = None
    w1: Array | None = None
    b1: Array | None = None
    w2: Array | None = None
    b2: Array | None = None
    c: Array | None = None
    threshold: Array | None = None
