"""Checksums of arrays: as in their definition, by every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from relpos import _core

WORD = 2**64
WORDS = 128  #: of a block
SHIFT = 2  #: words between the keys of the two sums


def mixed(x):
    """The last step of splitmix64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % WORD
    return x ^ (x >> 31)


KEYS = [mixed(n * 0x9E3779B97F4A7C15 % WORD) for n in range(1, WORDS + SHIFT + 1)]


def halves(word):
    return word % 2**32, word >> 32


def block_sum(words, keys):
    """The sum of NH: products of the halves of each word, which have keys added."""
    total = 0
    for word, key in zip(words, keys, strict=False):
        lower, upper = (
            sum(pair) % 2**32 for pair in zip(halves(word), halves(key), strict=True)
        )
        total += lower * upper
    return total % WORD


def defined(array):
    """The checksum of an array, in integers of Python."""
    data = array.tobytes()
    filled = data + bytes(-len(data) % (8 * WORDS))
    words = np.frombuffer(filled, np.uint64).tolist()
    results = [len(data)] * 2
    for at in range(0, len(words), WORDS):
        block = words[at : at + WORDS]
        for n in range(2):
            results[n] = mixed(results[n] ^ block_sum(block, KEYS[n * SHIFT :]))
    return np.array(results, np.uint64).tobytes()


@pytest.fixture(params=list(_core.by_isa))
def checksums(request):
    return _core.by_isa[request.param].checksums


@pytest.mark.parametrize("count", [0, 1, 7, 8, 1023, 1024, 1025, 5000])
def test_as_defined(checksums, count):
    array = np.random.default_rng(count).integers(0, 256, count, np.uint8)
    assert checksums(array) == defined(array)
    # an address that is not aligned
    assert checksums(np.r_[array, array][1 : count + 1]) == defined(np.roll(array, -1))


def test_of_several_arrays(checksums):
    arrays = np.arange(6.0), np.zeros((2, 3), np.float16), np.ones(0)
    assert checksums(*arrays) == b"".join(map(defined, arrays))
    assert checksums() == b""


def test_every_bit_counts(checksums):
    data = np.random.default_rng(1).integers(0, 256, 2100, np.uint8)
    seen = {checksums(data)}
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            seen.add(checksums(data))
            data[at] ^= 1 << bit
    assert len(seen) == 1 + 8 * len(data)
    assert checksums(data) in seen


def test_zeros_of_each_length_differ(checksums):
    lengths = range(2100)
    assert len({checksums(np.zeros(n, np.uint8)) for n in lengths}) == len(lengths)


def test_what_has_no_bytes_in_order_is_refused(checksums):
    refused = [1], np.zeros((3, 4))[:, ::2], np.array([None]), b"bytes"
    for value in refused:
        with pytest.raises(TypeError, match="C-contiguous arrays of numbers"):
            checksums(np.ones(2), value)
