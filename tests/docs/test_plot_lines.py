"""relpos.plot: biases, rotary encodings, costs, losses, graphs, fingerprints."""

from __future__ import annotations

import numpy as np
import pytest

import relpos
from relpos.plot.schemes import EXAMPLES

Figure = pytest.importorskip("matplotlib.figure").Figure
Annotation = pytest.importorskip("matplotlib.text").Annotation
plot = relpos.plot


def new():
    return Figure().subplots()


def names(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_line_for_each_head():
    bias = relpos.kerple_bias([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], 5)
    ax = plot.bias_by_distance(bias, heads=[2, 0], vmin=-9, title="KERPLE", ax=new())
    assert names(ax) == ["head 2", "head 0"] and ax.get_title() == "KERPLE"
    assert ax.lines[0].get_xdata().tolist() == [*range(-4, 5)]
    assert np.array_equal(ax.lines[0].get_ydata(), bias[2])
    assert ax.get_ylim()[0] == -9
    hidden = np.where(np.arange(9) > 4, -np.inf, bias)
    line = plot.bias_by_distance(hidden, ax=new()).lines[1].get_ydata()
    assert np.array_equal(np.isnan(line), np.arange(9) > 4)
    many = plot.bias_by_distance(np.ones((12, 3)), ax=new())
    assert len({line.get_color() for line in many.lines}) == 12


def test_buckets_name_the_columns_of_a_bias():
    table = np.random.default_rng(0).standard_normal((32, 2))
    buckets = relpos.t5_bucket(np.arange(-9, 10))
    ax = plot.bias_by_distance(table.T, buckets=buckets, ax=new())
    assert np.array_equal(ax.lines[1].get_ydata(), relpos.t5_bias(table, 10)[1])
    later = plot.bias_by_distance(
        table.T, buckets=buckets, min_relative_position=3, ax=new()
    )
    assert later.lines[0].get_xdata()[0] == 3


def test_queries_of_the_bias_of_pairs():
    bias = np.random.default_rng(0).random((2, 4, 6))
    ax = plot.bias_by_distance(bias, ax=new())
    assert names(ax) == ["query 0", "query 2", "query 3"]
    assert ax.lines[1].get_xdata().tolist() == [*range(-2, 4)]
    assert np.array_equal(ax.lines[1].get_ydata(), bias[0, 2])
    ax = plot.bias_by_distance(bias, heads=[0, 1], queries=[3], ax=new())
    assert names(ax) == ["head 0, query 3", "head 1, query 3"]


def test_buckets_by_distance():
    ax = plot.buckets(relpos.t5_bucket, 130, ax=new())
    x, y = ax.lines[0].get_xydata().T
    assert (
        x.tolist() == [*range(-130, 131)] and ax.lines[0].get_drawstyle() != "default"
    )
    assert np.array_equal(y, relpos.t5_bucket(np.arange(-130, 131)))
    assert ax.get_title() == f"{len({*y})} buckets"
    assert plot.buckets(np.abs, 3, title="distance", ax=new()).get_title() == "distance"


def test_the_bias_of_a_grid_around_its_query():
    shape, bias = (3, 4), np.random.default_rng(0).standard_normal(5 * 7)
    whole = bias[relpos.grid_labels(shape)]
    for query, row in (((0, 0), 0), ((2, 1), 9), (None, 6)):
        ax = plot.grid_bias(bias, shape, query=query, ax=new())
        assert np.array_equal(ax.images[0].get_array().ravel(), whole[row])
        x, y = ax.patches[0].get_xy()
        assert (y + 0.5) * 4 + x + 0.5 == row


def test_a_grid_of_swin_is_not_mirrored():
    """Its table counts query minus key, which its labels undo."""
    table = np.random.default_rng(0).standard_normal((15, 2))
    found = relpos.recipes.swin(table, (2, 3))
    wanted = found["rel_bias"][1][found["labels"]]
    ax = plot.grid_bias(
        found["rel_bias"][1], (2, 3), query=(0, 1), labels=found["labels"], ax=new()
    )
    assert np.array_equal(ax.images[0].get_array().ravel(), wanted[1])


def test_dots_of_the_wheel_are_rotated_ones():
    positions = np.arange(5.0)
    ax = plot.rotary_wheel(6, positions, base=100.0, ax=new())
    ones = np.tile([1.0, 0.0], (5, 3))[None]
    rotated = relpos.apply_rotary(ones, positions, base=100.0, interleaved=True)[0]
    for pair, dots in enumerate(ax.collections[:3]):
        wanted = (pair + 1) * rotated[:, 2 * pair : 2 * pair + 2]
        assert np.allclose(dots.get_offsets(), wanted, rtol=0, atol=1e-12)
        assert np.array_equal(dots.get_array(), positions)


def test_wavelengths_and_the_context():
    plain = relpos.rotary_frequencies(8)
    stretched = relpos.rotary_frequencies(8, scaling=("linear", 4.0))
    ax = plot.wavelengths({"plain": plain, "x 4": [*stretched[:3], 0.0]}, context=99,
                          ax=new())  # fmt: skip
    assert names(ax) == ["plain", "x 4", "context"] and ax.get_yscale() == "log"
    assert np.allclose(ax.lines[0].get_ydata() * plain, 2 * np.pi, rtol=1e-15)
    assert np.isnan(ax.lines[1].get_ydata()[3])  # its frequency is 0
    assert {*ax.lines[2].get_ydata()} == {99}


def test_decay_is_that_of_rotated_tokens():
    frequencies = relpos.rotary_frequencies(16)
    ax = plot.decay({"RoPE": frequencies}, 20, ax=new())
    rotated = relpos.apply_rotary(np.ones((1, 21, 16)))[0]
    wanted = rotated @ rotated[0] / 16
    assert np.allclose(ax.lines[0].get_ydata(), wanted, rtol=0, atol=1e-12)


def test_decay_of_an_encoding_is_that_of_its_rows():
    encodings = {
        "RoPE": relpos.rotary_frequencies(64),
        "sinusoids": relpos.sinusoidal,
        "indices": relpos.index_encoding,
    }
    rotary, sinusoids, indices = plot.decay(encodings, 20, ax=new()).lines
    # of the same frequencies: sin a sin b + cos a cos b is the cosine of a - b
    assert np.allclose(sinusoids.get_ydata(), rotary.get_ydata(), rtol=0, atol=1e-6)
    assert np.allclose(indices.get_ydata(), np.arange(20, -1, -1) / 20, rtol=1e-15)


@pytest.mark.parametrize("name", ["wavelengths", "decay"])
def test_limits_of_lines(name):
    reach = {"reach": 3} if name == "decay" else {}
    draw = getattr(plot, name)
    ax = draw({"a": [1.0]}, vmin=0.5, vmax=4.0, **reach, ax=new())
    assert ax.get_ylim() == (0.5, 4.0)


def test_smoothed_losses_are_means_of_the_steps_before():
    losses = np.random.default_rng(0).random(9)
    losses[5] = np.nan
    ax = plot.loss_curves({"a": losses, "b": [2.0]}, smooth=3, title="k = 4", ax=new())
    smooth, alone, raw, _ = ax.lines
    wanted = [np.nanmean(losses[max(n - 2, 0) : n + 1]) for n in range(9)]
    wanted[5] = np.nan
    assert np.allclose(smooth.get_ydata(), wanted, rtol=1e-14, equal_nan=True)
    assert alone.get_xydata().tolist() == [[1, 2]]
    assert np.array_equal(raw.get_ydata(), losses, equal_nan=True)
    assert raw.get_color() == smooth.get_color() and raw.get_alpha() < 1
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["a", "b"] and ax.get_title() == "k = 4"


def test_losses_on_a_logarithmic_axis():
    ax = plot.loss_curves({"a": [1.0, 0.0, 0.1]}, log=True, vmax=10, ax=new())
    assert ax.get_yscale() == "log" and 0 < ax.get_ylim()[0] < ax.get_ylim()[1] == 10
    assert np.isnan(ax.lines[0].get_ydata()[1])
    assert plot.loss_curves({"a": [1.0]}, ax=new()).get_ylim()[0] == 0
    assert plot.loss_curves({"a": [1.0]}, vmin=0.5, ax=new()).get_ylim()[0] == 0.5


def test_errors_of_a_comparison():
    def wrong(x):
        return np.sin(x) + 0.5

    found = relpos.compare(np.sin, wrong, np.ones(3))
    ax = plot.compare(found, vmin=1e-20, vmax=10, title="sines", ax=new())
    assert [bar.get_width() for bar in ax.patches] == [found.rows[0].relative]
    assert ax.get_xlim() == (1e-20, 10) and ax.get_title() == "sines"
    assert {*ax.lines[0].get_xdata()} == {found.limit}
    same = plot.compare(relpos.compare(np.sin, np.sin, np.ones(3)), ax=new())
    assert same.patches[0].get_facecolor() != ax.patches[0].get_facecolor()
    first = plot.compare(found, cmap="Greys", ax=new()).patches[0].get_facecolor()
    assert len({*first[:3]}) == 1  # a grey, and dark: the last of the map
    assert first[0] < 0.3


def test_an_infinite_error_has_the_longest_bar():
    found = relpos.compare(np.sin, np.cos, np.ones(3))
    sizes = [0.5, np.inf, 30.0, np.nan]
    rows = [found.rows[0]._replace(name=str(x), relative=x) for x in sizes]
    ax = plot.compare(found._replace(rows=rows), ax=new())
    half, infinite, large, nothing = (bar.get_width() for bar in ax.patches)
    assert (half, infinite, large) == (0.5, 300.0, 30.0) and nothing < 1e-9
    ax = plot.compare(found._replace(rows=rows[1:2]), ax=new())
    assert ax.patches[0].get_width() == 10


def test_verdicts_of_audits():
    audits = {
        "indices": relpos.audit_encoding(relpos.index_encoding, lengths=(8, 16), dim=4),
        "sinusoids": relpos.audit_encoding(relpos.sinusoidal, lengths=(8, 16), dim=4),
    }
    nothing = audits["indices"].order._replace(value=np.nan)
    audits["sinusoids"] = audits["sinusoids"]._replace(order=nothing)
    ax = plot.audit(audits, title="five", ax=new())
    shown = ax.images[0].get_array()
    assert shown.shape == (2, 6) and ax.get_title() == "five"
    assert np.array_equal(np.argwhere(shown.mask), [[1, 2]])
    for row, found in zip(shown, audits.values(), strict=True):
        wanted = [finding.met for finding in found]
        assert np.array_equal(row.filled(0), wanted)
    texts = {text.get_position()[::-1]: text.get_text() for text in ax.texts}
    assert texts[0, 4] == "no\n15 <= 1" and texts[1, 4].startswith("yes\n1 <=")
    assert texts[1, 2] == "not\nmeasured"
    assert [label.get_text() for label in ax.get_yticklabels()] == [*audits]
    assert [label.get_text() for label in ax.get_xticklabels()][2] == "order"
    colours = ax.images[0].to_rgba(shown)
    assert colours[0, 4, 0] > colours[0, 4, 2] and colours[1, 4, 2] > colours[1, 4, 0]
    alone = plot.audit(audits["indices"], ax=new())
    assert np.array_equal(alone.images[0].get_array()[0], shown[0])


def test_losses_of_several_runs_have_a_mean_and_a_band():
    runs = [[3.0, 1.0, 1.0], [5.0, 3.0, 0.0]]
    ax = plot.loss_curves({"a": runs, "b": [2.0]}, smooth=2, ax=new())
    assert ax.lines[0].get_ydata().tolist() == [4.0, 3.0, 1.25]
    assert len(ax.lines) == 3  # the third is what is pale behind the single run
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 1].min() == 1.0 and corners[:, 1].max() == 5.0


