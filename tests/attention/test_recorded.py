"""Every recorded case that today's functions can express, in both dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import LARGE, NOT_EXPRESSED, ORACLE, SUBSET, Case
from recorded_cases import FAMILIES, pytest_generate_tests, unheard_of
from tolerances import assert_close, largest

import relpos

# the files of the folder, and a strange one
__all__ = ["pytest_generate_tests", "unheard_of"]

pytestmark = [pytest.mark.usefixtures("strict_floats"), pytest.mark.devmode]

SUBSET_BYTES = 5_000_000


def replay(library, path, dtype):
    """Compare all that the family's adapter yields; returns how much that was."""
    case = Case(path, dtype)
    if case.family in NOT_EXPRESSED:
        pytest.skip(f"needs {NOT_EXPRESSED[case.family]}")
    count = 0
    for label, got, want in FAMILIES[case.family](library, case):
        got = np.asarray(got)
        if got.dtype.kind == "f":
            assert got.dtype == dtype, label
            assert_close(got, want, "recorded", largest)
        else:
            assert np.array_equal(got, want), label
        count += 1
    assert count


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_relpos_reproduces(path, dtype):
    replay(relpos, path, dtype)


def test_oracle_reproduces(path):
    """The oracle that judges everything else, against code of other people."""
    replay(ORACLE, path, "float64")


def test_every_file_has_a_known_family(golden_folder):
    folder = golden_folder or SUBSET
    refs = {Case(path, "float64").family for path in folder.glob("*.npz")}
    assert refs
    assert not refs - set(FAMILIES) - set(NOT_EXPRESSED)
    assert not set(FAMILIES) & set(NOT_EXPRESSED)
    if golden_folder:  # all cases: a name that no file has skips nothing
        assert refs >= set(NOT_EXPRESSED)


def test_an_unknown_family_fails(request):
    with pytest.raises(KeyError, match="unheard_of"):
        replay(relpos, request.getfixturevalue("unheard_of"), "float64")


def test_subset_covers_every_expressed_family_and_stays_small():
    paths = list(SUBSET.glob("*.npz"))
    known = {Case(path, "float64").family for path in paths}
    assert known | LARGE >= set(FAMILIES)
    assert not known & LARGE
    assert sum(path.stat().st_size for path in paths) <= SUBSET_BYTES
