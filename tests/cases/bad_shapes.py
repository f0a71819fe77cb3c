"""Rows of the table of bad calls: shapes that do not fit, positions outside a table.

(name, changes, pattern): what to change in a good call; the message is ``name: `` and
something that the pattern finds. SCHEMES has the function and the exception before.
"""

from __future__ import annotations

import numpy as np
from bad_kinds import DV, EMPTY, D, H, L, Tensor, broadcast, longer, ones

SHAPES = [
    # axes
    (
        "query",
        {"query": ones(L, D)},
        r"\(4, 8\) has 2 axes; expected \(\.\.\., H, Lq, D",
    ),
    ("query", {"query": np.float64(1)}, r"\(\) has 0 axes; expected"),
    ("key", {"key": ones(D)}, r"\(8,\) has 1 axes; expected \(\.\.\., Hk, Lk, D\)"),
    ("value", {"value": ones(L, DV)}, r"has 2 axes; expected \(\.\.\., Hk, Lk, Dv\)"),
    ("query", {"query": [[[1.0, 2.0], [3.0]]]}, r"got list .*not a rectangular array"),
    # lengths
    (
        "key",
        {"key": ones(3, H, L, 7)},
        r"query's head_dim 8; expected \(\.\.\., Hk, Lk, 8",
    ),
    (
        "value",
        {"value": ones(3, H, 5, DV)},
        r"key's length 4; expected \(\.\.\., 2, 4, Dv",
    ),
    (
        "value",
        {"value": ones(3, 1, L, DV)},
        r"key's 2 heads; expected \(\.\.\., 2, 4, Dv",
    ),
    (
        "key",
        {"key": ones(3, 1, L, D), "value": ones(3, 1, L, DV)},
        r"1 heads, but query has 2; expected equal.*enable_gqa=True",
    ),
    (
        "key",
        {"key": ones(3, L, D), "value": ones(3, L, DV), "enable_gqa": True},
        r"3 heads, but query has 2; with enable_gqa=True .* multiple",
    ),
    (
        "key",
        {"key": ones(0, L, D), "value": ones(0, L, DV), "enable_gqa": True},
        r"0 heads, but query has 2",
    ),
    # batch axes
    (
        "key",
        {"key": ones(2, H, L, D)},
        r"batch axes \(2,\).* with \(3,\) of the arguments",
    ),
    ("value", {"value": ones(4, H, L, DV)}, r"batch axes \(4,\).* with \(3,\)"),
    ("rel_key", {"rel_key": ones(2, H, 3, D)}, r"batch axes \(2,\).* with \(3,\)"),
    ("query_offset", {"query_offset": [0, 1]}, r"batch axes \(2,\).* with \(3,\)"),
    ("key_lengths", {"key_lengths": [1, 2]}, r"batch axes \(2,\).* with \(3,\)"),
    (
        "key_ranges",
        {"key_ranges": np.zeros((2, L, 2), int)},
        r"batch axes \(2,\).* with \(3,\)",
    ),
    ("key_ranges", {"key_ranges": 3}, r"got shape \(\); expected \(\.\.\., 4, 2\)"),
    ("key_ranges", {"key_ranges": [0, 4]}, r"got shape \(2,\); expected \(\.\.\., 4"),
    ("key_ranges", {"key_ranges": np.zeros((3, 2), int)}, r"\(3, 2\); expected"),
    ("key_ranges", {"key_ranges": np.zeros((L, 3), int)}, r"\(4, 3\); expected"),
    ("key_ranges", {"key_ranges": np.zeros((L, 1), int)}, r"\(4, 1\); expected"),
    ("key_ranges", {"key_ranges": np.zeros((2, L), int)}, r"\(2, 4\); expected"),
    ("key_ranges", {"key_ranges": np.zeros((L, 0), int)}, r"\(4, 0\); expected"),
    (
        "key_ranges",
        {"key_ranges": np.zeros((*[1] * 30, L, 2), int)},
        r"30 batch axes; expected at most 29",
    ),
    ("attn_mask", {"attn_mask": ones(2, 1, L, L)}, r"batch axes \(2,\).* with \(3,\)"),
    (
        "labels",
        {"labels": np.zeros((*[1] * 30, L, L), int)},
        r"30 batch axes; expected at most 29",
    ),
    # masks and labels
    (
        "attn_mask",
        {"attn_mask": ones(L, 3)},
        r"\(4, 3\).*to \(\.\.\., 2, 4, 4\); expected",
    ),
    ("attn_mask", {"attn_mask": ones(3, L, L)}, r"\(3, 4, 4\).*attn_mask\[:, None\]"),
    ("attn_mask", {"attn_mask": ones(3, L)}, r"\(3, 4\).*attn_mask\[:, None, None\]"),
    ("attn_mask", {"attn_mask": ones(5)}, r"\(5,\) does not broadcast to"),
    (
        "labels",
        {"labels": np.zeros((L, 3), int)},
        r"\(4, 3\) does not broadcast to \(\.\.\., 4, 4\)",
    ),
    ("labels", {"labels": np.zeros(L, int)}, r"\(4,\); expected \(\.\.\., Lq, Lk\)"),
    # tables
    (
        "rel_key",
        {"rel_key": ones(33, 5)},
        r"\(33, 5\) does not match query's head_dim 8; "
        r"expected \(R, 8\), \(H, R, 8\) or \(\.\.\., H, R, 8\)",
    ),
    ("rel_query", {"rel_query": ones(3, DV)}, r"\(3, 3\).*query's head_dim 8"),
    (
        "rel_value",
        {"rel_value": ones(3, D)},
        r"\(3, 8\).*value's head_dim 3; expected \(R, 3\), \(H, R, 3\)",
    ),
    ("rel_key", {"rel_key": ones(D)}, r"\(8,\) has 1 axes; expected \(R, D\)"),
    ("rel_bias", {"rel_bias": 1.0}, r"\(\) has 0 axes; expected \(R,\), \(H, R\)"),
    (
        "rel_key",
        {"rel_key": ones(4, 3, D)},
        r"4 heads, but query has 2; expected \(R, D",
    ),
    (
        "rel_bias",
        {"rel_bias": ones(4, 3)},
        r"4 heads, but query has 2; expected \(R,\)",
    ),
    ("rel_key", {"rel_key": ones(0, D)}, r"\(0, 8\) has no rows; expected at least 1"),
    ("rel_bias", {"rel_bias": ones(0)}, r"\(0,\) has no rows"),
    (
        "rel_key",
        {"rel_key": ones(4, D)},
        r"4 rows; .*odd number.*min_relative_position",
    ),
    ("rel_bias", {"rel_bias": ones(4)}, r"4 rows; .*odd number.*min_relative_position"),
    (
        "rel_query",
        {
            "rel_key": ones(4, D),
            "rel_query": ones(3, D),
            "min_relative_position": 0,
        },
        r"3 rows, but rel_key has 4; .*min_relative_position",
    ),
    (
        "rel_bias",
        {"rel_key": ones(3, D), "rel_bias": ones(4), "min_relative_position": 0},
        r"4 rows; to be centred .* odd number",
    ),
    (
        "pos_bias_u",
        {"pos_bias_u": ones(7)},
        r"\(7,\).*head_dim 8 and 2 heads; expected",
    ),
    (
        "pos_bias_v",
        {"pos_bias_v": ones(3, D), "rel_key": ones(3, D)},
        r"\(3, 8\).*expected \(8,\), \(2, 8\) or \(..., 2, 8\)",
    ),
    ("pos_bias_v", {"pos_bias_v": ones(D)}, r"given without rel_key.*pass rel_key"),
    # buckets
    ("buckets", {"buckets": [[0]], "rel_bias": ones(1)}, r"\(1, 1\); expected \(n,\)"),
    (
        "buckets",
        {"buckets": np.zeros(0, int), "rel_bias": ones(1)},
        r"\(0,\); expected \(n,\)",
    ),
    ("buckets", {"buckets": [0, 0], "rel_bias": ones(3)}, r"2 entries; .*odd number"),
    (
        "rel_bias",
        {"buckets": [0], "rel_key": ones(2, D), "rel_bias": ones(3)},
        r"3 rows, but rel_key has 2; with buckets",
    ),
    # labels with another origin
    (
        "labels",
        {"labels": np.zeros((L, L), int), "buckets": [0]},
        r"together with buckets; .*expected one of the two",
    ),
    (
        "labels",
        {"labels": np.zeros((L, L), int), "min_relative_position": 0},
        r"together with min_relative_position",
    ),
    # positions of unequal lengths
    *(
        (
            "query_offset",
            longer(query=ones(H, L, D), **more),
            rf"None with 4 queries and 6 keys.*{named}.*pass 0 .*Lk - Lq = 2 ",
        )
        for named, more in {
            "is_causal": {"is_causal": True},
            "window": {"window": (1, None)},
            "rel_key": {"rel_key": ones(3, D)},
            "rel_query": {"rel_query": ones(3, D)},
            "rel_value": {"rel_value": ones(3, DV)},
            "rel_bias": {"rel_bias": ones(3)},
        }.items()
    ),
    # out
    ("out", {"out": ones(H, L, DV)}, r"\(2, 4, 3\); expected \(3, 2, 4, 3\)"),
    ("out", {"out": broadcast(3, H, L, DV)}, r"read-only; expected a writable"),
    # sizes
    (
        "out",
        {
            "query": broadcast(1, 2**40, 1),
            "key": ones(1, 1, 1),
            "value": broadcast(1, 1, 2**40),
        },
        r"\(1, 1099511627776, 1099511627776\) has more bytes than memory",
    ),
    (
        "weights",
        {
            "query": broadcast(1, 2**40, 1),
            "key": broadcast(1, 2**40, 1),
            "value": broadcast(1, 2**40, 0),
            "return_weights": True,
        },
        r"has more bytes than memory can address",
    ),
]


