"""Stored experiments say where they are from, and still hold what is claimed."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import ROOT, experiment

from relpos import data

FOLDER = Path(data.__file__).with_name("experiments")
STORED = sorted(path.stem for path in FOLDER.glob("*.json"))
sources = pytest.mark.skipif(
    not (ROOT / "docs" / "experiments").exists(), reason="no docs/ in this tree"
)


@pytest.mark.parametrize("name", STORED)
def test_results_have_seeds_versions_and_time(name):
    found = data.experiment(name)
    assert found.name == name
    least = 1 if name == "speech" else 5  # whose numbers are checked, not averaged
    assert len({*found.seeds}) == len(found.seeds) >= least
    assert {"relpos", "numpy", "python"} <= {*found.versions}
    assert found.cpu and found.threads >= 1
    assert found.seconds > 0
    assert found.results
    assert (FOLDER / f"{name}.json").stat().st_size < 100_000


def test_an_unknown_name_is_told_those_that_there_are():
    wanted = r"^name: got 'x'; expected one of .*'probes'"
    with pytest.raises(ValueError, match=wanted):
        data.experiment("x")
    with pytest.raises(TypeError, match=r"^name: got int; expected one of"):
        data.experiment(1)


@sources
def test_every_experiment_is_stored_and_its_table_on_a_page():
    from docs.experiments import EXPERIMENTS, page

    assert sorted(EXPERIMENTS) == STORED
    text = "\n".join(path.read_text("utf-8") for path in page.PAGES)
    assert page.names(text) == {*EXPERIMENTS}
    for name in EXPERIMENTS:
        assert page.filled(text, name) == text, name


@sources
@pytest.mark.parametrize("name", STORED)
def test_stored_results_are_as_claimed(name):
    module = experiment(name.replace("-", "_"))
    module.check(data.experiment(name).results, quick=False)
