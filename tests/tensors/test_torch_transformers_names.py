"""Arguments of transformers by name: the cache under two, unknown ones refused."""

from __future__ import annotations

import functools
import inspect
import warnings
from importlib import import_module

import hugging_families as families
import hugging_indexers
import hugging_inkling2
import hugging_models as models
import pytest
import torch
import transformers
from transformers.utils import TransformersKwargs

import relpos.torch as rt
from relpos.torch._transformers import adapters
from relpos.torch._transformers.adapters import table
from relpos.torch._transformers.interface import names, registry

#: A model with each class that is replaced.
MODEL_OF = {
    "T5Attention": "t5",
    "MT5Attention": "mt5",
    "InklingAttention": "inkling",
    "InklingRelativeLogits": "inkling",
    "DebertaV2Encoder": "deberta",
    "DisentangledSelfAttention": "deberta",
    "Gemma3nAudioAttention": "gemma3n audio",
    "Gemma4AudioAttention": "gemma4 audio",
    "Wav2Vec2ConformerSelfAttention": "wav2vec2-conformer",
    "WavLMAttention": "wavlm",
    "MPNetEncoder": "mpnet",
    "MPNetSelfAttention": "mpnet",
    "BloomModel": "bloom",
    "BloomAttention": "bloom",
    "MptModel": "mpt",
    "MptAttention": "mpt",
    "DebertaEncoder": "deberta v1",
    "DebertaDisentangledSelfAttention": "deberta v1",
    "SEWDTransformerEncoder": "sew-d",
    "SEWDDisentangledSelfAttention": "sew-d",
    "FastSpeech2ConformerAttention": "fastspeech2",
    "SpeechT5RelativePositionalEncoding": "speecht5",
    "SpeechT5Attention": "speecht5",
    "VitsAttention": "vits",
    "GraniteSpeechConformerAttention": "granite speech",
    "GraniteSpeechPlusConformerAttention": "granite speech plus",
    "GraniteSpeech5EncoderAttention": "granite speech 5",
    "XLNetModel": "xlnet",
    "XLNetRelativeAttention": "xlnet",
    "LongformerSelfAttention": "longformer",
    "LEDEncoderSelfAttention": "led",
    "LEDDecoderAttention": "led",
}
MODEL_OF |= {
    f"{prefix}{part}": name
    for prefix, name in (("Inkling2", "inkling2"), ("Inkling2Loop", "inkling2 loop"))
    if name in hugging_inkling2.CASES
    for part in ("RelativePositionBias", "SlidingAttention", "FullAttention")
}
MODEL_OF |= hugging_indexers.MODEL_OF
CASES = {**models.CASES, **families.CASES, **hugging_inkling2.CASES}
CASES |= hugging_indexers.CASES
VISION = (*families.MAPS, *families.WINDOWS)
#: Each method of them that relpos has its own of; `train` is torch's.
METHODS = [
    (kind, method)
    for kind, replacement in table.ADAPTERS.items()
    for method in replacement.adapter.overrides
    if method != "train"
]
#: Those whose forward is relpos' own, but for models, which take any argument.
CALLED = [
    kind
    for kind, method in METHODS
    if method == "forward" and not kind.endswith("Model")
]
VERSION = f"transformers {transformers.__version__}"


class WithLength:
    def get_seq_length(self, layer=0):
        return 3


class WithUpdate:
    def update(self, keys, values, layer):
        return keys, values


class DictWithLength(dict, WithLength):
    """A cache by layer, as a dict has an update of its own."""


CACHES = (WithLength, WithUpdate, DictWithLength, transformers.DynamicCache)


def model_with(kind):
    """A model that has a class, by its name, or a module around one alone."""
    if kind in VISION:
        return torch.nn.ModuleList([families.vision_layer(kind)])
    return models.build(CASES[MODEL_OF[kind]], "eager")


@functools.cache
def attention_of(kind):
    """A module of a class, by its name, in a model that is replaced."""
    model = model_with(kind)
    rt.replace_attention(model)
    part = model.decoder if kind in ("T5Attention", "MT5Attention") else model
    found = [x for x in part.modules() if type(x).__qualname__ == kind]
    # the first has the table of T5 and of WavLM, the last of Inkling has no window
    return found[-1 if kind == "InklingAttention" else 0]


