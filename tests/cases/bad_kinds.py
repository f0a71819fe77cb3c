"""Rows of the table of bad calls: arguments of the wrong kind, numbers out of range.

(name, value, pattern): the message is ``name: `` and something that the pattern finds.
"""

from __future__ import annotations

import numpy as np

H, L, M, D, DV = 2, 4, 6, 8, 3  # M: the other length
HUGE = 10**30
EMPTY = object()  # drop the argument


def ones(*shape, dtype=np.float64):
    return np.ones(shape, dtype)


def broadcast(*shape):
    """An array of any shape in eight bytes."""
    return np.broadcast_to(np.float64(1), shape)


def longer(**more):
    """Keys longer than queries."""
    return {"key": ones(H, M, D), "value": ones(H, M, DV), **more}


class Tensor:
    """Looks like what torch hands out; torch itself is not needed."""


Tensor.__module__ = "torch"


class Parameter(Tensor):
    """A subclass defined elsewhere."""


MASKED = np.ma.masked_array(np.ones((3, H, L, D)), mask=False)


KINDS = [
    (
        "query",
        ones(3, H, L, D, dtype=int),
        r"int64.*float16, float32 or float64.*astype",
    ),
    ("query", ones(3, H, L, D, dtype=bool), r"bool.*expected float16"),
    ("query", ones(3, H, L, D, dtype=complex), r"complex128; expected float16"),
    ("query", ones(3, H, L, D, dtype=object), r"object; expected float16"),
    ("query", ones(3, H, L, D, dtype=np.longdouble), r"longdouble|float(96|128)"),
    (
        "query",
        ones(3, H, L, D).astype("datetime64[s]"),
        r"datetime64.*expected float16",
    ),
    ("query", "query", r"got str; expected float16"),
    ("query", None, r"got NoneType; expected float16"),
    ("query", {}, r"got dict; expected float16"),
    ("query", MASKED, r"MaskedArray; expected a plain array"),
    ("key", MASKED, r"MaskedArray; .*attn_mask or key_lengths"),
    ("query", Tensor(), r"torch Tensor; .*\.detach\(\)"),
    ("key", Parameter(), r"torch Parameter; .*\.detach\(\)"),
    ("rel_key", Tensor(), r"torch Tensor; .*\.detach\(\)"),
    ("attn_mask", Tensor(), r"torch Tensor; .*\.detach\(\)"),
    ("scale", Tensor(), r"torch Tensor; .*\.detach\(\)"),
    ("query_offset", Tensor(), r"torch Tensor; .*\.detach\(\)"),
    ("out", Tensor(), r"torch Tensor; .*\.detach\(\)"),
    ("key", ones(3, H, L, D, dtype=int), r"int64.*expected float16"),
    ("value", ones(3, H, L, DV, dtype=complex), r"complex128; expected float16"),
    ("rel_key", ones(3, D, dtype=int), r"int64.*expected float16"),
    ("rel_value", ones(3, DV, dtype=object), r"object; expected float16"),
    ("rel_bias", [0, 1, 0], r"int64.*expected float16"),
    ("pos_bias_u", ones(D, dtype=complex), r"complex128; expected float16"),
    ("attn_mask", ones(L, L, dtype=int), r"int64; expected bool.*True = may attend"),
    (
        "attn_mask",
        ones(L, L, dtype=complex),
        r"complex128; expected bool, float16, float32 or float64",
    ),
    ("attn_mask", ones(L, L, dtype=np.longdouble), r"float(96|128); expected bool, fl"),
    ("attn_mask", np.ma.masked_array(ones(L, L)), r"MaskedArray"),
    ("is_causal", 1, r"got int; expected True or False"),
    (
        "is_causal",
        ones(L, L, dtype=bool),
        r"array of dtype bool; expected True or False",
    ),
    ("enable_gqa", None, r"got NoneType; expected True or False"),
    ("return_lse", "yes", r"got str; expected True or False"),
    ("return_weights", 1, r"got int; expected True or False"),
    ("return_context", 0.0, r"got float; expected True or False"),
    ("dropout_p", True, r"got bool; expected a real number"),
    ("dropout_p", "0.1", r"got str; expected a real number"),
    ("scale", 1j, r"got complex; expected a real number"),
    ("scale", ones(1), r"array of dtype float64; expected a real number"),
    ("query_offset", 1.0, r"got float; expected integers"),
    ("query_offset", True, r"got bool; expected integers"),
    ("query_offset", [0.5, 1.0, 2.0], r"float64; expected integers"),
    ("query_offset", "0", r"got str; expected integers"),
    ("min_relative_position", 1.0, r"got float; expected an integer"),
    ("min_relative_position", False, r"got False; expected an integer"),
    (
        "min_relative_position",
        np.arange(3),
        r"array of dtype int64; expected an integer",
    ),
    ("buckets", [0.0, 1.0], r"float64; expected integers"),
    ("buckets", [True, False, True], r"bool; expected integers"),
    ("beyond", None, r"got NoneType; expected one of 'clip', 'zero', 'raise'"),
    ("labels", ones(L, L), r"float64; expected int8, int16, int32 or int64"),
    ("labels", ones(L, L, dtype=bool), r"bool; expected int8"),
    ("labels", ones(L, L, dtype=np.uint8), r"uint8; expected int8"),
    ("key_ranges", ones(L, 2), r"float64; expected integers"),
    ("key_ranges", ones(L, 2, dtype=bool), r"bool; expected integers"),
    ("key_ranges", "all", r"expected integers"),
    ("key_ranges", [[0, 1.5]], r"expected integers"),
    ("key_lengths", 2.0, r"got float; expected integers"),
    ("window", 3, r"got int; expected \(left, right\)"),
    ("window", (1.0, 2), r"got float; expected an integer"),
    ("window", (True, 2), r"got True; expected an integer"),
    ("num_threads", 1.5, r"expected a positive integer, got float"),
    ("num_threads", True, r"expected a positive integer, got bool"),
    ("rng", 0.5, r"got float; expected an int, a Generator or None"),
    ("rng", True, r"got bool; expected an int"),
    ("rng", np.random.RandomState(0), r"got RandomState; expected an int"),
    ("out", [1.0], r"got list; expected a NumPy array"),
    ("out", ones(3, H, L, DV, dtype=np.float32), r"float32; expected float64"),
    ("out", ones(3, H, L, DV, dtype=np.int64), r"int64; expected float64"),
    ("out", ones(3, H, L, DV).astype(">f8"), r">f8; expected float64"),
]

