"""Table rows that a pair reads, in every kernel table, decoding and in tiles."""

from __future__ import annotations

import itertools

import dense_oracle
import numpy as np
import pytest
from layouts import LAYOUTS
from problems import DTYPES, PATHS, cast, check, normal, qkv, run, terms
from tolerances import assert_bitwise, assert_close, assert_results_bitwise

import relpos
from relpos._settings import kernels

pytestmark = pytest.mark.usefixtures("strict_floats")
both_paths = pytest.mark.parametrize(("lq", "lk"), PATHS)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def all_tables(rng, rows, d, dv, *lead):
    return {
        "rel_key": normal(rng, *lead, rows, d),
        "rel_query": normal(rng, *lead, rows, d),
        "rel_value": normal(rng, *lead, rows, dv),
        "rel_bias": normal(rng, *lead, rows),
    }


@both_dtypes
@both_paths
@pytest.mark.parametrize("lead", [(), (2,), (3, 2), (3, 1)])
def test_tables_shared_per_head_and_per_item(isa, dtype, lq, lk, lead):
    rng = np.random.default_rng(1)
    keywords = all_tables(rng, 9, 16, 8, *lead) | {"query_offset": lk - lq}
    check(qkv(rng, (3,), 2, lq, lk, 16, 8), keywords, dtype)


@both_dtypes
@both_paths
@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize(
    ("rows", "first"), [(1, 0), (6, -20), (64, -70), (6, 5), (4, -900)]
)
def test_where_the_table_lies(isa, dtype, lq, lk, beyond, rows, first):
    """Tables that cover the middle, one end, or nothing of what the call reaches."""
    rng = np.random.default_rng(2)
    keywords = all_tables(rng, rows, 16, 8)
    keywords |= {"min_relative_position": first, "beyond": beyond, "query_offset": 7}
    check(qkv(rng, (2,), 2, lq, lk, 16, 8), keywords, dtype)


@both_dtypes
@both_paths
def test_each_item_at_its_own_offset(isa, dtype, lq, lk):
    rng = np.random.default_rng(3)
    offsets = np.array([[0, lk - lq], [-30, 2**40]])
    keywords = all_tables(rng, 33, 16, 8, 2) | {"query_offset": offsets}
    for causal in (False, True):
        inputs = qkv(rng, (2, 2), 2, lq, lk, 16, 8)
        check(inputs, keywords | {"is_causal": causal}, dtype)


FAR = 2**59


@pytest.mark.parametrize(("lq", "lk"), PATHS)
@pytest.mark.parametrize("window", [(2**63 - 2,) * 2, (None, 2**62), (FAR, 0), None])
@pytest.mark.parametrize("name", ["rel_key", "rel_query", "rel_value", "rel_bias"])
def test_extreme_positions(isa, lq, lk, window, name):
    """Offsets, origins and windows near the end of int64, and their sums."""
    rng = np.random.default_rng(17)
    inputs = qkv(rng, (2,), 1, lq, lk, 4)
    given = {name: all_tables(rng, 5, 4, 4)[name], "window": window}
    for offset, origin in itertools.product([0, FAR, -FAR], [-2, FAR, -FAR, 2 - FAR]):
        keywords = {"query_offset": offset, "min_relative_position": origin}
        check(inputs, given | keywords, "float64")


@both_dtypes
@both_paths
def test_tables_of_their_own_lengths(isa, dtype, lq, lk):
    """Each centred on itself; a bias stays so when the others are moved."""
    rng = np.random.default_rng(4)
    keywords = {
        "rel_key": normal(rng, 7, 16),
        "rel_query": normal(rng, 2, 21, 16),
        "rel_value": normal(rng, 1, 8),
        "rel_bias": normal(rng, 2, 2 * lk + 1),
        "query_offset": 1,
    }
    inputs = qkv(rng, (2,), 2, lq, lk, 16, 8)
    check(inputs, keywords, dtype)
    keywords["rel_query"], keywords["rel_value"] = keywords["rel_query"][:, :7], None
    check(inputs, keywords | {"min_relative_position": -6}, dtype)


