"""First products of a process that forks, or is short of memory or of threads."""

from __future__ import annotations

import sys

import pytest

from relpos import _core

pytestmark = [
    pytest.mark.skipif(
        _core.blas_info() != "none", reason="OpenBLAS is not safe in these cases"
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, sets limits"),
]

# Everything is imported before anything is limited, forked or compared; NumPy's own
# matrix products, whose BLAS has threads of its own, are not used.
PRELUDE = """
import os, resource, signal, sys, threading, time
import numpy as np
import relpos
from relpos import nn

rng = np.random.default_rng(0)
q, k, table = (rng.standard_normal((2, n, 16)) for n in (130, 130, 259))
x = rng.standard_normal((130, 64))
layer = nn.Linear(64, 48, dtype=np.float64, rng=0)
conv = nn.ConvPositionEmbedding(32, 5, 2, dtype=np.float64, rng=0)
scores = relpos.shaw_scores, relpos.skewed_scores, relpos.transformer_xl_scores

def product():
    return layer(x)

def exact():
    weight = layer.weight.data
    return (x[:, None] * weight).sum(-1) + layer.bias.data

def right(y):
    return bool((np.abs(y - exact()) < 1e-12).all())

def in_child(call, seconds=60):
    '''The wait status of a forked child that ends with what `call` returns.'''
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)  # a child that hangs ends, and is seen
        status = 100
        try:
            status = call()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]
"""


def test_no_call_loads_a_library_or_starts_a_thread(child):
    """Threads are the pool's, of which one thread needs none."""
    child(
        PRELUDE
        + """
def state():
    with open("/proc/self/maps") as lines:
        files = {line.split()[-1] for line in lines if "/" in line}
    return files, os.listdir("/proc/self/task")

before = state()
with relpos.threads(1):
    product(), layer.backward(np.ones((130, 48)))
    conv(x.reshape(1, -1, 32)), conv.backward(np.ones((1, 260, 32)))
    relpos.shaw_scores(q, k, table)
    relpos.skewed_scores(q, k, table, is_causal=True)
    relpos.transformer_xl_scores(q, k, table, np.ones(16), np.ones(16))
assert state() == before
"""
    )


def test_short_memory_is_a_memory_error_or_no_matter(child):
    """Each limit in a process of its own, as a first call leaves memory behind."""
    script = """
def limited(extra):
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + extra, -1))
    try:
        y = product(), relpos.shaw_scores(q, k, table)
    except MemoryError:
        return 3
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    return 0 if right(y[0]) else 2

megabytes = (0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256)
ends = [in_child(lambda: limited(each << 20)) for each in megabytes]
assert all(os.waitstatus_to_exitcode(end) in (0, 3) for end in ends), ends
assert ends[-1] == 0, ends
"""
    child(PRELUDE + script)


def test_without_threads_a_plain_call_works(child):
    """The limit holds for users other than root only."""
    script = """
def limited():
    if os.getuid() == 0:
        try:
            os.setgid(54321), os.setuid(54321)
        except PermissionError:
            return 77
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        threading.Thread(target=print).start()
        return 78
    except RuntimeError:
        pass
    with relpos.threads(4):
        return 0 if right(product()) else 2

print(os.waitstatus_to_exitcode(in_child(limited)))
"""
    end = int(child(PRELUDE + script).stdout)
    if end in (77, 78):
        pytest.skip("no other user to become, or threads are not limited here")
    assert end == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_children_forked_during_a_first_product(child, threads, sized):
    """Forks follow each other all the while; 8 processes, so that many are first."""
    script = f"""
def check():
    return 0 if right(product()) else 2

relpos.set_num_threads({threads})
worker = threading.Thread(target=product)
worker.start()
ends = [in_child(check) for _ in range(8)]
worker.join()
assert ends == [0] * 8, ends
"""
    for _ in range(sized(2, 8)):
        child(PRELUDE + script)
