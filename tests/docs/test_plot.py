"""relpos.plot: scales, maps of pairs and encodings."""

from __future__ import annotations

import numpy as np
import pytest

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
FigureCanvasAgg = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg
plot = relpos.plot


def new():
    return Figure().subplots()


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


FREQUENCIES = relpos.rotary_frequencies(64)
#: A first call of a function, and the same picture with all that it leaves out.
FIRST_CALLS = {
    "skew_steps()": lambda: plot.skew_steps(5),
    'fingerprint("t5")': lambda: plot.fingerprint("t5", 48),
    "rotary_wheel()": lambda: plot.rotary_wheel(8, range(8), base=10000.0),
    "rotary_wheel(8)": lambda: plot.rotary_wheel(8, range(8)),
    "buckets()": lambda: plot.buckets(relpos.t5_bucket, 140),
    "buckets(relpos.t5_bucket)": lambda: plot.buckets(relpos.t5_bucket, 140),
    "wavelengths()": lambda: plot.wavelengths({"64 columns": FREQUENCIES}),
    "wavelengths(64)": lambda: plot.wavelengths({"64 columns": FREQUENCIES}),
    "relative_position_map()": lambda: plot.relative_position_map(
        relpos.relative_positions(6)
    ),
    "relative_position_map(6)": lambda: plot.relative_position_map(
        relpos.relative_positions(6)
    ),
    "edges()": lambda: plot.edges(9),
    "encoding_map()": lambda: plot.encoding_map(relpos.sinusoidal(64, 32)),
    "decay()": lambda: plot.decay({"rotary, 64 columns": FREQUENCIES}, 256),
    'costs_over_length("shaw")': lambda: plot.costs_over_length(
        "shaw", [128, 256, 512, 1024, 2048, 4096, 8192]
    ),
}
#: Functions that show results of the caller, which have no default.
SHOW_RESULTS = {
    "attention_graph", "attention_heads", "attention_map", "audit", "bias_by_distance",
    "compare", "encoding_maps", "grid_bias", "length_generalisation", "loss_curves",
    "plan_bars", "score_map", "score_terms",
}  # fmt: skip


