"""Mistakes of public code of relative attention, one test for each.

Numbers are those of the collection that the tests come from; 8 (pairing) and 9 (a cache
that nobody sees) are in test_rotary_traps.py. Each test shows the mistake as well: one
that it passes would be none.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from problems import normal, qkv
from tolerances import assert_bitwise, assert_close, largest

import relpos
from relpos import nn

pytestmark = pytest.mark.usefixtures("strict_floats")
H, L, D = 2, 9, 8
SAME = "same_formula"


@pytest.fixture
def inputs(rng):
    return qkv(rng, (3,), H, L, L, D)


def distances(lq, lk):
    """Key minus query, pair by pair; the last query is at the last key."""
    return np.array([[j - (i + lk - lq) for j in range(lk)] for i in range(lq)])


def weighted(scores, value):
    """softmax(scores) . value, plainly; -inf hides."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def looked_up(query, table, distance, first):
    """q_i . table[row of the pair's distance], one pair at a time."""
    return np.einsum("...id,ijd->...ij", query, table[distance - first])


def lower(length):
    return np.tril(np.ones((length, length), bool))


def test_1_shift_of_a_causal_model_in_an_encoder(inputs, rng):
    """The shift for L rows, past only, was copied into a model that sees both sides."""
    q, k, v = inputs
    table, distance = normal(rng, 2 * L - 1, D), distances(L, L)
    content = q @ k.swapaxes(-1, -2)
    both = content + looked_up(q, table, distance, 1 - L)
    got = relpos.transformer_xl_attention(q, k, v, table, None, None)
    assert_close(got, weighted(both / np.sqrt(D), v), SAME)
    past = table[:L]
    got = relpos.transformer_xl_attention(q, k, v, past, None, None, is_causal=True)
    causal = np.where(lower(L), both / np.sqrt(D), -np.inf)
    assert_close(got, weighted(causal, v), SAME)
    shifted = relpos.rel_shift(q @ past.T)
    assert np.allclose(shifted[..., lower(L)], (both - content)[..., lower(L)])
    mixed = weighted((content + shifted) / np.sqrt(D), v)
    assert largest(mixed, weighted(both / np.sqrt(D), v)) > 0.1


def test_2_the_copied_shift_in_a_layer_and_its_scale(rng):
    """Copies of that encoder also divided by sqrt(d_model) instead of sqrt(D)."""
    model = H * D
    layer = nn.ConformerRelPositionAttention(model, H, rng=7, dtype=np.float64)
    x, distance = normal(rng, 1, L, model), distances(L, L)
    pos_emb = relpos.sinusoidal(np.arange(L - 1, -L, -1), model, dtype=np.float64)
    got = layer.eval()(x, x, x, pos_emb)

    def heads(y):
        return y.reshape(-1, H, D).swapaxes(0, 1)

    q, k, v = (heads(f(x)) for f in (layer.linear_q, layer.linear_k, layer.linear_v))
    table = heads(layer.linear_pos(pos_emb))  # from the farthest future's row back
    u, w = layer.pos_bias_u.data[:, None], layer.pos_bias_v.data[:, None]

    def output(divisor):
        place = np.stack(
            [looked_up((q + w)[h], table[h], distance, 1 - L) for h in (0, 1)]
        )
        scores = ((q + u) @ k.swapaxes(-1, -2) + place) / divisor
        joined = weighted(scores, v).swapaxes(0, 1).reshape(1, L, model)
        return layer.linear_out(joined)

    assert_close(got, output(np.sqrt(D)), SAME)
    assert largest(output(np.sqrt(model)), got) > 0.01


def test_3_ahead_is_not_behind(rng):
    """The sine was not negated for positions ahead: +d and -d looked the same."""
    ahead, behind = (relpos.sinusoidal(s * np.arange(1, L), D) for s in (1, -1))
    assert_bitwise(behind[:, 0::2], -ahead[:, 0::2])
    assert_bitwise(behind[:, 1::2], ahead[:, 1::2])
    query, key, none = np.ones((1, L, D)), np.zeros((1, L, D)), np.zeros(D)
    r = np.arange(1 - L, L)
    table, mistaken = (relpos.sinusoidal(x, D, dtype=np.float64) for x in (r, abs(r)))

    def scores(rows):
        return (
            relpos.shaw_scores(query, key, rows)[0],
            relpos.skewed_scores(query, key, rows, is_causal=False)[0],
            relpos.transformer_xl_scores(query, key, rows, none, none)[0],
        )

    for right, wrong in zip(scores(table), scores(mistaken), strict=True):
        assert np.allclose(wrong, wrong.T)
        assert np.abs(right - right.T)[~np.eye(L, dtype=bool)].min() > 0.01


