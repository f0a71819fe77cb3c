"""Modules for PyTorch: those of `relpos.nn`, by the names of their weights.

A module takes the constructor arguments of its twin in `relpos.nn`, with ``device`` and
``dtype`` as those of torch instead of ``rng`` and ``dtype``, and has the entries
of its state: either loads what the other has saved, strictly. Initial values are
from the same distributions. Where torch has the layer itself there is no second one:

=========================  =============================================================
`relpos.nn`                in PyTorch
=========================  =============================================================
Linear, LayerNorm          torch.nn.Linear, torch.nn.LayerNorm
Embedding, Dropout         torch.nn.Embedding, torch.nn.Dropout
cross_entropy              torch.nn.functional.cross_entropy
SGD, Adam, warmup_rate     torch.optim.SGD, torch.optim.Adam, their schedulers
load_file                  torch.load, safetensors.torch.load_file
Module, Parameter          torch.nn.Module, torch.nn.Parameter
ReLU, GELU                 torch.nn.ReLU, torch.nn.GELU with approximate="tanh"
Sequential                 torch.nn.Sequential
TransformerLayer           torch.nn.TransformerEncoderLayer, with a self_attn of here
=========================  =============================================================

`RelativeMultiheadAttention` is the twin of `relpos.nn.MultiheadAttention`, called as
``torch.nn.MultiheadAttention``; what is a layer there, as `relpos.nn.FIRE`, is its
`position` by name.
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

from typing import TYPE_CHECKING

from relpos._suggestions import absent as _absent, publish as _publish
from relpos.torch.nn._absolute import *
from relpos.torch.nn._attention import *
from relpos.torch.nn._multihead import *
from relpos.torch.nn._positions import SCHEMES as _POSITIONS

__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__, _POSITIONS)


def __dir__() -> list[str]:
    return __all__
