"""Layers that hide the future, and the two tables of the Music Transformer."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from layer_slopes import check_gradients

import relpos
from relpos import nn

F64 = {"rng": 0, "dtype": "float64"}
LONGEST = 9  # of "music"
X = np.random.default_rng(5).standard_normal((2, 7, 8))
MAKERS = {
    "attention": lambda **k: nn.MultiheadAttention(8, 2, **k),
    "block": lambda **k: nn.TransformerLayer(8, 2, **k),
}


def music(is_causal, **options):
    options = {"max_len": LONGEST, "is_causal": is_causal, **F64, **options}
    return nn.MultiheadAttention(8, 2, position="music", **options)


def past_of(state):
    """A state of a layer that hides the future, from one of a layer that does not."""
    return {**state, "rel_key": state["rel_key"][..., :LONGEST, :]}


def attended(layer, table, **keywords):
    """The output by relpos.attention, of the projections' weights."""
    state = layer.state_dict()
    packed = X @ state["in_proj_weight"].T + state["in_proj_bias"]
    heads = [x.reshape(2, 7, 2, 4).swapaxes(1, 2) for x in np.split(packed, 3, -1)]
    out = relpos.attention(*heads, rel_key=table, **keywords)
    joined = out.swapaxes(1, 2).reshape(2, 7, 8)
    return joined @ state["out_proj.weight"].T + state["out_proj.bias"]


@pytest.mark.parametrize("per_head", [False, True])
def test_numbers_of_both_tables(per_head):
    """The table of both directions has distance 0 in the middle."""
    both, causal = (music(flag, per_head=per_head) for flag in (False, True))
    rows = both.state_dict()["rel_key"]
    assert rows.shape[-2] == 2 * LONGEST - 1
    middle = rows[..., LONGEST - 7 : LONGEST + 6, :]
    want = attended(both, middle, key_lengths=[7, 4])
    np.testing.assert_allclose(both(X, key_lengths=[7, 4]), want, rtol=0, atol=1e-13)
    causal.load_state_dict(past_of(both.state_dict()))
    want = attended(both, middle, key_lengths=[7, 4], is_causal=True)
    got = causal(X, key_lengths=[7, 4])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)
    assert not np.allclose(got, both(X, key_lengths=[7, 4]))


def test_a_table_of_both_directions_serves_a_causal_layer_too():
    """A causal layer reads the rows of the past of a position that layers share."""
    both = music(False)
    shared = nn.MultiheadAttention(8, 2, is_causal=True, position=both.position, **F64)
    shared.load_state_dict(both.state_dict())
    causal = music(True)
    causal.load_state_dict(past_of(both.state_dict()))
    out = causal(X)
    assert np.array_equal(shared(X), out)
    causal.backward(out)
    shared.backward(out)
    grad = both.position.rel_key.grad
    np.testing.assert_array_equal(grad[:LONGEST], causal.position.rel_key.grad)
    assert not grad[LONGEST:].any()


@pytest.mark.parametrize("is_causal", [True, False])
def test_gradients_of_both_tables(is_causal):
    check_gradients(music(is_causal), [X], {"key_lengths": [7, 4]})
    keywords = {"query_offset": np.array([3, 1])}
    check_gradients(music(is_causal), [X[:, 2:6], X], keywords)


@pytest.mark.parametrize("position", [None, "music", "shaw", "rope", "transformer_xl"])
@pytest.mark.parametrize("make", MAKERS)
def test_no_later_token_is_seen(make, position):
    layer = MAKERS[make](position=position, is_causal=True, **F64)
    other = X.copy()
    other[:, 3:] = X[:, 3:][::-1]
    got, want = layer(other), layer(X)
    np.testing.assert_allclose(got[:, :3], want[:, :3], rtol=0, atol=1e-13)
    seen = MAKERS[make](position=position, is_causal=False, **F64)
    assert not np.allclose(seen(other)[:, :3], seen(X)[:, :3])


