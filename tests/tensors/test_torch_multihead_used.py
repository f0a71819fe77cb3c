"""RelativeMultiheadAttention in use: in layers, copied, compiled."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from multihead import DTYPE, SIZES, E, H, L, N, draw, near, of_position, seeded
from refusals import check, every_row
from torch import nn

from relpos.torch.nn import RelativeMultiheadAttention


@pytest.mark.parametrize("position", [None, "shaw", "t5", "rope"])
def test_inside_a_layer_of_pytorch(position):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(E, H * 2, 16, batch_first=True, dtype=DTYPE)
    theirs = layer.self_attn.eval()
    mine = layer.self_attn = of_position(position, H * 2, batch_first=True)
    missing = mine.load_state_dict(theirs.state_dict(), strict=False)
    assert not missing.unexpected_keys
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = draw(N, L, E)
    padding = torch.zeros(N, L, dtype=DTYPE)
    padding[1, 3:] = -torch.inf
    future = nn.Transformer.generate_square_subsequent_mask(L, dtype=DTYPE)
    call = {"mask": future, "src_key_padding_mask": padding}
    encoder.eval()
    trained = encoder(x, **call)
    with torch.no_grad():  # where PyTorch would take its fused path
        near(encoder(x, **call), trained.detach())
        plain = encoder(x)
    for one in encoder.layers:
        one.self_attn = theirs
    same = torch.allclose(encoder(x, **call), trained, rtol=0, atol=1e-12)
    assert same == (position is None)
    assert torch.allclose(encoder(x), plain, rtol=0, atol=1e-9) == (position is None)


def test_dropout_is_for_training_alone():
    module = seeded(E, H, dropout=0.5, position="shaw")
    x = draw(L, E)
    torch.manual_seed(1)
    one = module(x, x, x)[0]
    assert not torch.equal(module(x, x, x)[0], one)
    torch.manual_seed(1)
    assert torch.equal(module(x, x, x)[0], one)
    module.eval()
    assert torch.equal(module(x, x, x)[0], module(x, x, x)[0])


@pytest.mark.parametrize("position", [None, *SIZES])
def test_a_state_has_what_is_learned_alone(position):
    module = of_position(position)
    state = module.state_dict()
    assert set(state) == {name for name, _ in module.named_parameters()}
    assert {*nn.MultiheadAttention(E, H).state_dict()} <= set(state)
    sizes = SIZES.get(position, {})
    other = RelativeMultiheadAttention(E, H, dtype=DTYPE, position=position, **sizes)
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    other.load_state_dict(arrays, strict=True)
    x = draw(L, E)
    assert torch.equal(other(x, x, x)[0], module(x, x, x)[0])
    assert position is None or f"position='{position}'" in repr(other)


@pytest.mark.parametrize("position", [None, *SIZES])
def test_copies_and_autocast(position):
    sizes = SIZES.get(position, {})
    module = RelativeMultiheadAttention(E, H, position=position, **sizes)
    x = draw(L, E).float()
    want = module(x, x, x)[0]
    with torch.device("meta"):
        empty = RelativeMultiheadAttention(E, H, position=position, **sizes)
    filled = empty.to_empty(device="cpu")
    filled.load_state_dict(module.state_dict())
    for other in (filled, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x, x, x)[0], want)
    with torch.autocast("cpu"):
        out = module(x, x, x)[0]
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), want, rtol=0.05, atol=0.05)


def test_exported_for_any_length():
    module = RelativeMultiheadAttention(E, H, position="t5").eval()
    length = torch.export.Dim("length", min=3, max=64)
    x = draw(L, E).float()
    program = torch.export.export(
        module, (x, x, x), dynamic_shapes=[{0: length}] * 3, strict=False
    )
    y = draw(9, E).float()
    for got, want in zip(program.module()(y, y, y), module(y, y, y), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    "position", [None, "transformer_xl", "alibi", "kerple", "fire"]
)
def test_compiled_whole(position):
    torch.compiler.reset()
    module = of_position(position)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    x = draw(L, E)
    grads = []
    for one in (compiled, module):
        module.zero_grad()
        out = one(x, x, x, need_weights=False)[0]
        out.square().sum().backward()
        grads.append([out, *(p.grad for p in module.parameters())])
    near(*grads)
    torch.compiler.reset()


REFUSED = """
made(add_bias_kv=True) -> ValueError: …add_bias_kv: got True; expected False
made(add_zero_attn=True) -> ValueError: …add_zero_attn: got True; expected False
made(position="waltz") -> ValueError: …position: got 'waltz'; expected one of 'shaw',
    'mus
made(position="shaw", max_len=5) -> ValueError: …max_len: got 5 with position='shaw';
    …mu
made(max_distance=5) -> ValueError: …max_distance: got 5 with position=None; …'t5',
    'fire'
