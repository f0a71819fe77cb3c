"""audit_encoding: verdicts on the encodings of the field, and each number by loops."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from refusals import refused

import relpos
from relpos._demo.overview import DIM, ENCODINGS, LENGTHS
from relpos._encodings.audit import EncodingAudit

UNTRAINED = np.random.default_rng(1).standard_normal((128, DIM)).astype(np.float32) / 50


def looked_up(table):
    return lambda length, dim: relpos.learned(table[:, :dim], length)


ENCODED = {name: encode for name, (encode, _) in ENCODINGS.items()}
ENCODED["untrained table"] = looked_up(UNTRAINED)
VERDICTS = {  # unique, consistent, order, extrapolation, small, scalable
    "index": [1, 1, 1, 1, 0, 1],
    "normalized index": [1, 0, 1, 0, 1, 1],
    "random": [1, 1, 0, 0, 1, 1],
    "untrained table": [1, 1, 0, 0, 1, 1],
    "learned table": [1, 1, 1, 0, 1, 1],
    "sinusoidal": [1, 1, 1, 1, 1, 1],
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name):
    """Findings of the audit are the known properties of these encodings."""
    audit = relpos.audit_encoding(ENCODED[name], lengths=LENGTHS, dim=DIM)
    assert [int(finding.met) for finding in audit] == VERDICTS[name]


def test_an_order_that_is_drawn_again_for_each_length_is_not_consistent():
    rng = np.random.default_rng(4)
    audit = relpos.audit_encoding(
        lambda length, dim: relpos.random_encoding(length, dim, rng=rng),
        lengths=LENGTHS,
        dim=DIM,
    )
    assert not audit.consistent.met and audit.consistent.value > 1


def test_positions_that_share_a_vector_are_not_unique():
    def evens(length, dim):
        return relpos.sinusoidal(np.arange(length) // 2 * 2, dim)

    audit = relpos.audit_encoding(evens, lengths=LENGTHS, dim=DIM)
    assert audit.unique.value == 0 and not audit.unique.met


def test_vectors_of_all_zeros_tell_nothing():
    def zeros(length, dim):
        return np.zeros((length, dim))

    audit = relpos.audit_encoding(zeros, lengths=LENGTHS, dim=DIM)
    assert [x.met for x in audit] == [False, True, False, False, True, True]


def test_an_encoding_that_looks_at_all_pairs_does_not_scale():
    def pairwise(length, dim):
        gaps = np.sort(np.abs(np.subtract.outer(*2 * [np.arange(length)])), axis=1)
        return np.repeat(gaps[:, -1:] / float(length), dim, axis=1)

    audit = relpos.audit_encoding(pairwise, lengths=(512, 2048), dim=2)
    assert audit.scalable.value > 1.5 and not audit.scalable.met


def test_a_length_that_is_not_served_is_a_finding():
    audit = relpos.audit_encoding(looked_up(UNTRAINED), lengths=LENGTHS, dim=DIM)
    assert math.isnan(audit.extrapolation.value)
    assert audit.extrapolation.note == "length 256: IndexError"
    assert audit.small.value == np.abs(UNTRAINED).max()


def test_a_quarter_of_a_length_that_is_not_served_is_a_finding():
    def trained(length, dim):
        if length < 64:
            raise ValueError("too short")
        return relpos.sinusoidal(length, dim)

    found = relpos.audit_encoding(trained, lengths=(64, 128), dim=DIM).scalable
    assert math.isnan(found.value) and not found.met
    assert found.note == "length 32: ValueError"


def test_an_encoding_may_use_its_array_again():
    buffer = np.zeros((256, DIM), np.float32)

    def fresh(length, dim):
        return relpos.sinusoidal(length, dim) * np.float32(length)

    def reused(length, dim):
        buffer[:length] = fresh(length, dim)
        return buffer[:length]

    one, other = (
        relpos.audit_encoding(encode, lengths=(64, 128), dim=DIM)
        for encode in (fresh, reused)
    )
    assert one.consistent == other.consistent and not one.consistent.met
    assert one.extrapolation == other.extrapolation


def test_numbers_by_loops():
    """Each measured number, in plain loops, for values of no particular structure."""
    lengths, dim = (6, 9, 16), 3
    rng = np.random.default_rng(5)
    encodings = {n: np.cumsum(rng.uniform(-1, 3, (n, dim)), axis=0) for n in lengths}
    audit = relpos.audit_encoding(
        lambda length, dim: encodings.get(length, np.zeros((length, dim))),
        lengths=lengths,
        dim=dim,
    )
    known, longest = encodings[6], encodings[16]
    largest = max(abs(x) for p in encodings.values() for x in p.ravel())
    gaps = [
        max(abs(a - b) for a, b in zip(p, q, strict=True))
        for p, q in combinations(longest, 2)
    ]
    assert audit.unique.value == pytest.approx(min(gaps) / largest, rel=1e-12)
    drifts = [
        abs(encodings[n][i, c] - longest[i, c])
        for n in (6, 9)
        for i in range(n)
        for c in range(dim)
    ]
    assert audit.consistent.value == pytest.approx(max(drifts) / largest, rel=1e-12)
    assert audit.small.value == largest
    design = np.array([[*row, 1.0] for row in longest])
    even, odd = range(0, 16, 2), range(1, 16, 2)
    normal = design[even].T @ design[even]  # the normal equations of least squares
    readout = np.linalg.solve(normal, design[even].T @ np.array(even, float))
    right = [design[i] @ readout < design[j] @ readout for i, j in combinations(odd, 2)]
    assert audit.order.value == np.mean(right)

    def apart(p, i, r):
        return math.sqrt(sum((p[i + r, c] - p[i, c]) ** 2 for c in range(dim)))

    distances, means = [], []
    for r in range(1, 6):
        mean = sum(apart(known, i, r) for i in range(6 - r)) / (6 - r)
        distances += [apart(longest, i, r) for i in range(6, 16 - r)]
        means += [mean] * (10 - r)
    rest = sum((f - t) ** 2 for f, t in zip(distances, means, strict=True))
    spread = sum((f - sum(distances) / len(distances)) ** 2 for f in distances)
    assert audit.extrapolation.value == pytest.approx(1 - rest / spread, rel=1e-9)


def test_prints_as_a_table():
    audit = relpos.audit_encoding(relpos.index_encoding, lengths=(8, 16), dim=2)
    header, *lines = str(audit).splitlines()
    assert header.split() == ["met", "measured", "limit", "what"]
    assert [line.split()[0] for line in lines] == list(EncodingAudit._fields)
    assert lines[4].split()[:5] == ["small", "no", "15", "<=", "1"]
    assert all(line.split()[1] in ("yes", "no") for line in lines)


test_bad_calls = refused(
    relpos.audit_encoding,
    {"encode": relpos.sinusoidal, "lengths": (8, 16), "dim": 4},
    """
encode="sinusoidal" -> TypeError: encode: …str; …callable
lengths=8 -> ValueError: lengths: …[8]…twice
lengths=[] -> TypeError: lengths: …float64
lengths=[3, 8] -> ValueError: lengths: got 3
lengths=[8, 15] -> ValueError: lengths: …[8, 15]…twice
lengths=[8.0] -> TypeError: lengths: …float
encode=lambda n, d: np.zeros(n) -> ValueError: encode…(8,)…(8, 4)
encode=lambda n, d: np.zeros((n, d), int) -> TypeError: encode…int64
encode=lambda n, d: None -> TypeError: encode…NoneType
encode=lambda n, d: np.full((n, d), np.nan) -> ValueError: encode: encode(8, 4)…finite
encode=looked_up(np.zeros((5, 4))) -> IndexError: positions: position 7…R = 5
encode=looked_up(np.zeros((8, 4))) -> IndexError: positions: position 15…R = 8
""",
    globals(),
)
