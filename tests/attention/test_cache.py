"""KVCache: a decode step by step is one call over the whole sequence."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from bad_kinds import Tensor, ones
from problems import normal, qkv
from refusals import check, every_row
from tolerances import assert_bitwise, assert_close

import relpos
from relpos import recipes

B, H, L, D, DV = 2, 4, 13, 8, 5
STEPS = (5, 1, 3, 1, 1, 2)  # tokens at a time: a prompt, single ones, drafts


def shaw(rng):
    tables = {"rel_key": normal(rng, 7, D), "rel_value": normal(rng, 7, DV)}
    return relpos.shaw_attention, tables | {"is_causal": True}


def music(rng):
    return relpos.relative_global_attention, {"rel_key": normal(rng, H, L, D)}


def transformer_xl(rng):
    terms = {"rel_key": normal(rng, H, 2 * L - 1, D), "is_causal": True}
    biases = {"pos_bias_u": normal(rng, H, D), "pos_bias_v": normal(rng, H, D)}
    return relpos.transformer_xl_attention, {
        **terms, **biases, "min_relative_position": 1 - L
    }  # fmt: skip


def alibi(rng):
    bias = relpos.alibi_bias(H, L, dtype=np.float64)
    return relpos.attention, {"rel_bias": bias, "is_causal": True}


def t5(rng):
    terms = recipes.t5(normal(rng, 32, H), bidirectional=False, max_distance=20)
    return relpos.attention, terms | {"is_causal": True}


def grouped(rng):
    return relpos.attention, {"is_causal": True, "window": (4, 0)}


SCHEMES = {f.__name__: f for f in (shaw, music, transformer_xl, alibi, t5, grouped)}


def steps(sizes=STEPS):
    ends = np.cumsum(sizes)
    return [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]


@pytest.fixture(params=SCHEMES)
def decode(request):
    """(scheme, its keywords, query, key, value) of a sequence of L tokens."""
    rng = np.random.default_rng(1)
    function, terms = SCHEMES[request.param](rng)
    return function, terms, *qkv(rng, (B,), H, L, L, D, DV)


def test_a_decode_is_one_call(decode):
    """Another kernel computes few queries and sums in another order."""
    function, terms, q, k, v = decode
    whole = function(q, k, v, **terms)
    cache = relpos.KVCache()
    for at in steps():
        cache.append(k[:, :, at], v[:, :, at])
        got = function(q[:, :, at], **cache.arguments(q[:, :, at]), **terms)
        assert_close(got, whole[:, :, at], "same_formula")
    assert len(cache) == cache.lengths == L
    assert_bitwise(cache.key, k)
    assert_bitwise(cache.value, v)


def test_the_bits_are_those_of_arrays_put_together(decode):
    """The cache's views change nothing, nor does its first capacity."""
    function, terms, q, k, v = decode
    small, large = relpos.KVCache(), relpos.KVCache(capacity=100)
    for at in steps():
        offset, end = at.start, at.stop
        want = function(
            q[:, :, at], k[:, :, :end], v[:, :, :end], query_offset=offset, **terms
        )
        for cache in (small, large):
            cache.append(k[:, :, at], v[:, :, at])
            got = function(q[:, :, at], **cache.arguments(q[:, :, at]), **terms)
            assert_bitwise(got, want)


def test_rejected_drafts_leave_nothing(decode):
    """Four drafted tokens, one of them kept, then the right ones."""
    function, terms, q, k, v = decode
    whole = function(q, k, v, **terms)
    cache = relpos.KVCache()
    cache.append(k[:, :, :6], v[:, :, :6])
    drafts = [x[:, :, 6:10].copy() for x in (q, k, v)]
    for x in drafts:
        x[:, :, 1:] = np.nan  # all but the first are wrong
    cache.append(*drafts[1:])
    got = function(drafts[0], **cache.arguments(drafts[0]), **terms)
    assert_close(got[:, :, :1], whole[:, :, 6:7], "same_formula")
    cache.crop(7)
    assert len(cache) == 7
    cache.append(k[:, :, 7:], v[:, :, 7:])
    got = function(q[:, :, 7:], **cache.arguments(q[:, :, 7:]), **terms)
    assert_close(got, whole[:, :, 7:], "same_formula")


