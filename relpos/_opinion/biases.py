"""Known changes of biases by a rule: buckets of T5 and DeBERTa, slopes of ALiBi."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from itertools import product
from typing import NamedTuple

import numpy as np

from relpos._biases import alibi_slopes, deberta_bucket, t5_bucket
from relpos._checks import Array
from relpos._opinion.attempt import Attempt, relative_to, worded
from relpos._opinion.difference import Difference
from relpos._opinion.tables import axis_of, first_of, tables_of
from relpos._text import amount

#: Distances that published models end at, besides those of the call.
_REACHES = (128, 64, 256, 32, 20, 16, 512, 1024, 800, 2048, 4096)

#: Distances beyond this one have the bucket of this one.
_FARTHEST = 4096

# ---- buckets -------------------------------------------------------------------------


class Buckets(NamedTuple):
    """Settings of buckets: T5's, or DeBERTa's where `centre` is a row."""

    rows: int  # of the table; of DeBERTa the bucket_size
    reach: int  # max_distance or max_position
    both: bool = True  # directions
    centre: int | None = None


def _tried(length: int) -> list[int]:
    """List the last distances that buckets may have."""
    near = (length, length - 1, length + 1, 2 * length)
    # Distances of published models come first, since the first that fits is taken.
    return [*dict.fromkeys((*_REACHES, *near, *range(2, 128)))]


@lru_cache(maxsize=16)
def _settings_of(
    buckets: tuple[int, ...], first: int, rows: int
) -> tuple[Buckets, ...]:
    """Return settings that make these buckets, one of each number of rows."""
    if rows < 4:  # the rules need two exact rows and two by logarithm
        return ()
    r, expected = np.arange(len(buckets)) + first, np.array(buckets)
    kinds = [Buckets(rows, 0, both) for both in (True, False)]
    if first <= 0 < len(buckets) + first:
        centre = buckets[-first]
        # DeBERTa's buckets are counted from a row in the middle. The call does not have
        # its bucket size, which follows from all rows or from this one.
        sizes = ((rows + 1) // 2, centre, centre + 1)
        kinds += [Buckets(size, 0, centre=centre) for size in dict.fromkeys(sizes)]
    fitting = []
    for kind in kinds:
        for reach in _tried(len(buckets) // 2):
            settings = kind._replace(reach=reach)
            computed = buckets_of(settings, r)
            if computed is not None and np.array_equal(computed, expected):
                # Other distances that make the same buckets would only repeat the
                # attempts.
                fitting.append(settings)
                break
    return tuple(fitting)


def buckets_of(settings: Buckets, r: Array) -> Array | None:
    """Return the buckets of relative positions; None where there are none."""
    rows, reach, both, centre = settings
    with suppress(ValueError):
        if centre is None:
            return t5_bucket(
                r, bidirectional=both, num_buckets=rows, max_distance=reach
            )
        return centre + deberta_bucket(r, bucket_size=rows, max_position=reach)
    return None


def by_buckets(
    attempt: Attempt, rule: Callable[[Buckets, Array], Iterator[Array | None]]
) -> Iterator[Attempt]:
    """Use the other buckets of relative positions that a rule yields."""
    buckets, names = attempt.get("buckets"), tables_of(attempt)
    if buckets is None or not names:
        return
    rows = attempt.get(names[0]).shape[axis_of(names[0])]
    # A list of buckets may end before the call does: it is made for all distances of
    # both.
    first, reach = first_of(attempt, names[0]), relative_to(attempt)
    reach = np.clip(reach, -_FARTHEST, _FARTHEST)
    last = max(first + len(buckets) - 1, int(reach.max(initial=0)))
    r = np.arange(min(first, int(reach.min(initial=0))), last + 1)
    right = np.clip(r - first, 0, len(buckets) - 1)
    # Many settings make the same buckets. The right ones are among them, so that no
    # attempt is the formula itself.
    seen = {np.asarray(buckets, np.int64)[right].tobytes()}
    for settings in _settings_of(tuple(map(int, buckets)), first, rows):
        for computed in rule(settings, r):
            if computed is None:
                continue
            other = np.clip(computed, 0, rows - 1).astype(np.int64)
            if other.tobytes() in seen:
                continue
            seen.add(other.tobytes())
            start = int(r[0])
            yield attempt.with_keywords(buckets=other, min_relative_position=start)


def other_reach(settings: Buckets, r: Array) -> Iterator[Array | None]:
    for reach in _tried(len(r) // 2 + 1):
        yield buckets_of(settings._replace(reach=reach), r)


def _of_direction(
    settings: Buckets, r: Array, later: Callable[[Array, int], Array] = np.greater
) -> tuple[int, Array, Array]:
    """Return the buckets of T5 of one direction, distances in it, and its bucket 0."""
    if settings.both:
        rows = settings.rows // 2
        return rows, np.abs(r), np.where(later(r, 0), rows, 0)
    return settings.rows, np.maximum(-r, 0), np.zeros_like(r)


def by_logarithm(
    settings: Buckets,
    r: Array,
    rounding: Callable[[Array], Array],
    exact: int | None = None,
    later: Callable[[Array, int], Array] = np.greater,
) -> Array:
    """Return buckets by a logarithm, with another rounding or exact part."""
    if settings.centre is not None:
        # DeBERTa's buckets have a sign, are exact up to the middle itself, and have one
        # bucket and one distance fewer in the logarithm than T5's.
        n, middle = np.abs(r), exact or settings.rows // 2
        width, last = settings.rows // 2 - 1, settings.reach - 1
        share = np.log(np.maximum(n, 1) / middle) / np.log(last / middle)
        far = middle + rounding(share * width)
        return settings.centre + np.sign(r) * np.where(n <= middle, n, far)
    rows, n, side = _of_direction(settings, r, later)
    exact = exact or rows // 2
    share = np.log(np.maximum(n, 1) / exact) / np.log(settings.reach / exact)
    # All distances from the last one on have the last bucket of their side.
    far = np.minimum(exact + rounding(share * (rows - exact)), rows - 1)
    return np.asarray(side + np.where(n < exact, n, far))


def other_logarithm(settings: Buckets, r: Array) -> Iterator[Array]:
    if settings.centre is not None:
        return
    rows, n, side = _of_direction(settings, r)
    exact = rows // 2
    for over, under, width, end in product(
        (exact, 1),  # divides the distance; `exact` is right
        (settings.reach / exact, settings.reach),  # in the other logarithm
        (rows - exact, settings.rows - exact, rows, settings.rows),
        (True, False),  # the last bucket is the end
    ):
        share = np.log(np.maximum(n, 1) / over) / np.log(under)
        far = exact + np.floor(share * width)
        if end:
            far = np.minimum(far, rows - 1)
        yield side + np.where(n < exact, n, far)


def other_rounding(settings: Buckets, r: Array) -> Iterator[Array]:
    for rounding in (np.round, np.ceil, np.floor):
        yield by_logarithm(settings, r, rounding)


def other_sides(settings: Buckets, r: Array) -> Iterator[Array | None]:
    """Make the decoder's buckets for the encoder, or the other way round."""
    if settings.centre is None:
        yield buckets_of(settings._replace(both=not settings.both), r)


