"""`relpos.compare`: outputs and gradients of two implementations, with verdicts."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array, hinted, kind_of, quiet
from relpos._opinion.arrays import (
    added_mask,
    as_arrays,
    as_numpy,
    as_tensor,
    copied,
    first_accepted,
    is_module,
    largest,
    leaves,
    unchanged,
)
from relpos._opinion.padding import PADDING, Padding, padding_of
from relpos._opinion.rounding import CANNOT_TELL, Rounding, coarsest
from relpos._opinion.weights import Gradients, loaded, other_numbers, renamed, unpaired
from relpos._tensors import is_tensor
from relpos._text import html_table, table_lines
from relpos._warn import silenced

__all__ = ["Compared", "Comparison", "compare"]

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
        "same": `relative` is at most the limit, as that of a right implementation is.
        "differs": rounding does not explain the error.
        "differs only in rows that are padding": the output is the same in all others.
        "cannot tell in this dtype: compare in float32": the error is above the limit,
        but it could come from scores rounded to 16 bits, up to .1 of the largest entry
        in bfloat16 and .02 in float16. A gradient in 16 bits that differs, and that is
        below the limit relative to the largest gradient, has this verdict too.
        "nan": both are nan at some entries, and the same at the others.
        "noise": both are rounding errors of float32 or float64 alone, as for the
        gradient of a key's bias, which is 0.
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
                _short(row.error),
                _short(row.relative),
                row.verdict,
            ]
            for row in self.rows
        ]

    def _below(self) -> list[str]:
        words_of_verdicts = {
            "differs": "differ",
            PADDING: PADDING,
            CANNOT_TELL: CANNOT_TELL,
            "nan": "nan on both sides",
        }
        parts = []
        for verdict, words in words_of_verdicts.items():
            names = [row.name for row in self.rows if row.verdict == verdict]
            if names:
                parts.append(f"{words}: {', '.join(names)}")
        last = "; ".join(parts) or "nothing differs"
        return [*self.notes, f"{last} (limit {self.limit:.1e} of the largest entry)"]

    def __repr__(self) -> str:
        return "\n".join(
            [*table_lines(_HEADER, self._cells(), left=(0, 1, 5)), *self._below()]
        )

    def _repr_html_(self) -> str:
        return html_table(_HEADER, self._cells(), self._below())


def _short(error: float) -> str:
    """Return an error in two digits; nothing for nan."""
    return "" if math.isnan(error) else f"{error:.1e}"


@hinted
@quiet
@silenced()  # a note says it
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
        `return_context`, or returns such a result. A module of `relpos.nn` whose class
        has no `backward` has none. Modules and layers run in eval mode.
        Their mode, parameters, buffers and gradients are put back afterwards, and so is
        the state of the generators that NumPy's and torch's functions share.
    *inputs : array_like or tensor
        The arguments of both, by position. Each call gets its own copies, also of the
        items of lists, tuples and dictionaries, so that a function may work in place.
    weights : mapping of str to array_like or tensor, or of str to str, optional
        Arrays are loaded into both before, by the names of a state_dict, and left
        there. Names pair the parameters of two sides that call them differently: the
        keys are names in the reference, the values names in `mine`. The numbers of the
        reference are copied into `mine` before, and left there, also those of each name
        that both sides have and that is not in the mapping. The rows have the names of
        the reference.

    Returns
    -------
    Comparison
        `rows`, `limit`, `notes` and `same`; a table as text and in notebooks.

    Raises
    ------
    TypeError
        If a side cannot be called, or has no `load_state_dict` for `weights`, if no
        copy can be made of an input, or if `weights` has names and arrays.
    ValueError
        If the results of the two differ in shape. If `weights` has a name that a side
        does not have, the same name of `mine` twice, or names of two shapes.

    See Also
    --------
    diagnose : Says what explains a difference.
    relpos.plot.compare : Draws it.

    Notes
    -----
    Where a true gradient is 0, as that of a key's bias, both sides have rounding errors
    alone and their relative difference is of order 1. A gradient is called noise if it
    is smaller, on both sides, than the limit times the largest entry of any gradient.

    If both sides have parameters that the other side does not have, these have no
    rows. A note shows `weights` with their names, paired by shape and order: check each
    pair before you pass it. If parameters of both have equal names and other numbers, a
    note says so: pass `weights`, or the results differ because of these numbers alone.

    Arguments say which rows of the first output are padding. They are known by their
    names in the signature of the reference, or of `mine` if the reference has none:

    - `key_lengths`, `key_padding_mask`, `src_key_padding_mask` and an `attention_mask`
      (B, L), as transformers has it, hide keys. If the first input has the keys, as in
      self-attention, its rows of hidden keys are padding. If queries and keys differ
      and there are as many of both, those rows are padding that have only 0 or nan on
      one side; the note says that this holds if queries and keys are one sequence. If
      all keys of an item are hidden, its rows of only 0 or nan are padding.
    - `attn_mask` hides pairs. Rows that see no key, and have only 0 or nan on one side,
      are padding. True hides if a signature has a `key_padding_mask` too, as in
      PyTorch's layers. Otherwise True means visible.

    If the output differs in rows of padding alone, the gradients are those of the other
    rows. `same` is then False, as the results are not the same.

    If an input is a floating mask of zeros and ones, a note says that it is added to
    the scores and hides nothing.

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

    Another layer, whose parameters have other names:

    >>> class Named(relpos.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.proj = relpos.nn.Linear(4, 3, rng=1, dtype=np.float64)
    ...     def __call__(self, x):
    ...         return self.proj(x)
    ...     def backward(self, grad_out):
    ...         return self.proj.backward(grad_out)
    >>> names = {"weight": "proj.weight", "bias": "proj.bias"}
    >>> relpos.compare(layer, Named(), x, weights=names).same
    True
    """
    if not inputs:
        raise TypeError(
            "compare() needs what both are called with after reference, mine"
        )
    sides = {"reference": reference, "mine": mine}
    _check_sides(sides)
    names = _names_of_both(reference, mine, len(inputs))
    notes = _added_masks(names, inputs)
    with (
        # Weights are loaded before the state is noted, because they stay.
        loaded(sides, weights) as paired_names,
        unchanged(reference, mine, evaluated=True),
    ):
        of_reference = side_of("reference", reference, inputs)
        of_mine = side_of("mine", mine, inputs)
        rounding = _rounding(of_reference, of_mine, (reference, mine), inputs)
        rows = _outputs(of_reference, of_mine, rounding)
        # Both sides get the same gradient, the same in each run.
        grad_out = np.random.default_rng(0).standard_normal(rows[0].shape)
        padding = _padding(reference, mine, dict(zip(names, inputs, strict=True)))
        if padding is not None and rows[0].verdict == "differs":
            # This sets `grad_out` to 0 in the rows of padding, so that it comes before
            # backward.
            both = of_reference, of_mine
            notes += _set_apart(rows, padding, both, rounding, grad_out)
        # Both sides run backward before they are put back to their former state.
        gradients = of_reference.backward(grad_out)
        my_gradients = of_mine.backward(grad_out)
    counts = len(of_mine.outputs), len(of_reference.outputs)
    if counts[0] != counts[1]:
        notes.append(
            f"mine has {counts[0]} results and the reference {counts[1]}: the first "
            "are compared"
        )
    if gradients is None:
        notes.append(f"the reference has no gradients: {of_reference.lacks}")
    if my_gradients is None:
        notes.append(f"mine has no gradients: {of_mine.lacks}")
    if gradients is not None and my_gradients is not None:
        my_gradients = renamed(my_gradients, paired_names)
        alone, note = unpaired(gradients, my_gradients, paired_names)
        if note:
            notes.append(note)
        rows += _gradients(gradients, my_gradients, names, alone, rounding)
    note = other_numbers(reference, mine, rounding.limit())
    if note:
        notes.append(note)
    return Comparison(tuple(rows), rounding.limit(), tuple(notes))


