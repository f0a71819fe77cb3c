"""Mistakes of public code of biases, buckets and relative keys, one test each.

Every test shows the mistake as well, where it can be written down: a test that the
mistake passes would be none.
"""

from __future__ import annotations

import math

import numpy as np
import oracle_biases as oracle
import pytest
from problems import normal, qkv
from tolerances import assert_bitwise, assert_close

import relpos
from relpos import recipes, reference

pytestmark = [pytest.mark.usefixtures("strict_floats"), pytest.mark.devmode]
H, L, D = 4, 12, 8


@pytest.fixture
def inputs(rng):
    return qkv(rng, (2,), H, L, L, D)


def cached(inputs, steps, **keywords):
    """The last `steps` queries against all keys, as a decoder with a cache has them."""
    q, k, v = inputs
    offset = k.shape[-2] - steps
    return relpos.attention(
        q[..., offset:, :], k, v, query_offset=offset, is_causal=True, **keywords
    )


def assert_same(inputs, first, second):
    """Compare calls of the same inputs with two sets of keywords."""
    got, want = (relpos.attention(*inputs, **x) for x in (first, second))
    assert_close(got, want, "same_formula")


def differ(a, b):
    return np.abs(a - b).max() > 1e-3


# ---- buckets at their edges ---------------------------------------------------------


def usual_t5(distance, exact, width, last, dtype):
    """The logarithm as it is usually taken, every step rounded to dtype."""
    ratio = dtype(math.log(dtype(distance / exact))) / dtype(math.log(last / exact))
    return min(exact + int(ratio * dtype(width)), exact + width - 1)


@pytest.mark.parametrize(
    ("count", "last", "edges", "dtype"),
    [
        (48, 81, [36], np.float32),
        (17, 27, [12], np.float32),
        (9, 128, [8, 16, 64], np.float64),
        (10, 160, [10, 20, 80], np.float64),
    ],
)
def test_t5_distance_on_an_edge_that_rounding_moves(count, last, edges, dtype):
    """36/24 = 3/2 and 81/24 = (3/2)^3: a third of the steps, exactly."""
    exact, width = count // 2, count - count // 2
    distances = np.arange(exact, last + 1)
    for both in (True, False):
        settings = {"bidirectional": both, "num_buckets": count * (1 + both)}
        settings["max_distance"] = last
        got = relpos.t5_bucket(-distances, **settings)
        assert np.array_equal(got, oracle.t5_bucket(-distances, **settings))
    usual = [usual_t5(n, exact, width, last, dtype) for n in distances]
    assert set(distances[usual != got].tolist()) >= set(edges)


@pytest.mark.parametrize(("size", "last"), [(32, 129), (32, 1025), (128, 513)])
def test_deberta_distance_on_an_edge_that_float64_moves(size, last):
    """The recorded settings at which upstream's float64 and whole numbers differ."""
    middle = size // 2
    n = np.arange(middle + 1, last)
    whole = math.log((last - 1) / middle)
    steps = [math.log(distance / middle) / whole * (middle - 1) for distance in n]
    usual = np.ceil(steps).astype(int) + middle
    settings = {"bucket_size": size, "max_position": last}
    got = relpos.deberta_bucket(n, **settings)
    assert np.array_equal(got, oracle.deberta_bucket(n, **settings))
    assert (usual != got).any()


def test_max_distance_within_the_exact_buckets_is_an_error():
    """Upstream divides by log(1) = 0, or by a negative logarithm, and goes on."""
    for last in (8, 7, 1):
        with pytest.raises(ValueError, match=r"^max_distance: .*from 9"):
            relpos.t5_bucket([0], num_buckets=32, max_distance=last)
    with pytest.raises(ValueError, match=r"^num_buckets: got 2; .*from 4"):
        relpos.t5_bucket([0], num_buckets=2)


