"""Keys and values of a decode, step by step, and the positions of its queries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_floating,
    as_int,
    as_integers,
    at_least_ndim,
    check_bytes,
    check_shape,
    native,
)
from relpos._foreign import module_of
from relpos._suggestions import absent_method
from relpos._tensors import check_stored, of_tensor
from relpos._text import amount
from relpos._undo import call_number, put, whole

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["KVCache"]

#: Attributes of caches, and what they are called in other libraries.
TRIED_OF_CACHES = {
    "crop": "truncate",
    "lengths": "get_seq_length seen_tokens cache_seqlens",
    "reorder": "reorder_cache batch_select_indices index_select",
}
_TRIED = {
    "append": "update add extend write",
    "key": "keys k key_cache",
    "value": "values v value_cache",
}


class KVCache:
    r"""Keys and values of the tokens so far, and the positions of the next ones.

    .. math::

        K \leftarrow [K; k], \quad V \leftarrow [V; v], \quad
        pos(k_t) = n + t, \quad query\_offset = n

    with n the tokens before the append: the appended tokens and their queries have the
    positions n, n + 1, ... ``attention(query,
    **cache.arguments(query), ..)`` then computes rows n and following of one call over
    the whole sequence, whatever relative terms it has.

    Parameters
    ----------
    capacity : int, default 0
        Tokens to allocate memory for at the first append. More are always taken: the
        memory doubles whenever it is full, so that a token is copied less than twice on
        average.

    See Also
    --------
    relpos.nn.update_memory : The memory of Transformer-XL, which forgets.

    Notes
    -----
    Arrays, or tensors of PyTorch for the functions of `relpos.torch`; they stay in
    their dtype. No gradient passes through a cache: tensors that require one are
    refused.

    Items of a batch may have lengths of their own: ``append(.., lengths=)`` pads on the
    right, and `crop` takes a length for each. `arguments` then has `key_lengths` too,
    and rows of padded queries are to be ignored.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, section 3.2.

    Examples
    --------
    A prompt of three tokens, and one more, are rows of one call over four:

    >>> import numpy as np
    >>> import relpos
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 8))
    >>> terms = {"is_causal": True, "rel_bias": relpos.alibi_bias(2, 4)}
    >>> whole = relpos.attention(q, k, v, **terms)
    >>> cache = relpos.KVCache()
    >>> for at in (slice(0, 3), slice(3, 4)):
    ...     cache.append(k[:, at], v[:, at])
    ...     out = relpos.attention(q[:, at], **cache.arguments(q[:, at]), **terms)
    ...     print(np.allclose(out, whole[:, at], rtol=1e-12), cache)
    True <KVCache of 3 tokens: key (2, 3, 8), value (2, 3, 8) of float64>
    True <KVCache of 4 tokens: key (2, 4, 8), value (2, 4, 8) of float64>
    """

    #: Number of the call that cropped what no append has written over since, or 0.
    _cropped_in = 0

    def __init__(self, capacity: int = 0) -> None:
        #: Tokens that the first append makes memory for.
        self._capacity = as_int("capacity", capacity, 0, POSITION_LIMIT)
        #: Keys and values (.., Hk, n, columns), of which the first tokens are used.
        self._buffers: tuple[Any, Any] | None = None
        #: Tokens of all batch items, (), or of each, (...).
        self._lengths = np.zeros((), np.int64)
        #: Position of the first token of the last append, and the number of its tokens.
        self._start = self._lengths
        self._count = 0

    if not TYPE_CHECKING:
        __getattr__ = absent_method(TRIED_OF_CACHES | _TRIED)

    def __copy__(self) -> Self:
        """Copy the tokens too: each cache writes the next ones into its own memory."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        if self._buffers is not None:
            keys, values = self._buffers
            twin._buffers = (
                _copy_rows(keys, keys.shape[-2]),
                _copy_rows(values, values.shape[-2]),
            )
        return twin

    def __len__(self) -> int:
        return int(self._lengths.max(initial=0))

    def __repr__(self) -> str:
        if self._buffers is None:
            return "<KVCache of 0 tokens>"
        key, value = self.key, self.value
        shapes = f"key {tuple(key.shape)}, value {tuple(value.shape)} of {key.dtype}"
        return f"<KVCache of {amount(len(self), 'token')}: {shapes}>"

    @property
    def key(self) -> Any:
        """The keys so far, (..., Hk, length, D): a view, good until the next change.

        An array of them is read-only. A tensor cannot be: who writes into it changes
        the cache.
        """
        return self._view(0)

    @property
    def value(self) -> Any:
        """The values so far, (..., Hk, length, Dv): a view, as `key`."""
        return self._view(1)

    @property
    def lengths(self) -> int | Array:
        """Tokens of all items, or an array of the batch shape (...): of each."""
        return self._lengths.copy() if self._lengths.ndim else int(self._lengths)

    @whole
    def append(
        self, key: ArrayLike, value: ArrayLike, lengths: ArrayLike | None = None
    ) -> None:
        """Add keys and values of the next tokens; they are copied.

        Parameters
        ----------
        key : array_like or tensor, (..., Hk, n, D)
            Keys of the shape and dtype of those before, except for n.
        value : array_like or tensor, (..., Hk, n, Dv)
            The same.
        lengths : int or array_like of int, (...), optional
            How many of the n tokens all batch items have, or each; the others are
            padding and are not added. Default: n. A tensor, for tensors.

        Raises
        ------
        TypeError
            A dtype is not that of the tokens before, or a tensor requires a gradient.
        MemoryError
            Out of memory; as with every error, the cache is as it was.
        """
        rows = _as_rows("key", key), _as_rows("value", value)
        self._check_rows(*rows)
        count, batch = rows[0].shape[-2], tuple(rows[0].shape[:-3])
        added = np.array(count)
        if lengths is not None:
            integers = self._integers("lengths", lengths, rows[0])
            added = as_lengths("lengths", integers, batch, np.array(count))
        before, after = self._lengths, self._lengths + added
        # Tokens are written behind those that are used, or into a new buffer. Only the
        # last line makes them part of the cache, so that an error changes nothing.
        buffers = self._buffers_for(rows, int(after.max(initial=0)))
        for buffer, new in zip(buffers, rows, strict=True):
            if after.ndim:
                _write_items(buffer, new, before, added)
            else:
                start, end = int(before), int(after)
                buffer[..., start:end, :] = new[..., : end - start, :]
        self._put(
            _buffers=buffers, _start=before, _lengths=after, _count=count, _cropped_in=0
        )

    @whole
    def crop(self, length: ArrayLike) -> None:
        """Forget all tokens after the first `length`, as rejected drafts.

        Parameters
        ----------
        length : int or array_like of int, (...)
            Tokens to keep: of all items, or of each. May be a tensor, where the cache
            has tensors.

        Raises
        ------
        ValueError
            It is negative or more than there are.
        """
        integers = self._integers("length", length)
        lengths = as_lengths("length", integers, self._batch(), self._lengths)
        self._put(_lengths=lengths, _start=lengths, _count=0, _cropped_in=call_number())

    @whole
    def reorder(self, items: ArrayLike) -> None:
        """Let batch item b go on from what item ``items[b]`` has, as in a beam search.

        Parameters
        ----------
        items : array_like of int, (B',)
            Numbers of items along the first batch axis; B' is its new length. May be a
            tensor, where the cache has tensors.

        Raises
        ------
        ValueError
            The cache has no batch axis.
        IndexError
            There is no such item.
        """
        if self._buffers is None or len(self._buffers[0].shape) < 4:
            raise ValueError("items: the cache has no batch axis; expected one")
        order = as_integers("items", self._integers("items", items))
        size = self._buffers[0].shape[0]
        check_shape("items", order, order.ndim == 1, "(items,)")
        if order.size and not 0 <= order.min() <= order.max() < size:
            raise IndexError(
                f"items: got {order.min()} to {order.max()}; expected 0 to {size - 1}"
            )
        keys, values = self.key, self.value
        buffers = (
            _copy_rows(keys[order], self._buffers[0].shape[-2]),
            _copy_rows(values[order], self._buffers[1].shape[-2]),
        )
        start, lengths = self._start, self._lengths
        if start.ndim:  # items have positions of their own
            start = start[order]
        if lengths.ndim:
            lengths = lengths[order]
        self._put(_buffers=buffers, _start=start, _lengths=lengths)

    def positions(self, rows: ArrayLike) -> Any:
        """Return the positions of tokens to be appended next, as rotary ones.

        Parameters
        ----------
        rows : array_like or tensor, (..., H, n, D)
            Queries or keys of these tokens.

        Returns
        -------
        ndarray or tensor of int64, (n,) or (..., 1, n)
            A tensor for tensors; the second where items have lengths of their own.
        """
        count = _rows_of("rows", rows)
        start = self._lengths
        if start.ndim:  # of each item: an axis for heads and one for tokens
            start = start[..., None, None]
        return _alike(start + np.arange(count), rows)

    def arguments(self, query: ArrayLike) -> dict[str, Any]:
        """Make keywords of `attention` for the queries of the tokens appended last.

        Parameters
        ----------
        query : array_like or tensor, (..., H, n, D)
            One row for each of the n tokens that the last append had.

        Returns
        -------
        dict
            `key`, `value`, `query_offset` and, where items have lengths of their own,
            `key_lengths`. `is_causal` is left to the caller. `key` and `value` are the
            views of these names, all others copies.

        Raises
        ------
        ValueError
            `query` has another number of rows. For those of other tokens call
            ``attention(query, cache.key, cache.value, query_offset=..)``, with the
            position of the first of them.
        """
        rows = _rows_of("query", query)
        if rows != self._count:
            raise ValueError(
                f"query: got {amount(rows, 'row')}, but "
                f"{amount(self._count, 'token')} came with the last change; expected a "
                "row for each of them (others take cache.key, cache.value and a "
                "query_offset)"
            )
        keywords = {"key": self.key, "value": self.value}
        if not self._lengths.ndim:
            return keywords | {"query_offset": int(self._start)}
        # Copies, as the caller may keep and change them.
        start = np.broadcast_to(self._start, self._lengths.shape).copy()
        keywords["query_offset"] = _alike(start, self.key)
        keywords["key_lengths"] = _alike(self._lengths.copy(), self.key)
        return keywords

    def _view(self, which: int) -> Any:
        if self._buffers is None:
            raise ValueError("cache: has no tokens yet; expected an append before")
        view = self._buffers[which][..., : len(self), :]
        if not _is_tensor(view):
            view.flags.writeable = False
        return view

    def _batch(self) -> tuple[int, ...]:
        return () if self._buffers is None else tuple(self._buffers[0].shape[:-3])

    def _put(self, **attributes: Any) -> None:
        """Set attributes, all at once: an interrupt finds them old or new."""
        put(self, "__dict__", vars(self) | attributes)

    def _integers(self, name: str, value: object, rows: Any = None) -> Any:
        """Return integers given as a tensor, unless the cache is one of arrays."""
        tokens = rows if self._buffers is None else self._buffers[0]
        return value if isinstance(tokens, np.ndarray) else of_tensor(name, value)

    def _check_rows(self, key: Any, value: Any) -> None:
        """Check that they fit each other, and those before."""
        if key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                f"value: shape {tuple(value.shape)} does not match key's "
                f"{tuple(key.shape)}; expected equal axes but for the last"
            )
        if _device(key) != _device(value):
            raise TypeError(
                f"value: got {_kind(value)}, but key is {_kind(key)}; expected both of "
                "one kind"
            )
        if self._buffers is not None:
            _check_like("key", key, self._buffers[0])
            _check_like("value", value, self._buffers[1])

    def _buffers_for(self, rows: tuple[Any, Any], needed: int) -> tuple[Any, Any]:
        """Return buffers for that many tokens, twice as large where they are full."""
        if self._buffers is None:
            size = max(self._capacity, needed)
            for new in rows:
                shape = (*new.shape[:-2], size, new.shape[-1])
                check_bytes("capacity", shape, new.dtype)
            keys, values = rows
        else:
            keys, values = self._buffers
            size = keys.shape[-2]
            # Rows that a call cropped come back if the call raises: it must not write
            # over them.
            was_cropped = self._cropped_in and self._cropped_in == call_number()
            if needed > size:
                size = max(2 * size, needed)
            elif _may_write(keys) and not was_cropped:
                return self._buffers
        used = len(self)
        return (
            _copy_rows(keys[..., :used, :], size),
            _copy_rows(values[..., :used, :], size),
        )


