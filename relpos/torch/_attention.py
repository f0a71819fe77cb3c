"""Attention on tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor

from relpos._attention import fire_network
from relpos._attention.attention import DEFAULTS, read_by
from relpos._attention.edges import EDGES
from relpos._attention.operands import LABELS, MOST_LABELS, OPERANDS, called
from relpos._checks import (
    Array,
    as_flag,
    as_int,
    as_integers,
    integers_of,
    kind_of,
)
from relpos._settings import kernels
from relpos.torch._attend import attend
from relpos.torch._causal import INTEGERS, without_causal_bias
from relpos.torch._engine import Setting
from relpos.torch._functions import copied_setting
from relpos.torch._jagged import takes_jagged
from relpos.torch._pair_call import compute_pairs
from relpos.torch._recorded import RECORD
from relpos.torch._tensors import check_type, under_autocast
from relpos.torch._tracing import PLAIN, is_plain

if TYPE_CHECKING:
    from typing import Unpack

    from torch.nn.attention.flex_attention import BlockMask

    from relpos._attention.keywords import Off
    from relpos.torch._keywords import AttentionKeywords, SchemeValues, Values
    from relpos.torch._pair_functions import ScoreFunction

__all__ = ["AttentionOutput", "attention"]

#: Arguments that may be tensors, and those that may be nothing else.
_TENSORS = {*OPERANDS, *fire_network.NAMES, *EDGES, "buckets", "cu_seqlens"}
_COUNTS = {name for name, row in OPERANDS.items() if not row.letters}
_ONLY_TENSORS = _TENSORS - _COUNTS
#: Integers that may be arrays of NumPy, as recipes return them if given no tensor.
_INDICES = {name for name, row in OPERANDS.items() if not row.has_gradient} - _COUNTS
_INDICES = (_INDICES - {"key_blocks"}) | {"buckets", "cu_seqlens"}
_MAX_SEED = 2**63 - 1


class AttentionOutput(NamedTuple):
    """Results of attention on tensors; None where one was not asked for.

    Attributes
    ----------
    out : Tensor, (..., H, Lq, Dv)
    lse : Tensor, (..., H, Lq), or None
        Logarithm of the sum of the exponentials of each query's scores, with gradients.
    weights : Tensor, (..., H, Lq, Lk), or None
        Probabilities, before dropout; they have no gradient.
    """

    out: Tensor
    lse: Tensor | Any
    weights: Tensor | Any


def _read(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return the results of a call of tensors that C reads, None of another one."""
    # C would run the call, and not the tracer or the transform that is active
    if not is_plain():
        return None
    records = torch.is_grad_enabled()
    if records and RECORD is None:
        return None
    result = kernels().attend_tensors(
        args, keywords, torch.get_num_threads(), RECORD if records else None
    )
    if result is None:
        return None
    out, lse = result if type(result) is tuple else (result, None)
    if torch.is_autocast_enabled("cpu"):
        dtype = under_autocast(out.dtype)
        if dtype != out.dtype:
            if out.itemsize == 2:
                return None  # it would be rounded twice
            out = out.to(dtype)
    return out if lse is None else AttentionOutput(out, lse, None)


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[Off]],
) -> Tensor: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **keywords: Unpack[AttentionKeywords[bool]],
) -> AttentionOutput: ...
@read_by(_read)
@takes_jagged
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    query_offset: int | Tensor | None = None,
    rel_key: Tensor | None = None,
    rel_query: Tensor | None = None,
    rel_value: Tensor | None = None,
    rel_bias: Tensor | None = None,
    pos_bias_u: Tensor | None = None,
    pos_bias_v: Tensor | None = None,
    min_relative_position: int | None = None,
    buckets: Tensor | Array | None = None,
    beyond: str = "clip",
    labels: Tensor | Array | tuple[Tensor | Array, ...] | None = None,
    position_query: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    log_decay: Tensor | None = None,
    key_ranges: Tensor | Array | None = None,
    key_lengths: int | Tensor | None = None,
    key_blocks: Tensor | None = None,
    block_size: int | tuple[int, int] | None = None,
    window: tuple[int | None, int | None] | None = None,
    cu_seqlens: Tensor | Array | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
    num_threads: int | None = None,
    rng: int | Tensor | torch.Generator | None = None,
    score_mod: ScoreFunction | None = None,
    block_mask: BlockMask | None = None,
) -> Tensor | AttentionOutput:
    r"""Softmax attention with any mix of relative-position terms, on tensors.

    `relpos.attention` with autograd: the same formula, arguments and results, with
    gradients of every floating tensor that requires one, those of tables, biases, sinks
    and a floating `attn_mask` included. With ``l`` the table row of a pair,

    .. math::

        s_{ij} &= cap \left(scale \left[(q_i + u) k_j + (q_i + v) A_l
                  + k_j C_l\right]\right) + b_l + mask_{ij} \\
        out_i &= \sum_j softmax_j(s_i)_j (v_j + W_l)

    Tensors are in the memory of the CPU and are not copied, except vectors and biases
    of bfloat16 and float16. Both dtypes are computed in float32. The result has the
    dtype of query, key and value, but float32 if these differ, and float64 if any
    tensor but the mask has it. Under ``torch.autocast("cpu")`` it has autocast's dtype
    unless a tensor is float64.
    `torch.func` (grad, vjp, jacrev, vmap) and activation checkpointing go through it;
    `torch.compile` and `torch.export` take it as one operator, unless they are around
    `torch.func.grad`, where it runs as it is. A `vmap` is one call for all items, but
    one for each where something is dropped, or where sinks, buckets, FIRE's parameters
    or a graph differ, or are differentiated, by item: these have no batch axes.

    Parameters
    ----------
    query, key, value : Tensor
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv): rows of each head. Or
        jagged nested tensors of the same lengths, (B, H, j, D), (B, Hk, j, D) and
        (B, Hk, j, Dv), as ``x.transpose(1, 2)`` of (B, j, H, D) is: each item is a
        document of `cu_seqlens`, and `out` and lse are jagged, too. What counts over
        the documents, such as `attn_mask` and `key_blocks`, is refused next to them.
    attn_mask : Tensor, broadcasts to (..., H, Lq, Lk), optional
        A boolean mask is True where a query may attend. A floating mask is added after
        the scale. A mask of zeros and ones alone raises a warning, as in
        `relpos.attention`, unless it is traced. A `CausalBias` of
        ``torch.nn.attention.bias`` hides what it says, by the numbers of queries and
        keys. It also says `query_offset` if the call does not: 0 (`causal_upper_left`)
        or Lk - Lq (`causal_lower_right`). `is_causal` next to it is an error.
    dropout_p : float, default 0
        Probability in [0, 1) that a weight is dropped, in training and out of it: pass
        0 where a module is in evaluation.
    is_causal, scale, enable_gqa, query_offset : optional
        These, and the next four entries, are as in `relpos.attention`, with tensors
        instead of arrays. Only integers (offsets, buckets, labels, ranges, lengths) may
        stay arrays.
    rel_key, rel_query, rel_value, rel_bias, pos_bias_u, pos_bias_v : optional
        Tables, and what is added to the query.
    min_relative_position, buckets, beyond, labels, position_query : optional
        Which rows of the tables a pair uses, and what they are dotted with.
    softcap, sinks, log_decay : optional
        What else becomes of the scores.
    key_ranges, key_lengths, key_blocks, block_size, window, cu_seqlens : optional
        Which keys a query sees.
    return_lse : bool, default False
        Also return lse, which has gradients.
    return_weights : bool, default False
        Also return the weights, which have none: a loss of them is an error.
    num_threads : int, optional
        Default `torch.get_num_threads()`, at each call.
    rng : int, Tensor of one int, or torch.Generator, optional
        Seed of dropout, or the generator that makes it; by default torch's own, which
        `torch.manual_seed` sets. An integer drops what it drops in `relpos.attention`.
        A Generator is not compiled.
    score_mod, block_mask : optional
        A function of each score and a mask of blocks, as in `flex_attention`. The
        function sees the scaled scores, before `softcap`, masks and sinks; of several
        batch axes, b counts their items one after the other. With them a call takes
        `scale`, `enable_gqa`, `softcap`, `is_causal`, `query_offset`, `window`,
        `key_ranges`, `key_lengths`, `key_blocks`, `block_size`, `sinks`, `return_lse`,
        `num_threads` and a bool `attn_mask`.

    Returns
    -------
    Tensor or AttentionOutput
        `out`, (..., H, Lq, Dv), where ``...`` are the batch axes of all arguments. With
        a `return_*` flag the named tuple ``(out, lse, weights)``, None where not asked
        for.

    Raises
    ------
    TypeError
        A tensor is on another device, or of a subclass whose memory does not have its
        numbers: a masked tensor, or a CausalBias that is not `attn_mask`.
    NotImplementedError
        For forward-mode or second derivatives, and gradients of the weights.
    ValueError
        An argument is given together with `score_mod` or `block_mask` that they do not
        go with.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> query = torch.zeros(1, 2, 4)
    >>> value = torch.tensor([[[1.0], [2.0]]])
    >>> bias = torch.zeros(3, requires_grad=True)  # relative positions -1, 0, 1
    >>> out = relpos.torch.attention(query, query, value, rel_bias=bias)
    >>> out.detach()
    tensor([[[1.5000],
             [1.5000]]])
    >>> out[0, 0].backward()
    >>> bias.grad
    tensor([ 0.0000, -0.2500,  0.2500])
    """
    # not `locals()`, which torch 2.6 does not compile
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        "attn_mask": attn_mask,
        "dropout_p": dropout_p,
        "is_causal": is_causal,
        "scale": scale,
        "enable_gqa": enable_gqa,
        "query_offset": query_offset,
        "rel_key": rel_key,
        "rel_query": rel_query,
        "rel_value": rel_value,
        "rel_bias": rel_bias,
        "pos_bias_u": pos_bias_u,
        "pos_bias_v": pos_bias_v,
        "min_relative_position": min_relative_position,
        "buckets": buckets,
        "beyond": beyond,
        "labels": labels,
        "position_query": position_query,
        "softcap": softcap,
        "sinks": sinks,
        "log_decay": log_decay,
        "key_ranges": key_ranges,
        "key_lengths": key_lengths,
        "key_blocks": key_blocks,
        "block_size": block_size,
        "window": window,
        "cu_seqlens": cu_seqlens,
        "return_weights": return_weights,
        "num_threads": num_threads,
    }
    if score_mod is None and block_mask is None:
        return compute(arguments, return_lse, rng)
    if rng is not None:
        arguments["rng"] = rng  # refused by name
    return compute_flex(arguments, return_lse, score_mod, block_mask)


