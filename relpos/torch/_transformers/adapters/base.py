"""Parts that adapters share: kinds of modules, heads, caches, refused arguments."""

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
from relpos.torch._transformers.interface.registry import (
    NAME,
    Terms,
    WithTerms,
    attend,
)
from relpos.torch.nn._layer import join_heads, split_heads


class Attributes(TypedDict, total=False):
    """Attributes that a module gets when it is swapped."""

    buckets: torch.Tensor
    slopes: torch.Tensor
    pos_ebd_size: int
    position_buckets: int


class Swapped:
    """A part of the class that replaces the model's own, with the same parameters."""

    #: True for attention, and False for a module that attention needs around it.
    attends = True
    #: True for an indexer, which picks the keys that the attention around it takes.
    picks = False
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


class Masked(Swapped):
    """One of a model that does not ask, whose masks are made for relpos all the same.

    They are of bool, or None where nothing is hidden or a module knows its `is_causal`.
    """


class Caching(Swapped):
    """One with a cache, which counts the tokens before the queries."""

    #: The name of the cache in the original's forward.
    cache_name: str

    @staticmethod
    def of_class(original: Any) -> dict[str, str]:
        names = inspect.signature(original.forward).parameters.keys()
        cache_names = names & {*RENAMED, *RENAMED.values()}
        if not cache_names:  # it comes as layer_past, and is not handed on
            return {}
        return {"cache_name": cache_names.pop()}  # a version has one of them

    def check_call(
        self, cache: Any, former: Any, mask: Any, keywords: dict[str, Any]
    ) -> Any:
        """Return the cache, given by one of two names, before it has new keys."""
        if isinstance(self, Asking):
            self.check_registry()
        check_terms(keywords, mask)
        check_known(self, keywords, "is_causal")
        return one_cache(cache, former)


class Decoding(Caching, Masked, WithTerms):
    """A decoder whose bias by relative position may be empty."""

    is_causal = True

    def extended(
        self, cache: Any, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Return keys and values with those of a cache, and its length before."""
        before = tokens_before(cache, self.layer_idx)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        return key, value, before

    def position_terms(self, bias: torch.Tensor) -> Terms:
        """Return the bias (H, relative positions) as an argument of attention."""
        return {"rel_bias": bias} if bias.numel() else {}


# ---- parts of a call -----------------------------------------------------------------


def linear_bias(slopes: torch.Tensor, keys: int, dtype: torch.dtype) -> torch.Tensor:
    """Return slopes (H) times the relative positions of `keys` tokens, (H, 2 keys - 1).

    They are exact for tensors of 16 bits, too.
    """
    wide = torch.promote_types(dtype, torch.float32)
    positions = torch.arange(1 - keys, keys, device=slopes.device, dtype=wide)
    return slopes.to(wide)[:, None] * positions


def one_cache(cache: Any, former: Any) -> Any:
    """Return a cache that is given by its present name or by its former one."""
    if cache is not None and former is not None and cache is not former:
        raise ValueError(
            f"past_key_values: got a {type(former).__name__} and another cache; "
            "expected one cache, as past_key_values or as cache"
        )
    return former if cache is None else cache


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
    **settings: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute attention of rows of all heads, (B, L, H * D), which are joined again."""
    query, key, value = (split_heads(x, heads) for x in (query, key, value))
    return attend_heads(module, query, key, value, mask, **settings)


def attend_projected(
    module: Any,
    tokens: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    weighed: bool,
    **terms: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute self-attention by the projections of a module that names them as BART."""
    out, weights = attend_rows(
        module,
        module.q_proj(tokens),
        module.k_proj(tokens),
        module.v_proj(tokens),
        mask,
        heads=module.num_heads,
        dropout=module.dropout,
        weighed=weighed,
        scale=module.scaling,
        **terms,
    )
    return module.out_proj(out), weights


def attend_heads(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    dropout: float,
    weighed: bool,
    **settings: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute attention of heads (B, H, L, D), which are joined to (B, L, H * D).

    Dropout acts only in training. Weights are None unless asked for.
    """
    out, weights = attend(
        query,
        key,
        value,
        mask,
        dropout_p=dropout if module.training else 0.0,
        weighed=weighed,
        **settings,
    )
    return join_heads(out), weights
