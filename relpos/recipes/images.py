"""Models of images: Swin Transformer, BEiT, BoTNet, Segment Anything and RoPE-ViT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from relpos._attention.positions import grid_labels
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    ArrayLike,
    as_ints,
    at_least_ndim,
    check_memory,
    check_shape,
    quiet,
)
from relpos._encodings.absolute import as_positions
from relpos._text import amount
from relpos.recipes._recipe import Arrays, Keywords, Recipe, as_shaped, as_table
from relpos.recipes._tensors import (
    as_floating,
    as_plain,
    doubles,
    in_common_dtype,
    like,
    logistic,
    on_tensors,
    transposed,
)
from relpos.reference._xp import namespace

__all__ = ["beit", "botnet", "rope_vit", "sam", "swin", "swin_v2"]


def _two_sides(
    name: str, value: object, low: int = 1, expected: str = "(rows, columns)"
) -> list[int]:
    """Return two integers of at least `low`; `expected` names them in the error."""
    sides = as_ints(name, value, low, POSITION_LIMIT)
    if len(sides) != 2:
        raise ValueError(f"{name}: got {value}; expected {expected}")
    return sides


# ---- tables by offset ----------------------------------------------------------------


@on_tensors
@quiet
def swin(
    table: ArrayLike,
    window: int | Sequence[int],
    *,
    table_window: int | Sequence[int] | None = None,
) -> Keywords:
    r"""Swin Transformer's bias within a window, square or not.

    .. math:: s_{ij} = q_i k_j / \sqrt D + table_{index(x_i - x_j), h}

    Parameters
    ----------
    table : array_like, (prod(2n-1), H)
        ``relative_position_bias_table``, which counts query minus key; its gradient is
        that of rel_bias, transposed.
    window : int or sequence of int
        (rows, columns) of the window, or cells of a grid of any dimension.
    table_window : int or sequence of int, optional
        The window of the table, where another: the table is resized by bicubic
        interpolation, as for a model that is trained further with other windows.

    Returns
    -------
    dict or Recipe
        `rel_bias` and `labels`, for windows as batch items (B, H, N, D), N = prod(n).
        With a `table_window` it is a `Recipe`, with the gradient of `table`.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted
       Windows", 2021, arXiv:2103.14030, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.swin(np.zeros((3 * 5, 4)), (2, 3))["labels"].shape
    (6, 6)
    """
    sides = as_ints("window", window, 1, POSITION_LIMIT)
    old, own = sides, window
    if table_window is not None:
        old, own = (
            as_ints("table_window", table_window, 1, POSITION_LIMIT),
            table_window,
        )
    biases = as_table("table", table, "(prod(2n-1), H)")
    rows = math.prod(2 * n - 1 for n in old)
    if biases.shape[0] != rows:
        raise ValueError(
            f"table: {amount(biases.shape[0], 'row')} for a window of {own}; "
            f"expected {rows}, the product of 2n - 1"
        )
    # Labels count key minus query, and the model's table query minus key: the same rows
    # in reverse.
    rows = math.prod(2 * n - 1 for n in sides)
    labels = rows - 1 - grid_labels(sides)
    if table_window is None:
        return {"rel_bias": transposed(biases), "labels": labels}
    if len(old) != len(sides):
        raise ValueError(
            f"table_window: got {amount(len(old), 'side')} for a window of "
            f"{amount(len(sides), 'side')}; expected as many"
        )
    given = as_shaped("table", table, "rows", "H")
    check_memory("window", (rows, given.shape[1]), np.dtype(np.float64))
    shares = [
        _cubic_shares(2 * a - 1, 2 * b - 1) for a, b in zip(old, sides, strict=True)
    ]
    resized = _resized_by(shares, doubles(given))
    keywords = {"rel_bias": transposed(like(resized, given)), "labels": labels}
    return Recipe(keywords, partial(_swin_backward, given, shares))


def _resized_by(shares: list[Array], table: Any) -> Any:
    """Resize a table (rows of all axes, H) along each axis of a grid."""
    grid = table.reshape(*(matrix.shape[1] for matrix in shares), table.shape[-1])
    for axis, matrix in enumerate(shares):
        grid = _resized(matrix, grid, axis)
    return grid.reshape(-1, table.shape[-1])


def _swin_backward(table: Array, shares: list[Array], grads: Arrays) -> Arrays:
    back = [matrix.T for matrix in shares]
    return {"table": like(_resized_by(back, grads["rel_bias"].T), table)}


@on_tensors
@quiet
def botnet(
    rel_height: ArrayLike, rel_width: ArrayLike, grid: tuple[int, int]
) -> Keywords:
    r"""Bottleneck Transformer's position scores, a vector per row and one per column.

    .. math:: s_{ij} = q_i (k_j + height_{y_j - y_i} + width_{x_j - x_i}) / \sqrt D

    Parameters
    ----------
    rel_height : array_like, (2h-1, D)
        A vector for each distance in rows, from -(h-1) on.
    rel_width : array_like, (2w-1, D)
        The same in columns.
    grid : (int, int)
        (h, w), rows and columns of the feature map.

    Returns
    -------
    dict
        `rel_key`, a table of (2h-1)(2w-1) sums, and `labels`. With g its gradient as
        (2h-1, 2w-1, D), that of rel_height is ``g.sum(1)``, of rel_width ``g.sum(0)``.

    References
    ----------
    .. [1] Srinivas et al., "Bottleneck Transformers for Visual Recognition", 2021,
       arXiv:2101.11605, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.botnet(np.zeros((3, 8)), np.zeros((5, 8)), (2, 3))["rel_key"].shape
    (15, 8)
    """
    sides = _two_sides("grid", grid, expected="(h, w)")
    height = as_table("rel_height", rel_height, "(2h-1, D)")
    width = as_table("rel_width", rel_width, "(2w-1, D)")
    dim = height.shape[-1]
    tables = {"rel_height": height, "rel_width": width}
    for (name, table), cells in zip(tables.items(), sides, strict=True):
        expected = 2 * cells - 1, dim
        if table.shape != expected:
            raise ValueError(
                f"{name}: got shape {tuple(table.shape)} for {cells} cells; expected "
                f"{expected}"
            )
    # A row for each pair of distances; that in columns runs faster, as in the labels.
    sums = (height[:, None] + width[None]).reshape(-1, dim)
    return {"rel_key": sums, "labels": grid_labels(sides)}


# ---- tables that are resized for grids of other sizes --------------------------------


def _shares(old: int, new: int) -> Array:
    """Return the share of each old row in each new row: (new, old), rows of sum 1.

    Row i of the new ones is at (i + 1/2) old / new - 1/2 of the old ones, between two
    of them or at an end: ``interpolate(align_corners=False)`` of torch.
    """
    rows = np.arange(new)
    place = np.clip((rows + 0.5) * (old / new) - 0.5, 0, old - 1)
    before = place.astype(np.int64)
    after = np.minimum(before + 1, old - 1)
    share = place - before
    matrix = np.zeros((new, old))
    matrix[rows, before] = 1 - share
    # At the last old row `after` is `before` itself, whose share must stay.
    matrix[rows, after] += share
    return matrix


def _cubic_shares(old: int, new: int) -> Array:
    """Return the share of each old row in each new row, by a cubic of four rows.

    Rows are where those of `_shares` are; beyond an end the last row is repeated:
    ``interpolate(mode="bicubic", align_corners=False)`` of torch, whose cubic has the
    slope -3/4 at a distance of 1.
    """
    rows, slope = np.arange(new), -0.75
    place = (rows + 0.5) * (old / new) - 0.5
    first = np.floor(place)
    matrix = np.zeros((new, old))
    for step in range(-1, 3):
        x = np.abs(place - (first + step))
        near = ((slope + 2) * x - (slope + 3)) * x * x + 1
        far = ((slope * x - 5 * slope) * x + 8 * slope) * x - 4 * slope
        source = np.clip(first + step, 0, old - 1).astype(np.int64)
        # several steps may have the same row, at an end
        np.add.at(matrix, (rows, source), np.where(x <= 1, near, far))
    return matrix


def _resized(shares: Array, table: Any, axis: int) -> Any:
    """Multiply one axis of a table by a matrix of shares, (new, old)."""
    # A square matrix is the identity. A product with it would turn infinities into nan.
    if shares.shape[0] == shares.shape[1]:
        return table
    xp = namespace(table)
    product = xp.tensordot(xp.asarray(shares), table, ([1], [axis]))
    # tensordot puts the new axis first.
    return xp.moveaxis(product, 0, axis)


#: Rows after the pairs of patches: class to patch, patch to class, class to class.
_CLASS_ROWS = 3


@on_tensors
@quiet
def beit(
    relative_position_bias_table: ArrayLike,
    window: Sequence[int],
    *,
    table_window: Sequence[int] | None = None,
) -> Recipe:
    r"""BEiT's bias between patches, and of the class token in front of them.

    .. math:: s_{ij} = q_i k_j / \sqrt D + table_{index(x_i - x_j), h}

    Parameters
    ----------
    relative_position_bias_table : array_like, ((2h-1)(2w-1) + 3, H)
        Rows of query minus key; the last three rows are class to patch, patch to class
        and class to class.
    window : (int, int)
        Rows and columns of patches, (h', w').
    table_window : (int, int), optional
        (h, w) of the table, where another; it is resized linearly.

    Returns
    -------
    Recipe
        `rel_bias` and `labels`, (N + 1, N + 1), N = h' w', with the class token first.

    Notes
    -----
    As the model does, a table is read as (2w - 1) x (2h - 1) before it is resized to
    (2h' - 1) x (2w' - 1): one that is not square changes even at its own size.

    References
    ----------
    .. [1] Bao et al., "BEiT: BERT Pre-Training of Image Transformers", 2021,
       arXiv:2106.08254.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.beit(np.zeros((28, 12)), (3, 3))["labels"][:2, :3]
    array([[27, 25, 25],
           [26, 12, 11]])
    """
    new = _two_sides("window", window)
    old = new if table_window is None else _two_sides("table_window", table_window)
    name = "relative_position_bias_table"
    table = as_shaped(name, relative_position_bias_table, "rows", "H")
    old_rows, new_rows = _count_rows(old), _count_rows(new)
    if len(table) != old_rows:
        raise ValueError(
            f"{name}: {amount(len(table), 'row')} for {tuple(old)} patches; expected "
            f"(2h-1)(2w-1) + 3 = {old_rows}"
        )
    check_shape(name, table, table.shape[1] > 0, "a column for each head")
    check_memory("window", (new_rows, table.shape[1]), np.dtype(np.float64))
    # The old sides come in reverse order, width before height, and the new ones do not:
    # the model reads its table so.
    pairs = doubles(table[:-_CLASS_ROWS])
    pairs = pairs.reshape(2 * old[1] - 1, 2 * old[0] - 1, -1)
    for axis, side in enumerate(new):
        pairs = _resized(_shares(pairs.shape[axis], 2 * side - 1), pairs, axis)
    pairs = like(pairs.reshape(-1, pairs.shape[-1]), table)
    biases = namespace(table).concatenate([pairs, table[-_CLASS_ROWS:]]).T
    keywords = {"rel_bias": biases, "labels": _class_labels(new)}
    return Recipe(keywords, partial(_beit_backward, table, old, new))


def _count_rows(sides: list[int]) -> int:
    """Return the rows of a table: pairs of patches, and those of the class token."""
    return math.prod(2 * side - 1 for side in sides) + _CLASS_ROWS


def _class_labels(sides: list[int]) -> Array:
    """Return table rows of all pairs of tokens: the class token, then the patches."""
    rows = _count_rows(sides)
    tokens = math.prod(sides) + 1
    labels = np.empty((tokens, tokens), np.int64)
    # in reverse, as the table counts query minus key
    labels[1:, 1:] = rows - _CLASS_ROWS - 1 - grid_labels(sides)
    labels[0] = rows - 3
    labels[:, 0] = rows - 2
    labels[0, 0] = rows - 1  # last, as the two lines before have set it too
    return labels


def _beit_backward(
    table: Array, old: list[int], new: list[int], grads: Arrays
) -> Arrays:
    grad = grads["rel_bias"].T
    pairs: Array = grad[:-_CLASS_ROWS].reshape(2 * new[0] - 1, 2 * new[1] - 1, -1)
    # The forward reads the table as (2w - 1) x (2h - 1), so that the sides of the old
    # window come in reverse order here. Its shares, transposed, lead back.
    for axis, side in enumerate(reversed(old)):
        pairs = _resized(_shares(2 * side - 1, pairs.shape[axis]).T, pairs, axis)
    pairs = pairs.reshape(-1, table.shape[1])
    grad_table = like(np.concatenate([pairs, grad[-_CLASS_ROWS:]]), table)
    return {"relative_position_bias_table": grad_table}


@on_tensors
@quiet
def sam(rel_pos_h: ArrayLike, rel_pos_w: ArrayLike, grid: Sequence[int]) -> Recipe:
    r"""Segment Anything's (ViTDet's, MViTv2's) positions, decomposed into two axes.

    .. math:: s_{ij} = \frac{q_i k_j}{\sqrt D} + q_i h_{y_i - y_j} + q_i w_{x_i - x_j}

    The model does not divide the position terms by sqrt(D), and attention does: the
    tables are returned times sqrt(D).

    Parameters
    ----------
    rel_pos_h : array_like, (R, D)
        Table h: a vector for each distance in rows, query minus key; R at least 1.
    rel_pos_w : array_like, (S, D)
        Table w: the same in columns; S at least 1.
    grid : (int, int)
        Rows and columns, of the whole map or of a window. A table of other than 2 n - 1
        rows is resized linearly.

    Returns
    -------
    Recipe
        `rel_key`, the rows of h and then of w, and `labels`, a tuple of two (N, N).

    References
    ----------
    .. [1] Kirillov et al., "Segment Anything", 2023, arXiv:2304.02643.
    .. [2] Li et al., "MViTv2: Improved Multiscale Vision Transformers for
       Classification and Detection", 2021, arXiv:2112.01526.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.sam(np.zeros((5, 64)), np.zeros((7, 64)), (3, 4))
    >>> keywords["rel_key"].shape, [x.shape for x in keywords["labels"]]
    ((12, 64), [(12, 12), (12, 12)])
    """
    height = as_shaped("rel_pos_h", rel_pos_h, "R", "D")
    width = as_shaped("rel_pos_w", rel_pos_w, "S", height.shape[1])
    for name, table in (("rel_pos_h", height), ("rel_pos_w", width)):
        check_shape(name, table, len(table) > 0, "a row or more")
    sides = _two_sides("grid", grid)
    dim = height.shape[1]
    check_memory("grid", (2 * sum(sides) - 2, max(dim, 1)), np.dtype(np.float64))
    check_memory("grid", (math.prod(sides),) * 2, np.dtype(np.int64))
    axes = {
        "rel_pos_h": _Axis(height, _shares(len(height), 2 * sides[0] - 1)),
        "rel_pos_w": _Axis(width, _shares(len(width), 2 * sides[1] - 1)),
    }
    parts = [_resized(axis.shares, doubles(axis.table), 0) for axis in axes.values()]
    # sqrt(D) undoes the scale of attention.
    rows = math.sqrt(dim) * namespace(height).concatenate(parts)
    joined = in_common_dtype(rows, height, width)
    keywords = {"rel_key": joined, "labels": _axis_labels(*sides)}
    return Recipe(keywords, partial(_sam_backward, axes))


class _Axis(NamedTuple):
    """A table of one axis, and the shares that resize it."""

    table: Array
    shares: Array


def _axis_labels(height: int, width: int) -> tuple[Array, Array]:
    """Return rows of the joined table for each pair of cells, in the fewest bytes."""
    # a signed type that holds every difference and every row
    kind = np.min_scalar_type(-2 * (height + width))
    y, x = np.divmod(np.arange(height * width), width)
    y, x = y.astype(kind), x.astype(kind)
    # Distance 0 is the middle row of each table: row height - 1 of h, and row width - 1
    # of w, which comes after the 2 height - 1 rows of h.
    down = y[:, None] - y + kind.type(height - 1)
    right = x[:, None] - x + kind.type(2 * height - 1 + width - 1)
    return down, right


def _sam_backward(axes: dict[str, _Axis], grads: Arrays) -> Arrays:
    gradients = {}
    remaining = grads["rel_key"]
    for name, axis in axes.items():
        # The rows of h come before those of w.
        grad, remaining = np.split(remaining, [len(axis.shares)])
        grad = math.sqrt(axis.table.shape[1]) * grad
        gradients[name] = like(_resized(axis.shares.T, grad, 0), axis.table)
    return gradients


# ---- a network of offsets ------------------------------------------------------------


@on_tensors
@quiet
def swin_v2(
    w1: ArrayLike,
    b1: ArrayLike,
    w2: ArrayLike,
    window: int | Sequence[int],
    *,
    pretrained_window: int | Sequence[int] | None = None,
) -> Recipe:
    r"""Swin Transformer V2's continuous bias within a window, made by a network.

    .. math::

        s_{ij} = \lambda_h \cos(q_i, k_j) + 16 \, \sigma(z_{ij}), \quad
        z = w_2 a, \quad a = relu(w_1 x + b_1), \quad x = sign(o) \log_8(1 + 8 |o|)

    with o the offset of query minus key in rows and columns, each divided by the side
    of the pretrained window less 1. Backward,

    .. math::

        \bar w_2 = \bar z^T a, \quad \bar z = 16 \, \sigma(z) (1 - \sigma(z)) \, \bar b

    Parameters
    ----------
    w1 : array_like, (F, 2)
        ``continuous_position_bias_mlp.0.weight``: first layer, of rows and columns.
    b1 : array_like, (F,)
        ``continuous_position_bias_mlp.0.bias``: its bias.
    w2 : array_like, (H, F)
        ``continuous_position_bias_mlp.2.weight``: second layer.
    window : int or (int, int)
        Rows and columns of the window; an int for a square.
    pretrained_window : int or (int, int), optional
        Sides of the window that the network was trained with; None, or 0 in a model's
        configuration, takes `window`.

    Returns
    -------
    Recipe
        `rel_bias` and `labels`, for windows as batch items (B, H, N, D), N the cells.

    Raises
    ------
    ValueError
        If a side of 1 makes the model divide by 0. It does not divide if the window has
        one row.

    Notes
    -----
    The scores are cosines: give `attention` queries and keys of length 1, the queries
    times :math:`\lambda_h = \exp(\min(logit\_scale_h, \log 100))`, and ``scale=1.0``.
    In `transformers` the mask of shifted windows is added twice.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer V2: Scaling Up Capacity and Resolution", 2021,
       arXiv:2111.09883, section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> network = np.ones((8, 2)), np.ones(8), np.zeros((3, 8))
    >>> keywords = recipes.swin_v2(*network, (2, 3))
    >>> keywords["rel_bias"].shape, float(keywords["rel_bias"][0, 0])
    ((3, 15), 8.0)
    """
    first = as_shaped("w1", w1, "F", 2)
    bias = as_shaped("b1", b1, len(first))
    second = as_shaped("w2", w2, "H", len(first))
    sides = as_window("window", window, 1)
    trained = None
    if pretrained_window is not None:
        trained = as_window("pretrained_window", pretrained_window, 0)
    offsets = _log_offsets(sides, trained, len(first))
    xp = namespace(first)
    sums = xp.asarray(offsets) @ doubles(first).T + doubles(bias)
    # relu: its derivative at 0 is 0, that of maximum would be 1/2; nan stays nan.
    hidden = xp.where(sums <= 0, 0.0, sums)
    gates = logistic(hidden @ doubles(second).T)
    # in reverse, as the offsets count query minus key
    labels = len(offsets) - 1 - grid_labels(sides)
    keywords = {"rel_bias": like(16 * gates.T, second), "labels": labels}
    network = first, bias, second
    return Recipe(keywords, partial(_swin_v2_backward, network, offsets, hidden, gates))


def as_window(name: str, value: object, low: int) -> list[int]:
    """Return (rows, columns) of a window; a single integer stands for both."""
    sides = as_ints(name, value, low, POSITION_LIMIT)
    if len(sides) == 1:
        return [sides[0], sides[0]]
    return _two_sides(name, value, low, "an integer or (rows, columns)")


def _log_offsets(sides: list[int], trained: list[int] | None, units: int) -> Array:
    """Return query minus key in rows and columns, the network's input: (R, 2).

    `units` are those of the hidden layer, which has R rows too.
    """
    rows = (2 * sides[0] - 1) * (2 * sides[1] - 1)
    check_memory("window", (rows, max(units, 2)), np.dtype(np.float64))
    axes = [np.arange(1 - n, n, dtype=np.float64) for n in sides]
    offsets = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(rows, 2)
    # The model looks at the number of rows alone: if the pretrained window has 0 rows,
    # there is none, and if `window` has one row, nothing is divided.
    name, divided_by = "window", sides if sides[0] > 1 else None
    if trained is not None and trained[0] > 0:
        name, divided_by = "pretrained_window", trained
    if divided_by is not None:
        if min(divided_by) < 2:
            raise ValueError(
                f"{name}: got {tuple(divided_by)}; expected sides of at least 2, as "
                "the model divides by them less 1"
            )
        offsets /= np.subtract(divided_by, 1)
    # log8(x) = log2(x) / 3
    return np.asarray(np.sign(offsets) * np.log2(1 + 8 * np.abs(offsets)) / 3)


def _swin_v2_backward(
    network: tuple[Array, Array, Array],
    offsets: Array,
    hidden: Array,
    gates: Array,
    grads: Arrays,
) -> Arrays:
    w1, b1, w2 = network
    # gradients of what the sigmoid and the relu take, (R, H) and (R, F)
    grad_outer = 16 * gates * (1 - gates) * grads["rel_bias"].T
    grad_inner = grad_outer @ w2.astype(np.float64) * (hidden > 0)
    return {
        "w1": like(grad_inner.T @ offsets, w1),
        "b1": like(grad_inner.sum(axis=0), b1),
        "w2": like(grad_outer.T @ hidden, w2),
    }


# ---- angles ------------------------------------------------------------------------


@on_tensors
@quiet
def rope_vit(freqs: ArrayLike, coordinates: ArrayLike) -> Recipe:
    r"""RoPE-ViT's mixed encoding: learned frequencies for each axis, head and pair.

    .. math:: \theta_{h,n,c} = \sum_a x_{n,a} \, \omega_{a,h,c}, \quad
        \bar\omega_{a,h,c} = \sum_{..., n} x_{n,a} \, \bar\theta_{h,n,c}

    where a bar is over gradients. A pair can rotate along a diagonal. Queries and keys
    are both rotated:

    ``apply_rotary(q, **rope_vit(freqs, coordinates))``

    `Recipe.backward` takes ``{"angles": g}``, with g the sum of the gradients that
    `relpos.apply_rotary_backward` returns for both.

    Parameters
    ----------
    freqs : array_like of float, (A, H, D/2)
        ``freqs`` of the model, (2, depth, H D/2), for one of its layers: the first axis
        is x, the column.
    coordinates : array_like of int or float, (..., L, A)
        The position of each token on each axis.

    Returns
    -------
    Recipe
        `angles` (..., H, L, D/2) in float64, and `interleaved`, for
        `relpos.apply_rotary`. A class token in front is not rotated: its coordinates
        are 0.

    References
    ----------
    .. [1] Heo et al., "Rotary Position Embedding for Vision Transformer", 2024,
       arXiv:2403.13298, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import recipes
    >>> freqs = np.random.default_rng(0).standard_normal((2, 3, 4))
    >>> cells = np.argwhere(np.ones((2, 5)))[:, ::-1]  # column, then row
    >>> keywords = recipes.rope_vit(freqs, cells)
    >>> relpos.apply_rotary(np.ones((3, 10, 8)), **keywords).shape
    (3, 10, 8)
    """
    # Coordinates of tensors have no gradient: they are read as an array.
    positions = as_positions(as_plain("coordinates", coordinates), name="coordinates")
    at_least_ndim("coordinates", positions, 2, "(..., L, A)")
    omega = as_floating("freqs", freqs)
    axes = positions.shape[-1]
    fits = omega.ndim == 3 and len(omega) == axes
    expected = f"(A, H, D/2), with the A = {axes} of coordinates"
    check_shape("freqs", omega, fits, expected)
    *batch, length, _ = positions.shape
    _, heads, pairs = omega.shape
    check_memory("coordinates", (*batch, heads, length, pairs), np.dtype(np.float64))
    xp = namespace(omega)
    angles = xp.einsum("...la,ahc->...hlc", xp.asarray(positions), doubles(omega))
    keywords = {"angles": angles, "interleaved": True}
    return Recipe(keywords, partial(_rope_vit_backward, omega, positions))


def _rope_vit_backward(omega: Array, positions: Array, grads: Arrays) -> Arrays:
    of_items = np.einsum("...la,...hlc->...ahc", positions, grads["angles"])
    # The frequencies serve all batch items: their gradient is the sum over these axes.
    batch_axes = tuple(range(of_items.ndim - 3))
    return {"freqs": like(of_items.sum(axis=batch_axes), omega)}
