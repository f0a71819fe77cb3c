"""Attention modules of models, swapped for modules that call relpos with tables.

A class here with `@_replaces` has the methods that differ from the model's own. The
class that a module gets is made of both when it is first needed, under the model's
name, so that only models that are there are imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, cast

import torch
from torch.nn.functional import pad, softplus
from transformers import PreTrainedModel

from relpos.torch._kept import forget, project_by
from relpos.torch._transformers.names import (
    INSTALLED,
    RENAMED,
    check_known,
    check_methods,
    check_terms,
)
from relpos.torch._transformers.registry import (
    NAME,
    Terms,
    asks_the_registry,
    attend,
    register,
    wants_weights,
)
from relpos.torch.nn._layer import join_heads, split_heads
from relpos.torch.nn._positions import deberta_buckets, t5_buckets, used_by_deberta

Adapter = TypeVar("Adapter", bound="type[Swapped]")


class Replacement(NamedTuple):
    """An adapter, with the module of transformers whose class it replaces."""

    home: str
    adapter: type[Swapped]


class Attributes(TypedDict, total=False):
    """Attributes that a module gets when it is swapped."""

    buckets: torch.Tensor


class Swap(NamedTuple):
    """A module of a model that is to be swapped, with its name there."""

    name: str
    module: torch.nn.Module
    adapter: type[Swapped]


#: By the name of the class that each replaces.
_ADAPTERS: dict[str, Replacement] = {}


def _replaces(*names: str) -> Callable[[Adapter], Adapter]:
    """Note an adapter for classes, each named with its family: "t5.T5Attention"."""

    def note(adapter: Adapter) -> Adapter:
        for name in names:
            family, _, kind = name.partition(".")
            home = f"transformers.models.{family}.modeling_{family}"
            _ADAPTERS[kind] = Replacement(home, adapter)
        return adapter

    return note


def __getattr__(name: str) -> Any:
    """Make the class that replaces one of transformers; pickles ask for it by name.

    It registers relpos, also in a process that only unpickles the model.
    """
    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, adapter = _ADAPTERS[name]
    original = getattr(import_module(home), name)
    check_methods(original, adapter)
    register()
    members = {"__module__": __name__, "__doc__": adapter.__doc__}
    members |= adapter.of_class(original)
    # another thread may have made it meanwhile: there is one class of each name
    return globals().setdefault(name, type(name, (adapter, original), members))


def replace(model: torch.nn.Module, keep_positions: bool) -> list[str]:
    """Swap the classes of all modules that have an adapter, and return their names."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model: got a {type(model).__name__}; expected a torch.nn.Module"
        )
    swaps = _swaps(model)
    # what adapters refuse is found before any module is changed
    prepared: list[tuple[torch.nn.Module, type, Attributes]] = []
    for _, module, adapter in swaps:
        check_methods(type(module), adapter)
        attributes = adapter.prepare(module)
        prepared.append((module, type(module), attributes))
    register()
    asking = {id(swap.module) for swap in swaps if issubclass(swap.adapter, Asking)}
    # Swapped modules that ask for attention need relpos's, which is set on the model
    # around them.
    owners = list(dict.fromkeys(_owners(model, asking)))
    before = [(owner.config, owner.config._attn_implementation) for owner in owners]
    try:
        for module, original, attributes in prepared:
            module.__class__ = _class_of(original)
            vars(module).update(attributes)
            if not keep_positions and isinstance(module, Keeping):
                module.keep_positions = False
        for owner in owners:
            _ask_for_relpos(owner)
    except BaseException:
        # transformers may refuse an owner when modules are swapped already
        for module, original, attributes in prepared:
            module.__class__ = original
            for name in (*attributes, "keep_positions"):
                vars(module).pop(name, None)
        for config, name in before:
            config._attn_implementation = name
        raise
    return [swap.name for swap in swaps if swap.adapter.attends]


def _ask_for_relpos(owner: Any) -> None:
    """Set a model to attention by relpos, or raise if transformers leaves it as it is.

    It does so for a class without source, and for one with other attention in it.
    """
    owner.set_attn_implementation(NAME)
    name = owner.config._attn_implementation
    if name != NAME:
        raise ValueError(
            f"model: got a {type(owner).__name__} that stays {name!r} in {INSTALLED}; "
            f"expected one that takes the attn_implementation {NAME!r}"
        )


