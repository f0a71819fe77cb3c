"""The attention function that transformers calls by the name "relpos"."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator
from typing import Any, TypedDict

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask
from transformers.utils.output_capturing import _active_collector

from relpos._checks import kind_of
from relpos._text import amount
from relpos._warn import warn
from relpos.torch import attention, attention_interface, graph_attention
from relpos.torch._attention import AttentionOutput
from relpos.torch._transformers.interface.names import (
    INSTALLED,
    WITHOUT_EFFECT,
    check_terms,
)
from relpos.torch._transformers.interface.picks import (
    as_mask,
    check_indices,
    picked_blocks,
    ranges_of_documents,
    visible_picks,
)
from relpos.torch.nn import _positions


class Terms(_positions.Terms, total=False):
    """Keywords of `attention` that a module of a model makes of its positions."""

    labels: torch.Tensor | tuple[torch.Tensor, ...]
    position_query: torch.Tensor
    beyond: str
    query_offset: int


class WithTerms:
    """A module that was swapped, and makes `Terms` of its table."""

    def position_terms(self, table: torch.Tensor) -> Terms:
        """Return the table as arguments of attention."""
        raise NotImplementedError


class DenseTerms(TypedDict, total=False):
    """Keywords of `attention` for a bias of every pair and a mask."""

    attn_mask: torch.Tensor
    key_ranges: torch.Tensor


class Scores(TypedDict):
    """Keywords of `attention` and of `graph_attention`: what makes the scores."""

    scale: float | None
    enable_gqa: bool
    softcap: float | None
    sinks: torch.Tensor | None


class Run(TypedDict):
    """Keywords of `attention` that `graph_attention` lacks."""

    dropout_p: float
    is_causal: bool
    query_offset: int | None
    return_weights: bool


#: The name in both registries.
NAME = "relpos"

#: Arguments of the function that makes masks, and the dtype of those of eager code.
_OF_MASKS = {*inspect.signature(sdpa_mask).parameters, "dtype"}

#: Tensors of the registered function, and the shape of each.
_SHAPES = {
    "query": "(B, H, Lq, D)",
    "key": "(B, Hk, Lk, D)",
    "value": "(B, Hk, Lk, Dv)",
}


def register() -> None:
    """Add the attention and the mask function, and inspect models from now on."""
    if "allow_is_causal_skip" not in _OF_MASKS:  # else it would be swallowed
        raise ValueError(
            f"sdpa_mask: got one of {INSTALLED} without the argument "
            "allow_is_causal_skip; expected one with it, by which masks are kept"
        )
    AttentionInterface.register(NAME, attention_interface)
    AttentionMaskInterface.register(NAME, visible_pairs)
    _look_at_models()


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    sliding_window: int | None = None,
    query_offset: int | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    block_indices: torch.Tensor | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute attention of (B, H, L, D) for a module of a model, (B, L, H, Dv).

    A module that `replace_attention` swapped may be one of `WithTerms`, whose table
    comes as `position_bias`. `indices` (B, Lq, k) are the keys that each query attends
    to, picked by the model, and `block_indices` (B, G, Lq, n) are blocks of keys.
    """
    has_terms = isinstance(module, WithTerms)
    _check_arguments(module, keywords, attention_mask, has_terms, query_offset)
    tokens = query, key, value
    _check_tokens(*tokens)
    of_query, of_key = query.shape, key.shape  # each is made anew
    keys = of_key[2]
    lengths, has_mask = (of_query[2], keys), attention_mask is not None
    is_causal = not has_mask and _hides_future(module, is_causal, lengths)
    documents = _documents_of(cu_seq_lens_q, cu_seq_lens_k, lengths, has_mask)
    settings: dict[str, Any] = {"attn_mask": attention_mask, "cu_seqlens": documents}
    if has_terms:
        settings.update(module.position_terms(position_bias))
    elif position_bias is not None:
        settings.update(_with_bias(position_bias, attention_mask, lengths, documents))
    if sliding_window is not None and not has_mask:
        settings["window"] = _window_of(module, sliding_window, is_causal, keys)
    if block_indices is not None:
        settings.update(picked_blocks(block_indices, module, query, keys))
        settings.update(ranges_of_documents(documents, lengths))
    scores: Scores = {
        "scale": scaling,
        "enable_gqa": of_query[1] != of_key[1],
        "softcap": softcap,
        "sinks": _sinks_of(s_aux, sinks),
    }
    run: Run = {
        "dropout_p": dropout,
        "is_causal": is_causal,
        "query_offset": _offset_of(query_offset, is_causal, documents),
        "return_weights": wants_weights(module, keywords),
    }
    result: Any
    if indices is None:
        result = attention(*tokens, **scores, **run, **settings)
    else:
        has_bias = settings["attn_mask"] is not attention_mask
        result = _attend_to(indices, tokens, scores, run, settings, has_bias)
    weighed = run["return_weights"]
    out, weights = (result.out, result.weights) if weighed else (result, None)
    return out.transpose(1, 2).contiguous(), weights


