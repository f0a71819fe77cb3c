"""Memory from segment to segment, and a token at a time from caches."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from layer_calls import POSITIONS
from layer_slopes import check_gradients

from relpos import nn

F64D = {"dtype": "float64"}
F64 = {"rng": 0, **F64D}
SIZES = POSITIONS | {"t5": POSITIONS["t5"] | {"bidirectional": False}}
X = np.random.default_rng(5).standard_normal((2, 12, 8))


def blocks(position, **options):
    return nn.Sequential(
        *(
            nn.TransformerLayer(
                8,
                2,
                12,
                activation="gelu",
                is_causal=True,
                position=position,
                **SIZES[position],
                **options,
                **F64,
            )
            for _ in range(2)
        )
    ).eval()


def model_of(name):
    """Blocks of a position, or of none after positions that are added."""
    if name in SIZES:
        return blocks(name)
    added = nn.SinusoidalEncoding(8, **F64D)
    if name == "learned":
        added = nn.Residual(nn.LearnedAPE(12, 8, **F64))
    return nn.Sequential(added, *blocks(None))


every_model = pytest.mark.parametrize("name", [*SIZES, "sinusoids", "learned"])


def near(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


@every_model
def test_tokens_one_at_a_time_are_rows_of_one_call(name):
    model, cache = model_of(name), nn.KVCaches()
    want = model(X)
    parts = [X[:, :5], *np.split(X[:, 5:], 7, axis=1)]
    near(np.concatenate([model(x, cache=cache) for x in parts], 1), want)
    assert len(cache) == 12


@every_model
def test_prompts_of_unlike_lengths(name):
    """Each item goes on from the end of its own prompt, whatever pads it."""
    model, cache = model_of(name), nn.KVCaches()
    model(X[:, :6], cache=cache, key_lengths=[6, 4])
    out = model(np.stack([X[0, 6:8], X[1, 4:6]]), cache=cache)
    near(out[0], model(X[:1])[0, 6:8])
    near(out[1], model(X[1:])[0, 4:6])


def test_absolute_positions_end_with_their_table():
    model, cache = model_of("learned"), nn.KVCaches()
    model(X, cache=cache)
    with pytest.raises(IndexError, match="max_seq_len = 12"):
        nn.LearnedAPE(12, 8)(X[:, :1], cache=cache)


def test_caches_forget_and_change_places():
    model, cache = blocks("shaw"), nn.KVCaches()
    model(X[:, :7], cache=cache)
    cache.crop(5)
    cache.reorder([1, 1, 0])
    near(model(X[[1, 1, 0], 5:6], cache=cache), model(X[[1, 1, 0]])[:, 5:6])
    assert repr(cache) == "<KVCaches of 6 tokens in 2 attentions>"


def test_two_copies_go_on_with_other_tokens():
    model, cache = blocks("shaw"), nn.KVCaches()
    model(X[:1, :7], cache=cache)
    other = copy.copy(cache)
    tokens = np.concatenate([X[[0, 0], :7], X[:, 7:9]], 1)
    want = model(tokens)
    for at in (7, 8):
        for item, kept in enumerate((cache, other)):
            got = model(tokens[item : item + 1, at : at + 1], cache=kept)
            near(got[0, 0], want[item, at])


@pytest.mark.parametrize("position", SIZES)
def test_segments_with_a_memory_are_parts_of_one_call(position):
    """In one block, whose attention sees the tokens themselves."""
    model, memory = blocks(position)[0], nn.Memory(20)
    parts = [model(x, memory=memory) for x in np.split(X, 3, axis=1)]
    near(np.concatenate(parts, 1), model(X))


def test_a_memory_keeps_the_last_tokens():
    """One of 4 positions in the second segment is a window into the first."""
    layer, memory = blocks("alibi")[0].attention.layer, nn.Memory(4)
    layer(X[:, :6], memory=memory)
    assert np.array_equal(memory.of(layer), X[:, 2:6])
    near(layer(X[:, 6:9], memory=memory), layer(X[:, 2:9])[:, 4:])
    memory.length = 2
    layer(X[:, 9:10], memory=memory)
    assert np.array_equal(memory.of(layer), X[:, 8:10])


class Remembering(nn.Module):
    """A layer that has seen other tokens: called anew with the same memory."""

    def __init__(self, layer, before):
        self.layer, self._before = layer, before

    def __call__(self, x):
        memory = nn.Memory(5)
        memory.update(self.layer, self._before)
        return self.layer(x, memory=memory)

    def backward(self, grad_out):
        return self.layer.backward(grad_out)


@pytest.mark.parametrize("position", SIZES)
def test_gradients_with_a_memory(position):
    """Gradients of the tokens and of the parameters; the memory has none."""
    layer = nn.MultiheadAttention(
        8, 2, is_causal=True, position=position, **SIZES[position], **F64
    )
    check_gradients(Remembering(layer, X[:, :5]), [X[:, 5:9]], {})


def test_keywords_reach_the_layers_that_take_them():
    layer = nn.MultiheadAttention(8, 2, **F64)
    model = nn.Sequential(nn.SinusoidalEncoding(8), layer)
    assert model.takes[0] == "cache" and {*model.takes} == {*layer.takes}


def test_no_gradient_passes_through_a_cache():
    layer = nn.MultiheadAttention(8, 2, is_causal=True, **F64)
    out = layer(X, cache=nn.KVCaches())
    with pytest.raises(RuntimeError, match="not been called"):
        layer.backward(out)


# ---- what would mix tokens, or lose them, is refused --------------------------------

KINDS = {"cache": nn.KVCaches, "memory": lambda: nn.Memory(20)}


def causal(**options):
    return nn.MultiheadAttention(8, 2, is_causal=True, position="rope", **F64 | options)


class Twice(nn.Module):
    """ALBERT, universal transformers: the same layers over again."""

    def __init__(self, *layers):
        self.layers = nn.Sequential(*layers)

    def __call__(self, x, **keywords):
        return self.layers(self.layers(x, **keywords), **keywords)


CAUSAL = causal()
TIED = {
    "one layer": Twice(causal()),
    "a block": Twice(blocks("shaw")[0]),
    "two layers": Twice(causal(), causal(rng=1)),
    "in Sequential": nn.Sequential(CAUSAL, nn.GELU(**F64D), CAUSAL),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TIED)
def test_one_layer_used_twice_is_refused(name, kind):
    kept = KINDS[kind]()
    pattern = rf"^{kind}: got it in a call that uses one MultiheadAttention twice"
    for _ in range(2):
        with pytest.raises(ValueError, match=pattern):
            TIED[name](X[:, :3], **{kind: kept})
    near(causal()(X[:, :3], **{kind: kept}), causal()(X[:, :3]))  # it holds nothing


@pytest.mark.parametrize(
    "layer",
    [
        nn.ShawAttention(8, 2, 3, **F64),
        nn.Residual(nn.RelativeGlobalAttention(8, 2, max_len=16, **F64)),
        nn.Sequential(nn.ConvPositionEmbedding(8, 4, groups=2, **F64)),
    ],
)
def test_a_layer_that_keeps_no_keys_is_refused(layer):
    model, cache = nn.Sequential(causal(), layer), nn.KVCaches()
    with pytest.raises(ValueError, match=r"^cache: .* which keeps no keys"):
        model(X[:, :3], cache=cache)
    near(causal()(X[:, :3], cache=cache), causal()(X[:, :3]))  # it holds nothing


@pytest.mark.parametrize("kind", KINDS)
def test_two_layers_may_share_their_parameters(kind):
    layers = causal(), causal()
    layers[1].in_proj_weight = layers[0].in_proj_weight
    model, kept = nn.Sequential(*layers), KINDS[kind]()
    parts = [model(x, **{kind: kept}) for x in np.split(X, 3, axis=1)]
    if kind == "cache":
        near(np.concatenate(parts, 1), model(X))


class Writer(nn.Module):
    """A model whose call is a loop over tokens, with a cache of its own."""

    def __init__(self, *layers):
        self.layers = nn.Sequential(*layers)

    def __call__(self, x):
        cache = nn.KVCaches()
        parts = [self.layers(part, cache=cache) for part in np.split(x, 4, axis=1)]
        return np.concatenate(parts, 1)


def test_a_loop_over_tokens_in_a_call():
    model = Writer(causal(), causal(rng=1))
    near(model(X), model.layers(X))


def test_a_copied_model_does_not_begin_anew():
    model, cache = blocks("shaw"), nn.KVCaches()
    model(X[:, :3], cache=cache)
    for tokens in (X[:, 3:4], X[:1, 3:6]):  # as many tokens, in another batch
        with pytest.raises(ValueError, match=r"^cache: .* has 3 tokens, for a Mult"):
            copy.deepcopy(model)(tokens, cache=cache)
    model(X[:, 3:6], cache=cache)
    with pytest.raises(ValueError, match=r"^cache: .* has 6 tokens, for a Mult"):
        copy.deepcopy(model)(X[:, 6:9], cache=cache)
    near(model(X[:, 6:], cache=cache), model(X)[:, 6:])


def test_a_copied_model_does_not_forget():
    model, memory = blocks("shaw"), nn.Memory(20)
    for x in np.split(X, 3, axis=1)[:2]:
        model(x, memory=memory)
    with pytest.raises(ValueError, match=r"^memory: .* has 2 segments, for a Mult"):
        copy.deepcopy(model)(X[:, 8:], memory=memory)
    model(X[:, 8:], memory=memory)


class Halved(nn.Module):
    """A model whose second attention is given every other token."""

    takes = ("memory",)

    def __init__(self):
        self.first, self.second = causal(), causal(rng=1)

    def __call__(self, x, memory):
        return self.second(self.first(x, memory=memory)[:, ::2], memory=memory)


def test_a_memory_of_layers_with_segments_of_their_own():
    model, memory = Halved(), nn.Memory(20)
    parts = [model(x, memory) for x in np.split(X, 3, axis=1)]
    near(parts[0], model(X[:, :4], nn.Memory(0)))
    assert [memory.of(x).shape[1] for x in (model.first, model.second)] == [12, 6]


@pytest.mark.parametrize("lengths", [None, [2, 1]])
def test_layers_out_of_step_are_refused_until_they_are_cropped(lengths):
    """An interrupt between the layers of a model that is a function."""
    first, second = causal(), causal(rng=1)
    cache, other = nn.KVCaches(), nn.KVCaches()

    def model(x, cache, **keywords):
        return second(first(x, cache=cache, **keywords), cache=cache, **keywords)

    model(X[:, :2], cache, key_lengths=lengths)
    model(X[:, :2], other, key_lengths=lengths)
    first(X[:, 2:3], cache=cache)
    keep = lengths or 2
    with pytest.raises(ValueError, match="out of step") as error:
        model(X[:, 2:3], cache)
    assert f"cache.crop({keep})" in str(error.value)
    cache.crop(keep)
    near(model(X[:, 2:3], cache), model(X[:, 2:3], other))


def test_a_memory_out_of_step_is_refused():
    first, second, memory = causal(), causal(rng=1), nn.Memory(4)
    for layer in (first, second, first):
        layer(X[:, :2], memory=memory)
    with pytest.raises(ValueError, match=r"out of step; expected a new nn\.Memory"):
        first(X[:, 2:4], memory=memory)


@pytest.mark.parametrize("hidden", [{}, {"window": (2, 1)}, {"window": (3, None)}])
def test_a_cache_wants_causal_attention(hidden):
    layer, cache = nn.MultiheadAttention(8, 2, **hidden, **F64), nn.KVCaches()
    with pytest.raises(ValueError, match=r"^cache: got it for an .* not causal"):
        layer(X, cache=cache)
    assert len(cache) == 0
    layer(X, memory=nn.Memory(3))  # which attends to both sides


@pytest.mark.parametrize("options", [{"window": (2, 0)}, {"position": "music"}])
def test_attention_that_hides_the_future_otherwise(options):
    options = options | ({"is_causal": True} if "position" in options else {})
    layer, cache = nn.MultiheadAttention(8, 2, **options, **F64), nn.KVCaches()
    parts = [layer(x, cache=cache) for x in np.split(X, 3, axis=1)]
    near(np.concatenate(parts, 1), layer(X))


def test_absolute_positions_after_an_attention():
    """They are those of the call, to which the attention has added its tokens."""
    model = nn.Sequential(causal(), nn.SinusoidalEncoding(8, **F64D), causal(rng=1))
    cache = nn.KVCaches()
    parts = [model(x, cache=cache) for x in np.split(X, 3, axis=1)]
    near(np.concatenate(parts, 1), model(X))


def test_what_a_memory_hands_out_is_read_only():
    layer, memory = causal(), nn.Memory(4)
    layer(X[:, :3], memory=memory)
    with pytest.raises(ValueError, match="read-only"):
        memory.of(layer)[...] = 0
