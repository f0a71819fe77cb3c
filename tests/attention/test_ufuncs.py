"""relpos.ufuncs as NumPy sees them: signatures, out=, axes=, broadcasting, dask."""

from __future__ import annotations

import pickle

import mpmath
import numpy as np
import oracle
import oracle_positions
import problems
import pytest
from layouts import LAYOUTS
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos
from relpos import _core, ufuncs
from relpos._settings import kernels

# Pickling looks a ufunc up in every loaded module, and mpmath's answer with a warning.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the .* module is deprecated:DeprecationWarning:mpmath"
)
DTYPES = [np.float32, np.float64]
SIGNATURES = {
    "sinusoidal": "(),(h),(h)->(h),(h)",
    "rotary": "(l,d),(l),(l,h),(l,h),(l,h),()->(l,d)",
    "learned": "(r,d),(n)->(n,d)",
    "learned_backward": "(n,d),(n)->(r,d)",
    "conv_encoding": "(h,w,e),(i,j,e),(e),(h,w),(),()->(h,w,e)",
    "conv_encoding_backward": "(h,w,e),(h,w,e),(h,w),(),()->(i,j,e),(e)",
    "gelu": "(n)->(n),(n)",
    "skew": "(q,r)->(q,s)",
    "unskew": "(q,s)->(q,r)",
    "rel_shift": "(q,k)->(q,k)",
    "rel_unshift": "(q,k)->(q,k)",
    "shaw_scores": "(q,d),(k,d),(r,d),(),()->(q,k)",
    "skewed_scores": "(q,d),(k,d),(r,d),(),(),()->(q,k)",
    "transformer_xl_scores": "(q,d),(k,d),(r,d),(d),(d),(),()->(q,k)",
    "merge": "(v),(),(v),()->(v),()",
    "shaw_attention": "(q,d),(k,d),(k,v),(r,d),(r,v)->(q,v)",
    "relative_global_attention": "(q,d),(k,d),(k,v),(r,d)->(q,v)",
    "transformer_xl_attention": "(q,d),(k,d),(k,v),(r,d),(d),(d)->(q,v)",
}


def normal(rng, *shape, dtype=np.float64, scale=1.0):
    return problems.normal(rng, *shape, scale=scale).astype(dtype)


def test_every_ufunc_is_there():
    assert set(ufuncs.__all__) == set(SIGNATURES)
    for name, signature in SIGNATURES.items():
        ufunc = getattr(ufuncs, name)
        assert isinstance(ufunc, np.ufunc)
        assert (ufunc.__name__, ufunc.signature) == (name, signature)
        assert len(ufunc.types) == 2 and ufunc.__doc__
        for table in _core.by_isa.values():
            assert getattr(table, name).signature == signature


def test_pickles_by_name():
    for name in SIGNATURES:
        ufunc = getattr(ufuncs, name)
        assert pickle.loads(pickle.dumps(ufunc)) is ufunc


# ---- what NumPy adds ---------------------------------------------------------------


def test_axes_and_where_the_result_goes(rng):
    x = rng.standard_normal((4, 2, 3))
    want = oracle_positions.rel_shift(np.moveaxis(x, 0, -1))
    out = np.empty((4, 3, 2)).transpose(2, 1, 0)
    assert ufuncs.rel_shift(x, axes=[(2, 0), (1, 2)], out=out) is out
    assert_bitwise(out, want)


def test_out_that_overlaps_an_input(rng):
    """NumPy copies the input, unless it is the same view."""
    x = rng.standard_normal((6, 6))
    want = oracle_positions.rel_shift(x[1:])
    assert_bitwise(ufuncs.rel_shift(x[1:], out=x[:-1]), want)


