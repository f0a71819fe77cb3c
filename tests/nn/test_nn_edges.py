"""Layers, optimizers and caches in calls at the edge of what they promise."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from relpos import nn

ONES = np.ones(2, np.float32)


# ---- plain layers --------------------------------------------------------------------


def test_a_result_is_the_callers():
    layer = nn.ReLU()
    out = layer(np.array([1.0, 2.0], np.float32))
    out -= 5
    assert layer.backward(ONES).tolist() == [1.0, 1.0]
    for dropout in (nn.Dropout(0.5).eval(), nn.Dropout(0.0)):
        x = ONES.copy()
        out = dropout(x)
        out += 1
        assert x.tolist() == [1.0, 1.0]


def test_no_infinite_gradient_reaches_what_has_none():
    layer, infinite = nn.ReLU(), np.array([np.inf, 1.0], np.float32)
    layer(np.array([-1.0, 2.0], np.float32))
    assert layer.backward(infinite).tolist() == [0.0, 1.0]
    dropout = nn.Dropout(0.5, rng=0)
    kept = dropout(np.ones(8, np.float32)) > 0
    found = dropout.backward(np.full(8, np.inf, np.float32))
    assert 0 < kept.sum() < 8
    assert np.array_equal(found, np.where(kept, np.inf, 0.0))


def test_the_gradient_is_rounded_by_the_last_layer():
    wide = nn.Linear(1, 1, bias=False, rng=0, dtype=np.float64)
    model = nn.Sequential(nn.Linear(1, 1, bias=False, rng=0), wide)
    model(np.ones((1, 1), np.float32))
    model.backward(np.array([[1e-50]]))
    assert wide.weight.grad is not None and 0 < abs(wide.weight.grad.item()) < 1e-49


class Two(nn.Module):
    def __init__(self):
        self.a, self.b = (nn.Parameter(np.array([x])) for x in (1.0, 2.0))


def test_parameters_of_a_layer_may_change_places():
    layer = Two()
    layer.load_state_dict({"a": layer.b.data, "b": layer.a.data})
    assert (layer.a.data.item(), layer.b.data.item()) == (2.0, 1.0)


@pytest.mark.parametrize("strict", [True, False])
def test_names_of_one_parameter_have_one_value(strict):
    layer = Two()
    layer.b = layer.a
    for x in (5.0, np.nan):
        layer.load_state_dict({"a": [x], "b": [x]}, strict)
        assert np.array_equal(layer.a.data, [x], equal_nan=True)
    with pytest.raises(ValueError, match="b: differs from a, the same Parameter"):
        layer.load_state_dict({"a": [1.0], "b": [5.0]}, strict)
    assert np.isnan(layer.a.data)


def test_parameters_need_no_mask_of_pairs(monkeypatch):
    layer = nn.RelativeGlobalAttention(8, 2, max_len=4)
    monkeypatch.setattr(type(layer), "_computed", None)
    layer.zero_grad()
    assert len([*layer.parameters()]) == 7


def test_a_position_may_be_taken_away():
    layer = nn.MultiheadAttention(8, 2, position="shaw", rng=0)
    plain, x = nn.MultiheadAttention(8, 2, rng=0), np.ones((1, 3, 8), np.float32)
    layer.position = None
    assert np.array_equal(layer(x), plain(x))
    assert [*layer.state_dict()] == [*plain.state_dict()]


# ---- optimizers ----------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda x: nn.SGD(x, 1.0, 0.5), nn.Adam])
def test_data_of_another_shape_is_refused(make):
    parameter = nn.Parameter(np.array([5.0]))
    optimizer = make([parameter])
    parameter.grad = np.array([8.0])
    optimizer.step()
    parameter.data, parameter.grad = np.zeros(3), np.ones(3)
    with pytest.raises(ValueError, match=r"data: got shape \(3,\) for parameter 0"):
        optimizer.step()
    assert not parameter.data.any()


# ---- caches --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda cache: cache.crop(5)),
        (ValueError, lambda cache: cache.crop(-1)),
        (TypeError, lambda cache: cache.crop("x")),
        (ValueError, lambda cache: cache.reorder([7])),
    ],
)
def test_an_empty_cache_refuses_what_a_full_one_does(error, call):
    with pytest.raises(error):
        call(nn.KVCaches())
    nn.KVCaches().crop(0)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_positions_of_items_are_not_those_of_another_batch(kind):
    attention = nn.MultiheadAttention(8, 2, is_causal=True, rng=0).eval()
    encoding = nn.SinusoidalEncoding(8) if kind == "sinusoidal" else nn.LearnedAPE(9, 8)
    cache = nn.KVCaches()
    attention(np.ones((3, 4, 8), np.float32), cache=cache)
    cache.crop([2, 3, 4])
    for batch in (1, 2):
        with pytest.raises(ValueError, match=f"x: got a batch of {batch}; expected 3"):
            encoding(np.ones((batch, 1, 8), np.float32), cache=cache)
    assert encoding(np.ones((3, 1, 8), np.float32), cache=cache).shape == (3, 1, 8)


def test_a_model_that_takes_a_cache_alone_is_one_use_of_it():
    class Model(nn.Module):
        def __init__(self):
            self.attention = nn.MultiheadAttention(8, 2, is_causal=True, rng=0)

        def __call__(self, cache):
            x = self.attention(np.ones((1, 2, 8), np.float32), cache=cache)
            return self.attention(x, cache=cache)

    with pytest.raises(ValueError, match="uses one MultiheadAttention twice"):
        Model().eval()(nn.KVCaches())


def test_a_memory_of_a_negative_length_is_called_by_its_name():
    memory = nn.Memory(3)
    memory.length = -1
    with pytest.raises(ValueError, match="length: got -1"):
        memory.update(nn.ReLU(), np.ones((1, 2, 3)))


# ---- files ---------------------------------------------------------------------------


def test_a_name_that_a_file_has_twice_is_refused(tmp_path):
    path, member = tmp_path / "weights.npz", io.BytesIO()
    np.save(member, ONES)
    with (
        zipfile.ZipFile(path, "w") as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        for _ in range(2):
            archive.writestr("w.npy", member.getvalue())
    with pytest.raises(ValueError, match="it holds 'w' twice"):
        nn.load_file(path)


@pytest.mark.torch
def test_a_single_number_of_16_bits_is_an_array(tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "weights.safetensors"
    safetensors.save_file({"s": torch.tensor(1.5, dtype=torch.bfloat16)}, path)
    found = nn.load_file(path)["s"]
    assert type(found) is np.ndarray and found.shape == () and found == 1.5
