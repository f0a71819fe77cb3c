"""Step 7: layers of relpos.nn learn a task that only relative positions can solve.

The answer for each of some random letters is the letter DISTANCE before it. Letters are
independent, so nothing but the distance tells which letter that is. The tables of one
layer of Shaw's attention let it know this of a pair (i, j) with r = j - i:

- k = 0: nothing, as without tables, because every r has the same row. The best answer
  weighs the other letters by how often each occurs (`floor` with `before` False).
- k = 1: if j is before i, at i or after it. The best answer weighs the letters before i
  (`before` True).
- k = 4: r up to a distance of 4.

Both floors are exact: among those letters every order is equally likely. The rows of
Table 3 of the paper differ in which tables there are. With a table for the values only,
a head whose weights select one letter returns the mean of a^V_r over its positions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relpos import nn
from relpos._catalogue.rows import Array
from relpos._demo.report import Report

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


def model(k: int, use_keys: bool, use_values: bool) -> nn.Sequential:
    """Make a model from letters to scores of letters; every position is visible."""
    # Every model begins with the same numbers, where it has the same parts.
    rng = np.random.default_rng(0)
    return nn.Sequential(
        nn.Embedding(LETTERS, WIDTH, rng=rng),
        nn.Residual(
            nn.ShawAttention(
                WIDTH, HEADS, k, use_keys=use_keys, use_values=use_values, rng=rng
            ),
            nn.LayerNorm(WIDTH),
            pre_norm=False,
        ),
        nn.Linear(WIDTH, LETTERS, rng=rng),
    )


def batches() -> Iterator[Array]:
    """Yield the same letters for every model."""
    rng = np.random.default_rng(1)
    for _ in range(STEPS):
        yield rng.integers(LETTERS, size=(BATCH, LENGTH))


def losses(k: int, use_keys: bool, use_values: bool) -> list[float]:
    learner = model(k, use_keys, use_values)
    optimizer = nn.Adam(learner.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    losses_by_step = []
    for tokens in batches():
        scores = learner(tokens)
        # Positions without an answer have no gradient.
        grad = np.zeros_like(scores)
        # The answer of position n is the letter of position n - DISTANCE.
        loss, grad[:, DISTANCE:] = nn.cross_entropy(
            scores[:, DISTANCE:], tokens[:, :-DISTANCE]
        )
        optimizer.zero_grad()
        learner.backward(grad)
        optimizer.step()
        losses_by_step.append(float(loss))
    return losses_by_step


def floor(tokens: Array, before: bool) -> float:
    """Return the loss of the best answers from counts of letters (see above)."""
    answers = tokens[:, :-DISTANCE]
    position = np.arange(DISTANCE, LENGTH)[:, None]
    other = np.arange(LENGTH)
    # All other letters count, and not the one at the position itself.
    counted = other < position if before else other != position
    # Letters that equal the answer, among those that the model can count.
    same = tokens[:, None, :] == answers[:, :, None]
    share = (same & counted).sum(-1) / counted.sum(-1)
    return float(-np.log(share).mean())


def training(report: Report) -> None:
    report.begin("training")
    report.say("task", length=LENGTH, letters=LETTERS, distance=DISTANCE)
    report.say("k")
    report.say("tables")
    losses_of: dict[Settings, list[float]] = {}
    shown = {}
    for title, curves in (("k", K_CURVES), ("tables at k = 4", TABLE_3)):
        for name, settings in curves.items():
            report.progress(f"training {name}")
            # A setting of both lists is trained once.
            if settings not in losses_of:
                losses_of[settings] = losses(*settings)
        shown[title] = {name: losses_of[settings] for name, settings in curves.items()}
    report.covers(count=len(losses_of))
    report.picture("training", curves=shown)
    for title, named in shown.items():
        report.curves(title, named, top=float(np.log(LETTERS)), at=SHOWN)
    check_curves(report, losses_of)


def check_curves(report: Report, losses_of: dict[Settings, list[float]]) -> None:
    """Check that each curve ends at the best loss for what its model can know."""
    curves = {name: losses_of[each] for name, each in (K_CURVES | TABLE_3).items()}
    # A single loss varies from batch to batch.
    ends = {name: float(np.mean(curve[-LAST:])) for name, curve in curves.items()}
    # The floors are those of the batches that the ends are means of.
    batch = list(batches())[-LAST:]
    anywhere = float(np.mean([floor(tokens, before=False) for tokens in batch]))
    before = float(np.mean([floor(tokens, before=True) for tokens in batch]))
    floors = {"anywhere": f"{anywhere:.3f}", "before": f"{before:.3f}"}
    report.say("floors", last=LAST, **floors)
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
    what = "values: steps to a loss of 1, compared with keys"
    report.check(what, values, keys, at_least=True)


def steps_to(loss: float, curve: list[float]) -> int:
    """Return the first step below a loss, or one after the last if none is."""
    return next((n for n, x in enumerate(curve, 1) if x < loss), len(curve) + 1)
