"""The Transformer of the experiments on real data: its memory, gradients, text."""

from __future__ import annotations

import numpy as np
import pytest
from documents import ROOT, experiment

from relpos import data, nn

if not (ROOT / "docs" / "experiments").exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

TOKENS = np.random.default_rng(0).integers(11, size=(2, 12))


def model_of(position, **sizes):
    language = experiment("language")
    return language.Language(11, 8, 2, 2, position, 3, **sizes)


def in_segments(model, length):
    """Scores of segments of four, each with the hidden states of those before."""
    memory, found = None, []
    for start in range(0, 12, 4):
        found.append(model(TOKENS[:, start : start + 4], memory))
        memory = model.remember(memory, length)
    return np.concatenate(found, axis=1), memory


@pytest.mark.parametrize("position", [None, "transformer_xl", "alibi", "rope"])
def test_a_memory_of_everything_is_one_pass(position):
    model = model_of(position)
    parts, memory = in_segments(model, 12)
    assert np.allclose(parts, model(TOKENS), rtol=0, atol=1e-5)
    assert [kept.shape for kept in memory] == [(12, 2, 8)] * 2
    short, memory = in_segments(model, 5)
    assert not np.allclose(short, parts, rtol=0, atol=1e-3)
    assert [kept.shape for kept in memory] == [(5, 2, 8)] * 2


def test_sinusoids_begin_anew_with_each_segment():
    model = model_of("absolute")
    parts, _ = in_segments(model, 12)
    assert not np.allclose(parts[:, 4:], model(TOKENS)[:, 4:], rtol=0, atol=1e-3)


@pytest.mark.parametrize("position", ["absolute", "music", "transformer_xl"])
@pytest.mark.parametrize("with_memory", [False, True])
def test_gradients_are_those_of_the_loss(position, with_memory):
    sizes = {"max_len": 12} if position == "music" else {}
    model = model_of(position, dtype=np.float64, **sizes)
    memory = None
    if with_memory:
        model(TOKENS[:, :4])
        memory = model.remember(None, 4)

    def loss():
        return nn.cross_entropy(model(TOKENS[:, 4:-1], memory), TOKENS[:, 5:])

    model.backward(loss().grad)
    rng, step = np.random.default_rng(1), 1e-5
    for name, parameter in model.named_parameters():
        way = rng.standard_normal(parameter.data.shape)
        parameter.data += step * way
        after = loss().loss
        parameter.data -= 2 * step * way
        before = loss().loss
        parameter.data += step * way
        wanted = (after - before) / (2 * step)
        assert abs((parameter.grad * way).sum() - wanted) < 1e-6, name


def test_the_text_is_read_and_written():
    text = experiment("text")
    sentence = 'He said: "~ 2 {x}"\nand é'
    classes = text.characters(sentence)
    assert classes.min() >= 0 and classes.max() < 96
    assert text.text_of(classes) == sentence.replace("é", "?")
    corpus = text.corpus()
    parts = [" ".join(part.split()) for part in corpus.split("\n\n")]
    long = [part for part in parts if len(part) > 40]
    assert len({*long}) == len(long) > 1000


def test_half_of_a_table_is_beyond_what_was_trained():
    chorales = experiment("chorales")
    model = model_of("music", max_len=chorales.LENGTH, per_head=True)
    tables = [block.attention.layer.position.rel_key for block in model.blocks]
    before = model(TOKENS)
    trained = [table.data.copy() for table in tables]
    for beyond in ("nothing", "clipped"):
        chorales.lengthen(model, 200, beyond)
        assert np.array_equal(model(TOKENS), before)
        for table, rows in zip(tables, trained, strict=True):
            assert np.array_equal(table.data[:, 200 - chorales.LENGTH :], rows)
            farthest = rows[:, :1] if beyond == "clipped" else 0
            assert (table.data[:, : 200 - chorales.LENGTH] == farthest).all()


def test_the_page_has_what_the_model_wrote():
    written = data.experiment("text").results["sample"]
    page = (ROOT / "docs" / "real-data.md").read_text("utf-8")
    assert "\n".join(line.rstrip() for line in written.split("\n")) in page
