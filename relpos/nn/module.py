"""Base of every layer: parameters by name, weights in and out, train and eval."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from textwrap import indent
from types import FunctionType, MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, Self, TypeAlias, TypedDict, TypeVar

import numpy as np

from relpos._checks import (
    Array,
    ArrayLike,
    DTypeLike,
    as_array,
    as_flag,
    as_float_dtype,
    as_floating,
    as_generator,
    check_shape,
    is_floating,
    kind_of,
    quiet,
)
from relpos._tensors import check_kind, of_tensor
from relpos._undo import call_number, keep, put, whole
from relpos.nn._inputs import as_settings
from relpos.nn.decoding import opens_states

__all__ = ["LoadResult", "Module", "Parameter"]

K = TypeVar("K", "Parameter", "Module")

Seed: TypeAlias = "int | np.random.Generator | None"


class Parameter:
    """Array that is trained, and its gradient.

    Parameters
    ----------
    data : array_like of float32 or float64
        The values; kept, not copied.

    Attributes
    ----------
    data : ndarray
        The values, changed in place by optimisers and `Module.load_state_dict`.
    grad : ndarray or None
        Sum of the gradients since the last `Module.zero_grad`; None without any.

    Raises
    ------
    TypeError
        `data` is no array of float32 or float64; or, assigned later, of another dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> weight = nn.Parameter(np.zeros((2, 3)))
    >>> weight.add_grad(np.ones((2, 3)))
    >>> weight.add_grad(np.ones((2, 3)))
    >>> weight.grad
    array([[2., 2., 2.],
           [2., 2., 2.]])
    """

    __slots__ = ("_data", "grad")
    #: End of the error for an array of another shape.
    _hint = ""

    def __init__(self, data: ArrayLike) -> None:
        array = as_floating("data", data)
        if array.dtype not in (np.float32, np.float64):
            raise TypeError(
                f"data: got dtype {array.dtype}; expected float32 or float64"
            )
        self._data: Array = array
        self.grad: Array | None = None

    @property
    def data(self) -> Array:
        """Values of the parameter."""
        return self._data

    @data.setter
    def data(self, data: ArrayLike) -> None:
        array = as_floating("data", data)
        if array.dtype != self._data.dtype:
            raise TypeError(
                f"data: got dtype {array.dtype}; expected {self._data.dtype}, as so far"
            )
        self._data = array

    @quiet
    def add_grad(self, grad: ArrayLike) -> None:
        """Add to the gradient so far.

        Parameters
        ----------
        grad : array_like, shape of `data`
            What to add.

        Raises
        ------
        ValueError
            `grad` is of another shape.
        """
        grad = as_floating("grad", grad)
        shape = self.data.shape
        expected = f"that of the parameter, {shape}"
        check_shape("grad", grad, grad.shape == shape, expected)
        if self.grad is None:
            put(self, "grad", np.array(grad, self.data.dtype))
        else:
            # A new array, not +=: if the call around raises, `put` restores the old.
            total = np.empty_like(self.grad)
            put(self, "grad", np.add(self.grad, grad, out=total, casting="same_kind"))

    def __repr__(self) -> str:
        return f"Parameter(shape={self.data.shape}, dtype={self.data.dtype})"


class LayerOptions(TypedDict):
    """Keywords that a layer hands on to the layers that it makes."""

    rng: Seed
    dtype: np.dtype[Any]


class LoadResult(NamedTuple):
    """Names that `Module.load_state_dict` found on one side only; none when strict.

    Attributes
    ----------
    missing_keys : list of str
        Parameters of the layer that were not given: they keep their values.
    unexpected_keys : list of str
        Names that were given and are no parameter of the layer.

    Examples
    --------
    >>> from relpos import nn
    >>> layer = nn.Linear(2, 1)
    >>> layer.load_state_dict({"weight": [[1.0, 2.0]], "scale": 3.0}, strict=False)
    LoadResult(missing_keys=['bias'], unexpected_keys=['scale'])
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


