"""Checks `relpos` where the packages named as arguments are absent, the others not.

`python tests/runtime/optional.py dask` runs where torch is there and dask is absent.
The exit status is 1 if something that reads all names of a module fails: help, pydoc,
inspect, mock or IPython.
"""

import contextlib
import importlib.util
import inspect
import io
import pydoc
import sys
from unittest import mock

import relpos

#: What each module needs, and how its error begins where that is absent.
MODULES = {
    "sharded": ("dask", "relpos.sharded needs dask, which is not installed; run `pip"),
    "torch": ("torch", "relpos.torch needs PyTorch, which is not installed; run `pip"),
}


def printed(call, *arguments):
    """Returns what a call writes to stdout."""
    with contextlib.redirect_stdout(io.StringIO()) as written:
        call(*arguments)
    return written.getvalue()


def check_pages():
    """Asserts that help and pydoc show the docstring and the functions."""
    with mock.patch.object(sys, "argv", ["pydoc", "relpos"]):
        pages = [printed(help, relpos), printed(pydoc.cli)]
    for page in pages:
        assert "Attention with relative positions" in page, page[:500]
        assert "\n    shaw_attention(" in page


def check_members(present):
    """Asserts that inspect and mock find all that is there, and nothing else."""
    found = dict(inspect.getmembers(relpos))
    assert set(dir(relpos)) <= set(found)
    assert {*relpos.__all__, "compare", "nn", *present} <= set(found)
    spec = mock.create_autospec(relpos)
    for name in MODULES:
        is_there = name in present
        assert (name in dir(relpos)) is (name in found) is is_there
        assert hasattr(relpos, name) is hasattr(spec, name) is is_there
    assert callable(spec.attention)


def check_wildcard():
    """Asserts that IPython lists the functions of a pattern, where it is installed."""
    if importlib.util.find_spec("IPython") is None:
        return
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.push({"relpos": relpos})
    listed = printed(shell.run_line_magic, "psearch", "relpos.*attention*")
    assert "relpos.shaw_attention" in listed, listed


def caught(kind, code):
    """Returns the message of the error of just this kind that a line raises."""
    try:
        exec(code, {"relpos": relpos})
    except kind as exc:
        return str(exc)
    raise AssertionError(f"no {kind.__name__} by {code}")


def check_absent(module, package, words):
    """Asserts that each way to a module raises an error of its kind, in one wording."""
    caught(ImportError, f"import {package}")
    messages = {
        caught(AttributeError, f"relpos.{module}"),
        caught(ImportError, f"import relpos.{module}"),
        caught(ImportError, f"from relpos import {module}"),
    }
    assert len(messages) == 1 and messages.pop().startswith(words), messages


def main(absent):
    present = {name for name, (package, _) in MODULES.items() if package not in absent}
    check_pages()
    check_members(present)
    check_wildcard()
    for name, (package, words) in MODULES.items():
        if name in present:
            exec(f"from relpos import {name}; import relpos.{name}")
        else:
            check_absent(name, package, words)


if __name__ == "__main__":
    main(sys.argv[1:])
