"""relpos.plot.attention_graph: nodes, and arrows from queries to keys."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
Annotation = pytest.importorskip("matplotlib.text").Annotation
draw = relpos.plot.attention_graph
GRAPH = {"indptr": [0, 2, 2, 4], "indices": [2, 1, 0, 2]}
SQUARE = [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]]


def new():
    return Figure().subplots()


def arrows(ax):
    """Where each begins and ends."""
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


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (IndexError, "edges: got one at node 2; expected nodes up to 1",
         {**GRAPH, "layout": [[0, 0], [1, 1]]}),
        (IndexError, "indices: got some outside 0 to 255",
         {**GRAPH, "indices": [256] * 4}),
        (ValueError, "indptr: falls",
         {**GRAPH, "indptr": [0, 3, 2, 4]}),
        (ValueError, r"labels: got shape \(1,\); expected \(4,\)",
         {**GRAPH, "labels": [1]}),
        (ValueError, r"weights: got shape \(1,\); expected",
         {**GRAPH, "weights": [1]}),
        (ValueError, r"layout: got shape \(1, 3\); expected",
         {**GRAPH, "layout": [[1] * 3]}),
        (ValueError, "vmin: got 2.0; expected less",
         {**GRAPH, "weights": [1] * 4, "vmin": 2}),
        (ValueError, "edges: given together with indptr",
         {**GRAPH, "edges": [[0], [0]]}),
        (ValueError, "edges: got 0 of 300 queries; expected at most",
         {"indptr": [0] * 301, "indices": np.zeros(0, int)}),
        (TypeError, "indices: got NoneType; expected", {"indptr": [0, 1]}),
        (TypeError, "weights: got a torch Tensor", {**GRAPH, "weights": Tensor()}),
    ],
)  # fmt: skip
def test_what_is_no_graph(error, message, arguments):
    ax = new()
    with pytest.raises(error, match=f"^{message}"):
        draw(**arguments, ax=ax)
    assert not ax.texts
