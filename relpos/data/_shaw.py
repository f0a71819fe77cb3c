"""What Shaw et al. measured."""

from __future__ import annotations

from typing import NamedTuple

from relpos._checks import as_int
from relpos.data._table import Table

__all__ = ["Bleu", "shaw_tables"]


class Bleu(NamedTuple):
    """One number of the tables of Shaw et al.: how well a model translated.

    Attributes
    ----------
    table : int
        1 positions, absolute or relative; 2 clipping distances; 3 tables of keys and
        values.
    model : str
        "base" or "big".
    pair : str
        "EN-DE" or "EN-FR": newstest2014 in Table 1, newstest2013 in the others.
    k : int or None
        Where relative positions were clipped. None: they were absolute, sinusoids.
    keys, values : bool
        Whether keys and values had a table.
    bleu : float

    See Also
    --------
    shaw_tables : All of them.

    Examples
    --------
    >>> from relpos import data
    >>> data.Bleu(2, "base", "EN-DE", 16, True, True, 25.8).bleu
    25.8
    """

    table: int
    model: str
    pair: str
    k: int | None
    keys: bool
    values: bool
    bleu: float


_TABLE_1 = {
    ("base", None): (26.5, 38.2),
    ("base", 16): (26.8, 38.7),
    ("big", None): (27.9, 41.2),
    ("big", 8): (29.2, 41.5),
}
_TABLE_2 = {0: 12.5, 1: 25.5, 2: 25.8, 4: 25.9, 16: 25.8, 64: 25.9, 256: 25.8}
#: By whether there are tables of values and of keys, as the paper's columns are.
_TABLE_3 = {
    (True, True): 25.8,
    (False, True): 25.8,
    (True, False): 25.3,
    (False, False): 12.5,
}
_ROWS = [
    *(
        Bleu(1, model, pair, k, k is not None, k is not None, bleu)
        for (model, k), scores in _TABLE_1.items()
        for pair, bleu in zip(("EN-DE", "EN-FR"), scores, strict=True)
    ),
    *(Bleu(2, "base", "EN-DE", k, True, True, bleu) for k, bleu in _TABLE_2.items()),
    *(
        Bleu(3, "base", "EN-DE", 16, keys, values, bleu)
        for (values, keys), bleu in _TABLE_3.items()
    ),
]


def shaw_tables(table: int | None = None) -> list[Bleu]:
    """Return the translation scores of the paper of Shaw et al., its Tables 1 to 3.

    Parameters
    ----------
    table : int, optional
        1, 2 or 3; by default all of them.

    Returns
    -------
    list of Bleu
        ``(table, model, pair, k, keys, values, bleu)``.

    Raises
    ------
    TypeError
        If `table` is no integer.
    ValueError
        If the paper has no such table.

    See Also
    --------
    experiment : What "shaw-tables" measured of the same questions, small.
    reported : What other papers report of positions.
    relpos.shaw_attention : The attention.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, section 4.

    Examples
    --------
    >>> from relpos import data
    >>> {row.k: row.bleu for row in data.shaw_tables(2)}
    {0: 12.5, 1: 25.5, 2: 25.8, 4: 25.9, 16: 25.8, 64: 25.9, 256: 25.8}
    """
    number = None if table is None else as_int("table", table, 1, 3)
    return Table(row for row in _ROWS if number in (None, row.table))
