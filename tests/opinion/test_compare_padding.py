"""relpos.compare: rows that are padding, and floating masks of zeros and ones."""

from __future__ import annotations

import numpy as np
import pytest

import relpos
from relpos._opinion.arrays import added_mask
from relpos._opinion.padding import PADDING

B, H, L, D = 2, 2, 5, 4
LENGTHS = np.array([L, 3])
AFTER = np.arange(L) >= LENGTHS[:, None]


def arrays(count=3):
    return [*np.random.default_rng(0).standard_normal((count, B, H, L, D))]


def attend(query, key, value, key_lengths):
    return relpos.attention(
        query, key, value, key_lengths=key_lengths, return_context=True
    )


def padded_to(number, rows=AFTER):
    """Return attention whose rows of padding have another number."""

    def mine(query, key, value, key_lengths):
        out = relpos.attention(query, key, value, key_lengths=key_lengths)
        return np.where(rows[:, None, :, None], number, out)

    return mine


def verdict(*arguments):
    return relpos.compare(*arguments).rows[0].verdict


@pytest.mark.parametrize("number", [0.0, np.nan])
def test_rows_beyond_key_lengths(number):
    inputs = (*arrays(), LENGTHS)
    found = relpos.compare(attend, padded_to(number), *inputs)
    assert found.rows[0].verdict == PADDING and not found.same
    assert found.notes[0] == (
        "output: 4 of 20 rows are padding by key_lengths if queries and keys are one "
        "sequence; gradients are of the other rows"
    )
    assert f"{PADDING}: output (limit" in repr(found)
    assert verdict(padded_to(number), attend, *inputs) == PADDING


def test_other_rows_and_other_numbers_differ():
    inputs = (*arrays(), LENGTHS)
    assert verdict(attend, padded_to(1.0), *inputs) == "differs"
    before = AFTER.copy()
    before[0, 1] = True  # a row of the item without padding
    assert verdict(attend, padded_to(0.0, before), *inputs) == "differs"
    mine = padded_to(0.0)
    assert verdict(attend, lambda *x: 1.001 * mine(*x), *inputs) == "differs"


def test_a_name_that_is_not_known_hides_nothing():
    def named(query, key, value, lengths):
        return attend(query, key, value, lengths)

    inputs = (*arrays(), LENGTHS)
    assert verdict(named, lambda q, k, v, n: padded_to(0.0)(q, k, v, n), *inputs) == (
        "differs"
    )


def test_keys_of_another_length_are_no_queries():
    q, k, v = arrays()
    mine = padded_to(0.0, AFTER[:, :4])
    assert verdict(attend, mine, q[..., :4, :], k, v, LENGTHS) == "differs"
    nothing = np.array([L, 0])  # no query of the second item sees a key

    def mean(query, key, value, key_lengths):
        out = np.array(attend(query, key, value, key_lengths)[0])
        out[1] = value[1].mean(axis=-2, keepdims=True)
        return out

    assert verdict(attend, mean, q[..., :4, :], k, v, nothing) == PADDING


def masked(query, key, value, attn_mask):
    return relpos.attention(query, key, value, attn_mask=attn_mask, return_context=True)


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("axes", [2, 3, 4])
def test_rows_of_a_mask_that_see_nothing(floating, axes):
    visible = np.random.default_rng(1).random((B, 1, L, L)[4 - axes :]) < 0.8
    visible[..., 0] = True
    visible[..., 2, :] = False
    mask = np.where(visible, 0.0, -1e9 if floating else -np.inf)
    mask = mask if floating else visible

    def eager(query, key, value, attn_mask):
        hidden = ~visible if attn_mask.dtype == bool else attn_mask < -1
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
        scores = np.where(hidden, -1e9, scores)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True) @ value

    def zeros(query, key, value, attn_mask):
        return np.where(visible.any(-1)[..., None], eager(query, key, value, mask), 0.0)

    inputs = (*arrays(), mask)
    assert verdict(zeros, eager, *inputs) == PADDING
    assert verdict(eager, zeros, *inputs) == PADDING
    assert "if queries" not in relpos.compare(zeros, eager, *inputs).notes[0]
    visible[..., 2, 0] = True
    assert verdict(masked, eager, *arrays(), np.where(visible, 0.0, -1e9)) == "same"


