"""Dense scores compared with loops, and with the skewing that they replace."""

from __future__ import annotations

import numpy as np
import oracle_positions as oracle
import problems
import pytest
from layouts import LAYOUTS, repeated
from refusals import check, every_row
from tolerances import assert_bitwise, assert_close

import relpos

DTYPES = [np.float32, np.float64]


def normal(rng, *shape, dtype=np.float64, scale=1.0):
    return problems.normal(rng, *shape, scale=scale).astype(dtype)


#: Kind of scores -> function and settings; `from`: with an origin of their own.
KINDS = {
    "shaw": ("shaw_scores", {}),
    "causal": ("skewed_scores", {"is_causal": True}),
    "both": ("skewed_scores", {"is_causal": False}),
    "skewed from": (
        "skewed_scores",
        {"is_causal": False, "min_relative_position": -2},
    ),
    "transformer_xl": ("transformer_xl_scores", {}),
    "transformer_xl from": ("transformer_xl_scores", {"min_relative_position": -2}),
}


def compute(kind, scores, q, k, table, u, v, **options):
    """Compute scores by relpos or the oracle; all tables of one kind lie alike."""
    name, settings = KINDS[kind]
    if kind == "transformer_xl":
        settings = {"min_relative_position": 1 - np.shape(k)[-2]}
    vectors = (u, v) if name == "transformer_xl_scores" else ()
    return getattr(scores, name)(q, k, table, *vectors, **settings, **options)


