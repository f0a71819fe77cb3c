"""relpos.diagnose: further mistakes, most of them after bug reports."""

from __future__ import annotations

import numpy as np
import pytest
from mistakes.biases import BIAS, KEYS
from mistakes.named import AT, S, check_named, seen
from mistakes.row import DISTANCE, RNG, B, D, H, K, L, Q, V, softmax

import relpos
from relpos import recipes

ROOT, FUTURE = np.sqrt(D), DISTANCE > 0
U, W = RNG.standard_normal((2, H, D))
LENGTHS = np.array([5, 9])
SHOWN = (LENGTHS[:, None] > AT)[:, None, None]
DENSE = BIAS[:, DISTANCE + L - 1]
START = np.maximum(AT - 5, 0)[:, None]
NEW, LAST = Q[..., 6:, :], L - 6  # the queries after a cache of six keys
XL = {"scheme": "transformer_xl_attention", "rel_key": KEYS}
XL |= {"pos_bias_u": U, "pos_bias_v": W}


def position(query, rows):
    return np.einsum("...id,ijd->...ij", query, KEYS[np.clip(rows, 0, 2 * L - 2)])


def padded_with_zeros():
    k, v = (np.where(SHOWN.swapaxes(-1, -2), x, 0.0) for x in (K, V))
    return softmax(Q @ k.swapaxes(-1, -2) / ROOT) @ v


def with_zero_keys(count):
    more = np.concatenate([S, np.zeros((B, H, L, count))], axis=-1)
    return softmax(more)[..., :L] @ V


def online(keep):
    """Sum values block by block; `keep` says if sums of exponentials are scaled."""
    out, total, top = 0.0, 0.0, np.full((B, H, L, 1), -np.inf)
    for start in range(0, L, 4):
        s = S[..., start : start + 4]
        new = np.maximum(top, s.max(axis=-1, keepdims=True))
        e = np.exp(s - new)
        total = total * (np.exp(top - new) if keep else 1.0)
        total = total + e.sum(axis=-1, keepdims=True)
        out, top = out + e @ V[..., start : start + 4, :], new
    return out / total


def merged(base):
    parts = [S[..., :4], S[..., 4:]]
    lse = [np.log(np.exp(x).sum(axis=-1, keepdims=True)) for x in parts]
    factors = [base**x for x in lse]
    joined = [
        softmax(x) * f / sum(factors) for x, f in zip(parts, factors, strict=True)
    ]
    return np.concatenate(joined, axis=-1) @ V


def xl(of_content, of_position, u=U, w=W):
    content = (Q + u[:, None]) @ K.swapaxes(-1, -2)
    position_ = position(Q + w[:, None], DISTANCE + L - 1)
    return softmax(of_content(content) / ROOT + of_position(position_) / ROOT) @ V


def tiled():
    item = (np.arange(B * H) % B).reshape(B, H)
    return seen(SHOWN[item, 0])


def of_six(position_, see=None):
    scores = (NEW @ K.swapaxes(-1, -2) + position_) / ROOT
    see = DISTANCE[6:] <= 0 if see is None else see
    return seen(see, scores)


