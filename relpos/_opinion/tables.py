"""Known changes of tables, and of the rows of them that pairs take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt, Changes, relative_to, variant

TABLES = ("rel_key", "rel_query", "rel_value", "rel_bias")


def tables_of(attempt: Attempt) -> list[str]:
    """List the tables that are placed by relative position."""
    return [] if "labels" in attempt.keywords else [*attempt.given(TABLES)]


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
    own = name == "rel_bias" and any(count != rows for count in others)
    return -(rows // 2) if first is None or own else int(first)


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
    if (buckets := attempt.get("buckets")) is not None:
        wanted = rows(np.arange(len(buckets)), first_of(attempt, here[0]))
        fits = here == tables_of(attempt) and (wanted >= 0).all()
        moved = np.asarray(buckets)[wanted]
        return attempt.with_keywords(buckets=moved) if fits else None
    changed = {}
    for name in here:
        table, axis = attempt.get(name), axis_of(name)
        wanted = rows(np.arange(table.shape[axis]), first_of(attempt, name))
        found = np.array(np.take(table, np.maximum(wanted, 0), axis=axis))
        np.moveaxis(found, axis, 0)[wanted < 0] = 0
        changed[name] = found
    return attempt.with_keywords(**changed)


def backwards(t: Array, first: int) -> Array:
    return t[::-1]


@variant
def all_reversed(attempt: Attempt, buckets: bool) -> Attempt | None:
    fits = ("buckets" in attempt.keywords) == buckets
    return reordered(attempt, backwards) if fits else None


@variant
def one_reversed(attempt: Attempt, name: str) -> Attempt | None:
    alone = len(tables_of(attempt)) < 2
    return None if alone else reordered(attempt, backwards, (name,))


@variant
def by_position(
    attempt: Attempt,
    change: Callable[[Array], Array],
    beyond: str = "clip",
    names: tuple[str, ...] = TABLES,
) -> Attempt | None:
    """Give r the row of change(r); beyond the table clip, take zeros or wrap."""

    def rows(t: Array, first: int) -> Array:
        wanted = change(t + first) - first
        if beyond == "wrap":
            return wanted % len(t)
        inside = np.clip(wanted, 0, len(t) - 1)
        return inside if beyond == "clip" else np.where(wanted == inside, wanted, -1)

    return reordered(attempt, rows, names)


def negated(attempt: Attempt) -> Attempt | None:
    """Read at query minus key, where that does not only reverse the table."""
    if len(spans := spans_of(attempt)) != 1:
        return None
    ((first, rows),) = spans
    last = first + rows - 1
    found = None if last == -first else reordered(attempt, backwards)
    return found and found.with_keywords(min_relative_position=-last)


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
    inside = all(begin <= first for begin, _ in spans)
    for both in sorted(sums) if inside else ():
        if not any(2 * begin + rows - 1 == both for begin, rows in spans):
            yield by_position(partial(np.subtract, both))(attempt)


def has_2n_rows(attempt: Attempt) -> bool:
    """Return True if each table has an even number of rows, and no middle row."""
    spans = spans_of(attempt)
    return bool(spans) and all(
        rows % 2 == 0 and first + rows // 2 in (0, 1) for first, rows in spans
    )


@variant
def read_as(attempt: Attempt, wanted: str) -> Attempt | None:
    """Read the keys' table as "two-sided" in a causal call, or as one of the "past"."""
    fits = wanted == "past" or attempt.get("is_causal")
    if tables_of(attempt) != ["rel_key"] or not fits:
        return None
    rows = rows_of(attempt, "rel_key")
    firsts = [1 - rows, -(rows // 2)]
    now, other = firsts if wanted == "two-sided" else reversed(firsts)
    if first_of(attempt, "rel_key") != now or now == other:
        return None
    return attempt.with_keywords(min_relative_position=other)


#: Ways to move every row of a table.
WAYS = ("later", "clip", "zero", "wrap")


def off_by(attempt: Attempt, step: int, beyond: str) -> Attempt | None:
    """Take the row next to the right one; "later" begins every table later."""
    if beyond != "later":
        return by_position(lambda r: r + step, beyond)(attempt)
    firsts = {first for first, _ in spans_of(attempt)}
    if len(firsts) != 1:
        return None
    return attempt.with_keywords(min_relative_position=firsts.pop() - step)


def other_origin(attempt: Attempt) -> Iterator[Attempt | None]:
    """Read 2N rows, -N to N - 1, as 1 - N to N, or the other way round."""
    if has_2n_rows(attempt):
        name = tables_of(attempt)[0]
        early = first_of(attempt, name) == -(rows_of(attempt, name) // 2)
        yield from (off_by(attempt, -1 if early else 1, way) for way in WAYS)


def off_by_one(attempt: Attempt) -> Iterator[Attempt | None]:
    """Be off by one row, except where `other_origin` explains it."""
    for step, way in product((1, -1), () if has_2n_rows(attempt) else WAYS):
        words = (
            f"the row {'after' if step > 0 else 'before'} the right one for each pair, "
            "as by a shift (skew) that is padded on the other side"
        )
        if found := off_by(attempt, step, way):
            yield replace(found, detail=words)


@variant
def clipped_early(attempt: Attempt, *of: str) -> Attempt | None:
    """Clip at k - 1 of k, of earlier or later keys, where a pair is that far apart."""
    farthest = np.abs(relative_to(attempt)).max(initial=0)
    for first, rows in spans_of(attempt):
        centred = first == -(rows // 2) and rows % 2 and rows > 1
        if "buckets" in attempt.keywords or not centred or farthest < rows // 2:
            return None
    return reordered(
        attempt,
        lambda t, first: np.clip(t, "earlier" in of, len(t) - 1 - ("later" in of)),
    )


def clipped_elsewhere(attempt: Attempt) -> Iterator[Attempt | None]:
    if "buckets" in attempt.keywords:
        return
    last = max((rows // 2 for _, rows in spans_of(attempt)), default=0)
    for most in range(1, min(last, 64)):
        clip = partial(np.clip, a_min=-most, a_max=most)
        if found := by_position(clip)(attempt):
            words = f"distances clipped at {most}, not at {last}, the largest"
            yield replace(found, detail=f"{words} of the table")


def beyond_the_table(attempt: Attempt) -> Attempt | None:
    other = "clip" if attempt.get("beyond") == "zero" else "zero"
    return attempt.with_keywords(beyond=other) if reaches_beyond(attempt) else None


def reaches_beyond(attempt: Attempt) -> bool:
    """Return True if some pair that causality shows has no row of its own."""
    r = relative_to(attempt)
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
        if attempt.shifted or len(spans := spans_of(attempt)) != 1:
            return
        first, count = spans.pop()
        buckets = attempt.keywords.get("buckets", np.arange(count))
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
        for start, own in (("the first row", 0), ("the middle row", count // 2)):
            yield f"the row {words}, from {start}, not of key minus query", rows + own


def one_table(attempt: Attempt) -> Iterator[Attempt | None]:
    names = tables_of(attempt)
    rules: dict[str, Callable[[Array], Array]] = {
        "the row after the right one": lambda r: r + 1,
        "the row before the right one": lambda r: r - 1,
        "the row of the distance without its sign": np.abs,
        "the row of an earlier key for a later one": lambda r: -np.abs(r),
    }
    for name in names if len(names) > 1 else ():
        for words, rule in rules.items():
            for beyond in ("clip", "zero", "wrap"):
                found = by_position(rule, beyond, (name,))(attempt)
                yield found and replace(found, detail=f"{words}, in {name} alone")


def moved_rows(attempt: Attempt) -> Iterator[Attempt]:
    rows = max((count for _, count in spans_of(attempt)), default=0)
    for step in range(2, min(rows, 64)):
        for side, way in ((step, "after"), (-step, "before")):
            if made := by_position(partial(np.add, side))(attempt):
                yield replace(made, detail=f"the row {step} rows {way} the right one")


@variant
def other_columns(attempt: Attempt, shape: tuple[int, int]) -> Attempt | None:
    """Read columns as if of this shape, and transposed: sines and cosines, or pairs."""
    changed = {}
    for name, table in attempt.given(("rel_key", "rel_query")).items():
        if (columns := table.shape[-1]) % 2 or columns < 4:
            return None
        changed[name] = table[..., np.arange(columns).reshape(shape).T.ravel()]
    return attempt.with_keywords(**changed) if changed else None


@variant
def taken(attempt: Attempt, /, **sources: str) -> Attempt | None:
    """Take each of these tables from another of the same shape."""
    names = {*sources, *sources.values()}
    alike = len({getattr(attempt.get(name), "shape", name) for name in names}) == 1
    new = {name: attempt.get(source) for name, source in sources.items()}
    return attempt.with_keywords(**new) if alike else None


@variant
def used_for(attempt: Attempt, source: str, target: str) -> Iterator[Attempt]:
    """Use the table of the source for a target without one, alone or for both."""
    needed = {source, *(("value",) if target == "rel_value" else ())}
    others = ("pos_bias_v", "position_query") if source == "rel_key" else ()
    table = attempt.get(source)
    if needed <= attempt.keywords.keys() and not attempt.given((target, *others)):
        for kept in (None, table):
            yield attempt.with_keywords(**{source: kept, target: table})


@variant
def multiplied(attempt: Attempt, factor: float) -> Attempt | None:
    """Multiply the tables of scores, and the numbers of a mask, by a factor."""
    here = attempt.given(("rel_key", "rel_query", "rel_bias", "attn_mask"))
    found = {name: factor * x for name, x in here.items() if x.dtype != bool}
    return attempt.with_keywords(**found) if found else None


def u_v_reshaped(attempt: Attempt) -> Iterator[Attempt]:
    given = attempt.given(("pos_bias_u", "pos_bias_v"))
    if given and all(x.ndim == 2 for x in given.values()):
        read = {name: x.reshape(x.shape[::-1]).T for name, x in given.items()}
        yield attempt.told("u and v reshaped from (D, H), not transposed", **read)
        read = {name: x.T.reshape(x.shape) for name, x in given.items()}
        yield attempt.told("u and v reshaped to (D, H), not transposed", **read)


def heads_of_table(attempt: Attempt) -> Iterator[Attempt]:
    """Give heads the rows of other heads, or rows and heads of a flat table."""
    for name, table in attempt.given(TABLES).items():
        axis = axis_of(name) - 1
        if table.ndim < -axis or table.shape[axis] == 1:
            continue
        heads = np.arange(table.shape[axis])
        orders = {"in reverse order": heads[::-1]}
        orders |= {f"of head {h} for all": 0 * heads + h for h in heads[:16]}
        orders |= {f"rolled by {n} heads": np.roll(heads, n) for n in heads[1:16]}
        flat = np.moveaxis(table, axis, axis + 1)
        found = {x: np.take(table, order, axis=axis) for x, order in orders.items()}
        found |= {
            "reshaped from rows and heads, not transposed": flat.reshape(table.shape),
            "reshaped to rows and heads, not transposed": (
                np.moveaxis(table.reshape(flat.shape), axis + 1, axis)
            ),
        }
        for words, other in found.items():
            yield attempt.told(f"{name} {words}", **{name: other})
