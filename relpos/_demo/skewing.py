"""Step 3: the matrix of relative positions, and the skew that avoids gathering it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import relpos
from relpos import reference
from relpos._demo.recorded import load
from relpos._demo.report import Report

__all__ = ["skewing"]

LENGTH = 5


def skewing(report: Report) -> None:
    """Compare pad, reshape and slice with scores that are gathered pair by pair."""
    report.begin("skewing")
    report.say("problem")
    report.say("skew", rows=LENGTH + 1, length=LENGTH)
    report.picture("skew")
    relative = relpos.relative_positions(LENGTH)
    wrong = np.abs(relative - reference.relative_positions(LENGTH)).max()
    report.check("the matrix against the reference", wrong, 0.0)
    recorded = load("music_article")
    q, table = recorded["query"][0, 0, :LENGTH], recorded["rel_key"][-LENGTH:]
    scores = q @ table.T
    padded = np.pad(scores, ((0, 0), (1, 0)))
    steps = padded.reshape(LENGTH + 1, LENGTH)[1:]
    skewed = relpos.skew(scores, is_causal=True)
    report.check("relpos.skew against these three steps", gap(skewed, steps), 0.0)
    past = relative <= 0
    column = np.clip(relative + LENGTH - 1, 0, LENGTH - 1)
    gathered = np.take_along_axis(scores, column, axis=1)
    report.check(
        "skewed minus gathered, keys up to the query",
        gap(skewed[past], gathered[past]),
        0.0,
    )
    i, j = np.nonzero(relative > 1)
    report.check(
        "wrapped entries [i, j] are entries [i + 1, j - i - 2] of the input",
        gap(skewed[i, j], scores[i + 1, j - i - 2]),
        0.0,
    )


def gap(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the largest difference."""
    return float(np.abs(a - b).max())
