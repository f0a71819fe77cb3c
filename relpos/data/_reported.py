"""What papers report of positions, as data."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import NamedTuple

from relpos.data._table import Table

__all__ = ["Reported", "reported"]


class Reported(NamedTuple):
    """A number that a paper reports of one kind of positions.

    Attributes
    ----------
    paper : str
        Authors, year and number of the preprint.
    where : str
        The table or section, and which model.
    measure : str
        What was measured, in which unit, on which data.
    positions : str
        What the model has for positions.
    value : float

    See Also
    --------
    reported : All of them.

    Examples
    --------
    >>> from relpos import data
    >>> data.reported()[0].paper
    'Vaswani et al. 2017, arXiv:1706.03762'
    """

    paper: str
    where: str
    measure: str
    positions: str
    value: float


def reported() -> list[Reported]:
    """Return what papers report of positions where it cannot be measured again here.

    Numbers of one `measure` and `where` are to be compared with one another: all else
    of their models is equal. `relpos/data/reported.toml` holds them.

    Returns
    -------
    list of Reported
        ``(paper, where, measure, positions, value)``.

    See Also
    --------
    shaw_tables : Those of Shaw et al.
    experiment : What was measured here.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762.
    .. [2] Huang et al., "Music Transformer", 2018, arXiv:1809.04281.
    .. [3] Dai et al., "Transformer-XL", 2019, arXiv:1901.02860.
    .. [4] Gulati et al., "Conformer", 2020, arXiv:2005.08100.

    Examples
    --------
    >>> from relpos import data
    >>> [(r.positions, r.value) for r in data.reported() if "BLEU" in r.measure]
    [('sinusoids', 25.8), ('learned table', 25.7)]
    """
    text = (files("relpos.data") / "reported.toml").read_text("utf-8")
    return Table(
        Reported(row["paper"], row["where"], row["measure"], positions, float(value))
        for row in tomllib.loads(text)["reported"]
        for positions, value in row["values"].items()
    )
