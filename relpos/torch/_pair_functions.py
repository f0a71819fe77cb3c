"""Functions of pairs, score_mod and mask_mod: mapped, traced and differentiated.

A function gets one pair: its score, and the indices of its batch item, head, query and
key. It is called as FlexAttention calls it, under four nested `torch.vmap`, once for
the shape of a block: `make_fx` records the operators of that call, and other blocks of
this shape run the record. The tensors that the function captures are inputs of it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from relpos._checks import kind_of
from relpos.torch._pair_graphs import (
    INDICES,
    forget_text,
    improve,
    is_constant,
)

#: A function of tensors that returns one, or one of gradients that returns several.
Call = Callable[..., Any]
#: score_mod, of a score and the places of its batch item, head, query and key.
ScoreFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_WHOLE = slice(None)
#: While `make_fx` records, it replaces methods of `torch.nn.Module` for all threads: of
#: two records at once, each would put back the methods of the other. It is held over a
#: fork, so that a child has the methods themselves.
_recording = RLock()
os.register_at_fork(
    before=_recording.acquire,
    after_in_parent=_recording.release,
    after_in_child=_recording.release,
)


class Places(NamedTuple):
    """Indices of the pairs of a block along each axis, vectors of int32."""

    batch: Tensor
    head: Tensor
    query: Tensor
    key: Tensor

    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self)


class Recorded(NamedTuple):
    """The operators of one call for one shape, as a function of tensors.

    `captured` has the numbers, among all captured tensors, of those that it takes
    behind its own arguments. `totals` has those of the gradients that it adds to in
    place; it takes them last.
    """

    run: Call
    captured: list[int]
    totals: list[int]


class PairFunction:
    """A score_mod or a mask_mod, for blocks of any shape.

    Parameters
    ----------
    name : str
        "score_mod" or "mask_mod", of which the first one has a score.
    function : callable
        As its caller gave it.
    dtype : torch.dtype
        The dtype of the scores as the function sees them.
    """

    def __init__(self, name: str, function: Any, dtype: torch.dtype) -> None:
        if not callable(function):
            arguments = "b, h, q_idx, kv_idx"
            if name == "score_mod":
                arguments = f"score, {arguments}"
            raise TypeError(
                f"{name}: got {kind_of(function)}; expected a function of ({arguments})"
            )
        self.name, self.dtype = name, dtype
        self.has_score = name == "score_mod"
        self._mapped = _mapped(function, self.has_score)
        #: Captured tensors, in the order in which they were found.
        self.captured: list[Tensor] = []
        #: Detached copies of those that require a gradient, by place.
        self._copies: dict[int, Tensor] = {}
        self._forwards: dict[tuple[int, ...], Recorded] = {}
        self._backwards: dict[tuple[int, ...], Recorded] = {}
        self.is_traced = True
        self.is_known = False  # the captured tensors that require a gradient

    # ---- what is captured ------------------------------------------------------------

    def find_captured(self, places: Places, example: Sequence[Tensor]) -> None:
        """Find the captured tensors by a first call, for a block of these indices.

        `example` has scores, or nothing for a mask_mod.
        """
        if self.is_traced:
            try:
                self._forward_of(places, example)
            except Exception:  # noqa: BLE001 - the call below raises it again, or runs
                self.is_traced = False
        if not self.is_traced:
            result, calls = self._run_as_it_is({}, (*example, *places))
            self._checked(result, places)
            for tensor in calls.captured():
                self._place_of(tensor)
        for place, tensor in enumerate(self.captured):
            if tensor.requires_grad:
                self._copies[place] = tensor.detach().requires_grad_()
        self.is_known = True

    def differentiable(self) -> list[int]:
        """Return the numbers of captured tensors that require a gradient."""
        return [*self._copies]

    def _place_of(self, tensor: Tensor) -> int:
        """Return the place of a captured tensor, a new one if it was not known."""
        for place, known in enumerate(self.captured):
            if known is tensor or self._copies.get(place) is tensor:
                return place
        if self.is_known and tensor.requires_grad:
            raise ValueError(
                f"{self.name}: got other captured tensors in a later block; expected a "
                "function that reads the same tensors in each call"
            )
        self.captured.append(tensor)
        return len(self.captured) - 1

    # ---- calls -----------------------------------------------------------------------

    def __call__(
        self, places: Places, example: Sequence[Tensor], captured: Sequence[Tensor]
    ) -> Tensor:
        """Return the results for all pairs of a block."""
        if not self.is_traced:
            result, _ = self._run_as_it_is({}, (*example, *places))
            return self._checked(result, places)
        recorded = self._forward_of(places, example)
        return _run(recorded, (*example, *places), captured, ())

    def prepare_backward(self, places: Places, scores: Tensor) -> None:
        """Record the backward of a block's shape, while the function is what it was."""
        if self.is_traced and places.shape() not in self._backwards:
            # a tensor of its own: the record knows its inputs by identity
            arguments = (torch.empty_like(scores), scores, *places)
            call = self._gradients_by(self._copies_by_id())
            recorded = self._record(call, arguments, [*self._copies.values()])
            self._backwards[places.shape()] = recorded

    def gradients(
        self,
        places: Places,
        scores: Tensor,
        grad: Tensor,
        captured: Sequence[Tensor],
        totals: Sequence[Tensor],
    ) -> Tensor:
        """Return the gradient of the scores, and add those of captured tensors.

        `totals` are of the tensors of `differentiable`, in that order. `captured` has
        all captured tensors as they were saved.
        """
        arguments = (grad, scores, *places)
        if self.is_traced:
            recorded = self._backwards[places.shape()]
            of_scores, *others = _run(recorded, arguments, captured, totals)
        else:
            call = self._gradients_by(self._copies_by_id())
            of_scores, *others = call(*arguments)
        for total, gradient in zip(totals, others, strict=True):
            if gradient is not None:
                total += gradient
        return of_scores

    def _copies_by_id(self) -> dict[int, Tensor]:
        return {id(self.captured[n]): copy for n, copy in self._copies.items()}

    def _gradients_by(self, copies: dict[int, Tensor]) -> Call:
        """Return the function of a gradient, scores and indices that differentiates."""
        wanted = [*copies.values()]

        def call(grad: Tensor, scores: Tensor, *places: Tensor) -> Sequence[Any]:
            # hooks of the caller, as those of checkpointing, are for its own tensors
            hooks = torch.autograd.graph.saved_tensors_hooks(_same, _same)
            # anomaly mode reads numbers, and a tensor that is recorded has none
            no_anomaly_mode = torch.autograd.set_detect_anomaly(False)
            with torch.enable_grad(), hooks, no_anomaly_mode:
                leaf = scores.detach().requires_grad_()
                result, _ = self._run_as_it_is(copies, (leaf, *places))
                result = self._checked(result, Places(*places)).to(scores.dtype)
                if not result.requires_grad:
                    return [torch.zeros_like(scores), *[None] * len(wanted)]
                leaves = [leaf, *wanted]
                _check_leaves(self.name, result, leaves)
                found = torch.autograd.grad(result, leaves, grad, allow_unused=True)
            of_scores = torch.zeros_like(scores) if found[0] is None else found[0]
            return [of_scores, *found[1:]]

        return call

    def _run_as_it_is(
        self, copies: dict[int, Tensor], arguments: Sequence[Tensor]
    ) -> tuple[Any, _Calls]:
        """Call the mapped function itself, captured tensors replaced by copies."""
        first, *others = arguments
        if self.has_score:
            first = first.to(self.dtype)
        with _Calls(self.name, copies) as calls:
            try:
                result = self._mapped(first, *others)
            except (RuntimeError, ValueError) as error:
                refused = _refusal(self.name, str(error))
                if refused is None:
                    raise
                raise refused from error
        if calls.has_changed():
            raise ValueError(
                f"{self.name}: changes a captured tensor or an argument in place; "
                "expected a function that only reads them"
            )
        return result, calls

    def _checked(self, result: Any, places: Places) -> Tensor:
        """Return a result of the mapped function, if it is a scalar of each pair."""
        if not isinstance(result, Tensor):
            raise TypeError(
                f"{self.name}: returned {kind_of(result)}; expected a scalar tensor"
            )
        shape, expected = result.shape, places.shape()
        if shape != expected:
            raise ValueError(
                f"{self.name}: returned a tensor of shape {tuple(shape[4:])} for a "
                "pair; expected a scalar, of shape ()"
            )
        dtype = result.dtype
        if self.has_score:
            if not (dtype.is_floating_point or dtype is torch.bool):
                raise TypeError(
                    f"score_mod: returned {dtype}; expected a floating tensor or bool"
                )
            # what is read of the score is cast too, so that all numbers are its own
            return result.to(self.dtype)
        if dtype is not torch.bool:
            raise TypeError(f"mask_mod: returned {dtype}; expected torch.bool")
        return result

    # ---- records ---------------------------------------------------------------------

    def _forward_of(self, places: Places, example: Sequence[Tensor]) -> Recorded:
        if places.shape() not in self._forwards:

            def call(*arguments: Tensor) -> Tensor:
                result, _ = self._run_as_it_is({}, arguments)
                own = Places(*arguments[-4:])
                return self._checked(result, own)

            with torch.no_grad():
                recorded = self._record(call, (*example, *places))
            self._forwards[places.shape()] = recorded
        return self._forwards[places.shape()]

    def _record(
        self, call: Call, arguments: Sequence[Tensor], copies: Sequence[Tensor] = ()
    ) -> Recorded:
        """Record the operators of a call; captured tensors become inputs.

        Of a backward, `copies` are the tensors whose gradients it returns.
        """
        from torch.fx.experimental.proxy_tensor import make_fx

        with _recording:
            module: Any = make_fx(call)(*arguments)
        forget_text(module)
        graph = module.graph
        inputs: dict[int, Any] = {}  # by place
        last = [node for node in graph.nodes if node.op == "placeholder"][-1]
        for node in [*graph.nodes]:
            if node.op != "get_attr" or is_constant(node):
                continue
            place = self._place_of(getattr(module, node.target))
            if place not in inputs:
                with graph.inserting_after(last):
                    inputs[place] = last = graph.placeholder(f"captured_{place}")
            node.replace_all_uses_with(inputs[place])
            graph.erase_node(node)
        totals = improve(graph, last, copies)
        module.recompile()
        forget_text(module)
        return Recorded(module.forward, [*inputs], totals)


