"""Source on the site: each definition's beside its formula, by links for the rest."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx

import relpos

REFERENCE = "relpos.reference"
#: What takes arguments to float64: the page of the module says that once.
PLUMBING = ("relpos.reference._xp", "relpos._checks")


@cache
def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


@cache
def defined_in(module: ModuleType) -> dict[str, ast.stmt]:
    """Return the functions and classes that a module defines, by name."""
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name: node for node in tree_of(module).body if isinstance(node, kinds)}


def home(thing: Any) -> ModuleType | None:
    """Return the module that defines a public function or class, None if none does."""
    thing = inspect.unwrap(thing)
    if not inspect.isclass(thing):
        return sys.modules.get(getattr(thing, "__globals__", {}).get("__name__"))
    class_name = thing.__name__
    for name, module in sorted(sys.modules.items()):
        is_named = name.startswith("relpos.") and vars(module).get(class_name) is thing
        if is_named and class_name in defined_in(module):
            return module
    return None


def follow(app: Sphinx, module: str, attribute: str) -> str | None:
    """Return the module that has the source of a public name, for viewcode."""
    thing: Any = sys.modules.get(module)
    name = attribute.partition(".")[0]
    thing = getattr(thing, name, None)
    if module != "relpos" and thing is getattr(relpos, name, relpos):
        return module  # viewcode links a source with one page, here that of relpos
    owner = home(thing) if callable(thing) else None
    return owner.__name__ if owner else None


def code_of(module: ModuleType, name: str, docstring: bool = True) -> str:
    """Return the source of a function or a class, without decorators."""
    node: Any = defined_in(module)[name]
    lines = inspect.getsource(module).splitlines()
    first = node.body[0]
    numbers = [*range(node.lineno - 1, node.end_lineno)]
    if not docstring:
        numbers = [n for n in numbers if not first.lineno - 1 <= n < first.end_lineno]
    return "\n".join(lines[n] for n in numbers)


def called(module: ModuleType, name: str) -> Iterator[tuple[ModuleType, str]]:
    """Yield the functions and classes of the reference that a definition names."""
    for node in ast.walk(defined_in(module)[name]):
        if isinstance(node, ast.Name):
            thing = vars(module).get(node.id)
            owner = home(thing) if callable(thing) else None
            if owner and owner.__name__.startswith(REFERENCE) and owner is not module:
                yield owner, thing.__name__
            elif owner is module and node.id in defined_in(module):
                yield module, node.id


def helpers(module: ModuleType, name: str) -> dict[tuple[ModuleType, str], bool]:
    """Return all that a definition calls, directly or not: True where it is public."""
    public: dict[tuple[ModuleType, str], bool] = {}
    waiting = [(module, name)]
    while waiting:
        for each in called(*waiting.pop(0)):
            if each[0].__name__ not in PLUMBING and each not in public:
                public[each] = each[1] in sys.modules[REFERENCE].__all__
                if not public[each]:
                    waiting.append(each)
    public.pop((module, name), None)
    return public


def block(code: str) -> list[str]:
    body = [f"   {line}".rstrip() for line in code.splitlines()]
    return ["", ".. code-block:: python", "   :class: definition", "", *body, ""]


def definition(module: ModuleType, name: str) -> list[str]:
    """Return the source of a definition, and what it calls, as reStructuredText."""
    others = helpers(module, name)
    lines = [".. rubric:: Source", *block(code_of(module, name, docstring=False))]
    names = [name for (_, name), public in others.items() if public]
    links = [f":py:obj:`~{REFERENCE}.{name}`" for name in names]
    if links:
        lines += [f"Other definitions that it calls: {', '.join(links)}.", ""]
    sources = [code_of(*each) for each, public in others.items() if not public]
    if sources:
        lines += [".. dropdown:: The other functions that it calls", ""]
        lines += [f"   {x}" for x in block("\n\n\n".join(sources))] + [""]
    return lines


def show(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: Any):
    """Put the source of a definition below its formula, above the rest."""
    module, _, last = name.rpartition(".")
    if module != REFERENCE or not callable(thing):
        return
    owner = home(thing)
    if owner and last in defined_in(owner):
        heads = [i for i, line in enumerate(lines) if line.startswith((".. rub", ":"))]
        at = heads[0] if heads else len(lines)
        lines[at:at] = ["", *definition(owner, last)]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("viewcode-follow-imported", follow)
    app.connect("autodoc-process-docstring", show, priority=600)  # after numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}
