"""PyTorch's CausalBias as a mask: never read as numbers, always what it says."""

from __future__ import annotations

import inspect

import pytest
import torch
from multihead import SIZES, E, H as HEADS, N as ITEMS, draw, of_position
from torch.nn import functional
from torch.nn.attention.bias import CausalBias, causal_lower_right, causal_upper_left

import relpos.torch
from relpos.torch import nn

B, H, D = 2, 3, 4
SHAPES = (4, 4), (3, 7), (1, 6), (6, 3)
DOUBLE = torch.float64
MAKERS = {"upper left": causal_upper_left, "lower right": causal_lower_right}

pytestmark = [
    pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs"),
    pytest.mark.parametrize("side", MAKERS),
]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
two_shapes = pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
more_keys = pytest.mark.parametrize("shape", SHAPES[:3], ids=str)


def is_opaque():
    """Tell whether this PyTorch refuses every function of a CausalBias but one."""
    try:
        causal_upper_left(2, 2).dim()
    except NotImplementedError:  # PyTorch 2.6
        return True
    return False


taken_by_others = pytest.mark.skipif(
    is_opaque(), reason="this PyTorch takes a CausalBias in its own attention alone"
)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=DOUBLE, generator=generator)


def shift_of(side, shape):
    return 0 if side == "upper left" else shape[1] - shape[0]


def pairs_of(side, shape):
    """Return the pairs that are visible, one by one: True = may attend."""
    shift = shift_of(side, shape)
    seen = [[j <= i + shift for j in range(shape[1])] for i in range(shape[0])]
    return torch.tensor(seen)


def bias_of(side, shape):
    """The mask, over memory that would be noticed if it were read."""
    bias = MAKERS[side](*shape)
    torch.Tensor.as_subclass(bias, torch.Tensor).fill_(torch.nan)
    return bias


def parameters_of(name, lq, lk):
    """Return what a function takes next to query, key and value."""
    many = lq + lk  # rows for every relative position, at any offset of these tests
    if name == "attention":
        return {"rel_bias": drawn(H, 4 * many + 1, seed=5)}
    if name == "shaw_attention":
        return {"rel_key": drawn(5, D, seed=5), "rel_value": drawn(5, D, seed=6)}
    if name == "relative_global_attention":
        rows = {"min_relative_position": -2 * many}
        return {"rel_key": drawn(4 * many + 1, D, seed=5), **rows}
    if name == "transformer_xl_attention":
        rows = {"min_relative_position": -2 * many}
        vectors = {n: drawn(D, seed=6) for n in ("pos_bias_u", "pos_bias_v")}
        return {"rel_key": drawn(4 * many + 1, D, seed=5), **rows, **vectors}
    assert name == "fire_attention"
    shapes = {"w1": (3,), "b1": (3,), "w2": (H, 3), "b2": (H,)}
    network = {n: drawn(*s, seed=k) for k, (n, s) in enumerate(shapes.items())}
    numbers = {"c": torch.tensor(0.3), "threshold": torch.tensor(2.0)}
    return network | {n: x.to(DOUBLE) for n, x in numbers.items()}


#: Functions that have values, too; scores are in test_torch_public_names.py.
FUNCTIONS = [
    name
    for name in relpos.torch.__all__
    if {"attn_mask", "value"}
    <= {*inspect.signature(getattr(relpos.torch, name)).parameters}
]


def inputs_of(name, shape):
    lq, lk = shape
    tokens = {"query": drawn(B, H, lq, D, seed=1), "key": drawn(B, H, lk, D, seed=2)}
    return {
        **tokens,
        "value": drawn(B, H, lk, D, seed=3),
        **parameters_of(name, *shape),
    }


def results(name, inputs, **keywords):
    """The result and the gradients of all tensors; all of them plain."""
    own = {
        n: x.clone().requires_grad_() if isinstance(x, torch.Tensor) else x
        for n, x in inputs.items()
    }
    function = keywords.pop("by", getattr(relpos.torch, name))
    out = function(**own, **keywords)
    assert type(out) is torch.Tensor
    (
        out * torch.linspace(-1, 1, out.numel(), dtype=DOUBLE).view_as(out)
    ).sum().backward()
    grads = {n: x.grad for n, x in own.items() if isinstance(x, torch.Tensor)}
    return out.detach(), grads


def near(got, want):
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def own_offset(name, side, shape):
    """Return the position of query 0 if the call does not say it."""
    if name == "transformer_xl_attention":  # at its default, whatever is hidden
        return shape[1] - shape[0]
    return shift_of(side, shape)


