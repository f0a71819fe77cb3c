"""RelativeMultiheadAttention that hides the future, and the two tables of "music"."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from multihead import DTYPE, SIZES, E, H, L, N, draw, near, of_position
from torch import nn

import relpos.torch
from relpos import nn as arrays
from relpos.torch.nn import RelativeMultiheadAttention

LONGEST = 7  # of "music"
POSITIONS = [None, *SIZES]


def made(position, is_causal, **options):
    return of_position(position, batch_first=True, is_causal=is_causal, **options)


def past_of(state):
    """A state of a layer that hides the future, from one of a layer that does not."""
    return {**state, "rel_key": state["rel_key"][:LONGEST]}


def pair(position):
    """A layer that hides the future, and one of the same weights that does not."""
    causal, both = made(position, True), made(position, False)
    state = both.state_dict()
    causal.load_state_dict(past_of(state) if position == "music" else state)
    return causal, both


def results(module, inputs, **call):
    """The output, and the gradients of inputs and parameters."""
    tensors = [x.clone().requires_grad_() for x in inputs]
    module.zero_grad()
    out, weights = module(*tensors * (3 // len(tensors)), **call)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    grads = {name: x.grad for name, x in module.named_parameters()}
    return out, weights, [x.grad for x in tensors], grads


# ---- every position: the layer or the call hides the future -------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
def test_the_layer_hides_the_future_in_every_call(position, masked):
    """It is a causal call of a layer that does not, whatever the call's mask."""
    causal, both = pair(position)
    padding = torch.arange(L) >= torch.tensor([[L], [3]])
    call = {"key_padding_mask": padding}
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    hidden = torch.rand(L, L, generator=torch.Generator().manual_seed(2)) < 0.3
    mask = {"attn_mask": hidden} if masked else {}
    got = results(causal, [draw(N, L, E)], **call, **mask)
    whole = {"attn_mask": hidden | future} if masked else {"is_causal": True}
    want = results(both, [draw(N, L, E)], **call, **whole)
    if position == "music":
        assert not want[3]["rel_key"][LONGEST:].any()  # the rows of the future
        want = *want[:3], past_of(want[3])
    near(got, want)
    assert not got[1].triu(1).any()


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("position", POSITIONS)
def test_a_step_by_step_decode_is_one_call(position, is_causal):
    """Decode from keys of the past; a causal layer may be given the future, too."""
    module, x = made(position, is_causal), draw(N, L, E)
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    whole = module(x, x, x, attn_mask=future, is_causal=True)[0]
    for i in range(L):
        past = x[:, : i + 1]
        for keys in (past, x) if is_causal else (past,):
            got = module(past[:, i:], keys, keys, query_offset=i)[0]
            near(got, whole[:, i : i + 1])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("position", [None, "music", "shaw", "rope"])
def test_no_later_word_is_seen_inside_a_layer_of_pytorch(position, training):
    layer = nn.TransformerEncoderLayer(E, H, 8, 0.0, batch_first=True, dtype=DTYPE)
    layer.self_attn = made(position, True)
    layer.train(training)
    x = draw(N, L, E)
    other = x.clone()
    other[:, 3:] = draw(N, L - 3, E, seed=9)
    with torch.set_grad_enabled(training):
        near(layer(other)[:, :3], layer(x)[:, :3])
        assert not torch.allclose(layer(other)[:, 3], layer(x)[:, 3])


# ---- "music" in both directions -----------------------------------------------------


@pytest.mark.parametrize("length", [1, L, LONGEST])
def test_music_in_both_directions_is_attention_with_the_rows_in_the_middle(length):
    """Outputs, weights, gradients; row max_len - 1 is distance 0."""
    module, x = made("music", False), draw(N, length, E)
    hidden = torch.arange(length) >= torch.tensor([[length], [max(length - 2, 1)]])
    got = results(module, [x], key_padding_mask=hidden, average_attn_weights=False)
    x = x.requires_grad_()
    module.zero_grad()
    packed = nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias)
    terms = (x.unflatten(-1, (H, -1)).transpose(1, 2) for x in packed.chunk(3, -1))
    rows = module.rel_key[LONGEST - length : LONGEST - 1 + length]
    assert len(rows) == 2 * length - 1
    found = relpos.torch.attention(
        *terms,
        rel_key=rows,
        attn_mask=~hidden[:, None, None],
        return_weights=True,
    )
    out = module.out_proj(found.out.transpose(1, 2).flatten(-2))
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    grads = {name: p.grad for name, p in module.named_parameters()}
    near(got, (out, found.weights, [x.grad], grads))
    assert length < 3 or found.weights.triu(1).any()


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_sequence_beyond_max_len_is_refused(is_causal):
    module, x = made("music", is_causal), draw(N, LONGEST + 1, E)
    few = x[:, :1]
    encoder = nn.TransformerEncoderLayer(E, H, batch_first=True, dtype=DTYPE).eval()
    encoder.self_attn = module
    message = (
        f"query: got tokens that see keys at a distance of {LONGEST}; expected at most "
        f"max_len - 1 = {LONGEST - 1} (make the layer with max_len={LONGEST + 1})"
    )
    for call in (
        lambda: module(x, x, x),
        lambda: module(x, x, x, need_weights=False, is_causal=is_causal),
        lambda: module(few, few, few, query_offset=LONGEST),
        lambda: module(few, few, few, query_offset=torch.tensor([LONGEST, 0])),
        lambda: encoder(x),
    ):
        with pytest.raises(IndexError) as caught:
            call()
        assert str(caught.value) == message


