"""Rows of the table of bad calls: log_decay.

(exception, changes, pattern): what to change in a good call; the message begins with
the name and has something that the pattern finds.
"""

from __future__ import annotations

import numpy as np
from bad_kinds import DV, MASKED, D, H, L, Tensor, broadcast, longer, ones

STEPS = -np.ones((H, L))
CAUSAL = {"is_causal": True}


def holding(number, dtype=np.float64):
    steps = STEPS.astype(dtype)
    steps[1, 2] = number
    return {**CAUSAL, "log_decay": steps}


HIDDEN = r"up to {}, but .* expected every key after its query to be hidden by is_caus"

DECAY = [
    # kinds
    (TypeError, {**CAUSAL, "log_decay": np.zeros((H, L), int)}, r"int64.*expected fl"),
    (TypeError, {**CAUSAL, "log_decay": np.zeros((H, L), bool)}, r"bool; expected fl"),
    (TypeError, {**CAUSAL, "log_decay": STEPS + 0j}, r"complex128; expected float16"),
    (TypeError, {**CAUSAL, "log_decay": STEPS.astype(object)}, r"object; expected fl"),
    (TypeError, {**CAUSAL, "log_decay": "fast"}, r"got str; expected float16"),
    (TypeError, {**CAUSAL, "log_decay": Tensor()}, r"torch Tensor; .*\.detach\(\)"),
    (TypeError, {**CAUSAL, "log_decay": MASKED}, r"MaskedArray; expected a plain"),
    # numbers
    (ValueError, holding(-np.inf), r"log_decay\[1, 2\] is -inf; expected finite"),
    (ValueError, holding(np.inf), r"log_decay\[1, 2\] is inf; expected finite"),
    (ValueError, holding(np.nan), r"is nan; expected finite .*mask them"),
    (ValueError, holding(np.inf, np.float16), r"is inf; expected finite"),
    (ValueError, holding(np.nan, np.float32), r"is nan; expected finite"),
    # shapes
    (
        ValueError,
        {**CAUSAL, "log_decay": -1.0},
        r"\(\) has 0 axes; expected \(\.\.\., H",
    ),
    (ValueError, {**CAUSAL, "log_decay": -ones(L)}, r"\(4,\) has 1 axes; expected"),
    (
        ValueError,
        {**CAUSAL, "log_decay": -ones(1, L)},
        r"\(1, 4\) does not match 2 query heads and 4 keys; expected \(\.\.\., 2, 4\)",
    ),
    (ValueError, {**CAUSAL, "log_decay": -ones(H, L + 1)}, r"\(2, 5\) .* and 4 keys"),
    (ValueError, {**CAUSAL, "log_decay": -ones(H, 1)}, r"\(2, 1\) .* and 4 keys"),
    (ValueError, {**CAUSAL, "log_decay": -ones(L, H)}, r"\(4, 2\) .* 2 query heads"),
    (ValueError, {**CAUSAL, "log_decay": -ones(H, L, 1)}, r"\(2, 4, 1\) .*expected"),
    (
        ValueError,
        {**CAUSAL, "log_decay": -ones(1, L), "key": ones(1, L, D), "enable_gqa": True}
        | {"value": ones(1, L, DV)},
        r"\(1, 4\) does not match 2 query heads",
    ),
    (ValueError, {**CAUSAL, "log_decay": -ones(2, H, L)}, r"batch axes \(2,\).*\(3,\)"),
    (
        ValueError,
        {**CAUSAL, "log_decay": broadcast(*[1] * 30, H, L)},
        r"30 batch axes; expected at most 29",
    ),
    # keys after their query
    (ValueError, {"log_decay": STEPS}, HIDDEN.format(3)),
    (ValueError, {"log_decay": STEPS, "window": (2, None)}, HIDDEN.format(3)),
    (ValueError, {"log_decay": STEPS, "window": (None, 1)}, HIDDEN.format(1)),
    (ValueError, {"log_decay": STEPS, "key_lengths": 2}, HIDDEN.format(1)),
    (ValueError, {"log_decay": STEPS, "key_ranges": [[0, 3]]}, HIDDEN.format(2)),
    (ValueError, {"log_decay": STEPS, "key_lengths": [1, 1, 4]}, HIDDEN.format(3)),
    (ValueError, {"log_decay": STEPS, "query_offset": 2}, HIDDEN.format(1)),
    (ValueError, {"log_decay": STEPS, "query_offset": [3, 3, -1]}, HIDDEN.format(4)),
    (
        ValueError,
        {"log_decay": STEPS, "attn_mask": np.tril(ones(L, L, dtype=bool))},
        HIDDEN.format(3),
    ),
    (
        ValueError,
        {"log_decay": STEPS, "rel_bias": np.r_[ones(4), -np.inf * ones(3)]},
        HIDDEN.format(3),
    ),
]

#: What log_decay makes others say.
NAMED = [
    (
        ValueError,
        longer(query=ones(H, L, D), log_decay=-ones(H, 6), key_lengths=1),
        r"query_offset: None with 4 queries and 6 keys.*log_decay depends on it",
    ),
]
