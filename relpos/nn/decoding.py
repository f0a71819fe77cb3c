"""What a model keeps from call to call: hidden states, or keys and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from relpos._attention.cache import KVCache
from relpos._checks import Array, as_int, kind_of
from relpos._undo import put, whole
from relpos.nn._kept import Kept, Span
from relpos.nn.memory import update_memory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["KVCaches", "Memory"]


class Memory(Kept):
    r"""What every attention of a model was given before: Transformer-XL's memory.

    .. math:: memory' = [memory; x]_{-length:}

    A model called with ``memory=memory`` attends from the tokens to the memory and the
    tokens, then keeps the end of both, in each of its attentions. No gradient passes
    into a memory; what the projections make of it trains them.

    Each attention of a model takes it once in each call; one that takes it twice, that
    is new to it after the first call or that an interrupt has left ahead of another is
    a ValueError, as with `KVCaches`. A call that raises leaves it as it was.

    Parameters
    ----------
    length : int
        Positions to keep at most.

    Attributes
    ----------
    length : int
        May be changed between calls: a model may be given a longer memory than it was
        trained with.

    Raises
    ------
    TypeError
        `length` is no integer.
    ValueError
        `length` is negative.

    See Also
    --------
    MultiheadAttention : Takes one, and so does a model of such layers.
    update_memory : The same of one layer, as a function.
    KVCaches : Forgets nothing, for a token at a time.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, section 3.2.

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

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = as_int("length", length, 0)
        self._hidden: dict[Any, Array] = {}
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

        See Also
        --------
        Memory.update : What puts it there.
        """
        return self._hidden.get(layer)

    def _layers(self) -> Iterable[Any]:
        return self._updates.keys()

    def _span(self, layer: Any) -> Span:
        updates = self._updates[layer]
        return Span((), updates - 1, updates)

    def _back(self, least: Any) -> str:
        return "a new nn.Memory, with the segments so far again"

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

        See Also
        --------
        update_memory : The same of one layer, as a function.
        """
        before = self.of(layer)
        first = None if before is None else before.swapaxes(0, 1)
        after = update_memory(first, x.swapaxes(0, 1), self.length).swapaxes(0, 1)
        after.flags.writeable = False
        updates = self._updates.get(layer, 0) + 1
        put(self, "_hidden", {**self._hidden, layer: after})
        put(self, "_updates", {**self._updates, layer: updates})


class KVCaches(Kept):
    r"""Keys and values of the tokens so far, of every attention of a model.

    .. math:: K \leftarrow [K; k], \quad V \leftarrow [V; v]

    A model called with ``cache=cache`` takes the tokens that come next, and computes
    their rows of one call over the whole sequence. It has to be causal for that.
    `SinusoidalEncoding` and `LearnedAPE` go on from where the tokens so far ended, too.
    No gradient passes through a cache. A call that raises leaves it as it was.

    See Also
    --------
    MultiheadAttention : Takes one, and so does a model of such layers.
    relpos.KVCache : That of one attention.
    Memory : Forgets, and trains.

    Notes
    -----
    What would mix the tokens of two uses, or leave some out, is a ValueError:

    - An attention that is called twice in one call of a model. Give each use a layer of
      its own; two layers may share their `Parameter` objects. The call of the model is
      the outermost call of a `Module` that is given the cache. Where a function calls a
      layer twice, each is a call, and the second continues the first.
    - An attention that is new to a cache, as those of a copied or reloaded model are,
      unless all that it knows were called once and hold exactly the tokens of this
      call. A copy that is given as many tokens of as many items as the model's only
      call cannot be told from a layer of that model.
    - An attention that holds more tokens than another one. An interrupt may leave them
      out of step where a function calls the layers; the error says to what length to
      `crop` the cache.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, section 3.2.

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

    def __init__(self) -> None:
        super().__init__()
        self._caches: dict[Any, KVCache] = {}

    def __len__(self) -> int:
        return max(map(len, self._caches.values()), default=0)

    def __repr__(self) -> str:
        return f"<KVCaches of {len(self)} tokens in {len(self._caches)} attentions>"

    @property
    def lengths(self) -> int | Array:
        """Tokens of all items so far, or an array (batch,): of each.

        See Also
        --------
        relpos.KVCache.lengths : That of one attention.
        """
        for cache in self._caches.values():
            return cache.lengths
        return 0

    def _layers(self) -> Iterable[Any]:
        return self._caches.keys()

    def _span(self, layer: Any) -> Span:
        cache = self._caches[layer]
        return Span(cache._batch(), cache._start, cache.lengths)

    def _so_far(self) -> int | Array:
        """Tokens before the call that is going on, also after its first attention."""
        return self._before if self._used else self.lengths

    def _back(self, least: Any) -> str:
        return f"cache.crop({least}) before, and the tokens after those again"

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

        See Also
        --------
        relpos.KVCache : What it can do.
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
        TypeError
            `length` is no integer.
        ValueError
            It is negative or more than there are.

        See Also
        --------
        relpos.KVCache.crop : That of one attention.
        """
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
        TypeError
            `items` is of the wrong kind.
        ValueError
            It has another shape.
        IndexError
            There is no such item.

        See Also
        --------
        relpos.KVCache.reorder : That of one attention.
        """
        for cache in self._caches.values():
            cache.reorder(items)


def as_kept(
    memory: object, cache: object, **others: object
) -> Memory | KVCaches | None:
    """Return what comes before the tokens; nothing else may say so."""
    for name, value, kind in (("memory", memory, Memory), ("cache", cache, KVCaches)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(
                f"{name}: got {kind_of(value)}; expected a nn.{kind.__name__}, or None"
            )
    kept = memory if cache is None else cache
    if cache is not None:
        others["memory"] = memory
    for name, value in others.items():
        if kept is not None and value is not None:
            raise ValueError(
                f"{name}: got it with a {type(kept).__name__}, which says what comes "
                "before the tokens; expected None"
            )
    return cast("Memory | KVCaches | None", kept)
