"""Facts as data: what an overview of positional encodings compares, and its slips.

`relpos/data/overview.toml` holds them, to be read as it is; the functions below give
its three tables as named tuples. The arrays beside it are recorded cases of the demo.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, NamedTuple

__all__ = ["Comparison", "Family", "Slip", "comparison", "families", "slips"]


class Comparison(NamedTuple):
    """One feature of absolute and of relative encodings.

    Attributes
    ----------
    feature, absolute, relative : str

    See Also
    --------
    comparison : All of them.

    Examples
    --------
    >>> from relpos import data
    >>> data.Comparison("learned", "either", "mostly").relative
    'mostly'
    """

    feature: str
    absolute: str
    relative: str


class Family(NamedTuple):
    """A family of encodings, and the functions of relpos that compute it.

    Attributes
    ----------
    name, acts_on, learned : str
    functions : tuple of str
    paper : str

    See Also
    --------
    families : All of them.

    Examples
    --------
    >>> from relpos import data
    >>> [family.functions for family in data.families() if family.learned == "no"][:2]
    [('apply_rotary',), ('alibi_bias',)]
    """

    name: str
    acts_on: str
    learned: str
    functions: tuple[str, ...]
    paper: str


class Slip(NamedTuple):
    """What the overview prints and what is right; `check` is code that is then true.

    Attributes
    ----------
    printed, correct, check : str

    See Also
    --------
    slips : All of them.

    Examples
    --------
    >>> from relpos import data
    >>> data.Slip("7 - 9 = 2", "-2", "7 - 9 == -2").correct
    '-2'
    """

    printed: str
    correct: str
    check: str = ""


_OVERVIEW: dict[str, list[dict[str, Any]]] = tomllib.loads(
    (files(__name__) / "overview.toml").read_text("utf-8")
)


def comparison() -> list[Comparison]:
    """Absolute and relative encodings, feature by feature.

    Returns
    -------
    list of Comparison
        ``(feature, absolute, relative)``, corrected where `slips` says so.

    See Also
    --------
    families : The encodings that it compares.
    relpos.audit_encoding : What is good and bad about an encoding, measured.

    Examples
    --------
    >>> from relpos import data
    >>> [row.relative for row in data.comparison() if row.feature == "moved words"]
    ['keep theirs: only distances count']
    """
    return [Comparison(**row) for row in _OVERVIEW["comparison"]]


def families() -> list[Family]:
    """The families of encodings: absolute, relative, and those beside them.

    Returns
    -------
    list of Family
        ``(name, acts_on, learned, functions, paper)``.

    See Also
    --------
    comparison : Absolute and relative encodings side by side.

    Examples
    --------
    >>> from relpos import data
    >>> [family.name for family in data.families()][:3]
    ['absolute', 'relative', 'rotary (RoPE)']
    """
    rows = _OVERVIEW["family"]
    return [Family(**{**row, "functions": tuple(row["functions"])}) for row in rows]


def slips() -> list[Slip]:
    """Slips in the overview's text, each beside what is right.

    Returns
    -------
    list of Slip
        ``(printed, correct, check)``; `check` is an expression over ``relpos`` and
        ``np`` that is true, empty where there is nothing to compute.

    See Also
    --------
    comparison, families : The tables with the slips put right.

    Examples
    --------
    >>> from relpos import data
    >>> data.slips()[1].printed
    'r_{6,1} = 1 - 6 = 5'
    """
    return [Slip(**row) for row in _OVERVIEW["slip"]]
