"""The oracle: its vectorised form and the definition against the loops, and facts."""

from __future__ import annotations

import dense_oracle
import numpy as np
import oracle
import oracle_positions
import pytest
from problems import TERMS, normal, qkv, terms
from tolerances import (
    assert_bitwise,
    assert_close,
    assert_lse_close,
    assert_results_close,
)

from relpos import reference


def definition(*inputs, **options):
    return reference.attention(*inputs, **options, return_lse=True, return_weights=True)


vectorised = pytest.mark.parametrize("attention", [dense_oracle.attention, definition])


@vectorised
@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("kind", TERMS)
def test_dense_equals_loops(attention, kind, beyond):
    rng = np.random.default_rng(11)
    for lq, lk, offset, causal in [
        (1, 1, 0, False),
        (5, 7, 2, True),
        (6, 3, -3, False),
    ]:
        q, k, v = qkv(rng, (2,), 2, lq, lk, 4, 3, key_heads=1)
        keywords = terms(rng, kind, 2, lq, lk, 4, 3, offset=offset, k=2)
        keywords |= {"beyond": beyond, "enable_gqa": True, "key_lengths": [lk, lk - 1]}
        keywords |= {"attn_mask": normal(rng, 2, 1, lq, lk), "window": (4, None)}
        keywords |= {"is_causal": causal, "dropout_p": 0.25, "rng": 5}
        assert_results_close(
            attention(q, k, v, **keywords), oracle.attention(q, k, v, **keywords)
        )


@vectorised
@pytest.mark.parametrize("source", ["labels", "several", "buckets"])
def test_dense_equals_loops_for_rows_named_outright(attention, source):
    rng = np.random.default_rng(12)
    q, k, v = qkv(rng, (2,), 2, 5, 6, 4)
    rows = {"labels": rng.integers(-1, 5, (2, 5, 6)), "buckets": rng.integers(0, 5, 9)}
    rows["several"] = (
        rng.integers(-1, 5, (2, 5, 6)),
        rng.integers(-1, 5, (1, 6)).astype("int8"),
        rng.integers(-1, 5, (5, 6)),
    )
    called = "labels" if source == "several" else source
    keywords = {"rel_key": normal(rng, 5, 4), "rel_query": normal(rng, 2, 2, 5, 4)}
    keywords |= {"rel_value": normal(rng, 5, 4), "rel_bias": normal(rng, 2, 5)}
    keywords |= {called: rows[source], "query_offset": np.array([1, -2])}
    mask = rng.random((2, 2, 5, 6)) < 0.6
    mask[0, 0, 2] = False
    want = oracle.attention(q, k, v, mask, **keywords)
    assert_results_close(attention(q, k, v, mask, **keywords), want)


def test_philox_known_answers():
    """Vectors published with Random123 (kat_vectors, philox4x32 10)."""
    ones = (0xFFFFFFFF,) * 4
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    cases = [
        ((0,) * 4, 0, "6627e8d5e169c58dbc57ac4c9b00dbd8"),
        (ones, 2**64 - 1, "408f276d41c83b0ea20bc7c66d5451fd"),
        (pi, 0x299F31D0A4093822, "d16cfe0994fdcceb5001e42024126ea1"),
    ]
    for counter, seed, want in cases:
        assert "".join(f"{word:08x}" for word in oracle.philox(counter, seed)) == want
        words = dense_oracle.philox([np.array([word]) for word in counter], seed)[0]
        assert "".join(f"{int(word):08x}" for word in words) == want


def test_complex_step_passes_through():
    """d out / d query along a direction: complex step against central difference."""
    rng = np.random.default_rng(13)
    q, k, v = qkv(rng, (), 2, 4, 4, 3)
    keywords = terms(rng, "everything", 2, 4, 4, 3, k=1)
    direction = normal(rng, *q.shape)
    exact = oracle.attention(q + 1e-30j * direction, k, v, **keywords).out.imag / 1e-30
    ahead = oracle.attention(q + 1e-6 * direction, k, v, **keywords).out
    behind = oracle.attention(q - 1e-6 * direction, k, v, **keywords).out
    assert np.abs(exact - (ahead - behind) / 2e-6).max() < 1e-8


def test_unskew_is_the_adjoint_of_skew():
    rng = np.random.default_rng(14)
    for lq, lk in [(1, 1), (3, 7), (7, 3), (4, 4)]:
        for is_causal, width in [(True, lk), (False, lk + lq - 1)]:
            x, y = normal(rng, 2, lq, width), normal(rng, 2, lq, lk)
            left = np.vdot(oracle_positions.skew(x, is_causal=is_causal), y)
            right = np.vdot(x, oracle_positions.unskew(y, is_causal=is_causal))
            assert abs(left - right) < 1e-12


def test_dense_scores_are_the_logits_of_attention():
    """Hidden nowhere, softmax of the scores is the weights."""
    rng = np.random.default_rng(15)
    q, k, v = qkv(rng, (2,), 2, 3, 5, 4)
    table, (u, w) = normal(rng, 2, 7, 4), normal(rng, 2, 2, 4)
    scores = oracle_positions.transformer_xl_scores(q, k, table, u, w)
    weights = oracle.attention(
        q, k, v, rel_key=table, pos_bias_u=u, pos_bias_v=w,
        query_offset=2, min_relative_position=-4, beyond="zero",
    ).weights  # fmt: skip
    exps = np.exp(scores)
    assert_close(exps / exps.sum(-1, keepdims=True), weights, "forward")


def test_merge_of_two_halves():
    rng = np.random.default_rng(16)
    q, k, v = qkv(rng, (2,), 2, 3, 8, 4)
    whole = oracle.attention(q, k, v)
    left = oracle.attention(q, k[..., :5, :], v[..., :5, :])
    right = oracle.attention(q, k[..., 5:, :], v[..., 5:, :])
    nothing = oracle.attention(q, k, v, np.zeros((3, 8), bool))
    out, lse = oracle.merge(left.out, left.lse, right.out, right.lse)
    assert_close(out, whole.out, "forward")
    assert_lse_close(lse, whole.lse)
    out, lse = oracle.merge(nothing.out, nothing.lse, whole.out, whole.lse)
    assert_bitwise(out, whole.out)
    assert_bitwise(lse, whole.lse)
