"""Rows of the table of bad calls: biases, buckets and recipes.

(function, error, arguments, pattern): good arguments are in `GOOD`; the message starts
with the name of the first argument of the row. tests/docs/test_misuse.py has the
misuse that is the same for all functions, which is not repeated here.
"""

from __future__ import annotations

import bad_recipes
import numpy as np
from bad_kinds import H, L, ones
from refusals import calls

GRAD = ones(H, 2 * L - 1)
GOOD = {
    "alibi_slopes": {"num_heads": H},
    "alibi_bias": {"num_heads_or_slopes": H, "length": L},
    "alibi_bias_backward": {"grad_bias": GRAD},
    "t5_bucket": {"relative_position": [-3, 0, 3]},
    "t5_bias": {"weight": ones(32, H), "length": L},
    "t5_bias_backward": {"grad_bias": GRAD, "num_buckets": 32},
    "deberta_bucket": {
        "relative_position": [-3, 0, 3],
        "bucket_size": 8,
        "max_position": 16,
    },
    "kerple_bias": {"r1": ones(H), "r2": ones(H), "length": L},
    "kerple_bias_backward": {"grad_bias": GRAD, "r1": ones(H), "r2": ones(H)},
}
GOOD |= bad_recipes.GOOD
MASKED = np.ma.masked_array(np.ones(H))

ALIBI = calls(
    """
alibi_slopes(max_exponent=0) -> ValueError: 0.0; expected a positive
alibi_slopes(max_exponent=-8) -> ValueError: -8.0; expected a positive
alibi_slopes(dtype=np.int32) -> TypeError: int32; expected float32 or
alibi_bias(num_heads_or_slopes=0) -> ValueError: got 0; expected an integ
alibi_slopes(dtype="x") -> TypeError: got 'x'; expected float32 or float64
alibi_bias(dtype="x") -> TypeError: got 'x'; expected float32 or float64
alibi_bias(num_heads_or_slopes=True) -> TypeError: bool; expected float16
alibi_bias(num_heads_or_slopes=[1, 2]) -> TypeError: int64; expected floa
alibi_bias(num_heads_or_slopes=[np.nan]) -> ValueError: got nan; expected
alibi_bias(num_heads_or_slopes=[1.0, np.inf]) -> ValueError: inf; expect
alibi_bias(num_heads_or_slopes=MASKED) -> TypeError: MaskedArray; expect
alibi_bias(num_heads_or_slopes=Tensor()) -> TypeError: .detach()
alibi_bias(length=4.0) -> TypeError: got float; expected an integer
alibi_bias(length=2**59) -> ValueError: more bytes than memory can address
alibi_bias(length=2**58, num_heads_or_slopes=broadcast(2**20)) -> ValueError: more
    bytes than memory
alibi_bias(dtype=np.float16) -> TypeError: float16; expected float32 or f
alibi_bias_backward(grad_bias=Parameter()) -> TypeError: .detach()
alibi_bias_backward(grad_bias=ones(3)) -> ValueError: (..., H, 2 * l
alibi_bias_backward(grad_bias=ones(H, 6)) -> ValueError: 6 columns; … odd
alibi_slopes(num_heads=-HUGE) -> ValueError: got -1000…; expected an int
alibi_bias(length=HUGE) -> ValueError: got 1000…; expected an integer from
""",
    globals(),
)

BUCKETS = calls(
    """
t5_bucket(relative_position=True) -> TypeError: bool; expected integers
t5_bucket(relative_position=2**63) -> ValueError: does not fit int64
t5_bucket(num_buckets=3) -> ValueError: got 3; expected … from 4 to 4096
t5_bucket(num_buckets=0) -> ValueError: got 0; expected an integer from 4
t5_bucket(num_buckets=1, bidirectional=False) -> ValueError: got 1; expected an integer
    from 2 to 4096
t5_bucket(num_buckets=4097) -> ValueError: got 4097; expected an integer
t5_bucket(max_distance=8) -> ValueError: got 8; expected an integer from 9
t5_bucket(max_distance=-1) -> ValueError: got -1; expected an integer fro
t5_bucket(max_distance=16, bidirectional=False) -> ValueError: got 16; expected an
    integer from 17
t5_bucket(max_distance=128.0) -> TypeError: float; expected an integer
t5_bias(weight=ones(32)) -> ValueError: (32,); expected (num_buckets, H
t5_bias(weight=ones(2, 32, H)) -> ValueError: expected (num_buckets, H)
t5_bias(weight=ones(8, 32)) -> ValueError: weight.T …num_buckets=8 if it
t5_bias(weight=ones(3, H)) -> ValueError: got 3 rows; expected 4 to 4096
t5_bias(weight=ones(1, H), bidirectional=False) -> ValueError: got 1 row; expected 2
t5_bias(weight=ones(4097, H)) -> ValueError: got 4097 rows; expected 4 to
t5_bias(weight=ones(128, 32)) -> ValueError: (128, 32), where T5 has 32
t5_bias(weight=ones(16, 12), num_buckets=12) -> ValueError: (16, 12) with
    num_buckets=12; expected (12, H)
t5_bias(num_buckets="32") -> TypeError: got str; expected an integer
t5_bias(length=2**59) -> ValueError: more bytes than memory can address
t5_bias(max_distance=8) -> ValueError: got 8; expected an integer from 9
t5_bias_backward(grad_bias=ones(H, 4)) -> ValueError: 4 columns; … odd
t5_bias_backward(num_buckets=2) -> ValueError: got 2; expected an integer
deberta_bucket(bucket_size=3) -> ValueError: got 3; expected … from 4 to
deberta_bucket(bucket_size=-1) -> ValueError: got -1; expected an integer
deberta_bucket(max_position=5) -> ValueError: got 5; expected … from 6 to
deberta_bucket(max_position=-1) -> ValueError: got -1; expected an integer
deberta_bucket(relative_position=10**9, bucket_size=4096, max_position=2060)
    -> ValueError: 1000000000 lies … buckets past 2048, …clip
""",
    globals(),
)

KERPLE = calls(
    """
kerple_bias(r1=ones(H, dtype=int)) -> TypeError: int64; expected float16
kerple_bias(r1=[np.nan, 1.0]) -> ValueError: got nan; expected finite num
kerple_bias(r2=ones(H + 1)) -> ValueError: (3,); expected (2,), that of
kerple_bias(r2=-ones(H)) -> ValueError: got -1.0 for …log…; expected 0 o
kerple_bias(r2=np.zeros(H), kind="power") -> ValueError: got 0.0 for …power…; expected
    more than 0
kerple_bias(kind="linear") -> ValueError: 'linear'; expected one of 'log'
kerple_bias_backward(grad_bias=ones(H, 2)) -> ValueError: 2 columns; … odd
kerple_bias_backward(grad_bias=ones(3, 3)) -> ValueError: match r1 of shape
kerple_bias_backward(r2=-ones(H)) -> ValueError: -1.0 for kind='log'; exp
""",
    globals(),
)

BIASES = [*ALIBI, *BUCKETS, *KERPLE, *bad_recipes.RECIPES]
