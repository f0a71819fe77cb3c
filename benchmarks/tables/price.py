"""The cost of positions: time of a scheme over that of plain attention.

Both have the same shape and direction: 8 heads of 64 at length 1024, 2 at 4096,
float32, one thread, both within one repeat, each result checked first.
`forward+backward` has the gradients of all inputs. `documents` are 16 in one sequence,
over as many calls of their own; a causal mask is over is_causal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from time import strftime
from typing import Any

import numpy as np

import relpos
from benchmarks import timing
from benchmarks.problems import DIM, DIRECTIONS, ROWS, SCHEMES, Problem
from benchmarks.results import PriceRecord
from benchmarks.timing import Array, Plan, Row
from relpos import recipes
from relpos._bench import check

WAYS = ("forward", "forward+backward")
#: Heads at each length.
LENGTHS = {1024: 8, 4096: 2}
DOCUMENTS = 16
REPEATS = 15
BUCKETS = 32  # of T5

#: A call that gave the right result, and its error.
Ready = tuple[Callable[[], object], float]


@dataclass(frozen=True)
class Place:
    """Sizes, way and direction at which two calls are compared."""

    way: str
    direction: str
    length: int
    heads: int

    def problem(self, scheme: str) -> Problem:
        is_causal = DIRECTIONS[self.direction]
        return SCHEMES[scheme].build(self.length, "float32", is_causal, self.heads)

    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.length, 1])

    def draw(self, *shape: int) -> Array:
        return self.rng().standard_normal(shape, dtype=np.float32)


Maker = Callable[[Place, str], Ready]
#: Further arguments of attention: floating arrays, which have a gradient, and others.
Operands = Callable[[Place], dict[str, Any]]


# ---- what is timed -------------------------------------------------------------------


def of_scheme(name: str) -> Maker:
    """Return a maker of a scheme of `benchmarks.problems`."""

    def make(place: Place, what: str) -> Ready:
        return place.problem(name).prepared(place.way, 1, what)

    return make


def of_operands(operands: Operands, is_causal: bool | None = None) -> Maker:
    """Return a maker of plain attention with further arguments."""

    def make(place: Place, what: str) -> Ready:
        plain = place.problem("plain")
        arrays, options = dict(plain.arrays), dict(plain.options)
        for name, x in operands(place).items():
            if np.ndim(x) and np.asarray(x).dtype.kind == "f":
                arrays[name] = x
            else:
                options[name] = x
        if is_causal is not None:
            options["is_causal"] = is_causal
        problem = replace(plain, arrays=arrays, options=options)
        return problem.prepared(place.way, 1, what)

    return make


def of_row(name: str) -> Maker:
    """Return a maker of a row of the catalogue, checked at the size of the demo."""

    def make(place: Place, what: str) -> Ready:
        row = next(row for row in ROWS if row.name == name)
        error = check(row, what)
        inputs = row.inputs(np.float32, place.heads, place.length, DIM)
        if place.way == "forward":
            return partial(row.relpos, **inputs), error
        assert row.gradients is not None
        grad_out = place.draw(*inputs["query"].shape)
        return partial(row.gradients.relpos, grad_out, **inputs), error

    return make


def apart(place: Place, what: str) -> Ready:
    """Call attention for each document alone."""
    plain = place.problem("plain")
    calls, errors = [], []
    for begin, end in documents(place):
        tokens = {name: x[..., begin:end, :] for name, x in plain.arrays.items()}
        call, error = replace(plain, arrays=tokens).prepared(place.way, 1, what)
        calls.append(call)
        errors.append(error)

    def call_all() -> list[object]:
        return [call() for call in calls]

    return call_all, max(errors)


def documents(place: Place) -> list[tuple[int, int]]:
    """Return begins and ends of documents, whose lengths differ up to threefold."""
    shares = np.cumsum(1 + 2 * place.rng().random(DOCUMENTS))
    ends = np.rint(shares / shares[-1] * place.length).astype(int)
    return list(zip([0, *ends[:-1]], ends, strict=True))


# ---- operands ------------------------------------------------------------------------


def t5(place: Place) -> dict[str, Any]:
    """Make T5's bias: other biases by offset are the same work."""
    weight = place.draw(BUCKETS, place.heads)
    return {"rel_bias": relpos.t5_bias(weight, place.length)}


