"""The result of a recipe, and the checks and tables that recipes share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from relpos._biases import MAX_BUCKETS
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_array,
    as_int,
    at_least_ndim,
    check_memory,
    check_shape as check_fits,
    kind_of,
    quiet,
    reject_foreign,
    wrong_kind,
)
from relpos._tensors import is_tensor
from relpos._text import amount
from relpos.nn._inputs import check_shape, join_heads, product, split_heads
from relpos.recipes._tensors import (
    as_floating,
    as_plain,
    like,
    multiplied,
    singles_or_doubles,
)

__all__ = ["Recipe"]

Keywords = dict[str, Any]
Arrays = dict[str, Array]


class Argument(Any):  # type: ignore[misc]
    """Type that fits every parameter: with Any, pyright cannot choose an overload."""


class Recipe(dict[str, Argument]):
    """Arguments of `attention` made from a model's parameters, and their gradients.

    It is a dict: pass it on as ``attention(q, k, v, **recipe)``. It refers to the
    parameters that it was made from. Changing their numbers makes later gradients
    wrong.

    A recipe of tensors has no `backward`: autograd computes gradients through it.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import recipes
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 6, 4))
    >>> recipe = recipes.gemma3n_audio(np.zeros(4), np.ones((8, 6)), q)
    >>> result = relpos.attention(key=k, value=v, **recipe, return_context=True)
    >>> gradients = result.context.backward(np.ones_like(result.out))
    >>> {name: x.shape for name, x in recipe.backward(gradients).items()}
    {'per_dim_scale': (4,), 'pos_proj': (8, 6), 'query': (2, 6, 4)}
    """

    def __init__(
        self,
        keywords: Mapping[str, Any],
        back: Callable[[dict[str, Array]], dict[str, Array]],
    ) -> None:
        super().__init__(keywords)
        # Shapes are kept from the start, since a caller may change the entries of the
        # dict.
        self._back, self._shapes = back, _shapes_of(keywords)

    @quiet
    def backward(self, gradients: Any) -> dict[str, Array]:
        """Turn gradients of the arguments into those of the model's parameters.

        Parameters
        ----------
        gradients : AttentionGradients, or mapping of str to array_like
            The result of `relpos.AttentionContext.backward`, or at least the gradients
            of the floating arrays of the recipe.

        Returns
        -------
        dict of str to ndarray
            By the names of the recipe's parameters, in their shapes and dtypes.

        Raises
        ------
        TypeError, ValueError
            If a gradient is missing, or of another kind or shape than its argument, or
            if the recipe is one of tensors.
        """
        if any(map(is_tensor, self.values())):
            raise TypeError(
                "backward: got a recipe of tensors; expected one of arrays (autograd "
                "computes the gradients of tensors: call backward of a loss)"
            )
        # The gradients of a context are a named tuple.
        if hasattr(gradients, "_asdict"):
            gradients = gradients._asdict()
        if not isinstance(gradients, Mapping):
            raise TypeError(
                f"gradients: got {kind_of(gradients)}; expected AttentionGradients or "
                "a mapping of names to arrays"
            )
        checked = {}
        # Only arguments of floating numbers have gradients; labels and ranges have
        # none.
        for name, shape in self._shapes.items():
            grad = as_shaped(f"gradients.{name}", gradients.get(name), *shape)
            # Backward functions take float64, and round to the dtypes of the parameters
            # at the end.
            checked[name] = grad.astype(np.float64)
        return self._back(checked)


def _shapes_of(keywords: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arguments that have gradients, by name."""
    arrays = {n: x for n, x in keywords.items() if isinstance(x, np.ndarray)}
    # Integers and bools are labels, buckets or ranges.
    return {n: x.shape for n, x in arrays.items() if x.dtype.kind not in "iub"}


# ---- checks --------------------------------------------------------------------------


def as_table(name: str, value: Any, expected: str) -> Any:
    """Return floating `value` with two axes or more; `attention` checks the rest.

    An array of another tool stays what it is, so that tools that record transpositions
    and sums compute its gradient.
    """
    if not is_tensor(value):
        reject_foreign(name, value)
    is_known = isinstance(value, np.ndarray) or is_tensor(value)
    is_of_other_tool = hasattr(value, "ndim") and not is_known
    table: Any = value if is_of_other_tool else as_floating(name, value)
    at_least_ndim(name, table, 2, expected)
    return table


