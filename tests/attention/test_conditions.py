"""The limits and conditions of csrc/problems.h, at the entries of the extension.

Kernels rely on them, and csrc/python keeps each one, whatever Python checked before.
The order is that of problems.h. Conditions of a backward alone are in
tests/gradients/test_backward_kernel.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from hostile_calls import FARTHEST, LIMITS, UNBOUNDED
from numpy.lib.stride_tricks import as_strided
from problems import normal

import relpos
from relpos import reference
from relpos._settings import kernels

B, H, LQ, LK, D, R = 2, 2, 4, 5, 3, 7
OTHER = np.float32  # a dtype that is not the query's


def operands(**changes):
    """A good call of attention_forward; None leaves an operand out."""
    rng = np.random.default_rng(0)
    call = {
        "query": normal(rng, B, H, LQ, D),
        "key": normal(rng, B, H, LK, D),
        "value": normal(rng, B, H, LK, D),
        "rel_key": normal(rng, R, D),
        "rel_bias": normal(rng, H, R),
        "min_relative_position": -3,
        "min_bias_position": -3,
        "query_offset": np.array([0, 1]),
        "scale": 0.5,
        "num_threads": 1,
        "out": np.full((B, H, LQ, D), np.nan),
    }
    call |= changes
    return {name: x for name, x in call.items() if x is not None}


def forward(**changes):
    call = operands(**changes)
    kernels().attention_forward(call)
    return call["out"]


def truth(**changes):
    """The definition of the same call; its arguments may have other names."""
    call = operands(**changes)
    for name in ("out", "num_threads", "min_bias_position"):
        call.pop(name, None)
    return reference.attention(**call)


def assert_right(got, **changes):
    np.testing.assert_allclose(got, truth(**changes), rtol=1e-12, atol=1e-13)


def refuse(message, error=ValueError, **changes):
    """The call is refused by name, and writes nothing."""
    call = operands(**changes)
    with pytest.raises(error, match=f"^attention_forward: {message}"):
        kernels().attention_forward(call)
    if isinstance(call.get("out"), np.ndarray) and call["out"].dtype == float:
        assert np.isnan(call["out"]).all()


def test_the_call_is_a_good_one():
    assert_right(forward())


# ---- numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIMITS)
def test_integers_have_limits(name):
    low, high = LIMITS[name]
    for number in (low, high):
        forward(**{name: number})
    for number in (low - 1, high + 1, -(2**63), 2**63, -(10**30), 10**30):
        if not low <= number <= high:
            refuse(f"{name} is out of range", **{name: number})


@pytest.mark.parametrize("name", [*LIMITS, "scale", "softcap", "dropout_p", "seed"])
def test_what_is_no_number_is_refused_by_name(name):
    for value in ("1", [1], 1j, object()):
        refuse(f"{name} must be a number", TypeError, **{name: value})


def test_a_probability_and_a_seed_have_limits():
    for p in (-0.5, -5e-324, 1.0, 2.0, np.inf, np.nan):
        refuse("dropout_p is out of range", dropout_p=p)
    for seed in (-1, 2**64):
        refuse("seed is out of range", seed=seed)
    for name in ("scale", "softcap"):
        refuse(f"{name} is out of range", **{name: 10**400})
    forward(dropout_p=np.nextafter(1, 0), seed=2**64 - 1)


# ---- places --------------------------------------------------------------------------


@pytest.mark.parametrize("far", [FARTHEST, -FARTHEST])
@pytest.mark.parametrize("beyond", [0, 1])
def test_places_far_away(far, beyond):
    """Every pair then has the row at an end, or none."""
    named = {"beyond": ["clip", "zero"][beyond]}
    offset = np.array([0, far])
    got = forward(query_offset=offset, beyond=beyond)
    assert_right(got, query_offset=offset, **named)
    got = forward(
        query_offset=None, beyond=beyond, min_relative_position=far, rel_bias=None
    )
    assert_right(got, query_offset=0, min_relative_position=far, rel_bias=None, **named)


def test_integers_of_batch_items_have_limits():
    for offset in (2**60, -(2**60), 2**63 - 1, -(2**63)):
        refuse("query_offset is out of range", query_offset=np.array([0, offset]))
    for length in (-1, LK + 1, 2**63 - 1, -(2**63)):
        refuse("key_lengths is out of range", key_lengths=np.array([length, 0]))
    for item in (-1, 2**60):
        refuse("part_items is out of range", part_items=np.array([0, item]))
    for items in (np.array(0), np.arange(3), np.zeros((2, 1), int)):
        refuse("part_items must have one entry", part_items=items)
    for name in ("query_offset", "key_lengths", "part_items"):
        refuse(f"{name} must be int64", TypeError, **{name: np.zeros(2)})
    lengths = np.array([0, LK])
    assert_right(forward(key_lengths=lengths), key_lengths=lengths)


# ---- what is visible -----------------------------------------------------------------


@pytest.mark.parametrize("side", [2 * FARTHEST, 2 * FARTHEST + 1, 2**62, UNBOUNDED])
def test_a_side_of_a_window_beyond_all_pairs_hides_none(side):
    """It is beyond all of them also where queries are as far away as they may be."""
    offset = np.array([FARTHEST, -FARTHEST])
    got = forward(window_left=side, window_right=side, query_offset=offset)
    assert_right(got, query_offset=offset)


def test_sides_of_a_window_lie_in_order():
    refuse("window_right lies before", window_left=1, window_right=-2)
    refuse("window_right lies before", window_left=0, window_right=-FARTHEST)
    visible = np.arange(LK) - np.arange(LQ)[:, None] - np.array([0, 1])[:, None, None]
    mask = (visible == -1)[:, None]
    assert_right(forward(window_left=1, window_right=-1), attn_mask=mask)
    assert not forward(window_right=-FARTHEST).any()


def test_ranges_of_keys_are_any_numbers():
    ends = [-(2**63), -1, 0, 2, LK, LK + 1, 2**62, 2**63 - 31, 2**63 - 1]
    for begin in ends:
        for end in ends:
            ranges = np.array([[[0, LK], [begin, end], [end, begin], [1, 2]]])
            assert_right(forward(key_ranges=ranges), key_ranges=ranges)


def test_labels_are_any_numbers():
    """One that is no row of a table is none."""
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        limits = np.iinfo(dtype)
        choices = np.array([limits.min, -1, 0, R - 1, R, limits.max], dtype)
        labels = np.random.default_rng(3).choice(choices, (LQ, LK))
        inside = np.where((labels < 0) | (labels >= R), -1, labels)
        wanted = {"min_relative_position": None, "min_bias_position": None}
        got = forward(labels=labels, **wanted)
        assert_right(got, labels=inside, **wanted)
    for dtype in (np.uint8, np.uint64, bool, float):
        refuse("labels must be int8", TypeError, labels=np.zeros((LQ, LK), dtype))


def test_labels_have_no_gaps():
    several = {f"labels[{n}]": np.zeros((LQ, LK), np.int8) for n in (0, 2)}
    refuse("operands has a key that is not known", TypeError, **several)


# ---- FIRE ----------------------------------------------------------------------------


def fire(**changes):
    """FIRE's tables, of the offsets of `operands`."""
    rng = np.random.default_rng(4)
    relative = np.arange(LQ + LK) - LQ - np.array([0, 1])[:, None]
    lines = rng.standard_normal((H, 3, 3))
    lines[..., 0] = -np.inf, 0.2, 0.4
    tables = {
        "fire_offsets": np.log1p(abs(relative)),
        "fire_queries": np.full((B, LQ), 0.3),
        "fire_lines": lines,
    }
    return tables | changes