CACHED = {"query": NEW, "query_offset": 6, "rel_key": KEYS, "is_causal": True}
SIDES = {"window": (3, 0), "is_causal": True}
#: The difference, words of the verdict, the results and the call.
CASES = [
    ("padding_of_zeros", "set to 0", padded_with_zeros(), {"key_lengths": LENGTHS}),
    ("visible_tiled", "tile", tiled(), {"key_lengths": LENGTHS}),
    ("sinks_untold", "5 more keys", with_zero_keys(5), {}),
    ("sink_untold", "a sink of score 0", with_zero_keys(1), {}),
    ("softmax_in_chunks", "the sum of values not scaled", online(True), {}),
    ("softmax_in_chunks", "and of exponentials not", online(False), {}),
    ("softmax_in_chunks", "weighed by 2^lse", merged(2.0), {}),
    ("softmax_in_chunks", "lse in base 2", merged(np.exp(1 / np.log(2.0))), {}),
    ("cap_rule", "factor of the tangent", softmax(S * np.tanh(S)) @ V, {"softcap": 1}),
    ("term_transposed", "content", xl(lambda x: x.swapaxes(-1, -2), np.asarray), XL),
    ("term_factor", "the position terms", xl(np.asarray, lambda x: x / 3), XL),
    ("term_factor", "the terms of the keys", xl(lambda x: 2 * x, np.asarray), XL),
    (
        "table_heads",
        "reshaped",
        xl(np.asarray, np.asarray, *(x.reshape(D, H).T for x in (U, W))),
        XL,
    ),
    (
        "scores_multiplied",
        "times 0.9",
        softmax(0.9 * (S + DENSE)) @ V,
        {"rel_bias": BIAS},
    ),
    (
        "window_untold",
        "(4, None)",
        seen((DISTANCE <= 0) & (DISTANCE >= -4)),
        {"is_causal": True},
    ),
    (
        "window_of_diagonals",
        "from distance 4 on",
        seen((DISTANCE <= 0) | (DISTANCE > 3)),
        SIDES,
    ),
    (
        "offset_other",
        "of 9, not 6",
        of_six(position(NEW, DISTANCE[6:] - 3 + L - 1), DISTANCE[6:] <= 3),
        CACHED,
    ),
    (
        "memory_unplaced",
        "cached keys",
        of_six(position(NEW, DISTANCE[6:] + L - 1) * (AT >= 6)),
        CACHED,
    ),
    (
        "rows_by_other_rule",
        "minus the last query",
        of_six(position(NEW, np.broadcast_to(np.clip(AT, L - 4, L), (LAST, L)))),
        {**CACHED, "rel_key": KEYS[L - 4 : L + 3]},
    ),
    (
        "clip_one_side_early",
        "alone clipped",
        softmax(S + position(Q, np.clip(DISTANCE, -3, 2) + L - 1) / ROOT) @ V,
        {"rel_key": KEYS[L - 4 : L + 3]},
    ),
    (
        "one_side_is_0",
        "all later",
        softmax(S + BIAS[:, np.minimum(DISTANCE, 0) + L - 1]) @ V,
        {"rel_bias": BIAS},
    ),
    (
        "visible_ends_moved",
        "3 keys fewer at the start",
        seen((np.where(START > 0, START + 3, 0) <= AT) & ~FUTURE),
        {"attn_mask": (AT >= START) & ~FUTURE},
    ),
    (
        "results_mixed",
        "reshaped from (H, B)",
        (softmax(S) @ V).reshape(H, B, L, D).swapaxes(0, 1),
        {},
    ),
    (
        "values_unweighted",
        "summed over queries",
        softmax(S) @ V
        + np.einsum("bhij,ijd->bhjd", softmax(S), KEYS[DISTANCE + L - 1]),
        {"rel_value": KEYS},
    ),
    (
        "term_reshaped",
        "(Lq, Lk, H)",
        softmax(S + np.moveaxis(DENSE, 0, -1).reshape(H, L, L)) @ V,
        {"rel_bias": BIAS},
    ),
]


@pytest.mark.few(4)
@pytest.mark.parametrize(("difference", "words", "mine", "call"), CASES)
def test_named_with_what_to_change(difference, words, mine, call):
    check_named(difference, words, mine, call)


def test_a_factor_of_scores_is_found_without_a_softmax():
    found = relpos.diagnose(0.3 * S, Q, K)
    assert found.differences == ("scale_other",), found.verdict


# ---- buckets -------------------------------------------------------------------------


OF_BUCKETS = RNG.standard_normal((8, H))


def t5(over, under, width, end):
    """Return results of 8 buckets, 4 on a side, of which 2 are exact."""
    n = np.abs(DISTANCE)
    with np.errstate(divide="ignore"):
        far = 2 + np.floor(np.log(n / over) / np.log(under) * width).clip(0)
    far = np.minimum(far, 3) if end else far
    rows = np.where(n < 2, n, far) + 4 * (DISTANCE > 0)
    bias = np.moveaxis(OF_BUCKETS[np.clip(rows, 0, 7).astype(int)], -1, 0)
    return softmax(Q @ K.swapaxes(-1, -2) + bias) @ V


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "rule", [(2, 2.5, 6, True), (2, 5, 2, True), (1, 2.5, 2, True), (2, 2.5, 2, False)]
)
def test_buckets_by_another_logarithm(rule):
    call = recipes.t5(OF_BUCKETS, max_distance=5)
    found = relpos.diagnose(t5(2, 2.5, 2, True), Q, K, V, **call)
    assert found.kind == "same"
    found = relpos.diagnose(t5(*rule), Q, K, V, **call)
    assert found.differences[0].startswith("bucket_"), found.verdict


# ---- grids ---------------------------------------------------------------------------


def labels(rows, columns):
    """Return labels of a grid of three rows of five cells: query minus key."""
    y, x = np.divmod(np.arange(15), 5)
    y, x = y[:, None] - y + 2, x[:, None] - x + 4
    return (y * rows + x * columns) % 45


