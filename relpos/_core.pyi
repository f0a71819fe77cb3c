# The C extension: what its functions take is checked in C, and again by tests.

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
_Args: TypeAlias = tuple[object, ...]

class Kernels(Protocol):
    # The kernels of one instruction set; every ufunc has float32 and float64 loops.
    conv_encoding: np.ufunc
    conv_encoding_backward: np.ufunc
    gelu: np.ufunc
    learned: np.ufunc
    learned_backward: np.ufunc
    merge: np.ufunc
    rel_shift: np.ufunc
    rel_unshift: np.ufunc
    relative_global_attention: np.ufunc
    rotary: np.ufunc
    shaw_attention: np.ufunc
    shaw_scores: np.ufunc
    sinusoidal: np.ufunc
    skew: np.ufunc
    skewed_scores: np.ufunc
    transformer_xl_attention: np.ufunc
    transformer_xl_scores: np.ufunc
    unskew: np.ufunc

    def attention_forward(self, operands: dict[str, Any], /) -> list[Array]: ...
    def attention_backward(self, operands: dict[str, Any], /) -> list[Array]: ...
    def attend(
        self,
        args: _Args,
        keywords: dict[str, Any],
        threads: int,
        of_tensors: bool,
        keeps: bool,
        follows: bool,
        /,
    ) -> list[Any] | None: ...
    def attend_backward(
        self,
        names: tuple[str, ...],
        tensors: _Args,
        wanted: tuple[bool, ...],
        grads: _Args,
        values: dict[str, Any],
        threads: int,
        follows: bool,
        /,
    ) -> list[Array | None] | None: ...
    def attend_tensors(
        self,
        args: _Args,
        keywords: dict[str, Any],
        threads: int,
        record: Callable[..., Any] | None,
        /,
    ) -> Any: ...
    def attend_gradients(
        self, context: Any, grad_out: Any, grad_lse: Any, threads: int, /
    ) -> tuple[Any, ...] | None: ...
    def attention_bytes(self, operands: dict[str, Any], backward: bool, /) -> int: ...
    def apply_rotary(
        self,
        x: Array,
        out: Array,
        positions: Array,
        high: Array,
        low: Array,
        magnitude: Array,
        interleaved: bool,
        threads: int,
        /,
    ) -> None: ...
    def indexer_top_k(
        self,
        query: Array,
        key: Array,
        weights: Array,
        ranges: Array,
        mask: Array | None,
        keys: Array,
        threads: int,
        /,
    ) -> None: ...
    def learned_rows(self, table: Array, positions: Array, name: str, /) -> Array: ...
    def learned_sums(self, grad: Array, positions: Array, rows: int, /) -> Array: ...
    def index_rows(
        self, length: int, dim: int, dtype: str, divisor: float, /
    ) -> Array: ...
    def checksums(self, *arrays: Array) -> bytes: ...
    def has_zeros_and_ones(self, array: Array, /) -> bool: ...
    def gemm_tiles(self, a: Array, b: Array, threads: int, /) -> Array: ...
    def fma_loop(self, dtype: Literal["f", "d"], rounds: int, /) -> float: ...

by_isa: dict[str, Kernels]
isa: str
bfloat16: np.dtype[Any]
#: By name the letters, the roles in the forward and the backward, what numbers an array
#: has, and which axes it may lack.
operands: dict[str, tuple[str, str, str, str, str]]
compiler: str
max_threads: int

def get_num_threads() -> int: ...
def set_num_threads(n: int, /) -> None: ...
def set_threads_hook(callable: Callable[[], int], /) -> None: ...
def always_ask_threads() -> None: ...
def count_cpus() -> tuple[int, Literal["cgroup", "affinity"]]: ...
def blas_info() -> str: ...
def use_team(path: str, /) -> None: ...
def gemm(a: Array, b: Array, threads: int, /) -> Array: ...
def memory_of(array: Array, /) -> tuple[int, int, int]: ...
def broadcast_to(array: Array | np.generic, shape: tuple[int, ...], /) -> Array: ...
def read_operands(
    arguments: dict[str, Any],
    read: Callable[[str, object], Array],
    groups: bool,
    is_part: bool,
    /,
) -> tuple[
    dict[str, Array],
    tuple[int, ...],
    tuple[int, ...],
    tuple[str, str, int] | None,
]: ...
def apply_rules(
    inputs: dict[str, Array],
    numbers: tuple[
        int,  # beyond
        bool,  # is_causal
        int,  # left
        int,  # right
        int | None,  # first
        Array | None,  # buckets
        float | None,  # scale
        float | None,  # softcap
        tuple[int, int, bool] | None,  # fire
        bool,  # is_graph
        tuple[int, int] | None,  # block_size
    ],
    /,
) -> tuple[Any, ...]: ...
def know_tensors(tensor: type[Any], parameter: type[Any], /) -> bool: ...
def read_tensors(
    names: tuple[str, ...],
    values: Sequence[Any],
    read: Callable[[str, Any], Array],
    /,
) -> dict[str, Array]: ...
def keep_call(context: Any, call: object, results: _Args, /, *tensors: Any) -> Any: ...
def fail_at(n: int, forever: bool, /) -> int: ...
def live_blocks() -> int: ...
