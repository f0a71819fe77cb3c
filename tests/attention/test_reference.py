"""relpos.reference, the definitions: against the oracle's loops and recorded cores."""

from __future__ import annotations

import numpy as np
import oracle
import oracle_positions
import pytest
from problems import normal, qkv
from tolerances import assert_bitwise, assert_close, assert_lse_close

from relpos import reference
from relpos._demo.cores import CORES
from relpos._demo.recorded import load


@pytest.mark.parametrize(
    ("lq", "lk", "offset"), [(1, 4, 3), (5, 5, 0), (4, 6, 1), (6, 2, -4)]
)
def test_schemes_are_cases_of_attention(lq, lk, offset):
    rng = np.random.default_rng(23)
    q, k, v = qkv(rng, (2,), 2, lq, lk, 4)
    table, values = normal(rng, 2 * lk + 2 * lq + 9, 4), normal(rng, 2, 5, 4)
    u, w = normal(rng, 2, 2, 4)
    mask = normal(rng, lq, lk)
    first = -(table.shape[0] // 2)
    music, xl = {"rel_key": table}, {"rel_key": table, "pos_bias_u": u, "pos_bias_v": w}
    from_first, from_lk = ({"min_relative_position": n} for n in (first, 1 - lk))
    from_end = {"min_relative_position": 1 - table.shape[0]}
    causal, both = {"is_causal": True}, {"is_causal": False}
    shaw = {"rel_key": values[0], "rel_value": values}
    for name, tables, settings, same in (
        ("shaw_attention", shaw, {}, {}),
        ("relative_global_attention", music, both, from_first),
        ("relative_global_attention", music, {}, from_end | causal),
        ("relative_global_attention", music, from_first, from_first | causal),
        ("transformer_xl_attention", xl, from_lk, from_lk),
    ):
        o = lk - lq if tables is xl else offset
        given = {"attn_mask": mask, "query_offset": o, "return_lse": True, **tables}
        got = getattr(reference, name)(q, k, v, **given, **settings)
        want = reference.attention(q, k, v, **given, **same)
        assert_close(got.out, want.out, "forward")
        assert_lse_close(got.lse, want.lse)


@pytest.mark.parametrize("causal", [False, True])
def test_equation_5_of_shaw_is_equations_3_and_4(causal):
    rng = np.random.default_rng(24)
    q, k, v = qkv(rng, (3,), 2, 7, 7, 8)
    tables = normal(rng, 2, 7, 8)
    assert_close(
        reference.shaw_attention_split(q, k, v, *tables, is_causal=causal),
        reference.shaw_attention(q, k, v, *tables, is_causal=causal),
        "forward",
    )


@pytest.mark.parametrize("name", [name for name in CORES if "rotary" not in name])
def test_recorded_cores(name):
    """The definition of each attention that the demo calls, with the same arguments."""
    case = load(name)
    function, settings = CORES[name].call(case)
    got = getattr(reference, function.__name__)(**settings)
    assert_close(getattr(got, "out", got), case["context"], "recorded")


def test_brute_force_passes_one_by_one():
    rng = np.random.default_rng(25)
    x, encodings = normal(rng, 4, 5), normal(rng, 7, 5)
    weights = normal(rng, 3, 5, 6)
    got = reference.brute_force_attention(x, encodings, *weights)
    for i in range(4):
        seen = np.array([x[j] + encodings[j - i + 3] for j in range(4)])
        q, k, v = (seen @ w for w in weights)
        one = oracle.attention(q[None], k[None], v[None]).out[0, i]
        assert_close(got[i], one, "forward")


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 7), (7, 3), (2, 5, 6)])
def test_skewing_is_the_loops(shape):
    rng = np.random.default_rng(26)
    x, y = normal(rng, 2, *shape)
    assert_bitwise(reference.rel_shift(x), oracle_positions.rel_shift(x))
    for causal in (True, False):
        if not causal and shape[-1] < shape[-2]:
            continue  # fewer distances than queries: no key has a score
        skewed = reference.skew(x, is_causal=causal)
        assert_bitwise(skewed, oracle_positions.skew(x, is_causal=causal))
        cotangent = y[..., : skewed.shape[-1]]
        back = reference.unskew(cotangent, is_causal=causal)
        assert_bitwise(back, oracle_positions.unskew(cotangent, is_causal=causal))
        assert np.isclose((skewed * cotangent).sum(), (x * back).sum(), rtol=1e-12)


def assert_scores(name, *inputs, **options):
    """Compare a function with the loops of the same name."""
    got, want = (
        getattr(source, name)(*inputs, **options)
        for source in (reference, oracle_positions)
    )
    assert_close(got, want, "forward")


