"""The catalogue lists every scheme once, and all that names schemes agrees with it.

Each check takes a list of schemes and returns what does not fit: nothing for the
catalogue's own list, something for a list with a scheme too many or too few.
"""

from __future__ import annotations

import ast
import inspect

import numpy as np
import problems
import pytest
from documents import page_as_written
from operand_arrays import FLOATING

import relpos
from relpos import _schemes, data, nn, recipes, reference
from relpos._catalogue.rows import NO_TABLES, PAIRS_ROW, ROWS
from relpos._schemes import GENERAL, SCHEMES, Scheme, scheme_called
from relpos.nn import multihead

#: Public functions and layers that serve every scheme, or none.
OF_NO_SCHEME = {
    *(name for names in GENERAL.values() for name in names),
    "recipes.from_config",
    "recipes.Recipe",
    "nn.Module",
    "nn.Linear",
    "nn.LayerNorm",
    "nn.Dropout",
    "nn.Embedding",
    "nn.ReLU",
    "nn.GELU",
    "nn.FeedForward",
    "nn.Sequential",
    "nn.Residual",
    "nn.MultiheadAttention",
    "nn.TransformerLayer",
    "nn.Position",
} - {"attention"}


def functions_of(schemes):
    return {name for scheme in schemes for name in scheme.functions}


def names_of(schemes):
    return [name for scheme in schemes for name in scheme.names]


def literals(module, alias):
    """Return the names that a type lists, in the order of the file."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == alias:
            found = [x.value for x in ast.walk(node) if isinstance(x, ast.Constant)]
            return [name for name in found if isinstance(name, str)]
    raise AssertionError(alias)


def public():
    """Functions of relpos and its recipes, and layers, as written after `relpos.`."""
    things = {name: getattr(relpos, name) for name in relpos.__all__}
    things = {n: x for n, x in things.items() if not isinstance(x, (type, str))}
    layers = {name: getattr(nn, name) for name in nn.__all__}
    layers = {n: x for n, x in layers.items() if isinstance(x, type)}
    return {
        *things,
        *(f"recipes.{name}" for name in recipes.__all__),
        *(f"nn.{name}" for name, x in layers.items() if issubclass(x, nn.Module)),
    }


# ---- checks --------------------------------------------------------------------------


def names_of_two_schemes(schemes):
    names = names_of(schemes)
    return {name for name in names if names.count(name) > 1}


def rows_and_schemes_without_each_other(schemes):
    return {row.scheme for row in [*ROWS, PAIRS_ROW]} ^ {s.name for s in schemes}


def names_and_their_type_without_each_other(schemes):
    variants = {name for scheme in schemes for name in scheme.variants}
    return {*names_of(schemes), *variants} ^ {*literals(_schemes, "SchemeName")}


def functions_of_no_scheme_and_of_none_at_all(schemes):
    return functions_of(schemes) ^ (public() - OF_NO_SCHEME)


def functions_without_a_definition(schemes):
    named = {name for name in functions_of(schemes) if "." not in name}
    return named - {*reference.__all__}


def families_and_schemes_without_each_other(schemes):
    return {s.family for s in schemes} ^ {family.name for family in data.families()}


def functions_of_another_family_in_the_overview(schemes):
    """An absolute scheme leaves the attention itself to plain attention."""
    pairs = {(family.name, f) for family in data.families() for f in family.functions}
    pairs -= {("absolute", "attention")}
    return pairs - {(s.family, function) for s in schemes for function in s.functions}


def operands_that_no_random_problem_has(schemes):
    """The kernels are tested with the sets of operands of `problems.TERMS`, and with
    those that are no tables by tests of their own and by random ones."""
    rng = np.random.default_rng(0)
    made = [problems.terms(rng, kind, 1, 3, 3, 2) for kind in problems.TERMS]
    tried = {frozenset(FLOATING).intersection(keywords) for keywords in made}
    given = [s.operands for s in schemes if {*s.operands} <= {*FLOATING}]
    return {names for names in given if frozenset(names) - NO_TABLES not in tried}


def without(name):
    return [scheme for scheme in SCHEMES if scheme.name != name]


def one_more(**fields):
    made = {"name": "new", "functions": ("attention",), "family": "relative"} | fields
    return [*SCHEMES, Scheme(**made)]


#: Check -> a list of schemes that it must not let pass.
CHECKS = {
    names_of_two_schemes: one_more(synonyms=("shaw",)),
    rows_and_schemes_without_each_other: without("kerple"),
    names_and_their_type_without_each_other: without("kerple"),
    functions_of_no_scheme_and_of_none_at_all: one_more(functions=("no_such",)),
    functions_without_a_definition: one_more(functions=("merge_attentions",)),
    families_and_schemes_without_each_other: without("conv_encoding"),
    functions_of_another_family_in_the_overview: without("alibi"),
    operands_that_no_random_problem_has: one_more(operands=("rel_query",)),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_scheme_once(check):
    assert check(SCHEMES) == set()
    assert check(CHECKS[check]) != set()


@pytest.mark.parametrize("name", [scheme.name for scheme in SCHEMES])
def test_a_scheme_left_out_is_missed(name):
    """By its rows, and by the functions that no other scheme has."""
    schemes = without(name)
    assert name in rows_and_schemes_without_each_other(schemes)
    own = functions_of(SCHEMES) - functions_of(schemes)
    assert functions_of_no_scheme_and_of_none_at_all(schemes) == own


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_operands_are_those_of_the_call(scheme):
    for library in (relpos, reference):
        given = inspect.signature(getattr(library, scheme.call)).parameters
        assert {*scheme.operands} <= {*given}
    assert scheme.call in scheme.functions or scheme.call == "attention"


def test_names_and_synonyms_are_found():
    assert all(scheme_called(s.name) is s for s in SCHEMES)
    assert scheme_called("music").name == "relative_global_attention"
    with pytest.raises(KeyError, match="waltz"):
        scheme_called("waltz")


def test_types_list_every_name_once():
    listed = literals(_schemes, "SchemeName")
    assert len(listed) == len({*listed})
    names = literals(multihead, "PositionName")
    known = [scheme for scheme in SCHEMES if {*scheme.names} & {*multihead.SCHEMES}]
    assert sorted(names) == sorted(names_of(known))


def test_the_page_of_functions_is_the_catalogue_s(monkeypatch):
    """`python docs/_extensions/functions.py` writes its lists."""
    text = page_as_written(monkeypatch, "functions")
    assert "| [KERPLE](schemes/kerple.md) | A penalty that grows" in text
