"""Costs of an attention with relative positions, before it is run.

`plan` has the formulas: 4 D flops for each pair, and for each table 2 D for each pair
or, where a query meets the table itself, for each row. The bytes of relpos are those
that its kernels' own planning counts, from arrays of the call's shapes without memory;
what Python makes for the kernel is added.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from relpos import _core
from relpos._attention.operands import OPERANDS, READ_SHORT, TABLES
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_flag,
    as_float_dtype,
    as_int,
    check_bytes,
)
from relpos._schemes import FIRE_WIDTH, Scheme
from relpos._settings import choose_num_threads, kernels
from relpos._suggestions import scheme_of
from relpos._text import amount, html_table, table_lines

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from relpos._schemes import SchemeName

__all__ = ["Plan", "plan"]

#: Products with a table of vectors in the backward: its part of the scores again (or of
#: the weights' gradient), the gradients of the token that it meets and of itself.
_PRODUCTS = {"rel_key": 3, "rel_query": 3, "rel_value": 2}
#: Arguments that are integers: the edges of a graph.
_EDGES = ("indptr", "indices", "labels")


def _size(number: int) -> str:
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
        Bytes of the L^2 D numbers of the Music Transformer, and of the L D instead.
    backward : Formulation
        relpos's gradients of all floating inputs: bytes beyond inputs, output,
        gradients and what the `AttentionContext` keeps, and flops. The output that is
        kept in float32, besides one of 16 bits, is counted here.

    Examples
    --------
    >>> import relpos
    >>> costs = relpos.plan(1, 8, 512, 512, 64, scheme="alibi")
    >>> costs.output, [form.name for form in costs.formulations]
    (1048576, ['L x L', 'relpos'])
    >>> costs.backward.flops / costs.relpos.flops
    2.5
    """

    formulations: tuple[Formulation, ...]
    inputs: int
    output: int
    increase: float
    pair_vectors: int
    pair_vectors_per_head: int
    table: int
    backward: Formulation

    @property
    def relpos(self) -> Formulation:
        """The formulation of this package's kernels."""
        return self.formulations[-1]

    def _parts(self) -> tuple[list[str], list[list[str]], list[str]]:
        forms = (*self.formulations, self.backward)
        rows = [[f.name, _size(f.bytes), f"{f.flops:.3g}"] for f in forms]
        header = ["", "memory beyond inputs and output", "flops"]
        terms = [f"inputs {_size(self.inputs)}, output {_size(self.output)}"]
        if self.pair_vectors:
            terms += [
                f"a vector for each pair: {_size(self.pair_vectors)} if heads share "
                f"it, {_size(self.pair_vectors_per_head)} if not",
                f"a table for each head: {_size(self.table)}",
                f"keys / (sequences * heads) = {self.increase:.3g} (Shaw et al.)",
            ]
        return header, rows, terms

    def __repr__(self) -> str:
        header, rows, terms = self._parts()
        return "\n".join([*table_lines(header, rows), *terms])

    def _repr_html_(self) -> str:
        return html_table(*self._parts())


