"""Floating-point state of a thread: import and calls leave it as it was.

The state is how numbers are rounded, whether subnormal numbers are read and written as
zero (DAZ and FTZ of x86-64, FZ of ARM), which exceptions trap, and which flags are set.
Kernels compute in the modes of their caller, on every thread, and keep their flags to
themselves.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from layer_calls import LAYERS, run
from public_calls import PUBLIC

import relpos

MACHINE = platform.machine()
#: Bytes of fenv_t in glibc: the control word of the x87, and that of vectors.
WORDS = {"x86_64": {"x87": (0, 2), "vectors": (28, 4)}, "aarch64": {"vectors": (0, 4)}}
#: Bits of the control word of vectors.
UPWARD = {"x86_64": 0x4000, "aarch64": 0x400000}.get(MACHINE, 0)
TO_ZERO = {"x86_64": 0x8040, "aarch64": 0x1000000}.get(MACHINE, 0)
FLAGS = {"x86_64": 0x3F}.get(MACHINE, 0)  # ARM has a word of its own for them
#: Flags that math libraries and a caller look at. Every rounding sets the other ones.
INVALID, BY_ZERO, OVERFLOW = {"x86_64": (1, 4, 8)}.get(MACHINE, (1, 2, 4))
MODES = {"usual": 0, "upward": UPWARD, "zero": TO_ZERO, "both": UPWARD | TO_ZERO}

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or MACHINE not in WORDS,
    reason="the layout of fenv_t is that of glibc on x86-64 and ARM",
)


def environment():
    """The state of this thread, as libm stores it."""
    stored = (ctypes.c_ubyte * 64)()
    assert ctypes.CDLL("libm.so.6").fegetenv(stored) == 0
    return stored


def modes():
    """The control words without flags."""
    stored = bytes(environment())
    words = {
        name: int.from_bytes(stored[at : at + size], "little")
        for name, (at, size) in WORDS[MACHINE].items()
    }
    words["vectors"] &= ~FLAGS
    return words


@contextmanager
def in_modes(bits):
    """Set the control word of vectors; check that it stays, and restore it.

    Modes that are not among `bits` are the usual ones: a library that was compiled with
    -ffast-math, such as a peer of the benchmarks, changes them as it is loaded.
    """
    before, changed = environment(), environment()
    at, size = WORDS[MACHINE]["vectors"]
    word = int.from_bytes(bytes(changed)[at : at + size], "little")
    word = (word & ~(UPWARD | TO_ZERO)) | bits
    changed[at : at + size] = word.to_bytes(size, "little")
    libm = ctypes.CDLL("libm.so.6")
    libm.fesetenv(changed)
    try:
        entered = modes()
        yield
        left = modes()
    finally:
        libm.fesetenv(before)
    assert entered["vectors"] & bits == bits
    assert left == entered


def draw(*shape):
    return np.random.default_rng(len(shape)).uniform(0.1, 1.0, shape).astype("f4")


@pytest.mark.parametrize("bits", MODES.values(), ids=[*MODES])
@pytest.mark.parametrize("name", PUBLIC)
def test_functions_leave_the_modes(name, bits):
    with in_modes(bits):
        PUBLIC[name](getattr(relpos, name), draw)


@pytest.mark.parametrize("bits", MODES.values(), ids=[*MODES])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_leave_the_modes(name, bits):
    make, shapes = LAYERS[name]
    with in_modes(bits):
        layer, inputs = make(dtype="float32"), [draw(*shape) for shape in shapes]
        run(layer, inputs)
        run(layer, inputs, np.ones(layer(*inputs).shape, "f4"))


def test_a_call_that_raises_leaves_the_modes():
    x = draw(2, 5, 4)
    with in_modes(UPWARD | TO_ZERO), pytest.raises(ValueError, match="key"):
        relpos.attention(x, x[..., :3], x)


def subnormal(num_threads):
    """Attention over values that are subnormal, whose results are subnormal too."""
    query = draw(4, 300, 8)
    value = np.full((4, 300, 8), 1e-40, np.float32)
    return relpos.attention(query, query, value, num_threads=num_threads)


def test_workers_read_and_write_subnormal_numbers_as_their_caller_does():
    with in_modes(0):
        usual = subnormal(2)
    with in_modes(TO_ZERO):
        flushed = [subnormal(threads).tobytes() for threads in (1, 2, 5)]
    with in_modes(0):
        again = [subnormal(threads).tobytes() for threads in (1, 2, 5)]
        assert (usual > 0).all()
    assert flushed == [bytes(usual.nbytes)] * 3
    assert again == [usual.tobytes()] * 3


@pytest.mark.parametrize("size", [np.inf, np.nan, 3e38, 1e-44])
def test_a_kernel_sets_no_flag(size):
    """The flags that it keeps to itself are not lost: its caller's own stay set."""
    libm = ctypes.CDLL("libm.so.6")
    query = np.full((2, 40, 8), size, np.float32)
    out, watched = np.empty_like(query), INVALID | BY_ZERO | OVERFLOW
    libm.feclearexcept(watched)
    for threads in (1, 3):
        relpos.attention(query, query, query, num_threads=threads, out=out)
    assert libm.fetestexcept(watched) == 0
    libm.feraiseexcept(OVERFLOW)
    relpos.attention(query, query, query, num_threads=2, out=out)
    assert libm.fetestexcept(watched) == OVERFLOW
    libm.feclearexcept(watched)


def test_the_import_leaves_the_state(child):
    """A fresh Python reads its state by ctypes alone, before and after the import."""
    script = f"""
import ctypes, numpy
libm = ctypes.CDLL("libm.so.6")
def state():
    stored = (ctypes.c_ubyte * 64)()
    libm.fegetenv(stored)
    words = {WORDS.get(MACHINE, {})}
    found = [bytes(stored)[at : at + size] for at, size in words.values()]
    found[-1] = int.from_bytes(found[-1], "little") & ~{FLAGS}
    return found
before = state()
import relpos, relpos.nn, relpos.recipes, relpos.reference, relpos.ufuncs
assert state() == before
print("unchanged")
"""
    assert child(script).stdout == "unchanged\n"


@pytest.mark.torch
def test_tensors_leave_the_modes():
    torch = pytest.importorskip("torch")
    before = modes()
    import relpos.torch

    assert modes() == before
    x = torch.rand(2, 9, 4, requires_grad=True)
    for bits in MODES.values():
        with in_modes(bits):
            relpos.torch.attention(x, x, x).sum().backward()
            relpos.torch.apply_rotary(x).sum().backward()