@each_shape
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_hides_what_it_says(name, shape, side):
    inputs = inputs_of(name, shape)
    own = {"query_offset": own_offset(name, side, shape), "is_causal": False}
    want = results(name, inputs, attn_mask=pairs_of(side, shape), **own)
    near(results(name, inputs, attn_mask=bias_of(side, shape)), want)
    with torch.no_grad():
        out = getattr(relpos.torch, name)(**inputs, attn_mask=bias_of(side, shape))
    near(out, want[0])


@each_shape
@pytest.mark.parametrize("offset", [-2, 0, 1, 4, "items"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_offset_that_is_given_is_that_of_the_tables(name, offset, shape, side):
    """It counts positions; the mask counts queries and keys."""
    inputs = inputs_of(name, shape)
    offset = torch.tensor([2, -1]) if offset == "items" else offset
    keywords = {"query_offset": offset, "window": (3, 2), "is_causal": False}
    if name == "relative_global_attention":  # is_causal is its own, unless given
        keywords.pop("is_causal")
    want = results(name, inputs, attn_mask=pairs_of(side, shape), **keywords)
    near(results(name, inputs, attn_mask=bias_of(side, shape), **keywords), want)


@each_shape
@pytest.mark.parametrize("kind", [torch.int64, torch.int8, torch.uint8])
def test_it_combines_with_ranges_and_lengths(kind, shape, side):
    lq, lk = shape
    inputs = inputs_of("attention", shape)
    begins = torch.arange(lq).clamp(max=lk - 1) // 2
    ranges = torch.stack([begins, begins + 2], -1).expand(B, lq, 2).to(kind)
    keywords = {"key_ranges": ranges, "key_lengths": torch.tensor([lk, lk - 1])}
    for offset in (shift_of(side, shape), 2):
        keywords["query_offset"] = offset
        want = results("attention", inputs, attn_mask=pairs_of(side, shape), **keywords)
        bias = bias_of(side, shape)
        near(results("attention", inputs, attn_mask=bias, **keywords), want)


def one_row(ranges):
    return ranges[..., :1, :]


@each_shape
@pytest.mark.parametrize(
    "cast",
    [torch.Tensor.numpy, one_row]
    + [lambda x, kind=kind: x.numpy().astype(kind) for kind in (">i4", "u8", "i1")]
    + [lambda x, kind=kind: x.to(kind) for kind in (torch.uint16, torch.uint64)]
    + [lambda x: one_row(x).numpy()],
)
def test_it_combines_with_every_kind_of_ranges(cast, shape, side):
    """Ranges may be an array, and one row of them is that of all queries."""
    lq, lk = shape
    inputs = inputs_of("attention", shape)
    begins = torch.arange(lq).clamp(max=lk - 1) // 2
    ranges = torch.stack([begins, begins + 2], -1)
    for offset in (shift_of(side, shape), 2, torch.tensor([2, -1])):
        keywords = {"key_ranges": cast(ranges), "query_offset": offset}
        want = results("attention", inputs, attn_mask=pairs_of(side, shape), **keywords)
        bias = bias_of(side, shape)
        near(results("attention", inputs, attn_mask=bias, **keywords), want)


@more_keys
def test_it_is_pytorchs_own_result(shape, side):
    """It is compared if every query sees a key: others are rows of nan there."""
    tokens = [
        drawn(B, H, length, D, seed=length) for length in (shape[0], *shape[1:] * 2)
    ]
    bias = MAKERS[side](*shape)
    want = functional.scaled_dot_product_attention(*tokens, attn_mask=bias)
    near(relpos.torch.attention(*tokens, attn_mask=bias), want)
    near(relpos.torch.attention(*tokens, bias), want)  # by position


@two_shapes
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled(name, shape, side):
    torch.compiler.reset()  # it compiles a function a few times only
    inputs, bias = inputs_of(name, shape), bias_of(side, shape)
    traced = torch.compile(
        getattr(relpos.torch, name), backend="aot_eager", fullgraph=True
    )
    for offset in ({}, {"query_offset": 2}):
        want = results(name, inputs, attn_mask=bias, **offset)
        near(results(name, inputs, by=traced, attn_mask=bias, **offset), want)


@two_shapes
def test_inside_of_torch_func(shape, side):
    """grad wraps every argument, so that the type of a mask is hidden."""
    inputs, bias = inputs_of("attention", shape), bias_of(side, shape)
    query, key, value, table = (x[..., :, :] for x in inputs.values())

    def loss(query, mask):
        function = relpos.torch.attention
        return function(query, key, value, mask, rel_bias=table).square().sum()

    leaf = query.clone().requires_grad_()
    loss(leaf, bias).backward()
    near(torch.func.grad(loss)(query, bias), leaf.grad)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))
    with pytest.raises(
        NotImplementedError if is_opaque() else TypeError,
        match="CausalBias only" if is_opaque() else "attn_mask: got a CausalBias; exp",
    ):
        torch.func.vmap(loss, in_dims=(None, 1))(query, bias)
    query = drawn(2, *query.shape[1:])
    key, value = key[0], value[0]
    want = [torch.func.grad(loss)(item, bias) for item in query]
    near(each(query, bias), torch.stack(want))


