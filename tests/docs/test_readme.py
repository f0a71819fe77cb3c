"""README.md: its examples run, its commands are one line, what it shows is there."""

import re

import pytest
from documents import ROOT, run_examples, section, text

import relpos

pytestmark = pytest.mark.skipif(
    not (ROOT / "README.md").exists(), reason="no README in this tree"
)


def test_examples_give_the_output_they_show(monkeypatch):
    monkeypatch.chdir(ROOT)
    run_examples("README.md", 6)


@pytest.mark.parametrize(
    ("title", "ending"),
    [("Run it", "-m relpos demo"), ("Test it", "-m pytest -q -n 2")],
)
def test_one_command_does_it_all(title, ending):
    fenced = re.findall(
        r"^```.*?^```$", section("README.md", title), re.MULTILINE | re.DOTALL
    )
    assert len(fenced) == 1
    (command,) = fenced[0].splitlines()[1:-1]
    assert command.startswith("python3 -m venv .venv && ")
    assert command.endswith(ending)


def test_its_parts_are_in_this_order():
    """A picture comes before all of them."""
    before, *_ = text("README.md").partition("\n## ")
    assert "](docs/pictures/fingerprints.png)" in before
    assert re.findall(r"^## (.*)$", text("README.md"), re.MULTILINE) == [
        "Install", "Example", "In PyTorch", "In transformers", "Next steps",
        "How fast it is", "Run it", "Test it", "Cite",
    ]  # fmt: skip


def test_files_that_it_points_at_are_there():
    found = re.findall(r"\]\(([^)#]+)\)", text("README.md"))
    assert len(found) > 8
    assert [name for name in found if not (ROOT / name).exists()] == []


def test_the_tables_of_functions_name_every_public_function():
    """Names that are not public fail where the page is compared with the catalogue."""
    rows = re.findall(r"^\| .* \|$", text("docs/functions.md"), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    public = {
        name
        for name in relpos.__all__
        if not name.startswith("_") and not isinstance(getattr(relpos, name), type)
    }
    assert len(public) > 40
    assert public <= listed
