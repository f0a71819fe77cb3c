"""A plugin of pytest: all kernels of the run are those of a driver (driver.c).

    python -m pytest -p on_driver --driver "qemu-aarch64 driver" tests/attention/..

The tests are the same as ever; what they compare with is computed here.
"""

from __future__ import annotations

import shlex

import pytest
from remote import Remote

from relpos import _core

REMOTE = pytest.StashKey[Remote]()


def pytest_addoption(parser):
    parser.addoption("--driver", required=True, help="what starts the driver")
    parser.addoption("--big-endian", action="store_true", help="its byte order")


def pytest_configure(config):
    order = ">" if config.getoption("--big-endian") else "<"
    command = shlex.split(config.getoption("--driver"))
    remote = Remote(command, order, _core.by_isa["base"])
    config.stash[REMOTE] = remote
    for name in _core.by_isa:
        _core.by_isa[name] = remote


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"{config.stash[REMOTE].calls} calls of the driver")


def pytest_sessionfinish(session):
    remote = session.config.stash[REMOTE]
    if remote.close() != 0 or remote.calls == 0:  # memory is lost, or nothing was asked
        session.exitstatus = 1
