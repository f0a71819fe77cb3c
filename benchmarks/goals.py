"""Goals of the project compared with its peers, and the reading of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from benchmarks.results import Entrant, Record


class Fastest(NamedTuple):
    """The fastest peer of a row, and its time over that of relpos."""

    name: str
    seconds: float
    ratio: float


class Goal(NamedTuple):
    """In the rows that `includes` lets through, a peer takes `least` times as long.

    The peer is the fastest of all, or the fastest `ready_made` one.
    """

    text: str
    includes: Callable[[Record], bool]
    least: float
    ready_made: bool = False

    def ratios(self, rows: Iterable[Record]) -> list[tuple[float, str]]:
        """The figures and labels of its rows, the lowest first."""
        ratios = []
        for row in rows:
            best = fastest(row, self.ready_made) if self.includes(row) else None
            if best is not None:
                ratios.append((best.ratio, row["label"]))
        return sorted(ratios)


def ratio(entrant: Entrant, ours: Entrant) -> float:
    """Return the time of an entrant over that of relpos, at equal clock rates."""
    return float(ours["share"] / entrant["share"])


def share_of_ours(row: Record) -> float | None:
    return row["entrants"][0].get("share")


def ranked(row: Record) -> list[Entrant]:
    """Return the entrants that were timed, the fastest first."""
    timed = [x for x in row["entrants"] if "share" in x]
    return sorted(timed, key=lambda x: -x["share"])


def fastest(row: Record, ready_made: bool = False) -> Fastest | None:
    """None where no peer, or not relpos, was timed."""
    ours = row["entrants"][0]
    peers = [x for x in ranked(row) if x is not ours]
    if ready_made:
        peers = [x for x in peers if x["ready_made"]]
    if not peers or "share" not in ours:
        return None
    best = peers[0]
    return Fastest(best["name"], best["seconds"], ratio(best, ours))


def is_long(row: Record, *schemes: str) -> bool:
    """Forward, or forward and backward, of eight heads, one thread, of the schemes."""
    return (
        row["scheme"] in schemes
        and row["threads"] == 1
        and row["mode"] in ("fwd", "fwdbwd")
        and row["shape"][:2] == [1, 8]
    )


# ---- rows that a goal includes -------------------------------------------------------


def any_row(row: Record) -> bool:
    return True


def music_or_xl(row: Record) -> bool:
    return is_long(row, "music", "xl")


def music_or_xl_causal_to_1024(row: Record) -> bool:
    return music_or_xl(row) and row["is_causal"] and row["shape"][2] <= 1024


def shaw(row: Record) -> bool:
    return is_long(row, "shaw")


def music_xl_or_shaw(row: Record) -> bool:
    return is_long(row, "music", "xl", "shaw")


def plain_in_both_directions(row: Record) -> bool:
    return is_long(row, "plain") and not row["is_causal"]


def plain_causal(row: Record) -> bool:
    return is_long(row, "plain") and row["is_causal"]


def many_sequences(row: Record) -> bool:
    return row["shape"][0] > 8


GOALS = (
    Goal("any row", any_row, 1.0),
    Goal("Music Transformer, Transformer-XL", music_or_xl, 1.3),
    Goal("the same, causal, L ≤ 1024", music_or_xl_causal_to_1024, 1.5),
    Goal("Shaw, keys and values", shaw, 1.7),
    Goal("all three", music_xl_or_shaw, 1.8, ready_made=True),
    Goal("plain, both directions", plain_in_both_directions, 1.0, ready_made=True),
    Goal("plain, causal", plain_causal, 1.4, ready_made=True),
    Goal("many short sequences", many_sequences, 2.0),
)
