"""The models of `python -m benchmarks models`: every way of one is the same."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.tables import models  # noqa: E402
from benchmarks.tables.models import MODELS, Place  # noqa: E402
from benchmarks.timing import Timing  # noqa: E402

pytestmark = pytest.mark.torch
WORKS = {"prefill": 1, "token": 1, "training": 2}
SMALL = {"num_hidden_layers": 1, "intermediate_size": 32}
SMALL_T5 = {"num_layers": 1, "d_ff": 32}


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    for name, model in MODELS.items():
        less = SMALL_T5 if name == "T5" else SMALL
        small = model._replace(settings=model.settings | less)
        monkeypatch.setitem(MODELS, name, small)


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("name", MODELS)
def test_ways_of_a_model_are_equal(name, work):
    if (name, work) == ("DeBERTa", "token"):
        pytest.skip("DeBERTa writes no tokens")
    place = Place(name, work, WORKS[work], 40)
    wanted = models.work_of(place, models.model_of(place, "eager"))()
    for way in MODELS[name].ways[1:]:
        call = models.work_of(place, models.model_of(place, way))
        for _ in range(2):  # a token is taken out of the cache again
            assert models.distance(call(), wanted) < 1e-3


def test_a_model_of_16_bits_is_near_that_of_float64():
    short = Place("Llama", "token", 1, 24, "bfloat16")
    wide = short._replace(dtype="float64")
    wanted = models.work_of(wide, models.model_of(wide, "eager"))()
    found = models.work_of(short, models.model_of(short, "registered"))()
    assert found[0].dtype is torch.bfloat16
    assert 1e-4 < models.distance(found, wanted) < 0.1


@pytest.mark.parametrize("at", [0, 1])
def test_wrong_logits_and_gradients_end_the_program(at):
    expected = [torch.ones(3), torch.ones(4)]
    changed = [x.clone() for x in expected]
    changed[at] += 0.01
    assert models.check_distance(expected, expected, 0, "") == 0
    assert models.check_distance(changed, expected, 0.011, "") == pytest.approx(0.01)
    with pytest.raises(SystemExit, match="mine: 1e-02 off, and 1e-03 is allowed"):
        models.check_distance(changed, expected, 1e-3, "mine")
    with pytest.raises(SystemExit, match="1 results for 2"):
        models.check_distance(changed[:1], expected, 1e-3, "mine")
    changed[at][0] = float("nan")
    with pytest.raises(SystemExit, match="mine: nan off"):
        models.check_distance(changed, expected, 1e-3, "mine")


def test_the_faster_of_the_others_is_compared_with():
    repeats = [
        [(2.0, 1.0), (4.0, 1.0), (1.0, 2.0)],
        [(2.0, 1.0), (4.0, 1.0), (9.0, 1.0)],
    ]
    kept = [*repeats, repeats[0]]
    assert models.over_the_faster(Timing(kept, 3)).ratios() == [1.0, 2 / 9, 1.0]
    assert models.over_the_faster(Timing([], 3)).repeats == []


@pytest.mark.parametrize("trains", [False, True])
def test_an_encoder_layer_is_compared_with_its_own(trains):
    row = models.encoder_row("an encoder layer", 32, trains, 1)
    assert row.error < 1e-5 and row.target == models.ENCODER[32]
