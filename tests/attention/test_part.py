"""A problem that is a part of a larger one has its share of the whole's dropout."""

from __future__ import annotations

import dense_oracle
import numpy as np
import pytest
from problems import PATHS, qkv
from tolerances import assert_close

from relpos._attention.attention import draw_seed
from relpos._attention.call import Call
from relpos._attention.functional import Part, backward, forward


@pytest.mark.parametrize("first_key", [4, 5])  # the generator makes four keys at once
@pytest.mark.parametrize("lq, lk", PATHS)
def test_a_part_keeps_the_pairs_that_the_whole_keeps(isa, lq, lk, first_key):
    """Items 1 and 3 of four, heads from 1, queries from 2."""
    rng = np.random.default_rng(14)
    query, key, value = qkv(rng, (2,), 2, lq, lk, 16)
    whole = (4, 3, lq + 2, lk + first_key)
    kept = dense_oracle.dropout_factors(whole, 0.5, 2024)[1::2, 1:, 2:, first_key:]
    part = Part(draw_seed(2024, 0.5), 2, first_key, 1, np.array([1, 3]))
    call = Call(query, key, value, dropout_p=0.5, return_weights=True)
    got = forward(call, part=part)
    dropped = got["weights"] * kept
    assert_close(got["out"], dropped @ value, "forward")
    rows = (got["out"], got["row_max"], got["row_sum"])
    found = backward(call, query, None, rows, ["value"], part=part)
    assert_close(found.value, dropped.swapaxes(-1, -2) @ query, "gradient")
