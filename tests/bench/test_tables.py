"""Tables of ``python -m benchmarks``: labels, prices, and problems with definitions."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import __main__, plain_loops, problems, tables
from benchmarks.tables import decode, price, small_calls
from relpos import _bench, _core


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


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("way", problems.WAYS)
@pytest.mark.parametrize("name", problems.SCHEMES)
def test_benchmarks_hold_their_problems_to_the_definitions(name, way, is_causal):
    """`prepared` ends the program where a result is wrong."""
    scheme = problems.SCHEMES[name]
    problem = scheme.build(24, "float32", is_causal, heads=2)
    call, error = problem.prepared(way, 1, name)
    call()
    assert 0 < error < 1e-6
    assert scheme.flops(problem, way) > 0


# ---- the price of positions ----------------------------------------------------------


def places(name):
    """A small one for every way and direction."""
    length = 3 * price.DOCUMENTS  # a document has a token, at least
    return [
        price.Place(way, direction, length, 2)
        for way in price.WAYS
        for direction in price.PRICED[name].directions
    ]


@pytest.mark.few(6)
@pytest.mark.parametrize("name", price.PRICED)
def test_what_is_priced_is_held_to_the_definitions(name):
    for place in places(name):
        each = price.Price(name, place)
        for make in (price.PRICED[name].make, price.BASES[each.over]):
            call, error = make(place, each.label)
            call()
            assert 0 < error < 2e-6


def test_documents_are_all_of_the_sequence():
    place = price.Place("forward", "both", 1024, 2)
    found = price.documents(place)
    assert len(found) == price.DOCUMENTS
    assert [begin for begin, _ in found[1:]] == [end for _, end in found[:-1]]
    assert (found[0][0], found[-1][1]) == (0, 1024)
    assert min(end - begin for begin, end in found) > 10


def test_a_mask_is_checked_row_by_row():
    """An option with an axis of queries is cut as the query is."""
    options = {"is_causal": False, "attn_mask": np.tri(6, dtype=bool)}
    plain = problems.SCHEMES["plain"].build(6, "float32", False, 2, dim=4)
    masked = dataclasses.replace(plain, options=options)
    causal = problems.SCHEMES["plain"].build(6, "float32", True, 2, dim=4)
    out = masked.out(np.nan)
    call = masked.call(1, out=out)
    call()
    assert causal.check(out, "a mask") < 1e-6
    with pytest.raises(SystemExit, match="wrong result"):
        plain.check(out, "a mask")
    assert masked.prepared("forward+backward", 1, "a mask")[1] < 1e-6


def test_a_price_is_a_row():
    place = price.Place("forward", "both", 48, 2)
    row = price.Price("Shaw", place, 99.0).measure(_core.isa, 3)
    assert row.label == "forward Shaw / plain both L=48"
    assert (row.unit, row.at_most, row.target) == ("x plain", True, 99.0)
    assert row.verdict in ("PASS", "noisy")


def test_help_names_every_table(capsys):
    with pytest.raises(SystemExit) as end:
        __main__.main(["--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in tables.TABLES)


@pytest.mark.devmode
def test_the_command_prints_and_writes_the_rows_asked_for(
    monkeypatch, capsys, tmp_path
):
    for name in _bench.BLAS_THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")
    file = tmp_path / "rows.json"
    rows = "^naive|rel_shift"
    command = ["encodings", "small", "--rows", rows, "--json", str(file)]
    assert __main__.main(command) == 0
    printed = capsys.readouterr().out
    assert "encodings: encodings and skewing over NumPy" in printed
    found = json.loads(file.read_text())["rows"]
    assert len(found) == 3
    assert all(each["label"] in printed for each in found)
    assert all(each["verdict"] == "noisy" or each["figure"] > 0 for each in found)


# ---- plain loops in C ----------------------------------------------------------------


@pytest.mark.parametrize("of_read", [False, True])
def test_decoding_is_over_a_plain_loop(of_read):
    row = decode.plain_loop_row("decode", 24, of_read, 99.0, _core.isa, 3)
    assert (row.at_most, row.target) == (True, 99.0)
    assert row.error is not None and row.error < 1e-6
    assert row.verdict in ("PASS", "noisy")


@pytest.mark.parametrize("of_loops", [False, True])
def test_a_short_call_is_over_a_plain_loop(of_loops):
    tables = small_calls.LOOPS["Shaw"]
    row = small_calls.loop_row("Shaw", tables, 16, of_loops, 1)
    assert row.at_most
    assert row.figure > 0
    assert row.error is not None and row.error < 1e-6


def test_a_plain_loop_that_is_wrong_ends_the_program(monkeypatch):
    """Each is compared with NumPy before it is timed."""
    arrays = [problems.decode(24).arrays[name] for name in ("query", "key", "value")]
    plain_loops.read_bits(*arrays)()
    plain_loops.gemv_pairs(*arrays)()
    tokens = [problems.decode(32).arrays["key"][0]] * 3
    plain_loops.attend(*tokens)
    wrong = SimpleNamespace(
        gemv_pairs=lambda *_: 0, read_bits=lambda *_: 0, attend=lambda *_: 0
    )
    monkeypatch.setattr(plain_loops, "library", lambda: wrong)
    for loop in (plain_loops.read_bits, plain_loops.gemv_pairs):
        with pytest.raises(SystemExit, match="wrong result"):
            loop(*arrays)
    with pytest.raises(SystemExit, match="wrong result"):
        plain_loops.attend(*tokens)
