"""relpos.diagnose: rotary positions for each item of a batch, and angles."""

from __future__ import annotations

import numpy as np
import pytest
from mistakes.row import B, D, H, K, L, Q, V, softmax

import relpos

PADDING = np.array([0, 3])
POSITIONS = np.maximum(np.arange(L) - PADDING[:, None], 0)[:, None]  # (B, 1, L)
SEE = (np.arange(L) >= PADDING[:, None])[:, None, None]
NEW = Q[..., 6:, :]
PADDED = {"scheme": "rotary", "positions": POSITIONS, "attn_mask": SEE}
COORDINATES = np.stack(np.divmod(np.arange(L), 3), axis=-1)
GRID = relpos.axial_angles(COORDINATES, 10000.0 ** (-np.arange(0, 4, 2) / 4))
SECTIONS = relpos.mrope_angles(
    np.stack([np.arange(L), *COORDINATES.T]),
    10000.0 ** (-np.arange(0, D, 2) / D),
    (2, 1, 1),
)
OF_ITEMS = np.stack([GRID, GRID[::-1]])[:, None]  # (B, 1, L, D / 2)


def rotate(x, angles, interleaved=False):
    """Rotate by sines and cosines of angles, (..., L, D / 2)."""
    pairs = (slice(0, None, 2), slice(1, None, 2))
    first, second = pairs if interleaved else (slice(D // 2), slice(D // 2, None))
    a, b, out = x[..., first], x[..., second], np.empty_like(x)
    out[..., first] = a * np.cos(angles) - b * np.sin(angles)
    out[..., second] = b * np.cos(angles) + a * np.sin(angles)
    return out


def at(positions):
    return np.asarray(positions)[..., None] * 10000.0 ** (-np.arange(0, D, 2) / D)


def attend(query, key, see=True):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    return softmax(np.where(see, scores, -np.inf)) @ V


def test_positions_of_each_item():
    right = attend(rotate(Q, at(POSITIONS)), rotate(K, at(POSITIONS)), SEE)
    assert relpos.diagnose(right, Q, K, V, **PADDED).kind == "same"
    step = attend(rotate(NEW, at(POSITIONS[..., 6:])), rotate(K, at(POSITIONS)), SEE)
    call = {**PADDED, "query_offset": 6}
    assert relpos.diagnose(step, NEW, K, V, **call).kind == "same"
    pairs = attend(rotate(Q, at(POSITIONS), True), rotate(K, at(POSITIONS), True), SEE)
    found = relpos.diagnose(pairs, Q, K, V, **PADDED)
    assert found.differences == ("rotary_pairs",)


def test_new_tokens_that_count_the_padding():
    call = {**PADDED, "query_offset": 6}
    index = at(np.arange(6, L))
    mine = attend(rotate(NEW, index), rotate(K, at(POSITIONS)), SEE)
    found = relpos.diagnose(mine, NEW, K, V, **call)
    assert found.differences == ("rotary_padding_counted",), found.verdict
    assert "new queries rotated by their index" in found.verdict
    old = rotate(K, at(POSITIONS))[..., :6, :]
    keys = np.concatenate([old, rotate(K[..., 6:, :], index)], axis=-2)
    found = relpos.diagnose(attend(rotate(NEW, index), keys, SEE), NEW, K, V, **call)
    assert found.differences == ("rotary_padding_counted",), found.verdict
    assert "new queries and keys rotated by their index" in found.verdict


@pytest.mark.parametrize("offset", [np.array([2, 5]), np.array([0, 0])])
def test_offsets_of_each_item(offset):
    """Queries take the positions, or the angles, of the keys from their offset on."""
    few = Q[..., :4, :]
    of_query = np.stack([POSITIONS[b, :, n : n + 4] for b, n in enumerate(offset)])
    mine = attend(rotate(few, at(of_query)), rotate(K, at(POSITIONS)), SEE)
    call = {**PADDED, "query_offset": offset}
    assert relpos.diagnose(mine, few, K, V, **call).kind == "same"
    of_query = np.stack([GRID[n : n + 4] for n in offset])[:, None]
    mine = attend(rotate(few, of_query), rotate(K, GRID))
    call = {"scheme": "rotary", "angles": GRID, "query_offset": offset}
    assert relpos.diagnose(mine, few, K, V, **call).kind == "same"


@pytest.mark.parametrize(
    "angles", [GRID, SECTIONS, OF_ITEMS], ids=["grid", "M-RoPE", "items"]
)
def test_angles(angles):
    call = {"scheme": "rotary", "angles": angles}
    key = rotate(K, angles)
    new = {**call, "query": NEW, "query_offset": 6}
    cases = [
        (rotate(Q, angles), key, call, ()),
        (rotate(NEW, angles[..., 6:, :]), key, new, ()),
        (rotate(Q, angles, True), rotate(K, angles, True), call, ("rotary_pairs",)),
        (Q, key, call, ("rotary_one_side",)),
        (Q, K, call, ("no_rotary",)),
        (rotate(NEW, angles[..., :3, :]), key, new, ("offset_0",)),
        (
            rotate(Q, at(np.arange(L))),
            rotate(K, at(np.arange(L))),
            call,
            ("rotary_unscaled",),
        ),
        (rotate(Q, 2 * angles), rotate(K, 2 * angles), call, ("rotary_factor",)),
    ]
    for query, keys, given, names in cases:
        arguments = {"query": Q, **given}
        found = relpos.diagnose(attend(query, keys), key=K, value=V, **arguments)
        assert found.differences == names, found.verdict
        assert found.error < 1e-12


def test_angles_laid_out_for_other_pairs():
    def mixed(x):
        each = np.repeat(GRID, 2, axis=-1)
        half = np.concatenate([-x[..., D // 2 :], x[..., : D // 2]], axis=-1)
        return x * np.cos(each) + half * np.sin(each)

    found = relpos.diagnose(
        attend(mixed(Q), mixed(K)), Q, K, V, scheme="rotary", angles=GRID
    )
    assert found.differences == ("rotary_mixed_pairs",)


def test_one_row_for_all_and_rows_of_each_key_head():
    for given in ({"positions": 3}, {"angles": GRID[4:5]}):
        mine = attend(Q, K)  # all are rotated alike
        assert relpos.diagnose(mine, Q, K, V, scheme="rotary", **given).kind == "same"
    rows = np.arange(L) + np.arange(2)[:, None]  # of two key heads
    keys, values = K[:, :2], V[:, :2]
    own = np.repeat(rotate(keys, at(rows)), H // 2, axis=1)
    query = rotate(Q, at(np.repeat(rows, H // 2, axis=0)))
    mine = softmax(query @ own.swapaxes(-1, -2) / np.sqrt(D))
    mine = mine @ np.repeat(values, H // 2, axis=1)
    call = {"scheme": "rotary", "positions": rows, "enable_gqa": True}
    assert relpos.diagnose(mine, Q, keys, values, **call).kind == "same"


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.few(1)
@pytest.mark.parametrize("call", [{"positions": POSITIONS}, {"angles": OF_ITEMS}])
def test_nothing_known_ends_the_search(call):
    mine = np.random.default_rng(0).standard_normal(NEW.shape)
    call = {**call, "query_offset": 6, "magnitude": 1.2, "is_causal": True}
    found = relpos.diagnose(mine, NEW, K, V, scheme="rotary", **call)
    assert (found.kind, found.closest) == ("unknown", None)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            ValueError,
            "^positions: given together",
            {"positions": POSITIONS, "angles": GRID},
        ),
        (ValueError, "^angles: shape", {"angles": GRID[:, :2]}),
        (ValueError, "^angles: shape", {"angles": GRID[:5]}),
        (
            ValueError,
            r"^positions: got shape \(2, 1, 3\)",
            {"positions": POSITIONS[..., :3]},
        ),
        (
            ValueError,
            r"^positions: got shape \(3, 1, 9\)",
            {"positions": np.ones((3, 1, L))},
        ),
        (
            ValueError,
            "^query_offset: got 5 ",
            {"positions": POSITIONS, "query_offset": 5},
        ),
        (ValueError, "^query_offset: got -1 ", {"angles": GRID, "query_offset": -1}),
        (TypeError, "^angles: got", {"angles": "a"}),
    ],
)
def test_errors_name_the_argument(error, message, call):
    assert B == 2
    with pytest.raises(error, match=message):
        relpos.diagnose(Q, Q, K, V, scheme="rotary", **call)
