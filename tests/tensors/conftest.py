"""Tests of tensors: run where torch is installed, and marked as such."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from inductor import is_old_compiler

if find_spec("torch") is None:
    collect_ignore_glob = ["*.py"]
elif find_spec("transformers") is None:
    collect_ignore_glob = ["test_torch_transformers*.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("torch")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Skip a test whose graph breaks under an older PyTorch, and no other failure."""
    try:
        return (yield)
    except Exception as error:
        compiler = sys.modules.get("torch._dynamo.exc")
        if compiler is None or type(error) is not compiler.Unsupported:
            raise
        if not is_old_compiler():
            raise
        first = str(error).partition("\n")[0]
        version = sys.modules["torch"].__version__
        pytest.skip(f"the graph breaks under PyTorch {version}: {first}")
