"""Integers of plans do not overflow: what Frama-C shows, and that it can fail."""

from __future__ import annotations

import shutil

import overflow
import pytest

pytestmark = pytest.mark.skipif(
    not overflow.available(), reason="Frama-C is not installed"
)


def test_no_integer_of_a_plan_overflows():
    """With `pytest -s` it prints what was followed, and what was not."""
    assert overflow.main([]) == 0


#: A line of a header, what overflows in its place, and a part of the report.
DEFECTS = {
    "a side of a window that is unbounded": (
        "attention/sight.h",
        "    if (p->sight.window_right != RP_UNBOUNDED)\n        v.end",
        "    if (p->sight.window_right != RP_UNBOUNDED - 1)\n        v.end",
        "not shown: attention/sight.h: rp_in_window: ",
    ),
    "the end of a range, which is any number": (
        "attention/sight.h",
        "RP_MIN(RP_MAX(begin, 0), Lk)",
        "begin",
        "not shown: attention/sight.h: rp_visible: 0 <= v.begin && v.end <= RP_LONGEST",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", DEFECTS)
def test_an_overflow_is_found(tmp_path, name):
    path, old, new, found = DEFECTS[name]
    for folder in ("csrc", "tests/proofs"):
        shutil.copytree(overflow.ROOT / folder, tmp_path / folder)
    header = tmp_path / "csrc" / "kernels" / path
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))
    report = overflow.analysed(tmp_path, positions=True)
    lines = overflow.faults(report, positions=True)
    assert any(line.startswith(found) for line in lines), lines
