"""Microseconds of calls so small that the time before the kernel counts.

Every scheme of the catalogue on four tokens of 16 numbers, one head, one batch item,
float32, on as many threads as usual; rows named `and backward` are a forward and the
backward of its context together, and rows `over attention` what a scheme's own function
takes longer than `attention` with the same operands. Output and gradients are compared
with the definition at this size first.

Rows that begin with `torch` are calls of `relpos.torch` on (1, 8, L, 64), over the
plain call, and this over `scaled_dot_product_attention`; their results are compared
with NumPy's in float64. Rows `over the loop` are calls on (8, L, 64) over a loop in C
that does nothing else, and rows that begin with `loop` are this loop with tables over
the loop without: what positions cost at the least. One row is the time of
``import relpos`` after NumPy's.

There is nothing to compare the others with but themselves, so here alone times are
compared: the best of many batches of calls, each on the thread's own CPU clock. That
clock leaves out what other programs do, but not what they do to the caches: `chrt -f 5
taskset -c 1` before the command helps there.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import relpos
from benchmarks import plain_loops, timing
from benchmarks.problems import GRADIENT_LIMIT
from relpos import reference
from relpos._catalogue.rows import ROWS, Array, Inputs, Row, cast, draw, music_settings

SIZE = {"heads": 1, "length": 4, "dim": 16}
#: Microseconds at most.
TARGETS = {
    "NoPE (no positions)": 15.0,
    "NoPE (no positions) and backward": 60.0,
}


def no_settings(inputs: Inputs) -> dict[str, Any]:
    return {}


#: Settings of `attention` that stand for a scheme, by its function.
SETTINGS: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "shaw_attention": no_settings,
    "relative_global_attention": music_settings,
    "transformer_xl_attention": no_settings,
}
OVER_ATTENTION = 5.0  # microseconds at most
#: Schemes on tensors: function and tables.
TENSORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a table": ("attention", ("rel_key",)),
    "a bias": ("attention", ("rel_bias",)),
    "Shaw": ("shaw_attention", ("rel_key", "rel_value")),
    "Music": ("relative_global_attention", ("rel_key",)),
    "Transformer-XL": (
        "transformer_xl_attention",
        ("rel_key", "pos_bias_u", "pos_bias_v"),
    ),
}
#: Schemes whose tables the loop in C takes, and the lengths that it does.
LOOPS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "a table": ("rel_key",),
    "Shaw": ("rel_key", "rel_value"),
}
LOOP_LENGTHS = (16, 64)
TENSOR_LENGTHS = {8: 1.2, 16: 1.2, 64: 1.0}  # and plain over torch's at most
OVER_PLAIN = 1.5  # at most
CALLS = 50  # of a batch
PARTS = 5  # of the batches: each gives its best, the figure is their median


def inputs_of(row: Row) -> Inputs:
    """Return a scheme's inputs; query, key and value with one batch axis."""
    inputs = row.inputs(np.float32, **SIZE)
    tokens = {"query", "key", "value"} & inputs.keys()
    return inputs | {name: inputs[name][None] for name in tokens}


def exactly(inputs: Inputs) -> Inputs:
    arrays = {name: x for name, x in inputs.items() if name != "dtype"}
    return cast(arrays, np.float64)


def least(calls: Sequence[Callable[[], object]], repeats: int) -> Iterator[Array]:
    """Yield the least seconds of each call, PARTS times."""
    for _ in range(PARTS):
        turns = [
            [timing.seconds_of(call, CALLS) for call in calls] for _ in range(repeats)
        ]
        yield np.min(turns, axis=0)


def row_of(
    label: str,
    unit: str,
    figures: list[float],
    most: float | None,
    error: float,
    **more: Any,
) -> timing.Row:
    """Make a row of figures, of which none was dropped, and their target at most."""
    more |= {"at_most": True, "error": error}
    return timing.Row(label, unit, figures, len(figures), most, **more)


def best_row(
    label: str, call: Callable[[], object], error: float, repeats: int
) -> timing.Row:
    best = [float(seconds) for (seconds,) in least([call], repeats)]
    figures = [seconds * 1e6 for seconds in best]
    return row_of(label, "us", figures, TARGETS.get(label), error, seconds=min(best))


def forward_row(label: str, row: Row, repeats: int) -> timing.Row:
    inputs = inputs_of(row)
    call = partial(row.relpos, **inputs)
    error = timing.check_error(call(), row.reference(**exactly(inputs)), label)
    return best_row(label, call, error, repeats)


def over_attention_row(label: str, row: Row, repeats: int) -> timing.Row:
    """Measure the difference of the least times of a scheme and of `attention`."""
    inputs = inputs_of(row)
    scheme = partial(row.relpos, **inputs)
    plain = partial(relpos.attention, **inputs, **SETTINGS[row.scheme](inputs))
    error = timing.check_error(scheme(), plain().astype(np.float64), label)
    more = [float(a - b) * 1e6 for a, b in least((scheme, plain), repeats)]
    return row_of(label, "us", more, OVER_ATTENTION, error)


def both_row(label: str, row: Row, repeats: int) -> timing.Row:
    gradients: Any = row.gradients
    inputs = inputs_of(row)
    shape = row.relpos(**inputs).shape
    grad_out = draw(np.random.default_rng(1), np.float32, *shape)
    call = partial(gradients.relpos, grad_out, **inputs)
    expected = gradients.reference(grad_out.astype(np.float64), **exactly(inputs))
    got, limits = call(), GRADIENT_LIMIT
    error = max(
        timing.check_error(got[name], expected[name], f"{label}, {name}", limits)
        for name in expected
    )
    return best_row(label, call, error, repeats)


