"""Random networks for FIRE, calls with them, and derivatives by differences.

The network of FIRE maps a number x of each pair to a bias per head (oracle_fire.py has
the formula). Unit k is on where w1[k] x + b1[k] > 0, and switches at the x where this
sum is 0, its knot.
"""

from __future__ import annotations

import functools

import numpy as np
import oracle_fire
import oracle_gradients
from oracle_fire import NAMES, scalar
from problems import cast, normal, tokens

import relpos


def network(rng, heads=3, width=8, c=0.4, threshold=5.3):
    """Return parameters by name; the knots spread over [-1, 1] and beyond."""
    # The scalars are rounded to float32 like the arrays of `normal`, so that calls in
    # both dtypes have the same numbers.
    return {
        "w1": normal(rng, width),
        "b1": normal(rng, width, scale=0.7),
        "w2": normal(rng, heads, width, scale=0.6),
        "b2": normal(rng, heads),
        "c": np.float64(np.float32(c)),
        "threshold": np.float64(np.float32(threshold)),
    }


def special_networks(rng):
    """Return networks with units that never switch, switch together, or at x = 0."""
    ordinary = network(rng)
    w1, b1 = ordinary["w1"], ordinary["b1"]
    twins = {"w1": np.repeat(w1[:4], 2), "b1": np.repeat(b1[:4], 2)}
    every_other_constant = {"w1": np.where(np.arange(8) % 2, w1, 0.0)}
    return {
        "twin knots": ordinary | twins,
        "weights of 0": ordinary | every_other_constant,
        "biases of 0": ordinary | {"b1": np.zeros(8)},
        "all zero": ordinary | {"w1": np.zeros(8), "b1": np.zeros(8)},
        "no units": network(rng, width=0),
        "one unit": network(rng, width=1),
        "negative c": network(rng, c=-0.7),
        "c = 0": network(rng, c=0.0),
        "negative threshold": network(rng, threshold=-7.5),
        "threshold 0": network(rng, threshold=0.0),
        "far threshold": network(rng, threshold=1e9),
        "steep": ordinary | {"w1": 50 * w1},
    }


def five_points(function, arrays, names=NAMES, step=1e-3):
    """Return the gradients of a real function of named arrays by differences.

    A derivative is taken from the values at 1 and 2 steps on both sides: the formula is
    exact for polynomials up to degree 4.
    """

    def moved_value(name, index, steps):
        """Return the function's value with one number moved by so many steps."""
        moved = np.array(arrays[name], np.float64)
        moved[index] += steps * step
        return function(**arrays | {name: moved})

    gradients = {}
    for name in names:
        gradient = np.zeros(np.shape(arrays[name]))
        for index in np.ndindex(*gradient.shape):
            by_one = moved_value(name, index, 1) - moved_value(name, index, -1)
            by_two = moved_value(name, index, 2) - moved_value(name, index, -2)
            gradient[index] = (8 * by_one - by_two) / (12 * step)
        gradients[name] = gradient
    return gradients


def away_from_kinks(rng, lq, lk, query_offset, signed):
    """Return a network whose knots are in the widest gaps between the pairs' x.

    No unit switches when c or threshold moves by a step of `five_points`, and moves x.
    """
    parameters = network(rng, heads=2, width=4, c=0.3, threshold=6.4)
    c, threshold = parameters["c"], parameters["threshold"]
    x, _, _ = scalar(c, threshold, lq, lk, query_offset, signed, eps=1e-6)
    x = np.unique(x)  # sorted
    gaps = np.diff(x)
    widest = np.argsort(gaps)[-4:]  # one gap for each unit
    assert gaps[widest].min() > 0.02
    knots = (x[widest] + x[widest + 1]) / 2
    parameters["b1"] = -parameters["w1"] * knots
    return parameters


# ---- calls of fire_attention ---------------------------------------------------------

#: (Lq, Lk)
SIZES = [
    (1, 70),  # one query: the engine of rows
    (5, 40),  # few queries: the same engine
    (12, 14),  # a tile
    (40, 300),  # ragged tiles
    (150, 20),  # more queries than keys
    (90, 700),  # several key tiles
]
HEADS, BATCH, D, DV = 4, 2, 16, 9


# Each variant returns the keywords that it adds to a plain call of fire_attention.


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
    """Tables of few rows, which are clipped: kernels sum by table row."""
    return {
        "rel_key": normal(rng, 3, D),
        "rel_value": normal(rng, 3, DV),
        "rel_bias": normal(rng, HEADS, 3),
    }


def bands(rng, lq, lk):
    """Tables with a row for each distance, and more: a tile meets a band of them."""
    rows = 2 * (lq + lk) + 1
    return {
        "rel_key": normal(rng, rows, D),
        "rel_query": normal(rng, rows, D),
        "pos_bias_v": normal(rng, D),
    }


