"""recipes.from_config: the recipe that a model's configuration and weights name."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from refusals import changes
from tolerances import assert_bitwise, assert_close, normwise

from relpos import recipes

H, D = 2, 4


def table(*shape):
    """Numbers that tell one table from another."""
    return np.random.default_rng(sum(shape)).standard_normal(shape)


BIAS = "layer.0.SelfAttention.relative_attention_bias.weight"
T5 = {
    f"encoder.block.0.{BIAS}": table(8, H),
    f"decoder.block.0.{BIAS}": table(8, 3),
}
UMT5 = T5 | {f"encoder.block.1.{BIAS}": table(8, H + 2)}
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}
LOCAL = {"encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias.weight":
         table(8, H)}  # fmt: skip
SWIN = {
    f"encoder.layers.{s}.blocks.{b}.attention.self.relative_position_bias_table":
        table(49, H + 10 * s + b)
    for s in (0, 1) for b in (0, 1)
}  # fmt: skip
PARTS = {"0.weight": (5, 2), "0.bias": (5,), "2.weight": (H, 5)}
SWIN_V2 = {
    f"encoder.layers.{s}.blocks.{b}.attention.self.continuous_position_bias_mlp.{part}":
        table(*shape) + 10 * s + b
    for s in (0, 1) for b in (0, 1) for part, shape in PARTS.items()
}  # fmt: skip
SAM = {
    f"vision_encoder.layers.{n}.attn.rel_pos_{axis}": table(rows, D)
    for n, rows in ((0, 3), (1, 7))
    for axis in "hw"
}
VITS = {
    f"text_encoder.encoder.layers.{n}.attention.emb_rel_{x}": table(1, 9, D) + n
    for n in (0, 1)
    for x in "kv"
}
TYPES = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}
GEMMA2 = {"query_pre_attn_scalar": 9, "attn_logit_softcapping": 50.0}
OLD_GEMMA2 = GEMMA2 | {"sliding_window": 7, "num_hidden_layers": 4}
INKLING = {
    "layer_types": ["hybrid_sliding", "hybrid"],
    "sliding_window_size": 5,
    "head_dim": 6,
    "swa_head_dim": 4,
}
CURVES = {
    "model.layers.0.self_attn.rel_logits_proj.proj": table(3, 5),
    "model.layers.1.self_attn.rel_logits_proj.proj": table(3, 9),
}
IMAGE = {"image_size": 48, "patch_size": [8, 16]}
DISTANCES = {
    "bert.encoder.layer.1.attention.self.distance_embedding.weight": table(9, D)
}
W2V = {"encoder.layers.1.self_attn.distance_embedding.weight": table(6, D)}
SIDES = {"left_max_position_embeddings": 3, "right_max_position_embeddings": 2}

DEBERTA = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "max_relative_positions": -1,
    "max_position_embeddings": 9,
    "hidden_size": H * D,
    "num_attention_heads": H,
}


def own_deberta(*names):
    """Embeddings, and a projection for positions alone of each name."""
    state = {"encoder.rel_embeddings.weight": table(18, H * D)}
    for n, name in enumerate(names):
        place = f"encoder.layer.0.attention.self.{name}"
        state[f"{place}.weight"] = table(H * D, H * D) + n
        state[f"{place}.bias"] = table(H * D) + n
    return state


def shared_deberta(layer):
    """Embeddings that are normalised, and the layer's own projections."""
    state = {"encoder.rel_embeddings.weight": table(8, H * D)}
    state["encoder.LayerNorm.weight"] = 1 + table(H * D)
    state["encoder.LayerNorm.bias"] = table(H * D)
    for name in ("key_proj", "query_proj"):
        place = f"encoder.layer.{layer}.attention.self.{name}"
        state[f"{place}.weight"] = table(H * D, H * D) + len(name)
        state[f"{place}.bias"] = table(H * D) + len(name)
    return state | {"embeddings.LayerNorm.weight": table(1)}


def normalised(x):
    """With the eps of the case."""
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.5)


def by_head(rows, weight, bias):
    rows = rows @ weight.T + bias
    return np.stack([rows[:, h * D : (h + 1) * D] for h in range(H)])