made(position="rope", num_heads=4) -> ValueError: …num_heads: got 4, heads of 3 columns
made(position="deberta", num_buckets=3) -> ValueError: …num_buckets: got 3; expected
made(position="deberta", max_relative_position=9, num_buckets=16) -> ValueError:
    …max_relative_position: got 9; expected an integer from 10
made(position="deberta", kdim=5) -> ValueError: …kdim: got 5 with position='deberta'
made(num_heads=5) -> ValueError: …num_heads: got 5, which does not divide embed_dim = 12
made(dropout=1.5) -> ValueError: …dropout: got 1.5
called(key=ones(4, 11)) -> ValueError: …key: got shape (4, 11); expected (S, 12)
called(query=[1.0]) -> TypeError: …query: got list; expected a tensor
called(query=ones(4)) -> ValueError: …query: got shape (4,)
called(attn_mask=ones(4, 4)[:3].bool()) -> ValueError: …attn_mask: got shape (3, 4)
called(attn_mask=ones(4, 4).int()) -> TypeError: …attn_mask: got torch.int32; expected
called(key_padding_mask=ones(5).bool()) -> ValueError: …key_padding_mask: got shape
called(query=ones(3, 12)) -> ValueError: …query_offset: got None for 3 queries and 4 key
"""


@pytest.mark.parametrize("position", [None, *SIZES])
def test_an_offset_is_an_integer(position):
    """Or a tensor of one; others are refused by name."""
    module = of_position(position)
    x = draw(L, E)
    want = module(x[1:], x, x, query_offset=1)[0]
    for one in (torch.tensor(1), torch.tensor([1])):
        assert torch.equal(module(x[1:], x, x, query_offset=one)[0], want)
    for wrong in (1.5, "a", True, torch.tensor(1.0)):
        with pytest.raises(
            TypeError, match=r"^query_offset: got .*; expected (an )?in"
        ):
            module(x[1:], x, x, query_offset=wrong)


def made(embed_dim=E, num_heads=H, **keywords):
    return RelativeMultiheadAttention(embed_dim, num_heads, **keywords)


def called(**changes):
    tokens = dict.fromkeys(("query", "key", "value"), torch.ones(4, E))
    return made(position="shaw")(**tokens | changes)


@every_row(REFUSED)
def test_what_is_refused_is_named(row):
    check(row, {"made": made, "called": called, "ones": torch.ones})


NESTED = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


@NESTED
@pytest.mark.parametrize("position", [None, *SIZES])
def test_swapped_into_an_encoder_that_was_made_before(position):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(E, 2 * H, 16, batch_first=True, dtype=DTYPE)
    encoder = nn.TransformerEncoder(layer, 3)
    for one in encoder.layers[:2]:  # the last one is still PyTorch's
        one.self_attn = of_position(position, 2 * H, batch_first=True)
    encoder.eval()
    x, padding = draw(3, L, E), torch.arange(L) >= torch.tensor([[L], [2], [L - 1]])
    want = encoder(x, src_key_padding_mask=padding)
    with torch.no_grad():
        found = encoder(x, src_key_padding_mask=padding)
    near(found[~padding], want.detach()[~padding])
    assert not found[padding].any()  # as PyTorch leaves it: it took its nested way


@NESTED
@pytest.mark.parametrize("average", [True, False])
def test_a_nested_tensor_is_each_of_its_items(average):
    module = of_position("shaw", batch_first=True)
    items = [draw(length, E).requires_grad_() for length in (L, 1, L - 1)]
    leaves = [*items, *module.parameters()]
    x = torch.nested.as_nested_tensor(items)
    out, weights = module(x, x, x, average_attn_weights=average, is_causal=True)
    alone = [
        module(each, each, each, average_attn_weights=average, is_causal=True)
        for each in items
    ]
    for index, (want, of_each) in enumerate(alone):
        near(out.unbind()[index], want)
        length = len(want)
        near(weights[index, ..., :length, :length], of_each)
        assert not weights[index, ..., length:].any()
    found, wanted = (
        torch.autograd.grad(sum(each.square().sum() for each in outs), leaves)
        for outs in (out.unbind(), [want for want, _ in alone])
    )
    for got, want in zip(found, wanted, strict=True):
        near(got, want)


@NESTED
def test_other_nested_tensors_are_named():
    x = torch.nested.nested_tensor([torch.ones(4, E)])
    jagged = torch.nested.nested_tensor([torch.ones(4, E)], layout=torch.jagged)
    other, padding = x.clone(), torch.zeros(1, 4, dtype=torch.bool)
    for batch_first, inputs, mask in (
        (False, (x, x, x), None),
        (True, (x, other, other), None),
        (True, (x, x, x), padding),
        (True, (jagged, jagged, jagged), None),
    ):
        module = RelativeMultiheadAttention(E, H, batch_first=batch_first)
        words = "query: got a nested tensor; expected a padded"
        with pytest.raises(TypeError, match=words):
            module(*inputs, key_padding_mask=mask)
