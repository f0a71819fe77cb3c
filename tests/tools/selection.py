"""A plugin of pytest: the cases that `pytest -q` runs, of all those of `pytest --full`.

Every test function runs, on the best kernel table of the CPU. A test whose cases are a
list, however many names `parametrize` gives it, runs all of them. If it is marked
`few(count)`, so many of them run, spread over the list. Of a product of parameters,
such cases run that each value of each parameter occurs at least once. A list of several
names that is marked `product` is one: it was written by a loop, to leave cases out.

What the command line names runs whole: a folder, a file, a test, and what `-k`, `-m` or
`--lf` choose. `--full` asks for all cases of everything, and `--quick` for the
selection of what is named. The fixture `sized` gives a test fewer or smaller problems
where the selection runs.

If the environment variable RELPOS_PASSED names a file, the ids of the cases that
passed are appended to it, one a line.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from relpos import _core

#: Options of pytest that name tests by what they are.
NAMING_OPTIONS = ("keyword", "markexpr")
#: The number of cases before the selection, kept with pytest's configuration.
CASES = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --full and --quick, of which the last one counts."""
    parser.addoption(
        "--full",
        dest="selection",
        action="store_const",
        const="full",
        help="all cases of all tests; without it, a few of each product of parameters",
    )
    parser.addoption(
        "--quick",
        dest="selection",
        action="store_const",
        const="quick",
        help="the selection, also of what the command line names, which runs whole",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of lists that do not run whole."""
    for line in (
        "few(count): without --full so many cases of the list run, as each takes long",
        "product: the names of the list are parameters of a product with gaps",
    ):
        config.addinivalue_line("markers", line)


# After the hook of `-k` and `-m`: a case that they leave out stands for no value.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what only the full run has."""
    config.stash[CASES] = len(items)
    if runs_all(config):
        return
    kept = select(items, best_table=list(_core.by_isa)[-1])
    numbers = {id(item) for item in kept}
    config.hook.pytest_deselected(
        items=[item for item in items if id(item) not in numbers]
    )
    items[:] = kept


# The outermost hook, so that what follows `yield` comes after pytest's own last line.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Say in the last line what a quick run has left out; record what has passed."""
    yield
    config = session.config
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    if CASES in config.stash and not runs_all(config):
        reporter.write_line(f"pytest --full runs {config.stash[CASES]:,} cases")
    path = os.environ.get("RELPOS_PASSED")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            passed = reporter.stats.get("passed", [])
            file.writelines(f"{report.nodeid}\n" for report in passed)


@pytest.fixture(scope="session")
def sized(request: pytest.FixtureRequest) -> Callable[[Any, Any], Any]:
    """Return a function of two sizes, which returns that of this run."""
    is_full = runs_all(request.config)

    def choose(quick: Any, full: Any) -> Any:
        return full if is_full else quick

    return choose


def runs_all(config: pytest.Config) -> bool:
    """Return True where the command line names what to run, or asks for everything."""
    selection = config.getoption("selection")
    if selection is not None:
        return bool(selection == "full")
    if config.getoption("thorough", False):
        return True
    if any(config.getoption(name) for name in NAMING_OPTIONS):
        return True
    # Without failures of an earlier run `--lf` runs all tests, and names none of them;
    # pytest has neither the option nor the cache under `-p no:cacheprovider`.
    if config.getoption("lf", False) and config.cache.get("cache/lastfailed", {}):
        return True
    return config.args_source is pytest.Config.ArgsSource.ARGS


def select(items: Iterable[pytest.Item], best_table: str) -> list[pytest.Item]:
    """Return the items that the quick run keeps, in their order."""
    functions = collections.defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    kept = set()
    for cases in functions.values():
        of_table = [case for case in cases if _table(case) in (None, best_table)]
        kept.update(id(case) for case in _few(_cover(of_table or cases)))
    return [item for item in items if id(item) in kept]


def _table(case: pytest.Item) -> Any:
    """Return the name of the kernel table that a case asks for, or None."""
    callspec: Any = getattr(case, "callspec", None)
    return None if callspec is None else callspec.params.get("isa")


def _cover(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return a list whole, and of a product cases that have each value once or more."""
    columns = zip(*[_parameters(case) for case in cases], strict=True)
    varying = [column for column in columns if len(set(column)) > 1]
    if len(varying) < 2:
        return list(cases)
    values_of_cases = [set(enumerate(values)) for values in zip(*varying, strict=True)]
    return [cases[number] for number in _smallest_cover(values_of_cases)]


def _few(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return as many cases as a marker says, evenly spread, or all of them."""
    marker = cases[0].get_closest_marker("few")
    if marker is None or marker.args[0] >= len(cases):
        return cases
    count = marker.args[0]
    return [cases[number * len(cases) // count] for number in range(count)]


def _parameters(case: pytest.Item) -> list[tuple[int, ...]]:
    """Return the value of each parameter as the identities of what its names have.

    The names of one `parametrize` are one parameter, and so is a fixture's. The cases
    of a product share the objects that `parametrize` was given, and pytest keeps them
    alive, so that equal identities are equal values.
    """
    callspec: Any = getattr(case, "callspec", None)
    if callspec is None:  # a test without parameters, or the examples of a docstring
        return []
    groups = [_names(mark) for mark in case.iter_markers("parametrize")]
    if case.get_closest_marker("product"):
        groups = []
    named = {name for names in groups for name in names}
    groups += [[name] for name in callspec.params if name not in named]
    return [tuple(id(callspec.params[name]) for name in names) for names in groups]


def _names(mark: pytest.Mark) -> list[str]:
    """Return the names of the arguments that a `parametrize` sets."""
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return names.replace(",", " ").split() if isinstance(names, str) else list(names)


def _smallest_cover(values_of_cases: Sequence[set[Any]]) -> list[int]:
    """Return the numbers of sets whose union is that of all, chosen greedily.

    Of sets that add equally many values, the one whose values were chosen least comes
    first, so that the values of a short parameter occur equally often.
    """
    missing = set().union(*values_of_cases)
    uses: collections.Counter[Any] = collections.Counter()
    chosen = []

    def gain(number: int) -> tuple[int, int]:
        values = values_of_cases[number]
        return len(values & missing), -sum(uses[value] for value in values)

    while missing:
        best = max(range(len(values_of_cases)), key=gain)
        chosen.append(best)
        missing -= values_of_cases[best]
        uses.update(values_of_cases[best])
    return chosen