def _check_sides(sides: Mapping[str, Any]) -> None:
    for name, thing in sides.items():
        if not callable(thing):
            raise TypeError(
                f"{name}: got {kind_of(thing)}; expected a torch module, a layer of "
                "relpos.nn or a function"
            )


#: Masks that PyTorch and relpos add where they are floating.
_ADDED = ("attn_mask", "key_padding_mask", "src_mask", "tgt_mask", "memory_mask")


def _added_masks(names: Sequence[str], inputs: Sequence[Any]) -> list[str]:
    """Return a note of each floating mask of zeros and ones among the inputs.

    An input is a mask by its name, or if it has an entry for each query and key and is
    no mask of tokens.
    """
    shapes = [tuple(getattr(x, "shape", ())) for x in inputs]
    lengths = [shape[-2] for shape in shapes[:2] if len(shape) > 1]
    of_tokens = shapes[0], shapes[0][:-1]
    notes = []
    for name, x, shape in zip(names[1:], inputs[1:], shapes[1:], strict=True):
        pairs = len(shape) > 1 and shape[-2] in lengths[:1] and shape[-1] in lengths
        if shape and (name.endswith(_ADDED) or (pairs and shape not in of_tokens)):
            note = added_mask(name, x)
            if note:
                notes.append(note)
    return notes


