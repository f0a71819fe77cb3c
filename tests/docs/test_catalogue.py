"""The catalogue: every form of a scheme computes the same, and is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tolerances import assert_close

import relpos
from relpos._catalogue import measure, rows
from relpos._catalogue.rows import (
    EXACT,
    Gradients,
    Row,
    by_differences,
    gradient_errors,
    heads_of,
    present,
    rows_of,
)

NUMPY_ROWS = [row for row in rows.ROWS if row.numpy]


@pytest.mark.parametrize("row", NUMPY_ROWS, ids=lambda row: row.name)
def test_numpy_forms_compute_the_same(row):
    """The times of both are compared only if the results are the same."""
    inputs = row.inputs(np.float64, heads=2, length=40, dim=8)
    exact = {name: x for name, x in inputs.items() if name != "dtype"}
    assert_close(row.numpy(**inputs), row.reference(**exact), "forward")


def scaled(factor, inputs):
    """Attention of `factor` times the query: a scheme of two steps."""
    return relpos.attention(**{**inputs, "query": factor * inputs["query"]})


def scaled_backward(factor, grad_out, inputs):
    moved = {**inputs, "query": factor * inputs["query"]}
    context = relpos.attention(**moved, return_context=True).context
    gradients = present(context.backward(grad_out))
    return {**gradients, "query": factor * gradients["query"]}


@pytest.mark.parametrize("slip", [1.0, 1.0 + 1e-8])
def test_composed_schemes_are_compared_with_differences(slip):
    """A right backward passes at 1e-10; one that is wrong by 1e-8 does not."""
    row = Row(
        "attention",
        "twice the query",
        heads_of(),
        lambda **inputs: scaled(2.0, inputs),
        None,
        lambda query, **inputs: relpos.reference.attention(2 * query, **inputs),
        gradients=by_differences(
            lambda grad_out, **inputs: scaled_backward(2.0 * slip, grad_out, inputs),
            lambda query, **inputs: relpos.reference.attention(2 * query, **inputs),
        ),
    )
    found = gradient_errors(row)
    assert found[np.float32] < row.gradients.limits[np.float32]
    assert (found[np.float64] <= row.gradients.limits[np.float64]) == (slip == 1.0)


def test_a_missing_gradient_fails():
    row = next(row for row in rows.ROWS if row.name == "Shaw, keys")
    partial = Gradients(
        lambda grad_out, **inputs: {"query": grad_out}, row.gradients.reference
    )
    found = gradient_errors(replace(row, gradients=partial))
    assert set(found.values()) == {np.inf}


def test_memory_beyond_the_output_is_seen(monkeypatch):
    """The 256 MiB that a form needs are counted, its output is not."""

    def hungry(table, positions):
        np.ones(1 << 28, dtype=np.uint8)
        return np.ones(1 << 23, dtype=np.uint8)

    def hungry_backward(grad_out, **inputs):
        return {"table": hungry(**inputs)}

    gradients = Gradients(hungry_backward, hungry_backward)
    row = Row("learned", "hungry", rows_of, hungry, hungry, hungry, EXACT, gradients)
    monkeypatch.setattr(rows, "ROWS", [row])
    for form in ("relpos", "gradients"):
        found = measure.run_here("hungry", form)
        assert found["memory"] is None or 250e6 < found["memory"] < 280e6
        assert found["seconds"] > 0


def test_a_child_process_measures():
    found = measure.measure("learned table", "relpos")
    assert 0 < found.seconds < 10
    assert found.memory is None or found.memory < 50e6
