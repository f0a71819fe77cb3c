"""The recipe of a model by its Hugging Face configuration and its state_dict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from relpos._checks import POSITION_LIMIT, as_int, kind_of
from relpos._encodings.rotary_config import as_config
from relpos.recipes._deberta import deberta_of
from relpos.recipes._model import Model
from relpos.recipes._tables import Keywords
from relpos.recipes.beit import beit
from relpos.recipes.buckets import longt5_local, mpnet, umt5
from relpos.recipes.decoders import gemma2, gpt_oss, recurrent_gemma
from relpos.recipes.grids import swin
from relpos.recipes.inkling import inkling
from relpos.recipes.sam import sam
from relpos.recipes.sequences import bert, t5
from relpos.recipes.speech import vits, wav2vec2_bert
from relpos.recipes.swin_v2 import swin_v2

__all__ = ["from_config"]


def _bert(model: Model) -> Keywords:
    kinds = {"relative_key": False, "relative_key_query": True}
    kind = model.setting("position_embedding_type", "absolute")
    if kind not in kinds:
        return {}  # positions are in the tokens
    return bert(model.weight(r"distance_embedding\.weight"), key_query=kinds[kind])


def _buckets(model: Model) -> Keywords:
    return {
        "num_buckets": model.setting("relative_attention_num_buckets", 32),
        "max_distance": model.setting("relative_attention_max_distance", 128),
    }


def _is_encoder(model: Model) -> bool:
    return not model.setting("is_decoder", False)


def _bucket_weight(model: Model) -> Any:
    """Of the encoder, unless the configuration is that of a decoder."""
    name = r"relative_attention_bias\.weight"
    of_stack = rf"{'encoder' if _is_encoder(model) else 'decoder'}\..*{name}"
    return model.weight(of_stack if model.has(of_stack) else name)


def _t5(model: Model) -> Keywords:
    """The first layer's weight serves all."""
    weight = _bucket_weight(model._replace(layer=0))
    return t5(weight, bidirectional=_is_encoder(model), **_buckets(model))


def _umt5(model: Model) -> Keywords:
    weight = _bucket_weight(model)
    return umt5(weight, bidirectional=_is_encoder(model), **_buckets(model))


def _longt5(model: Model) -> Keywords:
    if not _is_encoder(model):
        return _t5(model)
    if model.setting("encoder_attention_type") != "local":
        raise ValueError(
            "config: encoder_attention_type is not 'local'; its global tokens have no "
            "recipe"
        )
    weight = _bucket_weight(model._replace(layer=0))
    return longt5_local(weight, model.setting("local_radius"), **_buckets(model))


def _mpnet(model: Model) -> Keywords:
    weight = model.weight(r"relative_attention_bias\.weight")
    count = model.setting("relative_attention_num_buckets", 32)
    return mpnet(weight, num_buckets=count)


