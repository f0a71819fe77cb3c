"""Bach's chorales, event by event: relative and absolute positions past the training.

Small Transformers of one shape learn to tell each next event from windows of 128, at
any place of a piece and in several keys. They are tested on pieces that were held out,
in windows twice as long: at events 64 to 127, as far from the beginning of the window
as in training, and at events 128 to 255, farther than any was. The Music Transformer's
table has a row for each distance of the training; what lies beyond takes the row of the
farthest ("clipped"), or no row ("nothing").
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from docs.experiments.events import (
    END,
    EVENTS,
    LOWEST,
    PITCHES,
    events_of,
    midi_file,
    notes_of,
)
from docs.experiments.language import BITS, Language, drawn, train
from docs.experiments.page import spread
from relpos import data, nn

LENGTH, BATCH = 128, 8
WIDTH, HEADS, LAYERS = 128, 4, 2
STEPS, RATE = 400, 3e-3
PART = 32  # events that a number is the mean of
KEYS = range(-3, 4)  # semitones by which pieces are moved
LONGEST = 384  # of the piece that is written
STEPS_OF_QUARTER, GAP = 4, 0.15  # in sixteenths: a note that is repeated begins anew
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # of the voices

MODELS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "no positions": (None, {}),
    "sinusoids": ("absolute", {}),
    "rotary": ("rope", {}),
    "Transformer-XL": ("transformer_xl", {}),
    "Music Transformer": ("music", {"max_len": LENGTH, "per_head": True}),
}
CLIPPED, NOTHING = "Music Transformer, clipped", "Music Transformer, nothing"
PICTURES = Path(__file__).parents[1] / "pictures"

Array = NDArray[Any]


def moved(notes: Array, semitones: int) -> Array:
    return notes + np.array([0, semitones, 0, 0])


def pieces(chorales: list[data.Chorale], keys: range = range(1)) -> list[Array]:
    """Events of all pieces in all keys that their voices reach, after an END."""
    sequences = []
    for _, notes in chorales:
        for semitones in keys:
            shifted = moved(notes, semitones)
            above = shifted[:, 1] - LOWEST
            if above.min() >= 0 and above.max() < PITCHES:
                sequences.append(np.array([END, *events_of(shifted)]))
    return sequences


def split() -> tuple[list[data.Chorale], list[data.Chorale]]:
    """Return training pieces and the last fifth; versions of a piece are adjacent."""
    every = data.chorales()
    last = len(every) // 5
    return every[:-last], every[-last:]


def batches(events: list[Array], seed: int) -> Iterator[Array]:
    rng = np.random.default_rng(seed)
    long = [piece for piece in events if len(piece) > LENGTH]
    while True:
        chosen = rng.integers(len(long), size=BATCH)
        starts = [rng.integers(len(long[n]) - LENGTH) for n in chosen]
        yield np.stack(
            [
                long[n][start : start + LENGTH + 1]
                for n, start in zip(chosen, starts, strict=True)
            ]
        )


def windows(events: list[Array]) -> Array:
    """Windows of twice the trained length, each half a length after the one before."""
    size = 2 * LENGTH + 1
    return np.stack(
        [
            piece[start : start + size]
            for piece in events
            for start in range(0, len(piece) - size + 1, LENGTH // 2)
        ]
    )


def bits(model: Language, events: Array) -> list[float]:
    """Bits per event in each part of the windows."""
    # Four products instead of one, so that the scores of all windows fit in memory.
    parts = np.array_split(events, 4)
    scores = np.concatenate([model(part[:, :-1]) for part in parts])
    bits_of_parts = []
    for at in range(0, 2 * LENGTH, PART):
        following = events[:, at + 1 : at + PART + 1]
        loss, _ = nn.cross_entropy(scores[:, at : at + PART], following)
        bits_of_parts.append(loss * BITS)
    return bits_of_parts


def lengthen(model: Language, length: int, beyond: str) -> None:
    """Gives the table rows for distances past those that were trained."""
    for block in model.blocks:
        table = block.attention.layer.position.rel_key
        trained = table.data[:, -LENGTH:]  # the last row is distance 0
        more = np.repeat(trained[:, :1], length - LENGTH, axis=1)
        if beyond == "nothing":
            more = np.zeros_like(more)
        table.data = np.concatenate([more, trained], axis=1)


def compose(model: Language, seed: int) -> Array:
    """Notes of a piece that the model writes, event by event."""
    rng = np.random.default_rng(seed)
    written = [END]
    while len(written) <= LONGEST and (len(written) == 1 or written[-1] != END):
        written.append(drawn(model(np.array([written]))[0, -1], rng))
    return notes_of(np.array(written[1:]))


def tested(model: Language, name: str, events: Array) -> dict[str, list[float]]:
    """Bits by part of the window; of the Music Transformer in its two forms."""
    if name != "Music Transformer":
        return {name: bits(model, events)}
    lengthen(model, 2 * LENGTH, "nothing")
    without_rows = bits(model, events)
    lengthen(model, 2 * LENGTH, "clipped")
    return {NOTHING: without_rows, CLIPPED: bits(model, events)}


def draw_roll(notes: Array, ax: Any) -> None:
    """Draws rows of voice, pitch, start and length as bars, a colour for each voice."""
    for voice in np.unique(notes[:, 0]):
        _, pitches, starts, lengths = notes[notes[:, 0] == voice].T
        quarters = (lengths - GAP) / STEPS_OF_QUARTER
        style = {"height": 0.85, "color": COLOURS[voice], "label": f"voice {voice}"}
        ax.barh(pitches, quarters, left=starts / STEPS_OF_QUARTER, **style)
    low, high = notes[:, 1].min() - 1, notes[:, 1].max() + 1
    octaves = [pitch for pitch in range(0, 128, 12) if low <= pitch <= high]
    ax.set_ylim(low, high)
    ax.set_yticks(octaves, [f"C{pitch // 12 - 1}" for pitch in octaves])
    ax.set(xlabel="time in quarters", ylabel="pitch")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def publish(model: Language, seed: int) -> None:
    """Writes a piece as MIDI and as a picture."""
    from matplotlib.figure import Figure

    lengthen(model, LONGEST, "clipped")
    notes = compose(model, seed)
    (PICTURES / "chorale.mid").write_bytes(midi_file(notes))
    figure = Figure(figsize=(8, 3), layout="constrained")
    draw_roll(notes, figure.subplots())
    figure.savefig(PICTURES / "chorale.png", dpi=90)


class Results(TypedDict):
    """Sizes, and bits per event by model, part of the window and seed."""

    pieces: list[int]  # of the training, and held out
    windows: int
    trained_at: int
    part: int
    bits: dict[str, list[list[float]]]


def run(seeds: list[int], quick: bool) -> Results:
    """Bits on pieces that were held out, by model, part of the window and seed."""
    training, test = split()
    learned = pieces(training, range(1) if quick else KEYS)
    test_windows = windows(pieces(test))
    if quick:
        test_windows = test_windows[::4]
    steps = 100 if quick else STEPS
    bits_of: dict[str, list[list[float]]] = {}
    for name, (position, sizes) in MODELS.items():
        if quick and name not in ("sinusoids", "Music Transformer"):
            continue
        for seed in seeds:
            model = Language(EVENTS, WIDTH, HEADS, LAYERS, position, seed, **sizes)
            train(model, batches(learned, seed), steps, RATE)
            for form, parts in tested(model, name, test_windows).items():
                bits_of.setdefault(form, []).append(parts)
            if name == "Music Transformer" and seed == 0 and not quick:
                publish(model, seed)
    return {
        "pieces": [len(training), len(test)],
        "windows": len(test_windows),
        "trained_at": LENGTH,
        "part": PART,
        "bits": {form: np.array(rows).T.tolist() for form, rows in bits_of.items()},
    }


def halves(results: Results, form: str) -> tuple[Array, Array]:
    """Bits by seed at events 64 to 127, and at events 128 to 255."""
    parts = np.array(results["bits"][form])
    once = LENGTH // PART
    return parts[once // 2 : once].mean(0), parts[once:].mean(0)


def check(results: Results, quick: bool) -> None:
    """Sinusoids lose past the trained length, and relative positions do not."""
    inside, outside = halves(results, CLIPPED)
    assert outside.max() < inside.min() + 0.1
    sinusoids = halves(results, "sinusoids")
    assert inside.max() < sinusoids[0].min() and outside.max() < sinusoids[1].min()
    if quick:
        return
    assert (sinusoids[1] - sinusoids[0]).min() > 0.5
    for form in (CLIPPED, NOTHING, "Transformer-XL"):
        inside, outside = halves(results, form)
        assert outside.max() < inside.min() + 0.02, form
    assert halves(results, "no positions")[1].max() < sinusoids[1].min()


def table(results: Results) -> list[list[str]]:
    """A row for each form: bits per event in four places of the window."""
    once = LENGTH // PART
    header = ["model", "events 64 to 127", "128 to 255", "the last 32"]
    rows = [
        [form, *map(spread, halves(results, form)), spread(parts[2 * once - 1])]
        for form, parts in results["bits"].items()
    ]
    return [header, *rows]