def test_the_definition_has_one_bucket_for_each_direction():
    """No fraction over half of one bucket, which is 0, is formed."""
    positions = np.arange(-3, 4)
    past = reference.t5_bucket(positions, num_buckets=1, bidirectional=False)
    assert past.tolist() == [0] * 7
    both = reference.t5_bucket(positions, num_buckets=2)
    assert both.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_a_distance_of_2_to_the_63_has_no_positive_twin():
    """abs(-2**63) is negative in int64."""
    least = np.array([-(2**63), 1 - 2**63])
    assert relpos.t5_bucket(least).tolist() == [15, 15]
    assert relpos.t5_bucket(least, bidirectional=False).tolist() == [31, 31]
    found = relpos.deberta_bucket(least, bucket_size=256, max_position=512)
    assert (found < -256).all()


def test_edges_beyond_all_integers():
    settings = {"bucket_size": 4, "max_position": 10**10}
    assert relpos.deberta_bucket([10**11], **settings).tolist() == [4]
    assert oracle.deberta_bucket(np.array([10**11]), **settings).tolist() == [4]
    far = relpos.deberta_bucket([2**60], bucket_size=8, max_position=2**52)
    assert far.tolist() == [8]


def test_a_factor_of_0_has_no_bias_however_steep_the_power():
    assert not relpos.kerple_bias([0.0], [2000.0], 3, kind="power").any()


def test_no_result_is_a_hidden_cache():
    """A change of one result by its caller must not reach the next."""
    options = {"bucket_size": 8, "max_position": 16}
    for function, arguments, more in (
        (relpos.t5_bucket, (np.arange(-40, 41),), {}),
        (relpos.deberta_bucket, (np.arange(-40, 41),), options),
        (relpos.alibi_slopes, (6,), {}),
        (relpos.alibi_bias, (6, 5), {}),
    ):
        first = function(*arguments, **more)
        kept = first.copy()
        first[...] = 77
        assert_bitwise(function(*arguments, **more), kept)


# ---- future and past ----------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["bert", "deberta", "t5", "swin"])
def test_a_table_read_the_other_way_round_is_noticed(rng, inputs, recipe):
    """BERT, DeBERTa and Swin count query minus key, T5 key minus query."""
    arguments = {
        "bert": (normal(rng, 2 * L - 1, D), {}),
        "deberta": (normal(rng, 2 * L, D), {}),
        "t5": (normal(rng, 32, H), {}),
        "swin": (normal(rng, 5 * 7, H), {"window": (3, 4)}),
    }
    table, options = arguments[recipe]
    got, other = (
        relpos.attention(*inputs, **getattr(recipes, recipe)(x, **options))
        for x in (table, table[::-1])
    )
    assert differ(got, other)
    x, y, z = (x[..., ::-1, :] for x in inputs)  # and read backwards twice is forwards
    if recipe in ("bert", "swin"):
        mirrored = getattr(recipes, recipe)(table[::-1], **options)
        mirror = relpos.attention(x, y, z, **mirrored)[..., ::-1, :]
        assert_close(mirror, got, "same_formula")


def test_positions_count_only_by_their_difference(inputs):
    """A 'relative' term that was the absolute one changes when all tokens move."""
    q, k, v = inputs
    pad = [np.concatenate([np.zeros_like(x[..., :5, :]), x], axis=-2) for x in (k, v)]
    weight = normal(np.random.default_rng(0), 32, H)
    for keywords in (
        {"rel_bias": relpos.alibi_bias(H, L + 5, dtype="float64")},
        {"rel_bias": relpos.t5_bias(weight, L + 5)},
        recipes.t5(weight),
    ):
        want = relpos.attention(q, k, v, **keywords)
        hidden = np.arange(L + 5) >= 5
        got = relpos.attention(q, *pad, hidden, query_offset=5, **keywords)
        assert_close(got, want, "same_formula")


