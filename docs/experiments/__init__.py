"""Experiments behind what docs/experiments.md claims: `python -m docs.experiments`.

An experiment is a module beside this one, named in `EXPERIMENTS`. It has

- ``run(seeds, quick)``, which returns its results: plain numbers, lists and
  dictionaries. The full form takes minutes, the quick one seconds;
- ``check(results, quick)``, which asserts what the page says came out;
- ``table(results)``, the rows of its table on the page, the header first.
"""

from __future__ import annotations

#: Of the full form, unless the module has its own; the quick form has the first alone.
SEEDS = [0, 1, 2, 3, 4]
#: Name of an experiment -> what it asks. Its module has "_" for "-".
EXPERIMENTS = {
    "length": "trained at length 16, which positions still serve at 128?",
    "shaw-tables": "what do clipping distances, and tables of keys or values, change?",
    "reach": "do layers see farther than k?",
    "absolute-and-relative": "does it help to add absolute positions to relative ones?",
    "nope": "where does a model without positions keep them?",
    "cost": "what do relative terms cost today?",
    "probes": "can a linear probe read the word and the position out of their sum?",
    "text": "what are positions and a memory worth in English, by character?",
    "chorales": "are relative positions good past the trained length, in Bach?",
    "speech": "an hour of speech through attention: what memory, and how exact?",
}
