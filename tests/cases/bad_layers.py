"""Rows of the table of bad calls to relpos.nn, as `refusals` reads them."""

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

F64 = {"rng": 0, "dtype": "float64"}
TOKENS = np.zeros((2, 7, 8))

MHA, Music, Shaw = nn.MultiheadAttention, nn.RelativeGlobalAttention, nn.ShawAttention
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


def mha(*args, position=None, **keywords):
    return MHA(8, 2, position=position, **F64)(*args, **keywords)


def again(batch=1, **keywords):
    """Call a layer a second time, with the tokens of fewer items."""
    layer = MHA(8, 2, is_causal=True, **F64)
    for tokens in (TOKENS, TOKENS[:batch]):
        out = layer(tokens, **keywords)
    return out


def of_shape(*shape):
    layer = MHA(8, 2, **F64)
    layer.in_proj_weight.data = np.zeros(shape)
    return layer(TOKENS)


def conformer(*args, **keywords):
    return Conformer(6, 2)(X, X, X, *args, **keywords)


def conv(*args):
    return nn.ConvPositionEmbedding(6, 4, 2)(*args)


def backward(grad_out):
    layer = nn.Linear(6, 2)
    layer(X)
    return layer.backward(grad_out)


def assign(layer, name, value):
    setattr(layer, name, value)


def load(*args):
    return nn.Linear(6, 2).load_state_dict(*args)