@both_dtypes
@both_paths
@pytest.mark.parametrize("beyond", ["clip", "zero"])
def test_buckets(isa, dtype, lq, lk, beyond):
    rng = np.random.default_rng(5)
    keywords = all_tables(rng, 6, 16, 8, 2) | {"query_offset": 0, "beyond": beyond}
    keywords["buckets"] = rng.integers(0, 6, 31)
    inputs = qkv(rng, (2,), 2, lq, lk, 16, 8)
    check(inputs, keywords, dtype)
    check(inputs, keywords | {"min_relative_position": -25}, dtype)


def runs(count, rows, step):
    """Rise or fall by `step` from row to row, ever slower away from the middle."""
    far = np.abs(np.arange(count) - count // 2)
    bent = np.sign(np.arange(count) - count // 2) * np.ceil(far**0.75).astype(int)
    return np.clip(rows // 2 + step * bent, 0, rows - 1)


@both_dtypes
@both_paths
@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("way", ["rises", "falls", "leaps", "stays"])
def test_an_index_gives_the_bits_of_the_rows_that_it_lists(
    isa, dtype, lq, lk, beyond, way
):
    rng = np.random.default_rng(8)
    rows, count = 40, 111
    index = {
        "rises": runs(count, rows, 1),
        "falls": runs(count, rows, -1),
        "leaps": rng.integers(0, rows, count),
        "stays": np.full(count, 7),
    }[way]
    query, key, value = (x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16, 8))
    tables = cast(all_tables(rng, rows, 16, 8, 2), dtype)
    spelled = {
        n: x[..., index] if n == "rel_bias" else x[..., index, :]
        for n, x in tables.items()
    }
    settings = {"query_offset": lk - lq, "beyond": beyond}
    listed = relpos.attention(query, key, value, **tables, **settings, buckets=index)
    whole = relpos.attention(query, key, value, **spelled, **settings)
    assert_bitwise(listed, whole)


@pytest.mark.parametrize(
    ("buckets", "words"),
    [
        (np.array([0, 1, 3]), "ValueError: attention_forward: buckets is out of range"),
        (np.array([0, -1, 0]), "ValueError: attention_forward: buckets is out of"),
        (np.array([0, 1], np.int32), "TypeError: attention_forward: buckets must be a"),
        (np.zeros((1, 3), int), "TypeError: attention_forward: buckets must be a vec"),
        (np.zeros(0, int), "TypeError: attention_forward: buckets must be a vector"),
        ([0, 1], "TypeError: attention_forward: buckets must be an ndarray"),
    ],
)
def test_buckets_that_the_kernels_refuse(buckets, words):
    operands = {name: np.ones((1, 4, 2)) for name in ("query", "key", "value", "out")}
    operands |= {"rel_key": np.ones((3, 2)), "scale": 1.0, "num_threads": 1}
    kernels().attention_forward(operands | {"buckets": np.array([0, 1, 2])[::-1]})
    with pytest.raises((TypeError, ValueError)) as caught:
        kernels().attention_forward(operands | {"buckets": buckets})
    assert f"{caught.typename}: {caught.value}".startswith(words)


def test_the_kernels_refuse_buckets_beside_labels():
    operands = {name: np.ones((1, 4, 2)) for name in ("query", "key", "value", "out")}
    operands |= {"rel_key": np.ones((3, 2)), "scale": 1.0, "num_threads": 1}
    operands |= {"buckets": np.array([0, 1, 2]), "labels": np.zeros((4, 4), int)}
    with pytest.raises(ValueError, match="buckets cannot go with labels or edges"):
        kernels().attention_forward(operands)


def test_a_table_that_nothing_uses_may_hold_anything(isa):
    """Rows that buckets do not list, or that no pair has, stay out of all results."""
    rng = np.random.default_rng(9)
    inputs = qkv(rng, (1,), 2, 40, 40, 16)
    tables = all_tables(rng, 30, 16, 16)
    del tables["rel_bias"]
    index = np.abs(np.arange(-50, 51)) // 5 + 10
    clean = relpos.attention(*inputs, **tables, buckets=index, return_context=True)
    for table in tables.values():
        table[:10] = np.nan
        table[19:] = np.inf
    result = relpos.attention(*inputs, **tables, buckets=index, return_context=True)
    assert_bitwise(result.out, clean.out)
    grad = normal(rng, *result.out.shape)
    wanted, gradients = clean.context.backward(grad), result.context.backward(grad)
    for name, gradient in gradients._asdict().items():
        if gradient is not None:
            assert_close(gradient, getattr(wanted, name), "gradient")
            assert np.isfinite(gradient).all()


@both_dtypes
@both_paths
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_labels(isa, dtype, lq, lk, kind):
    """Every integer size and broadcast form; each table with its own rows."""
    rng = np.random.default_rng(6)
    keywords = all_tables(rng, 10, 16, 8, 2)
    keywords["rel_bias"] = normal(rng, 12)
    inputs = qkv(rng, (2,), 2, lq, lk, 16, 8)
    for shape in [(2, lq, lk), (lq, lk), (1, lk), (lq, 1)]:
        labels = rng.integers(-2, 10, shape).astype(kind)
        mask = rng.random((lq, lk)) < 0.7
        check(inputs, keywords | {"labels": labels, "attn_mask": mask}, dtype)


@both_dtypes
@pytest.mark.parametrize("rows", [40, 5000])
def test_labels_of_tables_with_many_rows(isa, dtype, rows):
    """A product with the whole table pays for few rows only."""
    rng = np.random.default_rng(16)
    keywords = all_tables(rng, rows, 16, 8)
    keywords |= {"labels": rng.integers(-1, rows, (40, 300)), "is_causal": True}
    inputs = qkv(rng, (2,), 2, 40, 300, 16, 8)
    for left_out in ((), ("rel_query",), ("rel_query", "rel_key")):
        given = {n: x for n, x in keywords.items() if n not in left_out}
        check(inputs, given | {"query_offset": 260}, dtype)


@both_dtypes
@both_paths
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 1), (6, 2), (3, 3)])
def test_grouped_heads(isa, dtype, lq, lk, heads, key_heads):
    rng = np.random.default_rng(7)
    keywords = terms(rng, "everything", heads, lq, lk, 16) | {"enable_gqa": True}
    check(qkv(rng, (2,), heads, lq, lk, 16, key_heads=key_heads), keywords, dtype)


