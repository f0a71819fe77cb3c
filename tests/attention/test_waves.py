"""Waves of slices: results do not depend on the wave that has a slice."""

from __future__ import annotations

from functools import cache

import dense_oracle
import numpy as np
import pytest
from gradient_problems import assert_gradients_close, assert_same_bits
from problems import DTYPES
from tolerances import assert_bitwise, assert_close, assert_lse_close
from wave_problems import LEADS, Sizes, items_of, make

# The names say what a wave holds: on one thread, with a table per head. Where a head is
# named, the tables are too large to be kept side by side.
FORWARD = {
    "one item, some heads": Sizes(1, 5, 1, 9, 320, 64, 64),
    "all at once": Sizes(2, 2, 1, 20, 40, 8, 8),
    "many items, fewer at the end": Sizes(33, 8, 1, 9, 9, 8, 8),
    "part of an item": Sizes(5, 7, 1, 9, 220, 64, 48),
    "whole heads, fewer at the end": Sizes(2, 25, 1, 9, 64, 64, 64),
    "some items of a head": Sizes(5, 8, 1, 9, 256, 64, 16),
    "items of a head, evenly": Sizes(4, 12, 1, 9, 256, 64, 64),
    "single slices": Sizes(3, 2, 1, 9, 1000, 64, 64),
    "groups, some items": Sizes(7, 2, 3, 10, 64, 64, 64),
    "groups, whole heads": Sizes(2, 6, 2, 9, 120, 32, 32),
}
BACKWARD = {
    "one item, some heads": Sizes(1, 5, 1, 150, 20, 64, 64),
    "all at once": Sizes(2, 2, 1, 20, 40, 8, 8),
    "many items, fewer at the end": Sizes(9, 8, 1, 9, 9, 8, 8),
    "part of an item": Sizes(5, 7, 1, 80, 33, 64, 48),
    "whole heads, fewer at the end": Sizes(2, 25, 1, 9, 64, 64, 16),
    "some items of a head": Sizes(5, 20, 1, 9, 96, 64, 16),
    "single slices": Sizes(3, 2, 1, 400, 60, 64, 64),
    "several chunks": Sizes(3, 2, 1, 20, 600, 32, 16),
    "groups, some items": Sizes(5, 2, 3, 40, 40, 48, 48),
}
FEW_SLICES = Sizes(5, 2, 2, 24, 150, 64, 48)  # some at a time
#: Of few queries partial results are kept, half a megabyte per thread at a time. The
#: first takes several waves of a dozen slices with three spans each, the second waves
#: of one, the third one wave.
FEW_QUERIES = [
    Sizes(5, 5, 16, 8, 1100, 24, 24),
    Sizes(3, 2, 20, 8, 1600, 16, 130),
    Sizes(4, 3, 1, 1, 1100, 16, 16),
]
BY_HEAD = FORWARD["some items of a head"]
SEVERAL_THREADS = (2, 3, 7)


@cache
def forward_truth(sizes, *kind, **options):
    problem = make(sizes, *kind, **options)
    return dense_oracle.attention(**problem.inputs, **problem.settings)


def check_forward(sizes, *kind, **options):
    want = forward_truth(sizes, *kind, **options)
    for dtype in DTYPES:
        problem = make(sizes, *kind, **options).cast(dtype)
        got = problem.forward(num_threads=1, return_lse=True)
        assert_close(got.out, want.out, "forward")
        assert_lse_close(got.lse, want.lse)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("name", FORWARD)
def test_forward(isa, name, lead):
    check_forward(FORWARD[name], lead)


@pytest.mark.parametrize("path", ["rows", "labels"])
@pytest.mark.parametrize("lead", ["shared", "head", "item and head"])
def test_forward_with_few_table_rows(isa, path, lead):
    check_forward(FEW_SLICES, lead, path)