# ---- caches -------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, L])
@pytest.mark.parametrize("scheme", ["alibi", "t5", "kerple", "bert", "deberta"])
def test_cached_decoding_sees_true_distances(rng, inputs, scheme, steps):
    """Others gave a step the bias of query 0, or every query the place of the last."""
    weight, table = normal(rng, 8, H), normal(rng, 2 * L - 1, D)
    span = normal(rng, H, 10, D)
    r1, r2 = np.abs(normal(rng, 2, H))
    keywords = {
        "alibi": {"rel_bias": relpos.alibi_bias(H, L, dtype="float64")},
        "t5": recipes.t5(weight, bidirectional=False, max_distance=20),
        "kerple": {"rel_bias": relpos.kerple_bias(r1, r2, L)},
        "bert": recipes.bert(table, key_query=True),
        "deberta": recipes.deberta(span, span, max_position=16),
    }[scheme]
    whole = relpos.attention(*inputs, is_causal=True, **keywords)
    got = cached(inputs, steps, **keywords)
    assert_close(got, whole[..., L - steps :, :], "same_formula")
    if steps < L:
        q, k, v = inputs
        as_query_0 = relpos.attention(
            q[..., L - steps :, :], k, v, query_offset=0, **keywords
        )
        assert differ(as_query_0, whole[..., L - steps :, :])


def test_several_cached_queries_have_places_of_their_own(rng, inputs):
    """All of them at the last key: right for one query, wrong for more."""
    table = normal(rng, 2 * L - 1, D)
    q, k, v = inputs
    row = np.arange(L)[::-1] + L - 1
    for steps, right in ((1, True), (3, False)):
        last = relpos.attention(
            q[..., L - steps :, :],
            k,
            v,
            np.tri(steps, L, L - steps, dtype=bool),
            rel_key=table,
            labels=row[None],
        )
        got = cached(inputs, steps, **recipes.bert(table))
        assert differ(got, last) is not np.bool_(right)


# ---- tables shorter than the sequence ------------------------------------------------


def test_bert_beyond_its_configured_length(rng, inputs):
    """Upstream: an index error inside a kernel. Here: the end rows, or a message."""
    table = normal(rng, 2 * 5 - 1, D)
    keywords = recipes.bert(table)
    longer = np.concatenate([table[:1]] * 7 + [table] + [table[-1:]] * 7)
    assert_same(inputs, keywords, recipes.bert(longer))
    with pytest.raises(IndexError, match=r"^rel_key: visible .* -11 to 11.* -4 to 4"):
        relpos.attention(*inputs, **keywords, beyond="raise")


@pytest.mark.parametrize("length", [1, 5, L - 1])
def test_a_bias_shorter_than_the_call(inputs, length):
    """ALiBi's penalty would silently stop growing."""
    short = relpos.alibi_bias(H, length, dtype="float64")
    reach = length - 1
    with pytest.raises(
        IndexError, match=rf"^rel_bias: .*those from {-reach} to {reach};"
    ):
        relpos.attention(*inputs, rel_bias=short, beyond="raise")
    full = relpos.alibi_bias(H, L, dtype="float64")
    within = {"window": (reach, reach), "beyond": "raise"}
    assert_same(inputs, {"rel_bias": short, **within}, {"rel_bias": full, **within})
    relpos.attention(*inputs, rel_bias=full, beyond="raise")


def test_a_t5_bias_of_max_distance_serves_any_length(rng):
    """Beyond it everything shares a bucket, so clipping is exact."""
    inputs = qkv(rng, (), H, 300, 300, D)
    weight = normal(rng, 8, H)
    short, long = (relpos.t5_bias(weight, n, max_distance=20) for n in (21, 300))
    assert_same(inputs, {"rel_bias": short}, {"rel_bias": long})


def test_a_bias_longer_than_the_call_is_centred(inputs):
    """Not cut from its front, as a table built for max_len was."""
    short, long = (relpos.alibi_bias(H, n, dtype="float64") for n in (L, 3 * L))
    assert_same(inputs, {"rel_bias": short}, {"rel_bias": long})
    assert differ(
        relpos.attention(*inputs, rel_bias=long[:, : 2 * L - 1]), 0 * inputs[0]
    )


# ---- scales and slopes --------------------------------------------------------------


