"""Layers that train: published PyTorch modules, in NumPy.

A layer has the constructor arguments of its module in PyTorch, the names and shapes of
its parameters, and its numbers. `load_state_dict` takes the module's weights, calling
the layer is the forward pass, and `backward(grad_out)` returns the gradient of the
inputs and adds those of the parameters to their `.grad`.

A token that no query sees has no part in a gradient, not even where it is nan: the mask
hides it as a key, and its own row of `grad_out` is zero where no loss counts that row.
In PyTorch the nan reaches the parameters, as 0 * nan.

Examples
--------
A language model of two blocks with the relative positions of Shaw et al., trained on a
text of one sentence, letter by letter:

>>> import numpy as np
>>> from relpos import nn
>>> text = np.frombuffer(b"the cat sat on the mat. " * 9, np.uint8)
>>> rng = np.random.default_rng(0)
>>> options = {"is_causal": True, "position": "shaw", "rng": rng}
>>> model = nn.Sequential(
...     nn.Embedding(128, 32, rng=rng),
...     nn.TransformerLayer(32, 4, **options),
...     nn.TransformerLayer(32, 4, **options),
...     nn.LayerNorm(32),
...     nn.Linear(32, 128, rng=rng),
... )
>>> optimizer = nn.Adam(model.parameters(), lr=3e-3)
>>> for step in range(60):
...     tokens = text[rng.integers(0, len(text) - 33, (8, 1)) + np.arange(33)]
...     loss, grad = nn.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])
...     optimizer.zero_grad()
...     model.backward(grad)
...     optimizer.step()
>>> loss < 0.3
True

It goes on from a prompt, one letter at a time:

>>> letters, cache = [*b"the"], nn.KVCaches()
>>> model = model.eval()
>>> logits = model([letters], cache=cache)
>>> for _ in range(11):
...     letters.append(int(logits[0, -1].argmax()))
...     logits = model([letters[-1:]], cache=cache)
>>> bytes(letters)
b'the cat sat on'
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

from typing import TYPE_CHECKING

from relpos._suggestions import absent as _absent, publish as _publish
from relpos.nn.absolute import *
from relpos.nn.attention import *
from relpos.nn.basic import *
from relpos.nn.composed import *
from relpos.nn.decoding import *
from relpos.nn.files import *
from relpos.nn.module import *
from relpos.nn.multihead import *
from relpos.nn.multihead import SCHEMES as _POSITIONS
from relpos.nn.optim import *
from relpos.nn.position import *
from relpos.nn.position_base import *
from relpos.nn.transformer_xl import *

__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__, _POSITIONS)


def __dir__() -> list[str]:
    return __all__
