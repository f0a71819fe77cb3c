"""Write Bach's four-part chorales, as music21 has them, into relpos/data/chorales.npz.

    python -m docs.experiments.extract_chorales

music21 (10.5.1 was used) is needed for this alone; what it wrote is in the repository.
Of the 413 scores by Bach in its corpus those are kept that have four parts, every note
on a grid of sixteenths and no statement of copyright of their own, but no two alike.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["extract", "voices_of"]

FILE = Path(__file__).parents[2] / "relpos" / "data" / "chorales.npz"
VOICES = 4
STEPS = 4  # sixteenths in a quarter

Voice = list[tuple[int, int]]


def voices_of(score: Any) -> list[Voice] | None:
    """Pitches (0: a rest) and lengths in sixteenths of each voice, soprano first.

    None for what is no four-part score on the grid.
    """
    parts = list(score.parts)
    if len(parts) != VOICES:
        return None
    voices = [_voice_of(part.flatten().stripTies().notesAndRests) for part in parts]
    return [voice for voice in voices if voice is not None] if all(voices) else None


def _voice_of(notes: Any) -> Voice | None:
    """The notes of one voice; rests where it is silent, None if they leave the grid."""
    voice: Voice = []
    now = 0
    for note in notes:
        start, length = note.offset * STEPS, note.duration.quarterLength * STEPS
        if not length:  # a grace note
            continue
        if start % 1 or length % 1 or start < now:
            return None
        if start > now:
            voice.append((0, int(start) - now))
        voice.append((0 if note.isRest else note.pitch.midi, int(length)))
        now = int(start + length)
    return voice


def chosen(folder: Path) -> dict[str, list[Voice]]:
    """The chorales by name, in the order of their files."""
    parse = importlib.import_module("music21.converter").parse
    found: dict[str, list[Voice]] = {}
    for path in sorted(folder.glob("bwv*")):
        score = parse(path, forceSource=True)
        if score.metadata is not None and score.metadata.copyright:
            continue
        voices = voices_of(score)
        if voices is not None and voices not in found.values():
            found[path.name.removesuffix(".mxl").removesuffix(".xml")] = voices
    return found


def arrays_of(chorales: dict[str, list[Voice]]) -> dict[str, NDArray[Any]]:
    """Return the contents of the file: names, notes in each voice, and all notes."""
    voices = [voice for chorale in chorales.values() for voice in chorale]
    notes = np.array([note for voice in voices for note in voice], np.uint8)
    return {
        "names": np.array([*chorales], bytes),
        "counts": np.array([len(voice) for voice in voices], np.uint16).reshape(-1, 4),
        "pitches": notes[:, 0],
        "lengths": notes[:, 1],
    }


def extract() -> None:
    corpus = importlib.import_module("music21.corpus")
    folder = Path(corpus.__file__).parent / "bach"
    chorales = chosen(folder)
    np.savez_compressed(FILE, allow_pickle=False, **arrays_of(chorales))
    print(f"{len(chorales)} chorales, {FILE.stat().st_size} bytes: {FILE}")


if __name__ == "__main__":
    extract()
