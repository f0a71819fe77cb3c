"""Recorded attention cores and rotations, and the calls of relpos that repeat them.

A row of `CORES` says which keywords of relpos the stored arrays become, and how
gradients of relpos become gradients of the stored arrays. Queries and keys of models
that rotate them were recorded after the rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import relpos
from relpos import recipes
from relpos._catalogue.rows import Array, Named, present

Case = dict[str, Any]
Keywords = Callable[[Case], Mapping[str, Any]]
SHARED = {name: name for name in ("query", "key", "value", "position_query", "x")}
SHARED["attn_mask"] = "allowed"
#: Biases that are stored as (bucket, head).
BY_BUCKET = ("weight", "relative_attention_bias")


class Core(NamedTuple):
    """Keywords of a case, gradients that relpos names differently, and the function.

    `gradients` takes the gradients that relpos returned and the case.
    """

    keywords: Keywords
    gradients: Callable[[Named, Case], Named] | None = None
    function: Callable[..., Any] = relpos.attention

    def run(self, case: Case) -> Any:
        """Call the function on the arrays of a case and keep the context."""
        function, keywords = self.call(case)
        return function(**keywords, return_context=True)

    def call(self, case: Case) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Return the function and its keywords: those of every case, then its own."""
        # The names of every case are few; all others are in the row of the case.
        shared = {name: case[key] for name, key in SHARED.items() if key in case}
        return self.function, shared | dict(self.keywords(case))

    def backward(self, result: Any, case: Case) -> dict[str, Array]:
        """Return the gradients by the names under which the case stores them."""
        gradients = dict(present(result.context.backward(case["d_context"])))
        keywords = self.keywords(case)
        if isinstance(keywords, recipes.Recipe):
            # A recipe goes on to gradients of what the model stores.
            gradients |= keywords.backward(gradients)
        for name in BY_BUCKET:
            if name in case:
                # The models store the transpose of `rel_bias`.
                gradients[name] = gradients["rel_bias"].T
        if self.gradients:
            gradients |= self.gradients(gradients, case)
        return gradients


def of(case: Case, *names: str, **more: Any) -> dict[str, Any]:
    """Return arrays of a case by their names, and more keywords."""
    return {name: case[name] for name in names} | more


def transformer_xl(case: Case) -> dict[str, Any]:
    """Return keywords; queries are the last keys, and no memory means causal."""
    # With memory the keys are more than the rows of a causal table.
    is_causal = case["rel_key"].shape[-2] == case["key"].shape[-2]
    return of(case, "rel_key", "pos_bias_u", "pos_bias_v", is_causal=is_causal)


def shaw(case: Case) -> dict[str, Any]:
    """Return both tables; the query is stored after scaling."""
    return of(case, "rel_key", "rel_value", scale=1.0)


def shaw_tied(case: Case) -> dict[str, Any]:
    # The same array is given twice, so that each use has a gradient of its own.
    return dict.fromkeys(("rel_key", "rel_value"), case["rel_key"])


def t5(case: Case) -> dict[str, Any]:
    """Return the bias, which is stored as (bucket, head); scores are not scaled."""
    return of(case, "buckets", rel_bias=case["relative_attention_bias"].T, scale=1.0)


def bert_gradients(gradients: Named, case: Case) -> Named:
    # The model has one table for both, whose gradient is the sum.
    return {"distance_embedding": gradients["rel_key"] + gradients["rel_query"]}


# ---- rotary --------------------------------------------------------------------------


def rotate(x: Array, return_context: bool, **keywords: Any) -> Any:
    """Return `apply_rotary` as a result that has `out` and `context.backward`."""
    # The function is called later, with the gradient alone.
    backward = partial(relpos.apply_rotary_backward, x=x, **keywords)
    context = SimpleNamespace(backward=backward)
    return SimpleNamespace(out=relpos.apply_rotary(x, **keywords), context=context)


def rotate_columns(x: Array, return_context: bool, angles: list[Array]) -> Any:
    """Rotate pairs whose two columns have different angles: half of two rotations."""
    options = {"rotary_dim": 2 * angles[0].shape[-1], "interleaved": True}
    even = rotate(x, return_context, angles=angles[0], **options)
    odd = rotate(x, return_context, angles=angles[1], **options)
    # Rotations are of whole pairs: the even columns are right in one, the odd in the
    # other.
    is_even = np.arange(x.shape[-1]) % 2 == 0

    def backward(grad_out: Array) -> Any:
        # Each rotation gets the gradients of its own columns.
        of_even = even.context.backward(np.where(is_even, grad_out, 0.0))
        of_odd = odd.context.backward(np.where(is_even, 0.0, grad_out))
        return of_even._replace(x=of_even.x + of_odd.x)

    out = np.where(is_even, even.out, odd.out)
    return SimpleNamespace(out=out, context=SimpleNamespace(backward=backward))