#: model_type, the rest of its configuration, weights, layer, and the recipe's dict.
CASES = [
    ("mpnet", {}, {"encoder.relative_attention_bias.weight": table(32, H)}, 3,
     lambda w: recipes.mpnet(*w)),
    ("t5", BUCKETS, T5, 1, lambda w: recipes.t5(w[0], max_distance=20)),
    ("mt5", BUCKETS | {"is_decoder": True}, T5, 0,
     lambda w: recipes.t5(w[1], bidirectional=False, max_distance=20)),
    ("t5", BUCKETS, {f"block.0.{BIAS}": table(8, H)}, 0,
     lambda w: recipes.t5(w[0], max_distance=20)),
    ("umt5", BUCKETS, UMT5, 1, lambda w: recipes.umt5(w[2], max_distance=20)),
    ("longt5", BUCKETS | {"encoder_attention_type": "local", "local_radius": 6},
     LOCAL, 4, lambda w: recipes.longt5_local(w[0], 6, max_distance=20)),
    ("longt5", BUCKETS | {"is_decoder": True}, T5, 1,
     lambda w: recipes.t5(w[1], bidirectional=False, max_distance=20)),
    ("bert", {"position_embedding_type": "relative_key_query"}, DISTANCES, 1,
     lambda w: recipes.bert(*w, key_query=True)),
    ("bert", {}, {}, 0, lambda w: {}),
    ("beit", IMAGE, {"encoder.relative_position_bias.relative_position_bias_table":
                     table(11 * 5 + 3, H)}, 5, lambda w: recipes.beit(*w, (6, 3))),
    ("beit", IMAGE, {f"layers.{n}.relative_position_bias.relative_position_bias_table":
                     table(11 * 5 + 3, H + n) for n in (0, 1)}, 1,
     lambda w: recipes.beit(w[1], (6, 3))),
    ("swin", {"depths": [2, 2]}, SWIN, 3, lambda w: recipes.swin(w[3], (4, 4))),
    ("donut-swin", {"depths": [2, 2]}, SWIN, 0, lambda w: recipes.swin(w[0], (4, 4))),
    ("maskformer-swin", {"depths": [2, 2]}, SWIN, 2,
     lambda w: recipes.swin(w[2], (4, 4))),
    ("pop2piano", BUCKETS, T5, 1, lambda w: recipes.t5(w[0], max_distance=20)),
    ("switch_transformers", BUCKETS, T5, 1,
     lambda w: recipes.t5(w[0], max_distance=20)),
    ("swinv2", {"depths": [2, 2], "image_size": 32, "patch_size": 4, "window_size": 6,
                "pretrained_window_sizes": [0, 3]}, SWIN_V2, 2,
     lambda w: recipes.swin_v2(*w[6:9], (4, 4), pretrained_window=3)),
    ("swinv2", {"depths": [2, 2], "image_size": [16, 64], "patch_size": 4,
                "window_size": 6}, SWIN_V2, 1,
     lambda w: recipes.swin_v2(*w[3:6], (4, 4))),
    ("sam", {"vision_config": {"hidden_size": 8}}, SAM, 1,
     lambda w: recipes.sam(*w[2:], (4, 4))),
    ("sam_vision_model", {}, SAM, 0, lambda w: recipes.sam(*w[:2], (2, 2))),
    ("vits", {}, VITS, 1, lambda w: recipes.vits(*w[2:])),
    ("wav2vec2-bert", SIDES, W2V, 1, lambda w: recipes.wav2vec2_bert(*w, **SIDES)),
    ("data2vec-vision", IMAGE, {"layers.1.relative_position_bias_table":
                                table(11 * 5 + 3, H)}, 1,
     lambda w: recipes.beit(*w, (6, 3))),
    ("vitdet", {}, {f"encoder.layer.0.attention.rel_pos_{axis}": table(7, D)
                    for axis in "hw"}, 0, lambda w: recipes.sam(*w, (4, 4))),
    ("seamless_m4t_v2", SIDES, W2V, 1, lambda w: recipes.wav2vec2_bert(*w, **SIDES)),
    ("deberta-v2", DEBERTA | {"position_buckets": 4, "share_att_key": True,
                              "norm_rel_ebd": "layer_norm", "layer_norm_eps": 0.5},
     shared_deberta(1), 1, lambda w: recipes.deberta(
         by_head(normalised(w[0]) * w[1] + w[2], w[3], w[4]),
         by_head(normalised(w[0]) * w[1] + w[2], w[5], w[6]), max_position=9)),
    ("deberta-v2", DEBERTA, own_deberta("pos_key_proj", "pos_query_proj"), 0,
     lambda w: recipes.deberta(by_head(*w[:3]), by_head(w[0], *w[3:]))),
    ("deberta-v2", DEBERTA | {"pos_att_type": "p2c"}, own_deberta("", "pos_query_proj"),
     0, lambda w: recipes.deberta(None, by_head(w[0], *w[3:]))),
    ("deberta", DEBERTA, own_deberta("pos_proj", "pos_q_proj"), 0,
     lambda w: recipes.deberta(by_head(*w[:3]), by_head(w[0], *w[3:]))),
    ("deberta", DEBERTA | {"relative_attention": False}, {}, 0,
     lambda w: {"scale": (3 * D) ** -0.5}),
    ("deberta-v2", DEBERTA | {"pos_att_type": []}, {}, 0, lambda w: {}),
    ("gpt_oss", TYPES, {"model.layers.0.self_attn.sinks": table(H)}, 0,
     lambda w: recipes.gpt_oss(*w, sliding_window=7)),
    ("gpt_oss", TYPES, {"model.layers.1.self_attn.sinks": table(H)}, 1,
     lambda w: recipes.gpt_oss(*w)),
    ("gemma2", TYPES | GEMMA2, {}, 0,
     lambda w: recipes.gemma2(query_pre_attn_scalar=9, sliding_window=7)),
    ("gemma2", OLD_GEMMA2, {}, 2,
     lambda w: recipes.gemma2(query_pre_attn_scalar=9, sliding_window=7)),
    ("gemma2", OLD_GEMMA2 | {"layer_types": None}, {}, 3,
     lambda w: recipes.gemma2(query_pre_attn_scalar=9)),
    ("recurrent_gemma", {"attention_window_size": 4}, {}, 0,
     lambda w: recipes.recurrent_gemma(4)),
    ("recurrent_gemma", {"sliding_window": 4}, {}, 0,
     lambda w: recipes.recurrent_gemma(4)),
    ("inkling_text", INKLING, CURVES, 0,
     lambda w: recipes.inkling(w[0], 4, window=5)),
    ("inkling_mm_model", {"text_config": INKLING}, CURVES, 1,
     lambda w: recipes.inkling(w[1], 6)),
]  # fmt: skip


