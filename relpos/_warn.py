"""Warnings of the caller's line, however many functions are between."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

#: Packages whose functions call or import those of relpos for the caller.
_BETWEEN = {"relpos", "torch", "transformers", "importlib", "_frozen_importlib"}

_SILENCED = ContextVar("relpos_silenced", default=False)


@contextmanager
def silenced() -> Iterator[None]:
    """Give none of these warnings, for a function whose result says the same."""
    token = _SILENCED.set(True)
    try:
        yield
    finally:
        _SILENCED.reset(token)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the innermost line that is in none of these packages."""
    if _SILENCED.get():
        return
    # A stack level would count functions, whose number is not known: a call may come
    # through a layer of torch, or from an import.
    frame = sys._getframe(1)
    while frame.f_back and _module(frame).partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    file, module = frame.f_code.co_filename, _module(frame)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, frame.f_lineno, module, registry)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "<unknown>"))