@both_dtypes
@both_paths
def test_batch_axes_broadcast_over_operands(isa, dtype, lq, lk):
    rng = np.random.default_rng(8)
    q, _, v = qkv(rng, (2, 1), 2, lq, lk, 16)
    _, k, _ = qkv(rng, (3,), 2, lq, lk, 16)
    keywords = terms(rng, "xl", 2, lq, lk, 16)
    keywords["rel_bias"] = normal(rng, 2, 1, 2, 31)
    check((q, k, v), keywords, dtype)


@pytest.mark.parametrize("wide", ["query", "key", "rel_key", "rel_bias"])
def test_one_double_operand_makes_the_call_double(isa, wide):
    rng = np.random.default_rng(9)
    names = ("query", "key", "value")
    given = dict(zip(names, qkv(rng, (2,), 2, 20, 30, 16), strict=True))
    given |= terms(rng, "everything", 2, 20, 30, 16)
    mixed = {**cast(given, "float32"), wide: given[wide]}
    assert_results_bitwise(run(**mixed), run(**given))


# ---- the named schemes and their gufuncs --------------------------------------------


def scheme_problem(rng, lq, lk, dtype):
    q, k, v = (x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16, 8))
    u, w = normal(rng, 2, 2, 16).astype(dtype)
    return q, k, v, u, w


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def table(rng, rows, columns, dtype):
    return normal(rng, 2, rows, columns).astype(dtype)


@both_dtypes
@pytest.mark.parametrize(
    ("lq", "lk", "rows"),
    [(5, 5, 9), (40, 40, 9), (270, 270, 9), (3, 7, 1), (40, 9, 61)],
)
def test_shaw_attention(isa, dtype, lq, lk, rows):
    rng = np.random.default_rng(11)
    q, k, v, _, _ = scheme_problem(rng, lq, lk, dtype)
    a, w = table(rng, rows, 16, dtype)[0], table(rng, rows, 8, dtype)
    want = dense_oracle.attention(q, k, v, rel_key=a, rel_value=w, query_offset=0)
    got = relpos.shaw_attention(q, k, v, a, w, query_offset=0)
    assert_close(got, want.out, "forward")
    kernel = relpos._settings.kernels().shaw_attention
    assert_close(kernel(q, k, v, a, w), want.out, "forward")


