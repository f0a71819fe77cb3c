"""The API's pages: one for each public name, and one for each module that has them."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import relpos

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "api"
#: Public modules, and the heads under which their names are listed.
MODULES = {
    "relpos": "every scheme by its arguments, each by its name, and what they need",
    "relpos.nn": "layers with gradients, and what trains them",
    "relpos.recipes": "parameters of published models as arguments of attention",
    "relpos.plot": "pictures",
    "relpos.data": "facts as data",
    "relpos.reference": "the definitions, in plain NumPy, to be read",
    "relpos.torch": "the functions on tensors, with autograd",
    "relpos.torch.nn": "layers as modules of PyTorch",
    "relpos.sharded": "attention on dask arrays",
    "relpos.ufuncs": "the kernels as ufuncs of NumPy",
}
#: Functions of relpos that are loaded when they are first named.
LATER = ("compare", "demo", "diagnose")


@cache
def modules() -> dict[str, ModuleType]:
    return {name: importlib.import_module(name) for name in MODULES}


@cache
def public() -> dict[str, Any]:
    """Return the object of every public name, by the full name."""
    objects = {}
    for name, module in modules().items():
        listed = [*module.__all__, *(LATER if module is relpos else ())]
        for item in sorted(listed, key=str.lower):
            if not item.startswith("__"):
                objects[f"{name}.{item}"] = getattr(module, item)
    return objects


def summary(name: str) -> str:
    return (inspect.getdoc(public()[name]) or "").strip().partition("\n")[0]


def titled(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n"


def page_of(name: str, thing: Any) -> str:
    """The page of a function or a class, with what shows it."""
    kind = "autoclass" if inspect.isclass(thing) else "autofunction"
    module, _, last = name.rpartition(".")
    options = "   :members:\n" if kind == "autoclass" else ""
    return (
        f"{titled(name)}.. currentmodule:: {module}\n\n"
        f".. {kind}:: {last}\n{options}\n"
        f".. shown-in:: {name}\n"
    )


def of_module(name: str, module: ModuleType) -> str:
    """The page of a module: what it is for, and its names by kind."""
    names = [n for n in public() if n.rpartition(".")[0] == name]
    kinds = {
        "Functions": [n for n in names if not inspect.isclass(public()[n])],
        "Classes": [n for n in names if inspect.isclass(public()[n])],
    }
    text = titled(name) + f".. automodule:: {name}\n\n.. currentmodule:: {name}\n\n"
    for title, some in kinds.items():
        if some:
            lines = "".join(f"   {n.rpartition('.')[2]}\n" for n in some)
            text += f"{title}\n{'-' * len(title)}\n\n.. autosummary::\n\n{lines}\n"
    pages = "".join(f"   {n.rpartition('.')[2]} <{n}>\n" for n in names)
    return f"{text}.. toctree::\n   :hidden:\n\n{pages}"


def of_ufuncs(name: str, module: ModuleType) -> str:
    """NumPy writes the docstrings of ufuncs: one page has them all."""
    text = titled(name) + f".. automodule:: {name}\n\n"
    for item in sorted(module.__all__):
        lines = (inspect.getdoc(getattr(module, item)) or "").splitlines()
        body = "".join(f"      {line}\n" if line else "\n" for line in lines)
        text += f".. py:function:: {item}\n   :module: {name}\n\n   ::\n\n{body}\n"
    return text


def contents() -> str:
    rows = "".join(
        f"   * - :py:mod:`{name}`\n     - {MODULES[name]}\n" for name in modules()
    )
    pages = "".join(f"   {name}\n" for name in modules())
    return (
        f"{titled('API reference')}Layout is ``(..., heads, length, dim)``; a "
        "relative position is key minus query, so that the past is negative; in a "
        "mask, True may attend. :doc:`Functions </functions>` lists all functions by "
        f"scheme.\n\n.. list-table::\n\n{rows}\n"
        f".. toctree::\n   :hidden:\n\n   /functions\n{pages}"
    )


def write_pages(app: Sphinx) -> None:
    """Writes what has changed, and removes pages of names that are no more."""
    folder = Path(app.srcdir) / FOLDER
    pages = {"index": contents()}
    for name, module in modules().items():
        make = of_ufuncs if name == "relpos.ufuncs" else of_module
        pages[name] = make(name, module)
    for name, thing in public().items():
        if not name.startswith("relpos.ufuncs."):
            pages[name] = page_of(name, thing)
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def leave_out(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any):
    """Skip fields of named tuples, which numpydoc lists, and None."""
    return True if thing is None or type(thing).__name__ == "_tuplegetter" else None


def escape(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: Any):
    """`|r|` of the definitions' formulas, and `*shape` in shapes, are no markup."""
    inside = False
    for number, line in enumerate(lines):
        inside = inside or line in ("See Also", "Examples")
        if not inside and not line.lstrip().startswith(">>>"):
            line = re.sub(r"(?<![\w*`\\])\*(?=[A-Za-z])", r"\*", line)
            if name.startswith("relpos.reference"):
                line = line.replace("|", r"\|")
            lines[number] = line


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", escape, priority=400)  # before numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}
