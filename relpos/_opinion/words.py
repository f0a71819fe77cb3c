"""The verdict: what was found, as a sentence."""

from __future__ import annotations

from relpos._opinion.known import DIFFERENCES
from relpos._opinion.rounding import CANNOT_TELL, DTYPES
from relpos._opinion.search import Finding, Tried

__all__ = ["kind_of_finding", "sentence"]


def kind_of_finding(finding: Finding) -> str:
    """'same', 'convention', 'mistake', 'cannot tell' or 'unknown'."""
    if finding.found is None:
        return "cannot tell" if finding.doubtful else "unknown"
    if not finding.found.differences:
        return "same"
    return "mistake" if finding.found.mistakes else "convention"


def sentence(called: str, finding: Finding, coarse: bool) -> str:
    """What was found, what the inputs leave open, and to which rounding it holds."""
    if finding.found is None:
        closest = _closest(called, finding.closest)
        if finding.doubtful:
            return f"{CANNOT_TELL}; {closest}, which rounded scores may explain"
        return (
            f"fits none of {len(DIFFERENCES)} known differences from {called}, nor two "
            f"of them at once; {closest}"
        )
    text = f"equals {called}{_differing(finding.found)} ({finding.found.error:.1g})"
    if coarse and finding.rounding == DTYPES["float32"]:
        text += ", to the rounding of float32: something in yours is computed in it"
    if not finding.others:
        return text
    names = ", ".join(finding.others)
    if finding.found.differences:
        return f"{text}; these inputs cannot tell it from: {names}"
    return f"{text}; these inputs would not show: {names}"


def _differing(tried: Tried) -> str:
    """What is different in an attempt, in words."""
    parts = [f"with {row.words}" for row in tried.differences]
    return f" {' and '.join(parts)}" if parts else ""


def _closest(called: str, closest: Tried) -> str:
    """Name what comes nearest, and how near it is."""
    return (
        f"the closest is {called}{_differing(closest)}, with an error of "
        f"{closest.error:.2g} of the largest entry, at {list(closest.at)}"
    )
