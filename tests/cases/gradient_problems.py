"""Attention problems of every scheme and setting, with their incoming gradients."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import dense_oracle
import numpy as np
import oracle_gradients
from operand_arrays import FLOATING
from problems import DTYPES, TERMS, cast, normal, terms, tokens
from tolerances import TOLERANCES, assert_bitwise, assert_results_close, normwise

import relpos
from relpos import _core
from relpos._attention.operands import TABLES
from relpos._settings import use_isa


class Problem(NamedTuple):
    """A call of relpos.attention in float64, and the gradients of out and lse."""

    inputs: dict[str, Any]  # everything that has a gradient, by argument name
    settings: dict[str, Any]  # the other keywords
    grad_out: np.ndarray
    grad_lse: np.ndarray

    @classmethod
    def drawn(cls, rng, inputs, settings):
        """A problem with random gradients of out and lse."""
        rows = inputs["query"].shape[:-1]
        columns = inputs["value"].shape[-1]
        return cls(inputs, settings, normal(rng, *rows, columns), normal(rng, *rows))

    def cast(self, dtype):
        return Problem(
            cast(self.inputs, dtype),
            self.settings,
            self.grad_out.astype(dtype),
            self.grad_lse.astype(dtype),
        )

    def forward(self, **keywords):
        return relpos.attention(**self.inputs, **self.settings, **keywords)

    def gradients(self, num_threads=None, wrt=None):
        """Return the gradients of relpos by name, without those that are None."""
        context = self.forward(return_context=True, num_threads=num_threads).context
        wrt = list(self.inputs) if wrt is None else wrt
        found = context.backward(
            self.grad_out, grad_lse=self.grad_lse, wrt=wrt, num_threads=num_threads
        )
        return {
            name: grad for name, grad in found._asdict().items() if grad is not None
        }

    def truth(self, magnitude=False):
        return oracle_gradients.gradients(
            **self.inputs,
            **self.settings,
            grad_out=self.grad_out,
            grad_lse=self.grad_lse,
            magnitude=magnitude,
        )


class Shape(NamedTuple):
    lq: int
    lk: int
    d: int
    dv: int
    heads: int = 2
    batch: tuple[int, ...] = ()


def row_axis(name):
    return TABLES[name].row_axis


def narrowed(inputs, settings):
    """Every table without the outermost quarter of its rows on both sides."""
    slim = dict(inputs)
    for name in TABLES:
        if name in inputs:
            rows = inputs[name].shape[row_axis(name)]
            keep = np.arange(rows // 4, rows - rows // 4)
            slim[name] = inputs[name].take(keep, row_axis(name))
            if "min_relative_position" in settings:
                first = settings["min_relative_position"] + rows // 4
    if "min_relative_position" in settings:
        settings["min_relative_position"] = first
    return slim


# Each variant changes (inputs, settings) in place of the plain call; `shape` has the
# lengths that the caller asked for.


def both(rng, shape, inputs, settings):
    return inputs


def causal(rng, shape, inputs, settings):
    settings["is_causal"] = True
    return inputs


def clip_inside(rng, shape, inputs, settings):
    return narrowed(inputs, settings)


def zero_beyond(rng, shape, inputs, settings):
    settings |= {"beyond": "zero", "is_causal": True}
    return narrowed(inputs, settings)


def window(rng, shape, inputs, settings):
    settings["window"] = (shape.lk // 3 + 1, shape.lk // 4 + 1)
    return inputs


def key_lengths(rng, shape, inputs, settings):
    settings["key_lengths"] = rng.integers(1, shape.lk + 1, shape.batch)
    return inputs


def item_offsets(rng, shape, inputs, settings):
    around = settings["query_offset"]
    settings["query_offset"] = around + rng.integers(-2, 3, shape.batch)
    return inputs


def float_mask(rng, shape, inputs, settings):
    mask = normal(rng, *shape.batch, 1, shape.lq, shape.lk)
    mask[rng.random(mask.shape) < 0.2] = -np.inf
    mask[..., 0] = 0.0
    return inputs | {"attn_mask": mask}


def bool_mask(rng, shape, inputs, settings):
    mask = rng.random((shape.heads, shape.lq, shape.lk)) < 0.7
    mask[..., -1] = True
    settings["attn_mask"] = mask
    return inputs


def masked_row(rng, shape, inputs, settings):
    mask = rng.random((shape.lq, shape.lk)) < 0.8
    mask[:, 0] = True
    mask[shape.lq // 2] = False
    settings["attn_mask"] = mask
    return inputs


def labels(rng, shape, inputs, settings):
    rows = [inputs[n].shape[row_axis(n)] for n in TABLES if n in inputs]
    if not rows:
        return inputs
    for name in ("min_relative_position", "query_offset"):
        settings.pop(name, None)
    size = (*shape.batch, shape.lq, shape.lk)
    settings["labels"] = rng.integers(-1, min(rows), size).astype(np.int32)
    return inputs


def buckets(rng, shape, inputs, settings):
    """Few table rows, used in any order; all tables of one length."""
    tables = {n: row_axis(n) for n in TABLES if n in inputs}
    if not tables:
        return inputs
    rows = min(5, *(inputs[n].shape[axis] for n, axis in tables.items()))
    settings["min_relative_position"] = -(shape.lk // 2)
    settings["buckets"] = rng.integers(0, rows, shape.lk)
    shorter = {n: inputs[n].take(np.arange(rows), axis) for n, axis in tables.items()}
    return inputs | shorter


def grouped_heads(rng, shape, inputs, settings):
    settings["enable_gqa"] = True
    return inputs | {name: inputs[name][..., :1, :, :] for name in ("key", "value")}


def dropout(rng, shape, inputs, settings):
    settings |= {"dropout_p": 0.3, "rng": 7}
    return inputs


def batch_tables(rng, shape, inputs, settings):
    """A table, and vectors u and v, for each batch item and head."""
    inputs = dict(inputs)
    for name in TABLES:
        if name in inputs:
            axes = TABLES[name].axes - 1
            tail = inputs[name].shape[-axes:]
            inputs[name] = normal(rng, *shape.batch, shape.heads, *tail)
    for name in ("pos_bias_u", "pos_bias_v"):
        if name in inputs:
            columns = inputs[name].shape[-1]
            inputs[name] = normal(rng, *shape.batch, shape.heads, columns)
    return inputs


def broadcast(rng, shape, inputs, settings):
    """Queries shared by the batch, keys and values with an axis of length 1."""
    inputs = inputs | {"query": inputs["query"][(0,) * len(shape.batch)]}
    if shape.batch:
        inputs["value"] = inputs["value"][:1]
    return inputs


def scale(rng, shape, inputs, settings):
    settings |= {"scale": 0.07, "is_causal": True}
    return inputs


def decay(rng, shape, inputs, settings):
    settings["is_causal"] = True
    steps = -np.abs(normal(rng, *shape.batch, shape.heads, shape.lk))
    return inputs | {"log_decay": steps}


def sinks(rng, shape, inputs, settings):
    """A sink of each head, with a row that sees no key."""
    if shape.lq > 1:
        inputs = masked_row(rng, shape, inputs, settings)
    return inputs | {"sinks": normal(rng, shape.heads)}


def sinks_of_queries(rng, shape, inputs, settings):
    """A sink of each query, or one for all items, with a row that sees no key."""
    inputs = sinks(rng, shape, inputs, settings)
    batch = shape.batch if rng.random() < 0.5 else ()
    return inputs | {"sinks": normal(rng, *batch, shape.heads, shape.lq)}


def position_query(rng, shape, inputs, settings):
    """A query of rel_key's own, narrower than the other."""
    if "rel_key" not in inputs:
        return inputs
    own = {name: inputs[name] for name in ("rel_key", "pos_bias_v") if name in inputs}
    own = {name: normal(rng, *x.shape[:-1], 5) for name, x in own.items()}
    rows = normal(rng, *shape.batch, shape.heads, shape.lq, 5)
    return inputs | own | {"position_query": rows}


