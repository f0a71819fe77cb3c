r"""KERPLE: two learned numbers per head shape how a score falls with the distance.

.. math::

    b_{h, r} = -r_{1, h} \log(1 + r_{2, h} |r|) \quad \text{(log)}, \qquad
    b_{h, r} = -r_{1, h} |r|^{r_{2, h}} \quad \text{(power)}

Shapes: r1, r2 (H,), bias b (H, 2 length - 1) for r = -(length - 1)..length - 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpos._biases.by_offset import (
    as_grad_bias,
    as_parameter,
    exact,
    offsets,
    sum_offsets,
)
from relpos._checks import Array, as_choice, common_dtype, quiet, rounded, stored
from relpos._text import in_short

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_KINDS = ("log", "power")


@in_short
class KerpleGradients(NamedTuple):
    """Gradients of the two arguments of `kerple_bias`.

    Attributes
    ----------
    r1, r2 : ndarray, (..., H)
        In the common dtype of the two arguments.

    See Also
    --------
    kerple_bias_backward : Returns it, and has the formula.

    Examples
    --------
    >>> import relpos
    >>> r1, r2 = relpos.kerple_bias_backward([[1.0, 0.0, 1.0]], [1.0], [1.0])
    >>> r1.round(2), r2
    (array([-1.39]), array([-1.]))
    """

    r1: Array
    r2: Array


def _parameters(r1: object, r2: object, kind: object) -> tuple[Array, Array, str]:
    first, second = as_parameter("r1", r1), as_parameter("r2", r2)
    if first.shape != second.shape:
        raise ValueError(
            f"r2: got shape {second.shape}; expected {first.shape}, that of r1"
        )
    chosen = as_choice("kind", kind, _KINDS)
    kept = stored(second)
    wrong = kept[kept < 0 if chosen == "log" else kept <= 0]
    if wrong.size:
        wanted = "0 or more" if chosen == "log" else "more than 0"
        raise ValueError(f"r2: got {wrong[0]} for kind={chosen!r}; expected {wanted}")
    return first, second, chosen


@quiet
def kerple_bias(
    r1: ArrayLike, r2: ArrayLike, length: int, *, kind: str = "log"
) -> Array:
    r"""Bias of KERPLE for every relative position, a `rel_bias` of `attention`.

    .. math::

        b_{h, r} = -r_{1, h} \log(1 + r_{2, h} |r|) \;\text{ ("log")}, \quad
        -r_{1, h} |r|^{r_{2, h}} \;\text{ ("power")}

    Parameters
    ----------
    r1 : array_like of float, (..., H)
        Positive in the paper; a negative one makes a head prefer what is far away.
    r2 : array_like of float, shape of `r1`
        At least 0 for "log", more than 0 for "power", where the paper has at most 2.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset).
    kind : {"log", "power"}

    Returns
    -------
    ndarray, (..., H, 2 length - 1)
        One row for each head, from the farthest key of the past on.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If shapes differ, `length` is less than 1, or `r2` is out of its range.

    See Also
    --------
    kerple_bias_backward : Gradients of `r1` and `r2`.
    alibi_bias : The power with r2 = 1.

    References
    ----------
    .. [1] Chi, Fan, Ramadge, Rudnicky, "KERPLE: Kernelized Relative Positional
       Embedding for Length Extrapolation", 2022, arXiv:2205.09921, section 4.

    Examples
    --------
    >>> import relpos
    >>> relpos.kerple_bias([2.0], [1.0], 3).round(2)
    array([[-2.2 , -1.39,  0.  , -1.39, -2.2 ]])
    >>> relpos.kerple_bias([1.0], [0.5], 3, kind="power").round(2)
    array([[-1.41, -1.  ,  0.  , -1.  , -1.41]])
    """
    first, second, chosen = _parameters(r1, r2, kind)
    distance = np.abs(offsets(length, *first.shape)).astype(np.float64)
    shape = _shape_of(distance, exact(second), chosen)
    fall = exact(first) * shape
    return rounded(0.0 - fall, _common(first, second))  # -fall would have a -0.0


def _common(*parameters: Array) -> np.dtype[Any]:
    return common_dtype(*parameters).newbyteorder("=")


def _shape_of(distance: Array, r2: Array, kind: str) -> Array:
    """Return what r1 multiplies; too large a power is infinite."""
    result: Array = np.log1p(r2 * distance) if kind == "log" else np.power(distance, r2)
    return result


@quiet
def kerple_bias_backward(
    grad_bias: ArrayLike, r1: ArrayLike, r2: ArrayLike, *, kind: str = "log"
) -> KerpleGradients:
    r"""Gradients of the arguments of `kerple_bias`.

    .. math::

        \bar r_1 &= -\sum_r \bar b_r \log(1 + r_2 |r|), \quad
        \bar r_2 = -\sum_r \bar b_r \frac{r_1 |r|}{1 + r_2 |r|} \;\text{ ("log")} \\
        \bar r_1 &= -\sum_r \bar b_r |r|^{r_2}, \quad
        \bar r_2 = -\sum_r \bar b_r \, r_1 |r|^{r_2} \log|r| \;\text{ ("power")}

    Parameters
    ----------
    grad_bias : array_like of float, (..., H, 2 length - 1)
        For instance ``context.backward(grad_out).rel_bias``.
    r1, r2, kind : as in `kerple_bias`
        What the forward was given.

    Returns
    -------
    KerpleGradients
        The named tuple ``(r1, r2)``, each (..., H), summed in float64.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If shapes differ, `grad_bias` has an even number of columns, or `r2` is out of
        its range.

    See Also
    --------
    kerple_bias : The forward.
    AttentionContext.backward : Where `grad_bias` comes from, as `rel_bias`.

    References
    ----------
    .. [1] Chi, Fan, Ramadge, Rudnicky, "KERPLE: Kernelized Relative Positional
       Embedding for Length Extrapolation", 2022, arXiv:2205.09921, section 4.

    Examples
    --------
    >>> import relpos
    >>> grads = relpos.kerple_bias_backward(
    ...     [[1.0, 0.0, 1.0]], [1.0], [1.0], kind="power"
    ... )
    >>> grads.r1, grads.r2
    (array([-2.]), array([0.]))
    """
    grad, offset = as_grad_bias(grad_bias)
    first, second, chosen = _parameters(r1, r2, kind)
    if grad.shape[:-1] != first.shape:
        raise ValueError(
            f"grad_bias: shape {grad.shape} does not match r1 of shape {first.shape}; "
            f"expected {(*first.shape, '2 * length - 1')}"
        )
    dtype = _common(first, second)
    grad = grad.astype(np.float64)
    a, b = exact(first), exact(second)
    distance = np.abs(offset).astype(np.float64)
    # forward: bias = -r1 * shape(|r|, r2)
    shape = _shape_of(distance, b, chosen)
    if chosen == "log":
        slope = distance / (1 + b * distance)
    else:
        slope = shape * np.log(np.maximum(distance, 1))  # 0 at distance 0 and 1
    return KerpleGradients(
        sum_offsets(-grad * shape, dtype), sum_offsets(-grad * a * slope, dtype)
    )
