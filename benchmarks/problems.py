"""The attention calls that the benchmarks time, and how their results are checked."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import harness
import numpy as np

import relpos
from relpos import reference
from relpos._attention.operands import OPERANDS
from relpos._catalogue.row import CLIP, arguments_of
from relpos._catalogue.rows import ROWS
from relpos._catalogue.schemes import scheme_called

HEADS, HEAD_DIM = 8, 64
DIRECTIONS = {"both": False, "causal": True}
CHECKED_ROWS = 6


@dataclass(frozen=True)
class Problem:
    """One call: a function of relpos and relpos.reference, its arrays and options.

    `table_start` is the relative position of the first row of a table that does not
    have 0 in its middle; `relpos.reference.attention_backward` asks for it.
    """

    function: str
    arrays: dict[str, np.ndarray]
    options: dict[str, Any] = field(default_factory=dict)
    table_start: int | None = None

    @property
    def pairs(self) -> int:
        """Pairs of query and key, over all heads, that are not hidden."""
        heads, queries = (int(n) for n in self.arrays["query"].shape[-3:-1])
        keys = int(self.arrays["key"].shape[-2])
        if not self.options["is_causal"]:
            return heads * queries * keys
        first = 1 + int(self.options.get("query_offset", 0))
        return heads * sum(min(first + i, keys) for i in range(queries))

    def out(self, fill: float) -> np.ndarray:
        """An array of the result's shape."""
        query, value = self.arrays["query"], self.arrays["value"]
        return np.full((*query.shape[:-1], value.shape[-1]), fill, query.dtype)

    def bind(self, threads: int) -> tuple[Callable[[], object], np.ndarray]:
        """The call, and the array it writes."""
        out = self.out(np.nan)
        function = getattr(relpos, self.function)
        return partial(
            function, **self.arrays, **self.options, num_threads=threads, out=out
        ), out

    def bind_backward(
        self, threads: int, grad_out: np.ndarray
    ) -> Callable[[], dict[str, np.ndarray]]:
        """The backward of one forward that is done here: gradients by name."""
        function = getattr(relpos, self.function)
        result = function(
            **self.arrays, **self.options, num_threads=threads, return_context=True
        )

        def call() -> dict[str, np.ndarray]:
            gradients = result.context.backward(grad_out, num_threads=threads)
            return {name: getattr(gradients, name) for name in self.arrays}

        return call

    def prepared(
        self, way: str, threads: int, what: str
    ) -> tuple[Callable[[], object], float]:
        """The checked call forward or backward, and its error."""
        call, out = self.bind(threads)
        if way == "forward":
            call()
            return call, self.check(out, what)
        grad_out = np.random.default_rng(2).standard_normal(out.shape).astype(out.dtype)
        error = self.check_backward(threads, grad_out, what)
        return self.bind_backward(threads, grad_out), error

    def rows(self) -> np.ndarray:
        """The queries to check, with the first and the last."""
        length = self.arrays["query"].shape[-2]
        return np.unique(np.linspace(0, length - 1, CHECKED_ROWS, dtype=int))

    def of_row(self, row: int) -> dict[str, Any]:
        """Arguments in float64 of a call with one of the queries."""
        exact = {name: array.astype(np.float64) for name, array in self.arrays.items()}
        exact["query"] = exact["query"][..., row : row + 1, :]
        start = self.options.get("query_offset", 0)
        return exact | self.options | {"query_offset": start + row}

    def check(self, out: np.ndarray, what: str) -> float:
        """Error of some rows of `out` by the reference."""
        expect = getattr(reference, self.function)
        rows = self.rows()
        expected = [expect(**self.of_row(int(row))) for row in rows]
        return harness.check_error(
            out[..., rows, :], np.concatenate(expected, axis=-2), what
        )

    def check_backward(self, threads: int, grad_out: np.ndarray, what: str) -> float:
        """Largest error of a gradient by the reference.

        A query's gradient depends on its own row of grad_out: those of some rows are
        compared. The others sum over all rows: they are compared, whole, for a grad_out
        that is 0 but in these rows.
        """
        rows = self.rows()
        few = np.zeros_like(grad_out)
        few[..., rows, :] = grad_out[..., rows, :]
        expected = [
            reference.attention_backward(
                grad_out[..., row : row + 1, :].astype(np.float64),
                **self.of_row(int(row)),
                min_relative_position=self.table_start,
            )
            for row in rows
        ]
        dense = self.bind_backward(threads, grad_out)()["query"][..., rows, :]
        sparse = self.bind_backward(threads, few)()
        pairs = {
            name: (sparse[name], sum_of(expected, name))
            for name in self.arrays
            if name != "query"
        }
        of_query = np.concatenate([each.query for each in expected], axis=-2)
        pairs["query"] = dense, of_query
        return max(
            harness.check_error(*pair, f"{what}, {name}", harness.GRADIENT_LIMIT)
            for name, pair in pairs.items()
        )


