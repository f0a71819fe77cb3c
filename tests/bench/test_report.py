"""The report of made-up results: its goals, tables and pictures; what fell behind."""

from __future__ import annotations

import re

import pytest

from benchmarks import (
    __main__,
    compare,
    goals,
    grid,
    pictures,
    report,
)
from benchmarks.results import MEASURED, Results
from benchmarks.rows import Spec
from benchmarks.tables import price
from benchmarks.timing import Row


def entrant(name, share, ready_made=False):
    fields = {"name": name, "ready_made": ready_made, "share": share}
    return fields | {"seconds": 0.01 / share, "error": 1e-7, "kept": 5, "tried": 6}


def made(spec, ours=0.8, loop=0.4, ready=0.2):
    """A row in which a loop takes twice as long as relpos, a library four times."""
    said = [
        entrant("relpos", ours),
        entrant("blocks", loop),
        entrant("library", ready, True),
        {"name": "absent", "ready_made": True, "skipped": "needs torch"},
    ]
    fields = {"scheme": spec.scheme, "is_causal": spec.is_causal, "mode": spec.mode}
    fields |= {"shape": [*spec.shape], "threads": spec.threads, "label": spec.label}
    return fields | {"useful": 1e9, "date": "2026-01-02 03:04", "entrants": said}


def priced(each, figure=1.25):
    """A scheme that takes a quarter more."""
    place = {n: getattr(each.place, n) for n in ("way", "direction", "length", "heads")}
    said = {"name": each.name, "over": each.over, "label": each.label, **place}
    figures = {"figure": figure, "lowest": figure, "highest": figure, "seconds": 0.01}
    figures |= {"kept": 5, "tried": 6, "target": each.target}
    return said | figures | {"date": "2026-02-03 04:05"}


@pytest.fixture
def results():
    filled = Results({"cpu": "a CPU", "isa": "avx2", "relpos": "1.0", "numpy": "2.0"})
    filled.rows = {each.label: made(each) for each in grid.grid()}
    sizes = {"relpos": 5_000_000, "blocks": 20_000_000, "library": None}
    for each in grid.memory():
        fields = made(each) | {
            "entrants": [
                {"name": name, "ready_made": name == "library", "bytes": size}
                for name, size in sizes.items()
            ]
        }
        filled.memory[each.label] = fields
    filled.prices = {each.label: priced(each) for each in price.prices(full=True)}
    return filled


def test_the_fastest_peer_and_the_fastest_ready_made_one():
    row = made(Spec("music", True, "fwd", (1, 8, 1024, 64)))
    assert goals.fastest(row)[::2] == ("blocks", 2.0)
    assert goals.fastest(row, ready_made=True)[::2] == ("library", 4.0)
    row["entrants"] = row["entrants"][:1]
    assert goals.fastest(row) is None


def test_a_goal_counts_its_rows_alone(results):
    (any_row, *_), many = goals.GOALS, goals.GOALS[-1]
    assert len(any_row.ratios(results.rows.values())) == len(results.rows)
    assert len(many.ratios(results.rows.values())) == 12
    for goal in goals.GOALS:
        found = goal.ratios(results.rows.values())
        assert found
        assert {figure for figure, _ in found} == {4.0 if goal.ready_made else 2.0}


def test_the_page_has_every_row_and_says_who_was_left_out(results):
    slow = Spec("xl", False, "fwd", (1, 8, 2048, 64))
    results.rows[slow.label] = made(slow, ours=0.3)
    page = report.page(results, {"ratios.svg": "a picture"})
    assert "![a picture](pictures/ratios.svg)" in page
    assert "a CPU, avx2" in page
    assert "numpy 2.0" in page and "torch" not in report.about(results)
    lines = re.findall(r"^\| .* \|$", page, re.MULTILINE)
    assert "| Music Transformer | forward | 12.5 ms | 0.80 | 1.00 | blocks" in page
    shapes = [line for line in lines if re.search(r"\d+, \d, \d+, 64", line)]
    assert "| Shaw / plain | causal |" in page
    assert len(shapes) == sum(row["threads"] == 1 for row in results.rows.values())
    assert "| **0.75** |" in page
    assert f"{slow.label} |" in page
    assert f"| absent | needs torch | {len(results.rows)} |" in page
    assert "| blocks | 20.0 | 20.0 |" in page
    assert "library | " not in page[page.index("## Extra memory") :].split("##")[1]