def _swaps(model: torch.nn.Module) -> list[Swap]:
    """Return the modules to swap, or raise if there is none."""
    swaps = []
    for name, module in model.named_modules():
        kind, adapter = _replaced_by(module)
        if adapter is not None and adapter.fits(module):
            if kind is not type(module):  # what it changes would be left out
                raise ValueError(
                    f"model: got {name or 'a module'} of {type(module).__name__}, a "
                    f"subclass of {kind.__name__}; expected {kind.__name__} itself, "
                    "which is what is replaced"
                )
            if "forward" in vars(module).keys() & vars(adapter).keys():
                raise ValueError(
                    f"model: got {name or kind.__name__} with a forward of its own; "
                    "expected that of its class, which is what is replaced (delete the "
                    "attribute, replace attention, and wrap forward then)"
                )
            swaps.append(Swap(name, module, adapter))
    if swaps:
        return swaps
    name = type(model).__name__
    if any(isinstance(module, Swapped) for module in model.modules()):
        raise ValueError(
            f"model: got a {name} whose attention is already replaced; expected one "
            "that replace_attention has not changed"
        )
    raise ValueError(
        f"model: got a {name} without a module to replace; "
        f"expected one of {', '.join(sorted(_ADAPTERS))}{_otherwise(model)}"
    )


def _replaced_by(module: torch.nn.Module) -> tuple[type, Any]:
    """Return the class of transformers that a module has, and its adapter or None."""
    kind = type(module)
    if isinstance(module, Swapped):
        return kind, None
    for base in kind.__mro__:
        replacement = _ADAPTERS.get(base.__name__)
        # a class of another file may have the same name
        if replacement is not None and base.__module__ == replacement.home:
            return base, replacement.adapter
    return kind, None


def _class_of(original: type) -> Any:
    """Return the class that replaces one of transformers."""
    return globals().get(original.__name__) or __getattr__(original.__name__)


def _otherwise(model: torch.nn.Module) -> str:
    """Return how a model without a module to replace runs on relpos, if it does."""
    name = type(model).__name__
    if isinstance(model, PreTrainedModel) and asks_the_registry(model):
        return (
            f" ({name} asks for its attention by name and needs no replacement: call "
            'relpos.torch.register() and model.set_attn_implementation("relpos"))'
        )
    if any(isinstance(part, torch.nn.MultiheadAttention) for part in model.modules()):
        return (
            " (torch.nn.MultiheadAttention has no positions to replace: put a "
            "relpos.torch.nn.RelativeMultiheadAttention in its place, which has them)"
        )
    return ""


def _owners(
    module: torch.nn.Module, asking: set[int], owner: Any = None
) -> Iterator[Any]:
    """Yield the innermost model around each module of `asking`, by id."""
    owner = module if isinstance(module, PreTrainedModel) else owner
    if id(module) in asking and owner is not None:
        yield owner
    for child in module.children():
        yield from _owners(child, asking, owner)


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


class Caching(Asking):
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
        self.check_registry()
        check_terms(keywords, mask)
        check_known(self, keywords, "is_causal")
        if cache is not None and former is not None and cache is not former:
            raise ValueError(
                f"past_key_values: got a {type(former).__name__} and another cache; "
                "expected one cache, as past_key_values or as cache"
            )
        return former if cache is None else cache


# ---- text ----------------------------------------------------------------------------


@_replaces("deberta_v2.DebertaV2Encoder")
class _DebertaV2Encoder(Swapped):
    """Makes neither the rows of all pairs nor a mask of all pairs."""

    attends = False
    overrides = ("get_rel_pos", "get_attention_mask")

    def get_rel_pos(
        self, hidden_states: Any, query_states: Any = None, relative_pos: Any = None
    ) -> Any:
        # None, for which attention reads its own buckets, unless a caller gives rows
        return relative_pos

    def get_attention_mask(self, attention_mask: torch.Tensor) -> torch.Tensor:
        if attention_mask.dim() <= 2:
            # A mask of keys (B, L) broadcasts over heads and queries.
            return attention_mask[:, None, None, :].bool()
        original: Any = super()
        return original.get_attention_mask(attention_mask).bool()


def _bucket_sizes(module: Any) -> tuple[int | None, int]:
    """Return the arguments of `deberta_buckets` for an attention of DeBERTa."""
    # without buckets each distance has a row of its own
    farthest = module.max_relative_positions if module.position_buckets > 0 else None
    return farthest, module.pos_ebd_size


