"""relpos.sharded.attention against relpos.attention: same bits, or to rounding."""

from __future__ import annotations

from inspect import signature

import numpy as np
import pytest
from sharded_calls import CASES, LQ, B, H, case

import relpos

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
sharded = pytest.importorskip("relpos.sharded")

TOKENS = ("query", "key", "value", "position_query")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def cut(arguments, batch, heads, queries=-1, keys=-1):
    """The tokens as dask arrays; a chunk of heads counts those of the query."""
    arguments = dict(arguments)
    group = arguments["query"].shape[1] // arguments["key"].shape[-3]
    lengths = {"query": queries, "key": keys}
    for name in ("query", "key", "value"):
        array = arguments[name]
        own = heads if name == "query" else max(1, heads // group)
        chunks = (batch, own, lengths.get(name, -1), -1)[-array.ndim :]
        arguments[name] = da.from_array(array, chunks=chunks)
    return arguments


def both(arguments, chunks, rng):
    """Results and gradients of the whole, and of the chunks."""
    flags = {"return_lse": True, "return_context": True}
    whole = relpos.attention(**arguments, **flags)
    parts = sharded.attention(**cut(arguments, *chunks), **flags)
    grad_out = rng.standard_normal(whole.out.shape)
    grad_lse = rng.standard_normal(whole.lse.shape)
    wrt = [n for n in relpos.AttentionGradients._fields if n in arguments]
    wrt = [n for n in wrt if np.asarray(arguments[n]).dtype.kind == "f"]
    results = [{"out": r.out, "lse": r.lse} for r in (whole, parts)]
    for result, one in zip(results, (whole, parts), strict=True):
        found = one.context.backward(grad_out, grad_lse=grad_lse, wrt=wrt)
        result |= {name: getattr(found, name) for name in wrt}
        assert [n for n in found._fields if getattr(found, n) is not None] == wrt
    return results[0], dask.compute(results[1], scheduler="sync")[0]


def close(got, want, tolerance=1e-13):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("chunks", [(1, 2), (2, 1)])
@pytest.mark.parametrize("name", CASES)
def test_chunks_of_batch_and_heads_have_the_same_bits(name, chunks, rng):
    want, got = both(case(name, rng), chunks, rng)
    for key, array in want.items():
        close(got[key], array)
        if key in ("out", "lse", *TOKENS):
            assert np.array_equal(got[key], array, equal_nan=True), key


@pytest.mark.parametrize("chunks", [(1, 4, 4, 5), (3, 2, (1, 10), (6, 6, 1))])
@pytest.mark.parametrize("name", CASES)
def test_blocks_of_queries_and_keys_are_the_whole(name, chunks, rng):
    want, got = both(case(name, rng), chunks, rng)
    for key, array in want.items():
        close(got[key], array)


@pytest.mark.parametrize(
    "name",
    ["tables", "masked", "labels", "grouped", "decay_and_more", "dropout_and_decay"],
)
def test_every_instruction_set(name, isa, rng):
    """`use_isa` belongs to a context, and these tasks run in that of the test."""
    given = case(name, rng, np.float32)
    want, got = both(given, (2, 1), rng)
    for key in ("out", "lse", "query", "key", "value"):
        assert np.array_equal(got[key], want[key], equal_nan=True), key
    want, got = both(given, (1, 4, 4, 5), rng)
    for key, array in want.items():
        close(got[key], array, np.finfo(np.float32).eps * 64)


@pytest.mark.parametrize("name", ["query", "key", "value", "rel_key", "attn_mask"])
def test_the_forward_reads_16_bits_in_place(name, rng, monkeypatch):
    """Blocks get the chunks as they are; an array of float64 is as wide as before."""
    arguments = case("tables", rng, np.float16)
    arguments["attn_mask"] = np.zeros(arguments["key"].shape[-2], np.float16)
    seen = []

    def forward(call, *args, **keywords):
        seen.append(call[name].dtype)
        return whole(call, *args, **keywords)

    whole = sharded._tasks.forward
    monkeypatch.setattr(sharded._tasks, "forward", forward)
    both(arguments, (2, 1), rng)
    assert {*seen} == {np.dtype(np.float16)}
    seen.clear()
    both(arguments | {"rel_bias": np.ones((H, 9))}, (2, 1), rng)
    assert {*seen} == {np.dtype(np.float64)}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_dtypes_are_computed_and_rounded_as_the_whole(dtype, rng):
    given = case("tables", rng, dtype) | {"rel_bias": np.ones((H, 9), np.float32)}
    want, got = both(given, (2, 1), rng)
    for key in ("out", "lse", "query", "key", "value"):
        assert got[key].dtype == want[key].dtype
        assert np.array_equal(got[key], want[key]), key
    close(got["rel_key"], want["rel_key"], np.finfo(dtype).eps * 8)
    want, got = both(given, (2, 1, 4, 4), rng)
    for key, array in want.items():
        close(got[key], array, np.finfo(dtype).eps * 32)


@pytest.mark.parametrize(
    ("batch", "short", "chunks"),
    [
        ((64,), (1,), (8, 1)),
        ((64,), (64,), (8, 1)),
        ((300, 3), (3,), (-1, 2, 1)),
        ((300, 3, 4), (3, 1), (-1, 1, 1, 1)),
    ],
)
@pytest.mark.parametrize("wide", [np.float16, np.float64])
def test_sums_over_the_batch_have_the_same_bits(wide, batch, short, chunks, rng):
    """Rounded as those of the whole, and added in its order, of one number too."""
    for length in (1, 8):
        rows, few = (*batch, 2, length, length), (*short, 2, length, length)
        given = {"query": rows, "key": few, "value": few, "rel_bias": 3}
        given = {n: rng.standard_normal(x).astype(np.half) for n, x in given.items()}
        given["rel_bias"] = given["rel_bias"].astype(wide)
        names, cut = ("query", "key", "value"), (*chunks, -1, -1)
        lazy = {n: da.from_array(given[n], cut[-given[n].ndim :]) for n in names}
        grad_out = rng.standard_normal(rows)
        want, got = (
            f(**g, return_context=True).context.backward(grad_out, wrt=names)
            for f, g in ((relpos.attention, given), (sharded.attention, given | lazy))
        )
        for name in names:
            found = getattr(got, name).compute(scheduler="sync")
            assert np.array_equal(found, getattr(want, name)), name


def test_a_sum_over_the_batch_is_rounded_twice():
    """To float32 first: the sum is just above the middle of two of float16."""
    query, key = np.ones((2, 1, 1, 1), np.half), np.ones((1, 1, 1, 1), np.half)
    grad_out = np.reshape([1 + 2.0**-11, 2.0**-30], query.shape)
    for module in (relpos, sharded):
        context = module.attention(query, key, key, return_context=True).context
        gradient = context.backward(grad_out).value
        assert np.asarray(gradient).item() == 1.0


@pytest.mark.parametrize("heads", [1, 2])
def test_no_query_heads_of_some_key_heads(heads):
    query, key = da.ones((1, 0, 3, 4)), da.ones((1, 2, 3, 4), chunks=(1, heads, 2, 4))
    flags = {"return_lse": True, "return_context": True}
    result = sharded.attention(query, key, key, enable_gqa=True, **flags)
    gradients = result.context.backward(query)
    arrays = result.out, result.lse, gradients.query, gradients.key, gradients.value
    shapes = [x.shape for x in dask.compute(*arrays, scheduler="sync")]
    assert shapes == [(1, 0, 3, 4), (1, 0, 3), (1, 0, 3, 4), key.shape, key.shape]


def test_bits_at_lengths_of_many_tiles(rng):
    """The number of heads decides how keys are cut into chunks."""
    x = rng.standard_normal((1, 16, 700, 8)).astype(np.float32)
    given = {"query": x, "key": x, "value": x, "rel_key": x[0, 0, :31]}
    given["window"] = (40, 0)
    want, got = both(given, (1, 1), rng)
    for key in ("out", "lse", "query", "key", "value"):
        assert np.array_equal(got[key], want[key]), key


def test_far_scores_and_a_block_without_keys(rng):
    """The first queries see nothing of the second block, whose maximum is 0."""
    x = rng.standard_normal((1, 2, 8, 4)).astype(np.float32)
    bias = np.full(15, -300, np.float32)  # 2**-300 is 0
    given = {"query": x, "key": x, "value": x, "rel_bias": bias, "is_causal": True}
    given["sinks"] = np.float32([-np.inf, 0])
    with np.errstate(all="raise"):  # as relpos, it is silent
        want, got = both(given, (1, 1, -1, 4), rng)
    for key, array in want.items():
        close(got[key], array, 1e-4)


def test_weights_of_blocks(rng):
    given = case("visible", rng)
    given["query"][2, 1] = np.nan  # its hidden pairs keep their 0
    want = relpos.attention(**given, return_weights=True).weights
    assert np.isnan(want).any()
    got = sharded.attention(**cut(given, 1, 2, 4, 5), return_weights=True).weights
    close(got.compute(scheduler="sync"), want)


def test_kept_results_make_the_backward_free_of_a_forward(rng, monkeypatch):
    x = da.from_array(rng.standard_normal((2, 8, 4)), chunks=(1, 4, 4))
    result = sharded.attention(x, x, x, return_context=True)
    context = result.context.persist()
    lazy, kept = (c.backward(x).key for c in (result.context, context))
    assert any("relpos-attention" in str(key) for key in lazy.dask)
    assert not any("relpos-attention" in str(key) for key in kept.dask)
    want = lazy.compute(scheduler="sync")
    monkeypatch.setattr(sharded._tasks, "forward", None)  # nor does a task of its own
    assert np.array_equal(kept.compute(scheduler="sync"), want)


@pytest.mark.parametrize("name", [n for n in sharded.__all__ if n.islower()])
def test_arguments_are_those_of_relpos(name):
    own, other = (
        [(p.name, p.kind, p.default) for p in signature(f).parameters.values()]
        for f in (getattr(sharded, name), getattr(relpos, name))
    )
    assert own == other


def test_the_schemes_by_name(rng):
    x, table = rng.standard_normal((2, 6, 4)), rng.standard_normal((6, 4))
    lazy = da.from_array(x, chunks=(1, 4, 4))
    for scheme, rest in (
        ("shaw_attention", (table[:3], table[:5])),
        ("relative_global_attention", (table,)),
        ("transformer_xl_attention", (table, table[0], None)),
    ):
        settings = {} if scheme == "shaw_attention" else {"is_causal": True}
        want = getattr(relpos, scheme)(x, x, x, *rest, **settings)
        rows = (lazy, lazy, lazy, *rest)
        got = getattr(sharded, scheme)(*rows, **settings)
        close(got.compute(scheduler="sync"), want)


NETWORK = {"w1": (5,), "b1": (5,), "w2": (4, 5), "b2": (4,)}
GRAPH = {"indptr": [0, 2, 2, 5], "indices": [0, 2, 1, 1, 2], "labels": [0, 1, 2, -1, 0]}


@pytest.mark.parametrize("signed", [False, True])
def test_fire_in_blocks_of_keys(signed, rng):
    """Its normaliser grows with the query's position in the whole."""
    given = case("tables", rng) | {"query_offset": [2, 0, 5], "is_causal": not signed}
    given |= {name: rng.standard_normal(shape) for name, shape in NETWORK.items()}
    given |= {"c": np.float64(0.7), "threshold": np.float64(3.5), "signed": signed}
    given["return_context"] = True
    want = relpos.fire_attention(**given)
    got = sharded.fire_attention(**cut(given, 1, 2, 4, 5))
    grad_out = rng.standard_normal(want.out.shape)
    results = [
        r.context.backward(grad_out)._asdict() | {"out": r.out} for r in (want, got)
    ]
    computed = dask.compute(results[1], scheduler="sync")[0]
    found = {key for key, array in computed.items() if array is not None}
    assert found >= {"w1", "b1", "w2", "b2", "c", "threshold", "rel_value", "key"}
    for key in found:
        close(computed[key], results[0][key], 1e-12)


@pytest.mark.parametrize(
    ("scheme", "chunks"),
    [
        *(("fire_attention", (1, heads)) for heads in (1, 3, 4)),
        ("fire_attention", (2, 3, 2)),
        ("graph_attention", (1, 1)),
        ("graph_attention", (2, 3)),
    ],
)
def test_fire_and_graphs(scheme, chunks, rng):
    """Lines of FIRE are those of all heads, whatever the chunks: the bits are, too."""
    x, table = rng.standard_normal((2, 4, 3, 8)), rng.standard_normal((4, 3, 8))
    given = {"query": x, "key": x, "value": x, "return_context": True}
    if scheme == "fire_attention":
        given |= {name: rng.standard_normal(shape) for name, shape in NETWORK.items()}
        given |= {"c": np.float32(0.7), "threshold": 2.0, "is_causal": True}
    else:
        given |= GRAPH | {"rel_key": table, "sinks": table[:, 0, 0]}
    want = getattr(relpos, scheme)(**given)
    got = getattr(sharded, scheme)(**cut(given, *chunks))
    results = [{"out": r.out, **r.context.backward(x)._asdict()} for r in (want, got)]
    computed = dask.compute(results[1], scheduler="sync")[0]
    for key, array in results[0].items():
        assert (array is None) == (computed[key] is None), key
        if array is not None:
            close(computed[key], array, 1e-6 if key == "c" else 1e-13)
        if key in ("out", "query") and len(chunks) == 2:
            assert np.array_equal(computed[key], array), key


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("chunks", [(2, -1, -1, -1), (3, 2, -1, -1)])
def test_key_indices(groups, chunks, is_lazy, rng):
    """Cut by batch items and by heads, whose groups a cut may divide."""
    query = rng.standard_normal((4, 4, 6, 8))
    rows = [rng.standard_normal((4, 2, 7, 8)) for _ in "kv"]
    indices = rng.integers(-2, 7, (4, groups, 6, 5))
    labels = rng.integers(-1, 3, indices.shape)
    more = {"rel_key": rng.standard_normal((3, 8)), "enable_gqa": True}
    more |= {"return_lse": True, "return_context": True}
    lists = {"key_indices": indices, "labels": labels}
    want = relpos.graph_attention(query, *rows, **lists, **more)
    if is_lazy:
        lists = {name: da.from_array(x) for name, x in lists.items()}
    got = sharded.graph_attention(
        da.from_array(query, chunks=chunks), *rows, **lists, **more
    )
    close(got.out.compute(scheduler="sync"), want.out)
    close(got.lse.compute(scheduler="sync"), want.lse)
    found, wanted = (x.context.backward(np.ones_like(want.out)) for x in (got, want))
    for name in ("query", "key", "value", "rel_key"):
        gradient = getattr(found, name).compute(scheduler="sync")
        close(gradient, getattr(wanted, name))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"key": da.zeros((2, 5, 3))}, ValueError, "key: shape"),
        ({"query": da.zeros((2, 4, 4), dtype=int)}, TypeError, "query: got dtype"),
        ({"dropout_p": 1.5}, ValueError, "dropout_p: got 1.5; expected 0"),
        ({"out": np.zeros((2, 4, 4))}, TypeError, "out: not taken here"),
        ({"is_causal": 2}, TypeError, "is_causal"),
        ({"causal": True}, TypeError, "causal: got an unexpected keyword argument"),
        ({"rel_key": da.zeros((3, 3))}, ValueError, "rel_key: shape"),
    ],
)
def test_errors_come_before_anything_is_computed(change, error, words):
    x = da.zeros((2, 4, 4), chunks=(2, 2, 4))
    given = {"query": x, "key": x, "value": x, "is_causal": True}
    with pytest.raises(error, match=rf"^{words}"):
        sharded.attention(**given | change)


