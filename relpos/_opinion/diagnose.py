"""The second opinion: what explains that an implementation and relpos differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array, kind_of
from relpos._opinion.arrays import as_numpy, called, copied, is_module
from relpos._opinion.attempt import Attempt, evaluate
from relpos._opinion.calls import begin
from relpos._opinion.kept import unchanged
from relpos._opinion.rounding import DTYPES, coarsest, rounding_of
from relpos._opinion.search import Finding, search
from relpos._opinion.words import kind_of_finding, sentence
from relpos._text import html_table

__all__ = ["Diagnosis", "diagnose"]

#: Where the heads may be instead, in words.
LAID_OUT = {
    "": "",
    "heads_last": "its heads beside the last axis; ",
    "heads_joined": "its heads joined in the last axis; ",
}


class Diagnosis(NamedTuple):
    """What `diagnose` found; shows itself as a line for each field.

    Attributes
    ----------
    verdict : str
        A sentence.
    kind : str
        'same', 'convention' (another way that is as right), 'mistake', 'cannot tell'
        where 16-bit numbers are too coarse to say, or 'unknown' where nothing fits.
    differences : tuple of str
        Short names of what is different, none or two at most beside the place of the
        heads; empty where it is the same, unknown, or cannot be told.
    error : float
        The largest difference that remains, over the largest entry.
    closest : tuple of str
        `differences`, or where nothing fits the names of what comes nearest; none if
        that is the formula itself.

    See Also
    --------
    diagnose : Returns it; lists the names.
    """

    verdict: str
    kind: str
    differences: tuple[str, ...]
    error: float
    closest: tuple[str, ...]

    def _rows(self) -> list[list[str]]:
        return [
            ["verdict", self.verdict],
            ["kind", self.kind],
            ["differences", ", ".join(self.differences) or "none"],
            ["error", f"{self.error:.2g}"],
            ["closest", ", ".join(self.closest) or "the formula itself"],
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        return html_table(["Diagnosis", ""], self._rows())


def diagnose(
    mine: Any,
    query: Any,
    key: Any,
    value: Any = None,
    *,
    scheme: str | None = None,
    **keywords: Any,
) -> Diagnosis:
    r"""Name the known convention or mistake that makes results differ from relpos's.

    With f(x) what relpos gives for arguments x, it looks for changes d of the list
    below, none, one or two of them, so that to rounding

    .. math:: mine = f(d(x)), \quad error = \max |mine - f(d(x))| \, / \max |f(d(x))|

    Parameters
    ----------
    mine : callable, array_like or tensor
        What is looked at: results as they were recorded, or a function of arrays or of
        tensors, a torch module among them, that makes them of ``(query, key)``, or of
        ``(query, key, value)`` where there is a value; of a tuple the first. Without a
        value they are scores or weights (..., H, Lq, Lk), with one they are outputs
        (..., H, Lq, Dv). The heads may also come after the length, or joined with the
        columns. A function is called with copies, and may change them; the parameters,
        buffers and gradients of a module are as before afterwards.
    query : array_like or tensor, (..., H, Lq, D)
        What both computed with: random numbers, of a few heads and some ten positions.
    key : array_like or tensor, (..., Hk, Lk, D)
        One row for each key.
    value : array_like or tensor, (..., Hk, Lk, Dv), optional
        What each key has to give.
    scheme : str, optional
        The function that it is to be, by any name that `plan` knows, such as
        "transformer_xl_attention", and "rotary"; None means `attention`.
    **keywords
        The arguments of that function, by name: tables, masks, `is_causal` and so on.
        "rotary" takes those of `attention` and of `apply_rotary`, which turns queries
        and keys; "fire_attention" takes FIRE's parameters.

    Returns
    -------
    Diagnosis
        `verdict`, `kind`, `differences`, `error` and `closest`.

    Raises
    ------
    TypeError, ValueError, IndexError
        As the function of the scheme; ValueError for a scheme without scores, and for
        results of a shape that they cannot have.

    See Also
    --------
    compare : Outputs and gradients of two implementations side by side.
    scores : The scores that it compares with, term by term.
    relpos.reference : What each function means.

    Notes
    -----
    Conventions: `unmasked`, `unmasked_wrapped`, `hidden_differs`, `constant_in_rows`,
    `base_two`, `nothing_is_nan`, `nothing_is_mean`, `table_reversed`,
    `bucket_direction`, `query_minus_key`, `two_sided_table`, `rows_2n`, `beyond_table`,
    `columns_exchanged`, `values_share_table`, `queries_share_table`, `no_scale`,
    `scale_head_dim`, `scale_by_dim`, `scale_three`, `position_unscaled`,
    `position_scaled`, `bias_scaled`, `cap_after_bias`, `heads_tiled`, `mask_inverted`,
    `causal_top_left`, `causal_bottom_right`, `window_counts_itself`, `rotary_pairs`,
    `rotary_inverse`, `heads_last`, `heads_joined`.

    Mistakes: `off_by_one`, `shift_in_encoder`, `wrapped_attended`, `future_is_past`,
    `two_sided_misread`, `clip_one_early`, `index_wraps`, `absolute_rows`,
    `query_table_reversed`, `value_table_reversed`, `not_transposed`, `bucket_rounding`,
    `bucket_sides`, `alibi_slopes`, `scale_d_model`, `scaled_twice`, `scale_inverted`,
    `u_v_exchanged`, `u_is_v`, `u_v_unscaled`, `bias_negated`, `position_negated`,
    `no_rel_key`, `no_rel_query`, `no_rel_value`, `no_rel_bias`, `no_pos_bias_u`,
    `no_pos_bias_v`, `no_softcap`, `no_sinks`, `no_log_decay`, `no_is_causal`,
    `no_window`, `no_key_lengths`, `no_key_ranges`, `no_attn_mask`, `mask_transposed`,
    `offset_0`, `offset_end`, `causal_untold`, `causal_strict`, `causal_sees_next`,
    `causal_backwards`, `window_wider`, `softmax_over_queries`, `masked_after_softmax`,
    `hidden_score_0`, `rotary_one_side`, `rotary_values`, `no_rotary`, `rotary_partial`,
    `rotary_exponent`, `rotary_base`, `rotary_unscaled`, `no_magnitude`,
    `rotary_bfloat16`, `rotary_keys_moved`.

    Where several fit, the verdict has the simplest, a convention before a mistake, and
    says that the inputs cannot tell. It is done by NumPy in float64 and takes about a
    second at 2 heads of 12 positions; dropout is left out.

    In float32 and float64 the roundings of sums are allowed. In bfloat16 and float16,
    the coarsest dtype of `mine`, its parameters, the inputs and the tables, a right
    implementation that rounds inputs, weights and results to it is 'same': errors up to
    .0098 and .0012 of the largest entry. One that rounds scores as well may be off by
    more, by an amount that follows from their size. Where it stays below 2 % and .5 %
    that is 'same' too, up to half of these; beyond, what such rounding could explain is
    'cannot tell', and the verdict says to compare in float32. An error of 2 % in
    bfloat16 or .5 % in float16 is never 'same', nor is nan compared with nan.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, whose shift is the most copied of all.

    Examples
    --------
    Somebody's relative keys, from a table that begins in the future:

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
    results, given = _results(mine, inputs)
    halves = [x for x in _stored(mine, keywords) if rounding_of(x).is_half]
    roundings = [rounding_of(given), coarsest(given, *inputs, *halves)]
    coarse = min(roundings) < DTYPES["float32"]
    if coarse:
        roundings.append(DTYPES["float32"])
    found = []
    for attempt in _views(start, results):
        for layout, array in _laid_out(results, attempt):
            found.append((layout, search(array, attempt, roundings)))
            if _rank(found[-1][1])[:3] == (False, False, 0):  # there is nothing simpler
                return _diagnosis(_called(scheme), *found[-1], coarse)
    best = min(found, key=lambda pair: _rank(pair[1]))
    return _diagnosis(_called(scheme), *best, coarse)


