"""No positions at all: what attention then knows about order, with and without a mask.

Without a mask a permutation of the tokens only permutes the outputs, so nothing of
their order is left. A causal mask breaks that: how many tokens a query sees tells where
it is.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from problems import DTYPES, normal
from tolerances import assert_close, largest, normwise

import relpos

both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def tokens(dtype, length=12, seed=0):
    rng = np.random.default_rng(seed)
    return [normal(rng, 2, 3, length, 8).astype(dtype) for _ in range(3)]


@both_dtypes
@pytest.mark.parametrize("length", [2, 5, 12, 300])
def test_without_a_mask_a_permutation_permutes_the_outputs(isa, dtype, length):
    query, key, value = tokens(dtype, length)
    grad_out = normal(np.random.default_rng(1), *query.shape).astype(dtype)
    result = relpos.attention(query, key, value, return_lse=True, return_context=True)
    gradients = result.context.backward(grad_out)
    order = np.random.default_rng(2).permutation(length)
    moved = relpos.attention(
        *(x[..., order, :] for x in (query, key, value)),
        return_lse=True,
        return_context=True,
    )
    assert_close(moved.out, result.out[..., order, :], "same_formula", largest)
    assert_close(moved.lse, result.lse[..., order], "same_formula", largest)
    found = moved.context.backward(grad_out[..., order, :])
    for name in ("query", "key", "value"):
        want = getattr(gradients, name)[..., order, :]
        assert_close(getattr(found, name), want, "same_formula", largest)


@both_dtypes
def test_under_a_causal_mask_every_permutation_shows(isa, dtype):
    query, key, value = tokens(dtype, 4)
    want = relpos.attention(query, key, value, is_causal=True)
    for order in itertools.permutations(range(4)):
        if order == (0, 1, 2, 3):
            continue
        moved = (x[..., order, :] for x in (query, key, value))
        got = relpos.attention(*moved, is_causal=True)
        assert normwise(got, want[..., order, :]) > 0.1


def test_under_a_causal_mask_equal_tokens_tell_their_position(isa):
    """A first token and copies of another: what comes out counts the copies."""
    length = 9
    query = np.zeros((1, length, 2))
    value = np.eye(length)[None, :, :1]  # only the first token's value is not 0
    got = relpos.attention(query, query, value, is_causal=True)
    assert_close(got[0, :, 0], 1 / np.arange(1.0, length + 1), "forward")
    both = relpos.attention(query, query, value)
    assert_close(both, np.full((1, length, 1), 1 / length), "forward")


@both_dtypes
def test_positions_break_it_without_a_mask(isa, dtype):
    """Or the first tests would pass for a library that drops its position terms."""
    query, key, value = tokens(dtype)
    table = normal(np.random.default_rng(4), 23, 8).astype(dtype)
    order = np.arange(12)[::-1]
    want = relpos.attention(query, key, value, rel_key=table)
    moved = (x[..., order, :] for x in (query, key, value))
    got = relpos.attention(*moved, rel_key=table)
    assert normwise(got, want[..., order, :]) > 0.1
