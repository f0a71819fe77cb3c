"""Mistakes that public rotary code has been reported for, one test each.

Each test names where the mistake was found. Where it can be written down in a line, the
wrong version is computed too, and must be seen to differ.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from problems import seeded

import relpos

pytestmark = pytest.mark.devmode
HALF = 8


def scores(q, k, **keywords):
    """Inner products after both are rotated."""
    return relpos.apply_rotary(q, **keywords) @ relpos.apply_rotary(k, **keywords).T


def to_interleaved(half=HALF):
    """Columns of the halves layout in the order of the interleaved one."""
    return np.arange(2 * half).reshape(2, half).T.ravel()


def test_pairing_of_halves_is_a_permutation_of_the_interleaved_one():
    """huggingface/transformers#25199, #40462, litgpt#1860, flash-attention#288: weights
    of one pairing run with the other."""
    x, order = seeded(5, 2 * HALF), to_interleaved()
    halves = relpos.apply_rotary(x)
    interleaved = relpos.apply_rotary(x[:, order], interleaved=True)
    np.testing.assert_array_equal(interleaved, halves[:, order])
    assert np.abs(relpos.apply_rotary(x, interleaved=True) - halves).max() > 0.1


def test_pairing_of_two_columns_is_the_same():
    x = seeded(5, 2)
    both = [relpos.apply_rotary(x, interleaved=flag) for flag in (False, True)]
    np.testing.assert_array_equal(*both)


def test_scores_of_permuted_projections_do_not_change():
    """The converter: permute the rows of W_q and W_k, and switch the pairing."""
    x, w_q, w_k = seeded(6, 12), *seeded(2, 2 * HALF, 12, seed=1)
    order = to_interleaved()
    want = scores(x @ w_q.T, x @ w_k.T)
    got = scores(x @ w_q[order].T, x @ w_k[order].T, interleaved=True)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)


def test_no_function_is_called_rotate_half():
    """lucidrains' rotate_half pairs neighbours, Hugging Face's pairs halves."""
    assert not any("rotate_half" in name for name in dir(relpos))
    parameter = inspect.signature(relpos.apply_rotary).parameters["interleaved"]
    assert parameter.kind is parameter.KEYWORD_ONLY and parameter.default is False


def test_cached_decode_sees_true_distances():
    """lucidrains/rotary-embedding-torch#11: cached angles that ignored the offset.

    Steps of any size, in any order of calls, give the rows of the whole sequence.
    """
    x = seeded(2, 12, 2 * HALF)
    whole = relpos.apply_rotary(x)
    for first, last in ((0, 5), (5, 6), (6, 12), (3, 4), (0, 12)):
        step = relpos.apply_rotary(x[:, first:last], offset=first)
        np.testing.assert_array_equal(step, whole[:, first:last])
    forgotten = relpos.apply_rotary(x[:, 5:6])
    assert np.abs(forgotten - whole[:, 5:6]).max() > 0.1


def test_a_decoded_query_attends_as_in_the_full_run():
    q, k, v = seeded(3, 2, 10, 2 * HALF)
    rotated = [relpos.apply_rotary(x) for x in (q, k)]
    want = relpos.attention(*rotated, v, is_causal=True)
    for at in range(10):
        query = relpos.apply_rotary(q[:, at : at + 1], offset=at)
        cache = rotated[1][:, : at + 1], v[:, : at + 1]
        got = relpos.attention(query, *cache, is_causal=True, query_offset=at)
        np.testing.assert_allclose(got[:, 0], want[:, at], rtol=0, atol=1e-14)


def test_cached_keys_are_rotated_by_their_own_positions():
    """Left padding: each item of the batch has positions of its own."""
    x = seeded(2, 3, 6, 2 * HALF)
    first = np.array([0, 2])
    positions = np.arange(6) - first[:, None]
    got = relpos.apply_rotary(x, positions[:, None])
    np.testing.assert_array_equal(got[1, :, 2:], relpos.apply_rotary(x[1, :, 2:]))
    np.testing.assert_array_equal(got[0], relpos.apply_rotary(x[0]))
    with pytest.raises(ValueError, match=r"^positions: .*positions\[:, None\]"):
        relpos.apply_rotary(x, positions)  # (batch, length), not (batch, 1, length)


def test_rotating_before_the_projection_is_absolute():
    """fairseq and wav2vec2-conformer rotate the layer's input: not RoPE.

    Scores depend on more than the difference of positions. relpos does not offer it.
    """
    x, w_q, w_k = seeded(7, 2 * HALF), *seeded(2, 2 * HALF, 2 * HALF, seed=1)

    def wrong(offset):
        rotated = relpos.apply_rotary(x, offset=offset)
        return (rotated @ w_q.T) @ (rotated @ w_k.T).T

    assert np.abs(wrong(0) - wrong(5)).max() > 1


def test_low_precision_phases_are_wrong_far_out():
    """EleutherAI/gpt-neox#1003, huggingface/transformers#25681: float32 angles."""
    x = seeded(1, 64).astype(np.float32)
    position = 2**20 - 1
    exact = relpos.apply_rotary(x.astype(np.float64), position)
    got = relpos.apply_rotary(x, position)
    assert np.abs(got - exact).max() < 3e-7
    inv_freq = relpos.rotary_frequencies(64).astype(np.float32)
    rounded = (np.float32(position) * inv_freq)[None]  # the usual recipe
    assert np.abs(relpos.apply_rotary(x, angles=rounded) - exact).max() > 1e-3