def label(row, dtype=int):
    labels = np.full((L, L), -1, dtype)
    labels[2, 1] = row
    return labels


OUTSIDE = [
    (
        "labels",
        {"labels": label(3), "rel_key": ones(3, D)},
        r"\[2, 1\] is 3, .*rel_key of",
    ),
    (
        "labels",
        {"labels": label(5, np.int8), "rel_key": ones(6, D), "rel_bias": ones(5)},
        r"is 5, outside rel_bias of 5 rows; expected at most 4",
    ),
    (
        "buckets",
        {"buckets": [0, 7, 1], "rel_bias": ones(2)},
        r"buckets\[1\] is 7, outside rel_bias of 2 rows; expected 0 to 1",
    ),
    (
        "buckets",
        {"buckets": [-1, 0, 1], "rel_key": ones(2, D)},
        r"buckets\[0\] is -1, outside rel_key",
    ),
    (
        "rel_key",
        {"rel_key": ones(3, D), "beyond": "raise"},
        r"from -3 to 3, but its 3 rows cover -1 to 1; expected a longer table",
    ),
    (
        "rel_bias",
        {"rel_bias": ones(9), "beyond": "raise", "query_offset": [0, 0, 2]},
        r"from -5 to 3, but its 9 rows cover -4 to 4",
    ),
]

