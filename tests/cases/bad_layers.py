"""Rows of the table of bad calls to relpos.nn: (exception, pattern, call).

A message starts with the argument's name, says what came and what was wanted.
"""

from __future__ import annotations

import numpy as np

import relpos
from relpos import nn

X = np.zeros((2, 5, 6), "float32")
W = X.swapaxes(0, 1)  # time first
FUTURE = np.triu(np.ones((5, 5), bool), 1)
PAIRS = FUTURE[:, :, None]
BIAS = np.zeros((2, 4), "float32")
WEIGHT = nn.Parameter(np.zeros(3))
LOGITS = np.zeros((1, 2))
ENDLESS = np.broadcast_to(np.float32(1), (2, 1, 2**46))  # no copy of it fits in memory

Music, Shaw = nn.RelativeGlobalAttention, nn.ShawAttention
XL, Conformer = nn.RelPartialLearnableMultiHeadAttn, nn.ConformerRelPositionAttention


def rows(count):
    return relpos.sinusoidal(count, 6)


def music(*args):
    return Music(6, 2, 4)(*args)


def shaw(*args, **keywords):
    return Shaw(6, 2, 2)(*args, **keywords)


def xl(*args):
    return XL(2, 6, 4, 0.1)(*args)


def shared(*args):
    return XL(2, 6, 4, 0.1, r_r_bias=0, r_w_bias=0)(*args)


def conformer(*args, **keywords):
    return Conformer(6, 2)(X, X, X, *args, **keywords)


def backward(grad_out):
    layer = nn.Linear(6, 2)
    layer(X)
    return layer.backward(grad_out)


def assign(layer, name, value):
    setattr(layer, name, value)


def load(*args):
    return nn.Linear(6, 2).load_state_dict(*args)


CONSTRUCTORS = [
    (
        ValueError,
        "num_heads: got 4, which does not",
        lambda: Shaw(6, 4, 2),
    ),
    (ValueError, "num_heads: got 0", lambda: Conformer(6, 0)),
    (
        ValueError,
        "dropout: got 1.0; expected 0 <=",
        lambda: Shaw(6, 2, 2, 1),
    ),
    (ValueError, "dropout: got -0.1", lambda: Music(6, 2, 9, -0.1)),
    (ValueError, "dropout: got 1.5", lambda: XL(2, 6, 4, 1.5)),
    (ValueError, "dropatt: got 2.0", lambda: XL(2, 6, 4, 0.1, 2.0)),
    (ValueError, "dropout: got nan", lambda: Conformer(6, 2, float("nan"))),
    (ValueError, "p: got 1.0; expected 0 <= p < 1", lambda: nn.Dropout(1.0)),
    (TypeError, "p: got str", lambda: nn.Dropout("0.5")),
    (ValueError, "r_w_bias: got None while", lambda: XL(2, 6, 4, 0.1, r_r_bias=0)),
    (ValueError, "r_r_bias: got None while", lambda: XL(2, 6, 4, 0.1, r_w_bias=0)),
    (ValueError, "max_relative_position: got -1", lambda: Shaw(6, 2, -1)),
    (TypeError, "d_model: got float", lambda: Music(6.0, 2)),
    (TypeError, "per_head: got int", lambda: Shaw(6, 2, 2, per_head=1)),
    (TypeError, "dtype: got float16", lambda: nn.Linear(2, 2, dtype="float16")),
    (TypeError, "rng: got str", lambda: nn.Linear(2, 2, rng="seed")),
    (TypeError, "rng: got bool", lambda: nn.Linear(2, 2, rng=True)),
    (ValueError, "rng: got -1", lambda: nn.Linear(2, 2, rng=-1)),
    (TypeError, "in_features: got str", lambda: nn.Linear("3", 2)),
    (TypeError, "dtype: got 'x'; expected float32", lambda: nn.Linear(2, 2, dtype="x")),
    (TypeError, "dtype: got dict; exp", lambda: nn.Embedding(2, 2, dtype={"a": 1})),
    (
        TypeError,
        "layer_norm_epsilon: got str",
        lambda: XL(2, 6, 4, 0.1, layer_norm_epsilon="x"),
    ),
    (
        ValueError,
        "in_features: .*more bytes",
        lambda: nn.Linear(2**31 - 1, 2**31 - 1),
    ),
    (
        ValueError,
        "embedding_dim: .*more bytes",
        lambda: nn.Embedding(2**31 - 1, 2**31 - 1),
    ),
    (
        ValueError,
        "kernel_size: .*more bytes",
        lambda: nn.ConvPositionEmbedding(2**31 - 1, 2**31 - 1, 1),
    ),
    (ValueError, "depth: got 0", lambda: nn.DynamicPositionBias(4, 2, 0)),
    (ValueError, "layout: got 'x'", lambda: nn.SinusoidalEncoding(4, layout="x")),
    (ValueError, "eps: got -1", lambda: nn.LayerNorm(4, eps=-1)),
]