def plan(
    batch: int,
    heads: int,
    query_length: int,
    key_length: int,
    head_dim: int,
    *,
    scheme: SchemeName,
    is_causal: bool = False,
    dtype: DTypeLike = np.float32,
    max_relative_position: int = 16,
    num_threads: int | None = None,
) -> Plan:
    r"""Tell what a scheme costs in each formulation, without running it.

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

    X is Lq R for tables of at most 1024 rows (backward: 256) and half of Lk + 64, else
    N. Where buckets list rows, X is N at most. The table `rel_query` meets keys: X is
    N, and Lk replaces Lq. Where nothing is added to the scores, one number is stored
    for each pair, not two. The backward takes 10 B H N D flops, and 6 B H X D (the
    table of values 4) for each table.

    Parameters
    ----------
    batch, heads, query_length, key_length, head_dim : int
        Sizes of query (batch, heads, query_length, head_dim) and of key and value
        (batch, heads, key_length, head_dim); each at least 1. Where the lengths differ
        the last query is at the last key.
    scheme : str
        It names a function: "attention" (no positions), "shaw_attention",
        "relative_global_attention", "transformer_xl_attention", "fire_attention" (a
        network of 32 units) or "graph_attention". Or it names arguments of `attention`:
        "shaw_keys", "bert", "deberta", "rel_bias", "alibi", "t5", "kerple",
        "forgetting", "sinks", "softcap", "position_query" (of 16 columns, as the
        table). Or it names an encoding, after which plain attention is computed:
        "sinusoidal", "naive", "learned", "rotary", "conv_encoding". The heads share
        tables of vectors. Tables that are not clipped have a row for each offset that
        occurs. Other names of a scheme, such as "shaw" or "rope", are accepted.
    is_causal : bool, default False
        Whether keys after the query are hidden. A graph tells that itself, and
        "forgetting" always hides them.
    dtype : {float32, float64, float16, bfloat16}
        The dtype of all arrays; "bfloat16" is known without ml_dtypes. 16 bits are
        computed in float32.
    max_relative_position : int, default 16
        The k of Shaw's tables, which have 2 k + 1 rows, and of DeBERTa's, which have
        2 k rows. A query of a graph has 2 k + 1 edges. Other schemes do not use it.
    num_threads : int, optional
        Default: `get_num_threads()`. Each thread has its own tile.

    Returns
    -------
    Plan
        Its `formulations` are the forms in which the scheme can be computed. They are
        "L x L x d" (a vector for each pair), "L x L" (a score for each pair), "L x R"
        (a score for each query and table row, with the softmax in pieces) and, always
        last, "relpos".

    Raises
    ------
    ValueError
        `scheme` is not known, or an array of the call would have more bytes than memory
        can address.
    MemoryError
        The kernels would need more memory than can be addressed.

    See Also
    --------
    relpos.plot.plan_bars, relpos.plot.costs_over_length : Draw it.

    Notes
    -----
    The kernels' memory depends on the number of threads and on the CPU's instruction
    set, which decides the size of a tile.

    If the scheme has tables of vectors, the last lines of a printed plan have numbers
    of the papers: the bytes of a vector for each pair [1]_, if all heads and sequences
    share it and if each head has its own; the bytes of a table for each head [2]_; and
    n / (b h) for n keys, b sequences and h heads [1]_.

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
    >>> costs.backward.bytes < 100e6
    True
    """
    B = as_int("batch", batch, 1, POSITION_LIMIT)
    H = as_int("heads", heads, 1, POSITION_LIMIT)
    Lq = as_int("query_length", query_length, 1, POSITION_LIMIT)
    Lk = as_int("key_length", key_length, 1, POSITION_LIMIT)
    D = as_int("head_dim", head_dim, 1, POSITION_LIMIT)
    row = scheme_of("scheme", scheme)
    causal = as_flag("is_causal", is_causal) or row.hides_future
    least = 1 if row.name == "deberta" else 0  # whose table has 2 k rows
    k = as_int("max_relative_position", max_relative_position, least, POSITION_LIMIT)
    number = as_float_dtype(dtype, is_stored=True)
    threads = choose_num_threads(num_threads)
    return _plan(Sizes(B, H, Lq, Lk, D, k, row, causal, number, threads))


def _plan(s: Sizes) -> Plan:
    heads, size = s.B * s.H, s.dtype.itemsize
    width = s.columns * size if s.tables else 0  # bytes of a vector
    vectors = s.Lq * s.Lk * width
    # Products of tokens with rows of tables: with few rows each token meets each row
    # once, else one row a pair. The backward calls fewer rows few.
    products = sum(s.met(name, 1024) for name in s.tables)
    products_back = sum(_PRODUCTS[name] * s.met(name, 256) for name in s.tables)
    flops = heads * (4 * s.pairs * s.D + 2 * products * s.columns)
    # Five products of content: scores again, and gradients of weights and tokens.
    flops_back = heads * (10 * s.pairs * s.D + 2 * products_back * s.columns)
    arguments = sum(
        math.prod(shape) * (8 if name in _EDGES else size)
        for name, shape in s.arguments.items()
    )
    return Plan(
        formulations=(*_stored(s), Formulation("relpos", _held(s, False), flops)),
        inputs=heads * (s.Lq + 2 * s.Lk) * s.D * size + arguments,
        output=heads * s.Lq * s.D * size,
        increase=s.Lk / heads,
        pair_vectors=vectors,
        pair_vectors_per_head=s.H * vectors,
        table=s.H * s.R * width,
        backward=Formulation("relpos, backward", _held(s, True), flops_back),
    )


def _stored(s: Sizes) -> list[Formulation]:
    """The forms that store something for each pair, or for each token and row."""
    heads, size, tables = s.B * s.H, s.dtype.itemsize, s.tables
    all_pairs = heads * s.Lq * s.Lk
    # Scores, and what is added to them, where a scheme has operands.
    scores = (2 if s.scheme.operands else 1) * all_pairs * size
    content, position = 4 * all_pairs * s.D, 2 * len(tables) * all_pairs * s.columns
    rows = heads * s.R * sum(tables.values())  # each token and each row
    by_pair = Formulation("L x L", scores, content + 2 * rows * s.columns)
    if not tables:
        return [by_pair]
    vectors = len(tables) * s.Lq * s.Lk * s.columns * size
    visible = 4 * heads * s.pairs * s.D
    return [
        Formulation("L x L x d", vectors + scores, content + position),
        by_pair,
        Formulation("L x R", rows * size, visible + 2 * rows * s.columns),
    ]


