"""Blocks of queries and keys: `key_blocks` of `attention`, in every kernel."""

from __future__ import annotations

import numpy as np
import pytest
from dense_oracle import attention as dense
from tolerances import assert_bitwise

import relpos
from relpos import reference

B, H, HK, D = 2, 4, 2, 8
#: Queries and keys of a block, heads of the blocks, Lq and Lk. Blocks of classes of
#: keys, of parts of these, of one pair, and longer than the sequence; few queries go by
#: rows.
CASES = {
    "classes": (64, 64, 1, 200, 300),
    "of each query": (1, 16, HK, 70, 130),
    "odd": (3, 7, H, 33, 95),
    "long": (128, 512, H, 300, 1000),
    "pairs": (1, 1, H, 40, 50),
    "rows": (5, 64, HK, 3, 700),
    "one row": (1, 100, H, 1, 900),
    "one block": (10**15, 10**15, 1, 20, 30),
}


def problem(rng, name, shown=0.4):
    """Arguments of a case, and its blocks as a mask, made by a loop over the blocks."""
    bq, bk, heads, lq, lk = CASES[name]
    given = {
        "query": rng.standard_normal((B, H, lq, D)),
        "key": rng.standard_normal((B, HK, lk, D)),
        "value": rng.standard_normal((B, HK, lk, D)),
        "enable_gqa": True,
    }
    blocks = rng.random((B, heads, -(-lq // bq), -(-lk // bk))) < shown
    mask = np.zeros((B, H, lq, lk), bool)
    for b, h, a, c in np.ndindex(B, H, *blocks.shape[2:]):
        pairs = np.s_[a * bq : (a + 1) * bq, c * bk : (c + 1) * bk]
        mask[b, h][pairs] = blocks[b, h * heads // H, a, c]
    return given, {"key_blocks": blocks, "block_size": (bq, bk)}, mask


def everything(rng, **given):
    """All results of a call and of its backward."""
    result = relpos.attention(
        **given, return_lse=True, return_weights=True, return_context=True
    )
    grads = result.context.backward(
        np.cos(np.arange(result.out.size)).reshape(result.out.shape),
        grad_lse=np.ones_like(result.lse),
    )
    return result.out, result.lse, result.weights, grads.query, grads.key, grads.value


@pytest.mark.parametrize("name", CASES)
def test_blocks_are_the_mask_that_they_say(isa, rng, name):
    given, blocks, mask = problem(rng, name)
    for mine, masked in zip(
        everything(rng, **given, **blocks),
        everything(rng, **given, attn_mask=mask),
        strict=True,
    ):
        np.testing.assert_allclose(mine, masked, rtol=1e-11, atol=1e-12)
    out, _ = dense(**given, **blocks)[:2]
    np.testing.assert_allclose(relpos.attention(**given, **blocks), out, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rule", ["mask", "bias", "causal", "ranges", "tables"])
def test_a_pair_is_visible_where_all_rules_allow_it(isa, rng, name, rule):
    given, blocks, mask = problem(rng, name, shown=0.7)
    lq, lk = mask.shape[2:]
    given["query_offset"] = lk - lq
    given |= {
        "mask": {"attn_mask": rng.random((lq, lk)) < 0.8},
        "bias": {"attn_mask": np.where(rng.random((lq, lk)) < 0.8, 0.5, -np.inf)},
        "causal": {"is_causal": True, "window": (40, None), "key_lengths": lk - 3},
        "ranges": {"key_ranges": np.sort(rng.integers(0, lk + 1, (lq, 2)))},
        "tables": {
            "rel_key": rng.standard_normal((2 * lk + 1, D)),
            "rel_query": rng.standard_normal((2 * lk + 1, D)),
            "rel_value": rng.standard_normal((9, D)),
            "softcap": 2.0,
        },
    }[rule]
    both = given | {"attn_mask": mask}
    if rule == "mask":
        both["attn_mask"] = mask & given["attn_mask"]
    if rule == "bias":
        both["attn_mask"] = np.where(mask, given["attn_mask"], -np.inf)
    for mine, masked in zip(
        everything(rng, **given, **blocks), everything(rng, **both), strict=True
    ):
        np.testing.assert_allclose(mine, masked, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_blocks_of_other_dtypes_are_the_mask_too(isa, rng, dtype):
    given, blocks, mask = problem(rng, "classes")
    given |= {n: given[n].astype(dtype) for n in ("query", "key", "value")}
    mine = relpos.attention(**given, **blocks)
    masked = relpos.attention(**given, attn_mask=mask)
    assert mine.dtype == dtype
    np.testing.assert_allclose(mine, masked, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_the_definition_and_the_scores_have_blocks(rng, name):
    given, blocks, mask = problem(rng, name)
    out = reference.attention(**given, **blocks)
    np.testing.assert_allclose(relpos.attention(**given, **blocks), out, atol=1e-12)
    del given["value"]
    mine, masked = (
        relpos.scores(**given, **more) for more in (blocks, {"attn_mask": mask})
    )
    assert_bitwise(mine, masked)
    assert_bitwise(np.isneginf(mine), ~mask)


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_a_hidden_block_reaches_a_result(isa, rng, name):
    given, blocks, mask = problem(rng, name)
    blocks["key_blocks"][..., -1] = False
    first = (mask.shape[-1] - 1) // blocks["block_size"][1] * blocks["block_size"][1]
    clean = everything(rng, **given, **blocks)
    for operand in ("key", "value"):
        given[operand] = given[operand].copy()
        given[operand][:, :, first:] = np.nan
    for mine, want in zip(everything(rng, **given, **blocks), clean, strict=True):
        assert_bitwise(mine, want)


@pytest.mark.parametrize("name", ["classes", "rows"])
def test_a_query_whose_blocks_are_hidden_sees_nothing(isa, rng, name):
    given, blocks, _ = problem(rng, name)
    blocks["key_blocks"][:, :, 0] = False
    out, lse, *_ = everything(rng, **given, **blocks)
    assert not out[:, :, : blocks["block_size"][0]].any()
    assert np.isneginf(lse[:, :, : blocks["block_size"][0]]).all()


def test_a_number_is_both_sides_of_a_block(rng):
    given, blocks, _ = problem(rng, "classes")
    assert_bitwise(
        relpos.attention(**given, key_blocks=blocks["key_blocks"], block_size=64),
        relpos.attention(**given, **blocks),
    )


def test_blocks_are_counted_from_the_first_query_and_key_of_the_call(rng):
    """An offset moves the positions of the queries, and not their blocks."""
    given, blocks, _ = problem(rng, "classes")
    assert_bitwise(
        relpos.attention(**given, **blocks, query_offset=37),
        relpos.attention(**given, **blocks, query_offset=0),
    )


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(rng, threads):
    given, blocks, _ = problem(rng, "classes")
    one = everything(rng, **given, **blocks, num_threads=1)
    for mine, want in zip(
        everything(rng, **given, **blocks, num_threads=threads), one, strict=True
    ):
        assert_bitwise(mine, want)


@pytest.mark.parametrize("gap", [32, 64, 96, 256])
def test_a_gap_in_a_mask_changes_no_result(isa, rng, gap):
    """Keys behind a gap in a tile are visited by themselves, with tables as well."""
    lq, lk = 70, 600
    mask = np.ones((lq, lk), bool)
    mask[:, 40 : 40 + gap] = False
    mask[:32, 420 : 420 + gap] = False
    given = {
        "query": rng.standard_normal((H, lq, D)),
        "key": rng.standard_normal((H, lk, D)),
        "value": rng.standard_normal((H, lk, D)),
        "rel_key": rng.standard_normal((2 * lk + 1, D)),
        "rel_query": rng.standard_normal((2 * lk + 1, D)),
        "rel_bias": rng.standard_normal((H, 2 * lk + 1)),
        "query_offset": lk - lq,
        "attn_mask": mask,
    }
    result = relpos.attention(**given, return_context=True)
    grad = rng.standard_normal(result.out.shape)
    np.testing.assert_allclose(result.out, reference.attention(**given), atol=1e-12)
    mine = result.context.backward(grad)
    want = reference.attention_backward(grad_out=grad, **given)
    for name in ("query", "key", "value", "rel_key", "rel_query", "rel_bias"):
        np.testing.assert_allclose(
            getattr(mine, name), getattr(want, name), rtol=1e-9, atol=1e-10
        )


def test_no_heads_have_no_result():
    x = np.ones((2, 0, 6, 8))
    blocks = {"key_blocks": np.ones((1, 2, 2), bool), "block_size": 4}
    assert relpos.attention(x, x, x, **blocks).shape == (2, 0, 6, 8)
