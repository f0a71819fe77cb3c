"""A published model: its configuration, its weights by name, and one of its layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from relpos._checks import POSITION_LIMIT, as_int
from relpos._foreign import of_tensor


class Model(NamedTuple):
    """What a recipe is looked for in."""

    config: Mapping[str, Any]
    state: Mapping[str, Any]
    layer: int

    def setting(self, name: str, *default: Any) -> Any:
        """A value of the configuration; without a default it has to be there."""
        if name not in self.config and not default:
            raise ValueError(
                f"config: has no {name}; expected that of a whole "
                f"{self.config['model_type']} model"
            )
        return self.config.get(name, *default)

    def has(self, ending: str) -> bool:
        return bool(self._names(ending))

    def weight(self, ending: str) -> Any:
        """The array whose name ends like this, of the layer or of all layers."""
        names = self._names(ending)
        if len(names) != 1:
            found = f"{len(names)} names that end" if names else "no name that ends"
            raise ValueError(
                f"state_dict: {found} with {ending!r} for layer {self.layer}; expected "
                f"that of one {self.config['model_type']} model"
            )
        return of_tensor(self.state[names[0]])

    def _names(self, ending: str) -> list[str]:
        """Names of this layer, whose number comes first in them, else of no layer."""
        pattern = re.compile(rf"(?:.*\.)?{ending}")
        fits = [name for name in self.state if pattern.fullmatch(name)]
        numbers = {name: re.search(r"(?:^|\.)(\d+)\.", name) for name in fits}
        own = [n for n, m in numbers.items() if m and int(m[1]) == self.layer]
        return own or [n for n, m in numbers.items() if not m]

    def in_layers(self, name: str) -> Any:
        """What the configuration lists for each layer."""
        values = self.setting(name)
        if not isinstance(values, Sequence) or self.layer >= len(values):
            raise ValueError(f"config: {name} has no entry for layer {self.layer}")
        return values[self.layer]

    def sliding(self, kind: str, window: str) -> int | None:
        """The window of the layer if it is of that kind."""
        if self.in_layers("layer_types") != kind:
            return None
        return as_int(f"config: {window}", self.setting(window), 1, POSITION_LIMIT)