@pytest.mark.parametrize(
    ("rule", "words"),
    [((5, 1), "2 h - 1"), ((1, 5), "exchanged"), ((1, 1), "without a factor")],
)
def test_labels_of_an_image_by_another_rule(rule, words):
    q, k, v = RNG.standard_normal((3, 2, 15, D))
    table = RNG.standard_normal((45, 2))
    call = recipes.swin(table, (3, 5))
    scores = q @ k.swapaxes(-1, -2) / ROOT
    for own in ((9, 1), rule):
        mine = softmax(scores + np.moveaxis(table[labels(*own)], -1, 0)) @ v
        found = relpos.diagnose(mine, q, k, v, **call)
        assert found.kind == ("same" if own == (9, 1) else "mistake")
    assert found.differences == ("grid_labels",) and words in found.verdict


def test_rows_of_a_class_token_exchanged():
    q, k, v = RNG.standard_normal((3, 2, 10, D))
    table = RNG.standard_normal((28, 2))
    call = recipes.beit(table, (3, 3))
    own = call["labels"].copy()
    own[0, 1:], own[1:, 0] = call["labels"][1:, 0], call["labels"][0, 1:]
    bias = np.moveaxis(table[own], -1, 0)
    mine = softmax(q @ k.swapaxes(-1, -2) / ROOT + bias) @ v
    found = relpos.diagnose(mine, q, k, v, **call)
    assert found.differences == ("grid_labels",) and "class" in found.verdict


# ---- FIRE ----------------------------------------------------------------------------

PARAMETERS = {"w1": RNG.standard_normal(16), "b1": RNG.standard_normal(16)}
PARAMETERS |= {"w2": RNG.standard_normal((H, 16)), "b2": RNG.standard_normal(H)}
PARAMETERS |= {"c": 0.7, "threshold": 1.8}


@pytest.mark.parametrize(
    ("under", "words"),
    [
        (lambda i: np.maximum(np.log1p(0.7 * (6 + i)), 1.8), "where it is larger"),
        (lambda i: np.log1p(0.7 * np.maximum(i, 1.8)), "without the offset"),
        (lambda i: np.log1p(0.7 * np.maximum(AT, 1.8))[None], "of the key's position"),
    ],
)
def test_another_divisor_of_fire(under, words):
    x = np.log1p(0.7 * np.abs(DISTANCE[6:])) / (under(AT[:LAST, None]) + 1e-6)
    w1, b1, w2, b2 = (PARAMETERS[name] for name in ("w1", "b1", "w2", "b2"))
    bias = np.maximum(x[..., None] * w1 + b1, 0.0) @ w2.T + b2
    scores = NEW @ K.swapaxes(-1, -2) / ROOT + np.moveaxis(bias, -1, 0)
    call = {"scheme": "fire_attention", "query_offset": 6, **PARAMETERS}
    found = relpos.diagnose(softmax(scores) @ V, NEW, K, V, **call)
    assert found.differences == ("fire_rule",) and words in found.verdict


def test_offsets_of_each_item_are_those_of_fire():
    offsets = np.arange(len(NEW)) + 4
    given = {"query_offset": offsets, **PARAMETERS}
    out = relpos.fire_attention(NEW, K, V, **given)
    call = {"scheme": "fire_attention", **PARAMETERS}
    for offset, kind in ((offsets, "same"), (4, "unknown")):
        found = relpos.diagnose(out, NEW, K, V, **call, query_offset=offset)
        assert found.kind == kind


# ---- rotary --------------------------------------------------------------------------

FREQUENCIES = 10000.0 ** (-np.arange(0, D, 2) / D)


def rotated(x, cos, sin):
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def turned(x, at, inv_freq=FREQUENCIES):
    angles = at[..., None] * inv_freq
    return rotated(x, np.cos(angles), np.sin(angles))


def results(query, key):
    return softmax(query @ key.swapaxes(-1, -2) / ROOT) @ V


