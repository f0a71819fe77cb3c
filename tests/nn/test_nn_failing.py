"""A call that raises, wherever it does, leaves all state as it was."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest
from layer_calls import LAYERS, UNFED
from state import fails_at, state_of

import relpos
from relpos import _core, _settings, nn

F64 = {"rng": 0, "dtype": "float64"}


def inputs_of(name):
    if name in UNFED:
        return [UNFED[name][1]]
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape) for shape in LAYERS[name][1]]


def trained(name):
    """A layer that was called, and has gradients."""
    layer = {**LAYERS, **UNFED}[name][0](dtype="float64")
    out = layer(*inputs_of(name))
    layer.backward(np.ones_like(out))
    return layer, layer(*inputs_of(name))


def forward(name):
    layer, _ = trained(name)
    return layer, lambda: layer(*inputs_of(name))


def backward(name):
    layer, out = trained(name)
    return layer, lambda: layer.backward(np.ones_like(out))


def model(dropout=0.25):
    """Positions, and two attentions."""
    shaw, rope = (
        nn.MultiheadAttention(8, 2, dropout, is_causal=True, position=name, **F64)
        for name in ("shaw", "rope")
    )
    positions = nn.SinusoidalEncoding(8, dtype="float64")
    return nn.Sequential(positions, shaw, nn.Dropout(dropout, **F64), rope)


X = np.random.default_rng(5).standard_normal((2, 6, 8))


def continued(kind, lengths=None):
    """A model that goes on from tokens that it was given before."""
    layers = model()
    kept = {"cache": nn.KVCaches, "memory": lambda: nn.Memory(4)}[kind]()
    if kind == "memory":
        layers = nn.Sequential(*layers[1:])
    layers(X[:, :3], **{kind: kept}, key_lengths=lengths)
    layers(X[:, 3:5], **{kind: kept})
    return (layers, kept), lambda: layers(X[:, 5:], **{kind: kept})


def begun(kind):
    layers = nn.Sequential(*model()[1:])
    kept = {"cache": nn.KVCaches, "memory": lambda: nn.Memory(4)}[kind]()
    layers(X)
    return (layers, kept), lambda: layers(X[:, :3], **{kind: kept})


def caches(method, argument):
    (layers, kept), _ = continued("cache")
    return kept, lambda: getattr(kept, method)(argument)


class Drafting(nn.Module):
    """A model that drops what it was given before, as a draft, and goes on."""

    def __init__(self):
        self.layers = model()

    def __call__(self, x, cache):
        cache.crop(3)
        return self.layers(x, cache=cache)


def drafted():
    layers, kept = Drafting(), nn.KVCaches()
    layers.layers(X[:, :5], cache=kept)
    return (layers, kept), lambda: layers(X[:, 3:5] + 1, kept)


def cache(change):
    kept = relpos.KVCache()
    kept.append(X[:, None], X[:, None], lengths=[4, 6])
    return kept, lambda: change(kept)


def drawn(function):
    rng = np.random.default_rng(8)
    return rng, lambda: function(rng)


def made():
    """A constructor draws initial values."""
    rng = np.random.default_rng(8)
    return rng, lambda: nn.TransformerLayer(8, 2, position="shaw", rng=rng)


def stepped(make):
    layer, _ = trained("Linear")
    optimizer = make([*layer.parameters()])
    optimizer.step()
    return (), optimizer.step


def threads():
    return (), lambda: relpos.threads(3).__enter__()


ACTIONS = {f"{name}: call": (forward, name) for name in {**LAYERS, **UNFED}}
ACTIONS |= {f"{name}: backward": (backward, name) for name in {**LAYERS, **UNFED}}
ACTIONS |= {
    "KVCaches": (continued, "cache"),
    "KVCaches, lengths": (continued, "cache", [3, 2]),
    "KVCaches at first": (begun, "cache"),
    "KVCaches.crop": (caches, "crop", 2),
    "KVCaches.reorder": (caches, "reorder", [1, 0, 0]),
    "KVCaches, cropped in the call": (drafted,),
    "Memory": (continued, "memory"),
    "Memory at first": (begun, "memory"),
    "KVCache.append": (cache, lambda kept: kept.append(X[:, None], X[:, None])),
    "KVCache.crop": (cache, lambda kept: kept.crop([2, 2])),
    "KVCache.reorder": (cache, lambda kept: kept.reorder([1, 1])),
    "attention": (
        drawn,
        lambda rng: relpos.attention(X, X, X, dropout_p=0.5, rng=rng),
    ),
    "random_encoding": (drawn, lambda rng: relpos.random_encoding(3, 4, rng=rng)),
    "a constructor": (made,),
}


def settings():
    return _settings._told, relpos.get_num_threads(), _settings._isa.get()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ACTIONS)
def test_a_failing_step_changes_nothing(name):
    """Interrupts and MemoryErrors, at every step in turn; then the call is right."""
    make, *arguments = ACTIONS[name]
    _, action = make(*arguments)
    want = state_of(action())
    holder, action = make(*arguments)
    before = state_of((holder, settings()))
    for step in itertools.count(1):
        error = KeyboardInterrupt() if step % 2 else MemoryError()
        failed, raised, result = fails_at(step, error, action)
        if not failed:
            break
        if raised is None:  # lost in the finalizer of a generator: the call went on
            holder, action = make(*arguments)
            before = state_of((holder, settings()))
        assert state_of((holder, settings())) == before, f"step {step}"
    assert step > 5
    assert state_of(result) == want


@pytest.mark.parametrize("name", ACTIONS)
def test_a_failing_allocation_changes_nothing(name):
    make, *arguments = ACTIONS[name]
    holder, action = make(*arguments)
    before = state_of((holder, settings()))
    for step in itertools.count(1):
        _core.fail_at(step, False)
        try:
            action()
        except MemoryError:
            assert state_of((holder, settings())) == before, f"allocation {step}"
        else:
            break
        finally:
            _core.fail_at(0, False)
