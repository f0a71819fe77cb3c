"""Step 2: a sentence inside a sentence, found by relative positions only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import relpos
from relpos import reference
from relpos._demo.report import Report

__all__ = ["sentences"]

SHORT = ("Bengio", "likes", "neural", "networks")
LONG = ("Hinton", "said", "that", *SHORT)
REFERENCE_WORD = "Bengio"
DIM = 5
SEED = 20230816  # any seed: the embeddings only have to differ from word to word
Array = npt.NDArray[Any]


def sentences(report: Report) -> None:
    """Encodes both sentences three ways, then attends in both."""
    report.begin("Where is the first sentence inside the second?")
    report.say(f"A: {' '.join(SHORT)}.  B: {' '.join(LONG)}.")
    start = LONG.index(REFERENCE_WORD)
    report.say(f"Seen from {REFERENCE_WORD!r} in B, {LONG[0]!r} is at {-start}.")
    vocabulary = dict(
        zip(LONG, np.random.default_rng(SEED).uniform(-1, 1, (7, DIM)), strict=True)
    )
    words = [np.array([vocabulary[w] for w in s], np.float32) for s in (SHORT, LONG)]
    ways = {
        "words alone": words,
        "words + absolute encodings": [w + absolute(len(w)) for w in words],
        f"words + encodings relative to {REFERENCE_WORD!r}": [
            words[0] + relative_to(0, len(SHORT)),
            words[1] + relative_to(start, len(LONG)),
        ],
    }
    rows = []
    for way, (a, b) in ways.items():
        report.say(f"{way}: A, then B")
        for sentence, vectors in ((SHORT, a), (LONG, b)):
            report.words(sentence, vectors, limit=2.0)
        rows.append([way, *(f"{x:.3f}" for x in distances(a, b))])
    report.say("largest difference between A and the four words of B from word s on:")
    placements = [f"s = {s}" for s in range(len(LONG) - len(SHORT) + 1)]
    report.table(["", *placements], rows)
    report.say(f"Words alone and relative encodings find A at s = {start}, exactly;")
    report.say("absolute encodings lose it: the same words got other positions.")
    plain, absolutely, relatively = (distances(*pair) for pair in ways.values())
    report.check(f"words alone: A is in B at {start}", plain[start], 0.0)
    report.check("absolute: A is nowhere in B", absolutely.min(), 0.1, at_least=True)
    report.check(f"relative: A is in B at {start}", relatively[start], 0.0)
    encodings_are_right(report)
    attention_agrees(report, *words)


def absolute(length: int) -> Array:
    """Encodings of positions 0..length-1."""
    return np.asarray(relpos.sinusoidal(length, DIM))


def relative_to(word: int, length: int) -> Array:
    """Encodings of all positions as seen from `word`: the one before it is at -1."""
    relative = relpos.relative_positions(length)[word]
    return np.asarray(relpos.sinusoidal(relative, DIM))


def distances(a: Array, b: Array) -> npt.NDArray[np.float64]:
    """Largest difference between a and each run of len(a) rows of b."""
    count = len(b) - len(a) + 1
    return np.array([np.abs(b[s : s + len(a)] - a).max() for s in range(count)])


def encodings_are_right(report: Report) -> None:
    """The encodings of the positions used, beside the reference."""
    positions = np.arange(-10, 11)
    got = relpos.sinusoidal(positions, DIM)
    error = np.abs(got - reference.sinusoidal(positions, DIM)).max()
    report.check("encodings of -10..10 against the reference", error, 6e-8)


def attention_agrees(report: Report, a: Array, b: Array) -> None:
    """Attention within A, and within the same four words of B."""
    start = len(b) - len(a)
    table = relpos.sinusoidal(np.arange(-3, 4), DIM)
    hide = np.arange(len(b)) >= start  # B's first three words are not looked at

    def outputs(x: Array, y: Array, **terms: Any) -> tuple[Array, Array]:
        """Outputs at the four words: of A, and of B."""
        of_a: Any = relpos.attention(x[None], x[None], x[None], **terms)
        of_b: Any = relpos.attention(y[None], y[None], y[None], attn_mask=hide, **terms)
        return of_a[0], of_b[0, start:]

    report.say("Attention among those four words, in A and in B:")
    in_a, in_b = outputs(a, b, rel_key=table)
    same = np.abs(in_a - in_b).max()
    report.check("relative keys give the same output in both", same, 1e-6)
    in_a, in_b = outputs(a + absolute(len(a)), b + absolute(len(b)))
    apart = np.abs(in_a - in_b).max()
    report.check("absolute encodings do not", apart, 0.05, at_least=True)
