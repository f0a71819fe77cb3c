"""relpos.sharded on worker processes: bits, deaths, spilling, threads."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import relpos

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
sharded = pytest.importorskip("relpos.sharded")


def cluster(workers, **settings):
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address=None,
        **settings,
    )


def waited(block, seconds):
    """A block of the arguments that takes its time."""
    time.sleep(seconds)
    return block


def graph(seconds=0.0):
    """Result and gradients of a call in 3 x 2 chunks of queries and heads, lazily."""
    rng = np.random.default_rng(3)
    x, table = rng.standard_normal((2, 24, 8)), rng.standard_normal((2, 5, 8))
    lazy = da.from_array(x, chunks=(1, 8, 8)).map_blocks(waited, seconds, dtype=float)
    result = sharded.attention(
        lazy,
        lazy,
        lazy,
        rel_key=table,
        is_causal=True,
        dropout_p=0.2,
        rng=1,
        return_context=True,
    )
    gradients = result.context.backward(da.from_array(x, chunks=(1, 8, 8)))
    return result.out, gradients.query, gradients.key, gradients.rel_key


def assert_same(got, want):
    for one, other in zip(got, want, strict=True):
        assert np.array_equal(one, other)


def test_a_killed_worker_changes_no_bit():
    want = dask.compute(*graph(), scheduler="sync")
    with cluster(2) as workers, distributed.Client(workers) as client:
        assert_same(client.gather(client.compute(graph())), want)
        futures = client.compute(graph(seconds=0.3))
        pid = next(iter(client.run(os.getpid).values()))
        time.sleep(0.5)
        assert not all(future.done() for future in futures)
        os.kill(pid, signal.SIGKILL)
        assert_same(client.gather(futures), want)


@contextlib.contextmanager
def processes(folder):
    """A scheduler and a worker, processes of their own; the scheduler and its file."""
    file = folder / "scheduler.json"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shared = ["--scheduler-file", str(file), "--no-dashboard"]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{name}", *shared, *options],
            env=env,
            cwd=folder,
            stderr=subprocess.DEVNULL,
        )
        for name, options in (
            ("scheduler", ["--host", "127.0.0.1", "--port", "0"]),
            ("worker", ["--no-nanny", "--nthreads", "1"]),
        )
    ]
    try:
        deadline = time.monotonic() + 60
        while not file.exists():  # the worker waits for it, too
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield started[0], file
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def test_after_a_killed_scheduler_the_same_call_has_the_same_bits(tmp_path):
    want = dask.compute(*graph(), scheduler="sync")
    folders = [tmp_path / name for name in ("killed", "again")]
    for folder in folders:
        folder.mkdir()
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        processes(folders[0]) as (scheduler, file),
        distributed.Client(scheduler_file=str(file)) as client,
    ):
        client.wait_for_workers(1, timeout=60)
        lost = client.compute(graph(seconds=0.5))
        time.sleep(1)
        scheduler.kill()
        scheduler.wait()
        with pytest.raises((distributed.CancelledError, OSError)):
            client.gather(lost)
    with (
        processes(folders[1]) as (_, file),
        distributed.Client(scheduler_file=str(file)) as client,
    ):
        client.wait_for_workers(1, timeout=60)
        assert_same(client.gather(client.compute(graph())), want)


def test_kept_results_larger_than_memory_are_spilled():
    """Past 20 MiB the worker writes to disk, and reads back."""
    settings = {"distributed.worker.memory.target": 0.05}
    rng = np.random.default_rng(5)
    x = rng.standard_normal((100, 1, 256, 64))
    with (
        dask.config.set(settings),
        cluster(1, memory_limit="400MiB") as workers,
        distributed.Client(workers) as client,
    ):
        lazy = da.random.RandomState(0).normal(size=x.shape, chunks=(10, 1, 256, 64))
        result = sharded.attention(lazy, lazy, lazy, window=(8, 0), return_context=True)
        kept = result.context.persist()
        distributed.wait(kept.backward(lazy).value.persist())
        spilled = client.run(lambda dask_worker: len(dask_worker.data.slow))
        assert sum(spilled.values()) > 0
        got = kept.backward(lazy, wrt=["value"]).value.compute()
        rows = client.compute(lazy).result()
    whole = relpos.attention(rows, rows, rows, window=(8, 0), return_context=True)
    assert np.array_equal(got, whole.context.backward(rows, wrt=["value"]).value)


def test_a_task_takes_one_thread_unless_told(monkeypatch):
    seen = []
    for place in (relpos._attention.attention, relpos._attention.gradients):
        choose = place.choose_num_threads
        monkeypatch.setattr(
            place,
            "choose_num_threads",
            lambda count, choose=choose: seen.append(count) or choose(count),
        )
    x = da.ones((1, 4, 2))
    for threads in (None, 3):
        result = sharded.attention(x, x, x, num_threads=threads, return_context=True)
        result.context.backward(x).query.compute(scheduler="sync")
        result.context.backward(x, num_threads=2).key.compute(scheduler="sync")
    assert seen == [1, 1, 1, 2, 3, 3, 3, 2]


def test_the_example_has_the_bits_of_the_whole():
    script = Path(__file__).parents[2] / "docs" / "examples" / "sharded.py"
    example = runpy.run_path(str(script))
    *tokens, grad_out, table = example["problem"](64, 64)
    query, key, value, grad_out = dask.compute(*tokens, grad_out, scheduler="sync")
    settings = {"min_relative_position": -4095, "window": (4095, 0)}
    settings |= {"rel_key": table, "return_context": True}
    whole = relpos.attention(query, key, value, **settings)
    gradients = whole.context.backward(grad_out)
    want = whole.out, gradients.query, gradients.key, gradients.value
    *got, _ = dask.compute(*example["checksums"](64, 64), scheduler="sync")
    assert got == [x.view(np.uint32).sum(dtype=np.uint64) for x in want]