def problem(lq, lk, d, rows, *, heads=2, batch=(), seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (
        normal(rng, *batch, heads, lq, d, dtype=dtype),
        normal(rng, *batch, heads, lk, d, dtype=dtype),
        normal(rng, rows, d, dtype=dtype),
        normal(rng, heads, d, dtype=dtype),
        normal(rng, d, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_small_sizes(kind, dtype):
    """Tables shorter and longer than the lengths, offsets inside and far outside."""
    for lq, lk in ((1, 1), (3, 3), (5, 2), (2, 6), (7, 7)):
        for rows in (1, 3, 9, 21):
            operands = problem(lq, lk, 3, rows, seed=lq * lk, dtype=dtype)
            for offset in (0, lk - lq, 3, -4, 50, -50):
                got = compute(kind, relpos, *operands, query_offset=offset)
                want = compute(kind, oracle, *operands, query_offset=offset)
                assert got.dtype == dtype
                assert_close(got, want, "forward")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_several_blocks_of_rows(kind, dtype, isa):
    operands = problem(70, 67, 5, 41, heads=1, dtype=dtype)
    got = compute(kind, relpos, *operands, query_offset=-3, scale=0.5)
    assert_close(
        got, compute(kind, oracle, *operands, query_offset=-3, scale=0.5), "forward"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_default_offset_and_scale(kind):
    operands = problem(4, 4, 6, 7)
    assert_close(
        compute(kind, relpos, *operands), compute(kind, oracle, *operands), "forward"
    )
    memory = problem(3, 8, 6, 8)
    if kind.startswith("transformer_xl"):
        assert_close(
            compute(kind, relpos, *memory), compute(kind, oracle, *memory), "forward"
        )


@pytest.mark.parametrize(("lq", "lk"), [(4, 4), (3, 8), (8, 3), (1, 6)])
def test_the_length_of_a_table_tells_its_origin(lq, lk):
    """Lk, Lk + Lq - 1 and 2 Lk - 1 rows, and no other number, begin at -(Lk - 1)."""
    told = (lk, lk + lq - 1, 2 * lk - 1)
    for rows in range(1, 2 * lk + lq + 3):
        operands = problem(lq, lk, 5, rows)
        if rows in told:
            got = relpos.transformer_xl_scores(*operands)
            assert_bitwise(got, compute("transformer_xl", relpos, *operands))
            continue
        for scores in (relpos, relpos.reference):
            with pytest.raises(
                ValueError, match=rf"^rel_key: {rows} rows? .* min_relat"
            ):
                scores.transformer_xl_scores(*operands)


@pytest.mark.parametrize("name", ["skewed_scores", "transformer_xl_scores"])
def test_origins_and_offsets_far_away(name):
    """Only the sum matters, although each alone is outside every table."""
    far = 2**60 - 8
    arguments, causality = problem(4, 5, 3, 9), {}
    if name == "skewed_scores":
        arguments, causality = arguments[:3], {"is_causal": True}

    def run(first, offset):
        origin = {"min_relative_position": first, "query_offset": offset}
        return getattr(relpos, name)(*arguments, **origin, **causality)

    want = getattr(oracle, name)(
        *arguments, min_relative_position=-3, query_offset=1, **causality
    )
    assert_close(run(-3, 1), want, "forward")
    assert_bitwise(run(-far, far - 2), run(-3, 1))
    assert_bitwise(run(far, -2 - far), run(-3, 1))
    assert_bitwise(run(far, far), run(-far, -far))  # no pair meets the table
    outside = getattr(oracle, name)(
        *arguments, min_relative_position=99, query_offset=0, **causality
    )
    assert_close(run(far, far), outside, "forward")


@pytest.mark.parametrize("kind", KINDS)
def test_tables_and_offsets_per_item(kind):
    q, k, _, u, v = problem(4, 5, 3, 1, batch=(2, 3))
    table = normal(np.random.default_rng(1), 3, 2, 9, 3)
    offsets = np.array([[0], [-2]])
    got = compute(kind, relpos, q, k, table, u, v, query_offset=offsets)
    assert got.shape == (2, 3, 2, 4, 5)
    for b in range(2):
        operands = (q[b], k[b], table, u, v)
        want = compute(kind, oracle, *operands, query_offset=int(offsets[b, 0]))
        assert_close(got[b], want, "forward")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_layout(kind, layout, dtype):
    operands = problem(5, 6, 4, 7, dtype=dtype)
    arrange = LAYOUTS[layout]
    got = compute(kind, relpos, *map(arrange, operands), query_offset=1)
    assert_close(got, compute(kind, oracle, *operands, query_offset=1), "forward")
    same = [repeated(x) for x in operands[:3]]
    got = compute(kind, relpos, *same, *operands[3:], query_offset=1)
    assert_close(
        got, compute(kind, oracle, *same, *operands[3:], query_offset=1), "forward"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads(kind):
    operands = problem(200, 150, 16, 301, dtype=np.float32)
    problems.assert_same_on_threads(
        lambda: compute(kind, relpos, *operands, query_offset=0)
    )


def test_skewed_scores_are_the_skew():
    """Q K^T + skew(Q E^T): everywhere with both directions, below the diagonal else."""
    q, k, table, _, _ = problem(6, 6, 4, 11)
    content = q @ k.swapaxes(-1, -2)
    skewed = relpos.skew(q @ table.T, is_causal=False)
    got = relpos.skewed_scores(q, k, table, is_causal=False, scale=1.0)
    assert_close(got, content + skewed, "forward")
    wrapped = relpos.skew(q @ table[:6].T, is_causal=True)
    got = relpos.skewed_scores(q, k, table[:6], is_causal=True, scale=1.0)
    assert_close(np.tril(got), np.tril(content + wrapped), "forward")
    assert_close(np.triu(got, 1), np.triu(content, 1), "forward")


def test_half_precision_and_mixed_dtypes():
    q, k, table, _, _ = problem(4, 4, 3, 5, dtype=np.float32)
    half = (x.astype(np.float16) for x in (q, k, table))
    got = relpos.shaw_scores(*half)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, relpos.shaw_scores(q, k, table), rtol=0, atol=0.02)
    mixed = relpos.shaw_scores(q, k.astype(np.float64), table)
    assert mixed.dtype == np.float64
    assert_close(mixed, oracle.shaw_scores(q, k, table), "forward")


@pytest.mark.parametrize("kind", KINDS)
def test_empty(kind):
    for lq, lk in ((0, 3), (3, 0), (0, 0)):
        operands = problem(lq, lk, 2, 3)
        assert compute(kind, relpos, *operands, query_offset=0).shape == (2, lq, lk)
    operands = problem(2, 3, 0, 3)
    got = compute(kind, relpos, *operands, query_offset=0, scale=1.0)
    assert_bitwise(got, np.zeros((2, 2, 3)))


Q, K, A, U, V = problem(3, 3, 4, 5)


REFUSED = """
shaw_scores(Q, K, A[:4]) -> ValueError: rel_key: 4 rows…odd
shaw_scores(Q, K[:, :2], A) -> ValueError: query_offset: …3 queries…2 keys
shaw_scores(Q, K[..., :3], A) -> ValueError: key: …(2, 3, 3)…head_dim 4
shaw_scores(Q, K[:1], A) -> ValueError: key: 1 head…2; expected equal numbers
shaw_scores(Q, K, A, scale=np.nan) -> ValueError: scale: …nan
shaw_scores([Q, Q], K, A, query_offset=[0, 1, 2]) -> ValueError: query_offset: …(3,)
skewed_scores(Q, K, A[:4], is_causal=False) -> ValueError: rel_key: 4 rows…odd
skewed_scores(Q, K, A[0], is_causal=True) -> ValueError: rel_key: …(4,)
skewed_scores(Q, K, A, is_causal=None) -> TypeError: is_causal: …NoneType
skewed_scores(Q, K, A[:0], is_causal=True) -> ValueError: rel_key: …no rows
skewed_scores(Q, K, A, is_causal=True, min_relative_position=0.5) -> TypeError:
    min_relative_position: …float
transformer_xl_scores(Q, K, A, U, V, min_relative_position=2**60) -> ValueError:
    min_relative_position: …1152921504606846976
transformer_xl_scores(Q, K, A[0], U, V) -> ValueError: rel_key: …(4,)
transformer_xl_scores(Q, K, A, U[:, :2], V) -> ValueError: pos_bias_u: …(2, 2)
transformer_xl_scores(Q, K, A, U, V, query_offset=0.5) -> TypeError: query_offset: …floa
transformer_xl_scores(Q[0], K, A, U, V) -> ValueError: query: …(3, 4)
transformer_xl_scores(Q, K.astype(int), A, U, V) -> TypeError: key: …int64
"""


@every_row(REFUSED)
def test_bad_calls(row):
    check(row, vars(relpos) | {"Q": Q, "K": K, "A": A, "U": U, "V": V})
