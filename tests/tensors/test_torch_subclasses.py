"""Subclasses of Tensor: translated, plain or refused, and all of them known."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pkgutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.masked import masked_tensor
from torch.nn.attention.bias import causal_upper_left
from torch.testing._internal.two_tensor import TwoTensor

import relpos.reference
import relpos.torch
from relpos._foreign import CAUSAL_BIAS, PLAIN, TENSOR_KINDS
from relpos.torch import nn
from relpos.torch._causal import as_causal_bias

DOUBLE = torch.float64


def expanded_weight():
    """A weight of PyTorch's gradients of single samples."""
    from torch.nn.utils._expanded_weights.expanded_weights_impl import ExpandedWeight

    return ExpandedWeight(torch.randn(2, 3, requires_grad=True), 2, "sum")


#: A tensor of each class that is refused.
REFUSED = {
    "CausalBias": lambda: causal_upper_left(3, 3),
    "ExpandedWeight": expanded_weight,
    "UninitializedParameter": torch.nn.UninitializedParameter,
    "UninitializedBuffer": torch.nn.UninitializedBuffer,
    "MaskedTensor": lambda: masked_tensor(torch.ones(3, 3), torch.ones(3, 3) > 0),
}
if hasattr(torch.utils.dlpack, "ReadOnlyTensorWrapper"):  # from PyTorch 2.14 on
    WRAPPER = torch.utils.dlpack.ReadOnlyTensorWrapper
    REFUSED["ReadOnlyTensorWrapper"] = lambda: WRAPPER(torch.ones(3, 3))
IGNORED = "ignore:The PyTorch API of MaskedTensors"
pytestmark = pytest.mark.filterwarnings(IGNORED)

#: PyTorch's own tests have subclasses that are not for use.
OF_TESTS = "torch.testing."


# ---- PyTorch's own -------------------------------------------------------------------


def subclasses_of(kind):
    for each in kind.__subclasses__():
        yield each
        yield from subclasses_of(each)


def load_all():
    """Import what can be imported of torch: classes are known once they are made."""
    for module in pkgutil.walk_packages(torch.__path__, "torch.", onerror=str):
        if module.name.startswith((OF_TESTS, "torch.utils.benchmark")):
            continue
        if module.name.endswith("__main__"):
            continue
        quiet, needs_more = io.StringIO(), contextlib.suppress(BaseException)
        with contextlib.redirect_stdout(quiet), needs_more:
            importlib.import_module(module.name)


def has_dispatch(kind):
    return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


CODE = """
import sys, warnings
sys.path.insert(0, {folder!r})
import test_torch_subclasses as own
from relpos._foreign import names_of
warnings.simplefilter("ignore")
own.load_all()
found = set(own.subclasses_of(own.torch.Tensor))
found = {{kind for kind in found if kind.__module__.startswith("torch.")}}
print("found", *(names_of(kind)[0] for kind in found if not own.has_dispatch(kind)))
"""


def test_each_of_pytorchs_is_on_the_list(child):
    """In a process of its own, since some of what it loads changes torch."""
    code = CODE.format(folder=str(Path(__file__).parent))
    line = next(x for x in child(code).stdout.splitlines() if x.startswith("found "))
    found = {name for name in line.split()[1:] if not name.startswith(OF_TESTS)}
    assert CAUSAL_BIAS in found and found <= TENSOR_KINDS.keys()
    missing = {name.rpartition(".")[2] for name in TENSOR_KINDS.keys() - found}
    has_a_dispatch, came_later = {"MaskedTensor"}, {"ReadOnlyTensorWrapper"}
    assert missing <= has_a_dispatch | came_later


def test_the_list_says_what_becomes_of_each():
    refused = {name for name, words in TENSOR_KINDS.items() if words != PLAIN}
    names = {name.rpartition(".")[2] for name in refused}
    assert names - {*REFUSED} <= {"ReadOnlyTensorWrapper"} and {*REFUSED} <= names


