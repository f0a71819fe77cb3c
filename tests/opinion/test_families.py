"""relpos.diagnose: further members of the families of biases, rotary and shifts."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from mistakes.biases import BIAS, BUCKETS, FEW, KEYS, SPAN, VALUES, WEIGHT
from mistakes.named import AT, check_named, position
from mistakes.rotations import FREQUENCIES, attend, rotate_half, rotated
from mistakes.row import DISTANCE, RNG, B, D, H, K, L, Q, V, softmax

import relpos

PAST = KEYS[:L]
POWERS = 10000.0 ** (-np.arange(0, D, 2))
NEW = {"scheme": "rotary", "query": Q[..., 6:, :], "query_offset": 6}
ROTARY = {"scheme": "rotary"}
PART = {"scheme": "rotary", "rotary_dim": 4}
ALIBI = {"rel_bias": relpos.alibi_bias(H, L)}
CAUSAL = {**ALIBI, "is_causal": True}
OF_SIX = RNG.standard_normal((3, 6, L, D))
SIX = dict(zip(("query", "key", "value"), OF_SIX, strict=True))
SIX["rel_bias"] = relpos.alibi_bias(6, L)
T5 = {"rel_bias": WEIGHT, "buckets": BUCKETS}
DEBERTA = {"rel_key": FEW, "buckets": SPAN}
TWO = {"rel_key": KEYS, "rel_value": VALUES}
MUSIC = {"scheme": "relative_global_attention", "rel_key": PAST, "is_causal": True}
CACHED = {"query": Q[..., 5:, :], "query_offset": 5, "rel_bias": BIAS}


def biased(q, k, v, bias, causal=False):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(D) + bias
    return softmax(np.where(DISTANCE > 0, -np.inf, scores) if causal else scores) @ v


# ---- rotary --------------------------------------------------------------------------


def both(rotate):
    """Rotate queries and keys by a function of the array alone."""
    return lambda q, k, v: attend(rotate(q), rotate(k), v)


def by_frequencies(inv_freq):
    return both(lambda x: rotated(x, AT, inv_freq))


def pairs(x, inv_freq, first, second, sign=(-1, 1)):
    angle, out = AT[:, None] * inv_freq, x.copy()
    a, b = x[..., first], x[..., second]
    out[..., first] = a * np.cos(angle) + sign[0] * b * np.sin(angle)
    out[..., second] = b * np.cos(angle) + sign[1] * a * np.sin(angle)
    return out


def at_positions(of_query, of_key=None):
    """Rotate new queries and all keys by positions, by the same if one is given."""
    of_key = of_query if of_key is None else of_key
    return lambda q, k, v: attend(rotated(q, of_query), rotated(k, of_key), v)


def overwritten(x):
    x, half = x.copy(), D // 2
    cos, sin = (f(AT[:, None] * FREQUENCIES) for f in (np.cos, np.sin))
    x[..., :half] = x[..., :half] * cos - x[..., half:] * sin
    x[..., half:] = x[..., half:] * cos + x[..., :half] * sin
    return x


def of_all_columns(x):
    """Rotate halves of each head, by exponents that go on from head to head."""
    inv_freq = 10000.0 ** (-np.arange(0, H * D, 2) / (H * D))
    angles = AT[:, None] * inv_freq
    angles = angles.reshape(L, H, D // 2).swapaxes(0, 1)
    emb = np.concatenate([angles, angles], axis=-1)
    return x * np.cos(emb) + rotate_half(x) * np.sin(emb)


def plain_halves(x):
    halves = np.concatenate([x[..., D // 2 :], x[..., : D // 2]], axis=-1)
    emb = np.tile(AT[:, None] * FREQUENCIES, 2)
    return x * np.cos(emb) + halves * np.sin(emb)


C = np.arange(D // 2)
COSINES = np.cos(AT[:, None] * FREQUENCIES)
HALF = np.float16
ROTATIONS = {
    "sign_left_out": ("rotary_sign", both(plain_halves)),
    "first_column_overwritten": ("rotary_overwritten", both(overwritten)),
    "keys_by_neighbours": (
        "rotary_sides_differ",
        lambda q, k, v: attend(
            rotated(q, AT), relpos.apply_rotary(k, interleaved=True), v
        ),
    ),
    "keys_backwards": (
        "rotary_sides_differ",
        lambda q, k, v: attend(rotated(q, AT), rotated(k, -AT), v),
    ),
    "exponents_from_head_to_head": ("rotary_joined_heads", both(of_all_columns)),
    "exponents_from_1": (
        "rotary_exponent_start",
        by_frequencies(10000.0 ** (-(2 * C + 1) / D)),
    ),
    "exponents_to_1": (
        "rotary_exponent_width",
        by_frequencies(10000.0 ** -np.linspace(0, 1, D // 2)),
    ),
    "no_minus_in_the_exponent": ("rotary_frequencies", by_frequencies(1 / FREQUENCIES)),
    "a_longer_context": (
        "rotary_base_scaled",
        by_frequencies((10000.0 * 4 ** (D / (D - 2))) ** (-2 * C / D)),
    ),
    "the_last_columns": (
        "rotary_columns",
        both(lambda x: pairs(x, POWERS[:2] ** (1 / 4), np.r_[4, 5], np.r_[6, 7])),
        PART,
    ),
    "magnitude_on_queries": (
        "rotary_magnitude_part",
        lambda q, k, v: attend(1.3 * rotated(q, AT), rotated(k, AT), v),
        {**ROTARY, "magnitude": 1.3},
    ),
    "magnitude_on_cosines": (
        "rotary_magnitude_part",
        both(lambda x: rotated(x, AT) + 0.3 * x * np.tile(COSINES, 2)),
        {**ROTARY, "magnitude": 1.3},
    ),
    "other_columns_left_out": (
        "rotary_columns_dropped",
        both(lambda x: rotated(x[..., :4], AT, POWERS[:2] ** (1 / 4))),
        PART,
    ),
    "cosines_in_float16": (
        "rotary_16_bits",
        both(
            lambda x: (
                x * np.tile(np.cos(AT[:, None] * FREQUENCIES).astype(HALF), 2)
                + rotate_half(x)
                * np.tile(np.sin(AT[:, None] * FREQUENCIES).astype(HALF), 2)
            )
        ),
    ),
    "queries_from_1": ("rotary_queries_one_later", at_positions(AT + 1, AT)),
    "positions_over_the_length": ("rotary_positions_scaled", at_positions(AT / L)),
    "keys_interpolated": ("rotary_positions_scaled", at_positions(AT, AT / 2)),
    "degrees": ("rotary_positions_scaled", at_positions(np.deg2rad(AT))),
    "a_table_that_ends": ("rotary_positions_end", at_positions(np.minimum(AT, 5))),
    "new_from_the_length": (
        "rotary_new_moved",
        at_positions(AT[6:] + 3, np.r_[AT[:6], AT[6:] + 3]),
        NEW,
    ),
    "cached_from_1": (
        "rotary_cached_keys_one_later",
        at_positions(AT[6:], np.r_[AT[:6] + 1, AT[6:]]),
        NEW,
    ),
    "new_all_at_the_last": (
        "rotary_new_at_last",
        at_positions([8, 8, 8], np.r_[AT[:6], 8, 8, 8]),
        NEW,
    ),
    "documents": ("rotary_keys_restarted", at_positions(np.r_[AT[:4], AT[:5]])),
    "three_rules": (
        "rotary_positions_mixed",
        at_positions(AT[6:], np.r_[2 * AT[:6], 1, 2, 3]),
        NEW,
    ),
}

# ---- biases and tables ---------------------------------------------------------------


def sloped(slopes, distance=None, causal=False):
    n = -np.abs(DISTANCE) if distance is None else distance
    bias = np.reshape(slopes, (-1, 1, 1)) * n
    return lambda q, k, v: biased(q, k, v, bias, causal)


def bucketed(buckets):
    return (
        lambda q, k, v: softmax(
            q @ k.swapaxes(-1, -2) / np.sqrt(D) + WEIGHT[:, buckets]
        )
        @ v
    )


def spanned(relative):
    rows = FEW[np.clip(relative, -7, 7) + 7]
    return lambda q, k, v: (
        softmax((q @ k.swapaxes(-1, -2) + position(q, rows)) / np.sqrt(D)) @ v
    )


SLOPES, N = relpos.alibi_slopes(H), np.abs(DISTANCE)
BIASES = {
    "slopes_of_half_of_the_heads": (
        "alibi_heads",
        sloped(np.tile(relpos.alibi_slopes(2), 2)),
    ),
    "slopes_backwards": ("alibi_slopes_order", sloped(SLOPES[::-1])),
    "linear_slopes": ("alibi_slopes_rule", sloped((np.arange(H) + 1) / H)),
    "one_slope": ("alibi_slopes_rule", sloped([1.0] * H)),
    "slopes_of_8_heads_for_6": (
        "alibi_heads",
        sloped(2.0 ** -np.arange(1, 7)),
        SIX,
    ),
    "slopes_filled_otherwise": (
        "alibi_slopes_rule",
        sloped(np.r_[relpos.alibi_slopes(4), relpos.alibi_slopes(8)[:5:-1]]),
        SIX,
    ),
    "later_keys_without_bias": (
        "alibi_distance_signed",
        sloped(SLOPES, np.minimum(DISTANCE, 0)),
    ),
    "squares": ("alibi_distance_other", sloped(SLOPES, -(N**2))),
    "causal_and_flipped": ("bias_negated", sloped(SLOPES, N, causal=True), CAUSAL),
    "own_position_with_the_later": (
        "bucket_own_side",
        bucketed(
            relpos.t5_bucket(DISTANCE, num_buckets=12, max_distance=9)
            + 6 * (DISTANCE == 0)
        ),
        T5,
    ),
    "ten_of_twelve_buckets": (
        "bucket_numbers",
        bucketed(relpos.t5_bucket(DISTANCE, num_buckets=10, max_distance=9)),
        T5,
    ),
    "decoder_in_the_encoder": (
        "bucket_sides",
        bucketed(
            relpos.t5_bucket(
                DISTANCE, num_buckets=12, max_distance=9, bidirectional=False
            )
        ),
        T5,
    ),
    "max_position_of_512": (
        "bucket_distance",
        spanned(relpos.deberta_bucket(DISTANCE, bucket_size=8, max_position=512)),
        DEBERTA,
    ),
    "rounded_down": (
        "bucket_rounding",
        spanned(
            np.where(
                N <= 4,
                DISTANCE,
                np.sign(DISTANCE)
                * (4 + np.floor(3 * np.log(np.maximum(N, 4) / 4) / np.log(31 / 4))),
            ).astype(int)
        ),
        DEBERTA,
    ),
    "tables_exchanged": (
        "tables_exchanged",
        lambda q, k, v: relpos.attention(q, k, v, rel_key=VALUES, rel_query=KEYS),
        {"rel_key": KEYS, "rel_query": VALUES},
    ),
    "added_to_the_queries": (
        "key_table_for_query",
        lambda q, k, v: relpos.attention(q, k, v, rel_query=KEYS),
        {"rel_key": KEYS},
    ),
    "added_twice": (
        "table_twice",
        lambda q, k, v: relpos.attention(q, k, v, rel_bias=2 * BIAS),
        {"rel_bias": BIAS},
    ),
    "reshaped_not_transposed": (
        "table_heads",
        lambda q, k, v: relpos.attention(
            q, k, v, rel_bias=BIAS.T.copy().reshape(BIAS.shape)
        ),
        {"rel_bias": BIAS},
    ),
}

# ---- shifts and orders ---------------------------------------------------------------


def music(skew):
    def function(q, k, v):
        scores = (q @ k.swapaxes(-1, -2) + skew(q @ PAST.T)) / np.sqrt(D)
        return softmax(np.where(DISTANCE > 0, -np.inf, scores)) @ v

    return function


def two_sided(q, k, v):
    """Keep the last columns of the shift, not the first."""
    x = np.concatenate([np.zeros((B, H, L, 1)), q @ KEYS.T], axis=-1)
    x = x.reshape(B, H, 2 * L, L)[:, :, 1:].reshape(B, H, L, 2 * L - 1)[..., L - 1 :]
    return softmax((q @ k.swapaxes(-1, -2) + x) / np.sqrt(D)) @ v


def ordered(of_key, of_value):
    bias = BIAS[:, DISTANCE[5:] + L - 1]
    return lambda q, k, v: biased(q, k[..., of_key, :], v[..., of_value, :], bias)


SHIFTS = {
    "the_last_columns_of_the_shift": ("shift_columns", two_sided, {"rel_key": KEYS}),
    "the_queries_shifted": (
        "shift_of_queries",
        music(lambda x: relpos.rel_shift(x.swapaxes(-1, -2)).swapaxes(-1, -2)),
        MUSIC,
    ),
    "memory_behind": ("memory_behind", ordered(np.roll(AT, -5), np.roll(AT, -5))),
    "rolled": ("keys_rolled", ordered(np.roll(AT, 2), np.roll(AT, 2))),
    "from_the_last": ("keys_reversed", ordered(AT[::-1], AT[::-1])),
    "values_rolled": ("keys_unlike_values", ordered(AT, np.roll(AT, 1)), CACHED),
}
#: A row without a call of its own has that of its table.
CASES = {
    name: (*row, call)[:3]
    for rows, call in ((ROTATIONS, ROTARY), (BIASES, ALIBI), (SHIFTS, CACHED))
    for name, row in rows.items()
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CASES)
def test_named_alone_and_first(name):
    difference, function, call = CASES[name]
    check_named(difference, "", function, call)


UNKNOWN = {
    "rotary": ROTARY,
    "a_part_of_the_columns": {**PART, "magnitude": 1.2, "is_causal": True},
    "cached_keys": NEW,
    "slopes": CAUSAL,
    "buckets": DEBERTA,
    "tables": {**TWO, "is_causal": True},
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", UNKNOWN)
def test_few_attempts_where_nothing_fits(name, monkeypatch):
    """An attempt takes 0.2 to 0.5 ms, and two seconds are the most for a call."""
    search, attempts = import_module("relpos._opinion.search"), []

    def counted(attempt):
        attempts.append(attempt)
        return evaluate(attempt)

    evaluate = search.evaluate
    monkeypatch.setattr(search, "evaluate", counted)
    call = {"query": Q, "key": K, "value": V, **UNKNOWN[name]}
    found = relpos.diagnose(RNG.standard_normal(call["query"].shape), **call)
    assert found.kind == "unknown"
    assert len(attempts) <= 4100


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.few(1)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "call",
    [
        {"scheme": "rotary", "offset": 70000},
        {"scheme": "rotary", "inv_freq": np.array([1.0, 0.1, 0.01, 0.0])},
        {"scheme": "rotary", "magnitude": -1.5},
        {"rel_bias": -relpos.alibi_bias(H, L)},
        {"rel_bias": relpos.alibi_bias(H, L) * np.array([[1], [0], [1], [1]])},
    ],
)
def test_numbers_at_the_edge_warn_of_nothing(call):
    mine = RNG.standard_normal(Q.shape)
    found = relpos.diagnose(mine, Q, K, V, **call)
    assert found.kind == "unknown"