SCHEMES = [
    ("shaw_attention", ValueError, {"rel_key": ones(4, D)}, r"rel_key: 4 rows.*odd"),
    ("shaw_attention", ValueError, {"rel_key": ones(3, 5)}, r"rel_key: .*head_dim 8"),
    ("shaw_attention", TypeError, {"rel_keys": ones(3, D)}, r"rel_keys"),
    (
        "shaw_attention",
        ValueError,
        longer(query=ones(H, L, D), rel_key=ones(3, D)),
        r"query_offset: None with 4 queries and 6 keys",
    ),
    (
        "relative_global_attention",
        TypeError,
        {"rel_key": None},
        r"rel_key: .*expected fl",
    ),
    (
        "relative_global_attention",
        TypeError,
        {"rel_key": Tensor()},
        r"rel_key: .*torch",
    ),
    (
        "relative_global_attention",
        ValueError,
        {"rel_key": ones(D)},
        r"rel_key: .*1 axes",
    ),
    (
        "relative_global_attention",
        IndexError,
        {"rel_key": ones(3, D)},
        r"rel_key: .*from -3 to 0, but its 3 rows cover -2 to 0",
    ),
    ("relative_global_attention", TypeError, {"rel_key": EMPTY}, r"rel_key"),
    (
        "relative_global_attention",
        TypeError,
        {"is_causal": 1},
        r"is_causal: got int; expected True or False",
    ),
    (
        "relative_global_attention",
        TypeError,
        {"is_causal": ones(L, L, dtype=bool)},
        r"is_causal: got an array of dtype bool; expected True or False",
    ),
    (
        "relative_global_attention",
        TypeError,
        {"buckets": Tensor()},
        r"buckets: got a torch Tensor",
    ),
    ("transformer_xl_attention", ValueError, {"query": ones(D)}, r"query: .*1 axes"),
    ("transformer_xl_attention", ValueError, {"key": ones(D)}, r"key: .*1 axes"),
    (
        "transformer_xl_attention",
        TypeError,
        {"rel_key": None},
        r"rel_key: .*expected fl",
    ),
    (
        "transformer_xl_attention",
        IndexError,
        {"rel_key": ones(L, D)},
        r"rel_key: .*from -3 to 3, but its 4 rows cover -3 to 0; .*is_causal",
    ),
    (
        "transformer_xl_attention",
        ValueError,
        {"pos_bias_u": ones(7)},
        r"pos_bias_u: .*7",
    ),
    (
        "merge_attention",
        TypeError,
        {"out_a": ones(H, L, DV, dtype=int)},
        r"out_a: .*int64",
    ),
    ("merge_attention", TypeError, {"lse_b": Tensor()}, r"lse_b: .*\.detach\(\)"),
    (
        "merge_attention",
        TypeError,
        {"lse_a": None},
        r"lse_a: .*NoneType; expected float16",
    ),
    ("merge_attention", ValueError, {"out_a": 1.0}, r"out_a: got a single number"),
    (
        "merge_attention",
        ValueError,
        {"lse_a": ones(H, L, 1)},
        r"lse_a: shape \(2, 4, 1\).*out_a's \(2, 4, 3\); expected \(2, 4\)",
    ),
    (
        "merge_attention",
        ValueError,
        {"out_b": ones(H, L, 2)},
        r"out_b: shape \(2, 4, 2\) does not match out_a's \(2, 4, 3\)",
    ),
    (
        "merge_attention",
        ValueError,
        {"out_b": ones(3, L, DV), "lse_b": ones(3, L)},
        r"out_b: shape \(3, 4, 3\).*leading axes that broadcast",
    ),
]
