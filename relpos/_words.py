"""Errors about the kind of an argument, in words about arrays or about tensors.

relpos.torch hands its caller's tensors on as arrays. An error about one of them carries
its facts, so that it can be worded for the tensor that the caller gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

#: A tensor that was given for a number or a list, in a message.
NO_TENSOR = "a tensor; expected none (pass tensor.item() or tensor.tolist())"


class WrongKind(NamedTuple):
    """Facts of an argument that has another kind or dtype than a function takes."""

    name: str
    got: str  # of an array or another object, in words
    dtype: np.dtype[Any] | None  # of the array; None of another object
    expected: str | tuple[str, ...]  # in words, or several dtypes by their names
    reason: str = ""  # behind what came
    hint: str = ""  # behind what is expected; {} stands for a conversion to `cast`
    cast: str = ""  # name of a dtype

    def for_arrays(self) -> str:
        expected = self.expected
        if not isinstance(expected, str):
            expected = _alternatives(expected)
        cast = self.cast if self.cast == "bool" else f"np.{self.cast}"
        hint = self.hint.format(f".astype({cast})")
        return f"{self.name}: got {self.got}{self.reason}; expected {expected}{hint}"

    def for_tensors(self, dtype: object) -> str:
        """Return the words for a tensor of this dtype; None: it is not known."""
        expected, got = self.expected, self.got
        if not isinstance(expected, str):
            names = [*expected]
            if "float16" in names:  # tensors of bfloat16 need no other package
                names.insert(names.index("float16"), "bfloat16")
            expected = _alternatives(names)
        if self.dtype is not None:
            got = f"a tensor of dtype {dtype or f'torch.{self.dtype}'}"
        hint = self.hint.format(f".to(torch.{self.cast})")
        return f"{self.name}: got {got}{self.reason}; expected {expected}{hint}"


class UnreadTensor(NamedTuple):
    """Facts of a tensor that was given to a function of arrays."""

    name: str
    kind: str  # its class

    def for_arrays(self) -> str:
        return (
            f"{self.name}: got a torch {self.kind}; expected a NumPy array "
            "(relpos.torch has functions for tensors, with autograd; for arrays pass "
            "tensor.detach().cpu().numpy())"
        )

    def for_tensors(self, dtype: object) -> str:
        return f"{self.name}: got {NO_TENSOR}"


def _alternatives(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def kind_error(facts: WrongKind | UnreadTensor) -> TypeError:
    """Return an error in words about arrays, which carries its facts."""
    error = TypeError(facts.for_arrays())
    vars(error)["facts"] = facts
    return error


def words_for_tensors(error: TypeError, dtypes: Mapping[str, object]) -> str | None:
    """Return the words of an error for tensors, whose dtypes are given by name.

    None stands for the words that it has: those of an error without facts.
    """
    facts: WrongKind | UnreadTensor | None = vars(error).get("facts")
    return None if facts is None else facts.for_tensors(dtypes.get(facts.name))
