"""Recipes that compute: what they make, by loops, and the way back by differences.

Against the models themselves they are held in tests/recorded.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from backward_checks import difference_of
from bad_recipes import GOOD
from problems import normal
from tolerances import assert_bitwise, assert_close

from relpos import recipes

pytestmark = pytest.mark.usefixtures("strict_floats")

#: (recipe, what is not as in GOOD).
COMPUTED = [
    *((name, {}) for name in GOOD if f"{name}_backward" in GOOD),
    ("gemma3n_audio", {"context_right": 2}),
    ("gemma4_audio", {}),
    ("beit", {"window": (3, 2), "table_window": (2, 3)}),
    ("beit", {"window": (1, 4), "table_window": (2, 3)}),
    ("swin_v2", {"pretrained_window": (4, 5)}),
    ("swin_v2", {"window": (1, 3)}),
    ("parakeet", {"length": 1}),
    ("enformer", {"length": 1}),
]


@pytest.fixture
def rng():
    return np.random.default_rng(67)


def drawn(rng, name, changes):
    """Good arguments of a recipe, their numbers drawn."""
    return {
        n: normal(rng, *x.shape) if getattr(x, "dtype", None) == np.float64 else x
        for n, x in (GOOD[name] | changes).items()
    }


def all_of(result):
    return result if isinstance(result, tuple) else (result,)


def made_by(name, keywords):
    """The arrays that a recipe computes."""
    if isinstance(keywords, recipes.Recipe):
        return ["query", "rel_key"]
    backward = getattr(recipes, f"{name}_backward")
    return [n[5:] for n in inspect.signature(backward).parameters if n[:5] == "grad_"]


def way_back(name, keywords, grads, given):
    if isinstance(keywords, recipes.Recipe):
        found = keywords.backward(
            {n.removeprefix("grad_"): x for n, x in grads.items()}
        )
        assert [*found] == [*given][: len(found)]
        return tuple(found.values())
    return all_of(getattr(recipes, f"{name}_backward")(**grads, **given))


@pytest.mark.parametrize("name, changes", COMPUTED)
def test_the_way_back_equals_differences(rng, name, changes):
    """Of any sum of what the recipe makes, along any direction."""
    forward, given = getattr(recipes, name), drawn(rng, name, changes)
    before = forward(**given)
    made = made_by(name, before)
    floating = [n for n, x in before.items() if np.asarray(x).dtype == np.float64]
    assert made == [n for n in floating if np.ndim(before[n])]
    grads = {f"grad_{n}": normal(rng, *before[n].shape) for n in made}
    found = way_back(name, before, grads, given)
    names = [*given][: len(found)]
    assert [x.shape for x in found] == [given[n].shape for n in names]

    def total(parameters):
        keywords = forward(**given | dict(zip(names, parameters, strict=True)))
        return sum(float((grads[f"grad_{n}"] * keywords[n]).sum()) for n in made)

    for _ in range(5):
        steps = [normal(rng, *given[n].shape) for n in names]
        want = difference_of(total, [given[n] for n in names], steps)
        terms = [float((g * s).sum()) for g, s in zip(found, steps, strict=True)]
        size = sum(
            float(np.abs(g * s).sum()) for g, s in zip(found, steps, strict=True)
        )
        assert abs(sum(terms) - want) <= 1e-9 * size


@pytest.mark.parametrize("name", [name for name in GOOD if name.endswith("_backward")])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gradients_have_the_dtype_of_their_parameter(name, dtype):
    given = {
        n: x.astype(dtype) if getattr(x, "dtype", None) == np.float64 else x
        for n, x in GOOD[name].items()
    }
    assert {x.dtype.name for x in all_of(getattr(recipes, name)(**given))} == {dtype}


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


@pytest.mark.parametrize("window, pretrained", [((2, 3), None), ((3, 4), (6, 5))])
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
