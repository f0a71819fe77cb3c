"""Published forms of relative attention: fixed arguments of `relpos.attention`.

Each takes every keyword of `attention`; one that is given wins over the scheme's own
setting. To add a scheme, write one function like these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypeVar, overload

from relpos._attention.attention import DEFAULTS, AttentionOutput, attend, attention
from relpos._attention.documents import longest_of
from relpos._attention.operands import OPERANDS, shows_shapes
from relpos._attention.problem import transformer_xl_origin
from relpos._checks import Array, as_flag, as_floating, as_integers, at_least_ndim

__all__ = ["graph_attention", "relative_global_attention"]
__all__ += ["shaw_attention", "transformer_xl_attention"]

if TYPE_CHECKING:
    from typing import Protocol, Unpack

    from numpy.typing import ArrayLike

    from relpos._attention.edges import SparseRows
    from relpos._attention.keywords import (
        GraphKeywords,
        Off,
        RelativeGlobalKeywords,
        ShawKeywords,
        TransformerXLKeywords,
    )

    class Shaped(Protocol):
        """An array or a tensor, of which the shape alone is read."""

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def ndim(self) -> int: ...


Scheme = TypeVar("Scheme", bound=Callable[..., object])

#: Settings of a scheme, unless the caller gives others.
MUSIC = {"is_causal": True, "beyond": "raise"}
TRANSFORMER_XL = {"beyond": "raise"}


def keywords_of(function: Callable[..., object]) -> dict[str, Parameter]:
    """The parameters of a function, by keyword only."""
    return {
        name: parameter.replace(kind=parameter.KEYWORD_ONLY)
        for name, parameter in signature(function).parameters.items()
    }


#: Parameters of `attention`.
KEYWORDS = keywords_of(attention)


def shows_keywords(
    without: Sequence[str] = (),
    keywords: Mapping[str, Parameter] = KEYWORDS,
    /,
    **settings: Any,
) -> Callable[[Scheme], Scheme]:
    """Let `help` of a scheme show what it passes on to `attention`, and its settings.

    Its signature is its own parameters and then `keywords`, those of `attention`,
    `without` some.
    """

    def decorate(scheme: Scheme) -> Scheme:
        before = signature(scheme)
        parameters = {
            name: parameter
            for name, parameter in before.parameters.items()
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        for name, parameter in keywords.items():
            if name in without:
                continue
            if name in settings:
                parameter = parameter.replace(default=settings[name])
            # One that the scheme names itself stays where it is.
            parameters.setdefault(name, parameter)
        after = before.replace(parameters=[*parameters.values()])
        scheme.__signature__ = after  # type: ignore[attr-defined]
        return shows_shapes(scheme)

    return decorate


def scheme(settings: Callable[..., Mapping[str, Any]]) -> Callable[..., Any]:
    """Make a function like `attention` of one that returns keywords of `attention`.

    `settings` takes query, key and value, what the scheme has of its own, and keywords.
    It reads shapes alone, so that it serves tensors: `relpos.torch` makes its function
    of the attribute `settings` of this one.
    """

    @wraps(settings)
    def function(query: Any, key: Any, value: Any, *more: Any, **keywords: Any) -> Any:
        of_attention = settings(query, key, value, *more, **keywords)
        return attention(query, key, value, **of_attention)

    function.settings = settings  # type: ignore[attr-defined]
    return shows_keywords()(function)


@overload
def shaw_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[Off]],
) -> Array: ...
@overload
def shaw_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[bool]],
) -> AttentionOutput: ...
@shows_keywords()
def shaw_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    **keywords: Unpack[ShawKeywords[bool]],
) -> Array | AttentionOutput:
    r"""Attention with clipped relative positions in keys and values (Shaw et al.).

    .. math::

        s_{ij} = scale \; q_i (k_j + a^K_r), \quad
        out_i = \sum_j softmax_j(s_i)_j \, (v_j + a^V_r), \quad
        r = clip(j - i - query\_offset, -k, k)

    Row t of a table belongs to relative position t - k. The tables take 2k + 1 rows
    whatever the lengths; time and memory beyond plain attention are O(L k).

    Parameters
    ----------
    query, key, value : array_like
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    rel_key : array_like, (2k+1, D), (H, 2k+1, D) or (..., H, 2k+1, D), optional
        The a^K; None leaves the term out. k = 0 is legal.
    rel_value : array_like, (2k+1, Dv), (H, 2k+1, Dv) or (..., H, 2k+1, Dv), optional
        The a^V; None leaves the term out. Its k may differ.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    ndarray or AttentionOutput
        As `attention`.

    Raises
    ------
    ValueError
        A table has an even number of rows, or Lq != Lk and no `query_offset` is given.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, equations 3 and 4.

    Examples
    --------
    Each of three positions reports whether the average key lies before or after it:

    >>> import numpy as np
    >>> import relpos
    >>> x = np.zeros((1, 3, 1))
    >>> relpos.shaw_attention(x, x, x, rel_value=[[-1.0], [0.0], [1.0]]).round(2)
    array([[[ 0.67],
            [ 0.  ],
            [-0.67]]])
    """
    return attention(
        query, key, value, rel_key=rel_key, rel_value=rel_value, **keywords
    )


@overload
def relative_global_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[Off]],
) -> Array: ...
@overload
def relative_global_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[bool]],
) -> AttentionOutput: ...
@shows_keywords(**MUSIC)
def relative_global_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    **keywords: Unpack[RelativeGlobalKeywords[bool]],
) -> Array | AttentionOutput:
    r"""Relative attention of the Music Transformer, causal unless told otherwise.

    .. math::

        s_{ij} = scale \; (q_i k_j + S^{rel}_{ij}), \quad S^{rel}_{ij} = q_i E_r,
        \quad r = j - i - query\_offset

    The skewing of the paper is done inside the tiles: S_rel is never stored.

    Parameters
    ----------
    query, key, value : array_like
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    rel_key : array_like
        E_r, rows ascending in relative position: -(R-1)..0 when causal (R = max_len),
        -(R-1)/2..(R-1)/2 otherwise (R = 2 max_len - 1). Of a two-sided table a causal
        call misreads the last row as that of r = 0: give ``rel_key[..., :max_len, :]``.
    **keywords
        Keywords of `attention`; `is_causal` is True and `beyond` "raise" by default.

    Returns
    -------
    ndarray or AttentionOutput
        As `attention`.

    Raises
    ------
    IndexError
        A visible pair lies farther apart than the table reaches.
    ValueError
        R is even where not causal, or Lq != Lk and no `query_offset` is given.

    References
    ----------
    .. [1] Huang et al., "Music Transformer: Generating Music with Long-Term Structure",
       2018, arXiv:1809.04281, section 3.4.

    Examples
    --------
    A table that sends every query to the key one before it:

    >>> import numpy as np
    >>> import relpos
    >>> query, key = np.ones((1, 3, 1)), np.zeros((1, 3, 1))
    >>> value = np.array([[[1.0], [2.0], [3.0]]])
    >>> rel_key = np.array([[0.0], [100.0], [0.0]])  # relative positions -2, -1, 0
    >>> relpos.relative_global_attention(query, key, value, rel_key)
    array([[[1.],
            [1.],
            [2.]]])
    """
    table = as_floating("rel_key", rel_key)
    settings = relative_global_settings(table, keywords)
    result: Array | AttentionOutput = attention(
        query, key, value, rel_key=table, **settings
    )
    return result


def relative_global_settings(
    rel_key: Shaped, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keywords of `attention` for those of this scheme."""
    settings: dict[str, Any] = {**MUSIC, **keywords}
    at_least_ndim("rel_key", rel_key, 2, OPERANDS["rel_key"].shown)
    if as_flag("is_causal", settings["is_causal"]) and _origin_open(settings):
        settings["min_relative_position"] = 1 - _counted(rel_key, settings)[1]
    return settings


