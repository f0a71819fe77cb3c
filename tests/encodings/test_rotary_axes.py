"""mrope_angles and axial_angles: loops, definitions and special cases."""

from __future__ import annotations

import numpy as np
import oracle_rotary as oracle
import pytest
from bad_kinds import ones
from problems import seeded
from refusals import refused
from tolerances import assert_bitwise

import relpos
from relpos import reference

#: Runs of pairs: one each, more than there are axes, an empty one, and one axis.
RUNS = [(2, 3, 3), (1, 2, 1, 2, 2), (0, 5, 3), (8,)]
IN_TURN = [(4, 2, 2), (0, 3, 3), (8, 0, 0), (0, 0, 9), (1, 99, 1)]
SECTIONS = [*((x, False) for x in RUNS), *((x, True) for x in IN_TURN)]


@pytest.mark.parametrize("shape", [(3, 7), (3, 2, 5), (3, 2, 1, 4), (3, 0), (3, 2, 0)])
@pytest.mark.parametrize(("sections", "interleaved"), SECTIONS)
def test_runs_and_axes_in_turn_against_the_loops(sections, interleaved, shape):
    given = seeded(*shape) * 50, seeded(8, seed=1), sections
    got = relpos.mrope_angles(*given, interleaved=interleaved)
    assert got.dtype == np.float64 and got.shape == (*shape[1:], 8)
    for source in (oracle, reference):
        assert_bitwise(got, source.mrope_angles(*given, interleaved=interleaved))


@pytest.mark.parametrize("interleaved", [False, True])
def test_text_is_turned_as_ever(interleaved):
    """Three equal positions: the plain encoding."""
    x = seeded(2, 3, 9, 16)
    inv_freq = relpos.rotary_frequencies(16)
    positions = np.broadcast_to(np.arange(9), (3, 2, 9))
    angles = relpos.mrope_angles(
        positions, inv_freq, (4, 2, 2), interleaved=interleaved
    )
    got = relpos.apply_rotary(x, angles=angles[:, None])
    np.testing.assert_allclose(got, relpos.apply_rotary(x), rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(5, 2), (2, 7, 3), (6, 1), (0, 2), (4, 0)])
def test_axial_angles_against_the_loops(shape):
    where, inv_freq = seeded(*shape) * 20, seeded(4, seed=2)
    got = relpos.axial_angles(where, inv_freq)
    assert got.dtype == np.float64 and got.shape == (*shape[:-1], shape[-1] * 4)
    assert_bitwise(got, oracle.axial_angles(where, inv_freq))
    if shape[-1]:
        assert_bitwise(got, reference.axial_angles(where, inv_freq))


def test_one_axis_is_a_sequence():
    x, inv_freq = seeded(7, 8), relpos.rotary_frequencies(8)
    angles = relpos.axial_angles(np.arange(7)[:, None], inv_freq)
    got = relpos.apply_rotary(x, angles=angles)
    np.testing.assert_allclose(got, relpos.apply_rotary(x), rtol=0, atol=1e-14)


def test_scores_of_a_grid_depend_on_the_distance_alone():
    """q.k of two cells is that of any two cells as far apart, along both axes."""
    cells = np.argwhere(np.ones((4, 5)))
    angles = relpos.axial_angles(cells, relpos.rotary_frequencies(6, base=30.0))
    q, k = (np.broadcast_to(seeded(12, seed=n), (20, 12)) for n in (3, 4))
    rotated = (relpos.apply_rotary(x, angles=angles) for x in (q, k))
    scores = np.einsum("id,jd->ij", *rotated)
    labels, found = relpos.grid_labels((4, 5)), {}
    for label, score in zip(labels.flat, scores.flat, strict=True):
        assert abs(found.setdefault(label, score) - score) < 1e-12
    assert len(found) == labels.max() + 1


def test_integers_floats_and_lists_are_the_same():
    inv_freq = relpos.rotary_frequencies(6)
    positions = np.arange(12).reshape(3, 4)
    want = relpos.mrope_angles(positions, inv_freq, (1, 1, 1))
    for given in (positions.tolist(), positions.astype(np.float32), positions[:, ::1]):
        assert_bitwise(relpos.mrope_angles(given, inv_freq.tolist(), [1, 1, 1]), want)
    sections = np.array([1, 1, 1])
    assert_bitwise(relpos.mrope_angles(positions, inv_freq, sections), want)
    got = relpos.axial_angles(positions.T, inv_freq.astype(np.float32))
    np.testing.assert_allclose(
        got, relpos.axial_angles(positions.T.tolist(), inv_freq), rtol=1e-7
    )


@pytest.mark.usefixtures("strict_floats")
def test_what_overflows_is_inf_without_a_warning():
    with np.errstate(all="raise"):
        got = relpos.axial_angles([[1e300]], [1e300])
        assert np.isinf(got).all()
        got = relpos.mrope_angles([[1e300]] * 3, [1e300], (1,))
        assert np.isinf(got).all()


# ---- bad input -----------------------------------------------------------------------

test_bad_mrope = refused(
    relpos.mrope_angles,
    {"positions": ones(3, 5), "inv_freq": ones(6), "sections": (2, 2, 2)},
    """
positions=ones(2, 5) -> ValueError: positions: got shape (2, 5); expected
positions=ones(3) -> ValueError: positions: got shape (3,); …(3, ...
positions=[["a"]] -> TypeError: positions: got dtype <U1; expected integers
positions=Tensor() -> TypeError: positions: got a torch Tensor
positions=[[2**53]] * 3 -> ValueError: positions: …float64 rounds
inv_freq=ones(2, 3) -> ValueError: inv_freq: got shape (2, 3); expected one
sections=(2, 2) -> ValueError: sections: … 4 pairs in all; … has, 6
sections=(2, -2, 6) -> ValueError: sections: got -2; expected an integer fr
sections=2.0 -> TypeError: sections: got float; expected an integer
sections="222" -> TypeError: sections: got str; expected an integer or a s
sections=None -> TypeError: sections: got NoneType; expected an integer
sections=(3, 3), interleaved=True -> ValueError: sections: got [3, 3]; expected three
    numbers …time, height, width
""",
    globals(),
)
test_bad_axial = refused(
    relpos.axial_angles,
    {"coordinates": ones(5, 2), "inv_freq": ones(3)},
    """
coordinates=ones(5) -> ValueError: coordinates: shape (5,) has 1 axis; exp
coordinates=[[True]] -> TypeError: coordinates: got dtype bool; expected int
coordinates=Tensor() -> TypeError: coordinates: got a torch Tensor
coordinates=[[2**53]] -> ValueError: coordinates: …float64 rounds
inv_freq=ones(2, 2) -> ValueError: inv_freq: got shape (2, 2); expected
coordinates=np.broadcast_to(1.0, (2**40, 2**10)), inv_freq=ones(2**10) -> ValueError:
    coordinates: … more bytes than memory can address
""",
    globals(),
)
