"""relpos.diagnose: differences in some heads, items, queries, keys or terms alone."""

from __future__ import annotations

import numpy as np
import pytest
from mistakes.biases import BIAS, KEYS, VALUES
from mistakes.named import AT, S, check_named, position, seen
from mistakes.rotations import attend, rotated
from mistakes.row import DISTANCE, RNG, B, D, H, K, L, Q, V, softmax

import relpos

FUTURE = DISTANCE > 0
MASKED = np.where(FUTURE, -np.inf, S)
DENSE, PAST = BIAS[:, DISTANCE + L - 1], KEYS[:L]
U, W = RNG.standard_normal((2, H, D))
SINKS, LENGTHS = RNG.standard_normal(H), np.array([5, 9])
DECAY = -np.abs(RNG.standard_normal((B, H, L)))
OF_KEYS = position(Q, KEYS[DISTANCE + L - 1])
XL = {"scheme": "transformer_xl_attention", "rel_key": KEYS}
ROTARY = {"scheme": "rotary"}
MUSIC = {"scheme": "relative_global_attention", "rel_key": PAST, "is_causal": True}


def with_sink_column(first):
    """Return weights over all keys and the sink, which is first or last."""
    column = np.broadcast_to(SINKS[:, None, None], (B, H, L, 1))
    return softmax(np.concatenate([column, S] if first else [S, column], axis=-1))


def in_some(axis, index, wrong, right):
    """Take results of a mistake at an index of an axis, and right ones elsewhere."""
    mixed = right.copy()
    place = (slice(None),) * axis + (index,)
    mixed[place] = wrong[place]
    return mixed


