"""Rows of the tables of bad calls: `attention`, its context, and schemes by name.

A row says what to change in a good call, as `refusals` reads it.
"""

from __future__ import annotations

import numpy as np
from bad_kinds import DV, D, H, L, M, ones
from refusals import calls, changes

TOKENS = {
    "query": np.ones((3, H, L, D)),
    "key": np.ones((3, H, L, D)),
    "value": np.ones((3, H, L, DV)),
}
MUSIC = {"rel_key": np.ones((2 * L - 1, D))}
LONGER = {"query": ones(H, L, D), "key": ones(H, M, D), "value": ones(H, M, DV)}
POSITIONED = TOKENS | {
    "rel_key": np.ones((5, 6)),
    "position_query": np.ones((3, H, L, 6)),
}
PARTS = {
    "out_a": np.ones((H, L, DV)),
    "out_b": np.ones((H, L, DV)),
    "lse_a": np.ones((H, L)),
    "lse_b": np.ones((H, L)),
}
#: Good arguments of the functions of `SCHEMES`.
GOOD = {
    "shaw_attention": TOKENS,
    "relative_global_attention": TOKENS | MUSIC,
    "transformer_xl_attention": TOKENS
    | MUSIC
    | {"pos_bias_u": np.ones(D), "pos_bias_v": np.ones(D)},
    "merge_attention": PARTS,
}
STEPS = -np.ones((H, L))
NONE = np.zeros((L, L), int)  # labels that name row 0 alone


def label(row, dtype=np.int64):
    """Labels of which one names a row."""
    labels = np.full((L, L), -1, dtype)
    labels[2, 1] = row
    return labels


def steps(number, dtype=np.float64):
    """Steps of log_decay, one of them a number."""
    changed = STEPS.astype(dtype)
    changed[1, 2] = number
    return changed


#: Of the wrong kind.
KINDS = changes(
    """
query=ones(3, H, L, D, dtype=int) -> TypeError: …int64…float16, float32 or
    float64…astype
query=ones(3, H, L, D, dtype=bool) -> TypeError: …bool…expected float16
query=ones(3, H, L, D, dtype=complex) -> TypeError: …complex128; expected float16
query=ones(3, H, L, D, dtype=object) -> TypeError: …object; expected float16
query=ones(3, H, L, D, dtype=np.longdouble) -> TypeError: …got dtype …; expected
    float16, float32 or f
query=ones(3, H, L, D).astype("datetime64[s]") -> TypeError: …datetime64…expected
    float16
query="query" -> TypeError: …got str; expected float16
query=None -> TypeError: …got NoneType; expected float16
query={} -> TypeError: …got dict; expected float16
query=MASKED -> TypeError: …MaskedArray; expected a plain array
key=MASKED -> TypeError: …MaskedArray; …attn_mask or key_lengths
query=Tensor() -> TypeError: …torch Tensor; ….detach()
key=Parameter() -> TypeError: …torch Parameter; ….detach()
rel_key=Tensor() -> TypeError: …torch Tensor; ….detach()
attn_mask=Tensor() -> TypeError: …torch Tensor; ….detach()
scale=Tensor() -> TypeError: …torch Tensor; ….detach()
query_offset=Tensor() -> TypeError: …torch Tensor; ….detach()
out=Tensor() -> TypeError: …torch Tensor; ….detach()
key=ones(3, H, L, D, dtype=int) -> TypeError: …int64…expected float16
value=ones(3, H, L, DV, dtype=complex) -> TypeError: …complex128; expected float16
rel_key=ones(3, D, dtype=int) -> TypeError: …int64…expected float16
rel_value=ones(3, DV, dtype=object) -> TypeError: …object; expected float16
rel_bias=[0, 1, 0] -> TypeError: …int64…expected float16
pos_bias_u=ones(D, dtype=complex) -> TypeError: …complex128; expected float16
attn_mask=ones(L, L, dtype=int) -> TypeError: …int64; expected bool…True = may attend
attn_mask=ones(L, L, dtype=complex) -> TypeError: …complex128; expected bool, float16,
    float32 or float64
attn_mask=ones(L, L, dtype=np.longdouble) -> TypeError: …got dtype …; expected bool,
    float16, float3
attn_mask=np.ma.masked_array(ones(L, L)) -> TypeError: …MaskedArray
is_causal=1 -> TypeError: …got int; expected True or False
is_causal=ones(L, L, dtype=bool) -> TypeError: …array of dtype bool; expected True or
    False
enable_gqa=None -> TypeError: …got NoneType; expected True or False
return_lse="yes" -> TypeError: …got str; expected True or False
return_weights=1 -> TypeError: …got int; expected True or False
return_context=0.0 -> TypeError: …got float; expected True or False
dropout_p="0.1" -> TypeError: …got str; expected a real number
scale=1j -> TypeError: …got complex; expected a real number
scale=ones(1) -> TypeError: …array of dtype float64; expected a real number
query_offset=1.0 -> TypeError: …got float; expected integers
query_offset=True -> TypeError: …got bool; expected integers
query_offset=[0.5, 1.0, 2.0] -> TypeError: …float64; expected integers
query_offset="0" -> TypeError: …got str; expected integers
query_offset=np.zeros(3) -> TypeError: …float64; expected integers
query_offset=np.zeros((), np.float32) -> TypeError: …float32; expected integers
min_relative_position=1.0 -> TypeError: …got float; expected an integer
min_relative_position=False -> TypeError: …got False; expected an integer
min_relative_position=np.arange(3) -> TypeError: …array of dtype int64; expected an
    integer
buckets=[0.0, 1.0] -> TypeError: …float64; expected integers
buckets=[True, False, True] -> TypeError: …bool; expected integers
labels=ones(L, L) -> TypeError: …float64; expected int8, int16, int32 or int64
labels=ones(L, L, dtype=bool) -> TypeError: …bool; expected int8
labels=ones(L, L, dtype=np.uint8) -> TypeError: …uint8; expected int8
key_ranges=ones(L, 2) -> TypeError: …float64; expected integers
key_ranges=ones(L, 2, dtype=bool) -> TypeError: …bool; expected integers
key_ranges="all" -> TypeError: …expected integers
key_ranges=[[0, 1.5]] -> TypeError: …expected integers
key_lengths=2.0 -> TypeError: …got float; expected integers
window=3 -> TypeError: …got int; expected (left, right)
window=(1.0, 2) -> TypeError: …got float; expected an integer
window=(True, 2) -> TypeError: …got True; expected an integer
num_threads=1.5 -> TypeError: …got float; expected a positive integer
num_threads=True -> TypeError: …got bool; expected a positive integer
rng=0.5 -> TypeError: …got float; expected an int, a Generator or None
rng=True -> TypeError: …got bool; expected an int
rng=np.random.RandomState(0) -> TypeError: …got RandomState; expected an int
out=ones(3, H, L, DV, dtype=np.float32) -> TypeError: …float32; expected float64
out=ones(3, H, L, DV, dtype=np.int64) -> TypeError: …int64; expected float64
out=ones(3, H, L, DV).astype(">f8") -> TypeError: …>f8; expected float64
""",
    globals(),
)

