"""Rows of the table of bad calls: biases, buckets and recipes.

(function, error, arguments, pattern): good arguments are in `GOOD`; the message starts
with the name of the first argument of the row.
"""

from __future__ import annotations

import bad_recipes
import numpy as np
from bad_kinds import D, H, L, ones
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
    "bert": {"distance_embedding": ones(2 * L - 1, D)},
    "deberta": {"pos_key": ones(8, D), "pos_query": ones(8, D), "max_position": 16},
    "t5": {"weight": ones(32, H)},
    "xlnet": {
        "query_length": L,
        "key_length": L,
        "rel_key": ones(H, 2 * L, D),
        "pos_bias_u": ones(H, D),
        "pos_bias_v": ones(H, D),
    },
    "xlnet_segments": {
        "query": ones(3, H, L, D),
        "segment_embed": ones(2, H, D),
        "pos_bias_s": ones(H, D),
        "different": ones(L, L, dtype=bool),
    },
    "swin": {"table": ones(15, H), "window": (2, 3)},
    "botnet": {"rel_height": ones(3, D), "rel_width": ones(5, D), "grid": (2, 3)},
}
GOOD |= bad_recipes.GOOD
MASKED = np.ma.masked_array(np.ones(H))
TEXT = np.full((32, H), "a")

ALIBI = calls(
    """
alibi_slopes(num_heads=2.0) -> TypeError: float; expected an integer
alibi_slopes(num_heads=True) -> TypeError: True; expected an integer
alibi_slopes(num_heads=0) -> ValueError: got 0; expected … from 1 to
alibi_slopes(max_exponent="8") -> TypeError: str; expected a real number
alibi_slopes(max_exponent=0) -> ValueError: 0.0; expected a positive
alibi_slopes(max_exponent=-8) -> ValueError: -8.0; expected a positive
alibi_slopes(max_exponent=np.nan) -> ValueError: nan; expected a finite
alibi_slopes(dtype=np.int32) -> TypeError: int32; expected float32 or
alibi_bias(num_heads_or_slopes=0) -> ValueError: got 0; expected an integ
alibi_slopes(dtype="x") -> TypeError: got 'x'; expected float32 or float64
alibi_bias(dtype="x") -> TypeError: got 'x'; expected float32 or float64
alibi_bias(num_heads_or_slopes=True) -> TypeError: bool; expected float16
alibi_bias(num_heads_or_slopes=[1, 2]) -> TypeError: int64; expected floa
alibi_bias(num_heads_or_slopes=0.5) -> ValueError: shape ()…(..., H)
alibi_bias(num_heads_or_slopes=[np.nan]) -> ValueError: got nan; expected
alibi_bias(num_heads_or_slopes=[1.0, np.inf]) -> ValueError: inf; expect
alibi_bias(num_heads_or_slopes=MASKED) -> TypeError: MaskedArray; expect
alibi_bias(num_heads_or_slopes=Tensor()) -> TypeError: .detach()
alibi_bias(length=4.0) -> TypeError: got float; expected an integer
alibi_bias(length=0) -> ValueError: got 0; expected an integer from 1 to
alibi_bias(length=2**59) -> ValueError: more bytes than memory can address
alibi_bias(dtype=np.float16) -> TypeError: float16; expected float32 or f
alibi_bias_backward(grad_bias=ones(1, 3, dtype=int)) -> TypeError: int64
alibi_bias_backward(grad_bias=Parameter()) -> TypeError: .detach()
alibi_bias_backward(grad_bias=ones(3)) -> ValueError: (..., H, 2 * l
alibi_bias_backward(grad_bias=ones(H, 6)) -> ValueError: 6 columns; … odd
alibi_bias_backward(grad_bias=ones(H, 0)) -> ValueError: 0 columns; … odd
alibi_slopes(num_heads=-HUGE) -> ValueError: got -1000…; expected an int
alibi_bias(length=HUGE) -> ValueError: got 1000…; expected an integer from
""",
    globals(),
)

