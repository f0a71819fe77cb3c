"""relpos without dask, without torch, without both: what looks at all of its names."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("optional.py")
#: Two ways in which packages are absent: no module, and a finder that refuses them.
HIDDEN = """
import sys
for name in ABSENT:
    sys.modules[name] = None
"""
REFUSED = """
import sys
class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse)
"""
RUN = """
import runpy
sys.argv[1:] = ABSENT
runpy.run_path(SCRIPT, run_name="__main__")
"""
BROKEN = """
import inspect, pathlib, sys
import relpos
pathlib.Path("torch.py").write_text("raise ImportError('libtorch.so: not found')")
sys.path.insert(0, "")
assert not hasattr(relpos, "torch")
assert "attention" in dict(inspect.getmembers(relpos))
for way in ("import relpos.torch", "from relpos import torch", "relpos.torch"):
    try:
        exec(way)
    except ImportError as exc:
        assert way != "relpos.torch" and "libtorch.so" in str(exc)
    except AttributeError as exc:
        assert way == "relpos.torch" and "libtorch.so" in str(exc)
        assert isinstance(exc.__cause__, ImportError)
    else:
        raise AssertionError(way)
"""


@pytest.mark.devmode
@pytest.mark.parametrize("hide", [HIDDEN, REFUSED], ids=["hidden", "refused"])
def test_without_dask_and_torch(child, hide):
    child(f"ABSENT = ['dask', 'torch']; SCRIPT = {str(SCRIPT)!r}\n{hide}{RUN}")


def test_without_torch(child):
    pytest.importorskip("dask")
    child(f"ABSENT = ['torch']; SCRIPT = {str(SCRIPT)!r}\n{HIDDEN}{RUN}")


@pytest.mark.torch
def test_without_dask_and_with_all(child):
    pytest.importorskip("torch")
    pytest.importorskip("dask")
    child(f"ABSENT = ['dask']; SCRIPT = {str(SCRIPT)!r}\n{HIDDEN}{RUN}")
    child(f"ABSENT = []; SCRIPT = {str(SCRIPT)!r}\nimport sys\n{RUN}")


def test_a_torch_that_cannot_be_loaded_leaves_the_rest_to_be_listed(child):
    child(BROKEN)


def imports_of(path):
    """Return the packages that a file imports as it is loaded."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def test_what_tests_share_is_left_alone_without_what_it_imports():
    """Else the collection of all tests fails where a package is not installed."""
    tests = SCRIPT.parents[1]
    found = {}
    for folder in ("cases", "oracles", "recorded", "tools"):
        for path in (tests / folder).glob("*.py"):
            packages = {"torch", "transformers"} & {*imports_of(path)}
            if packages:
                found[str(path.relative_to(tests))] = sorted(packages)
    assert found == runpy.run_path(str(tests / "conftest.py"))["NEEDS"]
