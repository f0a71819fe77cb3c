"""Bad calls of `graph_attention`, one row each: what is raised, and the message."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from bad_kinds import HUGE, MASKED, Tensor, ones

import relpos
from relpos._settings import kernels

H, LQ, LK, D, DV = 2, 3, 4, 8, 5
GOOD = {
    "query": ones(2, H, LQ, D),
    "key": ones(2, H, LK, D),
    "value": ones(2, H, LK, DV),
    "indptr": [0, 2, 2, 5],
    "indices": [3, 0, 1, 1, 2],
    "labels": [0, -1, 2, 1, 0],
    "rel_key": ones(3, D),
    "rel_value": ones(H, 4, DV),
}
ABSENT = object()

# (exception, changes, what the message begins with, and has)
ROWS = [
    (
        ValueError,
        {"sinks": ones(3)},
        r"sinks: shape \(3,\) does not match query's 2",
    ),
    (ValueError, {"sinks": 1.0}, r"sinks: shape \(\) .*; expected \(2,\)"),
    (ValueError, {"sinks": ones(2, H)}, r"sinks: shape \(2, 2\) does not match"),
    (TypeError, {"sinks": [0, 1]}, "sinks: got .*int64; expected float16"),
    (TypeError, {"sinks": "none"}, "sinks: got str; expected float16"),
    (TypeError, {"sinks": Tensor()}, r"sinks: got a torch Tensor.*\.detach\(\)"),
    (ValueError, {"softcap": 0.0}, r"softcap: got 0\.0; expected"),
    (ValueError, {"softcap": -5}, r"softcap: got -5\.0; expected"),
    (ValueError, {"softcap": np.inf}, "softcap: got inf; expected a finite number"),
    (TypeError, {"softcap": "30"}, "softcap: got str; expected a real number"),
    (TypeError, {"softcap": True}, "softcap: got bool; expected a real number"),
    (ValueError, {"indptr": [0, 2, 5]}, r"indptr: got shape \(3,\); expected \(4,\)"),
    (ValueError, {"indptr": [[0, 2, 2, 5]]}, r"indptr: got shape \(1, 4\)"),
    (ValueError, {"indptr": 5}, r"indptr: got shape \(\); expected \(4,\)"),
    (ValueError, {"indptr": [0, 2, 1, 5]}, "indptr: falls from 2 to 1 at query 1"),
    (ValueError, {"indptr": [0, 9, 2, 5]}, "indptr: falls from 9 to 2 at query 1"),
    (ValueError, {"indptr": [0, -1, 2, 5]}, "indptr: falls from 0 to -1 at query 0"),
    (ValueError, {"indptr": [1, 2, 2, 5]}, "indptr: runs from 1 to 5; expected from 0"),
    (ValueError, {"indptr": [0, 2, 2, 4]}, "indptr: runs from 0 to 4; .* to 5, the nu"),
    (ValueError, {"indptr": [0, 2, 2, 6]}, "indptr: runs from 0 to 6; expected .* 5"),
    (ValueError, {"indptr": [0, 2, 2, HUGE]}, "indptr: a value does not fit int64"),
    (TypeError, {"indptr": [0.0, 2, 2, 5]}, "indptr: got .*float64; expected integers"),
    (TypeError, {"indptr": None}, "indptr: got .*NoneType; expected integers"),
    (TypeError, {"indptr": Tensor()}, r"indptr: got a torch Tensor.*\.detach\(\)"),
    (TypeError, {"indptr": MASKED}, "indptr: got a MaskedArray"),
    (
        IndexError,
        {"indices": [3, 0, 4, 1, 2]},
        r"indices: indices\[2\] is 4, .*4 keys",
    ),
    (IndexError, {"indices": [3, 0, 1, 1, -1]}, r"indices: indices\[4\] is -1.*0 to 3"),
    (ValueError, {"indices": ones(1, 5, dtype=int)}, r"indices: got shape \(1, 5\)"),
    (ValueError, {"indices": [3, 0]}, "indptr: runs from 0 to 5; expected from 0 to 2"),
    (TypeError, {"indices": ones(5)}, "indices: got dtype float64; expected integers"),
    (TypeError, {"indices": ones(5, dtype=bool)}, "indices: got dtype bool"),
    (ValueError, {"indices": np.uint64([2**63] * 5)}, "indices: .* does not fit int64"),
    (ValueError, {"indices": 3, "indptr": [0, 1, 1, 1]}, r"indices: got shape \(\)"),
    (
        IndexError,
        {"labels": [0, 0, 3, 0, 0]},
        r"labels: labels\[2\] is 3, .*rel_key of 3",
    ),
    (
        IndexError,
        {"labels": [0, 0, 4, 0, 0], "rel_key": None},
        r"labels: labels\[2\] is 4, outside rel_value of 4 rows; expected at most 3",
    ),
    (ValueError, {"labels": [0, 0]}, r"labels: got shape \(2,\); expected \(5,\)"),
    (TypeError, {"labels": ones(5)}, "labels: got dtype float64; expected integers"),
    (ValueError, {"labels": None}, "rel_key: given without labels"),
    (ValueError, {"labels": None, "rel_key": None}, "rel_value: given without labels"),
    (ValueError, {"rel_key": ones(3, 7)}, "rel_key: .*head_dim 8"),
    (ValueError, {"rel_key": ones(0, D)}, "rel_key: .*has no rows"),
    (
        ValueError,
        {"rel_value": ones(3, 4, DV)},
        "rel_value: .*3 heads, but query has 2",
    ),
    (ValueError, {"rel_value": ones(3, 1, 4, DV)}, "rel_value: batch axes"),
    (TypeError, {"rel_key": ones(3, D, dtype=int)}, "rel_key: .*expected float16"),
    (ValueError, {"key": ones(2, 1, LK, D)}, "value: .*1 heads"),
    (
        ValueError,
        {"key": ones(1, LK, D), "value": ones(1, LK, DV)},
        "key: 1 heads, but query has 2; expected equal numbers",
    ),
    (ValueError, {"value": ones(2, H, 3, DV)}, "value: .*key's length 4"),
    (ValueError, {"query": ones(3, H, LQ, D)}, "key: batch axes"),
    (ValueError, {"query": ones(LQ, D)}, "query: .*2 axes"),
    (TypeError, {"query": ones(2, H, LQ, D, dtype=int)}, "query: .*expected float16"),
    (ValueError, {"scale": np.inf}, "scale: got inf"),
    (TypeError, {"return_lse": 1}, "return_lse: got int; expected True or False"),
    (TypeError, {"return_context": None}, "return_context: got NoneType"),
    (ValueError, {"num_threads": 0}, "num_threads: 0 is not between"),
    (TypeError, {"labels": ABSENT, "attn_mask": None}, "attn_mask"),
    (
        ValueError,
        {"position_query": ones(2, H, LQ, 3)},
        "rel_key: .*position_query's head_dim 3",
    ),
    (
        ValueError,
        {"position_query": ones(2, H, LQ, 3), "rel_key": None},
        "position_query: given without rel_key",
    ),
    (
        ValueError,
        {"position_query": ones(2, H, LK, D)},
        r"position_query: .*length 3; expected \(..., 2, 3, 8\)",
    ),
    (ValueError, {"position_query": ones(LQ, D)}, r"position_query: .*\(..., H, Lq, D"),
    (TypeError, {"position_query": ones(2, H, LQ, D, dtype=int)}, "position_query: "),
]


def call(changes):
    arguments = GOOD | changes
    return relpos.graph_attention(
        **{name: x for name, x in arguments.items() if x is not ABSENT}
    )


def test_the_good_call_is_good():
    assert call({}).shape == (2, H, LQ, DV)


@pytest.mark.parametrize("error, changes, pattern", ROWS)
def test_bad_calls(error, changes, pattern):
    anywhere = "" if pattern == "attn_mask" else "^"
    with pytest.raises(error, match=anywhere + pattern):
        call(changes)


def test_a_backward_of_other_shapes():
    context = call({"return_context": True}).context
    with pytest.raises(ValueError, match=r"^grad_out: shape"):
        context.backward(ones(H, LQ, DV))
    with pytest.raises(ValueError, match=r"^wrt: 'attn_mask' was not given"):
        context.backward(ones(2, H, LQ, DV), wrt=["attn_mask"])


# ---- the kernel itself checks what could crash it -----------------------------------

INT = np.int64
OPERANDS = {
    "query": ones(H, LQ, D),
    "key": ones(H, LK, D),
    "value": ones(H, LK, DV),
    "indptr": np.array([0, 2, 2, 5]),
    "indices": np.array([3, 0, 1, 1, 2]),
    "edge_labels": np.array([0, -1, 2, 1, 0]),
    "rel_key": ones(H, 3, D),
    "scale": 1.0,
    "num_threads": 2,
}
KERNEL = [
    (TypeError, {"indptr": [0, 2, 2, 5]}, "indptr must be a C-cont"),
    (TypeError, {"indptr": np.zeros(4, np.int32)}, "indptr must be a C-cont"),
    (TypeError, {"indices": np.zeros((1, 5), INT)}, "indices must be a C-cont"),
    (TypeError, {"indices": np.arange(10)[::2]}, "indices must be a C-contig"),
    (TypeError, {"indices": ABSENT, "edge_labels": ABSENT}, "indices is missing"),
    (TypeError, {"indptr": ABSENT}, "indices came without indptr"),
    (ValueError, {"indptr": np.zeros(3, INT)}, "indptr must have one entry more"),
    (ValueError, {"indptr": np.zeros(0, INT)}, "indptr must have one entry more"),
    (ValueError, {"edge_labels": np.zeros(4, INT)}, "edge_labels must be as long"),
    (ValueError, {"indptr": np.array([1, 2, 2, 5])}, "indptr must run from 0 to"),
    (ValueError, {"indptr": np.array([0, 2, 2, 2**62])}, "indptr must run from"),
    (ValueError, {"indptr": np.array([0, 2, 2, 4])}, "indptr must run from 0 to"),
    (ValueError, {"rel_bias": ones(H, 3, 1)}, "indptr goes with rel_key"),
    (ValueError, {"attn_mask": ones(H, LQ, LK)}, "indptr goes with rel_key"),
    (ValueError, {"dropout_p": 0.5}, "indptr goes with rel_key"),
    (ValueError, {"window_right": 0}, "indptr goes with rel_key"),
    (ValueError, {"rel_key": ones(H, 3, 5)}, "rel_key does not fit the other"),
    (ValueError, {"position_query": ones(H, LQ, 5)}, "position_query does not fit"),
    (
        ValueError,
        {"position_query": ones(H, LQ, 5), "rel_key": ABSENT},
        "position_query needs rel_key",
    ),
    (
        ValueError,
        {"key": ones(1, LK, D), "value": ones(1, LK, DV)},
        "indptr goes with rel_key",
    ),
]


def run_kernel(changes):
    operands = OPERANDS | {"out": np.empty((H, LQ, DV))} | changes
    kernels().attention_forward({n: x for n, x in operands.items() if x is not ABSENT})
    return operands["out"]


@pytest.mark.parametrize("error, changes, pattern", KERNEL)
def test_bad_operands_of_the_kernel(error, changes, pattern):
    with pytest.raises(error, match=f"^attention_forward: {pattern}"):
        run_kernel(changes)


@pytest.mark.parametrize(
    "error, changes, pattern",
    [
        (ValueError, {"indptr": np.array([0, 3, 2, 5])}, "indptr: falls from 3 to 2"),
        (ValueError, {"indptr": np.array([0, -9, 2, 5])}, "indptr: falls from 0 to -9"),
        (IndexError, {"indices": np.array([3, 0, 1, 1, 4])}, r"indices: indices\[4\]"),
        (IndexError, {"indices": np.array([-1, 0, 1, 1, 3])}, r"indices: indices\[0\]"),
    ],
)
def test_the_kernel_alone_looks_at_every_edge(error, changes, pattern):
    with pytest.raises(error, match=f"^{pattern}"):
        run_kernel(changes)


@pytest.mark.parametrize("sizes", [(2, 0, 0), (0, 3, 5)])
def test_edges_are_looked_at_where_there_is_nothing_to_compute(sizes):
    """No batch item, or no column of the result."""
    batch, d, dv = sizes
    changes = {
        "query": ones(batch, H, LQ, d),
        "key": ones(batch, H, LK, d),
        "value": ones(batch, H, LK, dv),
        "rel_key": None,
        "rel_value": None,
        "scale": 1.0,
    }
    assert call(changes).size == 0
    with pytest.raises(IndexError, match=r"^indices: indices\[0\] is 4"):
        call(changes | {"indices": [4, 0, 1, 1, 2]})
    with pytest.raises(ValueError, match=r"^indptr: falls from 3 to 2"):
        call(changes | {"indptr": [0, 3, 2, 5]})


def test_labels_past_the_table_are_no_term():
    """The kernel looks at each label: one past the table reads nothing."""
    wild = {"edge_labels": np.array([3, -(2**63), 2**63 - 1, 77, -1])}
    none = {"edge_labels": np.full(5, -1)}
    assert np.array_equal(run_kernel(wild), run_kernel(none))


def test_a_graph_that_changes_during_the_call(isa):
    """Copied and checked first, so that what comes out is one of the two graphs."""
    rng = np.random.default_rng(0)
    length, degree = 400, 20
    x = rng.standard_normal((2, length, 16))
    good = rng.integers(0, length, length * degree)
    indices, stop = good.copy(), threading.Event()

    def change():
        while not stop.is_set():
            indices[...] = 2**62
            indices[...] = good

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(30):
            indptr = np.arange(length + 1) * degree
            try:
                out = relpos.graph_attention(x, x, x, indptr, indices, num_threads=2)
            except IndexError as error:
                assert "indices: indices[" in str(error)
            else:
                assert np.isfinite(out).all()
    finally:
        stop.set()
        changer.join()