def own_side(settings: Buckets, r: Array) -> Iterator[Array]:
    if settings.centre is None and settings.both:
        yield by_logarithm(settings, r, np.floor, later=np.greater_equal)


def other_exact(settings: Buckets, r: Array) -> Iterator[Array | None]:
    rows = settings.rows // (2 if settings.both else 1)
    # The rounding stays that of the rule: DeBERTa rounds upwards, and T5 downwards.
    rounding = np.ceil if settings.centre is not None else np.floor
    for exact in dict.fromkeys((rows // 4, rows // 2 + 1, rows // 2 - 1, rows)):
        if 0 < exact < settings.reach - 1:
            yield by_logarithm(settings, r, rounding, exact)


def fewer_buckets(settings: Buckets, r: Array) -> Iterator[Array | None]:
    for fewer, reach in product(
        range(settings.rows - 1, 1, -1), (settings.reach, *_REACHES)
    ):
        yield buckets_of(settings._replace(rows=fewer, reach=reach), r)


# ---- slopes --------------------------------------------------------------------------


class Slopes(NamedTuple):
    """Slopes (H, 1) of a bias that falls with the distance, and relative positions."""

    slopes: Array
    r: Array


def slopes_of(attempt: Attempt) -> Slopes | None:
    """Return the slopes of a bias by relative position, or None for another bias."""
    bias = attempt.get("rel_bias")
    if bias is None or not tables_of(attempt) or attempt.get("buckets") is not None:
        return None
    r = np.arange(bias.shape[-1]) + first_of(attempt, "rel_bias")
    distance = np.abs(r)
    # The first entry alone gives the slopes. The bias is one of slopes if all others
    # agree.
    slopes = -bias[..., :1] / max(float(distance[0]), 1.0)
    if bias.ndim > 2 or not distance[0]:
        return None
    if not (slopes > 0).all() or not np.allclose(bias, -slopes * distance, rtol=1e-5):
        return None
    return Slopes(np.atleast_2d(slopes), r)


#: Words of a change, and slopes or biases.
Worded = tuple[str, Array]


def by_slopes(
    attempt: Attempt, rule: Callable[[Slopes], Iterator[Array | Worded]]
) -> Iterator[Attempt]:
    """Use the other slopes, (H,), or biases, (H or 1, R), that a rule yields."""
    known = slopes_of(attempt)
    if known is None:
        return
    right = attempt.get("rel_bias")
    for result in rule(known):
        words, bias = result if isinstance(result, tuple) else ("", result)
        if bias.ndim == 1:
            bias = -bias[:, None] * np.abs(known.r)
        # A bias without an axis of heads is put back without it.
        bias = np.broadcast_to(bias, np.atleast_2d(right).shape).reshape(right.shape)
        # The slopes of many heads are small, so that only relative differences count.
        if not np.allclose(bias, right, rtol=1e-9, atol=0):
            yield attempt.told(words, rel_bias=bias)


def _power(heads: int) -> Array:
    """Return the slopes by the rule for 2^n heads."""
    return np.asarray(2.0 ** (-8.0 * np.arange(1, heads + 1) / heads))


def _are_usual(alibi: Slopes) -> bool:
    return np.allclose(alibi.slopes[:, 0], alibi_slopes(len(alibi.slopes)))


def plain_slopes(alibi: Slopes) -> Iterator[Array]:
    if _are_usual(alibi):
        yield _power(len(alibi.slopes))


def slopes_of_other_heads(alibi: Slopes) -> Iterator[Array]:
    """Use the slopes of this number of heads, or a part of those of another number."""
    heads = len(alibi.slopes)
    if not _are_usual(alibi):
        yield from (alibi_slopes(heads), _power(heads))
    for count, rule in product((2, 4, 8, 3), (alibi_slopes, _power)):
        slopes = rule(count * heads)
        # A rank has heads that follow each other, or each count-th one.
        yield from slopes.reshape(count, heads)
        yield from (slopes[::count], slopes[count - 1 :: count])
    for count, rule in product(range(1, heads), (alibi_slopes, _power)):
        # Fewer slopes than heads are repeated as a whole, or one by one.
        yield np.resize(rule(count), heads)
        if heads % count == 0:
            yield np.repeat(rule(count), heads // count)


def slopes_from_one(alibi: Slopes) -> Iterator[Array]:
    heads = len(alibi.slopes)
    for count in (heads, 2 * heads, max(heads - 1, 1)):
        yield 2.0 ** (-8.0 * np.arange(heads) / count)


def slopes_in_other_order(alibi: Slopes) -> Iterator[Worded]:
    right = alibi.slopes[:, 0]
    orders = {
        "in the reverse order of the heads": right[::-1],
        "from the largest on": np.sort(right)[::-1],
        "from the smallest on": np.sort(right),
    }
    for step in range(1, min(len(right), 16)):
        orders[f"rolled by {amount(step, 'head')}"] = np.roll(right, step)
    for words, slopes in orders.items():
        yield f"ALiBi's slopes {words}", slopes


def slopes_by_other_rules(alibi: Slopes) -> Iterator[Array]:
    right, heads = alibi.slopes[:, 0], len(alibi.slopes)
    h = np.arange(1.0, heads + 1)
    # Heads are counted from 1 or from 0, along a line and then along powers.
    for count in (h, h - 1):
        yield from (count / heads, 1.0 - count / heads)
        for base, most in product((2.0, np.e, 10.0), (8.0, 4.0, 16.0, 1.0, heads)):
            yield base ** (-most * count / heads)
    yield from (1.0 / h, right**2, np.sqrt(right), 1.0 / right, -np.log2(right))
    yield from (right / 2, 2 * right)
    for one in (1.0, 1.0 / heads, right[0], right[-1], right.mean()):
        yield np.full(heads, one)
    closest = 2 ** int(np.log2(heads))  # other ways to fill a number that is no 2^n
    first, more, missing = _power(closest), _power(2 * closest), heads - closest
    for others in (more[1::2], more, first, more[::-1], more[::2][::-1]):
        yield np.concatenate([first, others[:missing]])
        yield np.concatenate([others[:missing], first])
    yield more[:heads]


def signed_distance(alibi: Slopes) -> Iterator[Worded]:
    r = alibi.r
    for words, distance in (
        ("key - query, with its sign", r),
        ("query - key, with its sign", -r),
        ("the distance of earlier keys alone", np.minimum(r, 0)),
        ("the distance of later keys alone", np.minimum(-r, 0)),
    ):
        detail = f"ALiBi's slopes times {words}: take -slope * |key - query| for all"
        yield detail, alibi.slopes * distance


def other_distance(alibi: Slopes) -> Iterator[Worded]:
    n = np.abs(alibi.r)
    farthest = max(int(n.max()), 1)
    distances = {
        "the square of the distance": n**2,
        "the root of the distance": np.sqrt(n),
        "log(1 + distance)": np.log1p(n),
        "the distance over the largest": n / farthest,
        "the distance over the length": n / (farthest + 1),
    }
    for last in range(1, min(farthest, 64)):
        distances[f"the distance, clipped at {last}"] = np.minimum(n, last)
    distances["1 for all other keys"] = n > 0
    for words, distance in distances.items():
        detail = f"ALiBi's slopes times {words}, not times |key - query|"
        yield detail, -alibi.slopes * distance


#: Rows of the table of differences.
ROWS: tuple[Difference, ...] = (
    Difference(
        name="alibi_slopes",
        words=(
            "ALiBi's slopes by the rule for 2^n heads, where the number of heads is "
            "none"
        ),
        forms=[partial(by_slopes, rule=plain_slopes)],
        tried="alone",
    ),
    Difference(
        name="alibi_heads",
        words=(
            "ALiBi's slopes of another number of heads: those of all heads of the "
            "model, of which a rank takes its part, have other values"
        ),
        forms=[partial(by_slopes, rule=slopes_of_other_heads)],
        tried="alone",
    ),
    Difference(
        name="alibi_slopes_from_one",
        words=(
            "ALiBi's slopes from 1: head h of H, counted from 1, has the slope "
            "2^(-8 h / H), not 2^(-8 (h - 1) / H)"
        ),
        forms=[partial(by_slopes, rule=slopes_from_one)],
        tried="alone",
    ),
    Difference(
        name="alibi_slopes_order",
        words="ALiBi's slopes in another order of the heads",
        forms=[partial(by_slopes, rule=slopes_in_other_order)],
        tried="alone",
    ),
    Difference(
        name="alibi_slopes_rule",
        words=(
            "ALiBi's slopes by another rule than 2^(-8 h / H) for head h of H, from 1"
        ),
        forms=[partial(by_slopes, rule=slopes_by_other_rules)],
        tried="alone",
    ),
    Difference(
        name="alibi_distance_other",
        words=(
            "ALiBi's slopes times another function of the distance than |key - query|"
        ),
        forms=[partial(by_slopes, rule=other_distance)],
        tried="alone",
    ),
    Difference(
        name="bucket_sides",
        words=(
            "the buckets of one direction for both, or of both for one (bidirectional)"
        ),
        forms=[partial(by_buckets, rule=other_sides)],
        tried="alone",
    ),
    Difference(
        name="bucket_rounding",
        words=(
            "the buckets' logarithm rounded otherwise: T5 rounds it downwards, DeBERTa "
            "upwards"
        ),
        forms=[partial(by_buckets, rule=other_rounding)],
        tried="alone",
    ),
    Difference(
        name="bucket_distance",
        words=(
            "buckets that end at another distance: another max_distance "
            "(max_position), such as the default 128 or the length, or no logarithm"
        ),
        forms=[partial(by_buckets, rule=other_reach)],
        tried="alone",
    ),
    Difference(
        name="bucket_logarithm",
        words=(
            "buckets by another logarithm than log(n / exact) / log(max_distance / "
            "exact), times another number than num_buckets - exact, both of one side, "
            "or without the last bucket as the end"
        ),
        forms=[partial(by_buckets, rule=other_logarithm)],
        tried="alone",
    ),
    Difference(
        name="bucket_own_side",
        words="the own position in the bucket of later keys, whose first distance is 1",
        forms=[partial(by_buckets, rule=own_side)],
        tried="alone",
    ),
    Difference(
        name="bucket_numbers",
        words=(
            "buckets of which another number is exact, or that are fewer (num_buckets)"
        ),
        forms=[
            worded(
                "buckets of which another number is exact than half of those of a side",
                partial(by_buckets, rule=other_exact),
            ),
            worded(
                "fewer buckets (num_buckets)", partial(by_buckets, rule=fewer_buckets)
            ),
        ],
        tried="alone",
    ),
)
