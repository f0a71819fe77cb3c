"""Command line: ``relpos demo``, ``check``, ``info``, ``models``, ``bench``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import relpos
from relpos import _bench, _tested
from relpos._demo import page
from relpos._opinion import check


def version() -> str:
    """Return the version, the instruction set in use and the build, on one line."""
    facts = relpos.show_config(mode="dicts")
    build = f"{facts['compiler']}, blas {facts['blas']}"
    return f"relpos {facts['version']} ({facts['isa']}; {build})"


def show_info() -> None:
    """Print how relpos was built, and its neighbours: which versions are tested."""
    relpos.show_config()
    for name, text in _torch_facts().items():
        print(f"{name + ':':<14} {text}")
    heading = ("package", "installed", "tested from", "tested to")
    print()
    for row in (heading, *_tested.neighbours()):
        print("{:<14} {:<14} {:<12} {}".format(*row))


def _torch_facts() -> dict[str, str]:
    """Return whether C runs calls of `relpos.torch` whole, whose threads, and why."""
    try:
        from relpos.torch import _recorded, _team
    except (ImportError, OSError):  # the latter of libraries that are not there
        reason = "PyTorch is not installed or cannot be imported"
        return {"torch calls": f"none, as {reason}"}
    calls, threads = "whole in C", "PyTorch's, unless a call needs more than there are"
    if _recorded.RECORD is None:
        calls = f"prepared in Python, which takes longer ({_recorded.REASON})"
    if _team.REASON is not None:
        threads = f"relpos's, as PyTorch's cannot be used ({_team.REASON})"
    return {"torch calls": calls, "torch threads": threads}


def show_models() -> int:
    """Print what relpos serves of transformers; 1 where a package is not installed."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        print(
            "relpos models reads the installed transformers, and needs torch; "
            f"not installed: {', '.join(missing)}; "
            f"run `pip install {' '.join(missing)}`",
            file=sys.stderr,
        )
        return 1
    from relpos.torch._transformers import served

    return served.run()


def parser() -> argparse.ArgumentParser:
    is_module = Path(sys.argv[0]).name != "relpos"  # the name of the entry point
    top = argparse.ArgumentParser(
        prog="python -m relpos" if is_module else "relpos",
        description="Attention with relative positions.",
    )
    top.add_argument("--version", action="version", version=version())
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser("demo", help="compute examples and check every result")
    demo.add_argument("--json", action="store_true", help="print JSON instead of text")
    demo.add_argument("--no-plots", action="store_true", help="draw no pictures")
    demo.add_argument("--open", action="store_true", help="open the report as a page")
    commands.add_parser(
        "check",
        help="compare every scheme, and gradients, with the installed PyTorch",
    )
    commands.add_parser(
        "info", help="tell how this relpos was built, and versions of other packages"
    )
    commands.add_parser(
        "models",
        help="tell which models of the installed transformers run with relpos",
        description="Print each model type of the installed transformers, and which of "
        "relpos.torch.register and replace_attention serves it, or why neither does.",
    )
    bench = commands.add_parser(
        "bench",
        help="time the kernels on this machine",
        description="Time every scheme, each result checked before it is timed.",
        epilog="More tables: python -m benchmarks, in a source tree.",
    )
    _bench.add_options(bench, _bench.TABLES)
    bench.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the rows here"
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status, 1 where the output's reader has gone."""
    try:
        status = run(arguments)
        sys.stdout.flush()  # at exit, its error could not be caught
    except BrokenPipeError:  # as of ``| head``
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # for what Python still flushes
        return 1
    return status


def run(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    if options.command == "info":
        show_info()
        return 0
    if options.command == "models":
        return show_models()
    if options.command == "check":
        return check.run()
    if options.command == "bench":
        _bench.run(_bench.TABLES, options)
        return 0
    report = relpos.demo(as_json=options.json, plots=not options.no_plots)
    if options.open:
        page.show(report)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