@pytest.mark.parametrize("scheme", ["shaw", "music", "xl", "absolute"])
def test_4_relative_is_not_absolute(rng, scheme):
    """A "relative" encoding was the absolute one: moving the sequence changed it."""
    before = 5  # words put before the sequence, and hidden
    x = normal(rng, 1, 1, L, D)
    moved = np.concatenate([normal(rng, 1, 1, before, D), x], axis=-2)
    table = normal(rng, 2 * (L + before) - 1, D)
    few = table[before : before + 2 * L - 1]
    none = np.zeros(D)

    def run(y, rows, **mask):
        if scheme == "shaw":
            return relpos.shaw_attention(y, y, y, rows, rows, **mask)
        if scheme == "music":
            return relpos.relative_global_attention(
                y, y, y, rows, is_causal=False, **mask
            )
        if scheme == "xl":
            return relpos.transformer_xl_attention(y, y, y, rows, none, none, **mask)
        y = y + relpos.sinusoidal(y.shape[-2], D, dtype=np.float64)
        return relpos.attention(y, y, y, **mask)

    seen = np.arange(L + before) >= before
    here, there = run(x, few), run(moved, table, attn_mask=seen)[..., before:, :]
    if scheme == "absolute":
        assert largest(there, here) > 0.1
    else:
        assert_close(there, here, SAME)


def test_5_what_the_shift_leaves_off_the_causal_part(inputs, rng):
    """Off the diagonal the shift has scores of the next query: only masks help."""
    q, k, v = inputs
    rows = normal(rng, L, D)
    shifted = relpos.rel_shift(q @ rows.T)
    i, j = 2, 6
    assert np.allclose(shifted[..., i, j], (q @ rows.T)[..., i + 1, j - i - 2])
    scores = relpos.transformer_xl_scores(q, k, rows, np.zeros(D), np.zeros(D))
    position = scores - q @ k.swapaxes(-1, -2) / np.sqrt(D)
    ahead = ~lower(L)
    assert np.allclose(position[..., ahead], 0, atol=1e-14)
    assert np.allclose(position[..., lower(L)], shifted[..., lower(L)] / np.sqrt(D))
    with pytest.raises(IndexError, match=r"^rel_key: .*from -8 to 8, .*is_causal"):
        relpos.transformer_xl_attention(q, k, v, rows, None, None)


def test_6_distance_zero_only(rng):
    """A largest distance of 0, and a sequence of one, crashed."""
    q, k, v = inputs = qkv(rng, (3,), H, L, L, D)
    one, values = normal(rng, 1, D), normal(rng, 1, D)
    got = relpos.shaw_attention(*inputs, one, values, return_context=True)
    scores = q @ (k + one).swapaxes(-1, -2) / np.sqrt(D)
    assert_close(got.out, weighted(scores, v + values), SAME)
    grads = got.context.backward(np.ones_like(got.out))
    assert_close(grads.rel_value, np.full((1, D), 3.0 * H * L), SAME)
    assert np.abs(grads.rel_key).max() < 1e-12  # a constant in each row's scores
    q, k, v = alone = [x[..., :1, :] for x in inputs]
    for got in (
        relpos.relative_global_attention(*alone, one),
        relpos.relative_global_attention(*alone, one, is_causal=False),
        relpos.transformer_xl_attention(*alone, one, one[0], one[0]),
    ):
        assert_bitwise(got, v)  # one key has all the weight


@pytest.mark.parametrize("k", [1, 3])
def test_7_a_sequence_longer_than_the_table(rng, k):
    """Relative keys failed past the configured length; they clip to the end rows."""
    length = 40
    q, key, v = qkv(rng, (), H, length, length, D)
    table, values = normal(rng, 2 * k + 1, D), normal(rng, 2 * k + 1, D)
    distance = np.clip(distances(length, length), -k, k)
    scores = q @ key.swapaxes(-1, -2) + looked_up(q, table, distance, -k)
    weights = weighted(scores / np.sqrt(D), np.eye(length))
    want = weights @ v + np.einsum("hij,ijd->hid", weights, values[distance + k])
    assert_close(relpos.shaw_attention(q, key, v, table, values), want, SAME)
    with pytest.raises(
        IndexError, match=r"^rel_key: .* table has those from -\d+ to 0"
    ):
        relpos.relative_global_attention(q, key, v, table)  # no clipping here


