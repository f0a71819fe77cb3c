"""The site's pages: one for each scheme, examples that run, links checked as built."""

from __future__ import annotations

import importlib
import re
import runpy
import shutil
import subprocess
import sys

import pytest
from documents import ROOT, run_examples

from relpos import reference
from relpos._opinion.diagnose import LAYOUTS
from relpos._opinion.differences import DIFFERENCES
from relpos._schemes import SCHEMES

DOCS = ROOT / "docs"
if not (DOCS / "conf.py").exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

sys.path.insert(0, str(DOCS))
check_links = importlib.import_module("check_links")
check_layout = importlib.import_module("check_layout")
check_clicks = importlib.import_module("check_clicks")

PAGES = {
    "check-your-implementation.md": 48,
    "from-transformers.md": 10,
    "functions.md": 6,
    "limits.md": 5,
    "pytorch-layers.md": 12,
    "threads.md": 7,
}
HEADINGS = ["Formula", "Picture", "Traps"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_give_the_output_they_show(page):
    run_examples(f"docs/{page}", PAGES[page])


def test_the_page_of_diagnose_lists_all_differences(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    page = importlib.import_module("differences")
    content = [(DOCS / f"{page.PAGE}.md").read_text(encoding="utf-8")]
    assert content[0].count(page.MARK) == 1
    page.add_tables(None, page.PAGE, content)
    lines = content[0].splitlines()
    for row in DIFFERENCES:
        title = lines.index(f"### {row.kind.title()}s")
        (at,) = (
            i for i, line in enumerate(lines) if line.startswith(f"| `{row.name}` |")
        )
        assert at > title and row.words.replace("|", r"\|") in lines[at]
    assert all(f"| `{name}` |" in content[0] for name in LAYOUTS)
    others = [page.MARK]
    page.add_tables(None, "guide", others)
    assert others == [page.MARK]
    assert '"differences"' in (DOCS / "conf.py").read_text(encoding="utf-8")


def test_every_scheme_has_a_page_and_every_page_a_scheme():
    pages = {path.stem for path in (DOCS / "schemes").glob("*.md")}
    assert pages - {"index"} == {scheme.name for scheme in SCHEMES}


@pytest.mark.parametrize("scheme", [scheme.name for scheme in SCHEMES])
def test_pages_of_schemes_have_the_same_parts(scheme):
    text = (DOCS / "schemes" / f"{scheme}.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0].startswith("# ")
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS
    assert text.count("$$") >= 2
    assert text.count("```{picture} ") == 1
    assert "\n- " in text.partition("## Traps")[2]


@pytest.mark.parametrize("page", ["how-to", "measured", "develop"])
def test_a_page_that_lists_others_lists_all_that_it_leads_to(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    seen, _, hidden = text.partition("```{toctree}")
    names = [line for line in hidden.splitlines() if re.fullmatch(r"[a-z/-]+", line)]
    assert len(names) > 2
    assert [name for name in names if f"]({name}.md)" not in seen] == []


def test_links_that_lead_nowhere_and_other_hosts_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here">1</a><a href="#there">2</a>'
        '<a href="b.html#part">3</a><a href="b.html#none">4</a><a href="c.html">5</a>'
        '<a href="https://arxiv.org/abs/1803.02155">6</a>'
        '<script src="https://cdn.example/x.js"></script><img src="data:,x">'
        '<link rel="next" href="b.html"><img src="b.png">',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<h1 id="part">b</h1>', encoding="utf-8")
    assert check_links.faults(tmp_path) == [
        "a.html: loads https://cdn.example/x.js",
        "a.html: #there leads nowhere",
        "a.html: b.html#none leads nowhere",
        "a.html: c.html leads nowhere",
        "a.html: b.png leads nowhere",
    ]


def test_the_shortest_way_to_a_page_is_found(tmp_path):
    links = {
        "index": ("b", "genindex"),
        "b": ("c", "index"),
        "c": ("d", "none"),
        "d": (),
        "genindex": ("d",),
    }
    for name, targets in links.items():
        text = " ".join(f'<a href="{target}.html#part">.</a>' for target in targets)
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    ways = check_clicks.ways(tmp_path)
    assert ways.pop("index.html") == []
    assert ways == {
        f"{x}.html": [f"{y}.html" for y in "bcd"[:n]] for n, x in enumerate("bcd", 1)
    }


def test_pages_to_look_at_are_chosen_by_patterns(tmp_path):
    for name in ("a.html", "api/b.html", "_static/c.html", "api/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert check_layout.chosen(tmp_path, []) == ["a.html", "api/b.html"]
    assert check_layout.chosen(tmp_path, ["!api/*"]) == ["a.html"]
    assert check_layout.chosen(tmp_path, ["api/*", "c*"]) == ["api/b.html"]


FAULTY = """<!doctype html><html><body style="margin: 0; background: white; color: {}">
<article style="width: 90%">{}</article></body></html>"""


@pytest.mark.parametrize(
    ("colour", "inside", "words"),
    [
        ("black", "<p>A page.</p>", ""),
        ("#888", "<p>A page.</p>", "contrast 3.54"),
        ("black", f"<h1>relpos.{'LongName' * 20}</h1>", "cut off: <h1>"),
        ("black", '<div style="width: 2000px">wide</div>', "wider than its column"),
        (
            "black",
            '<figure><img src="data:," width=9 height=9>a</figure>',
            "no alt text",
        ),
        ("black", '<img alt="dots" src="data:," width=9 height=9>', "no caption"),
        (
            "black",
            '<pre style="overflow-x: auto; width: 90px">a long line of code</pre>',
            "1280: scrolls by",
        ),
        ("black", "<mjx-merror>Extra }</mjx-merror>", "TeX refuses: Extra }"),
    ],
)
def test_faults_of_layout_are_found(tmp_path, colour, inside, words):
    if not shutil.which("chromium"):
        pytest.skip("no Chromium here")
    (tmp_path / "a.html").write_text(FAULTY.format(colour, inside), encoding="utf-8")
    (faults,) = check_layout.look(tmp_path, ["a.html"]).values()
    assert bool(faults) == bool(words)
    assert any(words in fault for fault in faults) == bool(words)


def test_words_in_formulas_become_upright(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    pytest.importorskip("sphinx")
    upright = importlib.import_module("formulas").upright
    assert upright(r"z_i = softmax_j(e_i) + grad\_bias_{hij}") == (
        r"z_i = \operatorname{softmax}_j(e_i) + \mathrm{grad\_bias}_{hij}"
    )
    assert upright(r"k_j + weight_{bucket(j - i), h}") == (
        r"k_j + \mathrm{weight}_{\operatorname{bucket}(j - i), h}"
    )
    assert upright(r"\frac{q}{\sqrt D}\operatorname{clip}(x)\mathrm{out}_i") == (
        r"\frac{q}{\sqrt D}\operatorname{clip}(x)\mathrm{out}_i"
    )


def test_long_formulas_have_a_line_for_each_part(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    pytest.importorskip("sphinx")
    broken = importlib.import_module("formulas").broken
    assert broken(r"a = b, \quad c = d") == r"a = b, \quad c = d"
    part = "x + " * 30
    assert broken(rf"{part}y, \quad z") == (
        rf"\begin{{gathered}}{part}y, \\ z\end{{gathered}}"
    )
    assert broken(rf"{part}y, \quad z \\ u") == rf"{part}y, \quad z \\ u"
    assert broken(f"\n{part}y, \\quad z\n\n") == broken(rf"{part}y, \quad z")
    assert broken(f"{part}y\n\n{part}z") == (
        f"\\begin{{gathered}}{part}y\\\\\n{part}z\\end{{gathered}}"
    )


def test_pages_of_torch_need_no_torch():
    lines = (
        f"import inspect, sys; sys.path.insert(0, {str(DOCS / '_extensions')!r})",
        "import standin; standin.install()",
        "import relpos.torch; from relpos.torch import nn",
        "print(inspect.signature(relpos.torch.alibi_slopes), *nn.__all__)",
    )
    command = [sys.executable, "-c", "; ".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "= torch.float32) -> 'Tensor'" in done.stdout
    assert "RelativeMultiheadAttention" in done.stdout


def test_a_definition_is_shown_with_what_it_calls(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    pytest.importorskip("sphinx")
    source = importlib.import_module("source")
    home = source.home(reference.shaw_attention)
    assert home.__name__ == "relpos.reference.schemes"
    text = "\n".join(source.definition(home, "shaw_attention"))
    shown, _, helpers = text.partition(".. dropdown::")
    assert "def shaw_attention(" in shown and '"""' not in shown
    assert "~relpos.reference.shaw_scores`" in shown
    assert "def gather(" in helpers and "def shaw_scores(" not in helpers
    assert source.follow(None, "relpos", "KVCache") == "relpos._attention.cache"
    assert source.follow(None, "relpos", "no_such_name") is None


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Pairs are turned by an angle. They take turns, one in turn.", 1),
        ("The key stands beside the query; k stands for a number.", 2),
        ("It takes the place of the query, two places before, in place.", 1),
        ("The model runs by relpos, held against loops.", 2),
    ],
)
def test_words_of_the_project_s_own_are_found(text, count):
    words = runpy.run_path(str(ROOT / ".ci" / "words"))
    assert len(words["faults"](text)) == count
    assert words["paragraphs"]("a\n```python\nbeside\n```\nb\n\nc") == [*"abc"]