def compute_flex(
    arguments: dict[str, Any], return_lse: bool, score_mod: Any, block_mask: Any
) -> Tensor | AttentionOutput:
    """Compute a call with functions of pairs from its other arguments by name."""
    if arguments.get("attn_mask") is not None:
        arguments = without_causal_bias(arguments["query"], arguments["key"], arguments)
    tensors, values = by_kind(arguments)
    with_lse = as_flag("return_lse", return_lse)
    out, lse = compute_pairs(tensors, values, score_mod, block_mask)
    return AttentionOutput(out, lse, None) if with_lse else out


def compute(
    arguments: dict[str, Any],
    return_lse: bool = False,
    rng: object = None,
    scheme_values: SchemeValues | None = None,
) -> Tensor | AttentionOutput:
    """Compute a call from its arguments by name, tensors of FIRE or a graph included.

    `scheme_values` are the other arguments of these two, as in `Setting`.
    """
    if arguments.get("attn_mask") is not None:
        arguments = without_causal_bias(arguments["query"], arguments["key"], arguments)
    tensors, values = by_kind(arguments)
    with_lse = as_flag("return_lse", return_lse)
    with_weights = as_flag("return_weights", values.get("return_weights", False))
    state = None
    # a seed is checked, and one is drawn from a generator, also if nothing is dropped
    if rng is not None or values.get("dropout_p"):
        state = _state_before(rng)
        seed = as_seed(rng, tensors["query"].device)
        if values.get("dropout_p"):
            tensors["rng"] = seed
    setting = Setting(tuple(tensors), values, scheme_values, with_lse, rounds=True)
    try:
        results = attend(setting, list(tensors.values()))
    except BaseException:
        # a call that fails draws nothing from the generator
        if state is not None:
            generator, before = state
            generator.set_state(before)
        raise
    out = results.out
    dtype = under_autocast(out.dtype)
    if out.dtype != dtype:
        out = out.to(dtype)
    if not (with_lse or with_weights):
        return out
    # an operator has a lse also where it is not asked for
    return AttentionOutput(out, results.lse if with_lse else None, results.weights)


