"""Every peer gives what the definitions give, forward and backward, at ragged sizes."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.peers import PEERS, Skipped
from benchmarks.problems import problem_of
from relpos import reference

#: Of a result's error over its size, or over a tenth of what numbers of order 1
#: would have: with a single key gradients of weights are rounding errors of 0.
LIMIT = {"float32": 2e-5, "float64": 1e-12}


@pytest.fixture
def peer(request):
    """One that is installed; PyTorch's settings are put back after it."""
    if request.param.package:
        pytest.importorskip(request.param.package)
    yield request.param
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_flush_denormal(False)


@cache
def problem(scheme, is_causal, shape, mode):
    """A case, and its results by the definitions."""
    case = problem_of(scheme, is_causal, shape, mode)
    exact = {name: x.astype(np.float64) for name, x in case.arrays.items()}
    options = {**case.options}
    wanted = {"out": getattr(reference, case.function)(**exact, **options)}
    if mode == "fwdbwd":
        options["min_relative_position"] = case.table_start
        grads = reference.attention_backward(case.grad_out, **exact, **options)
        wanted |= {name: getattr(grads, name) for name in case.arrays}
    return case, wanted


def check(peer, dtype, *asked):
    """Compares every result of a case."""
    case, wanted = problem(*asked)
    arrays = {name: x.astype(dtype) for name, x in case.arrays.items()}
    case = replace(case, arrays=arrays)
    try:
        work = peer.prepare(case, asked[-1], 1)
    except Skipped as reason:
        pytest.skip(str(reason))
    work()
    found = work()  # the second time, in scratch that was used
    assert {*found} == {*wanted}
    for name, want in wanted.items():
        got = found[name]
        assert got.shape == want.shape
        size = max(np.linalg.norm(want), 0.1 * np.sqrt(want.size))
        assert np.linalg.norm(got - want) < LIMIT[got.dtype.name] * size, name


def these(peers):
    """Parametrize a test by peers; those of PyTorch run with the tests of tensors."""
    cases = []
    for peer in peers:
        marks = [pytest.mark.torch] if peer.package == "torch" else []
        cases.append(pytest.param(peer, id=peer.name, marks=marks))
    return pytest.mark.parametrize("peer", cases, indirect=True)


#: They take seconds for each shape, and share their expressions with others.
COMPILED = [x for x in PEERS if x.compiled or x.package == "jax"]
ready = these(x for x in PEERS if x not in COMPILED)
schemes = pytest.mark.parametrize("scheme", ["plain", "music", "xl", "shaw"])


@ready
@schemes
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mode", ["fwd", "fwdbwd"])
def test_a_peer_is_right(peer, scheme, is_causal, mode):
    for shape in (2, 3, 1, 16), (2, 2, 37, 16), (1, 2, 130, 16), (1, 1, 300, 16):
        for dtype in np.float64, np.float32:
            check(peer, dtype, scheme, is_causal, shape, mode)


@pytest.mark.few(1)
@these(COMPILED)
@pytest.mark.parametrize("mode", ["fwd", "fwdbwd"])
def test_a_compiled_peer_is_right(peer, mode):
    check(peer, np.float32, "music", True, (1, 2, 300, 16), mode)


@ready
@schemes
def test_a_peer_is_right_for_one_query(peer, scheme):
    for keys in 1, 5, 300:
        for dtype in np.float64, np.float32:
            check(peer, dtype, scheme, True, (2, 3, keys, 16), "decode")


def test_every_row_has_peers_of_numpy():
    """They need no package, so no row is without a peer."""
    case = problem_of("shaw", True, (1, 2, 24, 16), "fwdbwd")
    one = problem_of("shaw", True, (1, 2, 24, 16), "decode")
    asked = {"fwd": case, "fwdbwd": case, "decode": one}
    for mode, each in asked.items():
        done = [x for x in PEERS if not x.package and can_do(x, each, mode)]
        assert len(done) >= 2


def can_do(peer, case, mode):
    try:
        peer.prepare(case, mode, 1)
    except Skipped:
        return False
    return True
