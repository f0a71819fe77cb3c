"""A floating mask of zeros and ones: `relpos.torch` warns of one that has numbers."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import relpos.torch as rt

X = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
ALLOWED = torch.ones(6, 6).tril()


class Module(torch.nn.Module):
    """Attention in a module: the line of its call is in `forward`."""

    def forward(self, x, mask):
        return rt.attention(x, x, x, mask)


def attend(mask):
    return rt.attention(X, X, X, mask)


def with_gradient(mask):
    query = X.clone().requires_grad_()
    rt.attention(query, X, X, mask).sum().backward()


def mapped_queries(mask):
    return torch.vmap(lambda query: rt.attention(query, X, X, mask))(
        X.expand(3, 2, 6, 4)
    )


def of_the_mask(mask):
    return torch.func.grad(lambda mask: attend(mask).sum())(mask)


def multihead(mask):
    layer = rt.nn.RelativeMultiheadAttention(4, 2, batch_first=True)
    return layer(X, X, X, attn_mask=mask)


def shaw(mask):
    return rt.shaw_attention(X, X, X, X[0, :5], attn_mask=mask)


def module(mask):
    return Module()(X, mask)


LOOKED_AT = [
    attend,
    with_gradient,
    mapped_queries,
    of_the_mask,
    multihead,
    shaw,
    module,
]


def warned(function, *args):
    """Return the warnings of relpos, and check that each is of a line in this file."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function(*args)
    of_masks = [each for each in seen if "zeros and ones" in str(each.message)]
    assert {each.filename for each in of_masks} <= {__file__}
    return of_masks


@pytest.mark.parametrize("function", LOOKED_AT)
def test_one_warning_at_the_line_of_the_caller(function):
    assert len(warned(function, ALLOWED)) == 1
    assert not warned(function, torch.zeros(6, 6))
    assert not warned(function, torch.ones(6, 6))
    assert not warned(function, torch.where(ALLOWED > 0, 0.0, -torch.inf))


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64]
)
def test_all_dtypes_and_layouts(dtype):
    wide = torch.zeros(6, 12, dtype=dtype)
    wide[:, ::2] = ALLOWED.to(dtype)
    for mask in (ALLOWED.to(dtype), ALLOWED.to(dtype).T, wide[:, ::2]):
        assert warned(attend, mask)
    wide[2, 4] = 0.5
    assert not warned(attend, wide[:, ::2])


def test_tensors_without_numbers_of_their_own_are_not_looked_at():
    def fake(mask):
        with FakeTensorMode() as mode:
            x, mask = mode.from_tensor(X), mode.from_tensor(mask)
            return rt.attention(x, x, x, mask)

    def meta(mask):
        x = X.to("meta")
        return rt.attention(x, x, x, mask.to("meta"))

    def compiled(mask):
        return torch.compile(attend, backend="aot_eager", fullgraph=True)(mask)

    def mapped(mask):
        return torch.vmap(attend)(mask.expand(3, 6, 6))

    def mapped_gradient(mask):
        of = torch.func.grad(lambda mask: attend(mask).sum())
        return torch.vmap(of)(mask.expand(3, 6, 6))

    for function in (fake, meta, compiled, mapped, mapped_gradient):
        assert not warned(function, ALLOWED), function


def test_as_an_error_it_changes_nothing():
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state(), torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rng in (None, generator):
            with pytest.raises(UserWarning, match=r"attn_mask: got a floating mask of"):
                rt.attention(X, X, X, ALLOWED, 0.5, rng=rng)
    assert torch.equal(generator.get_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