def _run(
    recorded: Recorded,
    arguments: Sequence[Tensor],
    captured: Sequence[Tensor],
    totals: Sequence[Tensor],
) -> Any:
    read = [captured[place] for place in recorded.captured]
    written = [totals[place] for place in recorded.totals]
    return recorded.run(*arguments, *read, *written)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _mapped(function: Call, has_score: bool) -> Call:
    """Map a function of one pair over keys, queries, heads and batch items."""
    for axis in (3, 2, 1, 0):
        places: list[int | None] = [None] * 4
        places[axis] = 0
        score: tuple[int, ...] = (0,) if has_score else ()
        function = torch.vmap(function, in_dims=(*score, *places))
    return function


def _check_leaves(name: str, result: Tensor, leaves: Sequence[Tensor]) -> None:
    """Refuse a result that depends on a captured tensor itself, not on its copy."""
    known = {id(leaf) for leaf in leaves}
    seen, remaining = set(), [result.grad_fn]
    while remaining:
        node = remaining.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor) and id(variable) not in known:
            raise ValueError(
                f"{name}: computes with a captured tensor that requires a gradient "
                "in a way that is not seen; expected it as an argument of an operator "
                "of torch, or in a list, tuple or dict of these types themselves"
            )
        remaining += [following for following, _ in node.next_functions]


