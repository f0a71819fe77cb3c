"""A call that raises, wherever it does, leaves all state as it was."""

from __future__ import annotations

import inspect
import itertools
import tracemalloc
from functools import partial

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
KEPT = {"cache": nn.KVCaches, "memory": lambda: nn.Memory(4)}


def continued(kind, lengths=None):
    """A model that goes on from tokens that it was given before."""
    layers, kept = model(), KEPT[kind]()
    if kind == "memory":
        layers = nn.Sequential(*layers[1:])
    layers(X[:, :3], **{kind: kept}, key_lengths=lengths)
    layers(X[:, 3:5], **{kind: kept})
    return (layers, kept), lambda: layers(X[:, 5:], **{kind: kept})


def begun(kind):
    layers, kept = nn.Sequential(*model()[1:]), KEPT[kind]()
    layers(X)
    return (layers, kept), lambda: layers(X[:, :3], **{kind: kept})


def caches(method, argument):
    (_, kept), _ = continued("cache")
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
    layers.layers(X[:, :4], cache=kept)
    layers(X[:, 3:5], kept)
    return (layers, kept), lambda: layers(X[:, 3:5] + 1, kept)


def cache(change):
    kept = relpos.KVCache()
    kept.append(X[:, None], X[:, None], lengths=[4, 6])
    return kept, lambda: change(kept)


def random(function):
    rng = np.random.default_rng(8)
    return rng, lambda: function(rng)


def made():
    """A constructor makes random initial values."""
    rng = np.random.default_rng(8)
    return rng, lambda: nn.TransformerLayer(8, 2, position="shaw", rng=rng)


def another_number():
    relpos.set_num_threads(relpos.get_num_threads() % 4 + 1)


def context():
    """The context of an attention, which keeps nothing of its gradients."""
    found = relpos.attention(X, X, X, return_context=True).context
    return found, lambda: found.backward(X)


def method(name):
    layer = trained("TransformerLayer")[0].train()

    def action():
        getattr(layer, name)()

    return layer, action


def block():
    """A block of threads that is left: nothing is different after it."""
    with relpos.threads(3), _settings.use_isa("base"):
        return settings()


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
        random,
        lambda rng: relpos.attention(X, X, X, dropout_p=0.5, rng=rng),
    ),
    "random_encoding": (random, lambda rng: relpos.random_encoding(3, 4, rng=rng)),
    "AttentionContext.backward": (context,),
    "Module.eval": (method, "eval"),
    "Module.zero_grad": (method, "zero_grad"),
    "a constructor": (made,),
    "set_num_threads": (lambda: ((), another_number),),
    "threads": (lambda: ((), block),),
}


@pytest.fixture(autouse=True)
def number_of_threads():
    told = _settings._told
    yield
    _settings._told = told
    _core.set_num_threads(0 if told is None else told[0])


def settings():
    return _settings._told, relpos.get_num_threads(), _settings._isa.get()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ACTIONS)
def test_a_failing_step_changes_nothing(name, sized):
    """Interrupts and MemoryErrors, at every step in turn; then the call is right."""
    make, *arguments = ACTIONS[name]
    _, action = make(*arguments)
    want = state_of(action())
    holder, action = make(*arguments)
    before = state_of((holder, settings()))
    # an odd stride, so that both errors take turns
    for step in itertools.count(1, sized(13, 1)):
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


def test_all_that_holds_state_is_there():
    """A class of `relpos.nn` that is new has to be among the actions, too."""
    classes = [x for x in map(vars(nn).get, nn.__all__) if inspect.isclass(x)]
    layers = {x for x in classes if issubclass(x, nn.Module)}
    made = {name.split(",")[0] for name in {**LAYERS, **UNFED}}
    assert {layer.__name__ for layer in layers} == made | {"Module", "Position"}
    others = {x.__name__ for x in classes if not issubclass(x, nn.Module | tuple)}
    assert others == {"KVCaches", "Memory", "Parameter", "SGD", "Adam"}


class Followed(nn.Module):
    """A layer, and after it something that raises where it is told to."""

    def __init__(self, layer):
        self.layer, self._raises = layer, False

    def __call__(self, *inputs, **keywords):
        out = self.layer(*inputs, **keywords)
        if self._raises:
            raise ValueError("after the layer")
        return out


@pytest.mark.parametrize("name", {**LAYERS, **UNFED})
def test_an_error_in_a_later_layer_changes_none_before(name):
    """Nor what `backward` gives for the call before."""
    layer, out = trained(name)
    model = Followed(layer)
    before = state_of(layer)
    model._raises = True
    with pytest.raises(ValueError, match="after the layer"):
        model(*(x + 1 for x in inputs_of(name)))
    assert state_of(layer) == before
    layer.backward(np.ones_like(out))


