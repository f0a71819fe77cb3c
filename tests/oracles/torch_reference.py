"""PyTorch modules that relpos.nn mirrors, and how a layer is compared with one.

Written from the articles and papers, plain and slow: every matrix is built. Parameters
and constructor arguments have the names that checkpoints and callers know. Imported
only by tests that need torch.
"""

from __future__ import annotations

import math
from itertools import pairwise, zip_longest

import char_model
import numpy as np
import torch
from tolerances import assert_close, largest
from torch import nn
from torch.nn import functional as F


def heads_of(x, heads):
    """(B, L, H * D) -> (B, H, L, D)"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def from_heads(x):
    return x.transpose(1, 2).flatten(-2)


class RelativeGlobalAttention(nn.Module):
    """Equation 3 of the article, S_rel by the skewing of the Music Transformer."""

    def __init__(self, d_model, num_heads, max_len=1024, dropout=0.1):
        super().__init__()
        self.max_len, self.num_heads = max_len, num_heads
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.query = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.Er = nn.Parameter(torch.randn(max_len, d_model // num_heads))
        lower = torch.tril(torch.ones(max_len, max_len))
        self.register_buffer("mask", lower[None, None])

    def forward(self, x):
        length = x.shape[1]
        q, k, v = (
            heads_of(f(x), self.num_heads) for f in (self.query, self.key, self.value)
        )
        s_rel = self.skew(q @ self.Er[self.max_len - length :].T)
        scores = (q @ k.transpose(-1, -2) + s_rel) / math.sqrt(q.shape[-1])
        hidden = self.mask[..., :length, :length] == 0
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return self.dropout(from_heads(weights @ v))

    @staticmethod
    def skew(scores):
        """Pad a column on the left, read the rows one longer, drop the first."""
        *batch, rows, columns = scores.shape
        padded = F.pad(scores, (1, 0))
        return padded.reshape(*batch, columns + 1, rows)[..., 1:, :]


class RelPartialLearnableMultiHeadAttn(nn.Module):
    """Section 3.3 of Transformer-XL with memory; biases of its own unless given some.

    R_{i-j} is gathered by distance, so that r may also have rows for future keys.
    """

    def __init__(
        self, n_head, d_model, d_head, dropout, dropatt=0.0, pre_lnorm=False,
        r_r_bias=None, r_w_bias=None, layer_norm_epsilon=1e-5,
    ):  # fmt: skip
        super().__init__()
        self.n_head, self.d_head, self.pre_lnorm = n_head, d_head, pre_lnorm
        self.qkv_net = nn.Linear(d_model, 3 * n_head * d_head, bias=False)
        self.r_net = nn.Linear(d_model, n_head * d_head, bias=False)
        self.o_net = nn.Linear(n_head * d_head, d_model, bias=False)
        self.layer_norm = nn.LayerNorm(d_model, eps=layer_norm_epsilon)
        self.drop, self.dropatt = nn.Dropout(dropout), nn.Dropout(dropatt)
        self.owns = r_r_bias is None
        if self.owns:
            self.r_w_bias = nn.Parameter(torch.randn(n_head, d_head))
            self.r_r_bias = nn.Parameter(torch.randn(n_head, d_head))

    def forward(self, w, r, *rest, attn_mask=None, mems=None):
        u, v = (self.r_w_bias, self.r_r_bias) if self.owns else rest
        both = w if mems is None else torch.cat([mems, w])
        lq, lk = len(w), len(both)
        packed = self.qkv_net(self.layer_norm(both) if self.pre_lnorm else both)
        q, k, v_heads = packed.unflatten(-1, (3, self.n_head, self.d_head)).unbind(-3)
        table = self.r_net(r[:, 0]).unflatten(-1, (self.n_head, self.d_head))
        i, j = torch.arange(lq)[:, None] + lk - lq, torch.arange(lk)
        row = lk - 1 - (i - j)  # row 0 of r is the largest distance, lk - 1
        relative = table[row.clamp(max=len(table) - 1)]
        scores = torch.einsum("ibhd,jbhd->bhij", q[lk - lq :] + u, k)
        scores = scores + torch.einsum("ibhd,ijhd->bhij", q[lk - lq :] + v, relative)
        scores = scores / math.sqrt(self.d_head)
        if attn_mask is not None:
            hidden = attn_mask[None] if attn_mask.dim() == 2 else attn_mask
            hidden = hidden.permute(2, 0, 1)[:, None]
            scores = scores.masked_fill(hidden.bool(), -torch.inf)
        weights = self.dropatt(scores.softmax(-1))
        context = torch.einsum("bhij,jbhd->ibhd", weights, v_heads)
        out = w + self.drop(self.o_net(context.flatten(-2)))
        return out if self.pre_lnorm else self.layer_norm(out)


class ShawAttention(nn.Module):
    """Equations 3 and 4 of Shaw et al., with a vector for every pair."""

    def __init__(
        self, embed_dim, num_heads, max_relative_position,
        dropout=0.0, per_head=False, use_keys=True, use_values=True,
    ):  # fmt: skip
        super().__init__()
        self.num_heads, self.reach = num_heads, max_relative_position
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(embed_dim, embed_dim))
        shape = (2 * max_relative_position + 1, embed_dim // num_heads)
        if per_head:
            shape = (num_heads, *shape)
        self.rel_key = self.table(shape) if use_keys else None
        self.rel_value = self.table(shape) if use_values else None
        self.dropout = nn.Dropout(dropout)

    @staticmethod
    def table(shape):
        holder = nn.Module()
        holder.weight = nn.Parameter(torch.randn(shape))
        return holder

    def pairs(self, table, lq, lk, offset):
        """a_ij of every pair: (1 or H, Lq, Lk, D)."""
        relative = torch.arange(lk) - torch.arange(lq)[:, None] - offset
        rows = table.weight[
            ..., relative.clamp(-self.reach, self.reach) + self.reach, :
        ]
        return rows if rows.dim() == 4 else rows[None]

    def forward(self, query, key=None, value=None, attn_mask=None, query_offset=0):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = (
            heads_of(project(x), self.num_heads)
            for project, x in (
                (self.q_proj, query), (self.k_proj, key), (self.v_proj, value)
            )
        )  # fmt: skip
        sizes = q.shape[-2], k.shape[-2], query_offset
        scores = q @ k.transpose(-1, -2)
        if self.rel_key is not None:
            pairs = self.pairs(self.rel_key, *sizes)
            scores = scores + (q[..., None, :] * pairs).sum(-1)
        scores = scores / math.sqrt(q.shape[-1])
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = self.dropout(scores.softmax(-1))
        out = weights @ v
        if self.rel_value is not None:
            pairs = self.pairs(self.rel_value, *sizes)
            out = out + (weights[..., None] * pairs).sum(-2)
        return self.out_proj(from_heads(out))


class ConformerRelPositionAttention(nn.Module):
    """The Conformer's attention: Transformer-XL's scores in both directions."""

    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        for name in ("linear_q", "linear_k", "linear_v", "linear_out"):
            self.add_module(name, nn.Linear(d_model, d_model))
        self.linear_pos = nn.Linear(d_model, d_model, bias=False)
        self.pos_bias_u = nn.Parameter(torch.randn(num_heads, d_model // num_heads))
        self.pos_bias_v = nn.Parameter(torch.randn(num_heads, d_model // num_heads))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, pos_emb, mask=None, cache=None):
        if cache is not None:
            key, value = (torch.cat([cache, x], 1) for x in (key, value))
        q = heads_of(self.linear_q(query), self.num_heads)
        k = heads_of(self.linear_k(key), self.num_heads)
        v = heads_of(self.linear_v(value), self.num_heads)
        p = heads_of(self.linear_pos(pos_emb), self.num_heads)[0]
        lq, lk = q.shape[-2], k.shape[-2]
        distance = torch.arange(lq)[:, None] + lk - lq - torch.arange(lk)
        relative = p[:, lk - 1 - distance]
        u, w = self.pos_bias_u[:, None], self.pos_bias_v[:, None]
        scores = (q + u) @ k.transpose(-1, -2)
        scores = scores + ((q + w)[..., None, :] * relative).sum(-1)
        scores = scores / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, torch.finfo(q.dtype).min)
        weights = scores.softmax(-1)
        if mask is not None:
            weights = weights.masked_fill(mask[:, None] == 0, 0.0)
        return self.linear_out(from_heads(self.dropout(weights) @ v))


class DynamicPositionBias(nn.Module):
    """A network of the distance query - key, one output per head."""

    def __init__(self, dim, heads, depth, log_distance=False):
        super().__init__()
        self.log_distance = log_distance
        widths = [1] + [dim] * depth
        layers = [
            nn.Sequential(nn.Linear(before, after), nn.SiLU())
            for before, after in pairwise(widths)
        ]
        self.mlp = nn.ModuleList([*layers, nn.Linear(dim, heads)])

    def forward(self, length):
        dtype = self.mlp[-1].weight.dtype
        x = torch.arange(length - 1, -length, -1, dtype=dtype)[:, None]
        if self.log_distance:
            x = x.sign() * (x.abs() + 1).log()
        for layer in self.mlp:
            x = layer(x)
        return x.T


class CharModel(nn.Module):
    """The model of char_model.py, of the modules above."""

    def __init__(self):
        super().__init__()
        letters = len(char_model.LETTERS)
        width, heads, reach = char_model.WIDTH, char_model.HEADS, char_model.REACH
        self.letters = nn.Embedding(letters, width)
        self.attention = nn.ModuleList(
            ShawAttention(width, heads, reach) for _ in range(2)
        )
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.scores = nn.Linear(width, letters)

    def forward(self, tokens):
        x = self.letters(tokens)
        for attention, norm in zip(self.attention, self.norm, strict=True):
            x = norm(x + attention(x))
        return self.scores(x)


# ---- a layer compared with a module --------------------------------------------------


def tensor(x, with_gradient=True):
    """Return a tensor of an array, with a gradient if its numbers are real."""
    if not isinstance(x, np.ndarray):
        return x
    return torch.tensor(x, requires_grad=with_gradient and x.dtype.kind == "f")


def near_largest(got, want, kind):
    assert_close(got, want.detach(), kind, largest)


def assert_same(
    layer, module, *inputs, named=None, call=None, names=str, near=near_largest, **masks
):
    """Compare outputs, and gradients of the inputs and of every parameter.

    named: inputs with a gradient that are given by keyword. masks: other keywords; a
    module that has none of them is called by `call`. names: from a name of a parameter
    of the layer to the module's. A bias is compared together with its weight, and a
    table of one row with the queries': softmax takes away what is the same for all
    keys, so that nothing but rounding is left in the gradients of the keys' bias and of
    a^K for k = 0.
    """
    named = named or {}
    out = layer(*inputs, **named, **masks)
    assert out.dtype == layer.dtype
    first, last = [tensor(x) for x in inputs], {n: tensor(x) for n, x in named.items()}
    if call is None:
        masks = {n: tensor(x, with_gradient=False) for n, x in masks.items()}
        want = module(*first, **last, **masks)
    else:
        want = call(module, *first)
    near(out, want, "layer")
    grad_out = np.random.default_rng(3).standard_normal(out.shape).astype(out.dtype)
    want.backward(torch.tensor(grad_out))
    grads = layer.backward(grad_out)
    grads = grads if isinstance(grads, tuple) else (grads,)
    for got, x in zip_longest(grads, [*first, *last.values()]):
        if getattr(x, "requires_grad", False):
            near(got, x.grad, "layer gradient")
        else:
            assert got is None
    ours, theirs = dict(layer.named_parameters()), dict(module.named_parameters())
    assert {names(name) for name in ours} == {*theirs}
    for name, parameter in ours.items():
        assert parameter.grad.shape == theirs[names(name)].shape
        other = name.removesuffix("bias") + "weight" if name.endswith(".bias") else name
        if name == "rel_key.weight" and len(parameter.grad) == 1:
            other = "q_proj.weight"
        both = [name, *({other} & ours.keys() - {name})]
        got = np.concatenate([ours[n].grad.ravel() for n in both])
        want = torch.cat([theirs[names(n)].grad.ravel() for n in both])
        near(got, want, "layer gradient")