def gemma4(case: Case) -> dict[str, Any]:
    """Rotate a quarter of the pairs, with frequencies over the whole width."""
    rope = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
    rope |= {"rope_theta": 1e6}
    config = {"head_dim": case["x"].shape[-1], "rope_parameters": rope}
    return relpos.rotary_from_config(config)._asdict()


def sections(*counts: int, **options: Any) -> Keywords:
    """Return keywords for pairs in sections of time, height and width."""

    def keywords(case: Case) -> Named:
        inv_freq = relpos.rotary_frequencies(case["x"].shape[-1])
        angles = relpos.mrope_angles(case["positions"], inv_freq, counts, **options)
        # The new axis is that of the heads, which share the angles.
        return {"angles": angles[:, None]}

    return keywords


def dinov3(case: Case) -> Named:
    """Return angles of centres of patches in [-1, 1]; 0 for the tokens before them."""
    sides, x = case["grid"], case["x"]
    # Centres of cells are half a cell from the edges.
    centres = 2 * (np.argwhere(np.ones(sides)) + 0.5) / sides - 1
    inv_freq = relpos.rotary_frequencies(x.shape[-1] // 2, base=100.0)
    angles = relpos.axial_angles(2 * np.pi * centres, inv_freq)
    # Angles of 0 leave a token as it is.
    before = np.zeros((x.shape[-2] - len(angles), angles.shape[-1]))
    return {"angles": np.concatenate([before, angles])}


def gemma4_vision(case: Case) -> Named:
    """Rotate half of the columns by a patch's row, the other half by its column."""
    inv_freq = relpos.rotary_frequencies(case["x"].shape[-1], base=100.0)
    angles = relpos.axial_angles(case["positions"], inv_freq)
    # Row and column are an axis before the pairs.
    return {"angles": angles.reshape(*case["x"].shape[:2], 1, 2, len(inv_freq))}


def vjepa2(case: Case) -> dict[str, Any]:
    """Return angles of frame, row and column, which use 3 frequencies twice."""
    inv_freq = np.tile(relpos.rotary_frequencies(6), 2)
    # Columns of a pair have different frequencies: those at even and at odd places.
    pairs = [relpos.axial_angles(case["positions"], inv_freq[n::2]) for n in (0, 1)]
    return {"angles": pairs}


# ---- models with a recipe ------------------------------------------------------------


def recipe(
    function: Callable[..., Any],
    *names: Any,
    gradients: Callable[[Named, Case], Named] | None = None,
    **settings: Any,
) -> Core:
    """Return the core of a recipe.

    A string among its arguments is the name of a stored array, and a function is called
    with the case.
    """

    def keywords(case: Case) -> Any:
        arguments = []
        for name in names:
            # An argument that is no string is a number, or a function of the case.
            argument = case[name] if isinstance(name, str) else name
            arguments.append(argument(case) if callable(argument) else argument)
        return function(*arguments, **settings)

    return Core(keywords, gradients)


def length(case: Case) -> int:
    return int(case["query"].shape[-2])


def width(case: Case) -> int:
    return int(case["query"].shape[-1])


def packed(case: Case) -> dict[str, Any]:
    """Return the range of keys of each document; positions start again with each."""
    # A document begins at position 0, so that the count of zeros so far numbers it.
    ranges = relpos.segment_ranges(np.cumsum(case["position_ids"] == 0, axis=-1))
    return {"key_ranges": ranges, "is_causal": True, "enable_gqa": True}


def forgetting(case: Case) -> dict[str, Any]:
    """Return the decay of each query head; two of these share a key head."""
    return {"log_decay": case["log_decay"], "is_causal": True, "enable_gqa": True}


def vits_gradients(gradients: Named, case: Case) -> Named:
    names = {"emb_rel_k": "rel_key", "emb_rel_v": "rel_value"}
    # The model stores one more axis, of length 1.
    return {
        own: gradients[name].reshape(case[own].shape) for own, name in names.items()
    }


# Swin V2: cosines of queries and keys, and a bias between 0 and 16


def norms(x: Array) -> Any:
    return np.linalg.norm(x, axis=-1, keepdims=True)


def gates(case: Case) -> Any:
    """Return the share of 16 that each bias has, from the output of the network."""
    # The recorded table is the output of the network, before the logistic function.
    return 1 / (1 + np.exp(-case["relative_position_bias_table"]))


def swin_v2(case: Case) -> dict[str, Any]:
    """Return unit queries times the factor of a head, unit keys, and the bias."""
    unit = {name: case[name] / norms(case[name]) for name in ("query", "key")}
    unit["query"] *= np.exp(case["logit_scale"])
    # The factor of the heads is on the queries, hence the scale of 1.
    return {**recipes.swin(16 * gates(case), (2, 2)), **unit, "scale": 1.0}


def swin_v2_gradients(gradients: Named, case: Case) -> Named:
    """Return the gradients of what enters the cosines and the gates."""
    gate = gates(case)
    # The derivative of 16 times the logistic function.
    slope = 16 * gate * (1 - gate)
    back = {"relative_position_bias_table": slope * gradients["rel_bias"].T}
    for name, factor in (("query", np.exp(case["logit_scale"])), ("key", 1.0)):
        # The gradient through x / |x|: what is along x goes, and the remainder is over
        # |x|.
        unit, grad = case[name] / norms(case[name]), factor * gradients[name]
        along = np.sum(unit * grad, axis=-1, keepdims=True)
        back[name] = (grad - along * unit) / norms(case[name])
        if name == "query":
            # exp(s) as a factor has itself as derivative, so that the sum of products
            # is the gradient.
            back["logit_scale"] = along.sum((0, 2), keepdims=True)[0]
    return back


def music(case: Case) -> Named:
    """Return the table of the Music Transformer."""
    return of(case, "rel_key")


XL = Core(transformer_xl, function=relpos.transformer_xl_attention)
MUSIC = Core(music, function=relpos.relative_global_attention)
TIED = Core(shaw_tied, function=relpos.shaw_attention)
GATE = [f"gru_rel_pos_{name}" for name in ("const", "linear_weight", "linear_bias")]

#: In the order of the report.
CORES = {
    "transformer_xl_memory": XL,
    "transformer_xl_same_length": XL,
    "music_article": MUSIC,
    "music_padded": MUSIC,
    "shaw_keys_values": Core(shaw, function=relpos.shaw_attention),
    "shaw_tied_causal": TIED,
    "shaw_tied_wide": TIED,
    "conformer": XL,
    "conformer_cache": XL,
    "t5_encoder": Core(t5),
    "t5_decoder": Core(t5),
    "bert_relative_key": recipe(recipes.bert, "distance_embedding"),
    "bert_relative_key_query": recipe(
        recipes.bert, "distance_embedding", key_query=True, gradients=bert_gradients
    ),
    "umt5": recipe(recipes.umt5, "weight", max_distance=12),
    "beit": recipe(recipes.beit, "relative_position_bias_table", (3, 3)),
    "parakeet": recipe(recipes.parakeet, "bias_u", "bias_v", "relative_k_proj", length),
    "recurrent_gemma": recipe(recipes.recurrent_gemma, "attention_window_size"),
    "gpt_oss": recipe(recipes.gpt_oss, "sinks"),
    "forgetting": Core(forgetting),
    "llama4": recipe(recipes.llama4, length, attention_chunk_size=4),
    "packed": Core(packed),
    "gemma4_rotary": Core(gemma4, function=rotate),
    "qwen3_vl_rotary": Core(sections(4, 2, 2, interleaved=True), function=rotate),
    "dinov3_rotary": Core(dinov3, function=rotate),
    "qwen2_vl_rotary": Core(sections(2, 3, 3), function=rotate),
    "gemma4_vision_rotary": Core(gemma4_vision, function=rotate),
    "vjepa2_rotary": Core(vjepa2, function=rotate_columns),
    "inkling": recipe(recipes.inkling, "proj", width),
    "gemma2": recipe(
        recipes.gemma2, query_pre_attn_scalar=3.0, attn_logit_softcapping=5.0
    ),
    "gemma3n_audio": recipe(
        recipes.gemma3n_audio,
        "per_dim_scale",
        "pos_proj",
        "query",
        context_left=5,
        context_right=2,
        logit_cap=2.0,
    ),
    "gemma4_audio": recipe(
        recipes.gemma4_audio,
        "per_dim_scale",
        "relative_k_proj",
        "query",
        chunk_size=4,
        context_left=5,
        context_right=0,
        logit_cap=5.0,
    ),
    "wavlm": recipe(
        recipes.wavlm, *GATE, "rel_attn_embed", "hidden_states", max_distance=12
    ),
    "vits": recipe(recipes.vits, "emb_rel_k", "emb_rel_v", gradients=vits_gradients),
    "zipformer": recipe(recipes.zipformer, "linear_pos", 1, length, length),
    "wav2vec2_bert": recipe(
        recipes.wav2vec2_bert,
        "distance_embedding",
        left_max_position_embeddings=4,
        right_max_position_embeddings=2,
    ),
    "enformer": recipe(
        recipes.enformer,
        "rel_content_bias",
        "rel_pos_bias",
        "to_rel_k",
        length,
        gamma_maximum="features",  # the port's, of which the case was recorded
    ),
    "mpnet": recipe(recipes.mpnet, "weight"),
    "longt5_local": recipe(recipes.longt5_local, "weight", 3, max_distance=6),
    "layoutlmv3": recipe(
        recipes.layoutlmv3,
        "rel_pos_bias",
        "rel_pos_x_bias",
        "rel_pos_y_bias",
        "position_ids",
        "bbox",
        width,
        max_rel_pos=12,
        max_rel_2d_pos=40,
    ),
    "sam": recipe(recipes.sam, "rel_pos_h", "rel_pos_w", (2, 2)),
    "swin_v2": Core(swin_v2, swin_v2_gradients),
}
