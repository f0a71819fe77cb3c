"""``python -m relpos check``: every scheme, outputs and gradients, against torch.

torch computes in float64, from the numbers that relpos has in float32, and autograd
makes its gradients; relpos is to be within the limits of the catalogue in both dtypes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import relpos
from relpos._catalogue.row import GRADIENT_SIZE, Array, Row, cast, draw, relative_error
from relpos._catalogue.rows import ROWS
from relpos._check.forms import FORMS
from relpos._text import table_lines

__all__ = ["Checked", "check_row", "run"]

DTYPES = (np.float32, np.float64)
#: torch rounds in float64 too, where relpos's definitions are taken for exact.
FLOAT64 = 1e-14
#: Inputs whose true gradient is 0: it moves all scores of a row.
NO_GRADIENT = {"b2"}
_HEADER = ("scheme", "output f32", "f64", "gradients f32", "f64", "")


class Checked(NamedTuple):
    """Errors of a row and their limits, by dtype; of gradients the worst, or none."""

    name: str
    outputs: list[float]
    gradients: list[float]
    output_limits: list[float]
    gradient_limits: list[float]

    @property
    def passed(self) -> bool:
        """Whether no error is beyond its limit; nan is."""
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
            "compared.\nFor the check: pip install torch. (python -m relpos demo holds "
            "relpos against its own definitions.)"
        )
        return 0
    torch = import_module("torch")
    print(f"PyTorch {torch.__version__}, eager expressions in float64 with autograd\n")
    start = perf_counter()
    found = [check_row(row) for row in ROWS]
    print("\n".join(table_lines(_HEADER, [row.cells() for row in found], left=(0, 5))))
    failed = [row.name for row in found if not row.passed]
    seconds = perf_counter() - start
    verdict = f"differ: {', '.join(failed)}" if failed else "all equal to rounding"
    print(f"\n{len(found)} forms of schemes, {seconds:.0f} s: {verdict}")
    print("Errors are norms of differences over norms of torch's results.")
    return 1 if failed else 0


def check_row(row: Row) -> Checked:
    """The outputs and gradients of a row by relpos and by torch."""
    inputs = row.inputs(np.float32, **GRADIENT_SIZE)
    shape = row.relpos(**inputs).shape
    grad_out = draw(np.random.default_rng(1), np.float32, *shape)
    wanted, gradients = by_torch(row, inputs, grad_out)
    outputs, worst = [], []
    for dtype in DTYPES:
        own = cast({n: x for n, x in inputs.items() if n != "dtype"}, dtype)
        own |= {"dtype": dtype} if "dtype" in inputs else {}
        outputs.append(relative_error(row.relpos(**own), wanted))
        if row.gradients is not None:
            got = row.gradients.relpos(grad_out.astype(dtype), **own)
            worst.append(_worst(got, gradients))
    limits = None if row.gradients is None else row.gradients.limits
    return Checked(row.name, outputs, worst, _limits(row.limits), _limits(limits))


def by_torch(row: Row, inputs: Any, grad_out: Array) -> tuple[Array, dict[str, Array]]:
    """Output and gradients in float64, by the row's form."""
    torch = sys.modules["torch"]
    given = {name: x for name, x in inputs.items() if name != "dtype"}
    wanted = {
        name: torch.from_numpy(x.astype(np.float64)).requires_grad_()
        for name, x in given.items()
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
    }
    out = FORMS[row.name](**{**given, **wanted})
    gradients: dict[str, Array] = {}
    if row.gradients is not None:
        grad = torch.from_numpy(grad_out.astype(np.float64))
        found = torch.autograd.grad(out, [*wanted.values()], grad)
        gradients = {n: x.numpy() for n, x in zip(wanted, found, strict=True)}
    return out.detach().numpy(), gradients


def _worst(got: Any, wanted: dict[str, Array]) -> float:
    """The largest error of a gradient; infinite where one is missing."""
    if got.keys() | NO_GRADIENT != wanted.keys() | NO_GRADIENT:
        return np.inf
    return float(np.max([relative_error(got[name], wanted[name]) for name in got]))


def _limits(limits: Any) -> list[float]:
    """Of both dtypes."""
    if limits is None:
        return []
    return [limits[np.float32], max(limits[np.float64], FLOAT64)]