#: Out of range.
NUMBERS = changes(
    """
scale=np.nan -> ValueError: …got nan; expected a finite number
scale=np.inf -> ValueError: …got inf; expected a finite number
scale=10**400 -> ValueError: …too large for float64
scale=1.7e308 -> ValueError: …1.7e+308, too large for float64
dropout_p=1.0 -> ValueError: …got 1.0; expected 0 <= dropout_p < 1
dropout_p=-0.1 -> ValueError: …got -0.1; expected 0 <= dropout_p < 1
query_offset=HUGE -> ValueError: …does not fit int64
query_offset=[0, HUGE, 0] -> ValueError: …does not fit int64
query_offset=np.uint64(2**63) -> ValueError: …got 9223372036854775808, which does
query_offset=2**60 -> ValueError: …1152921504606846976; expected … -2**60 and 2**60
query_offset=[0, -2**63, 0] -> ValueError: …-9223372036854775808; expected
query_offset=np.broadcast_to(np.int8(0), (2**40, 2**22)) -> ValueError: …(1099511627776,
    4194304) has more bytes than memory
key_ranges=[[0, HUGE]] -> ValueError: …does not fit int64
key_ranges=[[-HUGE, 4]] -> ValueError: …does not fit int64
key_ranges=np.full((L, 2), 2**63, np.uint64) -> ValueError: …does not fit int64
key_lengths=L + 1 -> ValueError: …got 5; expected 0 to Lk = 4
key_lengths=[4, -1, 4] -> ValueError: …got -1; expected 0 to Lk = 4
key_lengths=HUGE -> ValueError: …does not fit int64
window=(-1, 2) -> ValueError: …got -1; expected an integer of at least 0
window=(1, -HUGE) -> ValueError: …got -1000…; expected an integer of at least 0
window=(1, 2, 3) -> ValueError: …got 3 items; expected (left, right)
beyond="wrap" -> ValueError: …got 'wrap'; expected one of 'clip', 'zero', 'raise'
min_relative_position=HUGE -> ValueError: …got 1000…; expected an integer from
min_relative_position=-10**100 -> ValueError: …an integer of 333 bits; expected
num_threads=0 -> ValueError: …got 0; expected an integer from 1 to
num_threads=-1 -> ValueError: …got -1; expected an integer from 1 to
num_threads=HUGE -> ValueError: …; expected an integer from 1 to
rng=-1 -> ValueError: …got -1; expected an integer of at least 0
""",
    globals(),
)

