"""Command line: ``python -m docs.experiments``; --help says what it does."""

from __future__ import annotations

import argparse
from os import times

from docs.experiments import EXPERIMENTS, SEEDS, page

DESCRIPTION = """\
Run experiments and write what came out to relpos/data/experiments, a file each, with
seeds, versions and time (relpos.data.experiment reads them), and to the tables of
docs/experiments.md. --quick runs a form of seconds that writes nothing. Both end in the
asserts of what is claimed.
"""


def parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:22}{what}" for name, what in EXPERIMENTS.items())
    arguments = argparse.ArgumentParser(
        prog="python -m docs.experiments",
        description=f"{DESCRIPTION}\nexperiments:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument(
        "names", nargs="+", metavar="NAME", help="experiments, or all"
    )
    arguments.add_argument(
        "--quick", action="store_true", help="seconds; writes nothing"
    )
    return arguments


def processor_time() -> float:
    """Seconds of this process and of those that it started and that have ended."""
    return sum(times()[:4])


def run(name: str, quick: bool) -> None:
    """One experiment, its results written in full form, and its asserts."""
    module = page.module_of(name)
    seeds = getattr(module, "SEEDS", SEEDS)
    if quick:
        seeds = seeds[:1]
    start = processor_time()
    results = module.run(seeds, quick)
    seconds = processor_time() - start
    if not quick:
        page.FOLDER.mkdir(exist_ok=True)
        record = {"name": name, "seeds": seeds, "results": results}
        text = page.as_json(record | page.source(seconds))
        (page.FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
        page.write(name)
    else:
        print(page.as_json(results), end="")
    module.check(results, quick)
    print(f"{name}: as claimed, in {seconds:.1f} s")


def main() -> None:
    options = parser().parse_args()
    names = [*EXPERIMENTS] if options.names == ["all"] else options.names
    for name in names:
        if name not in EXPERIMENTS:
            known = ", ".join(EXPERIMENTS)
            parser().error(f"no experiment {name!r}; there are {known}; or all")
    for name in names:
        run(name, options.quick)


if __name__ == "__main__":
    main()