def call_of(kind):
    """The arguments with which a module of a class is called."""
    x = torch.ones(1, 5, models.WIDTH)
    if kind == "XLNetRelativeAttention":
        masks = dict.fromkeys(["g", "attn_mask_h", "attn_mask_g", "seg_mat"])
        return {"h": x, "r": torch.ones(2, 5, models.WIDTH), **masks}
    if kind.startswith("Inkling2"):
        call = {"hidden_states": x, "relative_distance": torch.zeros(5, 5).long()}
        if kind.endswith("Attention"):
            call["attention_mask"] = None
        if kind.endswith("FullAttention"):
            call |= {"key_hidden_states": x, "value_hidden_states": x}
        return call | {"position_ids": torch.arange(5)[None]}
    if kind.endswith("Indexer"):
        rotations = torch.ones(2, 1, 5, 6).unbind()
        call = {"hidden_states": x, "position_embeddings": rotations}
        call |= {"attention_mask": torch.ones(1, 5, 5).tril().bool()}
        if kind != "MistralLarge4TextIndexer":
            call["q_resid"] = torch.ones(1, 5, 12)
        return call | {"position_ids": torch.arange(5)[None]}
    if kind == "MptAttention":
        return {"hidden_states": x, "position_bias": None}
    if kind == "BloomAttention":
        more = {"alibi": torch.empty(0), "attention_mask": None}
        return {"hidden_states": x, "residual": x, **more}
    if kind == "Wav2Vec2ConformerSelfAttention":
        return {
            "hidden_states": x,
            "relative_position_embeddings": torch.ones(1, 9, models.WIDTH),
        }
    if kind.startswith("GraniteSpeech"):
        at = torch.arange(4)
        name = "position_embeddings" if "5" in kind else "attention_dists"
        return {"hidden_states": x, name: at[:, None] - at + 6}
    if kind == "InklingRelativeLogits":
        return {"relative_states": x, "query_positions": None, "key_positions": None}
    if kind == "DebertaV2Encoder":
        return {"hidden_states": x, "attention_mask": torch.ones(1, 5)}
    if kind == "InklingAttention" or "Disentangled" in kind:
        return {"hidden_states": x, "attention_mask": None}
    return {"hidden_state" if kind == "VitDetAttention" else "hidden_states": x}


# ---- before a module changes ---------------------------------------------------------


def renamed(parameters):
    return [*parameters[:-1], parameters[-1].replace(name="new_name")]


def added(parameters):
    kind = inspect.Parameter.KEYWORD_ONLY
    return [*parameters, inspect.Parameter("new_name", kind, default=None)]


def exchanged(parameters):
    kinds = [parameter.kind for parameter in parameters]
    found = [parameters[0], *parameters[:0:-1]]
    return [p.replace(kind=k) for p, k in zip(found, kinds, strict=True)]


PLANTED = {"renamed": renamed, "added": added, "exchanged": exchanged}


def original_of(name):
    """The class of transformers that an adapter replaces."""
    home, kind, _ = table.ADAPTERS[name]
    return getattr(import_module(home), kind)


def plant(monkeypatch, kind, method, change):
    """Give a method of transformers other arguments."""
    original = original_of(kind)
    own = getattr(original, method)

    @functools.wraps(own)
    def planted(*args, **keywords):
        return own(*args, **keywords)

    signature = inspect.signature(own)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p for p in signature.parameters.values() if p.kind not in several]
    named = [p.replace(default=inspect.Parameter.empty) for p in named]
    planted.__signature__ = signature.replace(parameters=change(named))
    monkeypatch.setattr(original, method, planted)


def test_every_replaced_class_has_a_model():
    assert {*MODEL_OF, *VISION} == table.ADAPTERS.keys()


@pytest.mark.parametrize("change", PLANTED)
@pytest.mark.parametrize(("kind", "method"), METHODS)
def test_another_signature_is_refused(kind, method, change, monkeypatch):
    model = model_with(kind)
    parameters = inspect.signature(getattr(table.ADAPTERS[kind].adapter, method))
    if change == "exchanged" and len(parameters.parameters) < 3:
        pytest.skip("one argument has one order")
    plant(monkeypatch, kind, method, PLANTED[change])
    message = rf"model: got \w+\.{method} of {VERSION}, .*; expected \("
    with pytest.raises(ValueError, match=message):
        rt.replace_attention(model)
    assert not any(type(x).__module__.startswith("relpos") for x in model.modules())
    assert not any("buckets" in vars(module) for module in model.modules())
    with pytest.raises(ValueError, match=message):  # a pickle asks for the class
        table._MADE.clear()
        getattr(adapters, kind)


