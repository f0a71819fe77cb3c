"""Float32 error beside PyTorch's own float32 error, both against float64.

Run where torch is installed; marked so that it can be chosen or left out.
"""

from __future__ import annotations

import dense_oracle
import numpy as np
import pytest
from problems import cast, qkv, run, terms
from tolerances import TORCH_RATIO_MEDIAN, TORCH_RATIO_WORST, normwise

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SEEDS = range(20)


def torch_attention(query, key, value, rel_key=None, rel_value=None, **keywords):
    """The formula in torch float32, gathered as models without a fused kernel do it."""
    q, k, v = (torch.from_numpy(x) for x in (query, key, value))
    lq, lk = q.shape[-2], k.shape[-2]
    u, w = (keywords.get(name) for name in ("pos_bias_u", "pos_bias_v"))
    u, w = (0 if x is None else torch.from_numpy(x)[:, None] for x in (u, w))
    scores = (q + u) @ k.transpose(-1, -2)
    relative = torch.arange(lk) - torch.arange(lq)[:, None] - keywords["query_offset"]
    first = keywords.get("min_relative_position")

    def rows(table):
        start = -((table.shape[-2] - 1) // 2) if first is None else first
        return (relative - start).clamp(0, table.shape[-2] - 1)

    if rel_key is not None:
        products = (q + w) @ torch.from_numpy(rel_key).transpose(-1, -2)
        index = rows(rel_key).expand(*products.shape[:-1], lk)
        scores = scores + torch.gather(products, -1, index)
    p = torch.softmax(scores * q.shape[-1] ** -0.5, -1)
    out = p @ v
    if rel_value is not None:
        sums = torch.zeros(*p.shape[:-1], rel_value.shape[-2])
        sums.scatter_add_(-1, rows(rel_value).expand(p.shape), p)
        out = out + sums @ torch.from_numpy(rel_value)
    return out.numpy()


@pytest.mark.parametrize("kind", ["plain", "music", "xl", "shaw"])
@pytest.mark.parametrize(
    "lq, lk, size", [(64, 64, 1.0), (256, 256, 1.0), (256, 256, 4.0), (64, 4096, 1.0)]
)
def test_float32_error_beside_torch(kind, lq, lk, size):
    ratios = []
    for seed in SEEDS:
        rng = np.random.default_rng([seed, lq, lk])
        q, k, v = qkv(rng, (), 1, lq, lk, 64)
        inputs = [x.astype("float32") for x in (size * q, size * k, v)]
        keywords = terms(rng, kind, 1, lq, lk, 64, k=16, offset=lk - lq)
        keywords = cast(keywords, "float32")
        want = dense_oracle.attention(*inputs, **keywords).out
        ours = normwise(run(*inputs, **keywords).out, want)
        theirs = normwise(torch_attention(*inputs, **keywords), want)
        ratios.append(ours / theirs)
    assert np.median(ratios) <= TORCH_RATIO_MEDIAN
    assert np.max(ratios) <= TORCH_RATIO_WORST
