"""fire_bias and its gradients: against loops, differences, and bad calls."""

from __future__ import annotations

import numpy as np
import oracle
import oracle_fire
import pytest
from fire_problems import five_points, network, special_networks
from layouts import LAYOUTS
from oracle_fire import NAMES
from problems import DTYPES, cast, qkv
from refusals import changes
from tolerances import assert_bitwise, largest

import relpos
from relpos import reference

pytestmark = [pytest.mark.usefixtures("strict_floats"), pytest.mark.devmode]
SIZES = [(9, 9, 0), (4, 11, 7), (6, 3, -2), (1, 5, 30), (0, 3, 0), (3, 0, 0)]
SPECIAL = special_networks(np.random.default_rng(1))
ROUNDING = {"float32": 1e-6, "float64": 1e-13}  # of the result; both computed in double


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("lq", "lk", "offset"), SIZES)
def test_bias_is_the_loops(lq, lk, offset, signed):
    parameters = network(np.random.default_rng(2))
    options = {"query_offset": offset, "signed": signed, "eps": 1e-3}
    want = oracle_fire.fire_bias(
        **parameters, query_length=lq, key_length=lk, **options
    )
    for dtype in DTYPES:
        given = cast(parameters, dtype)
        got = relpos.fire_bias(**given, query_length=lq, key_length=lk, **options)
        assert got.dtype == np.float64  # c and threshold are float64 scalars here
        given |= {name: np.asarray(given[name], dtype) for name in ("c", "threshold")}
        got = relpos.fire_bias(**given, query_length=lq, key_length=lk, **options)
        assert got.dtype == dtype and got.shape == (3, lq, lk)
        assert largest(got, want) <= ROUNDING[dtype]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_networks(name, signed):
    parameters, options = SPECIAL[name], {"signed": signed, "query_offset": 2}
    want = oracle_fire.fire_bias(**parameters, query_length=9, **options)
    got = relpos.fire_bias(**parameters, query_length=9, **options)
    assert largest(got, want) <= ROUNDING["float64"]
    grad = np.random.default_rng(3).standard_normal(want.shape)
    want = oracle_fire.fire_bias_backward(grad, **parameters, **options)
    got = relpos.fire_bias_backward(grad, **parameters, **options)
    if name == "c = 0":  # a kink of |c r|, where its slope counts as 0
        want["c"] = 0.0
    for field in NAMES:
        assert largest(getattr(got, field), want[field]) <= 1e-11, field


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("lq", "lk", "offset"), SIZES)
def test_gradients_are_five_point_differences(lq, lk, offset, signed):
    rng = np.random.default_rng(4)
    parameters = network(rng, heads=2, width=3)
    options = {"query_offset": offset, "signed": signed}
    grad = rng.standard_normal((2, lq, lk))

    def total(**moved):
        return (grad * relpos.fire_bias(**moved, **lengths, **options)).sum()

    lengths = {"query_length": lq, "key_length": lk}
    want = five_points(total, parameters, step=1e-4)
    got = relpos.fire_bias_backward(grad, **parameters, **options)
    size = max([1.0, *(np.abs(x).max() for x in want.values())])
    for field in NAMES:
        assert np.abs(getattr(got, field) - want[field]).max() <= 1e-10 * size, field


@pytest.mark.parametrize("signed", [False, True])
def test_reference_is_the_loops(signed):
    rng = np.random.default_rng(11)
    options = {"query_offset": 2, "signed": signed}
    for parameters in (network(rng), network(rng, c=-0.6, threshold=-4.5)):
        want = oracle_fire.fire_bias(**parameters, query_length=7, **options)
        got = reference.fire_bias(**parameters, query_length=7, **options)
        assert largest(got, want) <= ROUNDING["float64"]
        grad = rng.standard_normal(want.shape)
        want = oracle_fire.fire_bias_backward(grad, **parameters, **options)
        got = reference.fire_bias_backward(grad, **parameters, **options)
        for field in NAMES:
            assert largest(got[field], want[field]) <= 1e-12, field


def test_reference_attention_is_that_of_its_bias():
    rng = np.random.default_rng(12)
    tokens, parameters = qkv(rng, (2,), 3, 6, 9, 4), network(rng)
    bias = oracle_fire.fire_bias(
        **parameters, query_length=6, key_length=9, query_offset=3
    )
    options = {"query_offset": 3, "is_causal": True}
    want = oracle.attention(*tokens, bias, **options)
    got = reference.fire_attention(*tokens, **parameters, **options)
    assert largest(got, want.out) <= ROUNDING["float64"]


def test_a_query_at_the_threshold_has_half_a_slope():
    parameters = network(np.random.default_rng(5), threshold=2.0)
    options = {"grad_bias": np.ones((3, 4, 4))}
    at, below, above = (
        relpos.fire_bias_backward(**options, **parameters | {"threshold": x}).threshold
        for x in (2.0, 2.0 - 1e-9, 2.0 + 1e-9)
    )
    assert below != above and np.isclose(at, (below + above) / 2, rtol=1e-6)


