"""Scaled frequencies and magnitudes: the papers, and the functions of transformers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refused

import relpos
from relpos import reference

ORIGINAL = "original_max_position_embeddings"
YARN = {"factor": 4.0, ORIGINAL: 2048}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    ORIGINAL: 8192,
}


def long_factors(dim):
    return {
        "short_factor": (1 + np.arange(dim // 2) / 50).tolist(),
        "long_factor": (1 + np.arange(dim // 2) / 3).tolist(),
        ORIGINAL: 4096,
    }


def scalings(dim):
    """(name, values) pairs of every kind that the functions take."""
    dynamic, long = {"factor": 2.0, ORIGINAL: 2048}, long_factors(dim)
    pairs = [None, ("linear", 2.5), ("linear", 1), ("ntk", 4), ("ntk", 0.5)]
    pairs += [("dynamic", dynamic | {"seq_len": n}) for n in (100, 2048, 2049, 9000)]
    pairs += [("dynamic", dynamic), ("llama3", LLAMA3)]
    pairs += [
        ("yarn", YARN | more)
        for more in (
            {},
            {"factor": None, "max_position_embeddings": 16384},
            {"factor": 0.5},
            {"beta_fast": 8.0, "beta_slow": 2.0},
            {"beta_fast": 8.0, "beta_slow": 8.0},
            {"truncate": False},
            {"attention_factor": 1.5},
            {"mscale": 0.7, "mscale_all_dim": 1.0, "factor": 40},
            {"mscale": 0.7},
            {ORIGINAL: 32, "rope_type": "yarn"},
            {ORIGINAL: 4},  # the ramp is cut
            {"beta_fast": 1.0, "beta_slow": 32.0},
        )
    ]
    pairs += [
        ("longrope", long | more)
        for more in (
            {"factor": 4.0},
            {"factor": 32.0, "seq_len": 4096},
            {"factor": 32.0, "seq_len": 4097},
            {"max_position_embeddings": 131072, "type": "longrope"},
            {"factor": 0.25, "attention_factor": None},
            {"factor": 4.0, "attention_factor": 1.19},
        )
    ]
    pairs += [
        ("proportional", values)
        for values in (
            {},
            {"partial_rotary_factor": 0.25},
            {"partial_rotary_factor": 0.1, "factor": 8.0},
            {"partial_rotary_factor": 0, "rope_type": "proportional"},
        )
    ]
    return pairs


@pytest.mark.parametrize("base", [10000.0, 500000.0, 7.5])
@pytest.mark.parametrize("dim", [4, 64, 96, 128])
def test_against_the_definitions(dim, base):
    for scaling in scalings(dim):
        got = relpos.rotary_frequencies(dim, base=base, scaling=scaling)
        want = reference.rotary_frequencies(dim, base=base, scaling=scaling)
        assert got.shape == (dim // 2,) and got.dtype == np.float64
        assert got.flags.writeable
        np.testing.assert_allclose(got, want, rtol=1e-13, err_msg=str(scaling))
        magnitude = relpos.rotary_magnitude(scaling)
        assert isinstance(magnitude, float)
        assert magnitude == pytest.approx(reference.rotary_magnitude(scaling), 1e-15)


def test_unscaled_frequencies_are_rounded_once():
    """They are the defaults of apply_rotary without their low parts."""
    for dim in (2, 6, 128):
        got = relpos.rotary_frequencies(dim, base=10.0)
        want = [float(10.0 ** (-2 * c / dim)) for c in range(dim // 2)]
        np.testing.assert_allclose(got, want, rtol=2e-16)
    x = np.random.default_rng(0).standard_normal((9, 32)).astype(np.float32)
    given = relpos.apply_rotary(x, inv_freq=relpos.rotary_frequencies(32))
    assert (given == relpos.apply_rotary(x)).all()


def test_linear_and_ntk():
    plain = relpos.rotary_frequencies(8)
    got = relpos.rotary_frequencies(8, scaling=("linear", 4.0))
    np.testing.assert_allclose(got, plain / 4, rtol=1e-16)
    got = relpos.rotary_frequencies(8, scaling=("ntk", 3.0))
    want = [(10000 * 3.0 ** (8 / 6)) ** (-2 * c / 8) for c in range(4)]
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_dynamic_starts_beyond_the_original_length():
    plain = relpos.rotary_frequencies(16)
    for seq_len, factor in ((None, 1), (512, 1), (1024, 1), (1025, None), (4096, 7)):
        settings = {"factor": 2.0, ORIGINAL: 1024, "seq_len": seq_len}
        got = relpos.rotary_frequencies(16, scaling=("dynamic", settings))
        factor = 2.0 * 1025 / 1024 - 1 if factor is None else factor
        want = relpos.rotary_frequencies(16, scaling=("ntk", factor))
        np.testing.assert_allclose(got, want, rtol=1e-15)
        assert (got == plain).all() == (factor == 1)


def test_yarn_keeps_the_fast_and_slows_the_slow():
    """Pairs of 32 rotations and more, of one and less, within the original length."""
    dim, length = 128, YARN[ORIGINAL]
    plain = relpos.rotary_frequencies(dim)
    got = relpos.rotary_frequencies(dim, scaling=("yarn", YARN | {"truncate": False}))
    rotations = length * plain / (2 * math.pi)
    np.testing.assert_array_equal(got[rotations >= 32], plain[rotations >= 32])
    np.testing.assert_allclose(
        got[rotations <= 1], plain[rotations <= 1] / 4, rtol=1e-15
    )
    between = (rotations < 32) & (rotations > 1)
    ratio = got[between] / plain[between]
    assert between.sum() > 5 and (np.diff(ratio) < 0).all()
    # linear in the pair, which is linear in the logarithm of the rotations
    np.testing.assert_allclose(
        ratio, 0.25 + 0.75 * np.log(rotations[between]) / np.log(32), rtol=1e-12
    )
    assert relpos.rotary_magnitude(("yarn", YARN)) == 0.1 * math.log(4) + 1


def test_llama3_blends_by_the_number_of_turns():
    plain = relpos.rotary_frequencies(128, base=500000.0)
    got = relpos.rotary_frequencies(128, base=500000.0, scaling=("llama3", LLAMA3))
    for before, after in zip(plain, got, strict=True):
        wavelength = 2 * math.pi / before
        if wavelength < 8192 / 4:
            assert after == before
        elif wavelength > 8192 / 1:
            assert after == pytest.approx(before / 8, rel=1e-15)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            want = (1 - smooth) * before / 8 + smooth * before
            assert after == pytest.approx(want, rel=1e-14)
    assert relpos.rotary_magnitude(("llama3", LLAMA3)) == 1


def test_longrope_changes_lists_past_the_original_length():
    plain, long = relpos.rotary_frequencies(8), long_factors(8) | {"factor": 4.0}
    for seq_len, key in ((None, "short"), (4096, "short"), (4097, "long")):
        scaling = "longrope", long | {"seq_len": seq_len}
        got = relpos.rotary_frequencies(8, scaling=scaling)
        np.testing.assert_allclose(got, plain / long[f"{key}_factor"], rtol=1e-15)
        want = math.sqrt(1 + math.log(4) / math.log(4096))
        assert relpos.rotary_magnitude(scaling) == want


def test_proportional_keeps_the_exponents_of_the_whole_width():
    """The first pairs rotate, divided by the factor; the others have frequency 0."""
    plain = relpos.rotary_frequencies(32, base=1e6)
    values = {"partial_rotary_factor": 0.3, "factor": 2.0}  # 0.3 * 16 pairs: 4.8
    got = relpos.rotary_frequencies(32, base=1e6, scaling=("proportional", values))
    np.testing.assert_array_equal(got, np.where(np.arange(16) < 4, plain / 2, 0.0))
    assert relpos.rotary_magnitude(("proportional", values)) == 1
    plain[0] = 0  # a result is the caller's own
    assert relpos.rotary_frequencies(32, base=1e6)[0] == 1
    x = np.random.default_rng(0).standard_normal((5, 32))
    rotated = relpos.apply_rotary(x, inv_freq=got)
    assert (rotated[:, 4:16] == x[:, 4:16]).all()
    assert (rotated[:, 20:] == x[:, 20:]).all()
    assert (rotated[1:, :4] != x[1:, :4]).all()


# ---- the functions of the transformers package -------------------------------------


def huggingface(dim, base, scaling):
    """(frequencies, attention factor) of ROPE_INIT_FUNCTIONS, in its own float32."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    name, values = scaling
    values = {"factor": values} if name == "linear" else dict(values)
    seq_len = values.pop("seq_len", None)
    longest = values.pop("max_position_embeddings", None)
    if name == "dynamic":
        longest = values.pop(ORIGINAL)
    if name == "longrope" and "factor" not in values:
        values["factor"] = longest / values[ORIGINAL]
    if name == "yarn" and values["factor"] is None:
        values["factor"] = longest / values[ORIGINAL]
    config = LlamaConfig(
        hidden_size=4 * dim,
        num_attention_heads=4,
        head_dim=dim,
        max_position_embeddings=longest or 131072,
        rope_parameters={"rope_theta": base, "rope_type": name} | values,
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[name](config, "cpu", seq_len=seq_len)
    return frequencies.numpy(), factor


@pytest.mark.torch
@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize("dim", [64, 96, 128])
def test_against_transformers(dim, base):
    compared = 0
    for scaling in scalings(dim):
        if scaling is None or scaling[0] == "ntk":  # it has no fixed NTK
            continue
        want, factor = huggingface(dim, base, scaling)
        got = relpos.rotary_frequencies(dim, base=base, scaling=scaling)
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=str(scaling))
        assert relpos.rotary_magnitude(scaling) == pytest.approx(factor, 1e-12), scaling
        compared += 1
    assert compared > 15


