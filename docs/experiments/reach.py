"""Reach of layers beyond k: the letter d back, through one layer to three.

A table clipped at k has a row of its own for each distance below k; its last row
stands for k and all that is farther. So one layer tells k - 1 steps exactly, and
further layers may carry what they found so many steps on.
"""

from __future__ import annotations

from typing import TypedDict

from docs.experiments import letters
from docs.experiments.page import spread

LENGTH, STEPS = 16, 500
DISTANCES = [1, 2, 3, 4, 6, 8]
#: k and layers.
SHAPES = [(2, 1), (2, 2), (2, 3), (4, 1)]


def measure(k: int, layers: int, distance: int, seed: int, steps: int) -> float:
    """Share of right answers, without a mask: only the table tells what is where."""
    shape = {"causal": False, "position": "shaw", "max_relative_position": k}
    learner = letters.model(seed, layers, **shape)
    task = letters.back(distance)
    letters.train(learner, task, seed, steps, LENGTH)
    return letters.judge(learner, task, LENGTH, items=256)[0]


class Shape(TypedDict):
    """A model, and its right answers by distance and seed."""

    k: int
    layers: int
    right: list[list[float]]


class Results(TypedDict):
    """Distances, and what models of each shape made of them."""

    distances: list[int]
    shapes: list[Shape]


def run(seeds: list[int], quick: bool) -> Results:
    """For each k and number of layers, by distance, lists by seed."""
    steps, shapes, distances = STEPS, SHAPES, DISTANCES
    if quick:
        steps, shapes, distances = 250, [(2, 1), (4, 1)], [1, 2]
    results: Results = {"distances": distances, "shapes": []}
    for k, layers in shapes:
        right = [
            [measure(k, layers, distance, seed, steps) for seed in seeds]
            for distance in distances
        ]
        results["shapes"].append({"k": k, "layers": layers, "right": right})
    return results


def check(results: Results, quick: bool) -> None:
    """One layer sees k - 1 back and no farther; layers see up to k more each."""
    for row in results["shapes"]:
        k, layers = row["k"], row["layers"]
        for distance, seeds in zip(results["distances"], row["right"], strict=True):
            if layers == 1:
                assert min(seeds) > 0.95 if distance < k else max(seeds) < 0.4, row
            elif distance <= layers + 1:
                assert min(seeds) > 0.98, row
            elif distance <= layers * k:
                assert min(seeds) > 0.7, row


def table(results: Results) -> list[list[str]]:
    """A row for each k and number of layers: right answers by distance."""
    header = ["k", "layers", *(f"{d} back" for d in results["distances"])]
    rows = [
        [str(row["k"]), str(row["layers"]), *map(spread, row["right"])]
        for row in results["shapes"]
    ]
    return [header, *rows]