def test_items_with_lengths_of_their_own(decode):
    """Prompts of 3 and 6 tokens, crops to other lengths, and each item is its own."""
    function, terms, q, k, v = decode
    cache = relpos.KVCache()
    lengths = np.array([3, 6])
    padded = [x[:, :, :6].copy() for x in (q, k, v)]
    for x in padded:
        x[0, :, 3:] = np.inf  # padding
    cache.append(*padded[1:], lengths=lengths)
    with np.errstate(all="ignore"):
        got = function(padded[0], **cache.arguments(padded[0]), **terms)
    whole = function(q, k, v, **terms)
    for b, n in enumerate(lengths):
        assert_close(got[b, :, :n], whole[b, :, :n], "same_formula")
    cache.crop([2, 6])
    assert cache.lengths.tolist() == [2, 6]
    assert cache.positions(q[:, :, :2]).tolist() == [[[2, 3]], [[6, 7]]]
    ahead = [np.stack([x[0, :, 2:6], x[1, :, 6:10]]) for x in (q, k, v)]
    cache.append(*ahead[1:], lengths=4)
    got = function(ahead[0], **cache.arguments(ahead[0]), **terms)
    for b, n in enumerate((2, 6)):
        assert_close(got[b], whole[b, :, n : n + 4], "same_formula")
        assert_bitwise(cache.key[b, :, : n + 4], k[b, :, : n + 4])


@pytest.mark.parametrize("ragged", [False, True])
def test_rotary_keys_are_rotated_at_their_positions(ragged):
    rng = np.random.default_rng(2)
    q, k, v = qkv(rng, (B,), H, L, L, D, DV)
    rotated = relpos.apply_rotary(q), relpos.apply_rotary(k)
    whole = relpos.attention(*rotated, v, is_causal=True)
    cache = relpos.KVCache()
    if ragged:  # item 1 begins with a token that is thrown away
        cache.append(k[:, :, :1], v[:, :, :1], lengths=[0, 1])
        cache.crop([0, 0])
    for at in steps():
        places = cache.positions(q[:, :, at])
        assert places.shape == ((B, 1) if ragged else ()) + (at.stop - at.start,)
        query, key = (relpos.apply_rotary(x[:, :, at], places) for x in (q, k))
        cache.append(key, v[:, :, at])
        got = relpos.attention(query, **cache.arguments(query), is_causal=True)
        assert_close(got, whole[:, :, at], "same_formula")


def test_fewer_key_heads_and_no_batch_axis():
    rng = np.random.default_rng(3)
    q, k, v = normal(rng, H, L, D), normal(rng, 2, L, D), normal(rng, 2, L, DV)
    terms = {"enable_gqa": True, "is_causal": True, "rel_bias": normal(rng, H, 25)}
    whole = relpos.attention(q, k, v, **terms)
    cache = relpos.KVCache(2)
    for at in steps():
        cache.append(k[:, at], v[:, at])
        got = relpos.attention(q[:, at], **cache.arguments(q[:, at]), **terms)
        assert_close(got, whole[:, at], "same_formula")


def test_beams_go_on_from_their_own():
    rng = np.random.default_rng(4)
    k, v = normal(rng, 2, H, 5, D), normal(rng, 2, H, 5, DV)
    cache = relpos.KVCache()
    cache.append(k, v, lengths=[5, 3])
    cache.reorder([1, 0, 1])
    assert cache.lengths.tolist() == [3, 5, 3]
    assert_bitwise(cache.key[1], k[0])
    assert_bitwise(cache.value[2, :, :3], v[1, :, :3])
    more = normal(rng, 3, H, 1, D), normal(rng, 3, H, 1, DV)
    cache.append(*more)
    for b, n in enumerate((3, 5, 3)):
        assert_bitwise(cache.key[b, :, n], more[0][b, :, 0])
    query = normal(rng, 3, H, 1, D)
    got = relpos.attention(query, **cache.arguments(query), rel_bias=np.arange(25.0))
    own = (
        np.concatenate([k[1][:, :3], more[0][2]], 1),
        np.concatenate([v[1][:, :3], more[1][2]], 1),
    )
    want = relpos.attention(query[2], *own, query_offset=3, rel_bias=np.arange(25.0))
    assert_close(got[2], want, "same_formula")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_goes_its_own_way(copied):
    cache = relpos.KVCache(8)
    cache.append(ones(1, 2, 3), ones(1, 2, 3))
    other = copied(cache)
    cache.append(2 * ones(1, 1, 3), ones(1, 1, 3))
    other.append(3 * ones(1, 2, 3), ones(1, 2, 3))
    assert cache.key[0, :, 0].tolist() == [1, 1, 2]
    assert other.key[0, :, 0].tolist() == [1, 1, 3, 3]


def test_what_is_appended_is_copied():
    key = ones(1, 2, 3)
    cache = relpos.KVCache()
    cache.append(key, key)
    key[...] = 7
    assert (cache.key == 1).all() and (cache.value == 1).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f4"])
