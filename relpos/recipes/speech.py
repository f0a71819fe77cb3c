"""Speech models with tables of vectors: VITS, Wav2Vec2-BERT and Parakeet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import POSITION_LIMIT, Array, as_int, quiet
from relpos._encodings.absolute import sinusoidal
from relpos.recipes._tables import (
    Keywords,
    as_grad,
    as_shaped,
    as_table,
    check_rows,
    like,
    projected,
    projected_backward,
)
from relpos.recipes.results import ParakeetGradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["parakeet", "parakeet_backward", "vits", "wav2vec2_bert"]


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

    Raises
    ------
    TypeError, ValueError
        If a table is of another kind or not of three axes.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.shaw_attention : The same, clipped at the window's ends.

    Notes
    -----
    =================  =====================  ===========
    ``VitsAttention``  shape                  here
    =================  =====================  ===========
    emb_rel_k          (1, 2 window + 1, D)   `emb_rel_k`
    emb_rel_v          (1, 2 window + 1, D)   `emb_rel_v`
    =================  =====================  ===========

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
    keywords: Keywords = {}
    for keyword, name, value in (
        ("rel_key", "emb_rel_k", emb_rel_k),
        ("rel_value", "emb_rel_v", emb_rel_v),
    ):
        table = as_table(name, value, "(1, 2 window + 1, D)")
        if table.ndim != 3:
            raise ValueError(
                f"{name}: got shape {table.shape}; expected (1, 2 window + 1, D)"
            )
        keywords[keyword] = table[0] if table.shape[0] == 1 else table
    return keywords | {"beyond": "zero"}


def wav2vec2_bert(
    distance_embedding: ArrayLike,
    *,
    left_max_position_embeddings: int = 64,
    right_max_position_embeddings: int = 8,
) -> Keywords:
    r"""Wav2Vec2-BERT's ``relative_key``: more of the past than of the future.

    .. math:: s_{ij} = \frac{q_i (k_j + e_{clip(j - i, -left, right) + left})}{\sqrt D}

    Parameters
    ----------
    distance_embedding : array_like, (left + right + 1, D)
        Row 0 is relative position -left; its gradient is that of rel_key.
    left_max_position_embeddings, right_max_position_embeddings : int
        Of the configuration: left and right in the formula.

    Returns
    -------
    dict
        `rel_key` and `min_relative_position`.

    Raises
    ------
    TypeError, ValueError
        If the table does not have left + right + 1 rows, or one of these is negative.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    parakeet : What the model's other kind of positions, ``relative``, is.
    relpos.shaw_attention : As far to the left as to the right.

    Notes
    -----
    =============================  =======================  ====================
    ``Wav2Vec2BertSelfAttention``  shape                    here
    =============================  =======================  ====================
    distance_embedding.weight      (left + right + 1, D)    `distance_embedding`
    =============================  =======================  ====================

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
    left, right = (
        as_int(f"{side}_max_position_embeddings", value, 0, POSITION_LIMIT)
        for side, value in (
            ("left", left_max_position_embeddings),
            ("right", right_max_position_embeddings),
        )
    )
    wanted = "(left + right + 1, D)"
    table = as_table("distance_embedding", distance_embedding, wanted)
    if table.shape[-2] != left + right + 1:
        raise ValueError(
            f"distance_embedding: got shape {table.shape}; expected {wanted}, "
            f"{left} + {right} + 1 rows"
        )
    return {"rel_key": table, "min_relative_position": -left}


