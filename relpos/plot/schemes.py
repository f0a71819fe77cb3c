"""Encodings and schemes on their own: maps of columns, of scores, of grids, audits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

import relpos
from relpos._checks import (
    as_choice,
    as_flag,
    as_floating,
    as_int,
    as_integers,
    check_shape,
)
from relpos._encodings.audit import EncodingAudit, Finding
from relpos._encodings.rotary_scaling import rotary_frequencies
from relpos._suggestions import as_scheme
from relpos.plot import panel
from relpos.plot.panel import Array, GridOptions, Look, Options, Panel, Tokens

__all__ = ["audit", "encoding_map", "encoding_maps", "fingerprint", "fingerprints"]
__all__ += ["grid_bias", "rotary_wheel"]

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from relpos._schemes import SchemeName

    Scheme: TypeAlias = (
        SchemeName
        | Mapping[str, Any]
        | Callable[[Array], npt.ArrayLike]
        | npt.ArrayLike
    )

_MOST = 4096  # queries of a fingerprint
_WIDTH = 64  # columns of the tokens that functions get
_COLUMNS = 16  # columns of random tables
#: Terms of tokens alone.
_CONTENT = ("content", "pos_bias_u")
#: The axis of the heads of operands, and those with the columns of the query.
_HEADS_AT = {
    **dict.fromkeys(("rel_key", "rel_query", "attn_mask", "position_query"), -3),
    **dict.fromkeys(("rel_bias", "pos_bias_u", "pos_bias_v", "log_decay"), -2),
}
_WIDE = ("rel_query", "pos_bias_u", "rel_key", "pos_bias_v")
_TABLE = "two axes, (L, dim)"


@panel.picture()
def encoding_map(
    encoding: npt.ArrayLike | None = None,
    *,
    tokens: Tokens | None = None,
    positions_on: str = "y",
    **options: Unpack[Options],
) -> Axes:
    """Heat map of an encoding: one row per position, one column per dimension.

    Zero is white, negative numbers are blue and positive ones red. All encodings in a
    figure have one scale, that of the largest number, so that indices up to 9 do not
    look like the same indices normalised to 1.

    Parameters
    ----------
    encoding : array_like of real, (L, dim), optional
        ``relpos.sinusoidal(64, 32)`` by default. Numbers that are not finite are grey.
    tokens : sequence of str, optional
        At the positions, one for each.
    positions_on : {"y", "x"}, default "y"
        The axis of the positions; "x" transposes the map.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> left, right = Figure().subplots(1, 2)
    >>> _ = relpos.plot.encoding_map(relpos.index_encoding(10, 4), ax=left)
    >>> _ = relpos.plot.encoding_map(relpos.normalized_index_encoding(10, 4), ax=right)
    >>> [tuple(map(float, ax.images[0].get_clim())) for ax in (left, right)]
    [(-9.0, 9.0), (-9.0, 9.0)]
    """
    if encoding is None:
        encoding = relpos.sinusoidal(64, 32)
    array = panel.as_shaped("encoding", encoding, 2, _TABLE)
    places = panel.as_tokens("tokens", tokens, len(array))
    look = panel.look_of(**options)
    # Checked before anything is drawn.
    upright = as_choice("positions_on", positions_on, ("y", "x")) == "y"
    return _draw(array, places, upright, look)


def _draw(
    array: Array, places: list[str] | None, upright: bool, look: Look, bar: bool = True
) -> Axes:
    # The map has positions in rows, and the transpose has them in columns.
    shown = array if upright else array.T
    ax = panel.heat_map(shown, look, "encoding", bar=bar, aspect="auto")
    names = ("dimension", "position") if upright else ("position", "dimension")
    ax.set(xlabel=names[0], ylabel=names[1])
    panel.name_places(ax.yaxis if upright else ax.xaxis, places)
    return ax


@panel.picture(GridOptions)
def encoding_maps(
    encodings: Mapping[str, npt.ArrayLike],
    *,
    share_scale: bool = True,
    tokens: Tokens | Mapping[str, Tokens] | None = None,
    positions_on: str = "y",
    columns: int = 4,
    **options: Unpack[GridOptions],
) -> npt.NDArray[np.object_]:
    """Heat map of each of several encodings, on one scale or each on its own.

    Maps with one scale have one colour bar.

    Parameters
    ----------
    encodings : mapping of str to array_like of real, (L, dim)
        Each as of `encoding_map`, by the title of its map.
    share_scale : bool, default True
        Let a colour be the same number in all maps.
    tokens : sequence of str or mapping of str to such, optional
        At the positions of every map, or of each by its title.
    positions_on : {"y", "x"}, default "y"
        The axis of the positions.
    columns : int, default 4
        Maps in a row.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (n,)
        The axes drawn into, in the order of `encodings`.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> panels = relpos.plot.encoding_maps(
    ...     {"index": [[0.0], [9.0]], "to 1": [[0.0], [1.0]]}, figure=Figure()
    ... )
    >>> [tuple(map(float, ax.images[0].get_clim())) for ax in panels]
    [(-9.0, 9.0), (-9.0, 9.0)]
    """
    encodings = panel.as_mapping("encodings", encodings, "of titles to encodings")
    arrays = {
        n: panel.as_shaped(f"encodings[{n!r}]", x, 2, _TABLE)
        for n, x in encodings.items()
    }
    places = _places_by_title(tokens, arrays)
    upright = as_choice("positions_on", positions_on, ("y", "x")) == "y"
    look, across = panel.look_of(**options), as_int("columns", columns, 1)
    # Given limits are those of all maps, which then share a scale in any case.
    shared = as_flag("share_scale", share_scale) or None not in look.limits
    farthest = {name: panel.reach(array) for name, array in arrays.items()}
    most = max(farthest.values())
    panels = panel.panels_of(look, len(arrays), across)
    for ax, (name, array) in zip(panels, arrays.items(), strict=True):
        limits = panel.between(look.limits, most if shared else farthest[name], 0.0)
        own = Look(limits, look.cmap, str(name), ax)
        # Maps with scales of their own need a colour bar each.
        _draw(array, places[name], upright, own, bar=not shared)
    return panel.share_bar(panels) if shared else panels


def _places_by_title(
    tokens: Tokens | Mapping[str, Tokens] | None, arrays: Mapping[str, Array]
) -> dict[str, list[str] | None]:
    """Return labels of the positions of each map; a mapping may leave some out."""
    if not isinstance(tokens, Mapping):
        return {n: panel.as_tokens("tokens", tokens, len(x)) for n, x in arrays.items()}
    # A title that no encoding has would be left out without a word.
    unknown = [name for name in tokens if name not in arrays]
    if unknown:
        raise ValueError(f"tokens: got {unknown[0]!r}; expected titles of encodings")
    return {
        n: panel.as_tokens(f"tokens[{n!r}]", tokens.get(n), len(x))
        for n, x in arrays.items()
    }


@panel.picture(Panel)
def audit(
    audits: EncodingAudit | Mapping[str, EncodingAudit], **options: Unpack[Panel]
) -> Axes:
    """Table of the requirements that encodings meet (blue) and do not meet (red).

    Each cell has the verdict, the number measured and its limit. A requirement that
    could not be measured is grey.

    Parameters
    ----------
    audits : EncodingAudit or mapping of str to EncodingAudit
        Results of ``relpos.audit_encoding``, of one encoding or of several by name.
    cmap : str or Colormap, optional
        Its first colour is that of requirements not met, its last that of others.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> found = relpos.audit_encoding(relpos.index_encoding, lengths=(8, 16), dim=4)
    >>> ax = relpos.plot.audit({"indices": found}, ax=Figure().subplots())
    >>> ax.texts[4].get_text().splitlines()  # are its numbers small?
    ['no', '15 <= 1']
    """
    rows = _audits(audits)
    # The numbers of cells are 0, 1 or nan, whatever was measured.
    look = panel.look_of(**options)._replace(limits=(0.0, 1.0))
    cells, met = [], []
    for row in rows.values():
        cells.append([_cell(finding) for finding in row])
        # What could not be measured is neither met nor not.
        met.append([np.nan if np.isnan(x.value) else x.met for x in row])
    if look.cmap is None:
        from matplotlib.colors import ListedColormap

        # The first colour is that of a requirement not met, hence the reverse order.
        look = look._replace(cmap=ListedColormap(panel.colours_of(2, look)[::-1]))
    ax = panel.heat_map(np.array(met, float), look, bar=False, aspect="auto")
    panel.write_numbers(ax, np.array(cells))
    ax.set_xticks(range(len(EncodingAudit._fields)), EncodingAudit._fields)
    ax.set_yticks(range(len(rows)), [*rows])
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    # White lines between the cells.
    for edge in np.arange(0.5, len(rows) - 1):
        ax.axhline(edge, color="white", linewidth=2)
    for edge in np.arange(0.5, len(EncodingAudit._fields) - 1):
        ax.axvline(edge, color="white", linewidth=2)
    return ax


def _audits(audits: object) -> dict[str, EncodingAudit]:
    if isinstance(audits, EncodingAudit):
        return {"": audits}
    named = panel.as_mapping("audits", audits, "of names to audits, or one")
    return {
        str(n): panel.as_result(f"audits[{n!r}]", one, EncodingAudit, "audit_encoding")
        for n, one in named.items()
    }


def _cell(finding: Finding) -> str:
    if np.isnan(finding.value):
        return "not\nmeasured"
    verdict = "yes" if finding.met else "no"
    return f"{verdict}\n{finding.value:.3g} {finding.relation} {finding.limit:.2g}"


@panel.picture(Panel)
def rotary_wheel(
    dim: int = 8,
    positions: npt.ArrayLike | None = None,
    *,
    base: float = 10000.0,
    inv_freq: npt.ArrayLike | None = None,
    **options: Unpack[Panel],
) -> Axes:
    """Angles by which positions rotate the pairs of columns, a ring for each pair.

    The first pair, which rotates fastest, is the innermost ring.

    Parameters
    ----------
    dim : int, default 8
        Columns that are rotated, even.
    positions : array_like of real, (L,), optional
        The positions, a dot on each ring; 0 to 7 by default.
    base : float, default 10000.0
        As of ``relpos.apply_rotary``.
    inv_freq : array_like of real, (dim / 2,), optional
        Frequencies in place of those of `base`.
    cmap : str or Colormap, optional
        Colours of the positions; viridis by default.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.rotary_wheel(4, [0, 1, 2], ax=Figure().subplots())
    >>> ax.collections[1].get_offsets()[0].tolist()  # position 0 in the second ring
    [2.0, 0.0]
    """
    if positions is None:
        positions = np.arange(8)
    places = panel.as_shaped("positions", positions, 1, "one axis, (L,)")
    look = panel.look_of(**options)
    frequencies = rotary_frequencies(dim, base=base)
    if inv_freq is not None:
        expected = frequencies.shape
        frequencies = panel.as_shaped("inv_freq", inv_freq, 1, panel.FREQUENCIES)
        check_shape("inv_freq", frequencies, frequencies.shape == expected, expected)
    ax = panel.axes_of(look)
    # A circle for each pair, drawn once around.
    circle = np.linspace(0.0, 2 * np.pi, 200)
    for radius, frequency in enumerate(frequencies, 1):
        ax.plot(radius * np.cos(circle), radius * np.sin(circle), color="lightgrey")
        angles = places * frequency
        x, y = radius * np.cos(angles), radius * np.sin(angles)
        dots = ax.scatter(x, y, c=places, cmap=look.cmap or "viridis", zorder=3)
    ax.figure.colorbar(dots, ax=ax, label="position")
    ring = "a ring for each pair of columns"
    ax.set(aspect="equal", xticks=[], yticks=[], xlabel=ring)
    return ax


def _random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape)


def _kerple(length: int) -> dict[str, Any]:
    return {"rel_bias": relpos.kerple_bias([1.0], [1.0], length)}


def _fire(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    w1, b1, w2 = 4 * rng.standard_normal(32), rng.standard_normal(32), _random(1, 32)
    bias = relpos.fire_bias(w1, b1, w2, np.zeros(1), 1.0, 1.0, length)
    # The mean of a bias is nothing to the softmax, and the scale then has 0 in its
    # middle.
    return {"attn_mask": bias - bias.mean(), "is_causal": True}


def _music(length: int) -> dict[str, Any]:
    settings = {"min_relative_position": 1 - length, "is_causal": True}
    return {"rel_key": _random(length, _COLUMNS), **settings}


def _transformer_xl(length: int) -> dict[str, Any]:
    # A sinusoid for each relative position is a row of the table.
    encoding = relpos.sinusoidal(np.arange(1.0 - length, length), _COLUMNS)
    return {"rel_key": encoding, "pos_bias_v": _random(_COLUMNS)}


def _deberta(length: int) -> dict[str, Any]:
    places, size = np.arange(1 - length, length), 16
    # Buckets are signed: the middle row of the table is that of distance 0.
    signed = relpos.deberta_bucket(places, bucket_size=size, max_position=4 * size)
    key, query = _random(2, 2 * size, _COLUMNS)
    settings = {"buckets": signed + size, "min_relative_position": 1 - length}
    return {"rel_key": key, "rel_query": query, **settings}


def _alibi(length: int) -> dict[str, Any]:
    return {"rel_bias": relpos.alibi_bias([0.25], length)}


def _t5(length: int) -> dict[str, Any]:
    return {"rel_bias": relpos.t5_bias(_random(32, 1), length)}


def _shaw(length: int) -> dict[str, Any]:
    return {"rel_key": _random(17, _COLUMNS)}


def _rotary(length: int) -> Callable[..., Any]:
    return relpos.apply_rotary


def _sinusoidal(length: int) -> Any:
    return relpos.sinusoidal(length, 64)


#: Titles of schemes with random tables, and what makes one for a length.
EXAMPLES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "alibi": ("ALiBi", _alibi),
    "t5": ("T5", _t5),
    "kerple": ("KERPLE, logarithmic", _kerple),
    "fire": ("FIRE, causal", _fire),
    "shaw": ("Shaw, k = 8", _shaw),
    "music": ("Music Transformer", _music),
    "transformer_xl": ("Transformer-XL", _transformer_xl),
    "deberta": ("DeBERTa", _deberta),
    "rotary": ("RoPE", _rotary),
    "sinusoidal": ("sinusoids", _sinusoidal),
}


@panel.picture()
def fingerprint(scheme: Scheme, length: int = 48, **options: Unpack[Options]) -> Axes:
    """Scores of a scheme alone, where all tokens are equal.

    Parameters
    ----------
    scheme : str, mapping, callable or array_like
        The name of an example with random tables: "alibi", "t5", "kerple", "fire",
        "shaw", "music", "transformer_xl", "deberta", "rotary", "sinusoidal", or another
        name of one of these schemes, such as "rope". Or keywords of ``relpos.scores``,
        of which the first head is drawn and the terms of content are left out, for
        queries and keys of ones. Or a function of tokens (1, L, 64), such as
        ``relpos.apply_rotary``, called on ones. Or an encoding (L, dim), of which every
        row is multiplied with every other.
    length : int, default 48
        Queries and keys.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> keywords = {"rel_bias": [-1.0, 0.0, -1.0], "is_causal": True}
    >>> ax = relpos.plot.fingerprint(keywords, 2, ax=Figure().subplots())
    >>> ax.images[0].get_array().filled(9).tolist()  # 9 is hidden
    [[0.0, 9.0], [-1.0, 0.0]]
    """
    look = panel.look_of(**options)
    scores = _scores("scheme", scheme, as_int("length", length, 1, _MOST))
    # A bias and a product of vectors have no common unit.
    if look.limits == (None, None):  # a scale of its own: schemes are not compared
        farthest = panel.reach(scores) or 1.0
        look = look._replace(limits=(-farthest, farthest))
    return panel.name_pairs(panel.heat_map(scores, look))


@panel.picture(panel.FigureOptions)
def fingerprints(
    schemes: Mapping[str, Scheme] | None = None,
    length: int = 48,
    *,
    columns: int = 5,
    **options: Unpack[panel.FigureOptions],
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

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (n,)
        The axes drawn into, in the order of `schemes`.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> panels = relpos.plot.fingerprints({"RoPE": "rotary"}, 8, figure=Figure())
    >>> panels[0].get_title()
    'RoPE'
    """
    if schemes is None:
        schemes = {title: name for name, (title, _) in EXAMPLES.items()}
    schemes = panel.as_mapping("schemes", schemes, "of titles to schemes")
    look = panel.look_of(**options)
    across = as_int("columns", columns, 1)
    count = as_int("length", length, 1, _MOST)
    for name, scheme in schemes.items():
        _scores(f"schemes[{name!r}]", scheme, count)  # refused before any is drawn
    panels = panel.panels_of(look, len(schemes), across, side=2.6)
    for ax, (name, scheme) in zip(panels, schemes.items(), strict=True):
        fingerprint(scheme, count, cmap=look.cmap, title=name, ax=ax).label_outer()
    return panels


