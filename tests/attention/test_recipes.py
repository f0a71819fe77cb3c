"""Recipes: each model's scores pair by pair as the model indexes its tables."""

from __future__ import annotations

from inspect import signature

import numpy as np
import oracle_biases as oracle
import pytest
from bad_recipes import GOOD
from problems import normal, qkv
from tolerances import assert_bitwise, assert_close

import relpos
from relpos import recipes

pytestmark = pytest.mark.usefixtures("strict_floats")
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])
B, H, D = 2, 3, 4


def check(inputs, dtype, score, keywords, scale=D**-0.5, **options):
    """Compare a call with softmax of scale * (q_i.k_j + score(b, h, i, j))."""
    query, key, value = inputs
    scores = scale * (query @ key.swapaxes(-1, -2))
    for pair in np.ndindex(*scores.shape):
        scores[pair] += scale * score(*pair)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ value
    cast = (x.astype(dtype) for x in inputs)
    assert_close(relpos.attention(*cast, **options, **keywords), want, "forward")


# ---- sequences ----------------------------------------------------------------------


@both_dtypes
@pytest.mark.parametrize("key_query", [False, True])
@pytest.mark.parametrize(("lq", "lk", "past"), [(7, 7, 0), (2, 7, 5), (1, 7, 6)])
def test_bert(rng, isa, dtype, key_query, lq, lk, past):
    """e = table[i - j + P - 1]; with a cache i counts what came before."""
    q, k, _ = inputs = qkv(rng, (B,), H, lq, lk, D)
    limit = 8
    table = normal(rng, 2 * limit - 1, D)

    def score(b, h, i, j):
        e = table[i + past - j + limit - 1]
        return q[b, h, i] @ e + (k[b, h, j] @ e if key_query else 0)

    keywords = recipes.bert(table.astype(dtype), key_query=key_query)
    check(inputs, dtype, score, keywords, query_offset=past)


@both_dtypes
@pytest.mark.parametrize(("lq", "lk", "past"), [(20, 20, 0), (2, 20, 18)])
@pytest.mark.parametrize("kinds", ["c2p", "p2c", "both"])
@pytest.mark.parametrize(("span", "last"), [(6, None), (6, 16), (5, 6)])
def test_deberta(rng, isa, dtype, lq, lk, past, kinds, span, last):
    """Both directions take the row of i - j; longer than max_position, too."""
    q, k, _ = inputs = qkv(rng, (B,), H, lq, lk, D)
    tables = {"pos_key": normal(rng, H, 2 * span, D)}
    tables["pos_query"] = normal(rng, H, 2 * span, D)
    if kinds != "both":
        del tables["pos_query" if kinds == "c2p" else "pos_key"]

    def score(b, h, i, j):
        distance = i + past - j
        if last:
            options = {"bucket_size": span, "max_position": last}
            distance = oracle.deberta_bucket([distance], **options)[0]
        row = min(max(distance + span, 0), 2 * span - 1)
        total = 0.0
        if "pos_key" in tables:
            total += q[b, h, i] @ tables["pos_key"][h, row]
        if "pos_query" in tables:
            total += k[b, h, j] @ tables["pos_query"][h, row]
        return total

    scale = (D * (1 + len(tables))) ** -0.5
    cast = {name: table.astype(dtype) for name, table in tables.items()}
    keywords = recipes.deberta(**cast, max_position=last)
    check(inputs, dtype, score, keywords, scale, query_offset=past)