#: Models whose tables are computed, and not only rows of the weights in another order.
COMPUTED = {"beit", "data2vec-vision", "swinv2", "deberta", "deberta-v2"}


def is_numbers(value):
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def same(got, want, kind):
    assert {*got} == {*want}
    for name, value in want.items():
        if isinstance(value, np.ndarray) and "deberta" in kind and value.ndim == 3:
            assert_close(got[name], value, "same_formula")  # of a product
        elif isinstance(value, np.ndarray):
            assert_bitwise(got[name], value)
        elif isinstance(value, tuple) and name == "labels":
            pairs = zip(got[name], value, strict=True)
            assert all(np.array_equal(a, b) for a, b in pairs)
        else:
            assert got[name] == value, name


@pytest.mark.parametrize(("kind", "config", "state", "layer", "recipe"), CASES)
def test_the_recipe_of_a_model(kind, config, state, layer, recipe):
    want = recipe([*state.values()])
    values = {"model_type": kind, **config}
    same(recipes.from_config(values, state, layer), want, kind)
    same(recipes.from_config(SimpleNamespace(**values), state, layer), want, kind)


def test_every_model_is_tried():
    with pytest.raises(ValueError, match="unheard_of") as caught:
        recipes.from_config({"model_type": "unheard_of"}, {})
    known = str(caught.value).split("expected one of ")[1]
    tried = {repr(case[0]) for case in CASES}
    assert {*known.split(", ")} - tried <= {"'sam_hq'", "'sam_hq_vision_model'"}
    assert tried <= {*known.split(", ")}


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "config", "state", "layer", "recipe"), CASES)
def test_weights_as_tensors(kind, config, state, layer, recipe):
    """bfloat16 too, as models are stored."""
    torch = pytest.importorskip("torch")
    values = {"model_type": kind, **config}
    for dtype in (torch.float64, torch.bfloat16):
        tensors = {n: torch.tensor(x, dtype=dtype) for n, x in state.items()}
        arrays = {n: x.to(torch.float64).numpy() for n, x in tensors.items()}
        want = recipes.from_config(values, arrays, layer)
        got = recipes.from_config(values, tensors, layer)
        numbers = [name for name, x in want.items() if is_numbers(x)]
        for name in numbers:
            table, wanted = got.pop(name), want.pop(name)
            assert table.dtype == dtype
            found = table.double().numpy()
            if kind not in COMPUTED:
                np.testing.assert_array_equal(found, wanted, strict=True)
            elif dtype is torch.float64:
                assert_close(found, wanted, "same_formula")
            else:  # rounded once, by at most 2**-9
                assert normwise(found, wanted) < 2**-8
        same(got, want, kind)


