"""The adapter for attention that forgets: log_decay."""

from __future__ import annotations

from recorded import WITH_ALL


def fox(lib, case):
    """The reference of the Forgetting Transformer; heads last, a window of keys."""
    q, k, v = (case[f"in_{name}"].swapaxes(1, 2) for name in "qkv")
    window = case.flags.get("window")
    result = lib.attention(
        q,
        k,
        v,
        is_causal=True,
        window=None if window is None else (window - 1, None),
        scale=case.flags.get("scale"),
        enable_gqa=True,
        log_decay=case["in_g"].swapaxes(1, 2),
        **WITH_ALL,
    )
    yield "weights", result.weights, case.true("core_probs")
    yield "out", result.out.swapaxes(1, 2), case.true("out_out")


FAMILIES = {"fox": fox}