def _check_tokens(*tokens: torch.Tensor) -> None:
    """Raise for queries, keys or values that are not tensors of four axes.

    With another number of axes, lengths would be read from the axes of heads or of
    entries, and a window or a causal mask would be left out.
    """
    for name, x in zip(_SHAPES, tokens, strict=True):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name}: got {kind_of(x)}; expected a tensor")
        if x.ndim != 4:
            raise ValueError(
                f"{name}: got shape {tuple(x.shape)}; expected {_SHAPES[name]}"
            )


def _hides_future(
    module: torch.nn.Module, is_causal: bool | None, lengths: tuple[int, int]
) -> bool:
    """Return True where a call without a mask hides keys after each query."""
    if lengths[0] <= 1:  # one query is the last one, and sees all keys
        return False
    return bool(_is_causal(module, *lengths) if is_causal is None else is_causal)


def _offset_of(
    query_offset: int | None, is_causal: bool, documents: torch.Tensor | None
) -> int | None:
    """Return the position of the first query, None where `attention` knows it."""
    if is_causal and query_offset is None:
        query_offset = 0  # the mask that is not there counts from the first key
    if documents is not None and query_offset == 0:
        return None
    return query_offset


def _window_of(
    module: torch.nn.Module, sliding_window: int, is_causal: bool, keys: int
) -> tuple[int, int] | None:
    """Return the window of a call without a mask, None where it hides nothing."""
    # the masks of `visible_pairs` have the window, if the model asks for it
    if type(getattr(module, "config", None)) in _LEAVES_OUT or sliding_window >= keys:
        return None
    if not is_causal:
        raise ValueError(
            f"sliding_window: got {sliding_window} for attention that is not causal, "
            "and no attention_mask; expected the mask that the model makes of it"
        )
    # transformers counts the query's own key in its window, and `attention` does not
    return sliding_window - 1, 0


def _attend_to(
    indices: torch.Tensor,
    tokens: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    scores: Scores,
    run: Run,
    settings: dict[str, Any],
    has_bias: bool,
) -> torch.Tensor | AttentionOutput:
    """Return what `attention` returns of queries that attend to their picks.

    `has_bias`: the mask is not that of the model, but one with a bias in it.
    """
    query, key, _ = tokens
    keys, mask = key.shape[2], settings["attn_mask"]
    check_indices(indices, query, keys)
    picks = None
    # what `graph_attention` lacks
    has_more = run["dropout_p"] or run["return_weights"] or run["query_offset"]
    if not (has_more or has_bias) and _has_mask_alone(settings):
        picks = visible_picks(indices, mask, run["is_causal"], keys)
    if picks is not None:
        return graph_attention(*tokens, key_indices=picks, **scores)
    settings["attn_mask"] = as_mask(indices, mask, keys)
    return attention(*tokens, **scores, **run, **settings)


