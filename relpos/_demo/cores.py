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
    """Return keywords; queries are the last keys, and no memory means causal."""
    is_causal = case["rel_key"].shape[-2] == case["key"].shape[-2]
    return of(case, "rel_key", "pos_bias_u", "pos_bias_v", is_causal=is_causal)


def shaw(case: Case) -> dict[str, Any]:
    """Return both tables; the query is stored after scaling."""
    return of(case, "rel_key", "rel_value", scale=1.0)


def shaw_tied(case: Case) -> dict[str, Any]:
    """Return the one table for keys and values."""
    return dict.fromkeys(("rel_key", "rel_value"), case["rel_key"])


def t5(case: Case) -> dict[str, Any]:
    """Return the bias, which is stored as (bucket, head); scores are not scaled."""
    return of(case, "buckets", rel_bias=case["relative_attention_bias"].T, scale=1.0)


def bert(case: Case) -> Named:
    """Return the table, which is stored by query minus key, by key minus query."""
    return {"rel_key": case["distance_embedding"][::-1]}


def bert_queries(case: Case) -> Named:
    """Return the same table for keys and queries."""
    return dict.fromkeys(("rel_key", "rel_query"), case["distance_embedding"][::-1])


def bert_gradients(found: Named, case: Case) -> Named:
    """Return the sum of both uses of the table."""
    return {"distance_embedding": (found["rel_key"] + found["rel_query"])[::-1]}


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
        return {"angles": angles[:, None]}

    return keywords


def dinov3(case: Case) -> Named:
    """Return angles of centres of patches in [-1, 1]; 0 for the tokens before them."""
    sides, x = case["grid"], case["x"]
    centres = 2 * (np.argwhere(np.ones(sides)) + 0.5) / sides - 1
    inv_freq = relpos.rotary_frequencies(x.shape[-1] // 2, base=100.0)
    angles = relpos.axial_angles(2 * np.pi * centres, inv_freq)
    before = np.zeros((x.shape[-2] - len(angles), angles.shape[-1]))
    return {"angles": np.concatenate([before, angles])}


def gemma4_vision(case: Case) -> Named:
    """Rotate half of the columns by a patch's row, the other half by its column."""
    inv_freq = relpos.rotary_frequencies(case["x"].shape[-1], base=100.0)
    angles = relpos.axial_angles(case["positions"], inv_freq)
    return {"angles": angles.reshape(*case["x"].shape[:2], 1, 2, len(inv_freq))}


def vjepa2(case: Case) -> dict[str, Any]:
    """Return angles of frame, row and column, which use 3 frequencies twice."""
    inv_freq = np.tile(relpos.rotary_frequencies(6), 2)
    pairs = [relpos.axial_angles(case["positions"], inv_freq[n::2]) for n in (0, 1)]
    return {"angles": pairs}


XL = Core(transformer_xl, function=relpos.transformer_xl_attention)
MUSIC = Core(lambda c: of(c, "rel_key"), function=relpos.relative_global_attention)
TIED = Core(shaw_tied, function=relpos.shaw_attention)
BUCKETS = by_bucket("relative_attention_bias")

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
    "t5_encoder": Core(t5, BUCKETS),
    "t5_decoder": Core(t5),
    "bert_relative_key": Core(bert),
    "bert_relative_key_query": Core(bert_queries, bert_gradients),
}
#: models.py puts these between its own, in the order of the report.
ROTARY = {
    "gemma4_rotary": Core(gemma4, function=rotate),
    "qwen3_vl_rotary": Core(sections(4, 2, 2, interleaved=True), function=rotate),
    "dinov3_rotary": Core(dinov3, function=rotate),
    "qwen2_vl_rotary": Core(sections(2, 3, 3), function=rotate),
    "gemma4_vision_rotary": Core(gemma4_vision, function=rotate),
    "vjepa2_rotary": Core(vjepa2, function=rotate_columns),
}
