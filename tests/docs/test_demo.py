"""The demo: what a check is, every step, the command line, the pictures."""

from __future__ import annotations

import io
import json
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import relpos
from relpos import __main__
from relpos._catalogue import measure
from relpos._catalogue.rows import ROWS
from relpos._demo import (
    beside_torch,
    models,
    modern,
    page,
    pictures,
    programme,
    recorded,
    schemes,
    training,
)
from relpos._demo.report import Report


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def report():
    return Report(stream=io.StringIO())


@pytest.fixture
def replaced(monkeypatch):
    """Let the demo load another case for a name."""
    load = recorded.load

    def replace(name, case):
        monkeypatch.setattr(recorded, "load", lambda n: case if n == name else load(n))

    return replace


def run_step(step, report):
    """Runs one step; returns its text."""
    step(report)
    assert [check for check in report.checks if not check["passed"]] == []
    return report.stream.getvalue()


def test_a_check_counts_and_says_its_limit(report):
    report.begin("numbers")
    assert report.check("small", 1e-9, 1e-6)
    assert report.check("large", 2.0, 1.0, at_least=True)
    assert not report.check("too large", 2e-6, 1e-6)
    assert not report.check("too small", 0.5, 1.0, at_least=True)
    assert not report.check("no number", np.nan, 1.0)
    assert not report.check("no number", np.nan, 1.0, at_least=True)
    assert report.summary() == "2 checks passed, 4 failed"
    text = report.stream.getvalue()
    assert "passed: small: 1e-09 <= 1e-06" in text
    assert "FAILED: too large: 2e-06 <= 1e-06" in text


