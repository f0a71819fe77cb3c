"""Threads that wait look at memory for .1 ms before they sleep: no call is missed."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np
import pytest
from many_threads import at_once

import relpos
from relpos import _core

needs_two_cpus = pytest.mark.skipif(
    len(getattr(os, "sched_getaffinity", lambda _: [0])(0)) < 2, reason="needs 2 CPUs"
)

# A call of three phases of four to eight units, microseconds long, and its gradients.
TINY = """
import numpy as np
import relpos

rng = np.random.default_rng(3)
q, k, v = rng.standard_normal((3, 2, 2, 12, 8)).astype(np.float32)
table = rng.standard_normal((2, 23, 8)).astype(np.float32)

def tiny(threads):
    return relpos.attention(q, k, v, rel_key=table, num_threads=threads)
"""


@pytest.fixture(scope="module")
def tiny():
    names = {}
    exec(TINY, names)
    return names["tiny"]


def pause(dice):
    """0 to 300 us: the other threads still look, are about to sleep, or sleep."""
    end = time.perf_counter() + dice.uniform(0, 300e-6)
    if dice.random() < 0.5:
        time.sleep(50e-6)
    while time.perf_counter() < end:
        pass


@pytest.mark.sanitized
@pytest.mark.parametrize("callers", [1, 4])
def test_thousands_of_tiny_calls_with_pauses(tiny, callers):
    want = tiny(1)

    def work(seed, barrier):
        dice = random.Random(seed)
        for _ in range(1500 // callers):
            pause(dice)
            assert np.array_equal(tiny(2), want)

    at_once(work, callers)


def long_units(*keys):
    """A call of two threads: in its last phase a unit of milliseconds for each item.

    Dropout is what takes so long.
    """
    x = np.random.default_rng(0).standard_normal((2, 1, 8_000, 16), dtype=np.float32)
    options = {"key_lengths": np.array(keys), "dropout_p": 0.5, "rng": 1}
    return lambda: relpos.attention(x[:, :, :32], x, x, **options, num_threads=2)


@needs_two_cpus
def test_a_sleeping_worker_wakes_for_a_call():
    call, others, total = long_units(8_000, 8_000), 0.0, 0.0
    call()
    for _ in range(12):
        time.sleep(2e-3)  # it sleeps by now
        own, both = time.thread_time(), time.process_time()
        call()
        own, both = time.thread_time() - own, time.process_time() - both
        others, total = others + both - own, total + both
    assert others > 0.1 * total  # half of it where CPUs are free


def test_idle_workers_sleep():
    call, spent = long_units(8_000, 8_000), []
    for _ in range(5):
        call()
        time.sleep(1e-3)
        before = time.process_time()
        time.sleep(0.03)
        spent.append(time.process_time() - before)
    assert sorted(spent)[1] < 0.015, spent


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_an_exception_of_a_signal_between_tiny_calls(tiny):
    """Wherever it falls: the call after it is right, and nothing is left over."""

    class TickError(Exception):
        pass

    def tick(*_):
        raise TickError

    want, dice, ticks = tiny(1), random.Random(5), 0
    before, blocks = signal.signal(signal.SIGALRM, tick), _core.live_blocks()
    try:
        for _ in range(100):
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-5, 2e-3))
                while True:
                    tiny(2)
            except TickError:
                ticks += 1
            assert np.array_equal(tiny(2), want)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ticks == 100
    assert _core.live_blocks() == blocks


FORKS = (
    TINY
    + """
import os, random, time

want, dice = tiny(1), random.Random(7)
for n in range(500):
    assert np.array_equal(tiny(2), want)
    if n % 20 == 0:
        time.sleep(dice.choice([0, 0, 5e-5, 1e-4, 3e-4]))
        pid = os.fork()
        if pid == 0:
            os._exit(not all(np.array_equal(tiny(2), want) for _ in range(20)))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
)


BUSY_FORKS = """
import os, signal, threading, time
import numpy as np
import relpos

x = np.random.default_rng(0).standard_normal((2, 1, 20_000, 64), dtype=np.float32)
done = threading.Event()

def call():
    return relpos.attention(x[:, :, :16], x, x, num_threads=2)

def busy():
    while not done.is_set():
        call()

want, left = call(), []
thread = threading.Thread(target=busy)
thread.start()
for n in range(15):
    time.sleep(2e-3)
    pid = os.fork()
    if pid == 0:
        os._exit(not np.array_equal(call(), want))
    left.append(pid)
done.set()
thread.join()
for pid in left:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("script", [FORKS, BUSY_FORKS], ids=["waiting", "working"])
def test_forks_while_workers_are(child, script):
    child(script, "-W", "ignore::DeprecationWarning", timeout=60)
