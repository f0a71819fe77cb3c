"""PyTorch as people write it: expressions, with gradients by autograd.

Matmul, softmax, matmul; or `scaled_dot_product_attention` (sdpa) with the position term
as its mask, which may be the skewed view itself; or the first compiled. With gradients
blocks by hand (by_hand_backward.py) were faster than blocks by autograd on every row,
so the latter are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.peers.base import Peer, Skipped, Work
from benchmarks.peers.blocks import Block
from benchmarks.peers.expression import Expression, Tensors
from benchmarks.problems import Problem
from benchmarks.timing import Array

Tensor = Any


class InTorch:
    """baddbmm adds while it multiplies."""

    def __init__(self) -> None:
        import torch

        self.torch: Any = torch

    def array(self, x: Array) -> Tensor:
        return self.torch.from_numpy(x)

    def cat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return self.torch.cat(parts, axis)

    def pad(self, x: Tensor, left: int, right: int) -> Tensor:
        return self.torch.nn.functional.pad(x, (left, right))

    def spread(self, column: Tensor, count: int) -> Tensor:
        return column.expand(*column.shape[:-1], count)

    def by_heads(self, rows: Tensor, table: Tensor) -> Tensor:
        return self.torch.einsum("bhid,hrd->bhir", rows, table)

    def plus_products(
        self, added: Tensor, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        three = (x.flatten(0, 1) for x in (added, a, b.mT))
        return self.torch.baddbmm(*three, alpha=scale).reshape(added.shape)

    def softmax(self, s: Tensor) -> Tensor:
        return s.softmax(-1)


class ByFunction(Expression):
    """The same with PyTorch's fused attention."""

    def __init__(self, library: InTorch, case: Problem, size: int | None) -> None:
        super().__init__(library, case, size)
        if case.scheme == "shaw":
            raise Skipped("sdpa does not give the weights that rel_value is for")
        self.attention = library.torch.nn.functional.scaled_dot_product_attention
        self.keeps_graph = library.torch.is_grad_enabled
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
        raise Skipped("one query is no block")
    use_threads(threads)
    expression: Callable[[Tensors], Tensor] = kind(InTorch(), case, size)
    if compiled:
        torch._dynamo.reset()
        expression = torch.compile(expression, dynamic=False, fullgraph=True)
    x = {name: torch.from_numpy(array) for name, array in case.arrays.items()}
    if mode != "fwdbwd":
        return torch.no_grad()(lambda: {"out": expression(x).numpy()})
    leaves = {name: tensor.requires_grad_() for name, tensor in x.items()}
    grad_out = torch.from_numpy(case.grad_out)

    def both() -> dict[str, Array]:
        out = expression(leaves)
        grads = torch.autograd.grad(out, [*leaves.values()], grad_out)
        named = zip(leaves, (grad.numpy() for grad in grads), strict=True)
        return {"out": out.detach().numpy(), **dict(named)}

    return both


def peer(
    name: str, kind: type[Expression], size: int | None, compiled: bool = False
) -> Peer:
    form = partial(prepare, kind=kind, size=size, compiled=compiled)
    return Peer(name, size is None, "torch", form, compiled)


PEERS = (
    peer("torch_eager", Expression, None),
    peer("torch_sdpa", ByFunction, None),
    peer("torch_sdpa_blocks_128", ByFunction, 128),
    peer("torch_sdpa_blocks_256", ByFunction, 256),
    peer("torch_compile", Expression, None, True),
    peer("torch_compile_blocks_256", Expression, 256, True),
)
