"""A tuple of labels: a pair has the sum of the rows that they name."""

from __future__ import annotations

import functools

import dense_oracle
import numpy as np
import pytest
from gradient_problems import (
    Problem,
    assert_gradients_close,
    assert_same_bits,
    check_everywhere,
)
from problems import DTYPES, cast, normal, run, tokens
from tolerances import assert_bitwise, assert_close, assert_results_close

import relpos
from relpos._attention.attention import DEFAULTS
from relpos._attention.problem import prepare
from relpos._settings import kernels

pytestmark = pytest.mark.usefixtures("strict_floats")
H, D, DV = 2, 16, 12


def axes(height, width):
    """Labels of the two axes of a grid, the second behind the first: SAM's."""
    rows, columns = np.divmod(np.arange(height * width), width)
    down = rows - rows[:, None] + height - 1
    across = columns - columns[:, None] + width - 1 + 2 * height - 1
    return down.astype(np.int16), across.astype(np.int32)


def tables(rng, names, rows):
    shapes = {
        "rel_key": (rows, D),
        "rel_query": (H, rows, D),
        "rel_value": (H, rows, DV),
        "rel_bias": (H, rows),
    }
    return {name: normal(rng, *shapes[name]) for name in names}


def grid(names, height=6, width=11, lq=None):
    """Pairs of cells of a grid; lq: of the first cells only."""
    rng = np.random.default_rng([height, width])
    cells = height * width
    lq = cells if lq is None else lq
    inputs = tokens(rng, (2,), H, lq, cells, D, DV)
    inputs |= tables(rng, names, 2 * (height + width) - 2)
    labels = tuple(x[:lq] for x in axes(height, width))
    return Problem.drawn(rng, inputs, {"labels": labels})


EVERY = ("rel_key", "rel_query", "rel_value", "rel_bias")
SETS = [(name,) for name in EVERY] + [("rel_key", "rel_value", "rel_bias"), EVERY]


def test_labels_of_both_axes():
    """They stay within the table, and name each of its rows."""
    down, across = axes(6, 11)
    assert [down.min(), down.max()] == [0, 10]
    assert [across.min(), across.max()] == [11, 31]


@functools.cache
def truth(names, height, width, lq):
    problem = grid(names, height, width, lq)
    return problem, dense_oracle.attention(**problem.inputs, **problem.settings)


@pytest.mark.sanitized
@pytest.mark.parametrize("names", SETS, ids=", ".join)
@pytest.mark.parametrize(
    ("height", "width", "lq"), [(6, 11, 5), (6, 11, 66), (18, 33, 594)]
)
def test_every_table_and_engine(isa, names, height, width, lq):
    """Few queries, one tile, many; rel_query goes row by row."""
    problem, want = truth(names, height, width, lq)
    for dtype in DTYPES:
        assert_results_close(
            run(**cast(problem.inputs, dtype), **problem.settings), want
        )


@pytest.mark.parametrize("names", SETS, ids=", ".join)
def test_gradients(names):
    check_everywhere(grid(names))
    check_everywhere(grid(names, lq=3))


def test_gradients_of_many_tiles():
    check_everywhere(grid(("rel_key", "rel_value", "rel_bias"), 18, 33))


def scattered(rng, count, lq=40, lk=70):
    """As many arrays, each of its own dtype, shape and holes, and a mask."""
    kinds = ("int8", "int16", "int32", "int64")
    shapes = [(lq, lk), (2, lq, lk), (1, lk), (2, lq, 1), (1, lq, lk)]
    labels = tuple(
        rng.integers(-2, 9, shapes[n % 5]).astype(kinds[n % 4]) for n in range(count)
    )
    inputs = tokens(rng, (2,), H, lq, lk, D, DV)
    inputs |= tables(rng, EVERY[:1] + EVERY[2:], 9)
    mask = rng.random((lq, lk)) < 0.8
    mask[3] = False
    return Problem.drawn(rng, inputs, {"labels": labels, "attn_mask": mask})


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_each_array_has_its_own_dtype_and_shape(count):
    check_everywhere(scattered(np.random.default_rng(count), count))


def test_with_fewer_queries_and_a_window(isa):
    problem = scattered(np.random.default_rng(3), 3, lq=4)
    settings = problem.settings | {"query_offset": 66, "window": (50, 0)}
    want = dense_oracle.attention(**problem.inputs, **settings)
    assert_results_close(run(**problem.inputs, **settings), want)


