"""Calls of attention with score_mod and block_mask: their checks and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from relpos._attention.operands import called
from relpos._checks import as_int
from relpos.torch._attend import attend, dtype_of_call
from relpos.torch._engine import Setting, prepared
from relpos.torch._functions import check_tensors
from relpos.torch._pair_blocks import Problem, Sizes, attend_pairs, not_mapped
from relpos.torch._pair_functions import PairFunction
from relpos.torch._pair_masks import (
    BlockFlags,
    check_block_mask,
    flags_of,
    visible_of,
    whole_mask,
)
from relpos.torch._tensors import check_devices
from relpos.torch._tracing import is_fake, is_transformed, uncompiled

if TYPE_CHECKING:
    from relpos.torch._keywords import Values

#: Arguments that go with a function of pairs; it makes the terms of others itself.
TAKEN = {"query", "key", "value", "attn_mask", "scale", "enable_gqa", "softcap"}
TAKEN |= {"is_causal", "query_offset", "window", "key_ranges", "key_lengths"}
TAKEN |= {"key_blocks", "block_size", "sinks", "num_threads"}
_AXES = 3  # of query, key and value behind those of the batch


@uncompiled
def compute_pairs(
    tensors: dict[str, Tensor], values: Values, score_mod: Any, block_mask: Any
) -> tuple[Tensor, Tensor]:
    """Return out and lse of a call with functions of pairs.

    `tensors` and `values` are the arguments of `attention` that differ from defaults.
    """
    _check_arguments(tensors, values)
    if block_mask is not None:
        check_block_mask(block_mask)
    checked = prepared(Setting(tuple(tensors), values), list(tensors.values()))
    sizes = checked.sizes
    count = int(np.prod(checked.batch, dtype=np.int64))
    flags = None
    if block_mask is not None:
        flags = flags_of(block_mask, (count, sizes.H, sizes.Lq, sizes.Lk))
    if score_mod is None and flags is not None and _is_for_kernels(flags, tensors):
        return _by_kernels(flags, checked.batch, tensors, values)
    mask = tensors.get("attn_mask")
    if mask is not None:
        mask = whole_mask(mask, checked.batch, count)
    visible = visible_of(checked, count, mask)
    mask_mod = None
    if flags is not None:
        visible.blocks.append(flags)
        mask_mod = PairFunction("mask_mod", block_mask.mask_mod, torch.bool)
    dtype = torch.float64 if checked.dtype == np.float64 else torch.float32
    if score_mod is not None:
        score_mod = PairFunction("score_mod", score_mod, _dtype_of(tensors, dtype))
    problem = Problem(
        Sizes(count, sizes.H, sizes.Hk, sizes.Lq, sizes.Lk),
        visible,
        float(checked.operands["scale"]),
        checked.operands.get("softcap"),
        score_mod,
        mask_mod,
        dtype,
        dtype_of_call(tensors),
        _threads(values),
    )
    query, key, value, sinks = _with_four_axes(tensors, checked.batch, problem)
    out, lse = attend_pairs(problem, query, key, value, sinks)
    shape = (*checked.batch, sizes.H, sizes.Lq)
    return out.reshape(*shape, -1 if out.numel() else sizes.Dv), lse.reshape(shape)


def _check_arguments(tensors: dict[str, Tensor], values: Values) -> None:
    check_tensors({called(name): tensor for name, tensor in tensors.items()})
    check_devices(tensors)
    for name in [*tensors, *values]:
        if name not in TAKEN:
            raise ValueError(
                f"{called(name)}: given together with score_mod or block_mask; "
                "expected none, as score_mod can add such a term itself"
            )
    mask = tensors.get("attn_mask")
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError(
            f"attn_mask: got {mask.dtype} together with score_mod or block_mask; "
            "expected torch.bool, as score_mod can add numbers itself"
        )
    if is_transformed():
        raise not_mapped()
    for name, tensor in tensors.items():
        if is_fake(tensor) or tensor.is_meta:
            raise NotImplementedError(
                f"{name}: got a tensor without numbers together with score_mod or "
                "block_mask; expected one with numbers, as these calls are not exported"
            )


def _dtype_of(tensors: dict[str, Tensor], dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of scores as a function sees them: that of the query."""
    dtypes = {tensors[name].dtype for name in ("query", "key", "value")}
    return tensors["query"].dtype if len(dtypes) == 1 else dtype


def _threads(values: Values) -> int | None:
    threads = values.get("num_threads")
    return None if threads is None else as_int("num_threads", threads, 1)


def _with_four_axes(
    tensors: dict[str, Tensor], batch: tuple[int, ...], problem: Problem
) -> list[Any]:
    """Return query, key and value as (B, H, L, D), and sinks as (B, H, Lq) or None."""
    whole: list[Any] = []
    for name in ("query", "key", "value"):
        tensor = tensors[name]
        rows = tensor.shape[-_AXES:]
        whole.append(tensor.expand(*batch, *rows).reshape(problem.sizes.batch, *rows))
    sinks = tensors.get("sinks")
    if sinks is not None:
        own = problem.sizes.heads, problem.sizes.queries
        if sinks.dim() == 1:
            sinks = sinks[:, None]
        sinks = sinks.expand(*batch, *own).reshape(problem.sizes.batch, *own)
    return [*whole, sinks]


# ---- masks of whole blocks -----------------------------------------------------------


def _is_for_kernels(flags: BlockFlags, tensors: dict[str, Tensor]) -> bool:
    """Return True where the kernels know all that a BlockMask says."""
    assert flags.partly is not None
    return "key_blocks" not in tensors and not flags.partly.any()


def _by_kernels(
    flags: BlockFlags,
    batch: tuple[int, ...],
    tensors: dict[str, Tensor],
    values: Values,
) -> tuple[Tensor, Tensor]:
    blocks = flags.seen
    if len(blocks) == 1:
        blocks = blocks[0]
    else:
        blocks = blocks.reshape(*batch, *blocks.shape[1:])
    tensors = {**tensors, "key_blocks": blocks}
    values = {**values, "block_size": (flags.queries, flags.keys)}
    setting = Setting(tuple(tensors), values, rounds=True)
    results = attend(setting, list(tensors.values()))
    assert results.lse is not None
    return results.out, results.lse
