"""What experiments found, as stored."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple

from relpos._checks import as_choice


class Experiment(NamedTuple):
    """What an experiment found, and where the numbers are from.

    Attributes
    ----------
    name : str
    results : dict
        Numbers, lists and dictionaries; a number for each seed where they vary.
    seeds : list of int
    versions : dict
        Of relpos, of NumPy, of Python and of what else it needed.
    cpu : str
    threads : int
    seconds : float
        Of CPU time, that the whole of it took.

    See Also
    --------
    experiment : Returns it.

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
    """Return what one of the experiments found, as it is stored.

    In a source tree `docs/experiments.md` says what each of them asks, what it found
    and how to run it again.

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
    TypeError
        If `name` is no string.
    ValueError
        If there is no such experiment; the message names those that there are.

    See Also
    --------
    relpos.plot.length_generalisation : Draws results by length, with their spread.

    Examples
    --------
    >>> from relpos import data
    >>> found = data.experiment("probes").results["random"]["word"]
    >>> [min(seeds) > 0.99 for seeds in found][-1]  # read from 512 dimensions
    True
    """
    stored = {
        path.name.removesuffix(".json"): path
        for path in (files("relpos.data") / "experiments").iterdir()
        if path.name.endswith(".json")
    }
    path = stored[as_choice("name", name, sorted(stored))]
    return Experiment(**json.loads(path.read_text("utf-8")))
