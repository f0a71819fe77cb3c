"""Hostile objects in calls: hostile.py beside this file runs them, and judges them."""

from __future__ import annotations

import collections
import random
import re
import subprocess
import sys
from pathlib import Path

import hostile
import numpy as np
import pytest
from hostile_calls import Call, of_dict, of_function, of_ufunc
from hostile_objects import Elsewhere

PROGRAM = Path(__file__).with_name("hostile.py")


def run(*words):
    """Run the program in a process of its own, which may die."""
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, words)],
        check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_no_call_is_at_fault(seed, sized):
    count = sized(200, 2000)
    done = run(seed, count)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"seed {seed}: {count} calls, 0 faults\n")
    counts = {name: int(n) for n, name in re.findall(r"  (\d+) (\w+)\n", done.stdout)}
    assert counts["valid"] > count / 5
    assert counts["compared"] > count / 5
    assert counts["accepted"] < 3 * count / 4
    assert counts["changing"] > count / 20


# ---- what the program takes for a fault ----------------------------------------------


def judge(function, *args, define=None, kind="odd", forbidden=""):
    """Run a call, whose argument has the name x."""
    call = Call(function, args, {}, ["x"], define, kind, forbidden)
    hostile.run(call, collections.Counter())
    return call


def refusing(error):
    def function(*args):
        raise error

    return function


def fill(x):
    x.fill(7)
    raise ValueError("x: is changed")


KEPT = []


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: judge(refusing(ValueError("no"))), "names no argument"),
        (lambda: judge(refusing(SystemError("x: no"))), "SystemError"),
        (lambda: judge(refusing(MemoryError("x: no")), 3), "MemoryError"),
        (lambda: judge(refusing(ValueError("x: no")), kind="valid"), "is refused"),
        (lambda: judge(fill, np.ones(3)), "is changed by a call that raises"),
        (lambda: judge(KEPT.append, np.ones(3)), "references"),
        (lambda: judge(abs, -1.0, forbidden="x is -1"), "accepted, but x is -1"),
        (lambda: judge(abs, -1.0, define=lambda: 2.0), "differs from the definition"),
        (lambda: judge(abs, -1.0, define=lambda: np.ones(2)), "has shape"),
    ],
)
def test_a_fault_is_found(call, text):
    with pytest.raises(hostile.Fault, match=text):
        call()


def test_what_is_right_is_no_fault():
    judge(abs, -1.0, define=lambda: 1.0, kind="valid")
    judge(refusing(ValueError("x: no")), np.ones(3))
    judge(refusing(KeyError("hostile")))
    judge(refusing(MemoryError("no")), 2**60)


def test_references_that_each_call_leaves(monkeypatch):
    """A debug build of Python counts them; here a list does."""
    kept = []
    monkeypatch.setattr(hostile, "count_references", lambda: len(kept))
    hostile.check_references(judge(abs, -1.0))
    call = judge(lambda x: kept.append(float(x)), 1.0)
    with pytest.raises(hostile.Fault, match="each call leaves 1 references"):
        hostile.check_references(call)


def test_calls_that_are_forbidden_are_among_them():
    """Both kinds that relpos once accepted are drawn: they would be faults again."""
    rng = np.random.default_rng(0)
    drawn = [of_dict(random.Random(n), rng) for n in range(600)]
    texts = " ".join(call.forbidden for call in drawn)
    assert "window_left is -" in texts
    assert "grad_rel_key is shared by some batch items" in texts


@pytest.mark.parametrize("make", [of_ufunc, of_function])
def test_calls_that_numpy_reads_have_no_interface_that_leads_elsewhere(make):
    rng = np.random.default_rng(0)
    drawn = [make(random.Random(n), rng) for n in range(1500)]
    values = [x for call in drawn for x in (*call.args, *call.keywords.values())]
    assert not any(isinstance(x, Elsewhere) for x in values)
