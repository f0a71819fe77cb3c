"""CONTRIBUTING.md: its examples run, what it names is there, it lists the stages."""

import re
import shutil
import subprocess

import pytest
from documents import ROOT, blocks, run_examples, section, text

NAME = "CONTRIBUTING.md"
pytestmark = pytest.mark.skipif(not (ROOT / NAME).exists(), reason="no source tree")


def test_examples_give_the_output_they_show():
    run_examples(NAME, 8)


def test_the_map_names_what_is_there():
    named = re.findall(r"^\| `([^`]+)` \|", section(NAME, "Where things are"), re.M)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_file_and_folder_that_it_names_exists():
    named = re.findall(r"`((?:csrc|relpos|tests|benchmarks|\.ci)/[^`* ]*)`", text(NAME))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_word_of_code_in_its_recipes_is_in_the_code():
    sources = [*ROOT.glob("csrc/**/*.[ch]"), *ROOT.glob("relpos/**/*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    recipes = ("Add a scheme", "Add a term", "Add an instruction set")
    named = {
        word
        for title in recipes
        for word in re.findall(r"`([a-z]\w+_\w+|[A-Z]\w+)`", section(NAME, title))
    }
    assert len(named) > 15
    assert [word for word in sorted(named) if not re.search(rf"\b{word}\b", code)] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_its_stages_are_those_of_the_script():
    (listed,) = blocks(section(NAME, "What a change must pass"), "text")
    done = subprocess.run(
        ["bash", ".ci/run", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed == done.stdout
