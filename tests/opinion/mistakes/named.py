"""Results of the attention of row.py, and what a verdict on them has to name."""

from __future__ import annotations

import numpy as np

import relpos
from mistakes.row import D, K, L, Q, V, softmax

AT, S = np.arange(L), Q @ K.swapaxes(-1, -2) / np.sqrt(D)


def seen(see, scores=S):
    """Return results of queries that see some keys alone."""
    return softmax(np.where(see, scores, -np.inf)) @ V


def position(query, rows):
    """Return products of queries, (B, H, Lq, D), and rows of pairs, (Lq, Lk, D)."""
    return np.einsum("bhid,ijd->bhij", query, rows)


def check_named(difference, words, mine, call):
    """Check that the verdict on results names a difference alone, in these words."""
    found = relpos.diagnose(mine, **({"query": Q, "key": K, "value": V} | call))
    assert found.differences == (difference,), found.verdict
    assert words in found.verdict and found.kind == "mistake" and found.error < 1e-12
