"""What people do to tables and to the rows that pairs take of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relpos._biases.t5 import t5_bucket
from relpos._checks import Array
from relpos._opinion.attempt import Attempt, relative_to

TABLES = ("rel_key", "rel_query", "rel_value", "rel_bias")
Change = Callable[[Attempt], Attempt | None]


def tables_of(attempt: Attempt) -> list[str]:
    """The tables that are placed by relative position."""
    if "labels" in attempt.keywords:
        return []
    return [name for name in TABLES if name in attempt.keywords]


def rows_of(attempt: Attempt, name: str) -> int:
    """How many relative positions a table serves."""
    buckets, table = attempt.get("buckets"), attempt.get(name)
    if buckets is not None:
        return len(buckets)
    return int(table.shape[-1 if name == "rel_bias" else -2])


def first_of(attempt: Attempt, name: str) -> int:
    """Relative position of row 0."""
    first, rows = attempt.get("min_relative_position"), rows_of(attempt, name)
    others = [rows_of(attempt, other) for other in tables_of(attempt)]
    own = name == "rel_bias" and any(count != rows for count in others)
    return -(rows // 2) if first is None or own else int(first)


def taken(table: Array, rows: Array, axis: int) -> Array:
    """Rows of a table; of those that are negative, zeros."""
    found = np.array(np.take(table, np.maximum(rows, 0), axis=axis))
    np.moveaxis(found, axis, 0)[rows < 0] = 0
    return found


def reordered(
    attempt: Attempt,
    rows: Callable[[Array, int], Array],
    names: tuple[str, ...] = TABLES,
) -> Attempt | None:
    """Tables whose row t is the row that `rows` says, of (t, its relative position)."""
    here = [name for name in tables_of(attempt) if name in names]
    if not here:
        return None
    if (buckets := attempt.get("buckets")) is not None:
        wanted = rows(np.arange(len(buckets)), first_of(attempt, here[0]))
        if len(here) < len(tables_of(attempt)) or (wanted < 0).any():
            return None
        return attempt.with_keywords(buckets=np.asarray(buckets)[wanted])
    changed = {}
    for name in here:
        table = attempt.get(name)
        axis = -1 if name == "rel_bias" else -2
        wanted = rows(np.arange(table.shape[axis]), first_of(attempt, name))
        changed[name] = taken(table, wanted, axis)
    return attempt.with_keywords(**changed)


def backwards(t: Array, first: int) -> Array:
    """Row t from the other end."""
    return t[::-1]


def whole_table_reversed(attempt: Attempt) -> Attempt | None:
    """Every table from its other end."""
    return None if "buckets" in attempt.keywords else reordered(attempt, backwards)


def buckets_reversed(attempt: Attempt) -> Attempt | None:
    """The list of buckets from its other end."""
    return reordered(attempt, backwards) if "buckets" in attempt.keywords else None


def query_table_reversed(attempt: Attempt) -> Attempt | None:
    if len(tables_of(attempt)) < 2:
        return None
    return reordered(attempt, backwards, ("rel_query",))


def value_table_reversed(attempt: Attempt) -> Attempt | None:
    if len(tables_of(attempt)) < 2:
        return None
    return reordered(attempt, backwards, ("rel_value",))


def by_position(change: Callable[[Array], Array], beyond: str) -> Change:
    """Row of r becomes the row of change(r); beyond the table clipped, 0 or wrapped."""

    def rows(t: Array, first: int) -> Array:
        wanted = change(t + first) - first
        if beyond == "wrap":
            return wanted % len(t)
        inside = np.clip(wanted, 0, len(t) - 1)
        return inside if beyond == "clip" else np.where(wanted == inside, wanted, -1)

    return lambda attempt: reordered(attempt, rows)


def negated(attempt: Attempt) -> Attempt | None:
    """Query minus key, where that is not the table from the other end."""
    firsts = {(rows_of(attempt, n), first_of(attempt, n)) for n in tables_of(attempt)}
    if len(firsts) != 1:
        return None
    ((rows, first),) = firsts
    last = first + rows - 1
    turned = None if last == -first else reordered(attempt, backwards)
    return turned and turned.with_keywords(min_relative_position=-last)


def moved(step: int) -> Change:
    """Every table begins `step` later, and is clipped after that."""

    def change(attempt: Attempt) -> Attempt | None:
        here = tables_of(attempt)
        if not here or len({first_of(attempt, name) for name in here}) > 1:
            return None
        first = first_of(attempt, here[0]) - step
        return attempt.with_keywords(min_relative_position=first)

    return change


def has_2n_rows(attempt: Attempt) -> bool:
    """Whether each table has an even number of rows, and so none in the middle."""
    here = tables_of(attempt)
    return bool(here) and all(
        rows_of(attempt, name) % 2 == 0
        and first_of(attempt, name) + rows_of(attempt, name) // 2 in (0, 1)
        for name in here
    )


def two_sided(attempt: Attempt) -> Attempt | None:
    """A causal call's table of the past with relative position 0 in its middle row."""
    return _causal_table(attempt, lambda rows: (1 - rows, -(rows // 2)))


def one_sided(attempt: Attempt) -> Attempt | None:
    """A causal call's table with relative position 0 in its middle row, in its last."""
    return _causal_table(attempt, lambda rows: (-(rows // 2), 1 - rows))


def _causal_table(
    attempt: Attempt, firsts: Callable[[int], tuple[int, int]]
) -> Attempt | None:
    """The keys' own table moved from one first relative position to another."""
    if tables_of(attempt) != ["rel_key"] or not attempt.get("is_causal"):
        return None
    now, other = firsts(rows_of(attempt, "rel_key"))
    if first_of(attempt, "rel_key") != now or now == other:
        return None
    return attempt.with_keywords(min_relative_position=other)


def other_origin(beyond: str) -> Change:
    """Of 2N rows, -N to N - 1 read as 1 - N to N or the other way round."""

    def change(attempt: Attempt) -> Attempt | None:
        if not has_2n_rows(attempt):
            return None
        name = tables_of(attempt)[0]
        early = first_of(attempt, name) == -(rows_of(attempt, name) // 2)
        return off_by(-1 if early else 1, beyond)(attempt)

    return change


def off_by(step: int, beyond: str) -> Change:
    """The row beside the right one."""
    if beyond == "later":
        return moved(step)
    return by_position(lambda r: r + step, beyond)


def mistaken_off_by(step: int, beyond: str) -> Change:
    """The same, but for what `other_origin` explains."""

    def change(attempt: Attempt) -> Attempt | None:
        return None if has_2n_rows(attempt) else off_by(step, beyond)(attempt)

    return change


def clipped_early(attempt: Attempt) -> Attempt | None:
    """At k - 1 of k, where some pair is that far apart."""
    r = relative_to(attempt)
    for name in tables_of(attempt):
        if attempt.get("buckets") is not None:
            return None
        reach = rows_of(attempt, name) // 2
        centred = first_of(attempt, name) == -reach and rows_of(attempt, name) % 2
        if not reach or not centred or not (np.abs(r) >= reach).any():
            return None

    def rows(t: Array, first: int) -> Array:
        return np.clip(t, 1, len(t) - 2)

    return reordered(attempt, rows)


def beyond_the_table(attempt: Attempt) -> Attempt | None:
    """Zeros in place of the end rows, or these in place of zeros."""
    if not tables_of(attempt) or not reaches_beyond(attempt):
        return None
    zero = attempt.get("beyond") == "zero"
    return attempt.with_keywords(beyond="clip" if zero else "zero")


def reaches_beyond(attempt: Attempt) -> bool:
    """Whether some pair that causality shows has no row of its own."""
    r = relative_to(attempt)
    r = r[r <= 0] if attempt.get("is_causal") else r
    spans = [(first_of(attempt, n), rows_of(attempt, n)) for n in tables_of(attempt)]
    return any(bool(((r < first) | (r >= first + rows)).any()) for first, rows in spans)


def labelled(rows: Callable[[Array, Attempt, int, int], Array]) -> Change:
    """The row of each pair by a rule of its own, as labels."""

    def change(attempt: Attempt) -> Attempt | None:
        here = tables_of(attempt)
        if not here or attempt.shifted:
            return None
        places = {(first_of(attempt, name), rows_of(attempt, name)) for name in here}
        if len(places) > 1:
            return None
        ((first, count),) = places
        labels = rows(relative_to(attempt), attempt, first, count)
        if (buckets := attempt.get("buckets")) is not None:
            labels = np.asarray(buckets)[labels]
        placing: dict[str, Any] = {"min_relative_position": None, "buckets": None}
        return attempt.with_keywords(labels=labels, beyond=None, **placing)

    return change


def by_negative_index(r: Array, attempt: Attempt, first: int, count: int) -> Array:
    """A row before the first counts from the end, as an index of Python does."""
    return (r - first) % count


def index_wraps(attempt: Attempt) -> Attempt | None:
    """Such rows, where some pair has one."""
    return labelled(by_negative_index)(attempt) if reaches_beyond(attempt) else None


def of_the_key(start: int) -> Callable[[Array, Attempt, int, int], Array]:
    """The row of key j: j rows after the first, or after the middle."""

    def rows(r: Array, attempt: Attempt, first: int, count: int) -> Array:
        absolute = np.arange(attempt.lengths[1]) + (0 if start else -first)
        return np.broadcast_to(np.clip(absolute, 0, count - 1), r.shape)

    return rows


def other_columns(to_pairs: bool) -> Change:
    """Columns sorted as sines and then cosines, or as pairs of the two."""

    def change(attempt: Attempt) -> Attempt | None:
        here = [n for n in ("rel_key", "rel_query") if n in attempt.keywords]
        if not here:
            return None
        changed = {}
        for name in here:
            table = attempt.get(name)
            columns = table.shape[-1]
            if columns % 2 or columns < 4:
                return None
            order = np.arange(columns)
            order = order.reshape(2, -1).T if to_pairs else order.reshape(-1, 2).T
            changed[name] = table[..., order.ravel()]
        return attempt.with_keywords(**changed)

    return change


def shared_by_values(attempt: Attempt) -> Attempt | None:
    """The table of keys for the values too, or that of values for the keys."""
    key, value = attempt.get("rel_key"), attempt.get("rel_value")
    if key is None or value is None or key.shape != value.shape:
        return None
    return attempt.with_keywords(rel_value=key)


def shared_by_queries(attempt: Attempt) -> Attempt | None:
    """The table that meets queries meets keys too."""
    key, query = attempt.get("rel_key"), attempt.get("rel_query")
    if key is None or query is None or key.shape != query.shape:
        return None
    return attempt.with_keywords(rel_query=key)


# ---- buckets and slopes --------------------------------------------------------------


def t5_settings(attempt: Attempt) -> dict[str, Any] | None:
    """What `t5_bucket` was given to make these buckets, or None."""
    buckets = attempt.get("buckets")
    if buckets is None or not tables_of(attempt):
        return None
    name = tables_of(attempt)[0]
    rows = attempt.get(name).shape[-1 if name == "rel_bias" else -2]
    if rows < 4:
        return None
    r = np.arange(len(buckets)) + first_of(attempt, name)
    for bidirectional in (True, False):
        for reach in (128, 64, 256, 32, 20, 16, 512, 1024, 800):
            if reach <= rows // (4 if bidirectional else 2):
                continue
            settings: dict[str, Any] = {"num_buckets": rows, "max_distance": reach}
            settings |= {"relative_position": r, "bidirectional": bidirectional}
            if np.array_equal(t5_bucket(**settings), buckets):
                return settings
    return None


def rebucketed(change: Callable[[dict[str, Any]], Array]) -> Change:
    """Other buckets than T5's, made of the settings of these."""

    def changed(attempt: Attempt) -> Attempt | None:
        settings = t5_settings(attempt)
        if settings is None:
            return None
        return attempt.with_keywords(buckets=change(settings))

    return changed


def rounded_buckets(
    rounding: Callable[[Array], Array],
) -> Callable[[dict[str, Any]], Array]:
    """The logarithm's buckets by another rounding than downwards."""

    def buckets(settings: dict[str, Any]) -> Array:
        r, rows = settings["relative_position"], settings["num_buckets"]
        n, side = np.maximum(-r, 0), np.zeros_like(r)
        if settings["bidirectional"]:
            rows //= 2
            n, side = np.abs(r), np.where(r > 0, rows, 0)
        exact = rows // 2
        share = np.log(np.maximum(n, 1) / exact) / np.log(
            settings["max_distance"] / exact
        )
        far = exact + rounding(share * (rows - exact)).astype(int)
        found: Array = side + np.where(n < exact, n, np.minimum(far, rows - 1))
        return found

    return buckets


def other_sides(settings: dict[str, Any]) -> Array:
    """The decoder's buckets in the encoder, or the other way round."""
    changed = {**settings, "bidirectional": not settings["bidirectional"]}
    return t5_bucket(**changed)


def plain_slopes(attempt: Attempt) -> Attempt | None:
    """ALiBi's slopes by the rule for 2^n heads where there are others."""
    bias = attempt.get("rel_bias")
    if bias is None or not tables_of(attempt) or attempt.get("buckets") is not None:
        return None
    heads, rows = bias.shape[-2:] if bias.ndim > 1 else (1, len(bias))
    distance = np.abs(np.arange(rows) + first_of(attempt, "rel_bias"))
    own = -bias[..., :1] / max(float(distance[0]), 1.0)
    if not distance[0] or not np.allclose(bias, -own * distance, rtol=1e-5):
        return None
    slopes = 2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)
    return attempt.with_keywords(rel_bias=-slopes[:, None] * distance)