# ---- what is refused ----------------------------------------------------------------


@two_shapes
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_lengths_are_refused(name, shape, side):
    inputs, (lq, lk) = inputs_of(name, shape), shape
    for queries, keys in ((lq + 1, lk + 1), (lk, lk), (lk + 1, lq)):
        if (queries, keys) == shape:
            continue
        words = (
            f"^attn_mask: got a CausalBias of {queries} queries and {keys} keys; exp"
        )
        with pytest.raises(ValueError, match=words):
            getattr(relpos.torch, name)(
                **inputs, attn_mask=bias_of(side, (queries, keys))
            )


@two_shapes
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_second_word_on_causality_is_refused(name, shape, side):
    """As by PyTorch, whose is_causal is the upper left."""
    bias = bias_of(side, shape)
    with pytest.raises(ValueError, match=r"^is_causal: got True next to a CausalBias"):
        getattr(relpos.torch, name)(
            **inputs_of(name, shape), attn_mask=bias, is_causal=True
        )


@taken_by_others
@each_shape
def test_what_is_made_of_it_is_refused(shape, side):
    """Such tensors have the class and not what it says, and no numbers of their own."""
    inputs, bias = inputs_of("attention", shape), bias_of(side, shape)
    made = bias[:, :1], bias.to(DOUBLE), bias * 1, torch.nn.Parameter(bias)
    for mask in (*made, bias.detach(), bias.clone()):
        assert isinstance(mask, CausalBias)
        with pytest.raises(
            TypeError, match=r"^attn_mask: got a CausalBias without its v"
        ):
            relpos.torch.attention(**inputs, attn_mask=mask)


@each_shape
def test_other_ranges_stay_refused(shape, side):
    inputs, bias = inputs_of("attention", shape), bias_of(side, shape)
    ranges = torch.zeros(shape[0], 2)
    others = ranges, ranges.bool(), ranges.long()[:, :1], ranges.long()[:-1]
    for wrong in (*others, ranges.tolist()):
        for offset in ({}, {"query_offset": 2}):
            with pytest.raises((TypeError, ValueError), match=r"^key_ranges: "):
                relpos.torch.attention(
                    **inputs, attn_mask=bias, key_ranges=wrong, **offset
                )


# ---- layers -------------------------------------------------------------------------


def layer_results(module, inputs, **keywords):
    tensors = [x.clone().requires_grad_() for x in inputs]
    module.zero_grad()
    found = module(*tensors, **keywords)
    out = found[0] if isinstance(found, tuple) else found
    assert type(out) is torch.Tensor
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    grads = [x.grad for x in (*tensors, *module.parameters())]
    return [*(found if isinstance(found, tuple) else [found]), *grads]


@each_shape
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("position", [None, *SIZES])
def test_relative_multihead_attention(position, padded, shape, side):
    lq, lk = shape
    module = of_position(position, batch_first=True)
    inputs = draw(ITEMS, lq, E), draw(ITEMS, lk, E, seed=2), draw(ITEMS, lk, E, seed=3)
    padding = torch.arange(lk) >= torch.tensor([[lk], [max(lk - 2, 1)]])
    keywords = {"key_padding_mask": padding} if padded else {}
    hidden, bias = ~pairs_of(side, shape), bias_of(side, shape)
    shift = lk - lq if position == "transformer_xl" else shift_of(side, shape)
    want = layer_results(
        module, inputs, attn_mask=hidden, query_offset=shift, **keywords
    )
    for hint in (False, True):
        got = layer_results(module, inputs, attn_mask=bias, is_causal=hint, **keywords)
        near(got, want)
    keywords["query_offset"] = 1
    want = layer_results(module, inputs, attn_mask=hidden, **keywords)
    near(layer_results(module, inputs, attn_mask=bias, **keywords), want)


