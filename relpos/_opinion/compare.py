"""The second opinion: outputs and gradients of two implementations side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.arrays import is_module, leaves
from relpos._opinion.kept import unchanged
from relpos._opinion.rounding import CANNOT_TELL, Rounding, coarsest, rounding_of
from relpos._opinion.sides import (
    Gradients,
    Side,
    largest,
    load,
    names_of_inputs,
    side_of,
)
from relpos._text import html_table, table_lines

__all__ = ["Compared", "Comparison", "compare"]

#: Verdicts that leave two implementations the same.
_SAME = ("same", "noise", "no gradient")
_HEADER = ("what", "shape", "largest", "error", "relative", "verdict")


class Compared(NamedTuple):
    """One output or gradient of both sides.

    Attributes
    ----------
    name : str
        "output", or of what it is the gradient.
    shape : tuple of int
        That of both.
    largest : float
        The largest size of an entry of the reference.
    error : float
        The largest difference.
    relative : float
        `error` over `largest`, nan where one of the two has no such gradient.
    verdict : str
        "same": `relative` is at most the limit, which is what a right implementation
        may have.
        "differs": rounding does not explain the error.
        "cannot tell in this dtype: compare in float32": the error is above the limit,
        but 16-bit numbers alone could make it, up to .1 of the largest entry in
        bfloat16 and .02 in float16, if scores were rounded to them; so is a gradient in
        16 bits that differs and is below the limit relative to the largest gradient.
        "nan": both are nan at some entries, of which nothing can be said, and the same
        at the others.
        "noise": both have nothing but rounding errors of float32 or float64, as the
        gradient of a key's bias, which is 0.
        "no gradient": one of the two has none.

    See Also
    --------
    Comparison : Holds them.
    """

    name: str
    shape: tuple[int, ...]
    largest: float
    error: float
    relative: float
    verdict: str


class Comparison(NamedTuple):
    """What `compare` found; shows itself as a table.

    Attributes
    ----------
    rows : tuple of Compared
        The outputs, then the gradients of inputs and parameters.
    limit : float
        Of relative errors: up to it they are rounding. It is 256 times the distance
        from 1 to the next number in float32 and float64. In bfloat16 it is .0098, in
        float16 .0012: 2.5 roundings of the stored numbers, and float32 behind them.
    notes : tuple of str
        What could not be compared, and why.

    See Also
    --------
    compare : Returns it.
    """

    rows: tuple[Compared, ...]
    limit: float
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Say if all that both have is the same, or noise."""
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
        Each a torch module, a layer of `relpos.nn` or anything else with a `backward`,
        or a function: of tensors, whose gradients are autograd's, or of arrays, which
        has gradients if it is a function of relpos with `return_context`, or returns
        such a result. Modules and layers run in eval mode. Their mode, parameters,
        buffers and gradients are as before afterwards, and so is the state of the
        generators that NumPy's and torch's functions share.
    *inputs : array_like or tensor
        What both are called with, by position. Each call gets copies of its own, of
        what is inside of lists, tuples and dictionaries too, so that a function may
        work in place.
    weights : mapping of str to array_like or tensor, optional
        Loaded into both before, by the names of a state_dict, and left there.

    Returns
    -------
    Comparison
        `rows`, `limit`, `notes` and `same`; a table as text and in notebooks.

    Raises
    ------
    TypeError
        If a side cannot be called, or has no place for `weights`, or if no copy can be
        made of an input.
    ValueError
        If the results of the two differ in shape.

    See Also
    --------
    diagnose : Says what explains a difference.
    relpos.plot.compare : Draws it.
    relpos.nn : Layers, and `load_file` for weights.

    Notes
    -----
    Where a true gradient is 0, as that of a key's bias, both sides have rounding errors
    alone and their relative difference is of order 1. What is smaller, on both sides,
    than the limit times the largest entry of any gradient is called noise.

    The limit follows from the dtype of the outputs, the coarser of both sides. It is
    that of bfloat16 or float16 also where an input, a parameter or a buffer has one of
    these, or an output of one side alone. A right implementation that stores inputs,
    weights of attention and results in 16 bits is the same; an error of 2 % in bfloat16
    or .5 % in float16 never is. Between the two, and where scores in 16 bits could make
    the error, the verdict is "cannot tell in this dtype: compare in float32", and
    `same` is False. `diagnose` knows the scores, and so can tell more often.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, whose
       softmax takes away what the keys' bias adds.

    Examples
    --------
    A layer beside the same by hand, which forgets the scale:

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
        rounding = _rounding(theirs, own, [*leaves(inputs), *_stored(reference, mine)])
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


def _stored(*things: Any) -> list[Any]:
    """The parameters and buffers of modules."""
    modules = [thing for thing in things if is_module(thing)]
    return [x for module in modules for x in (*module.parameters(), *module.buffers())]


def _rounding(reference: Side, mine: Side, stored: list[Any]) -> Rounding:
    """The coarser of both outputs, and of 16 bits whatever else has them."""
    every = [*stored, *reference.outputs, *mine.outputs]
    halves = [x for x in every if rounding_of(x).is_half]
    return coarsest(reference.outputs[0], mine.outputs[0], *halves)


def _outputs(reference: Side, mine: Side, rounding: Rounding) -> list[Compared]:
    """A row for each output that both have."""
    several = min(len(reference.outputs), len(mine.outputs))
    names = ["output"] if several == 1 else [f"output[{at}]" for at in range(several)]
    pairs = zip(names, reference.results, mine.results, strict=False)
    return [_row(name, a, b, rounding, 0.0) for name, a, b in pairs]


def _gradients(
    reference: Gradients, mine: Gradients, names: list[str], rounding: Rounding
) -> list[Compared]:
    """A row for each input and parameter of which one side has a gradient."""
    floor = rounding.limit() * max(map(largest, reference.values()), default=0.0)
    found = []
    for key in {**reference, **mine}:
        name = f"grad {names[int(key)]}" if key.isdigit() else f"grad {key}"
        if key in reference and key in mine:
            found.append(_row(name, reference[key], mine[key], rounding, floor))
        else:
            array = reference[key] if key in reference else mine[key]
            size = largest(array)
            blank = float("nan"), float("nan"), "no gradient"
            found.append(Compared(name, array.shape, size, *blank))
    return found


def _row(
    name: str, reference: Array, mine: Array, rounding: Rounding, floor: float
) -> Compared:
    """The errors of one result, and what they mean; sizes up to `floor` are noise."""
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
