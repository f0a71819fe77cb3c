"""Goals of the project compared with its peers, and the reading of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from benchmarks.results import Record


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
        found = [
            (fastest(row, self.ready_made), row) for row in rows if self.includes(row)
        ]
        return sorted((each.ratio, str(row["label"])) for each, row in found if each)


def ratio(entrant: Record, ours: Record) -> float:
    return float(ours["share"] / entrant["share"])


def share_of_ours(row: Record) -> float | None:
    share: float | None = row["entrants"][0].get("share")
    return share


def ranked(row: Record) -> list[Record]:
    """Return the entrants that were timed, the fastest first."""
    timed = [x for x in row["entrants"] if "share" in x]
    return sorted(timed, key=lambda x: -float(x["share"]))


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


GOALS = (
    Goal("any row", lambda row: True, 1.0),
    Goal(
        "Music Transformer, Transformer-XL",
        lambda row: is_long(row, "music", "xl"),
        1.3,
    ),
    Goal(
        "the same, causal, L ≤ 1024",
        lambda row: (
            is_long(row, "music", "xl") and row["is_causal"] and row["shape"][2] <= 1024
        ),
        1.5,
    ),
    Goal("Shaw, keys and values", lambda row: is_long(row, "shaw"), 1.7),
    Goal(
        "all three",
        lambda row: is_long(row, "music", "xl", "shaw"),
        1.8,
        ready_made=True,
    ),
    Goal(
        "plain, both directions",
        lambda row: is_long(row, "plain") and not row["is_causal"],
        1.0,
        ready_made=True,
    ),
    Goal(
        "plain, causal",
        lambda row: is_long(row, "plain") and row["is_causal"],
        1.4,
        ready_made=True,
    ),
    Goal("many short sequences", lambda row: row["shape"][0] > 8, 2.0),
)
