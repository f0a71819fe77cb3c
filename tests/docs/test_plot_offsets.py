"""relpos.plot: relative positions, and the steps of the skew."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
plot = relpos.plot


def cells(ax, chosen):
    """(row, column) of the patches that are so."""
    corners = [patch.get_xy() for patch in ax.patches if chosen(patch)]
    return {(int(y + 0.5), int(x + 0.5)) for x, y in corners}


def hatched(ax):
    return cells(ax, lambda patch: patch.get_hatch())


def test_highlighted_pairs_are_framed_and_have_their_numbers():
    relative = relpos.relative_positions(20)
    ax = plot.relative_position_map(
        relative, highlight=[(6, 1), (6, 8)], title="r", ax=Figure().subplots()
    )
    assert cells(ax, lambda patch: patch.get_linewidth() > 2) == {(6, 1), (6, 8)}
    texts = {text.get_position()[::-1]: text.get_text() for text in ax.texts}
    assert texts == {(6, 1): "-5", (6, 8): "2"} and ax.get_title() == "r"
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 19.5), (19.5, -0.5))
    with pytest.raises(IndexError, match=r"highlight: got \(6, 20\); expected a pair"):
        plot.relative_position_map(relative, highlight=[(6, 20)])
    with pytest.raises(ValueError, match=r"highlight: got shape \(3,\); expected"):
        plot.relative_position_map(relative, highlight=[1, 2, 3])
    with pytest.raises(TypeError, match="highlight: got a torch Tensor"):
        plot.relative_position_map(relative, highlight=Tensor())


@pytest.mark.parametrize("k, offset", [(1, 0), (2, 0), (2, 3), (9, 0), (0, 0)])
def test_clipped_positions_are_hatched(k, offset):
    at = {"query_length": 5, "key_length": 7, "query_offset": offset}
    whole = relpos.relative_positions(**at)
    relative = relpos.relative_positions(**at, max_relative_position=k)
    wanted = {(i, j) for i, j in zip(*np.nonzero(whole != relative), strict=True)}
    ax = plot.relative_position_map(relative, ax=Figure().subplots())
    assert hatched(ax) == (wanted if k else set())  # zeros alone: nothing to tell
    plain = Figure().subplots()
    assert not plot.relative_position_map(relative, clip_marks=False, ax=plain).patches
    labels = plot.relative_position_map(np.eye(4, dtype=int), ax=Figure().subplots())
    assert not labels.patches


def test_skewed_scores_are_those_of_skew():
    scores = np.random.default_rng(0).standard_normal((5, 5))
    figure = Figure()
    panels = plot.skew_steps(scores, title="skew", figure=figure)
    assert figure.get_suptitle() == "skew"
    first, *_, last = (ax.images[0].get_array() for ax in panels)
    assert np.array_equal(first, scores)
    assert np.array_equal(last.filled(0.0), relpos.skew(scores, is_causal=True))
    assert [ax.images[0].get_array().shape for ax in panels] == [
        *((5, 5), (5, 6), (6, 5), (5, 5))
    ]
    later = {(i, j) for i in range(5) for j in range(i + 1, 5)}
    assert hatched(panels[3]) == later and not hatched(panels[2])
    assert len({ax.images[0].get_clim() for ax in panels}) == 1


def test_cells_say_their_query_and_distance():
    panels = plot.skew_steps(4, figure=Figure())
    for text in panels[3].texts:
        j, i = text.get_position()
        if j <= i:
            assert text.get_text() == f"q{i}\n{j - i}"
        elif j == i + 1:
            assert text.get_text() == "0"
        else:
            assert text.get_text().startswith(f"q{i + 1}\n")
            assert text.get_color() == "black"
    assert not plot.skew_steps(9, figure=Figure())[0].texts
    with pytest.raises(ValueError, match=r"scores: got shape \(2, 3\); expected"):
        plot.skew_steps(np.ones((2, 3)))
