"""`python -m benchmarks.sharded`: both ways are the same, or nothing is timed."""

from __future__ import annotations

import pytest

pytest.importorskip("dask.array")

from benchmarks import sharded as page

CUTS = [(1, 40), (2, 16)]


@pytest.mark.parametrize("problem", [page.Problem(2, 40, 9, cut) for cut in CUTS])
def test_results_are_equal_and_wrong_ones_are_told(problem):
    works = page.works_of(problem, 1, backward=True)
    found = {name: work() for name, work in works.items()}
    assert {*found["memory"]} == {*found["sharded"]} == {"out", *page.WRT}
    page.check(problem, found["sharded"], found["memory"])
    for name in found["memory"]:
        wrong = found["sharded"] | {name: found["sharded"][name] * 1.001}
        with pytest.raises(ValueError, match=rf", window 9, .*: {name} is 1e-03 off"):
            page.check(problem, wrong, found["memory"])


@pytest.mark.few(1)
@pytest.mark.parametrize("backward", [True, False])
def test_memory_counts_arguments_and_results(backward):
    found = page.peak(2000, backward)
    arrays = 2000 * page.DIM * 4 * (8 if backward else 4)
    assert found is None or arrays < found < 10 * arrays
