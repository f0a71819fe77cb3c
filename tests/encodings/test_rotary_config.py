"""rotary_from_config: definitions, older spellings, and the models of transformers."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import oracle_rotary_config as oracle
import pytest
from bad_rotary_config import BAD
from hugging_rotary import transformers
from problems import seeded
from tolerances import assert_bitwise

import relpos
from relpos import reference

ORIGINAL = "original_max_position_embeddings"
SIZES = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
}
FACTORS = {
    "short_factor": (1 + np.arange(32) / 50).tolist(),
    "long_factor": (1 + np.arange(32) / 3).tolist(),
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 512}
#: name -> (rope_parameters without the base, seq_len)
ROPES = {
    "default": ({"rope_type": "default"}, None),
    "linear": ({"rope_type": "linear", "factor": 4.0}, None),
    "dynamic, untold": ({"rope_type": "dynamic", "factor": 2.0}, None),
    "dynamic, short": ({"rope_type": "dynamic", "factor": 2.0}, 100),
    "dynamic, long": ({"rope_type": "dynamic", "factor": 2.0}, 9000),
    "yarn": ({"rope_type": "yarn", "factor": 4.0, ORIGINAL: 1024}, None),
    "yarn, settings": (
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "mscale": 0.7,
            "mscale_all_dim": 1.0,
            "beta_fast": 16.0,
            "truncate": False,
            ORIGINAL: 1024,
        },
        None,
    ),
    "llama3": ({"rope_type": "llama3", **LLAMA3}, None),
    "longrope": ({"rope_type": "longrope", **FACTORS, ORIGINAL: 1024}, None),
    "longrope, short": (
        {"rope_type": "longrope", "factor": 8.0, **FACTORS, ORIGINAL: 1024},
        1024,
    ),
    "longrope, long": ({"rope_type": "longrope", **FACTORS, ORIGINAL: 1024}, 1025),
    "proportional": ({"rope_type": "proportional", "partial_rotary_factor": 0.3}, None),
    "proportional, slower": ({"rope_type": "proportional", "factor": 8.0}, None),
    "partial": ({"rope_type": "default", "partial_rotary_factor": 0.25}, None),
    "partial yarn": (
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "partial_rotary_factor": 0.5,
            ORIGINAL: 99,
        },
        None,
    ),
}


def config_of(name, base=10000.0, **more):
    rope, seq_len = ROPES[name]
    return {**SIZES, "rope_parameters": {**rope, "rope_theta": base}, **more}, seq_len


def same(got, want):
    assert_bitwise(got.inv_freq, want.inv_freq)
    assert got[1:] == want[1:]


@pytest.mark.parametrize("base", [10000.0, 500000])
@pytest.mark.parametrize("name", ROPES)
def test_against_the_definitions_and_as_keywords(name, base):
    config, seq_len = config_of(name, base)
    got = relpos.rotary_from_config(config, seq_len=seq_len)
    want = reference.rotary_from_config(config, seq_len=seq_len)
    assert got.inv_freq.dtype == np.float64
    np.testing.assert_allclose(got.inv_freq, want.inv_freq, rtol=1e-13)
    assert got.magnitude == pytest.approx(want.magnitude, rel=1e-15)
    assert got[2:] == want[2:] and type(got.rotary_dim) is int
    assert type(got.interleaved) is bool and type(got.magnitude) is float
    x, keywords = seeded(4, 7, 64), got._asdict()
    exact = reference.apply_rotary(x, **keywords)
    np.testing.assert_allclose(
        relpos.apply_rotary(x, **keywords), exact, rtol=0, atol=1e-13
    )


# ---- one thing in many spellings ----------------------------------------------------


@pytest.mark.parametrize("name", ROPES)
def test_older_spellings_say_the_same(name):
    config, seq_len = config_of(name, 5e5)
    rope = dict(config["rope_parameters"])
    want = relpos.rotary_from_config(config, seq_len=seq_len)
    del rope["rope_theta"]
    part = rope.pop("partial_rotary_factor", None)
    if rope["rope_type"] == "proportional":  # is younger
        rope["partial_rotary_factor"] = part
    elif part:
        config["partial_rotary_factor"] = part
    kind = rope.pop("rope_type")
    for spelled in ({"type": kind}, {"rope_type": kind}):
        old = {**SIZES, **config, "rope_theta": 5e5, "rope_scaling": rope | spelled}
        del old["rope_parameters"]
        same(relpos.rotary_from_config(old, seq_len=seq_len), want)
        there = SimpleNamespace(**old)
        same(relpos.rotary_from_config(there, seq_len=seq_len), want)
        inside = {"model_type": "x_vl", "text_config": old, "vision_config": {}}
        same(relpos.rotary_from_config(inside, seq_len=seq_len), want)


PLAIN = {"head_dim": 64, "rope_theta": 1e4}
SAME_AS_PLAIN = {
    "no scaling": {"rope_scaling": None},
    "the default base": {
        "model_type": "llama",
        "rope_theta": None,
        "rope_scaling": None,
    },
    "sizes": {"head_dim": None, "hidden_size": 256, "num_attention_heads": 4},
    "sizes of GPT-2": {"head_dim": None, "n_embd": 256, "n_head": 4},
    "mrope": {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
    "a base of its own": {"rope_theta": 1.0, "rope_parameters": {"rope_theta": 1e4}},
    "GPT-NeoX": {"rope_theta": None, "rotary_emb_base": 1e4, "rotary_pct": 1.0},
    "GPT-J": {"head_dim": 256, "rotary_dim": 64},
    "a part of it": {"head_dim": 256, "partial_rotary_factor": 0.25},
    "DeepSeek": {"head_dim": 192, "qk_rope_head_dim": 64},
    "one dict for all layers": {"layer_types": ["full_attention"]},
    "an empty dict": {
        "rope_theta": 1.0,
        "rope_scaling": {},
        "rope_parameters": {"rope_theta": 1e4},
    },
}


@pytest.mark.parametrize("name", SAME_AS_PLAIN)
def test_other_ways_to_say_it(name):
    want = relpos.rotary_from_config(PLAIN)
    assert_bitwise(want.inv_freq, relpos.rotary_frequencies(64))
    assert want[1:] == (1.0, 64, False)
    same(relpos.rotary_from_config(PLAIN | SAME_AS_PLAIN[name]), want)


def test_layers_that_differ():
    """Gemma 3 as it was saved in both spellings, ModernBERT's first one, OLMo 3's."""
    scaling = {"rope_type": "linear", "factor": 8.0}
    new = {
        "full_attention": {**scaling, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    old = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": scaling}
    spelled = [{"rope_parameters": new}, old]
    spelled.append(
        {"global_rope_theta": 1e6, "local_rope_theta": 1e4, "rope_scaling": scaling}
    )
    for config in spelled:
        config["head_dim"] = 32
        for kind, base, factor in (
            ("full_attention", 1e6, 8.0),
            ("sliding_attention", 1e4, 1.0),
        ):
            got = relpos.rotary_from_config(config, layer_type=kind)
            want = relpos.rotary_frequencies(32, base=base) / factor
            np.testing.assert_allclose(got.inv_freq, want, rtol=1e-15)
    olmo = {"head_dim": 32, "rope_theta": 1e6, "rope_scaling": scaling}
    olmo["model_type"] = "olmo3"
    got = relpos.rotary_from_config(olmo, layer_type="sliding_attention")
    assert_bitwise(got.inv_freq, relpos.rotary_frequencies(32, base=1e6))
    for kind in ("modernbert", "modernbert-decoder"):  # scale all of their layers
        got = relpos.rotary_from_config(
            spelled[2] | {"model_type": kind}, layer_type="sliding_attention"
        )
        want = relpos.rotary_frequencies(32, scaling=("linear", 8.0))
        assert_bitwise(got.inv_freq, want)


#: Part of google/gemma-3-12b-it's config.json.
GEMMA_3 = {
    "hidden_size": 3840,
    "model_type": "gemma3_text",
    "num_attention_heads": 16,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
}
SIZES_96 = {"hidden_size": 480, "num_attention_heads": 5, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("config", "layer_type", "columns", "base", "factor"),
    [
        (GEMMA_3, "full_attention", 256, 1e6, 8.0),
        (GEMMA_3, "sliding_attention", 256, 1e4, 1.0),
        (GEMMA_3 | {"model_type": "t5gemma2_text"}, "full_attention", 256, 1e6, 8.0),
        (
            GEMMA_3 | {"rope_scaling": {"sliding_attention": {}}},
            "sliding_attention",
            256,
            1e4,
            1.0,
        ),
        ({"model_type": "modernbert", **SIZES}, "full_attention", 64, 1.6e5, 1.0),
        ({"model_type": "falcon", **SIZES}, None, 64, 1e4, 1.0),
        ({"model_type": "gpt_neox", **SIZES_96}, None, 24, 1e4, 1.0),
        ({"model_type": "phi", **SIZES_96}, None, 48, 1e4, 1.0),
        ({"model_type": "qwen3", **SIZES_96}, None, 128, 1e4, 1.0),
        ({"model_type": "qwen3", "head_dim": None, **SIZES_96}, None, 96, 1e4, 1.0),
        ({"model_type": "deepseek_v3", **SIZES_96}, None, 64, 1e4, 1.0),
        ({"model_type": "gptj", "n_embd": 480, "n_head": 5}, None, 64, 1e4, 1.0),
        (SIZES_96, None, 96, 1e4, 1.0),
    ],
)
def test_keys_that_a_model_lacks(config, layer_type, columns, base, factor):
    """Compare with transformers' values, or Llama's without a model_type."""
    inside = {"model_type": "x_vl", "text_config": config}
    for given in (config, inside):
        got = relpos.rotary_from_config(given, layer_type=layer_type)
        assert got.rotary_dim == columns
        want = relpos.rotary_frequencies(columns, base=base) / factor
        np.testing.assert_allclose(got.inv_freq, want, rtol=1e-15)


UNSAID = ["llama4_text", "smollm3", "qwen3_vl_text", "olmo3", "gpt_oss"]
UNSAID += [
    "sarvam_moe",
    "sarvam_mla",
    "kimi_linear",
    "hy_v4_vl_text",
    "dory",
    "qwen4_exp",
]
UNSAID += ["moonshine_streaming", "chatglm", "a_model_of_tomorrow"]


@pytest.mark.parametrize("scaling", [None, {"type": "linear", "factor": 2.0}])
@pytest.mark.parametrize("kind", UNSAID)
def test_a_base_that_no_default_says(kind, scaling):
    config = {"model_type": kind, "head_dim": 8, "rope_scaling": scaling}
    for given in (config, {**SIZES, **config}, {"text_config": config}):
        with pytest.raises(
            ValueError, match=f"got no rope_theta; expected .* {kind}'s"
        ):
            relpos.rotary_from_config(given)
    found = relpos.rotary_from_config(
        config | {"rope_theta": 5e4}, layer_type="full_attention"
    )
    want = relpos.rotary_frequencies(8, base=5e4) / (2 if scaling else 1)
    np.testing.assert_allclose(found.inv_freq, want, rtol=1e-15)


def test_a_base_that_no_type_says():
    config = {"head_dim": 8, "rope_scaling": None}
    with pytest.raises(ValueError, match=r"got no rope_theta; .* without model_type"):
        relpos.rotary_from_config(config)
    assert relpos.rotary_from_config(config | {"model_type": "llama"}).rotary_dim == 8


# ---- keys that decide the numbers ---------------------------------------------------

#: Part of deepseek-ai/DeepSeek-V4-Flash's config.json.
DEEPSEEK_V4 = {
    "head_dim": 512,
    "hidden_size": 4096,
    "max_position_embeddings": 1048576,
    "model_type": "deepseek_v4",
    "num_attention_heads": 64,
    "num_hidden_layers": 43,
    "qk_rope_head_dim": 64,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 16,
        ORIGINAL: 65536,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.5,
    "compress_rope_theta": 160000,
}
GROUPS = {
    "main": ("main", "sliding_attention"),
    "compress": (
        "compress",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
    ),
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_base_inside_the_scaling_of_deepseek_v4_is_of_its_main_layers(group):
    inner = {"rope_parameters": DEEPSEEK_V4["rope_scaling"] | {"rope_theta": 10000}}
    given = {**DEEPSEEK_V4, "rope_scaling": None} | inner
    want = relpos.rotary_from_config(DEEPSEEK_V4, layer_type=group)
    found = relpos.rotary_from_config(given, layer_type=group)
    assert_bitwise(found.inv_freq, want.inv_freq)
    assert found[1:] == want[1:]
    with pytest.raises(ValueError, match=r"rope_theta = 20000, and 10000 in its rope"):
        relpos.rotary_from_config(given | {"rope_theta": 20000}, layer_type=group)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("without", [(), ("compress_rope_theta",), ("rope_theta",)])
def test_deepseek_v4(group, without):
    """Bases side by side, of which the scaling belongs to the second; magnitude 1."""
    config = {key: x for key, x in DEEPSEEK_V4.items() if key not in without}
    types = {"layer_types": list(GROUPS["main"][1:] + GROUPS["compress"][1:])}
    scaled = {**DEEPSEEK_V4["rope_scaling"], "rope_type": "yarn", "rope_theta": 1.6e5}
    rope = {"main": {"rope_type": "default", "rope_theta": 1e4}, "compress": scaled}
    want = oracle.rotary_from_config(
        {"head_dim": 64, "rope_parameters": rope}, layer_type=group
    )
    for name in GROUPS[group]:
        for given in (config, config | types, {"text_config": config}):
            got = relpos.rotary_from_config(given, layer_type=name)
            np.testing.assert_allclose(got.inv_freq, want.inv_freq, rtol=1e-13)
            assert got[1:] == (1.0, 64, True)
    with pytest.raises(
        ValueError, match="got None; expected one of 'main', 'compress'"
    ):
        relpos.rotary_from_config(config)


def test_deepseek_v4_as_transformers_writes_it():
    """With a dict for each group, which has its own magnitude, and other columns."""
    yarn = DEEPSEEK_V4["rope_scaling"] | {"attention_factor": 1.0, "rope_theta": 1.6e5}
    plain = {"rope_type": "default", "rope_theta": 1e4}
    new = DEEPSEEK_V4 | {
        "rope_scaling": None,
        "rope_parameters": {"main": plain, "compress": yarn},
    }
    for group, names in GROUPS.items():
        want = relpos.rotary_from_config(DEEPSEEK_V4, layer_type=group)
        for name in names:
            same(relpos.rotary_from_config(new, layer_type=name), want)
    told = DEEPSEEK_V4 | {"rope_scaling": {"type": "yarn", "factor": 4.0}}
    told["rope_scaling"]["attention_factor"] = 1.5
    assert relpos.rotary_from_config(told, layer_type="compress").magnitude == 1.5
    assert relpos.rotary_from_config(told, layer_type="main").magnitude == 1.0
    wider = DEEPSEEK_V4 | {"partial_rotary_factor": 0.25}
    del wider["qk_rope_head_dim"]
    assert relpos.rotary_from_config(wider, layer_type="main").rotary_dim == 128


LLAMA = {**SIZES, "model_type": "llama", "rope_theta": 1e4}


@pytest.mark.parametrize(
    "key", ["rope_ratio", "theta_of_all", "base_frequency", "my_scaling_factor"]
)
@pytest.mark.parametrize("value", [2, 0.5, [1.0, 2.0], np.int64(2)])
def test_a_numeric_key_of_an_unknown_meaning(key, value):
    """Refused by name for a type that is known; of another type relpos knows none."""
    with pytest.raises(ValueError, match=f"^config: got {key} = .* in llama is not"):
        relpos.rotary_from_config(LLAMA | {key: value})
    want = relpos.rotary_from_config(LLAMA)
    for other in ({"model_type": "baichuan"}, {"model_type": None}):
        same(relpos.rotary_from_config(LLAMA | {key: value} | other), want)
    for harmless in (None, True, "text", {"a": 1}):
        same(relpos.rotary_from_config(LLAMA | {key: harmless}), want)


def test_keys_that_concern_something_else():
    want = relpos.rotary_from_config(LLAMA)
    for key in ("routed_scaling_factor", "logits_scaling", "base_channels"):
        same(relpos.rotary_from_config(LLAMA | {key: 2.5}), want)


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("rope", "key"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "attn_factor": 2.0}, "attn_factor"),
        ({"rope_type": "yarn", "factor": 4.0, "alpha": 2.0}, "alpha"),
        ({"rope_type": "linear", "factor": 4.0, "beta_fast": 2}, "beta_fast"),
        ({"rope_type": "linear", "factor": 4.0, "attention_factor": 2.0}, "attention"),
        ({"rope_type": "default", "factor": 4.0}, "factor"),
        ({"rope_type": "default", "sections": "two"}, "sections"),
        ({"rope_type": "llama3", **LLAMA3, "mscale": 1.0}, "mscale"),
        ({"rope_type": "dynamic", "factor": 2.0, ORIGINAL: 9}, ORIGINAL),
        ({"rope_type": "yarn", "factor": 2.0, "seq_len": 9}, "seq_len"),
    ],
)
def test_a_key_of_the_rope_that_no_formula_reads(spelling, rope, key):
    with pytest.raises(ValueError, match=f"^config: its rope_parameters have {key}.*"):
        relpos.rotary_from_config(LLAMA | {spelling: rope})
    nested = {"full_attention": {"rope_theta": 1e4, **rope}}
    with pytest.raises(ValueError, match=f"^config: its rope_parameters have {key}.*"):
        relpos.rotary_from_config(
            LLAMA | {spelling: nested}, layer_type="full_attention"
        )
    relpos.rotary_from_config(LLAMA | {spelling: rope, "model_type": "another"})


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": 0.1},
        {"rope_type": "yarn", "type": "deepseek_yarn", "factor": 4.0},
        {"type": "yarn", "factor": 4.0, "finetuned": True, "attn_factor": None},
        {"rope_type": "default", "type": "mrope", "mrope_section": [16, 8, 8]},
        {"type": "linear", "factor": 4.0, ORIGINAL: 1024},
        {"type": "dynamic", "alpha": 9.0, "factor": 1.0, "beta_fast": 32, "mscale": 1},
    ],
)
def test_keys_of_the_rope_that_files_have(rope):
    got = relpos.rotary_from_config(LLAMA | {"rope_scaling": rope})
    other = relpos.rotary_from_config(
        LLAMA | {"rope_scaling": rope, "model_type": "another"}
    )
    same(got, other)


def test_a_base_for_each_layer():
    config = {**LLAMA, "model_type": "granite_swa", "rope_theta": 7.0}
    config["layer_types"] = ["full_attention", "sliding_attention"] * 2
    for bases, layer_type, base in (
        ([5e4, 5e4, 5e4, 5e4], None, 5e4),
        ([5e4, 0, 5e4, 0], None, 5e4),
        ([0, 5e4, 0, 5e4], "sliding_attention", 5e4),
        ([1e4, 5e4, 1e4, 5e4], "sliding_attention", 5e4),
        ([1e4, 5e4, 1e4, 5e4], "full_attention", 1e4),
    ):
        keys = config | {"layer_rope_theta": bases}
        rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 3.0}}
        for given in (keys, keys | rope):
            got = relpos.rotary_from_config(given, layer_type=layer_type)
            assert_bitwise(got.inv_freq, relpos.rotary_frequencies(64, base=base))
    for bases, layer_type in (
        ([1e4, 5e4, 1e4, 5e4], None),
        ([0, 5e4, 0, 5e4], "full_attention"),
        ([1e4, 5e4, 2e4, 5e4], "full_attention"),
        ([[1], "a", {}, None], None),
    ):
        with pytest.raises(ValueError, match=r"got layer_rope_theta = .*; expected"):
            relpos.rotary_from_config(
                config | {"layer_rope_theta": bases}, layer_type=layer_type
            )


def test_layers_that_are_scaled():
    scaling = {"type": "linear", "factor": 4.0}
    config = LLAMA | {"model_type": "molmo2_text", "num_hidden_layers": 3}
    config["head_dim"] = 64
    some = config | {"rope_scaling_layers": [0, 2]}
    same(relpos.rotary_from_config(some), relpos.rotary_from_config(config))
    with pytest.raises(ValueError, match=r"got rope_scaling_layers = .*; expected all"):
        relpos.rotary_from_config(some | {"rope_scaling": scaling})
    every = config | {"rope_scaling": scaling, "rope_scaling_layers": [2, 0, 1]}
    got = relpos.rotary_from_config(every)
    assert_bitwise(got.inv_freq, relpos.rotary_frequencies(64) / 4)


def test_a_base_of_dots_3_notes_sliding_layers():
    """A base of its own, with a default, that no scaling goes with."""
    config = {"model_type": "dots3_note_text", "rope_theta": 8e7, "head_dim": 256}
    for keys, base in (({}, 5e4), ({"swa_rope_theta": 7e4}, 7e4)):
        for layer_type, want in (
            ("sliding_attention", base),
            ("indexed_attention", 8e7),
        ):
            given = config | keys | {"layer_types": ["indexed_attention"]}
            got = relpos.rotary_from_config(given, layer_type=layer_type)
            assert_bitwise(got.inv_freq, relpos.rotary_frequencies(64, base=want))
    scaled = {"swa_rope_theta": 7e4, "rope_scaling": {"type": "linear", "factor": 2.0}}
    with pytest.raises(ValueError, match=r"got swa_rope_theta = 70000\.0; expected no"):
        relpos.rotary_from_config(config | scaled, layer_type="sliding_attention")


@pytest.mark.parametrize(
    ("keys", "pattern"),
    [
        ({"rotary_emb_base": 5e4}, "got rope_theta = 10000.0, rotary_emb_base = 50000"),
        (
            {"local_rope_theta": 1.0, "rope_local_base_freq": 2.0},
            "got rope_local_base_freq = 2.0, local_rope_theta = 1.0; expected one",
        ),
        (
            {
                "rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_theta": 1e6},
            },
            "its rope_scaling and its rope_parameters differ",
        ),
        (
            {"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2.0}},
            "its rope_type is 'yarn', and its type 'linear'",
        ),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 1e4},
                    "attn_factor": 2.0,
                }
            },
            "its rope_parameters have attn_factor = 2.0",
        ),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 1e4},
                    "rope_type": "linear",
                    "factor": 2.0,
                }
            },
            "its rope_parameters have factor = 2.0 next to those of each type of layer",
        ),
    ],
)
def test_keys_that_contradict_each_other(keys, pattern):
    with pytest.raises(ValueError, match=f"^config: {pattern}"):
        relpos.rotary_from_config(LLAMA | keys, layer_type="full_attention")


def test_equal_spellings_of_one_base():
    want = relpos.rotary_from_config(LLAMA)
    for name in ("rotary_emb_base", "global_rope_theta", "theta"):
        same(relpos.rotary_from_config(LLAMA | {name: 10000}), want)
        same(relpos.rotary_from_config(LLAMA | {"rope_theta": None, name: 1e4}), want)


def test_a_base_beside_the_dicts_of_layers():
    rope = {"full_attention": {"rope_type": "default"}, "rope_theta": 5e4}
    config = LLAMA | {"rope_parameters": rope | {"partial_rotary_factor": 0.5}}
    got = relpos.rotary_from_config(config, layer_type="full_attention")
    assert_bitwise(got.inv_freq, relpos.rotary_frequencies(32, base=5e4))


@pytest.mark.parametrize(
    "wide",
    [
        {"global_head_dim": 128},
        {
            "layer_types": ["sliding_attention", "full_attention"],
            "per_layer_config": {"01": {"head_dim": 128}},
        },
    ],
)
def test_heads_that_are_wider_where_attention_is_full(wide):
    rope = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
    ropes = {"full_attention": rope, "sliding_attention": {"rope_theta": 1e4}}
    config = {"head_dim": 64, "rope_parameters": ropes, "rope_theta": 1e6, **wide}
    found = relpos.rotary_from_config(config, layer_type="full_attention")
    assert found.rotary_dim == 128 and (found.inv_freq > 0).sum() == 16
    plain = relpos.rotary_frequencies(128, base=1e6)
    assert_bitwise(found.inv_freq[:16], plain[:16])
    found = relpos.rotary_from_config(config, layer_type="sliding_attention")
    assert_bitwise(found.inv_freq, relpos.rotary_frequencies(64))


def test_phi():
    """Its name for longrope, lengths outside the dict, and Phi-3.5-MoE's magnitudes."""
    long = {"type": "su", **FACTORS}
    config = {**SIZES, ORIGINAL: 1024, "rope_theta": 1e4, "rope_scaling": long}
    want, seq_len = config_of("longrope, long")
    for kind in ("su", "yarn"):
        config["rope_scaling"] = {**long, "type": kind}
        same(
            relpos.rotary_from_config(config, seq_len=seq_len),
            relpos.rotary_from_config(want, seq_len=seq_len),
        )
    config["rope_scaling"] = {**long, "short_mscale": 1.25, "long_mscale": 1.5}
    for length, magnitude in ((None, 1.25), (1024, 1.25), (1025, 1.5)):
        found = relpos.rotary_from_config(config, seq_len=length)
        assert found.magnitude == magnitude


