"""Ranges of keys, packed documents, and masks that show or hide whole tiles."""

from __future__ import annotations

import itertools

import dense_oracle
import numpy as np
import pytest
from refusals import check, every_row
from tolerances import assert_bitwise

import relpos
from relpos._settings import kernels

LENGTHS = [(5, 9), (40, 70), (150, 700)]
PATHS = ["tiles", "band", "rows"]


def assert_near(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


def assert_same_bits(got, want):
    for x, y in zip(got, want, strict=True):
        assert_bitwise(x, y)


def problem(rng, lq, lk, path="tiles", dtype=np.float64, batch=(2,)):
    shapes = {"query": (3, lq, 8), "key": (3, lk, 8), "value": (3, lk, 5)}
    given = {
        n: rng.standard_normal((*batch, *s)).astype(dtype) for n, s in shapes.items()
    }
    given["query_offset"] = lk - lq
    if path == "band":
        given["rel_key"] = rng.standard_normal((2 * lk + 1, 8)).astype(dtype)
        given["rel_value"] = rng.standard_normal((2 * lk + 1, 5)).astype(dtype)
    if path == "rows":
        given["labels"] = rng.integers(-1, 7, (lq, lk))
        given["rel_query"] = rng.standard_normal((7, 8)).astype(dtype)
    return given


def differentiate(keywords, **more):
    result = relpos.attention(
        **keywords, **more, return_lse=True, return_weights=True, return_context=True
    )
    rng = np.random.default_rng(1)
    grads = result.context.backward(
        rng.standard_normal(result.out.shape),
        grad_lse=rng.standard_normal(result.lse.shape),
    )
    return [
        result.out,
        result.lse,
        result.weights,
        *(g for g in grads if g is not None),
    ]


def as_mask(ranges, lk):
    begin, end = np.moveaxis(np.asarray(ranges)[..., None, :, :], -1, 0)
    j = np.arange(lk)
    return (j >= begin[..., None]) & (j < end[..., None])


def random_ranges(rng, lq, lk):
    """Rows at random, some empty, some beyond the keys, some inside out."""
    return rng.integers(-4, lk + 5, (2, lq, 2))


def documents(rng, lq, lk):
    """As a decoder meets them: the queries are the last tokens of packed documents."""
    ids = np.sort(rng.integers(0, 5, (2, lk)))
    return relpos.segment_ranges(ids[:, lk - lq :], ids)


def prefix(rng, lq, lk):
    """A prefix that all see, then causal: ends never fall."""
    at = np.arange(lq) + lk - lq
    return np.stack([np.zeros(lq, int), np.maximum(at + 1, lk // 2)], -1)


#: What callers write for no key, for every key, and by mistake.
ENDS = [2**63 - 1, 2**63 - 2, 2**63 - 15, 2**63 - 31, 2**63 - 64, 2**62, 2**32, 2**31]
ENDS += [-(2**63), -(2**63) + 1, -(2**63) + 40, -(2**62), -(2**32), -(2**31), -1, 0, 4]


def hostile_ranges(rng, lq, lk):
    """Rows at random; one of two has an end, or both, that no position can have."""
    ranges = random_ranges(rng, lq, lk)
    return np.where(
        rng.random(ranges.shape) < 0.4, rng.choice(ENDS, ranges.shape), ranges
    )


RANGES = [random_ranges, hostile_ranges, documents, prefix]


@pytest.mark.parametrize("make", RANGES)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("lq", "lk"), LENGTHS)
def test_ranges_are_the_mask_they_say(isa, rng, lq, lk, path, make):
    given, ranges = problem(rng, lq, lk, path), make(rng, lq, lk)
    masked = differentiate(given, attn_mask=as_mask(ranges, lk))
    for mine, dense in zip(
        differentiate(given, key_ranges=ranges), masked, strict=True
    ):
        assert_near(mine, dense)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("lq", "lk"), [(1, 700), (12, 6), (33, 6), (127, 6), (50, 600)]
)
def test_any_numbers_are_cut_to_the_keys(isa, rng, path, dtype, lq, lk):
    given, ranges = problem(rng, lq, lk, path, dtype), hostile_ranges(rng, lq, lk)
    kept = ranges.copy()
    mine = differentiate(given, key_ranges=ranges)
    assert_same_bits(mine, differentiate(given, key_ranges=ranges.clip(0, lk)))
    assert (ranges == kept).all()


@pytest.mark.sanitized
@pytest.mark.parametrize("begin", ENDS)
@pytest.mark.parametrize("end", [0, 6, 2**63 - 1, -(2**63)])
def test_rows_without_a_key_beside_rows_with_one(isa, begin, end):
    lq, lk = 40, 6
    given = problem(np.random.default_rng(0), lq, lk, dtype=np.float32)
    ranges = np.tile([0, lk], (lq, 1))
    ranges[::7] = begin, end
    mine = relpos.attention(**given, key_ranges=ranges)
    want = relpos.attention(**given, attn_mask=as_mask(ranges, lk))
    assert_bitwise(mine, want)


def test_the_kernels_cut_ranges_that_they_read_in_place(isa, rng):
    """Shared by queries, strided, and read-only."""
    lq, lk = 33, 9
    arguments = problem(rng, lq, lk, batch=())
    far = np.full((lq, 5), 2**63 - 1)
    far[::2, 0], far[::2, 3] = -(2**63), lk
    for ranges in (far[:, ::3], far[:1, ::3], far[1:2, ::3], far[::-1, 3::-3]):
        ranges.flags.writeable = False
        out = np.full((3, lq, 5), np.nan)
        offset = np.array(arguments["query_offset"])
        tokens = {name: arguments[name] for name in ("query", "key", "value")}
        settings = {"scale": 8**-0.5, "num_threads": 2, "query_offset": offset}
        call = {**tokens, **settings, "key_ranges": ranges, "out": out}
        kernels().attention_forward(call)
        want = relpos.attention(**arguments, attn_mask=as_mask(ranges, lk))
        assert_near(out, want)


@pytest.mark.parametrize("side", [2**60, 2**61 - 2, 2**61, 2**62, 2**63 - 1, 10**30])
@pytest.mark.parametrize("offset", [0, 3, 2**60 - 1, 1 - 2**60])
@pytest.mark.parametrize("path", PATHS)
def test_a_window_may_be_of_any_size(isa, rng, path, side, offset):
    given = problem(rng, 40, 70, path) | {"query_offset": offset}
    for window in ((side, None), (None, side), (side, side), (side, 5), (5, side)):
        mine = differentiate(given, window=window)
        r = np.arange(70) - np.arange(40)[:, None] - offset
        left, right = (10**30 if x is None else x for x in window)
        seen = [[-left <= x <= right for x in row] for row in r.tolist()]
        masked = differentiate(given, attn_mask=np.array(seen))
        for x, y in zip(mine, masked, strict=True):
            assert_near(x, y)


@pytest.mark.parametrize("path", PATHS)
def test_ranges_combine_with_every_rule(rng, path):
    lq, lk = 60, 130
    given, ranges = problem(rng, lq, lk, path), random_ranges(rng, lq, lk)
    rules = {
        "is_causal": True,
        "window": (70, None),
        "key_lengths": [lk, 90],
        "attn_mask": rng.random((lq, lk)) < 0.8,
    }
    out, lse, weights, *_ = differentiate(given, key_ranges=ranges, **rules)
    want = dense_oracle.attention(**given, key_ranges=ranges, **rules)
    for mine, dense in zip((out, lse, weights), want, strict=True):
        assert_near(mine, dense)


def causal_ranges(lq, lk):
    return np.stack([np.zeros(lq, int), np.arange(lq) + lk - lq + 1], -1)


SAYS = {
    "causal": (lambda lq, lk: {"is_causal": True}, causal_ranges),
    "window": (
        lambda lq, lk: {"window": (33, 20)},
        lambda lq, lk: np.arange(lq)[:, None] + lk - lq + np.array([-33, 21]),
    ),
    "lengths": (
        lambda lq, lk: {"key_lengths": lk - 3},
        lambda lq, lk: np.broadcast_to([0, lk - 3], (lq, 2)),
    ),
}


@pytest.mark.parametrize("rule", SAYS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ranges_that_say_a_rule_give_its_bits(isa, rng, path, dtype, rule):
    """The bits depend on which keys are visible, not on how the call says it."""
    lq, lk = 100, 650
    by_rule, by_range = SAYS[rule]
    given = problem(rng, lq, lk, path, dtype)
    mine = differentiate(given, key_ranges=by_range(lq, lk))
    assert_same_bits(mine, differentiate(given, **by_rule(lq, lk)))


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_causal_mask_gives_the_bits_of_is_causal(isa, rng, dtype, floating):
    lq, lk = 200, 700
    given = problem(rng, lq, lk, dtype=dtype)
    mask = as_mask(causal_ranges(lq, lk), lk)
    if floating:
        mask = np.where(mask, np.float32(0), np.float32(-np.inf))
    want = differentiate(given, is_causal=True)
    assert_same_bits(differentiate(given, attn_mask=mask), want)


def blocks(rng, lq, lk):
    """Whole blocks shown and hidden, some of them in the middle of a row of blocks."""
    coarse = rng.random((-(-lq // 32), -(-lk // 64))) < 0.5
    return coarse.repeat(32, 0).repeat(64, 1)[:lq, :lk]


def mixed(rng, lq, lk):
    return blocks(rng, lq, lk) ^ (rng.random((lq, lk)) < 0.001)


def padding(rng, lq, lk):
    return np.arange(lk) < lk // 3


MASKS = [blocks, mixed, padding, lambda rng, lq, lk: np.zeros((lq, lk), bool)]


@pytest.mark.parametrize("make", MASKS)
@pytest.mark.parametrize(
    "kind", ["bool", "strided bool", "float32", "float64", "added"]
)
@pytest.mark.parametrize("path", PATHS[:2])
def test_masks_of_whole_tiles_are_the_definition(isa, rng, make, kind, path):
    lq, lk = 150, 1100
    given, seen = problem(rng, lq, lk, path), make(rng, lq, lk)
    mask = seen
    if kind == "strided bool":
        mask = np.repeat(seen, 3, axis=-1)[..., ::3]
    if kind in ("float32", "float64"):
        mask = np.where(seen, 0.0, -np.inf).astype(kind)
    if kind == "added":
        mask = np.where(seen, rng.standard_normal(seen.shape), -np.inf)
    out, lse, weights, *grads = differentiate(given, attn_mask=mask)
    want = dense_oracle.attention(**given, attn_mask=mask)
    for mine, dense in zip((out, lse, weights), want, strict=True):
        assert_near(mine, dense)
    assert all(np.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("axes", [(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_masks_repeated_along_any_axis_give_the_same_bits(rng, axes):
    given = problem(rng, 100, 300)
    mask = rng.random((2, 3, 100, 300)) < 0.6
    for axis in axes:
        mask = mask.take([0], axis=axis)
    whole = np.broadcast_to(mask, (2, 3, 100, 300)).copy()
    want = differentiate(given, attn_mask=whole)
    assert_same_bits(differentiate(given, attn_mask=mask), want)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("lq", [6, 90])
def test_what_no_query_sees_may_be_nan(rng, path, lq):
    lk = 400
    given = problem(rng, lq, lk, path)
    ranges = np.broadcast_to([100, 300], (lq, 2))
    clean = differentiate(given, key_ranges=ranges)
    for name in ("key", "value"):
        given[name] = given[name].copy()
        given[name][..., :100, :] = np.nan
        given[name][..., 300:, :] = np.inf
    assert_same_bits(differentiate(given, key_ranges=ranges), clean)


def test_packed_documents_are_separate_calls(rng):
    lengths = [3, 70, 1, 200, 64]
    ids = np.repeat(np.arange(len(lengths)), lengths)
    q, k, v = rng.standard_normal((3, 2, len(ids), 8))
    table = rng.standard_normal((9, 8))
    ranges = relpos.segment_ranges(ids)
    packed = relpos.attention(q, k, v, rel_key=table, key_ranges=ranges, is_causal=True)
    starts = np.cumsum([0, *lengths])
    for start, end in itertools.pairwise(starts):
        part = (x[:, start:end] for x in (q, k, v))
        alone = relpos.attention(*part, rel_key=table, is_causal=True)
        assert_near(packed[:, start:end], alone)


def test_beyond_raise_counts_ranges(rng):
    q, k, v = rng.standard_normal((3, 1, 6, 4))
    table = rng.standard_normal((5, 4))  # -2 .. 2
    near = np.clip(np.arange(6)[:, None] + [-2, 3], 0, 6)
    relpos.attention(q, k, v, rel_key=table, beyond="raise", key_ranges=near)
    near[3, 1] = 7  # past the keys: still only key 5
    relpos.attention(q, k, v, rel_key=table, beyond="raise", key_ranges=near)
    near[1, 1] = 5
    with pytest.raises(IndexError, match=r"run from -2 to 3.*key_ranges"):
        relpos.attention(q, k, v, rel_key=table, beyond="raise", key_ranges=near)


@pytest.mark.parametrize("ends", [(0, -(2**63)), (2**63 - 1, -(2**63))])
@pytest.mark.parametrize("term", ["rel_key", "log_decay"])
def test_ranges_of_the_lowest_integers_show_no_key(rng, ends, term):
    """One less than such an end is no int64."""
    q, k, v = rng.standard_normal((3, 1, 6, 4))
    terms = {"rel_key": {"rel_key": np.ones((5, 4)), "beyond": "raise"}}
    terms["log_decay"] = {"log_decay": np.full((1, 6), -0.5), "query_offset": 0}
    out = relpos.attention(q, k, v, **terms[term], key_ranges=np.tile(ends, (6, 1)))
    assert not out.any()


SEGMENTS = [
    ([0, 0, 1, 3, 3], None),
    ([1, 2, 2, 9], [0, 1, 1, 9, 9, 9]),
    ([], [0, 1]),
    ([[0, 1], [1, 1]], [[0, 0, 1]]),
]


@pytest.mark.parametrize(("queries", "keys"), SEGMENTS)
def test_segment_ranges_are_the_count(queries, keys):
    queries = np.array(queries, int)
    mine = relpos.segment_ranges(queries, keys)
    assert_bitwise(mine, relpos.reference.segment_ranges(queries, keys))
    keys = queries if keys is None else np.array(keys)
    same = queries[..., :, None] == keys[..., None, :]
    assert_bitwise(as_mask(mine, keys.shape[-1])[..., 0, :, :], same)


BAD_SEGMENTS = """
segment_ranges([0.0, 1.0]) -> TypeError: query_segments: …float64; expected integers
segment_ranges("text") -> TypeError: query_segments: …expected integers
segment_ranges([0], [True]) -> TypeError: key_segments: …bool; expected integers
segment_ranges(3) -> ValueError: query_segments: …expected (..., L)
segment_ranges([0, 2, 1]) -> ValueError: query_segments: 1 comes after 2 at …[2]; …asc
segment_ranges([0], [[0, 1], [5, 4]]) -> ValueError: key_segments: 4 comes after 5 at
    …[1, 1]
segment_ranges([[0]] * 2, [[0]] * 3) -> ValueError: key_segments: …(3, 1) do not broad
"""


@every_row(BAD_SEGMENTS)
def test_bad_segments(row):
    check(row, vars(relpos))


def test_segments_of_many_axes_are_refused_by_name():
    axes = 40 if int(np.__version__.partition(".")[0]) > 1 else 32
    segments = np.full((1,) * (axes - 1) + (3,), None)
    with pytest.raises(TypeError, match=r"^query_segments: got dtype object; expected"):
        relpos.segment_ranges(segments)
