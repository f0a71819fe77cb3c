"""Facts: an overview, slips of documents, results, chorales; and their tables."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from relpos._checks import as_choice, as_int
from relpos._text import html_table, table_lines

__all__ = ["Bleu", "Chorale", "Comparison", "Experiment", "Family", "Reported", "Slip"]
__all__ += ["chorales", "comparison", "experiment", "families", "reported"]
__all__ += ["shaw_tables", "slips"]

tomllib.loads("all = 1")  # loads what Python 3.15 puts off to a first number

Row = TypeVar("Row", bound=tuple[Any, ...])

_FOLDER = files("relpos.data")


def _text(value: object) -> str:
    """Return a value as a text; the parts of a tuple are joined by commas."""
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _cut(text: str, width: int) -> str:
    """Return a text, or its beginning where it is longer."""
    return text if len(text) <= width else f"{text[: width - 2]}.."


class Table(list[Row]):
    """A list of named tuples whose repr is a table, long texts cut."""

    def _parts(self) -> tuple[list[str], list[list[str]]]:
        header: list[str] = [*getattr(self[0], "_fields", ())] if self else []
        return header, [[_text(x) for x in row] for row in self]

    def __repr__(self) -> str:
        if not self:
            return "[]"
        header, rows = self._parts()
        # At most 80 columns: the last field has no two spaces behind it.
        width = 82 // len(header) - 2  # two spaces between columns
        short = [[_cut(text, width) for text in row] for row in rows]
        return "\n".join(table_lines(header, short, left=range(len(header))))

    def _repr_html_(self) -> str:
        return html_table(*self._parts())


class Comparison(NamedTuple):
    """One feature of absolute and of relative encodings.

    Attributes
    ----------
    feature, absolute, relative : str

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
    """A mistake in a document and its correction; `check` is code that is then true.

    Attributes
    ----------
    document, printed, correct, check : str

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
    return tomllib.loads((_FOLDER / name).read_text("utf-8"))


_OVERVIEW = _read("overview.toml")
_SLIPS = [Slip(**row) for row in _read("slips.toml")["slip"]]


def comparison() -> list[Comparison]:
    """Absolute and relative encodings, feature by feature.

    Returns
    -------
    list of Comparison
        ``(feature, absolute, relative)``, corrected by `slips`.

    Examples
    --------
    >>> from relpos import data
    >>> [row.relative for row in data.comparison() if row.feature == "moved words"]
    ['keep theirs: only distances count']
    """
    return Table(Comparison(**row) for row in _OVERVIEW["comparison"])


def families() -> list[Family]:
    """The families of encodings: absolute, relative, and others.

    Returns
    -------
    list of Family
        ``(name, acts_on, learned, functions, paper)``.

    Examples
    --------
    >>> from relpos import data
    >>> [family.name for family in data.families()][:3]
    ['absolute', 'relative', 'rotary (RoPE)']
    """
    rows = _OVERVIEW["family"]
    # TOML has lists, and the field is a tuple.
    return Table(
        Family(**(row | {"functions": tuple(row["functions"])})) for row in rows
    )


def slips(document: str | None = None) -> list[Slip]:
    """Slips of four documents on relative positions, each with its correction.

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


class Experiment(NamedTuple):
    """The results of an experiment, and the machine and programs that gave them.

    Attributes
    ----------
    name : str
    results : dict
        Numbers, lists and dictionaries; a number for each seed where they vary.
    seeds : list of int
    versions : dict
        The versions of relpos, NumPy, Python and other packages that it needed.
    cpu : str
    threads : int
    seconds : float
        CPU time of the whole.

    Examples
    --------
    >>> from relpos import data
    >>> data.experiment("probes").seeds
    [0, 1, 2, 3, 4]
    """

    name: str
    results: dict[str, Any]
    seeds: list[int]
    versions: dict[str, str]
    cpu: str
    threads: int
    seconds: float


def experiment(name: str) -> Experiment:
    """Return the stored results of one of the experiments.

    In a source tree `docs/experiments.md` has the question and the result of each, and
    the command that runs it again.

    Parameters
    ----------
    name : str
        As in ``python -m docs.experiments NAME``.

    Returns
    -------
    Experiment
        ``(name, results, seeds, versions, cpu, threads, seconds)``.

    Raises
    ------
    ValueError
        If there is no such experiment; the message has the names of all.

    Examples
    --------
    >>> from relpos import data
    >>> found = data.experiment("probes").results["random"]["word"]
    >>> [min(seeds) > 0.99 for seeds in found][-1]  # read from 512 dimensions
    True
    """
    # Names come from the files, so that a new experiment needs no list.
    stored = {
        path.name.removesuffix(".json"): path
        for path in (_FOLDER / "experiments").iterdir()
        if path.name.endswith(".json")
    }
    path = stored[as_choice("name", name, sorted(stored))]
    return Experiment(**json.loads(path.read_text("utf-8")))