@each_shape
def test_a_layer_that_hides_the_future_does_so_too(shape, side):
    lq, lk = shape
    module = of_position("shaw", batch_first=True, is_causal=True)
    inputs = draw(ITEMS, lq, E), draw(ITEMS, lk, E, seed=2), draw(ITEMS, lk, E, seed=3)
    for offset in (-1, 2):
        masks = ~pairs_of(side, shape), bias_of(side, shape)
        want, got = (
            layer_results(module, inputs, attn_mask=mask, query_offset=offset)
            for mask in masks
        )
        near(got, want)


@each_shape
def test_relative_multihead_attention_refuses(shape, side):
    lq, lk = shape
    module = of_position("shaw", batch_first=True)
    inputs = draw(ITEMS, lq, E), draw(ITEMS, lk, E), draw(ITEMS, lk, E)
    with pytest.raises(ValueError, match=r"^attn_mask: got a CausalBias of 9 queries"):
        module(*inputs, attn_mask=bias_of(side, (9, lk)))
    with pytest.raises(
        TypeError, match=r"^key_padding_mask: got a CausalBias; expected"
    ):
        module(*inputs, key_padding_mask=bias_of(side, shape), query_offset=0)
    with pytest.raises(TypeError, match=r"^query: got a CausalBias; expected a tensor"):
        module(bias_of(side, (lq, E)), *inputs[1:])


@two_shapes
def test_relative_multihead_attention_compiled(shape, side):
    lq, lk = shape
    module = of_position("t5", batch_first=True)
    inputs = draw(ITEMS, lq, E), draw(ITEMS, lk, E, seed=2), draw(ITEMS, lk, E, seed=3)
    bias = bias_of(side, shape)
    want = layer_results(module, inputs, attn_mask=bias)
    torch.compiler.reset()
    traced = torch.compile(module, backend="aot_eager", fullgraph=True)
    near(layer_results(traced, inputs, attn_mask=bias), want)


@taken_by_others
@two_shapes
def test_in_an_encoder_of_pytorch(shape, side):
    length = shape[0]
    layer = torch.nn.TransformerEncoderLayer(E, HEADS, batch_first=True, dtype=DOUBLE)
    layer.self_attn = of_position("t5", batch_first=True)
    layer.eval()
    x, square = draw(ITEMS, length, E), (length, length)
    want = layer(x, src_mask=~pairs_of(side, square))
    near(layer(x, src_mask=bias_of(side, square)), want)
    near(layer(x, src_mask=bias_of(side, square), is_causal=True), want)


@each_shape
def test_the_layer_of_shaw(shape, side):
    lq, lk = shape
    torch.manual_seed(0)
    module = nn.ShawAttention(E, HEADS, 2, dtype=DOUBLE)
    inputs = draw(ITEMS, lq, E), draw(ITEMS, lk, E, seed=2), draw(ITEMS, lk, E, seed=3)
    shift = shift_of(side, shape)
    mask = pairs_of(side, shape)
    want = layer_results(module, inputs, attn_mask=mask, query_offset=shift)
    near(layer_results(module, inputs, attn_mask=bias_of(side, shape)), want)


@more_keys
def test_the_layer_of_transformer_xl(shape, side):
    length, total = shape
    torch.manual_seed(0)
    module = nn.RelPartialLearnableMultiHeadAttn(H, E, 4, dropout=0.0, dtype=DOUBLE)
    w, mems = draw(length, ITEMS, E), draw(total - length, ITEMS, E, seed=2)
    r = draw(total, E, seed=3)
    hidden = ~pairs_of(side, shape)[..., None]
    want = layer_results(module, [w, r], attn_mask=hidden, mems=mems)
    bias = bias_of(side, shape)
    near(layer_results(module, [w, r], attn_mask=bias, mems=mems), want)
    with pytest.raises(ValueError, match=r"^attn_mask: got a CausalBias of 9 queries"):
        module(w, r, bias_of(side, (9, total)), mems)


@more_keys
def test_the_layer_of_the_conformer(shape, side):
    length, total = shape
    torch.manual_seed(0)
    module = nn.ConformerRelPositionAttention(E, HEADS, dtype=DOUBLE)
    inputs = draw(ITEMS, length, E), *draw(2, ITEMS, total, E, seed=2)
    inputs = *inputs, draw(2 * total - 1, E, seed=3)
    mask = pairs_of(side, shape).expand(ITEMS, *shape)
    want = layer_results(module, inputs, mask=mask)
    near(layer_results(module, inputs, mask=bias_of(side, shape)), want)
    with pytest.raises(ValueError, match=r"^attn_mask: got a CausalBias of 9 queries"):
        module(*inputs, mask=bias_of(side, (9, total)))