# ---- refused, wherever a tensor is taken ---------------------------------------------


def rows(*shape):
    return torch.ones(shape, dtype=DOUBLE)


WHOLE = torch.zeros(3, dtype=torch.int64)
RANGES = torch.tensor([[0, 1], [0, 2], [0, 3]])
TOKENS = {"query": rows(1, 3, 4), "key": rows(1, 3, 4), "value": rows(1, 3, 4)}
NETWORK = {"w1": rows(2), "b1": rows(2), "w2": rows(1, 2), "b2": rows(1)}
NETWORK |= {"c": rows(), "threshold": rows()}
#: A valid call of each function, with every argument that may be a tensor.
CALLS = {
    "attention": TOKENS
    | {
        "attn_mask": torch.ones(3, 3, dtype=torch.bool),
        "query_offset": torch.tensor(0),
        "rel_key": rows(5, 4),
        "rel_query": rows(5, 4),
        "rel_value": rows(5, 4),
        "rel_bias": rows(5),
        "pos_bias_u": rows(4),
        "pos_bias_v": rows(4),
        "buckets": torch.arange(5),
        "position_query": rows(1, 3, 4),
        "sinks": rows(1),
        "log_decay": rows(1, 3),
        "key_ranges": RANGES,
        "key_lengths": torch.tensor(3),
    },
    "flex_attention": {name: x[None] for name, x in TOKENS.items()}
    | {"score_mod": lambda score, b, h, q_idx, kv_idx: score},
    "shaw_attention": TOKENS | {"rel_key": rows(5, 4), "rel_value": rows(5, 4)},
    "relative_global_attention": TOKENS | {"rel_key": rows(3, 4)},
    "transformer_xl_attention": TOKENS
    | {"rel_key": rows(5, 4), "pos_bias_u": rows(4), "pos_bias_v": rows(4)},
    "fire_attention": TOKENS | NETWORK,
    "graph_attention": TOKENS
    | {"edges": torch.zeros(2, 1, dtype=torch.int64), "labels": WHOLE[:1]}
    | {"rel_key": rows(5, 4), "rel_value": rows(5, 4), "sinks": rows(1)}
    | {"position_query": rows(1, 3, 4)},
    "indexer_top_k": {"query": rows(1, 3, 4), "key": rows(3, 4), "weights": rows(1, 3)}
    | {"k": 2, "query_offset": torch.tensor(0), "key_lengths": torch.tensor(3)}
    | {"key_ranges": RANGES, "attn_mask": rows(3, 3)},
    "merge_attention": {
        "out_a": rows(3, 4),
        "lse_a": rows(3),
        "out_b": rows(3, 4),
        "lse_b": rows(3),
    },
    "alibi_bias": {"num_heads_or_slopes": rows(2), "length": 3},
    "kerple_bias": {"r1": rows(2), "r2": rows(2), "length": 3},
    "fire_bias": NETWORK | {"query_length": 3},
    "t5_bias": {"weight": rows(8, 2), "length": 3},
    "t5_bucket": {"relative_position": WHOLE},
    "deberta_bucket": {"relative_position": WHOLE, "bucket_size": 8}
    | {"max_position": 16},
    "segment_ranges": {"query_segments": WHOLE, "key_segments": WHOLE},
    "sinusoidal": {"positions": WHOLE, "dim": 4, "inv_freq": rows(2)},
    "learned": {"table": rows(3, 4), "positions": WHOLE},
    "conv_encoding": {"x": rows(3, 4), "weight": rows(4, 3), "bias": rows(4)}
    | {"mask": torch.ones(3, dtype=torch.bool)},
    "apply_rotary": {"x": rows(3, 4), "positions": WHOLE, "inv_freq": rows(2)}
    | {"magnitude": rows(3, 2)},
    "xpos_magnitude": {"positions": WHOLE, "dim": 4},
    "mrope_angles": {"positions": WHOLE.expand(3, 3), "inv_freq": rows(2)}
    | {"sections": (1, 1, 0)},
    "axial_angles": {"coordinates": rows(3, 2), "inv_freq": rows(2)},
    "skew": {"x": rows(3, 4), "is_causal": True},
    "rel_shift": {"x": rows(3, 4)},
    "scores": {"query": rows(1, 3, 4), "key": rows(1, 3, 4), "rel_key": rows(3, 4)},
}
#: What else the public functions are.
WITHOUT = {"alibi_slopes", "grid_labels", "rotary_frequencies"}  # take no tensors
WITHOUT |= {"register", "relative_positions", "replace_attention"}
WITHOUT |= {"rotary_from_config", "sinusoidal_shift_matrix"}
WITHOUT |= {"attention_interface"}  # needs transformers, and calls attention

