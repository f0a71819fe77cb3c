"""Schemes on their own: scores of equal tokens, biases by distance and on a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

import relpos
from relpos._checks import Array, as_floating, as_int, as_integers, kind_of
from relpos.plot.panel import (
    Options,
    as_mapping,
    as_reals,
    as_shaped,
    draw_lines,
    frame,
    heat_map,
    look_of,
    name_pairs,
    panels_of,
    picture,
    reach as reach_of,
)

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    Scheme = str | Mapping[str, Any] | Callable[[Array], npt.ArrayLike] | npt.ArrayLike

_MOST = 4096  # queries of a fingerprint
_FARTHEST = 2**20  # positions on one axis
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


def _random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape)


def _kerple(length: int) -> dict[str, Any]:
    return {"rel_bias": relpos.kerple_bias([1.0], [1.0], length)}


def _fire(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    w1, b1, w2 = 4 * rng.standard_normal(32), rng.standard_normal(32), _random(1, 32)
    bias = relpos.fire_bias(w1, b1, w2, np.zeros(1), 1.0, 1.0, length)
    return {"attn_mask": bias - bias.mean(), "is_causal": True}


def _music(length: int) -> dict[str, Any]:
    settings = {"min_relative_position": 1 - length, "is_causal": True}
    return {"rel_key": _random(length, _COLUMNS), **settings}


def _transformer_xl(length: int) -> dict[str, Any]:
    encoding = relpos.sinusoidal(np.arange(1.0 - length, length), _COLUMNS)
    return {"rel_key": encoding, "pos_bias_v": _random(_COLUMNS)}


def _deberta(length: int) -> dict[str, Any]:
    places, size = np.arange(1 - length, length), 16
    signed = relpos.deberta_bucket(places, bucket_size=size, max_position=4 * size)
    key, query = _random(2, 2 * size, _COLUMNS)
    settings = {"buckets": signed + size, "min_relative_position": 1 - length}
    return {"rel_key": key, "rel_query": query, **settings}


class _Example(NamedTuple):
    """A title, and a function that returns a scheme for a length."""

    title: str
    make: Callable[[int], Any]


#: Schemes with random tables, as `fingerprint` takes them.
EXAMPLES = {
    "alibi": _Example("ALiBi", lambda n: {"rel_bias": relpos.alibi_bias([0.25], n)}),
    "t5": _Example("T5", lambda n: {"rel_bias": relpos.t5_bias(_random(32, 1), n)}),
    "kerple": _Example("KERPLE, logarithmic", _kerple),
    "fire": _Example("FIRE, causal", _fire),
    "shaw": _Example("Shaw, k = 8", lambda n: {"rel_key": _random(17, _COLUMNS)}),
    "music": _Example("Music Transformer", _music),
    "transformer_xl": _Example("Transformer-XL", _transformer_xl),
    "deberta": _Example("DeBERTa", _deberta),
    "rotary": _Example("RoPE", lambda n: relpos.apply_rotary),
    "sinusoidal": _Example("sinusoids", lambda n: relpos.sinusoidal(n, 64)),
}


@picture()
def fingerprint(
    scheme: Scheme, length: int, *, ax: Axes | None = None, **options: Unpack[Options]
) -> Axes:
    """Scores of a scheme alone, where all tokens are equal.

    Parameters
    ----------
    scheme : str, mapping, callable or array_like
        The name of an example with random tables: "alibi", "t5", "kerple", "fire",
        "shaw", "music", "transformer_xl", "deberta", "rotary", "sinusoidal". Or
        keywords of ``relpos.scores``, of which the first head is drawn and the terms of
        content are left out, for queries and keys of ones. Or a function of tokens
        (1, L, 64), such as ``relpos.apply_rotary``, called on ones. Or an encoding
        (L, dim), of which every row is multiplied with every other.
    length : int
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
    look = look_of(**options)
    scores = _scores("scheme", scheme, as_int("length", length, 1, _MOST))
    if look.limits == (None, None):  # a scale of its own: schemes are not compared
        farthest = reach_of(scores) or 1.0
        look = look._replace(limits=(-farthest, farthest))
    return name_pairs(heat_map("fingerprint", scores, ax, look))


