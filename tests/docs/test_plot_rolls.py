"""relpos.plot.piano_roll: notes as bars."""

from __future__ import annotations

import pytest
from bad_kinds import Tensor

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
draw = relpos.plot.piano_roll
NOTES = [[0, 72, 0, 4], [0, 74, 4, 2], [3, 48, 0, 8]]


def new():
    return Figure().subplots()


def test_bars_are_where_notes_are():
    ax = draw(NOTES, title="two voices", ax=new())
    bars = [bar.get_bbox() for bar in ax.patches]
    places = [(bar.x0, (bar.y0 + bar.y1) / 2) for bar in bars]
    assert places == [(0, 72), (1, 74), (0, 48)]
    for bar, (*_, length) in zip(bars, NOTES, strict=True):
        assert 0.9 * length / 4 < bar.width < length / 4
    colours = [bar.get_facecolor() for bar in ax.patches]
    assert colours[0] == colours[1] != colours[2]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["voice 0", "voice 3"] and ax.get_title() == "two voices"
    assert ax.get_yticks().tolist() == [48, 60, 72]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["C3", "C4", "C5"]


def test_limits_and_colours():
    ax = draw(NOTES, vmin=40, vmax=90, cmap="gray", ax=new())
    assert ax.get_ylim() == (40, 90)
    assert ax.patches[0].get_facecolor()[:3] == (0, 0, 0)
    assert draw(NOTES, vmin=60, ax=new()).get_ylim() == (60, 75)


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ([0, 60, 0, 4], r"got shape \(4,\); expected \(n, 4\)"),
        ([[0, 60]], r"got shape \(1, 2\); expected \(n, 4\)"),
        ([[0, 60, 0, 0]], "got a length of 0; expected at least 1"),
        ([[0, 60, -1, 4]], "got a start of -1; expected at least 0"),
        ([[-1, 60, 0, 4]], "got a voice of -1; expected at least 0"),
        ([[0, 128, 0, 4]], "got a pitch of 128; expected less than 128"),
    ],
)
def test_notes_that_are_none(notes, said):
    ax = new()
    with pytest.raises((ValueError, TypeError), match=f"^notes: {said}"):
        draw(notes, ax=ax)
    assert not ax.patches


def test_other_kinds():
    with pytest.raises(TypeError, match=r"^notes: got .*expected"):
        draw([[0.5, 60, 0, 4]])
    with pytest.raises(TypeError, match=r"^notes: got"):
        draw(Tensor())
    with pytest.raises(ValueError, match=r"^vmin: got 9.0; expected less than vmax"):
        draw(NOTES, vmin=9, vmax=8)