def ratio_row(
    label: str,
    calls: tuple[Callable[[], object], Callable[[], object]],
    most: float | None,
    error: float,
    repeats: int,
) -> timing.Row:
    """Measure the least time of the first call over that of the second."""
    ratios = [float(a / b) for a, b in least(calls, repeats)]
    return row_of(label, "x", ratios, most, error)


def tensors_row(label: str, name: str, length: int, repeats: int) -> timing.Row:
    """Measure a scheme on tensors over the plain call, and this over torch's."""
    import torch

    import relpos.torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(length)
    shapes = {
        "rel_bias": (8, 2 * length - 1),
        "pos_bias_u": (8, 64),
        "pos_bias_v": (8, 64),
    }
    function, tables = TENSORS.get(name, ("attention", ()))
    rows = length if name == "Music" else 2 * length - 1
    arrays = {
        n: draw(rng, np.float32, *shapes.get(n, (rows, 64))) for n in sorted(tables)
    }
    tokens = [draw(rng, np.float32, 1, 8, length, 64) for _ in range(3)]
    keywords = {n: torch.from_numpy(x) for n, x in arrays.items()}
    args = [torch.from_numpy(x) for x in tokens]
    scheme = partial(getattr(relpos.torch, function), *args, **keywords)
    other: Callable[[], object] = partial(relpos.torch.attention, *args)
    if not tables:
        other = partial(torch.nn.functional.scaled_dot_product_attention, *args)
    exact = getattr(relpos, function)(
        *(x.astype(np.float64) for x in tokens), **exactly(arrays)
    )
    error = timing.check_error(scheme().numpy(), exact, label)
    most = OVER_PLAIN if tables else TENSOR_LENGTHS[length]
    return ratio_row(label, (scheme, other), most, error, repeats)


def loop_row(
    label: str, names: tuple[str, ...], length: int, of_loops: bool, repeats: int
) -> timing.Row:
    """Measure a call over the loop in C, or this with tables over it without."""
    rng = np.random.default_rng(length)
    tokens = [draw(rng, np.float32, 8, length, 64) for _ in range(3)]
    tables = {name: draw(rng, np.float32, 2 * length - 1, 64) for name in names}
    loop = plain_loops.attend(*tokens, **tables)
    call = partial(relpos.attention, *tokens, **tables, num_threads=1)
    wide = [x.astype(np.float64) for x in tokens]
    exact = reference.attention(*wide, **exactly(tables))
    error = timing.check_error(call(), exact, label)
    calls = (loop, plain_loops.attend(*tokens)) if of_loops else (call, loop)
    return ratio_row(label, calls, None, error, repeats)


def layer_row(label: str, length: int, repeats: int) -> timing.Row:
    """Measure a layer of torch with Shaw's tables over the same without positions."""
    import torch

    from relpos.torch.nn import RelativeMultiheadAttention

    torch.set_num_threads(1)
    x = torch.from_numpy(draw(np.random.default_rng(0), np.float32, 1, length, 512))
    shaw = RelativeMultiheadAttention(
        512, 8, batch_first=True, position="shaw", max_relative_position=length - 1
    ).eval()
    plain = RelativeMultiheadAttention(512, 8, batch_first=True, position=None).eval()
    calls = partial(shaw, x, x, x), partial(plain, x, x, x)
    with torch.no_grad():
        wide = x.double()
        exact = shaw.double()(wide, wide, wide)[0].numpy()
        shaw.float()
        error = timing.check_error(calls[0]()[0].numpy(), exact, label)
        return ratio_row(label, calls, OVER_PLAIN, error, repeats)


def import_row(label: str, repeats: int) -> timing.Row:
    """Measure the import, each in a process of its own."""
    code = (
        "import time, numpy; begin = time.process_time(); import relpos; "
        "print(time.process_time() - begin)"
    )
    command, count = [sys.executable, "-c", code], max(5, repeats // 5)
    times = [
        float(subprocess.run(command, capture_output=True, check=True).stdout)
        for _ in range(count)
    ]
    return row_of(label, "ms", [x * 1e3 for x in times], None, 0.0)


def make_plan(isas: list[str], full: bool) -> timing.Plan:
    rows = timing.Rows(full, 100, 10)
    for row in ROWS:
        rows.add(row.name, forward_row, row)
        if row.gradients is not None:
            rows.add(f"{row.name} and backward", both_row, row)
        if row.scheme in SETTINGS:
            rows.add(f"{row.name} over attention", over_attention_row, row)
    rows.add("import relpos", import_row)
    for length, (name, tables) in product(LOOP_LENGTHS, LOOPS.items()):
        label = f"L {length}, {name} over the loop"
        rows.add(label, loop_row, tables, length, False)
        if tables:
            label = f"loop, L {length}, {name} over plain"
            rows.add(label, loop_row, tables, length, True)
    if importlib.util.find_spec("torch") is None:
        return rows
    for length in TENSOR_LENGTHS:
        for name in ("plain over torch's", *TENSORS):
            rows.add(f"torch, L {length}, {name}", tensors_row, name, length)
        label = f"torch, L {length}, RelativeMultiheadAttention with Shaw"
        rows.add(label, layer_row, length)
    return rows
