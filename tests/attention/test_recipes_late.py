"""Later recipes: scores pair by pair, as the models compute them."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from tolerances import assert_close

import relpos
from relpos import recipes

H, L, D = 2, 9, 6


def tokens(rng, heads=H):
    shapes = (H, L, D), (heads, L, D), (heads, L, D)
    return [rng.standard_normal(shape) for shape in shapes]


def weighed(scores, values):
    """Softmax of a row of scores, which may hide keys, times the values."""
    weights = np.exp(scores - np.max(scores))
    return weights / weights.sum() @ values


# ---- NATTEN ------------------------------------------------------------------------


def window_start(i, length, size, dilation):
    """First key of a query: get_window_start of NATTEN's natten_cpu_commons.h."""
    half = size // 2
    if dilation <= 1:
        start = max(i - half, 0)
        return start + (i + half >= length) * (length - i - half - 1)
    if i - half * dilation < 0:
        return i % dilation
    if i + half * dilation >= length:
        phase = i % dilation
        whole = length // dilation * dilation
        rest = length - whole
        if phase < rest:
            return length - rest + phase - 2 * half * dilation
        return whole + phase - size * dilation
    return i - half * dilation


def bias_start(i, length, size, dilation):
    """Row of the bias of the first key: get_pb_start of the same file."""
    half = size // 2
    if dilation <= 1:
        start = half + (i < half) * (half - i)
        return start + (i + half >= length) * (length - i - 1 - half)
    if i - half * dilation < 0:
        return size - 1 - i // dilation
    if i + half * dilation >= length:
        return (length - i - 1) // dilation
    return half


def neighborhood(q, k, v, rpb, size, dilation=1):
    out = np.empty_like(q)
    for h, i in np.ndindex(q.shape[:2]):
        first = window_start(i, q.shape[1], size, dilation)
        row = bias_start(i, q.shape[1], size, dilation)
        keys = first + dilation * np.arange(size)
        scores = k[h, keys] @ q[h, i] / math.sqrt(D) + rpb[h, row + np.arange(size)]
        out[h, i] = weighed(scores, v[h, keys])
    return out


@pytest.mark.parametrize("size", [1, 3, 5, 7, 9])
def test_natten1d(rng, size):
    q, k, v = tokens(rng)
    rpb = rng.standard_normal((H, 2 * size - 1))
    out = relpos.attention(q, k, v, **recipes.natten1d(rpb, L))
    assert_close(out, neighborhood(q, k, v, rpb, size), "forward")


