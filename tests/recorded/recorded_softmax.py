"""Adapters for models that change the softmax itself: sinks, a cap on the scores."""

from __future__ import annotations

import numpy as np
from recorded import attend, compare, families, log_sum_exp

from relpos import recipes


def with_sinks(case, result):
    """As `compare`: recorded logits come without the sink, which is part of lse."""
    yield "weights", result.weights, case.true("core_probs")
    yield "out", result.out, case.true("core_ctx")
    logits = case.true("core_logits")
    sinks = np.asarray(case.true("w_sinks"), np.float64)[:, None, None]
    sinks = np.broadcast_to(sinks, (*logits.shape[:-1], 1))
    allowed = np.broadcast_to(case.true("core_allowed"), logits.shape)
    rows = np.concatenate([logits, sinks], -1)
    seen = np.concatenate([allowed, np.ones(sinks.shape, bool)], -1)
    yield "lse", result.lse, log_sum_exp(rows, seen)


def gpt_oss(lib, case):
    """Heads as rotary left them; a learned sink of each query head."""
    keywords = recipes.gpt_oss(case["w_sinks"], sliding_window=case.flags.get("window"))
    yield from with_sinks(case, attend(lib, case, **keywords))


def gemma2(lib, case):
    """Heads as rotary left them; the cap comes before the mask."""
    config = case.flags["config"]
    keywords = recipes.gemma2(
        query_pre_attn_scalar=config["query_pre_attn_scalar"],
        attn_logit_softcapping=config["attn_logit_softcapping"],
        sliding_window=case.flags.get("window"),
    )
    keywords["is_causal"] = case.flags["mask"] != "bi"
    yield from compare(case, attend(lib, case, **keywords))


FAMILIES = families(vars(), "lib", "case")
