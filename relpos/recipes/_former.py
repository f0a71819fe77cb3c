"""Deprecated functions: they work, and warn that the next release is without them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from relpos._checks import Array
from relpos._text import in_short
from relpos.recipes.gemma_audio import gemma3n_audio, gemma4_audio

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["gemma3n_audio_backward", "gemma4_audio_backward"]


@in_short
class Gemma3nAudioGradients(NamedTuple):
    """Gradients of the parameters of `gemma3n_audio`, and of the query."""

    per_dim_scale: Array
    pos_proj: Array
    query: Array


@in_short
class Gemma4AudioGradients(NamedTuple):
    """Gradients of the parameters of `gemma4_audio`, and of the query."""

    per_dim_scale: Array
    relative_k_proj: Array
    query: Array


def gemma3n_audio_backward(
    grad_query: ArrayLike, grad_rel_key: ArrayLike, *given: Any, **settings: Any
) -> Gemma3nAudioGradients:
    """Do what `backward` of the result of `gemma3n_audio` does."""
    _warn("gemma3n_audio", Gemma3nAudioGradients)
    recipe = gemma3n_audio(*given, **settings)
    grads = recipe.backward({"query": grad_query, "rel_key": grad_rel_key})
    return Gemma3nAudioGradients(**grads)


def gemma4_audio_backward(
    grad_query: ArrayLike, grad_rel_key: ArrayLike, *given: Any, **settings: Any
) -> Gemma4AudioGradients:
    """Do what `backward` of the result of `gemma4_audio` does."""
    _warn("gemma4_audio", Gemma4AudioGradients)
    recipe = gemma4_audio(*given, **settings)
    grads = recipe.backward({"query": grad_query, "rel_key": grad_rel_key})
    return Gemma4AudioGradients(**grads)


def _warn(name: str, result: type[tuple[Any, ...]]) -> None:
    """Show the new call, at the caller's line."""
    parameters = ", ".join(result.__annotations__)
    warnings.warn(
        f"relpos.recipes.{name}_backward is deprecated and will be removed in the next "
        f"release: use recipe = relpos.recipes.{name}({parameters}) and "
        "recipe.backward(gradients), where gradients are those that "
        "AttentionContext.backward returned",
        DeprecationWarning,
        stacklevel=3,
    )
