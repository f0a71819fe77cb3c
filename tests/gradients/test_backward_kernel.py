"""Checks that attention_backward of the extension module makes itself."""

from __future__ import annotations

import numpy as np
import pytest
from backward_checks import LK, LQ, D, H
from bad_kinds import ones

from relpos._settings import kernels


def operands():
    """A good call of the kernel."""
    shape = (H, LQ, D)
    arrays = {name: ones(*shape) for name in ("query", "key", "value", "out")}
    arrays |= {name: ones(H, LQ) for name in ("row_max", "row_sum")}
    arrays["grad_out"] = ones(*shape)
    arrays |= {f"grad_{n}": np.zeros(shape) for n in ("query", "key", "value")}
    arrays |= {"rel_key": ones(H, 3, D), "grad_rel_key": np.zeros((H, 3, D))}
    return arrays | {"scale": 1.0, "num_threads": 1, "min_relative_position": -1}


RAW = [
    ({"row_max": None}, TypeError, "row_max is missing"),
    ({"row_sum": None}, TypeError, "row_sum is missing"),
    ({"out": None}, TypeError, "out is missing"),
    ({"weights": ones(H, LQ, LQ)}, TypeError, "operands has a key that is not known"),
    ({"grad_rel_value": ones(H, 3, D)}, ValueError, "grad_rel_value has no operand"),
    ({"grad_attn_mask": ones(H, LQ, LQ)}, ValueError, "grad_attn_mask has no operand"),
    ({"grad_rel_key": ones(H, 4, D)}, ValueError, "grad_rel_key does not fit the oth"),
    ({"grad_key": ones(H, LK, D)}, ValueError, "grad_key does not fit the other sha"),
    ({"grad_lse": ones(H, LQ + 1)}, ValueError, "grad_lse does not fit the other sha"),
    ({"grad_out": ones(1, H, LQ, D)}, ValueError, "grad_out must have as many axes"),
    ({"grad_query": np.broadcast_to(0.0, (H, LQ, D))}, ValueError, "y is read-only"),
    ({"grad_key": ones(H, LQ, D, dtype=np.float32)}, TypeError, "have query's dtype"),
    ({"grad_out": [1.0]}, TypeError, "grad_out must be an ndarray"),
    ({"num_threads": None}, TypeError, "num_threads is missing"),
]


@pytest.mark.parametrize("changes, error, pattern", RAW)
def test_the_kernel_checks_what_it_gets(changes, error, pattern):
    with pytest.raises(error, match=rf"^attention_backward: .*{pattern}"):
        kernels().attention_backward(operands() | changes)
    kernels().attention_backward(operands())


def test_the_forward_knows_no_gradients():
    given = {n: x for n, x in operands().items() if not n.startswith("grad_")}
    kernels().attention_forward(given)
    for name in ("grad_out", "grad_query"):
        with pytest.raises(TypeError, match=r"^attention_forward: .* is not known"):
            kernels().attention_forward(given | {name: ones(H, LQ, D)})