# ---- calls of one function -----------------------------------------------------------


def _refusal(name: str, message: str) -> Exception | None:
    """Return the error for a message of `torch.vmap`; None of another message."""
    if "randomness" in message:
        return ValueError(
            f"{name}: draws random numbers; expected a function of its arguments and "
            "of the tensors that it captures"
        )
    if ".item()" in message or "control flow" in message:
        return ValueError(
            f"{name}: decides by the numbers of its arguments (if, .item()); expected "
            "operators of torch alone, as torch.where"
        )
    if "is not possible because there exists a Tensor" in message:
        return ValueError(
            f"{name}: changes a captured tensor, or one that it makes without its "
            "arguments, in place; expected operators that return new tensors, as "
            "torch.where and torch.stack"
        )
    if "must only return Tensors" in message:
        return TypeError(f"{name}: returned no tensor; expected a scalar tensor")
    return None


class _Calls(TorchFunctionMode):
    """Calls of torch inside of a function of pairs.

    It notes which tensors come from outside, gives copies in place of some of them, and
    lets the function index by scalars, as FlexAttention does.

    Parameters
    ----------
    name : str
        "score_mod" or "mask_mod".
    copies : dict of Tensor by int
        What a tensor is replaced by, by the tensor's identity.
    """

    def __init__(self, name: str, copies: dict[int, Tensor]) -> None:
        super().__init__()
        self._name, self._copies = name, copies
        self._outside: dict[int, tuple[Tensor, int]] = {}
        # kept, so that no other tensor has their identity
        self._inside: dict[int, Tensor] = {}

    def captured(self) -> list[Tensor]:
        return [tensor for tensor, _ in self._outside.values()]

    def has_changed(self) -> bool:
        pairs = self._outside.values()
        return any(_version(tensor) != version for tensor, version in pairs)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args = self._replaced(args)
        kwargs = self._replaced(kwargs or {})
        indices = None
        if func is Tensor.__getitem__:
            _check_index(self._name, args[1])
            indices = _as_indices(args[0], args[1])
        if indices is not None:
            result = torch.ops.aten.index(args[0], indices)
        else:
            result = func(*args, **kwargs)
        for tensor in _plain_tensors(result):
            if id(tensor) not in self._outside:
                self._inside[id(tensor)] = tensor
        return result

    def _replaced(self, value: Any) -> Any:
        """Return arguments, tensors that have a copy replaced by it."""
        if isinstance(value, Tensor):
            for tensor in _plain_tensors(value):
                if id(tensor) not in self._inside:
                    self._outside.setdefault(id(tensor), (tensor, _version(tensor)))
            return self._copies.get(id(value), value)
        if isinstance(value, tuple) and hasattr(value, "_make"):
            return value._make(map(self._replaced, value))
        if type(value) in (tuple, list):
            return type(value)([self._replaced(item) for item in value])
        if type(value) is dict:
            return {name: self._replaced(item) for name, item in value.items()}
        return value


