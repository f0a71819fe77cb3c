"""A plugin of pytest: the cases that `pytest -q` runs, of all those of `pytest --full`.

Every test function runs, with the best kernel table of the CPU alone. How many of its
cases run depends on its parameters, where the names that one `parametrize` sets
together are one parameter:

- With one parameter the cases are a list, and all of them run.
- With several parameters the cases are a product. Some of them run, so chosen that each
  value of each parameter occurs at least once.
- With the marker `product`, each name counts as a parameter. It is for a list of tuples
  that a loop wrote because a few cases of a product had to be left out.
- With the marker `few(count)`, at most `count` of these cases run, spread evenly.

What the command line names runs with all its cases: a folder, a file, a test, and what
`-k`, `-m` or `--lf` choose. `--full` asks for all cases of everything, and `--quick`
for the selection of what is named. The fixture `sized` gives a test fewer or smaller
problems where the selection runs.

If the environment variable RELPOS_PASSED names a file, the ids of the cases that
passed are appended to it, one a line. It needs pytest's terminal reporter.
"""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from relpos import _core

#: The options `-k` and `-m` of pytest, by the names under which it stores their values.
NAMING_OPTIONS = ("keyword", "markexpr")
#: Where pytest's configuration has the number of cases before the selection.
CASES = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --full and --quick.

    Both set the option `selection`, so that the last one counts; without them it is
    None.
    """
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
    """Register the markers that change how many cases the selection has."""
    for line in (
        "few(count): without --full so many cases of the list run, as each takes long",
        "product: the names of the list are parameters of a product with gaps",
    ):
        config.addinivalue_line("markers", line)


# This hook comes after that of `-k` and `-m`: the cases that they leave out cannot run,
# so the selection must find each value of a parameter among the others.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what only the full run has."""
    config.stash[CASES] = len(items)
    if runs_all(config):
        return
    selected = select(items, best_table=list(_core.by_isa)[-1])
    selected_ids = {id(item) for item in selected}
    deselected = [item for item in items if id(item) not in selected_ids]
    config.hook.pytest_deselected(items=deselected)
    items[:] = selected  # pytest runs what this list has after the hook


# The outermost hook, so that what follows `yield` comes after pytest's own last line.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Say in the last line what a quick run has left out; record what has passed."""
    config: Any = session.config  # which has `workeroutput` in a worker of pytest-xdist
    is_worker = hasattr(config, "workeroutput")
    if is_worker and CASES in config.stash:
        config.workeroutput["cases"] = config.stash[CASES]
    yield
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if is_worker or reporter is None:  # under `-p no:terminal`
        return
    # A session that ends before its tests are collected has no number of cases.
    if CASES in config.stash and not runs_all(config):
        reporter.write_line(f"pytest --full runs {config.stash[CASES]:,} cases")
    path = os.environ.get("RELPOS_PASSED")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            passed = reporter.stats.get("passed", [])
            file.writelines(f"{report.nodeid}\n" for report in passed)


