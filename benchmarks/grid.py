"""Rows of the report, and the rows that the quick comparison repeats."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from benchmarks.peers import PEERS
from benchmarks.rows import Spec

SCHEMES = ("plain", "music", "xl", "shaw")
#: All peers at the first; those that compile for each shape nowhere else.
LENGTHS = (1024, 512, 256, 2048, 4096)
DECODED = ((1, 8, 1024, 64), (8, 8, 1024, 64), (1, 8, 8192, 64))
MANY = ((256, 8, 16, 64), (32, 8, 64, 64), (128, 4, 30, 64))
TWO_THREADS = ("plain", "music")
MEMORY_LENGTHS = (256, 512, 1024, 2048, 4096)
QUICK_LENGTH = 512


def names(compiled: bool) -> tuple[str, ...]:
    """All peers, or those that are ready for any shape at once."""
    return tuple(peer.name for peer in PEERS if compiled or not peer.compiled)


def grid() -> list[Spec]:
    """The report's rows, the most wanted first."""

    def square(length: int) -> list[Spec]:
        chosen = names(length == LENGTHS[0])
        return [
            Spec(scheme, is_causal, mode, (1, 8, length, 64), 1, chosen)
            for scheme, is_causal, mode in product(
                SCHEMES, (False, True), ("fwd", "fwdbwd")
            )
        ]

    decoded = [
        Spec(scheme, True, "decode", shape, 1, names(shape == DECODED[0]))
        for scheme, shape in product(SCHEMES, DECODED)
    ]
    many = [
        Spec(scheme, False, mode, shape, 1, names(False))
        for scheme, mode, shape in product(("music", "shaw"), ("fwd", "fwdbwd"), MANY)
    ]
    first, *others = LENGTHS
    later = [spec for length in others for spec in square(length)]
    two = [
        replace(spec, threads=2, peers=names(False))
        for spec in square(first)
        if spec.scheme in TWO_THREADS
    ]
    return [*square(first), *decoded, *many, *later, *two]


def memory() -> list[Spec]:
    """The report's rows of memory."""
    return [
        Spec("music", True, mode, (1, 8, length, 64), 1, names(False))
        for mode in ("fwd", "fwdbwd")
        for length in MEMORY_LENGTHS
    ]


def quick() -> list[Spec]:
    """Rows of the grid to be measured again within two minutes; nothing is compiled."""
    return [
        replace(spec, peers=names(False))
        for spec in grid()
        if spec.shape in ((1, 8, QUICK_LENGTH, 64), MANY[1])
        or (spec.mode, spec.shape) == ("decode", DECODED[0])
    ]
