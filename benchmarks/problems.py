"""The attention calls that are timed, and the checks of their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

import relpos
from benchmarks.timing import Array, check_error
from relpos import reference
from relpos._attention.operands import OPERANDS
from relpos._catalogue.rows import (
    CLIP,
    ROWS as ROWS,
    Inputs as Inputs,
    arguments_of,
    cast as cast,
    draw as draw,
    fire_backward,
    largest_error as largest_error,
)
from relpos._schemes import same_name, scheme_called

HEADS, DIM = 8, 64
DIRECTIONS = {"both": False, "causal": True}
CHECKED_ROWS = 6
#: Largest error of a gradient, over the norm of the expected one, that is worth timing.
#: Those compared are of a few queries, whose terms cancel more than those of a whole
#: sequence: up to 2e-6 here.
GRADIENT_LIMIT = {"float32": 1e-5, "float64": 1e-13}


@dataclass(frozen=True)
class Problem:
    """One call: a function of relpos and relpos.reference, its arrays and options.

    `scheme` is a key of SCHEMES. `table_start` is the relative position of the first
    row of a table that does not have 0 in its middle, an argument of
    `relpos.reference.attention_backward`.
    """

    scheme: str
    function: str
    arrays: dict[str, Array]
    options: dict[str, Any] = field(default_factory=dict)
    table_start: int | None = None

    @property
    def is_causal(self) -> bool:
        """Return True where later keys are hidden."""
        return bool(self.options["is_causal"])

    @property
    def pairs(self) -> int:
        """Return the number of pairs, over all items and heads, that are not hidden."""
        *items, queries, _ = self.arrays["query"].shape
        keys = int(self.arrays["key"].shape[-2])
        seen = [keys] * queries
        if self.is_causal:
            first = 1 + int(self.options.get("query_offset", 0))
            seen = [min(first + i, keys) for i in range(queries)]
        return math.prod(items) * sum(seen)

    @property
    def read(self) -> list[Array]:
        """Return the arrays that decoding reads for each query."""
        return [x for name, x in self.arrays.items() if name != "query"]

    def out(self, fill: float) -> Array:
        query, value = self.arrays["query"], self.arrays["value"]
        return np.full((*query.shape[:-1], value.shape[-1]), fill, query.dtype)

    def call(self, threads: int, **more: Any) -> Callable[[], Any]:
        """Return the call of relpos on all arguments; `more` may replace some."""
        keywords = {**self.arrays, **self.options, "num_threads": threads, **more}
        return partial(getattr(relpos, self.function), **keywords)

    def gradients(self, result: Any, threads: int, grad_out: Array) -> dict[str, Array]:
        """Return the gradients of a result of `call`, as they are compared."""
        gradients = result.context.backward(grad_out, num_threads=threads)
        return as_compared({name: getattr(gradients, name) for name in self.arrays})

    def bind_backward(
        self, threads: int, grad_out: Array
    ) -> Callable[[], dict[str, Array]]:
        """Return the backward of one forward that is done here: gradients by name."""
        result = self.call(threads, return_context=True)()
        return partial(self.gradients, result, threads, grad_out)

    def prepared(
        self, way: str, threads: int, what: str
    ) -> tuple[Callable[[], object], float]:
        """Return the checked call of one of WAYS, and its error."""
        if way == "forward":
            out = self.out(np.nan)
            call = self.call(threads, out=out)
            call()
            return call, self.check(out, what)
        error = self.check_backward(threads, what)
        if way == "backward":
            return self.bind_backward(threads, self.grad_out), error

        def forward_and_backward() -> dict[str, Array]:
            return self.bind_backward(threads, self.grad_out)()

        return forward_and_backward, error

    @cached_property
    def grad_out(self) -> Array:
        """Return a random gradient of the result, of numbers of float32."""
        out = self.out(0)
        drawn = np.random.default_rng(2).standard_normal(out.shape)
        return drawn.astype(np.float32).astype(out.dtype)

    def rows(self) -> Array:
        """Return the queries to check, with the first and the last."""
        length = self.arrays["query"].shape[-2]
        return np.unique(np.linspace(0, length - 1, CHECKED_ROWS, dtype=int))

    def of_row(self, row: int) -> dict[str, Any]:
        """Return the arguments in float64 of a call with one of the queries."""
        keywords: dict[str, Any] = {}
        for name, array in self.arrays.items():
            keywords[name] = of_query(name, array.astype(np.float64), row)
        for name, value in self.options.items():
            keywords[name] = of_query(name, value, row)
        keywords["query_offset"] = self.options.get("query_offset", 0) + row
        return keywords

    def check(self, out: Array, what: str) -> float:
        """Return the error of some rows of `out` by the reference."""
        expect = getattr(reference, self.function)
        rows = self.rows()
        expected = [expect(**self.of_row(int(row))) for row in rows]
        return check_error(out[..., rows, :], np.concatenate(expected, axis=-2), what)

    def check_backward(self, threads: int, what: str) -> float:
        """Return the largest error of a gradient by the reference.

        A query's gradient depends on its own row of grad_out: those of some rows are
        compared. The others sum over all rows: they are compared, whole, for a grad_out
        that is 0 but in these rows.
        """
        rows, grad_out = self.rows(), self.grad_out
        few = np.zeros_like(grad_out)
        few[..., rows, :] = grad_out[..., rows, :]
        expected = [
            self.written_gradients(
                grad_out[..., row : row + 1, :].astype(np.float64),
                **self.of_row(int(row)),
            )
            for row in rows
        ]
        dense = self.bind_backward(threads, grad_out)()
        sparse = self.bind_backward(threads, few)()
        errors = []
        for name in sparse:
            of_rows = [gradients[name] for gradients in expected]
            axis = query_axis(name, dense[name].ndim)
            if axis is None:
                result, exact = sparse[name], np.sum(of_rows, axis=0)
            else:
                result = dense[name].take(rows, axis)
                exact = np.concatenate(of_rows, axis)
            label = f"{what}, {name}"
            errors.append(check_error(result, exact, label, GRADIENT_LIMIT))
        return max(errors)

    def written_gradients(self, grad_out: Array, **keywords: Any) -> dict[str, Array]:
        """Return the gradients by the reference, of arguments in float64."""
        if self.function == "fire_attention":
            return as_compared(fire_backward(reference, grad_out, **keywords))
        keywords.setdefault("min_relative_position", self.table_start)
        return reference.attention_backward(grad_out, **keywords)._asdict()


#: Parameters of FIRE, but for b2, which moves all scores of a row: its gradient is 0.
NETWORK = ("w1", "b1", "w2", "c", "threshold")


def as_compared(gradients: dict[str, Array]) -> dict[str, Array]:
    """Join those of a network to one vector, whose norm is the measure of an error.

    That of c is a sum of terms that cancel, and may be as small as their errors.
    """
    network = [gradients[name].ravel() for name in NETWORK if name in gradients]
    if not network:
        return gradients
    others = {n: x for n, x in gradients.items() if n not in (*NETWORK, "b2")}
    return others | {"network": np.concatenate(network)}


def query_axis(name: str, ndim: int) -> int | None:
    """Return the axis of the queries, counted from the end; None if there is none."""
    letters = OPERANDS[name].letters_of(ndim) if name in OPERANDS else ""
    return letters.index("q") - len(letters) if "q" in letters else None


def of_query(name: str, value: Any, row: int) -> Any:
    if isinstance(value, tuple):  # of labels
        return tuple(of_query(name, each, row) for each in value)
    axis = query_axis(name, np.ndim(value))
    return value if axis is None else value.take([row], axis)


def tokens(
    length: int,
    dtype: str,
    *,
    batch: int = 1,
    heads: int = HEADS,
    queries: int | None = None,
    dim: int = DIM,
) -> dict[str, Array]:
    rng = np.random.default_rng(length)
    lengths = {"query": queries or length, "key": length, "value": length}
    return {
        name: rng.standard_normal((batch, heads, rows, dim)).astype(dtype)
        for name, rows in lengths.items()
    }


def drawn(
    name: str, length: int, dtype: str, is_causal: bool, heads: int, dim: int
) -> dict[str, Array]:
    """Make the other operands of a scheme, as the catalogue does."""
    if {*scheme_called(name).operands} <= {*OPERANDS}:
        inputs = arguments_of(name, is_causal)
    else:  # a scheme with inputs of its own has a row of the catalogue
        inputs = next(row.inputs for row in ROWS if row.scheme == name)
    arguments: dict[str, Array] = inputs(np.dtype(dtype), heads, length, dim)
    return {n: x for n, x in arguments.items() if n not in ("query", "key", "value")}


def for_each_head(
    name: str, length: int, dtype: str, is_causal: bool, heads: int, dim: int
) -> dict[str, Array]:
    """Make them with tables for each head, as Transformer-XL projects R."""
    rng = np.random.default_rng(1)
    shared = drawn(name, length, dtype, is_causal, heads, dim)
    return {
        n: rng.standard_normal((heads, *x.shape)).astype(dtype)
        for n, x in shared.items()
    }


def slopes(
    name: str, length: int, dtype: str, is_causal: bool, heads: int, dim: int
) -> dict[str, Array]:
    """Make ALiBi's bias by offset: other biases by offset are the same work."""
    return {"rel_bias": relpos.alibi_bias(heads, length, dtype=dtype)}