def _padding(reference: Any, mine: Any, inputs: Mapping[str, Any]) -> Padding | None:
    """Return the rows that the arguments hide, by the conventions of both sides."""
    sides = reference, mine
    true_hides = any("key_padding_mask" in _parameters(side) for side in sides)
    modules = filter(is_module, sides)
    parts = [part for module in modules for part in module.modules()]
    # One part with axes (L, B, ..) says that the inputs have them.
    batch_first = all(getattr(part, "batch_first", True) for part in parts)
    return padding_of(inputs, true_hides, batch_first)


def _set_apart(
    rows: list[Compared],
    padding: Padding,
    sides: tuple[Side, Side],
    rounding: Rounding,
    grad_out: Array,
) -> list[str]:
    """Give the first output the verdict of its other rows if these do not differ.

    Then `grad_out` becomes 0 in padding, and a note says so; else there is no note.
    """
    theirs, of_mine = (side.results[0] for side in sides)
    padded = padding.rows(theirs, of_mine)
    if padded is None:
        return []
    # The rows that are left have to be the same, or the difference is not of padding.
    verdict = _row("output", theirs[~padded], of_mine[~padded], rounding, 0.0).verdict
    if verdict not in ("same", CANNOT_TELL):
        return []
    rows[0] = rows[0]._replace(verdict=PADDING if verdict == "same" else verdict)
    grad_out[padded] = 0.0
    return [f"{rows[0].name}: {padding.note(padded)}; gradients are of the other rows"]


def _rounding(
    theirs: Side, of_mine: Side, things: Sequence[Any], inputs: Sequence[Any]
) -> Rounding:
    """Return the coarser of both outputs, or 16 bits if anything else has them."""
    stored = [*leaves(inputs), *theirs.outputs, *of_mine.outputs]
    for thing in things:
        if is_module(thing):
            stored += [*thing.parameters(), *thing.buffers()]
    return coarsest(theirs.outputs[0], of_mine.outputs[0], stored=stored)


def _outputs(reference: Side, mine: Side, rounding: Rounding) -> list[Compared]:
    """Return a row for each output that both have."""
    several = min(len(reference.outputs), len(mine.outputs))
    names = ["output"] if several == 1 else [f"output[{at}]" for at in range(several)]
    pairs = zip(names, reference.results, mine.results, strict=False)
    return [_row(name, a, b, rounding, 0.0) for name, a, b in pairs]


def _gradients(
    reference: Gradients,
    mine: Gradients,
    names: list[str],
    alone: set[str],
    rounding: Rounding,
) -> list[Compared]:
    """Return a row for each gradient of a side, except parameters without a partner."""
    # A gradient that is 0 has no size of its own to compare its rounding errors with.
    floor = rounding.limit() * max(map(largest, reference.values()), default=0.0)
    rows = []
    for key in reference | mine:
        if key in alone:
            continue
        # Inputs are numbered, and parameters have the names of a state_dict.
        name = f"grad {names[int(key)]}" if key.isdigit() else f"grad {key}"
        if key in reference and key in mine:
            rows.append(_row(name, reference[key], mine[key], rounding, floor))
            continue
        array = reference[key] if key in reference else mine[key]
        rows.append(
            Compared(
                name,
                array.shape,
                largest=largest(array),
                error=math.nan,
                relative=math.nan,
                verdict="no gradient",
            )
        )
    return rows


