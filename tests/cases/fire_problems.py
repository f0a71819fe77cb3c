"""Random networks for FIRE, calls with them, and derivatives by differences."""

from __future__ import annotations

import functools

import numpy as np
import oracle_fire
import oracle_gradients
from oracle_fire import NAMES, scalar
from problems import cast, normal, qkv

import relpos


def network(rng, heads=3, width=8, c=0.4, threshold=5.3):
    """Parameters by name, whose units switch at many places of [-1, 1] and beyond."""
    return {
        "w1": normal(rng, width),
        "b1": normal(rng, width, scale=0.7),
        "w2": normal(rng, heads, width, scale=0.6),
        "b2": normal(rng, heads),
        "c": np.float64(np.float32(c)),
        "threshold": np.float64(np.float32(threshold)),
    }


def special_networks(rng):
    """Networks with units that never switch, switch together, or switch at x = 0."""
    plain = network(rng)
    unit, bias = plain["w1"], plain["b1"]
    twins = {"w1": np.repeat(unit[:4], 2), "b1": np.repeat(bias[:4], 2)}
    still = {"w1": np.where(np.arange(8) % 2, unit, 0.0)}
    return {
        "twin knots": plain | twins,
        "weights of 0": plain | still,
        "biases of 0": plain | {"b1": np.zeros(8)},
        "all zero": plain | {"w1": np.zeros(8), "b1": np.zeros(8)},
        "no units": network(rng, width=0),
        "one unit": network(rng, width=1),
        "negative c": network(rng, c=-0.7),
        "c = 0": network(rng, c=0.0),
        "negative threshold": network(rng, threshold=-7.5),
        "threshold 0": network(rng, threshold=0.0),
        "far threshold": network(rng, threshold=1e9),
        "steep": plain | {"w1": 50 * unit},
    }


def five_points(function, arrays, names=NAMES, step=1e-3):
    """Gradients of a real function of named arrays by five-point differences."""
    found = {}
    for name in names:
        gradient = np.zeros(np.shape(arrays[name]))
        for index in np.ndindex(*gradient.shape):

            def at(shift, name=name, index=index):
                moved = np.array(arrays[name], np.float64)
                moved[index] += shift * step
                return function(**arrays | {name: moved})

            gradient[index] = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
        found[name] = gradient
    return found


def away_from_kinks(rng, lq, lk, query_offset, signed):
    """A network whose units switch in the widest gaps between the pairs' x."""
    given = network(rng, heads=2, width=4, c=0.3, threshold=6.4)
    x, _, _ = scalar(given["c"], given["threshold"], lq, lk, query_offset, signed, 1e-6)
    x = np.unique(x)
    widest = np.argsort(np.diff(x))[-4:]
    knots = (x[widest] + x[widest + 1]) / 2
    assert np.diff(x)[widest].min() > 0.02
    given["b1"] = -given["w1"] * knots
    return given


# ---- calls of fire_attention ---------------------------------------------------------

#: (Lq, Lk): rows, a tile, ragged tiles, more queries than keys, several key tiles
SIZES = [(1, 70), (5, 40), (12, 14), (40, 300), (150, 20), (90, 700)]
HEADS, BATCH, D, DV = 4, 2, 16, 9


def plain(rng, lq, lk):
    return {}


def causal(rng, lq, lk):
    return {"is_causal": True}


