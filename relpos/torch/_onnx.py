"""Export to ONNX: what stands for the operators of relpos in a program of ONNX.

``torch.onnx.export`` translates PyTorch's own operators alone. While it takes a program
apart, each operator of relpos becomes the formula of `FORMULAS`, which calls no others.
Everything else that traces a program (``torch.compile``, ``torch.export``, and
``ExportedProgram.run_decompositions`` without a table) keeps the operator.

PyTorch's own table, ``torch._decomp.decomposition_table``, has no entries of relpos. An
operator with an entry there loses its rule of shapes where a length is a symbol, and
``torch.compile`` refuses it where the environment variable CI is set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

Formula: TypeAlias = Callable[..., Any]

#: The formula of each operator, which takes the arguments of the operator.
FORMULAS: dict[str, Formula] = {}

try:
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
    from torch.fx.experimental.symbolic_shapes import statically_known_true
    from torch.library import register_torch_dispatch
except ImportError as error:
    #: Why this PyTorch does not export relpos to ONNX; "" if it does.
    REASON = str(error)
else:
    REASON = ""


def is_exported() -> bool:
    """Return True while ``torch.onnx.export`` runs."""
    # a call of it has loaded the module, which takes half a second
    onnx = sys.modules.get("torch.onnx")
    return onnx is not None and onnx.is_in_onnx_export()


def check_export(name: str) -> None:
    """Raise where ``torch.onnx.export`` meets an operator and cannot take it apart."""
    if REASON and is_exported():
        raise NotImplementedError(
            f"relpos.torch.{name}: is not exported to ONNX by this PyTorch, without "
            f"the names that it needs ({REASON}); expected PyTorch 2.13 or 2.14"
        )


def check_tracer(name: str) -> None:
    """Raise in the older exporter, which would take results for constants."""
    if torch._C._get_tracing_state() is not None and is_exported():
        raise NotImplementedError(
            f"relpos.torch.{name}: is not exported to ONNX with dynamo=False; expected "
            "torch.onnx.export with dynamo=True"
        )


def is_known(condition: Any) -> bool:
    """Return True for a condition of lengths that holds for all of their values."""
    return bool(statically_known_true(condition))


def decomposed(name: str) -> Callable[[Formula], Formula]:
    """Let a formula stand for the operator of a name in programs of ONNX."""

    def register(formula: Formula) -> Formula:
        FORMULAS[name] = formula
        if not REASON:
            operator = f"relpos::{name}"
            register_torch_dispatch(operator, ProxyTorchDispatchMode, _rule(formula))
        return formula

    return register


def _rule(formula: Formula) -> Callable[..., Any]:
    """Return what a tracer does where it meets the operator of a formula."""

    def rule(
        tracer: Any,
        operator: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        keywords: dict[str, Any] | None = None,
    ) -> Any:
        if not is_exported():
            return tracer.__torch_dispatch__(operator, types, args, keywords)
        # the operators that the formula calls are traced in the place of this one
        with tracer:
            return formula(*args, **(keywords or {}))

    return rule


def has_no_form(name: str, what: str, expected: str) -> NotImplementedError:
    return NotImplementedError(
        f"relpos.torch.{name}: ONNX has no form of {what}; expected {expected}"
    )
