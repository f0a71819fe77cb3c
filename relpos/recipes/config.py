"""The recipe of a model by its Hugging Face configuration and its state_dict."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_choice,
    as_int,
    as_ints,
    as_real,
    check_shape,
    kind_of,
    quiet,
)
from relpos._encodings.rotary_config import as_config
from relpos.recipes._recipe import Keywords, as_length, projected
from relpos.recipes._tensors import (
    as_floating,
    check_kinds,
    doubles,
    like,
    on_tensors,
)
from relpos.recipes.decoders import gemma2, gpt_oss, inkling, recurrent_gemma
from relpos.recipes.images import as_window, beit, sam, swin, swin_v2
from relpos.recipes.speech import vits, wav2vec2_bert
from relpos.recipes.text import bert, deberta, longt5_local, mpnet, t5

__all__ = ["from_config"]


class _Model(NamedTuple):
    """A configuration, weights by name, and the number of a layer."""

    config: Mapping[str, Any]
    state: Mapping[str, Any]
    layer: int

    def setting(self, name: str, *default: Any) -> Any:
        """Return a value of the configuration, which is required without a default."""
        if name not in self.config and not default:
            raise ValueError(
                f"config: has no {name}; expected that of a whole "
                f"{self.config['model_type']} model"
            )
        return self.config.get(name, *default)

    def number(self, name: str, *default: int, least: int | None = 1) -> int:
        return as_int(f"config: {name}", self.setting(name, *default), least)

    def text(self, name: str, default: str) -> str:
        """Return a text of the configuration; None stands for the default."""
        value = self.setting(name, None)
        if not isinstance(value, str | None):
            raise TypeError(f"config: {name}: got {kind_of(value)}; expected a str")
        return default if value is None else value

    def has(self, ending: str) -> bool:
        return bool(self._names(ending))

    def weight(self, ending: str) -> Any:
        """Return the weight whose name ends so, of the layer or of all layers."""
        names = self._names(ending)
        if len(names) != 1:
            found = f"{len(names)} names that end" if names else "no name that ends"
            raise ValueError(
                f"state_dict: {found} with {ending!r} for layer {self.layer}; expected "
                f"that of one {self.config['model_type']} model"
            )
        return self.state[names[0]]

    def _names(self, ending: str) -> list[str]:
        """Return names of this layer, whose number comes first, else of no layer."""
        # The ending begins at a dot of the name, so that it is not the end of a longer
        # word.
        pattern = re.compile(rf"(?:.*\.)?{ending}")
        fits = [name for name in self.state if pattern.fullmatch(name)]
        # The first number in a name is that of the layer; later ones are of its parts.
        numbers = {name: re.search(r"(?:^|\.)(\d+)\.", name) for name in fits}
        own = [n for n, m in numbers.items() if m and int(m[1]) == self.layer]
        shared = [n for n, m in numbers.items() if not m]
        if own and shared:  # which a model adds
            raise ValueError(
                f"state_dict: got {own[0]!r} and {shared[0]!r}; expected a table of "
                f"layer {self.layer} or one of all layers (for both, pass their sum as "
                "one of them)"
            )
        return own or shared

    def sliding(self, window: str, *kinds: str) -> int | None:
        """Return the window of the layer if it is of the first of the two kinds."""
        types = self.setting("layer_types")
        is_list = isinstance(types, Sequence) and not isinstance(types, str)
        if not is_list or self.layer >= len(types):
            raise ValueError(f"config: layer_types has no entry for layer {self.layer}")
        if as_choice("config: layer_types", types[self.layer], kinds) != kinds[0]:
            return None
        return as_length(f"config: {window}", self.setting(window))


# ---- text ----------------------------------------------------------------------------


def _bert(model: _Model) -> Keywords:
    kinds = {"relative_key": False, "relative_key_query": True}
    kind = model.text("position_embedding_type", "absolute")
    if kind not in kinds:
        return {}  # positions are in the tokens
    return bert(model.weight(r"distance_embedding\.weight"), key_query=kinds[kind])


def _buckets(model: _Model) -> Keywords:
    return {
        "num_buckets": model.setting("relative_attention_num_buckets", 32),
        "max_distance": model.setting("relative_attention_max_distance", 128),
    }


def _is_encoder(model: _Model) -> bool:
    return not model.setting("is_decoder", False)


def _bucket_weight(model: _Model) -> Any:
    """Return that of the encoder, unless the configuration is of a decoder."""
    # A model with both stacks has the table of each; a part of a model has one.
    name = r"relative_attention_bias\.weight"
    of_stack = rf"{'encoder' if _is_encoder(model) else 'decoder'}\..*{name}"
    return model.weight(of_stack if model.has(of_stack) else name)


def _umt5(model: _Model) -> Keywords:
    weight = _bucket_weight(model)
    return t5(weight, bidirectional=_is_encoder(model), **_buckets(model))


def _t5(model: _Model) -> Keywords:
    return _umt5(model._replace(layer=0))  # whose weight is that of all layers


def _longt5(model: _Model) -> Keywords:
    if not _is_encoder(model):
        # The decoder's attention is T5's, whatever the encoder's is.
        return _t5(model)
    if model.setting("encoder_attention_type") != "local":
        raise ValueError(
            "config: encoder_attention_type is not 'local'; its global tokens have no "
            "recipe"
        )
    weight = _bucket_weight(model._replace(layer=0))
    return longt5_local(weight, model.setting("local_radius"), **_buckets(model))


def _mpnet(model: _Model) -> Keywords:
    weight = model.weight(r"relative_attention_bias\.weight")
    return mpnet(weight, num_buckets=_buckets(model)["num_buckets"])


#: The projection for a term, where the layer has projections for positions alone.
_OWN = {
    "deberta": {"c2p": "pos_proj", "p2c": "pos_q_proj"},
    "deberta-v2": {"c2p": "pos_key_proj", "p2c": "pos_query_proj"},
}
_SHARED = {"c2p": "key_proj", "p2c": "query_proj"}


def _deberta(model: _Model) -> Keywords:
    kind = model.config["model_type"]
    if model.setting("talking_head", False):
        raise ValueError("config: talking_head is set; expected a model without it")
    # Older configurations have one text, "c2p|p2c".
    types = model.setting("pos_att_type", None) or []
    types = types.split("|") if isinstance(types, str) else types
    if not isinstance(types, Collection) or not all(t in [*_SHARED] for t in types):
        raise ValueError(f"config: pos_att_type is {types}; expected c2p, p2c or both")
    if not types:
        return {}
    if not model.setting("relative_attention", False):
        # the terms that are named count in the scale all the same
        head_dim = model.number("hidden_size") // model.number("num_attention_heads")
        return {"scale": ((1 + len(types)) * head_dim) ** -0.5}
    # Shared projections are those of the content.
    shared = kind == "deberta-v2" and model.setting("share_att_key", False)
    names = _SHARED if shared else _OWN[kind]
    rows, reach = _embeddings(model)
    # The recipe takes the tables projected, and the state has the embeddings.
    tables = {term: _project(model, names[term], rows) for term in types}
    return deberta(tables.get("c2p"), tables.get("p2c"), max_position=reach)


@quiet
def _embeddings(model: _Model) -> tuple[Array, int | None]:
    """Return the embeddings, normalised as the model does, and the buckets' reach."""
    rows = as_floating("rel_embeddings", model.weight(r"rel_embeddings\.weight"))
    reach = model.number("max_relative_positions", -1, least=None)
    # A value below 1 means that the model has no length of its own for relative
    # positions.
    if reach < 1:
        reach = model.number("max_position_embeddings")
    buckets = 0
    if model.config["model_type"] == "deberta-v2":
        buckets = model.number("position_buckets", -1, least=None)
    # Twice the span is the number of rows, by buckets or by distances.
    span = buckets if buckets > 0 else reach
    fits = len(rows) == 2 * span
    check_shape("rel_embeddings", rows, fits, f"2 * {span} rows, as config has them")
    if "layer_norm" in model.text("norm_rel_ebd", "none").lower():
        weight, bias = (
            model.weight(rf"encoder\.LayerNorm\.{part}") for part in ("weight", "bias")
        )
        # The layer norm of the model, in float64: the mean of squares without
        # correction.
        eps = as_real("config: layer_norm_eps", model.setting("layer_norm_eps"))
        check_kinds({"rel_embeddings": rows, "weight": weight, "bias": bias})
        x = doubles(rows)
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / ((x * x).mean(axis=-1, keepdims=True) + eps) ** 0.5
        rows = like(x * weight + bias, rows)
    return rows, reach if buckets > 0 else None


