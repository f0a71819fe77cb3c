"""Calls of every definition that takes arrays, with an item of the batch in each array.

A function of the batch's size makes them, so that a batch may be empty. Definitions
that know no batch are called without one.
"""

from __future__ import annotations

import numpy as np

from relpos import reference

H, L, LK, D, W = 2, 3, 4, 4, 3
ROWS = L + LK - 1
SIZES = {"dim": 4, "base": 100.0}
#: Definitions that take no arrays, or one of words of 32 bits.
WITHOUT_ARRAYS = {
    "alibi_slopes",
    "grid_labels",
    "index_encoding",
    "normalized_index_encoding",
    "random_encoding",
    "relative_positions",
    "rotary_frequencies",
    "philox4x32",
    "rotary_from_config",
    "rotary_magnitude",
    "sinusoidal_shift_matrix",
}
NETWORK = {
    "w1": np.ones(W),
    "b1": np.ones(W),
    "w2": np.ones((H, W)),
    "b2": np.ones(H),
    "c": np.array(0.5),
    "threshold": np.array(2.0),
}


class Arrays:
    """Arrays whose first axis is the batch."""

    def __init__(self, batch):
        self.batch, self.rng = batch, np.random.default_rng(batch)

    def real(self, *shape):
        return self.rng.uniform(0.1, 0.9, (self.batch, *shape))

    def integer(self, *shape, low=0, high=3):
        return self.rng.integers(low, high, (self.batch, *shape))