def _stored(mine: Any, keywords: dict[str, Any]) -> list[Any]:
    """List what both have besides the inputs: tables, and parameters of a module."""
    return [*keywords.values(), *(mine.parameters() if is_module(mine) else ())]


def _results(mine: Any, inputs: tuple[Any, ...]) -> tuple[Array, Any]:
    """The results in float64, and as they came."""
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
    """What the results may be: of scores those whose rows sum to 1 may be weights."""
    if start.view == "scores":
        numbers = np.where(np.isnan(results), 0.0, results)
        if (numbers >= 0).all() and (numbers.sum(axis=-1) <= 1.1).all():
            yield replace(start, view="weights")
    yield start


def _laid_out(results: Array, attempt: Attempt) -> Iterator[tuple[str, Array]]:
    """The results with the heads where relpos has them, for each place they may be."""
    shape = evaluate(attempt).result.shape
    heads = shape[-3]
    count = len(shape)
    while results.ndim > count and results.shape[0] == 1:
        results = results[0]
    tried = False
    for layout, array in (
        ("", results),
        ("heads_last", _moved(results, attempt.view, count)),
        ("heads_joined", _split(results, attempt.view, heads)),
    ):
        if array is not None and array.ndim <= count:
            array = array.reshape((1,) * (count - array.ndim) + array.shape)
            if array.shape == shape:
                tried = True
                yield layout, array
    if not tried:
        raise ValueError(
            f"mine: got shape {results.shape}; expected {attempt.view} of shape {shape}"
        )


def _moved(results: Array, view: str, count: int) -> Array | None:
    """Heads from after the length, of scores from the end, to before it."""
    if results.ndim != count:
        return None
    return np.moveaxis(results, -2 if view == "outputs" else -1, -3)


def _split(results: Array, view: str, heads: int) -> Array | None:
    """Heads out of the columns of outputs."""
    if view != "outputs" or heads < 2 or results.ndim < 2 or results.shape[-1] % heads:
        return None
    *rows, columns = results.shape
    apart = results.reshape(*rows, heads, columns // heads)
    return np.moveaxis(apart, -2, -3)


def _rank(finding: Finding) -> tuple[bool, bool, int, float]:
    """Sort key: explanations, then possible ones; few differences; a small error."""
    closest = finding.closest
    number = 0 if finding.found is None else len(closest.differences)
    open_ = finding.found is None
    return open_, open_ and not finding.doubtful, number, closest.error


def _called(scheme: str | None) -> str:
    """The scheme as the verdict names it."""
    if scheme is None:
        return "relpos.attention"
    return f"relpos.{scheme.removeprefix('relpos.')}"


def _diagnosis(called: str, layout: str, finding: Finding, coarse: bool) -> Diagnosis:
    """What was found, with the place of the heads among the differences."""
    kind, closest = kind_of_finding(finding), finding.closest
    names = (*((layout,) if layout else ()), *closest.names)
    if layout and kind == "same":
        kind = "convention"
    verdict = LAID_OUT[layout] + sentence(called, finding, coarse)
    differences = () if finding.found is None else names
    return Diagnosis(verdict, kind, differences, closest.error, names)