@pytest.mark.parametrize(("kind", "method"), METHODS)
def test_a_method_that_is_gone_is_refused(kind, method, monkeypatch):
    model = model_with(kind)
    original = original_of(kind)
    if "Sdpa" in kind:
        pytest.skip("its base has the same method, with the same arguments")
    monkeypatch.delattr(original, method)
    if method == "forward":  # torch has one, of any arguments
        message = rf"\.forward of {VERSION}, \(\); expected"
    else:
        message = rf"\.{method} of {VERSION}, no such method; expected"
    with pytest.raises(ValueError, match=message):
        rt.replace_attention(model)


@pytest.mark.parametrize("name", ["prepare", "position_terms", "check_keywords"])
def test_a_name_that_relpos_adds_has_to_be_free(name, monkeypatch):
    model = models.build(models.CASES["t5"], "eager")
    original = original_of("T5Attention")
    monkeypatch.setattr(original, name, lambda self: None, raising=False)
    with pytest.raises(
        ValueError, match=rf"model: got T5Attention\.{name} of {VERSION}"
    ):
        rt.replace_attention(model)


@pytest.mark.parametrize("which", [slice(1), slice(None)], ids=("one", "all"))
@pytest.mark.parametrize("kind", [*MODEL_OF, *VISION])
def test_a_subclass_is_refused(kind, which):
    """Its own code would be left out, or read a table as a bias of all pairs."""
    model = model_with(kind)
    original = original_of(kind)
    parts = [module for module in model.modules() if type(module) is original]
    for part in parts[which]:
        part.__class__ = type("Own", (type(part),), {})
    before = [type(module) for module in model.modules()]
    message = rf"^model: got .* of Own, a subclass of {original.__name__}; expected"
    with pytest.raises(ValueError, match=message):
        rt.replace_attention(model)
    assert [type(module) for module in model.modules()] == before
    assert not any("buckets" in vars(module) for module in model.modules())


# ---- at a call -----------------------------------------------------------------------

CACHED = ("T5Attention", "MT5Attention", "InklingAttention")


@pytest.mark.parametrize("argument", ["cache", "past_key_values"])
@pytest.mark.parametrize("kind", CACHED)
def test_a_cache_under_both_names(kind, argument):
    attend = attention_of(kind)
    causal = torch.ones(1, 1, 9, 9, dtype=torch.bool).tril()
    mask = "attention_mask" if kind == "InklingAttention" else "mask"
    x = torch.randn(1, 9, models.WIDTH, generator=torch.Generator().manual_seed(0))
    cache, done, parts = transformers.DynamicCache(config=attend.config), 0, []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = attend(x, **{mask: causal})[0]
        for part in x.split([5, 1, 2, 1], dim=1):
            rows = causal[:, :, done : done + part.shape[1], : done + part.shape[1]]
            parts.append(attend(part, **{mask: rows, argument: cache})[0])
            done += part.shape[1]
    assert (torch.cat(parts, 1) - whole).abs().max() <= 1e-5 * whole.abs().max()


@pytest.mark.parametrize("kind", CACHED)
def test_two_caches_are_refused(kind):
    attend, call = attention_of(kind), call_of(kind)
    caches = [transformers.DynamicCache(config=attend.config) for _ in range(2)]
    with pytest.raises(ValueError, match=r"past_key_values: got a DynamicCache and"):
        attend(**call, cache=caches[0], past_key_values=caches[1])
    assert [cache.get_seq_length() for cache in caches] == [0, 0]
    attend(**call, cache=caches[0], past_key_values=caches[0])


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("argument", ["kv_store", "position_ids"])
@pytest.mark.parametrize("kind", CALLED)
def test_a_cache_under_an_unknown_name_is_refused(kind, argument, cache):
    attend = attention_of(kind)
    errors = (ValueError, TypeError)  # Python refuses it where nothing is handed on
    with pytest.raises(errors, match=rf"{argument}: got a cache|'{argument}'"):
        attend.forward(**call_of(kind), **{argument: cache()})


@pytest.mark.parametrize("value", [1, None, torch.ones(1)])
@pytest.mark.parametrize("kind", CALLED)
def test_an_unknown_argument_is_refused(kind, value):
    attend = attention_of(kind)
    message = rf"^new_name: got an argument .*, of {VERSION}; expected one"
    with pytest.raises((ValueError, TypeError), match=rf"{message}|'new_name'"):
        attend.forward(**call_of(kind), new_name=value)


