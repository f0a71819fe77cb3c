"""`relpos.compare`: outputs and gradients of two implementations, with verdicts."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array, kind_of, quiet
from relpos._opinion.arrays import (
    as_arrays,
    as_numpy,
    as_tensor,
    copied,
    first_accepted,
    is_module,
    is_tensor,
    largest,
    leaves,
    unchanged,
)
from relpos._opinion.rounding import CANNOT_TELL, Rounding, coarsest, rounding_of
from relpos._text import html_table, table_lines

__all__ = ["Compared", "Comparison", "compare"]

Gradients = dict[str, Array]

#: Verdicts that leave two implementations the same.
_SAME = ("same", "noise", "no gradient")
_HEADER = ("what", "shape", "largest", "error", "relative", "verdict")


class Compared(NamedTuple):
    """One output or gradient of both implementations.

    Attributes
    ----------
    name : str
        "output", or "grad" and the input or parameter.
    shape : tuple of int
        The shape of both.
    largest : float
        The largest size of an entry of the reference.
    error : float
        The largest difference.
    relative : float
        `error` over `largest`; nan where one of the two has no such gradient.
    verdict : str
        "same": `relative` is at most the limit, which a right implementation keeps.
        "differs": rounding does not explain the error.
        "cannot tell in this dtype: compare in float32": the error is above the limit,
        but it could come from scores rounded to 16 bits, up to .1 of the largest entry
        in bfloat16 and .02 in float16. A gradient in 16 bits that differs, and that is
        below the limit relative to the largest gradient, has this verdict too.
        "nan": both are nan at some entries, and the same at the others.
        "noise": both are rounding errors of float32 or float64 alone, as the gradient
        of a key's bias, which is 0.
        "no gradient": one of the two has none.
    """

    name: str
    shape: tuple[int, ...]
    largest: float
    error: float
    relative: float
    verdict: str


class Comparison(NamedTuple):
    """Result of `compare`, which shows itself as a table.

    Attributes
    ----------
    rows : tuple of Compared
        The outputs, then the gradients of inputs and parameters.
    limit : float
        The largest relative error that is rounding. It is 256 times the distance from 1
        to the next number in float32 and float64. In bfloat16 it is .0098, in float16
        .0012: 2.5 roundings of the stored numbers, and arithmetic in float32.
    notes : tuple of str
        Results that could not be compared, with the reason.
    """

    rows: tuple[Compared, ...]
    limit: float
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Return True if all results of both are the same, or noise."""
        return all(row.verdict in _SAME for row in self.rows)

    def _cells(self) -> list[list[str]]:
        return [
            [
                row.name,
                str(row.shape),
                f"{row.largest:.3g}",
                *("" if math.isnan(x) else f"{x:.1e}" for x in row[3:5]),
                row.verdict,
            ]
            for row in self.rows
        ]

    def _below(self) -> list[str]:
        said = {
            "differs": "differ",
            CANNOT_TELL: CANNOT_TELL,
            "nan": "nan on both sides",
        }
        found = []
        for verdict, words in said.items():
            names = [row.name for row in self.rows if row.verdict == verdict]
            found += [f"{words}: {', '.join(names)}"] if names else []
        last = "; ".join(found) or "nothing differs"
        return [*self.notes, f"{last} (limit {self.limit:.1e} of the largest entry)"]

    def __repr__(self) -> str:
        return "\n".join(
            [*table_lines(_HEADER, self._cells(), left=(0, 1, 5)), *self._below()]
        )

    def _repr_html_(self) -> str:
        return html_table(_HEADER, self._cells(), self._below())


