"""PyTorch as people write it: expressions, with gradients by autograd.

One block of all queries is the dense form; blocks of some are a loop of a few lines,
each over the keys that it sees. Either ends in matmul, softmax, matmul or in
`scaled_dot_product_attention` (sdpa) with the position term as its mask. What may
be compiled by `torch.compile` is compiled as it stands.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.case import Case
from benchmarks.peers.base import Peer, Skipped, Work
from benchmarks.peers.blocks import Block, form_of

__all__ = ["PEERS"]

Tensor = Any
Tensors = dict[str, Tensor]


def skewed(x: Tensor, m: int) -> Tensor:
    """[i, j] is column n - 1 - i + j of row i."""
    n, ld = x.shape[-2:]
    if n == 1:
        return x[..., :m]
    rows = x.flatten(-2)[..., n - 1 : n - 1 + n * (ld - 1)]
    return rows.reshape(*x.shape[:-2], n, ld - 1)[..., :m]


def unskewed(x: Tensor) -> Tensor:
    """The band of which x is the skewed part, with zeros around it."""
    from torch.nn.functional import pad

    n, m = x.shape[-2:]
    if n == 1:
        return x
    flat = pad(x, (0, n - 2)).flatten(-2)
    return pad(flat, (n - 1, 1)).reshape(*x.shape[:-2], n, n + m - 1)


def by_table(rows: Tensor, table: Tensor) -> Tensor:
    """Products of each row with each of the table's, for all heads or for each."""
    import torch

    if table.ndim == 2 or len(rows) == 1:
        return rows @ table.mT
    return torch.einsum("bhid,hrd->bhir", rows, table)


