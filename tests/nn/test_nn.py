"""relpos.nn without PyTorch: parameters, weights in and out, parts, files."""

from __future__ import annotations

import functools
import pickle

import layer_calls
import numpy as np
import pytest

import relpos
from relpos import nn
from relpos.nn import module

LAYERS = {**layer_calls.LAYERS, **layer_calls.UNFED}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_names_and_dtypes(name, dtype):
    """All names and shapes are in tests/stored."""
    layer = LAYERS[name][0](dtype=dtype)
    state, own = layer.state_dict(), dict(layer.named_parameters())
    assert all(array.dtype == dtype for array in state.values())
    assert own.keys() == state.keys() - {"mask"}
    assert list(layer.parameters()) == list(own.values())


@pytest.mark.parametrize("name", LAYERS)
def test_weights_go_from_layer_to_layer(name):
    first, second = (LAYERS[name][0](dtype=dtype) for dtype in ("float32", "float64"))
    same = LAYERS[name][0](dtype="float32").state_dict()
    for parameter in second.parameters():
        parameter.data[...] = 7.0
    assert second.load_state_dict(first.state_dict()) == ([], [])
    for key, array in first.state_dict().items():
        assert np.array_equal(second.state_dict()[key], array)
        assert np.array_equal(same[key], array)


def test_state_dict_is_a_copy():
    layer = nn.Linear(2, 2, rng=0)
    before = layer.state_dict()
    layer.weight.data += 1
    assert not np.array_equal(before["weight"], layer.weight.data)


def test_loading_lists_every_difference_and_copies_nothing():
    layer = nn.ShawAttention(6, 2, 3, rng=0)
    before = layer.state_dict()
    state = {key: np.ones_like(array) for key, array in before.items()}
    del state["q_proj.bias"], state["rel_key.weight"]
    state |= {"extra": np.ones(2), "k_proj.weight": np.ones((6, 5))}
    state["v_proj.bias"] = np.ones((6, 1))
    with pytest.raises(ValueError, match=r"^state_dict: does not fit") as error:
        layer.load_state_dict(state)
    assert str(error.value).splitlines() == [
        "state_dict: does not fit ShawAttention:",
        '    Missing key(s): "q_proj.bias", "rel_key.weight".',
        '    Unexpected key(s): "extra".',
        "    size mismatch for k_proj.weight: got shape (6, 5); the layer has (6, 6).",
        "    size mismatch for v_proj.bias: got shape (6, 1); the layer has (6,).",
    ]
    with pytest.raises(ValueError, match="size mismatch") as error:
        layer.load_state_dict(state, strict=False)
    assert "key(s)" not in str(error.value)
    assert all(np.array_equal(layer.state_dict()[k], x) for k, x in before.items())


def test_loading_what_fits():
    layer = nn.Linear(2, 2, rng=0)
    bias = layer.bias.data.copy()
    state = {"weight": np.ones((2, 2)), "extra": 1.0}
    assert layer.load_state_dict(state, strict=False) == (["bias"], ["extra"])
    assert np.array_equal(layer.weight.data, np.ones((2, 2)))
    assert np.array_equal(layer.bias.data, bias)


def test_the_music_mask_may_be_absent_and_has_to_be_right():
    layer = nn.RelativeGlobalAttention(6, 2, 3, rng=0)
    state = layer.state_dict()
    assert np.array_equal(state["mask"][0, 0], np.tri(3))
    layer.load_state_dict({**state, "mask": state["mask"].astype(bool)})
    with pytest.raises(ValueError, match="mask: the values differ"):
        layer.load_state_dict({**state, "mask": state["mask"][..., ::-1]})
    del state["mask"]
    assert layer.load_state_dict(state) == ([], [])


@pytest.mark.devmode
def test_layers_do_not_import_torch(child):
    done = child(
        "import sys\nimport relpos\nassert 'relpos.nn' not in sys.modules\n"
        "relpos.nn.Linear(2, 2)\nassert 'torch' not in sys.modules\n"
        "print('done')"
    )
    assert done.stdout == "done\n"