def test_the_dtype_stays(dtype):
    cache = relpos.KVCache()
    for _ in range(3):
        cache.append(ones(1, 1, 4, dtype=dtype), ones(1, 1, 2, dtype=dtype))
    assert cache.key.dtype == cache.value.dtype == np.dtype(dtype).newbyteorder("=")


def test_a_token_is_copied_less_than_twice():
    """Capacity doubles: of 1000 appends ten make a new buffer."""
    cache, token = relpos.KVCache(), ones(1, 1, 4)
    buffers = []
    for _ in range(1000):
        cache.append(token, token)
        if not any(cache.key.base is known for known in buffers):
            buffers.append(cache.key.base)
    assert sum(len(buffer[0]) for buffer in buffers[:-1]) < 2 * 1000
    assert len(buffers) <= 11


# ---- tensors -------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("lengths", [None, [4, 2]])
def test_tensors_are_kept_as_they_are(dtype, lengths):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    k, v = normal(rng, 2, H, 4, D), normal(rng, 2, H, 4, DV)
    key, value = (torch.tensor(x, dtype=getattr(torch, dtype)) for x in (k, v))
    tensors, arrays = relpos.KVCache(), relpos.KVCache()
    tensors.append(key, value, lengths)
    arrays.append(key.float().numpy(), value.float().numpy(), lengths)
    for cache in (tensors, arrays):
        cache.reorder([1, 1, 0])
        cache.crop(2)
    new = key[:, :, :1].repeat(2, 1, 1, 1)[:3], value[:, :, :1].repeat(2, 1, 1, 1)[:3]
    tensors.append(*new)
    arrays.append(*(x.float().numpy() for x in new))
    assert tensors.key.dtype == key.dtype and isinstance(tensors.key, torch.Tensor)
    assert_bitwise(tensors.key.float().numpy(), arrays.key)
    assert_bitwise(tensors.value.float().numpy(), arrays.value)
    got, want = (c.arguments(new[0]) for c in (tensors, arrays))
    assert {*got} == {*want}
    assert np.array_equal(got["query_offset"], want["query_offset"])


@pytest.mark.torch
@pytest.mark.parametrize("lengths", [None, [5, 3]])
def test_a_decode_of_tensors(lengths):
    """By relpos.torch, with rotary positions and a bias, uniform and not."""
    torch = pytest.importorskip("torch")
    functions = pytest.importorskip("relpos.torch")
    rng = np.random.default_rng(6)
    arrays = qkv(rng, (2,), H, L, L, D, DV)
    q, k, v = (torch.tensor(x, dtype=torch.float32) for x in arrays)
    terms = {"is_causal": True, "rel_bias": torch.linspace(-1, 1, 2 * L - 1)}
    rotated = functions.apply_rotary(q), functions.apply_rotary(k)
    whole = functions.attention(*rotated, v, **terms)
    cache = relpos.KVCache()
    for start, stop in ((0, 5), (5, 6), (6, 9)):
        first = [0, 0] if lengths is None or not start else [n - 5 for n in lengths]
        at = [slice(start + f, stop + f) for f in first]
        own = [torch.stack([x[b, :, at[b]] for b in (0, 1)]) for x in (q, k, v)]
        query, key = (functions.apply_rotary(x, cache.positions(x)) for x in own[:2])
        cache.append(key, own[2], lengths if not start else None)
        got = functions.attention(query, **cache.arguments(query), **terms)
        for b in (0, 1):
            n = lengths[b] if lengths and not start else stop - start
            want = whole[b, :, at[b]][:, :n]
            torch.testing.assert_close(got[b, :, :n], want, rtol=1e-5, atol=1e-6)


@pytest.mark.torch
def test_tensors_with_a_gradient_or_of_other_numbers_are_refused():
    torch = pytest.importorskip("torch")
    plain, leaf = torch.ones(1, 1, 4), torch.ones(1, 1, 4, requires_grad=True)
    with pytest.raises(TypeError, match=r"^value: .* gradient.*\.detach\(\)"):
        relpos.KVCache().append(plain, leaf)
    for other in (plain.long(), plain.bool(), plain.to(torch.complex64)):
        with pytest.raises(TypeError, match=r"^key: got torch\..*expected a floating"):
            relpos.KVCache().append(other, plain)


@pytest.mark.torch
def test_tensors_and_arrays_do_not_mix():
    torch = pytest.importorskip("torch")
    tensor, array = torch.ones(1, 1, 4), ones(1, 1, 4, dtype=np.float32)
    cache = relpos.KVCache()
    with pytest.raises(TypeError, match=r"^value: got ndarray, but key is Tensor"):
        cache.append(tensor, array)
    cache.append(array, array)
    with pytest.raises(TypeError, match=r"^key: got Tensor of .* expected ndarray of"):
        cache.append(tensor, tensor)


