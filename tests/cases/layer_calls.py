"""One small call of every layer, for tests of what all layers have in common."""

from __future__ import annotations

import numpy as np

from relpos import nn

X = (2, 5, 6)  # batch, length, width


def xl(**options):
    return nn.RelPartialLearnableMultiHeadAttn(2, 6, 3, 0.0, rng=0, **options)


#: position of MultiheadAttention -> its sizes, for up to twelve tokens
POSITIONS = {
    None: {},
    "shaw": {"max_relative_position": 2},
    "music": {"max_len": 12},
    "transformer_xl": {},
    "t5": {"num_buckets": 8, "max_distance": 6},
    "alibi": {},
    "rope": {"base": 100.0},
    "fire": {"width": 4, "max_distance": 3},
}

# name -> (layer of a dtype, shapes of its inputs)
LAYERS = {
    "Linear": (lambda **k: nn.Linear(6, 4, rng=0, **k), [X]),
    "LayerNorm": (lambda **k: nn.LayerNorm(6, **k), [X]),
    "Dropout": (lambda **k: nn.Dropout(0.5, rng=0, **k), [X]),
    "SinusoidalEncoding": (lambda **k: nn.SinusoidalEncoding(6, **k), [X]),
    "ConvPositionEmbedding": (
        lambda **k: nn.ConvPositionEmbedding(6, 4, 3, rng=0, **k),
        [X],
    ),
    "RelativeGlobalAttention": (
        lambda **k: nn.RelativeGlobalAttention(6, 2, 8, 0.1, rng=0, **k),
        [X],
    ),
    "ShawAttention": (lambda **k: nn.ShawAttention(6, 2, 3, rng=0, **k), [X] * 3),
    "MultiheadAttention": (
        lambda **k: nn.MultiheadAttention(6, 2, position="shaw", rng=0, **k),
        [X] * 3,
    ),
    "MultiheadAttention, rotary": (
        lambda **k: nn.MultiheadAttention(6, 3, position="rope", rng=0, **k),
        [X],
    ),
    "TransformerLayer": (
        lambda **k: nn.TransformerLayer(6, 2, position="alibi", rng=0, **k),
        [X],
    ),
    "FeedForward": (lambda **k: nn.FeedForward(6, activation="gelu", rng=0, **k), [X]),
    "ReLU": (lambda **k: nn.ReLU(**k), [X]),
    "GELU": (lambda **k: nn.GELU(**k), [X]),
    "Residual": (lambda **k: nn.Residual(nn.Linear(6, 6, rng=0, **k)), [X]),
    "Sequential": (lambda **k: nn.Sequential(nn.Linear(6, 4, rng=0, **k)), [X]),
    "Rotary": (lambda **k: nn.Rotary(6, **k), [X]),
    "RelPartialLearnableMultiHeadAttn": (xl, [X, (4, 6)]),
    "RelPartialLearnableMultiHeadAttn, pre_lnorm": (
        lambda **k: xl(pre_lnorm=True, **k),
        [X, (4, 6)],
    ),
    "RelPartialLearnableMultiHeadAttn, shared biases": (
        lambda **k: xl(r_w_bias=0, r_r_bias=0, **k),
        [X, (4, 6), (2, 3), (2, 3)],
    ),
    "ConformerRelPositionAttention": (
        lambda **k: nn.ConformerRelPositionAttention(6, 2, rng=0, **k),
        [X, X, X, (9, 6)],
    ),
}
#: Layers without an input of real numbers: (layer of a dtype, input).
UNFED = {
    "Embedding": (lambda **k: nn.Embedding(9, 6, rng=0, **k), np.arange(5) % 3),
    "LearnedAPE": (lambda **k: nn.LearnedAPE(9, 6, rng=0, **k), np.ones(X)),
    "ALiBi": (lambda **k: nn.ALiBi(2, learned=True, **k), 5),
    "T5Bias": (lambda **k: nn.T5Bias(2, rng=0, **k), 5),
    "LearnedBias": (lambda **k: nn.LearnedBias(2, 3, rng=0, **k), 5),
    "FIRE": (lambda **k: nn.FIRE(2, 4, rng=0, **k), 5),
    "DynamicPositionBias": (
        lambda **k: nn.DynamicPositionBias(5, 2, 2, log_distance=True, rng=0, **k),
        5,
    ),
}


def run(layer, inputs, grad_out=None):
    """Output, gradients of the inputs (None among them) and of the parameters."""
    layer.zero_grad()
    out = layer(*inputs)
    grads = layer.backward(np.ones_like(out) if grad_out is None else grad_out)
    grads = grads if isinstance(grads, tuple) else (grads,)
    return [out, *grads, *(p.grad for p in layer.parameters())]
