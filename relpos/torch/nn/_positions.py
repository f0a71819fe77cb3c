"""Positions of `RelativeMultiheadAttention` by name: their parameters and keywords."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
)

import numpy as np
import torch
from torch import Tensor, nn

import relpos.torch as functions
from relpos import recipes
from relpos._biases import MAX_BUCKETS
from relpos._checks import POSITION_LIMIT, Array
from relpos._suggestions import as_scheme
from relpos._text import amount
from relpos.nn import position as layers
from relpos.nn._inputs import about_max_len, as_settings
from relpos.nn.multihead import default_sizes
from relpos.nn.position import KERPLE_LEAST, music_rows
from relpos.torch._kept import Encodings, Projection, project, project_by
from relpos.torch._tensors import without_modes
from relpos.torch._tracing import constant_result
from relpos.torch.nn._layer import (
    Options,
    as_int,
    normal_parameter,
    split_heads,
    uniform_parameter,
    xavier_parameter,
)

if TYPE_CHECKING:
    from relpos.nn import multihead

    #: Every name that `position` takes here.
    PositionName: TypeAlias = (
        multihead.PositionName | Literal["deberta", "disentangled_attention"]
    )


class Sizes(TypedDict, total=False):
    """Arguments that belong to positions: those of one position are some of these."""

    max_relative_position: int | None
    max_len: int
    num_buckets: int
    max_distance: int
    bidirectional: bool
    base: float
    width: int


class Terms(TypedDict, total=False):
    """Keywords of an attention function that a position computes."""

    rel_key: Tensor
    rel_query: Tensor
    rel_value: Tensor
    rel_bias: Tensor
    pos_bias_u: Tensor
    pos_bias_v: Tensor
    buckets: Tensor
    min_relative_position: int
    scale: float
    # The network of FIRE has these.
    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor
    c: Tensor
    threshold: Tensor


class Position:
    """Base of the positions: how one makes parameters in a module and reads them.

    It keeps no parameters and no state itself, so that one object serves all modules of
    a scheme. The parameters belong to the module, under the names of the keywords that
    attention takes. A position that computes its tables overrides `arguments`, and one
    that rotates queries and keys overrides `rotate`.
    """

    #: The function of relpos.torch that takes the keywords.
    function: ClassVar[Callable[..., Any]] = staticmethod(functions.attention)
    #: Parameters that are passed to the function as they are, under their own names.
    parameter_names: ClassVar[tuple[str, ...]] = ()
    #: True if tables or rotations are computed for one offset, which has to be the same
    #: integer for all batch items.
    has_one_offset: ClassVar[bool] = False
    #: No token may be as far as this from another one, or from position 0.
    limit: ClassVar[int] = POSITION_LIMIT

    def start(self, module: Any, options: Options) -> None:
        """Register the parameters in a module."""

    def default_offset(
        self, query_length: int, key_length: int, shift: int | None = None
    ) -> int | None:
        """Return the position of query 0 for a call that does not give one.

        `shift` is the position that a mask of the call implies, if any. The result is
        None if the position is not known, so that the call has to give it.
        """
        return 0 if query_length == key_length else shift

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        """Return keywords of the function: here the parameters of `parameter_names`."""
        terms: Terms = {}
        for name in self.parameter_names:
            terms[name] = getattr(module, name)  # type: ignore[literal-required]
        return terms

    def rotate(self, module: Any, x: Tensor, offset: int = 0) -> Tensor:
        """Return the queries or keys that attention takes: here `x` itself."""
        return x

    def attend(self, module: Any, *heads: Tensor, **keywords: Any) -> Any:
        """Call the function on query, key and value, which are split into heads."""
        return self.function(*heads, **keywords)


# ---- none, and tables of vectors ----------------------------------------------------


class Nothing(Position):
    """No position: by default query 0 is at key 0, also if their numbers differ.

    The offset serves a causal mask alone.
    """

    def default_offset(
        self, query_length: int, key_length: int, shift: int | None = None
    ) -> int:
        return 0 if shift is None else shift


class Shaw(Position):
    function = staticmethod(functions.shaw_attention)
    parameter_names = "rel_key", "rel_value"

    def start(self, module: Any, options: Options) -> None:
        # a row for each distance on both sides, and one for distance 0
        shape = 2 * module.sizes["max_relative_position"] + 1, module.head_dim
        module.rel_key = xavier_parameter(shape, **options)
        module.rel_value = xavier_parameter(shape, **options)


class Music(Position):
    function = staticmethod(functions.relative_global_attention)

    def start(self, module: Any, options: Options) -> None:
        rows = music_rows(module.sizes["max_len"], module.is_causal)
        module.rel_key = normal_parameter((rows, module.head_dim), 1.0, **options)

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        # Row 0 is that of the farthest key of the past, also in the larger table, which
        # goes on into the future.
        first = 1 - module.sizes["max_len"]
        return {"rel_key": module.rel_key, "min_relative_position": first}

    def attend(self, module: Any, *heads: Tensor, **keywords: Any) -> Any:
        try:
            return super().attend(module, *heads, **keywords)
        except IndexError as error:
            # The error names the table, which the caller of a module does not know.
            raise about_max_len(error, module.sizes["max_len"]) from None


class TransformerXL(Position):
    function = staticmethod(functions.transformer_xl_attention)
    has_one_offset = True
    limit = layers.TransformerXL._limit

    def start(self, module: Any, options: Options) -> None:
        shape = module.num_heads, module.head_dim
        module.pos_bias_u = normal_parameter(shape, 0.02, **options)
        module.pos_bias_v = normal_parameter(shape, 0.02, **options)
        width = module.embed_dim
        module.pos_proj = nn.Linear(width, width, bias=False, **options)

    def default_offset(
        self, query_length: int, key_length: int, shift: int | None = None
    ) -> int:
        # The last query is at the last key, as the model's memory comes before its
        # queries. A mask does not move the table.
        return key_length - query_length

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        lq, lk = query.shape[-2], key.shape[-2]
        # Relative positions run from -farthest, of the last query and key 0, to
        # lk - 1 - offset, of query 0 and the last key.
        farthest = lq - 1 + offset
        rows = max(lq + lk - 1, 1)  # one at least: attention takes no empty table
        dtype = module.pos_bias_u.dtype

        def compute() -> Tensor:
            distances = farthest - torch.arange(rows, device=query.device)
            width = module.embed_dim
            return functions.sinusoidal(distances, width, layout="concat", dtype=dtype)

        encodings = Encodings((farthest, rows, dtype, query.device), compute)
        kept = project_by(module, encodings, [module.pos_proj])
        table = module.pos_proj(compute()) if kept is None else kept[0]
        return {
            "rel_key": split_heads(table, module.num_heads),
            "pos_bias_u": module.pos_bias_u,
            "pos_bias_v": module.pos_bias_v,
            "min_relative_position": -farthest,
        }


@lru_cache(maxsize=64)
def _bucket_array(recipe: Callable[..., Any], rows: int, **sizes: Any) -> Array:
    """Return the buckets of a recipe for tables of so many rows."""
    # The buckets do not depend on the numbers of a table: any table of `rows` will do.
    buckets: Array = recipe(np.zeros((rows, 1)), **sizes)["buckets"]
    return buckets


# Layers of one size share their buckets. `without_modes` is needed because the cache
# outlives the modes of a call: a tensor made in inference mode would break a later
# training.
@lru_cache(maxsize=64)
def _cached_buckets(recipe: Callable[..., Any], rows: int, **sizes: Any) -> Tensor:
    """Return `_bucket_array` as a tensor."""
    return without_modes(_bucket_array(recipe, rows, **sizes))


# A recipe computes the buckets on arrays of NumPy. A compiled program takes the result
# as a constant and does not trace this.
@constant_result
def deberta_buckets(max_relative_position: int | None, num_buckets: int) -> Tensor:
    """Return the row of DeBERTa's tables for each distance, the past first."""
    rows = 2 * num_buckets
    return _cached_buckets(recipes.deberta, rows, max_position=max_relative_position)


