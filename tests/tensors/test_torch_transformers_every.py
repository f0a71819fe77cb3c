"""Every model of transformers that can be built small: by relpos as by eager code."""

from __future__ import annotations

import importlib
import warnings
from types import SimpleNamespace

import hugging_every as every
import hugging_inkling2
import pytest
import torch
import transformers
from hugging_names import MODELS, NOT_BUILT

import relpos.torch as rt
from relpos.torch._transformers import served, unserved

#: Attention that says nothing of `is_causal`, or the wrong thing where a mask is None.
SAY_NOTHING = {
    "AlignTextSelfAttention",
    "BigBirdPegasusDecoderAttention",
    "ClapTextSelfAttention",
    "DogeAttention",
    "LayoutLMSelfAttention",
    "MarkupLMSelfAttention",
    "MllamaTextCrossAttention",
    "MllamaVisionAttention",
    "PegasusXAttention",
    "SplinterSelfAttention",
    "VideoPrismAttention",
}

#: Attention that is built without its model, whose other parts have no small form.
ESMFOLD2 = "transformers.models.esmfold2.modeling_esmfold2"
ALONE = {
    "EsmFold2AtomAttention": {"position_embeddings": (torch.ones(2, 9, 8),) * 2},
    "EsmFold2DiffusionAttention": {},
}