def test_repr_shows_every_setting():
    def written(layer):
        return repr(layer)

    assert written(nn.Linear(3, 2, bias=False)) == (
        "Linear(in_features=3, out_features=2, bias=False, dtype=float32)"
    )
    assert written(nn.ShawAttention(6, 2, 3, use_values=False, dtype="float64")) == (
        "ShawAttention(embed_dim=6, num_heads=2, max_relative_position=3, dropout=0.0, "
        "per_head=False, use_keys=True, use_values=False, dtype=float64)"
    )
    assert written(nn.RelPartialLearnableMultiHeadAttn(2, 6, 4, 0.1, tgt_len=3)) == (
        "RelPartialLearnableMultiHeadAttn(n_head=2, d_model=6, d_head=4, dropout=0.1, "
        "dropatt=0.0, pre_lnorm=False, owns_biases=True, layer_norm_epsilon=1e-05, "
        "dtype=float32)"
    )
    assert written(nn.SinusoidalEncoding(4)) == (
        "SinusoidalEncoding(embed_size=4, max_len=None, layout='interleaved', "
        "dtype=float32)"
    )
    assert repr(nn.Adam([], betas=(0.9, 0.98))) == (
        "Adam(lr=0.001, betas=(0.9, 0.98), eps=1e-08)"
    )


class Pair(nn.Module):
    """A model with a list, a shared parameter and something that does not count."""

    def __init__(self):
        self.parts = [nn.Linear(2, 2, rng=0), [nn.Dropout(0.5, rng=1)]]
        self.tied = nn.Linear(2, 2, rng=2)
        self.tied.weight = self.parts[0].weight
        self.scale = nn.Parameter(np.ones(1))
        self._hidden = nn.Linear(2, 2)


def test_models_of_layers():
    model = Pair()
    names = ["scale", "parts.0.weight", "parts.0.bias"]
    assert list(dict(model.named_parameters())) == [*names, "tied.bias"]
    assert list(model.state_dict()) == [*names, "tied.weight", "tied.bias"]
    assert model.eval() is model
    assert not model.parts[1][0].training and model._hidden.training
    model.train()
    assert model.parts[1][0].training
    model.scale.add_grad(np.ones(1))
    model.zero_grad()
    assert model.scale.grad is None
    assert repr(model).splitlines()[:2] == [
        "Pair(",
        "  parts.0: Linear(in_features=2, out_features=2, bias=True, dtype=float32)",
    ]


def test_a_model_without_a_backward_of_its_own_says_so():
    with pytest.raises(RuntimeError, match=r"^Pair\.backward: .*no gradient of its"):
        Pair().backward(np.ones(2))


def test_a_parameter_stays_one():
    """A refused value changes nothing; another parameter or None may replace it."""
    layer = nn.Linear(2, 2, rng=0)
    before = layer.state_dict()
    with pytest.raises(TypeError, match=r"weight: got an array"):
        layer.weight = np.zeros((2, 2))
    assert np.array_equal(layer.state_dict()["weight"], before["weight"])
    layer.weight, layer.bias = nn.Parameter(np.eye(2, dtype="float32")), None
    assert list(layer.state_dict()) == ["weight"]
    assert np.array_equal(layer(np.eye(2, dtype="float32")), np.eye(2))
    layer.bias = nn.Parameter(np.ones(2, "float32"))
    copied = pickle.loads(pickle.dumps(layer))
    assert np.array_equal(copied.state_dict()["bias"], [1, 1])


def test_gradients_add_up():
    layer, x = nn.Linear(3, 2, rng=0, dtype="float64"), np.ones((4, 3))
    layer(x)
    first = layer.backward(np.ones((4, 2)))
    once = layer.weight.grad.copy()
    second = layer.backward(np.ones((4, 2)))
    assert np.array_equal(first, second)
    assert np.array_equal(layer.weight.grad, 2 * once)


def chain(relu, again):
    first, last = (nn.Linear(4, 4, rng=seed) for seed in (0, 1))
    return nn.Sequential(first, relu, last, again)


class Own(nn.Module):
    """A user's layer of a layer."""

    def __init__(self):
        self.relu = nn.ReLU()

    def __call__(self, x):
        return self.relu(x)

    def backward(self, grad_out):
        return self.relu.backward(grad_out)