class UsedRows(NamedTuple):
    """The rows of DeBERTa's tables that some relative positions use, one after another.

    `positions` are the buckets of these relative positions, of which `lowest` is the
    first.
    """

    rows: slice
    positions: slice
    lowest: int

    def terms(self, buckets: Tensor) -> Terms:
        """Return keywords for tables of these rows alone."""
        return {
            "buckets": buckets[self.positions] - self.rows.start,
            "min_relative_position": self.lowest,
        }


def used_by_deberta(
    max_relative_position: int | None, num_buckets: int, lowest: int, highest: int
) -> UsedRows:
    """Return the rows that relative positions from lowest to highest use."""
    # Neither tracing nor a mode of torch sees the array.
    longest = max_relative_position
    buckets = _bucket_array(recipes.deberta, 2 * num_buckets, max_position=longest)
    farthest = len(buckets) // 2  # the middle one is that of relative position 0
    # positions beyond the ends have the rows of the ends
    first, last = (min(max(n + farthest, 0), 2 * farthest) for n in (lowest, highest))
    # relative positions ascend, so that rows descend
    rows = slice(int(buckets[last]), int(buckets[first]) + 1)
    return UsedRows(rows, slice(first, last + 1), first - farthest)


class DeBERTa(Position):
    def start(self, module: Any, options: Options) -> None:
        if module.kdim != module.embed_dim:
            raise ValueError(
                f"kdim: got {module.kdim} with position='deberta', which projects "
                f"positions as keys; expected embed_dim = {module.embed_dim}"
            )
        count = as_int("num_buckets", module.sizes["num_buckets"], 4, MAX_BUCKETS)
        reach = module.sizes["max_relative_position"]
        if reach is not None:
            # Half of the buckets have one distance each, and the others need distances
            # beyond them.
            as_int("max_relative_position", reach, count // 2 + 2, POSITION_LIMIT)
        shape = 2 * count, module.embed_dim
        module.rel_embeddings = normal_parameter(shape, 0.02, **options)
        # This call raises if anything else is wrong with the sizes.
        deberta_buckets(**module.sizes)

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        # DeBERTa projects its positions by the weights of the keys and of the queries.
        weights, biases = projections(module)
        used = None
        if not torch.compiler.is_compiling() and isinstance(offset, int):
            lq, lk = (max(x.shape[-2], 1) for x in (query, key))
            used = used_by_deberta(
                **module.sizes, lowest=1 - lq - offset, highest=lk - 1 - offset
            )
        pos_query, pos_key = project(
            module,
            module.rel_embeddings,
            [
                Projection(weights.query, biases.query),
                Projection(weights.key, biases.key),
            ],
            None if used is None else used.rows,
        )
        terms: Terms = {
            "rel_key": split_heads(pos_key, module.num_heads),
            "rel_query": split_heads(pos_query, module.num_heads),
            "buckets": deberta_buckets(**module.sizes).to(query.device),
            # The scores are sums of three products.
            "scale": (3 * module.head_dim) ** -0.5,
        }
        if used is not None:
            terms.update(used.terms(terms["buckets"]))
        return terms


class Projections(NamedTuple):
    """Weights or biases of the projections of a module."""

    query: Tensor | None
    key: Tensor | None
    value: Tensor | None


def projections(module: Any) -> tuple[Projections, Projections]:
    """Return the weights and the biases, which may be packed in one parameter.

    A packed one has the rows of query, key and value in this order.
    """
    if module.in_proj_weight is not None:
        weights = Projections(*module.in_proj_weight.chunk(3))
    else:
        weights = Projections(
            module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
        )
    biases = Projections(None, None, None)
    if module.in_proj_bias is not None:
        biases = Projections(*module.in_proj_bias.chunk(3))
    return weights, biases


# ---- biases, and rotations ----------------------------------------------------------


@constant_result
def t5_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """Return the row of T5's weight for each distance, the past first."""
    return _cached_buckets(
        recipes.t5,
        num_buckets,
        num_buckets=num_buckets,
        bidirectional=bidirectional,
        max_distance=max_distance,
    )


class T5(Position):
    def start(self, module: Any, options: Options) -> None:
        shape = module.sizes["num_buckets"], module.num_heads
        module.rel_bias = normal_parameter(shape, module.embed_dim**-0.5, **options)
        # This call raises if anything is wrong with the sizes.
        t5_buckets(**module.sizes)

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        buckets = t5_buckets(**module.sizes).to(query.device)
        return {"rel_bias": module.rel_bias.T, "buckets": buckets}


class DistanceBias(Position):
    """Base of the positions whose bias is a function of the distance."""

    has_one_offset = True
    limit = layers.ALiBi._limit

    def arguments(self, module: Any, query: Tensor, key: Tensor, offset: int) -> Terms:
        # The bias has the distances 0 to length - 1 on both sides, as far as the last
        # query is from key 0, or the last key from query 0.
        length = max(query.shape[-2] + offset, key.shape[-2] - offset, 1)
        # Numbers of 16 bits would be inexact, and so would a bias that autocast rounds.
        wide = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast("cpu", enabled=False):
            return {"rel_bias": self.bias(module, length, query.device, wide)}

    def bias(
        self, module: Any, length: int, device: torch.device, dtype: torch.dtype
    ) -> Tensor:
        """Return the bias (H, 2 length - 1) of a module."""
        raise NotImplementedError


class ALiBi(DistanceBias):
    def bias(
        self, module: Any, length: int, device: torch.device, dtype: torch.dtype
    ) -> Tensor:
        slopes = functions.alibi_slopes(module.num_heads, dtype=dtype)
        return functions.alibi_bias(slopes.to(device), length)


class Kerple(DistanceBias):
    def start(self, module: Any, options: Options) -> None:
        heads = (module.num_heads,)
        module.r1 = uniform_parameter(heads, 0.0, 2.0, **options)
        module.r2 = uniform_parameter(heads, 0.0, 1.0, **options)

    def bias(
        self, module: Any, length: int, device: torch.device, dtype: torch.dtype
    ) -> Tensor:
        r1, r2 = (used_by_kerple(x.to(dtype)) for x in (module.r1, module.r2))
        return functions.kerple_bias(r1, r2, length)


def used_by_kerple(parameter: Tensor) -> Tensor:
    """Return r1 or r2 with small values raised, and the gradient of the result."""
    stored = parameter.detach()
    # The difference is 0, and has the gradient that `clamp` would drop.
    return stored.clamp(min=KERPLE_LEAST) + (parameter - stored)


class Rotary(Position):
    has_one_offset = True
    limit = layers.Rotary._limit

    def start(self, module: Any, options: Options) -> None:
        if module.head_dim % 2:
            raise ValueError(
                f"num_heads: got {module.num_heads}, heads of "
                f"{amount(module.head_dim, 'column')}, with position='rope'; expected "
                "an even number of columns"
            )
        module.base = float(module.sizes["base"])

    def rotate(self, module: Any, x: Tensor, offset: int = 0) -> Tensor:
        return functions.apply_rotary(x, base=module.base, offset=offset)


class FIRE(Position):
    function = staticmethod(functions.fire_attention)
    parameter_names = "w1", "b1", "w2", "b2", "c", "threshold"

    def start(self, module: Any, options: Options) -> None:
        width = module.sizes["width"]
        # Two layers of torch give the initial values of the network.
        hidden = nn.Linear(1, width, **options)
        output = nn.Linear(width, module.num_heads, **options)
        # Attention takes w1 as a vector, and torch's weight is a matrix of one column.
        module.w1 = nn.Parameter(hidden.weight.detach()[:, 0].clone())
        module.b1 = hidden.bias
        module.w2 = output.weight
        module.b2 = output.bias
        module.c = nn.Parameter(torch.tensor(0.1, **options))
        start = float(module.sizes["max_distance"])
        module.threshold = nn.Parameter(torch.tensor(start, **options))


#: The position of each name, which all modules of the scheme share.
SCHEMES: dict[str | None, Position] = {
    None: Nothing(),
    "shaw": Shaw(),
    "music": Music(),
    "transformer_xl": TransformerXL(),
    "t5": T5(),
    "alibi": ALiBi(),
    "kerple": Kerple(),
    "rope": Rotary(),
    "fire": FIRE(),
    "deberta": DeBERTa(),
}


def sizes_of(position: str | None, arguments: Mapping[str, Any]) -> Sizes:
    """Return the sizes of a position: arguments that are not None, else its defaults.

    `arguments` has the sizes of all positions by name. One of another position has to
    be None.
    """
    schemes = [name for name in SCHEMES if name is not None]
    defaults_of = {scheme: default_sizes(scheme) for scheme in schemes}
    defaults: dict[str, Any] = {}
    if position is not None:
        defaults = defaults_of[as_scheme("position", position, schemes)]
    for name, value in arguments.items():
        if value is not None and name not in defaults:
            owners = [scheme for scheme in schemes if name in defaults_of[scheme]]
            raise ValueError(
                f"{name}: got {value!r} with position={position!r}; expected "
                f"None, as it belongs to {', '.join(map(repr, owners))}"
            )
    sizes: Sizes = {}
    for name, default in defaults.items():
        # The defaults are those of the layers of `relpos.nn`, which have arguments that
        # the module does not take.
        if name not in arguments:
            continue
        value = arguments[name]
        if value is None:
            value = default
        sizes[name] = value  # type: ignore[literal-required]
    as_settings(sizes)  # raises for a size that is not valid
    return sizes
