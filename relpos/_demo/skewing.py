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
    """The 5 x 5 matrix; then pad, reshape, slice beside the gathered scores."""
    report.begin("Relative positions, and the skew step by step")
    relative = relpos.relative_positions(LENGTH)
    report.say("relative position of key j seen from query i, r = j - i:")
    report.matrix(relative, form="3d")
    wrong = np.abs(relative - reference.relative_positions(LENGTH)).max()
    report.check("the matrix against the reference", wrong, 0.0)

    recorded = load("music_article")
    q, table = recorded["query"][0, 0, :LENGTH], recorded["rel_key"][-LENGTH:]
    scores = q @ table.T
    report.say("Q times the transpose of E_r, of a recorded layer; column t is the")
    report.say(f"score for relative position t - {LENGTH - 1}:")
    report.matrix(scores)

    padded = np.pad(scores, ((0, 0), (1, 0)))
    report.say("1. a column of zeros in front:")
    report.matrix(padded)
    reread = padded.reshape(LENGTH + 1, LENGTH)
    report.say("2. the same memory read as 6 rows of 5:")
    report.matrix(reread)
    skewed = relpos.skew(scores, is_causal=True)
    future = relative > 0
    report.say("3. without the first row: relpos.skew(x, is_causal=True). In brackets")
    report.say("what wrapped around from the next row, which a causal mask must hide:")
    report.matrix(skewed, mark=future)
    report.check("relpos.skew against these three steps", gap(skewed, reread[1:]), 0.0)

    column = np.clip(relative + LENGTH - 1, 0, LENGTH - 1)
    gathered = np.take_along_axis(scores, column, axis=1)
    report.say("the gathered scores q_i . e_r, one look-up for each pair:")
    report.matrix(np.where(future, 0.0, gathered))
    report.check(
        "skewed minus gathered, keys up to the query",
        gap(skewed[~future], gathered[~future]),
        0.0,
    )
    i, j = np.nonzero(relative > 1)
    report.check(
        "wrapped entries [i, j] are entries [i + 1, j - i - 2] of the input",
        gap(skewed[i, j], scores[i + 1, j - i - 2]),
        0.0,
    )


def gap(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Largest difference."""
    return float(np.abs(a - b).max())
