#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox"]
# ///
"""Tasks for nox: the commands of README.md, and the stages of .ci/run.

`nox -l` lists them, and `nox -s test` runs the tests. Nothing else needs nox.
"""

import re
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"


def run_readme(session: nox.Session, heading: str) -> None:
    """Run the one command in the block under a heading of README.md."""
    readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    command = re.search(rf"^## {heading}\n+```sh\n(.*)\n```$", readme, re.MULTILINE)
    if command is None:
        session.error(f"README.md has no command under {heading!r}")
    session.run("bash", "-euc", command.group(1), external=True)


@nox.session(venv_backend="none")
def test(session: nox.Session) -> None:
    """Install relpos into .venv and run the quick tests, as README.md says."""
    run_readme(session, "Test it")


@nox.session(venv_backend="none", default=False)
def demo(session: nox.Session) -> None:
    """Install relpos into .venv and run the demo, as README.md says."""
    run_readme(session, "Run it")


@nox.session(default=False)
def site(session: nox.Session) -> None:
    """Build the documentation as a site, in build/site."""
    session.install("-e", ".[docs]")
    session.run("python", "-m", "sphinx", "docs", "build/site")


@nox.session(venv_backend="none", default=False)
def ci(session: nox.Session) -> None:
    """Run the stages that are named after `--`, or those of every change."""
    session.run(".ci/run", *session.posargs, external=True)


if __name__ == "__main__":
    nox.main()
