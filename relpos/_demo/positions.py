"""Steps 2 and 3: a sentence inside a sentence; the skew, which needs no gathering."""

from __future__ import annotations

from typing import Any

import numpy as np

import relpos
from relpos import reference
from relpos._checks import Array
from relpos._demo.recorded import load
from relpos._demo.report import Report

SHORT = ("Bengio", "likes", "neural", "networks")
LONG = ("Hinton", "said", "that", *SHORT)
REFERENCE_WORD = "Bengio"
DIM = 5
LENGTH = 5  # of the skew
SEED = 20230816  # any seed: the embeddings only have to differ from word to word


def sentences(report: Report) -> None:
    """Encode both sentences in three ways, then compute attention in both."""
    report.begin("sentences")
    start = LONG.index(REFERENCE_WORD)
    report.say("problem", short=" ".join(SHORT), long=" ".join(LONG), start=start)
    report.say("encodings", word=REFERENCE_WORD, first=LONG[0], relative=-start)
    rng = np.random.default_rng(SEED)
    # A word has one vector, wherever it is.
    vocabulary = dict(zip(LONG, rng.uniform(-1, 1, (7, DIM)), strict=True))
    words = [np.array([vocabulary[w] for w in s], np.float32) for s in (SHORT, LONG)]
    ways = {
        "words alone": words,
        "words + absolute encodings": [w + absolute(len(w)) for w in words],
        f"words + encodings relative to {REFERENCE_WORD!r}": [
            words[0] + relative_to(0, len(SHORT)),
            words[1] + relative_to(start, len(LONG)),
        ],
    }
    titles = ("words alone", "+ absolute", f"+ relative to {REFERENCE_WORD!r}")
    shown = dict(zip(titles, ways.values(), strict=True))
    report.picture("sentences", words=(SHORT, LONG), ways=shown)
    report.table(
        "table",
        ["", *(f"s = {s}" for s in range(len(LONG) - len(SHORT) + 1))],
        # The distance of A to each run of as many words of B.
        [[way, *(f"{x:.3f}" for x in distances(*pair))] for way, pair in ways.items()],
    )
    plain, absolutely, relatively = (distances(*pair) for pair in ways.values())
    # Equal vectors have a difference of exactly 0.
    report.check(f"words alone: A is in B at {start}", plain[start], 0.0)
    report.check("absolute: A is nowhere in B", absolutely.min(), 0.1, at_least=True)
    report.check(f"relative: A is in B at {start}", relatively[start], 0.0)
    positions = np.arange(-10, 11)
    expected = reference.sinusoidal(positions, DIM)
    error = np.abs(relpos.sinusoidal(positions, DIM) - expected).max()
    report.check("encodings of -10..10 against the reference", error, 6e-8)
    attention_agrees(report, *words)


def absolute(length: int) -> Array:
    return np.asarray(relpos.sinusoidal(length, DIM))


def relative_to(word: int, length: int) -> Array:
    """Return the encodings of all positions minus that of `word`."""
    relative = relpos.relative_positions(length)[word]
    return np.asarray(relpos.sinusoidal(relative, DIM))


def distances(a: Array, b: Array) -> Array:
    count = len(b) - len(a) + 1
    return np.array([np.abs(b[s : s + len(a)] - a).max() for s in range(count)])


def attention_agrees(report: Report, a: Array, b: Array) -> None:
    """Compare attention within A with attention within the same four words of B."""
    start = len(b) - len(a)
    # Relative positions from -3 to 3, as between four words.
    table = relpos.sinusoidal(np.arange(-3, 4), DIM)
    visible = np.arange(len(b)) >= start  # B's first three words are masked

    def change(x: Array, y: Array, **terms: Any) -> Any:
        """Return the largest change of the four words' outputs between A and B."""
        of_a: Any = relpos.attention(x[None], x[None], x[None], **terms)
        masked = {"attn_mask": visible, **terms}
        of_b: Any = relpos.attention(y[None], y[None], y[None], **masked)
        return np.abs(of_a[0] - of_b[0, start:]).max()

    report.say("attention")
    same = change(a, b, rel_key=table)
    report.check("relative keys give the same output in both", same, 1e-6)
    apart = change(a + absolute(len(a)), b + absolute(len(b)))
    report.check("absolute encodings do not", apart, 0.05, at_least=True)


def skewing(report: Report) -> None:
    """Compare pad, reshape and slice with scores that are gathered pair by pair."""
    report.begin("skewing")
    report.say("problem")
    report.say("skew", rows=LENGTH + 1, length=LENGTH)
    report.picture("skew")
    relative = relpos.relative_positions(LENGTH)
    wrong = np.abs(relative - reference.relative_positions(LENGTH)).max()
    report.check("the matrix against the reference", wrong, 0.0)
    recorded = load("music_article")
    # The last rows of the recorded table are those of the shortest distances.
    q, table = recorded["query"][0, 0, :LENGTH], recorded["rel_key"][-LENGTH:]
    scores = q @ table.T
    padded = np.pad(scores, ((0, 0), (1, 0)))
    steps = padded.reshape(LENGTH + 1, LENGTH)[1:]
    skewed = relpos.skew(scores, is_causal=True)
    report.check("relpos.skew against these three steps", gap(skewed, steps), 0.0)
    # The skew is right where a key is not after its query, and wraps beyond.
    past = relative <= 0
    # The column of each pair, clipped where no pair before the query has it.
    column = np.clip(relative + LENGTH - 1, 0, LENGTH - 1)
    gathered = np.take_along_axis(scores, column, axis=1)
    what = "skewed minus gathered, keys up to the query"
    report.check(what, gap(skewed[past], gathered[past]), 0.0)
    # Beyond j = i + 1, whose entry is the padded zero.
    i, j = np.nonzero(relative > 1)
    what = "wrapped entries [i, j] are entries [i + 1, j - i - 2] of the input"
    report.check(what, gap(skewed[i, j], scores[i + 1, j - i - 2]), 0.0)


def gap(a: Array, b: Array) -> float:
    return float(np.abs(a - b).max())
