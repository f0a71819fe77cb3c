"""`relpos.diagnose`: the known difference that explains other results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import numpy as np

from relpos._checks import Array, hinted, kind_of
from relpos._opinion.arrays import (
    added_mask,
    as_numpy,
    called,
    copied,
    is_module,
    unchanged,
)
from relpos._opinion.attempt import Attempt
from relpos._opinion.begin import begin, function_of
from relpos._opinion.differences import DIFFERENCES
from relpos._opinion.evaluate import evaluate
from relpos._opinion.rounding import (
    CANNOT_TELL,
    DTYPES,
    Rounding,
    coarsest,
    rounding_of,
)
from relpos._opinion.search import Finding, search
from relpos._text import html_table
from relpos._warn import silenced

if TYPE_CHECKING:
    from relpos._schemes import SchemeName

__all__ = ["Diagnosis", "diagnose"]

P = ParamSpec("P")
#: What to do with a layer that has projections.
LAYERS = (
    "For a layer with projections, call relpos.compare(layer of relpos, mine, x, "
    "weights=...), or diagnose its attention alone: pass a function of queries, keys "
    "and values as mine, and what the projections give as query, key and value"
)
#: Other layouts of the heads, in words.
LAYOUTS = {
    "heads_last": "its heads after the positions; ",
    "heads_joined": "its heads joined in the last axis; ",
}


class Diagnosis(NamedTuple):
    """Result of `diagnose`, which shows itself as a line for each field.

    Attributes
    ----------
    verdict : str
        A sentence.
    kind : str
        'same', 'convention' (another way that is as right), 'mistake', 'cannot tell'
        where 16-bit numbers are too coarse to say, or 'unknown' where nothing fits.
    differences : tuple of str
        Short names of at most two differences, after the layout of the heads where that
        is another; empty if `kind` is 'same', 'unknown' or 'cannot tell'.
    error : float
        The largest difference that remains, over the largest entry; that of the formula
        itself if `closest` is None.
    closest : tuple of str, or None
        `differences`, or where nothing fits the names of the nearest ones. None if
        their error is more than a tenth of the formula's own: then they say nothing.
    """

    verdict: str
    kind: str
    differences: tuple[str, ...]
    error: float
    closest: tuple[str, ...] | None

    def _rows(self) -> list[list[str]]:
        closest = ", ".join(self.closest or ())
        nothing = "none" if self.closest is None else "the formula itself"
        return [
            ["verdict", self.verdict],
            ["kind", self.kind],
            ["differences", ", ".join(self.differences) or "none"],
            ["error", f"{self.error:.2g}"],
            ["closest", closest or nothing],
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        return html_table(["Diagnosis", ""], self._rows())


def _tells_of_layers(function: Callable[P, Diagnosis]) -> Callable[P, Diagnosis]:
    """Let a call without keys, as of a layer and its input, say what is wanted."""

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> Diagnosis:
        names = ("mine", "query", "key")
        passed = {*names[: len(args)], *keywords}
        if "key" not in passed and passed >= {"mine", "query"}:
            raise TypeError(f"diagnose() needs an argument 'key'. {LAYERS}")
        return function(*args, **keywords)

    return call


@_tells_of_layers
@hinted
@silenced()  # the verdict says it
def diagnose(
    mine: Any,
    query: Any,
    key: Any,
    value: Any = None,
    *,
    scheme: SchemeName | None = None,
    **keywords: Any,
) -> Diagnosis:
    r"""Name the known convention or mistake that makes results differ from relpos's.

    With f(x) the result of relpos for arguments x, it looks for changes d of the list
    below, none, one or two of them, so that to rounding

    .. math:: mine = f(d(x)), \quad error = \max |mine - f(d(x))| \, / \max |f(d(x))|

    Parameters
    ----------
    mine : callable, array_like or tensor
        Recorded results, or a function that computes them from ``(query, key)``, or
        from ``(query, key, value)`` if a value is given: of arrays or of tensors, or a
        torch module. The first item of a tuple counts. Without a value they are scores
        or weights (..., H, Lq, Lk), with one they are outputs (..., H, Lq, Dv). The
        heads may also come after the length, or joined with the columns. A function is
        called with copies, and may change them; the parameters, buffers and gradients
        of a module are put back afterwards.
    query : array_like or tensor, (..., H, Lq, D)
        The queries of both: random numbers, of a few heads and some ten positions.
    key : array_like or tensor, (..., Hk, Lk, D)
        One row for each key.
    value : array_like or tensor, (..., Hk, Lk, Dv), optional
        One row for each key.
    scheme : str, optional
        The intended function, by any name that `plan` knows, such as
        "transformer_xl_attention", or "rotary"; None means `attention`.
    **keywords
        The arguments of that function, by name: tables, masks, `is_causal` and so on.
        "rotary" takes those of `attention` and of `apply_rotary`, which rotates queries
        and keys; `positions` (..., Lk) or `angles` (..., Lk, rotary_dim / 2) are those
        of the keys, with the queries from key `query_offset` on. "fire_attention" takes
        FIRE's parameters.

    Returns
    -------
    Diagnosis
        `verdict`, `kind`, `differences`, `error` and `closest`.

    Raises
    ------
    TypeError, ValueError, IndexError
        As the function of the scheme; ValueError also for a scheme without scores, and
        for results of a shape that they cannot have.

    See Also
    --------
    compare : Compares outputs and gradients of any two implementations.
    scores : The scores that it compares with, term by term.

    Notes
    -----
    {conventions}

    {mistakes}

    Where several fit, the verdict has the simplest, a term that is left out first, then
    a convention before a mistake, and says that the inputs cannot tell. The search runs
    in NumPy in float64 and takes one to two seconds at 2 heads of 12 positions. A
    floating mask of zeros and ones is told even where the results agree, because it is
    added to the scores and hides nothing. Dropout is not supported.

    A layer has projections before attention, and one after it, which are compared by
    `compare`, or are left out here: `mine` is then a function of queries, keys and
    values, and the inputs are what the layer's projections give.

    In float32 and float64 the roundings of sums are allowed. The coarsest dtype of
    `mine`, its parameters, the inputs and the tables may be bfloat16 or float16: then a
    right implementation that rounds inputs, weights and results to it is 'same', with
    errors up to .0098 or .0012 of the largest entry. One that rounds scores as well may
    be off by more, by an amount that follows from their size. Where that amount is
    below 2 % or .5 %, errors up to half of these are 'same' too; a larger error that
    such rounding could explain is 'cannot tell', and the verdict says to compare in
    float32. An error of 2 % in bfloat16 or .5 % in float16 is never 'same', nor is nan
    compared with nan.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, whose shift is copied most often.

    Examples
    --------
    Relative keys from a table that begins in the future:

    >>> import numpy as np
    >>> import relpos
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 1, 6, 4))
    >>> table = rng.standard_normal((11, 4))
    >>> def mine(query, key):
    ...     rows = np.arange(6)[:, None] - np.arange(6) + 5  # query minus key
    ...     position = np.einsum("hid,ijd->hij", query, table[rows])
    ...     return (query @ key.swapaxes(-1, -2) + position) / 2
    >>> found = relpos.diagnose(mine, q, k, scheme="shaw_attention", rel_key=table)
    >>> found.kind, found.differences
    ('convention', ('table_reversed',))
    >>> found.verdict[:52]
    'equals relpos.shaw_attention with the table reversed'
    """
    has_value = value is not None
    inputs = (query, key, value) if has_value else (query, key)
    view = "outputs" if has_value else "scores"
    start = begin(scheme, query, key, value, view, copied(keywords))
    results, returned = _results(mine, inputs)
    stored = list(keywords.values())
    if is_module(mine):
        stored += mine.parameters()
    # Results of a fine dtype may come from coarser inputs, and part of a call in 16
    # bits may be computed in float32: each dtype is tried.
    roundings = [rounding_of(returned), coarsest(returned, *inputs, stored=stored)]
    coarse = min(roundings) < DTYPES["float32"]
    if coarse:
        roundings.append(DTYPES["float32"])
    mask = keywords.get("attn_mask")
    note = None if mask is None else added_mask("attn_mask", mask)
    findings = _findings(mine, start, results, roundings)
    layout, finding = min(findings, key=lambda pair: _rank(pair[1]))
    # The formula's own error is that in the layout where it is smallest.
    is_near = finding.is_near(min(x.own.error for _, x in findings))
    if not is_near:  # no layout is more likely than the first
        layout, finding = findings[0]
    diagnosis = _diagnosis(scheme, layout, finding, is_near, coarse, note)
    if diagnosis.kind == "unknown" and _is_layer(mine):
        return diagnosis._replace(verdict=f"{diagnosis.verdict}. {LAYERS}")
    return diagnosis


def _findings(
    mine: Any, start: Attempt, results: Array, roundings: list[Rounding]
) -> list[tuple[str, Finding]]:
    """Search in each view and layout that the results may have, until one is right."""
    findings = []
    for attempt in _views(start, results):
        for layout, array in _laid_out(mine, results, attempt):
            finding = search(array, attempt, roundings)
            findings.append((layout, finding))
            if finding.kind == "same":
                return findings  # there is nothing simpler
    return findings


def _names(kind: str) -> str:
    """Return the names of differences of a kind, as lines of a docstring."""
    names = [row.name for row in DIFFERENCES if row.kind == kind]
    names += LAYOUTS if kind == "convention" else []
    text = f"{kind.title()}s: {', '.join(f'`{name}`' for name in names)}."
    return fill(text, 88, initial_indent=" " * 4, subsequent_indent=" " * 4)


if diagnose.__doc__:  # none under -OO
    for _kind in ("convention", "mistake"):
        diagnose.__doc__ = diagnose.__doc__.replace(f"    {{{_kind}s}}", _names(_kind))


def _results(mine: Any, inputs: tuple[Any, ...]) -> tuple[Array, Any]:
    """Return the results in float64, and as they came."""
    if callable(mine) and not hasattr(mine, "__array__"):
        with unchanged(mine):
            mine = called(mine, inputs)
    while isinstance(mine, tuple) and mine:
        mine = mine[0]
    array = as_numpy("mine", mine)
    if array.dtype.kind != "f":
        raise TypeError(f"mine: got {kind_of(array)}; expected floating results")
    return array.astype(np.float64), mine


def _views(start: Attempt, results: Array) -> Iterator[Attempt]:
    """Yield attempts at weights, where scores could be weights, and at the scores."""
    if start.view == "scores":
        # Weights are between 0 and 1, up to their rounding in 16 bits. Rows of queries
        # that see no key may be nan.
        numbers = np.where(np.isnan(results), 0.0, results)
        if ((numbers >= 0) & (numbers <= 1.01)).all():
            yield replace(start, view="weights")
    yield start


def _laid_out(mine: Any, results: Array, attempt: Attempt) -> list[tuple[str, Array]]:
    """Return the results with the heads first, for each layout that fits."""
    shape, is_output = evaluate(attempt).result.shape, attempt.view == "outputs"
    count, heads = len(shape), shape[-3]
    if not is_output and attempt.get("rel_value") is not None:
        results = _without_repeats(results, shape)
    # Batch axes of length 1 in front say nothing.
    while results.ndim > count and results.shape[0] == 1:
        results = results[0]
    layouts = {"": results}
    if is_output and heads > 1 and results.shape == (*shape[:-3], *shape[-2:]):
        layouts[""] = np.broadcast_to(results[..., None, :, :], shape)  # one for all
    if results.ndim == count:
        # The heads of outputs are before the columns, (.., Lq, H, Dv). Those of scores
        # and weights are last, (.., Lq, Lk, H).
        layouts["heads_last"] = np.moveaxis(results, -2 if is_output else -1, -3)
    if is_output and heads > 1 and results.ndim > 1 and results.shape[-1] % heads == 0:
        *rows, columns = results.shape
        # Joined columns are those of head 0, then those of head 1.
        apart = results.reshape(*rows, heads, columns // heads)
        layouts["heads_joined"] = np.moveaxis(apart, -2, -3)
    fitting = []
    for layout, array in layouts.items():
        array = array.reshape((1,) * (count - array.ndim) + array.shape)
        if array.shape == shape:
            fitting.append((layout, array))
    if not fitting:
        raise ValueError(
            f"mine: got shape {results.shape}; expected {attempt.view} of shape {shape}"
            f"{f'. {LAYERS}' if _is_layer(mine) else ''}"
        )
    return fitting


def _without_repeats(results: Array, shape: tuple[int, ...]) -> Array:
    """Return one item along each batch axis that repeats it and is 1 in `shape`.

    `scores` has the batch axes of `rel_value`, on which no score depends.
    """
    one = (1,) * max(results.ndim - len(shape), 0) + shape
    for axis in range(-4, -results.ndim - 1, -1):
        first = results.take([0], axis) if results.shape[axis] else results
        every = np.broadcast_to(first, results.shape)
        if one[axis] == 1 and np.array_equal(results, every, equal_nan=True):
            results = first
    return results


def _is_layer(mine: Any) -> bool:
    return is_module(mine) or hasattr(mine, "named_parameters")


def _rank(finding: Finding) -> tuple[int, int, float]:
    """Sort explanations before possible ones, then by differences, then by error."""
    # Where no explanation is certain, fewer differences are no merit: the error
    # decides.
    doubt = ("same", CANNOT_TELL, "differs").index(finding.verdict)
    number = 0 if doubt else len(finding.closest.differences)
    return doubt, number, finding.closest.error


def _diagnosis(
    scheme: str | None,
    layout: str,
    finding: Finding,
    is_near: bool,
    coarse: bool,
    note: str | None,
) -> Diagnosis:
    """Report a finding, with the layout of the heads among the differences."""
    kind, closest = finding.kind, finding.closest if is_near else finding.own
    names = closest.names
    if layout:
        names = (layout, *names)
        # Another layout is a difference too, and one that is as right.
        kind = "convention" if kind == "same" else kind
    called = f"relpos.{function_of(scheme)}"
    if called == "relpos.apply_rotary":  # which rotates, and does not attend
        called = f"relpos.attention after {called}"
    verdict = LAYOUTS.get(layout, "") + finding.sentence(called, coarse, is_near)
    verdict += f"; {note}" if note else ""
    differences = names if finding.verdict == "same" else ()
    shown = names if is_near else None
    return Diagnosis(verdict, kind, differences, closest.error, shown)
