"""Attention with every relative-position term, in one call that stores no Lq x Lk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, overload

import numpy as np

from relpos._attention.gradients import AttentionContext, Saved
from relpos._attention.operands import Call, shows_shapes
from relpos._attention.problem import Problem, look_at_mask, prepare
from relpos._checks import (
    Array,
    as_flag,
    as_generator,
    check_keywords,
    check_out,
    lies_among,
    new_array,
)
from relpos._settings import choose_num_threads, kernels
from relpos._text import in_short
from relpos._undo import keep, whole

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import ArrayLike

    from relpos._attention.keywords import AttentionKeywords, Off, Seed

__all__ = ["AttentionOutput", "attention"]

P = ParamSpec("P")
R = TypeVar("R")


@in_short
class AttentionOutput(NamedTuple):
    """Results of `attention`; None where one was not asked for.

    Attributes
    ----------
    out : ndarray, (..., H, Lq, Dv)
    lse : ndarray, (..., H, Lq), or None
        Logarithm of the sum of the exponentials of each query's scores.
    weights : ndarray, (..., H, Lq, Lk), or None
        Probabilities, before dropout.
    context : AttentionContext or None
        Gives the gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> query = np.zeros((1, 2, 4))
    >>> result = relpos.attention(query, query, query, return_weights=True)
    >>> result
    AttentionOutput(
        out=float64 (1, 2, 4),
        lse=None,
        weights=float64 (1, 2, 2),
        context=None,
    )
    >>> result.weights, result.lse
    (array([[[0.5, 0.5],
            [0.5, 0.5]]]), None)
    """

    out: Array
    lse: Array | Any
    weights: Array | Any
    context: AttentionContext[Any] | Any


def read_by(
    read: Callable[[tuple[Any, ...], dict[str, Any]], Any],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let `read` compute a call from its arguments, unless it returns None."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> Any:
            result = read(args, keywords)
            return function(*args, **keywords) if result is None else result

        return call

    return decorate


def _read(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return the results of a call of arrays that C reads."""
    # None is a call that C leaves to Python. (out,), or (out, lse) if it asks for lse.
    results = kernels().attend(args, keywords, 0, False, False, False)
    if results is None:
        return None
    if len(results) == 1:
        return results[0]
    out, lse = results
    return AttentionOutput(out, lse, None, None)


