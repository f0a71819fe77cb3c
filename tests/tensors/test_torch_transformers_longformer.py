"""Longformer and LED: windows, global tokens, and LED's decoder with its caches."""

from __future__ import annotations

import copy

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers

import relpos.torch as rt

NAMES = ("longformer", "longformer, window alone", "led")
LED = families.CASES["led"]


def in_softmax_of_its_dtype(monkeypatch):
    """Let the model's own code keep float64, which its softmax rounds to float32."""
    own = torch.nn.functional.softmax

    def softmax(scores, dim, dtype=None):
        return own(scores, dim=dim)

    monkeypatch.setattr(torch.nn.functional, "softmax", softmax)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_eager(name, side, monkeypatch):
    case = families.on_side(families.CASES[name], side)
    families.check_as_eager(case)
    in_softmax_of_its_dtype(monkeypatch)
    families.check_as_eager(case._replace(in_float64=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bits(name, dtype):
    families.check_sixteen_bits(families.CASES[name], dtype)