@_replaces("deberta_v2.DisentangledSelfAttention")
class _DisentangledSelfAttention(Keeping):
    """Attention by `rel_key` and `rel_query`, two tables of projected embeddings."""

    def prepare(self) -> Attributes:
        if not self.relative_attention:
            return {}
        return {"buckets": deberta_buckets(*_bucket_sizes(self))}

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor,
        output_attentions: bool = False,
        query_states: torch.Tensor | None = None,
        relative_pos: torch.Tensor | None = None,
        rel_embeddings: torch.Tensor | None = None,
    ) -> Any:
        if query_states is None:
            query_states = hidden_states
        count = self.num_attention_heads
        # content to content is always there, the other two as the model has them
        products = 1
        for kind in ("c2p", "p2c"):
            if kind in self.pos_att_type:
                products += 1
        length = hidden_states.shape[-2]
        terms = self._terms(rel_embeddings, relative_pos, length)
        out, weights = attend(
            split_heads(self.query_proj(query_states), count),
            split_heads(self.key_proj(hidden_states), count),
            split_heads(self.value_proj(hidden_states), count),
            attention_mask.bool(),
            dropout_p=self.dropout.p if self.training else 0.0,
            scale=(products * self.attention_head_size) ** -0.5,
            weighed=output_attentions,
            **terms,
        )
        return join_heads(out), weights

    def _terms(
        self, rel_embeddings: Any, relative_pos: torch.Tensor | None, length: int
    ) -> Terms:
        """Return the tables of positions, (H, rows, D), and the row of each pair."""
        if not self.relative_attention:
            return {}
        # Dropout draws a number for every row, whatever the length.
        rows = self.pos_dropout(rel_embeddings)[: 2 * self.pos_ebd_size]
        layers = self._layers()
        if not layers:
            return {}
        terms = self._rows(relative_pos)
        used = None
        if relative_pos is None and not torch.compiler.is_compiling():
            farthest = max(length, 1) - 1  # an empty input has a table, too
            used = used_by_deberta(*_bucket_sizes(self), -farthest, farthest)
        # The same rows are projected to keys of positions and to queries of positions.
        used_rows = None if used is None else used.rows
        tables = project_by(self, rows, [*layers.values()], used_rows)
        if tables is None:
            tables = tuple(layer(rows) for layer in layers.values())
        elif used is not None:
            terms = {**terms, **used.terms(self.buckets)}
        for name, table in zip(layers, tables, strict=True):
            terms[name] = split_heads(table, self.num_attention_heads)  # type: ignore[literal-required]
        return terms

    def _layers(self) -> dict[str, Any]:
        """Return the layer that makes each table of positions."""
        layers: dict[str, Any] = {}
        if not self.relative_attention:
            return layers
        if "c2p" in self.pos_att_type:
            name = "key_proj" if self.share_att_key else "pos_key_proj"
            layers["rel_key"] = getattr(self, name)
        if "p2c" in self.pos_att_type:
            name = "query_proj" if self.share_att_key else "pos_query_proj"
            layers["rel_query"] = getattr(self, name)
        return layers

    def _rows(self, relative_pos: torch.Tensor | None) -> Terms:
        """Return the row of each pair: by bucket, or by `relative_pos` of a caller."""
        if not (self.relative_attention and self.pos_att_type):
            return {}
        if relative_pos is None:
            return {"buckets": self.buckets}
        span = self.pos_ebd_size
        relative_pos = relative_pos.long()
        if "p2c" in self.pos_att_type and not relative_pos.equal(-relative_pos.mT):
            raise ValueError(
                "relative_pos: got [i, j] and [j, i] that are not opposite; expected "
                "opposite ones, as the model reads the p2c term transposed"
            )
        rows = (relative_pos + span).clamp(0, 2 * span - 1)
        if rows.dim() == 4:  # (B, 1, Lq, Lk), without heads
            rows = rows[:, 0]
        return {"labels": rows}


