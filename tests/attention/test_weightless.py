"""Tiles in which every weight is 0 are left out, and no bit changes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tolerances import assert_bitwise

import relpos
from relpos._attention import attention, gradients

STEEP = {np.float32: 1.0, np.float64: 9.0}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def weigh_all(monkeypatch):
    """A switch that makes the kernels look at every tile."""

    def switch():
        for module in (attention, gradients):
            run = module.kernels()

            def through(name, run=run):
                return lambda operands: getattr(run, name)({**operands, "weigh_all": 1})

            names = ("attention_forward", "attention_backward")
            table = SimpleNamespace(**{name: through(name) for name in names})
            table.attend = lambda *args: None
            monkeypatch.setattr(module, "kernels", lambda table=table: table)

    return switch


def problem(rng, dtype, lq=300, lk=1500):
    def normal(*shape):
        return rng.standard_normal(shape).astype(dtype)

    slopes = STEEP[dtype] * np.array([2.0, 1.0, 0.25, 1e-3])
    return {
        "query": normal(2, 4, lq, 8),
        "key": normal(2, 2, lk, 8),
        "value": normal(2, 2, lk, 5),
        "enable_gqa": True,
        "rel_bias": relpos.alibi_bias(slopes, lk + 40).astype(dtype),
        "query_offset": np.array([lk - lq, 30]),
        "pos_bias_u": normal(8),
    }


def differentiate(keywords):
    call = relpos.fire_attention if "w1" in keywords else relpos.attention
    result = call(**keywords, return_lse=True, return_context=True)
    rng = np.random.default_rng(1)
    grads = result.context.backward(
        rng.standard_normal(result.out.shape),
        grad_lse=rng.standard_normal(result.lse.shape),
    )
    return [result.out, result.lse, *(g for g in grads if g is not None)]


def assert_same_bits(keywords, weigh_all):
    """Compare all results with those of kernels that look at every tile."""
    mine = differentiate(keywords)
    weigh_all()
    for x, y in zip(mine, differentiate(keywords), strict=True):
        assert_bitwise(np.isnan(x), np.isnan(y))
        assert_bitwise(np.where(np.isnan(x), 0, x), np.where(np.isnan(y), 0, y))


def decays(dtype):
    """Steps of each head from none to steep, and some upwards."""
    steps = np.random.default_rng(2).standard_normal((4, 1500))
    return (STEEP[dtype] * np.array([[-1.0], [0.5], [0.1], [0.0]]) * steps**2).astype(
        dtype
    )


RULES = {
    "both directions": {},
    "causal": {"is_causal": True},
    "window": {"window": (900, 700)},
    "ranges": {"key_ranges": [[700, 1300]]},
    "dropout": {"dropout_p": 0.3, "rng": 1},
    "scale": {"scale": 0.01, "is_causal": True},
    "lengths": {"key_lengths": [1500, 1100]},
}


@pytest.mark.parametrize("dtype", STEEP)
@pytest.mark.parametrize("rule", RULES)
def test_left_out_or_not_the_bits_are_the_same(isa, rng, weigh_all, dtype, rule):
    given = {**problem(rng, dtype), **RULES[rule]}
    assert_same_bits(given, weigh_all)


@pytest.mark.parametrize("dtype", STEEP)
@pytest.mark.parametrize("with_bias", [False, True])
def test_nor_by_decay(isa, rng, weigh_all, dtype, with_bias):
    given = problem(rng, dtype) | {"log_decay": decays(dtype), "is_causal": True}
    if not with_bias:
        del given["rel_bias"]
    assert_same_bits(given, weigh_all)


def network(dtype, steep=400.0, units=9):
    """FIRE of four heads that falls, rises, bends and hardly moves."""
    rng = np.random.default_rng(3)
    w1 = rng.standard_normal(units)
    b1 = -w1 * rng.random(units)
    w2 = steep * STEEP[dtype] * np.array([[-1.0], [1.0], [0.3], [1e-3]])
    w2 = w2 * np.concatenate(
        [np.sign(w1)[None].repeat(2, 0), rng.standard_normal((2, units))]
    )
    parameters = {"w1": w1, "b1": b1, "w2": w2, "b2": rng.standard_normal(4)}
    return {name: x.astype(dtype) for name, x in parameters.items()} | {
        "c": 0.5,
        "threshold": 20.0,
    }


@pytest.mark.parametrize("dtype", STEEP)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("others", ["none", "bias", "decay"])
def test_nor_by_fire(isa, rng, weigh_all, dtype, signed, others):
    given = problem(rng, dtype) | network(dtype) | {"signed": signed}
    if others != "bias":
        del given["rel_bias"]
    if others == "decay":
        given |= {"log_decay": decays(dtype), "is_causal": True}
    assert_same_bits(given, weigh_all)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("name", ["w1", "b1", "w2", "b2", "c", "threshold"])
def test_nor_by_fire_that_is_no_number(rng, weigh_all, name, bad):
    given = problem(rng, np.float32) | network(np.float32)
    if name in ("c", "threshold"):
        given[name] = np.float32(bad)
    else:
        given[name].reshape(-1)[-3] = bad
    assert_same_bits(given, weigh_all)


def test_nor_by_fire_whose_offsets_overflow(isa, rng, weigh_all):
    """Pairs of a tile that decay leaves nothing of have a bias of NaN."""
    given = {
        "query": rng.standard_normal((1, 40, 8)),
        "key": rng.standard_normal((1, 1024, 8)),
        "value": rng.standard_normal((1, 1024, 5)),
        "query_offset": 984,
        "log_decay": np.full((1, 1024), -2.0),
        "is_causal": True,
    }
    given |= {"w1": np.array([1.0, -1.0]), "b1": np.array([-0.3, 0.3])}
    given |= {"w2": np.array([[1.0, 0.5]]), "b2": np.zeros(1)}
    given |= {"c": 3e305, "threshold": 1.0}  # offsets are infinite from 600 on
    assert np.isnan(relpos.fire_attention(**given)).all()
    assert_same_bits(given, weigh_all)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["query", "key", "value", "rel_bias"])
def test_no_number_that_is_none_gets_lost(rng, weigh_all, name, bad):
    given = problem(rng, np.float32)
    given[name].reshape(-1)[[3, -3]] = bad
    assert_same_bits(given, weigh_all)


@pytest.mark.parametrize("hidden", [0.0, 0.5])
def test_a_mask_hides_before_anything_is_left_out(rng, weigh_all, hidden):
    """The key with the largest score may be hidden from its query."""
    given = problem(rng, np.float32)
    given["attn_mask"] = rng.random((300, 1500)) >= hidden
    given["attn_mask"][:, 700:] = False
    assert_same_bits(given, weigh_all)


def test_far_tiles_of_fire_are_not_read(rng, weigh_all):
    given = problem(rng, np.float32) | {"query_offset": 1200}
    del given["rel_bias"]
    given |= network(np.float32, 5000.0)
    given["w2"] = -np.abs(given["w2"][:1]).repeat(4, axis=0)
    given["w1"] = np.abs(given["w1"])
    given["value"][..., :512, :] = 3e38
    assert np.isfinite(relpos.fire_attention(**given)).all()
    weigh_all()
    assert not np.isfinite(relpos.fire_attention(**given)).all()


def test_far_tiles_are_not_read(rng, weigh_all):
    """Their values would overflow before the maximum of the row comes."""
    given = problem(rng, np.float32, 300, 1500) | {"query_offset": 1200}
    given["rel_bias"] = given["rel_bias"][:2].repeat(2, axis=0)
    given["value"][..., :512, :] = 3e38
    assert np.isfinite(relpos.attention(**given)).all()
    weigh_all()
    assert not np.isfinite(relpos.attention(**given)).all()
