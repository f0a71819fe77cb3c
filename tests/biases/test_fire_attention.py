"""fire_attention: every kernel table, size and option against dense float64."""

from __future__ import annotations

import functools

import dense_oracle
import numpy as np
import pytest
from fire_problems import CASES, Problem, away_from_kinks, five_points, special_networks
from gradient_problems import assert_same_bits, within
from oracle_fire import NAMES
from problems import DTYPES, qkv
from recorded import SUBSET, Case
from tolerances import TOLERANCES, assert_bitwise, assert_close, assert_results_close

import relpos
from relpos import _core
from relpos._settings import use_isa

pytestmark = [pytest.mark.usefixtures("strict_floats"), pytest.mark.devmode]


@pytest.mark.product
@pytest.mark.sanitized
@pytest.mark.parametrize(("variant", "signed", "lq", "lk"), CASES)
def test_everywhere(variant, signed, lq, lk, sized):
    problem = Problem(variant, signed, lq, lk)
    want, truth = dense_oracle.attention(**problem.dense), problem.gradients()
    sizes = functools.cache(lambda: problem.gradients(magnitude=True))
    tables = list(_core.by_isa)[sized(-1, 0) :]
    for dtype in DTYPES:
        for isa in tables:
            with use_isa(isa):
                got = problem.run(dtype, return_lse=True, return_weights=True)
                found = problem.backward(dtype)
            assert got.out.dtype == dtype
            assert_results_close(got, want)
            assert set(NAMES) <= set(found)
            for name, gradient in found.items():
                assert gradient.dtype == dtype
                size = functools.partial(lambda n: sizes()[n], name)
                assert within(gradient, truth[name], size, 1000, "gradient"), name


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", special_networks(np.random.default_rng(0)), ids=str)
def test_special_networks(name, signed, isa):
    rng = np.random.default_rng(1)
    parameters = special_networks(rng)[name]
    inputs = qkv(rng, (), 3, 20, 70, 8)
    keywords = {"query_offset": 50, "return_context": True}
    got = relpos.fire_attention(*inputs, **parameters, **keywords, signed=signed)
    places = {"query_offset": 50, "signed": signed}
    bias = relpos.fire_bias(**parameters, query_length=20, key_length=70, **places)
    want = relpos.attention(*inputs, bias, **keywords)
    assert_close(got.out, want.out, "same_formula")
    grad = rng.standard_normal(got.out.shape)
    found = got.context.backward(grad)
    ds = want.context.backward(grad, wrt=["attn_mask"]).attn_mask
    truth = relpos.fire_bias_backward(ds, **parameters, **places)
    sizes = relpos.fire_bias_backward(abs(ds), **parameters, **places)
    for field in NAMES:
        gap = np.abs(getattr(found, field) - getattr(truth, field))
        scale = 1 + np.abs(getattr(sizes, field)).max(initial=0)
        assert (gap <= TOLERANCES["same_formula"].float64 * scale).all(), field


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("offset", [0, 9])
@pytest.mark.parametrize("w1", [-np.inf, np.inf])
@pytest.mark.parametrize("b1", [-np.inf, 1.0, np.inf])
def test_infinite_weights_show(w1, b1, offset, signed, isa):
    """infinity * 0 at distance 0, which a query after all keys does not see."""
    q, k, v = qkv(np.random.default_rng(7), (), 1, 6, 6, 2)
    parameters, places = ([w1], [b1], [[-1.0]], [0.5], 1.0, 1.0), {"signed": signed}
    places["query_offset"] = offset
    bias = relpos.fire_bias(*parameters, 6, 6, **places)
    want = relpos.attention(q, k, v, bias)
    got = relpos.fire_attention(q, k, v, *parameters, **places)
    assert np.isnan(want).all() or offset
    assert np.isnan(got[np.isnan(want)]).all()
    if np.isfinite(b1):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize(("w1", "b1"), [(1.0, -1.0), (-1.0, 1.0)])
