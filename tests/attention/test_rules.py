"""The rules of a call, which C has once: their words, their facts, and who asks them.

A call of plain arrays is read in C, and one of lists is prepared in Python: both follow
the same rules, so that they give the same bits or raise the same error.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from tolerances import assert_bitwise

import relpos
from relpos import _core
from relpos._attention import rules
from relpos._attention.attention import as_call
from relpos._attention.operands import read
from relpos._attention.problem import prepare

#: A call that breaks each rule.
BREAKS = {
    "needs rel_key": {"pos_bias_v": np.ones(4)},
    "labels and": {
        "rel_bias": np.ones(3),
        "labels": np.zeros((5, 5), int),
        "buckets": [0],
    },
    "needs a table": {"min_relative_position": 0},
    "unequal rows": {
        "rel_key": np.ones((3, 4)),
        "rel_bias": np.ones(5),
        "buckets": [0],
    },
    "outside rows": {"rel_bias": np.ones(3), "buckets": [0, 3, 0]},
    "unplaced rows": {
        "rel_key": np.ones((3, 4)),
        "rel_query": np.ones((5, 4)),
        "min_relative_position": 0,
    },
    "even rows": {"rel_bias": np.ones(4)},
    "heads of FIRE": {},
    "needs another": {"block_size": 2},
    "heads of blocks": {"key_blocks": np.ones((3, 1, 1), bool), "block_size": 5},
    "number of blocks": {"key_blocks": np.ones((1, 1, 1), bool), "block_size": 3},
    "needs an offset": {"is_causal": True, "key": np.ones((2, 7, 4))},
    "far offset": {"query_offset": 2**60},
    "long length": {"key_lengths": 6},
    "unseen rows": {"rel_bias": np.ones(3), "beyond": "raise"},
    "sees ahead": {"log_decay": np.zeros((2, 5))},
    "needs a scale": {"query": np.ones((2, 5, 0)), "key": np.ones((2, 5, 0))},
    "needs a cap": {"softcap": 0.0},
    "too small": {"scale": 1e-46},
    "too large": {"softcap": 1e300},
}


@pytest.mark.parametrize("rule", BREAKS)
def test_each_rule_has_words(rule, monkeypatch):
    asked = []
    known = rules._WORDS[rule]

    def note(broken):
        asked.append(broken)
        return known(broken)

    monkeypatch.setitem(rules._WORDS, rule, note)
    changes = dict(BREAKS[rule])
    single = np.float32 if rule in ("too small", "too large") else np.float64
    x = np.ones((2, 5, 4), single)
    call = {"query": x, "key": x, "value": changes.get("key", x)} | changes
    with pytest.raises((ValueError, IndexError), match=r"^[a-z_0-9]+: "):
        if rule == "heads of FIRE":
            network = [1.0], [0.0], np.ones((3, 1)), np.zeros(3), 1.0, 1.0
            relpos.fire_attention(x, x, x, *network)
        else:
            relpos.attention(**call)
    assert len(asked) == 1


def test_no_rule_is_left_out():
    assert set(BREAKS) == set(rules._WORDS)


# ---- pairs that are seen -------------------------------------------------------------


def draw_sight(rng, items, queries, keys):
    """Return arguments that hide pairs, some of them for each item."""
    sight = {"query_offset": rng.integers(-4, 5, items)}
    if rng.random() < 0.6:
        sight["key_lengths"] = rng.integers(0, keys + 1, items)
    if rng.random() < 0.6:
        shape = (items, queries, 2) if rng.random() < 0.5 else (1, 2)
        sight["key_ranges"] = rng.integers(-1, keys + 2, shape)
    if rng.random() < 0.6:
        sight["window"] = tuple(map(int, rng.integers(0, 4, 2)))
    if rng.random() < 0.3:
        sight["is_causal"] = True
    if rng.random() < 0.3:
        for name in ("query_offset", "key_lengths"):
            if name in sight:
                sight[name] = int(sight[name][0])
    return sight


def seen_positions(sight, items, queries, keys):
    """Return the relative position of every pair that is seen, pair by pair."""
    offsets = np.broadcast_to(sight["query_offset"], items)
    lengths = np.broadcast_to(sight.get("key_lengths", keys), items)
    ranges = sight.get("key_ranges", np.array([[0, keys]]))
    ranges = np.broadcast_to(ranges, (items, queries, 2))
    left, right = sight.get("window", (99, 99))
    if sight.get("is_causal"):
        right = min(right, 0)
    found = []
    for item, query, key in np.ndindex(items, queries, keys):
        relative = key - query - int(offsets[item])
        begin, end = ranges[item, query]
        if key < lengths[item] and begin <= key < end and -left <= relative <= right:
            found.append(relative)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_seen_positions_are_those_of_all_pairs(seed):
    rng = np.random.default_rng(seed)
    items, queries, keys = (int(n) for n in rng.integers(1, 5, 3))
    sight = draw_sight(rng, items, queries, keys)
    seen = seen_positions(sight, items, queries, keys)
    query, key = np.ones((items, 1, queries, 2)), np.ones((items, 1, keys, 2))
    # a table that no pair reaches: the error says which positions are seen
    far = {"rel_bias": np.ones(1), "min_relative_position": 50, "beyond": "raise"}
    if not seen:
        relpos.attention(query, key, key, **sight, **far)
        return
    expected = f"visible relative positions run from {min(seen)} to {max(seen)}, "
    with pytest.raises(IndexError, match=expected):
        relpos.attention(query, key, key, **sight, **far)


# ---- one set of rules for both ways in -----------------------------------------------


def draw_call(rng):
    """Return arguments of plain arrays and numbers, some of which break a rule."""
    queries, keys = (int(n) for n in rng.integers(1, 5, 2))
    call = {
        "query": rng.standard_normal((1, queries, 2)),
        "key": rng.standard_normal((1, keys, 2)),
        "value": rng.standard_normal((1, keys, 3)),
    }
    rows = rng.integers(1, 6, 2)
    if rng.random() < 0.6:
        call["rel_key"] = rng.standard_normal((rows[0], 2))
    if rng.random() < 0.5:
        call["rel_bias"] = rng.standard_normal(rows[int(rng.integers(2))])
    if rng.random() < 0.3:
        call["buckets"] = rng.integers(0, rows.min() + 1, int(rng.integers(1, 8)))
    options = {
        "min_relative_position": int(rng.integers(-4, 3)),
        "query_offset": int(rng.integers(-3, 4)),
        "key_lengths": int(rng.integers(-1, keys + 2)),
        "window": (int(rng.integers(0, 4)), None),
        "beyond": "raise",
        "is_causal": True,
        "scale": float(rng.choice([0.0, 0.5, 1e-30, 1e308])),
        "softcap": float(rng.choice([-1.0, 2.0, 1e308])),
    }
    chance = {"scale": 0.15, "softcap": 0.15, "key_lengths": 0.2, "query_offset": 0.7}
    chosen = [name for name in options if rng.random() < chance.get(name, 0.35)]
    return call | {name: options[name] for name in chosen}


def outcome(call):
    """Return the result of a call, or the text of its error."""
    try:
        return relpos.attention(**call)
    except (ValueError, IndexError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("seed", range(20))
def test_a_call_of_lists_is_that_of_arrays(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        call = draw_call(rng)
        got = outcome(call)
        want = outcome(call | {"value": call["value"].tolist()})
        if isinstance(want, str):
            assert got == want
        else:
            assert_bitwise(got, want)


# ---- what C is given -----------------------------------------------------------------


def arguments(**changes):
    """Return what `_core.apply_rules` is given for a call with these changes."""
    x = np.ones((2, 5, 4))
    inputs, *_ = read(as_call(x, x, x, {}))
    numbers = rules.Numbers()
    inputs |= {name: value for name, value in changes.items() if name in _core.operands}
    inputs |= {
        name: value
        for name, value in changes.items()
        if name in ("query_offset", "key_lengths")
    }
    others = {n: v for n, v in changes.items() if n in rules.Numbers._fields}
    return inputs, numbers._replace(**others)


HOSTILE = [
    {"buckets": np.zeros(3, np.int32)},
    {"buckets": np.zeros((3, 1), int)},
    {"buckets": np.zeros(6, int)[::2]},
    {"buckets": np.zeros(0, int)},
    {"buckets": [0]},
    {"key_ranges": np.zeros((5, 2), np.int32)},
    {"key_blocks": np.zeros((1, 1, 1)), "block_size": (5, 5)},
    {"key_blocks": np.zeros((1, 1, 1), bool), "block_size": (5, 0)},
    {"key_blocks": np.zeros((1, 1, 1), bool), "block_size": (5, 2**41)},
    {"key_blocks": np.zeros((1, 1, 1), bool), "block_size": 5},
    {"query_offset": np.zeros((), np.int32)},
    {"key_lengths": np.zeros(2)},
    {"query": np.ones((2, 5, 4), int)},
    {"query": np.ones((2, 5, 3))},
    {"rel_key": 1.0},
    {"left": -1},
    {"right": -1},
    {"first": 2**60},
    {"first": 2**70},
    {"first": 0.0},
    {"scale": "1"},
    {"softcap": 1},
    {"fire": 1},
    {"fire": (1, 2)},
]


@pytest.mark.parametrize("changes", HOSTILE, ids=str)
def test_c_refuses_what_no_call_gives_it(changes):
    with pytest.raises((TypeError, ValueError)):
        _core.apply_rules(*arguments(**changes))


def test_integers_that_repeat_are_looked_at_once():
    repeated = np.broadcast_to(np.array(6), (2**40,))
    rule, *_ = _core.apply_rules(*arguments(key_lengths=repeated))
    assert rule == "long length"


def test_c_takes_what_a_call_gives_it():
    result = _core.apply_rules(*arguments(key_lengths=np.array([1, 2])))
    *others, numbers = result
    assert others == ["d", "d", [], {}, None]
    assert numbers["scale"] == 0.5
    assert numbers["window_left"] == numbers["window_right"] == rules.UNBOUNDED
    firsts = {n: x for n, x in numbers.items() if n.endswith("_position")}
    assert {"min_relative_position", "min_bias_position"} <= firsts.keys()
    assert {*firsts.values()} == {0}
    assert _core.apply_rules(*arguments(key_lengths=np.array([1, 6])))[3][0] == 6


def test_a_narrower_table_is_gathered_into_the_widest():
    x = np.ones((1, 5, 2))
    tables = {"rel_key": np.ones((3, 2)), "rel_value": np.ones((5, 2))}
    for beyond, rows in (("clip", [0, 0, 1, 2, 2]), ("zero", [-1, 0, 1, 2, -1])):
        problem = prepare(as_call(x, x, x, tables | {"beyond": beyond}))
        assert [*problem.rows] == ["rel_key"]
        assert problem.rows["rel_key"].tolist() == rows


def test_the_words_of_a_bucket_name_the_first_table():
    x = np.ones((1, 3, 2))
    text = "buckets: buckets[1] is 7, outside rel_key of 3 rows; expected 0 to 2"
    with pytest.raises(IndexError, match=f"^{re.escape(text)}$"):
        relpos.attention(x, x, x, rel_key=np.ones((3, 2)), buckets=[0, 7, 1])
