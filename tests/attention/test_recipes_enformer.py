"""Enformer: features as in TensorFlow's file, and pair by pair, by both rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from recorded import SUBSET
from tolerances import assert_bitwise

import relpos
from relpos import recipes

#: Attention's length and features in the published model.
LENGTH, FEATURES = 1536, 192
#: Rows of relative position and 32 gamma features, float32 of TensorFlow.
RECORDED = np.load(SUBSET / "enformer_tf_gammas.npy")


def gammas(count):
    """Columns of gamma features in both halves: as they are, and times the sign."""
    return slice(2 * count, 3 * count), slice(5 * count, 6 * count)


def test_the_published_gamma_features():
    """As precomputed/tf_gammas.pt of enformer-pytorch 0.8.12, which is float32."""
    offset, want = RECORDED[:, :1], RECORDED[:, 1:]
    rows = offset[:, 0].astype(int) + LENGTH - 1
    plain, signed = gammas(FEATURES // 6)
    found = recipes.enformer_positions(LENGTH, FEATURES, dtype="float64")[rows]
    np.testing.assert_allclose(found[:, plain], want, rtol=0, atol=0.003)
    np.testing.assert_allclose(
        found[:, signed], want * np.sign(offset), rtol=0, atol=0.003
    )
    port = recipes.enformer_positions(LENGTH, FEATURES, gamma_maximum="features")[rows]
    assert abs(port[:, plain] - want).max() > 0.9


def densities(length, count):
    """Return for each distance those of the F gamma distributions, plus 1e-8."""
    deviation = length / (2 * count)
    rows = []
    for distance in range(length):
        row = []
        for c in range(count):
            step = (length - length / count) / max(count - 1, 1)
            mean = length / count + c * step
            shape, rate = (mean / deviation) ** 2, mean / deviation**2
            log = (shape - 1) * math.log(distance) if distance else -math.inf
            log += shape * math.log(rate) - math.lgamma(shape) - rate * distance
            row.append(math.exp(log) + 1e-8)
        rows.append(row)
    return rows


@pytest.mark.parametrize("rule", ["positions", "features"])
@pytest.mark.parametrize(
    ("length", "count"), [(1, 1), (1, 3), (2, 2), (9, 4), (50, 32)]
)
def test_gamma_features_of_any_length(length, count, rule):
    """The largest density over all distances of this length, or over the columns."""
    each = densities(length, count)
    found = recipes.enformer_positions(
        length, 6 * count, gamma_maximum=rule, dtype="float64"
    )
    assert len(found) == 2 * length - 1
    for offset in range(1 - length, length):
        sign = (offset > 0) - (offset < 0)
        for c in range(count):
            others = each[abs(offset)] if rule == "features" else [r[c] for r in each]
            want = each[abs(offset)][c] / max(others)
            row = found[offset + length - 1]
            at, signed = (part.start + c for part in gammas(count))
            assert row[at] == pytest.approx(want, rel=1e-11)
            assert row[signed] == pytest.approx(sign * want, rel=1e-11)


def test_the_recipe_has_the_features_of_its_own_function(rng):
    """By default those of the published model, and otherwise those of the rule."""
    biases, eye = np.zeros((2, 1, 1, 1, 12)), np.eye(12)
    for said in ({}, {"gamma_maximum": "positions"}, {"gamma_maximum": "features"}):
        table = recipes.enformer(*biases, eye, 7, **said)["rel_key"][0]
        want = recipes.enformer_positions(7, 12, dtype="float64", **said)
        np.testing.assert_allclose(table, want, rtol=1e-15)
    default = recipes.enformer_positions(7, 12)
    assert_bitwise(
        default, recipes.enformer_positions(7, 12, gamma_maximum="positions")
    )
    other = recipes.enformer_positions(7, 12, gamma_maximum="features")
    assert not np.array_equal(default, other)


def test_attention_with_the_published_features(rng):
    """Scores pair by pair, with rows of relative position j - i."""
    length, heads, dim = 5, 2, 4
    q, k, v = rng.standard_normal((3, heads, length, dim))
    u, bias = rng.standard_normal((2, 1, heads, 1, dim))
    weight = rng.standard_normal((heads * dim, 12))
    rows = recipes.enformer_positions(length, 12, dtype="float64")
    keys = (rows @ weight.T).reshape(-1, heads, dim)
    want = np.empty_like(q)
    for h in range(heads):
        for i in range(length):
            query = q[h, i] * dim**-0.5
            scores = [
                (query + u[0, h, 0]) @ k[h, j]
                + (query + bias[0, h, 0]) @ keys[j - i + length - 1, h]
                for j in range(length)
            ]
            weights = np.exp(scores - np.max(scores))
            want[h, i] = weights / weights.sum() @ v[h]
    found = relpos.attention(q, k, v, **recipes.enformer(u, bias, weight, length))
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-13)
