"""Later schemes, reference only: the kernels have none of them.

Four attentions that the kernels, on tiles of one head, cannot compute, and two
rotations. Sequences are whole (Lq = Lk = L), and cumulative sums are causal.
"""

from __future__ import annotations

import numpy as np

from relpos.reference._xp import (
    ArrayLike,
    Bools,
    Floats,
    as_float64,
    expm_times,
    namespace,
)
from relpos.reference.formula import (
    AttentionOutput,
    Result,
    allowed,
    attend,
    default_scale,
    relative,
)
from relpos.reference.rotary import apply_rotary

__all__ = [
    "cope_attention",
    "dape_attention",
    "lie_rotary",
    "path_attention",
    "selective_rotary",
    "stick_breaking_attention",
]


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + e^-x), without overflow."""
    xp = namespace(x)
    # From log(1 + e^-x) and not from e^-x, which overflows for large negative x.
    return xp.exp(-xp.logaddexp(0.0, -x))


def causal(query: Floats) -> Bools:
    """True where j <= i, (1, L, L)."""
    return allowed(relative(query, query), True)


def cope_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    *,
    scale: float | None = None,
    return_weights: bool = False,
) -> Result:
    """Contextual positions: s_ij = q_i·k_j + q_i·e[pos_ij], q = scale · query. CoPE.

    g_it = sigmoid(q_i·k_t),  pos_ij = min(Σ_{t=j..i} g_it, R - 1): each token between
    counts by the query's gate for it, so that positions are fractions, and
    e[p] = e[⌊p⌋] + (p - ⌊p⌋)·(e[⌈p⌉] - e[⌊p⌋]). Causal; rel_key: e, (R, D) or
    (H, R, D). Reference only.

    References
    ----------
    Golovneva, Wang, Weston, Sukhbaatar, "Contextual Position Encoding: Learning to
    Count What's Important" (2024), arXiv:2405.18719.

    Examples
    --------
    A query of zeros opens every gate by half: 1.0 and 0.5 tokens lie between.

    >>> x, value = np.zeros((1, 2, 1)), np.eye(2)[None]
    >>> cope_attention(x, x, value, [[0.0], [1.0]])
    array([[[1. , 0. ],
            [0.5, 0.5]]])
    """
    xp, q, k, v, e = as_float64(query, key, value, rel_key)
    # The gates are of the scaled queries, as the scores are.
    q = default_scale(scale, q) * q
    see = causal(q)
    content = q @ xp.swapaxes(k, -1, -2)
    # A later token opens no gate, whatever its content is.
    g = xp.where(see, sigmoid(content), 0.0)
    # A sum over t from j to i is a cumulative sum from the end.
    pos = xp.flip(xp.cumsum(xp.flip(g, (-1,)), axis=-1), (-1,))
    pos = xp.minimum(pos, e.shape[-2] - 1.0)
    floor = xp.floor(pos)
    # Products with all rows first: each pair then interpolates two of these numbers.
    q_e = q @ xp.swapaxes(e, -1, -2)
    # A position between two rows takes its share of both.
    low = xp.take_along_axis(q_e, xp.asarray(floor, dtype=xp.int64), -1)
    high = xp.take_along_axis(q_e, xp.asarray(xp.ceil(pos), dtype=xp.int64), -1)
    s = content + low + (pos - floor) * (high - low)
    values = v[..., None, :, :]
    return attend(s, values, see, return_weights=return_weights)


def stick_breaking_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    scale: float | None = None,
    return_weights: bool = False,
) -> Result:
    """p_ij = b_ij·Π_{t=j+1..i-1} (1 - b_it), j < i, b = sigmoid(scale · Q·Kᵀ).

    From the latest key back, each takes its share of the rest of a stick of length 1:
    no softmax, no lse. out_i = Σ_j p_ij·v_j; 1 - Σ_j p_ij = Π_j (1 - b_ij) is
    the rest. A query does not see itself. Reference only.

    References
    ----------
    Tan, Yang, Courville, Panda, Shen, "Scaling Stick-breaking Attention: An Efficient
    Implementation and In-depth Study" (2024), arXiv:2410.17980.

    Examples
    --------
    Half of what is left, each:

    >>> x = np.zeros((1, 3, 1))
    >>> stick_breaking_attention(x, x, np.eye(3)[None])
    array([[[0.  , 0.  , 0.  ],
            [0.5 , 0.  , 0.  ],
            [0.25, 0.5 , 0.  ]]])
    """
    xp, q, k, v = as_float64(query, key, value)
    z = default_scale(scale, q) * (q @ xp.swapaxes(k, -1, -2))
    # A query does not see itself, hence the diagonal below the main one.
    before = np.tril(np.ones(z.shape[-2:], dtype=bool), -1)
    left = xp.where(before, -xp.logaddexp(0.0, z), 0.0)  # log(1 - b)
    # The sum over t from j + 1: the sum from j without its own term.
    after = xp.flip(xp.cumsum(xp.flip(left, (-1,)), axis=-1), (-1,)) - left
    # A product of shares as a sum of logarithms: log b is -log(1 + e^-z).
    p = xp.where(before, xp.exp(after - xp.logaddexp(0.0, -z)), 0.0)
    out = p @ v
    return AttentionOutput(out, weights=p) if return_weights else out


def path_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    direction: ArrayLike,
    beta: ArrayLike,
    *,
    scale: float | None = None,
    return_weights: bool = False,
) -> Result:
    """s_ij = scale · k_j·(H_{j+1} H_{j+2} .. H_i q_i), H_t = I - β_t·w_t·w_tᵀ. PaTH.

    Each token changes one direction of the later queries that attend past it: it
    mirrors (|w| = 1, β = 2) or removes (β = 1) it. Causal; direction: w,
    (..., H, L, D), beta: β, (..., H, L), in the paper of 0 to 2 and made from the
    token. Reference only.

    References
    ----------
    Yang, Shen, Wen, Tan, Mishra, Ren, Panda, Kim, "PaTH Attention: Position Encoding
    via Accumulating Householder Transformations" (2025), arXiv:2505.16381.

    Examples
    --------
    The last token removes the direction of the first key:

    >>> x, w = np.ones((1, 2, 1)), np.ones((1, 2, 1))
    >>> path_attention(x, x, np.eye(2)[None], w, [[0.0, 1.0]]).round(2)
    array([[[1.  , 0.  ],
            [0.27, 0.73]]])
    """
    xp, q, k, v, w, b = as_float64(query, key, value, direction, beta)
    # The product of k_j with each query needs H of all tokens between them, and one
    # pass from the last token back applies each H once.
    moved = xp.broadcast_to(q, np.broadcast_shapes(q.shape, k.shape, w.shape))
    columns: list[Floats] = []
    for j in reversed(range(q.shape[-2])):  # moved_i = H_{j+1} .. H_i q_i, i >= j
        columns.insert(0, xp.einsum("...id,...d->...i", moved, k[..., j, :]))
        # Token j changes queries i >= j, and only keys before it see the change.
        later = moved[..., j:, :]
        # H x = x - beta (w . x) w, without the D x D matrix.
        along = xp.einsum("...id,...d->...i", later, w[..., j, :])
        step = b[..., j, None, None] * along[..., None] * w[..., j, None, :]
        moved = xp.concatenate([moved[..., :j, :], later - step], axis=-2)
    # The scale is left out until here, because every H is linear.
    s = default_scale(scale, q) * xp.stack(columns, axis=-1)
    return attend(s, v[..., None, :, :], causal(q), return_weights=return_weights)


def dape_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike,
    w1: ArrayLike,
    b1: ArrayLike,
    w2: ArrayLike,
    b2: ArrayLike,
    *,
    is_causal: bool = True,
    scale: float | None = None,
    return_weights: bool = False,
) -> Result:
    """s_ij = a_ij + b_ij + W2·leaky(W1·[a_ij; b_ij] + c1) + c2, over all heads. DAPE.

    a = scale · Q·Kᵀ and b the bias of any scheme by position, vectors of H numbers for
    each pair; a network of the two, leaky(x) = max(x, x/100), changes the bias by the
    context. bias (..., H, L, L), w1 (W, 2H), b1 (W,), w2 (H, W), b2 (H,).
    Reference only.

    References
    ----------
    Zheng et al., "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation"
    (2024), arXiv:2405.14722.

    Examples
    --------
    A network that cancels the bias:

    >>> x, bias = np.zeros((1, 2, 1)), np.array([[[0.0, 0.0], [5.0, 0.0]]])
    >>> w1, w2 = [[0.0, 1.0]], [[-1.0]]
    >>> dape_attention(x, x, np.eye(2)[None], bias, w1, [0.0], w2, [0.0])
    array([[[1. , 0. ],
            [0.5, 0.5]]])
    """
    arrays = as_float64(query, key, value, bias, w1, b1, w2, b2)
    xp, q, k, v, b, W1, c1, W2, c2 = arrays
    a = default_scale(scale, q) * (q @ xp.swapaxes(k, -1, -2))
    # The bias may lack batch axes, and the network reads both as one array.
    a, b = xp.broadcast_arrays(a, b)
    # The axis of heads: 2 H numbers for each pair.
    both = xp.concatenate([a, b], axis=-3)
    # w counts the units of the hidden layer, h their inputs.
    hidden = xp.einsum("wh,...hij->...wij", W1, both) + c1[:, None, None]
    hidden = xp.maximum(hidden, hidden / 100)  # leaky ReLU, of slope 0.01
    s = a + b + xp.einsum("hw,...wij->...hij", W2, hidden) + c2[:, None, None]
    see = allowed(relative(q, k), is_causal)
    values = v[..., None, :, :]
    return attend(s, values, see, return_weights=return_weights)


def selective_rotary(
    x: ArrayLike,
    increments: ArrayLike,
    *,
    inv_freq: ArrayLike | None = None,
    interleaved: bool = False,
) -> Floats:
    """y_t = R(θ_t) x_t, θ_t = ω·Σ_{s<=t} φ_s: each token has an increment.

    A score of two such rows depends on Σ φ of the tokens between them, t = j+1..i, as
    RoPE's depends on their number. x (..., L, D), increments: φ, (..., L, D/2), in the
    paper made from the token; inv_freq: ω, (D/2,), 1 unless given. Reference only; by
    the kernels, it is `relpos.apply_rotary` with these θ as `angles`.

    References
    ----------
    Movahedi et al., "Selective Rotary Position Embedding" (2025), arXiv:2511.17388.

    Examples
    --------
    A quarter turn, none, a quarter turn:

    >>> x = np.array([[1.0, 0.0]] * 3)
    >>> selective_rotary(x, np.array([[0.5], [0.0], [0.5]]) * np.pi).round(2)
    array([[ 0.,  1.],
           [ 0.,  1.],
           [-1.,  0.]])
    """
    xp, phi, omega = as_float64(increments, inv_freq)
    theta = xp.cumsum(phi, axis=-2)
    if omega is not None:
        theta = theta * omega
    return apply_rotary(x, angles=theta, interleaved=interleaved)


def lie_rotary(x: ArrayLike, positions: ArrayLike, generators: ArrayLike) -> Floats:
    """y = R(p) x, R(p) = exp(Σ_a p_a·G_a): a dense rotation of the whole head. LieRE.

    x (..., L, D), positions: p, (..., L, A), points of any number of axes; generators
    (A, D, D), of which what lies below the diagonal makes G_a, and -G_aᵀ above. R is
    exp of a skew matrix S, that is V·exp(-iλ)·V* with V, λ of the Hermitian iS. With
    one axis a score of two rows depends on the difference of their positions alone;
    with more, it does where the G_a commute. Reference only.

    References
    ----------
    Ostmeier, Axelrod, Varma, Moseley, Chaudhari, Langlotz, "LieRE: Lie Rotational
    Positional Encodings" (2024), arXiv:2406.10322.

    Examples
    --------
    >>> turn = [[[0.0, 0.0], [np.pi / 2, 0.0]]]
    >>> lie_rotary([[1.0, 0.0], [1.0, 0.0]], [[1.0], [2.0]], turn).round(2) + 0.0
    array([[ 0.,  1.],
           [-1.,  0.]])
    """
    xp, x, p, below = as_float64(x, positions, generators)
    # Entries on the diagonal and above it are not read: a skew matrix has only D (D -
    # 1) / 2 free numbers.
    below = xp.tril(below, -1)
    G = below - xp.swapaxes(below, -1, -2)
    # One matrix for each position, from the generator of each axis.
    return expm_times(xp.einsum("...a,ade->...de", p, G), x)