def in_place_cases(rng):
    """(name, operands, places): the operands at these places may be the outputs."""
    x, y = rng.standard_normal((2, 700, 64))
    lse, other = rng.standard_normal((2, 700))
    keys, table = rng.standard_normal((64, 64)), rng.standard_normal((65, 64))
    angles = np.arange(700.0), abs(y[:, :32]), np.zeros((700, 32)), abs(x[:, :32])
    return [
        ("sinusoidal", (lse, x, y), (1, 2)),
        ("sinusoidal", (lse, x, y), (2, 1)),
        ("rotary", (x, *angles, 0), (0,)),
        ("rotary", (x, *angles, 1), (0,)),
        ("gelu", (x,), (0, None)),
        ("gelu", (x,), (None, 0)),
        ("merge", (x, lse, y, other), (0, 3)),
        ("merge", (x, lse, y, other), (2, 1)),
        ("skew", (x[:1],), (0,)),
        ("unskew", (x[:1],), (0,)),
        ("shaw_scores", (x, keys, table, 0.5, 3), (0,)),
        ("skewed_scores", (x, keys, table, 0.5, 3, -9), (0,)),
        ("transformer_xl_scores", (x, keys, table, *table[:2], 0.5, 3), (0,)),
    ]


@pytest.mark.sanitized
@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_place(rng, layout, threads):
    for name, operands, places in in_place_cases(rng):
        given = [LAYOUTS[layout](np.array(x)) if np.ndim(x) else x for x in operands]
        own = tuple(None if n is None else np.empty(given[n].shape) for n in places)
        same = tuple(None if n is None else given[n] for n in places)
        with relpos.threads(threads):
            want = getattr(ufuncs, name)(*operands, out=own)
            got = getattr(ufuncs, name)(*given, out=same)
        if len(own) == 1:
            got, want = (got,), (want,)
        for a, b in zip(got, want, strict=True):
            assert_bitwise(np.array(a, np.float64), b)


def refused_cases(rng):
    """(name, operands, places): not one of these may be the first output."""
    c, d = rng.standard_normal((2, 5, 5, 5))
    x, y, z, v, w = d
    at, u = np.arange(5)[::-1], x[0]
    return [
        ("learned", (x, at), (0,)),
        ("learned_backward", (x, at), (0,)),
        ("conv_encoding", (c, d, u, np.ones((5, 5)), 1, 1), (0, 1)),
        ("conv_encoding_backward", (c, d, np.ones((5, 5)), 1, 1), (0, 1)),
        ("rel_shift", (x,), (0,)),
        ("rel_unshift", (x,), (0,)),
        ("shaw_scores", (x, y, z, 0.5, 0), (1, 2)),
        ("skewed_scores", (x, y, z, 0.5, 0, -4), (1, 2)),
        ("transformer_xl_scores", (x, y, z, u, u, 0.5, 0), (1, 2)),
        ("shaw_attention", (x, y, z, v, w), range(5)),
        ("relative_global_attention", (x, y, z, v), range(4)),
        ("transformer_xl_attention", (x, y, z, v, u, u), range(4)),
    ]


def test_in_place_is_refused(rng):
    """A loop that reads what it has written would give wrong numbers."""
    for name, operands, places in refused_cases(rng):
        for place in places:
            given = [np.array(x) for x in operands]
            outs = (given[place], None)[: getattr(ufuncs, name).nout]
            with pytest.raises(ValueError, match=f"^{name}: out is an input; expected"):
                getattr(ufuncs, name)(*given, out=outs)
            assert_bitwise(given[place], operands[place])


def test_in_place_with_other_axes_is_refused(rng):
    x = rng.standard_normal((8, 8))
    with pytest.raises(ValueError, match="gelu: out is an input"):
        ufuncs.gelu(x, out=(x, None), axes=[0, 1, 0])
    angles = [np.ones(8), *np.ones((3, 8, 4)), 0]
    axes = [(0, 1), 0, (0, 1), (0, 1), (0, 1), (), (1, 0)]
    with pytest.raises(ValueError, match="rotary: out is an input"):
        ufuncs.rotary(x, *angles, out=x, axes=axes)


def test_in_place_of_nothing(rng):
    """An input without elements may begin where the output does."""
    x, a = rng.standard_normal((2, 3, 4))
    assert not ufuncs.shaw_attention(x.copy(), x[:0], x[:0], a, a, out=x).any()
    for empty in (x[:0], x[:, :0]):
        assert ufuncs.rel_shift(empty, out=empty) is empty