def runs_of_labels(kind):
    """Rows of labels that stay, rise and fall, to both ends of the table and past."""
    keys, rows = np.arange(70), 120
    lines = [keys * 0, keys * 0 + rows - 1, keys, rows - 1 - keys, keys - 3]
    lines += [rows - 70 + keys, 69 - keys, keys // 16, keys // 7, keys % 16, -keys % 9]
    lines += [keys - 64, 30 - keys, np.full(70, -1)]
    lines += [np.where(keys == at, 5, keys) for at in (1, 8, 15, 31)]
    lines += [np.where(keys == at, 5, 100 - keys) for at in (1, 8, 15, 31)]
    return np.array(lines * 3)[:40].astype(kind)


@pytest.mark.sanitized
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_labels_that_stay_rise_or_fall(kind):
    """Vectors of them are taken at once, in memory of any layout."""
    labels, rng = runs_of_labels(kind), np.random.default_rng(6)
    inputs = tokens(rng, (), H, 40, 70, D, DV)
    inputs |= tables(rng, ("rel_key", "rel_value"), 120)
    problem = Problem.drawn(rng, inputs, {"labels": labels})
    check_everywhere(problem)
    want = problem.gradients()
    wide = np.repeat(labels, 2, axis=1)[:, ::2]
    by_columns = np.ascontiguousarray(labels.T).T
    for laid in (wide, by_columns, labels[:, ::-1].copy()[:, ::-1]):
        other = problem._replace(settings={"labels": laid})
        assert_gradients_close(other.gradients(), want)


def test_int8_labels_that_rise_past_their_largest():
    """127 goes on with -128, which names no row."""
    labels = (np.arange(40)[:, None] + np.arange(70) + 60).astype(np.int8)
    rng = np.random.default_rng(7)
    inputs = tokens(rng, (), H, 40, 70, D, DV)
    inputs |= tables(rng, ("rel_key", "rel_value"), 300)
    check_everywhere(Problem.drawn(rng, inputs, {"labels": labels}))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lq", [3, 66])
def test_a_tuple_of_one_is_that_array(isa, dtype, lq):
    problem = grid(EVERY, lq=lq).cast(dtype)
    down = problem.settings["labels"][0]
    one = problem._replace(settings={"labels": (down,)})
    same = problem._replace(settings={"labels": down})
    assert_bitwise(one.forward(), same.forward())
    for name, gradient in one.gradients().items():
        assert_bitwise(gradient, same.gradients()[name])


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(isa, dtype):
    problem = grid(("rel_key", "rel_value", "rel_bias"), 18, 33).cast(dtype)
    want, back = problem.forward(num_threads=1), problem.gradients(num_threads=1)
    assert_bitwise(problem.forward(num_threads=3), want)
    assert_same_bits(problem.gradients(num_threads=3), back)


def test_minus_infinity_of_either_hides(isa):
    problem = grid(("rel_bias",))
    problem.inputs["rel_bias"][:, [2, 20]] = -np.inf
    want = dense_oracle.attention(**problem.inputs, **problem.settings)
    got = run(**problem.inputs, **problem.settings)
    assert_results_close(got, want)
    assert (got.weights == 0).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lq", [3, 60])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_of_all_of_them_stay_finite(isa, dtype, lq, sign):
    """Their sum is one bias, and a row of equal biases is uniform."""
    count, zeros = 8, np.zeros((H, lq, 4), dtype)
    got = run(
        zeros,
        zeros,
        zeros,
        labels=(np.zeros((lq, lq), np.int8),) * count,
        rel_bias=np.full((H, 1), sign * np.finfo(dtype).max),
    )
    assert_close(got.weights, np.full((H, lq, lq), 1 / lq), "forward")
    assert np.isfinite(got.lse).all()


def test_the_definition():
    problem = grid(EVERY, 3, 4)
    want = dense_oracle.attention(**problem.inputs, **problem.settings)
    got = relpos.reference.attention(**problem.inputs, **problem.settings)
    assert_close(got, want.out, "forward")
    back = relpos.reference.attention_backward(
        **problem.inputs,
        **problem.settings,
        grad_out=problem.grad_out,
        grad_lse=problem.grad_lse,
    )
    found = {n: x for n, x in back._asdict().items() if x is not None}
    assert_gradients_close(found, problem.truth())


def test_the_kernel_takes_no_array_without_those_before(isa):
    problem = grid(("rel_key",))
    call = DEFAULTS | problem.inputs | problem.settings
    operands = prepare(call).operands
    operands |= {"out": np.empty(problem.grad_out.shape), "num_threads": 1}
    kernels().attention_forward(operands)
    assert_bitwise(operands["out"], problem.forward())
    del operands["labels[0]"]
    with pytest.raises(TypeError, match="has a key that is not known"):
        kernels().attention_forward(operands)
