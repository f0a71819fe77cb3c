"""Layers and models of `python -m benchmarks.transformers`: all ways are the same."""

from __future__ import annotations

import json
import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks import short_inputs, transformers as page  # noqa: E402
from benchmarks.families import ALL_LAYERS  # noqa: E402
from benchmarks.layers import WAYS, caught  # noqa: E402
from benchmarks.short_inputs import MODELS, Size  # noqa: E402

pytestmark = pytest.mark.torch

#: A square, which a map of cells has to be.
LENGTH = 49


@pytest.mark.parametrize("name", ALL_LAYERS)
def test_ways_are_equal(name):
    layer = ALL_LAYERS[name]
    eager = caught(layer, "eager", LENGTH)
    wanted = eager.step()
    assert torch.equal(eager.forward(), wanted[0])
    assert {"eager"} < set(layer.ways) <= set(WAYS)
    for way in layer.ways[1:]:
        found = caught(layer, way, LENGTH)
        page.check(name, way, found.step(), wanted)
        assert torch.allclose(found.forward(), wanted[0], rtol=1e-4, atol=1e-4)


def test_wrong_results_are_not_timed():
    wanted = caught(ALL_LAYERS["WavLM"], "eager", LENGTH).step()
    for number in (0, len(wanted) - 1):
        wrong = [x + 0.01 * x.abs().max() * (n == number) for n, x in enumerate(wanted)]
        with pytest.raises(ValueError, match=rf"WavLM mine: result {number} is \d"):
            page.check("WavLM", "mine", wrong, wanted)


@pytest.mark.parametrize("name", MODELS)
def test_ways_of_a_small_model_are_equal(name):
    size, model = Size(width=96, heads=12, image=32), MODELS[name]
    assert {"eager"} < set(model.ways) <= set(WAYS)
    found = {}
    for way, made in short_inputs.works(name, size).items():
        torch.manual_seed(1)
        found[way] = model.call(made, 2, 9, size)
    wanted = found["eager"].step()
    assert torch.equal(found["eager"].forward(), wanted[0])
    for way in model.ways[1:]:
        page.check(name, way, found[way].step(), wanted)


def test_rows_of_the_page():
    specs = page.all_specs()
    assert len({*specs}) == len(specs)
    for name, model in MODELS.items():
        rows = [(s.length, s.batch) for s in specs if s[:2] == ("short", name)]
        if model.length is None:
            several = [(length, batch) for length in (16, 64, 256) for batch in (1, 8)]
            assert rows == [*several, (512, 1), (2048, 1)]
        else:
            assert rows == [(model.length, 1), (model.length, 8)]
        for setting in page.OTHER_SETTINGS:
            others = [(s.length, s.batch) for s in specs if s[:2] == (setting, name)]
            assert {*others} < {*rows} and (rows[0] in others)


def test_memory_of_a_call():
    used = page.in_fork(lambda: page.memory_of(lambda: b"x" * 2**25))
    assert used is None or 2**25 <= used < 2**26


def row_of(spec, **seconds):
    costs = {way: {"seconds": x, "bytes": 3e6} for way, x in seconds.items()}
    return {**spec._asdict(), "forward": costs, "training": costs}


FACTS = ("date", "cpu", "isa", "relpos", "torch", "transformers")


def test_the_report_compares_with_the_faster_of_the_ways_of_a_model():
    layer = page.Spec("layers", "M", 9, 1)
    model = page.Spec("short", "N", 16, 8)
    rows = [
        row_of(layer, eager=0.2, replaced=0.1),
        row_of(model, eager=0.4, sdpa=0.3, registered=0.2, replaced=0.15),
    ]
    text = page.report(rows, dict.fromkeys(FACTS, ""))
    assert (
        text.count("| M | 1 | 9 | 200.0 |  |  | 100.0 | **2.00** | 3 |  |  | 3 |") == 2
    )
    times = "400.0 | 300.0 | 150.0 | **2.00**"
    assert f"\n| N | 8 | 16 | {times} | {times} |\n" in text
    for setting in page.OTHER_SETTINGS:
        assert f"{setting}: forward" not in text
    assert "M, B = 1, L = 9" in page.text_of(rows[0])
    assert page.slow(rows) == []
    slower = row_of(model, eager=0.4, sdpa=0.19, registered=0.2)
    (line,) = page.slow([slower])
    assert "forward 0.95, training 0.95" in line


def test_a_table_is_on_the_page_once_it_has_all_rows():
    rows = [row_of(spec, eager=0.2, replaced=0.1) for spec in page.all_specs()]
    assert page.whole_tables(rows) == rows
    layers = [row for row in rows if row["table"] == "layers"]
    last = [row for row in rows if row["table"] == rows[-1]["table"]]
    assert page.whole_tables(rows[:-1]) == [row for row in rows if row not in last]
    assert page.whole_tables(rows[1:]) == [row for row in rows if row not in layers]
    text = page.report(layers, dict.fromkeys(FACTS, ""))
    assert "## Training step" in text and "## Short inputs" not in text


def test_a_row_ends_with_its_gains_in_other_settings():
    model = page.Spec("short", "N", 16, 8)
    rows = [row_of(model, eager=0.4, registered=0.2)]
    rows += [row_of(model._replace(length=64), eager=0.4, registered=0.2)]
    rows += [row_of(model._replace(table="two threads"), eager=0.3, registered=0.2)]
    first, second = page.table_of_models(rows[:2], rows).splitlines()[2:]
    assert first.endswith("**2.00** | 1.50 | 1.50 |")
    assert second.endswith("**2.00** |  |  |")


def test_settings_reach_the_process_that_measures():
    setting = page.Setting(threads=2, isa="avx2")
    assert setting.environment["ATEN_CPU_CAPABILITY"] == "avx2"
    assert setting.environment["RELPOS_NUM_THREADS"] == "2"
    assert not {*page.ISA_VARIABLES} & {*page.ONE_THREAD.environment} - {*os.environ}


def test_figures_are_added_to_those_of_a_file(tmp_path):
    path, about = tmp_path / "figures.json", {"cpu": "c", "date": "now"}
    first, second = page.all_specs()[:2]
    times = {"eager": 0.2, "replaced": 0.1}
    stored = [row_of(second, **times), row_of(first, **times)]
    assert page.with_those_of(path, stored, about) == stored
    path.write_text(json.dumps({"about": {**about, "date": "then"}, "rows": stored}))
    again = row_of(second, eager=0.3, replaced=0.1)
    assert page.with_those_of(path, [again], about) == [stored[1], again]
    with pytest.raises(ValueError, match="has figures of cpu c; expected d"):
        page.with_those_of(path, [again], {"cpu": "d", "date": "now"})