def test_output_sizes_come_from_out(rng):
    x = rng.standard_normal((2, 3, 7))
    out = np.empty((2, 3, 5))
    assert_bitwise(ufuncs.skew(x, out=out), oracle_positions.skew(x, is_causal=False))
    back = ufuncs.unskew(out, out=np.empty((2, 3, 7)))
    assert_bitwise(back, oracle_positions.unskew(out, is_causal=False))
    with pytest.raises(ValueError, match=r"skew: out must have r - q \+ 1 columns"):
        ufuncs.skew(x, out=np.empty((2, 3, 4)))
    with pytest.raises(ValueError, match=r"unskew: out must have q \+ s - 1 columns"):
        ufuncs.unskew(out, out=np.empty((2, 3, 8)))
    with pytest.raises(ValueError, match="core dimension"):
        ufuncs.skew(x)


def test_broadcasting_of_tables_and_positions(rng):
    tables = rng.standard_normal((3, 1, 5, 2))
    positions = rng.integers(0, 5, (4, 6))
    got = ufuncs.learned(tables, positions)
    assert got.shape == (3, 4, 6, 2)
    for a, b in np.ndindex(3, 4):
        assert_bitwise(got[a, b], tables[a, 0][positions[b]])
    back = ufuncs.learned_backward(got, positions, out=np.empty((3, 4, 5, 2)))
    assert_bitwise(back[1, 2], relpos.learned_backward(got[1, 2], positions[2], 5))
    for wrong in (-1, 5, 2**40):
        with pytest.raises(ValueError, match="learned: a position is outside"):
            ufuncs.learned(tables, np.array([0, wrong]))
        with pytest.raises(ValueError, match="learned_backward: a position"):
            ufuncs.learned_backward(
                np.ones((2, 2)), np.array([0, wrong]), out=np.empty((5, 2))
            )


def test_frequencies_per_item(isa):
    """Positions, high and low parts each broadcast; outputs in any layout."""
    positions = np.array([[1.0], [2.0**30], [-7.5]])
    high = np.array([[1.0, 0.5, 0.25], [0.1, 3.0, 2.0]])
    low = np.array([1e-17, 0.0, -1e-18])
    true = np.empty((2, 3, 2, 3))
    with mpmath.workprec(200):
        for n, row, c in np.ndindex(3, 2, 3):
            frequency = mpmath.mpf(high[row, c]) + mpmath.mpf(low[c])
            angle = mpmath.mpf(positions[n, 0]) * frequency
            true[:, n, row, c] = float(mpmath.sin(angle)), float(mpmath.cos(angle))
    for dtype in DTYPES:
        for arrange in LAYOUTS.values():
            outs = tuple(arrange(np.zeros((3, 2, 3), dtype)) for _ in range(2))
            kernels().sinusoidal(positions, high, low, out=outs, dtype=dtype)
            for got, want in zip(outs, true, strict=True):
                np.testing.assert_allclose(got, want, rtol=0, atol=np.finfo(dtype).eps)


def test_scores_with_one_scale_and_offset_per_item(rng, isa):
    q, k, a = (normal(rng, *shape) for shape in ((3, 4, 2), (3, 5, 2), (7, 2)))
    scales, offsets = np.array([0.5, 2.0, 1.0]), np.array([0, 2, -1])
    got = kernels().skewed_scores(q, k, a, scales, offsets, -6)
    shaw = kernels().shaw_scores(q, k, a, scales, offsets)
    for n in range(3):
        heads = q[n : n + 1], k[n : n + 1], a
        options = {"scale": scales[n], "query_offset": offsets[n]}
        want = oracle_positions.skewed_scores(*heads, is_causal=True, **options)
        assert_close(got[n : n + 1], want, "forward")
        want = oracle_positions.shaw_scores(*heads, **options)
        assert_close(shaw[n : n + 1], want, "forward")


@pytest.mark.parametrize("far", [2**62, 2**63 - 1, -(2**63)])
def test_scores_with_positions_at_the_end_of_int64(far):
    q, k, a = np.ones((2, 1)), np.ones((3, 1)), np.array([[1.0], [2.0], [3.0]])
    end = 1.0 if far > 0 else 3.0
    assert (ufuncs.shaw_scores(q, k, a, 1.0, far) == 1 + end).all()
    assert (ufuncs.skewed_scores(q, k, a, 1.0, far, far) == 1).all()


FAR = [2**63 - 1, 2**63 - 2, 2**63 - 64, 2**62, 2**60, 2**32, 3, 0, -1]
FAR += [-number - 1 for number in FAR]


