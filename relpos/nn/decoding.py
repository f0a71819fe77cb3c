"""State that a model keeps from call to call: hidden states, or keys and values."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NamedTuple,
    ParamSpec,
    Self,
    TypeVar,
    cast,
)

import numpy as np

from relpos._attention.cache import TRIED_OF_CACHES, KVCache
from relpos._checks import Array, ArrayLike, as_floating, as_int, kind_of
from relpos._suggestions import absent_method
from relpos._text import amount
from relpos._twins import twin
from relpos._undo import put, whole
from relpos.nn._inputs import check_shape

__all__ = ["KVCaches", "Memory", "update_memory"]

P = ParamSpec("P")
R = TypeVar("R")


class Span(NamedTuple):
    """The part of a state that the last call of one layer added.

    Both counts are one int for all items of the batch, or an array of one for each.
    """

    batch: tuple[int, ...]  #: () if the state works for every batch
    start: Any  #: tokens or segments that the layer had before that call
    end: Any  #: tokens or segments that it has since


class DecodingState:
    """Base of `Memory` and `KVCaches`, which keep the layers of a model in step.

    In a call of the model each attention first calls `_enter`, then changes its own
    part of the state, and then calls `_check_start`.
    """

    #: The argument by which a layer takes the state.
    _name: ClassVar[str]
    #: What a `Span` counts, in the plural.
    _unit: ClassVar[str]
    #: Remedy if layers are out of step; {} is the count that all of them have.
    _remedy: ClassVar[str]

    def __init__(self) -> None:
        #: Layers that have used the state in the current call; None between calls.
        self._used: frozenset[Any] | None = None
        #: What all layers had before the current call, counted as in `Span`.
        self._count_before: Any = 0

    def _layers(self) -> Iterable[Any]:
        """Return the layers that the state has something of."""
        raise NotImplementedError

    def _span(self, layer: Any) -> Span:
        """Return the span of one of these layers."""
        raise NotImplementedError

    def _enter(self, layer: Any) -> None:
        """Let a layer use the state, once in a call and in step with the others."""
        used = self._used or frozenset()
        if layer in used:
            raise ValueError(
                f"{self._name}: got it in a call that uses one {type(layer).__name__} "
                "twice, and the tokens of both uses would mix; expected a layer for "
                "each use (they may share Parameters), and a call for each step"
            )
        if not used:
            # The first layer of a call. Some may be ahead: they were called alone, or a
            # call was interrupted. The smallest count is what all of them have.
            smallest: Any = 0
            ends = [self._span(other).end for other in self._layers()]
            if ends:
                smallest = functools.reduce(np.minimum, ends)  # for each item
            put(self, "_count_before", smallest)
        end = self._span(layer).end if layer in self._layers() else 0
        if _any(end > self._count_before):
            before = _shown(self._count_before)
            raise ValueError(
                f"{self._name}: got one in which a {type(layer).__name__} has "
                f"{_shown(end)} {self._unit} and another layer {before}: "
                "an interrupted call left them out of step; expected "
                f"{self._remedy.format(before)}"
            )
        put(self, "_used", used | {layer})

    def _check_start(self, layer: Any) -> None:
        """Raise for a layer that is new to a state which others have used before."""
        span = self._span(layer)
        # A layer that had something before this call is not new: `_enter` compared it
        # with the others. A new one belongs to the model only if all others have begun
        # in this very call too, with as many tokens.
        if _any(span.start):
            return
        for other in self._layers():
            batch, start, end = self._span(other)
            if not _any(end):  # it was cropped to nothing, or had no tokens yet
                continue
            began_in_this_call = batch == span.batch and not _any(start)
            if not began_in_this_call or _any(end != span.end):
                raise ValueError(
                    f"{self._name}: got one in which a {type(other).__name__} has "
                    f"{_shown(end)} {self._unit}, for a {type(layer).__name__} "
                    "that has none in it; expected that of this very model (a copy of "
                    f"a model is another one), or a new nn.{type(self).__name__}"
                )


def _any(flags: Any) -> bool:
    """Return True if a count or a comparison of counts is true for any item."""
    if isinstance(flags, np.ndarray):
        return bool(flags.any())
    return bool(flags)


def _shown(count: Any) -> Any:
    """Return a count, or a list of one for each item, as error messages show it."""
    return np.asarray(count).tolist()


def opens_states(function: Callable[P, R]) -> Callable[P, R]:
    """Make a call of a model one use of each `DecodingState` among its arguments.

    The outermost call that gets a state opens it, by a set of used layers, and closes
    it. The models and layers inside find it open, and add to that set.
    """
    parameters = list(signature(function).parameters.values())[1:]  # without self
    if len(parameters) == 1:
        only = parameters[0]
        # A parameter of another kind, as *args, could still hold a state.
        is_one_value = only.kind is Parameter.POSITIONAL_OR_KEYWORD
        if is_one_value and only.name not in ("cache", "memory"):
            return function  # most layers take tokens and nothing else

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        for value in (*args, *keywords.values()):
            if isinstance(value, DecodingState) and value._used is None:
                # If the call raises, `whole` around it puts None back.
                put(value, "_used", frozenset())
                # `value` is open now, so that this opens the next state or, if there
                # is none, calls the function.
                result = call(*args, **keywords)
                put(value, "_used", None)
                return result
        return function(*args, **keywords)

    return call


def update_memory(memory: ArrayLike | None, hidden: ArrayLike, mem_len: int) -> Array:
    r"""Return the memory for the next segment: the end of memory and segment.

    .. math:: memory' = [memory; hidden]_{-mem\_len:}

    Parameters
    ----------
    memory : array_like, (M, B, d_model), or None
        The memory so far; None before the first segment.
    hidden : array_like, (L, B, d_model)
        The input of the layer in this segment (not its output).
    mem_len : int
        Positions to keep at most; 0 keeps none.

    Returns
    -------
    ndarray, (min(M + L, mem_len), B, d_model)
        A copy, so that nothing done to `hidden` later reaches it.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, section 3.2.

    Examples
    --------
    Two segments of four, with a memory of six:

    >>> import numpy as np
    >>> from relpos import nn
    >>> segments = np.arange(8.0).reshape(2, 4, 1, 1)
    >>> memory = nn.update_memory(None, segments[0], mem_len=6)
    >>> nn.update_memory(memory, segments[1], mem_len=6).ravel()
    array([2., 3., 4., 5., 6., 7.])
    """
    segment = as_floating("hidden", hidden)
    check_shape("hidden", segment, ("L", "B", "d_model"))
    length = as_int("mem_len", mem_len, 0)
    before = segment[:0]
    if memory is not None:
        before = as_floating("memory", memory)
    check_shape("memory", before, ("M", *segment.shape[1:]))
    both = np.concatenate([before, segment])
    # A slice from -length would be all of it where length is 0.
    start = max(len(both) - length, 0)
    return both[start:].copy()  # so that the part before the slice is freed


@twin(update_memory, titles=("References",))
class Memory(DecodingState):
    r"""Inputs of every attention of a model so far: the memory of Transformer-XL.

    .. math:: memory' = [memory; x]_{-length:}

    A model called with ``memory=memory`` attends from the tokens to the memory and the
    tokens, then keeps the end of both, in each of its attentions. No gradient passes
    into a memory; what the projections make of it trains them.

    Each attention of a model takes it once in each call, or raises ValueError as with
    `KVCaches`. A call that raises leaves it as it was.

    Parameters
    ----------
    length : int
        Positions to keep at most.

    Attributes
    ----------
    length : int
        May be changed between calls: a model may be given a longer memory than it was
        trained with.

    Examples
    --------
    Two segments of one sequence, the second with a memory of the first:

    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.MultiheadAttention(
    ...     8, 2, is_causal=True, position="transformer_xl", rng=0
    ... )
    >>> x = np.random.default_rng(1).standard_normal((1, 6, 8), np.float32)
    >>> memory = nn.Memory(3)
    >>> parts = [layer(x[:, :3], memory=memory), layer(x[:, 3:], memory=memory)]
    >>> bool(np.allclose(np.concatenate(parts, 1), layer(x), atol=1e-6))
    True
    """

    _name, _unit = "memory", "segments"
    _remedy = "a new nn.Memory, with the segments so far again"

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = as_int("length", length, 0)
        #: What each layer remembers, (batch, M, width).
        self._hidden: dict[Any, Array] = {}
        #: Segments that each layer was given: M stops growing at `length`, so that it
        #: does not tell whether the layers are in step.
        self._updates: dict[Any, int] = {}

    def __repr__(self) -> str:
        return f"Memory(length={self.length})"

    def of(self, layer: Any) -> Array | None:
        """Return what a layer is to remember, (batch, M, width), or None at first.

        Parameters
        ----------
        layer : Module
            The attention.

        Returns
        -------
        ndarray or None
            Its input in the calls before, cut to `length` positions; read-only.
        """
        return self._hidden.get(layer)

    def _layers(self) -> Iterable[Any]:
        return self._updates.keys()

    def _span(self, layer: Any) -> Span:
        updates = self._updates[layer]
        # The batch is (): the layers are compared by their segments alone, and each
        # update compares the batch with what its layer remembers.
        return Span(batch=(), start=updates - 1, end=updates)

    def update(self, layer: Any, x: Array) -> None:
        """Let a layer remember its input, after what it remembers.

        Parameters
        ----------
        layer : Module
            The attention.
        x : ndarray, (batch, L, width)
            What it was given; copied.

        Raises
        ------
        ValueError
            The batch or the width is another one than before.
        MemoryError
            Out of memory; as with every error, it remembers what it did.
        """
        # `update_memory` has the sequence as the first axis, and layers the batch.
        memory = self.of(layer)
        if memory is not None:
            memory = memory.swapaxes(0, 1)
        length = as_int("length", self.length, 0)  # a user may have set it since
        after = update_memory(memory, x.swapaxes(0, 1), length).swapaxes(0, 1)
        after.flags.writeable = False  # `of` returns it without a copy
        updates = self._updates.get(layer, 0) + 1
        # New dicts, since `put` restores an attribute and not what is in it.
        put(self, "_hidden", {**self._hidden, layer: after})
        put(self, "_updates", {**self._updates, layer: updates})


@twin(update_memory, titles=("References",))
class KVCaches(DecodingState):
    r"""Keys and values of the tokens so far, of every attention of a model.

    .. math:: K \leftarrow [K; k], \quad V \leftarrow [V; v]

    A model called with ``cache=cache`` takes the tokens that come next, and computes
    their rows of one call over the whole sequence. It has to be causal for that.
    `SinusoidalEncoding` and `LearnedAPE` go on from where the tokens so far ended, too.
    No gradient passes through a cache. A call that raises leaves it as it was.

    Notes
    -----
    What would mix the tokens of two uses, or leave some out, is a ValueError:

    - An attention that is called twice in one call of a model, the outermost call of a
      `Module` that is given the cache. Give each use a layer of its own; two layers may
      share their `Parameter` objects.
    - An attention that is new to a cache, as those of a copied or reloaded model are,
      unless all that it knows were called once and hold exactly the tokens of this
      call.
    - A layer that mixes tokens and does not take `cache`, such as `ShawAttention`.
    - An attention that holds more tokens than another one, as an interrupt may leave
      it; the error says to what length to `crop` the cache.

    Examples
    --------
    A prompt of three tokens, then one at a time:

    >>> import numpy as np
    >>> from relpos import nn
    >>> model = nn.Sequential(
    ...     nn.Embedding(5, 8, rng=0),
    ...     nn.TransformerLayer(8, 2, is_causal=True, position="shaw", rng=1),
    ...     nn.Linear(8, 5, rng=2),
    ... ).eval()
    >>> tokens, cache = np.array([[3, 1, 4, 1, 2]]), nn.KVCaches()
    >>> rows = [
    ...     model(part, cache=cache) for part in (tokens[:, :3], tokens[:, 3:4])
    ... ]
    >>> bool(np.allclose(np.concatenate(rows, 1), model(tokens)[:, :4], atol=1e-6))
    True
    >>> len(cache)
    4
    """

    _name, _unit = "cache", "tokens"
    _remedy = "cache.crop({}) before, and the tokens after those again"

    def __init__(self) -> None:
        super().__init__()
        self._caches: dict[Any, KVCache] = {}

    if not TYPE_CHECKING:
        __getattr__ = absent_method(TRIED_OF_CACHES)

    def __copy__(self) -> Self:
        """Copy the tokens, for the attentions of the same model."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        # The keys stay the layers of this model: only the caches are copied.
        other._caches = {
            layer: copy.copy(cache) for layer, cache in self._caches.items()
        }
        return other

    def __len__(self) -> int:
        return max(map(len, self._caches.values()), default=0)

    def __repr__(self) -> str:
        tokens, caches = amount(len(self), "token"), len(self._caches)
        return f"<KVCaches of {tokens} in {amount(caches, 'attention')}>"

    @property
    def lengths(self) -> int | Array:
        """Tokens of all items so far, or an array (batch,): of each."""
        # All attentions have the same number, unless they are out of step (`_enter`).
        first = next(iter(self._caches.values()), None)
        return 0 if first is None else first.lengths

    def _layers(self) -> Iterable[Any]:
        return self._caches.keys()

    def _span(self, layer: Any) -> Span:
        cache = self._caches[layer]
        return Span(batch=cache._batch(), start=cache._start, end=cache.lengths)

    def _so_far(self) -> int | Array:
        """Return the tokens before the current call, also after its first attention."""
        # The first attention of a call sets `_count_before`. Without one yet, in a call
        # (an empty set) or between calls (None), `lengths` are those before.
        if self._used:
            before: int | Array = self._count_before
            return before
        return self.lengths

    def of(self, layer: Any) -> KVCache:
        """Return the cache of one attention, new at first.

        Parameters
        ----------
        layer : Module
            The attention.

        Returns
        -------
        KVCache
            Its keys and values.
        """
        if layer not in self._caches:
            put(self, "_caches", {**self._caches, layer: KVCache()})
        return self._caches[layer]

    @whole
    def crop(self, length: ArrayLike) -> None:
        """Forget all tokens after the first `length`, in every attention.

        Parameters
        ----------
        length : int or array_like of int, (batch,)
            Tokens to keep: of all items, or of each.

        Raises
        ------
        ValueError
            `length` is negative or more than there are.
        """
        if not self._caches:
            KVCache().crop(length)  # checks the argument, and changes nothing
        for cache in self._caches.values():
            cache.crop(length)

    @whole
    def reorder(self, items: ArrayLike) -> None:
        """Let batch item b go on from what item ``items[b]`` has, as in a beam search.

        Parameters
        ----------
        items : array_like of int, (batch',)
            Numbers of items; batch' is the new number of them.

        Raises
        ------
        IndexError
            There is no such item.
        """
        if not self._caches:
            KVCache().reorder(items)  # raises: there is no batch to choose from
        for cache in self._caches.values():
            cache.reorder(items)


def check_state_batch(
    name: str, batch: int, kind: str, state_batch: tuple[int, ...]
) -> None:
    """Raise if tokens have another batch than the state; () fits every batch."""
    if state_batch and state_batch != (batch,):
        raise ValueError(
            f"{name}: got a batch of {batch}; expected {state_batch[0]}, as in the "
            f"{kind}"
        )


def as_state(
    memory: object, cache: object, **others: object
) -> Memory | KVCaches | None:
    """Return the memory or the cache that a layer was given, or None.

    A state says what comes before the tokens. `others` are arguments that say it too:
    they are None where a state is given. A memory is None where a cache is given.
    """
    for name, value, kind in (("memory", memory, Memory), ("cache", cache, KVCaches)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(
                f"{name}: got {kind_of(value)}; expected a nn.{kind.__name__}, or None"
            )
    state = memory
    if cache is not None:
        state = cache
        others["memory"] = memory
    if state is None:
        return None
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"{name}: got it with a {type(state).__name__}, which says what comes "
                "before the tokens; expected None"
            )
    return cast("Memory | KVCaches", state)
