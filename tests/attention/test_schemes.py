"""The published schemes and `merge_attention` against the loops of oracle.py."""

from __future__ import annotations

import inspect
import pydoc

import numpy as np
import oracle
import pytest
from problems import normal, qkv
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos
from relpos._attention import keywords

H, LQ, LK, D, DV = 4, 5, 7, 6, 3
HALF, SINGLE, DOUBLE = np.float16, np.float32, np.float64


def square(rng):
    return qkv(rng, (2,), H, LQ, LQ, D, DV)


# ---- schemes ----------------------------------------------------------------------


def test_shaw(rng):
    data = square(rng)
    for rel_key, rel_value in ((3, 3), (3, None), (None, 5), (1, 1), (None, None)):
        tables = {
            "rel_key": None if rel_key is None else normal(rng, rel_key, D),
            "rel_value": None if rel_value is None else normal(rng, H, rel_value, DV),
        }
        got = relpos.shaw_attention(*data, **tables)
        assert_close(got, oracle.attention(*data, **tables).out, "forward")


def test_relative_global(rng):
    data = square(rng)
    table = normal(rng, 8, D)
    want = oracle.attention(
        *data, is_causal=True, rel_key=table, min_relative_position=-7
    )
    got = relpos.relative_global_attention(*data, table, return_lse=True)
    assert_close(got.out, want.out, "forward")
    both = normal(rng, H, 2 * LQ - 1, D)
    got = relpos.relative_global_attention(*data, both, is_causal=False)
    assert_close(got, oracle.attention(*data, rel_key=both).out, "forward")
    with pytest.raises(IndexError, match=r"rel_key: .* from -4 to 0"):
        relpos.relative_global_attention(*data, table[:4])
    with pytest.raises(ValueError, match="rel_key: 8 rows"):
        relpos.relative_global_attention(*data, table, is_causal=False)


@pytest.mark.parametrize("rows", range(LQ, 2 * LQ + 2))
def test_relative_global_reads_the_last_rows(rng, rows):
    """Any table that reaches is legal, one of 2 L - 1 rows too, of whatever layout."""
    data = square(rng)
    table = normal(rng, rows, D)
    got = relpos.relative_global_attention(*data, table)
    last = relpos.relative_global_attention(*data, table[-LQ:])
    assert np.array_equal(got, last)
    want = oracle.attention(
        *data, is_causal=True, rel_key=table[-LQ:], min_relative_position=1 - LQ
    )
    assert_close(got, want.out, "forward")
    if rows == 2 * LQ - 1:  # the cure that the docstring gives for a two-sided one
        cured = relpos.relative_global_attention(*data, table[..., :LQ, :])
        want = oracle.attention(*data, is_causal=True, rel_key=table)
        assert_close(cured, want.out, "forward")


def test_transformer_xl(rng):
    data = qkv(rng, (2,), H, LQ, LK, D, DV)
    vectors = normal(rng, H, D), normal(rng, H, D)
    named = dict(zip(("pos_bias_u", "pos_bias_v"), vectors, strict=True))
    both = LK + LQ - 1
    for rows, causal, known in (
        (LK, True, True),
        (both, True, True),
        (both, False, True),
        (2 * LK - 1, False, True),
        (LK + 2, True, False),
        (2 * LK, False, False),
    ):
        table = normal(rng, rows, D)
        origin = {} if known else {"min_relative_position": 1 - LK}
        got = relpos.transformer_xl_attention(
            *data, table, *vectors, is_causal=causal, **origin
        )
        want = oracle.attention(
            *data,
            is_causal=causal,
            rel_key=table,
            query_offset=LK - LQ,
            min_relative_position=1 - LK,
            **named,
        )
        assert_close(got, want.out, "forward")
    with pytest.raises(IndexError, match=r"rel_key: .* from -6 to 4"):
        relpos.transformer_xl_attention(*data, table[:LK], *vectors)


def test_the_articles_matrix_of_transformer_xl(rng):
    """R of N queries and keys: 2N rows, P_{-N} .. P_{N - 1}, of which one is not used.

    Read from -(N - 1) on, as the other lengths are, every row would be off by one.
    """
    data, vectors = square(rng), (normal(rng, D), normal(rng, D))
    R = relpos.sinusoidal(np.arange(-LQ, LQ), D, dtype=DOUBLE)
    for module in (relpos, relpos.reference):
        with pytest.raises(ValueError, match=r"^rel_key: 10 rows .*min_relative_posi"):
            module.transformer_xl_attention(*data, R, *vectors)
        got = module.transformer_xl_attention(
            *data, R, *vectors, min_relative_position=-LQ
        )
        want = oracle.attention(
            *data,
            rel_key=R[1:],
            pos_bias_u=vectors[0],
            pos_bias_v=vectors[1],
            min_relative_position=1 - LQ,
        )
        assert_close(got, want.out, "forward")