def operands(x):
    """Operands of `attention` in groups that may be given together."""
    tables = {name: x.real(H, ROWS, D) for name in ("rel_key", "rel_query")}
    tables |= {"rel_value": x.real(H, ROWS, D), "rel_bias": x.real(H, ROWS)}
    offsets = {"query_offset": x.integer(), "min_relative_position": 1 - LK}
    labels = [x.integer(L, LK, low=-1, high=ROWS) for _ in "12"]
    begins = x.integer(L)
    return {
        "tables": {**tables, **offsets, "beyond": "zero"},
        "clipped": {**tables, **offsets},
        "vectors": {
            "pos_bias_u": x.real(H, D),
            "pos_bias_v": x.real(H, D),
            **offsets,
            "position_query": x.real(H, L, D),
            "rel_key": x.real(H, ROWS, D),
        },
        "buckets": {
            "rel_bias": x.real(H, 2),
            "buckets": np.arange(ROWS) % 2,
            **offsets,
        },
        "labels": {**tables, "labels": labels[0]},
        "several labels": {**tables, "labels": (*labels,)},
        "mask": {"attn_mask": x.real(H, L, LK), "softcap": 2.0},
        "flags": {"attn_mask": x.integer(1, L, LK) > 0},
        "ranges": {
            "key_ranges": np.stack([begins, begins + 2], -1),
            "window": (2, 1),
            "query_offset": x.integer(),
        },
        "blocks": {
            "key_blocks": x.integer(1, -(-L // 2), LK) > 0,
            "block_size": (2, 1),
        },
        "lengths": {"key_lengths": x.integer(), "sinks": np.array([0.5, -np.inf])},
        "dropout": {"dropout_p": 0.5, "rng": 0},
        "decay": {"log_decay": -x.real(H, LK), "is_causal": True, **offsets},
    }


def attentions(x):
    """Yield (function, arguments) of attention, its scores and its gradients."""
    query = {"query": x.real(H, L, D)}
    qkv = {**query, "key": x.real(H, LK, D), "value": x.real(H, LK, D)}
    grads = {"grad_out": x.real(H, L, D), "grad_lse": x.real(H, L)}
    for name, given in operands(x).items():
        yield name, "attention", {**qkv, "return_lse": True, **given}
        yield name, "attention_backward", {**qkv, **grads, **given}
        own = {n: v for n, v in given.items() if n not in reference.formula.OTHERS}
        yield name, "scores", {**query, "key": qkv["key"], **own}
    shared = {
        n: v[:1] if x.batch else np.ones((1, *v.shape[1:])) for n, v in qkv.items()
    }
    yield (
        "keys of all items",
        "attention",
        {**shared, **query, "key_lengths": x.integer()},
    )
    grouped = {n: v[:, :1] for n, v in qkv.items() if n != "query"}
    yield "grouped", "attention", {**query, **grouped, "enable_gqa": True}
    yield "grouped", "attention_backward", {
        **query, **grouped, **grads, "enable_gqa": True,
    }  # fmt: skip


def schemes(x):
    """Yield (function, arguments) of the schemes by their papers."""
    qk = {"query": x.real(H, L, D), "key": x.real(H, LK, D)}
    qkv, offset = {**qk, "value": x.real(H, LK, D)}, {"query_offset": x.integer()}
    table = {"rel_key": x.real(H, 2 * LK + 1, D)}
    both = {**table, "rel_value": x.real(H, 3, D)}
    mask = {"attn_mask": x.real(H, L, LK)}
    uv = {"pos_bias_u": x.real(H, D), "pos_bias_v": x.real(H, D)}
    first = {"min_relative_position": -LK - 1}
    yield "", "shaw_scores", {**qk, **table, **offset}
    yield "", "shaw_attention", {**qkv, **both, **offset, **mask}
    yield "", "skewed_scores", {**qk, **table, **offset, "is_causal": False}
    one = {**table, **offset, **first}
    yield "", "relative_global_attention", {**qkv, **one, **mask}
    yield "", "transformer_xl_scores", {**qk, **one, **uv}
    yield "", "transformer_xl_attention", {**qkv, **one, **uv, **mask}
    edges = {"indptr": [0, 2, 2, 4], "indices": [0, 3, 1, 2], "labels": [0, -1, 2, 1]}
    tables = {"rel_key": x.real(H, 3, D), "rel_value": x.real(H, 3, D)}
    yield "", "graph_attention", {
        **qkv, **tables, **edges, "position_query": x.real(H, L, D),
        "sinks": np.array([0.5, -np.inf]), "return_lse": True,
    }  # fmt: skip
    yield "", "fire_attention", {**qkv, **NETWORK, "query_offset": np.array(1)}
    same = {name: x.real(H, L, D) for name in ("query", "key", "value")}
    two = {"rel_key": np.ones((3, D)), "rel_value": np.ones((5, D))}
    yield "", "shaw_attention_split", {**same, **two}
    yield "", "cope_attention", {**same, "rel_key": np.ones((H, 3, D))}
    yield "", "stick_breaking_attention", same
    ways = {"direction": x.real(H, L, D), "beta": x.real(H, L)}
    yield "", "path_attention", {**same, **ways}
    layers = {"w1": np.ones((W, 2 * H)), "b1": np.ones(W)}
    layers |= {"w2": np.ones((H, W)), "b2": np.ones(H)}
    yield "", "dape_attention", {**same, "bias": x.real(H, L, L), **layers}
    parts = {f"out_{n}": x.real(H, L, D) for n in "ab"}
    parts |= {f"lse_{n}": x.real(H, L) for n in "ab"}
    yield "", "merge_attention", parts
    yield "", "indexer_top_k", {
        "query": x.real(H, L, D), "key": x.real(LK, D), "weights": x.real(H, L),
        "k": 2, "attn_mask": x.real(L, LK),
    }  # fmt: skip


def biases(x):
    """Yield (function, arguments) of biases and of what rearranges scores."""
    yield "", "alibi_bias", {"num_heads_or_slopes": x.real(H), "length": L}
    yield "", "alibi_bias_backward", {"grad_bias": x.real(H, 2 * L - 1)}
    backward = {"grad_bias": x.real(H, 2 * L - 1), "num_buckets": 8}
    yield "", "t5_bias_backward", backward
    yield "", "t5_bias", {"weight": np.ones((8, H)), "length": L}
    yield "", "fire_bias", {**NETWORK, "query_length": L, "query_offset": np.array(1)}
    yield "", "fire_bias_backward", {**NETWORK, "grad_bias": np.ones((H, L, LK))}
    for kind in ("log", "power"):
        two = {"r1": x.real(H), "r2": x.real(H), "kind": kind}
        yield kind, "kerple_bias", {**two, "length": L}
        yield kind, "kerple_bias_backward", {
            **two, "grad_bias": x.real(H, 2 * L - 1),
        }  # fmt: skip
    relative = {"relative_position": x.integer(L, low=-9, high=9)}
    yield "", "t5_bucket", relative
    yield "", "deberta_bucket", {**relative, "bucket_size": 4, "max_position": 8}
    segments = {"query_segments": x.integer(L), "key_segments": x.integer(LK)}
    yield "", "segment_ranges", segments
    yield "", "rel_shift", {"x": x.real(L, LK)}
    for is_causal in (False, True):
        given = {"x": x.real(L, ROWS), "is_causal": is_causal}
        yield str(is_causal), "skew", given
        yield str(is_causal), "unskew", given


def encodings(x):
    """Yield (function, arguments) of encodings and rotations."""
    frequencies = {"inv_freq": np.array([1.0, 0.1])}
    for layout in ("interleaved", "concat"):
        for dim in (4, 5):
            arguments = {"positions": x.integer(L), "dim": dim, "layout": layout}
            yield f"{layout}, {dim}", "sinusoidal", arguments
    yield "", "learned", {"table": x.real(5, D), "positions": np.array([0, 4, 2])}
    yield "positions", "learned", {"table": np.ones((5, D)), "positions": x.integer(L)}
    grads = {"grad_out": x.real(L, D), "positions": np.array([0, 2, 2])}
    yield "", "learned_backward", {**grads, "num_positions": 3}
    of_each = {"grad_out": x.real(L, D), "positions": x.integer(L)}
    yield "positions", "learned_backward", {**of_each, "num_positions": 3}
    grid = {"x": x.real(6, D), "weight": np.ones((D, 3, 2)), "bias": np.ones(D)}
    grid |= {"mask": x.integer(6) > 0, "grid": (2, 3)}
    yield "", "conv_encoding", grid
    yield "", "conv_encoding_backward", {**grid, "grad_out": x.real(6, D)}
    rows, grad = {"x": x.real(H, L, D)}, {"grad_out": x.real(H, L, D)}
    ways = {
        "positions": {"positions": x.integer(1, L), **frequencies},
        "angles": {"angles": x.real(1, L, 2), "magnitude": x.real(1, L, 2)},
        "by base": {"interleaved": True},
    }
    for name, arguments in ways.items():
        yield name, "apply_rotary", {**rows, **arguments}
        yield name, "apply_rotary_backward", {**rows, **grad, **arguments}
    yield "", "xpos_magnitude", {"positions": x.integer(L), "dim": 4}
    three = {"positions": np.stack([x.integer(L)] * 3), "sections": (1, 1)}
    yield "", "mrope_angles", {**three, **frequencies}
    yield "", "axial_angles", {"coordinates": x.integer(L, 2), **frequencies}
    yield "", "selective_rotary", {
        **rows, "increments": x.real(H, L, 2), **frequencies,
    }  # fmt: skip
    generators = {"positions": x.real(H, L, 2), "generators": np.ones((2, D, D))}
    yield "", "lie_rotary", {**rows, **generators}


def calls(batch):
    """Return [(what is tried, function, arguments)] for a batch of this size."""
    families = (attentions, schemes, biases, encodings)
    found = [case for family in families for case in family(Arrays(batch))]
    kept = {"shape": (batch, H, L, LK), "dropout_p": 0.5, "seed": np.uint64(1)}
    one = {"x": np.ones((L, D)), "encodings": np.ones((2 * L - 1, D))}
    one |= dict.fromkeys(("w_query", "w_key", "w_value"), np.ones((D, 2)))
    found += [("", "dropout_keep", kept), ("", "brute_force_attention", one)]
    return found