def other_in_row_2(x, attn_mask):
    """Return 0 for the queries that see no key in the tests below."""
    return np.where(np.arange(L)[:, None] == 2, 0.0, x)


@pytest.mark.parametrize("shape", [(L, L), (B, H, L, L)])
def test_masks_of_heads_and_results_of_joined_heads(shape):
    visible = np.ones(shape, bool)
    visible[..., 2, :] = False
    x = arrays()[0][:, 0]
    assert verdict(lambda x, attn_mask: x, other_in_row_2, x, visible) == PADDING
    if len(shape) > 2:
        visible[:, 1, 2, 0] = True  # the second head sees a key
        assert verdict(lambda x, attn_mask: x, other_in_row_2, x, visible) == "differs"


@pytest.mark.parametrize("shape", [(L,), (3, 3), (7, 1, L, L)])
def test_masks_that_fit_no_rows_hide_none(shape):
    hidden = np.zeros(shape, bool)
    x = arrays()[0][:, 0]
    assert verdict(lambda x, attn_mask: x, other_in_row_2, x, hidden) == "differs"


def test_a_result_of_other_rows_has_no_padding():
    def pooled(query, key, value, key_lengths):
        return query.sum(axis=-1)

    def mine(query, key, value, key_lengths):
        return np.where(AFTER[:, None], 0.0, pooled(query, key, value, key_lengths))

    assert verdict(pooled, mine, *arrays(), LENGTHS) == "differs"


def test_gradients_leave_padding_out():
    """If one side has numbers in padding and the other 0, all gradients agree."""

    class Attention:
        """Attention with its backward, and a number in rows that see nothing."""

        def __init__(self, number):
            self.number = number

        def forward(self, query, key, value, attn_mask):
            result = masked(query, key, value, attn_mask)
            self.context = result.context
            self.rows = ~attn_mask.any(axis=-1)[..., None]
            return np.where(self.rows, self.number * query, result[0])

        __call__ = forward

        def backward(self, grad_out):
            query, key, value, *_ = self.context.backward(grad_out)
            own = np.where(self.rows, self.number * grad_out, 0.0)
            return query + own, key, value

    mask = np.tril(np.ones((L, L), bool), -1)
    found = relpos.compare(Attention(0.0), Attention(2.0), *arrays(), mask)
    verdicts = [row.verdict for row in found.rows]
    assert verdicts == [PADDING, "same", "same", "same"]


@pytest.mark.torch
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_mask_of_one_sequence_hides_its_rows(batch_first):
    torch = pytest.importorskip("torch")
    layer = torch.nn.MultiheadAttention(4, 2, batch_first=batch_first).double()

    class Mine(torch.nn.Module):
        """The same layer, and other numbers in padding, as of an output's bias."""

        def __init__(self, rows):
            super().__init__()
            self.layer, self.rows = layer, rows

        def forward(self, query, key, value, key_padding_mask):
            out, _ = self.layer(query, key, value, key_padding_mask)
            return out + torch.from_numpy(1.0 * self.rows)[..., None]

    x = torch.randn(B, L, 4).double()
    padding = AFTER if batch_first else AFTER.T
    x = x if batch_first else x.transpose(0, 1)
    for form in (AFTER, np.where(AFTER, -np.inf, 0.0)):
        given = (x, x, x, torch.from_numpy(form))
        assert verdict(layer, Mine(padding), *given) == PADDING
        assert verdict(layer, Mine(~padding), *given) == "differs"
    other = x.flip(-1)  # keys of another sequence
    assert verdict(layer, Mine(padding), x, other, other, given[-1]) == "differs"


