"""relpos.plot: biases by distance, buckets, grids, and rotary encodings."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
plot = relpos.plot


def names(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def new():
    return Figure().subplots()


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
    with pytest.raises(ValueError, match=r"buckets: got shape \(1,\); expected \(N,\)"):
        plot.bias_by_distance(table.T, buckets=[32])


def test_queries_of_the_bias_of_pairs():
    bias = np.random.default_rng(0).random((2, 4, 6))
    ax = plot.bias_by_distance(bias, ax=new())
    assert names(ax) == ["query 0", "query 2", "query 3"]
    assert ax.lines[1].get_xdata().tolist() == [*range(-2, 4)]
    assert np.array_equal(ax.lines[1].get_ydata(), bias[0, 2])
    ax = plot.bias_by_distance(bias, heads=[0, 1], queries=[3], ax=new())
    assert names(ax) == ["head 0, query 3", "head 1, query 3"]
    with pytest.raises(
        ValueError, match=r"queries: got \[4\]; expected some from 0 to"
    ):
        plot.bias_by_distance(bias, queries=[4])
    with pytest.raises(ValueError, match=r"bias: got shape \(3,\); expected \(H, R\)"):
        plot.bias_by_distance(np.ones(3))


def test_buckets_by_distance():
    ax = plot.buckets(relpos.t5_bucket, 130, ax=new())
    x, y = ax.lines[0].get_xydata().T
    assert (
        x.tolist() == [*range(-130, 131)] and ax.lines[0].get_drawstyle() != "default"
    )
    assert np.array_equal(y, relpos.t5_bucket(np.arange(-130, 131)))
    assert ax.get_title() == f"{len({*y})} buckets"
    assert plot.buckets(np.abs, 3, title="distance", ax=new()).get_title() == "distance"
    with pytest.raises(TypeError, match="bucket: got int; expected a callable"):
        plot.buckets(3, 3)
    with pytest.raises(
        ValueError, match=r"bucket's result: got shape \(1,\); expected"
    ):
        plot.buckets(lambda x: [0], 3)


def test_the_bias_of_a_grid_around_its_query():
    shape, bias = (3, 4), np.random.default_rng(0).standard_normal(5 * 7)
    whole = bias[relpos.grid_labels(shape)]
    for query, row in (((0, 0), 0), ((2, 1), 9), (None, 6)):
        ax = plot.grid_bias(bias, shape, query=query, ax=new())
        assert np.array_equal(ax.images[0].get_array().ravel(), whole[row])
        x, y = ax.patches[0].get_xy()
        assert (y + 0.5) * 4 + x + 0.5 == row
    with pytest.raises(ValueError, match=r"bias: got shape \(35,\); expected \(15,\)"):
        plot.grid_bias(bias, (2, 3))
    with pytest.raises(ValueError, match=r"query: got \(3, 0\); expected a cell of"):
        plot.grid_bias(bias, shape, query=(3, 0))


def test_a_grid_of_swin_is_not_mirrored():
    """Its table counts query minus key, which its labels undo."""
    table = np.random.default_rng(0).standard_normal((15, 2))
    found = relpos.recipes.swin(table, (2, 3))
    wanted = found["rel_bias"][1][found["labels"]]
    ax = plot.grid_bias(
        found["rel_bias"][1], (2, 3), query=(0, 1), labels=found["labels"], ax=new()
    )
    assert np.array_equal(ax.images[0].get_array().ravel(), wanted[1])
    with pytest.raises(
        ValueError, match=r"labels: got shape \(4, 4\); expected \(6, 6"
    ):
        plot.grid_bias(table[:, 0], (2, 3), labels=np.zeros((4, 4), int))
    with pytest.raises(ValueError, match=r"labels: got 15 to 15; expected 0 to 14"):
        plot.grid_bias(table[:, 0], (2, 3), labels=np.full((6, 6), 15))


def test_dots_of_the_wheel_are_turned_ones():
    positions = np.arange(5.0)
    ax = plot.rotary_wheel(6, positions, base=100.0, ax=new())
    ones = np.tile([1.0, 0.0], (5, 3))[None]
    turned = relpos.apply_rotary(ones, positions, base=100.0, interleaved=True)[0]
    for pair, dots in enumerate(ax.collections[:3]):
        wanted = (pair + 1) * turned[:, 2 * pair : 2 * pair + 2]
        assert np.allclose(dots.get_offsets(), wanted, rtol=0, atol=1e-12)
        assert np.array_equal(dots.get_array(), positions)
    with pytest.raises(
        ValueError, match=r"inv_freq: got shape \(1,\); expected \(3,\)"
    ):
        plot.rotary_wheel(6, positions, inv_freq=[1.0])


def test_wavelengths_and_the_context():
    plain = relpos.rotary_frequencies(8)
    stretched = relpos.rotary_frequencies(8, scaling=("linear", 4.0))
    ax = plot.wavelengths({"plain": plain, "x 4": [*stretched[:3], 0.0]}, context=99,
                          ax=new())  # fmt: skip
    assert names(ax) == ["plain", "x 4", "context"] and ax.get_yscale() == "log"
    assert np.allclose(ax.lines[0].get_ydata() * plain, 2 * np.pi, rtol=1e-15)
    assert np.isnan(ax.lines[1].get_ydata()[3])  # it never turns
    assert {*ax.lines[2].get_ydata()} == {99}
    with pytest.raises(TypeError, match="inv_freq: got an array of dtype float64"):
        plot.wavelengths(plain)
    with pytest.raises(TypeError, match="encodings: got a torch Tensor"):
        plot.decay(Tensor(), 3)
    with pytest.raises(ValueError, match="encodings: got an empty mapping"):
        plot.decay({}, 3)


def test_decay_is_that_of_turned_tokens():
    frequencies = relpos.rotary_frequencies(16)
    ax = plot.decay({"RoPE": frequencies}, 20, ax=new())
    turned = relpos.apply_rotary(np.ones((1, 21, 16)))[0]
    wanted = turned @ turned[0] / 16
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
    with pytest.raises(
        ValueError, match=r"encodings\['a'\]'s result: got shape \(2, 3\); expected an"
    ):
        plot.decay({"a": lambda length, dim: np.ones((2, 3))}, 20)
    with pytest.raises(ValueError, match="got a last row of 0; expected any other"):
        plot.decay({"a": lambda length, dim: np.zeros((length, dim))}, 20)


@pytest.mark.parametrize("name", ["wavelengths", "decay"])
def test_limits_of_lines(name):
    reach = {"reach": 3} if name == "decay" else {}
    draw = getattr(plot, name)
    ax = draw({"a": [1.0]}, vmin=0.5, vmax=4.0, **reach, ax=new())
    assert ax.get_ylim() == (0.5, 4.0)
    with pytest.raises(
        ValueError, match=r"vmin: got 2.0; expected less than vmax, 1.0"
    ):
        draw({"a": [1.0]}, vmin=2, vmax=1, **reach)
