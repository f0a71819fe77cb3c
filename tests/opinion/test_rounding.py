"""Verdicts of compare and diagnose in bfloat16 and float16."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from opinions import softmax

import relpos
from relpos._opinion import search
from relpos._opinion.rounding import CANNOT_TELL, DTYPES

bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
HALVES = [bfloat16, np.dtype(np.float16)]
PROBLEMS, HEADS, LENGTH, DIM = 1000, 2, 12, 8
PLANTED = ("entry", "row", "all")
LARGEST_DOUBT = {"bfloat16": 0.1, "float16": 0.02}
SERIOUS = {"bfloat16": 0.02, "float16": 0.005}


class Attention:
    """Forward and backward by hand: exact, or rounded where `stores` says.

    "weights": weights, gradients of scores and results in 16 bits, all else in float32.
    "scores": products and scores as well, as eager code has them.
    """

    def __init__(self, dtype, stores):
        self.dtype, self.stores = dtype, stores
        self.wide = np.float64 if stores == "nothing" else np.float32
        self.scale = self.wide(DIM**-0.5)

    def rounded(self, array, by=("weights", "scores")):
        if self.stores not in by:
            return array
        return array.astype(self.dtype).astype(self.wide)

    def result(self, array):
        return array if self.stores == "nothing" else array.astype(self.dtype)

    def __call__(self, query, key, value):
        q, k, v = (x.astype(self.wide) for x in (query, key, value))
        scores = self.rounded(q @ k.swapaxes(-1, -2), ["scores"]) * self.scale
        weights = softmax(self.rounded(scores, ["scores"]))
        self.saved = q, k, v, weights
        return self.result(self.rounded(weights) @ v)

    def backward(self, grad_out):
        q, k, v, weights = self.saved
        grad = grad_out.astype(self.wide)
        of_weights = self.rounded(grad @ v.swapaxes(-1, -2), ["scores"])
        mean = (weights * of_weights).sum(axis=-1, keepdims=True)
        of_scores = self.rounded(weights * (of_weights - mean))
        of_value = self.rounded(weights).swapaxes(-1, -2) @ grad
        found = of_scores @ k * self.scale, of_scores.swapaxes(-1, -2) @ q * self.scale
        return [self.result(x) for x in (*found, of_value)]


def problems(dtype, count):
    """Inputs in 16 bits whose scores have standard deviation 1 and 4."""
    rng = np.random.default_rng(7)
    for at in range(count):
        q, k, v = rng.standard_normal((3, HEADS, LENGTH, DIM))
        yield [x.astype(dtype) for x in (q * (1, 4)[at % 2], k, v)]


def planted(result, where, rng, size):
    """Add an error of this size, relative to the largest entry."""
    x = result.astype(np.float64)
    error = rng.choice([-1.0, 1.0]) * size * np.abs(x).max()
    head, row, column = (rng.integers(n) for n in x.shape)
    if where == "entry":
        x[head, row, column] += error
    elif where == "row":
        x[head, row] += error
    else:
        x *= 1.0 + size
    return x.astype(result.dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rates_of_diagnose(dtype, monkeypatch, sized):
    """Try the formula alone, since 4,000 searches would take an hour."""
    for name in ("PAIRED", "ALONE"):
        monkeypatch.setattr(search, name, ())
    rng, places = np.random.default_rng(8), itertools.cycle(PLANTED)
    kinds = {(x, y): [] for x in ("weights", "scores") for y in ("right", "planted")}
    for at, inputs in enumerate(problems(dtype, sized(80, PROBLEMS))):
        stores = ("weights", "scores")[at // 2 % 2]
        right = Attention(dtype, stores)(*inputs)
        kinds[stores, "right"].append(relpos.diagnose(right, *inputs).kind)
        wrong = planted(right, next(places), rng, SERIOUS[dtype.name])
        kinds[stores, "planted"].append(relpos.diagnose(wrong, *inputs).kind)
    assert {*kinds["weights", "right"]} == {"same"}
    assert {*kinds["scores", "right"]} == {"same", "cannot tell"}
    small = kinds["scores", "right"][::2]
    assert small.count("same") > 0.96 * len(small)
    for stores in ("weights", "scores"):
        assert {*kinds[stores, "planted"]} == {"cannot tell", "unknown"}


class Answers:
    """Outputs and gradients that are there already."""

    def __init__(self, output, gradients):
        self.output, self.gradients = output, gradients

    def __call__(self, query, key, value):
        return self.output

    def backward(self, grad_out):
        return self.gradients


@pytest.mark.parametrize("reference", ["nothing", "weights"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rates_of_compare(dtype, reference, sized):
    """Compare with exact results and with others in 16 bits."""
    rng, places = np.random.default_rng(9), itertools.cycle(PLANTED)
    exact = Attention(dtype, "nothing")
    other = Attention(dtype, reference)
    seen = {"scores": set(), "planted": set()}
    for at, inputs in enumerate(problems(dtype, sized(80, PROBLEMS))):
        comparison = relpos.compare(exact, Attention(dtype, "weights"), *inputs)
        assert comparison.same and len(comparison.rows) == 4, comparison
        comparison = relpos.compare(other, Attention(dtype, "scores"), *inputs)
        seen["scores"] |= {row.verdict for row in comparison.rows}
        right = Attention(dtype, "weights")
        results = [
            right(*inputs),
            *right.backward(rng.standard_normal(inputs[2].shape)),
        ]
        wrong = [*results]
        wrong[at % 4] = planted(wrong[at % 4], next(places), rng, SERIOUS[dtype.name])
        sides = Answers(results[0], results[1:]), Answers(wrong[0], wrong[1:])
        comparison = relpos.compare(*sides, *inputs)
        assert not comparison.same and "nothing differs" not in repr(comparison)
        assert [row.verdict == "same" for row in comparison.rows].count(False) == 1
        seen["planted"] |= {comparison.rows[at % 4].verdict}
    assert seen["scores"] == {"same", CANNOT_TELL}
    assert seen["planted"] == {CANNOT_TELL}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_of_a_serious_error_is_never_the_same(dtype):
    """An error of twice the size looks the same with as much rounding against it."""
    rounding, serious = DTYPES[dtype.name], SERIOUS[dtype.name]
    limit = rounding.limit()
    assert limit < serious / 2
    for reach in np.linspace(0.0, 2 * serious, 81):
        for error in np.linspace(0.0, 2 * serious, 81):
            verdict = rounding.verdict(error, limit, reach)
            assert error <= serious / 2 or verdict != "same"
            assert error > limit or verdict == "same"
            assert error > reach or verdict in ("same", CANNOT_TELL)
            if error <= min(reach, serious / 2) and reach < serious:
                assert verdict == "same"
            if reach >= serious and error > limit:
                assert verdict == (CANNOT_TELL if error <= reach else "differs")


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_three_verdicts_of_compare_by_size(dtype):
    rounding = DTYPES[dtype.name]
    x, last = np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.0, 1.0])
    limit, doubt = rounding.limit(), LARGEST_DOUBT[dtype.name]
    assert rounding.unit * 2 < limit < rounding.unit * 3
    cases = {0.9 * limit: "same", 1.1 * limit: CANNOT_TELL, 0.9 * doubt: CANNOT_TELL}
    for error, verdict in {**cases, 1.1 * doubt: "differs", 1.0: "differs"}.items():
        found = relpos.compare(
            lambda a: x.astype(dtype), lambda a, e=error: x + e * last, x
        )
        (row,) = found.rows
        assert (row.verdict, found.limit) == (verdict, limit), error
        assert found.same == (verdict == "same")
        assert ("nothing differs" in repr(found)) == found.same
        assert (CANNOT_TELL in repr(found)) == (verdict == CANNOT_TELL)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_coarsest_dtype_decides(dtype):
    """One output, or an input, decides, however wide the other numbers are."""
    x = np.linspace(0.5, 1.0, 8)
    half, limit = x.astype(dtype), DTYPES[dtype.name].limit()

    def wide(a):
        return a.astype(np.float64)

    def narrow(a):
        return a.astype(dtype)

    for sides, given in [
        ((wide, narrow), x),
        ((narrow, wide), x),
        ((wide, wide), half),
        ((lambda a: a["b"][0].astype(float),) * 2, {"b": [half]}),
    ]:
        found = relpos.compare(*sides, given)
        assert found.limit == limit and found.same
    assert relpos.compare(wide, wide, x).limit == 256 * 2.0**-52
    assert relpos.compare(wide, wide, x.astype(np.float32)).limit == 256 * 2.0**-52
    wrong = relpos.compare(wide, lambda a: 1.03 * wide(a), half)
    assert not wrong.same


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_small_gradient_in_16_bits_is_no_noise(dtype):
    """Next to a large gradient it could be noise or wrong: `same` is False."""
    gradients = [np.ones(3), 1e-3 * np.ones(3), np.ones(3)]
    wrong = [gradients[0], -gradients[1], gradients[2]]
    x = [np.ones(3, dtype)] * 3
    out = np.ones(3, dtype)
    found = relpos.compare(Answers(out, gradients), Answers(out, wrong), *x)
    assert found.rows[2].verdict == CANNOT_TELL and not found.same


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_inputs_that_mine_rounds_itself(dtype):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, HEADS, LENGTH, DIM)) * [[[[4.0]]]]

    def mine(*inputs):
        return Attention(dtype, "weights")(*(x.astype(dtype) for x in inputs))

    assert relpos.diagnose(mine, q, k, v / 4).kind == "same"


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_diagnose_says(dtype):
    _, (q, k, v) = problems(dtype, 2)
    mine = Attention(dtype, "scores")(q, k, v).astype(np.float64)
    wrong = (1 + SERIOUS[dtype.name]) * mine
    found = relpos.diagnose(wrong.astype(dtype), q, k, v)
    assert (found.kind, found.differences, found.closest) == ("cannot tell", (), ())
    assert found.verdict.startswith(f"{CANNOT_TELL}; the closest is relpos.attention, ")
    assert relpos.diagnose(wrong, q, k, v).kind == "cannot tell"  # of inputs in 16 bits
    for view in ("scores", "weights"):
        right = relpos.scores(*(x.astype(np.float64) for x in (q, k)))
        right = softmax(right) if view == "weights" else right
        right = right.astype(dtype)
        assert relpos.diagnose(right, q, k).kind == "same"
        wrong = (1.5 * SERIOUS[dtype.name] + 1) * right.astype(np.float64)
        assert relpos.diagnose(wrong.astype(dtype), q, k).kind != "same"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_differences_in_16_bits(dtype):
    """Name them where rounded scores leave no doubt, else as the closest."""
    kinds = set()
    for inputs in problems(dtype, 4):
        unscaled = Attention(dtype, "scores")
        unscaled.scale = np.float32(1.0)
        found = relpos.diagnose(unscaled(*inputs), *inputs)
        assert found.closest == ("no_scale",)
        assert found.differences == (
            ("no_scale",) if found.kind == "convention" else ()
        )
        kinds.add(found.kind)
    assert kinds == {"convention", "cannot tell"}


@pytest.mark.usefixtures("few_pairs")
def test_nan_for_nan_is_not_the_same():
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 4, 8))
    q[0, 1, 0] = np.nan
    for mask in ({}, {"is_causal": True}):
        out = relpos.attention(q, k, v, **mask)
        assert np.isnan(out).any()
        assert relpos.diagnose(out, q, k, v, **mask).kind == "unknown"
    nothing = relpos.compare(lambda x: x * np.nan, lambda x: x * np.nan, np.ones(3))
    assert not nothing.same and "nothing differs" not in repr(nothing)
