"""Bad calls of the rotary functions, a row each, with the error and its message."""

from __future__ import annotations

import numpy as np
import pytest
from bad_kinds import Tensor, ones
from refusals import changes

import relpos

pytestmark = pytest.mark.devmode
BOTH = changes(
    """
x=Tensor() -> TypeError: x: got a torch Tensor; ….detach()
x=ones(5, 6, dtype=int) -> TypeError: x: got dtype int64; expected float16
positions=Tensor() -> TypeError: positions: got a torch Tensor
positions="a" -> TypeError: positions: got dtype <U1; expected integers
positions=[True] * 5 -> TypeError: positions: got dtype bool; expected
positions=[1j] -> TypeError: positions: got dtype complex128; expected int
inv_freq=[1, 2, 3] -> TypeError: inv_freq: got dtype int64; expected floa
inv_freq=Tensor() -> TypeError: inv_freq: got a torch Tensor
angles=[1, 2, 3] -> TypeError: angles: got dtype int64; expected float16
magnitude=[1, 2, 3] -> TypeError: magnitude: got dtype int64; expected
magnitude="1" -> TypeError: magnitude: got …expected float16, float32
magnitude=Tensor() -> TypeError: magnitude: got a torch Tensor
interleaved=1 -> TypeError: interleaved: got int; expected True or False
interleaved=None -> TypeError: interleaved: got NoneType; expected True
inverse="yes" -> TypeError: inverse: got str; expected True or False
rotary_dim=True -> TypeError: rotary_dim: got True; expected an integer
offset=[1, 2] -> TypeError: offset: got list; expected a real number
base=None -> TypeError: base: got NoneType; expected a real number
rotary_dim=3 -> ValueError: rotary_dim: got 3; expected an even number
rotary_dim=8 -> ValueError: rotary_dim: got 8; …at most x's D = 6
rotary_dim=-2 -> ValueError: rotary_dim: got -2; expected an integer from
offset=np.inf -> ValueError: offset: got inf; expected a finite number
offset=HUGE**11 -> ValueError: offset: got a number too large for float64
offset=2**53 + 1 -> ValueError: offset: … integers of less than 2**53
offset=-(2**53) -> ValueError: offset: leads to position -9007199254740992
offset=2**53 - 4 -> ValueError: offset: leads to position 9007199254740992
offset=1e16 -> ValueError: offset: leads to position 10000000000000000;
positions=np.arange(5) + 2**53 -> ValueError: positions: leads to position
    9007199254740992; …float64 rounds
positions=np.arange(5), offset=2**53 - 4 -> ValueError: offset: leads to position
    9007199254740992; …float64 rounds
positions=np.zeros(5), offset=2**53 + 1 -> ValueError: offset: …float64 rounds
base=0.0 -> ValueError: base: got 0.0; expected a positive number
magnitude=np.inf -> ValueError: magnitude: got inf; expected a finite num
x=ones(6) -> ValueError: x: shape (6,) has 1 axis; expected (..., L
x=ones(5, 7) -> ValueError: x: got D = 7; expected an even number of col
x=np.broadcast_to(1.0, (1, 2**21)) -> ValueError: x: got D = 2097152; expected an even
    number … or rotary_dim=
positions=ones(4) -> ValueError: positions: shape (4,) does not broadcast to (2, 5);
    expected x's axes
positions=ones(3, 2, 5) -> ValueError: positions: shape (3, 2, 5) does not broadcast to
    (2, 5)
inv_freq=ones(6) -> ValueError: inv_freq: got shape (6,); expected (3,), one frequency
    per
inv_freq=ones(5, 3) -> ValueError: inv_freq: got shape (5, 3); expected
angles=ones(5, 6) -> ValueError: angles: shape (5, 6) does not broadcast to (2, 5, 3);
    …one per pair
magnitude=ones(5) -> ValueError: magnitude: shape (5,) does not broadcast to (2, 5, 3)
angles=ones(3), positions=ones(5) -> ValueError: positions: given together with angles
angles=ones(3), inv_freq=ones(3) -> ValueError: inv_freq: given together with angles
angles=ones(3), offset=1 -> ValueError: offset: got 1 together with angles; expected 0
""",
    globals(),
)


@pytest.mark.parametrize(("changes", "error", "pattern"), BOTH)
def test_forward_and_backward(changes, error, pattern):
    arguments = {"x": ones(2, 5, 6)} | changes
    with pytest.raises(error, match=pattern):
        relpos.apply_rotary(**arguments)
    with pytest.raises(error, match=pattern):
        relpos.apply_rotary_backward(ones(2, 5, 6), **arguments)


@pytest.mark.parametrize(
    ("grad_out", "error", "pattern"),
    [
        (ones(5, 6), ValueError, r"^grad_out: shape \(5, 6\) does not match x's; exp"),
        (ones(2, 5, 4), ValueError, r"^grad_out: .*; expected \(2, 5, 6\)"),
        (ones(2, 5, 6, dtype=int), TypeError, r"^grad_out: got dtype int64; expected"),
        (Tensor(), TypeError, r"^grad_out: got a torch Tensor"),
    ],
)
def test_incoming_gradient(grad_out, error, pattern):
    with pytest.raises(error, match=pattern):
        relpos.apply_rotary_backward(grad_out, ones(2, 5, 6))


def test_out():
    x = ones(4, 6)
    for out, error, pattern in (
        (ones(4, 5), ValueError, r"^out: got shape \(4, 5\); expected \(4, 6\)"),
        (x.astype(np.float32), TypeError, r"^out: got dtype float32; expected float64"),
        (x.tolist(), TypeError, r"^out: got list; expected a NumPy array"),
        (Tensor(), TypeError, r"^out: got a torch Tensor"),
        (np.broadcast_to(1.0, (4, 6)), ValueError, r"^out: the array is read-only"),
    ):
        with pytest.raises(error, match=pattern):
            relpos.apply_rotary(x, out=out)
    x.flags.writeable = False
    with pytest.raises(ValueError, match=r"^out: the array is read-only"):
        relpos.apply_rotary(x, out=x)


def test_out_may_be_x_but_not_a_part_of_it():
    buffer = ones(9, 6)
    for x, out in (
        (buffer[:8], buffer[1:]),
        (buffer[:8], buffer[7::-1]),
        (buffer.reshape(-1)[:48].reshape(8, 6), buffer[:8, ::-1]),
    ):
        with pytest.raises(ValueError, match=r"^out: overlaps x in memory"):
            relpos.apply_rotary(x, out=out)
    repeated = np.lib.stride_tricks.as_strided(ones(9), (4, 6), (0, 8))
    with pytest.raises(ValueError, match=r"^out: several of its items share memory"):
        relpos.apply_rotary(repeated, out=repeated)
    assert (buffer == 1).all()


@pytest.mark.parametrize("name", ["positions", "inv_freq", "angles", "magnitude"])
def test_out_overlaps_what_it_is_computed_from(name):
    out = ones(4, 6)
    given = out[0, :4] if name == "positions" else out[0, :3]
    with pytest.raises(ValueError, match=rf"^out: overlaps {name} in memory; expected"):
        relpos.apply_rotary(ones(4, 6), **{name: given}, out=out)
    with pytest.raises(ValueError, match=rf"^out: overlaps {name} in memory; expected"):
        relpos.apply_rotary(out, **{name: given}, out=out)
    assert (out == 1).all()
