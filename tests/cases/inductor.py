"""The mark of tests that need torch's inductor, and the fixture of all that compile."""

import os
import shutil

import pytest

NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="inductor needs a C++ compiler: g++, or the one that CXX names",
)


@pytest.fixture(autouse=True)
def compile_afresh():
    """No test meets another one's compiled programs, nor leaves its own."""
    import torch  # the mark is there without it, too

    torch.compiler.reset()
    yield
    torch.compiler.reset()
