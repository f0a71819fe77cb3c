"""Peak memory of a call of many items; test_plan_memory.py measures the others."""

from __future__ import annotations

import sys

import pytest

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
