"""Every allocation of every entry fails once: MemoryError, and nothing stays behind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from operand_arrays import FLOATING, others
from public_calls import call_ufunc

import relpos
from relpos import _core
from relpos._settings import kernels

RNG = np.random.default_rng(11)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def everything(num_threads, **returned):
    """All operands of attention_forward at once."""
    q, k, v = normal(2, 4, 70, 8), normal(2, 2, 90, 8), normal(2, 2, 90, 5)
    keywords = {
        "attn_mask": normal(2, 1, 70, 90),
        "is_causal": True,
        "enable_gqa": True,
        "query_offset": np.array([20, 3]),
        "rel_key": normal(4, 31, 3),
        "rel_query": normal(31, 8),
        "rel_value": normal(31, 5),
        "rel_bias": normal(4, 31),
        "pos_bias_u": normal(8),
        "pos_bias_v": normal(4, 3),
        "position_query": normal(2, 4, 70, 3),
        "sinks": normal(4),
        "log_decay": normal(4, 90),
        "key_lengths": np.array([90, 44]),
        "window": (60, 60),
        "dropout_p": 0.1,
        "rng": 5,
        "num_threads": num_threads,
    }
    given = {"query": q, "key": k, "value": v, **keywords}
    lengths = {"H": 4, "q": 70, "k": 90, "t": 90, "D": 8, "V": 5, "P": 3}
    keywords |= {n: np.float32(x) for n, x in others(given, RNG, lengths, 31).items()}
    returned = returned or {"return_lse": True, "return_weights": True}
    return lambda: relpos.attention(q, k, v, **keywords, **returned)


def gradients(num_threads):
    """All operands of attention_backward at once."""
    result = everything(num_threads, return_lse=True, return_context=True)()
    grads = {"grad_out": normal(*result.out.shape), "grad_lse": normal(2, 4, 70)}
    grads |= {"wrt": FLOATING, "num_threads": num_threads}
    return lambda: result.context.backward(**grads)


def plain(query_length, num_threads):
    q, k = normal(3, query_length, 16), normal(3, 300, 16)
    return lambda: relpos.attention(q, k, k, num_threads=num_threads)


def waves(num_threads, **returned):
    """Slices in waves of one, or with three threads of one head; a table per head."""
    q, k, v = normal(3, 4, 20, 64), normal(3, 2, 600, 64), normal(3, 2, 600, 40)
    keywords = {"rel_key": normal(4, 639, 64), "query_offset": 5, "enable_gqa": True}
    keywords |= returned | {"num_threads": num_threads}
    return lambda: relpos.attention(q, k, v, **keywords)


def wave_gradients(num_threads):
    result = waves(num_threads, return_context=True)()
    grads = {"grad_out": normal(*result.out.shape), "num_threads": num_threads}
    return lambda: result.context.backward(**grads)


def few_queries_in_waves(num_threads):
    """Partial results of seven slices on one thread are half a megabyte."""
    q, k, v = normal(20, 64, 1, 8), normal(20, 1, 5, 8), normal(20, 1, 5, 256)
    options = {"enable_gqa": True, "num_threads": num_threads}
    return lambda: relpos.attention(q, k, v, **options)


def labelled(num_threads):
    q, labels = normal(2, 40, 8), RNG.integers(-1, 9, (40, 40)).astype(np.int16)
    keywords = {"rel_key": normal(9, 3), "position_query": normal(2, 40, 3)}
    keywords |= {"rel_query": normal(9, 8), "labels": labels}
    return lambda: relpos.attention(q, q, q, **keywords, num_threads=num_threads)


def rotated(num_threads):
    x, positions = normal(3, 200, 66), np.arange(600.0).reshape(3, 200)

    def call():
        with relpos.threads(num_threads):
            return relpos.apply_rotary(x, positions)

    return call


def graph(num_threads, **returned):
    """A graph with labels, keys and values per head."""
    arrays = normal(2, 3, 40, 8), normal(2, 3, 30, 8), normal(2, 3, 30, 5)
    edges = np.arange(41) * 4, RNG.integers(0, 30, 160), RNG.integers(-1, 9, 160)
    tables = {"rel_key": normal(3, 9, 9), "rel_value": normal(9, 5)}
    tables["position_query"] = normal(2, 3, 40, 9)
    keywords = tables | returned | {"num_threads": num_threads}
    return lambda: relpos.graph_attention(*arrays, *edges, **keywords)


def graph_gradients(num_threads):
    result = graph(num_threads, return_context=True)()
    grad_out = normal(*result.out.shape)
    return lambda: result.context.backward(grad_out, num_threads=num_threads)


def fire(query_length, num_threads, labels=None):
    """FIRE's bias with offsets per item; with labels, in the engine of rows."""
    q, k = normal(2, 2, query_length, 8), normal(2, 2, 90, 8)
    keywords = {"query_offset": np.array([20, 3]), "num_threads": num_threads}
    if labels:
        rows = RNG.integers(-1, 9, (query_length, 90)).astype(np.int16)
        keywords |= {"labels": rows, "rel_query": normal(9, 8)}
    network = normal(4), normal(4), normal(2, 4), normal(2), 0.3, 5.0
    return lambda **returned: relpos.fire_attention(
        q, k, k, *network, **keywords, **returned
    )


