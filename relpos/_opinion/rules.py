"""Rules by which implementations cap scores, normalise them and count sinks.

Each table maps words, which follow "the cap", "the softmax" or "the sinks", to the
function that an implementation of this kind computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt
from relpos.reference.formula import softmax

# ---- the cap -------------------------------------------------------------------------

#: A function of the scores, the cap and the scale.
Cap = Callable[[Array, float, float], Array]


def capped(x: Array, cap: float, scale: float) -> Array:
    """Return cap * tanh(x / cap), which is relpos's own rule."""
    return np.asarray(cap * np.tanh(x / cap))


def _clipped(x: Array, cap: float, scale: float) -> Array:
    """Clip the scores at the cap."""
    return np.clip(x, -cap, cap)


def _capped_before_scale(x: Array, cap: float, scale: float) -> Array:
    """Cap the products, and scale what comes out."""
    return np.asarray(scale * cap * np.tanh(x / scale / cap))


def _without_factor(x: Array, cap: float, scale: float) -> Array:
    """Forget to multiply by the cap."""
    return np.tanh(x / cap)


def _without_division(x: Array, cap: float, scale: float) -> Array:
    """Forget to divide by the cap."""
    return np.asarray(cap * np.tanh(x))


def _factor_and_divisor_exchanged(x: Array, cap: float, scale: float) -> Array:
    """Multiply where the cap divides, and divide where it multiplies."""
    return np.asarray(np.tanh(x * cap) / cap)


def _capped_twice(x: Array, cap: float, scale: float) -> Array:
    """Apply the tangent to its own result."""
    return np.asarray(cap * np.tanh(np.tanh(x / cap)))


def _scores_as_factor(x: Array, cap: float, scale: float) -> Array:
    """Multiply the tangent by the scores, not by the cap."""
    return np.asarray(x * np.tanh(x / cap))


#: Rules of the cap, in words to follow "the cap"; "" is relpos's own.
CAPS: dict[str, Cap] = {
    "": capped,
    "by clipping, without a tangent": _clipped,
    "before the scale": _capped_before_scale,
    "without the factor behind the tangent": _without_factor,
    "without the division before the tangent": _without_division,
    "with multiplication and division exchanged": _factor_and_divisor_exchanged,
    "twice": _capped_twice,
    "with the scores as the factor of the tangent": _scores_as_factor,
}


# ---- the softmax ---------------------------------------------------------------------

#: A function of the scores, which are -inf where they are hidden.
Normal = Callable[[Array], Array]


def _exponentials(x: Array) -> Array:
    """Return exponentials, of at most e^700, which float64 still holds."""
    return np.asarray(np.exp(np.minimum(x, 700.0)))


def _without_hidden(x: Array) -> Array:
    """Return scores, 0 where they are hidden."""
    return np.where(np.isneginf(x), 0.0, x)


def _visible(x: Array) -> Array:
    """Return 1 for each score that is not hidden."""
    return 1.0 - np.isneginf(x)


def mean_of_heads(x: Array) -> Array:
    """Give every head the mean of all heads."""
    return np.broadcast_to(np.mean(x, axis=-3, keepdims=True), x.shape)


def sum_of_heads(x: Array) -> Array:
    """Give every head the sum of all heads."""
    return np.broadcast_to(np.sum(x, axis=-3, keepdims=True), x.shape)


def _positive_part(x: Array) -> Array:
    """Return max(x, 0), which is 0 where the scores are hidden."""
    return np.asarray(np.maximum(x, 0.0))


def _softmax_of(x: Array, change: Normal) -> Array:
    """Return the softmax of changed scores, which hides the same pairs."""
    # The change is made to finite numbers: it could turn -inf into a visible score.
    changed = change(_without_hidden(x))
    return softmax(np.where(np.isneginf(x), x, changed))[0]


def _exponentials_below_largest(x: Array) -> Array:
    """Return the exponentials of a stable softmax, which are not divided."""
    return _exponentials(x - x.max(axis=-1, keepdims=True))


def _over_number_of_keys(x: Array) -> Array:
    """Divide the scores by the number of keys."""
    return np.asarray(_without_hidden(x) / x.shape[-1])


def _over_their_sum(x: Array) -> Array:
    """Divide the scores by their sum."""
    shown = _without_hidden(x)
    return np.asarray(shown / shown.sum(axis=-1, keepdims=True))


def _over_their_norm(x: Array) -> Array:
    """Divide the scores by their Euclidean norm."""
    shown = _without_hidden(x)
    return np.asarray(shown / np.sqrt((shown**2).sum(axis=-1, keepdims=True)))


def _mean_of_softmaxes(x: Array) -> Array:
    """Return the mean of the softmaxes of all heads."""
    return mean_of_heads(softmax(x)[0])


def _sigmoid(x: Array) -> Array:
    """Return the sigmoid of the scores."""
    return np.asarray(1.0 / (1.0 + _exponentials(-x)))


def _log_softmax(x: Array) -> Array:
    """Return the logarithm of the softmax."""
    return np.log(softmax(x)[0])


def _equal_weights(x: Array) -> Array:
    """Return the same weight for each visible key."""
    visible = _visible(x)
    return np.asarray(visible / visible.sum(axis=-1, keepdims=True))


