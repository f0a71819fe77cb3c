"""Each cause that relpos.diagnose knows has words of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from mistakes.row import RNG, D, H, K, L, Q, V

import relpos
from relpos._opinion.begin import begin
from relpos._opinion.evaluate import evaluate
from relpos._opinion.search import DIFFERENCES, FURTHER

KEYS, QUERIES, VALUES = RNG.standard_normal((3, 2 * L - 1, D))
U, W = RNG.standard_normal((2, H, D))
WEIGHTS, BIASES = RNG.standard_normal((2, 6))
FIRE = {
    "w1": WEIGHTS,
    "b1": BIASES,
    "w2": RNG.standard_normal((H, 6)),
    "b2": RNG.standard_normal(H),
    "c": 0.7,
    "threshold": 4.0,
}
FEW = Q[..., :5, :]
CALLS = {
    "tables": {
        "rel_key": KEYS,
        "rel_query": QUERIES,
        "rel_value": VALUES,
        "rel_bias": RNG.standard_normal((H, 2 * L - 1)),
    },
    "Transformer-XL": {
        "scheme": "transformer_xl_attention",
        "rel_key": KEYS,
        "pos_bias_u": U,
        "pos_bias_v": W,
        "is_causal": True,
    },
    "music": {"scheme": "music", "rel_key": KEYS[: L + 3]},
    "clipped": {
        "rel_key": KEYS[:7],
        "rel_value": VALUES[:7],
        "attn_mask": RNG.random((L, L)) < 0.6,
    },
    "rotary": {
        "scheme": "rotary",
        "query": FEW,
        "query_offset": 4,
        "is_causal": True,
        "magnitude": 1.3,
        "rotary_dim": 4,
    },
    "T5": {
        "rel_bias": RNG.standard_normal((H, 12)),
        "buckets": relpos.t5_bucket(
            np.arange(1 - L, L), num_buckets=12, max_distance=9
        ),
        "scale": 1.0,
    },
    "ALiBi": {"rel_bias": relpos.alibi_bias(H, L), "is_causal": True},
    "mask": {
        "attn_mask": RNG.standard_normal((H, L, L)),
        "softcap": 1.5,
        "sinks": RNG.standard_normal(H),
    },
    "padding": {"key_lengths": np.array([7, 4]), "window": (3, 1)},
    "FIRE": {"scheme": "fire_attention", "is_causal": True, **FIRE},
    "groups": {"key": K[:, :2], "value": V[:, :2], "enable_gqa": True},
}
#: Rows in which attempts of equal words are ways to write one cause.
ONE_CAUSE = {
    # what lies beyond a table: its end rows, zeros, or rows from its other end
    "off_by_one",
    "one_table_moved",
    "index_wraps",
    "absolute_rows",
    "future_is_past",
    "rows_reversed",
    # the shift of the rows of the past, or of all rows
    "shift_padding",
    "shift_row",
    "shift_padding_and_row",
    "shift_rows_reversed",
    # the term of the keys beside it, or not
    "not_transposed",
    "key_table_for_query",
    "key_table_for_value",
    "value_table_for_query",
    # results that are put back in order, or not
    "heads_split",
    "axes_reordered",
    # the mask is applied before the softmax, or after it too
    "added_after_softmax",
    # numbers of one rule
    "rotary_own_angles",
    "rotary_joined_heads",
    "rotary_d_model",
    "rotary_exponent_start",
    "rotary_exponent_width",
    "rotary_base_scaled",
    "rotary_columns",
    "rotary_cached_differ",
    "rotary_keys_restarted",
    "rotary_positions_scaled",
    "rotary_positions_mixed",
    "rotary_fragments",
    "bucket_rounding",
    "bucket_distance",
    "bucket_logarithm",
    "bucket_numbers",
    "alibi_heads",
    "alibi_slopes_from_one",
    "alibi_slopes_rule",
    # weights of queries that see nothing: 0, nan, the mean, or those of all keys
    "window_bounds",
    "window_with_holes",
    "hidden_by_both",
    *(row.name for row in DIFFERENCES if row.name.startswith("visible_")),
    # TERMS has one name for the term of a table and of its position query
    "term_multiplied",
    "term_transposed",
    "term_factor",
}


@pytest.mark.parametrize("name", CALLS)
def test_no_two_causes_share_their_words(name):
    call = {"scheme": None, "query": Q, "key": K, "value": V, **CALLS[name]}
    scheme, query, key, value = (
        call.pop(n) for n in ("scheme", "query", "key", "value")
    )
    start = begin(scheme, query, key, value, "outputs", call)
    start = replace(start, aim=evaluate(start).result)
    for row in (*DIFFERENCES, *FURTHER):
        if row.name in ONE_CAUSE:
            continue
        words = Counter(x.detail or row.words for x in row.attempts(start))
        assert not [said for said, times in words.items() if times > 1], row.name


def test_no_two_rows_share_their_words():
    words = [row.words for row in DIFFERENCES]
    assert len({*words}) == len(words)
    assert {row.name for row in DIFFERENCES} >= ONE_CAUSE
