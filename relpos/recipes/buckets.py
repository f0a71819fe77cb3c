"""Biases by T5's buckets in other models: MPNet and UMT5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpos.recipes._tables import Keywords
from relpos.recipes.sequences import t5

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["mpnet", "umt5"]


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