def test_a_model_whose_layers_rename_the_cache_is_refused(monkeypatch):
    """A layer of a later version that names the cache of its attention otherwise."""
    case = models.CASES["t5"]
    model = models.build(case, "eager")
    rt.replace_attention(model)
    layer = type(model.decoder.block[0].layer[0])

    def forward(self, hidden_states, attention_mask=None, position_bias=None, **more):
        found = {n: more.pop(n) for n in ("cache", "past_key_values") if n in more}
        out = self.SelfAttention(
            self.layer_norm(hidden_states),
            mask=attention_mask,
            position_bias=position_bias,
            kv_store=next(iter(found.values()), None),
            **more,
        )
        return hidden_states + self.dropout(out[0]), *out[1:]

    monkeypatch.setattr(layer, "forward", forward)
    embeds = torch.ones(1, 4, models.WIDTH)
    for use_cache in (True, False):
        with pytest.raises(ValueError, match=r"^kv_store: got a"):
            model(
                inputs_embeds=embeds, decoder_inputs_embeds=embeds, use_cache=use_cache
            )


@pytest.mark.parametrize("kind", [*CACHED, "WavLMAttention"])
def test_harmless_arguments_are_taken(kind):
    attend = attention_of(kind)
    call = call_of(kind)
    call["hidden_states"] = torch.randn(1, 5, models.WIDTH)
    wanted = attend(**call)[0]
    harmless = dict.fromkeys(names.WITHOUT_EFFECT, True)
    harmless["cu_seq_lens_q"] = harmless["cu_seq_lens_k"] = torch.tensor([0, 5])
    terms = dict.fromkeys(names.REFUSED - {"cache", "past_key_values"})
    assert torch.equal(attend(**call, **harmless, **terms)[0], wanted)
    own = TransformersKwargs.__annotations__.keys()  # what transformers may hand on
    assert own - {"is_causal"} <= names.WITHOUT_EFFECT
    with pytest.raises(ValueError, match=r"^alibi: got a Tensor; expected None"):
        attend(**call, alibi=torch.ones(1))


@pytest.mark.parametrize("kind", ["WavLMAttention", "Wav2Vec2ConformerSelfAttention"])
def test_encoders_hide_nothing(kind):
    attend = attention_of(kind)
    call = call_of(kind)
    assert torch.equal(attend(**call, is_causal=False)[0], attend(**call)[0])
    with pytest.raises(ValueError, match=r"^is_causal: got an argument"):
        attend(**call, is_causal=True)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("argument", ["cache", "past_key_values", "kv_store", "labels"])
def test_the_registered_function_refuses_caches(argument, cache):
    x = torch.ones(1, 2, 5, 4)
    module = torch.nn.Module()
    with pytest.raises(
        ValueError, match=rf"^{argument}: got a cache, a {cache.__name__}"
    ):
        registry.attention_function(module, x, x, x, None, **{argument: cache()})
    more = {"position_ids": {"no": "cache"}}  # though a dict has an update
    registry.attention_function(module, x, x, x, None, **more)


TOKENS = ("query", "key", "value")
X = torch.randn(2, 4, 5, 8)


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (TypeError, "module: got NoneType; expected a torch", {"module": None}),
        (TypeError, "query: got list; expected a tensor", {"query": [1.0]}),
        (TypeError, "key: got an array of dtype float32", {"key": X.numpy()}),
        (TypeError, "value: got NoneType; expected a tensor", {"value": None}),
        (ValueError, r"query: got shape \(\); expected \(B, H", {"query": X.sum()}),
        # the axis of entries would be read as that of keys, and hide no key
        (ValueError, r"query: got shape \(4, 5, 8\)", dict.fromkeys(TOKENS, X[0])),
        (ValueError, r"key: got shape \(1, 2, 4, 5, 8\)", {"key": X[None]}),
        (ValueError, r"value: got shape \(1, 2, 4, 5, 8\)", {"value": X[None]}),
    ],
)
def test_the_registered_function_refuses_other_tensors(error, message, changed):
    arguments = {"module": torch.nn.Module(), **dict.fromkeys(TOKENS, X), **changed}
    with pytest.raises(error, match=f"^{message}"):
        rt.attention_interface(
            **arguments, attention_mask=None, is_causal=True, sliding_window=5
        )


def test_a_swapped_module_has_to_hand_on_its_offset():
    attend = attention_of("T5Attention")
    x = torch.ones(1, 3, 5, 8)
    bias = torch.ones(8, 3)
    with pytest.raises(ValueError, match=rf"^query_offset: got None; .* {VERSION}"):
        registry.attention_function(attend, x, x, x, None, position_bias=bias)


def test_unknown_arguments_of_masks_are_refused():
    call = {"batch_size": 1, "q_length": 3, "kv_length": 3, "dtype": torch.float32}
    assert registry.visible_pairs(**call) is not None
    with pytest.raises(ValueError, match=rf"^allow_skip: got an argument.*{VERSION}"):
        registry.visible_pairs(**call, allow_skip=False)


