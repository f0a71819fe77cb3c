"""T5's bias, and the buckets of T5 and DeBERTa, on tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import relpos
from relpos._checks import Array
from relpos._twins import twin
from relpos.torch._functions import TensorFunction


def _t5_back(
    grad: Array, wanted: list[str], weight: Array, length: int, **values: Any
) -> Mapping[str, Array | None]:
    values["num_buckets"] = len(weight)
    return {"weight": relpos.t5_bias_backward(grad, **values)}


_T5 = TensorFunction(
    "t5_bias",
    "weight",
    "SymInt length, SymInt? num_buckets, bool bidirectional, SymInt max_distance",
    relpos.t5_bias,
    lambda values: (values["weight"].shape[1], 2 * values["length"] - 1),
    _t5_back,
    gradients="weight",
)
_T5_BUCKET = TensorFunction(
    "t5_bucket",
    "relative_position",
    "bool bidirectional, SymInt num_buckets, SymInt max_distance",
    relpos.t5_bucket,
    lambda values: values["relative_position"].shape,
    dtype=torch.int64,
    leads={"relative_position": 0},
)
_DEBERTA_BUCKET = TensorFunction(
    "deberta_bucket",
    "relative_position",
    "SymInt bucket_size, SymInt max_position",
    relpos.deberta_bucket,
    lambda values: values["relative_position"].shape,
    dtype=torch.int64,
    leads={"relative_position": 0},
)


@twin(relpos.t5_bucket)
def t5_bucket(
    relative_position: Tensor,
    *,
    bidirectional: bool = True,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> Tensor:
    """Bucket of each relative position, as T5 counts them.

    Parameters
    ----------
    relative_position : Tensor of int, any shape
        Key minus query.
    bidirectional : bool, default True
        True in an encoder, False in a causal decoder.
    num_buckets : int, default 32
        At least 4 if `bidirectional`, else 2; at most 4096.
    max_distance : int, default 128
        More than e, half of the buckets of one direction. Farther positions share the
        last bucket.

    Returns
    -------
    Tensor of int64, shape of `relative_position`
        From 0 to num_buckets - 1.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.t5_bucket(torch.tensor([-200, -3, 0, 3, 200]))
    tensor([15,  3,  0, 19, 31])
    """
    return _T5_BUCKET(
        relative_position=relative_position,
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )


@twin(relpos.t5_bias)
def t5_bias(
    weight: Tensor,
    length: int,
    *,
    num_buckets: int | None = None,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Tensor:
    """Bias of T5 for every relative position, a `rel_bias` of `attention`.

    Parameters
    ----------
    weight : Tensor of float, (num_buckets, H)
        T5's ``relative_attention_bias.weight``. -inf hides what falls into a bucket. 32
        columns beside another number of rows look like T5's 32 buckets transposed and
        need `num_buckets`.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset); any
        length from max_distance + 1 on serves every call at all.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    bidirectional, max_distance : as in `t5_bucket`
        How positions fall into the buckets.

    Returns
    -------
    Tensor, (H, 2 length - 1)
        Of the weight's dtype, with its gradient.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> weight = torch.arange(4.0)[:, None]
    >>> relpos.torch.t5_bias(weight, 3)
    tensor([[1., 1., 0., 3., 3.]])
    """
    return _T5(
        weight=weight,
        length=length,
        num_buckets=num_buckets,
        bidirectional=bidirectional,
        max_distance=max_distance,
    )


@twin(relpos.deberta_bucket)
def deberta_bucket(
    relative_position: Tensor, *, bucket_size: int, max_position: int
) -> Tensor:
    """Signed bucket of each relative position, as DeBERTa counts them.

    Parameters
    ----------
    relative_position : Tensor of int, any shape
        In DeBERTa query minus key; the sign is kept.
    bucket_size : int
        At least 4, at most 4096. Distances to bucket_size // 2 have their own buckets.
    max_position : int
        More than bucket_size // 2 + 1. Distance max_position - 1 is the last one within
        bucket m + m - 1.

    Returns
    -------
    Tensor of int64, shape of `relative_position`
        Buckets go on growing beyond `max_position`, as in the `transformers` package.
        Microsoft's code clips relative positions to +-(max_position - 1) before.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relative = torch.tensor([-15, -7, -4, 0, 4, 5, 7, 15])
    >>> relpos.torch.deberta_bucket(relative, bucket_size=8, max_position=16)
    tensor([-7, -6, -4,  0,  4,  5,  6,  7])
    """
    return _DEBERTA_BUCKET(
        relative_position=relative_position,
        bucket_size=bucket_size,
        max_position=max_position,
    )
