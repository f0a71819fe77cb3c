"""Peak memory of long calls, measured in a process of their own."""

from __future__ import annotations

import sys

import pytest

MEASURE = """
import numpy as np
import relpos

def peak():  # of this program; getrusage would count what it was forked from
    with open("/proc/self/status") as lines:
        return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024

L, H, D = {length}, 4, 64
rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 1, H, L, D), dtype=np.float32)
table = rng.standard_normal((L, D), dtype=np.float32)
out = np.ones_like(q)  # touched, so that it counts before the call
relpos.relative_global_attention(q[:, :, :64], k[:, :, :64], v[:, :, :64], table[-64:])
before = peak()
relpos.relative_global_attention(q, k, v, table, out=out, num_threads=2)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_long_forward_stores_no_scores(child):
    extra = int(child(MEASURE.format(length=16384)).stdout)
    # 4 GiB of scores otherwise. What it does hold is packed keys and tables.
    assert 0 < extra < 100e6


TINY = """
import numpy as np
import relpos

def peak():
    with open("/proc/self/status") as lines:
        return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024

def run(items, out):
    x = np.broadcast_to(np.float32(1), (items, 1, 1, 1))
    return relpos.attention(x, x.copy(), x.copy(), out=out, num_threads=2)

items = 2**20
out = np.ones((items, 1, 1, 1), np.float32)
run(1000, None)
before = peak()
assert (run(items, out) == 1).all()
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_many_tiny_items_cost_little_more_than_their_operands(child):
    extra = int(child(TINY).stdout)
    # 4 bytes an item for each of the copies of key and value, 8 for where they begin;
    # partial results of all items were 72.
    assert extra < 40 * 2**20
