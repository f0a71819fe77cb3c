"""Attention over two sets of keys, joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._attention.shapes import broadcast_shapes
from relpos._checks import Array, as_floating, common_dtype, rounded
from relpos._settings import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def merge_attention(
    out_a: ArrayLike, lse_a: ArrayLike, out_b: ArrayLike, lse_b: ArrayLike
) -> tuple[Array, Array]:
    r"""Join attention results over two disjoint sets of keys.

    .. math::

        lse = \log(e^{lse_a} + e^{lse_b}), \quad
        out = e^{lse_a - lse} out_a + e^{lse_b - lse} out_b

    A part that saw no key (lse = -inf) joins as nothing. Sinks belong to exactly one of
    the parts, or they would count twice.

    Gradients of the parts follow by hand. With dout and dlse those of the result and
    :math:`w_a = e^{lse_a - lse}`,

    .. math::

        dout_a = w_a \, dout, \quad dlse_a = w_a (dlse + dout (out_a - out))

    and the same for b; `AttentionContext.backward` of each part takes them from there,
    and inputs that both parts share (the query, tables) add up their two gradients.

    Parameters
    ----------
    out_a : array_like, (..., Dv)
        Result of `attention` over one set; leading axes broadcast with `out_b`.
    lse_a : array_like, (...)
        Its log-sum-exps, of its shape without the last axis.
    out_b, lse_b : array_like
        The same over the other set.

    Returns
    -------
    out : ndarray, (..., Dv)
        What one call over both sets returns, to rounding, in the common dtype of
        `out_a` and `out_b`.
    lse : ndarray, (...)
        Its log-sum-exps, in the common dtype of `lse_a` and `lse_b`.

    Raises
    ------
    TypeError
        An argument is not floating.
    ValueError
        Shapes do not fit.

    See Also
    --------
    attention : Returns `lse` with ``return_lse=True``.

    References
    ----------
    .. [1] Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018,
       arXiv:1805.02867.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> rng = np.random.default_rng(0)
    >>> query, key, value = rng.standard_normal((3, 1, 6, 4))
    >>> whole = relpos.attention(query, key, value)
    >>> left = relpos.attention(query, key[:, :2], value[:, :2], return_lse=True)
    >>> right = relpos.attention(query, key[:, 2:], value[:, 2:], return_lse=True)
    >>> out, lse = relpos.merge_attention(left.out, left.lse, right.out, right.lse)
    >>> bool(np.allclose(out, whole))
    True

    The gradient of a sum of outputs by the keys, half by half:

    >>> def grad_key(keys):
    ...     part = query, key[:, keys], value[:, keys]
    ...     half = relpos.attention(*part, return_lse=True, return_context=True)
    ...     share = np.exp(half.lse - lse)[..., None]
    ...     grad_lse = (share * (half.out - out)).sum(axis=-1)
    ...     share = np.broadcast_to(share, half.out.shape)
    ...     return half.context.backward(share, grad_lse=grad_lse).key
    >>> halves = grad_key(slice(0, 2)), grad_key(slice(2, 6))
    >>> whole = relpos.attention(query, key, value, return_context=True)
    >>> grad = whole.context.backward(np.ones_like(out)).key
    >>> bool(np.allclose(np.concatenate(halves, axis=1), grad))
    True
    """
    parts = {"out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b}
    arrays = {name: as_floating(name, part) for name, part in parts.items()}
    check_parts(arrays)
    common = common_dtype(*arrays.values(), np.dtype(np.float32))
    out, lse = kernels().merge(*(a.astype(common, copy=False) for a in arrays.values()))
    out_dtype = common_dtype(arrays["out_a"].dtype, arrays["out_b"].dtype)
    lse_dtype = common_dtype(arrays["lse_a"].dtype, arrays["lse_b"].dtype)
    return rounded(np.asarray(out), out_dtype), np.asarray(lse, lse_dtype)


def check_parts(arrays: Mapping[str, Any]) -> None:
    """Check the shapes of the four parts, of arrays or of tensors."""
    for out_name, lse_name in (("out_a", "lse_a"), ("out_b", "lse_b")):
        out, lse = arrays[out_name], arrays[lse_name]
        if not out.ndim:
            raise ValueError(f"{out_name}: got a single number; expected (..., Dv)")
        if lse.shape != out.shape[:-1]:
            raise ValueError(
                f"{lse_name}: shape {lse.shape} does not match {out_name}'s "
                f"{out.shape}; expected {out.shape[:-1]}"
            )
    a, b = arrays["out_a"].shape, arrays["out_b"].shape
    if a[-1] != b[-1] or broadcast_shapes(a, b) is None:
        raise ValueError(
            f"out_b: shape {b} does not match out_a's {a}; expected the same Dv and "
            "leading axes that broadcast"
        )
