"""Tests of tensors: run where torch is installed, and marked as such."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None:
    collect_ignore_glob = ["*.py"]
elif find_spec("transformers") is None:
    collect_ignore_glob = ["test_torch_transformers*.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("torch")
