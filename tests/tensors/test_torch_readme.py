"""README.md: what it shows of relpos.torch."""

from __future__ import annotations

import pytest
from documents import ROOT, run_examples

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not (ROOT / "README.md").exists(), reason="no README beside tests/"
    ),
]


def test_examples_give_the_output_they_show():
    run_examples("README.md", 8, "pycon")
