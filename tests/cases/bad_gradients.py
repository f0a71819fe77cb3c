"""Rows of the table of bad calls: arguments of `context.backward`.

(error, arguments, pattern): good arguments are in `GOOD`; the message starts with the
name of the first one of the row.
"""

from __future__ import annotations

import numpy as np
from bad_kinds import DV, HUGE, D, H, L, Parameter, Tensor, broadcast, ones

OUT, LSE = (3, H, L, DV), (3, H, L)
GOOD = {"grad_out": ones(*OUT), "grad_lse": ones(*LSE)}

#: What the context of the rows was made from; beside it a bool mask and labels.
INPUTS = {
    "query": ones(3, H, L, D),
    "key": ones(3, H, L, D),
    "value": ones(3, H, L, DV),
    "attn_mask": ones(L, L, dtype=bool),
    "rel_key": ones(3, D),
    "labels": np.zeros((L, L), int),
}

BACKWARD = [
    # the gradients that come in: kinds
    (
        TypeError,
        {"grad_out": ones(*OUT, dtype=int)},
        r"int64; expected float16.*astype",
    ),
    (TypeError, {"grad_out": ones(*OUT, dtype=bool)}, r"bool; expected float16"),
    (TypeError, {"grad_out": ones(*OUT, dtype=complex)}, r"complex128; expected flo"),
    (TypeError, {"grad_out": ones(*OUT, dtype=object)}, r"object; expected float16"),
    (TypeError, {"grad_out": ones(*OUT, dtype=np.longdouble)}, r"expected float16"),
    (TypeError, {"grad_out": "ones"}, r"got str; expected float16"),
    (TypeError, {"grad_out": {}}, r"got dict; expected float16"),
    (TypeError, {"grad_out": np.ma.masked_array(ones(*OUT))}, r"MaskedArray; expected"),
    (TypeError, {"grad_out": Tensor()}, r"torch Tensor; .*\.detach\(\)"),
    (TypeError, {"grad_lse": ones(*LSE, dtype=int)}, r"int64; expected float16"),
    (TypeError, {"grad_lse": ones(*LSE, dtype=complex)}, r"complex128; expected float"),
    (TypeError, {"grad_lse": Parameter()}, r"torch Parameter; .*\.detach\(\)"),
    (TypeError, {"grad_lse": True}, r"got bool; expected float16"),
    # and shapes
    (ValueError, {"grad_out": ones(3, H, L, D)}, r"\(3, 2, 4, 8\).*out's; .*4, 3\)"),
    (ValueError, {"grad_out": ones(H, L, DV)}, r"\(2, 4, 3\).*expected \(3, 2, 4, 3\)"),
    (ValueError, {"grad_out": ones(1, *OUT)}, r"\(1, 3, 2, 4, 3\) does not match out"),
    (ValueError, {"grad_out": ones(3, L, H, DV)}, r"\(3, 4, 2, 3\) does not match"),
    (ValueError, {"grad_out": 1.0}, r"shape \(\) does not match out's; expected \(3,"),
    (ValueError, {"grad_out": [[1.0], [1.0, 2.0]]}, r"list that is not a rectangular"),
    (ValueError, {"grad_out": broadcast(2**30, 2**22)}, r"does not match out's"),
    (ValueError, {"grad_lse": ones(3, H, L, 1)}, r"\(3, 2, 4, 1\).*lse's; .*2, 4\)"),
    (ValueError, {"grad_lse": ones(H, L)}, r"\(2, 4\).*expected \(3, 2, 4\)"),
    (ValueError, {"grad_lse": 0.0}, r"shape \(\) does not match lse's"),
    (
        ValueError,
        {"grad_out": None, "grad_lse": None},
        r"None, and so is grad_lse; expected at least one",
    ),
    # wrt
    (TypeError, {"wrt": "query"}, r"got str; expected a list of names, such as"),
    (TypeError, {"wrt": 3}, r"got int; expected a list of names"),
    (TypeError, {"wrt": True}, r"got bool; expected a list of names"),
    (TypeError, {"wrt": np.array(1)}, r"array of dtype int64; expected a list of nam"),
    (TypeError, {"wrt": np.array("query")}, r"array of dtype <U5; expected a list of"),
    (TypeError, {"wrt": [0]}, r"got int among the names; expected strings"),
    (TypeError, {"wrt": ["query", None]}, r"got NoneType among the names"),
    (TypeError, {"wrt": [b"query"]}, r"got bytes among the names"),
    (TypeError, {"wrt": [ones(1)]}, r"array of dtype float64 among the names"),
    (ValueError, {"wrt": ["quary"]}, r"'quary' is no input.*expected some of query, k"),
    (ValueError, {"wrt": ["out"]}, r"'out' is no input with a gradient"),
    (ValueError, {"wrt": ["query", "Query"]}, r"'Query' is no input"),
    (ValueError, {"wrt": [""]}, r"'' is no input"),
    (ValueError, {"wrt": ["scale"]}, r"'scale' is no input with a gradient"),
    (ValueError, {"wrt": ["labels"]}, r"'labels' is no input with a gradient"),
    (ValueError, {"wrt": ["key_lengths"]}, r"'key_lengths' is no input with"),
    (
        ValueError,
        {"wrt": ["rel_value"]},
        r"'rel_value' was not given.*query, .*rel_key",
    ),
    (
        ValueError,
        {"wrt": ["key", "pos_bias_u"]},
        r"'pos_bias_u' was not given to atten",
    ),
    (ValueError, {"wrt": ["attn_mask"]}, r"'attn_mask' is of dtype bool and has no gr"),
    # num_threads
    (TypeError, {"num_threads": 1.5}, r"expected a positive integer, got float"),
    (TypeError, {"num_threads": True}, r"expected a positive integer, got bool"),
    (TypeError, {"num_threads": "2"}, r"expected a positive integer, got str"),
    (ValueError, {"num_threads": 0}, r"0 is not between 1 and"),
    (ValueError, {"num_threads": -1}, r"-1 is not between 1 and"),
    (ValueError, {"num_threads": HUGE}, r"is not between 1 and"),
]
