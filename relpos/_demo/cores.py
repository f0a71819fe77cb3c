"""Recorded attention cores and rotations, and the calls of relpos that repeat them.

A row of `CORES` says which keywords of relpos the stored arrays become, and how
gradients of relpos become gradients of the stored arrays. models.py has more rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import relpos
from relpos import recipes
from relpos._catalogue.rows import Array, Named, present

__all__ = ["CORES", "ROTARY", "Case", "Core", "by_bucket", "of"]

Case = dict[str, Any]
Keywords = Callable[[Case], Mapping[str, Any]]
SHARED = {name: name for name in ("query", "key", "value", "position_query", "x")}


class Core(NamedTuple):
    """A title, keywords of a case, and gradients that relpos names differently.

    `gradients` takes the gradients that relpos returned and the case.
    """

    title: str
    keywords: Keywords
    gradients: Callable[[Named, Case], Named] | None = None
    function: Callable[..., Any] = relpos.attention

    def run(self, case: Case) -> Any:
        """Call the function on the arrays of a case and keep the context."""
        function, keywords = self.call(case)
        return function(**keywords, return_context=True)

    def call(self, case: Case) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Return the function and its keywords: those of every case, then its own."""
        shared = SHARED | ({} if "x" in case else {"attn_mask": "allowed"})
        given = {name: case.get(stored) for name, stored in shared.items()}
        given = {name: x for name, x in given.items() if x is not None}
        return self.function, {**given, **self.keywords(case)}

    def backward(self, result: Any, case: Case) -> dict[str, Array]:
        """Return the gradients by the names under which the case stores them."""
        found = dict(present(result.context.backward(case["d_context"])))
        keywords = self.keywords(case)
        if isinstance(keywords, recipes.Recipe):
            found.update(keywords.backward(found))
        if self.gradients:
            found.update(self.gradients(found, case))
        return found


def of(case: Case, *names: str, **more: Any) -> dict[str, Any]:
    """Return stored arrays whose names are those of keywords, and more keywords."""
    return {**{name: case[name] for name in names}, **more}


def by_bucket(name: str) -> Callable[[Named, Case], Named]:
    """Return a conversion: the gradient of a bias as (bucket, head)."""
    return lambda found, case: {name: found["rel_bias"].T}


def transformer_xl(case: Case) -> dict[str, Any]:
    """Queries are the last of the keys, and without memory the core is causal."""
    is_causal = case["rel_key"].shape[-2] == case["key"].shape[-2]
    return of(case, "rel_key", "pos_bias_u", "pos_bias_v", is_causal=is_causal)


def shaw_tied(case: Case) -> dict[str, Any]:
    """One table serves keys and values."""
    return dict.fromkeys(("rel_key", "rel_value"), case["rel_key"])


def t5(case: Case) -> dict[str, Any]:
    """The bias is stored as (bucket, head), and scores are not scaled."""
    return of(case, "buckets", rel_bias=case["relative_attention_bias"].T, scale=1.0)


def bert(case: Case) -> Named:
    """The stored table counts query minus key, and relpos counts key minus query."""
    return {"rel_key": case["distance_embedding"][::-1]}


def bert_queries(case: Case) -> Named:
    """The same table serves keys and queries."""
    return dict.fromkeys(("rel_key", "rel_query"), case["distance_embedding"][::-1])


# ---- rotary --------------------------------------------------------------------------


def rotate(x: Array, return_context: bool, **keywords: Any) -> Any:
    """Return `apply_rotary` as a result that has `out` and `context.backward`."""

    def backward(grad_out: Array) -> relpos.RotaryGradients:
        return relpos.apply_rotary_backward(grad_out, x, **keywords)

    context = SimpleNamespace(backward=backward)
    return SimpleNamespace(out=relpos.apply_rotary(x, **keywords), context=context)


def rotate_columns(x: Array, return_context: bool, angles: list[Array]) -> Any:
    """Rotate pairs whose two columns have different angles: half of two rotations."""
    rest: dict[str, Any] = {"rotary_dim": 2 * angles[0].shape[-1], "interleaved": True}
    rotated = [rotate(x, return_context, angles=each, **rest) for each in angles]
    own = [np.arange(x.shape[-1]) % 2 == n for n in (0, 1)]

    def backward(grad_out: Array) -> Any:
        even, odd = (
            each.context.backward(np.where(mask, grad_out, 0.0))
            for each, mask in zip(rotated, own, strict=True)
        )
        return even._replace(x=even.x + odd.x)

    out = np.where(own[0], rotated[0].out, rotated[1].out)
    return SimpleNamespace(out=out, context=SimpleNamespace(backward=backward))