def test_what_a_run_lacks_is_that_of_the_others():
    runs = np.array([[3.0, np.nan, np.inf], [5.0, 1.0, np.nan], [1.0, 4.0, np.nan]])
    results = {"a": ([1, 2, 3], runs)}
    for ax in (
        plot.loss_curves({"a": runs}, ax=new()),
        plot.length_generalisation(results, ax=new()),
    ):
        line = ax.lines[0].get_ydata()
        assert np.array_equal(line, [3.0, 2.5, np.nan], equal_nan=True)
        corners = ax.collections[0].get_paths()[0].vertices
        assert {*map(tuple, corners)} >= {(1, 1), (1, 5), (2, 1), (2, 4)}
        assert corners[:, 0].max() == 2


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


def test_encodings_with_tokens_on_either_axis():
    encoding, words = np.arange(6.0).reshape(3, 2), ["a", "b", "c"]
    upright = plot.encoding_map(encoding, tokens=words, ax=new())
    across = plot.encoding_map(encoding, tokens=words, positions_on="x", ax=new())
    for ax, axis, shown in (
        (upright, upright.yaxis, encoding),
        (across, across.xaxis, encoding.T),
    ):
        assert [label.get_text() for label in axis.get_ticklabels()] == words
        assert np.array_equal(ax.images[0].get_array(), shown)
    assert (across.get_xlabel(), across.get_ylabel()) == ("position", "dimension")


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