ARGUMENTS = [
    (function, name)
    for function, values in CALLS.items()
    for name, value in values.items()
    if isinstance(value, torch.Tensor)
]


def call(function, **changed):
    return getattr(relpos.torch, function)(**CALLS[function] | changed)


def test_every_function_is_tried():
    functions = {
        n for n in relpos.torch.__all__ if inspect.isfunction(vars(relpos.torch)[n])
    }
    takes_tensors = {
        name
        for name in functions - WITHOUT
        if "Tensor" in str(inspect.signature(getattr(relpos.torch, name)))
    }
    assert takes_tensors <= CALLS.keys()
    for function in CALLS:
        call(function)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize(("function", "name"), ARGUMENTS)
def test_a_tensor_without_numbers_is_refused_by_name(function, name, kind):
    tensor = REFUSED[kind]()
    if as_causal_bias(tensor) is not None and name == "attn_mask":
        # which does not know any more what it is
        tensor = torch.Tensor._make_subclass(type(tensor), torch.ones(3, 3))
    words = rf"^{name}: got an? {kind}"
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(TypeError, match=words):
            call(function, **{name: tensor})


@pytest.mark.parametrize("function", ["attention", "apply_rotary", "t5_bias"])
def test_it_is_refused_in_a_compiled_program_too(function):
    name = next(iter(CALLS[function]))

    def traced(tensor):
        return call(function, **{name: tensor})

    for kind in ("CausalBias", "MaskedTensor"):
        torch.compiler.reset()
        with pytest.raises(Exception, match=f"{name}: got a {kind}"):
            torch.compile(traced, backend="eager")(REFUSED[kind]())


def test_labels_are_looked_at_one_by_one():
    labels = torch.zeros(3, 3, dtype=torch.int64)
    wrong = labels, causal_upper_left(3, 3)
    keywords = {"rel_key": rows(5, 4)}
    for given in (wrong[1], wrong):
        with pytest.raises(TypeError, match=r"^labels(\[1\])?: got a CausalBias"):
            relpos.torch.attention(**TOKENS, **keywords, labels=given)


def test_layers_refuse_it():
    bias = causal_upper_left(3, 4)
    layers = {
        "query": nn.ShawAttention(4, 1, 2),
        "x": nn.RelativeGlobalAttention(4, 1, max_len=8),
    }
    for name, layer in layers.items():
        with pytest.raises(TypeError, match=rf"^{name}: got a CausalBias; expected"):
            layer(bias)
    with pytest.raises(TypeError, match=r"^hidden: got a CausalBias; expected"):
        nn.update_memory(None, bias, 3)


@pytest.mark.parametrize("kind", ["CausalBias", "MaskedTensor"])
def test_definitions_refuse_it(kind):
    tensor = REFUSED[kind]()
    for tokens in (TOKENS, {n: x.numpy() for n, x in TOKENS.items()}):
        for name in ("attn_mask", "rel_key", "key_lengths", "query"):
            with pytest.raises(TypeError, match=rf"^{name}: got a {kind}; expected"):
                relpos.reference.attention(**tokens | {name: tensor})
        with pytest.raises(TypeError, match=rf"got a {kind}; expected"):
            relpos.reference.shaw_attention(**tokens, attn_mask=tensor)
        with pytest.raises(TypeError, match=rf"got a {kind}; expected"):
            relpos.reference.shaw_attention(**tokens, rel_key=tensor)
    for function in (relpos.reference.apply_rotary, relpos.reference.t5_bucket):
        with pytest.raises(TypeError, match=rf"got a {kind}; expected"):
            function(tensor)


