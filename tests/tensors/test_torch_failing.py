"""A call on tensors that raises leaves the generator of its dropout as it was."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
relpos_torch = pytest.importorskip("relpos.torch")

from relpos import _core  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 80).reshape(1, 2, 5, 8)
WRONG = [
    {"attn_mask": torch.ones(3, 3, dtype=torch.bool)},
    {"num_threads": 0},
    {"scale": "one"},
]


def attention(rng, **wrong):
    return relpos_torch.attention(X, X, X, dropout_p=0.5, rng=rng, **wrong)


@pytest.fixture(params=["its own", "of torch"])
def rng(request):
    """A generator, and what is passed for it."""
    if request.param == "its own":
        generator = torch.Generator().manual_seed(3)
        return generator, generator
    return torch.default_generator, None


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: next(iter(wrong)))
def test_a_wrong_argument(rng, wrong):
    generator, given = rng
    before = generator.get_state()
    with pytest.raises((TypeError, ValueError)):
        attention(given, **wrong)
    assert torch.equal(generator.get_state(), before)
    out = attention(given)
    assert not torch.equal(generator.get_state(), before)
    generator.set_state(before)
    assert torch.equal(attention(given), out)


def test_a_failing_allocation(rng):
    generator, given = rng
    before = generator.get_state()
    _core.fail_at(1, False)
    try:
        with pytest.raises(MemoryError):
            attention(given)
    finally:
        _core.fail_at(0, False)
    assert torch.equal(generator.get_state(), before)