@pytest.mark.torch
def test_a_bool_mask_of_pytorch_s_layer_hides_where_true():
    torch = pytest.importorskip("torch")
    layer = torch.nn.MultiheadAttention(4, 2, bias=False, batch_first=True).double()

    class Mine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, query, key, value, key_padding_mask, w, attn_mask):
            out, _ = self.layer(query, key, value, attn_mask=attn_mask)
            return out + torch.eye(L)[0][:, None]  # a number in row 0

    x = torch.randn(B, L, 4).double()
    hidden = torch.ones(L, L, dtype=torch.bool).triu()  # query 0 sees nothing
    assert verdict(layer, Mine(), x, x, x, None, False, hidden) == PADDING
    assert verdict(layer, Mine(), x, x, x, None, False, ~hidden) == "differs"


@pytest.mark.torch
def test_the_mask_of_a_model_of_tokens():
    torch = pytest.importorskip("torch")
    table = torch.randn(9, 4).double()

    def model(input_ids, attention_mask):
        return table[input_ids]

    def mine(input_ids, attention_mask):
        return table[input_ids] + (1.0 - attention_mask)[..., None]

    tokens = torch.arange(B * L).reshape(B, L) % 9
    mask = torch.from_numpy(~AFTER).long()
    found = relpos.compare(model, mine, tokens, mask)
    assert found.rows[0].verdict == PADDING and found.notes[0].startswith(
        "output: 2 of 10 rows are padding by attention_mask; "
    )
    assert verdict(model, mine, tokens.flip(1), mask.flip(1)) == PADDING


# ---- floating masks of zeros and ones ------------------------------------------------

ZEROS_AND_ONES = np.tril(np.ones((L, L)))


@pytest.mark.filterwarnings("ignore:attn_mask:UserWarning")
def test_a_mask_of_zeros_and_ones_is_added():
    inputs = arrays()
    sentence = (
        "attn_mask: got a floating mask of zeros and ones, which is added to the "
        "scores and hides nothing; expected a boolean mask, or a mask of 0 and -inf, "
        "to hide keys"
    )
    found = relpos.compare(masked, masked, *inputs, ZEROS_AND_ONES)
    assert found.same and found.notes == (sentence,)

    def unnamed(q, k, v, m):
        return masked(q, k, v, m)

    (note,) = relpos.compare(unnamed, unnamed, *inputs, ZEROS_AND_ONES).notes[:1]
    assert note == sentence.replace("attn_mask", "m")


@pytest.mark.parametrize("mask", [0, 1, 0.5, -np.inf, np.nan, "bool", "int"])
def test_other_masks_are_nothing_to_speak_of(mask):
    if isinstance(mask, str):
        mask = ZEROS_AND_ONES.astype(mask)
    else:
        mask = np.where(
            [[False] * (L - 1) + [True]], float(mask), mask if mask in (0, 1) else 0.0
        )
    assert added_mask("attn_mask", mask) is None
    if mask.dtype != int:
        assert relpos.compare(masked, masked, *arrays(), mask).notes == ()


def test_inputs_that_are_no_masks():
    """One-hot values, and the mask of tokens that transformers reads as bool."""
    q, k, v = arrays()
    hot = np.broadcast_to(np.eye(L, D), v.shape)
    assert relpos.compare(masked, masked, q, k, hot, None).notes == ()

    def model(x, attention_mask):
        return x * attention_mask[..., None]

    def layer(x, mask):
        return model(x, mask)

    x = q[:, 0]
    mask = np.where(AFTER, 0.0, 1.0)
    for function in (model, layer):
        notes = relpos.compare(function, function, x, mask).notes
        assert not any("floating" in note for note in notes)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_masks_that_are_tensors(dtype):
    torch = pytest.importorskip("torch")
    mask = torch.from_numpy(ZEROS_AND_ONES).to(getattr(torch, dtype))
    assert "expected a boolean mask" in (added_mask("attn_mask", mask) or "")
    assert added_mask("attn_mask", torch.ones_like(mask)) is None
    inputs = [torch.from_numpy(x).to(mask.dtype) for x in arrays()]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    found = relpos.compare(sdpa, sdpa, *inputs, mask)
    assert found.notes[0].startswith("input[3]: got a floating mask of zeros and ones")