# ---- bytes of a call, counted before there is one -----------------------------------


class Sizes(NamedTuple):
    """Letters of one call, and what it is a call of."""

    B: int
    H: int
    Lq: int
    Lk: int
    D: int
    k: int
    scheme: Scheme
    is_causal: bool
    dtype: np.dtype[Any]
    threads: int

    @property
    def computed(self) -> np.dtype[Any]:
        """The dtype of the computation."""
        return np.dtype(np.float32) if self.dtype.itemsize == 2 else self.dtype

    def number(self, name: str, backward: bool) -> np.dtype[Any]:
        """Return the dtype of an operand of the kernel."""
        argument = name.removeprefix("grad_")
        if "fire" in name:
            return np.dtype(np.float64)
        # Some are of the dtype of the call, which may have 16 bits: inputs that the
        # kernels read in it, the output, and gradients that are written once.
        if name in (argument, "grad_out"):
            is_stored = name in READ_SHORT or (name == "out" and not backward)
        else:
            is_stored = OPERANDS[argument].is_written and not _edges(self)
        return self.dtype if is_stored else self.computed

    @property
    def arguments(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arguments other than query, key and value."""
        shapes = shapes_of(
            self.scheme, self.H, self.Lq, self.Lk, self.D, self.k, self.is_causal
        )
        if "position_query" in shapes:  # which each batch item has
            shapes["position_query"] = (self.B, *shapes["position_query"])
        return shapes

    @property
    def tables(self) -> dict[str, int]:
        """Tables of vectors, and how many tokens of a head meet each of them."""
        lengths = {"rel_key": self.Lq, "rel_query": self.Lk, "rel_value": self.Lq}
        return {name: lengths[name] for name in self.scheme.operands if name in lengths}

    @property
    def columns(self) -> int:
        """Columns of those tables."""
        return self.scheme.own_width or self.D

    @property
    def R(self) -> int:
        """Rows of a table."""
        return self.scheme.rows(self.Lq, self.Lk, self.k, self.is_causal)

    @property
    def listed(self) -> int:
        """Relative positions of pairs whose rows buckets list; 0 without buckets."""
        if self.scheme.listed is None:
            return 0
        return self.scheme.listed(self.Lq, self.Lk, self.k, self.is_causal)

    @property
    def pairs(self) -> int:
        """Pairs of one head that may attend."""
        if "indices" in self.arguments:
            return math.prod(self.arguments["indices"])
        if not self.is_causal:
            return self.Lq * self.Lk
        hidden = max(self.Lk - self.Lq, 0)  # keys that come before query 0's own
        return (self.Lk * (self.Lk + 1) - hidden * (hidden + 1)) // 2

    def met(self, name: str, most_rows: int) -> int:
        """Products of a head's tokens with rows of a table (choose_path, packed.h)."""
        has_few_rows = min(most_rows, self.Lk // 2 + 32) >= self.R
        is_graph = "indices" in self.arguments
        if has_few_rows and name != "rel_query" and not is_graph and not self.listed:
            return self.Lq * self.R
        return self.pairs


def _edges(s: Sizes) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in s.arguments.items() if name in _EDGES}


def _held(s: Sizes, backward: bool) -> int:
    """Bytes that a call holds at a time, by the kernel's own planning and in Python."""
    operands = _operands(s, backward)
    try:
        counted: int = kernels().attention_bytes(operands, backward)
    except MemoryError:
        raise MemoryError(
            f"{s.scheme.name}: {s.B} x {amount(s.H, 'head')} of "
            f"{amount(s.Lq, 'query')} and {amount(s.Lk, 'key')} with head_dim {s.D} "
            "would take more memory than there can be"
        ) from None
    return counted + _made(s, operands, backward)


def _made(s: Sizes, operands: dict[str, Any], backward: bool) -> int:
    """Count bytes that Python makes: FIRE's tables, and copies of integers.

    The context keeps those of the forward, so the backward adds its own alone.
    """
    count = 0
    for name, array in operands.items():
        # an operand of FIRE is made for the forward if it has a role there
        if "fire" in name and bool(_core.operands[name][1]) != backward:
            count += array.nbytes
    if s.computed != s.dtype:
        count += _widened(s, operands, backward)
    count += s.listed * 8
    if not backward:
        # Copies of integers: of each edge, and of the offset of each batch item.
        for shape in _edges(s).values():
            count += math.prod(shape) * 8
        if s.Lq != s.Lk:
            count += s.B * 8
    return count


def _widened(s: Sizes, operands: dict[str, Any], backward: bool) -> int:
    """Count bytes in float32 of operands that no kernel reads in 16 bits."""
    count = 0
    if backward:
        # A gradient is counted by its own dtype elsewhere: here is what its sum, and
        # the output that is kept, have more.
        more = s.computed.itemsize - s.dtype.itemsize
        for name, array in operands.items():
            if name.startswith("grad_") and array.dtype == s.computed:
                count += array.size * more
        return count + int(operands["out"].nbytes)
    for name, shape in s.arguments.items():
        if name in operands and name not in READ_SHORT and name not in _EDGES:
            count += math.prod(shape) * s.computed.itemsize
    return count


def shapes_of(
    scheme: Scheme, heads: int, lq: int, lk: int, dim: int, k: int, is_causal: bool
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a scheme's operands.

    Tables of vectors are shared by the heads, and each query of a graph has as many
    edges as there are rows.
    """
    rows = scheme.rows(lq, lk, k, is_causal)
    lengths = {"H": heads, "q": lq, "k": lk, "t": lk, "D": dim, "V": dim}
    lengths["P"] = scheme.own_width or dim
    shapes = {name: row.shape(lengths, rows) for name, row in OPERANDS.items()}
    shapes |= {name: shapes[name][-2:] for name in TABLES if TABLES[name].axes == 3}
    shapes["sinks"] = (heads,)  # one for all queries
    shapes |= {
        "w1": (FIRE_WIDTH,),
        "b1": (FIRE_WIDTH,),
        "w2": (heads, FIRE_WIDTH),
        "b2": (heads,),
        "c": (),
        "threshold": (),
        "indptr": (lq + 1,),
        "indices": (lq * rows,),
        "labels": (lq * rows,),  # of edges: no other scheme has labels
    }
    return {name: shapes[name] for name in scheme.operands}


def _operands(s: Sizes, backward: bool) -> dict[str, Any]:
    """Operands of the kernel by its own table of shapes: nothing of them is read.

    The queries have no offset, whose place the window takes.
    """
    arguments = s.arguments
    names = {*s.scheme.operands} - {*_EDGES}
    if "w1" in names:  # the kernel has FIRE's lines, not its parameters
        names = {name for name in _core.operands if "fire" in name}
    gradients = {f"grad_{name}" for name in names | {"out", "query", "key", "value"}}
    operands: dict[str, Any] = {"scale": 1.0, "num_threads": s.threads}
    for name, (letters, in_forward, in_backward, *_) in _core.operands.items():
        role = in_backward if backward else in_forward
        is_used = name in names or name in gradients
        if not (role.startswith("required") or (role and is_used)):
            continue
        lengths = [_length(s, letter) for letter in letters if letter != "1"]
        shape: tuple[int, ...] = (s.B, *lengths)
        # Leading axes that the array does not have, as all items or heads share it.
        absent = 1 if "fire" in name else 0
        argument = name.removeprefix("grad_")
        if argument in arguments:
            absent = 1 + OPERANDS[argument].axes - len(arguments[argument])
            if argument == "sinks":
                shape, absent = arguments[argument], 0
        number = s.number(name, backward)
        operands[name] = _unread(name, shape[absent:], number)
    for name, shape in _edges(s).items():
        key = "edge_labels" if name == "labels" else name
        operands[key] = _unread(name, shape, np.dtype(np.int64))
    if s.listed:
        operands["buckets"] = _unread("buckets", (s.listed,), np.dtype(np.int64))
    operands |= {n: x for n, x in s.scheme.settings if n != "is_causal"}
    if s.is_causal and not _edges(s):
        operands["window_right"] = s.Lk - s.Lq
    return operands


def _length(s: Sizes, letter: str) -> int:
    """Return the length of a letter of csrc/python/rows.h."""
    if letter.isdigit():
        return int(letter)
    ranges = FIRE_WIDTH + 1  # a knot for each unit
    lengths = {
        "H": s.H,
        "K": s.H,
        "q": s.Lq,
        "k": s.Lk,
        "D": s.D,
        "V": s.D,
        "P": s.columns,
        "t": s.Lk,
        "o": s.Lq + s.Lk,
        "F": ranges,
        "G": ranges + 1,
    }
    return lengths.get(letter, s.R)  # others are rows of tables


def _unread(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array without memory behind it: not to be read."""
    check_bytes(name, shape, dtype)
    strides = [
        dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))
    ]
    return as_strided(np.empty(1, dtype), shape, strides)
