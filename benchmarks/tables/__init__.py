"""Tables of relpos alone, by the names that ``python -m benchmarks`` takes."""

from __future__ import annotations

from benchmarks.tables import (
    attention,
    decode,
    encodings,
    flex,
    layers,
    models,
    price,
    sixteen,
    small_calls,
)
from benchmarks.timing import Table
from relpos import _bench as schemes

TABLES = {
    "attention": Table("fraction of one core's multiply-add peak", attention.make_plan),
    "decode": Table("one query, or a few, against a cache", decode.make_plan),
    "threads": Table("several threads over one", attention.make_threads_plan, True),
    "price": Table("positions over plain attention", price.make_plan),
    **schemes.TABLES,
    "flex": Table("functions of pairs over SDPA and operands", flex.make_plan),
    "sixteen": Table("tensors of 16 bits over float32 and torch", sixteen.make_plan),
    "small": Table("the smallest calls, in us", small_calls.make_plan, True),
    "encodings": Table("encodings and skewing over NumPy", encodings.make_plan),
    "rotary": Table("rotary encoding over a copy", encodings.make_rotary_plan),
    "layers": Table("layers of relpos.nn", layers.make_plan),
    "models": Table("whole models of transformers over their own", models.make_plan),
}
