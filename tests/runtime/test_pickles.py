"""A pickle of an object is read by the same relpos, and goes on where it was."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
from docstrings import public
from stored_objects import array_cases, draw, flat

import relpos
from relpos import nn, recipes

SHAPE = (2, 5, 4)  # heads, length, columns
QUERY, KEY, VALUE, GRAD = (draw(*SHAPE, seed=seed) for seed in range(4))
NETWORK = [draw(3), draw(3), draw(2, 3), draw(2), 1.0, 2.0]  # of FIRE


def context(function, *operands):
    return function(QUERY, KEY, VALUE, *operands, return_context=True).context


def gradients(context):
    return [*context.backward(GRAD)]


def model():
    position = {"is_causal": True, "position": "shaw", "max_relative_position": 2}
    return nn.Sequential(
        nn.Embedding(9, 4, rng=0),
        nn.TransformerLayer(4, 2, 4, dropout=0.25, **position, rng=0),
        nn.Linear(4, 4, rng=0),
    )


def step(trained):
    """Train a model by one step, and return its numbers."""
    layers, optimizer = trained
    optimizer.zero_grad()
    out = layers([[3, 1, 4, 1]])
    layers.backward(out)
    optimizer.step()
    return [out, *layers.state_dict().values()]


def trained(optimizer, **options):
    layers = model()
    pair = layers, optimizer(layers.parameters(), lr=0.01, **options)
    step(pair)
    return pair


def called(keyword, kept):
    layers = model().eval()
    layers([[3, 1, 4]], **{keyword: kept})
    return layers, kept


def cache():
    filled = relpos.KVCache(8)
    filled.append(KEY, VALUE)
    return filled


def appended(cache):
    cache.append(VALUE, KEY)
    out = relpos.attention(QUERY, **cache.arguments(QUERY))
    return [cache.key, cache.value, out]


def through(recipe):
    inputs = {"key": KEY, "value": VALUE, **recipe}
    result = relpos.attention(**inputs, return_context=True)
    grads = recipe.backward(result.context.backward(GRAD))
    return [result.out, *grads.values()]


def parameter():
    made = nn.Parameter(draw(2, 3))
    made.add_grad(draw(2, 3, seed=1))
    return made


#: How an object is made, and the arrays that it gives when it is used further.
USED = {
    "context": (
        lambda: context(relpos.shaw_attention, draw(9, 4, seed=4), draw(9, 4, seed=5)),
        gradients,
    ),
    "context of FIRE": (lambda: context(relpos.fire_attention, *NETWORK), gradients),
    "context of a graph": (
        lambda: context(relpos.graph_attention, np.arange(6), np.arange(5)[::-1]),
        gradients,
    ),
    "KVCache": (cache, appended),
    "Adam": (lambda: trained(nn.Adam, eps=0.01), step),
    "SGD": (lambda: trained(nn.SGD, momentum=0.5), step),
    "KVCaches": (
        lambda: called("cache", nn.KVCaches()),
        lambda pair: [pair[0]([[1]], cache=pair[1])],
    ),
    "Memory": (
        lambda: called("memory", nn.Memory(2)),
        lambda pair: [pair[0]([[1, 5]], memory=pair[1])],
    ),
    "Parameter": (parameter, lambda x: [x.data, x.grad]),
    "Position": (nn.Position, lambda position: [position.rotate(QUERY)]),
    "Recipe": (
        lambda: recipes.gemma4_audio(draw(4), draw(8, 6), QUERY, context_left=3),
        through,
    ),
}


@pytest.mark.parametrize("name", USED)
def test_an_object_that_is_used_further(name):
    make, use = USED[name]
    again = pickle.loads(pickle.dumps(make()))
    assert same(use(again), use(make()))


LAYERS = array_cases()


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name):
    case = LAYERS[name]
    again = pickle.loads(pickle.dumps(case.make()))
    assert same(flat(case.ask(again)), flat(case.ask(case.make())))


#: Public classes of which no object is pickled here, and why.
NOT_PICKLED = {
    "relpos.nn.Module": "the base of the layers; every layer is pickled",
    "relpos.sharded.ShardedContext": "a graph of dask's, which is of one run",
}


def test_every_class_is_tried():
    """But for named tuples, which test_in_short.py pickles."""
    tried = {type(case.make()) for case in LAYERS.values()}
    for make, _ in USED.values():
        made = make()
        tried |= {type(x) for x in (made if isinstance(made, tuple) else [made])}
    left = set()
    for name, thing in public().items():
        if not inspect.isclass(thing) or name.startswith("relpos.torch."):
            continue
        if thing not in tried and not issubclass(thing, tuple):
            left.add(name)
    assert left == NOT_PICKLED.keys() & public().keys()


def same(arrays, others):
    """True for lists of the same arrays, bit by bit, and of None at the same places."""
    bits = [
        [x if x is None else (x.dtype, x.shape, x.tobytes()) for x in each]
        for each in (arrays, others)
    ]
    return bits[0] == bits[1]
