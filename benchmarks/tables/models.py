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
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from time import perf_counter, thread_time
from typing import Any, NamedTuple

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


PROMPTS = [
    ("T5", 4, 256),
    ("T5", 1, 64),
    ("Llama", 1, 16),
    ("Llama", 1, 1024),
    ("Llama", 1, 4096, "bfloat16"),
    ("Gemma 2", 1, 1024),
]
PLACES = [
    *(Place(m, w, *rest) for m, *rest in PROMPTS for w in ("prefill", "token")),
    *(Place("DeBERTa", "prefill", *size) for size in ((1, 128), (1, 512))),
    *(
        Place(m, "training", *size)
        for m in MODELS
        for size in ((1, 128), (16, 128), (1, 512))
    ),
]


def model_of(place: Place, way: str) -> Any:
    """Return the model of a place in one of its ways."""
    import torch
    import transformers

    from benchmarks.layers import made

    model = MODELS[place.model]
    whole = made(getattr(transformers, model.kind), model.settings, way)
    return whole.to(getattr(torch, place.dtype))


def inputs_of(place: Place) -> dict[str, Any]:
    """Return the tokens of a call, and those that a decoder has written."""
    import torch

    chosen = torch.Generator().manual_seed(1)
    size = place.batch, place.length
    given = {"input_ids": torch.randint(1, TOKENS, size, generator=chosen)}
    if place.work == "training":
        given["labels"] = torch.randint(1, TOKENS, size, generator=chosen)
    elif place.model == "T5":
        given["decoder_input_ids"] = given["input_ids"][:, :WRITTEN]
    return given


def training(model: Any, given: dict[str, Any]) -> list[Any]:
    """Return the logits, and the gradients of all parameters."""
    model.zero_grad()
    found = model(**given)
    found.loss.backward()
    return [found.logits, *(p.grad for p in model.parameters() if p.grad is not None)]


def prefill(model: Any, given: dict[str, Any]) -> list[Any]:
    """Return the logits of a prompt."""
    import torch

    with torch.no_grad():
        return [model(**given).logits]


def token(model: Any, given: dict[str, Any]) -> Callable[[], list[Any]]:
    """Return a call that adds a token to a cache, and takes it out again."""
    import torch

    with torch.no_grad():
        first = model(**given, use_cache=True)
    cache, encoded = first.past_key_values, given["input_ids"][:, :1]
    next_ = {"input_ids": encoded}
    if "decoder_input_ids" in given:
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
    if place.work == "token":
        return token(model, inputs_of(place))
    made = {"prefill": prefill, "training": training}[place.work]
    return partial(made, model, inputs_of(place))


def distance(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Return the largest distance over the largest number of all.

    Logits are compared with the largest of them, gradients with the largest of all.
    """
    if len(found) != len(wanted):
        raise SystemExit(f"{len(found)} results for {len(wanted)}")
    wanted = [x.detach() for x in wanted]
    largest = max((float(x.abs().max()) for x in wanted[1:]), default=1.0)
    scales = [float(wanted[0].abs().max()), *[largest] * (len(wanted) - 1)]
    errors = [
        float((a.detach().to(b.dtype) - b).abs().max()) / scale
        for a, b, scale in zip(found, wanted, scales, strict=True)
    ]
    return float(np.max(errors))  # NaN stays


def check_distance(
    found: Sequence[Any], wanted: Sequence[Any], limit: float, what: str
) -> float:
    """Return the distance; a larger one than the limit ends the program."""
    error = distance(found, wanted)
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
    kept = [[row[0], row[best]] for row in timed.repeats]
    return timing.Timing(kept, timed.tried)


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
    goal: dict[str, Any] = {"target": target, "at_most": True}
    return Row.of_ratios(label, "x its own", over_the_faster(found), error, **goal)


def model_row(label: str, place: Place, way: str, threads: int, repeats: int) -> Row:
    """Measure one way of a model over the faster of its own."""
    wide = place._replace(dtype="float64")
    wanted = work_of(wide, model_of(wide, "eager"))()
    own = [w for w in MODELS[place.model].ways if w in ("eager", "sdpa")]
    works = [work_of(place, model_of(place, each)) for each in (way, *own)]
    limit = max(LIMITS[place.dtype], 2 * distance(works[1](), wanted))
    error = check_distance(works[0](), wanted, limit, label)
    return timed_over(label, works, error, TARGET, threads, repeats)


def encoder_row(label: str, length: int, trains: bool, repeats: int) -> Row:
    """Measure an encoder layer by relpos over the layer's own attention."""
    import torch

    from relpos.torch.nn import RelativeMultiheadAttention

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"batch_first": True, "dropout": 0.0}
    own = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, **sizes)
    mine = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, **sizes)
    attention: Any = RelativeMultiheadAttention(WIDTH, HEADS, position=None, **sizes)
    mine.self_attn = attention
    mine.load_state_dict(own.state_dict())
    x = torch.randn(1, length, WIDTH)

    def step(layer: Any) -> list[Any]:
        with torch.set_grad_enabled(trains):
            out = layer(x)
        if not trains:
            return [out]
        layer.zero_grad()
        out.square().mean().backward()
        return [out, *(p.grad for p in layer.parameters())]

    works = [partial(step, layer.train(trains)) for layer in (mine, own)]
    error = check_distance(works[0](), works[1](), LIMITS["float32"], label)
    return timed_over(label, works, error, ENCODER[length], 1, repeats)


def make_plan(isas: list[str], full: bool) -> Plan:
    """Return every row as (label, function that measures it)."""
    rows = Rows(full)
    for place in PLACES:
        ways = [w for w in MODELS[place.model].ways if w.startswith("re")]
        for way, threads in product(ways, (1, 2) if full else (1,)):
            label = place.label(way, threads)
            rows.add(label, model_row, place, way, threads)
    for trains, length in product((False, True), ENCODER):
        label = f"encoder layer {'training' if trains else 'forward'} L={length}"
        rows.add(label, encoder_row, length, trains)
    return rows
