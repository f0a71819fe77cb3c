"""relpos.torch has the functions of relpos, by the same names and arguments."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
import torch
from torch.nn.attention.bias import causal_upper_left

import relpos
import relpos.torch

BY_AUTOGRAD = "autograd computes gradients"
OF_ARRAYS = "it has no parameters: torch.from_numpy makes a tensor of its result"
OF_TORCH = "torch.set_num_threads sets the threads of calls on tensors"
BY_SCORES = "scores has these terms: rel_key, pos_bias_u and pos_bias_v"
#: Names of relpos that relpos.torch does not have, and why.
REASONS = {
    "__version__": "that of the package",
    "show_config": "of the package",
    "AttentionContext": BY_AUTOGRAD,
    "AttentionForward": BY_AUTOGRAD,
    "attention_forward": BY_AUTOGRAD,
    "unskew": "the gradient of skew, which autograd computes",
    "index_encoding": OF_ARRAYS,
    "normalized_index_encoding": OF_ARRAYS,
    "random_encoding": OF_ARRAYS,
    "audit_encoding": "a report on an array: pass tensor.detach().numpy()",
    "EncodingAudit": "the result of audit_encoding",
    **dict.fromkeys(("get_num_threads", "set_num_threads", "threads"), OF_TORCH),
    **dict.fromkeys(("shaw_scores", "skewed_scores"), BY_SCORES),
    "transformer_xl_scores": BY_SCORES,
}


def is_of_a_backward(name):
    """Return True for a backward or its result, in place of which autograd is."""
    return name.endswith(("_backward", "Gradients"))


def test_every_name_is_in_both_or_has_a_reason():
    both = {*relpos.__all__} & {*relpos.torch.__all__}
    rest = {name for name in relpos.__all__ if name not in both}
    assert {name for name in rest if not is_of_a_backward(name)} == REASONS.keys()
    assert len(both) > 35 and "scores" in both
    for name in both:
        assert getattr(relpos.torch, name).__doc__


def test_functions_of_both_take_the_same_arguments():
    """Functions on tensors have no out and no context, and functions of pairs."""
    other = {"out", "return_context", "score_mod", "block_mask"}
    for name in {*relpos.__all__} & {*relpos.torch.__all__}:
        ours, theirs = getattr(relpos, name), getattr(relpos.torch, name)
        if isinstance(ours, type):
            continue
        wanted = [n for n in inspect.signature(ours).parameters if n not in other]
        found = [n for n in inspect.signature(theirs).parameters if n not in other]
        assert sorted(found) == sorted(wanted), name


def test_what_needs_no_form_of_its_own_is_that_of_relpos():
    for name in ("KVCache", "Plan", "plan", "rotary_magnitude"):
        assert getattr(relpos.torch, name) is getattr(relpos, name)
        assert getattr(relpos, name).__module__ == "relpos"
    assert len(pickle.loads(pickle.dumps(relpos.torch.KVCache(3)))) == 0


# ---- tables and settings -------------------------------------------------------------


def test_matrices():
    given = {"key_length": 5, "max_relative_position": 2, "query_offset": 3}
    np.testing.assert_array_equal(
        relpos.torch.relative_positions(4, **given),
        relpos.relative_positions(4, **given),
    )
    np.testing.assert_array_equal(
        relpos.torch.sinusoidal_shift_matrix(2.5, 5, layout="concat"),
        relpos.sinusoidal_shift_matrix(2.5, 5, layout="concat"),
    )
    with pytest.raises(TypeError, match=r"^query_length: got a tensor; expected none"):
        relpos.torch.relative_positions(torch.tensor(3))
    with pytest.raises(TypeError, match=r"^offset: got a tensor; expected none"):
        relpos.torch.sinusoidal_shift_matrix(torch.tensor(3.0), 4)


def test_rotary_parameters():
    config = {"head_dim": 8, "rope_theta": 1e4, "max_position_embeddings": 64}
    config["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0}
    got, want = (x.rotary_from_config(config) for x in (relpos.torch, relpos))
    assert type(got) is relpos.torch.RotaryParameters
    assert got.inv_freq.dtype == torch.float64 and got[1:] == want[1:]
    np.testing.assert_array_equal(got.inv_freq, want.inv_freq)
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    rotated = relpos.torch.apply_rotary(x, **got._asdict())
    np.testing.assert_array_equal(
        rotated, relpos.apply_rotary(x.numpy(), **want._asdict())
    )


def test_the_dtype_of_a_bias():
    """It is rounded once, from the numbers of the wider dtype."""
    for heads in (3, torch.tensor([0.3, 0.1])):
        slopes = heads if isinstance(heads, int) else heads.numpy()
        for dtype in (torch.float32, torch.float64):
            got = relpos.torch.alibi_bias(heads, 4, dtype=dtype)
            want = relpos.alibi_bias(slopes, 4, dtype=str(dtype)[6:])
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, want)
    wide = torch.tensor([0.1], dtype=torch.float64, requires_grad=True)
    got = relpos.torch.alibi_bias(wide, 4, dtype=torch.bfloat16)
    assert torch.equal(got, relpos.torch.alibi_bias(wide, 4).to(torch.bfloat16))
    (grad,) = torch.autograd.grad(got.sum(), wide)
    assert grad.dtype == torch.float64 and grad.item() == -12
    with pytest.raises(TypeError, match=r"^dtype: got torch.int64; expected bfloat16"):
        relpos.torch.alibi_bias(3, 4, dtype=torch.int64)


# ---- scores --------------------------------------------------------------------------

RNG = np.random.default_rng(0)
Q, K = RNG.standard_normal((2, 2, 4, 8))
TERMS = {
    "plain": {},
    "table": {"rel_key": RNG.standard_normal((5, 8)), "is_causal": True},
    "labels": {
        "rel_bias": RNG.standard_normal((2, 6)),
        "labels": (RNG.integers(0, 6, (4, 4)), RNG.integers(0, 6, (4, 4))),
    },
    "mask": {
        "attn_mask": RNG.random((4, 4)) < 0.7,
        "softcap": 2.0,
        "key_lengths": np.array(3),
        "dropout_p": 0.5,
    },
    "offsets": {"query_offset": 2, "window": (1, 0), "rng": 3, "num_threads": 1},
}


def in_tensors(value):
    if isinstance(value, tuple) and isinstance(value[0], np.ndarray):
        return tuple(map(in_tensors, value))
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", TERMS)
def test_scores(name, dtype):
    tokens = [in_tensors(x).to(dtype) for x in (Q, K)]
    wide = [x.to(torch.promote_types(dtype, torch.float32)).numpy() for x in tokens]
    given = {n: in_tensors(x) for n, x in TERMS[name].items()}
    for terms in (False, True):
        got = relpos.torch.scores(*tokens, terms=terms, **given)
        want = relpos.scores(*wide, terms=terms, **TERMS[name])
        if not terms:
            got, want = {"": got}, {"": want}
        assert got.keys() == want.keys()
        for term, array in want.items():
            assert str(got[term].dtype) == f"torch.{array.dtype}"
            np.testing.assert_array_equal(got[term], array)


def test_scores_are_those_of_attention():
    query, key = in_tensors(Q), in_tensors(K)
    terms = {n: in_tensors(x) for n, x in TERMS["labels"].items()}
    logits = relpos.torch.scores(query, key, **terms)
    out = relpos.torch.attention(query, key, key, **terms)
    torch.testing.assert_close(logits.softmax(-1) @ key, out)


def test_scores_have_no_gradient_and_say_so():
    query, key = in_tensors(Q), in_tensors(K)
    words = "requires a gradient, which scores does not have; expected a tensor without"
    for name in ("query", "key", "rel_key"):
        given = {"query": query, "key": key, "rel_key": torch.ones(5, 8).double()}
        given[name] = given[name].clone().requires_grad_()
        with pytest.raises(ValueError, match=rf"^{name}: {words}"):
            relpos.torch.scores(**given)
    with pytest.raises(ValueError, match=rf"^query: {words}"):
        torch.func.grad(lambda x: relpos.torch.scores(x, key).sum())(query)
    with pytest.raises(
        NotImplementedError, match=r"torch\.scores: has no forward-mode"
    ):
        torch.func.jvp(lambda x: relpos.torch.scores(x, key), (query,), (query,))
    with pytest.raises(
        TypeError, match=r"^key: got an array of dtype float64; expected"
    ):
        relpos.torch.scores(query, K)
    with pytest.raises(TypeError, match=r"^key: got a tensor of dtype torch\.int64"):
        relpos.torch.scores(query, key.long())
    with pytest.raises(TypeError, match=r"^key: got a tensor on device 'meta'"):
        relpos.torch.scores(query, key.to("meta"))


def test_scores_under_causal_masks_of_torch():
    query, key = in_tensors(Q), in_tensors(K)
    want = relpos.torch.scores(query, key, is_causal=True)
    got = relpos.torch.scores(query, key, attn_mask=causal_upper_left(4, 4))
    assert torch.equal(got, want)


def test_compiled_scores():
    query, key = in_tensors(Q), in_tensors(K)
    compiled = torch.compile(relpos.torch.scores, backend="aot_eager")
    assert torch.equal(compiled(query, key), relpos.torch.scores(query, key))


# ---- a cache -------------------------------------------------------------------------

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_decode_is_rows_of_one_call(dtype):
    q, k, v = torch.randn(3, 2, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    q, k, v = (x.to(dtype) for x in (q, k, v))
    bias = relpos.torch.alibi_bias(2, 6)
    whole = relpos.torch.attention(q, k, v, is_causal=True, rel_bias=bias)
    cache = relpos.torch.KVCache()
    for at in (slice(0, 3), slice(3, 4), slice(4, 6)):
        rows = q[..., at, :]
        assert cache.positions(rows).tolist() == [*range(at.start, at.stop)]
        cache.append(k[..., at, :], v[..., at, :])
        given = cache.arguments(rows)
        assert given["key"].dtype == given["value"].dtype == dtype
        out = relpos.torch.attention(rows, **given, is_causal=True, rel_bias=bias)
        assert out.dtype == dtype
        torch.testing.assert_close(out, whole[..., at, :])
    cache.crop(torch.tensor([4, 5]))
    assert cache.lengths.tolist() == [4, 5]
    cache.reorder(torch.tensor([1, 1]))
    assert torch.equal(cache.key, k[[1, 1]][..., :5, :])


def test_a_cache_refuses_gradients_and_other_kinds():
    x = torch.ones(2, 3, 4)
    cache = relpos.torch.KVCache()
    with pytest.raises(TypeError, match=r"^key: got a tensor that requires a gradient"):
        cache.append(x.clone().requires_grad_(), x)
    with pytest.raises(TypeError, match=r"^value: got ndarray, but key is Tensor"):
        cache.append(x, x.numpy())
    with pytest.raises(TypeError, match=r"^key: got torch\.int64; expected a floating"):
        cache.append(x.long(), x)
    assert len(cache) == 0
