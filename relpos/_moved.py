"""Modules that pickles of earlier releases name, and the modules that replaced them."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

#: The former name of a module to its present one; a package that is gone has a row too.
MOVED = {
    "relpos._attention.placement": "relpos._attention.problem",
    "relpos._compare": "relpos._opinion",
    "relpos._compare.compare": "relpos._opinion.compare",
    "relpos._diagnose": "relpos._opinion",
    "relpos._diagnose.diagnose": "relpos._opinion.diagnose",
    "relpos.nn._projection": "relpos.nn.multihead",
    "relpos.nn.conv": "relpos.nn.absolute",
    "relpos.nn.shaw": "relpos.nn.attention",
    "relpos.recipes.gemma_audio": "relpos.recipes.speech",
    "relpos.torch.nn._conv": "relpos.torch.nn._absolute",
    "relpos.torch.nn._heads": "relpos.torch.nn._attention",
    "relpos.reference.rotary_config": "relpos.reference.rotary",
    **{
        f"relpos.torch._transformers.{family}": "relpos.torch._transformers.adapters"
        for family in (
            *("deberta", "gemma3n", "gemma4", "inkling", "t5", "wav2vec2_conformer"),
            "wavlm",
        )
    },
    **{
        f"relpos.data._{name}": "relpos.data._facts"
        for name in ("experiments", "music", "reported", "shaw", "table")
    },
}


class _Moved(ModuleType):
    """A module with the names of another, which the first use of a name loads."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # tools ask every module for its file
            raise AttributeError(name)
        return getattr(import_module(MOVED[self.__name__]), name)


sys.modules.update({name: _Moved(name) for name in MOVED})
