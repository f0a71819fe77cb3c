"""fire_attention: its arguments, and what they may hold."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
from fire_problems import network
from oracle_fire import NAMES
from problems import cast, qkv
from refusals import refused
from tolerances import assert_bitwise

import relpos
from relpos import reference
from relpos._settings import kernels

pytestmark = [pytest.mark.usefixtures("strict_floats"), pytest.mark.devmode]


def small(rng, heads=2, length=12):
    arrays = qkv(rng, (), heads, length, length, 4)
    names = ("query", "key", "value")
    return dict(zip(names, arrays, strict=True)) | network(rng, heads)


def test_dtypes_shapes_and_numbers():
    arguments = cast(small(np.random.default_rng(3)), "float32")
    arguments |= {"c": 0.25, "threshold": 5, "w1": arguments["w1"][:, None]}
    result = relpos.fire_attention(**arguments, return_context=True)
    assert result.out.dtype == np.float32
    gradients = result.context.backward(np.ones_like(result.out))
    assert gradients.w1.shape == (8, 1) and gradients.w1.dtype == np.float32
    assert gradients.c.shape == gradients.threshold.shape == ()
    assert gradients.rel_key is gradients.attn_mask is None
    half = {n: np.asarray(x, np.float16) for n, x in arguments.items()}
    result = relpos.fire_attention(**half, return_context=True)
    assert result.out.dtype == np.float16
    gradients = result.context.backward(np.ones_like(result.out))
    assert (
        gradients.query.dtype == gradients.w2.dtype == gradients.c.dtype == np.float16
    )
    wide = arguments | {"w2": arguments["w2"].astype(np.float64)}
    assert relpos.fire_attention(**wide).dtype == np.float64


def test_wrt_names_the_parameters():
    arguments = small(np.random.default_rng(4))
    context = relpos.fire_attention(**arguments, return_context=True).context
    grad = np.ones((2, 12, 4))
    everything = context.backward(grad)
    only = context.backward(grad, wrt=["threshold", "w2"])
    assert [n for n, x in only._asdict().items() if x is not None] == [
        "w2",
        "threshold",
    ]
    assert_bitwise(only.w2, everything.w2)
    assert_bitwise(only.threshold, everything.threshold)
    assert context.backward(grad, wrt=["key"]).w1 is None
    plain = relpos.attention(
        *qkv(np.random.default_rng(5), (), 2, 3, 3, 4), return_context=True
    )
    with pytest.raises(ValueError, match=r"^wrt: 'w1' is no input with .*log_decay$"):
        plain.context.backward(np.ones((2, 3, 4)), wrt=["w1"])


def test_fields_of_the_gradients_are_the_operands_of_the_call():
    """Attention's own, in its order; only FIRE's context goes on with FIRE's."""
    parameters = inspect.signature(relpos.attention).parameters
    fields = relpos.AttentionGradients._fields
    assert fields == tuple(name for name in parameters if name in fields)
    assert reference.AttentionGradients._fields == fields
    assert relpos.FireAttentionGradients._fields == (*fields, *NAMES)
    arguments = small(np.random.default_rng(4))
    tokens = [arguments[name] for name in ("query", "key", "value")]
    for result, kind in (
        (relpos.attention(*tokens, return_context=True), relpos.AttentionGradients),
        (
            relpos.fire_attention(**arguments, return_context=True),
            relpos.FireAttentionGradients,
        ),
    ):
        assert type(result.context.backward(np.ones((2, 12, 4)))) is kind


@pytest.mark.parametrize("shape", [(0, 2, 12), (2, 2, 0)])
def test_nothing_to_compute(shape):
    query = np.zeros((*shape, 4))
    arguments = network(np.random.default_rng(6), heads=2)
    for keys in (0, 3):
        key = np.zeros((*shape[:-1], keys, 4))
        result = relpos.fire_attention(
            query, key, key, **arguments, query_offset=0, return_context=True
        )
        assert not result.out.any()
        found = result.context.backward(np.ones_like(result.out))
        assert not any(np.any(getattr(found, name)) for name in NAMES)


@pytest.mark.sanitized
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-310])
@pytest.mark.parametrize("lq", [3, 40])
def test_no_value_crashes(name, bad, lq, isa):
    rng = np.random.default_rng(7)
    arguments = network(rng, heads=2)
    arguments[name] = np.array(arguments[name])
    arguments[name][(0,) * arguments[name].ndim] = bad
    for signed in (False, True):
        result = relpos.fire_attention(
            *qkv(rng, (), 2, lq, 300, 4),
            **arguments,
            query_offset=9,
            signed=signed,
            return_context=True,
        )
        assert result.out.shape == (2, lq, 4)
        if np.isnan(bad):
            assert np.isnan(result.out).any()
        found = result.context.backward(np.ones_like(result.out))
        assert found.w2.shape == (2, 8)


