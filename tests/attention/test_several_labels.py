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
    """Return labels of pairs of cells by their distance in rows, and in columns.

    Both name rows of one table, as in `relpos.recipes.sam`: its first 2 height - 1 rows
    are for the distances in rows, and those that follow for the distances in columns.
    """
    rows, columns = np.divmod(np.arange(height * width), width)
    down = rows - rows[:, None] + (height - 1)
    first_of_columns = 2 * height - 1
    across = first_of_columns + columns - columns[:, None] + (width - 1)
    return down.astype(np.int16), across.astype(np.int32)


def tables(rng, names, rows):
    """Return the named tables with so many rows, shared by heads or one for each."""
    shapes = {
        "rel_key": (rows, D),
        "rel_query": (H, rows, D),
        "rel_value": (H, rows, DV),
        "rel_bias": (H, rows),
    }
    return {name: normal(rng, *shapes[name]) for name in names}


def grid(names, height=6, width=11, lq=None):
    """Return a problem whose keys are the cells of a grid, and its first lq queries."""
    rng = np.random.default_rng([height, width])
    cells = height * width
    lq = cells if lq is None else lq
    inputs = tokens(rng, (2,), H, lq, cells, D, DV)
    inputs |= tables(rng, names, rows=2 * (height + width) - 2)
    down, across = axes(height, width)
    return Problem.drawn(rng, inputs, {"labels": (down[:lq], across[:lq])})


EVERY = ("rel_key", "rel_query", "rel_value", "rel_bias")
#: Tables that tiles take by labels; with rel_query a call goes to the engine of rows.
IN_TILES = ("rel_key", "rel_value", "rel_bias")
SETS = [(name,) for name in EVERY] + [IN_TILES, EVERY]


def test_labels_of_both_axes():
    """They stay within the table, and name its first and last row of each axis."""
    down, across = axes(6, 11)
    assert [down.min(), down.max()] == [0, 10]
    assert [across.min(), across.max()] == [11, 31]


@functools.cache  # for all kernel tables, as the oracle takes longer than the kernels
def truth(names, height, width, lq):
    """Return a problem on a grid, and the results of the oracle."""
    problem = grid(names, height, width, lq)
    return problem, dense_oracle.attention(**problem.inputs, **problem.settings)


@pytest.mark.sanitized
@pytest.mark.parametrize("names", SETS, ids=", ".join)
@pytest.mark.parametrize(
    ("height", "width", "lq"), [(6, 11, 5), (6, 11, 66), (18, 33, 594)]
)
def test_every_table_and_engine(isa, names, height, width, lq):
    """The sizes have few queries, few tiles, and many."""
    problem, want = truth(names, height, width, lq)
    for dtype in DTYPES:
        got = run(**cast(problem.inputs, dtype), **problem.settings)
        assert_results_close(got, want)


@pytest.mark.parametrize("names", SETS, ids=", ".join)
def test_gradients(names):
    check_everywhere(grid(names))
    check_everywhere(grid(names, lq=3))


def test_gradients_of_many_tiles():
    check_everywhere(grid(IN_TILES, 18, 33))


def scattered(rng, count, lq=40, lk=70):
    """Return a problem with so many random arrays of labels, and a mask.

    The dtypes and shapes of the arrays differ. Each has pairs of its own without a
    label.
    """
    dtypes = ("int8", "int16", "int32", "int64")
    shapes = [(lq, lk), (2, lq, lk), (1, lk), (2, lq, 1), (1, lq, lk)]
    labels = []
    for number in range(count):
        shape = shapes[number % len(shapes)]
        dtype = dtypes[number % len(dtypes)]
        labels.append(rng.integers(-2, 9, shape).astype(dtype))  # -2 and -1: no row
    inputs = tokens(rng, (2,), H, lq, lk, D, DV)
    inputs |= tables(rng, IN_TILES, rows=9)
    mask = rng.random((lq, lk)) < 0.8
    mask[3] = False  # a query that sees no key
    return Problem.drawn(rng, inputs, {"labels": tuple(labels), "attn_mask": mask})


@pytest.mark.parametrize("kind", ["int16", "int32"])
def test_a_table_of_more_rows_than_one_byte_names(kind):
    """Tables are packed by units of 256 rows: the last row is in a unit of its own."""
    rng = np.random.default_rng(257)
    inputs = tokens(rng, (), H, 40, 70, D, DV)
    inputs |= tables(rng, IN_TILES, rows=257)
    labels = rng.integers(0, 257, (40, 70)).astype(kind)
    labels[:, 0] = 256
    check_everywhere(Problem.drawn(rng, inputs, {"labels": labels}))


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_each_array_has_its_own_dtype_and_shape(count):
    check_everywhere(scattered(np.random.default_rng(count), count))


def test_with_fewer_queries_and_a_window(isa):
    problem = scattered(np.random.default_rng(3), 3, lq=4)
    settings = problem.settings | {"query_offset": 66, "window": (50, 0)}
    want = dense_oracle.attention(**problem.inputs, **settings)
    assert_results_close(run(**problem.inputs, **settings), want)


