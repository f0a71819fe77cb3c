"""Disentangled attention over sequences: BERT, DeBERTa and T5, by buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._biases.buckets import deberta_bucket, t5_bucket, t5_rows
from relpos._checks import POSITION_LIMIT, as_flag, as_int
from relpos.recipes._tables import Keywords, as_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["bert", "deberta", "t5"]


def bert(distance_embedding: ArrayLike, *, key_query: bool = False) -> Keywords:
    r"""BERT's ``relative_key``, and with `key_query` its ``relative_key_query``.

    .. math::

        s_{ij} = \frac{q_i k_j + q_i e_{i - j} \; [+ \; k_j e_{i - j}]}{\sqrt D}

    The table counts query minus key, so `buckets` read it backwards.

    Parameters
    ----------
    distance_embedding : array_like, (2P-1, D)
        Row P - 1 + (i - j); P is max_position_embeddings. Farther positions take the
        end rows, where the model raises: pass ``beyond="raise"`` for that.
    key_query : bool, default False
        Whether the key meets the table too. The gradient of the table is then that of
        rel_key plus that of rel_query.

    Returns
    -------
    dict
        `rel_key`, `rel_query` if `key_query`, and `buckets`.

    Raises
    ------
    TypeError, ValueError
        For a torch tensor, or a table of fewer than two axes.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    deberta : Two tables, and a scale of its own.
    relpos.shaw_attention : A table that counts key minus query.

    Notes
    -----
    With a cache the model gives every query the last position; `query_offset` gives
    each its own.

    References
    ----------
    .. [1] Huang et al., "Improve Transformer Models with Better Relative Position
       Embeddings", 2020, arXiv:2009.13658, methods 2 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> sorted(recipes.bert(np.zeros((7, 4)), key_query=True))
    ['buckets', 'rel_key', 'rel_query']
    """
    table = as_table("distance_embedding", distance_embedding, "(2P-1, D)")
    rows = table.shape[-2]
    keywords = {"rel_key": table, "buckets": np.arange(rows)[::-1]}
    if as_flag("key_query", key_query):
        keywords["rel_query"] = table
    return keywords


def deberta(
    pos_key: ArrayLike | None = None,
    pos_query: ArrayLike | None = None,
    *,
    max_position: int | None = None,
) -> Keywords:
    r"""Disentangled attention of DeBERTa, versions 1 to 3.

    .. math::

        s_{ij} = \frac{q_i k_j + q_i K^r_t + k_j Q^r_t}{\sqrt{(1 + types) D}}, \quad
        t = clip(bucket(i - j) + span, \; 0, \; 2 \, span - 1)

    Each of the two terms is there where its table is, and counts as a type. The paper
    uses the bucket of j - i for the last one; its code and all models use i - j.

    Parameters
    ----------
    pos_key : array_like, (2 span, D) or (H, 2 span, D), optional
        K^r, projected: the content-to-position term.
    pos_query : array_like, shape of `pos_key`, optional
        Q^r, projected: the position-to-content term.
    max_position : int, optional
        ``max_relative_positions`` of a model with ``position_buckets = span``. None:
        one row for each distance, without buckets.

    Returns
    -------
    dict
        `rel_key`, `rel_query`, `buckets` and `scale`; no table and it is empty.

    Raises
    ------
    TypeError, ValueError
        For a torch tensor, a table of fewer than two axes or an odd number of rows, or
        buckets without a logarithmic range.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.deberta_bucket : The buckets.
    bert : One table for both terms.

    References
    ----------
    .. [1] He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
       2020, arXiv:2006.03654, section 3.1.

    Examples
    --------
    Distances 2 and 3 behind share the last row, all others have their own:

    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.deberta(np.zeros((6, 4)))
    >>> keywords["buckets"]  # of relative positions -3..3
    array([5, 5, 4, 3, 2, 1, 0])
    """
    tables = {"rel_key": ("pos_key", pos_key), "rel_query": ("pos_query", pos_query)}
    keywords: Keywords = {
        keyword: as_table(name, table, "(2 span, D) or (H, 2 span, D)")
        for keyword, (name, table) in tables.items()
        if table is not None
    }
    if not keywords:
        return {}
    shape = next(iter(keywords.values())).shape
    rows = shape[-2]
    if rows % 2 or not rows or not shape[-1]:
        name = tables[next(iter(keywords))][0]
        raise ValueError(
            f"{name}: got shape {shape}; expected (2 span, D) or (H, 2 span, D), an "
            "even number of rows and D at least 1"
        )
    span = reach = rows // 2
    if max_position is not None:
        reach = as_int("max_position", max_position, 1, POSITION_LIMIT)
    bucket = distance = np.arange(reach, -reach - 1, -1)  # query minus key
    if max_position is not None:
        bucket = deberta_bucket(distance, bucket_size=span, max_position=reach)
    keywords["buckets"] = np.clip(bucket + span, 0, rows - 1)
    keywords["scale"] = ((1 + len(tables.keys() & keywords)) * shape[-1]) ** -0.5
    return keywords


def t5(
    weight: ArrayLike,
    *,
    num_buckets: int | None = None,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Keywords:
    r"""T5's bias by bucket, without scaling of the scores.

    .. math:: s_{ij} = q_i k_j + weight_{bucket(j - i), h}

    Parameters
    ----------
    weight : array_like, (num_buckets, H)
        ``relative_attention_bias.weight``; its gradient is that of rel_bias,
        transposed. 32 columns beside another number of rows look like T5's 32 buckets
        transposed and need `num_buckets`.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    bidirectional : bool, default True
        True in the encoder, False in the decoder, which is causal as well.
    max_distance : int, default 128
        As in `relpos.t5_bucket`.

    Returns
    -------
    dict
        `rel_bias`, `buckets` and `scale`, right for any lengths and query_offset:
        everything beyond max_distance has the bucket of max_distance.

    Raises
    ------
    TypeError, ValueError
        As `relpos.t5_bias`.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.t5_bucket : The buckets.
    relpos.t5_bias : The bias written out for a length.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 2.1.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.t5(np.zeros((32, 8)), bidirectional=False)
    >>> keywords["rel_bias"].shape, keywords["scale"]
    ((8, 32), 1.0)
    """
    table = as_table("weight", weight, "(num_buckets, H)")
    rows = t5_rows(table.shape, num_buckets)
    reach = as_int("max_distance", max_distance, 1, POSITION_LIMIT)
    buckets = t5_bucket(
        np.arange(-reach, reach + 1),
        bidirectional=bidirectional,
        num_buckets=rows,
        max_distance=reach,
    )
    return {"rel_bias": table.T, "buckets": buckets, "scale": 1.0}
