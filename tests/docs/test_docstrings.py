"""Public docstrings: sections, formula, true errors, paper, example."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import re

import numpy as np
import pytest
from bad_kinds import Tensor
from docstrings import LATER, SECTIONS, entries, sections
from good_calls import GOOD, TABLE

import relpos

#: Settings of the process, what draws and what looks up: these compute nothing.
NO_FORMULA = {
    *("get_num_threads", "set_num_threads", "show_config", "threads"),
    *(f"plot.{name}" for name in relpos.plot.__all__),
    *("data.chorales", "data.comparison", "data.experiment"),
    *("data.families", "data.reported", "data.shaw_tables", "data.slips"),
}
NO_PAPER = NO_FORMULA - {"data.reported", "data.shaw_tables"}
#: Of papers by their numbers, and of what is not one by its title.
SOURCE = r'arXiv:\d{4}\.\d{4,5}|doi:10\.\d{4,}/\S+|"[^"]+", a (notebook|model card)'
NO_RESULT = {"set_num_threads", "threads"}

#: What a function with the keywords of `attention` has not.
RETURNED = {"out", "return_lse", "return_weights", "return_context"}
NOT_PASSED = {
    **{name: {"value", *RETURNED} for name in ("scores", "plot.score_terms")},
    **dict.fromkeys(("attention_forward", "attention_backward"), RETURNED),
}


def public():
    """Names as one writes them after `relpos.`, and what they stand for."""
    found = {name: getattr(relpos, name) for name in relpos.__all__}
    del found["__version__"]
    for module in (relpos.data, relpos.plot, relpos.recipes):
        room = module.__name__.removeprefix("relpos.")
        found |= {f"{room}.{name}": getattr(module, name) for name in module.__all__}
    return found


PUBLIC = public()
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}
TUPLES = {name: thing for name, thing in CLASSES.items() if issubclass(thing, tuple)}
FUNCTIONS = {name: thing for name, thing in PUBLIC.items() if name not in CLASSES}
FUNCTIONS["AttentionContext.backward"] = relpos.AttentionContext.backward
WITH_ERRORS = [name for name in FUNCTIONS if "Raises" in sections(FUNCTIONS[name])]


@pytest.mark.parametrize("name", PUBLIC)
def test_sections_are_those_of_numpydoc_in_its_order(name):
    found = [*sections(PUBLIC[name])][1:]
    assert found == sorted(found, key=SECTIONS.index)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_those_of_the_signature(name):
    parameters = [*inspect.signature(FUNCTIONS[name]).parameters]
    described = entries(sections(FUNCTIONS[name]).get("Parameters", ""))
    if "keywords" in described:  # described where they are passed on to
        described.remove("keywords")
        passed = {*inspect.signature(relpos.attention).parameters}
        described += passed - {*described} - NOT_PASSED.get(name, set())
    assert sorted(described) == sorted({*parameters} - {"self"})


@pytest.mark.parametrize("name", TUPLES)
def test_fields_of_a_result_are_described(name):
    described = entries(sections(TUPLES[name])["Attributes"])
    assert described == [*TUPLES[name]._fields]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_returns(name):
    assert ("Returns" in sections(FUNCTIONS[name])) != (name in NO_RESULT)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_a_formula(name):
    text = inspect.getdoc(FUNCTIONS[name])
    assert (".. math::" in text or ":math:`" in text) != (name in NO_FORMULA)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_names_its_paper(name):
    found = sections(FUNCTIONS[name])
    assert ("References" in found) != (name in NO_PAPER)
    if name not in NO_PAPER:
        before, *sources = re.split(r"\n\.\. \[\d+\] ", found["References"])
        assert not before and sources
        for source in sources:
            assert re.search(SOURCE, source)


#: What takes the place of each argument in turn: wrong for most of them.
WRONG = [
    *(None, object(), "x", b"x", True, Tensor(), np.ma.zeros(3), {}, 1j, [], [[1], []]),
    *(-1, 0, 7, 2**70, 0.5, float("nan"), float("inf"), [9], [-9], [1.5], (1, 2, 3)),
    *(np.zeros(0), np.zeros((0, 0, 0)), np.ones((2, 3, 4, 5, 6)), np.array(["a"])),
    *(np.full((4, 4), 99), np.full((3, 4), -99), np.ones((5, 7), int)),
]

#: Changes that lead to an error which no wrong argument alone leads to.
CHANGES = {
    "shaw_attention": {"rel_key": TABLE[:3], "beyond": "raise"},
    "relative_global_attention": {"rel_key": TABLE[:3]},
    "transformer_xl_attention": {"rel_key": TABLE[:3], "min_relative_position": 0},
    "attention_backward": {"rel_key": TABLE[:3], "beyond": "raise"},
    "fire_attention": {"rel_bias": np.ones(1), "labels": np.full((4, 4), 1)},
    "graph_attention": {"labels": np.full(13, 5)},
    "rotary_magnitude": {"scaling": ("linear", -1.0)},
    "audit_encoding": {"encode": lambda length, dim: [][length]},
    "plot.relative_position_map": {"highlight": [(6, 1)]},
    "plot.edges": {"pairs": [(6, 1)]},
    "plot.attention_graph": {"layout": [[0.0, 0.0]]},
    "plot.loss_curves": {"losses": {"a": [[[1.0]]]}},
}


def function_of(name):
    """Return the function to call; the method of a context is bound to a context."""
    if name != "AttentionContext.backward":
        return FUNCTIONS[name]
    result = relpos.attention(**GOOD["attention"], return_context=True)
    return result.context.backward


def error_of(function, arguments):
    """The kind of what a call raises, None where it does not."""
    try:
        with contextlib.ExitStack() as stack:
            result = function(**arguments)
            if function is relpos.threads:
                stack.enter_context(result)
    except Exception as error:
        return type(error).__name__
    return None


@pytest.fixture
def threads_as_before():
    before = relpos.get_num_threads()
    yield
    relpos.set_num_threads(before)


@pytest.mark.usefixtures("threads_as_before")
@pytest.mark.filterwarnings("ignore")  # of numbers that are wrong
@pytest.mark.parametrize("name", WITH_ERRORS)
def test_errors_that_are_named_are_raised(name):
    """Conditions that the function shares with others need not be named."""
    good, function = GOOD[name], function_of(name)
    if name.startswith("plot."):
        figure = pytest.importorskip("matplotlib.figure").Figure()
        if "ax" in inspect.signature(function).parameters:
            good = {**good, "ax": figure.subplots()}
        else:
            good = {**good, "figure": figure}
    assert error_of(function, good) is None
    parameters = inspect.signature(function).parameters.values()
    changes = [
        {parameter.name: wrong}
        for parameter in parameters
        if parameter.kind is not parameter.VAR_KEYWORD
        for wrong in WRONG
        if parameter.name not in ("ax", "figure") or wrong is not None  # no windows
    ]
    changes.append(CHANGES.get(name, {}))
    raised = {error_of(function, good | change) for change in changes} - {None}
    named = {*entries(sections(FUNCTIONS[name])["Raises"])}
    assert named and named <= raised | {"MemoryError"}
    assert all(issubclass(getattr(builtins, error), Exception) for error in named)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_has_an_example(name):
    """The doctests run it; here it is held to be about this name."""
    example = sections(PUBLIC[name])["Examples"]
    code = " ".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)", example, flags=re.M))
    assert name in CLASSES or f"{name.split('.')[-1]}(" in code
    assert "doctest:" not in code


@pytest.mark.parametrize("name", relpos.reference.__all__)
def test_definitions_have_a_formula_and_an_example(name):
    definition = getattr(relpos.reference, name)
    if not inspect.isclass(definition):
        found = sections(definition)
        assert re.search("[=·Σ√]", found[""]) and ">>> " in found["Examples"]


def test_ufuncs_are_in_the_table_of_their_module():
    table = re.findall(r"^([a-z][a-z_, ]*?)  ", relpos.ufuncs.__doc__, flags=re.M)
    described = [name for row in table for name in row.split(", ")]
    assert sorted({*described} - {"ufunc"}) == sorted(relpos.ufuncs.__all__)


def test_the_package_lists_its_names_each_in_one_family():
    table = relpos.__doc__.split("==\n")[1].split("\n==")[0]
    edge = relpos.__doc__.splitlines()[2]
    lines = [line[edge.index(" ") :] for line in table.splitlines()]
    listed = [name for line in lines for name in re.findall(r"\w+", line)]
    assert sorted(listed) == sorted({*relpos.__all__, *LATER} - {"__version__"})
    modules = set(re.findall(r"`relpos\.(\w+)`", relpos.__doc__))
    assert modules == {*relpos._LATER}
