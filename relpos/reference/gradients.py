"""Gradients of attention: the backward of `relpos.reference.formula`, term by term.

With dO and dl the gradients of out and lse, every line undoes one of the forward:

    out_i = Σ_j p_ij·z_ij·(v_j + W[l])     dX_ij = p_ij·z_ij·dO_i,  dv_j = Σ_i dX_ij
                                           dP_ij = z_ij·dO_i·(v_j + W[l])
    p_ij  = exp(s_ij - lse_i)              dS_ij = p_ij·(dP_ij - Σ_j p_ij·dP_ij + dl_i)
    s_ij  = scale·(q_i + u)·k_j            dq_i += scale·Σ_j dS_ij·k_j
                                           dk_j += scale·Σ_i dS_ij·(q_i + u)
                                           du    = scale·Σ_ij dS_ij·k_j
          + scale·(q_i + v)·A[l]           dq_i += scale·Σ_j dS_ij·A[l]
                                           dv    = scale·Σ_ij dS_ij·A[l]
          + scale·k_j·C[l]                 dk_j += scale·Σ_i dS_ij·C[l]
          + b[l] + mask_ij                 dmask_ij = dS_ij
    lse_i = log(exp(sink) + ..)            dsink = Σ_i exp(sink - lse_i)
                                                   · (dl_i - Σ_j p_ij·dP_ij)
          + Σ_{j < t ≤ i + o} g_t          dg_t = Σ_i Σ_{j < t} dS_ij over i + o ≥ t

With a position query e, (e_i + v)·A[l] takes the place of scale·(q_i + v)·A[l]: then
de_i = Σ_j dS_ij·A[l] instead of that share of dq_i, and dv and A's rows lack the scale.

and row t of a table gets the sum over all pairs with l(i, j) = t: of dX for W, dS for
b, scale·dS_ij·(q_i + v) for A and scale·dS_ij·k_j for C.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from relpos.reference._xp import ArrayLike, Bools, Floats, Rng, as_plain, names_alone
from relpos.reference.formula import (
    Terms,
    logits,
    moved_values,
    of_queries,
    products,
    terms,
    weigh,
)

__all__ = ["AttentionGradients", "attention_backward"]

#: None where there was no such input.
Gradient = Floats | None


@names_alone
class AttentionGradients(NamedTuple):
    """Gradients of the inputs of `attention`, None where there was no such input."""

    query: Floats
    key: Floats
    value: Floats
    attn_mask: Gradient = None
    rel_key: Gradient = None
    rel_query: Gradient = None
    rel_value: Gradient = None
    rel_bias: Gradient = None
    pos_bias_u: Gradient = None
    pos_bias_v: Gradient = None
    position_query: Gradient = None
    sinks: Gradient = None
    log_decay: Gradient = None


def attention_backward(
    grad_out: ArrayLike | None,
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    grad_lse: ArrayLike | None = None,
    rng: Rng = None,
    sinks: ArrayLike | None = None,
    **options: Any,
) -> AttentionGradients:
    """Gradients of Σ grad_out·out + Σ grad_lse·lse by every floating input.

    dP_ij = z_ij·dO_i·(v_j + W[l]), dS_ij = p_ij·(dP_ij - Σ_j p_ij·dP_ij + dl_i), and
    from these the gradient of each term of the score: `relpos.reference.gradients` has
    it line by line next to the forward.

    grad_out (..., H, Lq, Dv) and grad_lse (..., H, Lq), None for zeros; the other
    arguments are those of `attention`. With dropout `rng` must be the seed that the
    forward was called with. Each gradient has the shape of its input.
    """
    # The forward is computed again, with the same seed for dropout.
    x = terms(query, key, value, attn_mask=attn_mask, is_causal=is_causal, **options)
    values = moved_values(x)
    p, lse, z, see = weigh(logits(x), values, x.see, attn_mask, dropout_p, rng, sinks)
    dO = as_plain(0.0 if grad_out is None else grad_out, dtype=np.float64)
    # The new axis is that of the keys: the same gradient for every key of a query.
    dO = np.broadcast_to(dO, (*p.shape[:-1], values.shape[-1]))[..., None, :]
    dl = as_plain(0.0 if grad_lse is None else grad_lse, dtype=np.float64)[..., None]
    # A hidden pair is dropped before the products, because its value may be NaN.
    dX = (p * z)[..., None] * seen(dO, see)
    dP = z * np.sum(seen(dO, see) * seen(values, see), axis=-1)
    # The softmax passes on the difference from the weighted mean, and lse has weights
    # as its derivative. A sink uses this row too.
    row = dl - np.sum(p * dP, axis=-1, keepdims=True)
    dS = p * (dP + row)
    dS = np.where(see, dS, 0.0)
    # Only the products are under the cap; bias, mask and decay take dS itself.
    dq, dk, gradients = of_scores(x, passed(x, dS)[..., None], see)
    if "rel_value" in x.tables:
        gradients["rel_value"] = to_rows(x, "rel_value", dX)
    if "rel_bias" in x.tables:
        gradients["rel_bias"] = to_rows(x, "rel_bias", dS[..., None])[..., 0]
    if attn_mask is not None and as_plain(attn_mask).dtype != bool:
        gradients["attn_mask"] = sum_to(dS, np.shape(attn_mask))
    if sinks is not None:
        # A sink is a key without a value: its weight times what the softmax passes on.
        sink = of_queries(as_plain(sinks, dtype=np.float64))
        # lse is -inf where no key is visible and the sink is -inf too; its share is 0.
        share = np.where(lse == -np.inf, 0.0, np.exp(sink - lse))
        of_rows = sum_to(share * row[..., 0], sink.shape)
        gradients["sinks"] = of_rows.reshape(np.shape(sinks))
    if x.g is not None:
        # g_t is in the logit of every key j before t.
        before = np.cumsum(dS, axis=-1) - dS  # Σ_{j < t} dS_ij
        # Only steps up to the query's own position were summed in the forward.
        dg = np.sum(np.where(x.r <= 0, before, 0.0), axis=-2)
        gradients["log_decay"] = sum_to(dg, np.shape(options["log_decay"]))
    # Without a position query e is q, whose gradient then has both parts.
    if "rel_key" in x.tables and options.get("position_query") is None:
        dq = dq + gradients["position_query"]
    for name in ("pos_bias_u", "pos_bias_v", "position_query"):
        if options.get(name) is None:
            gradients.pop(name, None)
        else:
            gradients[name] = sum_to(gradients[name], np.shape(options[name]))
    return AttentionGradients(
        sum_to(dq, np.shape(query)),
        of_key_heads(dk, np.shape(key)),
        of_key_heads(np.sum(dX, axis=-3), np.shape(value)),
        **gradients,
    )


def passed(x: Terms, dS: Floats) -> Floats:
    """dS_ij·(1 - tanh²) where a cap is on the products, else dS."""
    if x.softcap is None:
        return dS
    slope = 1.0 - np.tanh(products(x) / x.softcap) ** 2
    # A hidden pair has dS = 0 and may have an infinite product, so 0 is chosen, not
    # computed.
    return np.where(dS == 0.0, 0.0, dS * slope)


def of_scores(
    x: Terms, dS: Floats, see: Bools
) -> tuple[Floats, Floats, dict[str, Floats]]:
    """dq, dk and the gradients of A, C, u, v and e by name, from dS (..., 1).

    That of q by the term of A is e's; without a position query they are one array.
    """
    gradients = {}
    # Queries get an axis of keys, and keys one of queries.
    k, q_u = x.k[..., None, :, :], (x.q + x.u)[..., :, None, :]
    scaled = x.scale * dS
    content = scaled * seen(k, see)
    dq, dk = np.sum(content, axis=-2), np.sum(scaled * seen(q_u, see), axis=-3)
    # u is added to every query, so its gradient sums over queries and keys.
    gradients["pos_bias_u"] = np.sum(content, axis=(-3, -2))
    if "rel_key" in x.tables:
        position = x.e_scale * dS * seen(x.of_pairs("rel_key"), see)
        gradients["position_query"] = np.sum(position, axis=-2)
        gradients["pos_bias_v"] = np.sum(position, axis=(-3, -2))
        e_v = (x.e + x.w)[..., :, None, :]
        gradients["rel_key"] = to_rows(x, "rel_key", x.e_scale * dS * seen(e_v, see))
    if "rel_query" in x.tables:
        # The table multiplies the key, and therefore the key has a second part.
        dk = dk + np.sum(scaled * seen(x.of_pairs("rel_query"), see), axis=-3)
        gradients["rel_query"] = to_rows(x, "rel_query", content)
    return dq, dk, gradients


def seen(pairs: Floats, see: Bools) -> Floats:
    """Zeros at hidden pairs, where the arrays may be NaN: (..., Lq, Lk, E)."""
    return np.where(see[..., None], pairs, 0.0)


def of_key_heads(gradient: Floats, shape: tuple[int, ...]) -> Floats:
    """Sum over the query heads that share a key head, then over broadcast axes."""
    *batch, heads, length, columns = gradient.shape
    # Without heads any group will do: there is nothing to sum.
    group = heads // shape[-3] if shape[-3] else 1
    grouped = gradient.reshape(*batch, heads // group, group, length, columns)
    return sum_to(np.sum(grouped, axis=-3), shape)


def to_rows(x: Terms, name: str, sent: Floats) -> Floats:
    """Adjoint of `gather`: row t of the table gets Σ of sent_ij where l(i, j) = t."""
    table = x.tables[name]
    total = np.zeros((*sent.shape[:-3], *table.shape[-2:]))
    # Several arrays of labels name a row each: a pair is sent to all of them.
    for row, inside in x.rows[name]:
        row = np.broadcast_to(row, sent.shape[:-1])
        pairs = np.nonzero(np.broadcast_to(inside, sent.shape[:-1]))
        *lead, _, _ = pairs
        # np.add.at adds repeated rows, where an assignment would keep the last one
        # alone.
        np.add.at(total, (*lead, row[pairs]), sent[pairs])
    return sum_to(total, table.shape)


def sum_to(gradient: Floats, shape: tuple[int, ...]) -> Floats:
    """Adjoint of broadcasting `shape`: the sum over the axes that were repeated."""
    # Shapes align at the last axis, so that missing axes come first.
    aligned = (1,) * (gradient.ndim - len(shape)) + shape
    repeated = tuple(a for a, n in enumerate(aligned) if n != gradient.shape[a])
    total: Floats = np.sum(gradient, axis=repeated, keepdims=True)
    return total.reshape(shape)
