"""A sequence larger than a worker's memory, forward and backward, in blocks.

On this machine, with as many worker processes as asked for and 2 GiB each:

    python docs/examples/sharded.py --workers 2

On a cluster of which the scheduler's address is known, with relpos on every worker:

    python docs/examples/sharded.py --address tcp://10.0.0.1:8786

It prints the time, the bytes that workers sent each other, and a checksum of the bits
of each result, which is the same for any number of workers.
"""

import argparse
import time

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import relpos.sharded

RESULTS = ("out", "query", "key", "value", "rel_key")


def problem(length, block, heads=8, dim=64, rows=4096):
    """Query, key, value, the gradient of the result, and the table."""
    draws = da.random.RandomState(0)
    shape, chunks = (heads, length, dim), (1, block, dim)
    tokens = [
        draws.normal(size=shape, chunks=chunks).astype(np.float32) for _ in range(4)
    ]
    table = np.random.default_rng(1).standard_normal((rows, dim)) / dim**0.5
    return *tokens, table.astype(np.float32)


def bits(array):
    """Sum of the bits of float32 numbers, in any order."""
    words = array.map_blocks(lambda block: block.view(np.uint32), dtype=np.uint32)
    return words.sum(dtype=np.uint64)


def checksums(length, block):
    """Return the sums of the result and of the gradients of a call, lazily."""
    query, key, value, grad_out, table = problem(length, block)
    result = relpos.sharded.attention(
        query,
        key,
        value,
        rel_key=table,
        min_relative_position=1 - len(table),
        window=(len(table) - 1, 0),
        return_context=True,
    )
    gradients = result.context.backward(grad_out)
    found = {"out": result.out, **gradients._asdict()}
    return [bits(found[name]) for name in RESULTS]


def sent(dask_worker):
    """Bytes that a worker has sent."""
    return dask_worker.transfer_outgoing_bytes_total


def main():
    """Run it and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="of a scheduler; default: workers here")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="2GiB", help="limit of each worker")
    parser.add_argument("--length", type=int, default=200_000)
    parser.add_argument("--block", type=int, default=12_500)
    given = parser.parse_args()
    cluster = given.address or LocalCluster(
        n_workers=given.workers,
        threads_per_worker=1,
        memory_limit=given.memory,
        dashboard_address=None,
    )
    with Client(cluster) as client:
        lazy = checksums(given.length, given.block)
        begin = time.perf_counter()
        found = dask.compute(*lazy)
        seconds = time.perf_counter() - begin
        moved = sum(client.run(sent).values())
    print(f"{seconds:.1f} s, {moved / 2**20:.0f} MiB between workers")
    for name, number in zip(RESULTS, found, strict=True):
        print(f"{name:8} {int(number):016x}")


if __name__ == "__main__":
    main()
