"""Checks that attention_backward of the extension module makes itself."""

from __future__ import annotations

import numpy as np
import pytest
from backward_checks import LK, LQ, D, H
from bad_kinds import ones
from numpy.lib.stride_tricks import as_strided

from relpos._attention.operands import OPERANDS
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
    ({"window_left": -(2**63)}, ValueError, "window_left is out of range"),
    ({"window_left": 1 - 2**60}, ValueError, "window_left is out of range"),
    ({"window_left": -1}, ValueError, "window_left is out of range"),
    ({"window_right": -(2**63)}, ValueError, "window_right is out of range"),
    ({"window_right": -(2**60)}, ValueError, "window_right is out of range"),
    (
        {"window_left": 2, "window_right": -3},
        ValueError,
        "window_right lies before the window's left side",
    ),
    ({"query_offset": np.array(2**60)}, ValueError, "query_offset is out of range"),
    ({"query_offset": np.array(-(2**63))}, ValueError, "query_offset is out of range"),
    ({"key_lengths": np.array(2**63 - 1)}, ValueError, "key_lengths is out of range"),
    ({"key_lengths": np.array(-1)}, ValueError, "key_lengths is out of range"),
    ({"min_relative_position": 2**60}, ValueError, "position is out of range"),
    ({"min_relative_position": -(2**63)}, ValueError, "position is out of range"),
    ({"min_bias_position": -(2**60)}, ValueError, "position is out of range"),
    ({"part_key": 2**60}, ValueError, "part_key is out of range"),
    ({"dropout_p": 1.0}, ValueError, "dropout_p is out of range"),
    ({"dropout_p": -0.1}, ValueError, "dropout_p is out of range"),
    ({"dropout_p": np.nan}, ValueError, "dropout_p is out of range"),
]


@pytest.mark.parametrize(("changes", "error", "pattern"), RAW)
def test_the_kernel_checks_what_it_gets(changes, error, pattern):
    with pytest.raises(error, match=rf"^attention_backward: .*{pattern}"):
        kernels().attention_backward(operands() | changes)
    kernels().attention_backward(operands())


def test_a_length_that_nobody_has_the_memory_for():
    call = operands()
    call = {n: call[n] for n in ("query", "scale", "num_threads")}
    call["out"] = np.zeros((H, LQ, D))
    call |= {n: np.broadcast_to(1.0, (H, 2**41, D)) for n in ("key", "value")}
    with pytest.raises(MemoryError):
        kernels().attention_forward(call)


def test_the_forward_knows_no_gradients():
    given = {n: x for n, x in operands().items() if not n.startswith("grad_")}
    kernels().attention_forward(given)
    for name in ("grad_out", "grad_query"):
        with pytest.raises(TypeError, match=r"^attention_forward: .* is not known"):
            kernels().attention_forward(given | {name: ones(H, LQ, D)})


# ---- gradients that batch items share ------------------------------------------------

A, B = 2, 3
#: Operands whose gradient is a sum over batch items, of one head.
LENGTHS = {"H": 1, "q": LQ, "k": LQ, "t": LQ, "D": D, "V": D, "P": D}
SUMMED = {name: x.shape(LENGTHS, 7) for name, x in OPERANDS.items() if x.is_shared}


def batched(name):
    """A good call of (A, B) batch items, without the gradient of an operand."""
    rng, shape = np.random.default_rng(0), (A, B, 1, LQ, D)
    names = ("query", "key", "value", "grad_out")
    call = {n: rng.standard_normal(shape) for n in names}
    needed = {name} | ({"rel_key"} if name == "pos_bias_v" else set())
    call |= {n: rng.standard_normal(SUMMED[n]) for n in needed}
    settings = {"scale": 0.3, "min_relative_position": -3, "window_right": 0}
    call |= settings | {
        "min_bias_position": -3,
        "num_threads": 4,
        "out": np.empty(shape),
    }
    call |= {n: np.empty(shape[:-1]) for n in ("row_max", "row_sum")}
    forward = {n: x for n, x in call.items() if n != "grad_out"}
    kernels().attention_forward(forward)
    return call


def gradient(name, batch):
    found = np.zeros((*batch, *SUMMED[name]))
    kernels().attention_backward(batched(name) | {f"grad_{name}": found})
    return found


@pytest.mark.parametrize("name", SUMMED)
def test_items_share_a_gradient_all_or_none(isa, name):
    """Two units of work at once would write to one that some of them share."""
    each = gradient(name, (A, B))
    for shared in ((), (1,), (1, 1)):
        found = gradient(name, shared)
        np.testing.assert_allclose(found.ravel(), each.sum((0, 1)).ravel(), rtol=1e-12)
    for some in ((A, 1), (1, B), (B,)):
        with pytest.raises(
            ValueError, match=f"grad_{name} is shared by some batch items"
        ):
            gradient(name, some)


@pytest.mark.parametrize("name", ["sinks", "log_decay"])
def test_heads_do_not_share_a_gradient_that_each_adds_up(name):
    given = operands() | {"window_right": 0}
    given[name] = ones(*(H, LQ)[: 1 + (name == "log_decay")])
    shape = given[name].shape
    kernels().attention_backward(given | {f"grad_{name}": np.zeros(shape)})
    for shared in (shape[1:], (1, *shape[1:])):
        with pytest.raises(ValueError, match=f"grad_{name} (must have|does not fit)"):
            kernels().attention_backward(given | {f"grad_{name}": np.zeros(shared)})


@pytest.mark.parametrize("name", ["out", "grad_query", "grad_rel_key"])
def test_items_of_a_result_may_not_share_memory(name):
    given = operands()
    memory = np.zeros(2 * given[name].size)
    for strides in ((0, 8 * D, 8), (8 * D, 8, 8), (8, 8, 8)):
        shared = as_strided(memory, given[name].shape, strides)
        call = given | {name: shared}
        run = kernels().attention_backward
        if name == "out":
            call = {n: x for n, x in call.items() if not n.startswith("grad_")}
            run = kernels().attention_forward
        with pytest.raises(ValueError, match=f"{name} has items that share memory"):
            run(call)
