"""Known changes of scales, caps and terms, and of the heads of queries and keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import Attempt, Change
from relpos._opinion.solved import TERMS, other_number
from relpos._opinion.tables import TABLES, first_of, one_reversed, tables_of


def scaled(attempt: Attempt, scale_of: Callable[[int, int], float]) -> Attempt | None:
    """Make the scale of the number of heads and of their width."""
    heads, _, dim = attempt.get("query").shape[-3:]
    if heads * dim == 0:
        return None
    scale = scale_of(heads, dim)
    # The same scale would be the formula itself.
    if math.isclose(scale, attempt.get("scale")):
        return None
    return attempt.with_keywords(scale=scale)


def no_scale(heads: int, dim: int) -> float:
    """Return a scale that changes nothing."""
    return 1.0


def scale_of_dim(heads: int, dim: int) -> float:
    """Return 1 / sqrt(D)."""
    return 1 / math.sqrt(dim)


def scale_by_dim(heads: int, dim: int) -> float:
    """Return 1 / D."""
    return 1 / dim


def scale_of_three_terms(heads: int, dim: int) -> float:
    """Return 1 / sqrt(3 D), for content and two position terms."""
    return 1 / math.sqrt(3 * dim)


def scale_of_model(heads: int, dim: int) -> float:
    """Return 1 / sqrt(d_model), where d_model is the width of all heads."""
    return 1 / math.sqrt(heads * dim)


def scale_squared(attempt: Attempt) -> Attempt | None:
    """Scale twice."""
    scale = attempt.get("scale")
    return None if scale == 1 else attempt.with_keywords(scale=scale**2)


def scale_inverted(attempt: Attempt) -> Attempt | None:
    """Divide by the scale."""
    scale = attempt.get("scale")
    return None if scale in (0, 1) else attempt.with_keywords(scale=1 / scale)


def other_scales(attempt: Attempt) -> Iterator[Attempt]:
    """Use scales of other sizes, and the number that explains the results, if any."""
    (h, _, d), (lq, lk) = attempt.get("query").shape[-3:], attempt.lengths
    right = attempt.get("scale")
    if not all((h, d, lq, lk, right)):
        return
    scales = {
        "1 / sqrt(Lk), of the number of keys": lk**-0.5,
        "1 / sqrt(Lq), of the number of queries": lq**-0.5,
        "1 / sqrt(H), of the number of heads": h**-0.5,
        "1 / Lk, of the number of keys": 1 / lk,
        "1 / d_model": 1 / (h * d),
        "D": d,
        "sqrt(d_model)": (h * d) ** 0.5,
        "D^(-1/4)": d**-0.25,
        "1 / sqrt(2 D)": (2 * d) ** -0.5,
        "1 / (2 sqrt(D))": 0.5 * d**-0.5,
        "2 / sqrt(D)": 2 * d**-0.5,
        "1 / sqrt(D / 2)": (d / 2) ** -0.5,
        "1 / sqrt(D / H)": (d / h) ** -0.5,
        "1 / D^2": d**-2,
    }
    for words, scale in scales.items():
        if not math.isclose(scale, right):
            yield attempt.told(f"a scale of {words}", scale=scale)
    yield from other_number(attempt, "scale")


def has_numbers(attempt: Attempt, *names: str) -> bool:
    """Return True if one of these arguments has numbers; of a mask not 0 alone."""
    floats = {n: x for n, x in attempt.arguments(names).items() if x.dtype.kind == "f"}
    # A mask of truth values, or of 0 and -inf, adds no numbers.
    mask = floats.pop("attn_mask", None)
    if floats or mask is None:
        return bool(floats)
    return bool((np.isfinite(mask) & (mask != 0)).any())


def where(
    attempt: Attempt, *, holds: Callable[[Attempt], bool], **fields: Any
) -> Attempt | None:
    """Change fields of an attempt for which a condition holds."""
    return replace(attempt, **fields) if holds(attempt) else None


def rescaled(attempt: Attempt, names: tuple[str, ...], power: int) -> Attempt | None:
    """Multiply some terms by a power of the scale."""
    if not has_numbers(attempt, *names) or attempt.get("scale") in (0, 1):
        return None
    powers = {**attempt.powers, **dict.fromkeys(names, power)}
    return replace(attempt, powers=powers)


def transposed(attempt: Attempt) -> Iterator[Attempt]:
    names = attempt.arguments(TERMS)
    if len({*attempt.lengths}) > 1 or attempt.lengths[0] < 2 or not names:
        return
    groups: list[tuple[str, ...]] = [("content",), ("content", "pos_bias_u")]
    # "mask_transposed" has the mask, with what it hides
    groups += [(name,) for name in names if name != "attn_mask"]
    groups.append(("rel_key", "pos_bias_v"))
    for group in groups:
        if {*group} <= {"content", *names}:
            words = " and ".join(TERMS[name] for name in group)
            yield replace(attempt, transposed=group, detail=f"{words} transposed")


def memory_unplaced(attempt: Attempt) -> Attempt | None:
    names = ("rel_key", "pos_bias_v", "rel_query", "rel_bias")
    if not attempt.cached or not attempt.arguments(names):
        return None
    # Terms of cached keys are multiplied by 0, and the others by 1.
    is_new = np.arange(attempt.lengths[1]) >= attempt.cached
    return attempt.times(is_new, *names)


def query_term_transposed(attempt: Attempt) -> Attempt | None:
    fits = "rel_query" in attempt.keywords and len({*attempt.lengths}) == 1
    return replace(attempt, transposed=("rel_query",)) if fits else None


def reversed_and_transposed(attempt: Attempt) -> Attempt | None:
    """Reverse the table of the queries, and transpose their position term."""
    reversed_table = one_reversed(attempt, "rel_query")
    if reversed_table is None:
        return None
    return query_term_transposed(reversed_table)


def negated(attempt: Attempt, names: tuple[str, ...]) -> Attempt | None:
    """Negate those of some terms that have numbers."""
    present = [name for name in names if has_numbers(attempt, name)]
    return attempt.times(-1.0, *present) if present else None


def without(attempt: Attempt, name: str) -> Iterator[Attempt]:
    """Leave an operand out, with the arguments that belong to it."""
    if name not in attempt.keywords:
        return
    reduced, dim = _left_out(attempt, name), attempt.get("query").shape[-1]
    yield reduced
    # DeBERTa counts its terms in the scale, 1 / sqrt(3 D).
    is_deberta = dim and math.isclose(attempt.get("scale"), (3 * dim) ** -0.5)
    other = {"rel_key": "rel_query", "rel_query": "rel_key"}.get(name)
    if is_deberta and other in reduced.keywords:
        side = "keys" if name == "rel_key" else "queries"
        words = f"the position term of the {side} left out, and a scale of"
        words += " 1 / sqrt(2 D), which does not count it"
        yield reduced.told(words, scale=(2 * dim) ** -0.5)


def without_positions(attempt: Attempt) -> Attempt | None:
    """Leave all tables out, and u and v, where that is more than one of them."""
    names = attempt.arguments((*TABLES, "pos_bias_u"))
    return _left_out(attempt, *names) if len(names) > 1 else None


def _left_out(attempt: Attempt, *names: str) -> Attempt:
    """Leave operands out; what remains of the tables stays where it is."""
    reduced = attempt.with_keywords(**dict.fromkeys(names))
    # The search subtracts what is left out from the number of mistakes, of which this
    # is one.
    reduced = replace(reduced, left_out=(*attempt.left_out, *names[:1]))
    # Next to the vectors, a bias of another length is centred. Alone it would not be.
    for name in tables_of(reduced):
        if first_of(reduced, name) != first_of(attempt, name):
            return reduced.with_keywords(min_relative_position=None)
    return reduced


def without_mask_numbers(attempt: Attempt) -> Iterator[Attempt]:
    """Leave out the numbers of a floating mask, with or without what it hides."""
    mask = attempt.get("attn_mask")
    # The numbers of FIRE are in its mask, and another change leaves these out.
    if attempt.fire or not has_numbers(attempt, "attn_mask"):
        return
    hidden = np.isneginf(mask)
    reduced = replace(attempt, left_out=(*attempt.left_out, "attn_mask"))
    if not hidden.any():
        yield reduced.with_keywords(attn_mask=None)
        return
    yield reduced.with_keywords(attn_mask=~hidden)
    yield reduced.told("the mask left out, with its numbers", attn_mask=None)


def heads_tiled(attempt: Attempt) -> Attempt | None:
    group, heads = attempt.group, attempt.get("query").shape[-3]
    if group in (1, heads):
        return None
    # Each key head is there `group` times: its first copy is taken.
    order = np.arange(heads) % (heads // group) * group
    operands = attempt.arguments(("key", "value"))
    reordered = {name: np.take(x, order, axis=-3) for name, x in operands.items()}
    return attempt.with_keywords(**reordered)


def u_v_added(attempt: Attempt) -> Iterator[Attempt]:
    u, v = attempt.get("pos_bias_u"), attempt.get("pos_bias_v")
    if u is not None and v is not None and u.shape[-1] == v.shape[-1]:
        for words, of_u, of_v in (
            ("the content term", u + v, None),
            ("the position term", None, u + v),
            ("both terms", u + v, u + v),
        ):
            detail = f"u and v added to the same queries, those of {words}"
            yield attempt.told(detail, pos_bias_u=of_u, pos_bias_v=of_v)


# ---- queries, keys and values used for one another -----------------------------------

OPERANDS = ("query", "key", "value")
PLURALS = {"query": "queries", "key": "keys", "value": "values"}


def _words_of(roles: tuple[str, ...]) -> str:
    """Say which operands are used for which."""
    pairs = zip(OPERANDS, roles, strict=True)
    used = {PLURALS[role]: PLURALS[x] for role, x in pairs if role != x}
    if len(used) == 2 and used.keys() == {*used.values()}:
        return f"{' and '.join(used)} exchanged"
    return " and ".join(f"the {x} for the {role}" for role, x in used.items())


def in_roles(attempt: Attempt, roles: tuple[str, ...]) -> Attempt | None:
    """Use operands for others; of several lengths not all fit."""
    if not {*roles} <= attempt.keywords.keys():
        return None
    operands = {name: attempt.get(x) for name, x in zip(OPERANDS, roles, strict=True)}
    # The shape of the results follows from that of the queries.
    if operands["query"].shape != attempt.get("query").shape:
        return None
    return attempt.told(_words_of(roles), **operands)


def all_roles(contrived: bool) -> list[Change]:
    """List uses of operands for others: exchanges of two and of one, or the rest."""
    # Where an exchange and a copy explain results equally well, the first is preferred.
    exchanges, copies = [], []
    for roles in product(OPERANDS, repeat=3):
        different = sum(a != b for a, b in zip(roles, OPERANDS, strict=True))
        is_exchange = len({*roles}) == 3
        is_simple = different == 1 or (different == 2 and is_exchange)
        if not different or is_simple == contrived:
            continue
        if is_exchange:
            exchanges.append(roles)
        else:
            copies.append(roles)
    return [partial(in_roles, roles=roles) for roles in (*exchanges, *copies)]


def crossed(attempt: Attempt) -> Iterator[Attempt]:
    """Multiply values by transposed weights, of a softmax over keys or queries."""
    detail = "the weights transposed: of each key over the queries"
    if len({*attempt.lengths}) == 1 and attempt.lengths[0] > 1:
        over_keys = replace(attempt, crossed=True, detail=detail, axes=(-1,))
        yield over_keys
        detail += ", after a softmax over the queries"
        yield replace(over_keys, axes=(-2,), detail=detail)


def _over_length(x: Array) -> Array:
    """Divide vectors by their Euclidean length."""
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def _rms_norm(x: Array) -> Array:
    """Divide vectors by their root mean square."""
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True)))


def _layer_norm(x: Array) -> Array:
    """Subtract the mean of vectors, and divide by their deviation."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(centred / x.std(axis=-1, keepdims=True))


