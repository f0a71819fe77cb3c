"""relpos.diagnose: 60 mistakes after bug reports, and 40 right implementations."""

from __future__ import annotations

import re

import numpy as np
import pytest
from mistakes import (
    arguments,
    biases,
    heads,
    masks,
    projections,
    rotations,
    shifts,
    softmaxes,
    windows,
)
from mistakes.row import joined
from right import attentions, positions, rotations as right_rotations

import relpos

FAMILIES = [softmaxes, masks, windows, heads, projections, biases, rotations, shifts]
MISTAKES = [row for family in (*FAMILIES, arguments) for row in family.ROWS]
#: Mistakes that are named with all of their words.
NAMED = 60
#: Mistakes of which the verdict begins with another cause.
MISLED: set[str] = set()
RIGHT = [*attentions.ROWS, *positions.ROWS, *right_rotations.ROWS]


def verdict(row):
    """Return the verdict on a mistake, or the message of an error, and whether named.

    The error, and causes that "these inputs cannot tell", are no part of the verdict.
    """
    try:
        found = relpos.diagnose(row.function, **row.call)
    except TypeError as error:
        text, named = str(error), True
    else:
        text = found.verdict.split("; these inputs")[0]
        text = text.replace(f" ({found.error:.1g})", "")
        number = len({*found.differences} - {"heads_last", "heads_joined"})
        named = found.kind in ("convention", "mistake") and number <= row.causes
    return text, named and all(re.search(s, text, re.IGNORECASE) for s in row.says)


def right(row):
    """Return what relpos gives for the arguments of a mistake."""
    call = {name: x for name, x in row.call.items() if name != "scheme"}
    scheme = row.call.get("scheme", "attention")
    if scheme == "rotary":
        names = {"magnitude", "interleaved", "rotary_dim", "offset"} & call.keys()
        options = {name: call.pop(name) for name in names}
        start = options.pop("offset", 0)
        begin = start + call.get("query_offset", 0)
        call["query"] = relpos.apply_rotary(call["query"], offset=begin, **options)
        call["key"] = relpos.apply_rotary(call["key"], offset=start, **options)
        scheme = "attention"
    return getattr(relpos, scheme)(**call)


def test_60_from_reports():
    assert len(MISTAKES) == 60
    assert len({row.name for row in MISTAKES}) == 60
    for row in MISTAKES:
        assert re.fullmatch(r"(near: )?https://\S+/(issues|pull)/\d+", row.source)


NUMERICAL = [row for family in FAMILIES for row in family.ROWS]


@pytest.mark.parametrize("row", NUMERICAL, ids=lambda row: row.name)
def test_each_differs_from_what_is_right(row):
    out = row.function(*(row.call[name] for name in ("query", "key", "value")))
    wanted = right(row)
    if out.ndim == 3:
        wanted = joined(wanted)
    if out.shape != wanted.shape:
        wanted = wanted.swapaxes(1, 2)
    assert out.shape == wanted.shape
    assert not np.allclose(out, wanted, rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def verdicts(sized):
    """Return the verdict of each mistake, and whether it has all the words."""
    return {row.name: verdict(row) for row in MISTAKES[:: sized(10, 1)]}


def test_named_with_what_to_change(verdicts):
    missing = [name for name, (_, named) in verdicts.items() if not named]
    assert len(MISTAKES) - len(missing) >= NAMED, missing


def test_no_verdict_begins_with_another_cause(verdicts):
    called = {row.name for row in arguments.ROWS}  # these raise an error
    misled = {
        name
        for name, (text, named) in verdicts.items()
        if not named and "fits none of" not in text and name not in called
    }
    assert misled == MISLED


def test_40_are_right():
    assert len(RIGHT) == 40
    assert len({row.name for row in RIGHT}) == 40


@pytest.mark.parametrize("row", RIGHT, ids=lambda row: row.name)
def test_a_right_one_is_not_called_wrong(row):
    found = relpos.diagnose(row.function, **row.call)
    assert found.kind == row.kind, found.verdict
    assert {*found.differences} <= {"heads_last", "heads_joined"}
