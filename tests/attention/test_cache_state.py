"""KVCache: what it keeps after errors, integers of any kind, what it hands out."""

from __future__ import annotations

import numpy as np
import pytest
from problems import normal
from state import state_of
from tolerances import assert_bitwise

import relpos

H, D = 2, 8
#: A view of little memory whose copy fits into no memory.
HUGE = np.broadcast_to(np.zeros((H, 1, D)), (H, 2**46, D))


def rows(n, *batch, seed=0):
    return normal(np.random.default_rng(seed), *batch, H, n, D)


def test_tokens_after_a_memory_error_are_not_lost():
    cache, other = relpos.KVCache(), relpos.KVCache()
    for kept in (cache, other):
        kept.append(rows(2), rows(2))
    before = state_of(cache)
    with pytest.raises(MemoryError):
        cache.append(HUGE, HUGE)
    assert state_of(cache) == before
    for _ in range(3):
        for kept in (cache, other):
            kept.append(rows(1), rows(1))
    assert len(cache) == 5
    assert_bitwise(cache.key, other.key)
    assert_bitwise(cache.value, other.value)


def test_an_empty_cache_recovers_from_a_memory_error():
    cache = relpos.KVCache()
    with pytest.raises(MemoryError):
        cache.append(HUGE, HUGE)
    cache.append(rows(1), rows(1))
    assert_bitwise(cache.key, rows(1))


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("capacity", [0, 100])
@pytest.mark.parametrize("count", [0, 2, 4])
def test_one_length_of_all_items(batch, capacity, count):
    """The tokens past it are not added, whether they fit or not."""
    cache, cut = relpos.KVCache(capacity), relpos.KVCache()
    for step in range(2):
        new = rows(4, *batch, seed=step)
        cache.append(new, 2 * new, lengths=count)
        cut.append(new[..., :count, :], 2 * new[..., :count, :])
    assert cache.lengths == cut.lengths == 2 * count
    assert_bitwise(cache.key, cut.key)
    assert_bitwise(cache.value, cut.value)
    query = rows(4, *batch, seed=2)
    got = relpos.attention(query, **cache.arguments(query), is_causal=True)
    if count:
        query = query[..., :count, :]
        want = relpos.attention(query, **cut.arguments(query), is_causal=True)
        assert_bitwise(got[..., :count, :], want)


@pytest.mark.parametrize("lengths", [None, 2, [2, 3]])
def test_writing_into_what_is_handed_out_changes_nothing(lengths):
    cache = relpos.KVCache()
    cache.append(rows(4, 2), rows(4, 2), lengths)
    before = state_of(cache)
    found = cache.arguments(rows(4, 2))
    found |= {"lengths": cache.lengths, "key itself": cache.key, "value": cache.value}
    found["positions"] = cache.positions(rows(1, 2))
    arrays = {name: x for name, x in found.items() if isinstance(x, np.ndarray)}
    for array in arrays.values():
        if array.flags.writeable:
            array[...] = 0
    assert state_of(cache) == before
    if isinstance(lengths, list):
        written = {name for name, x in arrays.items() if x.flags.writeable}
        assert written == {"query_offset", "key_lengths", "lengths", "positions"}


@pytest.mark.torch
def test_writing_into_integers_with_tensors_changes_nothing():
    torch = pytest.importorskip("torch")
    cache = relpos.KVCache()
    key = torch.from_numpy(rows(4, 2))
    cache.append(key, key, [2, 3])
    before = state_of(cache)
    for name in ("query_offset", "key_lengths"):
        cache.arguments(key)[name].zero_()
    cache.positions(key).zero_()
    assert state_of(cache) == before


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_as_tensors(dtype):
    torch = pytest.importorskip("torch")
    key = torch.from_numpy(rows(4, 2))
    caches = relpos.KVCache(), relpos.KVCache()
    makes = (lambda x: torch.tensor(x, dtype=getattr(torch, dtype))), np.array
    for cache, kind in zip(caches, makes, strict=True):
        cache.crop(kind(0))
        cache.append(key, key, kind([4, 3]))
        cache.append(key, key, lengths=kind(1))
        cache.crop(kind([4, 2]))
        cache.append(key, key)
        cache.crop(kind(5))
        cache.reorder(kind([1, 0, 1]))
    assert state_of(caches[0]) == state_of(caches[1])
    with pytest.raises(TypeError, match=r"^length: got dtype float32; expected int"):
        caches[0].crop(torch.tensor([1.0]))
    array = relpos.KVCache()
    array.append(rows(4), rows(4))
    with pytest.raises(TypeError, match=r"^length: got a torch Tensor"):
        array.crop(torch.tensor(1))
