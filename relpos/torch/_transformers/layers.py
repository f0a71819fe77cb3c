"""Parts that the swapped classes share: heads, and whether they ask the registry."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.registry import NAME


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    """Cut (..., L, H * D) into (..., H, L, D)."""
    return x.unflatten(-1, (count, -1)).transpose(-3, -2)


def joined(x: torch.Tensor) -> torch.Tensor:
    """Put (..., H, L, D) together as (..., L, H * D)."""
    return x.transpose(-3, -2).flatten(-2)


class Swapped:
    """A class that takes the place of the model's own, with the same parameters."""

    #: Whether the modules around it have to ask the registry for relpos.
    asks = False
    #: Whether it is attention, and not what attention needs around it.
    attends = True

    @staticmethod
    def fits(module: Any) -> bool:
        """Whether this module's settings are those that the class is for."""
        return True

    def prepare(self) -> None:
        """Keep what follows from the settings alone, before anything is traced."""


class Asking(Swapped):
    """One whose forward is the model's own, which asks the registry for attention."""

    asks = True
    config: Any

    def check_registry(self) -> None:
        """Raise where another attention would take the table for a dense bias."""
        name = self.config._attn_implementation
        if name != NAME:
            raise ValueError(
                f"attn_implementation: got {name!r}; expected {NAME!r}, for which "
                f"replace_attention has swapped {type(self).__name__}"
            )
