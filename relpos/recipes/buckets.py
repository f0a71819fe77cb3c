"""Biases by T5's buckets in other models: MPNet, UMT5 and LongT5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import POSITION_LIMIT, as_int, check_memory
from relpos.recipes._tables import Keywords
from relpos.recipes.sequences import t5

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["longt5_local", "mpnet", "umt5"]


def mpnet(
    weight: ArrayLike, *, num_buckets: int | None = None, max_distance: int = 128
) -> Keywords:
    r"""MPNet's bias by bucket: T5's, beside scores that are scaled.

    .. math:: s_{ij} = q_i k_j / \sqrt D + weight_{bucket(j - i), h}

    Parameters
    ----------
    weight : array_like, (num_buckets, H)
        Shared by all layers; its gradient is that of rel_bias, transposed.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    max_distance : int, default 128
        As in `relpos.t5_bucket`.

    Returns
    -------
    dict
        `rel_bias` and `buckets`, right for any lengths.

    Raises
    ------
    TypeError, ValueError
        As `relpos.t5_bias`.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    t5 : The same without the scale.

    Notes
    -----
    ================================  ================  ==========
    ``MPNetEncoder``                  shape             here
    ================================  ================  ==========
    relative_attention_bias.weight    (num_buckets, H)  `weight`
    ================================  ================  ==========

    References
    ----------
    .. [1] Song et al., "MPNet: Masked and Permuted Pre-training for Language
       Understanding", 2020, arXiv:2004.09297.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> sorted(recipes.mpnet(np.zeros((32, 12))))
    ['buckets', 'rel_bias']
    """
    keywords = t5(weight, num_buckets=num_buckets, max_distance=max_distance)
    del keywords["scale"]  # 1 / sqrt(D), as ever
    return keywords


def umt5(
    weight: ArrayLike,
    *,
    num_buckets: int | None = None,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Keywords:
    r"""UMT5's bias by bucket: T5's, with a weight in every layer.

    .. math:: s_{ij} = q_i k_j + weight_{bucket(j - i), h}

    Parameters
    ----------
    weight : array_like, (num_buckets, H)
        Of this layer; its gradient is that of rel_bias, transposed.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    bidirectional : bool, default True
        True in the encoder, False in the decoder, which is causal as well.
    max_distance : int, default 128
        As in `relpos.t5_bucket`.

    Returns
    -------
    dict
        `rel_bias`, `buckets` and `scale`, right for any lengths and query_offset.

    Raises
    ------
    TypeError, ValueError
        As `relpos.t5_bias`.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    t5 : One weight for all layers.

    Notes
    -----
    ================================  ================  ==========
    ``UMT5Attention``                 shape             here
    ================================  ================  ==========
    relative_attention_bias.weight    (num_buckets, H)  `weight`
    ================================  ================  ==========

    References
    ----------
    .. [1] Chung et al., "UniMax: Fairer and more Effective Language Sampling for
       Large-Scale Multilingual Pretraining", 2023, arXiv:2304.09151.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.umt5(np.zeros((32, 6)), bidirectional=False)["scale"]
    1.0
    """
    return t5(
        weight,
        num_buckets=num_buckets,
        bidirectional=bidirectional,
        max_distance=max_distance,
    )


def longt5_local(
    weight: ArrayLike,
    local_radius: int,
    *,
    length: int | None = None,
    num_buckets: int | None = None,
    max_distance: int = 128,
) -> Keywords:
    r"""LongT5's local attention: T5's bias within a radius.

    .. math:: s_{ij} = q_i k_j + weight_{bucket(j - i), h}, \quad |j - i| \le radius

    Parameters
    ----------
    weight : array_like, (num_buckets, H)
        Of the first layer, for all; its gradient is that of rel_bias, transposed.
    local_radius : int
        The farthest key that a query sees on each side, at least 1.
    length : int, optional
        Lq of a call without a mask, in which the model hides nothing: see Notes.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    max_distance : int, default 128
        As in `relpos.t5_bucket`.

    Returns
    -------
    dict
        `rel_bias`, `buckets`, `scale` and `window`, padding being left to key_lengths;
        with `length`, `key_ranges` and `query_offset` in the place of the window.

    Raises
    ------
    TypeError, ValueError
        As `relpos.t5_bias`, or if the radius or the length is no integer of at least 1.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    t5 : The same for keys at any distance.

    Notes
    -----
    ================================  ================  ==========
    ``LongT5LocalAttention``          shape             here
    ================================  ================  ==========
    relative_attention_bias.weight    (num_buckets, H)  `weight`
    ================================  ================  ==========

    Without a mask a query sees the whole of its block of radius + 1 tokens and of the
    two beside it, keys of zeros beyond the ends of the sequence included. With n the
    blocks that hold `length` tokens, pad keys and values with radius + 1 rows of zeros
    before, and behind up to (n + 2) (radius + 1) rows in all.

    References
    ----------
    .. [1] Guo et al., "LongT5: Efficient Text-To-Text Transformer for Long Sequences",
       2021, arXiv:2112.07916, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.longt5_local(np.zeros((32, 6)), 127)["window"]
    (127, 127)
    """
    radius = as_int("local_radius", local_radius, 1, POSITION_LIMIT)
    keywords = t5(weight, num_buckets=num_buckets, max_distance=max_distance)
    if length is None:
        return keywords | {"window": (radius, radius)}
    queries = as_int("length", length, 1, POSITION_LIMIT)
    check_memory("length", (queries, 2), np.dtype(np.int64))
    block = radius + 1
    begin = np.arange(queries) // block * block  # of padded keys: a block before
    ranges = np.stack([begin, begin + 3 * block], axis=-1)
    return keywords | {"key_ranges": ranges, "query_offset": block}