@both_dtypes
@pytest.mark.parametrize(("lq", "lk"), [(5, 5), (40, 40), (270, 270), (5, 3)])
def test_relative_global_attention(isa, dtype, lq, lk):
    rng = np.random.default_rng(12)
    q, k, v, _, _ = scheme_problem(rng, lq, lk, dtype)
    kernel = relpos._settings.kernels().relative_global_attention
    for spare in (0, 7):
        a = table(rng, lq + spare, 16, dtype)
        placed = {"min_relative_position": 1 - lq - spare, "query_offset": 0}
        want = dense_oracle.attention(q, k, v, rel_key=a, is_causal=True, **placed)
        got = relpos.relative_global_attention(q, k, v, a, query_offset=0)
        assert_close(got, want.out, "forward")
        assert_close(kernel(q, k, v, a), want.out, "forward")
    with pytest.raises(ValueError, match="fewer rows than there are queries"):
        kernel(q, k, v, a[:, : lq - 1])


@both_dtypes
@pytest.mark.parametrize(("lq", "lk"), [*PATHS, (40, 40), (1, 5), (35, 50)])
@pytest.mark.parametrize("causal", [False, True])
def test_transformer_xl_attention(isa, dtype, lq, lk, causal):
    rng = np.random.default_rng(13)
    q, k, v, u, w = scheme_problem(rng, lq, lk, dtype)
    r = table(rng, lk if causal else lk + lq - 1, 16, dtype)
    want = dense_oracle.attention(
        q, k, v, rel_key=r, pos_bias_u=u, pos_bias_v=w, is_causal=causal,
        query_offset=lk - lq, min_relative_position=1 - lk,
    )  # fmt: skip
    got = relpos.transformer_xl_attention(q, k, v, r, u, w, is_causal=causal)
    assert_close(got, want.out, "forward")
    kernel = relpos._settings.kernels().transformer_xl_attention
    assert_close(kernel(q, k, v, r, u, w), want.out, "forward")
    for rows in {lk - 1, 2 * lk, 2 * lk + 1} - {lk, lk + lq - 1, 2 * lk - 1}:
        with pytest.raises(ValueError, match="rel_key must have k rows"):
            kernel(q, k, v, table(rng, rows, 16, dtype), u, w)


@both_dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gufuncs_and_merging_in_every_layout(isa, dtype, layout):
    rng = np.random.default_rng(15)
    kernels, relay = relpos._settings.kernels(), LAYOUTS[layout]
    *inputs, u, w = scheme_problem(rng, 40, 40, dtype)
    q, k, v = (x[0] for x in inputs)
    a, b = table(rng, 9, 16, dtype), table(rng, 9, 8, dtype)
    r = table(rng, 79, 16, dtype)
    out, lse = run(q, k, v)[:2]
    for function, arguments in (
        (kernels.shaw_attention, (q, k, v, a, b)),
        (kernels.relative_global_attention, (q, k, v, r)),
        (kernels.transformer_xl_attention, (q, k, v, r, u, w)),
        (relpos.merge_attention, (out, lse, out[::-1].copy(), lse[::-1].copy())),
    ):
        stretched = [np.broadcast_to(x, (3, *x.shape)) for x in arguments]
        want = as_tuple(function(*arguments))
        got = as_tuple(function(*(relay(x) for x in arguments)))
        thrice = as_tuple(function(*stretched))
        for n, result in enumerate(want):
            assert_bitwise(got[n], result)
            assert_bitwise(thrice[n], np.stack([result] * 3))


@both_dtypes
@both_paths
def test_merging_parts_of_the_keys(isa, dtype, lq, lk):
    """Three disjoint parts, one of them empty of visible keys, joined in any order."""
    rng = np.random.default_rng(14)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16, 8))
    want = dense_oracle.attention(q, k, v)
    cuts = [slice(0, 7), slice(7, lk // 2), slice(lk // 2, lk)]
    parts = [run(q, k[..., cut, :], v[..., cut, :])[:2] for cut in cuts]
    parts.append(run(q, k, v, key_lengths=0)[:2])
    for order in ([0, 1, 2, 3], [3, 2, 0, 1]):
        out, lse = parts[order[0]]
        for n in order[1:]:
            out, lse = relpos.merge_attention(out, lse, *parts[n])
        assert_close(out, want.out, "same_formula")
        assert_close(lse, want.lse, "same_formula")
