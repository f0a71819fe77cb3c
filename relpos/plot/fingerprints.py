"""What a scheme does to scores when all tokens are alike: its fingerprint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import relpos
from relpos._checks import Array, as_floating, as_int
from relpos.plot.drawn import EXAMPLES
from relpos.plot.panel import as_mapping, as_reals, heat_map, look_of, panels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    Scheme = str | Mapping[str, Any] | Callable[[Array], npt.ArrayLike] | npt.ArrayLike

_MOST = 4096  # queries
_WIDTH = 64  # columns of the tokens that are turned
#: Terms of tokens alone.
_CONTENT = ("content", "pos_bias_u")


def fingerprint(
    scheme: Scheme,
    length: int,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Scores that a scheme alone gives: what is left where all tokens are alike.

    Parameters
    ----------
    scheme : str, mapping, callable or array_like
        The name of an example with drawn tables: "alibi", "t5", "kerple", "fire",
        "shaw", "music", "transformer_xl", "deberta", "rotary", "sinusoidal". Or
        keywords of ``relpos.scores``, of which the first head is drawn and the terms of
        content are left out, for queries and keys of ones. Or a function of tokens
        (1, L, 64), such as ``relpos.apply_rotary``, called on ones. Or an encoding
        (L, dim), of which every row is multiplied with every other.
    length : int
        Queries and keys.
    vmin, vmax : float, optional
        The numbers at the ends of the colours; one of them alone leaves zero in the
        middle.
    cmap : str or Colormap, optional
        Other colours.
    title : str, optional
        Above the map.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If there is no such example, or an argument has another shape or value than it
        says.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    fingerprints : Several side by side.
    score_terms : The scores of real tokens.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> keywords = {"rel_bias": [-1.0, 0.0, -1.0], "is_causal": True}
    >>> ax = relpos.plot.fingerprint(keywords, 2, ax=Figure().subplots())
    >>> ax.images[0].get_array().filled(9).tolist()  # 9 is hidden
    [[0.0, 9.0], [-1.0, 0.0]]
    """
    look = look_of(vmin, vmax, cmap, title)
    scores = _scores("scheme", scheme, as_int("length", length, 1, _MOST))
    if look.limits == (None, None):  # a scale of its own: schemes are not compared
        farthest = float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)) or 1.0
        look = look._replace(limits=(-farthest, farthest))
    ax = heat_map("fingerprint", scores, ax, look)
    ax.set(xlabel="key j", ylabel="query i")
    return ax


def fingerprints(
    schemes: Mapping[str, Scheme] | None = None,
    length: int = 48,
    *,
    columns: int = 5,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    figure: Figure | None = None,
) -> npt.NDArray[np.object_]:
    """Draw the fingerprints of several schemes, each with a scale of its own.

    Parameters
    ----------
    schemes : mapping of str to scheme, optional
        Each as of `fingerprint`, by the title of its map; every example by default.
    length : int, default 48
        Queries and keys.
    columns : int, default 5
        Maps in a row.
    cmap : str or Colormap, optional
        Other colours.
    title : str, optional
        Above the figure.
    figure : matplotlib.figure.Figure, optional
        Where new axes are made; a new figure by default.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (n,)
        The axes drawn into, in the order of `schemes`.

    Raises
    ------
    ValueError
        If there is nothing to draw, or an argument has another shape or value than it
        says.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    fingerprint : One of them, and what a scheme may be.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> panels = relpos.plot.fingerprints({"RoPE": "rotary"}, 8, figure=Figure())
    >>> panels[0].get_title()
    'RoPE'
    """
    if schemes is None:
        schemes = {made.title: name for name, made in EXAMPLES.items()}
    schemes = as_mapping("schemes", schemes, "of titles to schemes")
    look, across = look_of(None, None, cmap, title), as_int("columns", columns, 1)
    count = as_int("length", length, 1, _MOST)
    for name, scheme in schemes.items():
        _scores(f"schemes[{name!r}]", scheme, count)  # refused before any is drawn
    panels = panels_of(figure, len(schemes), across, look, side=2.6)
    for ax, (name, scheme) in zip(panels, schemes.items(), strict=True):
        fingerprint(scheme, count, cmap=look.cmap, title=name, ax=ax).label_outer()
    return panels


def _scores(name: str, scheme: Scheme, length: int) -> Array:
    """(L, L) scores of one head, -inf where a pair is hidden."""
    if isinstance(scheme, str):
        if scheme not in EXAMPLES:
            known = ", ".join(map(repr, EXAMPLES))
            raise ValueError(f"{name}: got {scheme!r}; expected one of {known}")
        scheme = EXAMPLES[scheme].make(length)
    if isinstance(scheme, Mapping):
        return _of_keywords(name, scheme, length)
    if callable(scheme):
        tokens = np.ones((1, length, _WIDTH))
        turned = as_reals(f"{name}'s result", scheme(tokens))
        if turned.shape != tokens.shape:
            raise ValueError(
                f"{name}'s result: got shape {turned.shape}; expected {tokens.shape}"
            )
        found: Array = (turned @ np.swapaxes(turned, 1, 2))[0] / _WIDTH
        return found
    encoding = as_reals(name, scheme)
    if encoding.ndim != 2 or len(encoding) < length or not encoding.size:
        raise ValueError(
            f"{name}: got shape {encoding.shape}; expected an encoding, ({length}, dim)"
        )
    return encoding[:length] @ encoding[:length].T


def _of_keywords(name: str, keywords: Mapping[str, Any], length: int) -> Array:
    """All terms but those of content, for queries and keys of ones."""
    tables = {
        key: as_floating(key, value)
        for key, value in keywords.items()
        if key in _HEADS_AT and value is not None
    }
    heads = [x.shape[at] for k, x in tables.items() if x.ndim >= -(at := _HEADS_AT[k])]
    widths = [tables[key].shape[-1] for key in _WIDE if key in tables]
    tokens = np.ones((max(heads, default=1), length, widths[0] if widths else 1))
    if "terms" in keywords:
        raise TypeError(f"{name}: got terms; expected keywords of attention")
    terms = relpos.scores(tokens, tokens, terms=True, **keywords)
    left = [term for key, term in terms.items() if key not in _CONTENT]
    scores = np.sum(left, axis=0) if left else np.zeros_like(terms["content"])
    first: Array = scores.reshape(-1, length, length)[0]
    return first


#: Where operands have their heads, and which of them have the columns of the query.
_HEADS_AT = {
    **dict.fromkeys(("rel_key", "rel_query", "attn_mask", "position_query"), -3),
    **dict.fromkeys(("rel_bias", "pos_bias_u", "pos_bias_v", "log_decay"), -2),
}
_WIDE = ("rel_query", "pos_bias_u", "rel_key", "pos_bias_v")
