"""Rows of the table of bad calls: softcap and sinks.

(name, error, changes, pattern), as the rows of bad_kinds.py and bad_shapes.py together.
"""

from __future__ import annotations

import numpy as np
from bad_kinds import MASKED, D, H, L, Parameter, Tensor, ones

SOFTMAX = [
    (name, error, {name: value}, pattern)
    for name, error, value, pattern in [
        ("softcap", TypeError, True, r"got bool; expected a real number"),
        ("softcap", TypeError, "30", r"got str; expected a real number"),
        ("softcap", TypeError, 1j, r"got complex; expected a real number"),
        ("softcap", TypeError, ones(1), r"dtype float64; expected a real number"),
        ("softcap", TypeError, [30.0], r"got list; expected a real number"),
        ("softcap", TypeError, Tensor(), r"torch Tensor; .*\.detach\(\)"),
        ("softcap", ValueError, 0, r"got 0(\.0)?; expected a number above 0 \(None"),
        ("softcap", ValueError, -0.0, r"got -0\.0; expected a number above 0"),
        ("softcap", ValueError, -30.0, r"got -30\.0; expected a number above 0"),
        ("softcap", ValueError, np.nan, r"got nan; expected a finite number"),
        ("softcap", ValueError, np.inf, r"got inf; expected a finite number"),
        ("softcap", ValueError, 10**400, r"too large for float64"),
        ("softcap", ValueError, 1.7e308, r"1\.7e\+308, too large for float64; .*None"),
        ("sinks", TypeError, [0, 1], r"int64; expected float16"),
        ("sinks", TypeError, [True, False], r"bool; expected float16"),
        ("sinks", TypeError, ones(H, dtype=complex), r"complex128; expected float16"),
        ("sinks", TypeError, ones(H, dtype=object), r"object; expected float16"),
        ("sinks", TypeError, ones(H, dtype=np.longdouble), r"expected float16"),
        ("sinks", TypeError, "none", r"got str; expected float16"),
        ("sinks", TypeError, {}, r"got dict; expected float16"),
        ("sinks", TypeError, True, r"got bool; expected float16"),
        ("sinks", TypeError, MASKED, r"MaskedArray; expected a plain array"),
        ("sinks", TypeError, Tensor(), r"torch Tensor; .*\.detach\(\)"),
        ("sinks", TypeError, Parameter(), r"torch Parameter; .*\.detach\(\)"),
        ("sinks", ValueError, 0.5, r"\(\) does not match query's 2 heads; .* \(2,\)"),
        ("sinks", ValueError, ones(1), r"\(1,\) does not match .*; expected \(2,\)"),
        ("sinks", ValueError, ones(3), r"\(3,\) does not match query's 2 heads"),
        ("sinks", ValueError, ones(0), r"\(0,\) does not match query's 2 heads"),
        ("sinks", ValueError, ones(H, 1), r"\(2, 1\) does not match query's 2 heads"),
        ("sinks", ValueError, ones(3, H), r"\(3, 2\) does not match query's 2 heads"),
        ("sinks", ValueError, ones(H, L), r"\(2, 4\) does not match query's 2 heads"),
        ("sinks", ValueError, ones(D), r"\(8,\) does not match query's 2 heads"),
        ("sinks", ValueError, [[1.0], [1.0, 2.0]], r"not a rectangular array"),
    ]
]