@pytest.mark.parametrize("heads", [3, 6, 12, 20, 71])
def test_alibi_slopes_of_heads_that_are_no_power_of_two(heads):
    """The plain geometric series of H heads gives others."""
    got = relpos.alibi_slopes(heads, dtype="float64")
    power = 2 ** int(np.log2(heads))
    assert_bitwise(got[:power], relpos.alibi_slopes(power, dtype="float64"))
    twice = relpos.alibi_slopes(2 * power, dtype="float64")
    assert_close(got[power:], twice[0::2][: heads - power], "forward")
    assert differ(got, 2.0 ** (-8 * np.arange(1, heads + 1) / heads))
    assert len(np.unique(got)) == heads


def test_alibi_of_the_key_alone_is_the_same_but_for_lse(inputs):
    """BLOOM adds slope * j: a constant less in each row of a causal call."""
    slopes = relpos.alibi_slopes(H, dtype="float64")
    steps = np.arange(1 - L, L)
    ours, theirs = (
        relpos.attention(*inputs, rel_bias=b, is_causal=True, return_lse=True)
        for b in (relpos.alibi_bias(H, L, dtype="float64"), slopes[:, None] * steps)
    )
    assert_close(ours.out, theirs.out, "same_formula")
    key_only = relpos.attention(
        *inputs, slopes[:, None, None] * np.arange(L), is_causal=True, return_lse=True
    )
    assert_close(ours.out, key_only.out, "same_formula")
    moved = key_only.lse - slopes[:, None] * np.arange(L)
    assert_close(ours.lse, moved, "same_formula")
    both_ways = relpos.attention(*inputs, rel_bias=slopes[:, None] * steps)
    alibi = relpos.alibi_bias(H, L, dtype="float64")
    assert differ(both_ways, relpos.attention(*inputs, rel_bias=alibi))


def test_a_bias_is_not_scaled_and_t5_scales_nothing(rng, inputs):
    weight = normal(rng, 32, H)
    keywords = recipes.t5(weight)
    bias = weight.T[:, relpos.t5_bucket(relpos.relative_positions(L))]
    assert_same(inputs, keywords, {"attn_mask": bias, "scale": 1.0})
    scaled = keywords | {"scale": None}
    assert_same(inputs, scaled, {"attn_mask": bias})
    assert differ(*(relpos.attention(*inputs, **x) for x in (scaled, keywords)))


def test_deberta_scales_by_the_number_of_its_terms(rng):
    table = normal(rng, 8, D)
    assert recipes.deberta(table)["scale"] == (2 * D) ** -0.5
    assert recipes.deberta(pos_query=table)["scale"] == (2 * D) ** -0.5
    assert recipes.deberta(table, table)["scale"] == (3 * D) ** -0.5


def test_float32_attention_stays_float32(inputs):
    """A bias of float64 would make everything float64 without a word."""
    single = [x.astype(np.float32) for x in inputs]
    assert (
        relpos.attention(*single, rel_bias=relpos.alibi_bias(H, L)).dtype == np.float32
    )
    weight = np.ones((32, H), np.float32)
    for keywords in ({"rel_bias": relpos.t5_bias(weight, L)}, recipes.t5(weight)):
        assert relpos.attention(*single, **keywords).dtype == np.float32


# ---- what hides ---------------------------------------------------------------------


def test_a_bucket_of_minus_infinity_hides_without_nan(rng, inputs):
    """Rows that see nothing: 0, lse -inf, gradients 0."""
    weight = normal(rng, 4, H)
    weight[0] = weight[1] = -np.inf  # oneself and the past
    result = relpos.attention(
        *inputs,
        rel_bias=relpos.t5_bias(weight, L),
        return_lse=True,
        return_context=True,
    )
    last = np.s_[..., L - 1 :, :]
    assert (result.out[last] == 0).all() and np.isneginf(result.lse[..., L - 1]).all()
    grads = result.context.backward(np.ones_like(result.out))
    assert (grads.query[last] == 0).all()
    folded = relpos.t5_bias_backward(grads.rel_bias, 4)
    assert np.isfinite(folded).all() and (folded[:2] == 0).all()
    assert np.abs(folded[2:]).max() > 0
