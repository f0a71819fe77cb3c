"""Every cell of the record of what is supported: a call of each, and what it gives.

"yes" is compared with the definition in float64, "no" is an error that names the
function, and "-" has no operand that could be meant.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import reference_calls
import torch
import torch_calls
from good_calls import GOOD
from inductor import NEEDS_WHOLE_GRAPH, compile_afresh  # noqa: F401

import relpos
import relpos.torch
from relpos import reference
from relpos._catalogue.supported import (
    NO,
    NONE,
    SUPPORTED,
    YES,
    Support,
    gradients_of,
)

COLUMNS = Support._fields
#: Tolerances: of float64, of float32, and of numbers that are rounded to 16 bits.
DOUBLE = {"rtol": 1e-11, "atol": 1e-12}
SINGLE = {"rtol": 2e-5, "atol": 2e-5}
HALF = {"rtol": 2e-2, "atol": 2e-2}
#: Results of these errors: other kinds would be failures by accident.
REFUSALS = NotImplementedError, TypeError, ValueError


# ---- a call of each function ---------------------------------------------------------


#: The first of the calls that are listed for each function: for tensors, or else those
#: of the definitions.
OF_TENSORS = {call.name: call for call in reversed(torch_calls.calls().values())}
OF_DEFINITIONS = {name: given for _, name, given in reversed(reference_calls.calls(2))}


def has_no_operand(name):
    return SUPPORTED[name].layouts == NONE


def arrays_of(name):
    """The arguments of a call as arrays."""
    if name == "rotary_from_config":  # in the form that the definition reads
        rope = {"rope_type": "default", "rope_theta": 100.0}
        return {"config": {"head_dim": 4, "rope_parameters": rope}}
    if has_no_operand(name):
        return GOOD[name]
    if name in OF_TENSORS:
        return {**OF_TENSORS[name].arrays, **OF_TENSORS[name].settings}
    return OF_DEFINITIONS[name]


def tensor_of(value):
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, list) and isinstance(value[0], int):  # edges of a graph
        return torch.tensor(value)
    return value


def tensors_of(name):
    return {key: tensor_of(value) for key, value in arrays_of(name).items()}


def operand_of(name, tensors):
    """The name of the operand that is changed: the first one of floats, or of any."""
    operands = {n: x for n, x in tensors.items() if isinstance(x, torch.Tensor)}
    floating = [n for n, x in operands.items() if x.is_floating_point()]
    return (floating or [*operands])[0]


def function_of(name, module=relpos.torch):
    """The function of one operand, and that operand."""
    tensors = tensors_of(name)
    chosen = operand_of(name, tensors)
    if SUPPORTED[name].backward == NO:  # of positions, which may be integers too
        tensors[chosen] = tensors[chosen].double()

    def call(operand):
        return parts(getattr(module, name)(**{**tensors, chosen: operand}))

    return call, tensors[chosen]


def parts(result):
    """The tensors or arrays of a result, those of a named tuple or a dict too."""
    if isinstance(result, tuple):
        return [part for part in result if part is not None]
    return [result]


def loss(function):
    """A number that depends on every entry of a result."""

    def total(operand):
        squares = [part.double().square() for part in function(operand)]
        weights = [torch.linspace(0.5, 1.5, x.numel()).view_as(x) for x in squares]
        return sum((x * w).sum() for x, w in zip(squares, weights, strict=True))

    return total


def as_array(x):
    return np.asarray(x.detach() if isinstance(x, torch.Tensor) else x)


def same(got, want, **tolerance):
    assert len(got) == len(want) > 0
    for one, other in zip(got, want, strict=True):
        one, other = (
            np.asarray(getattr(x, "detach", x.__array__)()) for x in (one, other)
        )
        assert one.shape == other.shape
        rounded = SINGLE if one.dtype == np.float32 else DOUBLE
        np.testing.assert_allclose(
            one.astype(np.float64), other.astype(np.float64), **(tolerance or rounded)
        )


def floats_to(tensors, dtype):
    """Convert floating tensors, but no positions to 16 bits: they would be others."""
    kept = POSITIONS if dtype.itemsize == 2 else ()
    return {
        name: x.to(dtype)
        if isinstance(x, torch.Tensor) and x.is_floating_point() and name not in kept
        else x
        for name, x in tensors.items()
    }


#: Operands that are positions, which bfloat16 would have rounded.
POSITIONS = ("positions", "coordinates")


# ---- what "yes" promises -------------------------------------------------------------


def compare_in(name, dtype, tolerance):
    given = floats_to(tensors_of(name), dtype)
    got = parts(getattr(relpos.torch, name)(**given))
    # the definition has the same rounded numbers, in float64
    want = parts(getattr(reference, name)(**floats_to(given, torch.float64)))
    # a result that has float32 whatever the dtype is compared as float32
    settled = got[0].dtype == torch.float32 and dtype == torch.float64
    same([x.double() for x in got], want, **(SINGLE if settled else tolerance))
    first = given[operand_of(name, given)]
    if SUPPORTED[name].backward == YES:  # others have a dtype of their own
        assert got[0].dtype == first.dtype == dtype


def wide(name):
    compare_in(name, torch.float64, DOUBLE)
    compare_in(name, torch.float32, SINGLE)


def short(name):
    for dtype in (torch.float16, torch.bfloat16):
        compare_in(name, dtype, HALF)


def layouts(name):
    call, operand = function_of(name)
    wide = torch.stack([operand, operand], -1)[..., 0]
    turned = operand.flatten().flip(0).clone().flip(0).view_as(operand)
    orders = [wide, turned, operand.mT.contiguous().mT if operand.dim() > 1 else wide]
    if operand.is_floating_point():
        negated = torch.complex(torch.zeros_like(operand), -operand).conj().imag
        assert negated.is_neg()
        orders.append(negated)
    definition, _ = function_of(name, reference)
    for given in orders:
        same(call(given), definition(operand))


def backward(name):
    function, operand = function_of(name)
    definition, _ = function_of(name, reference)
    found = []
    for call in (function, definition):
        leaf = operand.clone().requires_grad_()
        found.append(torch.autograd.grad(loss(call)(leaf), leaf))
    same(*found)


def forward_mode(name):
    function, operand = function_of(name)
    definition, _ = function_of(name, reference)
    direction = torch.ones_like(operand)
    found = [
        torch.func.jvp(loss(call), (operand,), (direction,))
        for call in (function, definition)
    ]
    same(*found)


def second_derivatives(name):
    function, operand = function_of(name)
    definition, _ = function_of(name, reference)

    def slope(call):
        leaf = operand.clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(call)(leaf), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)

    same(slope(function), slope(definition))


def vmap(name):
    call, operand = function_of(name)
    definition, _ = function_of(name, reference)
    other = operand * 0.5 if operand.is_floating_point() else operand // 2
    found = torch.vmap(lambda x: tuple(call(x)))(torch.stack([operand, other]))
    for at, item in enumerate((operand, other)):
        same([part[at] for part in found], definition(item))


class Module(torch.nn.Module):
    """A module of one function, which `torch.export` takes."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *operands):
        return self.call(*operands)


