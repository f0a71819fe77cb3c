"""Facts as data: what an overview compares, slips of documents, results, chorales.

`relpos/data/overview.toml` and `slips.toml` hold the first two; functions return their
rows as lists of named tuples, whose repr is a table. The arrays in this folder are
recorded cases of the demo. `experiment` returns the results of a source tree's
`docs/experiments.md`, `shaw_tables` and `reported` those of papers, and `chorales` is
music to train on.
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

from typing import TYPE_CHECKING

from relpos._suggestions import absent as _absent, publish as _publish
from relpos.data._facts import *

__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)


def __dir__() -> list[str]:
    return __all__