@quiet
def compare(
    reference: Any, mine: Any, *inputs: Any, weights: Mapping[str, Any] | None = None
) -> Comparison:
    r"""Compare outputs and all gradients of two implementations, in one table.

    With y the first output of each side (of a mapping the first value), and c the same
    random numbers for both, the gradients are those of :math:`\sum c \, y`, and
    of each result x

    .. math:: error = \max |x_{mine} - x_{reference}|, \quad
              relative = error \, / \max |x_{reference}|

    Parameters
    ----------
    reference, mine : callable
        Each is a torch module, a layer of `relpos.nn` or another object with a
        `backward`, or a function. Gradients of a function of tensors are autograd's. A
        function of arrays has gradients if it is a function of relpos with
        `return_context`, or returns such a result. Modules and layers run in eval mode.
        Their mode, parameters, buffers and gradients are put back afterwards, and so is
        the state of the generators that NumPy's and torch's functions share.
    *inputs : array_like or tensor
        The arguments of both, by position. Each call gets its own copies, also of the
        items of lists, tuples and dictionaries, so that a function may work in place.
    weights : mapping of str to array_like or tensor, optional
        Loaded into both before, by the names of a state_dict, and left there.

    Returns
    -------
    Comparison
        `rows`, `limit`, `notes` and `same`; a table as text and in notebooks.

    Raises
    ------
    TypeError
        If a side cannot be called, or has no `load_state_dict` for `weights`, or if no
        copy can be made of an input.
    ValueError
        If the results of the two differ in shape.

    See Also
    --------
    diagnose : Says what explains a difference.
    relpos.plot.compare : Draws it.

    Notes
    -----
    Where a true gradient is 0, as that of a key's bias, both sides have rounding errors
    alone and their relative difference is of order 1. A gradient is called noise if it
    is smaller, on both sides, than the limit times the largest entry of any gradient.

    The limit follows from the dtype of the outputs, the coarser of both sides. It is
    that of bfloat16 or float16 also where an input, a parameter or a buffer has one of
    these, or an output of one side alone. A right implementation that stores inputs,
    weights of attention and results in 16 bits is the same; an error of 2 % in bfloat16
    or .5 % in float16 never is. Between the two, and where scores in 16 bits could make
    the error, the verdict is "cannot tell in this dtype: compare in float32", and
    `same` is False. `diagnose` computes the scores, and so can tell more often.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, whose
       softmax takes away what the keys' bias adds.

    Examples
    --------
    A layer, and the same by hand without its bias:

    >>> import numpy as np
    >>> import relpos
    >>> layer = relpos.nn.Linear(4, 3, rng=0, dtype=np.float64)
    >>> def mine(x):
    ...     return x @ layer.weight.data.T
    >>> x = np.random.default_rng(0).standard_normal((2, 4))
    >>> found = relpos.compare(layer, mine, x)
    >>> [(row.name, row.verdict) for row in found.rows]
    [('output', 'differs')]
    >>> found.notes
    ('mine has no gradients: it is a function of arrays alone',)
    """
    if not inputs:
        raise TypeError(
            "compare() needs what both are called with after reference, mine"
        )
    sides = {"reference": reference, "mine": mine}
    for name, thing in sides.items():
        load(name, thing, weights)
    with unchanged(reference, mine, evaluated=True):
        theirs, own = (side_of(name, thing, inputs) for name, thing in sides.items())
        rounding = _rounding(theirs, own, (reference, mine), inputs)
        rows, notes = _outputs(theirs, own, rounding), []
        grad_out = np.random.default_rng(0).standard_normal(rows[0].shape)
        gradients, own_gradients = theirs.backward(grad_out), own.backward(grad_out)
    if len(theirs.outputs) != len(own.outputs):
        counts = f"{len(own.outputs)} results and the reference {len(theirs.outputs)}"
        notes.append(f"mine has {counts}: the first are compared")
    for name, found in (("the reference", gradients), ("mine", own_gradients)):
        if found is None:
            notes.append(f"{name} has no gradients: it is a function of arrays alone")
    if gradients is not None and own_gradients is not None:
        names = names_of_inputs(reference, len(inputs))
        rows += _gradients(gradients, own_gradients, names, rounding)
    return Comparison((*rows,), rounding.limit(), (*notes,))


def _rounding(
    theirs: Side, own: Side, things: Sequence[Any], inputs: Sequence[Any]
) -> Rounding:
    """Return the coarser of both outputs, or 16 bits where anything else has them."""
    modules = filter(is_module, things)
    stored = [
        x for module in modules for x in (*module.parameters(), *module.buffers())
    ]
    every = [*leaves(inputs), *stored, *theirs.outputs, *own.outputs]
    halves = [x for x in every if rounding_of(x).is_half]
    return coarsest(theirs.outputs[0], own.outputs[0], *halves)


