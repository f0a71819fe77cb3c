"""Alternatives to relpos, each in its fastest honest form."""

from __future__ import annotations

from benchmarks.peers import (
    by_hand,
    jax_forms,
    numpy_decode,
    torch_forms,
)
from benchmarks.peers.base import Peer, Skipped

__all__ = ["PEERS", "Peer", "Skipped"]

PEERS: tuple[Peer, ...] = (
    *by_hand.PEERS,
    *numpy_decode.PEERS,
    *torch_forms.PEERS,
    *jax_forms.PEERS,
)
