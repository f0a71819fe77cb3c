"""A stand-in for torch where it is not installed, for the pages of `relpos.torch`.

`relpos.torch` can be imported with it, and has the same names, signatures and
docstrings as with torch. Nothing in it computes.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

#: Whether torch itself is here. The examples of a page run only then.
HAS_TORCH = find_spec("torch") is not None
MODULES = ("torch", "torch.autograd", "torch.nn", "torch.overrides")


def member(owner: str, name: str) -> Any:
    """Return the stand-in of a name: a class if it has a capital, else a word."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name[:1].isupper():
        return Kind(name, (), {"__module__": owner})
    return Word(f"{owner}.{name}")


class Kind(type):
    """Classes of torch, whose attributes are words."""

    def __getattr__(cls, name: str) -> Any:
        return member(f"{cls.__module__}.{cls.__name__}", name)


class Word:
    """A dtype or a function of torch, also one that decorates or returns others."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        return member(self.name, name)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        is_decorator = len(args) == 1 and not keywords and callable(args[0])
        return args[0] if is_decorator else Word(f"{self.name}()")

    def __repr__(self) -> str:
        return self.name


class Module(ModuleType):
    """A module of torch, which makes each name when it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        made = member(self.__name__, name)
        setattr(self, name, made)
        return made


def install() -> None:
    """Put the stand-in where `import torch` finds it."""
    for name in MODULES:
        module = Module(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        sys.modules[name] = module
        owner, _, last = name.rpartition(".")
        if owner:
            setattr(sys.modules[owner], last, module)


def setup(app: Any) -> dict[str, bool]:
    if not HAS_TORCH:
        install()
    return {"parallel_read_safe": True, "parallel_write_safe": True}
