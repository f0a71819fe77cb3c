"""``python -m relpos check``: rows, forms of eager torch, and verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from relpos import __main__
from relpos._catalogue.rows import ROWS
from relpos._opinion import check
from relpos._opinion.eager import form_of

BY_NAME = {row.name: row for row in ROWS}


def test_every_row_but_encodings_that_are_added_has_a_form():
    """The definition alone is compared with those: eager torch repeats its formula."""
    added = {"sinusoidal", "naive", "learned"}
    assert {row.scheme for row in ROWS if form_of(row) is None} == added


def test_without_torch_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    assert __main__.main(["check"]) == 0
    text = capsys.readouterr().out
    assert "PyTorch, which is not installed" in text
    assert f"nothing of {len(ROWS)} schemes was compared" in text
    assert "pip install torch" in text


@pytest.mark.parametrize(
    ("error", "passed"), [(1e-7, True), (1.0, False), (np.nan, False)]
)
def test_what_passes(error, passed):
    limits = [1e-6, 1e-14]
    assert check.Checked("a", [error, 0.0], limits).passed is passed
    gradients = check.Checked("a", [0.0, 0.0, error, 0.0], [*limits, *limits])
    assert gradients.passed is passed
    assert gradients.cells()[-1] == ("ok" if passed else "DIFFERS")


@pytest.mark.torch
def test_every_scheme_is_equal(capsys):
    pytest.importorskip("torch")
    assert __main__.main(["check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(" ok")] == lines[3 : 3 + len(ROWS)]
    assert any(line.endswith("all equal to rounding") for line in lines)


@pytest.mark.torch
def test_what_differs_is_found(monkeypatch, capsys):
    pytest.importorskip("torch")
    row = BY_NAME["Shaw, keys"]
    good = check.check_row(row)
    assert good.passed
    assert 0 < good.errors[1] < 1e-14 and 1e-8 < good.errors[0] < 1e-6

    def reversed_table(rel_key, **tokens):
        return row.relpos(**tokens, rel_key=rel_key[::-1])

    def without_table(grad_out, **inputs):
        found = row.gradients.relpos(grad_out, **inputs)
        return {name: x for name, x in found.items() if name != "rel_key"}

    def scaled(grad_out, **inputs):
        found = row.gradients.relpos(grad_out, **inputs)
        return {**found, "rel_key": found["rel_key"] * (1 + 1e-5)}

    wrong = [
        replace(row, relpos=reversed_table),
        replace(row, gradients=replace(row.gradients, relpos=without_table)),
        replace(row, gradients=replace(row.gradients, relpos=scaled)),
    ]
    assert [check.check_row(each).passed for each in wrong] == [False] * 3
    monkeypatch.setattr(check, "ROWS", [wrong[0]])
    assert __main__.main(["check"]) == 1
    assert "differ: Shaw, keys" in capsys.readouterr().out