def _patches(model: Model) -> list[int]:
    sizes = (model.setting(name) for name in ("image_size", "patch_size"))
    image, patch = ([n, n] if isinstance(n, int) else list(n) for n in sizes)
    return [a // b for a, b in zip(image, patch, strict=True)]


def _beit(model: Model) -> Keywords:
    return beit(model.weight("relative_position_bias_table"), _patches(model))


def _block(model: Model) -> tuple[int, str]:
    """The stage of the layer, layers counted through all stages, and its names."""
    block = model.layer
    for stage, depth in enumerate(model.setting("depths")):
        if block < depth:
            return stage, rf"layers\.{stage}\.blocks\.{block}\."
        block -= depth
    raise ValueError(f"layer: got {model.layer}; expected one of the model's layers")


def _swin(model: Model) -> Keywords:
    stage, names = _block(model)
    at_stage = model._replace(layer=stage)
    table = at_stage.weight(rf"{names}.*relative_position_bias_table")
    side = (math.isqrt(len(table)) + 1) // 2
    return swin(table, (side, side))


def _swin_v2(model: Model) -> Keywords:
    """A stage smaller than the window is one window."""
    stage, names = _block(model)
    at_stage = model._replace(layer=stage)
    w1, b1, w2 = (
        at_stage.weight(rf"{names}.*continuous_position_bias_mlp\.{part}")
        for part in (r"0\.weight", r"0\.bias", r"2\.weight")
    )
    window = model.setting("window_size")
    sides = [min(n // 2**stage, window) for n in _patches(model)]
    trained = model.setting("pretrained_window_sizes", None)
    pretrained = trained[stage] if trained else None
    return swin_v2(w1, b1, w2, sides, pretrained_window=pretrained)


def _sam(model: Model) -> Keywords:
    height, width = (model.weight(f"rel_pos_{axis}") for axis in "hw")
    return sam(height, width, [(len(table) + 1) // 2 for table in (height, width)])


def _vits(model: Model) -> Keywords:
    return vits(*(model.weight(rf"attention\.emb_rel_{x}") for x in "kv"))


def _wav2vec2_bert(model: Model) -> Keywords:
    kind = model.setting("position_embeddings_type", "relative_key")
    if kind != "relative_key":
        raise ValueError(
            f"config: position_embeddings_type is {kind!r}; expected 'relative_key' "
            "(for 'relative', recipes.parakeet takes a length)"
        )
    sides = ("left_max_position_embeddings", "right_max_position_embeddings")
    settings = {name: model.setting(name) for name in sides}
    return wav2vec2_bert(model.weight(r"distance_embedding\.weight"), **settings)


def _gpt_oss(model: Model) -> Keywords:
    window = model.sliding("sliding_attention", "sliding_window")
    return gpt_oss(model.weight(r"self_attn\.sinks"), sliding_window=window)


def _gemma2(model: Model) -> Keywords:
    names = "query_pre_attn_scalar", "attn_logit_softcapping"
    settings = {name: model.setting(name) for name in names}
    window = model.sliding("sliding_attention", "sliding_window")
    return gemma2(sliding_window=window, **settings)


def _recurrent_gemma(model: Model) -> Keywords:
    older = model.setting("attention_window_size", None)
    return recurrent_gemma(older or model.setting("sliding_window"))


def _inkling(model: Model) -> Keywords:
    window = model.sliding("hybrid_sliding", "sliding_window_size")
    dim = model.setting("swa_head_dim" if window else "head_dim")
    return inkling(model.weight(r"rel_logits_proj\.proj"), dim, window=window)


#: By model_type.
_MODELS: dict[str, Callable[[Model], Keywords]] = {
    "beit": _beit,
    "bert": _bert,
    "data2vec-vision": _beit,
    "deberta": deberta_of,
    "deberta-v2": deberta_of,
    "donut-swin": _swin,
    "gemma2": _gemma2,
    "gpt_oss": _gpt_oss,
    "inkling_mm_model": _inkling,
    "inkling_text": _inkling,
    "longt5": _longt5,
    "maskformer-swin": _swin,
    "mpnet": _mpnet,
    "mt5": _t5,
    "pop2piano": _t5,
    "recurrent_gemma": _recurrent_gemma,
    "sam": _sam,
    "sam_hq": _sam,
    "sam_hq_vision_model": _sam,
    "sam_vision_model": _sam,
    "seamless_m4t_v2": _wav2vec2_bert,
    "swin": _swin,
    "swinv2": _swin_v2,
    "switch_transformers": _t5,
    "t5": _t5,
    "umt5": _umt5,
    "vitdet": _sam,
    "vits": _vits,
    "wav2vec2-bert": _wav2vec2_bert,
}
#: Recipes that take more than the weights of a layer, by model_type.
_CALLED: dict[str, str] = {
    "gemma3n_audio": "recipes.gemma3n_audio, which takes the query",
    "gemma4_audio": "recipes.gemma4_audio, which takes the query",
    "layoutlmv3": "recipes.layoutlmv3, which takes positions and boxes",
    "llama4": "recipes.llama4, which takes the lengths",
    "llama4_text": "recipes.llama4, which takes the lengths",
    "parakeet_ctc": "recipes.parakeet, which takes the length",
    "parakeet_encoder": "recipes.parakeet, which takes the length",
    "parakeet_rnnt": "recipes.parakeet, which takes the length",
    "parakeet_tdt": "recipes.parakeet, which takes the length",
    "wavlm": "recipes.wavlm, which takes the input of the layer",
    "xlnet": "recipes.xlnet, which takes the lengths",
}
#: The part of a configuration that describes the attention.
_PARTS = {
    "inkling_mm_model": "text_config",
    "sam": "vision_config",
    "sam_hq": "vision_config",
}


def from_config(
    config: Mapping[str, Any] | object, state_dict: Mapping[str, Any], layer: int = 0
) -> Keywords:
    r"""The recipe of a model, by its Hugging Face configuration and its weights.

    .. math:: s_{ij} = q_i k_j / \sqrt D + \dots \text{ as the recipe of the model says}

    ``attention(q, k, v, **from_config(model.config, state_dict, layer))``

    Parameters
    ----------
    config : dict or configuration of transformers
        What config.json says; its ``model_type`` chooses the recipe.
    state_dict : mapping of str to array_like or tensor
        Weights of the whole model or of any part that has those of the layer, under
        their names there; tensors of PyTorch become arrays, bfloat16 float32.
    layer : int, default 0
        Which layer; in a model of stages (Swin Transformer) counted through all.

    Returns
    -------
    dict
        Arguments of `attention`, as the recipe returns them; none where a BERT has its
        positions in the tokens. Of T5 and its kin those of the encoder, unless the
        configuration has ``is_decoder``. DeBERTa's tables are projected by the layer's
        weights.

    Raises
    ------
    TypeError
        If an argument is of another kind.
    ValueError
        If the ``model_type`` has no recipe (the message lists those that have one) or
        one that has to be called, the configuration lacks a value, or not one weight
        fits.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.rotary_from_config : What queries and keys go through before.

    Notes
    -----
    Recipes that take an input, a length or places have to be called themselves:
    `xlnet`, `wavlm`, `zipformer`, `parakeet`, `gemma3n_audio` and others.

    References
    ----------
    .. [1] Wolf et al., "HuggingFace's Transformers: State-of-the-art Natural Language
       Processing", 2019, arXiv:1910.03771.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> state = {"mpnet.encoder.relative_attention_bias.weight": np.zeros((32, 12))}
    >>> sorted(recipes.from_config({"model_type": "mpnet"}, state))
    ['buckets', 'rel_bias']
    """
    values = as_config(config)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in _MODELS:
        if isinstance(kind, str) and kind in _CALLED:
            raise ValueError(
                f"config: got model_type {kind!r}; expected a call of {_CALLED[kind]}"
            )
        raise ValueError(
            f"config: got model_type {kind!r}; expected one of "
            f"{', '.join(map(repr, _MODELS))}"
        )
    part = values.get(_PARTS.get(kind, ""))
    if part is not None:
        values = {**as_config(part), "model_type": kind}
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"state_dict: got {kind_of(state_dict)}; expected a mapping of names to "
            "arrays"
        )
    number = as_int("layer", layer, 0, POSITION_LIMIT)
    return _MODELS[kind](Model(values, state_dict, number))
