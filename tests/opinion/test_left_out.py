"""relpos.diagnose: an operand that is never used, in every scheme, is named first."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress

import numpy as np
import pytest
from mistakes.row import DISTANCE, RNG, B, D, H, K, L, Q, V, softmax
from operand_arrays import FLOATING

import relpos
from relpos._attention.attention import attention
from relpos._attention.operands import OPERANDS, TABLES
from relpos._opinion.attempt import NEEDED, PLACING
from relpos._opinion.begin import begin
from relpos._opinion.differences import DIFFERENCES
from relpos._opinion.evaluate import evaluate
from relpos._schemes import SCHEMES

KEYS, QUERIES, VALUES = RNG.standard_normal((3, 2 * L - 1, D))
BIAS = RNG.standard_normal((H, 2 * L - 1))
U, W = RNG.standard_normal((2, H, D))
LABELS = RNG.integers(0, 2 * L - 1, (L, L))
REACH = np.clip(np.abs(np.arange(1 - L, L)), 0, 8)
FIRE = {
    **dict(zip(("w1", "b1"), RNG.standard_normal((2, 6)), strict=True)),
    "w2": RNG.standard_normal((H, 6)),
    "b2": RNG.standard_normal(H),
    "c": 0.7,
    "threshold": 4.0,
}
#: Calls of attention, one of each scheme, and of each argument that places a table.
CALLS = {
    "shaw": {"rel_key": KEYS[:7], "rel_value": VALUES[:7]},
    "three tables": {"rel_key": KEYS, "rel_query": QUERIES, "rel_value": VALUES},
    "DeBERTa": {"rel_key": KEYS, "rel_query": QUERIES, "scale": (3 * D) ** -0.5},
    "Transformer-XL": {"rel_key": KEYS, "pos_bias_u": U, "pos_bias_v": W},
    "a table of the past": {"rel_key": KEYS[:14], "min_relative_position": -13},
    "T5": relpos.recipes.t5(RNG.standard_normal((32, H))),
    "T5 decoder": relpos.recipes.t5(RNG.standard_normal((32, H)), bidirectional=False),
    "Wav2Vec2-BERT": relpos.recipes.wav2vec2_bert(RNG.standard_normal((73, D))),
    "ALiBi": {"rel_bias": relpos.alibi_bias(H, L)},
    "KERPLE": {"rel_bias": relpos.kerple_bias(np.full(H, 0.4), np.full(H, 0.5), L)},
    "capped": {"rel_bias": BIAS, "softcap": 1.5},
    "sinks": {"rel_bias": BIAS, "sinks": RNG.standard_normal(H)},
    "decay": {"log_decay": -np.abs(RNG.standard_normal((H, L)))},
    "labels": {"rel_bias": BIAS, "labels": LABELS},
    "two labelled": {"rel_key": KEYS, "rel_value": VALUES, "labels": LABELS},
    "several labels": {"rel_bias": BIAS, "labels": (LABELS, LABELS[::-1])},
    "buckets of two": {"rel_key": KEYS[:9], "rel_query": QUERIES[:9], "buckets": REACH},
    "keys and a centred bias": {
        "rel_key": KEYS[:L],
        "rel_bias": BIAS[:, :7],
        "min_relative_position": 1 - L,
        "beyond": "zero",
    },
    "position query": {
        "rel_key": KEYS,
        "position_query": RNG.standard_normal((H, L, D)),
        "pos_bias_v": W,
    },
}
NUMBERS = {*FLOATING, "softcap"} - {"query", "key", "value", "attn_mask"}
CASES = []
for _name, _call in CALLS.items():
    for _operand in _call:
        if _operand in NUMBERS:
            CASES.append((_name, _operand, True))
            if _name != "decay":  # which is causal by definition
                CASES.append((_name, _operand, False))


def without(call, *names):
    """Return a call without some operands, and what has no meaning without them."""
    kept = {name: x for name, x in call.items() if name not in names}
    if "rel_key" not in kept:
        kept = {
            n: x for n, x in kept.items() if n not in ("pos_bias_v", "position_query")
        }
    placing = ("buckets", "labels", "min_relative_position", "beyond")
    if not kept.keys() & {"rel_key", "rel_query", "rel_value", "rel_bias"}:
        kept = {name: x for name, x in kept.items() if name not in placing}
    return kept


def check_left_out(mine, first, scheme=None, query=Q, value=V, **call):
    """Check that a verdict names what is left out, alone or before all others."""
    found = relpos.diagnose(mine, query, K, value, scheme=scheme, **call)
    assert (found.kind, found.differences) == ("mistake", (first,)), found.verdict
    assert "left out" in found.verdict.split("; these inputs")[0]
    assert found.error < 1e-12
    return found


@pytest.mark.parametrize(("name", "operand", "causal"), CASES)
def test_an_operand_that_is_never_used(name, operand, causal):
    call = CALLS[name] | ({"is_causal": True} if causal else {})
    kept = without(call, operand)
    if name == "keys and a centred bias" and operand == "rel_key":
        del kept["min_relative_position"]  # of the keys, the bias being centred
    check_left_out(relpos.attention(Q, K, V, **kept), f"no_{operand}", **call)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", ["T5 decoder", "a table of the past", "Transformer-XL"]
)
def test_with_a_cache_and_in_scores(name):
    call = CALLS[name] | {"is_causal": True, "query_offset": L - 4}
    operand = next(x for x in call if x in TABLES)
    few, kept = Q[..., :4, :], without(call, operand)
    mine = relpos.attention(few, K, V, **kept)
    check_left_out(mine, f"no_{operand}", query=few, **call)
    mine = relpos.scores(few, K, **kept)
    check_left_out(mine, f"no_{operand}", query=few, value=None, **call)


def plain(query, key, value, scale=D**-0.5, see=True):
    scores = np.where(see, query @ key.swapaxes(-1, -2) * scale, -np.inf)
    return softmax(scores) @ value


CAUSAL = DISTANCE <= 0


def test_a_convention_that_makes_rows_constant_does_not_come_first():
    """The numbers cannot tell the two: both are named, the left-out term first."""
    music = {"scheme": "relative_global_attention", "rel_key": KEYS[:L]}
    found = check_left_out(plain(Q, K, V, see=CAUSAL), "no_rel_key", **music)
    assert "cannot tell it from: query_minus_key" in found.verdict
    t5 = CALLS["T5"]
    found = check_left_out(plain(Q, K, V, scale=1.0), "no_rel_bias", **t5)
    assert "cannot tell it from: absolute_rows" in found.verdict


def test_in_scores_before_the_mask():
    call = {"scheme": "relative_global_attention", "rel_key": KEYS[:L]}
    mine = Q @ K.swapaxes(-1, -2) * D**-0.5
    found = relpos.diagnose(mine, Q, K, **call)
    assert found.differences == ("unmasked", "no_rel_key"), found.verdict
    assert found.kind == "mistake"


def test_a_convention_that_shows_is_a_convention():
    """Rows that differ for visible pairs are read, and no term is missing."""
    t5, table = CALLS["T5 decoder"], CALLS["T5 decoder"]["rel_bias"]
    future = relpos.t5_bucket(-DISTANCE, bidirectional=False)
    mine = softmax(Q @ K.swapaxes(-1, -2) + table[:, future]) @ V
    found = relpos.diagnose(mine, Q, K, V, **t5)
    assert (found.kind, found.differences) == ("convention", ("bucket_direction",))
    past = CALLS["a table of the past"]
    mine = relpos.attention(
        Q, K, V, rel_key=KEYS[:14][::-1], min_relative_position=0, is_causal=False
    )
    found = relpos.diagnose(mine, Q, K, V, **past)
    assert (found.kind, found.differences) == ("convention", ("query_minus_key",))


def test_another_difference_beside_it():
    call = CALLS["T5 decoder"] | {"is_causal": True}
    found = relpos.diagnose(plain(Q, K, V, see=CAUSAL), Q, K, V, **call)
    assert {*found.differences} == {"scale_head_dim", "no_rel_bias"}, found.verdict


@pytest.mark.parametrize("operand", ["rel_key", "rel_query"])
def test_deberta_counts_its_terms_in_the_scale(operand):
    """The scale is 1 / sqrt(3 D) with both terms, and 1 / sqrt(2 D) with one."""
    call = CALLS["DeBERTa"]
    kept = without(call, operand) | {"scale": (2 * D) ** -0.5}
    found = check_left_out(relpos.attention(Q, K, V, **kept), f"no_{operand}", **call)
    assert "1 / sqrt(2 D)" in found.verdict


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["music", "a table of the past", "T5 decoder"])
def test_neither_the_term_nor_the_mask(name):
    """Another offset gives these numbers too, and does not come first."""
    music = {"scheme": "relative_global_attention", "rel_key": KEYS[:L]}
    call = {"is_causal": True, **(music if name == "music" else CALLS[name])}
    operand = next(x for x in call if x in TABLES)
    found = relpos.diagnose(plain(Q, K, V, call.get("scale", D**-0.5)), Q, K, V, **call)
    assert found.differences == (f"no_{operand}", "no_is_causal"), found.verdict
    assert found.kind == "mistake"


def test_in_one_head_and_in_one_item():
    call = CALLS["T5 decoder"] | {"is_causal": True}
    right, mine = relpos.attention(Q, K, V, **call), plain(Q, K, V, 1.0, CAUSAL)
    for index, words in (((0,), "item 0 of the batch"), ((slice(None), 2), "head 2")):
        some = right.copy()
        some[index] = mine[index]
        found = check_left_out(some, "no_rel_bias", **call)
        assert f"the bias left out, in {words} alone" in found.verdict


@pytest.mark.parametrize("name", ["three tables", "Transformer-XL", "two labelled"])
def test_all_position_terms(name):
    mine = plain(Q, K, V, CALLS[name].get("scale", D**-0.5))
    check_left_out(mine, "no_positions", **CALLS[name])


def test_fire():
    call = {"scheme": "fire_attention", **FIRE}
    check_left_out(plain(Q, K, V), "no_fire", **call)
    check_left_out(plain(Q, K, V, see=CAUSAL), "no_fire", **call, is_causal=True)
    mask = RNG.random((L, L)) < 0.7
    see = np.where(mask, 0.25, -np.inf)
    mine = relpos.attention(Q, K, V, attn_mask=see)
    check_left_out(mine, "no_fire", **call, attn_mask=see)


def test_numbers_of_a_mask():
    bias, see = RNG.standard_normal((H, L, L)), CAUSAL
    check_left_out(plain(Q, K, V), "no_mask_numbers", attn_mask=bias)
    mask = np.where(see, bias, -np.inf)
    mine = plain(Q, K, V, see=see)
    check_left_out(mine, "no_mask_numbers", attn_mask=mask)
    found = check_left_out(plain(Q, K, V), "no_mask_numbers", attn_mask=mask)
    assert "the mask left out, with its numbers" in found.verdict


def test_the_rotation():
    found = check_left_out(plain(Q, K, V), "no_rotary", scheme="rotary")
    assert found.verdict.startswith(
        "equals relpos.attention after relpos.apply_rotary with the rotation left out"
    )


@pytest.mark.parametrize("scheme", [x for known in SCHEMES for x in known.names])
def test_a_verdict_names_functions_of_relpos(scheme):
    with suppress(ValueError, TypeError):  # without scores, or with operands
        found = relpos.diagnose(plain(Q, K, V), Q, K, V, scheme=scheme)
        for name in re.findall(r"relpos\.(\w+)", found.verdict):
            assert callable(getattr(relpos, name)), found.verdict


def test_right_ones_with_a_table_that_does_nothing_are_the_same():
    for call in CALLS.values():
        if "log_decay" not in call:
            mine = relpos.attention(Q, K, V, **call)
            assert relpos.diagnose(mine, Q, K, V, **call).kind == "same"


# ---- which options belong to which operand -------------------------------------------


def test_what_is_refused_without_an_operand_goes_with_it():
    """Ask attention which of its arguments it refuses in a call without operands."""
    arguments = {
        "labels": LABELS,
        "buckets": REACH,
        "min_relative_position": 1 - L,
        "pos_bias_v": W,
        "position_query": Q,
    }
    refused = set()
    for name in inspect.signature(attention).parameters.keys() & arguments.keys():
        with pytest.raises(ValueError, match=f"^{name}: given without"):
            relpos.attention(Q, K, V, **{name: arguments[name]})
        refused.add(name)
    assert refused == arguments.keys()
    assert NEEDED.keys() == refused | {"beyond"}
    assert {*PLACING} - {"query_offset"} <= NEEDED.keys()


@pytest.mark.parametrize("name", CALLS)
def test_every_operand_can_be_left_out(name):
    call = CALLS[name] | ({"is_causal": True} if name == "decay" else {})
    start = begin(None, Q, K, V, "outputs", call)
    rows = {row.name: row for row in DIFFERENCES}
    for operand in OPERANDS.keys() & call.keys() & NUMBERS:
        attempt, *_ = rows[f"no_{operand}"].attempts(start)
        assert attempt.left_out == (operand,)
        wanted = relpos.attention(Q, K, V, **_placed(without(call, operand), call))
        assert np.allclose(evaluate(attempt).result, wanted, rtol=1e-10, atol=1e-12)


def _placed(kept, call):
    """Return a call in which a centred bias stays centred without the keys."""
    if "rel_bias" in kept and "rel_key" in call and "rel_key" not in kept:
        kept.pop("min_relative_position", None)
    return kept


def test_each_operand_of_the_scores_has_a_row():
    names = {row.name for row in DIFFERENCES}
    assert {f"no_{operand}" for operand in NUMBERS} <= names
    assert B == 2  # batches are tried above
