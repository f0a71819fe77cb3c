"""Memory of attention with a function of pairs: blocks of queries, not all pairs."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the peak of a process is read from /proc"
)
SCRIPT = """
import torch
import relpos.torch

def peak():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) / 1024

def call(length, backward):
    torch.manual_seed(0)
    inputs = [torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3)]
    bias = torch.randn(8, 2 * length - 1, requires_grad=True)

    def score_mod(score, b, h, i, j):
        return score + bias[h, j - i + length - 1]

    out = relpos.torch.flex_attention(*inputs, score_mod)
    if backward:
        out.square().sum().backward()
    return inputs, out

torch.set_num_threads(1)
call(256, True)  # what is loaded once
before = peak()
kept = call(2048, BACKWARD)
# inputs, the result and its gradient, and gradients of inputs, in MB
own = (4 + 4 * BACKWARD) * 8 * 2048 * 64 * 4 / 2**20
print(peak() - before - own)
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("backward", [True, False])
def test_peak_above_inputs_and_results(child, backward):
    """A dense bias alone has 128 MB."""
    done = child(SCRIPT.replace("BACKWARD", str(backward)))
    assert float(done.stdout) < 64
