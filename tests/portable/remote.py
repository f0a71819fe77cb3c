"""Kernels in another process: the C core for another processor, under emulation.

`Remote` stands where a kernel table stands (`relpos._core.by_isa`): operands go to the
driver (driver.c) as flat bytes in its byte order, and what it writes comes back into
the arrays. The rest (checks, sums over positions) is done by a table of this process.
"""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import numpy as np

from relpos import _core

KINDS = ("attention_forward", "attention_backward", "graph_forward", "graph_backward")
LOOP = len(KINDS)
MAGIC = 0x72656C706F733031
VECTORS = (
    "query_offset",
    "key_lengths",
    "part_items",
    "indptr",
    "indices",
    "edge_labels",
    "buckets",
)
UNBOUNDED = 2**63 - 1
DEFAULTS = {"window_left": UNBOUNDED, "window_right": UNBOUNDED}
BLOCKS = ("block_heads", "block_queries", "block_keys")
DEFAULTS |= dict.fromkeys(BLOCKS, 1)
MASKS = {"b": 1, "f": 2, "d": 3}  # RP_MASK_BOOL, ..
FAILED = {1: MemoryError("the driver is out of memory")}
PART = ("part_query", "part_key", "part_head", "part_key_heads", "part_has_more_keys")
LETTERS = {
    "B": None, "H": "H", "Hk": "K", "Lq": "q", "Lk": "k", "D": "D", "Dv": "V",
    "Dp": "P", "rel_key_rows": "A", "rel_query_rows": "C", "rel_value_rows": "W",
    "rel_bias_rows": "B", "log_decay_rows": "t", "ranges": "F", "groups": "g",
    "picks": "n", "buckets": None,
}  # fmt: skip
SCALARS = {
    "first": "min_relative_position", "bias_first": "min_bias_position",
    "window_left": "window_left", "window_right": "window_right",
    "fire_signed": "fire_signed", "beyond": "beyond", "weigh_all": "weigh_all",
    "threads": "num_threads", "seed": "seed", "scale": "scale", "softcap": "softcap",
    "dropout_p": "dropout_p", **{name: name for name in (*BLOCKS, *PART)},
}  # fmt: skip
HEADER = [
    ("magic", "u8"), ("kind", "i8"), ("dtype", "i8"), ("arrays", "i8"),
    ("loop", "i8"), ("dimensions", "i8", 16),
    *((name, "i8") for name in LETTERS), ("edges", "i8"),
    *((name, "i8") for name in ("first", "bias_first", "window_left", "window_right")),
    *((name, "i8") for name in BLOCKS),
    *((name, "i8") for name in ("fire_signed", "beyond", "weigh_all", "mask_type")),
    ("threads", "i8"), ("seed", "u8"),
    *((name, "i8") for name in PART),
    ("scale", "f8"), ("softcap", "f8"), ("dropout_p", "f8"),
]  # fmt: skip
#: In the order of the table of an object.
LOOPS = re.findall(
    r"^RP_UFUNC\(\s*(\w+)",
    (Path(__file__).parents[2] / "csrc" / "ufuncs.h").read_text("utf-8"),
    re.MULTILINE,
)
ARRAY = [
    ("name", "S32"), ("itemsize", "i8"), ("is_written", "i8"), ("shape", "i8", 4),
    ("steps", "i8", 8),
]  # fmt: skip


