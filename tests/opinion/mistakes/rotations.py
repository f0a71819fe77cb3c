"""Rotary: pairs, frequencies, positions, a part of the columns, and precision."""

from __future__ import annotations

import numpy as np

from mistakes.row import DISTANCE, B, D, H, L, Q, family, joined, softmax

ROWS, mistake = family()
FREQUENCIES = 1.0 / 10000 ** (np.arange(0, D, 2) / D)
SCALE = 1 / np.sqrt(D)


def rotate_half(x):
    x1, x2 = np.split(x, 2, axis=-1)
    return np.concatenate([-x2, x1], axis=-1)


def rotate_every_two(x):
    return np.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)


def rotated(x, positions, frequencies=FREQUENCIES):
    """The halves of the columns are rotated as pairs."""
    angles = np.asarray(positions)[..., None] * frequencies
    angles = np.concatenate([angles, angles], axis=-1)
    return x * np.cos(angles) + rotate_half(x) * np.sin(angles)


def attend(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) * SCALE) @ v


def to_bfloat16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(float)


@mistake(
    "pair",
    source="https://github.com/raiyanyahya/how-to-train-your-gpt/issues/6",
    scheme="rotary",
)
def pairs_repeated_and_halves_rotated(query, key, value):
    angles = np.arange(L)[:, None] * FREQUENCIES
    emb = np.repeat(angles, 2, axis=-1)
    q = query * np.cos(emb) + rotate_half(query) * np.sin(emb)
    k = key * np.cos(emb) + rotate_half(key) * np.sin(emb)
    return attend(q, k, value)


@mistake(
    "pair",
    source="https://github.com/facebookresearch/vjepa2/pull/15",
    scheme="rotary",
    interleaved=True,
)
def frequencies_tiled_and_neighbours_rotated(query, key, value):
    freq = np.arange(L)[:, None] * FREQUENCIES
    sin, cos = np.tile(np.sin(freq), 2), np.tile(np.cos(freq), 2)
    q = query * cos + rotate_every_two(query) * sin
    k = key * cos + rotate_every_two(key) * sin
    return attend(q, k, value)


@mistake(
    "frequenc|exponent",
    "d_model|all heads|model|width",
    source="near: https://github.com/Lightricks/LTX-Video/issues/224",
    scheme="rotary",
)
def frequencies_of_the_model_width(query, key, value):
    d_model = H * D
    inv_freq = 1.0 / 10000 ** (np.arange(0, D, 2) / d_model)
    positions = np.arange(L)
    q, k = (rotated(x, positions, inv_freq) for x in (query, key))
    return attend(q, k, value)


@mistake(
    "head",
    "split|joined|column|frequenc",
    source="https://github.com/Lightricks/LTX-Video/issues/224",
    scheme="rotary",
    interleaved=True,
)
def rotated_before_the_heads_are_split(query, key, value):
    inv_freq = 1.0 / 10000 ** (np.arange(0, H * D, 2) / (H * D))
    angles = np.repeat(np.arange(L)[:, None] * inv_freq, 2, axis=-1)

    def heads(x):
        x = joined(x)
        x = x * np.cos(angles) + rotate_every_two(x) * np.sin(angles)
        return x.reshape(B, L, H, D).swapaxes(1, 2)

    return attend(heads(query), heads(key), value)


@mistake(
    "frequenc|exponent",
    source="https://github.com/bkitano/llama-from-scratch/issues/8",
    scheme="rotary",
    interleaved=True,
)
def exponents_from_minus_one(query, key, value):
    matrix = np.zeros((L, D, D))
    for position in range(L):
        for i in range(D // 2):
            theta = position * 10000.0 ** (-2.0 * (i - 1) / D)
            matrix[position, 2 * i, 2 * i] = np.cos(theta)
            matrix[position, 2 * i, 2 * i + 1] = -np.sin(theta)
            matrix[position, 2 * i + 1, 2 * i] = np.sin(theta)
            matrix[position, 2 * i + 1, 2 * i + 1] = np.cos(theta)
    q, k = (np.einsum("ldc,bhlc->bhld", matrix, x) for x in (query, key))
    return attend(q, k, value)


@mistake(
    "key",
    "twice|again|doubled",
    source="https://github.com/NeuraLegion/shainet/pull/110",
    scheme="rotary",
    query=Q[..., 6:, :],
    query_offset=6,
)
def cached_keys_rotated_again(query, key, value):
    cache = rotated(key, np.arange(L))  # as they were put into the cache
    q, k = rotated(query, np.arange(6, L)), rotated(cache, np.arange(L))
    return attend(q, k, value)


@mistake(
    "position|offset",
    r"new|\b0\b|zero",
    source="https://github.com/Blaizzy/mlx-vlm/issues/1983",
    scheme="rotary",
    query=Q[..., 6:, :],
    query_offset=6,
)
def new_tokens_at_position_0(query, key, value):
    cached = rotated(key[..., :6, :], np.arange(6))
    new = rotated(key[..., 6:, :], np.zeros(3))
    q = rotated(query, np.zeros(3))
    return attend(q, np.concatenate([cached, new], axis=-2), value)


@mistake(
    "position",
    "keys",
    source="https://github.com/MemTensor/MemOS/issues/2315",
    scheme="rotary",
    query=Q[..., 7:, :],
    query_offset=7,
)
def second_cache_from_position_0(query, key, value):
    first, second = np.split(key, [5], axis=-2)
    first, second = rotated(first, np.arange(5)), rotated(second, np.arange(4))
    q = rotated(query, np.arange(7, L))
    return attend(q, np.concatenate([first, second], axis=-2), value)


@mistake(
    "pair|column|width|rotary_dim",
    source="https://github.com/pie-project/pie/pull/603",
    scheme="rotary",
    rotary_dim=4,
)
def part_rotated_over_the_head_width(query, key, value):
    def rope_partial(x):
        out = x.copy()
        for i in range(2):
            angle = np.arange(L) * 10000.0 ** (-2 * i / D)
            a, b = x[..., i], x[..., i + D // 2]
            out[..., i] = a * np.cos(angle) - b * np.sin(angle)
            out[..., i + D // 2] = a * np.sin(angle) + b * np.cos(angle)
        return out

    return attend(rope_partial(query), rope_partial(key), value)


@mistake(
    "magnitude",
    "twice|square|again",
    source="https://github.com/sgl-project/sglang/pull/33558",
    scheme="rotary",
    magnitude=1.2,
)
def magnitude_squared(query, key, value):
    attn_factor = 1.2
    mscale = 1.2 * attn_factor
    q, k = (mscale * rotated(x, np.arange(L)) for x in (query, key))
    return attend(q, k, value)


@mistake(
    "bfloat16|16 bits",
    "position|angle",
    source="https://github.com/huggingface/candle/pull/3520",
    scheme="rotary",
    offset=300,
    is_causal=True,
)
def angles_in_bfloat16(query, key, value):
    inv_freq, t = to_bfloat16(FREQUENCIES), to_bfloat16(300 + np.arange(L))
    freqs = to_bfloat16(t[:, None] * inv_freq)
    emb = np.concatenate([freqs, freqs], axis=-1)
    q, k = (x * np.cos(emb) + rotate_half(x) * np.sin(emb) for x in (query, key))
    scores = np.where(DISTANCE <= 0, q @ k.swapaxes(-1, -2) * SCALE, -np.inf)
    return softmax(scores) @ value
