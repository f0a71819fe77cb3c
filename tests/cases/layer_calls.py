"""One small call of every layer, for tests of what all layers have in common."""

from __future__ import annotations

from functools import partial

import numpy as np

from relpos import nn

X = (2, 5, 6)  # batch, length, width
xl = partial(nn.RelPartialLearnableMultiHeadAttn, 2, 6, 3, 0.0, rng=0)


#: position of MultiheadAttention -> its sizes, for up to twelve tokens
POSITIONS = {
    None: {},
    "shaw": {"max_relative_position": 2},
    "music": {"max_len": 12},
    "transformer_xl": {},
    "t5": {"num_buckets": 8, "max_distance": 6},
    "alibi": {},
    "kerple": {},
    "rope": {"base": 100.0},
    "fire": {"width": 4, "max_distance": 3},
}

# name -> (layer of a dtype, shapes of its inputs)
LAYERS = {
    "Linear": (partial(nn.Linear, 6, 4, rng=0), [X]),
    "LayerNorm": (partial(nn.LayerNorm, 6), [X]),
    "Dropout": (partial(nn.Dropout, 0.5, rng=0), [X]),
    "SinusoidalEncoding": (partial(nn.SinusoidalEncoding, 6), [X]),
    "ConvPositionEmbedding": (partial(nn.ConvPositionEmbedding, 6, 4, 3, rng=0), [X]),
    "RelativeGlobalAttention": (
        partial(nn.RelativeGlobalAttention, 6, 2, 8, 0.1, rng=0),
        [X],
    ),
    "ShawAttention": (partial(nn.ShawAttention, 6, 2, 3, rng=0), [X] * 3),
    "MultiheadAttention": (
        partial(nn.MultiheadAttention, 6, 2, position="shaw", rng=0),
        [X] * 3,
    ),
    "MultiheadAttention, rotary": (
        partial(nn.MultiheadAttention, 6, 3, position="rope", rng=0),
        [X],
    ),
    "TransformerLayer": (
        partial(nn.TransformerLayer, 6, 2, position="alibi", rng=0),
        [X],
    ),
    "FeedForward": (partial(nn.FeedForward, 6, activation="gelu", rng=0), [X]),
    "ReLU": (nn.ReLU, [X]),
    "GELU": (nn.GELU, [X]),
    "Residual": (lambda **k: nn.Residual(nn.Linear(6, 6, rng=0, **k)), [X]),
    "Sequential": (lambda **k: nn.Sequential(nn.Linear(6, 4, rng=0, **k)), [X]),
    "Rotary": (partial(nn.Rotary, 6), [X]),
    "RelPartialLearnableMultiHeadAttn": (xl, [X, (4, 6)]),
    "RelPartialLearnableMultiHeadAttn, pre_lnorm": (
        partial(xl, pre_lnorm=True),
        [X, (4, 6)],
    ),
    "RelPartialLearnableMultiHeadAttn, shared biases": (
        partial(xl, r_w_bias=0, r_r_bias=0),
        [X, (4, 6), (2, 3), (2, 3)],
    ),
    "ConformerRelPositionAttention": (
        partial(nn.ConformerRelPositionAttention, 6, 2, rng=0),
        [X, X, X, (9, 6)],
    ),
}
#: Layers without an input of real numbers: (layer of a dtype, input).
UNFED = {
    "Embedding": (partial(nn.Embedding, 9, 6, rng=0), np.arange(5) % 3),
    "LearnedAPE": (partial(nn.LearnedAPE, 9, 6, rng=0), np.ones(X)),
    "ALiBi": (partial(nn.ALiBi, 2, learned=True), 5),
    "KERPLE": (partial(nn.KERPLE, 2, rng=0), 5),
    "T5Bias": (partial(nn.T5Bias, 2, rng=0), 5),
    "LearnedBias": (partial(nn.LearnedBias, 2, 3, rng=0), 5),
    "FIRE": (partial(nn.FIRE, 2, 4, rng=0), 5),
    "DynamicPositionBias": (
        partial(nn.DynamicPositionBias, 5, 2, 2, log_distance=True, rng=0),
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
