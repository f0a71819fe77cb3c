"""CONTRIBUTING.md and docs/develop: examples run, what they name exists, the stages."""

import re
import shutil
import subprocess

import pytest
from documents import ROOT, blocks, run_examples, section, text

NAME = "CONTRIBUTING.md"
if not (ROOT / NAME).exists() or not (ROOT / "docs" / "develop").exists():
    pytest.skip("no source tree", allow_module_level=True)

PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/develop").glob("*.md")
)


@pytest.mark.parametrize(
    ("page", "least"),
    [("docs/develop/add-a-scheme.md", 5), ("docs/develop/profile.md", 5)],
)
def test_examples_give_the_output_they_show(page, least):
    run_examples(page, least)


def test_every_page_with_examples_is_run():
    with_examples = [page for page in [NAME, *PAGES] if ">>>" in text(page)]
    assert with_examples == ["docs/develop/add-a-scheme.md", "docs/develop/profile.md"]


def test_it_is_short_and_so_is_the_changelog():
    assert len(text(NAME).encode()) <= 8 * 1024
    assert len(text("CHANGELOG.md").encode()) <= 12 * 1024


def test_the_map_names_what_is_there():
    named = re.findall(
        r"^\| `([^`]+)` \|", section(NAME, "Where things are"), re.MULTILINE
    )
    assert len(named) == 20
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", [NAME, *PAGES])
def test_every_file_and_folder_that_it_names_exists(page):
    named = re.findall(
        r"`((?:csrc|relpos|tests|docs|benchmarks|\.ci)/[^`* ]*)`", text(page)
    )
    assert [name for name in named if not (ROOT / name).exists()] == []
    linked = re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text(page))
    folder = (ROOT / page).parent
    assert [name for name in linked if not (folder / name).exists()] == []
    assert len(named) > 10 or page != NAME


def test_every_page_is_in_the_table_of_contents():
    contents = text("docs/develop.md").partition("```{toctree}")[2].split()
    assert {f"docs/{name}.md" for name in contents} >= set(PAGES)


def test_every_word_of_code_in_the_recipes_is_in_the_code():
    patterns = ["csrc/**/*.[ch]", "tests/core/*.[ch]", "relpos/**/*.py"]
    patterns += ["tests/oracles/*.py", "tests/attention/*.py"]
    sources = [path for pattern in patterns for path in ROOT.glob(pattern)]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    recipes = [page for page in PAGES if "/add-a" in page]
    assert len(recipes) == 3
    named = {
        word
        for page in recipes
        for word in re.findall(r"`([a-z]\w+_\w+|[A-Z]\w+)`", text(page))
    }
    assert len(named) > 15
    assert [word for word in sorted(named) if not re.search(rf"\b{word}\b", code)] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_stages_are_those_of_the_script():
    (listed,) = blocks(text("docs/develop/stages.md"), "text")
    done = subprocess.run(
        ["bash", ".ci/run", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed == done.stdout


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="no .github/ in this tree")
def test_a_pull_request_runs_the_test_command_of_the_readme():
    workflow = text(".github/workflows/test.yml")
    assert len(workflow.splitlines()) <= 40
    (command,) = blocks(section("README.md", "Test it"), "sh")
    assert f"      - run: {command}" in workflow
