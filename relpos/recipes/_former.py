"""Deprecated functions: they work, and warn that the next release is without them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np

from relpos._checks import Array, as_floating
from relpos._text import in_short
from relpos._warn import warn
from relpos.recipes.decoders import forgetting_transformer, pope
from relpos.recipes.genomes import enformer
from relpos.recipes.images import beit, rope_vit, sam, swin_v2
from relpos.recipes.speech import (
    gemma3n_audio,
    gemma4_audio,
    parakeet,
    wavlm,
    zipformer,
)
from relpos.recipes.text import layoutlmv3, xlnet_segments

#: Parameters that need not be given: their gradients were None then.
_OPTIONAL = ("rel_pos_x_bias", "rel_pos_y_bias", "bias", "inv_freq")


def _former(
    forward: Callable[..., Any], arguments: str, grad: str = "", **options: Any
) -> Callable[..., Any]:
    """Return the function that `backward` of the result of a recipe has replaced.

    It takes the gradients of `arguments` (named `grad`, or ``grad_`` and the argument),
    then all that the recipe takes but its `options`.
    """
    name, made = forward.__name__, arguments.split()
    given = [x for n, x in signature(forward).parameters.items() if n not in options]
    grads = [grad] if grad else [f"grad_{n}" for n in made]
    kind = Parameter.POSITIONAL_OR_KEYWORD
    whole = Signature([*(Parameter(n, kind) for n in grads), *given])
    shown = [x.name for x in given if x.kind is kind]
    shown += [f"{n}={value!r}" for n, value in options.items()]

    def backward(*args: Any, **keywords: Any) -> Any:
        call = whole.bind(*args, **keywords).arguments
        _warn(name, shown, "AttentionContext.backward")
        of_made = {n: call.pop(x) for n, x in zip(made, grads, strict=True)}
        found = forward(**call, **options).backward(of_made)
        fields = [x.name for x in given if x.name in found or x.name in _OPTIONAL]
        if len(fields) == 1:
            return found[fields[0]]
        kind: Any = namedtuple(f"{name}_gradients", fields)  # type: ignore[misc]
        return in_short(kind)(*map(found.get, fields))

    backward.__name__ = backward.__qualname__ = f"{name}_backward"
    backward.__doc__ = f"Do what `backward` of the result of `{name}` does."
    backward.__signature__ = whole  # type: ignore[attr-defined]
    return backward


def _warn(name: str, parameters: list[str], source: str) -> None:
    warn(
        f"relpos.recipes.{name}_backward is deprecated and will be removed in the next "
        f"release: use recipe = relpos.recipes.{name}({', '.join(parameters)}) and "
        f"recipe.backward(gradients), where gradients are those that {source} returned",
        DeprecationWarning,
    )


beit_backward = _former(beit, "rel_bias")
enformer_backward = _former(enformer, "rel_key pos_bias_u pos_bias_v")
forgetting_transformer_backward = _former(forgetting_transformer, "log_decay")
gemma3n_audio_backward = _former(gemma3n_audio, "query rel_key")
gemma4_audio_backward = _former(gemma4_audio, "query rel_key")
layoutlmv3_backward = _former(layoutlmv3, "rel_bias")
parakeet_backward = _former(parakeet, "rel_key pos_bias_u pos_bias_v")
pope_backward = _former(pope, "key", "grad_out", argument="key")
sam_backward = _former(sam, "rel_key")
swin_v2_backward = _former(swin_v2, "rel_bias")
wavlm_backward = _former(wavlm, "rel_key position_query")
xlnet_segments_backward = _former(
    xlnet_segments, "attn_mask", "grad_mask", argument="attn_mask"
)
zipformer_backward = _former(zipformer, "rel_key")


def rope_vit_backward(grad_angles: Any, coordinates: Any) -> Array:
    """Do what `backward` of the result of `rope_vit` does."""
    _warn("rope_vit", ["freqs", "coordinates"], "apply_rotary_backward")
    grad = as_floating("grad_angles", grad_angles)
    freqs = np.zeros((*np.shape(coordinates)[-1:], *grad.shape[-3::2]), grad.dtype)
    return rope_vit(freqs, coordinates).backward({"angles": grad})["freqs"]
