"""Whole models of transformers with relpos, over the faster of their own ways.

Models have three layers of width 512, 8 heads of 64 and random weights. `prefill` reads
a prompt, into a cache where the model has one. `token` adds a token to that cache.
`training` computes a loss and the gradients of all parameters. A row names its way,
`register()` or `replace_attention()` of `relpos.torch`. Its time is divided by that of
the model's eager code or of its `scaled_dot_product_attention`, whichever is faster.
Logits and gradients are compared with those of eager float64 code first, and so are
those of the model's own code: T5 does not scale its logits, so that rounding alone
moves its gradients by 1e-3.

Rows of `encoder layer` time a layer of torch.nn whose attention is
`RelativeMultiheadAttention` without positions, over the unchanged layer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from time import perf_counter, thread_time
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np

import relpos
from benchmarks import timing
from benchmarks.timing import Plan, Row, Rows

WIDTH, HEADS, DIM, TOKENS = 512, 8, 64, 1000
TARGET = 1.02  # times the faster of the model's own ways, at most
#: Distance of logits and gradients from float64 eager code, over the largest of them.
#: A row may also have twice the distance of the model's own code in the same dtype.
LIMITS = {"float32": 1e-3, "bfloat16": 0.1}
#: Tokens that a decoder has written before the one that is timed.
WRITTEN = 32
#: Times an encoder layer's own, at most.
ENCODER = {32: 1.05, 128: 1.05, 512: 1.0}
TEXT = {
    "vocab_size": TOKENS,
    "hidden_size": WIDTH,
    "intermediate_size": 4 * WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "pad_token_id": 0,
}
DECODER = {**TEXT, "num_key_value_heads": HEADS, "head_dim": DIM}
DEBERTA = {
    **TEXT,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 256,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
T5 = {
    "vocab_size": TOKENS,
    "d_model": WIDTH,
    "d_kv": DIM,
    "d_ff": 4 * WIDTH,
    "num_layers": 3,
    "num_heads": HEADS,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}


class Model(NamedTuple):
    """A class of transformers, its settings, and the ways that its attention has."""

    kind: str
    settings: dict[str, Any]
    ways: tuple[str, ...]


MODELS = {
    "T5": Model(
        "T5ForConditionalGeneration", T5, ("eager", "sdpa", "registered", "replaced")
    ),
    "Llama": Model("LlamaForCausalLM", DECODER, ("eager", "sdpa", "registered")),
    "Gemma 2": Model("Gemma2ForCausalLM", DECODER, ("eager", "registered")),
    "DeBERTa": Model("DebertaV2ForMaskedLM", DEBERTA, ("eager", "replaced")),
}


class Place(NamedTuple):
    """One model, what it does, and with what."""

    model: str
    work: str
    batch: int
    length: int
    dtype: str = "float32"

    def label(self, way: str, threads: int) -> str:
        size = f"B={self.batch} L={self.length}"
        return f"{self.model} {self.work} {size} {self.dtype}, {way}, {threads} thr"


#: Model, batch, length and dtype of the prompts that are continued.
PROMPTS = [
    ("T5", 4, 256, "float32"),
    ("T5", 1, 64, "float32"),
    ("Llama", 1, 16, "float32"),
    ("Llama", 1, 1024, "float32"),
    ("Llama", 1, 4096, "bfloat16"),
    ("Gemma 2", 1, 1024, "float32"),
]
#: Batch and length of each step of training.
TRAINING = [(1, 128), (16, 128), (1, 512)]


def places() -> Iterator[Place]:
    """Yield all places, in the order of the table."""
    for model, batch, length, dtype in PROMPTS:
        yield Place(model, "prefill", batch, length, dtype)
        yield Place(model, "token", batch, length, dtype)
    yield Place("DeBERTa", "prefill", 1, 128)
    yield Place("DeBERTa", "prefill", 1, 512)
    for model in MODELS:
        for batch, length in TRAINING:
            yield Place(model, "training", batch, length)


def model_of(place: Place, way: str) -> Any:
    """Return the model of a place in one of its ways."""
    import torch
    import transformers

    from benchmarks.layers import made

    model = MODELS[place.model]
    built = made(getattr(transformers, model.kind), model.settings, way)
    return built.to(getattr(torch, place.dtype))


class Tokens(TypedDict):
    """Keywords of a model's call; the values are tensors."""

    input_ids: Any
    labels: NotRequired[Any]
    decoder_input_ids: NotRequired[Any]


def inputs_of(place: Place) -> Tokens:
    """Return the tokens of a call, and those that a decoder has written."""
    import torch

    chosen = torch.Generator().manual_seed(1)
    size = place.batch, place.length
    tokens: Tokens = {"input_ids": torch.randint(1, TOKENS, size, generator=chosen)}
    if place.work == "training":
        tokens["labels"] = torch.randint(1, TOKENS, size, generator=chosen)
    elif place.model == "T5":
        tokens["decoder_input_ids"] = tokens["input_ids"][:, :WRITTEN]
    return tokens


def training(model: Any, tokens: Tokens) -> list[Any]:
    """Return the logits, and the gradients of all parameters."""
    model.zero_grad()
    result = model(**tokens)
    result.loss.backward()
    return [result.logits, *(p.grad for p in model.parameters() if p.grad is not None)]


def prefill(model: Any, tokens: Tokens) -> list[Any]:
    """Return the logits of a prompt."""
    import torch

    with torch.no_grad():
        return [model(**tokens).logits]


