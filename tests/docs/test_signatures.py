"""Signatures: types by the names they have in the code, and defaults of namesakes."""

import importlib
import inspect

import pytest

import relpos

DEFINITIONS = [
    name
    for name in relpos.reference.__all__
    if callable(getattr(relpos.reference, name))
]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_types_of_a_definition_are_names(name):
    signature = inspect.signature(getattr(relpos.reference, name))
    parameters = signature.parameters.values()
    types = [parameter.annotation for parameter in parameters]
    assert max(len(str(t)) for t in (*types, signature.return_annotation)) <= 50


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_takes_five_lines_of_help(name):
    """Or it shows names alone, of which nothing more can be left out."""
    signature = inspect.signature(getattr(relpos.reference, name))
    typed = any(p.annotation is not p.empty for p in signature.parameters.values())
    assert len(str(signature)) <= 400 or not typed


def test_names_that_help_shows_alone_have_types_all_the_same():
    """`attention` has 28 parameters: help() leaves their types out, checkers do not."""
    function = relpos.reference.attention
    shown = inspect.signature(function).parameters
    assert [*shown, "return"] == list(function.__annotations__)
    assert "rel_bias=None" in str(inspect.signature(function))


# ---- defaults of functions of one name -----------------------------------------------

NOT_ALWAYS = "relpos returns None for what was not asked for, the definition has all"
COMPUTED = "a definition that computes the output alone leaves it out"
NO_PLAN = "the definition takes no plan, which holds both"
OF_TENSORS = "it is a type of torch"
OF_TORCH = "None is the default type of torch, as in the layers of torch"
#: Parameters whose default differs from that of the namesake in relpos, or in relpos.nn
#: for relpos.torch.nn, and why that is meant.
MEANT = {
    "reference": {
        "AttentionGradients(query)": NOT_ALWAYS,
        "AttentionGradients(key)": NOT_ALWAYS,
        "AttentionGradients(value)": NOT_ALWAYS,
        "AttentionOutput(lse)": COMPUTED,
        "AttentionOutput(weights)": COMPUTED,
        "attention_backward(grad_lse)": "few readers have one, so it is a keyword",
    },
    "sharded": {},
    "torch": {"alibi_slopes(dtype)": OF_TENSORS, "sinusoidal(dtype)": OF_TENSORS},
    "torch.nn": {
        "ConformerRelPositionAttention(dtype)": OF_TORCH,
        "ConvPositionEmbedding(dtype)": OF_TORCH,
        "DynamicPositionBias(dtype)": OF_TORCH,
        "LearnedAPE(dtype)": OF_TORCH,
        "RelPartialLearnableMultiHeadAttn(dtype)": OF_TORCH,
        "RelativeGlobalAttention(dtype)": OF_TORCH,
        "ShawAttention(dtype)": OF_TORCH,
        "SinusoidalEncoding(dtype)": OF_TORCH,
    },
}
#: The same of functions that compute one part of another function.
MEANT_OF_PARTS = {
    "t5_bias_backward(num_buckets)": "it has no weight whose rows could be counted",
}


def signatures(module):
    """Return the signatures of a module's public functions, classes and methods."""
    by_name = {}
    for name in module.__all__:
        thing = getattr(module, name)
        if not callable(thing):
            continue
        by_name[name] = inspect.signature(thing)
        if not inspect.isclass(thing):
            continue
        for method, value in inspect.getmembers(thing, callable):
            if not method.startswith("_"):
                by_name[f"{name}.{method}"] = inspect.signature(value)
    return by_name


def defaults(signature):
    """Return by parameter its default with the default's type, as 1 == 1.0 == True."""
    return {
        name: (parameter.default, type(parameter.default))
        for name, parameter in signature.parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def differing(one, other):
    """Return names of the parameters of both signatures whose defaults differ."""
    first, second = defaults(one), defaults(other)
    return [name for name in first.keys() & second if first[name] != second[name]]


def assert_only_meant_defaults_differ(module, home):
    """Check that MEANT has all defaults that differ from those of a namesake."""
    ours, originals = signatures(module), signatures(home)
    names = ours.keys() & originals.keys()
    assert len(names) >= 5
    rows = set()
    for name in names:
        rows |= {f"{name}({p})" for p in differing(ours[name], originals[name])}
    assert rows == MEANT[module.__name__.removeprefix("relpos.")].keys()


def test_defaults_of_definitions_are_those_of_relpos():
    assert_only_meant_defaults_differ(relpos.reference, relpos)


def test_defaults_on_dask_arrays_are_those_of_relpos():
    pytest.importorskip("dask")
    assert_only_meant_defaults_differ(relpos.sharded, relpos)


@pytest.mark.torch
def test_defaults_on_tensors_are_those_of_relpos():
    pytest.importorskip("torch")
    layers = importlib.import_module("relpos.torch.nn")
    assert_only_meant_defaults_differ(relpos.torch, relpos)
    assert_only_meant_defaults_differ(layers, relpos.nn)


def test_defaults_of_a_part_are_those_of_its_function():
    """`attention_forward` and the functions `*_backward` are parts of functions."""
    rows, parts = set(), []
    for module in (relpos, relpos.reference):
        found = signatures(module)
        for name in found:
            function = name.removesuffix("_backward").removesuffix("_forward")
            if function != name:
                parts.append(name)
                names = differing(found[name], found[function])
                rows |= {f"{name}({parameter})" for parameter in names}
    assert len(parts) >= 16
    assert rows == MEANT_OF_PARTS.keys()
