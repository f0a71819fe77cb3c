"""The mark of tests that compile with torch's inductor."""

import os
import shutil

import pytest

NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="inductor needs a C++ compiler: g++, or the one that CXX names",
)