def test_other_tables_of_transformer_xl_have_any_origin(rng):
    """Labels and buckets count rows otherwise; without keys nothing is placed."""
    data, vector = square(rng), normal(rng, D)
    table = normal(rng, 2 * LQ, D)
    labels = rng.integers(0, 2 * LQ, (LQ, LQ))
    got = relpos.transformer_xl_attention(*data, table, None, vector, labels=labels)
    want = oracle.attention(*data, rel_key=table, pos_bias_v=vector, labels=labels)
    assert_close(got, want.out, "forward")
    buckets = np.arange(2 * LQ)
    with pytest.raises(ValueError, match=r"^buckets: 10 rows for 5 queries and 5 keys"):
        relpos.transformer_xl_attention(*data, table, None, vector, buckets=buckets)
    query, key, value = data[0], data[1][..., :0, :], data[2][..., :0, :]
    got = relpos.transformer_xl_attention(query, key, value, table, None, vector)
    assert_bitwise(got, np.zeros((2, H, LQ, DV)))


def test_a_keyword_given_wins_over_the_scheme(rng):
    query, key, value = square(rng)
    table, vector = normal(rng, 3, D), normal(rng, D)
    same = {"query_offset": 1, "min_relative_position": -2, "beyond": "zero"}
    plain = relpos.attention(query, key, value, rel_key=table, **same)
    music = relpos.relative_global_attention(
        query, key, value, table, is_causal=False, **same
    )
    xl = relpos.transformer_xl_attention(
        query, key, value, table, 0 * vector, 0 * vector, **same
    )
    shaw = relpos.shaw_attention(query, key, value, table, **same)
    assert_bitwise(music, plain)
    assert_bitwise(shaw, plain)
    assert_close(xl, plain, "same_formula")


def test_schemes_take_labels_and_buckets(rng):
    data = square(rng)
    table, vector = normal(rng, 4, D), np.zeros(D)
    labels = rng.integers(-1, 4, (LQ, LQ))
    buckets = np.array([3, 2, 2, 1, 0])
    settings = {"labels": {"labels": labels}, "buckets": {"buckets": buckets}}
    for name, setting in settings.items():
        origin = {} if name == "labels" else {"min_relative_position": -4}
        want = oracle.attention(
            *data, is_causal=True, rel_key=table, **setting, **origin
        )
        music = relpos.relative_global_attention(*data, table, **setting)
        xl = relpos.transformer_xl_attention(
            *data, table, vector, vector, is_causal=True, **setting
        )
        assert_close(music, want.out, "forward")
        assert_close(xl, want.out, "forward")


@pytest.mark.parametrize(
    ("name", "typed", "settings"),
    [
        ("shaw_attention", keywords.ShawKeywords, {}),
        (
            "relative_global_attention",
            keywords.RelativeGlobalKeywords,
            {"is_causal": True, "beyond": "raise"},
        ),
        (
            "transformer_xl_attention",
            keywords.TransformerXLKeywords,
            {"beyond": "raise"},
        ),
        ("fire_attention", keywords.FireKeywords, {}),
    ],
)
def test_signatures_show_the_keywords_of_attention(name, typed, settings):
    """To help() and editors the keywords with their defaults, to mypy their types."""
    scheme = getattr(relpos, name)
    whole = inspect.signature(relpos.attention).parameters
    shown = inspect.signature(scheme).parameters
    assert set(whole) <= set(shown)
    assert not [p for p in shown.values() if p.kind is p.VAR_KEYWORD]
    code = inspect.unwrap(scheme).__code__
    written = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    assert list(shown)[: len(written)] == list(written)
    for passed in set(whole) - set(written):
        parameter = shown[passed]
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default == settings.get(passed, whole[passed].default)
        assert parameter.annotation == whole[passed].annotation
    assert set(typed.__annotations__) == set(whole) - set(written)
    text = pydoc.render_doc(scheme).replace("'str'", "str")  # as from Python 3.14 on
    assert ("beyond: str = 'raise'" in text) == bool(settings)


# ---- merging ----------------------------------------------------------------------


def test_merge_dtypes_and_broadcasting(rng):
    out, lse = normal(rng, 2, 3, DV), normal(rng, 2, 3)
    halves = out.astype(HALF), lse.astype(SINGLE)
    got = relpos.merge_attention(*halves, *halves)
    assert (got[0].dtype, got[1].dtype) == (HALF, SINGLE)
    got = relpos.merge_attention(*halves, out, lse)
    assert (got[0].dtype, got[1].dtype) == (DOUBLE, DOUBLE)
    one = relpos.merge_attention(out, lse, out[:1], lse[:1])
    want = oracle.merge(
        out, lse, *(np.broadcast_to(x[:1], x.shape) for x in (out, lse))
    )
    assert_close(one[0], want[0], "forward")
    assert_lse_close(one[1], want[1])
