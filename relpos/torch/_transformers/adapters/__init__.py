"""Attention modules of models, swapped for modules that call relpos with tables.

A class with `@replaces` has the methods that differ from the model's own. table.py
makes the class that a module gets of both, under the model's name, when it is first
needed, so that only models that are there are imported. swap.py swaps, and base.py has
what adapters share. Each other file is a family of models.
"""

from __future__ import annotations

from typing import Any

# each notes the classes that it replaces
from relpos.torch._transformers.adapters import (  # noqa: F401
    bloom,
    deberta,
    deberta_v2,
    fastspeech2_conformer,
    gemma3n,
    gemma4,
    granite_speech,
    indexers,
    inkling,
    inkling2,
    longformer,
    mpnet,
    mpt,
    sam,
    sew_d,
    speecht5,
    swin,
    t5,
    vits,
    wav2vec2_conformer,
    wavlm,
    xlnet,
)
from relpos.torch._transformers.adapters.table import ADAPTERS, class_of


def __getattr__(name: str) -> Any:
    """Return the class that replaces one of transformers; pickles ask for it by name.

    It registers relpos, also in a process that only unpickles the model.
    """
    if name not in ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return class_of(name)