BUCKETS = calls(
    """
t5_bucket(relative_position=[0.5]) -> TypeError: float64; expected integ
t5_bucket(relative_position=True) -> TypeError: bool; expected integers
t5_bucket(relative_position=2**63) -> ValueError: does not fit int64
t5_bucket(relative_position=Tensor()) -> TypeError: .detach()
t5_bucket(bidirectional=1) -> TypeError: int; expected True or False
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
t5_bias(weight=ones(128, 32)) -> ValueError: (128, 32), where T5 has 32
t5_bias(weight=ones(16, 12), num_buckets=12) -> ValueError: (16, 12) with
    num_buckets=12; expected (12, H)
t5_bias(num_buckets="32") -> TypeError: got str; expected an integer
t5_bias(weight=ones(32, H, dtype=int)) -> TypeError: int64; expected flo
t5_bias(weight=Tensor()) -> TypeError: .detach()
t5_bias(length=0) -> ValueError: got 0; expected an integer from 1 to
t5_bias(length=2**59) -> ValueError: more bytes than memory can address
t5_bias(max_distance=8) -> ValueError: got 8; expected an integer from 9
t5_bias_backward(grad_bias=ones(H, 4)) -> ValueError: 4 columns; … odd
t5_bias_backward(grad_bias="bias") -> TypeError: got str; expected float16
t5_bias_backward(num_buckets=2) -> ValueError: got 2; expected an integer
t5_bias_backward(num_buckets=None) -> TypeError: NoneType; expected an int
deberta_bucket(relative_position=[0.0]) -> TypeError: float64; expected in
deberta_bucket(bucket_size=3) -> ValueError: got 3; expected … from 4 to
deberta_bucket(bucket_size=-1) -> ValueError: got -1; expected an integer
deberta_bucket(max_position=5) -> ValueError: got 5; expected … from 6 to
deberta_bucket(max_position=-1) -> ValueError: got -1; expected an integer
deberta_bucket(max_position=16.0) -> TypeError: float; expected an integer
deberta_bucket(relative_position=10**9, bucket_size=4096, max_position=2060)
    -> ValueError: 1000000000 lies … buckets past 2048, …clip
""",
    globals(),
)

KERPLE = calls(
    """
kerple_bias(r1=ones(H, dtype=int)) -> TypeError: int64; expected float16
kerple_bias(r2=MASKED) -> TypeError: MaskedArray; expected a plain array
kerple_bias(r1=1.0) -> ValueError: shape () has 0 axes; …number for each
kerple_bias(r1=[np.nan, 1.0]) -> ValueError: got nan; expected finite num
kerple_bias(r2=ones(H + 1)) -> ValueError: (3,); expected (2,), that of
kerple_bias(r2=-ones(H)) -> ValueError: got -1.0 for …log…; expected 0 o
kerple_bias(r2=np.zeros(H), kind="power") -> ValueError: got 0.0 for …power…; expected
    more than 0
kerple_bias(kind="linear") -> ValueError: 'linear'; expected one of 'log'
kerple_bias(kind=None) -> TypeError: NoneType; expected one of 'log', 'po
kerple_bias(length=0) -> ValueError: got 0; expected an integer from 1 to
kerple_bias_backward(grad_bias=ones(H, 2)) -> ValueError: 2 columns; … odd
kerple_bias_backward(grad_bias=ones(3, 3)) -> ValueError: match r1 of shape
kerple_bias_backward(r2=-ones(H)) -> ValueError: -1.0 for kind='log'; exp
""",
    globals(),
)