# ---- calls that are going on ---------------------------------------------------------
#
# A layer remembers its last call only. If a model uses a layer twice before `backward`,
# the first use has no gradient any more, and that of the last one would be wrong. So
# each call sets a new `_mark` in its layer, and the call around notes (layer, mark).
# `backward` compares them: a layer whose mark has changed since was called again.


class _Frame(NamedTuple):
    """Call or backward of a layer that is going on.

    calls: the layers that it has called, each with its mark after that call. A backward
    begins with those of the call. number: that of the outermost call around.
    """

    owner: Module
    calls: list[tuple[Module, object]]
    goes_back: bool
    number: int

    def add(self, layer: Module) -> None:
        if self.goes_back:
            # A backward calls a layer again for the gradient that it computes next:
            # this call replaces those that the forward made of it.
            self.calls[:] = [call for call in self.calls if call[0] is not layer]
        self.calls.append((layer, layer._mark))


class _Thread(threading.local):
    """The innermost call or backward that is going on in a thread."""

    frame: _Frame | None = None


_here = _Thread()


def _frame_now() -> _Frame | None:
    """Return the call or backward around, but none that an interrupt left behind."""
    frame = _here.frame
    return frame if frame is not None and frame.number == call_number() else None


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make each call of a layer set a `_mark` of its own, by which others know it."""

    @functools.wraps(function)
    def call(self: Module, *args: Any, **keywords: Any) -> Any:
        put(self, "_mark", object())
        if self._went_back or not self.training:
            # What the call before has kept is freed before this one allocates. It is
            # not `put`: no later error brings it back, as the class promises.
            vars(self).update(_last_call=None, _went_back=False)
        around = _frame_now()
        _here.frame = _Frame(self, [], False, call_number())
        try:
            out = function(self, *args, **keywords)
        finally:
            _here.frame = around
        if around is not None:
            around.add(self)
        return out

    return call


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `backward` refuse a layer that was called again since its owner called it.

    The owner may have used the layer as a function, and does not ask for its gradient
    then, or may call it again before it does. So the check is here, not in the owner.
    """

    @functools.wraps(function)
    def call(self: Module, *args: Any, **keywords: Any) -> Any:
        around = _frame_now()
        if around is not None and around.goes_back:
            _check_mark(around, self)
        _here.frame = _Frame(self, [*self._calls], True, call_number())
        try:
            return function(self, *args, **keywords)
        finally:
            _here.frame = around

    return call


def _check_mark(frame: _Frame, layer: Module) -> None:
    """Raise if a layer does not remember the only call that its owner made of it."""
    for called, mark in frame.calls:
        if called is layer and layer._mark is not mark:
            raise RuntimeError(
                f"{type(frame.owner).__name__}.backward: its {type(layer).__name__} "
                "has been called again since, and a layer remembers its last call "
                "only; expected a layer for each use (they may share Parameters), "
                "and each call's backward before the next call"
            )


# ---- layers --------------------------------------------------------------------------