def _check_arguments(
    module: torch.nn.Module,
    keywords: dict[str, Any],
    attention_mask: torch.Tensor | None,
    has_terms: bool,
    query_offset: int | None,
) -> None:
    """Raise or warn of what relpos does not know, and of what it would need to know."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: got {kind_of(module)}; expected a torch.nn.Module")
    check_terms(keywords, attention_mask)
    for name, value in keywords.items():
        if value is not None and name not in WITHOUT_EFFECT:
            warn(
                f"{name}: attention by relpos does not know this argument, and leaves "
                "it out"
            )
    # The table of a swapped module needs the positions of the queries, which only
    # query_offset tells.
    if has_terms and query_offset is None:
        raise ValueError(
            f"query_offset: got None; expected that of {type(module).__name__}, "
            f"whose original in {INSTALLED} hands on no arguments"
        )


def _has_mask_alone(settings: dict[str, Any]) -> bool:
    """Return True where a mask is the only rule of a call for which keys are seen."""
    return all(x is None for name, x in settings.items() if name != "attn_mask")


def _sinks_of(
    of_heads: torch.Tensor | None, of_queries: torch.Tensor | None
) -> torch.Tensor | None:
    """Return the sinks of a model, which has them for each head or for each query."""
    if of_queries is None:
        return of_heads
    if of_heads is not None:
        raise ValueError("sinks: got a Tensor, and so is s_aux; expected one of them")
    if of_queries.dim() != 4 or of_queries.shape[-1] != 1:
        raise ValueError(
            f"sinks: got shape {tuple(of_queries.shape)}; expected (B, H, Lq, 1), a "
            "logit of each query"
        )
    return of_queries[..., 0]


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *,
    weighed: bool = False,
    **settings: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return out of `attention`, and its weights if asked for, else None."""
    result: Any = attention(
        query, key, value, attn_mask, return_weights=weighed, **settings
    )
    return (result.out, result.weights) if weighed else (result, None)


def wants_weights(module: torch.nn.Module, keywords: dict[str, Any]) -> bool:
    """Return True where the caller of a module, or of its model, asks for weights.

    The keyword reaches a module only if all modules around it hand it on. If not, the
    hook by which transformers collects weights says whether it does so in this call.
    """
    flag = keywords.get("output_attentions")
    if flag is None:
        flag = getattr(getattr(module, "config", None), "output_attentions", False)
    if flag:
        return True
    collected = _active_collector.get() if module._forward_hooks else None
    if collected is None:
        return False
    return any(name.endswith("attentions") for name in collected)


def _documents_of(
    of_queries: torch.Tensor | None,
    of_keys: torch.Tensor | None,
    lengths: tuple[int, int],
    has_mask: bool,
) -> torch.Tensor | None:
    """Return where packed documents begin; None where there is one at most.

    The mask of a call with a cache keeps them apart.
    """
    queries, keys = lengths
    if of_queries is None:
        if of_keys is not None:
            raise ValueError(
                "cu_seq_lens_q: got None; expected cu_seq_lens_k's numbers"
            )
        return None
    # a program that is compiled knows no numbers
    is_compared = not torch.compiler.is_compiling()
    if of_keys is not None and is_compared and not torch.equal(of_queries, of_keys):
        raise ValueError(
            f"cu_seq_lens_k: got {of_keys.tolist()}; expected those of the queries, "
            f"{of_queries.tolist()}"
        )
    if len(of_queries) > 2:
        return None if queries != keys and has_mask else of_queries
    # `attention` looks at the numbers of several documents, and not at those of one
    if queries == keys and is_compared and of_queries.tolist() != [0, queries]:
        raise ValueError(
            f"cu_seq_lens_q: got {of_queries.tolist()}; expected [0, {queries}], the "
            "bounds of one document, or those of several"
        )
    return None


def _with_bias(
    bias: torch.Tensor,
    mask: torch.Tensor | None,
    lengths: tuple[int, int],
    documents: torch.Tensor | None,
) -> DenseTerms:
    """Return a dense bias and a mask as arguments of `attention`.

    Where the keys of every query lie in one run, the mask becomes `key_ranges`, and the
    bias is not copied, which is often one for the whole batch. The ranges of a call
    with `documents` are theirs.
    """
    queries, keys = lengths
    if mask is None:
        return {"attn_mask": bias}
    # the last axes backwards; a mask may have one axis
    pairs = zip(mask.shape[:-3:-1], (keys, queries), strict=False)
    if any(size not in (1, expected) for size, expected in pairs):
        raise ValueError(
            f"attention_mask: got shape {tuple(mask.shape)}; expected "
            f"(.., {queries}, {keys})"
        )
    if mask.dtype != torch.bool:  # `attention` refuses one of integers
        return {"attn_mask": bias + mask if mask.is_floating_point() else mask}
    has_others = documents is not None or torch.compiler.is_compiling()
    ranges = None if has_others else _key_ranges(mask, keys)
    if ranges is not None:
        return {"attn_mask": bias, "key_ranges": ranges}
    return {"attn_mask": torch.where(mask, bias, -math.inf)}


