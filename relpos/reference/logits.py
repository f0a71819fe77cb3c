"""The logits from which the weights of attention come."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos.reference import formula
from relpos.reference._typing import ArrayLike, Floats
from relpos.reference.pairs import masked

__all__ = ["scores"]

#: Keywords of attention that are nothing to its logits.
OTHERS = ("dropout_p", "num_threads", "rel_value", "rng", "sinks")


def scores(
    query: ArrayLike,
    key: ArrayLike,
    *,
    attn_mask: ArrayLike | None = None,
    is_causal: bool = False,
    **keywords: Any,
) -> Floats:
    """s_ij of `attention`: p_ij = exp(s_ij) / Σ_j exp(s_ij), -inf where it is hidden.

    Keywords are those of `attention`; what acts on weights and values alone is left
    out. Returns (..., H, Lq, Lk).

    See Also
    --------
    relpos.scores : In the dtype of the inputs, and term by term.
    attention : The attention of these scores.

    Examples
    --------
    >>> x = np.eye(2)[None]
    >>> scores(x, x, scale=1.0, rel_bias=[-0.5, 0.0, 9.0], is_causal=True)
    array([[[ 1. , -inf],
            [-0.5,  1. ]]])
    """
    own = {name: x for name, x in keywords.items() if name not in OTHERS}
    x = formula.terms(query, key, key, is_causal, **own)
    s, see = masked(formula.scores(x), x.see, attn_mask)
    return np.where(see, s, -np.inf)
