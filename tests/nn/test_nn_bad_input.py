"""Bad calls of relpos.nn, one row each: what is raised, and that the message helps."""

from __future__ import annotations

import pytest
from bad_layers import CALLS, CONSTRUCTORS, OTHERS

ROWS = CONSTRUCTORS + CALLS + OTHERS


@pytest.mark.devmode
@pytest.mark.parametrize(
    ("kind", "pattern", "call"), ROWS, ids=[pattern for _, pattern, _ in ROWS]
)
def test_bad_input(kind, pattern, call):
    with pytest.raises(kind, match=pattern):
        call()
