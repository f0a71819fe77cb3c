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
from relpos._catalogue.row import GRADIENT_SIZE, Array, Row, cast, draw, relative_error
from relpos._catalogue.rows import ROWS
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
    """Errors of a row and their limits by dtype; of gradients the largest, or none."""

    name: str
    outputs: list[float]
    gradients: list[float]
    output_limits: list[float]
    gradient_limits: list[float]

    @property
    def passed(self) -> bool:
        """True if no error is beyond its limit; nan is beyond it."""
        pairs = [
            *zip(self.outputs, self.output_limits, strict=True),
            *zip(self.gradients, self.gradient_limits, strict=False),
        ]
        return all(error <= limit for error, limit in pairs)

    def cells(self) -> list[str]:
        """The row as texts."""
        gradients = [f"{error:.1e}" for error in self.gradients] or ["", ""]
        errors = [f"{error:.1e}" for error in self.outputs]
        return [self.name, *errors, *gradients, "ok" if self.passed else "DIFFERS"]


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
    found = [check_row(row) for row in ROWS]
    print("\n".join(table_lines(_HEADER, [row.cells() for row in found], left=(0, 5))))
    failed = [row.name for row in found if not row.passed]
    seconds = perf_counter() - start
    verdict = f"differ: {', '.join(failed)}" if failed else "all equal to rounding"
    print(f"\n{len(found)} forms of schemes, {seconds:.0f} s: {verdict}")
    print("Errors are norms of differences over norms of results in torch.")
    return 1 if failed else 0


def check_row(row: Row) -> Checked:
    """Compare the outputs and gradients of a row with those of torch."""
    inputs = row.inputs(np.float32, **GRADIENT_SIZE)
    shape = row.relpos(**inputs).shape
    grad_out = draw(np.random.default_rng(1), np.float32, *shape)
    forms = row.reference, form_of(row)
    wanted = [by_torch(form, inputs, grad_out) for form in forms if form]
    outputs, worst = [], []
    for dtype in DTYPES:
        own = cast({n: x for n, x in inputs.items() if n != "dtype"}, dtype)
        own |= {"dtype": dtype} if "dtype" in inputs else {}
        out = row.relpos(**own)
        outputs.append(float(np.max([relative_error(out, w.out) for w in wanted])))
        if row.gradients is not None:
            got = row.gradients.relpos(grad_out.astype(dtype), **own)
            worst.append(float(np.max([_worst(got, w.gradients) for w in wanted])))
    limits = None if row.gradients is None else row.gradients.limits
    return Checked(row.name, outputs, worst, _limits(row.limits), _limits(limits))


class Wanted(NamedTuple):
    """An output and the gradients of the inputs by name."""

    out: Array
    gradients: dict[str, Array]


def by_torch(form: Callable[..., Any], inputs: Any, grad_out: Array) -> Wanted:
    """Return the results of a form on float64 tensors; without any, on no tensors."""
    torch = sys.modules["torch"]
    given = {name: x for name, x in inputs.items() if name != "dtype"}
    tensors = {
        name: torch.from_numpy(x.astype(np.float64)).requires_grad_()
        for name, x in given.items()
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
    }
    out = torch.as_tensor(form(**{**given, **tensors}))
    grad = torch.from_numpy(grad_out.astype(np.float64))
    found = torch.autograd.grad(out, [*tensors.values()], grad) if tensors else ()
    gradients = {n: x.numpy() for n, x in zip(tensors, found, strict=True)}
    return Wanted(out.detach().numpy(), gradients)


def _worst(got: Any, wanted: dict[str, Array]) -> float:
    """Return the largest error of a gradient; infinite where one is missing."""
    if got.keys() | NO_GRADIENT != wanted.keys() | NO_GRADIENT:
        return np.inf
    return float(np.max([relative_error(got[name], wanted[name]) for name in got]))


def _limits(limits: Any) -> list[float]:
    """Return the limits of both dtypes."""
    if limits is None:
        return []
    return [limits[np.float32], max(limits[np.float64], FLOAT64)]