class Module:
    """Base of the layers, and of models made of them.

    Attributes that are a `Parameter`, a `Module` or a list of these make up the names
    that `named_parameters` and `state_dict` give; those starting with an underscore do
    not count. A model defines ``__call__`` and ``backward``: the latter calls the
    ``backward`` of its layers in the opposite order. A layer remembers its last call
    only, so each call is to be followed by its own ``backward``; until then an array
    that was passed to it must not be changed in place.

    A call, a ``backward`` or a constructor that raises, also by an interrupt, leaves
    gradients, generators, memories and caches as they were. Of the call before,
    ``backward`` still gives the gradients while the model trains and they have not been
    computed yet; otherwise it raises.

    Attributes
    ----------
    training : bool
        Whether dropout is on. True until `eval` is called, as in PyTorch.
    takes : tuple of str
        The keywords of a call, such as `key_lengths`, that `Sequential` and `Residual`
        hand on to the layer. None unless a class says otherwise.

    Raises
    ------
    TypeError
        An attribute that is a parameter is assigned something else than another one or
        None, which would drop it; so for a module.

    Notes
    -----
    A constructor raises TypeError for an argument of another kind, and ValueError for a
    size below 1 or beyond what memory can address, for a number of heads that does not
    divide the width, for a probability outside [0, 1) and for any other argument out of
    its range. A call raises TypeError for an array that is not floating or of a wider
    dtype than the layer, ValueError for a shape that does not fit, and MemoryError. The
    docstrings of the layers list only further conditions.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> class Model(nn.Module):
    ...     def __init__(self, rng):
    ...         self.tokens = nn.Embedding(10, 8, rng=rng)
    ...         self.attention = nn.RelativeGlobalAttention(8, 2, max_len=16, rng=rng)
    ...
    ...     def __call__(self, tokens):
    ...         return self.attention(self.tokens(tokens))
    ...
    ...     def backward(self, grad_out):
    ...         self.tokens.backward(self.attention.backward(grad_out))
    >>> model = Model(np.random.default_rng(0)).eval()
    >>> out = model(np.array([[3, 1, 4, 1, 5]]))
    >>> model.backward(np.ones_like(out))
    >>> [name for name, _ in model.named_parameters()][:3]
    ['tokens.weight', 'attention.Er', 'attention.query.weight']
    >>> model.tokens.weight.grad.shape
    (10, 8)
    """

    training: bool = True
    takes: tuple[str, ...] = ()
    dtype: np.dtype[Any] = np.dtype(np.float32)
    #: First part of the names of a part's parameters, where it is not the part's name.
    _prefixes: Mapping[str, str] = {}
    _mixes_tokens: bool = False  # so that it decodes only with a cache
    _rng: np.random.Generator
    _settings: dict[str, object] | None = None
    _last_call: tuple[tuple[int, ...], tuple[Any, ...]] | None = None
    _mark: object = None  # of the last call alone
    _calls: tuple[tuple[Module, object], ...] = ()  # of layers in the last call
    _went_back: bool = False  # whether the last call had its backward

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Let a layer's calls change all that they change, or nothing."""
        super().__init_subclass__(**keywords)
        # Only what the class itself defines: an inherited method is wrapped already.
        for name in ("__init__", "__call__", "backward"):
            function = vars(cls).get(name)
            if not isinstance(function, FunctionType):
                continue
            if name == "__call__":
                function = _marked(opens_states(function))
            elif name == "backward":
                function = _checked(function)
            # The outermost, so that an error undoes what the other wrappers put, too.
            setattr(cls, name, whole(function))

    def __repr__(self) -> str:
        if self._settings is None:  # a model, which is shown by its parts
            parts = [f"{name}: {child!r}\n" for name, child in _parts(self, Module)]
            return f"{type(self).__name__}(\n{indent(''.join(parts), '  ')})"
        arguments = [f"{name}={value!r}" for name, value in self._settings.items()]
        arguments.append(f"dtype={self.dtype}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __setattr__(self, name: str, value: object) -> None:
        # An array in the place of a Parameter would be no parameter any more: it would
        # not be trained, and not be in `state_dict`.
        before = vars(self).get(name)
        for kind in (Parameter, Module):
            if isinstance(before, kind) and not isinstance(value, kind | None):
                hint = ""
                if kind is Parameter:
                    hint = (
                        f" (for new values write into {name}.data[...], or call "
                        "load_state_dict)"
                    )
                raise TypeError(
                    f"{name}: got {kind_of(value)}, which would drop a {kind.__name__} "
                    f"of {type(self).__name__}; expected another one, or None{hint}"
                )
        # A layer computes in one dtype. A model, which has no settings, need not.
        is_layer = self._settings is not None
        if is_layer and isinstance(before, Parameter) and isinstance(value, Parameter):
            _check_same_dtype(name, before, value)
        super().__setattr__(name, value)

    # ---- what a layer is made of ----------------------------------------------------

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield (name, `Parameter`), each parameter once, under its PyTorch name.

        Yields
        ------
        name : str
            As in `state_dict`.
        parameter : Parameter
            The parameter itself, not a copy.
        """
        seen: set[int] = set()  # tied parameters have several names
        for name, entry in _entries(self, computed=False):
            if isinstance(entry, Parameter) and id(entry) not in seen:
                seen.add(id(entry))
                yield name, entry

    def parameters(self) -> Iterator[Parameter]:
        """Yield every `Parameter` once, as the optimisers take them.

        Yields
        ------
        Parameter
            Each parameter of the layer and of its parts.
        """
        for _, parameter in self.named_parameters():
            yield parameter

    @whole
    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            put(parameter, "grad", None)

    @whole
    def train(self, mode: bool = True) -> Self:
        """Turn dropout on (or off, with False) here and in every part.

        Parameters
        ----------
        mode : bool, default True
            On or off.

        Returns
        -------
        Module
            The layer itself.
        """
        put(self, "training", as_flag("mode", mode))
        for _, child in _parts(self, Module):
            child.train(mode)
        return self

    def eval(self) -> Self:
        """Turn dropout off here and in every part.

        Returns
        -------
        Module
            The layer itself.
        """
        return self.train(False)

    # ---- weights in and out ---------------------------------------------------------

    def state_dict(self) -> dict[str, Array]:
        """Return a copy of every parameter by name, in PyTorch's names and shapes.

        `numpy.savez(path, **layer.state_dict())` stores it; `load_file` reads it.

        Returns
        -------
        dict of str to ndarray
            What `load_state_dict` takes.
        """
        return {
            name: np.array(entry.data if isinstance(entry, Parameter) else entry)
            for name, entry in _entries(self)
        }

    @quiet
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> LoadResult:
        """Copy weights into the parameters, cast to their dtype.

        Parameters
        ----------
        state_dict : mapping of str to array_like or torch.Tensor
            As `state_dict` here or in PyTorch returns it, or as `load_file` does.
        strict : bool, default True
            Whether a name on one side only is an error. Wrong shapes always are.

        Returns
        -------
        LoadResult
            ``(missing_keys, unexpected_keys)``.

        Raises
        ------
        TypeError
            `state_dict` is no mapping, or a value is no array of numbers.
        ValueError
            Names or shapes do not match, or one `Parameter` has two names and values;
            the message lists all of them, and nothing has been copied. Nor has it where
            a parameter is read-only. (An interrupt may come when some have been.)
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"state_dict: got {kind_of(state_dict)}; expected a mapping of names "
                "to arrays (nn.load_file reads one from a file)"
            )
        matched, missing, unexpected = compare_states(
            type(self).__name__,
            dict(_entries(self)),
            state_dict,
            as_flag("strict", strict),
        )
        for name, parameter, _ in matched:
            if not parameter.data.flags.writeable:
                raise ValueError(
                    f"state_dict: {name} of the layer is read-only; expected an array "
                    "that may be changed (pass a copy to Parameter)"
                )
        targets = [parameter.data for _, parameter, _ in matched]
        values = [array for _, _, array in matched]
        # A value may be a view of another parameter, which the loop below overwrites.
        for index, value in enumerate(values):
            if any(np.may_share_memory(value, target) for target in targets):
                values[index] = np.array(value)
        for target, value in zip(targets, values, strict=True):
            target[...] = value
        return LoadResult(missing, unexpected)

    def _computed(self) -> dict[str, Array]:
        """Return entries of `state_dict` that are computed: PyTorch's buffers."""
        return {}

    # ---- gradients ------------------------------------------------------------------

    @whole
    @_checked
    @quiet
    def backward(self, grad_out: ArrayLike) -> Any:
        """Add the parameters' gradients to their `grad`, and return the inputs'.

        Parameters
        ----------
        grad_out : array_like, shape of the last output
            Gradient of the loss with respect to what the last call returned.

        Returns
        -------
        ndarray, named tuple or None
            The gradient of the input. A layer that was given several inputs returns a
            named tuple of theirs; one whose input is integer, such as `Embedding`,
            returns None.

        Raises
        ------
        RuntimeError
            The layer has not been called, a layer whose gradient it needs has been
            called again since, or its class has no gradient of its own.
        TypeError
            `grad_out` is not floating.
        ValueError
            `grad_out` is not of the shape of the last output.
        MemoryError
            Out of memory; as with every error, nothing has been added to a gradient.
        """
        if type(self)._backward is Module._backward:
            raise RuntimeError(
                f"{type(self).__name__}.backward: the class has no gradient of its "
                "own; write a method `backward` that calls those of its layers"
            )
        return self._backward(*self._recall(grad_out))

    @classmethod
    def _has_backward(cls) -> bool:
        """Return True if the class has a gradient, or a method that gives one."""
        written = (cls.backward, cls._backward)
        return written != (Module.backward, Module._backward)

    def _backward(self, grad: Array, *saved: Any) -> Any:
        """Do the work of `backward`; `saved` are the arguments of `_remember`."""
        raise NotImplementedError

    # ---- for the layers -------------------------------------------------------------

    def _set_up(
        self,
        rng: Seed,
        dtype: DTypeLike,
        /,
        *,
        others: Mapping[str, Any] = MappingProxyType({}),
        **arguments: Any,
    ) -> SimpleNamespace:
        """Keep dtype, generator and settings; return the settings.

        arguments: those of the constructor, which `as_settings` checks by their names.
        others: further settings, kept as they are: their checks are elsewhere. The repr
        has all of them in this order.
        """
        settings = as_settings(arguments)
        vars(settings).update(others)
        self.dtype = as_float_dtype(dtype)
        self._rng = as_generator(rng)
        keep(self._rng)  # initial values come from it next
        self._settings = vars(settings)
        return settings

    @property
    def _options(self) -> LayerOptions:
        """Return the keywords with which a layer makes the layers in it."""
        return {"rng": self._rng, "dtype": self.dtype}

    def _start(self, values: Array) -> Parameter:
        """Return a parameter with these initial values, in the layer's dtype."""
        return Parameter(values.astype(self.dtype))

    def _remember(self, out: Array, *saved: Any) -> Array:
        """Keep `saved` for `backward` of this call; return `out`."""
        put(self, "_last_call", (out.shape, saved))
        frame = _frame_now()
        put(self, "_calls", () if frame is None else tuple(frame.calls))
        return out

    def _recall(self, grad_out: ArrayLike) -> tuple[Any, ...]:
        """Return `grad_out` in the layer's dtype, and the arguments of `_remember`."""
        if self._last_call is None:
            raise RuntimeError(
                f"{type(self).__name__}.backward: the layer has not been called yet, "
                "or not since a call that raised; call it first, then pass the "
                "gradient of what it returned"
            )
        shape, saved = self._last_call
        grad = as_floating("grad_out", grad_out)
        expected = f"{shape}, that of the layer's last output"
        check_shape("grad_out", grad, grad.shape == shape, expected)
        put(self, "_went_back", True)
        return grad.astype(self.dtype, copy=False), *saved


