"""Rows of the table of bad calls: a tuple of labels.

(exception, name, labels, pattern): the message begins with the name and has something
that the pattern finds. The table has 3 rows.
"""

from __future__ import annotations

import numpy as np
from bad_kinds import L, Tensor, ones

GOOD = np.zeros((L, L), int)


def holding(label, dtype=np.int64):
    labels = np.full((L, L), -1, dtype)
    labels[2, 1] = label
    return labels


LABELS = [
    (ValueError, "labels", (), r"got a tuple of 0; expected .* tuple of 1 to 8 arrays"),
    (ValueError, "labels", (GOOD,) * 9, r"got a tuple of 9; expected an array, or a"),
    # kinds
    (TypeError, r"labels\[0\]", (ones(L, L),), r"float64; expected int8, int16, int32"),
    (TypeError, r"labels\[1\]", (GOOD, ones(L, L)), r"float64; expected int8, int16"),
    (TypeError, r"labels\[1\]", (GOOD, GOOD > 0), r"bool; expected int8"),
    (TypeError, r"labels\[1\]", (GOOD, GOOD.astype("u1")), r"uint8; expected int8"),
    (TypeError, r"labels\[0\]", (None, GOOD), r"object; expected int8"),
    (TypeError, r"labels\[1\]", (GOOD, None), r"object; expected int8"),
    (TypeError, r"labels\[1\]", (GOOD, "rows"), r"expected int8"),
    (TypeError, r"labels\[1\]", (GOOD, Tensor()), r"torch Tensor; .*\.detach\(\)"),
    (TypeError, r"labels\[2\]", (GOOD, GOOD, GOOD + 0j), r"complex128; expected int8"),
    (TypeError, r"labels\[0\]", (np.ma.masked_array(GOOD), GOOD), r"MaskedArray"),
    # shapes
    (ValueError, r"labels\[0\]", (0, 1), r"\(\); expected \(\.\.\., Lq, Lk\)"),
    (
        ValueError,
        r"labels\[1\]",
        (GOOD, GOOD[0]),
        r"\(4,\); expected \(\.\.\., Lq, Lk\)",
    ),
    (ValueError, r"labels\[0\]", ([0, 1], [1, 0]), r"\(2,\); expected \(\.\.\., Lq"),
    (
        ValueError,
        r"labels\[1\]",
        (GOOD, GOOD[:, :3]),
        r"\(4, 3\) does not broadcast to \(\.\.\., 4, 4\)",
    ),
    (
        ValueError,
        r"labels\[0\]",
        (GOOD[:3], GOOD),
        r"\(3, 4\) does not broadcast to \(\.\.\., 4, 4\)",
    ),
    (
        ValueError,
        r"labels\[1\]",
        (GOOD, np.zeros((2, L, L), int)),
        r"batch axes \(2,\) of shape .* do not broadcast with \(3,\)",
    ),
    (
        ValueError,
        r"labels\[1\]",
        (GOOD, np.zeros((*[1] * 30, L, L), int)),
        r"30 batch axes; expected at most 29",
    ),
    # rows
    (
        IndexError,
        r"labels\[0\]",
        (holding(3), GOOD),
        r"\[2, 1\] is 3, outside rel_bias",
    ),
    (
        IndexError,
        r"labels\[1\]",
        (GOOD, holding(3)),
        r"\[2, 1\] is 3, outside rel_bias",
    ),
    (
        IndexError,
        r"labels\[1\]",
        (GOOD, holding(99, "i1")),
        r"is 99, outside rel_bias of",
    ),
    (
        IndexError,
        r"labels\[7\]",
        (GOOD,) * 7 + (holding(2**40),),
        r"is 1099511627776, o",
    ),
]
