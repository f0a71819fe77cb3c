"""Known changes of FIRE: its distance, what divides it, and its network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relpos._attention.fire_network import Fire
from relpos._checks import quiet
from relpos._opinion.attempt import Attempt, relative_to

Pair = tuple[Any, Any]
#: Other numerators and denominators of the normalised distance, in words: of psi, c,
#: distances, positions of queries, those from the threshold t on, positions of keys,
#: their number, and t.
NUMBERS: dict[str, Callable[..., Pair]] = {
    "without the logarithm": lambda psi, c, d, i, far, j, n, t: (c * d, c * far),
    "without c in the logarithm": lambda psi, c, d, i, far, j, n, t: (
        np.log(d + 1),
        np.log(far + 1),
    ),
    "without the threshold": lambda psi, c, d, i, far, j, n, t: (psi(d), psi(i)),
    "divided by that of the number of keys, not of the query's position": (
        lambda psi, c, d, i, far, j, n, t: (psi(d), psi(n))
    ),
    "divided by that of the key's position, not of the query's": (
        lambda psi, c, d, i, far, j, n, t: (psi(d), psi(np.maximum(j, t)))
    ),
    "divided by that of the key's position, without the threshold": (
        lambda psi, c, d, i, far, j, n, t: (psi(d), psi(j))
    ),
    "divided by the query's position, not by its logarithm": (
        lambda psi, c, d, i, far, j, n, t: (psi(d), far)
    ),
    "divided by that of the position from 1, not from 0": (
        lambda psi, c, d, i, far, j, n, t: (psi(d), psi(np.maximum(far, i + 1)))
    ),
    "divided by the threshold where it is larger than the logarithm, not than the "
    "position": lambda psi, c, d, i, far, j, n, t: (psi(d), np.maximum(psi(i), t)),
    "divided by that of the position among the queries, without the offset": (
        lambda psi, c, d, i, far, j, n, t: (psi(d), psi(np.maximum(i - i[0], t)))
    ),
    "without the division": lambda psi, c, d, i, far, j, n, t: (psi(d), None),
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
    r = relative_to(attempt)
    i, j = attempt.offset + np.arange(r.shape[0])[:, None], np.arange(r.shape[1])
    far, c = np.maximum(i, abs(p.threshold)), abs(p.c)
    sign = -np.sign(r) if p.signed else 1.0

    def psi(d: Any) -> Any:
        return np.log(c * d + 1.0)

    def number(rule: Callable[..., Pair]) -> Any:
        over, under = rule(psi, c, np.abs(r), i, far, j, r.shape[1], abs(p.threshold))
        return sign * over / (1.0 if under is None else under + p.eps)

    right = number(lambda psi, c, d, i, far, j, n, t: (psi(d), psi(far)))
    made: list[tuple[str, Any, Any]] = [
        (f"the normalised distance {words}", number(f), _network)
        for words, f in NUMBERS.items()
    ]
    made += [(f"the network {words}", right, f) for words, f in NETWORKS.items()]
    found = []
    for words, x, network in made:
        bias = np.moveaxis(network(x[..., None], p), -1, -3)
        if np.isfinite(bias).all():
            mask = attempt.get("attn_mask") - own_bias + bias
            found.append(attempt.told(words, attn_mask=mask))
    return found
