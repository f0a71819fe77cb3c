"""Files import downwards: no cycle of files or folders, and few imports go up."""

from __future__ import annotations

import ast
from pathlib import Path

import relpos

PACKAGE = Path(relpos.__file__).parent

#: Folders of relpos/, and modules directly in it, from the lowest up. Other modules
#: directly in relpos/ are below them; "relpos" is the package with its public names.
LAYERS = (
    "_encodings",
    "_attention",
    "_biases",
    "relpos",
    "reference",
    "nn",
    "recipes",
    "data",
    "torch",
    "torch/nn",
    "torch/_transformers/interface",
    "torch/_transformers/adapters",
    "torch/_transformers",
    "sharded",
    "_catalogue",
    "_opinion",
    "plot",
    "_bench",
    "_demo",
    "__main__",
)
#: Imports that go up, from a file to a layer, and why.
UPWARD = {("_settings", "relpos"): "show_config has the version of relpos"}


def paths():
    """Return the files of relpos by the names that imports have for them."""
    found = {}
    for path in (*PACKAGE.rglob("*.py"), PACKAGE / "_core.pyi"):
        parts = ["relpos", *path.relative_to(PACKAGE).with_suffix("").parts]
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


FILES = paths()


def short(name):
    """Return a module's name as a path below relpos/, without its suffix."""
    return name.removeprefix("relpos.").replace(".", "/")


def imports_of(path):
    """Return the modules of relpos that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in FILES else node.module for name in names}
    return found & FILES.keys()


#: By file, without ``__init__`` files, what it imports.
IMPORTS = {
    short(name): {short(other) for other in imports_of(path) - {name}}
    for name, path in FILES.items()
    if path.stem != "__init__"
}
PACKAGES = {short(name) for name, path in FILES.items() if path.stem == "__init__"}


def layer_of(module):
    """Return the folder of a module, or the module if it is directly in relpos/."""
    return module if module in PACKAGES else module.rpartition("/")[0] or module


def between_layers():
    """Yield the imports of files as (file, its layer, the other layer)."""
    for file, others in IMPORTS.items():
        for other in sorted({layer_of(other) for other in others} - {layer_of(file)}):
            yield file, layer_of(file), other


def cycles(graph):
    """Return the sets of nodes that reach each other."""
    reached = {node: set(others) for node, others in graph.items()}
    for middle in graph:
        for found in reached.values():
            if middle in found:
                found |= reached[middle]
    sets = {
        frozenset(x for x in found if node in reached.get(x, ()))
        for node, found in reached.items()
        if node in found
    }
    return [set(x) for x in sets]


def test_no_cycle_of_files():
    files = {file: others - PACKAGES for file, others in IMPORTS.items()}
    assert cycles(files) == []


def test_no_cycle_of_folders():
    folders = {}
    for _, layer, other in between_layers():
        folders.setdefault(layer, set()).add(other)
    folders.pop("relpos", None)
    assert cycles(folders) == []


def test_imports_go_down():
    modules = {name for name in IMPORTS if "/" not in name}
    order = dict.fromkeys(modules, 0) | {x: n for n, x in enumerate(LAYERS, 1)}
    assert PACKAGES | modules == order.keys()
    upward = {
        (file, other)
        for file, layer, other in between_layers()
        if order[other] > order[layer]
    }
    assert upward == UPWARD.keys()


def test_what_cycles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}
    assert sorted(map(sorted, cycles(graph))) == [["b", "c"], ["e"]]
