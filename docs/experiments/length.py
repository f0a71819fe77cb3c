"""Train at length 16, test up to 128: eleven ways to say where tokens stand.

Three tasks ask for three kinds of position: how far (the letter two back), which of
several was the latest (what came after the same letter the last time), and where the
sequence begins (its first letter).
"""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from docs.experiments import letters
from docs.experiments.page import spread

TRAINED, LENGTHS = 16, [16, 24, 32, 48, 64, 96, 128]
LONGEST = LENGTHS[-1]
#: Task -> what it asks, and steps of training.
TASKS = {
    "two back": (letters.back(2), 300),
    "after the last": (letters.after_last, 400),
    "first": (letters.first, 200),
}
SCHEMES: dict[str, dict[str, Any]] = {
    "Shaw, k = 4": {"position": "shaw", "max_relative_position": 4},
    "Music": {"position": "music", "max_len": LONGEST},
    "Transformer-XL": {"position": "transformer_xl"},
    "T5, 32 to 128": {"position": "t5", "bidirectional": False},
    "T5, 8 to 16": {
        "position": "t5",
        "bidirectional": False,
        "num_buckets": 8,
        "max_distance": 16,
    },
    "ALiBi": {"position": "alibi"},
    "FIRE": {"position": "fire"},
    "rotary": {"position": "rope"},
    "sinusoids": {"absolute": "sinusoids"},
    "learned": {"absolute": "learned", "longest": LONGEST},
    "none": {},
}


def measure(task: str, scheme: str, seed: int, lengths: list[int]) -> Any:
    """Right answers and losses by length, and the loss that training ended with."""
    ask, steps = TASKS[task]
    learner = letters.model(seed, **SCHEMES[scheme])
    losses = letters.train(learner, ask, seed, steps, TRAINED)
    judged = [letters.judge(learner, ask, length) for length in lengths]
    right, loss = zip(*judged, strict=True)
    return {"right": right, "loss": loss, "trained": float(np.mean(losses[-20:]))}


class Judged(TypedDict):
    """A scheme at a task, lists by seed; `right` and `loss` are by length, too."""

    right: list[Any]
    loss: list[Any]
    trained: list[float]


class Results(TypedDict):
    """Lengths of the test, and what was measured by task and scheme."""

    lengths: list[int]
    tasks: dict[str, dict[str, Judged]]


def run(seeds: list[int], quick: bool) -> Results:
    """For each task and scheme: lists by seed."""
    lengths, names = LENGTHS, {task: [*SCHEMES] for task in TASKS}
    if quick:
        lengths = [TRAINED, 64]
        names = {"two back": ["Shaw, k = 4", "sinusoids"], "first": ["learned"]}
    results: Results = {"lengths": lengths, "tasks": {}}
    for task, schemes in names.items():
        results["tasks"][task] = {}
        for scheme in schemes:
            runs = [measure(task, scheme, seed, lengths) for seed in seeds]
            results["tasks"][task][scheme] = {
                "right": [each["right"] for each in runs],
                "loss": [each["loss"] for each in runs],
                "trained": [each["trained"] for each in runs],
            }
    return results


def check(results: Results, quick: bool) -> None:
    """Return the positions that serve longer sequences in every seed, by task."""
    right = {
        (task, scheme): np.array(found["right"])
        for task, schemes in results["tasks"].items()
        for scheme, found in schemes.items()
    }
    far = results["lengths"].index(64)
    assert right["two back", "Shaw, k = 4"].min() > 0.95
    assert right["two back", "sinusoids"][:, 0].min() > 0.95
    assert right["two back", "sinusoids"][:, far:].max() < 0.3
    assert right["first", "learned"][:, far:].min() > 0.9
    if not quick:
        _check_all(right, far)


def _check_all(right: dict[tuple[str, str], Any], far: int) -> None:
    for scheme in ("Shaw, k = 4", "Music", "Transformer-XL"):
        assert right["two back", scheme].min() > 0.95, scheme
    for scheme in ("rotary", "sinusoids", "learned"):  # all learned it at 16
        assert right["two back", scheme][:, 0].min() > 0.95, scheme
        assert right["two back", scheme][:, far:].max() < 0.3, scheme
        assert right["after the last", scheme][:, far:].max() < 0.3, scheme
    for scheme in ("ALiBi", "FIRE"):  # as good or bad as at 16
        change = right["two back", scheme] - right["two back", scheme][:, :1]
        assert np.abs(change).max() < 0.1, scheme
    best = right["after the last", "FIRE"][:, -1].min()
    assert best > 0.9
    for scheme in {s for _, s in right} - {"FIRE"}:
        assert right["after the last", scheme][:, -1].max() < best, scheme
    for scheme in ("Shaw, k = 4", "ALiBi", "FIRE", "learned", "none"):
        assert right["first", scheme].min() > 0.9, scheme
    assert right["first", "rotary"][:, -1].max() < 0.6


def table(results: Results) -> list[list[str]]:
    """A row for each task and scheme: right answers by length."""
    header = ["task", "scheme", *map(str, results["lengths"])]
    rows = [
        [task, scheme, *map(spread, np.transpose(found["right"]))]
        for task, schemes in results["tasks"].items()
        for scheme, found in schemes.items()
    ]
    return [header, *rows]