def test_offsets_of_fire_are_those_of_each_query_offset():
    forward(**fire())
    of_one = fire()["fire_offsets"][0]
    refuse("fire_offsets must be those of each", **fire(fire_offsets=of_one))
    forward(**fire(fire_offsets=of_one), query_offset=np.array([1, 1]))


def test_offsets_of_fire_lie_side_by_side():
    spread = np.repeat(fire()["fire_offsets"], 2, -1)[..., ::2]
    refuse("fire_offsets does not fit", **fire(fire_offsets=spread))
    refuse("fire_offsets does not fit", **fire(fire_offsets=spread[..., 1:].copy()))


def test_lines_of_fire_serve_all_items_and_rise():
    lines = fire()["fire_lines"]
    each = np.stack([lines, lines + 1])
    refuse("fire_lines must serve all batch items", **fire(fire_lines=each))
    repeated = np.broadcast_to(lines, (B, *lines.shape))
    assert (forward(**fire(fire_lines=repeated)) == forward(**fire())).all()
    falling = lines.copy()
    falling[:, 2, 0] = 0.1
    refuse("fire_lines has starts that fall", **fire(fire_lines=falling))
    refuse("fire_lines does not fit|fire_offsets", **fire(fire_lines=lines[:, :0]))


@pytest.mark.parametrize("name", fire())
def test_tables_of_fire_come_together(name):
    refuse("fire_lines lacks other operands", **fire(**{name: None}))
    refuse(f"{name} must be float64", TypeError, **fire(**{name: fire()[name] > 0}))