# ---- what was left open, states, pickles, repr --------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_none_means_false(make):
    """It does for "music" too, whose layer then attends in both directions."""
    for position in (None, "shaw", "music", nn.ALiBi(2, **F64), music(False).position):
        layer = MAKERS[make](position=position, is_causal=None, **F64)
        assert "is_causal=False" in repr(layer)
        default = MAKERS[make](position=position, **F64)
        assert repr(default) == repr(layer)
        want = MAKERS[make](position=position, is_causal=False, **F64)(X)
        assert np.array_equal(layer(X), want) and np.array_equal(default(X), want)
    for position in ("music", None):
        with pytest.raises(TypeError, match=r"^is_causal: got int; expected True or"):
            MAKERS[make](position=position, is_causal=1)


@pytest.mark.parametrize("is_causal", [None, False])
@pytest.mark.parametrize("make", MAKERS)
def test_a_shared_table_of_the_past(make, is_causal):
    """Only a layer that hides the future takes it."""
    table = music(True).position
    with pytest.raises(ValueError, match=r"^is_causal: got False \(or None\) with a"):
        MAKERS[make](position=table, is_causal=is_causal, **F64)
    layer = MAKERS[make](position=table, is_causal=True, **F64)
    assert "is_causal=True" in repr(layer)


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_state_of_the_other_table_is_refused_with_the_reason(is_causal):
    layer, other = music(is_causal), music(not is_causal)
    model = nn.Sequential(other)
    before = model.state_dict()
    state = {f"0.{name}": x + 1 for name, x in layer.state_dict().items()}
    words = r"0\.rel_key: got .*is_causal=True has max_len rows, .*is_causal=False 2 \*"
    with pytest.raises(ValueError, match=words):
        model.load_state_dict(state)
    for name, array in model.state_dict().items():
        assert np.array_equal(array, before[name])
    shaw = nn.MultiheadAttention(8, 2, position="shaw", **F64)
    with pytest.raises(ValueError, match="size mismatch for rel_key") as caught:
        shaw.load_state_dict(layer.state_dict(), strict=False)
    assert "max_len" not in str(caught.value)


@pytest.mark.parametrize("is_causal", [True, False])
def test_copies(is_causal):
    layer = music(is_causal)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.is_causal is is_causal and repr(other) == repr(layer)
        assert np.array_equal(other(X), layer(X))


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_sequence_beyond_max_len_is_refused(is_causal):
    layer, tokens = music(is_causal), np.zeros((1, LONGEST + 2, 8))
    farther = (
        rf"^query: got tokens that see keys at a distance of {LONGEST + 1}; expected "
        rf"at most max_len - 1 = {LONGEST - 1} \(make the layer with max_len="
        rf"{LONGEST + 2}, or with a window\)$"
    )
    for call in (
        lambda: layer(tokens),
        lambda: layer(tokens, key_lengths=[LONGEST + 2]),
        lambda: layer(tokens, memory=nn.Memory(3)),
        lambda: layer(tokens[:, :2], tokens[:, :1], query_offset=LONGEST),
        lambda: layer(tokens[:, :1], tokens[:, :1], query_offset=[LONGEST + 1]),
        lambda: nn.Sequential(nn.Residual(layer))(tokens),
    ):
        with pytest.raises(IndexError, match=farther) as caught:
            call()
        assert "rel_key" not in str(caught.value) and caught.value.__cause__ is None
    layer.window = (2, 2)
    assert layer(tokens).shape == tokens.shape


def test_tokens_beyond_max_len_do_not_enter_a_cache():
    layer, tokens, cache = music(True), np.zeros((1, LONGEST, 8)), nn.KVCaches()
    layer(tokens, cache=cache)
    with pytest.raises(IndexError, match=rf"^query: .* {LONGEST}; .* max_len - 1"):
        layer(tokens[:, :1], cache=cache)
    assert len(cache) == LONGEST