#: Of shapes that do not fit.
SHAPES = changes(
    """
query=ones(L, D) -> ValueError: …(4, 8) has 2 axes; expected (..., H, Lq, D
query=np.float64(1) -> ValueError: …() has 0 axes; expected
key=ones(D) -> ValueError: …(8,) has 1 axis; expected (..., Hk, Lk, D)
value=ones(L, DV) -> ValueError: …has 2 axes; expected (..., Hk, Lk, Dv)
query=[[[1.0, 2.0], [3.0]]] -> ValueError: …got list …not a rectangular array
key=ones(3, H, L, 7) -> ValueError: …query's head_dim 8; expected (..., Hk, Lk, 8
value=ones(3, H, 5, DV) -> ValueError: …key's length 4; expected (..., 2, 4, Dv
value=ones(3, 1, L, DV) -> ValueError: …key's 2 heads; expected (..., 2, 4, Dv
key=ones(3, 1, L, D), value=ones(3, 1, L, DV) -> ValueError: …1 head, but query has 2;
    expected equal…enable_gqa=True
key=ones(3, L, D), value=ones(3, L, DV), enable_gqa=True -> ValueError: …3 heads, but
    query has 2; with enable_gqa=True … multiple
key=ones(0, L, D), value=ones(0, L, DV), enable_gqa=True -> ValueError: …0 heads, but
    query has 2
key=ones(2, H, L, D) -> ValueError: …batch axes (2,)… with (3,) of the arguments
value=ones(4, H, L, DV) -> ValueError: …batch axes (4,)… with (3,)
rel_key=ones(2, H, 3, D) -> ValueError: …batch axes (2,)… with (3,)
query_offset=[0, 1] -> ValueError: …batch axes (2,)… with (3,)
key_lengths=[1, 2] -> ValueError: …batch axes (2,)… with (3,)
key_ranges=np.zeros((2, L, 2), int) -> ValueError: …batch axes (2,)… with (3,)
key_ranges=3 -> ValueError: …got shape (); expected (..., 4, 2)
key_ranges=[0, 4] -> ValueError: …got shape (2,); expected (..., 4
key_ranges=np.zeros((3, 2), int) -> ValueError: …(3, 2); expected
key_ranges=np.zeros((L, 3), int) -> ValueError: …(4, 3); expected
key_ranges=np.zeros((L, 1), int) -> ValueError: …(4, 1); expected
key_ranges=np.zeros((2, L), int) -> ValueError: …(2, 4); expected
key_ranges=np.zeros((L, 0), int) -> ValueError: …(4, 0); expected
key_ranges=np.zeros((*[1] * 30, L, 2), int) -> ValueError: …30 batch axes; expected at
    most 29
attn_mask=ones(2, 1, L, L) -> ValueError: …batch axes (2,)… with (3,)
key_blocks=np.ones((2, 1, 2, 2), bool), block_size=2 -> ValueError: …batch axes (2,)…
    with (3,)
key_blocks=np.ones((1, 2, 2), bool) -> ValueError: key_blocks: given without block_size
block_size=2 -> ValueError: block_size: given without key_blocks
key_blocks=np.ones((1, 2, 3), bool), block_size=2 -> ValueError: …has (2, 3) blocks;
    expected (..., G, 2, 2), for 4 queries and 4 keys in blocks of 2 and 2
key_blocks=np.ones((1, 1, 1), bool), block_size=2 -> ValueError: …has (1, 1) blocks
key_blocks=np.ones((2, 2), bool), block_size=2 -> ValueError: …shape (2, 2) has 2
    axes; expected (..., G, ceil(Lq / bq), ceil(Lk / bk))
key_blocks=np.ones((3, 2, 2), bool), block_size=2 -> ValueError: …has 3 heads, but
key_blocks=np.ones((1, 2, 2)), block_size=2 -> TypeError: …float64; expected bool
key_blocks=np.ones((1, 2, 2), int), block_size=2 -> TypeError: …expected bool
key_blocks="all", block_size=2 -> TypeError: …
key_blocks=np.ones((1, 2, 2), bool), block_size=0 -> ValueError: block_size: got 0
block_size=(2, -1), key_blocks=np.ones((1, 2, 2), bool) -> ValueError: …got -1
key_blocks=np.ones((1, 2, 2), bool), block_size=2.0 -> TypeError: block_size: …
key_blocks=np.ones((1, 2, 2), bool), block_size=True -> TypeError: block_size: …
block_size=(2, 2, 2), key_blocks=np.ones((1, 2, 2), bool) -> ValueError: …got 3 items;
    expected an integer, or (queries, keys)
key_blocks=np.ones((1, 2, 2), bool), block_size="22" -> TypeError: block_size: …
labels=np.zeros((*[1] * 30, L, L), int) -> ValueError: …30 batch axes; expected at most
    29
attn_mask=ones(L, 3) -> ValueError: …(4, 3)…to (..., 2, 4, 4); expected
attn_mask=ones(3, L, L) -> ValueError: …(3, 4, 4)…attn_mask[:, None]
attn_mask=ones(3, L) -> ValueError: …(3, 4)…attn_mask[:, None, None]
attn_mask=ones(5) -> ValueError: …(5,) does not broadcast to
labels=np.zeros((L, 3), int) -> ValueError: …(4, 3) does not broadcast to (..., 4, 4)
labels=np.zeros(L, int) -> ValueError: …(4,); expected (..., Lq, Lk)
rel_key=ones(33, 5) -> ValueError: …(33, 5) does not match query's head_dim 8; expected
    (R, 8), (H, R, 8) or (..., H, R, 8)
rel_query=ones(3, DV) -> ValueError: …(3, 3)…query's head_dim 8
rel_value=ones(3, D) -> ValueError: …(3, 8)…value's head_dim 3; expected (R, 3), (H, R,
    3)
rel_key=ones(D) -> ValueError: …(8,) has 1 axis; expected (R, D)
rel_bias=1.0 -> ValueError: …() has 0 axes; expected (R,), (H, R)
rel_key=ones(4, 3, D) -> ValueError: …4 heads, but query has 2; expected (R, D
rel_bias=ones(4, 3) -> ValueError: …4 heads, but query has 2; expected (R,)
rel_key=ones(0, D) -> ValueError: …(0, 8) has no rows; expected at least 1
rel_bias=ones(0) -> ValueError: …(0,) has no rows
rel_key=ones(4, D) -> ValueError: …4 rows; …odd number…min_relative_position
rel_bias=ones(4) -> ValueError: …4 rows; …odd number…min_relative_position
rel_key=ones(4, D), rel_query=ones(3, D), min_relative_position=0 -> ValueError:
    rel_query: 3 rows, but rel_key has 4; …min_relative_position
rel_key=ones(3, D), rel_bias=ones(4), min_relative_position=0 -> ValueError: rel_bias: 4
    rows; to be centred … odd number
pos_bias_u=ones(7) -> ValueError: …(7,)…head_dim 8 and 2 heads; expected
pos_bias_v=ones(3, D), rel_key=ones(3, D) -> ValueError: …(3, 8)…expected (8,), (2, 8)
    or (..., 2, 8)
pos_bias_v=ones(D) -> ValueError: …given without rel_key…pass rel_key
buckets=[[0]], rel_bias=ones(1) -> ValueError: …(1, 1); expected (n,)
buckets=np.zeros(0, int), rel_bias=ones(1) -> ValueError: …(0,); expected (n,)
buckets=[0, 0], rel_bias=ones(3) -> ValueError: …2 entries; …odd number
buckets=[0], rel_key=ones(2, D), rel_bias=ones(3) -> ValueError: rel_bias: 3 rows, but
    rel_key has 2; with buckets
labels=np.zeros((L, L), int), buckets=[0] -> ValueError: …together with buckets;
    …expected one of the two
labels=np.zeros((L, L), int), min_relative_position=0 -> ValueError: …together with
    min_relative_position
labels=np.zeros((L, L), int) -> ValueError: labels: given without a table
buckets=np.zeros(3, int) -> ValueError: buckets: given without a table
min_relative_position=-3 -> ValueError: min_relative_position: given without a table
out=ones(H, L, DV) -> ValueError: …(2, 4, 3); expected (3, 2, 4, 3)
out=broadcast(3, H, L, DV) -> ValueError: …read-only; expected a writable
query=broadcast(1, 2**40, 1), key=ones(1, 1, 1), value=broadcast(1, 1, 2**40) ->
    ValueError: out: …(1, 1099511627776, 1099511627776) has more bytes than memory
query=broadcast(1, 2**40, 1), key=broadcast(1, 2**40, 1), value=broadcast(1, 2**40, 0),
    return_weights=True -> ValueError: weights: …has more bytes than memory can address
""",
    globals(),
)