@picture()
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
        schemes = {made.title: name for name, made in EXAMPLES.items()}
    schemes = as_mapping("schemes", schemes, "of titles to schemes")
    look, across = look_of(cmap=cmap, title=title), as_int("columns", columns, 1)
    count = as_int("length", length, 1, _MOST)
    for name, scheme in schemes.items():
        _scores(f"schemes[{name!r}]", scheme, count)  # refused before any is drawn
    panels = panels_of(figure, len(schemes), across, look, side=2.6)
    for ax, (name, scheme) in zip(panels, schemes.items(), strict=True):
        fingerprint(scheme, count, cmap=look.cmap, title=name, ax=ax).label_outer()
    return panels


def _scores(name: str, scheme: Scheme, length: int) -> Array:
    """Return (L, L) scores of one head, -inf for hidden pairs."""
    if isinstance(scheme, str):
        if scheme not in EXAMPLES:
            known = ", ".join(map(repr, EXAMPLES))
            raise ValueError(f"{name}: got {scheme!r}; expected one of {known}")
        scheme = EXAMPLES[scheme].make(length)
    if isinstance(scheme, Mapping):
        return _of_keywords(name, scheme, length)
    if callable(scheme):
        tokens = np.ones((1, length, _WIDTH))
        rows = as_reals(f"{name}'s result", scheme(tokens))
        if rows.shape != tokens.shape:
            raise ValueError(
                f"{name}'s result: got shape {rows.shape}; expected {tokens.shape}"
            )
        found: Array = (rows @ np.swapaxes(rows, 1, 2))[0] / _WIDTH
        return found
    encoding = as_reals(name, scheme)
    if encoding.ndim != 2 or len(encoding) < length or not encoding.size:
        raise ValueError(
            f"{name}: got shape {encoding.shape}; expected an encoding, ({length}, dim)"
        )
    return encoding[:length] @ encoding[:length].T


def _of_keywords(name: str, keywords: Mapping[str, Any], length: int) -> Array:
    """Return the sum of all terms but content, for queries and keys of ones."""
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


