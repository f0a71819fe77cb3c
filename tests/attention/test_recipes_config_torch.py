"""recipes.from_config of DeBERTa compared with the models of transformers."""

from __future__ import annotations

import numpy as np
import pytest

import relpos
from relpos import recipes

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

H, D, L = 2, 8, 17
SIZES = {
    "vocab_size": 30,
    "hidden_size": H * D,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 16,
    "max_position_embeddings": 20,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
}
SHARED = {"position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True}
CASES = {
    "version 3": ("DebertaV2", SHARED),
    "without buckets": ("DebertaV2", {"position_buckets": -1}),
    "one term": ("DebertaV2", {"pos_att_type": ["c2p"], "position_buckets": 6}),
    "version 1": ("Deberta", {}),
    "version 1, clipped": ("Deberta", {"max_relative_positions": 9}),
    "version 1, no positions": ("Deberta", {"relative_attention": False}),
}


def attention_of(model, tokens):
    """Input and output of the second layer's attention."""
    attention, seen = model.encoder.layer[1].attention.self, {}

    def keep(module, args, keywords, result):
        seen["x"] = args[0] if args else keywords["hidden_states"]
        seen["out"] = result[0]

    attention.register_forward_hook(keep, with_kwargs=True)
    model(tokens, attention_mask=torch.ones_like(tokens))
    return attention, seen["x"], seen["out"]


def heads(x):
    return x.view(*x.shape[:-1], H, -1).transpose(1, 2)


def projections(attention, x):
    if hasattr(attention, "query_proj"):
        own = attention.query_proj, attention.key_proj, attention.value_proj
        return [heads(projection(x)) for projection in own]
    q, k, v = heads(attention.in_proj(x)).chunk(3, dim=-1)
    return (
        q + heads(attention.q_bias[None, None]),
        k,
        v + heads(attention.v_bias[None, None]),
    )


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_attention_of_the_model(case):
    """Its scales are square roots in float32, whatever its dtype."""
    name, settings = CASES[case]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES | settings)
    model = getattr(transformers, f"{name}Model")(config).eval().double()
    tokens = torch.randint(0, 30, (2, L))
    attention, x, out = attention_of(model, tokens)
    tokens = projections(attention, x)
    state = model.state_dict()
    keywords = recipes.from_config(config, state, 1)
    got = relpos.torch.attention(*tokens, **keywords)
    np.testing.assert_allclose(got, heads(out), rtol=1e-6, atol=1e-8)
    arrays = {name: weight.numpy() for name, weight in state.items()}
    keywords = recipes.from_config(config, arrays, 1)
    got = relpos.attention(*(t.numpy() for t in tokens), **keywords)
    np.testing.assert_allclose(got, heads(out), rtol=1e-6, atol=1e-8)