# ---- bad input -----------------------------------------------------------------------

test_bad_frequencies = refused(
    relpos.rotary_frequencies,
    {"dim": 8},
    """
dim=5 -> ValueError: dim: got 5; expected an even number
dim=2**30 -> ValueError: dim: got 1073741824; expected
base=0 -> ValueError: base: got 0.0; expected a positive number
scaling="linear" -> TypeError: scaling: got str; expected None or a pair
scaling=("linear",) -> TypeError: scaling: got tuple; expected None or
scaling={"type": "linear"} -> TypeError: scaling: got dict; expected None
scaling=("su", 4.0) -> ValueError: scaling: got 'su'; expected one of 'linear', 'ntk',
    'dynamic', 'yarn',
scaling=(4.0, "linear") -> TypeError: scaling: got float; expected one of
scaling=("linear", {"factor": 2.0}) -> TypeError: scaling: factor of linear: got dict;
    expected a real number
scaling=("ntk", -1) -> ValueError: scaling: factor of ntk: got -1.0; exp
scaling=("ntk", 1e300) -> ValueError: scaling: …beyond float64
scaling=("ntk", 1e-300), dim=4 -> ValueError: scaling: …beyond float64
base=1e-300, scaling=("ntk", 1e300), dim=4 -> ValueError: scaling: …beyond float64
dim=2, scaling=("ntk", 2) -> ValueError: dim: got 2; … from 4
scaling=("yarn", 4.0) -> TypeError: scaling: got float with 'yarn'; expected a dict with
    'original_max
scaling=("yarn", YARN | {"rope_type": "linear"}) -> ValueError: scaling: its rope_type
    is 'linear'; expected 'yarn'
scaling=("yarn", YARN | {"betafast": 3}) -> ValueError: scaling: 'yarn' has no key
    'betafast'; expected some of …'beta_fast'
scaling=("llama3", YARN) -> ValueError: scaling: got no 'low_freq_factor'; 'llama3'
    needs it
scaling=("yarn", {ORIGINAL: 2048}) -> ValueError: scaling: got neither 'factor' nor
    'max_position_embeddings'; 'yarn'
scaling=("yarn", YARN | {"factor": "4"}) -> TypeError: scaling: factor: got str;
    expected a real number
scaling=("yarn", YARN | {"truncate": 1}) -> TypeError: scaling: truncate: got int;
    expected True or False
scaling=("yarn", YARN), base=1.0 -> ValueError: base: got 1.0; expected more than 1 with
    'yarn'
scaling=("llama3", LLAMA3 | {"low_freq_factor": 4.0}) -> ValueError: scaling:
    low_freq_factor is 4.0, high_freq_factor 4.0; expected the second
scaling=("proportional", 0.25) -> TypeError: scaling: got float with 'proportional';
    expected a dict with 'factor', 'par
scaling=("proportional", {"partial_rotary_factor": 1.5}) -> ValueError: scaling:
    partial_rotary_factor: got 1.5; expected a number from 0 to 1
scaling=("proportional", {"partial_rotary_factor": "all"}) -> TypeError: scaling:
    partial_rotary_factor: got str; expected a real number
scaling=("proportional", {"factor": 0}) -> ValueError: scaling: factor: got 0.0;
    expected a positive number
scaling=("proportional", {"seq_len": 5}) -> ValueError: scaling: 'proportional' has no
    key 'seq_len'; expected some of 'factor', 'p
scaling=("longrope", long_factors(6)) -> ValueError: scaling: short_factor has shape
    (3,); expected (4,), one per pair
scaling=("longrope", long_factors(8) | {"long_factor": [1, 2, 3, 0]}) -> ValueError:
    scaling: long_factor: expected positive numbers
""",
    globals(),
)


test_bad_magnitude = refused(
    relpos.rotary_magnitude,
    {},
    """
scaling=("su", 1.0) -> ValueError: scaling: got 'su'; expected one of
scaling=7 -> TypeError: scaling: got int; expected None or a pair
scaling=("longrope", long_factors(8)) -> ValueError: scaling: got neither 'factor' nor
    …; 'longrope' needs one
scaling=("longrope", long_factors(8) | {"factor": 4.0, ORIGINAL: 1}) -> ValueError:
    scaling: original_max_position_embeddings is 1.0; expected more than 1
""",
    globals(),
)
test_bad_xpos = refused(
    relpos.xpos_magnitude,
    {"positions": 3, "dim": 4},
    """
dim=3 -> ValueError: dim: got 3; expected an even number
positions=-1 -> ValueError: positions: got -1; expected an integer
scale_base=0 -> ValueError: scale_base: got 0.0; expected a positive
""",
    globals(),
)
