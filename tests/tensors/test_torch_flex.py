"""flex_attention, and attention with score_mod, forward and backward.

The oracles are PyTorch's eager flex_attention, forward and for gradients of captured
tensors, and scaled_dot_product_attention with a dense bias for all gradients.
"""

from __future__ import annotations

import linecache
import math
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import NamedTuple

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from oracles.tolerances import TOLERANCES
from torch.nn.functional import scaled_dot_product_attention

import relpos.torch
from relpos.torch import flex_attention

B, H, LQ, LK, D = 2, 4, 37, 41, 8
AT = torch.arange(LQ)[:, None], torch.arange(LK)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Let PyTorch's function run as it is: it would compile its own call."""
    monkeypatch.setattr(
        flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False
    )


@pytest.fixture
def compiling(eager, monkeypatch):
    """Let PyTorch's function compile its call, without which it has no gradients."""
    monkeypatch.setattr(
        flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", False, raising=False
    )


def tensors(dtype=torch.float32, key_heads=H, seed=0, lengths=(LQ, LK)):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, lengths[0], D), (B, key_heads, lengths[1], D)
    sizes = shapes[0], shapes[1], shapes[1]
    return [torch.randn(s, generator=generator, dtype=dtype) for s in sizes]


def table(*shape, seed=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def error(found, wanted):
    """Return the norm of the difference over that of what is wanted."""
    found, wanted = found.double(), wanted.double()
    return ((found - wanted).norm() / wanted.norm()).item()


TABLE, BY_BATCH = table(H, LQ + LK), table(B)


def plain(score, b, h, i, j):
    return score


def by_distance(score, b, h, i, j):
    return score + TABLE[h, j - i + LQ]


def by_everything(score, b, h, i, j):
    return torch.tanh(score) * BY_BATCH[b] + TABLE[h, i] * TABLE[h, j] + (i - j) / 9


def hiding(score, b, h, i, j):
    return torch.where(j <= i + 3, score, -math.inf)


def of_scalars(score, b, h, i, j):
    # a scalar has no axes: broadcast arrays would give other numbers
    parts = torch.stack([score, score * 0.5 + i, (b + h).to(score.dtype)])
    return parts.sum() / parts.numel() + score.sum()


def as_flags(score, b, h, i, j):
    return j > i


def by_two_indices(score, b, h, i, j):
    return score + TABLE[h][j] * TABLE[:, 3][h] + TABLE[h, 2]


FUNCTIONS = [plain, by_distance, by_everything, hiding, of_scalars, by_two_indices]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_forward_is_that_of_pytorch(function, scale):
    query, key, value = tensors()
    out, lse = flex_attention(query, key, value, function, None, scale, False, True)
    aux = {"return_lse": True, "scale": scale}
    wanted_out, wanted_lse = flex.flex_attention(query, key, value, function, **aux)
    assert error(out, wanted_out) < TOLERANCES["forward"].float32
    assert error(lse, wanted_lse) < TOLERANCES["forward"].float32
    assert out.dtype == lse.dtype == torch.float32


def test_flags_become_scores():
    query, key, value = tensors()
    out = flex_attention(query, key, value, as_flags)
    weights = torch.softmax((AT[1] > AT[0]).float(), -1)
    assert error(out, weights @ value) < TOLERANCES["forward"].float32


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes(dtype):
    def function(score, b, h, i, j):
        assert score.dtype is dtype and score.dim() == 0
        assert {x.dtype for x in (b, h, i, j)} == {torch.int32}
        return score + (j - i) / 8

    query, key, value = tensors(dtype)
    out = flex_attention(query, key, value, function)
    exact = [x.double() for x in (query, key, value)]
    bias = ((AT[1] - AT[0]) / 8).double()
    wanted = scaled_dot_product_attention(*exact, attn_mask=bias)
    assert out.dtype is dtype
    # scores of 16 bits are rounded before and after the function, as its arguments are
    steps = {torch.float64: 1e-14, torch.float16: 3e-3, torch.bfloat16: 2e-2}
    assert error(out, wanted) < steps[dtype]


@pytest.mark.parametrize("key_heads", [1, 2])
def test_fewer_heads_of_keys(key_heads):
    query, key, value = tensors(key_heads=key_heads)
    out = flex_attention(query, key, value, by_everything, enable_gqa=True)
    wanted = flex.flex_attention(query, key, value, by_everything, enable_gqa=True)
    assert error(out, wanted) < TOLERANCES["forward"].float32
    with pytest.raises(ValueError, match="enable_gqa"):
        flex_attention(query, key, value, by_everything)


@pytest.mark.skipif(
    not hasattr(flex, "AuxRequest"), reason="this PyTorch names no results"
)
def test_results_that_pytorch_names():
    query, key, value = tensors()
    request = flex.AuxRequest(lse=True)
    out, aux = flex_attention(query, key, value, by_distance, return_aux=request)
    wanted = relpos.torch.attention(
        query, key, value, score_mod=by_distance, return_lse=True
    )
    assert isinstance(aux, flex.AuxOutput) and aux.max_scores is None
    assert torch.equal(out, wanted.out) and torch.equal(aux.lse, wanted.lse)
    assert wanted.weights is None
    aux = flex_attention(query, key, value, return_aux=flex.AuxRequest())[1]
    assert aux == flex.AuxOutput(None, None)
    with pytest.raises(ValueError, match="return_aux: got max_scores=True"):
        flex_attention(
            query, key, value, return_aux=flex.AuxRequest(lse=True, max_scores=True)
        )
    with pytest.raises(ValueError, match="return_lse: got True together with"):
        flex_attention(query, key, value, return_lse=True, return_aux=request)
    with pytest.raises(TypeError, match="return_aux: got bool"):
        flex_attention(query, key, value, return_aux=True)


def test_kernel_options_have_no_effect():
    query, key, value = tensors()
    out = flex_attention(query, key, value, plain, kernel_options={"BLOCK_M": 64})
    assert torch.equal(out, flex_attention(query, key, value, plain))


def test_no_function_is_plain_attention():
    query, key, value = tensors()
    out = flex_attention(query, key, value)
    assert torch.equal(out, relpos.torch.attention(query, key, value))


def test_several_blocks_and_any_strides():
    """Lengths beyond a block, of which the last one is short."""
    query, key, value = tensors(lengths=(300, 2100))
    query = query.transpose(1, 2).contiguous().transpose(1, 2)
    bias = table(2400)
    out = flex_attention(query, key, value, lambda s, b, h, i, j: s + bias[j - i + 299])
    at = torch.arange(300)[:, None], torch.arange(2100)
    dense = bias[at[1] - at[0] + 299]
    wanted = scaled_dot_product_attention(query, key, value, attn_mask=dense)
    assert error(out, wanted) < TOLERANCES["forward"].float32


def test_batch_axes_of_attention():
    """Batch items are counted one after the other, and three axes are one item."""
    query, key, value = tensors()
    by_item = table(6)

    def function(score, b, h, i, j):
        return score * by_item[b]

    wide = query.expand(3, B, H, LQ, D)
    out = relpos.torch.attention(wide, key, value, score_mod=function)
    wanted = torch.softmax(
        wide @ key.mT / math.sqrt(D) * by_item.view(3, B, 1, 1, 1), -1
    )
    assert error(out, wanted @ value) < TOLERANCES["forward"].float32
    one = relpos.torch.attention(query[0], key[0], value[0], score_mod=function)
    assert one.shape == (H, LQ, D)
    assert error(one, out[0, 0]) < TOLERANCES["forward"].float32


def test_no_queries_no_keys():
    query, key, value = tensors()
    assert flex_attention(query[:, :, :0], key, value, plain).shape == (B, H, 0, D)
    out, lse = flex_attention(
        query, key[:, :, :0], value[:, :, :0], plain, return_lse=True
    )
    assert not out.any() and (lse == -math.inf).all()
    assert flex_attention(query[:0], key[:0], value[:0], plain).shape == (0, H, LQ, D)


def test_values_without_numbers():
    query, key, value = tensors()
    query.requires_grad_()
    out, lse = flex_attention(query, key, value[..., :0], plain, return_lse=True)
    wanted = flex_attention(query, key, value, plain, return_lse=True)[1]
    assert out.shape == (B, H, LQ, 0) and torch.equal(lse, wanted)
    grads = [torch.autograd.grad(x.square().sum(), query)[0] for x in (lse, wanted)]
    assert torch.equal(*grads)


def test_rows_that_the_function_hides():
    query, key, value = [x.requires_grad_() for x in tensors()]

    def function(score, b, h, i, j):
        return torch.where(i < 5, -math.inf, score)

    out, lse = flex_attention(query, key, value, function, return_lse=True)
    assert not out[:, :, :5].any() and (lse[:, :, :5] == -math.inf).all()
    (out.square().sum() + lse[:, :, 5:].sum()).backward()
    assert not query.grad[:, :, :5].any()
    for x in (query, key, value):
        assert x.grad.isfinite().all() and x.grad.any()


def test_exponents_of_far_keys():
    """Weights that are no numbers of full precision are 0, and the rest is exact."""
    query, key, value = tensors()

    def far(score, b, h, i, j):
        return score - 30.0 * j

    out = flex_attention(query, key, value, far)
    exact = [x.double() for x in (query, key, value)]
    bias = (-30.0 * AT[1]).double().expand(LQ, LK)
    wanted = scaled_dot_product_attention(*exact, attn_mask=bias)
    assert error(out, wanted) < TOLERANCES["forward"].float32


# ---- gradients -----------------------------------------------------------------------


def gradients(call, *inputs):
    """Return gradients of a sum with fixed weights, by all inputs."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    out = call(*leaves)
    weights = table(*out.shape, seed=5).to(out.dtype)
    (out * weights).sum().backward()
    return [x.grad for x in leaves]


def check_gradients(call, dense, *inputs, limit=None):
    """Compare with gradients in float64."""
    limit = limit or TOLERANCES["gradient"].of("float32")
    wide = [x.double() for x in inputs]
    pairs = zip(gradients(call, *inputs), gradients(dense, *wide), strict=True)
    for found, wanted in pairs:
        assert error(found, wanted) < limit


@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_gradients_of_a_learned_bias(key_heads):
    def ours(query, key, value, bias):
        def function(score, b, h, i, j):
            return score + bias[h, j - i + LQ]

        return flex_attention(query, key, value, function, enable_gqa=True)

    def dense(query, key, value, bias):
        bias = bias[:, AT[1] - AT[0] + LQ]
        key, value = (x.repeat_interleave(H // key_heads, 1) for x in (key, value))
        return scaled_dot_product_attention(query, key, value, attn_mask=bias)

    check_gradients(ours, dense, *tensors(key_heads=key_heads), TABLE)


#: Ways to index a table (H, LQ + LK) by the head and the distance.
WAYS = {
    "negative indices": lambda bias, h, i, j: bias[h, j - i],
    "negative heads": lambda bias, h, i, j: bias[h - H, j - i + LQ],
    "another order of axes": lambda bias, h, i, j: bias.T[j - i + LQ, h],
    "one axis": lambda bias, h, i, j: bias.reshape(-1)[h * (LQ + LK) + j - i + LQ],
    "one element of a head": lambda bias, h, i, j: bias[h, 3] * (i - j).cos(),
    "an axis twice": lambda bias, h, i, j: bias[h, i] * bias[h, j],
}


@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_any_index(way):
    def ours(query, key, value, bias):
        def function(score, b, h, i, j):
            return score + WAYS[way](bias, h, i, j)

        return flex_attention(query, key, value, function)

    def dense(query, key, value, bias):
        mask = WAYS[way](bias, torch.arange(H)[:, None, None], *AT)
        mask = mask.expand(H, LQ, LK)
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    check_gradients(ours, dense, *tensors(), TABLE)


def test_sums_of_one_integer():
    """They are int64, in which the square of an index does not overflow."""

    def function(score, b, h, i, j):
        wide = (j + 60_000)[None].sum(0, keepdim=True)
        flag = (i > j)[None].sum(0, keepdim=True)
        return score + (wide * wide)[0] / 1e9 - (-flag)[0]

    query, key, value = tensors()
    wanted = flex.flex_attention(query, key, value, function)
    found = flex_attention(query, key, value, function)
    assert error(found, wanted) < TOLERANCES["forward"].float32


@pytest.mark.parametrize("index", [LQ + LK, -LQ - LK - 1])
def test_index_out_of_bounds(index):
    def function(score, b, h, i, j):
        return score + TABLE[h, torch.where(i + j == LQ + LK - 2, index, i)]

    with pytest.raises(IndexError, match=f"index {index} is out of bounds"):
        flex_attention(*tensors(), function)


def test_gradients_of_several_blocks():
    query, key, value = tensors(lengths=(300, 2100))
    at = torch.arange(300)[:, None], torch.arange(2100)

    def ours(query, key, value, bias):
        def function(score, b, h, i, j):
            return score + bias[h, j - i + 299]

        return flex_attention(query, key, value, function)

    def dense(query, key, value, bias):
        mask = bias[:, at[1] - at[0] + 299]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    check_gradients(ours, dense, query, key, value, table(H, 2400))


def test_gradients_through_the_score():
    def ours(query, key, value, slope, shift):
        def function(score, b, h, i, j):
            return 3 * torch.tanh(score * slope[h] + shift) + (i - j) * shift

        return flex_attention(query, key, value, function)

    def dense(query, key, value, slope, shift):
        scores = query @ key.mT / math.sqrt(D) * slope[:, None, None] + shift
        logits = 3 * torch.tanh(scores) + (AT[0] - AT[1]) * shift
        return torch.softmax(logits, -1) @ value

    check_gradients(ours, dense, *tensors(), table(H), table(1)[0] / 8)


def test_gradients_of_lse():
    def ours(query, key, value, bias):
        def function(score, b, h, i, j):
            return score + bias[h, j]

        out, lse = flex_attention(query, key, value, function, return_lse=True)
        return torch.cat([out, lse[..., None]], -1)

    def dense(query, key, value, bias):
        logits = query @ key.mT / math.sqrt(D) + bias[:, None]
        lse = logits.logsumexp(-1, keepdim=True)
        return torch.cat([torch.exp(logits - lse) @ value, lse], -1)

    check_gradients(ours, dense, *tensors(), table(H, LK))


def test_one_captured_tensor_is_made_from_another():
    """Each one is counted once, and what is made of both gets all of it."""

    def ours(query, key, value, bias):
        made = torch.exp(bias)

        def function(score, b, h, i, j):
            return score + bias[h, j] * made[h, i]

        return flex_attention(query, key, value, function)

    def dense(query, key, value, bias):
        made = torch.exp(bias)
        mask = bias[:, None, :LK] * made[:, :LQ, None]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    check_gradients(ours, dense, *tensors(), table(H, LQ + LK))


GLOBAL = table(H, LQ + LK, seed=7, dtype=torch.float64).requires_grad_()


def of_a_global(score, b, h, i, j):
    return score + GLOBAL[h, j - i + LQ]


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(1, 4), torch.nn.SiLU(), torch.nn.Linear(4, 1)
        )

    def forward(self, score, b, h, i, j):
        return score + self.layers((i - j).to(score.dtype)[None] / 40)[0]


def test_a_global_a_module_and_a_layer_output():
    query, key, value = tensors(torch.float64)
    network, layer = Network().double(), torch.nn.Linear(3, LK).double()
    inputs = table(H, 3, dtype=torch.float64)
    leaves = [*network.parameters(), *layer.parameters(), GLOBAL]

    def ours():
        made = layer(inputs)

        def function(score, b, h, i, j):
            return network(of_a_global(score, b, h, i, j), b, h, i, j) + made[h, j]

        return flex_attention(query, key, value, function)

    def dense():
        distances = (AT[0] - AT[1]).double()[..., None] / 40
        mask = network.layers(distances)[..., 0] + GLOBAL[:, AT[1] - AT[0] + LQ]
        mask = mask + layer(inputs)[:, None]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    found, wanted = (
        torch.autograd.grad((f() * table(B, H, LQ, D)).sum(), leaves)
        for f in (ours, dense)
    )
    for number, (own, other) in enumerate(zip(found, wanted, strict=True)):
        # the bias of the last layer moves all scores alike: its gradient is rounding
        if number == 3:
            assert own.norm() < 1e-12
        else:
            assert error(own, other) < 1e-12  # both are rounded


def test_gradients_of_captured_tensors_alone(compiling):
    query, key, value = tensors()
    bias = table(H, LQ + LK).requires_grad_()

    def function(score, b, h, i, j):
        return score + bias[h, j - i + LQ] * score

    found, wanted = (
        torch.autograd.grad(f(query, key, value, function).square().sum(), bias)[0]
        for f in (flex_attention, flex.flex_attention)
    )
    assert error(found, wanted) < TOLERANCES["gradient"].float32


def test_what_has_no_gradient_in_the_function():
    """Detached numbers, no_grad and an autograd.Function of its own count."""

    class Tenfold(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return 10 * grad

    query, key, value = [x.requires_grad_() for x in tensors()]
    bias = table(H, LK).requires_grad_()

    def function(score, b, h, i, j):
        with torch.no_grad():
            constant = bias[h, j]
        return Tenfold.apply(score) + constant + bias.detach()[h, j]

    flex_attention(query, key, value, function).square().sum().backward()
    assert not bias.grad.any()
    tenfold = query.grad
    query.grad = None
    mask = 2 * bias.detach()[:, None]
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    out.square().sum().backward()
    assert error(tenfold, 10 * query.grad) < TOLERANCES["gradient"].float32


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def test_captured_tensors_in_other_objects():
    """They are seen in tuples and lists; a subclass of list is refused."""

    class Tensors(list):
        pass

    def ours(query, key, value, first, second, kind=Pair):
        def function(score, b, h, i, j):
            pair = kind(first, second) if kind is Pair else kind([first, second])
            return score + torch.stack(pair)[1, h, j] + torch.stack([first])[0, h, j]

        return flex_attention(query, key, value, function)

    def dense(query, key, value, first, second):
        mask = (first + second)[:, None]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    inputs = [*tensors(), table(H, LK), table(H, LK, seed=2)]
    check_gradients(ours, dense, *inputs)
    with pytest.raises(ValueError, match="score_mod: computes with a captured tensor"):
        ours(*[x.requires_grad_() for x in inputs], kind=Tensors)


def test_function_that_is_not_traced():
    """A number of a captured tensor is none of the trace, and runs under vmap."""
    query, key, value = tensors()
    switch = torch.tensor(2)

    def call(query, key, value, bias):
        def function(score, b, h, i, j):
            return score + bias[h, j] * int(switch)

        return flex_attention(query, key, value, function)

    def dense(query, key, value, bias):
        mask = 2 * bias[:, None]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    check_gradients(call, dense, query, key, value, table(H, LK))


def test_function_that_changes_after_the_forward():
    """The backward is that of the function as it was called."""
    query, key, value = tensors()
    biases = [table(H, LK, seed=seed).requires_grad_() for seed in (1, 2)]
    outs = []
    for n in range(2):

        def function(score, b, h, i, j):
            return score + biases[n][h, j]  # noqa: B023 - n is read by each call

        outs.append(flex_attention(query, key, value, function))
    for out in outs:
        out.square().sum().backward()
    for bias in biases:
        mask = bias.detach()[:, None].requires_grad_()
        wanted = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        wanted.square().sum().backward()
        assert error(bias.grad, mask.grad[:, 0]) < TOLERANCES["gradient"].float32


def test_captured_tensor_that_was_changed():
    query, key, value = [x.requires_grad_() for x in tensors()]
    for bias in (table(H, LK).requires_grad_(), table(H, LK)):
        out = flex_attention(query, key, value, lambda s, b, h, i, j: s + bias[h, j])  # noqa: B023
        with torch.no_grad():
            bias += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_second_derivatives_are_refused():
    query, key, value = [x.requires_grad_() for x in tensors()]
    out = flex_attention(query, key, value, by_distance)
    (grad,) = torch.autograd.grad(out.sum(), query, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"relpos.torch.flex_attention"):
        grad.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_gradients_of_other_dtypes(dtype):
    def ours(query, key, value, bias):
        def function(score, b, h, i, j):
            return score + bias[h, j - i + LQ]

        return flex_attention(query, key, value, function)

    def dense(query, key, value, bias):
        mask = bias[:, AT[1] - AT[0] + LQ]
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)

    steps = {torch.float64: 1e-14, torch.float16: 5e-3, torch.bfloat16: 4e-2}
    inputs = [*tensors(dtype), TABLE.to(dtype)]
    found = gradients(ours, *inputs)
    assert {x.dtype for x in found} == {dtype}
    check_gradients(ours, dense, *inputs, limit=steps[dtype])


def test_texts_of_records_are_not_kept():
    """PyTorch keeps the text of each graph: a training would gather them."""
    query, key, value = [x.requires_grad_() for x in tensors()]
    flex_attention(query, key, value, by_distance).sum().backward()
    texts = torch.fx.graph_module._loader.eval_cache, linecache.cache
    before = [len(text) for text in texts]
    flex_attention(query, key, value, by_distance).sum().backward()
    assert [len(text) for text in texts] == before


def test_search_for_nan_in_the_backward():
    query, key, value = [x.requires_grad_() for x in tensors()]
    wanted = torch.autograd.grad(
        flex_attention(query, key, value, by_everything).sum(), query
    )
    with torch.autograd.set_detect_anomaly(True):
        out = flex_attention(query, key, value, by_everything)
        found = torch.autograd.grad(out.sum(), query)
    assert torch.equal(found[0], wanted[0])


def test_threads_that_record_at_once():
    """Each waits for the other one, so that neither of two records is inside."""
    query, key, value = tensors()
    methods = torch.nn.Module.__call__, torch.nn.Module.__getattr__
    begun, is_over = [Event(), Event()], Event()

    def first(score, b, h, i, j):
        begun[0].set()
        begun[1].wait(0.3)
        return score

    def second(score, b, h, i, j):
        begun[1].set()
        is_over.wait(0.3)
        return score

    def call_first():
        out = flex_attention(query, key, value, first)
        is_over.set()
        return out

    def call_second():
        begun[0].wait(10)
        return flex_attention(query, key, value, second)

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(call) for call in (call_first, call_second)]
    wanted = flex_attention(query, key, value, plain)
    assert all(torch.equal(result.result(), wanted) for result in results)
    assert methods == (torch.nn.Module.__call__, torch.nn.Module.__getattr__)


def test_checkpointing():
    query, key, value = [x.requires_grad_() for x in tensors()]
    bias = table(H, LK).requires_grad_()

    def call(query, key, value):
        return flex_attention(query, key, value, lambda s, b, h, i, j: s + bias[h, j])

    leaves = [query, key, value, bias]
    wanted = torch.autograd.grad(call(query, key, value).square().sum(), leaves)
    out = torch.utils.checkpoint.checkpoint(
        call, query, key, value, use_reentrant=False
    )
    for x, y in zip(
        torch.autograd.grad(out.square().sum(), leaves), wanted, strict=True
    ):
        assert torch.equal(x, y)


def test_compiled():
    """A call is a graph break, with the same numbers."""
    bias = table(H, LQ + LK).requires_grad_()

    def call(query, key, value):
        def function(score, b, h, i, j):
            return score + bias[h, j - i + LQ]

        return flex_attention(query * 2, key, value, function) * 3

    query, key, value = [x.requires_grad_() for x in tensors()]
    leaves = [query, key, value, bias]
    wanted = call(query, key, value)
    found = torch.compile(call, backend="aot_eager")(query, key, value)
    assert torch.equal(found, wanted)
    pairs = zip(
        torch.autograd.grad(found.square().sum(), leaves),
        torch.autograd.grad(wanted.square().sum(), leaves),
        strict=True,
    )
    for ours, theirs in pairs:
        assert torch.equal(ours, theirs)
