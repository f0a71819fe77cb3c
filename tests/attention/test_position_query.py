"""A query of rel_key's own: `position_query`, as of Inkling, Zipformer and WavLM."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_problems import Problem, check_everywhere
from problems import DTYPES, PATHS, check, normal, qkv
from tolerances import assert_close

import relpos

WIDTHS = [1, 4, 16, 23, 80]
SHAPES = [*PATHS, (70, 600)]
#: Rows of rel_key, and how a pair finds its own.
PLACES = {
    "few rows": (9, {}),
    "a band": (601, {}),
    "zero beyond": (9, {"beyond": "zero"}),
    "a past": (33, {"min_relative_position": -32, "beyond": "zero", "is_causal": True}),
    "buckets": (3, {"buckets": np.arange(41) % 3}),
}
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
everywhere = pytest.mark.parametrize("place", PLACES)


def problem(lq, lk, dp, rows, batch=(2,), heads=2, d=24, *, table=()):
    """(query, key, value) and the keywords of a call whose queries are the last."""
    rng = np.random.default_rng([lq, lk, dp, rows])
    inputs = qkv(rng, batch, heads, lq, lk, d, 17)
    return inputs, {
        "position_query": normal(rng, *batch, heads, lq, dp, scale=max(dp, 1) ** -0.5),
        "rel_key": normal(rng, *table, rows, dp),
        "query_offset": lk - lq,
    }


def named(inputs, keywords, **more):
    """All of a call by name."""
    return dict(zip(("query", "key", "value"), inputs, strict=True)) | keywords | more


# ---- the formula ---------------------------------------------------------------------


@everywhere
@both_dtypes
@pytest.mark.parametrize("dp", WIDTHS)
@pytest.mark.parametrize(("lq", "lk"), SHAPES)
def test_forward(isa, dtype, lq, lk, dp, place):
    rows, settings = PLACES[place]
    inputs, keywords = problem(lq, lk, dp, rows)
    check(inputs, keywords | settings, dtype)


@everywhere
@pytest.mark.parametrize("dp", [1, 4, 16, 23])
@pytest.mark.parametrize(("lq", "lk"), SHAPES)
def test_gradients(lq, lk, dp, place):
    rows, settings = PLACES[place]
    rng = np.random.default_rng([lq, dp])
    arrays, keywords = problem(lq, lk, dp, rows, table=(2,))
    keywords |= {"pos_bias_u": normal(rng, 24), "pos_bias_v": normal(rng, 2, dp)}
    settings = settings | {"query_offset": keywords.pop("query_offset")}
    check_everywhere(Problem.drawn(rng, named(arrays, keywords), settings))


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_tiles_beyond_a_band(causal, values):
    """Tiles of pairs that have no term at all, before the table and behind it."""
    rng = np.random.default_rng(causal)
    arrays, keywords = problem(200, 1400, 3, 301, batch=(), table=(2,))
    keywords["pos_bias_v"] = normal(rng, 2, 3)
    if values:
        keywords["rel_value"] = normal(rng, 301, 17)
    keywords.pop("query_offset")
    settings = {"beyond": "zero", "is_causal": causal, "query_offset": 600}
    check_everywhere(Problem.drawn(rng, named(arrays, keywords), settings))
    for dtype in DTYPES:
        check(arrays, keywords | settings, dtype)


def test_it_is_the_padded_form():
    """A query of D + Dp columns, whose last are for the table alone, says the same."""
    inputs, keywords = problem(40, 300, 16, 9)
    position, table = keywords["position_query"], keywords["rel_key"]
    scale = 24**-0.5
    query, key = (np.pad(x, ((0, 0),) * 3 + ((0, 16),)) for x in inputs[:2])
    padded = np.pad(table, ((0, 0), (24, 0)))
    shifted = query + np.pad(position / scale, ((0, 0),) * 3 + ((24, 0),))
    want = relpos.attention(
        shifted, key, inputs[2], rel_key=padded, scale=scale, query_offset=260
    )
    assert_close(relpos.attention(*inputs, **keywords), want, "same_formula")


def test_rel_query_keeps_the_scale_and_its_columns():
    inputs, keywords = problem(40, 300, 5, 9)
    rng = np.random.default_rng(0)
    keywords |= {"rel_query": normal(rng, 2, 9, 24), "rel_value": normal(rng, 9, 17)}
    for dtype in DTYPES:
        check(inputs, keywords, dtype)


@pytest.mark.parametrize("table", [(), (2,)])
def test_labels_that_tiles_do_not_take(isa, table):
    """More labels than a product with all of them pays for."""
    arrays, keywords = problem(20, 30, 3, 5000, table=table)
    del keywords["query_offset"]
    rng = np.random.default_rng(1)
    labels = {"labels": rng.integers(-1, 5000, (20, 30))}
    keywords["pos_bias_v"] = normal(rng, 2, 3)
    for dtype in DTYPES:
        check(arrays, keywords | labels, dtype)
    check_everywhere(Problem.drawn(rng, named(arrays, keywords), labels))


@both_dtypes
def test_query_heads_that_share_a_key_head(isa, dtype):
    """The position query has a row for each query head."""
    inputs, keywords = problem(40, 300, 5, 9, heads=4)
    query, key, value = inputs
    keywords["enable_gqa"] = True
    check((query, key[:, :2], value[:, :2]), keywords, dtype)


def test_without_columns_there_is_no_term():
    inputs, keywords = problem(40, 70, 0, 9)
    result = relpos.attention(*inputs, **keywords, return_context=True)
    assert_close(result.out, relpos.attention(*inputs), "same_formula")
    gradients = result.context.backward(np.ones_like(result.out))
    assert gradients.position_query.shape == (2, 2, 40, 0)
    assert gradients.rel_key.shape == (9, 0)


# ---- hidden pairs --------------------------------------------------------------------


@pytest.mark.parametrize("dp", [3, 16])
@pytest.mark.parametrize(("lq", "lk"), SHAPES)
def test_what_is_hidden_may_be_nan(isa, lq, lk, dp):
    """A padded query's position query, with no gradient, and rows that no pair uses."""
    inputs, keywords = problem(lq, lk, dp, 2 * lk + 1)
    rng = np.random.default_rng(6)
    arguments = named(inputs, keywords, is_causal=True)
    poisoned = arguments | {n: arguments[n].copy() for n in keywords if "q" not in n}
    poisoned["rel_key"][lk + 1 :] = np.nan  # the future
    poisoned["position_query"] = keywords["position_query"].copy()
    poisoned["position_query"][:, :, -1] = np.nan
    grad = normal(rng, 2, 2, lq, 17)
    grad[:, :, -1] = 0
    results = []
    for given in (arguments, poisoned):
        result = relpos.attention(**given, return_context=True)
        results.append((result.out, result.context.backward(grad)))
    (want, exact), (got, found) = results
    assert_close(got[:, :, :-1], want[:, :, :-1], "same_formula")
    for name in ("query", "key", "value", "rel_key", "position_query"):
        assert np.isfinite(getattr(found, name)).all(), name
        assert_close(getattr(found, name), getattr(exact, name), "gradient")
