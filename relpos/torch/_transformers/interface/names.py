"""Arguments of transformers by their names: known to relpos, harmless, or refused.

transformers renames arguments from version to version, and most of its functions end in
``**kwargs``: an argument under a name that nobody reads would be left out in silence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Set as AbstractSet
from typing import Any

import torch
import transformers

#: The installed version, for the texts of errors.
INSTALLED = f"transformers {transformers.__version__}"

#: The present name of an argument by its former one, which older versions have.
RENAMED = {"past_key_values": "cache"}

#: Arguments of models without an effect: positions are in queries, keys and mask.
WITHOUT_EFFECT = {
    "cache_position",
    "cu_seq_lens_k",
    "cu_seq_lens_q",
    "deterministic",
    "is_training",
    "labels",
    "logits_to_keep",
    "max_length_k",
    "max_length_q",
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "position_ids",
    "return_dict",
    "seq_idx",
    "token_type_ids",
    "use_cache",
}

#: Arguments that change the result, and that `attention_function` lacks.
REFUSED = {
    "alibi",
    "attention_bias",
    "bias",
    "block_mask",
    "block_table",
    "cache",
    "head_mask",
    "k_cache",
    "past_key_values",
    "read_index",
    "score_mod",
    "v_cache",
    "write_index",
}


#: Types of most arguments of a call, which are no caches.
_USUAL = (torch.Tensor, int, float)


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments of a method, without `self` and ``**kwargs``.

    Of an argument that was renamed, the present name is given, once.
    """
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    names = [
        parameter.name for parameter in parameters if parameter.kind not in several
    ]
    # a dict keeps the order; a version may have both names of an argument
    present = dict.fromkeys(RENAMED.get(name, name) for name in names)
    return list(present)[1:]


def check_methods(original: type, adapter: Any) -> None:
    """Raise if a class is not the one that an adapter was written for.

    The methods that the adapter replaces have to be there, with the same arguments in
    the same order; none of its other names may be taken.
    """
    for name in adapter.overrides:
        expected = arguments_of(getattr(adapter, name))
        method = getattr(original, name, None)
        arguments = None if method is None else arguments_of(method)
        if arguments != expected:
            got = "no such method"
            if arguments is not None:
                got = f"({', '.join(arguments)})"
            raise ValueError(
                f"model: got {original.__name__}.{name} of {INSTALLED}, {got}; "
                f"expected ({', '.join(expected)}), the arguments that relpos knows"
            )
    # The adapter comes first in the new class, so that a name of its own would replace
    # one of the model's.
    added: set[str] = set()
    for kind in adapter.__mro__[:-1]:  # without object
        added |= vars(kind).keys()
    for name in sorted(added - {*adapter.overrides}):
        if hasattr(original, name) and not name.startswith("__"):
            raise ValueError(
                f"model: got {original.__name__}.{name} of {INSTALLED}; expected a "
                "class without this name, which relpos adds"
            )


def is_cache(value: Any) -> bool:
    """Return True for an object that keeps keys of earlier calls, of any class."""
    if isinstance(value, _USUAL):
        return False
    if hasattr(value, "get_seq_length"):
        return True
    return hasattr(value, "update") and not isinstance(value, Mapping | AbstractSet)


def check_terms(keywords: dict[str, Any], mask: torch.Tensor | None) -> None:
    """Raise for a cache under any name, and for what attention by relpos lacks."""
    for name, value in keywords.items():
        if value is None:
            continue
        if is_cache(value):
            raise ValueError(
                f"{name}: got a cache, a {type(value).__name__} of {INSTALLED}; "
                "expected None, as relpos reads no cache under this name here"
            )
        if name in REFUSED:
            raise ValueError(
                f"{name}: got a {type(value).__name__}; expected None (the "
                'attn_implementation "relpos" has no such term; "eager" does)'
            )
    # Several sequences in one row need a mask, without which each would see the others.
    packed = keywords.get("cu_seq_lens_q")
    if packed is not None and mask is None and len(packed) > 2:
        raise ValueError(
            f"cu_seq_lens_q: got {len(packed) - 1} sequences and no mask that keeps "
            "them apart; expected position_ids that start again with each, of which "
            "the model makes the mask"
        )


def check_known(module: Any, keywords: dict[str, Any], *read: str) -> None:
    """Raise for an argument that is neither read nor known to have no effect.

    Terms that are refused may be given as None.
    """
    for name, value in keywords.items():
        if name in WITHOUT_EFFECT or name in read:
            continue
        if name in REFUSED and value is None:
            continue
        raise ValueError(
            f"{name}: got an argument that relpos does not know, of {INSTALLED}; "
            f"expected one that {type(module).__name__} by relpos reads, or one "
            "without an effect on attention"
        )