def _outputs(reference: Side, mine: Side, rounding: Rounding) -> list[Compared]:
    """Return a row for each output that both have."""
    several = min(len(reference.outputs), len(mine.outputs))
    names = ["output"] if several == 1 else [f"output[{at}]" for at in range(several)]
    pairs = zip(names, reference.results, mine.results, strict=False)
    return [_row(name, a, b, rounding, 0.0) for name, a, b in pairs]


def _gradients(
    reference: Gradients, mine: Gradients, names: list[str], rounding: Rounding
) -> list[Compared]:
    """Return a row for each input and parameter that has a gradient on a side."""
    floor = rounding.limit() * max(map(largest, reference.values()), default=0.0)
    found = []
    for key in {**reference, **mine}:
        name = f"grad {names[int(key)]}" if key.isdigit() else f"grad {key}"
        pair = [side[key] for side in (reference, mine) if key in side]
        if len(pair) == 2:
            found.append(_row(name, pair[0], pair[1], rounding, floor))
        else:
            blank = largest(pair[0]), math.nan, math.nan, "no gradient"
            found.append(Compared(name, pair[0].shape, *blank))
    return found


def _row(
    name: str, reference: Array, mine: Array, rounding: Rounding, floor: float
) -> Compared:
    """Return the errors of one result; sizes up to `floor` are noise."""
    if reference.shape != mine.shape:
        raise ValueError(
            f"mine: {name} has shape {mine.shape}; expected {reference.shape}, that of "
            "the reference"
        )
    size, nothing = largest(reference), np.isnan(mine) & np.isnan(reference)
    gap = np.abs(mine.astype(np.float64) - reference.astype(np.float64))
    gap = np.where(nothing | (mine == reference), 0.0, gap)
    error = float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))
    relative = error / size if size else (math.inf if error else 0.0)
    verdict = rounding.verdict(relative, rounding.limit(), rounding.doubtful)
    if verdict == "differs" and size <= floor and largest(mine) <= floor:
        verdict = CANNOT_TELL if rounding.is_half else "noise"
    if verdict != "differs" and nothing.any():
        verdict = "nan"
    return Compared(name, reference.shape, size, error, relative, verdict)


# ---- one of the two implementations --------------------------------------------------


class Side:
    """A call of one implementation: forward when made, then backward at most once."""

    outputs: list[Any]  # as they came
    results: list[Array]  # copies of them, made at once: one may be written again

    def backward(self, grad_out: Array) -> Gradients | None:
        """Return gradients by name, that of input n as "n"; None if there are none."""


def side_of(name: str, thing: Any, inputs: Sequence[Any]) -> Side:
    """Run `thing` on copies of the inputs; try a function with the inputs as they are.

    A function that refuses them is tried with arrays for tensors, or the reverse.
    """
    kinds: list[Any] = [OfArrays]
    if is_module(thing):
        kinds = [OfTensors]
    elif hasattr(thing, "backward"):
        kinds = [OfLayer]
    elif "torch" in sys.modules:
        kinds.insert(0 if any(map(is_tensor, inputs)) else 1, OfTensors)
    side: Side = first_accepted(lambda kind: kind(thing, inputs), kinds)
    if not side.outputs:
        raise TypeError(f"{name}: returned no array; expected an array or a tensor")
    side.results = [np.array(as_numpy(name, x)) for x in side.outputs]
    return side


def load(name: str, thing: Any, weights: Mapping[str, Any] | None) -> None:
    """Load the weights, if there are any, by the names of a state_dict."""
    if not callable(thing):
        raise TypeError(
            f"{name}: got {kind_of(thing)}; expected a torch module, a layer of "
            "relpos.nn or a function"
        )
    if weights is None:
        return
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"weights: got {kind_of(weights)}; expected a mapping of names to arrays"
        )
    if not hasattr(thing, "load_state_dict"):
        raise TypeError(
            f"weights: given, but {name} has no load_state_dict; expected two that do"
        )
    own = as_tensor if is_module(thing) else np.copy
    arrays = {key: as_numpy(f"weights[{key!r}]", x) for key, x in weights.items()}
    thing.load_state_dict({key: own(x) for key, x in arrays.items()})


