"""A small good call of every layer, optimizer and loss of relpos.nn, by name."""

from __future__ import annotations

import numpy as np

from relpos import nn

X = np.zeros((2, 5, 6), "float32")
ROWS = np.zeros((9, 6), "float32")
WEIGHT = nn.Parameter(np.zeros(3))
QKV = {"query": X, "key": X, "value": X}

#: A small good call of each: arguments of the constructor, arguments of the layer.
GOOD_LAYERS = {
    "Linear": ({"in_features": 6, "out_features": 2}, {"x": X}),
    "LayerNorm": ({"normalized_shape": 6}, {"x": X}),
    "Dropout": ({}, {"x": X}),
    "Embedding": ({"num_embeddings": 9, "embedding_dim": 2}, {"indices": [1, 2]}),
    "LearnedAPE": ({"max_seq_len": 9, "embed_size": 6}, {"x": X}),
    "SinusoidalEncoding": ({"embed_size": 6}, {"x": X}),
    "DynamicPositionBias": ({"dim": 4, "heads": 2, "depth": 1}, {"length": 3}),
    "ConvPositionEmbedding": (
        {"embed_dim": 6, "kernel_size": 4, "groups": 3},
        {"x": X, "mask": np.ones((2, 5))},
    ),
    "RelativeGlobalAttention": (
        {"d_model": 6, "num_heads": 2, "max_len": 9},
        {"x": X},
    ),
    "ShawAttention": (
        {"embed_dim": 6, "num_heads": 2, "max_relative_position": 3},
        {**QKV, "attn_mask": np.ones((5, 5), bool)},
    ),
    "RelPartialLearnableMultiHeadAttn": (
        {"n_head": 2, "d_model": 6, "d_head": 4, "dropout": 0.1},
        {"w": X.swapaxes(0, 1), "r": ROWS, "attn_mask": np.zeros((5, 2))},
    ),
    "MultiheadAttention": (
        {"embed_dim": 6, "num_heads": 2, "position": "shaw"},
        {**QKV, "attn_mask": np.ones((5, 5), bool), "key_lengths": [5, 4]},
    ),
    "TransformerLayer": ({"d_model": 6, "num_heads": 2}, {"x": X}),
    "FeedForward": ({"d_model": 6}, {"x": X}),
    "ReLU": ({}, {"x": X}),
    "GELU": ({}, {"x": X}),
    "Sequential": ({}, {"x": X}),
    "Residual": ({"layer": nn.Linear(6, 6)}, {"x": X}),
    "ALiBi": ({"num_heads": 2}, {"length": 3}),
    "KERPLE": ({"num_heads": 2}, {"length": 3}),
    "T5Bias": ({"num_heads": 2}, {"length": 3}),
    "LearnedBias": ({"num_heads": 2, "max_relative_position": 3}, {"length": 3}),
    "FIRE": ({"num_heads": 2}, {"query_length": 3, "key_length": 4}),
    "Rotary": ({"head_dim": 6}, {"x": X, "offset": 2}),
    "ConformerRelPositionAttention": (
        {"d_model": 6, "num_heads": 2},
        {**QKV, "pos_emb": ROWS, "mask": np.ones((2, 1, 5))},
    ),
    "Parameter": ({"data": np.zeros((2, 2))}, {}),
    "SGD": ({"parameters": [WEIGHT], "lr": 0.1}, {}),
    "Adam": ({"parameters": [WEIGHT]}, {}),
    "cross_entropy": ({"logits": np.zeros((2, 3)), "targets": [0, 1]}, {}),
    "Memory": ({"length": 3}, {}),
    "update_memory": ({"memory": X, "hidden": X, "mem_len": 3}, {}),
    "warmup_rate": ({"step": 1, "d_model": 512}, {}),
}