def window(rng, lq, lk):
    return {"window": (lk // 3 + 1, lk // 5)}


def key_lengths(rng, lq, lk):
    return {"key_lengths": np.array([lk // 2 + 1, lk])}


def item_offsets(rng, lq, lk):
    return {"query_offset": np.array([lk - lq, 3]), "is_causal": True}


def far_away(rng, lq, lk):
    return {"query_offset": 100_000}


def before_all_keys(rng, lq, lk):
    return {"query_offset": -lq - 20}


def bool_mask(rng, lq, lk):
    mask = rng.random((BATCH, 1, lq, lk)) < 0.7
    mask[..., lq // 2, :] = False
    return {"attn_mask": mask}


def float_mask(rng, lq, lk):
    mask = normal(rng, HEADS, lq, lk)
    return {"attn_mask": np.where(rng.random(mask.shape) < 0.2, -np.inf, mask)}


def grouped_heads(rng, lq, lk):
    return {"enable_gqa": True, "is_causal": True}


def dropout(rng, lq, lk):
    return {"dropout_p": 0.3, "rng": 7}


def other_terms(rng, lq, lk):
    """Clipped tables, few rows: sums by table row."""
    return {
        "rel_key": normal(rng, 3, D),
        "rel_value": normal(rng, 3, DV),
        "rel_bias": normal(rng, HEADS, 3),
    }


def bands(rng, lq, lk):
    rows = 2 * (lq + lk) + 1
    return {
        "rel_key": normal(rng, rows, D),
        "rel_query": normal(rng, rows, D),
        "pos_bias_v": normal(rng, D),
    }


def value_band(rng, lq, lk):
    return {"rel_value": normal(rng, 2 * (lq + lk) + 1, DV)}


def labels(rng, lq, lk):
    """In the engine of rows, in both directions."""
    rows = rng.integers(-1, 5, (lq, lk)).astype(np.int16)
    return {"labels": rows, "rel_query": normal(rng, 5, D), "scale": 0.2}


VARIANTS = {
    function.__name__: function
    for function in (
        plain, causal, window, key_lengths, item_offsets, far_away, before_all_keys,
        bool_mask, float_mask, grouped_heads, dropout, other_terms, bands, value_band,
        labels,
    )
}  # fmt: skip
CASES = [
    (variant, signed, *SIZES[(n + shift) % len(SIZES)])
    for n, variant in enumerate(VARIANTS)
    for signed in (False, True)
    for shift in (0, 2 + signed)
]


class Problem:
    """One call, its float64 truth, and its gradients'."""

    def __init__(self, variant, signed, lq, lk, seed=0):
        rng = np.random.default_rng([seed, list(VARIANTS).index(variant), lq, lk])
        keywords = {"query_offset": lk - lq} | VARIANTS[variant](rng, lq, lk)
        heads = 2 if "enable_gqa" in keywords else HEADS
        self.arrays = dict(
            zip(
                ("query", "key", "value"),
                qkv(rng, (BATCH,), HEADS, lq, lk, D, DV, key_heads=heads),
                strict=True,
            )
        )
        self.keywords, self.fire = keywords, {"signed": signed, "eps": 1e-4}
        self.network = network(rng, HEADS, width=11, threshold=lk / 3)
        self.grad_out = normal(rng, BATCH, HEADS, lq, DV)
        self.grad_lse = normal(rng, BATCH, HEADS, lq)
        self.shape = (HEADS, lq, lk)

    @property
    def offsets(self):
        return np.broadcast_to(self.keywords["query_offset"], BATCH)

    @functools.cached_property
    def dense(self):
        """The same call with the bias of every pair as its mask."""
        bias = np.stack(
            [
                oracle_fire.dense_bias(
                    **self.network,
                    lq=self.shape[1],
                    lk=self.shape[2],
                    query_offset=offset,
                    **self.fire,
                )
                for offset in self.offsets
            ]
        )
        mask = self.keywords.get("attn_mask", 0.0)
        if np.asarray(mask).dtype == bool:
            mask = np.where(mask, 0.0, -np.inf)
        return self.arrays | self.keywords | {"attn_mask": bias + mask}

    def gradients(self, magnitude=False):
        incoming = {"grad_out": self.grad_out, "grad_lse": self.grad_lse}
        found = oracle_gradients.gradients(
            **self.dense, **incoming, magnitude=magnitude
        )
        ds = found.pop("attn_mask")
        items = [
            oracle_fire.dense_gradients(
                ds[b], **self.network, query_offset=o, magnitude=magnitude, **self.fire
            )
            for b, o in enumerate(self.offsets)
        ]
        return found | {name: sum(item[name] for item in items) for name in NAMES}

    def cast(self, dtype):
        given = cast(self.arrays | self.keywords, dtype)
        return given | {name: np.asarray(x, dtype) for name, x in self.network.items()}

    def run(self, dtype, **keywords):
        return relpos.fire_attention(**self.cast(dtype), **self.fire, **keywords)

    def backward(self, dtype, num_threads=None):
        context = self.run(dtype, return_context=True).context
        grads = self.grad_out.astype(dtype), self.grad_lse.astype(dtype)
        found = context.backward(
            grads[0], grad_lse=grads[1], num_threads=num_threads
        )._asdict()
        return {name: grad for name, grad in found.items() if grad is not None}