@overload
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[Off]],
) -> Array: ...
@overload
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[bool]],
) -> AttentionOutput: ...
@shows_shapes
@read_by(_read)
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    query_offset: ArrayLike | None = None,
    rel_key: ArrayLike | None = None,
    rel_query: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    rel_bias: ArrayLike | None = None,
    pos_bias_u: ArrayLike | None = None,
    pos_bias_v: ArrayLike | None = None,
    min_relative_position: int | None = None,
    buckets: ArrayLike | None = None,
    beyond: str = "clip",
    labels: ArrayLike | None = None,
    position_query: ArrayLike | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    log_decay: ArrayLike | None = None,
    key_ranges: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    key_blocks: ArrayLike | None = None,
    block_size: int | tuple[int, int] | None = None,
    window: tuple[int | None, int | None] | None = None,
    cu_seqlens: ArrayLike | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
    return_context: bool = False,
    num_threads: int | None = None,
    rng: Seed = None,
    out: Array | None = None,
) -> Array | AttentionOutput:
    r"""Softmax attention with any mix of relative-position terms.

    Query ``i`` sits at position ``i + query_offset``, key ``j`` at ``j``; their
    relative position is ``r = j - (i + query_offset)``, key minus query: past keys have
    ``r < 0``. With ``l`` the table row of ``r``,

    .. math::

        s_{ij} &= cap \left(scale \left[(q_i + u) k_j + (q_i + v) A_l
                  + k_j C_l\right]\right)
                  + b_l + \textstyle\sum_{t=j+1}^{i + query\_offset} g_t
                  + mask_{ij} \\
        lse_i &= \log \left(e^{sink} + \sum_j e^{s_{ij}}\right), \quad
            p_{ij} = e^{s_{ij} - lse_i} \\
        out_i &= \sum_j p_{ij} (v_j + W_l)

    A is `rel_key`, C `rel_query`, W `rel_value`, b `rel_bias`, g `log_decay`, u and v
    are `pos_bias_u` and `pos_bias_v`; cap(x) is c tanh(x / c) for c `softcap`, else x;
    sink is the entry of `sinks` for the head, or for the head and query i, -inf by
    default. A query that sees no key gets out 0 and lse = sink. With a
    `position_query` e, :math:`(e_i + v) A_l` takes the place of
    :math:`scale \, (q_i + v) A_l`.

    Dimension letters: H query heads, Hk key heads, Lq and Lk lengths, D, Dv and Dp
    columns, R table rows. Batch axes ``...`` of all arguments broadcast as in NumPy.
    Heads do not, but a table, `rel_bias`, u or v with one head serves all heads. Inputs
    are float16, the bfloat16 of ml_dtypes, float32 or float64. The result has the dtype
    of query, key and value; float32 where these differ, and float64 where any input but
    the mask is. Inputs of 16 bits are computed in float32 and rounded once. These, and
    arrays that speak DLPack on the CPU, such as JAX's, are read in place.

    Parameters
    ----------
    query : array_like
        One row for each query.
    key : array_like
        One row for each key.
    value : array_like
        What each key has to give.
    attn_mask : array_like, optional
        A boolean mask is True where a query may attend. A floating mask is added after
        the scale: -inf hides a key, and any finite number is only added. A mask of
        zeros and ones alone hides nothing, and raises a UserWarning.
    dropout_p : float, default 0
        Probability in [0, 1) that a weight is dropped from `out`; the others grow by
        1 / (1 - dropout_p). lse and weights are those without dropout.
    is_causal : bool, default False
        Hide keys at positions after the query's; combines with `attn_mask`.
    scale : float, optional
        Default 1 / sqrt(D). Multiplies the content and position terms, not `rel_bias`
        nor `attn_mask`, nor the term of a `position_query`. It has to be in the range
        of the computation's dtype, and not so small that it is 0 there.
    enable_gqa : bool, default False
        Let query head h read key head ``h // (H // Hk)``; H % Hk must be 0. Without it
        Hk must be H.
    query_offset : int or array_like of int, (...), optional
        Absolute position of query 0 minus that of key 0. None is 0 when Lq == Lk, and
        an error when they differ and anything depends on positions.
    rel_key, rel_query : array_like, optional
        Tables dotted with the query, and with the key.
    rel_value : array_like, optional
        Table added to the value.
    rel_bias : array_like, optional
        Table added to the score; -inf hides.
    pos_bias_u, pos_bias_v : array_like, optional
        Added to the query in the content term, and in the `rel_key` term.
    min_relative_position : int, optional
        Relative position of row 0 of every table; all then have equal R (a `rel_bias`
        of another, odd length stays centred). Default: each table is centred on
        relative position 0, with R odd.
    buckets : array_like of int, (n,), optional
        Relative position ``min_relative_position + t`` uses table row ``buckets[t]``.
        n takes the place of R in the line above; all tables have equal R.
    beyond : {"clip", "zero", "raise"}, default "clip"
        For relative positions outside a table: its end row, no term at all, or an error
        if `is_causal`, `window`, `key_ranges` and `key_lengths` leave such a pair
        visible.
    labels : array_like of int8 to int64, or tuple of such, optional
        Table row of each pair instead of its relative position, shared by heads; axes
        of length 1 broadcast. Negative: no position term. Each table may have its own
        R. Of a tuple of up to 8 arrays a pair has the sum of the rows that they name,
        as of the axes of a grid; tables hold the rows of all, one after the other.
    position_query : array_like, optional
        Takes the query's place in the `rel_key` term, which `scale` then does not
        multiply. `rel_key` has Dp columns, any number of them, and so has `pos_bias_v`.
    softcap : float, optional
        A number c > 0: what `scale` multiplies, x, becomes c tanh(x / c), which lies
        between -c and c. `rel_bias`, `log_decay` and `attn_mask` come after it.
    sinks : array_like, optional
        A logit of each head, or of each head and query, that has no key and no value,
        neither scaled nor masked: exp(sinks) is part of the row's sum, and of lse, but
        weighs no value. Two axes or more are (..., H, Lq), of which the last may be 1.
        -inf: none; inf or nan makes the rows nan; finite numbers are exact up to the
        largest of the dtype. Where results over parts of the keys are to be merged,
        give it to exactly one of them.
    log_decay : array_like, optional
        Added to the score of a pair for each step from the key to its query: the sum
        of ``log_decay[t]`` over the keys t after key j up to the query's own position,
        in float64. Logarithms of forget gates [5]_; any finite numbers. Every key after
        its query has to be hidden by `is_causal`, `window`, `key_ranges` or
        `key_lengths`.
    key_ranges : array_like of int, optional
        Query i sees only the keys ``key_ranges[i, 0] <= j < key_ranges[i, 1]``, counted
        from key 0 whatever `query_offset` is; shared by heads. Ends beyond the keys are
        moved to 0 and Lk, an end at or before its begin leaves nothing. Combines with
        every other rule. Packed documents: `segment_ranges`.
    key_lengths : int or array_like of int, (...), optional
        Keys at and past it are hidden (padding); 0 to Lk. The axes of an array are
        batch axes, as those of any other argument: ``[3]`` for a query of three axes,
        (H, Lq, D), makes a result of four, (1, H, Lq, Dv), and 3 makes one of three.
    key_blocks : array_like of bool, optional
        Whether the queries of a block see the keys of a block: entry (a, c) is that of
        the queries from ``a * bq`` and of the keys from ``c * bk`` on, both counted
        from the first of the call, whatever `query_offset` is. G is 1, Hk or H: head h
        reads row ``h // (H // G)``. The last blocks may be short. It combines with
        every rule but `cu_seqlens`. Where all pairs of a tile are hidden, it takes no
        time.
    block_size : int or (int, int), optional
        The queries bq and the keys bk of a block of `key_blocks`; one number is both.
    window : (int or None, int or None), optional
        Relative positions outside [-left, right] are hidden; None: no bound.
    cu_seqlens : array_like of int32 or int64, (n + 1,), optional
        Where each of n documents begins, one after the other, and behind them their
        whole length Lq = Lk: numbers that rise from 0, or stay for an empty document,
        for all batch items. A query sees the keys of its own document. Its results are
        those of a call of this document alone, to rounding, but for what is dropped.
        Excludes `key_ranges`, `key_lengths`, `query_offset` and `key_blocks`; blocks
        that are counted over the packed documents go with `key_ranges`.
    return_lse, return_weights : bool, default False
        Also return lse (..., H, Lq), or the weights (..., H, Lq, Lk), which take
        O(Lq Lk) memory.
    return_context : bool, default False
        Also return an `AttentionContext`, whose `~AttentionContext.backward` gives the
        gradients of all floating inputs. It keeps the inputs and the result alive.
    num_threads : int, optional
        Default `get_num_threads()`. The result does not depend on it, bit for bit.
    rng : int, numpy.random.Generator or None, optional
        Source of the dropout seed; one number is taken, if dropout_p > 0.
    out : ndarray, (..., H, Lq, Dv), optional
        Where to put the result: of its dtype, sharing no memory with an input.

    Returns
    -------
    ndarray or AttentionOutput
        `out`, (..., H, Lq, Dv), where ``...`` are the batch axes of all arguments. With
        any `return_*` flag the named tuple
        ``(out, lse, weights, context)``, None where not asked for. lse and weights are
        float32 where out is float16.

    Raises
    ------
    TypeError
        An argument is a masked array, an array of xarray, dask or pandas, whose meaning
        a conversion would drop (the message has the right call), or a torch tensor
        (`relpos.torch` has this function for them).
    ValueError
        A shape or a value does not fit, or `labels`, `buckets` or
        `min_relative_position` come without a table; the message names the argument.
    IndexError
        A label or bucket is outside a table, or, with ``beyond="raise"``, a visible
        relative position is.

    Warns
    -----
    UserWarning
        `attn_mask` is floating and has zeros and ones, no other number, and at most
        65,536 entries in memory: they are added to the scores and hide nothing.

    See Also
    --------
    alibi_bias, t5_bias, kerple_bias : Make a `rel_bias`.
    relpos.recipes : Published models as arguments of this function.
    plan : Bytes and flops, before a call.

    Notes
    -----
    Logits are computed times log2(e). One below ``-finfo.max / log2(e)``, about
    -2.3e38 in float32, overflows to -inf and weighs nothing, as if it were hidden; one
    as large on the other side makes its row NaN. A query is multiplied by scale and
    log2(e) before its products: if it overflows there, its logits do, whatever the keys
    are. Finite numbers in `rel_bias` and `attn_mask` alone never overflow: beyond
    ``finfo.max / (4 log2(e))``, 5.9e37 in float32, a number counts as that one, so that
    sums of several stay finite. Sums of `log_decay` are exact up to half of it. They
    begin at the first key, at that of each document of `cu_seqlens`, and at a key t
    such that no query with `key_ranges` from position t on sees a key before t: after
    one of -1e12, those of later pairs are rounded to 1e-4. A weight below 2^-100 of the
    largest in its row is 0, in float64 one below 2^-980.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155.
    .. [2] Huang et al., "Music Transformer", 2018, arXiv:1809.04281.
    .. [3] Dai et al., "Transformer-XL", 2019, arXiv:1901.02860.
    .. [4] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683.
    .. [5] Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate",
       2025, arXiv:2503.02130.

    Examples
    --------
    One head, two positions; a bias that hides everything but the next key:

    >>> import numpy as np
    >>> import relpos
    >>> query = np.zeros((1, 2, 4))
    >>> value = np.array([[[1.0], [2.0]]])
    >>> relpos.attention(query, query, value)
    array([[[1.5],
            [1.5]]])
    >>> next_only = [-np.inf, -np.inf, 0.0]  # relative positions -1, 0, 1
    >>> relpos.attention(query, query, value, rel_bias=next_only)
    array([[[2.],
            [0.]]])
    """
    # The locals are the parameters by name: no other local may be above this line.
    return attend(locals())


