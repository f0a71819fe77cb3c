"""Docstrings of relpos.nn: formula, parameters, true errors, paper, example."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from docstrings import SECTIONS, entries, sections

from relpos import nn

PUBLIC = {name: getattr(nn, name) for name in nn.__all__}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}
TUPLES = {name: thing for name, thing in CLASSES.items() if issubclass(thing, tuple)}
LAYERS = {
    name: thing
    for name, thing in CLASSES.items()
    if issubclass(thing, nn.Module) and thing not in (nn.Module, nn.Position)
}
METHODS = {
    f"{name}.{method}": getattr(thing, method)
    for name, thing in CLASSES.items()
    if name not in TUPLES
    for method in dir(thing)
    if method in ("__call__", "backward")
    or (method in vars(thing) and not method.startswith("_"))
    if inspect.isfunction(getattr(thing, method))
}
#: These compute nothing.
NO_FORMULA = {"Module", "Parameter", "Position", "load_file"}
#: Without a paper of their own.
NO_PAPER = NO_FORMULA | {"Embedding", "Linear", "ReLU", "Sequential"}


def parameters(thing):
    """Return names of arguments; of Transformer-XL's layer those of both its calls."""
    if thing is nn.RelPartialLearnableMultiHeadAttn.__call__:
        return ["w", "r", "r_w_bias", "r_r_bias", "attn_mask", "mems"]
    if isinstance(thing, nn.RelPartialLearnableMultiHeadAttn):
        return ["w", "r", "attn_mask", "mems"]
    return [name for name in inspect.signature(thing).parameters if name != "self"]


def named_parameters(thing):
    """Return names of the arguments that can be given by name."""
    if not inspect.isclass(thing) and not isinstance(thing, nn.Module):
        return parameters(thing)
    kinds = {name: p.kind for name, p in inspect.signature(thing).parameters.items()}
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [name for name in parameters(thing) if kinds.get(name) not in several]


@pytest.mark.parametrize("name", PUBLIC | METHODS)
def test_sections_are_those_of_numpydoc_in_its_order(name):
    found = [*sections((PUBLIC | METHODS)[name])][1:]
    assert found == sorted(found, key=SECTIONS.index)


@pytest.mark.parametrize("name", [n for n in PUBLIC | METHODS if n not in TUPLES])
def test_parameters_are_those_of_the_signature(name):
    thing = (PUBLIC | METHODS)[name]
    described = entries(sections(thing).get("Parameters", ""))
    assert sorted(described) == sorted(parameters(thing))


@pytest.mark.parametrize("name", TUPLES)
def test_fields_of_a_result_are_described(name):
    assert entries(sections(TUPLES[name])["Attributes"]) == [*TUPLES[name]._fields]


@pytest.mark.parametrize("name", [n for n in PUBLIC | METHODS if n not in CLASSES])
def test_what_comes_back_is_described(name):
    thing = (PUBLIC | METHODS)[name]
    nothing = inspect.signature(thing).return_annotation == "None"
    wanted = "Yields" if inspect.isgeneratorfunction(thing) else "Returns"
    assert (wanted in sections(thing)) != nothing


@pytest.mark.parametrize("name", [n for n in PUBLIC if n not in TUPLES])
def test_formula_and_paper(name):
    found = sections(PUBLIC[name])
    assert (".. math::" in found[""]) != (name in NO_FORMULA)
    assert ("References" in found) != (name in NO_PAPER)
    for source in re.split(r"\n\.\. \[\d+\] ", found.get("References", ""))[1:]:
        assert re.search(
            r'"[^"]+", 20\d\d, (arXiv:\d{4}\.\d{4,5}|ICML)', " ".join(source.split())
        )


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_has_an_example_of_its_own(name):
    """The doctests run it."""
    example = sections(PUBLIC[name])["Examples"]
    code = " ".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)", example, flags=re.M))
    assert name in TUPLES or f"nn.{name}" in code
    assert "doctest:" not in code


# ---- the errors that are named are those that come -----------------------------------

X = np.zeros((2, 5, 6), "float32")
ROWS = np.zeros((9, 6), "float32")
WEIGHT = nn.Parameter(np.zeros(3))
QKV = {"query": X, "key": X, "value": X}

