"""The formulas that stand for operators in programs of ONNX, and who uses them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from inductor import NEEDS_COMPILER, compile_afresh  # noqa: F401
from torch.export import Dim
from torch_attention import CALLS, tensors_of
from torch_calls import calls

import relpos
import relpos.torch
from relpos.torch import _onnx, _onnx_functions
from relpos.torch._onnx import FORMULAS, REASON

# copies of exported programs raise it in PyTorch's own modules
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

FUNCTIONS = calls()
REFUSED = {"graph", "sparse graph", "dropout"}


def operator_of(name):
    return getattr(torch.ops.relpos, name).default


def test_every_operator_has_a_formula():
    names = {
        name
        for name in dir(torch.ops.relpos)
        if isinstance(getattr(torch.ops.relpos, name), torch._ops.OpOverloadPacket)
        and not name.endswith("_backward")
    }
    assert not REASON
    assert names == FORMULAS.keys()


def calls_of(name, function, *args, **keywords):
    """Return the arguments that the operator of a name receives, of a traced call."""
    seen = []

    class Keep(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), keywords=None):
            if operator is operator_of(name):
                seen.append(args)
            return operator(*args, **(keywords or {}))

    with Keep(), torch.no_grad():
        function(*args, **keywords)
    return seen


def near(got, want, limit):
    assert got.shape == want.shape and got.dtype == want.dtype
    if not want.is_floating_point():
        assert torch.equal(got, want)
        return
    finite = want.isfinite()
    assert torch.equal(got[~finite].nan_to_num(1.0), want[~finite].nan_to_num(1.0))
    largest = want[finite].abs().amax() if finite.any() else 0.0
    assert (got[finite] - want[finite]).abs().le(limit * largest).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("label", sorted(CALLS.keys() - REFUSED))
def test_attention_is_the_operator(label, dtype):
    call = CALLS[label]
    function = getattr(relpos.torch, call.function)
    tensors = tensors_of(call.inputs, dtype) | tensors_of(call.others)
    (args,) = calls_of("attention", function, **tensors, return_lse=True)
    wanted, found = operator_of("attention")(*args), FORMULAS["attention"](*args)
    limit = 1e-12 if dtype is torch.float64 else 1e-5
    for got, want in zip(found, wanted, strict=True):
        near(got, want, limit)


@pytest.mark.parametrize("hides", ["bool", "float"])
def test_a_row_without_keys(hides):
    query = torch.randn(2, 3, 4, dtype=torch.float64)
    mask = torch.tensor([[True, False, True], [False] * 3, [True] * 3])
    if hides == "float":
        mask = torch.zeros(3, 3).masked_fill(~mask, -torch.inf)
    for sinks in (None, torch.ones(2, dtype=torch.float64)):
        (args,) = calls_of(
            "attention",
            relpos.torch.attention,
            query,
            query,
            query,
            attn_mask=mask,
            sinks=sinks,
            softcap=1.5,
            return_weights=True,
        )
        wanted, found = operator_of("attention")(*args), FORMULAS["attention"](*args)
        for got, want in zip(found, wanted, strict=True):
            near(got, want, 1e-12)


def check_formula(*tensors, **keywords):
    """Compare out and lse of the formula with those of the operator."""
    (args,) = calls_of("attention", relpos.torch.attention, *tensors, **keywords)
    wanted, found = operator_of("attention")(*args), FORMULAS["attention"](*args)
    for got, want in zip(found[:2], wanted[:2], strict=True):
        near(got, want, 1e-12 if want.dtype is torch.float64 else 1e-5)
        assert got.isnan().equal(want.isnan())


@pytest.mark.parametrize("of_mask", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_least_number_of_a_mask_is_a_number(dtype, of_mask):
    x = torch.randn(2, 3, 4, dtype=dtype)
    mask = torch.zeros(3, 3, dtype=of_mask)
    mask[1] = torch.finfo(of_mask).min
    mask[2, 1] = -torch.inf
    bias = torch.full((5,), torch.finfo(dtype).min, dtype=dtype)
    check_formula(x, x, x, attn_mask=mask)
    check_formula(x, x, x, attn_mask=mask, rel_bias=bias)


@pytest.mark.parametrize("hides", ["bool", "float", "bias", "key_lengths"])
def test_values_that_no_query_sees_may_be_nan(hides):
    x = torch.randn(2, 3, 4)
    value, seen = x.clone(), torch.tensor([True, True, False])
    value[:, 2] = torch.nan
    mask = torch.zeros(3).masked_fill(~seen, -torch.inf)
    keywords = {
        "bool": {"attn_mask": seen},
        "float": {"attn_mask": mask},
        "bias": {"labels": torch.tensor([[0, 0, 1]]), "rel_bias": mask[1:]},
        "key_lengths": {"key_lengths": 2},
    }
    check_formula(x, value, value, **keywords[hides])


def test_attention_without_keys_or_columns():
    x = torch.randn(2, 3, 4)
    check_formula(x, x[:, :0], x[:, :0])
    check_formula(x, x[:, :0], x[:, :0], sinks=torch.randn(2), attn_mask=x[0, :, :0])
    check_formula(x[..., :0], x[..., :0], x, scale=1.0)


@pytest.mark.parametrize("value", [0.0, 1 / 3, -1e-30, 1e60, 5e-324, 1.79e308])
def test_numbers_are_products_of_numbers_of_float32(value):
    seen = []

    class Keep(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), keywords=None):
            seen.extend(x for x in args if isinstance(x, float))
            return operator(*args, **(keywords or {}))

    with Keep():
        found = _onnx_functions.number(value, torch.zeros(()))
    assert found.item() == value
    assert all(float(np.float32(x)) == x for x in seen)


@pytest.mark.parametrize("label", FUNCTIONS)
def test_functions_are_the_operators(label):
    call = FUNCTIONS[label]
    function = getattr(relpos.torch, call.name)
    tensors = call.tensors(torch.float32, grad=False)
    (args,) = calls_of(call.name, function, **tensors, **call.settings)
    near(FORMULAS[call.name](*args), operator_of(call.name)(*args), 2e-6)


def test_buckets_are_exact():
    far = np.concatenate([np.arange(-20_000, 20_000), 2 ** np.arange(15, 40)])
    positions = torch.from_numpy(far)
    for both in (True, False):
        for count, last in ((4, 20), (32, 128), (33, 1000), (320, 800), (4096, 2**20)):
            want = relpos.t5_bucket(
                far, bidirectional=both, num_buckets=count, max_distance=last
            )
            got = FORMULAS["t5_bucket"](positions, both, count, last)
            np.testing.assert_array_equal(got.numpy(), want)
    for size, last in ((4, 16), (10, 100), (31, 1024), (256, 512), (512, 4096)):
        want = relpos.deberta_bucket(far, bucket_size=size, max_position=last)
        got = FORMULAS["deberta_bucket"](positions, size, last)
        np.testing.assert_array_equal(got.numpy(), want)


def test_what_the_operator_refuses_is_nan():
    x, table = torch.randn(1, 5, 4), torch.randn(3, 4)  # relative positions -2, -1, 0

    def call(x):
        return relpos.torch.relative_global_attention(x, x, x, table)

    (args,) = calls_of("attention", call, x[:, :3])
    assert FORMULAS["attention"](*args)[0].isfinite().all()
    args = ([*[x] * 3, args[0][3]], *args[1:])
    with pytest.raises(IndexError, match="rel_key"):
        operator_of("attention")(*args)
    out = FORMULAS["attention"](*args)[0]
    assert out[:, :3].isfinite().all() and out[:, 3:].isnan().all()


class Model(torch.nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.rel_key = torch.nn.Parameter(torch.randn(5, 4))
        self.settings = settings

    def forward(self, x):
        x = relpos.torch.apply_rotary(x)
        return relpos.torch.attention(x, x, x, rel_key=self.rel_key, **self.settings)


def names_of(program):
    return {str(node.target) for node in program.graph.nodes}


@pytest.mark.parametrize("shapes", [None, ({1: Dim("length")},)])
def test_export_keeps_the_operators(shapes):
    x = torch.randn(2, 6, 4)
    program = torch.export.export(Model(), (x,), dynamic_shapes=shapes)
    kept = {"relpos.attention.default", "relpos.apply_rotary.default"}
    assert kept <= names_of(program)
    assert kept <= names_of(program.run_decompositions())


def test_a_table_of_a_program_may_have_the_formulas():
    model, x = Model(), torch.randn(2, 6, 4)
    program = torch.export.export(model, (x,), dynamic_shapes=({1: Dim("length")},))
    table = {operator_of(name): formula for name, formula in FORMULAS.items()}
    plain = program.run_decompositions(table)
    assert not any("relpos" in name for name in names_of(plain))
    for length in (2, 9):
        x = torch.randn(2, length, 4)
        near(plain.module()(x), model(x).detach(), 1e-6)


@NEEDS_COMPILER
@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_keeps_the_operators(dynamic, monkeypatch):
    # under this name inductor refuses operators that PyTorch's table decomposes
    monkeypatch.setenv("CI", "true")
    # another number in each run, or a program that is kept on disk would do
    model = Model(scale=random.uniform(0.1, 1.0))
    compiled = torch.compile(model, dynamic=dynamic, fullgraph=True)
    for length in (6, 9):
        x = torch.randn(2, length, 4)
        assert torch.equal(compiled(x), model(x))


def test_a_compiled_graph_of_any_length_is_not_decomposed():
    def call(x, edges):
        return relpos.torch.graph_attention(x, x, x, edges=edges)

    x, edges = torch.randn(1, 6, 4), torch.tensor([[0, 2, 2], [0, 0, 2]])
    compiled = torch.compile(call, dynamic=True, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, edges), call(x, edges))


class Graph(torch.nn.Module):
    def forward(self, x, edges):
        return relpos.torch.graph_attention(x, x, x, edges=edges)


def test_formulas_refuse_graphs_and_dropout():
    x, edges = torch.randn(1, 6, 4), torch.tensor([[0, 2, 2], [0, 0, 2]])
    (args,) = calls_of("attention", Graph(), x, edges)
    with pytest.raises(NotImplementedError, match=r"graph_attention: ONNX has no form"):
        FORMULAS["attention"](*args)
    (args,) = calls_of("attention", Model(dropout_p=0.5), x)
    with pytest.raises(
        NotImplementedError, match=r"attention: ONNX has no form of dropout"
    ):
        FORMULAS["attention"](*args)


def test_a_pytorch_without_the_names_is_refused(monkeypatch):
    monkeypatch.setattr(_onnx, "REASON", "cannot import name 'ProxyTorchDispatchMode'")
    assert torch.export.export(Model(), (torch.randn(2, 6, 4),))
    monkeypatch.setattr(_onnx, "is_exported", lambda: True)
    with pytest.raises(NotImplementedError, match=r"apply_rotary: is not exported"):
        torch.export.export(Model(), (torch.randn(2, 6, 4),))