def test_hunyuan():
    """A dynamic scaling by a fixed factor."""
    rope = {"rope_type": "dynamic", "factor": 1.0, "alpha": 1000.0}
    found = relpos.rotary_from_config({**PLAIN, "rope_scaling": rope}, seq_len=9)
    want = relpos.rotary_frequencies(64, scaling=("ntk", 1000.0))
    assert_bitwise(found.inv_freq, want)


@pytest.mark.parametrize(
    ("keys", "interleaved"),
    [
        ({"model_type": "llama"}, False),
        ({"model_type": "gptj"}, True),
        ({"model_type": "cohere2"}, True),
        ({"model_type": "deepseek_v3"}, True),
        ({"model_type": "kimi_k2"}, True),
        ({"model_type": "hy_v4"}, False),
        ({"model_type": "hy_v4_vl_text"}, True),
        ({"model_type": "deepseek_v3", "rope_interleave": False}, False),
        ({"rope_interleave": True}, True),
        ({"model_type": "openai_privacy_filter"}, True),
        ({"model_type": "pe_audio_encoder"}, True),
        ({"model_type": "pe_audio_video_encoder"}, True),
        ({"model_type": "pe_video_encoder"}, True),
    ],
)
def test_which_columns_are_pairs(keys, interleaved):
    assert relpos.rotary_from_config(PLAIN | keys).interleaved is interleaved


