"""Known changes of FIRE: its distance, what divides it, and its network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from relpos._attention.fire_network import Fire
from relpos._checks import Array, quiet
from relpos._opinion.attempt import Attempt, relative_to


def _distances(attempt: Attempt, p: Fire) -> dict[str, Any]:
    """Return normalised distances by other rules, in words; "" is right."""
    # r is key minus query, and FIRE's distance is positive for earlier keys.
    r, (lq, lk) = relative_to(attempt), attempt.lengths
    i, j = attempt.offset + np.arange(lq)[:, None], np.arange(lk)
    d, c, t = np.abs(r), abs(p.c), abs(p.threshold)
    far, sign = np.maximum(i, t), -np.sign(r) if p.signed else 1.0

    def psi(distance: Any) -> Any:
        return np.log(c * distance + 1.0)

    over = sign * psi(d)
    divided_by = {
        "": psi(far),
        "without the threshold": psi(i),
        "divided by that of the number of keys, not of the query's position": psi(lk),
        "divided by that of the key's position, not of the query's": (
            psi(np.maximum(j, t))
        ),
        "divided by that of the key's position, without the threshold": psi(j),
        "divided by the query's position, not by its logarithm": far,
        "divided by that of the position from 1, not from 0": (
            psi(np.maximum(far, i + 1))
        ),
        "divided by the threshold where it is larger than the logarithm, not than the "
        "position": np.maximum(psi(i), t),
        "divided by that of the position among the queries, without the offset": (
            psi(np.maximum(i - i[0], t))
        ),
    }
    return {
        "without the logarithm": sign * (c * d) / (c * far + p.eps),
        "without c in the logarithm": sign * np.log(d + 1) / (np.log(far + 1) + p.eps),
        **{words: over / (under + p.eps) for words, under in divided_by.items()},
        "without the division": over,
    }


def _relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0.0))


def _bias(x: Array, p: Fire, activation: Callable[[Array], Array] = _relu) -> Array:
    """Return what the network makes of normalised distances."""
    # The network's (.., Lq, Lk, H) becomes (.., H, Lq, Lk).
    return np.moveaxis(activation(x[..., None] * p.w1 + p.b1) @ p.w2.T + p.b2, -1, -3)


def left_out(attempt: Attempt) -> Attempt | None:
    """Leave the bias of the network out; the mask to which it is added stays."""
    if attempt.fire is None:
        return None
    # The mask of an attempt of FIRE is the sum of the mask of the call and the bias.
    mask = attempt.get("attn_mask") - attempt.fire[1]
    reduced = replace(attempt, fire=None, left_out=(*attempt.left_out, "fire"))
    return reduced.with_keywords(attn_mask=mask if mask.any() else None)


def of_past(attempt: Attempt) -> Attempt | None:
    """Give later keys the bias of distance 0."""
    if attempt.fire is None or attempt.offset.ndim:
        return None
    p, own_bias = attempt.fire
    far = np.maximum(attempt.offset + np.arange(attempt.lengths[0])[:, None], 0)
    # Later keys have distance 0, but what divides it is that of the query as before.
    far = np.maximum(far, abs(p.threshold))
    c, d = abs(p.c), np.maximum(-relative_to(attempt), 0)
    bias = _bias(np.log(c * d + 1.0) / (np.log(c * far + 1.0) + p.eps), p)
    mask = attempt.get("attn_mask") - own_bias + bias
    return attempt.with_keywords(attn_mask=mask)


@quiet
def other_rules(attempt: Attempt) -> list[Attempt]:
    if attempt.fire is None or attempt.offset.ndim:
        return []
    p, own_bias = attempt.fire
    distances = _distances(attempt, p)
    # The right distance is that of the changes of the network.
    x, nothing = distances.pop(""), np.zeros(1)
    biases = {
        f"the normalised distance {words}": _bias(other, p)
        for words, other in distances.items()
    } | {
        "the network without its relu": _bias(x, p, np.asarray),
        "the network without the bias of its first layer": (
            _bias(x, p._replace(b1=nothing))
        ),
        "the network without the bias of its second layer": (
            _bias(x, p._replace(b2=nothing))
        ),
        "the network with tanh, not relu": _bias(x, p, np.tanh),
    }
    mask = attempt.get("attn_mask") - own_bias
    # A quotient of 0 and 0, as at position 0, explains no results.
    return [
        attempt.told(words, attn_mask=mask + bias)
        for words, bias in biases.items()
        if np.isfinite(bias).all()
    ]
