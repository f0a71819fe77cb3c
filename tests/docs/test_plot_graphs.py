"""relpos.plot: graphs of edges, fingerprints of schemes."""

from __future__ import annotations

import numpy as np
import pytest

import relpos
from relpos.plot.schemes import EXAMPLES

Figure = pytest.importorskip("matplotlib.figure").Figure
plot = relpos.plot


def new():
    return Figure().subplots()


Annotation = pytest.importorskip("matplotlib.text").Annotation
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


def test_an_edge_that_stands_twice_has_two_arrows():
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