def softcap(rng, shape, inputs, settings):
    """A cap that many scores are past, below a mask."""
    settings["softcap"] = 1.5
    return float_mask(rng, shape, inputs, settings)


VARIANTS = {
    function.__name__: function
    for function in (
        both,
        causal,
        clip_inside,
        zero_beyond,
        window,
        key_lengths,
        item_offsets,
        float_mask,
        bool_mask,
        masked_row,
        labels,
        buckets,
        grouped_heads,
        dropout,
        batch_tables,
        broadcast,
        scale,
        decay,
        sinks,
        sinks_of_queries,
        position_query,
        softcap,
    )
}
SCHEMES = TERMS
#: Schemes whose clipped tables are shorter than the lengths: kernels sum them by row.
FEW_ROWS = ("shaw", "everything")


def make(scheme, variant, shape, seed=0):
    """The problem of a scheme and a variant; queries are the last of the keys.

    With more queries than keys the first queries come before every key, so that nothing
    is visible to them under a causal mask.
    """
    shape = Shape(*shape)
    key = [
        seed,
        SCHEMES.index(scheme),
        list(VARIANTS).index(variant),
        shape.lq,
        shape.lk,
    ]
    rng = np.random.default_rng(key)
    lq, lk, d, dv, heads, batch = shape
    offset = lk - lq
    inputs = tokens(rng, batch, heads, lq, lk, d, dv)
    k = max(min(lq, lk) // 20 if scheme in FEW_ROWS else 5 * min(lq, lk) // 12, 1)
    keywords = terms(rng, scheme, heads, lq, lk, d, dv, offset=offset, k=k)
    settings = {n: x for n, x in keywords.items() if n not in FLOATING}
    inputs |= {n: x for n, x in keywords.items() if n in FLOATING}
    inputs = VARIANTS[variant](rng, shape, inputs, settings)
    grad_out = normal(rng, *batch, heads, lq, dv)
    return Problem(inputs, settings, grad_out, normal(rng, *batch, heads, lq))


def within(got, want, sizes, terms, name):
    """Return True if a gradient is within tolerance; call sizes() only if it is not.

    Sums of absolute values tell how much cancels: signed sums of n terms come out at
    1 / sqrt(n) of them, and one that is smaller is judged as if it were not.
    """
    limit = TOLERANCES[name].of(got.dtype)
    assert got.shape == want.shape
    if normwise(got, want) <= limit:
        return True
    return sizes and normwise(got, want, np.linalg.norm(sizes()) / terms**0.5) <= limit


def assert_gradients_close(
    got, want, sizes=None, label="", terms=1000, tolerance="gradient"
):
    """Two dicts of gradients, normwise; sizes() gives sums of absolute values."""
    assert set(got) == set(want), label
    for name, truth in want.items():
        size = sizes and (lambda n=name: sizes()[n])
        if not within(got[name], truth, size, terms, tolerance):
            error = normwise(got[name], truth)
            raise AssertionError(f"{label} {name}: error {error:.3g}")


def assert_same_bits(got, want):
    """Two dicts of arrays."""
    assert set(got) == set(want)
    for name, array in want.items():
        assert_bitwise(got[name], array)


def run(inputs, settings, dtype, **keywords):
    """Results of a call of inputs cast to a dtype, and its context."""
    asked = {"return_lse": True, "return_weights": True, "return_context": True}
    return relpos.attention(**cast(inputs, dtype), **settings, **asked, **keywords)


def check(inputs, settings, dtype, terms=None):
    """Compare results and gradients of a call with the oracle; return the results.

    terms: as of `within`, for gradients that may cancel.
    """
    got = run(inputs, settings, dtype)
    assert_results_close(got, dense_oracle.attention(**inputs, **settings))
    call = Problem.drawn(np.random.default_rng(3), inputs, settings)
    found = got.context.backward(
        call.grad_out, grad_lse=call.grad_lse, wrt=list(inputs)
    )._asdict()
    found = {name: grad for name, grad in found.items() if grad is not None}
    sizes = terms and (lambda: call.truth(magnitude=True))
    assert_gradients_close(found, call.truth(), sizes, terms=terms)
    return got


def check_everywhere(problem, tolerance="gradient", zero=()):
    """Every kernel table and both dtypes against the oracle, on the same numbers.

    zero: the inputs whose gradient is 0, which would compare nothing elsewhere.
    """
    truth, sizes = problem.truth(), cache(lambda: problem.truth(magnitude=True))
    assert {n for n, x in truth.items() if not np.any(x)} == set(zero)
    for dtype in DTYPES:
        given = problem.cast(dtype)
        for isa in _core.by_isa:
            with use_isa(isa):
                got = given.gradients()
            assert all(x.dtype == dtype for x in got.values())
            label = f"{isa} {dtype}"
            assert_gradients_close(got, truth, sizes, label, tolerance=tolerance)