@pytest.mark.sanitized
def test_positions_that_cancel_are_computed_as_they_are(isa):
    """Integers of Python do not overflow; the row of a pair is what they say."""
    rng = np.random.default_rng(0)
    q, k, a = (normal(rng, *shape) for shape in ((3, 2), (70, 2), (9, 2)))
    u, v = normal(rng, 2), normal(rng, 2)
    rows = np.concatenate([a, np.zeros((1, 2))])
    for offset in FAR:
        line = np.array(
            [[min(max(j - i - offset, -4), 4) for j in range(70)] for i in range(3)]
        )
        got = kernels().shaw_scores(q, k, a, 1.0, offset)
        want = np.einsum("id,ijd->ij", q, k + a[line + 4])
        np.testing.assert_allclose(got, want, atol=1e-12)
        line = [[j - i - offset + 69 for j in range(70)] for i in range(3)]
        line = np.array([[x if 0 <= x < 9 else 9 for x in row] for row in line])
        got = kernels().transformer_xl_scores(q, k, a, u, v, 1.0, offset)
        want = (q + u) @ k.T + np.einsum("id,ijd->ij", q + v, rows[line])
        np.testing.assert_allclose(got, want, atol=1e-12)
        for first in FAR:
            line = [[j - i - offset - first for j in range(70)] for i in range(3)]
            line = np.array([[x if 0 <= x < 9 else 9 for x in row] for row in line])
            got = kernels().skewed_scores(q, k, a, 1.0, offset, first)
            want = np.einsum("id,ijd->ij", q, k + rows[line])
            np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.sanitized
@pytest.mark.parametrize("far", FAR)
def test_other_integers_of_any_size(isa, far):
    """A place outside of the grid adds nothing; one outside of a table is refused."""
    table = kernels()
    x, weight, bias = np.ones((4, 5, 2)), np.ones((3, 3, 2)), np.zeros(2)
    mask, grid = np.ones((4, 5)), [(r, c) for r in range(4) for c in range(5)]
    for top, left in ((far, 1), (1, far), (far, far)):
        seen = [
            [(r + s - top, c + t - left) in grid for s in range(3) for t in range(3)]
            for r, c in grid
        ]
        want = 1.0 + np.sum(seen, axis=1).reshape(4, 5)
        got = table.conv_encoding(x, weight, bias, mask, top, left)
        np.testing.assert_array_equal(got[..., 0], want)
        out = np.full((3, 3, 2), np.nan), np.full(2, np.nan)
        found, _ = table.conv_encoding_backward(x, x, mask, top, left, out=out)
        np.testing.assert_array_equal(found[..., 0], np.sum(seen, axis=0).reshape(3, 3))
    if not 0 <= far < 4:
        with pytest.raises(ValueError, match="a position is outside the table"):
            table.learned(x[0, :4], np.array([0, far]))
        with pytest.raises(ValueError, match="a position is outside the table"):
            table.learned_backward(x[0, :2], np.array([0, far]), out=np.zeros((4, 2)))


# ---- merge -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_merge(rng, dtype, isa):
    out_a, out_b = (normal(rng, 3, 70, 5, dtype=dtype) for _ in range(2))
    lse_a, lse_b = (normal(rng, 3, 70, dtype=dtype, scale=9) for _ in range(2))
    lse_a[0, :9] = lse_b[0, 5:20] = -np.inf
    want = oracle.merge(out_a, lse_a, out_b, lse_b)
    for arrange in (lambda x: x, *LAYOUTS.values()):
        operands = map(arrange, (out_a, lse_a, out_b, lse_b))
        out, lse = kernels().merge(*operands)
        assert out.dtype == lse.dtype == dtype
        assert_close(out, want[0], "forward")
        assert_lse_close(lse, want[1])


def test_merge_does_not_read_what_saw_no_key():
    lost, full = np.full(2, np.nan), np.array([1.0, 2.0])
    for operands in ((lost, -np.inf, full, 3.0), (full, 3.0, lost, -np.inf)):
        out, lse = ufuncs.merge(*operands)
        assert out.tolist() == [1, 2] and lse == 3
    out, lse = ufuncs.merge(lost, -np.inf, lost, -np.inf)
    assert out.tolist() == [0, 0] and lse == -np.inf
    assert np.isnan(ufuncs.merge(full, np.nan, full, 0.0)[1])