def _scores(name: str, scheme: Scheme, length: int) -> Array:
    """Return (L, L) scores of one head, -inf for hidden pairs."""
    if isinstance(scheme, str):
        _, make = EXAMPLES[as_scheme(name, scheme, EXAMPLES)]
        scheme = make(length)
    if isinstance(scheme, Mapping):
        return _of_keywords(name, scheme, length)
    if callable(scheme):
        tokens = np.ones((1, length, _WIDTH))
        # The function gets one head of equal tokens.
        rows = panel.as_reals(f"{name}'s result", scheme(tokens))
        expected = tokens.shape
        check_shape(f"{name}'s result", rows, rows.shape == expected, expected)
        # The mean over columns, so that equal tokens without positions have a score of
        # 1.
        scores: Array = (rows @ np.swapaxes(rows, 1, 2))[0] / _WIDTH
        return scores
    encoding = panel.as_reals(name, scheme)
    fits = encoding.ndim == 2 and len(encoding) >= length and encoding.size
    check_shape(name, encoding, fits, f"an encoding, ({length}, dim)")
    return encoding[:length] @ encoding[:length].T


def _of_keywords(name: str, keywords: Mapping[str, Any], length: int) -> Array:
    """Return the sum of all terms but content, for queries and keys of ones."""
    # Arguments with heads tell how many heads the tokens need.
    tables = {
        key: as_floating(key, value)
        for key, value in keywords.items()
        if key in _HEADS_AT and value is not None
    }
    heads = []
    for key, table in tables.items():
        axis = _HEADS_AT[key]
        if table.ndim >= -axis:  # else all heads share it
            heads.append(table.shape[axis])
    # Tables that are multiplied with tokens tell their width.
    widths = [tables[key].shape[-1] for key in _WIDE if key in tables]
    tokens = np.ones((max(heads, default=1), length, widths[0] if widths else 1))
    if "terms" in keywords:
        raise TypeError(f"{name}: got terms; expected keywords of attention")
    terms = relpos.scores(tokens, tokens, terms=True, **keywords)
    # Tokens are equal, so that terms of content are the same for every pair.
    left = [term for key, term in terms.items() if key not in _CONTENT]
    scores = np.sum(left, axis=0) if left else np.zeros_like(terms["content"])
    first: Array = scores.reshape(-1, length, length)[0]
    return first