@pytest.mark.parametrize("span", [4, 5, 7, 9, 16, 39, 255])
@pytest.mark.parametrize("more", [2, 3, 40, 500])
def test_deberta_shares_rows_beyond_its_buckets(span, more):
    """Each end of the buckets is the row that all farther distances have."""
    last = span // 2 + more
    buckets = recipes.deberta(np.zeros((2 * span, 1)), max_position=last)["buckets"]
    far = np.arange(len(buckets)) - len(buckets) // 2
    for distance in (far, far + 9, far - 9):
        got = buckets[np.clip(len(buckets) // 2 - distance, 0, len(buckets) - 1)]
        bucket = relpos.deberta_bucket(distance, bucket_size=span, max_position=last)
        assert_bitwise(got, np.clip(bucket + span, 0, 2 * span - 1))


@pytest.mark.parametrize("name", ["parakeet", "enformer", "zipformer"])
def test_more_tokens_than_a_recipe_was_made_for(rng, name):
    recipe = getattr(recipes, name)(**GOOD[name])
    length = GOOD[name].get("key_length", GOOD[name].get("length")) + 2
    q, k, v = qkv(rng, (), 2, length, length, 8)
    if name == "zipformer":
        recipe["position_query"] = q[..., :3]
    with pytest.raises(IndexError, match="rel_key: visible relative positions run"):
        relpos.attention(q, k, v, **recipe)


def test_deberta_without_tables_is_plain_attention(rng):
    q, k, v = qkv(rng, (B,), H, 5, 5, D)
    assert_bitwise(
        relpos.attention(q, k, v, **recipes.deberta()), relpos.attention(q, k, v)
    )


@both_dtypes
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(("lq", "lk", "past"), [(40, 40, 0), (2, 40, 38), (3, 40, 0)])
def test_t5(rng, isa, dtype, both, lq, lk, past):
    """Farther than max_distance, too: the recipe does not know the lengths."""
    weight = normal(rng, 8, H)
    settings = {"bidirectional": both, "max_distance": 20}

    def score(b, h, i, j):
        if not both and j > i + past:
            return -np.inf
        row = oracle.t5_bucket([j - i - past], num_buckets=8, **settings)[0]
        return weight[row, h]

    inputs = qkv(rng, (B,), H, lq, lk, D)
    keywords = recipes.t5(weight.astype(dtype), **settings)
    placed = {"query_offset": past, "is_causal": not both}
    check(inputs, dtype, score, keywords, 1.0, **placed)


def test_umt5_has_the_arguments_and_defaults_of_t5():
    assert signature(recipes.umt5) == signature(recipes.t5)


@both_dtypes
@pytest.mark.parametrize(("kind", "batch"), [("bi", ()), ("bi", (B,)), ("uni", ())])
def test_xlnet(rng, isa, dtype, kind, batch):
    """Row of distance d: Lk - d. A table per batch item serves bi_data."""
    lq, lk = 4, 7
    q, k, _ = inputs = qkv(rng, (B,), H, lq, lk, D)
    rows = lk + (lq if kind == "bi" else 1)
    table, u, w = normal(rng, *batch, H, rows, D), normal(rng, H, D), normal(rng, H, D)
    full = np.broadcast_to(table, (B, H, rows, D))

    def score(b, h, i, j):
        distance = i + lk - lq - j
        if kind == "uni" and distance < 0:
            return -np.inf
        return (q[b, h, i] + w[h]) @ full[b, h, lk - distance] + u[h] @ k[b, h, j]

    keywords = recipes.xlnet(lq, lk, *(x.astype(dtype) for x in (table, u, w)))
    check(inputs, dtype, score, keywords, is_causal=kind == "uni")


def test_xlnet_uni_needs_a_causal_mask(rng):
    """Upstream reads wrapped scores of the next query."""
    keywords = recipes.xlnet(4, 7, normal(rng, H, 8, D), *normal(rng, 2, H, D))
    with pytest.raises(IndexError, match=r"^rel_key: visible .* -6 to 3.*-7 to 0"):
        relpos.attention(*qkv(rng, (B,), H, 4, 7, D), **keywords)


@both_dtypes
def test_xlnet_segments(rng, dtype):
    """Segment ids make the pairs of two segments."""
    query_ids, key_ids = rng.integers(0, 3, (B, 1, 4, 1)), rng.integers(0, 3, (1, 7))
    different = query_ids != key_ids
    q, g, s = normal(rng, B, H, 4, D), normal(rng, 2, H, D), normal(rng, H, D)
    want = np.zeros((B, H, 4, 7))
    for b, h, i, j in np.ndindex(*want.shape):
        chosen = g[int(different[b, 0, i, j]), h]
        want[b, h, i, j] = (q[b, h, i] + s[h]) @ chosen * D**-0.5
    got = recipes.xlnet_segments(*(x.astype(dtype) for x in (q, g, s)), different)
    assert got.dtype == dtype
    assert_close(got, want, "forward")


# ---- grids --------------------------------------------------------------------------


@both_dtypes
@pytest.mark.parametrize("window", [(2, 2), (3, 5), (5, 3), (1, 4), (2, 3, 2), 6, (6,)])
def test_swin(rng, isa, dtype, window):
    """index = sum over the axes of query minus key; square windows hide mistakes."""
    axes = (window,) if isinstance(window, int) else window
    cells = list(np.ndindex(*axes))
    n = len(cells)
    strides = [2 * m - 1 for m in axes]
    table = normal(rng, int(np.prod(strides)), H)

    def score(b, h, i, j):
        offset = np.subtract(cells[i], cells[j]) + np.array(axes) - 1
        return table[np.ravel_multi_index(offset, strides), h] / D**-0.5

    keywords = recipes.swin(table.astype(dtype), window)
    check(qkv(rng, (B,), H, n, n, D), dtype, score, keywords)


@both_dtypes
@pytest.mark.parametrize("grid", [(2, 2), (3, 5), (5, 3), (1, 4), (4, 1)])
def test_botnet(rng, isa, dtype, grid):
    cells = list(np.ndindex(*grid))
    n = len(cells)
    q, _, _ = inputs = qkv(rng, (B,), H, n, n, D)
    height, width = (normal(rng, 2 * m - 1, D) for m in grid)

    def score(b, h, i, j):
        down, right = np.subtract(cells[j], cells[i])
        row = height[down + grid[0] - 1] + width[right + grid[1] - 1]
        return q[b, h, i] @ row

    keywords = recipes.botnet(height.astype(dtype), width.astype(dtype), grid)
    check(inputs, dtype, score, keywords)


def test_labels_of_another_grid_are_an_error(rng):
    """A window of 2 x 3 cells has 6 tokens, not 5."""
    x = normal(rng, 2, H, 5, D)
    keywords = recipes.swin(normal(rng, 15, H), (2, 3))
    with pytest.raises(ValueError, match=r"^labels: .*\(6, 6\).*expected"):
        relpos.attention(x, x, x, **keywords)


def test_windows_of_another_shape_have_other_labels():
    """3 x 5 and 5 x 3 have as many rows; for square windows they are the same."""
    wide, tall = relpos.grid_labels((3, 5)), relpos.grid_labels((5, 3))
    assert wide.max() == tall.max() == 5 * 9 - 1
    assert not np.array_equal(wide, tall)
    row = {
        "one down": wide[0, 5],
        "one right": wide[0, 1],
        "oneself": wide[7, 7],
    }
    assert row == {"one down": 22 + 9, "one right": 22 + 1, "oneself": 22}


# ---- grids whose biases are computed ------------------------------------------------


def middle_of(table, x):
    """A table (rows, H) at a fractional row, its ends beyond them."""
    x = min(max(x, 0.0), len(table) - 1.0)
    left = int(x)
    right = min(left + 1, len(table) - 1)
    return table[left] + (x - left) * (table[right] - table[left])


@pytest.mark.parametrize("window", [(2, 3), (3, 2), (4, 4), (1, 5)])
def test_beit_reads_its_table_transposed(rng, window):
    """As the model does: width first, where it was stored height first."""
    h, w = 2, 3
    table = normal(rng, (2 * h - 1) * (2 * w - 1) + 3, 2)
    pairs = table[:-3].reshape(2 * w - 1, 2 * h - 1, 2)
    keywords = recipes.beit(table, window, table_window=(h, w))
    tall, wide = 2 * window[0] - 1, 2 * window[1] - 1
    got = keywords["rel_bias"][:, keywords["labels"]]
    cells = list(np.ndindex(*window))
    for i, a in enumerate(cells):
        for j, b in enumerate(cells):
            down, right = np.subtract(a, b) + np.array(window) - 1
            x = (down + 0.5) * (2 * w - 1) / tall - 0.5
            y = (right + 0.5) * (2 * h - 1) / wide - 0.5
            rows = np.stack([middle_of(row, y) for row in pairs])
            assert_close(got[:, i + 1, j + 1], middle_of(rows, x), "forward")
    assert_bitwise(got[:, 0, 1:], np.repeat(table[-3][:, None], len(cells), axis=1))
    assert_bitwise(got[:, 1:, 0], np.repeat(table[-2][:, None], len(cells), axis=1))
    assert_bitwise(got[:, 0, 0], table[-1])


def test_a_table_of_the_same_square_grid_stays_bit_for_bit(rng):
    table = normal(rng, 28, 2)
    table[5, 1] = -np.inf
    assert_bitwise(recipes.beit(table, (3, 3))["rel_bias"], table.T)


@pytest.mark.parametrize(("window", "pretrained"), [((2, 3), None), ((3, 4), (6, 5))])
def test_swin_v2_by_loops(rng, window, pretrained):
    w1, b1, w2 = normal(rng, 7, 2), normal(rng, 7), normal(rng, 3, 7)
    keywords = recipes.swin_v2(w1, b1, w2, window, pretrained_window=pretrained)
    got = keywords["rel_bias"][:, keywords["labels"]]
    widths = np.array(pretrained or window) - 1
    cells = list(np.ndindex(*window))
    want = np.empty_like(got)
    for i, a in enumerate(cells):
        for j, b in enumerate(cells):
            offset = 8 * np.subtract(a, b) / widths
            x = np.sign(offset) * np.log2(np.abs(offset) + 1) / np.log2(8)
            z = w2 @ np.maximum(w1 @ x + b1, 0)
            want[:, i, j] = 16 / (1 + np.exp(-z))
    assert_close(got, want, "forward")


def test_swin_v2_does_not_divide_where_the_window_has_one_row(rng):
    """As the model: offsets of columns stay whole numbers."""
    network = normal(rng, 7, 2), normal(rng, 7), normal(rng, 3, 7)
    row = recipes.swin_v2(*network, (1, 3))["rel_bias"]
    whole = recipes.swin_v2(*network, (2, 3), pretrained_window=(2, 2))["rel_bias"]
    assert_bitwise(row, whole.reshape(3, 3, 5)[:, 1])


# ---- kinds of inputs ---------------------------------------------------------------


@pytest.mark.parametrize("kinds", ["ed", "de", "ef", "fd", "ff"])
def test_two_tables_become_one_of_their_common_dtype(rng, kinds):
    height = normal(rng, 5, D).astype(kinds[0])
    width = normal(rng, 7, D).astype(kinds[1])
    exact = recipes.sam(height.astype("d"), width.astype("d"), (3, 4))["rel_key"]
    got = recipes.sam(height, width, (3, 4))["rel_key"]
    assert_bitwise(got, exact.astype(max(kinds, key="efd".index)))


def test_lists_and_float16_are_taken_as_attention_takes_them(rng):
    q, k, v = qkv(rng, (), H, 6, 6, D)
    weight, table = normal(rng, 8, H), normal(rng, 11, D)
    height, width = normal(rng, 3, D), normal(rng, 5, D)
    for recipe, arrays in (
        (lambda x: recipes.t5(x, max_distance=6), (weight,)),
        (recipes.bert, (table,)),
        (lambda x: recipes.deberta(x), (table[:10],)),
        (lambda x, y: recipes.botnet(x, y, (2, 3)), (height, width)),
        (lambda x: recipes.swin(x, [2, 3]), (normal(rng, 15, H),)),
    ):
        want = relpos.attention(q, k, v, **recipe(*arrays))
        lists = [x.tolist() for x in arrays]
        assert_bitwise(relpos.attention(q, k, v, **recipe(*lists)), want)
        half = [x.astype(np.float16) for x in (q, k, v)]
        got = relpos.attention(*half, **recipe(*(x.astype(np.float16) for x in arrays)))
        assert got.dtype == np.float16