def two_with_one_part():
    layers = [nn.FeedForward(4, 5, rng=seed) for seed in (0, 1)]
    layers[1].linear1 = layers[0].linear1
    return layers


RELU, GELU, OWN, NORM = nn.ReLU(), nn.GELU(), Own(), nn.LayerNorm(4)
AGAIN = {
    "ReLU": chain(RELU, RELU),
    "Own": chain(OWN, nn.Residual(OWN)),
    "LayerNorm": nn.Residual(NORM, NORM),
    "Linear": nn.Sequential(*two_with_one_part()),
    "GELU": nn.Residual(nn.Sequential(GELU, nn.Residual(GELU))),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_layer_in_two_places_has_no_backward(name):
    model, x = AGAIN[name], np.ones((3, 4), "float32")
    pattern = rf"backward: its {name} has been called again since"
    out = model(x)
    with pytest.raises(RuntimeError, match=pattern):
        model.backward(out)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_layer_called_by_itself_forgets_the_call_of_the_model():
    model, x = chain(nn.ReLU(), Own()), np.ones((3, 4), "float32")
    out = model(x)
    want = model.backward(out)
    copied = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match=r"^x: "):
        model[0](x[:, :3])  # changes nothing
    model[3](x)
    with pytest.raises(RuntimeError, match="its Own has been called again"):
        model.backward(out)
    assert np.array_equal(copied.backward(out), want)
    assert np.array_equal(model.backward(model(x)), want)


@pytest.mark.parametrize(
    "part", ["attention", "attention.layer.out_proj", "feed_forward"]
)
def test_parts_of_two_blocks_are_not_shared_by_their_calls(part):
    model = nn.Sequential(*(nn.TransformerLayer(4, 2, 5, rng=i) for i in (0, 1)))
    *path, last = part.split(".")
    first, second = (functools.reduce(getattr, path, block) for block in model)
    setattr(second, last, getattr(first, last))
    out = model(np.ones((2, 3, 4), "float32"))
    with pytest.raises(RuntimeError, match="has been called again since"):
        model.backward(out)


def parts(layer):
    """Yield the layers in a layer, at any depth."""
    for _, part in module._parts(layer, nn.Module):
        yield part
        yield from parts(part)


def attention(position):
    sizes = layer_calls.POSITIONS[position]
    return nn.MultiheadAttention(6, 3, is_causal=True, position=position, **sizes)


@pytest.mark.parametrize("name", [*LAYERS, *layer_calls.POSITIONS])
def test_what_a_layer_calls_is_asked_for_its_gradient(name):
    """A call for the result alone would make the layer forget an earlier call."""
    if name in LAYERS:
        make, inputs = LAYERS[name]
        layer = make(dtype="float32")
    else:
        layer, inputs = attention(name), [layer_calls.X]
    if isinstance(inputs, list):
        inputs = [np.ones(shape, "float32") for shape in inputs]
    else:
        inputs = [inputs]
    out = layer(*inputs)
    called = [part for part in parts(layer) if part._mark is not None]
    layer.backward(out)
    assert all(part._went_back for part in called)


def test_a_call_that_an_interrupt_left_open_counts_no_more():
    layer, x = nn.Sequential(nn.ReLU()), np.ones((3, 4), "float32")
    out = layer(x)
    stale = module._Frame(layer, [(layer, object())], True, -1)
    module._here.frame = stale
    try:
        assert layer.backward(out).shape == x.shape
    finally:
        module._here.frame = None


def test_numbers_whose_squares_overflow():
    parameter = nn.Parameter(np.ones(1, "float32"))
    steps = nn.Adam([parameter], lr=0.25)
    for grad, want in ((1e20, 0.75), (1.0, 0.58)):
        parameter.grad = np.array([grad], "float32")
        steps.step()
        assert abs(parameter.data[0] - want) < 0.01
    large = np.array([[1e20, -1e20, 0, 0], [1, -1, 0, 0]], "float32")
    found = nn.LayerNorm(4)(large)
    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()


def test_a_residual_takes_no_wider_input():
    layer = nn.Residual(nn.LearnedAPE(6, 4, rng=0))
    with pytest.raises(TypeError, match=r"^x: got dtype float64; this layer computes"):
        layer(np.ones((1, 3, 4)))


