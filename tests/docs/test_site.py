"""The site's pages: examples that run, parts that are written, links as built."""

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

DOCS = ROOT / "docs"
if not (DOCS / "conf.py").exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

sys.path.insert(0, str(DOCS))  # these are scripts, and docs/ is no package
check_links = importlib.import_module("check_links")
check_layout = importlib.import_module("check_layout")
check_clicks = importlib.import_module("check_clicks")

#: Pages with examples: how many each has at least.
PAGES = {
    "check-your-implementation.md": 55,
    "from-transformers.md": 10,
    "functions.md": 6,
    "limits.md": 5,
    "pytorch-layers.md": 12,
    "threads.md": 7,
}


@pytest.mark.parametrize("page", PAGES)
def test_examples_give_the_output_they_show(page):
    run_examples(f"docs/{page}", PAGES[page])


def test_the_page_of_diagnose_lists_all_differences(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    extension = importlib.import_module("differences")
    # Sphinx has the text of a page in a list of one string, so that it can be replaced.
    content = [(DOCS / f"{extension.PAGE}.md").read_text(encoding="utf-8")]
    assert content[0].count(extension.MARK) == 1
    extension.add_tables(None, extension.PAGE, content)
    lines = content[0].splitlines()
    for difference in DIFFERENCES:
        title = lines.index(f"### {difference.kind.title()}s")
        start = f"| `{difference.name}` |"
        (number,) = [n for n, line in enumerate(lines) if line.startswith(start)]
        assert number > title
        assert difference.words.replace("|", r"\|") in lines[number]
    assert all(f"| `{name}` |" in content[0] for name in LAYOUTS)
    # Another page stays as it is, even if it has the mark.
    other_content = [extension.MARK]
    extension.add_tables(None, "guide", other_content)
    assert other_content == [extension.MARK]
    assert '"differences"' in (DOCS / "conf.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["how-to", "measured", "develop"])
def test_a_page_that_lists_others_lists_all_that_it_leads_to(page):
    """The toctree is hidden: a reader sees the links above it alone."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    visible, _, toctree = text.partition("```{toctree}")
    # Options of the toctree begin with a colon, and its end with a backquote.
    names = [line for line in toctree.splitlines() if re.fullmatch(r"[a-z/-]+", line)]
    assert len(names) > 2
    assert [name for name in names if f"]({name}.md)" not in visible] == []


def test_links_that_lead_nowhere_and_other_hosts_are_found(tmp_path):
    right = [
        '<p id="here"><a href="#here">1</a>',
        '<a href="b.html#part">2</a>',
        '<a href="https://arxiv.org/abs/1803.02155">3</a>',  # a link, loaded by a click
        '<img src="data:,x">',
        '<link rel="next" href="b.html">',
    ]
    wrong = [
        '<a href="#there">4</a>',
        '<a href="b.html#none">5</a>',
        '<a href="c.html">6</a>',
        '<script src="https://cdn.example/x.js"></script>',
        '<img src="b.png">',
    ]
    (tmp_path / "a.html").write_text("".join(right + wrong), encoding="utf-8")
    (tmp_path / "b.html").write_text('<h1 id="part">b</h1>', encoding="utf-8")
    assert check_links.faults(tmp_path) == [
        "a.html: loads https://cdn.example/x.js",
        "a.html: #there leads nowhere",
        "a.html: b.html#none leads nowhere",
        "a.html: c.html leads nowhere",
        "a.html: b.png leads nowhere",
    ]


def test_the_shortest_way_to_a_page_is_found(tmp_path):
    """Neither genindex nor a page that does not exist is part of a way."""
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
    assert ways == {
        "index.html": [],
        "b.html": ["b.html"],
        "c.html": ["b.html", "c.html"],
        "d.html": ["b.html", "c.html", "d.html"],
    }


def test_an_answer_is_near_and_is_not_folded(tmp_path):
    text = "<p>a call</p><details><p>another call</p></details>"
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    near, words = ["b.html", "a.html"], ["a call"]
    assert check_clicks.answer(tmp_path, "a.html", near, words) == []
    assert check_clicks.answer(tmp_path, "a.html", near, ["another call"]) == [
        "lacks 'another call'"
    ]
    far = ["b.html", "c.html", "a.html"]
    assert check_clicks.answer(tmp_path, "a.html", far, words) == ["3 clicks"]
    assert check_clicks.answer(tmp_path, "a.html", None, words) == ["not reached"]


def test_pages_to_look_at_are_chosen_by_patterns(tmp_path):
    for name in ("a.html", "api/b.html", "_static/c.html", "api/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert check_layout.chosen(tmp_path, []) == ["a.html", "api/b.html"]
    assert check_layout.chosen(tmp_path, ["!api/*"]) == ["a.html"]
    assert check_layout.chosen(tmp_path, ["api/*", "c*"]) == ["api/b.html"]


#: A page, with a colour of text and an element of the article to fill in.
FAULTY = """<!doctype html><html><body style="margin: 0; background: white; color: {}">
<article style="width: 90%">{}</article></body></html>"""


CELL = '<td><p style="width: 180px">four words in it</p>'
#: A table that fits a screen; on a phone it scrolls in its box.
SCROLLING = f'<div style="overflow-x: auto"><table><tr>{4 * CELL}</table></div>'


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("colour", "inside", "words"),
    [
        ("black", "<p>A page.</p>", ""),  # no fault
        ("black", SCROLLING, ""),  # on a phone a table may scroll in its box
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
        (
            "black",
            f'<div style="overflow-x: auto"><table><td>{"word" * 99}</table></div>',
            "1280: a table cut off by",
        ),
        (
            "black",
            f"<table><tr>{CELL.replace('180', '50')}</table>",
            "500: 3 lines of a word or two: <td> four words in it",
        ),
        (
            "black",
            f'<table><td><p style="width: 9px">{"word" * 9}</table>',
            "500: text runs over its cell by",
        ),
        ("black", "<mjx-merror>Extra }</mjx-merror>", "TeX refuses: Extra }"),
    ],
)
def test_faults_of_layout_are_found(tmp_path, colour, inside, words):
    if not shutil.which("chromium"):
        pytest.skip("no Chromium here")
    (tmp_path / "a.html").write_text(FAULTY.format(colour, inside), encoding="utf-8")
    (faults,) = check_layout.look(tmp_path, ["a.html"]).values()
    if words:
        assert any(words in fault for fault in faults)
    else:
        assert faults == []


def test_words_in_formulas_become_upright(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    pytest.importorskip("sphinx")
    upright = importlib.import_module("formulas").upright
    # Functions are operators. The letters of several indices, hij, are no word.
    assert upright(r"z_i = softmax_j(e_i) + grad\_bias_{hij}") == (
        r"z_i = \operatorname{softmax}_j(e_i) + \mathrm{grad\_bias}_{hij}"
    )
    assert upright(r"k_j + weight_{bucket(j - i), h}") == (
        r"k_j + \mathrm{weight}_{\operatorname{bucket}(j - i), h}"
    )
    # Commands, and what is upright already, stay as they are.
    assert upright(r"\frac{q}{\sqrt D}\operatorname{clip}(x)\mathrm{out}_i") == (
        r"\frac{q}{\sqrt D}\operatorname{clip}(x)\mathrm{out}_i"
    )


def test_long_formulas_have_a_line_for_each_part(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    pytest.importorskip("sphinx")
    in_lines = importlib.import_module("formulas").broken
    short = r"a = b, \quad c = d"
    assert in_lines(short) == short
    part = "x + " * 30
    long = rf"{part}y, \quad z"
    assert in_lines(long) == rf"\begin{{gathered}}{part}y, \\ z\end{{gathered}}"
    # A formula that has lines of its own keeps them.
    assert in_lines(rf"{long} \\ u") == rf"{long} \\ u"
    # Space around a formula changes nothing, and an empty line inside begins a part.
    assert in_lines(f"\n{long}\n\n") == in_lines(long)
    assert in_lines(f"{part}y\n\n{part}z") == (
        f"\\begin{{gathered}}{part}y\\\\\n{part}z\\end{{gathered}}"
    )


def test_pages_of_torch_need_no_torch():
    """A fresh Python imports relpos.torch with a module in place of torch."""
    script = f"""
import inspect
import sys

sys.path.insert(0, {str(DOCS / "_extensions")!r})
import standin

standin.install()
import relpos.torch
from relpos.torch import nn

print(inspect.signature(relpos.torch.alibi_slopes), *nn.__all__)
"""
    command = [sys.executable, "-c", script]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "= torch.float32) -> 'Tensor'" in process.stdout
    assert "RelativeMultiheadAttention" in process.stdout


def test_a_definition_is_shown_with_what_it_calls(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    pytest.importorskip("sphinx")
    source = importlib.import_module("source")
    home = source.home(reference.shaw_attention)
    assert home.__name__ == "relpos.reference.schemes"
    text = "\n".join(source.definition(home, "shaw_attention"))
    visible, _, dropdown = text.partition(".. dropdown::")
    assert "def shaw_attention(" in visible
    assert '"""' not in visible  # the docstring is the rest of the page
    # Public functions that it calls have pages, to which there are links; the source of
    # the others follows.
    assert "~relpos.reference.shaw_scores`" in visible
    assert "def shaw_scores(" not in dropdown
    assert "def gather(" in dropdown
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
    # The script has no suffix, so that it cannot be imported.
    words = runpy.run_path(str(ROOT / ".ci" / "words"))
    assert len(words["faults"](text)) == count
    markdown = "a\n```python\nbeside\n```\nb\n\nc"
    assert words["paragraphs"](markdown) == ["a", "b", "c"]  # the code is left out
