"""Masks and padding: polarity, axis, side, and the items of a batch mixed up."""

from __future__ import annotations

import numpy as np

from mistakes.row import DISTANCE, RNG, B, D, H, L, attend, family, softmax

ROWS, mistake = family()
LENGTHS = np.array([7, 4])
#: Keys that are no padding, (B, L), with the padding on the right or on the left.
VALID = np.arange(L) < LENGTHS[:, None]
VALID_LEFT = np.arange(L) >= L - LENGTHS[:, None]
MASK = (RNG.random((L, L)) < 0.6) | (DISTANCE == 0)


@mistake(
    "mask",
    r"\badd",
    source="https://github.com/huggingface/transformers/pull/41443",
    attn_mask=MASK,
)
def truth_values_added(query, key, value):
    scores = query @ key.swapaxes(-1, -2) * D**-0.5
    scores = scores + MASK.astype(scores.dtype)
    return softmax(scores) @ value


@mistake(
    "mask|hid|caus",
    r"\b0\b|zero|small|finite",
    source="https://github.com/awslabs/gluonts/pull/1401",
    is_causal=True,
)
def masked_with_a_small_number(query, key, value):
    return attend(query, key, value, DISTANCE <= 0, 1e-9)


@mistake(
    r"\bown\b|itself|diagonal",
    source="https://github.com/pbloem/former/issues/10",
    causes=2,
    is_causal=True,
)
def mask_from_offset_0(query, key, value):
    return attend(query, key, value, ~np.triu(np.ones((L, L), bool), k=0))


@mistake(
    "mask|caus|past",
    "invert|past hidden|opposite|other way|later keys|future",
    source="https://github.com/rasbt/LLMs-from-scratch/pull/1062",
    causes=2,
    is_causal=True,
)
def mask_of_the_hidden_as_of_the_seen(query, key, value):
    return attend(query, key, value, np.triu(np.ones((L, L), bool), k=1))


@mistake(
    "length|padd",
    "invert|only|opposite|other way",
    source="https://github.com/lucidrains/halonet-pytorch/pull/6",
    key_lengths=LENGTHS,
)
def padding_alone_is_seen(query, key, value):
    mask = VALID[:, None, None, :]
    return attend(query, key, value, ~mask, -np.finfo(query.dtype).max)


@mistake(
    "quer",
    "length|padd|mask",
    source="https://github.com/hyunwoongko/transformer/pull/40",
    causes=2,
    key_lengths=LENGTHS,
)
def padded_queries_masked_not_keys(query, key, value):
    return attend(query, key, value, VALID[:, None, :, None], -10000.0)


@mistake(
    "item|batch",
    "mask",
    source="https://github.com/line/lighthouse/pull/77",
    attn_mask=VALID[:, None, None, :],
)
def masks_of_other_items(query, key, value):
    q, k, v = (x.reshape(B * H, L, D) for x in (query, key, value))
    mask = np.tile(VALID, (H, 1))  # np.repeat(VALID, H, axis=0) is right
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(D)
    scores = np.where(mask[:, None, :], scores, -1e9)
    return (softmax(scores) @ v).reshape(B, H, L, D)


@mistake(
    "padd|length",
    "quer",
    source="https://github.com/Biohub/esm/issues/299",
    key_lengths=LENGTHS,
)
def padding_attends_to_padding(query, key, value):
    mask = VALID[:, :, None] == VALID[:, None, :]
    return attend(query, key, value, mask[:, None])


@mistake(
    "mask|padd",
    "side|left|right|begin|start|revers",
    source="https://github.com/OpenBMB/CPM-Live/issues/368",
    attn_mask=VALID_LEFT[:, None, None, :],
)
def padding_on_the_other_side(query, key, value):
    mask = np.arange(L) < LENGTHS[:, None]
    return attend(query, key, value, mask[:, None, None], -1e9)
