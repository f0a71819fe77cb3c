"""Causal masks: where a model may leave them out, and what no mask then means.

Eager code hides nothing where it gets no mask. The masks of "sdpa" are None as well
where a causal mask is all that is needed, and the attention module then has to know
that it is causal. Not every module does, as transformers asks that of models with
`_supports_sdpa` only. Here a model leaves causal masks out if all its modules know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.masking_utils import sdpa_mask

#: For each class of configurations, whether its models leave out causal masks.
_LEAVES_OUT: dict[type, bool] = {}


def look_for_causal(model: PreTrainedModel, modules: Iterable[torch.nn.Module]) -> None:
    """Decide for a model by `modules`, those in it that ask for attention."""
    models = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    wanted = {True, False} if all(part._supports_sdpa for part in models) else {True}
    said = {getattr(module, "is_causal", None) for module in modules}
    kind = type(model.config)
    # other models of that class keep their masks, if one has to
    _LEAVES_OUT[kind] = _LEAVES_OUT.get(kind, True) and said <= wanted


def visible_pairs(
    *, config: Any = None, allow_is_causal_skip: bool = True, **keywords: Any
) -> torch.Tensor | None:
    """The mask of a model, of bool, or None where attention needs none.

    What is hidden is skipped by tiles, and what is whole is not looked at again.
    """
    leaves_out = _LEAVES_OUT.get(type(config), False)
    mask: torch.Tensor | None = sdpa_mask(
        allow_is_causal_skip=allow_is_causal_skip and leaves_out, **keywords
    )
    return mask


def is_causal(module: torch.nn.Module, queries: int, keys: int) -> bool:
    """Tell whether attention of a module is causal where it gets no mask."""
    config: Any = getattr(module, "config", None)
    if _LEAVES_OUT.get(type(config)) is False:
        return False
    said = getattr(module, "is_causal", None)
    if said is None:
        said = getattr(config, "is_decoder", False)
        if said and queries not in (1, keys):
            raise ValueError(
                f"attention_mask: got None with {queries} queries and {keys} keys for "
                f"a {type(module).__name__} without is_causal; expected a mask, as "
                "nothing says whether its decoder attends to itself or to an encoder"
            )
    return bool(said)
