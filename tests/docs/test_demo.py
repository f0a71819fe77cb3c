"""The demo: what a check is, every step, the command line, the pictures."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from documents import ROOT

import relpos
from relpos import __main__
from relpos._catalogue import measure
from relpos._catalogue.rows import ROWS
from relpos._demo import cores, page, programme, recorded, schemes, training
from relpos._demo.report import TEXTS, Report


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def report():
    return page.PageReport(stream=io.StringIO())


@pytest.fixture
def replaced(monkeypatch):
    """Let the demo load another case for a name."""
    load = recorded.load

    def replace(name, case):
        monkeypatch.setattr(recorded, "load", lambda n: case if n == name else load(n))

    return replace


def run_step(step, report):
    """Run one step and return its text."""
    step(report)
    report.end()
    assert [check for check in report.checks if not check["passed"]] == []
    return " ".join(report.steps[-1]["text"])


def test_a_check_counts_and_says_its_limit(report):
    report.begin("numbers")
    assert report.check("small", 1e-9, 1e-6)
    assert report.check("large", 2.0, 1.0, at_least=True)
    assert not report.check("too large", 2e-6, 1e-6)
    assert not report.check("too small", 0.5, 1.0, at_least=True)
    assert not report.check("no number", np.nan, 1.0)
    assert not report.check("no number", np.nan, 1.0, at_least=True)
    assert report.summary() == "2 checks passed, 4 failed"
    lines = report.stream.getvalue().splitlines()
    assert lines[0] == "    FAILED: too large: 2e-06 <= 1e-06" and len(lines) == 4


@pytest.mark.parametrize("as_json", [False, True])
def test_the_status_tells_of_a_failure(monkeypatch, tmp_path, report, as_json):
    def good(report):
        report.begin("good")
        report.check("zero", 0.0, 0.0)

    def bad(report):
        report.begin("bad")
        report.check("one", 1.0, 0.0)

    monkeypatch.chdir(tmp_path)
    report.quiet = as_json
    monkeypatch.setattr(programme, "STEPS", [good])
    assert programme.demo(as_json=as_json, report=report) is report
    monkeypatch.setattr(relpos, "demo", lambda **_: report)
    assert (report.failed, __main__.main(["demo"])) == (0, 0)
    monkeypatch.setattr(programme, "STEPS", [bad])
    programme.demo(as_json=as_json, report=report)
    assert (report.failed, __main__.main(["demo"])) == (1, 1)
    if as_json:
        return
    lines = report.stream.getvalue().splitlines()
    assert lines[-1].startswith("1 checks passed, 1 failed, in ")
    assert any("1. good" in line and "1 check passed" in line for line in lines)
    assert any("2. bad" in line and "1 of 1 checks FAILED" in line for line in lines)
    assert "    FAILED: one: 1 <= 0" in lines


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch):
    def printed(stream):
        report = Report(stream=stream)
        report.begin("step")
        report.check("one", 1.0, 0.0)
        report.end()
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\033[31mFAILED\033[0m" in printed(Terminal())
    assert "\033" not in printed(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in printed(Terminal())


def test_every_text_fits(report):
    """Titles fit a line of 80 columns, and all texts are said by a step."""
    titles = [step["title"] for name, step in TEXTS.items() if "title" in step]
    assert len(titles) == len(programme.STEPS)
    assert all(len(title) <= 46 for title in titles)
    assert {*TEXTS["cases"]} == {*cores.CORES, *recorded.LAYERS}
    assert {*TEXTS["picture"]} == {*page.PICTURES}
    for texts in TEXTS["picture"].values():
        assert all(texts[key].strip().endswith(".") for key in ("alt", "caption"))


def test_sentences_are_found_by_relative_positions_only(report):
    text = run_step(programme.sentences, report)
    assert '"Hinton" has position -3 in B' in text
    rows = report.steps[0]["tables"][0]["rows"]
    found = [row[0] for row in rows if row[-1] == "0.000"]
    assert found == ["words alone", "words + encodings relative to 'Bengio'"]


def test_skew_compares_with_gathered_scores(report):
    assert "6 rows of 5 numbers" in run_step(programme.skewing, report)
    assert len(report.checks) == 4


def test_recorded_cores_name_their_makers(report):
    run_step(programme.recorded, report)
    lines = report.steps[0]["tables"][0]["rows"]
    text = " ".join(line[1] for line in lines)
    for upstream in ("transformer-xl", "OpenNMT", "espnet", "tensor2tensor", "hugging",
                     "icefall", "enformer-pytorch"):  # fmt: skip
        assert upstream in text
    assert [line[0] for line in lines] == [TEXTS["cases"][name] for name in cores.CORES]
    with_gradients = {line[0] for line in lines if line[-1] != "-"}
    names = [*cores.CORES]
    assert with_gradients == {
        "Shaw, keys and values", "T5 encoder, 32 buckets", "BERT relative_key_query"
    } | {TEXTS["cases"][name] for name in names[names.index("umt5") :]}  # fmt: skip
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


@pytest.mark.parametrize(
    ("step", "name"), [("recorded", "t5_encoder"), ("layers", None)]
)
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


@pytest.mark.parametrize("name", cores.CORES)
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


def test_every_scheme_keeps_its_limits(monkeypatch, report, sized):
    rows = sized(ROWS[1::3], ROWS)
    monkeypatch.setattr(schemes, "ROWS", rows)
    fake = measure.Measurement(seconds=1e-3, memory=0)
    monkeypatch.setattr(schemes, "measure", lambda name, form: fake)
    run_step(schemes.schemes, report)
    names = {check["name"].split(",")[0] for check in report.checks}
    assert {row.name.split(",")[0] for row in rows if row.gradients} <= names
    with_gradients = {row.name.split(",")[0] for row in ROWS if row.gradients}
    assert {"Shaw", "Music Transformer", "Transformer-XL"} <= with_gradients
    assert {"learned table", "ALiBi", "T5", "KERPLE"} <= with_gradients
    assert {"DeBERTa", "FIRE"} <= with_gradients
    errors, speed = report.steps[0]["tables"]
    for table in (errors, speed):
        assert [row[0] for row in table["rows"]] == [row.name for row in rows]
    for row, cells in zip(rows, errors["rows"], strict=True):
        assert (cells[-1] == "-") == (row.gradients is None)
    counted = len(report.checks)
    assert counted > 6 * sum(row.gradients is not None for row in rows) - 6


def test_training_separates_the_curves(monkeypatch, report, sized):
    steps = sized(300, training.STEPS)
    monkeypatch.setattr(training, "STEPS", steps)
    monkeypatch.setattr(training, "SHOWN", (1, 50, 100, 200, steps))
    run_step(programme.training, report)
    curves = report.steps[0]["curves"]
    assert [list(of) for of in curves.values()] == [
        ["k = 0", "k = 1", "k = 4"], ["keys and values", "keys", "values", "none"]
    ]  # fmt: skip
    assert all(len(x) == steps for of in curves.values() for x in of.values())


def test_curves_that_ignore_positions_fail(report):
    """If every model learned like the one without tables, seven of nine lines fail."""
    flat = [2.0] * training.STEPS
    report.begin("training")
    settings = {*training.K_CURVES.values(), *training.TABLE_3.values()}
    training.check_curves(report, dict.fromkeys(settings, flat))
    assert {c["name"].split(":")[0] for c in report.checks if not c["passed"]} == {
        "k = 1", "k = 4", "keys", "values"
    }  # fmt: skip
    perfect = Report(stream=io.StringIO())
    perfect.begin("training")
    training.check_curves(perfect, dict.fromkeys(settings, [0.0] * training.STEPS))
    assert {c["name"].split(":")[0] for c in perfect.checks if not c["passed"]} == {
        "none", "k = 0", "k = 1"
    }  # fmt: skip


@pytest.mark.parametrize(("curve", "steps"), [([2.0, 0.5, 0.1], 2), ([2.0, 1.0], 3)])
def test_steps_to_a_loss_begin_at_1(curve, steps):
    assert training.steps_to(1.0, curve) == steps


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
    ("stream", "full", "half"), [(Utf8(), "█", "▅"), (io.StringIO(), "@", "=")]
)
def test_a_curve_goes_down(stream, full, half):
    report = Report(stream=stream)
    report.begin("curves")
    report.curves("loss", {"down": [2.0] * 40 + [1.0] * 40}, top=2.0, at=(1, 80))
    (table,) = report.steps[0]["tables"]
    assert table["rows"] == [["down", full * 20 + half * 20, "2.000", "1.000"]]
    (shown,) = report.blocks[0]
    assert shown.header == ["loss", "step 1", "step 80"]
    assert shown.rows == [["down", "2.000", "1.000"]]


@pytest.fixture
def complete(report):
    """A report of three short steps, all pictures of which are drawn."""
    pytest.importorskip("matplotlib")
    for step in (programme.environment, programme.sentences, programme.skewing):
        run_step(step, report)
    report.begin("training")
    report.curves("loss", {"down": [2.0, 1.0]}, top=2.0, at=(1,))
    report.picture("training", curves={"loss": {"down": [2.0, 1.0]}})
    report.picture("times", rows=["a"], series={"relpos": [1.0]}, unit="ms")
    report.table("many rows", ["", "x"], [[f"<{n}>", "1"] for n in range(13)])
    report.end()
    return report


def test_the_maps_of_attention_fill_their_picture():
    figures = pytest.importorskip("matplotlib.figure")
    size, draw = page.PICTURES["attention"]
    figure = figures.Figure(figsize=size, layout="constrained")
    draw(figure, recorded.with_and_without())
    figure.draw_without_rendering()
    left = min(ax.get_tightbbox().x0 for ax in figure.axes)
    assert left < 0.1 * figure.bbox.width


def test_pictures(monkeypatch, tmp_path, complete):
    monkeypatch.chdir(tmp_path)
    run_step(programme.pictures, complete)
    made = {path.stem for path in (tmp_path / page.FOLDER).iterdir()}
    assert made == {*complete.pictures} == {"sentences", "skew", "training", "times"}


def test_a_notebook_shows_the_report(monkeypatch, tmp_path, complete):
    """No files are written, and the output of the cell has the pictures."""
    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell, version_info=(8, 24))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programme, "STEPS", [programme.pictures])
    assert programme.demo(report=complete) is complete
    assert not [*tmp_path.iterdir()]
    html = complete._repr_html_()
    assert html.count('<img alt="') == 4 and html in page.page(complete).replace(
        "<style>" + page.BODY, "<style>"
    ).replace("</style>\n</head>\n<body>\n<main>", "</style>")
    assert repr(complete) == "<relpos demo: 11 checks passed, 0 failed>"


class Outline(HTMLParser):
    """A parser that fails where an end tag does not belong to the open element."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs))
        self.elements.append((tag, dict(attrs), self.open[-1] if self.open else None))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole(monkeypatch, tmp_path, complete, capsys):
    """It is valid, self-contained and small; its tables are tables."""
    complete.begin("a < b")
    complete.check("one & two", 1.0, 0.0)
    complete.end()
    monkeypatch.chdir(tmp_path)
    programme.pictures(complete)
    complete.end()
    opened = []
    monkeypatch.setattr(page.webbrowser, "open", opened.append)
    page.show(complete)
    path = tmp_path / page.FOLDER / "report.html"
    assert opened == [path.as_uri()]
    assert "No browser" in capsys.readouterr().err  # None is not True
    text = path.read_text("utf-8")
    assert len(text) < 2e6
    elements = Outline(text).elements
    allowed = {
        "table": "div",
        "tr": ("thead", "tbody"),
        "li": "ul",
        "summary": "details",
    }
    for tag, attrs, parent in elements:
        assert parent in allowed.get(tag, (parent,))
        assert "href" not in attrs and attrs.get("src", "data:").startswith("data:")
        if tag == "img":
            assert len(attrs["alt"]) > 20
    assert "http" not in text and "url(" not in text and "@import" not in text
    rows = sum(tag == "tr" for tag, _, _ in elements)
    assert rows > 30 and sum(tag == "img" for tag, _, _ in elements) == 4
    assert text.index("Checks that failed") < text.index("<section>")
    assert "a &lt; b: one &amp; two" in text and "&lt;12&gt;" in text
    assert "many rows (13 rows)</summary>" in text