@quiet
def parakeet(
    bias_u: ArrayLike, bias_v: ArrayLike, relative_k_proj: ArrayLike, length: int
) -> Keywords:
    r"""Parakeet's encoder: Conformer's attention of one length, in both directions.

    .. math::

        s_{ij} = \frac{(q_i + u) k_j + (q_i + v) r_{j-i}}{\sqrt D}, \quad
        r_n = W P_{-n}

    with P the interleaved sinusoids. NeMo's FastConformer is the same, and so is
    Wav2Vec2-BERT with ``relative`` positions (``pos_bias_u``, ``pos_bias_v``,
    ``linear_pos``).

    Parameters
    ----------
    bias_u, bias_v : array_like, (H, D)
        What joins the query before content and positions.
    relative_k_proj : array_like, (H * D, E)
        W, the projection of the positions.
    length : int
        Lq = Lk, at least 1.

    Returns
    -------
    dict
        `rel_key`, of 2 length - 1 rows, `pos_bias_u` and `pos_bias_v`.

    Raises
    ------
    TypeError, ValueError
        If a parameter has another shape, E is odd or `length` less than 1.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    parakeet_backward : The gradients.
    relpos.transformer_xl_attention : With positions projected by the caller.

    Notes
    -----
    ============================  ===========  =================
    ``ParakeetEncoderAttention``  shape        here
    ============================  ===========  =================
    bias_u                        (H, D)       `bias_u`
    bias_v                        (H, D)       `bias_v`
    relative_k_proj.weight        (H * D, E)   `relative_k_proj`
    ============================  ===========  =================

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
    u, v, weight, rows = _parakeet(bias_u, bias_v, relative_k_proj, length)
    table = projected(weight, rows, len(u))
    return {"rel_key": table, "pos_bias_u": u, "pos_bias_v": v}


@quiet
def parakeet_backward(
    grad_rel_key: ArrayLike,
    grad_pos_bias_u: ArrayLike,
    grad_pos_bias_v: ArrayLike,
    bias_u: ArrayLike,
    bias_v: ArrayLike,
    relative_k_proj: ArrayLike,
    length: int,
) -> ParakeetGradients:
    r"""Gradients of the parameters of `parakeet`.

    .. math:: \overline{W} = \sum_n \bar r_n P_{-n}^T

    Parameters
    ----------
    grad_rel_key : array_like, (H, 2 length - 1, D)
        Gradient of rel_key.
    grad_pos_bias_u, grad_pos_bias_v : array_like, (H, D)
        Gradients of pos_bias_u and pos_bias_v, which are those of u and v.
    bias_u, bias_v, relative_k_proj, length : as in `parakeet`
        The same.

    Returns
    -------
    ParakeetGradients
        The named tuple (bias_u, bias_v, relative_k_proj), of their shapes.

    Raises
    ------
    TypeError, ValueError
        As `parakeet`, or if a gradient is of another shape.

    See Also
    --------
    parakeet : The forward.
    relpos.AttentionContext.backward : Where the gradients come from.

    References
    ----------
    .. [1] Rekesh et al., "Fast Conformer with Linearly Scalable Attention for Efficient
       Speech Recognition", 2023, arXiv:2305.05084.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> given = *np.zeros((2, 8, 64)), np.zeros((512, 512)), 100
    >>> gradients = np.ones((8, 199, 64)), *np.ones((2, 8, 64))
    >>> recipes.parakeet_backward(*gradients, *given).relative_k_proj.shape
    (512, 512)
    """
    u, v, weight, rows = _parakeet(bias_u, bias_v, relative_k_proj, length)
    table = as_grad("grad_rel_key", grad_rel_key, (len(u), len(rows), u.shape[1]))
    return ParakeetGradients(
        like(as_grad("grad_pos_bias_u", grad_pos_bias_u, u.shape), u),
        like(as_grad("grad_pos_bias_v", grad_pos_bias_v, v.shape), v),
        projected_backward(table, rows, weight),
    )


def _parakeet(
    bias_u: object, bias_v: object, relative_k_proj: object, length: object
) -> tuple[Array, Array, Array, Array]:
    """Return the parameters, checked, and the encoding of every distance (R, E)."""
    u = as_shaped("bias_u", bias_u, "H", "D")
    v = as_shaped("bias_v", bias_v, *u.shape)
    weight = as_shaped("relative_k_proj", relative_k_proj, u.size, "E")
    if weight.shape[1] % 2 or not weight.size:
        raise ValueError(
            f"relative_k_proj: got shape {weight.shape}; expected an even E, sines and "
            "cosines"
        )
    reach = as_int("length", length, 1, POSITION_LIMIT) - 1
    check_rows("length", 2 * reach + 1, weight)
    distances = np.arange(reach, -reach - 1, -1)
    rows = sinusoidal(distances, weight.shape[1], dtype=np.float64)
    return u, v, weight, rows
