"""The attention weights that dropout keeps: a function of (seed, batch, head, i, j)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from relpos._checks import as_generator
from relpos.reference._typing import Bools, Rng, Words

__all__ = ["dropout_keep", "philox4x32"]

# Constants of Philox 4x32: Salmon et al. (2011), "Parallel random numbers: as easy as
# 1, 2, 3", SC'11. The two multipliers, the two Weyl increments of the key, the rounds.
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
INCREMENTS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def philox4x32(
    counter: Sequence[ArrayLike], key: Sequence[ArrayLike]
) -> tuple[Words, Words, Words, Words]:
    """Ten rounds of Philox 4x32.

    counter: four arrays and key: two arrays of 32-bit words, held in uint64. Returns
    the four output words, uint64 below 2^32. One round, with (hi, lo) the halves of a
    64-bit product: x0, x1, x2, x3 ->
    hi(M1·x2) ^ x1 ^ k0,  lo(M1·x2),  hi(M0·x0) ^ x3 ^ k1,  lo(M0·x0).

    Examples
    --------
    >>> [hex(int(word)) for word in philox4x32((0, 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    x0, x1, x2, x3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = (np.asarray(word, dtype=np.uint64) for word in key)
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * x0, MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (
            (product1 >> SHIFT) ^ x1 ^ k0,
            product1 & LOW,
            (product0 >> SHIFT) ^ x3 ^ k1,
            product0 & LOW,
        )
        k0, k1 = (k0 + INCREMENTS[0]) & LOW, (k1 + INCREMENTS[1]) & LOW
    return x0, x1, x2, x3


def random_seed(rng: Rng) -> np.uint64:
    """One 64-bit seed from an int seed, a Generator or None."""
    return as_generator(rng).integers(2**64, dtype=np.uint64)


def dropout_keep(shape: tuple[int, ...], dropout_p: float, seed: np.uint64) -> Bools:
    """keep[..., h, i, j]: True where a weight of `shape` (..., H, Lq, Lk) is kept.

    Word j & 3 of philox4x32(counter = (i, j >> 2, h, b), key = seed) is kept if it is
    at least floor(dropout_p · 2^32); b is the flat index of the batch item.

    Examples
    --------
    >>> kept = dropout_keep((1, 1, 1000, 1000), 0.25, np.uint64(7))
    >>> float(kept.mean().round(2))
    0.75
    """
    *batch, heads, query_length, key_length = shape
    count = int(np.prod(batch, dtype=np.int64))
    b, h, i, j = np.ogrid[:count, :heads, :query_length, :key_length]
    seed = np.uint64(seed)
    words = philox4x32((i, j >> 2, h, b), (seed & LOW, seed >> SHIFT))
    full = np.broadcast_arrays(*words)
    word = np.choose(np.broadcast_to(j & 3, full[0].shape), full)
    return (word >= np.uint64(int(dropout_p * 2**32))).reshape(shape)
