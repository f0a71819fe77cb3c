"""Settings: the kernels in use and the number of threads."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import RLock
from typing import Any, Literal, overload

import numpy as np

import relpos
import relpos._core as _core  # noqa: PLR0402 - its absence is an error with its name
from relpos._checks import as_choice
from relpos._warn import warn

__all__ = ["get_num_threads", "set_num_threads", "show_config", "threads"]

_isa: ContextVar[str] = ContextVar("relpos_isa", default=_core.isa)


def kernels() -> _core.Kernels:
    """Return the kernel table in use: the best of this CPU, or that of `use_isa`."""
    return _core.by_isa[_isa.get()]


@contextmanager
def use_isa(name: str) -> Iterator[None]:
    """Within the block, run the kernels of table `name` (for tests)."""
    if name not in _core.by_isa:
        raise ValueError(
            f"name: {name!r} is not a kernel table of this CPU; "
            f"expected one of {sorted(_core.by_isa)}"
        )
    before = _isa.get()
    try:
        _isa.set(name)
        yield
    finally:
        _isa.set(before)


def check_num_threads(n: object, name: str = "num_threads") -> int:
    try:
        if isinstance(n, (bool, np.bool_)):
            raise TypeError
        number = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{name}: got {type(n).__name__}; expected a positive integer"
        ) from None
    if not 1 <= number <= _core.max_threads:
        raise ValueError(
            f"{name}: got {number}; expected an integer from 1 to {_core.max_threads}"
        )
    return number


def choose_num_threads(n: object) -> int:
    """Return `n`, or the number that is set where it is None."""
    return _core.get_num_threads() if n is None else check_num_threads(n)


def set_num_threads(n: int) -> None:
    """Set the number of threads of each later call, in the whole process.

    Processes that it forks later start with the same number.

    Parameters
    ----------
    n : int
        1 to 1024, the calling thread included.

    See Also
    --------
    threads : Sets the number for a block.

    Notes
    -----
    Before the first call of this function, the number is the first of: the environment
    variable ``RELPOS_NUM_THREADS``; the first number of ``OMP_NUM_THREADS``; 1 in a
    process that `multiprocessing` started, as its siblings share the CPUs; the number
    of CPUs this process may run on, cut to the CPU time its control groups allow.
    Results do not depend on the number of threads, not even in their last bit.

    Examples
    --------
    >>> import relpos
    >>> before = relpos.get_num_threads()
    >>> relpos.set_num_threads(3)
    >>> relpos.get_num_threads()
    3
    >>> relpos.set_num_threads(before)
    """
    global _told  # noqa: PLW0603 - one setting of the process
    number, before = check_num_threads(n, "n"), _told
    # Python and C have the number. An interrupt between the two lines leaves both as
    # they were.
    try:
        with _telling:
            _told = number, "set_num_threads"
            _core.set_num_threads(number)
    except BaseException:  # an interrupt
        with _telling:
            _told = before
            _core.set_num_threads(before[0] if before is not None else 0)
        raise


def get_num_threads() -> int:
    """Return the number of threads of a call without `num_threads`.

    Returns
    -------
    int
        The number of the innermost `threads` block, else that of the process.

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
    """Use `n` threads for every call that is made within the block.

    Parameters
    ----------
    n : int
        1 to 1024, the calling thread included.

    Yields
    ------
    None
        The block runs with `n` threads.

    See Also
    --------
    set_num_threads : Sets the number for the process.

    Notes
    -----
    Blocks nest, and may be left in any order: the innermost open one counts. A block
    belongs to its context (`contextvars`), as `decimal.localcontext`: other threads and
    tasks of an event loop are not affected, unless they are started within it and given
    the context, as tasks are, and threads of Python 3.14t.

    Examples
    --------
    >>> import relpos
    >>> with relpos.threads(2):
    ...     with relpos.threads(1):
    ...         inner = relpos.get_num_threads()
    ...     inner, relpos.get_num_threads()
    (1, 2)
    """
    block = _Block(check_num_threads(n, "n"), _innermost_block())
    _core.always_ask_threads()
    try:
        try:
            _block.set(block)
            yield
        finally:
            block.is_open = False
            _block.set(_innermost_block())
    finally:  # an interrupt may come before the first line above
        block.is_open = False


