"""Bad calls of `graph_attention`, one row each: what is raised, and the message."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from bad_kinds import ones
from refusals import refused

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


def call(**changes):
    arguments = GOOD | changes
    return relpos.graph_attention(
        **{name: x for name, x in arguments.items() if x is not ABSENT}
    )


def test_the_good_call_is_good():
    assert call().shape == (2, H, LQ, DV)


test_bad_calls = refused(
    call,
    {},
    """
sinks=ones(3) -> ValueError: sinks: shape (3,) does not match query's 2
sinks=1.0 -> ValueError: sinks: shape () …; expected (2,) or
sinks=ones(2, 9) -> ValueError: sinks: shape (2, 9) does not match
sinks=[0, 1] -> TypeError: sinks: got …int64; expected float16
sinks="none" -> TypeError: sinks: got str; expected float16
sinks=Tensor() -> TypeError: sinks: got a torch Tensor….detach()
softcap=0.0 -> ValueError: softcap: got 0.0; expected
softcap=-5 -> ValueError: softcap: got -5.0; expected
softcap=np.inf -> ValueError: softcap: got inf; expected a finite number
softcap="30" -> TypeError: softcap: got str; expected a real number
softcap=True -> TypeError: softcap: got bool; expected a real number
indptr=[0, 2, 5] -> ValueError: indptr: got shape (3,); expected (4,)
indptr=[[0, 2, 2, 5]] -> ValueError: indptr: got shape (1, 4)
indptr=5 -> ValueError: indptr: got shape (); expected (4,)
indptr=[0, 2, 1, 5] -> ValueError: indptr: falls from 2 to 1 at query 1
indptr=[0, 9, 2, 5] -> ValueError: indptr: falls from 9 to 2 at query 1
indptr=[0, -1, 2, 5] -> ValueError: indptr: falls from 0 to -1 at query 0
indptr=[1, 2, 2, 5] -> ValueError: indptr: runs from 1 to 5; expected from 0
indptr=[0, 2, 2, 4] -> ValueError: indptr: runs from 0 to 4; … to 5, the nu
indptr=[0, 2, 2, 6] -> ValueError: indptr: runs from 0 to 6; expected … 5
indptr=[0, 2, 2, HUGE] -> ValueError: indptr: …does not fit int64
indptr=[0.0, 2, 2, 5] -> TypeError: indptr: got …float64; expected integers
indptr=None -> TypeError: indptr: got …NoneType; expected integers
indptr=Tensor() -> TypeError: indptr: got a torch Tensor….detach()
indptr=MASKED -> TypeError: indptr: got a MaskedArray
indices=[3, 0, 4, 1, 2] -> IndexError: indices: indices[2] is 4, …4 keys
indices=[3, 0, 1, 1, -1] -> IndexError: indices: indices[4] is -1…0 to 3
indices=ones(1, 5, dtype=int) -> ValueError: indices: got shape (1, 5)
indices=[3, 0] -> ValueError: indptr: runs from 0 to 5; expected from 0 to 2
indices=ones(5) -> TypeError: indices: got dtype float64; expected integers
indices=ones(5, dtype=bool) -> TypeError: indices: got dtype bool
indices=np.uint64([2**63] * 5) -> ValueError: indices: … does not fit int64
indices=3, indptr=[0, 1, 1, 1] -> ValueError: indices: got shape ()
labels=[0, 0, 3, 0, 0] -> IndexError: labels: labels[2] is 3, …rel_key of 3
labels=[0, 0, 4, 0, 0], rel_key=None -> IndexError: labels: labels[2] is 4, outside
    rel_value of 4 rows; expected at most 3
labels=[0, 0] -> ValueError: labels: got shape (2,); expected (5,)
labels=ones(5) -> TypeError: labels: got dtype float64; expected integers
labels=None -> ValueError: rel_key: given without labels
labels=None, rel_key=None -> ValueError: rel_value: given without labels
rel_value=None, rel_key=None -> ValueError: labels: given without a table
rel_key=ones(3, 7) -> ValueError: rel_key: …head_dim 8
rel_key=ones(0, D) -> ValueError: rel_key: …has no rows
rel_value=ones(3, 4, DV) -> ValueError: rel_value: …3 heads, but query has 2
rel_value=ones(3, 1, 4, DV) -> ValueError: rel_value: batch axes
rel_key=ones(3, D, dtype=int) -> TypeError: rel_key: …expected float16
key=ones(2, 1, LK, D) -> ValueError: value: …1 head
key=ones(1, LK, D), value=ones(1, LK, DV) -> ValueError: key: 1 head, but query has 2;
    expected equal numbers