@_replaces("t5.T5Attention", "mt5.MT5Attention")
class _T5Attention(Caching):
    """Attention of T5 by buckets and `rel_bias`, which layers pass as position_bias."""

    def prepare(self) -> Attributes:
        count = self.relative_attention_num_buckets
        farthest = self.relative_attention_max_distance
        return {"buckets": t5_buckets(count, farthest, not self.is_decoder)}

    def forward(
        self,
        hidden_states: torch.Tensor,
        mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        cache: Any = None,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        cache = self.check_call(cache, past_key_values, mask, keywords)
        if position_bias is None and self.has_relative_attention_bias:
            # no Parameter: reentrant checkpoints change what a layer returns
            position_bias = self.relative_attention_bias.weight.clone()
        if position_bias is None:  # across, where the model makes a bias of zeros
            position_bias = hidden_states.new_empty(0)
        offset = 0
        if cache is not None:
            offset = int(cache.get_seq_length(self.layer_idx))
        original: Any = super()
        return original.forward(
            hidden_states,
            mask=mask,
            key_value_states=key_value_states,
            position_bias=position_bias,
            query_offset=offset,
            **{self.cache_name: cache},
            **keywords,
        )

    def position_terms(self, table: torch.Tensor) -> Terms:
        """Return the table (num_buckets, H) as arguments of attention, if not empty."""
        if not table.numel():
            return {}
        return {"rel_bias": table.T, "buckets": self.buckets}


@_replaces("inkling.InklingRelativeLogits")
class _InklingRelativeLogits(Swapped):
    """Returns the position query, which the temperature then multiplies."""

    attends = False

    def forward(
        self, relative_states: torch.Tensor, query_positions: Any, key_positions: Any
    ) -> torch.Tensor:
        return relative_states.transpose(1, 2)


class _Counted:
    """A cache that says how many tokens it had, also after it gets new ones.

    A static cache counts in one tensor, in which the model would read the new number.
    """

    def __init__(self, cache: Any, before: int) -> None:
        self._cache, self._before = cache, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self._before


@_replaces("inkling.InklingAttention")
class _InklingAttention(Caching):
    """Inkling's attention by `position_query` and a table by distance."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        conv_mask: torch.Tensor | None = None,
        cache: Any = None,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        cache = self.check_call(cache, past_key_values, attention_mask, keywords)
        offset = 0
        if cache is not None:
            layer, queries = self.layer_idx, hidden_states.shape[1]
            # a cache with a window has dropped the keys before this one
            first_key = cache.get_mask_sizes(queries, layer)[1]
            before = int(cache.get_query_offset(layer))
            # Positions are counted from the first key that is there.
            offset = before - int(first_key)
            cache = _Counted(cache, before)
        original: Any = super()
        return original.forward(
            hidden_states,
            attention_mask,
            conv_mask=conv_mask,
            query_offset=offset,
            **{self.cache_name: cache},
            **keywords,
        )

    def position_terms(self, position_query: torch.Tensor) -> Terms:
        """Return the query (B, H, Lq, d_rel) with the curves by distance."""
        curves = self.rel_logits_proj.proj
        return {
            "position_query": position_query,
            # The curves (d_rel, distances) begin at distance 0, and a table at the
            # farthest past. Keys that are farther away have no term.
            "rel_key": curves.T.flip(0),
            "min_relative_position": 1 - curves.shape[1],
            "beyond": "zero",
        }


# ---- speech --------------------------------------------------------------------------


@_replaces("gemma3n.Gemma3nAudioAttention")
class _Gemma3nAudioAttention(Swapped):
    """Attention by `rel_key`, one row a distance, in a window and under a cap."""

    def forward(self, hidden_states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count = self.num_heads
        past, future = self.max_past_horizon, self.max_future_horizon
        query = split_heads(self.q_proj(hidden_states), count)
        encoding = self.relative_position_embedding  # the farthest key behind first
        distances = torch.arange(past, -future - 1, -1, device=query.device)
        waves = encoding._get_timing_signal_1d_pos(distances[None], dtype=query.dtype)
        out, _ = attend(
            query * (self.q_scale * softplus(self.per_dim_scale)),
            split_heads(self.k_proj(hidden_states), count),
            split_heads(self.v_proj(hidden_states), count),
            # The model's mask is True where a frame is padding.
            ~mask[:, None, None, :],
            scale=1.0,
            rel_key=split_heads(encoding.pos_proj(waves), count)[0],
            min_relative_position=-past,
            softcap=self.attention_logits_soft_cap,
            window=(past, future),
        )
        return out.transpose(1, 2)


@_replaces("gemma4.Gemma4AudioAttention")
class _Gemma4AudioAttention(Swapped):
    """Attention by `rel_key` under a cap; keys are scaled, their positions not."""

    @staticmethod
    def fits(module: Any) -> bool:
        """Return True where a query sees itself; the model means all if it does not."""
        return bool(module.max_past_horizon > 0)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> Any:
        if attention_mask is None:
            raise ValueError(
                "attention_mask: got None; expected the mask of blocks and their "
                "context that Gemma4AudioModel makes"
            )
        count = self.num_heads
        past, future = self.max_past_horizon, self.max_future_horizon
        query = split_heads(self.q_proj(hidden_states).float(), count)
        rows = split_heads(self.relative_k_proj(position_embeddings), count)[0]
        # a query's own key is never out of its window: it is hidden if it is padding
        own_key = attention_mask.diagonal(past, dim1=-2, dim2=-1).flatten(-2)
        out, weights = attend(
            query * (self.q_scale * softplus(self.per_dim_scale)),
            split_heads(self.k_proj(hidden_states).float(), count) * self.k_scale,
            split_heads(self.v_proj(hidden_states).float(), count),
            (own_key == 0)[..., None, : query.shape[-2]],
            scale=1.0,
            rel_key=rows.to(query.dtype),
            min_relative_position=-past,
            beyond="zero",
            softcap=self.attention_logits_soft_cap,
            window=(past - 1, max(future - 1, 0)),  # both horizons count the query
            weighed=wants_weights(self, {}),
        )
        if weights is not None:
            weights = self._in_blocks(weights)
        return self.post(join_heads(out).to(hidden_states.dtype)), weights

    def _in_blocks(self, weights: torch.Tensor) -> torch.Tensor:
        """Return weights (B, H, L, L) as the model has them: for each block of queries.

        Their shape is (B, H, blocks, queries of a block, keys that a block sees).
        """
        past, size, keys = self.max_past_horizon, self.chunk_size, self.context_size
        # to whole blocks of queries, and to whole contexts of the first and last block
        lacking = -weights.shape[-1] % size
        padded = pad(weights, (past, keys - past - 1, 0, lacking))
        # (B, H, blocks of queries, queries, blocks of keys, keys of a context)
        blocks = padded.unfold(-1, keys, size).unflatten(2, (-1, size))
        return blocks.diagonal(dim1=2, dim2=4).movedim(-1, 2)


@_replaces("wav2vec2_conformer.Wav2Vec2ConformerSelfAttention")
class _Wav2Vec2ConformerSelfAttention(Asking, Keeping):
    """Attention by `rel_key`, `pos_bias_u` and `pos_bias_v`: Transformer-XL's terms."""

    @staticmethod
    def fits(module: Any) -> bool:
        """Return True for relative encodings; others go through the registry."""
        return bool(module.position_embeddings_type == "relative")

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        relative_position_embeddings: torch.Tensor | None = None,
        **keywords: Any,
    ) -> Any:
        self.check_registry()
        self.check_keywords(keywords, attention_mask)
        if relative_position_embeddings is None:
            raise ValueError(
                "relative_position_embeddings: got None; expected those of relative "
                "positions, (1, 2 * L - 1, hidden_size)"
            )
        count = self.num_heads
        # The embeddings have a batch axis of length 1, which the table below has not.
        kept = project_by(self, relative_position_embeddings, [self.linear_pos])
        if kept is None:
            rows = self.linear_pos(relative_position_embeddings)
        else:
            (rows,) = kept
        out, weights = attend(
            split_heads(self.linear_q(hidden_states), count),
            split_heads(self.linear_k(hidden_states), count),
            split_heads(self.linear_v(hidden_states), count),
            attention_mask,
            dropout_p=self.dropout.p if self.training else 0.0,
            scale=self.scaling,
            rel_key=split_heads(rows, count)[0],
            pos_bias_u=self.pos_bias_u,
            pos_bias_v=self.pos_bias_v,
            weighed=wants_weights(self, keywords),
        )
        return self.linear_out(join_heads(out)), weights