@pytest.mark.parametrize(
    "keys",
    [
        {"model_type": "minimax_m2", "partial_rotary_factor": 0.25},
        {"model_type": "gpt_neox", "partial_rotary_factor": 0.25, "rotary_pct": 0.25},
        {"model_type": "gpt_neox", "rotary_dim": 16},
        {"model_type": "nemotron", "rope_percent": 0.25},
        {"model_type": "nemotron", "rope_percentage": 0.25},
        {"model_type": "stablelm_epoch", "rope_pct": 0.25},
        {"model_type": "glm4", "rope_pct": 0.25},
    ],
)
def test_a_part_that_is_said_replaces_the_default(keys):
    assert relpos.rotary_from_config(PLAIN | keys).rotary_dim == 16


def test_minimax_m2_rotates_whole_heads_by_default():
    config = PLAIN | {"model_type": "minimax_m2"}
    assert relpos.rotary_from_config(config).rotary_dim == 64
    config |= {"rotary_dim": 32, "partial_rotary_factor": 0.5}
    assert relpos.rotary_from_config(config).rotary_dim == 32
    with pytest.raises(ValueError, match=r"rotary_dim is 32, and 0\.25 of 64 columns"):
        relpos.rotary_from_config(config | {"partial_rotary_factor": 0.25})


