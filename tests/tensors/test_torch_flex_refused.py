"""Refusals of score_mod, mask_mod and the calls that take them, by name."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.attention.flex_attention as flex

import relpos.torch
from relpos.torch import attention, flex_attention

L = 6
TABLE = torch.zeros(L)


def tensors(dtype=torch.float32):
    return [torch.randn(1, 2, L, 4, dtype=dtype) for _ in range(3)]


def plain(score, b, h, i, j):
    return score


def random_numbers(score, b, h, i, j):
    return score + torch.rand(())


def dropped(score, b, h, i, j):
    return torch.nn.functional.dropout(score)


def decides(score, b, h, i, j):
    return score if i > j else -score


def decides_by_score(score, b, h, i, j):
    return score if score.item() > 0 else -score


def of_another_shape(score, b, h, i, j):
    return score[None]


def of_a_table(score, b, h, i, j):
    return score + TABLE


def no_tensor(score, b, h, i, j):
    return 1.0


def several(score, b, h, i, j):
    return score, score


def of_integers(score, b, h, i, j):
    return i - j


def of_complex(score, b, h, i, j):
    return torch.complex(score, score)


def in_place_of_a_pair(score, b, h, i, j):
    TABLE[i] = 1.0
    return score


def in_place(score, b, h, i, j):
    TABLE.add_(1)
    return score


def in_a_view(score, b, h, i, j):
    TABLE[2:4].view(2).mul_(2)
    return score


def in_place_of_the_score(score, b, h, i, j):
    score += 1
    return score


def in_place_of_what_is_made(score, b, h, i, j):
    made = torch.zeros(2)
    made[0] = score
    return made.sum()


def by_bytes(score, b, h, i, j):
    return score + TABLE[torch.ones(L, dtype=torch.uint8)[j]]


#: PyTorch 2.6 reads the index of a pair before it changes the tensor.
READS_INDEX = not hasattr(torch.compiler, "is_exporting")
CHANGES_BY_INDEX = "decides by the numbers" if READS_INDEX else "changes a captured"

REFUSED = {
    random_numbers: (ValueError, "draws random numbers"),
    dropped: (ValueError, "draws random numbers"),
    decides: (ValueError, "decides by the numbers"),
    decides_by_score: (ValueError, "decides by the numbers"),
    of_another_shape: (ValueError, r"returned a tensor of shape \(1,\)"),
    of_a_table: (ValueError, r"returned a tensor of shape \(6,\)"),
    no_tensor: (TypeError, "returned no tensor"),
    several: (TypeError, "returned tuple"),
    of_integers: (TypeError, "returned torch.int32"),
    of_complex: (TypeError, "returned torch.complex64"),
    in_place_of_a_pair: (ValueError, CHANGES_BY_INDEX),
    in_place: (ValueError, "changes a captured tensor"),
    in_a_view: (ValueError, "changes a captured tensor"),
    in_place_of_the_score: (ValueError, "changes a captured tensor or an argument"),
    in_place_of_what_is_made: (ValueError, "changes a captured tensor, or one that it"),
    by_bytes: (TypeError, "indexes a tensor by torch.uint8"),
}


@pytest.mark.parametrize("function", REFUSED)
@pytest.mark.parametrize("needs_grad", [False, True])
def test_functions(function, needs_grad):
    kind, message = REFUSED[function]
    inputs = [x.requires_grad_(needs_grad) for x in tensors()]
    with pytest.raises(kind, match=f"score_mod: {message}"):
        flex_attention(*inputs, function)


def test_what_a_function_makes_may_be_changed():
    def function(score, b, h, i, j):
        made = torch.zeros_like(score)
        made += score
        made[...] = made * 2
        return made

    query, key, value = [x.requires_grad_() for x in tensors()]
    found = flex_attention(query, key, value, function)
    wanted = attention(query, key, value, scale=1.0)
    torch.testing.assert_close(found, wanted)
    for own, other in zip(
        torch.autograd.grad(found.square().sum(), (query, key, value)),
        torch.autograd.grad(wanted.square().sum(), (query, key, value)),
        strict=True,
    ):
        torch.testing.assert_close(own, other)


def test_errors_of_a_function_are_its_own():
    def function(score, b, h, i, j):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        flex_attention(*tensors(), function)
    with pytest.raises(IndexError):
        flex_attention(*tensors(), lambda s, b, h, i, j: s + TABLE[i + j])
    with pytest.raises(TypeError, match="score_mod: got int; expected a function of"):
        flex_attention(*tensors(), 3)


def test_masks():
    def mask(function):
        given = flex.create_block_mask(
            lambda b, h, i, j: i >= j, None, None, L, L, device="cpu", BLOCK_SIZE=4
        )
        given.mask_mod = function
        return given

    wrong = {
        "returned torch.float32": lambda b, h, i, j: (i - j).float(),
        "draws random": lambda b, h, i, j: torch.rand(()) > 0.5,
        "decides by": lambda b, h, i, j: i >= j or i < 2,
        "returned a tensor of shape": lambda b, h, i, j: j < TABLE,
    }
    for message, function in wrong.items():
        with pytest.raises((ValueError, TypeError), match=f"mask_mod: {message}"):
            flex_attention(*tensors(), block_mask=mask(function))
    with pytest.raises(TypeError, match="mask_mod: got NoneType; expected a function"):
        flex_attention(*tensors(), block_mask=mask(None))


def test_a_block_mask_without_what_is_read(monkeypatch):
    class Other:
        kv_num_blocks = None

    monkeypatch.setattr(flex, "BlockMask", Other)
    with pytest.raises(TypeError, match=r"block_mask: .* without the attribute kv_ind"):
        flex_attention(*tensors(), block_mask=Other())


BESIDE = {
    "rel_key": torch.zeros(3, 4),
    "rel_query": torch.zeros(3, 4),
    "rel_value": torch.zeros(3, 4),
    "rel_bias": torch.zeros(3),
    "pos_bias_u": torch.zeros(4),
    "pos_bias_v": torch.zeros(4),
    "position_query": torch.zeros(1, 2, L, 4),
    "log_decay": torch.zeros(1, 2, L),
    "labels": torch.zeros(L, L, dtype=torch.int32),
    "buckets": torch.zeros(3, dtype=torch.int64),
    "min_relative_position": -1,
    "beyond": "zero",
    "cu_seqlens": torch.tensor([0, 2, L]),
    "attn_mask": torch.zeros(L, L),
    "dropout_p": 0.5,
    "return_weights": True,
    "rng": 3,
}


@pytest.mark.parametrize("name", BESIDE)
def test_arguments_beside_a_function(name):
    with pytest.raises(ValueError, match=f"^{name}: .* score_mod or block_mask"):
        attention(*tensors(), score_mod=plain, **{name: BESIDE[name]})


def test_every_argument_of_attention_is_taken_or_refused():
    from inspect import signature

    from relpos.torch._pair_call import TAKEN

    names = {*signature(attention).parameters}
    rest = {"return_lse", "score_mod", "block_mask"}
    assert names == TAKEN | {*BESIDE} | rest
    assert TAKEN & {*BESIDE} == {"attn_mask"}


def test_tensors_of_flex_attention():
    query, key, value = tensors()
    with pytest.raises(ValueError, match=r"query: got shape .* expected four axes"):
        flex_attention(query[0], key, value)
    with pytest.raises(ValueError, match=r"key: got torch.float64; expected the dtype"):
        flex_attention(query, key.double(), value)
    with pytest.raises(TypeError, match="value: got list; expected a tensor"):
        flex_attention(query, key, [[1.0]])
    with pytest.raises(ValueError, match="value: "):
        flex_attention(query, key, value[:, :, 1:], plain)
    with pytest.raises(ValueError, match="scale: got inf"):
        flex_attention(query, key, value, plain, scale=math.inf)
    with pytest.raises(ValueError, match="num_threads"):
        attention(query, key, value, score_mod=plain, num_threads=0)


def test_transforms_are_refused():
    query, key, value = tensors()

    def call(query):
        return flex_attention(query, key, value, plain).sum()

    with pytest.raises(NotImplementedError, match=r"torch.func and torch.vmap do not"):
        torch.func.grad(call)(query)
    with pytest.raises(NotImplementedError, match=r"torch.func and torch.vmap do not"):
        torch.vmap(call)(query[None])
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(query, query)
        with pytest.raises(NotImplementedError, match=r"forward-mode"):
            call(dual)


def test_tensors_without_numbers_are_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode

    query, key, value = tensors()
    with pytest.raises((NotImplementedError, TypeError), match="query: "):
        flex_attention(query.to("meta"), key.to("meta"), value.to("meta"), plain)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) for x in (query, key, value)]
    with pytest.raises(NotImplementedError, match=r"query: .* are not exported"):
        flex_attention(*fake, plain)


def test_jagged_tensors_are_refused():
    rows = torch.randn(5, 2, 4)
    jagged = torch.nested.nested_tensor_from_jagged(rows, torch.tensor([0, 2, 5]))
    jagged = jagged.transpose(1, 2)
    with pytest.raises(ValueError, match="score_mod: given together with nested"):
        attention(jagged, jagged, jagged, score_mod=plain)


def test_autocast_rounds_the_result_alone():
    query, key, value = tensors()
    wanted = flex_attention(query, key, value, plain)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = flex_attention(query, key, value, plain)
    assert torch.equal(found, wanted.bfloat16())


def test_threads_are_those_of_before():
    before = torch.get_num_threads()
    attention(*tensors(), score_mod=plain, num_threads=before + 1)
    with pytest.raises(ValueError, match="decides"):
        attention(*tensors(), score_mod=decides, num_threads=before + 1)
    assert torch.get_num_threads() == before


def test_no_gradient_keeps_nothing():
    """Without a gradient no backward is recorded."""
    query, key, value = tensors()
    assert not flex_attention(query, key, value, plain).requires_grad
    with torch.no_grad():
        out = flex_attention(query.requires_grad_(), key, value, plain)
    assert not out.requires_grad


def test_names_that_users_try():
    assert relpos.torch.flex_attention.__module__ == "relpos.torch"