@picture("lines")
def bias_by_distance(
    bias: npt.ArrayLike,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    buckets: npt.ArrayLike | None = None,
    min_relative_position: int | None = None,
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Bias by relative position, a line for each head or for several queries.

    Parameters
    ----------
    bias : array_like of real, (H, R) or (H, Lq, Lk)
        A row for each head, as ``relpos.t5_bias`` makes it; or the bias of every pair,
        as ``relpos.fire_bias``. Numbers that are not finite are left out.
    heads : sequence of int, optional
        Those to draw; all by default, of the bias of pairs the first alone.
    queries : sequence of int, optional
        Of the bias of pairs, the queries to draw; by default the first, middle, last.
    buckets : array_like of int, (N,), optional
        The column of `bias` for each relative position, as in ``relpos.attention``.
    min_relative_position : int, optional
        Relative position of the first column, or of the first of `buckets`; by default
        0 is in the middle.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> bias = relpos.alibi_bias(2, 3)
    >>> ax = relpos.plot.bias_by_distance(bias, ax=Figure().subplots())
    >>> ax.lines[0].get_xdata().tolist()
    [-2, -1, 0, 1, 2]
    """
    array = as_reals("bias", bias)
    look = look_of(**options)
    if array.ndim not in (2, 3) or not array.size:
        raise ValueError(
            f"bias: got shape {array.shape}; expected (H, R) or (H, Lq, Lk)"
        )
    chosen = _chosen("heads", heads, len(array))
    if array.ndim == 3:
        lines = _of_queries(array, [0] if heads is None else chosen, queries)
    else:
        if buckets is not None:
            rows = as_integers("buckets", buckets)
            if rows.ndim != 1 or not rows.size or not _within(rows, array.shape[1]):
                raise ValueError(
                    f"buckets: got shape {rows.shape}; expected (N,), each below "
                    f"{array.shape[1]}"
                )
            array = array[:, rows]
        count = array.shape[1]
        low = -(count // 2)
        if min_relative_position is not None:
            name, given = "min_relative_position", min_relative_position
            low = as_int(name, given, -_FARTHEST, _FARTHEST)
        places = np.arange(low, low + count)
        lines = {f"head {h}": (places, array[h]) for h in chosen}
    ax = draw_lines(lines, look, ax, "steps-mid" if buckets is not None else "default")
    ax.set(xlabel="relative position j - i", ylabel="bias")
    return ax


def _within(rows: Array, count: int) -> bool:
    return bool(((rows >= 0) & (rows < count)).all())


def _chosen(name: str, given: Sequence[int] | None, count: int) -> list[int]:
    """Return the heads or queries to draw, of `count`."""
    if given is None:
        return [*range(count)]
    array = as_integers(name, given)
    if array.ndim != 1 or not array.size or not _within(array, count):
        raise ValueError(
            f"{name}: got {array.tolist()}; expected some from 0 to {count - 1}"
        )
    return [int(n) for n in array]


def _of_queries(
    array: Array, heads: list[int], queries: Sequence[int] | None
) -> dict[str, tuple[Array, Array]]:
    """Return a line for each of the heads and queries of the bias of pairs."""
    _, rows, columns = array.shape
    usual = sorted({0, rows // 2, rows - 1})
    chosen = usual if queries is None else _chosen("queries", queries, rows)
    found: dict[str, tuple[Any, Array]] = {}
    for h in heads:
        for i in chosen:
            name = f"query {i}" if len(heads) == 1 else f"head {h}, query {i}"
            found[name] = (np.arange(columns) - i, array[h, i])
    return found


@picture("lines")
def buckets(
    bucket: Callable[[Array], npt.ArrayLike],
    reach: int,
    *,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Bucket of each relative position, as steps.

    Parameters
    ----------
    bucket : callable
        ``bucket(relative_positions)`` returns integers, as ``relpos.t5_bucket`` does.
    reach : int
        Distances go from -reach to reach.
    cmap : str or Colormap, optional
        Its first colour is that of the line.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.buckets(relpos.t5_bucket, 200, ax=Figure().subplots())
    >>> ax.get_title()
    '31 buckets'
    """
    if not callable(bucket):
        raise TypeError(f"bucket: got {kind_of(bucket)}; expected a callable")
    farthest = as_int("reach", reach, 1, _FARTHEST)
    look = look_of(cmap=cmap, title=title)
    places = np.arange(-farthest, farthest + 1)
    found = as_integers("bucket's result", bucket(places))
    if found.shape != places.shape:
        raise ValueError(
            f"bucket's result: got shape {found.shape}; expected {places.shape}"
        )
    if title is None:
        look = look._replace(title=f"{len(np.unique(found))} buckets")
    ax = draw_lines({"": (places, found)}, look, ax, "steps-mid")
    ax.set(xlabel="relative position j - i", ylabel="bucket")
    return ax


@picture()
def grid_bias(
    bias: npt.ArrayLike,
    shape: tuple[int, int],
    *,
    query: tuple[int, int] | None = None,
    labels: npt.ArrayLike | None = None,
    ax: Axes | None = None,
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
    array = as_shaped("bias", bias, 1, f"one axis, ({count},): one head")
    if len(array) != count:
        raise ValueError(f"bias: got shape {array.shape}; expected ({count},)")
    i, j = (rows // 2, columns // 2) if query is None else _two("query", query, 0)
    if i >= rows or j >= columns:
        raise ValueError(f"query: got {(i, j)}; expected a cell of {(rows, columns)}")
    look = look_of(**options)
    pairs = relpos.grid_labels((rows, columns))
    if labels is not None:
        pairs = _labels_of(labels, pairs.shape, count)
    of_query = array[pairs[i * columns + j]]
    ax = heat_map("grid", of_query.reshape(rows, columns), ax, look)
    frame(ax, i, j, fill=False, edgecolor="black", linewidth=2.5)
    ax.set(xlabel="column", ylabel="row")
    return ax


def _two(name: str, value: object, low: int = 1) -> tuple[int, int]:
    """Return two integers, such as the sides of a grid of at most 256 by 256."""
    array = as_integers(name, value)
    if array.shape != (2,):
        raise ValueError(f"{name}: got shape {array.shape}; expected two integers")
    first, second = (as_int(name, int(x), low, 256) for x in array)
    return first, second


def _labels_of(labels: npt.ArrayLike, shape: tuple[int, ...], count: int) -> Array:
    """Return labels of all pairs of cells, below `count`."""
    array = as_integers("labels", labels)
    if array.shape != shape:
        raise ValueError(f"labels: got shape {array.shape}; expected {shape}")
    if array.min() < 0 or array.max() >= count:
        raise ValueError(
            f"labels: got {array.min()} to {array.max()}; expected 0 to {count - 1}"
        )
    return array
