"""The user guide: examples that run, parts of a chapter, figures as measured."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from documents import ROOT, run_examples, text

from relpos import data

GUIDE = ROOT / "docs" / "guide"
if not GUIDE.exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

#: Pages in the order in which they are read, and how many examples each has.
CHAPTERS = {
    "absolute": 20,
    "relative": 20,
    "skew": 15,
    "memory": 15,
    "biases": 20,
    "long": 25,
}
COLUMNS = 78  # of code that a window of 1280 pixels shows whole


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_examples_give_the_output_they_show(chapter):
    run_examples(f"docs/guide/{chapter}.md", CHAPTERS[chapter])


def test_the_page_of_schemes_runs():
    run_examples("docs/which-scheme.md", 4)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_all_its_parts(chapter):
    page = text(f"docs/guide/{chapter}.md")
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert headings[:2] in (["The idea", "The formula"], ["The idea", "The formulas"])
    assert headings[-2:] == ["Traps", "More"]
    assert "$$" in page and "\n- " in page.partition("## Traps")[2]
    before_the_idea = page.partition("## The idea")[0]
    seen = re.sub(r"<details.*?</details>", "", before_the_idea, flags=re.DOTALL)
    assert ("```python" in seen) == (chapter == "absolute")  # which tells the melody
    assert "../notebooks/" in page.partition("## More")[2]
    pictures = re.findall(
        r"^```\{picture\} \w[^\n]*\n---\n(.*?)^---$", page, re.MULTILINE | re.DOTALL
    )
    assert pictures and all("caption: " in options for options in pictures)
    assert page.count("```{picture}") == len(pictures)


def test_the_chapters_lead_from_one_to_the_next():
    order = re.findall(
        r"^\d\. \[.*\]\((\w+)\.md\)", text("docs/guide/index.md"), re.MULTILINE
    )
    assert order == [*CHAPTERS]
    for number, chapter in enumerate(order, 1):
        assert text(f"docs/guide/{chapter}.md").startswith(f"# {number}. ")
    for chapter, following in pairwise(order):
        end = text(f"docs/guide/{chapter}.md").rpartition("\nNext: [")[2]
        assert f"]({following}.md)" in end


@pytest.mark.parametrize("page", [*(f"guide/{c}" for c in CHAPTERS), "which-scheme"])
def test_code_fits_its_column(page):
    block = r"^```(?:python|\{picture\}[^\n]*)\n(.*?)^```$"
    code = re.findall(block, text(f"docs/{page}.md"), re.MULTILINE | re.DOTALL)
    lines = [n for part in code for n in part.rpartition("---\n")[2].splitlines()]
    assert lines and max(map(len, lines)) <= COLUMNS


# ---- figures -------------------------------------------------------------------------

#: Schemes of the table, by their names in the benchmarks.
TIMED = {
    "Shaw, k = 4": "Shaw",
    "Music": "Music",
    "Transformer-XL": "Transformer-XL",
    "ALiBi": "ALiBi",
    "T5, 32 to 128": "T5",
    "FIRE": "FIRE",
    "rotary": "RoPE",
}


def cells_of(line):
    """The cells of a row of a table, links as their words."""
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", cell) for cell in cells]


def table():
    """The table of all schemes: cells by the name of the scheme."""
    _, _, rest = text("docs/which-scheme.md").partition("| scheme | directions |")
    rows = map(cells_of, rest.partition("\n\n")[0].splitlines()[2:])
    return {name: cells for name, *cells in rows}


def test_shares_of_right_answers_are_those_of_the_experiment():
    tasks = data.experiment("length").results["tasks"]
    shown = table()
    assert shown.keys() == tasks["two back"].keys() - {"T5, 8 to 16"}
    for name, cells in shown.items():
        for task, cell in zip(("two back", "after the last"), cells[2:], strict=False):
            ends = np.mean(tasks[task][name]["right"], axis=0)[[0, -1]]
            assert cell == ", ".join(f"{share:.2f}" for share in ends)


def test_times_are_those_of_the_benchmarks():
    if not (ROOT / "benchmarks" / "README.md").exists():
        pytest.skip("no benchmarks/ in this tree")
    lines = text("benchmarks/README.md").splitlines()
    for name, cells in table().items():
        if name in TIMED:
            begin = f"| {TIMED[name]} / plain | both |"
            (line,) = (line for line in lines if line.startswith(begin))
            times = [re.match(r"[\d.]*", cell)[0] for cell in cells_of(line)[4:6]]
            assert cells[-1] == ", ".join(times)


def test_the_glossary_is_in_order_and_every_link_to_it_leads_to_a_word():
    words = re.findall(r"^## (.*)$", text("docs/glossary.md"), re.MULTILINE)
    assert words == sorted(words, key=str.lower)
    anchors = {re.sub(r"[^\w-]", "", word.lower().replace(" ", "-")) for word in words}
    pages = [path for path in GUIDE.parent.rglob("*.md") if "_made" not in path.parts]
    linked = {
        anchor
        for path in pages
        for anchor in re.findall(r"glossary\.md#([\w-]+)", path.read_text("utf-8"))
    }
    assert linked and linked <= anchors