def token(model: Any, tokens: Tokens) -> Callable[[], list[Any]]:
    """Return a call that adds a token to a cache, and takes it out again."""
    import torch

    with torch.no_grad():
        first = model(**tokens, use_cache=True)
    cache, encoded = first.past_key_values, tokens["input_ids"][:, :1]
    next_: dict[str, Any] = {"input_ids": encoded}
    if "decoder_input_ids" in tokens:
        hidden = first.encoder_last_hidden_state
        next_ = {"encoder_outputs": (hidden,), "decoder_input_ids": encoded}

    def step() -> list[Any]:
        with torch.no_grad():
            found = model(**next_, past_key_values=cache, use_cache=True)
        cache.crop(-1)
        return [found.logits]

    return step


def work_of(place: Place, model: Any) -> Callable[[], list[Any]]:
    """Return what is timed of a model."""
    tokens = inputs_of(place)
    if place.work == "token":
        return token(model, tokens)
    return partial(prefill if place.work == "prefill" else training, model, tokens)


def distance(results: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest distance over the largest number of all.

    Logits are compared with the largest of them, gradients with the largest of all.
    """
    if len(results) != len(expected):
        raise SystemExit(f"{len(results)} results for {len(expected)}")
    logits, *gradients = [x.detach() for x in expected]
    scale = float(logits.abs().max())
    scale_of_gradients = max((float(x.abs().max()) for x in gradients), default=1.0)
    errors = []
    for result, exact in zip(results, [logits, *gradients], strict=True):
        error = float((result.detach().to(exact.dtype) - exact).abs().max())
        errors.append(error / scale)
        scale = scale_of_gradients
    return float(np.max(errors))  # which keeps nan, unlike max()


def check_distance(
    results: Sequence[Any], expected: Sequence[Any], limit: float, what: str
) -> float:
    """Return the distance; a larger one than the limit ends the program."""
    error = distance(results, expected)
    if not error <= limit:
        raise SystemExit(f"{what}: {error:.0e} off, and {limit:.0e} is allowed")
    return error


def over_the_faster(timed: timing.Timing) -> timing.Timing:
    """Return the times of the first work, and of the fastest of the others."""
    costs = [
        statistics.median(row[n][0] * row[n][1] for row in timed.repeats)
        for n in range(1, len(timed.repeats[0]) if timed.repeats else 1)
    ]
    best = 1 + min(range(len(costs)), key=costs.__getitem__, default=0)
    pairs = [[row[0], row[best]] for row in timed.repeats]
    return timing.Timing(pairs, timed.tried)


def timed_over(
    label: str,
    works: Sequence[timing.Work],
    error: float,
    target: float,
    threads: int,
    repeats: int,
) -> Row:
    """Measure the time of the first work over the faster of the others."""
    import torch

    clock = thread_time if threads == 1 else perf_counter
    yardstick = timing.fma_yardstick(timing.BEST_ISA, "float32", threads, clock)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with relpos.threads(threads):
            found = timing.interleave(works, yardstick, repeats, clock)
    finally:
        torch.set_num_threads(before)
    return Row.of_ratios(
        label,
        "x its own",
        over_the_faster(found),
        error,
        target=target,
        at_most=True,
    )


def model_row(label: str, place: Place, way: str, threads: int, repeats: int) -> Row:
    """Measure one way of a model over the faster of its own."""
    wide = place._replace(dtype="float64")
    exact = work_of(wide, model_of(wide, "eager"))()
    own_ways = [w for w in MODELS[place.model].ways if w in ("eager", "sdpa")]
    works = [work_of(place, model_of(place, each)) for each in (way, *own_ways)]
    # Where the model's own code is inexact, relpos may be off by twice as much.
    limit = max(LIMITS[place.dtype], 2 * distance(works[1](), exact))
    error = check_distance(works[0](), exact, limit, label)
    return timed_over(label, works, error, TARGET, threads, repeats)


def encoder_row(label: str, length: int, trains: bool, repeats: int) -> Row:
    """Measure an encoder layer by relpos over the layer's own attention."""
    import torch

    from relpos.torch.nn import RelativeMultiheadAttention

    torch.manual_seed(0)
    layers = [
        torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True
        )
        for _ in range(2)
    ]
    of_torch, of_relpos = layers
    attention: Any = RelativeMultiheadAttention(
        WIDTH, HEADS, dropout=0.0, batch_first=True, position=None
    )
    of_relpos.self_attn = attention
    of_relpos.load_state_dict(of_torch.state_dict())
    x = torch.randn(1, length, WIDTH)

    def step(layer: Any) -> list[Any]:
        with torch.set_grad_enabled(trains):
            out = layer(x)
        if not trains:
            return [out]
        layer.zero_grad()
        out.square().mean().backward()
        return [out, *(p.grad for p in layer.parameters())]

    works = [partial(step, layer.train(trains)) for layer in (of_relpos, of_torch)]
    error = check_distance(works[0](), works[1](), LIMITS["float32"], label)
    return timed_over(label, works, error, ENCODER[length], 1, repeats)


def make_plan(isas: list[str], full: bool) -> Plan:
    """Return every row as (label, function that measures it)."""
    rows = Rows(full)
    for place in places():
        ways = [w for w in MODELS[place.model].ways if w.startswith("re")]
        for way, threads in product(ways, (1, 2) if full else (1,)):
            label = place.label(way, threads)
            rows.add(label, model_row, place, way, threads)
    for trains, length in product((False, True), ENCODER):
        label = f"encoder layer {'training' if trains else 'forward'} L={length}"
        rows.add(label, encoder_row, length, trains)
    return rows
