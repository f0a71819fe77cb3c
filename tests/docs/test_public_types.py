"""Types that checkers are told are those of the results, and of the signatures.

The checkers themselves run over public_types.py in continuous integration.
"""

import ast
import inspect
import itertools
import runpy
import types
import typing
from pathlib import Path

import numpy as np
import pytest
from good_calls import GOOD

import relpos
from relpos._attention import keywords, typed

PUBLIC_TYPES = Path(__file__).with_name("public_types.py")
STUB = ast.parse(Path(typed.__file__).with_suffix(".pyi").read_text())
FLAGS = ("return_lse", "return_weights", "return_context")


def gradients_of(context):
    return context.backward(None, grad_lse=np.ones((2, 4)))


def is_of(value, kind):
    """Whether a value is of a type, as far as can be seen of it."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return any(is_of(value, each) for each in typing.get_args(kind))
    plain = typing.get_origin(kind) or kind
    if hasattr(plain, "__value__"):  # an alias by `type`, as NDArray is in NumPy 2.5
        return is_of(value, plain.__value__)
    if plain is relpos.AttentionContext and typing.get_args(kind):
        (made,) = typing.get_args(kind)
        return type(value) is plain and is_of(gradients_of(value), made)
    if plain is relpos.AttentionOutput and typing.get_args(kind):
        kinds = [np.ndarray, *typing.get_args(kind)]
        return type(value) is plain and all(map(is_of, value, kinds))
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
    array = np.ndarray
    assert is_of(output, relpos.AttentionOutput[array, None, None])
    assert not is_of(output, relpos.AttentionOutput[array | None, array, None])
    assert not is_of(output, array | None)


# ---- the overloads -----------------------------------------------------------------


def overloads():
    found = {}
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


OVERLOADS = overloads()


def passed_on(node):
    """Of `**keywords: Unpack[Table[types]]`, the table and its types."""
    unpacked = node.args.kwarg.annotation.slice
    kinds = [ast.unparse(kind) for kind in unpacked.slice.elts]
    return getattr(keywords, unpacked.value.id), kinds


def parameters(node):
    """What an overload takes: name to type, and name to default where it has one."""
    positional, named = node.args.args, node.args.kwonlyargs
    kinds = {each.arg: ast.unparse(each.annotation) for each in (*positional, *named)}
    with_default = [*positional[len(positional) - len(node.args.defaults) :], *named]
    values = [*node.args.defaults, *node.args.kw_defaults]
    names = [each.arg for each in with_default]
    defaults = dict(zip(names, map(ast.literal_eval, values), strict=True))
    for name, reference in passed_on(node)[0].__annotations__.items():
        assert name not in kinds
        kinds[name] = reference.__forward_arg__
    return kinds, defaults


@pytest.mark.devmode
def test_the_stub_has_the_functions_of_its_module():
    assert sorted(OVERLOADS) == typed.__all__
    for name in typed.__all__:
        assert getattr(relpos, name) is getattr(typed, name)


@pytest.mark.parametrize("name", OVERLOADS)
def test_overloads_take_what_the_function_takes(name):
    signature = inspect.signature(getattr(relpos, name)).parameters
    wanted = {n: p.annotation for n, p in signature.items() if n not in FLAGS}
    optional = {n for n, p in signature.items() if p.default is not p.empty}
    for node in OVERLOADS[name]:
        kinds, defaults = parameters(node)
        assert {n: kind for n, kind in kinds.items() if n not in FLAGS} == wanted
        assert {n: signature[n].default for n in defaults} == defaults
        assert {*passed_on(node)[0].__annotations__, *defaults} == optional


@pytest.mark.parametrize("name", OVERLOADS)
def test_there_is_an_overload_for_every_choice_of_flags(name):
    function = getattr(relpos, name)
    flags = [flag for flag in FLAGS if flag in inspect.signature(function).parameters]
    told = {
        tuple(passed_on(node)[1]): ast.unparse(node.returns) for node in OVERLOADS[name]
    }
    for chosen in itertools.product((False, True), repeat=len(flags)):
        result = function(**GOOD[name], **dict(zip(flags, chosen, strict=True)))
        kinds = tuple("On" if flag else "Off" for flag in chosen)
        assert told.pop(kinds) == kind_of(result)
    assert [*told] == [("bool",) * len(flags)]


def kind_of(result):
    """A result's type as the stub writes it."""
    if isinstance(result, relpos.AttentionOutput):
        return f"AttentionOutput[{', '.join(map(kind_of, result[1:]))}]"
    if isinstance(result, relpos.AttentionContext):
        fire = isinstance(gradients_of(result), relpos.FireAttentionGradients)
        return "FireContext" if fire else "Context"
    return {np.ndarray: "Array", type(None): "None"}[type(result)]
