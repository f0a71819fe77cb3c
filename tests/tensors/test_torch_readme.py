"""README.md and pages of the site: what they show of relpos.torch."""

from __future__ import annotations

import pytest
from documents import ROOT, run_examples

pytestmark = pytest.mark.skipif(
    not (ROOT / "README.md").exists(), reason="no README next to tests/"
)
PAGES = {
    "README.md": 12,
    "docs/check-your-implementation.md": 12,
    "docs/from-transformers.md": 15,
    "docs/models.md": 12,
    "docs/replace-attention.md": 25,
    "docs/translate-score-mod.md": 48,
}


@pytest.mark.parametrize("page", PAGES)
def test_examples_give_the_output_they_show(page):
    if page in ("README.md", "docs/replace-attention.md"):
        pytest.importorskip("transformers")
    run_examples(page, PAGES[page], "pycon")