def by_halves(x):
    angles = AT[:, None] * FREQUENCIES
    both = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(L, D)
    return rotated(x, both[:, D // 2 :], both[:, : D // 2])


FRAGMENTS = np.where((AT >= 3) & (AT < 6), AT - 3, AT)
CHANGED = FREQUENCIES * np.array([1, 1.3, 1, 0.9])
GIVEN = {"inv_freq": FREQUENCIES}
HALVES = results(by_halves(Q), by_halves(K))
TURNED = {
    "rotary_table": ("joined", HALVES, {}),
    "rotary_fragments": (
        "fragments",
        results(turned(NEW, AT[6:]), turned(K, FRAGMENTS)),
        {"query": NEW, "query_offset": 6},
    ),
    "rotary_some": (
        "2 of 4 pairs (1, 3)",
        results(turned(Q, AT, CHANGED), turned(K, AT, CHANGED)),
        GIVEN,
    ),
    "rotary_factor": (
        "times 0.3",
        results(*(turned(x, AT, 0.3 * FREQUENCIES) for x in (Q, K))),
        GIVEN,
    ),
    "rotary_magnitude_other": (
        "1.3, not 1.2",
        results(*(1.3 * turned(x, AT) for x in (Q, K))),
        {"magnitude": 1.2},
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("difference", TURNED)
def test_rotary_is_named(difference):
    words, mine, call = TURNED[difference]
    check_named(difference, words, mine, {"scheme": "rotary", **call})


def test_rotated_by_the_number_of_the_head():
    key = K[:, :2]
    head, of_key = np.arange(H)[:, None], np.arange(2)[:, None]
    turned_key = np.repeat(turned(key, of_key), H // 2, axis=1)
    scores = turned(Q, head) @ turned_key.swapaxes(-1, -2) / ROOT
    mine = softmax(scores) @ np.repeat(V[:, :2], H // 2, axis=1)
    call = {"scheme": "rotary", "enable_gqa": True}
    found = relpos.diagnose(mine, Q, key, V[:, :2], **call)
    assert found.differences == ("rotary_of_heads",), found.verdict


@pytest.mark.usefixtures("few_pairs")
def test_positions_of_the_keys_may_be_given():
    at = 300 + AT
    call = {"scheme": "rotary", "positions": at, "query_offset": 6}
    mine = results(turned(NEW, at[6:]), turned(K, at))
    assert relpos.diagnose(mine, NEW, K, V, **call).kind == "same"
    rounded = np.round(at / 2) * 2.0
    mine = results(turned(NEW, rounded[6:]), turned(K, rounded))
    found = relpos.diagnose(mine, NEW, K, V, **call)
    assert found.kind == "unknown" or "rotary" in found.differences[0]
    with pytest.raises(ValueError, match=r"positions: got shape \(3,\)"):
        relpos.diagnose(mine, NEW, K, V, **(call | {"positions": at[:3]}))


@pytest.mark.usefixtures("few_pairs")
def test_a_magnitude_of_each_pair_is_searched_as_well():
    m = relpos.xpos_magnitude(L, D, scale_base=64.0)
    mine = results(*(turned(x, AT, 500.0 ** (-np.arange(0, D, 2) / D)) for x in (Q, K)))
    found = relpos.diagnose(mine, Q, K, V, scheme="rotary", magnitude=m)
    assert found.kind in ("unknown", "mistake")


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.few(1)
@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_results_that_are_not_finite_end_no_search(number):
    mine = RNG.standard_normal(Q.shape)
    mine[0, 0, 0] = number
    assert relpos.diagnose(mine, Q, K, V, scheme="rotary").kind == "unknown"


@pytest.mark.usefixtures("few_pairs")
def test_a_far_offset_takes_no_more_buckets_than_memory_has():
    call = {**recipes.t5(OF_BUCKETS, max_distance=5), "query_offset": 10**12}
    assert relpos.diagnose(RNG.standard_normal(Q.shape), Q, K, V, **call)


def test_positions_that_are_no_numbers_are_refused():
    with pytest.raises(TypeError, match="positions: got"):
        relpos.diagnose(Q, Q, K, V, scheme="rotary", positions="a")


# ---- words ---------------------------------------------------------------------------


def test_key_heads_are_called_by_their_numbers():
    order = np.arange(H) % 2
    key, value = K[:, :2], V[:, :2]
    scores = Q @ key[:, [0, 0, 0, 1]].swapaxes(-1, -2) / ROOT
    mine = softmax(scores) @ value[:, [0, 0, 0, 1]]
    found = relpos.diagnose(mine, Q, key, value, enable_gqa=True)
    assert "of key heads [0, 0, 0, 1]" in found.verdict
    scores = Q @ key[:, order].swapaxes(-1, -2) / ROOT
    mine = softmax(scores) @ np.repeat(value, H // 2, axis=1)
    found = relpos.diagnose(mine, Q, key, value, enable_gqa=True)
    assert "of key head h modulo 2 for query head h" in found.verdict
