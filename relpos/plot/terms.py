"""The terms of a score beside each other, and their sum."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relpos._attention.logits import scores
from relpos._attention.schemes import KEYWORDS, shows_keywords
from relpos._checks import Array, as_int
from relpos.plot.panel import (
    Look,
    Tokens,
    between,
    heat_map,
    look_of,
    name_pairs,
    panels_of,
    places_of,
    reach,
)

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

#: Of the parameters of `attention`, what `scores` does not take.
_OTHERS = (*(KEYWORDS.keys() - signature(scores).parameters.keys()),)
#: What stands above the panels, with the letters of `attention`.
_TITLES = {
    "content": "content\n$q_i k_j$",
    "pos_bias_u": "content bias\n$u\\,k_j$",
    "rel_key": "position\n$q_i A_l$",
    "pos_bias_v": "position bias\n$v A_l$",
    "position_query": "position query\n$p_i A_l$",
    "rel_query": "key's position\n$k_j C_l$",
    "softcap": "what the cap\nadds",
    "rel_bias": "bias\n$b_l$",
    "log_decay": "decay\n$\\sum g_t$",
    "mask": "mask",
}


@shows_keywords(_OTHERS)
def score_terms(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    head: int = 0,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    figure: Figure | None = None,
    **keywords: Any,
) -> npt.NDArray[np.object_]:
    """Each term of the scores of one head, and their sum, on one scale.

    Each term is a map as that of `score_map`: zero is white, what is hidden grey.

    Parameters
    ----------
    query : array_like, (H, Lq, D)
        One row for each query; axes of one batch item may come first.
    key : array_like, (Hk, Lk, D)
        One row for each key.
    head : int, default 0
        The head to draw.
    tokens : sequence of str, optional
        At both axes, one for each query and key.
    query_tokens, key_tokens : sequence of str, optional
        At one axis alone, in place of `tokens`.
    vmin, vmax : float, optional
        The numbers at the ends of the colours.
    cmap : str or Colormap, optional
        Other colours.
    title : str, optional
        Above the figure.
    figure : matplotlib.figure.Figure, optional
        Where new axes are made; a new figure by default.
    **keywords
        As of `relpos.scores`: tables, biases and masks.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (terms + 1,)
        The axes drawn into, in the order of `relpos.scores`, that of the sum last.

    Raises
    ------
    ValueError, TypeError, IndexError
        As `relpos.scores`; or if there is more than one batch item, or an argument of
        the picture has another length, value or kind than it says.

    See Also
    --------
    relpos.scores : The numbers that it draws, with ``terms=True``.
    score_map : Their sum alone.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> x = np.eye(3)[None]
    >>> panels = relpos.plot.score_terms(
    ...     x, x, rel_key=np.ones((5, 3)), pos_bias_u=np.ones(3), figure=Figure()
    ... )
    >>> [ax.get_title().split()[0] for ax in panels]
    ['content', 'content', 'position', 'sum']
    """
    terms = _of_one_head(scores(query, key, terms=True, **keywords), head)
    total: Array = np.sum([*terms.values()], axis=0)
    places = places_of(total.shape, tokens, query_tokens, key_tokens)
    look = look_of(vmin, vmax, cmap, title)
    drawn = {_TITLES[name]: term for name, term in terms.items()} | {"sum": total}
    farthest = max(map(reach, drawn.values()))
    one = Look(between(look.limits, farthest, 0.0), look.cmap)
    panels = panels_of(figure, len(drawn), 5, look, 2.6, places[1])
    for ax, (name, term) in zip(panels, drawn.items(), strict=True):
        heat_map("terms", term, ax, one, bar=False)
        ax.set_title(name)
        name_pairs(ax, places).label_outer()
    panels[0].figure.colorbar(panels[0].images[-1], ax=[*panels])
    return panels


def _of_one_head(terms: dict[str, Array], head: int) -> dict[str, Array]:
    """(Lq, Lk) of each term."""
    *batch, heads, rows, columns = terms["content"].shape
    if batch and set(batch) != {1}:
        raise ValueError(
            f"query: got {tuple(batch)} batch items; expected one, such as query[0]"
        )
    if not rows * columns:
        raise ValueError(
            f"query: got {rows} by {columns} scores; expected some to draw"
        )
    chosen = as_int("head", head, 0, heads - 1)
    return {n: t.reshape(heads, rows, columns)[chosen] for n, t in terms.items()}
