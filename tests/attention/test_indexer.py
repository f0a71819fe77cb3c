"""Keys that an indexer picks: against loops, and in every layout, block and dtype."""

from __future__ import annotations

import itertools
import tracemalloc
from functools import cmp_to_key

import numpy as np
import pytest
from refusals import refused

import relpos
from relpos import _core
from relpos._settings import kernels, use_isa

pytestmark = pytest.mark.filterwarnings("ignore:.*zeros and ones")


def comes_before(a, b):
    """Compare (score, key) as the result is ordered, for `sorted`."""
    is_nan = np.isnan(a[0]), np.isnan(b[0])
    if is_nan != (False, False):
        return is_nan[0] - is_nan[1] or a[1] - b[1]
    return (a[0] < b[0]) - (a[0] > b[0]) or a[1] - b[1]


def looped(
    query,
    key,
    weights,
    k,
    is_causal=False,
    query_offset=0,
    key_ranges=None,
    key_lengths=None,
    attn_mask=None,
):
    """The picks of one batch item, pair by pair."""
    heads, queries, _ = query.shape
    keys, count = len(key), min(k, len(key))
    picks = np.full((queries, count), -1, np.int32)
    mask = None
    if attn_mask is not None:
        mask = np.broadcast_to(attn_mask, (queries, keys))
    for i in range(queries):
        seen = []
        for j in range(keys):
            if is_causal and j > i + query_offset:
                continue
            if key_lengths is not None and j >= key_lengths:
                continue
            if key_ranges is not None and not key_ranges[i, 0] <= j < key_ranges[i, 1]:
                continue
            products = [float(np.dot(query[h, i], key[j])) for h in range(heads)]
            score = sum(
                float(weights[h, i]) * (0.0 if x < 0 else x)
                for h, x in enumerate(products)
            )
            if mask is not None and mask.dtype.kind == "b":
                if not mask[i, j]:
                    continue
            elif mask is not None:
                if mask[i, j] == -np.inf:
                    continue
                score += float(mask[i, j])
            seen.append((score, j))
        seen.sort(key=cmp_to_key(comes_before))
        picks[i, : len(seen)] = [j for _, j in seen[:count]]
    return picks


def operands(rng, *batch, heads=3, queries=7, keys=11, columns=5):
    return (
        rng.standard_normal((*batch, heads, queries, columns)),
        rng.standard_normal((*batch, keys, columns)),
        rng.standard_normal((*batch, heads, queries)),
    )


def whole_numbers(rng, *shape, largest=3):
    """Numbers whose sums and products are exact, with many equal scores."""
    return rng.integers(-largest, largest + 1, shape).astype(np.float32)


# ---- the formula and the rules -------------------------------------------------------

OFFSETS = {"is_causal": True, "query_offset": 4}
RULES = {
    "none": {},
    "causal": OFFSETS,
    "before": {"is_causal": True, "query_offset": -3},
    "far": {"is_causal": True, "query_offset": 2**60 - 1},
    "ranges": {
        "key_ranges": np.array([[0, 4], [3, 3], [5, 2], [-9, 99], [10, 11]] * 2)
    },
    "length": {"key_lengths": 6},
    "no keys": {"key_lengths": 0},
    "bool": {"attn_mask": np.random.default_rng(1).random((10, 11)) < 0.5},
    "row": {"attn_mask": np.arange(11) % 3 == 0},
    "numbers": {"attn_mask": np.where(np.eye(10, 11), -np.inf, np.arange(11) * 0.5)},
    "hidden": {"attn_mask": np.full((10, 11), -np.inf)},
}
RULES["all"] = OFFSETS | RULES["bool"] | RULES["ranges"] | {"key_lengths": 9}
each_rule = pytest.mark.parametrize("rule", RULES)


@each_rule
@pytest.mark.parametrize("k", [1, 4, 11, 99])
def test_picks_are_those_of_loops(rng, rule, k):
    arrays = operands(rng, queries=10)
    expected = looped(*arrays, k, **RULES[rule])
    picks = relpos.indexer_top_k(*arrays, k, **RULES[rule])
    assert picks.dtype == np.int32 and picks.shape == (10, min(k, 11))
    np.testing.assert_array_equal(picks, expected)
    definition = relpos.reference.indexer_top_k(*arrays, k, **RULES[rule])
    np.testing.assert_array_equal(definition, expected)


