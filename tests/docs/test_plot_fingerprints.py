"""relpos.plot.fingerprint: what is left of a scheme where all tokens are alike."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor

import relpos
from relpos.plot.schemes import EXAMPLES

Figure = pytest.importorskip("matplotlib.figure").Figure
plot = relpos.plot


def drawn(scheme, length=12):
    ax = plot.fingerprint(scheme, length, ax=Figure().subplots())
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
    with pytest.raises(
        ValueError, match=r"schemes\['a'\]: got 'x'; expected one of 'al"
    ):
        plot.fingerprints({"b": "t5", "a": "x"}, 4, figure=figure)
    assert not figure.axes
    with pytest.raises(
        ValueError, match=r"scheme: got shape \(3, 2\); expected an enc"
    ):
        plot.fingerprint(np.ones((3, 2)), 4)
    with pytest.raises(
        ValueError, match=r"scheme's result: got shape \(2,\); expected"
    ):
        plot.fingerprint(lambda x: [1, 2], 4)
    with pytest.raises(TypeError, match="scheme: got a torch Tensor"):
        plot.fingerprint(Tensor(), 4)
    with pytest.raises(TypeError, match="schemes: got list; expected a mapping"):
        plot.fingerprints(["t5"], 4)
