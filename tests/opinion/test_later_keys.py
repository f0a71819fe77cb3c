"""relpos.diagnose: mistakes of causal masks, whatever the scores of later keys are.

The mask hides these scores. By the shift they are wrapped entries, by a look-up clipped
rows, rows of the distance without its sign, or rows from the end of the table.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from mistakes.row import DISTANCE, RNG, B, D, H, K, L, Q, V, softmax

import relpos

KEYS = RNG.standard_normal((2 * L - 1, D))
PAST, LONG = KEYS[:L], RNG.standard_normal((L + 5, D))
BIAS, T5 = RNG.standard_normal((H, L)), RNG.standard_normal((32, H))
U, W = RNG.standard_normal((2, H, D))
R1, R2 = np.full((2, H), 0.4)
SEE, N = DISTANCE <= 0, np.abs(DISTANCE)
PRODUCTS, ROOT = Q @ K.swapaxes(-1, -2), np.sqrt(D)
SLOPES = relpos.alibi_slopes(H)[:, None, None]
FIRE = {
    **dict(zip(("w1", "b1"), RNG.standard_normal((2, 6)), strict=True)),
    "w2": RNG.standard_normal((H, 6)),
    "b2": RNG.standard_normal(H),
    "c": 0.7,
    "threshold": 4.0,
}


def shift(x):
    padded = np.concatenate([np.zeros((B, H, L, 1)), x], axis=-1)
    return padded.reshape(B, H, L + 1, L)[:, :, 1:].reshape(B, H, L, L)


def rows(table, query=Q):
    """Return products with rows of a table of the past: the ways to read later keys."""
    last = len(table) - 1
    ways = {
        "clipped": np.clip(DISTANCE, -last, 0) + last,
        "unsigned": last - N,
        "from the end": (DISTANCE + last) % len(table),
    }
    products = query @ table.T
    found = {
        name: np.take_along_axis(products, np.broadcast_to(at, (B, H, L, L)), -1)
        for name, at in ways.items()
    }
    found["nothing"] = np.where(SEE, found["clipped"], 0.0)
    found["wrapped"] = shift(query @ table[-L:].T)
    return found


def fire(distance):
    far = np.log1p(0.7 * np.maximum(np.arange(L)[:, None], 4.0))
    x = np.log1p(0.7 * distance) / (far + 1e-6)
    hidden = np.maximum(x[..., None] * FIRE["w1"] + FIRE["b1"], 0)
    return np.moveaxis(hidden @ FIRE["w2"].T + FIRE["b2"], -1, 0)


def bucketed(r):
    return PRODUCTS + T5.T[:, relpos.t5_bucket(r, bidirectional=False)]


def kerple(n):
    return PRODUCTS / ROOT - 0.4 * np.log1p(0.4 * n)


XL = (Q + U[:, None]) @ K.swapaxes(-1, -2)
MUSIC = {"scheme": "relative_global_attention"}
#: A call, and scores by each way to read later keys.
SCHEMES = {
    "music": (
        {**MUSIC, "rel_key": PAST},
        {way: (PRODUCTS + x) / ROOT for way, x in rows(PAST).items()},
    ),
    "a longer table": (
        {**MUSIC, "rel_key": LONG},
        {way: (PRODUCTS + x) / ROOT for way, x in rows(LONG).items()},
    ),
    "Transformer-XL": (
        {
            "scheme": "transformer_xl_attention",
            "rel_key": PAST,
            "pos_bias_u": U,
            "pos_bias_v": W,
            "is_causal": True,
        },
        {way: (XL + x) / ROOT for way, x in rows(PAST, Q + W[:, None]).items()},
    ),
    "a mask as an argument": (
        {"rel_key": PAST, "min_relative_position": 1 - L, "attn_mask": SEE},
        {way: (PRODUCTS + x) / ROOT for way, x in rows(PAST).items()},
    ),
    "a bias": (
        {"rel_bias": BIAS, "min_relative_position": 1 - L, "is_causal": True},
        {
            "unsigned": PRODUCTS / ROOT + BIAS[:, L - 1 - N],
            "from the end": PRODUCTS / ROOT + BIAS[:, (DISTANCE + L - 1) % L],
        },
    ),
    "T5": (
        {**relpos.recipes.t5(T5, bidirectional=False), "is_causal": True},
        {"clipped": bucketed(DISTANCE), "unsigned": bucketed(-N)},
    ),
    "ALiBi": (
        {"rel_bias": relpos.alibi_bias(H, L), "is_causal": True},
        {
            "unsigned": PRODUCTS / ROOT - SLOPES * N,
            "signed": PRODUCTS / ROOT + SLOPES * DISTANCE,
            "nothing": PRODUCTS / ROOT + SLOPES * np.minimum(DISTANCE, 0),
        },
    ),
    "KERPLE": (
        {"rel_bias": relpos.kerple_bias(R1, R2, L), "is_causal": True},
        {"unsigned": kerple(N), "nothing": kerple(np.maximum(-DISTANCE, 0))},
    ),
    "FIRE": (
        {"scheme": "fire_attention", "is_causal": True, **FIRE},
        {
            "unsigned": PRODUCTS / ROOT + fire(N),
            "of distance 0": PRODUCTS / ROOT + fire(np.maximum(-DISTANCE, 0)),
        },
    ),
    "rotary": (
        {"scheme": "rotary", "is_causal": True},
        {"": relpos.scores(relpos.apply_rotary(Q), relpos.apply_rotary(K))},
    ),
    "numbers of a mask": (
        {"attn_mask": BIAS[:, L - 1 - N], "is_causal": True},
        {"unsigned": PRODUCTS / ROOT + BIAS[:, L - 1 - N]},
    ),
}
#: What is done with the mask: weights of scores, the difference, and words.
MISTAKES = {
    "after the softmax": (
        lambda s: np.where(SEE, softmax(s), 0.0),
        "masked_after_softmax",
        "the mask after the softmax",
    ),
    "not at all": (
        softmax,
        "no_is_causal|no_attn_mask|wrapped_attended",
        "ignored|no mask",
    ),
    "a score of 0": (
        lambda s: softmax(np.where(SEE, s, 0.0)),
        "hidden_score_0",
        "a score of 0",
    ),
    "a small number": (
        lambda s: softmax(np.where(SEE, s, -3.0)),
        "hidden_is_finite",
        "-3, as the score",
    ),
    "a small number added": (
        lambda s: softmax(np.where(SEE, s, s - 2.5)),
        "hidden_is_finite",
        "-2.5, added",
    ),
    "truth values added": (
        lambda s: softmax(s + SEE),
        "mask_added",
        "added to the scores",
    ),
    "a number as a weight": (
        lambda s: np.where(SEE, softmax(s), -1e9),
        "hidden_weight",
        "a weight of -1e.09 where .* softmax of all keys",
    ),
    "inverted": (
        lambda s: softmax(np.where(SEE, -1e9, s)),
        "visible_inverted",
        "inverted: keys that it hides are visible",
    ),
    "one key too far": (
        lambda s: softmax(np.where(DISTANCE <= 1, s, -np.inf)),
        "causal_sees_next|visible_end_later|visible_rows_earlier",
        "the key after each query seen|one key more|of the query after",
    ),
    "in place of the softmax": (
        lambda s: np.where(SEE, s, 0.0),
        "no_softmax",
        "the softmax left out",
    ),
    "as weights": (
        lambda s: np.broadcast_to(SEE / SEE.sum(-1, keepdims=True), s.shape),
        "equal_weights",
        "equal weights",
    ),
}
#: The first two mistakes with each way, the others with one way of each scheme.
CASES = [
    (name, way, mistake)
    for name, (_, ways) in SCHEMES.items()
    for at, way in enumerate(ways)
    for n, mistake in enumerate(MISTAKES)
    if n < 2 or at == len(ways) - 1
]


@pytest.mark.few(6)
@pytest.mark.product
@pytest.mark.parametrize(("name", "way", "mistake"), CASES)
def test_named_in_every_scheme(name, way, mistake):
    (call, ways), (weights, difference, words) = SCHEMES[name], MISTAKES[mistake]
    scores = np.broadcast_to(ways[way], (B, H, L, L))
    found = relpos.diagnose(weights(scores) @ V, Q, K, V, **call)
    assert found.kind == "mistake" and len(found.differences) == 1, found.verdict
    assert re.fullmatch(difference, found.differences[0]), found.verdict
    assert re.search(words, found.verdict), found.verdict
    assert found.error < 1e-9


@pytest.mark.parametrize("name", SCHEMES)
def test_hidden_ones_are_none_of_the_mask(name):
    call, ways = SCHEMES[name]
    for scores in ways.values():
        mine = softmax(np.where(SEE, scores, -np.inf)) @ V
        assert relpos.diagnose(mine, Q, K, V, **call).kind == "same"


def test_words_say_what_later_keys_have():
    call, ways = SCHEMES["music"]
    for way, words in (
        ("wrapped", "with wrapped entries of the shift for later keys"),
        ("from the end", "with rows from the end of the table, as of a negative index"),
    ):
        mine = np.where(SEE, softmax(ways[way]), 0.0) @ V
        assert words in relpos.diagnose(mine, Q, K, V, **call).verdict


# ---- the order of the rows, and the flags of the shift -------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("count", [L + 1, 2 * L, 5 * L])
@pytest.mark.parametrize("table", ["rel_key", "rel_bias"])
def test_rows_in_reverse_order_of_a_longer_table(count, table):
    """The last rows are read, distance 0 first: nothing is padded or shifted."""
    shape = (count, D) if table == "rel_key" else (H, count)
    given, at = RNG.standard_normal(shape), count - L + np.maximum(-DISTANCE, 0)
    if table == "rel_key":
        scores = (PRODUCTS + np.einsum("bhid,ijd->bhij", Q, given[at])) / ROOT
    else:
        scores = PRODUCTS / ROOT + given[:, at]
    mine = softmax(np.where(SEE, scores, -np.inf)) @ V
    call = {table: given, "min_relative_position": 1 - count, "is_causal": True}
    found = relpos.diagnose(mine, Q, K, V, **call)
    assert (found.kind, found.differences) == ("mistake", ("rows_reversed",))
    assert "reverse order" in found.verdict
    assert "padding" not in found.verdict and "shift" not in found.verdict


@pytest.mark.parametrize("begin", [0, 7, 14])
def test_rows_in_reverse_order_of_a_part_of_a_two_sided_table(begin):
    """The first, the middle or the last rows of a longer table, reversed."""
    given = RNG.standard_normal((2 * L + 13, D))
    at = begin + L - 1 - DISTANCE
    mine = softmax((PRODUCTS + np.einsum("bhid,ijd->bhij", Q, given[at])) / ROOT) @ V
    found = relpos.diagnose(mine, Q, K, V, rel_key=given)
    if begin == 7:  # of the whole table too
        assert (found.kind, found.differences) == ("convention", ("table_reversed",))
    else:
        assert (found.kind, found.differences) == ("mistake", ("rows_reversed",))


def skewed(x, behind, last, columns=None):
    zeros = np.zeros((*x.shape[:-1], 1))
    padded = np.concatenate([x, zeros] if behind else [zeros, x], axis=-1)
    padded = padded.reshape(B, H, -1, L)
    kept = padded[:, :, :-1] if last else padded[:, :, 1:]
    return kept.reshape(x.shape)[..., columns or slice(None)]


FLAGS = {
    # for visible pairs that is the next row
    "off_by_one": (True, False, "as by a shift .* that is padded on the other side"),
    "shift_row": (False, True, "the last row dropped: drop the first row"),
    "shift_padding_and_row": (True, True, "pad in front .* and drop the first row"),
}


@pytest.mark.parametrize("name", FLAGS)
def test_each_flag_of_the_shift_has_a_name_and_an_advice(name):
    behind, last, words = FLAGS[name]
    scores = (PRODUCTS + skewed(Q @ PAST.T, behind, last)) / ROOT
    mine = softmax(np.where(SEE, scores, -np.inf)) @ V
    found = relpos.diagnose(mine, Q, K, V, **MUSIC, rel_key=PAST)
    told = (
        found.differences[0],
        *re.findall(r"cannot tell it from: (.*)", found.verdict),
    )
    assert name in ", ".join(told), found.verdict
    assert found.kind == "mistake" and len(found.differences) == 1
    if found.differences == (name,):
        assert re.search(words, found.verdict), found.verdict


def test_the_columns_that_the_shift_keeps():
    x = skewed(Q @ KEYS.T, False, False, slice(L - 1, None))
    found = relpos.diagnose(softmax((PRODUCTS + x) / ROOT) @ V, Q, K, V, rel_key=KEYS)
    assert found.differences == ("shift_columns",)
    assert "the last columns kept: keep the first columns" in found.verdict