#: The arguments of `attention` that are not given.
DEFAULTS = {name: x.default for name, x in signature(attention).parameters.items()}


def as_call(
    query: object, key: object, value: object, keywords: Mapping[str, Any]
) -> Call:
    """Return all arguments of `attention`, those after value given by name."""
    check_keywords("attention", keywords, DEFAULTS)
    return {**DEFAULTS, "query": query, "key": key, "value": value, **keywords}


def attend(call: Call) -> Array | AttentionOutput:
    """Check a call, allocate its outputs, run the kernel, hand back what was asked."""
    return _attend(call) if call["rng"] is None else _attend_whole(call)


def _attend(call: Call) -> Array | AttentionOutput:
    """Attend; it may raise after a draw, which `whole` then takes back."""
    problem = prepare(call)
    look_at_mask(problem)
    with_lse = as_flag("return_lse", call["return_lse"])
    with_weights = as_flag("return_weights", call["return_weights"])
    with_context = as_flag("return_context", call["return_context"])
    rng, dropout_p, seed = call["rng"], problem.operands["dropout_p"], 0
    if dropout_p or rng is not None:
        seed = draw_seed(rng, dropout_p)
    shape, dtype, out = shape_of(problem), problem.out_dtype, call["out"]
    result = None
    if out is not None:
        result = check_out(out, shape, dtype, problem.inputs)
    if (
        result is None
        or not result.flags.aligned
        or lies_among(result, problem.inputs.values())
    ):
        # The kernel writes aligned numbers, apart from what it reads. An `out` that is
        # not so gets a copy of them.
        result = new_array("out", shape, dtype)
    arrays = run(
        problem,
        result,
        seed,
        call["num_threads"],
        lse=with_lse,
        weights=with_weights,
        for_backward=with_context,
    )
    if out is not None and out is not result:
        out[...] = result
        result = out
    if not (with_lse or with_weights or with_context):
        return result
    context = None
    if with_context:
        exact = arrays.get("kept", arrays["out"])
        saved = Saved(exact, arrays["row_max"], arrays["row_sum"], seed)
        context = AttentionContext(problem, saved)
    return AttentionOutput(result, arrays.get("lse"), arrays.get("weights"), context)


