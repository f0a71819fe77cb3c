"""Recorded Transformer-XL: its two attentions, and whole models over three segments."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import families
from recorded_parts import make, parameter_gradients, weights

import relpos
from relpos import nn


def xl_partial(case):
    """Both owners of the biases: the recorded form, then as parameters."""
    flags = case.flags
    arguments = flags["n_head"], flags["d_model"], flags["d_head"], 0.1
    options = {"pre_lnorm": flags["pre_lnorm"], "layer_norm_epsilon": flags["ln_eps"]}
    kind = nn.RelPartialLearnableMultiHeadAttn
    shared = make(kind, case, *arguments, r_r_bias=0, r_w_bias=0, **options)
    shared.load_state_dict(weights(case))
    biases = case["in_r_w_bias"], case["in_r_r_bias"]
    inputs = case["in_w"], case["in_r"]
    keywords = {"attn_mask": case.get("in_attn_mask"), "mems": case.get("in_mems")}
    if attends_future(case):
        with pytest.raises(ValueError, match="leaves future keys visible"):
            shared(*inputs, *biases, **keywords)
        yield "refused", np.zeros(0, case.dtype), np.zeros(0)
        return
    out, want = shared(*inputs, *biases, **keywords), case.true("out_out")
    seen = ~np.isnan(want).any(
        (1, 2)
    )  # relpos gives the residual where upstream has NaN
    yield "out", out[seen], want[seen]
    if "ct_out" not in case:
        return
    grads = shared.backward(case["ct_out"])
    for name, got in grads._asdict().items():
        if got is not None:
            yield f"grad {name}", got, case.true(f"grad_in_{name}")
    yield from parameter_gradients(case, shared)
    own = make(kind, case, *arguments, **options)
    names = "r_w_bias", "r_r_bias"
    own.load_state_dict(weights(case) | {n: case.true(f"in_{n}") for n in names})
    yield "own out", own(*inputs, **keywords), want
    own_grads = own.backward(case["ct_out"])
    yield "grad own w", own_grads.w, case.true("grad_in_w")
    for name in names:
        yield f"grad own {name}", getattr(own, name).grad, case.true(f"grad_in_{name}")


def attends_future(case):
    lq, lk = case.true("core_allowed").shape[-2:]
    if case.flags["mask"] == "pad2d":
        lq = len(case.true("in_w"))
    future = np.triu(np.ones((lq, lk), bool), lk - lq + 1)
    return bool((case.true("core_allowed") & future).any())


class LearnableAttention(nn.Module):
    """Transformer-XL's other attention, of the parts that relpos.nn has.

    A learned vector and a learned score for each distance instead of sinusoids and v.
    """

    def __init__(self, case):
        heads, inner = case.flags["n_head"], case.flags["n_head"] * case.flags["d_head"]
        width, dtype = case.flags["d_model"], case.dtype
        self.heads = heads
        self.qkv_net = nn.Linear(width, 3 * inner, bias=False, dtype=dtype)
        self.o_net = nn.Linear(inner, width, bias=False, dtype=dtype)
        self.layer_norm = nn.LayerNorm(width, eps=case.flags["ln_eps"], dtype=dtype)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2, 0, 3)

    def join(self, x):
        y = x.transpose(2, 0, 1, 3)
        return y.reshape(*y.shape[:2], -1)

    def __call__(self, w, r_emb, r_w_bias, r_bias, mems=None):
        both = w if mems is None else np.concatenate([mems, w])
        parts = np.split(self.qkv_net(both), 3, axis=-1)
        query, key, value = (self.split(x) for x in parts)
        self.scale = w.dtype.type(query.shape[-1] ** -0.5)
        result = relpos.attention(
            query[..., -len(w) :, :],
            key,
            value,
            is_causal=True,
            query_offset=len(both) - len(w),
            rel_key=r_emb.swapaxes(0, 1),
            rel_bias=r_bias.T * self.scale,
            min_relative_position=1 - len(r_emb),
            pos_bias_u=r_w_bias,
            return_context=True,
        )
        self.context = result.context
        return self.layer_norm(w + self.o_net(self.join(result.out)))

    def backward(self, grad_out):
        """Gradients of w, r_emb, r_w_bias, r_bias and mems."""
        grad = self.layer_norm.backward(grad_out)
        grads = self.context.backward(self.split(self.o_net.backward(grad)))
        query = np.zeros_like(grads.key)
        query[..., -len(grad) :, :] = grads.query
        packed = [self.join(x) for x in (query, grads.key, grads.value)]
        both = self.qkv_net.backward(np.concatenate(packed, axis=-1))
        before = len(both) - len(grad)
        return (
            grad + both[before:],
            grads.rel_key.swapaxes(0, 1),
            grads.pos_bias_u,
            grads.rel_bias.T * self.scale,
            both[:before],
        )


def xl_learnable(case):
    layer = LearnableAttention(case)
    layer.load_state_dict(weights(case))
    names = ["w", "r_emb", "r_w_bias", "r_bias", "mems"]
    inputs = [case.get(f"in_{name}") for name in names]
    yield "out", layer(*inputs), case.true("out_out")
    for name, got in zip(names, layer.backward(case["ct_out"]), strict=True):
        if f"grad_in_{name}" in case:
            yield f"grad {name}", got, case.true(f"grad_in_{name}")
    yield from parameter_gradients(case, layer)


class Decoder(nn.Module):
    """One layer of the recorded language models: attention, then two Linears."""

    def __init__(self, case):
        width, inner = case.flags["d_model"], case.flags["d_inner"]
        options = {"dtype": case.dtype}
        if case.flags["attn_type"] == 0:
            self.dec_attn = nn.RelPartialLearnableMultiHeadAttn(
                case.flags["n_head"], width, case.flags["d_head"], 0.0,
                r_r_bias=0, r_w_bias=0, **options,
            )  # fmt: skip
        else:
            self.dec_attn = LearnableAttention(case)
        self.first = nn.Linear(width, inner, **options)
        self.second = nn.Linear(inner, width, **options)
        self.layer_norm = nn.LayerNorm(width, eps=case.flags["ln_eps"], **options)

    def __call__(self, x, *args, **keywords):
        x = self.dec_attn(x, *args, **keywords)
        hidden = self.first(x)
        self.positive = hidden > 0
        return self.layer_norm(x + self.second(hidden * self.positive))

    def backward(self, grad_out):
        grad = self.layer_norm.backward(grad_out)
        grad = grad + self.first.backward(self.second.backward(grad) * self.positive)
        return self.dec_attn.backward(grad)


#: recorded names of a layer's parts -> those of Decoder
PARTS = {
    "pos_ff.CoreNet.0": "first",
    "pos_ff.CoreNet.3": "second",
    "pos_ff.layer_norm": "layer_norm",
}


def xl_lm(case):
    """Three segments of a model: each goes forward, then back, before the next."""
    flags, depth = case.flags, case.flags["n_layer"]
    embedding = make(nn.Embedding, case, flags["n_token"], flags["d_model"])
    embedding.load_state_dict({"weight": case.true("w_word_emb.emb_layers.0.weight")})
    layers = [Decoder(case) for _ in range(depth)]
    for index, layer in enumerate(layers):
        layer.load_state_dict(weights(case, f"w_layers.{index}.", **PARTS))
    memories, root = [None] * depth, case.dtype.type(flags["d_model"] ** 0.5)
    tables = Tables(case)
    for segment in range(flags["n_segments"]):
        begin = segment * flags["tgt_len"]
        tokens = case["in_tokens"][begin : begin + flags["tgt_len"]]
        x = embedding(tokens) * root
        for index, layer in enumerate(layers):
            memory = memories[index]
            memories[index] = nn.update_memory(memory, x, flags["mem_len"])
            stored = case.true(f"out_seg{segment}_mem{index}")
            yield f"memory {segment} {index}", memories[index], stored
            x = layer(x, *tables.arguments(index, len(x), memory))
        yield f"hidden {segment}", x, case.true(f"out_seg{segment}_hidden")
        grad = case[f"ct_seg{segment}_hidden"]
        for index in reversed(range(depth)):
            grad = tables.collect(index, layers[index].backward(grad))
        embedding.backward(grad * root)
    for index, layer in enumerate(layers):
        yield from parameter_gradients(case, layer, f"grad_w_layers.{index}.", **PARTS)
    want = case.true("grad_w_word_emb.emb_layers.0.weight")
    yield "grad word_emb", embedding.weight.grad, want
    for name, got in tables.grads.items():
        yield f"grad {name}", got, case.true(f"grad_w_{name}")


class Tables:
    """The biases that the model owns, and their gradients."""

    def __init__(self, case):
        self.case, self.sinusoids = case, case.flags["attn_type"] == 0
        names = ("r_w_bias", "r_r_bias" if self.sinusoids else "r_bias")
        names += () if self.sinusoids else ("r_emb",)
        self.grads = {name: np.zeros_like(case[f"w_{name}"]) for name in names}

    def arguments(self, index, length, memory):
        """Return the arguments of a layer after x."""
        case, total = self.case, length + (0 if memory is None else len(memory))
        if not self.sinusoids:
            names = ("r_emb", "r_w_bias", "r_bias")
            return *(case[f"w_{name}"][index] for name in names), memory
        r = relpos.sinusoidal(
            np.arange(total)[::-1],
            case.flags["d_model"],
            layout="concat",
            dtype=case.dtype,
        )
        future = np.triu(np.ones((length, total), bool), total - length + 1)[..., None]
        return r, case["w_r_w_bias"], case["w_r_r_bias"], future, memory

    def collect(self, index, grads):
        """Add the gradients of the biases; return that of x."""
        if self.sinusoids:
            self.grads["r_w_bias"] += grads.r_w_bias
            self.grads["r_r_bias"] += grads.r_r_bias
            return grads.w
        x, *rest, _ = grads
        for name, grad in zip(("r_emb", "r_w_bias", "r_bias"), rest, strict=True):
            self.grads[name][index] += grad
        return x


def mem_raw(case):
    """Without the original's ext_len all its update rules agree."""
    for name in case.arrays:
        if name.startswith("in_mem_") and name.endswith("_0"):
            sizes = name.removeprefix("in_mem_")
            keep = int(sizes.split("_")[2])
            got = nn.update_memory(case[name], case[f"in_hid_{sizes}"], keep)
            for kind in ("kimi_asdeclared", "hf"):
                yield f"{kind} {sizes}", got, case.true(f"out_{kind}_{sizes}")


FAMILIES = families(vars(), "case")