def fire_gradients(query_length, num_threads, labels=None):
    result = fire(query_length, num_threads, labels)(return_context=True)
    grads = {"grad_out": normal(*result.out.shape), "num_threads": num_threads}
    return lambda: result.context.backward(**grads)


def products(num_threads):
    a = normal(300, 300)
    return lambda: kernels().gemm_tiles(a, a, num_threads)


def ufunc(name):
    """A call of the gufunc `name`, of two items."""
    function = getattr(kernels(), name)
    if name == "rotary":  # an item for each layout
        tokens, angles = normal(2, 5, 8), normal(3, 5, 4)
        return lambda: function(tokens, np.arange(5), *angles, [0, 1])
    return lambda: call_ufunc(function, 0, by_shape, lead=(2,), **SIZES)


SIZES = {"q": 40, "k": 40, "s": 40, "r": 79, "d": 8}


def by_shape(*shape, dtype):
    """Return the same numbers in every call."""
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


UFUNCS = [
    name
    for name, entry in vars(_core.by_isa[_core.isa]).items()
    if isinstance(entry, np.ufunc)
]

CALLS = {f"attention-{n}": (everything, n) for n in (1, 3)}
CALLS |= {f"gradients-{n}": (gradients, n) for n in (1, 3)}
CALLS |= {f"plain-{lq}-{n}": (plain, lq, n) for lq in (1, 150) for n in (1, 3)}
for n in (1, 3):
    CALLS[f"waves-{n}"] = waves, n
    CALLS[f"waves-gradients-{n}"] = wave_gradients, n
    CALLS[f"waves-few-{n}"] = few_queries_in_waves, n
CALLS |= {"labels": (labelled, 2), "gemm": (products, 2)}
CALLS |= {f"rotary-{n}": (rotated, n) for n in (1, 3)}
CALLS |= {f"graph-{n}": (graph, n) for n in (1, 3)}
CALLS |= {f"graph-gradients-{n}": (graph_gradients, n) for n in (1, 3)}
CALLS |= {f"fire-{lq}-{n}": (fire, lq, n) for lq in (1, 70) for n in (1, 3)}
CALLS |= {f"fire-gradients-{n}": (fire_gradients, 70, n) for n in (1, 3)}
CALLS |= {"fire-labels": (fire, 9, 1, True)}
CALLS |= {"fire-labels-gradients": (fire_gradients, 9, 1, True)}
CALLS |= {f"ufunc-{name}": (ufunc, name) for name in UFUNCS}


def equal(got, want):
    """Return True if two results are equal bit by bit; a None field is no output."""
    if not isinstance(got, tuple):
        got, want = (got,), (want,)
    return all(
        a is b is None or np.array_equal(a, b) for a, b in zip(got, want, strict=True)
    )


@pytest.mark.devmode
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_every_failing_allocation_is_a_memory_error(isa, name, forever):
    make, *arguments = CALLS[name]
    call = make(*arguments)
    want, blocks = call(), _core.live_blocks()
    for point in itertools.count(1):
        _core.fail_at(point, False)
        try:
            got = call()
        except MemoryError:
            got = None
        finally:
            reached = _core.fail_at(0, False) == 0
        assert _core.live_blocks() == blocks
        # a thread that could not be started is no failure: fewer do the work
        assert got is None or equal(got, want)
        if not reached:
            break
        if forever and got is None:
            _core.fail_at(point, True)
            try:
                with pytest.raises(MemoryError):
                    call()
            finally:
                _core.fail_at(0, False)
            assert _core.live_blocks() == blocks
    assert point > 1 or name.startswith("ufunc")  # every other call needs memory
    assert equal(call(), want)


def test_no_thread_can_be_started(child):
    script = """
import numpy as np
from relpos import _core
a = np.random.default_rng(0).standard_normal((400, 300))
tiles = _core.by_isa[_core.isa].gemm_tiles
want = tiles(a, a.T, 1)
_core.fail_at(2, True)  # the scratch of the call is the first allocation
got = tiles(a, a.T, 4)
assert _core.fail_at(0, False) == 1, "pthread_create was not reached"
assert np.array_equal(got, want)
assert np.array_equal(tiles(a, a.T, 4), want)
"""
    child(script)


@pytest.mark.devmode
@pytest.mark.parametrize("name", [name for name in CALLS if name != "gemm"])
def test_no_spurious_floating_point_error(isa, name):
    make, *arguments = CALLS[name]
    with np.errstate(all="raise"):
        make(*arguments)()


@pytest.mark.devmode
def test_underflow_inside_a_kernel_is_not_reported(isa):
    """Probabilities of far keys underflow to zero; NumPy checks after every ufunc."""
    q, table = 100 * normal(2, 40, 8), normal(81, 8)
    for threads in (1, 3):
        with relpos.threads(threads), np.errstate(all="raise"):
            kernels().shaw_attention(q, q, q, table, table)