RECIPES = calls(
    """
bert(distance_embedding=Tensor()) -> TypeError: .detach()
bert(distance_embedding=TEXT) -> TypeError: dtype <U1; expected float16
bert(distance_embedding=ones(7, D, dtype=int)) -> TypeError: int64; expe
deberta(pos_key=TEXT) -> TypeError: dtype <U1; expected float16
deberta(pos_query=[["a"]]) -> TypeError: dtype <U1; expected float16
bert(distance_embedding=ones(D)) -> ValueError: 1 axes; expected (2P-1, D
bert(key_query=1) -> TypeError: got int; expected True or False
deberta(pos_key=ones(7, D)) -> ValueError: (7, 8); expected … even number
deberta(pos_key=ones(0, D)) -> ValueError: (0, 8); expected … even number
deberta(pos_key=ones(8, 0)) -> ValueError: (8, 0); … D at least 1
deberta(pos_query=ones(7, D), pos_key=None) -> ValueError: (7, 8); expected … even
    number
deberta(pos_query=ones(D)) -> ValueError: 1 axes; expected (2 span, D)
deberta(max_position=3) -> ValueError: got 3; expected an integer from 4
deberta(max_position=9.5) -> TypeError: got float; expected an integer
t5(weight=ones(32)) -> ValueError: 1 axes; expected (num_buckets, H)
t5(weight=Tensor()) -> TypeError: .detach()
t5(weight=TEXT) -> TypeError: dtype <U1; expected float16
t5(weight=TEXT.tolist()) -> TypeError: dtype <U1; expected float16
t5(weight=ones(2, 32, H)) -> ValueError: expected (num_buckets, H)
t5(weight=ones(12, 32)) -> ValueError: weight.T …num_buckets=12 if it
t5(weight=ones(12, 16), num_buckets=16) -> ValueError: (12, 16) with num_buckets=16;
    expected (16, H)
t5(max_distance=8) -> ValueError: got 8; expected an integer from 9
xlnet(query_length=4.0) -> TypeError: got float; expected an integer
xlnet(rel_key=TEXT) -> TypeError: dtype <U1; expected float16
xlnet(pos_bias_u="u") -> TypeError: got str; expected float16
xlnet(pos_bias_v=None) -> TypeError: got NoneType; expected float16
xlnet(rel_key=ones(D)) -> ValueError: 1 axes; expected (H, R, D)
xlnet(key_length=-1) -> ValueError: got -1; expected an integer from 0
xlnet_segments(query=ones(L, D)) -> ValueError: (4, 8); expected (...,
xlnet_segments(query=ones(H, L, 0)) -> ValueError: D at least 1
xlnet_segments(segment_embed=ones(H, D)) -> ValueError: expected (2, 2, 8
xlnet_segments(pos_bias_s=ones(D)) -> ValueError: (8,); expected (2, 8)
xlnet_segments(different=ones(L, L)) -> TypeError: float64; expected bool
xlnet_segments(different=ones(5, 1, L, L, dtype=bool)) -> ValueError: (5, 1, 4, 4);
    expected … broadcasts to (3, 2, 4, 4)
swin(table=ones(16, H)) -> ValueError: 16 rows …(2, 3); expected 15, the
swin(table=ones(15)) -> ValueError: 1 axes; expected (prod(2n-1), H)
swin(window=(2, 0)) -> ValueError: got 0; expected an integer from 1 to
swin(window=(2, 3.0)) -> TypeError: got float; expected an integer
swin(window="23") -> TypeError: got str; expected an integer or a sequ
swin(window=b"ab") -> TypeError: got bytes; expected an integer or a sequ
swin(table=np.full((15, H), b"a")) -> TypeError: dtype |S1; expected float
botnet(grid=bytearray(b"ab")) -> TypeError: got bytearray; expected an int
botnet(rel_height=np.full((3, D), "a")) -> TypeError: dtype <U1; expecte
botnet(rel_width=[["a"] * D] * 5) -> TypeError: dtype <U1; expected float
botnet(grid=None) -> TypeError: got NoneType; expected an integer
swin(table=Tensor()) -> TypeError: .detach()
botnet(rel_height=ones(5, D)) -> ValueError: (5, 8) for 2 … (3, 8)
botnet(rel_width=ones(3, D)) -> ValueError: (3, 8) for 3 … (5, 8)
botnet(grid=(2, 3, 1)) -> ValueError: (2, 3, 1); expected (h, w)
botnet(grid=3) -> ValueError: got 3; expected (h, w)
botnet(rel_width=ones(5, D + 1)) -> ValueError: (5, 9) for … (5, 8)
alibi_bias(length=2**58, num_heads_or_slopes=broadcast(2**20)) -> ValueError: more
    bytes than memory
""",
    globals(),
)

BIASES = [*ALIBI, *BUCKETS, *KERPLE, *RECIPES, *bad_recipes.RECIPES]
