"""CHANGELOG.md and CITATION.cff name the version that relpos has."""

import re

import pytest
from documents import ROOT

import relpos

pytestmark = pytest.mark.skipif(
    not (ROOT / "CHANGELOG.md").exists(), reason="no source tree"
)


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_changelog_begins_with_this_version_and_names_each_once():
    versions = re.findall(r"^## (\S+)", text("CHANGELOG.md"), re.M)
    assert versions[0] == relpos.__version__
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    assert numbers == sorted(set(numbers), reverse=True)


def test_the_citation_is_of_this_version():
    assert f"\nversion: {relpos.__version__}\n" in text("CITATION.cff")
