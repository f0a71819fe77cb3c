"""Attention as a function that torch differentiates: in eager mode, and as operators.

Eagerly it is the Function `Attend`. For torch.compile and torch.export it is two
operators of the library "relpos". ``relpos::attention`` and
``relpos::attention_backward`` take the tensors of a call as a list, their names and
`_FORM` as one string, and then the rest of it. A program that is traced has to know the
shapes of results before there are numbers: they are here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from relpos._attention.attention import DEFAULTS
from relpos._attention.edges import GRAPH
from relpos._attention.fire_network import NAMES
from relpos.torch import _engine
from relpos.torch._engine import TYPED, Setting, shown
from relpos.torch._functions import (
    AXES,
    Gradients,
    Reverse,
    no_double_backward,
    no_forward_mode,
    over_items,
)
from relpos.torch._tensors import check_devices, check_kinds
from relpos.torch._tracing import (
    apply,
    is_batched,
    is_differentiated,
    is_dual,
    is_plain,
    is_traced,
    not_compiled,
)

#: The rest of a call in the operators' order: of `relpos.attention`, FIRE, the window.
_FIRE = {"signed": "bool", "eps": "float", "c": "float?", "threshold": "float?"}
_KINDS = {
    "dropout_p": "float",
    "is_causal": "bool",
    "scale": "float?",
    "softcap": "float?",
    "enable_gqa": "bool",
    "query_offset": "SymInt?",
    "key_lengths": "SymInt?",
    "min_relative_position": "SymInt?",
    "beyond": "str",
    "return_weights": "bool",
    "num_threads": "int?",
    **_FIRE,
    "left": "SymInt?",
    "right": "SymInt?",
    "is_fire": "bool",
    "is_graph": "bool",
}
_REST = ", ".join(f"{kind} {name}" for name, kind in _KINDS.items())

#: The form of both operators, raised where the arguments of the backward change. torch
#: keeps compiled programs on disk and finds them by the call of the forward alone: a
#: program of an earlier relpos would call the backward as that one did.
_FORM = ";2"

#: Gradients and results before the operands of a backward: they have all batch axes.
_OTHERS = 6
_NAME = "attention"
_Tensors = tuple[Tensor, ...]


def attend(setting: Setting, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """out and lse of a call, and its weights if asked for."""
    traced = is_traced(tensors)
    if traced or torch._C._are_functorch_transforms_active():
        check_kinds(dict(zip(map(shown, setting.names), tensors, strict=True)))
    if traced:
        if not is_differentiated():
            names = ",".join(setting.names) + _FORM
            found = [*_attention([*tensors], names, *_rest(setting))]
            weights = found[4:] if setting.values.get("return_weights") else ()
            return *found[:2], *weights
        if torch.compiler.is_compiling():  # one that may stops here, and runs it as is
            raise not_compiled(_NAME)
    if "attn_mask" in setting.names:
        mask = tensors[setting.names.index("attn_mask")]
        setting.looks = not is_batched(mask)
    found = apply(Attend, setting, *tensors)
    return found if len(found) < 4 else Attend.returned(found)


def _gradients(
    call: Callable[[Sequence[Any]], Sequence[Tensor]],
    wanted: Sequence[bool],
    grads: Sequence[Any],
) -> list[Any]:
    """Return gradients of all operands by `call`, None where none is wanted."""
    # of all results, those of out, lse and weights, behind what is kept, may have one
    at = 4 if len(grads) > 3 else 2
    given = grads[0], grads[1], grads[at] if at < len(grads) else None
    if all(grad is None for grad in given):
        return [None] * len(wanted)
    found = iter(call(given))
    return [next(found) if want else None for want in wanted]


# ---- eagerly -------------------------------------------------------------------------


def _is_rounded(output: Any) -> bool:
    """Return True where out is of 16 bits, and what a backward keeps comes last."""
    out, _, row_max, *_ = output
    return row_max is not None and out.dtype != row_max.dtype


class Attend(Reverse):
    """The forward: (out, lse, row_max, row_sum), and the weights if asked for.

    Where out is rounded to 16 bits, what it was before comes last.
    Tensors alone are kept for the backward, which prepares the call again.
    """

    @staticmethod
    def forward(setting: Setting, *tensors: Tensor) -> _Tensors:
        made, setting.made = setting.made, None
        return _engine.forward(setting, tensors) if made is None else made

    @staticmethod
    def alone(setting: Setting, *tensors: Tensor) -> _Tensors:
        setting.kept = False
        return _engine.forward(setting, tensors)

    @staticmethod
    def returned(output: Any) -> Any:
        return output[:2] + (output[4:-1] if _is_rounded(output) else output[4:])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.called = _NAME
        ctx.setting, *tensors = inputs
        out, _, row_max, row_sum, *_ = output
        kept = output[-1:] if _is_rounded(output) else ()
        ctx.mark_non_differentiable(row_max, row_sum, *kept)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(kept or (out,)), row_max, row_sum, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        wanted, saved = ctx.needs_input_grad[1:], ctx.saved_tensors
        if is_plain() and not torch.is_grad_enabled():
            made = _engine.backward_directly(ctx.setting, wanted, grads, saved)
            if made is not None:
                return None, *made

        def call(given: Sequence[Any]) -> Any:
            return apply(Gradients, ctx.setting, wanted, *given, *saved)

        return None, *_gradients(call, wanted, grads)

    @staticmethod
    def vmap(info: Any, in_dims: Any, setting: Setting, *tensors: Tensor) -> Any:
        setting.lse = True  # a result for each item, all of them tensors
        found = over_items(
            lambda operands: Attend.apply(setting, *operands),
            *(setting.names, tensors, in_dims[1:], info.batch_size),
        )
        return found, 0


# ---- operators -----------------------------------------------------------------------


def _rest(setting: Setting) -> list[Any]:
    more = setting.more or {}
    if more.get("edges") is not None:
        raise TypeError(
            "edges: got a scipy.sparse matrix while compiling; expected a tensor"
        )
    given = {"signed": False, "eps": 0.0} | DEFAULTS | setting.values | more
    given["left"], given["right"] = given["window"] or (None, None)
    given["is_fire"], given["is_graph"] = "signed" in more, "edges" in more
    return [given.get(name) for name in _KINDS]


def _setting(names: str, rest: Sequence[Any]) -> Setting:
    given = dict(zip(_KINDS, rest, strict=True))
    fire = {name: given.pop(name) for name in _FIRE}
    window = given.pop("left"), given.pop("right")
    more = dict.fromkeys(GRAPH) if given.pop("is_graph") else None
    if given.pop("is_fire"):
        more = dict.fromkeys(NAMES) | fire
    values = {name: x for name, x in given.items() if x is not None}
    values["window"] = window
    return Setting((*names.partition(";")[0].split(","),), values, more)


def _forward(operands: Sequence[Tensor], names: str, *rest: Any) -> tuple[Tensor, ...]:
    if is_dual(operands):  # the operator is not asked for their tangents
        raise no_forward_mode("attention")
    found = _engine.forward(_setting(names, rest), operands)
    return found if len(found) == 5 else (*found, found[0].new_empty(0))


def _backward(wanted: Sequence[bool], *args: Any) -> list[Tensor]:
    grads, kept, (operands, names, *rest) = args[:3], args[3:6], args[6:]
    return [*_engine.backward(_setting(names, rest), wanted, grads, kept, operands)]


_attention = torch.library.custom_op(
    "relpos::attention",
    _forward,
    mutates_args=(),
    schema=f"(Tensor[] operands, str names, {_REST}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_attention_backward = torch.library.custom_op(
    "relpos::attention_backward",
    _backward,
    mutates_args=(),
    schema="(bool[] wanted, Tensor? grad_out, Tensor? grad_lse, Tensor? grad_weights, "
    f"Tensor out, Tensor row_max, Tensor row_sum, Tensor[] operands, str names, {_REST}"
    ") -> Tensor[]",
)


# ---- shapes ----------------------------------------------------------------------


@_attention.register_fake
def _like_forward(
    operands: Sequence[Tensor], names: str, *rest: Any
) -> tuple[Tensor, ...]:
    setting = _setting(names, rest)
    given = dict(zip(setting.names, operands, strict=True))
    check_devices(given)
    batch = torch.broadcast_shapes(
        *(
            x.shape[: max(x.dim() - AXES[name], 0)]
            for name, x in given.items()
            if name in AXES
        )
    )
    query, key, value = given["query"], given["key"], given["value"]
    rows = (*batch, query.shape[-3], query.shape[-2])
    wide = any(x.dtype == torch.float64 for n, x in given.items() if n in TYPED)
    dtype = torch.float64 if wide else torch.float32
    shapes = (*rows, value.shape[-1]), rows, rows, rows
    weights = (*rows, key.shape[-2]) if setting.values["return_weights"] else (0,)
    return tuple(query.new_empty(shape, dtype=dtype) for shape in (*shapes, weights))


@_attention_backward.register_fake
def _like_backward(wanted: Sequence[bool], *args: Any) -> list[Tensor]:
    pairs = zip(args[_OTHERS], wanted, strict=True)
    return [x.new_empty(x.shape) for x, want in pairs if want]


# ---- a leading axis --------------------------------------------------------------


@_attention.register_vmap
def _over_items(
    info: Any, in_dims: Any, operands: Sequence[Tensor], names: str, *rest: Any
) -> Any:
    setting = _setting(names, rest)
    found = over_items(
        lambda operands: _attention([*operands], names, *rest),
        *(setting.names, operands, in_dims[0], info.batch_size),
    )
    no_weights = found[4].dim() == 1 and not setting.values["return_weights"]
    return found, (0, 0, 0, 0, None if no_weights else 0)


@_attention_backward.register_vmap
def _backward_over_items(
    info: Any, in_dims: Any, wanted: Sequence[bool], *args: Any
) -> Any:
    count = _OTHERS
    others, operands, names, *rest = args[:count], *args[count:]

    def call(wanted: Sequence[bool], *given: Any) -> list[Tensor]:
        return _attention_backward(
            wanted, *given[:count], [*given[count:]], names, *rest
        )

    dims = None, *in_dims[1 : 1 + count], *in_dims[1 + count]
    setting = _setting(names, rest)
    return setting.vmap_backward(call, info, dims, wanted, *others, *operands)


# ---- derivatives -----------------------------------------------------------------


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    operands, *ctx.rest = inputs
    names, *rest = ctx.rest
    out, _, row_max, row_sum, weights = output
    plain = () if _setting(names, rest).values["return_weights"] else (weights,)
    ctx.mark_non_differentiable(row_max, row_sum, *plain)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(out, row_max, row_sum, *operands)


def _differentiate(ctx: Any, *grads: Any) -> Any:
    wanted = [*ctx.needs_input_grad[0]]

    def call(given: Sequence[Any]) -> Any:
        out, row_max, row_sum, *operands = ctx.saved_tensors
        kept = *given, out, row_max, row_sum
        return _attention_backward(wanted, *kept, operands, *ctx.rest)

    return _gradients(call, wanted, grads), *(None for _ in ctx.rest)


def _refuse(ctx: Any, *grads: Any) -> None:
    raise no_double_backward("attention")


_attention.register_autograd(_differentiate, setup_context=_keep)
_attention_backward.register_autograd(_refuse)
