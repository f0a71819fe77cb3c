"""Fixtures of the tests of verdicts: a shorter search where nothing fits."""

from __future__ import annotations

import pytest

from relpos._opinion import search


@pytest.fixture
def few_pairs(sized, monkeypatch):
    """Let the quick run try an eighth of the pairs of differences.

    They are half of a search that finds nothing. Tests that count attempts, and those
    in which two differences are found, try all of them.
    """
    pairs = search._pairs

    def some(start, singles, with_alone):
        return pairs(start, singles[:: sized(8, 1)], with_alone)

    monkeypatch.setattr(search, "_pairs", some)
