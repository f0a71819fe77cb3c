"""Models of speech and audio: tables of vectors, gates and projected positions."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np

from relpos._biases import t5_bucket
from relpos._checks import (
    Array,
    ArrayLike,
    DTypeLike,
    as_array,
    as_float_dtype,
    as_positive,
    check_memory,
    check_shape,
    quiet,
)
from relpos._encodings.absolute import sinusoidal
from relpos._text import amount
from relpos._twins import twin
from relpos.nn._inputs import join_heads, split_heads
from relpos.recipes._recipe import (
    Arrays,
    Keywords,
    Recipe,
    as_length,
    as_positions,
    as_projection,
    as_query,
    as_shaped,
    as_table,
    check_buckets,
    check_rows,
    projected,
    projected_backward,
    transformer_xl,
)
from relpos.recipes._tensors import (
    AnyTensor,
    Tensor,
    as_floating,
    as_plain,
    doubles,
    like,
    logistic,
    on_tensors,
    softplus,
)

__all__ = ["gemma3n_audio", "gemma4_audio", "parakeet", "vits"]
__all__ += ["wav2vec2_bert", "wavlm", "zipformer", "zipformer_positions"]

# ---- tables of vectors ---------------------------------------------------------------


@on_tensors
def vits(emb_rel_k: ArrayLike, emb_rel_v: ArrayLike) -> Keywords:
    r"""VITS's relative keys and values within a window, and none outside.

    .. math::

        s_{ij} = \frac{q_i (k_j + a^K_{j-i})}{\sqrt D}, \quad
        o_i = \sum_j p_{ij} (v_j + a^V_{j-i}), \quad
        a_r = 0 \text{ for } |r| > window

    Parameters
    ----------
    emb_rel_k, emb_rel_v : array_like, (1, 2 window + 1, D)
        One table for all heads; with H tables in place of 1, one for each.

    Returns
    -------
    dict
        `rel_key`, `rel_value` and `beyond`. The gradients of the two are those of the
        tables, without the first axis where it is 1.

    References
    ----------
    .. [1] Kim, Kong, Son, "Conditional Variational Autoencoder with Adversarial
       Learning for End-to-End Text-to-Speech", 2021, arXiv:2106.06103.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.vits(np.zeros((1, 9, 96)), np.zeros((1, 9, 96)))["rel_key"].shape
    (9, 96)
    """
    given = {"rel_key": ("emb_rel_k", emb_rel_k), "rel_value": ("emb_rel_v", emb_rel_v)}
    keywords: Keywords = {}
    expected = "(1, 2 window + 1, D)"
    for keyword, (name, value) in given.items():
        table = as_table(name, value, expected)
        check_shape(name, table, table.ndim == 3, expected)
        # A table of one for all heads has no axis of heads, so that its gradient is
        # summed.
        keywords[keyword] = table[0] if table.shape[0] == 1 else table
    return keywords | {"beyond": "zero"}


@on_tensors
def wav2vec2_bert(
    distance_embedding: ArrayLike,
    *,
    left_max_position_embeddings: int = 64,
    right_max_position_embeddings: int = 8,
) -> Keywords:
    r"""Wav2Vec2-BERT's ``relative_key``: more of the past than of the future.

    .. math:: s_{ij} = \frac{q_i (k_j + e_{clip(j - i, -left, right) + left})}{\sqrt D}

    Positions of the model's other kind, ``relative``, are those of `parakeet`.

    Parameters
    ----------
    distance_embedding : array_like, (left + right + 1, D)
        ``distance_embedding.weight``. Row 0 is relative position -left; its gradient is
        that of rel_key.
    left_max_position_embeddings, right_max_position_embeddings : int
        Values of the configuration: left and right in the formula, 0 or more.

    Returns
    -------
    dict
        `rel_key` and `min_relative_position`.

    References
    ----------
    .. [1] Barrault et al., "Seamless: Multilingual Expressive and Streaming Speech
       Translation", 2023, arXiv:2312.05187.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.wav2vec2_bert(np.zeros((73, 64)))["min_relative_position"]
    -64
    """
    left = as_length("left_max_position_embeddings", left_max_position_embeddings, 0)
    right = as_length("right_max_position_embeddings", right_max_position_embeddings, 0)
    expected = "(left + right + 1, D)"
    table = as_table("distance_embedding", distance_embedding, expected)
    fits = table.shape[-2] == left + right + 1
    expected += f", {left} + {right} + 1 rows"
    check_shape("distance_embedding", table, fits, expected)
    # A pair that is farther away than the table reaches takes its end row, by default.
    return {"rel_key": table, "min_relative_position": -left}


@on_tensors
@quiet
def parakeet(
    bias_u: ArrayLike, bias_v: ArrayLike, relative_k_proj: ArrayLike, length: int
) -> Recipe:
    r"""Parakeet's encoder: Conformer's attention of one length, in both directions.

    .. math::

        s_{ij} = \frac{(q_i + u) k_j + (q_i + v) r_{j-i}}{\sqrt D}, \quad
        r_n = W P_{-n}, \qquad \overline{W} = \sum_n \bar r_n P_{-n}^T

    with P the interleaved sinusoids. NeMo's FastConformer is the same, and so is
    Wav2Vec2-BERT with ``relative`` positions (``pos_bias_u``, ``pos_bias_v``,
    ``linear_pos``).

    Parameters
    ----------
    bias_u, bias_v : array_like, (H, D)
        Biases u and v that are added to the query for content and for positions.
    relative_k_proj : array_like, (H * D, E)
        ``relative_k_proj.weight``: W, the projection of the positions, E even.
    length : int
        Lq = Lk, at least 1.

    Returns
    -------
    Recipe
        `rel_key`, of 2 length - 1 rows, `pos_bias_u`, `pos_bias_v` and
        ``beyond="raise"``.

    References
    ----------
    .. [1] Rekesh et al., "Fast Conformer with Linearly Scalable Attention for Efficient
       Speech Recognition", 2023, arXiv:2305.05084.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> biases = np.zeros((2, 8, 64))
    >>> recipes.parakeet(*biases, np.zeros((512, 512)), 100)["rel_key"].shape
    (8, 199, 64)
    """
    u = as_shaped("bias_u", bias_u, "H", "D")
    v = as_shaped("bias_v", bias_v, *u.shape)
    weight = as_projection("relative_k_proj", relative_k_proj, math.prod(u.shape))
    reach = as_length("length", length) - 1
    check_rows("length", 2 * reach + 1, weight)
    # The model encodes query minus key, so that its rows descend where ours ascend.
    distances = np.arange(reach, -reach - 1, -1)
    rows = sinusoidal(distances, weight.shape[1], dtype=np.float64)
    return transformer_xl({"bias_u": u, "bias_v": v, "relative_k_proj": weight}, rows)


# ---- WavLM ---------------------------------------------------------------------------

#: Columns of the gate's layer: four are summed for each of its two numbers.
_SUMMED = 4


@on_tensors
@quiet
def wavlm(
    gru_rel_pos_const: ArrayLike,
    gru_rel_pos_linear_weight: ArrayLike,
    gru_rel_pos_linear_bias: ArrayLike,
    rel_attn_embed: ArrayLike,
    hidden_states: ArrayLike,
    *,
    max_distance: int = 800,
) -> Recipe:
    r"""WavLM's gated bias by bucket: a position query of one column.

    .. math::

        s_{ij} = \frac{q_i k_j}{\sqrt D} + g_{h,i} \, e_{bucket(j - i), h}, \quad
        g = a (b \, c_h - 1) + 2, \quad
        (a, b)_{h,i} = \sigma\Big(\sum_{m=1}^4 (W x_{h,i} + w)_m, \;
        \sum_{m=5}^8 (W x_{h,i} + w)_m\Big)

    with x the input of the layer, before any projection, cut into heads. Backward,

    .. math::

        \bar c_h = \sum_i \bar g_{h,i} \, a b, \quad
        \bar a = \bar g (b \, c_h - 1), \quad \bar b = \bar g \, a \, c_h

    and the gradient of `hidden_states` is the part through the gate: add it to the part
    through queries, keys and values.

    Parameters
    ----------
    gru_rel_pos_const : array_like, (1, H, 1, 1)
        Factor c of each head.
    gru_rel_pos_linear_weight : array_like, (8, D)
        ``gru_rel_pos_linear.weight``: weights W of the gate.
    gru_rel_pos_linear_bias : array_like, (8,)
        ``gru_rel_pos_linear.bias``: its biases w.
    rel_attn_embed : array_like, (num_buckets, H)
        ``rel_attn_embed.weight``: table e, that of the first layer in all layers.
    hidden_states : array_like, (..., L, H * D)
        The input of the layer.
    max_distance : int, default 800
        As in `relpos.t5_bucket`.

    Returns
    -------
    Recipe
        `rel_key`, of one column, `position_query` and `buckets`.

    Raises
    ------
    ValueError
        If the buckets leave no logarithmic range.

    References
    ----------
    .. [1] Chen et al., "WavLM: Large-Scale Self-Supervised Pre-Training for Full Stack
       Speech Processing", 2021, arXiv:2110.13900, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> gate = np.ones((1, 2, 1, 1)), np.zeros((8, 4)), np.zeros(8)
    >>> keywords = recipes.wavlm(*gate, np.zeros((320, 2)), np.zeros((5, 8)))
    >>> keywords["rel_key"].shape, keywords["position_query"].shape
    ((2, 320, 1), (2, 5, 1))
    """
    const = as_shaped("gru_rel_pos_const", gru_rel_pos_const, 1, "H", 1, 1)
    weight = as_shaped(
        "gru_rel_pos_linear_weight", gru_rel_pos_linear_weight, 2 * _SUMMED, "D"
    )
    bias = as_shaped("gru_rel_pos_linear_bias", gru_rel_pos_linear_bias, 2 * _SUMMED)
    embed = as_shaped("rel_attn_embed", rel_attn_embed, "num_buckets", const.shape[1])
    check_buckets("rel_attn_embed", embed, len(embed))
    hidden = as_floating("hidden_states", hidden_states)
    width = const.shape[1] * weight.shape[1]
    fits = hidden.ndim > 1 and hidden.shape[-1] == width and width > 0
    heads = amount(const.shape[1], "head")
    expected = f"(..., L, {width}), {heads} of {weight.shape[1]}"
    check_shape("hidden_states", hidden, fits, expected)
    reach = as_length("max_distance", max_distance)
    check_memory("max_distance", (2 * reach + 1,), np.dtype(np.int64))
    buckets = t5_bucket(
        np.arange(-reach, reach + 1), num_buckets=len(embed), max_distance=reach
    )
    gate = const, weight, bias, hidden
    gates = _gates(*gate)
    a, b = gates[..., :1], gates[..., 1:]
    position_query = a * (b * doubles(const[0]) - 1) + 2
    # One column for each bucket, with the heads first. The transpose of an array is
    # copied, to be contiguous.
    table = embed.T[..., None]
    keywords = {
        "rel_key": np.ascontiguousarray(table) if type(table) is np.ndarray else table,
        "position_query": like(position_query, hidden),
        "buckets": buckets,
    }
    return Recipe(keywords, partial(_wavlm_backward, gate, embed))


def _gates(const: Array, weight: Array, bias: Array, hidden: Array) -> Any:
    """Return the sigmoids a and b of each head and query, (..., H, L, 2)."""
    heads = split_heads(doubles(hidden), const.shape[1])
    # The sum of four outputs is the output of the sum of their rows and biases.
    offset = doubles(bias).reshape(2, _SUMMED).sum(axis=1)
    return logistic(heads @ _summed(weight).T + offset)


def _summed(weight: Array) -> Any:
    return doubles(weight).reshape(2, _SUMMED, -1).sum(axis=1)


def _wavlm_backward(
    gate: tuple[Array, Array, Array, Array], embed: Array, grads: Arrays
) -> Arrays:
    const, weight, bias, hidden = gate
    grad, gates = grads["position_query"], _gates(*gate)
    # c for each head, (H, 1, 1), which broadcasts over queries.
    factor = const[0].astype(np.float64)
    a, b = np.split(gates, 2, axis=-1)
    # forward: g = a (b c - 1) + 2, and (a, b) the sigmoids of summed x + bias
    opened = np.concatenate([grad * (b * factor - 1), grad * a * factor], axis=-1)
    opened *= gates * (1 - gates)
    # The heads, the third axis from the end, are the one axis that is not summed.
    at_const = (grad * a * b).sum(axis=(*range(grad.ndim - 3), -2, -1))
    rows = opened.reshape(-1, 2)
    heads = split_heads(hidden.astype(np.float64), const.shape[1])
    at_layer = rows.T @ heads.reshape(-1, heads.shape[-1])
    return {
        "gru_rel_pos_const": like(at_const.reshape(const.shape), const),
        # Each of the four summed rows has the gradient of the sum.
        "gru_rel_pos_linear_weight": like(np.repeat(at_layer, _SUMMED, axis=0), weight),
        "gru_rel_pos_linear_bias": like(np.repeat(rows.sum(axis=0), _SUMMED), bias),
        "rel_attn_embed": like(grads["rel_key"][..., 0].T, embed),
        "hidden_states": like(join_heads(opened @ _summed(weight)), hidden),
    }


# ---- Zipformer -----------------------------------------------------------------------


@overload
def zipformer_positions(
    positions: AnyTensor,
    dim: int,
    *,
    length_factor: float = 1.0,
    dtype: Any = np.float32,
) -> AnyTensor: ...
@overload
def zipformer_positions(
    positions: ArrayLike,
    dim: int,
    *,
    length_factor: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> Array: ...
@on_tensors
@quiet
def zipformer_positions(
    positions: ArrayLike | Tensor,
    dim: int,
    *,
    length_factor: float = 1.0,
    dtype: Any = np.float32,
) -> Array | Tensor:
    r"""Zipformer's compact encoding of relative positions n.

    .. math::

        a = \arctan\frac{2 \pi \, x}{f \, d}, \quad
        x = \sqrt d \; sign(n) \left(\log(|n| + \sqrt d) - \log \sqrt d\right)

    in columns cos(a), sin(a), cos(2a), sin(2a), .. of which the last is the constant 1.

    Parameters
    ----------
    positions : int or array_like
        Relative positions n; an int L stands for -(L - 1) .. L - 1.
    dim : int
        Columns, d, an even number.
    length_factor : float, default 1
        The factor f, positive: a larger one stretches the positions.
    dtype : {float32, float64}
        Dtype of the result; the encoding is computed in float64. One of torch asks for
        a tensor.

    Returns
    -------
    ndarray, (..., dim)
        A row for each position.

    References
    ----------
    .. [1] Yao et al., "Zipformer: A faster and better encoder for automatic speech
       recognition", 2023, arXiv:2310.11230.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.zipformer_positions([-1, 0, 1], 4, dtype="float64").round(3)
    array([[ 0.617, -0.787, -0.237,  1.   ],
           [ 1.   ,  0.   ,  1.   ,  1.   ],
           [ 0.617,  0.787, -0.237,  1.   ]])
    """
    columns = as_length("dim", dim, 2)
    if columns % 2:
        raise ValueError(f"dim: got {columns}; expected an even number")
    factor = as_positive("length_factor", length_factor)
    kind = as_float_dtype(dtype)
    n, root = as_positions(positions), math.sqrt(columns)
    plain = as_plain("positions", positions)
    if not n.ndim and as_array("positions", plain).dtype.kind in "iu":
        reach = as_length("positions", plain)
        check_memory("positions", (2 * reach - 1, columns), np.dtype(np.float64))
        # An integer array of one number is a length; a float is one position.
        n = np.arange(1.0 - reach, reach)
    check_memory("positions", (*n.shape, columns), np.dtype(np.float64))
    x = root * np.sign(n) * (np.log(np.abs(n) + root) - math.log(root))
    angle = np.arctan(x * (2 * math.pi / (factor * columns)))
    waves = angle[..., None] * np.arange(1, columns // 2 + 1)
    table = np.stack([np.cos(waves), np.sin(waves)], axis=-1)
    table = table.reshape(*n.shape, columns)
    # The constant takes the place of the last sine.
    table[..., -1] = 1
    return table.astype(kind)


@twin(zipformer_positions, titles=("References",))
@on_tensors
@quiet
def zipformer(
    linear_pos: ArrayLike,
    num_heads: int,
    query_length: int,
    key_length: int,
    *,
    length_factor: float = 1.0,
) -> Recipe:
    r"""Zipformer's scores by position, which a second query p multiplies, unscaled.

    .. math:: s_{ij} = q_i k_j + p_i r_{j - (i + L_k - L_q)}, \quad r_n = W e_n, \qquad
        \overline{W} = \sum_n \bar r_n e_n^T

    with e of `zipformer_positions`. Values come from a second module, and may have
    another width.

    Parameters
    ----------
    linear_pos : array_like, (H * P, E)
        ``linear_pos.weight``: W, the projection of the encoding, P columns for each
        head, E even.
    num_heads : int
        H.
    query_length, key_length : int
        Lq and Lk, at least 1; with cached frames before the queries Lk is larger.
    length_factor : float, default 1
        As in `zipformer_positions`; ``pos_emb``'s of the layer.

    Returns
    -------
    Recipe
        `rel_key`, `min_relative_position`, `query_offset`, ``beyond="raise"`` and
        `scale`. Pass in addition ``position_query=p``, the third part of ``in_proj`` in
        heads (B, H, Lq, P).

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.zipformer(np.zeros((16, 48)), 4, 5, 8)
    >>> keywords["rel_key"].shape, keywords["min_relative_position"]
    ((4, 12, 4), -7)
    """
    weight = as_projection("linear_pos", linear_pos, "H * P", "cosines and sines")
    heads = as_length("num_heads", num_heads)
    if len(weight) % heads:
        raise ValueError(
            f"linear_pos: got shape {(*weight.shape,)} for {amount(heads, 'head')}; "
            "expected (H * P, E)"
        )
    queries = as_length("query_length", query_length)
    keys = as_length("key_length", key_length)
    if keys < queries:
        raise ValueError(
            f"key_length: got {keys} for {amount(queries, 'query')}; expected at least "
            "as many keys, those of the queries and what was cached before"
        )
    check_rows("key_length", keys + queries - 1, weight)
    # Distances of the first query to the last key and of the last query to the first
    # one.
    distances, columns = np.arange(1 - keys, queries), weight.shape[1]
    own: Keywords = {"length_factor": length_factor, "dtype": np.float64}
    rows = zipformer_positions(distances, columns, **own)
    keywords = {
        "rel_key": projected(weight, rows, heads),
        "min_relative_position": 1 - keys,
        "query_offset": keys - queries,
        "beyond": "raise",
        "scale": 1.0,
    }
    return Recipe(keywords, partial(_zipformer_backward, weight, rows))


def _zipformer_backward(weight: Array, rows: Array, grads: Arrays) -> Arrays:
    return {"linear_pos": projected_backward(grads["rel_key"], rows, weight)}


# ---- the audio encoders of Gemma: Transformer-XL's scores under a cap ----------------

#: The factor of keys, and not of positions, in Gemma 4.
_KEY_SCALE = math.log(1 + math.e) / math.log(2)


@on_tensors
@quiet
def gemma3n_audio(
    per_dim_scale: ArrayLike,
    pos_proj: ArrayLike,
    query: ArrayLike,
    *,
    context_left: int = 13,
    context_right: int = 0,
    logit_cap: float = 50.0,
) -> Recipe:
    r"""Gemma 3n's audio attention: content and positions under one soft cap.

    .. math::

        s_{ij} = c \tanh\frac{q'_i k_j + q'_i r_{i-j}}{c}, \quad
        q' = \frac{q}{\sqrt D \log 2} \, softplus(\gamma), \quad r_n = W P_n, \quad
        -right \le i - j < left

    with P the sinusoids of :math:`10000^{-c / (E/2 - 1)}`, sines first. Backward,

    .. math::

        \bar\gamma = \sigma(\gamma) \sum q \, \bar q', \quad
        \bar q = softplus(\gamma) \, \bar q', \quad
        \overline{W} = \sum_n \bar r_n P_n^T

    Parameters
    ----------
    per_dim_scale : array_like, (D,)
        The scale of each column, before softplus.
    pos_proj : array_like, (H * D, E)
        ``relative_position_embedding.pos_proj.weight``: W, the projection of the
        positions, E even.
    query : array_like, (..., H, L, D)
        Queries, projected and in heads: q.
    context_left, context_right : int
        Sizes left, at least 1, and right: ``conf_attention_context_left`` and
        ``_right`` of the model's configuration. Its blocks change nothing.
    logit_cap : float, default 50.0
        Bound of the scores, positive: c.

    Returns
    -------
    Recipe
        `query`, `rel_key`, `min_relative_position`, `softcap`, `window` and `scale`.

    Notes
    -----
    A query whose window holds nothing but padding gives 0; in the model it has the mean
    of its block, padding included.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860.
    .. [2] Zhang et al., "Google USM: Scaling Automatic Speech Recognition Beyond 100
       Languages", 2023, arXiv:2303.01037.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> q = np.ones((8, 100, 64))
    >>> keywords = recipes.gemma3n_audio(np.zeros(64), np.zeros((512, 512)), q)
    >>> keywords["rel_key"].shape, keywords["window"], keywords["softcap"]
    ((8, 13, 64), (12, 0), 50.0)
    """
    past = as_length("context_left", context_left) - 1
    future = as_length("context_right", context_right, 0)
    given = per_dim_scale, "pos_proj", pos_proj, query
    return _checked(*given, past, -future, 1.0).recipe(
        min_relative_position=-past,
        softcap=as_positive("logit_cap", logit_cap),
        window=(past, future),
    )


@on_tensors
@quiet
def gemma4_audio(
    per_dim_scale: ArrayLike,
    relative_k_proj: ArrayLike,
    query: ArrayLike,
    *,
    chunk_size: int = 12,
    context_left: int = 13,
    context_right: int = 0,
    logit_cap: float = 50.0,
) -> Recipe:
    r"""Gemma 4's audio attention: scaled keys and positions, both under a soft cap.

    .. math::

        s_{ij} = c \tanh\frac{\kappa \, q'_i k_j + q'_i r_{i-j}}{c}, \quad
        q' = \frac{q}{\sqrt D \log 2} \, softplus(\gamma), \quad
        \kappa = \frac{\log(1 + e)}{\log 2}, \quad
        -\max(right - 1, 0) \le i - j \le left - 2

    and r = W P. The model has :math:`\lfloor C / 2 \rfloor + 1` rows of P for
    C = chunk + left - 1 + right, and gives row f, of distance C // 2 - f, to the pairs
    of j - i = f - (left - 1): the two agree where C // 2 = left - 1, as by default. A
    pair past the last row has no position term. Backward as `gemma3n_audio`, the
    gradient of W through :math:`r_{i-j} / \kappa`.

    Parameters
    ----------
    per_dim_scale : array_like, (D,)
        The scale of each column, before softplus.
    relative_k_proj : array_like, (H * D, E)
        ``relative_k_proj.weight``: W, the projection of the positions, E even.
    query : array_like, (..., H, L, D)
        Queries, projected and in heads: q.
    chunk_size, context_left, context_right : int
        Sizes chunk and left, at least 2, and right: ``attention_chunk_size``,
        ``attention_context_left`` and ``_right`` of the model's configuration.
    logit_cap : float, default 50.0
        Bound of the scores, positive: c.

    Returns
    -------
    Recipe
        `query`, `rel_key`, `min_relative_position`, `beyond`, `softcap`, `window` and
        `scale`.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> q = np.ones((8, 100, 64))
    >>> keywords = recipes.gemma4_audio(np.zeros(64), np.zeros((512, 512)), q)
    >>> keywords["rel_key"].shape, keywords["window"], keywords["beyond"]
    ((8, 13, 64), (11, 0), 'zero')
    """
    past = as_length("context_left", context_left, 2) - 1
    future = as_length("context_right", context_right, 0)
    # The distance of row 0 is C // 2; `past` is context_left - 1.
    last = (as_length("chunk_size", chunk_size) + past + future) // 2
    given = per_dim_scale, "relative_k_proj", relative_k_proj, query
    return _checked(*given, last, 0, _KEY_SCALE).recipe(
        min_relative_position=-past,
        beyond="zero",
        softcap=as_positive("logit_cap", logit_cap),
        # One key less on each side than for Gemma 3n.
        window=(past - 1, max(future - 1, 0)),
    )


class _Layer(NamedTuple):
    """The parameters and the query as given, and the encoding of the distances."""

    scale: Array
    name: str  # of the weight
    weight: Array
    query: Array
    rows: Array
    divisor: float  # of the projected rows, and the factor of the scale

    def recipe(self, **settings: Any) -> Recipe:
        heads, _, dim = self.query.shape[-3:]
        # The query takes the scale of each column. softplus(0) is log 2, by which
        # `scale` is divided below.
        factor = softplus(doubles(self.scale))
        rows = projected(self.weight, self.rows, heads)
        keywords = {
            "query": like(self.query * factor, self.query),
            "rel_key": like(rows / self.divisor, self.weight),
            **settings,
            # The factor of keys is in the scale, and the table is divided by it, so
            # that it is not on positions.
            "scale": dim**-0.5 / math.log(2) * self.divisor,
        }
        return Recipe(keywords, self.backward)

    def backward(self, grads: Arrays) -> Arrays:
        q, scale = self.query, self.scale.astype(np.float64)
        sums = (grads["query"] * q).sum(axis=tuple(range(q.ndim - 1)))
        table = 1 / self.divisor * grads["rel_key"]
        return {
            # The derivative of softplus is the logistic function.
            "per_dim_scale": like(sums / (1 + np.exp(-scale)), self.scale),
            self.name: projected_backward(table, self.rows, self.weight),
            "query": like(grads["query"] * np.logaddexp(0, scale), q),
        }


def _checked(
    scale: object,
    name: str,
    weight: object,
    query: object,
    first: int,
    last: int,
    divisor: float,
) -> _Layer:
    """Check the parameters and encode the distances from `first` down to `last`."""
    q = as_query(query)
    columns = as_shaped("per_dim_scale", scale, q.shape[-1])
    projection = as_projection(name, weight, q.shape[-3] * q.shape[-1])
    check_rows("context_left", first - last + 1, projection)
    count = projection.shape[1] // 2
    # Two columns have one wave, for which the exponent would divide by 0.
    waves = np.exp(-math.log(10000.0) / max(count - 1, 1) * np.arange(count))
    distances = np.arange(first, last - 1, -1)
    options: Keywords = {"inv_freq": waves, "layout": "concat", "dtype": np.float64}
    rows = sinusoidal(distances, projection.shape[1], **options)
    return _Layer(columns, name, projection, q, rows, divisor)
