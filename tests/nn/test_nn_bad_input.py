"""Bad calls of relpos.nn, one row each: what is raised, and that the message helps."""

from __future__ import annotations

import bad_layers
import pytest
from refusals import check, rows


@pytest.mark.devmode
@pytest.mark.parametrize("row", rows(bad_layers.ROWS), ids=lambda row: row[0])
def test_bad_input(row):
    check(row, vars(bad_layers))
