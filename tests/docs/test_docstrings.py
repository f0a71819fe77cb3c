"""Public docstrings: sections, formula, paper, names, example, errors that come.

`.ci/docstrings` has the rules of numpydoc on summaries, parameters and results.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import re
from importlib.util import find_spec
from operator import attrgetter

import numpy as np
import pytest
from bad_kinds import Tensor
from docstrings import LATER, SECTIONS, entries, public, sections
from good_calls import GOOD, TABLE
from good_layers import GOOD_LAYERS, WEIGHT, X

import relpos
from relpos import nn

#: All public names, those of methods included, as one writes them after `relpos.`.
EVERY = {name.removeprefix("relpos."): thing for name, thing in public().items()}
#: Definitions have a form of their own.
PUBLIC = {n: x for n, x in EVERY.items() if not n.startswith("reference.")}
CLASSES = {name for name, thing in PUBLIC.items() if inspect.isclass(thing)}
FUNCTIONS = {name: x for name, x in PUBLIC.items() if inspect.isfunction(x)}
TUPLES = [name for name in sorted(CLASSES) if issubclass(PUBLIC[name], tuple)]
#: Names of modules, without methods.
NAMES = [n for n in PUBLIC if n.rpartition(".")[0] not in CLASSES and n != "demo"]
WITH_FORMULA = [
    *(n for n in NAMES if n in FUNCTIONS),
    *(
        n
        for n in NAMES
        if n.startswith(("nn.", "torch.nn.")) and n in CLASSES - {*TUPLES}
    ),
    "AttentionContext.backward",
]
#: Settings of the process, pictures and what looks up: these compute nothing.
NO_FORMULA = {
    "get_num_threads",
    "set_num_threads",
    "show_config",
    "threads",
    *(f"plot.{name}" for name in relpos.plot.__all__),
    "data.chorales",
    "data.comparison",
    "data.experiment",
    "data.families",
    "data.reported",
    "data.shaw_tables",
    "data.slips",
    "nn.Module",
    "nn.Parameter",
    "nn.Position",
    "nn.load_file",
    "torch.register",
    "torch.replace_attention",
}
NO_PAPER = NO_FORMULA - {"data.reported", "data.shaw_tables"}
NO_PAPER |= {"nn.Embedding", "nn.Linear", "nn.ReLU", "nn.Sequential"}
#: Of models whose code is in transformers, and whose formula is there alone.
NO_PAPER |= {"recipes.deepseek_v4", "recipes.mistral_large4"}
#: Of papers by their numbers, and of what is not one by its title.
SOURCE = r'arXiv:\d{4}\.\d{4,5}|doi:10\.\d{4,}/\S+|"[^"]+", a (notebook|model card)'
OF_LAYERS = r'"[^"]+", 20\d\d, (arXiv:\d{4}\.\d{4,5}|ICML)'


@pytest.mark.parametrize("name", EVERY)
def test_sections_are_those_of_numpydoc_in_its_order(name):
    found = [*sections(EVERY[name])][1:]
    assert found == sorted(found, key=SECTIONS.index)


@pytest.mark.parametrize("name", TUPLES)
def test_fields_of_a_result_are_described(name):
    described = entries(sections(PUBLIC[name])["Attributes"])
    assert described == [*PUBLIC[name]._fields]


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"threads"}))
def test_a_function_says_what_it_returns(name):
    function = FUNCTIONS[name]
    nothing = inspect.signature(function).return_annotation in ("None", None)
    wanted = "Yields" if inspect.isgeneratorfunction(function) else "Returns"
    assert (wanted in sections(function)) != nothing


@pytest.mark.parametrize("name", WITH_FORMULA)
def test_formula_and_paper(name):
    found, text = sections(PUBLIC[name]), inspect.getdoc(PUBLIC[name])
    in_line = not name.startswith("nn.") and ":math:`" in text
    assert (".. math::" in found[""] or in_line) != (name in NO_FORMULA)
    assert ("References" in found) != (name in NO_PAPER)
    before, *sources = re.split(r"\n?\.\. \[\d+\] ", found.get("References", ""))
    assert not before and bool(sources) == ("References" in found)
    kind = OF_LAYERS if name.startswith("nn.") else SOURCE
    assert all(re.search(kind, " ".join(source.split())) for source in sources)


#: Modules that are more than a list of what they hold.
MODULES = {
    f"relpos.{name}": getattr(relpos, name)
    for name in ("nn", "recipes", "reference", "ufuncs")
}
REFERRING = {
    name: thing
    for name, thing in (public() | MODULES).items()
    if "See Also" in sections(thing)
}
LINE = re.compile(r"^(\S[^\n]*?) : ([A-Z`][^\n]*(?:\n    [^\n]*)*)$", re.MULTILINE)


def module_of(name):
    """Return relpos, or its module that has this public name."""
    rest = name.split(".")[1]
    return relpos if callable(getattr(relpos, rest)) else getattr(relpos, rest)


def is_there(module, name):
    """Return the object that `name` refers to, in a module or from relpos on."""
    if name == "relpos":
        return relpos
    if name.startswith("relpos.torch.") and find_spec("torch") is None:
        return name  # nothing to look it up in: the tests of relpos.torch do
    try:
        if name.startswith("relpos."):
            return attrgetter(name.removeprefix("relpos."))(relpos)
        return attrgetter(name)(module)
    except AttributeError:
        return None


@pytest.mark.parametrize("name", REFERRING)
def test_names_that_are_there_each_with_a_word_on_it(name):
    body = sections(REFERRING[name])["See Also"].strip()
    lines = LINE.findall(body)
    assert "\n".join(f"{names} : {text}" for names, text in lines) == body
    assert all(text.endswith(".") and len(text) < 160 for _, text in lines)
    found = [is_there(module_of(name), other) for other in entries(body)]
    assert all(thing is not None for thing in found), body
    assert REFERRING[name] not in found, "a docstring that refers to itself"


@pytest.mark.parametrize("name", [n for n in NAMES if n not in TUPLES])
def test_every_name_has_an_example(name):
    """The doctests run it; here it is about this name. Functions make the results."""
    example = sections(PUBLIC[name])["Examples"]
    code = " ".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)", example, flags=re.MULTILINE))
    own = f"nn.{name[3:]}" if name.startswith("nn.") else f"{name.split('.')[-1]}("
    assert own in code or (name in CLASSES and "nn." not in name)
    assert "doctest:" not in code


@pytest.mark.parametrize("name", relpos.reference.__all__)
def test_definitions_have_a_formula_and_an_example(name):
    """The example of a function of relpos is that of its definition, too."""
    definition = getattr(relpos.reference, name)
    if not inspect.isclass(definition):
        found = sections(definition)
        assert re.search("[=·Σ√]", found[""])
        assert (name in relpos.__all__) != (">>> " in found.get("Examples", ""))


def test_ufuncs_are_in_the_table_of_their_module():
    table = re.findall(
        r"^([a-z][a-z_, ]*?)  ", relpos.ufuncs.__doc__, flags=re.MULTILINE
    )
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


# ---- the errors that are named are those that come -----------------------------------

#: What takes the place of each argument in turn: wrong for most of them.
WRONG = [
    None,
    object(),
    "x",
    b"x",
    True,
    Tensor(),
    np.ma.zeros(3),
    {},
    1j,
    [],
    [[1], []],
    -1,
    0,
    7,
    2**70,
    0.5,
    float("nan"),
    float("inf"),
    [9],
    [-9],
    [1.5],
    (1, 2, 3),
    np.zeros(0),
    np.zeros((0, 0, 0)),
    np.ones((2, 3, 4, 5, 6)),
    np.array(["a"]),
    np.full((4, 4), 99),
    np.full((3, 4), -99),
    np.ones((5, 7), int),
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


#: Functions of relpos itself, and the backward of a context.
WITH_ERRORS = [
    name
    for name in (*NAMES, "AttentionContext.backward")
    if name in FUNCTIONS and "Raises" in sections(FUNCTIONS[name])
    if not name.startswith(("nn.", "torch.", "sharded.")) and name not in LATER
]


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
def test_errors_that_are_named_are_raised(name, sized):
    """Conditions that the function shares with others need not be named."""
    tries_all = sized(False, True)
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
    named = {*entries(sections(FUNCTIONS[name])["Raises"])}
    raised = {"MemoryError"}
    for change in changes:
        raised.add(error_of(function, good | change))
        if named <= raised and not tries_all:
            break
    assert named and named <= raised
    assert all(issubclass(getattr(builtins, error), Exception) for error in named)


# ---- errors of layers ----------------------------------------------------------------

#: What takes the place of each argument in turn: wrong for most of them.
WRONG_FOR_LAYERS = [
    object(),
    "x",
    b"x",
    True,
    np.ma.zeros(3),
    {},
    1j,
    [],
    [[1], []],
    [WEIGHT] * 2,
    -1,
    0,
    7,
    2**70,
    0.5,
    float("nan"),
    float("inf"),
    [9],
    [9, 9],
    [1.5],
    (1, 2, 3),
    np.zeros(0),
    np.zeros((0, 0, 0)),
    np.ones((2, 3, 4, 5, 6)),
    np.array(["a"]),
    np.full((2, 5), 7),
    np.zeros((3, 4)),
    np.ones((2, 30, 6)),
    X[..., 1:],
]


def is_layer(thing):
    if not inspect.isclass(thing) or thing in (nn.Module, nn.Position):
        return False
    return issubclass(thing, nn.Module)


def named_parameters(function):
    """Return names of the arguments that can be given by name."""
    if isinstance(function, nn.RelPartialLearnableMultiHeadAttn):
        return ["w", "r", "attn_mask", "mems"]  # of two forms of the call
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    kinds = inspect.signature(function).parameters.items()
    return [name for name, each in kinds if each.kind not in several]


def errors(function, good):
    """Return kinds of errors of a call as its arguments become wrong, one at a time."""
    function(**good)
    names = named_parameters(function)
    raised = set()
    for name in names:
        for wrong in WRONG_FOR_LAYERS:
            try:
                function(**good | {name: wrong})
            except Exception as error:
                raised.add(type(error).__name__)
                assert re.match(r"\w+", str(error)).group() in names, error
    return raised


def check_errors(thing, errors):
    """All that is named is raised; conditions that all layers share may be unnamed."""
    named = {*entries(sections(thing).get("Raises", ""))} - {"MemoryError"}
    assert named <= errors <= {"TypeError", "ValueError", "IndexError", "RuntimeError"}


@pytest.mark.parametrize("name", [name for name in GOOD_LAYERS if name != "Sequential"])
def test_errors_of_functions_and_constructors(name):
    check_errors(getattr(nn, name), errors(getattr(nn, name), GOOD_LAYERS[name][0]))


@pytest.mark.parametrize("name", [n for n in nn.__all__ if is_layer(getattr(nn, n))])
def test_errors_of_layers(name):
    made, good = GOOD_LAYERS[name]
    layer = getattr(nn, name)(**made)
    check_errors(type(layer).__call__, errors(layer, good))
    with pytest.raises(RuntimeError, match=rf"^{name}.backward: .*not been called"):
        getattr(nn, name)(**made).backward(X)
    grad_out = np.zeros(layer(**good).shape)
    found = errors(layer.backward, {"grad_out": grad_out})
    check_errors(type(layer).backward, found | {"RuntimeError"})
