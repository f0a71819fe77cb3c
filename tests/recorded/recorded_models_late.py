"""More adapters for published models by their recipes: what has queries of its own."""

from __future__ import annotations

import numpy as np
from recorded import WITH_ALL


def fox(lib, case):
    """The logarithm of a gate is recorded; an identity makes a layer of it."""
    q, k, v, decay = (case[f"in_{name}"] for name in "qkvg")
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    logits = decay - np.log(1 - np.exp(decay))  # log f to what had gone to the sigmoid
    heads = logits.shape[-1]
    keywords = lib.recipes.forgetting_transformer(
        np.eye(heads, dtype=case.dtype),
        np.zeros(heads, case.dtype),
        case.cast(logits),
        window_size=case.flags.get("window"),
    )
    scale = case.flags.get("scale")
    result = lib.attention(q, k, v, scale=scale, **keywords, **WITH_ALL)
    yield "weights", result.weights, case.true("core_probs")
    yield "out", result.out.swapaxes(1, 2), case.true("out_out")


FAMILIES = {function.__name__: function for function in (fox,)}
