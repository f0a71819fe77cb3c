"""PyTorch's FlexAttention, compiled: forward only on a CPU.

The products of queries with the table are made before it, all at once: inside it they
are refused. A score's own row is found by its distance, clamped, since pairs that are
hidden are asked for too.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.base import Peer, Skipped, Work
from benchmarks.peers.blocks import form_of
from benchmarks.peers.torch_forms import InTorch, use_threads
from benchmarks.problems import Problem


def prepare(case: Problem, mode: str, threads: int) -> Work:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    form = form_of(case)
    if mode == "fwdbwd":
        raise Skipped("FlexAttention has no backward on a CPU")
    if case.scheme == "shaw":
        raise Skipped("FlexAttention does not give the weights that rel_value is for")
    if case.arrays["query"].dtype != "float32":
        raise Skipped("FlexAttention takes no float64 on a CPU")
    use_threads(threads)
    torch._dynamo.reset()
    x = {name: torch.from_numpy(array) for name, array in case.arrays.items()}
    scale = x["query"].shape[-1] ** -0.5
    offset, zero, mask = form.offset, form.zero, None
    if form.is_causal and form.queries > 1:
        mask = create_block_mask(
            lambda b, h, i, j: j <= i + offset,
            None,
            None,
            form.queries,
            form.keys,
            "cpu",
        )

    def plain(q: Any) -> Any:
        return flex_attention(q, x["key"], x["value"], block_mask=mask)

    def moved(q: Any, terms: Any) -> Any:
        last = terms.shape[-1] - 1

        def add(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            row = (j - i + (zero - offset)).clamp(0, last)
            return s + terms[b, h, i, row]

        return flex_attention(q, x["key"], x["value"], score_mod=add, block_mask=mask)

    attention = torch.compile(moved if "rel_key" in x else plain, dynamic=False)
    library = InTorch()

    def work() -> dict[str, Any]:
        q = x["query"]
        if "rel_key" not in x:
            return {"out": attention(q).numpy()}
        position, content, table = q * scale, q, x["rel_key"]
        if "pos_bias_u" in x:
            position = (q + x["pos_bias_v"][..., None, :]) * scale
            content = q + x["pos_bias_u"][..., None, :]
        if table.ndim == 2 or len(q) == 1:
            terms = position @ table.mT
        else:
            terms = library.by_heads(position, table)
        return {"out": attention(content, terms).numpy()}

    return torch.no_grad()(work)


PEERS = (Peer("torch_flex", True, "torch", prepare, True),)
