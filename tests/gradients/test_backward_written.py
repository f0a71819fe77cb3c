"""Gradients of query, key and value are written whole, whatever their memory holds."""

from __future__ import annotations

import numpy as np
import pytest
from problems import qkv
from tolerances import assert_bitwise

import relpos
from relpos._attention import gradients as backwards

LENGTHS = (40, 300)  # of queries and keys
SEEN = {
    "all": {},
    "by some queries": {"is_causal": True, "query_offset": -20},
    "by none": {"is_causal": True, "query_offset": -100},
    "of one item": {"key_lengths": np.array([0, 9])},
    "near": {"window": (3, 2), "query_offset": 100},
    "labelled": {"labels": np.arange(300)[None] % 3 - 1, "rel_query": np.ones((2, 8))},
}


def filled(shape, dtype):
    """Memory as `empty` may return it."""
    return np.full(shape, np.nan, dtype)


@pytest.mark.parametrize("seen", SEEN)
def test_gradients_of_tokens_are_written_whole(isa, monkeypatch, seen):
    rng = np.random.default_rng(8)
    q, k, v = qkv(rng, (2,), 4, *LENGTHS, 8, 6, key_heads=2)
    result = relpos.attention(
        q, k, v, enable_gqa=True, return_context=True, **SEEN[seen]
    )
    want = result.context.backward(np.ones_like(result.out))
    monkeypatch.setattr(backwards, "empty", filled)
    got = result.context.backward(np.ones_like(result.out))
    for name in ("query", "key", "value"):
        assert np.isfinite(getattr(want, name)).all()
        assert_bitwise(getattr(got, name), getattr(want, name))


@pytest.mark.parametrize("lengths", [(3, 0), (0, 3)])
def test_without_pairs_gradients_are_zeros(isa, monkeypatch, lengths):
    q, k = np.ones((2, lengths[0], 4)), np.ones((2, lengths[1], 4))
    monkeypatch.setattr(backwards, "empty", None)
    result = relpos.attention(q, k, k, return_context=True)
    for gradient in result.context.backward(np.ones_like(result.out)):
        assert gradient is None or not gradient.any()


def test_gradients_of_a_graph_are_zeros_at_first(isa, monkeypatch):
    monkeypatch.setattr(backwards, "empty", None)
    x = np.ones((1, 3, 4))
    result = relpos.graph_attention(x, x, x, [0, 1, 1, 1], [2], return_context=True)
    gradients = result.context.backward(np.ones_like(result.out))
    assert gradients.value.any() and not gradients.value[0, :2].any()


@pytest.mark.parametrize(("heads", "keys"), [(0, 2), (0, 0), (2, 2)])
def test_keys_that_no_query_reads_have_gradients_of_0(monkeypatch, heads, keys):
    monkeypatch.setattr(backwards, "empty", filled)
    queries = 30 if heads == 0 else 0
    query, (key, value) = np.zeros((1, heads, queries, 4)), np.ones((2, 1, keys, 30, 4))
    options = {"enable_gqa": heads != keys, "query_offset": 0, "return_context": True}
    context = relpos.attention(query, key, value, **options).context
    found = context.backward(np.zeros((1, heads, queries, 4)))
    assert not found.key.any() and not found.value.any()