@pytest.mark.sanitized
@pytest.mark.parametrize("sizes", FEW_QUERIES)
def test_forward_of_few_queries(isa, sizes):
    check_forward(sizes, "offsets", "rows", every_table=True)


@pytest.mark.sanitized
@pytest.mark.parametrize("lead", ["head", "item", "item and head", "offsets"])
def test_forward_with_every_table(isa, lead):
    check_forward(FEW_SLICES, lead, every_table=True)


@cache
def gradient_truth(sizes, *kind, magnitude=False, **options):
    return make(sizes, *kind, **options).truth(magnitude=magnitude)


def check_gradients(sizes, *kind, **options):
    want = gradient_truth(sizes, *kind, **options)
    for dtype in DTYPES:
        got = make(sizes, *kind, **options).cast(dtype).gradients(num_threads=1)
        assert_gradients_close(
            got,
            want,
            lambda: gradient_truth(sizes, *kind, **options, magnitude=True),
            dtype,
        )


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("name", BACKWARD)
def test_gradients(isa, name, lead):
    check_gradients(BACKWARD[name], lead)


@pytest.mark.parametrize("path", ["rows", "labels"])
@pytest.mark.parametrize("lead", ["shared", "head", "item and head"])
def test_gradients_with_few_table_rows(isa, path, lead):
    check_gradients(FEW_SLICES, lead, path)


def test_gradients_of_few_queries(isa):
    check_gradients(Sizes(5, 3, 4, 3, 300, 24, 24), "offsets", "rows", every_table=True)


@pytest.mark.sanitized
@pytest.mark.parametrize("lead", ["head", "item", "item and head", "offsets"])
def test_gradients_with_every_table(isa, lead):
    check_gradients(FEW_SLICES, lead, every_table=True)


# ---- bits ----------------------------------------------------------------------------


def bits(problem, num_threads):
    """Everything that comes out, by name."""
    result = problem.forward(num_threads=num_threads, return_lse=True)
    grads = problem.gradients(num_threads=num_threads)
    return {"out": result.out, "lse": result.lse, **grads}


@pytest.mark.sanitized
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", ["none", "head", "item and head", "offsets"])
@pytest.mark.parametrize("sizes", [FEW_SLICES, BY_HEAD, Sizes(33, 3, 1, 9, 9, 8, 8)])
def test_any_number_of_threads_gives_the_same_bits(isa, dtype, lead, sizes):
    check_threads(make(sizes, lead).cast(dtype))


def check_threads(problem):
    want = bits(problem, 1)
    for threads in SEVERAL_THREADS:
        assert_same_bits(bits(problem, threads), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", FEW_QUERIES)
def test_few_queries_have_the_same_bits_on_any_threads(isa, dtype, sizes):
    check_threads(make(sizes, "offsets", "rows", every_table=True).cast(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lead", "sizes"), [*((x, FEW_SLICES) for x in LEADS),
                                         ("offsets", FEW_QUERIES[0])])  # fmt: skip
def test_some_items_alone_have_the_same_bits(isa, dtype, lead, sizes):
    problem = make(sizes, lead).cast(dtype)
    want = bits(problem, 1)
    for first, end in ((0, 1), (4, 5), (1, 4)):
        found = bits(items_of(problem, first, end), 1)
        for name in ("out", "lse", "query", "key", "value"):
            assert_bitwise(found[name], want[name][first:end])


def test_items_that_repeat_repeat_their_bits(isa):
    """A broadcast batch, whatever else the wave holds."""
    problem = make(Sizes(1, 2, 2, 24, 150, 64, 48), "head").cast("float32")
    want = bits(problem, 1)
    inputs = {
        name: np.broadcast_to(x, (5, *x.shape[1:])) if x.ndim == 4 else x
        for name, x in problem.inputs.items()
    }
    result = problem._replace(inputs=inputs).forward(num_threads=1, return_lse=True)
    for item in range(5):
        assert_bitwise(result.out[item], want["out"][0])
        assert_bitwise(result.lse[item], want["lse"][0])
