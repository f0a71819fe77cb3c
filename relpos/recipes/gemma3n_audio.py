"""Gemma 3n's audio encoder: Transformer-XL's scores, local and capped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from relpos._checks import quiet
from relpos.recipes._audio import backward, checked, context, scaled
from relpos.recipes._settings import as_positive
from relpos.recipes._tables import Keywords, projected
from relpos.recipes.results import Gemma3nAudioGradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["gemma3n_audio", "gemma3n_audio_backward"]


@quiet
def gemma3n_audio(
    per_dim_scale: ArrayLike,
    pos_proj: ArrayLike,
    query: ArrayLike,
    *,
    context_left: int = 13,
    context_right: int = 0,
    logit_cap: float = 50.0,
) -> Keywords:
    r"""Gemma 3n's audio attention: content and positions under one soft cap.

    .. math::

        s_{ij} = c \tanh\frac{q'_i k_j + q'_i r_{i-j}}{c}, \quad
        q' = \frac{q}{\sqrt D \log 2} \, softplus(\gamma), \quad r_n = W P_n, \quad
        -right \le i - j < left

    with P the sinusoids of :math:`10000^{-c / (E/2 - 1)}`, sines first.

    Parameters
    ----------
    per_dim_scale : array_like, (D,)
        The scale of each column, before softplus.
    pos_proj : array_like, (H * D, E)
        W, the projection of the positions.
    query : array_like, (..., H, L, D)
        q, projected and in heads.
    context_left, context_right : int
        left, at least 1, and right, ``conf_attention_context_left`` and ``_right`` of
        the model's configuration. Its blocks change nothing.
    logit_cap : float, default 50.0
        c.

    Returns
    -------
    dict
        `query`, `rel_key`, `min_relative_position`, `softcap`, `window` and `scale`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, E is odd or the cap not positive.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    gemma3n_audio_backward : The gradients.
    gemma4_audio : Its successor, one key shorter.

    Notes
    -----
    =============================================  ===========  ===============
    ``Gemma3nAudioAttention``                      shape        here
    =============================================  ===========  ===============
    per_dim_scale                                  (D,)         `per_dim_scale`
    relative_position_embedding.pos_proj.weight    (H * D, E)   `pos_proj`
    =============================================  ===========  ===============

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
    past, future = context(context_left, context_right, 1)
    distances = past, -future
    layer = checked(per_dim_scale, "pos_proj", pos_proj, query, distances)
    return {
        "query": scaled(layer),
        "rel_key": projected(layer.weight, layer.rows, layer.query.shape[-3]),
        "min_relative_position": -past,
        "softcap": as_positive("logit_cap", logit_cap),
        "window": (past, future),
        "scale": layer.query.shape[-1] ** -0.5 / math.log(2),
    }


@quiet
def gemma3n_audio_backward(
    grad_query: ArrayLike,
    grad_rel_key: ArrayLike,
    per_dim_scale: ArrayLike,
    pos_proj: ArrayLike,
    query: ArrayLike,
    *,
    context_left: int = 13,
    context_right: int = 0,
    logit_cap: float = 50.0,
) -> Gemma3nAudioGradients:
    r"""Gradients of the parameters of `gemma3n_audio`, and of the query.

    .. math::

        \bar\gamma = \sigma(\gamma) \sum q \, \bar q', \quad
        \bar q = softplus(\gamma) \, \bar q', \quad
        \overline{W} = \sum_n \bar r_n P_n^T

    Parameters
    ----------
    grad_query : array_like, (..., H, L, D)
        Gradient of the query that the recipe returned.
    grad_rel_key : array_like, (H, left + right, D)
        Gradient of rel_key.
    per_dim_scale, pos_proj, query : as in `gemma3n_audio`
        The same.
    context_left, context_right, logit_cap : as in `gemma3n_audio`
        The same.

    Returns
    -------
    Gemma3nAudioGradients
        The named tuple (per_dim_scale, pos_proj, query), of their shapes.

    Raises
    ------
    TypeError, ValueError
        As `gemma3n_audio`, or if a gradient is of another shape.

    See Also
    --------
    gemma3n_audio : The forward.
    relpos.AttentionContext.backward : Where the gradients come from.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> given = np.zeros(64), np.zeros((512, 512)), np.ones((8, 100, 64))
    >>> gradients = np.ones((8, 100, 64)), np.ones((8, 13, 64))
    >>> recipes.gemma3n_audio_backward(*gradients, *given).pos_proj.shape
    (512, 512)
    """
    past, future = context(context_left, context_right, 1)
    distances = past, -future
    layer = checked(per_dim_scale, "pos_proj", pos_proj, query, distances)
    as_positive("logit_cap", logit_cap)
    return Gemma3nAudioGradients(*backward(layer, grad_query, grad_rel_key, 1.0))
