"""Word and position in their sum: what a linear probe reads out of e + p.

The sum of two vectors loses both, in general; in many dimensions two vectors drawn
apart are nearly orthogonal, and a linear map can read either out of it. Words are drawn
from a normal distribution, positions are sinusoids, or drawn as the words are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import relpos
from docs.experiments.page import spread

WORDS, LENGTH = 100, 64
DIMS = (8, 16, 32, 64, 128, 256, 512)
PAIRS = 6400  # every word at every place once: half of them fit a probe, half test it
KINDS = ("sinusoids", "random")
RIDGE = 1e-3


def accuracy(inputs: Any, classes: Any, train: int) -> float:
    """Return how often a least-squares probe's largest output is the right class."""
    x = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    wanted = np.eye(classes.max() + 1)[classes[:train]]
    square = x[:train].T @ x[:train] + RIDGE * np.eye(x.shape[1])
    weight = np.linalg.solve(square, x[:train].T @ wanted)
    return float(np.mean((x[train:] @ weight).argmax(1) == classes[train:]))


def cosines(a: Any, b: Any) -> float:
    """The mean size of the cosine between a vector of one and a vector of the other."""
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    return float(np.abs(a @ b.T).mean())


def measure(dim: int, kind: str, seed: int) -> dict[str, float]:
    """Probes for word and position of random pairs, and how near right angles are."""
    rng = np.random.default_rng(seed)
    words = rng.standard_normal((WORDS, dim))
    places = rng.standard_normal((LENGTH, dim))
    if kind == "sinusoids":
        places = relpos.sinusoidal(LENGTH, dim)
    word, place = rng.permutation(np.indices((WORDS, LENGTH)).reshape(2, -1), axis=1)
    total = words[word] + places[place]
    return {
        "word": accuracy(total, word, PAIRS // 2),
        "position": accuracy(total, place, PAIRS // 2),
        "cosine": cosines(words, places),
    }


def run(seeds: list[int], quick: bool) -> dict[str, Any]:
    """For each kind of position, lists by dimension, each of a number by seed."""
    dims = (8, 256) if quick else DIMS
    results: dict[str, Any] = {"dims": [*dims], "kinds": [*KINDS]}
    for kind in KINDS:
        found = [[measure(dim, kind, seed) for seed in seeds] for dim in dims]
        results[kind] = {
            name: [[each[name] for each in row] for row in found]
            for name in ("word", "position", "cosine")
        }
    return results


def check(results: dict[str, Any], quick: bool) -> None:
    """Narrow sums lose both; wide ones keep both, but sinusoids are the harder."""
    for kind in results["kinds"]:
        found = {name: np.array(rows) for name, rows in results[kind].items()}
        for name in ("word", "position"):
            assert found[name][0].max() < 0.5, (kind, name)
        assert found["word"][-1].min() > 0.99, kind
        falls = np.sqrt(results["dims"][-1] / results["dims"][0])
        shrunk = found["cosine"][0].mean() / found["cosine"][-1].mean()
        assert 0.6 * falls < shrunk < 1.5 * falls, kind
    places = {name: np.array(results[name]["position"]) for name in results["kinds"]}
    assert places["random"][-1].min() > 0.99
    assert (places["sinusoids"].mean(1) < places["random"].mean(1)).all()
    assert places["sinusoids"][-1].min() > 0.8


def table(results: dict[str, Any]) -> list[list[str]]:
    columns = [(kind, what) for kind in KINDS for what in ("word", "position")]
    header = ["dim", *(f"{kind}: {what}" for kind, what in columns), "cosine"]
    rows = [
        [
            str(dim),
            *(spread(results[kind][what][at]) for kind, what in columns),
            spread(results["sinusoids"]["cosine"][at]),
        ]
        for at, dim in enumerate(results["dims"])
    ]
    return [header, *rows]
