"""The types that `_core.pyi` gives the C extension name what is in it."""

import ast
from pathlib import Path

import numpy as np
import pytest

import relpos
from relpos import _core

STUB = ast.parse(Path(relpos.__file__).with_name("_core.pyi").read_text())
KERNELS = next(node for node in STUB.body if isinstance(node, ast.ClassDef))


def variables(body):
    """Names that get a type alone, and that type; a `TypeAlias` has a value too."""
    found = [node for node in body if isinstance(node, ast.AnnAssign)]
    return {n.target.id: ast.unparse(n.annotation) for n in found if n.value is None}


def functions(body):
    """Names of functions, and those of their parameters."""
    found = [node for node in body if isinstance(node, ast.FunctionDef)]
    names = {n.name: [a.arg for a in n.args.posonlyargs] for n in found}
    for node in found:
        if node.args.vararg:
            names[node.name].append(f"*{node.args.vararg.arg}")
    return names


def told(function):
    """The parameters in the docstring of a C function, None where it has no line."""
    name, bracket, rest = (function.__doc__ or "").partition("(")
    if not bracket or name != function.__name__:
        return None
    listed = rest.partition(")")[0]
    return listed.split(", ") if listed else []


def test_the_module_has_the_names_of_the_stub():
    found = {name for name in vars(_core) if not name.startswith("__")}
    assert found == {*variables(STUB.body), *functions(STUB.body)}


@pytest.mark.parametrize("isa", _core.by_isa)
def test_the_kernels_have_the_names_of_the_stub(isa):
    table = vars(_core.by_isa[isa])
    assert table.keys() == {*variables(KERNELS.body), *functions(KERNELS.body)}
    ufuncs = {n for n, kind in variables(KERNELS.body).items() if kind == "np.ufunc"}
    assert ufuncs == {n for n, value in table.items() if isinstance(value, np.ufunc)}


def test_functions_have_the_parameters_of_the_stub():
    stub = functions(STUB.body) | {
        name: names[1:] for name, names in functions(KERNELS.body).items()
    }
    entries = vars(_core) | vars(_core.by_isa[_core.isa])
    listed = {name: told(entries[name]) for name in stub}
    assert sum(names is not None for names in listed.values()) >= 10
    for name, names in listed.items():
        assert names in (None, stub[name]), name
