"""Versions in documents: that of relpos, and those of other packages."""

import re
import tomllib

import pytest
from documents import ROOT, section

import relpos
from relpos._tested import TESTED

OLDEST, NEWEST = TESTED["oldest"], TESTED["newest"]

pytestmark = pytest.mark.skipif(
    not (ROOT / "CHANGELOG.md").exists(), reason="no source tree"
)


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_changelog_begins_with_this_version_and_names_each_once():
    versions = re.findall(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == relpos.__version__
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    assert numbers == sorted(set(numbers), reverse=True)


def test_a_version_has_a_date_short_highlights_and_the_same_order_of_parts():
    _, *versions = re.split(r"^## ", text("CHANGELOG.md"), flags=re.MULTILINE)
    for version in versions:
        begin = version.partition("\n\n")[2]
        assert re.match(r"Unreleased\.|Released on \w+ \d+, \d{4}\.", begin)
        parts = re.split(r"^### ", version, flags=re.MULTILINE)[1:]
        titles = [part.partition("\n")[0] for part in parts]
        assert titles == ["Highlights", "New", "Changed", "Fixed"]
        highlights = parts[0].strip().splitlines()[2:]
        assert 1 <= len(highlights) <= 6
        assert all(line.startswith("- ") for line in highlights)


def test_the_citation_and_the_first_page_are_of_this_version():
    assert f"\nversion: {relpos.__version__}\n" in text("CITATION.cff")
    assert f"\nThis is version {relpos.__version__}, and its state is Alpha" in text(
        "README.md"
    )
    assert "Development Status :: 3 - Alpha" in project()["classifiers"]


def test_one_description_is_everywhere():
    description = project()["description"].lower()
    cited = re.search(r'^title: "(.*)"$', text("CITATION.cff"), re.MULTILINE)
    firsts = {
        "README.md": text("README.md").split("\n\n")[1],
        "Cite": section("README.md", "Cite"),
        "CITATION.cff": cited[1],
        "help(relpos)": relpos.__doc__.splitlines()[0],
    }
    other = {
        place: words
        for place, words in firsts.items()
        if description not in " ".join(words.lower().split())
    }
    assert other == {}


# ---- versions of other packages: relpos/tested.toml --------------------------------


def project():
    return tomllib.loads(text("pyproject.toml"))["project"]


def required(*extras):
    """Return (package, condition) of relpos's own requirement and those of extras."""
    named = list(project()["dependencies"])
    for extra in extras:
        named += project()["optional-dependencies"][extra]
    return [re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.*)", each).groups() for each in named]


def test_pyproject_asks_for_the_oldest_that_is_tested():
    extras = project()["optional-dependencies"]
    asked = {pair for pair in required(*extras) if pair[0] in OLDEST}
    assert asked == {(name, f">={version}") for name, version in OLDEST.items()}


def test_every_package_that_users_may_add_is_tested():
    users = required("plot", "files", "torch", "dask", "transformers")
    assert {name for name, _ in users} <= OLDEST.keys()


def test_both_sets_are_of_the_same_packages_and_every_change_is_between():
    assert OLDEST.keys() == NEWEST.keys()
    assert {
        name: v for name, v in OLDEST.items() if order(v) > order(NEWEST[name])
    } == {}
    for name, version in TESTED["daily"].items():
        assert order(OLDEST[name]) <= order(version) <= order(NEWEST[name])


def order(version):
    return [int(number) for number in version.split(".")]


def test_the_table_of_install_has_these_versions():
    rows = re.findall(
        r"^\| `(\w+)` \| (\S+) \| (\S+) \|$", text("docs/install.md"), re.MULTILINE
    )
    assert rows == [(name, OLDEST[name], NEWEST[name]) for name in OLDEST]


def test_install_has_the_versions_that_every_change_is_tested_with():
    install = " ".join(section("docs/install.md", "Versions of other packages").split())
    daily = "PyTorch {torch} and transformers {transformers}".format(**TESTED["daily"])
    assert f"{daily} are tested on every change" in install


@pytest.mark.parametrize("page", ["docs/install.md", "docs/limits.md"])
def test_versions_are_in_that_table_and_that_sentence_alone(page):
    rest = text(page)
    if page == "docs/install.md":
        versions = section(page, "Versions of other packages")
        assert rest.count(versions) == 1
        rest = rest.replace(versions, "")
    whole = [v for v in {*OLDEST.values(), *NEWEST.values()} if v.count(".") == 2]
    found = re.findall(r"(?<![\w.])\d+\.\d+\.\d+(?![\w.])", rest)
    assert sorted(set(found) & set(whole)) == []


def test_install_names_extras_that_are_there_in_one_command():
    (command,) = re.findall(r'pip install -e "\.\[(.*)\]"', text("docs/install.md"))
    assert {"plot", "test", "docs"} <= set(command.split(","))
    assert set(command.split(",")) <= project()["optional-dependencies"].keys()


def test_the_stages_pin_none_of_these_packages():
    script = text(".ci/stages") + text(".ci/drift")
    assert re.findall(rf"\b({'|'.join(OLDEST)})\b\S*==\d", script) == []
