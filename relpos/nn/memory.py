"""The memory that Transformer-XL carries from segment to segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import Array, as_floating, as_int
from relpos.nn._inputs import check_shape

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["update_memory"]


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

    Raises
    ------
    TypeError
        An array is not floating, or `mem_len` is no integer.
    ValueError
        A shape does not fit, or `mem_len` is negative.
    MemoryError
        Out of memory.

    See Also
    --------
    RelPartialLearnableMultiHeadAttn : Takes the memory as `mems`.
    relpos.transformer_xl_attention : The attention over memory and segment.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, section 3.2.

    Examples
    --------
    Three segments of four, with a memory of six. The encodings cover memory and
    segment, so their number grows until the memory is full:

    >>> import numpy as np
    >>> import relpos
    >>> from relpos import nn
    >>> layer = nn.RelPartialLearnableMultiHeadAttn(2, 16, 8, dropout=0.0, rng=0)
    >>> segments = np.random.default_rng(1).standard_normal((3, 4, 1, 16), np.float32)
    >>> memory = None
    >>> for x in segments:
    ...     Lk = 4 + (0 if memory is None else len(memory))
    ...     r = relpos.sinusoidal(np.arange(Lk)[::-1], 16, layout="concat")
    ...     future = np.triu(np.ones((4, Lk), bool), Lk - 4 + 1)[:, :, None]
    ...     out = layer(x, r, future, memory)
    ...     memory = nn.update_memory(memory, x, mem_len=6)
    ...     print(r.shape, out.shape, memory.shape)
    (4, 16) (4, 1, 16) (4, 1, 16)
    (8, 16) (4, 1, 16) (6, 1, 16)
    (10, 16) (4, 1, 16) (6, 1, 16)

    The last segment sees what it would see in one call over ten positions:

    >>> whole = np.concatenate(segments)[-10:]
    >>> future = np.triu(np.ones((10, 10), bool), 1)[:, :, None]
    >>> bool(np.allclose(layer(whole, r, future)[-4:], out, atol=1e-6))
    True
    """
    now = as_floating("hidden", hidden)
    check_shape("hidden", now, ("L", "B", "d_model"))
    keep = as_int("mem_len", mem_len, 0)
    before = now[:0] if memory is None else as_floating("memory", memory)
    check_shape("memory", before, ("M", *now.shape[1:]))
    both = np.concatenate([before, now])
    return both[max(len(both) - keep, 0) :].copy()