ROWS = """
Shaw(6, 4, 2) -> ValueError: num_heads: got 4, which does not
Conformer(6, 0) -> ValueError: num_heads: got 0
Shaw(6, 2, 2, 1) -> ValueError: dropout: got 1.0; expected 0 <=
Music(6, 2, 9, -0.1) -> ValueError: dropout: got -0.1
XL(2, 6, 4, 1.5) -> ValueError: dropout: got 1.5
XL(2, 6, 4, 0.1, 2.0) -> ValueError: dropatt: got 2.0
Conformer(6, 2, float("nan")) -> ValueError: dropout: got nan
nn.Dropout(1.0) -> ValueError: p: got 1.0; expected 0 <= p < 1
nn.Dropout("0.5") -> TypeError: p: got str
XL(2, 6, 4, 0.1, r_r_bias=0) -> ValueError: r_w_bias: got None while
XL(2, 6, 4, 0.1, r_w_bias=0) -> ValueError: r_r_bias: got None while
Shaw(6, 2, -1) -> ValueError: max_relative_position: got -1
Music(6.0, 2) -> TypeError: d_model: got float
Shaw(6, 2, 2, per_head=1) -> TypeError: per_head: got int
nn.Linear(2, 2, dtype="float16") -> TypeError: dtype: got float16
nn.Linear(2, 2, rng="seed") -> TypeError: rng: got str
nn.Linear(2, 2, rng=True) -> TypeError: rng: got bool
nn.Linear(2, 2, rng=-1) -> ValueError: rng: got -1
nn.Linear("3", 2) -> TypeError: in_features: got str
nn.Linear(2, 2, dtype=None) -> TypeError: dtype: got None; expected float32 or float64
nn.Linear(2, 2, dtype="x") -> TypeError: dtype: got 'x'; expected float32
nn.Embedding(2, 2, dtype={"a": 1}) -> TypeError: dtype: got dict; exp
XL(2, 6, 4, 0.1, layer_norm_epsilon="x") -> TypeError: layer_norm_epsilon: got str
nn.Linear(2**31 - 1, 2**31 - 1) -> ValueError: in_features: …more bytes
nn.Embedding(2**31 - 1, 2**31 - 1) -> ValueError: embedding_dim: …more bytes
nn.ConvPositionEmbedding(2**31 - 1, 2**31 - 1, 1) -> ValueError: kernel_size: …more
    bytes
nn.DynamicPositionBias(4, 2, 0) -> ValueError: depth: got 0
nn.SinusoidalEncoding(4, layout="x") -> ValueError: layout: got 'x'
nn.LayerNorm(4, eps=-1) -> ValueError: eps: got -1
music(X) -> ValueError: x: got a sequence of 5; … max_len = 4
music(X[0]) -> ValueError: x: got …(5, 6); expected (batch, seq, 6)
music(X.astype(int)) -> TypeError: x: got dtype int64
music(X.astype(float)) -> TypeError: x: got dtype float64; …float32
nn.SinusoidalEncoding(6, 3)(X) -> ValueError: x: … 5; … max_len = 3
nn.LearnedAPE(4, 6)(X) -> IndexError: x: … 5; … max_seq_len = 4
nn.LearnedAPE(4, 6)(np.zeros(3)) -> ValueError: x: got shape (3,)
nn.Embedding(9, 2)([[9]]) -> IndexError: indices: position 9 is out
nn.Embedding(9, 2)([0.5]) -> TypeError: indices: got dtype float64
nn.Embedding(9, 2)(-1) -> ValueError: indices: got -1
nn.Embedding(9, 2)(10) -> IndexError: indices: position 9 of
nn.Linear(5, 2)(X) -> ValueError: x: got … expected (..., 5)
nn.LayerNorm(1)(X[0, 0, 0]) -> ValueError: x: got shape (); expected
nn.DynamicPositionBias(4, 2, 1)(0) -> ValueError: length: got 0
nn.ConvPositionEmbedding(6, 4, 3)(X, ENDLESS[:, 0]) -> ValueError: mask: got shape …;
    expected (2, 5)
shaw(X, None, X) -> ValueError: key: got None with a value
shaw(X, X, X[:, 1:]) -> ValueError: value: …expected (2, 5, 6)
shaw(X, X[:1]) -> ValueError: key: …expected (2, Lk, 6)
shaw(X[:, 1:], X) -> ValueError: query_offset
shaw(X, attn_mask=np.ones((3, 5, 5), bool)) -> ValueError: attn_mask
shaw(X[:1], attn_mask=np.ones((3, 1, 5, 5), bool)) -> ValueError: attn_mask: got batch
    axes (3,); expected (1,), as those of query
shaw(X[:1], query_offset=[1, 2]) -> ValueError: query_offset: got batch axes (2,)
xl(W, rows(8), None, W[:, :1]) -> ValueError: mems: …(M, 2, 6)
xl(W, rows(5), None, W[:3]) -> ValueError: r: got 5 rows for … Lk = 8
xl(W, rows(5)) -> ValueError: …leaves future keys visible
xl(W, W, FUTURE[..., None]) -> ValueError: …expected (R, 6)
xl(W, rows(5), FUTURE) -> ValueError: …attn_mask[:, :, None]
xl(W, rows(5), -1e9 * PAIRS) -> ValueError: attn_mask: has values other
xl(W, rows(5), ENDLESS[0]) -> ValueError: attn_mask: got shape …; exp
xl(W, rows(5), np.full((5, 2), "x")) -> TypeError: attn_mask: got …<U1
shared(W, rows(5)) -> TypeError: …0 arguments after …r_r_bias, attn
xl(W, rows(5), None, None, None) -> TypeError: …3 arguments …layer owns
shared(W, rows(9), BIAS[:, 1:], BIAS) -> ValueError: r_w_bias: got shape (2, 3);
    expected (2, 4)
conformer(rows(5)) -> ValueError: pos_emb: …(5, 6); expected (9, 6)
Conformer(6, 2)(X, X[:, :2], X[:, :2], rows(3)) -> ValueError: query: got 5 rows;
    expected at most Lk = 2
conformer(rows(9), FUTURE) -> ValueError: mask: …(5, 5); …(2, 1
conformer(rows(9), ENDLESS) -> ValueError: mask: got shape …; exp
conformer(rows(15), cache=X[:1, :3]) -> ValueError: cache: got shape (1, 3, 6); expected
    (2, M, 6)
nn.Linear(2, 2).backward(X) -> RuntimeError: Linear.backward: …not been called
backward(X) -> ValueError: grad_out: …expected (2, 5, 2)
backward([[[0]]]) -> TypeError: grad_out: got dtype int64
load(nn.Linear(1, 1)) -> TypeError: state_dict: got Linear; exp
load("weights.npz") -> TypeError: state_dict: got str…load_file
load({"weight": [["a"]]}, False) -> TypeError: weight: got …floats
load({"weight": [[1j]]}, False) -> TypeError: weight: got …floats
load({"weight": ENDLESS.view("int32")}, False) -> ValueError: state_dict: does not fit
    Linear:
load({"weight": np.ma.masked_equal(np.ones((2, 6)), 1)}, False) -> TypeError: weight:
    got a MaskedArray
load({"weight": [[1], 2]}, False) -> ValueError: weight: …rectangular
load({}, 1) -> TypeError: strict: got int
nn.Linear(2, 2).train(1) -> TypeError: mode: got int
assign(Music(6, 2, 4), "Er", np.zeros((4, 3))) -> TypeError: Er: got an array of … a
    Parameter of R…Er.data[...], or …load_state
assign(nn.Linear(2, 2), "bias", nn.Linear(2, 2)) -> TypeError: bias: got Linear, …
    another one, or None
assign(Music(6, 2, 4), "query", nn.Parameter(np.zeros(3))) -> TypeError: query: got
    Parameter, … a Module of RelativeGlobalAttention
assign(MHA(8, 2), "in_proj_weight", WEIGHT) -> TypeError: in_proj_weight: got dtype
    float64; expected float32, as so far
of_shape(3, 4) -> ValueError: in_proj_weight: got shape (3, 4); expected (24, 8)
assign(nn.Linear(2, 2).weight, "data", np.zeros((2, 2))) -> TypeError: data: got dtype
    float64; expected float32
assign(nn.Linear(2, 2).bias, "data", "x") -> TypeError: data: got str
nn.Parameter(LOGITS).add_grad([[1]]) -> TypeError: grad: got dtype int64
nn.Parameter(np.zeros(3, int)) -> TypeError: data: got dtype int64
nn.Parameter(np.zeros(3)).add_grad(X) -> ValueError: grad: got shape
nn.load_file(3) -> TypeError: path: got int
nn.load_file("model.npz", prefix=3) -> TypeError: prefix: got int
nn.load_file("model.pt") -> ValueError: path: 'model.pt' is not…can run any code
nn.update_memory(W[:, :1], W, 4) -> ValueError: memory: …(M, 2, 6)
nn.update_memory(None, W, -1) -> ValueError: mem_len: got -1
nn.update_memory(None, W, 2.0) -> TypeError: mem_len: got float
nn.update_memory(None, W[0], 4) -> ValueError: hidden: …(L, B, d_
nn.cross_entropy(LOGITS, [2]) -> IndexError: …class 2 is outside
nn.cross_entropy(LOGITS, [0, 1]) -> ValueError: targets: got shape (2,)
nn.cross_entropy(LOGITS[:0], np.zeros(0, int)) -> ValueError: …at least one item
nn.cross_entropy(LOGITS, [0], label_smoothing=1.5) -> ValueError: label_smoothing: got
    1.5
nn.cross_entropy(LOGITS, [0.0]) -> TypeError: targets: got dtype float64
nn.SGD([np.zeros(2)], 0.1) -> TypeError: parameters: got an item
nn.SGD(3, 0.1) -> TypeError: parameters: got int; expected Par
nn.Adam(nn.Linear(2, 2)) -> TypeError: parameters: got Linear; …parameters
nn.SGD(np.array(3.0), 0.1) -> TypeError: parameters: got an array
nn.Adam([WEIGHT, WEIGHT]) -> ValueError: parameters: …more than once
nn.SGD([WEIGHT] * 2, 0.1) -> ValueError: parameters: …more than once
nn.Adam([], lr=-1) -> ValueError: lr: got -1
nn.SGD([], 0.1, momentum=-0.5) -> ValueError: momentum: got -0.5
nn.Adam([], betas=(0.9, 1.0)) -> ValueError: betas: got (0.9, 1.0)
nn.Adam([], betas=0.9) -> ValueError: betas: got 0.9
nn.warmup_rate(10**400, 512) -> ValueError: step: got an integer of 1329
nn.warmup_rate(1, 10**400) -> ValueError: d_model: got an integer of
nn.warmup_rate(1, 1, 10**400) -> ValueError: warmup_steps: got an in
nn.warmup_rate(0, 512) -> ValueError: step: got 0
nn.ConvPositionEmbedding(6, 3, 4) -> ValueError: groups: got 4, which does not divide
    embed_dim = 6
nn.ConvPositionEmbedding(6, 0, 2) -> ValueError: kernel_size: got 0
nn.ConvPositionEmbedding(0, 3, 1) -> ValueError: embed_dim: got 0
nn.ConvPositionEmbedding(6, 3, 2.0) -> TypeError: groups: got float
conv(X[0]) -> ValueError: x: got shape (5, 6); expected (batch, seq, 6)
conv(X.astype(float)) -> TypeError: x: got dtype float64; …float32
conv(X, np.ones(5)) -> ValueError: mask: got shape (5,); expected (2, 5)
conv(X, 2 + X[..., 0]) -> ValueError: mask: has values other than 0 and 1
conv(X, "mask") -> TypeError: mask: got …expected booleans
MHA(8, 2, position="x") -> ValueError: position: got 'x'; expected
MHA(8, 2, position=3) -> TypeError: position: got int; …'t5'
MHA(8, 2, position="t5", max_len=3) -> TypeError: max_len: got 3 with position='t5';
    expected one of num_buckets, max_dist
MHA(8, 2, max_len=3) -> TypeError: max_len: got 3 with position=None
MHA(6, 2, position="rope") -> ValueError: head_dim: got 3; exp… even
MHA(8, 2, position=nn.Rotary(2))(np.zeros((2, 7, 8), "f4")) -> ValueError: head_dim: got
    2 for h
MHA(8, 2, position=nn.ALiBi(1)) -> ValueError: position: got ALiBi of 1 head; exp…2
MHA(8, 2, position=nn.DynamicPositionBias(4, 1, 1)) -> ValueError: position: … of 1
MHA(8, 2, position=nn.ALiBi(2), **F64) -> TypeError: position: … of float32 for
MHA(8, 2, position=nn.ALiBi(2, **F64)) -> TypeError: position: … of float64 for
MHA(8, 2, position="music", max_len=12, is_causal=False, **F64)(np.zeros((1, 13, 8)))
    -> IndexError: query: got tokens that see keys at a distance of 12; expected at most
    max_len - 1 = 11 (
mha(TOKENS, position="rope", query_offset=2**55) -> ValueError: query_offset: got 3602
mha(TOKENS, position="xl", query_offset=[0, -2**55]) -> ValueError: query_offset: got -
mha(TOKENS, position="t5", query_offset=[0, 2**31]) -> ValueError: query_offset: got 21
mha(TOKENS[:, 3:], TOKENS, position="t5") -> ValueError: query_offset: got None for 4 q
mha(TOKENS[:1], key_lengths=[3, 4, 5]) -> ValueError: key_lengths: got batch axes (3,);
    expected (1,)
mha(TOKENS[:1], key_lengths=[1, 2], memory=nn.Memory(4)) -> ValueError: key_lengths: got
    batch axes (2,)
mha(TOKENS[:1], attn_mask=np.ones((2, 1, 1, 7, 7), bool)) -> ValueError: attn_mask: got
    batch axes (2, 1); expected (1,)
mha(TOKENS[:1], attn_mask=np.ones((0, 1, 1, 7), bool)) -> ValueError: attn_mask: got b
mha(TOKENS[:1], query_offset=[1, 2]) -> ValueError: query_offset: got batch axes (2,)
mha(TOKENS, query_offset=[[1], [2]], position="rope") -> ValueError: query_offset: got
    batch axes (2, 1)
mha(TOKENS, query_offset=[1, 2, 3], position="rope") -> ValueError: query_offset: batch
mha(TOKENS, query_offset="a", position="rope") -> TypeError: query_offset: got str
mha(TOKENS, query_offset="a", position="t5") -> TypeError: query_offset: got str
mha(TOKENS, query_offset=2**61, position="t5") -> ValueError: query_offset: got 230
mha(TOKENS, query_offset=2**40, position="t5") -> ValueError: query_offset: got 109
mha(TOKENS, query_offset=2**61, position="transformer_xl") -> ValueError: query_offset
again(cache=nn.KVCaches()) -> ValueError: query: got a batch of 1; expected 2, as in the
    cache
again(memory=nn.Memory(4)) -> ValueError: query: got a batch of 1; expected 2, as in the
    memory
again(cache=nn.KVCaches(), key_lengths=[1, 2, 3]) -> ValueError: key_lengths: got shape
again(cache=nn.KVCaches(), key_lengths=8) -> ValueError: key_lengths: got 8; expected 0
again(cache=nn.KVCaches(), key_lengths=1.5) -> TypeError: key_lengths: got float
mha(TOKENS, None, TOKENS) -> ValueError: key: got None with a value
mha(TOKENS, memory=3) -> TypeError: memory: got int; expected a nn.Memory
mha(TOKENS, cache=nn.Memory(2)) -> TypeError: cache: got Memory; … nn.KVCaches
mha(TOKENS, TOKENS, memory=nn.Memory(2)) -> ValueError: key: got it with a Memory
mha(TOKENS, cache=nn.KVCaches(), query_offset=2) -> ValueError: query_offset: got it
    with a KVCaches
mha(TOKENS, cache=nn.KVCaches(), memory=nn.Memory(2)) -> ValueError: memory: got it with
    a KVCaches
nn.LearnedAPE(12, 8)(TOKENS, cache=3) -> TypeError: cache: got int; expected a
    nn.KVCaches
nn.Sequential(nn.SinusoidalEncoding(8), MHA(8, 2))(TOKENS, length=3) -> TypeError:
    length: got an unexpected …; did you mean key_lengths
nn.TransformerLayer(8, 3) -> ValueError: num_heads: got 3, … d_model
nn.Sequential(nn.ReLU(), 3) -> TypeError: layers: got int
nn.Residual(nn.ReLU) -> TypeError: layer: got type; expected a layer
nn.Residual(nn.ReLU())(TOKENS, key=TOKENS) -> TypeError: key: got an unex…; exp… none
nn.Residual(nn.Linear(8, 4, **F64))(TOKENS) -> ValueError: x: got … keeps
nn.Rotary(2, base=-1.0) -> ValueError: base: got -1.0; expected a pos
nn.T5Bias(2, num_buckets=2) -> ValueError: num_buckets: got 2
"""