# ---- memory --------------------------------------------------------------------------


def overlapping(name, call):
    """Memory of an operand under the first numbers of an array of out's size."""
    of = call[name]
    memory = np.zeros(max(of.size, call["out"].size) + 1)
    view = memory[: of.size].reshape(of.shape)
    view[...] = of
    return view, memory[: call["out"].size].reshape(call["out"].shape)


@pytest.mark.parametrize("name", ["query", "key", "value", "rel_key", "rel_bias"])
def test_a_result_does_not_lie_where_anything_is_read(name):
    view, out = overlapping(name, operands())
    before = view.copy()
    call = operands(**{name: view}, out=out)
    with pytest.raises(ValueError, match=rf"^attention_forward: out overlaps {name} "):
        kernels().attention_forward(call)
    assert (view == before).all()


def test_results_do_not_lie_over_each_other():
    memory = np.zeros((B, H, LQ, 2 * D))
    changes = {"out": memory[..., :D], "lse": memory[..., 2 * D - 1]}
    with pytest.raises(ValueError, match="out overlaps lse in memory"):
        kernels().attention_forward(operands(**changes))
    row_max = np.zeros((B, H, LQ))
    with pytest.raises(ValueError, match="row_max overlaps row_sum in memory"):
        kernels().attention_forward(operands(row_max=row_max, row_sum=row_max))


def test_arrays_that_are_read_may_repeat_and_lie_over_each_other():
    one = np.array(0.7)
    changes = {
        "query": np.broadcast_to(one, (B, H, LQ, D)),
        "key": as_strided(np.arange(9.0) / 9, (B, H, LK, D), (8, 8, 8, 8)),
        "rel_key": np.broadcast_to(one, (R, D)),
        "rel_bias": np.broadcast_to(one, (H, R)),
    }
    changes["value"] = changes["key"]
    assert_right(forward(**changes), **changes)


def test_kept_goes_with_an_out_of_16_bits():
    kept = np.zeros((B, H, LQ, D))
    refuse("kept must go with an out of 16 bits", TypeError, kept=kept)


def test_a_public_result_may_lie_between_what_is_read():
    """Items that interleave with those of an input are written through a copy."""
    memory = normal(np.random.default_rng(5), B, H, LQ, 2, D)
    query, out = memory[:, :, :, 0], memory[:, :, :, 1]
    key, value = (operands()[n] for n in ("key", "value"))
    want = relpos.attention(query.copy(), key, value)
    assert relpos.attention(query, key, value, out=out) is out
    assert (out == want).all()
    even, odd = memory[0, 0, :, 0, :2], memory[0, 0, :, 1, :2]
    want = relpos.apply_rotary(even.copy())
    assert relpos.apply_rotary(even, out=odd) is odd
    assert (odd == want).all()


# ---- lengths -------------------------------------------------------------------------


