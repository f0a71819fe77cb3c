"""Known changes of rotary: pairs, frequencies, columns, magnitude, precision, heads.

`relpos._opinion.positions` changes the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import HIDDEN, Attempt, Changes, Rotary
from relpos._opinion.evaluate import evaluate
from relpos._opinion.rounding import stored
from relpos._opinion.solved import one_number
from relpos._text import amount

# ---- options of `apply_rotary` -------------------------------------------------------


def with_option(attempt: Attempt, name: str) -> Attempt | None:
    """Use the other value of an option of `apply_rotary` that is true or not."""
    rotary = attempt.rotary
    if rotary is None:
        return None
    options = {**rotary.options, name: not rotary.options.get(name, False)}
    return replace(attempt, rotary=rotary._replace(options=options))


def rotating(attempt: Attempt, names: tuple[str, ...]) -> Attempt | None:
    """Rotate these operands and no others."""
    if attempt.rotary is None or not {*names} <= attempt.keywords.keys():
        return None
    left_out = attempt.left_out
    if not names:
        left_out = (*left_out, "rotary")
    rotary = attempt.rotary._replace(rotated=names)
    return replace(attempt, rotary=rotary, left_out=left_out)


# ---- rotations that `apply_rotary` does not have -------------------------------------


def _bfloat16(x: Array) -> Array:
    """Round numbers to bfloat16."""
    return stored(x, 2.0**-8)


def _float16(x: Array) -> Array:
    """Round numbers to float16."""
    return x.astype(np.float16).astype(np.float64)


in_16_bits: dict[str, Callable[[Array], Array]] = {
    "bfloat16": _bfloat16,
    "float16": _float16,
}
#: Numbers of a rotation in the order in which they are computed, in words.
STAGES = {
    "frequency": "frequencies",
    "position": "positions",
    "angle": "angles",
    "cosine": "cosines and sines",
}


def _as_computed(cos: Array, sin: Array) -> tuple[Array, Array]:
    """Return cosines and sines where they belong."""
    return cos, sin


def _exchanged(cos: Array, sin: Array) -> tuple[Array, Array]:
    """Return sines for cosines, and cosines for sines."""
    return sin, cos


class Plan(NamedTuple):
    """Rotation of pairs (a, b) of columns to (a cos - b sin, b cos + a sin)."""

    columns: Array  # (2, pairs)
    inv_freq: Array  # (2, pairs) or (pairs,), in radians per position
    magnitude: Any = 1.0
    signs: tuple[float, float] = (-1.0, 1.0)  # of the sines
    overwritten: bool = False  # a, before b is computed of it
    dtype: str = "bfloat16"
    rounded: tuple[str, ...] = ()  # the stages that are stored in this dtype
    read: Callable[[Array, Array], tuple[Array, Array]] = _as_computed  # cos, sin
    of_angles: bool = False  # which are given; the frequencies are factors of them
    words: str = ""  # for the change, in place of those of its row


@quiet
def rotate(x: Array, positions: Array, plan: Plan) -> Array:
    """Rotate columns of x, (..., L, columns), by a plan."""

    def rounded(stage: str, array: Array) -> Array:
        return in_16_bits[plan.dtype](array) if stage in plan.rounded else array

    inv_freq = np.broadcast_to(plan.inv_freq, plan.columns.shape)
    # Axes are (..., L, columns of a pair, pairs): positions get two axes, and angles,
    # which have pairs already, one.
    at = rounded("position", np.asarray(positions, np.float64))
    at = at[..., None, :] if plan.of_angles else at[..., None, None]
    angles = rounded("angle", at * rounded("frequency", inv_freq))
    cos, sin = plan.read(
        rounded("cosine", np.cos(angles)), rounded("cosine", np.sin(angles))
    )
    # Columns that are in no pair stay as they are.
    (first, second), out = plan.columns, x.copy()
    a, b = x[..., first], x[..., second]
    a = plan.magnitude * (a * cos[..., 0, :] + plan.signs[0] * b * sin[..., 0, :])
    out[..., first] = a
    a = a if plan.overwritten else x[..., first]
    b = b * cos[..., 1, :] + plan.signs[1] * a * sin[..., 1, :]
    out[..., second] = plan.magnitude * b
    return out


def pairs(width: int, interleaved: bool, start: int = 0) -> Array:
    """Return the columns of each pair, (2, width / 2)."""
    # Pairs are (2 c, 2 c + 1) if interleaved, and (c, c + width / 2) if not.
    columns = start + np.arange(width - width % 2)
    return columns.reshape(-1, 2).T if interleaved else columns.reshape(2, -1)


class Sizes(NamedTuple):
    """Numbers from which frequencies and columns follow."""

    dim: int  # of a head
    width: int  # columns that are rotated
    heads: int
    base: float
    interleaved: bool
    free: bool  # the frequencies follow from the base

    def powers(self, exponents: Array) -> Array:
        return np.asarray(self.base**-exponents)

    @property
    def usual(self) -> Array:
        """The frequencies that follow from the base."""
        return self.powers(np.arange(0, self.width, 2) / self.width)


def _plan(attempt: Attempt, rotary: Rotary) -> tuple[Plan, Sizes]:
    """Return the right plan of an attempt that rotates so, and its sizes."""
    options = rotary.options
    heads, dim = (attempt.get("query").shape[axis] for axis in (-3, -1))
    width, interleaved = options.get("rotary_dim") or dim, options.get("interleaved")
    sign = -1.0 if options.get("inverse") else 1.0
    magnitude, inv_freq = (options.get(name) for name in ("magnitude", "inv_freq"))
    inv_freq = np.ones(width // 2) if rotary.of_angles else inv_freq
    base, free = options.get("base", 10000.0), inv_freq is None
    sizes = Sizes(dim, width, heads, base, bool(interleaved), free)
    # The sines of the right rotation have the signs of a cos - b sin and b cos + a sin.
    plan = Plan(
        pairs(width, bool(interleaved)),
        sizes.usual if inv_freq is None else np.asarray(inv_freq, np.float64),
        1.0 if magnitude is None else magnitude,
        (-sign, sign),
        of_angles=rotary.of_angles,
    )
    return plan, sizes


def _fits(plan: Plan) -> bool:
    """Return True if a magnitude of each pair is one of these pairs."""
    return np.shape(plan.magnitude)[-1:] in ((), (1,), plan.columns.shape[-1:])


def _same(plan: Plan, other: Plan) -> bool:
    """Return True if two plans rotate alike."""
    # Fields between the arrays and the words are compared at once: the first three are
    # columns, frequencies and magnitude, and words have no effect.
    if plan[3:-1] != other[3:-1] or not np.array_equal(plan.columns, other.columns):
        return False
    gap = np.abs(plan.inv_freq - other.inv_freq) > 1e-12 * np.abs(plan.inv_freq)
    return not gap.any() and bool(np.all(plan.magnitude == other.magnitude))


def turned(attempt: Attempt, of_query: Plan, of_key: Plan | None = None) -> Attempt:
    """Rotate queries and keys by plans, or by one; nothing is left to be rotated."""
    x, rotary = attempt.keywords, attempt.rotary
    assert rotary is not None
    return replace(attempt, rotary=None).with_keywords(
        query=rotate(x["query"], rotary.query_positions, of_query),
        key=rotate(x["key"], rotary.key_positions, of_key or of_query),
    )


Rule = Callable[[Plan, Sizes], Iterable[Plan]]


def of_plan(rule: Callable[[Attempt, Plan, Sizes], Iterable[Attempt]]) -> Changes:
    """Make changes of attempts that rotate, from a rule of their plan and sizes."""

    def changes(attempt: Attempt) -> Iterable[Attempt]:
        if attempt.rotary is None:
            return ()
        plan, sizes = _plan(attempt, attempt.rotary)
        return rule(attempt, plan, sizes)

    return changes


def by_plan(rule: Rule, one_side: bool = False) -> Changes:
    """Make changes of a rule, of queries and keys alike, or of each of them alone."""

    @of_plan
    def changes(attempt: Attempt, right: Plan, sizes: Sizes) -> Iterator[Attempt]:
        for plan in rule(right, sizes):
            if not _fits(plan) or _same(plan, right):
                continue
            if not one_side:
                yield replace(turned(attempt, plan), detail=plan.words)
                continue
            for words, of_query, of_key in (
                ("of the queries alone", plan, right),
                ("of the keys alone", right, plan),
            ):
                # Without words of the plan, those of the row are used.
                detail = f"{plan.words}, {words}" if plan.words else ""
                yield replace(turned(attempt, of_query, of_key), detail=detail)

    return changes


def on_cached(rule: Rule) -> Changes:
    """Make changes of a rule, of the cached keys alone."""

    @of_plan
    def changes(attempt: Attempt, right: Plan, sizes: Sizes) -> Iterator[Attempt]:
        split = attempt.cached
        if not split:
            return
        new = turned(attempt, right)
        # Queries and new keys are rotated as they should be, and only old keys by the
        # plan.
        for plan in filter(_fits, rule(right, sizes)):
            old = turned(attempt, right, plan).get("key")
            parts = old[..., :split, :], new.get("key")[..., split:, :]
            words = f"cached keys alone with {plan.words}: rotate all keys alike"
            detail = words if plan.words else ""
            yield new.told(detail, key=np.concatenate(parts, axis=-2))

    return changes


@of_plan
def any_base(attempt: Attempt, plan: Plan, sizes: Sizes) -> Iterator[Attempt]:
    """Find the base that explains the results."""
    # The frequency of a single pair is 1 by any base.
    if sizes.width <= 2 or plan.of_angles:
        return

    def with_base(base: float) -> Attempt:
        return turned(attempt, plan._replace(inv_freq=sizes._replace(base=base).usual))

    right = f"{sizes.base:.6g}" if sizes.free else "those that are given"
    around = np.linspace(np.log(50.0), np.log(2e8), 62)
    words = f"frequencies of the base {{:.6g}}, not {right}"
    yield from one_number(attempt, with_base, around, words)


@of_plan
def any_factor(attempt: Attempt, plan: Plan, sizes: Sizes) -> Iterator[Attempt]:
    """Find the factor of all frequencies that explains the results."""

    def with_factor(factor: float) -> Attempt:
        return turned(attempt, plan._replace(inv_freq=factor * plan.inv_freq))

    around = np.linspace(-4.0, 4.0, 81)
    what = "angles" if plan.of_angles else "frequencies"
    yield from one_number(attempt, with_factor, around, f"{what} times {{:.6g}}", 1.0)


@of_plan
def any_magnitude(attempt: Attempt, plan: Plan, sizes: Sizes) -> Iterator[Attempt]:
    """Find the magnitude that explains the results, where there is one."""

    def with_magnitude(magnitude: float) -> Attempt:
        return turned(attempt, plan._replace(magnitude=magnitude))

    right = plan.magnitude
    if not np.ndim(right) and right > 0 and right != 1:
        around = np.log(right) + np.linspace(-1.0, 1.0, 9)
        words = f"a magnitude of {{:.6g}}, not {right:.6g}"
        yield from one_number(attempt, with_magnitude, around, words)


@of_plan
@quiet
def any_frequencies(attempt: Attempt, plan: Plan, sizes: Sizes) -> Iterator[Attempt]:
    """Find the frequencies that explain the results, by the Gauss-Newton method."""
    right, aim = np.array(plan.inv_freq), attempt.aim
    if right.ndim > 1 or not right.size or aim is None or plan.of_angles:
        return
    # Scores that are hidden say nothing about frequencies.
    shown = np.isfinite(aim) & (aim > HIDDEN)
    if not shown.any():
        return

    def with_frequencies(frequencies: Array) -> Attempt:
        return turned(attempt, plan._replace(inv_freq=frequencies))

    def gap(frequencies: Array) -> Array:
        gaps = (aim - evaluate(with_frequencies(frequencies)).result)[shown]
        return np.asarray(np.nan_to_num(gaps))

    best, error = right, gap(right)
    for _ in range(8):
        # The second summand is for frequencies near 0.
        steps = 1e-6 * (np.abs(best) + 1e-3)
        # The slope of all gaps by each frequency, from differences.
        slopes = [
            (gap(best + moved) - error) / step
            for moved, step in zip(np.diag(steps), steps, strict=True)
        ]
        after = best - np.linalg.lstsq(np.stack(slopes, -1), error, rcond=None)[0]
        error_after = gap(after)
        # It ends as well where the step made the errors nan.
        if not (error_after**2).sum() < (error**2).sum():
            break
        best, error = after, error_after
    size = float(np.abs(aim[shown]).max(initial=0.0))
    changed = np.flatnonzero(np.abs(best - right) > 1e-6 * np.abs(right) + 1e-9)
    if not changed.size or np.abs(error).max(initial=0.0) > 1e-7 * size:
        return
    # Frequencies that moved by rounding alone are put back.
    best = np.where(np.isin(np.arange(right.size), changed), best, right)
    words = ", ".join(f"{best[c]:.6g}, not {right[c]:.6g}" for c in changed[:3])
    numbers = ", ".join(map(str, changed[:8]))
    pairs = amount(right.size, "pair")
    detail = f"other frequencies of {changed.size} of {pairs} ({numbers})"
    yield replace(with_frequencies(best), detail=f"{detail}: {words}")


def mixed_pairs(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    width = plan.columns.size
    names = {True: "neighbours", False: "halves"}
    if width <= 2:  # one pair is laid out in one way
        return
    for interleaved in (sizes.interleaved, not sizes.interleaved):
        grid, laid_out = pairs(width, interleaved), pairs(width, not interleaved)
        words = (
            f"the angles laid out for pairs of {names[not interleaved]}, where "
            f"{names[interleaved]} are rotated: repeat each for neighbours, or the "
            "whole for halves"
        )
        read = partial(_read_at, laid_out=laid_out, grid=grid)
        yield plan._replace(columns=grid, read=read, words=words)


def _read_at(
    cos: Array, sin: Array, laid_out: Array, grid: Array
) -> tuple[Array, Array]:
    """Put cosines and sines of pairs where these lie, and read them at others."""

    def misread(table: Array) -> Array:
        # The table has a number for each column of one layout, and is read by the other
        # one.
        of_columns = np.empty((*table.shape[:-2], laid_out.size))
        of_columns[..., laid_out] = table
        return of_columns[..., grid]

    return misread(cos), misread(sin)


def own_angles(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    if not sizes.free:
        return
    for interleaved in (False, True):
        grid = pairs(sizes.width, interleaved)
        # `grid` has a number for each column: the two columns of a pair get two
        # frequencies.
        for exponents in (grid / sizes.width, 2 * grid / sizes.width):
            yield plan._replace(columns=grid, inv_freq=sizes.powers(exponents))


def other_signs(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    for sign, words in (
        (1.0, "both sines added"),
        (-1.0, "both sines subtracted"),
        (0.0, "the sine missing"),
    ):
        detail = (
            f"{words} in the rotation of a pair (a, b), which is a cos - b sin and "
            "b cos + a sin"
        )
        yield plan._replace(signs=(sign, sign), words=detail)


def mixed_table(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    """Read a table of sines and cosines as if they were joined in another way."""

    one, other = "alternately", "one after the other"

    def misread(
        cos: Array, sin: Array, order: int, alternate: bool
    ) -> tuple[Array, Array]:
        # With order -1 the sines are first, both where they are joined and where they
        # are read.
        parts = (cos, sin)[::order]
        # Join the two along one axis, and split them along the other.
        table = np.stack(parts, axis=-1 if alternate else -2)
        read = table.reshape(*table.shape[:-2], table.shape[-1], table.shape[-2])
        first, second = np.moveaxis(read, -2 if alternate else -1, 0)[::order]
        return first, second

    for order, alternate in product((1, -1), (True, False)):
        read = partial(misread, order=order, alternate=alternate)
        joined, wrong = (one, other) if alternate else (other, one)
        names = "cosines and sines" if order > 0 else "sines and cosines"
        words = f"a table of {names} joined {joined}, read as if joined {wrong}"
        yield plan._replace(read=read, words=words)
    words = "the sines and cosines of a joined table exchanged"
    yield plan._replace(read=_exchanged, words=words)


def overwritten(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    words = "the first column of a pair overwritten before the second is computed of it"
    yield plan._replace(overwritten=True, words=words)


def inverse(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    words = "angles of the other sign"
    yield plan._replace(signs=(plan.signs[1], plan.signs[0]), words=words)


def exchanged_pairs(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    columns = pairs(sizes.width, not sizes.interleaved)
    yield plan._replace(columns=columns, words="the other pairs of columns")


# ---- frequencies ---------------------------------------------------------------------

#: Numerators of exponents, from the number c of a pair; 2 c is right.
Numerators = Callable[[Array], Iterable[Array]]
#: Widths by which they are divided; that of the rotated columns is right.
Widths = Callable[[Sizes], Iterable[float]]


def from_pairs(c: Array) -> tuple[Array, ...]:
    """Return the number of the pair."""
    return (c,)


def from_columns(c: Array) -> tuple[Array, ...]:
    """Return the first column of the pair."""
    return (2 * c,)


def from_pairs_or_columns(c: Array) -> tuple[Array, ...]:
    """Return the number of the pair, or one of its columns."""
    return 2 * c, c, 2 * c + 1


def from_other_columns(c: Array) -> tuple[Array, ...]:
    """Return columns that begin elsewhere than at 0."""
    return 2 * c - 2, 2 * c + 2, 2 * c + 1, 2 * c - 1


def from_other_pairs(c: Array) -> tuple[Array, ...]:
    """Return numbers of pairs that begin elsewhere than at 0."""
    return c + 1, c - 1


def from_other_steps(c: Array) -> tuple[Array, ...]:
    """Return the right columns, and numbers that grow in other steps."""
    return 2 * c, c, 4 * c, 2 * (c // 2)


def width_of_columns(sizes: Sizes) -> tuple[float, ...]:
    """Return the width of the rotated columns."""
    return (sizes.width,)


def width_of_head(sizes: Sizes) -> tuple[float, ...]:
    """Return the width of a head."""
    return (sizes.dim,)


def widths_of_model(sizes: Sizes) -> tuple[float, ...]:
    """Return the widths of all heads, and of their rotated columns."""
    return sizes.heads * sizes.dim, sizes.heads * sizes.width


def widths_of_columns_and_head(sizes: Sizes) -> tuple[float, ...]:
    """Return the widths of the rotated columns and of a head."""
    return sizes.width, sizes.dim


def width_and_half(sizes: Sizes) -> tuple[float, ...]:
    """Return the width of the rotated columns, and half of it."""
    return sizes.width, sizes.width // 2


def other_widths(sizes: Sizes) -> tuple[float, ...]:
    """Return numbers near the width of the rotated columns, and other sizes."""
    width = sizes.width
    return width, sizes.dim, width // 2, 2 * width, width - 2, width - 1, sizes.heads


def exponents(numerators: Numerators, widths: Widths) -> Changes:
    """Make frequencies of the numbers of pairs, and of widths to divide by."""

    def rule(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
        if not sizes.free:
            return
        count = np.arange(plan.columns.shape[-1])
        for width in widths(sizes):
            if width <= 0:
                continue
            for numerator in numerators(count):
                yield plan._replace(inv_freq=sizes.powers(numerator / width))

    return by_plan(rule)


def reordered(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    right = plan.inv_freq
    orders = {"the frequencies in the reverse order": right[::-1]}
    if right.all():
        words = "the frequencies inverted: the minus of the exponent is missing"
        orders[words] = 1.0 / right
    orders["the frequency of the first pair for all"] = right[:1]
    orders["the frequency of the last pair for all"] = right[-1:]
    for words, inv_freq in orders.items():
        yield plan._replace(inv_freq=inv_freq, words=words)


def all_columns(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    if sizes.free and sizes.width < sizes.dim:
        of_head = sizes._replace(width=sizes.dim)
        grid = pairs(sizes.dim, sizes.interleaved)
        yield plan._replace(columns=grid, inv_freq=of_head.usual)


def other_base(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    if not sizes.free:
        return
    for base in (1e4, 5e5, 1e6):
        words = f"the base of another model, {base:,.0f}"
        yield plan._replace(inv_freq=sizes._replace(base=base).usual, words=words)


def of_base(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    if not sizes.free and not plan.of_angles:
        words = "the frequencies of the base, not those that are given"
        yield plan._replace(inv_freq=sizes.usual, words=words)


def on_a_line(attempt: Attempt) -> Attempt | None:
    """Rotate by positions from 0 on, where angles are given."""
    rotary = attempt.rotary
    if rotary is None or not rotary.of_angles or attempt.offset.ndim:
        return None
    lq, lk = attempt.lengths
    at = np.arange(lq) + attempt.offset, np.arange(lk)
    by_index = Rotary(rotary.options, *at, rotary.rotated)
    words = "positions 0, 1, .. times the frequencies of the base, not the given angles"
    return replace(attempt, rotary=by_index, detail=words)


def in_bfloat16(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    yield plan._replace(inv_freq=in_16_bits["bfloat16"](plan.inv_freq))


def scaled_base(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    if not sizes.free or sizes.width < 4:
        return
    # The second power is that by which the last frequency is divided by the factor
    # itself, as the "ntk" scaling does.
    powers = (1.0, sizes.width / (sizes.width - 2))
    for factor, power in product((2.0, 4.0, 8.0, 16.0, 32.0), powers):
        other = sizes._replace(base=sizes.base * factor**power)
        words = f"frequencies of the base times {factor**power:.4g}"
        yield plan._replace(inv_freq=other.usual, words=f"{words}, as for more text")


def other_columns(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    """Rotate another part of the columns, by exponents over this or another width."""
    dim = sizes.dim
    widths = (sizes.width, dim // 2, dim // 4, dim)
    for width in dict.fromkeys(width for width in widths if width > 1):
        count = width // 2
        apart = np.arange(count) + np.array([[0], [dim // 2]])
        starts = dict.fromkeys((0, dim - width, (dim - width) // 2))
        grids = [pairs(width, sizes.interleaved, start) for start in starts]
        if width < dim:
            grids.append(apart)
        for columns in grids:
            if np.array_equal(columns, plan.columns):
                continue
            counts = 2 * np.arange(columns.shape[-1])
            frequencies = [sizes.powers(counts / x) for x in {width, dim, sizes.width}]
            if not sizes.free:  # use the first of those that are given
                total = len(plan.inv_freq)
                fits = count == total or (count < total and not plan.of_angles)
                frequencies = [plan.inv_freq[:count]] if fits else []
            words = (
                f"other columns rotated than the first {sizes.width}: pairs "
                f"({columns[0, 0]}, {columns[1, 0]}) to ({columns[0, -1]}, "
                f"{columns[1, -1]})"
            )
            for inv_freq in frequencies:
                yield plan._replace(columns=columns, inv_freq=inv_freq, words=words)


# ---- magnitude, precision, heads -----------------------------------------------------


#: Powers of the magnitude in words.
POWERS = {
    0.0: "the magnitude left out",
    2.0: "the magnitude twice (squared): multiply once",
    3.0: "the magnitude to the power of 3: multiply once",
    4.0: "the magnitude to the power of 4: multiply once",
    0.5: "the root of the magnitude",
    -1.0: "the magnitude inverted",
}


def magnitudes(*powers: float) -> Callable[[Plan, Sizes], Iterator[Plan]]:
    """Take powers of the magnitude, where it is not 1."""

    def rule(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
        magnitude = np.asarray(plan.magnitude)
        if not (magnitude > 0).all() or (magnitude == 1.0).all():
            return
        for power in powers:
            yield plan._replace(magnitude=magnitude**power, words=POWERS[power])

    return rule


def magnitude_of_one(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    m = plan.magnitude
    if np.ndim(m) or m in (0.0, 1.0):
        return
    # The magnitude multiplies both: a factor of the sines takes it away from them, or
    # it is 1 and the sines alone have it.
    for name, common, of_sines in (("cosines", m, 1.0 / m), ("sines", 1.0, m)):
        signs = (plan.signs[0] * of_sines, plan.signs[1] * of_sines)
        words = f"the magnitude on the {name} alone"
        yield plan._replace(magnitude=common, signs=signs, words=words)


@of_plan
def dropped(attempt: Attempt, plan: Plan, sizes: Sizes) -> Iterator[Attempt]:
    if sizes.width < sizes.dim:
        is_rotated = np.arange(sizes.dim) < sizes.width
        # Zeros in the queries suffice to take these columns out of the products.
        yield attempt.with_keywords(query=attempt.get("query") * is_rotated)


@of_plan
def magnitude_of_all(attempt: Attempt, plan: Plan, sizes: Sizes) -> Iterator[Attempt]:
    rotary, magnitude = attempt.rotary, plan.magnitude
    if np.ndim(magnitude) or magnitude == 1.0 or sizes.width == sizes.dim:
        return
    assert rotary is not None
    options = {**rotary.options, "magnitude": None}
    unscaled = replace(attempt, rotary=rotary._replace(options=options))
    # Queries and keys have it both, so that scores have its square.
    yield unscaled.with_keywords(scale=attempt.get("scale") * float(magnitude) ** 2)


def in_few_bits(plan: Plan, sizes: Sizes) -> Iterator[Plan]:
    """Round each set of stages to a dtype of 16 bits."""
    sets: list[tuple[str, ...]] = []
    for count in range(1, len(STAGES) + 1):
        sets += combinations(STAGES, count)
    for dtype, rounded in product(in_16_bits, sets):
        words = (
            f"{' and '.join(STAGES[stage] for stage in rounded)} in 16 bits ({dtype}): "
            "compute the angles in float32"
        )
        yield plan._replace(dtype=dtype, rounded=rounded, words=words)


@of_plan
def joined_heads(attempt: Attempt, plan: Plan, sizes: Sizes) -> Iterator[Attempt]:
    """Rotate before the heads are split: pairs and exponents of all columns."""
    rotary, heads, dim = attempt.rotary, sizes.heads, sizes.dim
    if heads == 1 or attempt.group > 1 or dim % 2 or np.ndim(plan.magnitude):
        return
    if plan.of_angles:
        return
    assert rotary is not None
    width = heads * dim
    frequencies = [
        sizes.powers(np.arange(0, width, 2) / width),  # of all columns
        np.resize(sizes._replace(width=dim).usual, width // 2),  # of a head, repeated
    ]
    # The third layout has pairs within each head, and frequencies across all of them.
    apart = [pairs(dim, False, h * dim) for h in range(heads)]
    grids = [pairs(width, True), pairs(width, False), np.concatenate(apart, axis=-1)]
    at = {"query": rotary.query_positions, "key": rotary.key_positions}
    for grid, inv_freq in product(grids, frequencies):
        plan_of_all = plan._replace(columns=grid, inv_freq=inv_freq)
        rotated = {
            name: _of_joined(attempt.get(name), positions, plan_of_all)
            for name, positions in at.items()
        }
        yield replace(attempt, rotary=None).with_keywords(**rotated)


def _of_joined(x: Array, positions: Array, plan: Plan) -> Array:
    """Rotate x, (..., H, L, D), as (..., L, H * D)."""
    moved = np.moveaxis(x, -3, -2)
    # Positions may have an axis of heads, which the joined array has not.
    at = positions[..., 0, :] if np.ndim(positions) > 1 else positions
    joined = rotate(moved.reshape(*moved.shape[:-2], -1), at, plan)
    return np.asarray(np.moveaxis(joined.reshape(moved.shape), -2, -3))
