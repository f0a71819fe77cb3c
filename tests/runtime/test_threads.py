"""The number of threads: blocks, contexts, the environment."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import time
from pathlib import Path

import pytest

import relpos
from relpos import _core


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
            inherits = getattr(sys.flags, "thread_inherit_context", False)
            assert seen == [7 if inherits else 3]
            assert relpos.get_num_threads() == 7
        assert relpos.get_num_threads() == 3
        assert relpos.show_config(mode="dicts")["threads_from"] == "set_num_threads"
    finally:
        relpos.set_num_threads(before)


def test_threads_that_set_the_number_take_turns(monkeypatch):
    """Or what Python says of it would be of one, and the number of the other."""
    before, begun, told = relpos.get_num_threads(), threading.Event(), []

    def tell_slowly(n):
        if n == 3:
            begun.set()
            time.sleep(0.1)
        told.append(n)

    with monkeypatch.context() as patch:
        patch.setattr(_core, "set_num_threads", tell_slowly)
        first = threading.Thread(target=relpos.set_num_threads, args=(3,))
        first.start()
        assert begun.wait(60)
        relpos.set_num_threads(5)
        first.join()
    relpos.set_num_threads(before)
    assert told == [3, 5]


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
    with pytest.raises(error, match=r"^n: got"):
        result = setter(n)
        with result:
            pass
    assert relpos.get_num_threads() == before


# ---- blocks and contexts -------------------------------------------------------------


@pytest.fixture
def outside():
    """The number outside of all blocks, which a test must leave as it was."""
    number = relpos.get_num_threads()
    yield number
    assert relpos.get_num_threads() == number


def inside(n):
    """A generator that yields within a block."""
    with relpos.threads(n):
        yield relpos.get_num_threads()


def test_blocks_of_tasks_do_not_meet(outside):
    """Both are within their blocks at once, and the first to enter leaves first."""

    async def task(n, steps):
        seen = []
        with relpos.threads(n):
            for _ in range(steps):
                await asyncio.sleep(0)
                seen.append(relpos.get_num_threads())
        return seen, relpos.get_num_threads()

    async def both():
        return await asyncio.gather(task(5, 3), task(7, 6))

    assert asyncio.run(both()) == [([5] * 3, outside), ([7] * 6, outside)]


def test_a_task_started_within_a_block_is_within_it(outside):
    async def number():
        return relpos.get_num_threads()

    async def main():
        with relpos.threads(6):
            task = asyncio.create_task(number())
            other = await asyncio.to_thread(relpos.get_num_threads)
            return await task, other

    assert asyncio.run(main()) == (6, 6)


def test_a_block_that_was_left_counts_nowhere(outside):
    with relpos.threads(6):
        context = contextvars.copy_context()
        assert context.run(relpos.get_num_threads) == 6
    assert context.run(relpos.get_num_threads) == outside


def test_blocks_may_be_left_in_any_order(outside):
    first, second = inside(5), inside(6)
    assert (next(first), next(second)) == (5, 6)
    with relpos.threads(7):
        first.close()
        assert relpos.get_num_threads() == 7
        second.close()
        assert relpos.get_num_threads() == 7
    assert relpos.get_num_threads() == outside


def test_a_block_left_within_a_later_one(outside):
    first = inside(5)
    next(first)
    with relpos.threads(7):
        first.close()
    assert relpos.get_num_threads() == outside


@pytest.mark.parametrize("close", [lambda call: call(), contextvars.Context().run])
def test_a_generator_may_be_closed_by_another_thread(outside, close):
    generator = inside(5)
    next(generator)
    closer = threading.Thread(target=close, args=(generator.close,))
    closer.start()
    closer.join()
    assert relpos.get_num_threads() == outside


def test_an_async_generator_that_is_thrown_away(outside):
    """The loop closes it in a task, and so in a context, of its own."""

    async def numbers():
        with relpos.threads(5):
            for i in range(3):
                yield i

    async def main():
        async for _ in numbers():
            break
        for _ in range(5):
            await asyncio.sleep(0)
        return relpos.get_num_threads()

    assert asyncio.run(main()) == outside


UFUNC = """
import contextvars, os
import numpy as np
import relpos

