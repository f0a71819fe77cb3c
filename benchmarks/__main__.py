"""Command line: ``python -m benchmarks``; --help says what it does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import compare, grid, memory, report, text, worker
from benchmarks.peers import PEERS
from benchmarks.problems import MODES, SCHEMES, label_of
from benchmarks.results import Results, stored_path
from benchmarks.rows import Spec
from benchmarks.tables import TABLES, price
from relpos import _bench as table

DESCRIPTION = """\
Time relpos and what one could use instead. Each result is compared with float64 before
it is timed; all entrants of a row take turns; the figure is the ratio of times within
the row. With the name of a TABLE, time relpos alone.
"""
EPILOG = f"""\
tables:
{chr(10).join(f"  {name:<11}{each.about}" for name, each in TABLES.items())}

examples:
  python -m benchmarks --scheme music_causal --mode fwd fwdbwd --json out.json
  python -m benchmarks --peers none --threads 1 2
  python -m benchmarks --grid --missing --json out.json   go on where a run was cut
  python -m benchmarks --grid --report                    measure, then write README.md
  python -m benchmarks --prices --missing --report        schemes over plain attention
  python -m benchmarks --report out.json                  write it from a file
  python -m benchmarks attention decode --full --json rows.json
"""


def shape_of(text: str) -> tuple[int, int, int, int]:
    """B,H,L,D."""
    numbers = tuple(int(part) for part in text.split(","))
    if len(numbers) != 4 or min(numbers) < 1:
        raise ValueError
    batch, heads, length, dim = numbers
    return batch, heads, length, dim


shape_of.__name__ = "shape"  # in the message for a wrong one


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    table.add_options(arguments.add_argument_group("relpos alone"), TABLES)
    add_rows(arguments.add_argument_group("relpos and its peers"))
    add = arguments.add_argument
    timing = "timing of a row takes about so long (default: 2)"
    add("--seconds", type=float, default=2.0, metavar="S", help=timing)
    kept = "write each row as it comes; other rows of the file stay"
    add("--json", type=Path, metavar="FILE", help=kept)
    add("--missing", action="store_true", help="only rows that the file has not yet")
    report = (
        "write benchmarks/README.md and its pictures of a file, or of the one that "
    )
    report += "is stored for this model of CPU"
    add("--report", nargs="?", type=Path, const=None, default=False, metavar="FILE",
        help=report)  # fmt: skip
    quick = "measure a few rows and say which fell behind those stored for this CPU"
    add("--quick", action="store_true", help=quick)
    return arguments


def add_rows(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    names = [peer.name for peer in PEERS]
    schemes = [name + way for name in SCHEMES for way in ("", "_causal")]
    listed = f"{', '.join(SCHEMES)}, or another name of one; each also with _causal"
    add(
        "--scheme",
        nargs="+",
        metavar="NAME",
        type=label_of,
        choices=schemes,
        default=["music_causal"],
        help=listed,
    )
    add(
        "--shape",
        nargs="+",
        metavar="B,H,L,D",
        type=shape_of,
        default=[(1, 8, 1024, 64)],
        help="batch, heads, length, size of a head",
    )
    add("--mode", nargs="+", choices=MODES, default=["fwd", "fwdbwd"])
    add("--threads", nargs="+", type=int, default=[1], metavar="N")
    listed = f"all, none, or some of: {', '.join(names)}"
    add(
        "--peers",
        nargs="+",
        metavar="NAME",
        choices=["all", "none", *names],
        default=["all"],
        help=listed,
    )
    add("--grid", action="store_true", help="the rows of the report instead")
    add("--memory", action="store_true", help="then extra memory, too")
    positions = "instead, relpos alone: every scheme over plain attention"
    add("--prices", action="store_true", help=positions)


def chosen(options: argparse.Namespace) -> list[Spec]:
    if options.grid:
        return grid.memory() if options.memory else grid.grid()
    peers = tuple(options.peers)
    if peers[0] == "all":
        peers = grid.names(True)
    elif peers[0] == "none":
        peers = ()
    return [
        Spec(
            name.removesuffix("_causal"),
            name.endswith("_causal") or mode == "decode",
            mode,
            shape,
            threads,
            peers,
        )
        for threads, name, shape, mode in product(
            options.threads, options.scheme, options.shape, options.mode
        )
    ]


def measure(options: argparse.Namespace, path: Path | None) -> None:
    """Print each row that is asked for, and keep it in the file at once."""
    results = Results.read(path) if path and path.exists() else Results()

    def not_known(known: Mapping[str, Any], every: list[Any]) -> list[Any]:
        """Return what is to be measured: with --missing not what the file has."""
        if not options.missing:
            return every
        return [each for each in every if each.label not in known]

    def keep(
        known: dict[str, Any], rows: Iterable[Any], text_of: Callable[[Any], str]
    ) -> None:
        for row in rows:
            print(text_of(row), flush=True)
            known[row["label"]] = row
            if path:
                results.write(path)

    if options.prices:
        prices = not_known(results.prices, price.prices(full=True))
        keep(results.prices, price.records(prices), text.of_price)
        return
    specs = not_known(results.rows, chosen(options))
    before = list(results.rows.values())  # a copy: `keep` adds rows while they come
    keep(results.rows, worker.records(specs, options.seconds, before), text.of_row)
    if options.memory:
        specs = not_known(results.memory, chosen(options))
        specs = [spec for spec in specs if spec.mode != "decode"]
        keep(results.memory, memory.records(specs), text.of_memory)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for, and return the exit status."""
    options = parser().parse_args(arguments)
    if options.tables:
        table.run({name: TABLES[name] for name in options.tables}, options)
        return 0
    if options.quick:
        compare.run(options.seconds)
        return 0
    stored = options.grid or options.prices
    path = options.json or (stored_path() if stored else None)
    if stored or options.report is False:
        measure(options, path)
    if options.report is not False:
        source = options.report or path or stored_path()
        for written in report.write(Results.read(source)):
            print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
