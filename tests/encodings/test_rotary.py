"""apply_rotary: to the last place, on every table, against the loops."""

from __future__ import annotations

import mpmath
import numpy as np
import oracle_rotary as oracle
import pytest
from problems import assert_same_on_threads, seeded
from tolerances import assert_bitwise

import relpos
from relpos import reference

DTYPES = [np.float32, np.float64]
PAIRINGS = [False, True]


# ---- precision ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def far_rows(sized):
    """Rows at positions to 2^24 of both signs, whole and fractional, and the truth of
    one pair of each as mpmath numbers."""
    rng = np.random.default_rng(24)
    count, half = sized(4_000, 12_000), 32
    positions = rng.integers(-(2**24), 2**24 + 1, count).astype(np.float64)
    positions[::4] += rng.random(count // 4)
    x = rng.standard_normal((count, 2 * half)).astype(np.float32)
    chosen = rng.integers(0, half, count)
    true = []
    with mpmath.workdps(40):
        omega = oracle.frequencies(2 * half)
        for n, c in enumerate(chosen):
            theta = mpmath.mpf(float(positions[n])) * omega[c]
            cosine, sine = mpmath.cos(theta), mpmath.sin(theta)
            a, b = (mpmath.mpf(float(v)) for v in (x[n, c], x[n, half + c]))
            true.append((a * cosine - b * sine, b * cosine + a * sine))
    return positions, x, chosen, true


def interleave(x):
    """Columns c and h + c, made neighbours."""
    half = x.shape[-1] // 2
    return np.stack([x[..., :half], x[..., half:]], -1).reshape(x.shape)


@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_float32_is_within_one_ulp_to_2_to_the_24(far_rows, interleaved, isa):
    positions, x, chosen, true = far_rows
    x = interleave(x) if interleaved else x
    got = relpos.apply_rotary(x, positions, interleaved=interleaved)
    rows, half = np.arange(len(x)), x.shape[-1] // 2
    columns = (2 * chosen, 2 * chosen + 1) if interleaved else (chosen, half + chosen)
    for part, column in enumerate(columns):
        values = got[rows, column]
        exact = [pair[part] for pair in true]
        unit = np.spacing(np.abs(np.array([np.float32(float(y)) for y in exact])))
        error = [
            abs(mpmath.mpf(float(v)) - y) for v, y in zip(values, exact, strict=True)
        ]
        ulps = np.array([float(e) for e in error]) / unit
        assert ulps.max() <= 1
        assert (ulps <= 0.5000001).mean() > 0.9999  # all but nearly halfway cases


def test_float64_is_within_three_ulp_of_the_pair(far_rows, isa):
    positions, x, chosen, true = (part[:3000] for part in far_rows)
    got = relpos.apply_rotary(x.astype(np.float64), positions)
    rows, half = np.arange(len(x)), x.shape[-1] // 2
    size = np.hypot(x[rows, chosen], x[rows, half + chosen])
    for part, column in enumerate((chosen, half + chosen)):
        exact = np.array([float(pair[part]) for pair in true])
        assert (np.abs(got[rows, column] - exact) <= 3 * np.spacing(size)).all()


@pytest.mark.parametrize("base", [0.0, 4096.0, 65536.0, 1e6, 2.0**24])
@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_scores_depend_on_the_difference_of_positions_alone(base, interleaved, isa):
    """Metamorphic; public float64 tables reach 5e-9 of |q||k| at 1e6, float32 1e-4."""
    q, k = seeded(7, 64, seed=1), seeded(9, 64, seed=2)
    i, j = np.arange(7.0), np.arange(9.0) * 1.5
    options = {"interleaved": interleaved}
    here = relpos.apply_rotary(q, i, **options) @ relpos.apply_rotary(k, j, **options).T
    there = (
        relpos.apply_rotary(q, i, offset=base, **options)
        @ relpos.apply_rotary(k, j, offset=base, **options).T
    )
    size = np.linalg.norm(q, axis=-1)[:, None] * np.linalg.norm(k, axis=-1)
    assert (np.abs(here - there) <= 1e-15 * size).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_rotations_form_a_group(interleaved, dtype, isa):
    """R(a) R(b) = R(a + b), R(-a) R(a) = 1, and norms stay, to a few ulp."""
    x = seeded(3, 50, 34, dtype=dtype)
    a = np.random.default_rng(3).integers(-(2**20), 2**20, 50)
    limit = 4 * np.finfo(dtype).eps * np.abs(x).max() * 1.5
    options = {"interleaved": interleaved}
    once = relpos.apply_rotary(x, a, **options)
    both = relpos.apply_rotary(relpos.apply_rotary(x, a - 7, **options), 7, **options)
    np.testing.assert_allclose(both, once, rtol=0, atol=limit)
    for back in (
        relpos.apply_rotary(once, -a, **options),
        relpos.apply_rotary(once, a, inverse=True, **options),
    ):
        np.testing.assert_allclose(back, x, rtol=0, atol=limit)
    norms = [np.linalg.norm(v.astype(np.float64), axis=-1) for v in (x, once)]
    np.testing.assert_allclose(*norms, rtol=2 * np.finfo(dtype).eps)


def test_scores_of_a_grid_depend_on_both_differences_alone():
    """Angles of several axes side by side: moving all cells changes nothing."""
    rng = np.random.default_rng(7)
    q, k = rng.standard_normal((2, 12, 16))
    axes, inv_freq = np.divmod(np.arange(12), 4), relpos.rotary_frequencies(8)

    def scores(*moves):
        parts = [
            np.multiply.outer(at + move, inv_freq)
            for at, move in zip(axes, moves, strict=True)
        ]
        rotated = [relpos.apply_rotary(x, angles=np.hstack(parts)) for x in (q, k)]
        return rotated[0] @ rotated[1].T

    np.testing.assert_allclose(scores(9, 30), scores(0, 0), rtol=0, atol=1e-13)
    row, column = axes
    same = (row[:, None] - row == 1) & (column[:, None] - column == -2)
    q[:], k[:] = q[0], k[0]  # equal contents: scores tell offsets apart, and no more
    assert np.ptp(scores(0, 0)[same]) < 1e-14 < 1e-3 < np.ptp(scores(0, 0))


@pytest.mark.sanitized
@pytest.mark.usefixtures("strict_floats")
def test_random_problems(isa):
    """Any mix of arguments, against the definition."""
    rng = np.random.default_rng(11)
    for _ in range(150):
        batch = tuple(rng.integers(1, 4, rng.integers(0, 3)))
        length, half = (int(n) for n in rng.integers(1, 40, 2))
        x = rng.standard_normal((*batch, length, 2 * half + rng.integers(0, 3)))
        x = x.astype(rng.choice(DTYPES))
        if rng.random() < 0.3:
            x = x[..., ::-1, :]
        shape = (*batch, length, half)
        angles_shape = shape[rng.integers(0, len(shape)) :]
        options = {"rotary_dim": 2 * half, "interleaved": bool(rng.random() < 0.5)}
        options["inverse"] = bool(rng.random() < 0.5)
        if rng.random() < 0.3:
            options["angles"] = rng.standard_normal(angles_shape)
        else:
            options["offset"] = float(rng.integers(-9, 9))
            if rng.random() < 0.5:
                options["positions"] = 9 * rng.standard_normal(angles_shape[:-1])
            if rng.random() < 0.5:
                options["inv_freq"] = rng.standard_normal(half)
        if rng.random() < 0.5:
            options["magnitude"] = rng.standard_normal(angles_shape)
        want = reference.apply_rotary(x, **options)
        limit = 60 * np.finfo(x.dtype).eps * np.abs(want).max()
        np.testing.assert_allclose(
            relpos.apply_rotary(x, **options), want, rtol=0, atol=limit
        )
        x = x.copy()
        relpos.apply_rotary(x, **options, out=x)
        np.testing.assert_allclose(x, want, rtol=0, atol=limit)


# ---- against the loops --------------------------------------------------------------

OPTIONS = {
    "plain": {},
    "base": {"base": 500.0},
    "given frequencies": {"inv_freq": np.array([1.0, 0.3, -0.2])},
    "angles": {"angles": seeded(2, 1, 5, 3, seed=4)},
    "angles of two axes": {
        "angles": np.concatenate([seeded(5, 1, seed=5), seeded(5, 2, seed=6)], -1)
    },
    "offset": {"offset": 11},
    "fractional offset": {"offset": -2.5},
    "fractional positions": {"positions": np.array([0.5, -1.25, 7.0, 1e4, 3.75])},
    "positions of items": {"positions": np.arange(10).reshape(2, 1, 5), "offset": 3},
    "one position": {"positions": 9},
    "inverse": {"inverse": True, "offset": 2},
    "magnitude": {"magnitude": 1.25},
    "magnitudes of pairs": {"magnitude": np.array([0.5, 1.5, 3.0])},
    "magnitudes of rows": {"magnitude": seeded(5, 3, seed=7), "inverse": True},
    "magnitudes of all": {"magnitude": seeded(2, 3, 5, 3, seed=8)},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("rotary_dim", [None, 6])
@pytest.mark.parametrize("name", OPTIONS)
def test_against_the_loops(name, rotary_dim, interleaved, dtype, isa):
    x = seeded(2, 3, 5, 6 if rotary_dim is None else 9, dtype=dtype)
    options = OPTIONS[name] | {"rotary_dim": rotary_dim, "interleaved": interleaved}
    got = relpos.apply_rotary(x, **options)
    want = oracle.apply_rotary(x, **options)
    assert got.dtype == dtype and got.shape == x.shape and got.flags.c_contiguous
    limit = np.finfo(dtype).eps * np.abs(want).max() * 2
    np.testing.assert_allclose(got, want, rtol=0, atol=limit)
    assert_bitwise(got[..., 6:], x[..., 6:])
    exact = reference.apply_rotary(x, **options)
    np.testing.assert_allclose(exact, want, rtol=0, atol=1e-11)  # phases of one double


@pytest.mark.sanitized
@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("columns", [2, 4, 10, 14, 34, 66, 130, 1028, 2222])
def test_partial_vectors_and_blocks(columns, interleaved, isa):
    """One pair up to more pairs than a table holds, in rows of 3 columns more."""
    for dtype in DTYPES:
        x = seeded(2, 3, columns + 3, dtype=dtype)
        options = {"rotary_dim": columns, "interleaved": interleaved, "offset": 4}
        got = relpos.apply_rotary(x, **options)
        want = reference.apply_rotary(x, **options)
        limit = np.finfo(dtype).eps * 20
        np.testing.assert_allclose(got, want, rtol=0, atol=limit)
        assert_bitwise(got[..., columns:], x[..., columns:])


@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_many_rows_and_items_share_what_they_share(interleaved, isa):
    """The same bits whether angles are shared by items or written out for each."""
    x = seeded(3, 5, 300, 16, dtype=np.float32)
    shared = np.arange(300) * 3.0
    each = np.ascontiguousarray(np.broadcast_to(shared, (3, 5, 300)))
    options = {"interleaved": interleaved}
    want = relpos.apply_rotary(x, shared, **options)
    assert_bitwise(relpos.apply_rotary(x, each, **options), want)
    assert_bitwise(relpos.apply_rotary(x[1, 2:4], shared, **options), want[1, 2:4])
    assert_bitwise(
        relpos.apply_rotary(x[:, :, 40:41], 120, **options), want[:, :, 40:41]
    )
    by_length = x.swapaxes(1, 2).copy()  # (batch, length, heads, columns)
    got = relpos.apply_rotary(by_length, shared[:, None], **options)
    assert_bitwise(got.swapaxes(1, 2), want)
    np.testing.assert_allclose(want, reference.apply_rotary(x, shared, **options), 1e-5)


@pytest.mark.sanitized
@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_any_number_of_threads(interleaved):
    x = seeded(4, 700, 48, dtype=np.float32)
    assert_same_on_threads(lambda: relpos.apply_rotary(x, interleaved=interleaved))


@pytest.mark.sanitized
def test_empty():
    for shape in ((0, 4), (3, 0), (2, 0, 5, 4), (2, 3, 5, 0)):
        assert relpos.apply_rotary(np.ones(shape)).shape == shape
    x = seeded(3, 5)
    assert_bitwise(relpos.apply_rotary(x, rotary_dim=0), x)
    grads = relpos.apply_rotary_backward(x, x, rotary_dim=0, inv_freq=np.zeros(0))
    assert_bitwise(grads.x, x)
    assert grads.inv_freq.shape == (0,)
    none = np.ones((2, 0, 4))
    grads = relpos.apply_rotary_backward(none, none, inv_freq=np.ones(2))
    assert grads.inv_freq.tolist() == [0, 0]


@pytest.mark.usefixtures("strict_floats")
def test_nan_and_infinity_stay_where_they_are():
    x = np.ones((4, 6))
    x[1, 0], x[2, 5] = np.nan, np.inf
    got = relpos.apply_rotary(x, [0.0, 1.0, 1.0, np.inf])
    bad = ~np.isfinite(got)
    assert bad[1].tolist() == [True, False, False] * 2
    assert bad[2].tolist() == [False, False, True] * 2
    assert not bad[0].any() and bad[3].all()
    huge = np.full((2, 2), 3e38, np.float32)
    assert np.isinf(relpos.apply_rotary(huge, np.pi / 4)[:, 1]).all()
