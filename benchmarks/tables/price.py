"""The cost of positions: time of a scheme over that of plain attention.

Both have the same shape and direction: 8 heads of 64 at length 1024, 2 at 4096,
float32, one thread, both within one repeat, each result checked first.
`forward+backward` has the gradients of all inputs. `documents` are 16 in one sequence,
over as many calls of their own; a causal mask is over is_causal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import strftime
from typing import Any

import numpy as np

import relpos
from benchmarks import timing
from benchmarks.problems import DIM, DIRECTIONS, ROWS, SCHEMES, Problem
from benchmarks.timing import Array, Plan, Row
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
    return lambda place, what: place.problem(name).prepared(place.way, 1, what)


def of_operands(operands: Operands, is_causal: bool | None = None) -> Maker:
    """Return a maker of plain attention with further arguments."""

    def make(place: Place, what: str) -> Ready:
        plain, given = place.problem("plain"), operands(place)
        if is_causal is not None:
            given["is_causal"] = is_causal
        floats = [name for name, x in given.items() if np.asarray(x).dtype.kind == "f"]
        arrays = {name: given.pop(name) for name in floats if np.ndim(given[name])}
        made = replace(
            plain, arrays=plain.arrays | arrays, options=plain.options | given
        )
        return made.prepared(place.way, 1, what)

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
    ready = []
    for begin, end in documents(place):
        tokens = {name: x[..., begin:end, :] for name, x in plain.arrays.items()}
        ready.append(replace(plain, arrays=tokens).prepared(place.way, 1, what))
    return lambda: [call() for call, _ in ready], max(error for _, error in ready)


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
    at = np.arange(place.length)
    rows, columns = (x - x[:, None] + side - 1 for x in divmod(at, side))
    labels = rows, columns + 2 * side - 1
    table = place.draw(2 * (2 * side - 1), DIM)
    return {"rel_key": table, "labels": tuple(x.astype(np.int16) for x in labels)}


def positions(
    width: int, rows: Callable[[Place], tuple[int, ...]], **settings: Any
) -> Operands:
    """Return a maker of `width` numbers of each query, and of a table of rows."""

    def make(place: Place) -> dict[str, Any]:
        numbers = place.draw(place.heads, place.length, width)
        table = place.draw(*rows(place), width)
        return {"position_query": numbers, "rel_key": table, **settings}

    return make


def wavlm(place: Place) -> dict[str, Any]:
    """Make a gate for each query before T5's bias of 320 buckets."""
    reach = np.arange(1 - place.length, place.length)
    buckets = relpos.t5_bucket(reach, num_buckets=320, max_distance=800)
    return positions(1, lambda place: (place.heads, 320), buckets=buckets)(place)


def segments(place: Place) -> Array:
    lengths = [end - begin for begin, end in documents(place)]
    return np.repeat(np.arange(DOCUMENTS), lengths)


def document_mask(place: Place) -> dict[str, Any]:
    of_token = segments(place)
    return {"attn_mask": of_token == of_token[:, None]}


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
    "both ways": of_operands(lambda place: {}, is_causal=False),
    "is_causal": of_scheme("plain"),
    "apart": apart,
}
#: 16 numbers of a query, and curves over 1024 distances shared by heads.
INKLING = positions(
    16, lambda place: (1024,), min_relative_position=-1023, beyond="zero"
)
#: 4 numbers for every distance and head.
ZIPFORMER = positions(4, lambda place: (place.heads, 2 * place.length - 1))
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
    "DeBERTa": Priced(of_row("DeBERTa, 32 rows"), directions=BOTH),
    "decay": Priced(of_operands(decay), directions=CAUSAL, targets=(1.08, None)),
    "SAM": Priced(of_operands(sam), directions=BOTH, targets=(1.5, None)),
    "sinks": Priced(
        of_operands(lambda place: {"sinks": place.draw(place.heads)}),
        targets=(1.01, None),
    ),
    "Inkling": Priced(of_operands(INKLING), directions=CAUSAL, targets=(1.20, 1.30)),
    "Zipformer": Priced(of_operands(ZIPFORMER), targets=(1.10, None)),
    "WavLM": Priced(of_operands(wavlm), targets=(1.08, None)),
    "softcap": Priced(
        of_operands(lambda place: {"softcap": 50.0}), targets=(1.15, None)
    ),
    "causal mask": Priced(
        of_operands(
            lambda p: {"attn_mask": np.tri(p.length, dtype=bool)}, is_causal=False
        ),
        "is_causal",
        CAUSAL,
        (1.1, 1.1),
    ),
    "documents by key_ranges": Priced(
        of_operands(lambda p: {"key_ranges": relpos.segment_ranges(segments(p))}),
        "apart",
        targets=(1.15, 1.15),
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
    found = [
        Price(name, Place(way, direction, length, heads), target)
        for length, heads in LENGTHS.items()
        if full or length == min(LENGTHS)
        for name, each in PRICED.items()
        for way, target in zip(WAYS, each.targets, strict=True)
        for direction in each.directions
    ]
    if full:
        heads = LENGTHS[min(LENGTHS)]
        for length, target in SHAW.items():
            place = Place("forward+backward", "both", length, heads)
            found.append(Price("Shaw", place, target))
    return found


def make_plan(isas: list[str], full: bool) -> Plan:
    repeats = REPEATS if full else 5
    return [
        (price.label, partial(price.measure, isas[0], repeats))
        for price in prices(full)
    ]


def records(prices: Iterable[Price]) -> Iterator[dict[str, Any]]:
    """Return what the JSON file says of each price, as it is measured."""
    for price in prices:
        with relpos.threads(1):
            row = price.measure(timing.BEST_ISA, REPEATS)
        yield {
            "label": price.label,
            "name": price.name,
            "over": price.over,
            **asdict(price.place),
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
