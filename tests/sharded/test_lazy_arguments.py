"""Arguments of relpos.sharded of which a call knows shape and dtype, not numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sharded_calls import CASES, case

import relpos

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
sharded = pytest.importorskip("relpos.sharded")

LK = 600


@pytest.fixture
def x():
    return np.random.default_rng(2).standard_normal((2, 1, LK, 4))


def cut(x):
    return da.from_array(x, chunks=(1, 1, 200, 4))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64"])
@pytest.mark.parametrize("name", ["query_offset", "key_lengths", "key_ranges"])
def test_narrow_integers_count_positions_of_the_whole(name, dtype, x):
    """Less the begin of a block, which they could not hold."""
    given = {"query_offset": 0, name: np.array([[100], [7]], dtype)[:, 0]}
    if name == "key_ranges":
        given[name] = np.array([[[3, 100]], [[0, 7]]], dtype)
    want = relpos.attention(x, x, x, is_causal=True, **given)
    given[name] = da.from_array(given[name], chunks=1)
    got = sharded.attention(*[cut(x)] * 3, is_causal=True, **given)
    np.testing.assert_allclose(got.compute(scheduler="sync"), want, rtol=1e-12)


def test_ranges_of_all_integers(x):
    ranges = np.array([[-(2**63), 2**63 - 1]])
    got = sharded.attention(*[cut(x)] * 3, key_ranges=ranges).compute(scheduler="sync")
    np.testing.assert_allclose(got, relpos.attention(x, x, x), rtol=1e-12)


@pytest.mark.parametrize("is_lazy", [False, True])
def test_ends_of_ranges_that_no_position_has(is_lazy, x):
    ends = [2**63 - 1, 2**63 - 31, 2**62, -(2**62), -(2**63), 0, 5, 210, LK, LK + 1]
    ranges = np.random.default_rng(3).choice(ends, (2, LK, 2))
    given = da.from_array(ranges, chunks=(1, 200, 2)) if is_lazy else ranges
    got = sharded.attention(*[cut(x)] * 3, key_ranges=given).compute(scheduler="sync")
    want = relpos.attention(x, x, x, key_ranges=ranges.clip(0, LK))
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("lengths", [[3, LK + 1], [-1, 3]])
def test_lengths_are_checked_where_they_are_computed(lengths, x):
    lengths = da.from_array(lengths)
    out = sharded.attention(*[cut(x)] * 3, key_lengths=lengths)
    with pytest.raises(ValueError, match=r"^key_lengths: got (601|-1); expected 0 to"):
        out.compute(scheduler="sync")


@pytest.mark.parametrize("term", ["rel_key", "log_decay"])
def test_offsets_decide_what_is_seen_where_they_are_computed(term, x):
    """Not by zeros in place of them, by which these tables would not reach."""
    query, table = x[:, :, :2], {"rel_key": x[0, 0, :7], "log_decay": -abs(x[..., 0])}
    given = {term: table[term], "query_offset": np.array([LK - 1, LK + 4])}
    if term == "rel_key":
        given |= {"min_relative_position": -6, "beyond": "raise", "window": (6, 6)}
    want = relpos.attention(query, x, x, **given)
    given["query_offset"] = da.from_array(given["query_offset"])
    got = sharded.attention(query, *[cut(x)] * 2, **given)
    np.testing.assert_allclose(got.compute(scheduler="sync"), want, rtol=1e-12)
    given["query_offset"] -= 2
    with pytest.raises((IndexError, ValueError), match=rf"^{term}: visible"):
        sharded.attention(query, *[cut(x)] * 2, **given).compute(scheduler="sync")


def test_chunks_without_a_known_length_are_refused_by_name(x):
    known = cut(x)
    unknown = known[known[:, 0, 0, 0] > -9]
    for name in ("query", "key", "value"):
        rows = dict.fromkeys(("query", "key", "value"), known) | {name: unknown}
        with pytest.raises(ValueError, match=rf"^{name}: shape \(nan, 1, 600, 4\)"):
            sharded.attention(**rows)
    with pytest.raises(ValueError, match=r"^rel_key: shape"):
        sharded.relative_global_attention(known, known, known, unknown)
    context = sharded.attention(known, known, known, return_context=True).context
    with pytest.raises(ValueError, match=r"^grad_out: shape"):
        context.backward(unknown)


def test_no_queries():
    """Dask refuses to cut an empty axis by itself."""
    query, key = np.ones((1, 1, 1, 6, 0, 29)), np.ones((2, 0, 29))
    result = sharded.attention(query, key, key, enable_gqa=True, return_context=True)
    assert result.context.backward(query).query.compute().shape == query.shape


def test_chunks_of_nothing(x):
    x = x.reshape(1, 2, LK, 4)[:, :, :9]
    chunks = ((1, 0), (0, 1, 0, 1), (4, 0, 5), (4,))
    lazy = da.from_array(x, chunks=chunks)
    result = sharded.attention(lazy, lazy, lazy, return_context=True)
    want = relpos.attention(x, x, x, return_context=True)
    gradients = [r.context.backward(x).key for r in (result, want)]
    np.testing.assert_allclose(result.out.compute(scheduler="sync"), want.out)
    np.testing.assert_allclose(gradients[0].compute(scheduler="sync"), gradients[1])


NETWORK = {
    "w1": np.array([0.5, -1.0, 2.0]),
    "b1": np.array([0.1, 0.7, -0.3]),
    "w2": np.array([[1.0, -0.5, 0.2], [0.3, 0.3, -2.0]]),
    "b2": np.array([0.4, 0.0]),
    "c": np.array(0.6),
    "threshold": np.array(2.5),
}
GRAPH = {"indptr": [0, 2, 2, 5], "indices": [0, 2, 1, 1, 2], "labels": [0, 1, 2, -1, 0]}
EDGES = {"edges": [[0, 2, 1], [0, 0, 2]], "labels": [2, 1, 0]}


def in_two(array):
    """An array of dask whose axes are cut in two where they can be."""
    array = np.asarray(array)
    return da.from_array(array, chunks=tuple(-(-size // 2) for size in array.shape))


def all_lazy(arguments, make=in_two):
    """Every array as one of dask, integers and lists of them too."""
    lazy = {
        name: make(x)
        if isinstance(x, (np.ndarray, list)) or name == "query_offset"
        else x
        for name, x in arguments.items()
    }
    if isinstance(arguments.get("labels"), tuple):
        lazy["labels"] = tuple(map(in_two, arguments["labels"]))
    return lazy


def results(function, arguments, grad_out):
    """out, lse and the gradients, computed."""
    result = function(**arguments, return_lse=True, return_context=True)
    gradients = result.context.backward(grad_out)._asdict()
    found = {"out": result.out, "lse": result.lse, **gradients}
    found = {name: x for name, x in found.items() if x is not None}
    return found, dask.compute(found, scheduler="sync")[0]


@pytest.mark.parametrize("name", CASES)
def test_every_array_may_be_lazy(name):
    rng = np.random.default_rng(7)
    given = case(name, rng)
    grad_out = rng.standard_normal((*given["query"].shape[:-1], 5))
    _, want = results(relpos.attention, given, grad_out)
    lazy, got = results(sharded.attention, all_lazy(given), in_two(grad_out))
    assert all(isinstance(x, da.Array) for x in lazy.values())
    assert want.keys() == got.keys()
    for key, array in want.items():
        np.testing.assert_allclose(got[key], array, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scheme", ["fire", "graph", "edges"])
def test_networks_and_graphs_may_be_lazy(scheme):
    """And change no bit: a task that all share has them in memory."""
    x = np.random.default_rng(5).standard_normal((4, 2, 3, 4))
    small = {"fire": NETWORK, "graph": GRAPH, "edges": EDGES}[scheme]
    if scheme != "fire":
        small = small | {"rel_key": x[0, 0], "sinks": x[0, :, 0, 0]}
    rows = dict.fromkeys(("query", "key", "value"), da.from_array(x, (1, 1, 3, 4)))
    if scheme == "fire":
        rows["key"] = rows["key"].rechunk((1, 1, 2, 4))
    function = getattr(sharded, f"{'fire' if scheme == 'fire' else 'graph'}_attention")
    _, want = results(function, rows | small, x)
    lazy, got = results(function, rows | all_lazy(small), x)
    assert all(isinstance(part, da.Array) for part in lazy.values())
    assert want.keys() == got.keys()
    assert ("threshold" in got) == (scheme == "fire")
    for key, array in want.items():
        assert np.array_equal(got[key], array), key
        assert got[key].shape == np.shape(array)


def test_what_all_blocks_share_is_computed_once(x):
    seen = []
    buckets = da.from_array(np.array([0, 1, 0]))
    buckets = buckets.map_blocks(lambda block: seen.append(block) or block, dtype=int)
    rows, given = [cut(x)] * 3, {"rel_bias": x[0, 0, :2, 0], "buckets": buckets}
    result = sharded.attention(*rows, **given, return_context=True)
    seen.clear()  # dask has asked a chunk of nothing for its kind
    dask.compute(result.out, result.context.backward(x).rel_bias, scheduler="sync")
    assert len(seen) == 1


NONE = da.ones(0, dtype=int)
#: Numbers with a fault that only a look at them shows.
FAULTS = {
    "offset": ("attention", {"query_offset": [0, 2**60], "is_causal": True}),
    "length": ("attention", {"key_lengths": [4, -1]}),
    "reach": (
        "attention",
        {"query_offset": [1, 2], "rel_bias": np.ones(5), "beyond": "raise"},
    ),
    "reach of ranges": (
        "attention",
        {"key_ranges": [[0, 3]], "rel_bias": np.ones(3), "beyond": "raise"},
    ),
    "decay": ("attention", {"query_offset": 1, "log_decay": -np.ones((1, 3))}),
    "infinite decay": (
        "attention",
        {"log_decay": [[0, 1, -np.inf]], "is_causal": True},
    ),
    "bucket": ("attention", {"rel_bias": np.ones(2), "buckets": [0, 2, 1]}),
    "label": ("attention", {"rel_bias": np.ones(2), "labels": [[0, 2, 1]]}),
    "indptr": ("graph_attention", GRAPH | {"indptr": [1, 2, 2, 5], "labels": None}),
    "index": ("graph_attention", GRAPH | {"indices": [0, 1, 2, 3, 0], "labels": None}),
    "edge": ("graph_attention", {"edges": [[0, 3], [1, 2]]}),
    "label of an edge": ("graph_attention", EDGES | {"rel_key": np.ones((2, 4))}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_told_where_they_are_computed_in_the_same_words(fault, x):
    scheme, given = FAULTS[fault]
    rows = [x[:, :, :3]] * 3
    with pytest.raises((ValueError, IndexError)) as told:
        getattr(relpos, scheme)(*rows, **given)
    lazy = all_lazy(given, lambda x: da.from_array(np.asarray(x)))
    rows[0] = da.from_array(rows[0], chunks=(1, 1, 3, 4))
    out = getattr(sharded, scheme)(*rows, **lazy)
    with pytest.raises(told.type, match=f"^{re.escape(str(told.value))}$"):
        out.compute(scheduler="sync")


@pytest.mark.parametrize(
    ("name", "told", "begin"),
    [
        ("labels", [2, 0], [3, 4]),
        ("labels[1]", [2, 0], [3, 4]),
        ("labels", [1, 1], None),
        ("log_decay", [0, 3], [1, 2]),
    ],
)
def test_an_index_of_a_chunk_is_told_with_its_begin(name, told, begin):
    rows = da.ones((2, 6, 4), chunks=(1, 3, 4))
    keys = rows.rechunk((1, 2, 4))
    at = tuple(np.add(told, begin or [0, 0]))
    numbers = np.zeros((2, 6) if name == "log_decay" else (6, 6), int)
    numbers[at] = 9
    given = {"rel_bias": np.ones(2), "labels": da.from_array(numbers)}
    if name == "log_decay":
        given = {name: da.from_array(np.where(numbers, np.nan, -1)), "is_causal": True}
    if name == "labels[1]":
        given["labels"] = (numbers[:1] * 0, given["labels"])
    out = sharded.attention(rows, keys, keys, **given)
    words = f"^{re.escape(f'{name}: {name}{told} is ')}"
    words += rf".*\)( \(in a chunk that begins at {re.escape(str(begin))}\))$"
    with pytest.raises((ValueError, IndexError), match=words if begin else "term\\)$"):
        out.compute(scheduler="sync")


@pytest.mark.parametrize("kind", [np.array, np.ndarray.tolist])
@pytest.mark.parametrize("name", ["w1", "b1", "w2", "b2", "buckets", "indices"])
def test_what_is_changed_after_the_call_changes_no_result(name, kind, x):
    """Not that of tasks that run later, nor gradients of kept results."""
    rows, ends = [x[:, :, :3].repeat(2, axis=1)] * 3, [0, 2, 3, 5]
    scheme, given = {
        "buckets": ("attention", {"rel_bias": [0.0, 9.0], "buckets": [0, 1, 0, 1, 1]}),
        "indices": ("graph_attention", {"indptr": ends, "indices": [0, 1, 1, 0, 2]}),
    }.get(name, ("fire_attention", NETWORK))
    given = given | {name: kind(np.array(given[name]))}
    result = getattr(sharded, scheme)(*rows, **given, return_context=True)
    arrays = result.out, result.context.persist().backward(rows[0]).value
    want = dask.compute(*arrays, scheduler="sync")
    given[name][:] = given[name][::-1]
    for array, one in zip(arrays, want, strict=True):
        assert np.array_equal(array.compute(scheduler="sync"), one)


@pytest.mark.parametrize("name", ["scale", "dropout_p", "is_causal", "rng", "window"])
def test_plain_values_cannot_be_lazy(name, x):
    with pytest.raises(
        TypeError, match=rf"^{name}: got a dask array; expected a plain"
    ):
        sharded.attention(x, x, x, **{name: da.ones(())})


def test_kinds_and_shapes_of_lazy_parameters_are_checked_at_once(x):
    rows = [cut(x[:, :, :3].repeat(2, axis=1))] * 3
    for change, error, words in (
        ({"w1": da.ones(3, dtype=int)}, TypeError, "w1: got dtype int64"),
        ({"b2": da.ones(3)}, ValueError, "b2: shape"),
        ({"signed": da.ones(())}, TypeError, "signed: got a dask array"),
        ({"rel_bias": x[0, 0, 0], "buckets": NONE}, ValueError, "buckets: got"),
    ):
        with pytest.raises(error, match=f"^{words}"):
            sharded.fire_attention(*rows, **NETWORK | change)
    with pytest.raises(ValueError, match=r"^indices: shape \(nan,\) is not known"):
        ends = da.arange(9)
        sharded.graph_attention(*rows, [0, 1, 1, 1], ends[ends > 7])


def test_packed_documents_of_blocks():
    """Blocks that documents hide have no task; FIRE's positions are refused by name."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((3, 2, 12, 4))
    cuts = [0, 5, 5, 6, 12]
    lazy = [da.from_array(part, (1, 4, 4)) for part in x]
    table = rng.standard_normal((2, 11, 4))
    given = {"rel_key": table, "pos_bias_u": None, "pos_bias_v": None}
    for dtype in (np.int32, np.int64):
        ends = np.array(cuts, dtype)
        found = sharded.transformer_xl_attention(*lazy, **given, cu_seqlens=ends)
        want = relpos.transformer_xl_attention(*x, **given, cu_seqlens=ends)
        np.testing.assert_allclose(found.compute(), want, rtol=1e-12, atol=1e-13)
    network = np.ones(2), np.ones(2), np.ones((2, 2)), np.ones(2), 1.0, 1.0
    with pytest.raises(ValueError, match="cu_seqlens: given to fire_attention"):
        sharded.fire_attention(*lazy, *network, cu_seqlens=cuts)
    with pytest.raises(ValueError, match=r"cu_seqlens: cu_seqlens\[4\] is 11"):
        sharded.attention(*lazy, cu_seqlens=[0, 5, 5, 6, 11])
    with pytest.raises(TypeError, match="cu_seqlens: "):
        sharded.attention(*lazy, cu_seqlens=da.from_array(np.array(cuts)))
