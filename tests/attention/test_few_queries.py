"""Few queries: keys, values and tables are read where they lie.

Keys are scored 512 at a time, and split into as many spans, whose results are merged.
"""

from __future__ import annotations

import functools

import dense_oracle
import numpy as np
import pytest
from layouts import LAYOUTS
from problems import DTYPES, cast, check_all, known, normal, qkv, run, terms
from tolerances import (
    assert_bitwise,
    assert_results_bitwise,
    assert_results_close,
)

import relpos

pytestmark = pytest.mark.usefixtures("strict_floats")
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


# ---- rows of any width ---------------------------------------------------------------

# Dot products take one or two vectors of 2 to 16 columns at a time, weighted sums four
# or up to eight, and what is left by itself.
WIDTHS = (1, 3, 8, 16, 17, 24, 32, 40, 48, 63, 64, 65, 72, 96, 130)


@pytest.mark.sanitized
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_any_width(isa, width):
    for d, dv in ((width, 8), (16, width)):
        check_all(*known((d, dv), "shaw", (), 2, 3, 37, d, dv, offset=20))


@pytest.mark.parametrize("lk", [1, 2, 15, 16, 17, 33, 511, 512, 513, 1023, 1025])
def test_any_number_of_keys(isa, lk):
    sizes = (), 1, 8, lk, 32, 64
    check_all(*known(lk, "everything", *sizes, offset=lk // 2, k=9))


@both_dtypes
@pytest.mark.parametrize("key", [3, 700, 1099])
def test_one_key_may_outweigh_all_others_in_any_span(isa, dtype, key):
    """Exponents are taken from the largest logit of all spans."""
    rng = np.random.default_rng(key)
    keys = np.zeros((1, 1100, 1), dtype)
    keys[0, key] = 1000
    values = normal(rng, 1, 1100, 3).astype(dtype)
    query = np.ones((1, 1, 1), dtype)
    got = relpos.attention(query, keys, values, scale=1.0, return_lse=True)
    assert_bitwise(got.out[0, 0], values[0, key])
    assert_bitwise(got.lse, np.full((1, 1), 1000, dtype))


# Rows of a key head meet a piece of keys in parts of up to four; more than 16 of them
# are cut into even blocks.
ROWS_OF_A_HEAD = [(lq, 1) for lq in range(1, 10)] + [(12, 1), (13, 1), (17, 1)]
ROWS_OF_A_HEAD += [(1, 4), (2, 3), (3, 4), (8, 2), (8, 3), (7, 5)]


@pytest.mark.sanitized
@pytest.mark.parametrize("window", [None, (70, 5)])
@pytest.mark.parametrize("kind", ["plain", "shaw", "xl", "everything"])
def test_rows_that_share_keys(isa, kind, window):
    settings = {"key_heads": 2, "offset": 570, "k": 40, "window": window}
    for lq, group in ROWS_OF_A_HEAD:
        settings |= {"is_causal": True, "enable_gqa": group > 1}
        sizes = (), 2 * group, lq, 600, 64, 72
        check_all(*known((lq, group), kind, *sizes, **settings))


@pytest.mark.devmode  # a newer gcc has failed it
@both_dtypes
@pytest.mark.parametrize(
    ("lq", "group"), [(1, 3), (1, 4), (1, 5), (2, 3), (3, 4), (7, 5)]
)
def test_rows_of_other_heads_change_no_bits(isa, dtype, lq, group):
    """A row has the same bits whichever rows the kernel computes together with it."""
    rng = np.random.default_rng(lq)
    shape = (), group, lq, 700, 64, 72
    q, k, v = (x.astype(dtype) for x in qkv(rng, *shape, key_heads=1))
    keywords = {"query_offset": 600, "is_causal": True}
    table = normal(rng, 1, 9, 72).astype(dtype)
    want = run(q, k, v, rel_value=table, enable_gqa=True, **keywords)
    for head in range(group):
        for row in range(lq):
            keywords["query_offset"] = 600 + row
            alone = q[head : head + 1, row : row + 1]
            got = run(alone, k, v, rel_value=table, **keywords)
            assert_bitwise(got.out[0, 0], want.out[head, row])
            assert_bitwise(got.lse[0, 0], want.lse[head, row])


@pytest.mark.parametrize("lq", [8, 9, 12, 13, 16, 17])
def test_more_queries_of_many_keys(isa, lq):
    """The number that `rows` takes depends on the CPU, and on the bytes of a head."""
    rng = np.random.default_rng(lq)
    inputs = qkv(rng, (), 2, lq, 8192, 64, key_heads=1)
    keywords = {"query_offset": 8180, "is_causal": True, "enable_gqa": True}
    want = dense_oracle.attention(*inputs, **keywords)
    check_all(inputs, keywords, want)


@both_dtypes
@pytest.mark.parametrize("kind", ["plain", "shaw", "music"])
def test_what_only_later_rows_see_may_be_nan(isa, dtype, kind):
    """Rows that share a block of keys do not see the same of them."""
    rng = np.random.default_rng(0)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 2, 8, 200, 64))
    keywords = cast(terms(rng, kind, 2, 8, 200, 64, offset=120), dtype)
    keywords |= {"is_causal": True, "window": (60, None)}
    want = run(q, k, v, **keywords)
    k[:, 124], v[:, 124] = np.nan, np.inf  # seen from query 4 on
    k[:, 62], v[:, 62] = np.inf, np.nan  # seen up to query 2
    got = run(q, k, v, **keywords)
    assert_bitwise(got.out[:, 3], want.out[:, 3])
    assert_bitwise(got.lse[:, 3], want.lse[:, 3])
    assert np.isnan(got.out[:, [0, 1, 2, 4, 5, 6, 7]]).all()