@_replaces("wavlm.WavLMAttention")
class _WavLMAttention(Swapped):
    """Attention by a `position_query`, the gate of one column, and buckets."""

    def prepare(self) -> Attributes:
        return {"buckets": t5_buckets(self.num_buckets, self.max_distance, True)}

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        index: int = 0,
        **keywords: Any,
    ) -> Any:
        self.check_keywords(keywords, attention_mask)
        # the first layer has the table, and hands it on to the others
        table = self.rel_attn_embed.weight if position_bias is None else position_bias
        count = self.num_heads
        visible = None
        if attention_mask is not None:
            visible = attention_mask.eq(1)[:, None, None, :]
        # The eight outputs for each head are two gates of four summands.
        gates = self.gru_rel_pos_linear(split_heads(hidden_states, count))
        a, b = torch.sigmoid(gates.unflatten(-1, (2, 4)).sum(-1)).split(1, dim=-1)
        out, weights = attend(
            split_heads(self.q_proj(hidden_states), count),
            split_heads(self.k_proj(hidden_states), count),
            split_heads(self.v_proj(hidden_states), count),
            visible,
            dropout_p=self.dropout if self.training else 0.0,
            # A number for each bucket is a vector of one column, (H, buckets, 1), which
            # the gate as a position query multiplies.
            rel_key=table.T[..., None],
            position_query=a * (b * self.gru_rel_pos_const - 1.0) + 2.0,
            buckets=self.buckets,
            weighed=wants_weights(self, keywords),
        )
        if weights is not None:  # the model has their mean for every head
            weights = weights.mean(1, keepdim=True).expand_as(weights)
        return self.out_proj(join_heads(out)), weights, table
