"""What adapters share: kinds of swapped modules, heads, caches, refused arguments."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypedDict, cast

import torch

from relpos.torch._kept import forget
from relpos.torch._transformers.interface.names import (
    RENAMED,
    check_known,
    check_terms,
)
from relpos.torch._transformers.interface.registry import NAME, attend
from relpos.torch.nn._layer import join_heads, split_heads


class Attributes(TypedDict, total=False):
    """Attributes that a module gets when it is swapped."""

    buckets: torch.Tensor


class Swapped:
    """A part of the class that replaces the model's own, with the same parameters."""

    #: True for attention, and False for a module that attention needs around it.
    attends = True
    #: The methods of the original that the adapter replaces.
    overrides: tuple[str, ...] = ("forward",)

    if TYPE_CHECKING:
        # the parameters and settings of the original

        def __getattr__(self, name: str) -> Any: ...

    @staticmethod
    def fits(module: Any) -> bool:
        """Return True for a module with settings that the class is for."""
        return True

    @staticmethod
    def of_class(original: Any) -> dict[str, str]:
        """Return attributes of the class that follow from the original's signature."""
        return {}

    def prepare(self) -> Attributes:
        """Return attributes that follow from the settings; none is set yet."""
        return {}

    def check_keywords(self, keywords: dict[str, Any], mask: Any) -> None:
        """Raise for an argument of a call that may have an effect, which nobody reads.

        Encoders hide nothing, which is_causal may say too.
        """
        check_terms(keywords, mask)
        if keywords.get("is_causal"):
            check_known(self, keywords)
        else:
            check_known(self, keywords, "is_causal")


class Keeping(Swapped):
    """One that keeps projections of positions in inference, until it is trained."""

    overrides = ("forward", "train")
    keep_positions = True

    def train(self, mode: bool = True) -> Any:
        if mode:
            forget(cast(torch.nn.Module, self))
        original: Any = super()
        return original.train(mode)


class Asking(Swapped):
    """One of a model that asks the registry for attention, and has to get relpos."""

    def check_registry(self) -> None:
        """Raise where another attention would read the table as a dense bias."""
        name = self.config._attn_implementation
        if name != NAME:
            raise ValueError(
                f"attn_implementation: got {name!r}; expected {NAME!r}, for which "
                f"replace_attention has swapped {type(self).__name__}"
            )


class Caching(Swapped):
    """One with a cache, which counts the tokens before the queries."""

    #: The name of the cache in the original's forward.
    cache_name: str

    @staticmethod
    def of_class(original: Any) -> dict[str, str]:
        names = inspect.signature(original.forward).parameters.keys()
        cache_names = names & {*RENAMED, *RENAMED.values()}
        return {"cache_name": cache_names.pop()}  # a version has one of them

    def check_call(
        self, cache: Any, former: Any, mask: Any, keywords: dict[str, Any]
    ) -> Any:
        """Return the cache, given by one of two names, before it has new keys."""
        if isinstance(self, Asking):
            self.check_registry()
        check_terms(keywords, mask)
        check_known(self, keywords, "is_causal")
        if cache is not None and former is not None and cache is not former:
            raise ValueError(
                f"past_key_values: got a {type(former).__name__} and another cache; "
                "expected one cache, as past_key_values or as cache"
            )
        return former if cache is None else cache


# ---- parts of a call -----------------------------------------------------------------


def tokens_before(cache: Any, layer: int) -> int:
    """Return how many tokens a cache has before it gets those of a call; 0 for None."""
    return 0 if cache is None else int(cache.get_seq_length(layer))


def attend_rows(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    heads: int,
    dropout: float,
    weighed: bool,
    **settings: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute attention of rows of all heads, (B, L, H * D), which are joined again.

    Dropout acts only in training. Weights are None unless asked for.
    """
    out, weights = attend(
        split_heads(query, heads),
        split_heads(key, heads),
        split_heads(value, heads),
        mask,
        dropout_p=dropout if module.training else 0.0,
        weighed=weighed,
        **settings,
    )
    return join_heads(out), weights