RIGHT, TURNED = softmax(S) @ V, attend(rotated(Q, AT), rotated(K, AT), V)
PARTS = {
    "no_rotary in heads 2 and 3": (in_some(1, [2, 3], RIGHT, TURNED), ROTARY),
    "no_is_causal in item 1 of the batch": (
        in_some(0, [1], RIGHT, softmax(MASKED) @ V),
        {"is_causal": True},
    ),
    "rotary_one_side in query 8": (
        in_some(2, [8], attend(Q, rotated(K, AT), V), TURNED),
        ROTARY,
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PARTS)
def test_the_verdict_says_which_part(name):
    difference, _, where = name.partition(" ")
    mine, call = PARTS[name]
    diagnosis = relpos.diagnose(mine, Q, K, V, **call)
    assert diagnosis.kind == "mistake" and diagnosis.differences == (difference,)
    assert f", {where} alone (" in diagnosis.verdict and diagnosis.error < 1e-12


@pytest.mark.parametrize("seed", range(2))
def test_noise_of_16_bits_is_no_part(seed):
    """Rounded scores differ in some queries more than in others."""
    q, k, v = np.random.default_rng(seed).standard_normal((3, 2, 3, L, D))
    q, k, v = (np.float16(x) for x in (12 * q, k, v))
    scores = np.float16((q @ k.swapaxes(-1, -2)) * np.float16(D**-0.5))
    mine = np.float16(softmax(np.float32(scores))) @ v
    diagnosis = relpos.diagnose(mine, q, k, v)
    assert diagnosis.kind == "cannot tell", diagnosis.verdict


def xl(u, w):
    scores = (Q + u[:, None]) @ K.swapaxes(-1, -2)
    scores = scores + position(Q + w[:, None], KEYS[DISTANCE + L - 1])
    return softmax(scores / np.sqrt(D)) @ V


def rotated_from_2(x):
    """Rotate columns 2 to 5 of 8."""
    x, angles = x.copy(), AT[:, None] * 10000.0 ** (-np.arange(0, 4, 2) / 4)
    a, b = x[..., 2:4].copy(), x[..., 4:6].copy()
    x[..., 2:4] = a * np.cos(angles) - b * np.sin(angles)
    x[..., 4:6] = b * np.cos(angles) + a * np.sin(angles)
    return x


def padded_by_row():
    x = np.concatenate([np.zeros((B, H, 1, L)), Q @ PAST.T], axis=-2)
    scores = MASKED + x.reshape(B, H, L, L + 1)[..., 1:] / np.sqrt(D)
    return softmax(scores) @ V


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def values_one_later():
    weights = softmax(S + OF_KEYS / np.sqrt(D))
    rows = VALUES[np.clip(DISTANCE + L, 0, 2 * L - 2)]
    return weights @ V + np.einsum("bhij,ijd->bhid", weights, rows)


LAST = {"sinks": SINKS}
BIASED = {"rel_bias": BIAS}
#: The difference, words of the verdict, the results and the call.
CASES = [
    ("sink_rule", "the weight of the next one", with_sink_column(False)[..., 1:], LAST),
    (
        "sink_rule",
        "the weight of the one before",
        with_sink_column(True)[..., :-1],
        LAST,
    ),
    (
        "sink_rule",
        "on the first key",
        with_sink_column(False)[..., :-1]
        + (AT == 0) * with_sink_column(False)[..., -1:],
        LAST,
    ),
    ("term_multiplied", "the bias", softmax(S * DENSE), BIASED),
    (
        "term_multiplied",
        "the numbers of the mask",
        softmax(S * DENSE),
        {"attn_mask": DENSE},
    ),
    (
        "added_after_softmax",
        "what is hidden set to 0 then",
        np.where(FUTURE, 0, softmax(MASKED) + DENSE),
        {**BIASED, "is_causal": True},
    ),
    ("heads_merged", "the sum of the results", (softmax(S) @ V).sum(axis=1), {}),
    (
        "rotary_columns",
        "other columns",
        attend(rotated_from_2(Q), rotated_from_2(K), V),
        {**ROTARY, "rotary_dim": 4},
    ),
    ("shift_padded_by_row", "a row of padding", padded_by_row(), MUSIC),
    (
        "rows_by_other_rule",
        "key plus query",
        softmax(S + BIAS[:, AT + AT[:, None]]),
        BIASED,
    ),
    (
        "one_table_moved",
        "after the right one, in rel_value",
        values_one_later(),
        {"rel_key": KEYS, "rel_value": VALUES},
    ),
    ("u_v_negated", "u and v", xl(-U, -W), {**XL, "pos_bias_u": U, "pos_bias_v": W}),
    (
        "window_with_holes",
        "up to its own key",
        seen((AT[:, None] // 3 == AT // 3) & ~FUTURE),
        {"window": (2, 0)},
    ),
    (
        "window_with_holes",
        "dilated",
        seen((DISTANCE <= 0) & (DISTANCE >= -4) & (DISTANCE % 2 == 0)),
        {"window": (2, 0)},
    ),
    (
        "visible_end_fewer",
        "one key fewer",
        seen(LENGTHS[:, None, None, None] - 1 > AT),
        {"key_lengths": LENGTHS},
    ),
    ("keys_left_out", "the last 4 keys", seen(AT < 5), {}),
    ("keys_left_out", "the first key left out", seen(AT > 0), {}),
    (
        "softmax_in_chunks",
        "of the others, added",
        np.concatenate([softmax(S[..., :4]), softmax(S[..., 4:])], axis=-1),
        {},
    ),
    ("weights_multiplied", "times 1.11111", softmax(S) / 0.9, {}),
    (
        "operands_normalised",
        "divided by their length",
        softmax(unit(Q) @ unit(K).swapaxes(-1, -2) / np.sqrt(D)),
        {},
    ),
    ("residual_added", "the queries added", RIGHT + Q, {}),
    (
        "other_decay",
        "each key alone",
        softmax(MASKED + DECAY[..., None, :]),
        {"log_decay": DECAY, "is_causal": True},
    ),
]


# ---- terms, positions and bases ------------------------------------------------------

NEW = {**ROTARY, "query": Q[..., 5:, :], "query_offset": 5}
LONG = RNG.standard_normal((14, D))
FIRE = {
    **dict(zip(("w1", "b1"), RNG.standard_normal((2, 6)), strict=True)),
    "w2": RNG.standard_normal((H, 6)),
    "b2": RNG.standard_normal(H),
    "c": 0.7,
    "threshold": 4.0,
    "scheme": "fire_attention",
    "is_causal": True,
}
POWERS = -np.arange(0, D, 2) / D


def by_base(x, base, at=AT):
    return rotated(x, at, base**POWERS)


def with_cache(old):
    """Attend with new queries to keys of which the first five are rotated otherwise."""
    keys = np.concatenate([old[..., :5, :], rotated(K, AT)[..., 5:, :]], axis=-2)
    return attend(rotated(Q[..., 5:, :], AT[5:]), keys, V)


def with_term(term):
    return softmax(S + term / np.sqrt(D)) @ V


def with_values(order):
    weights = softmax(S + OF_KEYS / np.sqrt(D))
    rows = VALUES[DISTANCE + L - 1]
    return weights @ V + order(np.einsum("bhij,ijd->bhid", weights, rows))


def fire(number, rectified=True):
    x = number[..., None] * FIRE["w1"] + FIRE["b1"]
    x = np.maximum(x, 0) if rectified else x
    return softmax(MASKED + np.moveaxis(x @ FIRE["w2"].T + FIRE["b2"], -1, 0)) @ V


def psi(d):
    return np.log(0.7 * d + 1)


FAR, AWAY = np.maximum(AT[:, None], 4), np.abs(DISTANCE)
NUMBER = psi(AWAY) / (psi(FAR) + 1e-6)
ROWS_OF_LONG = LONG[np.clip(DISTANCE + L - 1, 0, L - 1)]
WITH_V = np.einsum("hd,ijd->hij", W, KEYS[DISTANCE + L - 1])
UV = {**XL, "pos_bias_u": U, "pos_bias_v": W}
TERMS = [
    ("rotary_cached_differ", "", with_cache(by_base(K, 20000.0)), NEW),
    (
        "rotary_cached_differ",
        "",
        with_cache(relpos.apply_rotary(K, interleaved=True)),
        NEW,
    ),
    (
        "rotary_base_other",
        "1.2345e+06, not 10000",
        attend(by_base(Q, 1234500.0), by_base(K, 1234500.0), V),
        ROTARY,
    ),
    ("term_mixed", "of head 0 for all", with_term(OF_KEYS[:, :1]), {"rel_key": KEYS}),
    (
        "term_mixed",
        "(H, B)",
        with_term(OF_KEYS.reshape(H, B, L, L).swapaxes(0, 1)),
        {"rel_key": KEYS},
    ),
    (
        "term_mixed",
        "rel_value",
        with_values(lambda x: x[:, ::-1]),
        {"rel_key": KEYS, "rel_value": VALUES},
    ),
    (
        "rows_moved",
        "5 rows before",
        softmax(MASKED + position(Q, ROWS_OF_LONG) / np.sqrt(D)) @ V,
        {**MUSIC, "rel_key": LONG},
    ),
    (
        "visible_prefix",
        "first 3 keys visible to all queries",
        seen(~FUTURE | (AT < 3)),
        {"is_causal": True},
    ),
    (
        "visible_prefix",
        "first 2 keys visible to all later",
        seen(~FUTURE & ((DISTANCE >= -2) | (AT < 2))),
        {"window": (2, 0)},
    ),
    ("results_moved", "rolled by 1", np.roll(RIGHT, 1, axis=-2), {}),
    (
        "term_factor",
        "the bias times 2.82843",
        softmax(S + DENSE * np.sqrt(D)) @ V,
        BIASED,
    ),
    (
        "term_factor",
        "the content term left out",
        softmax(OF_KEYS / np.sqrt(D)) @ V,
        {"rel_key": KEYS},
    ),
    ("query_factors", "1.1, 1.39", softmax(S * np.log(AT + 2)[:, None]) @ V, {}),
    (
        "u_v_added",
        "",
        softmax(((Q + (U + W)[:, None]) @ K.swapaxes(-1, -2) + OF_KEYS) / np.sqrt(D))
        @ V,
        UV,
    ),
    (
        "term_factor",
        "the position term left out",
        softmax(((Q + U[:, None]) @ K.swapaxes(-1, -2) + WITH_V) / np.sqrt(D)) @ V,
        UV,
    ),
    ("fire_rule", "without the logarithm", fire(0.7 * AWAY / (0.7 * FAR + 1e-6)), FIRE),
    ("fire_rule", "the number of keys", fire(psi(AWAY) / (psi(L) + 1e-6)), FIRE),
    ("fire_rule", "without its relu", fire(NUMBER, rectified=False), FIRE),
    (
        "operands_mixed",
        "keys for the values",
        softmax(K @ V.swapaxes(-1, -2) / np.sqrt(D)) @ K,
        {},
    ),
]


@pytest.mark.few(4)
@pytest.mark.parametrize(("difference", "words", "mine", "call"), [*CASES, *TERMS])
def test_named_with_what_to_change(difference, words, mine, call):
    if mine.shape == S.shape:  # weights
        mine = mine @ V
    check_named(difference, words, mine, call)


def test_what_is_right_of_fire():
    assert relpos.diagnose(fire(NUMBER), Q, K, V, **FIRE).kind == "same"
