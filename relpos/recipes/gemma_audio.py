"""The audio encoders of Gemma 3n and Gemma 4: Transformer-XL's scores under a cap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relpos._checks import Array, quiet
from relpos._encodings.absolute import sinusoidal
from relpos.recipes._recipe import (
    Keywords,
    Recipe,
    as_length,
    as_positive,
    as_projection,
    as_query,
    as_shaped,
    check_rows,
    like,
    projected,
    projected_backward,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


#: The factor of keys, and not of positions, in Gemma 4.
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
    layer = _checked(*given, past, -future, 1.0)
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
    last = (as_length("chunk_size", chunk_size) + past + future) // 2
    given = per_dim_scale, "relative_k_proj", relative_k_proj, query
    layer = _checked(*given, last, 0, _KEY_SCALE)
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
    """The parameters and the query as given, and the encoding of the distances.

    Pickles of recipes name this class, its fields in this order, and `backward`.
    """

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

    def backward(self, grads: dict[str, Array]) -> dict[str, Array]:
        """Return the gradients of the parameters and of the query."""
        q, scale = self.query, self.scale.astype(np.float64)
        sums = (grads["query"] * q).sum(axis=tuple(range(q.ndim - 1)))
        table = 1 / self.divisor * grads["rel_key"]
        return {
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
    waves = np.exp(-math.log(10000.0) / max(count - 1, 1) * np.arange(count))
    distances = np.arange(first, last - 1, -1)
    options: Keywords = {"inv_freq": waves, "layout": "concat", "dtype": np.float64}
    rows = sinusoidal(distances, projection.shape[1], **options)
    return _Layer(columns, name, projection, q, rows, divisor)