def test_10_true_may_attend(inputs):
    """Nobody knew what True masks. Here it may attend, and the first words say so."""
    q, k, v = inputs
    table = np.zeros((2 * L - 1, D))
    only = np.zeros((L, L), bool)
    only[:, 4] = True
    for run in (
        relpos.attention,
        relpos.shaw_attention,
        lambda *qkv, **mask: relpos.relative_global_attention(
            *qkv, table, is_causal=False, **mask
        ),
        lambda *qkv, **mask: relpos.transformer_xl_attention(
            *qkv, table, None, None, **mask
        ),
    ):
        got = run(q, k, v, attn_mask=only)
        assert_bitwise(got, np.broadcast_to(v[..., 4:5, :], got.shape))
    text = inspect.getdoc(relpos.attention)
    assert "optional\n    A boolean mask is True where a query may attend." in text


def test_10_layers_say_which_mask_they_take(rng):
    """The twins of PyTorch modules keep their originals' polarity, and say it."""
    x = normal(rng, 1, L, H * D)
    allowed = np.zeros((1, L, L), bool)
    allowed[:, :, 4] = True
    layer = nn.ConformerRelPositionAttention(H * D, H, rng=1, dtype=np.float64).eval()
    rows = np.zeros((2 * L - 1, H * D))
    got = layer(x, x, x, rows, allowed)
    want = layer.linear_out(layer.linear_v(x[:, 4:5]))
    assert_close(got, np.broadcast_to(want, got.shape), SAME)
    assert "True or 1 = may attend" in inspect.getdoc(type(layer))
    shaw = nn.ShawAttention(H * D, H, 2, use_values=False, rng=1, dtype=np.float64)
    got = shaw.eval()(x, attn_mask=allowed[0])
    want = shaw.out_proj(shaw.v_proj(x[:, 4:5]))
    assert_close(got, np.broadcast_to(want, got.shape), SAME)
    original = nn.RelPartialLearnableMultiHeadAttn(
        H, H * D, D, 0.0, rng=1, dtype=np.float64
    ).eval()
    time_major, hidden = x.swapaxes(0, 1), ~allowed[0][..., None]
    both_sides = np.zeros((2 * L - 1, 1, H * D))
    got = original(time_major, both_sides, hidden)
    value = original.qkv_net(time_major)[4:5, ..., 2 * H * D :]
    want = original.layer_norm(time_major + original.o_net(value))
    assert_close(got, want, SAME)
    assert "True or 1 = **hidden**" in inspect.getdoc(type(original))


@pytest.mark.parametrize("scheme", ["plain", "shaw", "music", "xl"])
def test_11_causal_with_a_cache(inputs, rng, scheme):
    """With cached keys the causal flag meant query 0 at key 0: one key was seen.

    And relative keys took every step of decoding for distance 0.
    """
    table = normal(rng, L, D)
    shaw = normal(rng, 2 * 3 + 1, D)

    def run(q, k, v, **options):
        if scheme == "plain":
            return relpos.attention(q, k, v, is_causal=True, **options)
        if scheme == "shaw":
            return relpos.shaw_attention(q, k, v, shaw, shaw, is_causal=True, **options)
        if scheme == "music":
            return relpos.relative_global_attention(q, k, v, table, **options)
        rows = table[L - k.shape[-2] :]
        return relpos.transformer_xl_attention(
            q, k, v, rows, table[0], table[1], is_causal=True, **options
        )

    q, k, v = inputs
    full = run(q, k, v)
    for t in range(L):
        step = q[..., t : t + 1, :], k[..., : t + 1, :], v[..., : t + 1, :]
        if scheme == "xl":  # memory is before the segment, by definition
            assert_close(run(*step), full[..., t : t + 1, :], SAME)
            continue
        got = run(*step, query_offset=t)
        assert_close(got, full[..., t : t + 1, :], SAME)
        if t:
            with pytest.raises(ValueError, match=rf"^query_offset: .* Lk - Lq = {t} "):
                run(*step)
            at_zero = run(*step, query_offset=0)  # the mistake, said aloud
            assert largest(at_zero, got) > 0.01