def as_program(name):
    """A function, what it is called with, and what the definition gives."""
    if not has_no_operand(name):
        call, operand = function_of(name)
        return call, operand, function_of(name, reference)[0](operand)
    # a program has to have an operand, and to compute with what the function returns
    given, function = arrays_of(name), getattr(relpos.torch, name)

    def added(x):
        return [x + part for part in parts(function(**given)) if part is not None]

    want = [np.asarray(part) + 1.0 for part in parts(getattr(reference, name)(**given))]
    return added, torch.ones((), dtype=torch.float64), want


def compile(name):
    call, operand, want = as_program(name)
    same(torch.compile(call, backend="aot_eager", fullgraph=True)(operand), want)


def export(name):
    call, operand, want = as_program(name)
    program = torch.export.export(Module(call), (operand,))
    same(program.module()(operand), want)


def nested(name):
    call, operand = function_of(name)
    rows = [torch.ones(2, 2), torch.ones(1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of a prototype
        given = torch.nested.nested_tensor(rows, dtype=operand.dtype)
    call(given)


# ---- the cells -----------------------------------------------------------------------


def check_refusal(name, column):
    """An error that names the function, or the argument that it does not take.

    A scheme is a call of `attention`, which may be named instead.
    """
    names = {name}
    if gradients_of(name) == "return_context":
        names.add("attention")
    if column == "nested":
        names = {f"{operand_of(name, tensors_of(name))}: got a nested tensor"}
    errors = REFUSALS
    if column == "compile":
        errors = (torch._dynamo.exc.Unsupported,)
    with pytest.raises(errors) as caught:
        globals()[column](name)
    words = str(caught.value)
    assert any(n in words for n in names), words


def is_refused_as_integers_only(name):
    """The operand of a function of integers may not be of floats."""
    call, operand = function_of(name)
    with pytest.raises(TypeError, match="expected int"):
        call(operand.double())


def test_every_function_with_a_namesake_has_a_row():
    shared = {*relpos.torch.__all__} & {*relpos.__all__}
    functions = {n for n in shared if not isinstance(getattr(relpos, n), type)}
    assert functions == SUPPORTED.keys()
    assert [*SUPPORTED] == sorted(SUPPORTED)


@NEEDS_WHOLE_GRAPH
@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", SUPPORTED)
def test_cells(name, column):
    cell = getattr(SUPPORTED[name], column)
    if cell == NO:
        check_refusal(name, column)
    elif cell != NONE:
        globals()[column](name)
    elif has_no_operand(name):
        assert not any(isinstance(x, np.ndarray) for x in arrays_of(name).values())
    else:
        is_refused_as_integers_only(name)
