"""Gradients that must agree with each other, without an oracle."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_problems import (
    SCHEMES,
    TABLES,
    Problem,
    Shape,
    assert_gradients_close,
    assert_same_bits,
    make,
)
from problems import DTYPES, normal
from tolerances import TOLERANCES, assert_bitwise, assert_close

import relpos

SHAPE = Shape(70, 90, 16, 12, 2, (2,))


# ---- sums that vanish ---------------------------------------------------------------


def without_lse(problem):
    """Only then do the rows of dS add up to zero."""
    return problem._replace(grad_lse=np.zeros_like(problem.grad_lse))


def assert_conserved(total, parts, axis, limit):
    """total = 0 but for rounding, relative to the sum of |parts| along the axis."""
    size = np.abs(parts).sum(axis, dtype=np.float64).max()
    assert np.abs(total).max() <= limit * size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "variant", ["both", "causal", "clip_inside", "dropout", "window"]
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_of_keys_and_tables_add_up_to_zero(isa, scheme, variant, dtype):
    """A constant added to all keys, key rows or biases changes no probability.

    rel_query moves with its key, so there the sum over keys is not zero; but its rows
    add up to the gradient of u, and the gradients of all queries to those of u and v.
    """
    limit = TOLERANCES["conservation"].of(dtype)
    problem = without_lse(make(scheme, variant, SHAPE)).cast(dtype)
    got = {name: x.astype(np.float64) for name, x in problem.gradients().items()}
    if "rel_query" not in got:
        assert_conserved(got["key"].sum(-2), got["key"], -2, limit)
    for name, axis in (("rel_key", -2), ("rel_bias", -1)):
        if name in got:
            assert_conserved(got[name].sum(axis), got[name], axis, limit)
    if scheme == "everything":
        by_head = got["query"].sum((0, 2)) - got["pos_bias_v"]
        rest = by_head.sum(0) - got["pos_bias_u"]
        assert_conserved(rest, got["query"], (0, 1, 2), limit)
        rest = got["rel_query"].sum(-2) - got["pos_bias_u"]
        assert_conserved(rest, got["query"], (0, 1, 2), limit)


# ---- the same numbers computed otherwise --------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("memory", [1, 32, 57])
def test_memory_is_concatenation(isa, memory, is_causal, dtype):
    """Transformer-XL on the last queries = the last rows of the whole sequence."""
    whole = make(
        "xl", "causal" if is_causal else "both", Shape(80, 80, 16, 12, 2, (2,))
    )
    whole.grad_out[..., :memory, :] = 0
    whole.grad_lse[..., :memory] = 0
    whole = whole.cast(dtype)
    first = whole.settings["min_relative_position"] + memory
    rows = slice(memory, None)
    inputs = whole.inputs | {"query": whole.inputs["query"][..., memory:, :]}
    # relative positions below those of the last queries: none of the whole has them
    settings = whole.settings | {"query_offset": memory}
    part = Problem(
        inputs, settings, whole.grad_out[..., rows, :], whole.grad_lse[..., rows]
    )
    assert first <= 1 - 80 + memory
    assert_close(part.forward(), whole.forward()[..., rows, :], "same_formula")
    got, want = part.gradients(), whole.gradients()
    assert not want["query"][..., :memory, :].any()
    want["query"] = want["query"][..., rows, :]
    assert_gradients_close(got, want)


@pytest.mark.parametrize("scheme", ["plain", "shaw", "music", "everything"])
def test_causal_prefix(isa, scheme):
    """Later tokens without incoming gradient change nothing."""
    length, all_tokens = 37, Shape(80, 80, 16, 12, 2, (2,))
    whole = make(scheme, "causal", all_tokens)
    whole.grad_out[..., length:, :] = 0
    whole.grad_lse[..., length:] = 0
    cut = {n: whole.inputs[n][..., :length, :] for n in ("query", "key", "value")}
    grad_out = whole.grad_out[..., :length, :]
    prefix = Problem(
        whole.inputs | cut, whole.settings, grad_out, whole.grad_lse[..., :length]
    )
    want = whole.gradients()
    for name in cut:
        assert not want[name][..., length:, :].any()
        want[name] = want[name][..., :length, :]
    assert_gradients_close(prefix.gradients(), want)


@pytest.mark.parametrize("scheme", ["shaw", "music", "both_tables", "bias"])
def test_reversal(isa, scheme):
    """The sequence and the tables backwards: every gradient backwards."""
    problem = make(scheme, "both", Shape(70, 70, 16, 12, 2, (2,)))
    axes = {"query": -2, "key": -2, "value": -2}
    axes |= {name: -1 if name == "rel_bias" else -2 for name in TABLES}
    flipped = {n: np.flip(x, axes[n]) for n, x in problem.inputs.items()}
    backwards = problem._replace(
        inputs=flipped,
        grad_out=np.flip(problem.grad_out, -2),
        grad_lse=np.flip(problem.grad_lse, -1),
    )
    want = {n: np.flip(x, axes[n]) for n, x in problem.gradients().items()}
    assert_gradients_close(backwards.gradients(), want)


# ---- grad_lse -----------------------------------------------------------------------


def split_keys(problem, at):
    """The same call over keys [0, at) and [at, Lk): two problems."""
    halves = []
    for first, keys in ((0, slice(None, at)), (at, slice(at, None))):
        cut = {n: problem.inputs[n][..., keys, :] for n in ("key", "value")}
        settings = dict(problem.settings)
        if "attn_mask" in problem.inputs:
            cut["attn_mask"] = problem.inputs["attn_mask"][..., keys]
        if "labels" in settings:
            settings["labels"] = settings["labels"][..., keys]
        else:
            settings["query_offset"] = settings["query_offset"] - first
        halves.append((problem.inputs | cut, settings))
    return halves


def merged_gradients(problem, at):
    """Through merge_attention of the two halves, by hand.

    out = w_a out_a + w_b out_b with w = exp(lse_half - lse), so that the gradient of
    out_a is w_a G and that of lse_a is w_a (G.(out_a - out) + g).
    """
    halves = split_keys(problem, at)
    results = [
        relpos.attention(**inputs, **settings, return_lse=True, return_context=True)
        for inputs, settings in halves
    ]
    a, b = results
    out, lse = relpos.merge_attention(a.out, a.lse, b.out, b.lse)
    base = np.where(np.isneginf(lse), 0, lse)
    parts = []
    for result, (inputs, _) in zip(results, halves, strict=True):
        share = np.exp(result.lse - base)
        along = np.einsum("...d,...d->...", problem.grad_out, result.out - out)
        found = result.context.backward(
            share[..., None] * problem.grad_out,
            grad_lse=share * (along + problem.grad_lse),
            wrt=list(inputs),
        )
        parts.append({n: x for n, x in found._asdict().items() if x is not None})
    joined = {"key": -2, "value": -2, "attn_mask": -1}
    return {
        name: np.concatenate([part[name] for part in parts], joined[name])
        if name in joined
        else parts[0][name] + parts[1][name]
        for name in parts[0]
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "variant", ["both", "causal", "float_mask", "labels", "window"]
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_merged_halves_equal_the_whole(scheme, variant, dtype):
    problem = make(scheme, variant, Shape(40, 60, 16, 12, 2, (2,))).cast(dtype)
    assert_gradients_close(
        merged_gradients(problem, 33),
        problem.gradients(),
        lambda: problem.truth(magnitude=True),
    )


# ---- hidden pairs -------------------------------------------------------------------

HIDES_ALL = {
    "bool mask": {"attn_mask": np.zeros((70, 90), bool)},
    "float mask": {"attn_mask": np.full((70, 90), -np.inf)},
    "lengths": {"key_lengths": 0},
    "causal": {"is_causal": True, "query_offset": -500},
    "window": {"window": (3, 3), "query_offset": 500},
}


@pytest.mark.parametrize("how", HIDES_ALL)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_visible_gives_zeros(isa, scheme, how):
    problem = make(scheme, "both", SHAPE)
    problem.settings.update(HIDES_ALL[how])
    context = problem.forward(return_context=True).context
    found = context.backward(problem.grad_out, grad_lse=problem.grad_lse)
    for name in problem.inputs:
        assert not getattr(found, name).any(), name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_incoming_gradients_of_hidden_rows_do_not_count(isa, scheme):
    problem = make(scheme, "masked_row", SHAPE)
    row = SHAPE.lq // 2
    want = problem.gradients()
    assert not want["query"][..., row, :].any()
    problem.grad_out[..., row, :] = 1e30
    problem.grad_lse[..., row] = -1e30
    assert_same_bits(problem.gradients(), want)


def hide_keys(how, problem, first):
    """Keys from `first` on hidden from every query, by one of the rules."""
    lq, lk = problem.inputs["query"].shape[-2], problem.inputs["key"].shape[-2]
    seen = np.broadcast_to(np.arange(lk) < first, (lq, lk))
    ways = {
        "bool mask": {"attn_mask": seen},
        "float mask": {"attn_mask": np.where(seen, 0.0, -np.inf)},
        "lengths": {"key_lengths": first},
        "causal": {"is_causal": True, "query_offset": first - lq},
        "window": {"window": (None, 0), "query_offset": first - lq},
    }
    return problem._replace(settings=problem.settings | ways[how])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("how", HIDES_ALL)
@pytest.mark.parametrize("scheme", ["plain", "xl", "everything"])
def test_nothing_in_hidden_keys_reaches_a_gradient(isa, scheme, how, poison, dtype):
    problem = hide_keys(how, make(scheme, "both", SHAPE).cast(dtype), 50)
    wrt = list(problem.inputs)
    want = problem.gradients(wrt=wrt)
    for name in ("key", "value"):
        assert not want[name][..., 50:, :].any()
        array = problem.inputs[name].copy()
        array[..., 50::3, :] = poison
        array[..., 89, -1] = poison
        problem.inputs[name] = array
    assert_same_bits(problem.gradients(wrt=wrt), want)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("scheme", ["plain", "xl", "everything"])
def test_nothing_in_queries_that_see_no_key_reaches_a_gradient(isa, scheme, poison):
    problem = make(scheme, "masked_row", SHAPE)
    want = problem.gradients()
    problem.inputs["query"][..., SHAPE.lq // 2, :] = poison
    assert_same_bits(problem.gradients(), want)


@pytest.mark.parametrize("scheme", ["music", "xl", "both_tables", "bias"])
def test_nothing_in_unused_table_rows_reaches_a_gradient(isa, scheme):
    """Rows of the future under a causal mask, and of the far past outside a window."""
    problem = make(scheme, "both", Shape(70, 70, 16, 12, 2, (2,)))
    problem.settings.update({"is_causal": True, "window": (40, None)})
    want = problem.gradients()
    for name in TABLES:
        if name in problem.inputs:
            rows = np.moveaxis(
                problem.inputs[name], -1 if name == "rel_bias" else -2, 0
            )
            for unused in (slice(None, 69 - 40), slice(70, None)):
                rows[unused] = np.nan
    assert_same_bits(problem.gradients(), want)


@pytest.mark.parametrize("at", [1, 31, 32, 33, 64])
def test_rows_before_a_poisoned_key_stay_clean_under_a_causal_mask(isa, at):
    problem = make("xl", "causal", Shape(70, 70, 16, 12, 2, (2,)))
    want = problem.gradients(wrt=["query"])["query"]
    for name in ("key", "value"):
        problem.inputs[name][..., at, :] = np.nan
    got = problem.gradients(wrt=["query"])["query"]
    assert_bitwise(got[..., :at, :], want[..., :at, :])
    assert np.isnan(got[..., at:, :]).all()


# ---- the same bits ------------------------------------------------------------------


@pytest.mark.devmode
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_backward_again_and_from_a_subset(isa, scheme, dtype):
    problem = make(scheme, "float_mask", SHAPE).cast(dtype)
    context = problem.forward(return_context=True).context
    incoming = {"grad_out": problem.grad_out, "grad_lse": problem.grad_lse}
    names = list(problem.inputs)
    full = context.backward(**incoming, wrt=names)
    subsets = [names, *([name] for name in names)]
    subsets += [[other for other in names if other != name] for name in names]
    for wrt in subsets:
        found = context.backward(**incoming, wrt=wrt)
        for name, got in found._asdict().items():
            assert (got is not None) == (name in wrt)
            if got is not None:
                assert_bitwise(got, getattr(full, name))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("scheme", "variant"), [
    ("shaw", "causal"),
    ("xl", "causal"),
    ("everything", "both"),
    ("everything", "labels"),
    ("both_tables", "batch_tables"),
    ("music", "grouped_heads"),
    ("everything", "dropout"),
])  # fmt: skip
@pytest.mark.parametrize("shape", [Shape(40, 130, 8, 8, 4, (3,)), Shape(90, 600, 8, 8)])
def test_any_thread_count_gives_the_same_bits(
    isa, shape, scheme, variant, dtype, repeats
):
    """Many heads, and more keys than one tile takes of two heads."""
    problem = make(scheme, variant, shape).cast(dtype)
    want = problem.gradients(num_threads=1)
    for _ in range(repeats):
        for threads in (1, 2, 3, 5):
            assert_same_bits(problem.gradients(num_threads=threads), want)


@pytest.mark.parametrize("variant", ["both", "causal", "window", "grouped_heads"])
@pytest.mark.parametrize("scheme", ["plain", "shaw", "music", "xl"])
def test_a_batch_item_or_head_alone(isa, scheme, variant):
    """Queries, keys and values get the same bits in any company."""
    problem = make(scheme, variant, Shape(70, 90, 16, 12, 3, (2, 2)))
    arrays = ("query", "key", "value")
    want = problem.gradients(wrt=arrays)
    item = (1, 0)
    alone = {name: problem.inputs[name][item] for name in arrays}
    part = problem._replace(
        inputs=problem.inputs | alone,
        grad_out=problem.grad_out[item],
        grad_lse=problem.grad_lse[item],
    )
    assert_same_bits(part.gradients(wrt=arrays), {n: want[n][item] for n in arrays})
    if variant == "grouped_heads":
        return
    head = slice(2, 3)
    alone = {name: x[..., head, :, :] for name, x in alone.items()}
    for name in set(problem.inputs) - set(arrays):
        table = problem.inputs[name]
        shared = table.ndim == (1 if name.startswith("pos_bias") else 2)
        alone[name] = table if shared else table[head]
    single = problem._replace(
        inputs=problem.inputs | alone,
        grad_out=part.grad_out[head],
        grad_lse=part.grad_lse[head],
    )
    want = {name: want[name][item][head] for name in arrays}
    assert_same_bits(single.gradients(wrt=arrays), want)


def test_gradients_are_linear_in_what_comes_in(isa):
    problem = make("everything", "causal", SHAPE)
    rng = np.random.default_rng(3)
    other = normal(rng, *problem.grad_out.shape), normal(rng, *problem.grad_lse.shape)
    second = problem._replace(grad_out=other[0], grad_lse=other[1])
    both = problem._replace(
        grad_out=2 * problem.grad_out + other[0],
        grad_lse=2 * problem.grad_lse + other[1],
    )
    first, second = problem.gradients(), second.gradients()
    assert_gradients_close(
        both.gradients(), {name: 2 * first[name] + second[name] for name in first}
    )