def test_the_page_is_valid(complete):
    html5lib = pytest.importorskip("html5lib")
    complete.pictures["skew"] = b"\x89PNG"
    html5lib.HTMLParser(strict=True).parse(page.page(complete))


def luminance(colour):
    """Return the relative luminance of #rgb or #rrggbb, as WCAG defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * x for x in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [
        x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_contrast(mode):
    light, dark = page.STYLE.split("@media (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"--(\w+): (#\w+)", light if mode == "light" else dark))
    assert {"ink", "soft", "paper", "link", "good", "bad"} < {*colours}
    for name in ("ink", "soft", "link", "good", "bad"):
        pair = sorted(luminance(colours[key]) for key in (name, "paper"))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, name
    assert "font-size: 0" not in page.STYLE and "font-size: ." not in page.STYLE


def test_the_terminal_has_80_columns(monkeypatch, tmp_path, report):
    """Lines of parts, and the table of times with the names of all schemes."""
    fake = measure.Measurement(seconds=123.4567, memory=0)
    monkeypatch.setattr(schemes, "measure", lambda name, form: fake)
    monkeypatch.setattr(schemes, "accuracy", lambda report: None)
    monkeypatch.setattr(programme, "STEPS", [programme.environment, schemes.schemes])
    programme.demo(plots=False, report=report)
    lines = report.stream.getvalue().splitlines()
    assert len(lines) > len(ROWS)
    assert all(len(line) <= 80 for line in lines if not line.startswith("CPU"))
    assert f"{len(ROWS)} schemes" in report.stream.getvalue()


def test_pytorch(monkeypatch, report):
    """The last step compares every scheme."""
    assert programme.STEPS[-1] is schemes.pytorch
    pytest.importorskip("torch")
    text = run_step(programme.pytorch, report)
    assert f"the outputs of {len(ROWS)} schemes" in text
    assert report.failed == 0 and report.passed > 80
    worse = schemes.check_row(ROWS[-1])
    worse.errors[2] = 1.0
    monkeypatch.setattr(schemes, "check_row", lambda row: worse)
    failing = Report(stream=io.StringIO())
    programme.pytorch(failing)
    assert failing.failed == len(ROWS)


def test_a_part_that_needs_pytorch_says_that_it_is_missing(monkeypatch, report):
    """In its text, its line in the terminal, the table of parts, and the JSON."""
    monkeypatch.setattr(schemes, "find_spec", lambda name: None)
    assert "PyTorch is not installed" in run_step(programme.pytorch, report)
    assert (
        report.checks == [] and report.as_dict(0.0)["steps"][0]["missing"] == "PyTorch"
    )
    assert "PyTorch is missing" in report.stream.getvalue()
    assert "<td>PyTorch is missing</td>" in page.page(report)


def test_the_page_fits_a_screen_and_a_phone(monkeypatch, tmp_path, complete):
    """The table of layers fits a screen; on a phone tables scroll in their box."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    layout = pytest.importorskip("check_layout")
    if not shutil.which("chromium"):
        pytest.skip("no Chromium here")
    monkeypatch.setattr(schemes, "find_spec", lambda name: None)
    for step in (programme.recorded, programme.layers, programme.pytorch):
        run_step(step, complete)
    (tmp_path / "report.html").write_text(page.page(complete), "utf-8")
    assert layout.look(tmp_path, ["report.html"]) == {"report.html": []}


def test_demo_command_prints_json(monkeypatch, capsys):
    steps = [programme.environment, programme.skewing, programme.pictures]
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