def test_the_same_scaling_in_two_spellings():
    """Only one of them may say the base, and the order of keys says nothing."""
    yarn = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 4096}
    config = PLAIN | {"model_type": "qwen3", "rope_scaling": yarn}
    both = {"rope_theta": 10000, **dict(reversed(yarn.items()))}
    found = relpos.rotary_from_config(config | {"rope_parameters": both})
    assert_bitwise(found.inv_freq, relpos.rotary_from_config(config).inv_freq)
    with pytest.raises(ValueError, match="its rope_parameters differ"):
        relpos.rotary_from_config(
            config | {"rope_parameters": both | {"rope_theta": 5e5}}
        )


def test_the_case_of_a_key_says_nothing():
    with pytest.raises(ValueError, match="got Rope_Theta = 5; expected no such key"):
        relpos.rotary_from_config(PLAIN | {"model_type": "llama", "Rope_Theta": 5})


def test_parts_that_differ():
    keys = {"model_type": "gpt_neox", "rotary_pct": 0.5, "partial_rotary_factor": 1.0}
    with pytest.raises(ValueError, match=r"rotary_pct = 0\.5; expected one"):
        relpos.rotary_from_config(PLAIN | keys)


@pytest.mark.parametrize("kind", ["exaone4", "exaone_moe", "kolibri1"])
def test_full_layers_rotate_where_no_layer_has_a_window(kind):
    """As in EXAONE 4.0 of 1.2B, whose sliding_window is null."""
    config = {**PLAIN, "model_type": kind, "sliding_window": None}
    found = relpos.rotary_from_config(config, layer_type="full_attention")
    assert_bitwise(found.inv_freq, relpos.rotary_frequencies(64))
    with pytest.raises(ValueError, match=f"without a rotary encoding in {kind}"):
        relpos.rotary_from_config(
            config | {"sliding_window": 128}, layer_type="full_attention"
        )