def sum_of(gradients: list[Any], name: str) -> np.ndarray:
    """One gradient of several calls together."""
    total: np.ndarray = np.sum([getattr(each, name) for each in gradients], axis=0)
    return total


def tokens(
    length: int,
    dtype: str,
    *,
    batch: int = 1,
    heads: int = HEADS,
    queries: int | None = None,
    dim: int = HEAD_DIM,
) -> dict[str, np.ndarray]:
    """Random query, key and value."""
    rng = np.random.default_rng(length)
    lengths = {"query": queries or length, "key": length, "value": length}
    return {
        name: rng.standard_normal((batch, heads, rows, dim)).astype(dtype)
        for name, rows in lengths.items()
    }


def table(rows: int, dtype: str, *, heads: int | None = None) -> np.ndarray:
    """A random table of relative positions, for all heads or for each."""
    shape = (rows, HEAD_DIM) if heads is None else (heads, rows, HEAD_DIM)
    return np.random.default_rng(rows).standard_normal(shape).astype(dtype)


def drawn(
    name: str, length: int, dtype: str, is_causal: bool, heads: int
) -> dict[str, np.ndarray]:
    """What a scheme has beside query, key and value, as the catalogue makes it."""
    inputs = (
        arguments_of(name, is_causal)
        if {*scheme_called(name).operands} <= {*OPERANDS}
        else next(row.inputs for row in ROWS if row.scheme == name)
    )
    made: dict[str, np.ndarray] = inputs(np.dtype(dtype), heads, length, HEAD_DIM)
    return {n: x for n, x in made.items() if n not in ("query", "key", "value")}


def for_each_head(
    name: str, length: int, dtype: str, is_causal: bool, heads: int
) -> dict[str, np.ndarray]:
    """The same with tables of their own for each head, as Transformer-XL projects R."""
    rng = np.random.default_rng(1)
    shared = drawn(name, length, dtype, is_causal, heads)
    return {
        n: rng.standard_normal((heads, *x.shape)).astype(dtype)
        for n, x in shared.items()
    }


def slopes(
    name: str, length: int, dtype: str, is_causal: bool, heads: int
) -> dict[str, np.ndarray]:
    """ALiBi's bias by offset: T5's, KERPLE's and learned ones are the same work."""
    return {"rel_bias": relpos.alibi_bias(heads, length, dtype=dtype)}


def decode(length: int, *, batch: int = 1, with_table: bool = False) -> Problem:
    """The last query of causal sequences; the table is per head, so read once."""
    options = {"is_causal": True, "query_offset": length - 1}
    arrays = tokens(length, "float32", batch=batch, queries=1)
    if not with_table:
        return Problem("attention", arrays, options)
    rel_key = table(length, "float32", heads=HEADS)
    return Problem("relative_global_attention", {**arrays, "rel_key": rel_key}, options)


@dataclass(frozen=True)
class Scheme:
    """A scheme of the catalogue, and what is useful of its work.

    `products`: floating-point operations of a visible pair over D. `rows` of tables are
    multiplied beside keys and values, for each query as much work as a visible pair is
    in plain attention. `tables` makes the operands.
    """

    name: str
    products: dict[str, int]
    rows: int = 0
    tables: Callable[..., dict[str, np.ndarray]] = drawn

    def build(
        self, length: int, dtype: str, is_causal: bool, heads: int = HEADS
    ) -> Problem:
        """A problem of this scheme."""
        made = self.tables(self.name, length, dtype, is_causal, heads)
        return Problem(
            scheme_called(self.name).call,
            {**tokens(length, dtype, heads=heads), **made},
            {"is_causal": is_causal},
            1 - length if self.products is LONG_TABLE_PRODUCTS else None,
        )

    def flops(self, problem: Problem, way: str) -> int:
        """Useful operations of a problem that `build` made, forward or backward."""
        *items, _ = problem.arrays["query"].shape
        of_rows = PLAIN_PRODUCTS[way] * math.prod(items) * self.rows
        return HEAD_DIM * (self.products[way] * problem.pairs + of_rows)


# The backward computes the scores again.
PLAIN_PRODUCTS = {"forward": 4, "backward": 10}
LONG_TABLE_PRODUCTS = {"forward": 6, "backward": 16}

#: By the labels of the rows: names and synonyms of the catalogue.
SCHEMES = {
    "plain": Scheme("attention", PLAIN_PRODUCTS),
    "music": Scheme("relative_global_attention", LONG_TABLE_PRODUCTS),
    "xl": Scheme("transformer_xl_attention", LONG_TABLE_PRODUCTS, 0, for_each_head),
    "shaw": Scheme("shaw_attention", PLAIN_PRODUCTS, 2 * CLIP + 1),
    "alibi": Scheme("alibi", PLAIN_PRODUCTS, 0, slopes),
    "fire": Scheme("fire_attention", PLAIN_PRODUCTS),
}
