"""Loops in C that do nothing else than a call's work, compiled for this CPU.

They tell how fast this core can be. `gemv_pairs` and `read_bits` read the bytes of a
decoding step: two products without a softmax, and reading alone. `attend` computes
attention over short rows, with tables or without; `attend_few` that of a few queries.
"""

from __future__ import annotations

import ctypes
import functools
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problems import DIM
from benchmarks.timing import Array, check_error
from relpos import reference

SOURCES = ["plain_loops.c", "plain_attention.c", "plain_queries.c"]
FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", f"-DDIM={DIM}"]


@functools.cache
def library() -> ctypes.CDLL:
    """Compile the loops, with the compiler that Python names."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plain_loops.so"
        sources = [str(Path(__file__).with_name(name)) for name in SOURCES]
        command = [*compiler, *FLAGS, *sources, "-o", str(file), "-lm"]
        subprocess.run(command, check=True)
        made = ctypes.CDLL(str(file))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    made.gemv_pairs.argtypes = [*[pointer] * 5, count, count]
    made.read_bits.argtypes = [pointer, count]
    made.read_bits.restype = ctypes.c_uint32
    made.attend.argtypes = [*[pointer] * 6, count, count]
    made.attend_few.argtypes = [*[pointer] * 4, count, count, count]
    return made


def checked(
    loop: str, arrays: Sequence[Any], sizes: Sequence[int], exact: Array, what: str
) -> Callable[[], object]:
    """Return the call of a loop on arrays, whose result in the last one is right."""
    addresses = [None if array is None else array.ctypes.data for array in arrays]
    call = functools.partial(getattr(library(), loop), *addresses, *sizes)
    call()
    check_error(arrays[-1], exact, what)

    def call_of_arrays() -> object:
        return call(), arrays  # keeps them alive: the call has only their addresses

    return call_of_arrays


def gemv_pairs(query: Array, key: Array, value: Array) -> Callable[[], object]:
    """Return the checked loop: a product of each query with its keys and values."""
    *axes, keys, _ = key.shape
    arrays = [query, key, value, np.empty(keys, key.dtype), np.zeros_like(query)]
    q, k, v = (x.astype(np.float64) for x in (query, key, value))
    sizes, exact = (int(np.prod(axes)), keys), (q @ k.swapaxes(-1, -2)) @ v
    return checked("gemv_pairs", arrays, sizes, exact, "two products")


def read_bits(*arrays: Array) -> Callable[[], object]:
    """Return the checked loop that sums the bits of arrays, and so reads them."""

    def call() -> int:
        read = library().read_bits
        total: int = sum(read(array.ctypes.data, array.size) for array in arrays)
        return total % 2**32

    bits = [array.view(np.uint32).sum(dtype=np.uint64) for array in arrays]
    if call() != int(sum(bits)) % 2**32:
        raise SystemExit("the loop that reads: wrong result")
    return call


def attend(*tokens: Array, **tables: Array) -> Callable[[], object]:
    """Return the checked loop: attention of (heads, length, DIM), by shared tables."""
    heads, length, _ = tokens[0].shape
    pair = [tables.get(name) for name in ("rel_key", "rel_value")]
    arrays = [*tokens, *pair, np.zeros_like(tokens[0])]
    wide = {name: table.astype(np.float64) for name, table in tables.items()}
    exact = reference.attention(*(x.astype(np.float64) for x in tokens), **wide)
    return checked("attend", arrays, (heads, length), exact, "attention by loops")


def attend_few(*tokens: Array) -> Callable[[], object]:
    """Return the checked loop: attention of a few queries, (..., n, DIM)."""
    *axes, queries, _ = tokens[0].shape
    sizes = int(np.prod(axes)), queries, tokens[1].shape[-2]
    arrays = [*tokens, np.zeros_like(tokens[0])]
    exact = reference.attention(*(x.astype(np.float64) for x in tokens))
    what = "attention of a few queries by loops"
    return checked("attend_few", arrays, sizes, exact, what)
