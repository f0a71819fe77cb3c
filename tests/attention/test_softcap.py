"""A cap on the scores, c tanh(x / c): its numbers, and gradients through its slope."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_problems import check, run
from graph_problems import (
    BOTH,
    agree,
    dense,
    problem as graph_problem,
    run as run_graph,
)
from problems import DTYPES, cast, normal, tokens
from tolerances import assert_bitwise, assert_close

import relpos

H = 2
#: Lq, Lk and tables, each for another engine.
ENGINES = {
    "tiles": (70, 90, {}),
    "bands": (
        70,
        90,
        {"rel_key": (161, 6), "rel_value": (161, 5), "rel_query": (161, 6)},
    ),
    "short tables": (70, 90, {"rel_key": (5, 6), "rel_value": (5, 5)}),
    "rows": (3, 1500, {"rel_key": (9, 6)}),
    "labels": (20, 30, {"rel_query": (4, 6), "rel_key": (4, 6)}),
}
every_engine = pytest.mark.parametrize("engine", ENGINES)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def problem(engine, bias=True, seed=1):
    """Inputs in float64 and settings."""
    rng = np.random.default_rng(seed)
    lq, lk, more = ENGINES[engine]
    inputs = tokens(rng, (2,), H, lq, lk, 6, 5)
    inputs |= {name: normal(rng, *shape) for name, shape in more.items()}
    inputs["pos_bias_u"] = normal(rng, H, 6)
    if "rel_key" in more:
        inputs["pos_bias_v"] = normal(rng, 6)
    settings = {"query_offset": lk - lq}
    if engine == "labels":
        settings = {"labels": rng.integers(-1, 4, (lq, lk))}
    if bias:
        rows = 4 if engine == "labels" else next(iter(more.values()), (161,))[0]
        inputs["rel_bias"] = normal(rng, H, rows)
        mask = normal(rng, lq, lk)
        mask[rng.random(mask.shape) < 0.2] = -np.inf
        inputs["attn_mask"] = mask
    return inputs, settings


@every_engine
@both_dtypes
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("cap", [0.7, 30.0])
def test_caps_are_those_of_the_oracle(isa, engine, dtype, bias, cap):
    inputs, settings = problem(engine, bias)
    settings["softcap"] = cap
    check(inputs, settings, dtype, terms=100)


def capped(x, cap, dtype):
    """The cap of numbers x, from the lse of a row with one key."""
    x = np.asarray(x, dtype)
    ones = np.ones((x.size, 1, 1), dtype)
    got = relpos.attention(
        x.reshape(-1, 1, 1), ones, ones, scale=1.0, softcap=cap, return_lse=True
    )
    return got.lse[:, 0]


@both_dtypes
@pytest.mark.parametrize("cap", [1.0, 30.0, 50.0])
def test_the_cap_is_exact_to_a_few_roundings(isa, dtype, cap):
    """Three of them are of the units of log 2 that scores are kept in."""
    x = (cap * np.geomspace(1e-6, 20, 4001)).astype(dtype)
    want = np.longdouble(cap) * np.tanh(x.astype(np.longdouble) / cap)
    got = capped(x, cap, dtype)
    ulps = np.abs(got - want) / np.spacing(want.astype(dtype))
    assert ulps.max() <= 4
    assert (np.diff(got) >= -2 * np.spacing(got[1:])).all()
    assert (got <= cap * (1 + np.finfo(dtype).eps)).all()
    assert_bitwise(capped(-x, cap, dtype), -got)


@both_dtypes
@pytest.mark.parametrize("lq", [1, 40])
def test_a_far_logit_leaves_the_bits_of_near_ones_in_its_row(isa, dtype, lq):
    """Rows of small logits take another path: here the same row does, and does not."""
    rng = np.random.default_rng(4)
    query, key, value = (normal(rng, 1, n, 6).astype(dtype) for n in (lq, 300, 300))
    seen = np.ones((lq, 300), bool)
    seen[:, 77] = False
    near, far = key.copy(), key.copy()
    near[:, 77], far[:, 77] = 0, 1e3
    got, want = (
        relpos.attention(query, k, value, seen, softcap=30.0, return_lse=True)
        for k in (far, near)
    )
    assert_bitwise(got.out, want.out)
    assert_bitwise(got.lse, want.lse)


@both_dtypes
def test_zeros_infinities_and_nan(isa, dtype):
    got = capped([0.0, -0.0, np.inf, -np.inf, np.nan], 30.0, dtype)
    assert (got[:2] == 0).all() and np.isnan(got[4])
    np.testing.assert_allclose(got[2:4], [30.0, -30.0], rtol=1e-6)


@both_dtypes
@pytest.mark.parametrize("hidden", [np.nan, np.inf])
@pytest.mark.parametrize("by", ["attn_mask", "rel_bias"])
@pytest.mark.parametrize(("lq", "lk"), [(1, 2), (1, 5), (2, 7), (3, 19), (6, 35)])
def test_what_is_hidden_changes_no_bit(isa, dtype, hidden, by, lq, lk):
    """Large logits and a hidden one among the last keys, which fill no vector."""
    rng = np.random.default_rng(5)
    query, key, value, grad = (normal(rng, 1, n, 3) for n in (lq, lk, lk, lq))
    key[:, -3:] *= 100
    for at in range(max(lk - 4, 0), lk):
        mask = np.arange(lk) != at
        terms = {"attn_mask": mask}
        if by == "rel_bias":
            terms = {"rel_bias": [0.0, -np.inf], "labels": np.where(mask, 0, 1)[None]}
        found = []
        for number in (0.0, hidden):
            keys = np.where(mask[:, None], key, number)
            inputs = {"query": query, "key": keys, "value": value}
            got = run(inputs, terms, dtype, softcap=2.0)
            found.append([*got[:3], *got.context.backward(grad.astype(dtype))[:3]])
        for x, y in zip(*found, strict=True):
            assert np.isfinite(y).all()
            assert_bitwise(y, x)


@both_dtypes
def test_a_cap_far_above_is_none_and_one_far_below_makes_all_equal(dtype):
    inputs, settings = problem("tiles")
    plain = run(inputs, settings, dtype)
    far = run(inputs, settings | {"softcap": 1e30}, dtype)
    assert_close(far.out, plain.out, "same_formula")
    low = run(inputs, settings | {"softcap": 1e-30}, dtype)
    inputs["query"] = 0 * inputs["query"]
    inputs["pos_bias_u"] = 0 * inputs["pos_bias_u"]
    equal = run(inputs, settings, dtype)
    assert_close(low.out, equal.out, "same_formula")


@both_dtypes
def test_along_the_edges_of_a_graph(isa, dtype):
    inputs, edges = graph_problem("both")
    inputs["sinks"] = np.array([0.5, -1.0])
    want = relpos.attention(**inputs, **dense(inputs, edges), softcap=0.7, **BOTH)
    got = run_graph(cast(inputs, dtype), edges, softcap=0.7, **BOTH)
    agree(got, want, "forward", "gradient")
