"""The rows of the tables that show every scheme: how each is computed and checked.

A scheme of `_schemes.SCHEMES` with a title has its row from there: it is one call with
its operands. Schemes with inputs of their own, or of several calls, have rows here.
The gradients of a scheme that is settings of attention are compared with those of the
formula with these settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypedDict

import numpy as np

import relpos
from relpos import recipes, reference
from relpos._attention.operands import OPERANDS
from relpos._attention.plan import shapes_of
from relpos._catalogue import numpy_forms
from relpos._checks import Array as Array
from relpos._schemes import FIRE_WIDTH, SCHEMES, Scheme, scheme_called

Inputs = dict[str, Any]
Named = Mapping[str, Array]  # gradients by the names of the inputs
Limits = dict[Any, float]

TOKENS = ("query", "key", "value")
CLIP = 16  # Shaw's k of the base model
#: Operands with something for each head, or each head and token.
NO_TABLES = {
    name for name, row in OPERANDS.items() if row.fit in ("tokens", "heads")
} - {*TOKENS, "query_offset", "key_lengths"}


class Size(TypedDict):
    """Arguments of `Row.inputs` behind the dtype."""

    heads: int
    length: int
    dim: int


# Errors: the reference is L x L x d, and its gradients take longer.
SMALL: Size = {"heads": 2, "length": 256, "dim": 64}
GRADIENT_SIZE: Size = {"heads": 2, "length": 128, "dim": 64}
# Time and memory: of all forms, and of the L x L x d form.
LARGE: Size = {"heads": 2, "length": 2048, "dim": 64}
PAIRS: Size = {"heads": 1, "length": 512, "dim": 64}

# Errors relative to the norm of the result. Attention: a few roundings of sums over 256
# keys, in either precision. Encodings: one rounding to the dtype; in float64 the phase
# (up to 255) has one of its own in the reference. Looking up rows rounds nothing.
ATTENTION: Limits = {np.float32: 1e-6, np.float64: 1e-14}
ROUNDING: Limits = {np.float32: 2.0**-24, np.float64: 1e-14}
EXACT: Limits = {np.float32: 0.0, np.float64: 0.0}
# Gradients sum more often than outputs.
GRADIENT: Limits = {np.float32: 2e-6, np.float64: 1e-14}


@dataclass(frozen=True)
class Gradients:
    """Gradients of sum(grad_out * out): (grad_out, **inputs) to {name: gradient}.

    `relpos` goes forward and back; `reference` gives the same keys in float64.
    """

    relpos: Callable[..., Named]
    reference: Callable[..., Named]
    limits: Limits = field(default_factory=lambda: GRADIENT)


@dataclass(frozen=True)
class Row:
    """A scheme: its inputs, relpos's function, the NumPy form, the definition.

    `scheme` is its name in `_schemes.SCHEMES`, `name` what tables call this form of it.
    `inputs(dtype, heads, length, dim)` makes the keyword arguments of the three
    functions, each of which returns an array. `gradients` is None where nothing is
    differentiable, `numpy` where nobody writes the scheme in NumPy.
    """

    scheme: str
    name: str
    inputs: Callable[..., Inputs]
    relpos: Callable[..., Any]
    numpy: Callable[..., Any] | None
    reference: Callable[..., Any]
    limits: Limits = field(default_factory=lambda: ATTENTION)
    gradients: Gradients | None = None


# ---- inputs --------------------------------------------------------------------------


def draw(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def tokens_of(
    dtype: Any, heads: int, length: int, dim: int, **shapes: tuple[int, ...]
) -> Inputs:
    """Make tokens (H, L, D), and arrays of the given shapes."""
    # The seed is the length, so that each size has the same numbers in every run.
    rng = np.random.default_rng(length)
    shapes = dict.fromkeys(TOKENS, (heads, length, dim)) | shapes
    return {name: draw(rng, dtype, *shape) for name, shape in shapes.items()}


def arguments_of(scheme: str, is_causal: bool = False) -> Callable[..., Inputs]:
    """Return a maker of tokens and the operands of a scheme that is one call."""
    known = scheme_called(scheme)
    # Operands that are drawn after the tables, from a generator of their own.
    drawn_last = {*NO_TABLES}
    if known.own_width:
        drawn_last.add("rel_key")

    def inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
        shapes = shapes_of(known, heads, length, length, dim, CLIP, is_causal)
        # The biases u and v are one vector for all heads here.
        shared = {n: (dim,) for n in shapes if n.startswith("pos_bias")}
        tables = {
            n: shape for n, shape in shapes.items() if n not in drawn_last
        } | shared
        arguments = tokens_of(dtype, heads, length, dim, **tables)
        rng = np.random.default_rng(dim)
        for name in sorted(drawn_last & shapes.keys()):
            arguments[name] = draw(rng, dtype, *shapes[name])
        return arguments

    return inputs


def sizes_of(
    dtype: Any, heads: int, length: int, dim: int, count: str = "length", **options: Any
) -> Inputs:
    """Return the sizes of an encoding: positions, and a model's width."""
    return {count: length, "dim": heads * dim, "dtype": dtype, **options}


