"""Versions of other packages: what `relpos info` prints, and which are warned of."""

from importlib import metadata

import pytest

from relpos import __main__, _tested

TABLES = {"oldest": {"torch": "2.6.0"}, "newest": {"torch": "2.14.1"}}


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    """Torch is tested from 2.6.0 to 2.14.1, and nothing was warned of."""
    monkeypatch.setattr(_tested, "TESTED", TABLES)
    monkeypatch.setattr(_tested, "_warned", set())


@pytest.mark.parametrize("installed", ["2.13.0+cpu", None])
def test_info_prints_what_is_installed_and_tested(installed, monkeypatch, capsys):
    def version(name):
        if name != "torch" or installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(metadata, "version", version)
    assert __main__.main(["info"]) == 0
    *_, heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["package", "installed", "tested", "from", "tested", "to"]
    found = installed or "not installed"
    assert row.split() == ["torch", *found.split(), "2.6.0", "2.14.1"]


@pytest.mark.parametrize(
    "version", ["2.15.0", "2.15.0.dev20261101+cpu", "2.100.0", "3.0.0", "3"]
)
def test_a_newer_version_is_warned_of_once(version, recwarn):
    _tested.warn_of_newer(torch=version)
    _tested.warn_of_newer(torch=version)
    (warning,) = recwarn
    assert warning.category is UserWarning and warning.filename == __file__
    said = f"torch {version} is newer than 2.14.1, the newest version that this relpos"
    assert str(warning.message).startswith(said)


@pytest.mark.parametrize(
    "version", ["2.14.1", "2.14.2", "2.14.1+cpu", "2.13.0", "1.99"]
)
def test_a_tested_or_older_series_is_not(version, recwarn):
    _tested.warn_of_newer(torch=version)
    assert not recwarn