CALLS = [
    (ValueError, "x: got a sequence of 5; .* max_len = 4", lambda: music(X)),
    (ValueError, r"x: got .*\(5, 6\); expected \(batch, seq, 6\)", lambda: music(X[0])),
    (TypeError, "x: got dtype int64", lambda: music(X.astype(int))),
    (TypeError, "x: got dtype float64; .*float32", lambda: music(X.astype(float))),
    (ValueError, "x: .* 5; .* max_len = 3", lambda: nn.SinusoidalEncoding(6, 3)(X)),
    (IndexError, "x: .* 5; .* max_seq_len = 4", lambda: nn.LearnedAPE(4, 6)(X)),
    (ValueError, r"x: got shape \(3,\)", lambda: nn.LearnedAPE(4, 6)(np.zeros(3))),
    (IndexError, "indices: position 9 is out", lambda: nn.Embedding(9, 2)([[9]])),
    (TypeError, "indices: got dtype float64", lambda: nn.Embedding(9, 2)([0.5])),
    (ValueError, "indices: got -1", lambda: nn.Embedding(9, 2)(-1)),
    (IndexError, "indices: position 9 of", lambda: nn.Embedding(9, 2)(10)),
    (ValueError, r"x: got .* expected \(\.\.\., 5\)", lambda: nn.Linear(5, 2)(X)),
    (ValueError, r"x: got shape \(\); expected", lambda: nn.LayerNorm(1)(X[0, 0, 0])),
    (ValueError, "length: got 0", lambda: nn.DynamicPositionBias(4, 2, 1)(0)),
    (
        ValueError,
        r"mask: got shape .*; expected \(2, 5\)",
        lambda: nn.ConvPositionEmbedding(6, 4, 3)(X, ENDLESS[:, 0]),
    ),
    # Shaw
    (ValueError, "key: got None with a value", lambda: shaw(X, None, X)),
    (ValueError, r"value: .*expected \(2, 5, 6\)", lambda: shaw(X, X, X[:, 1:])),
    (ValueError, r"key: .*expected \(2, Lk, 6\)", lambda: shaw(X, X[:1])),
    (ValueError, "query_offset", lambda: shaw(X[:, 1:], X)),
    (ValueError, "attn_mask", lambda: shaw(X, attn_mask=np.ones((3, 5, 5), bool))),
    # Transformer-XL: memory, reach, masks, biases
    (
        ValueError,
        r"mems: .*\(M, 2, 6\)",
        lambda: xl(W, rows(8), None, W[:, :1]),
    ),
    (ValueError, "r: got 5 rows for .* Lk = 8", lambda: xl(W, rows(5), None, W[:3])),
    (ValueError, "leaves future keys visible", lambda: xl(W, rows(5))),
    (ValueError, r"expected \(R, 6\)", lambda: xl(W, W, FUTURE[..., None])),
    (ValueError, r"attn_mask\[:, :, None\]", lambda: xl(W, rows(5), FUTURE)),
    (ValueError, "attn_mask: has values other", lambda: xl(W, rows(5), -1e9 * PAIRS)),
    (ValueError, r"attn_mask: got shape .*; exp", lambda: xl(W, rows(5), ENDLESS[0])),
    (TypeError, "attn_mask: got .*<U1", lambda: xl(W, rows(5), np.full((5, 2), "x"))),
    (TypeError, "0 arguments after .*r_r_bias, attn", lambda: shared(W, rows(5))),
    (TypeError, "3 arguments .*layer owns", lambda: xl(W, rows(5), None, None, None)),
    (
        ValueError,
        r"r_w_bias: got shape \(2, 3\); expected \(2, 4\)",
        lambda: shared(W, rows(9), BIAS[:, 1:], BIAS),
    ),
    # Conformer
    (ValueError, r"pos_emb: .*\(5, 6\); expected \(9, 6\)", lambda: conformer(rows(5))),
    (ValueError, r"mask: .*\(5, 5\); .*\(2, 1", lambda: conformer(rows(9), FUTURE)),
    (ValueError, r"mask: got shape .*; exp", lambda: conformer(rows(9), ENDLESS)),
    (
        ValueError,
        r"cache: got shape \(1, 3, 6\); expected \(2, M, 6\)",
        lambda: conformer(rows(15), cache=X[:1, :3]),
    ),
]