def _plain_tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value that `torch.vmap` does not map over."""
    if isinstance(value, Tensor):
        if not torch._C._functorch.is_functorch_wrapped_tensor(value):
            yield value
    elif isinstance(value, (tuple, list)):
        yield from itertools.chain.from_iterable(map(_plain_tensors, value))


def _version(tensor: Tensor) -> int:
    """Return how often a tensor was changed; those of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _check_index(name: str, index: Any) -> None:
    """Refuse uint8: PyTorch reads the numbers of all pairs as one mask."""
    for item in index if isinstance(index, tuple) else [index]:
        if isinstance(item, Tensor) and item.dtype is torch.uint8 and not item.dim():
            raise TypeError(
                f"{name}: indexes a tensor by torch.uint8, which PyTorch reads as a "
                "mask; expected an index of int32 or int64, as index.int()"
            )


def _as_indices(tensor: Any, index: Any) -> list[Tensor | None] | None:
    """Return an index as one for each axis, None where the usual way may take it.

    An index of one number is a number to Python, which `torch.vmap` does not have.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(_is_scalar_index(item) for item in items):
        return None
    indices: list[Tensor | None] = []
    for item in items:
        if isinstance(item, Tensor) and item.dtype in INDICES:
            indices.append(item)
        elif type(item) is int:
            indices.append(torch.tensor(item))
        elif isinstance(item, slice) and item == _WHOLE:
            indices.append(None)
        else:
            return None
    return indices


def _is_scalar_index(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dim() == 0 and item.dtype in INDICES
