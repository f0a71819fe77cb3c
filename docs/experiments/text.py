"""English, character by character: what positions and a memory are worth in bits.

The text is the reference of the Python language as its standard library carries it for
`help()` (pydoc_data/topics.py, Python Software Foundation License Version 2), without
the paragraphs that it repeats. Small Transformers of one shape learn to tell each next
character from segments of 64; they differ in where characters stand, and in whether
they are given the hidden states of the segment before as memory. The last tenth is not
trained on: bits per character there, with memories shorter and longer than in training.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from platform import python_version
from pydoc_data.topics import topics
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from docs.experiments.language import BITS, Language, drawn, train
from docs.experiments.page import spread
from relpos import nn

SEGMENT, MEMORY, BATCH = 64, 64, 16
WIDTH, HEADS, LAYERS = 128, 4, 2
STEPS, RATE = 400, 3e-3
#: Of the test, which counts the characters that have as many before them as the most.
MEMORIES: tuple[int, ...] = (0, 16, 32, 64, 128, 256, 512)
STREAMS = 8
SAMPLE, SAMPLE_MEMORY = 400, 256

#: Name -> position, arguments, and length of the memory in training.
MODELS: dict[str, tuple[str | None, dict[str, Any], int]] = {
    "no positions": (None, {}, 0),
    "sinusoids": ("absolute", {}, 0),
    "Music Transformer": ("music", {"max_len": SEGMENT}, 0),
    "Transformer-XL, no memory": ("transformer_xl", {}, 0),
    "sinusoids, memory": ("absolute", {}, MEMORY),
    "Transformer-XL": ("transformer_xl", {}, MEMORY),
}
QUICK = ("no positions", "Transformer-XL")

Array = NDArray[Any]


def corpus() -> str:
    """The reference, each of its paragraphs once."""
    paragraphs = [
        part for name in sorted(topics) for part in topics[name].split("\n\n")
    ]
    once = {" ".join(part.split()): part for part in paragraphs}
    return "\n\n".join(once.values())


def characters(text: str) -> Array:
    """Classes: 0 is the end of a line, then printable ASCII; "?" is all else."""
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64)
    return np.where(codes == ord("\n"), 0, codes - 31)


def text_of(classes: Array) -> str:
    return "".join("\n" if c == 0 else chr(c + 31) for c in classes.tolist())


def streams(classes: Array, count: int) -> Array:
    """So many pieces of the text, side by side."""
    length = len(classes) // count
    return classes[: count * length].reshape(count, length)


def batches(classes: Array) -> Iterator[Array]:
    """Segments of each stream in turn, for ever."""
    rows = streams(classes, BATCH)
    while True:
        for start in range(0, rows.shape[1] - SEGMENT, SEGMENT):
            yield rows[:, start : start + SEGMENT + 1]


def bits(model: Language, classes: Array, memory: int) -> float:
    """Bits per character, segment by segment, with a memory of at most so many."""
    rows, kept, found = streams(classes, STREAMS), None, []
    for start in range(0, rows.shape[1] - SEGMENT, SEGMENT):
        part = rows[:, start : start + SEGMENT + 1]
        scores = model(part[:, :-1], kept)
        if start >= MEMORIES[-1]:
            found.append(nn.cross_entropy(scores, part[:, 1:]).loss)
        kept = model.remember(kept, memory) if memory else None
    return float(np.mean(found)) * BITS


def sample(model: Language, start: str, length: int, seed: int) -> str:
    """Return the text that the model writes with a memory longer than in training."""
    rng = np.random.default_rng(seed)
    tokens = characters(start)[None]
    kept, written = None, []
    for _ in range(length):
        written.append(drawn(model(tokens, kept)[0, -1], rng))
        kept = model.remember(kept, SAMPLE_MEMORY)
        tokens = np.array([written[-1:]])
    return start + text_of(np.array(written))


class Results(TypedDict):
    """Source and sizes, and bits by model, memory and seed."""

    python: str
    sha256: str
    characters: list[int]  # of the training, and held out
    memories: list[int]
    trained_with: dict[str, int]
    bits: dict[str, list[list[float]]]
    sample: NotRequired[str]


def run(seeds: list[int], quick: bool) -> Results:
    """Bits on the text that was held out, by model, memory and seed."""
    text = corpus()
    classes = characters(text)
    held_out = len(classes) // 10
    test, steps, memories = classes[-held_out:], STEPS, MEMORIES
    if quick:
        test, steps, memories = test[:12_000], 100, (0, MEMORY, 2 * MEMORY)
    results: Results = {
        "python": python_version(),
        "sha256": sha256(text.encode()).hexdigest(),
        "characters": [len(classes) - held_out, held_out],
        "memories": [*memories],
        "trained_with": {name: memory for name, (*_, memory) in MODELS.items()},
        "bits": {},
    }
    for name, (position, sizes, memory) in MODELS.items():
        if quick and name not in QUICK:
            continue
        rows = []
        for seed in seeds:
            model = Language(96, WIDTH, HEADS, LAYERS, position, seed, **sizes)
            train(model, batches(classes[:-held_out]), steps, RATE, memory)
            lengths = memories if memory else (0,)
            rows.append([bits(model, test, each) for each in lengths])
            if name == "Transformer-XL" and seed == seeds[0] and not quick:
                results["sample"] = sample(model, "The ", SAMPLE, seed)
        results["bits"][name] = np.array(rows).T.tolist()
    return results


def check(results: Results, quick: bool) -> None:
    """Relative before sinusoids before nothing; memory for relative positions only."""
    bits_of = {name: np.array(rows) for name, rows in results["bits"].items()}
    at = results["memories"].index(MEMORY)
    relative = bits_of["Transformer-XL"]
    assert relative[at].max() < bits_of["no positions"].min() - 0.1
    assert relative[at].max() < relative[0].min()
    if quick:
        return
    alone, sinusoids = bits_of["Transformer-XL, no memory"], bits_of["sinusoids"]
    assert sinusoids.max() < bits_of["no positions"].min() - 0.4
    assert max(alone.max(), bits_of["Music Transformer"].max()) < sinusoids.min() - 0.2
    assert relative[at].mean() < alone.mean() - 0.02
    assert abs(relative[at:] - relative[at]).max() < 0.02  # longer: no gain, no harm
    assert bits_of["sinusoids, memory"].min() > bits_of["no positions"].max()


def table(results: Results) -> list[list[str]]:
    """A row for each model, a column for each memory of the test."""
    header = ["model", *(f"{memory}" for memory in results["memories"])]
    rows = []
    for name, found in results["bits"].items():
        cells = [spread(seeds) for seeds in found]
        rows.append([name, *cells, *["" for _ in header[1 + len(cells) :]]])
    return [header, *rows]
