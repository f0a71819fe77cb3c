"""The pool: same bits for any number of threads, forks, signals, many callers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from forks import forked_inside
from many_threads import at_once

import relpos

# A problem of many units: more than one block of queries in every head.
PROBLEM = """
import numpy as np
import relpos

rng = np.random.default_rng(7)
q, k, v = rng.standard_normal((3, 2, 4, 160, 16)).astype(np.float32)
table = rng.standard_normal((4, 21, 16)).astype(np.float32)

def compute(threads):
    return relpos.attention(q, k, v, rel_key=table, rel_value=table, is_causal=True,
                            num_threads=threads)
"""


@pytest.fixture(scope="module")
def problem():
    names = {}
    exec(PROBLEM, names)
    return names["compute"]


@pytest.mark.sanitized
@pytest.mark.devmode
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_threads_gives_the_same_bits(isa, dtype):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 3, 150, 24)).astype(dtype)
    table = rng.standard_normal((31, 24)).astype(dtype)
    options = {"rel_key": table, "rel_query": table, "rel_value": table}
    results = [
        relpos.attention(
            q, k, v, **options, return_lse=True, return_weights=True, num_threads=n
        )
        for n in (1, 2, 5)
    ]
    for other in results[1:]:
        for name in ("out", "lse", "weights"):
            assert np.array_equal(getattr(results[0], name), getattr(other, name))


ROUNDING = f"""{PROBLEM}
import ctypes
UPWARD = {{"x86_64": 0x800, "aarch64": 0x400000}}[__import__("platform").machine()]
libm = ctypes.CDLL("libm.so.6")
usual = compute(2)
assert libm.fesetround(UPWARD) == 0
upward = [compute(threads) for threads in (1, 2, 5)]
assert libm.fegetround() == UPWARD
libm.fesetround(0)
assert not any(np.array_equal(usual, out) for out in upward)
assert all(np.array_equal(upward[0], out) for out in upward)
assert np.array_equal(usual, compute(2))
print("right")
"""


def test_workers_round_as_their_caller_does(child):
    assert child(ROUNDING).stdout == "right\n"


# ---- many callers ------------------------------------------------------------------


@pytest.mark.sanitized
def test_eight_python_threads_at_once(problem):
    want = problem(1)

    def work(place, barrier):
        barrier.wait()
        for _ in range(10):
            assert np.array_equal(problem(2), want)

    at_once(work, 8)


# ---- forks -------------------------------------------------------------------------

FORK = (
    PROBLEM
    + """
import os, signal, sys, threading, time
from relpos import _core

want = compute(1)
a = rng.standard_normal((300, 300))
product = _core.gemm(a, a, 1)
done = threading.Event()

def busy():
    while not done.is_set():
        compute(2)
        _core.gemm(a, a, 2)

def fork_once():
    pid = os.fork()
    if pid == 0:
        same = (np.array_equal(compute(2), want)
                and np.array_equal(_core.gemm(a, a, 2), product))
        os._exit(0 if same else 1)
    for _ in range(2000):
        waited, status = os.waitpid(pid, os.WNOHANG)
        if waited:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"

callers = [threading.Thread(target=busy) for _ in range(BUSY)]
for caller in callers:
    caller.start()
statuses = []

def fork_all():
    statuses.extend(fork_once() for _ in range(FORKS))

if FROM_THREAD:
    forker = threading.Thread(target=fork_all)
    forker.start()
    forker.join()
else:
    fork_all()
done.set()
for caller in callers:
    caller.join()
assert np.array_equal(compute(2), want)
print(statuses.count(0), statuses)
"""
)


@pytest.mark.parametrize(("busy", "from_thread"), [(2, False), (2, True), (0, False)])
def test_forked_children_compute(child, busy, from_thread, sized):
    forks = sized(6, 20)
    script = f"BUSY, FROM_THREAD, FORKS = {busy}, {from_thread}, {forks}\n" + FORK
    done = child(script, "-W", "ignore::DeprecationWarning", timeout=500)
    assert done.stdout.split()[0] == str(forks), done.stdout


def test_a_child_of_a_child_computes(child):
    script = (
        PROBLEM
        + """
import os
want = compute(2)
for depth in range(3):
    pid = os.fork()
    if pid != 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    assert np.array_equal(compute(2), want)
"""
    )
    child(script, "-W", "ignore::DeprecationWarning")


PREPARED = """import numpy as np
import relpos

x = np.ones((8, 30_000, 64), np.float32)
relpos.set_num_threads(8)"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "call",
    [
        "relpos.attention(x[:, :900], x[:, :900], x[:, :900])",
        "relpos.sinusoidal(300_000, 64)",
        "relpos.conv_encoding(x, np.ones((64, 7), np.float32))",
    ],
)
def test_a_child_forked_inside_a_call_raises(child, call):
    """A signal's handler forks: the threads that share the call's work stay behind."""
    script = forked_inside(PREPARED, call=call, later=call, same="np.array_equal")
    child(script, "-W", "ignore::DeprecationWarning")


# ---- signals -----------------------------------------------------------------------

INTERRUPTED = (
    PROBLEM
    + """
import signal, sys, time
from relpos import _core

signal.signal(signal.SIGINT, signal.default_int_handler)
want = compute(2)
x = rng.standard_normal((8, 30000, 64)).astype(np.float32)
for _ in range(3):
    print("ready", flush=True)
    try:
        relpos.attention(x, x, x, num_threads=THREADS)
        print("finished", flush=True)
    except KeyboardInterrupt:
        print(time.monotonic(), flush=True)
assert _core.live_blocks() == 0
assert np.array_equal(compute(2), want)
print("right", flush=True)
"""
)


@pytest.mark.few(1)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_ctrl_c_ends_a_long_call(tmp_path, num_threads):
    process = subprocess.Popen(
        [sys.executable, "-c", f"THREADS = {num_threads}\n" + INTERRUPTED],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    delays = []
    try:
        for _ in range(3):
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.4)
            sent = time.monotonic()  # the same clock in every process
            process.send_signal(signal.SIGINT)
            delays.append(float(process.stdout.readline()) - sent)
        assert process.stdout.readline() == "right\n"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    # the machine may stop a process for longer than the limit: once is allowed
    assert sorted(delays)[1] <= 0.2, delays


def test_a_fast_timer_signal_changes_nothing(problem):
    want, ticks = problem(1), []
    before = signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        assert all(np.array_equal(problem(2), want) for _ in range(50))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ticks


def test_exit_with_daemon_threads_inside_kernels(child):
    script = (
        PROBLEM
        + """
import threading, time
def forever():
    while True:
        compute(2)
for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
"""
    )
    for _ in range(3):
        assert child(script).stderr == ""