def test_a_page_of_few_rows_is_a_page(results):
    first, *_ = results.rows.values()
    results.rows, results.memory = {first["label"]: first}, {}
    results.prices = {}
    first["entrants"][0] = {"name": "relpos", "ready_made": False, "skipped": "failed"}
    page = report.page(results, {})
    assert "failed" in page
    assert "## Extra memory" not in page


def test_the_readme_gets_its_lines_between_the_marks(results, tmp_path, monkeypatch):
    drawn = {"a.svg": "a picture"}
    monkeypatch.setattr(pictures, "draw", lambda results, folder: drawn)
    path = tmp_path / "README.md"
    path.write_text(f"above\n{report.BEGIN}\nold\n{report.END}\nbelow\n")
    (tmp_path / "benchmarks").mkdir()
    page, same = report.write(results, tmp_path / "benchmarks")
    assert same == path
    assert page.read_text() == report.page(results, drawn)
    above, *lines, last, below = path.read_text().splitlines()
    assert (above, below) == ("above", "below")
    assert (lines[0], last) == (report.BEGIN, report.END)
    assert lines[1].endswith("| a CPU |")  # after those that the repository lists
    assert lines[-1].endswith("on a CPU](benchmarks/pictures/ratios.svg)")
    with pytest.raises(ValueError, match="no lines"):
        report.with_lines("a text without marks", results)


CPUS = """
[[cpu]]
name = "another CPU"
title = "Another"

[[cpu]]
name = "a CPU"
title = "This one"
"""


def cells(text):
    """The table of a text: its rows by their first cells."""
    rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return {name: rest for name, *rest in (row.split(" | ") for row in rows)}


def test_the_readme_s_table_has_a_column_for_each_cpu_of_this_version(
    results, tmp_path
):
    """The order is that of cpus.toml; rows of another version make no column."""
    (tmp_path / "cpus.toml").write_text(CPUS)
    between = f"{report.BEGIN}{report.END}\n"
    alone = cells(report.with_lines(between, results, tmp_path))
    assert alone[""] == ["This one"]
    cases = sum(goals.is_long(x, *report.SCHEMES) for x in results.rows.values())
    shown = [["2.00 to 2.00"]] * 3 + [["256 to 4096"], [str(cases)]]
    shown += [["NumPy"], ["January 2026"], ["1.0"]]
    assert [*alone.values()][2:] == shown
    for cpu in ("another CPU", "a third CPU"):
        results.facts["cpu"] = cpu
        results.write(tmp_path / f"{cpu}.json")
    results.facts |= {"cpu": "a fourth CPU", "relpos": "0.9"}
    results.write(tmp_path / "fourth.json")
    results.facts |= {"cpu": "a CPU", "relpos": "1.0"}
    assert cells(report.with_lines(between, results, tmp_path))[""] == [
        "Another", "This one", "a third CPU"
    ]  # fmt: skip


def test_the_price_of_learned_positions_is_one_sentence(results, tmp_path):
    (tmp_path / "cpus.toml").write_text(CPUS)
    inkling = [x for x in results.prices.values() if x["name"] == "Inkling"]
    for row, figure in zip(inkling, (1.07, None, 1.125), strict=False):
        row["figure"] = figure
    said = " ".join(report.in_short(results, tmp_path).split())
    assert "Inkling's attention takes 1.07 to 1.25 times as long as attention" in said
    assert "(This one, February 2026)" in said
    results.prices.clear()
    assert "Inkling" not in report.in_short(results, tmp_path)


def test_the_readme_is_written_from_what_is_stored():
    text = (MEASURED.parents[1] / "README.md").read_text(encoding="utf-8")
    assert 0 < text.index(report.BEGIN) < text.index(report.END)
    written = [
        report.with_lines(text, Results.read(path)) for path in MEASURED.glob("*.json")
    ]
    assert text in written