OTHERS = [
    (
        RuntimeError,
        "Linear.backward: .*not been called",
        lambda: nn.Linear(2, 2).backward(X),
    ),
    (ValueError, r"grad_out: .*expected \(2, 5, 2\)", lambda: backward(X)),
    (
        TypeError,
        "grad_out: got dtype int64",
        lambda: backward([[[0]]]),
    ),
    # weights
    (
        TypeError,
        "state_dict: got Linear; exp",
        lambda: load(nn.Linear(1, 1)),
    ),
    (TypeError, "state_dict: got str.*load_file", lambda: load("weights.npz")),
    (TypeError, "weight: got .*floats", lambda: load({"weight": [["a"]]}, False)),
    (TypeError, "weight: got .*floats", lambda: load({"weight": [[1j]]}, False)),
    (
        ValueError,
        r"size mismatch for weight",
        lambda: load({"weight": ENDLESS.view("int32")}, False),
    ),
    (
        TypeError,
        "weight: got a MaskedArray",
        lambda: load({"weight": np.ma.masked_equal(np.ones((2, 6)), 1)}, False),
    ),
    (ValueError, "weight: .*rectangular", lambda: load({"weight": [[1], 2]}, False)),
    (TypeError, "strict: got int", lambda: load({}, 1)),
    (TypeError, "mode: got int", lambda: nn.Linear(2, 2).train(1)),
    (
        TypeError,
        r"Er: got an array of .* a Parameter of R.*Er.data\[...\], or .*load_state",
        lambda: assign(Music(6, 2, 4), "Er", np.zeros((4, 3))),
    ),
    (
        TypeError,
        "bias: got Linear, .* another one, or None",
        lambda: assign(nn.Linear(2, 2), "bias", nn.Linear(2, 2)),
    ),
    (
        TypeError,
        "query: got Parameter, .* a Module of RelativeGlobalAttention",
        lambda: assign(Music(6, 2, 4), "query", nn.Parameter(np.zeros(3))),
    ),
    (
        TypeError,
        "data: got dtype float64; expected float32",
        lambda: assign(nn.Linear(2, 2).weight, "data", np.zeros((2, 2))),
    ),
    (TypeError, "data: got str", lambda: assign(nn.Linear(2, 2).bias, "data", "x")),
    (TypeError, "grad: got dtype int64", lambda: nn.Parameter(LOGITS).add_grad([[1]])),
    (TypeError, "data: got dtype int64", lambda: nn.Parameter(np.zeros(3, int))),
    (ValueError, "grad: got shape", lambda: nn.Parameter(np.zeros(3)).add_grad(X)),
    (TypeError, "path: got int", lambda: nn.load_file(3)),
    (TypeError, "prefix: got int", lambda: nn.load_file("model.npz", prefix=3)),
    (ValueError, "path: 'model.pt' is not", lambda: nn.load_file("model.pt")),
    # memory
    (ValueError, r"memory: .*\(M, 2, 6\)", lambda: nn.update_memory(W[:, :1], W, 4)),
    (ValueError, "mem_len: got -1", lambda: nn.update_memory(None, W, -1)),
    (TypeError, "mem_len: got float", lambda: nn.update_memory(None, W, 2.0)),
    (ValueError, r"hidden: .*\(L, B, d_", lambda: nn.update_memory(None, W[0], 4)),
    # loss and optimisers
    (IndexError, "class 2 is outside", lambda: nn.cross_entropy(LOGITS, [2])),
    (
        ValueError,
        r"targets: got shape \(2,\)",
        lambda: nn.cross_entropy(LOGITS, [0, 1]),
    ),
    (
        ValueError,
        "at least one item",
        lambda: nn.cross_entropy(LOGITS[:0], np.zeros(0, int)),
    ),
    (
        ValueError,
        "label_smoothing: got 1.5",
        lambda: nn.cross_entropy(LOGITS, [0], label_smoothing=1.5),
    ),
    (TypeError, "targets: got dtype float64", lambda: nn.cross_entropy(LOGITS, [0.0])),
    (TypeError, "parameters: got an item", lambda: nn.SGD([np.zeros(2)], 0.1)),
    (TypeError, "parameters: got int; expected Par", lambda: nn.SGD(3, 0.1)),
    (
        TypeError,
        "parameters: got Linear; .*parameters",
        lambda: nn.Adam(nn.Linear(2, 2)),
    ),
    (TypeError, "parameters: got an array", lambda: nn.SGD(np.array(3.0), 0.1)),
    (ValueError, "parameters: .*more than once", lambda: nn.Adam([WEIGHT, WEIGHT])),
    (ValueError, "parameters: .*more than once", lambda: nn.SGD([WEIGHT] * 2, 0.1)),
    (ValueError, "lr: got -1", lambda: nn.Adam([], lr=-1)),
    (ValueError, "momentum: got -0.5", lambda: nn.SGD([], 0.1, momentum=-0.5)),
    (ValueError, r"betas: got \(0.9, 1.0\)", lambda: nn.Adam([], betas=(0.9, 1.0))),
    (ValueError, "betas: got 0.9", lambda: nn.Adam([], betas=0.9)),
    (ValueError, "step: got an integer of 1329", lambda: nn.warmup_rate(10**400, 512)),
    (ValueError, "d_model: got an integer of", lambda: nn.warmup_rate(1, 10**400)),
    (ValueError, "warmup_steps: got an in", lambda: nn.warmup_rate(1, 1, 10**400)),
    (ValueError, "step: got 0", lambda: nn.warmup_rate(0, 512)),
]
