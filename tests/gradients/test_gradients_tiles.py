"""Tiles of the backward: ragged ends, sums by table row, by offset and by key.

A tile is 256 keys by 16 to 48 queries; each of up to eight chunks of a head's keys has
sums of its own.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from gradient_problems import (
    Problem,
    Shape,
    assert_gradients_close,
    assert_same_bits,
    make,
)
from problems import DTYPES, normal, qkv, tokens
from tolerances import assert_bitwise

import relpos

pytestmark = pytest.mark.usefixtures("strict_floats")


class Case:
    """A problem, and what the oracle says of it when it is first asked."""

    def __init__(self, problem):
        self.problem = problem
        self.truth = problem.truth()
        self.sizes = cache(lambda: problem.truth(magnitude=True))

    def check(self, wrt=None):
        """All gradients, or those of the inputs `wrt`, in both dtypes."""
        names = self.problem.inputs if wrt is None else wrt
        want = {name: self.truth[name] for name in names}
        for dtype in DTYPES:
            got = self.problem.cast(dtype).gradients(num_threads=1, wrt=wrt)
            assert_gradients_close(got, want, self.sizes, f"{dtype} {wrt}")


# ---- ragged ends ---------------------------------------------------------------------

# Keys around one and several tiles: chunks of one or two, the last with a single key.
LENGTHS = (1, 31, 255, 256, 257, 511, 513, 1023, 1025)
VARIANTS = ("both", "causal", "window")


@cache
def ragged(scheme, lk):
    variant = VARIANTS[LENGTHS.index(lk) % 3]
    return Case(make(scheme, variant, Shape(2 * 48 + 5, lk, 13, 11)))


@pytest.mark.parametrize("lk", LENGTHS)
@pytest.mark.parametrize("scheme", ["plain", "xl", "shaw", "everything"])
def test_keys_around_tiles(isa, scheme, lk):
    ragged(scheme, lk).check()


@cache
def of_dimensions(scheme, d, dv):
    return Case(make(scheme, "both", Shape(21, 37, d, dv)))


# Products of 64 terms at a time, as two sums of half as many.
@pytest.mark.sanitized
@pytest.mark.parametrize("d", [1, 2, 3, 63, 64, 65, 66, 129])
def test_any_number_of_columns(isa, d):
    for scheme in ("plain", "shaw", "xl"):
        of_dimensions(scheme, d, 5).check()
        of_dimensions(scheme, 6, d).check()


def test_no_columns(isa):
    """Values have a gradient without a column of the queries, and vice versa."""
    rng = np.random.default_rng(0)
    for d, dv in ((0, 3), (3, 0)):
        inputs = tokens(rng, (), 2, 40, 300, d, dv)
        Case(Problem.drawn(rng, inputs, {"scale": 0.5})).check()


# ---- sums by table row ---------------------------------------------------------------

# Of a clipped table a query tile and a chunk of keys meet the rows near the diagonal,
# or only one end.
PLACES = {
    "diagonal": {"query_offset": 0},
    "keys ahead": {"query_offset": -400},
    "keys behind": {"query_offset": 900},
    "all far ahead": {"query_offset": -5000},
    "all far behind": {"query_offset": 5000},
    "window": {"query_offset": 60, "window": (150, 40)},
    "causal": {"query_offset": 200, "is_causal": True},
}


@cache
def clipped(place, beyond, rows, first):
    """Shaw's tables: fewer rows than keys, which the backward sums by row."""
    rng = np.random.default_rng([list(PLACES).index(place), rows])
    lq, lk, d, dv = 200, 700, 12, 10
    inputs = tokens(rng, (), 1, lq, lk, d, dv)
    inputs["rel_key"] = normal(rng, rows, d)
    inputs["rel_value"] = normal(rng, rows, dv)
    inputs["pos_bias_v"] = normal(rng, 1, d)
    settings = PLACES[place] | {"beyond": beyond, "min_relative_position": first}
    return Case(Problem.drawn(rng, inputs, settings))


@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("place", PLACES)
def test_rows_of_a_clipped_table(isa, place, beyond):
    for rows, first in ((7, -3), (70, -35), (100, 20), (1, 0)):
        clipped(place, beyond, rows, first).check()


@cache
def labelled():
    """Labels far from the diagonal, where clipped tables would be at one end."""
    rng = np.random.default_rng(6)
    inputs = tokens(rng, (), 2, 200, 40, 12, 10)
    inputs |= {"rel_key": normal(rng, 2, 9, 12), "rel_value": normal(rng, 9, 10)}
    settings = {"labels": rng.integers(-1, 9, (200, 40))}
    return Case(Problem.drawn(rng, inputs, settings))


def test_rows_by_label(isa):
    labelled().check()