def workers():
    '''Threads that a ufunc of much work, called without relpos's functions, starts.'''
    before = len(os.listdir("/proc/self/task"))
    relpos.ufuncs.rel_shift(x)
    return len(os.listdir("/proc/self/task")) - before

x = np.ones((64, 200, 200))
relpos.set_num_threads(2)
with relpos.threads(1):
    one = contextvars.copy_context()
    with relpos.threads(4):
        assert one.run(workers) == 0
    assert workers() == 0
assert workers() == 1
with relpos.threads(4):
    assert workers() == 2  # and the one there is
"""


def test_ufuncs_obey_their_context(child):
    if not Path("/proc/self/task").is_dir():
        pytest.skip("needs /proc")
    child(UFUNC)


def test_an_error_while_the_number_is_asked_for_comes_out(child):
    script = """
import numpy as np
import relpos
from relpos import _core

def fail():
    raise KeyboardInterrupt

_core.always_ask_threads()
_core.set_threads_hook(fail)
x = np.ones((64, 200, 200))
for call in (relpos.get_num_threads, lambda: relpos.ufuncs.rel_shift(x)):
    try:
        call()
    except KeyboardInterrupt:
        continue
    raise AssertionError(call)
"""
    child(script)


# ---- the environment -----------------------------------------------------------------

SHOW = """
import relpos
print(relpos.get_num_threads(), relpos.show_config(mode="dicts")["threads_from"])
"""
RELPOS, OMP = "RELPOS_NUM_THREADS", "OMP_NUM_THREADS"


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({RELPOS: "3", OMP: "5"}, f"3 {RELPOS}"),
        ({OMP: "5"}, f"5 {OMP}"),
        ({RELPOS: "9" * 5000}, f"1024 {RELPOS}"),
        ({RELPOS: "1025"}, f"1024 {RELPOS}"),
        ({RELPOS: "04"}, f"4 {RELPOS}"),
        ({RELPOS: " 4\t"}, f"4 {RELPOS}"),
        ({OMP: "3,4"}, f"3 {OMP}"),
        ({OMP: " 03 , 4 ,1"}, f"3 {OMP}"),
        ({RELPOS: "", OMP: "6"}, f"6 {OMP}"),
        ({RELPOS: " ", OMP: "6"}, f"6 {OMP}"),
    ],
)
def test_what_the_environment_may_say(child, environment, want):
    done = child(SHOW, **environment)
    assert (done.stdout.strip(), done.stderr) == (want, "")


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "text",
    ["0", "00", "-2", "+2", "4x", "abc", "1.5", "0x4", "4_0", "\u0664", "\udcff"],
)
@pytest.mark.parametrize("name", [RELPOS, OMP])
def test_what_it_may_not_say_is_warned_of(child, name, text):
    other = {RELPOS: OMP, OMP: RELPOS}[name]
    done = child(SHOW, **{name: text, other: "6"})
    assert done.stdout.strip() == f"6 {other}"
    if name == RELPOS:  # the other is not read where the first one says it
        assert f"{name}: got {text!r}; expected a positive integer" in done.stderr
        assert "<string>:2: RuntimeWarning" in done.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("text", ["3,4", "3,", ","])
def test_a_list_is_for_openmp_only(child, text):
    assert f"{RELPOS}: got {text!r}" in child(SHOW, **{RELPOS: text}).stderr


@pytest.mark.few(2)
@pytest.mark.parametrize("text", [",", "3,", "3,x", "0,4", "3 4"])
def test_a_list_is_legal_or_not(child, text):
    done = child(SHOW, **{OMP: text})
    assert f"{OMP}: got {text!r}" in done.stderr
    assert done.stdout.split()[1] in ("affinity", "cgroup")


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


@pytest.mark.parametrize("line", range(12))
def test_an_interrupt_on_any_line_closes_the_block(line):
    """Raised before the line of `threads` that is reached so many lines later."""
    before, left = relpos.get_num_threads(), [line]

    def interrupt(frame, event, argument):
        if event == "line" and frame.f_code.co_name == "threads":
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return interrupt

    traced = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with relpos.threads(before + 1):
            assert relpos.get_num_threads() == before + 1
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(traced)
    assert relpos.get_num_threads() == before
