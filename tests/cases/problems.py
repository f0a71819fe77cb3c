"""Random attention problems for the tests."""

from __future__ import annotations

from functools import cache

import dense_oracle
import numpy as np
from tolerances import assert_bitwise, assert_results_close

import relpos

DTYPES = ["float32", "float64"]
PATHS = [(5, 40), (40, 300)]  # (Lq, Lk): decode, and tiles with a ragged last one

TERMS = (
    "plain",
    "shaw",
    "shaw_keys",
    "shaw_values",
    "music",
    "xl",
    "both_tables",
    "bias",
    "everything",
)

#: Batch, heads, Lq, Lk, D and Dv of calls with nothing to compute.
EMPTY = {
    "no batch items": ((0,), 4, 5, 7, 6, 3),
    "no heads": ((2,), 0, 5, 7, 6, 3),
    "no queries": ((2,), 4, 0, 7, 6, 3),
    "no keys": ((2,), 4, 5, 0, 6, 3),
    "no keys in tiles": ((2,), 4, 12, 0, 6, 3),
    "no columns": ((2,), 4, 5, 7, 0, 3),
    "no value columns": ((2,), 4, 5, 7, 6, 0),
    "neither items nor tokens": ((2, 0), 4, 0, 0, 6, 3),
    "nothing": ((), 0, 0, 0, 0, 0),
}


def normal(rng, *shape, scale=1.0):
    """Normal float64 numbers that float32 holds exactly: both dtypes see the same."""
    return (scale * rng.standard_normal(shape)).astype(np.float32).astype(np.float64)


def seeded(*shape, dtype=np.float64, seed=0):
    """Normal numbers of a seed, with all digits of the dtype."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def qkv(rng, batch, heads, lq, lk, d, dv=None, *, key_heads=None):
    key_heads = heads if key_heads is None else key_heads
    dv = d if dv is None else dv
    return (
        normal(rng, *batch, heads, lq, d),
        normal(rng, *batch, key_heads, lk, d),
        normal(rng, *batch, key_heads, lk, dv),
    )


def tokens(rng, batch, heads, lq, lk, d, dv=None, *, key_heads=None):
    """`qkv` by argument name."""
    arrays = qkv(rng, batch, heads, lq, lk, d, dv, key_heads=key_heads)
    return dict(zip(("query", "key", "value"), arrays, strict=True))


def terms(
    rng,
    kind,
    heads,
    lq,
    lk,
    d,
    dv=None,
    *,
    offset=0,
    k=None,
    scale=1.0,
):
    """Keywords of relpos.attention for one kind of position term.

    k: clipping distance of the Shaw tables; the others reach every relative position.
    """
    dv = d if dv is None else dv
    k = 4 if k is None else k
    lo, hi = -(lq - 1 + offset), lk - 1 - offset
    rows = max(hi - lo + 1, 1)

    def table(count, columns, *lead):
        return normal(rng, *lead, count, columns, scale=scale)

    keywords = {"query_offset": offset}
    if kind in ("shaw", "shaw_keys", "everything"):
        keywords["rel_key"] = table(2 * k + 1, d)
    if kind in ("shaw", "shaw_values", "everything"):
        keywords["rel_value"] = table(2 * k + 1, dv, heads)
    if kind == "music":
        keywords |= {"rel_key": table(rows, d), "min_relative_position": lo}
    if kind == "xl":
        keywords |= {
            "rel_key": table(rows, d, heads),
            "min_relative_position": lo,
            "pos_bias_u": normal(rng, heads, d, scale=scale),
            "pos_bias_v": normal(rng, heads, d, scale=scale),
        }
    if kind == "both_tables":
        keywords |= {
            "rel_key": table(rows, d),
            "rel_query": table(rows, d, heads),
            "min_relative_position": lo,
        }
    if kind == "everything":
        keywords |= {
            "rel_query": table(2 * k + 1, d),
            "pos_bias_u": normal(rng, d, scale=scale),
            "pos_bias_v": normal(rng, heads, d, scale=scale),
        }
    if kind in ("bias", "everything"):
        reach = max(abs(lo), abs(hi))
        keywords["rel_bias"] = normal(rng, heads, 2 * reach + 1, scale=scale)
    return keywords


def cast(keywords, dtype):
    """The same keywords with every float array in another dtype."""
    return {
        name: value.astype(dtype)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        else value
        for name, value in keywords.items()
    }


@cache
def known(
    seed, kind, batch, heads, lq, lk, d, dv=None,
    *, key_heads=None, offset=0, k=None, size=1.0, **settings,
):  # fmt: skip
    """Inputs and keywords of a call, and what the oracle says; size: of the terms."""
    rng = np.random.default_rng(seed)
    inputs = qkv(rng, batch, heads, lq, lk, d, dv, key_heads=key_heads)
    keywords = terms(rng, kind, heads, lq, lk, d, dv, offset=offset, k=k, scale=size)
    keywords |= settings
    return inputs, keywords, dense_oracle.attention(*inputs, **keywords)


def run(query, key, value, attn_mask=None, **keywords):
    """relpos.attention with lse and weights as well."""
    return relpos.attention(
        query, key, value, attn_mask, return_lse=True, return_weights=True, **keywords
    )


def check(inputs, keywords, dtype, name="forward"):
    """One call against the vectorised oracle on the very same numbers."""
    inputs, keywords = [x.astype(dtype) for x in inputs], cast(keywords, dtype)
    want = dense_oracle.attention(*inputs, **keywords)
    got = run(*inputs, **keywords)
    assert got.out.dtype == got.lse.dtype == got.weights.dtype == dtype
    assert_results_close(got, want, name)
    return got


def check_all(inputs, keywords, want):
    """One call in both dtypes against results of float64."""
    for dtype in DTYPES:
        got = run(*(x.astype(dtype) for x in inputs), **cast(keywords, dtype))
        assert_results_close(got, want)


def assert_same_on_threads(compute):
    """Run compute() on 1, 2 and 5 threads; the bits of its arrays are the same."""
    results = []
    for threads in (1, 2, 5):
        with relpos.threads(threads):
            found = compute()
        results.append(found if isinstance(found, tuple) else (found,))
    for found in results[1:]:
        for got, want in zip(found, results[0], strict=True):
            assert_bitwise(got, want)
