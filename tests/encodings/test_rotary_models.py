"""rotary_from_config: every configuration class of transformers that rotates."""

from __future__ import annotations

import contextlib
import importlib

import numpy as np
import oracle_rotary_config as oracle
import pytest
from hugging_rotary import (
    configurations,
    fields,
    layer_types,
    made,
    rotary,
    transformers,
)

import relpos
from relpos._encodings import rotary_config, rotary_models
from relpos._encodings.rotary_models import models

pytestmark = pytest.mark.torch

#: Types of models by what their rows say.
KNOWN = {kind for kind, model in models().items() if model.checked}
OF_GRIDS = {kind for kind, model in models().items() if model.grid}
BASE_10000 = {kind for kind, model in models().items() if model.base == 10000}
ORIGINAL = "original_max_position_embeddings"
BASE = 2e4
#: Values of ``rope_scaling``, next to a base, as most files of config.json have them.
FLAT = {
    "none": None,
    "yarn": {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 1024},
    "linear": {"rope_type": "linear", "factor": 8.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        ORIGINAL: 512,
    },
}
#: Types that have another name for the base.
BASE_NAMES = {
    "gpt_neox": "rotary_emb_base",
    "gpt_neox_japanese": "rotary_emb_base",
    "modernbert": "global_rope_theta",
    "modernbert-decoder": "global_rope_theta",
}
#: Types whose class has rotary parameters of its own, which replace a base that is
#: given next to ``"rope_scaling": null``. relpos takes the base that is given.
REPLACED = set(
    """apertus apertus1p5_text cosmos3_edge_text cwm dory gpt_oss higgs_audio_v2 lfm3
    ministral3 mistral4 mistral_large4_text moonshine_streaming
    nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp
    muse_spark_text openai_privacy_filter""".split()  # noqa: SIM905
)
#: Differences that are transformers' own, with their reasons.
OWN = {
    **{(kind, "none"): "the class has rotary parameters" for kind in REPLACED},
    **{
        ("olmo3", case): "takes the base once, for full layers, and sliding ones have "
        "the default"
        for case in FLAT
    },
    ("neomme", "none"): "loses the rotary parameters where rope_scaling is null",
}
#: Types with the base 10000 that are not listed as such, with their reasons.
NOT_LISTED = {
    **dict.fromkeys(
        ("hy_v4_vl_text", "lara_mini", "sarvam_mla"), "not in transformers 5.23"
    ),
    **dict.fromkeys(
        REPLACED - BASE_10000, "a part of the columns, unless there is a scaling"
    ),
}
#: Keys of models without rotary parameters that rotate by something else: by positions
#: in a molecule, or by relative distances of a convolution's output.
OTHER_ROTATIONS = {
    "num_spatial_rope_pairs_per_axis",
    "num_uid_rope_pairs",
    "rotary_embedding_base",
    "spatial_rope_base_frequency",
    "uid_rope_base_frequency",
}


def flat_of(kind, case):
    """Return the settings of a class in the flat spelling."""
    name = BASE_NAMES.get(kind.model_type, "rope_theta")
    return {name: BASE, "rope_scaling": FLAT[case]}


def as_file(kind, flat):
    """Return the content of a config.json: all sizes, and the flat settings."""
    whole = kind().to_dict()
    for name in ("rope_parameters", "rope_theta", "layer_rope_theta"):
        whole.pop(name, None)
    return {**whole, "model_type": kind.model_type, **flat}


def read(config, layer_type):
    """Return the rotary parameters, or the error's text."""
    try:
        return relpos.rotary_from_config(config, layer_type=layer_type)
    except ValueError as error:
        return str(error)


