"""relpos.scores: the logits whose softmax the weights are, whole and term by term."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from bad_attention import KINDS, LENGTHS, LONGER, NUMBERS, OUTSIDE, SHAPES, TOKENS
from layouts import LAYOUTS
from oracle import of_queries
from problems import normal, qkv
from random_problems import check_examples, runs
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos
from relpos._attention import keywords as tables_of_keywords

#: In the order of the mapping.
TERMS = (
    "content",
    "pos_bias_u",
    "rel_key",
    "pos_bias_v",
    "position_query",
    "rel_query",
    "softcap",
    "rel_bias",
    "log_decay",
    "mask",
)


def softmax(logits, sinks=-np.inf):
    """Weights and lse in float64; nothing where a row is hidden.

    sinks: a further logit of each row, whose weight is not returned.
    """
    logits = logits.astype(np.float64)
    sinks = np.broadcast_to(of_queries(sinks)[..., None], (*logits.shape[:-1], 1))
    logits = np.concatenate([logits, sinks], axis=-1)
    top = logits.max(-1, keepdims=True)
    parts = np.exp(logits - np.where(np.isinf(top), 0.0, top))
    sums = parts.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(np.isinf(top), 0.0, top) + np.log(sums)
    return (parts / np.where(sums == 0, 1.0, sums))[..., :-1], lse[..., 0]


def asked(given_inputs, others):
    """The arguments of `scores` in those of a call of attention."""
    arguments = given_inputs | others
    return {name: x for name, x in arguments.items() if name not in ("value", "rng")}


def check(run):
    """The softmax of the logits are the weights, and the terms are their sum."""
    problem = run.problem.cast(run.dtype)
    change = LAYOUTS.get(run.layout, np.asarray)
    inputs = {name: change(x) for name, x in problem.inputs.items()}
    want = relpos.attention(
        **inputs, **problem.settings, return_weights=True, return_lse=True
    )
    arguments = asked(inputs, problem.settings)
    logits = relpos.scores(**arguments)
    defined = relpos.reference.scores(**arguments)  # without rel_value's batch axes
    assert_close(logits, np.broadcast_to(defined, logits.shape), "forward")
    parts = relpos.scores(**arguments, terms=True)
    assert [*parts] == [name for name in TERMS if name in parts]
    assert {x.dtype for x in (logits, *parts.values())} == {np.dtype(run.dtype)}
    logits_of_all = np.broadcast_to(logits, want.weights.shape)
    weights, lse = softmax(logits_of_all, inputs.get("sinks", -np.inf))
    assert_close(want.weights, weights, "forward")
    assert_lse_close(want.lse, lse)
    for part in parts.values():
        assert part.shape == logits.shape and part.flags.writeable
    assert_close(sum(parts.values()), logits, "forward")
    assert all(np.isfinite(x).all() for n, x in parts.items() if n != "mask")


def test_random_problems(examples):
    check_examples(runs(), check, examples // 4)


# ---- each term -----------------------------------------------------------------------


def problem(rng, *, batch=(2,), heads=4, key_heads=2, lq=4, lk=6, d=3):
    query, key, _ = qkv(rng, batch, heads, lq, lk, d, key_heads=key_heads)
    return {
        "query": query,
        "key": key,
        "enable_gqa": True,
        "query_offset": np.array([1, -1]),
        "rel_key": normal(rng, heads, 5, d),
        "rel_query": normal(rng, 5, d),
        "rel_bias": normal(rng, heads, 7),
        "pos_bias_u": normal(rng, heads, d),
        "pos_bias_v": normal(rng, d),
        "log_decay": normal(rng, *batch, heads, lk),
        "attn_mask": normal(rng, lq, lk),
        "key_lengths": [6, 4],
        "window": (3, None),
        "is_causal": True,
        "scale": 0.3,
        "beyond": "zero",
    }


def dot(a, b):
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def loops(x):
    """Each term of `problem`, a pair at a time, from the formula."""
    batch, heads, lq, _ = x["query"].shape
    lk = x["key"].shape[-2]
    position_query = x.get("position_query")
    absent = "position_query" if position_query is None else "rel_key"
    names = [name for name in TERMS if name not in (absent, "softcap")]
    terms = {name: np.zeros((batch, heads, lq, lk)) for name in names}
    for b, h, i, j in np.ndindex(batch, heads, lq, lk):
        at, q, k = (b, h, i, j), x["query"][b, h, i], x["key"][b, h // 2, j]
        r = j - i - x["query_offset"][b]
        terms["content"][at] = 0.3 * dot(q, k)
        terms["pos_bias_u"][at] = 0.3 * dot(x["pos_bias_u"][h], k)
        if -2 <= r <= 2:
            a, c = x["rel_key"][h, r + 2], x["rel_query"][r + 2]
            if position_query is None:
                terms["rel_key"][at] = 0.3 * dot(q, a)
            else:
                terms["position_query"][at] = dot(position_query[b, h, i], a)
            factor = 0.3 if position_query is None else 1.0
            terms["pos_bias_v"][at] = factor * dot(x["pos_bias_v"], a)
            terms["rel_query"][at] = 0.3 * dot(k, c)
        if -3 <= r <= 3:
            terms["rel_bias"][at] = x["rel_bias"][h, r + 3]
        steps = x["log_decay"][b, h, j + 1 : j - r + 1]
        terms["log_decay"][at] = sum(map(float, steps))
        seen = -3 <= r <= 0 and j < x["key_lengths"][b]
        terms["mask"][at] = x["attn_mask"][i, j] if seen else -np.inf
    return terms


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("with_position_query", [False, True])
def test_each_term_is_the_loops(dtype, with_position_query):
    rng = np.random.default_rng(1)
    x = problem(rng)
    if with_position_query:
        x["rel_key"], x["pos_bias_v"] = normal(rng, 4, 5, 2), normal(rng, 2)
        x["position_query"] = normal(rng, 2, 4, 4, 2)
    arguments = {
        n: v.astype(dtype) if getattr(v, "dtype", None) == np.float64 else v
        for n, v in x.items()
    }
    got, want = relpos.scores(**arguments, terms=True), loops(x)
    assert [*got] == [*want]
    for name, part in want.items():
        assert got[name].dtype == dtype
        assert_close(got[name], part, "forward")
    assert_close(relpos.scores(**arguments), sum(want.values()), "forward")


def test_terms_are_those_of_the_call():
    q, k, _ = qkv(np.random.default_rng(2), (), 2, 4, 4, 3)
    assert [*relpos.scores(q, k, terms=True)] == ["content"]
    assert [*relpos.scores(q, k, terms=True, window=(None, None))] == ["content"]
    for hides in (
        {"is_causal": True},
        {"window": (9, None)},
        {"key_lengths": 4},
        {"attn_mask": np.ones((4, 4), bool)},
        {"attn_mask": np.zeros((4, 4))},
    ):
        assert [*relpos.scores(q, k, terms=True, **hides)] == ["content", "mask"]
    found = relpos.scores(q, k, terms=True, rel_bias=[-np.inf, 0.0, 1.0])
    assert [*found] == ["content", "rel_bias", "mask"]
    hidden = np.tril(np.ones((4, 4), bool), -1)
    assert np.array_equal(np.isneginf(found["mask"][0]), hidden)
    assert np.array_equal(found["rel_bias"][1], np.triu(np.ones((4, 4)), 1))


def test_schemes_scores_are_their_products():
    rng = np.random.default_rng(3)
    q, k, _ = qkv(rng, (2,), 2, 5, 7, 4)
    table, u, v = normal(rng, 2, 13, 4), normal(rng, 2, 4), normal(rng, 4)
    origin = {"rel_key": table, "min_relative_position": -6, "query_offset": 2}
    got = relpos.scores(q, k, **origin, pos_bias_u=u, pos_bias_v=v, beyond="zero")
    assert_close(got, relpos.transformer_xl_scores(q, k, table, u, v), "forward")
    shaw = relpos.shaw_scores(q, k, table[:, :5], query_offset=2)
    got = relpos.scores(q, k, rel_key=table[:, :5], query_offset=2)
    assert_close(got, shaw, "forward")


def test_fire_is_a_mask():
    rng = np.random.default_rng(4)
    q, k, v = qkv(rng, (), 2, 5, 5, 4)
    network = (
        normal(rng, 3),
        normal(rng, 3),
        normal(rng, 2, 3),
        normal(rng, 2),
        1.5,
        2.0,
    )
    bias = relpos.fire_bias(*network, 5)
    parts = relpos.scores(q, k, attn_mask=bias, terms=True)
    assert_bitwise(parts["mask"], bias)
    want = relpos.fire_attention(q, k, v, *network, return_weights=True).weights
    assert_close(softmax(sum(parts.values()))[0], want, "forward")


# ---- numbers -------------------------------------------------------------------------


def test_float16_is_computed_in_float32():
    rng = np.random.default_rng(5)
    q, k, v = (x.astype(np.float16) for x in qkv(rng, (), 2, 6, 6, 4))
    table = normal(rng, 7, 4).astype(np.float16)
    parts = relpos.scores(q, k, rel_key=table, is_causal=True, terms=True)
    assert {x.dtype for x in parts.values()} == {np.dtype(np.float32)}
    wide = (x.astype(np.float32) for x in (q, k))
    same = relpos.scores(*wide, rel_key=table.astype(np.float32), is_causal=True)
    assert_bitwise(relpos.scores(q, k, rel_key=table, is_causal=True), same)
    want = relpos.attention(
        q, k, v, rel_key=table, is_causal=True, return_weights=True
    ).weights
    assert_close(want, softmax(same)[0], "forward")


def test_a_mask_does_not_promote_and_a_table_does():
    q, k, _ = (
        x.astype(np.float32) for x in qkv(np.random.default_rng(6), (), 1, 3, 3, 2)
    )
    mask = np.full((3, 3), -1e300)
    parts = relpos.scores(q, k, attn_mask=mask, terms=True)
    assert parts["mask"].dtype == np.float32 and np.isfinite(parts["mask"]).all()
    for promotes in ({"rel_bias": np.zeros(5)}, {"rel_value": np.zeros((5, 7))}):
        assert relpos.scores(q, k, **promotes).dtype == np.float64


def test_finite_numbers_hide_nothing():
    """Masks of finfo.min are what many use for -inf: a row of them is uniform."""
    q, k, v = (
        x.astype(np.float32) for x in qkv(np.random.default_rng(7), (), 1, 2, 3, 2)
    )
    least = np.finfo(np.float32).min
    both = {"attn_mask": np.full((2, 3), least), "rel_bias": np.full(5, least)}
    logits = relpos.scores(q, k, **both, query_offset=0)
    assert np.isfinite(logits).all()
    want = relpos.attention(q, k, v, **both, query_offset=0, return_weights=True)
    assert_close(want.weights, softmax(logits)[0], "forward")


HUGE, LARGE = np.float32([[[1e20, 1e20]]]), np.float32([[[1e19, -1e19]]])


@pytest.mark.parametrize(
    ("query", "key", "others"),
    [
        (HUGE, LARGE, {"scale": 1e-3}),
        (0 * HUGE, LARGE, {"scale": 1e-3, "pos_bias_u": HUGE[0]}),
        (HUGE, 0 * LARGE, {"scale": 1e-3, "rel_key": LARGE[0]}),
        (0 * HUGE, HUGE, {"scale": 1e-3, "pos_bias_v": HUGE[0], "rel_key": LARGE[0]}),
        (HUGE / 1e15, HUGE / 1e15, {"softcap": 50.0}),
        (HUGE, HUGE, {"softcap": 50.0}),
        (np.full((1, 1, 1), 1e8), np.full((1, 1, 1), 1e8), {"softcap": 5.0}),
    ],
)
def test_large_logits_are_those_of_attention(query, key, others):
    want = relpos.attention(query, key, key, return_lse=True, **others).lse
    got = relpos.scores(query, key, **others)
    np.testing.assert_allclose(got[..., 0], want, rtol=1e-6)
    if "softcap" in others:
        with pytest.raises(ValueError, match=r"^terms: got True where, under softcap="):
            relpos.scores(query, key, **others, terms=True)
        hidden = relpos.scores(query, key, **others, terms=True, key_lengths=0)
        assert np.isneginf(sum(hidden.values())).all()


def test_what_is_hidden_may_be_anything():
    rng = np.random.default_rng(8)
    q, k, _ = qkv(rng, (), 2, 5, 5, 3)
    table = normal(rng, 9, 3)
    clean = relpos.scores(q, k, rel_key=table, key_lengths=3)
    k[:, 3:], k[0, 3, 0] = np.nan, np.inf
    with np.errstate(all="raise"):
        parts = relpos.scores(
            q, k, rel_key=table, rel_query=table, key_lengths=3, terms=True
        )
        logits = relpos.scores(q, k, rel_key=table, key_lengths=3)
    assert_bitwise(logits, clean)
    assert all(np.isfinite(x).all() for n, x in parts.items() if n != "mask")
    assert np.isneginf(parts["mask"][..., 3:]).all()
    assert np.isnan(relpos.scores(q, k)[..., 4]).all()


def test_the_inputs_stay_as_they_are():
    x = problem(np.random.default_rng(9))
    before = {n: v.copy() for n, v in x.items() if isinstance(v, np.ndarray)}
    relpos.scores(**x, terms=True)["content"][...] = 7.0
    for name, value in before.items():
        assert_bitwise(x[name], value)


@pytest.mark.parametrize(
    ("lq", "lk", "d"), [(0, 3, 2), (3, 0, 2), (3, 3, 0), (0, 0, 0)]
)
def test_empty(lq, lk, d):
    q, k = np.ones((2, lq, d)), np.ones((2, lk, d))
    table, bias = np.ones((3, d)), np.ones(3)
    arguments = {"rel_key": table, "rel_query": table, "rel_bias": bias, "scale": 1.0}
    parts = relpos.scores(q, k, **arguments, query_offset=0, is_causal=True, terms=True)
    assert {x.shape for x in parts.values()} == {(2, lq, lk)}
    assert not parts["content"].any()


# ---- what is refused -----------------------------------------------------------------

#: Of the bad calls of attention, those whose fault is nothing to the logits.
NOT_OF_SCORES = ("value", "out", "return_lse", "return_weights", "return_context")


def message_of(call, arguments):
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        call(**arguments)
    return caught.type, str(caught.value)


#: Good arguments of attention, and changes that it refuses.
REFUSED = [
    *((TOKENS, *row) for row in [*KINDS, *NUMBERS, *SHAPES, *OUTSIDE]),
    *((LONGER, *row) for row in LENGTHS),
]


def concerns_scores(good, changes, error, pattern):
    """Return True if the fault of a bad call is a fault of `scores`, too."""
    name = pattern[1:].partition(":")[0]
    about_value = "value" in changes and not {"key", "query"} & {*changes}
    columns = name == "rel_value" and "head_dim" in pattern
    results = {name, *changes} & {*NOT_OF_SCORES[1:]}
    return name != "value" and not about_value and not columns and not results


@pytest.mark.parametrize(
    ("good", "changes"), [row[:2] for row in REFUSED if concerns_scores(*row)]
)
def test_what_attention_refuses_is_refused_in_the_same_words(good, changes):
    given = good | changes
    tokens = {n: x for n, x in given.items() if n != "value"}
    assert message_of(relpos.scores, tokens) == message_of(relpos.attention, given)


@pytest.mark.parametrize("name", [*NOT_OF_SCORES, "rel_keys"])
def test_other_keywords_are_refused(name):
    x = np.ones((1, 2, 2))
    with pytest.raises(TypeError, match=rf"^{name}: got an unexpected .* '{name}'"):
        relpos.scores(x, x, **{name: None})


@pytest.mark.parametrize("terms", [None, 1, "all", np.ones(2, bool)])
def test_terms_is_a_flag(terms):
    x = np.ones((1, 2, 2))
    with pytest.raises(TypeError, match=r"^terms: got .*expected True or False"):
        relpos.scores(x, x, terms=terms)


def test_what_no_memory_can_hold_is_refused_first():
    long = np.broadcast_to(np.float32(1), (2**20, 1, 2**22, 1))
    with pytest.raises(ValueError, match=r"scores: shape .* more bytes than memory"):
        relpos.scores(long, long)


def test_its_keywords_are_those_of_attention():
    """Type checkers and help show the same keywords."""
    told = {*tables_of_keywords.ScoresKeywords.__annotations__}
    parameters = inspect.signature(relpos.scores).parameters
    passed = {*inspect.signature(relpos.attention).parameters} - {*NOT_OF_SCORES}
    assert {*parameters} == passed | {"terms"}
    assert told == passed - {"query", "key"}
    kinds = {parameters[name].kind for name in told}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(("dtype", "least"), [("float32", -100), ("float64", -980)])
@pytest.mark.parametrize("keys", [2, 40])
def test_weights_far_below_the_largest_are_zero(isa, dtype, least, keys):
    """As docs/limits.md says: below 2^-100 of the row's largest, or 2^-980."""
    query, key, value = (np.zeros((1, keys, 4), dtype) for _ in range(3))
    mask = np.full((keys, keys), -np.inf, dtype)
    mask[:, 0] = 0
    for exponent, is_zero in ((least + 1, False), (least - 1, True)):
        mask[:, -1] = exponent * np.log(2)
        out = relpos.attention(query, key, value, mask, return_weights=True)
        assert (out.weights[..., -1] == 0).all() == is_zero
        assert (out.weights[..., -1] > 0).all() != is_zero


def test_a_number_as_rel_value_is_refused_by_its_name(rng):
    query, key, _ = qkv(rng, (), 2, 5, 5, 4)
    with pytest.raises(ValueError, match=r"^rel_value: "):
        relpos.scores(query, key, rel_value=np.nan)
