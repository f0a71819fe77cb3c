"""Facts as data: what an overview compares, slips of documents, results, chorales.

`relpos/data/overview.toml` and `slips.toml` hold the first two, to be read as they are;
functions give their tables as lists of named tuples, which show themselves as tables.
The arrays beside them are recorded cases of the demo. `experiment` gives what the
experiments of a source tree's `docs/experiments.md` found, `shaw_tables` and
`reported` what papers measured, and `chorales` is music to train on.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, NamedTuple

from relpos._checks import as_choice
from relpos.data._experiments import Experiment, experiment
from relpos.data._music import Chorale, chorales
from relpos.data._reported import Reported, reported
from relpos.data._shaw import Bleu, shaw_tables
from relpos.data._table import Table

tomllib.loads("all = 1")  # loads what Python 3.15 puts off to a first number

__all__ = [
    "Bleu",
    "Chorale",
    "Comparison",
    "Experiment",
    "Family",
    "Reported",
    "Slip",
    "chorales",
    "comparison",
    "experiment",
    "families",
    "reported",
    "shaw_tables",
    "slips",
]


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
    """What a document prints and what is right; `check` is code that is then true.

    Attributes
    ----------
    document, printed, correct, check : str

    See Also
    --------
    slips : All of them.

    Examples
    --------
    >>> from relpos import data
    >>> data.Slip("a textbook", "7 - 9 = 2", "-2", "7 - 9 == -2").correct
    '-2'
    """

    document: str
    printed: str
    correct: str
    check: str = ""


def _read(name: str) -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((files(__name__) / name).read_text("utf-8"))


_OVERVIEW = _read("overview.toml")
_SLIPS = [Slip(**row) for row in _read("slips.toml")["slip"]]


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
    return Table(Comparison(**row) for row in _OVERVIEW["comparison"])


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
    return Table(
        Family(**{**row, "functions": tuple(row["functions"])}) for row in rows
    )


def slips(document: str | None = None) -> list[Slip]:
    """Slips of four documents on relative positions, each beside what is right.

    "Chilkuri 2023" is "Understanding Relative Position Encoding and Attention", on
    Transformer-XL; "Relative Positional Encoding" an article on Shaw's and the Music
    Transformer's; "SELENE overview" the notebook "Positional Encodings: Overview";
    "Shaw et al. 2018" the paper (arXiv:1803.02155).

    Parameters
    ----------
    document : str, optional
        One of these four names; default all.

    Returns
    -------
    list of Slip
        ``(document, printed, correct, check)``; `check` is an expression over
        ``relpos`` and ``np`` that is true, empty where there is nothing to compute.

    Raises
    ------
    TypeError, ValueError
        If `document` is none of them.

    See Also
    --------
    comparison, families : The overview's tables with its slips put right.

    Examples
    --------
    >>> from relpos import data
    >>> [slip] = [slip for slip in data.slips() if "= 5" in slip.printed]
    >>> slip.document, slip.printed
    ('SELENE overview', 'r_{6,1} = 1 - 6 = 5')
    >>> len(data.slips("Shaw et al. 2018"))
    5
    """
    if document is not None:
        as_choice("document", document, [*dict.fromkeys(s.document for s in _SLIPS)])
    return Table(s for s in _SLIPS if document in (None, s.document))
