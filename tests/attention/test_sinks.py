"""Sinks: a further logit of each head, or of each head and query, in every engine."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_problems import check, run
from problems import DTYPES, normal, qkv, tokens
from tolerances import assert_bitwise, assert_close

import relpos
from relpos import reference

WITH_ALL = {"return_lse": True, "return_weights": True, "return_context": True}
H = 2
#: Lq, Lk and more arguments, each for another engine: tiles, few rows, many labels.
ENGINES = {
    "tiles": (70, 90, {}),
    "bands": (70, 90, {"rel_key": (161, 6), "rel_value": (161, 5)}),
    "rows": (3, 1500, {}),
    "labels": (20, 30, {"rel_query": (4, 6)}),
}
every_engine = pytest.mark.parametrize("engine", ENGINES)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def problem(engine, seed=1):
    """Inputs in float64 and settings."""
    rng = np.random.default_rng(seed)
    lq, lk, more = ENGINES[engine]
    inputs = tokens(rng, (2,), H, lq, lk, 6, 5)
    inputs |= {name: normal(rng, *shape) for name, shape in more.items()}
    settings = {"query_offset": lk - lq}
    if engine == "labels":
        settings = {"labels": rng.integers(-1, 4, (lq, lk))}
    return inputs | {"sinks": np.array([0.5, 2.0])}, settings


@every_engine
@both_dtypes
def test_sinks_are_those_of_the_oracle(isa, engine, dtype):
    inputs, settings = problem(engine)
    seen = np.random.default_rng(2).random((1, *ENGINES[engine][:2])) < 0.7
    seen[:, 1] = False
    settings |= {"attn_mask": seen}
    check(inputs, settings, dtype)


#: Sinks of queries: for each item, for all items, and one for all queries of a head.
OF_QUERIES = {"item": (2, H, None), "shared": (H, None), "one": (2, H, 1)}


def with_sinks_of_queries(engine, axes):
    inputs, settings = problem(engine)
    shape = [ENGINES[engine][0] if n is None else n for n in OF_QUERIES[axes]]
    inputs["sinks"] = normal(np.random.default_rng(3), *shape)
    inputs["sinks"][..., 0, 0] = -np.inf
    return inputs, settings


@every_engine
@both_dtypes
@pytest.mark.parametrize("axes", OF_QUERIES)
def test_sinks_of_queries_are_those_of_the_oracle(isa, engine, dtype, axes):
    inputs, settings = with_sinks_of_queries(engine, axes)
    seen = np.random.default_rng(2).random((1, *ENGINES[engine][:2])) < 0.7
    seen[:, 1] = False  # lse is the sink, and out 0
    check(inputs, settings | {"attn_mask": seen}, dtype)


@every_engine
@pytest.mark.parametrize("axes", OF_QUERIES)
def test_sinks_of_queries_follow_from_a_call_without(isa, engine, axes):
    """out by sigmoid(lse - sink), and lse by logaddexp(lse, sink)."""
    inputs, settings = with_sinks_of_queries(engine, axes)
    got = run(inputs, settings, "float64")
    sinks = inputs.pop("sinks")
    without = run(inputs, settings, "float64")
    share = 1 / (1 + np.exp(sinks - without.lse))
    assert_close(got.out, without.out * share[..., None], "same_formula")
    assert_close(got.lse, np.logaddexp(without.lse, sinks), "lse")


@every_engine
@both_dtypes
def test_one_sink_of_a_head_may_be_written_out(isa, engine, dtype):
    """The same bits forward; the gradients of the queries add up to the head's."""
    inputs, settings = problem(engine)
    got = run(inputs, settings, dtype)
    rows = np.repeat(inputs["sinks"][:, None], ENGINES[engine][0], 1)
    written = run(inputs | {"sinks": rows}, settings, dtype)
    for mine, other in zip(written[:3], got[:3], strict=True):
        assert_bitwise(mine, other)
    ours, theirs = (x.context.backward(np.ones_like(x.out)) for x in (written, got))
    assert ours.sinks.shape == rows.shape
    assert_close(ours.sinks.sum(-1), theirs.sinks, "gradient")
    assert_bitwise(ours.query, theirs.query)


@every_engine
@both_dtypes
def test_sinks_of_few_batch_axes(engine, dtype):
    """Batch axes broadcast, and a gradient is summed over those that were repeated."""
    inputs, settings = problem(engine)
    inputs["query"] = np.stack([inputs["query"], 0.5 * inputs["query"]])
    inputs["sinks"] = normal(np.random.default_rng(3), 2, 1, H, ENGINES[engine][0])
    check(inputs, settings, dtype)


@every_engine
@both_dtypes
def test_no_sink_is_none(isa, engine, dtype):
    """-inf: the very bits of a call without it, and a gradient of 0."""
    inputs, settings = problem(engine)
    inputs["sinks"] = np.full(H, -np.inf)
    got = run(inputs, settings, dtype)
    del inputs["sinks"]
    want = run(inputs, settings, dtype)
    for mine, other in zip(got[:3], want[:3], strict=True):
        assert_bitwise(mine, other)
    ours, theirs = (x.context.backward(np.ones_like(x.out)) for x in (got, want))
    assert (ours.sinks == 0).all() and theirs.sinks is None
    assert_bitwise(ours.query, theirs.query)


