"""Notes as a standard MIDI file of format 0, in which one track has all voices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

__all__ = ["midi_file"]

TICKS = 4  # in a quarter: one for each sixteenth
NOTE_OFF, NOTE_ON, PROGRAM = 0x80, 0x90, 0xC0
ORGAN, LOUD = 19, 80
END_OF_TRACK = b"\x00\xff\x2f\x00"


def variable_length(number: int) -> bytes:
    """Seven bits in a byte, the most significant first; all but the last have bit 7."""
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))


def midi_file(notes: NDArray[Any], quarters_a_minute: float = 72) -> bytes:
    """The file of rows of voice, pitch, start and length; a channel for each voice."""
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