def test_half_precision_positions_are_not_rounded():
    """A float16 input does not make its positions float16: 4097 stays odd."""
    x = np.ones((1, 2), np.float16)
    got = relpos.apply_rotary(x, np.array([4097]))
    assert (got == relpos.apply_rotary(x.astype(float), 4097).astype(np.float16)).all()


def test_partial_rotary_has_frequencies_of_its_own_width():
    """The exponent counts rotary_dim, not D: GPT-J and GPT-NeoX."""
    x = seeded(5, 4 * HALF)
    got = relpos.apply_rotary(x, rotary_dim=2 * HALF)
    np.testing.assert_array_equal(
        got[:, : 2 * HALF], relpos.apply_rotary(x[:, : 2 * HALF])
    )
    np.testing.assert_array_equal(got[:, 2 * HALF :], x[:, 2 * HALF :])
    wrong = relpos.rotary_frequencies(4 * HALF)[:HALF]
    assert (
        np.abs(relpos.apply_rotary(x, inv_freq=wrong, rotary_dim=16) - got).max() > 0.1
    )


def test_partial_halves_pair_inside_the_rotated_columns():
    """Pairs are (c, rotary_dim / 2 + c), not (c, D / 2 + c)."""
    x = np.zeros((1, 12))
    x[0, 0] = 1
    got = relpos.apply_rotary(x, 1, rotary_dim=4)
    assert np.flatnonzero(got).tolist() == [0, 2]


def test_inverse_is_not_an_inverse_of_the_magnitude():
    """inverse rotates back and keeps m, which makes it the gradient."""
    x, grad = seeded(2, 4, 2 * HALF)
    m = relpos.xpos_magnitude(4, 2 * HALF, scale_base=3)
    forward = (relpos.apply_rotary(x, magnitude=m) * grad).sum()
    back = (x * relpos.apply_rotary(grad, magnitude=m, inverse=True)).sum()
    assert abs(forward - back) < 1e-13


def test_xpos_needs_reciprocal_magnitudes_for_keys():
    """With the same for both the product would grow with i + j, not with i - j."""
    q, k, at = *seeded(2, 9, 2 * HALF), np.arange(9)

    def product(shift, inverse):
        query = relpos.xpos_magnitude(at + shift, 2 * HALF, scale_base=5)
        key = relpos.xpos_magnitude(at + shift, 2 * HALF, scale_base=5, inverse=inverse)
        return relpos.apply_rotary(q, magnitude=query) @ (
            relpos.apply_rotary(k, magnitude=key).T
        )

    np.testing.assert_allclose(product(7, True), product(0, True), rtol=1e-11)
    assert np.abs(product(7, False) / product(0, False) - 1).max() > 0.1