def padded(x):
    """Rows three columns longer than what is looked at."""
    wide = np.full((*x.shape[:-1], x.shape[-1] + 3), np.nan, x.dtype)
    wide[..., :-3] = x
    return wide[..., :-3]


ROWS = {name: LAYOUTS[name] for name in ("transposed", "negative", "spaced")}


@both_dtypes
@pytest.mark.parametrize("layout", [*ROWS.values(), padded])
@pytest.mark.parametrize(("lq", "lk"), [(5, 70), (1, 700)])
@pytest.mark.parametrize("d", [48, 64, 72])
def test_rows_that_lie_apart_give_the_same_bits(isa, dtype, layout, d, lq, lk):
    """Rows of whole vectors side by side are read where they lie, others are copied."""
    rng = np.random.default_rng(d)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, d)]
    keywords = cast(terms(rng, "shaw", 2, lq, lk, d, k=30, offset=30), dtype)
    want = run(*inputs, **keywords)
    for n in range(3):
        laid = [layout(x) if i == n else x for i, x in enumerate(inputs)]
        assert_results_bitwise(run(*laid, **keywords), want)
    for name in ("rel_key", "rel_value"):
        laid = keywords | {name: layout(keywords[name])}
        assert_results_bitwise(run(*inputs, **laid), want)


# ---- where the table lies ------------------------------------------------------------

# Relative positions of row 0 and of the first query; keys are 0 to 599.
PLACES = [(-300, 0), (-10, 300), (0, 0), (-700, 0), (200, 0), (-40, 599)]
EXTREME = 2**60 - 1


@functools.cache
def placed(place, beyond, rows):
    first, offset = place
    rng = np.random.default_rng([rows, PLACES.index(place)])
    inputs = qkv(rng, (), 2, 4, 600, 16, 24)
    keywords = {
        "rel_key": normal(rng, 2, rows, 16),
        "rel_value": normal(rng, rows, 24),
        "rel_bias": normal(rng, 2, rows),
        "rel_query": normal(rng, rows, 16),
        "min_relative_position": first,
        "query_offset": offset,
        "beyond": beyond,
    }
    return inputs, keywords, dense_oracle.attention(*inputs, **keywords)


@pytest.mark.sanitized
@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("place", PLACES)
def test_tables_that_keys_lie_beyond(isa, place, beyond):
    for rows in (1, 5, 100):
        check_all(*placed(place, beyond, rows))


@pytest.mark.sanitized
@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("offset", [-EXTREME, EXTREME])
@pytest.mark.parametrize("first", [-EXTREME, EXTREME])
def test_tables_as_far_away_as_may_be(isa, first, offset, beyond):
    """All keys lie beyond one end of the table, or its rows where they lie at home."""
    rng = np.random.default_rng(0)
    inputs = [x.astype("float32") for x in qkv(rng, (), 2, 4, 70, 16, 24)]
    rows = {"rel_key": normal(rng, 5, 16), "rel_value": normal(rng, 5, 24)}
    rows = cast(rows, "float32")
    far = {"min_relative_position": first, "query_offset": offset, "beyond": beyond}
    near = {"min_relative_position": 0, "query_offset": 0, "beyond": beyond}
    if first + offset:
        near["query_offset"] = 1000 if first + offset > 0 else -1000
    got = run(*inputs, **rows, **far)
    assert_results_bitwise(got, run(*inputs, **rows, **near))


@both_dtypes
@pytest.mark.parametrize("where", ["inside", "before", "behind", "spaced"])
def test_biases_of_a_run_of_keys(isa, dtype, where):
    """Include the largest and infinite ones, and tables before and after the keys."""
    rng = np.random.default_rng(1)
    inputs = [x.astype(dtype) for x in qkv(rng, (), 2, 3, 130, 16)]
    rows = {"inside": 150, "spaced": 150}.get(where, 40)
    bias = normal(rng, 2, rows).astype(dtype)
    largest = np.finfo(dtype).max
    bias[:, [3, 20, 33]] = [-np.inf, -largest, largest / 8]
    first = {"inside": -10, "spaced": -10, "before": -60, "behind": 60}[where]
    keywords = {"query_offset": 5, "min_relative_position": first}
    if where == "spaced":
        bias = LAYOUTS["spaced"](bias)
    want = dense_oracle.attention(*inputs, rel_bias=bias, **keywords)
    assert_results_close(run(*inputs, rel_bias=bias, **keywords), want)


@both_dtypes
@pytest.mark.parametrize("lk", [37, 600])
def test_labels_of_few_queries(isa, dtype, lk):
    rng = np.random.default_rng(lk)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, 4, lk, 16, 72)]
    keywords = {
        "rel_key": normal(rng, 2, 7, 16),
        "rel_query": normal(rng, 7, 16),
        "rel_value": normal(rng, 2, 7, 72),
        "rel_bias": normal(rng, 2, 7),
        "labels": rng.integers(-1, 7, (2, 4, lk)),
    }
    keywords = cast(keywords, dtype)
    want = dense_oracle.attention(*inputs, **keywords)
    assert_results_close(run(*inputs, **keywords), want)


@both_dtypes
@pytest.mark.parametrize("dv", [5, 64, 72, 130])
def test_hidden_keys_may_hold_nan(isa, dtype, dv):
    """Also where four vectors of a row are weighed at once."""
    rng = np.random.default_rng(dv)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 2, 3, 600, 16, dv))
    table = normal(rng, 2, 602, dv).astype(dtype)
    keywords = {"rel_value": table, "min_relative_position": -2, "query_offset": 0}
    mask = rng.random(600) < 0.7
    want = run(q, k, v, mask, **keywords)
    k[:, ~mask], v[:, ~mask] = np.nan, np.inf
    assert_results_bitwise(run(q, k, v, mask, **keywords), want)
