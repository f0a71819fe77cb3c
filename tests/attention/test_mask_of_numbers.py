"""A floating mask of zeros and ones is warned of once, at the caller's line."""

from __future__ import annotations

import inspect
import itertools
import warnings

import numpy as np
import pytest

import relpos
from relpos import _core

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 4))
ALLOWED = np.tril(np.ones((6, 6)))
MESSAGE = (
    r"attn_mask: got a floating mask of zeros and ones, which is added to the scores "
    r"and hides nothing; expected a boolean mask, or a mask of 0 and -inf"
)

CALLS = {
    "attention": lambda mask: relpos.attention(X, X, X, mask),
    "attention_forward": lambda mask: relpos.attention_forward(X, X, X, attn_mask=mask),
    "scores": lambda mask: relpos.scores(X, X, attn_mask=mask),
    "shaw": lambda mask: relpos.shaw_attention(X, X, X, X[0, :5], attn_mask=mask),
    "music": lambda mask: relpos.relative_global_attention(
        X, X, X, X[0], attn_mask=mask
    ),
    "nn": lambda mask: relpos.nn.MultiheadAttention(4, 2, dtype=np.float64)(
        X, attn_mask=mask
    ),
}


def warned(function, *args):
    """Return the warnings of a call, and check that each is of a line in this file."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function(*args)
    assert {warning.filename for warning in seen} <= {__file__}
    return seen


@pytest.mark.parametrize("name", CALLS)
def test_every_function_warns_at_the_line_of_its_caller(name):
    (seen,) = warned(CALLS[name], ALLOWED)
    lines, first = inspect.getsourcelines(CALLS[name])
    assert seen.category is UserWarning
    assert first <= seen.lineno < first + len(lines)
    with pytest.warns(UserWarning, match=MESSAGE):
        CALLS[name](ALLOWED)
    for mask in (ALLOWED > 0, np.where(ALLOWED > 0, 0.0, -np.inf), ALLOWED * 0):
        assert not warned(CALLS[name], mask)


def test_python_shows_it_once_for_a_line():
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()
        for _ in range(3):
            relpos.attention(X, X, X, ALLOWED)
        relpos.attention(X, X, X, ALLOWED)
    first, second = (warning.lineno for warning in seen)
    assert second == first + 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("number", [-1, 0.5, 2, -np.inf, np.nan, 1 + 2**-10, 6e-8])
def test_zeros_alone_ones_alone_and_other_numbers_are_not_warned_of(dtype, number):
    mask = ALLOWED.astype(dtype)
    assert warned(relpos.attention, X, X, X, mask)
    assert warned(relpos.attention, X, X, X, mask.astype(mask.dtype.newbyteorder()))
    for other in (np.zeros_like(mask), -np.zeros_like(mask), np.ones_like(mask)):
        assert not warned(relpos.attention, X, X, X, other)
    mask[3, 4] = number
    assert not warned(relpos.attention, X, X, X, mask)


def test_masks_of_more_entries_are_not_looked_at():
    query, key = np.zeros((1, 257, 1), np.float32), np.zeros((1, 256, 1), np.float32)
    mask = (np.arange(256) < 5).astype(np.float32) * np.ones((257, 1), np.float32)
    assert warned(relpos.attention, query[:, :256], key, key, mask[:256])
    assert not warned(relpos.attention, query, key, key, mask)
    repeated = np.broadcast_to(mask[0], (257, 256))  # 256 entries in memory
    assert warned(relpos.attention, query, key, key, repeated)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("isa", _core.by_isa)
def test_the_loop_finds_every_number_in_any_layout(isa, dtype):
    """A single entry decides, wherever it is, in every layout and length."""
    look = _core.by_isa[isa].has_zeros_and_ones
    tiny = np.finfo(dtype).smallest_subnormal
    above = np.nextafter(dtype(1), dtype(2))
    for length, step in itertools.product((1, 2, 7, 16, 67, 1100), (1, 2, -1, -3)):
        stored = np.empty((length + 1) * abs(step), dtype)
        line = stored[::step][:length]
        for start, at in itertools.product((0.0, -0.0, 1.0), {0, length // 2, -1}):
            for number in (0.0, -0.0, 1.0, -1.0, 0.5, tiny, above, np.nan, -np.inf):
                stored[:], line[:] = np.nan, start
                line[at] = number
                wanted = {*np.unique(line).tolist()} == {0.0, 1.0}
                assert look(line) == wanted, (length, step, start, at, number)
    many = RNG.integers(0, 2, (3, 4, 5, 6)).astype(dtype)
    for axes in itertools.permutations(range(4)):
        turned = many.transpose(axes)
        for view in (turned, turned[:, ::2, ::-1], turned[..., :2]):
            assert look(view)
            for at in (*np.ndindex(view.shape),)[::7]:
                kept, view[at] = view[at], 3
                assert not look(view)
                view[at] = kept
    assert not look(np.zeros((3, 0), dtype))


def test_the_loop_takes_arrays_of_the_kernels_alone():
    look = _core.by_isa["base"].has_zeros_and_ones
    unaligned = np.zeros(9, np.uint8)[1:].view(np.float64)
    for bad in ([0.0, 1.0], ALLOWED.astype(np.int16), ALLOWED.astype(">f8"), None):
        with pytest.raises(TypeError, match="has_zeros_and_ones: array must be float"):
            look(bad)
    assert not unaligned.flags.aligned
    with pytest.raises(TypeError, match="aligned"):
        look(unaligned)


def test_as_an_error_it_changes_nothing():
    """Results, generators and caches are those from before the call."""
    out, rng = np.full((2, 6, 4), 7.0), np.random.default_rng(3)
    before = rng.bit_generator.state
    layer = relpos.nn.MultiheadAttention(4, 2, dtype=np.float64, is_causal=True)
    cache = relpos.nn.KVCaches()
    layer(X[:, :2], cache=cache)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=MESSAGE):
            relpos.attention(X, X, X, ALLOWED, 0.5, rng=rng, out=out)
        with pytest.raises(UserWarning, match=MESSAGE):
            layer(X[:, 2:], attn_mask=ALLOWED[2:], cache=cache)
    assert (out == 7.0).all()
    assert rng.bit_generator.state == before
    whole = layer(X)
    assert np.allclose(layer(X[:, 2:], cache=cache), whole[:, 2:])


def test_results_and_gradients_are_those_of_added_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = relpos.attention(X, X, X, ALLOWED, return_context=True)
        call = {"attn_mask": ALLOWED}
        grads = relpos.attention_backward(
            result.out, None, relpos.attention_forward(X, X, X, **call), X, X, X, **call
        )
    assert np.array_equal(grads.value, result.context.backward(result.out).value)
    logits = X @ X.swapaxes(1, 2) / 2 + ALLOWED
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    assert np.allclose(result.out, weights / weights.sum(-1, keepdims=True) @ X)


def test_gradients_are_quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = relpos.attention_forward(X, X, X, attn_mask=ALLOWED)
    arguments = found.out, None, found, X, X, X
    assert not warned(lambda: relpos.attention_backward(*arguments, attn_mask=ALLOWED))