def value_band(rng, lq, lk):
    return {"rel_value": normal(rng, 2 * (lq + lk) + 1, DV)}


def labels(rng, lq, lk):
    """Labels with rel_query, which the engine of rows takes, forward and backward."""
    rows = rng.integers(-1, 5, (lq, lk)).astype(np.int16)
    return {"labels": rows, "rel_query": normal(rng, 5, D), "scale": 0.2}


VARIANTS = {
    function.__name__: function
    for function in (
        plain,
        causal,
        window,
        key_lengths,
        item_offsets,
        far_away,
        before_all_keys,
        bool_mask,
        float_mask,
        grouped_heads,
        dropout,
        other_terms,
        bands,
        value_band,
        labels,
    )
}


def cases():
    """Yield (variant, signed, Lq, Lk), with two sizes for each variant and sign.

    Each variant begins one size later than the one before, so that together they have
    all sizes. With `signed` the second size is another than without.
    """
    for number, variant in enumerate(VARIANTS):
        for signed in (False, True):
            second = 3 if signed else 2
            for shift in (0, second):
                lq, lk = SIZES[(number + shift) % len(SIZES)]
                yield variant, signed, lq, lk


CASES = list(cases())


class Problem:
    """A call of relpos.fire_attention, with its results and gradients in float64.

    `keywords` are those of relpos.attention, `network` and `fire` those of FIRE alone;
    grad_out and grad_lse are the incoming gradients.
    """

    def __init__(self, variant, signed, lq, lk, seed=0):
        rng = np.random.default_rng([seed, list(VARIANTS).index(variant), lq, lk])
        # Queries are the last of the keys unless the variant has an offset of its own.
        self.keywords = {"query_offset": lk - lq} | VARIANTS[variant](rng, lq, lk)
        key_heads = 2 if "enable_gqa" in self.keywords else HEADS
        self.arrays = tokens(rng, (BATCH,), HEADS, lq, lk, D, DV, key_heads=key_heads)
        self.fire = {"signed": signed, "eps": 1e-4}
        self.network = network(rng, HEADS, width=11, threshold=lk / 3)
        self.grad_out = normal(rng, BATCH, HEADS, lq, DV)
        self.grad_lse = normal(rng, BATCH, HEADS, lq)
        self.shape = (HEADS, lq, lk)

    @property
    def offsets(self):
        """The query_offset of each batch item."""
        return np.broadcast_to(self.keywords["query_offset"], BATCH)

    @functools.cached_property
    def dense(self):
        """The same call of relpos.attention: the mask holds the bias of every pair."""
        _, lq, lk = self.shape
        biases = []
        for offset in self.offsets:
            bias = oracle_fire.dense_bias(
                **self.network, lq=lq, lk=lk, query_offset=offset, **self.fire
            )
            biases.append(bias)
        mask = self.keywords.get("attn_mask", 0.0)
        if np.asarray(mask).dtype == bool:  # a bias cannot be added to it
            mask = np.where(mask, 0.0, -np.inf)
        return self.arrays | self.keywords | {"attn_mask": np.stack(biases) + mask}

    def gradients(self, magnitude=False):
        """Return the gradients by name; magnitude: sums of absolute values instead."""
        gradients = oracle_gradients.gradients(
            **self.dense,
            grad_out=self.grad_out,
            grad_lse=self.grad_lse,
            magnitude=magnitude,
        )
        # The gradient of the mask is that of the bias. Batch items share the network,
        # so that its gradients are sums over the items.
        grad_bias = gradients.pop("attn_mask")
        by_item = []
        for item, offset in enumerate(self.offsets):
            of_network = oracle_fire.dense_gradients(
                grad_bias[item],
                **self.network,
                query_offset=offset,
                magnitude=magnitude,
                **self.fire,
            )
            by_item.append(of_network)
        for name in NAMES:
            gradients[name] = sum(of_network[name] for of_network in by_item)
        return gradients

    def cast(self, dtype):
        """Return the arguments with a dtype, in which every float array is cast."""
        arguments = cast(self.arrays | self.keywords, dtype)
        # c and threshold are scalars, which the function `cast` would leave in float64.
        for name, parameter in self.network.items():
            arguments[name] = np.asarray(parameter, dtype)
        return arguments

    def run(self, dtype, **keywords):
        """Call relpos.fire_attention in a dtype."""
        return relpos.fire_attention(**self.cast(dtype), **self.fire, **keywords)

    def backward(self, dtype, num_threads=None):
        """Return the gradients of relpos by name, without those that are None."""
        context = self.run(dtype, return_context=True).context
        gradients = context.backward(
            self.grad_out.astype(dtype),
            grad_lse=self.grad_lse.astype(dtype),
            num_threads=num_threads,
        )
        return {
            name: gradient
            for name, gradient in gradients._asdict().items()
            if gradient is not None
        }