def _key_ranges(mask: torch.Tensor, keys: int) -> torch.Tensor | None:
    """Return each query's first visible key and the one after the last, (B, Lq, 2).

    None if a query's keys have a gap between them, if the heads of `mask`, (B, heads,
    Lq, Lk), differ, or if it has fewer axes or keys.
    """
    if mask.ndim != 4 or mask.shape[1] != 1 or mask.shape[3] != keys:
        return None
    queries = mask.shape[2]
    rows = mask[:, 0]
    if mask.stride(2) == 0:  # one row, expanded to all queries
        rows = rows[:, :1]
    # argmax takes no tensor of bool, and gives the first of equal entries.
    rows = rows.to(torch.uint8)
    begin = rows.argmax(-1)
    end = keys - rows.flip(-1).argmax(-1)
    count = rows.sum(-1, dtype=torch.int64)
    # A run of visible keys has as many keys as it is long.
    has_no_gap = (end - begin == count) | (count == 0)
    if not bool(has_no_gap.all()):
        return None
    # of a row without keys argmax gives 0, from both ends
    end = torch.where(count == 0, begin, end)
    # A row that was the same for all queries is expanded again, without a copy.
    return torch.stack([begin, end], dim=-1).expand(-1, queries, -1)


# ---- causal masks that models leave out ----------------------------------------------

# Eager code hides no key without a mask. The masks of "sdpa" are None where a causal
# mask is enough, and the attention module then has to know that it is causal, which
# transformers asks only of models with `_supports_sdpa`. Here a model omits causal
# masks if all its modules know, and if no layers share keys: some of these drop queries
# and cut their mask.

#: True for each class of configurations whose models leave out causal masks.
_LEAVES_OUT: dict[type, bool] = {}


def look_for_causal(model: PreTrainedModel) -> None:
    """Decide for a model by the modules in it that ask for attention."""
    models = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    flags = {getattr(module, "is_causal", None) for module in _asking_modules(model)}
    if all(part._supports_sdpa for part in models):
        all_know = flags <= {True, False}
    else:
        all_know = flags <= {True}
    cuts = any(getattr(part.config, "num_kv_shared_layers", 0) for part in models)
    kind = type(model.config)
    # other models of that class keep their masks, if one has to
    _LEAVES_OUT[kind] = _LEAVES_OUT.get(kind, True) and all_know and not cuts


def visible_pairs(
    *, config: Any = None, allow_is_causal_skip: bool = True, **keywords: Any
) -> torch.Tensor | None:
    """Return the mask of a model, of bool, or None where attention needs none."""
    for name in keywords:
        if name not in _OF_MASKS:
            raise ValueError(
                f"{name}: got an argument of masks that relpos does not know, of "
                f"{INSTALLED}; expected one of {', '.join(sorted(_OF_MASKS))}"
            )
    leaves_out = _LEAVES_OUT.get(type(config), False)
    # without a mask, modules of a decoder that are not told hide what comes later
    if not getattr(config, "is_causal", True):
        keywords["allow_is_bidirectional_skip"] = False
    mask: torch.Tensor | None = sdpa_mask(
        allow_is_causal_skip=allow_is_causal_skip and leaves_out, **keywords
    )
    return mask


def _is_causal(module: torch.nn.Module, queries: int, keys: int) -> bool:
    """Return True where attention of a module is causal if it gets no mask."""
    config: Any = getattr(module, "config", None)
    if _LEAVES_OUT.get(type(config)) is False:
        return False
    is_causal = getattr(module, "is_causal", None)
    if is_causal is None:
        is_causal = getattr(config, "is_decoder", False)
        if is_causal and queries not in (1, keys):
            raise ValueError(
                f"attention_mask: got None with {amount(queries, 'query')} and "
                f"{amount(keys, 'key')} for a {type(module).__name__} without "
                "is_causal; expected a mask, as nothing says whether its decoder "
                "attends to itself or to an encoder"
            )
    return bool(is_causal)


