"""Adapters for files that hold a helper or an encoding, not an attention."""

from __future__ import annotations

import numpy as np
from recorded import families, logits_alone


def sizes(case, prefix):
    return [
        name.removeprefix(prefix) for name in case.arrays if name.startswith(prefix)
    ]


def rel_shift_raw(lib, case):
    for size in sizes(case, "in_x_"):
        x = case["in_x_" + size].transpose(2, 3, 0, 1)
        y = lib.rel_shift(x)
        yield size, y.transpose(2, 3, 0, 1), case.true("out_" + size)
        if "out_zero_triu_" + size in case:
            lower = np.tril(y, x.shape[-1] - x.shape[-2]).transpose(2, 3, 0, 1)
            yield size, lower, case.true("out_zero_triu_" + size)


def seed_skew(lib, case):
    for size in sizes(case, "in_x_"):
        y = lib.skew(case["in_x_" + size], is_causal=True)
        yield size, y, case.true("out_" + size)


def gwinn_skew(lib, case):
    for size in sizes(case, "in_x_"):
        y = lib.skew(case["in_x_" + size], is_causal=True)
        yield size, np.tril(y), case.true("out_" + size)


def rel2abs(lib, case):
    for size in sizes(case, "in_x_"):
        y = lib.skew(case["in_x_" + size], is_causal=False)
        yield size, y, case.true("out_" + size)


def t2t_raw(lib, case):
    for size in sizes(case, "in_x_"):
        x, y = case["in_x_" + size], case["in_y_" + size]
        for name, got in (
            ("r2a_masked", lib.skew(x, is_causal=True)),
            ("a2r_masked", lib.unskew(x, is_causal=True)),
            ("r2a_unmasked", lib.skew(y, is_causal=False)),
            ("a2r_unmasked", lib.unskew(x, is_causal=False)),
        ):
            yield name, got, case.true(f"out_{name}_{size}")
    for name, lq, lk, limit, offset in (
        ("q5_k5_m2_full", 5, 5, 2, 0),
        ("q5_k5_m9_full", 5, 5, 9, 0),
        ("q3_k8_m2_full", 3, 8, 2, 5),
        ("q1_k8_m3_cache", 1, 8, 3, 7),
    ):
        keywords = {"max_relative_position": limit, "query_offset": offset}
        got = lib.relative_positions(lq, lk, **keywords) + limit
        yield name, got, case.true("out_relpos_" + name)


def onmt_raw(lib, case):
    """Index matrices; q.z[i, j] as the logits of a table with a row for every pair.

    The other product, att @ z for arbitrary att, is no attention and is left out.
    """
    for name in sizes(case, "out_pos_"):
        length, limit = (int(part[1:]) for part in name.split("_")[-2:])
        lq = 1 if name.startswith("cache") else length
        offset = length - lq
        keywords = {"max_relative_position": limit, "query_offset": offset}
        got = lib.relative_positions(lq, length, **keywords) + limit
        yield name, got, case.true("out_pos_" + name)
    q, z = case["in_x_q"], case["in_z"]
    length = q.shape[-2]
    labels = np.arange(length**2).reshape(length, length)
    table = z.reshape(length**2, -1)
    logits = case.true("out_matmul_T")
    yield from logits_alone(lib, case, q, logits, rel_key=table, labels=labels)


def seed_ape(lib, case):
    for length in sizes(case, "out_L"):
        rows = lib.learned(case["w_embedding.weight"], np.arange(int(length)))
        yield length, rows, case.true("out_L" + length)


def kimi_posemb(lib, case):
    for name in sizes(case, "pos_"):
        dim = int(name.split("_")[0][1:])
        positions = case.true("pos_" + name)
        got = case.cast(
            lib.sinusoidal(positions, dim, layout="concat", dtype=case.dtype)
        )
        yield name, got[:, None], case.true("out_" + name)


def sin_inter(lib, case):
    for dim in (8, 16):
        table = lib.sinusoidal(33, dim, dtype=case.dtype)
        for name in (
            "annotated", "gwinndr", "jason", "jasonDynamic", "labml", "mcleish", "onmt"
        ):  # fmt: skip
            want = case.true(f"out_{name}_{dim}")
            yield name, case.cast(table).reshape(want.shape), want
        step = case.cast(lib.sinusoidal(np.array([4.0]), dim, dtype=case.dtype))
        yield "step", step[None], case.true(f"out_onmt_step4_{dim}")
    x, table = case.true("in_x"), lib.sinusoidal(5, 8, dtype=case.dtype)
    yield "added", case.cast(x + table), case.true("out_annotated_add")
    yield "onmt added", case.cast(x * 8**0.5 + table), case.true("out_onmt_add")
    rows = case.cast(lib.sinusoidal(case.true("aux_rows"), 16, dtype=case.dtype))
    yield "rows", rows, case.true("out_annotated_rows_16")


def esp_tables(lib, case):
    for dim in (8, 16):
        x = case.true(f"in_x_{dim}")
        table, large = (
            lib.sinusoidal(x.shape[1], dim, dtype=case.dtype),
            x * np.sqrt(dim),
        )
        yield "abs", case.cast(large + table), case.true(f"out_abs_{dim}")
        scaled = case.true(f"out_scaled_alpha0.7_{dim}")
        yield "scaled", case.cast(x + 0.7 * table), scaled
        both = lib.sinusoidal(np.arange(6, -7, -1), dim, dtype=case.dtype)
        yield "rel", case.cast(both)[None], case.true(f"out_rel_pos_{dim}")
        yield "rel x", case.cast(large), case.true(f"out_rel_x_{dim}")
        for name, first in (("legacy20", 19), ("legacy7", 6), ("legacy5grow", 6)):
            rows = lib.sinusoidal(
                np.arange(first, first - 7, -1), dim, dtype=case.dtype
            )
            yield name, case.cast(rows)[None], case.true(f"out_{name}_pos_{dim}")


def fire(lib, case):
    """flashT5: the threshold is a learned multiple of a fixed length."""
    network = [case[f"w_mlp.{n}.{kind}"] for n in (0, 2) for kind in ("weight", "bias")]
    threshold = case["w_L_multiplier"] * case.constant(case["w_init_L"])
    options = {"signed": case.flags["signed"], "eps": case.flags["eps"]}
    bias = lib.fire_bias(
        *network, case["w_c"], threshold, case.flags["qlen"], **options
    )
    yield "bias", bias[None], case.true("out_bias")


FAMILIES = families(vars(), "lib", "case")