@pytest.mark.sanitized
def test_merge_for_any_number_of_threads(rng):
    operands = [rng.standard_normal((5000, 9)[:axes]) for axes in (2, 1, 2, 1)]
    problems.assert_same_on_threads(lambda: ufuncs.merge(*operands))


# ---- attention ---------------------------------------------------------------------


def test_attention_of_nothing():
    q, k, a = np.ones((0, 3)), np.ones((4, 3)), np.ones((5, 3))
    assert ufuncs.shaw_attention(q, k, k, a, a).shape == (0, 3)
    nothing = ufuncs.shaw_attention(k, q, q, a, a)
    assert_bitwise(nothing, np.zeros((4, 3)))
    none = ufuncs.shaw_attention(*(np.ones((0, 2, 3)),) * 3, a, a)
    assert none.shape == (0, 2, 3)
    with pytest.raises(ValueError, match="odd number of rows"):
        ufuncs.shaw_attention(k, k, k, a[:4], a[:4])


# ---- dtypes --------------------------------------------------------------------------


def test_integers_are_not_floats():
    """float32 does not hold every int64: NumPy picks the float64 loop."""
    assert ufuncs.rel_shift(np.eye(3, dtype=np.int64)).dtype == np.float64
    with pytest.raises(TypeError):
        ufuncs.rel_shift(np.eye(3, dtype=complex))


# ---- dask ----------------------------------------------------------------------------


def dask_cases(rng):
    x, table = rng.standard_normal((4, 5, 3)), rng.standard_normal((5, 3))
    lse, u = rng.standard_normal((4, 5)), rng.standard_normal(3)
    positions = np.array([4, 0, 2])
    frequencies = np.array([1.0, 0.1]), np.zeros(2)
    return {
        "sinusoidal": ([lse], frequencies),
        "learned": ([x], (positions,)),
        "conv_encoding": (
            [rng.standard_normal((4, 2, 5, 3))],
            (table[:, None], u, np.ones((2, 5)), 2, 0),
        ),
        "gelu": ([x], ()),
        "rel_shift": ([x], ()),
        "rel_unshift": ([x], ()),
        "shaw_scores": ([x, x], (table, 0.5, 0)),
        "skewed_scores": ([x, x], (table, 0.5, 0, -4)),
        "transformer_xl_scores": ([x, x], (table, u, u, 0.5, 0)),
        "merge": ([x, lse, x[::-1], lse[::-1]], ()),
        "shaw_attention": ([x, x, x], (table, table)),
        "relative_global_attention": ([x, x, x], (table,)),
        "transformer_xl_attention": ([x, x, x], (table, u, u)),
    }


@pytest.mark.parametrize("name", sorted(set(SIGNATURES) - {"skew", "unskew", "rotary"}))
def test_dask_arrays_pass_through(name, rng):
    """All but those whose output sizes dask cannot know (the backward ones as well).

    And rotary: dask tries every ufunc on arrays with one column, which is half a pair.
    """
    da = pytest.importorskip("dask.array")
    if name == "learned_backward":
        with pytest.raises(ValueError, match="core dimension 0 unspecified"):
            ufuncs.learned_backward(da.ones((3, 2)), da.zeros(3, dtype=int))
        return
    if name == "conv_encoding_backward":
        x = da.ones((2, 3, 4))
        with pytest.raises(ValueError, match="core dimension 0 unspecified"):
            ufuncs.conv_encoding_backward(x, x, np.ones((2, 3)), 1, 1)
        return
    lazy, rest = dask_cases(rng)[name]
    chunked = [da.from_array(x, chunks=(2, *(-1,) * (x.ndim - 1))) for x in lazy]
    ufunc = getattr(ufuncs, name)
    got, want = ufunc(*chunked, *rest), ufunc(*lazy, *rest)
    if not isinstance(want, tuple):
        got, want = (got,), (want,)
    for delayed, array in zip(got, want, strict=True):
        assert isinstance(delayed, da.Array)
        assert_bitwise(delayed.compute(), array)
