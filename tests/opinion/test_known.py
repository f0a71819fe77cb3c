"""Each other row of the table of differences, by the kernels with arguments changed."""

from __future__ import annotations

import numpy as np
import pytest

import relpos

H, L, D = 3, 9, 8
RNG = np.random.default_rng(11)
Q, K, V = RNG.standard_normal((3, 2, H, L, D))
KEYS, QUERIES, VALUES = RNG.standard_normal((3, 2 * L - 1, D))
U, W = RNG.standard_normal((2, H, D))
BIAS = RNG.standard_normal((H, 2 * L - 1))
OWN = RNG.standard_normal((2, H, L, D))
STEPS = -RNG.random((H, L))
MASK = RNG.random((L, L)) < 0.6
RANGES = np.array([[max(i - 2, 0), L - i // 2] for i in range(L)])
EVERY = {"query": Q, "key": K, "value": V}
TABLES = {**EVERY, "rel_key": KEYS, "rel_query": QUERIES, "rel_value": VALUES}
XL = {**EVERY, "rel_key": KEYS, "pos_bias_u": U, "pos_bias_v": W}
BIASED = {**EVERY, "rel_bias": BIAS}
CAUSAL = {**EVERY, "is_causal": True}
FEW = {**EVERY, "query": Q[..., :4, :], "rel_key": KEYS, "query_offset": 2}
ROOT = D**-0.5

#: What the call is, what is different in it, and of which the inputs cannot tell it.
CASES = {
    "queries_share_table": (TABLES, {"rel_query": KEYS}),
    "scale_head_dim": ({**TABLES, "scale": 0.2}, {"scale": ROOT}),
    "scale_three": (TABLES, {"scale": (3 * D) ** -0.5}),
    "position_scaled": (
        {**EVERY, "rel_key": KEYS, "position_query": OWN},
        {"position_query": OWN * ROOT},
    ),
    "value_table_reversed": (TABLES, {"rel_value": VALUES[::-1]}),
    "query_table_reversed": (TABLES, {"rel_query": QUERIES[::-1]}),
    "scaled_twice": ({**EVERY, "scale": 0.3}, {"scale": 0.09}),
    "scale_inverted": (EVERY, {"scale": 1 / ROOT}),
    "u_is_v": (XL, {"pos_bias_v": U}),
    "u_v_unscaled": (XL, {"pos_bias_u": U / ROOT, "pos_bias_v": W / ROOT}),
    "bias_negated": (BIASED, {"rel_bias": -BIAS}),
    "position_negated": (XL, {"rel_key": -KEYS}),
    "no_rel_key": (TABLES, {"rel_key": None}),
    "no_rel_query": (TABLES, {"rel_query": None}),
    "no_pos_bias_u": (XL, {"pos_bias_u": None}),
    "no_pos_bias_v": (XL, {"pos_bias_v": None}),
    "no_log_decay": ({**CAUSAL, "log_decay": STEPS}, {"log_decay": None}),
    "no_is_causal": (CAUSAL, {"is_causal": False}),
    "no_window": ({**EVERY, "window": (2, 1)}, {"window": None}),
    "no_key_lengths": ({**EVERY, "key_lengths": [7, 5]}, {"key_lengths": None}),
    "no_key_ranges": ({**EVERY, "key_ranges": RANGES}, {"key_ranges": None}),
    "no_attn_mask": ({**EVERY, "attn_mask": MASK}, {"attn_mask": None}),
    "mask_transposed": ({**EVERY, "attn_mask": MASK}, {"attn_mask": MASK.T}),
    "offset_0": (FEW, {"query_offset": 0}),
    "offset_end": (FEW, {"query_offset": L - 4}),
    "causal_untold": (BIASED, {"is_causal": True}),
    "causal_strict": (CAUSAL, {"attn_mask": np.tri(L, L, -1, bool)}),
    "causal_sees_next": (
        CAUSAL,
        {"is_causal": False, "attn_mask": np.tri(L, L, 1, bool)},
    ),
    "causal_backwards": (
        CAUSAL,
        {"is_causal": False, "attn_mask": np.tri(L, L, dtype=bool).T},
    ),
    "window_wider": ({**EVERY, "window": (2, 1)}, {"window": (3, 2)}),
    "query_minus_key": (
        {**EVERY, "rel_key": KEYS[: 2 * L - 2], "min_relative_position": 1 - L},
        {"rel_key": KEYS[: 2 * L - 2][::-1], "min_relative_position": 2 - L},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_arguments_changed(name):
    call, changes = CASES[name]
    changed = {n: x for n, x in {**call, **changes}.items() if x is not None}
    found = relpos.diagnose(relpos.attention(**changed), **call)
    assert found.differences == (name,), found.verdict
    assert found.error < 1e-14


TURNED = {
    "rotary_inverse": {"inverse": True},
    "rotary_base": {"base": 5e5},
    "no_magnitude": {"magnitude": None},
    "rotary_pairs": {"interleaved": True},
}


@pytest.mark.parametrize("name", TURNED)
def test_options_of_rotary_changed(name):
    call = {"magnitude": 1.5} if name == "no_magnitude" else {}
    options = {n: x for n, x in {**call, **TURNED[name]}.items() if x is not None}
    q, k = (relpos.apply_rotary(x, **options) for x in (Q, K))
    out = relpos.attention(q, k, V)
    found = relpos.diagnose(out, **EVERY, **call, scheme="rotary")
    assert found.differences == (name,), found.verdict


@pytest.mark.parametrize(
    ("name", "turned"),
    [
        ("rotary_one_side", [True, False, False]),
        ("rotary_one_side", [False, True, False]),
        ("rotary_values", [True, True, True]),
        ("no_rotary", [False, False, False]),
    ],
)
def test_who_is_turned(name, turned):
    arrays = [
        relpos.apply_rotary(x) if turn else x
        for x, turn in zip((Q, K, V), turned, strict=True)
    ]
    found = relpos.diagnose(relpos.attention(*arrays), **EVERY, scheme="rotary")
    assert found.differences == (name,)


def test_keys_counted_from_the_query():
    at = np.arange(L - 4, L)
    q, k = relpos.apply_rotary(Q[..., :4, :], at), relpos.apply_rotary(K, offset=L - 4)
    few = {**EVERY, "query": Q[..., :4, :], "query_offset": L - 4}
    found = relpos.diagnose(relpos.attention(q, k, V), **few, scheme="rotary")
    assert found.differences == ("offset_0",)
    assert found.verdict.endswith("cannot tell it from: rotary_keys_moved")


def test_wrapped_scores_of_a_reversed_table():
    """A table reversed, and what the shift leaves above the diagonal."""
    table = KEYS[:L]
    scores = (Q @ K.swapaxes(-1, -2) + relpos.rel_shift(Q @ table[::-1].T)) * ROOT
    found = relpos.diagnose(scores, Q, K, scheme="music", rel_key=table)
    assert found.differences == ("unmasked_wrapped", "table_reversed")
    assert found.kind == "convention"
    assert "those of the next query" in found.verdict


def test_scores_with_another_mask_of_their_own_are_not_before_the_mask():
    scores = relpos.scores(Q, K, attn_mask=np.tri(L, L, 2, bool))
    found = relpos.diagnose(scores, Q, K, is_causal=True)
    assert found.kind == "unknown"
    scores = relpos.scores(Q, K, attn_mask=np.tri(L, L, 1, bool))
    found = relpos.diagnose(scores, Q, K, is_causal=True)
    assert found.differences == ("causal_sees_next",)


def test_the_better_of_two_that_a_coarse_dtype_allows():
    table = KEYS.copy()
    table[0] = table[1] + 0.05 * table[0]
    clipped = np.concatenate([[table[1]], table[1:-1], [table[-2]]])
    table[-1] = table[-2] + 0.05 * table[-1]
    out = relpos.attention(**{**EVERY, "rel_key": clipped}).astype(np.float16)
    found = relpos.diagnose(out, **{**EVERY, "rel_key": table})
    assert found.differences == ("clip_one_early",)


def test_a_constant_is_something_to_sinks():
    scores = relpos.scores(Q, K) + np.arange(L)[:, None]
    assert relpos.diagnose(scores, Q, K).differences == ("constant_in_rows",)
    assert relpos.diagnose(scores, Q, K, sinks=np.ones(H)).kind == "unknown"


def test_a_mask_of_large_finite_numbers_is_not_what_errors_are_beside():
    mask = np.where(MASK, 0.0, -1e9)
    call = {"query": Q, "key": K, "rel_bias": BIAS, "attn_mask": mask}
    right = relpos.scores(**call)
    assert relpos.diagnose(right, **call).kind == "same"
    reversed_bias = relpos.scores(**{**call, "rel_bias": BIAS[:, ::-1]})
    assert relpos.diagnose(reversed_bias, **call).differences == ("table_reversed",)
    near = right + 1e-3 * RNG.standard_normal(right.shape)
    assert relpos.diagnose(near, **call).kind == "unknown"
    out = relpos.attention(**call, value=V)
    assert relpos.diagnose(out * 1.001, **call, value=V).kind == "unknown"
    assert relpos.diagnose(np.where(MASK, right, -np.inf), **call).kind == "same"