def gemma4(case: Case) -> dict[str, Any]:
    """A quarter of the pairs is rotated, with frequencies over the whole width."""
    rope = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
    rope |= {"rope_theta": 1e6}
    config = {"head_dim": case["x"].shape[-1], "rope_parameters": rope}
    return relpos.rotary_from_config(config)._asdict()


def sections(*counts: int, **options: Any) -> Keywords:
    """Return keywords for pairs in sections of time, height and width."""

    def keywords(case: Case) -> Named:
        inv_freq = relpos.rotary_frequencies(case["x"].shape[-1])
        angles = relpos.mrope_angles(case["positions"], inv_freq, counts, **options)
        return {"angles": angles[:, None]}

    return keywords


def dinov3(case: Case) -> Named:
    """Centres of patches are in [-1, 1]; the tokens before them are not rotated."""
    sides, x = case["grid"], case["x"]
    centres = 2 * (np.argwhere(np.ones(sides)) + 0.5) / sides - 1
    inv_freq = relpos.rotary_frequencies(x.shape[-1] // 2, base=100.0)
    angles = relpos.axial_angles(2 * np.pi * centres, inv_freq)
    before = np.zeros((x.shape[-2] - len(angles), angles.shape[-1]))
    return {"angles": np.concatenate([before, angles])}


def gemma4_vision(case: Case) -> Named:
    """One half of the columns is rotated by a patch's row, the other by its column."""
    inv_freq = relpos.rotary_frequencies(case["x"].shape[-1], base=100.0)
    angles = relpos.axial_angles(case["positions"], inv_freq)
    return {"angles": angles.reshape(*case["x"].shape[:2], 1, 2, len(inv_freq))}


def vjepa2(case: Case) -> dict[str, Any]:
    """Frame, row and column have 6 columns each, with 3 frequencies used twice."""
    inv_freq = np.tile(relpos.rotary_frequencies(6), 2)
    pairs = [relpos.axial_angles(case["positions"], inv_freq[n::2]) for n in (0, 1)]
    return {"angles": pairs}


def rotary(title: str, keywords: Keywords, function: Any = rotate) -> Core:
    """Return the row of a rotation."""
    return Core(title, keywords, function=function)


SHAW: dict[str, Any] = {"function": relpos.shaw_attention}
XL: dict[str, Any] = {"function": relpos.transformer_xl_attention}
MUSIC: dict[str, Any] = {"function": relpos.relative_global_attention}

CORES = {
    "transformer_xl_memory": Core("Transformer-XL, 16 of memory", transformer_xl, **XL),
    "transformer_xl_same_length": Core(
        "Transformer-XL, same_length", transformer_xl, **XL
    ),
    "music_article": Core("Music Transformer", lambda c: of(c, "rel_key"), **MUSIC),
    "music_padded": Core(
        "Music Transformer, padded", lambda c: of(c, "rel_key"), **MUSIC
    ),
    "shaw_keys_values": Core(  # the query is stored after scaling
        "Shaw, keys and values",
        lambda c: of(c, "rel_key", "rel_value", scale=1.0),
        **SHAW,
    ),
    "shaw_tied_causal": Core("Shaw, one table, causal", shaw_tied, **SHAW),
    "shaw_tied_wide": Core("Shaw, one table, k > L", shaw_tied, **SHAW),
    "conformer": Core("Conformer, both directions", transformer_xl, **XL),
    "conformer_cache": Core("Conformer, 5 cached keys", transformer_xl, **XL),
    "t5_encoder": Core(
        "T5 encoder, 32 buckets", t5, by_bucket("relative_attention_bias")
    ),
    "t5_decoder": Core("T5 decoder, 32 buckets", t5),
    "bert_relative_key": Core("BERT relative_key", bert),
    "bert_relative_key_query": Core(
        "BERT relative_key_query",
        bert_queries,
        lambda g, c: {"distance_embedding": (g["rel_key"] + g["rel_query"])[::-1]},
    ),
}

#: models.py puts these between its own, in the order of the report.
ROTARY = {
    "gemma4_rotary": rotary("Gemma 4, rotary", gemma4),
    "qwen3_vl_rotary": rotary("Qwen3-VL, rotary", sections(4, 2, 2, interleaved=True)),
    "dinov3_rotary": rotary("DINOv3, rotary", dinov3),
    "qwen2_vl_rotary": rotary("Qwen2-VL, rotary", sections(2, 3, 3)),
    "gemma4_vision_rotary": rotary("Gemma 4 vision, rotary", gemma4_vision),
    "vjepa2_rotary": rotary("V-JEPA 2, rotary", vjepa2, rotate_columns),
}