def _check_same_dtype(name: str, before: Parameter, after: Parameter) -> None:
    expected, got = before.data.dtype, after.data.dtype
    if got != expected:
        raise TypeError(f"{name}: got dtype {got}; expected {expected}, as so far")


def _members(name: str, value: object) -> Iterator[tuple[str, Parameter | Module]]:
    """Yield the parameters and modules of one attribute; lists count their items."""
    if isinstance(value, Parameter | Module):
        yield name, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _members(f"{name}.{index}", item)


def _parts(module: Module, kind: type[K]) -> Iterator[tuple[str, K]]:
    """Yield the parameters of a module itself, or the modules in it, by name."""
    for attribute, value in vars(module).items():
        if not attribute.startswith("_"):  # what a layer computes with, or remembers
            for name, member in _members(attribute, value):
                if isinstance(member, kind):
                    yield name, member


def check_alone(layer: Module) -> None:
    """Refuse a layer that would see no tokens but those of this call."""
    if layer._mixes_tokens:
        raise ValueError(
            f"cache: got one for a model with a {type(layer).__name__}, which keeps no "
            "keys; expected layers that take `cache`, or see each token alone"
        )
    for _, child in _parts(layer, Module):
        check_alone(child)


def _entries(
    module: Module, prefix: str = "", computed: bool = True
) -> Iterator[tuple[str, Parameter | Array]]:
    """Yield the entries of `state_dict`, in PyTorch's order: a module's own first."""
    for name, parameter in _parts(module, Parameter):
        yield prefix + name, parameter
    if computed:
        for name, array in module._computed().items():
            yield prefix + name, array
    for name, child in _parts(module, Module):
        first = module._prefixes.get(name, f"{name}.")
        yield from _entries(child, prefix + first, computed)


