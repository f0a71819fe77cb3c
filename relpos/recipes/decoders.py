"""Decoders: windows, chunks, caps, sinks, gates, scores by distance and by angle."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    ArrayLike,
    as_choice,
    as_integers,
    as_positive,
    as_real,
    at_least_ndim,
    check_memory,
    check_shape,
    native,
    quiet,
)
from relpos._encodings.absolute import frequency_parts
from relpos._encodings.rotary import apply_rotary, apply_rotary_backward, as_rotation
from relpos._tensors import is_tensor
from relpos._text import amount
from relpos._twins import twin
from relpos.recipes._recipe import (
    Arrays,
    Keywords,
    Recipe,
    as_length,
    as_positions,
    as_shaped,
    as_table,
    causal,
)
from relpos.recipes._tensors import (
    AnyTensor,
    Tensor,
    as_floating,
    as_plain,
    doubles,
    like,
    on_tensors,
    singles_or_doubles,
    softplus,
)
from relpos.reference._xp import namespace

__all__ = ["forgetting_transformer", "gemma2", "gpt_oss"]
__all__ += ["inkling", "inkling_temperature", "llama4"]
__all__ += ["llama4_temperature", "pope", "recurrent_gemma"]


@on_tensors
def recurrent_gemma(attention_window_size: int = 2048) -> Keywords:
    r"""RecurrentGemma's (Griffin's) local attention: one key head, a causal window.

    .. math:: s_{ij} = \frac{q_i k_j}{\sqrt D}, \quad 0 \le i - j < window

    Parameters
    ----------
    attention_window_size : int, default 2048
        Keys that are visible to a query, itself among them; at least 1.

    Returns
    -------
    dict
        `is_causal`, `window` and `enable_gqa`.

    Notes
    -----
    The model stores no parameter of it. Queries and keys are rotated in the first half
    of their columns: ``apply_rotary(x, rotary_dim=D // 2)``.

    References
    ----------
    .. [1] Botev et al., "RecurrentGemma: Moving Past Transformers for Efficient Open
       Language Models", 2024, arXiv:2404.07839.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.recurrent_gemma(2048)
    {'is_causal': True, 'enable_gqa': True, 'window': (2047, 0)}
    """
    if attention_window_size is None:
        raise TypeError("attention_window_size: got NoneType; expected an integer")
    return causal("attention_window_size", attention_window_size)


@on_tensors
def gpt_oss(sinks: ArrayLike, *, sliding_window: int | None = None) -> Keywords:
    r"""Attention of gpt-oss: a learned logit of each head has a share of every row.

    .. math:: p_{ij} = \frac{e^{s_{ij}}}{e^{\sigma_h} + \sum_t e^{s_{it}}}, \quad
        s_{ij} = \frac{q_i k_j}{\sqrt D}, \quad j \le i

    Queries and keys are rotated before, as `relpos.apply_rotary` does.

    Parameters
    ----------
    sinks : array_like, (H,)
        :math:`\sigma`; its gradient is that of sinks.
    sliding_window : int, optional
        Keys that are visible to a query of a sliding layer, itself among them; None
        means all.

    Returns
    -------
    dict
        `sinks`, `is_causal`, `enable_gqa` and, if there is one, `window`.

    References
    ----------
    .. [1] OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025, arXiv:2508.10925.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.gpt_oss(np.zeros(64), sliding_window=128)["window"]
    (127, 0)
    """
    table = as_shaped("sinks", sinks, "H")
    return {"sinks": table, **causal("sliding_window", sliding_window)}


@on_tensors
def gemma2(
    *,
    query_pre_attn_scalar: float = 256.0,
    attn_logit_softcapping: float | None = 50.0,
    sliding_window: int | None = None,
) -> Keywords:
    r"""Gemma 2's attention: scores under a soft cap, before the mask.

    .. math:: s_{ij} = c \tanh\frac{q_i k_j}{c \sqrt S}, \quad j \le i

    Queries and keys are rotated before, as `relpos.apply_rotary` does.

    Parameters
    ----------
    query_pre_attn_scalar : float, default 256.0
        S, positive, which need not be the width of a head.
    attn_logit_softcapping : float or None, default 50.0
        The cap, positive: c. None has none.
    sliding_window : int, optional
        Keys that are visible to a query of a sliding layer, itself among them; None
        means all.

    Returns
    -------
    dict
        `scale`, `is_causal`, `enable_gqa` and, if there is one, `softcap` and `window`.

    Notes
    -----
    The model stores no parameter of it. Where ``use_bidirectional_attention`` is set,
    give ``is_causal=False`` instead.

    References
    ----------
    .. [1] Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size",
       2024, arXiv:2408.00118, section 2.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.gemma2()
    {'scale': 0.0625, 'softcap': 50.0, 'is_causal': True, 'enable_gqa': True}
    """
    scalar = as_positive("query_pre_attn_scalar", query_pre_attn_scalar)
    keywords: Keywords = {"scale": scalar**-0.5}
    if attn_logit_softcapping is not None:
        cap = as_positive("attn_logit_softcapping", attn_logit_softcapping)
        keywords["softcap"] = cap
    return keywords | causal("sliding_window", sliding_window)


# ---- Llama 4 -------------------------------------------------------------------------


@on_tensors
def llama4(
    query_length: int,
    key_length: int | None = None,
    *,
    attention_chunk_size: int = 8192,
    start: ArrayLike = 0,
) -> Keywords:
    r"""Llama 4's layers with rotary encoding: causal, and each chunk alone.

    .. math::

        s_{ij} = \frac{q_i k_j}{\sqrt D}, \quad
        \left\lfloor \frac{j - start}{chunk} \right\rfloor =
        \left\lfloor \frac{p_i - start}{chunk} \right\rfloor, \quad
        start \le j \le p_i = i + L_k - L_q

    Queries and keys are rotated before: ``apply_rotary(x, interleaved=True)``. The
    queries of all other layers have `llama4_temperature`.

    Parameters
    ----------
    query_length : int
        Lq, at least 1.
    key_length : int, optional
        Lk, at least Lq; with cached keys it is larger. None: Lq.
    attention_chunk_size : int, default 8192
        Tokens of a chunk, at least 1.
    start : int or array_like of int, (...), default 0
        First token, from 0, that is no padding on the left, of each batch item: the
        model counts its chunks from there, whatever its position ids say.

    Returns
    -------
    dict
        `key_ranges`, `query_offset`, `is_causal` and `enable_gqa`.

    Notes
    -----
    The model stores no parameter of it. To padding no key is visible here, so that it
    gives 0; in the model it has the mean of all keys. Layers without rotary encoding
    are causal alone.

    References
    ----------
    .. [1] Yang et al., "Rope to Nope and Back Again: A New Hybrid Attention Strategy",
       2025, arXiv:2501.18795.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.llama4(5, attention_chunk_size=2)["key_ranges"].tolist()
    [[0, 2], [0, 2], [2, 4], [2, 4], [4, 6]]
    """
    queries = keys = as_length("query_length", query_length)
    if key_length is not None:
        keys = as_length("key_length", key_length)
    if keys < queries:
        raise ValueError(
            f"key_length: got {keys} for {amount(queries, 'query')}; expected at least "
            "as many"
        )
    chunk = as_length("attention_chunk_size", attention_chunk_size)
    first = as_integers("start", as_plain("start", start))
    if first.size and not 0 <= first.min() <= first.max() <= POSITION_LIMIT:
        raise ValueError("start: expected tokens from 0 to 2**60")
    check_memory("query_length", (*first.shape, queries, 2), np.dtype(np.int64))
    # Positions of the queries, counted from the first token that is no padding.
    place = np.arange(keys - queries, keys) - first[..., None]
    begin = first[..., None] + place // chunk * chunk
    # Padding has negative positions: its range ends where it begins or before, and no
    # key is visible to it.
    ranges = np.stack([np.maximum(begin, first[..., None]), begin + chunk], axis=-1)
    places = {"key_ranges": ranges, "query_offset": keys - queries}
    return places | causal("window", None)


@overload
def llama4_temperature(
    positions: AnyTensor, *, floor_scale: float = 8192.0, attn_scale: float = 0.1
) -> AnyTensor: ...
@overload
def llama4_temperature(
    positions: ArrayLike, *, floor_scale: float = 8192.0, attn_scale: float = 0.1
) -> Array: ...
@on_tensors
@quiet
def llama4_temperature(
    positions: ArrayLike | Tensor,
    *,
    floor_scale: float = 8192.0,
    attn_scale: float = 0.1,
) -> Array | Tensor:
    r"""Factor of Llama 4's queries on layers without rotary encoding.

    .. math:: \tau_n = 1 + a \log\left(1 + \left\lfloor \frac{n + 1}{floor}
        \right\rfloor\right)

    Parameters
    ----------
    positions : array_like, any shape
        The absolute position of each query, n, from 0.
    floor_scale : float, default 8192.0
        The length of a step, positive.
    attn_scale : float, default 0.1
        The strength of the factor, a.

    Returns
    -------
    ndarray of float64, shape of `positions`
        To multiply the queries by, as ``[:, None]``.

    References
    ----------
    .. [1] Nakanishi, "Scalable-Softmax Is Superior for Attention", 2025,
       arXiv:2501.19399.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.llama4_temperature([0, 8191, 16383]).round(3)
    array([1.   , 1.069, 1.11 ])
    """
    n = as_positions(positions)
    floor = as_positive("floor_scale", floor_scale)
    scale = as_real("attn_scale", attn_scale)
    # log1p of floor is exactly 0 in the first step, so that the factor is 1 there.
    return np.asarray(1 + scale * np.log1p(np.floor((n + 1) / floor)))


# ---- Inkling -------------------------------------------------------------------------


@on_tensors
def inkling(proj: ArrayLike, head_dim: int, *, window: int | None = None) -> Keywords:
    r"""Inkling's attention: a bank of curves over the distance, mixed by each query.

    .. math::

        s_{ij} = \tau_i \left(\frac{q_i k_j}{D} +
        \sum_m r_{i,m} \, proj_{m, i-j}\right), \quad 0 \le i - j

    where the curves end, at a distance of their extent, they are 0. The factor
    :math:`\tau` is `inkling_temperature`.

    Parameters
    ----------
    proj : array_like, (d_rel, extent)
        ``rel_logits_proj.proj``: curves; column 0 is distance 0.
    head_dim : int
        D, at least 1.
    window : int, optional
        Keys that are visible to a query of a sliding layer, itself among them; None
        means all.

    Returns
    -------
    dict
        `rel_key`, `min_relative_position`, `beyond`, `scale`, `is_causal`, `enable_gqa`
        and, if there is one, `window`. Pass in addition ``position_query=r``, the heads
        of ``r_proj`` (B, H, Lq, d_rel). With g the gradient of rel_key, that of proj is
        ``g[::-1].T``.

    Notes
    -----
    Queries and keys are normalised before (``q_norm``, ``k_norm``), keys and values go
    through a short convolution (``k_sconv``, ``v_sconv``). No distance is encoded in
    any other way.

    References
    ----------
    .. [1] Thinking Machines, "Inkling", a model card, 2026.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.inkling(np.zeros((16, 1024)), 128)
    >>> keywords["rel_key"].shape, keywords["min_relative_position"]
    ((1024, 16), -1023)
    """
    bank = as_table("proj", proj, "(d_rel, extent)")
    fits = bank.ndim == 2 and bank.shape[1] > 0
    check_shape("proj", bank, fits, "(d_rel, extent)")
    return {
        # Curves begin at distance 0, and rows of a table at the farthest key of the
        # past.
        "rel_key": namespace(bank).flip(bank.T, (0,)),
        "min_relative_position": 1 - bank.shape[1],
        "beyond": "zero",
        "scale": 1 / as_length("head_dim", head_dim),
        **causal("window", window),
    }


@overload
def inkling_temperature(
    positions: AnyTensor, log_scaling_n_floor: float, *, log_scaling_alpha: float = 0.1
) -> AnyTensor: ...
@overload
def inkling_temperature(
    positions: ArrayLike, log_scaling_n_floor: float, *, log_scaling_alpha: float = 0.1
) -> Array: ...
@twin(inkling, titles=("References",))
@on_tensors
@quiet
def inkling_temperature(
    positions: ArrayLike | Tensor,
    log_scaling_n_floor: float,
    *,
    log_scaling_alpha: float = 0.1,
) -> Array | Tensor:
    r"""Factor of Inkling's queries, and of their position queries, on full layers.

    .. math:: \tau_n = 1 + \alpha \log \max\left(1, \frac{n + 1}{floor}\right)

    Parameters
    ----------
    positions : array_like, any shape
        The absolute position of each query, n, from 0.
    log_scaling_n_floor : float
        The length from which on it counts, positive; a model without has no factor.
    log_scaling_alpha : float, default 0.1
        The strength of the factor.

    Returns
    -------
    ndarray of float64, shape of `positions`
        To multiply both queries by, as ``[:, None]``.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.inkling_temperature([0, 9, 99], 10).round(3)
    array([1.  , 1.  , 1.23])
    """
    n = as_positions(positions)
    floor = as_positive("log_scaling_n_floor", log_scaling_n_floor)
    alpha = as_real("log_scaling_alpha", log_scaling_alpha)
    return np.asarray(1 + alpha * np.log(np.maximum((n + 1) / floor, 1)))


# ---- the Forgetting Transformer ------------------------------------------------------


@on_tensors
@quiet
def forgetting_transformer(
    f_proj_weight: ArrayLike,
    f_proj_bias: ArrayLike,
    hidden_states: ArrayLike,
    *,
    window_size: int | None = None,
) -> Recipe:
    r"""Forgetting attention (FoX): each step subtracts the logarithm of a forget gate.

    .. math::

        s_{ij} = \frac{q_i k_j}{\sqrt D} + \sum_{t=j+1}^i \log f_{h,t}, \quad
        f_{h,t} = \sigma(W x_t + w)_h, \quad j \le i

    Backward,

    .. math::

        \bar W = \sum_t \bar z_t x_t^T, \quad \bar x_t = W^T \bar z_t, \quad
        \bar z_{h,t} = (1 - f_{h,t}) \, \overline{\log f}_{h,t}

    and the gradient of `hidden_states` is the part through the gate.

    Parameters
    ----------
    f_proj_weight : array_like, (H, E)
        ``f_proj.weight``: the layer of the gate, W.
    f_proj_bias : array_like, (H,)
        ``f_proj.bias``: its bias, w.
    hidden_states : array_like, (..., L, E)
        The input of the layer, x.
    window_size : int, optional
        The number of keys that are visible to a query, its own included. With None a
        query sees all of the past.

    Returns
    -------
    Recipe
        `log_decay`, `is_causal`, `enable_gqa` and, if there is one, `window`.

    References
    ----------
    .. [1] Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate",
       2025, arXiv:2503.02130.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> gate = np.zeros((2, 8)), np.zeros(2)
    >>> recipes.forgetting_transformer(*gate, np.ones((5, 8)))["log_decay"][0]
    array([-0.69314718, -0.69314718, -0.69314718, -0.69314718, -0.69314718])
    """
    weight = as_shaped("f_proj_weight", f_proj_weight, "H", "E")
    check_shape("f_proj_weight", weight, 0 not in weight.shape, "numbers")
    bias = as_shaped("f_proj_bias", f_proj_bias, len(weight))
    hidden = as_shaped("hidden_states", hidden_states, "...", "L", weight.shape[1])
    # The gate is computed in float64 and rounded once, to the dtype of the input.
    x, factors, offset = map(doubles, (hidden, weight, bias))
    logits = (x @ factors.T + offset).swapaxes(-1, -2)  # (..., H, L)
    # log f = -softplus(-z), which is finite where f itself rounds to 0.
    decay = like(-softplus(-logits), hidden)
    keywords = {"log_decay": decay, **causal("window_size", window_size)}
    return Recipe(keywords, partial(_forgetting_backward, weight, bias, hidden, logits))


def _forgetting_backward(
    weight: Array, bias: Array, hidden: Array, logits: Array, grads: Arrays
) -> Arrays:
    # The derivative of log f by z is 1 - f.
    grad = np.swapaxes(grads["log_decay"] / (1 + np.exp(logits)), -1, -2)  # (..., L, H)
    rows = grad.reshape(-1, len(bias))
    x = hidden.astype(np.float64)
    return {
        "f_proj_weight": like(rows.T @ x.reshape(-1, weight.shape[1]), weight),
        "f_proj_bias": like(rows.sum(axis=0), bias),
        "hidden_states": like(grad @ weight.astype(np.float64), hidden),
    }


# ---- PoPE --------------------------------------------------------------------------


class _Polar(NamedTuple):
    """Each number of x as a vector of its own, before its position rotates it."""

    x: Any  # as given
    bias: Any  # as given, or None
    size: Any  # softplus(x), of the computation's dtype
    cosine: Any  # of the bias, (H, 1, D) or (D,)
    sine: Any

    @property
    def vectors(self) -> Any:
        """The vectors, (..., L, 2D): the first components, then the second ones."""
        xp = namespace(self.size)
        return xp.concatenate([self.size * self.cosine, self.size * self.sine], axis=-1)

    def rotated(self, positions: Any, options: Keywords) -> Any:
        """Return the vectors, rotated by their positions, in the dtype of x."""
        vectors = self.vectors
        if is_tensor(vectors):
            return like(_rotated(vectors, positions, options), self.x)
        # `vectors` makes a new array, so that it can be rotated in its own memory.
        apply_rotary(vectors, positions, **options, out=vectors)
        return like(vectors, self.x)

    def backward(self, positions: Any, options: Keywords, grads: Arrays) -> Arrays:
        # The recipe has one argument, query or key, and so one gradient.
        (grad,) = grads.values()
        grad = grad.astype(self.size.dtype)
        # Back by the same angle: the gradient of the vectors before the rotation.
        rotated = apply_rotary_backward(grad, self.vectors, positions, **options)
        first, second = np.split(rotated.x, 2, axis=-1)
        # A change of the size moves a vector along its own direction, of angle `bias`.
        along = first * self.cosine + second * self.sine
        opened = 1 + np.exp(-native(self.x, grad.dtype))
        gradients = {"x": like(along / opened, self.x)}
        if self.bias is not None:
            # A change of the angle moves it across, by its size.
            across = self.size * (second * self.cosine - first * self.sine)
            heads = (-3,) if self.bias.ndim > 1 else ()
            # Sums over all axes that the bias lacks: all but the columns, and the heads
            # if it has them.
            axes = {*range(-across.ndim, 0)} - {-1, *heads}
            total = across.sum(axis=tuple(axes), dtype=np.float64)
            gradients["bias"] = like(total, self.bias)
        if rotated.inv_freq is not None:
            gradients["inv_freq"] = rotated.inv_freq
        return gradients


def _as_polar(x: Any, bias: Any) -> _Polar:
    rows = as_floating("x", x)
    at_least_ndim("x", rows, 2, "(..., L, D)")
    xp, wide = namespace(rows), singles_or_doubles(rows, rows)
    memory = np.dtype(f"f{wide.dtype.itemsize}")
    check_memory("x", (*rows.shape[:-1], 2 * rows.shape[-1]), memory)
    size = softplus(wide)
    if bias is None:
        # Without a bias the angle is 0, of cosine 1 and sine 0.
        parts = singles_or_doubles(xp.asarray(np.array([1.0, 0.0])), rows)
        return _Polar(rows, None, size, *parts)
    given = as_floating("bias", bias)
    expected = (*rows.shape[-1:],), (*rows.shape[-3:-2], rows.shape[-1])
    shapes = " or ".join(str(shape) for shape in dict.fromkeys(expected))
    fits = given.shape in expected
    check_shape("bias", given, fits, f"(D,) or (H, D), for x {shapes}")
    angles = doubles(given)
    if angles.ndim > 1:
        # The new axis is that of the positions.
        angles = angles[:, None]
    parts = (singles_or_doubles(x, rows) for x in (xp.cos(angles), xp.sin(angles)))
    return _Polar(rows, given, size, *parts)


def _rotated(vectors: Any, positions: Any, options: Keywords) -> Any:
    """Rotate tensors as `apply_rotary`, with the gradient of the frequencies too."""
    xp, columns, omega = namespace(vectors), vectors.shape[-1] // 2, options["inv_freq"]
    given: Keywords = dict.fromkeys(("angles", "magnitude", "rotary_dim"))
    given |= options
    given |= {"interleaved": False, "inverse": False}
    # checked as by apply_rotary, with arrays of these shapes in the memory of a number
    given["x"] = np.broadcast_to(np.float32(0), (*vectors.shape,))
    if omega is not None:
        shape = (*as_floating("inv_freq", omega).shape,)
        given["inv_freq"] = np.broadcast_to(np.float64(1), shape)
    given["positions"] = as_plain("positions", positions)
    where = as_rotation(**given).positions
    if omega is None:
        high, low = frequency_parts(2 * columns, options["base"], None, columns)
        omega = xp.asarray(high + low)
    # The angles are computed from the frequencies as given, since autograd goes through
    # them.
    angles = xp.asarray(where)[..., None] * doubles(omega)
    cosine, sine = (
        singles_or_doubles(x, vectors) for x in (angles.cos(), angles.sin())
    )
    # Columns c and D + c are a pair.
    first, second = vectors[..., :columns], vectors[..., columns:]
    rotated = first * cosine - second * sine, second * cosine + first * sine
    return xp.concatenate(rotated, axis=-1)


@overload
def pope(
    x: AnyTensor,
    positions: AnyTensor | None = None,
    *,
    bias: AnyTensor | None = None,
    inv_freq: AnyTensor | None = None,
    base: float = 10000.0,
    offset: float = 0,
    argument: None = None,
) -> AnyTensor: ...
@overload
def pope(
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    bias: ArrayLike | None = None,
    inv_freq: ArrayLike | None = None,
    base: float = 10000.0,
    offset: float = 0,
    argument: None = None,
) -> Array: ...
@overload
def pope(
    x: ArrayLike | Tensor,
    positions: ArrayLike | Tensor | None = None,
    *,
    bias: ArrayLike | Tensor | None = None,
    inv_freq: ArrayLike | Tensor | None = None,
    base: float = 10000.0,
    offset: float = 0,
    argument: str,
) -> Recipe: ...
@on_tensors
@quiet
def pope(
    x: ArrayLike | Tensor,
    positions: ArrayLike | Tensor | None = None,
    *,
    bias: ArrayLike | Tensor | None = None,
    inv_freq: ArrayLike | Tensor | None = None,
    base: float = 10000.0,
    offset: float = 0,
    argument: str | None = None,
) -> Array | Tensor | Recipe:
    r"""PoPE, a polar encoding of queries or keys: size for what, angle for where.

    .. math::

        y_{n,c} = softplus(x_{n,c}) \cos(n \omega_c + b_c), \quad
        y_{n,D+c} = softplus(x_{n,c}) \sin(n \omega_c + b_c), \quad
        \omega_c = base^{-c/D}

    Scores of queries and keys so encoded are sums over D columns of both sizes times
    the cosine of :math:`(j - i) \omega_c + b_c`. Attention is the plain one, over 2D
    columns, with the scale of D:

    ``attention(pope(q), pope(k, bias=b), v, scale=D**-0.5)``

    Backward, with g and h the gradients of columns c and D + c, θ their angle and
    :math:`\sigma` the logistic function,

    .. math::

        \bar x = \sigma(x) (g \cos\theta + h \sin\theta), \quad
        \bar b_c = \sum_n softplus(x) (h \cos\theta - g \sin\theta)

    Parameters
    ----------
    x : array_like of float, (..., L, D)
        Queries or keys.
    positions : array_like of int or float, optional
        As in `relpos.apply_rotary`, default 0, 1, ..., L - 1.
    bias : array_like of float, (D,) or (H, D), optional
        The learned angles of the keys, δ in the paper, which holds them to [-2π, 0].
        Default 0, as queries have it.
    inv_freq : array_like of float, (D,), optional
        The frequencies, instead of those of `base`: one for each column.
    base : float, default 10000
        Base of the frequencies.
    offset : float, default 0
        Added to the positions.
    argument : {"query", "key"}, optional
        Argument of `attention` that a recipe is wanted for, with the gradients of x,
        and of `bias` and `inv_freq` where they are given.

    Returns
    -------
    ndarray, (..., L, 2D), of x's dtype, or Recipe
        Queries or keys of `relpos.attention`; with `argument`, a recipe of them.

    References
    ----------
    .. [1] Gopalakrishnan et al., "Decoupling the 'What' and 'Where' With Polar
       Coordinate Positional Embeddings", 2025, arXiv:2509.10534.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import recipes
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 4))
    >>> relpos.attention(recipes.pope(q), recipes.pope(k), v, scale=4**-0.5).shape
    (2, 5, 4)
    >>> query = recipes.pope(q, argument="query")
    >>> key = recipes.pope(k, bias=np.zeros((2, 4)), argument="key")
    >>> encoded = {**query, **key, "value": v, "scale": 4**-0.5}
    >>> result = relpos.attention(**encoded, return_context=True)
    >>> gradients = result.context.backward(np.ones_like(result.out))
    >>> {name: x.shape for name, x in key.backward(gradients).items()}
    {'x': (2, 5, 4), 'bias': (2, 4)}
    """
    polar = _as_polar(x, bias)
    options: Keywords = {"inv_freq": inv_freq, "base": base, "offset": offset}
    rotated: Array | Tensor = polar.rotated(positions, options)
    if argument is None:
        return rotated
    name = as_choice("argument", argument, ("query", "key"))
    return Recipe({name: rotated}, partial(polar.backward, positions, options))