class Remote:
    """A kernel table behind a pipe.

    Parameters
    ----------
    command : list of str
        Starts the driver.
    byteorder : {"<", ">"}
        The driver's.
    local : Kernels
        Does what is not attention.
    """

    def __init__(self, command, byteorder, local):
        self.byteorder, self.local, self.calls = byteorder, local, 0
        pipe = subprocess.PIPE
        self.driver = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        self.header = np.dtype(HEADER).newbyteorder(byteorder)
        self.array_header = np.dtype(ARRAY).newbyteorder(byteorder)

    def __getattr__(self, name):
        if name in LOOPS:
            return partial(self._call, name)
        return getattr(self.local, name)

    def attend(self, *args):
        """Leave the call to Python, which asks for one of those below."""

    def attention_forward(self, operands):
        self._attend(operands, 0)

    def attention_backward(self, operands):
        self._attend(operands, 1)

    def apply_rotary(self, x, out, positions, high, low, magnitude, interleaved, _):
        """By the loop of the gufunc, which is the same kernel."""
        angles = (positions[..., 0], high, low, magnitude, int(interleaved))
        out[...] = self._call("rotary", x, *angles)

    def close(self):
        """End the driver; its status says whether it freed all that it took."""
        self.driver.stdin.close()
        return self.driver.wait(60)

    # ---- attention -----------------------------------------------------------------

    def _attend(self, operands, direction):
        present = {name: x for name, x in operands.items() if x is not None}
        arrays = {name: x for name, x in present.items() if isinstance(x, np.ndarray)}
        sizes, batch = letters(arrays), arrays["out"].shape[:-3]
        arrays = {
            n.removesuffix("[0]"): spread(n, x, sizes, batch) for n, x in arrays.items()
        }
        head = np.zeros((), self.header)
        is_graph = "indptr" in arrays or "key_indices" in arrays
        head["kind"] = direction + (2 if is_graph else 0)
        head["dtype"] = arrays["query"].dtype == np.float64
        for field, letter in LETTERS.items():
            head[field] = sizes.get(letter, sizes["D"] if field == "Dp" else 0)
        head["B"] = items = int(np.prod(batch))
        head["buckets"] = arrays["buckets"].size if "buckets" in arrays else 0
        head["edges"] = arrays["indices"].size if "indices" in arrays else 0
        for field, name in SCALARS.items():
            head[field] = present.get(name, DEFAULTS.get(name, 0))
        if "attn_mask" in arrays:
            head["mask_type"] = MASKS[arrays["attn_mask"].dtype.char.replace("?", "b")]
        if items == 0 or sizes["H"] == 0 or nothing_to_do(arrays, direction):
            return
        parts = []
        for name, array in arrays.items():
            written = name not in VECTORS and is_written(name, direction)
            parts.append(self._pack(name, array, len(batch), written))
        self._exchange(head, parts)

    def _pack(self, name, array, batch_ndim, written):
        """(view that holds each element once, header and map, is it written)."""
        head = np.zeros((), self.array_header)
        head["name"], head["itemsize"] = name, array.itemsize
        head["is_written"] = written
        if name in VECTORS:
            head["shape"] = (1, 1, 1, array.size)
            return array, head, None, written
        own = tuple(
            slice(0, 1) if stride == 0 and length > 1 else slice(None)
            for stride, length in zip(array.strides, array.shape, strict=True)
        )
        once = array[own]
        differ = once.shape[:batch_ndim]
        numbers = np.arange(np.prod(differ, dtype=int)).reshape(differ)
        batch = np.broadcast_to(numbers, array.shape[:batch_ndim]).ravel()
        head["shape"] = (numbers.size, *once.shape[batch_ndim:])
        return once, head, batch, written

    # ---- gufuncs -------------------------------------------------------------------

    def _call(self, name, *inputs, **keywords):
        """A gufunc: shapes by the local one, numbers by the driver."""
        ufunc = getattr(self.local, name)
        inputs = [np.array(x) for x in inputs]  # copies: outputs may lie in them
        results = ufunc(*inputs, **keywords)
        outputs = list(results if isinstance(results, tuple) else (results,))
        shown = [np.array(x) for x in outputs]
        axes = core_axes(ufunc.signature)
        kinds = types_of(ufunc, [x.dtype.char for x in shown])
        arrays = [
            np.ascontiguousarray(x).astype(kind)
            for x, kind in zip([*inputs, *shown], kinds, strict=True)
        ]
        for array in arrays[len(inputs) :]:
            array.fill(np.nan)
        outer = [x.shape[: x.ndim - len(c)] for x, c in zip(arrays, axes, strict=True)]
        shape = np.broadcast_shapes(*outer)
        for at in np.ndindex(shape):
            turn = [
                x[*np.minimum(at[len(at) - len(o) :], np.array(o, int) - 1), ...]
                for x, o in zip(arrays, outer, strict=True)
            ]
            self._turn(name, turn, axes, len(inputs))
        for to, got in zip(outputs, arrays[len(inputs) :], strict=True):
            if isinstance(to, np.ndarray):
                to[...] = got
        if isinstance(results, np.ndarray | tuple):
            return results
        return arrays[-1][()]

    def _turn(self, name, arrays, axes, count):
        """One turn of the loop: contiguous arrays of core shapes."""
        head = np.zeros((), self.header)
        head["kind"], head["dtype"] = LOOP, arrays[-1].dtype == np.float64
        head["loop"] = LOOPS.index(name)
        sizes = {}
        for array, letters_ in zip(arrays, axes, strict=True):
            sizes |= dict(zip(letters_, array.shape, strict=True))
        order = list(dict.fromkeys(letter for of in axes for letter in of))
        head["dimensions"][: len(order) + 1] = [1, *(sizes[x] for x in order)]
        parts = []
        for number, array in enumerate(arrays):
            part = np.zeros((), self.array_header)
            part["name"], part["itemsize"] = f"{number}", array.itemsize
            part["is_written"] = number >= count
            part["shape"] = (1, 1, 1, array.size)
            part["steps"] = -1
            part["steps"][: array.ndim] = array.strides
            parts.append((array, part, None, number >= count))
        self._exchange(head, parts)

    # ---- the pipe ------------------------------------------------------------------

    def _exchange(self, head, parts):
        head["magic"], head["arrays"] = MAGIC, len(parts)
        items = int(head["B"])
        message = [head.tobytes()]
        for array, part, batch, _ in parts:
            batch = np.zeros(items, int) if batch is None else batch
            message += [part.tobytes(), batch.astype(f"{self.byteorder}i8").tobytes()]
            message.append(array.astype(self._sent(array)).tobytes())
        self.driver.stdin.write(b"".join(message))
        self.driver.stdin.flush()
        self.calls += 1
        status = int(np.frombuffer(self._read(8), f"{self.byteorder}i8")[0])
        for array, _, _, written in parts:
            if written:
                sent = self._sent(array)
                got = np.frombuffer(self._read(array.size * array.itemsize), sent)
                array[...] = got.reshape(array.shape)
        if status:
            raise FAILED[status]

    def _sent(self, array):
        return array.dtype.newbyteorder(self.byteorder)

    def _read(self, count):
        data = self.driver.stdout.read(count)
        if len(data) != count:
            raise RuntimeError(f"the driver ended: status {self.driver.wait(60)}")
        return data