class Reported(NamedTuple):
    """A number that a paper reports of one kind of positions.

    Attributes
    ----------
    paper : str
        Authors, year and number of the preprint.
    where : str
        The table or section, and which model.
    measure : str
        The quantity, its unit, and the data.
    positions : str
        The positions of the model.
    value : float

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
    """Return numbers of papers on positions that cannot be measured again here.

    Numbers of one `measure` and `where` can be compared with one another: all else of
    their models is equal. `relpos/data/reported.toml` holds them.

    Returns
    -------
    list of Reported
        ``(paper, where, measure, positions, value)``.

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
    rows: Table[Reported] = Table()
    for row in _read("reported.toml")["reported"]:
        # A table of the paper has one entry, with a value for each kind of positions.
        what = row["paper"], row["where"], row["measure"]
        for positions, value in row["values"].items():
            rows.append(Reported(*what, positions, float(value)))
    return rows


class Bleu(NamedTuple):
    """One translation score of the tables of Shaw et al.

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
        The distance at which relative positions were clipped. None: they were absolute,
        sinusoids.
    keys, values : bool
        True where keys or values had a table.
    bleu : float

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
#: By tables of values and of keys, as the paper's columns are.
_TABLE_3 = {
    (True, True): 25.8,
    (False, True): 25.8,
    (True, False): 25.3,
    (False, False): 12.5,
}


def _bleu_rows() -> list[Bleu]:
    """List the scores of the three tables, in their order."""
    rows = []
    for (model, k), scores in _TABLE_1.items():
        clipped = k is not None  # without a distance there are no tables
        for pair, bleu in zip(("EN-DE", "EN-FR"), scores, strict=True):
            rows.append(Bleu(1, model, pair, k, clipped, clipped, bleu))
    for distance, bleu in _TABLE_2.items():
        rows.append(Bleu(2, "base", "EN-DE", distance, True, True, bleu))
    for (values, keys), bleu in _TABLE_3.items():
        rows.append(Bleu(3, "base", "EN-DE", 16, keys, values, bleu))
    return rows


_ROWS = _bleu_rows()


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
    ValueError
        If the paper has no such table.

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


class Chorale(NamedTuple):
    """A chorale in four parts.

    Attributes
    ----------
    name : str
        Its number in the catalogue of Bach's works, as the file of music21 is named.
    notes : ndarray of int, (n, 4)
        A row for each note: voice (0 soprano to 3 bass), pitch as in MIDI (60 is the
        middle C), start and length in sixteenths; by start, then voice.

    Examples
    --------
    >>> from relpos import data
    >>> data.Chorale("scale", [[0, 60, 0, 4], [0, 62, 4, 4]]).name
    'scale'
    """

    name: str
    notes: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Chorale({self.name!r}, {len(self.notes)} notes)"


def chorales() -> list[Chorale]:
    """Bach's chorales in four parts: real music to train on.

    Returns
    -------
    list of Chorale
        ``(name, notes)``, 361 of them with 83,962 notes, in the order of their names.
        A rest has no row; repeats are not written out.

    Notes
    -----
    The music is in the public domain. The notes were read from the corpus of music21
    10.5.1 (M. S. A. Cuthbert and others), which has most of these scores from Margaret
    Greentree's edition, by her permission. Left out are scores with a statement of
    copyright, with notes off the grid of sixteenths or with other than four parts, and
    the second of two alike.

    Examples
    --------
    >>> from relpos import data
    >>> chorale = data.chorales()[0]
    >>> chorale
    Chorale('bwv10.7', 206 notes)
    >>> chorale.notes[:4]  # a half note in each voice
    array([[ 0, 74,  0,  8],
           [ 1, 67,  0,  8],
           [ 2, 58,  0,  8],
           [ 3, 55,  0,  8]])
    """
    # Copies, because the notes are read once and a caller may change them.
    return [Chorale(name, notes.copy()) for name, notes in _read_chorales()]


@cache
def _read_chorales() -> list[tuple[str, NDArray[np.int64]]]:
    with np.load(str(_FOLDER / "chorales.npz")) as stored:
        names, counts = stored["names"].astype(str), stored["counts"]
        # The arrays are of uint8, in which sums of lengths would overflow.
        rows = np.stack([stored["pitches"], stored["lengths"]], 1).astype(np.int64)
    # The notes of all voices follow one another, and `counts` has the length of each.
    voices = np.split(rows, counts.ravel().cumsum(dtype=np.int64)[:-1])
    return [
        (str(name), _joined(voices[at * 4 : at * 4 + 4]))
        for at, name in enumerate(names)
    ]


def _joined(voices: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the notes of four voices, rests left out."""
    parts = []
    for number, (pitches, lengths) in enumerate(voice.T for voice in voices):
        # A note begins where the lengths of those before it end.
        starts = lengths.cumsum() - lengths
        part = np.stack([np.full_like(starts, number), pitches, starts, lengths], 1)
        # A rest has the pitch 0. It has moved the starts of later notes by its length.
        parts.append(part[pitches > 0])
    notes = np.concatenate(parts)
    # The last key of lexsort is the first one: by start, then by voice.
    return notes[np.lexsort((notes[:, 0], notes[:, 2]))]