W2V_CONFIG = {"model_type": "wav2vec2-bert", **SIDES}


REFUSED = """
config={} -> ValueError: config: got model_type None; expected one of
config=3 -> TypeError: config: got int; expected a dict
config={"model_type": ["t5"]} -> ValueError: config: got model_type [
state_dict=[] -> TypeError: state_dict: got list; expected a mapping
state_dict={} -> ValueError: state_dict: no name that ends with 'dist
layer=1.0 -> TypeError: layer: got float; expected an integer
layer=-1 -> ValueError: layer: got -1; expected an integer from 0
layer=2 -> ValueError: state_dict: no name that …for layer 2; expecte
config={"model_type": "wav2vec2-bert"} -> ValueError: config: has no
    left_max_position_embeddings; expected that of a whole
state_dict={f"{n}.layers.1.distance_embedding.weight": 1 for n in "ab"} -> ValueError:
    state_dict: 2 names that end with …for layer 1; expected that of one
config=W2V_CONFIG | {"position_embeddings_type": "relative"} -> ValueError: config:
    position_embeddings_type is 'relative'; expected 'relative_key'
config={"model_type": "longt5", "encoder_attention_type": "global"} -> ValueError:
    config: encoder_attention_type is not 'local'
config={"model_type": "wavlm"} -> ValueError: config: got model_type 'wavlm'; expected a
    call of recipes.wavlm, whic
config={"model_type": "deberta", "talking_head": True} -> ValueError: config:
    talking_head is set; expected a model without it
config=DEBERTA | {"model_type": "deberta", "pos_att_type": ["p2p"]} -> ValueError:
    config: pos_att_type is ['p2p']; expected c2p, p2c or both
config=DEBERTA | {"model_type": "deberta"} -> ValueError: state_dict: no name that ends
    with 'rel_embeddings
config={"model_type": "swin", "depths": [1]} -> ValueError: layer: got 1; expected one
    of the model's layers
config=GPT_OSS, state_dict=SINKS, layer=0 -> ValueError: config: has no layer_types;
    expected that of a whole gpt_oss model
config={"model_type": "gemma2"} | GEMMA2, layer=0 -> ValueError: config: has no
    num_hidden_layers; expected that of a whole gemma2 model
config={"model_type": "gemma2"} | OLD_GEMMA2, layer=4 -> ValueError: config: layer_types
    has no entry for layer 4
config=GPT_OSS | TYPES, state_dict=SINKS, layer=2 -> ValueError: config: layer_types has
    no entry for layer 2
config=GPT_OSS | {"layer_types": "sliding"}, state_dict=SINKS, layer=0 -> ValueError:
    config: layer_types has no entry for layer 0
config=GPT_OSS | {"layer_types": ["sliding"]}, state_dict=SINKS, layer=0 -> ValueError:
    config: layer_types: got 'sliding'; expected one of 'sliding_attention', 'full_atten
config=GPT_OSS | {"layer_types": [3]}, state_dict=SINKS, layer=0 -> TypeError: config:
    layer_types: got int; expected one of
config={"model_type": "inkling_text"} | INKLING | {"layer_types": ["full_attention"]},
    layer=0 -> ValueError: config: layer_types: got 'full_attention'; expected one of
    'hybrid_sliding', 'hybrid'
config=GPT_OSS | TYPES | {"sliding_window": 0}, state_dict=SINKS, layer=0 -> ValueError:
    config: sliding_window: got 0; expected
config=BEIT, state_dict=BOTH, layer=0 -> ValueError: state_dict: got
    'layers.0.relative_position_bias_table' and 'shared.relative_position_bias_table';
    expected a table of layer 0 or
config=BEIT | {"image_size": "48"}, state_dict=ONE -> TypeError: config: image_size: got
    str; expected an integer
config=BEIT | {"patch_size": 0}, state_dict=ONE -> ValueError: config: patch_size: got
    0; expected an integer from 1
config=BEIT | {"patch_size": [8, 8, 8]}, state_dict=ONE -> ValueError: config:
    patch_size: got [8, 8, 8]; expected an integer or (rows, columns)
config=V1 | {"pos_att_type": 3} -> ValueError: config: pos_att_type is 3; expected c2p
config=V1 | {"pos_att_type": [["c2p"]]} -> ValueError: config: pos_att_type is [['c2p']]
config=V1 | {"relative_attention": False, "num_attention_heads": 0} -> ValueError:
    config: num_attention_heads: got 0; expected an integer of at least 1
config=V1 | {"relative_attention": False, "hidden_size": "8"} -> TypeError: config:
    hidden_size: got str; expected an integer
config=V1 | {"max_relative_positions": "9"}, state_dict=ROWS -> TypeError: config:
    max_relative_positions: got str; expected an integer
config=V1 | {"norm_rel_ebd": ["layer_norm"]}, state_dict=ROWS -> TypeError: config:
    norm_rel_ebd: got list; expected a str
config=V1 | {"max_position_embeddings": 8}, state_dict=ROWS -> ValueError:
    rel_embeddings: got shape (18, 8); expected 2 * 8 rows
config=V2 | {"position_buckets": "4"}, state_dict=ROWS -> TypeError: config:
    position_buckets: got str; expected an integer
config=V2 | {"position_buckets": 4}, state_dict=ROWS -> ValueError: rel_embeddings: got
    shape (18, 8); expected 2 * 4 rows
config={"model_type": "bert", "position_embedding_type": ["a"]} -> TypeError: config:
    position_embedding_type: got list; expected a str
config={"model_type": "swin", "depths": "2"} -> TypeError: config: depths: got str
config=WINDOWS | {"window_size": None}, state_dict=SWIN_V2 -> TypeError: config:
    window_size: got NoneType; expected an integer
config=WINDOWS | {"pretrained_window_sizes": "a"}, state_dict=SWIN_V2 -> TypeError:
    config: pretrained_window_sizes: got str; expected an integer or
config=WINDOWS | {"pretrained_window_sizes": [3]}, state_dict=SWIN_V2, layer=2 ->
    ValueError: config: pretrained_window_sizes has no entry for stage 1
"""
ONE = {"layers.1.relative_position_bias_table": table(11 * 5 + 3, H)}
BOTH = {
    f"{place}.relative_position_bias_table": table(11 * 5 + 3, H)
    for place in ("layers.0", "shared")
}
BEIT = {"model_type": "beit", **IMAGE}
V1 = {"model_type": "deberta", **DEBERTA}
V2 = {"model_type": "deberta-v2", **DEBERTA}
ROWS = own_deberta()
WINDOWS = {"model_type": "swinv2", "depths": [2, 2], "image_size": 32}
WINDOWS |= {"patch_size": 4, "window_size": 6}
GPT_OSS = {"model_type": "gpt_oss"}
SINKS = {"model.layers.0.self_attn.sinks": table(H)}


@pytest.mark.parametrize(("changes", "error", "pattern"), changes(REFUSED, globals()))
def test_what_does_not_fit(changes, error, pattern):
    good = {"config": W2V_CONFIG, "state_dict": W2V, "layer": 1}
    recipes.from_config(**good)
    with pytest.raises(error, match=pattern):
        recipes.from_config(**good | changes)