def test_query_heads_share_key_heads_evenly():
    for heads in (0, 3, 4):
        arrays = {n: np.ones((B, heads, LK, D)) for n in ("key", "value")}
        refuse("key heads must divide query heads", **arrays)


@pytest.mark.parametrize("letter", ["H", "q", "k", "D"])
def test_no_length_is_beyond_memory(letter):
    """Arrays that repeat a number may have any length."""
    sizes = {"H": 1, "q": 1, "k": 1, "D": 1, "V": 0} | {letter: 2**40 + 1}
    shapes = {"query": "HqD", "key": "HkD", "value": "HkV", "out": "HqV"}
    call = {
        n: np.broadcast_to(1.0, [sizes[x] for x in shape])
        for n, shape in shapes.items()
    }
    call["out"] = np.zeros([sizes[x] for x in shapes["out"]])
    call["lse"] = np.zeros((min(sizes["H"], 1), 1))
    if letter in "Hq":  # no result has as many items
        del call["lse"]
    call |= {"scale": 1.0, "num_threads": 1}
    if letter in "Hq":
        kernels().attention_forward(call)
    else:
        with pytest.raises(MemoryError):
            kernels().attention_forward(call)


# ---- decay ---------------------------------------------------------------------------

HIDDEN = {"window_right": 0, "rel_key": None, "rel_bias": None}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_decay_is_finite(bad):
    decay = -np.ones((B, H, LK))
    assert_right(
        forward(log_decay=decay, **HIDDEN), log_decay=decay, is_causal=True,
        rel_key=None, rel_bias=None, min_relative_position=None,
    )  # fmt: skip
    for at in ((0, 0, 0), (1, 1, LK - 1), (0, 1, 2)):
        wrong = decay.copy()
        wrong[at] = bad
        refuse("log_decay must be finite", log_decay=wrong, **HIDDEN)
    refuse(
        "log_decay must be finite",
        log_decay=np.broadcast_to(bad, (H, LK)),
        **HIDDEN,
    )


def test_decay_has_a_number_for_each_key():
    forward(log_decay=-np.ones((H, LK + 2)), **HIDDEN)
    for wrong in (-np.ones((H, LK - 1)), -np.ones((H, 0)), -np.ones((1, LK))):
        refuse("log_decay does not fit", log_decay=wrong, **HIDDEN)


def test_decay_goes_with_hidden_later_keys():
    decay = {"log_decay": -np.ones((H, LK))}
    message = "log_decay needs every key after its query to be hidden"
    refuse(message, **decay)
    refuse(message, window_right=1, **decay)
    offset = np.arange(LQ) + np.array([[0], [1]])
    ranges = np.stack([np.zeros_like(offset), offset + 1], -1)
    forward(key_ranges=ranges, **decay)
    later = ranges.copy()
    later[1, 2] = 4, 5  # the key after the query's own
    refuse(message, key_ranges=later, **decay)
    later[1, 2] = 5, 4  # no key
    forward(key_ranges=later, **decay)
    forward(key_lengths=np.array([1, 2]), **decay)
    refuse(message, key_lengths=np.array([2, 2]), **decay)


# ---- graphs --------------------------------------------------------------------------

GRAPH = {"rel_bias": None, "query_offset": None, "rel_key": None}
EDGES = {"indptr": np.array([0, 2, 2, 3, 4]), "indices": np.array([0, 4, 1, 1])}


def graph(**changes):
    return GRAPH | EDGES | {"edge_labels": np.zeros(4, int)} | changes


def test_edges_are_what_problems_h_says():
    forward(**graph())
    starts = {
        "must run from 0 to": ([1, 2, 2, 3, 4], [0, 2, 2, 3, 3], [0, 2, 2, 3, 5]),
        "must have one entry more": ([0, 4], [0, 2, 2, 3, 4, 4], []),
    }
    for message, wrong in starts.items():
        for indptr in wrong:
            refuse(f"indptr {message}", **graph(indptr=np.array(indptr, int)))
    falling = operands(**graph(indptr=np.array([0, 3, 2, 3, 4])))
    with pytest.raises(ValueError, match=r"^indptr: falls from 3 to 2 at query 1"):
        kernels().attention_forward(falling)
    for key in (-1, LK, 2**63 - 1, -(2**63)):
        call = operands(**graph(indices=np.array([0, key, 1, 1])))
        with pytest.raises(IndexError, match=r"^indices: indices\[1\] is"):
            kernels().attention_forward(call)


