"""Process-wide settings: the kernels in use and the number of threads."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, Literal, overload

import numpy as np

import relpos
import relpos._core as _core  # in this form its absence is an error with its name

_isa: ContextVar[str] = ContextVar("relpos_isa", default=_core.isa)


def kernels() -> SimpleNamespace:
    """Kernel table in use: the best one this CPU runs, or that of `use_isa`."""
    return _core.by_isa[_isa.get()]


@contextmanager
def use_isa(name: str) -> Iterator[None]:
    """Within the block, run the kernels of table `name` (for tests)."""
    if name not in _core.by_isa:
        raise ValueError(
            f"name: {name!r} is not a kernel table of this CPU; "
            f"expected one of {sorted(_core.by_isa)}"
        )
    token = _isa.set(name)
    try:
        yield
    finally:
        _isa.reset(token)


def check_num_threads(n: object) -> int:
    """`n` as a number of threads; TypeError or ValueError when it is none."""
    try:
        if isinstance(n, (bool, np.bool_)):
            raise TypeError
        number = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"num_threads: expected a positive integer, got {type(n).__name__}"
        ) from None
    if not 1 <= number <= _core.max_threads:
        raise ValueError(
            f"num_threads: {number} is not between 1 and {_core.max_threads}"
        )
    return number


def choose_num_threads(n: object) -> int:
    """`n` checked, or where it is None the number that is set."""
    return get_num_threads() if n is None else check_num_threads(n)


def set_num_threads(n: int) -> None:
    """Set how many threads each call uses from now on, in the whole process.

    Parameters
    ----------
    n : int
        At least 1, the calling thread included.

    Raises
    ------
    TypeError
        If `n` is not an integer.
    ValueError
        If `n` is not between 1 and 1024.

    Notes
    -----
    The starting value is the first of: the environment variable
    ``RELPOS_NUM_THREADS``, the variable ``OMP_NUM_THREADS``, the number of CPUs this
    process may run on, cut to the CPU time its control groups allow. Results do not
    depend on the number of threads, not even in their last bit.

    Examples
    --------
    >>> import relpos
    >>> before = relpos.get_num_threads()
    >>> relpos.set_num_threads(3)
    >>> relpos.get_num_threads()
    3
    >>> relpos.set_num_threads(before)
    """
    _core.set_num_threads(check_num_threads(n))


def get_num_threads() -> int:
    """Return how many threads a call from this thread uses unless it says otherwise.

    Returns
    -------
    int
        The number of the innermost `threads` block of this thread, else the process's.

    Examples
    --------
    >>> import relpos
    >>> with relpos.threads(2):
    ...     relpos.get_num_threads()
    2
    """
    return _core.get_num_threads()


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Use `n` threads for every call that this thread makes within the block.

    Parameters
    ----------
    n : int
        At least 1, the calling thread included.

    Raises
    ------
    TypeError
        If `n` is not an integer.
    ValueError
        If `n` is not between 1 and 1024.

    Notes
    -----
    Blocks nest, and leaving one restores what was in force before it. Other Python
    threads are not affected; `set_num_threads` is for the whole process.

    Examples
    --------
    >>> import relpos
    >>> with relpos.threads(2):
    ...     with relpos.threads(1):
    ...         inner = relpos.get_num_threads()
    ...     inner, relpos.get_num_threads()
    (1, 2)
    """
    before = _core.override_num_threads(check_num_threads(n))
    try:
        yield
    finally:
        _core.override_num_threads(before)


def _config() -> dict[str, Any]:
    return {
        "version": relpos.__version__,
        "compiler": _core.compiler,
        "blas": _core.blas_info(),
        "isa_tables": list(_core.by_isa),
        "isa": _isa.get(),
        "threads": get_num_threads(),
        "threads_from": _core.num_threads_source(),
        "numpy": np.__version__,
    }


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...
@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...
def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Tell how this relpos was built and what it is using.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        Print a line per fact, or return them as a dictionary.

    Returns
    -------
    dict or None
        With ``mode="dicts"`` the keys ``version``, ``compiler``, ``blas``,
        ``isa_tables`` (those this CPU can run), ``isa`` (the one in use), ``threads``,
        ``threads_from`` (which setting that number comes from) and ``numpy``.

    Raises
    ------
    ValueError
        If `mode` is neither of the two.

    Examples
    --------
    >>> import relpos
    >>> relpos.show_config(mode="dicts")["version"] == relpos.__version__
    True
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"mode: {mode!r} is not known; expected 'stdout' or 'dicts'")
    config = _config()
    if mode == "dicts":
        return config
    for name, value in config.items():
        text = ", ".join(value) if isinstance(value, list) else value
        print(f"{name.replace('_', ' ') + ':':<14} {text}")
    return None
