"""Schemes of relpos.reference alone: against loops, and as schemes that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from problems import normal, qkv
from tolerances import assert_close

from relpos import reference
from relpos.reference import later

LENGTHS = [1, 2, 7]


def draw(length, *, batch=(2,), heads=2, d=4, dv=3, seed=0):
    rng = np.random.default_rng([seed, length])
    return rng, *qkv(rng, batch, heads, length, length, d, dv)


def dot(a, b):
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def sigma(x):
    return 1 / (1 + math.exp(-x))


def weighed(scores, value, seen=lambda i, j: j <= i):
    """softmax of the seen scores(b, h, i, j), times the values, a pair at a time."""
    out = np.zeros(value.shape)
    for b, h, i in np.ndindex(value.shape[:-1]):
        keys = [j for j in range(value.shape[-2]) if seen(i, j)]
        parts = [math.exp(scores(b, h, i, j)) for j in keys]
        for j, part in zip(keys, parts, strict=True):
            out[b, h, i] += part / sum(parts) * value[b, h, j]
    return out


# ---- CoPE ----------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("per_head", [False, True])
def test_cope_is_its_loops(length, per_head):
    rng, q, k, v = draw(length, seed=1)
    rows = normal(rng, 2, 4, 4) if per_head else normal(rng, 4, 4)

    def scores(b, h, i, j):
        e = rows[h] if per_head else rows
        x = 0.7 * q[b, h, i]
        position = min(sum(sigma(dot(x, k[b, h, t])) for t in range(j, i + 1)), 3)
        low, part = int(position), position - int(position)
        row = e[low] if part == 0 else (1 - part) * e[low] + part * e[low + 1]
        return dot(x, k[b, h, j]) + dot(x, row)

    got = reference.cope_attention(q, k, v, rows, scale=0.7)
    assert_close(got, weighed(scores, v), "forward")


def test_cope_with_open_gates_is_the_clipped_relative_position():
    """Every gate 1: a position is i - j + 1, up to the last row."""
    rng, q, k, v = draw(9, seed=2)
    q[..., 0], k[..., 0] = 60.0, 1.0  # the same for all pairs, and the sigmoid is 1
    e = normal(rng, 2, 5, 4)
    e[..., 0] = 0.0
    got = reference.cope_attention(q, k, v, e, scale=1.0)
    table = {"rel_key": e[:, :0:-1], "min_relative_position": -3}
    want = reference.attention(q, k, v, is_causal=True, scale=1.0, **table)
    assert_close(got, want, "forward")


def test_cope_with_shut_gates_has_no_positions():
    rng, q, k, v = draw(9, seed=3)
    q[..., 0], k[..., 0] = -900.0, 1.0
    e = normal(rng, 5, 4)
    e[0] = 0.0
    got = reference.cope_attention(q, k, v, e, scale=1.0)
    want = reference.attention(q, k, v, is_causal=True, scale=1.0)
    assert_close(got, want, "same_formula")


# ---- stick-breaking ------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_stick_breaking_is_its_loops(length):
    _, q, k, v = draw(length, seed=4)
    want, rest = np.zeros(v.shape), np.ones(v.shape[:-1])
    for b, h, i in np.ndindex(v.shape[:-1]):
        for j in range(i - 1, -1, -1):
            share = sigma(0.7 * dot(q[b, h, i], k[b, h, j]))
            want[b, h, i] += share * rest[b, h, i] * v[b, h, j]
            rest[b, h, i] *= 1 - share
    got = reference.stick_breaking_attention(q, k, v, scale=0.7, return_weights=True)
    assert_close(got.out, want, "forward")
    assert_close(1 - got.weights.sum(-1), rest, "forward")
    assert got.lse is None
    assert not np.triu(got.weights).any()


def test_a_stick_may_be_taken_whole():
    """Logits of thousands: the latest key takes all, and nothing overflows."""
    q, k = np.full((1, 4, 1), 3e3), np.ones((1, 4, 1))
    with np.errstate(all="raise", under="ignore"):
        for sign, taken in ((1, np.eye(4, k=-1)), (-1, np.zeros((4, 4)))):
            got = reference.stick_breaking_attention(
                sign * q, k, k, return_weights=True
            )
            assert np.array_equal(got.weights[0], taken)


# ---- PaTH ----------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_path_is_its_loops(length):
    rng, q, k, v = draw(length, seed=5)
    w, beta = normal(rng, 2, length, 4, scale=0.5), rng.random((2, 2, length))

    def scores(b, h, i, j):
        product = np.eye(4)
        for t in range(j + 1, i + 1):
            product = product @ (np.eye(4) - beta[b, h, t] * np.outer(w[h, t], w[h, t]))
        return 0.7 * dot(k[b, h, j], product @ q[b, h, i])

    got = reference.path_attention(q, k, v, w, beta, scale=0.7)
    assert_close(got, weighed(scores, v), "forward")


def test_path_without_steps_is_attention():
    rng, q, k, v = draw(8, seed=6)
    got = reference.path_attention(q, k, v, normal(rng, 8, 4), np.zeros(8))
    assert_close(got, reference.attention(q, k, v, is_causal=True), "forward")


def test_mirrors_of_path_make_rope():
    """Two mirrors are a rotation by twice their angle: every other token is RoPE's.

    Tokens of odd positions mirror along a, those of even ones along b: what lies
    between two even tokens is a whole number of pairs of mirrors.
    """
    _, q, k, v = draw(9, d=2, seed=7)
    angle = 0.3
    at = np.where(np.arange(9) % 2 == 1, 0.0, angle / 2)
    w = np.stack([np.cos(at), np.sin(at)], -1)
    got = reference.path_attention(q, k, v, w, np.full(9, 2.0), return_weights=True)
    even = [x[..., ::2, :] for x in (q, k, v)]
    # H_{j+1} .. H_i rotates q_i by -angle for each pair, as RoPE rotates k against q
    rotated = [reference.apply_rotary(x, inv_freq=[-angle]) for x in even[:2]]
    want = rotated[0] @ np.swapaxes(rotated[1], -1, -2) / np.sqrt(2)
    weights = got.weights[..., ::2, ::2]
    seen = np.tril(np.ones((5, 5), bool))
    logs = np.log(np.where(seen, weights, 1.0))
    differences = logs - np.diagonal(logs, axis1=-2, axis2=-1)[..., None]
    wanted = want - np.diagonal(want, axis1=-2, axis2=-1)[..., None]
    assert_close(differences * seen, wanted * seen, "same_formula")


# ---- DAPE ----------------------------------------------------------------------------


def network(rng, heads=2, width=5):
    shapes = (width, 2 * heads), (width,), (heads, width), (heads,)
    return [normal(rng, *shape) for shape in shapes]


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("length", LENGTHS)
def test_dape_is_its_loops(length, is_causal):
    rng, q, k, v = draw(length, seed=8)
    bias, (w1, b1, w2, b2) = normal(rng, 2, length, length), network(rng)

    def scores(b, h, i, j):
        a = [0.7 * dot(q[b, n, i], k[b, n, j]) for n in range(2)]
        both = [*a, *bias[:, i, j]]
        hidden = [dot(row, both) + c for row, c in zip(w1, b1, strict=True)]
        hidden = [x if x > 0 else 0.01 * x for x in hidden]
        return a[h] + bias[h, i, j] + dot(w2[h], hidden) + b2[h]

    got = reference.dape_attention(
        q, k, v, bias, w1, b1, w2, b2, is_causal=is_causal, scale=0.7
    )
    seen = {True: lambda i, j: j <= i, False: lambda i, j: True}[is_causal]
    assert_close(got, weighed(scores, v, seen), "forward")


def test_dape_without_a_network_is_attention_with_a_bias():
    rng, q, k, v = draw(6, seed=9)
    bias, (w1, b1, w2, b2) = normal(rng, 2, 6, 6), network(rng)
    got = reference.dape_attention(q, k, v, bias, w1, b1, 0 * w2, b2)
    want = reference.attention(q, k, v, bias, is_causal=True)
    assert_close(got, want, "forward")  # b2 alone moves all scores of a row


# ---- rotations -----------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
def test_selective_rotary_is_its_loops(interleaved):
    rng = np.random.default_rng(10)
    x, phi = normal(rng, 2, 5, 6), normal(rng, 2, 5, 3)
    omega = [1.0, 0.3, 0.01]
    want = np.zeros(x.shape)
    for h, t, n in np.ndindex(2, 5, 3):
        theta = omega[n] * sum(phi[h, s, n] for s in range(t + 1))
        a, b = (2 * n, 2 * n + 1) if interleaved else (n, n + 3)
        want[h, t, a] = x[h, t, a] * math.cos(theta) - x[h, t, b] * math.sin(theta)
        want[h, t, b] = x[h, t, a] * math.sin(theta) + x[h, t, b] * math.cos(theta)
    got = reference.selective_rotary(x, phi, inv_freq=omega, interleaved=interleaved)
    assert_close(got, want, "forward")


def test_selective_rotary_of_equal_steps_is_rope():
    x = normal(np.random.default_rng(11), 2, 7, 6)
    omega = reference.rotary_frequencies(6)
    got = reference.selective_rotary(x, np.ones((7, 3)), inv_freq=omega)
    assert_close(got, reference.apply_rotary(x, offset=1), "forward")


def series(matrix):
    """exp of a matrix by its series, of an eighth of it."""
    term = total = np.eye(len(matrix))
    for n in range(1, 30):
        term = term @ matrix / 8 / n
        total = total + term
    return np.linalg.matrix_power(total, 8)


def generators(rng, axes, d):
    below = np.tril(normal(rng, axes, d, d), -1)
    return below, below - np.swapaxes(below, -1, -2)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_lie_rotary_is_the_series(axes):
    rng = np.random.default_rng(12)
    x, points = normal(rng, 2, 5, 4), normal(rng, 5, axes)
    below, skew = generators(rng, axes, 4)
    got = reference.lie_rotary(x, points, below)
    for h, t in np.ndindex(2, 5):
        turn = series(sum(points[t, a] * skew[a] for a in range(axes)))
        assert_close(got[h, t], turn @ x[h, t], "same_formula")
    norms = [np.linalg.norm(y, axis=-1) for y in (got, x)]
    assert_close(*norms, "same_formula")
    above = np.triu(normal(rng, axes, 4, 4))  # is not read
    assert np.array_equal(reference.lie_rotary(x, points, below + above), got)


def test_lie_rotary_in_the_plane_is_rope():
    x = normal(np.random.default_rng(13), 2, 6, 2)
    below = [[[0.0, 0.0], [0.4, 0.0]]]
    got = reference.lie_rotary(x, np.arange(6.0)[:, None], below)
    assert_close(got, reference.apply_rotary(x, inv_freq=[0.4]), "forward")


def test_lie_rotary_of_one_axis_is_relative():
    """Its generator commutes with itself; two that do not see absolute places."""
    rng = np.random.default_rng(14)
    x, points = normal(rng, 6, 4), normal(rng, 6, 2)
    below, _ = generators(rng, 2, 4)

    def scores(axes, moved):
        y = reference.lie_rotary(x, points[:, :axes] + moved, below[:axes])
        return y @ y.T

    assert_close(scores(1, 3.0), scores(1, 0.0), "same_formula")
    assert np.abs(scores(2, 3.0) - scores(2, 0.0)).max() > 0.1


@pytest.mark.parametrize("name", later.__all__)
def test_each_says_that_it_is_reference_only(name):
    assert "Reference only" in getattr(reference, name).__doc__
    assert name in reference.__all__