VALUES = [
    ("scale", np.nan, r"got nan; expected a finite number"),
    ("scale", np.inf, r"got inf; expected a finite number"),
    ("scale", 10**400, r"too large for float64"),
    ("scale", 1.7e308, r"1\.7e\+308, too large for float64"),
    ("dropout_p", 1.0, r"got 1\.0; expected 0 <= dropout_p < 1"),
    ("dropout_p", -0.1, r"got -0\.1; expected 0 <= dropout_p < 1"),
    ("dropout_p", np.nan, r"got nan; expected a finite number"),
    ("query_offset", HUGE, r"does not fit int64"),
    ("query_offset", [0, HUGE, 0], r"does not fit int64"),
    ("query_offset", np.uint64(2**63), r"9223372036854775808 does not fit int64"),
    ("query_offset", 2**60, r"1152921504606846976; expected .* -2\*\*60 and 2\*\*60"),
    ("query_offset", [0, -(2**63), 0], r"-9223372036854775808; expected"),
    (
        "query_offset",
        np.broadcast_to(np.int8(0), (2**40, 2**22)),
        r"\(1099511627776, 4194304\) has more bytes than memory",
    ),
    ("key_ranges", [[0, HUGE]], r"does not fit int64"),
    ("key_ranges", [[-HUGE, 4]], r"does not fit int64"),
    ("key_ranges", np.full((L, 2), 2**63, np.uint64), r"does not fit int64"),
    ("key_lengths", L + 1, r"got 5; expected 0 to Lk = 4"),
    ("key_lengths", [4, -1, 4], r"got -1; expected 0 to Lk = 4"),
    ("key_lengths", HUGE, r"does not fit int64"),
    ("window", (-1, 2), r"got -1; expected an integer of at least 0"),
    ("window", (1, -HUGE), r"got -10+; expected an integer of at least 0"),
    ("window", (1, 2, 3), r"got 3 items; expected \(left, right\)"),
    ("beyond", "wrap", r"got 'wrap'; expected one of 'clip', 'zero', 'raise'"),
    ("min_relative_position", HUGE, r"got 10+; expected an integer from"),
    ("min_relative_position", -(10**100), r"an integer of 333 bits; expected"),
    ("num_threads", 0, r"0 is not between 1 and"),
    ("num_threads", -1, r"-1 is not between 1 and"),
    ("num_threads", HUGE, r"is not between 1 and"),
    ("rng", -1, r"got -1; expected an integer of at least 0"),
]