@panel.picture()
def grid_bias(
    bias: npt.ArrayLike,
    shape: tuple[int, int],
    *,
    query: tuple[int, int] | None = None,
    labels: npt.ArrayLike | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Bias of one head between a cell of a grid and all cells, as Swin has it.

    Parameters
    ----------
    bias : array_like of real, ((2 rows - 1) * (2 columns - 1),)
        One head of `rel_bias`, a number for each label, as
        ``relpos.recipes.swin(..)["rel_bias"][0]`` with the recipe's labels.
    shape : (int, int)
        Rows and columns of the grid.
    query : (int, int), optional
        Row and column of the query, which is framed; the middle by default.
    labels : array_like of int, (rows * columns, rows * columns), optional
        The number of each pair of cells; ``relpos.grid_labels(shape)`` by default.
        Swin Transformer's tables count query minus key: give the recipe's labels.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> bias = np.arange(15.0)  # of 3 times 5 offsets
    >>> ax = relpos.plot.grid_bias(bias, (2, 3), query=(0, 0), ax=Figure().subplots())
    >>> ax.images[0].get_array().astype(int).tolist()
    [[7, 8, 9], [12, 13, 14]]
    """
    rows, columns = _two("shape", shape)
    count = (2 * rows - 1) * (2 * columns - 1)
    array = panel.as_shaped("bias", bias, 1, f"one axis, ({count},): one head")
    check_shape("bias", array, len(array) == count, f"({count},)")
    i, j = (rows // 2, columns // 2) if query is None else _two("query", query, 0)
    if i >= rows or j >= columns:
        raise ValueError(f"query: got {(i, j)}; expected a cell of {(rows, columns)}")
    look = panel.look_of(**options)
    pairs = relpos.grid_labels((rows, columns))
    if labels is not None:
        pairs = _labels_of(labels, pairs.shape, count)
    # The row of the query, with cells in row-major order.
    of_query = array[pairs[i * columns + j]]
    ax = panel.heat_map(of_query.reshape(rows, columns), look, "grid")
    panel.frame(ax, i, j, fill=False, edgecolor="black", linewidth=2.5)
    ax.set(xlabel="column", ylabel="row")
    return ax


def _two(name: str, value: object, low: int = 1) -> tuple[int, int]:
    array = as_integers(name, value)
    check_shape(name, array, array.shape == (2,), "two integers")
    first, second = (as_int(name, int(x), low, 256) for x in array)
    return first, second


def _labels_of(labels: npt.ArrayLike, shape: tuple[int, ...], count: int) -> Array:
    array = as_integers("labels", labels)
    check_shape("labels", array, array.shape == shape, shape)
    if array.min() < 0 or array.max() >= count:
        raise ValueError(
            f"labels: got {array.min()} to {array.max()}; expected 0 to {count - 1}"
        )
    return array
