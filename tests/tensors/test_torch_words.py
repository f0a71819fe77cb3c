"""Errors of `relpos.torch` speak of tensors: their dtypes, layouts and methods."""

from __future__ import annotations

import warnings

import pytest
import torch

import relpos.torch as rt
from relpos import KVCache

X = torch.ones(2, 4, 8)
FLOATS = "expected bfloat16, float16, float32 or float64"


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of a prototype
        return torch.nested.nested_tensor([X[0], X[1, :3]])


TENSORS = {
    "int64": (X.long(), f"got a tensor of dtype torch.int64; {FLOATS}"),
    "bool": (X > 0, f"got a tensor of dtype torch.bool; {FLOATS}"),
    "complex64": (X.cfloat(), f"got a tensor of dtype torch.complex64; {FLOATS}"),
    "sparse": (X.to_sparse(), "got a tensor of layout torch.sparse_coo; expected a"),
    "nested": (nested(), "got a nested tensor; expected a padded one"),
}
CALLS = {
    "query": lambda x: rt.attention(x, X, X),
    "key": lambda x: rt.shaw_attention(X, x, X, X[0, :3]),
    "rel_key": lambda x: rt.attention(X, X, X, rel_key=x),
    "log_decay": lambda x: rt.attention(X, X, X, is_causal=True, log_decay=x),
    "x": lambda x: rt.apply_rotary(x),
    "weight": lambda x: rt.conv_encoding(X, x),
    "table": lambda x: rt.learned(x, torch.arange(2)),
}
INTEGERS = {
    "buckets": lambda x: rt.attention(X, X, X, rel_bias=X[0, 0], buckets=x),
    "labels": lambda x: rt.attention(X, X, X, rel_bias=X[0, 0], labels=x),
    "key_lengths": lambda x: rt.attention(X, X, X, key_lengths=x),
    "key_ranges": lambda x: rt.attention(X, X, X, key_ranges=x),
    "positions": lambda x: rt.learned(X[0], x),
}


def error_of(call, tensor):
    with pytest.raises(TypeError) as caught:
        call(tensor)
    words = str(caught.value)
    for of_arrays in ("array", "NumPy", "numpy", "astype", "np."):
        assert of_arrays not in words
    return words


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("name", CALLS)
def test_floating_arguments(name, kind):
    tensor, wanted = TENSORS[kind]
    assert error_of(CALLS[name], tensor).startswith(f"{name}: {wanted}")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_arguments_name_the_dtype_that_came(name, dtype):
    """Half tensors are computed as float32, which is not what came."""
    words = error_of(INTEGERS[name], X.to(dtype))
    assert words.startswith(f"{name}: got a tensor of dtype {dtype}; expected int")


@pytest.mark.parametrize("dtype", [torch.int64, torch.float8_e5m2, "half", None])
def test_dtypes_of_results(dtype):
    want = f"dtype: got {dtype}; {FLOATS}"
    assert error_of(lambda dtype: rt.sinusoidal(3, 4, dtype=dtype), dtype) == want
    assert error_of(lambda dtype: rt.alibi_slopes(8, dtype=dtype), dtype) == want


def test_an_encoding_is_not_added_to_integers():
    words = error_of(
        rt.nn.SinusoidalEncoding(4), torch.ones(1, 2, 4, dtype=torch.int64)
    )
    assert words.startswith("x: got a tensor of dtype torch.int64; expected bfloat16,")


@pytest.mark.parametrize("kind", TENSORS)
def test_merged_parts(kind):
    tensor, wanted = TENSORS[kind]
    words = error_of(lambda x: rt.merge_attention(x, X, x, X), tensor)
    assert words.startswith(f"out_a: {wanted}")


@pytest.mark.parametrize("kind", ["sparse", "nested"])
def test_tokens_of_a_cache_are_dense(kind):
    words = error_of(lambda x: KVCache().append(X, x), TENSORS[kind][0])
    assert words.startswith("value: got a ") and "; expected a dense one (pass" in words


def test_tensors_of_another_device():
    meta, cache = X.to("meta"), KVCache()
    words = error_of(lambda x: rt.merge_attention(X, X[..., 0], x, X[..., 0]), meta)
    assert words.startswith("out_b: got a tensor on device 'meta'; expected one on 'cp")
    words = error_of(lambda x: cache.append(X, x), meta)
    assert words.startswith("value: got Tensor on meta, but key is Tensor; expected")
    cache.append(X, X)
    words = error_of(lambda x: cache.append(x, x), meta)
    assert words.startswith("key: got Tensor on meta of torch.float32; expected Tensor")
    assert len(cache) == 4
    with torch.device("meta"):
        got = rt.apply_rotary(X, magnitude=2.0)
    assert torch.equal(got, rt.apply_rotary(X, magnitude=2.0))


def test_a_number_of_tokens_is_no_tensor():
    words = error_of(lambda x: rt.nn.update_memory(X, X, x), torch.tensor(3))
    assert words.startswith("mem_len: got a tensor; expected none (pass tensor.item()")


@pytest.mark.parametrize("kind", ["int64", "complex64", "sparse", "nested"])
def test_masks(kind):
    words = error_of(lambda x: rt.attention(X, X, X, x), TENSORS[kind][0])
    assert words.startswith("attn_mask: got a")
    if kind == "int64":
        assert words.endswith(
            "torch.int64; expected bool, bfloat16, float16, float32 or float64 (True = "
            "may attend: convert with .to(torch.bool))"
        )