def test_a_unit_whose_input_is_0_has_no_gradient(w1, b1, isa):
    """Without eps the first key has x = 1 for every query beyond the threshold."""
    parameters, grad = ([w1], [b1], [[1.0]], [0.0], 1.0, 1.0), np.ones((1, 6, 1))
    q, k, v = qkv(np.random.default_rng(7), (), 1, 6, 6, 1)
    options = {"eps": 0.0, "return_context": True}
    found = relpos.fire_attention(q, k, v, *parameters, **options).context
    bias = relpos.fire_bias(*parameters, 6, eps=0.0)
    masked = relpos.attention(q, k, v, bias, return_context=True).context
    ds = masked.backward(grad, wrt=["attn_mask"]).attn_mask
    want = relpos.fire_bias_backward(ds, *parameters, eps=0.0)
    for name in NAMES:
        got = getattr(found.backward(grad), name)
        np.testing.assert_allclose(got, getattr(want, name), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("lq", [5, 12])
def test_gradients_are_five_point_differences(lq, signed, isa):
    rng = np.random.default_rng(2)
    arrays = dict(
        zip(("query", "key", "value"), qkv(rng, (), 2, lq, 14, 3), strict=True)
    )
    places = {"query_offset": 3, "signed": signed}
    parameters = away_from_kinks(rng, lq, 14, **places)
    grad_out, grad_lse = rng.standard_normal((2, lq, 3)), rng.standard_normal((2, lq))
    keywords = {**places, "is_causal": True}

    def total(**moved):
        got = relpos.fire_attention(**moved, **keywords, return_lse=True)
        return (grad_out * got.out).sum() + (grad_lse * got.lse).sum()

    everything = arrays | parameters
    want = five_points(total, everything, tuple(everything))
    result = relpos.fire_attention(**everything, **keywords, return_context=True)
    found = result.context.backward(grad_out, grad_lse=grad_lse)
    size = max(np.abs(x).max() for x in want.values())
    for name in everything:
        gap = np.abs(getattr(found, name) - want[name]).max()
        assert gap <= 1e-10 * size, f"{name}: {gap:.2g}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_recorded_bias_and_gradients_through_the_fused_engine(dtype, golden_folder):
    """With equal queries and the identity for values, log(out) + lse is the bias."""
    folder = golden_folder or SUBSET
    for path in folder.glob("fire_*.npz"):
        case = Case(path, dtype)
        names = ("w_mlp.0.weight", "w_mlp.0.bias", "w_mlp.2.weight", "w_mlp.2.bias")
        length, start = case.flags["qlen"], case["w_init_L"]
        zeros = np.zeros((3, length, 1), dtype)
        identity = np.broadcast_to(np.eye(length, dtype=dtype), (3, length, length))
        result = relpos.fire_attention(
            zeros,
            zeros,
            identity,
            *(case[name] for name in names),
            case["w_c"],
            case["w_L_multiplier"] * start,
            signed=case.flags["signed"],
            eps=case.flags["eps"],
            return_lse=True,
            return_context=True,
        )
        bias, grad = case.true("out_bias")[0], case.true("ct_bias")[0]
        limit = TOLERANCES["recorded"].of(dtype)
        got = np.log(result.out) + result.lse[..., None]
        assert np.abs(got - bias).max() <= limit * np.abs(bias).max()
        weights = np.asarray(result.out, np.float64)
        found = result.context.backward(grad / weights, grad_lse=grad.sum(-1))
        limit = TOLERANCES["recorded_gradient"].of(dtype)
        for field, name in zip(NAMES, (*names, "w_c", "w_L_multiplier"), strict=True):
            gradient, want = getattr(found, field), case.true("grad_" + name)
            if field == "threshold":
                gradient = gradient * start
            assert gradient.shape == want.shape
            assert np.abs(gradient - want).max() <= limit * np.abs(want).max(), field


# ---- the same bits, whatever runs them ----------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["causal", "item_offsets", "dropout", "bands"])
@pytest.mark.parametrize(("lq", "lk"), [(7, 1300), (300, 1100)])
def test_threads_change_nothing(variant, lq, lk, dtype, isa):
    problem = Problem(variant, False, lq, lk)
    want, grads = problem.run(dtype, num_threads=1), problem.backward(dtype, 1)
    for threads in (2, 3, 7):
        assert_bitwise(problem.run(dtype, num_threads=threads), want)
        assert_same_bits(problem.backward(dtype, threads), grads)


def test_a_batch_item_alone_has_the_same_bits(isa):
    problem = Problem("item_offsets", True, 40, 300)
    given, whole = problem.cast("float32"), problem.run("float32")
    for b, offset in enumerate(problem.offsets):
        own = {name: given[name][b] for name in ("query", "key", "value")}
        own |= {"query_offset": offset}
        assert_bitwise(relpos.fire_attention(**given | own, **problem.fire), whole[b])


@pytest.mark.parametrize("dtype", DTYPES)
def test_cached_decode_sees_true_distances(dtype, isa):
    """Rows computed one at a time, with all keys so far, are those of the whole."""
    problem = Problem("causal", False, 60, 60)
    given = problem.cast(dtype)
    whole = problem.run(dtype)
    for i in (0, 1, 17, 59):
        own = {"query": given["query"][..., i : i + 1, :], "query_offset": i}
        own |= {name: given[name][..., : i + 1, :] for name in ("key", "value")}
        row = relpos.fire_attention(**given | own, **problem.fire)
        assert_close(row, whole[..., i : i + 1, :], "same_formula")