class Expression:
    """The output of a case as an expression of its tensors."""

    def __init__(self, case: Case, size: int | None, sdpa: bool, dtype: Any) -> None:
        import torch

        self.torch, self.sdpa = torch, sdpa
        form = form_of(case)
        if sdpa and case.scheme == "shaw":
            raise Skipped("sdpa does not give the weights that rel_value is for")
        self.is_long = case.scheme in ("music", "xl")
        self.is_causal = form.is_causal
        self.scale = float(case.arrays["query"].shape[-1] ** -0.5)
        self.blocks = form.blocks(size or form.queries)
        self.masks = [self.mask(block, dtype) for block in self.blocks]
        self.plain_causal = case.scheme == "plain" and size is None and form.offset == 0

    def mask(self, block: Block, dtype: Any) -> Tensor | None:
        """0 and -inf, to be added."""
        if block.hidden is None:
            return None
        mask = self.torch.zeros((block.n, block.m), dtype=dtype)
        hidden = self.torch.from_numpy(block.hidden)
        mask[:, block.diagonal].masked_fill_(hidden, float("-inf"))
        return mask

    def __call__(self, x: Tensors) -> Tensor:
        q = x["query"]
        content = q + x["pos_bias_u"][..., None, :] if "pos_bias_u" in x else q
        position = q + x["pos_bias_v"][..., None, :] if "pos_bias_v" in x else q
        if "rel_key" in x:
            position = position * self.scale
        x = dict(x)
        if (
            self.is_long and self.is_causal
        ):  # a column more, so that rows do not overlap
            x["rel_key"] = self.torch.nn.functional.pad(x["rel_key"], (0, 0, 0, 1))
        parts = [
            self.of_block(
                x,
                block,
                mask,
                content[..., block.rows, :],
                position[..., block.rows, :],
            )
            for block, mask in zip(self.blocks, self.masks, strict=True)
        ]
        return parts[0] if len(parts) == 1 else self.torch.cat(parts, dim=-2)

    def of_block(
        self, x: Tensors, block: Block, mask: Any, content: Tensor, position: Tensor
    ) -> Tensor:
        keys, values = x["key"][..., : block.m, :], x["value"][..., : block.m, :]
        bias = self.bias(x, block, position)
        if self.sdpa:
            if bias is not None and mask is not None:
                bias = self.masked(bias, block, mask)
            return self.attend(content, keys, values, mask if bias is None else bias)
        if bias is None:
            s = (content * self.scale) @ keys.mT
        else:
            s = self.plus_products(bias, content, keys)
        if mask is not None:
            s += mask
        p = s.softmax(-1)
        out = p @ values
        if "rel_value" in x:
            out = out + self.sums(p, block, len(x["rel_value"])) @ x["rel_value"]
        return out

    def plus_products(self, bias: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """baddbmm adds while it multiplies."""
        three = (x.flatten(0, 1) for x in (bias, queries, keys.mT))
        s = self.torch.baddbmm(*three, alpha=self.scale)
        return s.reshape(bias.shape)

    def masked(self, bias: Tensor, block: Block, mask: Tensor) -> Tensor:
        """In place where no gradient asks for what was there."""
        if self.torch.is_grad_enabled():
            return bias + mask
        bias[..., block.diagonal] += mask[..., block.diagonal]
        return bias

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
        attention = self.torch.nn.functional.scaled_dot_product_attention
        if self.plain_causal:
            return attention(q, k, v, is_causal=self.is_causal)
        return attention(q, k, v, attn_mask=mask)

    def bias(self, x: Tensors, block: Block, position: Tensor) -> Tensor | None:
        """The position term of the scores."""
        if "rel_key" not in x:
            return None
        if self.is_long:
            band = x["rel_key"][..., block.band.start : block.band.stop + 1, :]
            return skewed(by_table(position, band), block.m)
        left, right = block.ends
        near = block.near
        terms = position @ x["rel_key"].mT
        first, last = terms[..., :1], terms[..., -1:]
        band = self.torch.cat(
            [
                first.expand(*first.shape[:-1], left),
                terms[..., block.inner],
                last.expand(*last.shape[:-1], right),
            ],
            dim=-1,
        )
        return self.torch.cat(
            [
                first.expand(*first.shape[:-1], near.start),
                skewed(band, near.stop - near.start),
                last.expand(*last.shape[:-1], block.m - near.stop),
            ],
            dim=-1,
        )

    def sums(self, p: Tensor, block: Block, rows: int) -> Tensor:
        """Weights summed by row of a clipped table."""
        left, right = block.ends
        near, inner = block.near, block.inner
        band = unskewed(p[..., near])
        columns = band.shape[-1]
        first = p[..., : near.start].sum(-1, keepdim=True)
        last = p[..., near.stop :].sum(-1, keepdim=True)
        first = first + band[..., :left].sum(-1, keepdim=True)
        last = last + band[..., columns - right :].sum(-1, keepdim=True)
        if rows == 1:
            return first + last
        between = band[..., left : columns - right]
        pad = self.torch.nn.functional.pad
        between = pad(between, (inner.start - 1, rows - 1 - inner.stop))
        return self.torch.cat([first, between, last], dim=-1)


def tensors_of(case: Case) -> Tensors:
    import torch

    return {name: torch.from_numpy(x) for name, x in case.arrays.items()}


def prepare(
    case: Case, mode: str, threads: int, *, size: int | None, sdpa: bool, compiled: bool
) -> Work:
    import torch

    if mode == "decode" and size is not None:
        raise Skipped("one query is no block")
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    x = tensors_of(case)
    expression: Any = Expression(case, size, sdpa, x["query"].dtype)
    if compiled:
        torch._dynamo.reset()
        expression = torch.compile(expression, dynamic=False, fullgraph=True)
    if mode != "fwdbwd":

        def forward() -> dict[str, Any]:
            with torch.no_grad():
                return {"out": expression(x).numpy()}

        return forward
    leaves = {name: tensor.requires_grad_() for name, tensor in x.items()}
    grad_out = torch.from_numpy(case.grad_out)

    def both() -> dict[str, Any]:
        out = expression(leaves)
        grads = torch.autograd.grad(out, list(leaves.values()), grad_out)
        named = zip(leaves, (grad.numpy() for grad in grads), strict=True)
        return {"out": out.detach().numpy(), **dict(named)}

    return both


def peer(name: str, size: int | None, sdpa: bool, compiled: bool = False) -> Peer:
    form = partial(prepare, size=size, sdpa=sdpa, compiled=compiled)
    return Peer(name, size is None, "torch", form, compiled)


PEERS = (
    peer("torch_eager", None, False),
    peer("torch_sdpa", None, True),
    peer("torch_sdpa_blocks_128", 128, True),
    peer("torch_sdpa_blocks_256", 256, True),
    peer("torch_compile", None, False, True),
    peer("torch_compile_blocks_256", 256, False, True),
)
