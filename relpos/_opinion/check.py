"""``python -m relpos check``: outputs and gradients of every scheme, compared in torch.

The definition of each row computes in float64 on tensors, from the numbers that relpos
has in float32, and autograd makes its gradients. Most rows are also written in eager
torch as models write them. relpos has to be within the limits of the catalogue of both,
in either dtype.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import relpos
from relpos._catalogue.rows import (
    GRADIENT_SIZE,
    ROWS,
    Array,
    Row,
    cast,
    draw,
    relative_error,
)
from relpos._opinion.eager import form_of
from relpos._text import table_lines

__all__ = ["Checked", "check_row", "run"]

DTYPES = (np.float32, np.float64)
#: torch rounds in float64 too, where the definitions on arrays are taken for exact.
FLOAT64 = 1e-14
#: Inputs whose true gradient is 0: it moves all scores of a row.
NO_GRADIENT = {"b2"}
_HEADER = ("scheme", "output f32", "f64", "gradients f32", "f64", "")


class Checked(NamedTuple):
    """Errors of a row and their limits: of outputs, then of gradients, by dtype."""

    name: str
    errors: list[float]
    limits: list[float]

    @property
    def passed(self) -> bool:
        """True if no error is beyond its limit; nan is beyond it."""
        pairs = zip(self.errors, self.limits, strict=True)
        return all(error <= limit for error, limit in pairs)

    def cells(self) -> list[str]:
        """The row as texts."""
        # A row without gradients has empty cells in their columns.
        errors = [f"{error:.1e}" for error in self.errors] + ["", ""]
        return [self.name, *errors[:4], "ok" if self.passed else "DIFFERS"]


def run() -> int:
    """Print the table; the exit status is 1 where something differs."""
    print(f"relpos {relpos.__version__} against ", end="")
    if find_spec("torch") is None:
        print(
            f"PyTorch, which is not installed: nothing of {len(ROWS)} schemes was "
            "compared.\nFor the check: pip install torch. (python -m relpos demo "
            "compares relpos with its definitions on arrays.)"
        )
        return 0
    torch = import_module("torch")
    print(
        f"PyTorch {torch.__version__}: definitions and eager expressions, in float64 "
        "with autograd\n"
    )
    start = perf_counter()
    checked = [check_row(row) for row in ROWS]
    cells = [row.cells() for row in checked]
    print("\n".join(table_lines(_HEADER, cells, left=(0, 5))))
    failed = [row.name for row in checked if not row.passed]
    seconds = perf_counter() - start
    verdict = f"differ: {', '.join(failed)}" if failed else "all equal to rounding"
    print(f"\n{len(checked)} forms of schemes, {seconds:.0f} s: {verdict}")
    print("Errors are norms of differences over norms of results in torch.")
    return 1 if failed else 0


def check_row(row: Row) -> Checked:
    """Compare the outputs and gradients of a row with those of torch."""
    inputs = row.inputs(np.float32, **GRADIENT_SIZE)
    shape = row.relpos(**inputs).shape
    grad_out = draw(np.random.default_rng(1), np.float32, *shape)
    # Both forms are compared with, and the larger error counts. np.max hands on nan,
    # which Python's max may drop.
    forms = row.reference, form_of(row)
    expected = [by_torch(form, inputs, grad_out) for form in forms if form]
    outputs, gradients = [], []
    for dtype in DTYPES:
        arguments = cast({n: x for n, x in inputs.items() if n != "dtype"}, dtype)
        if "dtype" in inputs:
            arguments["dtype"] = dtype
        output = row.relpos(**arguments)
        outputs.append(
            float(np.max([relative_error(output, out) for out, _ in expected]))
        )
        if row.gradients is not None:
            got = row.gradients.relpos(grad_out.astype(dtype), **arguments)
            gradients.append(float(np.max([_worst(got, true) for _, true in expected])))
    limits = [row.limits, row.gradients.limits] if row.gradients else [row.limits]
    # The limits have the order of the errors: outputs in each dtype, then gradients.
    wide = [(of[np.float32], max(of[np.float64], FLOAT64)) for of in limits]
    return Checked(row.name, outputs + gradients, [x for pair in wide for x in pair])


def by_torch(
    form: Callable[..., Any], inputs: Any, grad_out: Array
) -> tuple[Array, dict[str, Array]]:
    """Return the output of a form on float64 tensors, and the gradients by name."""
    torch = sys.modules["torch"]
    arguments = {name: x for name, x in inputs.items() if name != "dtype"}
    # Integers and flags stay as they are: only floating inputs have a gradient.
    tensors = {
        name: torch.from_numpy(x.astype(np.float64)).requires_grad_()
        for name, x in arguments.items()
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
    }
    out = torch.as_tensor(form(**(arguments | tensors)))
    grad = torch.from_numpy(grad_out.astype(np.float64))
    derivatives = torch.autograd.grad(out, [*tensors.values()], grad) if tensors else ()
    gradients = {n: x.numpy() for n, x in zip(tensors, derivatives, strict=True)}
    return out.detach().numpy(), gradients


def _worst(got: Any, expected: dict[str, Array]) -> float:
    """Return the largest error of a gradient; infinite where one is missing."""
    # A gradient that is 0 may be missing on either side.
    if got.keys() | NO_GRADIENT != expected.keys() | NO_GRADIENT:
        return np.inf
    return float(np.max([relative_error(got[name], expected[name]) for name in got]))
