"""Functions of arrays as differentiable functions of tensors.

A `TensorFunction` is made of a function of relpos, its backward, and the shape of what
it returns. Called eagerly it is an `autograd.Function`, which `torch.func` and `vmap`
take; under `torch.compile` and `torch.export` it is an operator of the library
"relpos", which they keep whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor

from relpos._attention.operands import ROWS, Mask
from relpos._checks import POSITION_LIMIT, Array, as_int, coarse_positions, kind_of
from relpos._settings import threads
from relpos._words import NO_TENSOR
from relpos.torch._onnx import check_export
from relpos.torch._tensors import (
    array_of,
    check_devices,
    check_kinds,
    check_type,
    in_tensor_words,
    result_dtype,
    tensor_of,
    under_autocast,
)
from relpos.torch._tracing import (
    PLAIN,
    apply,
    is_differentiated,
    is_dual,
    is_traced,
    not_compiled,
    requires_grad,
)

#: Operands and settings of one function, by name.
Arguments = dict[str, Any]
_Tensors = tuple[Tensor, ...]


class TensorFunction:
    """A function of relpos and its backward, as a function of tensors.

    Parameters
    ----------
    name : str
        Of the function.
    arguments : str
        As in an operator's schema, "Tensor x, Tensor? mask, bool is_causal": first the
        tensors, which are the operands, then the settings.
    forward : callable
        Called with arrays and settings, all by name; returns an array.
    shape : callable
        Called with tensors and settings, all by name; returns the result's shape.
    backward : callable, optional
        Called with the result's gradient, the names of the operands whose gradients are
        needed, and what `forward` was; returns a named tuple that has these, or the one
        gradient that there is.
    gradients : sequence of str
        The operands that have a gradient.
    dtype : torch.dtype, optional
        Of the result, under autocast as well. Default: a setting of this name, or the
        dtype of `short`, or to which the operands that have gradients promote.
    leads : mapping, optional
        Operands that may have a leading axis, so that one call does what a loop over
        that axis does: operand -> axes that it lacks, compared with the first operand,
        which has its least number of axes here. The others, or fewer, make `vmap` loop.
    linear : str, optional
        The operand, of the result's shape, whose own gradient does not depend on it.
    short : str, optional
        The operand that `forward` takes in 16 bits, and rounds its result to.
    exact : str, optional
        The operand that has positions, integers or not: bfloat16 would have rounded
        them before `forward` gets them in float32.
    """

    def __init__(
        self,
        name: str,
        arguments: str,
        forward: Callable[..., Array],
        shape: Callable[..., Sequence[int]],
        backward: Callable[..., Any] | None = None,
        *,
        gradients: Sequence[str] = (),
        dtype: torch.dtype | None = None,
        leads: Mapping[str, int] | None = None,
        linear: str | None = None,
        short: str | None = None,
        exact: str | None = None,
    ) -> None:
        self.name = name
        # the schema is also the one list of names, in the order of an operator's call
        parts = [part.split() for part in arguments.split(", ")]
        self.operands = [n for kind, n in parts if kind.startswith("Tensor")]
        self.settings = [n for _, n in parts[len(self.operands) :]]
        self.forward, self.backward, self.shape = forward, backward, shape
        self.gradients = list(gradients)
        self.dtype = dtype
        self.leads = dict(leads or {})
        self.linear = -1 if linear is None else self.operands.index(linear)
        self.short = short
        self.exact = exact
        #: Operands whose dtypes promote to that of the result.
        self._typed = self.gradients if short is None else [short]
        self._define(arguments)

    def __call__(self, **values: Any) -> Tensor:
        """Return the result; every operand and setting is given by name.

        Its conversion to the dtype of autocast is outside of the operator, which a
        compiled program calls without autocast.
        """
        for name in self.operands:
            value = values[name]
            if value is None:
                continue
            if not isinstance(value, Tensor):
                raise TypeError(f"{name}: got {kind_of(value)}; expected a tensor")
            if type(value) not in PLAIN:  # before it is asked for anything
                check_type(name, type(value))
            # else the gradient would be lost in silence
            if name not in self.gradients and requires_grad(value):
                raise ValueError(
                    f"{name}: requires a gradient, which {self.name} does not have; "
                    f"expected a tensor without ({name}.detach())"
                )
        # A caller may change a list or an array between forward and backward.
        for name in self.settings:
            values[name] = copied_setting(name, values[name])
        fixed = values.get("dtype", self.dtype)
        if fixed is not None or not torch.is_autocast_enabled("cpu"):
            return self._call(values)
        # Operands are not rounded to autocast's dtype, only the result is. Those of 16
        # bits give a result of 16 bits, so that they are widened for another dtype.
        plain = result_dtype(values[name] for name in self._typed)
        dtype = under_autocast(plain)
        if dtype != plain and plain.itemsize == 2:  # it would be rounded twice
            for name in self._typed:
                if values[name] is not None and values[name].dtype is plain:
                    values[name] = values[name].float()
        return self._call(values).to(dtype)

    def _call(self, values: Arguments) -> Tensor:
        args = [values[name] for name in (*self.operands, *self.settings)]
        traced = is_traced(self._tensors(args))
        # elsewhere `array_of` checks what it cannot read
        if traced or torch._C._are_functorch_transforms_active():
            check_kinds({name: values[name] for name in self.operands})
        if traced:
            if not is_differentiated():
                return self._op(*args)
            if torch.compiler.is_compiling():  # one that may stops here
                raise not_compiled(self.name)
        return apply(Apply, self, *args)

    # ---- arrays in, arrays out ------------------------------------------------------

    # Methods with `*args` take the operands, then the settings, in the schema's order.

    def named(self, *args: Any) -> Arguments:
        return dict(zip((*self.operands, *self.settings), args, strict=True))

    def _tensors(self, args: Sequence[Any]) -> list[Tensor]:
        """Return the operands that are given."""
        return [x for x in args[: len(self.operands)] if x is not None]

    @partial(in_tensor_words, tensors_of=named)
    def run(self, *args: Any) -> Tensor:
        values = self.named(*args)
        with threads(torch.get_num_threads()):
            array = self.forward(**self._arrays(values))
        return tensor_of(array, self._dtype(values)).contiguous()  # as `like` says

    def like(self, *args: Any) -> Tensor:
        """Return a tensor like the result, without its numbers, for a tracer."""
        check_export(self.name)
        values = self.named(*args)
        check_devices(values)
        empty: Tensor = args[0].new_empty(
            self.shape(**values), dtype=self._dtype(values)
        )
        return empty

    def run_backward(
        self, needs_grad: Sequence[bool], grad: Tensor, *args: Any
    ) -> list[Tensor]:
        assert self.backward is not None
        values = self.named(*args)
        names = [n for n, need in zip(self.operands, needs_grad, strict=True) if need]
        arrays = self._arrays(values)
        with threads(torch.get_num_threads()):
            result = self.backward(array_of("grad_out", grad), names, **arrays)
        if isinstance(result, tuple):
            gradients = result._asdict()  # type: ignore[attr-defined]
        else:
            gradients = dict.fromkeys(names, result)  # there is one name
        return [tensor_of(gradients[n], values[n].dtype).contiguous() for n in names]

    def like_backward(
        self, needs_grad: Sequence[bool], grad: Tensor, *args: Any
    ) -> list[Tensor]:
        return [
            torch.empty_like(x, memory_format=torch.contiguous_format)
            for x, need in zip(args, needs_grad, strict=False)  # the settings come last
            if need
        ]

    def _arrays(self, values: Arguments) -> Arguments:
        if self.exact is not None:
            positions = values[self.exact]
            if isinstance(positions, Tensor) and positions.dtype is torch.bfloat16:
                raise coarse_positions(self.exact)
        arrays = {n: array_of(n, values[n], n == self.short) for n in self.operands}
        return values | arrays

    def _dtype(self, values: Arguments) -> torch.dtype:
        fixed: torch.dtype | None = values.get("dtype", self.dtype)
        if fixed is not None:
            return fixed
        return result_dtype(values[name] for name in self._typed)

    # ---- derivatives ----------------------------------------------------------------

    def keep(self, ctx: Any, args: Sequence[Any], needed: Sequence[bool]) -> None:
        """Keep arguments for the backward, without an operand that it does not read."""
        count = len(self.operands)
        operands, ctx.settings = list(args[:count]), args[count:]
        # the gradient of `linear` does not read it; those of other operands do
        with_gradient = [n for n, need in enumerate(needed[:count]) if need]
        if with_gradient == [self.linear]:
            operands[self.linear] = None
        ctx.save_for_backward(*operands)

    def differentiate(
        self,
        ctx: Any,
        needed: Sequence[bool],
        grad: Tensor,
        call: Callable[..., Sequence[Tensor]],
    ) -> Any:
        """Return gradients of all arguments by `call`, None where none is needed.

        The result's gradient is in the place of an operand that was not kept.
        """
        # Settings come behind the operands, and have no gradient.
        needs_grad = list(needed[: len(self.operands)])
        operands = list(ctx.saved_tensors)
        if self.linear >= 0 and operands[self.linear] is None:
            operands[self.linear] = grad
        needed_gradients = iter(call(needs_grad, grad, *operands, *ctx.settings))
        gradients = [next(needed_gradients) if need else None for need in needs_grad]
        gradients += [None] * len(self.settings)
        return tuple(gradients)

    # ---- operators ------------------------------------------------------------------

    def _define(self, arguments: str) -> None:
        """Register the operators of both directions, for compiled programs."""
        library = f"relpos::{self.name}"
        # `like` says shape, dtype and order of axes before there is a result
        self._op = torch.library.custom_op(
            library, self._op_run, mutates_args=(), schema=f"({arguments}) -> Tensor"
        )
        self._op.register_fake(self.like)
        self._op.register_vmap(partial(self.vmap, self._op))
        if self.backward is None:
            return
        self._backward_op = torch.library.custom_op(
            f"{library}_backward",
            self.run_backward,
            mutates_args=(),
            schema=f"(bool[] needs_grad, Tensor grad_out, {arguments}) -> Tensor[]",
        )
        self._backward_op.register_fake(self.like_backward)
        self._backward_op.register_vmap(partial(self.vmap_backward, self._backward_op))
        # without this error a second derivative would be zero in silence
        self._backward_op.register_autograd(self._op_refuse)
        self._op.register_autograd(self._op_gradients, setup_context=self._op_context)

    def _op_run(self, *args: Any) -> Tensor:
        if is_dual(self._tensors(args)):
            raise no_forward_mode(self.name)  # the operator is not asked for tangents
        return self.run(*args)

    def _op_context(self, ctx: Any, inputs: Any, output: Tensor) -> None:
        self.keep(ctx, inputs, ctx.needs_input_grad)

    def _op_gradients(self, ctx: Any, grad: Tensor) -> Any:
        needed = ctx.needs_input_grad
        return self.differentiate(ctx, needed, grad, self._backward_op)

    def _op_refuse(self, ctx: Any, *grads: Any) -> NoReturn:
        raise no_double_backward(self.name)

    # ---- vmap -----------------------------------------------------------------------

    def vmap(self, call: Any, info: Any, in_dims: Any, *args: Any) -> Any:
        """Return the result of a `call` for all items, and where their axis is."""

        def call_as_list(*args: Any) -> list[Tensor]:
            return [call(*args)]

        (result,) = self._over_items(info, in_dims, args, call_as_list)
        return result, 0

    def vmap_backward(
        self, call: Any, info: Any, in_dims: Any, needs_grad: Any, *args: Any
    ) -> Any:
        """Return the gradients by a `call` for all items, and where their axis is."""
        call = partial(call, needs_grad)
        return self._over_items(info, in_dims[1:], args, call, needs_grad), 0

    def _over_items(
        self,
        info: Any,
        in_dims: Any,
        args: Sequence[Any],
        call: Callable[..., Sequence[Tensor]],
        needs_grad: Sequence[bool] = (),
    ) -> _Tensors:
        """Return the results of a `call` under `vmap`.

        With `needs_grad` it is a backward, whose first argument is the gradient.
        """
        count = len(self.operands)
        if needs_grad:
            count += 1
        tensors, settings = args[:count], args[count:]

        def call_with(tensors: Sequence[Any]) -> Sequence[Tensor]:
            return call(*tensors, *settings)

        # `leads` counts the axes that an operand lacks, and `over_items` those that it
        # has, both compared with the first operand
        first = self.operands[0]
        axes = {name: -lacking for name, lacking in self.leads.items()}
        if first in axes:
            axes[first] = 0
        return over_items(
            call_with,
            self.operands,
            tensors,
            in_dims[:count],
            info.batch_size,
            needs_grad,
            axes=axes,
            least={first: self.leads.get(first, 0)},
            repeated=True,
        )


class Reverse(torch.autograd.Function):
    """A Function whose one derivative is its backward; `ctx.called` is its name."""

    # not ctx.name, which is a method of PyTorch's

    @classmethod
    def alone(cls, *args: Any) -> Any:
        """Return what `forward` does, of a call that has no backward."""
        return cls.forward(*args)

    @staticmethod
    def returned(output: Any) -> Any:
        """Return what a call has of the results, where the others are only kept."""
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_double_backward(ctx.called)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise no_forward_mode(ctx.called)


class Apply(Reverse):
    """A `TensorFunction`, called eagerly."""

    @staticmethod
    def forward(function: TensorFunction, *args: Any) -> Tensor:
        return function.run(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        function, *args = inputs
        ctx.function, ctx.called = function, function.name
        function.keep(ctx, args, ctx.needs_input_grad[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        call = partial(apply, Gradients, ctx.function)
        # the first argument of the forward is the function
        needed = ctx.needs_input_grad[1:]
        return None, *ctx.function.differentiate(ctx, needed, grad, call)

    @staticmethod
    def vmap(info: Any, in_dims: Any, function: TensorFunction, *args: Any) -> Any:
        return function.vmap(partial(apply, Apply, function), info, in_dims[1:], *args)


class WithBackward(Protocol):
    """Methods that `Gradients` needs: of a `TensorFunction`, or an attention's setting.

    The arguments of a backward are gradients of results, and then those of a forward.
    """

    name: str

    def run_backward(
        self, needs_grad: Sequence[bool], *args: Any
    ) -> Sequence[Tensor]: ...

    def vmap_backward(
        self, call: Any, info: Any, in_dims: Any, needs_grad: Sequence[bool], *args: Any
    ) -> Any: ...


class Gradients(Reverse):
    """The backward of a `TensorFunction`, or of attention: it has no derivative."""

    @staticmethod
    def forward(
        function: WithBackward, needs_grad: Sequence[bool], *args: Any
    ) -> _Tensors:
        return tuple(function.run_backward(needs_grad, *args))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.called = inputs[0].name

    @staticmethod
    def vmap(info: Any, in_dims: Any, function: WithBackward, *args: Any) -> Any:
        call = partial(apply, Gradients, function)
        return function.vmap_backward(call, info, in_dims[1:], *args)


def counted(positions: Any, like: Tensor | None = None) -> Tensor:
    """Return positions, those of an int n being 0, 1, ..., n - 1 on `like`'s device."""
    if isinstance(positions, Tensor):
        return positions
    # an array without axes is an integer
    is_array = type(positions) is np.ndarray and positions.ndim
    if is_array or isinstance(positions, list | tuple):
        raise TypeError(
            f"positions: got {kind_of(positions)}; expected an integer or a tensor"
        )
    if not isinstance(positions, torch.SymInt):  # a length that a program has to learn
        positions = as_int("positions", positions, 0, POSITION_LIMIT)
    device = like.device if isinstance(like, Tensor) else None
    return torch.arange(positions, device=device)


