"""Bach's chorales: as the scores have them, as events and back, as MIDI."""

from __future__ import annotations

import numpy as np
import pytest
from documents import ROOT, experiment

from relpos import data

CHORALES = {chorale.name: chorale for chorale in data.chorales()}
SCALE = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}

#: Beginnings, by hand from the scores: quarters, but where another length is named.
BEGINNINGS = {
    "bwv66.6": (
        "C#5/2 B4/2 A4 B4 C#5 E5 C#5 B4 A4 C#5",
        "E4 F#4 E4 E4 E4 E4/2 A4/2 G#4 E4 G#4",
        "A3/2 B3/2 C#4 B3 A3 B3 A3/2 E4/2 E4/2 D4/2 C#4 C#4",
        "A3/2 G#3/2 F#3 G#3 A3 G#3 A3/2 C#3/2 E3 A2 F3",
    ),
    "bwv269": (
        "G4 G4/8 D5 B4/6 A4/2 G4 G4/6 A4/2 B4 A4/8",
        "D4 D4 E4 D4 D4/8 B3 E4/2 D4/2 E4/2 F#4/2 G4 F#4/8",
        "B3 B3 C4/2 B3/2 A3 G3 F#3 G3 C4/2 B3/2 C4 D4 D4/8",
        "G2 G3 E3 F#3 G3 D3 E3 C3 B2/2 A2/2 G2 D3/8",
    ),
    "bwv26.6": (
        "A4 B4 C5 C5 C5 D5 E5 E5 E5 E5 D5 C5 B4/6 A4/2 A4/8",
        "E4 E4 E4 E4 E4 G4 G4 G4 G4 C5/6 B4 A4/2 A4 G#4 E4/8",
        "C4 B3 A3 A3 A3 B3 C4 C4 C4/2 D4/2 C4/2 B3/2 A3/2 B3/2 C4/2 E4/2 F4",
        "A3 G#3 A3 A2 A3 G3 C4 C3 C4/2 B3/2 A3/2 G3/2 F#3/2 G#3/2 A3 D3 E3 A2/8",
    ),
}


def read(line):
    """Pitches and sixteenths of notes written as C#5/2."""
    notes = []
    for word in line.split():
        name, _, length = word.partition("/")
        pitch = SCALE[name[0]] + name.count("#") + 12 * (int(name[-1]) + 1)
        notes.append((pitch, int(length or 4)))
    return notes


@pytest.mark.parametrize("name", BEGINNINGS)
def test_beginnings_are_those_of_the_score(name):
    notes = CHORALES[name].notes
    for voice, line in enumerate(BEGINNINGS[name]):
        wanted = read(line)
        mine = notes[notes[:, 0] == voice][: len(wanted)]
        assert [*map(tuple, mine[:, [1, 3]].tolist())] == wanted, voice
        assert mine[:, 2].tolist() == [0, *np.cumsum(wanted, 0)[:-1, 1].tolist()]


@pytest.mark.parametrize("name", BEGINNINGS)
def test_music21_has_the_same_notes(name):
    corpus = pytest.importorskip("music21.corpus")
    voices = experiment("extract_chorales").voices_of(corpus.parse(f"bach/{name}"))
    for number, voice in enumerate(voices):
        pitches, lengths = np.array(voice).T
        parts = number + 0 * pitches, pitches, lengths.cumsum() - lengths, lengths
        notes = CHORALES[name].notes
        mine = notes[notes[:, 0] == number]
        assert mine.tolist() == np.stack(parts, 1)[pitches > 0].tolist()


def test_all_chorales_have_four_voices_that_end_together():
    assert len(CHORALES) == 361 == len(data.chorales())
    assert sum(len(chorale.notes) for chorale in CHORALES.values()) == 83_962
    for name, (_, notes) in CHORALES.items():
        voice, _, start, length = notes.T
        ends = {v: (start + length)[voice == v].max() for v in range(4)}
        assert len({*ends.values()}) == 1, name
        for v in range(4):  # one note at a time
            mine = notes[voice == v]
            assert (mine[1:, 2] >= (mine[:-1, 2] + mine[:-1, 3])).all(), (name, v)