#: Normalisations of queries and keys, in words.
NORMS: dict[str, Callable[[Array], Array]] = {
    "divided by their length": _over_length,
    "divided by their root mean square (RMSNorm)": _rms_norm,
    "less their mean, over their deviation (LayerNorm)": _layer_norm,
}


@quiet
def normalised(attempt: Attempt) -> list[Attempt]:
    """Normalise queries and keys, or one of the two."""
    # Vectors without columns have no mean, and nothing that a norm could change.
    if attempt.get("query").shape[-1] == 0:
        return []
    attempts, sides = [], (("query", "key"), ("query",), ("key",))
    for names, (words, norm) in product(sides, NORMS.items()):
        detail = f"the {' and '.join(PLURALS[name] for name in names)} {words}"
        vectors = {name: norm(attempt.get(name)) for name in names}
        attempts.append(attempt.told(detail, **vectors))
    return attempts


def with_residual(attempt: Attempt, name: str) -> Attempt | None:
    """Add an operand to the results, if it has their shape."""
    of_results = attempt.get("query").shape[-2], attempt.get("value").shape[-1]
    if attempt.get(name).shape[-2:] != of_results:
        return None
    detail = f"the {PLURALS[name]} added to the results, as a residual connection"
    return replace(attempt, residual=name, detail=detail)


