"""relpos.plot: what is drawn, in which colours, and what cannot be drawn."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
plot = relpos.plot


def limits(ax):
    """The numbers at the ends of the colours, the bar's as well."""
    image = ax.images[0]
    assert (image.colorbar.vmin, image.colorbar.vmax) == image.get_clim()
    return image.get_clim()


def colours(ax):
    """Red, green, blue of every pair or number."""
    image = ax.images[0]
    return image.to_rgba(image.get_array())[..., :3]


def test_plots_draw_into_the_axes_given():
    figure = Figure()
    ax = figure.subplots()
    assert plot.relative_position_map(np.eye(3, dtype=int), ax=ax) is ax
    assert [text.get_text() for text in ax.texts] == list("100010001")
    assert plot.attention_map(np.eye(3), ax=figure.add_subplot()).images
    assert plot.encoding_map(np.zeros((3, 2)), ax=figure.add_subplot()).images
    lines = plot.loss_curves({"a": [2.0, 1.0]}, ax=figure.add_subplot()).lines
    assert lines[0].get_xydata().tolist() == [[1, 2], [2, 1]]


def test_without_axes_a_figure_is_made():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    try:
        ax = plot.encoding_map([[1.0, -4.0]])
        assert pyplot.gcf() is ax.figure and limits(ax) == (-4, 4)
        second = plot.encoding_map([[8.0]], ax=ax.figure.add_subplot())
        assert limits(ax) == limits(second) == (-8, 8)
    finally:
        pyplot.close("all")


@pytest.mark.parametrize("first", [0, 1])
def test_encodings_in_one_figure_have_one_scale(first):
    """Indices up to 9, and the same normalised to 1, do not look alike."""
    panels = Figure().subplots(1, 2)
    encodings = [
        relpos.index_encoding(10, 4),
        relpos.normalized_index_encoding(10, 4),
    ]
    for n in (first, 1 - first):
        plot.encoding_map(encodings[n], ax=panels[n])
    assert limits(panels[0]) == limits(panels[1]) == (-9, 9)
    index, normalised = map(colours, panels)
    assert np.abs(index[-1] - normalised[-1]).min() > 0.2
    assert np.array_equal(index[1], normalised[-1])  # both are 1


def test_figures_and_limits_given_are_apart():
    left, right = Figure().subplots(1, 2)
    plot.encoding_map([[9.0]], ax=left)
    plot.encoding_map([[1.0]], ax=right, vmax=2)
    other = plot.encoding_map([[5.0]], ax=Figure().subplots())
    assert (limits(left), limits(right), limits(other)) == ((-9, 9), (-2, 2), (-5, 5))
    third = plot.encoding_map([[3.0]], vmin=-1, vmax=4, ax=Figure().subplots())
    fourth = plot.encoding_map([[3.0]], vmin=-1, ax=Figure().subplots())
    assert (limits(third), limits(fourth)) == ((-1, 4), (-1, 1))


def test_an_encoding_of_zeros_does_not_set_the_scale():
    panels = Figure().subplots(1, 2)
    plot.encoding_map(np.zeros((2, 2)), ax=panels[0])
    assert limits(panels[0]) == (-1, 1)
    plot.encoding_map(np.full((2, 2), 0.01), ax=panels[1])
    assert [limits(ax) for ax in panels] == [(-0.01, 0.01)] * 2


def test_negative_scores_are_shown():
    scores = np.array([[-3.0, -1.0, 0.0], [1.0, 2.0, 3.0]])
    ax = plot.attention_map(scores, ax=Figure().subplots())
    assert limits(ax) == (-3, 3)
    shown = colours(ax).reshape(-1, 3)
    assert len(np.unique(shown, axis=0)) == scores.size  # no two of them alike
    red, blue = shown[:, 0], shown[:, 2]
    assert (blue[:2] > red[:2]).all() and (red[-2:] > blue[-2:]).all()
    assert np.ptp(shown[2]) < 0.01 and shown[2].min() > 0.9  # zero is white


def test_weights_share_a_scale_and_scores_another():
    panels = Figure().subplots(1, 4)
    for ax, numbers in zip(panels, (0.5, 0.25, -8.0, [-2.0]), strict=True):
        plot.attention_map(np.full((1, 1), numbers), ax=ax)
    assert [limits(ax) for ax in panels] == [(0, 0.5)] * 2 + [(-8, 8)] * 2
    same = plot.attention_map([[2.0]], vmin=-8, ax=Figure().subplots())
    assert np.array_equal(same.images[0].cmap(0.1), panels[2].images[0].cmap(0.1))
    assert limits(same) == (-8, 8)