@overload
def transformer_xl_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    pos_bias_u: ArrayLike | None,
    pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[Off]],
) -> Array: ...
@overload
def transformer_xl_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    pos_bias_u: ArrayLike | None,
    pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[bool]],
) -> AttentionOutput: ...
@shows_keywords(**TRANSFORMER_XL)
def transformer_xl_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    pos_bias_u: ArrayLike | None,
    pos_bias_v: ArrayLike | None,
    **keywords: Unpack[TransformerXLKeywords[bool]],
) -> Array | AttentionOutput:
    r"""Relative attention of Transformer-XL, with memory; also of Conformer and XLNet.

    .. math::

        s_{ij} = scale \; [(q_i + u) k_j + (q_i + v) R_r], \quad
        r = j - i - query\_offset

    Keys begin with the memory: query i is key ``i + Lk - Lq``.

    Parameters
    ----------
    query, key, value : array_like
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`; keys
        and values of the memory come first.
    rel_key : array_like
        The projected sinusoids, rows ascending in relative position from -(Lk-1).
        R = Lk serves ``is_causal=True``, R = Lk + Lq - 1 or 2 Lk - 1 both directions
        (Conformer). A table of any other length needs `min_relative_position`. With
        `cu_seqlens`, Lq and Lk are the length of the longest document.
    pos_bias_u, pos_bias_v : array_like
        Biases u of the content term and v of the position term; None leaves one out.
    **keywords
        Keywords of `attention`; `query_offset` is Lk - Lq, `min_relative_position`
        -(Lk-1) and `beyond` "raise" by default.

    Returns
    -------
    ndarray or AttentionOutput
        As `attention`.

    Raises
    ------
    IndexError
        A visible pair lies farther apart than the table reaches.
    ValueError
        Neither R nor `min_relative_position` tells the relative position of row 0. The
        article's matrix of 2N rows, for N queries and keys, begins at -N.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, section 3.3.

    Examples
    --------
    Two queries, one key of memory; v prefers the key two before each query:

    >>> import numpy as np
    >>> import relpos
    >>> query, key = np.zeros((1, 2, 1)), np.zeros((1, 3, 1))
    >>> value = np.array([[[1.0], [2.0], [3.0]]])
    >>> rel_key = np.array([[100.0], [0.0], [0.0]])  # relative positions -2, -1, 0
    >>> relpos.transformer_xl_attention(
    ...     query, key, value, rel_key, np.zeros(1), np.ones(1), is_causal=True
    ... )
    array([[[1.5],
            [1. ]]])
    """
    query, key = as_floating("query", query), as_floating("key", key)
    table = as_floating("rel_key", rel_key)
    settings = transformer_xl_settings(query, key, table, keywords)
    settings |= {"pos_bias_u": pos_bias_u, "pos_bias_v": pos_bias_v}
    result: Array | AttentionOutput = attention(
        query, key, value, rel_key=table, **settings
    )
    return result


