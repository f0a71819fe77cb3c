"""Attention with relative positions: fast, accurate C kernels for NumPy and PyTorch.

{names}

`relpos.nn` has layers with gradients, `relpos.recipes` the parameters of published
models as arguments of `attention`, `relpos.reference` every function as plain NumPy to
be read, `relpos.torch` the functions on tensors, with autograd, `relpos.sharded`
attention on dask arrays, in chunks, `relpos.ufuncs` the kernels as ufuncs,
`relpos.plot` pictures, and `relpos.data` tables that compare encodings.

Layout is (..., heads, length, dim); a relative position is key minus query, so that the
past is negative; in a mask, True may attend.

Examples
--------
>>> import numpy as np
>>> import relpos
>>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 200, 64))
>>> relpos.attention(q, k, v, rel_bias=relpos.alibi_bias(8, 200)).shape
(8, 200, 64)
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING

__version__ = "0.3.0"

# All public names come with the import: a process forked while another thread loads a
# module waits in that import for ever, so no call may load one. Settings come first:
# they warn of what the environment says at the line that imports relpos.
try:
    from relpos._settings import *
except ImportError as exc:
    if exc.name != "relpos._core":
        raise
    raise ImportError(
        "relpos is imported from a source tree whose C extension is not built; "
        "run `python -m pip install -e .` in it, or leave its folder to use an "
        "installed relpos",
        name="relpos._core",
    ) from exc

from relpos._attention.attention import *
from relpos._attention.cache import *
from relpos._attention.fire import *
from relpos._attention.functional import *
from relpos._attention.gradients import *
from relpos._attention.indexer import *
from relpos._attention.plan import *
from relpos._attention.positions import *
from relpos._attention.schemes import *
from relpos._attention.scores import *
from relpos._biases import *
from relpos._encodings.absolute import *
from relpos._encodings.audit import *
from relpos._encodings.conv import *
from relpos._encodings.rotary import *
from relpos._encodings.rotary_config import *
from relpos._encodings.rotary_scaling import *
from relpos._suggestions import absent as _absent, publish as _publish, table as _table

__all__ = ["__version__", *_publish(globals())]
__doc__ = __doc__ and __doc__.replace("{names}", _table(__all__))  # None under -OO

# What few programs need is loaded when it is first named: modules, two of which need a
# package that may be absent, and functions by the modules that have them.
_LATER = ("data", "nn", "plot", "recipes", "reference", "sharded", "torch", "ufuncs")
_NEEDS = {"sharded": "dask", "torch": "torch"}
_FUNCTIONS = {
    "compare": "relpos._opinion.compare",
    "demo": "relpos._demo.programme",
    "diagnose": "relpos._opinion.diagnose",
}

if TYPE_CHECKING:
    from relpos import (
        data as data,
        nn as nn,
        plot as plot,
        recipes as recipes,
        reference as reference,
        sharded as sharded,
        torch as torch,
        ufuncs as ufuncs,
    )
    from relpos._demo.programme import demo as demo
    from relpos._opinion.compare import compare as compare
    from relpos._opinion.diagnose import diagnose as diagnose
else:

    def __getattr__(name):
        if name in _FUNCTIONS:
            return getattr(_import_module(_FUNCTIONS[name]), name)
        if name in _LATER:
            try:
                return _import_module(f"relpos.{name}")
            except ImportError as exc:  # hasattr and inspect ask for an AttributeError
                raise AttributeError(str(exc), obj=None) from exc
        return _absent("relpos")(name)


def _is_installed(package: str) -> bool:
    try:
        return _find_spec(package) is not None
    except (ImportError, ValueError):  # refused by a finder; a module without a spec
        return False


def __dir__() -> list[str]:
    absent = {name for name, needed in _NEEDS.items() if not _is_installed(needed)}
    return sorted({*__all__, *_LATER, *_FUNCTIONS} - absent)