def runs_of_labels(kind):
    """Return labels (40, 70) into a table of 120 rows; each row has a pattern in keys.

    Kernels read the labels of a vector of keys at once where they are all the same, or
    rise or fall by one, and the rows that they name are inside the table.
    """
    keys, table_rows = np.arange(70), 120
    last = table_rows - 1
    patterns = [
        keys * 0,  # the same everywhere: the first row
        keys * 0 + last,
        keys,  # from the first row on
        last - keys,  # from the last row down
        keys - 3,  # begins before the table
        last - 69 + keys,  # up to the last row
        69 - keys,  # down to the first row
        keys // 16,  # the same in the longest vector, of 16 lanes
        keys // 7,  # the same for fewer keys than a vector has
        keys % 16,  # rises, and starts again
        -keys % 9,  # falls, and starts again
        keys - 64,  # names rows for the last keys alone
        30 - keys,  # falls out of the table
        np.full(70, -1),  # names no row
    ]
    # One label breaks the pattern, inside a vector or as its first or last key.
    for key in (1, 8, 15, 31):
        patterns.append(np.where(keys == key, 5, keys))
    for key in (1, 8, 15, 31):
        patterns.append(np.where(keys == key, 5, 100 - keys))
    # 22 patterns fill 40 rows when they are repeated.
    return np.array(patterns * 2)[:40].astype(kind)


@pytest.mark.sanitized
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_labels_that_stay_rise_or_fall(kind):
    """A layout in which keys are apart changes nothing: there each is read alone."""
    labels = runs_of_labels(kind)
    rng = np.random.default_rng(6)
    inputs = tokens(rng, (), H, 40, 70, D, DV)
    inputs |= tables(rng, ("rel_key", "rel_value"), 120)
    problem = Problem.drawn(rng, inputs, {"labels": labels})
    check_everywhere(problem)
    want = problem.gradients()
    spaced = np.repeat(labels, 2, axis=1)[:, ::2]
    transposed = np.ascontiguousarray(labels.T).T
    backwards = labels[:, ::-1].copy()[:, ::-1]
    for same_labels in (spaced, transposed, backwards):
        other = problem._replace(settings={"labels": same_labels})
        assert_gradients_close(other.gradients(), want)


def test_int8_labels_that_rise_past_their_largest():
    """The cast wraps 128 to -128, which names no row, so the vector does not rise."""
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
    in_tuple = problem._replace(settings={"labels": (down,)})
    alone = problem._replace(settings={"labels": down})
    assert_bitwise(in_tuple.forward(), alone.forward())
    assert_same_bits(in_tuple.gradients(), alone.gradients())


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(isa, dtype):
    problem = grid(IN_TILES, 18, 33).cast(dtype)
    out, gradients = problem.forward(num_threads=1), problem.gradients(num_threads=1)
    assert_bitwise(problem.forward(num_threads=3), out)
    assert_same_bits(problem.gradients(num_threads=3), gradients)


def test_minus_infinity_of_either_hides(isa):
    """A pair is hidden if one of its labels names a bias of -inf."""
    problem = grid(("rel_bias",))
    down, across = 2, 20  # a row of the table for each of the two arrays
    problem.inputs["rel_bias"][:, [down, across]] = -np.inf
    want = dense_oracle.attention(**problem.inputs, **problem.settings)
    got = run(**problem.inputs, **problem.settings)
    assert_results_close(got, want)
    assert (got.weights == 0).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lq", [3, 60])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_of_all_of_them_stay_finite(isa, dtype, lq, sign):
    """The sum of eight such biases is limited as one bias is, and does not overflow.

    All pairs have the same sum, so that the weights are those of equal logits.
    """
    zeros = np.zeros((H, lq, 4), dtype)
    all_first_row = np.zeros((lq, lq), np.int8)
    got = run(
        zeros,
        zeros,
        zeros,
        labels=(all_first_row,) * 8,
        rel_bias=np.full((H, 1), sign * np.finfo(dtype).max),
    )
    assert_close(got.weights, np.full((H, lq, lq), 1 / lq), "forward")
    assert np.isfinite(got.lse).all()


def test_the_definition():
    """relpos.reference adds the rows that the labels name, forward and backward."""
    problem = grid(EVERY, 3, 4)
    want = dense_oracle.attention(**problem.inputs, **problem.settings)
    got = relpos.reference.attention(**problem.inputs, **problem.settings)
    assert_close(got, want.out, "forward")
    gradients = relpos.reference.attention_backward(
        **problem.inputs,
        **problem.settings,
        grad_out=problem.grad_out,
        grad_lse=problem.grad_lse,
    )
    present = {
        name: gradient
        for name, gradient in gradients._asdict().items()
        if gradient is not None
    }
    assert_gradients_close(present, problem.truth())


def test_the_kernel_takes_no_array_without_those_before(isa):
    """The operands without labels[0] still have labels[1], and are refused."""
    problem = grid(("rel_key",))
    call = DEFAULTS | problem.inputs | problem.settings
    operands = prepare(call).operands
    operands |= {"out": np.empty(problem.grad_out.shape), "num_threads": 1}
    kernels().attention_forward(operands)
    assert_bitwise(operands["out"], problem.forward())
    del operands["labels[0]"]
    with pytest.raises(TypeError, match="has a key that is not known"):
        kernels().attention_forward(operands)