def test_the_engine_s_matrix_product_is_what_linear_uses():
    x = np.random.default_rng(0).standard_normal((5, 7, 33)).astype("float32")
    layer = nn.Linear(33, 9, rng=0)
    with relpos.threads(1):
        one = layer(x), layer.backward(np.ones((5, 7, 9), "float32"))
    with relpos.threads(3):
        many = layer(x), layer.backward(np.ones((5, 7, 9), "float32"))
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))
    want = x.astype("float64") @ layer.weight.data.T.astype("float64") + layer.bias.data
    assert np.abs(one[0] - want).max() < 1e-5
    every_other = layer(x[:, ::-2])
    assert np.abs(every_other - want[:, ::-2]).max() < 1e-5
    assert layer(x[:0]).shape == (0, 7, 9)
    assert layer.backward(np.zeros((0, 7, 9), "float32")).shape == (0, 7, 33)


def test_dropout_keeps_the_mean_and_repeats():
    layer, x = nn.Dropout(0.25, rng=3), np.ones((200, 200), "float32")
    out = layer(x)
    assert set(np.unique(out)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(out.mean() - 1) < 0.01
    assert np.array_equal(layer.backward(x), out)
    assert not np.array_equal(layer(x), out)
    assert np.array_equal(nn.Dropout(0.25, rng=3)(x), out)
    assert np.array_equal(layer.eval()(x), x)
    assert np.array_equal(nn.Dropout(0.0)(x), x)


def test_layer_norm_gives_rows_of_mean_0_and_variance_1():
    x = 5 + 3 * np.random.default_rng(0).standard_normal((4, 6, 50))
    y = nn.LayerNorm(50, eps=0.0, dtype="float64")(x)
    assert np.abs(y.mean(-1)).max() < 1e-14
    assert np.abs(y.var(-1) - 1).max() < 1e-13


def test_warm_up_of_shaw_s_paper():
    rates = [nn.warmup_rate(step, 512) for step in range(1, 20001)]
    assert int(np.argmax(rates)) + 1 == 4000
    assert rates[3999] == pytest.approx(512**-0.5 * 4000**-0.5)
    assert rates[999] == pytest.approx(rates[3999] / 4)
    assert rates[15999] == pytest.approx(rates[3999] / 2)


def test_cross_entropy_of_large_logits_is_finite():
    logits = np.array([[1e30, 0.0], [-1e30, 1e30]], "float32")
    loss, grad = nn.cross_entropy(logits, [0, 1])
    assert loss == 0 and np.array_equal(grad, np.zeros((2, 2)))
    assert grad.dtype == np.float32


# ---- files --------------------------------------------------------------------------


def test_npz_with_objects_is_refused(tmp_path):
    path = tmp_path / "objects.npz"
    np.savez(path, weight=np.array([{}], object))
    with pytest.raises(ValueError, match=r"objects\.npz.*allow_pickle"):
        nn.load_file(path)


def test_safetensors(tmp_path):
    save = pytest.importorskip("safetensors.numpy").save_file
    layer = nn.ShawAttention(6, 2, 3, rng=0)
    path = tmp_path / "model.safetensors"
    state = {f"h.0.{name}": array for name, array in layer.state_dict().items()}
    save({**state, "h.1.count": np.arange(3), "flag": np.array([True])}, path)
    assert set(nn.load_file(path)) == {*state, "h.1.count", "flag"}
    other = nn.ShawAttention(6, 2, 3)
    other.load_state_dict(nn.load_file(path, prefix="h.0."))
    for name, array in layer.state_dict().items():
        assert np.array_equal(other.state_dict()[name], array)
    with pytest.raises(ValueError, match=r"no name starts with 'h\.2\.'"):
        nn.load_file(path, prefix="h.2.")


def test_without_safetensors_the_error_says_how_to_get_it(child):
    script = """
import sys
sys.modules["safetensors"] = None
from relpos import nn
try:
    nn.load_file("model.safetensors")
except ImportError as error:
    print(error)
"""
    assert "pip install safetensors" in child(script).stdout