def copied_setting(name: str, value: Any) -> Any:
    """Return a setting that no change of an array or of a list reaches later."""
    if isinstance(value, Tensor):
        raise TypeError(f"{name}: got {NO_TENSOR}")
    if isinstance(value, np.ndarray):
        return value.copy()[()]  # one without axes becomes a scalar
    return list(value) if isinstance(value, list) else value


def check_tensors(arguments: Mapping[str, object]) -> None:
    """Raise for an argument that is not a tensor, or one that has no plain numbers."""
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: got {kind_of(value)}; expected a tensor")
    check_kinds(arguments)


def no_forward_mode(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"relpos.torch.{name}: has no forward-mode derivative (jvp, forward_ad); "
        "expected reverse mode (backward, torch.func.grad, vjp, jacrev)"
    )


def no_double_backward(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"relpos.torch.{name}: its gradients have no gradients of their own; expected "
        "one backward, without create_graph (nor hessian, nor a gradient penalty)"
    )


# ---- calls under torch.vmap ---------------------------------------------------------

# Operands of attention have batch axes, which broadcast, so that a new one comes first.
# As it has to be aligned with the others', the axes that an operand lacks are put in
# behind it. Operands that may have no batch axes (sinks, buckets, FIRE's parameters, a
# graph) take a call for each item, and so does dropout, whose pattern is that of a
# call, and an operand whose axes are too few, since the new one would be taken for
# one. Of other functions, `TensorFunction.leads` names the operands that take a leading
# axis.

