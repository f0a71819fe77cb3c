"""Rows of the table of bad calls: biases, buckets and recipes.

(function, error, arguments, pattern): good arguments are in `GOOD`; the message starts
with the name of the first argument of the row.
"""

from __future__ import annotations

import numpy as np
from bad_kinds import HUGE, D, H, L, Parameter, Tensor, broadcast, ones

GRAD = ones(H, 2 * L - 1)
GOOD = {
    "alibi_slopes": {"num_heads": H},
    "alibi_bias": {"num_heads_or_slopes": H, "length": L},
    "alibi_bias_backward": {"grad_bias": GRAD},
    "t5_bucket": {"relative_position": [-3, 0, 3]},
    "t5_bias": {"weight": ones(32, H), "length": L},
    "t5_bias_backward": {"grad_bias": GRAD, "num_buckets": 32},
    "deberta_bucket": {
        "relative_position": [-3, 0, 3],
        "bucket_size": 8,
        "max_position": 16,
    },
    "kerple_bias": {"r1": ones(H), "r2": ones(H), "length": L},
    "kerple_bias_backward": {"grad_bias": GRAD, "r1": ones(H), "r2": ones(H)},
    "bert": {"distance_embedding": ones(2 * L - 1, D)},
    "deberta": {"pos_key": ones(8, D), "pos_query": ones(8, D), "max_position": 16},
    "t5": {"weight": ones(32, H)},
    "xlnet": {
        "query_length": L,
        "key_length": L,
        "rel_key": ones(H, 2 * L, D),
        "pos_bias_u": ones(H, D),
        "pos_bias_v": ones(H, D),
    },
    "xlnet_segments": {
        "query": ones(3, H, L, D),
        "segment_embed": ones(2, H, D),
        "pos_bias_s": ones(H, D),
        "different": ones(L, L, dtype=bool),
    },
    "swin": {"table": ones(15, H), "window": (2, 3)},
    "botnet": {"rel_height": ones(3, D), "rel_width": ones(5, D), "grid": (2, 3)},
}
GOOD["xlnet_segments_backward"] = {
    "grad_mask": ones(3, H, L, L),
    **GOOD["xlnet_segments"],
}
MASKED = np.ma.masked_array(np.ones(H))

ALIBI = [
    ("alibi_slopes", TypeError, {"num_heads": 2.0}, r"float; expected an integer"),
    ("alibi_slopes", TypeError, {"num_heads": True}, r"True; expected an integer"),
    ("alibi_slopes", ValueError, {"num_heads": 0}, r"got 0; expected .* from 1 to"),
    ("alibi_slopes", ValueError, {"num_heads": -HUGE}, r"got -10+; expected an int"),
    ("alibi_slopes", TypeError, {"max_exponent": "8"}, r"str; expected a real number"),
    ("alibi_slopes", ValueError, {"max_exponent": 0}, r"0\.0; expected a positive"),
    ("alibi_slopes", ValueError, {"max_exponent": -8}, r"-8\.0; expected a positive"),
    ("alibi_slopes", ValueError, {"max_exponent": np.nan}, r"nan; expected a finite"),
    ("alibi_slopes", TypeError, {"dtype": np.int32}, r"int32; expected float32 or"),
    ("alibi_bias", ValueError, {"num_heads_or_slopes": 0}, r"got 0; expected an integ"),
    ("alibi_bias", TypeError, {"num_heads_or_slopes": True}, r"bool; expected float16"),
    ("alibi_bias", TypeError, {"num_heads_or_slopes": [1, 2]}, r"int64; expected floa"),
    (
        "alibi_bias",
        ValueError,
        {"num_heads_or_slopes": 0.5},
        r"shape \(\).*\(\.\.\., H\)",
    ),
    ("alibi_bias", ValueError, {"num_heads_or_slopes": [np.nan]}, r"got nan; expected"),
    ("alibi_bias", ValueError, {"num_heads_or_slopes": [1.0, np.inf]}, r"inf; expect"),
    ("alibi_bias", TypeError, {"num_heads_or_slopes": MASKED}, r"MaskedArray; expect"),
    ("alibi_bias", TypeError, {"num_heads_or_slopes": Tensor()}, r"relpos\.torch"),
    ("alibi_bias", TypeError, {"length": 4.0}, r"got float; expected an integer"),
    ("alibi_bias", ValueError, {"length": 0}, r"got 0; expected an integer from 1 to"),
    (
        "alibi_bias",
        ValueError,
        {"length": 2**59},
        r"more bytes than memory can address",
    ),
    ("alibi_bias", ValueError, {"length": HUGE}, r"got 10+; expected an integer from"),
    ("alibi_bias", TypeError, {"dtype": np.float16}, r"float16; expected float32 or f"),
    ("alibi_bias_backward", TypeError, {"grad_bias": ones(1, 3, dtype=int)}, r"int64"),
    ("alibi_bias_backward", TypeError, {"grad_bias": Parameter()}, r"relpos\.torch"),
    ("alibi_bias_backward", ValueError, {"grad_bias": ones(3)}, r"\(\.\.\., H, 2 \* l"),
    (
        "alibi_bias_backward",
        ValueError,
        {"grad_bias": ones(H, 6)},
        r"6 columns; .* odd",
    ),
    (
        "alibi_bias_backward",
        ValueError,
        {"grad_bias": ones(H, 0)},
        r"0 columns; .* odd",
    ),
]

