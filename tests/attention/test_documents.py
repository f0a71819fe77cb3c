"""Packed documents: each has the results and the gradients that it has alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from refusals import refused

import relpos
from relpos import reference

H, HK, L, D, DV = 4, 2, 90, 6, 5
LONGEST = 41
#: Ends of documents: empty ones at both ends and between, and one of one token.
CUTS = [0, 0, 7, 7, 8, 8 + LONGEST, 70, L, L]
RNG = np.random.default_rng(0)
NETWORK = {
    "w1": RNG.standard_normal(6),
    "b1": RNG.standard_normal(6),
    "w2": RNG.standard_normal((H, 6)),
    "b2": RNG.standard_normal(H),
    "c": np.float64(0.4),
    "threshold": np.float64(3.5),
}
ROWS = {name: RNG.standard_normal((H, 2 * LONGEST - 1, D)) for name in "ACR"}
SHAW = RNG.standard_normal((7, DV))
SCHEMES = {
    "attention": {},
    "causal": {"is_causal": True, "enable_gqa": True},
    "tables": {
        "rel_key": ROWS["A"],
        "rel_query": ROWS["C"],
        "rel_value": SHAW,
        "rel_bias": RNG.standard_normal((H, 5)),
        "pos_bias_u": RNG.standard_normal((H, D)),
        "beyond": "zero",
        "softcap": 2.0,
        "sinks": RNG.standard_normal(H),
    },
    "window": {"window": (4, 2), "scale": 0.7},
    "shaw_attention": {"rel_key": ROWS["A"][:, :9], "rel_value": SHAW},
    "relative_global_attention": {"rel_key": ROWS["A"][:, :LONGEST]},
    "transformer_xl_attention": {
        "rel_key": ROWS["R"],
        "pos_bias_u": RNG.standard_normal(D),
        "pos_bias_v": RNG.standard_normal((H, D)),
    },
    "fire_attention": NETWORK,
    "fire_attention, signed": NETWORK | {"signed": True, "is_causal": True},
}
#: By which argument a document alone says where the table of the longest begins.
PLACED = {"transformer_xl_attention": {"min_relative_position": 1 - LONGEST}}


def tokens(dtype=np.float64, heads=H, batch=(2,)):
    rng = np.random.default_rng(1)
    shapes = {"query": (H, L, D), "key": (heads, L, D), "value": (heads, L, DV)}
    return {
        name: rng.standard_normal((*batch, *shape)).astype(dtype)
        for name, shape in shapes.items()
    }


def call_of(scheme):
    """The function of a scheme, its arguments, and its tokens."""
    name = scheme.partition(",")[0]
    function = getattr(relpos, name, relpos.attention)
    keywords = SCHEMES[scheme]
    return function, keywords, tokens(heads=HK if "enable_gqa" in keywords else H)


def alone(scheme, grad_out, grad_lse):
    """Results and gradients of each document by itself, one after the other."""
    function, keywords, packed = call_of(scheme)
    keywords = keywords | PLACED.get(scheme, {})
    outs, lses, sums, parts = [], [], {}, {name: [] for name in packed}
    for begin, end in pairwise(CUTS):
        own = {name: x[..., begin:end, :] for name, x in packed.items()}
        result = function(**own, **keywords, return_lse=True, return_context=True)
        outs.append(result.out)
        lses.append(result.lse)
        gradients = result.context.backward(
            grad_out[..., begin:end, :], grad_lse=grad_lse[..., begin:end]
        )
        for gradient_name, gradient in gradients._asdict().items():
            if gradient_name in parts:
                parts[gradient_name].append(gradient)
            elif gradient is not None:
                sums[gradient_name] = sums.get(gradient_name, 0) + gradient
    joined = {name: np.concatenate(x, -2) for name, x in parts.items()}
    return np.concatenate(outs, -2), np.concatenate(lses, -1), joined | sums


@pytest.mark.parametrize("dtype", [np.int32, np.int64, list])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_document_has_the_results_that_it_has_alone(scheme, dtype):
    function, keywords, packed = call_of(scheme)
    cuts = CUTS if dtype is list else np.array(CUTS, dtype)
    result = function(
        **packed, **keywords, cu_seqlens=cuts, return_lse=True, return_context=True
    )
    rng = np.random.default_rng(2)
    grad_out = rng.standard_normal(result.out.shape)
    grad_lse = rng.standard_normal(result.lse.shape)
    out, lse, gradients = alone(scheme, grad_out, grad_lse)
    near = {"rtol": 1e-11, "atol": 1e-12}
    np.testing.assert_allclose(result.out, out, **near)
    np.testing.assert_allclose(result.lse, lse, **near)
    packed_gradients = result.context.backward(grad_out, grad_lse=grad_lse)._asdict()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(packed_gradients[name], gradient, **near)


def test_steps_of_decay_are_those_of_a_document():
    steps = -np.random.default_rng(3).random((2, H, L))
    packed = tokens()
    out = relpos.attention(**packed, is_causal=True, log_decay=steps, cu_seqlens=CUTS)
    for begin, end in pairwise(CUTS):
        own = {name: x[..., begin:end, :] for name, x in packed.items()}
        want = relpos.attention(**own, is_causal=True, log_decay=steps[..., begin:end])
        np.testing.assert_allclose(out[..., begin:end, :], want, rtol=1e-11)


@pytest.mark.parametrize("place", [0, 3, 10, 50, L - 1])
def test_a_large_step_of_decay_rounds_no_other_document(place):
    """Sums of decay, and those of its gradient, begin again with each document."""
    rng = np.random.default_rng(3)
    packed, grad_out = tokens(), rng.standard_normal((2, H, L, DV))
    steps = -rng.random((2, H, L))
    steps[..., place] = -1e12
    grad_out[..., place, :] *= 1e14
    given = {"is_causal": True, "return_context": True}
    result = relpos.attention(**packed, **given, log_decay=steps, cu_seqlens=CUTS)
    gradients = result.context.backward(grad_out)
    for begin, end in pairwise(CUTS):
        here = np.s_[..., begin:end, :]
        own = {name: x[here] for name, x in packed.items()}
        want = relpos.attention(**own, **given, log_decay=steps[..., begin:end])
        np.testing.assert_allclose(result.out[here], want.out, rtol=1e-11, atol=1e-14)
        expected = want.context.backward(grad_out[here]).log_decay
        atol = 1e-12 * np.abs(expected).max(initial=1.0)
        got = gradients.log_decay[..., begin:end]
        np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


def test_items_that_share_steps_of_decay_have_documents_of_their_own():
    packed, cuts = tokens(), [[0, 20, 61, L], [0, 33, 40, L]]
    steps = -np.random.default_rng(3).random((H, L))
    steps[:, 10] = -1e12
    numbers = [np.repeat(range(3), np.diff(x)) for x in cuts]
    ranges = relpos.segment_ranges(np.stack(numbers))
    given = {"is_causal": True, "log_decay": steps}
    out = relpos.attention(**packed, **given, key_ranges=ranges)
    for item in range(2):
        for begin, end in pairwise(cuts[item]):
            own = {name: x[item, :, begin:end] for name, x in packed.items()}
            given["log_decay"] = steps[:, begin:end]
            want = relpos.attention(**own, **given)
            got = out[item, :, begin:end]
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("begins", [[0, 0, 20, 18, 30], [0, 7, 15, 15, 28], [5] * 5])
@pytest.mark.parametrize("window", [None, (6, 0)])
def test_sums_of_decay_go_on_where_a_later_query_looks_back(begins, window):
    """Ranges begin at keys at which sums begin again, and at others."""
    rng = np.random.default_rng(5)
    query, key, value, grad = rng.standard_normal((4, 1, 40, 4))
    steps = -rng.random((1, 40))
    begin = np.repeat(begins, 8)
    ranges = np.stack([begin, begin + 14], axis=-1)
    given = {"window": window, "query_offset": 4, "key_ranges": ranges}
    given |= {"log_decay": steps, "is_causal": True}
    result = relpos.attention(query, key, value, **given, return_context=True)
    want = reference.attention(query, key, value, **given)
    np.testing.assert_allclose(result.out, want, rtol=1e-11, atol=1e-13)
    gradient = result.context.backward(grad).log_decay
    expected = reference.attention_backward(grad, query, key, value, **given)
    np.testing.assert_allclose(gradient, expected.log_decay, rtol=1e-10, atol=1e-13)


def test_a_mask_and_labels_are_those_of_the_packed_sequence():
    rng = np.random.default_rng(4)
    mask, labels = rng.random((L, L)) < 0.8, rng.integers(-1, 5, (L, L))
    table, packed = rng.standard_normal((H, 5)), tokens()
    given = {"rel_bias": table, "attn_mask": mask, "labels": labels}
    out = relpos.attention(**packed, **given, cu_seqlens=CUTS)
    for begin, end in pairwise(CUTS):
        own = {name: x[..., begin:end, :] for name, x in packed.items()}
        pairs = (slice(begin, end), slice(begin, end))
        given = {"attn_mask": mask[pairs], "labels": labels[pairs], "rel_bias": table}
        want = relpos.attention(**own, **given)
        np.testing.assert_allclose(out[..., begin:end, :], want, rtol=1e-11)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_documents_of_short_numbers_and_of_many_tiles(dtype):
    rng = np.random.default_rng(5)
    cuts = [0, 300, 301, 700]
    x = rng.standard_normal((3, 2, 700, 16)).astype(dtype)
    out = relpos.attention(*x, is_causal=True, cu_seqlens=cuts)
    for begin, end in pairwise(cuts):
        want = relpos.attention(*x[..., begin:end, :], is_causal=True)
        atol = 2e-3 if dtype is np.float16 else 2e-6
        np.testing.assert_allclose(out[:, begin:end], want, atol=atol)


@pytest.mark.parametrize("signed", [False, True])
def test_steep_lines_of_fire_begin_again_with_each_document(signed):
    """A tile of queries of two documents: factors of positions rise again in it.

    Only the first queries of a document reach an x above 10, whose bias is far above
    that of all other keys. A tile of keys whose largest bias was taken to be that of
    the other queries would be left out.
    """
    rng = np.random.default_rng(6)
    cuts = [0, 500, 507, 1024]
    packed = rng.standard_normal((3, 1, 1024, 8)).astype(np.float32)
    sign = -1.0 if signed else 1.0
    network = {
        "w1": np.array([sign, sign], np.float32),
        "b1": np.array([0.0, -10.0], np.float32),
        "w2": np.array([[-400.0, 2000.0]], np.float32),
        "b2": np.zeros(1, np.float32),
    }
    given = network | {"c": 0.1, "threshold": 1.0, "signed": signed}
    given["return_context"] = True
    result = relpos.fire_attention(*packed, **given, cu_seqlens=cuts)
    grad = rng.standard_normal(result.out.shape).astype(np.float32)
    gradients = result.context.backward(grad, wrt=["query", "value"])
    for begin, end in pairwise(cuts):
        one = np.s_[:, begin:end]
        want = relpos.fire_attention(*packed[:, :, begin:end], **given)
        expected = want.context.backward(grad[one], wrt=["query", "value"])
        np.testing.assert_allclose(result.out[one], want.out, atol=2e-5)
        np.testing.assert_allclose(gradients.query[one], expected.query, atol=2e-4)
        np.testing.assert_allclose(gradients.value[one], expected.value, atol=2e-4)


def test_dropout_drops_pairs_of_the_packed_sequence():
    """The weights that are kept are those of a mask of the whole."""
    packed = tokens()
    ranges = relpos.segment_ranges(np.repeat(range(len(CUTS) - 1), np.diff(CUTS)))
    given = {"dropout_p": 0.4, "rng": 3}
    out = relpos.attention(**packed, **given, cu_seqlens=CUTS)
    want = relpos.attention(**packed, **given, key_ranges=ranges)
    np.testing.assert_array_equal(out, want)


def test_the_definition_has_documents_too():
    packed = tokens()
    for scheme in ("attention", "causal", "tables", "window"):
        _, keywords, packed = call_of(scheme)
        want = reference.attention(**packed, **keywords, cu_seqlens=CUTS)
        out = relpos.attention(**packed, **keywords, cu_seqlens=CUTS)
        np.testing.assert_allclose(out, want, rtol=1e-10, atol=1e-12)


def test_scores_hide_other_documents():
    packed = tokens()
    scores = relpos.scores(packed["query"], packed["key"], cu_seqlens=CUTS)
    number = np.repeat(range(len(CUTS) - 1), np.diff(CUTS))
    same = number[:, None] == number
    assert (np.isneginf(scores) == ~same).all()


def test_a_table_that_raises_may_be_as_long_as_the_longest_document():
    _, keywords, packed = call_of("relative_global_attention")
    table = keywords["rel_key"]
    relpos.relative_global_attention(**packed, rel_key=table, cu_seqlens=CUTS)
    with pytest.raises(IndexError, match="rel_key: visible relative positions run"):
        relpos.relative_global_attention(
            **packed, rel_key=table[:, 1:], cu_seqlens=CUTS
        )


def test_a_sequence_without_tokens_has_documents():
    x = np.zeros((2, 0, 3))
    for cuts in ([0], [0, 0, 0]):
        assert relpos.attention(x, x, x, cu_seqlens=cuts).shape == (2, 0, 3)
        table = np.zeros((1, 3))
        out = relpos.transformer_xl_attention(
            x, x, x, table, None, None, cu_seqlens=cuts
        )
        assert out.shape == (2, 0, 3)


WRONG = """
cu_seqlens=[0, 2, 5] -> ValueError: …cu_seqlens[2] is 5; expected 4, the length
cu_seqlens=[0, 3] -> ValueError: …cu_seqlens[1] is 3; expected 4, the length
cu_seqlens=[1, 4] -> ValueError: …cu_seqlens[0] is 1; expected 0
cu_seqlens=[0, 3, 2, 4] -> ValueError: …2 comes after 3 at cu_seqlens[2]; expected
cu_seqlens=[0, -1, 4] -> ValueError: …-1 comes after 0 at cu_seqlens[1]; expected
cu_seqlens=[] -> ValueError: cu_seqlens: got shape (0,); expected (n + 1,)…at the end
cu_seqlens=np.zeros(0, int) -> ValueError: …shape (0,)…(n + 1,)
cu_seqlens=[[]] -> ValueError: …shape (1, 0)…(n + 1,)
cu_seqlens=[[0, 4]] -> ValueError: …shape (1, 2)…(n + 1,)
cu_seqlens=4 -> ValueError: …shape ()…(n + 1,)
cu_seqlens=[0.0, 4.0] -> TypeError: …expected integers
cu_seqlens=np.array([0, 4], np.int16) -> TypeError: …int16; expected int32 or int64
cu_seqlens=np.array([0, 4], np.uint32) -> TypeError: …uint32; expected int32 or int64
cu_seqlens=np.array([False, True]) -> TypeError: …expected integers
cu_seqlens=[0, 10**30] -> ValueError: …does not fit int64
cu_seqlens="all" -> TypeError: …expected integers
cu_seqlens=[0, 4], key_ranges=[[0, 4]] -> ValueError: …together with key_ranges
cu_seqlens=[0, 4], key_lengths=4 -> ValueError: …together with key_lengths
cu_seqlens=[0, 4], key_blocks=np.ones((1, 2, 2), bool), block_size=2 -> ValueError:
    key_blocks: given together with cu_seqlens…key_ranges
cu_seqlens=[0, 4], query_offset=0 -> ValueError: …together with query_offset
cu_seqlens=[0, 4], key=np.zeros((1, 6, 2)), value=np.zeros((1, 6, 2)) -> ValueError:
    …4 queries and 6 keys; expected as many
"""


X = np.zeros((1, 4, 2))
test_what_is_no_list_of_documents_is_refused = refused(
    relpos.attention, {"query": X, "key": X, "value": X}, WRONG, {}
)


def test_transformer_xl_refuses_a_table_of_another_length():
    x = np.zeros((1, 6, 2))
    with pytest.raises(ValueError, match=r"rel_key: 6 rows for 4 queries"):
        relpos.transformer_xl_attention(
            x, x, x, np.zeros((6, 2)), None, None, cu_seqlens=[0, 4, 6]
        )
