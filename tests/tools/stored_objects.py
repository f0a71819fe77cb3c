"""State files of layers as users keep them, and the numbers that these layers give.

    python tests/tools/stored_objects.py

adds to tests/stored/arrays.tar.xz and tests/stored/tensors.tar.xz what they do not have
yet, of the relpos that it imports. What is there was written by relpos 0.3.0 with NumPy
2.4 and PyTorch 2.13, and later releases must read it: so it is written again only
with ``--again``, where a release breaks what users have stored and says so in
CHANGELOG.md.

A layer has two entries: ``state``, its state_dict by `numpy.savez` or `torch.save`; and
``numbers``, arrays in a file of `numpy.savez`. The numbers are computed by `portable`
kernels and are the same bits on every x86-64 CPU, except where a function of NumPy or
of PyTorch has other bits: the fingerprint of the file tells.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from relpos import _core, nn
from relpos._settings import use_isa

STORE = Path(__file__).resolve().parents[1] / "stored"


class Case(NamedTuple):
    """A layer of the store: how it is made, and the numbers that it computes."""

    make: Callable[[], Any]
    ask: Callable[[Any], Any]


@contextmanager
def portable() -> Iterator[None]:
    """Run the kernels that every CPU has, also for the products of layers."""
    base = _core.by_isa["base"]
    with use_isa("base"), mock.patch.object(_core, "gemm", base.gemm_tiles):
        yield


def draw(*shape: int, seed: int = 0) -> Any:
    """Return multiples of 1/32 from -1 to 1, which no random generator can change."""
    steps = np.arange(int(np.prod(shape)), dtype=np.int64) + 977 * seed
    numbers = ((steps * 1103515245 + 12345) >> 9) % 64 / 32 - 1
    return numbers.reshape(shape).astype(np.float32)


def flat(value: Any) -> list[Any]:
    """Return the arrays in nested results, in order, without those that are None."""
    if isinstance(value, list | tuple):
        return [array for item in value for array in flat(item)]
    if hasattr(value, "detach"):
        return [value.detach().numpy()]
    return [] if value is None else [np.asarray(value)]


# ---- layers, on arrays and on tensors -----------------------------------------------

X, Y = (2, 3, 6), (2, 3, 4)  # batch, length, width
#: The positions of an attention by name, with their smallest sizes.
POSITIONS: list[dict[str, Any]] = [
    {"position": None},
    {"position": "shaw", "max_relative_position": 2},
    {"position": "music", "max_len": 4, "is_causal": False},
    {"position": "music", "max_len": 4, "is_causal": True},
    {"position": "transformer_xl"},
    {"position": "t5", "num_buckets": 8, "max_distance": 6},
    {"position": "alibi"},
    {"position": "kerple"},
    {"position": "rope"},
    {"position": "fire", "width": 4},
]
#: Sizes of a layer, and inputs of a call: shapes, or the inputs themselves. A function
#: makes a part, anew for each layer.
LAYERS: dict[str, tuple[tuple[Any, ...], list[Any]]] = {
    "Linear": ((6, 4), [X]),
    "LayerNorm": ((6,), [X]),
    "Embedding": ((9, 6), [np.arange(5) % 3]),
    "Dropout": ((0.5,), [X]),
    "ReLU": ((), [X]),
    "GELU": ((), [X]),
    "FeedForward": ((6,), [X]),
    "Residual": ((lambda: nn.Linear(6, 6, rng=0),), [X]),
    "Sequential": ((lambda: nn.Linear(6, 4, rng=0), nn.ReLU), [X]),
    "LearnedAPE": ((9, 6), [X]),
    "SinusoidalEncoding": ((6,), [X]),
    "ConvPositionEmbedding": ((6, 4, 3), [X]),
    "RelativeGlobalAttention": ((6, 2, 8, 0.0), [X]),
    "ShawAttention": ((6, 2, 3), [X, X, X]),
    "MultiheadAttention": ((4, 2), [Y]),
    "RelativeMultiheadAttention": ((4, 2), [Y, Y, Y]),
    "TransformerLayer": ((4, 2, 4), [Y]),
    "RelPartialLearnableMultiHeadAttn": ((2, 6, 3, 0.0), [X, (4, 6)]),
    "ConformerRelPositionAttention": ((6, 2), [X, X, X, (5, 6)]),
    "Rotary": ((6,), [X]),
    "ALiBi": ((2,), [5]),
    "KERPLE": ((2,), [5]),
    "T5Bias": ((2, 8), [5]),
    "LearnedBias": ((2, 3), [5]),
    "FIRE": ((2, 4), [5]),
    "DynamicPositionBias": ((5, 2, 2), [5]),
}
#: Further arguments that change the names, the shapes or the use of a state. `inputs`
#: is none: these replace the inputs above.
FORMS: dict[str, list[dict[str, Any]]] = {
    "Linear": [{}, {"bias": False}, {"dtype": "float64"}],
    "FeedForward": [{}, {"activation": "gelu"}],
    "Residual": [{}, {"norm": lambda: nn.LayerNorm(6), "pre_norm": False}],
    "SinusoidalEncoding": [{}, {"layout": "concat"}],
    "ShawAttention": [
        {},
        {"per_head": True},
        {"use_keys": False},
        {"use_values": False},
    ],
    "MultiheadAttention": [
        *POSITIONS,
        {"bias": False},
        {"position": "shaw", "per_head": True, "use_values": False},
        {"position": "shaw", "use_keys": False},
        {"position": "music", "max_len": 4, "is_causal": True, "per_head": True},
        {"position": "alibi", "learned": True},
        {"position": lambda: nn.LearnedBias(2, 2, rng=0)},
        {"position": lambda: nn.DynamicPositionBias(4, 2, 1, rng=0)},
    ],
    "RelativeMultiheadAttention": [
        *POSITIONS,
        {"position": "deberta", "max_relative_position": 4, "num_buckets": 4},
        {"bias": False, "batch_first": True},
        {"kdim": 6, "vdim": 5, "inputs": [Y, X, (2, 3, 5)]},
    ],
    "TransformerLayer": [*POSITIONS, {"activation": "gelu", "pre_norm": False}],
    "RelPartialLearnableMultiHeadAttn": [
        {},
        {"pre_lnorm": True},
        {"r_w_bias": 0, "r_r_bias": 0, "inputs": [X, (4, 6), (2, 3), (2, 3)]},
    ],
    "ALiBi": [{}, {"learned": True}],
    "T5Bias": [{}, {"bidirectional": False}],
    "DynamicPositionBias": [{}, {"log_distance": True}],
}


def layers(room: Any, run: Callable[..., Any]) -> Iterator[tuple[str, Case]]:
    """Yield each layer of relpos.nn or of relpos.torch.nn, in each of its forms."""
    for kind in [kind for kind in LAYERS if kind in room.__all__]:
        sizes, inputs = LAYERS[kind]
        for form in FORMS.get(kind, [{}]):
            options = dict(form)
            ask = partial(run, inputs=options.pop("inputs", inputs))
            shown = ", ".join(
                f"{name}={type(value()).__name__ if callable(value) else value}"
                for name, value in options.items()
            )
            make = partial(layer_of, room, kind, sizes, options)
            yield f"{room.__name__}.{kind}({shown})", Case(make, ask)


def layer_of(room: Any, kind: str, sizes: Any, options: dict[str, Any]) -> Any:
    """Return a layer with numbers in every table, also where a bias begins with 0."""
    parts = [value() if callable(value) else value for value in sizes]
    given = {k: value() if callable(value) else value for k, value in options.items()}
    if room is nn and kind != "Sequential":
        given["rng"] = 0
    layer = getattr(room, kind)(*parts, **given)
    for seed, parameter in enumerate(layer.parameters()):
        if parameter.data.ndim:
            numbers = draw(*parameter.data.shape, seed=seed) / 2
            parameter.data[...] = (
                numbers if room is nn else type(parameter.data)(numbers)
            )
    return layer


def run_arrays(layer: Any, inputs: list[Any]) -> Any:
    """Return the output, the gradients of the inputs and those of the parameters."""
    layer.zero_grad()
    out = layer(*_inputs(inputs))
    grads = layer.backward(draw(*out.shape, seed=9))
    return out, grads, [parameter.grad for parameter in layer.parameters()]


def run_tensors(module: Any, inputs: list[Any]) -> Any:
    """Return the same of a module, which may return attention weights beside."""
    import torch

    tensors = [
        torch.tensor(x, requires_grad=True) if isinstance(x, np.ndarray) else x
        for x in _inputs(inputs)
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums of layer_norm depend on it
    try:
        out = module(*tensors)
        first = out[0] if isinstance(out, tuple) else out
        first.backward(torch.tensor(draw(*first.shape, seed=9)))
    finally:
        torch.set_num_threads(threads)
    return out, [getattr(x, "grad", None) for x in [*tensors, *module.parameters()]]


def _inputs(inputs: list[Any]) -> list[Any]:
    return [
        draw(*x, seed=i) if isinstance(x, tuple) else x for i, x in enumerate(inputs)
    ]


# ---- the two files ------------------------------------------------------------------

#: Words in the names of cases that call functions of NumPy whose bits vary.
OF_NUMPY = ("gelu", "GELU", "DynamicPositionBias", "KERPLE", "kerple")


def array_cases() -> dict[str, Case]:
    """Return what is stored without PyTorch, by name."""
    return dict(layers(nn, run_arrays))


def tensor_cases() -> dict[str, Case]:
    """Return what is stored of relpos.torch, by name."""
    import relpos.torch.nn

    return dict(layers(relpos.torch.nn, run_tensors))


def array_fingerprint() -> str:
    """Return a hash of what functions of NumPy give here."""
    x = draw(9, 33) + np.float32(1.5)
    found = [f(y) for y in (x, x.astype(float)) for f in (np.exp, np.tanh, np.log2)]
    return hashlib.sha256(b"".join(y.tobytes() for y in found)).hexdigest()


def tensor_fingerprint() -> str:
    """Return a hash of PyTorch's version, kind of CPU and products."""
    import torch

    kind = (
        f"{torch.__version__.split('+')[0]} {torch.backends.cpu.get_cpu_capability()}"
    )
    bits = hashlib.sha256(kind.encode())
    for width in (3, 4, 5, 6, 8, 12):
        x, weight = torch.tensor(draw(6, width) / 3), torch.tensor(draw(9, width) / 3)
        y = torch.nn.functional.linear(x, weight)
        for product in (y, y @ weight, y.T @ x):
            bits.update(product.numpy().tobytes())
    return bits.hexdigest()