# ---- the decay -----------------------------------------------------------------------


def other_decays(attempt: Attempt) -> Iterator[Attempt]:
    """Sum other numbers, or those of other keys."""
    decay = attempt.get("log_decay")
    if decay is None:
        return
    rules = {
        "with the other sign": -decay,
        "as factors, not as their logarithms": np.exp(decay),
        "summed twice": np.cumsum(decay, axis=-1),
        "in base 2": decay * math.log(2.0),
        "times log2(e)": decay / math.log(2.0),
    }
    for words, other in rules.items():
        yield attempt.told(f"the decay {words}", log_decay=other)
    if attempt.get("attn_mask") is None:
        # These decays are added as a mask, and so the call may not have one.
        shape = (*decay.shape[:-1], *attempt.lengths)
        of_keys = np.broadcast_to(decay[..., None, :], shape)
        words = "the decay of the key's own position summed too"
        yield attempt.told(words, attn_mask=of_keys)
        words = "the decay of each key alone, not summed"
        yield attempt.told(words, attn_mask=of_keys, log_decay=None)


# ---- relative values -----------------------------------------------------------------


def _sum_without_weights(weights: Array, values: Array) -> Array:
    """Sum values over all keys."""
    return np.asarray(values.sum(axis=-2))


def _mean_without_weights(weights: Array, values: Array) -> Array:
    """Return the mean of values over all keys."""
    return np.asarray(values.mean(axis=-2))


def _sum_over_queries(weights: Array, values: Array) -> Array:
    """Sum weighted values over queries; there must be as many of these as keys."""
    return np.asarray(np.einsum("...ij,...ijd->...jd", weights, values))


#: Rules by which relative values (..., Lq, Lk, Dv) are summed, in words: of the weights
#: and these values.
SUMS: dict[str, Callable[[Array, Array], Array]] = {
    "without weights, as their sum over all keys": _sum_without_weights,
    "without weights, as their mean over all keys": _mean_without_weights,
    "summed over queries: the weights are transposed": _sum_over_queries,
}


def other_sums(attempt: Attempt) -> Iterator[Attempt]:
    if "rel_value" not in attempt.keywords:
        return
    for words, rule in SUMS.items():
        yield replace(attempt, of_values=rule, detail=f"the relative values {words}")