def by_kind(arguments: dict[str, Any]) -> tuple[dict[str, Tensor], Values]:
    """Return the tensors of a call by name, and its other arguments, without defaults.

    Integers that may be arrays are tensors.
    """
    tensors: dict[str, Tensor] = {}
    values: Values = {}
    for name, value in arguments.items():
        # `is`, as a tensor compared by == is a tensor. A default that is another object
        # is passed on, which changes nothing.
        if value is DEFAULTS.get(name):
            continue
        if type(value) is float and value == DEFAULTS.get(name):
            continue  # each module has a 0.0 of its own
        # first what is a tensor, then what becomes one, then what may not be one
        if isinstance(value, Tensor) and name in _TENSORS:
            if type(value) not in PLAIN:  # before it is asked for anything
                check_type(called(name), type(value))
            tensors[name] = value
        elif name == "labels" and _is_several_labels(value):
            # names cut to the number of labels: PyTorch 2.6 does not compile zip else
            for label, labels in zip([*LABELS][: len(value)], value, strict=False):
                tensors[label] = _as_labels(labels)
        elif name in _INDICES and type(value) is np.ndarray:
            tensors[name] = _of_integers(name, value)
        elif isinstance(value, Tensor) or name in _ONLY_TENSORS:
            expected = "a tensor" if name in _ONLY_TENSORS else "no tensor"
            raise TypeError(
                f"{called(name)}: got {kind_of(value)}; expected {expected}"
            )
        elif name in _COUNTS and not isinstance(value, INTEGERS):
            tensors[name] = torch.from_numpy(as_integers(name, value))
        else:
            values[name] = copied_setting(name, value)  # type: ignore[literal-required]
    return tensors, values