def test_hidden_keys_are_no_zeros():
    scores = np.array([[1.0, -np.inf, np.nan], [0.5, 2.0, np.inf]])
    ax = plot.attention_map(scores, ax=Figure().subplots())
    assert limits(ax) == (0, 2)  # a hidden key is no negative score
    assert np.array_equal(ax.images[0].get_array().mask, ~np.isfinite(scores))
    assert max(ax.get_facecolor()[:3]) < 0.9  # white would be a score of zero
    nothing = plot.attention_map([[np.nan]], ax=ax.figure.add_subplot())
    assert limits(nothing) == limits(ax)


def test_losses_below_zero_are_shown():
    ax = plot.loss_curves({"a": [1.0, -2.0]}, ax=Figure().subplots())
    assert ax.get_ylim()[0] < -2
    ax = plot.loss_curves({"a": [1.0, 0.5], "b": []}, ax=Figure().subplots())
    assert ax.get_ylim()[0] == 0


MAPS = [
    ("encoding_map", "encoding", "(L, dim)"),
    ("attention_map", "weights", "(Lq, Lk)"),
    ("relative_position_map", "relative", "(Lq, Lk)"),
]


@pytest.mark.parametrize("function, name, shape", MAPS)
def test_bad_maps(function, name, shape):
    draw = getattr(plot, function)
    for array in (np.zeros((1, 7, 7), int), np.zeros(3, int)):
        with pytest.raises(ValueError) as caught:
            draw(array)
        message = str(caught.value)
        assert message.startswith(f"{name}: got shape {array.shape}; expected two axes")
        assert shape in message
    with pytest.raises(ValueError, match=rf"{name}: got shape \(0, 4\); expected"):
        draw(np.zeros((0, 4), int))
    with pytest.raises(ValueError, match=f"{name}: .*not a rectangular array"):
        draw([[1, 2], [3]])
    for foreign in ([["a"]], [[1j]], [[None]], np.ma.zeros((2, 2)), {}):
        with pytest.raises(TypeError, match=f"^{name}: got .*; expected "):
            draw(foreign)
    for ax in (Figure().subplots(1, 2), "axes", 3):
        with pytest.raises(TypeError, match=r"^ax: got .*; expected one matplotlib"):
            draw([[1, 2]], ax=ax)


def test_relative_positions_are_integers():
    with pytest.raises(TypeError, match=r"relative: got dtype float64; expected int"):
        plot.relative_position_map([[0.5]])


@pytest.mark.parametrize("draw", [plot.encoding_map, plot.attention_map])
def test_bad_limits(draw):
    for name in ("vmin", "vmax"):
        for bad in ("x", np.zeros(2), True):
            with pytest.raises(TypeError, match=f"{name}: got .*; expected a real"):
                draw([[1.0]], **{name: bad})
        with pytest.raises(ValueError, match=f"{name}: got nan; expected a finite"):
            draw([[1.0]], **{name: np.nan})
    ax = Figure().subplots()
    with pytest.raises(ValueError, match=r"vmin: got 2.0; expected less than vmax, 1"):
        draw([[1.0]], vmin=2, vmax=1, ax=ax)
    assert not ax.images


def test_bad_losses():
    with pytest.raises(TypeError, match="losses: got list; expected a mapping"):
        plot.loss_curves([1.0, 2.0])
    with pytest.raises(ValueError, match=r"losses\['a'\]: got shape \(1, 1, 2\); ex"):
        plot.loss_curves({"a": [[[1.0, 2.0]]]})
    with pytest.raises(ValueError, match=r"losses\['a'\]: got shape \(0, 2\); expec"):
        plot.loss_curves({"a": np.ones((0, 2))})
    with pytest.raises(TypeError, match=r"losses\['a'\]: got .*; expected real num"):
        plot.loss_curves({"a": ["x"]})


@pytest.mark.parametrize("function, name, shape", MAPS)
def test_tensors_are_refused_as_everywhere(function, name, shape):
    with pytest.raises(TypeError, match=f"^{name}: got a torch Tensor; expected"):
        getattr(plot, function)(Tensor())


def test_tensors_are_no_losses():
    for losses in (Tensor(), {"a": Tensor()}):
        with pytest.raises(TypeError, match=r"^losses.*: got a torch Tensor"):
            plot.loss_curves(losses)
