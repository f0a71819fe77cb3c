"""The pool and the number of threads: same bits, forks, signals, many callers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

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


# ---- the number of threads ---------------------------------------------------------


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


@pytest.mark.devmode
def test_threads_restores_what_was_set():
    before = relpos.get_num_threads()
    with relpos.threads(5):
        assert relpos.get_num_threads() == 5
        assert relpos.show_config(mode="dicts")["threads_from"] == "threads"
        with pytest.raises(KeyError), relpos.threads(3):
            assert relpos.get_num_threads() == 3
            raise KeyError
        assert relpos.get_num_threads() == 5
    assert relpos.get_num_threads() == before


def test_threads_is_for_the_calling_thread_and_set_num_threads_for_all():
    before, seen = relpos.get_num_threads(), []
    try:
        with relpos.threads(7):
            relpos.set_num_threads(3)
            other = threading.Thread(
                target=lambda: seen.append(relpos.get_num_threads())
            )
            other.start()
            other.join()
            assert seen == [3]
            assert relpos.get_num_threads() == 7
        assert relpos.get_num_threads() == 3
        assert relpos.show_config(mode="dicts")["threads_from"] == "set_num_threads"
    finally:
        relpos.set_num_threads(before)


@pytest.mark.devmode
@pytest.mark.parametrize(
    ("n", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (2**40, ValueError),
        (1.0, TypeError),
        (True, TypeError),
        ("2", TypeError),
        (None, TypeError),
    ],
)
@pytest.mark.parametrize("setter", [relpos.set_num_threads, relpos.threads])
def test_a_bad_number_of_threads_is_refused(setter, n, error):
    before = relpos.get_num_threads()
    with pytest.raises(error, match="num_threads"):
        result = setter(n)
        with result:
            pass
    assert relpos.get_num_threads() == before


SHOW = """
import relpos
print(relpos.get_num_threads(), relpos.show_config(mode="dicts")["threads_from"])
"""


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({"RELPOS_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, "3 RELPOS_NUM_THREADS"),
        ({"OMP_NUM_THREADS": "5"}, "5 OMP_NUM_THREADS"),
        ({"RELPOS_NUM_THREADS": "99999999999999999999"}, "1024 RELPOS_NUM_THREADS"),
        ({"RELPOS_NUM_THREADS": "4x", "OMP_NUM_THREADS": "2"}, "2 OMP_NUM_THREADS"),
        ({"RELPOS_NUM_THREADS": "0", "OMP_NUM_THREADS": "6"}, "6 OMP_NUM_THREADS"),
        ({"RELPOS_NUM_THREADS": "-2", "OMP_NUM_THREADS": "6"}, "6 OMP_NUM_THREADS"),
        ({"RELPOS_NUM_THREADS": " 2", "OMP_NUM_THREADS": "6"}, "6 OMP_NUM_THREADS"),
    ],
)
def test_the_environment_is_read_strictly(child, environment, want):
    assert child(SHOW, **environment).stdout.strip() == want


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_one_cpu_means_one_thread(child):
    script = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    number, source = child(script + SHOW).stdout.split()
    assert number == "1"
    assert source in ("affinity", "cgroup")


def test_the_default_is_at_most_the_affinity(child):
    number, source = child(SHOW).stdout.split()
    assert 1 <= int(number) <= len(os.sched_getaffinity(0))
    assert source in ("affinity", "cgroup")


# ---- many callers ------------------------------------------------------------------


@pytest.mark.sanitized
def test_eight_python_threads_at_once(problem):
    want = problem(1)
    barrier, wrong = threading.Barrier(8), []

    def work():
        barrier.wait()
        for _ in range(10):
            if not np.array_equal(problem(2), want):
                wrong.append(threading.get_ident())

    callers = [threading.Thread(target=work) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive()
    assert not wrong


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
    statuses.extend(fork_once() for _ in range(20))

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
def test_forked_children_compute(child, busy, from_thread):
    script = f"BUSY, FROM_THREAD = {busy}, {from_thread}\n" + FORK
    done = child(script, "-W", "ignore::DeprecationWarning", timeout=500)
    assert done.stdout.split()[0] == "20", done.stdout


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