def test_several_encodings_each_with_tokens_of_its_own():
    encodings = {"a": np.ones((2, 3)), "b": np.ones((3, 3)), "c": np.ones((1, 3))}
    tokens = {"a": ["x", "y"], "b": ["x", "y", "z"]}
    panels = plot.encoding_maps(encodings, tokens=tokens, figure=Figure())
    for ax, name in zip(panels[:2], "ab", strict=True):
        assert [t.get_text() for t in ax.yaxis.get_ticklabels()] == tokens[name]


def test_new_figures_have_space_for_long_tokens():
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
    ("word", "angle"),
    [("w", 0), ("w_3", 45), ("$w_3$", 0), ("$w_{3}$", 0), ("words", 45)],
)
def test_words_that_fit_next_to_each_other_are_level(word, angle):
    ax = plot.edges(3, tokens=[word] * 3, ax=new())
    assert [label.get_rotation() for label in ax.get_xticklabels()] == [angle] * 3


# ---- graphs of edges, fingerprints of schemes ----------------------------------------

draw = relpos.plot.attention_graph
GRAPH = {"indptr": [0, 2, 2, 4], "indices": [2, 1, 0, 2]}
SQUARE = [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]]


def arrows(ax):
    """Return the start and the end of each."""
    found = [text for text in ax.texts if isinstance(text, Annotation)]
    return [(*text.xyann, *text.xy) for text in found]


