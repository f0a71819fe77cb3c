"""Warnings of the caller's line, however many functions are between."""

import sys
import warnings

#: Packages whose functions call those of relpos for the caller.
_BETWEEN = {"relpos", "torch", "transformers"}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the innermost line that is in none of these packages."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None:
        package, _, _ = str(frame.f_globals.get("__name__")).partition(".")
        if package not in _BETWEEN:
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
