"""What the arrays of one call of `attention` are checked for together: their shapes."""

from collections.abc import Mapping
from itertools import zip_longest

from relpos._attention.operands import OPERANDS, ROWS, Sizes
from relpos._checks import Array, at_least_ndim

_MAX_AXES = 32  # the most that NumPy 1 allows


def read_sizes(arrays: Mapping[str, Array], enable_gqa: bool) -> Sizes:
    """Read the dimension letters off query, key, value and position_query."""
    query, key, value = (
        arrays["query"].shape,
        arrays["key"].shape,
        arrays["value"].shape,
    )
    if min(len(query), len(key), len(value)) < 3:
        for name in ("query", "key", "value"):
            at_least_ndim(name, arrays[name], 3, OPERANDS[name].shown)
    own = "position_query" in arrays
    position = arrays["position_query" if own else "query"]
    at_least_ndim("position_query", position, 3, OPERANDS["position_query"].shown)
    columns = query[-1], value[-1], position.shape[-1]
    sizes = Sizes(query[-3], key[-3], query[-2], key[-2], *columns, own)
    if key[-1] != sizes.D:
        raise ValueError(
            f"key: shape {key} does not match query's head_dim {sizes.D}; expected "
            f"(..., Hk, Lk, {sizes.D})"
        )
    if value[-2] != sizes.Lk:
        raise ValueError(
            f"value: shape {value} does not match key's length {sizes.Lk}; expected "
            f"(..., {sizes.Hk}, {sizes.Lk}, Dv)"
        )
    if value[-3] != sizes.Hk:
        raise ValueError(
            f"value: shape {value} does not match key's {sizes.Hk} heads; expected "
            f"(..., {sizes.Hk}, {sizes.Lk}, Dv)"
        )
    if sizes.Hk != sizes.H:
        _check_heads(sizes, enable_gqa)
    return sizes


def _check_heads(sizes: Sizes, enable_gqa: bool) -> None:
    came = f"key: {sizes.Hk} heads, but query has {sizes.H}"
    if not enable_gqa:
        raise ValueError(
            f"{came}; expected equal numbers (enable_gqa=True lets groups of query "
            "heads share a key head)"
        )
    if not sizes.Hk or sizes.H % sizes.Hk:
        raise ValueError(
            f"{came}; with enable_gqa=True query heads must be a multiple of key heads"
        )


def check_shapes(arrays: Mapping[str, Array], sizes: Sizes) -> None:
    """Check the axes after the batch axes."""
    for name, array in arrays.items():
        ROWS[name].check(array, sizes)


def join_batches(arrays: Mapping[str, Array]) -> tuple[int, ...]:
    """Broadcast the batch axes of all arguments; a message names the one that fails."""
    batch = arrays["query"].shape[:-3]
    for name, array in arrays.items():
        axes = ROWS[name].axes
        own = array.shape[:-axes] if axes else array.shape
        if len(own) + 3 > _MAX_AXES:
            raise ValueError(
                f"{name}: shape {array.shape} has {len(own)} batch axes; expected at "
                f"most {_MAX_AXES - 3}"
            )
        if own in (batch, ()):  # the usual cases
            continue
        joined = broadcast_shapes(batch, own)
        if joined is None:
            raise ValueError(
                f"{name}: batch axes {own} of shape {array.shape} do not broadcast "
                f"with {batch} of the arguments before it; expected "
                f"{ROWS[name].shown}"
            )
        batch = joined
    return batch


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """NumPy's broadcast of two shapes, or None where there is none."""
    joined = []
    for x, y in zip_longest(reversed(a), reversed(b), fillvalue=1):
        if x != y and x != 1 and y != 1:
            return None
        joined.append(y if x == 1 else x)
    return tuple(reversed(joined))
