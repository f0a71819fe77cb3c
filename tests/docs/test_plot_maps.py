"""relpos.plot: scores and weights, their terms, what is hidden, and the tokens."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
plot = relpos.plot

WORDS = ["hinton", "said", "that"]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def drawn(ax):
    return np.ma.getdata(ax.images[-1].get_array())


def test_tokens_at_both_axes_or_at_one():
    square, wide = np.zeros((3, 3)), np.zeros((3, 2))
    for draw in (plot.score_map, plot.attention_map):
        ax = draw(square, tokens=WORDS, ax=Figure().subplots())
        assert ticks(ax.yaxis) == ticks(ax.xaxis) == WORDS
        ax = draw(wide, tokens=WORDS, key_tokens=["a", "b"], ax=Figure().subplots())
        assert (ticks(ax.yaxis), ticks(ax.xaxis)) == (WORDS, ["a", "b"])
        with pytest.raises(ValueError, match="tokens: got 3; expected 2, one for each"):
            draw(wide, tokens=WORDS)
        for bad in ("abc", 3, [1, 2, 3], Tensor()):
            with pytest.raises(TypeError, match=r"^query_tokens: got .*; expected"):
                draw(square, query_tokens=bad)


def test_what_a_mask_hides_is_no_score():
    scores = np.array([[1.0, 50.0], [np.inf, -2.0]])
    mask = np.array([[True, False], [True, True]])
    ax = plot.score_map(scores, mask=mask, title="causal", ax=Figure().subplots())
    assert ax.get_title() == "causal" and ax.images[0].get_clim() == (-2, 2)
    shown = ax.images[0].get_array().mask
    assert np.array_equal(shown, [[False, True], [True, False]])
    assert [text.get_text() for text in ax.texts] == ["1.0", "-2.0"]
    with pytest.raises(TypeError, match="mask: got an array of dtype int64; expected"):
        plot.score_map(scores, mask=[[1, 0], [1, 1]])
    with pytest.raises(ValueError, match=r"mask: got shape \(2,\); expected \(2, 2\)"):
        plot.score_map(scores, mask=[True, True])


def test_the_center_of_scores_is_white():
    ax = plot.score_map([[3.0, 5.0, 4.0]], center=3.0, ax=Figure().subplots())
    image = ax.images[0]
    assert image.get_clim() == (1, 5)
    red, green, blue, _ = image.to_rgba(image.get_array())[0, 0]
    assert min(red, green, blue) > 0.9
    ax = plot.score_map([[1.0]], center=3.0, vmax=4.0, ax=Figure().subplots())
    assert ax.images[0].get_clim() == (2, 4)


def test_numbers_where_they_can_be_read():
    for side, count in ((12, 144), (13, 0)):
        ax = plot.score_map(np.eye(side), ax=Figure().subplots())
        assert len(ax.texts) == count
    ax = plot.score_map(np.eye(13), annotate=True, ax=Figure().subplots())
    assert len(ax.texts) == 169
    ax = plot.score_map([[0.5, -0.25]], annotate=False, ax=Figure().subplots())
    assert not ax.texts
    ax = plot.score_map([[0.5, -0.001]], ax=Figure().subplots())
    assert [text.get_text() for text in ax.texts] == ["0.50", "0.00"]
    ax = plot.score_map([[9.0, 0.0]], ax=Figure().subplots())
    assert [text.get_color() for text in ax.texts] == ["white", "black"]
    with pytest.raises(
        ValueError, match="annotate: got 'x'; expected 'auto' or a bool"
    ):
        plot.score_map([[1.0]], annotate="x")


def test_one_head_of_several():
    weights = np.arange(8.0).reshape(2, 2, 2)
    ax = plot.attention_map(weights, head=1, ax=Figure().subplots())
    assert np.array_equal(drawn(ax), weights[1])
    with pytest.raises(
        ValueError, match="head: got 2; expected an integer from 0 to 1"
    ):
        plot.attention_map(weights, head=2)
    with pytest.raises(ValueError, match=r"expected three axes, \(H, Lq, Lk\)"):
        plot.attention_map(weights[0], head=0)


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
    with pytest.raises(
        TypeError, match="figure: got Axes; expected a matplotlib Figure"
    ):
        plot.attention_heads(weights, figure=panels[0])


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
    with pytest.raises(
        ValueError, match=r"query: got \(2,\) batch items; expected one"
    ):
        plot.score_terms(q[:, None], k[:, None])
    with pytest.raises(TypeError, match="query: got a torch Tensor; expected"):
        plot.score_terms(Tensor(), k)


def test_every_term_has_a_title():
    rng = np.random.default_rng(0)
    x = rng.random((1, 3, 4))
    panels = plot.score_terms(
        *(x, x), rel_key=x[0], rel_query=x[0], rel_bias=np.ones((1, 5)), softcap=5.0,
        log_decay=-np.ones((1, 3)), pos_bias_u=x[0, 0], pos_bias_v=x[0, 0],
        position_query=x, is_causal=True, figure=Figure()
    )  # fmt: skip
    titles = [ax.get_title() for ax in panels]
    assert len({*titles}) == 10 and titles[-2:] == ["mask", "sum"]


@pytest.mark.parametrize("cmap, error", [("no such", ValueError), (3, TypeError)])
def test_bad_colours(cmap, error):
    ax = Figure().subplots()
    with pytest.raises(error, match=r"^cmap: got .*; expected a"):
        plot.score_map([[1.0]], cmap=cmap, ax=ax)
    assert not ax.images