BUCKETS = [
    ("t5_bucket", TypeError, {"relative_position": [0.5]}, r"float64; expected integ"),
    ("t5_bucket", TypeError, {"relative_position": True}, r"bool; expected integers"),
    ("t5_bucket", ValueError, {"relative_position": 2**63}, r"does not fit int64"),
    ("t5_bucket", TypeError, {"relative_position": Tensor()}, r"relpos\.torch"),
    ("t5_bucket", TypeError, {"bidirectional": 1}, r"int; expected True or False"),
    ("t5_bucket", ValueError, {"num_buckets": 3}, r"got 3; expected .* from 4 to 4096"),
    ("t5_bucket", ValueError, {"num_buckets": 0}, r"got 0; expected an integer from 4"),
    (
        "t5_bucket",
        ValueError,
        {"num_buckets": 1, "bidirectional": False},
        r"got 1; expected an integer from 2 to 4096",
    ),
    ("t5_bucket", ValueError, {"num_buckets": 4097}, r"got 4097; expected an integer"),
    (
        "t5_bucket",
        ValueError,
        {"max_distance": 8},
        r"got 8; expected an integer from 9",
    ),
    ("t5_bucket", ValueError, {"max_distance": -1}, r"got -1; expected an integer fro"),
    (
        "t5_bucket",
        ValueError,
        {"max_distance": 16, "bidirectional": False},
        r"got 16; expected an integer from 17",
    ),
    ("t5_bucket", TypeError, {"max_distance": 128.0}, r"float; expected an integer"),
    (
        "t5_bias",
        ValueError,
        {"weight": ones(32)},
        r"\(32,\); expected \(num_buckets, H",
    ),
    ("t5_bias", ValueError, {"weight": ones(2, 32, H)}, r"expected \(num_buckets, H\)"),
    ("t5_bias", TypeError, {"weight": ones(32, H, dtype=int)}, r"int64; expected flo"),
    ("t5_bias", TypeError, {"weight": Tensor()}, r"relpos\.torch"),
    ("t5_bias", ValueError, {"length": 0}, r"got 0; expected an integer from 1 to"),
    ("t5_bias", ValueError, {"length": 2**59}, r"more bytes than memory can address"),
    ("t5_bias", ValueError, {"max_distance": 8}, r"got 8; expected an integer from 9"),
    ("t5_bias_backward", ValueError, {"grad_bias": ones(H, 4)}, r"4 columns; .* odd"),
    (
        "t5_bias_backward",
        TypeError,
        {"grad_bias": "bias"},
        r"got str; expected float16",
    ),
    ("t5_bias_backward", ValueError, {"num_buckets": 2}, r"got 2; expected an integer"),
    (
        "t5_bias_backward",
        TypeError,
        {"num_buckets": None},
        r"NoneType; expected an int",
    ),
    (
        "deberta_bucket",
        TypeError,
        {"relative_position": [0.0]},
        r"float64; expected in",
    ),
    ("deberta_bucket", ValueError, {"bucket_size": 3}, r"got 3; expected .* from 4 to"),
    ("deberta_bucket", ValueError, {"bucket_size": -1}, r"got -1; expected an integer"),
    (
        "deberta_bucket",
        ValueError,
        {"max_position": 5},
        r"got 5; expected .* from 6 to",
    ),
    (
        "deberta_bucket",
        ValueError,
        {"max_position": -1},
        r"got -1; expected an integer",
    ),
    (
        "deberta_bucket",
        TypeError,
        {"max_position": 16.0},
        r"float; expected an integer",
    ),
    (
        "deberta_bucket",
        ValueError,
        {"relative_position": 10**9, "bucket_size": 4096, "max_position": 2060},
        r"1000000000 lies \d+ buckets past 2048, .*clip",
    ),
]

KERPLE = [
    ("kerple_bias", TypeError, {"r1": ones(H, dtype=int)}, r"int64; expected float16"),
    ("kerple_bias", TypeError, {"r2": MASKED}, r"MaskedArray; expected a plain array"),
    (
        "kerple_bias",
        ValueError,
        {"r1": 1.0},
        r"shape \(\) has 0 axes; .*number for each",
    ),
    ("kerple_bias", ValueError, {"r1": [np.nan, 1.0]}, r"got nan; expected finite num"),
    (
        "kerple_bias",
        ValueError,
        {"r2": ones(H + 1)},
        r"\(3,\); expected \(2,\), that of",
    ),
    (
        "kerple_bias",
        ValueError,
        {"r2": -ones(H)},
        r"got -1\.0 for .*log.*; expected 0 o",
    ),
    (
        "kerple_bias",
        ValueError,
        {"r2": np.zeros(H), "kind": "power"},
        r"got 0\.0 for .*power.*; expected more than 0",
    ),
    ("kerple_bias", ValueError, {"kind": "linear"}, r"'linear'; expected one of 'log'"),
    ("kerple_bias", TypeError, {"kind": None}, r"NoneType; expected one of 'log', 'po"),
    ("kerple_bias", ValueError, {"length": 0}, r"got 0; expected an integer from 1 to"),
    (
        "kerple_bias_backward",
        ValueError,
        {"grad_bias": ones(H, 2)},
        r"2 columns; .* odd",
    ),
    (
        "kerple_bias_backward",
        ValueError,
        {"grad_bias": ones(3, 3)},
        r"match r1 of shape",
    ),
    (
        "kerple_bias_backward",
        ValueError,
        {"r2": -ones(H)},
        r"-1\.0 for kind='log'; exp",
    ),
]

