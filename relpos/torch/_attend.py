"""Attention as a function that torch differentiates: in eager mode, and vmapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from relpos.torch import _batch, _engine, _ops
from relpos.torch._engine import Setting, shown
from relpos.torch._functions import no_double_backward, no_forward_mode
from relpos.torch._tensors import check_padded
from relpos.torch._tracing import apply, is_differentiated, is_traced, not_compiled

_NAME = "attention"
_Tensors = tuple[torch.Tensor, ...]


class Attend(torch.autograd.Function):
    """The forward: (out, lse, row_max, row_sum), and the weights if asked for.

    Tensors alone are kept for the backward, which prepares the call again.
    """

    @staticmethod
    def forward(setting: Setting, *tensors: torch.Tensor) -> _Tensors:
        return _engine.forward(setting, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.setting, *tensors = inputs
        out, _, row_max, row_sum, *_ = output
        ctx.mark_non_differentiable(row_max, row_sum)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(out, row_max, row_sum, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        wanted = ctx.needs_input_grad[1:]
        given = _engine.incoming(grads)
        if all(grad is None for grad in given):
            return None, *(None for _ in wanted)
        args = ctx.setting, wanted, *given, *ctx.saved_tensors
        found = iter(apply(AttendBackward, *args))
        return None, *(next(found) if want else None for want in wanted)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise no_forward_mode(_NAME)

    @staticmethod
    def vmap(info: Any, in_dims: Any, setting: Setting, *tensors: torch.Tensor) -> Any:
        found = _batch.forward(
            lambda operands: Attend.apply(setting, *operands),
            *(setting.names, tensors, in_dims[1:], info.batch_size),
        )
        return tuple(found), (0,) * len(found)


class AttendBackward(torch.autograd.Function):
    """Gradients of the tensors that are wanted: a function that has none itself."""

    @staticmethod
    def forward(setting: Setting, wanted: Any, *tensors: Any) -> _Tensors:
        return _engine.backward(setting, wanted, tensors[:3], tensors[3:6], tensors[6:])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> NoReturn:
        raise no_double_backward(_NAME)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise no_forward_mode(_NAME)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, setting: Setting, wanted: Any, *tensors: Any
    ) -> Any:
        found = _batch.backward(
            lambda given: AttendBackward.apply(setting, wanted, *given),
            *(setting.names, wanted, tensors, in_dims[2:], info.batch_size),
        )
        return tuple(found), (0,) * len(found)


def attend(setting: Setting, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """out, lse, row_max and row_sum of a call, and its weights if asked for."""
    if is_traced(tensors):
        check_padded(dict(zip(map(shown, setting.names), tensors, strict=True)))
        if not is_differentiated():
            return _ops.attend(setting, tensors)
        if torch.compiler.is_compiling():  # one that may stops here, and runs it as is
            raise not_compiled(_NAME)
    return apply(Attend, setting, *tensors)
