"""Pictures of encodings, positions, attention weights and losses (matplotlib).

Each function draws into the axes given as `ax`, or into new ones, and returns them.
None of them shows a window or writes a file. Maps of one kind in one figure have one
colour scale: a colour is the same number in all of them.
In a checkout of relpos, ``pip install ".[plot]"`` also installs matplotlib.
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

from typing import TYPE_CHECKING

from relpos._suggestions import absent as _absent, publish as _publish
from relpos.plot.lines import *
from relpos.plot.pairs import *
from relpos.plot.schemes import *

__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)


def __dir__() -> list[str]:
    return __all__
