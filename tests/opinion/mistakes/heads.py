"""Heads: split, merged, shared or repeated in another order, or taken for positions."""

from __future__ import annotations

import numpy as np

from mistakes.row import RNG, B, D, H, L, family, joined, softmax

ROWS, mistake = family()
#: Keys and values of two heads, which four query heads share.
FEW_K, FEW_V = RNG.standard_normal((2, B, 2, L, D))


@mistake(
    "head",
    "split|transpos",
    source="https://github.com/649453932/Chinese-Text-Classification-Pytorch/issues/53",
)
def split_by_view(query, key, value):
    q, k, v = (joined(x).reshape(B * H, -1, D) for x in (query, key, value))
    context = softmax(q @ k.swapaxes(-1, -2) * D**-0.5) @ v
    return context.reshape(B, -1, H * D)


@mistake(
    "head",
    "merg|join|concat|transpos",
    source="https://github.com/jsbaan/transformer-from-scratch/issues/4",
)
def merged_without_a_transpose(query, key, value):
    values = softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D)) @ value
    return values.reshape(B, L, H * D)


@mistake(
    "head",
    "item|batch|merg|join",
    source="https://github.com/gazelle93/Transformer-Various-Positional-Encoding/issues/1",
)
def merged_as_if_items_came_first(query, key, value):
    q, k, v = (x.swapaxes(0, 1).reshape(H * B, L, D) for x in (query, key, value))
    output = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(D)) @ v
    output = output.reshape(H, B, L, D).transpose(0, 2, 1, 3)
    return output.reshape(B, -1, H * D)


@mistake(
    "head",
    "modulo|tile|repeat",
    source="https://github.com/ekzhang/jax-js/pull/180",
    key=FEW_K,
    value=FEW_V,
    enable_gqa=True,
)
def shared_heads_tiled(query, key, value):
    key, value = np.tile(key, (1, 2, 1, 1)), np.tile(value, (1, 2, 1, 1))
    return softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D)) @ value


@mistake(
    "head 0|first head",
    source="https://github.com/PSAL-POSTECH/ONNXim/pull/34",
)
def key_head_0_for_every_head(query, key, value):
    out = np.empty_like(query)
    for head in range(H):
        kv_head = head // H  # heads_per_kv is 1, not the number of heads
        weights = softmax(
            query[:, head] @ key[:, kv_head].swapaxes(-1, -2) / np.sqrt(D)
        )
        out[:, head] = weights @ value[:, kv_head]
    return out


@mistake(
    "layout|over (the )?heads|axes|\\(B, L, H, D\\)",
    "head",
    source="https://github.com/HabanaAI/vllm-fork/pull/1218",
)
def heads_behind_the_length(query, key, value):
    q, k, v = (joined(x).reshape(B, L, H, D) for x in (query, key, value))
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(D)) @ v


@mistake(
    "item|batch",
    source="https://github.com/aipixel/AEMatter/issues/3",
)
def attention_over_the_batch(query, key, value):
    q, k, v = (x.transpose(2, 1, 0, 3) for x in (query, key, value))
    out = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(D)) @ v
    return out.transpose(2, 1, 0, 3)