def _rows_of(name: str, value: Any) -> int:
    """Count the tokens of an array or a tensor."""
    if _is_tensor(value):
        check_stored(name, value)
    shape = np.shape(value)
    if len(shape) < 2:
        raise ValueError(f"{name}: got shape {tuple(shape)}; expected (..., H, n, D)")
    rows: int = shape[-2]
    return rows


def _is_tensor(value: object) -> bool:
    return type(value) is not np.ndarray and module_of(value, "torch") is not None


def _device(rows: Any) -> str:
    """Name the device of a tensor; "" for an array."""
    return str(rows.device) if _is_tensor(rows) else ""


def _kind(rows: object) -> str:
    """Name the type, and the device where it is not the CPU."""
    kind, device = type(rows).__name__, _device(rows)
    return kind if device in ("", "cpu") else f"{kind} on {device}"


def _may_write(buffer: Any) -> bool:
    """Return False for a tensor of torch.inference_mode after the mode has ended."""
    if not _is_tensor(buffer) or not buffer.is_inference():
        return True
    # A new tensor is one of inference where the mode is on.
    is_on: bool = buffer.new_empty(0).is_inference()
    return is_on


def _as_rows(name: str, value: object) -> Any:
    """An array, or a tensor as it is, of at least heads, tokens and columns."""
    rows: Any = value
    if _is_tensor(value):
        check_stored(name, rows)
        _check_constant(name, rows)
    else:
        array = as_floating(name, value)
        rows = native(array, array.dtype.newbyteorder("="))
    at_least_ndim(name, rows, 3, "(..., Hk, n, columns)")
    return rows


