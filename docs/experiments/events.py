"""Music in four voices as a sequence of events, and back; notes as a MIDI file.

At each time at which a note begins or a voice falls silent: one event for each such
voice, soprano first, then how long to wait for the next such time. A note sounds until
the next event of its voice. 205 kinds of event: 4 voices of 46 pitches, 4 silences,
waits of 1 to 16 sixteenths, and the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

VOICES = 4
LOWEST, PITCHES = 36, 46  # from the low C of the bass to the high A of the soprano
SILENCE = VOICES * PITCHES
WAIT = SILENCE + VOICES - 1  # WAIT + n: n sixteenths
LONGEST_WAIT = 16
END = WAIT + LONGEST_WAIT + 1
EVENTS = END + 1

Array = NDArray[Any]


def events_of(notes: Array) -> Array:
    """The events of rows of voice, pitch, start and length, as of `relpos.data`."""
    changes = {}  # of (time, voice) to an event
    for voice, _, start, length in notes:
        changes[start + length, voice] = SILENCE + voice
    for voice, pitch, start, _ in notes:  # a note that follows hides the silence
        changes[start, voice] = voice * PITCHES + pitch - LOWEST
    last = max(time for time, _ in changes)
    events, now = [], 0
    for time, voice in sorted(changes):
        if time == last:
            break
        events += _waits(time - now)
        events.append(changes[time, voice])
        now = time
    return np.array([*events, *_waits(last - now), END])


def _waits(length: int) -> list[int]:
    """The events that let so many sixteenths pass."""
    count, remainder = divmod(int(length), LONGEST_WAIT)
    waits = [WAIT + LONGEST_WAIT] * count
    if remainder:
        waits.append(WAIT + remainder)
    return waits


def notes_of(events: Array) -> Array:
    """The notes of any sequence of events, to its end or its last event."""
    notes: list[list[int]] = []
    sounding: dict[int, list[int]] = {}
    now = 0
    for event in (int(event) for event in events):
        if event == END:
            break
        if event > WAIT:
            now += event - WAIT
            continue
        voice = event - SILENCE if event >= SILENCE else event // PITCHES
        before = sounding.pop(voice, None)
        if before is not None:
            before[3] = now - before[2]
        if event < SILENCE:
            sounding[voice] = [voice, LOWEST + event % PITCHES, now, 0]
            notes.append(sounding[voice])
    for note in sounding.values():
        note[3] = now - note[2]
    heard = sorted(
        (note for note in notes if note[3]), key=lambda note: (note[2], note[0])
    )
    return np.array(heard, np.int64).reshape(-1, 4)


# ---- MIDI ----------------------------------------------------------------------------

TICKS = 4  # in a quarter: one for each sixteenth
NOTE_OFF, NOTE_ON, PROGRAM = 0x80, 0x90, 0xC0
ORGAN, LOUD = 19, 80
END_OF_TRACK = b"\x00\xff\x2f\x00"


def variable_length(number: int) -> bytes:
    """Seven bits in a byte, the most significant first; all but the last have bit 7."""
    digits = [number & 0x7F]
    number >>= 7
    while number:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(reversed(digits))


def midi_file(notes: Array, quarters_a_minute: float = 72) -> bytes:
    """The file of notes in format 0: one track has all voices, a channel for each."""
    messages = []  # time, off before on, message
    for voice, pitch, start, length in notes.tolist():
        messages.append((start, 1, bytes([NOTE_ON | voice, pitch, LOUD])))
        messages.append((start + length, 0, bytes([NOTE_OFF | voice, pitch, 0])))
    tempo = round(60e6 / quarters_a_minute).to_bytes(3, "big")
    first = [b"\xff\x51\x03" + tempo]
    first += [
        bytes([PROGRAM | voice, ORGAN]) for voice in sorted({*notes[:, 0].tolist()})
    ]
    track = b"".join(b"\x00" + message for message in first)
    track += _timed((time, message) for time, _, message in sorted(messages))
    track += END_OF_TRACK
    header = b"".join(number.to_bytes(2, "big") for number in (0, 1, TICKS))
    return _chunk(b"MThd", header) + _chunk(b"MTrk", track)


def _timed(messages: Iterable[tuple[int, bytes]]) -> bytes:
    """Each message behind the time since the one before."""
    now, written = 0, b""
    for time, message in messages:
        written += variable_length(time - now) + message
        now = time
    return written


def _chunk(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(4, "big") + content