def words(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_arrows_lead_from_queries_to_keys():
    ax = draw(**GRAPH, layout=SQUARE, tokens=["a", "b", "c"], title="g", ax=new())
    first, second, third, loop = arrows(ax)
    assert (first, second, third) == ((0, 0, 4, 3), (0, 0, 4, 0), (4, 3, 0, 0))
    assert np.allclose(np.add(loop[:2], loop[2:]) / 2, SQUARE[2])  # around its node
    assert loop[:2] != loop[2:]
    nodes = {text.get_text(): text.get_position() for text in ax.texts}
    assert nodes["b"] == (4, 0) and nodes["c"] == (4, 3)
    assert words(ax) == ["a", "b", "c"] and ax.get_title() == "g"
    assert ax.get_aspect() == 1 and len(ax.figure.axes) == 1  # without a bar


def test_labels_and_weights_are_those_of_the_edges_given():
    """A list of edges in any order, where relpos sorts by query."""
    edges, weights = [[0, 2, 1, 2], [2, 0, 0, 2]], [0.5, 1.0, np.nan, 0.25]
    ax = draw(edges=edges, weights=weights, labels=[7, 8, 9, -1], layout=SQUARE,
              vmax=2, ax=new())  # fmt: skip
    assert arrows(ax)[:2] == [(4, 3, 0, 0), (0, 0, 4, 3)] and len(arrows(ax)) == 3
    assert words(ax) == ["7", "8", "0", "1", "2"]
    seven, eight = (t.get_position() for t in ax.texts if t.get_text() in ("7", "8"))
    assert not np.allclose(seven, eight)  # the two directions lie side by side
    assert np.allclose(np.add(seven, eight) / 2, [2, 1.5])
    dots = ax.collections[-1]
    assert dots.get_array().tolist() == [0.5, 1.0, 0.25] and dots.get_clim() == (0, 2)
    patches = [text.arrow_patch for text in ax.texts if isinstance(text, Annotation)]
    assert [patch.get_linewidth() for patch in patches] == [3, 5, 2]
    assert len({patch.get_edgecolor() for patch in patches}) == 3
    assert len(ax.figure.axes) == 2
    signed = draw(edges=edges, weights=[1.0, -3.0, 0, 0], ax=new())
    assert signed.collections[-1].get_clim() == (-3, 3)


def test_a_matrix_is_a_graph_too():
    sparse = pytest.importorskip("scipy.sparse")
    indptr, indices = np.array(GRAPH["indptr"]), np.array(GRAPH["indices"])
    matrix = sparse.csr_array((np.ones(4), indices, indptr), shape=(3, 3))
    assert arrows(draw(edges=matrix, ax=new())) == arrows(draw(**GRAPH, ax=new()))


def test_an_edge_given_twice_has_two_arrows():
    ax = draw([0, 2, 2], [1, 1], labels=[3, 4], ax=new())
    three, four = (t.get_position() for t in ax.texts if t.get_text() in ("3", "4"))
    assert len(arrows(ax)) == 2 and not np.allclose(three, four)
    assert draw([0, 0, 0], np.zeros(0, int), ax=new()).texts[1].get_text() == "1"


def test_nodes_lie_on_a_circle_from_the_top():
    ax = draw(edges=[[0], [1]], tokens=["a", "b", "c", "d"], ax=new())
    found = [t.get_position() for t in ax.texts if t.get_text()]
    assert np.allclose(found, [(0, 1), (1, 0), (0, -1), (-1, 0)], rtol=0, atol=1e-15)


def drawn(scheme, length=12):
    ax = plot.fingerprint(scheme, length, ax=new())
    return ax.images[0].get_array().filled(-np.inf)


def is_toeplitz(matrix):
    return np.allclose(matrix[1:, 1:], matrix[:-1, :-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_depends_on_the_distance_alone(name):
    matrix = drawn(name)
    later = np.triu(np.ones((12, 12)), 1) == 1
    assert np.isneginf(matrix[later]).all() == (name in ("fire", "music"))
    assert np.isfinite(matrix[~later]).all() and np.ptp(matrix[~later]) >= 0.25
    lower = np.where(later, 0.0, matrix)
    assert is_toeplitz(lower) == (name != "fire")  # which divides by the query's place


def test_of_keywords_the_terms_of_content_are_left_out():
    rng = np.random.default_rng(0)
    table, v = rng.standard_normal((7, 4)), rng.standard_normal(4)
    keywords = {"rel_key": table, "pos_bias_u": v, "pos_bias_v": v, "scale": 1.0}
    wanted = (table @ (1 + v))[np.arange(4) - np.arange(4)[:, None] + 3]
    assert np.allclose(drawn(keywords, 4), wanted, rtol=1e-14)
    two = {"rel_bias": rng.standard_normal((2, 7))}
    assert np.array_equal(drawn(two, 4)[0], two["rel_bias"][0, 3:])
    mask = np.where(np.eye(4), 1.0, -np.inf)
    assert np.array_equal(drawn({"attn_mask": mask}, 4), mask)


def test_of_functions_and_encodings():
    encoding = np.random.default_rng(0).standard_normal((9, 5))
    assert np.allclose(drawn(encoding, 7), encoding[:7] @ encoding[:7].T)
    x = np.arange(6) - np.arange(6)[:, None]
    frequencies = relpos.rotary_frequencies(64)
    wanted = np.cos(np.multiply.outer(x, frequencies)).mean(-1)
    assert np.allclose(drawn(relpos.apply_rotary, 6), wanted, rtol=0, atol=1e-12)


def test_each_has_a_scale_of_its_own():
    figure = Figure()
    schemes = {"one": np.eye(3), "two": 2 * np.eye(3)}
    panels = plot.fingerprints(schemes, 3, columns=1, title="both", figure=figure)
    assert [ax.images[0].get_clim() for ax in panels] == [(-1, 1), (-4, 4)]
    assert [ax.get_title() for ax in panels] == ["one", "two"]
    assert figure.get_suptitle() == "both"
    assert len(plot.fingerprints(length=4, figure=Figure())) == len(EXAMPLES)


def test_what_is_no_scheme():
    figure = Figure()
    assert not figure.axes
