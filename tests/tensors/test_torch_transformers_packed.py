"""Documents packed in one sequence, as transformers hands them to `register()`."""

from __future__ import annotations

import pytest
import torch
import transformers

import relpos.torch as rt


@pytest.mark.parametrize("has_positions", [True, False])
def test_a_batch_without_padding_has_the_logits_of_each_document(has_positions):
    """By the collator for flash attention, in training: logits and gradients."""
    rt.register()
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=99,
        attn_implementation="relpos",
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    documents = [torch.randint(3, 99, (n,)) for n in (5, 9, 1, 6)]
    collate = transformers.DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_position_ids=has_positions
    )
    batch = collate([{"input_ids": x.tolist()} for x in documents])
    labels = batch.pop("labels")
    logits = model(**batch, use_cache=False).logits[0]
    logits.square().sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    eager = transformers.LlamaForCausalLM(config)
    eager.load_state_dict(model.state_dict())
    eager.set_attn_implementation("eager")
    wanted = torch.cat([eager(input_ids=x[None]).logits[0] for x in documents])
    assert labels.shape == (1, 21) and batch["cu_seq_lens_q"].tolist()[-1] == 21
    torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-6)
    wanted.square().sum().backward()
    for got, parameter in zip(found, eager.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad, rtol=1e-3, atol=1e-5)
