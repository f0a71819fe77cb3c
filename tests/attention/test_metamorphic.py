"""Relations between the results of two calls, without an oracle.

Numbers in the names are those of the list that the tests come from: the field's own
bugs (a shift off by one, a forgotten memory offset, distance 0 at every decode step)
each break at least one of them.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from problems import DTYPES, PATHS, cast, normal, qkv, run, terms
from tolerances import assert_bitwise, assert_close, assert_lse_close, largest

import relpos

pytestmark = pytest.mark.usefixtures("strict_floats")
both_paths = pytest.mark.parametrize(("lq", "lk"), PATHS)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
SAME = "same_formula"


def inputs_of(rng, lq, lk, dtype, d=16, dv=16):
    return [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, d, dv)]


@both_dtypes
@pytest.mark.parametrize("causal", [False, True])
def test_1_brute_force(isa, dtype, causal):
    """Encode every key relative to query i, attend plainly, keep row i."""
    rng = np.random.default_rng(1)
    k = 5
    for length, memory in itertools.product(range(1, 13), range(13)):
        total = length + memory
        q, keys, v = inputs_of(rng, length, total, dtype, 4, 3)
        table, values = (normal(rng, 2 * k + 1, n).astype(dtype) for n in (4, 3))
        got = relpos.shaw_attention(
            q, keys, v, table, values, query_offset=memory, is_causal=causal
        )
        for i in range(length):
            row = np.clip(np.arange(total) - (i + memory), -k, k) + k
            seen = i + memory + 1 if causal else total
            moved = (keys + table[row])[..., :seen, :], (v + values[row])[..., :seen, :]
            want = relpos.attention(q[..., i : i + 1, :], *moved)
            assert_close(got[..., i : i + 1, :], want, SAME, largest)


@both_dtypes
@both_paths
@pytest.mark.parametrize("kind", ["music", "xl", "both_tables"])
@pytest.mark.parametrize("moved", [1, -1, 2**20, 2**31])
def test_2_translation(isa, dtype, lq, lk, kind, moved):
    """All positions shifted, and the table with them."""
    rng = np.random.default_rng(2)
    inputs = inputs_of(rng, lq, lk, dtype)
    keywords = cast(terms(rng, kind, 2, lq, lk, 16, offset=3), dtype)
    want = run(*inputs, **keywords)
    keywords["query_offset"] += moved
    keywords["min_relative_position"] -= moved
    got = run(*inputs, **keywords)
    assert_bitwise(got.out, want.out)
    assert_bitwise(got.lse, want.lse)


@both_dtypes
@pytest.mark.parametrize(("lq", "lk"), [(5, 5), (5, 40), (40, 40), (40, 300)])
@pytest.mark.parametrize("with_values", [False, True])
def test_3_clipping_is_repeating_the_end_rows(isa, dtype, lq, lk, with_values):
    """k that reaches every pair clips nothing; a smaller one repeats the end rows."""
    rng = np.random.default_rng(3)
    inputs = inputs_of(rng, lq, lk, dtype)
    reach = max(lq, lk) - 1
    names = ("rel_key", "rel_value") if with_values else ("rel_key",)
    for k in (0, 1, 4, reach // 2, reach, reach + 9):
        short = {name: normal(rng, 2 * k + 1, 16).astype(dtype) for name in names}
        row = np.clip(np.arange(-reach, reach + 1), -k, k) + k
        full = {name: table[row] for name, table in short.items()}
        got = run(*inputs, query_offset=0, **short)
        want = run(*inputs, query_offset=0, **full)
        assert_bitwise(got.lse, want.lse)
        if with_values:
            assert_close(got.out, want.out, SAME)
        else:
            assert_bitwise(got.out, want.out)


@both_dtypes
@pytest.mark.parametrize(("lq", "lk"), [(1, 40), (40, 300), (300, 170)])
@pytest.mark.parametrize("names", [("rel_query",), ("rel_key", "rel_query")])
@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("causal", [False, True])
def test_3_rows_of_rel_query_that_repeat(isa, dtype, lq, lk, names, beyond, causal):
    """Tiles beyond a table have the bits of a table that has its end rows again."""
    rng = np.random.default_rng(3)
    inputs = inputs_of(rng, lq, lk, dtype)
    reach = max(lq, lk) - 1
    further = {"query_offset": 0, "is_causal": causal}
    positions = np.arange(-reach, reach + 1)
    for k in (0, 1, 4, reach // 2, reach + 9):
        short = {name: normal(rng, 2 * k + 1, 16).astype(dtype) for name in names}
        row = np.clip(positions, -k, k) + k
        full = {name: table[row] for name, table in short.items()}
        for table in full.values():
            table[(abs(positions) > k) & (beyond == "zero")] = 0
        got = run(*inputs, beyond=beyond, **short, **further)
        want = run(*inputs, **full, **further)
        assert_bitwise(got.lse, want.lse)
        assert_bitwise(got.out, want.out)


@both_dtypes
@both_paths
def test_4_one_row_tables_say_nothing_about_position(isa, dtype, lq, lk):
    rng = np.random.default_rng(4)
    q, k, v = inputs_of(rng, lq, lk, dtype)
    table, values = (normal(rng, 1, 16).astype(dtype) for _ in range(2))
    plain = run(q, k, v)
    got = relpos.shaw_attention(
        q, k, v, table, values, query_offset=0, return_weights=True
    )
    assert_close(got.weights, plain.weights, SAME)
    assert_close(got.out, plain.out + values, SAME)


@both_dtypes
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("lq", "lk"), [(3, 12), (12, 40), (40, 300)])
def test_5_memory_is_the_front_of_the_sequence(isa, dtype, causal, lq, lk):
    """The last rows of Transformer-XL on everything at once."""
    rng = np.random.default_rng(5)
    q, k, v = inputs_of(rng, lk, lk, dtype)
    r = normal(rng, 2, 2 * lk - 1, 16).astype(dtype)
    u, w = normal(rng, 2, 2, 16).astype(dtype)
    whole = relpos.transformer_xl_attention(q, k, v, r, u, w, is_causal=causal)
    late = q[..., lk - lq :, :]
    got = relpos.transformer_xl_attention(late, k, v, r, u, w, is_causal=causal)
    assert_close(got, whole[..., lk - lq :, :], SAME)


@both_dtypes
@pytest.mark.parametrize("kind", ["plain", "shaw", "shaw_keys", "music", "xl", "bias"])
@pytest.mark.parametrize("length", [20, 300])
def test_6_causal_prefix(isa, dtype, kind, length):
    """The first n tokens do not know how many follow.

    Up to 16 they are decoded, and how values of a table are summed depends on its rows
    and the length: those agree to tolerance.
    """
    rng = np.random.default_rng(6)
    q, k, v = inputs_of(rng, length, length, dtype)
    keywords = cast(terms(rng, kind, 2, length, length, 16), dtype)
    keywords |= {"is_causal": True}
    whole = run(q, k, v, **keywords)
    for n in (1, 8, 9, 17, length - 1):
        got = run(q[..., :n, :], k[..., :n, :], v[..., :n, :], **keywords)
        if n > 16:
            assert_bitwise(got.lse, whole.lse[..., :n])
        else:
            assert_lse_close(got.lse, whole.lse[..., :n])
        if n > 16 and kind != "shaw":
            assert_bitwise(got.out, whole.out[..., :n, :])
        else:
            assert_close(got.out, whole.out[..., :n, :], SAME)


@both_dtypes
@pytest.mark.parametrize("kind", ["plain", "shaw", "music", "xl", "everything"])
@pytest.mark.parametrize("length", [12, 40, 300])
def test_7_decode_step_is_the_last_row(isa, dtype, kind, length):
    rng = np.random.default_rng(7)
    q, k, v = inputs_of(rng, length, length, dtype)
    keywords = cast(terms(rng, kind, 2, length, length, 16), dtype)
    whole = run(q, k, v, **keywords, is_causal=True)
    for steps in (1, 3, 8):
        keywords["query_offset"] = length - steps
        got = run(q[..., -steps:, :], k, v, **keywords, is_causal=True)
        assert_close(got.out, whole.out[..., -steps:, :], SAME)
        assert_lse_close(got.lse, whole.lse[..., -steps:])


@both_dtypes
@both_paths
def test_8_a_bias_is_a_table_of_one_column(isa, dtype, lq, lk):
    """A learned bias as rows of a vector table, met by a column of ones in the query.

    Its other forms, and those of clipped keys, are in test_biases.py.
    """
    rng = np.random.default_rng(8)
    q, k, v = inputs_of(rng, lq, lk, dtype)
    keywords = cast(terms(rng, "bias", 2, lq, lk, 16, offset=lk - lq), dtype)
    want = run(q, k, v, **keywords)
    bias = keywords.pop("rel_bias")
    ones, none = (np.full((2, 2, n, 1), x, dtype) for n, x in ((lq, 1), (lk, 0)))
    wide = np.append(q / 4, ones, axis=-1), np.append(k, none, axis=-1), v
    columns = np.zeros((*bias.shape, 17), dtype)
    columns[..., 16] = bias
    got = run(*wide, rel_key=columns, scale=1.0, **keywords)
    assert_close(got.out, want.out, SAME)
    assert_close(got.weights, want.weights, SAME)


@pytest.mark.parametrize("layout", ["interleaved", "concat"])
@pytest.mark.parametrize("offset", [1, -7, 0.5, 4096])
def test_10_one_matrix_moves_every_sinusoid(isa, layout, offset):
    """M(a) P(n) = P(n + a), up to n = 10**6.

    float32: one rounding each of the pair that is rotated (together 2**0.5) and of the
    result, half an ulp of 1 at most. float64: the same, and the angle's own rounding.
    """
    n = np.append(np.arange(64), 10**6 - np.arange(64))
    moves = relpos.sinusoidal_shift_matrix(offset, 64, layout=layout)
    for dtype in DTYPES:
        place, moved = (
            relpos.sinusoidal(x, 64, layout=layout, dtype=dtype)
            for x in (n, n + offset)
        )
        error = np.abs(place @ moves.T - moved).max()
        assert error <= (1 + 2**0.5) * np.finfo(dtype).eps / 2 + 4e-16


@both_dtypes
@pytest.mark.parametrize("kind", ["plain", "shaw", "music", "xl", "everything"])
@pytest.mark.parametrize("length", [7, 40, 300])
def test_11_reversal(isa, dtype, kind, length):
    """The sequence backwards with its tables upside down: the output backwards."""
    rng = np.random.default_rng(11)
    inputs = inputs_of(rng, length, length, dtype)
    keywords = cast(terms(rng, kind, 2, length, length, 16), dtype)
    want = run(*inputs, **keywords)
    mirrored = dict(keywords)
    for name in ("rel_key", "rel_query", "rel_value"):
        if name in keywords:
            mirrored[name] = keywords[name][..., ::-1, :]
    if "rel_bias" in keywords:
        mirrored["rel_bias"] = keywords["rel_bias"][..., ::-1]
    got = run(*(x[..., ::-1, :] for x in inputs), **mirrored)
    assert_close(got.out[..., ::-1, :], want.out, SAME)
    assert_lse_close(got.lse[..., ::-1], want.lse)


@both_dtypes
@both_paths
@pytest.mark.parametrize("kind", ["plain", "shaw_keys", "xl", "bias"])
def test_12_shifts_of_the_softmax(isa, dtype, lq, lk, kind):
    """A vector added to all keys, a number to a bias row or a mask: same weights."""
    rng = np.random.default_rng(12)
    q, k, v = inputs_of(rng, lq, lk, dtype)
    keywords = cast(terms(rng, kind, 2, lq, lk, 16), dtype)
    want = run(q, k, v, **keywords)
    shifted = k + normal(rng, 16).astype(dtype)
    assert_close(run(q, shifted, v, **keywords).out, want.out, SAME)
    mask = np.full((lq, 1), 1.5, dtype)
    got = run(q, k, v, mask, **keywords)
    assert_close(got.out, want.out, SAME)
    assert_lse_close(got.lse, want.lse.astype(np.float64) + 1.5)
    if kind == "bias":
        keywords["rel_bias"] = keywords["rel_bias"] + np.array(0.75, dtype)
        got = run(q, k, v, **keywords)
        assert_close(got.out, want.out, SAME)
        assert_lse_close(got.lse, want.lse.astype(np.float64) + 0.75)


@both_dtypes
@both_paths
@pytest.mark.parametrize("kind", ["plain", "shaw_keys", "xl", "bias"])
def test_12_linear_in_the_values(isa, dtype, lq, lk, kind):
    rng = np.random.default_rng(13)
    q, k, v = inputs_of(rng, lq, lk, dtype)
    keywords = cast(terms(rng, kind, 2, lq, lk, 16), dtype)
    got = run(q, k, np.ones_like(v), **keywords).out
    assert_close(got, np.ones_like(got), SAME)
    other = normal(rng, *v.shape).astype(dtype)
    parts = [run(q, k, x, **keywords).out for x in (v, other, v + 2 * other)]
    assert_close(parts[2], parts[0] + 2 * parts[1], SAME)


@both_dtypes
@both_paths
@pytest.mark.parametrize("name", ["rel_bias", "rel_key"])
def test_15_one_huge_entry_selects_one_key(isa, dtype, lq, lk, name):
    """An entry at relative position r returns value i + offset + r, to the bit."""
    rng = np.random.default_rng(15)
    q, k, v = inputs_of(rng, lq, lk, dtype)
    q[..., 0] = 1
    offset, reach = 2, lq + lk
    for r in (0, -1, 3, lq - 1, 1 - lq, lk - lq - offset):
        if name == "rel_bias":
            table = np.zeros(2 * reach + 1, dtype)
            table[reach + r] = 1e5
        else:
            table = np.zeros((2 * reach + 1, 16), dtype)
            table[reach + r, 0] = 1e5
        got = relpos.attention(q, k, v, query_offset=offset, **{name: table})
        key = np.arange(lq) + offset + r
        inside = (key >= 0) & (key < lk)
        assert inside.any()
        assert_bitwise(got[..., inside, :], v[..., key[inside], :])


@both_dtypes
@both_paths
@pytest.mark.parametrize("name", ["rel_key", "rel_query", "rel_value", "rel_bias"])
@pytest.mark.parametrize("clipped", [True, False])
def test_16_a_table_of_zeros_is_no_table(isa, dtype, lq, lk, name, clipped):
    rng = np.random.default_rng(16)
    inputs = inputs_of(rng, lq, lk, dtype)
    rows = 9 if clipped else 2 * (lq + lk) + 1
    shape = (rows,) if name == "rel_bias" else (rows, 16)
    want = run(*inputs, query_offset=1)
    got = run(*inputs, query_offset=1, **{name: np.zeros(shape, dtype)})
    assert_bitwise(got.out, want.out)
    assert_bitwise(got.lse, want.lse)