#: With positions outside a table.
OUTSIDE = changes(
    """
labels=label(3), rel_key=ones(3, D) -> IndexError: …[2, 1] is 3, …rel_key of
labels=label(5, np.int8), rel_key=ones(6, D), rel_bias=ones(5) -> IndexError: …is 5,
    outside rel_bias of 5 rows; expected at most 4
buckets=[0, 7, 1], rel_bias=ones(2) -> IndexError: …buckets[1] is 7, outside rel_bias of
    2 rows; expected 0 to 1
buckets=[-1, 0, 1], rel_key=ones(2, D) -> IndexError: …buckets[0] is -1, outside rel_key
rel_key=ones(3, D), beyond="raise" -> IndexError: …from -3 to 3, but the table has those
    from -1 to 1; expected a longer table
rel_bias=ones(9), beyond="raise", query_offset=[0, 0, 2] -> IndexError: …from -5 to 3,
    but the table has those from -4 to 4
""",
    globals(),
)

#: Changes of `LONGER`.
LENGTHS = changes(
    """
is_causal=True -> ValueError: query_offset: None with 4 queries
    and 6 keys…is_causal…pass 0 …Lk - Lq = 2
window=(1, None) -> ValueError: query_offset: None with 4…window
rel_key=ones(3, D) -> ValueError: query_offset: None with 4…rel_key
rel_query=ones(3, D) -> ValueError: query_offset: None…rel_query
rel_value=ones(3, DV) -> ValueError: query_offset: None…rel_value
rel_bias=ones(3) -> ValueError: query_offset: None…rel_bias
log_decay=-ones(H, 6), key_lengths=1 -> ValueError: query_offset:
    None with 4 queries and 6 keys…log_decay depends on it
""",
    globals(),
)

