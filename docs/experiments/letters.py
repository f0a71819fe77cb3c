"""Tasks of random letters, and the small models that learn them.

A task draws letters (batch, length) and the answer that is wanted at each of them, -1
where there is none. A model sees the letters up to each place, or all of them if it is
not causal, and gives scores of the answers at every place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relpos import nn

LETTERS, WIDTH, HEADS, HIDDEN = 8, 32, 4, 64
BATCH, RATE, WARM = 32, 3e-3, 50
LAST = 8  # places at the end, by which a model is judged

Array = np.ndarray[Any, Any]
Task = Callable[[np.random.Generator, int, int], tuple[Array, Array]]


def back(distance: int) -> Task:
    """Asks for the letter so many places before each place."""

    def task(rng: np.random.Generator, batch: int, length: int) -> tuple[Array, Array]:
        tokens = rng.integers(LETTERS, size=(batch, length))
        answers = np.full_like(tokens, -1)
        answers[:, distance:] = tokens[:, :-distance]
        return tokens, answers

    return task


def after_last(
    rng: np.random.Generator, batch: int, length: int
) -> tuple[Array, Array]:
    """Asks what came after the same letter, when it was there the last time."""
    tokens = rng.integers(LETTERS, size=(batch, length))
    answers = np.full_like(tokens, -1)
    seen = np.full((batch, LETTERS), -1)
    items = np.arange(batch)
    for place in range(length):
        last = seen[items, tokens[:, place]]
        found = last >= 0
        answers[found, place] = tokens[items[found], last[found] + 1]
        seen[items, tokens[:, place]] = place
    return tokens, answers


def first(rng: np.random.Generator, batch: int, length: int) -> tuple[Array, Array]:
    """Asks for the letter that the sequence began with."""
    tokens = rng.integers(LETTERS, size=(batch, length))
    return tokens, np.repeat(tokens[:, :1], length, axis=1)


def model(
    seed: int,
    layers: int = 2,
    absolute: str | None = None,
    longest: int = 128,
    causal: bool = True,
    **position: Any,
) -> nn.Sequential:
    """Letters in, scores of letters out; `position` as of MultiheadAttention."""
    rng = np.random.default_rng(seed)
    parts: list[nn.Module] = [nn.Embedding(LETTERS, WIDTH, rng=rng)]
    if absolute is not None:
        parts.append(
            nn.SinusoidalEncoding(WIDTH)
            if absolute == "sinusoids"
            else nn.Residual(nn.LearnedAPE(longest, WIDTH, rng=rng))
        )
    for _ in range(layers):
        settings = {"is_causal": causal, "rng": rng, **position}
        parts.append(nn.TransformerLayer(WIDTH, HEADS, HIDDEN, **settings))
    parts += [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS, rng=rng)]
    return nn.Sequential(*parts)


def train(
    learner: nn.Sequential, task: Task, seed: int, steps: int, length: int
) -> list[float]:
    """The loss of each step; the rate rises at first and falls in the last quarter."""
    rng = np.random.default_rng([seed, 1])
    optimizer = nn.Adam(learner.parameters(), lr=RATE)
    losses = []
    for step in range(steps):
        optimizer.lr = RATE * min(1, (step + 1) / WARM, (steps - step) / (steps / 4))
        tokens, answers = task(rng, BATCH, length)
        scores, asked = learner(tokens), answers >= 0
        grad = np.zeros_like(scores)
        loss, grad[asked] = nn.cross_entropy(scores[asked], answers[asked])
        optimizer.zero_grad()
        learner.backward(grad)
        optimizer.step()
        losses.append(float(loss))
    return losses


def judge(
    learner: nn.Sequential, task: Task, length: int, items: int = 64
) -> tuple[float, float]:
    """Share of right answers and loss, at the last places of sequences not met yet."""
    tokens, answers = task(np.random.default_rng(length), items, length)
    scores, answers = learner(tokens)[:, -LAST:], answers[:, -LAST:]
    asked = answers >= 0
    right = scores[asked].argmax(axis=-1) == answers[asked]
    return float(right.mean()), nn.cross_entropy(scores[asked], answers[asked]).loss
