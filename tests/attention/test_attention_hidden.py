"""NaN and infinity in slots that no query sees never reach the output."""

from __future__ import annotations

import numpy as np
import pytest
from problems import DTYPES, PATHS, cast, normal, qkv, run, terms
from tolerances import assert_bitwise

POISONS = [np.nan, np.inf, -np.inf]
both_paths = pytest.mark.parametrize(("lq", "lk"), PATHS)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def relative(lq, lk, offset):
    return np.arange(lk) - (np.arange(lq)[:, None] + offset)


def hiding(way, lq, lk, rng):
    """Keywords that hide pairs in one way, and which pairs stay visible."""
    offset = lk - lq - 2
    r = relative(lq, lk, offset)
    random = rng.random((lq, lk)) < 0.6
    random[:, lk // 2] = False  # one key is hidden from all
    random[lq // 2] = False  # and one query sees nothing
    keywords, visible = {
        "causal": ({"is_causal": True}, r <= 0),
        "window": ({"window": (6, 3)}, (r >= -6) & (r <= 3)),
        "lengths": (
            {"key_lengths": lk - 5},
            r < lk - 5 - offset - np.arange(lq)[:, None],
        ),
        "bool": ({"attn_mask": random}, random),
        "float": ({"attn_mask": np.where(random, 0.0, -np.inf)}, random),
    }[way]
    return keywords | {"query_offset": offset}, visible


ways = pytest.mark.parametrize("way", ["causal", "window", "lengths", "bool", "float"])


def unaffected(got, want, rows):
    """The given query rows are bitwise the same in every result."""
    assert_bitwise(got.out[..., rows, :], want.out[..., rows, :])
    assert_bitwise(got.lse[..., rows], want.lse[..., rows])
    assert_bitwise(got.weights[..., rows, :], want.weights[..., rows, :])


def poisoned(array, index, poison):
    array = array.copy()
    array[index] = poison
    return array


@ways
@both_dtypes
@both_paths
@pytest.mark.parametrize("kind", ["plain", "xl", "everything"])
def test_poison_in_a_key_or_value(isa, way, dtype, lq, lk, kind):
    """Queries that do not see key j do not notice what it holds; the others do."""
    rng = np.random.default_rng(1)
    hidden, visible = hiding(way, lq, lk, rng)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16, 8)]
    position = terms(rng, kind, 2, lq, lk, 16, 8, offset=hidden["query_offset"])
    keywords = cast(position | hidden, dtype)
    want = run(*inputs, **keywords)
    for n, j in enumerate([0, lk // 2, lk - 4, lk - 1]):
        sees = visible[:, j]
        for which in (1, 2):
            bad = list(inputs)
            bad[which] = poisoned(inputs[which], (..., j, slice(None)), POISONS[n % 3])
            with np.errstate(all="ignore"):
                got = run(*bad, **keywords)
            unaffected(got, want, ~sees)
            if which == 2 or np.isnan(POISONS[n % 3]):
                assert not np.isfinite(got.out[..., sees, :]).any()


@ways
@both_dtypes
@both_paths
@pytest.mark.parametrize("name", ["rel_key", "rel_query", "rel_value", "rel_bias"])
def test_poison_in_a_table_row(isa, way, dtype, lq, lk, name):
    """Queries none of whose visible pairs read row t do not notice what it holds."""
    rng = np.random.default_rng(2)
    hidden, visible = hiding(way, lq, lk, rng)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    r = relative(lq, lk, hidden["query_offset"])
    first, rows = r.min() - 2, r.max() - r.min() + 5
    table = normal(rng, 2, rows) if name == "rel_bias" else normal(rng, 2, rows, 16)
    keywords = {name: table, "min_relative_position": int(first)} | hidden
    keywords = cast(keywords, dtype)
    want = run(*inputs, **keywords)
    for n, t in enumerate([0, 3, rows // 2, rows - 4, rows - 1]):
        reads = (visible & (r - first == t)).any(1)
        index = (..., t) if name == "rel_bias" else (..., t, slice(None))
        bad = keywords | {name: poisoned(keywords[name], index, POISONS[n % 3])}
        with np.errstate(all="ignore"):
            got = run(*inputs, **bad)
        unaffected(got, want, ~reads)


@both_dtypes
@both_paths
@pytest.mark.parametrize("clipped", [True, False])
def test_poison_in_all_rows_of_the_future(isa, dtype, lq, lk, clipped):
    """Under a causal mask, rows of positive relative position do not exist."""
    rng = np.random.default_rng(3)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16, 8)]
    k = 9 if clipped else lk
    offset = lk - lq
    keywords = terms(rng, "everything", 2, lq, lk, 16, 8, offset=offset, k=k)
    keywords = cast(keywords, dtype) | {"is_causal": True}
    want = run(*inputs, **keywords)
    for poison in POISONS:
        bad = dict(keywords)
        for name in ("rel_key", "rel_query", "rel_value"):
            future = (..., slice(k + 1, None), slice(None))
            bad[name] = poisoned(bad[name], future, poison)
        middle = bad["rel_bias"].shape[-1] // 2
        bad["rel_bias"] = poisoned(
            bad["rel_bias"], (..., slice(middle + 1, None)), poison
        )
        with np.errstate(all="ignore"):
            unaffected(run(*inputs, **bad), want, slice(None))


@both_dtypes
@both_paths
def test_poison_behind_labels(isa, dtype, lq, lk):
    """Row 0 belongs to hidden pairs alone, and to pairs without a position term."""
    rng = np.random.default_rng(4)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    mask = rng.random((lq, lk)) < 0.6
    labels = np.where(mask, rng.integers(1, 5, (lq, lk)), 0)
    labels[:, ::5] = -1
    keywords = {
        name: normal(rng, 5, 16) for name in ("rel_key", "rel_query", "rel_value")
    }
    keywords["rel_bias"] = normal(rng, 5)
    keywords = cast(keywords, dtype) | {"labels": labels, "attn_mask": mask}
    want = run(*inputs, **keywords)
    for name in ("rel_key", "rel_query", "rel_value", "rel_bias"):
        for poison in POISONS:
            bad = keywords | {name: poisoned(keywords[name], 0, poison)}
            with np.errstate(all="ignore"):
                unaffected(run(*inputs, **bad), want, slice(None))


@ways
@both_dtypes
@both_paths
def test_poison_in_the_mask_at_hidden_pairs(isa, way, dtype, lq, lk):
    """A float mask is not read where something else already hides the pair."""
    if way in ("bool", "float"):
        pytest.skip("the mask itself hides here")
    rng = np.random.default_rng(5)
    hidden, visible = hiding(way, lq, lk, rng)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    mask = normal(rng, lq, lk).astype(dtype)
    want = run(*inputs, mask, **hidden)
    for poison in (np.nan, np.inf):
        bad = np.where(visible, mask, np.array(poison, dtype))
        with np.errstate(all="ignore"):
            unaffected(run(*inputs, bad, **hidden), want, slice(None))


@both_dtypes
@both_paths
def test_poison_where_a_bias_hides(isa, dtype, lq, lk):
    """A pair that one number of a table hides has no other term, in any order."""
    rng = np.random.default_rng(11)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    far = relative(lq, lk, lk - lq) < -1
    bias = np.where(np.arange(1 - lk, lk) < -1, -np.inf, 0.5).astype(dtype)
    mask = normal(rng, lq, lk).astype(dtype)
    keywords = {"rel_bias": bias, "query_offset": lk - lq}
    want = run(*inputs, mask, **keywords)
    hides, adds = np.where(far, 1, 0), np.where(far, 2, -1)
    table = np.array([0.5, -np.inf, 0.0], dtype)
    by_label = run(*inputs, rel_bias=table, labels=(hides, adds))
    for table[2] in (np.nan, np.inf):
        with np.errstate(all="ignore"):
            bad = run(*inputs, np.where(far, table[2], mask), **keywords)
            both = [
                run(*inputs, rel_bias=table, labels=labels)
                for labels in ((hides, adds), (adds, hides))
            ]
        unaffected(bad, want, slice(None))
        unaffected(both[0], by_label, slice(None))
        unaffected(both[1], by_label, slice(None))


@both_dtypes
@both_paths
def test_a_poisoned_query_stays_alone(isa, dtype, lq, lk):
    rng = np.random.default_rng(6)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16))
    keywords = cast(terms(rng, "everything", 2, lq, lk, 16), dtype)
    want = run(q, k, v, **keywords)
    others = np.arange(lq) != lq // 2
    for poison in POISONS:
        bad = poisoned(q, (..., lq // 2, slice(None)), poison)
        with np.errstate(all="ignore"):
            got = run(bad, k, v, **keywords)
        unaffected(got, want, others)
        assert np.isnan(got.out[..., ~others, :]).all()


@both_dtypes
@both_paths
@pytest.mark.parametrize("incoming", ["grad_out", "grad_lse", "both"])
def test_a_poisoned_query_without_a_gradient_passes_nothing_back(
    isa, dtype, lq, lk, incoming
):
    """Its gradients are those of any query there whose incoming gradients are zero."""
    rng = np.random.default_rng(7)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16))
    keywords = cast(terms(rng, "everything", 2, lq, lk, 16), dtype)
    grads = {"grad_out": normal(rng, 2, 2, lq, 16), "grad_lse": normal(rng, 2, 2, lq)}
    for grad in grads.values():
        grad[:, 1, lq // 2] = 0  # of one head: the other one is as finite as before
    if incoming != "both":
        grads = {"grad_out": None, incoming: grads[incoming]}

    def gradients(query):
        context = run(query, k, v, return_context=True, **keywords).context
        return context.backward(**grads)

    want = gradients(q)
    for poison in POISONS:
        with np.errstate(all="ignore"):
            got = gradients(poisoned(q, (..., 1, lq // 2, slice(None)), poison))
            bad = gradients(poisoned(q, (..., 0, lq // 2, slice(None)), poison))
        for name, grad in want._asdict().items():
            if grad is not None:
                assert_bitwise(getattr(got, name), grad)
        assert np.isnan(bad.key[:, 0]).any()


@ways
@both_dtypes
@both_paths
@pytest.mark.parametrize("kind", ["plain", "everything"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_poisoned_row_passes_nothing_back_to_keys_hidden_from_it(
    isa, way, dtype, lq, lk, kind, which
):
    """A NaN in a query, or in a key, reaches the gradients of keys of its rows only."""
    rng = np.random.default_rng(8)
    hidden, visible = hiding(way, lq, lk, rng)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    position = terms(rng, kind, 2, lq, lk, 16, offset=hidden["query_offset"])
    keywords = cast(position | hidden, dtype)
    grad_out = normal(rng, 2, 2, lq, 16).astype(dtype)

    def gradients(inputs):
        with np.errstate(all="ignore"):
            context = run(*inputs, return_context=True, **keywords).context
            return context.backward(grad_out)

    want, bad = gradients(inputs), list(inputs)
    row = lq - 2 if which == 0 else 1
    bad[which] = poisoned(inputs[which], (..., row, slice(None)), np.nan)
    got = gradients(bad)
    poisoned_rows = visible[:, 1] if which else np.arange(lq) == row
    reached = visible[poisoned_rows].any(axis=0)
    for name in ("key", "value"):
        found, expected = getattr(got, name), getattr(want, name)
        assert_bitwise(found[..., ~reached, :], expected[..., ~reached, :])
        assert np.isnan(found[..., reached, :]).all()


@both_dtypes
@pytest.mark.parametrize("lq", [3, 24])
@pytest.mark.parametrize("lk", [15, 16, 64, 67])
def test_a_logit_of_minus_infinity_is_no_pair_whatever_the_row(isa, dtype, lq, lk):
    """Row 1 overflows to both infinities; the keys fill whole vectors, or do not."""
    rng = np.random.default_rng(6)
    query, key, value = (normal(rng, 1, n, 8).astype(dtype) for n in (lq, lk, lk))
    query[:, 1], query[:, 1, 0], key[..., 0] = 0, np.finfo(dtype).max, 9
    key[:, 1::2, 0] = -9
    with np.errstate(all="ignore"):
        context = run(query, key, value, return_context=True).context
        found = context.backward(normal(rng, 1, lq, 8).astype(dtype))
    for grad in (found.key, found.value):
        assert np.isnan(grad[:, ::2]).all() and np.isfinite(grad[:, 1::2]).all()


@both_dtypes
@pytest.mark.parametrize("step", [1, 2, -1])
def test_a_long_mask_of_truths_hides_what_one_of_numbers_does(isa, dtype, step):
    """Blocks of keys that all, some or no query sees, one longer than a reading."""
    rng = np.random.default_rng(5)
    lq, lk = 45, 2 * 2048 + 40
    query, key, value = (normal(rng, 1, n, 4).astype(dtype) for n in (lq, lk, lk))
    seen = np.repeat(rng.random((lq, 1 + lk // 32)) < 0.5, 32, axis=1)[:, :lk]
    seen |= rng.random(lk) < 0.1
    seen[:, 2100:2400], seen[:, 2500:2900] = False, True
    truths = np.zeros((lq, lk * abs(step)), bool)[:, ::step]
    truths[...] = seen
    mask = np.where(seen, 0, -np.inf).astype(dtype)
    got, want = (
        run(query, key, value, attn_mask=m, return_context=True) for m in (truths, mask)
    )
    grad = normal(rng, *got.out.shape)
    assert_bitwise(got.out, want.out)
    found, wanted = (x.context.backward(grad) for x in (got, want))
    for name in ("query", "key", "value"):
        assert_bitwise(getattr(found, name), getattr(wanted, name))
