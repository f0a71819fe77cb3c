"""Shared parts of the adapters of recorded layers: weights in, gradients out."""

from __future__ import annotations

import numpy as np


def make(kind, case, *args, **keywords):
    """A layer in the dtype under test, without dropout."""
    return kind(*args, dtype=case.dtype, **keywords).eval()


def weights(case, prefix="w_", **renamed):
    """A state_dict of the case's arrays; `renamed` maps parts of the recorded names."""
    found = {}
    for name in case.arrays:
        if name.startswith(prefix):
            own = name.removeprefix(prefix)
            for old, new in renamed.items():
                own = own.replace(old, new)
            found[own] = case.true(name)
    return found


def parameter_gradients(case, layer, prefix="grad_w_", **renamed):
    """Yield every recorded gradient of a parameter with the layer's own.

    A bias comes with its weight: that of the keys has a gradient of 0 in theory.
    """
    own = {name: parameter.grad for name, parameter in layer.named_parameters()}
    recorded = weights(case, prefix, **renamed)
    assert recorded
    for name, want in recorded.items():
        got = own[name]
        weight = name.removesuffix("bias") + "weight"
        if name.endswith(".bias"):
            got = np.append(got, own[weight])
            want = np.append(want, recorded[weight])
        yield f"grad {name}", got, want
