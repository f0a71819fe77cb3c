"""`graph_attention(key_indices=)` against loops, `attention` and graphs of edges."""

from __future__ import annotations

import numpy as np
import oracle_graph
import pytest
from backward_checks import difference_of
from graph_problems import (
    BOTH,
    ROWS,
    agree,
    both_dtypes,
    problem,
    run,
    same_bits,
    with_gradients,
)
from layouts import LAYOUTS
from oracle_graph import Edge
from problems import cast, normal
from refusals import refused
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos
from relpos import _core
from relpos._settings import kernels, use_isa

H, LQ, LK, D, DV, N = 4, 9, 11, 6, 5, 7
#: Key heads, groups of heads that share their keys, and batch axes of the keys.
SHARED = {
    "one row for all": (4, 1, ()),
    "a row for each item and head": (4, 4, (3,)),
    "two groups": (4, 2, (3,)),
    "groups of keys and values": (2, 4, (3,)),
    "one key head": (1, 2, (1,)),
    "groups of two kinds": (2, 1, (3,)),
}
every_sharing = pytest.mark.parametrize("shared", SHARED)
TABLES = {"rel_key": (ROWS, D), "rel_value": (H, ROWS, DV)}


def picks(rng, *shape, keys=LK):
    """Draw keys, some of them named twice; query 3 has none."""
    indices = rng.integers(-3, keys, shape)
    indices[..., 3, :] = -1
    return indices


def inputs_of(shared, lq=LQ, lk=LK, n=N, d=D, dv=DV, batch=(3,), more=()):
    """Arrays of a call and its keys, with what `more` names."""
    key_heads, groups, own = SHARED[shared]
    rng = np.random.default_rng([len(shared), lq, n])
    inputs = {
        "query": normal(rng, *batch, H, lq, d),
        "key": normal(rng, *batch, key_heads, lk, d),
        "value": normal(rng, *batch, key_heads, lk, dv),
    }
    shapes = {"rel_key": (ROWS, d), "rel_value": (H, ROWS, dv), "sinks": (H, lq)}
    if "position_query" in more:
        shapes |= {"position_query": (H, lq, 3), "rel_key": (ROWS, 3)}
    inputs |= {name: normal(rng, *shapes[name]) for name in more}
    rows = {"key_indices": picks(rng, *own, groups, lq, n, keys=lk)}
    if {*more} & {*TABLES}:
        rows["labels"] = rng.integers(-1, ROWS, rows["key_indices"].shape)
    return inputs, rows


def call(inputs, rows, **options):
    return relpos.graph_attention(
        **inputs, **rows, enable_gqa=True, **{**BOTH, **options}
    )


# ---- against loops -------------------------------------------------------------------


