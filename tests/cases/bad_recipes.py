"""Rows of the table of bad calls: recipes, as those of bad_biases.py."""

from __future__ import annotations

import numpy as np
from bad_kinds import D, H, L, ones
from refusals import calls

BUCKETS = {"weight": ones(32, H)}
GOOD = {
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
    "deepseek_v4": {"sinks": ones(H), "sliding_window": 2},
    "mistral_large4": {"alpha": ones(4), "inv_freq": ones(4)},
    "mistral_large4_temperature": {
        "scale": ones(H),
        "bias": ones(H),
        "positions": np.arange(L),
    },
    "moirai": {"weight": ones(2, H), "query_id": [0, 0, 1, 1]},
    "longformer": {"attention_mask": [2, 1, 1, 0], "attention_window": 2},
    "natten1d": {"rpb": ones(H, 5), "length": L},
    "botnet": {"rel_height": ones(3, D), "rel_width": ones(5, D), "grid": (2, 3)},
    "pope": {"x": ones(2, 5, 4)},
    "rope_vit": {"freqs": ones(2, 2, 4), "coordinates": ones(6, 2)},
    "mpnet": BUCKETS,
    "umt5": BUCKETS,
    "beit": {"relative_position_bias_table": ones(18, H), "window": (2, 3)},
    "swin_v2": {"w1": ones(5, 2), "b1": ones(5), "w2": ones(H, 5), "window": (2, 3)},
    "vits": {"emb_rel_k": ones(1, 5, D), "emb_rel_v": ones(1, 5, D)},
    "wav2vec2_bert": {"distance_embedding": ones(73, D)},
    "parakeet": {
        "bias_u": ones(H, D),
        "bias_v": ones(H, D),
        "relative_k_proj": ones(H * D, 6),
        "length": L,
    },
    "enformer": {
        "rel_content_bias": ones(1, H, 1, D),
        "rel_pos_bias": ones(1, H, 1, D),
        "to_rel_k": ones(H * D, 12),
        "length": L,
    },
    "enformer_positions": {"length": L, "dim": 12},
    "recurrent_gemma": {"attention_window_size": 4},
    "llama4": {"query_length": L, "key_length": 6, "attention_chunk_size": 2},
    "llama4_temperature": {"positions": [0, 5], "floor_scale": 2.0},
    "longt5_local": {"weight": ones(32, H), "local_radius": 3},
    "sam": {"rel_pos_h": ones(3, D), "rel_pos_w": ones(7, D), "grid": (2, 3)},
    "layoutlmv3": {
        "rel_pos_bias": ones(H, 8),
        "rel_pos_x_bias": ones(H, 12),
        "rel_pos_y_bias": ones(H, 12),
        "position_ids": np.arange(L),
        "bbox": np.arange(4 * L).reshape(L, 4),
        "head_dim": D,
    },
    "inkling": {"proj": ones(3, 5), "head_dim": D},
    "inkling_temperature": {"positions": [0, 5], "log_scaling_n_floor": 2.0},
    "wavlm": {
        "gru_rel_pos_const": ones(1, H, 1, 1),
        "gru_rel_pos_linear_weight": ones(8, D),
        "gru_rel_pos_linear_bias": ones(8),
        "rel_attn_embed": ones(32, H),
        "hidden_states": ones(3, L, H * D),
    },
    "zipformer": {
        "linear_pos": ones(H * 3, 6),
        "num_heads": H,
        "query_length": L,
        "key_length": L + 2,
    },
    "zipformer_positions": {"positions": L, "dim": 6},
    "forgetting_transformer": {
        "f_proj_weight": ones(H, 6),
        "f_proj_bias": ones(H),
        "hidden_states": ones(3, L, 6),
    },
    "gpt_oss": {"sinks": ones(H)},
    "gemma2": {"query_pre_attn_scalar": 4.0},
    "gemma3n_audio": {
        "per_dim_scale": ones(D),
        "pos_proj": ones(H * D, 6),
        "query": ones(3, H, L, D),
    },
    "gemma4_audio": {
        "per_dim_scale": ones(D),
        "relative_k_proj": ones(H * D, 6),
        "query": ones(3, H, L, D),
    },
}