@quiet
def _project(model: _Model, name: str, rows: Array) -> Any:
    heads = model.number("num_attention_heads")
    weight = as_floating(name, model.weight(rf"attention\.self\.{name}\.weight"))
    check_kinds({"rel_embeddings": rows, name: weight})
    table = projected(weight, rows, heads)
    ending = rf"attention\.self\.{name}\.bias"
    if model.has(ending):
        bias = as_floating(name, model.weight(ending))
        check_kinds({name: weight, f"{name}.bias": bias})
        # A bias has one number for each head and column: (H, 1, D).
        table = table + bias.reshape(heads, 1, -1)
    return table


# ---- images --------------------------------------------------------------------------


def _patches(model: _Model) -> list[int]:
    names = "image_size", "patch_size"
    image, patch = (as_window(f"config: {n}", model.setting(n), 1) for n in names)
    return [a // b for a, b in zip(image, patch, strict=True)]


def _beit(model: _Model) -> Keywords:
    return beit(model.weight("relative_position_bias_table"), _patches(model))


def _block(model: _Model) -> tuple[_Model, str]:
    """Return the model with the stage as layer, and the names of the given layer."""
    block = model.layer
    # Layers are counted through all stages, and names count blocks in each stage.
    depths = as_ints("config: depths", model.setting("depths"), 0, POSITION_LIMIT)
    for stage, depth in enumerate(depths):
        if block < depth:
            return model._replace(layer=stage), rf"layers\.{stage}\.blocks\.{block}\."
        block -= depth
    raise ValueError(f"layer: got {model.layer}; expected one of the model's layers")


def _swin(model: _Model) -> Keywords:
    stage, names = _block(model)
    table = stage.weight(rf"{names}.*relative_position_bias_table")
    # A square window of side n has (2n - 1)^2 rows.
    side = (math.isqrt(len(table)) + 1) // 2
    return swin(table, (side, side))


def _swin_v2(model: _Model) -> Keywords:
    stage, names = _block(model)
    w1, b1, w2 = (
        stage.weight(rf"{names}.*continuous_position_bias_mlp\.{part}")
        for part in (r"0\.weight", r"0\.bias", r"2\.weight")
    )
    # a stage with fewer rows than the window has windows of that many rows, square
    side = min(_patches(model)[0] // 2**stage.layer, model.number("window_size"))
    name = "pretrained_window_sizes"
    given = model.setting(name, None) or []
    trained = as_ints(f"config: {name}", given, 0, POSITION_LIMIT)
    if trained and stage.layer >= len(trained):
        raise ValueError(f"config: {name} has no entry for stage {stage.layer}")
    pretrained = trained[stage.layer] if trained else None
    return swin_v2(w1, b1, w2, side, pretrained_window=pretrained)


def _sam(model: _Model) -> Keywords:
    height, width = (model.weight(f"rel_pos_{axis}") for axis in "hw")
    # A table of R rows is of n = (R + 1) / 2 cells, which is the grid without resizing.
    return sam(height, width, [(len(table) + 1) // 2 for table in (height, width)])


# ---- speech and decoders -------------------------------------------------------------


def _vits(model: _Model) -> Keywords:
    return vits(*(model.weight(rf"attention\.emb_rel_{x}") for x in "kv"))


def _wav2vec2_bert(model: _Model) -> Keywords:
    kind = model.setting("position_embeddings_type", "relative_key")
    if kind != "relative_key":
        raise ValueError(
            f"config: position_embeddings_type is {kind!r}; expected 'relative_key' "
            "(for 'relative', recipes.parakeet takes a length)"
        )
    sides = (f"{side}_max_position_embeddings" for side in ("left", "right"))
    settings = {name: model.setting(name) for name in sides}
    return wav2vec2_bert(model.weight(r"distance_embedding\.weight"), **settings)


#: Values of ``layer_types``: of layers with a window, and of those without.
_TYPES = "sliding_attention", "full_attention"


def _gpt_oss(model: _Model) -> Keywords:
    window = model.sliding("sliding_window", *_TYPES)
    return gpt_oss(model.weight(r"self_attn\.sinks"), sliding_window=window)


def _gemma2(model: _Model) -> Keywords:
    names = "query_pre_attn_scalar", "attn_logit_softcapping"
    settings = {name: model.setting(name) for name in names}
    if model.setting("layer_types", None) is None:  # every second layer is full
        # Only layers of the model have an entry, so that a number beyond them is an
        # error.
        count = min(model.number("num_hidden_layers"), model.layer + 1)
        types = [_TYPES[layer % 2] for layer in range(count)]
        model = model._replace(config={**model.config, "layer_types": types})
    window = model.sliding("sliding_window", *_TYPES)
    return gemma2(sliding_window=window, **settings)


def _recurrent_gemma(model: _Model) -> Keywords:
    # The name changed; an older configuration has the first one.
    older = model.setting("attention_window_size", None)
    return recurrent_gemma(older or model.setting("sliding_window"))


def _inkling(model: _Model) -> Keywords:
    window = model.sliding("sliding_window_size", "hybrid_sliding", "hybrid")
    # Layers with a window have heads of their own width.
    dim = model.setting("swa_head_dim" if window else "head_dim")
    return inkling(model.weight(r"rel_logits_proj\.proj"), dim, window=window)


#: By model_type, several of which may share a recipe.
_MODELS: dict[str, Callable[[_Model], Keywords]] = {
    **dict.fromkeys(("beit", "data2vec-vision"), _beit),
    "bert": _bert,
    **dict.fromkeys(("deberta", "deberta-v2"), _deberta),
    "gemma2": _gemma2,
    "gpt_oss": _gpt_oss,
    **dict.fromkeys(("inkling_mm_model", "inkling_text"), _inkling),
    "longt5": _longt5,
    "mpnet": _mpnet,
    "recurrent_gemma": _recurrent_gemma,
    **dict.fromkeys(
        ("sam", "sam_hq", "sam_hq_vision_model", "sam_vision_model", "vitdet"), _sam
    ),
    **dict.fromkeys(("donut-swin", "maskformer-swin", "swin"), _swin),
    "swinv2": _swin_v2,
    **dict.fromkeys(("mt5", "pop2piano", "switch_transformers", "t5"), _t5),
    "umt5": _umt5,
    "vits": _vits,
    **dict.fromkeys(("seamless_m4t_v2", "wav2vec2-bert"), _wav2vec2_bert),
}
#: Recipes that take more than the weights of a layer, by model_type.
_CALLED: dict[str, str] = {
    "gemma3n_audio": "recipes.gemma3n_audio, which takes the query",
    "gemma4_audio": "recipes.gemma4_audio, which takes the query",
    "layoutlmv3": "recipes.layoutlmv3, which takes positions and boxes",
    "wavlm": "recipes.wavlm, which takes the input of the layer",
    "xlnet": "recipes.xlnet, which takes the lengths",
    **dict.fromkeys(
        ("llama4", "llama4_text"), "recipes.llama4, which takes the lengths"
    ),
    **dict.fromkeys(
        ("parakeet_ctc", "parakeet_encoder", "parakeet_rnnt", "parakeet_tdt"),
        "recipes.parakeet, which takes the length",
    ),
}
#: The part of a configuration that describes the attention.
_PARTS = {"inkling_mm_model": "text_config"}
_PARTS |= dict.fromkeys(("sam", "sam_hq"), "vision_config")


@on_tensors
def from_config(
    config: Mapping[str, Any] | object, state_dict: Mapping[str, Any], layer: int = 0
) -> Keywords:
    r"""The recipe of a model, by its Hugging Face configuration and its weights.

    .. math:: s_{ij} = q_i k_j / \sqrt D + \dots \text{ as the recipe of the model says}

    ``attention(q, k, v, **from_config(model.config, state_dict, layer))``

    Parameters
    ----------
    config : dict or configuration of transformers
        The values of config.json; its ``model_type`` chooses the recipe.
    state_dict : mapping of str to array_like or tensor
        Weights of the whole model or of any part that has those of the layer, under
        their names there. Of arrays, the result has arrays; of tensors of PyTorch it
        has tensors, with the gradients of those that require one.
    layer : int, default 0
        The layer; in a model of stages (Swin Transformer) counted through all.

    Returns
    -------
    dict
        Arguments of `attention`, as the recipe returns them; none where a BERT has its
        positions in the tokens. For T5 and related models they are those of the
        encoder, unless the configuration has ``is_decoder``. DeBERTa's tables are
        projected by the layer's weights.

    Raises
    ------
    ValueError
        If the ``model_type`` has no recipe (the message lists those that have one) or
        one that has to be called, the configuration lacks a value, or not one weight
        fits.

    See Also
    --------
    relpos.rotary_from_config : The rotation of queries and keys, if there is one.

    Notes
    -----
    Recipes that take an input, a length or positions have to be called themselves:
    `xlnet`, `wavlm`, `zipformer`, `parakeet`, `gemma3n_audio` and others. Without
    ``layer_types``, layers 0, 2, .. of Gemma 2 have the window. Full layers
    of Inkling multiply the query and the position query by `inkling_temperature`, if
    the configuration has a ``log_scaling_n_floor``.

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
        expected = f"one of {', '.join(map(repr, sorted(_MODELS)))}"
        if isinstance(kind, str) and kind in _CALLED:
            expected = f"a call of {_CALLED[kind]}"
        raise ValueError(f"config: got model_type {kind!r}; expected {expected}")
    # Other models have the values of the attention at the top.
    part = values.get(_PARTS.get(kind, ""))
    if part is not None:
        # Settings come from the part, and the recipe is chosen by the whole model's
        # type.
        values = {**as_config(part), "model_type": kind}
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"state_dict: got {kind_of(state_dict)}; expected a mapping of names to "
            "arrays"
        )
    number = as_length("layer", layer, 0)
    return _MODELS[kind](_Model(values, state_dict, number))