@pytest.mark.sanitized
@pytest.mark.parametrize("offset", [-(2**60) + 1, 2**60 - 1])
def test_a_table_as_far_away_as_may_be(isa, offset):
    rng = np.random.default_rng(1)
    q, k, v = qkv(rng, (), 1, 40, 300, 12, 10)
    rows = {"rel_key": normal(rng, 7, 12), "rel_value": normal(rng, 7, 10)}
    grad_out, found = normal(rng, 1, 40, 10), []
    for far in (offset, 5000 if offset > 0 else -5000):
        result = relpos.attention(
            q, k, v, **rows, query_offset=far, return_context=True
        )
        found.append(result.context.backward(grad_out))
    for got, want in zip(*found, strict=True):
        assert got is want is None or assert_bitwise(got, want) is None


# ---- lines of dS by position ---------------------------------------------------------


@cache
def of_keys(place, beyond, rows, first):
    """A table that keys meet: smaller than the positions of a tile, and larger."""
    rng = np.random.default_rng([list(PLACES).index(place), rows])
    inputs = tokens(rng, (), 2, 200, 330, 12, 10)
    inputs["rel_query"] = normal(rng, 2, rows, 12)
    settings = PLACES[place] | {"beyond": beyond, "min_relative_position": first}
    return Case(Problem.drawn(rng, inputs, settings))


@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("place", PLACES)
def test_rows_that_keys_meet(isa, place, beyond):
    for rows, first in ((7, -3), (70, -35), (900, -250), (1, 0)):
        of_keys(place, beyond, rows, first).check()


@cache
def passed_over():
    """Queries of a few tiles in the middle see only the last keys."""
    rng = np.random.default_rng(8)
    inputs = tokens(rng, (), 2, 250, 300, 12, 10)
    inputs |= {"rel_key": normal(rng, 549, 12), "rel_query": normal(rng, 2, 549, 12)}
    mask = np.ones((250, 300), bool)
    mask[96:192, :100] = False
    settings = {"query_offset": 40, "min_relative_position": -289, "attn_mask": mask}
    return Case(Problem.drawn(rng, inputs, settings))


def test_query_tiles_that_pass_keys_over(isa):
    """The tile behind them has no lines of the one before."""
    passed_over().check()


# ---- sums by offset and by key -------------------------------------------------------

# Windows make tiles narrow, another width for each tile of queries. What a wide one
# left behind, here of the first head of a group, must not be added to the sums of a
# narrow one.
VISIBLE = {
    "all": {},
    "causal": {"is_causal": True},
    "window": {"window": (130, 20)},
    "narrow": {"window": (3, 2)},
    "lengths": {"key_lengths": [277, 50]},
}
BIASES = {
    "bias": ("rel_bias",),
    "bias and a band of keys": ("rel_bias", "rel_key"),
    "bias and a band of values": ("rel_bias", "rel_value"),
    "bias and all bands": ("rel_bias", "rel_key", "rel_query", "rel_value"),
    "bias and few rows": ("rel_bias", "few_keys"),
    "vectors and a band": ("rel_key", "pos_bias_u", "pos_bias_v"),
    "vectors and few rows": ("few_keys", "few_values", "pos_bias_u", "pos_bias_v"),
}


@cache
def biased(terms, seen):
    rng = np.random.default_rng(list(BIASES).index(terms))
    lq, lk, d, dv = 101, 300, 12, 10
    inputs = tokens(rng, (2,), 2, lq, lk, d, dv, key_heads=1)
    tables = {
        "rel_bias": normal(rng, 2, 481, scale=0.5),
        "rel_key": normal(rng, 481, d, scale=0.5),
        "rel_query": normal(rng, 481, d, scale=0.5),
        "rel_value": normal(rng, 2, 481, dv),
        "few_keys": normal(rng, 9, d),
        "few_values": normal(rng, 2, 9, dv),
        "pos_bias_u": normal(rng, 2, d),
        "pos_bias_v": normal(rng, 2, d),
    }
    names = {"few_keys": "rel_key", "few_values": "rel_value"}
    inputs |= {names.get(name, name): tables[name] for name in BIASES[terms]}
    settings = {"query_offset": 120, "enable_gqa": True} | VISIBLE[seen]
    return Case(Problem.drawn(rng, inputs, settings))


SUMMED = ("rel_bias", "pos_bias_u", "pos_bias_v")


@pytest.mark.parametrize("seen", VISIBLE)
@pytest.mark.parametrize("terms", BIASES)
def test_gradients_of_biases(isa, terms, seen):
    """All gradients, and those of the biases alone, without the products."""
    case = biased(terms, seen)
    case.check()
    case.check([name for name in SUMMED if name in case.problem.inputs])


@pytest.mark.sanitized
@pytest.mark.parametrize("terms", ["bias and all bands", "vectors and few rows"])
def test_threads_sum_alike(isa, terms):
    for dtype in DTYPES:
        problem = biased(terms, "window").problem.cast(dtype)
        want = problem.gradients(num_threads=1)
        for threads in (2, 3, 7):
            assert_same_bits(problem.gradients(num_threads=threads), want)