def cache_calls():
    """Return what a cache does with a tensor, by the name of its argument."""
    rows, cache = torch.ones(1, 3, 4, 4), relpos.torch.KVCache()
    cache.append(rows, rows)
    return {
        "key": lambda x: cache.append(x, rows),
        "value": lambda x: cache.append(rows, x),
        "lengths": lambda x: cache.append(rows, rows, lengths=x),
        "length": cache.crop,
        "items": cache.reorder,
        "rows": cache.positions,
        "query": cache.arguments,
    }


NESTED = {
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "tensor of layout": lambda: torch.ones(1, 3, 4, 4).to_sparse(),
    "quantized tensor": lambda: torch.quantize_per_tensor(
        torch.ones(1, 3, 4, 4), 0.1, 0, torch.qint8
    ),
}


@pytest.mark.parametrize("kind", [*REFUSED, *NESTED])
@pytest.mark.parametrize("name", cache_calls())
def test_a_cache_refuses_it(name, kind):
    with pytest.raises(TypeError, match=rf"^{name}: got an? {kind}"):
        cache_calls()[name]((REFUSED | NESTED)[kind]())


def test_a_cache_refuses_integers_that_are_a_mask():
    ones = torch.ones(1, dtype=torch.int64)
    mask = torch.Tensor._make_subclass(type(causal_upper_left(3, 3)), ones)
    for name in ("lengths", "length", "items"):
        with pytest.raises(TypeError, match=rf"^{name}: got a CausalBias"):
            cache_calls()[name](mask)


@pytest.mark.parametrize("kind", [*REFUSED, *NESTED])
def test_a_state_refuses_it(kind):
    tensor = (REFUSED | NESTED)[kind]()
    layer = relpos.nn.ShawAttention(4, 1, 2)
    name, *_ = state = layer.state_dict()
    with pytest.raises(TypeError, match=rf"^{name}: got an? {kind}"):
        layer.load_state_dict(state | {name: tensor})


@pytest.mark.parametrize("kind", [*REFUSED, *NESTED])
def test_a_diagnosis_refuses_it(kind):
    tensor = (REFUSED | NESTED)[kind]()
    tokens = {n: x.numpy() for n, x in TOKENS.items()}
    with pytest.raises(TypeError, match=rf"^attn_mask: got an? {kind}"):
        relpos.diagnose(tokens["query"], **tokens, attn_mask=tensor)