@pytest.fixture(autouse=True, scope="module")
def dense():
    """Models are registered, small ones run on one thread, and dense biases are noted.

    It is the set of the classes that handed one to relpos, as `folder.Class`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rt.register()
    attend = transformers.AttentionInterface()["relpos"]
    found = set()

    def noting(module, query, key, value, attention_mask, *args, **keywords):
        if keywords.get("position_bias") is not None or has_numbers(attention_mask):
            found.add(short_name(type(module)))
        return attend(module, query, key, value, attention_mask, *args, **keywords)

    transformers.AttentionInterface.register("relpos", noting)
    yield found
    transformers.AttentionInterface.register("relpos", attend)
    torch.set_num_threads(threads)


def has_numbers(mask):
    """Return True for a mask with numbers between those of hidden and visible pairs."""
    if mask is None or not mask.is_floating_point():
        return False
    return bool(((mask != 0) & (mask > -1e4)).any())


def short_name(kind):
    return f"{kind.__module__.split('.')[2]}.{kind.__name__}"


@pytest.fixture(scope="module")
def seen():
    """The classes in each model that was built, and the ways of each type in it."""
    return {}


def built(name, way):
    with warnings.catch_warnings():  # of models that stay eager
        warnings.simplefilter("ignore")
        return every.build(name, way)


def note(seen, name, model):
    """Remember what a model by "relpos" consists of."""
    kinds = {
        f"{type(part).__module__}.{type(part).__name__}" for part in model.modules()
    }
    ways = {}
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel):
            way = part.config._attn_implementation
            ways.setdefault(part.config.model_type, set()).add(way)
    seen[name] = kinds, ways


@pytest.mark.parametrize("name", MODELS)
def test_equals_eager(name, seen):
    """Hidden states of real tokens without a mask, and padded right and left."""
    eager, mine = (built(name, way) for way in ("eager", "relpos"))
    note(seen, name, mine)
    compared = 0
    for side in every.SIDES:
        found = []
        for model in (eager, mine):
            call = every.call_of(model, side, name.endswith("+"))
            torch.manual_seed(0)
            with torch.no_grad():
                found.append(every.real(model(**call), side) if call else [])
        for wanted, got in zip(*found, strict=True):
            off = (got - wanted).abs().max() / wanted.abs().max()
            assert off <= 1e-4, side  # nan is not
            compared += 1
    assert compared


@pytest.mark.parametrize("name", ALONE)
def test_attention_alone_equals_eager(name):
    kind = getattr(importlib.import_module(ESMFOLD2), name)
    sizes = SimpleNamespace(hidden_size=16, head_dim=8)
    x = 3 * torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))
    hidden = torch.zeros(2, 1, 1, 9)
    hidden[1, ..., :4] = -torch.inf
    for mask in (None, hidden, hidden.flip(-1)):
        found = []
        for way in ("eager", "relpos"):
            torch.manual_seed(0)
            layer = kind(SimpleNamespace(_attn_implementation=way), sizes)
            found.append(layer(x, mask, **ALONE[name])[0])
        torch.testing.assert_close(found[1], found[0])


@pytest.fixture
def whole(seen):
    """Build all models that are not in `seen` yet, as where a test runs alone."""
    for name in {*MODELS} - seen.keys():
        note(seen, name, built(name, "relpos"))
    return seen


def test_every_class_that_asks_is_compared_or_listed(whole, capsys):
    asks = {
        f"{file}.{kind}" for file, kinds in every.asking().items() for kind in kinds
    }
    kinds = set().union(*(kinds for kinds, _ in whole.values())) & asks
    kinds |= {f"{ESMFOLD2}.{name}" for name in ALONE} & asks
    listed = {name for names in NOT_BUILT.values() for name in names}
    short = {name.rpartition(".")[2] for name in kinds}
    every_one = {name.rpartition(".")[2] for name in asks}
    assert short | listed == every_one
    assert not short & listed
    assert len(kinds) >= 250 and short >= SAY_NOTHING | ALONE.keys()
    types = set().union(*(ways for _, ways in whole.values()))
    mine = {
        name for _, ways in whole.values() for name in ways if "relpos" in ways[name]
    }
    assert len(types) >= 90 and len(mine) >= 90
    with capsys.disabled():
        print(f" {len(types)} model types, {len(mine)} of them by relpos", end="")


# ---- the table of `python -m relpos models` ------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return {row.name: row for row in served.served()}


def test_models_run_by_relpos_where_the_table_says_so(whole, rows):
    """The table is read from files of code, and these models are built."""
    allowed = {served.YES: {"relpos"}, served.NO: {"eager"}}
    compared = 0
    for name in MODELS:
        for kind, ways in whole[name][1].items():
            if kind in rows:  # a few classes do not name their configuration
                assert ways <= allowed.get(rows[kind].register, ways), (name, kind)
                compared += 1
    assert compared > 250


def test_the_table_knows_who_makes_a_dense_bias(whole, dense):
    listed = {*unserved.DENSE.split()}
    folders = {name.split(".")[0] for name in listed}
    for name in MODELS:
        if name.split(".")[0] in folders:
            model = built(name, "relpos")
            with torch.no_grad():
                model(**every.call_of(model, "none", across=name.endswith("+")))
    assert dense <= listed
    kinds = set().union(*(kinds for kinds, _ in whole.values()))
    parts = [kind.split(".") for kind in kinds if kind.startswith("transformers.")]
    in_models = {f"{part[2]}.{part[-1]}" for part in parts}
    # The small BEiT has no relative positions, and Phi-4 is called without audio.
    others = {"beit.BeitAttention", "phi4_multimodal.Phi4MultimodalAudioAttention"}
    if not hugging_inkling2.IS_KNOWN:
        others |= {name for name in listed if name.startswith("inkling2.")}
    assert (listed & in_models) - dense <= others
    assert len(listed & dense) >= 10


@pytest.mark.parametrize("is_padded", [False, True])
def test_the_audio_of_phi4_is_registered(is_padded, dense):
    """Its bias has the word attention in its name, and is none."""
    name = "transformers.models.phi4_multimodal."
    configs = importlib.import_module(f"{name}configuration_phi4_multimodal")
    models = importlib.import_module(f"{name}modeling_phi4_multimodal")
    sizes = ("hidden_size", "intermediate_size", "ext_pw_out_channel")
    sizes += ("depthwise_separable_out_channel", "nemo_conv_channels")
    config = configs.Phi4MultimodalAudioConfig(
        **dict.fromkeys(sizes, 16), num_blocks=2, num_attention_heads=2
    )
    draw = torch.Generator().manual_seed(1)
    sound = torch.randn(2, 64, config.input_size, generator=draw)
    mask = torch.ones(2, 64, dtype=torch.bool) if is_padded else None
    if is_padded:
        mask[1, 40:] = False
    found = []
    for way in ("eager", "relpos"):
        torch.manual_seed(0)
        model = models.Phi4MultimodalAudioModel._from_config(
            config, attn_implementation=way
        )
        assert model.config._attn_implementation == way
        out = model.eval()(sound, mask)
        parameters = dict(model.named_parameters())
        gradients = torch.autograd.grad(
            out.sin().sum(), [*parameters.values()], allow_unused=True
        )
        found.append((out, dict(zip(parameters, gradients, strict=True))))
    (wanted, expected), (out, gradients) = found
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-5)
    assert "phi4_multimodal.Phi4MultimodalAudioAttention" in dense
