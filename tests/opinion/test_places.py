"""relpos.diagnose: differences of the softmax, of masks and of operands."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from mistakes.named import AT, S, check_named, position, seen
from mistakes.row import DISTANCE, B, D, H, K, L, Q, V, softmax

import relpos
from relpos._opinion import evaluate, search

LENGTHS = np.array([7, 4])
SEEN = np.arange(L) < LENGTHS[:, None]
CAUSAL = DISTANCE <= 0
VALID = SEEN[:, None, None]

KEYS = K.swapaxes(-1, -2)
TABLE = np.random.default_rng(4).standard_normal((2 * L - 1, D))
OF_TABLE = position(Q, TABLE[DISTANCE + L - 1])
SHORT, CLIPPED = TABLE[:7], DISTANCE.clip(-3, 3)
DENSE = np.random.default_rng(6).standard_normal((H, L, L))
SINKS = np.array([0.7, -0.4, 1.5, 0.2])[:, None, None]
RANGES = np.array([[0, 4]] * 4 + [[4, 7]] * 3 + [[7, 9]] * 2)
ORDER = np.array([2, 0, 3, 1])


CASES = {
    "softmax_axes": (softmax(S.swapaxes(0, -1)).swapaxes(0, -1) @ V, {}),
    "no_softmax": (1 / (1 + np.exp(-S)) @ V, {}),
    "scaled_after_softmax": (softmax(S) @ V / np.sqrt(D), {}),
    "cap_rule": (softmax(np.clip(S, -1, 1)) @ V, {"softcap": 1.0}),
    "hidden_is_finite": (
        softmax(np.where(CAUSAL, S, S - 2.5)) @ V,
        {"is_causal": True},
    ),
    "visible_reversed": (seen(VALID[..., ::-1]), {"key_lengths": LENGTHS}),
    "visible_of_shortest": (seen(VALID[1:]), {"key_lengths": LENGTHS}),
    "visible_as_equal": (
        seen(np.swapaxes(VALID, -1, -2) == VALID),
        {"key_lengths": LENGTHS},
    ),
    "window_bounds": (seen((DISTANCE >= -3) & (DISTANCE <= 1)), {"window": (2, 1)}),
    "hidden_by_both": (
        seen(CAUSAL | VALID),
        {"is_causal": True, "key_lengths": LENGTHS},
    ),
    "mask_as_truth_inverted": (
        seen(~CAUSAL | (DISTANCE == 0)),
        {"attn_mask": 1.0 * (DISTANCE < 0)},
    ),
    "operands_exchanged": (softmax(Q @ V.swapaxes(-1, -2) / np.sqrt(D)) @ K, {}),
    "heads_mapped": (softmax(S) @ V[:, ORDER], {}),
    "heads_merged": (
        (softmax(S) @ V).reshape(B, L, H, D).swapaxes(1, 2),
        {},
    ),
    "scale_other": (softmax(1.37 * S) @ V, {}),
    "scales_differ": (
        softmax(Q @ KEYS + OF_TABLE / np.sqrt(D)) @ V,
        {"rel_key": TABLE},
    ),
    "cap_other": (softmax(3 * np.tanh(S / 3)) @ V, {"softcap": 1.5}),
    "sink_rule": (
        softmax(S) @ V / (1 + np.exp(S).sum(-1, keepdims=True) / np.exp(SINKS)),
        {"sinks": SINKS[:, 0, 0]},
    ),
    "bias_negated": (softmax(S - DENSE) @ V, {"attn_mask": DENSE}),
    "table_twice": (softmax(S + 2 * DENSE) @ V, {"attn_mask": DENSE}),
    "causal_diagonal": (seen(DISTANCE <= 2), {"is_causal": True}),
    "visible_with_first": (
        seen((DISTANCE >= -2) & CAUSAL | (AT == 0)),
        {"window": (2, 0)},
    ),
    "visible_end_later": (
        seen((RANGES[:, :1] <= AT) & (RANGES[:, 1:] >= AT)),
        {"key_ranges": RANGES},
    ),
    "visible_to_first": (seen(RANGES[:, 1:] > AT), {"key_ranges": RANGES}),
    "visible_rolled": (seen(np.roll(VALID, 4, -1)), {"key_lengths": LENGTHS}),
    "index_wraps": (
        softmax(S + position(Q, SHORT[CLIPPED]) / np.sqrt(D)) @ V,
        {"rel_key": SHORT},
    ),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("name", CASES)
def test_each_is_named(name):
    mine, call = CASES[name]
    check_named(name, "", mine, call)


@pytest.mark.usefixtures("few_pairs")
def test_heads_of_others_are_told():
    mine = softmax(S[:, [0, 0, 0, 0]]) @ V
    verdict = relpos.diagnose(mine, Q, K[:, [0] * H], V[:, [1] * H]).verdict
    assert "fits none" in verdict
    mine = softmax(S) @ V[::-1]
    assert "values of the items of the batch" in relpos.diagnose(mine, Q, K, V).verdict


def test_documents_are_ranges_of_keys():
    cuts = [0, 4, 7, 9]
    mine = relpos.attention(Q, K, V, cu_seqlens=cuts)
    assert relpos.diagnose(mine, Q, K, V, cu_seqlens=cuts).kind == "same"
    other = seen(RANGES[:, 1:] > AT)
    check_named("visible_to_first", "", other, {"cu_seqlens": cuts})
    network = {"w1": np.ones(2), "b1": np.ones(2), "w2": np.ones((H, 2))}
    network |= {"b2": np.ones(H), "c": 1.0, "threshold": 1.0}
    with pytest.raises(ValueError, match="cu_seqlens: given to a scheme"):
        relpos.diagnose(mine, Q, K, V, scheme="fire", cu_seqlens=cuts, **network)


def test_two_negated_terms_are_both_negated():
    rng = np.random.default_rng(1)
    table, bias = (
        rng.standard_normal((2, 2 * L - 1, D))[0],
        rng.standard_normal((H, 2 * L - 1)),
    )
    mine = relpos.attention(Q, K, V, rel_key=-table, rel_bias=-bias)
    found = relpos.diagnose(mine, Q, K, V, rel_key=table, rel_bias=bias)
    assert {*found.differences} == {"bias_negated", "position_negated"}


def test_a_mask_of_zeros_and_ones_is_always_told():
    mask = np.tri(L)
    with pytest.warns(UserWarning, match="floating mask of zeros and ones"):
        mine = relpos.attention(Q, K, V, attn_mask=mask)
    found = relpos.diagnose(mine, Q, K, V, attn_mask=mask)
    assert found.kind == "same"
    assert "zeros and ones, which is added to the scores" in found.verdict
    ones = relpos.diagnose(mine, Q, K, V, attn_mask=np.ones((L, L)))
    assert "zeros and ones" not in ones.verdict


def test_no_warning_repeats_what_is_told_of_a_mask():
    mask = np.tri(L)
    plain = relpos.reference.attention(Q, K, V, attn_mask=mask)

    def attend(query, key, value, attn_mask=mask):
        return relpos.attention(query, key, value, attn_mask=attn_mask)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mine in (plain, attend):
            found = relpos.diagnose(mine, Q, K, V, attn_mask=mask)
            assert found.kind == "same" and "zeros and ones" in found.verdict
        assert relpos.diagnose(Q @ K.swapaxes(-1, -2), Q, K, attn_mask=mask).verdict
        found = relpos.compare(relpos.reference.attention, attend, Q, K, V, mask)
        assert found.same and "zeros and ones" in found.notes[0]
        with pytest.raises(UserWarning, match="zeros and ones"):
            attend(Q, K, V)  # the silence ends with them


def test_attempts_share_what_they_have_in_common(monkeypatch):
    """Bound the work of a search that finds nothing, which is the longest."""
    counts = {"attempts": 0, "terms": 0}

    def counted(name, function):
        def call(*arguments, **keywords):
            counts[name] += 1
            return function(*arguments, **keywords)

        return call

    monkeypatch.setattr(search, "evaluate", counted("attempts", search.evaluate))
    monkeypatch.setattr(evaluate, "scores", counted("terms", evaluate.scores))
    q, k, v, out = np.random.default_rng(2).standard_normal((4, 2, L, D))
    table = np.random.default_rng(3).standard_normal((2 * L - 1, D))
    call = {"rel_key": table, "is_causal": True, "window": (3, 0)}
    assert relpos.diagnose(out, q, k, v, **call).kind == "unknown"
    assert 1000 < counts["attempts"] < 3600
    assert counts["terms"] < counts["attempts"] / 5


@pytest.mark.usefixtures("few_pairs")
def test_nothing_fits_a_call_with_a_position_query():
    """Its term has its own name, not that of the table."""
    call = {"rel_key": TABLE, "position_query": Q[..., ::-1]}
    mine = np.random.default_rng(7).standard_normal(Q.shape)
    assert relpos.diagnose(mine, Q, K, V, **call).kind == "unknown"


@pytest.mark.parametrize("window", [[2, 0], [None, 1]])
def test_a_window_may_be_a_list(window):
    mine = relpos.attention(Q, K, V, window=window)
    assert relpos.diagnose(mine, Q, K, V, window=window).kind == "same"


U, W = np.random.default_rng(5).standard_normal((2, H, D))
FURTHER = {
    "scale_other": (lambda: softmax(Q @ KEYS / np.sqrt(H)), "number of heads", {}),
    "visible_without_own": (
        lambda: softmax(np.where(DISTANCE < 0, S, -1e9)),
        "own key",
        {"is_causal": True},
    ),
    "clip_elsewhere": (
        lambda: softmax((Q @ KEYS + position(Q, TABLE[CLIPPED + L - 1])) / np.sqrt(D)),
        "clipped",
        {"rel_key": TABLE},
    ),
    "heads_mapped": (
        lambda: softmax(
            relpos.scores(Q, K, rel_key=TABLE, pos_bias_u=U[::-1], pos_bias_v=W)
        ),
        "^equals relpos.attention with u of the heads in reverse order",
        {"rel_key": TABLE, "pos_bias_u": U, "pos_bias_v": W},
    ),
    "rotary_sign": (
        lambda: softmax(np.einsum("bhid,bhjd,ijd->bhij", Q, K, COSINES) / np.sqrt(D)),
        "the sine missing",
        {"scheme": "rotary"},
    ),
}
ANGLES = np.outer(np.arange(L), 10000.0 ** (-np.arange(0, D, 2) / D))
COSINES = np.tile(np.cos(ANGLES)[:, None] * np.cos(ANGLES), 2)
OF_SCORES = {
    "the other sign": lambda s: -s,
    r"max\(score, 0\)": lambda s: np.maximum(s, 0),
    "the absolute scores": np.abs,
    "the mean of the scores of all heads": lambda s: s.mean(1, keepdims=True) + 0 * s,
    "the sum of the scores of all heads": lambda s: s.sum(1, keepdims=True) + 0 * s,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FURTHER)
def test_further_members(name):
    weights, words, call = FURTHER[name]
    found = relpos.diagnose(weights() @ V, Q, K, V, **call)
    assert found.differences == (name,)
    assert re.search(words, found.verdict)


@pytest.mark.few(3)
@pytest.mark.parametrize("words", OF_SCORES)
def test_the_softmax_of_a_function_of_the_scores(words):
    found = relpos.diagnose(softmax(OF_SCORES[words](S)) @ V, Q, K, V)
    assert found.differences == ("no_softmax",)
    assert re.search(f"with the softmax of .*{words}", found.verdict)


@pytest.mark.usefixtures("few_pairs")
def test_vectors_without_columns_are_compared_without_a_warning():
    empty, rng = np.zeros((H, L, 0)), np.random.default_rng(2)
    bias = rng.standard_normal((H, 2 * L - 1))
    mine = relpos.attention(empty, empty, V, rel_bias=-bias, scale=1.0)
    call = {"rel_bias": bias, "scale": 1.0}
    found = relpos.diagnose(mine, empty, empty, V, **call)
    assert found.differences == ("bias_negated",)
    other = mine + rng.standard_normal(mine.shape)
    assert relpos.diagnose(other, empty, empty, V, **call).kind == "unknown"
