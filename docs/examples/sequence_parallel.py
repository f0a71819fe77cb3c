"""One sequence over several processes of PyTorch, forward and backward.

    python docs/examples/sequence_parallel.py --ranks 2

Each process holds its own queries, keys and values, an equal run of the sequence, and
the whole of the tables. It prints how far results and gradients are from one process's.
"""

import argparse
import functools
import pathlib
import tempfile

import torch
import torch.distributed as dist

import relpos.torch

TOKENS = ("query", "key", "value")


class Gather(torch.autograd.Function):
    """Put the parts of all processes beside each other, along the sequence."""

    @staticmethod
    def forward(ctx, part):
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, dim=-2)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)  # each process's queries have their share
        return grad.chunk(dist.get_world_size(), dim=-2)[dist.get_rank()]


def attention(query, key, value, **keywords):
    """Attention of this process's queries with the keys and values of all."""
    key, value = Gather.apply(key), Gather.apply(value)
    first = dist.get_rank() * query.shape[-2]
    return relpos.torch.attention(query, key, value, query_offset=first, **keywords)


def sum_gradients(tables):
    """Add up what each process found, as each has seen its own queries only."""
    for table in tables:
        dist.all_reduce(table.grad)


def problem(length):
    """Tokens, tables, the gradient of out, and settings, the same on every process."""
    draws = torch.Generator().manual_seed(0)
    draw = functools.partial(torch.randn, generator=draws, dtype=torch.float64)
    tokens = {name: draw(2, 4, length, 8) for name in (*TOKENS, "grad_out")}
    tables = {"rel_key": draw(4, 9, 8), "rel_value": draw(5, 8), "rel_bias": draw(4, 7)}
    return tokens, tables, {"is_causal": True, "window": (length // 2, 0)}


def step(attend, tokens, tables, settings):
    """Results and gradients of a step, by name."""
    grad_out = tokens["grad_out"]
    leaves = {**{name: tokens[name] for name in TOKENS}, **tables}
    leaves = {name: x.clone().requires_grad_() for name, x in leaves.items()}
    out = attend(**leaves, **settings)
    out.backward(grad_out)
    if attend is attention:
        sum_gradients(leaves[name] for name in tables)
    return {"out": out.detach(), **{name: x.grad for name, x in leaves.items()}}


def work(rank, ranks, folder, length):
    """Compute one process's part of a step and store it in a file."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks
    )
    tokens, tables, settings = problem(length)
    part = {name: x.chunk(ranks, dim=-2)[rank] for name, x in tokens.items()}
    torch.save(step(attention, part, tables, settings), f"{folder}/{rank}.pt")
    dist.barrier()  # no process ends while another still waits for it
    dist.destroy_process_group()


def run(ranks, length):
    """Return the results of the processes, with the parts of the tokens joined."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (ranks, folder, length), nprocs=ranks)
        files = [pathlib.Path(folder, f"{rank}.pt") for rank in range(ranks)]
        parts = [torch.load(file) for file in files]
    results = {}
    for name in parts[0]:
        results[name] = [part[name] for part in parts]
        if name in ("out", *TOKENS):
            results[name] = torch.cat(results[name], dim=-2)
    return results


def main():
    """Run it and print how far each result is from that of one process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--length", type=int, default=64)
    options = parser.parse_args()
    results = run(options.ranks, options.length)
    expected = step(relpos.torch.attention, *problem(options.length))
    for name, want in expected.items():
        got = results[name] if isinstance(results[name], list) else [results[name]]
        error = max(float((part - want).abs().max()) for part in got)
        print(f"{name:9} {error:.1e}")


if __name__ == "__main__":
    main()
