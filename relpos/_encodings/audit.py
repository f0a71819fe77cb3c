r"""Measure how far an encoding of positions meets the five requirements on one.

`audit_encoding` has the formulas. The first two are one requirement in two parts. An
encoding can be learnable in ways that a linear readout does not show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    ArrayLike,
    as_floating,
    as_int,
    as_integers,
    kind_of,
    quiet,
    widened,
)
from relpos._text import html_table, table_lines

__all__ = ["EncodingAudit", "audit_encoding"]

if TYPE_CHECKING:
    Encoder = Callable[[int, int], ArrayLike]


#: Differences up to this many units of the dtype's rounding count as none.
_ROUNDINGS = 4
#: Share that a fit must reach: chance gives 0.5 of the order and 0 of the distances.
_FORETOLD = 0.9
#: Word embeddings are taken to lie in [-1, 1], as the requirement assumes.
_SMALL = 1.0
#: Halfway, on the logarithmic scale, between linear and quadratic cost.
_EXPONENT = 1.5
#: Distances r looked at: near ones, so that the cost stays proportional to the length.
_MAX_DISTANCE = 64
_TIMINGS = 5
_HEADER = ("", "met", "measured", "limit", "what")


class Finding(NamedTuple):
    """One measured number and the limit that it is compared with.

    Attributes
    ----------
    value : float
        NaN where there was nothing to measure.
    relation : {">=", "<="}
    limit : float
    quantity : str
        Name of the number.
    note : str
    """

    value: float
    relation: str
    limit: float
    quantity: str
    note: str = ""

    @property
    def _words(self) -> str:
        """Describe the number, with the note if there is one."""
        return f"{self.quantity} ({self.note})" if self.note else self.quantity

    @property
    def met(self) -> bool:
        """Return True for a number within its limit, which NaN never is."""
        if self.relation == ">=":
            return self.value >= self.limit
        return self.value <= self.limit


class EncodingAudit(NamedTuple):
    """Findings of `audit_encoding`; its repr is a table, a line for each.

    Attributes
    ----------
    unique, consistent, order, extrapolation, small, scalable : Finding
        Each ``(value, relation, limit, quantity, note)``, with the property `met`.
    """

    unique: Finding
    consistent: Finding
    order: Finding
    extrapolation: Finding
    small: Finding
    scalable: Finding

    def _rows(self) -> list[list[str]]:
        return [
            [
                name,
                "yes" if finding.met else "no",
                f"{finding.value:.3g}",
                f"{finding.relation} {finding.limit:.2g}",
                finding._words,
            ]
            for name, finding in zip(self._fields, self, strict=True)
        ]

    def __repr__(self) -> str:
        return "\n".join(table_lines(_HEADER, self._rows(), left=(0, 4)))

    def _repr_html_(self) -> str:
        return html_table(_HEADER, self._rows())


def audit_encoding(
    encode: Encoder, *, lengths: Sequence[int], dim: int
) -> EncodingAudit:
    r"""Measure the five requirements on an encoding of positions.

    Each position has its own vector, the same for every length (unique and consistent);
    the vectors show the order, also beyond the lengths known so far (extrapolation);
    their values are small, and they are cheap for long sequences (scalable).

    With :math:`P^L` the encoding of length L, m the shortest and M the longest length,
    :math:`P = P^M`, :math:`d_{nr} = |P_{n+r} - P_n|` and :math:`t_L` CPU time,

    .. math::

        unique &= \min_{n \ne n'} \max_c |P_{nc} - P_{n'c}| \,/\, small \\
        consistent &= \max_{L, n, c} |P^L_{nc} - P_{nc}| \,/\, small \\
        order &= \text{share of } n < n' \text{ with } w P_n < w P_{n'} \\
        extrapolation &= 1 - \frac{\sum_{r, n \ge m} (d_{nr} - \delta_r)^2}
                               {\sum_{r, n \ge m} (d_{nr} - \bar d)^2} \\
        small &= \max_{L, n, c} |P^L_{nc}| \\
        scalable &= \log(t_M / t_{M/4}) \,/\, \log 4

    where w is a linear readout of the position, fitted to the even positions and tried
    on the odd ones, :math:`\delta_r` the mean of :math:`|P^m_{n+r} - P^m_n|`, and
    :math:`\bar d` that of the d summed over; r goes to 64 at most.

    Parameters
    ----------
    encode : callable
        ``encode(length, dim)`` returns the floating (length, dim) encoding. A length
        that it does not serve raises IndexError or ValueError, and that is a finding.
    lengths : sequence of int
        At least two different ones, the longest at least twice the shortest, which is
        at least 4. The shortest is the length that a model was trained on, the longest
        one that it is used with.
    dim : int
        Columns.

    Returns
    -------
    EncodingAudit
        The named tuple ``(unique, consistent, order, extrapolation, small, scalable)``.
        Each is a `Finding`, ``(value, relation, limit, quantity, note)`` with the
        property `met`: the measured number, its limit, and the name of the number.

    Raises
    ------
    TypeError
        If `encode` returns anything but a floating array.
    ValueError
        If `lengths` are too small or too close, or `encode` returns another shape or
        values that are not finite.
    IndexError, ValueError
        As `encode` raises them, where it does not serve even two of the lengths.

    See Also
    --------
    relpos.plot.audit : Draws the findings.

    References
    ----------
    .. [1] "Positional Encodings: Overview", a notebook of the SELENE collection.

    Examples
    --------
    A random encoding does not show which positions are near:

    >>> import relpos
    >>> audit = relpos.audit_encoding(
    ...     lambda length, dim: relpos.random_encoding(length, dim, rng=0),
    ...     lengths=(64, 128, 256), dim=32
    ... )
    >>> audit.unique.met, audit.small.met, audit.order.met, audit.extrapolation.met
    (True, True, False, False)
    """
    if not callable(encode):
        raise TypeError(f"encode: got {kind_of(encode)}; expected a callable")
    columns = as_int("dim", dim, 1, POSITION_LIMIT)
    encodings, refusal = _encode_all(encode, _checked_lengths(lengths), columns)
    known, longest = encodings[0], encodings[-1]
    largest = max(float(np.abs(p).max()) for p in encodings)
    limit = _ROUNDINGS * float(np.finfo(longest.dtype).eps)
    unit = largest or 1.0
    return EncodingAudit(
        unique=Finding(
            _closest(longest) / unit, ">=", limit, "least gap between two positions"
        ),
        consistent=Finding(
            _drift(encodings) / unit, "<=", limit, "change of a vector with the length"
        ),
        order=Finding(
            _ordered_share(longest), ">=", _FORETOLD, "pairs put in order by a readout"
        ),
        extrapolation=Finding(
            math.nan if refusal else _foretold_share(known, longest),
            ">=",
            _FORETOLD,
            "distances beyond the known, foretold",
            refusal,
        ),
        small=Finding(largest, "<=", _SMALL, "largest value"),
        scalable=_cost(encode, len(longest), columns),
    )


def _checked_lengths(lengths: Sequence[int]) -> list[int]:
    distinct = {*as_integers("lengths", lengths).ravel().tolist()}
    checked = [as_int("lengths", x, 4, POSITION_LIMIT) for x in sorted(distinct)]
    if not checked or checked[-1] < 2 * checked[0]:
        raise ValueError(
            f"lengths: got {checked}; expected the longest to be at least twice the "
            "shortest"
        )
    return checked


def _encode_all(
    encode: Encoder, lengths: list[int], dim: int
) -> tuple[list[Array], str]:
    """Encodings of all lengths that `encode` serves, and why it refused the next."""
    encodings: list[Array] = []
    for length in lengths:
        try:
            values = encode(length, dim)
        except (IndexError, ValueError) as error:
            if len(encodings) < 2:  # too few to compare: a wrong call, not a limit
                raise
            return encodings, f"length {length}: {type(error).__name__}"
        encodings.append(_checked_encoding(values, (length, dim)))
    return encodings, ""


def _checked_encoding(values: ArrayLike, shape: tuple[int, int]) -> Array:
    array = widened(as_floating("encode", values))
    if array.shape != shape:
        raise ValueError(
            f"encode: encode{shape} returned shape {array.shape}; expected {shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"encode: encode{shape} returned values that are not finite; expected "
            "finite ones"
        )
    return array.copy()  # encode may use its array again


@quiet
def _closest(encoding: Array) -> float:
    """Least distance between two positions, in the column where they differ most."""
    wide = encoding.astype(np.float64)
    return min(
        float(np.abs(wide[n + 1 :] - wide[n]).max(axis=1).min())
        for n in range(len(wide) - 1)
    )


@quiet
def _drift(encodings: list[Array]) -> float:
    """Largest change of a value between a length and the longest."""
    longest = encodings[-1].astype(np.float64)
    return max(float(np.abs(p - longest[: len(p)]).max()) for p in encodings[:-1])


@quiet
def _ordered_share(encoding: Array) -> float:
    """Share of pairs of odd positions in the order that the even ones teach."""
    # A line is fitted to the even positions, and read off at the odd ones.
    design = np.column_stack([encoding.astype(np.float64), np.ones(len(encoding))])
    position = np.arange(len(encoding)) - len(encoding) / 2
    # Directions below a millionth of the largest are rounding of float32 encodings.
    fit = np.linalg.lstsq(design[::2], position[::2], rcond=1e-6)[0]
    read = design[1::2] @ fit
    first, second = np.triu_indices(len(read), 1)
    return float((read[first] < read[second]).mean())


@quiet
def _foretold_share(known: Array, longest: Array) -> float:
    """Share of the variance of distances between new positions that known ones tell."""
    start = len(known)
    new = longest[start:]
    measured, guessed = [], []
    for r in range(1, min(start, len(new), _MAX_DISTANCE + 1)):
        distances = _distances(new, r)
        measured.append(distances)
        guessed.append(np.full(distances.shape, _distances(known, r).mean()))
    distance, guess = np.concatenate(measured), np.concatenate(guessed)
    variance = float(distance.var())
    if variance == 0:  # nothing to foretell
        return 0.0
    return 1 - float(((distance - guess) ** 2).mean()) / variance


def _distances(encoding: Array, r: int) -> Array:
    wide = encoding.astype(np.float64)
    return np.asarray(np.linalg.norm(wide[r:] - wide[:-r], axis=1))


def _cost(encode: Encoder, length: int, dim: int) -> Finding:
    """Return the growth of CPU time from a quarter of the length to all of it."""
    quarter = length // 4
    unit = "power of the length in the time"
    try:
        # A clock that did not move is taken to have moved by its resolution.
        short = max(_seconds(encode, quarter, dim), 1e-9)
        long = max(_seconds(encode, length, dim), 1e-9)
    except (IndexError, ValueError) as error:
        note = f"length {quarter}: {type(error).__name__}"
        return Finding(math.nan, "<=", _EXPONENT, unit, note)
    note = f"{long / (length * dim) * 1e9:.2g} ns a value"
    exponent = math.log(long / short) / math.log(length / quarter)
    return Finding(exponent, "<=", _EXPONENT, unit, note)


def _seconds(encode: Encoder, length: int, dim: int) -> float:
    fastest = math.inf
    for _ in range(_TIMINGS):
        start = process_time()
        encode(length, dim)
        fastest = min(fastest, process_time() - start)
    return fastest
