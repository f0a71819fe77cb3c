"""Alternatives to relpos, each in its fastest honest form."""

from __future__ import annotations

from benchmarks.peers import (
    by_hand_backward,
    jax_forms,
    numpy_decode,
    torch_flex,
    torch_forms,
)
from benchmarks.peers.base import Peer, Skipped

__all__ = ["PEERS", "Peer", "Skipped"]

PEERS: tuple[Peer, ...] = (
    *by_hand_backward.PEERS,
    *numpy_decode.PEERS,
    *torch_forms.PEERS,
    *torch_flex.PEERS,
    *jax_forms.PEERS,
)
