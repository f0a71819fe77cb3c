"""Names that people try in relpos are answered with what they look for."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from operator import attrgetter

import numpy as np
import pytest

import relpos
from relpos import nn
from relpos._schemes import SCHEMES
from relpos._suggestions import ALONE, TRIED, suggestion

NAMES = [name for names in TRIED.values() for name in names.split()]

#: Of deep-learning users; in other spellings, too.
SOUGHT = {
    "rope": "relpos.apply_rotary",
    "RoPE": "relpos.apply_rotary",
    "rotary": "relpos.apply_rotary",
    "rotary_embedding": "relpos.apply_rotary",
    "RotaryEmbedding": "relpos.apply_rotary",
    "apply_rotary_pos_emb": "relpos.apply_rotary",
    "yarn": "relpos.rotary_frequencies",
    "ntk": "relpos.rotary_frequencies",
    "xpos": "relpos.xpos_magnitude",
    "alibi": "relpos.alibi_bias",
    "ALiBi": "relpos.alibi_bias",
    "t5": "relpos.recipes.t5",
    "t5_attention": "relpos.recipes.t5",
    "relative_position_bias": "relpos.t5_bias",
    "deberta": "relpos.recipes.deberta",
    "bert": "relpos.recipes.bert",
    "swin": "relpos.recipes.swin",
    "botnet": "relpos.recipes.botnet",
    "xlnet": "relpos.recipes.xlnet",
    "shaw": "relpos.shaw_attention",
    "music": "relpos.relative_global_attention",
    "music_transformer": "relpos.relative_global_attention",
    "transformer_xl": "relpos.transformer_xl_attention",
    "TransformerXL": "relpos.transformer_xl_attention",
    "conformer": "relpos.nn.ConformerRelPositionAttention",
    "kerple": "relpos.kerple_bias",
    "fire": "relpos.fire_attention",
    "graph": "relpos.graph_attention",
    "merge": "relpos.merge_attention",
    "scaled_dot_product_attention": "relpos.attention",
    "sdpa": "relpos.attention",
    "flash_attention": "relpos.attention",
    "flex_attention": "relpos.attention",
    "multihead_attention": "relpos.attention",
    "MultiheadAttention": "relpos.attention",
    "sinusoidal_encoding": "relpos.sinusoidal",
    "positional_encoding": "relpos.sinusoidal",
    "PositionalEncoding": "relpos.sinusoidal",
    "peg": "relpos.conv_encoding",
    "cpe": "relpos.conv_encoding",
    "wav2vec2": "relpos.nn.ConvPositionEmbedding",
    "ShawAttention": "relpos.nn.ShawAttention",
    "PyTorch": "relpos.torch",
    "backward": "relpos.AttentionContext.backward",
    "gemma": "relpos.recipes.gemma2",
    "RelativeMultiheadAttention": "relpos.torch.nn.RelativeMultiheadAttention",
    "check": "relpos.diagnose",
    "replace_attention": "relpos.torch.replace_attention",
}

TORCH_LAYER = 'relpos.torch.nn.RelativeMultiheadAttention(position="{}")'

#: In modules of relpos: a name of the same module, where it has one.
IN_MODULES = {
    "torch.scaled_dot_product_attention": "relpos.torch.attention",
    "torch.rope": "relpos.torch.apply_rotary",
    "torch.unskew": "relpos.unskew",
    "torch.nn.MultiheadAttention": "relpos.torch.nn.RelativeMultiheadAttention",
    "sharded.sdpa": "relpos.sharded.attention",
    "nn.RelativeMultiheadAttention": "relpos.torch.nn.RelativeMultiheadAttention",
    "nn.skew": "relpos.skew",
    "reference.rope": "relpos.reference.apply_rotary",
    "recipes.gemma": "relpos.recipes.gemma2",
    "plot.heatmap": "relpos.plot.attention_map",
    "data.compare": "relpos.compare",
    "data.bach": "relpos.data.chorales",
    "recipes.llama": "relpos.rotary_from_config and relpos.apply_rotary",
    "recipes.mistral": "relpos.rotary_from_config and relpos.apply_rotary",
    "recipes.bloom": "relpos.alibi_bias",
    "plot.positional_encoding": "relpos.plot.encoding_map",
    "plot.alibi": "relpos.plot.bias_by_distance",
    "plot.t5": "relpos.plot.bias_by_distance",
    "plot.rope": "relpos.plot.rotary_wheel",
    "plot.shaw": "relpos.plot.fingerprint",
    "plot.fire": "relpos.plot.fingerprint",
    "plot.graph": "relpos.plot.attention_graph",
    "plot.softcap": "relpos.plot.attention_map",
    "plot.skew": "relpos.plot.skew_steps",
    "nn.Attention": "relpos.nn.MultiheadAttention",
    "nn.MultiHeadAttention": "relpos.nn.MultiheadAttention",
    "nn.T5Attention": 'relpos.nn.MultiheadAttention(position="t5")',
    "nn.t5": "relpos.nn.T5Bias",
    "nn.RotaryEmbedding": "relpos.nn.Rotary",
    "nn.PositionalEncoding": "relpos.nn.SinusoidalEncoding",
    "nn.TransformerEncoder": "relpos.nn.TransformerLayer",
    "nn.deberta": "relpos.recipes.deberta",
    "torch.nn.Attention": "relpos.torch.nn.RelativeMultiheadAttention",
    "torch.nn.T5Attention": TORCH_LAYER.format("t5"),
    "torch.nn.ALiBi": TORCH_LAYER.format("alibi"),
    "torch.nn.ShawRelativeAttention": TORCH_LAYER.format("shaw"),
    "torch.nn.deberta": TORCH_LAYER.format("deberta"),
}


@pytest.mark.parametrize("name", SOUGHT)
def test_what_is_sought(name):
    with pytest.raises(AttributeError) as caught:
        getattr(relpos, name)
    assert str(caught.value) == (
        f"module 'relpos' has no attribute {name!r}; did you mean {SOUGHT[name]}?"
    )


@pytest.mark.parametrize("name", IN_MODULES)
def test_what_is_sought_in_a_module(name):
    module, _, last = name.rpartition(".")
    needed = {"torch": "torch", "sharded": "dask"}.get(module.partition(".")[0])
    if needed:
        pytest.importorskip(needed)
    room = attrgetter(module)(relpos)
    with pytest.raises(AttributeError) as caught:
        getattr(room, last)
    problem = f"module {room.__name__!r} has no attribute {last!r}"
    assert str(caught.value) == f"{problem}; did you mean {IN_MODULES[name]}?"
    with pytest.raises(AttributeError, match=r"no attribute '_frobnicate'$"):
        _ = room._frobnicate


CACHES = [
    (relpos.KVCache, "update", "append"),
    (relpos.KVCache, "get_seq_length", "lengths"),
    (relpos.KVCache, "key_cache", "key"),
    (nn.KVCaches, "reorder_cache", "reorder"),
]


@pytest.mark.parametrize(("kind", "name", "there"), CACHES)
def test_what_is_sought_in_a_cache(kind, name, there):
    cache = kind()
    with pytest.raises(AttributeError) as caught:
        getattr(cache, name)
    wanted = f"{kind.__name__!r} object has no attribute {name!r}"
    assert str(caught.value) == f"{wanted}; did you mean {kind.__name__}.{there}?"
    assert hasattr(kind, there) and not hasattr(cache, name)
    with pytest.raises(AttributeError, match=r"no attribute 'frobnicate'$") as caught:
        cache.frobnicate  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("frobnicate", cache)
    for other in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        assert type(other) is kind and len(other) == 0


@pytest.mark.parametrize("there", TRIED)
def test_every_suggestion_is_there(there):
    if there.partition(".")[0] == "torch":
        pytest.importorskip("torch")
    assert attrgetter(there)(relpos) is not None


def test_each_name_is_tried_for_one_thing_and_is_nothing_itself():
    plain = [name.lower().replace("_", "") for name in NAMES]
    assert sorted(plain) == sorted({*plain})
    assert [name for name in NAMES if hasattr(relpos, name)] == []
    assert all(suggestion(name) for name in NAMES)


def test_names_of_the_catalogue_are_known_and_not_repeated():
    """A name that is found without `TRIED` is not repeated there."""
    called = {name: s for s in SCHEMES for name in (s.name, *s.synonyms)}
    for name in called.keys() - {*NAMES, *dir(relpos)}:
        assert suggestion(name) == f"relpos.{called[name].functions[0]}"
    functions = {name for s in SCHEMES for name in s.functions}
    assert functions.isdisjoint(ALONE.split())
    pairs = [(name, there) for there, names in TRIED.items() for name in names.split()]
    own = [name for name, there in pairs if there.endswith(f".{name}")]
    assert own == [
        "RelativeGlobalAttention",
        "ShawAttention",
        "RelativeMultiheadAttention",
    ]  # as functions are called


def test_public_names_of_submodules_are_known():
    """Whoever forgets the submodule is told which."""
    names = [*relpos.recipes.__all__, *{*relpos.plot.__all__} - {*dir(relpos)}]
    names += [
        name
        for name, thing in vars(relpos.nn).items()
        if isinstance(thing, type) and issubclass(thing, relpos.nn.Module)
    ]
    assert [name for name in names if suggestion(name) is None] == []


@pytest.mark.parametrize("name", ["frobnicate", "softmax", "_rows", "__wrapped__"])
def test_other_names_get_the_plain_error(name):
    with pytest.raises(AttributeError) as caught:
        getattr(relpos, name)
    assert str(caught.value) == f"module 'relpos' has no attribute {name!r}"
    assert caught.value.name == name and caught.value.obj is relpos


def test_everything_that_asks_for_attributes_goes_on_as_ever():
    assert not hasattr(relpos, "rope") and getattr(relpos, "rope", 1) == 1
    assert "rope" not in dir(relpos)
    with pytest.raises(ImportError, match="cannot import name 'rope' from 'relpos'"):
        from relpos import rope  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'relpos\.rope'"):
        importlib.import_module("relpos.rope")
    with pytest.raises(AttributeError, match="attribute 'rope'"):
        pickle.loads(b"crelpos\nrope\n.")
    assert pickle.loads(pickle.dumps(relpos.attention)) is relpos.attention


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("rope", ["; did you mean relpos.apply_rotary?"]),
        (
            "atention",
            [
                ". Did you mean: 'attention'?",
                ". Did you mean '.attention' instead of '.atention'?",  # Python 3.15
            ],
        ),
    ],
)
def test_the_interpreter_adds_its_own_guess_only_where_there_is_no_other(name, ends):
    done = subprocess.run(
        [sys.executable, "-c", f"import relpos; relpos.{name}"],
        check=False,
        capture_output=True,
        text=True,
    )
    said = done.stderr.rstrip()
    assert any(said.endswith(f"has no attribute {name!r}{end}") for end in ends)


@pytest.mark.parametrize(
    ("name", "scheme", "layer"),
    [
        ("RoPE", "rotary", "rope"),
        ("rotary_embedding", "rotary", "rope"),
        ("ALiBi", "alibi", "alibi"),
        ("TransformerXL", "transformer_xl_attention", "transformer_xl"),
    ],
)
def test_a_scheme_that_is_not_known_is_answered_like_a_name(name, scheme, layer):
    x = np.ones((1, 2, 4))
    calls = {
        scheme: (
            lambda: relpos.plan(1, 1, 4, 4, 8, scheme=name),
            lambda: relpos.diagnose(x, x, x, scheme=name),
        ),
        layer: (
            lambda: nn.MultiheadAttention(8, 2, position=name),
            lambda: nn.TransformerLayer(8, 2, position=name),
        ),
    }
    for meant, each in calls.items():
        for call in each:
            with pytest.raises(ValueError, match="did you mean") as caught:
                call()
            assert str(caught.value).endswith(
                f": got {name!r}; did you mean {meant!r}?"
            )