# ---- the transformers package --------------------------------------------------------


SCALED = [n for n, (rope, _) in ROPES.items() if rope["rope_type"] != "default"]


@pytest.mark.torch
@pytest.mark.parametrize("name", SCALED)
def test_every_rotary_type_of_transformers(name):
    """Flat, and for one of two types of layers; frequencies there are float32."""
    found = transformers()
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config, seq_len = config_of(name, 5e5)
    rope = config["rope_parameters"]
    assert {*ROPE_INIT_FUNCTIONS} <= {r["rope_type"] for r, _ in ROPES.values()}
    theirs = found.LlamaConfig(**config)
    want, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](theirs, "cpu", seq_len)
    nested = {"full_attention": rope, "sliding_attention": {"rope_type": "default"}}
    for given, layer_type in (
        (config, None),
        (theirs, None),
        (theirs.to_dict(), None),
        ({**config, "rope_parameters": nested}, "full_attention"),
    ):
        got = relpos.rotary_from_config(given, layer_type=layer_type, seq_len=seq_len)
        np.testing.assert_allclose(got.inv_freq, want, rtol=1e-5)
        assert got.magnitude == pytest.approx(factor, rel=1e-12)


KINDS = {
    "gemma3_text": "Gemma3Text",
    "gemma3n_text": "Gemma3nText",
    "modernbert": "ModernBert",
    "modernbert-decoder": "ModernBertDecoder",
    "t5gemma2_text": "T5Gemma2Text",
}


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 8.0}])
def test_keys_that_transformers_fills_in(kind, scaling):
    config = {**SIZES, "rope_scaling": scaling}
    theirs = getattr(transformers(), f"{KINDS[kind]}Config")(**config)
    for layer_type in ("full_attention", "sliding_attention"):
        given = {"model_type": kind, **config}
        got = relpos.rotary_from_config(given, layer_type=layer_type)
        want = relpos.rotary_from_config(theirs, layer_type=layer_type)
        same(got, want)


