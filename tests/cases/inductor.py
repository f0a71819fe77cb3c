"""Marks of tests that need a compiler, and the fixture of all that compile."""

import os
import shutil
from importlib import metadata
from importlib.util import find_spec

import pytest

NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="inductor needs a C++ compiler: g++, or the one that CXX names",
)

#: The oldest PyTorch whose compiler sees calls of relpos whole: it knows `locals()`.
WHOLE = 2, 13


def is_old_compiler():
    """Return True if graphs may break at a call of relpos under this PyTorch."""
    return tuple(map(int, metadata.version("torch").split(".")[:2])) < WHOLE


NEEDS_WHOLE_GRAPH = pytest.mark.skipif(
    find_spec("torch") is not None and is_old_compiler(),
    reason="the error is one of a whole graph, which needs PyTorch 2.13",
)


@pytest.fixture(autouse=True)
def compile_afresh():
    """No test meets another one's compiled programs, nor leaves its own."""
    import torch  # the mark is there without it, too

    torch.compiler.reset()
    yield
    torch.compiler.reset()
