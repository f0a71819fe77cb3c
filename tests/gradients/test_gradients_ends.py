"""Gradients at the ends of clipped tables do not keep what delta is wrong by.

delta_i = grad_out_i . out_i is as wrong as out is rounded. Here out is made far more
wrong, by e_i in delta_i: dS_ij misses p_ij e_i. What the backward takes back has to be
worth exactly that at both ends, and nothing elsewhere.
"""

from __future__ import annotations

import dense_oracle
import numpy as np
import pytest
from problems import normal, qkv
from tolerances import normwise

import relpos
from relpos import _core
from relpos._settings import use_isa

LENGTHS = [(64, 64), (70, 300), (150, 150), (40, 1100)]  # band; rows; many key tiles
SETTINGS = {
    "both directions": {},
    "causal": {"is_causal": True},
    "window": {"window": (30, 20)},
    "window inside the table": {"window": (2, 1)},
    "dropout": {"dropout_p": 0.3, "rng": 5},
    "offset": {"query_offset": 25, "is_causal": True},
    "far offset": {"query_offset": 600},  # an end that only later chunks of keys meet
    "lengths": {"key_lengths": np.array([31, 0])},
    "masked": {"attn_mask": "left half"},
}
FIRST = "min_relative_position"


def problem(rng, lq, lk, settings, rows=9):
    """(inputs, settings): two items, four heads on two key heads."""
    settings = dict(settings)
    if "attn_mask" in settings:
        settings["attn_mask"] = np.arange(lk) >= lk // 2
    q, k, v = qkv(rng, (2,), 4, lq, lk, 20, 12, key_heads=2)
    inputs = {
        "query": q,
        "key": k,
        "value": v,
        "rel_key": normal(rng, 4, rows, 20),
        "rel_value": normal(rng, rows, 12),
        "pos_bias_v": normal(rng, 4, 20),
    }
    placed = {"enable_gqa": True, "query_offset": 0, FIRST: -4}
    return inputs, placed | settings


def gradients(inputs, settings, grads, error):
    """The gradients where out is wrong by `error`."""
    result = relpos.attention(**inputs, **settings, return_context=True)
    np.add(result.out, error, out=result.out)
    grad_out, grad_lse = grads
    found = result.context.backward(grad_out, grad_lse=grad_lse, wrt=list(inputs))
    return found._asdict()


def missing(inputs, settings, e):
    """Return the gradients of dS = -p e over all pairs except those at the ends."""
    p = dense_oracle.attention(**inputs, **settings).weights
    q, k = inputs["query"] + inputs["pos_bias_v"][:, None], inputs["key"]
    table = inputs["rel_key"]
    rows = table.shape[-2]
    lq, lk = p.shape[-2:]
    relative = np.arange(lk) - np.arange(lq)[:, None] - settings["query_offset"]
    row = relative - settings[FIRST]
    ds = -p * e[..., None] * q.shape[-1] ** -0.5
    inside = np.zeros((*ds.shape[:-1], rows))
    for r in range(rows):
        inside[..., r] = np.where(row == r, ds, 0).sum(-1)
    by_row = np.einsum("bhir,hrd->bhid", inside, table)
    return {
        "query": ds @ np.repeat(k, 2, 1) + by_row,
        "rel_key": np.einsum("bhir,bhid->hrd", inside, q),
        "pos_bias_v": by_row.sum((0, 2)),
    }


@pytest.mark.parametrize("rows", [9, 1, 301])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_the_ends_do_not_see_an_error_of_delta(lengths, setting, rows):
    rng = np.random.default_rng(0)
    inputs, settings = problem(rng, *lengths, SETTINGS[setting], rows)
    shape = inputs["query"].shape[:3]
    grads = normal(rng, *shape, 12), normal(rng, *shape)
    error = normal(rng, *shape, 12)
    want = missing(inputs, settings, (grads[0] * error).sum(-1))
    for isa in _core.by_isa:
        with use_isa(isa):
            right = gradients(inputs, settings, grads, 0.0)
            wrong = gradients(inputs, settings, grads, error)
        for name, difference in want.items():
            scale = max(np.linalg.norm(difference), np.linalg.norm(right[name]))
            rest = np.linalg.norm(wrong[name] - right[name] - difference)
            assert rest <= 1e-13 * scale, (isa, name, rest / scale)


def test_an_end_without_pairs_may_hold_nan():
    rng = np.random.default_rng(0)
    inputs, settings = problem(rng, 150, 150, {"is_causal": True})
    grads = normal(rng, *inputs["query"].shape[:3], 12), None
    error = normal(rng, *grads[0].shape)
    right = gradients(inputs, settings, grads, error)
    inputs["rel_key"][:, -1] = np.nan
    got = gradients(inputs, settings, grads, error)
    for name in ("query", "rel_key", "pos_bias_v"):
        assert normwise(got[name], right[name]) <= 1e-13, name
