"""Tables 2 and 3 of Shaw et al., small: clipping distances, and where tables are.

Each letter says how far back its answer stands, 1 to 4 places: distances have to be
told apart, and by the query. Two layers without a mask, as an encoder has them.
"""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np

from docs.experiments import letters
from docs.experiments.page import spread
from relpos import data

LENGTH, STEPS, FARTHEST = 32, 500, 4
EVERY = 20  # steps that a stored loss is the mean of
CLIPPED = {f"k = {k}": {"max_relative_position": k} for k in (0, 1, 2, 4, 16, 64)}
#: Table 3 at k = 16, as in the paper; with both tables it is a row of Table 2.
ABLATED = {
    "keys": {"max_relative_position": 16, "use_values": False},
    "values": {"max_relative_position": 16, "use_keys": False},
    "neither": {
        "max_relative_position": 16,
        "use_keys": False,
        "use_values": False,
    },
}
VARIANTS: dict[str, dict[str, Any]] = CLIPPED | ABLATED


def told(rng: np.random.Generator, batch: int, length: int) -> Any:
    """Asks each letter for the one so many places before it as it says itself."""
    tokens = rng.integers(letters.LETTERS, size=(batch, length))
    place = np.arange(length) - 1 - tokens % FARTHEST
    found = np.take_along_axis(tokens, np.maximum(place, 0), axis=1)
    return tokens, np.where(place >= 0, found, -1)


def measure(variant: str, seed: int, steps: int, layers: int = 2) -> dict[str, Any]:
    shape = {"layers": layers, "causal": False, "position": "shaw"}
    learner = letters.model(seed, **shape, **VARIANTS[variant])
    losses = letters.train(learner, told, seed, steps, LENGTH)
    right, loss = letters.judge(learner, told, LENGTH, items=256)
    return {
        "right": right,
        "loss": loss,
        "losses": np.reshape(losses, (-1, EVERY)).mean(axis=1),
    }


class Variant(TypedDict):
    """Figures of a variant, lists by seed."""

    right: list[float]
    loss: list[float]
    losses: list[Any]  # the mean of each EVERY steps


class Results(TypedDict):
    """Figures by variant."""

    every: int
    variants: dict[str, Variant]


def run(seeds: list[int], quick: bool) -> Results:
    """For each variant lists by seed."""
    steps, names = STEPS, [*VARIANTS]
    if quick:
        steps, names = 200, ["k = 0", "k = 16", "neither"]
    results: Results = {"every": EVERY, "variants": {}}
    for name in names:
        runs = [measure(name, seed, steps) for seed in seeds]
        results["variants"][name] = {
            "right": [each["right"] for each in runs],
            "loss": [each["loss"] for each in runs],
            "losses": [each["losses"] for each in runs],
        }
    return results


def check(results: Results, quick: bool) -> None:
    """The order of the paper's tables; what k = 1 and 2 lack is the distances here."""
    right = {name: np.array(x["right"]) for name, x in results["variants"].items()}
    assert right["k = 16"].min() > 0.95
    for name in ("k = 0", "neither"):
        assert right[name].max() < 0.3, name
    if quick:
        return
    for name in ("k = 4", "k = 64", "keys"):
        assert right[name].min() > 0.95, name
    assert right["k = 0"].max() < right["k = 1"].min()
    assert right["k = 1"].max() < right["k = 4"].min()
    assert right["k = 2"].max() < right["k = 4"].min()
    loss = {name: np.array(x["loss"]) for name, x in results["variants"].items()}
    assert loss["keys"].max() < loss["values"].min() < loss["neither"].min()


def bleu_of(variant: str) -> float:
    """The paper's figure: its table 2 is of k, table 3 of keys and values."""
    is_ablated = variant in ABLATED
    settings = VARIANTS[variant]
    for row in data.shaw_tables():
        is_variant = is_ablated or f"k = {row.k}" == variant
        if (
            row.table == (3 if is_ablated else 2)
            and is_variant
            and row.keys == settings.get("use_keys", True)
            and row.values == settings.get("use_values", True)
        ):
            return row.bleu
    raise ValueError(f"no row of the paper for {variant}")


def table(results: Results) -> list[list[str]]:
    """A row for each variant, with the paper's BLEU beside it."""
    rows = []
    for name, found in results["variants"].items():
        cells = [name, spread(found["right"]), spread(found["loss"])]
        rows.append([*cells, str(bleu_of(name))])
    return [["", "right answers", "loss", "paper's BLEU (English-German)"], *rows]
