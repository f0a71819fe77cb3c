"""relpos.plot: losses, and what relpos found out about implementations."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor

import relpos

Figure = pytest.importorskip("matplotlib.figure").Figure
plot = relpos.plot


def new():
    return Figure().subplots()


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
    with pytest.raises(ValueError, match="smooth: got 0; expected an integer from 1"):
        plot.loss_curves({"a": losses}, smooth=0)


def test_losses_on_a_logarithmic_axis():
    ax = plot.loss_curves({"a": [1.0, 0.0, 0.1]}, log=True, vmax=10, ax=new())
    assert ax.get_yscale() == "log" and 0 < ax.get_ylim()[0] < ax.get_ylim()[1] == 10
    assert np.isnan(ax.lines[0].get_ydata()[1])
    assert plot.loss_curves({"a": [1.0]}, ax=new()).get_ylim()[0] == 0
    assert plot.loss_curves({"a": [1.0]}, vmin=0.5, ax=new()).get_ylim()[0] == 0.5
    with pytest.raises(ValueError, match=r"vmin: got 0.0; expected more than 0"):
        plot.loss_curves({"a": [1.0]}, log=True, vmin=0)
    with pytest.raises(ValueError, match="losses: got an empty mapping"):
        plot.loss_curves({})


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
    with pytest.raises(ValueError, match=r"vmin: got -1.0; expected more than 0"):
        plot.compare(found, vmin=-1)
    with pytest.raises(TypeError, match=r"comparison: got .*; expected what relpos"):
        plot.compare(Tensor())


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
    for bad in (3, Tensor(), {"a": Tensor()}, {"a": 3}, tuple(audits["indices"])):
        with pytest.raises(TypeError, match=r"^audits.*: got .*; expected "):
            plot.audit(bad)


def test_losses_of_several_runs_have_a_mean_and_a_band():
    runs = [[3.0, 1.0, 1.0], [5.0, 3.0, 0.0]]
    ax = plot.loss_curves({"a": runs, "b": [2.0]}, smooth=2, ax=new())
    assert ax.lines[0].get_ydata().tolist() == [4.0, 3.0, 1.25]
    assert len(ax.lines) == 3  # the third is what is pale behind the single run
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 1].min() == 1.0 and corners[:, 1].max() == 5.0