RECIPES = [
    ("bert", TypeError, {"distance_embedding": Tensor()}, r"relpos\.torch"),
    (
        "bert",
        ValueError,
        {"distance_embedding": ones(D)},
        r"1 axes; expected \(2P-1, D",
    ),
    ("bert", TypeError, {"key_query": 1}, r"got int; expected True or False"),
    (
        "deberta",
        ValueError,
        {"pos_key": ones(7, D)},
        r"\(7, 8\); expected .* even number",
    ),
    (
        "deberta",
        ValueError,
        {"pos_key": ones(0, D)},
        r"\(0, 8\); expected .* even number",
    ),
    ("deberta", ValueError, {"pos_key": ones(8, 0)}, r"\(8, 0\); .* D at least 1"),
    (
        "deberta",
        ValueError,
        {"pos_query": ones(7, D), "pos_key": None},
        r"\(7, 8\); expected .* even number",
    ),
    ("deberta", ValueError, {"pos_query": ones(D)}, r"1 axes; expected \(2 span, D\)"),
    ("deberta", ValueError, {"max_position": 3}, r"got 3; expected an integer from 4"),
    ("deberta", TypeError, {"max_position": 9.5}, r"got float; expected an integer"),
    ("t5", ValueError, {"weight": ones(32)}, r"1 axes; expected \(num_buckets, H\)"),
    ("t5", TypeError, {"weight": Tensor()}, r"relpos\.torch"),
    ("t5", ValueError, {"max_distance": 8}, r"got 8; expected an integer from 9"),
    ("xlnet", TypeError, {"query_length": 4.0}, r"got float; expected an integer"),
    ("xlnet", ValueError, {"key_length": -1}, r"got -1; expected an integer from 0"),
    (
        "xlnet_segments",
        ValueError,
        {"query": ones(L, D)},
        r"\(4, 8\); expected \(\.\.\.,",
    ),
    ("xlnet_segments", ValueError, {"query": ones(H, L, 0)}, r"D at least 1"),
    (
        "xlnet_segments",
        ValueError,
        {"segment_embed": ones(H, D)},
        r"expected \(2, 2, 8",
    ),
    (
        "xlnet_segments",
        ValueError,
        {"pos_bias_s": ones(D)},
        r"\(8,\); expected \(2, 8\)",
    ),
    ("xlnet_segments", TypeError, {"different": ones(L, L)}, r"float64; expected bool"),
    (
        "xlnet_segments",
        ValueError,
        {"different": ones(5, 1, L, L, dtype=bool)},
        r"\(5, 1, 4, 4\); expected .* broadcasts to \(3, 2, 4, 4\)",
    ),
    (
        "xlnet_segments_backward",
        ValueError,
        {"grad_mask": ones(L, L)},
        r"\(4, 4\); expected \(3, 2, 4, 4\)",
    ),
    (
        "swin",
        ValueError,
        {"table": ones(16, H)},
        r"16 rows .*\(2, 3\); expected 15, the",
    ),
    ("swin", ValueError, {"table": ones(15)}, r"1 axes; expected \(prod\(2n-1\), H\)"),
    ("swin", ValueError, {"window": (2, 0)}, r"got 0; expected an integer from 1 to"),
    ("swin", TypeError, {"window": (2, 3.0)}, r"got float; expected an integer"),
    ("swin", TypeError, {"window": "23"}, r"got str; expected an integer"),
    ("botnet", TypeError, {"grid": None}, r"got NoneType; expected an integer"),
    ("swin", TypeError, {"table": Tensor()}, r"relpos\.torch"),
    ("botnet", ValueError, {"rel_height": ones(5, D)}, r"\(5, 8\) for 2 .* \(3, 8\)"),
    ("botnet", ValueError, {"rel_width": ones(3, D)}, r"\(3, 8\) for 3 .* \(5, 8\)"),
    ("botnet", ValueError, {"grid": (2, 3, 1)}, r"\(2, 3, 1\); expected \(h, w\)"),
    ("botnet", ValueError, {"grid": 3}, r"got 3; expected \(h, w\)"),
    ("botnet", ValueError, {"rel_width": ones(5, D + 1)}, r"\(5, 9\) for .* \(5, 8\)"),
    (
        "alibi_bias",
        ValueError,
        {"length": 2**58, "num_heads_or_slopes": broadcast(2**20)},
        r"more bytes than memory",
    ),
]

BIASES = [*ALIBI, *BUCKETS, *KERPLE, *RECIPES]