@pytest.mark.parametrize("kind", ["cache", "memory"])
def test_a_call_that_was_refused_can_be_mended(kind):
    """The tokens of the refused call are not there twice."""
    (layers, kept), action = continued(kind)
    before = state_of((layers, kept))
    for wrong in (
        {"attn_mask": np.ones((9, 9), bool)},
        {"key_lengths": [7]},
        {"key_lengths": "ab"},
    ):
        with pytest.raises((TypeError, ValueError)):
            layers(X[:, 5:], **{kind: kept}, **wrong)
        assert state_of((layers, kept)) == before
    _, right = continued(kind)
    assert np.array_equal(action(), right())


class Second(nn.Module):
    """A model that tries another input where the first one is refused."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, first, second, cache):
        try:
            self.layer(first, cache=cache, attn_mask=np.ones((9, 9), bool))
        except ValueError:
            return self.layer(second, cache=cache)


def test_a_refusal_that_a_model_catches():
    """Only what the refused part changed is taken back."""
    layer = nn.MultiheadAttention(8, 2, is_causal=True, position="rope", **F64)
    model, cache, other = Second(layer), nn.KVCaches(), nn.KVCaches()
    for x in (X[:, :3], X[:, 3:]):
        assert np.array_equal(model(x + 1, x, cache), layer(x, cache=other))
    assert len(cache) == 6


def test_a_call_whose_backward_has_run_is_forgotten():
    """So that its arrays are freed while the next one runs; `backward` says so."""
    layer, out = trained("Linear")
    layer.backward(np.ones_like(out))
    model = Followed(layer)
    model._raises = True
    before = [p.grad.copy() for p in layer.parameters()]
    with pytest.raises(ValueError, match="after the layer"):
        model(*inputs_of("Linear"))
    with pytest.raises(RuntimeError, match="not since a call that raised"):
        layer.backward(np.ones_like(out))
    assert state_of(before) == state_of([p.grad for p in layer.parameters()])


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("wrong", [{"query": X[..., :2]}, {"attn_mask": X}])
def test_a_layer_that_raises_itself_is_forgotten(mode, wrong):
    """Unless it trains, and its backward has not run."""
    layer = nn.MultiheadAttention(8, 2, **F64).train(mode == "train")
    out = layer(X)
    if mode == "train":
        with pytest.raises(ValueError, match=r"^(query|attn_mask): "):
            layer(**{"query": X} | wrong)
        layer.backward(out)
    with pytest.raises(ValueError, match=r"^(query|attn_mask): "):
        layer(**{"query": X} | wrong)
    with pytest.raises(RuntimeError, match="not since a call that raised"):
        layer.backward(out)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_arrays_of_the_call_before_are_freed(mode):
    """A call takes no more memory than the first one did."""
    layers = nn.Sequential(*(nn.ReLU() for _ in range(16)))
    layers.train(mode == "train")
    x = np.ones(100_000, np.float32)
    peaks = []
    for _ in range(2):
        tracemalloc.start()
        held = tracemalloc.get_traced_memory()[0]
        try:
            layers(x)
            if mode == "train":
                layers.backward(x)
            peaks.append(tracemalloc.get_traced_memory()[1] - held)
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


OPTIMIZERS = [partial(nn.SGD, lr=0.1, momentum=0.9), partial(nn.Adam, lr=0.1)]


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_step_checks_all_before_it_moves_one(make):
    parameters = [nn.Parameter(np.ones(3)) for _ in range(2)]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.add_grad(np.ones(3))
    parameters[1].grad = [1.0, 1.0, 1.0]
    optimizer.step()
    parameters[1].grad = [1.0]
    before = state_of(optimizer)
    with pytest.raises(ValueError, match=r"^grad: got shape \(1,\) for parameter 1"):
        optimizer.step()
    assert state_of(optimizer) == before
    parameters[1].grad = np.ones(3)
    optimizer.lr = -1.0
    before = state_of(optimizer)
    with pytest.raises(ValueError, match=r"^lr: got -1.0"):
        optimizer.step()
    assert state_of(optimizer) == before
    optimizer.lr = 0.1
    parameters[1].data.flags.writeable = False
    with pytest.raises(ValueError, match=r"^data: parameter 1 is read-only"):
        optimizer.step()
    parameters[1].data.flags.writeable = True
    assert state_of(parameters[0].data) == state_of(parameters[1].data)


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_after_an_interrupted_step_every_array_is_valid(make):
    parameters = [nn.Parameter(np.ones(3)) for _ in range(2)]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.add_grad(np.ones(3))
    for step in itertools.count(1):
        if not fails_at(step, KeyboardInterrupt(), optimizer.step)[0]:
            break
        for parameter in parameters:
            assert parameter.data.shape == (3,) and np.isfinite(parameter.data).all()
    assert step > 5


def test_weights_are_loaded_into_all_parameters_or_none():
    layer = trained("Linear")[0]
    layer.bias.data.flags.writeable = False
    before = state_of(layer)
    with pytest.raises(
        ValueError, match=r"^state_dict: bias of the layer is read-only"
    ):
        layer.load_state_dict({name: x + 1 for name, x in layer.state_dict().items()})
    assert state_of(layer) == before