def _row(
    name: str, reference: Array, mine: Array, rounding: Rounding, floor: float
) -> Compared:
    """Return the errors of one result, in which sizes up to `floor` are noise."""
    if reference.shape != mine.shape:
        raise ValueError(
            f"mine: {name} has shape {mine.shape}; expected {reference.shape}, that of "
            "the reference"
        )
    size, nothing = largest(reference), np.isnan(mine) & np.isnan(reference)
    gap = np.abs(mine.astype(np.float64) - reference.astype(np.float64))
    # The difference of equal infinities would be nan.
    gap = np.where(nothing | (mine == reference), 0.0, gap)
    # What is nan on one side alone is an error of any size.
    error = float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))
    relative = math.inf if error else 0.0
    if size:
        relative = error / size
    verdict = rounding.verdict(relative, rounding.limit(), rounding.doubtful)
    is_small = math.isfinite(error) and size <= floor and largest(mine) <= floor
    if verdict == "differs" and is_small:
        verdict = CANNOT_TELL if rounding.is_half else "noise"
    if verdict != "differs" and nothing.any():
        verdict = "nan"
    return Compared(name, reference.shape, size, error, relative, verdict)


# ---- one of the two implementations --------------------------------------------------


class Side:
    """A call of one implementation, whose backward runs at most once."""

    outputs: list[Any]  # as returned
    results: list[Array]  # copies, as a later call may overwrite an output
    lacks: str = "it is a function of arrays alone"  # why there are no gradients

    def backward(self, grad_out: Array) -> Gradients | None:
        """Return gradients by name, that of input n as "n"; None if there are none."""


def side_of(name: str, thing: Any, inputs: Sequence[Any]) -> Side:
    """Run `thing` on copies of the inputs; try a function with the inputs as they are.

    A function that refuses them is tried with arrays for tensors, or the reverse.
    """
    # Nothing says which kind a function takes: its inputs decide what is tried first.
    kinds: list[Any] = [OfArrays]
    if is_module(thing):
        kinds = [OfTensors]
    elif hasattr(thing, "backward"):
        kinds = [OfLayer]
    elif "torch" in sys.modules:
        kinds.insert(0 if any(map(is_tensor, inputs)) else 1, OfTensors)

    def begin(kind: Any) -> Side:
        side: Side = kind(thing, inputs)
        return side

    side = first_accepted(begin, kinds)
    if not side.outputs:
        raise TypeError(f"{name}: returned no array; expected an array or a tensor")
    side.results = [np.array(as_numpy(name, x)) for x in side.outputs]
    return side


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
        named = getattr(thing, "named_parameters", tuple)
        self.parameters = dict(named())
        # The caller may have switched gradients off, and then backward would have none.
        with torch.inference_mode(False), torch.enable_grad():
            self.inputs = [
                x.detach().requires_grad_(x.is_floating_point()) if is_tensor(x) else x
                for x in map(as_tensor, copied([*inputs]))
            ]
            # a leaf refuses to be changed in place, a copy of it does not
            copies = (x.clone() if is_tensor(x) else x for x in self.inputs)
            self.outputs = _results(thing(*copies))

    def backward(self, grad_out: Array) -> Gradients | None:
        torch = sys.modules["torch"]
        out = self.outputs[0]
        if not getattr(out, "requires_grad", False):
            return None
        tensors = {str(at): x for at, x in enumerate(self.inputs) if is_tensor(x)}
        # Inputs have their number as the name, which no parameter has.
        tensors |= self.parameters
        tensors = {name: x for name, x in tensors.items() if x.requires_grad}
        with torch.inference_mode(False):
            grad = as_tensor(grad_out).to(out.dtype)
            gradients = torch.autograd.grad(
                out, [*tensors.values()], grad, allow_unused=True
            )
        arrays = {}
        for (name, x), gradient in zip(tensors.items(), gradients, strict=True):
            if gradient is not None:
                arrays[name] = as_numpy(name, gradient)
            elif name.isdigit():  # the result does not depend on this input
                arrays[name] = np.zeros(x.shape, np.float32)
        return arrays


