"""The definitions: every function of relpos as plain NumPy in float64.

Nothing here is fast. Each function writes one formula down and builds every array that
the formula names, arrays of L x L x d included. Inputs of any real dtype are taken to
float64 first, and results are float64. Shapes are those of the functions of the same
name in `relpos` (``...`` are leading batch axes, H heads, Lq and Lk lengths, D
head_dim, R table rows), and a relative position is always key minus query. CoPE,
stick-breaking, PaTH, DAPE, selective RoPE and LieRE are here alone: a definition that
says "Reference only" has no kernel.

A definition also takes tensors of torch, returns tensors, and is differentiated by
autograd, any number of times. Its first two derivatives are finite and exact where rows
and pairs are hidden and biases are -inf. The gradients that are written out, in the
functions whose names end in ``_backward``, take arrays.

Notation of the formulas: q, k, v are rows of query, key and value; i counts queries,
j counts keys, o is `query_offset` and r(i, j) = j - (i + o).

See Also
--------
relpos : The same functions, by the kernels.
relpos.demo : Compares the two.
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

from typing import TYPE_CHECKING

import numpy as np  # noqa: F401  (the examples use it)

import relpos as _relpos
from relpos._suggestions import absent as _absent, publish as _publish
from relpos._twins import twin as _twin
from relpos.reference.biases import *
from relpos.reference.encodings import *
from relpos.reference.formula import *
from relpos.reference.gradients import *
from relpos.reference.indexer import *
from relpos.reference.later import *
from relpos.reference.rotary import *
from relpos.reference.schemes import *

__all__ = _publish(globals())

for _name in {*__all__} & {*_relpos.__all__}:
    _twin(getattr(_relpos, _name), titles=("References",))(globals()[_name])

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)


def __dir__() -> list[str]:
    return __all__