def entries(cases: dict[str, Case], save: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each entry of a file."""
    for name, case in cases.items():
        with portable():
            layer = case.make()
            yield f"{name}/state", _written(save, layer.state_dict())
            numbers = flat(case.ask(layer))
        yield f"{name}/numbers", _written(lambda x, file: np.savez(file, *x), numbers)


def numbers_of(content: bytes) -> list[Any]:
    """Return the arrays of an entry of numbers, in their order."""
    with np.load(io.BytesIO(content)) as file:
        return [file[f"arr_{number}"] for number in range(len(file.files))]


def _written(write: Any, thing: Any) -> bytes:
    file = io.BytesIO()
    write(thing, file)
    return file.getvalue()


def read(path: Path) -> dict[str, bytes]:
    """Return the entries of a file by name, its fingerprint among them."""
    with tarfile.open(path) as archive:
        return {x.name: archive.extractfile(x).read() for x in archive.getmembers()}


def write(path: Path, contents: dict[str, bytes]) -> None:
    """Write the contents, in the order of their names."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for name in sorted(contents):
            member = tarfile.TarInfo(name)
            member.size = len(contents[name])
            archive.addfile(member, io.BytesIO(contents[name]))


def main() -> None:
    """Add to both files, or write them again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="replace what is there")
    again = parser.parse_args().again
    import torch

    def save(state: Any, file: Any) -> None:
        np.savez(file, **state)

    for kind, found, fingerprint in (
        ("arrays", entries(array_cases(), save), array_fingerprint()),
        ("tensors", entries(tensor_cases(), torch.save), tensor_fingerprint()),
    ):
        path = STORE / f"{kind}.tar.xz"
        new = {**dict(found), "fingerprint": fingerprint.encode()}
        before = {} if again or not path.exists() else read(path)
        if before.get("fingerprint", new["fingerprint"]) != new["fingerprint"]:
            sys.exit(f"{path.name}: the libraries or the CPU are not those it is of")
        write(path, new | before)
        print(f"{path.name}: {len(new.keys() - before.keys())} new entries")


if __name__ == "__main__":
    main()
