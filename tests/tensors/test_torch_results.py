"""Results of calls as tensors over memory of relpos, which torch frees."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading

import pytest
import torch

import relpos.torch
from relpos import _core
from relpos.torch import _attend

needs_table = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="this torch has no table of DLPack",
)
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def tokens(*shape, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw).to(dtype)


def grown(make):
    """Return what `make` does, and how many blocks of memory it left."""
    gc.collect()
    before = _core.live_blocks()
    made = make()
    return made, _core.live_blocks() - before


@needs_table
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_is_a_block_that_goes_with_it(dtype):
    x = tokens(2, 3, 5, 4, dtype=dtype)
    out, blocks = grown(lambda: relpos.torch.attention(x, x, x))
    assert blocks == 1
    assert type(out) is torch.Tensor and out.dtype is dtype
    assert out.data_ptr() % 64 == 0 and out.is_contiguous()
    view = out[0]
    del out
    assert view.isfinite().all()
    before = _core.live_blocks()
    del view
    assert _core.live_blocks() == before - 1


@needs_table
def test_a_block_is_freed_by_any_thread():
    x = tokens(1, 2, 3, 4)
    kept = [relpos.torch.attention(x, x, x)]
    before = _core.live_blocks()
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert _core.live_blocks() == before - 1


@needs_table
def test_gradients_are_blocks_and_many_rounds_leave_none():
    x = tokens(2, 3, 5, 4).requires_grad_()

    def rounds():
        for _ in range(300):
            out, lse = relpos.torch.attention(x, x, x, return_lse=True)[:2]
            (out.sum() + lse.sum()).backward()
        x.grad = None

    assert grown(rounds)[1] == 0


@needs_table
@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 1, 0, 4)])
def test_results_without_a_number(shape):
    x = torch.zeros(shape, requires_grad=True)
    out = relpos.torch.attention(x, x, x)
    out.sum().backward()
    assert out.shape == x.grad.shape == shape


@needs_table
def test_heads_lie_inside_of_rows_as_in_the_query():
    x = tokens(2, 5, 3, 4).transpose(1, 2)
    out = relpos.torch.attention(x, x, x)
    assert out.stride() == x.stride()
    assert torch.equal(out, relpos.torch.attention(*[x.contiguous()] * 3))


@needs_table
@pytest.mark.parametrize("failing", range(1, 7))
def test_a_failing_allocation_is_an_error_or_nothing(failing):
    x = tokens(2, 3, 5, 4)
    wanted = relpos.torch.attention(x, x, x)

    def attempt():
        _core.fail_at(failing, True)
        try:
            return relpos.torch.attention(x, x, x)
        except MemoryError:
            return None
        finally:
            _core.fail_at(0, False)

    out, blocks = grown(attempt)
    assert out is None or torch.equal(out, wanted)
    assert blocks == (out is not None)


def test_inference_mode_makes_tensors_of_inference():
    x = tokens(2, 3, 5, 4)
    with torch.inference_mode():
        out = relpos.torch.attention(x, x, x)
    assert out.is_inference()
    assert not relpos.torch.attention(x, x, x).is_inference()


WITHOUT_TABLE = """
import torch
from relpos import _core

class Bare:
    pass

original = _core.know_tensors
seen = []
def know(*types):
    seen.append(original(Bare, types[1]))
    return seen[-1]
_core.know_tensors = know
import relpos.torch
x = torch.linspace(-1, 1, 120).view(2, 3, 5, 4).requires_grad_()
before = _core.live_blocks()
out = relpos.torch.attention(x, x, x)
out.square().sum().backward()
assert seen == [False] and _core.live_blocks() == before
print(out.tolist(), x.grad.tolist())
"""


def test_a_torch_without_a_table_gives_the_same_numbers(tmp_path):
    x = torch.linspace(-1, 1, 120).view(2, 3, 5, 4).requires_grad_()
    out = relpos.torch.attention(x, x, x)
    out.square().sum().backward()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TABLE],
        cwd=tmp_path,  # no source tree
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{out.tolist()} {x.grad.tolist()}"


# ---- dtypes of results ---------------------------------------------------------------


@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16])
def test_the_dtype_of_a_trace_is_that_of_the_result(autocast):
    """A traced program has no numbers, and a rule of its own."""
    for dtypes in itertools.product(DTYPES, repeat=4):
        query, key, value = (tokens(1, 2, 3, dtype=dtype) for dtype in dtypes[:3])
        tensors = {"query": query, "key": key, "value": value}
        tensors["rel_bias"] = torch.zeros(3, dtype=dtypes[3])
        with torch.autocast("cpu", autocast or torch.bfloat16, autocast is not None):
            out = relpos.torch.attention(**tensors)
            assert _attend.dtype_of_call(tensors) is out.dtype, dtypes
