"""Types that checkers are told are those of the results, and of the signatures.

The checkers themselves run over public_types.py in continuous integration.
"""

import ast
import importlib
import inspect
import runpy
import types
import typing
from pathlib import Path

import numpy as np
import pytest
from good_calls import GOOD

import relpos
from relpos._attention import keywords

PUBLIC_TYPES = Path(__file__).with_name("public_types.py")
TORCH = pytest.mark.torch
FLAGS = ("return_lse", "return_weights", "return_context")
FUNCTIONS = (
    "attention",
    "fire_attention",
    "graph_attention",
    "relative_global_attention",
    "shaw_attention",
    "transformer_xl_attention",
)


def is_of(value, kind):
    """Return True where a value is of a type, as far as can be seen of it."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return any(is_of(value, each) for each in typing.get_args(kind))
    plain = typing.get_origin(kind) or kind
    if hasattr(plain, "__value__"):  # an alias by `type`, as NDArray is in NumPy 2.5
        return is_of(value, plain.__value__)
    if plain is typing.Any:
        return True
    return isinstance(value, type(None) if plain is None else plain)


def test_results_are_of_the_types_that_checkers_find(monkeypatch):
    seen = []

    def assert_type(value, kind):
        seen.append(kind)
        assert is_of(value, kind), kind
        return value

    monkeypatch.setattr(typing, "assert_type", assert_type)
    runpy.run_path(str(PUBLIC_TYPES))
    assert len(seen) >= PUBLIC_TYPES.read_text().count("assert_type(")


def test_a_wrong_type_is_found():
    output = relpos.attention(**GOOD["attention"], return_lse=True)
    assert is_of(output, relpos.AttentionOutput)
    assert is_of(output.lse, np.ndarray | typing.Any)
    assert not is_of(output, np.ndarray | None)
    assert not is_of(output.weights, np.ndarray)


# ---- the overloads -----------------------------------------------------------------


@pytest.fixture(params=["relpos", pytest.param("relpos.torch", marks=TORCH)])
def library(request):
    """Return relpos or relpos.torch, and the tables of its keywords."""
    if request.param == "relpos":
        return relpos, keywords
    pytest.importorskip("torch")
    return map(importlib.import_module, ("relpos.torch", "relpos.torch._keywords"))


def overloads(module, name):
    """Return the two overloads before a function in its file."""
    function = inspect.unwrap(getattr(module, name))
    tree = ast.parse(Path(inspect.getsourcefile(function)).read_text())
    nodes = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    assert len(nodes) == 3
    return nodes[:2]


def passed_on(node, tables=keywords):
    """Return table and type of flags of `**keywords: Unpack[Table[flag]]`."""
    unpacked = node.args.kwarg.annotation.slice
    return getattr(tables, unpacked.value.id), ast.unparse(unpacked.slice)


def parameters(node, tables):
    """Return types and defaults of what an overload takes, by name."""
    positional, named = node.args.args, node.args.kwonlyargs
    kinds = {each.arg: ast.unparse(each.annotation) for each in (*positional, *named)}
    with_default = [*positional[len(positional) - len(node.args.defaults) :], *named]
    values = [*node.args.defaults, *node.args.kw_defaults]
    names = [each.arg for each in with_default]
    defaults = dict(zip(names, map(ast.literal_eval, values), strict=True))
    for name, reference in passed_on(node, tables)[0].__annotations__.items():
        assert name not in kinds
        kinds[name] = reference.__forward_arg__
    return kinds, defaults


@pytest.mark.parametrize("name", FUNCTIONS)
def test_overloads_take_what_the_function_takes(name, library):
    module, tables = library
    signature = inspect.signature(getattr(module, name)).parameters
    wanted = {n: p.annotation for n, p in signature.items() if n not in FLAGS}
    optional = {n for n, p in signature.items() if p.default is not p.empty}
    for node in overloads(module, name):
        kinds, defaults = parameters(node, tables)
        assert {n: kind for n, kind in kinds.items() if n not in FLAGS} == wanted
        assert {n: kinds[n] for n in FLAGS if n in kinds} == {
            n: "Flag" for n in FLAGS if n in signature
        }
        assert {n: signature[n].default for n in defaults} == defaults
        assert {*passed_on(node, tables)[0].__annotations__, *defaults} == optional


@pytest.mark.parametrize("name", FUNCTIONS)
def test_overloads_tell_an_array_from_all_results(name):
    function = getattr(relpos, name)
    flags = [flag for flag in FLAGS if flag in inspect.signature(function).parameters]
    nodes = overloads(relpos, name)
    told = [(passed_on(node)[1], ast.unparse(node.returns)) for node in nodes]
    assert told == [("Off", "Array"), ("bool", "AttentionOutput")]
    assert type(function(**GOOD[name])) is np.ndarray
    for flag in flags:
        result = function(**GOOD[name], **{flag: True})
        assert type(result) is relpos.AttentionOutput
        given = {
            f"return_{n}" for n in result._fields[1:] if getattr(result, n) is not None
        }
        assert given == {flag}