def test_prices_are_a_table_with_their_targets(results):
    head, _, *lines = report.prices_table(results.prices.values()).splitlines()
    assert "| L = 1024, forward | L = 1024, forward and backward | L = 2048, f" in head
    assert len(lines) == sum(len(each.directions) for each in price.PRICED.values())
    (shaw,) = [x for x in lines if x.startswith("| Shaw / plain | both")]
    assert shaw.split(" | ")[2:] == [
        "1.25 (≤ 1.25)",
        "1.25 (≤ 1.20)",
        "1.25",
        "1.25",
        "1.25 (≤ 1.08)",
        "1.25",
        "1.25 |",
    ]
    results.prices = {}
    assert "The price of positions" not in report.page(results, {})


def test_pictures_are_the_same_each_time(results, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = pictures.draw(results, tmp_path)
    first = {name: (tmp_path / name).read_bytes() for name in drawn}
    assert len(first) == 5
    assert pictures.draw(results, tmp_path) == drawn
    assert first == {name: (tmp_path / name).read_bytes() for name in drawn}
    assert all(1000 < len(picture) < 100_000 for picture in first.values())


def test_what_fell_behind_is_said():
    spec = Spec("music", True, "fwd", (1, 8, 512, 64))
    before = made(spec)
    assert [*compare.fallen(made(spec), before)] == []
    assert [*compare.fallen(made(spec, ours=0.78), before)] == []
    fell = [*compare.fallen(made(spec, ours=0.6), before)]
    assert fell[0] == "0.600 of the peak, 0.800 before"
    assert fell[1] == "1.50 times as fast as blocks, 2.00 before"
    faster_peer = [*compare.fallen(made(spec, loop=0.5), before)]
    assert faster_peer == ["1.60 times as fast as blocks, 2.00 before"]
    broken = made(spec)
    broken["entrants"][0] = {"name": "relpos", "skipped": "failed"}
    assert [*compare.fallen(broken, before)] == ["relpos was not timed"]


def test_prices_are_measured_and_kept_as_they_come(monkeypatch, tmp_path, capsys):
    first, second = price.prices(full=True)[:2]
    monkeypatch.setattr(__main__.price, "prices", lambda full: [first, second])
    measured = []

    def measure(self, isa, repeats):
        measured.append(self.label)
        return Row(self.label, "x", [1.2, 1.1, 1.3], 4, seconds=0.01, error=1e-7)

    monkeypatch.setattr(price.Price, "measure", measure)
    run = ["--prices", "--json", str(tmp_path / "a.json")]
    assert __main__.main(run) == 0
    assert "1.200 (1.100 to 1.300, 3 of 4 kept)" in capsys.readouterr().out
    found = Results.read(tmp_path / "a.json")
    assert found.rows == {} and [*found.prices] == [first.label, second.label]
    assert found.prices[first.label]["figure"] == 1.2
    del found.prices[first.label]
    found.write(tmp_path / "a.json")
    assert __main__.main([*run, "--missing"]) == 0
    assert measured == [first.label, second.label, first.label]
    monkeypatch.setattr(
        price.Price, "measure", lambda self, isa, n: Row(self.label, "x", [], 12)
    )
    assert __main__.main(run) == 0
    assert "no repeat was kept" in capsys.readouterr().out


def test_the_quick_comparison_needs_stored_results(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(compare, "stored_path", lambda: tmp_path / "a-cpu.json")
    assert __main__.main(["--quick"]) == 0
    assert "nothing is stored" in capsys.readouterr().out


def test_the_quick_comparison_measures_what_is_stored(
    monkeypatch, results, tmp_path, capsys
):
    results.write(tmp_path / "a-cpu.json")
    monkeypatch.setattr(compare, "stored_path", lambda: tmp_path / "a-cpu.json")
    asked = []

    def records(specs, seconds):
        asked.extend(specs)
        return [made(spec, ours=0.4 if spec.scheme == "xl" else 0.8) for spec in specs]

    monkeypatch.setattr(compare.worker, "records", records)
    assert __main__.main(["--quick"]) == 0
    assert asked == grid.quick()
    *_, last = capsys.readouterr().out.split("\n\n")
    assert "xl causal fwd 1,8,512,64: 0.400 of the peak, 0.800 before" in last
    assert "music" not in last


@pytest.mark.parametrize("file", [*MEASURED.glob("*.json")], ids=lambda file: file.stem)
def test_stored_results_are_of_the_grid(file):
    found = Results.read(file)
    assert {*found.rows} <= {spec.label for spec in grid.grid()}
    assert report.page(found, {}).count("## ") >= 4