def test_a_state_may_be_negated_lazily():
    layer = relpos.nn.ShawAttention(4, 1, 2)
    name, *_ = state = layer.state_dict()
    negated = torch.randn(4, 4, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    layer.load_state_dict(state | {name: negated})
    assert np.array_equal(layer.state_dict()[name], negated.resolve_neg())


# ---- plain ---------------------------------------------------------------------------


class Bare(torch.Tensor):
    """A user's subclass."""


class Meta(torch.Tensor):
    """One that carries what is known of an image, as MONAI's MetaTensor does."""

    @staticmethod
    def __new__(cls, x, meta=None):
        return torch.as_tensor(x).as_subclass(cls)

    def __init__(self, x, meta=None):
        self.meta = meta

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        found = super().__torch_function__(function, types, args, kwargs or {})
        metas = [x.meta for x in args if isinstance(x, Meta) and hasattr(x, "meta")]
        if isinstance(found, Meta):
            found.meta = metas[0] if metas else None
        return found


def plain(tensor):
    return None if tensor is None else tensor.as_subclass(torch.Tensor)


def learn(function, inputs, make):
    leaves = {n: x.clone().requires_grad_() for n, x in inputs.items()}
    out = function(**{n: make(x) for n, x in leaves.items()})
    plain(out).sin().sum().backward()
    return out, [plain(x.grad) for x in leaves.values()]


@pytest.mark.parametrize("make", [Bare, Meta, torch.nn.Buffer], ids=str)
@pytest.mark.parametrize("function", ["attention", "fire_attention", "apply_rotary"])
def test_a_users_subclass_is_plain(function, make):
    generator = torch.Generator().manual_seed(0)
    inputs = {
        name: torch.randn(x.shape, dtype=DOUBLE, generator=generator)
        for name, x in CALLS[function].items()
        if x.is_floating_point() and name not in ("magnitude", "log_decay")
    }
    turned = getattr(relpos.torch, function)
    cast = (lambda x: x.as_subclass(make)) if make is Bare else make
    want, got = learn(turned, inputs, lambda x: x), learn(turned, inputs, cast)
    if make is not torch.nn.Buffer:
        kind = type(torch.nn.functional.softmax(cast(inputs[next(iter(inputs))]), -1))
        assert type(got[0]) is kind is make  # as of a function of PyTorch
        assert torch.equal(plain(got[0]), want[0])
        for one, other in zip(got[1], want[1], strict=True):
            assert torch.equal(one, other)


def test_a_users_subclass_as_a_mask_is_plain():
    mask = torch.tensor([[0.5, -torch.inf, 0.25]] * 3, dtype=DOUBLE)
    want = relpos.torch.attention(**TOKENS, attn_mask=mask)
    for kind in (Bare, Meta):
        got = relpos.torch.attention(**TOKENS, attn_mask=mask.as_subclass(kind))
        assert torch.equal(plain(got), want)


# ---- of a dispatch of its own --------------------------------------------------------


def test_one_with_a_dispatch_gives_results_of_its_kind():
    pairs = {n: TwoTensor(x, x * 2) for n, x in TOKENS.items()}
    out = relpos.torch.attention(**pairs)
    assert type(out) is TwoTensor
    assert torch.equal(out.a, relpos.torch.attention(**TOKENS))
    doubled = {n: x * 2 for n, x in TOKENS.items()}
    assert torch.equal(out.b, relpos.torch.attention(**doubled))


def test_a_functional_tensor_gives_results_of_its_kind():
    with FunctionalTensorMode():
        query = FunctionalTensor.to_functional(TOKENS["query"])
        tokens = TOKENS | {"query": query}
        found = relpos.torch.attention(**tokens), relpos.torch.apply_rotary(query)
        assert all(type(x) is FunctionalTensor for x in found)
        found = [torch._from_functional_tensor(x.elem) for x in found]
    want = relpos.torch.attention(**TOKENS), relpos.torch.apply_rotary(TOKENS["query"])
    assert all(map(torch.equal, found, want))


# ---- DLPack --------------------------------------------------------------------------


class Producer:
    """A tensor that speaks DLPack, and no class of PyTorch's."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (rows(1, 3, 4).bfloat16(), r"\(Unsupported dtype in DLTensor\)"),
        (rows(1, 3, 4).requires_grad_(), r"\(Can't export tensors that require grad"),
        (rows(1, 3, 4).to_sparse(), r"\(Can't export tensors with layout other than"),
    ],
    ids=["bfloat16", "gradient", "sparse"],
)
def test_dlpack_says_why_it_is_refused(tensor, reason):
    x = TOKENS["key"].numpy()
    words = rf"^query: got a Producer that DLPack does not export to NumPy {reason}"
    with pytest.raises(TypeError, match=words):
        relpos.attention(Producer(tensor), x, x)
    with pytest.raises(TypeError, match=words.replace("query", "x")):
        relpos.apply_rotary(Producer(tensor))
    wanted = relpos.attention(x, x, x)
    assert np.array_equal(relpos.attention(Producer(TOKENS["query"]), x, x), wanted)
