"""Random networks for FIRE, and derivatives by differences."""

from __future__ import annotations

import numpy as np
from oracle_fire import NAMES
from problems import normal


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
