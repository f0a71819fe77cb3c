"""Many rounds of calls and backwards on tensors, after which memory is as before.

A hundred rounds, or 3,000 with --thorough.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
import torch

import relpos.torch
from relpos import _core

#: Bytes of the process that rounds may add: what the allocators of C keep for later.
MOST_BYTES = 64 * 1024
#: Blocks of Python's memory that rounds may add: caches that torch fills by itself.
MOST_BLOCKS = 100
STATM = Path("/proc/self/statm")


class Round:
    """Calls of many kinds, of which nothing may stay."""

    def __init__(self):
        draw = torch.Generator().manual_seed(0)

        def leaf(*shape):
            return torch.randn(shape, generator=draw).requires_grad_()

        self.heads = [leaf(1, 2, 24, 16) for _ in range(3)]
        self.table, self.bias, self.weight = leaf(47, 16), leaf(2, 47), leaf(32, 2)
        self.slopes = leaf(2)
        self.layer = relpos.torch.nn.RelativeMultiheadAttention(32, 2, position="t5")
        self.tokens = leaf(24, 1, 32)
        self.leaves = [*self.heads, self.table, self.bias, self.weight, self.slopes]
        self.leaves += [self.tokens, *self.layer.parameters()]

    def run(self, number):
        """Make a round. Its number sets lengths, so that caches get many."""
        attention = relpos.torch.attention
        length = 24 + number % 40
        attention(*self.heads, rel_key=self.table, is_causal=True).sum().backward()
        both = attention(*self.heads, rel_bias=self.bias, return_lse=True)
        (both.out.sum() + both.lse.sum()).backward()
        t5 = relpos.torch.t5_bias(self.weight, length)
        attention(*self.heads, rel_bias=t5).sum().backward()
        alibi = relpos.torch.alibi_bias(self.slopes, length)
        attention(*self.heads, rel_bias=alibi, softcap=5.0).sum().backward()
        self.second_derivative(length)
        self.layer(self.tokens, self.tokens, self.tokens)[0].sum().backward()
        self.without_a_backward()
        for each in self.leaves:
            each.grad = None

    def second_derivative(self, length):
        loss = relpos.torch.t5_bias(self.weight, length).pow(3).sum()
        (grad,) = torch.autograd.grad(loss, self.weight, create_graph=True)
        grad.sum().backward()

    def without_a_backward(self):
        attention = relpos.torch.attention
        attention(*self.heads)  # whose graph is dropped
        with torch.inference_mode():
            attention(*(x.bfloat16() for x in self.heads))
        with torch.no_grad():
            relpos.torch.t5_bias(self.weight, 24)
        with pytest.raises(ValueError, match="value"):
            attention(*self.heads[:2], self.heads[2][..., :3, :])
        with pytest.raises(ValueError, match="length"):
            relpos.torch.t5_bias(self.weight, 0)


def resident():
    """Bytes of memory that the process has now."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held():
    """Return what is held: blocks of relpos, blocks of Python, bytes of the process."""
    gc.collect()
    return _core.live_blocks(), sys.getallocatedblocks(), resident()


@pytest.mark.skipif(not STATM.exists(), reason="this system has no /proc")
def test_rounds_leave_nothing(request):
    thorough = request.config.getoption("--thorough")
    warm, count, attempts = (300, 3_000, 5) if thorough else (30, 100, 3)
    round_of = Round()
    for number in range(warm):
        round_of.run(number)
    # What leaks grows in each attempt. Caches of Python and of torch fill more slowly
    # from one to the next, and another test's threads may free or take memory.
    for _ in range(attempts):
        before = held()
        for number in range(count):
            round_of.run(number)
        blocks, objects, size = (b - a for a, b in zip(before, held(), strict=True))
        if size <= MOST_BYTES and objects <= MOST_BLOCKS:
            break
    assert blocks == 0
    assert objects <= MOST_BLOCKS
    assert size <= MOST_BYTES
