"""Chorales as notes, for models of music."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chorale", "chorales"]


class Chorale(NamedTuple):
    """A chorale in four parts.

    Attributes
    ----------
    name : str
        Its number in the catalogue of Bach's works, as the file of music21 is named.
    notes : ndarray of int, (n, 4)
        A row for each note: voice (0 soprano to 3 bass), pitch as in MIDI (60 is the
        middle C), start and length in sixteenths; by start, then voice.

    See Also
    --------
    chorales : All of them.

    Examples
    --------
    >>> from relpos import data
    >>> data.Chorale("scale", [[0, 60, 0, 4], [0, 62, 4, 4]]).name
    'scale'
    """

    name: str
    notes: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Chorale({self.name!r}, {len(self.notes)} notes)"


def chorales() -> list[Chorale]:
    """Bach's chorales in four parts: real music to train on.

    Returns
    -------
    list of Chorale
        ``(name, notes)``, 361 of them with 83,962 notes, in the order of their names.
        Rests are where no note is; repeats are not written out.

    Notes
    -----
    The music is in the public domain. The notes were read from the corpus of music21
    10.5.1 (M. S. A. Cuthbert and others), which has most of these scores from Margaret
    Greentree's edition, by her permission. Left out are scores with a statement of
    copyright, with notes off the grid of sixteenths or with other than four parts, and
    the second of two alike.

    Examples
    --------
    >>> from relpos import data
    >>> chorale = data.chorales()[0]
    >>> chorale
    Chorale('bwv10.7', 206 notes)
    >>> chorale.notes[:4]  # a half note in each voice
    array([[ 0, 74,  0,  8],
           [ 1, 67,  0,  8],
           [ 2, 58,  0,  8],
           [ 3, 55,  0,  8]])
    """
    return [Chorale(name, notes.copy()) for name, notes in _read()]


@cache
def _read() -> list[tuple[str, NDArray[np.int64]]]:
    with np.load(str(files(__package__) / "chorales.npz")) as stored:
        names, counts = stored["names"].astype(str), stored["counts"]
        rows = np.stack([stored["pitches"], stored["lengths"]], 1).astype(np.int64)
    voices = np.split(rows, counts.ravel().cumsum(dtype=np.int64)[:-1])
    return [
        (str(name), _joined(voices[at * 4 : at * 4 + 4]))
        for at, name in enumerate(names)
    ]


def _joined(voices: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The notes of four voices, rests left out."""
    parts = []
    for number, (pitches, lengths) in enumerate(voice.T for voice in voices):
        starts = lengths.cumsum() - lengths
        part = np.stack([np.full_like(starts, number), pitches, starts, lengths], 1)
        parts.append(part[pitches > 0])
    notes = np.concatenate(parts)
    return notes[np.lexsort((notes[:, 0], notes[:, 2]))]
