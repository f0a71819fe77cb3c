"""python -m relpos bench: its tables, rows and verdicts, what it prints and writes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from relpos import __main__, _core
from relpos._bench import harness, problems, table, tables


@pytest.fixture
def bench(monkeypatch, capsys):
    """Runs the command in this process; returns what it prints."""
    for name in harness.BLAS_THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")

    def bench(*arguments):
        assert __main__.main(["bench", *arguments]) == 0
        return capsys.readouterr().out

    return bench


def row(figures, **fields):
    return table.Row("a row", "of peak", figures, 5, **fields)


def test_a_row_says_whether_it_reached_its_target():
    assert row([0.8, 0.9, 1.0], target=0.9).verdict == "PASS"
    assert row([0.8, 0.9, 1.0], target=0.91).verdict == "short"
    assert row([0.8, 0.9, 1.0], target=0.9, at_most=True).verdict == "PASS"
    assert row([0.8, 0.9, 1.0], target=0.8, at_most=True).verdict == "short"
    assert row([0.8, 0.9, 1.0]).verdict == ""
    assert row([0.8, 0.9], target=0.5).verdict == "noisy"
    assert row([]).figure is None
    assert "noisy" in row([]).line()
    assert ">= 0.91 short" in row([0.8, 0.9, 1.0], target=0.91).line()


def test_a_wrong_result_is_never_timed():
    with pytest.raises(SystemExit, match="a row: wrong result, error 1"):
        wrong = np.full(4, 1.001, np.float32)
        harness.check_error(wrong, np.ones(4), "a row")
    with pytest.raises(SystemExit, match="nan"):
        harness.check_error(np.full(4, np.nan, np.float32), np.ones(4), "a row")


def test_works_of_one_repeat_are_compared_at_one_clock():
    calls = []
    works = [lambda: calls.append("a"), lambda: calls.append("b")]
    timing = harness.interleave(works, lambda: 1e9, 3)
    assert len(timing.repeats) == timing.tried == 3
    assert len(timing.ratios()) == 3
    assert {"a", "b"} == {*calls}


def test_repeats_whose_clock_moved_are_dropped():
    rates = iter(range(1, 100))
    timing = harness.interleave([lambda: None], lambda: float(next(rates)), 3)
    assert timing.repeats == []
    assert timing.tried == 12
    assert timing.seconds() is None


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", tables.TABLES)
def test_labels_of_a_table_are_there_once(name, full):
    plan = tables.TABLES[name].make_plan([*_core.by_isa][::-1], full)
    labels = [label for label, _ in plan]
    assert len(labels) == len({*labels}) > 0 or name == "threads"


@pytest.mark.parametrize("way", problems.WAYS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_pairs_are_those_that_are_seen_of_all_items(way, is_causal):
    scheme = problems.SCHEMES["plain"]
    problem = scheme.build(6, "float32", is_causal, 3, batch=2, dim=4)
    seen = 21 if is_causal else 36
    assert problem.pairs == 2 * 3 * seen
    each = {"forward": 4, "backward": 10, "forward+backward": 14}[way]
    assert scheme.flops(problem, way) == each * 4 * problem.pairs


def test_few_queries_are_the_last_ones():
    problem = problems.decode(10, queries=2)
    assert problem.options["query_offset"] == 8
    assert problem.pairs == 8 * (9 + 10)


@pytest.mark.devmode
def test_the_command_prints_and_writes_the_rows_asked_for(bench, tmp_path):
    file = tmp_path / "rows.json"
    printed = bench(
        "encodings", "small", "--rows", "^naive|rel_shift", "--json", str(file)
    )
    assert "encodings: encodings and skewing over NumPy" in printed
    found = json.loads(file.read_text())
    assert found["facts"]["isa"] == _core.isa
    assert len(found["rows"]) == 3
    for each in found["rows"]:
        assert each["label"] in printed
        assert each["figure"] > 0
        assert each["verdict"] in ("", "noisy")


def test_help_names_every_table(capsys):
    with pytest.raises(SystemExit) as end:
        __main__.main(["bench", "--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in tables.TABLES)


def test_an_unknown_table_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        __main__.main(["bench", "speed"])
    assert end.value.code == 2
    assert "speed" in capsys.readouterr().err
