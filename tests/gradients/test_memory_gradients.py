"""Extra memory of forward and backward, as the peak of a child process."""

from __future__ import annotations

import json

import pytest

SCRIPT = """
import json
import numpy as np
import relpos
from relpos._catalogue.measure import forget_peak, resident

rng = np.random.default_rng(0)

def normal(*shape):
    return rng.standard_normal(shape, dtype=np.float32)

def call(length):
    \"\"\"Bytes beyond inputs and outputs, None where the system does not say.\"\"\"
    q, k, v, grad_out = (normal(4, length, 64) for _ in range(4))
    table = normal(length, 64)
    known, before = forget_peak(), resident("VmRSS")
    result = relpos.relative_global_attention(
        q, k, v, table, return_context=True, num_threads={threads})
    found = result.context.backward(grad_out, num_threads={threads})
    peak = resident("VmHWM")
    kept = [result.out, *(x for x in found if x is not None)]
    assert all(np.isfinite(x).all() for x in kept)
    assert len(kept) == 5
    return peak - before - sum(x.nbytes for x in kept) if known else None

call(64)  # loads what is loaded once
print(json.dumps([call({length})]))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_music_causal_stays_under_200_megabytes(child, threads):
    """L x L numbers of one head alone would be 268 MB."""
    script = SCRIPT.replace("{threads}", str(threads)).replace("{length}", "8192")
    (extra,) = json.loads(child(script).stdout)
    if extra is None:
        pytest.skip("the system does not tell the peak of the memory in use")
    assert 0 < extra < 200e6, f"{extra / 1e6:.0f} MB"