@each_rule
def test_equal_scores_come_by_key(rng, rule):
    query, key, weights = (
        whole_numbers(rng, *shape, largest=1)
        for shape in [(2, 10, 3), (11, 3), (2, 10)]
    )
    expected = looped(query, key, weights, 8, **RULES[rule])
    picks = relpos.indexer_top_k(query, key, weights, 8, **RULES[rule])
    np.testing.assert_array_equal(picks, expected)


def test_there_are_equal_scores(rng):
    picks = relpos.indexer_top_k(
        np.zeros((2, 3, 4)), np.ones((9, 4)), np.ones((2, 3)), 5
    )
    np.testing.assert_array_equal(picks, [[0, 1, 2, 3, 4]] * 3)


SIZES = {
    "one of all": (1, 1, 1, 1),
    "one query": (64, 1, 300, 16),
    "many queries": (1, 700, 40, 3),
    "blocks": (40, 30, 70, 9),
    "more heads than rows of a block": (600, 3, 33, 2),
    "long": (2, 3, 2000, 8),
    "no columns": (2, 3, 9, 0),
    "no heads": (0, 3, 9, 4),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("isa", _core.by_isa)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_size_is_exact_on_whole_numbers(rng, size, isa, dtype):
    heads, queries, keys, columns = SIZES[size]
    query = whole_numbers(rng, heads, queries, columns).astype(dtype)
    key = whole_numbers(rng, keys, columns).astype(dtype)
    weights = whole_numbers(rng, heads, queries).astype(dtype)
    scores = np.einsum(
        "hi,hij->ij", weights, np.maximum(0, np.einsum("hid,jd->hij", query, key))
    )
    expected = np.argsort(-scores, axis=-1, kind="stable")[:, :50]
    with use_isa(isa):
        picks = relpos.indexer_top_k(query, key, weights, 50)
    np.testing.assert_array_equal(picks, expected)


@pytest.mark.parametrize("k", [1, 2, 37, 1000, 1001])
def test_any_number_of_keys_is_the_beginning_of_all(rng, k):
    arrays = operands(rng, keys=1001, queries=3)
    whole = relpos.indexer_top_k(*arrays, 1001)
    assert (np.sort(whole, axis=-1) == np.arange(1001)).all()
    np.testing.assert_array_equal(relpos.indexer_top_k(*arrays, k), whole[:, :k])


@pytest.mark.parametrize("lengths", [(0, 5), (5, 0)])
def test_nothing_to_pick(lengths):
    queries, keys = lengths
    picks = relpos.indexer_top_k(
        np.ones((2, 3, queries, 4)), np.ones((keys, 4)), np.ones((3, queries)), 2
    )
    assert picks.shape == (2, queries, min(2, keys))


# ---- numbers that are not finite -----------------------------------------------------


def test_nan_comes_after_all_numbers_and_before_hidden_keys():
    query, weights = np.ones((1, 1, 1)), np.ones((1, 1))
    key = np.array([[1.0], [np.nan], [2.0], [np.nan], [-np.inf], [np.inf], [3.0]])
    mask = np.array([True] * 6 + [False])
    picks = relpos.indexer_top_k(query, key, weights, 7, attn_mask=mask)
    np.testing.assert_array_equal(picks, [[5, 2, 0, 4, 1, 3, -1]])
    np.testing.assert_array_equal(
        relpos.reference.indexer_top_k(query, key, weights, 7, attn_mask=mask), picks
    )


def test_a_score_of_minus_infinity_is_seen():
    query, weights = np.ones((1, 1, 1)), -np.ones((1, 1))
    key = [[np.inf], [1.0], [np.nan]]
    picks = relpos.indexer_top_k(query, key, weights, 3)
    np.testing.assert_array_equal(picks, [[1, 0, 2]])


def test_masks_that_are_large_or_not_finite(rng):
    query, key, weights = operands(rng, queries=1, keys=6)
    low = float(np.finfo(np.float32).min)
    mask = np.array([low, np.nan, np.inf, -np.inf, low, np.inf], np.float32)
    picks = relpos.indexer_top_k(
        query.astype("f4"), key.astype("f4"), weights.astype("f4"), 6, attn_mask=mask
    )
    np.testing.assert_array_equal(picks, [[2, 5, 0, 4, 1, -1]])


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_of_hidden_keys_have_no_effect(rng, number):
    query, key, weights = operands(rng, keys=11)
    expected = relpos.indexer_top_k(query, key[:6], weights, 9)
    key[6:] = number
    picks = relpos.indexer_top_k(query, key, weights, 9, key_lengths=6)
    np.testing.assert_array_equal(picks[:, :6], expected)
    assert (picks[:, 6:] == -1).all()


# ---- dtypes, layouts, batches, threads -----------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_16_bits_are_widened(rng, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    short = [x.astype(dtype) for x in operands(rng, 2, keys=50, columns=40)]
    wide = [x.astype(np.float32) for x in short]
    mask = rng.standard_normal((7, 50)).astype(dtype)
    expected = relpos.indexer_top_k(*wide, 9, attn_mask=mask.astype(np.float32))
    pairs = list(zip(short, wide, strict=True))
    for which in itertools.product((0, 1), repeat=3):
        mixed = [pair[n] for pair, n in zip(pairs, which, strict=True)]
        np.testing.assert_array_equal(
            relpos.indexer_top_k(*mixed, 9, attn_mask=mask), expected
        )
    doubled = [*short[:2], short[2].astype(np.float64)]
    np.testing.assert_array_equal(
        relpos.indexer_top_k(*doubled, 9, attn_mask=mask),
        relpos.indexer_top_k(
            *[x.astype(np.float64) for x in short], 9, attn_mask=mask.astype("f8")
        ),
    )


def test_the_widest_dtype_counts():
    """The second key is larger by less than float32 has."""
    query, key = np.ones((1, 1, 1), np.float32), np.array([[1.0], [1 + 1e-12]])
    weights = np.ones((1, 1), np.float32)
    np.testing.assert_array_equal(relpos.indexer_top_k(query, key, weights, 1), [[1]])
    short = key.astype(np.float32)
    np.testing.assert_array_equal(relpos.indexer_top_k(query, short, weights, 1), [[0]])


def spaced(x):
    """Every other number of a larger array."""
    large = np.zeros([2 * n for n in x.shape], x.dtype)
    view = large[tuple(slice(1, None, 2) for _ in x.shape)]
    view[...] = x
    return view


LAYOUTS = {
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "negative": lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
    "spaced": spaced,
    "swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "list": lambda x: x.tolist(),
    "read-only": lambda x: np.lib.stride_tricks.as_strided(x, writeable=False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(rng, layout):
    arrays = operands(rng, 2, columns=35, keys=40)
    mask = rng.standard_normal((2, 7, 40))
    ranges = np.sort(rng.integers(0, 41, (7, 2)))
    change = LAYOUTS[layout]
    expected = relpos.indexer_top_k(*arrays, 6, attn_mask=mask, key_ranges=ranges)
    picks = relpos.indexer_top_k(
        *map(change, arrays), 6, attn_mask=change(mask), key_ranges=change(ranges)
    )
    np.testing.assert_array_equal(picks, expected)


def test_batch_axes_broadcast(rng):
    query = rng.standard_normal((3, 1, 2, 4, 5))
    key = rng.standard_normal((2, 6, 5))
    weights = rng.standard_normal((1, 2, 4))
    offset, lengths = np.array([[0], [1], [5]]), np.array([6, 3])
    mask = rng.random((4, 1, 1, 4, 6)) < 0.8
    rules = {"query_offset": offset, "key_lengths": lengths, "attn_mask": mask}
    picks = relpos.indexer_top_k(query, key, weights, 3, is_causal=True, **rules)
    assert picks.shape == (4, 3, 2, 4, 3)
    for m, a, b in np.ndindex(4, 3, 2):
        np.testing.assert_array_equal(
            picks[m, a, b],
            looped(
                query[a, 0], key[b], weights[0], 3, is_causal=True,
                query_offset=offset[a, 0], key_lengths=lengths[b],
                attn_mask=mask[m, 0, 0],
            ),
        )  # fmt: skip


def test_ranges_and_offsets_may_bring_batch_axes(rng):
    arrays = operands(rng)
    ranges = np.sort(rng.integers(0, 12, (2, 7, 2)))
    picks = relpos.indexer_top_k(*arrays, 3, key_ranges=ranges)
    for item in range(2):
        np.testing.assert_array_equal(
            picks[item], looped(*arrays, 3, key_ranges=ranges[item])
        )


def test_bits_do_not_depend_on_threads_or_on_other_queries(rng):
    arrays = operands(rng, 2, heads=5, queries=300, keys=257, columns=33)
    picks = relpos.indexer_top_k(*arrays, 40, num_threads=1)
    for threads in (2, 7):
        again = relpos.indexer_top_k(*arrays, 40, num_threads=threads)
        np.testing.assert_array_equal(again, picks)
    query, key, weights = arrays
    some = relpos.indexer_top_k(query[1, :, 7:9], key[1], weights[1, :, 7:9], 40)
    np.testing.assert_array_equal(some, picks[1, 7:9])


def test_no_array_of_all_pairs_is_made(rng):
    """An array of Lq x Lk numbers would take 64 MB."""
    query, key, weights = operands(rng, heads=2, queries=4096, keys=4096, columns=4)
    before = _core.live_blocks()
    tracemalloc.start()
    relpos.indexer_top_k(query, key, weights, 4, is_causal=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4096 * 4096 and _core.live_blocks() == before


@pytest.mark.parametrize("n", [1, 2])
def test_memory_that_is_out(rng, n):
    before = _core.live_blocks()
    _core.fail_at(n, False)
    try:
        with pytest.raises(MemoryError):
            relpos.indexer_top_k(*operands(rng, 2), 3)
    finally:
        _core.fail_at(0, False)
    assert _core.live_blocks() == before


def test_a_mask_of_zeros_and_ones_is_warned_of(rng):
    arrays, mask = operands(rng), np.ones((7, 11))
    mask[:, 3] = 0
    with pytest.warns(UserWarning, match="attn_mask: got a floating mask of zeros"):
        relpos.indexer_top_k(*arrays, 3, attn_mask=mask)


# ---- refused -------------------------------------------------------------------------

GOOD = {
    "query": np.ones((2, 3, 4, 5)),
    "key": np.ones((6, 5)),
    "weights": np.ones((3, 4)),
    "k": 2,
}
ones = np.ones
test_refused = refused(
    relpos.indexer_top_k,
    GOOD,
    """
k=0 -> ValueError: …got 0; expected an integer of at least 1
k=-3 -> ValueError: …got -3; expected an integer of at least 1
k=True -> TypeError: …got True; expected an integer
k=2.0 -> TypeError: …got float; expected an integer
k=None -> TypeError: …got NoneType; expected an integer
query=ones(5) -> ValueError: …shape (5,) has 1 axis; expected (..., Hi, Lq, D)
query=ones((3, 4, 5), int) -> TypeError: …got dtype int64; expected float16
key=ones(5) -> ValueError: …shape (5,) has 1 axis; expected (..., Lk, D)
key=ones((6, 4)) -> ValueError: …shape (6, 4) does not match query's head_dim 5;
    expected (..., Lk, 5)
key=ones((3, 6, 5)) -> ValueError: …batch axes (3,) of shape (3, 6, 5) do not broadcast
    with (2,)
key=ones((1,) * 30 + (6, 5)) -> ValueError: …got 32 axes; expected at most 31
weights=ones((4, 3)) -> ValueError: …shape (4, 3) does not match query's 3 heads and
    length 4; expected (..., 3, 4)
weights=ones(4) -> ValueError: …shape (4,) has 1 axis; expected (..., Hi, Lq)
weights=None -> TypeError: …got NoneType
is_causal=1 -> TypeError: …got int; expected True or False
is_causal=True -> ValueError: query_offset: None with 4 queries and 6 keys is ambiguous,
    and is_causal depends on it; pass 0 (query 0 at key 0) or Lk - Lq = 2
query_offset=2**60 -> ValueError: …got 1152921504606846976; expected values between
query_offset=ones(2) -> TypeError: …dtype float64; expected integers
key_lengths=7 -> ValueError: …got 7; expected 0 to Lk = 6
key_ranges=ones((4, 3), int) -> ValueError: …got shape (4, 3); expected (..., 4, 2)
attn_mask=ones((4, 5), bool) -> ValueError: …shape (4, 5) does not broadcast to
    (..., 4, 6); expected that, or 1 on an axis
attn_mask=ones((3, 4, 6), bool) -> ValueError: …batch axes (3,) of shape (3, 4, 6) do
    not broadcast with (2,)
attn_mask=ones((4, 6), int) -> TypeError: …got dtype int64; expected bool
num_threads=0 -> ValueError: …got 0; expected an integer from 1 to 1024
""",
    globals(),
)


def test_more_keys_than_int32_counts():
    key = np.broadcast_to(np.float32(1), (2**31, 5))
    with pytest.raises(ValueError, match="key: got 2147483648 keys; expected at most"):
        relpos.indexer_top_k(**GOOD | {"key": key})


def kernel_call(**changes):
    """A call of the kernel itself."""
    arrays = {
        "query": np.ones((2, 3, 4, 5)),
        "key": np.ones((2, 6, 5)),
        "weights": np.ones((2, 3, 4)),
        "ranges": np.tile(np.int64([0, 6]), (2, 4, 1)),
        "mask": None,
        "keys": np.empty((2, 4, 3), np.int32),
        "threads": 1,
    }
    kernels().indexer_top_k(*(arrays | changes).values())


WRONG_FOR_THE_KERNEL = {
    "query is no array": {"query": [1.0]},
    "query of integers": {"query": np.ones((2, 3, 4, 5), int)},
    "query without heads": {"query": np.ones((4, 5))},
    "key of float32": {"key": np.ones((2, 6, 5), np.float32)},
    "key of 16 bits": {"key": np.ones((2, 6, 5), np.float16)},
    "key of another batch": {"key": np.ones((3, 6, 5))},
    "key of other columns": {"key": np.ones((2, 6, 4))},
    "swapped weights": {"weights": np.ones((2, 3, 4), ">f8")},
    "ranges of int32": {"ranges": np.ones((2, 4, 2), np.int32)},
    "ranges of three": {"ranges": np.ones((2, 4, 3), np.int64)},
    "mask of integers": {"mask": np.ones((2, 4, 6), int)},
    "mask of other keys": {"mask": np.ones((2, 4, 5), bool)},
    "keys of int64": {"keys": np.empty((2, 4, 3), np.int64)},
    "more keys than there are": {"keys": np.empty((2, 4, 7), np.int32)},
    "keys that share memory": {
        "keys": np.lib.stride_tricks.as_strided(
            np.empty(3, np.int32), (2, 4, 3), (0, 0, 4)
        )
    },
    "read-only keys": {"keys": np.broadcast_to(np.int32(0), (2, 4, 3))},
    "no thread": {"threads": 0},
}


@pytest.mark.parametrize("wrong", WRONG_FOR_THE_KERNEL)
def test_the_kernel_refuses_what_it_could_not_read(wrong):
    kernel_call()
    with pytest.raises((TypeError, ValueError), match="indexer_top_k: "):
        kernel_call(**WRONG_FOR_THE_KERNEL[wrong])


def test_the_kernel_refuses_keys_in_the_memory_of_another_array():
    ranges = np.tile(np.int64([0, 6]), (2, 4, 1))
    with pytest.raises(ValueError, match="keys overlaps another array"):
        kernel_call(ranges=ranges, keys=ranges.view(np.int32)[..., :3])
