r"""Published models as arguments of `attention`, one function a model.

Each takes parameters the way the model stores them and returns a dict of keywords:

>>> import numpy as np
>>> import relpos
>>> from relpos import recipes
>>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 4))
>>> weight = np.zeros((32, 2))  # T5's relative_attention_bias
>>> relpos.attention(q, k, v, **recipes.t5(weight)).shape
(2, 5, 4)

Others go beside them, ``attention(q, k, v, is_causal=True, **recipes.t5(weight))``.
Gradients come back under the names of the keywords, in the model's own order of rows;
the gradient of a parameter that feeds several keywords is the sum of theirs.

Shapes: B batch items, H heads, Lq and Lk lengths, D columns of query and key.

See Also
--------
relpos.attention : Takes the result as keywords.
relpos.nn : Layers, for what has projections of its own.
"""

from relpos._names import publish as _publish
from relpos.recipes.grids import (
    botnet as botnet,
    swin as swin,
)
from relpos.recipes.sequences import (
    bert as bert,
    deberta as deberta,
    t5 as t5,
)
from relpos.recipes.xlnet import (
    xlnet as xlnet,
    xlnet_segments as xlnet_segments,
    xlnet_segments_backward as xlnet_segments_backward,
)

__all__ = _publish(globals())
