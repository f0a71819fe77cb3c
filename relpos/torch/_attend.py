"""Attention as a function that torch differentiates: in eager mode, and as operators.

Eagerly it is the Function `Attend`. For torch.compile and torch.export it is two
operators of the library "relpos". ``relpos::attention`` and
``relpos::attention_backward`` take the tensors of a call as a list, their names, the
number `_FORM`, and then the other arguments of the call. A program that is traced has
to know the shapes of results before there are numbers: they are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import torch
from torch import Tensor

from relpos._attention.attention import DEFAULTS
from relpos._attention.edges import EDGES
from relpos._attention.fire_network import NAMES
from relpos._attention.operands import called
from relpos._attention.problem import as_block_size
from relpos.torch import _engine
from relpos.torch._engine import (
    TYPED,
    ResultGradients,
    Results,
    SavedResults,
    Setting,
)
from relpos.torch._functions import (
    AXES,
    Gradients,
    Reverse,
    no_double_backward,
    no_forward_mode,
    over_items,
)
from relpos.torch._keywords import Values
from relpos.torch._onnx import check_export
from relpos.torch._tensors import check_devices, check_kinds, under_autocast
from relpos.torch._tracing import (
    apply,
    is_batched,
    is_differentiated,
    is_dual,
    is_plain,
    is_traced,
    not_compiled,
)

if TYPE_CHECKING:
    from relpos.torch._keywords import SchemeValues

#: Arguments of FIRE that are no tensors, and their types in a schema.
_FIRE = {"signed": "bool", "eps": "float", "c": "float?", "threshold": "float?"}
#: Types in a schema; a program may have to learn an integer, as it learns a length.
_IN_SCHEMA = {float: "float", bool: "bool", int: "SymInt", str: "str"}
#: Arguments of both operators behind the tensors, in their order: of
#: `relpos.attention`, of FIRE, the sides of the window and of blocks, and the scheme.
_KINDS = {
    **{
        name: _IN_SCHEMA[kind] + ("?" if DEFAULTS[name] is None else "")
        for name, kind in get_type_hints(Values).items()
        if name not in ("window", "block_size", "return_lse")
    },
    "num_threads": "int?",  # which no length of a tensor says
    **_FIRE,
    "left": "SymInt?",
    "right": "SymInt?",
    "block_queries": "SymInt?",
    "block_keys": "SymInt?",
    "is_fire": "bool",
    "is_graph": "bool",
}
_SETTINGS = ", ".join(f"{kind} {name}" for name, kind in _KINDS.items())

#: The form of both operators, raised where the arguments of the backward change. torch
#: keeps compiled programs on disk and finds them by the call of the forward alone: a
#: program of an earlier relpos would call the backward as that one did.
_FORM = 4

#: Gradients and results before the operands of a backward: they have all batch axes.
_OTHERS = 6
_NAME = "attention"
_Tensors = tuple[Tensor, ...]


def attend(setting: Setting, tensors: Sequence[Tensor]) -> Results:
    """Return out and lse of a call, and its weights if asked for."""
    traced = is_traced(tensors)
    if traced or torch._C._are_functorch_transforms_active():
        check_kinds(dict(zip(map(called, setting.names), tensors, strict=True)))
    if traced:
        if not is_differentiated():
            return _attend_as_operator(setting, tensors)
        if torch.compiler.is_compiling():  # one that may stops here, and runs it as is
            raise not_compiled(_NAME)
    # a mask over which vmap maps has no numbers to look at
    if "attn_mask" in setting.names:
        mask = tensors[setting.names.index("attn_mask")]
        setting.looks = not is_batched(mask)
    return Results(*apply(Attend, setting, *tensors))


def _attend_as_operator(setting: Setting, tensors: Sequence[Tensor]) -> Results:
    """Return what `attend` does, of a program that is traced."""
    dtype = dtype_of_call(dict(zip(setting.names, tensors, strict=True)))
    out, lse, _, _, weights = _attention(
        list(tensors), list(setting.names), _FORM, *_settings_of(setting)
    )
    # the operator has a tensor for each result, also where there are no weights
    if not setting.values.get("return_weights"):
        weights = None
    return Results(out.to(dtype), lse, weights=weights)


def _gradients(
    call: Callable[[ResultGradients], Sequence[Tensor]],
    needs_grad: Sequence[bool],
    result_gradients: ResultGradients,
) -> list[Tensor | None]:
    """Return gradients of all operands by `call`, None where none is needed."""
    # No loss uses a result: torch gives None for each.
    if all(gradient is None for gradient in result_gradients):
        return [None] * len(needs_grad)
    needed_gradients = iter(call(result_gradients))
    return [next(needed_gradients) if need else None for need in needs_grad]


# ---- eagerly -------------------------------------------------------------------------


def backward_of(
    setting: Setting,
    needs_grad: Sequence[bool],
    result_gradients: ResultGradients,
    saved: Sequence[Tensor],
) -> Sequence[Tensor | None]:
    """Return gradients of the tensors of a call, None where none is needed.

    `saved` are out, row_max and row_sum, and the tensors.
    """
    # C does not take a call with weights, so that their gradient is not lost here
    if is_plain() and not torch.is_grad_enabled():
        grad_out, grad_lse, _ = result_gradients
        direct = _engine.backward_directly(
            setting, needs_grad, (grad_out, grad_lse), saved
        )
        if direct is not None:
            return direct

    def call(result_gradients: ResultGradients) -> Any:
        return apply(Gradients, setting, needs_grad, *result_gradients, *saved)

    return _gradients(call, needs_grad, result_gradients)


class Attend(Reverse):
    """The forward, whose results are `Results`, all six.

    Tensors alone are kept for the backward, which prepares the call again.
    """

    @staticmethod
    def forward(setting: Setting, *tensors: Tensor) -> Results:
        return _engine.forward(setting, tensors)

    @staticmethod
    def alone(setting: Setting, *tensors: Tensor) -> Results:
        # No backward follows, and its results need no memory.
        setting.keeps = False
        return _engine.forward(setting, tensors)

    @staticmethod
    def returned(output: Results) -> Any:
        # the places stay, so that the backward's gradients have the same places
        return output.out, output.lse, None, None, output.weights, None

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.called = _NAME
        ctx.setting, *tensors = inputs
        # torch may hand on the results as a plain tuple
        out, _, row_max, row_sum, _, unrounded = output
        if unrounded is None:
            ctx.mark_non_differentiable(row_max, row_sum)
        else:
            ctx.mark_non_differentiable(row_max, row_sum, unrounded)
            out = unrounded
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(out, row_max, row_sum, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad_out, grad_lse, _, _, grad_weights, _ = grads
        result_gradients = ResultGradients(grad_out, grad_lse, grad_weights)
        needs_grad, saved = ctx.needs_input_grad[1:], ctx.saved_tensors
        return None, *backward_of(ctx.setting, needs_grad, result_gradients, saved)

    @staticmethod
    def vmap(info: Any, in_dims: Any, setting: Setting, *tensors: Tensor) -> Any:
        def call(operands: Sequence[Any]) -> Any:
            return Attend.apply(setting, *operands)

        # the first of the dims is that of the setting
        results = over_items(call, setting.names, tensors, in_dims[1:], info.batch_size)
        dims = tuple(None if result is None else 0 for result in results)
        return results, dims


# ---- operators -----------------------------------------------------------------------


def _settings_of(setting: Setting) -> list[Any]:
    """Return a setting as the last arguments of the operators, those of `_KINDS`."""
    scheme_values: dict[str, Any] = {**(setting.scheme_values or {})}
    if scheme_values.get("edges") is not None:
        raise TypeError(
            "edges: got a scipy.sparse matrix while compiling; expected a tensor"
        )
    # the schema asks for these of every call; only FIRE reads them
    arguments: dict[str, Any] = {"signed": False, "eps": 0.0}
    arguments |= DEFAULTS | {**setting.values} | scheme_values
    arguments["left"], arguments["right"] = arguments["window"] or (None, None)
    blocks = as_block_size(arguments["block_size"])
    arguments["block_queries"], arguments["block_keys"] = blocks or (None, None)
    arguments["is_fire"] = "signed" in scheme_values
    arguments["is_graph"] = "edges" in scheme_values
    return [arguments.get(name) for name in _KINDS]


def setting_of(names: Sequence[str], settings: Sequence[Any]) -> Setting:
    """Return the setting that `_settings_of` made the last arguments of."""
    arguments = dict(zip(_KINDS, settings, strict=True))
    fire = {name: arguments.pop(name) for name in _FIRE}
    window = arguments.pop("left"), arguments.pop("right")
    blocks = arguments.pop("block_queries"), arguments.pop("block_keys")
    is_fire, is_graph = arguments.pop("is_fire"), arguments.pop("is_graph")
    # relpos reads the scheme of a call from its names, those with None included
    scheme_values: dict[str, Any] | None = None
    if is_fire:
        scheme_values = dict.fromkeys(NAMES) | fire
    elif is_graph:
        scheme_values = dict.fromkeys(EDGES)
    values = {name: value for name, value in arguments.items() if value is not None}
    values["window"] = window
    if None not in blocks:
        values["block_size"] = blocks
    return Setting(
        tuple(names),
        cast("Values", values),
        cast("SchemeValues | None", scheme_values),
    )


def _forward(
    operands: Sequence[Tensor], names: Sequence[str], form: int, *settings: Any
) -> _Tensors:
    if is_dual(operands):  # the operator is not asked for their tangents
        raise no_forward_mode("attention")
    results = _engine.forward(setting_of(names, settings), operands)
    # An operator has a fixed number of tensors: an empty one is in the place of
    # weights.
    weights = results.weights
    if weights is None:
        weights = results.out.new_empty(0)
    # the default setting asks for all of these, and rounds nothing
    lse, row_max, row_sum = results.lse, results.row_max, results.row_sum
    assert lse is not None and row_max is not None and row_sum is not None
    return results.out, lse, row_max, row_sum, weights


def _backward(
    needs_grad: Sequence[bool],
    grad_out: Tensor | None,
    grad_lse: Tensor | None,
    grad_weights: Tensor | None,
    out: Tensor,
    row_max: Tensor,
    row_sum: Tensor,
    operands: Sequence[Tensor],
    names: Sequence[str],
    form: int,
    *settings: Any,
) -> list[Tensor]:
    gradients = _engine.backward(
        setting_of(names, settings),
        needs_grad,
        ResultGradients(grad_out, grad_lse, grad_weights),
        SavedResults(out, row_max, row_sum),
        operands,
    )
    return list(gradients)


_attention = torch.library.custom_op(
    "relpos::attention",
    _forward,
    mutates_args=(),
    schema=f"(Tensor[] operands, str[] names, int form, {_SETTINGS}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_attention_backward = torch.library.custom_op(
    "relpos::attention_backward",
    _backward,
    mutates_args=(),
    schema="(bool[] needs_grad, "
    "Tensor? grad_out, Tensor? grad_lse, Tensor? grad_weights, "
    "Tensor out, Tensor row_max, Tensor row_sum, "
    f"Tensor[] operands, str[] names, int form, {_SETTINGS}) -> Tensor[]",
)


# ---- shapes ----------------------------------------------------------------------


def dtype_of_call(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """Return the dtype of the result of a call that has no numbers yet.

    Of a call with numbers, csrc/python/rules.c says it: one tensor of float64 that
    counts is enough for float64; of other dtypes those of query, key and value count,
    and float32 is that of different ones. It may differ under autocast.
    """
    if any(x.dtype is torch.float64 for n, x in tensors.items() if n in TYPED):
        return torch.float64
    query, key, value = (tensors[name].dtype for name in ("query", "key", "value"))
    same = query.is_floating_point and query is key and query is value
    return under_autocast(query if same else torch.float32)


@_attention.register_fake
def _like_forward(
    operands: Sequence[Tensor], names: Sequence[str], form: int, *settings: Any
) -> _Tensors:
    check_export(_NAME)
    setting = setting_of(names, settings)
    by_name = dict(zip(names, operands, strict=True))
    check_devices(by_name)
    query, key, value = by_name["query"], by_name["key"], by_name["value"]
    rows = rows_of(by_name)
    weights = (*rows, key.shape[-2]) if setting.values["return_weights"] else (0,)
    shapes = [
        (*rows, value.shape[-1]),  # out
        rows,  # lse
        rows,  # row_max
        rows,  # row_sum
        weights,
    ]
    dtype = computed_dtype(by_name)
    return tuple(query.new_empty(shape, dtype=dtype) for shape in shapes)


def rows_of(tensors: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Return the shape of one number for each row of a result, (..., H, Lq)."""
    # the batch axes of all operands broadcast; what `AXES` lacks has none
    batches = [
        tensor.shape[: max(tensor.dim() - AXES[name], 0)]
        for name, tensor in tensors.items()
        if name in AXES
    ]
    query = tensors["query"]
    return *torch.broadcast_shapes(*batches), query.shape[-3], query.shape[-2]