def rows_of(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Make a learned table and shuffled positions."""
    rng = np.random.default_rng(length)
    table = draw(rng, dtype, length, heads * dim)
    return {"table": table, "positions": rng.permutation(length)}


# ---- gradients -----------------------------------------------------------------------


def no_settings(inputs: Inputs) -> dict[str, Any]:
    """Return the settings of a function whose inputs are all that it needs."""
    return {}


def of_attention(
    function: Callable[..., Any],
    settings: Callable[[Inputs], dict[str, Any]] = no_settings,
) -> Gradients:
    """Return the gradients of one call, from its context and from the definitions.

    `settings` makes of the inputs the settings of `function` that attention has not.
    """

    def expected(grad_out: Array, **inputs: Any) -> Named:
        # Settings such as causality are constants of the scheme and arguments of
        # attention.
        arguments = {**inputs, **settings(inputs)}
        return present(reference.attention_backward(grad_out, **arguments))

    return Gradients(partial(from_context, function), expected)


def from_context(function: Any, grad_out: Array, **inputs: Any) -> Named:
    return present(function(**inputs, return_context=True).context.backward(grad_out))


def present(gradients: Any) -> Named:
    return {name: x for name, x in gradients._asdict().items() if x is not None}


# ---- errors --------------------------------------------------------------------------


def relative_error(got: Array, expected: Array) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def largest_error(got: Named, expected: Named) -> float:
    """Return the largest relative error of results; infinity where one is missing."""
    if got.keys() != expected.keys():
        return np.inf
    return float(
        np.max([relative_error(got[name], expected[name]) for name in expected])
    )


def errors(row: Row) -> dict[Any, float]:
    """Return the error over the norm of the definition's result, by dtype."""
    by_dtype = {}
    for dtype in row.limits:
        inputs = row.inputs(dtype, **SMALL)
        # The definitions compute in float64, and have no dtype to choose.
        exact = {name: x for name, x in inputs.items() if name != "dtype"}
        by_dtype[dtype] = relative_error(row.relpos(**inputs), row.reference(**exact))
    return by_dtype


def gradient_errors(row: Row) -> dict[Any, float]:
    """Return the largest error of a gradient, by dtype; empty where there are none.

    The inputs are numbers of float32, so that one reference serves both dtypes.
    """
    if row.gradients is None:
        return {}
    inputs = row.inputs(np.float32, **GRADIENT_SIZE)
    out = row.relpos(**inputs)
    grad_out = draw(np.random.default_rng(1), np.float32, *out.shape)
    exact = cast(inputs, np.float64)
    expected = row.gradients.reference(grad_out.astype(np.float64), **exact)
    errors = {}
    for dtype in row.gradients.limits:
        got = row.gradients.relpos(grad_out.astype(dtype), **cast(inputs, dtype))
        errors[dtype] = largest_error(got, expected)
    return errors


def gaps(row: Row) -> Iterator[tuple[str, Any, float, float]]:
    """Yield what is compared, "output" or "gradients", its dtype, error and limit."""
    limits = row.gradients.limits if row.gradients else {}
    outputs = "output", errors(row), row.limits
    for kind, by_dtype, most in (outputs, ("gradients", gradient_errors(row), limits)):
        for dtype, limit in most.items():
            yield kind, dtype, by_dtype[dtype], limit


def cast(inputs: Inputs, dtype: Any) -> Inputs:
    """Convert floating arrays to another dtype; return all else as it is."""
    return {
        name: x.astype(dtype) if getattr(x, "dtype", np.dtype(int)).kind == "f" else x
        for name, x in inputs.items()
    }


BUCKETS = 32  # of T5 and of this DeBERTa: rows of their tables
DEGREE, LABELS = 15, 5  # edges of a query to other tokens, and their labels
KERNEL = 3
#: Nine products and their sum.
FEW_TERMS: Limits = {np.float32: 2e-7, np.float64: 4e-16}


# ---- one call with the operands of the scheme ----------------------------------------


def one_call(scheme: Scheme, title: str = "", in_numpy: Any = None, **more: Any) -> Row:
    """Make the row of a scheme that is one call with its operands."""
    settings = {**dict(scheme.settings), **more}
    ours, theirs = (
        partial(getattr(module, scheme.call), **settings)
        if settings
        else getattr(module, scheme.call)
        for module in (relpos, reference)
    )

    def settings_of(inputs: Inputs) -> dict[str, Any]:
        # A scheme has a function that computes its settings, or constant ones.
        if hasattr(ours, "settings"):
            computed: dict[str, Any] = ours.settings(**inputs)
            return computed
        return settings

    gradients = of_attention(ours, settings_of)
    form = in_numpy or getattr(numpy_forms, scheme.name, None)
    arguments = arguments_of(scheme.name)
    fields = scheme.name, title or scheme.title, arguments, ours, form, theirs
    return Row(*fields, gradients=gradients)


def called(
    function: str, title: str, inputs: Callable[..., Inputs], **fields: Any
) -> Row:
    """Make the row of a function with inputs of its own, and other fields of `Row`."""
    scheme = next(each.name for each in SCHEMES if function in each.functions)
    ours, theirs = getattr(relpos, function), getattr(reference, function)
    in_numpy = getattr(numpy_forms, function)
    return Row(scheme, title, inputs, ours, in_numpy, theirs, **fields)


# ---- encodings, attention without positions, rotary ----------------------------------


def learned_backward(
    module: Any, grad_out: Array, table: Array, positions: Array
) -> Named:
    return {"table": module.learned_backward(grad_out, positions, len(table))}


def music_settings(inputs: Inputs) -> dict[str, Any]:
    """Return the settings of the Music Transformer: E_r ends at distance 0."""
    return {"is_causal": True, "min_relative_position": 1 - len(inputs["rel_key"])}


def rotary(module: Any, query: Array, key: Array, value: Array) -> Any:
    return module.attention(module.apply_rotary(query), module.apply_rotary(key), value)


def rotary_backward(
    module: Any, grad_out: Array, query: Array, key: Array, value: Array
) -> Named:
    rotated = {"query": module.apply_rotary(query), "key": module.apply_rotary(key)}
    # Attention of rotated tokens, and then the rotation back.
    gradients = attention_backward(module, grad_out, **rotated, value=value)
    back = {
        name: module.apply_rotary(gradients[name], inverse=True) for name in rotated
    }
    return back | {"value": gradients["value"]}


def attention_backward(module: Any, grad_out: Array, **inputs: Any) -> Named:
    """Return the gradients of all inputs of one call, by relpos or its definitions."""
    if module is reference:
        return present(reference.attention_backward(grad_out, **inputs))
    return from_context(relpos.attention, grad_out, **inputs)


def both(function: Callable[..., Any]) -> tuple[Any, Any]:
    """Bind the module of a function, to relpos and to its definitions."""
    return partial(function, relpos), partial(function, reference)


def composed(
    scheme: str,
    title: str,
    inputs: Callable[..., Inputs],
    call: Callable[..., Any],
    backward: Callable[..., Named],
) -> Row:
    """Make a row of `call` and `backward`, whose first argument is the module."""
    ours, theirs = both(call)
    gradients = Gradients(*both(backward))
    form = getattr(numpy_forms, scheme)
    return Row(scheme, title, inputs, ours, form, theirs, gradients=gradients)


PLAIN = scheme_called("attention")
CAUSAL = partial(numpy_forms.attention, is_causal=True)
FIRST: dict[str, list[Row]] = {
    "sinusoidal": [
        called(
            "sinusoidal",
            f"sinusoidal, {layout}",
            partial(sizes_of, count="positions", layout=layout),
            limits=ROUNDING,
        )
        for layout in ("interleaved", "concat")
    ],
    "naive": [
        called("index_encoding", "naive: index", sizes_of, limits=EXACT),
        called(
            "normalized_index_encoding",
            "naive: normalized index",
            sizes_of,
            limits=ROUNDING,
        ),
    ],
    "learned": [
        called(
            "learned",
            "learned table",
            rows_of,
            limits=EXACT,
            gradients=Gradients(*both(learned_backward), EXACT),
        )
    ],
    "attention": [
        one_call(PLAIN, "NoPE (no positions)"),
        one_call(PLAIN, "NoPE, causal", CAUSAL, is_causal=True),
    ],
    "rotary": [composed("rotary", "RoPE", tokens_of, rotary, rotary_backward)],
    "relative_global_attention": [
        called(
            "relative_global_attention",
            "Music Transformer, causal",
            arguments_of("relative_global_attention", is_causal=True),
            gradients=of_attention(relpos.relative_global_attention, music_settings),
        )
    ],
}


# ---- biases and tables of parameters -------------------------------------------------


def parameters_of(
    dtype: Any, heads: int, length: int, dim: int, **shapes: str
) -> Inputs:
    """Make tokens and parameters; "H" is a positive number a head."""
    rng = np.random.default_rng(heads)
    parameters = {}
    for name, shape in shapes.items():
        if shape == "H":
            parameters[name] = rng.random(heads)
        else:
            columns = {"buckets x H": heads, "buckets x D": dim}[shape]
            parameters[name] = rng.standard_normal((BUCKETS, columns))
    return tokens_of(dtype, heads, length, dim) | cast(parameters, dtype)


def bias_row(scheme: str, title: str, **shapes: Any) -> Row:
    """Make a row of attention with the bias that a function makes of parameters.

    T5 leaves the scale of the scores to its query; here all have the usual one.
    """
    name = f"{scheme}_bias"

    def call(
        module: Any, query: Array, key: Array, value: Array, **parameters: Array
    ) -> Any:
        # The row names the parameters in the order of the function.
        bias = getattr(module, name)(*parameters.values(), key.shape[-2])
        return module.attention(query, key, value, rel_bias=bias)

    def backward(
        module: Any,
        grad_out: Array,
        query: Array,
        key: Array,
        value: Array,
        **parameters: Array,
    ) -> Named:
        tokens = {"query": query, "key": key, "value": value}
        bias = getattr(module, name)(*parameters.values(), key.shape[-2])
        gradients = dict(attention_backward(module, grad_out, **tokens, rel_bias=bias))
        # The backward of ALiBi needs no parameter, and that of T5 the number of
        # buckets.
        buckets = len(parameters.get("weight", ()))
        others = {"alibi": (), "t5": (buckets,)}.get(scheme, parameters.values())
        fold = getattr(module, f"{name}_backward")
        folded = fold(gradients.pop("rel_bias"), *others)
        parts = folded if isinstance(folded, tuple) else (folded,)
        return gradients | dict(zip(parameters, parts, strict=True))

    return composed(scheme, title, partial(parameters_of, **shapes), call, backward)


DEBERTA = {"pos_key": "rel_key", "pos_query": "rel_query"}


def deberta(module: Any, pos_key: Array, pos_query: Array, **tokens: Array) -> Any:
    # The names that attention has for both tables.
    tables = {"rel_key": pos_key, "rel_query": pos_query}  # arrays, or tensors of torch
    # The recipe takes arrays, of which the placing of rows needs the shapes alone.
    zeros = [np.zeros(table.shape) for table in tables.values()]
    placing = recipes.deberta(*zeros)
    return module.attention(**tokens, **(placing | tables))


def deberta_backward(
    module: Any, grad_out: Array, pos_key: Array, pos_query: Array, **tokens: Array
) -> Named:
    keywords = recipes.deberta(pos_key, pos_query)
    gradients = attention_backward(module, grad_out, **tokens, **keywords)
    return {n: gradients[DEBERTA.get(n, n)] for n in (*tokens, *DEBERTA)}


def fire_inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Make tokens and parameters; units switch between x = 0 and 1."""
    rng = np.random.default_rng(heads)
    w1 = rng.standard_normal(FIRE_WIDTH)
    parameters = {
        "w1": w1,
        # Each unit has its corner at a random x between 0 and 1.
        "b1": -w1 * rng.random(FIRE_WIDTH),
        "w2": rng.standard_normal((heads, FIRE_WIDTH)),
        "b2": rng.standard_normal(heads),
        "c": np.array(0.1),
        # Half of a step beyond a quarter, so that no position is equal to the
        # threshold, where the derivative jumps.
        "threshold": np.array(length / 4 + 0.5),
    }
    return tokens_of(dtype, heads, length, dim) | cast(parameters, dtype)


def fire_backward(module: Any, grad_out: Array, **inputs: Any) -> Named:
    """Return the gradients of tokens and network, but for b2.

    b2 moves all scores of a row: its gradient is a rounding error.
    """
    if module is relpos:
        gradients = from_context(relpos.fire_attention, grad_out, **inputs)
    else:
        # The definition has one function for the bias and one for attention. The bias
        # takes what is left of the inputs: the network.
        tokens = {name: inputs.pop(name) for name in TOKENS}
        hiding = {"is_causal": inputs.pop("is_causal", False)}
        offset = {"query_offset": inputs.pop("query_offset", 0)}
        lq, lk = tokens["query"].shape[-2], tokens["key"].shape[-2]
        bias = reference.fire_bias(**inputs, query_length=lq, key_length=lk, **offset)
        # The gradient of the mask is that of the bias.
        hiding |= {"attn_mask": bias, **offset}
        expected = reference.attention_backward(grad_out, **tokens, **hiding)
        assert expected.attn_mask is not None
        network = reference.fire_bias_backward(expected.attn_mask, **inputs, **offset)
        gradients = {name: getattr(expected, name) for name in tokens} | network
    return {name: x for name, x in gradients.items() if name != "b2"}


# ---- grids, graphs, convolutions -----------------------------------------------------


def grid_of(length: int) -> tuple[int, int]:
    """Return rows and columns, as equal as they can be."""
    rows = max(n for n in range(1, length + 1) if n * n <= length and length % n == 0)
    return rows, length // rows


def two_axes(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Make a vector for each distance in rows and in columns, and labels of pairs."""
    rng = np.random.default_rng(length)
    sides = grid_of(length)
    height, width = (draw(rng, dtype, 2 * side - 1, dim) for side in sides)
    return tokens_of(dtype, heads, length, dim) | recipes.sam(height, width, sides)


def graph_of(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Make a graph: each token sees itself and others at random, none twice."""
    tables = dict.fromkeys(("rel_key", "rel_value"), (LABELS, dim))
    rng = np.random.default_rng(length)
    keys = [
        # Each query sees itself, so that none has an empty run.
        np.append(rng.choice(length, min(DEGREE, length - 1), replace=False), i)
        for i in range(length)
    ]
    keys = [np.unique(row) for row in keys]
    indptr = np.concatenate([[0], np.cumsum([row.size for row in keys])])
    return {
        **tokens_of(dtype, heads, length, dim, **tables),
        "indptr": indptr,
        "indices": np.concatenate(keys),
        "labels": rng.integers(0, LABELS, indptr[-1]),
    }


def dense_graph(
    grad_out: Array, indptr: Array, indices: Array, labels: Array, **inputs: Any
) -> Named:
    """Return the gradients of the dense form: absent edges masked, a label a pair."""
    shape = inputs["query"].shape[-2], inputs["key"].shape[-2]
    # -1 says that a pair has no row, for pairs without an edge.
    mask, dense = np.zeros(shape, dtype=bool), np.full(shape, -1)
    of_edge = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    mask[of_edge, indices] = True
    dense[of_edge, indices] = labels
    arguments = {**inputs, "attn_mask": mask, "labels": dense}
    return present(reference.attention_backward(grad_out, **arguments))


def cells_of(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Make tokens of a grid, and a kernel of 3 x 3 for each channel."""
    rng = np.random.default_rng(length)
    channels = heads * dim
    # Heads of tokens side by side are the channels of a convolution.
    return {
        "x": draw(rng, dtype, length, channels),
        "weight": draw(rng, dtype, channels, KERNEL, KERNEL),
        "bias": draw(rng, dtype, channels),
        "grid": grid_of(length),
    }


def conv_backward(module: Any, grad_out: Array, **inputs: Any) -> Named:
    gradients = module.conv_encoding_backward(grad_out, **inputs)
    names = ("x", "weight", "bias")
    return {n: x for n, x in zip(names, gradients, strict=True) if x is not None}


LAST = [
    Row(
        "shaw_keys",
        "two axes of a grid (SAM)",
        two_axes,
        relpos.attention,
        numpy_forms.two_axes,
        reference.attention,
        gradients=of_attention(relpos.attention),
    ),
    bias_row("alibi", "ALiBi", slopes="H"),
    bias_row("t5", f"T5, {BUCKETS} buckets", weight="buckets x H"),
    bias_row("kerple", "KERPLE, logarithmic", r1="H", r2="H"),
    composed(
        "deberta",
        f"DeBERTa, {BUCKETS} rows",
        partial(parameters_of, pos_key="buckets x D", pos_query="buckets x D"),
        deberta,
        deberta_backward,
    ),
    called(
        "graph_attention",
        "labelled graph, 16 edges a query",
        graph_of,
        gradients=replace(of_attention(relpos.graph_attention), reference=dense_graph),
    ),
    called(
        "conv_encoding",
        "convolutional, 3 x 3",
        cells_of,
        limits=FEW_TERMS,
        gradients=Gradients(*both(conv_backward)),
    ),
    called(
        "fire_attention",
        f"FIRE, width {FIRE_WIDTH}",
        fire_inputs,
        gradients=Gradients(*both(fire_backward)),
    ),
]
# A scheme with a title of its own is one call, unless rows of `FIRST` replace it.
ROWS = [
    row
    for scheme in SCHEMES
    for row in FIRST.get(scheme.name, [one_call(scheme)] if scheme.title else [])
] + LAST
PAIRS_ROW = one_call(
    scheme_called("shaw_keys"), "Shaw, keys, L x L x d", numpy_forms.pairs
)
