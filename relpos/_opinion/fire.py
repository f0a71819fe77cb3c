"""Known changes of FIRE: its distance, what divides it, and its network."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from relpos._attention.fire_network import Fire
from relpos._checks import quiet
from relpos._opinion.attempt import Attempt, relative_to

Pair = tuple[Any, Any]
#: Other numerators and denominators of the normalised distance, in words: of psi, c,
#: distances d, positions i of queries, those from the threshold t on (far), positions j
#: of keys, their number n, and t.
NUMBERS: dict[str, Callable[[Any], Pair]] = {
    "without the logarithm": lambda x: (x.c * x.d, x.c * x.far),
    "without c in the logarithm": lambda x: (np.log(x.d + 1), np.log(x.far + 1)),
    "without the threshold": lambda x: (x.psi(x.d), x.psi(x.i)),
    "divided by that of the number of keys, not of the query's position": (
        lambda x: (x.psi(x.d), x.psi(x.n))
    ),
    "divided by that of the key's position, not of the query's": (
        lambda x: (x.psi(x.d), x.psi(np.maximum(x.j, x.t)))
    ),
    "divided by that of the key's position, without the threshold": (
        lambda x: (x.psi(x.d), x.psi(x.j))
    ),
    "divided by the query's position, not by its logarithm": (
        lambda x: (x.psi(x.d), x.far)
    ),
    "divided by that of the position from 1, not from 0": (
        lambda x: (x.psi(x.d), x.psi(np.maximum(x.far, x.i + 1)))
    ),
    "divided by the threshold where it is larger than the logarithm, not than the "
    "position": lambda x: (x.psi(x.d), np.maximum(x.psi(x.i), x.t)),
    "divided by that of the position among the queries, without the offset": (
        lambda x: (x.psi(x.d), x.psi(np.maximum(x.i - x.i[0], x.t)))
    ),
    "without the division": lambda x: (x.psi(x.d), None),
}
#: Other networks, in words: functions of the normalised distance and of the parameters.
NETWORKS: dict[str, Callable[[Any, Fire], Any]] = {
    "without its relu": lambda x, p: _network(x, p, np.asarray),
    "without the bias of its first layer": (
        lambda x, p: _network(x, p._replace(b1=np.zeros(1)))
    ),
    "without the bias of its second layer": (
        lambda x, p: _network(x, p._replace(b2=np.zeros(1)))
    ),
    "with tanh, not relu": lambda x, p: _network(x, p, np.tanh),
}


def _relu(x: Any) -> Any:
    return np.maximum(x, 0.0)


def _network(x: Any, p: Fire, activation: Callable[[Any], Any] = _relu) -> Any:
    return activation(x * p.w1 + p.b1) @ p.w2.T + p.b2


@quiet
def other_rules(attempt: Attempt) -> list[Attempt]:
    if attempt.fire is None or attempt.offset.ndim:
        return []
    p, own_bias = attempt.fire
    r, (lq, lk) = relative_to(attempt), attempt.lengths
    i, c, t = attempt.offset + np.arange(lq)[:, None], abs(p.c), abs(p.threshold)
    x = SimpleNamespace(c=c, d=np.abs(r), i=i, j=np.arange(lk), n=lk, t=t)
    x.far = np.maximum(i, t)
    x.psi = lambda d: np.log(c * d + 1.0)
    sign = -np.sign(r) if p.signed else 1.0

    def number(rule: Callable[[Any], Pair]) -> Any:
        over, under = rule(x)
        return sign * over / (1.0 if under is None else under + p.eps)

    right = number(lambda x: (x.psi(x.d), x.psi(x.far)))
    made: list[tuple[str, Any, Any]] = [
        (f"the normalised distance {words}", number(f), _network)
        for words, f in NUMBERS.items()
    ]
    made += [(f"the network {words}", right, f) for words, f in NETWORKS.items()]
    found = []
    for words, distance, network in made:
        bias = np.moveaxis(network(distance[..., None], p), -1, -3)
        if np.isfinite(bias).all():
            mask = attempt.get("attn_mask") - own_bias + bias
            found.append(attempt.told(words, attn_mask=mask))
    return found
