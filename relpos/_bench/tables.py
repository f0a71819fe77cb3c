"""The tables of ``python -m relpos bench``, and the command itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import relpos
from relpos import _core
from relpos._bench import (
    attention,
    decode,
    encodings,
    harness,
    layers,
    price,
    rotary,
    schemes,
    small_calls,
    table,
    threads,
)

__all__ = ["TABLES", "add_options", "run"]


class Table(NamedTuple):
    """A table: what it shows, its rows, and whether its calls may use all threads."""

    about: str
    make_plan: Callable[[list[str], bool], table.Plan]
    as_usual: bool = False


TABLES = {
    "attention": Table("fraction of one core's multiply-add peak", attention.make_plan),
    "decode": Table("one query, or a few, against a cache", decode.make_plan),
    "threads": Table("several threads over one", threads.make_plan, True),
    "price": Table("positions over plain attention", price.make_plan),
    "schemes": Table("every scheme over its NumPy form", schemes.make_plan),
    "small": Table("the smallest calls, in us", small_calls.make_plan, True),
    "encodings": Table("encodings and skewing over NumPy", encodings.make_plan),
    "rotary": Table("rotary encoding over a copy", rotary.make_plan),
    "layers": Table("layers of relpos.nn", layers.make_plan),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    lines = [f"  {name:<11}{each.about}" for name, each in TABLES.items()]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Time this relpos, each result checked before it is timed."
    parser.epilog = "\n".join(["tables:", *lines, "", "attention is the default."])
    # argparse holds the empty list, too, against the choices
    parser.add_argument(
        "tables", nargs="*", choices=[[], *TABLES], metavar="TABLE", help="see below"
    )
    parser.add_argument(
        "--full", action="store_true", help="all sizes, more repeats (minutes)"
    )
    parser.add_argument(
        "--rows", default="", metavar="REGEX", help="only rows that match"
    )
    parser.add_argument(
        "--isa",
        action="append",
        choices=sorted(_core.by_isa),
        help="instruction set, repeatable; default: the best, and AVX2",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the rows here"
    )


def run(options: argparse.Namespace) -> int:
    """Print the tables that are asked for, and return the exit status."""
    harness.use_blas_threads()
    isas = options.isa or attention.default_isas()
    about = table.facts(isas, ("float32", "float64"), min(2, relpos.get_num_threads()))
    for name, value in about.items():
        print(f"{name}: {value}")
    rows = []
    for name in options.tables or ["attention"]:
        chosen = TABLES[name]
        print(f"\n{name}: {chosen.about}")
        with nullcontext() if chosen.as_usual else relpos.threads(1):
            rows += table.run(chosen.make_plan(isas, options.full), options.rows)
    print(table.summary(rows))
    if options.json is not None:
        table.write(options.json, about, rows)
    return 0
