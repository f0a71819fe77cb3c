"""Calls of models of transformers that C reads, which short inputs gain from."""

from __future__ import annotations

import hugging_families as families
import hugging_models as models
import pytest
import torch

import relpos.torch
from relpos.torch import _attention
from relpos.torch._recorded import RECORD

pytestmark = pytest.mark.skipif(
    RECORD is None or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="C reads no calls of tensors of this torch",
)

#: Models that hand on lengths of several items, which Python reads.
BY_PYTHON = {"longformer", "led"}


@pytest.fixture
def prepared(monkeypatch):
    """Return a list of the calls that Python prepares."""
    calls = []
    compute = _attention.compute

    def noted(arguments, *others, **keywords):
        calls.append(arguments)
        return compute(arguments, *others, **keywords)

    monkeypatch.setattr(_attention, "compute", noted)
    return calls


@pytest.mark.parametrize("name", families.CASES)
def test_of_a_model_that_is_replaced(name, prepared):
    case = families.CASES[name]
    _, model = families.pair(case)
    models.run(case, model)
    assert bool(prepared) == (name in BY_PYTHON)


@pytest.mark.parametrize("name", ["t5", "inkling", "wav2vec2-conformer", "wavlm"])
def test_of_a_model_without_its_dense_bias(name, prepared):
    case = models.CASES[name]
    model = models.build(case, "eager")
    relpos.torch.replace_attention(model)
    models.run(case, model)
    assert prepared == []


@pytest.mark.parametrize("name", ["llama", "gpt-oss", "gemma2", "gemma3"])
def test_of_a_registered_model(name, prepared):
    relpos.torch.register()
    case = models.CASES[name]
    models.run(case, models.build(case, "relpos"))
    assert prepared == []