#: With an `rng` a call draws, and takes the draw back if it raises. Calls without one
#: change nothing, and skip the wrapper, which costs two more calls.
_attend_whole = whole(_attend)


def run(
    problem: Problem,
    out: Array,
    seed: int,
    num_threads: object,
    *,
    lse: bool,
    weights: bool,
    for_backward: bool,
) -> dict[str, Array]:
    """Let the kernel write `out` and what else is asked for, and return it by name.

    A backward needs lse in two parts, `row_max` and `row_sum`, and `kept`, the output
    before it was rounded to the dtype of `out`.
    """
    rows = shape_of(problem)[:-1]
    shapes: dict[str, tuple[int, ...]] = {}
    if lse:
        shapes["lse"] = rows
    if for_backward:
        shapes["row_max"] = shapes["row_sum"] = rows
        if out.dtype != problem.dtype:
            shapes["kept"] = out.shape
    if weights:
        shapes["weights"] = (*rows, problem.sizes.Lk)
    arrays = {n: new_array(n, shape, problem.dtype) for n, shape in shapes.items()}
    arrays["out"] = out
    threads = choose_num_threads(num_threads)
    operands = problem.operands | arrays | {"seed": seed, "num_threads": threads}
    kernels().attention_forward(operands)
    return arrays


def shape_of(problem: Problem) -> tuple[int, ...]:
    """Return the shape of the result."""
    return (*problem.batch, problem.sizes.H, problem.sizes.Lq, problem.sizes.Dv)


def draw_seed(rng: object, dropout_p: float) -> int:
    """Draw the seed of the dropout pattern; none is drawn where nothing is dropped."""
    generator = as_generator(rng)
    if not dropout_p:
        return 0
    keep(generator)
    return int(generator.integers(2**64, dtype=np.uint64))
