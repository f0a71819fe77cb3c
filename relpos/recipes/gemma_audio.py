"""The audio encoders of Gemma 3n and Gemma 4: Transformer-XL's scores under a cap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpos._checks import POSITION_LIMIT, Array, as_floating, as_int, quiet
from relpos._encodings.absolute import sinusoidal
from relpos.recipes._recipe import Recipe
from relpos.recipes._settings import as_positive
from relpos.recipes._tables import (
    as_grad,
    as_shaped,
    check_rows,
    like,
    projected,
    projected_backward,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["gemma3n_audio", "gemma4_audio"]

#: What Gemma 4 multiplies keys by, and positions not.
_KEY_SCALE = math.log(1 + math.e) / math.log(2)


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
        W, the projection of the positions.
    query : array_like, (..., H, L, D)
        Queries, projected and in heads: q.
    context_left, context_right : int
        Keys that a query sees behind, itself among them, and ahead: left, at least 1,
        and right, ``conf_attention_context_left`` and ``_right`` of the model's
        configuration. Its blocks change nothing.
    logit_cap : float, default 50.0
        Bound of the scores: c.

    Returns
    -------
    Recipe
        `query`, `rel_key`, `min_relative_position`, `softcap`, `window` and `scale`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, E is odd or the cap not positive.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    Recipe.backward : The gradients of the parameters and the query.
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
    past, future = _context(context_left, context_right, 1)
    distances = past, -future
    given = per_dim_scale, "pos_proj", pos_proj, query
    layer = _checked(*given, distances, 1.0)
    keywords = {
        "query": layer.scaled(),
        "rel_key": layer.table(),
        "min_relative_position": -past,
        "softcap": as_positive("logit_cap", logit_cap),
        "window": (past, future),
        "scale": layer.query.shape[-1] ** -0.5 / math.log(2),
    }
    return Recipe(keywords, layer.backward)


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
    r"""Gemma 4's audio attention: keys scaled beside positions, both under a soft cap.

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
        W, the projection of the positions.
    query : array_like, (..., H, L, D)
        Queries, projected and in heads: q.
    chunk_size, context_left, context_right : int
        Sizes chunk and left, at least 2, and right: ``attention_chunk_size``,
        ``attention_context_left`` and ``_right`` of the model's configuration.
    logit_cap : float, default 50.0
        Bound of the scores: c.

    Returns
    -------
    Recipe
        `query`, `rel_key`, `min_relative_position`, `beyond`, `softcap`, `window` and
        `scale`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or shape, E is odd or the cap not positive.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    Recipe.backward : The gradients of the parameters and the query.
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
    given = per_dim_scale, "relative_k_proj", relative_k_proj, query
    layer = _checked(*given, distances, _KEY_SCALE)
    keywords = {
        "query": layer.scaled(),
        "rel_key": layer.table(),
        "min_relative_position": -past,
        "beyond": "zero",
        "softcap": as_positive("logit_cap", logit_cap),
        "window": (past - 1, max(future - 1, 0)),
        "scale": layer.query.shape[-1] ** -0.5 / math.log(2) * _KEY_SCALE,
    }
    return Recipe(keywords, layer.backward)


class _Layer(NamedTuple):
    """The parameters and the query as given, and the encoding of the distances."""

    scale: Array
    name: str  # of the weight
    weight: Array
    query: Array
    rows: Array
    divisor: float  # of the projected rows

    def scaled(self) -> Array:
        """Return the query times softplus of the scale of each column."""
        factor = np.logaddexp(0, self.scale.astype(np.float64))
        return like(self.query * factor, self.query)

    def table(self) -> Array:
        """Return the projected rows of each head."""
        rows = projected(self.weight, self.rows, self.query.shape[-3])
        return like(rows / self.divisor, self.weight)

    def backward(self, gradients: Mapping[str, Any]) -> dict[str, Array]:
        """Return the gradients of the parameters and of the query."""
        q, scale = self.query, self.scale.astype(np.float64)
        grad = as_grad("gradients.query", gradients.get("query"), q.shape)
        shape = (q.shape[-3], len(self.rows), q.shape[-1])
        table = as_grad("gradients.rel_key", gradients.get("rel_key"), shape)
        met = (grad * q).sum(axis=tuple(range(q.ndim - 1)))
        return {
            "per_dim_scale": like(met / (1 + np.exp(-scale)), self.scale),
            self.name: projected_backward(
                1 / self.divisor * table, self.rows, self.weight
            ),
            "query": like(grad * np.logaddexp(0, scale), q),
        }


def _context(left: object, right: object, least: int) -> tuple[int, int]:
    """Return the farthest keys behind and ahead that the model has a place for."""
    behind = as_int("context_left", left, least, POSITION_LIMIT)
    return behind - 1, as_int("context_right", right, 0, POSITION_LIMIT)


def _checked(
    scale: object,
    name: str,
    weight: object,
    query: object,
    ends: tuple[int, int],
    divisor: float,
) -> _Layer:
    """Check the parameters and encode the distances from ends[0] down to ends[1]."""
    q = as_floating("query", query)
    if q.ndim < 3 or not q.shape[-1]:
        raise ValueError(
            f"query: got shape {q.shape}; expected (..., H, L, D), D at least 1"
        )
    columns = as_shaped("per_dim_scale", scale, q.shape[-1])
    projection = as_shaped(name, weight, q.shape[-3] * q.shape[-1], "E")
    width = projection.shape[1]
    if width % 2 or not width:
        raise ValueError(
            f"{name}: got shape {projection.shape}; expected an even E, sines and "
            "cosines"
        )
    check_rows("context_left", ends[0] - ends[1] + 1, projection)
    count = width // 2
    waves = np.exp(-math.log(10000.0) / max(count - 1, 1) * np.arange(count))
    distances = np.arange(ends[0], ends[1] - 1, -1)
    rows = sinusoidal(
        distances, width, inv_freq=waves, layout="concat", dtype=np.float64
    )
    return _Layer(columns, name, projection, q, rows, divisor)


def _distances(
    chunk: object, left: object, right: object
) -> tuple[int, int, tuple[int, int]]:
    past, future = _context(left, right, 2)
    size = as_int("chunk_size", chunk, 1, POSITION_LIMIT) + past + future
    return past, future, (size // 2, 0)