def pixels(drawn):
    """The picture of axes, or of the first of several."""
    import matplotlib.pyplot as plt

    figure = np.ravel(drawn)[0].figure
    plt.close(figure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_a_first_call_needs_no_settings(call):
    found = pixels(eval(f"plot.{call}", {"plot": plot, "relpos": relpos}))
    assert np.array_equal(found, pixels(FIRST_CALLS[call]()))


def test_every_function_has_a_first_call():
    called = {call.partition("(")[0] for call in FIRST_CALLS} | {"fingerprints"}
    assert {*plot.__all__} == called | SHOW_RESULTS


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
    other = plot.encoding_map([[5.0]], ax=new())
    assert (limits(left), limits(right), limits(other)) == ((-9, 9), (-2, 2), (-5, 5))
    third = plot.encoding_map([[3.0]], vmin=-1, vmax=4, ax=new())
    fourth = plot.encoding_map([[3.0]], vmin=-1, ax=new())
    assert (limits(third), limits(fourth)) == ((-1, 4), (-1, 1))


def test_an_encoding_of_zeros_does_not_set_the_scale():
    panels = Figure().subplots(1, 2)
    plot.encoding_map(np.zeros((2, 2)), ax=panels[0])
    assert limits(panels[0]) == (-1, 1)
    plot.encoding_map(np.full((2, 2), 0.01), ax=panels[1])
    assert [limits(ax) for ax in panels] == [(-0.01, 0.01)] * 2


def test_negative_scores_are_shown():
    scores = np.array([[-3.0, -1.0, 0.0], [1.0, 2.0, 3.0]])
    ax = plot.attention_map(scores, ax=new())
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
    same = plot.attention_map([[2.0]], vmin=-8, ax=new())
    assert np.array_equal(same.images[0].cmap(0.1), panels[2].images[0].cmap(0.1))
    assert limits(same) == (-8, 8)


def test_hidden_keys_are_no_zeros():
    scores = np.array([[1.0, -np.inf, np.nan], [0.5, 2.0, np.inf]])
    ax = plot.attention_map(scores, ax=new())
    assert limits(ax) == (0, 2)  # a hidden key is no negative score
    assert np.array_equal(ax.images[0].get_array().mask, ~np.isfinite(scores))
    assert max(ax.get_facecolor()[:3]) < 0.9  # white would be a score of zero
    nothing = plot.attention_map([[np.nan]], ax=ax.figure.add_subplot())
    assert limits(nothing) == limits(ax)


def test_losses_below_zero_are_shown():
    ax = plot.loss_curves({"a": [1.0, -2.0]}, ax=new())
    assert ax.get_ylim()[0] < -2
    ax = plot.loss_curves({"a": [1.0, 0.5], "b": []}, ax=new())
    assert ax.get_ylim()[0] == 0


MAPS = [
    ("encoding_map", "encoding", "(L, dim)"),
    ("attention_map", "weights", "(Lq, Lk)"),
    ("relative_position_map", "relative", "(Lq, Lk)"),
]


@pytest.mark.parametrize(("function", "name", "shape"), MAPS)
def test_bad_maps(function, name, shape):
    draw = getattr(plot, function)
    for array in (np.zeros((1, 7, 7), int), np.zeros(3, int)):
        with pytest.raises(ValueError, match=f"^{name}: got shape") as caught:
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


WORDS = ["hinton", "said", "that"]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def drawn(ax):
    return np.ma.getdata(ax.images[-1].get_array())


def test_tokens_at_both_axes_or_at_one():
    square, wide = np.zeros((3, 3)), np.zeros((3, 2))
    for draw in (plot.score_map, plot.attention_map):
        ax = draw(square, tokens=WORDS, ax=new())
        assert ticks(ax.yaxis) == ticks(ax.xaxis) == WORDS
        ax = draw(wide, tokens=WORDS, key_tokens=["a", "b"], ax=new())
        assert (ticks(ax.yaxis), ticks(ax.xaxis)) == (WORDS, ["a", "b"])


def test_what_a_mask_hides_is_no_score():
    scores = np.array([[1.0, 50.0], [np.inf, -2.0]])
    mask = np.array([[True, False], [True, True]])
    ax = plot.score_map(scores, mask=mask, title="causal", ax=new())
    assert ax.get_title() == "causal" and ax.images[0].get_clim() == (-2, 2)
    shown = ax.images[0].get_array().mask
    assert np.array_equal(shown, [[False, True], [True, False]])
    assert [text.get_text() for text in ax.texts] == ["1.0", "-2.0"]


def test_the_center_of_scores_is_white():
    ax = plot.score_map([[3.0, 5.0, 4.0]], center=3.0, ax=new())
    image = ax.images[0]
    assert image.get_clim() == (1, 5)
    red, green, blue, _ = image.to_rgba(image.get_array())[0, 0]
    assert min(red, green, blue) > 0.9
    ax = plot.score_map([[1.0]], center=3.0, vmax=4.0, ax=new())
    assert ax.images[0].get_clim() == (2, 4)


def test_numbers_where_they_can_be_read():
    for side, count in ((12, 144), (13, 0)):
        ax = plot.score_map(np.eye(side), ax=new())
        assert len(ax.texts) == count
    ax = plot.score_map(np.eye(13), annotate=True, ax=new())
    assert len(ax.texts) == 169
    ax = plot.score_map([[0.5, -0.25]], annotate=False, ax=new())
    assert not ax.texts
    ax = plot.score_map([[0.5, -0.001]], ax=new())
    assert [text.get_text() for text in ax.texts] == ["0.50", "0.00"]
    ax = plot.score_map([[9.0, 0.0]], ax=new())
    assert [text.get_color() for text in ax.texts] == ["white", "black"]


def test_numbers_can_be_read_on_a_scale_that_grew():
    panels = Figure().subplots(1, 2)
    first = plot.score_map([[1.0, 0.0, np.nan]], annotate=True, ax=panels[0])
    assert [text.get_color() for text in first.texts] == ["white", "black"]
    own = first.text(0, 0, "own", color="red")
    plot.score_map([[9.0]], ax=panels[1])
    assert [text.get_color() for text in first.texts[:2]] == ["black", "black"]
    assert own.get_color() == "red"


def test_one_head_of_several():
    weights = np.arange(8.0).reshape(2, 2, 2)
    ax = plot.attention_map(weights, head=1, ax=new())
    assert np.array_equal(drawn(ax), weights[1])


def test_heads_as_a_grid_on_one_scale():
    weights = np.arange(5.0)[:, None, None] * np.eye(3) / 5
    figure = Figure()
    panels = plot.attention_heads(
        weights, columns=3, tokens=WORDS, title="layer 2", figure=figure
    )
    assert len(panels) == 5 and len(figure.axes) == 6  # and one bar
    assert {ax.images[0].get_clim() for ax in panels} == {(0, 0.8)}
    for head, ax in enumerate(panels):
        assert np.array_equal(drawn(ax), weights[head])
    assert panels[3].get_subplotspec().get_geometry() == (2, 3, 3, 3)
    assert figure.get_suptitle() == "layer 2" and ticks(panels[0].yaxis) == WORDS
    signed = plot.attention_heads(-weights, cmap="PuOr", figure=Figure())
    assert signed[0].images[0].get_clim() == (-0.8, 0.8)
    assert signed[0].images[0].cmap.name == "PuOr"


def test_terms_are_those_of_scores_and_their_sum():
    rng = np.random.default_rng(0)
    q, k, table = rng.random((2, 3, 4)), rng.random((2, 3, 4)), rng.random((5, 4))
    keywords = {"rel_key": table, "pos_bias_u": np.ones(4), "is_causal": True}
    wanted = relpos.scores(q, k, terms=True, **keywords)
    figure = Figure()
    panels = plot.score_terms(q, k, head=1, tokens=WORDS, figure=figure, **keywords)
    assert len(panels) == len(wanted) + 1
    for ax, term in zip(panels, wanted.values(), strict=False):
        assert np.array_equal(drawn(ax), term[1])
    total = panels[-1].images[0].get_array()
    scores = relpos.scores(q, k, **keywords)[1]
    assert np.allclose(total.filled(-np.inf), scores, rtol=1e-15, atol=0)
    assert len({ax.images[0].get_clim() for ax in panels}) == 1


def test_every_term_has_a_title():
    rng = np.random.default_rng(0)
    x = rng.random((1, 3, 4))
    panels = plot.score_terms(
        x, x, rel_key=x[0], rel_query=x[0], rel_bias=np.ones((1, 5)), softcap=5.0,
        log_decay=-np.ones((1, 3)), pos_bias_u=x[0, 0], pos_bias_v=x[0, 0],
        position_query=x, is_causal=True, figure=Figure()
    )  # fmt: skip
    titles = [ax.get_title() for ax in panels]
    assert len({*titles}) == 10 and titles[-2:] == ["mask", "sum"]


def cells(ax, chosen):
    """(row, column) of the patches that are so."""
    corners = [patch.get_xy() for patch in ax.patches if chosen(patch)]
    return {(int(y + 0.5), int(x + 0.5)) for x, y in corners}


def hatched(ax):
    return cells(ax, lambda patch: patch.get_hatch())


def test_highlighted_pairs_are_framed_and_have_their_numbers():
    relative = relpos.relative_positions(20)
    ax = plot.relative_position_map(
        relative, highlight=[(6, 1), (6, 8)], title="r", ax=new()
    )
    assert cells(ax, lambda patch: patch.get_linewidth() > 2) == {(6, 1), (6, 8)}
    texts = {text.get_position()[::-1]: text.get_text() for text in ax.texts}
    assert texts == {(6, 1): "-5", (6, 8): "2"} and ax.get_title() == "r"
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 19.5), (19.5, -0.5))


