"""Tables of bad calls as text, a row each: `call -> Error: message`.

An indented line continues the row above it. In messages, … is any text. Calls have
NumPy as np, all of bad_kinds, and the names that a table is given.
"""

from __future__ import annotations

import builtins
import re

import bad_kinds
import numpy as np
import pytest

KINDS = {**vars(bad_kinds), "np": np}


def rows(text):
    """Return (call, error, pattern) of each row."""
    found = []
    for row in re.sub(r"\n +", " ", text.strip()).splitlines():
        call, _, refusal = row.partition(" -> ")
        error, _, message = refusal.partition(": ")
        pattern = ".*".join(map(re.escape, message.split("…")))
        found.append((call, getattr(builtins, error), f"^{pattern}"))
    return found


def changes(text, names):
    """Return (arguments, error, pattern) of rows `x=1, y=2 -> Error: message`.

    A message that begins with … follows the name of the first argument.
    """
    found = []
    for call, error, pattern in rows(text):
        if pattern.startswith("^.*"):
            pattern = f"^{call.partition('=')[0]}: {pattern.removeprefix('^')}"
        found.append((eval(f"dict({call})", KINDS | names), error, pattern))
    return found


def calls(text, names):
    """Return (function, error, arguments, pattern) of rows `f(x=1) -> Error: message`.

    Messages of these rows may begin with any text.
    """
    found = []
    for call, error, pattern in rows(text):
        function, _, arguments = call.partition("(")
        given = eval(f"dict({arguments}", KINDS | names)
        found.append((function, error, given, pattern.removeprefix("^")))
    return found


def every_row(text):
    """Run a test once for each of `rows`, as its argument `row`."""
    return pytest.mark.parametrize("row", rows(text), ids=lambda row: row[0])


def check(row, names):
    """Check that the call of one of `rows` raises its error with its message."""
    call, error, pattern = row
    with pytest.raises(error, match=pattern):
        eval(call, KINDS | names)


def refused(function, good, text, names):
    """Return a test that each of `changes` in a good call is refused."""

    @pytest.mark.parametrize(("changes", "error", "pattern"), changes(text, names))
    def test(changes, error, pattern):
        with pytest.raises(error, match=pattern):
            function(**good | changes)

    return test
