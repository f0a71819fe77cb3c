"""relpos.plot: arcs, plans, results by length, encodings with tokens."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
plot = relpos.plot


def new():
    return Figure().subplots()


def test_arcs_of_shaws_figure():
    ax = plot.edges(9, k=4, pairs=[(6, 1), (6, 8), (2, 4)], title="k = 4", ax=new())
    assert [text.get_text() for text in ax.texts] == ["-4", "2", "2"]
    below, above, same = ax.lines[1:]
    x, y = below.get_xydata().T
    assert np.allclose([x[0], x[-1]], [6, 1]) and y.min() < -2.4 and y.max() < 1e-9
    assert above.get_ydata().max() > 0.9 and above.get_color() == same.get_color()
    assert below.get_color() != above.get_color() and ax.get_title() == "k = 4"
    words = ["a", "b", "c"]
    labels = [[0, 5, 6], [7, 0, 8], [9, 10, 0]]
    ax = plot.edges(labels, tokens=words, ax=new())
    assert [text.get_text() for text in ax.texts] == ["7", "8"]
    assert [label.get_text() for label in ax.get_xticklabels()] == words
    with pytest.raises(IndexError, match=r"pairs: got \(0, 3\); expected a pair of"):
        plot.edges(3, pairs=[(0, 3)])
    with pytest.raises(
        ValueError, match=r"labels: got shape \(1, 2\); expected \(L, L"
    ):
        plot.edges([[1, 2]])
    with pytest.raises(TypeError, match="labels: got a torch Tensor"):
        plot.edges(Tensor())


@pytest.mark.parametrize("quantity", ["bytes", "flops"])
def test_bars_of_a_plan(quantity):
    plan = relpos.plan(2, 8, 300, 300, 64, scheme="shaw")
    ax = plot.plan_bars(plan, quantity=quantity, title="Shaw", ax=new())
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == [getattr(form, quantity) for form in plan.formulations]
    assert ax.get_xscale() == "log" and ax.get_title() == "Shaw"
    colours = [bar.get_facecolor() for bar in ax.patches]
    assert colours.count(colours[-1]) == 1  # relpos apart
    written = {"bytes": "B", "flops": ""}[quantity]
    for size, text in zip(widths, ax.texts, strict=True):
        number, unit = text.get_text().split(" ")
        scale = {"k": 1e3, "M": 1e6, "G": 1e9}[unit.removesuffix(written)]
        assert float(number) * scale == pytest.approx(size, rel=5e-3)
    same = plot.plan_bars(plan, quantity=quantity, vmin=1e3, vmax=1e12, ax=new())
    assert same.get_xlim() == (1e3, 1e12)
    with pytest.raises(ValueError, match=r"vmin: got 0.0; expected more than 0"):
        plot.plan_bars(plan, vmin=0)
    with pytest.raises(TypeError, match="plan: got int; expected what relpos"):
        plot.plan_bars(3)
    with pytest.raises(ValueError, match="quantity: got 'x'; expected one of 'bytes'"):
        plot.plan_bars(plan, quantity="x")


@pytest.mark.parametrize("quantity", ["bytes", "flops"])
def test_costs_by_length_are_those_of_plans(quantity):
    forms, lengths = ["relpos", "L x L x d"], [64, 256]
    ax = plot.costs_over_length(
        ["shaw", "alibi"], lengths, quantity=quantity, formulations=forms, heads=2,
        head_dim=32, vmin=1e3, title="costs", ax=new()
    )  # fmt: skip
    names = [line.get_label() for line in ax.lines]
    assert names == ["shaw, relpos", "shaw, L x L x d", "alibi, relpos"]
    assert ax.get_xscale() == ax.get_yscale() == "log" and ax.get_ylim()[0] == 1e3
    for line in ax.lines:
        scheme, name = line.get_label().split(", ")
        plans = [relpos.plan(1, 2, n, n, 32, scheme=scheme) for n in lengths]
        wanted = [
            {form.name: getattr(form, quantity) for form in plan.formulations}[name]
            for plan in plans
        ]
        assert line.get_xydata().T.tolist() == [lengths, wanted]
    own, other, second = ax.lines
    assert own.get_color() == other.get_color() != second.get_color()
    assert own.get_linestyle() == second.get_linestyle() != other.get_linestyle()


def test_bad_costs_by_length():
    draw = plot.costs_over_length
    with pytest.raises(ValueError, match=r"lengths\[1\]: got 0; expected an integer"):
        draw("shaw", [1, 0])
    with pytest.raises(ValueError, match="scheme: got 'x'; expected"):
        draw("x", [8])
    with pytest.raises(ValueError, match=r"formulations: got .* expected some"):
        draw("alibi", [8], formulations=["L x R"])
    with pytest.raises(ValueError, match=r"formulations\[0\]: got 'L'; expected one"):
        draw("alibi", [8], formulations=["L"])
    for bad in (3, Tensor(), [3]):
        with pytest.raises(TypeError, match=r"^schemes: got .*; expected"):
            draw(bad, [8])


def test_results_of_several_runs():
    runs = np.array([[1.0, 0.5, 0.25], [1.0, 0.75, 0.25]])
    results = {"Shaw": ([16, 32, 64], runs), "learned": ([16, 32], [0.5, 0.25])}
    ax = plot.length_generalisation(results, trained_at=16, vmin=0, vmax=1, ax=new())
    assert np.array_equal(ax.lines[0].get_xydata().T, [[16, 32, 64], runs.mean(0)])
    assert ax.lines[1].get_ydata().tolist() == [0.5, 0.25]
    assert len(ax.collections) == 1  # a band for those of several runs alone
    corners = ax.collections[0].get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (0.25, 1.0)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["Shaw", "learned", "trained"] and ax.get_ylim() == (0, 1)
    with pytest.raises(ValueError, match=r"results\['a'\]\[1\]: got shape \(3,\); exp"):
        plot.length_generalisation({"a": ([1, 2], [1, 2, 3])})
    for bad in ({"a": Tensor()}, {"a": [1]}, Tensor()):
        with pytest.raises(TypeError, match=r"^results.*: got .*; expected"):
            plot.length_generalisation(bad)


def test_encodings_with_tokens_on_either_axis():
    encoding, words = np.arange(6.0).reshape(3, 2), ["a", "b", "c"]
    upright = plot.encoding_map(encoding, tokens=words, ax=new())
    turned = plot.encoding_map(encoding, tokens=words, positions_on="x", ax=new())
    for ax, axis, shown in (
        (upright, upright.yaxis, encoding),
        (turned, turned.xaxis, encoding.T),
    ):
        assert [label.get_text() for label in axis.get_ticklabels()] == words
        assert np.array_equal(ax.images[0].get_array(), shown)
    assert (turned.get_xlabel(), turned.get_ylabel()) == ("position", "dimension")
    with pytest.raises(ValueError, match="positions_on: got 'z'; expected one of 'y'"):
        plot.encoding_map(encoding, positions_on="z")


@pytest.mark.parametrize("shared", [True, False])
def test_several_encodings(shared):
    figure = Figure()
    encodings = {"one": np.ones((3, 2)), "nine": np.full((3, 2), 9.0)}
    panels = plot.encoding_maps(
        encodings, share_scale=shared, columns=1, title="two", figure=figure
    )
    first = (-9, 9) if shared else (-1, 1)
    assert [ax.images[0].get_clim() for ax in panels] == [first, (-9, 9)]
    assert [ax.get_title() for ax in panels] == ["one", "nine"]
    assert figure.get_suptitle() == "two"
    assert len(figure.axes) == (3 if shared else 4)  # one bar, or one for each
    with pytest.raises(TypeError, match=r"encodings\['a'\]: got a torch Tensor"):
        plot.encoding_maps({"a": Tensor()})


def test_several_encodings_each_with_tokens_of_its_own():
    encodings = {"a": np.ones((2, 3)), "b": np.ones((3, 3)), "c": np.ones((1, 3))}
    tokens = {"a": ["x", "y"], "b": ["x", "y", "z"]}
    panels = plot.encoding_maps(encodings, tokens=tokens, figure=Figure())
    for ax, name in zip(panels[:2], "ab", strict=True):
        assert [t.get_text() for t in ax.yaxis.get_ticklabels()] == tokens[name]
    with pytest.raises(ValueError, match="tokens: got 'd'; expected titles of enc"):
        plot.encoding_maps(encodings, tokens={"d": ["x"]})
    with pytest.raises(ValueError, match=r"tokens\['b'\]: got 2; expected 3"):
        plot.encoding_maps(encodings, tokens={"b": ["x", "y"]})


def test_new_figures_have_room_for_long_tokens():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    weights, long = np.ones((2, 3, 3)), ["networks"] * 3
    heights = []
    for tokens in (None, long):
        panels = plot.attention_heads(weights, tokens=tokens)
        panels[0].figure.canvas.draw()
        heights.append(panels[0].get_window_extent().height)
        pyplot.close(panels[0].figure)
    assert heights[1] >= heights[0]


@pytest.mark.parametrize(
    "word, turned", [("w", 0), ("w_3", 45), ("$w_3$", 0), ("$w_{3}$", 0), ("words", 45)]
)
def test_words_that_fit_side_by_side_stand_level(word, turned):
    ax = plot.edges(3, tokens=[word] * 3, ax=new())
    assert [label.get_rotation() for label in ax.get_xticklabels()] == [turned] * 3