# Under pytest-xdist (`-n 2`) only the workers collect tests. At its end each sends
# `workeroutput` to the process that reports.
@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep the number of cases that a worker has collected."""
    output = getattr(node, "workeroutput", None) or {}  # a worker that died has none
    if "cases" in output:
        node.config.stash[CASES] = output["cases"]


@pytest.fixture(scope="session")
def sized(request: pytest.FixtureRequest) -> Callable[[Any, Any], Any]:
    """Return a function that is given a quick and a full size, and returns one of them.

    A test calls it as `sized(quick, full)`.
    """
    is_full = runs_all(request.config)

    def choose(quick: Any, full: Any) -> Any:
        return full if is_full else quick

    return choose


def runs_all(config: pytest.Config) -> bool:
    """Return True if the command line names what to run, or asks for everything."""
    selection = config.getoption("selection")
    if selection is not None:
        return bool(selection == "full")
    # tests/conftest.py adds this option, and is not there when this plugin runs alone.
    if config.getoption("thorough", False):
        return True
    if any(config.getoption(name) for name in NAMING_OPTIONS):
        return True
    # If no test of an earlier run failed, `--lf` names none, and pytest runs all tests.
    # Under `-p no:cacheprovider` pytest has neither the option nor the cache.
    if config.getoption("lf", False) and config.cache.get("cache/lastfailed", {}):
        return True
    # Without a path on the command line, the source is TESTPATHS or INVOCATION_DIR.
    return config.args_source is pytest.Config.ArgsSource.ARGS


def select(items: Iterable[pytest.Item], best_table: str) -> list[pytest.Item]:
    """Return the items that the quick run keeps, in their order."""
    cases_of_functions = collections.defaultdict(list)
    for item in items:
        function = item.nodeid.partition("[")[0]
        cases_of_functions[function].append(item)
    selected_ids: set[int] = set()
    for cases in cases_of_functions.values():
        of_table = [case for case in cases if _table(case) in (None, best_table)]
        # Every test function runs, also one that asks for other tables only.
        candidates = of_table or cases
        selected_ids.update(id(case) for case in _few(_cover(candidates)))
    return [item for item in items if id(item) in selected_ids]


def _table(case: pytest.Item) -> Any:
    """Return the name of the kernel table that a case asks for, or None."""
    callspec: Any = getattr(case, "callspec", None)
    return None if callspec is None else callspec.params.get("isa")


def _cover(cases: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return all cases of a list, and of a product some that have each value."""
    values_by_case = [_parameters(case) for case in cases]
    values_by_parameter = zip(*values_by_case, strict=True)
    # A parameter of one value, such as the kernel table by now, makes no product.
    varying = [values for values in values_by_parameter if len(set(values)) > 1]
    if len(varying) < 2:
        return list(cases)
    # Two parameters may have the same object as a value: the number of the parameter
    # tells their values apart.
    values_of_cases = [set(enumerate(values)) for values in zip(*varying, strict=True)]
    return [cases[number] for number in _smallest_cover(values_of_cases)]


def _few(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return as many cases as the marker `few` says, evenly spread, or all of them."""
    marker = cases[0].get_closest_marker("few")
    if marker is None or marker.args[0] >= len(cases):
        return cases
    count = marker.args[0]
    return [cases[number * len(cases) // count] for number in range(count)]


def _parameters(case: pytest.Item) -> list[tuple[int, ...]]:
    """Return the value of each parameter, as a tuple of the identities of its objects.

    The names that one `parametrize` sets are one parameter, and a fixture with `params`
    is another. Values may be lists or arrays, which have no hash, so that identities
    represent them. The cases of a product share the objects that `parametrize` was
    given, and pytest keeps them alive, so that equal identities are equal values.
    """
    callspec: Any = getattr(case, "callspec", None)
    if callspec is None:  # a test without parameters, or the examples of a docstring
        return []
    groups = [_names(mark) for mark in case.iter_markers("parametrize")]
    if case.get_closest_marker("product"):
        groups = []  # each name becomes a group of its own below
    grouped_names = set(itertools.chain.from_iterable(groups))
    groups += [[name] for name in callspec.params if name not in grouped_names]
    return [tuple(id(callspec.params[name]) for name in names) for names in groups]


def _names(mark: pytest.Mark) -> list[str]:
    """Return the names of the arguments that a `parametrize` sets."""
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return names.replace(",", " ").split() if isinstance(names, str) else list(names)


def _smallest_cover(values_of_cases: Sequence[set[Any]]) -> list[int]:
    """Return the numbers of cases that together have all values, chosen greedily.

    Each step takes the case that adds most values. If several add equally many, it
    takes the case whose values were chosen least often so far, so that the values of a
    short parameter occur equally often.
    """
    missing = set().union(*values_of_cases)
    uses: collections.Counter[Any] = collections.Counter()  # of each value so far
    chosen = []

    def gain(number: int) -> tuple[int, int]:
        """Return the key by which `max` compares the cases."""
        values = values_of_cases[number]
        return len(values & missing), -sum(uses[value] for value in values)

    while missing:
        best = max(range(len(values_of_cases)), key=gain)
        chosen.append(best)
        missing -= values_of_cases[best]
        uses.update(values_of_cases[best])
    return chosen