def test_a_failure_in_a_table_gets_its_own_line(report):
    report.begin("numbers")
    report.check("good", 0.0, 1.0, in_table=True)
    report.check("bad", 2.0, 1.0, in_table=True)
    text = report.stream.getvalue()
    assert "FAILED: bad" in text
    assert "good" not in text
    assert len(report.checks) == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_the_status_tells_of_a_failure(monkeypatch, report, as_json):
    def good(report):
        report.begin("good")
        report.check("zero", 0.0, 0.0)

    def bad(report):
        report.begin("bad")
        report.check("one", 1.0, 0.0)

    report.quiet = as_json
    monkeypatch.setattr(programme, "STEPS", [good])
    assert programme.demo(as_json=as_json, report=report) is report
    monkeypatch.setattr(relpos, "demo", lambda **_: report)
    assert (report.failed, __main__.main(["demo"])) == (0, 0)
    monkeypatch.setattr(programme, "STEPS", [bad])
    programme.demo(as_json=as_json, report=report)
    assert (report.failed, __main__.main(["demo"])) == (1, 1)
    if not as_json:
        *text, last = report.stream.getvalue().splitlines()
        assert last == "1 checks passed, 1 failed"
        assert "   -- passed, 1 checks" in text
        assert "   -- 1 of 1 checks FAILED" in text


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch):
    def drawn(stream):
        report = Report(stream=stream)
        report.begin("map")
        report.words(["low", "high"], [[-1.0, 0.0], [1.0, 0.0]], limit=1.0)
        report.matrix([[1.0, 2.0]], mark=np.array([[False, True]]))
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\033[48;5;20m" in drawn(Terminal())
    plain = drawn(io.StringIO())
    assert "\033" not in plain
    assert " low   " in plain
    assert "high @@" in plain
    assert "[  2.00]" in plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert drawn(Terminal()) == plain


def test_sentences_are_found_by_relative_positions_only(report):
    text = run_step(programme.sentences, report)
    assert "'Hinton' is at -3" in text
    rows = report.steps[0]["tables"][0]["rows"]
    found = [row[0] for row in rows if row[-1] == "0.000"]
    assert found == ["words alone", "words + encodings relative to 'Bengio'"]


def test_skew_points_out_what_wrapped_around(report):
    text = run_step(programme.skewing, report)
    assert (
        text.count("[  0.00]") == 4
    )  # one zero after the diagonal of each row but one
    assert text.count("[ ") == 10  # the upper triangle of 5 x 5


def test_recorded_cores_name_their_makers(report):
    text = run_step(programme.recorded, report)
    for upstream in ("transformer-xl", "OpenNMT", "espnet", "tensor2tensor", "hugging",
                     "icefall", "enformer-pytorch"):  # fmt: skip
        assert upstream in text
    lines = report.steps[0]["tables"][0]["rows"]
    assert [line[0] for line in lines] == [c.title for c in recorded.CASES.values()]
    with_gradients = {line[0] for line in lines if line[-1] != "-"}
    assert with_gradients == {
        "Shaw, keys and values", "T5 encoder, 32 buckets", "BERT relative_key_query"
    } | {core.title for core in (models.CORES | modern.CORES).values()}  # fmt: skip
    assert len(report.checks) == 4


def test_recorded_layers_come_with_every_gradient(report):
    run_step(programme.layers, report)
    (table,) = report.steps[0]["tables"]
    assert [line[0].split(",")[0] for line in table["rows"]] == [
        "RelativeGlobalAttention", "ShawAttention", "RelPartialLearnableMultiHeadAttn",
        "ConformerRelPositionAttention",
    ]  # fmt: skip
    assert "-" not in {cell for line in table["rows"] for cell in line}
    assert len(report.checks) == 4


@pytest.mark.parametrize("step, name", [("recorded", "t5_encoder"), ("layers", None)])
def test_a_wrong_recorded_gradient_fails(replaced, report, step, name):
    """One number of one gradient, moved by a millionth of the largest."""
    name = name or "layer_conformer"
    array = "d_value" if step == "recorded" else "grad_w_linear_pos.weight"

    case = recorded.load(name)
    case[array] = case[array].copy()
    case[array].flat[3] += 1e-6 * np.abs(case[array]).max()
    replaced(name, case)
    getattr(programme, step)(report)
    (bad,) = [check for check in report.checks if not check["passed"]]
    assert bad["name"] == "worst of these, gradients in float64"


@pytest.mark.parametrize("name", recorded.CASES)
def test_float32_keeps_the_limit_of_its_roundings(isa, name):
    """Every instruction set adds in an order of its own."""
    case = recorded.load(name)
    gap, _ = recorded.differences(name, case, np.float32)
    allowed = recorded.limit(name, case, np.float32)
    assert gap <= allowed
    assert allowed < 1e-5 * np.abs(case["context"]).max()


def test_the_limit_of_roundings_grows_with_the_scores():
    case = recorded.load("t5_decoder")
    allowed = recorded.limit("t5_decoder", case, np.float32)
    louder = case | {"query": 4 * case["query"]}
    assert recorded.limit("t5_decoder", louder, np.float32) > 1.5 * allowed


@pytest.mark.parametrize("name", ["t5_decoder", "conformer", "dinov3_rotary"])
def test_an_output_beyond_its_limit_fails(replaced, report, name):
    """The case is shown, although gaps of other cases may be larger."""
    case = recorded.load(name)
    allowed = recorded.limit(name, case, np.float32)
    case["context"].flat[3] += 3 * allowed
    replaced(name, case)
    programme.recorded(report)
    failed = {check["name"]: check for check in report.checks if not check["passed"]}
    assert {*failed} == {f"worst of these, output in float{n}" for n in (32, 64)}
    shown = failed["worst of these, output in float32"]
    assert shown["limit"] == allowed
    assert shown["value"] == pytest.approx(3 * allowed, rel=0.5)


def test_no_number_fails(replaced, report):
    case = recorded.load("conformer")
    case["context"].flat[3] = np.nan
    replaced("conformer", case)
    programme.recorded(report)
    assert sum(not check["passed"] for check in report.checks) == 2


def test_every_scheme_keeps_its_limits(monkeypatch, report):
    fake = measure.Measurement(seconds=1e-3, memory=0)
    monkeypatch.setattr(schemes, "measure", lambda name, form: fake)
    run_step(schemes.schemes, report)
    names = {check["name"].split(",")[0] for check in report.checks}
    assert {"Shaw", "Music Transformer", "Transformer-XL", "learned table"} <= names
    assert {"ALiBi", "T5", "KERPLE", "DeBERTa", "FIRE"} <= names
    errors, speed = report.steps[0]["tables"]
    for table in (errors, speed):
        assert [row[0] for row in table["rows"]] == [row.name for row in ROWS]
    for row, cells in zip(ROWS, errors["rows"], strict=True):
        assert (cells[-1] == "-") == (row.gradients is None)
    counted = len(report.checks)
    assert counted > 6 * sum(row.gradients is not None for row in ROWS) - 6


def test_training_separates_the_curves(report):
    text = run_step(programme.training, report)
    assert "nothing but the distance" in text
    curves = report.steps[0]["curves"]
    assert [list(of) for of in curves.values()] == [
        ["k = 0", "k = 1", "k = 4"], ["keys and values", "keys", "values", "none"]
    ]  # fmt: skip
    assert all(len(x) == training.STEPS for of in curves.values() for x in of.values())


def test_curves_that_ignore_positions_fail(report):
    """If every model learned like the one without tables, seven of nine lines fail."""
    flat = [2.0] * training.STEPS
    report.begin("flat")
    settings = {*training.K_CURVES.values(), *training.TABLE_3.values()}
    training.check_curves(report, dict.fromkeys(settings, flat))
    assert {c["name"].split(":")[0] for c in report.checks if not c["passed"]} == {
        "k = 1", "k = 4", "keys", "values"
    }  # fmt: skip
    perfect = Report(stream=io.StringIO())
    perfect.begin("perfect")
    training.check_curves(perfect, dict.fromkeys(settings, [0.0] * training.STEPS))
    assert {c["name"].split(":")[0] for c in perfect.checks if not c["passed"]} == {
        "none", "k = 0", "k = 1"
    }  # fmt: skip


def test_the_floor_is_the_entropy_of_counts():
    """Two letters, alternating: half of all others, and all before at distance 1."""
    tokens = np.arange(training.LENGTH)[None] % 2
    share = (training.LENGTH / 2 - 1) / (training.LENGTH - 1)
    assert training.floor(tokens, before=False) == pytest.approx(-np.log(share))
    assert training.floor(tokens * 0, before=True) == 0
    places = np.arange(training.DISTANCE, training.LENGTH)
    want = -np.log((places // 2) / places).mean()
    assert training.floor(tokens, before=True) == pytest.approx(want)


class Utf8(io.StringIO):
    encoding = "utf-8"


@pytest.mark.parametrize(
    "stream, full, half", [(Utf8(), "█", "▅"), (io.StringIO(), "@", "=")]
)
def test_a_curve_goes_down(stream, full, half):
    report = Report(stream=stream)
    report.begin("curves")
    report.curves("loss", {"down": [2.0] * 40 + [1.0] * 40}, top=2.0, at=(1, 80))
    line = stream.getvalue().splitlines()[-1]
    assert line.split() == ["down", full * 20 + half * 20, "2.000", "1.000"]


def test_pictures(monkeypatch, tmp_path, report):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    run_step(programme.pictures, report)
    made = {path.stem for path in (tmp_path / pictures.FOLDER).iterdir()}
    assert made == {*pictures.PICTURES} == {*report.pictures}
    for title in ("one", "two"):
        report.curves(title, {"down": [2.0, 1.0]}, top=2.0, at=(1,))
    run_step(programme.pictures, report)
    made = {path.stem for path in (tmp_path / pictures.FOLDER).iterdir()}
    assert made == {*pictures.PICTURES, "training"}


def test_pictures_stand_in_the_notebook(monkeypatch, tmp_path, report):
    pytest.importorskip("matplotlib")
    shown = []
    display = SimpleNamespace(Image=lambda data: data, display=shown.append)
    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pictures, "PICTURES", {"skew": pictures.PICTURES["skew"]})
    run_step(programme.pictures, report)
    assert shown == [report.pictures["skew"]]
    assert not [*tmp_path.iterdir()]


def test_the_page_has_all_that_was_printed(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    report = Report(stream=Terminal())
    report.begin("a < b")
    report.check("one", 1.0, 0.0)
    report.words(["low"], [[-1.0, 0.0]], limit=1.0)
    report.end()
    report.pictures["skew"] = b"\x89PNG"
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr(page.webbrowser, "open", opened.append)
    page.show(report)
    (made,) = (tmp_path / pictures.FOLDER).iterdir()
    assert opened == [made.as_uri()]
    assert "No browser" in capsys.readouterr().err  # None is not True
    text = made.read_text("utf-8")
    assert "<h2>1. a &lt; b</h2>" in text
    assert '<b class="c31">FAILED</b>: one: 1 &lt;= 0' in text.replace("&gt;", ">")
    assert 'style="background:#0000d7">  </span>' in text
    assert 'src="data:image/png;base64,iVBORw=="' in text
    assert "\033" not in text and text.count("<pre>") == text.count("</pre>") == 1


def test_a_report_shows_how_its_steps_went(report):
    report.begin("good")
    report.check("zero", 0.0, 0.0)
    assert repr(report) == "<relpos demo: 1 checks passed, 0 failed>"
    assert "<td>good</td><td>passed, 1 checks</td>" in report._repr_html_()


def test_beside_torch(monkeypatch, report):
    """The last step: equal, or why there is nothing to compare."""
    assert programme.STEPS[-1] is beside_torch.beside_torch
    text = run_step(programme.beside_torch, report)
    if find_spec("torch") is None:
        assert "PyTorch is not installed" in text and report.checks == []
        return
    assert f"{len(ROWS)} schemes, outputs and gradients" in text
    assert report.failed == 0 and report.passed > 80
    worse = beside_torch.check_row(ROWS[-1])
    worse.errors[2] = 1.0
    monkeypatch.setattr(beside_torch, "check_row", lambda row: worse)
    failing = Report(stream=io.StringIO())
    programme.beside_torch(failing)
    assert failing.failed == len(ROWS)


def test_demo_command_prints_json(monkeypatch, capsys):
    steps = [programme.facts, programme.skewing, programme.pictures]
    monkeypatch.setattr(programme, "STEPS", steps)
    assert __main__.main(["demo", "--json", "--no-plots"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["facts"]["version"] == relpos.__version__
    assert printed["steps"][0]["title"] == "What is running"
    assert (printed["passed"], printed["failed"]) == (4, 0)


def test_info_command_prints_the_configuration(capsys):
    assert __main__.main(["info"]) == 0
    assert relpos.__version__ in capsys.readouterr().out


def test_a_command_is_needed(capsys):
    with pytest.raises(SystemExit) as stop:
        __main__.main([])
    assert stop.value.code == 2
    assert "command" in capsys.readouterr().err


def test_import_leaves_pictures_and_definitions_alone(child):
    child(
        "import sys, relpos\n"
        "heavy = {'matplotlib', 'relpos.plot', 'relpos.reference', 'relpos._demo'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert relpos.reference.attention and relpos.plot.attention_map"
    )
