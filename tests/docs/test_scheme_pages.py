"""The pages of schemes: their parts, calls and papers, and the functions they list."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest
from documents import ROOT, blocks, run_examples, text
from scheme_pages import DEFINITIONS, SETUP, page_of
from tolerances import TOLERANCES, normwise

import relpos
from relpos._schemes import SCHEMES, scheme_called

DOCS = ROOT / "docs"
if not (DOCS / "conf.py").exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

NAMES = [scheme.name for scheme in SCHEMES]
COLUMNS = 78  # of code that a window of 1280 pixels shows whole
HEADINGS = ["Formula", "Call", "Picture", "Traps"]
SHAW = "[arXiv:1803.02155](https://arxiv.org/abs/1803.02155)"
#: Numbers at arXiv of the references of some pages.
PAPERS = {
    "attention": ["2305.19466"],
    "deberta": ["2006.03654"],
    "kerple": ["2205.09921"],
    "naive": [""],
    "position_query": ["", "2310.11230"],
    "rel_bias": ["2103.14030"],
    "relative_global_attention": ["1809.04281"],
    "softcap": ["2408.00118"],
    "t5": ["1910.10683"],
    "transformer_xl_attention": ["1901.02860"],
}


@pytest.fixture
def extension(monkeypatch):
    """Return a function that imports a file of docs/_extensions."""
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    return importlib.import_module


def test_every_scheme_has_a_page_and_every_page_a_scheme():
    pages = {path.stem for path in (DOCS / "schemes").glob("*.md")}
    assert pages - {"index"} == {*NAMES}


@pytest.mark.parametrize("scheme", NAMES)
def test_pages_have_the_same_parts(scheme):
    page = text(page_of(scheme))
    lines = page.splitlines()
    assert lines[0].startswith("# ")
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS
    assert page.count("$$") >= 2
    assert page.count("```{picture} ") == 1
    assert "\n- " in page.partition("## Traps")[2]
    code = [*blocks(page, "python"), *blocks(page, "pycon")]
    assert max(len(line) for block in code for line in block.splitlines()) <= COLUMNS


def out_of(scheme, library=relpos):
    """Run the call of a page, with `library` as relpos."""
    names = run_examples(SETUP, 6) | {"relpos": library}
    return run_examples(page_of(scheme), 1, names=names)["out"]


@pytest.mark.parametrize("scheme", NAMES)
def test_a_call_gives_what_the_definition_gives(scheme):
    # Tables of sinusoids are float32 by default.
    limit = TOLERANCES["forward"].of("float32" if scheme == "sinusoidal" else "float64")
    assert normwise(out_of(scheme), out_of(scheme, DEFINITIONS)) <= limit


@pytest.mark.parametrize("scheme", NAMES)
def test_a_page_has_references_of_its_scheme(scheme, extension):
    papers = extension("papers")
    lines = papers.papers(scheme_called(scheme))
    assert lines
    assert all(line.endswith(".") and "\n" not in line for line in lines)
    # Three schemes are by Shaw, and the others have papers of their own.
    is_by_shaw = scheme in {"shaw_keys", "shaw_attention", "graph_attention"}
    assert any(SHAW in papers.linked(line) for line in lines) == is_by_shaw


@pytest.mark.parametrize(("scheme", "numbers"), PAPERS.items())
def test_the_paper_of_a_scheme(scheme, numbers, extension):
    papers = extension("papers")
    lines = papers.papers(scheme_called(scheme))
    links = [
        papers.linked(line).partition("https://arxiv.org/abs/")[2] for line in lines
    ]
    assert [link.partition(")")[0] for link in links] == numbers


def test_functions_on_tensors_and_layers_are_listed():
    """A fresh Python lists them with a stand-in for torch, as the site may."""
    script = f"""
import sys

sys.path.insert(0, {str(DOCS / "_extensions")!r})
import standin

standin.install()
from functions import functions_of

from relpos._schemes import scheme_called

for name in ("alibi", "sinks", "rel_bias", "deberta", "naive"):
    print(f"## {{name}}", *functions_of(scheme_called(name)), sep="\\n")
"""
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = [part.splitlines() for part in output.split("## ")[1:]]
    lists = {
        name: [line.partition(": ")[0] for line in lines] for name, *lines in parts
    }
    both = "`relpos.attention`, `relpos.torch.attention` with"
    layers = (
        "`relpos.nn.MultiheadAttention`, `relpos.torch.nn.RelativeMultiheadAttention`"
    )
    assert lists["alibi"] == [
        "- `relpos.alibi_bias`, `relpos.torch.alibi_bias`",
        "- `relpos.alibi_bias_backward`",
        "- `relpos.alibi_slopes`, `relpos.torch.alibi_slopes`",
        "- `relpos.nn.ALiBi`",
        f"- {both} `rel_bias`",
        f'- {layers} with `position="alibi"`',
    ]
    sinks = ["- `relpos.recipes.gpt_oss`", "- `relpos.recipes.deepseek_v4`"]
    assert lists["sinks"] == [*sinks, f"- {both} `sinks`"]
    assert lists["rel_bias"][0] == f"- {both} `rel_bias`"
    assert f"- {both} `rel_key`, `rel_query`" in lists["deberta"]
    assert lists["deberta"][-1] == (
        '- `relpos.torch.nn.RelativeMultiheadAttention` with `position="deberta"`'
    )
    assert not any("torch" in line for line in lists["naive"])


def test_the_page_of_t5_names_the_buckets_of_t5_bucket():
    page = " ".join(text(page_of("t5")).split())
    offsets = np.arange(-300, 301)
    encoder = relpos.t5_bucket(offsets)
    decoder = relpos.t5_bucket(offsets, bidirectional=False)
    past, future, last = (
        np.abs(offsets[buckets == number]).min()
        for buckets, number in ((encoder, 15), (encoder, 31), (decoder, 31))
    )
    assert past == future
    words = f"begins at distance {past} in an encoder and {last} in a decoder"
    assert words in page
    (unused,) = np.setdiff1d(np.arange(32), encoder)
    assert f"Bucket {unused} of an encoder stays unused" in page
