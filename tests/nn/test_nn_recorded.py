"""Recorded modules, whole: outputs and every gradient, in both dtypes."""

from __future__ import annotations

import pytest
from recorded import SUBSET, Case
from recorded_layers import FAMILIES
from tolerances import assert_close, largest


def pytest_generate_tests(metafunc):
    if "path" in metafunc.fixturenames:
        folder = metafunc.config.getoption("--golden") or SUBSET
        paths = [
            path
            for path in sorted(folder.glob("*.npz"))
            if Case(path, "float64").flags["ref"] in FAMILIES
        ]
        metafunc.parametrize("path", paths, ids=[path.stem for path in paths])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_layer_reproduces(path, dtype):
    case, count = Case(path, dtype), 0
    for label, got, want in FAMILIES[case.flags["ref"]](case):
        assert got.dtype == dtype, label
        kind = "layer gradient" if label.startswith("grad") else "recorded"
        assert_close(got, want, kind, largest)
        count += 1
    assert count


def test_subset_has_every_family():
    refs = {Case(path, "float64").flags["ref"] for path in SUBSET.glob("*.npz")}
    assert refs >= set(FAMILIES)
