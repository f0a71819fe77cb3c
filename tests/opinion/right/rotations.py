"""Rotary positions."""

from __future__ import annotations

import numpy as np
from mistakes.row import DISTANCE, D, L, Q, softmax

from right.row import family

ROWS, right = family()
THETA = 10000.0 ** (-np.arange(0, D, 2) / D)


def attend(q, k, v, scale=D**-0.5):
    return softmax(q @ k.swapaxes(-1, -2) * scale) @ v


@right(scheme="rotary", interleaved=True)
def by_complex_numbers(query, key, value):
    freqs_cis = np.exp(1j * np.outer(np.arange(L), THETA))

    def rotate(x):
        x = (x[..., ::2] + 1j * x[..., 1::2]) * freqs_cis
        return np.stack([x.real, x.imag], axis=-1).reshape(query.shape)

    return attend(rotate(query), rotate(key), value)


@right(scheme="rotary")
def by_rotated_halves(query, key, value):
    emb = np.tile(np.arange(L)[:, None] * THETA, 2)

    def rotate(x):
        half = np.concatenate([-x[..., D // 2 :], x[..., : D // 2]], axis=-1)
        return x * np.cos(emb) + half * np.sin(emb)

    return attend(rotate(query), rotate(key), value)


@right(scheme="rotary", is_causal=True, rotary_dim=4)
def a_part_by_matrices(query, key, value):
    theta = 10000.0 ** (-np.arange(0, 4, 2) / 4)
    matrices = np.stack([np.eye(D)] * L)
    for position in range(L):
        for c, angle in enumerate(position * theta):
            cos, sin = np.cos(angle), np.sin(angle)
            matrices[position, c, c] = matrices[position, c + 2, c + 2] = cos
            matrices[position, c, c + 2], matrices[position, c + 2, c] = -sin, sin
    q, k = (np.einsum("lij,bhlj->bhli", matrices, x) for x in (query, key))
    scores = np.where(DISTANCE > 0, -1e9, q @ k.swapaxes(-1, -2) / np.sqrt(D))
    return softmax(scores) @ value


@right(scheme="rotary", query=Q[..., 6:, :], query_offset=6)
def from_another_first_position(query, key, value):
    def rotate(x, positions):
        angles = positions[:, None] * THETA
        a, b = x[..., : D // 2], x[..., D // 2 :]
        halves = [a * np.cos(angles) - b * np.sin(angles)]
        halves += [a * np.sin(angles) + b * np.cos(angles)]
        return np.concatenate(halves, axis=-1)

    at = 100 + np.arange(L)  # scores depend on differences of positions
    return attend(rotate(query, at[6:]), rotate(key, at), value)