def test_xpos_centres_cancel_when_they_are_one():
    """rotary-embedding-torch centres queries on their own length and keys on theirs: a
    cached decode then has an extra factor. One centre for both has none."""
    q, k = seeded(2, 2 * HALF), seeded(12, 2 * HALF, seed=1)
    at, of = np.arange(10, 12), np.arange(12)

    def product(middle_of_q, middle_of_k):
        m = relpos.xpos_magnitude(at - middle_of_q, 2 * HALF, scale_base=8)
        n = relpos.xpos_magnitude(
            of - middle_of_k, 2 * HALF, scale_base=8, inverse=True
        )
        return relpos.apply_rotary(q, at, magnitude=m) @ (
            relpos.apply_rotary(k, of, magnitude=n).T
        )

    np.testing.assert_allclose(product(6, 6), product(0, 0), rtol=1e-11)
    assert np.abs(product(1, 6) / product(0, 0) - 1).max() > 0.1


def test_dynamic_scaling_needs_one_length_for_queries_and_keys():
    """Keys cached at one length and queries rotated at another are not relative."""
    q, k = seeded(2, 5, 2 * HALF)

    def at_length(n):
        settings = {"factor": 2.0, "original_max_position_embeddings": 32}
        return relpos.rotary_frequencies(
            2 * HALF, scaling=("dynamic", settings | {"seq_len": n})
        )

    def product(offset, n_query, n_key):
        query = relpos.apply_rotary(q, offset=offset, inv_freq=at_length(n_query))
        return (
            query @ relpos.apply_rotary(k, offset=offset, inv_freq=at_length(n_key)).T
        )

    same = product(0, 64, 64) - product(100, 64, 64)
    mixed = product(0, 64, 32) - product(100, 64, 32)
    assert np.abs(same).max() < 1e-13 < 0.1 < np.abs(mixed).max()


def test_ntk_is_not_interpolation():
    """The fastest pair keeps its frequency, the slowest is divided by the factor."""
    plain = relpos.rotary_frequencies(2 * HALF)
    scaled = relpos.rotary_frequencies(2 * HALF, scaling=("ntk", 4.0))
    assert scaled[0] == plain[0]
    np.testing.assert_allclose(scaled[-1], plain[-1] / 4, rtol=1e-14)
    assert (np.diff(scaled / plain) < 0).all()


def test_the_attention_factor_comes_once_per_side():
    """YaRN: q and k are both multiplied, so that scores have the square."""
    yarn = "yarn", {"factor": 8.0, "original_max_position_embeddings": 512}
    m = relpos.rotary_magnitude(yarn)
    q, k = seeded(2, 5, 2 * HALF)
    np.testing.assert_allclose(
        scores(q, k, magnitude=m), m**2 * scores(q, k), rtol=1e-12
    )


def test_values_are_left_alone():
    """RoFormer's rotary_value rotates values, and outputs depend on the offset."""
    q, k, v = seeded(3, 1, 6, 2 * HALF)

    def run(offset, rotate_values):
        rotated = [relpos.apply_rotary(x, offset=offset) for x in (q, k, v)]
        return relpos.attention(*rotated[:2], rotated[2] if rotate_values else v)

    np.testing.assert_allclose(run(9, False), run(0, False), rtol=0, atol=1e-14)
    assert np.abs(run(9, True) - run(0, True)).max() > 0.1


def test_no_hidden_cache():
    """A call leaves nothing behind that the next one could read."""
    x = seeded(4, 2 * HALF)
    first = relpos.apply_rotary(x)
    relpos.apply_rotary(seeded(90, 2 * HALF), offset=77, base=3.0)
    relpos.apply_rotary(x, inverse=True)
    np.testing.assert_array_equal(relpos.apply_rotary(x), first)
    relpos.rotary_frequencies(2 * HALF)[:] = 0  # the caller's own copy
    np.testing.assert_array_equal(relpos.apply_rotary(x), first)
