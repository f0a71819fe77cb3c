"""Relative positions with absolute ones beside them: is there a gain?

Two tasks ask for distances and order; in the third the place itself counts: at even
places the letter before is asked for, at odd ones that before it.
"""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from docs.experiments import letters
from docs.experiments.page import spread

TRAINED, LENGTHS, STEPS = 16, [16, 32], 400
SHAW = {"position": "shaw", "max_relative_position": 4}
MODELS: dict[str, dict[str, Any]] = {
    "relative": SHAW,
    "absolute": {"absolute": "sinusoids"},
    "both": {"absolute": "sinusoids", **SHAW},
}


def turns(rng: np.random.Generator, batch: int, length: int) -> Any:
    """Asks at even places for the letter before, at odd ones for that before it."""
    tokens = rng.integers(letters.LETTERS, size=(batch, length))
    place = np.arange(length) - 1 - np.arange(length) % 2
    return tokens, np.where(place >= 0, tokens[:, np.maximum(place, 0)], -1)


TASKS: dict[str, letters.Task] = {
    "two back": letters.back(2),
    "after the last": letters.after_last,
    "turns": turns,
}


def measure(task: str, name: str, seed: int) -> list[float]:
    """Share of right answers by length."""
    learner = letters.model(seed, **MODELS[name])
    letters.train(learner, TASKS[task], seed, STEPS, TRAINED)
    return [letters.judge(learner, TASKS[task], length, 256)[0] for length in LENGTHS]


class Results(TypedDict):
    """Lengths of the test; by task and model right answers by length and seed."""

    lengths: list[int]
    tasks: dict[str, dict[str, Any]]


def run(seeds: list[int], quick: bool) -> Results:
    """For each task and model, lists by length, each by seed."""
    tasks = ["turns"] if quick else [*TASKS]
    results: Results = {"lengths": LENGTHS, "tasks": {}}
    for task in tasks:
        results["tasks"][task] = {
            name: np.transpose([measure(task, name, seed) for seed in seeds])
            for name in MODELS
        }
    return results


def check(results: Results, quick: bool) -> None:
    """A gain where the place counts; where it does not, none, and harm when longer."""
    right = {
        (task, name): np.array(found)
        for task, models in results["tasks"].items()
        for name, found in models.items()
    }
    assert right["turns", "relative"].max() < 0.6
    assert right["turns", "both"][0].min() > 0.7
    if quick:
        return
    for task in ("two back", "after the last"):
        relative, both = right[task, "relative"], right[task, "both"]
        assert min(relative[0].min(), both[0].min()) > 0.98, task
        assert both[1].mean() < relative[1].mean(), task
    assert both[1].max() < relative[1].min() - 0.2


def table(results: Results) -> list[list[str]]:
    header = ["task", "positions", *(f"at {n}" for n in results["lengths"])]
    rows = [
        [task, name, *map(spread, found)]
        for task, models in results["tasks"].items()
        for name, found in models.items()
    ]
    return [header, *rows]
