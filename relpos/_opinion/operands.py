"""Known changes of scales, caps and terms, and of the heads of queries and keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import Attempt, Change, variant
from relpos._opinion.solved import TERMS, other_number
from relpos._opinion.tables import TABLES, first_of, tables_of


@variant
def scaled(attempt: Attempt, wanted: Callable[[int, int], float]) -> Attempt | None:
    """Make the scale of the number of heads and of their width."""
    (heads, _, dim), own = attempt.get("query").shape[-3:], attempt.get("scale")
    scale = wanted(heads, dim) if heads * dim else own
    return None if math.isclose(scale, own) else attempt.with_keywords(scale=scale)


@variant
def of_scale(
    attempt: Attempt, rule: Callable[[float], float], *unless: int
) -> Attempt | None:
    """Make another scale of the scale, unless that is one of some numbers."""
    own = attempt.get("scale")
    return None if own in unless else attempt.with_keywords(scale=rule(own))


def other_scales(attempt: Attempt) -> Iterator[Attempt]:
    """Use scales of other sizes, and the number that explains the results, if any."""
    (h, _, d), (lq, lk) = attempt.get("query").shape[-3:], attempt.lengths
    own = attempt.get("scale")
    if not all((h, d, lq, lk, own)):
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
        if not math.isclose(scale, own):
            yield attempt.told(f"a scale of {words}", scale=scale)
    yield from other_number(attempt, "scale")


def has_numbers(attempt: Attempt, *names: str) -> bool:
    """Return True if one of these arguments has numbers; of a mask not 0 alone."""
    floats = {n: x for n, x in attempt.given(names).items() if x.dtype.kind == "f"}
    if (mask := floats.pop("attn_mask", None)) is not None:
        return bool(floats) or bool((np.isfinite(mask) & (mask != 0)).any())
    return bool(floats)


@variant
def where(
    attempt: Attempt, holds: Callable[[Attempt], Any], /, **fields: Any
) -> Attempt | None:
    """Change fields of an attempt for which a condition holds."""
    return replace(attempt, **fields) if holds(attempt) else None


@variant
def rescaled(attempt: Attempt, names: tuple[str, ...], power: int) -> Attempt | None:
    fits = has_numbers(attempt, *names) and attempt.get("scale") not in (0, 1)
    powers = {**attempt.powers, **dict.fromkeys(names, power)}
    return replace(attempt, powers=powers) if fits else None


def transposed(attempt: Attempt) -> Iterator[Attempt]:
    if len({*attempt.lengths}) > 1 or attempt.lengths[0] < 2:
        return
    names = attempt.given(TERMS)
    # "mask_transposed" has the mask, with what it hides
    single = ((name,) for name in names if name != "attn_mask")
    every = [("content",), ("content", "pos_bias_u"), *single]
    for some in (*every, ("rel_key", "pos_bias_v")) if names else ():
        if {*some} <= {"content", *names}:
            words = " and ".join(TERMS[name] for name in some)
            yield replace(attempt, transposed=some, detail=f"{words} transposed")


def memory_unplaced(attempt: Attempt) -> Attempt | None:
    names = ("rel_key", "pos_bias_v", "rel_query", "rel_bias")
    if not attempt.cached or not attempt.given(names):
        return None
    return attempt.times(np.arange(attempt.lengths[1]) >= attempt.cached, *names)


def query_term_transposed(attempt: Attempt) -> Attempt | None:
    fits = "rel_query" in attempt.keywords and len({*attempt.lengths}) == 1
    return replace(attempt, transposed=("rel_query",)) if fits else None


@variant
def negated(attempt: Attempt, *names: str) -> Attempt | None:
    here = [name for name in names if has_numbers(attempt, name)]
    return attempt.times(-1.0, *here) if here else None


@variant
def without(attempt: Attempt, name: str) -> Iterator[Attempt]:
    """Leave an operand out, with the arguments that belong to it."""
    if name not in attempt.keywords:
        return
    found, dim = _left_out(attempt, name), attempt.get("query").shape[-1]
    yield found
    # DeBERTa counts its terms in the scale, 1 / sqrt(3 D).
    is_deberta = dim and math.isclose(attempt.get("scale"), (3 * dim) ** -0.5)
    other = {"rel_key": "rel_query", "rel_query": "rel_key"}.get(name)
    if is_deberta and other in found.keywords:
        side = "keys" if name == "rel_key" else "queries"
        words = f"the position term of the {side} left out, and a scale of"
        words += " 1 / sqrt(2 D), which does not count it"
        yield found.told(words, scale=(2 * dim) ** -0.5)


def without_positions(attempt: Attempt) -> Attempt | None:
    """Leave all tables out, and u and v, where that is more than one of them."""
    names = attempt.given((*TABLES, "pos_bias_u"))
    return _left_out(attempt, *names) if len(names) > 1 else None


def _left_out(attempt: Attempt, *names: str) -> Attempt:
    found = attempt.with_keywords(**dict.fromkeys(names))
    found = replace(found, left_out=(*attempt.left_out, *names[:1]))
    # Next to the vectors, a bias of another length is centred. Alone it would not be.
    kept = tables_of(found)
    if any(first_of(found, x) != first_of(attempt, x) for x in kept):
        return found.with_keywords(min_relative_position=None)
    return found


def without_mask_numbers(attempt: Attempt) -> Iterator[Attempt]:
    """Leave out the numbers of a floating mask, with or without what it hides."""
    mask = attempt.get("attn_mask")
    if attempt.fire or not has_numbers(attempt, "attn_mask"):
        return
    hidden = np.isneginf(mask)
    made = replace(attempt, left_out=(*attempt.left_out, "attn_mask"))
    yield made.with_keywords(attn_mask=~hidden if hidden.any() else None)
    if hidden.any():
        yield made.told("the mask left out, with its numbers", attn_mask=None)


def heads_tiled(attempt: Attempt) -> Attempt | None:
    group, heads = attempt.group, attempt.get("query").shape[-3]
    if group in (1, heads):
        return None
    order = np.arange(heads) % (heads // group) * group
    given = attempt.given(("key", "value"))
    new = {name: np.take(x, order, axis=-3) for name, x in given.items()}
    return attempt.with_keywords(**new)


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
    used = {PLURALS[own]: PLURALS[x] for own, x in pairs if own != x}
    if len(used) == 2 and used.keys() == {*used.values()}:
        return f"{' and '.join(used)} exchanged"
    return " and ".join(f"the {x} for the {own}" for own, x in used.items())


@variant
def in_roles(attempt: Attempt, roles: tuple[str, ...]) -> Attempt | None:
    """Use operands for others; of several lengths not all fit."""
    if not {*roles} <= attempt.keywords.keys():
        return None
    new = {name: attempt.get(x) for name, x in zip(OPERANDS, roles, strict=True)}
    if new["query"].shape != attempt.get("query").shape:
        return None
    return attempt.told(_words_of(roles), **new)


def all_roles(contrived: bool) -> list[Change]:
    """List uses of operands for others: exchanges of two and of one, or the rest."""
    found = []
    for roles in product(OPERANDS, repeat=3):
        different = sum(a != b for a, b in zip(roles, OPERANDS, strict=True))
        is_simple = different == 1 or (different == 2 and len({*roles}) == 3)
        if different and is_simple != contrived:
            found.append(roles)
    return [in_roles(x) for x in sorted(found, key=lambda roles: len({*roles}) < 3)]


def crossed(attempt: Attempt) -> Iterator[Attempt]:
    """Multiply values by transposed weights, of a softmax over keys or queries."""
    detail = "the weights transposed: of each key over the queries"
    if len({*attempt.lengths}) == 1 and attempt.lengths[0] > 1:
        made = replace(attempt, crossed=True, detail=detail)
        yield replace(made, axes=(-1,))
        detail += ", after a softmax over the queries"
        yield replace(made, axes=(-2,), detail=detail)


#: Normalisations of queries and keys, in words.
NORMS: dict[str, Callable[[Array], Array]] = {
    "divided by their length": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    "divided by their root mean square (RMSNorm)": lambda x: (
        x / np.sqrt((x**2).mean(axis=-1, keepdims=True))
    ),
    "less their mean, over their deviation (LayerNorm)": lambda x: (
        (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)
    ),
}


@quiet
def normalised(attempt: Attempt) -> list[Attempt]:
    found, sides = [], (("query", "key"), ("query",), ("key",))
    for names, (words, norm) in product(sides, NORMS.items()):
        detail = f"the {' and '.join(PLURALS[name] for name in names)} {words}"
        new = {name: norm(attempt.get(name)) for name in names}
        found.append(attempt.told(detail, **new))
    return found


@variant
def with_residual(attempt: Attempt, name: str) -> Attempt | None:
    wanted = attempt.get("query").shape[-2], attempt.get("value").shape[-1]
    detail = f"the {PLURALS[name]} added to the results, as a residual connection"
    fits = attempt.get(name).shape[-2:] == wanted
    return replace(attempt, residual=name, detail=detail) if fits else None


# ---- the decay -----------------------------------------------------------------------


def other_decays(attempt: Attempt) -> Iterator[Attempt]:
    """Sum other numbers, or those of other keys."""
    if (decay := attempt.get("log_decay")) is None:
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
        shape = (*decay.shape[:-1], *attempt.lengths)
        of_keys = np.broadcast_to(decay[..., None, :], shape)
        words = "the decay of the key's own position summed too"
        yield attempt.told(words, attn_mask=of_keys)
        words = "the decay of each key alone, not summed"
        yield attempt.told(words, attn_mask=of_keys, log_decay=None)


# ---- relative values -----------------------------------------------------------------


#: Rules by which relative values (..., Lq, Lk, Dv) are summed, in words: of the weights
#: and these values. The last one needs as many queries as keys.
SUMS: dict[str, Callable[[Array, Array], Array]] = {
    "without weights, as their sum over all keys": lambda p, x: x.sum(axis=-2),
    "without weights, as their mean over all keys": lambda p, x: x.mean(axis=-2),
    "summed over queries: the weights are transposed": (
        lambda p, x: np.einsum("...ij,...ijd->...jd", p, x)
    ),
}


def other_sums(attempt: Attempt) -> Iterator[Attempt]:
    for words, rule in SUMS.items() if attempt.given(("rel_value",)) else ():
        yield replace(attempt, of_values=rule, detail=f"the relative values {words}")