def _is_several_labels(labels: object) -> bool:
    return type(labels) is tuple and 0 < len(labels) <= MOST_LABELS


def _of_integers(name: str, value: Array) -> Tensor:
    """Copy an array of integers to a tensor, which no later change reaches."""
    array = integers_of(name, value)
    return torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))


def _as_labels(labels: object) -> Tensor:
    if type(labels) is np.ndarray:
        return _of_integers("labels", labels)
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels: got a tuple with {kind_of(labels)}; expected tensors")
    return labels


def _state_before(rng: object) -> tuple[torch.Generator, Tensor] | None:
    """Return the generator of a seed and its state, which it has again after errors."""
    if torch.compiler.is_compiling() or not isinstance(rng, torch.Generator | None):
        return None
    generator = torch.default_generator if rng is None else rng
    return generator, generator.get_state()


def as_seed(rng: object, device: torch.device) -> Tensor:
    """Return the seed of dropout, by default from torch's own generator."""
    # a compiler may ask whether an object is a tensor, and not what else a tensor is
    if isinstance(rng, Tensor):
        is_bool = rng.dtype is torch.bool
        if rng.dim() or rng.is_floating_point() or rng.is_complex() or is_bool:
            raise TypeError(
                f"rng: got a tensor of {rng.dtype} and shape {tuple(rng.shape)}; "
                "expected a single integer"
            )
        return rng
    if rng is None or isinstance(rng, torch.Generator):
        return torch.randint(_MAX_SEED, (), generator=rng, device=device)
    if not isinstance(rng, int):
        raise TypeError(
            f"rng: got {kind_of(rng)}; expected an int, a tensor of one integer, a "
            "torch.Generator or None"
        )
    return torch.tensor(as_int("rng", rng, 0, _MAX_SEED), device=device)
