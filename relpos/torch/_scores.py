"""Scores of every pair, and of relative positions as those of keys, on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

import relpos
from relpos._attention.attention import DEFAULTS
from relpos._attention.operands import LABELS, called
from relpos._attention.schemes import keywords_of, shows_keywords
from relpos._attention.scores import OTHERS
from relpos._checks import check_keywords
from relpos._twins import TENSORS, twin
from relpos.torch._attention import as_seed, attention, by_kind
from relpos.torch._causal import without_causal_bias
from relpos.torch._functions import TensorFunction, check_tensors, no_forward_mode
from relpos.torch._tensors import array_of, in_tensor_words, tensor_of
from relpos.torch._tracing import (
    is_batched,
    is_dual,
    is_fake,
    requires_grad,
    uncompiled,
)

if TYPE_CHECKING:
    from typing import Literal, Unpack

    from relpos._attention.keywords import Off
    from relpos.torch._keywords import ScoresKeywords, Values

__all__ = ["rel_shift", "scores", "skew"]


def _skew_shape(x: Tensor, is_causal: bool) -> Sequence[int]:
    if is_causal:
        return x.shape
    *batch, queries, positions = x.shape
    return *batch, queries, positions - queries + 1


def _skew_backward(grad: Any, names: list[str], x: Any, is_causal: bool) -> Any:
    return relpos.unskew(grad, is_causal=is_causal)


def _rel_shift_shape(x: Tensor) -> Sequence[int]:
    return x.shape


def _rel_shift_backward(grad: Any, names: list[str], x: Any) -> Any:
    return relpos.unskew(grad, is_causal=True)


# Both functions move numbers and leave some out: `unskew` moves their gradient back.
_SKEW = TensorFunction(
    "skew",
    "Tensor x, bool is_causal",
    relpos.skew,
    _skew_shape,
    _skew_backward,
    gradients=["x"],
    leads={"x": 2},
)
_REL_SHIFT = TensorFunction(
    "rel_shift",
    "Tensor x",
    relpos.rel_shift,
    _rel_shift_shape,
    _rel_shift_backward,
    gradients=["x"],
    leads={"x": 2},
)


@twin(relpos.skew, TENSORS)
def skew(x: Tensor, *, is_causal: bool) -> Tensor:
    """Turn scores per relative position into scores per key.

    Parameters
    ----------
    x, is_causal : as in `relpos.skew`
        Scores (..., Lq, Lk) or (..., Lq, R), and which of the two they are.

    Returns
    -------
    Tensor, (..., Lq, Lk) if `is_causal`, else (..., Lq, R - Lq + 1)
        Column j belongs to key j; with the gradient of `x`.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> x = torch.tensor([[-2.0, -1.0, 0.0, 1.0, 2.0]] * 3, requires_grad=True)
    >>> y = relpos.torch.skew(x, is_causal=False)
    >>> y.tolist()
    [[0.0, 1.0, 2.0], [-1.0, 0.0, 1.0], [-2.0, -1.0, 0.0]]
    >>> y.sum().backward()
    >>> x.grad[0]
    tensor([0., 0., 1., 1., 1.])
    """
    return _SKEW(x=x, is_causal=is_causal)


@twin(relpos.rel_shift, TENSORS)
def rel_shift(x: Tensor) -> Tensor:
    """Relative shift of Transformer-XL, for any Lq and Lk, bit for bit.

    Parameters
    ----------
    x : as in `relpos.rel_shift`
        Scores (..., Lq, Lk) by relative position.

    Returns
    -------
    Tensor, (..., Lq, Lk)
        Column j belongs to key j; with the gradient of `x`.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.rel_shift(torch.arange(1.0, 9.0).reshape(2, 4))
    tensor([[2., 3., 4., 0.],
            [5., 6., 7., 8.]])
    """
    return _REL_SHIFT(x=x)


@overload
def scores(
    query: Tensor,
    key: Tensor,
    *,
    terms: Off = False,
    **keywords: Unpack[ScoresKeywords],
) -> Tensor: ...
@overload
def scores(
    query: Tensor,
    key: Tensor,
    *,
    terms: Literal[True],
    **keywords: Unpack[ScoresKeywords],
) -> dict[str, Tensor]: ...
@overload
def scores(
    query: Tensor, key: Tensor, *, terms: bool, **keywords: Unpack[ScoresKeywords]
) -> Tensor | dict[str, Tensor]: ...
@shows_keywords((*OTHERS, "score_mod", "block_mask"), keywords_of(attention))
@twin(relpos.scores, TENSORS)
def scores(
    query: Tensor, key: Tensor, *, terms: bool = False, **keywords: Any
) -> Tensor | dict[str, Tensor]:
    """Logits of `attention`, of every pair, whole or term by term.

    Parameters
    ----------
    query, key : as in `relpos.scores`
        Rows (..., H, Lq, D) and (..., Hk, Lk, D) of each head.
    terms : as in `relpos.scores`
        Return what the logits are the sum of, each by its name.
    **keywords
        Keywords of `attention`, by keyword only, but for the `return_*`. FIRE: its
        `fire_bias` as `attn_mask`.

    Returns
    -------
    Tensor, (..., H, Lq, Lk), or dict of such by str
        The logits, or terms that sum to them, as in `relpos.scores`. They are to look
        at, and have no gradient; those of 16 bits are computed in float32.

    Raises
    ------
    ValueError
        A tensor requires a gradient: pass ``query.detach()``.
    NotImplementedError
        Under forward mode, `torch.vmap` or `torch.export`.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> x = torch.eye(2)[None]
    >>> relpos.torch.scores(x, x, scale=1.0, is_causal=True)
    tensor([[[1., -inf],
             [0., 1.]]])
    """
    names = [name for name in DEFAULTS if name not in OTHERS]
    check_keywords("scores", keywords, names)
    rng = keywords.pop("rng", None)  # of dropout: it is checked, and draws nothing
    if not (rng is None or isinstance(rng, torch.Generator)):
        as_seed(rng, query.device)
    return _scores({"query": query, "key": key, **keywords}, terms)


@uncompiled
def _scores(arguments: dict[str, Any], terms: bool) -> Tensor | dict[str, Tensor]:
    """Return what `relpos.scores` does of the tensors of a call."""
    # A CausalBias has no numbers: it becomes other arguments before tensors are read.
    if arguments.get("attn_mask") is not None:
        arguments = without_causal_bias(arguments["query"], arguments["key"], arguments)
    tensors, values = by_kind(arguments)
    check_tensors({called(name): tensor for name, tensor in tensors.items()})
    for name, tensor in tensors.items():
        if requires_grad(tensor):
            raise ValueError(
                f"{called(name)}: requires a gradient, which scores does not have; "
                f"expected a tensor without ({called(name)}.detach())"
            )
        if is_batched(tensor):
            raise NotImplementedError(
                "relpos.torch.scores: is not mapped by torch.vmap; expected tensors "
                "with batch axes, or relpos.reference.scores, which is mapped"
            )
        if is_fake(tensor):
            raise NotImplementedError(
                "relpos.torch.scores: is not exported, and takes no fake tensors; "
                "expected relpos.reference.scores, which takes them"
            )
    if is_dual(list(tensors.values())):
        raise no_forward_mode("scores")
    result = _of_arrays(tensors, values, terms)
    if isinstance(result, dict):
        return {name: tensor_of(term) for name, term in result.items()}
    return tensor_of(result)


def _tensors(
    tensors: dict[str, Tensor], values: Values, terms: bool
) -> dict[str, Tensor]:
    """Return the tensors among the arguments of `_of_arrays`."""
    return tensors


@partial(in_tensor_words, tensors_of=_tensors)
def _of_arrays(tensors: dict[str, Tensor], values: Values, terms: bool) -> Any:
    # `relpos.scores` takes arrays, and a view of a tensor is one.
    arguments: dict[str, Any] = {**values}
    for name, tensor in tensors.items():
        arguments[name] = array_of(called(name), tensor)
    # `by_kind` has parted labels into one tensor each
    labels = [arguments.pop(name) for name in LABELS if name in arguments]
    if labels:
        arguments["labels"] = tuple(labels)
    return relpos.scores(**arguments, terms=terms)
