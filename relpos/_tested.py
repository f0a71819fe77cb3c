"""Versions of other packages with which relpos is tested: tested.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from relpos._warn import warn

#: Tables of versions by package: "oldest", "newest", "daily".
TESTED: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("tested.toml").read_text("utf-8")
)

#: Versions that were warned of in this process.
_warned: set[tuple[str, str]] = set()


def neighbours() -> Iterator[tuple[str, str, str, str]]:
    """Yield each package: its name, installed, oldest and newest tested version."""
    for name, oldest in TESTED["oldest"].items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed = "not installed"
        yield name, installed, oldest, TESTED["newest"][name]


def warn_of_newer(**versions: str) -> None:
    """Warn once a process of a version whose series is newer than the newest tested."""
    for name, version in versions.items():
        newest = TESTED["newest"][name]
        if _series(version) <= _series(newest) or (name, version) in _warned:
            continue
        warn(
            f"{name} {version} is newer than {newest}, the newest version that this "
            "relpos is tested with; compare the results of the model with those of its "
            "own attention"
        )
        _warned.add((name, version))


def _series(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version: a patch release changes the others."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