@pytest.mark.parametrize("offset", [2**62, -(2**62), 2**54, -(2**54)])
@pytest.mark.parametrize("position", SIZES)
def test_an_offset_beyond_all_positions_is_refused_by_its_name(position, offset):
    module, x = made(position, False), draw(N, L, E)
    try:
        module(x[:, :2], x, x, query_offset=offset)
    except ValueError as error:
        assert str(error).startswith(f"query_offset: got {offset};")
    except IndexError as error:
        assert position == "music" and str(error).startswith("query: got tokens")
    else:
        assert abs(offset) < 2**60 and position in ("shaw", "t5", "fire", "deberta")


# ---- what was left open, states, pickles, repr --------------------------------------


@pytest.mark.parametrize("position", POSITIONS)
def test_none_means_false(position):
    layers = [made(position, is_causal) for is_causal in (True, False, None)]
    assert [layer.is_causal for layer in layers] == [True, False, False]
    default = RelativeMultiheadAttention(E, H, position=position)
    assert not default.is_causal
    x = draw(N, L, E)
    near(layers[2](x, x, x), layers[1](x, x, x))


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("position", [x for x in SIZES if x != "deberta"])
def test_states_of_tensors_and_arrays_fit_each_other(position, is_causal):
    """Either loads the other's, and gives its outputs and gradients."""
    module = made(position, is_causal)
    sizes = SIZES[position] | {"is_causal": is_causal}
    layer = arrays.MultiheadAttention(E, H, position=position, dtype="float64", **sizes)
    module.load_state_dict(layer.state_dict(), strict=True)
    x = draw(N, L, E)
    near(module(x, x, x)[0].detach(), torch.tensor(layer(x.numpy())))
    other = made(position, is_causal)
    layer.load_state_dict(other.state_dict())
    out, _, (grad_x,), grads = results(other, [x])
    near(out.detach(), torch.tensor(layer(x.numpy())))
    weights = torch.linspace(-1, 1, out.numel()).view_as(out)
    near(grad_x, torch.tensor(layer.backward(weights.numpy())))
    found = {name: torch.tensor(p.grad) for name, p in layer.named_parameters()}
    near(found, grads)


def test_kerple_raises_small_numbers_for_its_bias_and_not_their_gradients():
    small, raised = made("kerple", False), made("kerple", False)
    numbers = torch.tensor([-1.0, 0.005, 0.4], dtype=DTYPE)
    for name in ("r1", "r2"):
        getattr(small, name).data.copy_(numbers)
        getattr(raised, name).data.copy_(numbers.clamp(min=0.01))
    found, wanted = (results(module, [draw(N, L, E)]) for module in (small, raised))
    near(found, wanted)
    assert found[3]["r1"].all() and found[3]["r2"].all()
    assert torch.equal(small.r1, numbers)


def test_kerple_starts_with_positive_numbers():
    torch.manual_seed(0)
    module = RelativeMultiheadAttention(512, 512, position="kerple")
    for parameter, high in ((module.r1, 2.0), (module.r2, 1.0)):
        assert parameter.min() >= 0.0 and 0.9 * high < parameter.max() <= high


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_state_of_the_other_table_is_refused_with_the_reason(is_causal):
    module, other = made("music", is_causal), made("music", not is_causal)
    whole = nn.Sequential(other)
    words = r"0\.rel_key: .*is_causal=True has max_len rows, .*is_causal=False 2 \*"
    with pytest.raises(RuntimeError, match=words):
        whole.load_state_dict({f"0.{n}": x for n, x in module.state_dict().items()})
    found = {n: x.numpy() for n, x in module.state_dict().items()}
    with pytest.raises(RuntimeError, match=words.replace(r"0\.", "")):
        other.load_state_dict(found)
    less = {n: x for n, x in module.state_dict().items() if n != "rel_key"}
    with pytest.raises(RuntimeError, match="Missing") as caught:
        other.load_state_dict(less)
    assert "max_len" not in str(caught.value)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("position", POSITIONS)
def test_copies(position, is_causal):
    layer = made(position, is_causal)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.is_causal is is_causal
        near(other(*[draw(N, L, E)] * 3), layer(*[draw(N, L, E)] * 3))


def test_repr_shows_it_and_other_values_are_named():
    assert repr(made("music", False)).startswith(
        "RelativeMultiheadAttention(\n"
        "  12, 3, is_causal=False, position='music', max_len=7\n"
    )
    for position in ("music", None):
        with pytest.raises(TypeError, match=r"^is_causal: got int; expected True or"):
            RelativeMultiheadAttention(E, H, position=position, is_causal=1)


def test_weights_are_asked_for_by_flags():
    module, x = RelativeMultiheadAttention(8, 2), torch.ones(3, 1, 8)
    for name in ("need_weights", "average_attn_weights"):
        with pytest.raises(TypeError, match=f"^{name}: got str; expected True or"):
            module(x, x, x, **{name: "no"})


@pytest.mark.parametrize("position", ["alibi", "kerple"])
def test_a_bias_of_the_distance_is_not_rounded_to_16_bits(position):
    module = RelativeMultiheadAttention(16, 8, batch_first=True, position=position)
    torch.nn.init.zeros_(module.in_proj_weight)  # so that the bias is all
    if position == "kerple":  # numbers that 16 bits have
        module.load_state_dict({"r1": torch.ones(8), "r2": torch.ones(8) / 8}, False)
    q, x = torch.zeros(1, 1, 16), torch.zeros(1, 1024, 16)
    call = {"average_attn_weights": False, "query_offset": 1023}
    want = module(q, x, x, **call)[1]
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(module(q, x, x, **call)[1], want)
    q, x = q.bfloat16(), x.bfloat16()
    got = module.bfloat16()(q, x, x, **call)[1]
    torch.testing.assert_close(got, want.to(got.dtype))