@pytest.mark.parametrize("dilation", [2, 3])
def test_natten1d_dilated_by_reshaping(rng, dilation):
    length = 6 * dilation
    q, k, v = rng.standard_normal((3, H, length, D))
    rpb = rng.standard_normal((H, 9))

    def phases(x):
        parts = x.reshape(H, length // dilation, dilation, D)
        return parts.transpose(2, 0, 1, 3)

    terms = recipes.natten1d(rpb, length // dilation)
    out = relpos.attention(*map(phases, (q, k, v)), **terms)
    out = out.transpose(1, 2, 0, 3).reshape(H, length, D)
    assert_close(out, neighborhood(q, k, v, rpb, 5, dilation), "forward")


def test_natten1d_has_the_gradient_of_its_bias(rng):
    q, k, v = tokens(rng)
    rpb, step = rng.standard_normal((H, 5)), 1e-6
    grad = rng.standard_normal((H, L, D))
    result = relpos.attention(q, k, v, **recipes.natten1d(rpb, L), return_context=True)
    found = result.context.backward(grad).rel_bias
    for place in np.ndindex(rpb.shape):
        losses = []
        for change in (step, -step):
            moved = rpb.copy()
            moved[place] += change
            losses.append((neighborhood(q, k, v, moved, 3) * grad).sum())
        assert found[place] == pytest.approx((losses[0] - losses[1]) / (2 * step), 1e-6)


# ---- Longformer --------------------------------------------------------------------


@pytest.mark.parametrize(
    "masks",
    [
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
        [2, 1, 1, 2, 1, 1, 1, 1, 2],
        [[2, 1, 1, 1, 1, 1, 1, 0, 0], [1, 2, 2, 1, 1, 1, 2, 1, 1]],
    ],
)
@pytest.mark.parametrize("window", [2, 4, 40])
def test_longformer(rng, masks, window):
    """One softmax over the keys of a window and all global keys, each once."""
    masks = np.array(masks)
    near, far, keys = recipes.longformer(masks, window)
    q, k, v = (np.broadcast_to(x, (*masks.shape[:-1], H, L, D)) for x in tokens(rng))
    a = relpos.attention(q, k, v, **near, return_lse=True)
    places = keys[..., None, :, None]
    k_far, v_far = (np.take_along_axis(x, places, -2) for x in (k, v))
    b = relpos.attention(q, k_far, v_far, **far, return_lse=True)
    out, _ = relpos.merge_attention(a.out, a.lse, b.out, b.lse)
    for *item, h, i in np.ndindex(out.shape[:-1]):
        mask = masks[tuple(item)]
        is_near = np.abs(np.arange(L) - i) <= window // 2
        seen = np.flatnonzero((mask == 2) | ((mask == 1) & is_near))
        at = (*item, h)
        if len(seen):
            scores = k[at][seen] @ q[at][i] / math.sqrt(D)
            assert_close(out[at][i], weighed(scores, v[at][seen]), "forward")
        else:
            assert not out[at][i].any()


# ---- Moirai ------------------------------------------------------------------------


def test_moirai(rng):
    """BinaryAttentionBias: row 1 where variates are equal, row 0 elsewhere."""
    q, k, v = tokens(rng)
    weight = rng.standard_normal((2, H))
    variates, others = rng.integers(0, 3, (2, 4, L))
    out = relpos.attention(q, k, v, **recipes.moirai(weight, variates, others))
    want = np.empty((4, H, L, D))
    for b, h, i in np.ndindex(want.shape[:3]):
        is_same = variates[b, i] == others[b]
        bias = ~is_same * weight[0, h] + is_same * weight[1, h]
        want[b, h, i] = weighed(k[h] @ q[h, i] / math.sqrt(D) + bias, v[h])
    assert_close(out, want, "forward")
    same = recipes.moirai(weight, variates)["labels"]
    assert (same == recipes.moirai(weight, variates, variates)["labels"]).all()


# ---- DeepSeek-V4, Mistral Large 4 --------------------------------------------------


def turned(x, position, frequencies):
    """Rotate the last columns, in neighbouring pairs, by position times frequency."""
    x, count = x.copy(), 2 * len(frequencies)
    pairs = x[-count:].reshape(-1, 2)
    numbers = (pairs[:, 0] + 1j * pairs[:, 1]) * np.exp(1j * position * frequencies)
    x[-count:] = np.stack([numbers.real, numbers.imag], -1).reshape(-1)
    return x


@pytest.mark.parametrize("window", [None, 4])
def test_deepseek_v4(rng, window):
    q, k, _ = tokens(rng, heads=1)
    sinks, frequencies = rng.standard_normal(H), np.array([0.9, 0.2])
    want = np.empty_like(q)
    for h, i in np.ndindex(H, L):
        first = 0 if window is None else max(0, i - window + 1)
        keys = [turned(k[0, j], j, frequencies) for j in range(first, i + 1)]
        query = turned(q[h, i], i, frequencies)
        scores = np.array([query @ key for key in keys]) / math.sqrt(D)
        weights = np.exp(scores) / (np.exp(sinks[h]) + np.exp(scores).sum())
        want[h, i] = turned(weights @ np.array(keys), -i, frequencies)

    def rotate(x, **more):
        rotary = {"inv_freq": frequencies, "interleaved": True}
        last = relpos.apply_rotary(x[..., 2:], **rotary, **more)
        return np.concatenate([x[..., :2], last], -1)

    key = rotate(k)
    terms = recipes.deepseek_v4(sinks, sliding_window=window)
    out = relpos.attention(rotate(q), key, key, **terms)
    assert_close(rotate(out, inverse=True), want, "forward")


def test_mistral_large4(rng):
    alpha, frequencies = rng.standard_normal(3), relpos.rotary_frequencies(D)
    recipe = recipes.mistral_large4(alpha, frequencies)
    x = rng.standard_normal((H, L, D))
    out = relpos.apply_rotary(x, inv_freq=recipe["inv_freq"], interleaved=True)
    want = np.empty_like(x)
    for h, i in np.ndindex(H, L):
        want[h, i] = turned(x[h, i], i, frequencies * np.exp(alpha))
    assert_close(out, want, "forward")
    # the gradient of a sum of the frequencies times some numbers
    grad, step = rng.standard_normal(3), 1e-6
    gradients = recipe.backward({"inv_freq": grad})
    found = gradients["alpha"]
    np.testing.assert_allclose(gradients["inv_freq"], grad * np.exp(alpha))
    up, down = (
        recipes.mistral_large4(alpha + s, frequencies)["inv_freq"]
        for s in (step, -step)
    )
    np.testing.assert_allclose(found, grad * (up - down) / (2 * step), rtol=1e-8)


def test_mistral_large4_temperature(rng):
    scale, bias = rng.standard_normal((2, H))
    positions = np.array([0, 3, 100, 2**40])
    found = recipes.mistral_large4_temperature(scale, bias, positions)
    assert found.shape == (H, 4)
    for h, n in np.ndindex(found.shape):
        want = scale[h] * math.log(positions[n] + 1) + bias[h]
        assert found[h, n] == pytest.approx(want, rel=1e-14)


@pytest.mark.parametrize("position", [-1.0, float("nan")])
def test_positions_of_a_temperature_begin_at_0(position):
    with pytest.raises(
        ValueError, match=r"^positions: got .*; expected numbers from 0"
    ):
        recipes.mistral_large4_temperature([1.0], [1.0], [0.0, position])


# ---- Swin's tables of other windows ------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"), [((3, 3), (2, 5)), ((2, 4), (5, 3)), ((1, 4), (3, 4)), ((4,), (7,))]
)
def test_a_table_of_swin_is_resized_by_a_cubic(rng, old, new):
    """Row by row and column by column, by the cubic convolution of slope -3/4."""
    rows = [2 * n - 1 for n in old]
    table = rng.standard_normal((math.prod(rows), H))

    def at(row, place):
        """The value of a sequence (n, ..) between its rows."""
        first, total = math.floor(place), 0.0
        for j in range(first - 1, first + 3):
            x = abs(place - j)
            weight = 1.25 * x**3 - 2.25 * x**2 + 1
            if x > 1:
                weight = -0.75 * (x**3 - 5 * x**2 + 8 * x - 4)
            total = total + weight * row[min(max(j, 0), len(row) - 1)]
        return total

    grid = table.reshape(*rows, H)
    for axis, side in enumerate(new):
        grid, count = np.moveaxis(grid, axis, 0), 2 * side - 1
        places = [(i + 0.5) * len(grid) / count - 0.5 for i in range(count)]
        grid = np.moveaxis(np.array([at(grid, place) for place in places]), 0, axis)
    found = recipes.swin(table, new, table_window=old)
    assert_close(found["rel_bias"].T, grid.reshape(-1, H), "forward")
    same = recipes.swin(found["rel_bias"].T, new)
    assert (found["labels"] == same["labels"]).all()


def test_the_gradient_of_a_resized_table_is_the_adjoint(rng):
    table = rng.standard_normal((25, H))
    recipe = recipes.swin(table, (2, 4), table_window=(3, 3))
    grad = rng.standard_normal(recipe["rel_bias"].shape)
    back = recipe.backward({"rel_bias": grad})["table"]
    other = rng.standard_normal(table.shape)
    moved = recipes.swin(other, (2, 4), table_window=(3, 3))["rel_bias"]
    assert (back * other).sum() == pytest.approx((grad * moved).sum(), rel=1e-12)


def test_a_table_of_the_same_window_is_as_it_is(rng):
    table = rng.standard_normal((15, H)).astype(np.float32)
    table[0, 0] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = recipes.swin(table, (2, 3), table_window=(2, 3))["rel_bias"]
    assert (found == table.T).all() and found.dtype == np.float32
