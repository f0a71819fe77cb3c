"""A causal Transformer over tokens, and its training: for text and for music.

All models are one but for where tokens stand: blocks of relpos.nn.TransformerLayer,
normalised after the sums, between an embedding and a linear layer. Hidden states of
earlier tokens may be given to it as memory, as Transformer-XL does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import relpos
from relpos import nn

__all__ = ["BITS", "Language", "Memory", "drawn", "train"]

BITS = 1 / math.log(2)  # in a nat
SHARPER = 1.5  # than the scores of what is written

Array = NDArray[Any]
Memory = list[Array]


class Language(nn.Module):
    """Scores of each next token; `position` "absolute" adds sinusoids, None nothing."""

    def __init__(
        self,
        tokens: int,
        width: int,
        heads: int,
        layers: int,
        position: str | None,
        seed: int,
        dtype: Any = np.float32,
        **sizes: Any,
    ) -> None:
        options: dict[str, Any] = {"rng": np.random.default_rng(seed), "dtype": dtype}
        self.dtype = np.dtype(dtype)
        self.width, self.absolute = width, position == "absolute"
        self.embedding = nn.Embedding(tokens, width, **options)
        block = {"position": None if self.absolute else position, **sizes, **options}
        self.blocks = nn.Sequential(
            *(
                nn.TransformerLayer(
                    width, heads, pre_norm=False, is_causal=True, **block
                )
                for _ in range(layers)
            )
        )
        self.scores = nn.Linear(width, tokens, **options)
        self.hidden: Memory = []  # what each block was given last, (batch, L, width)

    def __call__(self, tokens: Array, memory: Memory | None = None) -> Array:
        """Scores (batch, L, tokens); memory has (M, batch, width) for each block."""
        x = self.embedding(tokens)
        if self.absolute:
            x = x + relpos.sinusoidal(tokens.shape[1], self.width, dtype=self.dtype)
        self.hidden = []
        for number, block in enumerate(self.blocks):
            self.hidden.append(x)
            if memory:
                before = memory[number].swapaxes(0, 1)
                both = np.concatenate([before, x], axis=1)
                x = block(x, key=both, query_offset=before.shape[1])
            else:
                x = block(x)
        return self.scores(x)

    def backward(self, grad_scores: Array) -> None:
        """Gradients of the parameters; none goes into the memory."""
        grad = self.scores.backward(grad_scores)
        for block in reversed([*self.blocks]):
            found = block.backward(grad)
            if isinstance(found, tuple):
                grad = found.query + found.key[:, -grad.shape[1] :]
            else:
                grad = found
        self.embedding.backward(grad)

    def remember(self, memory: Memory | None, length: int) -> Memory:
        """The memory for what follows the last call."""
        before: Any = memory or [None] * len(self.hidden)
        return [
            nn.update_memory(old, new.swapaxes(0, 1), length)
            for old, new in zip(before, self.hidden, strict=True)
        ]


def drawn(scores: Array, rng: np.random.Generator) -> int:
    """Draw a token by the scores of a model, made sharper."""
    sharp = SHARPER * scores.astype(np.float64)
    chances = np.exp(sharp - sharp.max())
    return int(rng.choice(len(chances), p=chances / chances.sum()))


def train(
    model: Language, batches: Iterable[Array], steps: int, rate: float, memory: int = 0
) -> list[float]:
    """Bits at each step of batches (batch, L + 1), memory going from each to the next.

    The rate rises over a tenth of the steps and falls to nothing by a cosine.
    """
    optimizer = nn.Adam(model.parameters(), betas=(0.9, 0.98))
    kept: Memory | None = None
    bits = []
    for step, batch in zip(range(steps), batches, strict=False):
        part = (step + 1) / steps
        optimizer.lr = rate * min(10 * part, (1 + math.cos(math.pi * part)) / 2)
        loss, grad = nn.cross_entropy(model(batch[:, :-1], kept), batch[:, 1:])
        optimizer.zero_grad()
        model.backward(grad)
        optimizer.step()
        if memory:
            kept = model.remember(kept, memory)
        bits.append(loss * BITS)
    return bits
