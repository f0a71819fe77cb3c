"""relpos for dask: attention in chunks, lazily, on one machine or many.

Never imported by ``import relpos``. Arguments and results are those of `relpos`, as
dask arrays: chunks of batch and heads are one task each, chunks of the queries and of
the keys are blocks of one long sequence, joined by `relpos.merge_attention`.
"""

try:
    import dask.array as _array  # noqa: F401
except ImportError as exc:
    if (exc.name or "").partition(".")[0] != "dask":
        raise
    raise ImportError(
        "relpos.sharded needs dask, which is not installed; run `pip install "
        "'dask[array]'`, or `pip install 'relpos[dask]'`",
        name="dask",
    ) from exc

from typing import TYPE_CHECKING

from relpos._names import publish as _publish
from relpos._suggestions import absent as _absent
from relpos.sharded._context import (
    ShardedContext as ShardedContext,
)
from relpos.sharded._schemes import (
    attention as attention,
    fire_attention as fire_attention,
    graph_attention as graph_attention,
    relative_global_attention as relative_global_attention,
    shaw_attention as shaw_attention,
    transformer_xl_attention as transformer_xl_attention,
)

__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)