def test_labels_of_edges_are_any_numbers():
    labels = np.array([-(2**63), 2**63 - 1, -1, R])
    table = operands()["rel_key"]
    got = forward(**graph(rel_key=table, edge_labels=labels))
    assert (got == forward(**graph())).all()


@pytest.mark.parametrize("name", ["indptr", "indices", "edge_labels"])
def test_edges_are_vectors_of_int64(name):
    given = graph()[name]
    wrong = (given.astype(np.int32), given[None], np.repeat(given, 2)[::2], [0])
    for array in (*wrong, given.astype(">i8"), given.astype(float)):
        refuse(f"{name} must be a C-contiguous", TypeError, **graph(**{name: array}))


def test_a_result_does_not_lie_where_edges_are_read():
    out = np.zeros((B, H, LQ, D))
    indices = out.reshape(-1)[:4].view(np.int64)
    with pytest.raises(ValueError, match="out overlaps indices in memory"):
        kernels().attention_forward(operands(**graph(out=out, indices=indices)))


# ---- rotary --------------------------------------------------------------------------


def rotary(**changes):
    x = np.arange(24.0).reshape(2, 3, 4)
    call = {"x": x, "out": np.zeros_like(x), "positions": np.ones((2, 3, 1))}
    call |= {n: np.ones((2, 3, 2)) for n in ("high", "low", "magnitude")}
    call |= {"interleaved": False, "threads": 1} | changes
    kernels().apply_rotary(*call.values())
    return call["out"]


ROTARY = [
    ({"high": np.ones((2, 3, 3))}, ValueError, "high has the wrong last axis"),
    ({"low": np.ones((2, 3, 1))}, ValueError, "low has the wrong last axis"),
    ({"high": np.ones((3, 2))}, ValueError, "high does not have x's axes"),
    ({"positions": np.ones((2, 2, 1))}, ValueError, "positions does not have x's"),
    ({"magnitude": np.ones((2, 3, 2), OTHER)}, TypeError, "magnitude has the wrong d"),
    ({"out": np.ones((2, 3, 4), OTHER)}, TypeError, "out has the wrong dtype"),
    ({"out": np.broadcast_to(0.0, (2, 3, 4))}, ValueError, "out is read-only"),
    ({"threads": 0}, ValueError, "threads is out of range"),
    ({"threads": 1025}, ValueError, "threads is out of range"),
    (
        {"out": as_strided(np.zeros(12), (2, 3, 4), (0, 32, 8))},
        ValueError,
        "out has items that share memory",
    ),
]


@pytest.mark.parametrize(("changes", "error", "message"), ROTARY)
def test_rotary(changes, error, message):
    with pytest.raises(error, match=f"^apply_rotary: {message}"):
        rotary(**changes)


def test_a_rotation_may_be_in_place_and_not_beside():
    memory = np.arange(25.0)
    x, beside = memory[:24].reshape(2, 3, 4), memory[1:].reshape(2, 3, 4)
    want = rotary(x=x.copy())
    with pytest.raises(ValueError, match=r"^apply_rotary: out overlaps another array"):
        rotary(x=x, out=beside)
    with pytest.raises(ValueError, match=r"^apply_rotary: out overlaps another array"):
        rotary(x=x, out=x[::-1])
    with pytest.raises(ValueError, match=r"^apply_rotary: out overlaps another array"):
        rotary(x=x.copy(), out=x, positions=x[..., :1])
    assert (memory == np.arange(25.0)).all()
    assert (rotary(x=x, out=x) == want).all()


def test_products_have_threads():
    a = np.ones((2, 2))
    for threads in (0, -1, 1025):
        with pytest.raises(ValueError, match=r"^gemm: threads is out of range"):
            kernels().gemm_tiles(a, a, threads)
