"""relpos.sharded through xarray: names of dimensions, and the lines of a page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import relpos

da = pytest.importorskip("dask.array")
xarray = pytest.importorskip("xarray")
sharded = pytest.importorskip("relpos.sharded")

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def close(got, want):
    np.testing.assert_allclose(got.compute(scheduler="sync"), want, rtol=1e-12)


def test_the_lines_of_the_page(rng):
    """The first block as it is, the second on a query in two blocks of each head."""
    x = rng.standard_normal((2, 6, 4))
    known = {"query": da.from_array(x, chunks=(1, 3, 4)), "relpos": relpos}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    first, named = blocks
    exec(first, {})
    exec(named, known)
    out = known["out"]
    assert out.dims == ("head", "position", "column")
    assert out.chunks == ((1, 1), (3, 3), (4,))
    close(out, relpos.attention(x, x, x, is_causal=True))


def test_queries_and_keys_of_other_names(rng):
    """Each batch dimension is found by its name, at any axis."""
    queries, keys, masks = (
        xarray.DataArray(da.from_array(rng.standard_normal(shape), chunks=2), dims=dims)
        for shape, dims in (
            ((4, 3, 2, 5), ("to", "text", "head", "column")),
            ((3, 2, 6, 5), ("text", "head", "from", "column")),
            ((6, 3), ("from", "text")),
        )
    )
    row = ("head", "from", "column")
    out, lse = xarray.apply_ufunc(
        lambda q, k, v, seen: sharded.attention(
            q, k, v, attn_mask=seen[:, None, None] > 0, return_lse=True
        )[:2],
        queries,
        keys,
        keys,
        masks,
        input_core_dims=[("head", "to", "column"), row, row, ("from",)],
        output_core_dims=[("head", "to", "column"), ("head", "to")],
        dask="allowed",
    )
    assert out.dims == ("text", "head", "to", "column")
    assert lse.dims == ("text", "head", "to")
    q, k, seen = queries.values.transpose(1, 2, 0, 3), keys.values, masks.values.T > 0
    want = relpos.attention(q, k, k, attn_mask=seen[:, None, None], return_lse=True)
    close(out, want.out)
    close(lse, want.lse)