#: Operands of attention with batch axes, and how many others they have at most.
AXES = {name: row.axes for name, row in ROWS.items() if row.fit != "heads"}
#: How many others they have at least: something shared needs no axis of heads, and a
#: mask needs none.
LEAST = {
    name: AXES[name] - (ROWS[name].fit == "shared")
    for name in AXES
    if not isinstance(ROWS[name], Mask)
}

Dims = Sequence[int | None]


class Operand(NamedTuple):
    """An operand of a call under `vmap`."""

    name: str
    tensor: Tensor | None
    dim: int | None  # the axis of the items; None: the same for all of them
    needs_grad: bool

    def item_dim(self) -> int:
        """Return how many axes an item has."""
        assert self.tensor is not None
        return self.tensor.dim() - (0 if self.dim is None else 1)

    def item_shape(self) -> Sequence[int]:
        assert self.tensor is not None
        if self.dim is None:
            return self.tensor.shape
        return self.tensor.movedim(self.dim, 0).shape[1:]


def over_items(
    call: Callable[[Sequence[Any]], Sequence[Tensor]],
    names: Sequence[str],
    tensors: Sequence[Any],
    dims: Dims,
    size: int,
    needs_grad: Sequence[bool] = (),
    *,
    axes: Mapping[str, int] = AXES,
    least: Mapping[str, int] = LEAST,
    repeated: bool = False,
) -> tuple[Any, ...]:
    """Return results with a leading axis, of one call or of one for each item.

    Operands called `names` are the last of `tensors`; those before them have all batch
    axes. `axes` has the operands that take a leading axis, and how many axes they have
    behind those of the batch; an item has the `least` of them at least. One call
    repeats the operands of which it returns gradients, by `needs_grad`, and all of
    them if `repeated`.
    """
    count = len(tensors) - len(names)
    flags = needs_grad or [False] * len(names)
    rows = zip(names, tensors[count:], dims[count:], flags, strict=True)
    operands = [Operand(*row) for row in rows]
    batch_rank = _batch_rank(operands, axes)
    # a gradient for each item needs an operand for each item
    led = {x.name for x in operands if x.needs_grad or x.dim is not None}
    if not (
        led <= axes.keys()
        and "rng" not in names
        and _has_enough_axes(operands, least, batch_rank if repeated else 0)
    ):
        return _item_by_item(call, tensors, dims, size)
    with_axis = [_moved(tensors[n], dims[n], size) for n in range(count)]
    for operand in operands:
        tensor = operand.tensor
        if operand.name in led or (repeated and operand.name in axes):
            tensor = _moved(tensor, operand.dim, size)
            if tensor is not None:
                rank = 1 + batch_rank + axes[operand.name]
                tensor = _with_axes(tensor, rank - tensor.dim())
        with_axis.append(tensor)
    results = call(with_axis)
    if not needs_grad:
        return tuple(results)
    # an operand's gradient without the axes that were put in
    shapes = [x.item_shape() for x in operands if x.needs_grad]
    pairs = zip(results, shapes, strict=True)
    return tuple(result.reshape(size, *shape) for result, shape in pairs)


