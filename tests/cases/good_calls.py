"""A small good call of every public function, by name: what has to be given."""

from __future__ import annotations

import numpy as np
from bad_biases import GOOD as BIASES_AND_RECIPES
from scheme_calls import ROW_OF, inputs_of

import relpos

H, L, D = 2, 4, 3
HEADS = np.ones((H, L, D))
QKV = {"query": HEADS, "key": HEADS, "value": HEADS}
TABLE = np.ones((2 * L - 1, D))
TABLES = {"rel_key": TABLE, "rel_value": TABLE}
UV = {"pos_bias_u": np.ones(D), "pos_bias_v": np.ones(D)}
SCORES = {"query": HEADS, "key": HEADS, "rel_key": TABLE}
PARTS = {"out_a": HEADS, "lse_a": HEADS[..., 0], "out_b": HEADS, "lse_b": HEADS[..., 0]}
NETWORK = {"w1": np.ones(5), "b1": np.ones(5), "w2": np.ones((H, 5)), "b2": np.ones(H)}
FIRE = {**NETWORK, "c": 1.0, "threshold": 1.0}
PEG = {"x": np.ones((6, 1)), "weight": np.ones((1, 3))}
SIZES = {"batch": 1, "heads": 2, "query_length": 8, "key_length": 9, "head_dim": 4}
NAIVE = {"length": 4, "dim": 3}

GOOD = {name: inputs_of(name) for name in ROW_OF}
GOOD |= {
    "attention": {**QKV, **TABLES, **UV},
    "AttentionContext.backward": {"grad_out": HEADS},
    "attention_forward": {**QKV, **TABLES, **UV},
    "attention_backward": {
        **QKV,
        "grad_out": HEADS,
        "grad_lse": None,
        "result": (HEADS, *3 * (HEADS[..., 0],)),
    },
    "indexer_top_k": {
        "query": HEADS,
        "key": HEADS[0],
        "weights": HEADS[..., 0],
        "k": 2,
    },
    "merge_attention": PARTS,
    "scores": {"query": HEADS, "key": HEADS, **TABLES, **UV},
    "shaw_scores": SCORES,
    "skewed_scores": {**SCORES, "is_causal": True},
    "transformer_xl_scores": {**SCORES, **UV},
    "relative_positions": {"query_length": 4},
    "grid_labels": {"shape": (2, 3)},
    "segment_ranges": {"query_segments": [0, 0, 1]},
    "skew": {"x": np.ones((L, 2 * L - 1)), "is_causal": False},
    "unskew": {"x": np.ones((L, L)), "is_causal": False},
    "rel_shift": {"x": np.ones((L, L))},
    "sinusoidal_shift_matrix": {"offset": 1.5, "dim": 4},
    "index_encoding": NAIVE,
    "normalized_index_encoding": NAIVE,
    "random_encoding": {**NAIVE, "rng": 0},
    "learned_backward": {
        "grad_out": np.ones((2, D)),
        "positions": [0, 2],
        "num_positions": 3,
    },
    "audit_encoding": {"encode": relpos.sinusoidal, "lengths": (4, 8, 16), "dim": 4},
    "conv_encoding_backward": {**PEG, "grad_out": PEG["x"]},
    "apply_rotary": {"x": HEADS, "rotary_dim": 2},
    "apply_rotary_backward": {"x": HEADS, "rotary_dim": 2, "grad_out": HEADS},
    "xpos_magnitude": {"positions": [1, 2], "dim": 4},
    "rotary_frequencies": {"dim": 4},
    "rotary_magnitude": {"scaling": ("linear", 2.0)},
    "rotary_from_config": {"config": {"head_dim": 4, "rope_theta": 100.0}},
    "mrope_angles": {
        "positions": np.ones((3, L)),
        "inv_freq": np.ones(6),
        "sections": (2, 2, 2),
    },
    "axial_angles": {"coordinates": np.ones((L, 2)), "inv_freq": np.ones(6)},
    "fire_bias": {**FIRE, "query_length": 4},
    "fire_bias_backward": {**FIRE, "grad_bias": np.ones((H, L, L))},
    "plan": {**SIZES, "scheme": "shaw"},
    "set_num_threads": {"n": relpos.get_num_threads()},
    "threads": {"n": 1},
    "show_config": {"mode": "dicts"},
    "data.slips": {"document": "SELENE overview"},
    "data.experiment": {"name": "probes"},
    "data.shaw_tables": {"table": 2},
    "plot.encoding_map": {"encoding": TABLE},
    "plot.attention_map": {"weights": TABLE},
    "plot.attention_heads": {"weights": HEADS},
    "plot.score_terms": {"query": HEADS, "key": HEADS, "rel_key": TABLE, **UV},
    "plot.skew_steps": {"scores": 3},
    "plot.bias_by_distance": {"bias": TABLE},
    "plot.buckets": {"bucket": relpos.t5_bucket, "reach": 9},
    "plot.grid_bias": {"bias": np.ones(15), "shape": (2, 3)},
    "plot.rotary_wheel": {"dim": 4, "positions": [0, 1]},
    "plot.wavelengths": {"inv_freq": {"a": [1.0]}},
    "plot.decay": {"encodings": {"a": [1.0]}, "reach": 9},
    "plot.fingerprint": {"scheme": "rotary", "length": 4},
    "plot.fingerprints": {"schemes": {"a": "alibi"}, "length": 4},
    "plot.edges": {"labels": 3},
    "plot.plan_bars": {"plan": relpos.plan(1, 2, 8, 8, 4, scheme="shaw")},
    "plot.costs_over_length": {"schemes": "shaw", "lengths": [8, 16]},
    "plot.audit": {
        "audits": relpos.audit_encoding(relpos.index_encoding, lengths=(4, 8), dim=2)
    },
    "plot.attention_graph": {"indptr": [0, 1, 2], "indices": [1, 1]},
    "plot.encoding_maps": {"encodings": {"a": TABLE}},
    "plot.length_generalisation": {"results": {"a": ([1, 2], [0.5, 1.0])}},
    "plot.score_map": {"scores": TABLE},
    "plot.relative_position_map": {"relative": [[0, 1]]},
    "plot.compare": {"comparison": relpos.compare(np.sin, np.sin, np.ones(3))},
    "plot.loss_curves": {"losses": {"a": [1.0]}},
}
GOOD["recipes.from_config"] = {
    "config": {"model_type": "mpnet"},
    "state_dict": {"encoder.relative_attention_bias.weight": np.ones((32, H))},
}
for name, arguments in BIASES_AND_RECIPES.items():
    GOOD[name if hasattr(relpos, name) else f"recipes.{name}"] = arguments