@every_engine
@both_dtypes
def test_a_row_without_a_key(engine, dtype):
    """out 0 whatever its gradient is, weights 0, lse the sink, with lse's gradient."""
    inputs, settings = problem(engine)
    got = run(inputs, settings | {"key_lengths": 0}, dtype)
    assert (got.out == 0).all() and (got.weights == 0).all()
    sinks = np.broadcast_to(inputs["sinks"][:, None], got.lse.shape)
    assert_close(got.lse, sinks, "lse")
    grad_lse = np.ones_like(got.lse)
    found = got.context.backward(np.full_like(got.out, np.nan), grad_lse=grad_lse)
    assert_close(found.sinks, np.full(H, grad_lse[:, 0].size, float), "gradient")
    assert (found.query == 0).all() and (found.value == 0).all()


@every_engine
@pytest.mark.parametrize("sink", [-9.0, 9.0])  # which keys outweigh, or do not
def test_a_row_whose_values_are_0_has_seen_them(engine, sink):
    """NaN in the gradient of such a row reaches its sink, as 0 * NaN does."""
    inputs, settings = problem(engine)
    inputs["sinks"] = np.full(H, sink)
    for name in inputs.keys() & {"value", "rel_value"}:
        inputs[name] = np.zeros_like(inputs[name])
    got = run(inputs, settings, "float64")
    assert (got.out == 0).all()
    found = got.context.backward(np.full_like(got.out, np.nan))
    assert np.isnan(found.sinks).all()


@pytest.mark.parametrize("lq", [3, 40])
def test_no_keys_at_all(lq):
    x, none = np.ones((H, lq, 4)), np.ones((H, 0, 4))
    sinks = np.array([1.0, -np.inf])
    got = relpos.attention(x, none, none, sinks=sinks, **WITH_ALL)
    assert (got.out == 0).all() and got.weights.shape == (H, lq, 0)
    assert_close(got.lse[0], np.ones(lq), "lse")
    assert (got.lse[1] == -np.inf).all()
    found = got.context.backward(None, grad_lse=np.full((H, lq), 2.0))
    assert found.sinks.tolist() == [2.0 * lq, 0.0]
    assert (found.query == 0).all() and found.key.shape == none.shape


@pytest.mark.parametrize("engine", ["tiles", "rows", "labels"])
def test_a_sink_is_a_key_of_value_0(engine):
    inputs, settings = problem(engine)
    lq, lk = ENGINES[engine][:2]
    got = run(inputs, settings, "float64")
    mask = np.zeros((H, lq, lk + 1))
    mask[..., -1] = inputs.pop("sinks")[:, None]
    for name in ("key", "value"):
        inputs[name] = np.concatenate([inputs[name], 0 * inputs[name][:, :, :1]], -2)
    if engine == "labels":  # no row for the new key
        none = np.full((lq, 1), -1)
        settings["labels"] = np.concatenate([settings["labels"], none], -1)
    want = run(inputs, settings | {"attn_mask": mask}, "float64")
    assert_close(got.out, want.out, "same_formula")
    assert_close(got.lse, want.lse, "lse")
    assert_close(got.weights, want.weights[..., :-1], "same_formula")


@every_engine
@both_dtypes
def test_a_sink_far_above_and_far_below(engine, dtype):
    inputs, settings = problem(engine)
    inputs["sinks"] = np.array([3e38, -3e38])
    got = run(inputs, settings, dtype)
    assert (got.out[:, 0] == 0).all() and (got.weights[:, 0] == 0).all()
    assert (got.lse[:, 0] > 1e37).all() and np.isfinite(got.lse).all()
    del inputs["sinks"]
    want = run(inputs, settings, dtype)
    assert_bitwise(got.out[:, 1], want.out[:, 1])
    found = got.context.backward(np.ones_like(got.out), grad_lse=np.ones_like(got.lse))
    assert_close(found.sinks, [got.lse[:, 0].size, 0.0], "gradient")
    assert all(np.isfinite(x).all() for x in found if x is not None)


@pytest.mark.devmode  # a newer gcc has failed it
@every_engine
@both_dtypes
@pytest.mark.parametrize("part", [1.0, 0.7, 0.69, 0.2, -0.2, -0.69, -0.7, -1.0])
def test_sinks_up_to_the_largest_number(isa, engine, dtype, part):
    """log2(e) times more than 0.693 of it is beyond the range of the dtype."""
    inputs, settings = problem(engine)
    largest = np.finfo(dtype).max
    inputs["sinks"] = np.array([largest * np.dtype(dtype).type(part), 2], float)
    seen = np.ones((1, *ENGINES[engine][:2]), bool)
    seen[:, 1] = False  # a row of which the sink is all
    got = check(inputs, settings | {"attn_mask": seen}, dtype)
    alone = got.lse[:, 0] if part > 0 else got.lse[:, 0, 1]
    assert_close(alone / largest, np.full(alone.shape, part), "lse")
    assert got.out[:, 0].any() == (part < 0)


