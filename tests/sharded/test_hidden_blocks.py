"""relpos.sharded: hidden blocks have no task, and no bit depends on that."""

from __future__ import annotations

import numpy as np
import pytest

import relpos

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
sharded = pytest.importorskip("relpos.sharded")

B, H, L, D = 3, 2, 40, 4
DOCUMENTS = np.repeat(np.arange(0, L, 20), 20)
PER_QUERY = np.stack([DOCUMENTS, DOCUMENTS + 20], axis=-1)
PER_ITEM = np.array([[[0, 10]], [[30, 30]], [[-5, 99]]])
#: What hides keys, and the tasks of 4 x 4 blocks of each item: one where it sees none.
HIDDEN = {
    "lengths": ({"key_lengths": [0, 12, L]}, 4 + 8 + 16),
    "one length": ({"key_lengths": 10}, 3 * 4),
    "ranges": ({"key_ranges": PER_QUERY}, 3 * 8),
    "ranges of items": ({"key_ranges": PER_ITEM}, 4 + 4 + 16),
    "both": ({"key_ranges": PER_QUERY, "key_lengths": [10, 25, 0]}, 4 + 6 + 4),
    "and a window": (
        {"key_lengths": [0, 12, L], "window": (9, 0), "query_offset": [0, 0, 5]},
        4 + (1 + 2 + 1 + 1) + (2 + 3 + 3 + 2),
    ),
}


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def tasks(array):
    return sum("-part" in str(key[0]) for key in array.dask)


def lazy(rows, batch=1):
    return da.from_array(rows, chunks=(batch, H, 10, D))


def test_a_window_hides_blocks(rng):
    x = da.from_array(rng.standard_normal((1, 100, 4)), chunks=(1, 10, 4))
    out = sharded.attention(x, x, x, window=(5, 0))
    assert tasks(out) == 10 + 9  # its own keys, and those before


def test_weights_change_no_bit_of_the_others(rng):
    """The sinks stay with the last block that the window leaves."""
    x = lazy(rng.standard_normal((B, H, L, D)).astype(np.float32))
    given = {"window": (15, 3), "sinks": rng.standard_normal(H).astype(np.float32)}
    one, two = (
        sharded.attention(x, x, x, **given, return_weights=weights, return_lse=True)
        for weights in (False, True)
    )
    got = dask.compute(one.out, one.lse, two.out, two.lse, scheduler="sync")
    assert np.array_equal(got[0], got[2])
    assert np.array_equal(got[1], got[3])


@pytest.mark.parametrize("hidden", HIDDEN)
def test_lengths_and_ranges_hide_blocks(hidden, rng):
    x = lazy(rng.standard_normal((B, H, L, D)))
    given, wanted = HIDDEN[hidden]
    assert tasks(sharded.attention(x, x, x, **given)) == wanted
    whole = sharded.attention(x, x, x, **given, return_weights=True)
    assert tasks(whole.out) == B * 16  # all have weights to give


def found(rows, keywords, batch=1):
    """out, lse and all gradients."""
    x, names = lazy(rows, batch), ("return_lse", "return_context")
    result = sharded.attention(x, x, x, **keywords, **dict.fromkeys(names, True))
    gradients = result.context.backward(lazy(rows[::-1]), grad_lse=rows[..., 0])
    parts = {"out": result.out, "lse": result.lse, **gradients._asdict()}
    parts = {name: part for name, part in parts.items() if part is not None}
    return dask.compute(parts, scheduler="sync")[0]


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_task_that_is_not_there_changes_no_bit(hidden, sinks, rng):
    """No block knows a lazy length or range, so that all blocks have a task."""
    rows = rng.standard_normal((B, H, L, D))
    given = HIDDEN[hidden][0] | {"rel_key": rng.standard_normal((H, 9, D))}
    given |= {"sinks": rng.standard_normal(H)} if sinks else {}
    unknown = {
        name: da.asarray(value) if name.startswith("key_") else value
        for name, value in given.items()
    }
    want, got = found(rows, unknown), found(rows, given)
    assert want.keys() == got.keys()
    for name, array in want.items():
        assert np.array_equal(got[name], array), name
    for name, array in found(rows, given, batch=2).items():
        if name not in ("rel_key", "sinks"):
            assert np.array_equal(got[name], array), name


@pytest.mark.parametrize("hidden", HIDDEN)
def test_rows_that_see_nothing_are_those_of_the_whole(hidden, rng):
    rows = rng.standard_normal((B, H, L, D))
    given = HIDDEN[hidden][0]
    want = relpos.attention(rows, rows, rows, **given, return_lse=True)
    got = found(rows, given)
    np.testing.assert_allclose(got["out"], want.out, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(got["lse"], want.lse, rtol=1e-13, atol=1e-13)


def test_key_blocks_may_be_cut_anywhere(rng):
    query, key = rng.standard_normal((2, 4, 50, 6)), rng.standard_normal((2, 2, 70, 6))
    blocks = {"key_blocks": rng.random((2, 2, 8, 3)) < 0.6, "block_size": (7, 30)}
    chunked = [da.from_array(x, (1, 2, 20, -1)) for x in (query, key, key)]
    call = {"enable_gqa": True, **blocks}
    want = relpos.attention(query, key, key, **call)
    got = relpos.sharded.attention(*chunked, **call)
    np.testing.assert_allclose(got.compute(), want, atol=1e-12)
    call["key_blocks"] = da.from_array(blocks["key_blocks"], 1)
    got = relpos.sharded.attention(*chunked, **call)
    np.testing.assert_allclose(got.compute(), want, atol=1e-12)


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("dtype", [bool, np.float16, np.float64, "bfloat16"])
@pytest.mark.parametrize("shape", [(70,), (2, 1, 50, 70), (4, 50, 1)])
def test_key_blocks_go_with_a_mask(rng, shape, dtype, is_lazy):
    query, key = rng.standard_normal((2, 4, 50, 6)), rng.standard_normal((2, 2, 70, 6))
    blocks = rng.random((2, 8, 3)) < 0.6
    given = {"enable_gqa": True, "key_blocks": blocks, "block_size": (7, 30)}
    mask = rng.random(shape) < 0.8
    if dtype is not bool:
        kind = (
            pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
        )
        mask = np.where(mask, rng.standard_normal(shape), -np.inf).astype(kind)
    want = relpos.attention(query, key, key, **given, attn_mask=mask)
    chunked = [da.from_array(x, (1, 2, 20, -1)) for x in (query, key, key)]
    if is_lazy:
        mask = da.from_array(mask, 13)
    got = relpos.sharded.attention(*chunked, **given, attn_mask=mask)
    np.testing.assert_allclose(got.compute(), want, atol=1e-12)
