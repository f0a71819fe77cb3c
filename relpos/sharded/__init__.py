"""relpos for dask: attention in chunks, lazily, on one machine or many.

Never imported by ``import relpos``. Arguments and results are those of `relpos`, as
dask arrays: chunks of batch and heads are one task each, chunks of the queries and of
the keys are blocks of one long sequence, joined by `relpos.merge_attention`.
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

try:
    import dask.array as _array  # noqa: F401
except ImportError as exc:
    if (exc.name or "").partition(".")[0] != "dask":
        raise
    raise ImportError(
        "relpos.sharded needs dask, which is not installed; run `pip install "
        "'dask[array]' distributed`, or in a checkout `pip install '.[dask]'`",
        name="dask",
    ) from exc

from typing import TYPE_CHECKING

from relpos._suggestions import absent as _absent, publish as _publish
from relpos.sharded._context import *
from relpos.sharded._schemes import *

__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)


def __dir__() -> list[str]:
    return __all__
