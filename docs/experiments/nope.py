"""Positions in a model without encodings, read from hidden states by layer.

A linear probe (least squares) is to say where each letter stands, as log(1 + place). R
squared is 1 if it is always right and 0 if it can but say the mean. The task asks for
the letter two back. A causal model is held beside the same one before training, and
beside one without a mask, in which no place differs.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from docs.experiments import letters
from docs.experiments.page import spread
from relpos import nn

LENGTH, LAYERS, STEPS, ITEMS = 32, 2, 200, 128
RIDGE = 1e-2
#: Whether the future is hidden, and steps of training.
MODELS = {
    "causal": (True, STEPS),
    "causal, untrained": (True, 0),
    "no mask": (False, STEPS),
}


def states(learner: nn.Sequential, tokens: Any) -> list[Any]:
    """Return the input of the first layer and the output of each layer."""
    hidden, x = [], tokens
    for part in [*learner][: 1 + LAYERS]:
        x = part(x)
        hidden.append(x)
    return hidden


def r_squared(hidden: Any) -> float:
    """Fit a probe on half of the sequences; return its R² on the other half."""
    x = np.concatenate([hidden, np.ones_like(hidden[..., :1])], axis=-1, dtype=float)
    places = np.broadcast_to(np.log1p(np.arange(LENGTH)), x.shape[:2])
    half = len(x) // 2
    fit, positions = x[:half].reshape(-1, x.shape[-1]), places[:half].ravel()
    square = fit.T @ fit + RIDGE * np.eye(fit.shape[1])
    predicted = x[half:] @ np.linalg.solve(square, fit.T @ positions)
    return float(1 - np.mean((predicted - places[half:]) ** 2) / places.var())


def measure(name: str, seed: int, steps: int) -> list[float]:
    """R squared of the letters themselves and after each layer."""
    causal, trained = MODELS[name]
    learner = letters.model(seed, LAYERS, causal=causal)
    task = letters.back(2)
    letters.train(learner, task, seed, min(steps, trained), LENGTH)
    tokens, _ = task(np.random.default_rng([seed, 2]), ITEMS, LENGTH)
    return [r_squared(hidden) for hidden in states(learner, tokens)]


#: By model R squared, by layer and seed.
Results: TypeAlias = dict[str, Any]


def run(seeds: list[int], quick: bool) -> Results:
    """For each model, by layer, lists by seed."""
    steps = 150 if quick else STEPS
    return {
        name: np.transpose([measure(name, seed, steps) for seed in seeds])
        for name in MODELS
    }


def check(results: Results, quick: bool) -> None:
    """Nothing in the letters; much after a causal layer; nothing without a mask."""
    measured = {name: np.array(rows) for name, rows in results.items()}
    for name, rows in measured.items():
        assert np.abs(rows[0]).max() < 0.05, name
    assert np.abs(measured["no mask"]).max() < 0.05
    trained, untrained = measured["causal"][1:], measured["causal, untrained"][1:]
    assert trained.mean(axis=1).min() > 0.3
    assert (trained.mean(axis=1) > untrained.mean(axis=1)).all()


def table(results: Results) -> list[list[str]]:
    header = ["model", "letters", *(f"after layer {n + 1}" for n in range(LAYERS))]
    return [header, *([name, *map(spread, rows)] for name, rows in results.items())]