def test_a_mask_function_without_the_argument_is_refused(monkeypatch):
    monkeypatch.setattr(registry, "_OF_MASKS", {"batch_size"})
    with pytest.raises(ValueError, match=rf"^sdpa_mask: got one of {VERSION} without"):
        rt.register()


# ---- weights -------------------------------------------------------------------------

SOUND = {"input_values": torch.arange(40.0)[None].sin()}
TEXT = {"inputs_embeds": torch.ones(1, 5, models.WIDTH)}
MEL = torch.linspace(0, 50, 2 * 58 * 16).sin().view(2, 58, 16)
CALLS = {
    "t5": {**TEXT, "decoder_inputs_embeds": TEXT["inputs_embeds"]},
    "mt5": {**TEXT, "decoder_inputs_embeds": TEXT["inputs_embeds"]},
    "inkling": TEXT,
    "deberta": TEXT,
    "wavlm": SOUND,
    "wav2vec2-conformer": SOUND,
    "gemma3n audio": {"audio_mel": MEL, "audio_mel_mask": ~models.padded(58)},
    "gemma4 audio": {"input_features": MEL, "attention_mask": models.padded(58)},
}


def weights_of(model, name, **more):
    """All weights of a call, by their place in its result."""
    with torch.no_grad():
        if name == "gemma3n audio":
            out = model(*CALLS[name].values(), **more)
        else:
            out = model(**CALLS[name], **more)
    found = {key: out[key] for key in out if key.endswith("attentions")}
    return {(k, i): w for k, all_ in found.items() for i, w in enumerate(all_ or ())}


@pytest.mark.parametrize("way", ["configuration", "call"])
@pytest.mark.parametrize("name", CALLS)
def test_weights_are_those_of_the_model(name, way):
    model = models.build(models.CASES[name], "eager")
    for part in model.modules():
        if hasattr(part, "config"):
            part.config.output_attentions = way == "configuration"
    more = {"output_attentions": True} if way == "call" else {}
    own = weights_of(model, name, **more)
    rt.replace_attention(model)
    got = weights_of(model, name, **more)
    assert got.keys() == own.keys()
    assert bool(own) == (name != "gemma3n audio")
    for key, wanted in own.items():
        assert got[key].shape == wanted.shape
        seen = got[key].sum(-1) > 0.5  # a query of padding has the weights 0
        assert (got[key] - wanted)[seen].abs().max() <= 1e-5
        assert (~seen).sum() < (seen.numel() / 3 if name == "gemma4 audio" else 1)
    if way == "configuration":
        assert not weights_of(model, name, output_attentions=False)
    else:
        assert not weights_of(model, name)


# ---- what has nothing to replace -----------------------------------------------------


@pytest.mark.parametrize("name", ["t5", "deberta", "gemma4 audio"])
def test_a_second_time(name):
    model = models.build(models.CASES[name], "eager")
    rt.replace_attention(model)
    before = [(type(module), dict(vars(module))) for module in model.modules()]
    with pytest.raises(ValueError, match="whose attention is already replaced"):
        rt.replace_attention(model)
    after = [(type(module), dict(vars(module))) for module in model.modules()]
    assert all(
        a[0] is b[0] and a[1].keys() == b[1].keys()
        for a, b in zip(before, after, strict=True)
    )


def layer():
    return torch.nn.TransformerEncoderLayer(8, 2, 8)


@pytest.mark.parametrize(
    "model",
    [
        torch.nn.MultiheadAttention(8, 2),
        layer(),
        torch.nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False),
        torch.nn.Transformer(8, 2, 1, 1, 8),
        torch.nn.Sequential(torch.nn.Linear(8, 8), layer()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_attention_of_torch(model):
    before = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=r"relpos\.torch\.nn\.RelativeMultihead"):
        rt.replace_attention(model)
    assert [type(module) for module in model.modules()] == before


def test_what_is_no_module():
    with pytest.raises(TypeError, match=r"^model: got a str; expected a torch\.nn"):
        rt.replace_attention("t5")


# ---- warnings of relpos' own calls ---------------------------------------------------


@pytest.mark.parametrize("module", ["relpos", "relpos.torch._transformers.adapters"])
@pytest.mark.parametrize("category", ["FutureWarning", "DeprecationWarning"])
def test_warnings_for_relpos_are_errors(module, category):
    code = f"import warnings; warnings.warn('an old name', {category})"
    with pytest.raises((FutureWarning, DeprecationWarning), match="an old name"):
        exec(code, {"__name__": module})
    with pytest.warns((FutureWarning, DeprecationWarning), match="an old name"):
        exec(code, {"__name__": "elsewhere"})
