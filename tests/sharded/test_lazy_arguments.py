"""Arguments of relpos.sharded of which a call knows shape and dtype, not numbers."""

from __future__ import annotations

import numpy as np
import pytest

import relpos

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


def test_chunks_of_nothing(x):
    x = x.reshape(1, 2, LK, 4)[:, :, :9]
    chunks = ((1, 0), (0, 1, 0, 1), (4, 0, 5), (4,))
    lazy = da.from_array(x, chunks=chunks)
    result = sharded.attention(lazy, lazy, lazy, return_context=True)
    want = relpos.attention(x, x, x, return_context=True)
    gradients = [r.context.backward(x).key for r in (result, want)]
    np.testing.assert_allclose(result.out.compute(scheduler="sync"), want.out)
    np.testing.assert_allclose(gradients[0].compute(scheduler="sync"), gradients[1])