def decay(place: Place) -> dict[str, Any]:
    """Make logarithms of gates around a half, as a Forgetting Transformer does."""
    gates = place.draw(place.heads, place.length)
    return {"log_decay": -np.logaddexp(np.float32(0), gates)}


def sam(place: Place) -> dict[str, Any]:
    """Make a table for each axis of an image; length 1024 is a square of 32 x 32."""
    side = math.isqrt(place.length - 1) + 1
    row, column = divmod(np.arange(place.length), side)
    # One table has both axes, the rows before the columns.
    reach = 2 * side - 1
    rows = row - row[:, None] + side - 1
    columns = reach + column - column[:, None] + side - 1
    table = place.draw(2 * reach, DIM)
    return {
        "rel_key": table,
        "labels": (rows.astype(np.int16), columns.astype(np.int16)),
    }


def positions(place: Place, width: int, *rows: int) -> dict[str, Any]:
    """Make `width` numbers of each query, and a table (*rows, width) for them."""
    return {
        "position_query": place.draw(place.heads, place.length, width),
        "rel_key": place.draw(*rows, width),
    }


def inkling(place: Place) -> dict[str, Any]:
    """Make 16 numbers of a query, and curves over 1024 distances shared by heads."""
    return {
        **positions(place, 16, 1024),
        "min_relative_position": -1023,
        "beyond": "zero",
    }


def zipformer(place: Place) -> dict[str, Any]:
    """Make 4 numbers for every distance and head."""
    return positions(place, 4, place.heads, 2 * place.length - 1)


def wavlm(place: Place) -> dict[str, Any]:
    """Make a gate for each query before T5's bias of 320 buckets."""
    reach = np.arange(1 - place.length, place.length)
    buckets = relpos.t5_bucket(reach, num_buckets=320, max_distance=800)
    return {**positions(place, 1, place.heads, 320), "buckets": buckets}


def deberta_v3(place: Place) -> dict[str, Any]:
    """Make projected positions of DeBERTa V3: 512 rows of each head, log-buckets."""
    keys, queries = place.draw(2, place.heads, 512, DIM)
    terms: dict[str, Any] = recipes.deberta(keys, queries, max_position=512)
    return terms


def nothing(place: Place) -> dict[str, Any]:
    return {}


def sinks(place: Place) -> dict[str, Any]:
    return {"sinks": place.draw(place.heads)}


def softcap(place: Place) -> dict[str, Any]:
    return {"softcap": 50.0}


def causal_mask(place: Place) -> dict[str, Any]:
    return {"attn_mask": np.tri(place.length, dtype=bool)}


def segments(place: Place) -> Array:
    """Return the number of each token's document."""
    lengths = [end - begin for begin, end in documents(place)]
    return np.repeat(np.arange(DOCUMENTS), lengths)


def document_mask(place: Place) -> dict[str, Any]:
    of_token = segments(place)
    return {"attn_mask": of_token == of_token[:, None]}


def document_ranges(place: Place) -> dict[str, Any]:
    return {"key_ranges": relpos.segment_ranges(segments(place))}


@dataclass(frozen=True)
class Priced:
    """A maker, the name of what its time is over, directions, and targets by way."""

    make: Maker
    over: str = "plain"
    directions: tuple[str, ...] = ("both", "causal")
    targets: tuple[float | None, float | None] = (None, None)