def _batch_rank(operands: Sequence[Operand], axes: Mapping[str, int]) -> int:
    """Return how many batch axes the item of any operand has at most."""
    # 0 at least: an operand with fewer axes than its own has no batch axes
    ranks = [0]
    for operand in operands:
        if operand.tensor is not None and operand.name in axes:
            ranks.append(operand.item_dim() - axes[operand.name])
    return max(ranks)


def _has_enough_axes(
    operands: Sequence[Operand], least: Mapping[str, int], least_of_first: int
) -> bool:
    """Return False where the axis of the items would be taken for another one.

    The first operand, with which the others broadcast, needs `least_of_first` axes.
    """
    if operands[0].item_dim() < least_of_first:
        return False
    return all(
        operand.item_dim() >= least.get(operand.name, 0)
        for operand in operands
        if operand.tensor is not None
    )


def _item_by_item(
    call: Callable[[Sequence[Any]], Sequence[Any]],
    tensors: Sequence[Any],
    dims: Dims,
    size: int,
) -> tuple[Any, ...]:
    """Return the stacked results of a call for each item."""
    if not size:
        raise ValueError("vmap: got no items; expected one or more of this call")
    items = [call(_item(tensors, dims, index)) for index in range(size)]
    return tuple(
        None if results[0] is None else torch.stack(results)
        for results in zip(*items, strict=True)
    )


def _item(tensors: Sequence[Any], dims: Dims, index: int) -> list[Any]:
    return [
        tensor if tensor is None or dim is None else tensor.select(dim, index)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]


def _moved(tensor: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """View a tensor with the new batch axis first, repeated where it has none."""
    if tensor is None:
        return None
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def _with_axes(tensor: Tensor, count: int) -> Tensor:
    """View a tensor with axes of length 1 behind the first one."""
    for _ in range(count):
        tensor = tensor.unsqueeze(1)
    return tensor