def _check_constant(name: str, rows: Any) -> None:
    """Raise unless a tensor is of floating numbers without a gradient."""
    if rows.requires_grad:
        raise TypeError(
            f"{name}: got a tensor that requires a gradient, which a cache does not "
            "keep; pass tensor.detach(), or decode under torch.no_grad()"
        )
    if not rows.dtype.is_floating_point:
        raise TypeError(f"{name}: got {rows.dtype}; expected a floating dtype")


def _check_like(name: str, new: Any, old: Any) -> None:
    """Raise unless a later append is of the kind and the shape of the first."""
    if _device(new) != _device(old) or new.dtype != old.dtype:
        raise TypeError(
            f"{name}: got {_kind(new)} of {new.dtype}; expected {_kind(old)} of "
            f"{old.dtype}, as before"
        )
    shape, before = tuple(new.shape), tuple(old.shape)
    if shape[:-2] != before[:-2] or shape[-1] != before[-1]:
        expected = (*before[:-2], "n", before[-1])
        raise ValueError(f"{name}: got shape {shape}; expected {expected}, as before")


def as_lengths(name: str, value: object, batch: tuple[int, ...], most: Array) -> Array:
    """An integer of all batch items or of each, from 0 to `most`."""
    lengths = as_integers(name, value)
    expected = f"an integer or integers of the batch shape {batch}"
    check_shape(name, lengths, lengths.shape in ((), batch), expected)
    if (lengths < 0).any() or (lengths > most).any():
        raise ValueError(
            f"{name}: got {lengths.tolist()}; expected 0 to {most.tolist()}"
        )
    return np.broadcast_to(lengths, most.shape) if most.ndim else lengths


def _write_items(buffer: Any, new: Any, before: Array, added: Array) -> None:
    """Copy to each batch item its own number of tokens behind its own."""
    batch = tuple(new.shape[:-3])
    starts, counts = (np.broadcast_to(x, batch) for x in (before, added))
    for at in np.ndindex(batch):
        start, count = int(starts[at]), int(counts[at])
        buffer[at][:, start : start + count] = new[at][:, :count]


def _alike(integers: Array, rows: object) -> Any:
    """Return integers as a tensor if `rows` is one, else as they are."""
    if not _is_tensor(rows):
        return integers
    tokens: Any = rows
    tensor = sys.modules["torch"].from_numpy(np.array(integers))
    return tensor.to(tokens.device)


def _copy_rows(rows: Any, size: int) -> Any:
    """Return a buffer of that many tokens that begins with `rows`."""
    shape = (*rows.shape[:-2], size, rows.shape[-1])
    is_tensor = _is_tensor(rows)
    buffer = rows.new_zeros(shape) if is_tensor else np.zeros(shape, rows.dtype)
    buffer[..., : rows.shape[-2], :] = rows
    return buffer