@dataclass(frozen=True)
class Scheme:
    """A scheme of the catalogue, and its useful operations.

    `products`: floating-point operations of a visible pair over D. `rows` of tables are
    multiplied beside keys and values, for each query as much work as a visible pair is
    in plain attention. `tables` makes the operands.
    """

    name: str
    products: dict[str, int]
    rows: int = 0
    tables: Callable[..., dict[str, Array]] = drawn

    @property
    def call(self) -> str:
        return scheme_called(self.name).call

    def build(
        self,
        length: int,
        dtype: str,
        is_causal: bool,
        heads: int = HEADS,
        *,
        batch: int = 1,
        dim: int = DIM,
        queries: int | None = None,
    ) -> Problem:
        """Make a problem of this scheme; of fewer queries than keys, the last ones."""
        made = self.tables(self.name, length, dtype, is_causal, heads, dim)
        options: dict[str, Any] = {"is_causal": is_causal}
        if queries is not None:
            options["query_offset"] = length - queries
        sizes = {"batch": batch, "heads": heads, "dim": dim, "queries": queries}
        return Problem(
            next(label for label, each in SCHEMES.items() if each.name == self.name),
            self.call,
            {**tokens(length, dtype, **sizes), **made},  # type: ignore[arg-type]
            options,
            1 - length if self.products is LONG_TABLE_PRODUCTS else None,
        )

    def flops(self, problem: Problem, way: str) -> int:
        """Return the useful operations of a problem of `build`, in one of WAYS."""
        *items, dim = problem.arrays["query"].shape
        of_rows = PLAIN_PRODUCTS[way] * math.prod(items) * self.rows
        return int(dim * (self.products[way] * problem.pairs + of_rows))