SOFTMAX = changes(
    """
softcap=True -> TypeError: …got bool; expected a real number
softcap="30" -> TypeError: …got str; expected a real number
softcap=1j -> TypeError: …got complex; expected a real number
softcap=ones(1) -> TypeError: …dtype float64; expected a real number
softcap=[30.0] -> TypeError: …got list; expected a real number
softcap=Tensor() -> TypeError: …torch Tensor; ….detach()
softcap=0 -> ValueError: …got 0.0; expected a number above 0 (None: no cap)
softcap=-0.0 -> ValueError: …got -0.0; expected a number above 0
softcap=-30.0 -> ValueError: …got -30.0; expected a number above 0
softcap=np.nan -> ValueError: …got nan; expected a finite number
softcap=np.inf -> ValueError: …got inf; expected a finite number
softcap=10**400 -> ValueError: …too large for float64
softcap=1.7e308 -> ValueError: …1.7e+308, too large for float64; …None
sinks=[0, 1] -> TypeError: …int64; expected float16
sinks=[True, False] -> TypeError: …bool; expected float16
sinks=ones(H, dtype=complex) -> TypeError: …complex128; expected float16
sinks=ones(H, dtype=object) -> TypeError: …object; expected float16
sinks=ones(H, dtype=np.longdouble) -> TypeError: …expected float16
sinks="none" -> TypeError: …got str; expected float16
sinks={} -> TypeError: …got dict; expected float16
sinks=True -> TypeError: …got bool; expected float16
sinks=MASKED -> TypeError: …MaskedArray; expected a plain array
sinks=Tensor() -> TypeError: …torch Tensor; ….detach()
sinks=Parameter() -> TypeError: …torch Parameter; ….detach()
sinks=0.5 -> ValueError: …() does not match query's 2 heads; expected (2,) or
sinks=ones(1) -> ValueError: …(1,) does not match …; expected (2,) or (..., 2, 4)
sinks=ones(3) -> ValueError: …(3,) does not match query's 2 heads
sinks=ones(0) -> ValueError: …(0,) does not match query's 2 heads
sinks=ones(H, 2) -> ValueError: …(2, 2) does not match query's 2 heads and length 4
sinks=ones(3, L) -> ValueError: …(3, 4) does not match query's 2 heads and length
sinks=ones(3, H, 9) -> ValueError: …(3, 2, 9) does not match query's 2 heads
sinks=ones(D) -> ValueError: …(8,) does not match query's 2 heads
sinks=[[1.0], [1.0, 2.0]] -> ValueError: …not a rectangular array
""",
    globals(),
)

