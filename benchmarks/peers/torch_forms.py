"""PyTorch as people write it: expressions, with gradients by autograd.

Matmul, softmax, matmul; or `scaled_dot_product_attention` (sdpa) with the position term
as its mask, which may be the skewed view itself; or the first compiled. With gradients
blocks by hand (by_hand.py) were faster than blocks by autograd on every row,
so the latter are not here.

FlexAttention, compiled, has the forward only on a CPU. The products of queries with the
table are made before it, all at once: inside it they are refused. A score's own row is
found by its distance, clamped, since pairs that are hidden are asked for too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.peers.base import Peer, Skipped, Work
from benchmarks.peers.blocks import Block, form_of
from benchmarks.peers.expression import Expression, Library, Tensors, by_table, queries
from benchmarks.problems import Problem
from benchmarks.timing import Array

Tensor = Any


class InTorch(Library):
    """baddbmm adds while it multiplies."""

    def __init__(self) -> None:
        import torch

        self.xp: Any = torch

    def array(self, x: Array) -> Tensor:
        return self.xp.from_numpy(x)

    def pad(self, x: Tensor, left: int, right: int) -> Tensor:
        return self.xp.nn.functional.pad(x, (left, right))

    def plus_products(
        self, added: Tensor, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        three = (x.flatten(0, 1) for x in (added, a, b.mT))
        return self.xp.baddbmm(*three, alpha=scale).reshape(added.shape)

    def softmax(self, s: Tensor) -> Tensor:
        return s.softmax(-1)


class ByFunction(Expression):
    """The same with PyTorch's fused attention."""

    def __init__(self, library: InTorch, case: Problem, size: int | None) -> None:
        super().__init__(library, case, size)
        if case.scheme == "shaw":
            raise Skipped("sdpa does not give the weights that rel_value is for")
        self.attention = library.xp.nn.functional.scaled_dot_product_attention
        self.keeps_graph = library.xp.is_grad_enabled
        whole = size is None and self.form.offset == 0
        self.is_flagged = whole and case.scheme == "plain" and self.form.is_causal

    def of_block(
        self, x: Tensors, block: Block, mask: Any, content: Tensor, position: Tensor
    ) -> Tensor:
        keys, values = x["key"][..., : block.m, :], x["value"][..., : block.m, :]
        if self.is_flagged:
            return self.attention(content, keys, values, is_causal=True)
        if "rel_key" in x:
            mask = self.masked(self.bias(x, block, position), block, mask)
        return self.attention(content, keys, values, attn_mask=mask)

    def masked(self, bias: Tensor, block: Block, mask: Any) -> Tensor:
        """In place where no gradient asks for what was there."""
        if mask is None:
            return bias
        if self.keeps_graph():
            return bias + mask
        bias[..., block.diagonal] += mask[..., block.diagonal]
        return bias


def use_threads(threads: int) -> None:
    """So many; subnormal numbers are 0, which costs an Intel core dearly otherwise."""
    import torch

    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)


def prepare(
    case: Problem,
    mode: str,
    threads: int,
    *,
    kind: type[Expression],
    size: int | None,
    compiled: bool,
) -> Work:
    import torch

    if mode == "decode" and size is not None:
        raise Skipped("one query cannot be cut into blocks")
    use_threads(threads)
    expression: Callable[[Tensors], Tensor] = kind(InTorch(), case, size)
    if compiled:
        torch._dynamo.reset()
        expression = torch.compile(expression, dynamic=False, fullgraph=True)
    x = {name: torch.from_numpy(array) for name, array in case.arrays.items()}
    if mode != "fwdbwd":

        def forward() -> dict[str, Array]:
            return {"out": expression(x).numpy()}

        return torch.no_grad()(forward)
    leaves = {name: tensor.requires_grad_() for name, tensor in x.items()}
    grad_out = torch.from_numpy(case.grad_out)

    def both() -> dict[str, Array]:
        out = expression(leaves)
        grads = torch.autograd.grad(out, [*leaves.values()], grad_out)
        results = {"out": out.detach().numpy()}
        for name, grad in zip(leaves, grads, strict=True):
            results[name] = grad.numpy()
        return results

    return both


def peer(
    name: str, kind: type[Expression], size: int | None, compiled: bool = False
) -> Peer:
    form = partial(prepare, kind=kind, size=size, compiled=compiled)
    return Peer(name, size is None, "torch", form, compiled)


def flex(case: Problem, mode: str, threads: int) -> Work:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    form, library = form_of(case), InTorch()
    if mode == "fwdbwd":
        raise Skipped("FlexAttention has no backward on a CPU")
    if case.scheme == "shaw":
        raise Skipped("FlexAttention does not give the weights that rel_value is for")
    if case.arrays["query"].dtype != "float32":
        raise Skipped("FlexAttention takes no float64 on a CPU")
    use_threads(threads)
    torch._dynamo.reset()
    x = {name: torch.from_numpy(array) for name, array in case.arrays.items()}
    scale = float(x["query"].shape[-1] ** -0.5)
    offset, zero, mask = form.offset, form.zero, None
    if form.is_causal and form.queries > 1:

        def is_past(b: Any, h: Any, i: Any, j: Any) -> Any:
            return j <= i + offset

        mask = create_block_mask(
            is_past, B=None, H=None, Q_LEN=form.queries, KV_LEN=form.keys, device="cpu"
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

    def work() -> dict[str, Any]:
        content, position = queries(x, scale)
        if "rel_key" not in x:
            return {"out": attention(content).numpy()}
        terms = by_table(library, position, x["rel_key"])
        return {"out": attention(content, terms).numpy()}

    return torch.no_grad()(work)


PEERS = (
    peer("torch_eager", Expression, None),
    peer("torch_sdpa", ByFunction, None),
    peer("torch_sdpa_blocks_128", ByFunction, 128),
    peer("torch_sdpa_blocks_256", ByFunction, 256),
    peer("torch_compile", Expression, None, True),
    peer("torch_compile_blocks_256", Expression, 256, True),
    Peer("torch_flex", True, "torch", flex, True),
)