#: Name in `NORMAL` of the rule that uses the scores themselves.
SCORES = "left out: the values are multiplied by the scores"
#: Functions that may replace the softmax, in words to follow "the softmax".
NORMAL: dict[str, Normal] = {
    SCORES: _without_hidden,
    "without its division: the exponentials are the weights": _exponentials,
    "without its division: the exponentials, less the largest score, are the weights": (
        _exponentials_below_largest
    ),
    "left out: the scores are divided by the number of keys": _over_number_of_keys,
    "without exponentials: the scores are divided by their sum": _over_their_sum,
    "of the scores with the other sign": partial(_softmax_of, change=np.negative),
    "of max(score, 0), not of the scores": partial(_softmax_of, change=_positive_part),
    "of the absolute scores": partial(_softmax_of, change=np.abs),
    "of the mean of the scores of all heads, not for each head": (
        partial(_softmax_of, change=mean_of_heads)
    ),
    "of the sum of the scores of all heads, not for each head": (
        partial(_softmax_of, change=sum_of_heads)
    ),
    "averaged: the weights are the mean of those of all heads": _mean_of_softmaxes,
    "left out: the scores are divided by their norm": _over_their_norm,
    "replaced by max(score, 0)": _positive_part,
    "replaced by a sigmoid": _sigmoid,
    "replaced by its logarithm": _log_softmax,
}
#: Others, which do not depend on the scores.
EQUAL: dict[str, Normal] = {
    "left out: all visible keys have equal weights": _equal_weights,
    "left out: the values of all visible keys are added": _visible,
}


# ---- sinks ---------------------------------------------------------------------------

#: A function of an attempt, the sinks, and for each query the largest score and the
#: logarithm of the sum of all exponentials.
Sink = Callable[[Attempt, Array, Array, Array], Array]


def _with_maximum(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Do not subtract the maximum of the scores from the sinks."""
    return sinks + top


def _maximum_twice(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Subtract the maximum of the scores twice."""
    return sinks - top


def _repeated(
    attempt: Attempt, sinks: Array, top: Array, lse: Array, times: float
) -> Array:
    """Count each sink several times."""
    # n equal exponentials are one of a score that is larger by log(n).
    return np.asarray(sinks + np.log(times))


def _once_for_each_key(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Count each sink as often as there are keys."""
    return np.asarray(sinks + np.log(attempt.lengths[1]))


def _other_sign(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Negate the sinks."""
    return -sinks


def _inverse_gate(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Return sinks for which the gate sigmoid(lse - sink) has the other sign."""
    # With s' = 2 lse - s the gate sigmoid(lse - s') is sigmoid(s - lse).
    return np.asarray(2.0 * lse - sinks)


def _as_weights(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Take the sinks for exponentials."""
    return np.log(sinks)


def _scaled(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Scale the sinks as the scores."""
    return np.asarray(attempt.get("scale") * sinks)


def _capped(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Cap the sinks as the scores."""
    # Without a cap the result is nan, which explains no results.
    return capped(sinks, attempt.keywords.get("softcap", np.nan), 1.0)


def _zeros(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Use scores of 0."""
    return np.zeros_like(sinks)


def _in_base_two(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Take 2 to the power of the sinks."""
    return np.asarray(sinks * np.log(2.0))


def _times_log2_e(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Convert the sinks to base 2, for a softmax in base e."""
    return np.asarray(sinks / np.log(2.0))


def _largest_score(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Use the maximum of the scores."""
    return top


def _exponentiated(attempt: Attempt, sinks: Array, top: Array, lse: Array) -> Array:
    """Take the exponential of the sinks, of which the softmax takes another."""
    return np.exp(sinks)


# A softmax of n parts of the keys, each with the sinks, counts these n times.
_PARTS = "{}, as where each part of the keys has it again"
#: Rules of sinks, in words to follow "the sinks".
SINKS: dict[str, Sink] = {
    "without the maximum of the scores subtracted": _with_maximum,
    "without the scores' maximum, which is subtracted twice": _maximum_twice,
    _PARTS.format("twice"): partial(_repeated, times=2.0),
    _PARTS.format("three times"): partial(_repeated, times=3.0),
    _PARTS.format("four times"): partial(_repeated, times=4.0),
    "once for each key": _once_for_each_key,
    "with the other sign": _other_sign,
    "as a gate of the other sign, sigmoid(sink - lse)": _inverse_gate,
    "as weights, not as scores": _as_weights,
    "inside the scale": _scaled,
    "inside the cap": _capped,
    "as scores of 0": _zeros,
    "in base 2": _in_base_two,
    "times log2(e)": _times_log2_e,
    "of the maximum of the scores": _largest_score,
    "exponentiated twice": _exponentiated,
}


#: A function of the weights of the keys, and of the sink, (.., 1).
SinkColumn = Callable[[Array, Array], Array]


def _joined(first: Array, last: Array) -> Array:
    """Join columns."""
    return np.concatenate([first, last], axis=-1)


def _behind(weights: Array, sink: Array) -> Array:
    """Put the sink behind the keys, and drop the first column."""
    return _joined(weights[..., 1:], sink)


def _in_front(weights: Array, sink: Array) -> Array:
    """Put the sink in front of the keys, and drop the last column."""
    return _joined(sink, weights[..., :-1])


def _on_first_key(weights: Array, sink: Array) -> Array:
    """Add the weight of the sink to that of the first key."""
    return _joined(weights[..., :1] + sink, weights[..., 1:])


def _on_last_key(weights: Array, sink: Array) -> Array:
    """Add the weight of the sink to that of the last key."""
    return _joined(weights[..., :-1], weights[..., -1:] + sink)


#: Rules of the column of a sink that is not dropped, in words to follow "the sinks".
SINK_COLUMNS: dict[str, SinkColumn] = {
    "behind the keys, and the first column dropped: each key has the weight of the "
    "next one": _behind,
    "in front of the keys, and the last column dropped: each key has the weight of the "
    "one before": _in_front,
    "with their weight on the first key: drop it": _on_first_key,
    "with their weight on the last key: drop it": _on_last_key,
}
