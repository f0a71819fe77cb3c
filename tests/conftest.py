"""Fixtures for every test file: a child Python, a kernel table, the recorded data."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relpos import _core
from relpos._settings import use_isa

#: The options --quick and --full, and the fixture `sized`.
pytest_plugins = ["selection"]
#: Modules that tests import by name, where the packages are installed that they import.
NEEDS = {
    "oracles/torch_reference.py": ["torch"],
    "cases/multihead.py": ["torch"],
    "cases/torch_calls.py": ["torch"],
    "cases/hugging_every.py": ["torch", "transformers"],
    "cases/hugging_families.py": ["torch", "transformers"],
    "cases/hugging_indexers.py": ["torch", "transformers"],
    "cases/hugging_inkling2.py": ["torch", "transformers"],
    "cases/hugging_models.py": ["torch", "transformers"],
    "cases/hugging_names.py": ["transformers"],
    "cases/hugging_picks.py": ["torch", "transformers"],
}
collect_ignore = [
    path
    for path, packages in NEEDS.items()
    if None in map(importlib.util.find_spec, packages)
]
#: Tests of benchmarks/ import it; a distribution has none, and leaves them out.
ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
collect_ignore_glob = [] if (ROOT / "benchmarks").exists() else ["bench/test_[!b]*.py"]


def pytest_configure(config):
    """Leave alone what needs torch or transformers where that is not installed."""
    bridge = Path(__file__).resolve().parents[1] / "relpos" / "torch"
    for package, place in (
        ("torch", bridge),
        ("transformers", bridge / "_transformers"),
    ):
        if importlib.util.find_spec(package) is None:
            config.option.ignore = [*(config.option.ignore or ()), place]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without the garbage collector, which takes a fifth of the time.

    The cases live to the end: later collections need not look at them either.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the markers
def pytest_collection_modifyitems(config, items):
    """Mark examples of relpos.torch; leave those of relpos.plot to matplotlib."""
    for item in items:
        if ROOT / "relpos" / "torch" in item.path.parents:
            item.add_marker("torch")
    if importlib.util.find_spec("matplotlib") is None:
        drawn = [item for item in items if item.path.parent.name == "plot"]
        items[:] = [item for item in items if item not in drawn]
        config.hook.pytest_deselected(items=drawn)


def pytest_addoption(parser):
    parser.addoption(
        "--golden",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="folder with all recorded cases; the repository carries a subset",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="20,000 random problems instead of 2,000, repeated runs 100 times, not 5",
    )


@pytest.fixture(scope="session")
def repeats(request):
    """Number of repetitions of a run that must give the same bits."""
    return 100 if request.config.getoption("--thorough") else 5


@pytest.fixture(scope="session")
def examples(request, sized):
    """Number of random problems."""
    if request.config.getoption("--thorough"):
        return 20_000
    return sized(100, 2_000)


@pytest.fixture(scope="session")
def golden_folder(request):
    """Folder named by --golden, or None."""
    folder = request.config.getoption("--golden")
    if folder is not None and not folder.is_dir():
        raise pytest.UsageError(f"--golden {folder}: no such folder")
    return folder


@pytest.fixture(params=list(_core.by_isa))
def isa(request):
    """Runs the test once per kernel table of this CPU."""
    with use_isa(request.param):
        yield request.param


@pytest.fixture
def rng():
    """Random numbers of one seed."""
    return np.random.default_rng(8)


@pytest.fixture
def strict_floats():
    """Any floating point flag that relpos lets out becomes an error."""
    with np.errstate(all="raise"):
        yield


@pytest.fixture
def child(tmp_path):
    """Runs a script in a fresh Python, outside the source tree; returns its output."""

    def run(script, *options, timeout=120, as_file=False, **environment):
        if as_file:  # a process that it spawns imports the main module from there
            (tmp_path / "script.py").write_text(script, "utf-8")
        source = ["script.py"] if as_file else ["-c", script]
        done = subprocess.run(
            [sys.executable, *options, *source],
            check=False,
            cwd=tmp_path,
            env=_environment(**environment),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
        return done

    return run


def _environment(**changes):
    """This process's environment without settings that would change relpos's."""
    drop = ("RELPOS_NUM_THREADS", "OMP_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return kept | changes
