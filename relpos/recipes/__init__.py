r"""Published models as arguments of `attention`, one function a model.

Each takes parameters the way the model stores them and returns a dict of keywords:

>>> import numpy as np
>>> import relpos
>>> from relpos import recipes
>>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 4))
>>> weight = np.zeros((32, 2))  # T5's relative_attention_bias
>>> relpos.attention(q, k, v, **recipes.t5(weight)).shape
(2, 5, 4)

Other arguments go with them, as ``is_causal=True`` in a decoder. Parameters come in the
order of the model's state_dict, with its names.

Arrays may be tensors of PyTorch: the recipe then returns tensors, for the functions of
`relpos.torch`, and autograd computes gradients through it. All arrays of a call are of
one kind. A dtype of torch asks for a tensor, too.

Of arrays, a recipe that computes its arguments returns a `Recipe`, a dict whose method
`~Recipe.backward` turns the result of `relpos.AttentionContext.backward` into gradients
of the parameters. Of all others the gradients are under the names of the arguments, in
the model's own order of rows; the gradient of a parameter that feeds several arguments
is the sum of theirs.

Shapes: B batch items, H heads, Lq and Lk lengths, D columns of query and key.

See Also
--------
relpos.nn : Layers, for models with projections of their own.
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

from typing import TYPE_CHECKING

from relpos._suggestions import absent as _absent, publish as _publish
from relpos.recipes._recipe import *
from relpos.recipes.config import *
from relpos.recipes.decoders import *
from relpos.recipes.genomes import *
from relpos.recipes.images import *
from relpos.recipes.latent import *
from relpos.recipes.series import *
from relpos.recipes.speech import *
from relpos.recipes.text import *
from relpos.recipes.windows import *

__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)


def __dir__() -> list[str]:
    return __all__