@both_dtypes
@pytest.mark.parametrize(("lq", "lk"), [(3, 1500), (70, 90)])
def test_large_sinks_and_large_logits(isa, dtype, lq, lk):
    """The larger of the two is all of its row."""
    largest = float(np.finfo(dtype).max)
    query, key = np.full((4, lq, 1), largest**0.5), np.zeros((4, lk, 1))
    key[:, 7] = 0.5 * largest**0.5
    inputs = {"query": query, "key": key, "value": np.ones((4, lk, 3))}
    inputs["sinks"] = largest * np.array([0.4, 0.6, 1.0, -1.0])
    got = run(inputs, {"scale": 1.0, "query_offset": 0}, dtype)
    weight = np.array([1, 0, 0, 1])[:, None]
    assert_bitwise(got.weights[..., 7], np.tile(weight, lq).astype(dtype))
    assert (got.out == weight[..., None]).all()
    parts = np.array([0.5, 0.6, 1.0, 0.5])[:, None]
    assert_close(got.lse / largest, np.tile(parts, lq), "lse")
    found = got.context.backward(np.ones_like(got.out), grad_lse=np.ones_like(got.lse))
    assert found.sinks.tolist() == [0, lq, lq, 0]
    assert np.isfinite(found.value).all()


@every_engine
@pytest.mark.parametrize("strange", [np.inf, np.nan])
def test_a_sink_that_is_no_number_is_one_of_its_head(isa, engine, strange):
    inputs, settings = problem(engine)
    want = run(inputs, settings, "float32")
    inputs["sinks"][0] = strange
    got = run(inputs, settings, "float32")
    assert np.isnan(got.out[:, 0]).all() and np.isnan(got.lse[:, 0]).all()
    for mine, other in zip(got[:3], want[:3], strict=True):
        assert_bitwise(mine[:, 1], other[:, 1])


@pytest.mark.parametrize(("lq", "lk"), [(3, 40), (50, 700)])
def test_merged_results_have_the_sink_of_one_part(lq, lk):
    rng = np.random.default_rng(4)
    q, k, v = qkv(rng, (), H, lq, lk, 6)
    sinks, half = np.array([1.0, -1.0]), lk // 3
    whole = relpos.attention(q, k, v, sinks=sinks, return_lse=True)
    left = relpos.attention(q, k[:, :half], v[:, :half], sinks=sinks, return_lse=True)
    right = relpos.attention(q, k[:, half:], v[:, half:], return_lse=True)
    out, lse = relpos.merge_attention(left.out, left.lse, right.out, right.lse)
    assert_close(out, whole.out, "same_formula")
    assert_close(lse, whole.lse, "lse")


@both_dtypes
@pytest.mark.parametrize("shape", [(H, 5), (2, H, 5), (2, H, 1)])
def test_sinks_of_queries_along_edges(isa, dtype, shape):
    """The sinks of attention where every pair without an edge is masked."""
    rng = np.random.default_rng(9)
    x = normal(rng, 3, 2, H, 5, 4)
    sinks = normal(rng, *shape)
    mask = rng.random((5, 5)) < 0.4
    mask[2] = False
    q, k, v, given = (y.astype(dtype) for y in (*x, sinks))
    edges = np.array(np.nonzero(mask))[::-1]
    got = relpos.graph_attention(
        q, k, v, edges=edges, sinks=given, return_lse=True, return_context=True
    )
    want = relpos.attention(
        q, k, v, mask, sinks=given, return_lse=True, return_context=True
    )
    assert_close(got.out, want.out, "forward")
    assert_close(got.lse, want.lse, "lse")
    ours, theirs = (
        y.context.backward(np.ones_like(y.out), grad_lse=np.ones_like(y.lse))
        for y in (got, want)
    )
    assert ours.sinks.shape == shape
    assert_close(ours.sinks, theirs.sinks, "gradient")
    assert_close(ours.query, theirs.query, "gradient")
    indices, queries = edges[:, np.argsort(edges[1], kind="stable")]
    indptr = np.searchsorted(queries, np.arange(6))
    defined = reference.graph_attention(
        *x, indptr, indices, sinks=sinks, return_lse=True
    )
    assert_close(got.out, defined.out, "forward")
    assert_close(got.lse, defined.lse, "lse")


@both_dtypes
@pytest.mark.parametrize("part", [1.0, 0.7, -1.0])
def test_the_largest_sinks_along_edges(isa, dtype, part):
    x = normal(np.random.default_rng(8), 3, H, 5, 4).astype(dtype)
    edges = np.array([0, 0, 2, 3, 4, 5]), np.array([1, 2, 0, 4, 3])  # none of query 0
    sinks = np.array([np.finfo(dtype).max * np.dtype(dtype).type(part), 2], dtype)
    got = relpos.graph_attention(*x, *edges, sinks=sinks, return_lse=True)
    want = reference.graph_attention(*x, *edges, sinks=sinks, return_lse=True)
    assert_close(got.out, want.out, "forward")
    assert_close(got.lse, want.lse, "lse")
    assert got.lse[0, 0] == sinks[0]
