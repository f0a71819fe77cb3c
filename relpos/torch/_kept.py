"""Projections of positions that modules keep from call to call in inference.

A model projects the same embeddings of positions in every call, which takes more time
than the attention of a short input. In inference the projections of the last call are
kept with a checksum of all bits that they were made of, and used again while it is the
same. Counters of changes are not enough, since writes through `.data` and NumPy do not
raise them, and neither are addresses, since memory that was freed is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from relpos._settings import kernels
from relpos.torch._tensors import array_of, under_autocast
from relpos.torch._tracing import PLAIN, is_plain

#: Hooks of one module, and of all modules.
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)


class Projection(NamedTuple):
    """The parameters of a linear layer."""

    weight: Tensor
    bias: Tensor | None


class Encodings(NamedTuple):
    """Rows that are computed only where their projections are not kept.

    `arguments` are what they depend on.
    """

    arguments: tuple[object, ...]
    compute: Callable[[], Tensor]


class Kept(NamedTuple):
    """Projections, and all that they depend on.

    One object, which is replaced as a whole: threads may share a module.
    """

    settings: tuple[object, ...]
    checksums: bytes
    results: tuple[Tensor, ...]


#: By module, apart from it: a pickle, a copy and a state dict never hold them.
_KEPT: WeakKeyDictionary[nn.Module, Kept] = WeakKeyDictionary()


def forget(module: nn.Module) -> None:
    """Free the projections that a module keeps."""
    _KEPT.pop(module, None)


def is_plain_linear(layer: nn.Module) -> bool:
    """Return True for a Linear of torch's own, of which nothing but its numbers counts.

    A layer of another class may compute something else, and hooks see each call.
    """
    if type(layer) is not nn.Linear or "forward" in vars(layer):
        return False
    if any(getattr(nn.modules.module, name) for name in _GLOBAL_HOOKS):
        return False
    return not any(vars(layer)[name] for name in _HOOKS)


def project_by(
    module: nn.Module,
    rows: Tensor | Encodings,
    layers: Sequence[Any],
    used: slice | None = None,
) -> tuple[Tensor, ...] | None:
    """Return `project` by layers; None unless each is a Linear of torch's own."""
    if torch.compiler.is_compiling() or not all(map(is_plain_linear, layers)):
        return None
    pairs = [Projection(layer.weight, layer.bias) for layer in layers]
    return project(module, rows, pairs, used)


def project(
    module: nn.Module,
    rows: Tensor | Encodings,
    projections: Sequence[Projection],
    used: slice | None = None,
) -> tuple[Tensor, ...]:
    """Return the `used` ones of the rows, (R, width), or all, by each projection.

    Where projections are kept, all rows are projected, whatever is used of them: a
    product of fewer rows has other bits, and a result may not depend on earlier calls.
    """
    used = slice(None) if used is None else used
    tensors = [] if isinstance(rows, Encodings) else [rows]
    for each in projections:
        tensors += [x for x in each if x is not None]
    if not _may_keep(module, tensors):
        return _products(_computed(rows)[used], projections)
    results = _kept(module, rows, projections, tensors).results
    return tuple(result[used] for result in results)


def _computed(rows: Tensor | Encodings) -> Tensor:
    return rows.compute() if isinstance(rows, Encodings) else rows


def _products(rows: Tensor, projections: Sequence[Projection]) -> tuple[Tensor, ...]:
    return tuple(nn.functional.linear(rows, *each) for each in projections)


def _kept(
    module: nn.Module,
    rows: Tensor | Encodings,
    projections: Sequence[Projection],
    tensors: Sequence[Tensor],
) -> Kept:
    """Return what a module keeps of these tensors, made anew where it is of others."""
    settings = (
        under_autocast(projections[0].weight.dtype),
        id(kernels()),  # which compute encodings
        torch.get_num_threads(),
        _precision(),
        rows.arguments if isinstance(rows, Encodings) else None,
        tuple(each.bias is None for each in projections),
        tuple((x.dtype, x.shape) for x in tensors),
    )
    arrays = [array_of("projection", x, short=True) for x in tensors]
    checksums = kernels().checksums(*arrays)
    kept = _KEPT.get(module)
    if kept is None or (kept.settings, kept.checksums) != (settings, checksums):
        # What is kept outlives an inference mode of this call.
        with torch.inference_mode(False), torch.no_grad():
            results = _products(_computed(rows), projections)
        kept = Kept(settings, checksums, results)
        _KEPT[module] = kept
    return kept


def _precision() -> str:
    """Return the setting by which torch may round products of float32 on the CPU."""
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if matmul is None:  # before torch 2.9
        return torch.get_float32_matmul_precision()
    # get_float32_matmul_precision raises if a program has used both this setting and
    # set_float32_matmul_precision
    precision: str = matmul.fp32_precision
    return precision


def _may_keep(module: Any, tensors: Sequence[Tensor]) -> bool:
    """Return True for a call in inference whose projections may be kept.

    All tensors have to be plain ones on the CPU, and nothing may follow the call.
    """
    if torch.is_grad_enabled() or not module.keep_positions:
        return False
    # also where dropout of positions alone is on
    if any(part.training for part in module.modules()):
        return False
    if not is_plain() or torch._C._len_torch_function_stack() > 0:
        return False
    return all(
        type(x) in PLAIN and x.is_cpu and x.is_contiguous() and not x.is_neg()
        for x in tensors
    )