def equal(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return np.array_equal(one.inv_freq, other.inv_freq) and one[1:] == other[1:]


def check_oracle(got, theirs, layer_type):
    """Compare with the wavelengths of what the class itself has."""
    said = theirs.to_dict()
    rope = said["rope_parameters"] or {"rope_type": "default"}
    rope = rope if layer_type is None else rope[layer_type]
    config = {
        "head_dim": got.rotary_dim,
        "max_position_embeddings": said.get("max_position_embeddings"),
        "rope_parameters": {"rope_theta": said.get("rope_theta"), **rope},
    }
    want = oracle.rotary_from_config(config)
    np.testing.assert_allclose(
        abs(got.inv_freq), want.inv_freq, rtol=1e-12, err_msg=said["model_type"]
    )
    assert got.magnitude == pytest.approx(want.magnitude, rel=1e-12)


@pytest.mark.parametrize("case", FLAT)
def test_the_flat_spelling_of_every_class(case):
    """A class that is given it has the rotation that relpos reads from it."""
    differ, compared = set(), 0
    for kind in rotary().values():
        flat = flat_of(kind, case)
        theirs = made(kind, **flat)
        if theirs is None or kind.model_type in OF_GRIDS:
            continue
        for layer_type in layer_types(theirs):
            want = read(theirs, layer_type)
            got = read(as_file(kind, flat), layer_type)
            if not equal(got, want):
                differ.add((kind.model_type, case))
            elif not isinstance(got, str):
                compared += 1
                check_oracle(got, theirs, layer_type)
    present = {kind.model_type for kind in rotary().values()}
    assert differ == {(kind, x) for kind, x in OWN if x == case and kind in present}
    assert compared > 150


#: Types whose own module differs, with reasons.
OTHER_MODULES = {
    "ernie4_5_vl_moe_text": "has the frequencies in another order, for its sections",
    "minimax_m3_vl_text": "reads no rotary_dim, and published files say both",
}


def module_frequencies(config, layer_type):
    """Return the frequencies and magnitudes of the modules of a class for a layer."""
    name = type(config).__module__.replace("configuration_", "modeling_")
    try:
        there = importlib.import_module(name)
    except ModuleNotFoundError:  # of a type that shares the model of another
        return []
    found, prefix = [], "" if layer_type is None else f"{layer_type}_"
    for label, kind in vars(there).items():
        if not label.endswith("RotaryEmbedding") or "Vision" in label:
            continue
        with contextlib.suppress(Exception):  # of modules that take other arguments
            module = kind(config)
            magnitude = getattr(module, f"{prefix}attention_scaling")
            found.append((getattr(module, f"{prefix}inv_freq").numpy(), magnitude))
    return found


def test_the_module_of_every_class():
    """By default, the frequencies are those that the model itself computes."""
    differ, compared = set(), 0
    for kind in rotary().values():
        config = made(kind)
        if config is None or kind.model_type in OF_GRIDS:
            continue
        for layer_type in layer_types(config):
            got, want = read(config, layer_type), module_frequencies(config, layer_type)
            if isinstance(got, str) or not want:
                continue
            compared += 1
            if not any(
                freq.shape == got.inv_freq.shape
                and np.allclose(freq, abs(got.inv_freq), rtol=2e-5, atol=0)
                and got.magnitude == pytest.approx(magnitude)
                for freq, magnitude in want
            ):
                differ.add(kind.model_type)
    present = {kind.model_type for kind in rotary().values()}
    assert differ == OTHER_MODULES.keys() & present
    assert compared > 150


ROTARY_MODULES = {
    "llama": "Llama",
    "gpt_neox": "GPTNeoX",
    "phi": "Phi",
    "phi3": "Phi3",
    "stablelm": "StableLm",
    "persimmon": "Persimmon",
    "qwen2": "Qwen2",
    "qwen3_next": "Qwen3Next",
    "gpt_oss": "GptOss",
    "deepseek_v3": "DeepseekV3",
    "cohere2": "Cohere2",
    "glm4": "Glm4",
    "gemma3": "Gemma3",
    "gemma4": "Gemma4Text",
    "modernbert": "ModernBert",
    "olmo3": "Olmo3",
    "llama4": "Llama4Text",
    "zamba2": "Zamba2",
    "moonshine": "Moonshine",
}


@pytest.mark.parametrize("module", ROTARY_MODULES)
def test_the_modules_of_some_models(module):
    """By default, the frequencies are those of the module, also from its dict."""
    transformers()
    there = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    kind = getattr(there, f"{ROTARY_MODULES[module]}RotaryEmbedding")
    config = kind.__init__.__annotations__["config"]
    if isinstance(config, str):  # a name of the module
        config = getattr(there, config)
    config = config()
    rotary = kind(config)
    types = getattr(rotary, "layer_types", None)
    for layer_type in sorted(types or [None]):
        before = "" if layer_type is None else f"{layer_type}_"
        for given in (config, config.to_dict()):
            got = relpos.rotary_from_config(given, layer_type=layer_type)
            want = getattr(rotary, f"{before}inv_freq")
            np.testing.assert_allclose(got.inv_freq, want, rtol=2e-5)
            assert got.magnitude == getattr(rotary, f"{before}attention_scaling")


def test_types_without_a_base():
    """A class without a base has 10000 for those of the list, and for no others."""
    plain = set()
    for kind in rotary().values():
        theirs = made(kind, rope_scaling=None)
        if theirs is None or kind.model_type in OF_GRIDS:
            continue
        rope = theirs.to_dict()["rope_parameters"] or {}
        if rope.get("rope_theta") == 10000 and rope.get("rope_type") == "default":
            plain.add(kind.model_type)
        file = as_file(kind, {"rope_scaling": None})
        for layer_type in layer_types(theirs):
            got = read(file, layer_type)
            if kind.model_type in BASE_10000:
                assert equal(got, read(theirs, layer_type)), kind
            elif not isinstance(got, str):
                assert kind.model_type in WITH_DEFAULTS
                assert equal(got, read(theirs, layer_type)), kind
    present = {kind.model_type for kind in configurations().values()}
    assert plain - BASE_10000 <= NOT_LISTED.keys()
    assert (BASE_10000 & present) - plain <= {"codegen", "cohere2_moe", "gptj"}
    for name in ("CodeGen", "Cohere2Moe", "GPTJ"):  # without rotary parameters
        kind = configurations()[f"{name}Config"]
        assert getattr(kind(), "rope_theta", 10000) == 10000


#: Types with a base for each type of layer that relpos knows.
WITH_DEFAULTS = {
    "deepseek_v4",
    "dots3_note_text",
    "gemma3_text",
    "gemma3n_text",
    "modernbert",
    "modernbert-decoder",
    "t5gemma2_decoder",
    "t5gemma2_text",
}


def test_each_type_has_a_row():
    types = {kind.model_type for kind in rotary().values()}
    assert types <= KNOWN | OF_GRIDS
    axial = {
        kind.model_type
        for kind in rotary().values()
        if getattr(kind, "default_rope_type", None) == "axial"
    }
    assert axial <= OF_GRIDS


def test_each_numeric_key_is_read_or_concerns_something_else():
    """In all classes; those with rotary parameters have no other rotation."""
    known = rotary_config._READ | rotary_models.UNRELATED
    met = set()
    for kind in configurations().values():
        said = {name: getattr(kind, name, None) for name in fields(kind)}
        config = made(kind)
        said |= config.to_dict() if config is not None else {}
        keys = {
            name
            for name, value in said.items()
            if any(word in name for word in rotary_models.ROTARY_WORDS)
            and rotary_config._is_numeric(value)
        }
        met |= keys
        if kind.model_type in KNOWN:
            assert keys <= known, kind
    assert met <= known | OTHER_ROTATIONS
    assert met >= rotary_models.UNRELATED


def test_what_a_class_has_is_never_refused_by_its_key():
    for kind in rotary().values():
        config = made(kind)
        if config is not None and kind.model_type not in OF_GRIDS:
            for layer_type in layer_types(config):
                found = read(config, layer_type)
                assert not isinstance(found, str) or not any(
                    text in found for text in ("does not read", "no such key", "differ")
                ), found
