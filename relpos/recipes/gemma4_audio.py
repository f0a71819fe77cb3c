"""Gemma 4's audio encoder: keys scaled apart, and rows that the model shifts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from relpos._checks import POSITION_LIMIT, as_int, quiet
from relpos.recipes._audio import backward, checked, context, scaled
from relpos.recipes._settings import as_positive
from relpos.recipes._tables import Keywords, like, projected
from relpos.recipes.results import Gemma4AudioGradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["gemma4_audio", "gemma4_audio_backward"]

#: What keys are multiplied by, and positions not.
_KEY_SCALE = math.log(1 + math.e) / math.log(2)


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
) -> Keywords:
    r"""Gemma 4's audio attention: keys scaled beside positions, both under a soft cap.

    .. math::

        s_{ij} = c \tanh\frac{\kappa \, q'_i k_j + q'_i r_{i-j}}{c}, \quad
        q' = \frac{q}{\sqrt D \log 2} \, softplus(\gamma), \quad
        \kappa = \frac{\log(1 + e)}{\log 2}, \quad
        -\max(right - 1, 0) \le i - j \le left - 2

    and r = W P. The model has :math:`\lfloor C / 2 \rfloor + 1` rows of P for
    C = chunk + left - 1 + right, and gives row f, of distance C // 2 - f, to the pairs
    of j - i = f - (left - 1): the two agree where C // 2 = left - 1, as by default. A
    pair past the last row has no position term.

    Parameters
    ----------
    per_dim_scale : array_like, (D,)
        The scale of each column, before softplus.
    relative_k_proj : array_like, (H * D, E)
        W, the projection of the positions.
    query : array_like, (..., H, L, D)
        q, projected and in heads.
    chunk_size, context_left, context_right : int
        chunk and left, at least 2, and right: ``attention_chunk_size``,
        ``attention_context_left`` and ``_right`` of the model's configuration.
    logit_cap : float, default 50.0
        c.

    Returns
    -------
    dict
        `query`, `rel_key`, `min_relative_position`, `beyond`, `softcap`, `window` and
        `scale`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, E is odd or the cap not positive.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    gemma4_audio_backward : The gradients.
    gemma3n_audio : Its predecessor, one key longer.

    Notes
    -----
    =========================  ===========  =================
    ``Gemma4AudioAttention``   shape        here
    =========================  ===========  =================
    per_dim_scale              (D,)         `per_dim_scale`
    relative_k_proj.weight     (H * D, E)   `relative_k_proj`
    =========================  ===========  =================

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
    past, future, distances = _distances(chunk_size, context_left, context_right)
    layer = checked(per_dim_scale, "relative_k_proj", relative_k_proj, query, distances)
    table = projected(layer.weight, layer.rows, layer.query.shape[-3])
    return {
        "query": scaled(layer),
        "rel_key": like(table / _KEY_SCALE, layer.weight),
        "min_relative_position": -past,
        "beyond": "zero",
        "softcap": as_positive("logit_cap", logit_cap),
        "window": (past - 1, max(future - 1, 0)),
        "scale": layer.query.shape[-1] ** -0.5 / math.log(2) * _KEY_SCALE,
    }


@quiet
def gemma4_audio_backward(
    grad_query: ArrayLike,
    grad_rel_key: ArrayLike,
    per_dim_scale: ArrayLike,
    relative_k_proj: ArrayLike,
    query: ArrayLike,
    *,
    chunk_size: int = 12,
    context_left: int = 13,
    context_right: int = 0,
    logit_cap: float = 50.0,
) -> Gemma4AudioGradients:
    r"""Gradients of the parameters of `gemma4_audio`, and of the query.

    .. math::

        \bar\gamma = \sigma(\gamma) \sum q \, \bar q', \quad
        \bar q = softplus(\gamma) \, \bar q', \quad
        \overline{W} = \frac{1}{\kappa} \sum_f \bar A_f P_f^T, \quad A = W P / \kappa

    Parameters
    ----------
    grad_query : array_like, (..., H, L, D)
        Gradient of the query that the recipe returned.
    grad_rel_key : array_like, (H, C // 2 + 1, D)
        Gradient of rel_key, A in the formula.
    per_dim_scale, relative_k_proj, query : as in `gemma4_audio`
        The same.
    chunk_size, context_left, context_right, logit_cap : as in `gemma4_audio`
        The same.

    Returns
    -------
    Gemma4AudioGradients
        The named tuple (per_dim_scale, relative_k_proj, query), of their shapes.

    Raises
    ------
    TypeError, ValueError
        As `gemma4_audio`, or if a gradient is of another shape.

    See Also
    --------
    gemma4_audio : The forward.
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
    >>> recipes.gemma4_audio_backward(*gradients, *given).per_dim_scale.shape
    (64,)
    """
    _, _, distances = _distances(chunk_size, context_left, context_right)
    layer = checked(per_dim_scale, "relative_k_proj", relative_k_proj, query, distances)
    as_positive("logit_cap", logit_cap)
    factor = 1 / _KEY_SCALE
    return Gemma4AudioGradients(*backward(layer, grad_query, grad_rel_key, factor))


def _distances(
    chunk: object, left: object, right: object
) -> tuple[int, int, tuple[int, int]]:
    past, future = context(left, right, 2)
    size = as_int("chunk_size", chunk, 1, POSITION_LIMIT) + past + future
    return past, future, (size // 2, 0)
