"""Modules that pickles of earlier releases name, and the modules that replaced them."""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
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
    "relpos.nn._schemes": "relpos.nn.position",
    "relpos.nn.conv": "relpos.nn.absolute",
    "relpos.nn.shaw": "relpos.nn.attention",
    "relpos.recipes.gemma_audio": "relpos.recipes.speech",
    "relpos.reference.pairs": "relpos.reference.formula",
    "relpos.reference.rotary_config": "relpos.reference.rotary",
    "relpos.torch.nn._conv": "relpos.torch.nn._absolute",
    "relpos.torch.nn._heads": "relpos.torch.nn._attention",
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


class _Former:
    """Finder and loader of former names: an import returns the present module.

    It is the first finder. Others would search the folder of the present package for
    modules of the former one, and load a file twice. Modules in `sys.modules` instead
    would be loaded by `pickle`, which asks all of them for a ufunc.
    """

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        loader: Any = _Former  # a class with the functions of a loader
        return ModuleSpec(name, loader) if name in MOVED else None

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Let Python make the module, which `exec_module` replaces."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(MOVED[module.__name__])


sys.meta_path.insert(0, _Former)