def _as_values(name: str, value: Any) -> Array:
    """Return an array or a tensor, not cast before its shape is known to fit."""
    check_kind(value, name)  # before it is asked for anything
    if getattr(value, "is_meta", False):  # a tensor of a shape alone
        raise ValueError(f"{name}: got a meta tensor; expected one that has values")
    array = as_array(name, of_tensor(name, value))
    if array.dtype.kind not in "fbiu" and not is_floating(array.dtype):
        raise TypeError(
            f"{name}: got {kind_of(value)}; expected an array or tensor of floats"
        )
    return array


class Match(NamedTuple):
    """Parameter of a layer, and its value in a state; not yet copied or cast."""

    name: str
    parameter: Parameter
    value: Array


def compare_states(
    layer: str,
    entries: dict[str, Parameter | Array],
    state: Mapping[str, Any],
    strict: bool,
) -> tuple[list[Match], list[str], list[str]]:
    """Return (parameters with their new values, missing names, unexpected names).

    entries: what the layer has by name. One that is no parameter may be absent from the
    state, and has to have the values that the layer computes.
    """
    trained = [name for name, entry in entries.items() if isinstance(entry, Parameter)]
    missing = [name for name in trained if name not in state]
    unexpected = [str(name) for name in state if name not in entries]
    matched: list[Match] = []
    faults: list[str] = []
    if strict and missing:
        faults.append(f"Missing key(s): {_quoted(missing)}.")
    if strict and unexpected:
        faults.append(f"Unexpected key(s): {_quoted(unexpected)}.")
    # The name and the value that each Parameter came with first; they hash by identity,
    # so that a tied one, which has two names, is found again here.
    firsts: dict[Parameter, tuple[str, Array]] = {}
    for name, entry in entries.items():
        if name not in state:
            continue
        array = _as_values(name, state[name])
        current: Array = entry.data if isinstance(entry, Parameter) else entry
        if array.shape != current.shape:
            hint = entry._hint if isinstance(entry, Parameter) else ""
            faults.append(
                f"size mismatch for {name}: got shape {array.shape}; the layer has "
                f"{current.shape}. {hint}".rstrip()
            )
        elif isinstance(entry, Parameter):
            matched.append(Match(name, entry, array))
            first_name, first = firsts.setdefault(entry, (name, array))
            if first_name != name and not _equal_in(current.dtype, first, array):
                faults.append(f"{name}: differs from {first_name}, the same Parameter.")
        elif not np.array_equal(array, current):
            faults.append(f"{name}: the values differ from those the layer computes.")
    if faults:
        head = f"state_dict: does not fit {layer}:"
        raise ValueError("\n    ".join([head, *faults]))
    return matched, missing, unexpected


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _equal_in(dtype: np.dtype[Any], a: Array, b: Array) -> bool:
    """Tell whether two arrays are equal after a cast; nan equals nan here."""
    return np.array_equal(a.astype(dtype), b.astype(dtype), equal_nan=True)
