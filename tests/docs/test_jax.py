"""docs/jax.md: its lines run, and their gradients are those of JAX's own attention."""

from __future__ import annotations

import numpy as np
import pytest
from documents import ROOT, blocks, run_examples, text

PAGE = "docs/jax.md"
if not (ROOT / PAGE).exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)
jax = pytest.importorskip("jax")
jnp = jax.numpy

HEADS, L, D, REACH = 3, 20, 8, 4


def test_the_page_runs():
    run_examples(PAGE, 15)


@pytest.fixture
def attention():
    """The function that the page's first block makes."""
    lines = [
        line[4:]
        for line in blocks(text(PAGE), "python")[0].splitlines()
        if line.strip()
    ]
    names = {}
    exec("\n".join(lines), names)
    return names["attention"]


def dense(query, key, value, table):
    """The same in JAX, with a score for every pair."""
    at = jnp.arange(L)
    relative = at[None] - at[:, None]
    rows = table[jnp.clip(relative, -REACH, REACH) + REACH]
    scores = jnp.einsum("hid,hjd->hij", query, key)
    scores = (scores + jnp.einsum("hid,ijd->hij", query, rows)) / np.sqrt(D)
    weights = jax.nn.softmax(jnp.where(relative <= 0, scores, -jnp.inf))
    return jnp.einsum("hij,hjd->hid", weights, value)


@pytest.fixture
def inputs():
    rng = np.random.default_rng(2)
    shapes = (HEADS, L, D), (HEADS, L, D), (HEADS, L, D - 3), (2 * REACH + 1, D)
    return [jnp.asarray(rng.standard_normal(shape), "float32") for shape in shapes]


@pytest.mark.parametrize("compiled", [False, True])
def test_values_and_gradients_are_jax_s_own(attention, inputs, compiled):
    weight = jnp.asarray(np.random.default_rng(3).standard_normal((HEADS, L, D - 3)))

    def both(function):
        def loss(*arrays):
            return (function(*arrays) * weight).sum()

        step = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))
        if compiled:
            step = jax.jit(step)
        return step(*inputs)

    (number, found), (wanted, truth) = both(attention), both(dense)
    np.testing.assert_allclose(number, wanted, rtol=1e-5)
    for got, want in zip(found, truth, strict=True):
        assert got.shape == want.shape
        scale = np.abs(want).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * scale)


def test_vmap_goes_item_by_item(attention, inputs):
    query, *rest = inputs
    queries = jnp.stack([query, 2 * query])
    got = jax.vmap(lambda q: attention(q, *rest))(queries)
    for item, q in zip(got, queries, strict=True):
        assert np.array_equal(item, attention(q, *rest))
