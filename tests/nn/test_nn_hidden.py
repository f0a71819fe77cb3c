"""NaN and infinity in hidden tokens never reach a gradient that has to do without them.

A padded token is hidden as a key; as a query it spoils its own row of the output, which
is in no loss: its row of grad_out is zero.
"""

from __future__ import annotations

import numpy as np
import pytest
from layer_calls import POSITIONS

import relpos
from relpos import nn

BATCH, LENGTH, MEMORY, WIDTH = 2, 7, 3, 6
#: Which tokens are there: the first sequence is padded at its end.
TOKENS = np.arange(LENGTH) < np.array([[4], [LENGTH]])
OLDER = np.arange(MEMORY) >= np.array([[2], [0]])
OPTIONS = {"rng": 0, "dtype": "float64"}
FUTURE = np.triu(np.ones((LENGTH, MEMORY + LENGTH), bool), MEMORY + 1)


def distances(keys):
    """Encodings of both directions, the past first."""
    return relpos.sinusoidal(np.arange(keys - 1, -keys, -1), WIDTH, layout="concat")


def alone(layer, x, memory):
    return layer(x)


def shaw(layer, x, memory):
    return layer(x, attn_mask=TOKENS[:, None, None])


def shaw_pairs(layer, x, memory):
    pairs = TOKENS[:, None, :, None] & TOKENS[:, None, None]
    return layer(x, attn_mask=pairs)


def shaw_cross(layer, x, memory):
    keys = np.concatenate([memory, x], axis=1)
    mask = np.concatenate([OLDER, TOKENS], axis=1)[:, None, None]
    return layer(x, keys, attn_mask=mask, query_offset=MEMORY)


def lengths(layer, x, memory):
    return layer(x, key_lengths=TOKENS.sum(1))


def conformer(layer, x, memory):
    mask = np.concatenate([OLDER, TOKENS], axis=1)[:, None]
    return layer(x, x, x, distances(MEMORY + LENGTH), mask, memory)


def xl(layer, x, memory, future=False):
    hidden = ~np.concatenate([OLDER, TOKENS], axis=1).T | future
    w, mems = x.swapaxes(0, 1), memory.swapaxes(0, 1)
    return layer(w, distances(MEMORY + LENGTH), hidden, mems).swapaxes(0, 1)


def xl_causal(layer, x, memory):
    return xl(layer, x, memory, future=FUTURE[:, :, None])


CASES = {
    "Linear": (nn.Linear(WIDTH, 5, **OPTIONS), alone),
    "LayerNorm": (nn.LayerNorm(WIDTH, **OPTIONS), alone),
    "LayerNorm, eps=0": (nn.LayerNorm(WIDTH, eps=0, **OPTIONS), alone),
    "Shaw": (nn.ShawAttention(WIDTH, 2, 2, **OPTIONS), shaw),
    "Shaw, pairs": (nn.ShawAttention(WIDTH, 2, 2, **OPTIONS), shaw_pairs),
    "Shaw, other keys": (nn.ShawAttention(WIDTH, 2, 2, **OPTIONS), shaw_cross),
    **{
        f"MultiheadAttention, {position}": (
            nn.MultiheadAttention(WIDTH, 3, position=position, **OPTIONS),
            lengths,
        )
        for position in POSITIONS
    },
    **{
        f"TransformerLayer, {activation}, {pre_norm}": (
            nn.TransformerLayer(
                WIDTH, 3, 8, 0.0, activation, pre_norm, position="rope", **OPTIONS
            ),
            lengths,
        )
        for activation in ("relu", "gelu")
        for pre_norm in (True, False)
    },
    "Music": (nn.RelativeGlobalAttention(WIDTH, 2, 9, **OPTIONS), alone),
    "Conformer": (nn.ConformerRelPositionAttention(WIDTH, 2, **OPTIONS), conformer),
    "Transformer-XL": (
        nn.RelPartialLearnableMultiHeadAttn(2, WIDTH, 4, 0.1, **OPTIONS),
        xl,
    ),
    "Transformer-XL, causal, pre_lnorm": (
        nn.RelPartialLearnableMultiHeadAttn(
            2, WIDTH, 4, 0.1, pre_lnorm=True, **OPTIONS
        ),
        xl_causal,
    ),
}


def gradients(name, hidden, poison_grad=0.0):
    """Every gradient of a case, with the tokens that are hidden set to `hidden`."""
    layer, call = CASES[name]
    layer.eval().zero_grad()
    rng = np.random.default_rng(2)
    x, memory = (rng.standard_normal((BATCH, n, WIDTH)) for n in (LENGTH, MEMORY))
    x[~TOKENS], memory[~OLDER] = hidden, hidden
    with np.errstate(all="ignore"):
        out = call(layer, x, memory)
        grad_out = rng.standard_normal((BATCH, LENGTH, out.shape[-1]))
        grad_out[~TOKENS] = poison_grad
        if call in (xl, xl_causal):
            grad_out = grad_out.swapaxes(0, 1)
        found = layer.backward(grad_out)
    inputs = found._asdict() if isinstance(found, tuple) else {"x": found}
    inputs = {key: grad for key, grad in inputs.items() if grad is not None}
    return inputs | {key: p.grad for key, p in layer.named_parameters()}


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", CASES)
def test_hidden_tokens_do_not_reach_the_gradients(name, poison):
    want = gradients(name, hidden=np.arange(1.0, WIDTH + 1))
    got = gradients(name, hidden=poison)
    assert got.keys() == want.keys()
    for key, grad in got.items():
        np.testing.assert_allclose(grad, want[key], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"Shaw, pairs"}))
def test_a_hidden_token_with_a_gradient_is_not_kept_quiet(name):
    """A result that depends on nan is nan, except for a query without a visible key."""
    found = gradients(name, hidden=np.nan, poison_grad=1.0)
    assert any(np.isnan(grad).any() for grad in found.values())


def test_rows_of_equal_numbers_that_have_no_norm():
    """Padding with zeros under eps=0: the deviation is 0, what comes of it nan."""
    want = gradients("LayerNorm, eps=0", hidden=np.arange(1.0, WIDTH + 1))
    got = gradients("LayerNorm, eps=0", hidden=0.0)
    for key, grad in got.items():
        np.testing.assert_allclose(grad, want[key], rtol=1e-12)
