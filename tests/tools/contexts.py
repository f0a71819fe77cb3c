"""Plugin of pytest: a coverage context for each test, and what each test took.

It does nothing but where tests/tools/covered.py runs the tests.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def own_name(nodeid: str) -> str:
    """Return a test's name without its parameters."""
    return nodeid.partition("[")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Any:
    """Give what runs to the test, in processes that it starts, too."""
    if "RELPOS_RECORD" in os.environ:
        import coverage

        os.environ["RELPOS_TEST"] = own_name(item.nodeid)  # read by their coverage
        running = coverage.Coverage.current()
        if running is not None:
            running.switch_context(own_name(item.nodeid))
    return (yield)


def pytest_runtest_logreport(report: Any) -> None:
    """Append what a test took, or that it failed."""
    if "RELPOS_RECORD" in os.environ:
        row = [own_name(report.nodeid), report.duration, report.failed, report.when]
        with Path(os.environ["RELPOS_RECORD"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
