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

relpos's bytes are counted by its kernels' own planning: see counted.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relpos._attention.counted import EDGES, Sizes, held
from relpos._checks import (
    POSITION_LIMIT,
    as_choice,
    as_flag,
    as_float_dtype,
    as_int,
)
from relpos._schemes import SCHEMES, Scheme
from relpos._settings import choose_num_threads
from relpos._text import html_table, table_lines

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

#: Products with a table of vectors in the backward: its part of the scores again (or of
#: the weights' gradient), the gradients of the token that it meets and of itself.
_PRODUCTS = {"rel_key": 3, "rel_query": 3, "rel_value": 2}


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
    backward : Formulation
        relpos's gradients of all floating inputs: bytes beyond inputs, output,
        gradients and what the `AttentionContext` keeps, and flops.

    See Also
    --------
    plan : Returns it, and has the formulas.

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
        """What this package's kernels need.

        See Also
        --------
        plan : Explains the formulations.
        """
        return self.formulations[-1]

    def _parts(self) -> tuple[list[str], list[list[str]], list[str]]:
        """Header, rows, and what stands below them."""
        forms = (*self.formulations, self.backward)
        rows = [[f.name, _size(f.bytes), f"{f.flops:.3g}"] for f in forms]
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

    X is Lq R for tables of at most 1024 rows and half of Lk + 64, else N; for the table
    of the keys always N, and Lq is Lk elsewhere. A number is 4 or 8 bytes; where
    nothing is added to the scores, one is stored for each pair, not two. The backward
    takes 10 B H N D flops, and 6 B H X D (the table of values 4) for each table.

    Parameters
    ----------
    batch, heads, query_length, key_length, head_dim : int
        Sizes of query (batch, heads, query_length, head_dim) and of key and value
        (batch, heads, key_length, head_dim); each at least 1. Where the lengths differ
        the last query is at the last key.
    scheme : str
        The name of a function: "attention" (no positions), "shaw_attention",
        "relative_global_attention", "transformer_xl_attention", "fire_attention" (a
        network of 32 units) or "graph_attention". Or of arguments of `attention`:
        "shaw_keys", "bert", "deberta", "rel_bias" (one number for each head and
        offset), "alibi", "t5", "kerple", "forgetting", "sinks", "softcap",
        "position_query" (of 16 columns, as the table). Or of an encoding,
        which leaves a plain attention to be done: "sinusoidal", "naive", "learned",
        "rotary", "conv_encoding". Tables of vectors are shared by the heads:
        "shaw_attention" has one for keys and one for values, "bert" and "deberta" one
        for queries and one for keys; where nothing clips, they have a row for each
        offset that occurs. Other names that people use are known as well: "plain",
        "shaw", "music", "transformer_xl", "bias", "fire", "graph".
    is_causal : bool, default False
        Whether keys after the query are hidden. A graph tells that itself, and
        "forgetting" always hides them.
    dtype : {float32, float64}
    max_relative_position : int, default 16
        Shaw's k, for tables of 2 k + 1 rows, and DeBERTa's, of 2 k; a query of a graph
        has 2 k + 1 edges. Other schemes have none.
    num_threads : int, optional
        Default `get_num_threads()`; each thread has its own tile.

    Returns
    -------
    Plan
        Its `formulations` are those that the scheme has of "L x L x d" (a vector for
        each pair), "L x L" (a score for each pair), "L x R" (a score for each query
        and table row, softmax in pieces) and, always last and also `Plan.relpos`,
        "relpos". `Plan.backward` is relpos's backward. See `Plan` for the terms of the
        papers.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If a size is less than 1, `scheme` is not known, or an array of the call would
        have more bytes than memory can address.
    MemoryError
        If what the kernels hold would.

    See Also
    --------
    Plan : What it returns.
    attention : What it counts.
    AttentionContext.backward : What `Plan.backward` counts.
    relpos.plot.plan_bars, relpos.plot.costs_over_length : Draw it.
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
    >>> costs.backward.bytes < 100e6
    True
    """
    names = ("batch", "heads", "query_length", "key_length", "head_dim")
    given = (batch, heads, query_length, key_length, head_dim)
    B, H, Lq, Lk, D = (
        as_int(name, size, 1, POSITION_LIMIT)
        for name, size in zip(names, given, strict=True)
    )
    known = _scheme(scheme)
    causal = as_flag("is_causal", is_causal) or known.hides_future
    k = as_int("max_relative_position", max_relative_position, 0, POSITION_LIMIT)
    number = as_float_dtype(dtype)
    threads = choose_num_threads(num_threads)
    return _plan(Sizes(B, H, Lq, Lk, D, k, known, causal, number, threads))


def _scheme(name: object) -> Scheme:
    """The scheme of a name or synonym; a message has the names alone."""
    named = {scheme.name: scheme for scheme in SCHEMES}
    called = {other: scheme.name for scheme in SCHEMES for other in scheme.synonyms}
    if isinstance(name, str):
        name = called.get(name, name)
    return named[as_choice("scheme", name, tuple(named))]


def _plan(s: Sizes) -> Plan:
    heads, size, tables = s.B * s.H, s.dtype.itemsize, len(s.tables)
    vectors = s.Lq * s.Lk * s.columns * size
    return Plan(
        formulations=(*_stored(s), Formulation("relpos", held(s, False), _flops(s))),
        inputs=heads * (s.Lq + 2 * s.Lk) * s.D * size + _argument_bytes(s),
        output=heads * s.Lq * s.D * size,
        increase=s.Lk / heads,
        pair_vectors=vectors if tables else 0,
        pair_vectors_per_head=s.H * vectors if tables else 0,
        table=s.H * s.R * s.columns * size if tables else 0,
        backward=Formulation("relpos, backward", held(s, True), _backward_flops(s)),
    )


def _stored(s: Sizes) -> list[Formulation]:
    """The forms that store something for each pair, or for each token and row."""
    heads, size, tables = s.B * s.H, s.dtype.itemsize, s.tables
    all_pairs = heads * s.Lq * s.Lk
    scores = all_pairs * size if not s.scheme.operands else 2 * all_pairs * size
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


def _flops(s: Sizes) -> int:
    met = sum(s.met(name, 1024) for name in s.tables)
    return s.B * s.H * (4 * s.pairs * s.D + 2 * met * s.columns)


def _backward_flops(s: Sizes) -> int:
    """Five products of content: scores again, and gradients of weights and tokens."""
    met = sum(_PRODUCTS[name] * s.met(name, 256) for name in s.tables)
    return s.B * s.H * (10 * s.pairs * s.D + 2 * met * s.columns)


def _argument_bytes(s: Sizes) -> int:
    """Tables, networks and edges as they come in."""
    return sum(
        math.prod(shape) * (8 if name in EDGES else s.dtype.itemsize)
        for name, shape in s.arguments.items()
    )