class _Block:
    """A `threads` block of a context, and the one around it.

    A block may be left in another context than the one it was entered in, as when a
    generator is deleted: `is_open` is the same in both.
    """

    __slots__ = ("is_open", "number", "outer")

    def __init__(self, number: int, outer: _Block | None) -> None:
        self.number = number
        self.outer = outer
        self.is_open = True


_block: ContextVar[_Block | None] = ContextVar("relpos_threads", default=None)


def _innermost_block() -> _Block | None:
    block = _block.get()
    while block is not None and not block.is_open:
        block = block.outer
    return block


def _number() -> int:
    """Return the number of threads of a call without one; C calls this."""
    block = _innermost_block()
    return block.number if block is not None else _of_process()[0]


def _of_process() -> tuple[int, str]:
    """Return the number of threads outside all blocks, and the setting it is from."""
    if _told is not None:
        return _told
    if _started_by_multiprocessing():
        return 1, "multiprocessing"
    return _cpus()


def _started_by_multiprocessing() -> bool:
    process: Any = sys.modules.get("multiprocessing.process")
    try:
        # A spawned worker that is still importing the main module has no parent yet.
        starting = hasattr(process.current_process(), "_inheriting")
        return starting or process.parent_process() is not None
    except (AttributeError, NameError):  # not loaded, or not to the end
        return False


_cpus = cache(_core.count_cpus)


def _told_by_environment() -> tuple[int, str] | None:
    """Read the first variable that has a number; warn about any other text."""
    for name in ("RELPOS_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        # OpenMP's has a number for each level of nested loops.
        items = text.split(",") if name == "OMP_NUM_THREADS" else [text]
        numbers = [_positive(item) for item in items]
        if all(numbers):
            return numbers[0], name
        if text.strip():
            warn(
                f"{name}: got {text!r}; expected a positive integer (relpos goes on as "
                "if the variable were not set)",
                RuntimeWarning,
            )
    return None


def _positive(text: str) -> int:
    """Return `text` as a number of threads, at most the largest; 0 if it is none."""
    digits = text.strip().lstrip("0")
    if not (digits.isascii() and digits.isdigit()):
        return 0
    return min(int(digits[:9]), _core.max_threads)


def _forget_the_choice() -> None:
    """Let a forked child find its number later, when it is known to be a worker."""
    if _told is None:
        _core.set_num_threads(0)
    _telling.release()


#: Held while Python and C are set, and over a fork: in a child both are equal.
_telling = RLock()
#: The number of the process and the setting that it is from; None without one.
_told = _told_by_environment()
_core.set_num_threads(_told[0] if _told is not None else 0)
_core.set_threads_hook(_number)
os.register_at_fork(
    before=_telling.acquire,
    after_in_parent=_telling.release,
    after_in_child=_forget_the_choice,
)


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...
@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...
def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Show how this relpos was built and its settings.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        Print a line per fact, or return them as a dictionary.

    Returns
    -------
    dict or None
        With ``mode="dicts"`` the keys ``version``, ``compiler``, ``blas``,
        ``isa_tables`` (those this CPU can run), ``isa`` (the one in use), ``threads``,
        ``threads_from`` (the setting of that number) and ``numpy``.

    Examples
    --------
    >>> import relpos
    >>> relpos.show_config(mode="dicts")["version"] == relpos.__version__
    True
    """
    chosen = as_choice("mode", mode, ("stdout", "dicts"))
    config = {
        "version": relpos.__version__,
        "compiler": _core.compiler,
        "blas": _core.blas_info(),
        "isa_tables": list(_core.by_isa),
        "isa": _isa.get(),
        "threads": get_num_threads(),
        "threads_from": "threads" if _innermost_block() else _of_process()[1],
        "numpy": np.__version__,
    }
    if chosen == "dicts":
        return config
    for name, value in config.items():
        text = ", ".join(value) if isinstance(value, list) else value
        print(f"{name.replace('_', ' ') + ':':<14} {text}")
    return None