# ---- bad calls -----------------------------------------------------------------------


def filled():
    cache = relpos.KVCache()
    cache.append(ones(2, H, 3, D), ones(2, H, 3, DV))
    return cache


def token(key=(2, H, 1, D), value=(2, H, 1, DV), **more):
    return {"key": ones(*key), "value": ones(*value), **more}


BAD = """
append(**token(key=(1, D))) -> ValueError: key: shape (1, 8) has 2 axes; expec
append(**token(value=(2, H, 2, DV))) -> ValueError: value: shape …not match key
append(**token(key=(2, H, 1, 9))) -> ValueError: key: got shape (2, 4, 1, 9); expected
    (2, 4, 'n', 8), as before
append(**token(value=(2, H, 1, 6))) -> ValueError: value: got shape …as before
append(**token((3, H, 1, D), (3, H, 1, DV))) -> ValueError: key: got shape (3, 4, 1, 8);
    expected (2, 4, 'n', 8)
append(*(x.astype("f") for x in token().values())) -> TypeError: key: got ndarray of
    float32; expected ndarray of float64, as before
append(**token() | {"key": 3}) -> TypeError: key: got int; expected float16
append(**token(lengths=2)) -> ValueError: lengths: got 2; expected 0 to
append(**token(lengths=[0, -1])) -> ValueError: lengths: got [0, -1]
append(**token(lengths=[1])) -> ValueError: lengths: got shape (1,)
append(**token(lengths=0.5)) -> TypeError: lengths: got float; expected
crop(4) -> ValueError: length: got 4; expected 0 to 3
crop(-1) -> ValueError: length: got -1; expected 0 to 3
crop([3, 4]) -> ValueError: length: got [3, 4]; expected 0 to 3
crop(None) -> TypeError: length: got NoneType; expected integers
reorder([0, 2]) -> IndexError: items: got 0 to 2; expected 0 to 1
reorder([-1]) -> IndexError: items: got -1 to -1; expected 0 to 1
reorder(1) -> ValueError: items: got shape (); expected (items,
reorder([0.5]) -> TypeError: items: got …float64; expected integers
positions(3) -> ValueError: rows: got shape (); expected (..., H
arguments([3.0]) -> ValueError: query: got shape (1,); expected
arguments(ones(2, H, 1, D)) -> ValueError: query: got 1 row, but 3 tokens came with
    the last change; …a row for each
"""


@every_row(BAD)
def test_bad_calls_leave_the_cache_as_it_was(row):
    cache = filled()
    methods = ("append", "crop", "reorder", "positions", "arguments")
    names = {name: getattr(cache, name) for name in methods}
    check(row, names | {"token": token, "H": H, "D": D, "DV": DV})
    assert cache.lengths == 3 and cache.key.shape == (2, H, 3, D)
    cache.append(**token())
    assert len(cache) == 4


def test_queries_after_a_crop_need_an_append():
    cache = filled()
    cache.crop(2)
    with pytest.raises(ValueError, match=r"^query: got 2 rows, but 0 tokens"):
        cache.arguments(ones(2, H, 2, D))


def test_no_tokens_have_no_queries():
    """The first append has none, and a later one."""
    cache, nothing = relpos.KVCache(), ones(2, H, 0, D)
    for before in (0, 3):
        cache.append(nothing, nothing)
        given = cache.arguments(nothing)
        assert given["query_offset"] == given["key"].shape[-2] == before
        assert relpos.attention(nothing, **given).shape == nothing.shape
        with pytest.raises(ValueError, match=r"^query: got 1 row, but 0 tokens"):
            cache.arguments(ones(2, H, 1, D))
        cache.append(ones(2, H, 3, D), ones(2, H, 3, D))


def test_an_empty_cache():
    cache = relpos.KVCache()
    assert len(cache) == cache.lengths == 0 and repr(cache) == "<KVCache of 0 tokens>"
    assert cache.positions(ones(1, 2, 3)).tolist() == [0, 1]
    cache.crop(0)
    for name in ("key", "value"):
        with pytest.raises(ValueError, match=r"^cache: has no tokens yet"):
            getattr(cache, name)
    with pytest.raises(ValueError, match=r"^items: the cache has no batch axis"):
        cache.reorder([0])
    with pytest.raises(ValueError, match=r"^capacity: shape \(1, 576.*488, 4\) has mo"):
        relpos.KVCache(2**59).append(ones(1, 3, 4), ones(1, 3, 4))
    with pytest.raises(ValueError, match=r"^capacity: got -1"):
        relpos.KVCache(-1)
    with pytest.raises(TypeError, match=r"^capacity: got a torch Tensor"):
        relpos.KVCache(Tensor())
