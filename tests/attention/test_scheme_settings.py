"""Schemes that are settings of `attention`, on arrays and on tensors."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import relpos
from relpos._attention.schemes import scheme

Q, K, V = np.random.default_rng(0).standard_normal((3, 2, 5, 4))


@scheme
def nearer(query, key, value, slopes, **keywords):
    """Return settings of a bias that has an array of its own."""
    steps = abs(np.arange(1 - query.shape[-2], query.shape[-2]))
    return {"rel_bias": -np.multiply.outer(slopes, steps), "is_causal": True} | keywords


def test_a_scheme_is_attention_with_its_settings_and_keywords_win():
    bias = relpos.alibi_bias([0.5, 2.0], 5)
    for is_causal in (True, False):
        wanted = relpos.attention(Q, K, V, rel_bias=bias, is_causal=is_causal)
        got = nearer(Q, K, V, [0.5, 2.0], **{} if is_causal else {"is_causal": False})
        np.testing.assert_array_equal(got, wanted)
    shown = list(inspect.signature(nearer).parameters)
    assert shown[:4] == ["query", "key", "value", "slopes"] and "softcap" in shown


@pytest.mark.torch
def test_its_settings_serve_tensors():
    torch = pytest.importorskip("torch")
    from relpos.torch._schemes import _on_tensors

    tensors = [torch.from_numpy(x) for x in (Q, K, V)]
    got = _on_tensors(nearer.settings)(*tensors, slopes=[0.5, 2.0])
    np.testing.assert_array_equal(got, nearer(Q, K, V, [0.5, 2.0]))