DECAY = changes(
    """
log_decay=np.zeros((H, L), int), is_causal=True -> TypeError: …int64…expected fl
log_decay=np.zeros((H, L), bool), is_causal=True -> TypeError: …bool; expected fl
log_decay=STEPS + 0j, is_causal=True -> TypeError: …complex128; expected float16
log_decay=STEPS.astype(object), is_causal=True -> TypeError: …object; expected fl
log_decay="fast", is_causal=True -> TypeError: …got str; expected float16
log_decay=Tensor(), is_causal=True -> TypeError: …torch Tensor; ….detach()
log_decay=MASKED, is_causal=True -> TypeError: …MaskedArray; expected a plain
log_decay=steps(-np.inf), is_causal=True -> ValueError: …log_decay[1, 2] is -inf;
    expected finite
log_decay=steps(np.inf), is_causal=True -> ValueError: …log_decay[1, 2] is inf; expected
    finite
log_decay=steps(np.nan), is_causal=True -> ValueError: …is nan; expected finite …mask
    them
log_decay=steps(np.inf, np.float16), is_causal=True -> ValueError: …is inf; expected
    finite
log_decay=steps(np.nan, np.float32), is_causal=True -> ValueError: …is nan; expected
    finite
log_decay=-1.0, is_causal=True -> ValueError: …() has 0 axes; expected (..., H
log_decay=-ones(L), is_causal=True -> ValueError: …(4,) has 1 axis; expected
log_decay=-ones(1, L), is_causal=True -> ValueError: …(1, 4) does not match 2 query
    heads and 4 keys; expected (..., 2, 4)
log_decay=-ones(H, L + 1), is_causal=True -> ValueError: …(2, 5) … and 4 keys
log_decay=-ones(H, 1), is_causal=True -> ValueError: …(2, 1) … and 4 keys
log_decay=-ones(L, H), is_causal=True -> ValueError: …(4, 2) … 2 query heads
log_decay=-ones(H, L, 1), is_causal=True -> ValueError: …(2, 4, 1) …expected
log_decay=-ones(1, L), key=ones(1, L, D), enable_gqa=True, is_causal=True, value=ones(1,
    L, DV) -> ValueError: …(1, 4) does not match 2 query heads
log_decay=-ones(2, H, L), is_causal=True -> ValueError: …batch axes (2,)…(3,)
log_decay=broadcast(*[1] * 30, H, L), is_causal=True -> ValueError: …30 batch axes;
    expected at most 29
log_decay=STEPS -> ValueError: …up to 3, but … every key after its query
log_decay=STEPS, window=(2, None) -> ValueError: …up to 3, but … every key after its
    query
log_decay=STEPS, window=(None, 1) -> ValueError: …up to 1, but … every key after its
    query
log_decay=STEPS, key_lengths=2 -> ValueError: …up to 1, but … every key after its query
log_decay=STEPS, key_ranges=[[0, 3]] -> ValueError: …up to 2, but … every key after its
    query
log_decay=STEPS, key_lengths=[1, 1, 4] -> ValueError: …up to 3, but … every key after
    its query
log_decay=STEPS, query_offset=2 -> ValueError: …up to 1, but … every key after its query
log_decay=STEPS, query_offset=[3, 3, -1] -> ValueError: …up to 4, but … every key after
    its query
log_decay=STEPS, attn_mask=np.tril(ones(L, L, dtype=bool)) -> ValueError: …up to 3, but
    … every key after its query
log_decay=STEPS, rel_bias=np.r_[ones(4), -np.inf * ones(3)] -> ValueError: …up to 3, but
    … every key after its query
""",
    globals(),
)

#: A tuple of labels, with a rel_bias of three rows.
LABELS = changes(
    """
labels=() -> ValueError: …got a tuple of 0; expected … tuple of 1 to 8 arrays
labels=(NONE,) * 9 -> ValueError: …got a tuple of 9; expected an array, or a
labels=(ones(L, L),) -> TypeError: labels[0]: …float64; expected int8, int16, int32
labels=(NONE, ones(L, L)) -> TypeError: labels[1]: …float64; expected int8, int16
labels=(NONE, NONE > 0) -> TypeError: labels[1]: …bool; expected int8
labels=(NONE, NONE.astype("u1")) -> TypeError: labels[1]: …uint8; expected int8
labels=(None, NONE) -> TypeError: labels[0]: …object; expected int8
labels=(NONE, None) -> TypeError: labels[1]: …object; expected int8
labels=(NONE, "rows") -> TypeError: labels[1]: …expected int8
labels=(NONE, Tensor()) -> TypeError: labels[1]: …torch Tensor; ….detach()
labels=(NONE, NONE, NONE + 0j) -> TypeError: labels[2]: …complex128; expected int8
labels=(np.ma.masked_array(NONE), NONE) -> TypeError: labels[0]: …MaskedArray
labels=(0, 1) -> ValueError: labels[0]: …(); expected (..., Lq, Lk)
labels=(NONE, NONE[0]) -> ValueError: labels[1]: …(4,); expected (..., Lq, Lk)
labels=([0, 1], [1, 0]) -> ValueError: labels[0]: …(2,); expected (..., Lq
labels=(NONE, NONE[:, :3]) -> ValueError: labels[1]: …(4, 3) does not broadcast to (...,
    4, 4)
labels=(NONE[:3], NONE) -> ValueError: labels[0]: …(3, 4) does not broadcast to (..., 4,
    4)
labels=(NONE, np.zeros((2, L, L), int)) -> ValueError: labels[1]: batch axes (2,) of
    shape … do not broadcast with (3,)
labels=(NONE, np.zeros((*[1] * 30, L, L), int)) -> ValueError: labels[1]: …30 batch
    axes; expected at most 29
labels=(label(3), NONE) -> IndexError: labels[0]: …[2, 1] is 3, outside rel_bias
labels=(NONE, label(3)) -> IndexError: labels[1]: …[2, 1] is 3, outside rel_bias
labels=(NONE, label(99, "i1")) -> IndexError: labels[1]: …is 99, outside rel_bias of
labels=(NONE,) * 7 + (label(2**40),) -> IndexError: labels[7]: …is 1099511627776, o
labels=(NONE, NONE), buckets=[0] -> ValueError: …given together with … one of the
labels=(NONE, NONE), min_relative_position=0 -> ValueError: …given together with …one of
""",
    globals(),
)

