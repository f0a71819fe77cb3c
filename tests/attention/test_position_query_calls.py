"""Calls of `attention` with a `position_query` that are refused, and the messages."""

from __future__ import annotations

import numpy as np
import pytest

import relpos


def wrong(**changes):
    good = {
        "query": np.ones((3, 2, 4, 8)),
        "key": np.ones((3, 2, 4, 8)),
        "value": np.ones((3, 2, 4, 3)),
        "rel_key": np.ones((5, 6)),
        "position_query": np.ones((3, 2, 4, 6)),
    }
    return {name: x for name, x in (good | changes).items() if x is not None}


REFUSED = [
    ("rel_key", None, r"position_query: given without rel_key; .*pass rel_key"),
    ("rel_key", (5, 8), r"rel_key: .*\(5, 8\).*position_query's head_dim 6; exp"),
    ("rel_key", (2, 5, 1), r"rel_key: .*position_query's head_dim 6; expected"),
    ("rel_key", (0, 6), r"rel_key: .*no rows"),
    ("rel_key", (3, 5, 6), r"rel_key: .*3 heads, but query has 2"),
    ("position_query", (3, 2, 4, 8), r"rel_key: .*position_query's head_dim 8"),
    ("position_query", (6,), r"position_query: .*\(6,\).*expected \(..., H, Lq, Dp"),
    ("position_query", (4, 6), r"position_query: .*\(4, 6\).*\(..., H, Lq, Dp\)"),
    ("position_query", (), r"position_query: .*\(\).*\(..., H, Lq, Dp\)"),
    ("position_query", (3, 1, 4, 6), r"position_query: .*query's 2 heads and le"),
    ("position_query", (3, 2, 1, 6), r"position_query: .*expected \(..., 2, 4, 6\)"),
    ("position_query", (3, 2, 5, 6), r"position_query: .*length 4; expected"),
    ("position_query", (2, 2, 4, 6), r"position_query: batch axes \(2,\) of "),
    ("pos_bias_v", (8,), r"pos_bias_v: .*position_query's head_dim 6 and 2 heads"),
    ("pos_bias_v", (3, 6), r"pos_bias_v: .*expected \(6,\), \(2, 6\) or \(..., 2, 6\)"),
    ("pos_bias_u", (6,), r"pos_bias_u: .*query's head_dim 8 and 2 heads"),
    ("rel_query", (5, 6), r"rel_query: .*query's head_dim 8; expected"),
]
WRONG_KINDS = [
    "x",
    b"x",
    True,
    None,
    1j,
    object(),
    {},
    [[1], []],
    np.ones((2, 4, 6), int),
]


@pytest.mark.parametrize("name, shape, pattern", REFUSED)
def test_a_wrong_call_is_refused(name, shape, pattern):
    value = None if shape is None else np.ones(shape)
    with pytest.raises(ValueError, match=rf"^{pattern}"):
        relpos.attention(**wrong(**{name: value}))


@pytest.mark.parametrize("value", [x for x in WRONG_KINDS if x is not None])
def test_a_wrong_kind_is_refused(value):
    with pytest.raises((TypeError, ValueError), match=r"^position_query: "):
        relpos.attention(**wrong(position_query=value))


def test_wrt_names_it_where_it_was_given():
    arguments = wrong()
    context = relpos.attention(**arguments, return_context=True).context
    assert context.backward(np.ones((3, 2, 4, 3))).position_query.shape == (3, 2, 4, 6)
    del arguments["position_query"]
    arguments["rel_key"] = np.ones((5, 8))
    context = relpos.attention(**arguments, return_context=True).context
    assert context.backward(np.ones((3, 2, 4, 3))).position_query is None
    with pytest.raises(ValueError, match=r"'position_query' was not given"):
        context.backward(np.ones((3, 2, 4, 3)), wrt=["position_query"])