# ---- attention that never asks the registry ------------------------------------------

#: Words in the source of a class that asks the registry.
ASKS = ("ALL_ATTENTION_FUNCTIONS", "AttentionInterface", "attention_interface")


def _look_at_models() -> None:
    """Inspect models when they are made, and when they change attention.

    transformers takes any registered name for any model, and makes masks for that name,
    which eager code cannot read. It has no hook: two of its methods are wrapped, once.
    """
    for method in ("post_init", "set_attn_implementation"):
        original = getattr(PreTrainedModel, method)
        if not hasattr(original, "relpos_looks"):
            setattr(PreTrainedModel, method, _looking(original))


def _looking(method: Any) -> Any:
    @functools.wraps(method)
    def looks(self: Any, *args: Any, **keywords: Any) -> Any:
        result = method(self, *args, **keywords)
        # post_init takes no arguments: a name is chosen by the other method alone
        chosen = NAME in (*args, *keywords.values())
        warned = False
        for model in self.modules():
            if not isinstance(model, PreTrainedModel):
                continue
            if model.config._attn_implementation == NAME:
                if _warn_of_eager(model):
                    model.config._attn_implementation = "eager"
                look_for_causal(model)
            elif chosen:
                warned |= _warn_of_eager(model)
        current = self.config._attn_implementation
        if chosen and current != NAME and not warned and asks_the_registry(self):
            warn(
                f"{type(self).__name__}: transformers does not change its "
                f"attn_implementation, so that the model stays {current}"
            )
        return result

    looks.relpos_looks = True  # type: ignore[attr-defined]
    return looks


def _warn_of_eager(model: Any) -> bool:
    """Warn of modules of a model that never ask the registry, if there are any."""
    classes = classes_that_stay(model)
    if classes:
        warn(
            f"{type(model).__name__}: {', '.join(classes)} never asks for an "
            "attn_implementation, so that the model stays eager; "
            "relpos.torch.replace_attention(model) swaps it, if it knows it"
        )
    return bool(classes)


def classes_that_stay(model: Any) -> list[str]:
    """Return the classes of attention for which `register` leaves a model eager."""
    kinds = {type(module) for module in _eager_modules(model)}
    flags = {getattr(module, "is_causal", None) for module in _asking_modules(model)}
    # encoders by "sdpa", whose masks of bool do not reach a pooling head of torch
    if model._supports_sdpa and flags == {False}:
        kinds = {kind for kind in kinds if not kind.__module__.startswith("torch.")}
    return sorted(kind.__name__ for kind in kinds)


def names_attention(name: str) -> bool:
    """Return True for the name of a class of attention, and not of its bias alone."""
    return "Attention" in name and not name.endswith("AttentionBias")


def asks_the_registry(model: Any) -> bool:
    """Return True for a model whose attention asks, and is still its own."""
    asking = {type(module).__module__ for module in _asking_modules(model)}
    return bool(asking) and not any(name.startswith("relpos.") for name in asking)


def _asking_modules(model: Any) -> Iterator[torch.nn.Module]:
    for module in model.modules():
        if (
            not type(module).__module__.startswith("torch.")
            and not isinstance(module, PreTrainedModel)
            and _asks(module.__class__)
        ):
            yield module


def _eager_modules(model: Any) -> Iterator[torch.nn.Module]:
    """Yield the attention modules of a model that do not ask the registry.

    Those of models inside it are left out.
    """
    for module in model.children():
        if isinstance(module, PreTrainedModel):
            continue
        parts = sum(names_attention(type(part).__name__) for part in module.modules())
        # the outer one of two hands on to the inner one
        is_leaf = names_attention(type(module).__name__) and parts == 1
        if is_leaf and not _asks(module.__class__):
            yield module
        yield from _eager_modules(module)


@functools.cache
def _asks(kind: type) -> bool:
    """Return True for a class that asks, or has such a base, or has no source."""
    for base in kind.__mro__:
        if base.__module__.startswith("relpos."):
            return True
        if base in (torch.nn.Module, object):
            continue
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            return True
        if any(word in source for word in ASKS):
            return True
    return False