#: Changes of `POSITIONED`.
POSITION_QUERY = changes(
    """
rel_key=None -> ValueError: position_query: given without rel_key; …pass rel_key
rel_key=ones(5, 8) -> ValueError: …(5, 8)…position_query's head_dim 6; exp
rel_key=ones(2, 5, 1) -> ValueError: …position_query's head_dim 6; expected
rel_key=ones(0, 6) -> ValueError: …no rows
rel_key=ones(3, 5, 6) -> ValueError: …3 heads, but query has 2
position_query=ones(3, 2, 4, 8) -> ValueError: rel_key: …position_query's head_dim 8
position_query=ones(6) -> ValueError: …(6,)…expected (..., H, Lq, Dp
position_query=ones(4, 6) -> ValueError: …(4, 6)…(..., H, Lq, Dp)
position_query=ones() -> ValueError: …()…(..., H, Lq, Dp)
position_query=ones(3, 1, 4, 6) -> ValueError: …query's 2 heads and le
position_query=ones(3, 2, 1, 6) -> ValueError: …expected (..., 2, 4, 6)
position_query=ones(3, 2, 5, 6) -> ValueError: …length 4; expected
position_query=ones(2, 2, 4, 6) -> ValueError: …batch axes (2,) of
pos_bias_v=ones(8) -> ValueError: …position_query's head_dim 6 and 2 heads
pos_bias_v=ones(3, 6) -> ValueError: …expected (6,), (2, 6) or (..., 2, 6)
pos_bias_u=ones(6) -> ValueError: …query's head_dim 8 and 2 heads
rel_query=ones(5, 6) -> ValueError: …query's head_dim 8; expected
position_query="x" -> TypeError: …
position_query=b"x" -> TypeError: …
position_query=True -> TypeError: …
position_query=1j -> TypeError: …
position_query=object() -> TypeError: …
position_query={} -> TypeError: …
position_query=[[1], []] -> ValueError: …
position_query=ones(2, 4, 6, dtype=int) -> TypeError: …
""",
    globals(),
)

SCHEMES = calls(
    """
shaw_attention(rel_key=ones(4, D)) -> ValueError: 4 rows…odd
shaw_attention(rel_key=ones(3, 5)) -> ValueError: head_dim 8
relative_global_attention(rel_key=None) -> TypeError: expected fl
relative_global_attention(rel_key=Tensor()) -> TypeError: torch
relative_global_attention(rel_key=ones(D)) -> ValueError: 1 axis
relative_global_attention(rel_key=ones(3, D)) -> IndexError: from -3 to 0, but the
    table has those from -2 to 0
relative_global_attention(is_causal=1) -> TypeError: got int; expected True or False
relative_global_attention(is_causal=ones(L, L, dtype=bool)) -> TypeError: got an array
    of dtype bool; expected True or False
relative_global_attention(buckets=Tensor()) -> TypeError: got a torch Tensor
transformer_xl_attention(query=ones(D)) -> ValueError: 1 axis
transformer_xl_attention(key=ones(D)) -> ValueError: 1 axis
transformer_xl_attention(rel_key=None) -> TypeError: expected fl
transformer_xl_attention(rel_key=ones(L, D)) -> IndexError: from -3 to 3, but the
    table has those from -3 to 0; …is_causal
transformer_xl_attention(pos_bias_u=ones(7)) -> ValueError: 7
merge_attention(out_a=ones(H, L, DV, dtype=int)) -> TypeError: int64
merge_attention(lse_b=Tensor()) -> TypeError: .detach()
merge_attention(lse_a=None) -> TypeError: NoneType; expected float16
merge_attention(lse_a=ones(H, L, 1)) -> ValueError: shape (2, 4, 1)…out_a's (2, 4, 3);
    expected (2, 4)
merge_attention(out_b=ones(H, L, 2)) -> ValueError: shape (2, 4, 2) does not match
    out_a's (2, 4, 3)
merge_attention(out_b=ones(3, L, DV), lse_b=ones(3, L)) -> ValueError: shape (3, 4,
    3)…leading axes that broadcast
""",
    globals(),
)

