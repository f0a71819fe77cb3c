"""Caches of relpos.torch that calls fill under modes which mark their tensors."""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import pkgutil
from contextlib import contextmanager

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import relpos.torch
from relpos.torch.nn import RelativeMultiheadAttention
from relpos.torch.nn._positions import deberta_buckets, t5_buckets

#: What each cached function is called with, by the position of the layer that calls it.
SIZES = {
    "t5": {"num_buckets": 8, "max_distance": 16, "bidirectional": True},
    "deberta": {"num_buckets": 8, "max_relative_position": 16},
}
BUCKETS = {"t5": t5_buckets, "deberta": deberta_buckets}
HAVE_MODELS = importlib.util.find_spec("transformers") is not None


def modules():
    """All modules of relpos.torch; those of models where transformers is installed."""
    found = [relpos.torch]
    for part in pkgutil.walk_packages(relpos.torch.__path__, "relpos.torch."):
        if HAVE_MODELS or "._transformers" not in part.name:
            found.append(importlib.import_module(part.name))
    return found


def cached():
    """All functions of relpos.torch that keep their results, by module and name."""
    return {
        f"{value.__module__}.{value.__name__}": value
        for module in modules()
        for value in vars(module).values()
        if hasattr(value, "cache_info") and value.__module__.startswith("relpos.")
    }


def kept():
    """Everything that caches and the containers of modules hold, however deep."""
    containers = (dict, list, tuple, set, frozenset, functools._lru_cache_wrapper)
    todo = list(cached().values())
    for module in modules():
        todo += [value for name, value in vars(module).items() if name[:2] != "__"]
    seen = {}
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, containers) or "_lru_list_elem" in type(one).__name__:
            todo += [x for x in gc.get_referents(one) if not isinstance(x, type)]
    return seen.values()


def plain(tensor):
    """Tell whether a tensor has the mark of no mode."""
    marked = tensor.is_inference() or tensor.is_meta or tensor.requires_grad
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return type(tensor) is torch.Tensor and not (marked or wrapped)


@contextmanager
def default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def by(mode):
    """A function that calls another under a mode."""

    def calls(function):
        with mode():
            function()

    return calls


def mapped(function):
    torch.vmap(lambda x: (function(), x)[1])(torch.zeros(2))


def differentiated(function):
    torch.func.grad(lambda x: (function(), x)[1])(torch.zeros(()))


def functional(function):
    torch.func.functionalize(lambda x: (function(), x)[1])(torch.zeros(2))


def compiled(function):
    torch.compile(lambda x: (function(), x + 1)[1], backend="aot_eager")(torch.ones(2))


MODES = {
    "inference": by(torch.inference_mode),
    "no_grad": by(torch.no_grad),
    "device": by(lambda: torch.device("meta")),
    "dtype": by(default_dtype),
    "fake": by(FakeTensorMode),
    "vmap": mapped,
    "grad": differentiated,
    "functional": functional,
    "compile": compiled,
}


@pytest.fixture(autouse=True)
def empty():
    for function in cached().values():
        function.cache_clear()


def gradients(position):
    """All gradients of a layer, in training."""
    torch.manual_seed(0)
    layer = RelativeMultiheadAttention(8, 2, position=position, **SIZES[position])
    x = torch.randn(5, 2, 8, requires_grad=True)
    layer(x, x, x)[0].square().sum().backward()
    return [x.grad, *(parameter.grad for parameter in layer.parameters())]


def test_every_cached_function_is_tried():
    own = {
        "relpos.torch.nn._positions._cached_buckets",
        "relpos.torch._biases._kept",
    }
    others = {  # arrays; of classes: True or False, and another form of the class
        "relpos.torch.nn._positions._bucket_array",
        "relpos.torch._transformers.interface.registry._asks",
        "relpos.torch._tracing._without_setup_context",
    }
    assert own <= cached().keys() <= own | others


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("position", SIZES)
def test_training_after_a_mode(position, mode):
    wanted = gradients(position)
    for function in cached().values():
        function.cache_clear()
    MODES[mode](lambda: BUCKETS[position](**SIZES[position]))
    tensors = [one for one in kept() if isinstance(one, torch.Tensor)]
    assert len(tensors) == 1 and all(map(plain, tensors))
    assert all(map(torch.equal, gradients(position), wanted))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["t5_bias", "alibi_bias"])
def test_a_bias_trains_after_a_mode(name, mode):
    shape = (4, 2) if name == "t5_bias" else (2,)
    weight = torch.rand(shape)
    function = getattr(relpos.torch, name)

    def gradient():
        leaf = weight.clone().requires_grad_()
        function(leaf, 5).square().sum().backward()
        return leaf.grad

    wanted = gradient()
    for cache in cached().values():
        cache.cache_clear()
    MODES[mode](lambda: function(torch.ones(shape), 5))
    assert all(plain(one) for one in kept() if isinstance(one, torch.Tensor))
    assert torch.equal(gradient(), wanted)


@pytest.mark.skipif(not HAVE_MODELS, reason="needs transformers")
@pytest.mark.parametrize("name", ["t5", "mt5", "deberta", "wavlm"])
def test_models_train_after_inference(name):
    """A model is replaced and run under inference mode; then it and others train."""
    import hugging_models as models

    case = models.CASES[name]

    def replaced():
        model = models.build(case, "eager")
        relpos.torch.replace_attention(model)
        return model

    wanted = models.run(case, replaced())[1]
    for function in cached().values():
        function.cache_clear()
    first = models.build(case, "eager")
    with torch.inference_mode():
        relpos.torch.replace_attention(first)
        case.call(first, *map(torch.randn, case.shapes))
    for model in (first, replaced()):
        found = models.run(case, model)[1]
        assert found.keys() == wanted.keys()
        for key, gradient in wanted.items():
            assert gradient is None or torch.equal(found[key], gradient), key


@pytest.mark.parametrize("capacity", [0, 16])
def test_a_cache_filled_in_inference_mode_goes_on_without_it(capacity):
    rows = torch.arange(24.0).reshape(1, 6, 4)
    cache = relpos.KVCache(capacity)
    parts = rows.split([2, 1, 1, 2], dim=1)
    for part, is_on in zip(parts, (True, False, True, False), strict=True):
        with torch.inference_mode(is_on):
            cache.append(part, part)
    assert torch.equal(cache.key, rows) and torch.equal(cache.value, rows)
