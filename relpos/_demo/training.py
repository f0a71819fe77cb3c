"""Step 7: layers of relpos.nn learn a task that only relative positions can solve.

Random letters; each is to be answered by the letter DISTANCE before it. Letters are
drawn independently, so nothing but the distance tells which letter that is. One layer
of Shaw's attention, and what its tables let it know of a pair (i, j), r = j - i:

- k = 0: one row for every r, so nothing, as without tables; the best answer weighs
  the other letters by how often each occurs (`floor` with `before` False);
- k = 1: whether j is before i, at i or after it; letters before (`before` True);
- k = 4: r itself up to 4.

Both floors are exact: among those letters every order is equally likely. The rows of
Table 3 of the paper differ in where a table is. In the values alone the weights cannot
depend on r, and the layer has to learn a detour: a head that looks for one letter gets
the mean of a^V_r over the places where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relpos import nn
from relpos._catalogue.rows import Array
from relpos._demo.report import Report

__all__ = ["K_CURVES", "TABLE_3", "training"]

LETTERS, LENGTH, DISTANCE = 8, 16, 2
WIDTH, HEADS, BATCH = 32, 4, 16
STEPS, LAST = 400, 50  # losses are judged by the mean over the last steps
SHOWN = (1, 50, 100, 200, STEPS)
NOISE = 0.05  # of such a mean: it varies by 0.01 from seed to seed

Settings = tuple[int, bool, bool]

#: Curve -> k, and whether keys and values have a table.
K_CURVES: dict[str, Settings] = {f"k = {k}": (k, True, True) for k in (0, 1, 4)}
TABLE_3: dict[str, Settings] = {
    "keys and values": (4, True, True),
    "keys": (4, True, False),
    "values": (4, False, True),
    "none": (4, False, False),
}


class Model(nn.Module):
    """Letters in, scores of letters out; both directions are seen at every place."""

    def __init__(self, k: int, use_keys: bool, use_values: bool) -> None:
        rng = np.random.default_rng(0)
        self.letters = nn.Embedding(LETTERS, WIDTH, rng=rng)
        self.attention = nn.ShawAttention(
            WIDTH, HEADS, k, use_keys=use_keys, use_values=use_values, rng=rng
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, LETTERS, rng=rng)

    def __call__(self, tokens: Array) -> Array:
        """Scores (batch, length, LETTERS)."""
        x = self.letters(tokens)
        return self.scores(self.norm(x + self.attention(x)))

    def backward(self, grad_out: ArrayLike) -> None:
        """Adds the gradients of all parameters."""
        grad = self.norm.backward(self.scores.backward(grad_out))
        of_attention: Any = self.attention.backward(grad)
        self.letters.backward(grad + of_attention)


def batches() -> Iterator[Array]:
    """The same letters for every model."""
    rng = np.random.default_rng(1)
    for _ in range(STEPS):
        yield rng.integers(LETTERS, size=(BATCH, LENGTH))


def losses(k: int, use_keys: bool, use_values: bool) -> list[float]:
    """The loss of each step of training."""
    model = Model(k, use_keys, use_values)
    optimizer = nn.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    found = []
    for tokens in batches():
        scores = model(tokens)
        grad = np.zeros_like(scores)
        loss, grad[:, DISTANCE:] = nn.cross_entropy(
            scores[:, DISTANCE:], tokens[:, :-DISTANCE]
        )
        optimizer.zero_grad()
        model.backward(grad)
        optimizer.step()
        found.append(float(loss))
    return found


def floor(tokens: Array, before: bool) -> float:
    """Loss of the best answers from how often letters occur, elsewhere or before."""
    answers = tokens[:, :-DISTANCE]
    place = np.arange(DISTANCE, LENGTH)[:, None]
    other = np.arange(LENGTH)
    counted = other < place if before else other != place
    same = tokens[:, None, :] == answers[:, :, None]
    share = (same & counted).sum(-1) / counted.sum(-1)
    return float(-np.log(share).mean())


def training(report: Report) -> None:
    """Curves of k = 0, 1, 4 and of the four rows of Table 3."""
    report.begin("Training: what relative positions make learnable")
    report.say(
        f"Of {LENGTH} random letters out of {LETTERS}, each is to be answered by"
    )
    report.say(f"the one {DISTANCE} places before it: nothing but the distance tells")
    report.say(
        "which that is. One layer of relpos.nn.ShawAttention, Adam; loss in nats."
    )
    report.say("k = 0 has one row for all distances and knows no more than no table;")
    report.say(
        "k = 1 knows before from after; k = 4 knows the distance. A table in the"
    )
    report.say(
        "keys lets weights depend on it; one in the values does not, and takes a"
    )
    report.say("detour. (The paper's Table 3: 25.8, 25.8, 25.3 and 12.5 BLEU.)")
    found: dict[Settings, list[float]] = {}
    for title, curves in (("k", K_CURVES), ("tables at k = 4", TABLE_3)):
        for name, settings in curves.items():
            report.progress(f"training {name}")
            if settings not in found:
                found[settings] = losses(*settings)
        named = {name: found[settings] for name, settings in curves.items()}
        report.curves(title, named, top=float(np.log(LETTERS)), at=SHOWN)
    check_curves(report, found)


def check_curves(report: Report, found: dict[Settings, list[float]]) -> None:
    """Each curve ends where what its model can know lets it end."""
    curves = {name: found[each] for name, each in (K_CURVES | TABLE_3).items()}
    ends = {name: float(np.mean(curve[-LAST:])) for name, curve in curves.items()}
    seen = list(batches())[-LAST:]
    anywhere = float(np.mean([floor(tokens, before=False) for tokens in seen]))
    before = float(np.mean([floor(tokens, before=True) for tokens in seen]))
    report.say(f"Mean of the last {LAST} steps beside the best that is possible:")
    for name in ("none", "k = 0"):
        what = f"{name}: no better than counting letters ({anywhere:.3f})"
        report.check(what, ends[name], anywhere - NOISE, at_least=True)
    what = f"k = 1: no better than counting letters before ({before:.3f})"
    report.check(what, ends["k = 1"], before - NOISE, at_least=True)
    report.check("k = 1: better than counting all", ends["k = 1"], anywhere - NOISE)
    for name in ("k = 4", "keys"):
        report.check(f"{name}: knows the letter", ends[name], NOISE)
    report.check("values: nearly", ends["values"], 0.2)
    keys, values = (steps_to(1.0, curves[name]) for name in ("keys", "values"))
    what = "values: steps to a loss of 1, beside those of keys"
    report.check(what, values, keys, at_least=True)


def steps_to(loss: float, curve: list[float]) -> int:
    """The first step below a loss; one more than there are if it is never reached."""
    return next((n for n, x in enumerate(curve, 1) if x < loss), len(curve) + 1)
