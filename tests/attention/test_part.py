"""A problem that is a part of a larger one: the whole's dropout, decay, gradients."""

from __future__ import annotations

import dense_oracle
import numpy as np
import pytest
from problems import PATHS, qkv
from tolerances import assert_close

from relpos._attention.attention import as_call, draw_seed
from relpos._attention.functional import backward, forward
from relpos._attention.problem import Part


@pytest.mark.parametrize("first_key", [4, 5])  # the generator makes four keys at once
@pytest.mark.parametrize(("lq", "lk"), PATHS)
def test_a_part_keeps_the_pairs_that_the_whole_keeps(isa, lq, lk, first_key):
    """Items 1 and 3 of four, heads from 1, queries from 2."""
    rng = np.random.default_rng(14)
    query, key, value = qkv(rng, (2,), 2, lq, lk, 16)
    whole = (4, 3, lq + 2, lk + first_key)
    kept = dense_oracle.dropout_factors(whole, 0.5, 2024)[1::2, 1:, 2:, first_key:]
    items = np.array([1, 3])
    part = Part(draw_seed(2024, 0.5), 2, first_key, 1, items, 0, False)
    own = {"dropout_p": 0.5, "return_weights": True}
    call = as_call(query, key, value, own)
    got = forward(call, part=part)
    dropped = got["weights"] * kept
    assert_close(got["out"], dropped @ value, "forward")
    rows = (got["out"], got["row_max"], got["row_sum"])
    found = backward(call, query, None, rows, ["value"], part=part)
    assert_close(found.value, dropped.swapaxes(-1, -2) @ query, "gradient")


@pytest.mark.parametrize(("lq", "lk"), PATHS)
def test_gradients_of_parts_of_the_keys_add_up(isa, lq, lk):
    """Tables have corrected ends, and decay reaches queries after the keys."""
    rng = np.random.default_rng(15)
    query, key, value = qkv(rng, (2,), 2, lq, lk, 16)
    tables = {"rel_key": 3, "rel_value": 5}
    keywords = {name: rng.standard_normal((n, 16)) for name, n in tables.items()}
    keywords |= {"is_causal": True, "sinks": rng.standard_normal(2)}
    log_decay = -np.abs(rng.standard_normal((2, lk))) / 4
    offset = lk - lq + 1  # of the last query, which comes after all keys
    whole = {**keywords, "log_decay": log_decay, "query_offset": offset}
    call = as_call(query, key, value, whole)
    kept = forward(call)
    rows = (kept["out"], kept["row_max"], kept["row_sum"])
    shared = ["query", "rel_key", "rel_value"]
    want = backward(call, query, None, rows, [*shared, "key", "log_decay"])
    cut, gradients = lk // 3, []
    for first, last in ((0, cut), (cut, lk)):
        part_keywords = {
            **keywords,
            "log_decay": log_decay[:, first:],
            "query_offset": offset - first,
        }
        keys = slice(first, last)
        call = as_call(query, key[..., keys, :], value[..., keys, :], part_keywords)
        part = Part(0, 0, first, 0, np.arange(2), 0, has_more_keys=True)
        wrt = [*shared, "key", "log_decay"]
        gradients.append(backward(call, query, None, rows, wrt, part=part))
    for name in shared:
        total = getattr(gradients[0], name) + getattr(gradients[1], name)
        assert_close(total, getattr(want, name), "same_formula")
    keys = np.concatenate([part.key for part in gradients], axis=-2)
    assert_close(keys, want.key, "same_formula")
    decay = gradients[0].log_decay.copy()
    decay[:, cut:] += gradients[1].log_decay
    assert_close(decay, want.log_decay, "same_formula")
