"""The second opinion: outputs and gradients of two implementations side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array, quiet
from relpos._compare.sides import Gradients, Side, largest, names_of_inputs, side_of
from relpos._diagnose.arrays import as_numpy, rounding_of
from relpos._text import html_table, table_lines

__all__ = ["Compared", "Comparison", "compare"]

#: Errors up to this many roundings are no difference: sums of some hundred numbers.
ROUNDINGS = 256
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
        "same"; "differs"; "noise" where both have nothing but rounding errors, as the
        gradient of a key's bias, which is 0; "no gradient" where one of them has none.

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
        Of relative errors: up to it they are rounding.
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
        """Whether nothing differs by more than rounding, of what both have."""
        return all(row.verdict != "differs" for row in self.rows)

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
        differing = [row.name for row in self.rows if row.verdict == "differs"]
        last = f"differ: {', '.join(differing)}" if differing else "nothing differs"
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
        such a result. Modules run in eval mode and are put back; layers keep the
        gradients.
    *inputs : array_like or tensor
        What both are called with, by position; each takes them as it needs.
    weights : mapping of str to array_like or tensor, optional
        Loaded into both before, by the names of a state_dict, and left there.

    Returns
    -------
    Comparison
        `rows`, `limit`, `notes` and `same`; a table as text and in notebooks.

    Raises
    ------
    TypeError
        If a side cannot be called, or has no place for `weights`.
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
    theirs = side_of("reference", reference, inputs, weights)
    own = side_of("mine", mine, inputs, weights)
    limit = ROUNDINGS * max(rounding_of(x.outputs[0]) for x in (theirs, own))
    rows, notes = _outputs(theirs, own, limit), []
    if len(theirs.outputs) != len(own.outputs):
        counts = f"{len(own.outputs)} results and the reference {len(theirs.outputs)}"
        notes.append(f"mine has {counts}: the first are compared")
    grad_out = np.random.default_rng(0).standard_normal(rows[0].shape)
    gradients, own_gradients = theirs.backward(grad_out), own.backward(grad_out)
    for name, found in (("the reference", gradients), ("mine", own_gradients)):
        if found is None:
            notes.append(f"{name} has no gradients: it is a function of arrays alone")
    if gradients is not None and own_gradients is not None:
        names = names_of_inputs(reference, len(inputs))
        rows += _gradients(gradients, own_gradients, names, limit)
    return Comparison((*rows,), limit, (*notes,))


def _outputs(reference: Side, mine: Side, limit: float) -> list[Compared]:
    """A row for each output that both have."""
    several = min(len(reference.outputs), len(mine.outputs))
    names = ["output"] if several == 1 else [f"output[{at}]" for at in range(several)]
    pairs = zip(names, reference.outputs, mine.outputs, strict=False)
    return [
        _row(name, as_numpy(name, a), as_numpy(name, b), limit, 0.0)
        for name, a, b in pairs
    ]


def _gradients(
    reference: Gradients, mine: Gradients, names: list[str], limit: float
) -> list[Compared]:
    """A row for each input and parameter of which one side has a gradient."""
    floor = limit * max(map(largest, reference.values()), default=0.0)
    found = []
    for key in {**reference, **mine}:
        name = f"grad {names[int(key)]}" if key.isdigit() else f"grad {key}"
        if key in reference and key in mine:
            found.append(_row(name, reference[key], mine[key], limit, floor))
        else:
            array = reference[key] if key in reference else mine[key]
            size = largest(array)
            blank = float("nan"), float("nan"), "no gradient"
            found.append(Compared(name, array.shape, size, *blank))
    return found


def _row(
    name: str, reference: Array, mine: Array, limit: float, floor: float
) -> Compared:
    """The errors of one result, and what they mean."""
    if reference.shape != mine.shape:
        raise ValueError(
            f"mine: {name} has shape {mine.shape}; expected {reference.shape}, that of "
            "the reference"
        )
    size = largest(reference)
    gap = np.abs(mine.astype(np.float64) - reference.astype(np.float64))
    gap = np.where(np.isnan(mine) & np.isnan(reference) | (mine == reference), 0.0, gap)
    error = float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))
    relative = error / size if size else (math.inf if error else 0.0)
    verdict = "same" if relative <= limit else "differs"
    if verdict == "differs" and size <= floor and largest(mine) <= floor:
        verdict = "noise"
    return Compared(name, reference.shape, size, error, relative, verdict)