@pytest.mark.parametrize("lq", [3, 40])
def test_a_head_that_its_bias_hides(lq, isa):
    """b2 = -inf is -inf for all keys of a head, whatever is in them."""
    rng = np.random.default_rng(8)
    arguments, (query, key, value) = network(rng, heads=2), qkv(rng, (), 2, lq, 50, 4)
    arguments["b2"][0], value[0, 3], key[0, 7] = -np.inf, np.nan, np.inf
    result = relpos.fire_attention(
        query, key, value, **arguments, query_offset=9, return_lse=True
    )
    assert not result.out[0].any() and np.isneginf(result.lse[0]).all()
    assert np.isfinite(result.out[1]).all()


SHORT = np.ones((2, 9, 4))


test_bad_calls = refused(
    relpos.fire_attention,
    small(np.random.default_rng(9)),
    """
w2=np.ones((3, 8)), b2=np.ones(3) -> ValueError: w2: …3 heads, but que
b1=np.ones(7) -> ValueError: b1: …does not match w1's; expected (8,)
key=SHORT, value=SHORT -> ValueError: query_offset: …12 queries and 9 keys is
    ambiguous, and FIRE's bias depends on it
query=np.ones(4) -> ValueError: query: …(4,) has 1 axis
signed=1 -> TypeError: signed: …expected True or False
num_threads=0 -> ValueError: num_threads: got 0; expected an integer from 1
return_lse=1 -> TypeError: return_lse: …expected True or False
scale="1" -> TypeError: scale: …expected a real number
dropout=0.1 -> TypeError: dropout: got an unexpected keyword argument 'dropout'
""",
    globals(),
)


def test_a_context_can_be_pickled():
    arguments = small(np.random.default_rng(12))
    context = relpos.fire_attention(**arguments, return_context=True).context
    grad = np.ones((2, 12, 4))
    twin = pickle.loads(pickle.dumps(context))
    for name in NAMES:
        want = getattr(context.backward(grad), name)
        assert_bitwise(getattr(twin.backward(grad), name), want)


@pytest.fixture
def operands(monkeypatch):
    """Record the arguments of the kernels in one call, forward and backward."""
    table, seen = kernels(), {}
    with monkeypatch.context() as patched:
        for name in ("attention_forward", "attention_backward"):
            run = getattr(table, name)

            def record(call, name=name, run=run):
                seen[name] = dict(call)
                run(call)

            patched.setattr(table, name, record)
        arguments = small(np.random.default_rng(13))
        context = relpos.fire_attention(**arguments, return_context=True).context
        context.backward(np.ones((2, 12, 4)))
    return seen


FORWARD = ("fire_lines", "fire_offsets", "fire_queries")
SLOPES = ("fire_offset_slopes", "fire_query_slopes")


def test_the_kernels_check_their_operands(operands):
    for entry, names in (
        ("attention_forward", FORWARD),
        ("attention_backward", (*FORWARD, *SLOPES, "grad_fire")),
    ):
        run, call = getattr(kernels(), entry), operands[entry]
        run(call)
        for name in names:
            changed = call | {name: call[name].astype(np.float32)}
            with pytest.raises(TypeError, match=f"{name} must be float64"):
                run(changed)
            if name != "fire_lines":  # any number of lines will do
                rows = -2 if name in ("fire_query_slopes", "grad_fire") else -1
                fewer = np.delete(call[name], -1, rows)
                with pytest.raises(ValueError, match="fit"):
                    run(call | {name: fewer})
            if name != "grad_fire":
                with pytest.raises(ValueError, match=r"lacks other|has no operand"):
                    run(call | {name: None})
        spaced = np.repeat(call["fire_offsets"], 2, axis=-1)[..., ::2]
        with pytest.raises(ValueError, match="fire_offsets does not fit"):
            run(call | {"fire_offsets": spaced})
        with pytest.raises(ValueError, match="fire_signed is out of range"):
            run(call | {"fire_signed": 2})


def test_a_parameter_resized_after_the_call():
    arguments = small(np.random.default_rng(11))
    arguments["b1"] = np.array(arguments["b1"])
    context = relpos.fire_attention(**arguments, return_context=True).context
    arguments["b1"].resize((2, 4), refcheck=False)
    with pytest.raises(ValueError, match=r"^b1: resized or reshaped since the call"):
        context.backward(np.ones((2, 12, 4)))


def test_an_empty_batch_with_an_offset_of_each_item():
    query, network = np.zeros((0, 2, 5, 4)), [np.ones(3), np.ones(3), np.ones((2, 3))]
    parameters = (*network, np.ones(2), 0.5, 2.0)
    for tokens in (query, np.zeros((2, 5, 4))):
        result = relpos.fire_attention(
            tokens,
            tokens,
            tokens,
            *parameters,
            query_offset=np.zeros(0, int),
            return_context=True,
        )
        assert result.out.shape == query.shape
        grads = result.context.backward(result.out)
        assert grads.query.shape == tokens.shape and not grads.w1.any()