@pytest.mark.torch
@pytest.mark.parametrize(
    "module", ["llama", "phi3", "cohere", "glm4", "ernie4_5", "nanochat"]
)
def test_pairs_of_transformers(module):
    """Half of the columns apart, or neighbours: by the functions that rotate them."""
    transformers()
    import torch

    there = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    config = PLAIN | {"head_dim": 8, "model_type": module, "partial_rotary_factor": 1.0}
    rotary = relpos.rotary_from_config(config)
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 8))
    angles = np.arange(5)[:, None] * relpos.rotary_frequencies(8)
    if module == "cohere":  # gives each pair's angle twice in a row
        angles = np.repeat(angles, 2, axis=-1)
    else:
        angles = np.concatenate([angles, angles], axis=-1)
    waves = (
        torch.from_numpy(np.cos(angles)[None]),
        torch.from_numpy(np.sin(angles)[None]),
    )
    want, _ = there.apply_rotary_pos_emb(
        torch.from_numpy(x), torch.from_numpy(x), *waves
    )
    got = relpos.apply_rotary(x, **rotary._asdict())
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


# ---- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "error", "pattern"), BAD)
def test_bad_input(changes, error, pattern):
    keys = dict(changes)
    options = {n: keys.pop(n) for n in ("layer_type", "seq_len") if n in keys}
    config = keys.pop("config", PLAIN | keys)
    with pytest.raises(error, match=pattern):
        relpos.rotary_from_config(config, **options)