class OfLayer(Side):
    """A layer of relpos, or another object with a `backward`."""

    def __init__(self, layer: Any, inputs: Sequence[Any]) -> None:
        self.layer = layer
        self.lacks = f"the class {type(layer).__name__} has no method `backward`"
        self.outputs = _results(layer(*as_arrays(copied([*inputs]))))

    def backward(self, grad_out: Array) -> Gradients | None:
        # the base of relpos' layers has the method, and no gradient
        if not getattr(self.layer, "_has_backward", lambda: True)():
            return None
        if hasattr(self.layer, "zero_grad"):
            self.layer.zero_grad()
        of_inputs = self.layer.backward(grad_out.astype(self.outputs[0].dtype))
        if not isinstance(of_inputs, tuple | list):
            of_inputs = (of_inputs,)
        gradients = {str(at): x for at, x in enumerate(of_inputs) if x is not None}
        if hasattr(self.layer, "named_parameters"):
            every = self.layer.named_parameters()
            gradients |= {name: p.grad for name, p in every if p.grad is not None}
        return {name: np.array(as_numpy(name, x)) for name, x in gradients.items()}


class OfArrays(Side):
    """A function of arrays: with gradients if it can return relpos's context."""

    def __init__(self, function: Any, inputs: Sequence[Any]) -> None:
        self.inputs = as_arrays(copied([*inputs]))
        if "return_context" in _parameters(function):
            result = function(*self.inputs, return_context=True)
        else:
            result = function(*self.inputs)
        self.context = getattr(result, "context", None)
        self.outputs = _results(result)
        self.names = names_of_inputs(function, len(inputs))

    def backward(self, grad_out: Array) -> Gradients | None:
        if self.context is None:
            return None
        grad = grad_out.astype(self.outputs[0].dtype)
        by_operand = self.context.backward(grad)._asdict()
        gradients = {name: x for name, x in by_operand.items() if x is not None}
        # The context returns gradients by operand, and they are wanted by input.
        problem = getattr(self.context, "_problem", None)
        operands = {
            n: x for n, x in getattr(problem, "inputs", {}).items() if n in gradients
        }
        # An input may be used as several operands, under names of its own. Those that
        # have its memory are known; else its name says which operand it is.
        for at, (name, x) in enumerate(zip(self.names, self.inputs, strict=True)):
            used = [n for n, operand in operands.items() if _is_same(operand, x)]
            other = name in operands and not np.array_equal(operands[name], x)
            if used or (name in gradients and not other):
                parts = [gradients.pop(n) for n in used or [name]]
                gradients[str(at)] = reduce(np.add, parts)
            gradients.pop(name, None)  # an operand that the function made of this input
        return gradients


def _is_same(operand: Any, x: Any) -> bool:
    """Return True if an operand of a context is an input, of the same memory."""
    if not isinstance(operand, np.ndarray) or not isinstance(x, np.ndarray):
        return False
    return operand.__array_interface__ == x.__array_interface__


def _parameters(thing: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, or of a module's forward, if known."""
    try:
        return inspect.signature(getattr(thing, "forward", thing)).parameters
    except (TypeError, ValueError):
        return {}


def _names_of_both(reference: Any, mine: Any, count: int) -> list[str]:
    """Return the names of the reference's inputs, or of mine where it has none."""
    names = names_of_inputs(reference, count)
    my_names = names_of_inputs(mine, count)
    for at, name in enumerate(names):
        if name.startswith("input["):
            names[at] = my_names[at]
    return names


def names_of_inputs(thing: Any, count: int) -> list[str]:
    """Return the names of the inputs of a function, or of a module's forward."""
    named = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = []
    for parameter in _parameters(thing).values():
        # Inputs are passed by position, and no parameter behind this one takes them.
        if parameter.kind not in named:
            break
        names.append(parameter.name)
    names += [f"input[{at}]" for at in range(len(names), count)]
    return names[:count]