RECIPES = calls(
    """
deberta(pos_key=TEXT) -> TypeError: dtype <U1; expected float16
deberta(pos_key=ones(7, D)) -> ValueError: (7, 8); expected … even number
deberta(pos_query=ones(7, D), pos_key=None) -> ValueError: (7, 8); expected … even
    number
deberta(max_position=3) -> ValueError: got 3; expected an integer from 4
deberta(max_position=2**59) -> ValueError: more bytes than memory can address
deberta(max_position=2**59, pos_key=ones(10, D), pos_query=None) -> ValueError: more
    bytes than memory can address
t5(weight=ones(32)) -> ValueError: 1 axis; expected (num_buckets, H)
t5(weight=ones(2, 32, H)) -> ValueError: expected (num_buckets, H)
t5(weight=ones(12, 32)) -> ValueError: weight.T …num_buckets=12 if it
t5(weight=ones(12, 16), num_buckets=16) -> ValueError: (12, 16) with num_buckets=16;
    expected (16, H)
t5(num_buckets=-1) -> ValueError: got -1; expected an integer from 4
t5(max_distance=2**59) -> ValueError: more bytes than memory can address
t5(max_distance=8) -> ValueError: got 8; expected an integer from 9
xlnet(rel_key=TEXT) -> TypeError: dtype <U1; expected float16
xlnet(pos_bias_u="u") -> TypeError: got str; expected float16
xlnet(pos_bias_v=None) -> TypeError: got NoneType; expected float16
xlnet(rel_key=ones(D)) -> ValueError: 1 axis; expected (H, R, D)
xlnet(key_length=-1) -> ValueError: got -1; expected an integer from 0
xlnet_segments(argument="query") -> ValueError: got 'query'; expected one of 'attn_mask'
xlnet_segments(query=ones(L, D)) -> ValueError: (4, 8); expected (...,
xlnet_segments(query=ones(H, L, 0)) -> ValueError: D at least 1
xlnet_segments(pos_bias_s=ones(D)) -> ValueError: (8,); expected (2, 8)
xlnet_segments(different=ones(L, L)) -> TypeError: float64; expected bool
xlnet_segments(different=ones(5, 1, L, L, dtype=bool)) -> ValueError: (5, 1, 4, 4);
    expected … broadcasts to (3, 2, 4, 4)
swin(table=ones(15)) -> ValueError: 1 axis; expected (prod(2n-1), H)
swin(window=(2, 0)) -> ValueError: got 0; expected an integer from 1 to
swin(window=(2, 3.0)) -> TypeError: got float; expected an integer
swin(window="23") -> TypeError: got str; expected an integer or a sequ
swin(window=b"ab") -> TypeError: got bytes; expected an integer or a sequ
swin(table=np.full((15, H), b"a")) -> TypeError: dtype |S1; expected float
botnet(grid=bytearray(b"ab")) -> TypeError: got bytearray; expected an int
botnet(rel_height=np.full((3, D), "a")) -> TypeError: dtype <U1; expecte
botnet(grid=None) -> TypeError: got NoneType; expected an integer
botnet(rel_width=ones(3, D)) -> ValueError: (3, 8) for 3 … (5, 8)
botnet(grid=(2, 3, 1)) -> ValueError: (2, 3, 1); expected (h, w)
botnet(grid=3) -> ValueError: got 3; expected (h, w)
botnet(rel_width=ones(5, D + 1)) -> ValueError: (5, 9) for … (5, 8)
mpnet(weight=ones(32)) -> ValueError: 1 axis; expected (num_buckets, H)
mpnet(weight=ones(12, 32)) -> ValueError: weight.T …num_buckets=12 if it
mpnet(max_distance=8) -> ValueError: got 8; expected an integer from 9
umt5(weight=ones(32, H), num_buckets=8) -> ValueError: num_buckets=8;
vits(emb_rel_k=ones(5, D)) -> ValueError: (5, 8); expected (1, 2 win
vits(emb_rel_v=ones(D)) -> ValueError: 1 axis; expected (1, 2 window
vits(emb_rel_v=Tensor()) -> TypeError: .detach()
wav2vec2_bert(distance_embedding=ones(72, D)) -> ValueError: (72, 8); expected (left +
    right + 1, D), 64 + 8 + 1 rows
wav2vec2_bert(distance_embedding=ones(73)) -> ValueError: 1 axis; expected
wav2vec2_bert(left_max_position_embeddings=-1) -> ValueError: got -1; expected an
    integer from 0
wav2vec2_bert(right_max_position_embeddings=-1) -> ValueError: got -1; expected an
    integer from 0
wav2vec2_bert(right_max_position_embeddings=8.0) -> TypeError: got float; expected an
    integer
beit(relative_position_bias_table=ones(15, H)) -> ValueError: 15 rows for (2, 3) …3 = 18
beit(relative_position_bias_table=ones(18)) -> ValueError: (18,); expected (rows, H)
beit(window=(2, 3, 1)) -> ValueError: expected (rows, columns)
beit(window=6) -> ValueError: got 6; expected (rows, columns)
beit(window="23") -> TypeError: got str; expected an integer or a sequence
beit(table_window=(0, 3)) -> ValueError: got 0; expected an integer from 1
beit(relative_position_bias_table=ones(18, H), table_window=(3, 3)) -> ValueError: 28
beit(window=(2**29, 2**29), table_window=(2, 3)) -> ValueError: more bytes than memory
    can address
swin_v2(w1=ones(5, 3)) -> ValueError: (5, 3); expected (F, 2)
swin_v2(b1=ones(4)) -> ValueError: (4,); expected (5,)
swin_v2(w2=ones(H, 4)) -> ValueError: (2, 4); expected (H, 5)
swin_v2(w2=Tensor()) -> TypeError: .detach()
swin_v2(window=(3, 1)) -> ValueError: (3, 1); expected … at least 2
swin_v2(window=(1, 2, 3)) -> ValueError: an integer or (rows, columns)
swin_v2(window=2**29) -> ValueError: more bytes than memory can address
swin_v2(pretrained_window=(2, 1)) -> ValueError: (2, 1); expected sides of at least 2
swin_v2(pretrained_window=2.5) -> TypeError: got float; expected an integer
parakeet(bias_u=ones(D)) -> ValueError: (8,); expected (H, D)
parakeet(bias_v=ones(H, 3)) -> ValueError: (2, 3); expected (2, 8)
parakeet(relative_k_proj=ones(D, 6)) -> ValueError: (8, 6); expected (16, E)
parakeet(relative_k_proj=ones(H * D, 5)) -> ValueError: expected an even E
parakeet(length=2**59) -> ValueError: more bytes than memory can address
enformer(rel_content_bias=ones(H, D)) -> ValueError: (2, 8); expected (1, H, 1, D)
enformer(rel_pos_bias=ones(1, H, 1, 3)) -> ValueError: (1, 2, 1, 3); expected (1, 2, 1,
    8)
enformer(to_rel_k=ones(D, 12)) -> ValueError: expected (16, F)
enformer(to_rel_k=ones(H * D, 8)) -> ValueError: F a multiple of 6
enformer(to_rel_k=np.full((H * D, 12), "a")) -> TypeError: <U1; expected
enformer(length=-1) -> ValueError: got -1; expected an integer from 1
enformer(gamma_maximum="rows") -> ValueError: got 'rows'; expected one of 'positions',
    'features'
enformer(gamma_maximum=None) -> TypeError: got NoneType; expected one of
enformer_positions(gamma_maximum="all") -> ValueError: got 'all'; expected one
enformer_positions(dim=8) -> ValueError: got 8; expected a multiple of 6
enformer_positions(length=0) -> ValueError: got 0; expected an integer from
enformer_positions(length=2**58) -> ValueError: more bytes than memory can
enformer_positions(dtype=np.float16) -> TypeError: float16; expected float
llama4_temperature(attn_scale="a") -> TypeError: str; expected a real numbe
llama4(query_length=4.0) -> TypeError: got float; expected an integer
llama4(query_length=2**59, key_length=None) -> ValueError: more bytes than
llama4(key_length=3) -> ValueError: got 3 for 4 queries; expected at least
llama4(attention_chunk_size=0) -> ValueError: got 0; expected an integer fr
llama4(start=-1) -> ValueError: expected tokens from 0
llama4(start=[0.5]) -> TypeError: float64; expected integers
longt5_local(length=0) -> ValueError: got 0; expected an integer from 1
longt5_local(length=2**59) -> ValueError: more bytes than memory can addre
longt5_local(weight=ones(32)) -> ValueError: expected (num_buckets, H)
longt5_local(max_distance=8) -> ValueError: got 8; expected an integer fr
sam(rel_pos_h=ones(D)) -> ValueError: (8,); expected (R, D)
sam(rel_pos_w=ones(7, 3)) -> ValueError: (7, 3); expected (S, 8)
sam(grid=4) -> ValueError: got 4; expected (rows, columns)
sam(grid=(0, 3)) -> ValueError: got 0; expected an integer from 1
sam(grid=(2**59, 2)) -> ValueError: more bytes than memory can address
layoutlmv3(rel_pos_bias=ones(8)) -> ValueError: (8,); expected (H, bins
layoutlmv3(position_ids=3) -> ValueError: (); expected (..., L)
layoutlmv3(position_ids=[2**61] * L) -> ValueError: at most 2**60 in size
layoutlmv3(bbox=ones(L, 4)) -> TypeError: float64; expected integers
layoutlmv3(bbox=[[1, 2, 3, 4]]) -> ValueError: (1, 4); expected (4, 4)
layoutlmv3(max_rel_pos=2) -> ValueError: got 2; expected an integer from 3
layoutlmv3(max_rel_2d_pos=3) -> ValueError: got 3; expected an integer from 4
layoutlmv3(head_dim=0) -> ValueError: got 0; expected an integer from 1
layoutlmv3(max_rel_pos=0) -> ValueError: got 0; expected an integer from 3
inkling(proj=ones(H, 3, 5)) -> ValueError: (2, 3, 5); expected (d_rel
inkling(window=2.0) -> TypeError: got float; expected an integer
inkling_temperature(log_scaling_n_floor=0) -> ValueError: 0.0; expected a positive
    number
wavlm(gru_rel_pos_const=ones(H)) -> ValueError: expected (1, H, 1, 1)
wavlm(gru_rel_pos_linear_weight=ones(4, D)) -> ValueError: (8, D)
wavlm(gru_rel_pos_linear_bias=ones(4)) -> ValueError: expected (8,)
wavlm(rel_attn_embed=ones(32, 3)) -> ValueError: (num_buckets, 2)
wavlm(hidden_states=ones(L, D)) -> ValueError: (..., L, 16), 2 heads
wavlm(max_distance=2**59) -> ValueError: more bytes than memory can address
wavlm(max_distance=8) -> ValueError: got 8; expected an integer from 9
zipformer(linear_pos=ones(5, 6)) -> ValueError: (5, 6) for 2 heads; expe
zipformer(linear_pos=ones(H * 3, 5)) -> ValueError: expected an even E
zipformer(num_heads=0) -> ValueError: got 0; expected an integer from 1
zipformer(key_length=2) -> ValueError: got 2 for 4 queries; expected at le
zipformer(key_length=2**59) -> ValueError: more bytes than memory can addr
zipformer(length_factor=0.0) -> ValueError: 0.0; expected a positive numb
zipformer_positions(dim=5) -> ValueError: got 5; expected an even number
zipformer_positions(positions=2**59) -> ValueError: more bytes than memory
forgetting_transformer(hidden_states=ones(L, 5)) -> ValueError: (4, 5); expected (...,
    L, 6)
forgetting_transformer(hidden_states=ones(L, 6, dtype=int)) -> TypeError: int64;
    expected float16
forgetting_transformer(window_size=0) -> ValueError: got 0; expected an int
forgetting_transformer(f_proj_weight=Tensor()) -> TypeError: .detach()
gpt_oss(sinks=ones(H, 1)) -> ValueError: (2, 1); expected (H,)
gpt_oss(sliding_window=0) -> ValueError: got 0; expected an integer from 1
gpt_oss(sliding_window=4.0) -> TypeError: got float; expected an integer
gemma2(query_pre_attn_scalar=0) -> ValueError: 0.0; expected a positive
gemma2(attn_logit_softcapping=-1.0) -> ValueError: -1.0; expected a posi
gemma2(sliding_window=0) -> ValueError: got 0; expected an integer from 1
gemma3n_audio(query=ones(L, D)) -> ValueError: (4, 8); expected (..., H
gemma3n_audio(query=ones(H, L, D, dtype=int)) -> TypeError: int64; expected
gemma3n_audio(per_dim_scale=ones(3)) -> ValueError: (3,); expected (8,)
gemma3n_audio(pos_proj=ones(D, 6)) -> ValueError: (8, 6); expected (16, E
gemma3n_audio(pos_proj=ones(H * D, 5)) -> ValueError: expected an even E
gemma3n_audio(context_left=2**59) -> ValueError: more bytes than memory can
gemma3n_audio(context_right=-1) -> ValueError: got -1; expected an integer
gemma3n_audio(logit_cap=None) -> TypeError: NoneType; expected a real numb
gemma3n_audio(logit_cap=0.0) -> ValueError: 0.0; expected a positive
gemma4_audio(relative_k_proj=ones(H * D, 0)) -> ValueError: expected an even E
gemma4_audio(context_left=1) -> ValueError: got 1; expected an integer from
gemma4_audio(chunk_size=0) -> ValueError: got 0; expected an integer from 1
pope(x=ones(4)) -> ValueError: shape (4,) has 1 axis; expected (..., L, D
pope(bias=ones(3)) -> ValueError: got shape (3,); …(4,) or (2, 4)
pope(bias=ones(3, 4)) -> ValueError: got shape (3, 4); expected (D,) or
pope(bias=ones(2, 1, 4)) -> ValueError: got shape (2, 1, 4); expected
pope(bias=[1] * 4) -> TypeError: got dtype int64; expected float16
pope(bias=Tensor()) -> TypeError: got a torch Tensor
pope(positions=ones(4)) -> ValueError: shape (4,) does not broadcast
pope(inv_freq=ones(2)) -> ValueError: got shape (2,); expected (4,)
pope(base=0) -> ValueError: got 0.0; expected a positive number
pope(offset="1") -> TypeError: got str; expected a real number
pope(argument="value") -> ValueError: got 'value'; expected one of 'query', 'key'
pope(argument=True) -> TypeError: got bool; expected one of 'query', 'key'
rope_vit(freqs=ones(2, 3)) -> ValueError: got shape (2, 3); expected (A, H
""",
    {"TEXT": np.full((32, H), "a")},
)
