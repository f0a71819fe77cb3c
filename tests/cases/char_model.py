"""A character model of two relpos layers, and a task that needs positions."""

from __future__ import annotations

import numpy as np

from relpos import nn

LETTERS, LENGTH, DISTANCE = "abcdefgh", 24, 5
WIDTH, HEADS, REACH = 32, 2, 8
ADAM = {"lr": 3e-3, "betas": (0.9, 0.98), "eps": 1e-9}


def batch(rng, size=16):
    """Random letters; from DISTANCE on, each is to be answered by the one before it."""
    tokens = rng.integers(len(LETTERS), size=(size, LENGTH))
    return tokens, tokens[:, :-DISTANCE]


class CharModel(nn.Module):
    """Letters in, scores of letters out; both directions are seen at every place.

    Without tables it is equivariant to permutations: all that it can tell of the letter
    at a distance is how often each letter occurs.
    """

    def __init__(self, positions=True, rng=0):
        rng = np.random.default_rng(rng)
        tables = {"use_keys": positions, "use_values": positions}
        self.letters = nn.Embedding(len(LETTERS), WIDTH, rng=rng)
        self.attention = [
            nn.ShawAttention(WIDTH, HEADS, REACH, rng=rng, **tables) for _ in range(2)
        ]
        self.norm = [nn.LayerNorm(WIDTH) for _ in range(2)]
        self.scores = nn.Linear(WIDTH, len(LETTERS), rng=rng)

    def __call__(self, tokens):
        x = self.letters(tokens)
        for attention, norm in zip(self.attention, self.norm, strict=True):
            x = norm(x + attention(x))
        return self.scores(x)

    def backward(self, grad_out):
        grad = self.scores.backward(grad_out)
        pairs = zip(self.attention[::-1], self.norm[::-1], strict=True)
        for attention, norm in pairs:
            grad = norm.backward(grad)
            grad = grad + attention.backward(grad)
        self.letters.backward(grad)


def train(model, steps, seed=1):
    """Yield the loss of each step."""
    rng = np.random.default_rng(seed)
    optimizer = nn.Adam(model.parameters(), **ADAM)
    for _ in range(steps):
        tokens, targets = batch(rng)
        logits = model(tokens)
        loss, grad_answers = nn.cross_entropy(logits[:, DISTANCE:], targets)
        grad = np.zeros_like(logits)
        grad[:, DISTANCE:] = grad_answers
        optimizer.zero_grad()
        model.backward(grad)
        optimizer.step()
        yield loss


def accuracy(model, seed=2):
    """Share of right answers to letters it was not trained on."""
    tokens, targets = batch(np.random.default_rng(seed), 64)
    return float((model(tokens)[:, DISTANCE:].argmax(-1) == targets).mean())
