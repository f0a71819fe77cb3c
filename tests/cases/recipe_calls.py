"""A small call of every recipe, as those of public_calls.py: name -> call(f, x).

The result of a recipe is given to attention; a `Recipe` is given the gradients of that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from public_calls import BOTH, DIFFERENT, D, H, L, Q, back

import relpos
from relpos import recipes


def use(keywords, x, length=L, wrt=None, **more):
    """Call attention with the result of a recipe and more, then both backward."""
    inputs = {name: x(H, length, D) for name in ("query", "key", "value")}
    result = relpos.attention(**inputs | more | keywords, return_context=True)
    gradients = back(result, x, wrt=wrt)
    if isinstance(keywords, relpos.recipes.Recipe):
        keywords.backward(gradients)


def recipe(length, *shapes, **options):
    """A call of a recipe with parameters of these shapes, other arguments as they are.

    length: of the sequence that its result is for.
    """

    def made(x):
        return [x(*shape) if isinstance(shape, tuple) else shape for shape in shapes]

    return lambda f, x: use(f(*made(x), **options), x, length)


def grid_of(f, x):
    q = x(H, 6, D)
    relpos.attention(q, q, q, **f(x(3, D), x(5, D), (2, 3)))


def swin(f, x):
    q = x(H, 6, D)
    relpos.attention(q, q, q, **f(x(15, H), (2, 3)))


def pope(f, x):
    query = f(x(*Q), inv_freq=x(D), offset=9)
    use(f(x(*Q), bias=x(H, D), argument="key"), x, query=query)


def rope_vit(f, x):
    f(x(2, H, D), x(L, 2)).backward({"angles": x(H, L, D)})


def xlnet_segments(f, x):
    f(*(x(*s) for s in SEGMENTS), DIFFERENT)
    recipe = f(*(x(*s) for s in SEGMENTS), DIFFERENT, argument="attn_mask")
    use(recipe, x, wrt=["attn_mask"])


SEGMENTS = Q, (2, H, D), (H, D)
#: Of tokens on a page: their order, and their boxes.
PLACES = [np.arange(L), np.arange(4 * L).reshape(L, 4)]


def rotated(f, x):
    recipe = f(x(D // 2), x(D // 2))
    recipe.backward({"inv_freq": x(D // 2)})


RECIPES = {
    "deepseek_v4": recipe(L, (H,), sliding_window=3),
    "mistral_large4": rotated,
    "mistral_large4_temperature": lambda f, x: f(x(H), x(H), np.arange(L)),
    "moirai": recipe(L, (2, H), np.arange(L) // 2),
    "longformer": lambda f, x: f([2, 1, 1, 1, 0], 2),
    "natten1d": recipe(L, (H, 5), L),
    "beit": recipe(5, (18, H), [2, 2], table_window=[2, 3]),
    "bert": lambda f, x: use(f(x(*BOTH), key_query=True), x),
    "botnet": grid_of,
    "deberta": lambda f, x: use(f(x(8, D), x(8, D), max_position=16), x),
    "enformer": recipe(L, (1, H, 1, D), (1, H, 1, D), (H * D, 12), L),
    "enformer_positions": lambda f, x: f(L, 12, dtype=np.float64),
    "from_config": lambda f, x: use(
        f({"model_type": "mpnet"}, {"relative_attention_bias.weight": x(32, H)}), x
    ),
    "mpnet": recipe(L, (32, H)),
    "parakeet": recipe(L, (H, D), (H, D), (H * D, 6), L),
    "pope": pope,
    "recurrent_gemma": lambda f, x: use(f(2), x),
    "rope_vit": rope_vit,
    "swin": swin,
    "swin_v2": recipe(6, (5, 2), (5,), (H, 5), [2, 3], pretrained_window=[4, 4]),
    "t5": lambda f, x: use(f(x(32, H)), x),
    "umt5": recipe(L, (32, H), bidirectional=False),
    "vits": recipe(L, (1, 5, D), (1, 5, D)),
    "wav2vec2_bert": recipe(
        L, (6, D), left_max_position_embeddings=3, right_max_position_embeddings=2
    ),
    "xlnet": lambda f, x: use(f(L, L, x(H, 2 * L, D), x(H, D), x(H, D)), x),
    "xlnet_segments": xlnet_segments,
    "forgetting_transformer": recipe(L, (H, 3), (H,), (L, 3), window_size=3),
    "llama4_temperature": lambda f, x: f(x(3, 4), floor_scale=1e-300),
    "llama4": lambda f, x: use(f(L, attention_chunk_size=2, start=1), x),
    "longt5_local": recipe(L, (32, H), 2),
    "layoutlmv3": recipe(L, (H, 8), (H, 12), (H, 12), *PLACES, D),
    "sam": recipe(6, (3, D), (7, D), [2, 3]),
    "gpt_oss": recipe(L, (H,), sliding_window=3),
    "inkling": lambda f, x: use(f(x(3, 4), D, window=3), x, position_query=x(H, L, 3)),
    "inkling_temperature": lambda f, x: f(x(3, 4), 2.0, log_scaling_alpha=1e300),
    "wavlm": recipe(L, (1, H, 1, 1), (8, D), (8,), (32, H), (L, H * D)),
    "zipformer": lambda f, x: use(
        f(x(H * 3, 6), H, L, L), x, position_query=x(H, L, 3)
    ),
    "zipformer_positions": lambda f, x: f(x(3, 4), 6, length_factor=1e-300),
    "gemma2": lambda f, x: use(f(query_pre_attn_scalar=3.0, sliding_window=3), x),
    "gemma3n_audio": recipe(L, (D,), (H * D, 6), Q, context_left=3, logit_cap=2.0),
    "gemma4_audio": recipe(L, (D,), (H * D, 6), Q, context_left=3, chunk_size=2),
}


class Call(NamedTuple):
    """A call of a recipe with arrays, its result, and attention with that result."""

    recipe: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    result: Any
    attention: list[dict[str, Any]]


def numbers(dtype=np.float64):
    rng = np.random.default_rng(0)
    return lambda *shape: np.asarray(rng.standard_normal(shape), dtype)


def recorded(name, dtype=np.float64):
    """Return the calls that recipe_calls.py makes of a recipe."""
    recipe, calls, attention = getattr(recipes, name), [], relpos.attention

    def called(*args, **keywords):
        result = recipe(*args, **keywords)
        calls.append(Call(recipe, args, keywords, result, []))
        return result

    def attended(*args, **keywords):
        given = dict(zip(("query", "key", "value"), args, strict=False)) | keywords
        calls[-1].attention.append(given)
        return attention(*args, **keywords)

    relpos.attention = attended
    try:
        RECIPES[name](called, numbers(dtype))
    finally:
        relpos.attention = attention
    return calls