@pytest.mark.parametrize(
    ("k", "shape", "offset"),
    [
        *(
            (k, (5, 7), offset)
            for k, offset in [(1, 0), (2, 0), (2, 3), (9, 0), (0, 0)]
        ),
        *((2, (6, 1), offset) for offset in (0, -3, 2)),  # by the steps of queries
        (2, (1, 7), -2),  # one number: the last that could be clipped is not
        (2, (3, 4), 5),
        (2, (3, 4), -4),
    ],
)
def test_clipped_positions_are_hatched(k, shape, offset):
    whole = relpos.relative_positions(*shape, query_offset=offset)
    relative = np.clip(whole, -k, k)
    wanted = {(i, j) for i, j in zip(*np.nonzero(whole != relative), strict=True)}
    ax = plot.relative_position_map(relative, ax=new())
    assert hatched(ax) == (wanted if k else set())  # zeros alone: nothing to tell
    plain = Figure().subplots()
    assert not plot.relative_position_map(relative, clip_marks=False, ax=plain).patches


@pytest.mark.parametrize(
    ("relative", "expected"),
    [
        (np.eye(4, dtype=int), set()),  # labels
        ([[0, 1, 2], [0, 1, 2]], set()),
        ([[0, 1, 1], [-1, -1, 0]], {(0, 2), (1, 0)}),  # queries that are 2 apart
    ],
)
def test_what_no_other_steps_tell_is_not_hatched(relative, expected):
    assert hatched(plot.relative_position_map(relative, ax=new())) == expected


def test_skewed_scores_are_those_of_skew():
    scores = np.random.default_rng(0).standard_normal((5, 5))
    figure = Figure()
    panels = plot.skew_steps(scores, title="skew", figure=figure)
    assert figure.get_suptitle() == "skew"
    first, *_, last = (ax.images[0].get_array() for ax in panels)
    assert np.array_equal(first, scores)
    assert np.array_equal(last.filled(0.0), relpos.skew(scores, is_causal=True))
    assert [ax.images[0].get_array().shape for ax in panels] == [
        (5, 5),
        (5, 6),
        (6, 5),
        (5, 5),
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