BOTH, CAUSAL = ("both",), ("causal",)
#: Makers of what times are over.
BASES: dict[str, Maker] = {
    "plain": of_scheme("plain"),
    "both ways": of_operands(nothing, is_causal=False),
    "is_causal": of_scheme("plain"),
    "apart": apart,
}
PRICED = {
    "causal": Priced(of_scheme("plain"), "both ways", CAUSAL),
    "RoPE": Priced(of_row("RoPE"), directions=BOTH),
    "ALiBi": Priced(of_scheme("alibi")),
    "T5": Priced(of_operands(t5)),
    "FIRE": Priced(of_row("FIRE, width 32"), directions=BOTH),
    "Shaw": Priced(of_scheme("shaw")),
    "Music": Priced(of_scheme("music")),
    "Transformer-XL": Priced(of_scheme("xl")),
    "BERT": Priced(of_row("BERT, keys and queries"), directions=BOTH),
    "DeBERTa, 32 rows": Priced(of_row("DeBERTa, 32 rows"), directions=BOTH),
    "DeBERTa V3": Priced(of_operands(deberta_v3), directions=BOTH),
    "decay": Priced(of_operands(decay), directions=CAUSAL, targets=(1.08, None)),
    "SAM": Priced(of_operands(sam), directions=BOTH, targets=(1.5, None)),
    "sinks": Priced(of_operands(sinks), targets=(1.01, None)),
    "Inkling": Priced(of_operands(inkling), directions=CAUSAL, targets=(1.20, 1.30)),
    "Zipformer": Priced(of_operands(zipformer), targets=(1.10, None)),
    "WavLM": Priced(of_operands(wavlm), targets=(1.08, None)),
    "softcap": Priced(of_operands(softcap), targets=(1.15, None)),
    "causal mask": Priced(
        of_operands(causal_mask, is_causal=False), "is_causal", CAUSAL, (1.1, 1.1)
    ),
    "documents by key_ranges": Priced(
        of_operands(document_ranges), "apart", targets=(1.15, 1.15)
    ),
    "documents by mask": Priced(
        of_operands(document_mask), "apart", targets=(1.5, 1.5)
    ),
}
#: Shaw's at other lengths, eight heads, forward and backward, both directions.
SHAW = {32: 1.25, 128: 1.20, 2048: 1.08}


# ---- rows ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Price:
    """One of PRICED at given sizes."""

    name: str
    place: Place
    target: float | None = None

    @property
    def over(self) -> str:
        return PRICED[self.name].over

    @property
    def label(self) -> str:
        place = self.place
        direction = f"{place.direction} L={place.length}"
        return f"{place.way} {self.name} / {self.over} {direction}"

    def measure(self, isa: str, repeats: int) -> Row:
        """Measure the time of the one over that of the other."""
        makers = PRICED[self.name].make, BASES[self.over]
        with timing.use_isa(isa):
            works = [make(self.place, self.label) for make in makers]
            yardstick = timing.fma_yardstick(isa, "float32")
            calls = [call for call, _ in works]
            timed = timing.interleave(calls, yardstick, repeats)
        error, unit = works[0][1], f"x {self.over}"
        return Row.of_ratios(
            self.label, unit, timed, error, target=self.target, at_most=True
        )


def prices(full: bool) -> list[Price]:
    """Return all of them; if not in full, those of the shorter length."""
    shortest = min(LENGTHS)
    found = prices_at(shortest)
    if full:
        for length in LENGTHS:
            if length != shortest:
                found += prices_at(length)
        for length, target in SHAW.items():
            place = Place("forward+backward", "both", length, LENGTHS[shortest])
            found.append(Price("Shaw", place, target))
    return found


def prices_at(length: int) -> list[Price]:
    """Return those of all schemes at one length, in both ways."""
    found = []
    for name, priced in PRICED.items():
        for way, target in zip(WAYS, priced.targets, strict=True):
            for direction in priced.directions:
                place = Place(way, direction, length, LENGTHS[length])
                found.append(Price(name, place, target))
    return found


def make_plan(isas: list[str], full: bool) -> Plan:
    repeats = REPEATS if full else 5
    return [
        (price.label, partial(price.measure, isas[0], repeats))
        for price in prices(full)
    ]


def records(prices: Iterable[Price]) -> Iterator[PriceRecord]:
    """Return what the JSON file says of each price, as it is measured."""
    for price in prices:
        with relpos.threads(1):
            row = price.measure(timing.BEST_ISA, REPEATS)
        yield {
            "label": price.label,
            "name": price.name,
            "over": price.over,
            "way": price.place.way,
            "direction": price.place.direction,
            "length": price.place.length,
            "heads": price.place.heads,
            "figure": row.figure,
            "lowest": min(row.figures, default=None),
            "highest": max(row.figures, default=None),
            "kept": len(row.figures),
            "tried": row.tried,
            "seconds": row.seconds,
            "error": row.error,
            "target": row.target,
            "date": strftime("%Y-%m-%d %H:%M"),
        }