value=ones(2, H, 3, DV) -> ValueError: value: …key's length 4
query=ones(3, H, LQ, D) -> ValueError: key: batch axes
query=ones(LQ, D) -> ValueError: query: …2 axes
query=ones(2, H, LQ, D, dtype=int) -> TypeError: query: …expected float16
scale=np.inf -> ValueError: scale: got inf
return_lse=1 -> TypeError: return_lse: got int; expected True or False
return_context=None -> TypeError: return_context: got NoneType
num_threads=0 -> ValueError: num_threads: got 0; expected
labels=ABSENT, attn_mask=None -> TypeError: attn_mask: got an unexpected
position_query=ones(2, H, LQ, 3) -> ValueError: rel_key: …position_query's head_dim 3
position_query=ones(2, H, LQ, 3), rel_key=None -> ValueError: position_query: given
    without rel_key
position_query=ones(2, H, LK, D) -> ValueError: position_query: …length 3; expected
    (..., 2, 3, 8)
position_query=ones(LQ, D) -> ValueError: position_query: …(..., H, Lq, D
position_query=ones(2, H, LQ, D, dtype=int) -> TypeError: position_query:
""",
    globals(),
)


def test_a_backward_of_other_shapes():
    context = call(return_context=True).context
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


def run_kernel(**changes):
    operands = OPERANDS | {"out": np.empty((H, LQ, DV))} | changes
    kernels().attention_forward({n: x for n, x in operands.items() if x is not ABSENT})
    return operands["out"]


test_bad_operands_of_the_kernel = refused(
    run_kernel,
    {},
    """
indptr=[0, 2, 2, 5] -> TypeError: attention_forward: indptr must be a C-cont
indptr=np.zeros(4, np.int32) -> TypeError: attention_forward: indptr must be a C-cont
indices=np.zeros((1, 5), INT) -> TypeError: attention_forward: indices must be a C-cont
indices=np.arange(10)[::2] -> TypeError: attention_forward: indices must be a C-contig
indices=ABSENT, edge_labels=ABSENT -> TypeError: attention_forward: indices is missing
indptr=ABSENT -> TypeError: attention_forward: indices came without indptr
indptr=np.zeros(3, INT) -> ValueError: attention_forward: indptr must have one entry
    more
indptr=np.zeros(0, INT) -> ValueError: attention_forward: indptr must have one entry
    more
edge_labels=np.zeros(4, INT) -> ValueError: attention_forward: edge_labels must be as
    long
indptr=np.array([1, 2, 2, 5]) -> ValueError: attention_forward: indptr must run from 0
    to
indptr=np.array([0, 2, 2, 2**62]) -> ValueError: attention_forward: indptr must run from
indptr=np.array([0, 2, 2, 4]) -> ValueError: attention_forward: indptr must run from 0
    to
rel_bias=ones(H, 3) -> ValueError: attention_forward: indptr goes with rel_key
attn_mask=ones(H, LQ, LK) -> ValueError: attention_forward: indptr goes with rel_key
dropout_p=0.5 -> ValueError: attention_forward: indptr goes with rel_key
window_right=0 -> ValueError: attention_forward: indptr goes with rel_key
rel_key=ones(H, 3, 5) -> ValueError: attention_forward: rel_key does not fit the other
position_query=ones(H, LQ, 5) -> ValueError: attention_forward: rel_key does not fit the
position_query=ones(H, LQ, 5), rel_key=ABSENT -> ValueError: attention_forward:
    position_query needs rel_key
key=ones(3, LK, D), value=ones(3, LK, DV) -> ValueError: attention_forward: key heads
    must divide
indptr=np.array([0, 3, 2, 5]) -> ValueError: indptr: falls from 3 to 2
indptr=np.array([0, -9, 2, 5]) -> ValueError: indptr: falls from 0 to -9
indices=np.array([3, 0, 1, 1, 4]) -> IndexError: indices: indices[4]
indices=np.array([-1, 0, 1, 1, 3]) -> IndexError: indices: indices[0]
""",
    globals(),
)


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
        "labels": None,
        "scale": 1.0,
    }
    assert call(**changes).size == 0
    with pytest.raises(IndexError, match=r"^indices: indices\[0\] is 4"):
        call(**changes | {"indices": [4, 0, 1, 1, 2]})
    with pytest.raises(ValueError, match=r"^indptr: falls from 3 to 2"):
        call(**changes | {"indptr": [0, 3, 2, 5]})


def test_labels_past_the_table_are_no_term():
    """The kernel looks at each label: one past the table reads nothing."""
    wild = {"edge_labels": np.array([3, -(2**63), 2**63 - 1, 77, -1])}
    none = {"edge_labels": np.full(5, -1)}
    assert np.array_equal(run_kernel(**wild), run_kernel(**none))


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