WAYS = ("forward", "backward", "forward+backward")
# The backward computes the scores again.
PLAIN_PRODUCTS = dict(zip(WAYS, (4, 10, 14), strict=True))
LONG_TABLE_PRODUCTS = dict(zip(WAYS, (6, 16, 22), strict=True))

#: By the labels of the rows: names and synonyms of the catalogue.
SCHEMES = {
    "plain": Scheme("attention", PLAIN_PRODUCTS),
    "music": Scheme("relative_global_attention", LONG_TABLE_PRODUCTS),
    "xl": Scheme("transformer_xl_attention", LONG_TABLE_PRODUCTS, 0, for_each_head),
    "shaw": Scheme("shaw_attention", PLAIN_PRODUCTS, 2 * CLIP + 1),
    "alibi": Scheme("alibi", PLAIN_PRODUCTS, 0, slopes),
    "fire": Scheme("fire_attention", PLAIN_PRODUCTS),
}


def label_of(name: str) -> str:
    """Return the label of a scheme by any of its names, "_causal" at their end kept."""
    label: str = same_name(name.removesuffix("_causal"), SCHEMES)
    return f"{label}_causal" if name.endswith("_causal") else label


def decode(
    length: int, *, batch: int = 1, queries: int = 1, with_table: bool = False
) -> Problem:
    """Make the last queries of causal sequences; a table has a part for each head."""
    name = "music" if with_table else "plain"
    scheme = replace(SCHEMES[name], tables=for_each_head)
    return scheme.build(length, "float32", True, batch=batch, queries=queries)


# ---- what relpos and its peers are asked for -----------------------------------------

#: A backward alone is relpos's only: what else a forward keeps for it differs too much.
MODES = ("fwd", "bwd", "fwdbwd", "decode")


def problem_of(
    scheme: str, is_causal: bool, shape: Sequence[int], mode: str
) -> Problem:
    """Make the call of a scheme and a mode, of shape (batch, heads, length, dim)."""
    batch, heads, length, dim = shape
    queries = 1 if mode == "decode" else None
    return SCHEMES[label_of(scheme)].build(
        length, "float32", is_causal, heads, batch=batch, dim=dim, queries=queries
    )