def _results(results: Any) -> list[Any]:
    """List what a call returned, without values that are no arrays."""
    if isinstance(results, Mapping):  # such as the outputs of transformers' models
        results = [*results.values()]
    several = results if isinstance(results, tuple | list) else [results]
    return [x for x in several if hasattr(x, "dtype")]


class OfTensors(Side):
    """A module of torch, or a function of tensors: gradients by autograd."""

    def __init__(self, thing: Any, inputs: Sequence[Any]) -> None:
        torch = sys.modules["torch"]
        self.inputs = [
            x.detach().requires_grad_(x.is_floating_point()) if is_tensor(x) else x
            for x in map(as_tensor, copied([*inputs]))
        ]
        self.parameters = {}
        if hasattr(thing, "named_parameters"):
            every = thing.named_parameters()
            self.parameters = {name: p for name, p in every if p.requires_grad}
        with torch.enable_grad():
            # a leaf refuses to be changed in place, a copy of it does not
            given = (x.clone() if is_tensor(x) else x for x in self.inputs)
            self.outputs = _results(thing(*given))

    def backward(self, grad_out: Array) -> Gradients | None:
        torch = sys.modules["torch"]
        out = self.outputs[0]
        if not getattr(out, "requires_grad", False):
            return None
        named = {str(at): x for at, x in enumerate(self.inputs) if is_tensor(x)}
        named = {n: x for n, x in (named | self.parameters).items() if x.requires_grad}
        grad = as_tensor(grad_out).to(out.dtype)
        found = torch.autograd.grad(out, [*named.values()], grad, allow_unused=True)
        pairs = zip(named, found, strict=True)
        return {name: as_numpy(name, x) for name, x in pairs if x is not None}


class OfLayer(Side):
    """A layer of relpos, or another object with a `backward`."""

    def __init__(self, layer: Any, inputs: Sequence[Any]) -> None:
        self.layer = layer
        self.outputs = _results(layer(*as_arrays(copied([*inputs]))))

    def backward(self, grad_out: Array) -> Gradients | None:
        if hasattr(self.layer, "zero_grad"):
            self.layer.zero_grad()
        of_inputs = self.layer.backward(grad_out.astype(self.outputs[0].dtype))
        if not isinstance(of_inputs, tuple | list):
            of_inputs = (of_inputs,)
        found = {str(at): x for at, x in enumerate(of_inputs) if x is not None}
        if hasattr(self.layer, "named_parameters"):
            every = self.layer.named_parameters()
            found |= {name: p.grad for name, p in every if p.grad is not None}
        return {name: np.array(as_numpy(name, x)) for name, x in found.items()}


class OfArrays(Side):
    """A function of arrays: with gradients if it can return relpos's context."""

    def __init__(self, function: Any, inputs: Sequence[Any]) -> None:
        gives_context = "return_context" in _parameters(function)
        asked = {"return_context": True} if gives_context else {}
        result = function(*as_arrays(copied([*inputs])), **asked)
        self.context = getattr(result, "context", None)
        self.outputs = _results(result)
        self.names = names_of_inputs(function, len(inputs))

    def backward(self, grad_out: Array) -> Gradients | None:
        if self.context is None:
            return None
        grad = grad_out.astype(self.outputs[0].dtype)
        gradients = self.context.backward(grad)._asdict()
        found = {name: x for name, x in gradients.items() if x is not None}
        for at, name in enumerate(self.names):
            usual = ("query", "key", "value")[at] if at < 3 else ""
            own = name if name in found else usual
            if own in found:
                found[str(at)] = found.pop(own)
        return found


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function; none where it has no signature."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def names_of_inputs(thing: Any, count: int) -> list[str]:
    """Return the names of the inputs of a function, or of a module's forward."""
    parameters = _parameters(thing.forward if hasattr(thing, "forward") else thing)
    names = [n for n, p in parameters.items() if p.kind is not p.VAR_POSITIONAL]
    names += [f"input[{at}]" for at in range(len(names), count)]
    return names[:count]