#: Changes of `TOKENS`.
ATTENTION = [*KINDS, *NUMBERS, *SHAPES, *OUTSIDE, *SOFTMAX, *DECAY]

#: What the context of the rows of `BACKWARD` was made from.
INPUTS = TOKENS | {
    "attn_mask": ones(L, L, dtype=bool),
    "rel_key": ones(3, D),
    "labels": NONE,
}
OUT, LSE = (3, H, L, DV), (3, H, L)
GRADIENTS = {"grad_out": ones(*OUT), "grad_lse": ones(*LSE)}

#: Changes of `GRADIENTS`.
BACKWARD = changes(
    """
grad_out=ones(*OUT, dtype=int) -> TypeError: …int64; expected float16…astype
grad_out=ones(*OUT, dtype=bool) -> TypeError: …bool; expected float16
grad_out=ones(*OUT, dtype=complex) -> TypeError: …complex128; expected flo
grad_out=ones(*OUT, dtype=object) -> TypeError: …object; expected float16
grad_out=ones(*OUT, dtype=np.longdouble) -> TypeError: …expected float16
grad_out="ones" -> TypeError: …got str; expected float16
grad_out={} -> TypeError: …got dict; expected float16
grad_out=np.ma.masked_array(ones(*OUT)) -> TypeError: …MaskedArray; expected
grad_out=Tensor() -> TypeError: …torch Tensor; ….detach()
grad_lse=ones(*LSE, dtype=int) -> TypeError: …int64; expected float16
grad_lse=ones(*LSE, dtype=complex) -> TypeError: …complex128; expected float
grad_lse=Parameter() -> TypeError: …torch Parameter; ….detach()
grad_lse=True -> TypeError: …got bool; expected float16
grad_out=ones(3, H, L, D) -> ValueError: …(3, 2, 4, 8)…out's; …4, 3)
grad_out=ones(H, L, DV) -> ValueError: …(2, 4, 3)…expected (3, 2, 4, 3)
grad_out=ones(1, *OUT) -> ValueError: …(1, 3, 2, 4, 3) does not match out
grad_out=ones(3, L, H, DV) -> ValueError: …(3, 4, 2, 3) does not match
grad_out=1.0 -> ValueError: …shape () does not match out's; expected (3,
grad_out=[[1.0], [1.0, 2.0]] -> ValueError: …list that is not a rectangular
grad_out=broadcast(2**30, 2**22) -> ValueError: …does not match out's
grad_lse=ones(3, H, L, 1) -> ValueError: …(3, 2, 4, 1)…lse's; …2, 4)
grad_lse=ones(H, L) -> ValueError: …(2, 4)…expected (3, 2, 4)
grad_lse=0.0 -> ValueError: …shape () does not match lse's
grad_out=None, grad_lse=None -> ValueError: …None, and so is grad_lse; expected at least
    one
wrt="query" -> TypeError: …got str; expected a list of names, such as
wrt=3 -> TypeError: …got int; expected a list of names
wrt=True -> TypeError: …got bool; expected a list of names
wrt=np.array(1) -> TypeError: …array of dtype int64; expected a list of nam
wrt=np.array("query") -> TypeError: …array of dtype <U5; expected a list of
wrt=[0] -> TypeError: …got int among the names; expected strings
wrt=["query", None] -> TypeError: …got NoneType among the names
wrt=[b"query"] -> TypeError: …got bytes among the names
wrt=[ones(1)] -> TypeError: …array of dtype float64 among the names
wrt=["quary"] -> ValueError: …'quary' is no input…expected some of query, k
wrt=["out"] -> ValueError: …'out' is no input with a gradient
wrt=["query", "Query"] -> ValueError: …'Query' is no input
wrt=[""] -> ValueError: …'' is no input
wrt=["scale"] -> ValueError: …'scale' is no input with a gradient
wrt=["labels"] -> ValueError: …'labels' is no input with a gradient
wrt=["key_lengths"] -> ValueError: …'key_lengths' is no input with
wrt=["rel_value"] -> ValueError: …'rel_value' was not given…query, …rel_key
wrt=["key", "pos_bias_u"] -> ValueError: …'pos_bias_u' was not given to atten
wrt=["attn_mask"] -> ValueError: …'attn_mask' is of dtype bool and has no gr
num_threads=1.5 -> TypeError: …got float; expected a positive integer
num_threads=True -> TypeError: …got bool; expected a positive integer
num_threads="2" -> TypeError: …got str; expected a positive integer
num_threads=0 -> ValueError: …got 0; expected an integer from 1 to
num_threads=-1 -> ValueError: …got -1; expected an integer from 1 to
num_threads=HUGE -> ValueError: …; expected an integer from 1 to
""",
    globals(),
)