def transformer_xl_settings(
    query: Shaped, key: Shaped, rel_key: Shaped, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keywords of `attention` for those of this scheme."""
    settings: dict[str, Any] = {**TRANSFORMER_XL, **keywords}
    for name, array, ndim in (
        ("query", query, 3),
        ("key", key, 3),
        ("rel_key", rel_key, 2),
    ):
        at_least_ndim(name, array, ndim, OPERANDS[name].shown)
    lq, lk = query.shape[-2], key.shape[-2]
    cu_seqlens = settings.get("cu_seqlens")
    # Keys begin with the memory: the last query is at the last key. Packed documents
    # have no memory.
    if lk != lq and cu_seqlens is None and settings.get("query_offset") is None:
        settings["query_offset"] = lk - lq
    if _origin_open(settings):
        if cu_seqlens is not None:
            lq = lk = longest_of(cu_seqlens)
        first = transformer_xl_origin(*_counted(rel_key, settings), lq, lk)
        settings["min_relative_position"] = first
    return settings


def _origin_open(settings: dict[str, Any]) -> bool:
    """Return True where neither labels nor the caller place the tables."""
    return (
        settings.get("labels") is None and settings.get("min_relative_position") is None
    )


def _counted(table: Shaped, settings: dict[str, Any]) -> tuple[str, int]:
    """Return what counts the relative positions of `rel_key`, and the count."""
    # Buckets list a row for each relative position, and so count them.
    buckets = settings.get("buckets")
    if buckets is None:
        return "rel_key", table.shape[-2]
    if not hasattr(buckets, "shape"):
        buckets = as_integers("buckets", buckets)
    return "buckets", math.prod(buckets.shape)


@overload
def graph_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    indptr: ArrayLike | None = None,
    indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    **keywords: Unpack[GraphKeywords[Off]],
) -> Array: ...
@overload
def graph_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    indptr: ArrayLike | None = None,
    indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    **keywords: Unpack[GraphKeywords[bool]],
) -> AttentionOutput: ...
@shows_shapes
def graph_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    indptr: ArrayLike | None = None,
    indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    *,
    edges: ArrayLike | SparseRows | None = None,
    key_indices: ArrayLike | None = None,
    enable_gqa: bool = False,
    position_query: ArrayLike | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    return_context: bool = False,
    num_threads: int | None = None,
) -> Array | AttentionOutput:
    r"""Attention along the labelled edges of a directed graph.

    Query i attends to the keys ``indices[e]`` with ``indptr[i] <= e < indptr[i + 1]``
    and to no other (compressed sparse rows, as in `scipy.sparse`); or the graph comes
    as a list of `edges`, or as `key_indices`, which list the keys of each query. With j
    the key and l the label of edge e,

    .. math::

        s_e &= scale \; q_i (k_j + A_l) \\
        lse_i &= \log \left(e^{sink} + \sum_{e \text{ of } i} e^{s_e}\right), \quad
            p_e = e^{s_e - lse_i} \\
        out_i &= \sum_{e \text{ of } i} p_e (v_j + W_l)

    where A is `rel_key`, W `rel_value` and sink the entry of `sinks` for the head, or
    for the head and query i, -inf by default; with a `position_query` e,
    :math:`e_i A_l` takes the place of :math:`scale \, q_i A_l`. This is `attention`
    with ``labels`` and all absent edges masked, in time and memory that grow with the
    edges instead of Lq Lk. An edge that is there twice counts twice. A query without
    edges gets out 0 and lse = sink.

    A graph is shared by batch items and heads. `key_indices` may differ by both, as of
    models that pick the best keys of each query before they attend [2]_.

    Parameters
    ----------
    query, key, value : array_like
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    indptr : array_like of int, (Lq + 1,), optional
        Where each query's edges begin; rises from 0 to the number of edges.
    indices : array_like of int, (edges,), optional
        Key of each edge, from 0 to Lk - 1. `indptr` and `indices` come together, or
        `edges` or `key_indices` in their place.
    labels : array_like of int, (edges,) or the shape of `key_indices`, optional
        Table row of each edge; negative: no position term. Needed by the tables. In the
        order of `indices`, or of `edges` as they were given.
    rel_key : array_like, optional
        Table added to the key.
    rel_value : array_like, optional
        Table added to the value; it may have its own R.
    edges : array_like of int, (2, edges), or CSR matrix of scipy.sparse, optional
        Key of each edge in row 0 and its query in row 1, in any order: source and
        target, as `edge_index` of PyTorch Geometric. Or a matrix (Lq, Lk): each entry
        that it stores is an edge, zeros too; its numbers are not read.
    key_indices : array_like of int, (..., G, Lq, n), optional
        The n keys of each query: query i of head h attends to those of row
        ``h // (H // G)``. G divides H; batch axes broadcast. A negative number is no
        key, and a key that is named twice counts twice.
    enable_gqa : bool, default False
        Let query head h read key head ``h // (H // Hk)``; H % Hk must be 0. Without it
        Hk must be H.
    position_query : array_like, optional
        Replaces the query in the `rel_key` term, of Dp columns; not scaled.
    softcap : float, optional
        A number c > 0: each score x becomes c tanh(x / c).
    sinks : array_like, optional
        A logit of each head, or of each head and query, that has no key and no value:
        exp(sinks) is part of the sum of a query's edges, and of lse. -inf: none.
    scale : float, optional
        Default 1 / sqrt(D).
    return_lse : bool, default False
        Also return lse (..., H, Lq).
    return_context : bool, default False
        Also return an `AttentionContext`, whose `~AttentionContext.backward` gives the
        gradients of query, key, value, rel_key, rel_value, position_query and sinks.
    num_threads : int, optional
        Default `get_num_threads()`. Neither the result nor its gradients depend on it,
        bit for bit.

    Returns
    -------
    ndarray or AttentionOutput
        `out`, (..., H, Lq, Dv). With any `return_*` flag the named tuple
        ``(out, lse, weights, context)``; weights is always None.

    Raises
    ------
    ValueError
        `indptr` does not rise from 0 to the number of edges, two forms of a graph came
        together, or tables and `labels` without each other.
    IndexError
        An index is outside the keys or the queries, or a label outside a table.

    See Also
    --------
    relpos.plot.attention_graph : Draws the graph.

    Notes
    -----
    The graph is copied; changing it later does no harm. `edges` are sorted by query, in
    7 to 45 ns an edge, to the same bits as the sorted `indptr` and `indices`. The
    backward takes 8 to 16 bytes per edge for as many heads at a time as fit 512 kB, and
    16 to 24 bytes per edge once. Of `key_indices`, whose edges are the n Lq of a head,
    it takes 8 to 16 of these for each group of heads that is in work.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, section 3.1.
    .. [2] DeepSeek-AI, "DeepSeek-V3.2: Pushing the Frontier of Open Large Language
       Models", 2025, arXiv:2512.02556.

    Examples
    --------
    Query 0 sees keys 0 and 2, query 1 nothing, query 2 itself, under label 1:

    >>> import numpy as np
    >>> import relpos
    >>> x = np.zeros((1, 3, 2))
    >>> value = np.array([[[1.0], [2.0], [3.0]]])
    >>> indptr, indices, labels = [0, 2, 2, 3], [0, 2, 2], [0, 0, 1]
    >>> rel_value = [[0.0], [10.0]]
    >>> relpos.graph_attention(
    ...     x, x, value, indptr, indices, labels, rel_value=rel_value)
    array([[[ 2.],
            [ 0.],
            [13.]]])

    Two keys for each query, of which the second query has one:

    >>> key_indices = [[[0, 2], [1, -1], [1, 2]]]
    >>> relpos.graph_attention(x, x, value, key_indices=key_indices)
    array([[[2. ],
            [2. ],
            [2.5]]])
    """
    has_picks = key_indices is not None
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        "indptr": indptr,
        "indices": indices,
        # `labels` of `attention` are those of all pairs
        "edge_labels": None if has_picks else labels,
        "key_labels": labels if has_picks else None,
        "rel_key": rel_key,
        "rel_value": rel_value,
        "edges": edges,
        "key_indices": key_indices,
        "enable_gqa": enable_gqa,
        "position_query": position_query,
        "softcap": softcap,
        "sinks": sinks,
        "scale": scale,
        "return_lse": return_lse,
        "return_context": return_context,
        "num_threads": num_threads,
    }
    return attend(DEFAULTS | arguments)