def computed_dtype(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """Return the dtype of the operator's results, which are rounded behind it."""
    is_wide = dtype_of_call(tensors) is torch.float64
    return torch.float64 if is_wide else torch.float32


@_attention_backward.register_fake
def _like_backward(needs_grad: Sequence[bool], *args: Any) -> list[Tensor]:
    # new_empty is contiguous, as `_engine.backward` makes the gradients
    pairs = zip(args[_OTHERS], needs_grad, strict=True)
    return [x.new_empty(x.shape) for x, need in pairs if need]


# ---- a leading axis --------------------------------------------------------------


@_attention.register_vmap
def _over_items(
    info: Any,
    in_dims: Any,
    operands: Sequence[Tensor],
    names: Sequence[str],
    form: int,
    *settings: Any,
) -> Any:
    def call(operands: Sequence[Tensor]) -> Any:
        return _attention(list(operands), names, form, *settings)

    out, lse, row_max, row_sum, weights = over_items(
        call, names, operands, in_dims[0], info.batch_size
    )
    # one call for all items has an empty tensor instead of weights, without their axis
    has_weights = setting_of(names, settings).values["return_weights"]
    no_axis = weights.dim() == 1 and not has_weights
    dims = 0, 0, 0, 0, None if no_axis else 0
    return (out, lse, row_max, row_sum, weights), dims


@_attention_backward.register_vmap
def _backward_over_items(
    info: Any, in_dims: Any, needs_grad: Sequence[bool], *args: Any
) -> Any:
    # The order is that of the schema of the backward.
    others, operands, last = args[:_OTHERS], args[_OTHERS], args[_OTHERS + 1 :]
    names, _, *settings = last

    def call(needs_grad: Sequence[bool], *tensors: Any) -> Any:
        others, operands = tensors[:_OTHERS], list(tensors[_OTHERS:])
        return _attention_backward(needs_grad, *others, operands, *last)

    # torch gives a dim for each argument, and a list of them for the list of operands
    _, *other_dims = in_dims[: 1 + _OTHERS]
    dims = None, *other_dims, *in_dims[1 + _OTHERS]
    setting = setting_of(names, settings)
    return setting.vmap_backward(call, info, dims, needs_grad, *others, *operands)


# ---- derivatives -----------------------------------------------------------------


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    operands, *ctx.last = inputs
    names, _, *settings = ctx.last
    out, _, row_max, row_sum, weights = output
    if setting_of(names, settings).values["return_weights"]:
        # differentiable by torch's account, so that `_engine.backward` can refuse it
        ctx.mark_non_differentiable(row_max, row_sum)
    else:
        ctx.mark_non_differentiable(row_max, row_sum, weights)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(out, row_max, row_sum, *operands)


def _differentiate(ctx: Any, *grads: Any) -> Any:
    grad_out, grad_lse, _, _, grad_weights = grads
    needs_grad = list(ctx.needs_input_grad[0])

    def call(result_gradients: ResultGradients) -> Any:
        out, row_max, row_sum, *operands = ctx.saved_tensors
        saved = out, row_max, row_sum
        return _attention_backward(
            needs_grad, *result_gradients, *saved, operands, *ctx.last
        )

    result_gradients = ResultGradients(grad_out, grad_lse, grad_weights)
    gradients = _gradients(call, needs_grad, result_gradients)
    none_of_last = [None] * len(ctx.last)
    return gradients, *none_of_last


def _refuse(ctx: Any, *grads: Any) -> None:
    raise no_double_backward("attention")


_attention.register_autograd(_differentiate, setup_context=_keep)
_attention_backward.register_autograd(_refuse)
