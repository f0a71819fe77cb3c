"""Calls of more than 2^31 elements, one for each family of kernels.

Memory of zeros takes no room until it is written: an operand has its true strides, and
takes room for the rows that a test writes. Results take up to 9 GiB. Run them alone::

    python -m pytest --thorough tests/runtime/test_large_calls.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relpos

D = 64
ROWS = 2**25 + 65
#: Rows that are not zero, the last two of them beyond 2^31 bytes and 2^31 elements.
FAR = [3, 2**24 + 7, ROWS - 1]
GIB = 2**30


@pytest.fixture(autouse=True)
def memory(request):
    """Skip where 20 GiB are not free, and without --thorough."""
    if not request.config.getoption("--thorough"):
        pytest.skip("calls of 2^31 elements run with --thorough alone")
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    sizes = dict(line.split(":") for line in lines)
    available = int(sizes["MemAvailable"].split()[0]) * 1024
    if available < 20 * GIB:
        pytest.skip(f"{available / GIB:.1f} GiB are free; 20 are needed")


def zeros(*shape, dtype=np.float32):
    """An array of more than 2^31 elements, whose memory is not written yet."""
    array = np.zeros(shape, dtype)
    assert array.size > 2**31
    return array


def rng_rows(count, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal((count, D)).astype(dtype)


def close(got, want, tolerance=2e-6):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max() > 0


@pytest.fixture
def far_rows():
    """A query, and keys and values of which all rows but three are zero.

    A logit of 64 against 0 leaves the others a weight of 5e-21 in sum.
    """
    query = np.ones((1, 1, D), np.float32)
    key, value = zeros(1, ROWS, D), zeros(1, ROWS, D)
    key[0, FAR], value[0, FAR] = 1 + rng_rows(3) / 64, rng_rows(3, seed=1)
    return query, key, value


def test_rows(far_rows):
    query, key, value = far_rows
    out = relpos.attention(query, key, value, scale=1.0)
    close(out, relpos.attention(query, key[:, FAR], value[:, FAR], scale=1.0))


def test_rows_backward(far_rows):
    """Values have one column, as there is no room for two gradients of this size."""
    query, key, value = far_rows
    value, grad_out = value[..., :1], rng_rows(1, seed=2)[None, :, :1]
    found, wanted = (
        relpos.attention(*given, scale=1.0, return_context=True).context
        for given in ((query, key, value), (query, key[:, FAR], value[:, FAR]))
    )
    gradients = found.backward(grad_out, wrt=["key"])
    want = wanted.backward(grad_out, wrt=["key"])
    close(gradients.key[:, FAR], want.key)
    others = np.arange(0, ROWS, 2**16 + 1)
    assert np.abs(gradients.key[:, np.setdiff1d(others, FAR)]).max() < 1e-20


NEAR = 256  # keys that the queries of a window can see


def test_tiles_of_far_keys():
    """Queries of a window at the end of the keys; packed, these take 8 GiB."""
    key, value = zeros(1, ROWS, D), zeros(1, ROWS, D)
    key[0, -NEAR:], value[0, -NEAR:] = rng_rows(NEAR, seed=1), rng_rows(NEAR, seed=2)
    query, window = rng_rows(40)[None], (100, 0)
    out = relpos.attention(query, key, value, query_offset=ROWS - 40, window=window)
    near = query, key[:, -NEAR:], value[:, -NEAR:]
    want = relpos.attention(*near, query_offset=NEAR - 40, window=window)
    close(out, want)


def test_tiles_backward():
    """A gradient of more than 2^31 elements; only the last item sees keys."""
    query = np.broadcast_to(rng_rows(40), (33, 1, 40, D))
    key, value = zeros(33, 1, 2**20, D), np.zeros((33, 1, 2**20, 1), np.float32)
    key[-1, 0, :NEAR] = rng_rows(NEAR, seed=1)
    value[-1, 0, :NEAR] = rng_rows(NEAR, seed=2)[:, :1]
    lengths = np.zeros(33, np.int64)
    lengths[-1] = NEAR
    call = relpos.attention(query, key, value, key_lengths=lengths, return_context=True)
    grad_out = np.broadcast_to(rng_rows(40, seed=3)[:, :1], (33, 1, 40, 1))
    gradient = call.context.backward(grad_out, wrt=["key"]).key
    near = query[-1], key[-1, :, :NEAR], value[-1, :, :NEAR]
    wanted = relpos.attention(*near, return_context=True)
    close(gradient[-1, :, :NEAR], wanted.context.backward(grad_out[-1]).key)
    assert not gradient[:-1, 0, :: 2**10 + 1].any()


def test_tiles_of_many_queries():
    """A result of more than 2^31 elements, most of which see no key."""
    query, last = zeros(33, 1, 2**20, D, dtype=np.float16), rng_rows(50, np.float16)
    query[-1, 0, -50:] = last
    key, value = rng_rows(70, np.float16, seed=1), rng_rows(70, np.float16, seed=2)
    lengths = np.zeros(33, np.int64)
    lengths[-1] = 70
    out = relpos.attention(query, key[None], value[None], key_lengths=lengths)
    assert out.dtype == np.float16
    want = relpos.attention(last[None], key[None], value[None])
    close(out[-1, :, -50:], want, 2e-3)
    assert not out[:-1, 0, :: 2**10 + 1].any()


def test_graph(far_rows):
    query, key, value = far_rows
    pointers, indices = np.array([0, 3]), np.array(FAR)
    out = relpos.graph_attention(query, key, value, pointers, indices)
    want = relpos.attention(query, key[:, FAR], value[:, FAR])
    close(out, want)


def test_rotary():
    x = zeros(33, 2**20, D, dtype=np.float16)
    x[-1, -50:] = rng_rows(50, np.float16)
    out = relpos.apply_rotary(x)
    want = relpos.apply_rotary(x[-1, -50:], np.arange(2**20 - 50, 2**20))
    assert np.array_equal(out[-1, -50:], want)
    assert not out[:-1, :: 2**10 + 1].any()


def test_learned_of_a_large_table():
    table = zeros(ROWS, D)
    table[FAR] = rng_rows(3)
    found = relpos.learned(table, [FAR[2], 0, FAR[1], FAR[0]])
    want = np.stack([table[FAR[2]], np.zeros(D), table[FAR[1]], table[FAR[0]]])
    assert np.array_equal(found, want)


def test_learned_of_many_positions():
    table = rng_rows(2)
    positions = np.zeros(ROWS, np.int64)
    positions[FAR] = 1
    out = relpos.learned(table, positions)
    assert np.array_equal(out[FAR], table[[1, 1, 1]])
    assert (out[:: 2**16 + 1] == table[0]).all()


def test_convolution():
    x, weight = zeros(33, 2**20, D), rng_rows(3, seed=1).T
    x[-1, -50:] = rng_rows(50)
    out = relpos.conv_encoding(x, weight)
    want = relpos.conv_encoding(x[-1:, -60:], weight)
    close(out[-1, -50:], want[0, -50:])
    assert np.array_equal(out[:-1, :: 2**10 + 1], x[:-1, :: 2**10 + 1])


def test_scores():
    length = 46_400
    query, key, table = (rng_rows(n, seed=n)[:, :8] for n in (length, length + 1, 5))
    scores = relpos.ufuncs.shaw_scores(query, key[:length], table, 1.0, 0)
    assert scores.size > 2**31
    chosen = np.r_[0:40, length // 2 : length // 2 + 40, length - 40 : length]
    row = np.clip(chosen - chosen[:, None], -2, 2) + 2
    sums = key[chosen].astype(np.float64) + table[row]
    want = np.einsum("qd,qkd->qk", query[chosen].astype(np.float64), sums)
    close(scores[np.ix_(chosen, chosen)], want)