#: A small good call of each: arguments of the constructor, arguments of the layer.
GOOD = {
    "Linear": ({"in_features": 6, "out_features": 2}, {"x": X}),
    "LayerNorm": ({"normalized_shape": 6}, {"x": X}),
    "Dropout": ({}, {"x": X}),
    "Embedding": ({"num_embeddings": 9, "embedding_dim": 2}, {"indices": [1, 2]}),
    "LearnedAPE": ({"max_seq_len": 9, "embed_size": 6}, {"x": X}),
    "SinusoidalEncoding": ({"embed_size": 6}, {"x": X}),
    "DynamicPositionBias": ({"dim": 4, "heads": 2, "depth": 1}, {"length": 3}),
    "ConvPositionEmbedding": (
        {"embed_dim": 6, "kernel_size": 4, "groups": 3},
        {"x": X, "mask": np.ones((2, 5))},
    ),
    "RelativeGlobalAttention": (
        {"d_model": 6, "num_heads": 2, "max_len": 9},
        {"x": X},
    ),
    "ShawAttention": (
        {"embed_dim": 6, "num_heads": 2, "max_relative_position": 3},
        {**QKV, "attn_mask": np.ones((5, 5), bool)},
    ),
    "RelPartialLearnableMultiHeadAttn": (
        {"n_head": 2, "d_model": 6, "d_head": 4, "dropout": 0.1},
        {"w": X.swapaxes(0, 1), "r": ROWS, "attn_mask": np.zeros((5, 2))},
    ),
    "MultiheadAttention": (
        {"embed_dim": 6, "num_heads": 2, "position": "shaw"},
        {**QKV, "attn_mask": np.ones((5, 5), bool), "key_lengths": [5, 4]},
    ),
    "TransformerLayer": ({"d_model": 6, "num_heads": 2}, {"x": X}),
    "FeedForward": ({"d_model": 6}, {"x": X}),
    "ReLU": ({}, {"x": X}),
    "GELU": ({}, {"x": X}),
    "Sequential": ({}, {"x": X}),
    "Residual": ({"layer": nn.Linear(6, 6)}, {"x": X}),
    "ALiBi": ({"num_heads": 2}, {"length": 3}),
    "T5Bias": ({"num_heads": 2}, {"length": 3}),
    "LearnedBias": ({"num_heads": 2, "max_relative_position": 3}, {"length": 3}),
    "FIRE": ({"num_heads": 2}, {"query_length": 3, "key_length": 4}),
    "Rotary": ({"head_dim": 6}, {"x": X, "offset": 2}),
    "ConformerRelPositionAttention": (
        {"d_model": 6, "num_heads": 2},
        {**QKV, "pos_emb": ROWS, "mask": np.ones((2, 1, 5))},
    ),
    "Parameter": ({"data": np.zeros((2, 2))}, {}),
    "SGD": ({"parameters": [WEIGHT], "lr": 0.1}, {}),
    "Adam": ({"parameters": [WEIGHT]}, {}),
    "cross_entropy": ({"logits": np.zeros((2, 3)), "targets": [0, 1]}, {}),
    "Memory": ({"length": 3}, {}),
    "update_memory": ({"memory": X, "hidden": X, "mem_len": 3}, {}),
    "warmup_rate": ({"step": 1, "d_model": 512}, {}),
}

#: What takes the place of each argument in turn: wrong for most of them.
WRONG = [
    *(object(), "x", b"x", True, np.ma.zeros(3), {}, 1j, [], [[1], []], [WEIGHT] * 2),
    *(-1, 0, 7, 2**70, 0.5, float("nan"), float("inf"), [9], [9, 9], [1.5], (1, 2, 3)),
    *(np.zeros(0), np.zeros((0, 0, 0)), np.ones((2, 3, 4, 5, 6)), np.array(["a"])),
    *(np.full((2, 5), 7), np.zeros((3, 4)), np.ones((2, 30, 6)), X[..., 1:]),
]


def errors(function, good):
    """Return kinds of errors of a call as its arguments become wrong, one at a time."""
    function(**good)
    names = named_parameters(function)
    raised = set()
    for name in names:
        for wrong in WRONG:
            try:
                function(**good | {name: wrong})
            except Exception as error:
                raised.add(type(error).__name__)
                assert re.match(r"\w+", str(error)).group() in names, error
    return raised


def check_errors(thing, found):
    """All that is named is raised; conditions that all layers share may be unnamed."""
    named = {*entries(sections(thing).get("Raises", ""))} - {"MemoryError"}
    assert named <= found <= {"TypeError", "ValueError", "IndexError", "RuntimeError"}


@pytest.mark.parametrize("name", [name for name in GOOD if name != "Sequential"])
def test_errors_of_functions_and_constructors(name):
    check_errors(PUBLIC[name], errors(PUBLIC[name], GOOD[name][0]))


@pytest.mark.parametrize("name", LAYERS)
def test_errors_of_layers(name):
    made, good = GOOD[name]
    layer = LAYERS[name](**made)
    check_errors(METHODS[f"{name}.__call__"], errors(layer, good))
    with pytest.raises(RuntimeError, match=rf"^{name}.backward: .*not been called"):
        LAYERS[name](**made).backward(X)
    grad_out = np.zeros(layer(**good).shape)
    found = errors(layer.backward, {"grad_out": grad_out})
    check_errors(METHODS[f"{name}.backward"], found | {"RuntimeError"})
