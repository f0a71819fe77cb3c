"""python -m relpos bench: rows and verdicts, printed and written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from relpos import __main__, _bench, _core
from relpos._settings import kernels


@pytest.fixture
def bench(monkeypatch, capsys):
    """Runs the command in this process; returns what it prints."""
    for name in _bench.BLAS_THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")

    def bench(*arguments):
        assert __main__.main(["bench", *arguments]) == 0
        return capsys.readouterr().out

    return bench


def row(figures, **fields):
    return _bench.Row("a row", "of peak", figures, 5, **fields)


def test_a_row_says_whether_it_reached_its_target():
    assert row([0.8, 0.9, 1.0], target=0.9).verdict == "PASS"
    assert row([0.8, 0.9, 1.0], target=0.91).verdict == "short"
    assert row([0.8, 0.9, 1.0], target=0.9, at_most=True).verdict == "PASS"
    assert row([0.8, 0.9, 1.0], target=0.8, at_most=True).verdict == "short"
    assert row([0.8, 0.9, 1.0]).verdict == ""
    assert row([0.8, 0.9], target=0.5).verdict == "noisy"
    assert row([]).figure is None
    assert "noisy" in row([]).lines()
    assert ">= 0.91 short" in row([0.8, 0.9, 1.0], target=0.91).lines()


def test_lines_fit_eighty_columns():
    fields = {"target": 1.0, "seconds": 1.23456, "flops": 1e12, "error": 1e-7}
    shown = row([11.8, 12.9, 1000.0], **fields).lines()
    lines = [*_bench.HEADER.splitlines(), *shown.splitlines()]
    assert len(lines) == 4 and max(map(len, lines)) <= 80


def test_a_wrong_result_is_never_timed():
    with pytest.raises(SystemExit, match="a row: wrong result, error 1"):
        wrong = np.full(4, 1.001, np.float32)
        _bench.check_error(wrong, np.ones(4), "a row")
    with pytest.raises(SystemExit, match="nan"):
        _bench.check_error(np.full(4, np.nan, np.float32), np.ones(4), "a row")


def test_works_of_one_repeat_are_compared_at_one_clock():
    calls = []
    works = [lambda: calls.append("a"), lambda: calls.append("b")]
    timing = _bench.interleave(works, lambda: 1e9, 3)
    assert len(timing.repeats) == timing.tried == 3
    assert len(timing.ratios()) == 3
    assert {"a", "b"} == {*calls}


def test_repeats_whose_clock_moved_are_dropped():
    rates = iter(range(1, 100))
    timing = _bench.interleave([lambda: None], lambda: float(next(rates)), 3)
    assert timing.repeats == []
    assert timing.tried == 12
    assert timing.seconds() is None


@pytest.mark.devmode
def test_the_command_prints_and_writes_the_rows_asked_for(bench, tmp_path):
    file = tmp_path / "rows.json"
    printed = bench("--rows", "^naive|backward learned", "--json", str(file))
    assert "schemes: every scheme over its NumPy form" in printed
    found = json.loads(file.read_text())
    assert found["facts"]["isa"] == _core.isa
    assert len(found["rows"]) == 3
    for each in found["rows"]:
        assert each["label"] in printed
        assert each["verdict"] in ("", "PASS", "short", "noisy")
        assert each["verdict"] == "noisy" or each["figure"] > 0


def test_the_instruction_set_asked_for_is_the_one_timed(bench, monkeypatch):
    seen = []

    def interleave(works, yardstick, count):
        seen.append((kernels(), yardstick))
        return _bench.Timing([], 0)

    monkeypatch.setattr(_bench, "interleave", interleave)
    printed = bench("--rows", "^naive: index$", "--isa", "base")
    assert "base float32, 1 busy" in printed
    assert seen == [(_core.by_isa["base"], _bench.fma_yardstick("base", "float32"))]


def test_an_unknown_table_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        __main__.main(["bench", "attention"])
    assert end.value.code == 2
    assert "attention" in capsys.readouterr().err