def heads_alone(inputs, rows):
    """Each batch item and head: its place, its arrays, and its edges."""
    arrays = *inputs.values(), *rows.values()
    batch = np.broadcast_shapes(*(x.shape[:-3] for x in arrays))
    indices = rows["key_indices"]
    labels = rows.get("labels", np.full(indices.shape, -1))
    lists = [np.broadcast_to(x, (*batch, *x.shape[-3:])) for x in (indices, labels)]
    for at in np.ndindex(*batch, H):
        alone = {}
        for name, x in inputs.items():
            heads = x.shape[-3] if x.ndim > 2 else 1
            whole = np.broadcast_to(x, (*batch, heads, *x.shape[-2:]))
            place = (*at[:-1], at[-1] * heads // H)
            alone[name] = (place, whole[place])
        keys, named = (x[(*at[:-1], at[-1] * x.shape[-3] // H)] for x in lists)
        edges = [
            Edge(i, int(keys[i, n]), int(named[i, n]))
            for i, n in np.ndindex(keys.shape)
            if keys[i, n] >= 0
        ]
        yield at, alone, edges


def by_loops(inputs, rows, grads):
    """Outputs and gradients, by `oracle_graph` for one head at a time."""
    out, lse = np.zeros_like(grads[0]), np.zeros_like(grads[1])
    batch = out.shape[:-3]
    wholes = {
        name: np.zeros((*batch, x.shape[-3] if x.ndim > 2 else 1, *x.shape[-2:]))
        for name, x in inputs.items()
    }
    for at, alone, edges in heads_alone(inputs, rows):
        arrays = {name: x[None] for name, (_, x) in alone.items()}
        out[at], lse[at] = (x[0] for x in oracle_graph.attention(edges=edges, **arrays))
        found = oracle_graph.gradients(
            grads[0][at][None], grads[1][at][None], edges, **arrays
        )
        for name, gradient in found.items():
            wholes[name][alone[name][0]] += gradient[0]
    summed = {
        name: oracle_graph.sum_to(x, inputs[name].shape) for name, x in wholes.items()
    }
    return out, lse, summed


def check_loops(got, inputs, rows):
    found, grads = with_gradients(got)
    out, lse, want = by_loops(inputs, rows, grads)
    assert_close(got.out, out, "forward")
    assert_lse_close(got.lse, lse)
    assert set(found) == set(want)
    for name, gradient in found.items():
        assert gradient.shape == inputs[name].shape
        assert_close(gradient, want[name], "gradient")


@every_sharing
@both_dtypes
@pytest.mark.sanitized
@pytest.mark.parametrize("more", [(), ("rel_key", "rel_value"), ("position_query",)])
def test_the_loops(isa, shared, dtype, more):
    inputs, rows = inputs_of(shared, more=more + ("rel_key",) * (len(more) == 1))
    got = call(cast(inputs, dtype), rows)
    assert got.out.dtype == dtype and got.weights is None
    check_loops(got, inputs, rows)


@every_sharing
def test_the_definition_is_the_loops(shared):
    inputs, rows = inputs_of(shared, more=(*TABLES, "position_query"))
    got = relpos.reference.graph_attention(
        **inputs, **rows, enable_gqa=True, return_lse=True
    )
    grads = np.zeros_like(got.out), np.zeros_like(got.lse)
    out, lse, _ = by_loops(inputs, rows, grads)
    assert_close(got.out, out, "forward")
    assert_lse_close(got.lse, lse)


@every_sharing
@both_dtypes
@pytest.mark.parametrize("n", [1, 70, 130])
def test_sinks_and_softcap_are_those_of_the_definition(isa, shared, dtype, n):
    """With runs of more than 64 keys, and in every number of them."""
    inputs, rows = inputs_of(shared, n=n, more=(*TABLES, "sinks", "position_query"))
    got = call(cast(inputs, dtype), rows, softcap=1.5, scale=0.7)
    want = relpos.reference.graph_attention(
        **inputs, **rows, softcap=1.5, scale=0.7, enable_gqa=True, return_lse=True
    )
    assert_close(got.out, want.out, "forward")
    assert_close(got.lse, want.lse, "lse")


@both_dtypes
@pytest.mark.parametrize(("groups", "key_heads"), [(1, 4), (4, 4), (4, 2), (2, 1)])
def test_different_keys_are_a_mask_of_attention(isa, dtype, groups, key_heads):
    """More slices than one wave has, and rows of several runs of keys."""
    rng = np.random.default_rng(3)
    lq, lk, n, batch = 150, 260, 90, (3,)
    inputs = {
        "query": normal(rng, *batch, H, lq, 16),
        "key": normal(rng, *batch, key_heads, lk, 16),
        "value": normal(rng, *batch, key_heads, lk, 24),
        "sinks": normal(rng, H, lq),
    }
    order = rng.permuted(np.tile(np.arange(lk), (*batch, groups, lq, 1)), axis=-1)
    indices = np.where(order[..., :n] <= np.arange(lq)[:, None], order[..., :n], -1)
    mask = np.zeros((*batch, groups, lq, lk + 1), bool)
    np.put_along_axis(mask, indices, True, axis=-1)
    mask = np.repeat(mask[..., :lk], H // groups, axis=-3)
    inputs = cast(inputs, dtype)
    options = {"enable_gqa": True, "softcap": 2.0, **BOTH}
    want = relpos.attention(**inputs, attn_mask=mask, **options)
    agree(relpos.graph_attention(**inputs, key_indices=indices, **options), want)


def test_gradients_equal_differences_of_the_forward():
    """Along random directions of every input, with sinks and a softcap."""
    more = (*TABLES, "sinks", "position_query")
    inputs, rows = inputs_of("groups of two kinds", more=more)
    rng = np.random.default_rng(4)
    for isa in _core.by_isa:
        with use_isa(isa):
            gradients, grads = with_gradients(call(inputs, rows, softcap=2.0))

            def loss(moved, grads=grads):
                got = call(inputs | moved, rows, softcap=2.0)
                pairs = zip(grads, got[:2], strict=True)
                return sum(float(np.vdot(a, b)) for a, b in pairs)

            for name, start in inputs.items():
                d = rng.standard_normal(start.shape)
                d /= np.abs(d).max()
                want = difference_of(
                    lambda x, name=name: loss({name: x[0]}), [start], [d], h=1e-3
                )
                size = np.linalg.norm(gradients[name]) * np.sqrt(np.mean(d**2))
                assert abs(np.vdot(gradients[name], d) - want) <= 1e-10 * size, name


# ---- against graphs of edges ---------------------------------------------------------


@both_dtypes
def test_a_row_for_all_is_the_graph(isa, dtype):
    inputs, _ = problem("both")
    rng = np.random.default_rng(6)
    indices = rng.integers(0, 11, (1, 9, 5))
    labels = rng.integers(-1, ROWS, indices.shape)
    edges = [
        Edge(i, int(indices[0, i, n]), int(labels[0, i, n]))
        for i, n in np.ndindex(9, 5)
    ]
    inputs = cast(inputs, dtype)
    got = relpos.graph_attention(**inputs, key_indices=indices, labels=labels, **BOTH)
    same_bits(got, run(inputs, edges, **BOTH))


@both_dtypes
@pytest.mark.parametrize("key_heads", [1, 2])
def test_a_graph_with_groups_of_heads(isa, dtype, key_heads):
    """Edges by indptr and indices, too, take key heads that several heads share."""
    inputs, edges = problem("keys", batch=(2,))
    inputs["query"] = normal(np.random.default_rng(1), 2, 4, 9, 7)
    for name in ("key", "value"):
        inputs[name] = inputs[name][:, :key_heads]
    got = run(cast(inputs, dtype), edges, enable_gqa=True, **BOTH)
    whole = {n: np.repeat(inputs[n], 4 // key_heads, axis=1) for n in ("key", "value")}
    want = run(inputs | whole, edges, **BOTH)
    assert_close(got.out, want.out, "forward")
    found, wanted = with_gradients(got)[0], with_gradients(want)[0]
    for name in ("key", "value"):
        shape = (2, key_heads, 4 // key_heads, *wanted[name].shape[-2:])
        wanted[name] = wanted[name].reshape(shape).sum(2)
    for name, gradient in found.items():
        assert_close(gradient, wanted[name], "gradient")


# ---- what keys may look like ---------------------------------------------------------


def test_queries_without_keys(isa):
    inputs, rows = inputs_of("two groups", more=(*TABLES,))
    got = call(inputs, rows)
    assert not got.out[..., 3, :].any() and np.isneginf(got.lse[..., 3]).all()
    found, _ = with_gradients(got)
    assert not found["query"][..., 3, :].any()
    assert all(np.isfinite(x).all() for x in found.values())
    for none in (
        np.full_like(rows["key_indices"], -(2**63)),
        np.zeros((1, LQ, 0), int),
    ):
        got = call(inputs, {"key_indices": none, "labels": np.zeros_like(none)})
        assert not got.out.any() and np.isneginf(got.lse).all()
        assert not any(x.any() for x in with_gradients(got)[0].values())


@both_dtypes
@pytest.mark.parametrize("added", [1, 200, 2000])
def test_keys_that_no_query_names_change_no_bit(isa, dtype, added):
    """More keys are summed together; each sum keeps its terms and their order."""
    inputs, rows = inputs_of("two groups", lq=130, lk=90, n=70, more=(*TABLES,))
    inputs = cast(inputs, dtype)
    longer = dict(inputs)
    for name in ("key", "value"):
        width = [(0, 0), (0, 0), (0, added), (0, 0)]
        longer[name] = np.pad(inputs[name], width, constant_values=np.nan)
    want, found = (with_gradients(call(x, rows))[0] for x in (inputs, longer))
    for name in ("key", "value"):
        assert not found[name][..., 90:, :].any()
        found[name] = found[name][..., :90, :]
    for name, gradient in want.items():
        assert_bitwise(found[name], gradient)


@pytest.mark.parametrize("lk", [0, LK])
def test_sinks_of_queries_without_keys(lk):
    query, keys = np.ones((2, 3, 4)), np.ones((2, lk, 4))
    rows = np.full((1, 3, 2), -1)
    sinks = np.array([1.0, -np.inf])
    for options in ({}, {"labels": rows, "rel_key": np.ones((1, 4))}):
        arrays = {"key_indices": rows, "sinks": sinks, **options}
        got = relpos.graph_attention(query, keys, keys, **arrays, **BOTH)
        assert (got.out == 0).all()
        assert_close(got.lse, [[1.0] * 3, [-np.inf] * 3], "lse")
        found = got.context.backward(None, grad_lse=np.ones((2, 3)))
        assert found.sinks.tolist() == [3.0, 0.0] and (found.query == 0).all()
        want = relpos.reference.graph_attention(
            query, keys, keys, **arrays, return_lse=True
        )
        assert_close(got.lse, want.lse, "lse")


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_what_no_key_names_is_not_read(isa, poison):
    """Keys that no query names, a query without keys, and labels of no key."""
    inputs, rows = inputs_of("two groups", more=(*TABLES,))
    rows["key_indices"][rows["key_indices"] == 2] = -5
    has_key = rows["key_indices"] >= 0
    rows["labels"] = np.where(has_key, np.minimum(rows["labels"], ROWS - 2), ROWS - 1)
    want = call(inputs, rows)
    poisoned = {name: x.copy() for name, x in inputs.items()}
    poisoned["key"][..., 2, :] = poisoned["value"][..., 2, :] = poison
    poisoned["query"][..., 3, :] = poison
    poisoned["rel_key"][ROWS - 1] = poisoned["rel_value"][..., ROWS - 1, :] = poison
    same_bits(call(poisoned, rows), want)


def test_a_row_of_nan_has_no_part_in_labels_of_no_key(isa):
    inputs, rows = inputs_of("one row for all", more=(*TABLES,))
    has_key = rows["key_indices"] >= 0
    rows["labels"] = np.where(has_key, np.minimum(rows["labels"], ROWS - 2), ROWS - 1)
    inputs["query"][0, 0, 0] = np.nan
    found = with_gradients(call(inputs, rows))[0]
    assert np.isnan(found["rel_key"]).any()
    assert not found["rel_key"][ROWS - 1].any()
    assert not found["rel_value"][..., ROWS - 1, :].any()


def test_no_query_and_no_item():
    for batch, lq in (((0,), LQ), ((3,), 0)):
        query, keys = np.ones((*batch, H, lq, D)), np.ones((*batch, 2, LK, D))
        rows = np.zeros((2, lq, 3), int)
        got = relpos.graph_attention(
            query, keys, keys, key_indices=rows, enable_gqa=True, **BOTH
        )
        assert got.out.shape == (*batch, H, lq, D)
        found = got.context.backward(np.ones_like(got.out))
        assert not found.key.any() and found.key.shape == keys.shape


@both_dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_the_same_bits(isa, dtype, layout):
    inputs, rows = inputs_of("two groups", more=(*TABLES,))
    inputs = cast(inputs, dtype)
    want = call(inputs, rows)
    laid = {name: LAYOUTS[layout](x) for name, x in inputs.items()}
    lists = {name: LAYOUTS[layout](x) for name, x in rows.items()}
    same_bits(call(laid, lists), want)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, ">i8", list])
def test_any_integers(kind):
    inputs, rows = inputs_of("two groups")
    indices = np.abs(rows["key_indices"])
    made = indices.tolist() if kind is list else indices.astype(kind)
    want = call(inputs, {"key_indices": indices})
    same_bits(call(inputs, {"key_indices": made}), want)


def test_batch_axes_broadcast(isa):
    inputs, rows = inputs_of("two groups", batch=(2, 1), more=(*TABLES,))
    assert rows["key_indices"].shape == (3, 2, LQ, N)
    got = call(inputs, rows)
    assert got.out.shape == (2, 3, H, LQ, DV)
    check_loops(got, inputs, rows)


@every_sharing
@both_dtypes
@pytest.mark.sanitized
def test_any_number_of_threads_gives_the_same_bits(isa, shared, dtype):
    inputs, rows = inputs_of(shared, lq=130, lk=90, n=70, more=(*TABLES,))
    inputs = cast(inputs, dtype)
    results = [call(inputs, rows, num_threads=n) for n in (1, 2, 3, 5)]
    grads = np.ones_like(results[0].out), np.ones_like(results[0].lse)
    found = [
        result.context.backward(grads[0], grad_lse=grads[1], num_threads=n)
        for n, result in enumerate(results, 1)
    ]
    for got, gradients in zip(results[1:], found[1:], strict=True):
        assert_bitwise(got.out, results[0].out)
        assert_bitwise(got.lse, results[0].lse)
        for a, b in zip(gradients, found[0], strict=True):
            assert (a is None and b is None) or (assert_bitwise(a, b) is None)


def test_float16_is_computed_in_float32():
    inputs, rows = inputs_of("groups of two kinds", more=(*TABLES,))
    half = cast(inputs, "float16")
    got, want = call(half, rows), call(cast(half, "float32"), rows)
    assert got.out.dtype == np.float16 and got.lse.dtype == np.float32
    assert_bitwise(got.out, want.out.astype(np.float16))
    assert_bitwise(got.lse, want.lse)
    grad_out = np.ones_like(got.out)
    found = got.context.backward(grad_out)
    exact = want.context.backward(grad_out.astype("float32"))
    for name, gradient in found._asdict().items():
        if gradient is not None:
            assert gradient.dtype == np.float16
            assert_bitwise(gradient, getattr(exact, name).astype(np.float16))


def test_the_keys_are_copied():
    inputs, rows = inputs_of("two groups", more=(*TABLES,))
    want = with_gradients(call(inputs, rows))[0]
    got = call(inputs, rows)
    for array in rows.values():
        array[...] = 0
    for name, gradient in with_gradients(got)[0].items():
        assert_bitwise(gradient, want[name])


# ---- what is refused -----------------------------------------------------------------

INDICES = np.array([[[0, 1], [2, -1], [3, 3]]])
GOOD = {
    "query": np.ones((2, 4, 3, 8)),
    "key": np.ones((2, 2, 4, 8)),
    "value": np.ones((2, 2, 4, 5)),
    "key_indices": INDICES,
    "labels": np.zeros((1, 3, 2), int),
    "rel_key": np.ones((3, 8)),
    "enable_gqa": True,
}


def changed(**changes):
    return relpos.graph_attention(**GOOD | changes)


test_bad_calls = refused(
    changed,
    {},
    """
key_indices=INDICES + 1 -> IndexError: key_indices: number 0 of query 2 is 4, outside
    the 4 keys; expected at most 3 (negative: no key)
key_indices=INDICES + 2**62 -> IndexError: key_indices: number 0 of query 0 is 461
key_indices=INDICES.repeat(3, 0) -> ValueError: labels: shape (1, 3, 2) does not match
    key_indices; expected its shape
key_indices=INDICES.repeat(3, 0), labels=None, rel_key=None -> ValueError: key_indices:
    shape (3, 3, 2) has 3 groups of heads, but query has 4 heads; expected
    (..., G, 3, n), where G divides 4
key_indices=INDICES[:0], labels=None, rel_key=None -> ValueError: key_indices: shape
    (0, 3, 2) has 0 groups
key_indices=INDICES[0] -> ValueError: key_indices: shape (3, 2) has 2 axes; expected
    (..., G, Lq, n)
key_indices=INDICES[:, :2] -> ValueError: key_indices: shape (1, 2, 2) does not match
    query's length 3; expected (..., G, 3, n)
key_indices=np.stack([INDICES] * 3) -> ValueError: key_indices: batch axes
key_indices=INDICES * 1.0 -> TypeError: key_indices: got dtype float64; expected
key_indices=INDICES == 0 -> TypeError: key_indices: got dtype bool
key_indices="all" -> TypeError: key_indices: got str
indptr=[0, 1, 2, 3] -> ValueError: key_indices: given together with indptr
indices=[0, 1, 2] -> ValueError: key_indices: given together with indices
edges=[[0], [1]] -> ValueError: key_indices: given together with edges
labels=None -> ValueError: rel_key: given without labels
rel_key=None -> ValueError: labels: given without a table
labels=INDICES[0] -> ValueError: labels: shape (3, 2) has 2 axes
labels=INDICES[None] -> ValueError: labels: got shape (1, 1, 3, 2); expected (1, 3, 2)
labels=INDICES -> IndexError: labels: labels[0, 2, 0] is 3, outside rel_key of 3 rows
enable_gqa=False -> ValueError: key: 2 heads, but query has 4; expected equal numbers
enable_gqa=1 -> TypeError: enable_gqa: got int
key_indices=None -> TypeError: indptr: got NoneType; expected integers (or edges= or
    key_indices=
""",
    globals(),
)


def run_kernel(**changes):
    """Call the kernels themselves."""
    operands = {
        "query": np.ones((2, 4, 3, 8)),
        "key": np.ones((2, 4, 4, 8)),
        "value": np.ones((2, 4, 4, 5)),
        "key_indices": INDICES,
        "key_labels": np.zeros((1, 3, 2), int),
        "rel_key": np.ones((4, 3, 8)),
        "out": np.zeros((2, 4, 3, 5)),
        "scale": 1.0,
        "num_threads": 2,
    } | changes
    kernels().attention_forward(operands)
    return operands["out"]


test_bad_operands_of_the_kernel = refused(
    run_kernel,
    {},
    """
key_indices=INDICES.astype(np.int32) -> TypeError: attention_forward: key_indices must
    be int64
key_indices=INDICES + 1 -> IndexError: key_indices: number 0 of query 2 is 4
key_indices=np.broadcast_to(9, (1, 3, 2)) -> IndexError: key_indices: number 0 of
    query 0 is 9
key_indices=INDICES[:, :2] -> ValueError: attention_forward: key_indices does not fit
key_indices=INDICES.repeat(3, 0) -> ValueError: attention_forward: key_labels does not
key_indices=None -> TypeError: attention_forward: key_labels came without key_indices
indptr=np.zeros(4, int), indices=np.zeros(0, int) -> ValueError: attention_forward:
    key_indices came together with indptr
rel_bias=np.ones((4, 3)) -> ValueError: attention_forward: key_indices goes with
dropout_p=0.5 -> ValueError: attention_forward: key_indices goes with rel_key
window_right=0 -> ValueError: attention_forward: key_indices goes with rel_key
""",
    globals(),
)


def test_more_edges_than_there_can_be():
    for count in (2**39, 2**45):
        rows = np.broadcast_to(-1, (1, 3, count))
        with pytest.raises(MemoryError):
            run_kernel(key_indices=rows, key_labels=None, rel_key=None)
