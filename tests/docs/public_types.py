"""Types of relpos: mypy and pyright check every line, and a test runs it.

mypy tests/docs/public_types.py
pyright tests/docs/public_types.py
"""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import relpos
from relpos import (
    AttentionContext,
    AttentionGradients,
    AttentionOutput,
    FireAttentionGradients,
)

Array = NDArray[Any]

x = np.ones((2, 4, 3))
table, row = np.ones((7, 3)), np.ones(3)

# ---- without a flag, an array ------------------------------------------------------

out = relpos.attention(x, x, x)
assert_type(out, Array)
assert_type(out.shape, tuple[Any, ...])
assert_type(relpos.attention(x, x, x, None, 0.5, True, scale=1.0, rng=1), Array)
assert_type(relpos.attention(query=x, key=x, value=x, rel_key=table), Array)
assert_type(relpos.attention(x, x, x, return_lse=False), Array)

# ---- with any, all results: what was not asked for is None -------------------------

with_lse = relpos.attention(x, x, x, return_lse=True)
assert_type(with_lse, AttentionOutput)
assert_type(with_lse.out, Array)
assert_type(with_lse.lse, Array | Any)
assert_type(with_lse.lse.shape, tuple[Any, ...] | Any)
assert_type(with_lse.weights, Array | Any)
unpacked_out, unpacked_lse, *_ = with_lse
assert_type(unpacked_out, Array)
assert_type(unpacked_lse, Array | Any)

with_weights = relpos.attention(x, x, x, is_causal=True, return_weights=True)
assert_type(with_weights, AttentionOutput)
assert_type(with_weights.weights.shape, tuple[Any, ...] | Any)

with_context = relpos.attention(x, x, x, rel_key=table, return_context=True)
assert_type(with_context, AttentionOutput)
gradients: AttentionGradients = with_context.context.backward(x)
assert_type(gradients.rel_key, Array | None)
assert_type(
    relpos.attention(
        x, x, x, return_lse=True, return_weights=True, return_context=True
    ),
    AttentionOutput,
)

# ---- its logits ---------------------------------------------------------------------

parts = relpos.scores(x, x, is_causal=True, terms=True)
assert_type(relpos.scores(x, x, rel_key=table), Array)
assert_type(relpos.scores(x, x, terms=False), Array)
assert_type(parts, dict[str, Array])

# ---- every scheme ------------------------------------------------------------------

assert_type(relpos.shaw_attention(x, x, x, table, table), Array)
assert_type(relpos.shaw_attention(x, x, x, table, return_lse=True), AttentionOutput)
assert_type(relpos.shaw_attention(x, x, x, table, return_lse=False), Array)
assert_type(relpos.shaw_attention(x, x, x, return_weights=True), AttentionOutput)

assert_type(relpos.relative_global_attention(x, x, x, table, is_causal=True), Array)
assert_type(
    relpos.relative_global_attention(x, x, x, rel_key=table, return_lse=True),
    AttentionOutput,
)

assert_type(relpos.transformer_xl_attention(x, x, x, table, row, row), Array)
assert_type(
    relpos.transformer_xl_attention(
        x, x, x, rel_key=table, pos_bias_u=row, pos_bias_v=None, beyond="zero"
    ),
    Array,
)
assert_type(
    relpos.transformer_xl_attention(x, x, x, table, row, None, return_weights=True),
    AttentionOutput,
)

network = row, row, np.ones((2, 3)), np.ones(2), 1.0, 1.0
assert_type(relpos.fire_attention(x, x, x, *network, eps=1e-3), Array)
with_fire = relpos.fire_attention(x, x, x, *network, signed=True, return_context=True)
assert_type(with_fire, AttentionOutput)
fire_gradients: FireAttentionGradients = with_fire.context.backward(x)
assert_type(fire_gradients.w1, Array | None)

graph = [0, 1, 2, 3, 4], [0, 1, 2, 3]
assert_type(relpos.graph_attention(x, x, x, *graph), Array)
assert_type(
    relpos.graph_attention(x, x, x, *graph, scale=1.0, return_lse=True),
    AttentionOutput,
)

# ---- a context by its bare name -----------------------------------------------------


def query_gradient(context: AttentionContext) -> Array | None:
    found = context.backward(x)
    assert_type(found, AttentionGradients | FireAttentionGradients)
    return found.query


assert_type(query_gradient(with_context.context), Array | None)
assert_type(query_gradient(with_fire.context), Array | None)

# ---- names of schemes --------------------------------------------------------------

assert_type(relpos.plan(1, 2, 9, 9, 4, scheme="rope"), relpos.Plan)
assert_type(relpos.plan(1, 2, 9, 9, 4, scheme="relative_global"), relpos.Plan)
layer = relpos.nn.MultiheadAttention(8, 2, position="xl")
assert_type(layer(np.ones((1, 3, 8), np.float32)), Array)
block = relpos.nn.TransformerLayer(8, 2, position=relpos.nn.ALiBi(2))
assert_type(block(np.ones((1, 3, 8), np.float32)), Array)


def mistakes() -> None:
    """Make calls that checkers refuse."""
    relpos.plan(1, 2, 9, 9, 4, scheme="rotray")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    relpos.nn.MultiheadAttention(8, 2, position="rotray")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ---- other functions and modules ---------------------------------------------------

assert_type(relpos.merge_attention(x, x[..., 0], x, x[..., 0]), tuple[Array, Array])
assert_type(relpos.indexer_top_k(x, x[0], x[..., 0], 2), Array)
assert_type(relpos.show_config(), None)
assert_type(relpos.show_config("dicts"), dict[str, Any])
assert_type(relpos.sinusoidal(row, 4), Array)
assert_type(relpos.apply_rotary(np.ones((4, 4))), Array)
assert_type(relpos.learned(table, [0, 2]), Array)
assert_type(relpos.alibi_bias(2, 4), Array)
assert_type(relpos.recipes.bert(table), dict[str, Any])
assert_type(relpos.recipes.pope(x), Array)
assert_type(relpos.recipes.pope(x, argument="key"), relpos.recipes.Recipe)
recipe = relpos.recipes.sam(table, table, (2, 2))
assert_type(recipe, relpos.recipes.Recipe)
assert_type(relpos.attention(x, x, x, **recipe), Array)
assert_type(relpos.attention(query=x, key=x, value=x, **recipe), Array)
with_recipe = relpos.attention(x, x, x, **recipe, return_context=True)
assert_type(with_recipe.context, AttentionContext[Any] | Any)
assert_type(recipe.backward(with_recipe.context.backward(x)), dict[str, Array])
assert_type(relpos.nn.Linear(3, 5, dtype=np.float64)(x), Array)
assert_type(relpos.ufuncs.rel_shift, np.ufunc)
assert_type(relpos.reference.skew(table, is_causal=True), NDArray[np.float64])
