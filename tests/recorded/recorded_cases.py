"""All recorded cases: the adapters of every family, and a test's files as its cases."""

from __future__ import annotations

import json

import numpy as np
import pytest
import recorded_biases
import recorded_families
import recorded_helpers
import recorded_models
import recorded_models_late
import recorded_rotary
import recorded_softmax
import recorded_xl
from recorded import SUBSET

FAMILIES = recorded_xl.FAMILIES | recorded_families.FAMILIES | recorded_helpers.FAMILIES
FAMILIES |= recorded_rotary.FAMILIES
FAMILIES |= recorded_softmax.FAMILIES
FAMILIES |= recorded_biases.FAMILIES
FAMILIES |= recorded_models.FAMILIES
FAMILIES |= recorded_models_late.FAMILIES


def pytest_generate_tests(metafunc):
    """A test module that imports this runs once per file where it asks for `path`."""
    if "path" in metafunc.fixturenames:
        folder = metafunc.config.getoption("--golden") or SUBSET
        paths = sorted(folder.glob("*.npz"))
        metafunc.parametrize("path", paths, ids=[path.stem for path in paths])


@pytest.fixture
def unheard_of(tmp_path):
    """A file of a family that no table names."""
    path = tmp_path / "unheard_of.npz"
    np.savez(path, flags_json=json.dumps({"ref": "unheard_of"}), in_x=np.zeros(2))
    return path
