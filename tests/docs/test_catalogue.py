"""The catalogue: every form of a scheme computes the same, and is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tolerances import assert_close

from relpos._catalogue import measure, rows
from relpos._catalogue.rows import EXACT, Gradients, Row, gradient_errors, rows_of

NUMPY_ROWS = [row for row in rows.ROWS if row.numpy]


@pytest.mark.parametrize("row", NUMPY_ROWS, ids=lambda row: row.name)
def test_numpy_forms_compute_the_same(row):
    """The times of both are compared only if the results are the same."""
    inputs = row.inputs(np.float64, heads=2, length=40, dim=8)
    exact = {name: x for name, x in inputs.items() if name != "dtype"}
    assert_close(row.numpy(**inputs), row.reference(**exact), "forward")


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
        measured = measure.run_here("hungry", form)
        assert measured.memory is None or 250e6 < measured.memory < 280e6
        assert measured.seconds > 0


def test_a_child_process_measures():
    found = measure.measure("learned table", "relpos")
    assert 0 < found.seconds < 10
    assert found.memory is None or found.memory < 50e6
