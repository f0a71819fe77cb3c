"""What an attention with relative positions costs, before it is run.

Four formulations of the same result, for B sequences, H heads, Lq queries, Lk keys,
head_dim D and tables of R rows (T tables: Shaw has one for keys and one for values):

    L x L x d   one vector for each pair, gathered            T Lq Lk D + 2 B H Lq Lk
    L x L       scores and position scores of each pair       2 B H Lq Lk
    L x R       scores of each query and table row only       T B H Lq R
    relpos      packed keys and tables, a tile for a thread   counted by its planning

numbers beyond inputs and output. Flops are those of the matrix products, two for a
multiply-add: 4 D for each pair, and for each table 2 D for each pair or, where a query
meets the table itself, for each row. The first two forms compute hidden pairs as well.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from relpos._catalogue.schemes import SCHEMES, Scheme
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_choice,
    as_flag,
    as_float_dtype,
    as_int,
)
from relpos._settings import choose_num_threads, kernels
from relpos._text import html_table, table_lines

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

#: Arguments of `attention` whose costs are known, tables of vectors first.
_VECTORS = ("rel_key", "rel_value")
_KNOWN = {*_VECTORS, "rel_bias", "pos_bias_u", "pos_bias_v"}
_SCHEMES = tuple(
    scheme
    for scheme in SCHEMES
    if scheme.operands is not None and _KNOWN.issuperset(scheme.operands)
)


def _size(number: int) -> str:
    """Bytes as people read them."""
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    thousands = min((len(str(number)) - 1) // 3, len(units) - 1)
    return f"{number / 1000**thousands:.4g} {units[thousands]}"


class Formulation(NamedTuple):
    """One way to compute it: its name, bytes beyond inputs and output, and flops."""

    name: str
    bytes: int
    flops: int


class Plan(NamedTuple):
    """Costs of the formulations; shows itself as a table.

    Attributes
    ----------
    formulations : tuple of Formulation
        Each ``(name, bytes, flops)``; bytes are those beyond inputs and output. The
        last one, also the property `relpos`, is what this package's kernels need.
    inputs, output : int
        Bytes.
    increase : float
        Shaw's n / (b h), to which the growth of memory by the vectors of pairs is
        proportional when all heads and sequences share them.
    pair_vectors : int
        Bytes of those n^2 d numbers.
    pair_vectors_per_head, table : int
        Bytes of the L^2 D numbers that the Music Transformer counts, D over all heads,
        and of the L D that it has instead.

    See Also
    --------
    plan : Returns it, and has the formulas.

    Examples
    --------
    >>> import relpos
    >>> costs = relpos.plan(1, 8, 512, 512, 64, scheme="alibi")
    >>> costs.output, [form.name for form in costs.formulations]
    (1048576, ['L x L', 'relpos'])
    """

    formulations: tuple[Formulation, ...]
    inputs: int
    output: int
    increase: float
    pair_vectors: int
    pair_vectors_per_head: int
    table: int

    @property
    def relpos(self) -> Formulation:
        """What this package's kernels need.

        See Also
        --------
        plan : Explains the formulations.
        """
        return self.formulations[-1]

    def _parts(self) -> tuple[list[str], list[list[str]], list[str]]:
        """Header, rows, and what stands below them."""
        rows = [[f.name, _size(f.bytes), f"{f.flops:.3g}"] for f in self.formulations]
        header = ["", "memory beyond inputs and output", "flops"]
        terms = [
            f"inputs {_size(self.inputs)}, output {_size(self.output)}",
            f"vectors of pairs: {_size(self.pair_vectors)} shared by all, "
            f"{_size(self.pair_vectors_per_head)} per head; "
            f"table per head: {_size(self.table)}",
            f"n / (b h) = {self.increase:.3g}",
        ]
        return header, rows, terms

    def __repr__(self) -> str:
        header, rows, terms = self._parts()
        return "\n".join([*table_lines(header, rows), *terms])

    def _repr_html_(self) -> str:
        return html_table(*self._parts())


class _Shape(NamedTuple):
    """Letters of one call, with the path that its tables take through the kernel."""

    B: int
    H: int
    Lq: int
    Lk: int
    D: int
    R: int
    operands: tuple[str, ...]
    is_causal: bool
    itemsize: int
    threads: int

    @property
    def tables(self) -> int:
        """Tables of vectors."""
        return sum(name in _VECTORS for name in self.operands)

    @property
    def pairs(self) -> int:
        """Pairs of one head that may attend."""
        if not self.is_causal:
            return self.Lq * self.Lk
        hidden = max(self.Lk - self.Lq, 0)  # keys that come before query 0's own
        return (self.Lk * (self.Lk + 1) - hidden * (hidden + 1)) // 2

    @property
    def by_rows(self) -> bool:
        """Whether a query meets all rows of its tables: choose_path of the kernel."""
        return min(1024, (self.Lq + self.Lk) // 8) >= self.R


def plan(
    batch: int,
    heads: int,
    query_length: int,
    key_length: int,
    head_dim: int,
    *,
    scheme: str,
    is_causal: bool = False,
    dtype: DTypeLike = np.float32,
    max_relative_position: int = 16,
    num_threads: int | None = None,
) -> Plan:
    r"""Tell what the forward of a scheme costs in each formulation, without running it.

    Numbers stored beyond inputs and output, and flops of the matrix products, for B
    `batch`, H `heads`, T tables of R rows and N pairs that may attend:

    .. math::

        \text{L x L x d}: \quad & T L_q L_k D + 2 B H L_q L_k, \quad
            (4 + 2 T) \, B H L_q L_k D \\
        \text{L x L}: \quad & 2 B H L_q L_k, \quad
            4 B H L_q L_k D + 2 T \, B H L_q R D \\
        \text{L x R}: \quad & T \, B H L_q R, \quad
            4 B H N D + 2 T \, B H L_q R D \\
        \text{relpos}: \quad & \text{packed operands and a tile for each thread}, \quad
            4 B H N D + 2 T \, B H X D

    X is Lq R for tables of at most 1024 rows and an eighth of Lq + Lk, else N. A number
    is 4 or 8 bytes; "attention" stores one score for each pair, not two.

    Parameters
    ----------
    batch, heads, query_length, key_length, head_dim : int
        Sizes of query (batch, heads, query_length, head_dim) and of key and value
        (batch, heads, key_length, head_dim); each at least 1. Where the lengths differ
        the last query is at the last key.
    scheme : str
        The name of a function: "attention" (no positions, and what absolute and rotary
        encodings leave to be done), "shaw_attention", "relative_global_attention" or
        "transformer_xl_attention". Or of arguments of `attention`: "rotary",
        "shaw_keys", "rel_bias" (one number for each head and offset), "alibi", "t5",
        "kerple". Tables of vectors are shared by the heads: "shaw_attention" has one
        for keys and one for values, "relative_global_attention" and
        "transformer_xl_attention" a row for each offset that occurs. Other names
        that people use are known as well: "plain", "shaw", "music",
        "transformer_xl", "bias".
    is_causal : bool, default False
        Whether keys after the query are hidden.
    dtype : {float32, float64}
    max_relative_position : int, default 16
        Shaw's k; other schemes have none.
    num_threads : int, optional
        Default `get_num_threads()`; each thread has its own tile.

    Returns
    -------
    Plan
        Its `formulations` are those that the scheme has of "L x L x d" (a vector for
        each pair), "L x L" (a score for each pair), "L x R" (a score for each query
        and table row, softmax in pieces) and, always last and also `Plan.relpos`,
        "relpos". See `Plan` for the terms of the papers.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If a size is less than 1, or `scheme` is not known.

    See Also
    --------
    Plan : What it returns.
    attention : What it counts.
    show_config : The threads and the instruction set of a call.

    Notes
    -----
    The kernels' memory depends on the number of threads and on the CPU's instruction
    set, which decides the size of a tile.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, section 3.3.
    .. [2] Huang et al., "Music Transformer", 2018, arXiv:1809.04281, section 3.4 and
       table 1.

    Examples
    --------
    >>> import relpos
    >>> scheme = "relative_global_attention"
    >>> costs = relpos.plan(1, 8, 2048, 2048, 64, scheme=scheme, is_causal=True)
    >>> costs.pair_vectors_per_head, costs.table  # L^2 D and L D
    (8589934592, 4194304)
    >>> [form.name for form in costs.formulations]
    ['L x L x d', 'L x L', 'L x R', 'relpos']
    >>> costs.relpos.bytes < 30e6 < costs.formulations[1].bytes
    True
    """
    names = ("batch", "heads", "query_length", "key_length", "head_dim")
    given = (batch, heads, query_length, key_length, head_dim)
    B, H, Lq, Lk, D = (
        as_int(name, size, 1, POSITION_LIMIT)
        for name, size in zip(names, given, strict=True)
    )
    known = _scheme(scheme)
    causal = as_flag("is_causal", is_causal)
    k = as_int("max_relative_position", max_relative_position, 0, POSITION_LIMIT)
    R = known.rows(Lq, Lk, k, causal)
    itemsize = as_float_dtype(dtype).itemsize
    threads = choose_num_threads(num_threads)
    operands = known.operands or ()
    return _plan(_Shape(B, H, Lq, Lk, D, R, operands, causal, itemsize, threads))


def _scheme(name: object) -> Scheme:
    """The scheme of a name or synonym; a message has the names alone."""
    named = {scheme.name: scheme for scheme in _SCHEMES}
    called = {other: scheme.name for scheme in _SCHEMES for other in scheme.synonyms}
    if isinstance(name, str):
        name = called.get(name, name)
    return named[as_choice("scheme", name, tuple(named))]


def _plan(s: _Shape) -> Plan:
    heads, tables = s.B * s.H, s.tables
    all_pairs = heads * s.Lq * s.Lk
    content, position = 4 * all_pairs * s.D, 2 * tables * all_pairs * s.D
    met = 2 * tables * heads * s.Lq * s.R * s.D  # each query and each row
    scores = all_pairs if not s.operands else 2 * all_pairs
    vectors = s.Lq * s.Lk * s.D * s.itemsize
    forms = []
    if tables:
        memory = tables * vectors + scores * s.itemsize
        forms.append(Formulation("L x L x d", memory, content + position))
    forms.append(Formulation("L x L", scores * s.itemsize, content + met))
    visible = 4 * heads * s.pairs * s.D
    if tables:
        memory = tables * heads * s.Lq * s.R * s.itemsize
        forms.append(Formulation("L x R", memory, visible + met))
    own = met if s.by_rows else 2 * tables * heads * s.pairs * s.D
    forms.append(Formulation("relpos", _workspace(s), visible + own))
    return Plan(
        formulations=tuple(forms),
        inputs=heads * (s.Lq + 2 * s.Lk) * s.D * s.itemsize + _table_bytes(s, tables),
        output=heads * s.Lq * s.D * s.itemsize,
        increase=s.Lk / heads,
        pair_vectors=vectors if tables else 0,
        pair_vectors_per_head=s.H * vectors if tables else 0,
        table=s.H * s.R * s.D * s.itemsize if tables else 0,
    )


def _table_bytes(s: _Shape, tables: int) -> int:
    """Tables as they come in, u and v of Transformer-XL included."""
    numbers = tables * s.R * s.D
    if "rel_bias" in s.operands:
        numbers += s.H * s.R
    numbers += sum(name.startswith("pos_bias") for name in s.operands) * s.H * s.D
    return numbers * s.itemsize


def _workspace(s: _Shape) -> int:
    """Bytes that the forward holds at a time, counted by the kernel's own planning."""
    dtype = np.dtype(f"f{s.itemsize}")
    shapes = {
        "query": (s.H, s.Lq, s.D),
        "key": (s.H, s.Lk, s.D),
        "value": (s.H, s.Lk, s.D),
        "out": (s.H, s.Lq, s.D),
    }
    tables = {"rel_bias": (s.H, s.R, 1)} | dict.fromkeys(_VECTORS, (s.H, s.R, s.D))
    tables |= dict.fromkeys(("pos_bias_u", "pos_bias_v"), (s.H, 1, s.D))
    operands: dict[str, Any] = {
        name: _unread((s.B, *shape), dtype, 0) for name, shape in shapes.items()
    }
    for name in s.operands:  # no batch axis; tables of vectors are those of all heads
        shared = 2 if name in _VECTORS else 1
        operands[name] = _unread((s.B, *tables[name]), dtype, shared)
    operands |= {
        "query_offset": np.full(s.B, s.Lk - s.Lq),
        "min_relative_position": -(s.R // 2),
        "scale": 1.0,
        "num_threads": s.threads,
    }
    if s.is_causal:
        operands["window_right"] = 0
    return kernels().attention_bytes(operands, False)


def _unread(shape: tuple[int, ...], dtype: np.dtype[Any], shared: int) -> Array:
    """An array without memory behind it: not to be read. `shared` axes repeat."""
    strides = [dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(4)]
    return as_strided(np.empty(1, dtype), shape, [0] * shared + strides[shared:])
