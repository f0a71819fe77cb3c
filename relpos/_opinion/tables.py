"""Known changes of tables, and of the rows of them that pairs take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt, Changes, relative_to
from relpos._text import amount

TABLES = ("rel_key", "rel_query", "rel_value", "rel_bias")


def tables_of(attempt: Attempt) -> list[str]:
    """List the tables that are placed by relative position."""
    return [] if "labels" in attempt.keywords else [*attempt.arguments(TABLES)]


def axis_of(name: str) -> int:
    return -1 if name == "rel_bias" else -2


def rows_of(attempt: Attempt, name: str) -> int:
    """Return the number of relative positions that a table serves."""
    buckets, table = attempt.get("buckets"), attempt.get(name)
    return int(table.shape[axis_of(name)]) if buckets is None else len(buckets)


def first_of(attempt: Attempt, name: str) -> int:
    """Return the relative position of row 0."""
    first, rows = attempt.get("min_relative_position"), rows_of(attempt, name)
    others = [rows_of(attempt, other) for other in tables_of(attempt)]
    # A bias of another length than the vectors is centred, whatever
    # `min_relative_position` says.
    is_other_bias = name == "rel_bias" and any(count != rows for count in others)
    return -(rows // 2) if first is None or is_other_bias else int(first)


def spans_of(attempt: Attempt) -> set[tuple[int, int]]:
    """Return the first relative position and the rows of each table."""
    names = tables_of(attempt)
    return {(first_of(attempt, name), rows_of(attempt, name)) for name in names}


def reordered(
    attempt: Attempt,
    rows: Callable[[Array, int], Array],
    names: tuple[str, ...] = TABLES,
) -> Attempt | None:
    """Make row t the row of `rows`(t, the first relative position); < 0 is zeros."""
    here = [name for name in tables_of(attempt) if name in names]
    if not here:
        return None
    buckets = attempt.get("buckets")
    if buckets is not None:
        # All tables have the same buckets, which can be moved, and cannot be zeros.
        sources = rows(np.arange(len(buckets)), first_of(attempt, here[0]))
        if here != tables_of(attempt) or (sources < 0).any():
            return None
        return attempt.with_keywords(buckets=np.asarray(buckets)[sources])
    changed = {}
    for name in here:
        table, axis = attempt.get(name), axis_of(name)
        sources = rows(np.arange(table.shape[axis]), first_of(attempt, name))
        # -1 would be read as the last row: another row is taken, and set to 0.
        moved = np.array(np.take(table, np.maximum(sources, 0), axis=axis))
        np.moveaxis(moved, axis, 0)[sources < 0] = 0
        changed[name] = moved
    return attempt.with_keywords(**changed)


def backwards(t: Array, first: int) -> Array:
    return t[::-1]


def all_reversed(attempt: Attempt, buckets: bool) -> Attempt | None:
    """Reverse the tables, or the buckets, in a call that has buckets or has none."""
    if ("buckets" in attempt.keywords) != buckets:
        return None
    return reordered(attempt, backwards)


def one_reversed(attempt: Attempt, name: str) -> Attempt | None:
    """Reverse one of several tables."""
    if len(tables_of(attempt)) < 2:
        return None
    return reordered(attempt, backwards, (name,))


def by_position(
    attempt: Attempt,
    change: Callable[[Array], Array],
    beyond: str = "clip",
    names: tuple[str, ...] = TABLES,
) -> Attempt | None:
    """Give r the row of change(r); beyond the table clip, take zeros or wrap."""

    def rows(t: Array, first: int) -> Array:
        # t is a row of the table, and t + first its relative position.
        sources = change(t + first) - first
        if beyond == "wrap":
            return sources % len(t)
        inside = np.clip(sources, 0, len(t) - 1)
        if beyond == "clip":
            return np.asarray(inside)
        return np.where(sources == inside, sources, -1)

    return reordered(attempt, rows, names)


def signless_past(r: Array) -> Array:
    """Return the relative position of the earlier key that is as far away."""
    return -np.abs(r)


def not_later(r: Array) -> Array:
    """Return relative positions, 0 for later keys."""
    return np.minimum(r, 0)


def not_earlier(r: Array) -> Array:
    """Return relative positions, 0 for earlier keys."""
    return np.maximum(r, 0)


def negated(attempt: Attempt) -> Attempt | None:
    """Read at query minus key, where that does not only reverse the table."""
    spans = spans_of(attempt)
    if len(spans) != 1:
        return None
    ((first, rows),) = spans
    last = first + rows - 1
    # A centred table would only be reversed, and "table_reversed" has that.
    if last == -first:
        return None
    reversed_table = reordered(attempt, backwards)
    if reversed_table is None:
        return None
    return reversed_table.with_keywords(min_relative_position=-last)


def reversed_within(attempt: Attempt) -> Iterator[Attempt | None]:
    """Reverse the rows of the call's relative positions, or of those up to 0 alone.

    They lie where they belong, or are the first or the last rows of the table.
    """
    reach, spans = relative_to(attempt), spans_of(attempt)
    if not reach.size:
        return
    first, lasts = int(reach.min()), {0, int(reach.max())}
    sums = {first + last for last in lasts}
    if len(spans) == 1:
        ((begin, rows),) = spans
        sums |= {begin + last for last in lasts} | {begin + rows - 1 + first}
    # A table without a row for the first relative position of the call cannot have its
    # rows reversed.
    if any(begin > first for begin, _ in spans):
        return
    # Rows reversed within a span have relative positions of one sum, r + r'. The sum
    # of the whole table is left to "table_reversed".
    whole_tables = {2 * begin + rows - 1 for begin, rows in spans}
    for both in sorted(sums - whole_tables):
        yield by_position(attempt, change=partial(np.subtract, both))


def has_2n_rows(attempt: Attempt) -> bool:
    """Return True if each table has an even number of rows, and no middle row."""
    spans = spans_of(attempt)
    # Row 0 of an even number of rows is -N or 1 - N, where N is half of them.
    return bool(spans) and all(
        rows % 2 == 0 and first + rows // 2 in (0, 1) for first, rows in spans
    )


def read_as(attempt: Attempt, kind: str) -> Attempt | None:
    """Read the keys' table as "two-sided" in a causal call, or as one of the "past"."""
    if tables_of(attempt) != ["rel_key"]:
        return None
    if kind == "two-sided" and not attempt.get("is_causal"):
        return None
    rows = rows_of(attempt, "rel_key")
    of_past, of_both = 1 - rows, -(rows // 2)
    right, other = (of_past, of_both) if kind == "two-sided" else (of_both, of_past)
    if first_of(attempt, "rel_key") != right or right == other:
        return None
    return attempt.with_keywords(min_relative_position=other)


#: Ways to move every row of a table.
WAYS = ("later", "clip", "zero", "wrap")


def off_by(attempt: Attempt, step: int, beyond: str) -> Attempt | None:
    """Take the row next to the right one; "later" begins every table later."""
    if beyond != "later":
        return by_position(attempt, change=partial(np.add, step), beyond=beyond)
    # One argument moves all tables, and says the same of them only if they begin
    # together.
    firsts = {first for first, _ in spans_of(attempt)}
    if len(firsts) != 1:
        return None
    return attempt.with_keywords(min_relative_position=firsts.pop() - step)


def other_origin(attempt: Attempt) -> Iterator[Attempt | None]:
    """Read 2N rows, -N to N - 1, as 1 - N to N, or the other way round."""
    if has_2n_rows(attempt):
        name = tables_of(attempt)[0]
        # A table from -N on is off by one row towards the past if it begins at 1 - N.
        early = first_of(attempt, name) == -(rows_of(attempt, name) // 2)
        yield from (off_by(attempt, -1 if early else 1, way) for way in WAYS)


def off_by_one(attempt: Attempt) -> Iterator[Attempt | None]:
    """Be off by one row, except where `other_origin` explains it."""
    if has_2n_rows(attempt):
        return
    for step, way in product((1, -1), WAYS):
        words = (
            f"the row {'after' if step > 0 else 'before'} the right one for each pair, "
            "as by a shift (skew) that is padded on the other side"
        )
        moved = off_by(attempt, step, way)
        if moved is not None:
            yield replace(moved, detail=words)


def clipped_early(attempt: Attempt, sides: tuple[str, ...]) -> Attempt | None:
    """Clip at k - 1 of k, of earlier or later keys, where a pair is that far apart."""
    farthest = np.abs(relative_to(attempt)).max(initial=0)
    for first, rows in spans_of(attempt):
        # A row for each distance up to k on both sides is an odd number of rows.
        centred = first == -(rows // 2) and rows % 2 and rows > 1
        if "buckets" in attempt.keywords or not centred or farthest < rows // 2:
            return None

    def clipped(t: Array, first: int) -> Array:
        begin = 1 if "earlier" in sides else 0
        end = len(t) - 2 if "later" in sides else len(t) - 1
        return np.clip(t, begin, end)

    return reordered(attempt, clipped)


def clipped_elsewhere(attempt: Attempt) -> Iterator[Attempt | None]:
    if "buckets" in attempt.keywords:
        return
    last = max((rows // 2 for _, rows in spans_of(attempt)), default=0)
    for most in range(1, min(last, 64)):
        clip = partial(np.clip, a_min=-most, a_max=most)
        clipped = by_position(attempt, change=clip)
        if clipped is not None:
            words = f"distances clipped at {most}, not at {last}, the largest"
            yield replace(clipped, detail=f"{words} of the table")


def beyond_the_table(attempt: Attempt) -> Attempt | None:
    """Use zeros beyond the table where its end rows are right, or the other way."""
    if not reaches_beyond(attempt):
        return None
    other = "clip" if attempt.get("beyond") == "zero" else "zero"
    return attempt.with_keywords(beyond=other)


def reaches_beyond(attempt: Attempt) -> bool:
    """Return True if some pair that causality shows has no row of its own."""
    r = relative_to(attempt)
    # What is hidden needs no row.
    r = r[r <= 0] if attempt.get("is_causal") else r
    return any(
        bool(((r < first) | (r >= first + rows)).any())
        for first, rows in spans_of(attempt)
    )


#: Words of a change, and the row of each pair.
Rows = Iterator[tuple[str, Array]]


def by_labels(rule: Callable[[Attempt, Array, int, int], Rows]) -> Changes:
    """Make changes of a rule of r, the first and the number of rows, to labels.

    It yields words and the row of each pair, in place of which the nearest is taken.
    """

    def changes(attempt: Attempt) -> Iterator[Attempt]:
        spans = spans_of(attempt)
        # A shift looks up no rows, and tables with other rows would need labels of
        # their own.
        if attempt.shifted or len(spans) != 1:
            return
        first, count = spans.pop()
        buckets = attempt.keywords.get("buckets", np.arange(count))
        # Labels say the row of each pair themselves, next to which these have no
        # meaning.
        unplaced = dict.fromkeys(("min_relative_position", "buckets", "beyond"))
        for words, rows in rule(attempt, relative_to(attempt), first, count):
            labels = np.asarray(buckets)[np.clip(rows, 0, count - 1)]
            yield attempt.told(words, labels=labels, **unplaced)

    return changes


@by_labels
def index_wraps(attempt: Attempt, r: Array, first: int, count: int) -> Rows:
    if reaches_beyond(attempt):
        yield "", (r - first) % count
    yield "", np.clip(r, first, first + count - 1) % count


@by_labels
def at_key(attempt: Attempt, r: Array, first: int, count: int) -> Rows:
    """Give key j the row that is j after the middle, or after the first."""
    # The sum with 0 gives the keys the shape of the pairs.
    j = np.arange(r.shape[-1]) + 0 * r
    yield from (("", j - first), ("", j))


@by_labels
def other_rows(attempt: Attempt, r: Array, first: int, count: int) -> Rows:
    j = np.arange(r.shape[-1])
    i = j - r
    rules = {
        "of the query's own position, whatever the key's": i,
        "of key minus the last query, for every query": j - i[..., -1:, :],
        "of key minus the first query, for every query": j - i[..., :1, :],
        "of distance 0, for every pair": 0 * r,
        "of key plus query": i + j,
        "of |key - query|": np.abs(r),
        "of key minus query, which counts from the end if it is negative": r % count,
        "of query minus key, which counts from the end if it is negative": -r % count,
    }
    for words, rows in rules.items():
        for start, first_row in (("the first row", 0), ("the middle row", count // 2)):
            yield (
                f"the row {words}, from {start}, not of key minus query",
                rows + first_row,
            )


def one_table(attempt: Attempt) -> Iterator[Attempt | None]:
    """Read one of several tables by another rule."""
    names = tables_of(attempt)
    if len(names) < 2:
        return
    rules: dict[str, Callable[[Array], Array]] = {
        "the row after the right one": partial(np.add, 1),
        "the row before the right one": partial(np.add, -1),
        "the row of the distance without its sign": np.abs,
        "the row of an earlier key for a later one": signless_past,
    }
    ways = ("clip", "zero", "wrap")
    for name, (words, rule), beyond in product(names, rules.items(), ways):
        changed = by_position(attempt, change=rule, beyond=beyond, names=(name,))
        if changed is not None:
            yield replace(changed, detail=f"{words}, in {name} alone")


def moved_rows(attempt: Attempt) -> Iterator[Attempt]:
    rows = max((count for _, count in spans_of(attempt)), default=0)
    for step in range(2, min(rows, 64)):
        for side, way in ((step, "after"), (-step, "before")):
            moved = by_position(attempt, change=partial(np.add, side))
            if moved is not None:
                yield replace(moved, detail=f"the row {step} rows {way} the right one")


def other_columns(attempt: Attempt, shape: tuple[int, int]) -> Attempt | None:
    """Read columns as if of this shape, and transposed: sines and cosines, or pairs."""
    changed = {}
    for name, table in attempt.arguments(("rel_key", "rel_query")).items():
        columns = table.shape[-1]
        if columns % 2 or columns < 4:
            return None
        # Columns as (2, columns / 2) are concatenated sines and cosines, and as
        # (columns / 2, 2) they alternate.
        changed[name] = table[..., np.arange(columns).reshape(shape).T.ravel()]
    return attempt.with_keywords(**changed) if changed else None


def taken(attempt: Attempt, /, **sources: str) -> Attempt | None:
    """Take each of these tables from another of the same shape."""
    names = {*sources, *sources.values()}
    # A table that is not there counts as one of a shape of its own.
    shapes = {getattr(attempt.get(name), "shape", name) for name in names}
    if len(shapes) > 1:
        return None
    new = {name: attempt.get(source) for name, source in sources.items()}
    return attempt.with_keywords(**new)


def used_for(attempt: Attempt, source: str, target: str) -> Iterator[Attempt]:
    """Use the table of the source for a target without one, alone or for both."""
    needed, unwanted = {source}, {target}
    if target == "rel_value":
        needed.add("value")
    if source == "rel_key":  # these arguments would have no meaning without it
        unwanted |= {"pos_bias_v", "position_query"}
    names = attempt.keywords.keys()
    if not needed <= names or unwanted & names:
        return
    table = attempt.get(source)
    for table_of_source in (None, table):
        yield attempt.with_keywords(**{source: table_of_source, target: table})


def multiplied(attempt: Attempt, factor: float) -> Attempt | None:
    """Multiply the tables of scores, and the numbers of a mask, by a factor."""
    terms = attempt.arguments(("rel_key", "rel_query", "rel_bias", "attn_mask"))
    multiples = {name: factor * x for name, x in terms.items() if x.dtype != bool}
    return attempt.with_keywords(**multiples) if multiples else None


def u_v_reshaped(attempt: Attempt) -> Iterator[Attempt]:
    biases = attempt.arguments(("pos_bias_u", "pos_bias_v"))
    if biases and all(x.ndim == 2 for x in biases.values()):
        read = {name: x.reshape(x.shape[::-1]).T for name, x in biases.items()}
        yield attempt.told("u and v reshaped from (D, H), not transposed", **read)
        read = {name: x.T.reshape(x.shape) for name, x in biases.items()}
        yield attempt.told("u and v reshaped to (D, H), not transposed", **read)


def heads_of_table(attempt: Attempt) -> Iterator[Attempt]:
    """Give heads the rows of other heads, or rows and heads of a flat table."""
    for name, table in attempt.arguments(TABLES).items():
        # Heads are the axis before the rows, in a table that has one for each head.
        axis = axis_of(name) - 1
        if table.ndim < -axis or table.shape[axis] == 1:
            continue
        heads = np.arange(table.shape[axis])
        orders = {"in reverse order": heads[::-1]}
        orders |= {f"of head {h} for all": 0 * heads + h for h in heads[:16]}
        orders |= {
            f"rolled by {amount(n, 'head')}": np.roll(heads, n) for n in heads[1:16]
        }
        # Rows come before heads, as in a flat table whose rows have all heads.
        flat = np.moveaxis(table, axis, axis + 1)
        changed = {x: np.take(table, order, axis=axis) for x, order in orders.items()}
        changed |= {
            "reshaped from rows and heads, not transposed": flat.reshape(table.shape),
            "reshaped to rows and heads, not transposed": (
                np.moveaxis(table.reshape(flat.shape), axis + 1, axis)
            ),
        }
        for words, other in changed.items():
            yield attempt.told(f"{name} {words}", **{name: other})