def test_what_is_done_to_the_notes_stays_with_the_caller():
    data.chorales()[0].notes[...] = 0
    assert data.chorales()[0].notes[0, 1] > 0


def test_events_hold_all_of_the_music():
    events = experiment("events")
    for name, (_, notes) in CHORALES.items():
        written = events.events_of(notes)
        assert written.min() >= 0 and written[-1] == written.max() == events.END, name
        assert (events.notes_of(written) == notes).all(), name


def test_events_one_by_one():
    events = experiment("events")
    notes = np.array([[0, 60, 0, 4], [3, 36, 0, 24], [0, 62, 20, 4]])
    soprano, bass = 60 - events.LOWEST, 3 * events.PITCHES
    waits = {n: events.WAIT + n for n in (4, 16)}
    written = [soprano, bass, waits[4], events.SILENCE, waits[16], soprano + 2]
    written += [waits[4], events.END]
    assert events.events_of(notes).tolist() == written
    # what a model writes need not be whole: notes end with the last event
    assert events.notes_of(written[:3]).tolist() == [[0, 60, 0, 4], [3, 36, 0, 4]]
    assert events.notes_of([events.END, soprano]).shape == (0, 4)
    assert events.notes_of([soprano, soprano + 1, waits[4]]).tolist() == [[0, 61, 0, 4]]


def parsed(content):
    """Notes, ticks of a quarter and tempo of a MIDI file of format 0."""
    assert content[:8] == b"MThd\0\0\0\6" and content[8:12] == b"\0\0\0\1"
    assert content[14:18] == b"MTrk"
    track = content[22:]
    assert int.from_bytes(content[18:22], "big") == len(track)
    at = now = 0
    tempo, notes, begun = None, [], {}
    while at < len(track):
        delta = 0
        while True:  # seven bits in each byte, the last below 128
            delta, at = delta << 7 | track[at] & 127, at + 1
            if track[at - 1] < 128:
                break
        now += delta
        kind, channel = track[at] >> 4, track[at] & 15
        if track[at] == 0xFF:
            size = track[at + 2]
            if track[at + 1] == 0x51:
                tempo = int.from_bytes(track[at + 3 : at + 3 + size], "big")
            at += 3 + size
        elif kind == 0xC:
            at += 2
        else:
            pitch = track[at + 1]
            if kind == 9:
                begun[channel, pitch] = now
            else:
                start = begun.pop((channel, pitch))
                notes.append([channel, pitch, start, now - start])
            at += 3
    assert track[-3:] == b"\xff\x2f\0" and not begun
    return sorted(notes, key=lambda note: (note[2], note[0])), content[12:14], tempo


def test_midi_holds_the_notes():
    midi_file = experiment("events").midi_file
    for name in BEGINNINGS:
        notes, ticks, tempo = parsed(midi_file(CHORALES[name].notes, 60))
        assert notes == CHORALES[name].notes.tolist()
        assert ticks == b"\0\4" and tempo == 1_000_000
    written = ROOT / "docs" / "pictures" / "chorale.mid"  # by a model
    notes, *_ = parsed(written.read_bytes())
    assert {voice for voice, *_ in notes} == {0, 1, 2, 3} and len(notes) > 100
    long = np.array([[0, 60, 1000, 200_000]])  # times of two and of three bytes
    assert parsed(midi_file(long))[0] == long.tolist()


def test_bars_of_a_roll_are_where_notes_are():
    ax = pytest.importorskip("matplotlib.figure").Figure().subplots()
    notes = np.array([[0, 72, 0, 4], [0, 74, 4, 2], [3, 48, 0, 8]])
    experiment("chorales").draw_roll(notes, ax)
    bars = [bar.get_bbox() for bar in ax.patches]
    found = [(bar.x0, (bar.y0 + bar.y1) / 2) for bar in bars]
    assert found == [(0, 72), (1, 74), (0, 48)]
    for bar, length in zip(bars, notes[:, 3], strict=True):
        assert 0.9 * length / 4 < bar.width < length / 4
    first, second, third = (bar.get_facecolor() for bar in ax.patches)
    assert first == second != third
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["voice 0", "voice 3"] and ax.get_yticks().tolist() == [48, 60, 72]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["C3", "C4", "C5"]
