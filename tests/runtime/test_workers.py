"""The number of threads of processes that others start."""

from __future__ import annotations

import pytest

WORKER = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import relpos

def facts():
    config = relpos.show_config(mode="dicts")
    return config["threads"], config["threads_from"]

# without a function of relpos; a spawned worker runs it before it is one
relpos.ufuncs.rel_shift(np.ones((3, 3)))
at_import = facts()

def facts_at_import():
    return at_import

def main(*initializer):
    context = multiprocessing.get_context(METHOD)
    with ProcessPoolExecutor(1, context, *initializer) as pool:
        for function in (facts, facts_at_import):
            print(*pool.submit(function).result())
    print(*facts())

if __name__ == "__main__":
    MAIN
"""


METHODS = ("fork", "spawn", "forkserver")


@pytest.fixture
def workers(child):
    """Runs WORKER: facts in a worker, those at its import, facts in the parent."""

    def run(method, main="main()", **environment):
        script = WORKER.replace("METHOD", repr(method)).replace("MAIN", main)
        return child(script, as_file=True, **environment).stdout.splitlines()

    return run


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_takes_one_thread(workers, method):
    worker, at_import, parent = workers(method)
    assert worker == "1 multiprocessing"
    assert at_import == (parent if method == "fork" else worker)
    assert parent.split()[1] in ("affinity", "cgroup")


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_obeys_the_environment(workers, method):
    told = "5 RELPOS_NUM_THREADS"
    assert workers(method, RELPOS_NUM_THREADS="5") == [told] * 3


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_obeys_its_own_call(workers, method):
    worker, _, parent = workers(method, "main(relpos.set_num_threads, (4,))")
    assert worker == "4 set_num_threads"
    assert parent.split()[1] in ("affinity", "cgroup")


def test_a_forked_worker_obeys_its_parent(workers):
    worker, _, parent = workers("fork", "relpos.set_num_threads(4), main()")
    assert worker == parent == "4 set_num_threads"
    worker, _, parent = workers("fork", "with relpos.threads(6): main()")
    assert worker == parent == "6 threads"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_worker_of_its_own_is_told_nothing(workers, method):
    worker, _, parent = workers(method, "relpos.set_num_threads(4), main()")
    assert (worker, parent) == ("1 multiprocessing", "4 set_num_threads")


def test_a_plain_fork_is_no_worker(child):
    script = """
import os, relpos
before = relpos.get_num_threads(), relpos.show_config(mode="dicts")["threads_from"]
pid = os.fork()
after = relpos.get_num_threads(), relpos.show_config(mode="dicts")["threads_from"]
if pid == 0:
    os._exit(before != after)
assert os.waitpid(pid, 0)[1] == 0
"""
    child(script)


def test_multiprocessing_is_not_imported(child):
    script = """
import sys, relpos
relpos.get_num_threads(), relpos.show_config()
assert not any(name.startswith("multiprocessing") for name in sys.modules)
"""
    child(script)


def test_multiprocessing_may_be_half_loaded(child):
    script = """
import sys, types, relpos
sys.modules["multiprocessing.process"] = types.ModuleType("multiprocessing.process")
assert relpos.show_config(mode="dicts")["threads_from"] != "multiprocessing"
"""
    child(script)