def test_scores_are_the_loops():
    rng = np.random.default_rng(27)
    q, k, _ = qkv(rng, (2,), 2, 4, 6, 4)
    table, (u, w) = normal(rng, 9, 4), normal(rng, 2, 2, 4)
    assert_scores("shaw_scores", q, k, table, query_offset=1)
    for origin in ({}, {"min_relative_position": -4}):
        assert_scores("transformer_xl_scores", q, k, table, u, w, **origin)
        for causal in (False, True):
            options = {"is_causal": causal, "query_offset": 2, "scale": 0.3, **origin}
            assert_scores("skewed_scores", q, k, table, **options)


@pytest.mark.parametrize("shape", [(5,), (2, 3), (1, 4), (2, 2, 3)])
def test_grid_labels_are_the_loops(shape):
    assert_bitwise(reference.grid_labels(shape), oracle_positions.grid_labels(shape))


def test_merge_is_attention_over_both_parts():
    rng = np.random.default_rng(28)
    q, k, v = qkv(rng, (2,), 2, 5, 9, 4)
    hide = np.ones((5, 9), dtype=bool)
    hide[1, :4] = hide[2, 4:] = hide[3] = False
    halves = [
        reference.attention(
            q, k[..., part, :], v[..., part, :], hide[:, part], return_lse=True
        )[:2]
        for part in (slice(0, 4), slice(4, 9))
    ]
    out, lse = reference.merge_attention(*halves[0], *halves[1])
    whole = oracle.attention(q, k, v, hide)
    assert_close(out, whole.out, "forward")
    assert_lse_close(lse, whole.lse)


@pytest.mark.parametrize("layout", ["interleaved", "concat"])
@pytest.mark.parametrize("dim", [1, 4, 7])
def test_sinusoids_are_the_loops_and_the_matrix_moves_them(layout, dim):
    positions = np.array([-3.0, 0.0, 0.5, 41.0])
    got = reference.sinusoidal(positions, dim, base=50.0, layout=layout)
    want = oracle_positions.sinusoidal(positions, dim, base=50.0, layout=layout)
    assert_close(got, np.asarray(want, np.float64), "forward")
    if dim % 2:
        return
    move = reference.sinusoidal_shift_matrix(7, dim, base=50.0, layout=layout)
    moved = reference.sinusoidal(positions + 7, dim, base=50.0, layout=layout)
    assert_close(got @ move.T, moved, "forward")


def test_learned_and_its_adjoint():
    rng = np.random.default_rng(29)
    table, positions = normal(rng, 2, 5, 3), rng.integers(0, 5, (4, 6))
    found = reference.learned(table, positions)
    assert found.shape == (2, 4, 6, 3)
    assert_bitwise(found[1, 2, 3], table[1, positions[2, 3]])
    cotangent = normal(rng, *found.shape)
    gradient = reference.learned_backward(cotangent, positions, 5)
    assert gradient.shape == table.shape
    assert np.isclose((found * cotangent).sum(), (table * gradient).sum(), rtol=1e-12)
    with pytest.raises(IndexError, match="positions: 5 is outside the table of R=5"):
        reference.learned(table, [0, 5])


def test_dropout_keeps_what_philox_says():
    seed = np.uint64(0x0123456789ABCDEF)
    keep = reference.dropout_keep((2, 3, 4, 9), 0.4, seed)
    for (b, h, i, j), kept in np.ndenumerate(keep):
        factor = oracle.dropout_factor(int(seed), 0.4, b, h, i, j)
        assert kept == (factor > 0)


def test_what_is_hidden_may_be_nan():
    rng = np.random.default_rng(30)
    q, k, v = qkv(rng, (), 1, 4, 4, 3)
    table, values = normal(rng, 2, 7, 3)
    clean = reference.shaw_attention(q, k, v, table, values, is_causal=True)
    table[4:], values[4:] = np.nan, np.inf
    assert_bitwise(
        reference.shaw_attention(q, k, v, table, values, is_causal=True), clean
    )


def test_positions_outside_the_table():
    rng = np.random.default_rng(31)
    q, k, v = qkv(rng, (), 1, 4, 4, 3)
    table, none = normal(rng, 3, 3), np.zeros(3)
    for call in (
        lambda: reference.attention(q, k, v, rel_key=table, beyond="raise"),
        lambda: reference.relative_global_attention(q, k, v, table),
        lambda: reference.transformer_xl_attention(
            q, k, v, table, none, none, min_relative_position=-3
        ),
    ):
        with pytest.raises(IndexError, match="outside a table of 3 rows"):
            call()
    with pytest.raises(ValueError, match="2 rows have no middle"):
        reference.attention(q, k, v, rel_key=table[:2])
    with pytest.raises(ValueError, match="query_offset"):
        reference.attention(q[:, :2], k, v, rel_key=table)
