"""Recorded modules as layers of relpos.nn: weights in, outputs and all gradients out.

An adapter per family takes a case and yields `(label, got, want)`; the label of a
gradient starts with "grad". What a layer does not express it has to refuse.
"""

from __future__ import annotations

import numpy as np
import pytest
import recorded_layers_xl
from recorded import families
from recorded_parts import make, parameter_gradients, weights

from relpos import nn


def sizes(case):
    return case.flags["d_model"], case.flags["n_head"]


# ---- Music Transformer --------------------------------------------------------------


def seed_rga(case):
    layer = make(nn.RelativeGlobalAttention, case, *sizes(case), case.flags["max_len"])
    layer.load_state_dict(weights(case))
    yield "out", layer(case["in_x"]), case.true("out_out")
    yield "grad x", layer.backward(case["ct_out"]), case.true("grad_in_x")
    yield from parameter_gradients(case, layer)


def gwinn(case):
    """Packed projections and an output projection around the same attention."""
    if case.flags["mask"] != "causal" or case.flags["key_padding"]:
        pytest.skip("RelativeGlobalAttention has no mask but the causal one")
    width, heads = sizes(case)
    layer = make(nn.RelativeGlobalAttention, case, width, heads, case.flags["er_len"])
    project = make(nn.Linear, case, width, width)
    packed = np.split(case.true("w_in_proj_weight"), 3)
    names = "query", "key", "value"
    state = {f"{n}.weight": w for n, w in zip(names, packed, strict=True)}
    biases = case.arrays.get("w_in_proj_bias", np.zeros(3 * width))
    biases = zip(names, np.split(biases, 3), strict=True)
    state |= {f"{name}.bias": bias for name, bias in biases}
    layer.load_state_dict(state | {"Er": case.true("w_Er")})
    bias = case.arrays.get("w_out_proj.bias", np.zeros(width))
    project.load_state_dict({"weight": case.true("w_out_proj.weight"), "bias": bias})
    out = project(layer(case["in_query"].swapaxes(0, 1)))
    yield "out", out.swapaxes(0, 1), case.true("out_out")
    grad = layer.backward(project.backward(case["ct_out"].swapaxes(0, 1)))
    yield "grad query", grad.swapaxes(0, 1), case.true("grad_in_query")
    yield "grad Er", layer.Er.grad, case.true("grad_w_Er")
    got = np.concatenate([getattr(layer, name).weight.grad for name in names])
    yield "grad in_proj", got, case.true("grad_w_in_proj_weight")
    if "grad_w_in_proj_bias" in case:
        got = np.concatenate([getattr(layer, name).bias.grad for name in names])
        yield "grad in_proj bias", got, case.true("grad_w_in_proj_bias")
    got, want = project.weight.grad, case.true("grad_w_out_proj.weight")
    yield "grad out_proj", got, want


# ---- Shaw ---------------------------------------------------------------------------


def onmt(case):
    """OpenNMT has one table for keys and values, whose gradient is the sum of both."""
    if case.flags["max_relative_positions"] <= 0 or (
        case.flags["relative_positions_buckets"] or case.flags["past_len"]
    ):
        pytest.skip("not Shaw's attention, or with a cache of projected keys")
    width, heads = sizes(case)
    layer = make(
        nn.ShawAttention, case, width, heads, case.flags["max_relative_positions"]
    )
    renamed = {
        "linear_keys": "k_proj", "linear_values": "v_proj", "linear_query": "q_proj",
        "final_linear": "out_proj", "relative_positions_embeddings": "rel_key",
    }  # fmt: skip
    state = weights(case, **renamed)
    state["rel_value.weight"] = state["rel_key.weight"]
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        state.setdefault(f"{name}.bias", np.zeros(width))
    layer.load_state_dict(state)
    mask = case.cast(np.where(case.true("core_allowed"), 0.0, -1e18))
    yield "out", layer(case["in_x"], attn_mask=mask), case.true("out_out")
    if not case.true("core_allowed").any(-1).all():
        return  # its fill replaces scores, an added mask leaves them their gradient
    yield "grad x", layer.backward(case["ct_out"]), case.true("grad_in_x")
    layer.rel_key.weight.add_grad(layer.rel_value.weight.grad)
    yield from parameter_gradients(case, layer, **renamed)


# ---- Conformer and the rest ---------------------------------------------------------


def conf(case):
    """A table of the past alone gets rows of zeros for the future."""
    variant = case.flags["variant"]
    causal = case.flags["mask"] == "causal"
    if variant == "noshift" or (variant == "legacy" and not causal):
        pytest.skip("positional scores that are no function of the relative position")
    layer = make(nn.ConformerRelPositionAttention, case, *sizes(case))
    layer.load_state_dict(weights(case))
    x, table, total = case["in_x"], case["in_pos_emb"], case.true("core_k").shape[-2]
    rows = np.zeros((1, 2 * total - 1, x.shape[-1]), case.dtype)
    count = 2 * total - 1 if variant in ("new", "new_cached") else total
    rows[:, :count] = table[:, :count]
    other = x if case.get("in_kv") is None else case["in_kv"]
    mask = np.broadcast_to(case.true("core_allowed")[:, 0], (len(x), x.shape[1], total))
    out = layer(x, other, other, rows, mask=mask)
    yield "out", out, case.true("out_out")
    grads = layer.backward(case["ct_out"])
    if other is x:
        yield "grad x", grads.query + grads.key + grads.value, case.true("grad_in_x")
    else:
        yield "grad x", grads.query, case.true("grad_in_x")
        yield "grad kv", grads.key + grads.value, case.true("grad_in_kv")
    got, want = grads.pos_emb[:, :count], case.true("grad_in_pos_emb")[:, :count]
    yield "grad pos_emb", got, want
    yield from parameter_gradients(case, layer)


def seed_ape(case):
    flags = case.flags
    layer = make(nn.LearnedAPE, case, flags["max_seq_len"], flags["embed_size"])
    layer.load_state_dict(weights(case))
    for name in case.arrays:
        if name.startswith("out_L"):
            x = np.zeros((3, int(name.removeprefix("out_L"))))
            yield name, layer(x), case.true(name)
            layer.backward(case[name.replace("out_", "ct_")])
    yield from parameter_gradients(case, layer)


def dynb(case):
    flags = case.flags
    layer = make(
        nn.DynamicPositionBias, case, flags["dim"], flags["heads"], flags["depth"]
    )
    layer.load_state_dict(weights(case))
    for name in case.arrays:
        if name.startswith("out_q"):
            want = case.true(name)
            lq, lk = want.shape[1:]
            bias = layer(lk)
            rows = np.arange(lk) - np.arange(lk - lq, lk)[:, None] + lk - 1
            yield name, bias[:, rows], want
            grad = np.zeros_like(bias)
            np.add.at(grad, (slice(None), rows), case[name.replace("out_", "ct_")])
            layer.backward(grad)
    yield from parameter_gradients(case, layer)


def esp_tables(case):
    for width in (8, 16):
        layer = make(nn.SinusoidalEncoding, case, width)
        large = case.cast(case.true(f"in_x_{width}") * np.sqrt(width))
        yield f"abs {width}", layer(large), case.true(f"out_abs_{width}")


FAMILIES = recorded_layers_xl.FAMILIES | families(vars(), "case")