@pytest.mark.parametrize(("name", "place"), [("query", 0), ("key", 1)])
def test_edges_need_whole_queries_and_keys(name, place):
    rows = [da.zeros((1, 3, 1))] * 3
    rows[place] = rows[place].rechunk((1, 2, 1))
    with pytest.raises(ValueError, match=rf"^{name}: in 2 chunks of its length; "):
        sharded.graph_attention(*rows, [0, 1, 1, 1], [0])


def test_gradient_of_decay_alone(rng):
    """By lse, and in blocks some of which no query sees."""
    given = case("decay_in_a_window", rng) | {"query_offset": 40}
    flags = {"return_lse": True, "return_context": True}
    grad_lse = rng.standard_normal((B, H, LQ))
    for offset in (40, 16, 2):
        given["query_offset"] = offset
        want = relpos.attention(**given, **flags)
        got = sharded.attention(**cut(given, 1, 2, 4, 3), **flags)
        close(got.lse.compute(scheduler="sync"), want.lse)
        for wrt in (["log_decay"], ["sinks"]):
            one, two = (
                getattr(r.context.backward(None, grad_lse=grad_lse, wrt=wrt), wrt[0])
                for r in (want, got)
            )
            close(two.compute(scheduler="sync"), one)


@pytest.mark.parametrize("name", ["query", "key", "rel_key"])
def test_a_chunk_that_is_not_what_dask_takes_it_for(name):
    """Positions after it would be other ones."""
    x, table = da.ones((2, 6, 4), chunks=(1, 3, 4)), da.ones((5, 4))
    given = {"query": x, "key": x, "value": x, "rel_key": table}
    given[name] = given[name].map_blocks(lambda block: block[..., 1:, :], dtype=float)
    result = sharded.attention(**given, return_context=True)
    words = rf"^{name}: a chunk has shape \(.*\), where its dask array says \("
    with pytest.raises(ValueError, match=words):
        result.out.compute(scheduler="sync")


def test_backward_refuses_what_does_not_fit():
    x = da.zeros((2, 4, 4))
    context = sharded.attention(x, x, x, return_context=True).context
    with pytest.raises(ValueError, match=r"^grad_out: shape"):
        context.backward(x[:1])
    with pytest.raises(ValueError, match=r"^grad_out: None, and so is grad_lse"):
        context.backward(None)
    with pytest.raises(ValueError, match=r"^wrt: 'rel_key' was not given"):
        context.backward(x, wrt=["rel_key"])