def letters(arrays):
    """Sizes by the letters of `_core.operands`."""
    sizes = {"1": 1}
    for name, array in arrays.items():
        if name not in VECTORS:
            own = shape_of(name, array).replace("1", "")
            for letter, size in zip(own[::-1], array.shape[::-1], strict=False):
                if sizes.get(letter, 1) == 1:  # which may be repeated, to 0 as well
                    sizes[letter] = size
    return sizes


def spread(name, array, sizes, batch):
    """View an operand as (*batch, heads, rows, columns)."""
    if name in ("query_offset", "key_lengths"):
        return np.array(np.broadcast_to(array, batch)).reshape(-1)
    if name in VECTORS:
        return array
    shape, own = _core.operands[name][0], shape_of(name, array)
    added = own[own.find("1") :] if "1" in own else ""
    view = array[(..., *(None if x == "1" else slice(None) for x in added))]
    return _core.broadcast_to(view, (*batch, *(sizes[x] for x in shape)))


def shape_of(name, array):
    """Letters of an operand's axes: sinks of one axis have a number for each head."""
    shape, *_, axes = _core.operands[name]
    return "H11" if axes == "heads" and array.ndim == 1 else shape


def core_axes(signature):
    """The letters of each operand of a gufunc."""
    return [
        [x for x in of.split(",") if x] for of in re.findall(r"\(([^)]*)\)", signature)
    ]


def types_of(ufunc, outputs):
    """The type of each operand, in the loop that has these outputs."""
    for types in ufunc.types:
        given, made = types.split("->")
        if list(made) == outputs:
            return given + made
    raise TypeError(f"{ufunc.__name__}: no loop gives {outputs}")


def is_written(name, direction):
    """Return True if the call writes it."""
    return "output" in _core.operands[name][1 + direction]


def nothing_to_do(arrays, direction):
    """Return True for a call that the extension never passes to a kernel."""
    query, key = arrays["query"], arrays["key"]
    if direction and (
        query.shape[-2] == 0 or (key.shape[-2] == 0 and "grad_sinks" not in arrays)
    ):
        return True
    return not any(
        x.size for name, x in arrays.items()
        if name not in VECTORS and is_written(name, direction)
    )  # fmt: skip
