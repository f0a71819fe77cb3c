"""Weights of two implementations: numbers loaded into both, and parameters paired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from relpos._checks import Array, kind_of
from relpos._opinion.arrays import as_numpy, as_tensor, copied, is_module, largest

Gradients = dict[str, Array]


@contextmanager
def loaded(
    sides: Mapping[str, Any], weights: Mapping[str, Any] | None
) -> Iterator[dict[str, str]]:
    """Load arrays into both sides, or copy the weights of the reference into mine.

    It gives the names of mine by those of the reference, if `weights` has names. An
    error inside, or here, leaves both sides as they were.
    """
    if weights is None:
        yield {}
        return
    names, numbers = _read(sides, weights)
    # The state is copied before anything is loaded, since a load may fail half way.
    before = {side: copied(dict(sides[side].state_dict())) for side in numbers}
    try:
        for side, arrays in numbers.items():
            # Names may be of some parameters alone, and the others of mine stay as they
            # are.
            _fill(sides[side], arrays, **({"strict": False} if names else {}))
        yield names
    except BaseException:
        for side, state in before.items():
            sides[side].load_state_dict(state)
        raise


def _read(
    sides: Mapping[str, Any], weights: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Mapping[str, Any]]]:
    """Return the pairs of names, and what each side gets."""
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"weights: got {kind_of(weights)}; expected a mapping of names to arrays, "
            "or of names in the reference to names in mine"
        )
    for name, thing in sides.items():
        if not hasattr(thing, "load_state_dict"):
            raise TypeError(
                f"weights: given, but {name} has no load_state_dict; expected two that "
                "do"
            )
    of_names = [isinstance(x, str) for x in weights.values()]
    if not any(of_names):
        return {}, dict.fromkeys(sides, weights)
    if not all(of_names):
        raise TypeError(
            "weights: got names and arrays in one mapping; expected all values to be "
            "arrays, or all of them names in mine"
        )
    theirs, my_state = (thing.state_dict() for thing in sides.values())
    names = _pairs(theirs, my_state, weights)
    return names, {"mine": {new: theirs[old] for old, new in names.items()}}


def _fill(thing: Any, weights: Mapping[str, Any], **options: bool) -> None:
    """Load copies of arrays or tensors by the names of a state_dict."""
    copy = as_tensor if is_module(thing) else np.copy
    arrays = {key: as_numpy(f"weights[{key!r}]", x) for key, x in weights.items()}
    copies = {key: copy(x) for key, x in arrays.items()}
    try:
        thing.load_state_dict(copies, **options)
    except RuntimeError as error:  # torch's
        raise ValueError(f"weights: {error}") from None


def _pairs(
    theirs: Mapping[str, Any], mine: Mapping[str, Any], weights: Mapping[str, str]
) -> dict[str, str]:
    """Return the pairs of `weights`, and of names that both sides have besides."""
    for side, names, state in (
        ("the reference", weights, theirs),
        ("mine", weights.values(), mine),
    ):
        unknown = [name for name in names if name not in state]
        if unknown:
            raise ValueError(
                f"weights: got {_listed(unknown)}, which {side} does not have; "
                f"expected names in its state_dict: {_listed(state)}"
            )
    my_names = list(weights.values())
    twice = {name for name in my_names if my_names.count(name) > 1}
    if twice:
        raise ValueError(
            f"weights: got {_listed(sorted(twice))} of mine for several names of the "
            "reference; expected each name once"
        )
    # A name that both sides have, and that no pair mentions, is a pair too.
    alone = {name for name in theirs if name not in weights and name not in my_names}
    pairs = dict(weights)
    pairs |= {name: name for name in mine if name in alone}
    for old, new in pairs.items():
        shapes = tuple(theirs[old].shape), tuple(mine[new].shape)
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"weights: got {old!r} of shape {shapes[0]} for {new!r} of shape "
                f"{shapes[1]}; expected two of one shape"
            )
    return pairs


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def renamed(gradients: Gradients, names: Mapping[str, str]) -> Gradients:
    """Give the gradients of mine the names of the reference."""
    old_names = {new: old for old, new in names.items()}
    by_name = {}
    for name, gradient in gradients.items():
        # The reference has a parameter of this name, which is paired with another one
        # of mine.
        clash = f"{name} of mine" if name in names else name
        by_name[old_names.get(name, clash)] = gradient
    return by_name


def unpaired(
    reference: Gradients, mine: Gradients, names: Mapping[str, str]
) -> tuple[set[str], str | None]:
    """Return names of parameters that only one side has, and a note of what to pass.

    Both are empty if one side has all parameters of the other.
    """
    theirs = {n: x.shape for n, x in reference.items() if n not in mine}
    only_mine = {n: x.shape for n, x in mine.items() if n not in reference}
    lone = {n for n in (*theirs, *only_mine) if not n.isdigit()}
    # Inputs, which have numbers for names, are no parameters.
    theirs = {name: theirs[name] for name in theirs if name in lone}
    only_mine = {name: only_mine[name] for name in only_mine if name in lone}
    if not theirs or not only_mine:
        return set(), None
    pairs = {old: new for old, new in names.items() if old != new}
    for old, shape in theirs.items():
        new = next((name for name in only_mine if only_mine[name] == shape), None)
        if new is not None:
            pairs[old] = new.removesuffix(" of mine")
            # Each parameter of mine is proposed once.
            del only_mine[new]
    lines = [
        "the parameters of mine have other names, so that numbers and gradients of "
        "these are not compared. Pass the names in the reference and in mine, which "
        "are paired here by shape and order alone:",
        "weights={",
    ]
    lines += [f"    {old!r}: {new!r}," for old, new in pairs.items()]
    lines.append("}")
    unmatched = [name for name in theirs if name not in pairs]
    unmatched += only_mine
    if unmatched:
        lines.append(f"without a partner of the same shape: {', '.join(unmatched)}")
    return lone, "\n".join(lines)


def other_numbers(reference: Any, mine: Any, limit: float) -> str | None:
    """Return a note of parameters that have equal names and other numbers, if any."""
    sides = [thing for thing in (reference, mine) if hasattr(thing, "named_parameters")]
    if len(sides) < 2:
        return None
    theirs, my_numbers = (dict(_numbers_of(thing)) for thing in sides)
    both = [
        n for n in theirs if n in my_numbers and theirs[n].shape == my_numbers[n].shape
    ]
    # A parameter of another shape is left to the comparison of gradients.
    different = [n for n in both if _differ(theirs[n], my_numbers[n], limit)]
    if not different:
        return None
    all_paired = theirs.keys() == my_numbers.keys()
    expected = "weights=reference.state_dict()" if all_paired else "weights="
    return (
        f"{_listed(different)}: parameters of equal names and other numbers, by which "
        f"the results differ. Pass {expected} to compare both with the same numbers"
    )


def _numbers_of(thing: Any) -> Iterator[tuple[str, Array]]:
    """Yield the names and the numbers of parameters that have any."""
    for name, parameter in thing.named_parameters():
        if not hasattr(parameter, "materialize"):  # made by the first call
            numbers = parameter if is_module(thing) else parameter.data
            yield name, as_numpy(name, numbers)


def _differ(theirs: Array, mine: Array, limit: float) -> bool:
    """Return True if numbers differ by more than their rounding."""
    gap = np.abs(theirs.astype(np.float64) - mine.astype(np.float64))
    return bool((gap > limit * max(largest(theirs), largest(mine))).any())