def as_shaped(name: str, value: object, *shape: int | str) -> Any:
    """Return a floating array; in `shape` an int is fixed and a word is free."""
    array: Any = as_floating(name, value)
    check_shape(name, array, shape)
    return array


def check_buckets(name: str, table: Array, count: int) -> None:
    """Refuse a table of T5's buckets in both directions that has too few or many."""
    if not 4 <= count <= MAX_BUCKETS:
        raise ValueError(
            f"{name}: got shape {(*table.shape,)}, {amount(count, 'bucket')}; expected "
            f"4 to {MAX_BUCKETS}"
        )


def as_projection(
    name: str, value: object, rows: int | str, waves: str = "sines and cosines"
) -> Array:
    """Return the weight of a projection of waves, which come in pairs."""
    weight: Array = as_shaped(name, value, rows, "E")
    fits = rows and weight.shape[1] and weight.shape[1] % 2 == 0
    check_fits(name, weight, fits, f"an even E, {waves}")
    return weight


def as_query(value: object, length: str = "L") -> Array:
    query: Array = as_floating("query", value)
    fits = query.ndim > 2 and query.shape[-1]
    check_fits("query", query, fits, f"(..., H, {length}, D), D at least 1")
    return query


def as_positions(value: object) -> Array:
    value = as_plain("positions", value)
    array = as_array("positions", value)
    if array.dtype.kind not in "iuf":
        raise wrong_kind("positions", value, "real numbers")
    return array.astype(np.float64)


def as_length(name: str, value: object, least: int = 1) -> int:
    return as_int(name, value, least, POSITION_LIMIT)


def causal(name: str, window: object) -> Keywords:
    """Return the arguments of every decoder: causal, with key heads to share."""
    keywords: Keywords = {"is_causal": True, "enable_gqa": True}
    if window is not None:
        # A window of n keys counts the query's own: n - 1 of the past.
        keywords["window"] = (as_length(name, window) - 1, 0)
    return keywords


# ---- tables made of parameters -------------------------------------------------------


def check_rows(name: str, rows: int, weight: Array) -> None:
    """Raise if no memory holds `rows` positions, or their projections."""
    # The encoding has one of the widths and the projected table the other.
    for width in weight.shape:
        check_memory(name, (rows, width), np.dtype(np.float64))


def projected(weight: Array, positions: Array, heads: int) -> Any:
    """Return positions (R, F), projected by a weight (H * D, F), as (H, R, D)."""
    # Products of 16 bits would lose digits.
    waves = singles_or_doubles(positions, weight)
    columns = singles_or_doubles(weight, weight).T
    return like(split_heads(multiplied(waves, columns), heads), weight)


def projected_backward(grad: Array, positions: Array, weight: Array) -> Any:
    # A product of float16 would lose digits here as well.
    kind = np.result_type(weight, np.float32)
    columns = join_heads(grad.astype(kind)).T
    return like(product(columns, positions.astype(kind)), weight)


def transformer_xl(parameters: Arrays, rows: Array, factor: float = 1.0) -> Recipe:
    """Return the recipe of biases u and v and of the projection of `rows`, by name.

    The biases of a model that adds them after the scale are given times `factor`.
    """
    u, v, weight = parameters.values()
    dim = u.shape[-1]
    keywords = {
        "rel_key": projected(weight, rows, math.prod(u.shape[:-1])),
        "pos_bias_u": like(factor * u, u).reshape(-1, dim),
        "pos_bias_v": like(factor * v, v).reshape(-1, dim),
        "beyond": "raise",
    }
    return Recipe(keywords, partial(_xl_backward, parameters, rows, factor))


def _xl_backward(
    parameters: Arrays, rows: Array, factor: float, grads: Arrays
) -> Arrays:
    u, v, weight = parameters.values()
    # The parameters have the names of the model, in the order of u, v and the weight.
    gradients = (
        like(factor * grads["pos_bias_u"].reshape(u.shape), u),
        like(factor * grads["pos_bias_v"].reshape(v.shape), v),
        projected_backward(grads["rel_key"], rows, weight),
    )
    return dict(zip(parameters, gradients, strict=True))