def test_python_numbers_take_part_in_no_promotion():
    single = cast(network(np.random.default_rng(6)), "float32")
    single |= {"c": 0.25, "threshold": 5}
    assert relpos.fire_bias(**single, query_length=3).dtype == np.float32
    gradients = relpos.fire_bias_backward(np.ones((3, 2, 2)), **single)
    assert [x.dtype.name for x in gradients] == ["float32"] * 4 + ["float64"] * 2
    assert gradients.c.shape == gradients.threshold.shape == ()


def test_torch_shaped_weights_and_their_gradient():
    parameters = network(np.random.default_rng(7))
    column = parameters | {"w1": parameters["w1"][:, None]}
    got = relpos.fire_bias(**column, query_length=4)
    assert_bitwise(got, relpos.fire_bias(**parameters, query_length=4))
    gradients = relpos.fire_bias_backward(np.ones((3, 4, 4)), **column)
    assert gradients.w1.shape == (8, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(layout):
    parameters = network(np.random.default_rng(8))
    moved = parameters | {n: LAYOUTS[layout](parameters[n]) for n in ("w1", "b1", "w2")}
    got = relpos.fire_bias(**moved, query_length=5)
    assert_bitwise(got, relpos.fire_bias(**parameters, query_length=5))
    grad = np.random.default_rng(9).standard_normal((3, 5, 4))
    want = relpos.fire_bias_backward(grad, **parameters)
    for x, y in zip(
        relpos.fire_bias_backward(LAYOUTS[layout](grad), **moved), want, strict=True
    ):
        assert largest(x, y) <= 1e-14


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, 1e-310])
def test_no_value_crashes(name, bad):
    parameters = network(np.random.default_rng(10))
    array = np.array(parameters[name])
    array[(0,) * array.ndim] = bad
    for signed in (False, True):
        given = parameters | {name: array}
        bias = relpos.fire_bias(**given, query_length=5, signed=signed)
        gradients = relpos.fire_bias_backward(np.ones(bias.shape), **given)
        assert bias.shape == (3, 5, 5) and gradients.w2.shape == (3, 8)
        if np.isnan(bad):
            assert np.isnan(bias).any()


GOOD = {
    "w1": np.ones(8),
    "b1": np.ones(8),
    "w2": np.ones((2, 8)),
    "b2": np.ones(2),
    "c": 0.1,
    "threshold": 4.0,
    "query_length": 4,
}
BAD = changes(
    """
w1=np.ones(8, int) -> TypeError: w1: …dtype int64; expected float16…astype
w1=np.ones((2, 8)) -> ValueError: w1: got shape (2, 8); expected (W,) or
w1=np.float64(1) -> ValueError: w1: got shape (); expected (W,) or (W, 1)
b1=np.ones(7) -> ValueError: b1: …shape (7,) does not match w1's; expected (8,
b1=Tensor() -> TypeError: b1: …torch Tensor; ….detach()
w2=np.ones((8, 2)) -> ValueError: w2: …(8, 2)…w1's; expected (H, 8)
w2=np.ones(8) -> ValueError: w2: …shape (8,)…expected (H, 8)
w2=np.ma.masked_array(np.ones((2, 8))) -> TypeError: w2: …MaskedArray
b2=np.ones(8) -> ValueError: b2: …(8,) does not match w2's; expected (2,)
c=np.ones(1) -> ValueError: c: got shape (1,); expected a number
c=float("nan") -> ValueError: c: got nan; expected a finite number
c="0.1" -> TypeError: c: …expected float16
threshold=True -> TypeError: threshold: …expected float16
threshold=np.int64(4) -> TypeError: threshold: …int64; expected float16
threshold=10**400 -> ValueError: threshold: …too large for float64
eps=-1e-6 -> ValueError: eps: got -1e-06; expected 0 or more
eps="1" -> TypeError: eps: got str; expected a real number
signed=1 -> TypeError: signed: got int; expected True or False
query_length=-1 -> ValueError: query_length: got -1; expected an integer of at least 0
query_length=4.0 -> TypeError: query_length: got float; expected an integer
key_length=-3 -> ValueError: key_length: got -3; expected an integer of at least 0
query_offset=2**60 -> ValueError: query_offset: …an integer from -1152921504606846975 to
query_offset=[1, 2] -> TypeError: query_offset: got list; expected an integer
grad_bias=np.ones((3, 4, 4)) -> ValueError: grad_bias: …(3, 4, 4); expected (2, Lq, Lk
grad_bias=np.ones((4, 4)) -> ValueError: grad_bias: …(4, 4); expected (2, Lq, Lk)
grad_bias=np.ones((2, 4, 4), bool) -> TypeError: grad_bias: …bool; expected float16
""",
    globals(),
)


@pytest.mark.parametrize(("changes", "error", "pattern"), BAD)
def test_bad_calls(changes, error, pattern):
    if "grad_bias" not in changes:
        with pytest.raises(error, match=pattern):
            relpos.fire_bias(**GOOD | changes)
    if changes.keys().isdisjoint(("query_length", "key_length")):
        given = {"grad_bias": np.ones((2, 4, 4))} | GOOD | changes
        del given["query_length"]
        with pytest.raises(error, match=pattern):
            relpos.fire_bias_backward(**given)


def test_a_bias_that_memory_cannot_address():
    with pytest.raises(ValueError, match=r"^fire_bias: shape .* more bytes"):
        relpos.fire_bias(**GOOD | {"query_length": 2**40})
